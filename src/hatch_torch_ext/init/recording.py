"""Runs a project's ``setup.py`` under a recording torch, as a machine without and as one with CUDA."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from hatch_torch_ext.base import process, resources, untrusted, uv
from hatch_torch_ext.base.errors import ConfigurationError, ProcessError
from hatch_torch_ext.cmake import failures
from hatch_torch_ext.facts import releases
from hatch_torch_ext.init import texts
from hatch_torch_ext.init.texts import Note

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

DRIVER = resources.FOLDER / "record_setup.py"
TORCH = resources.FOLDER / "recording"
REQUIREMENTS = ("setuptools<81", "wheel", "packaging", "numpy", "ninja", "pybind11", "psutil")
"""Packages that a ``setup.py`` usually imports besides torch; setuptools with ``pkg_resources``."""
OF_BACKENDS = frozenset({
    "cmake", "cmake-build-extension", "ninja", "packaging", "scikit-build", "scikit-build-core", "setuptools",
    "setuptools-scm", "torch", "wheel",
})  # fmt: skip
"""Requirements of other build backends, and what the hook brings."""
NOT_INSTALLED = "the build requires `{}`, of which no wheel can be installed: setup.py was recorded without it"
CLEAN = {"PYTHONPATH": None, "VIRTUAL_ENV": None}
NEVER_TORCH = "torch; python_version < '0'\n"
"""Overrides what requires torch: a recording has its own."""
RESULT = "result.json"
TRACKED = "tracked.txt"
"""The file with the names of the files that git tracks, which setuptools-scm tells to setuptools."""
UNKNOWN = "TORCH_EXT_RECORDING_UNKNOWN"
"""The variable by which names of torch that a recording does not know are taken for nothing."""
ARCHS = "TORCH_CUDA_ARCH_LIST"
ANY_ARCH = "9.0"
"""Architectures for a ``setup.py`` that insists on them; they are not carried over."""
READS_ARCHS = (
    f"reads {ARCHS}, whose place the option `archs` takes: the sources and macros that depend on it are those {{}}"
)
WRITES = "writes `{}` while it runs"
WRITES_VERSION = "writes `{}`, which hatchling's hook `version` writes now: of its text only the version changes"
VERSION = "@Torch_VERSION@"
"""The version of the variant's torch, in a text that CMake configures."""
TIMEOUT = 60.0
PREPARING = 600.0
"""Timeout in seconds for installing these packages."""
NEWEST = releases.format_minor(max(releases.PUBLISHED_PYTHONS))
"""The newest release of torch that is known."""
OF_PYTHON = re.compile(r"/include/python3\.\d+/?$")
"""Folders of Python's own headers, which CMake finds."""
OF_SETUPTOOLS = re.compile(r"\.egg-info/|^build/")
"""What setuptools writes to learn what it packs, and what its commands write."""
OF_NO_USE = shutil.ignore_patterns(".git", "build", "dist", "__pycache__", ".venv", "*.so", "*.o")


