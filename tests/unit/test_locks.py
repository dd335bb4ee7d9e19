"""Locks: who waits says for whom; what a dead process held is free; what was removed is made again."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hatch_torch_ext.base import locks
from hatch_torch_ext.pipeline import folders

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCE = Path(locks.__file__).parent.parent


@contextlib.contextmanager
def holder(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Let another process hold ``path`` until the context ends."""
    code = f"""
        import sys
        sys.path.insert(0, {str(SOURCE)!r})
        sys.argv[0] = "builder"
        from pathlib import Path
        from hatch_torch_ext import locks
        with locks.held(Path({str(path)!r}), what="it"):
            print("held", flush=True)
            sys.stdin.read()
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "held\n"
        try:
            yield program
        finally:
            program.kill()


def test_who_waits_says_for_whom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At once, with the other's process and folder, and again after a while with how long it has been."""
    monkeypatch.setattr(locks, "AGAIN", 0.3)
    said: list[str] = []
    with holder(tmp_path / "lock") as other:
        threading.Timer(0.9, other.kill).start()
        with locks.held(tmp_path / "lock", what="the work folder", report=said.append):
            pass
    first, *more = said
    assert first == f"waiting for the work folder, which process {other.pid} (builder in {Path.cwd()}) holds"
    assert more
    assert more[0].startswith(f"{first} (") is True
    assert more[0].endswith(" s so far)")


def test_killed(tmp_path: Path) -> None:
    """The locks of a killed process are free at once; no process waits for them."""
    with holder(tmp_path / "lock") as other:
        other.send_signal(signal.SIGKILL)
        other.wait()
    with locks.held(tmp_path / "lock", what="it", report=pytest.fail):
        pass


def test_threads_hold_each_other_off(tmp_path: Path) -> None:
    """Two openings conflict within one process."""
    with locks.held(tmp_path / "lock", what="it"):
        assert locks.take(tmp_path / "lock") is None
    descriptor = locks.take(tmp_path / "lock")
    assert descriptor is not None
    os.close(descriptor)


def test_a_lock_that_was_removed_is_made_anew(tmp_path: Path) -> None:
    """The holder may remove folder and lock: two who waited do not both get in."""
    folder = tmp_path / "work"
    folder.mkdir()
    inside, most = 0, 0

    def enter() -> None:
        nonlocal inside, most
        with locks.held(folder / "lock", what="it"):
            inside += 1
            most = max(most, inside)
            time.sleep(0.05)
            inside -= 1
            shutil.rmtree(folder)

    threads = [threading.Thread(target=enter) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert (inside, most) == (0, 1)


def test_links_are_not_followed(tmp_path: Path) -> None:
    """A lock file that is a link would create or empty another's file."""
    (tmp_path / "precious").write_text("kept")
    (tmp_path / "lock").symlink_to(tmp_path / "precious")
    with pytest.raises(OSError, match="symbolic links"), locks.held(tmp_path / "lock", what="it"):
        pass
    assert (tmp_path / "precious").read_text() == "kept"


def test_shared(tmp_path: Path) -> None:
    """While several use one thing, nobody gets it for himself."""
    first, second = locks.take(tmp_path, shared=True), locks.take(tmp_path, shared=True)
    assert first is not None
    assert second is not None
    assert locks.take(tmp_path) is None
    os.close(first)
    os.close(second)
    alone = locks.take(tmp_path)
    assert alone is not None
    os.close(alone)


def test_cleaning_waits_for_a_build(tmp_path: Path) -> None:
    """`clean` does not take the work folder from under a build; it says what it waits for."""
    work = folders.work(tmp_path, distribution="my-pkg")
    (work / "matrix.2.8").mkdir()
    said: list[str] = []
    with holder(work / "lock") as other:
        cleaning = threading.Thread(target=lambda: folders.clean(tmp_path, distribution="my-pkg", report=said.append))
        cleaning.start()
        time.sleep(0.4)
        assert (work / "matrix.2.8").is_dir()
        other.kill()
        cleaning.join(20)
    assert not work.exists()
    assert len(said) == 1
    assert said[0].startswith(f"waiting for the work folder {work}, which process {other.pid} ")


def test_cleaning_does_not_follow_a_link(tmp_path: Path) -> None:
    """A work folder that is a link is taken away as a link; what it led to stays."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "precious").touch()
    (tmp_path / "build").mkdir()
    (tmp_path / "build" / "torch-ext").symlink_to(elsewhere)
    folders.clean(tmp_path, distribution="my-pkg", report=print)
    assert (elsewhere / "precious").exists()
    assert not (tmp_path / "build" / "torch-ext").exists()
