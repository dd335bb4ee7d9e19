"""Both recordings of a ``setup.py`` -> targets of CMake: what is common, what CUDA adds, what excludes what."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from hatch_torch_ext.init.texts import Note

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from hatch_torch_ext.init.recording import Extension, Recording

REGISTERS = re.compile(
    r"\b(?:STABLE_)?TORCH_LIBRARY(?:_FRAGMENT)?(?:_EXPAND)?\s*\(|\bRegisterOperators\b|\btorch::class_\b"
)
MODULE = re.compile(r"\bPYBIND11_MODULE\s*\(|\bPyMODINIT_FUNC\b|\bPyInit_\w+|\bNB_MODULE\s*\(|\bTORCH_EXTENSION_NAME\b")
NAMED = re.compile(r"\b\w*TORCH_LIBRARY\w*\s*\(\s*(?:CONCAT\s*\(\s*)?TORCH_EXTENSION_NAME\b")
PYBIND11 = re.compile(r"\bPYBIND11_MODULE\b|\bpybind11/|\btorch/(extension|python)\.h\b")
OF_CUDA = {
    "cudart": "cudart", "cublas": "cublas", "cublasLt": "cublasLt", "cufft": "cufft", "curand": "curand",
    "cusolver": "cusolver", "cusparse": "cusparse", "nvrtc": "nvrtc", "nvjpeg": "nvjpeg", "cuda": "cuda_driver",
    "nvToolsExt": "nvtx3",
}  # fmt: skip
"""Libraries of the toolkit, by the name of CMake's target."""
OF_TORCH = frozenset({"torch", "torch_cpu", "torch_cuda", "torch_python", "c10", "c10_cuda", "torch_cuda_linalg"})
TAKES_VALUE = frozenset(
    {"-Xcompiler", "-Xptxas", "-Xcudafe", "-Xlinker", "-include", "-isystem", "-I", "-L", "-maxrregcount"}
)
"""Flags with a value in the next argument, which may start with a dash."""
LEFT_OUT = ("-std=", "--std=", "--threads=", "-t=")
"""Prefixes of flags that are left out, since CMake and torch's targets set their own."""
OF_TORCHS_KINDS = frozenset({"cpp", "cuda"})
"""Kinds of extensions that torch's own classes declare."""
OF_PACKAGES = {"numpy": "Python::NumPy", "pybind11": "pybind11::headers"}
"""CMake targets with a Python package's headers; torch has those of pybind11."""
OF_TORCHS_TARGETS = frozenset({"_GLIBCXX_USE_CXX11_ABI", "TORCH_EXTENSION_NAME", "TORCH_API_INCLUDE_EXTENSION_H"})
"""Macros that torch's targets define; the values depend on the release."""
LIMITED = "Py_LIMITED_API"
"""The macro by which a source asks for Python's limited API."""
OLDEST = 9
"""The minor version of the Python whose limited API is taken where nothing names one."""
OF_ARCHS = Note("architectures of CUDA are the option `archs`")
RELOCATABLE = frozenset({"-rdc=true", "--relocatable-device-code=true", "-dc", "--device-c"})
"""Flags for relocatable device code, which CMake sets by a property of the target."""
STARTS_PROJECT = re.compile(r"^\s*project\s*\(", re.IGNORECASE | re.MULTILINE)
OF_OTHERS = frozenset({"third_party", "third-party", "thirdparty", "3rdparty", "external", "extern", "deps", "build"})
"""Names of folders with third-party sources, or with a build's output."""
TAKEN = frozenset({
    "all", "ALL_BUILD", "c10", "c10_cuda", "clean", "edit_cache", "help", "install", "package", "package_source",
    "rebuild_cache", "test", "torch", "torch_cpu", "torch_cuda", "torch_library", "torch_python",
})  # fmt: skip
"""Names of targets that CMake reserves, or that torch's package defines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags:
    """Flags for compilers and linker; ``macros`` are in CMake's form (``NAME`` or ``NAME=VALUE``)."""

    macros: tuple[str, ...] = ()
    cxx: tuple[str, ...] = ()
    nvcc: tuple[str, ...] = ()
    link: tuple[str, ...] = ()
    link_dirs: tuple[str, ...] = ()
    include_dirs: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A target of the CMake project: ``name`` is its name in CMake, ``dotted`` the one by which Python knows it.

    ``destination`` is its folder below the package (``.`` for the package itself). ``when`` says in which entries it is
    built; ``cuda_sources`` and ``cuda`` are added in entries with CUDA, ``cpu_sources`` and ``cpu`` in the others.
    ``python_abi`` is ``3.9`` for a module on Python's limited API of 3.9.
    """

    name: str
    dotted: str
    kind: Literal["library", "module"]
    destination: str = "."
    when: Literal["always", "cpu", "cuda"] = "always"
    sources: tuple[str, ...] = ()
    cuda_sources: tuple[str, ...] = ()
    cpu_sources: tuple[str, ...] = ()
    flags: Flags = field(default_factory=Flags)
    cuda: Flags = field(default_factory=Flags)
    cpu: Flags = field(default_factory=Flags)
    python_abi: str | None = None
    uses_torch: bool = True
    device_linked: bool = False

    @property
    def output(self) -> str:
        """Return the name of its file."""
        return self.dotted.rpartition(".")[2]

    @property
    def every_source(self) -> tuple[str, ...]:
        """Return the sources of all entries."""
        return (*self.sources, *self.cuda_sources, *self.cpu_sources)

    @property
    def needs_cuda(self) -> bool:
        """Return whether nvcc compiles any of its sources."""
        return any(name.endswith(".cu") for name in (*self.sources, *self.cuda_sources))


def join(
    root: Path, cpu: Recording | None, cuda: Recording | None, *, package: str
) -> tuple[tuple[Target, ...], tuple[Note, ...]]:
    """Return the targets, in the order of their declarations, and notes on what is not carried over.

    A recording is None if ``setup.py`` refuses that machine.
    """
    ours = {each.name: each for each in (cpu.extensions if cpu else ())}
    theirs = {each.name: each for each in (cuda.extensions if cuda else ())}
    of_all = not any(each.sources for each in (*ours.values(), *theirs.values()))
    notes: list[Note] = []
    made = []
    tag = next((each.tag for each in (cpu, cuda) if each), "")
    for name in dict.fromkeys([*ours, *theirs]):
        if any([each.name for each in found.extensions].count(name) > 1 for found in (cpu, cuda) if found):
            notes.append(Note(f"`{name}` is declared more than once: the last one is carried over"))
        declared = [each[name] for each in (ours, theirs) if name in each]
        sources = [*dict.fromkeys(source for each in declared for source in each.sources)]
        if why := _left_out(root, declared[0], sources, of_all=of_all):
            notes.append(Note(why))
            continue
        missing = (each for each in sources if not (root / each).is_file())
        notes += [Note(f"`{name}`: `{each}` does not exist: CMakeLists.txt has to make it") for each in missing]
        if not _is_inside(name.rpartition(".")[0], package):
            why = "since a wheel's variants are in one package"
            notes.append(Note(f"`{name}` is put into `{package}`, {why}: import it from there"))
        target = _target(root, declared[0], declared[-1], notes, package=package, tag=tag)
        made.append(replace(target, when="cuda") if name not in ours and cpu is not None else target)
    return tuple(_with_own_names(_with_alternatives(root, made))), tuple(dict.fromkeys(notes))


def _is_inside(module: str, package: str) -> bool:
    return f"{module}.".startswith(f"{package}.")


def _left_out(root: Path, extension: Extension, sources: Sequence[str], *, of_all: bool) -> str:
    """Return why an extension is not carried over, "" if it is; ``of_all``: none of the project names its sources."""
    name = extension.name
    if re.fullmatch(r"[\w+-]+(\.[\w+-]+)*", name, re.ASCII) is None:
        return f"`{name}` is not a name that a file and a target can have: it is left out"
    if extension.kind == "sycl":
        return f"`{name}` is for SYCL, which no variant is built for: it is left out"
    if not sources:
        text = f"`{name}` names no sources, so that a command of the project builds it: "
        own = own_cmake(root)
        if own is None:
            return f"{text}add its target to CMake"
        return text + with_own_cmake(own, beside=not of_all)
    if made := next((each for each in sources if _of_cython(root, each)), None):
        pyx = Path(made).with_suffix(".pyx")
        text = f"`{name}` is made by Cython of `{pyx if (root / pyx).is_file() else made}`"
        return f"{text}: build it by hand in CMake"
    return ""


def for_each_python(targets: Iterable[Target]) -> bool:
    """Return whether a target has to be compiled for each Python."""
    return any(each.kind == "module" and each.python_abi is None for each in targets)


def cuda_only(cpu: Recording | None, cuda: Recording | None) -> bool:
    """Return whether nothing is built without CUDA: ``setup.py`` refuses, or declares sources for nvcc all the same."""
    if cpu is None or cuda is None:
        return cuda is not None
    return any(source.endswith(".cu") for extension in cpu.extensions for source in extension.sources)


def own_cmake(root: Path) -> str | None:
    """Return the outermost folder with a CMake project, third-party ones aside; None if there is none."""
    found = [path.parent for path in root.rglob("CMakeLists.txt") if STARTS_PROJECT.search(source_text(root, path))]
    folders = [each.relative_to(root) for each in found]
    own = [each for each in folders if not OF_OTHERS & {part.lower() for part in each.parts}]
    return min((each.as_posix() for each in own), key=lambda each: (each.count("/"), each), default=None)


def with_own_cmake(folder: str, *, beside: bool = False) -> str:
    """Return how the project's own CMake project in ``folder`` is built, ``beside`` targets of ``init`` or alone."""
    use = f"`add_subdirectory({folder})`" if beside else f'keep that, with `source = "{folder}"` in the hook\'s table'
    return f"there is a CMake project in `{folder}`: {use}, and `install()` what it makes"


