"""Whether a package's variants do something when it is imported: it loads them, and they register what it names."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import TYPE_CHECKING

from hatch_torch_ext.audit.findings import Finding, finding, some
from hatch_torch_ext.facts import project
from hatch_torch_ext.facts.content import windows
from hatch_torch_ext.facts.variant import BUILD, HELP, LOADER

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from hatch_torch_ext.facts.variant import Variant

_NAMED = re.compile(r"\btorch\.ops\.([A-Za-z_]\w*)(?:\.([A-Za-z_]\w*))?")
_MAKES = re.compile(
    r"""\b(?:custom_op|triton_op|define)\s*\(\s*(?:["'](\w+)::|(?!["']))"""
    r"""|\bLibrary\s*\(\s*(?:["'](\w+)["']\s*,\s*["'](?:DEF|FRAGMENT)|(?!["']))"""
)
"""Calls of torch.library that make operators, with the namespace if it is written there."""
_SOURCES = frozenset({".c", ".cc", ".cpp", ".cxx", ".cu", ".cuh", ".h", ".hh", ".hpp", ".inl", ".mm"})
EXPORTED = "exported/"
"""Where a variant has the CMake packages that dependents in C++ find it by."""
MAX_SOURCES = 20_000
"""Number of C++ files of a project that are looked at for its registrations."""


def check(package: str, files: Mapping[str, str | None]) -> Iterator[Finding]:
    """Find a ``package`` (dotted) none of whose Python ``files`` mentions the loader, or that has no ``__init__.py``.

    ``files`` maps POSIX paths below site-packages to their text; None is a text that was not read, and may mention it.
    """
    folder = package.replace(".", "/")
    init = f"{folder}/__init__.py"
    of_the_loader = {f"{folder}/{name}" for name in (LOADER, HELP, BUILD)}
    texts = [text for path, text in files.items() if path not in of_the_loader]
    if init not in files:
        message = f"is missing: `import {package}` works, but loads nothing"
    elif all(text is not None and "_variants" not in text for text in texts):
        message = f"loads no variant, and no other Python file does: `import {package}` registers no operator"
    else:
        return
    remedy = f"Write `from {package} import _variants` and `_variants.load()` into {init}."
    yield finding("never-loaded", init, message, remedy=remedy)


def check_registered(
    package: str,
    files: Mapping[str, str | None],
    variants: Sequence[tuple[Variant, Mapping[str, Path]]],
    *,
    sources: Path | None = None,
) -> Iterator[Finding]:
    """Find variants that register nothing, and namespaces that Python files name and no file of a variant registers.

    ``files`` are as in ``check``. Of each variant, the mapping has the place on disk of its files. ``sources`` is the
    folder of the project's C++ files, if they are there: what is registered in them is the package's own.
    """
    folder = package.replace(".", "/")
    init = f"{folder}/__init__.py"
    of_the_loader = {f"{folder}/{name}" for name in (LOADER, HELP, BUILD)}
    texts = {path: text for path, text in files.items() if text is not None and path not in of_the_loader}
    if None in files.values():
        return
    opens = any("_variants.path" in text or "library_path" in text for text in texts.values())
    idle = [variant for variant, _ in variants if not opens and _is_idle(variant)]
    for variant in idle[:1]:
        names = [file.path.rpartition("/")[2] for file in variant.files if file.kind == "library"]
        message = (
            f"loads nothing: no file of {some([each.label for each in idle])} registers operators or classes with "
            f"torch ({some(names)})"
        )
        yield finding("not-registered", init, message)
    named: dict[tuple[str, str], tuple[str, int]] = {}
    for path, text in sorted(texts.items()):
        for match in _NAMED.finditer(text):
            named.setdefault((match[1], match[2] or ""), (path, text.count("\n", 0, match.start()) + 1))
    own = {space for space, _ in named if _is_own(space, package)}
    own |= _declared({space for space, _ in named} - own, sources)
    own -= {space for space in own if any(_may_make(space, text) for text in texts.values())}
    required = {name: place for name, place in sorted(named.items()) if name[0] in own}
    there: set[str] = set()
    for variant, places in [pair for pair in variants if pair[0] not in idle] if required else ():
        words = {word for name in required for word in name}
        found = _words(words, [places[file.path] for file in variant.files if file.path in places])
        there |= found
        lost = {space: place for (space, _), place in reversed(required.items()) if space not in found}
        for space, (path, line) in sorted(lost.items()):
            message = f"line {line} names `torch.ops.{space}`, which no file of {variant.label} registers"
            yield finding("not-registered", path, message)
        required = {name: place for name, place in required.items() if name[0] not in lost}  # reported once
    for (space, operator), (path, line) in required.items() if there else ():
        if operator not in there and not operator.startswith("__") and operator:
            message = f"line {line} names `torch.ops.{space}.{operator}`, which no file of any variant defines"
            yield finding("not-registered", path, message)


def _is_idle(variant: Variant) -> bool:
    """Return whether nothing is for the loader, for Python's import, for the package to open or for C++ dependents."""
    used = (file.registers or file.module or file.unopened or file.kind == "program" for file in variant.files)
    exported = (file.kind == "data" and file.installed.startswith(EXPORTED) for file in variant.files)
    return not any(used) and not any(exported) and any(file.kind == "library" for file in variant.files)


def _is_own(space: str, package: str) -> bool:
    return space in {package.replace(".", "_"), package.rpartition(".")[2], package.partition(".")[0]}


def _may_make(space: str, text: str) -> bool:
    """Return whether a file makes operators of the namespace itself, by ``torch.library``, or may: by a variable."""
    made = {match[1] or match[2] or "" for match in _MAKES.finditer(text)}
    return not made.isdisjoint({"", space})


def _declared(spaces: frozenset[str] | set[str], sources: Path | None) -> set[str]:
    """Return those of ``spaces`` that a C++ file of the project registers."""
    found: set[str] = set()
    if not spaces or sources is None:
        return found
    registers = re.compile(rf"TORCH_LIBRARY(?:_FRAGMENT)?\s*\(\s*({'|'.join(map(re.escape, sorted(spaces)))})\s*,")
    for path in itertools.islice(_cpp_files(sources), MAX_SOURCES):
        found.update(registers.findall(project.text(path)))
    return found


def _cpp_files(sources: Path) -> Iterator[Path]:
    """Yield the project's C++ files; those in a build folder may be of the projects that it fetched."""
    builds: list[str] = []
    for folder, names in project.walk(sources, sources, without=[sources / name for name in project.LEFT_OUT]):
        if Path(folder) != sources and "CMakeCache.txt" in names:
            builds.append(f"{folder}/")
        if not f"{folder}/".startswith(tuple(builds)):
            paths = (Path(folder, name) for name in names)
            yield from (path for path in paths if path.suffix in _SOURCES and path.is_file())


def _words(words: Collection[str], paths: Sequence[Path]) -> set[str]:
    """Return those of ``words`` that are texts in a file, or begin one as the name in a schema does.

    A file that registers in a namespace, or defines an operator, holds their names.
    """
    texts = {word: re.compile(rf"\b{re.escape(word)}[\0(.]".encode()) for word in words if word}
    found: set[str] = set()
    for path in paths:
        for data in windows(path):
            found |= {word for word, text in texts.items() if word not in found and text.search(data)}
    return found
