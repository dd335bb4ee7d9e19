"""Every option of the hook, declared once: a field of ``Config`` or ``CMakeConfig`` made by ``option``.

The parser (``parse``), the tables of docs/configuration.md and the JSON Schema (``published``) are generated from
these. How one is added is in docs/contributing/recipes.md.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from hatch_torch_ext.config import kinds

if TYPE_CHECKING:
    from pathlib import Path

    from hatch_torch_ext.config.kinds import Kind

    Value = TypeVar("Value")

RESERVED = ("dependencies", "enable-by-default", "require-runtime-dependencies", "require-runtime-features")
"""Options of every hook, read and checked by hatchling itself."""

BUILT = "What is built"
COMPILED = "How it is compiled"
CUDA = "CUDA"
TORCH = "Where torch comes from"
WHEEL = "What goes into the wheel"
SECTIONS = (BUILT, COMPILED, CUDA, TORCH, WHEEL)
"""Headings of docs/configuration.md that have a table of options."""


Effect = Literal["wheel", "machine", "nothing"]
"""What another value of an option changes.

wheel: the code of its variants, or what is beside them. machine: by which means a machine builds and checks a variant,
which is then built again; the shards of one wheel may differ in it. nothing: only which entries are built, and when:
finished ones are used again.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option: its full ``name``, dotted for one in a table, and the ``kind`` of its value.

    ``default`` is the value in ``Config``, ``says`` how the page describes it in Markdown. ``variable`` is the
    environment variable that overrides it. ``sentence`` is its meaning, in Markdown.
    """

    name: str
    kind: Kind[object]
    section: str
    default: object
    says: str
    sentence: str
    variable: str | None = None
    in_projects: bool = True
    """Whether a project may set it; one that is False is a matter of the machine, and has a variable only."""
    affects: Effect = "wheel"


def option(
    name: str,
    kind: Kind[Value],
    *,
    section: str,
    default: Value,
    says: str,
    sentence: str,
    variable: str | None = None,
    in_projects: bool = True,
    affects: Effect = "wheel",
) -> Value:
    """Return a field of a dataclass that declares an option; for type checkers, its default."""
    declared = Option(
        name=name,
        kind=kind,
        section=section,
        default=default,
        says=says,
        sentence=sentence,
        variable=variable,
        in_projects=in_projects,
        affects=affects,
    )
    made: Any = field(default=default, metadata={"option": declared})
    return made  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True, kw_only=True)
class CMakeConfig:
    """The ``cmake`` table of the hook: arguments of the configure step; ``define`` keeps the author's order."""

    args: tuple[str, ...] = option(
        "cmake.args",
        kinds.ARGUMENTS,
        section=COMPILED,
        default=(),
        says="`[]`",
        sentence="put on the command line of the configure step as they are",
    )
    define: tuple[tuple[str, str], ...] = option(
        "cmake.define",
        kinds.DEFINITIONS,
        section=COMPILED,
        default=(),
        says="`{}`",
        sentence="CMake variables: strings, numbers, booleans (`ON`/`OFF`), arrays (joined by `;`); they go before our "
        "own",
    )
    build_type: str | None = option(
        "cmake.build-type",
        kinds.TEXT,
        section=COMPILED,
        default=None,
        says='`"Release"`',
        sentence="`CMAKE_BUILD_TYPE`; without the option, the environment variable `CMAKE_BUILD_TYPE` gives it",
    )
    torch_package: Literal["hatch-torch-ext", "upstream"] = option(
        "cmake.torch-package",
        kinds.choice("hatch-torch-ext", "upstream"),
        section=COMPILED,
        default="hatch-torch-ext",
        says='`"hatch-torch-ext"`',
        sentence='who answers `find_package(Torch)`: we, or `"upstream"` for torch\'s own files',
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The whole configuration of one build; every path is absolute.

    ``archs`` maps a CUDA version, as precise as the author wrote it (``""`` for every version, ``"13"``, ``"12.8"``),
    to architectures in torch's notation. ``max_size`` is in bytes. ``cuda_home`` is a template of a path.
    ``environment`` is empty in a build for the installed torch.
    """

    root: Path
    """The project's root."""
    package_dir: Path
    """The folder of the package in the sources."""
    archs_source: str = ""
    """Where ``archs`` come from if not from the option: the GPUs of this machine, or a variable."""

    def cross_for(self, machine: str) -> kinds.Cross:
        """Return the options `cross` for ``machine``; none of them is set if the author has no such table."""
        return next((each for each in self.cross if each.machine == machine), kinds.Cross(machine=machine))

    environment: str = option(
        "environment",
        kinds.TEXT,
        section=BUILT,
        default="matrix",
        says='`"matrix"`',
        sentence="the hatch environment whose matrix is built",
        variable="HATCH_TORCH_EXT_ENVIRONMENT",
        affects="machine",
    )
    package: str = option(
        "package",
        kinds.FOUND,
        section=BUILT,
        default="",
        says="the project's name",
        sentence="import name of the package that the variants go into, dotted if it is in another; a folder where "
        "the wheel's `packages` or `sources` take it from, in the root or in `src`",
    )
    source: Path = option(  # noqa: RUF009 -- a field, like the others
        "source",
        kinds.FOUND,
        section=BUILT,
        default="",
        says='`"csrc"`, else the root',
        sentence="the folder of CMakeLists.txt",
    )  # type: ignore[assignment]  # written as text, made a path by `parse`
    sdk: Literal["thin", "environment"] = option(
        "sdk",
        kinds.choice("thin", "environment"),
        section=BUILT,
        default="thin",
        says='`"thin"`',
        sentence='`"thin"` compiles against what it fetches of torch (about 10 MB a release); `"environment"` against '
        "the torch installed in the entry's environment",
        affects="machine",
    )
    only: tuple[str, ...] = option(
        "only",
        kinds.STRINGS,
        section=BUILT,
        default=(),
        says="`[]` (all)",
        sentence="globs: entries to build",
        variable="HATCH_TORCH_EXT_ONLY",
        affects="nothing",
    )
    skip: tuple[str, ...] = option(
        "skip",
        kinds.STRINGS,
        section=BUILT,
        default=(),
        says="`[]`",
        sentence="globs: entries to leave out; stronger than `only`",
        variable="HATCH_TORCH_EXT_SKIP",
        affects="nothing",
    )
    editable_only: tuple[str, ...] = option(
        "editable.only",
        kinds.STRINGS,
        section=BUILT,
        default=(),
        says="`[]`",
        sentence="globs: what an editable install builds; empty means the torch of the environment, else the newest",
        affects="nothing",
    )
    editable_rebuild: bool = option(
        "editable.rebuild",
        kinds.BOOLEAN,
        section=BUILT,
        default=False,
        says="`false`",
        sentence="an editable install compiles at import what changed; see [developing](developing.md)",
        affects="nothing",
    )
    jobs: int | None = option(
        "jobs",
        kinds.COUNT,
        section=BUILT,
        default=None,
        says="the machine's cores",
        sentence="compile jobs over all entries together, as far as memory allows; see [building](building.md)",
        variable="HATCH_TORCH_EXT_JOBS",
        affects="nothing",
    )
    memory_per_job: int | None = option(
        "memory-per-job",
        kinds.SIZE,
        section=BUILT,
        default=None,
        says="what each entry's largest compiler took last time",
        sentence="memory that one compile job is counted with: no more run at once than the free memory has room for",
        affects="nothing",
    )
    dask: str = option(
        "dask",
        kinds.TEXT,
        section=BUILT,
        default="",
        says="none",
        sentence="the address of a Dask scheduler, whose workers build the entries; see [scale](scale.md)",
        variable="HATCH_TORCH_EXT_DASK",
        in_projects=False,
        affects="nothing",
    )
    keep_going: bool = option(
        "keep-going",
        kinds.BOOLEAN,
        section=BUILT,
        default=True,
        says="`true`",
        sentence="whether the build continues with the other entries when one fails; it still fails in the end",
        affects="nothing",
    )
    keep: Literal["all", "results"] = option(
        "keep",
        kinds.choice("all", "results"),
        section=BUILT,
        default="all",
        says='`"all"`',
        sentence='`"results"` removes build trees and environments as entries finish: the next change compiles from '
        "the start, but a large matrix needs little disk",
        affects="nothing",
    )
    cmake: CMakeConfig = field(default_factory=CMakeConfig)
    compiler_launcher: str = option(
        "compiler-launcher",
        kinds.TEXT,
        section=COMPILED,
        default="auto",
        says='`"auto"`',
        sentence='`"auto"` uses ccache or sccache if it is on PATH, else fetches a ccache; `"none"`; or a '
        "program, by name or path",
        variable="HATCH_TORCH_EXT_COMPILER_LAUNCHER",
        affects="machine",
    )
    cross: tuple[kinds.Cross, ...] = option(
        "cross",
        kinds.CROSS,
        section=COMPILED,
        default=(),
        says="what is found",
        sentence="for each other machine of the matrix (`cross.aarch64`): `cxx` and `cc`, its compilers; `sysroot`; "
        "`python`, the folder of its Python's headers; see [machines](machines.md)",
        affects="machine",
    )
    archs: tuple[tuple[str, tuple[str, ...]], ...] = option(
        "archs",
        kinds.ARCHS,
        section=CUDA,
        default=(),
        says="what that torch was built for",
        sentence='GPU architectures in torch\'s notation: `"8.0"`, `"9.0a"`, `"10.0f"`, `"9.0+PTX"`, `"all"`, '
        '`"all-major"`',
    )
    cuda_home: str | None = option(
        "cuda-home",
        kinds.template("cuda", "cuda_major"),
        section=CUDA,
        default=None,
        says="none",
        sentence="a CUDA toolkit; `{cuda}` is torch's version (`12.8`), `{cuda_major}` its major",
        affects="machine",
    )
    cuda_compress: Literal["default", "none", "size", "speed", "balance"] = option(
        "cuda.compress",
        kinds.choice("default", "none", "size", "speed", "balance"),
        section=CUDA,
        default="default",
        says='`"default"`',
        sentence='nvcc\'s `--compress-mode`: `"none"`, `"size"`, `"speed"`, `"balance"` or nvcc\'s own default; see '
        "[CUDA](cuda.md)",
    )
    index_url: str | None = option(
        "index-url",
        kinds.ADDRESS,
        section=TORCH,
        default=None,
        says="pip's and uv's settings",
        sentence="the index; variables of the matrix are filled in",
        affects="machine",
    )
    extra_index_url: tuple[str, ...] = option(
        "extra-index-url",
        kinds.ADDRESSES,
        section=TORCH,
        default=(),
        says="`[]`",
        sentence="further indexes, likewise",
        affects="machine",
    )
    debug_symbols: Literal["strip", "split", "keep"] = option(
        "debug-symbols",
        kinds.choice("strip", "split", "keep"),
        section=WHEEL,
        default="strip",
        says='`"strip"`',
        sentence='`"strip"` them, `"split"` them into files below `build/torch-ext/<entry>/debug`, or `"keep"` them',
    )
    exclude: tuple[str, ...] = option(
        "exclude",
        kinds.STRINGS,
        section=WHEEL,
        default=(),
        says="`[]`",
        sentence='globs over library names (`"libfoo.so*"`) that are never copied in: users have them',
    )
    unopened: tuple[str, ...] = option(
        "unopened",
        kinds.STRINGS,
        section=WHEEL,
        default=(),
        says="`[]`",
        sentence='globs over compiled files (`"libcodec_core*.so"`) that the package opens itself, by '
        "`_variants.path(name)`; the loader opens none of them",
    )
    variant_data: tuple[str, ...] = option(
        "variant-data",
        kinds.STRINGS,
        section=WHEEL,
        default=(),
        says="`[]`",
        sentence='globs over installed data (`"kernels/*.ptx"`) that belongs beside the libraries of each variant, not '
        "once in the package",
    )
    machines: Literal["wheel-each", "one-wheel"] = option(
        "machines",
        kinds.choice("wheel-each", "one-wheel"),
        section=WHEEL,
        default="wheel-each",
        says='`"wheel-each"`',
        sentence='variants for several [machines](machines.md) go into a wheel for each, or into `"one-wheel"`',
        affects="nothing",
    )
    manylinux: str | None = option(
        "manylinux",
        kinds.POLICY,
        section=WHEEL,
        default=None,
        says='`"auto"`',
        sentence='the policy that the wheel must meet (`"manylinux_2_28"`, short `"2_28"`, `"manylinux2014"`); '
        '`"auto"` names it by the lowest it does meet',
    )
    max_size: int | None = option(
        "max-size",
        kinds.SIZE,
        section=WHEEL,
        default=None,
        says="none",
        sentence='the wheel\'s largest size: bytes, or `"100 MB"`, `"64 MiB"`, with `kB`, `MB`, `GB` of 1000 and '
        "`KiB`, `MiB`, `GiB` of 1024",
        affects="nothing",
    )
    fallback: Literal["none", "build"] = option(
        "fallback",
        kinds.choice("none", "build"),
        section=WHEEL,
        default="none",
        says='`"none"`',
        sentence='`"build"` puts the CMake sources into the wheel: where no variant fits, a user can have one '
        "built; see [first use](first-use.md)",
    )
    fallback_default: bool = option(
        "fallback-default",
        kinds.BOOLEAN,
        section=WHEEL,
        default=False,
        says="`false`",
        sentence="that build is made without the user's `TORCH_EXT_BUILD=1`",
    )
    fallback_requires: tuple[str, ...] = option(
        "fallback-requires",
        kinds.STRINGS,
        section=WHEEL,
        default=(),
        says="`[]`",
        sentence='requirements of that build besides hatch-torch-ext (`"nanobind>=2"`): they go into the extra `build`',
    )
    ignore: tuple[str, ...] = option(
        "ignore",
        kinds.STRINGS,
        section=WHEEL,
        default=(),
        says="`[]`",
        sentence="codes of the [audit](audit.md) to ignore",
        affects="machine",
    )
    audit_symbols: Literal["cached", "fetch"] = option(
        "audit-symbols",
        kinds.choice("cached", "fetch"),
        section=WHEEL,
        default="cached",
        says='`"cached"`',
        sentence='`"fetch"` also downloads the symbol lists of torch that are not available (115 MB a release, once)',
        affects="machine",
    )


RETIRED = {
    "compiler-cache-size": "is gone: set the environment variable `CCACHE_MAXSIZE`, which ccache reads by itself",
    "dask": "is a matter of the machine that builds: give the address as `hatch-torch-ext build --dask ADDRESS`, or in "
    "the environment variable `HATCH_TORCH_EXT_DASK`",
    "max-download": "is gone: 8 GB for an entry is the bound for all; remove the option",
    "strip": 'is gone: for `true` write `debug-symbols = "strip"`, for `false` `debug-symbols = "keep"`',
}
"""Options that are gone, each with what a message says after its name."""
RETIRED_VARIABLES = {
    "HATCH_TORCH_EXT_COMPILER_CACHE_SIZE": "is gone: set `CCACHE_MAXSIZE`, which ccache reads by itself",
}
"""The same for environment variables."""


def declared(config: type[Config | CMakeConfig]) -> dict[str, Option]:
    """Return the options that a dataclass declares: name of the field -> option."""
    return {each.name: each.metadata["option"] for each in dataclasses.fields(config) if "option" in each.metadata}


def affecting() -> list[str]:
    """Return the fields of ``Config`` that a variant depends on, sorted: all but options that affect ``nothing``."""
    found = declared(Config)
    names = sorted(each.name for each in dataclasses.fields(Config))
    return [name for name in names if name not in found or found[name].affects != "nothing"]


OPTIONS: tuple[Option, ...] = tuple(
    sorted(
        (*declared(CMakeConfig).values(), *declared(Config).values()),
        key=lambda each: SECTIONS.index(each.section),
    )
)
"""Every option, in the order of the page on configuration."""
KNOWN: tuple[str, ...] = tuple(sorted(each.name for each in OPTIONS if each.in_projects))
"""The names of those that a project may set."""
TABLES: tuple[str, ...] = tuple(sorted({name.partition(".")[0] for name in KNOWN if "." in name}))
"""The tables that contain options."""
