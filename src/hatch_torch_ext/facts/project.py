"""The folders of an author's project: its CMake files, what a build of it may read, and what tools made there."""

from __future__ import annotations

import contextlib
import fnmatch
import os
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from hatch_torch_ext.base import escape
from hatch_torch_ext.facts import content

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    Identity = tuple[int, int]

PACKED = "PKG-INFO"
"""The file of an sdist with the project's metadata."""
COMPILED = frozenset(
    {
        *(".c", ".cc", ".cpp", ".cxx", ".c++", ".cu", ".f", ".f90", ".s", ".asm", ".hip", ".mm"),
        *(".h", ".hh", ".hpp", ".hxx", ".h++", ".cuh", ".inc", ".inl", ".ipp", ".tcc", ".tpp", ".def"),
        *(".cmake", ".in", ".proto", ".pyx", ".pxd"),
    }
)
"""Suffixes of what compilers, CMake and generators read."""
LEFT_OUT = frozenset({"build", "dist", "node_modules"})
MADE_BY_TOOLS = frozenset({"pyvenv.cfg", "CMakeCache.txt", "CACHEDIR.TAG"})


def cmake_files(source: Path) -> Iterator[Path]:
    """Yield the CMake files below ``source``, except those in environments, build folders, caches and the like.

    Hidden ones (an editor's lock is a link that leads nowhere) and what cannot be read are none.
    """
    for parent, folders, names in os.walk(source):
        here = Path(parent)
        if here != source and not MADE_BY_TOOLS.isdisjoint(names):
            folders.clear()
            continue
        folders[:] = sorted(name for name in folders if name[0] not in "._" and name not in LEFT_OUT)
        for name in sorted(names):
            path = here / name
            of_cmake = name == "CMakeLists.txt" or (name.endswith(".cmake") and not name.startswith("."))
            if of_cmake and path.is_file() and os.access(path, os.R_OK):
                yield path


def below_site(path: str) -> str | None:
    """Return the place of an installed file below Python's folder of packages, None if it is in none."""
    parts = path.split("/")
    site = next((at for at, part in enumerate(parts[:-1]) if part in {"site-packages", "dist-packages"}), None)
    return None if site is None else "/".join(parts[site + 1 :])


def is_compiled(name: str) -> bool:
    """Return whether compilers, CMake or generators read files of this name, wherever in a project they are."""
    return name == "CMakeLists.txt" or os.path.splitext(name)[1].lower() in COMPILED  # noqa: PTH122 -- thousands


def is_unpacked(root: Path) -> bool:
    """Return whether ``root`` is an unpacked sdist."""
    return (root / PACKED).is_file()


