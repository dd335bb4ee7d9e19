"""A module that also registers operators -> a library with the operators, which serves every Python, and a module."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from hatch_torch_ext.init import targets
from hatch_torch_ext.init.texts import Note

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from hatch_torch_ext.init.served import FirstMatrix
    from hatch_torch_ext.init.targets import Target

FUNCTIONS = re.compile(r"\.def(_\w+)?\s*\(|\bclass_\s*<|\bPyMethodDef\b|\bPyModule_Add\w+\s*\(")
"""Code that adds something to a Python module."""


def part(
    root: Path, found: Sequence[Target], *, package: str, matrix: FirstMatrix, write: bool
) -> tuple[tuple[Target, ...], tuple[Note, ...]]:
    """Return the targets, with those that can be split in two if ``write`` is true, and a note about each.

    A target is split by files: those that make the Python module, and the others. A file that does both must be split
    by the author; a note names it and the lines.
    """
    made: list[Target] = []
    notes: list[Note] = []
    for target in found:
        sources = target.every_source
        registering = [each for each in sources if targets.REGISTERS.search(targets.source_text(root, each))]
        if target.kind != "module" or target.python_abi is not None or not registering:
            made.append(target)
            continue
        making = [each for each in sources if targets.makes_module(root, each)]
        gain = _gain(matrix)
        if both := [each for each in making if each in registering]:
            made.append(target)
            notes.append(Note(_by_hand(root, target, both[0], making, gain)))
        elif not write:
            made.append(target)
            text = f"registers operators and has functions for Python: `init --split` splits it, and {gain}"
            notes.append(Note(f"`{target.dotted}` {text}"))
        else:
            library, module = _parted(root, target, making, package)
            made += [library, module]
            kept = f"keeps what {', '.join(making)} has for Python, in {matrix.entries} files"
            notes.append(Note(f"`{target.dotted}` is split: in `{library.output}` {gain}; the module {kept}"))
    return tuple(made), tuple(notes)


def _gain(matrix: FirstMatrix) -> str:
    """Return in words what splitting saves: a file without Python is built once for all Pythons."""
    if len(matrix.pythons) == 1:
        return "the operators serve every Python, and C++ programs"
    once = matrix.entries // len(matrix.pythons)
    files = "file" if once == 1 else "files"
    return (
        f"the wheel has the operators in {once} {files} instead of {matrix.entries}, which serve every Python, and "
        "C++ programs"
    )


def _by_hand(root: Path, target: Target, source: str, making: Sequence[str], gain: str) -> str:
    text = targets.source_text(root, source)
    module = targets.MODULE.search(text)
    line = text.count("\n", 0, module.start()) + 1 if module else 1
    where = f"{source}:{line}"
    if not any(FUNCTIONS.search(_module_of(targets.source_text(root, each))) for each in making):
        return (
            f"`{target.dotted}` registers operators, and the Python module that {where} makes is empty: without it, "
            f"{target.output} is a library, and {gain}; `_variants.load()` takes the place of its import"
        )
    return (
        f"`{target.dotted}` registers operators and has functions for Python in one file: move the module ({where}) "
        f"into a separate file, then `init --split --force` splits it: {gain}"
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


def _parted(root: Path, target: Target, making: Sequence[str], package: str) -> tuple[Target, Target]:
    """Return the library of the operators, and the module of the files ``making`` it."""
    name = f"{package.replace('.', '_')}_{target.output.strip('_').lower()}_ops"
    flags = target.flags
    others = [each for each in target.every_source if each not in making]
    library = replace(_only(target, others), name=name, dotted=f"{package}.{name}", kind="library")
    if any("TORCH_EXTENSION_NAME" in targets.source_text(root, each) for each in library.every_source):
        named = f"TORCH_EXTENSION_NAME={target.output}"  # operators keep their namespace
        library = replace(library, flags=replace(flags, macros=(*flags.macros, named)))
    return library, replace(_only(target, making), flags=replace(flags, libraries=(name, *flags.libraries)))


def _only(target: Target, kept: Collection[str]) -> Target:
    """Return a target with only some of its sources."""
    return replace(
        target,
        sources=tuple(each for each in target.sources if each in kept),
        cuda_sources=tuple(each for each in target.cuda_sources if each in kept),
        cpu_sources=tuple(each for each in target.cpu_sources if each in kept),
    )
