"""CMake packages that the project installs: each variant has its own, and a file in the package selects it.

A CMake package names one library at one place, and a wheel has one for each variant. So its text is kept in the
variant, with a mark for the library's path; the file in its place asks the loader which variant, and includes its text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hatch_torch_ext.base import resources

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from pathlib import Path

    from hatch_torch_ext.repair.contents import VariantBinary

FOLDER = "exported"
"""The folder in a variant for the texts that CMake wrote, by the place at which they were installed."""
_SONAME = re.compile(r'^[ \t]*IMPORTED_SONAME\w*[ \t]+"[^"]*"[ \t]*\n', re.MULTILINE)
"""Removed, because the repair changes the SONAME; without the property, CMake reads it from the file."""
_PLACE = re.compile(r"\$\{\w+\}/[^\s\"'()<>;]*?([^/\s\"'()<>;]+)(?=[\s\"'()<>;])")
_FIND = re.compile(r"\bfind_library\s*\(([^)]*)\)", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """What is put into the ``package`` and into the ``variant``; ``left`` are places that lead to one library still.

    ``libraries`` are the places of those libraries.
    """

    package: tuple[tuple[str, Path], ...]
    variant: tuple[tuple[str, Path], ...]
    left: tuple[str, ...]
    libraries: tuple[str, ...]


def read(data: Mapping[str, Path], binaries: Iterable[VariantBinary], *, package: str, folder: Path) -> Exported:
    """Return what becomes of the CMake packages and pkg-config files of ``data`` that lead to one of ``binaries``.

    Files are written below ``folder``. A CMake package is all ``.cmake`` files of its folder, changed or left as a
    whole.
    """
    names = {name: binary.place for binary in binaries for name in binary.names}
    words, stems = _words(names)
    texts = {
        place: path.read_text(encoding="utf-8", errors="replace")
        for place, path in data.items()
        if place.endswith((".cmake", ".pc"))
    }
    groups = {place: re.sub(r"[^/]*\.cmake$", "*.cmake", place) for place in texts}
    leading = {groups[place] for place, text in texts.items() if _led_to(text, words, stems)}
    marked = {place: _marked(text, names) for place, text in texts.items() if groups[place] in leading}
    still = {place: found for place, text in marked.items() if (found := _led_to(text, words, stems))}
    lost = {groups[place] for place in still}
    taken = {place: text for place, text in sorted(marked.items()) if groups[place] not in lost}
    for place, text in taken.items():
        for path, content in ((f"{FOLDER}/{place}", text), (place, redirect(place, package))):
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(content, encoding="utf-8")
    return Exported(
        package=tuple((place, folder / place) for place in taken),
        variant=tuple((f"{FOLDER}/{place}", folder / FOLDER / place) for place in taken),
        left=tuple(sorted(marked.keys() - taken.keys())),
        libraries=tuple(sorted(set().union(*still.values()))),
    )


def of_sources(folder: Path, binaries: Iterable[VariantBinary], besides: Collection[Path]) -> dict[str, list[str]]:
    """Return, of the CMake packages and pkg-config files in the package's own ``folder``, those that name libraries.

    They are in the wheel as they are, and what they name is not beside them. ``besides`` are folders to pass over.
    """
    names = {name: binary.place for binary in binaries for name in binary.names}
    words, stems = _words(names)
    found = {}
    for path in sorted([*folder.rglob("*.cmake"), *folder.rglob("*.pc")]):
        if not any(path.is_relative_to(other) for other in besides) and path.is_file():
            led = _led_to(path.read_text(encoding="utf-8", errors="replace"), words, stems)
            if led:
                found[path.relative_to(folder).as_posix()] = sorted(led)
    return found


def _words(names: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the words and the plain names by which texts lead to libraries, each with its place."""
    stems = {name.partition(".so")[0].removeprefix("lib"): place for name, place in names.items()}
    return {**names, **{f"-l{stem}": place for stem, place in stems.items()}}, stems


def redirect(place: str, package: str) -> str:
    """Return the text of the package's file ``place``, which selects that of the variant."""
    template = resources.text("exported.cmake")
    up = "../" * place.count("/")
    return template.replace("@PACKAGE@", package).replace("@PLACE@", f"{FOLDER}/{place}").replace("@UP@", up)


def _led_to(text: str, words: Mapping[str, str], stems: Mapping[str, str]) -> set[str]:
    """Return the places of the libraries that ``text`` names, but for marks.

    ``find_library`` of a variable may search for whatever the text names: ``foreach(lib ops) find_library(L ${lib})``.
    """
    named = set(re.split(r"[^\w.+-]+", re.sub(r"@torch-ext:[^@]+@", "", text)))
    found = words.keys() & named
    calls = [match[1] for match in _FIND.finditer(text)]
    searched = {word for call in calls for word in re.split(r"[^\w.+-]+", call)}
    if any("${" in call for call in calls):
        searched |= named
    return {words[word] for word in found} | {stems[word] for word in stems.keys() & searched}


def _marked(text: str, names: Mapping[str, str]) -> str:
    def mark(match: re.Match[str]) -> str:
        return f"@torch-ext:{names[match[1]]}@" if match[1] in names else match[0]

    return _PLACE.sub(mark, _SONAME.sub("", text))