def text(path: Path) -> str:
    """Return the text of a file of the project; nothing where it cannot be read: what needs the file says so."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def named(files: Iterable[Path], source: Path) -> Iterator[Path]:
    """Yield those of ``files`` that a CMake file below ``source`` names, by a name or, below ``source``, a pattern."""
    words: set[str] = set()
    for path in cmake_files(source):
        words.update(_WORD.findall(text(path)))
    names = {word.rpartition("/")[2] for word in words}
    patterns = [re.compile(fnmatch.translate(word.lstrip("/"))) for word in words if "*" in word or "?" in word]
    for path in files:
        if path.name in names:
            yield path
        elif path.is_relative_to(source):
            parts = path.relative_to(source).parts
            tails = ["/".join(parts[index:]) for index in range(len(parts))]
            if any(pattern.match(tail) for pattern in patterns for tail in tails):
                yield path


_WORD = re.compile(r"[^\s\"()<>;{}]+")
SKIPPED = ("__pycache__", "node_modules")
SIGNS = ("pyvenv.cfg", "CACHEDIR.TAG")
"""Files that mark their folder as generated."""
_OF_TOOLS = frozenset(
    (
        *(".cache", ".git", ".hg", ".idea", ".jj", ".mypy_cache", ".nox", ".pytest_cache", ".ruff_cache", ".svn"),
        *(".tox",),
    )
)


def walk(
    root: Path, source: Path, *, without: Iterable[Path] = (), hidden: bool = False
) -> Iterator[tuple[str, list[str]]]:
    """Yield each folder of the project with the names of its files, sorted, which include no hidden one.

    ``source``, the folder of CMakeLists.txt, may be outside of ``root``. What tools make is left out, and so are the
    folders ``without`` (or files of these names), and hidden ones, unless ``hidden`` requests those below ``source``.
    """
    left_out = {os.fspath(folder) for folder in without}
    for start in dict.fromkeys([root] if source.is_relative_to(root) else [root, source]):
        top = os.fspath(start)
        for folder, folders, names in os.walk(top):
            if folder != top and any(sign in names for sign in SIGNS):
                folders.clear()
                continue
            shows = hidden and Path(folder).is_relative_to(source)
            folders[:] = sorted(
                name
                for name in folders
                if name not in SKIPPED
                and not (name.startswith(".") and (not shows or name in _OF_TOOLS))
                and not name.endswith(".egg-info")
                and f"{folder}/{name}" not in left_out
            )
            yield (
                folder,
                sorted(name for name in names if not name.startswith(".") and f"{folder}/{name}" not in left_out),
            )


_WRITTEN = (".log", ".whl")
_PROSE = (".ipynb", ".md", ".py", ".pyi", ".rst")


def build_inputs(root: Path, source: Path, work: Path) -> list[str]:
    """Return the files that a build of the project may read, sorted: all except those that cannot matter to it.

    Those are hidden files, files that builds and other tools write (``build``, ``dist``, environments, logs, what this
    build's output goes to), and outside of ``source`` files that only Python and people read, unless a CMake file names
    them: it may read the version there.
    """
    top, ours = os.fspath(root), output_files()
    found: list[str] = []
    prose: list[Path] = []
    for folder, names in walk(root, source, without=[root / "build", root / "dist", work]):
        outside = not Path(folder).is_relative_to(source) or source == root
        read = [name for name in names if not name.endswith(_WRITTEN) and not (name == PACKED and folder == top)]
        if outside:
            prose += [Path(folder, name) for name in read if name.endswith(_PROSE)]
            read = [name for name in read if not name.endswith(_PROSE)]
        found += [f"{folder}/{name}" for name in read]
    if prose:
        found += map(os.fspath, named(prose, source))
    return sorted(found if not ours else (path for path in found if identity(Path(path)) not in ours))


STANDARD = ("1", "2")
_FLAGS = re.compile(r"^flags:\s+([0-7]+)$", re.MULTILINE)


def output_files() -> set[Identity]:
    """Return these files by device and inode.

    They are the standard output and error of this process and of those that started it, and where one is a pipe, what
    other processes write that have the pipe open.
    """
    found: set[Identity] = set()
    pipes: set[str] = set()
    known: set[int] = set()
    pid = os.getpid()
    while pid > 1:
        known.add(pid)
        _take(pid, STANDARD, found, pipes)
        pid = _parent(pid)
    others = {int(folder.name) for folder in Path("/proc").glob("[0-9]*")} if pipes else set()
    while reading := {pid for pid in others - known if pipes & {name for _, name in _open(pid)}}:
        for pid in reading:
            known.add(pid)
            _take(pid, (), found, pipes)
    return found


def identity(path: Path) -> Identity | None:
    """Return the device and inode of a file, None if there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return (status.st_dev, status.st_ino) if stat.S_ISREG(status.st_mode) else None


def _take(pid: int, only: tuple[str, ...], found: set[Identity], pipes: set[str]) -> None:
    """Add what the process has open for writing, or ``only`` its descriptors of these numbers."""
    for number, name in _open(pid):
        if (only and number not in only) or not _is_written(pid, number):
            continue
        if name.startswith("pipe:"):
            pipes.add(name)
        elif (file := identity(Path(f"/proc/{pid}/fd/{number}"))) is not None:
            found.add(file)


def _is_written(pid: int, number: str) -> bool:
    try:
        match = _FLAGS.search(Path(f"/proc/{pid}/fdinfo/{number}").read_text(encoding="ascii"))
    except OSError:
        return False
    return match is not None and int(match[1], 8) & os.O_ACCMODE != os.O_RDONLY


def _open(pid: int) -> Iterator[tuple[str, str]]:
    """Yield the open descriptors of a process, each with what it names; none of another user's process."""
    folder = f"/proc/{pid}/fd"
    with contextlib.suppress(OSError):
        for number in os.listdir(folder):  # noqa: PTH208 -- of every process of the machine
            with contextlib.suppress(OSError):
                yield number, os.readlink(f"{folder}/{number}")  # noqa: PTH115


def _parent(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        return int(text.rpartition(")")[2].split()[1])
    except (OSError, IndexError, ValueError):
        return 0


_TAKEN = ';"\\$`'  # CMake splits lists and ends strings at these, and a shell or ccache would expand a variable
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def unusable(folder: Path) -> str | None:
    """Return why CMake cannot work with a folder of this name, or None."""
    taken = [letter for letter in dict.fromkeys(str(folder)) if letter in _TAKEN or _CONTROL.match(letter)]
    if not taken:
        return None
    return (
        f"CMake cannot work in {escape.line(folder)}: {escape.line(' '.join(taken))} in a path has a special meaning "
        "to CMake or to the tools that it starts"
    )


def names_preset(args: Sequence[str]) -> bool:
    """Return whether these arguments of CMake name a preset."""
    return any(re.match("--preset(?:[= ]|$)", argument) is not None for argument in args)


def read_once(
    source: Path, args: Sequence[str], define: Sequence[tuple[str, str]], environ: Mapping[str, str]
) -> dict[str, str]:
    """Return path -> hash of files that are read once into CMake's cache: those of ``-C``, toolchain file and presets.

    A relative path of ``-C`` is relative to this folder, as CMake takes it; the others to ``source``.
    """
    named = [dict(define).get("CMAKE_TOOLCHAIN_FILE"), environ.get("CMAKE_TOOLCHAIN_FILE")]
    if names_preset(args):
        named += [str(source / name) for name in ("CMakePresets.json", "CMakeUserPresets.json")]
    after = ""
    for argument in args:
        match = re.match(r"(?:-C|--toolchain=?|-D\s*CMAKE_TOOLCHAIN_FILE(?::\w+)?=)(.*)", argument)
        named.append(argument if after else match[1] if match else None)
        after = argument if argument in {"-C", "--toolchain"} else ""
    found = {}
    for text in filter(None, named):
        for path in (Path.cwd() / text, source / text):
            if path.is_file():
                found[str(path)] = content.sha256(path)
                break
    return found
