"""Every option of the hook, declared once: a field of ``Config`` or ``CMakeConfig`` made by ``Section.option``.

The parser (``parse``), the tables of docs/configuration.md and the JSON Schema (``published``) are generated from
these. How one is added is in docs/contributing/recipes.md.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from hatch_torch_ext.config import kinds

if TYPE_CHECKING:
    from pathlib import Path

    from hatch_torch_ext.config.kinds import Kind

    Value = TypeVar("Value")

RESERVED = ("dependencies", "enable-by-default", "require-runtime-dependencies", "require-runtime-features")
"""Options of every hook, read and checked by hatchling itself."""

Effect = Literal["wheel", "machine", "nothing"]
"""What changes with the value of an option.

wheel: the code of its variants, or the files beside them. machine: how a machine builds and checks a variant, so the
variant is built again; the shards of one wheel may differ in it. nothing: only which entries are built, and when, so
finished variants are used again.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option: its full ``name``, dotted for one in a table, and the ``kind`` of its value.

    ``default`` is the value in ``Config``, ``default_words`` how the page describes it in Markdown. ``variable`` is the
    environment variable that overrides it. ``sentence`` is its meaning, in Markdown.
    """

    name: str
    kind: Kind[object]
    section: Section
    default: object
    default_words: str
    sentence: str
    variable: str | None = None
    affects: Effect = "wheel"

    @property
    def in_projects(self) -> bool:
        """Return whether a project may set it; a retired option is set on the machine, by its variable."""
        return self.name not in RETIRED


@dataclass(frozen=True, slots=True)
class Section:
    """A section of docs/configuration.md that has a table of options."""

    heading: str

    def option(
        self,
        name: str,
        kind: Kind[Value],
        *,
        default: Value,
        default_words: str | None = None,
        sentence: str,
        variable: str | None = None,
        affects: Effect = "wheel",
    ) -> Value:
        """Return a field of a dataclass that declares an option; for type checkers, its default.

        Without ``default_words``, the page has the default as TOML.
        """
        declared = Option(
            name=name,
            kind=kind,
            section=self,
            default=default,
            default_words=f"`{json.dumps(default)}`" if default_words is None else default_words,
            sentence=sentence,
            variable=variable,
            affects=affects,
        )
        made: Any = field(default=default, metadata={"option": declared})
        return made  # type: ignore[no-any-return]


BUILT = Section("What is built")
COMPILED = Section("How it is compiled")
CUDA = Section("CUDA")
TORCH = Section("Where torch comes from")
WHEEL = Section("What goes into the wheel")
SECTIONS = (BUILT, COMPILED, CUDA, TORCH, WHEEL)


@dataclass(frozen=True, slots=True, kw_only=True)
class CMakeConfig:
    """The ``cmake`` table of the hook: arguments of the configure step; ``define`` keeps the author's order."""

    args: tuple[str, ...] = COMPILED.option(
        "cmake.args",
        kinds.ARGUMENTS,
        default=(),
        sentence="put on the command line of the configure step as they are",
    )
    define: tuple[tuple[str, str], ...] = COMPILED.option(
        "cmake.define",
        kinds.DEFINITIONS,
        default=(),
        default_words="`{}`",
        sentence="CMake variables: strings, numbers, booleans (`ON`/`OFF`), arrays (joined by `;`); they come before "
        "our own",
    )
    build_type: str | None = COMPILED.option(
        "cmake.build-type",
        kinds.TEXT,
        default=None,
        default_words='`"Release"`',
        sentence="`CMAKE_BUILD_TYPE`; without the option, the environment variable `CMAKE_BUILD_TYPE` gives it",
    )
    torch_package: Literal["hatch-torch-ext", "upstream"] = COMPILED.option(
        "cmake.torch-package",
        kinds.choice("hatch-torch-ext", "upstream"),
        default="hatch-torch-ext",
        sentence='whose files answer `find_package(Torch)`: ours, or with `"upstream"` those of torch',
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
        return kinds.cross_for(machine, self.cross)

    environment: str = BUILT.option(
        "environment",
        kinds.TEXT,
        default="matrix",
        sentence="the hatch environment whose matrix is built",
        variable="HATCH_TORCH_EXT_ENVIRONMENT",
        affects="machine",
    )
    package: str = BUILT.option(
        "package",
        kinds.FOLDER,
        default="",
        default_words="the project's name",
        sentence="import name of the package that the variants go into, dotted if it is in another; a folder where "
        "the wheel's `packages` or `sources` take it from, in the root or in `src`",
    )
    source: Path = BUILT.option(  # noqa: RUF009 -- a field, like the others
        "source",
        kinds.FOLDER,
        default="",
        default_words='`"csrc"`, else the root',
        sentence="the folder of CMakeLists.txt",
    )  # type: ignore[assignment]  # written as text, made a path by `parse`
    sdk: Literal["thin", "environment"] = BUILT.option(
        "sdk",
        kinds.choice("thin", "environment"),
        default="thin",
        sentence='`"thin"` compiles against the part of torch that it fetches (about 10 MB a release); `"environment"` '
        "against the torch installed in the entry's environment",
        affects="machine",
    )
    only: tuple[str, ...] = BUILT.option(
        "only",
        kinds.STRINGS,
        default=(),
        default_words="`[]` (all)",
        sentence="globs: entries to build",
        variable="HATCH_TORCH_EXT_ONLY",
        affects="nothing",
    )
    skip: tuple[str, ...] = BUILT.option(
        "skip",
        kinds.STRINGS,
        default=(),
        sentence="globs: entries to leave out; stronger than `only`",
        variable="HATCH_TORCH_EXT_SKIP",
        affects="nothing",
    )
    editable_only: tuple[str, ...] = BUILT.option(
        "editable.only",
        kinds.STRINGS,
        default=(),
        sentence="globs: entries that an editable install builds; if empty, the one for the installed torch, else "
        "those of the newest torch",
        affects="nothing",
    )
    editable_rebuild: bool = BUILT.option(
        "editable.rebuild",
        kinds.BOOLEAN,
        default=False,
        sentence="an editable install compiles at import what changed; see [developing](developing.md)",
        affects="nothing",
    )
    jobs: int | None = BUILT.option(
        "jobs",
        kinds.COUNT,
        default=None,
        default_words="the machine's cores",
        sentence="compile jobs over all entries together, as far as memory allows; see [building](building.md)",
        variable="HATCH_TORCH_EXT_JOBS",
        affects="nothing",
    )
    memory_per_job: int | None = BUILT.option(
        "memory-per-job",
        kinds.SIZE,
        default=None,
        default_words="what each entry's largest compiler took last time",
        sentence="memory to count for one compile job: only as many run at once as fit into the free memory",
        affects="nothing",
    )
    dask: str = BUILT.option(
        "dask",
        kinds.TEXT,
        default="",
        default_words="none",
        sentence="the address of a Dask scheduler, whose workers build the entries; see [scale](scale.md)",
        variable="HATCH_TORCH_EXT_DASK",
        affects="nothing",
    )
    keep_going: bool = BUILT.option(
        "keep-going",
        kinds.BOOLEAN,
        default=True,
        sentence="whether the build continues with the other entries when one fails; it still fails in the end",
        affects="nothing",
    )
    keep: Literal["all", "results"] = BUILT.option(
        "keep",
        kinds.choice("all", "results"),
        default="all",
        sentence='`"results"` removes build trees and environments as entries finish: the next change compiles from '
        "the start, but a large matrix needs little disk",
        affects="nothing",
    )
    cmake: CMakeConfig = field(default_factory=CMakeConfig)
    compiler_launcher: str = COMPILED.option(
        "compiler-launcher",
        kinds.TEXT,
        default="auto",
        sentence='`"auto"` uses ccache or sccache if it is on PATH, else fetches a ccache; `"none"`; or a '
        "program, by name or path",
        variable="HATCH_TORCH_EXT_COMPILER_LAUNCHER",
        affects="machine",
    )
    cross: tuple[kinds.Cross, ...] = COMPILED.option(
        "cross",
        kinds.CROSS,
        default=(),
        default_words="what is found",
        sentence="for each other machine of the matrix (`cross.aarch64`): `cxx` and `cc`, its compilers; `sysroot`; "
        "`python`, the folder of its Python's headers; see [machines](machines.md)",
        affects="machine",
    )
    archs: tuple[tuple[str, tuple[str, ...]], ...] = CUDA.option(
        "archs",
        kinds.ARCHS,
        default=(),
        default_words="what that torch was built for",
        sentence='GPU architectures in torch\'s notation: `"8.0"`, `"9.0a"`, `"10.0f"`, `"9.0+PTX"`, `"all"`, '
        '`"all-major"`',
    )
    cuda_home: str | None = CUDA.option(
        "cuda-home",
        kinds.template("cuda", "cuda_major"),
        default=None,
        default_words="none",
        sentence="a CUDA toolkit; `{cuda}` is torch's version (`12.8`), `{cuda_major}` its major",
        affects="machine",
    )
    cuda_compress: Literal["default", "none", "size", "speed", "balance"] = CUDA.option(
        "cuda.compress",
        kinds.choice("default", "none", "size", "speed", "balance"),
        default="default",
        sentence='nvcc\'s `--compress-mode`: `"none"`, `"size"`, `"speed"`, `"balance"` or nvcc\'s own default; see '
        "[CUDA](cuda.md)",
    )
    index_url: str | None = TORCH.option(
        "index-url",
        kinds.ADDRESS,
        default=None,
        default_words="pip's and uv's settings",
        sentence="the index; variables of the matrix are filled in",
        affects="machine",
    )
    extra_index_url: tuple[str, ...] = TORCH.option(
        "extra-index-url",
        kinds.ADDRESSES,
        default=(),
        sentence="further indexes, likewise",
        affects="machine",
    )
    debug_symbols: Literal["strip", "split", "keep"] = WHEEL.option(
        "debug-symbols",
        kinds.choice("strip", "split", "keep"),
        default="strip",
        sentence='`"strip"` them, `"split"` them into files below `build/torch-ext/<entry>/debug`, or `"keep"` them',
    )
    exclude: tuple[str, ...] = WHEEL.option(
        "exclude",
        kinds.STRINGS,
        default=(),
        sentence='globs over library names (`"libfoo.so*"`) that are never copied in: users have them',
    )
    unopened: tuple[str, ...] = WHEEL.option(
        "unopened",
        kinds.STRINGS,
        default=(),
        sentence='globs over compiled files (`"libcodec_core*.so"`) that the package opens itself, by '
        "`_variants.path(name)`; the loader opens none of them",
    )
    variant_data: tuple[str, ...] = WHEEL.option(
        "variant-data",
        kinds.STRINGS,
        default=(),
        sentence='globs over installed data (`"kernels/*.ptx"`) that belongs beside the libraries of each variant, not '
        "once in the package",
    )
    machines: Literal["wheel-each", "one-wheel"] = WHEEL.option(
        "machines",
        kinds.choice("wheel-each", "one-wheel"),
        default="wheel-each",
        sentence='variants for several [machines](machines.md) go into a wheel for each, or into `"one-wheel"`',
        affects="nothing",
    )
    manylinux: str | None = WHEEL.option(
        "manylinux",
        kinds.POLICY,
        default=None,
        default_words='`"auto"`',
        sentence='the policy that the wheel must meet (`"manylinux_2_28"`, short `"2_28"`, `"manylinux2014"`); '
        '`"auto"` names it by the lowest it does meet',
    )
    max_size: int | None = WHEEL.option(
        "max-size",
        kinds.SIZE,
        default=None,
        default_words="none",
        sentence='the wheel\'s largest size: bytes, or `"100 MB"`, `"64 MiB"`, with `kB`, `MB`, `GB` of 1000 and '
        "`KiB`, `MiB`, `GiB` of 1024",
        affects="nothing",
    )
    fallback: Literal["none", "build"] = WHEEL.option(
        "fallback",
        kinds.choice("none", "build"),
        default="none",
        sentence='`"build"` puts the CMake sources into the wheel: where no variant fits, a user can have one '
        "built; see [first use](first-use.md)",
    )
    fallback_default: bool = WHEEL.option(
        "fallback-default",
        kinds.BOOLEAN,
        default=False,
        sentence="that build is made without the user's `TORCH_EXT_BUILD=1`",
    )
    fallback_requires: tuple[str, ...] = WHEEL.option(
        "fallback-requires",
        kinds.STRINGS,
        default=(),
        sentence='requirements of that build besides hatch-torch-ext (`"nanobind>=2"`): they go into the extra `build`',
    )
    ignore: tuple[str, ...] = WHEEL.option(
        "ignore",
        kinds.STRINGS,
        default=(),
        sentence="codes of the [audit](audit.md) to ignore",
        affects="machine",
    )
    audit_symbols: Literal["cached", "fetch"] = WHEEL.option(
        "audit-symbols",
        kinds.choice("cached", "fetch"),
        default="cached",
        sentence='`"fetch"` also downloads the symbol lists of torch that are not available (115 MB a release, once)',
        affects="machine",
    )


RETIRED = {
    "compiler-cache-size": "was removed: set the environment variable `CCACHE_MAXSIZE`, which ccache reads by itself",
    "dask": "is set on the machine that builds: pass the address as `hatch-torch-ext build --dask ADDRESS`, or in the "
    "environment variable `HATCH_TORCH_EXT_DASK`",
    "max-download": "was removed: the limit is always 8 GB for an entry; remove the option",
    "strip": 'was removed: for `true` write `debug-symbols = "strip"`, for `false` `debug-symbols = "keep"`',
}
"""Options that were removed, each with the text that follows its name in the message."""
RETIRED_VARIABLES = {
    "HATCH_TORCH_EXT_COMPILER_CACHE_SIZE": "was removed: set `CCACHE_MAXSIZE`, which ccache reads by itself",
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