@dataclass(frozen=True, slots=True, kw_only=True)
class Extension:
    """One extension as ``setup.py`` declares it.

    ``kind`` is ``cpp``, ``cuda`` or ``sycl``; ``other`` if it is not torch's. ``macros`` are (name, value or None);
    paths are POSIX, relative to the project if they are in it.
    """

    name: str
    kind: str
    sources: tuple[str, ...]
    include_dirs: tuple[str, ...] = ()
    macros: tuple[tuple[str, str | None], ...] = ()
    packages: tuple[str, ...] = ()
    """Packages whose headers are included, such as ``numpy`` and ``pybind11``."""
    undefined: tuple[str, ...] = ()
    library_dirs: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    runtime_library_dirs: tuple[str, ...] = ()
    objects: tuple[str, ...] = ()
    cxx: tuple[str, ...] = ()
    nvcc: tuple[str, ...] = ()
    link: tuple[str, ...] = ()
    py_limited_api: bool = False
    dlink: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """What ``setup.py`` declares on a machine with CUDA, or on one without."""

    extensions: tuple[Extension, ...]
    metadata: Mapping[str, Any]
    notes: tuple[Note, ...]
    variables: tuple[str, ...] = ()
    """Environment variables that ``setup.py`` reads, and that were not set."""
    packed: tuple[tuple[str, str], ...] | None = None
    """(place in the wheel, place in the project) of Python files and data; None where setuptools cannot tell.

    Where ``setup.py`` makes a link, the second is what the link leads to.
    """
    cmake: Mapping[str, Any] | None = None
    """The folder ``source`` and the ``args`` that scikit-build or cmake-build-extension gives to CMake, if one does."""
    commanded: Mapping[str, Any] | None = None
    """The same of the first CMake that ``setup.py``, or a command of its own, runs."""
    stamps: tuple[tuple[str, str], ...] = ()
    """Python files that ``setup.py`` writes with torch's version in them, and their text, with ``VERSION`` for it."""
    made: tuple[tuple[str, str], ...] = ()
    """The other Python files that ``setup.py`` writes and that are not in the project, and their text."""
    printed: str = ""
    """The end of what ``setup.py`` prints."""
    tag: str = ""
    """Python and ABI of the wheel's tag, as ``cp39-abi3``, where the author chose them."""


@contextmanager
def environment(root: Path, extra: Sequence[str] = ()) -> Iterator[tuple[Path, tuple[Note, ...]]]:
    """Make an environment with what the ``setup.py`` in ``root`` imports, and ``extra``.

    Yields its Python, and notes on what pyproject.toml requires for the build and cannot be installed. Raises
    ``ConfigurationError`` for a package of ``extra`` that is not available.
    """
    named = (canonicalize_name(Requirement(each).name) for each in REQUIREMENTS)
    declared = texts.build_requirements(texts.document(root), without={*OF_BACKENDS, *named})
    with tempfile.TemporaryDirectory(prefix="torch-ext-init-") as scratch:
        folder = Path(scratch) / "environment"
        python = _python(folder, extra)
        missing = _installed(python, declared, folder.with_name("overrides.txt")) if declared else []
        yield python, tuple(Note(NOT_INSTALLED.format(each)) for each in missing)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Setup:
    """A ``setup.py`` and how it is run: see ``record``."""

    root: Path
    python: Path
    arguments: Sequence[str]
    timeout: float
    torch: str


def record(
    root: Path,
    python: Path,
    *,
    arguments: Sequence[str] = (),
    timeout: float = TIMEOUT,
    torch: str = NEWEST,
) -> tuple[Recording | None, Recording | None, list[Note]]:
    """Return what the ``setup.py`` in ``root`` declares without and with CUDA; the project itself is not changed.

    ``python`` is that of an ``environment``, ``arguments`` are words that it expects on its command line, ``torch`` is
    the release that it finds. One of the two is None where ``setup.py`` refuses that machine; that is noted, as are
    submodules of git that were not fetched. Raises ``ConfigurationError`` for a ``setup.py`` that refuses both, hangs,
    or needs a package that is not available.
    """
    setup = _Setup(root=root, python=python, arguments=arguments, timeout=timeout, torch=torch)
    with tempfile.TemporaryDirectory(prefix="torch-ext-init-") as scratch:
        found = [_record(setup, backend, Path(scratch) / backend) for backend in ("cpu", "cuda")]
    refused = [each for each in found if isinstance(each, Note)]
    empty = failures.empty_submodules(root)
    if len(refused) == len(found):
        raise ConfigurationError("\n".join([refused[0].text, *([empty] if empty else [])]))
    cpu, cuda = (None if isinstance(each, Note) else each for each in found)
    kept = "only with CUDA" if cpu is None else "only for the CPU"
    notes = [replace(each, text=f"{each.text}; the project is carried over {kept}") for each in refused]
    return cpu, cuda, [*notes, *([Note(empty)] if empty else [])]


