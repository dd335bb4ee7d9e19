"""Files that are replaced whole."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from hatch_torch_ext.base import atomic, locks

if TYPE_CHECKING:
    from pathlib import Path


def test_drafts_of_a_process_that_runs_stay(tmp_path: Path) -> None:
    """Two that write one file at once do not take each other's draft away."""
    target = tmp_path / "page"
    theirs = tmp_path / ".page.1"
    theirs.touch()
    other = tmp_path / ".page.bak"
    other.touch()
    lease = locks.take(theirs)
    assert lease is not None
    atomic.write(target, b"ours")
    assert (target.read_bytes(), theirs.exists()) == (b"ours", True)
    os.close(lease)
    atomic.write(target, b"again")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".page.bak", "page"]


def test_a_replaced_file_keeps_its_mode(tmp_path: Path) -> None:
    """What others may read or run in the folder stays so; a new file has the mode that the process gives."""
    target = tmp_path / "script"
    atomic.write(target, b"first")
    plain = tmp_path / "plain"
    plain.touch()
    assert target.stat().st_mode == plain.stat().st_mode
    target.chmod(0o750)
    atomic.write(target, b"second")
    assert (target.read_bytes(), target.stat().st_mode & 0o777) == (b"second", 0o750)


def test_a_link_in_the_place_of_the_draft_is_not_followed(tmp_path: Path) -> None:
    """Who may write into the folder cannot make the draft another file."""
    target, other = tmp_path / "page", tmp_path / "other"
    other.write_bytes(b"kept")
    (tmp_path / f".page.{os.getpid()}").symlink_to(other)
    atomic.write(target, b"page")
    assert (target.read_bytes(), other.read_bytes()) == (b"page", b"kept")
    assert not target.is_symlink()


def test_a_file_that_has_the_text_keeps_its_time(tmp_path: Path) -> None:
    """CMake configures again what is newer, so only a file that changes is written."""
    target = atomic.update(tmp_path / "folder" / "script", "#!/bin/sh\n", executable=True)
    os.utime(target, (1, 1))
    assert atomic.update(target, "#!/bin/sh\n", executable=True).stat().st_mtime == 1
    assert atomic.update(target, "#!/bin/sh -e\n", executable=True).stat().st_mtime > 1
    assert (target.read_text(), target.stat().st_mode & 0o777) == ("#!/bin/sh -e\n", 0o755)
    assert [path.name for path in target.parent.iterdir()] == ["script"]