def _with_own_names(targets: Sequence[Target]) -> Iterator[Target]:
    """Yield the targets with names that are unique and that neither CMake nor torch reserves."""
    outputs = [target.output for target in targets]
    for target in targets:
        taken = target.output in TAKEN or outputs.count(target.output) > 1
        yield replace(target, name=target.dotted.replace(".", "_") + "_ext") if taken else target


def _of_cython(root: Path, source: str) -> bool:
    if source.endswith((".pyx", ".pxd", ".py")):
        return True
    path = root / source
    return bool(path.name) and not path.is_file() and path.with_suffix(".pyx").is_file()


def _target(root: Path, cpu: Extension, cuda: Extension, notes: list[Note], *, package: str, tag: str) -> Target:
    """Return the target of what is declared without and with CUDA; one of the two, where only that one is."""
    sources = tuple(each for each in cpu.sources if each in cuda.sources)
    cuda_sources = tuple(each for each in cuda.sources if each not in cpu.sources)
    cpu_sources = tuple(each for each in cpu.sources if each not in cuda.sources)
    everywhere = (*sources, *cuda_sources, *cpu_sources)
    mine, theirs = _flags(cpu, notes), _flags(cuda, notes)
    common = _common(mine, theirs)
    added, without = _without(theirs, common), _without(mine, common)
    # An extension of setuptools is a module, unless its sources are there and say otherwise.
    is_module = any(makes_module(root, each) for each in everywhere) or not any(
        (root / each).is_file() for each in everywhere
    )
    parents, _, name = cpu.name.rpartition(".")
    if not is_module and any("TORCH_EXTENSION_NAME" in source_text(root, each) for each in everywhere):
        named = f"TORCH_EXTENSION_NAME={name}"  # operators that are registered under that name
        common = replace(common, macros=(*common.macros, named))
    limited = _limited(root, cpu, everywhere, notes, tag) if is_module else None
    if limited is not None:
        common, added, without = (_without_limited(each) for each in (common, added, without))
    below = parents[len(package) + 1 :] if _is_inside(parents, package) else ""
    return Target(
        name=name,
        dotted=cpu.name,
        kind="module" if is_module else "library",
        destination=below.replace(".", "/") or ".",
        sources=sources,
        cuda_sources=cuda_sources,
        cpu_sources=cpu_sources,
        flags=common,
        cuda=added,
        cpu=without,
        python_abi=limited,
        uses_torch=cpu.kind in OF_TORCHS_KINDS,
        device_linked=_is_device_linked(cpu) or _is_device_linked(cuda),
    )


