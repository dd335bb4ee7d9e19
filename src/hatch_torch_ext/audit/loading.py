"""Whether a package's Python files load its variants, name what these register, and import only what is there."""

from __future__ import annotations

import ast
import itertools
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hatch_torch_ext.audit.findings import Finding, finding, some
from hatch_torch_ext.facts import project, syntax
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
EXPORTED = "exported/"
"""Where a variant has the CMake packages that dependents in C++ find it by."""
MAX_SOURCES = 20_000
"""Number of C++ files of a project that are looked at for its registrations."""


def check_package(
    package: str,
    files: Mapping[str, str | None],
    variants: Sequence[tuple[Variant, Mapping[str, Path]]],
    *,
    modules: Collection[str],
    elsewhere: Collection[str],
    sources: Path | None,
    more: bool = False,
) -> Iterator[Finding]:
    """Compare the Python files of a package with what its variants have, as the three checks below say."""
    yield from check(package, files)
    yield from check_imported(package, files, modules=modules, elsewhere=elsewhere)
    yield from check_registered(package, files, variants, sources=sources, more=more)


def check(package: str, files: Mapping[str, str | None]) -> Iterator[Finding]:
    """Find a ``package`` (dotted) none of whose Python ``files`` mentions the loader, or that has no ``__init__.py``.

    ``files`` maps POSIX paths below site-packages to their text; None is a text that was not read, and may mention it.
    """
    folder = package.replace(".", "/")
    init = f"{folder}/__init__.py"
    texts = _without_loader(package, files).values()
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
    more: bool = False,
) -> Iterator[Finding]:
    """Find variants that register nothing, and namespaces that Python files name and no file of a variant registers.

    ``files`` are as in ``check``. Of each variant, the mapping has the place on disk of its files. ``sources`` is the
    folder of the project's C++ files, if they are there: what is registered in them is the package's own. With
    ``more`` there are further variants, which were audited with these files: an operator may be defined in one of them.
    """
    if None in files.values():
        return
    texts = {path: text for path, text in _without_loader(package, files).items() if text is not None}
    opens = any("_variants.path" in text or "library_path" in text for text in texts.values())
    idle = [variant for variant, _ in variants if not opens and _is_idle(variant)]
    for variant in idle[:1]:
        names = [file.path.rpartition("/")[2] for file in variant.files if file.kind == "library"]
        message = (
            f"loads nothing: no file of {some([each.label for each in idle])} registers operators or classes with "
            f"torch ({some(names)})"
        )
        yield finding("not-registered", f"{package.replace('.', '/')}/__init__.py", message)
    required = _required(package, texts, sources)
    there: set[str] = set()
    for variant, places in [pair for pair in variants if pair[0] not in idle] if required else ():
        words = {word for name in required for word in name}
        found = _words(words, [places[file.path] for file in variant.files if file.path in places])
        found |= {space for file in variant.files for space in file.namespaces}  # compilers keep short texts in code
        there |= found
        lost = {space: place for (space, _), place in reversed(required.items()) if space not in found}
        for space, (path, line) in sorted(lost.items()):
            message = f"line {line} names `torch.ops.{space}`, which no file of {variant.label} registers"
            yield finding("not-registered", path, message)
        required = {name: place for name, place in required.items() if name[0] not in lost}  # reported once
    for (space, operator), (path, line) in required.items() if there and not more else ():
        if operator not in there and not operator.startswith("__") and operator:
            message = f"line {line} names `torch.ops.{space}.{operator}`, which no file of any variant defines"
            yield finding("not-registered", path, message)


def _without_loader(package: str, files: Mapping[str, str | None]) -> dict[str, str | None]:
    """Return the files that are not the loader's."""
    of_the_loader = {f"{package.replace('.', '/')}/{name}" for name in (LOADER, HELP, BUILD)}
    return {path: text for path, text in files.items() if path not in of_the_loader}


def _required(package: str, texts: Mapping[str, str], sources: Path | None) -> dict[tuple[str, str], tuple[str, int]]:
    """Return (namespace, operator) -> (file, line) that name it first, of the package's own namespaces."""
    named: dict[tuple[str, str], tuple[str, int]] = {}
    for path, text in sorted(texts.items()):
        for match in _NAMED.finditer(text):
            named.setdefault((match[1], match[2] or ""), (path, text.count("\n", 0, match.start()) + 1))
    own = {space for space, _ in named if _is_own(space, package)}
    own |= _declared({space for space, _ in named} - own, sources)
    own -= {space for space in own if any(_may_make(space, text) for text in texts.values())}
    return {name: place for name, place in sorted(named.items()) if name[0] in own}


def _is_idle(variant: Variant) -> bool:
    """Return whether nobody uses it: not the loader, not Python's import, not the package, no C++ dependents."""
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
    """Yield what compilers read of the project; files in a build folder may be of the projects that it fetched."""
    builds: list[str] = []
    for folder, names in project.walk(sources, sources, without=[sources / name for name in project.LEFT_OUT]):
        if Path(folder) != sources and "CMakeCache.txt" in names:
            builds.append(f"{folder}/")
        if not f"{folder}/".startswith(tuple(builds)):
            paths = (Path(folder, name) for name in names if project.is_compiled(name))
            yield from (path for path in paths if path.is_file())


def _words(words: Collection[str], paths: Sequence[Path]) -> set[str]:
    """Return those of ``words`` that are texts in a file, or begin one as the name in a schema does.

    A file that registers in a namespace, or defines an operator, holds their names. One that does so by
    ``torch::RegisterOperators`` counts as having all: compilers take the C++ strings apart that it gives as names.
    """
    texts = {word: re.compile(rf"\b{re.escape(word)}[\0(.]".encode()) for word in words if word}
    found: set[str] = set()
    for path in paths:
        for data in windows(path):
            if b"17RegisterOperators" in data:
                return {*texts}
            found |= {word for word, text in texts.items() if word not in found and text.search(data)}
    return found


OWN_PLACE = frozenset({"__file__", "__path__", "__spec__"})
"""Names that say where a module or its package is."""
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
        self._texts = {path: text for path, text in files.items() if text is not None and len(text) <= syntax.LONGEST}
        self._bound: dict[str, frozenset[str]] = {}

    def text(self, path: str) -> str:
        """Return the text of a file; an empty one where there is none that can be read."""
        return self._texts.get(path, "")

    def tree(self, path: str) -> ast.Module | None:
        """Return the syntax tree of a file, or None."""
        try:
            return syntax.parse(self._texts[path])
        except (KeyError, ValueError):
            return None

    def binds(self, module: str, name: str) -> bool:
        """Return whether a module binds ``name``, or may; what it imports of itself would be a submodule."""
        if module not in self._bound:
            place = module.replace(".", "/")
            text = self._texts.get(f"{place}/__init__.py", self._texts.get(f"{place}.py"))
            self._bound[module] = frozenset({syntax.ANYTHING}) if text is None else syntax.bound(text, module)
        return not self._bound[module].isdisjoint({name, syntax.ANYTHING})


def check_imported(
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
    for path in sorted(_without_loader(package, files)):
        if not path.startswith(f"{folder}/"):
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
            base = syntax.imported_from(statement, file.base)
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


def _opened(file: _File) -> Iterator[Finding]:
    """Find calls that open a library by a path that is computed from the file's own path."""
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
