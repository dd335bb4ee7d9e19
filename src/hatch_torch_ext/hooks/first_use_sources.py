"""The project -> what its wheel holds for a build at first use: those of the CMake sources that are in the sdist."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hatchling.builders.sdist import SdistBuilder

from hatch_torch_ext import matrix
from hatch_torch_ext.base.errors import ConfigurationError
from hatch_torch_ext.facts import content
from hatch_torch_ext.facts.manifest import OPTIONS, Fallback, Sources

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from hatch_torch_ext.config import Config
    from hatch_torch_ext.values import Entry

COMPILED = frozenset(
    {".c", ".cc", ".cpp", ".cu", ".cuh", ".cxx", ".h", ".hh", ".hpp", ".hxx", ".in", ".inl", ".ipp", ".cmake"}
)
"""Suffixes of files that affect compiled code, wherever in the project they are."""


def gather(
    config: Config, entries: Sequence[Entry], *, options: Mapping[str, Any], version: str, work: Path
) -> Sources:
    """Copy the sources into a folder below ``work``; return them with the options and variables to compile them with.

    ``entries`` are those of the whole matrix, so that every partial wheel says the same; ``options`` is the hook's
    table. Raises ``ConfigurationError`` if the sdist lacks CMakeLists.txt.
    """
    if not config.source.is_relative_to(config.root):
        raise ConfigurationError(
            [
                f'`fallback = "build"` takes the sources that the sdist has, and {config.source} is outside of the '
                f"project: move it below {config.root}, and name it as `source`, or take the option `fallback` out"
            ]
        )
    folder = work / "sources"
    shutil.rmtree(folder, ignore_errors=True)
    files = []
    for place, path in sorted(_of_sdist(config)):
        target = folder / place
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
        target.chmod(0o755 if path.stat().st_mode & 0o100 else 0o644)
        files.append((place, content.sha256(target)))
    source = config.source.relative_to(config.root).as_posix()
    listed = "CMakeLists.txt" if source == "." else f"{source}/CMakeLists.txt"
    if listed not in dict(files):
        raise ConfigurationError(
            [
                f'`fallback = "build"` takes the sources that the sdist has, and it would lack `{listed}`: let '
                "`[tool.hatch.build.targets.sdist]` include it, or remove the option"
            ]
        )
    shared = matrix.common(entries)
    fallback = Fallback(
        version=version,
        source=source,
        options={name: options[name] for name in OPTIONS if name in options},
        files=tuple(files),
        variables=shared.variables,
        env_vars=shared.env_vars,
        stable_abi=shared.stable_abi,
        default=config.fallback_default or not entries,
    )
    return Sources(fallback=fallback, root=folder)


def _of_sdist(config: Config) -> Iterator[tuple[str, Path]]:
    """Yield (place in the sdist, file) of what a build may read: the CMake folder, and sources to compile elsewhere.

    If CMakeLists.txt is in the root, that is every file.
    """
    source = config.source.relative_to(config.root).as_posix()
    for file in SdistBuilder(str(config.root)).recurse_included_files():
        place = Path(file.distribution_path).as_posix()
        name = place.rpartition("/")[2]
        below = source == "." or place.startswith(f"{source}/")
        if name == "PKG-INFO" or place.startswith("build/torch-ext/"):
            continue
        if below or name == "CMakeLists.txt" or any(name.endswith(suffix) for suffix in COMPILED):
            yield place, Path(file.path)
