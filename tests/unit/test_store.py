"""The store: whole or not there, read-only, shared bytes."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest

from hatch_torch_ext import cli, store
from hatch_torch_ext.base.errors import ConfigurationError
from hatch_torch_ext.pipeline import folders
from hatch_torch_ext.store import seal, upkeep

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
    kept = store.open_store(tmp_path)
    folder, content = kept.make("torch", "key", filler(kept))
    assert content == {"title": "thing"}
    assert kept.make("torch", "key", lambda _: pytest.fail("made again")) == (folder, content)


def test_a_failure_leaves_nothing(tmp_path: Path) -> None:
    """When filling fails, neither the thing nor its scratch is left, and it can be made afterwards."""
    kept = store.open_store(tmp_path)

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
    """A folder whose marker is missing or damaged is not used, but made again."""
    kept = store.open_store(tmp_path)
    folder, _ = kept.make("torch", "key", filler(kept))
    folder.chmod(0o755)
    (folder / store.MARKER).unlink()
    assert kept.make("torch", "key", filler(kept, b"y"))[0] == folder
    assert (folder / "a/b.h").read_bytes() == b"y"


@pytest.mark.parametrize(
    "marker", ["", "{", "[1]", "[]", "{}", '{"title": 3}', "null", "[" * 100_000, '{"title": "\\ud800"}', "1" * 5000]
)
def test_a_damaged_marker_is_none(marker: str, tmp_path: Path) -> None:
    """Text that is cut off, and JSON that says something else than its reader expects: the thing is made again."""
    kept = store.open_store(tmp_path)

    def title(content: Mapping[str, str]) -> str:
        return content["title"].strip()

    folder, _ = kept.make("torch", "key", filler(kept), title)
    (folder / store.MARKER).chmod(0o644)
    (folder / store.MARKER).write_text(marker, encoding="utf-8")
    assert kept.finished("torch", "key", title) is None
    assert kept.make("torch", "key", filler(kept), title)[1] == {"title": "thing"}


def test_a_damaged_blob_is_not_shared(tmp_path: Path) -> None:
    """A blob of the wrong length (a crash of the machine) stays, and no other item gets it."""
    kept = store.open_store(tmp_path)
    kept.make("torch", "one", filler(kept))
    (blob,) = tmp_path.glob("blobs/*/*")
    blob.unlink()
    blob.write_bytes(b"")
    folder, _ = kept.make("torch", "two", filler(kept))
    assert (folder / "a/b.h").read_bytes() == b"x"


def test_left_overs_of_killed_runs_go(tmp_path: Path) -> None:
    """What a dead process left is removed by the next run at once; what a living one fills stays, however old."""
    kept = store.open_store(tmp_path)
    (tmp_path / "unfinished/dead/made").mkdir(parents=True)
    with kept.scratch() as living:
        os.utime(living, (0, 0))
        with kept.scratch():
            assert living.is_dir()
            assert not (tmp_path / "unfinished/dead").exists()
    assert not list(tmp_path.glob("unfinished/*"))


def test_left_overs_where_nothing_can_be_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a file system without locks (simulated), only leftovers that are a day old are removed."""

    def refuse(_: int, __: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", refuse)
    kept = store.open_store(tmp_path)
    for name in ("old", "young"):
        (tmp_path / "unfinished" / name / "made").mkdir(parents=True)
    os.utime(tmp_path / "unfinished/old", (0, 0))
    with kept.scratch():
        assert not (tmp_path / "unfinished/old").exists()
        assert (tmp_path / "unfinished/young").is_dir()
    assert kept.make("torch", "key", filler(kept))[0].is_dir()


@pytest.mark.parametrize("name", ["unfinished", "blobs", "torch", "locks", "seals", "resolved", "exports"])
def test_a_link_in_place_of_a_folder_is_refused(name: str, tmp_path: Path) -> None:
    """Neither cleaning nor sharing follows a link to files outside of the store."""
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "precious").mkdir(parents=True)
    os.utime(elsewhere / "precious", (0, 0))
    root = tmp_path / "store"
    kept = store.open_store(root)
    (root / name).symlink_to(elsewhere)
    with pytest.raises(OSError, match="it is a link"):
        store.open_store(root)
    if name in {"unfinished", "locks", "torch", "seals"}:
        with pytest.raises(OSError, match="it is a link"):
            kept.make("torch", "key", filler(kept))
    assert (elsewhere / "precious").is_dir()


