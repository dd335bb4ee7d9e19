"""The code that loads the extensions in the package's Python files -> code that loads them through ``_variants``."""

from __future__ import annotations

import ast
import copy
import itertools
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from hatch_torch_ext.audit.loading import CTYPES, LOADS
from hatch_torch_ext.init.texts import Note

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from hatch_torch_ext.init.targets import Target

IMPORT = "from {package} import _variants"
CALL = "_variants.load()"
MARK = "\ufeff"
"""A byte order mark, with which files of Windows may begin."""
OPENED = "_variants.load() has opened it"
BY_HAND = "what opens or imports the extensions cannot be cut out: change it by hand"


class Change(NamedTuple):
    """A Python file and its new text; ``name`` is POSIX, relative to the project."""

    name: str
    text: str


def change(
    root: Path, folder: str, package: str, targets: Sequence[Target]
) -> tuple[tuple[Change, ...], tuple[Note, ...]]:
    """Return the changed files of the package in ``folder``, and notes on the places that are left to the author.

    Top-level statements that open libraries are removed, except those whose result the rest of the package reads; the
    package's ``__init__`` loads the variant first. Modules that lay beside the package are imported from inside it.
    """
    changes: list[Change] = []
    notes: list[Note] = []
    outside = {
        target.dotted: f"{package}.{target.output}" for target in targets if not target.dotted.startswith(f"{package}.")
    }
    libraries = frozenset(target.dotted for target in targets if target.kind == "library")
    paths = sorted(path for path in (root / folder).rglob("*.py") if path.is_file())
    read_there = _read_elsewhere(paths, package)
    for path in paths:
        name = path.relative_to(root).as_posix()
        try:
            whole = path.read_text(encoding="utf-8")
            text = before = whole.removeprefix(MARK)
            tree = ast.parse(text)
        except (OSError, ValueError, SyntaxError, RecursionError, MemoryError) as error:
            todo = "look for what loads the extensions in it"
            if name == f"{folder}/__init__.py":
                todo += f", and begin it with `{IMPORT.format(package=package)}` and `{CALL}`"
            notes.append(Note(line=0, text=f"`{name}` cannot be read ({error}): {todo}"))
            continue
        gone = _Gone(libraries=libraries, base=_base(package, folder, name))
        if (text := _without_libraries(text, tree, gone, name, notes)) != before:
            tree = ast.parse(text)
        changed = _changed(text, tree, outside=outside, read_there=read_there, name=name, notes=notes)
        if name == f"{folder}/__init__.py":
            changed = _loading(changed, package)
        if changed != before:
            changes.append(Change(name, changed if whole == before else MARK + changed))
    if not (root / folder / "__init__.py").is_file():
        start = f"{IMPORT.format(package=package)}\n\n{CALL}\n"
        changes.append(Change(f"{folder}/__init__.py", start))
    return tuple(changes), tuple(notes)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gone:
    """Extensions that are libraries now: dotted names that no import finds any more, as seen from one file."""

    libraries: frozenset[str]
    base: tuple[str, ...]
    """The package that relative imports of the file count from."""

    def of(self, node: ast.Import | ast.ImportFrom) -> list[ast.alias]:
        """Return the names in an import that are such extensions."""
        return [each for each in node.names if _imported(node, each, self.base) in self.libraries]


