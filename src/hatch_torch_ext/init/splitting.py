"""A module that also registers operators -> a library with the operators, which serves every Python, and a module."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hatch_torch_ext.init import targets
from hatch_torch_ext.init.texts import Note

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from hatch_torch_ext.init.targets import Target

FUNCTIONS = re.compile(r"\.def(_\w+)?\s*\(|\bclass_\s*<|\bPyMethodDef\b|\bPyModule_Add\w+\s*\(")
"""Code that adds something to a Python module."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """What splitting saves: a file without Python is built ``entries`` times, others for each of ``pythons`` too."""

    entries: int
    pythons: int

    @property
    def sentence(self) -> str:
        """Return what splitting saves, in words."""
        if self.pythons == 1:
            return "the operators serve every Python, and C++ programs"
        files = "file" if self.entries == 1 else "files"
        return (
            f"the wheel has the operators in {self.entries} {files} instead of {self.entries * self.pythons}, which "
            "serve every Python, and C++ programs"
        )


def part(
    root: Path, found: Sequence[Target], *, package: str, gain: Gain, write: bool
) -> tuple[tuple[Target, ...], tuple[Note, ...]]:
    """Return the targets, with those that can be split in two if ``write`` is true, and a note about each.

    A target is split by files: those that make the Python module, and the others. A file that does both must be split
    by the author; a note names it and the lines.
    """
    made: list[Target] = []
    notes: list[Note] = []
    for target in found:
        registering = [each for each in _all(target) if targets.REGISTERS.search(targets.source_text(root, each))]
        if target.kind != "module" or target.python_abi is not None or not registering:
            made.append(target)
            continue
        making = [each for each in _all(target) if targets.makes_module(root, each)]
        both = [each for each in making if each in registering]
        if both:
            made.append(target)
            notes.append(Note(line=0, text=_by_hand(root, target, both[0], making, gain)))
        elif not write:
            made.append(target)
            text = f"registers operators and has functions for Python: `init --split` splits it, and {gain.sentence}"
            notes.append(Note(line=0, text=f"`{target.dotted}` {text}"))
        else:
            library, module = _parted(root, target, making, package)
            made += [library, module]
            kept = f"keeps what {', '.join(making)} has for Python, in {gain.entries * gain.pythons} files"
            text = f"is split: in `{library.output}` {gain.sentence}; the module {kept}"
            notes.append(Note(line=0, text=f"`{target.dotted}` {text}"))
    return tuple(made), tuple(notes)


def _all(target: Target) -> tuple[str, ...]:
    return (*target.sources, *target.cuda_sources, *target.cpu_sources)


def _by_hand(root: Path, target: Target, source: str, making: Sequence[str], gain: Gain) -> str:
    text = targets.source_text(root, source)
    where = f"{source}:{_line(targets.MODULE, text)}"
    if not any(FUNCTIONS.search(_module_of(targets.source_text(root, each))) for each in making):
        return (
            f"`{target.dotted}` registers operators, and the Python module that {where} makes is empty: without it, "
            f"{target.output} is a library, and {gain.sentence}; `_variants.load()` takes the place of its import"
        )
    return (
        f"`{target.dotted}` registers operators and has functions for Python in one file: move the module ({where}) "
        f"into a separate file, then `init --split --force` splits it: {gain.sentence}"
    )


def _module_of(text: str) -> str:
    """Return the code after the place where the module is made; for a module in C, the code before it."""
    found = re.search(r"\b(PYBIND11_MODULE|NB_MODULE)\s*\(", text)
    if found is None:
        while (block := re.search(r"\bTORCH_LIBRARY\w*\s*\([^{;]*(?=\{)", text)) is not None:
            text = text[: block.start()] + text[_closed(text, block.end()) :]
        return text
    start = text.find("{", found.start())
    return text[start : _closed(text, max(start, 0))] if start >= 0 else ""


def _closed(text: str, start: int) -> int:
    """Return the place behind the brace that closes the one at ``start``, or the end of the text."""
    depth = 0
    for at in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        if depth == 0:
            return at + 1
    return len(text)


def _line(pattern: re.Pattern[str], text: str) -> int:
    found = pattern.search(text)
    return text.count("\n", 0, found.start()) + 1 if found else 1


def _parted(root: Path, target: Target, making: Sequence[str], package: str) -> tuple[Target, Target]:
    def others(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(each for each in names if each not in making)

    name = f"{package.replace('.', '_')}_{target.output.strip('_').lower()}_ops"
    flags = target.flags
    library = replace(
        target,
        name=name,
        output=name,
        dotted=f"{package}.{name}",
        kind="library",
        sources=others(target.sources),
        cuda_sources=others(target.cuda_sources),
        cpu_sources=others(target.cpu_sources),
    )
    if any("TORCH_EXTENSION_NAME" in targets.source_text(root, each) for each in _all(library)):
        named = f"TORCH_EXTENSION_NAME={target.output}"  # operators keep their namespace
        library = replace(library, flags=replace(flags, macros=(*flags.macros, named)))
    module = replace(
        target,
        sources=tuple(each for each in target.sources if each in making),
        cuda_sources=tuple(each for each in target.cuda_sources if each in making),
        cpu_sources=tuple(each for each in target.cpu_sources if each in making),
        flags=replace(flags, libraries=(name, *flags.libraries)),
    )
    return library, module
