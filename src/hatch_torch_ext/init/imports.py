"""The code that loads the extensions in the package's Python files -> code that loads them through ``_variants``."""

from __future__ import annotations

import ast
import copy
import itertools
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from hatch_torch_ext.audit.loading import CTYPES, LOADS
from hatch_torch_ext.facts import syntax
from hatch_torch_ext.init.texts import Note

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence
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


class _File:
    """A Python file while it is changed; ``notes`` get the places that are left to its author."""

    def __init__(self, name: str, text: str, package: str, notes: list[Note]) -> None:
        self.name = name
        self.text = text
        self.tree = syntax.parse(text)
        self.package = package
        """The package that relative imports count from."""
        self._notes = notes

    def imported(self, node: ast.Import | ast.ImportFrom, alias: ast.alias) -> str:
        """Return the dotted name of what is imported."""
        return (
            alias.name if isinstance(node, ast.Import) else f"{syntax.imported_from(node, self.package)}.{alias.name}"
        )

    def note(self, node: ast.stmt | ast.expr, text: str) -> None:
        """Leave a place to the author."""
        self._notes.append(Note(f"{self.name}:{node.lineno}: {text}"))

    def edit(self, edits: Sequence[_Edit]) -> None:
        """Make the edits; what else is on the lines of their statements stays.

        Where the result would not be Python, the text stays as it is, and a note names the lines.
        """
        starts = [0, *itertools.accumulate(map(len, self.text.encode().splitlines(keepends=True)))]
        places = [
            (
                starts[edit.node.lineno - 1] + edit.node.col_offset,
                starts[(edit.node.end_lineno or 0) - 1] + (edit.node.end_col_offset or 0),
                edit.words,
            )
            for edit in edits
        ]
        new = self.text.encode()
        for first, last, words in sorted(places, key=lambda each: each[0], reverse=True):
            if any(one <= first and last <= other and (one, other) != (first, last) for one, other, _ in places):
                continue  # inside of another
            new = _without(new, first, last) if words is None else new[:first] + words.encode() + new[last:]
        try:
            text = new.decode()
            tree = syntax.parse(text)
        except ValueError:
            numbers = ", ".join(str(edit.node.lineno) for edit in edits)
            self._notes.append(Note(f"{self.name}: {BY_HAND} (line {numbers})"))
        else:
            self.text, self.tree = text, tree


@dataclass(frozen=True, slots=True, kw_only=True)
class _Edit:
    """A statement, and what is written in its place; None: it is removed."""

    node: ast.stmt
    words: str | None = None


def change(
    root: Path, folder: str, package: str, targets: Sequence[Target]
) -> tuple[tuple[Change, ...], tuple[Note, ...]]:
    """Return the changed files of the package in ``folder``, and notes on the places that are left to the author.

    Top-level statements that open libraries are removed, except those whose result the rest of the package reads; the
    package's ``__init__`` loads the variant first. Modules that were beside the package are imported from inside it.
    """
    changes: list[Change] = []
    notes: list[Note] = []
    outside = {
        target.dotted: f"{package}.{target.output}" for target in targets if not target.dotted.startswith(f"{package}.")
    }
    libraries = frozenset(target.dotted for target in targets if target.kind == "library")
    init = f"{folder}/__init__.py"
    paths = sorted(path for path in (root / folder).rglob("*.py") if path.is_file())
    read_there = _read_elsewhere(paths, package)
    for path in paths:
        name = path.relative_to(root).as_posix()
        parents = path.parent.relative_to(root / folder).parts
        try:
            whole = path.read_text(encoding="utf-8")
            before = whole.removeprefix(MARK)
            file = _File(name, before, ".".join([package, *parents]), notes)
        except (OSError, ValueError) as error:
            todo = "look for what loads the extensions in it"
            if name == init:
                todo += f", and begin it with `{IMPORT.format(package=package)}` and `{CALL}`"
            notes.append(Note(f"`{name}` cannot be read ({error}): {todo}"))
            continue
        _remove_libraries(file, libraries)
        file.edit([*_openings(file, read_there), *_renamed(file, outside)])
        text = _loading(file, package) if name == init else file.text
        if text != before:
            changes.append(Change(name, text if whole == before else MARK + text))
    if not (root / init).is_file():
        changes.append(Change(init, f"{IMPORT.format(package=package)}\n\n{CALL}\n"))
    return tuple(changes), tuple(notes)