def _without_libraries(text: str, tree: ast.Module, gone: _Gone, name: str, notes: list[Note]) -> str:
    """Remove imports of extensions that are libraries now, where nothing reads the names; note the others."""
    read = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    read |= {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    edits: list[_Edit] = []
    for node in ast.walk(tree):
        if not isinstance(node, (ast.Import, ast.ImportFrom)) or not (found := gone.of(node)):
            continue
        used = [each for each in found if _binds(node, each) in read]
        if used:
            where = f"{name}:{node.lineno}: imports `{_imported(node, used[0], gone.base)}`"
            why = "which is a library now and cannot be imported: its operators are in torch.ops"
            notes.append(Note(line=0, text=f"{where}, {why}"))
            continue
        kept = copy.copy(node)
        kept.names = [each for each in node.names if each not in found]
        edits.append(_Edit(node=node, words=ast.unparse(kept) if kept.names else None))
    return _edited(text, edits, name, notes)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Edit:
    """A statement, and what is written in its place; None: it is removed."""

    node: ast.stmt
    words: str | None


def _edited(text: str, edits: Iterable[_Edit], name: str, notes: list[Note]) -> str:
    """Return the text with the edits; what else is on the lines of their statements stays.

    Where the result would not be Python, the text stays as it is, and a note names the lines.
    """
    data = text.encode()
    starts = [0]
    for line in data.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    places = [
        (
            starts[edit.node.lineno - 1] + edit.node.col_offset,
            starts[(edit.node.end_lineno or 0) - 1] + (edit.node.end_col_offset or 0),
            edit.words,
        )
        for edit in edits
    ]
    outer = [
        (first, last, words)
        for first, last, words in places
        if not any(one <= first and last <= other and (one, other) != (first, last) for one, other, _ in places)
    ]
    new = data
    for first, last, words in sorted(outer, key=lambda each: each[0], reverse=True):
        new = _without(new, first, last) if words is None else new[:first] + words.encode() + new[last:]
    try:
        ast.parse(new)
    except SyntaxError:
        numbers = ", ".join(str(edit.node.lineno) for edit in edits)
        notes.append(Note(line=0, text=f"{name}: {BY_HAND} (line {numbers})"))
        return text
    return new.decode()


def _without(data: bytes, first: int, last: int) -> bytes:
    """Return a text without the statement from ``first`` to ``last``.

    It is removed with its line, if nothing but a comment is on it; in an indented block, ``pass`` takes its place.
    """
    start = max(data.rfind(end, 0, first) for end in (b"\n", b"\r")) + 1
    before, after = data[start:first], data[last:]
    rest = re.split(rb"[\r\n]", after, maxsplit=1)[0]
    more = re.match(rb"[ \t\f]*;[ \t\f]*(?=[^\s#;])", after)
    if more:
        return data[:first] + after[more.end() :]
    if before.rstrip().endswith(b";"):
        return data[:first].rstrip().removesuffix(b";").rstrip() + re.sub(rb"\A[ \t\f]*;", b"", after)
    if before:
        return data[:first] + f"pass  # {OPENED}".encode() + after[len(rest) :]
    return data[:start] + re.sub(rb"\A\r?\n?", b"", after[len(rest) :])


def _binds(node: ast.Import | ast.ImportFrom, alias: ast.alias) -> str:
    """Return the name that an import binds."""
    if alias.asname:
        return alias.asname
    return alias.name.partition(".")[0] if isinstance(node, ast.Import) else alias.name


def _base(package: str, folder: str, name: str) -> tuple[str, ...]:
    """Return the package that relative imports in a file count from."""
    inner = name.removeprefix(f"{folder}/").removesuffix(".py").split("/")
    return (*package.split("."), *inner[:-1])


def _imported(node: ast.Import | ast.ImportFrom, alias: ast.alias, base: Sequence[str]) -> str:
    """Return the dotted name of what is imported."""
    if isinstance(node, ast.Import):
        return alias.name
    parent = list(base[: len(base) - node.level + 1]) if node.level else []
    module = ".".join([*parent, *([node.module] if node.module else [])])
    return f"{module}.{alias.name}"


def _read_elsewhere(paths: Iterable[Path], package: str) -> frozenset[str]:
    """Return the names that modules use of other modules of the package: imported names, and attributes."""
    found: set[str] = set()
    for path in paths:
        try:
            nodes = list(ast.walk(ast.parse(path.read_bytes())))
        except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
            continue
        found |= {alias.name for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names}
        imports = [node for node in nodes if isinstance(node, ast.Import)]
        theirs = {_binds(node, each) for node in imports for each in node.names if not _is_in(package, each.name)}
        found |= {node.attr for node in nodes if isinstance(node, ast.Attribute) and _first(node) not in theirs}
    return frozenset(found)


def _is_in(package: str, name: str) -> bool:
    """Return whether a dotted name is of the package, or of a namespace package around it."""
    return name.partition(".")[0] == package.partition(".")[0]


def _first(node: ast.expr) -> str | None:
    """Return the name with which an attribute's expression begins, as ``os`` of ``os.path.join``."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def _lost(statement: ast.stmt, tree: ast.Module, read_there: frozenset[str]) -> list[str]:
    """Return the names that a statement assigns and that other code reads."""
    bound = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    others = [node for each in tree.body if each is not statement for node in ast.walk(each)]
    read = {node.id for node in others if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    imports = [node for node in ast.walk(statement) if isinstance(node, (ast.Import, ast.ImportFrom))]
    bound |= {_binds(node, each) for node in imports for each in node.names} & read
    return sorted(bound & (read | read_there))


def _does_more(statement: ast.stmt) -> bool:
    """Return whether a statement, where it opens a library, also imports of the package, or defines something."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.ImportFrom)
    found = (node for node in _runs(statement) if isinstance(node, kinds))
    return any(not isinstance(node, ast.ImportFrom) or node.level > 0 for node in found)


def _runs(node: ast.AST) -> Iterable[ast.AST]:
    """Yield what runs where the library is there: of an ``if``, only the branch that opens it."""
    children: Iterable[ast.AST] = ast.iter_child_nodes(node)
    if isinstance(node, ast.If):
        opening = [branch for branch in (node.body, node.orelse) if any(map(_opens, branch))]
        if len(opening) == 1:
            (children,) = opening
    for child in children:
        yield child
        yield from _runs(child)


def _is_conditional(statement: ast.stmt) -> bool:
    return any(isinstance(node, ast.If) and _opens(node) for node in ast.walk(statement))


def _without_loads(statement: ast.stmt) -> Iterable[_Edit]:
    """Yield edits that remove each statement that opens a library."""
    for node in ast.walk(statement):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and ast.unparse(node.value.func) in LOADS:
            yield _Edit(node=node, words=None)


def _changed(
    text: str, tree: ast.Module, *, outside: dict[str, str], read_there: frozenset[str], name: str, notes: list[Note]
) -> str:
    edits: list[_Edit] = []
    for statement in tree.body:
        if not _opens(statement) or isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        lost = _lost(statement, tree, read_there)
        if lost or _does_more(statement):
            edits += _without_loads(statement)
        if lost:
            why = f"it sets {', '.join(lost)}, which is read elsewhere: check that this is still right"
            notes.append(
                Note(line=0, text=f"{name}:{statement.lineno}: opens a library and was left as it is, because {why}")
            )
        elif not _does_more(statement):
            edits.append(_Edit(node=statement, words=None))
        elif _is_conditional(statement):
            why = "which may not hold any more, and does more there: check the condition"
            notes.append(Note(line=0, text=f"{name}:{statement.lineno}: opens a library under a condition, {why}"))
    edits += _renamed(text, tree, outside, name, notes)
    return _edited(text, edits, name, notes)


def _renamed(text: str, tree: ast.Module, outside: dict[str, str], name: str, notes: list[Note]) -> Iterable[_Edit]:
    """Yield edits of imports of modules that are inside of the package now; note what only the author can change."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.stmt, ast.expr)) and (place := _by_hand(node, outside)):
            notes.append(Note(line=0, text=f"{name}:{node.lineno}: {place}"))
        elif isinstance(node, ast.Import) and any(each.name in outside for each in node.names):
            yield _Edit(node=node, words="; ".join(_imports(node, outside)))
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module in outside:
            written = ast.get_source_segment(text, node) or ast.unparse(node)
            pattern = rf"\Afrom(\s+){re.escape(node.module)}(?=\s)"
            yield _Edit(node=node, words=re.sub(pattern, rf"from\g<1>{outside[node.module]}", written))


def _imports(node: ast.Import, outside: dict[str, str]) -> Iterable[str]:
    """Yield the statements that replace ``import a, _C as c``."""
    for alias in node.names:
        named = f" as {alias.asname}" if alias.asname else ""
        package, _, module = outside.get(alias.name, "").rpartition(".")
        yield f"from {package} import {module}{named}" if package else f"import {alias.name}{named}"


def _by_hand(node: ast.AST, outside: dict[str, str]) -> str | None:
    """Return a note on code that loads an extension in a way that only its author can change."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and _opens(node):
        return f"`{node.name}` opens a library, which `_variants.load()` has opened already: remove its calls"
    if not isinstance(node, ast.Call) or not node.args:
        return None
    called, first = ast.unparse(node.func), node.args[0]
    if called in CTYPES and not (isinstance(first, ast.Constant) and "/" not in str(first.value)):
        return "opens a library by ctypes: if it is this project's, it is at `_variants.path(NAME)` now"
    if called.endswith("import_module") and isinstance(first, ast.Constant) and first.value in outside:
        return f"imports `{first.value}`, which is `{outside[str(first.value)]}` now"
    return None


def _opens(node: ast.AST) -> bool:
    return any(isinstance(each, ast.Call) and ast.unparse(each.func) in LOADS for each in ast.walk(node))


def _loading(text: str, package: str) -> str:
    """Return the text of ``__init__`` that loads the variant first, after docstring and __future__."""
    if any(line.startswith(CALL) for line in text.splitlines()):
        return text
    tree = ast.parse(text)
    after = 0
    for statement in tree.body:
        is_docstring = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        is_future = isinstance(statement, ast.ImportFrom) and statement.module == "__future__"
        if not (is_docstring or is_future):
            break
        after = statement.end_lineno or statement.lineno
    lines = text.splitlines(keepends=True)
    added = [*(["\n"] if after else []), f"{IMPORT.format(package=package)}\n", "\n", f"{CALL}\n", "\n"]
    return "".join([*lines[:after], *added, *itertools.dropwhile(lambda line: not line.strip(), lines[after:])])
