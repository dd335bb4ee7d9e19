"""Raw hook configuration -> ``Config``; pure but for looking whether its folders exist. All problems at once."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from hatch_torch_ext.config import folders, grammar
from hatch_torch_ext.config.options import Options
from hatch_torch_ext.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

KNOWN = (
    "archs",
    "audit-symbols",
    "cmake.args",
    "cmake.build-type",
    "cmake.define",
    "cmake.torch-package",
    "compiler-launcher",
    "cuda-home",
    "cuda.compress",
    "debug-symbols",
    "editable.only",
    "environment",
    "exclude",
    "extra-index-url",
    "ignore",
    "index-url",
    "jobs",
    "manylinux",
    "max-size",
    "only",
    "package",
    "sdk",
    "skip",
    "source",
    "strip",
)
"""Every option, in full."""

RESERVED = ("dependencies", "enable-by-default", "require-runtime-dependencies", "require-runtime-features")
"""Options of every hook, read and checked by hatchling itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CMakeConfig:
    """The ``cmake`` table of the hook: what is handed to the configure step.

    ``args`` are put on its command line as they are, ``define`` become ``-DNAME=VALUE`` in the author's order,
    ``build_type`` is ``CMAKE_BUILD_TYPE``. ``torch_package`` says who answers ``find_package(Torch)``.
    """

    args: tuple[str, ...] = ()
    define: tuple[tuple[str, str], ...] = ()
    build_type: str = "Release"
    torch_package: Literal["hatch-torch-ext", "upstream"] = "hatch-torch-ext"


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The whole configuration of one build; every path is absolute.

    ``archs`` maps a CUDA version as far as the author wrote it (``""`` for every one, ``"13"``, ``"12.8"``) to
    architectures in torch's notation. ``max_size`` is in bytes. ``jobs`` is over all entries together.
    """

    root: Path
    """The project's root."""
    package: str
    """Dotted import name of the package that the variants go into."""
    package_dir: Path
    """The folder of that package in the sources."""
    source: Path
    """The folder of the author's CMakeLists.txt."""
    environment: str = "matrix"
    """The hatch environment whose matrix is built."""
    sdk: Literal["thin", "environment"] = "thin"
    only: tuple[str, ...] = ()
    """Globs over entry names and labels; empty means all."""
    skip: tuple[str, ...] = ()
    cmake: CMakeConfig = field(default_factory=CMakeConfig)
    archs: tuple[tuple[str, tuple[str, ...]], ...] = ()
    cuda_home: str | None = None
    """Path of a CUDA toolkit; may hold ``{cuda}`` (``12.4``) and ``{cuda_major}``."""
    cuda_compress: str | None = None
    """One of nvcc's ``--compress-mode`` values, or None for its default."""
    compiler_launcher: str = "auto"
    """``auto``, ``none``, or a program put before every compiler call (ccache, sccache)."""
    debug_symbols: Literal["strip", "split", "keep"] = "strip"
    """``strip = false`` is read as ``keep``."""
    max_size: int | None = None
    manylinux: str | None = None
    """The policy asked for (``manylinux_2_28``, ``manylinux2014``); None takes the lowest that is really met."""
    exclude: tuple[str, ...] = ()
    """Globs over SONAMEs that are never grafted: the user's system is trusted to bring them."""
    ignore: tuple[str, ...] = ()
    """Audit codes that are not held against the wheel."""
    jobs: int | None = None
    index_url: str | None = None
    """Where torch is fetched from; may hold matrix variables (``{cuda}``). None follows the installer's settings."""
    extra_index_url: tuple[str, ...] = ()
    editable_only: tuple[str, ...] = ()
    """What an editable install builds; empty means the newest torch of the matrix."""
    audit_symbols: Literal["cached", "fetch"] = "cached"
    """Whether the lists of torch's exported symbols are fetched for the audit where they are not at hand."""


def parse(
    raw: Mapping[str, object],
    *,
    root: Path,
    project_name: str,
    environ: Mapping[str, str],
    sources: Mapping[str, str] = MappingProxyType({}),
) -> Config:
    """Return the configuration that the hook's table ``raw`` and the environment variables ``environ`` give.

    ``root`` is the project's; ``project_name`` as it stands in ``project.name``; ``sources`` says from which folders
    the wheel takes its packages, as hatchling's builder has it. Raises ``ConfigurationError`` with every problem:
    unknown options first, in the author's order, then the faults of each option.
    """
    root = root.resolve()
    problems: list[str] = []
    options = Options(raw=raw, problems=problems)
    cmake, cuda, editable = (options.table(name) for name in ("cmake", "cuda", "editable"))
    options.unknown(KNOWN, RESERVED)
    for table in (cmake, cuda, editable):
        table.unknown(KNOWN)
    package, package_dir = folders.package(options, root, project_name, sources)
    index_url, extra_index_url = _index_urls(options)
    compress = cuda.choice("compress", ("default", "none", "size", "speed", "balance"), "default")
    config = Config(
        root=root,
        package=package,
        package_dir=package_dir,
        source=folders.source(options, root),
        environment=environ.get("HATCH_TORCH_EXT_ENVIRONMENT", "").strip() or options.string("environment") or "matrix",
        sdk=options.choice("sdk", ("thin", "environment"), "thin"),
        only=_globs(options, "only", environ),
        skip=_globs(options, "skip", environ),
        cmake=_cmake(cmake),
        archs=_archs(options),
        cuda_home=_cuda_home(options, root),
        cuda_compress=None if compress == "default" else compress,
        compiler_launcher=_launcher(options, root),
        debug_symbols=_debug_symbols(options),
        max_size=options.parsed("max-size", grammar.size),
        manylinux=options.parsed("manylinux", grammar.policy),
        exclude=options.strings("exclude"),
        ignore=options.strings("ignore"),
        jobs=_jobs(options, environ),
        index_url=index_url,
        extra_index_url=extra_index_url,
        editable_only=editable.strings("only"),
        audit_symbols=options.choice("audit-symbols", ("cached", "fetch"), "cached"),
    )
    if problems:
        raise ConfigurationError(problems)
    return config


