"""Python files of others by their syntax: read, the names that one binds, and what it imports from. Nothing is run."""

from __future__ import annotations

import ast
import importlib.util
import re

LONGEST = 4_000_000
"""Limit for one file whose names are looked up, in characters."""
ANYTHING = "*"
"""Among the names that a module binds: it may bind any."""
_BINDS_ANYTHING = re.compile(r"\b(?:globals|exec|setattr)\b")
_GLOBAL = re.compile(r"^[ \t]+global[ \t]+(\w+(?:[ \t]*,[ \t]*\w+)*)", re.MULTILINE)


def parse(text: str | bytes) -> ast.Module:
    """Return the syntax tree of Python code. Raises ``ValueError`` for everything that cannot be read as such."""
    try:
        return ast.parse(text)
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError(str(error)) from error


def imported_from(node: ast.ImportFrom, package: str) -> str:
    """Return the module that a file of ``package`` imports from, dotted; "" if it leads out of all packages."""
    try:
        return importlib.util.resolve_name("." * node.level + (node.module or ""), package)
    except ImportError:
        return ""


def bound_by(node: ast.Import | ast.ImportFrom, alias: ast.alias) -> str:
    """Return the name that an import binds."""
    return alias.asname or (alias.name.partition(".")[0] if isinstance(node, ast.Import) else alias.name)


def bound(text: str, module: str) -> frozenset[str]:
    """Return the names that the ``module`` with this text binds; with ``ANYTHING``, it may bind others too.

    Functions bind those that they declare ``global``; what a module imports of itself is a submodule.
    """
    if len(text) > LONGEST or _BINDS_ANYTHING.search(text):
        return frozenset({ANYTHING})
    try:
        waiting: list[ast.AST] = [*parse(text).body]
    except ValueError:
        return frozenset({ANYTHING})
    found = {name.strip() for names in _GLOBAL.findall(text) for name in names.split(",")}
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.ImportFrom):
            itself = (node.level == 1 and node.module is None) or (node.level == 0 and node.module == module)
            found |= {bound_by(node, alias) for alias in node.names if not itself or alias.asname}
        elif isinstance(node, ast.Import):
            found |= {bound_by(node, alias) for alias in node.names}
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, ast.Name):
            found |= set() if isinstance(node.ctx, ast.Load) else {node.id}
        elif not _is_data(node):
            waiting += ast.iter_child_nodes(node)
    return frozenset(found | {ANYTHING} if "__getattr__" in found else found)


def _is_data(node: ast.AST) -> bool:
    """Return whether an expression is a value, which may be long and binds nothing; a list may be assigned to."""
    is_list = isinstance(node, ast.List) and not isinstance(node.ctx, ast.Store)
    return is_list or isinstance(node, (ast.Constant, ast.Dict, ast.Set))