def _python(folder: Path, extra: Sequence[str]) -> Path:
    """Return the Python of an environment with the packages that a ``setup.py`` usually imports, and ``extra``."""
    packages = (*REQUIREMENTS, *extra)
    python = folder / "bin" / "python"
    try:
        process.run([uv.find(), "venv", "--quiet", "--python", ">=3.9,<3.13", folder], env_changes=CLEAN)
        _install(python, packages)
    except ProcessError as error:
        output = process.tail(error.words, 8)
        raise ConfigurationError(
            f"The packages that setup.py is run with ({', '.join(packages)}) cannot be installed:\n{output}"
        ) from error
    return python


def _installed(python: Path, declared: Sequence[str], overrides: Path) -> list[str]:
    """Install each of ``declared`` that can be installed; return the others, which ``setup.py`` may do without."""
    overrides.write_text(NEVER_TORCH, encoding="utf-8")
    try:
        _install(python, ["--no-build", "--override", overrides, *declared])
    except ProcessError:
        if len(declared) == 1:
            return list(declared)
        return [each for one in declared for each in _installed(python, [one], overrides)]
    return []


def _install(python: Path, packages: Sequence[str | Path]) -> None:
    install: list[str | Path] = [uv.find(), "pip", "install", "--quiet", "--python", python]
    process.run([*install, *packages], env_changes=CLEAN, timeout=PREPARING)


def _record(setup: _Setup, backend: str, scratch: Path) -> Recording | Note:
    """Return what is declared on one kind of machine, or why ``setup.py`` refuses it."""
    more: dict[str, str] = {}  # what it is given only if it fails without
    while True:
        copy = _copied(setup.root, scratch / str(len(more)) / setup.root.name)
        before = _contents(copy)
        _tracked(setup.root, copy.parent / TRACKED)
        answer = _run(setup, backend, copy, more)
        if answer.get("lacks") and UNKNOWN not in more:
            more[UNKNOWN] = "1"
        elif answer.get("error") and backend == "cuda" and ARCHS in answer.get("read", []) and ARCHS not in more:
            more[ARCHS] = ANY_ARCH
        else:
            break
    if answer.get("missing"):
        name = str(answer["missing"]).partition(".")[0]
        raise ConfigurationError(f"{_where(answer)} imports `{name}`, which is not available: add `--with {name}`.")
    if answer.get("error"):
        return Note(_failure(answer, backend), int(answer.get("line") or 0))
    written = sorted(
        name
        for name, content in _contents(copy).items()
        if before.get(name) != content and not OF_SETUPTOOLS.search(name)
    )
    notes = [Note(str(each["text"]), int(each["line"])) for each in answer.get("notes", [])]
    notes += [Note(WRITES.format(name)) for name in written if not name.endswith(".pyc")]
    if backend == "cuda" and ARCHS in answer.get("read", []):
        notes.append(Note(READS_ARCHS.format(f"with {ANY_ARCH} in it" if ARCHS in more else "without it")))
    places = (str(TORCH), str(scratch), str(setup.python.parent.parent))
    stamps = dict(_stamps(copy, written, str(answer.get("torch", ""))))
    made = (name for name in written if name.endswith(".py") and not (setup.root / name).exists())
    return Recording(
        extensions=tuple(_extension(each, copy) for each in answer["extensions"]),
        metadata=_inside(answer["metadata"], copy),
        notes=tuple(notes),
        variables=tuple(answer.get("variables", [])),
        packed=None if answer.get("packed") is None else tuple(_packed(answer["packed"], setup.root, copy)),
        cmake=_cmake(answer.get("cmake"), copy, places),
        commanded=_cmake(answer.get("commanded"), copy, places),
        stamps=tuple(stamps.items()),
        made=tuple((name, _text(copy / name)) for name in made if name not in stamps),
        printed=str(answer.get("printed", "")),
        tag=str(answer.get("tag", "")),
    )


