"""The layers of the house, held by reading every module's source: who may import whom, and what only some may do."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import hatch_torch_ext

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(hatch_torch_ext.__file__).parent
RECIPES = Path(__file__).parents[2] / "docs" / "contributing" / "recipes.md"
NAME = "hatch_torch_ext"

LAYERS = {
    # other programs' interfaces <-> the pipeline: hatchling's side, the command line
    "adapters": ("__main__", "backend", "cli", "editable", "hooks", "views"),
    # the user's side: the machine, the right torch, what does not work, a build at first use; nothing of hatch
    "user": ("user",),
    # the order of the work, and its running
    "pipeline": ("pipeline",),
    # other forms of a finished wheel: they read it, and merge and write again what a build merged
    "outlets": ("outlets",),
    # the bridge: a setuptools project, or nothing, becomes a project of ours
    "init": ("init",),
    # each takes values and gives a value; none knows another
    "stages": ("audit", "cmake", "compare", "environments", "matrix", "merge", "repair", "report", "sdk", "toolchain"),
    # what others made, read: the wheels of an index, a wheel on disk; and the store that keeps what was fetched
    "supplies": ("remote", "resolve", "store", "wheel"),
    # what is passed on: the options as they were checked, entries, environments, SDKs, toolchains
    "values": ("config", "values"),
    # what several stages know: formats, tables, words
    "facts": ("elf", "facts"),
    # what everything stands on
    "ground": ("", "base", "locks"),
}
"""From top to bottom: a module imports modules of lower layers; `""` is the package itself (its version).