def test_a_link_among_left_overs(tmp_path: Path) -> None:
    """A link in the scratch folder is removed, not its target."""
    kept = store.open_store(tmp_path / "store")
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "precious").mkdir(parents=True)
    (tmp_path / "store/unfinished").mkdir()
    (tmp_path / "store/unfinished/link").symlink_to(elsewhere)
    with kept.scratch():
        assert (elsewhere / "precious").is_dir()
        assert not (tmp_path / "store/unfinished/link").is_symlink()


def change(file: Path, how: str) -> None:
    """Change a file of a sealed folder in one of the ways in which files are changed."""
    file.parent.chmod(0o755)
    file.chmod(0o644)
    status = file.stat()
    if how == "bytes":
        file.write_bytes(b"y")
    elif how == "bytes, times restored":
        file.write_bytes(b"y")
        os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    elif how == "replaced":
        file.unlink()
        file.write_bytes(b"y")
    elif how == "a link":
        file.unlink()
        file.symlink_to("/etc/hostname")
    elif how == "gone":
        file.unlink()
    else:
        (file.parent / "more.h").write_bytes(b"y")


WAYS = ["bytes", "bytes, times restored", "replaced", "a link", "gone", "one more"]


@pytest.mark.parametrize("how", WAYS)
def test_changes_are_noticed_before_use(how: str, tmp_path: Path) -> None:
    """A changed byte, an additional file and a missing one are each reported by name, and the item is made again."""
    reports: list[str] = []
    kept = store.open_store(tmp_path, reports.append)
    folder, _ = kept.make("torch", "key", filler(kept))
    change(folder / "a/b.h", how)
    assert kept.finished("torch", "key") is None
    name = "a/more.h" if how == "one more" else "a/b.h"
    assert reports == [f"torch key in the cache was changed since it was made ({name}): it is made again"]
    folder, _ = kept.make("torch", "key", filler(kept))
    assert [path.read_bytes() for path in folder.rglob("*.h")] == [b"x"]
    assert kept.finished("torch", "key") is not None


