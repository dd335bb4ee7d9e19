"""pip's configuration files: found where pip finds them, in its order."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

from hatch_torch_ext.base.errors import ConfigurationError
from hatch_torch_ext.remote import pipconfig

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def environ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Return variables under which no file of this machine is looked at."""
    monkeypatch.setattr(pipconfig, "SYSTEM", tmp_path / "etc" / "pip.conf")
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "venv"))
    return {"HOME": str(tmp_path / "home"), "XDG_CONFIG_DIRS": f"{tmp_path}/xdg:{tmp_path}/xdg2"}


def write(file: Path, text: str) -> None:
    """Write ``file`` into a new folder."""
    file.parent.mkdir(parents=True)
    file.write_text(text, encoding="utf-8")


def test_no_file_says_nothing(environ: dict[str, str]) -> None:
    """Most machines have none."""
    assert pipconfig.variables(environ) == {}
    assert pipconfig.variables({}) == {}


def test_the_nearer_file_wins(environ: dict[str, str], tmp_path: Path) -> None:
    """The system's, the user's, the environment's, the one that is named; keys of `pip install` before global ones."""
    write(tmp_path / "xdg" / "pip" / "pip.conf", "[global]\nindex-url = a\ncert = /a.pem\nproxy = http://a\n")
    write(tmp_path / "xdg2" / "pip" / "pip.conf", "[global]\ntimeout = 3\n[list]\nproxy = x\n")
    write(tmp_path / "etc" / "pip.conf", "[global]\nindex_url = b\ntrusted-host = b\nno-index = true\n")
    write(tmp_path / "home" / ".config" / "pip" / "pip.conf", "[install]\nindex-url = c\n[global]\nindex-url = d\n")
    expected = {
        "PIP_INDEX_URL": "c",
        "PIP_CERT": "/a.pem",
        "PIP_PROXY": "http://a",
        "PIP_DEFAULT_TIMEOUT": "3",
        "PIP_TRUSTED_HOST": "b",
        "PIP_NO_INDEX": "true",
    }
    assert pipconfig.variables(environ) == expected
    write(tmp_path / "venv" / "pip.conf", "[global]\nextra-index-url =\n    e\n    f%20g\nquiet = 1\n")
    found = pipconfig.variables(environ)
    assert found.pop("PIP_EXTRA_INDEX_URL").split() == ["e", "f%20g"]
    assert found == expected
    write(tmp_path / "named" / "pip.ini", "[global]\nproxy = http://n\n")
    found = pipconfig.variables({**environ, "PIP_CONFIG_FILE": str(tmp_path / "named" / "pip.ini")})
    assert (found["PIP_PROXY"], found["PIP_INDEX_URL"]) == ("http://n", "b")


def test_a_file_that_is_named_replaces_the_users_and_devnull_all(environ: dict[str, str], tmp_path: Path) -> None:
    """`PIP_CONFIG_FILE` does as it does for pip; one that does not exist changes nothing."""
    write(tmp_path / "home" / ".pip" / "pip.conf", "[global]\nindex-url = user\n")
    write(tmp_path / "etc" / "pip.conf", "[global]\nproxy = system\n")
    both = {"PIP_INDEX_URL": "user", "PIP_PROXY": "system"}
    assert pipconfig.variables({**environ, "PIP_CONFIG_FILE": str(tmp_path / "none")}) == both
    assert pipconfig.variables({**environ, "PIP_CONFIG_FILE": os.devnull}) == {}


@pytest.mark.parametrize("text", ["index-url = a\n", "[global]\nindex-url = a\nindex-url = b\n", "[global\n", "\xff"])
def test_a_file_that_cannot_be_read_is_named(text: str, environ: dict[str, str], tmp_path: Path) -> None:
    """So does pip fail on it: nothing is fetched from an index that the user did not mean."""
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "pip.conf").write_bytes(text.encode("latin-1"))
    with pytest.raises(ConfigurationError, match=r"etc/pip\.conf, which configures pip, cannot be read: "):
        pipconfig.variables(environ)
