"""A HOME that cannot be used: its replacement, and the messages about hatch's configuration."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

import pytest

from hatch_torch_ext.environments import program

VARIABLES = ("HATCH_CONFIG", "HATCH_DATA_DIR", "HATCH_TORCH_EXT_CACHE", "UV_CACHE_DIR")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the HOME of this process; temporary files are beside it."""
    for name in (*VARIABLES, "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, "")  # so that what is set is taken away again
        monkeypatch.delenv(name)
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_a_home_that_can_be_made_is_left_alone(home: Path) -> None:
    """If hatch and uv can make their folders, nothing is set, printed or made."""
    reports: list[str] = []
    program.replace_home(reports.append)
    assert (reports, home.exists(), [name for name in VARIABLES if name in os.environ]) == ([], False, [])


def test_what_is_used_instead_is_reported_once(home: Path) -> None:
    """All of it is in a folder of only this user; what the user set is kept."""
    home.touch()
    os.environ["UV_CACHE_DIR"] = "/mine"
    reports: list[str] = []
    program.replace_home(reports.append)
    program.replace_home(reports.append)
    folder = Path(tempfile.gettempdir(), f"hatch-torch-ext-{os.geteuid()}")
    assert reports == [
        f"this process (uid {os.geteuid()}) cannot use {home}/.config/hatch/config.toml, {home}/.local/share/hatch, "
        f"{home}/.cache/hatch-torch-ext: {folder} is used instead, hatch with its defaults. To keep what is cached, "
        "set HOME to a folder that it can write, or the variables HATCH_CONFIG, HATCH_DATA_DIR, HATCH_TORCH_EXT_CACHE"
    ]
    assert Path(os.environ["HATCH_CONFIG"]).read_bytes() == b""
    assert all(Path(os.environ[name]).parent == folder for name in VARIABLES if name != "UV_CACHE_DIR")
    assert os.environ["UV_CACHE_DIR"] == "/mine"
    assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.performs("set HOME to a folder that it can write")
@pytest.mark.parametrize("way", ["HOME", "variables"])
def test_what_the_message_says_to_set_is_enough(
    way: str, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another HOME, or the variables that are listed: nothing is replaced, and nothing is reported."""
    home.touch()
    reports: list[str] = []
    with monkeypatch.context() as patch:
        for name in VARIABLES:
            patch.setenv(name, "")
        program.replace_home(reports.append)
    (line,) = reports
    if way == "HOME":
        monkeypatch.setenv("HOME", str(tmp_path))
    else:
        for name in line.partition("or the variables ")[2].split(", "):
            monkeypatch.setenv(name, str(tmp_path / name))
    program.replace_home(reports.append)
    assert reports == [line]


def test_a_folder_that_others_can_write_is_not_used(home: Path) -> None:
    """Anybody may make a folder of that name among the temporary ones."""
    home.touch()
    folder = Path(tempfile.gettempdir(), f"hatch-torch-ext-{os.geteuid()}")
    folder.mkdir()
    folder.chmod(0o777)
    reports: list[str] = []
    program.replace_home(reports.append)
    (line,) = reports
    assert f", nor {folder} instead: set HOME to a folder that it can write, or the variables HATCH_CONFIG, " in line
    assert not any(name in os.environ for name in VARIABLES)


def test_environments_are_where_the_configuration_says(home: Path) -> None:
    """The author's `dirs.data` decides, as in hatch."""
    file = home / ".config" / "hatch" / "config.toml"
    file.parent.mkdir(parents=True)
    (home / "file").touch()
    file.write_text('[dirs]\ndata = "~/file/in the way"\n', encoding="utf-8")
    reports: list[str] = []
    program.replace_home(reports.append)
    assert f"cannot use {home}/file/in the way: " in reports[0]
    assert "hatch with its defaults" not in reports[0]


@pytest.mark.performs("or name another file with {}")
@pytest.mark.parametrize(
    ("text", "output", "at_fault"),
    [
        (None, "", False),
        ("", "", False),
        ("mode = 3\n", "ConfigurationError: Error parsing config:\nmode\n  must be a string", True),
        ("[open\n", "TOMLDecodeError", True),
    ],
)
def test_hatchs_own_configuration_at_fault(home: Path, *, text: str | None, output: str, at_fault: bool) -> None:
    """The message names it only if it is at fault, not the project's environments."""
    file = home / ".config" / "hatch" / "config.toml"
    if text is not None:
        file.parent.mkdir(parents=True)
        file.write_text(text, encoding="utf-8")
    remedy = f"Correct {file}, which is hatch's own configuration, or name another file with `HATCH_CONFIG`."
    assert program.home_fault(os.environ, output) == (remedy if at_fault else None)
    if at_fault and "parsing" not in output:
        (home / "other.toml").touch()
        (variable,) = re.findall(r"`(\w+)`", remedy)
        assert program.home_fault({**os.environ, variable: str(home / "other.toml")}, output) is None
        file.write_text("", encoding="utf-8")
        assert program.home_fault(os.environ, output) is None


def test_a_named_configuration_that_is_not_there(home: Path) -> None:
    """The variable is what to correct, or to unset."""
    assert program.home_fault({"HATCH_CONFIG": f"{home}/none.toml"}, "does not exist") == (
        f"Correct {home}/none.toml, which is hatch's own configuration, or name another file with `HATCH_CONFIG`, or "
        "`unset HATCH_CONFIG`."
    )
