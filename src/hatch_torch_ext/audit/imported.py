"""What a package's Python files import and open: compiled files that are nowhere end its import in an error."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hatch_torch_ext.audit.findings import Finding, finding
from hatch_torch_ext.facts.variant import BUILD, HELP, LOADER

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

OWN_PLACE = frozenset({"__file__", "__path__", "__spec__"})
"""Names that say where a module or its package is."""
LONGEST = 4_000_000
"""Limit for one file, in characters; a longer one is not looked at."""
_BINDS_ANYTHING = re.compile(r"\b(?:globals|exec|setattr)\b")
_GLOBAL = re.compile(r"^[ \t]+global[ \t]+(\w+(?:[ \t]*,[ \t]*\w+)*)", re.MULTILINE)
_OPENS = re.compile(r"load_library|DLL|LoadLibrary")


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    path: str
    base: str
    """The package that relative imports count from, dotted."""
    tree: ast.Module


class _Sources:
    """Python files by path. A package may have thousands, and syntax trees that are kept slow Python down."""

    def __init__(self, files: Mapping[str, str | None]) -> None:
        self._texts = {path: text for path, text in files.items() if text is not None and len(text) <= LONGEST}
        self._bound: dict[str, frozenset[str]] = {}

    def text(self, path: str) -> str:
        """Return the text of a file; an empty one where there is none that can be read."""
        return self._texts.get(path, "")

    def tree(self, path: str) -> ast.Module | None:
        """Return the syntax tree of a file, or None."""
        try:
            return ast.parse(self._texts[path])
        except (KeyError, SyntaxError, ValueError, RecursionError, MemoryError):
            return None

    def binds(self, module: str, name: str) -> bool:
        """Return whether a module binds ``name``, or may; what it imports of itself would be a submodule."""
        if module not in self._bound:
            place = module.replace(".", "/")
            path = next((path for path in (f"{place}/__init__.py", f"{place}.py") if path in self._texts), "")
            tree = None if _BINDS_ANYTHING.search(self.text(path)) else self.tree(path)
            self._bound[module] = frozenset("*") if tree is None else _bound(tree, module, self.text(path))
        return not self._bound[module].isdisjoint({name, "*", "__getattr__"})


def check(
    package: str, files: Mapping[str, str | None], *, modules: Collection[str], elsewhere: Collection[str] = ()
) -> Iterator[Finding]:
    """Find imports of modules that nothing has, and calls that open a library at a place where there is none.

    ``files`` are as in ``loading.check``. ``modules`` are the names below the package of the modules that variants
    have, ``elsewhere`` the paths of the package's compiled files that no variant has.
    """
    folder = package.replace(".", "/")
    known = {
        path.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for path in files if path.endswith(".py")
    }
    known |= {f"{package}.{module}" for module in (*modules, "_variants")}
    places = (path.rpartition("/") for path in elsewhere)
    known |= {f"{parent}/{name.partition('.')[0]}".replace("/", ".") for parent, _, name in places}
    known |= {".".join(name.split(".")[:count]) for name in known for count in range(1, name.count(".") + 1)}
    tops = "|".join(re.escape(name) for name in sorted({package.partition(".")[0], *modules}))
    imports = re.compile(rf"^(?:from[ \t]*\.|(?:from|import)[ \t].*\b(?:{tops})\b)", re.MULTILINE)
    sources = _Sources(files)
    of_the_loader = {f"{folder}/{name}" for name in (LOADER, HELP, BUILD)}
    for path in sorted(files):
        if not path.startswith(f"{folder}/") or path in of_the_loader:
            continue
        text = sources.text(path)
        opens = not elsewhere and _OPENS.search(text) is not None
        if not (opens or imports.search(text)) or (tree := sources.tree(path)) is None:
            continue
        file = _File(path=path, base=path.rpartition("/")[0].replace("/", "."), tree=tree)
        yield from _imports(file, package, known, modules, sources)
        if opens:
            yield from _opened(file)


def _imports(
    file: _File, package: str, known: Collection[str], modules: Collection[str], sources: _Sources
) -> Iterator[Finding]:
    """Find imports that are done whenever the file is imported: those inside of `try`, `if` and functions may fail."""
    for statement in file.tree.body:
        if isinstance(statement, ast.Import):
            imported = [alias.name for alias in statement.names]
        elif isinstance(statement, ast.ImportFrom):
            parent = file.base.split(".")[: file.base.count(".") + 2 - statement.level] if statement.level else []
            base = ".".join([*parent, *([statement.module] if statement.module else [])])
            names = [alias.name for alias in statement.names if alias.name != "*" and not alias.name.startswith("__")]
            of_base = [f"{base}.{name}" for name in names if not sources.binds(base, name)]
            imported = of_base if base in known else [base]
        else:
            continue
        for name in imported:
            if name in known:
                continue
            if name.startswith(f"{package}.") and not _made_up(name, sources):
                message = f"line {statement.lineno} imports `{name}`, which neither the package nor a variant has"
                yield finding("missing-module", file.path, message)
            elif name in modules:
                message = f"line {statement.lineno} imports `{name}`, which is `{package}.{name}` in the wheel"
                yield finding("missing-module", file.path, message, remedy=f"Import it as `{package}.{name}`.")


def _made_up(name: str, sources: _Sources) -> bool:
    """Return whether a module above ``name`` may make modules by itself, as ``six.moves``."""
    parts = name.split(".")
    above = ["/".join(parts[:count]) for count in range(1, len(parts))]
    found = [tree for each in above for end in (".py", "/__init__.py") if (tree := sources.tree(f"{each}{end}"))]
    makers = {"meta_path", "modules", "module_from_spec"}
    return any(isinstance(node, ast.Attribute) and node.attr in makers for tree in found for node in ast.walk(tree))


def _bound(tree: ast.Module, module: str, text: str) -> frozenset[str]:
    """Return the names that a module binds; functions bind those that they declare ``global``."""
    bound = {name.strip() for found in _GLOBAL.findall(text) for name in found.split(",")}
    waiting: list[ast.AST] = [*tree.body]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.ImportFrom):
            itself = (node.level == 1 and node.module is None) or (node.level == 0 and node.module == module)
            bound |= {alias.asname or alias.name for alias in node.names if not itself or alias.asname}
        elif isinstance(node, ast.Import):
            bound |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            bound.add(node.name)
        elif isinstance(node, ast.Name):
            bound |= set() if isinstance(node.ctx, ast.Load) else {node.id}
        elif not _is_data(node):
            waiting += ast.iter_child_nodes(node)
    return frozenset(bound)


def _is_data(node: ast.AST) -> bool:
    """Return whether an expression is a value, which may be long and binds nothing; a list may be assigned to."""
    is_list = isinstance(node, ast.List) and not isinstance(node.ctx, ast.Store)
    return is_list or isinstance(node, (ast.Constant, ast.Dict, ast.Set))


def _opened(file: _File) -> Iterator[Finding]:
    """Find calls that open a library by a path that is made of the file's own place."""
    places = set(OWN_PLACE)
    while grown := _made_of(file.tree, places) - places:
        places |= grown
    for node in ast.walk(file.tree):
        if isinstance(node, ast.Call) and node.args and ast.unparse(node.func) in LOADS | CTYPES:
            named = _names(node.args[0])
            if named & places and "_variants" not in named:
                message = f"line {node.lineno} opens a library by a path beside the file, where the wheel has none"
                yield finding("own-path", file.path, message)


def _made_of(tree: ast.Module, places: Collection[str]) -> set[str]:
    """Return the names of variables and functions that are made of one of ``places``."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.NamedExpr, ast.For)):
            value = node.iter if isinstance(node, ast.For) else node.value
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            used = _names(value) if value is not None else set()
            if not used.isdisjoint(places) and "_variants" not in used:
                found |= {name for target in targets for name in _names(target)}
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            returned = [each.value for each in ast.walk(node) if isinstance(each, ast.Return) and each.value]
            if any(not _names(each).isdisjoint(places) for each in returned):
                found.add(node.name)
    return found


def _names(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


LOADS = {"torch.ops.load_library", "torch.classes.load_library", "ops.load_library", "classes.load_library"}
CTYPES = {"ctypes.CDLL", "CDLL", "ctypes.cdll.LoadLibrary", "cdll.LoadLibrary", "ctypes.PyDLL"}