def _with_alternatives(root: Path, targets: Sequence[Target]) -> list[Target]:
    """Return the targets; of two that register the same operators, one is for entries with CUDA, one for the others."""
    of_cuda = [target for target in targets if target.when == "cuda"]
    found = []
    for target in targets:
        shares = any(
            REGISTERS.search(source_text(root, source))
            for other in of_cuda
            if other.name != target.name
            for source in {*target.sources} & {*other.sources}
        )
        found.append(replace(target, when="cpu") if target.when == "always" and shares else target)
    return found


def makes_module(root: Path, source: str) -> bool:
    """Return whether a source defines a Python module; an operators' namespace TORCH_EXTENSION_NAME is not one."""
    return MODULE.search(NAMED.sub("", _for_linux(source_text(root, source)))) is not None


def _for_linux(text: str) -> str:
    """Return C++ code without the branches for Windows."""
    kept, skipping = [], []
    for line in text.splitlines():
        directive = line.strip()
        if re.match(r"#\s*if(def|ndef)?\b", directive):
            skipping.append(bool(re.match(r"#\s*if(def)?\s+(defined\s*\(?\s*)?_(WIN32|MSC_VER)\b", directive)))
        elif re.match(r"#\s*else\b", directive) and skipping:
            skipping[-1] = not skipping[-1] if skipping[-1] else False
        elif re.match(r"#\s*endif\b", directive) and skipping:
            skipping.pop()
        elif not any(skipping):
            kept.append(line)
    return "\n".join(kept)


