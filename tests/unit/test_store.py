"""The store: whole or not there, read-only, shared bytes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from hatch_torch_ext import store

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path


def filler(kept: store.Store, text: bytes = b"x") -> Callable[[Path], dict[str, object]]:
    """Return what fills a folder with one file ``a/b.h``."""

    def fill(made: Path) -> dict[str, object]:
        kept.put(text, made, "a/b.h")
        return {"title": "thing"}

    return fill


def test_made_once(tmp_path: Path) -> None:
    """A finished thing is not made again, and what its marker says comes back."""
    kept = store.opened(tmp_path)
    folder, said = kept.make("torch", "key", filler(kept))
    assert said == {"title": "thing"}
    assert kept.make("torch", "key", lambda _: pytest.fail("made again")) == (folder, said)


def test_a_failure_leaves_nothing(tmp_path: Path) -> None:
    """When filling fails, neither the thing nor its scratch is left, and it can be made afterwards."""
    kept = store.opened(tmp_path)

    def fail(made: Path) -> dict[str, object]:
        filler(kept)(made)
        raise OSError("broken")

    with pytest.raises(OSError, match="broken"):
        kept.make("torch", "key", fail)
    assert kept.finished("torch", "key") is None
    assert not list(tmp_path.glob("torch/*"))
    assert not list(tmp_path.glob("unfinished/*"))
    assert kept.make("torch", "key", filler(kept))[0].is_dir()


def test_without_marker_it_is_made_again(tmp_path: Path) -> None:
    """A folder whose marker is gone or broken is not used; it is made anew."""
    kept = store.opened(tmp_path)
    folder, _ = kept.make("torch", "key", filler(kept))
    folder.chmod(0o755)
    (folder / store.MARKER).unlink()
    assert kept.make("torch", "key", filler(kept, b"y"))[0] == folder
    assert (folder / "a/b.h").read_bytes() == b"y"


@pytest.mark.parametrize("marker", ["", "{", "[1]", "{}", '{"title": 3}', "null"])
def test_a_damaged_marker_is_none(marker: str, tmp_path: Path) -> None:
    """Text that is cut off, and JSON that says something else than its reader expects: the thing is made anew."""
    kept = store.opened(tmp_path)

    def title(said: Mapping[str, str]) -> str:
        return said["title"].strip()

    folder, _ = kept.make("torch", "key", filler(kept), title)
    (folder / store.MARKER).chmod(0o644)
    (folder / store.MARKER).write_text(marker, encoding="utf-8")
    assert kept.finished("torch", "key", title) is None
    assert kept.make("torch", "key", filler(kept), title)[1] == {"title": "thing"}


def test_a_damaged_blob_is_not_shared(tmp_path: Path) -> None:
    """A blob of the wrong length (a crash of the machine) is left alone and not given to others."""
    kept = store.opened(tmp_path)
    kept.make("torch", "one", filler(kept))
    (blob,) = tmp_path.glob("blobs/*/*")
    blob.unlink()
    blob.write_bytes(b"")
    folder, _ = kept.make("torch", "two", filler(kept))
    assert (folder / "a/b.h").read_bytes() == b"x"


def test_left_overs_of_killed_runs_go(tmp_path: Path) -> None:
    """Scratch that is a day old is removed by the next run; younger scratch may be another build's."""
    kept = store.opened(tmp_path)
    for name, age in (("old", 2 * store.LEFT_OVER), ("young", 0.0)):
        folder = tmp_path / "unfinished" / name
        (folder / "made").mkdir(parents=True)
        then = folder.stat().st_mtime - age
        os.utime(folder, (then, then))
    with kept.scratch():
        assert max(path.name for path in tmp_path.glob("unfinished/*")) == "young"
        assert not (tmp_path / "unfinished/old").exists()


def test_path(tmp_path: Path) -> None:
    """The variable names the folder; otherwise it is in the user's cache."""
    assert store.path({store.VARIABLE: str(tmp_path)}) == tmp_path
    assert store.path({}).name == "hatch-torch-ext"


def test_dry_run(tmp_path: Path) -> None:
    """A dry run of pruning says what would go and touches nothing."""
    kept = store.opened(tmp_path)
    folder, _ = kept.make("torch", "key", filler(kept))
    (would,) = kept.prune(dry_run=True)
    assert (would.kind, would.key, would.title, would.path) == ("torch", "key", "thing", folder)
    assert folder.is_dir()