def _globs(options: Options, name: str, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the globs of an option or, where it is set and not blank, of its environment variable."""
    configured = options.strings(name)
    overriding = re.split(r"[,\s]+", environ.get(f"HATCH_TORCH_EXT_{name.upper()}", ""))
    return tuple(filter(None, overriding)) or configured


def _cmake(options: Options) -> CMakeConfig:
    define = options.table("define")
    names = define.names(r"[^\s=]+", "a CMake variable, without spaces and `=`")
    values = {name: define.parsed(name, grammar.definition) for name in names}
    return CMakeConfig(
        args=options.strings("args"),
        define=tuple((name, value) for name, value in values.items() if value is not None),
        build_type=options.string("build-type") or "Release",
        torch_package=options.choice("torch-package", ("hatch-torch-ext", "upstream"), "hatch-torch-ext"),
    )


def _archs(options: Options) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return architectures by CUDA version; an array stands for every version."""
    raw = options.raw.get("archs", {})
    if isinstance(raw, (list, tuple)):
        found = options.parsed_strings("archs", grammar.architecture)
        return (("", found),) if found else ()
    if not isinstance(raw, Mapping):
        options.fault("archs", 'must be an array of strings such as `["8.0", "9.0+PTX"]`, or a table of such arrays')
        return ()
    # TOML reads `archs.12.8 = […]` as a table in a table; what was meant is the version 12.8.
    flat: dict[str, object] = {}
    for version, value in raw.items():
        nested = value if isinstance(value, Mapping) else {}
        flat.update({f"{version}.{minor}": inner for minor, inner in nested.items()} or {version: value})
    table = Options(raw=flat, problems=options.problems, prefix="archs.")
    versions = table.names(r"\d{2}(\.\d{1,2})?", "a CUDA version, such as `13` or `12.8`")
    return tuple((version, table.parsed_strings(version, grammar.architecture)) for version in versions)


def _index_urls(options: Options) -> tuple[str | None, tuple[str, ...]]:
    """Return the addresses of indexes; they may hold credentials, so that no message repeats them."""
    index_url = options.string("index-url")
    extra = options.strings("extra-index-url", or_string=True)
    for name, urls in (("index-url", [index_url] if index_url else []), ("extra-index-url", extra)):
        for url in urls:
            if not url.startswith(("https://", "http://", "file://")):
                options.fault(name, "must be an address that starts with `https://`, `http://` or `file://`")
            options.fields(name, url)
    return index_url, extra


def _cuda_home(options: Options, root: Path) -> str | None:
    value = options.string("cuda-home")
    options.fields("cuda-home", value or "", ("cuda", "cuda_major"))
    return os.path.join(root, value) if value else None  # noqa: PTH118 - a template, not yet a path


def _launcher(options: Options, root: Path) -> str:
    value = options.string("compiler-launcher") or "auto"
    return str(root / value) if "/" in value else value


def _debug_symbols(options: Options) -> Literal["strip", "split", "keep"]:
    chosen: Literal["strip", "split", "keep"]
    chosen = options.choice("debug-symbols", ("strip", "split", "keep"), "strip")
    strip = options.boolean("strip")
    if strip is not None and "debug-symbols" in options.raw:
        options.fault("strip", "says the same as `debug-symbols`; keep one of the two")
    return "keep" if strip is False else chosen


def _jobs(options: Options, environ: Mapping[str, str]) -> int | None:
    """Return the number of jobs, at least 1; ``HATCH_TORCH_EXT_JOBS`` goes before the option."""
    configured = options.parsed("jobs", grammar.count)
    text = environ.get("HATCH_TORCH_EXT_JOBS", "").strip()
    if not text:
        return configured
    try:
        return grammar.count(int(text) if re.fullmatch("[0-9]+", text) else text)
    except ValueError as error:
        options.problems.append(f"Environment variable `HATCH_TORCH_EXT_JOBS` {error}")
        return None