def _copied(root: Path, copy: Path) -> Path:
    """Return a copy of the project, in which ``setup.py`` runs."""

    def left_out(folder: str, names: list[str]) -> set[str]:
        places = {name: Path(folder, name) for name in names}
        special = {name for name, at in places.items() if at.exists() and not at.is_dir() and not at.is_file()}
        return special | OF_NO_USE(folder, names)  # to open a pipe is to wait for what is written to it

    try:
        shutil.copytree(root, copy, ignore=left_out, symlinks=True)
    except shutil.Error as error:
        (source, _, why), *_ = error.args[0]
        problem = f"{source} cannot be copied, and setup.py runs in a copy of the project: {why}"
        raise ConfigurationError(f"{problem}. Make it readable, then run `init` again") from error
    return copy


def _inside(value: Any, copy: Path) -> Any:  # noqa: ANN401 -- what JSON holds
    """Return a value with the paths below ``copy`` as paths in the project: ``setup.py`` may know its own folder."""
    match value:
        case dict():
            return {key: _inside(each, copy) for key, each in value.items()}
        case list():
            return [_inside(each, copy) for each in value]
        case str() if value.startswith("/"):
            path = Path(os.path.normpath(value))
            base = next((each for each in (copy, copy.resolve()) if path.is_relative_to(each)), None)
            return path.relative_to(base).as_posix() if base else value
    return value


def _stamps(copy: Path, written: Iterable[str], version: str) -> Iterator[tuple[str, str]]:
    """Yield the Python files that have torch's version in them, and their text with ``VERSION`` in its place."""
    for name in written:
        if name.endswith(".py") and version:
            text = _text(copy / name)
            if version.partition("+")[0] in text:
                yield name, text.replace(version, VERSION).replace(version.partition("+")[0], VERSION)


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


def _cmake(fields: Mapping[str, Any] | None, copy: Path, places: Sequence[str]) -> dict[str, Any] | None:
    """Return what CMake is given, without paths in ``places``, which are the recording's."""
    if not fields:
        return None
    source = Path(os.path.normpath(copy / str(fields["source"])))
    if not source.is_relative_to(copy):
        return None
    arguments = [str(each) for each in fields["args"] if not any(place in str(each) for place in places)]
    return {"source": source.relative_to(copy).as_posix(), "args": arguments}


def _tracked(root: Path, target: Path) -> None:
    """Write the names of the files that git tracks; none where there is no git or no repository."""
    try:
        done = process.run(["git", "-c", "core.quotePath=false", "ls-files"], cwd=root, check=False)
    except ProcessError:
        return
    if done.returncode == 0 and (root / ".git").exists():
        target.write_text(done.stdout, encoding="utf-8")


def _packed(pairs: Iterable[Sequence[str]], root: Path, copy: Path) -> Iterator[tuple[str, str]]:
    """Yield what is packed, each file at its place in the project itself, which has no link that ``setup.py`` made."""
    for installed, place, behind_links in pairs:
        source = Path(os.path.normpath(copy / place))
        if not source.is_relative_to(copy):
            continue
        inside = source.relative_to(copy)
        real = Path(behind_links)
        if not (root / inside).is_file() and real.is_relative_to(copy.resolve()):
            inside = real.relative_to(copy.resolve())
        yield installed, inside.as_posix()


