"""The last boundary: no traceback, one sentence, and a file to attach, without secrets."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hatchling.builders.wheel import WheelBuilder

from hatch_torch_ext import audit, cli
from hatch_torch_ext.base import redact
from hatch_torch_ext.hooks import build

SENTENCE = re.compile(
    r"hatch-torch-ext: this is a fault of hatch-torch-ext \((.*)\); please report it, with the file (\S+)\n?"
)


@pytest.fixture(autouse=True)
def _apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    monkeypatch.setattr(redact, "_learned", set())


def broken(*_: object, **__: object) -> None:
    """Fail with an unexpected exception that contains a secret."""
    redact.learn("S3CRET-value")
    raise KeyError("\x1b[2J" + "S3CRET-value")


@pytest.fixture
def hook(tmp_path: Path) -> tuple[build.TorchExtBuildHook, list[str]]:
    """Return a hook whose application keeps its messages."""
    said: list[str] = []

    class App:
        def abort(self, text: str, code: int = 1) -> None:
            said.append(text)
            raise SystemExit(code)

    (tmp_path / "pyproject.toml").write_text('[project]\nname = "p"\nversion = "0"\n')
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "__init__.py").touch()
    builder: Any = WheelBuilder(str(tmp_path))
    hook = build.TorchExtBuildHook(
        str(tmp_path),
        {},
        builder.config,
        builder.metadata,
        str(tmp_path),
        "wheel",
        App(),  # type: ignore[arg-type]
    )
    return hook, said


def check(text: str) -> None:
    """Hold a message and its file against what they promise."""
    found = SENTENCE.fullmatch(text)
    assert found is not None, text
    assert found[1].startswith("KeyError: ")
    assert "S3CRET" not in text
    assert "\x1b" not in text
    report = Path(found[2]).read_text(encoding="utf-8")
    assert "Traceback" in report
    assert "in broken" in report
    assert "S3CRET" not in report
    assert report.startswith("hatch-torch-ext ")


def test_the_command_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """An unexpected exception in a command: status 1, one line, the report file."""
    monkeypatch.setattr(audit, "audit_wheel", broken)
    assert cli.main(["audit", "x.whl"]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    check(said.err)


@pytest.mark.parametrize("error", [RecursionError, MemoryError, UnicodeEncodeError])
def test_whatever_it_is(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exhausted stacks and memory, half of a surrogate pair: no traceback either."""

    def fail(*_: object, **__: object) -> None:
        if error is UnicodeEncodeError:
            "\ud800".encode()
        raise error("\ud800")

    monkeypatch.setattr(audit, "audit_wheel", fail)
    assert cli.main(["audit", "x.whl"]) == 1
    assert f"({error.__name__}: " in capsys.readouterr().err


def test_the_hook(hook: tuple[build.TorchExtBuildHook, list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    """An unexpected exception in a build aborts it with the same message."""
    builds, said = hook
    monkeypatch.setattr(builds, "_initialize", broken)
    with pytest.raises(SystemExit):
        builds.initialize("standard", {})
    check(said[0])


def test_a_wheel_that_was_not_looked_at_is_removed(
    hook: tuple[build.TorchExtBuildHook, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When looking at the finished wheel fails in any way, it cannot be published."""
    builds, said = hook
    wheel = tmp_path / "x.whl"
    wheel.touch()
    monkeypatch.setattr(builds, "_finalize", broken)
    with pytest.raises(SystemExit):
        builds.finalize("standard", {}, str(wheel))
    assert list(tmp_path.glob("**/*.whl")) == []
    check(said[0])


def test_a_kill_leaves_no_wheel_that_was_not_audited(
    hook: tuple[build.TorchExtBuildHook, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it is audited the wheel is not where wheels are published from; afterwards it is, and nothing else."""
    builds, _ = hook
    (tmp_path / "dist").mkdir()
    wheel = tmp_path / "dist" / "x.whl"
    wheel.write_text("wheel")
    seen: list[list[str]] = []

    def audited(aside: Path) -> list[Path]:
        seen.append([path.name for path in wheel.parent.glob("*.whl")])
        assert (aside.name, aside.read_text()) == ("x.whl", "wheel")
        other = aside.with_name("of_another_machine.whl")
        other.write_text("other")
        return [aside, other]

    monkeypatch.setattr(builds, "_finalize", audited)
    aside = wheel.parent / build.UNAUDITED
    aside.mkdir()
    (aside / "x.whl").write_text("of a build that was killed")
    builds.finalize("standard", {}, str(wheel))
    assert seen == [[]]
    other = wheel.with_name("of_another_machine.whl")
    assert sorted(wheel.parent.iterdir()) == [other, wheel]
    assert (wheel.read_text(), other.read_text()) == ("wheel", "other")


def test_wheels_of_several_machines_are_put_into_place_together(
    hook: tuple[build.TorchExtBuildHook, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where one cannot be moved, none stays, and the error names the place and what helps."""
    builds, said = hook
    wheel = tmp_path / "dist" / "x.whl"
    names = [f"{machine}.whl" for machine in ("x", "first", "second", "third")]
    (wheel.parent / "second.whl").mkdir(parents=True)
    wheel.touch()

    def audited(aside: Path) -> list[Path]:
        for name in names:
            aside.with_name(name).touch()
        return [aside.with_name(name) for name in names]

    monkeypatch.setattr(builds, "_finalize", audited)
    with pytest.raises(SystemExit):
        builds.finalize("standard", {}, str(wheel))
    assert list(wheel.parent.iterdir()) == [wheel.parent / "second.whl"]
    assert said == [
        f"hatch-torch-ext: {wheel.parent}/second.whl cannot be written: Is a directory. No wheel of this build stays "
        f"in {wheel.parent}. Make room for it, and run the same command again: it continues with what is finished"
    ]


def test_what_hatchling_refuses_is_its_own_message(
    hook: tuple[build.TorchExtBuildHook, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error that hatchling raises is not called our fault."""
    builds, said = hook

    def refuse(*_: object) -> None:
        Path(builds.root, "pyproject.toml").write_text("[project]\nname = 3\n")
        _ = WheelBuilder(builds.root).metadata.core.name  # type: ignore[assignment]

    monkeypatch.setattr(builds, "_initialize", refuse)
    with pytest.raises(TypeError, match=r"project\.name"):
        builds.initialize("standard", {})
    assert said == []


def test_no_room_for_the_file(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Where the file cannot be written, the sentence stands alone."""
    monkeypatch.setattr("tempfile.tempdir", "/nowhere")
    monkeypatch.setattr(audit, "audit_wheel", broken)
    assert cli.main(["audit", "x.whl"]) == 1
    assert capsys.readouterr().err.endswith("; please report it\n")