Stages do not import each other, but for what `VOCABULARY` names. An import for types counts as any other.
"""

VOCABULARY = {
    "resources._variants": "the loader itself, the very module that users get",
    "resources.once": "the launcher of compilers: the variable that it reads, and its exit status",
}
"""What stages take from each other at run time, each for a reason: facts and readers, no stage function."""


@dataclass(frozen=True)
class Import:
    """`module` imports `target` at `line`; `typing` where only a type checker sees it."""

    module: str
    target: str
    line: int
    typing: bool

    def __str__(self) -> str:
        """Return the place as an editor takes it."""
        return f"{self.module}:{self.line} imports {self.target}"


def sources() -> Iterator[tuple[str, Path]]:
    """Yield (name below the package, file) of every module but those that are shipped to run elsewhere."""
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if parts[0] != "resources":
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


FILES = dict(sources())
"""Name -> file; what is in them is parsed when a test asks: each worker of the tests imports this file."""


@cache
def parsed(module: str) -> ast.Module:
    """Return the syntax of a module."""
    return ast.parse(FILES[module].read_text(encoding="utf-8"))


def imports(module: str) -> Iterator[Import]:
    """Yield what `module` imports of the project, wherever in it."""
    guarded = {
        id(inner)
        for node in ast.walk(parsed(module))
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(parsed(module)):
        names: list[str] = []
        if isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] == NAME:
            base = node.module.removeprefix(NAME).removeprefix(".")
            names = [f"{base}.{alias.name}".lstrip(".") for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [
                alias.name.removeprefix(NAME).removeprefix(".") for alias in node.names if alias.name.startswith(NAME)
            ]
        for name in names:
            yield Import(module, name, node.lineno, id(node) in guarded)  # type: ignore[attr-defined]


def part(name: str) -> str:
    """Return the part of the house that a module, or a name in one, belongs to: its first word."""
    first = name.partition(".")[0]
    return first if first in {*FILES, "resources"} else ""


def layer(name: str) -> int:
    """Return how high a part stands, the ground being 0."""
    for height, parts in enumerate(reversed(LAYERS.values())):
        if part(name) in parts:
            return height
    raise AssertionError(f"`{name}` is in no layer: put it into LAYERS, or give what it holds to a part that is")


@cache
def every_import() -> list[Import]:
    """Return what all modules import of the project."""
    return [each for module in FILES for each in imports(module)]


def test_every_module_has_its_layer() -> None:
    """A new part of the house is put into the table, and one that is gone is taken out."""
    parts = {part(module) for module in FILES}
    listed = [name for names in LAYERS.values() for name in names]
    assert sorted(parts) == sorted(listed)


def test_imports_go_down() -> None:
    """Nothing knows who uses it, not even by a type."""
    own = [each for each in every_import() if part(each.target) != "resources"]
    upward = [str(each) for each in own if layer(each.target) > layer(each.module)]
    assert upward == []


def test_stages_do_not_call_each_other() -> None:
    """What a stage takes of another is a value; of the rest it knows the facts that `VOCABULARY` names."""
    calls = []
    for each in every_import():
        mine, theirs = part(each.module), part(each.target)
        if mine == theirs or mine not in LAYERS["stages"] or theirs not in {*LAYERS["stages"], "resources"}:
            continue
        if not any(each.target == known or each.target.startswith(f"{known}.") for known in VOCABULARY):
            calls.append(str(each))
    assert calls == []


def test_every_exception_is_needed() -> None:
    """Every exception in the list of what stages share is used."""
    taken = {each.target for each in every_import() if not each.typing and part(each.module) != part(each.target)}
    idle = [known for known in VOCABULARY if not any(f"{each}.".startswith(f"{known}.") for each in taken)]
    assert idle == []


def test_no_module_is_in_a_circle() -> None:
    """Every module can be read after those that it imports, also inside a room, and also for types."""
    graph: dict[str, set[str]] = {module: set() for module in FILES}
    for each in every_import():
        target = each.target if each.target in FILES else each.target.rpartition(".")[0]
        if target in FILES and target != each.module:
            graph[each.module].add(target)
    TopologicalSorter(graph).prepare()  # its error names the circle


def rooms_of(layer_name: str) -> set[tuple[str, str]]:
    """Return which parts of a layer import which others of it at run time."""
    return {
        (part(each.module), part(each.target))
        for each in every_import()
        if not each.typing
        and part(each.module) != part(each.target)
        and {part(each.module), part(each.target)} <= set(LAYERS[layer_name])
    }


def test_supplies_stand_on_each_other_one_way() -> None:
    """An index is asked over the network, and answers are kept in the store."""
    assert rooms_of("supplies") <= {("resolve", "remote"), ("resolve", "store")}


def test_facts_stand_alone() -> None:
    """What several stages know depends only on the ground; among the facts, labels are made of releases.

    What a file registers is read window by window, and depends on the release; which torch a function is there since is
    a line of releases. Sources are in the folder of the variants.
    """
    assert rooms_of("facts") == set()
    within = {
        (each.module, each.target)
        for each in every_import()
        if not each.typing and part(each.module) == part(each.target) == "facts" and each.module != "facts"
    }
    assert {
        (module, target.rpartition(".")[2] if target.count(".") == 1 else target.split(".")[1])
        for module, target in within
    } <= {
        ("facts.manifest", "variant"),
        ("facts.labels", "backend"),
        ("facts.labels", "releases"),
        ("facts.registered", "releases"),
        ("facts.releases", "backend"),
        ("facts.project", "content"),
        ("facts.registered", "content"),
        ("facts.variant", "backend"),
    }


def test_the_ground_stands_on_nothing() -> None:
    """Every message is without secrets, and can be shown; programs know errors, crash reports and the reaper."""
    found = {(each.module, each.target) for each in every_import() if part(each.module) in LAYERS["ground"]}
    known = {(module, ".".join(target.split(".")[:2])) for module, target in found}
    assert known == {
        ("locks", "base.locks"),  # the name that installed files know
        ("base.atomic", "base.locks"),
        ("base.process", "base.mounts"),
        ("base.process", "base.errors"),
        ("base.process", "base.redact"),
        ("base.process", "resources.reaper"),
        ("base.uv", "base.process"),
        ("base.uv", "base.errors"),
        ("base.errors", "base.redact"),
        ("base.errors", "base.escape"),
        ("base.errors", "__version__"),
    }
    assert {target for _, target in found if target.startswith("resources")} == {"resources.reaper"}


@cache
def uses(module: str) -> set[str]:
    """Return the dotted names that a module imports or calls."""
    found = set()
    for node in ast.walk(parsed(module)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Call):
            found.add(ast.unparse(node.func))
    return found


@pytest.mark.parametrize(
    ("names", "allowed"),
    [
        pytest.param(
            {"subprocess", "os.system", "os.popen", "os.fork", "os.execv", "pty", "asyncio"},
            {"base.process"},
            id="programs",
        ),
        pytest.param({"os.chdir", "contextlib.chdir", "os.putenv", "os.umask"}, set(), id="state-of-the-process"),
        pytest.param(
            {"print", "sys.stdout.write", "sys.stderr.write"},
            {
                "backend",
                "cli.terminal",
                "environments.program",
            },  # all but the second where hatchling gives no way to speak
            id="output",
        ),
        pytest.param({"sys.exit", "exit", "SystemExit"}, {"__main__", "cli"}, id="ends"),
        pytest.param({"hatch", "hatch.cli", "hatch.project.core"}, set(), id="hatch"),
        pytest.param(
            {"hatch.env.virtual", "hatch.env.plugin.interface"}, {"hooks.environment"}, id="hatch-environments"
        ),
        pytest.param(
            {"hatchling.builders.hooks.plugin.interface", "hatchling.builders.sdist", "hatchling.builders.wheel"},
            {"cli", "hooks", "init"},  # adapters: they read the hook's options as hatchling does
            id="hatchling",
        ),
        pytest.param({"httpx"}, {"remote.http"}, id="network"),
        pytest.param({"json.load", "json.loads"}, {"facts.policy", "facts.releases"}, id="json"),  # only own tables
    ],
)
def test_only_some_may(names: set[str], allowed: set[str]) -> None:
    """Programs, output, the network, hatch and hatchling, JSON of others: each has one home."""
    assert {module for module in FILES if uses(module) & names and not {module, part(module)} & allowed} == set()


def test_only_the_plugin_touches_build_data() -> None:
    """Hatchling's dictionary is read and written in one place."""
    holders = {
        module
        for module, tree in ((name, parsed(name)) for name in FILES)
        if any(isinstance(node, ast.Name) and node.id == "build_data" for node in ast.walk(tree))
    }
    assert holders == {"hooks.build"}