def _run(setup: _Setup, backend: str, copy: Path, more: Mapping[str, str]) -> dict[str, Any]:
    """Run ``setup.py`` in a copy of the project, with ``more`` variables; return the answer."""
    changes: dict[str, str | None] = {
        "PYTHONPATH": str(TORCH),
        "PYTHONDONTWRITEBYTECODE": "1",
        "TORCH_EXT_RECORDING_BACKEND": backend,
        "TORCH_EXT_RECORDING_TORCH": setup.torch,
        "TORCH_EXT_RECORDING_CUDA": releases.index_cuda(releases.minor_of(setup.torch)),
        "TORCH_EXT_RECORDING_TRACKED": str(copy.parent / TRACKED),
        UNKNOWN: None,
        "FORCE_CUDA": "1" if backend == "cuda" else None,
        "CUDA_HOME": "/usr/local/cuda" if backend == "cuda" else None,
        "CUDA_PATH": None,
        "VIRTUAL_ENV": None,
        ARCHS: None,
        "MAX_JOBS": "2",
        **more,
    }
    command: list[str | Path] = [setup.python, DRIVER, copy.parent / RESULT, "setup.py", backend, *setup.arguments]
    try:
        done = process.run(command, cwd=copy, env_changes=changes, timeout=setup.timeout, check=False)
    except ProcessError as error:
        raise ConfigurationError(
            f"setup.py did not finish within {setup.timeout:g} s: it may be waiting for input or for the network."
        ) from error
    try:
        answer = untrusted.json((copy.parent / RESULT).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        output = process.tail(done.stdout + done.stderr, 8)
        raise ConfigurationError(
            f"setup.py cannot be recorded; it ended with status {done.returncode}:\n{output}"
        ) from error
    if not isinstance(answer, dict):
        return {"error": "tells nothing", "line": 0}
    if "calls sys.exit" in str(answer.get("error")) and (printed := process.tail(done.stdout + done.stderr, 8).strip()):
        answer["error"] = f"{answer['error']}, and prints:\n{printed}"
    return {**answer, "printed": process.tail(done.stdout, 8).strip()}


def _where(answer: Mapping[str, Any]) -> str:
    return f"setup.py (line {answer['line']})" if answer.get("line") else "setup.py"


def _failure(answer: Mapping[str, Any], backend: str) -> str:
    machine = {"cpu": "a machine without CUDA", "cuda": "a machine with CUDA"}[backend]
    failed = f"{_where(answer)} fails when it is recorded as {machine}: {answer['error']}"
    if "no network while setup.py is recorded" in str(answer["error"]):
        return f"{failed}. Put what it downloads into its place in the project, then run `init` again"
    return failed


def _contents(folder: Path) -> dict[str, tuple[int, int]]:
    """Return the time of the last change of each file, and its size."""
    found = {}
    for path in folder.rglob("*"):
        if path.is_file():
            state = path.stat()
            found[path.relative_to(folder).as_posix()] = state.st_mtime_ns, state.st_size
    return found


def _extension(fields: Mapping[str, Any], copy: Path) -> Extension:
    def inside(path: str) -> str:
        absolute = Path(os.path.normpath(copy / path))
        try:
            return absolute.relative_to(copy).as_posix()
        except ValueError:
            return path.replace("\\", "/")

    folders = [each.replace("\\", "/") for each in fields["include_dirs"] if str(TORCH) not in each]
    packages = {each: re.search(r"/site-packages/(\w+)/", each) for each in folders}
    return Extension(
        name=str(fields["name"]),
        kind=str(fields["kind"]),
        sources=tuple(inside(each.replace("\\", "/")) for each in fields["sources"]),
        include_dirs=tuple(inside(each) for each in folders if not packages[each] and not OF_PYTHON.search(each)),
        packages=tuple(sorted({found[1] for found in packages.values() if found})),
        macros=tuple((str(name), value) for name, value in fields["define_macros"]),
        undefined=tuple(fields["undef_macros"]),
        library_dirs=tuple(inside(each) for each in fields["library_dirs"] if str(TORCH) not in each),
        libraries=tuple(fields["libraries"]),
        runtime_library_dirs=tuple(fields["runtime_library_dirs"]),
        objects=tuple(inside(each) for each in fields["extra_objects"]),
        cxx=tuple(fields["cxx"]),
        nvcc=tuple(fields["nvcc"]),
        link=tuple(fields["link"]),
        py_limited_api=bool(fields["py_limited_api"]),
        dlink=bool(fields["dlink"]),
    )