def source_text(root: Path, source: str | Path) -> str:
    """Return the text of a source file, "" if it does not exist."""
    try:
        return (root / source).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _is_device_linked(extension: Extension) -> bool:
    pairs = zip(extension.nvcc, extension.nvcc[1:], strict=False)
    parted = any(flag in {"-rdc", "--relocatable-device-code"} and value == "true" for flag, value in pairs)
    return extension.dlink or parted or not RELOCATABLE.isdisjoint(extension.nvcc)


def _limited(root: Path, extension: Extension, sources: Iterable[str], notes: list[Note], tag: str) -> str | None:
    """Return the limited API of the module ``extension``; with pybind11, which cannot use it, None and a note.

    ``tag`` is what the author gave to the wheel: it names the oldest Python where the module's macros do not.
    """
    of_tag = re.fullmatch(r"cp3(\d+)-abi3", tag)
    oldest = int(of_tag[1]) if of_tag else 0
    compiled = _limited_by_macro(extension)
    if compiled is None and not extension.py_limited_api:
        if tag:
            why = "is not on Python's limited API (`py_limited_api=True`): it is made for each Python"
            notes.append(Note(f"its wheel has the tag `{tag}`, but the module `{extension.name}` {why}"))
        return None
    if any(PYBIND11.search(source_text(root, source)) for source in sources):
        why = "asks for Python's limited API, which pybind11 does not have: it is made for each Python"
        notes.append(Note(f"`{extension.name}` {why}"))
        return None
    if oldest and compiled and compiled > oldest:
        why = f"is compiled for the limited API of Python 3.{compiled}: it is for 3.{compiled} and later"
        notes.append(Note(f"its wheel has the tag `{tag}`, but `{extension.name}` {why}"))
    return f"3.{max(oldest, compiled or 0) or OLDEST}"


def _limited_by_macro(extension: Extension) -> int | None:
    """Return the minor version of Python whose limited API a macro asks for; 0 where its value names none."""
    of_flags = (_macro(flag) for flag in extension.cxx if flag.startswith(f"-D{LIMITED}"))
    for name, value in (*extension.macros, *of_flags):
        if name == LIMITED:
            digits = re.match(r"0x03([0-9a-fA-F]{2})", value or "")
            return int(digits[1], 16) if digits else 0
    return None


def _without_limited(flags: Flags) -> Flags:
    """Return the flags without the macro of the limited API, which CMake's `USE_SABI` defines."""
    macros = tuple(each for each in flags.macros if each.partition("=")[0] != LIMITED)
    return replace(flags, macros=macros, cxx=tuple(each for each in flags.cxx if _macro(each)[0] != LIMITED))


def _macro(flag: str) -> tuple[str, str | None]:
    name, equals, value = flag.removeprefix("-D").partition("=")
    return name, value if equals else None