@pytest.mark.parametrize("how", ["replaced", "a link", "gone", "one more"])
def test_changes_beside_an_item_that_shares_its_files(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that two items share is looked at once in some seconds; that the other leads to it is seen at any time."""
    kept = store.open_store(tmp_path)
    one, _ = kept.make("torch", "one", filler(kept))
    two, _ = kept.make("torch", "two", filler(kept))
    assert (one / "a/b.h").samefile(two / "a/b.h")
    for _ in range(2):  # the first look notes the facts of a file with another link
        assert kept.finished("torch", "one") is not None
        assert kept.finished("torch", "two") is not None
    change(two / "a/b.h", how)
    assert kept.finished("torch", "two") is None
    assert kept.finished("torch", "one") is not None
    change(one / "a/b.h", "bytes, times restored")
    monkeypatch.setattr(seal, "RECENTLY", 0)
    assert kept.finished("torch", "one") is None


def test_a_changed_blob_is_not_shared(tmp_path: Path) -> None:
    """If the shared copy of a header was changed, size kept, the next release gets the bytes of its own wheel."""
    kept = store.open_store(tmp_path)
    folder, _ = kept.make("torch", "one", filler(kept))
    (blob,) = tmp_path.glob("blobs/*/*")
    change(blob, "bytes")
    assert (folder / "a/b.h").read_bytes() == b"y"  # one file
    other, _ = kept.make("torch", "two", filler(kept))
    assert (other / "a/b.h").read_bytes() == b"x"
    assert kept.finished("torch", "one") is None


def test_a_blob_that_is_a_link_is_not_shared(tmp_path: Path) -> None:
    """A link in place of a shared file, to a file of the right bytes even, is taken away."""
    kept = store.open_store(tmp_path / "store")
    kept.make("torch", "one", filler(kept))
    (blob,) = (tmp_path / "store").glob("blobs/*/*")
    blob.unlink()
    (tmp_path / "theirs").write_bytes(b"x")
    blob.symlink_to(tmp_path / "theirs")
    folder, _ = kept.make("torch", "two", filler(kept))
    assert not (folder / "a/b.h").is_symlink()
    assert not (folder / "a/b.h").samefile(tmp_path / "theirs")


def test_a_moved_store_is_still_valid(tmp_path: Path) -> None:
    """Other times and inodes (another hard link, a cache that CI put back), the same bytes: hashed once, used on."""
    first = store.open_store(tmp_path / "one")
    first.make("torch", "key", filler(first))
    shutil.copytree(tmp_path / "one", tmp_path / "two", symlinks=True)
    for path in (tmp_path / "two").rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o444)
    second = store.open_store(tmp_path / "two")
    assert second.finished("torch", "key") is not None
    before = (tmp_path / "two/seals/torch-key.json").stat().st_ino
    assert second.finished("torch", "key") is not None
    assert (tmp_path / "two/seals/torch-key.json").stat().st_ino == before  # the facts of today were noted


def test_an_item_without_a_seal_is_refused(tmp_path: Path) -> None:
    """A seal that is gone, or damaged in any way, proves nothing."""
    kept = store.open_store(tmp_path)
    for text in (
        None,
        "",
        "[]",
        "{",
        "[" * 100_000,
        '{"files": {"a": []}, "folders": {}}',
        '{"files": {"a/b.h": [[], 1, 1, 1, ""], "finished.json": [1, 1, 1, 1, ""]}, "folders": {}}',
        '{"files": 3}',
        '{"files": {"a/b.h": "", "finished.json": ""}, "folders": {".": "", "a": ""}}',
        '{"files": {"a/b.h": "1 1 1 1 x", "finished.json": "1 1"}, "folders": {".": "1 1", "a": "x"}}',
        '{"files": {"a/b.h": 1, "finished.json": null}, "folders": {".": 1, "a": []}}',
        '"\\ud800"',
    ):
        kept.make("torch", "key", filler(kept))
        file = tmp_path / "seals/torch-key.json"
        if text is None:
            file.unlink()
        else:
            file.write_text(text)
        assert kept.finished("torch", "key") is None
    assert kept.make("torch", "key", filler(kept))[0].is_dir()


def test_verify(tmp_path: Path) -> None:
    """Every byte is read; what is damaged is named and removed, shared files too, and the next build makes it again."""
    kept = store.open_store(tmp_path)
    kept.make("torch", "good", filler(kept, b"good"))
    bad, _ = kept.make("torch", "bad", filler(kept))
    assert upkeep.verify(kept) == upkeep.Verified(whole=2, damaged=())
    change(bad / "a/b.h", "bytes, times restored")
    found = upkeep.verify(kept)
    assert found.whole == 1
    assert [title.partition(" file")[0] for title, _ in found.damaged] == ["thing", "shared"]
    assert found.damaged[0][1] == "a/b.h"
    assert not bad.exists()
    assert upkeep.verify(kept) == upkeep.Verified(whole=1, damaged=())
    assert kept.make("torch", "bad", filler(kept))[0].is_dir()


@pytest.mark.parametrize("marker", ["[]", "null", "{", None])
def test_an_item_whose_marker_says_nothing_is_seen(marker: str | None, tmp_path: Path) -> None:
    """CASE 126: it is listed with its size under its folder's name, found damaged and removed, and pruned."""

    def broken() -> store.Store:
        kept = store.open_store(tmp_path)
        folder, _ = kept.make("torch", "key", filler(kept))
        folder.chmod(0o755)
        (folder / store.MARKER).unlink()
        if marker is not None:
            (folder / store.MARKER).write_text(marker)
        store.release()
        return kept

    kept = broken()
    (row,) = upkeep.listing(kept)
    assert (row.title, row.size > 0) == ("key", True)
    found = upkeep.verify(kept)
    assert [title for title, _ in found.damaged] == ["key"]
    assert (found.whole, upkeep.listing(kept)) == (0, ())
    assert [row.title for row in upkeep.prune(broken())] == ["key"]
    assert not list(tmp_path.glob("torch/*"))


def test_what_is_not_a_folder_among_the_items(tmp_path: Path) -> None:
    """A file and a link in place of items are listed, found damaged and removed; what the link leads to stays."""
    other = tmp_path / "elsewhere"
    other.mkdir()
    (other / "a").touch()
    kept = store.open_store(tmp_path / "store")
    for remedy in (upkeep.verify, upkeep.prune):
        folder = kept.folder("torch")
        (folder / "file").write_bytes(b"12345")
        (folder / "link").symlink_to(other)
        first, _ = upkeep.listing(kept)
        assert (first.title, first.size) == ("file", 5)
        remedy(kept)
        assert list(folder.iterdir()) == []
    assert (other / "a").exists()


def test_private(tmp_path: Path) -> None:
    """A store is made only for its user, whatever the umask."""
    store.open_store(tmp_path / "store")
    assert (tmp_path / "store").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("name", ["", "torch", "compiled", "work"])
def test_others_could_write(name: str, tmp_path: Path) -> None:
    """A store that others could write is not used, whatever they could write: a private one takes its place."""
    reports: list[str] = []
    root = tmp_path / "store"
    kept = store.open_store(root)
    kept.make("torch", "key", filler(kept))
    root.chmod(0o755)
    kept.folder(name).chmod(0o775)
    assert store.open_usable({store.VARIABLE: str(root)}, tmp_path / "own", reports.append).root == tmp_path / "own"
    assert reports == [
        f"the cache {root} is not used: {kept.folder(name)}: other users can write it, and it is not empty; using "
        f"{tmp_path / 'own'} instead. Name a folder of your own with {store.VARIABLE}"
    ]


def test_an_empty_folder_of_everybody_becomes_private(tmp_path: Path) -> None:
    """An empty folder, as a container gets it for a volume, is made private, with a sentence; then it is used."""
    reports: list[str] = []
    root = tmp_path / "volume"
    root.mkdir()
    root.chmod(0o777)
    kept = store.open_usable({store.VARIABLE: str(root)}, tmp_path / "own", reports.append)
    assert reports == [f"{root}, for the cache, could be written by other users: it is private now"]
    assert (kept.root, root.stat().st_mode & 0o777) == (root, 0o700)
    kept.folder("torch").chmod(0o775)  # nobody else can reach it
    assert store.open_store(root).root == root


@pytest.mark.performs("name a folder of your own with {}")
def test_no_work_where_others_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The work folder of an unpacked sdist is in the cache only if that is private; the commands say what to do.

    A folder of one's own is then taken.
    """
    root, project = tmp_path / "store", tmp_path / "my-pkg-1"
    (root / "work").mkdir(parents=True)
    project.mkdir()
    monkeypatch.setenv(store.VARIABLE, str(root))
    (work,) = {folders.work(project, distribution="my-pkg", from_sdist=True) for _ in range(2)}
    assert work == root / "work/sdist-my-pkg"
    root.chmod(0o777)
    assert folders.work(project, distribution="my-pkg", from_sdist=True) == project / "build/torch-ext"
    with pytest.raises(ConfigurationError, match="other users can write it, and it is not empty") as caught:
        folders.work(project, distribution="my-pkg", aside=True)
    assert f"name a folder of your own with {store.VARIABLE}." in str(caught.value)
    assert cli.main(["sdk", "list"]) == 1
    assert f"Name a folder of your own with {store.VARIABLE}" in capsys.readouterr().err
    monkeypatch.setenv(store.VARIABLE, str(tmp_path / "own"))
    assert folders.work(project, distribution="my-pkg", aside=True).parent == tmp_path / "own" / "work"
    assert cli.main(["sdk", "list"]) == 0


def test_a_folder_of_everybody(tmp_path: Path) -> None:
    """A folder such as /tmp, that others write and that holds other things, is left as it is: another is used."""
    root, reports = tmp_path / "shared", list[str]()
    root.mkdir()
    (root / "theirs").touch()
    root.chmod(0o1777)
    kept = store.open_usable({store.VARIABLE: str(root)}, tmp_path / "own", reports.append)
    assert kept.root == tmp_path / "own"
    assert reports == [
        f"the cache {root} is not used: {root}: other users can write it, and it is not empty; using "
        f"{tmp_path / 'own'} instead. Name a folder of your own with {store.VARIABLE}"
    ]
    assert root.stat().st_mode & 0o7777 == 0o1777
    other = store.open_usable({store.VARIABLE: str(tmp_path / "mine")}, tmp_path / "own", reports.append)  # the remedy
    assert (other.root, len(reports)) == (tmp_path / "mine", 1)


def test_a_folder_with_other_things_is_not_tagged(tmp_path: Path) -> None:
    """Backups skip a tagged folder, and here with it the user's own files."""
    (tmp_path / "letters").touch()
    store.open_store(tmp_path)
    assert not (tmp_path / "CACHEDIR.TAG").exists()
    assert (store.open_store(tmp_path / "empty").root / "CACHEDIR.TAG").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_another_users(tmp_path: Path) -> None:
    """A store that another user owns is not used; a file that another user put into one of ours is not used."""
    reports: list[str] = []
    root = tmp_path / "store"
    kept = store.open_store(root)
    folder, _ = kept.make("torch", "key", filler(kept))
    os.chown(folder / "a/b.h", 12345, 12345)
    assert kept.finished("torch", "key") is None
    os.chown(root, 12345, 12345)
    assert store.open_usable({store.VARIABLE: str(root)}, tmp_path / "own", reports.append).root == tmp_path / "own"
    assert f"{root}: it belongs to another user (uid 12345); using" in reports[0]


PRUNE = """
import os, sys
from hatch_torch_ext.cli import main
sys.exit(main(["sdk", "prune"]))
"""


def test_the_compiler_cache_is_pruned_too(tmp_path: Path) -> None:
    """All of it, as one row."""
    kept = store.open_store(tmp_path / "store")
    file = kept.folder("compiled") / "3" / "f2d4"
    file.parent.mkdir()
    file.write_text("object", encoding="utf-8")
    (row,) = upkeep.compiled(kept)
    assert (row.title, row.size) == ("1 objects of the compiler cache", 6)
    assert [each.size for each in upkeep.prune(kept)] == [6]
    assert (file.exists(), upkeep.prune(kept)) == (False, ())


def test_what_a_build_uses_is_not_pruned(tmp_path: Path) -> None:
    """Another process prunes during a build: what is in use is named and stays, until it has ended."""
    kept = store.open_store(tmp_path / "store")
    environ = {**os.environ, store.VARIABLE: str(tmp_path / "store")}

    def prune() -> str:
        done = subprocess.run([sys.executable, "-c", PRUNE], env=environ, capture_output=True, text=True, check=True)
        return done.stderr

    with store.using():
        folder, _ = kept.make("torch", "key", filler(kept))
        kept.make("torch", "idle", filler(kept, b"idle"))
        store.release()
        assert kept.finished("torch", "key") is not None
        assert prune() == "hatch-torch-ext: thing is in use by a build and stays; prune again when that has ended\n"
        assert (folder / "a/b.h").read_bytes() == b"x"
        assert not (tmp_path / "store/torch/idle").exists()
        assert kept.finished("torch", "key") is not None
    assert prune() == ""
    assert not folder.exists()
    assert not list((tmp_path / "store").rglob("*.h"))


def test_who_waits_for_another_build_says_so(tmp_path: Path) -> None:
    """Two builds want the same SDK: the second says which process it waits for."""
    reports: list[str] = []
    kept = store.open_store(tmp_path, reports.append)
    with kept.lock("torch", "key"):
        waiting = threading.Thread(target=kept.make, args=("torch", "key", filler(kept)))
        waiting.start()
        time.sleep(0.3)
    waiting.join(20)
    (sentence,) = reports
    assert sentence.startswith(f"waiting for torch key of the cache, which process {os.getpid()} (")


def test_path(tmp_path: Path) -> None:
    """The variable names the folder; otherwise it is in the user's cache."""
    assert store.path({store.VARIABLE: str(tmp_path)}) == tmp_path
    assert store.path({}).name == "hatch-torch-ext"