@pytest.mark.parametrize("module", FILES)
def test_every_module_says_what_it_is_for(module: str) -> None:
    """A module is one concept, and its docstring names it."""
    assert ast.get_docstring(parsed(module)), f"{FILES[module]} has no docstring: say in one sentence what it is for"


BACKENDS = r"cuda|nvcc|rocm|(?<![a-z.])(?:hip|xpu)(?![a-z])"
IN_NAMES = re.compile(BACKENDS, re.IGNORECASE)
IN_TEXTS = re.compile(rf"{BACKENDS}|(?<![a-z.])cu(?=[0-9]|$)")
FIELDS = frozenset({"cuda", "cuda_compiler"})
"""Fields of the manifest, which a room may pass on by their names."""
FOR_CUDA = {"init": "it reads what authors wrote for CUDA", "cli.init": "its options"}
"""Who knows CUDA, and need not know another backend."""


def passed_on(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield what says nothing of its own: docstrings, and fields of the manifest that are handed on by their names."""
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant() as text):
                yield text
            case ast.keyword(arg=str(name), value=value) if name in FIELDS:
                yield node
                if isinstance(value, ast.Attribute) and value.attr == name:
                    yield value
            case ast.AnnAssign(target=ast.Name(id=name) as target) if name in FIELDS:
                yield target


def backends_known(module: str) -> Iterator[str]:
    """Yield what a module says of one backend: names, and texts that are not sentences."""
    passed = {id(node) for node in passed_on(parsed(module))}
    for node in ast.walk(parsed(module)):
        if id(node) in passed:
            continue
        if isinstance(node, ast.Constant):
            text = node.value if isinstance(node.value, str) else ""
            if not re.search(r"\s", text) and IN_TEXTS.search(text):
                yield text
        else:
            named = (getattr(node, field, None) for field in ("id", "attr", "arg", "name"))
            yield from (name for name in named if isinstance(name, str) and IN_NAMES.search(name))


def test_a_backend_is_known_only_in_the_rooms_of_the_recipe() -> None:
    """Who adds a backend has at most nine rooms to open, and the recipe names them all."""
    recipe = RECIPES.read_text(encoding="utf-8").partition("## Add a backend")[2].partition("\n## ")[0]
    named = set(re.findall(r"^\| `(\w+)/` \|", recipe, re.MULTILINE))
    assert named <= {*map(part, FILES), "resources"}
    assert len(named) <= 9
    known = {
        f"{module}: {text}"
        for module in FILES
        if part(module) not in {*named, "init"} and module not in FOR_CUDA
        for text in backends_known(module)
    }
    assert known == set()


def test_the_words_of_a_backend_are_found() -> None:
    """The check sees what it is for: a comparison, a text that is built, an attribute and an argument."""
    assert {"cuda", "cuda_majors", "nvcc"} <= {
        text for module in ("facts.backend", "facts.labels", "toolchain.cuda") for text in backends_known(module)
    }
