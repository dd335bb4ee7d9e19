"""Python files that ``setup.py`` writes with torch's version in them -> commands of CMake: each variant has its own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hatch_torch_ext.init.recording import Recording

WHY = "# setup.py wrote it with torch's version in it: each variant has its own."


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """A file: ``source`` is its place in the project, ``place`` that below the package, both POSIX.

    ``cpu`` and ``cuda`` are its texts, in CMake's form; where only one was recorded, both are that one.
    """

    source: str
    place: str
    cpu: str
    cuda: str


def of(cpu: Recording | None, cuda: Recording | None, folder: str) -> tuple[Stamp, ...]:
    """Return the files that both recordings, or the only one, wrote into the package in ``folder``."""
    recorded = [dict(each.stamps) for each in (cpu, cuda) if each is not None]
    names = set.intersection(*({*each} for each in recorded)) if recorded else set()
    return tuple(
        Stamp(source=name, place=name.removeprefix(f"{folder}/"), cpu=recorded[0][name], cuda=recorded[-1][name])
        for name in sorted(names)
        if name.startswith(f"{folder}/")
    )


def without(packed: Sequence[tuple[str, str]] | None, stamps: Iterable[Stamp]) -> Sequence[tuple[str, str]] | None:
    """Return what setuptools packs, as ``Recording.packed``, without such files."""
    sources = {each.source for each in stamps}
    return None if packed is None else [pair for pair in packed if pair[1] not in sources]


def commands(stamps: Iterable[Stamp], *, with_cuda: bool) -> list[str]:
    """Return the lines of CMakeLists.txt; ``with_cuda`` where it has the variable ``WITH_CUDA``."""
    lines: list[str] = []
    for each in stamps:
        lines += ["", WHY]
        if each.cpu == each.cuda or not with_cuda:
            lines += _written(each.place, each.cuda)
        else:
            lines += ["if(WITH_CUDA)", *_written(each.place, each.cuda), "else()", *_written(each.place, each.cpu)]
            lines.append("endif()")
        path = PurePosixPath(each.place)
        lines.append(f"install(FILES ${{CMAKE_CURRENT_BINARY_DIR}}/{path} DESTINATION {path.parent})")
    return lines


def _written(place: str, text: str) -> Sequence[str]:
    """Return the command that writes a file; nothing in brackets of CMake is changed but the version."""
    equals = "="
    while f"]{equals}]" in text:
        equals += "="
    return [f"file(CONFIGURE OUTPUT {place} @ONLY CONTENT [{equals}[", f"{text.rstrip()}", f"]{equals}])"]
