"""What the stages pass on: frozen values, each made by one stage and read by later ones; nothing here acts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from hatch_torch_ext.base import untrusted
from hatch_torch_ext.facts.backend import Backend

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from pathlib import Path

    from hatch_torch_ext.config import Config
    from hatch_torch_ext.facts.archs import Arch
    from hatch_torch_ext.facts.manifest import Fallback, Partial
    from hatch_torch_ext.facts.variant import Variant

RESERVED = frozenset(
    {"cache", "compiling", "editing", "environments", "hatch", "lock", "owner", "wheel", "events.jsonl"}
)
"""Names in the work folder that are not folders of entries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One generated environment of the matrix.

    ``variables`` are the matrix's own, by name, in hatch's order (``torch``, ``python``, others).
    ``dependencies`` are the environment's, fully resolved by hatch, torch's requirement among them.
    ``torch_requirement`` is that one requirement as written (``torch==2.8.*``).
    """

    name: str
    variables: tuple[tuple[str, str], ...]
    dependencies: tuple[str, ...]
    torch_requirement: str
    python: str | None
    """The Python that the environment declares (``3.11``), or None for hatch's default."""
    stable_abi: bool = False
    torch: str | None = None
    """The release line (``2.8``) that variable or requirement declares; None: only the installed torch tells."""
    backend: Backend | None = None
    """What the matrix's variable for it names (``cpu``, ``12.8``, ``cu128``); None if it is absent."""
    env_vars: tuple[tuple[str, str], ...] = ()
    """Environment variables that the hatch environment sets."""
    machine: str | None = None
    """The value of the variable ``machine`` (``aarch64``); None for the machine that builds."""

    @property
    def gpu(self) -> Backend | None:
        """Return the backend for GPUs that the matrix declares; None for the CPU, and where it declares none."""
        return self.backend if self.backend is not None and self.backend.is_gpu else None

    @property
    def assumed(self) -> Backend:
        """Return the backend that the matrix declares, else the CPU: for estimates, before the torch is known."""
        return self.backend or Backend("cpu")

    @property
    def is_cpu(self) -> bool:
        """Return whether the matrix declares a variant for the CPU, whatever torch it is compiled against."""
        return self.backend is not None and not self.backend.is_gpu

    @property
    def folder(self) -> str:
        """Return the name of the entry's folder in the work folder; no value of the matrix can lead out of it."""
        return untrusted.safe(self.name, reserved=RESERVED)

    def variable(self, name: str) -> str | None:
        """Return the value of the matrix variable ``name``, or None."""
        return dict(self.variables).get(name)

    def environ(self, base: Mapping[str, str]) -> dict[str, str]:
        """Return the environment variables of the build: ``base``, overridden by those of the hatch environment."""
        return {**base, **dict(self.env_vars)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """hatch's answer on one environment and its matrix, entry names in hatch's order.

    ``variables`` are the matrix's, ``dependencies`` resolved for each entry, ``pythons`` the Pythons that entries ask
    for, ``env_vars`` the environment variables that they set.
    """

    variables: Mapping[str, Mapping[str, str]]
    dependencies: Mapping[str, tuple[str, ...]]
    pythons: Mapping[str, str | None]
    env_vars: Mapping[str, tuple[tuple[str, str], ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpreter:
    """Facts of a Python to compile for, as it reports them; for another machine's Python they are derived.

    ``tag`` is the CPython tag with its ABI flags (``cp311``, ``cp313t``); ``ext_suffix`` is that of its extension
    modules; ``machine`` is ``platform.machine()``; ``include`` is the folder of ``Python.h``.
    """

    version: str
    tag: str
    ext_suffix: str
    machine: str
    include: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """A hatch environment that exists: ``prefix`` is its folder, ``python`` its interpreter.

    ``bin`` is the folder of its programs and ``site_packages`` that of its packages (purelib). ``removal`` is the
    command that removes it, so that the next build makes it again. With ``cross`` its ``interpreter`` is that of
    another machine, for which ``python`` stands in: what is compiled does not run here.
    """

    prefix: Path
    python: Path
    bin: Path
    site_packages: Path
    interpreter: Interpreter
    removal: str = ""
    cross: bool = False
    modules: bool = True
    """Whether modules can be compiled: the headers of another machine's Python may be missing here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchFolders:
    """A torch that is installed in the Python of a build: its folder, and the folders ``nvidia`` of that Python."""

    environment: Environment
    torch: Path
    nvidia: tuple[Path, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sdk:
    """Facts of one torch build, all read from that build.

    ``version`` is ``torch.__version__`` (``2.8.0+cu128``); ``backend`` what it was built for;
    ``cxx11_abi`` is ``torch._C._GLIBCXX_USE_CXX11_ABI``; ``cxx_standard`` is the standard that the release's own CMake
    files require of extensions (17, 20).
    """

    kind: Literal["environment", "thin"]
    version: str
    backend: Backend
    cxx11_abi: bool
    cxx_standard: int
    prefix: Path
    """The folder ``torch``, with ``include`` and ``share/cmake`` in it; CMake's ``TORCH_INSTALL_PREFIX``."""
    library_dir: Path
    """The folder of the link targets: stubs with the SONAMEs of torch's ``lib``, so that both kinds of SDK link alike.
    """
    include_dirs: tuple[Path, ...]
    """torch's own: ``include`` and ``include/torch/csrc/api/include``."""
    toolkit_include_dirs: tuple[Path, ...] = ()
    """Headers of the toolkit's wheels that torch requires (cublas, cusparse, cusolver, cudnn …)."""
    libraries: tuple[str, ...] = ()
    """SONAMEs in torch's own ``lib``, sorted: what an installed torch provides, with a repair tool's hash."""
    nvidia_libraries: tuple[tuple[str, str], ...] = ()
    """(SONAME, folder relative to site-packages) of every library of the NVIDIA wheels that torch requires, sorted."""
    gpu_runtime: Path | None = None
    """The toolkit's runtime library that comes with this torch, if available: kernels may call only what it exports."""
    toolkit_parts: tuple[Path, ...] = ()
    """Another machine's part of the entry's toolkit: of each wheel, a folder laid out like site-packages."""
    python_path: tuple[Path, ...] = ()
    """Folders on ``PYTHONPATH`` of the interpreter that CMake finds (the facade of a thin SDK)."""
    left_out: tuple[str, ...] = ()
    """Modules of torch's wheel and of its requirements that a thin SDK lacks, sorted: ``sympy``, ``torchgen`` …"""
    wheel_sha256: str | None = None
    """The wheel's hash as its index states it, if it does; bytes that are read by ranges cannot be compared with it."""
    foreign: str = ""
    """In words, a backend that no variant is built for, where torch is built for one; ``backend`` is the CPU then."""

    @property
    def minor(self) -> str:
        """Return ``major.minor`` of the torch version."""
        return ".".join(self.version.split(".")[:2])


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A program: its absolute path and the version that it reports; ``arguments`` go before all others."""

    path: Path
    version: str
    arguments: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolkit:
    """A GPU's toolkit that fits the entry: ``root`` has its programs and headers; ``version`` is the compiler's."""

    root: Path
    compiler: Tool
    version: str
    source: str
    """Where it came from, in words for messages (``the entry's environment``, ``CUDA_HOME`` …)."""
    host: Path
    """The C++ compiler that it calls for the host's code."""
    archs: tuple[Arch, ...] = ()
    """The architectures that kernels are compiled for, sorted."""
    archs_source: str = ""
    """Where ``archs`` come from, in words for messages."""
    flags: tuple[str, ...] = ()
    """The compiler's arguments except those for architectures (compression)."""
    newer_minor: bool = False
    """It is newer than torch's, of the same major: the audit compares runtime symbols with torch's runtime."""

    def described(self) -> tuple[str, str]:
        """Return the two sentences about the toolkit that the user sees if CMake uses it."""
        listed = " ".join(arch.name for arch in self.archs)
        return (
            f"{self.compiler.path.name} {self.compiler.version} from {self.source} ({self.root})",
            f"GPU architectures {listed}, from {self.archs_source}",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossTarget:
    """Another machine to compile for: the C compiler, if there is one, and how compilers are called.

    ``flags`` go before all others (``--target=aarch64-linux-gnu``); ``emulator`` runs that machine's programs here.
    """

    machine: str
    cc: Path | None = None
    cc_flags: tuple[str, ...] = ()
    """More of them, for the C compiler only."""
    flags: tuple[str, ...] = ()
    sysroot: Path | None = None
    libraries: Path | None = None
    """Without a sysroot, the folder whose ``lib`` and ``include`` are that machine's, if the compiler has one."""
    emulator: tuple[str, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()
    """The process's ``CXXFLAGS`` and the like without flags for this processor; only variables that had such flags."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompilerCache:
    """The compiler launcher; it need not be a compiler cache.

    ``folder`` is that of our own ccache; the user's program keeps its own settings.
    """

    program: Path
    folder: Path | None = None

    @property
    def ccache(self) -> bool:
        """Return whether it is ccache, which gets the folders to map."""
        return self.program.name == "ccache"


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolchain:
    """Everything that turns sources into an install tree; ``cache`` starts every compiler.

    Without a toolkit that fits, ``toolkit`` is None and ``toolkit_problem`` has the reason and the remedy. That is not
    an error as long as CMake does not ask for one: an extension without code for GPUs needs none, whatever torch it is
    built for.
    """

    cmake: Tool
    ninja: Tool
    cxx: Tool
    patchelf: Tool
    toolkit: Toolkit | None = None
    toolkit_problem: str | None = None
    cache: CompilerCache | None = None
    strip: Path | None = None
    objcopy: Path | None = None
    target: CrossTarget | None = None
    """The machine to compile for, if it is not this one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Packaging:
    """What hatchling knows of the project: its name, and the files that it packs."""

    distribution: str
    version: str = ""
    """The project's version, for machines that build an entry: where tags say it, it is known only here."""
    shipped: Mapping[str, Path] = field(default_factory=dict)
    """The files that go into the wheel anyway, by place in it."""
    sdist: Collection[str] | None = None
    """The files that go into an sdist, if the manifest shall say what the wheel was built from."""
    travelling: Callable[[], Sequence[Path]] = tuple
    """Returns the files with which the project can be built elsewhere; called only where something is sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What one entry is built from: plain values, so that it can be sent to another machine."""

    entry: Entry
    config: Config
    work: Path
    """The folder of all work; the entry's own folder is in it."""
    installed: TorchFolders | None = None
    """The torch to build for, if it is installed already: nothing is fetched, and no environment is made."""

    @property
    def name(self) -> str:
        """Return the entry's name."""
        return self.entry.name

    @property
    def folder(self) -> Path:
        """Return the entry's own folder."""
        return self.work / self.entry.folder

    @property
    def log(self) -> Path:
        """Return the file with the whole output of the entry's build."""
        return self.folder / "log.txt"


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedEntry:
    """An entry that has its environment and its SDK, and needs tools; ``folder`` is its work folder."""

    entry: Entry
    config: Config
    environment: Environment
    sdk: Sdk
    folder: Path

    def with_tools(self, toolchain: Toolchain) -> Setup:
        """Return the entry with the tools that compile it."""
        return Setup(
            entry=self.entry,
            config=self.config,
            environment=self.environment,
            sdk=self.sdk,
            folder=self.folder,
            toolchain=toolchain,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup(PreparedEntry):
    """All that one entry is compiled with, and the folders that this happens in."""

    toolchain: Toolchain

    @property
    def build(self) -> Path:
        """Return CMake's build folder."""
        return self.folder / "build"

    @property
    def prefix(self) -> Path:
        """Return the install prefix."""
        return self.folder / "install"

    @property
    def log(self) -> Path:
        """Return the file to which every command and its output is written."""
        return self.folder / "log.txt"

    @property
    def package(self) -> Path:
        """Return the folder of our CMake package for this entry."""
        return self.folder / "cmake"

    @property
    def torch(self) -> Path:
        """Return a folder with the SDK's ``include``, ``lib`` and ``share``, wherever those of the SDK are.

        Relative to the build folder its path is the same in every entry, so a compiler cache sees the same paths.
        """
        return self.folder / "torch"

    @property
    def upstream(self) -> bool:
        """Return whether find_package(Torch) is left to torch's own CMake files."""
        return self.config.cmake.torch_package == "upstream"


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallTree:
    """What ``cmake --install`` left in ``prefix``: relative POSIX paths of its files and links, sorted.

    ``compiler`` describes the C++ compiler as CMake saw it (``GNU 12.2.0``), ``gpu_compiler`` likewise, or None;
    ``flags`` are the effective flags for C++ and GPUs of the targets (CMake File API), for the manifest;
    ``build_dirs`` are the absolute paths that must not appear inside a file of the wheel; ``archives`` are (file name
    of a library, static library of the project that it links), which are not installed.
    """

    prefix: Path
    files: tuple[str, ...]
    log: Path
    compiler: str
    gpu_compiler: str | None = None
    flags: tuple[tuple[str, str], ...] = ()
    build_dirs: tuple[Path, ...] = ()
    archives: tuple[tuple[str, Path], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutFile:
    """A file of the wheel: ``target`` is POSIX, relative to the package's folder; ``source`` is absolute."""

    target: str
    source: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedVariant:
    """A variant and the place of each of its files: ``places`` maps ``VariantFile.path`` to a target in the package."""

    variant: Variant
    places: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The content of the wheel besides the author's files: all sorted, nothing written yet.

    ``tag`` is the wheel's full tag; ``requires`` the ``Requires-Dist`` line for torch; ``manifest`` the text of
    ``_torch_ext/manifest.json``. ``fallback`` says how a variant is built if none fits; its sources are in ``files``,
    and so are the loader's files below ``_torch_ext``.
    """

    package: str
    variants: tuple[PlacedVariant, ...]
    files: tuple[LayoutFile, ...]
    tag: str
    requires: str
    manifest: str
    partial: Partial | None = None
    """What it lacks of the complete wheel, if it lacks anything."""
    fallback: Fallback | None = None