def _remove_libraries(file: _File, libraries: Collection[str]) -> None:
    """Remove imports of extensions that are libraries now, where nothing reads the names; note the others."""
    nodes = [*ast.walk(file.tree)]
    read = {node.id for node in nodes if isinstance(node, ast.Name)}
    read |= {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    edits: list[_Edit] = []
    for node in nodes:
        if not isinstance(node, (ast.Import, ast.ImportFrom)):
            continue
        gone = [each for each in node.names if file.imported(node, each) in libraries]
        if used := [each for each in gone if syntax.bound_by(node, each) in read]:
            why = "which is a library now and cannot be imported: its operators are in torch.ops"
            file.note(node, f"imports `{file.imported(node, used[0])}`, {why}")
        elif gone:
            kept = copy.copy(node)
            kept.names = [each for each in node.names if each not in gone]
            edits.append(_Edit(node=node, words=ast.unparse(kept) if kept.names else None))
    file.edit(edits)


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


def _read_elsewhere(paths: Iterable[Path], package: str) -> frozenset[str]:
    """Return the names that modules use of other modules of the package: imported names, and attributes."""
    found: set[str] = set()
    for path in paths:
        try:
            nodes = [*ast.walk(syntax.parse(path.read_bytes()))]
        except (OSError, ValueError):
            continue
        found |= {alias.name for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names}
        imports = [node for node in nodes if isinstance(node, ast.Import)]
        theirs = {
            syntax.bound_by(node, each)
            for node in imports
            for each in node.names
            if each.name.partition(".")[0] != package.partition(".")[0]  # a namespace package around it counts, too
        }
        found |= {node.attr for node in nodes if isinstance(node, ast.Attribute) and _first(node) not in theirs}
    return frozenset(found)


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
    bound |= {syntax.bound_by(node, each) for node in imports for each in node.names} & read
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


def _without_loads(statement: ast.stmt) -> Iterator[_Edit]:
    """Yield edits that remove each statement that opens a library."""
    for node in ast.walk(statement):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and ast.unparse(node.value.func) in LOADS:
            yield _Edit(node=node)


def _openings(file: _File, read_there: frozenset[str]) -> Iterator[_Edit]:
    """Yield edits that remove what opens a library on the top level; note what only the author can change."""
    for statement in file.tree.body:
        if not _opens(statement) or isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        lost, does_more = _lost(statement, file.tree, read_there), _does_more(statement)
        if lost or does_more:
            yield from _without_loads(statement)
        else:
            yield _Edit(node=statement)
        if lost:
            why = f"it sets {', '.join(lost)}, which is read elsewhere: check that this is still right"
            file.note(statement, f"opens a library and was left as it is, because {why}")
        elif does_more and any(isinstance(node, ast.If) and _opens(node) for node in ast.walk(statement)):
            why = "which may not hold any more, and does more there: check the condition"
            file.note(statement, f"opens a library under a condition, {why}")


def _renamed(file: _File, outside: dict[str, str]) -> Iterator[_Edit]:
    """Yield edits of imports of modules that are inside of the package now; note what only the author can change."""
    for node in ast.walk(file.tree):
        if isinstance(node, (ast.stmt, ast.expr)) and (place := _by_hand(node, outside)):
            file.note(node, place)
        elif isinstance(node, ast.Import) and any(each.name in outside for each in node.names):
            yield _Edit(node=node, words="; ".join(_imports(node, outside)))
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module in outside:
            written = ast.get_source_segment(file.text, node) or ast.unparse(node)
            pattern = rf"\Afrom(\s+){re.escape(node.module)}(?=\s)"
            yield _Edit(node=node, words=re.sub(pattern, rf"from\g<1>{outside[node.module]}", written))


def _imports(node: ast.Import, outside: dict[str, str]) -> Iterator[str]:
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


def _loading(file: _File, package: str) -> str:
    """Return the text of ``__init__`` that loads the variant first, after licence, docstring and __future__."""
    lines = file.text.splitlines(keepends=True)
    if any(line.startswith(CALL) for line in lines):
        return file.text
    above = len(list(itertools.takewhile(lambda line: line.startswith("#"), lines)))
    is_licence = above == len(lines) or not lines[above].strip()  # else a comment on the first statement
    after = above if is_licence else 0
    for statement in file.tree.body:
        is_docstring = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        is_future = isinstance(statement, ast.ImportFrom) and statement.module == "__future__"
        if not (is_docstring or is_future):
            break
        after = statement.end_lineno or statement.lineno
    added = [*(["\n"] if after else []), f"{IMPORT.format(package=package)}\n", "\n", f"{CALL}\n", "\n"]
    return "".join([*lines[:after], *added, *itertools.dropwhile(lambda line: not line.strip(), lines[after:])])