def _flags(extension: Extension, notes: list[Note]) -> Flags:
    """Return the flags that are carried over; the others are noted, unless torch's targets set them."""
    cxx = list(_kept(extension.cxx, notes, standard=extension.kind not in OF_TORCHS_KINDS))
    nvcc = list(_kept(extension.nvcc, notes))
    if not any(source.endswith(".cu") for source in extension.sources):
        nvcc = []
    for undefined in extension.undefined:
        cxx.append(f"-U{undefined}")
        if nvcc:
            nvcc.append(f"-U{undefined}")
    objects = (each if each.startswith("/") else f"${{CMAKE_CURRENT_SOURCE_DIR}}/{each}" for each in extension.objects)
    libraries = [*_libraries(extension.libraries), *objects, *_of_packages(extension)]
    notes += map(Note, _outside(extension))
    folders = [each for each in extension.include_dirs if not each.startswith("/usr/local/cuda")]
    link = [each for each in _kept(extension.link, notes) if each not in {"-s", "-shared"}]
    return Flags(
        macros=tuple(
            (name if value is None else f"{name}={value}").replace('\\"', '"')
            for name, value in extension.macros
            if name not in OF_TORCHS_TARGETS
        ),
        cxx=tuple(cxx),
        nvcc=tuple(nvcc),
        link=tuple(link),
        link_dirs=tuple(each or "." for each in extension.library_dirs if not each.startswith("/")),
        include_dirs=tuple(each or "." for each in folders if not each.startswith("/")),
        libraries=tuple(libraries),
    )


def _of_packages(extension: Extension) -> Iterator[str]:
    for package in extension.packages:
        if package in OF_PACKAGES and not (package == "pybind11" and extension.kind != "other"):
            yield OF_PACKAGES[package]


def _outside(extension: Extension) -> Iterator[str]:
    """Yield notes on headers, libraries and folders outside of the project."""
    for package in extension.packages:
        if package not in OF_PACKAGES:
            yield f"headers of the Python package `{package}` are not carried over: find them in CMake"
    for folder in extension.runtime_library_dirs:
        yield f"the RPATH `{folder}` is not carried over: INSTALL_RPATH of the target, where a library is found by it"
    for folder in (*extension.include_dirs, *extension.library_dirs):
        if folder.startswith("/") and not folder.startswith("/usr/local/cuda"):
            yield f"the folder `{folder}` is outside the project: find the library with find_package() instead"


def _libraries(names: Iterable[str]) -> Iterator[str]:
    for name in names:
        if name in OF_CUDA:
            yield f"CUDA::{OF_CUDA[name]}"
        elif name not in OF_TORCH:
            yield name


def _kept(flags: Iterable[str], notes: list[Note], *, standard: bool = False) -> Iterator[str]:
    """Yield flags in CMake's form, note others; a flag and its value are one item, so that CMake keeps them together.

    With ``standard``, the flag of the language's standard is kept: the target does not link torch, which sets it.
    """
    rest = list(flags)
    while rest:
        flag = rest.pop(0)
        if flag in {"-gencode", "--generate-code", "-arch", "--gpu-architecture"} and rest:
            rest.pop(0)
            notes.append(OF_ARCHS)
        elif flag.startswith(("-gencode=", "-arch=", "--generate-code=", "--gpu-architecture=")):
            notes.append(OF_ARCHS)
        elif flag in {"--threads", "-t", "-rdc", "--relocatable-device-code", "-std", "--std"} and rest:
            rest.pop(0)
        elif flag.startswith(("-std=", "--std=")) and standard:
            yield flag
        elif flag.startswith(LEFT_OUT) or flag in {"-fPIC", "-w64", *RELOCATABLE} or _is_torchs(flag):
            continue
        elif flag in {"-march=native", "-mtune=native"}:
            notes.append(Note(f"`{flag}` makes code for the machine that builds, and a wheel runs on others"))
        elif rest and (flag in TAKES_VALUE or (flag.startswith("-") and not rest[0].startswith("-"))):
            yield f"SHELL:{flag} {rest.pop(0)}"
        else:
            yield flag


def _is_torchs(flag: str) -> bool:
    return flag.startswith("-D") and _macro(flag)[0] in OF_TORCHS_TARGETS


def _common(one: Flags, other: Flags) -> Flags:
    return Flags(**{name: tuple(e for e in getattr(one, name) if e in getattr(other, name)) for name in _NAMES})


def _without(flags: Flags, common: Flags) -> Flags:
    return Flags(**{name: tuple(e for e in getattr(flags, name) if e not in getattr(common, name)) for name in _NAMES})


_NAMES = tuple(each.name for each in fields(Flags))
