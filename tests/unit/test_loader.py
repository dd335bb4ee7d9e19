"""The generated ``_variants.py``: its text, and its messages to users without a torch that fits."""

from __future__ import annotations

import ast
import contextlib
import hashlib
import inspect
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import typing
import warnings
import zlib
from dataclasses import replace
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

import loaders
from hatch_torch_ext.base import process, resources
from hatch_torch_ext.facts import archs, content, releases
from hatch_torch_ext.facts.manifest import Partial
from hatch_torch_ext.facts.variant import BuildRecord, Variant, VariantFile
from hatch_torch_ext.merge import loader
from hatch_torch_ext.values import Layout, PlacedVariant

if TYPE_CHECKING:
    from types import ModuleType

TEMPLATE = resources.FOLDER / "_variants.py"
RECORD = BuildRecord(entry="e", variables=(), torch_version="", python="", sdk="", compiler="", cmake="")
SHA = hashlib.sha256(b"library").hexdigest()


def variant(label: str, torch: str = "2.8", **fields: Any) -> Variant:
    """Return a CPU variant with one library, unless stated otherwise."""
    library = VariantFile(path=f"{label}/libops.so", kind="library", sha256=SHA, size=7, registers=True)
    library = replace(library, installed="libops.so")
    plain = Variant(
        label=label,
        torch=torch,
        stable_abi=False,
        backend="cuda" if "cuda" in fields else "cpu",
        cuda=None,
        cxx11_abi=True,
        python=None,
        machine="x86_64",
        libc="glibc",
        libc_floor="2.17",
        policy="manylinux_2_17_x86_64",
        archs=(),
        files=(library,),
        build=RECORD,
    )
    return replace(plain, **fields)


BLOCK = f"""\
        {{
            "label": "LABEL",
            "torch": "2.8",
            "stable_abi": False,
            "cuda": None,
            "archs": {{}},
            "cxx11_abi": True,
            "on_default_index": True,
            "cp": [39, 313],
            "python": None,
            "machine": "x86_64",
            "libc": "glibc",
            "libc_floor": "2.17",
            "files": [
                {{
                    "path": "LABEL/libops.so",
                    "name": "libops.so",
                    "kind": "library",
                    "size": 7,
                    "sha256": "{SHA}",
                    "ends": None,
                    "mapped": None,
                    "module": None,
                    "registers": True,
                    "namespaces": [],
                    "operators": [],
                }},
            ],
        }},
"""


def layout(*variants: Variant, package: str = "my_pkg") -> Layout:
    """Return the layout of a wheel with ``variants``, each file where it was."""
    placed = [
        PlacedVariant(variant=each, places=tuple((file.path, f"_torch_ext/{file.path}") for file in each.files))
        for each in variants
    ]
    return Layout(package=package, variants=tuple(placed), files=(), tag="", requires="", manifest="")


def text_of(*variants: Variant) -> str:
    """Return the loader of a wheel with ``variants``."""
    return loader.render(layout(*variants), distribution="my-dist")


def test_a_part_says_that_there_is_more(tmp_path: Path) -> None:
    """If nothing in a partial wheel fits, the error names the missing entries; a whole wheel has no such line."""
    entries = ("a", "b", "c", "d", "e")
    partial = Partial(entries=entries, built=("a",), sources="", configuration="", builder="")
    text = loader.render(replace(layout(variant("x", "2.8")), partial=partial), distribution="my-dist")
    assert '"partial": ["b", "c", "d", "e"]' in text
    assert '"partial"' not in text_of(variant("x", "2.8")).partition("\nDATA: ")[2]
    file = tmp_path / "_variants.py"
    loaders.write(tmp_path, replace(layout(variant("x", "2.8")), partial=partial), distribution="my-dist")
    spec = spec_from_file_location("my_pkg._part", file)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules["my_pkg._part"] = module
    spec.loader.exec_module(module)
    assert module._part("help")._other_wheels() == [
        "or the whole wheel, as this is a part of it without b, c, d and 1 more:",
        "  hatch-torch-ext merge PART... -o DIR",
    ]


def module_of(folder: Path, *variants: Variant) -> Any:
    """Return the loader of ``my_pkg`` as an imported module."""
    file = folder / "my_pkg" / "_variants.py"
    loaders.write(file.parent, layout(*variants), distribution="my-dist")
    spec = spec_from_file_location("my_pkg._variants", file)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_annotations_have_a_meaning_in_a_process(tmp_path: Path) -> None:
    """beartype.claw and typeguard read each of them, where they check a package: their names are there, at no cost."""
    module = module_of(tmp_path)
    functions = [each for each in vars(module).values() if inspect.isfunction(each)]
    classes = [each for each in vars(module).values() if inspect.isclass(each) and each.__module__ == module.__name__]
    functions += [each for one in classes for each in vars(one).values() if inspect.isfunction(each)]
    assert len(functions) > 50
    for each in (module, *functions):
        typing.get_type_hints(each)


@pytest.mark.parametrize(
    ("freezer", "how"),
    [
        ("PyInstaller", 'pyinstaller --add-data "{}:my_pkg/_torch_ext"'),
        ("cx_Freeze", 'cx_Freeze, include_files = [(".../my_pkg/_torch_ext", "lib/my_pkg/_torch_ext")]'),
        ("Nuitka", 'nuitka --include-raw-dir="{}=my_pkg/_torch_ext"'),
        ("none", ""),
    ],
)
def test_a_frozen_program_names_the_freezer(
    freezer: str, how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyInstaller sets `sys._MEIPASS` beside `sys.frozen`, cx_Freeze only that; Nuitka sets a name in each module."""
    module = module_of(tmp_path)
    if freezer in {"PyInstaller", "cx_Freeze"}:
        monkeypatch.setattr(sys, "frozen", True, raising=False)
    if freezer == "PyInstaller":
        monkeypatch.setattr(sys, "_MEIPASS", "/program/_internal", raising=False)
    if freezer == "Nuitka":
        module.__compiled__ = SimpleNamespace(standalone=True)
    source = "$(python -c 'import my_pkg as it; print(*it.__path__)')/_torch_ext"
    head = "make the program again with all of my_pkg/_torch_ext, without --strip: " if how else ""
    assert module._frozen() == head + how.format(source)
    assert f": {module._frozen() or 'pip install'}" in module._without_help()


def data_of(text: str) -> Any:
    """Return the one literal in the loader's text."""
    (assignment,) = [
        node for node in ast.parse(text).body if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "DATA"
    ]
    assert assignment.value is not None
    return ast.literal_eval(assignment.value)


def run(folder: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run a Python that has no torch, and nothing else either, on the packages of ``folder``."""
    start = f"import sys; sys.path.insert(0, {str(folder)!r}); "
    command = [sys.executable, "-I", "-S", *(start + each if each.startswith("import") else each for each in arguments)]
    environ = {**os.environ, **environ}
    return subprocess.run(command, env=environ, check=False, capture_output=True, text=True)


MODULE = VariantFile(
    path="a/_C.so", kind="module", sha256=SHA, size=9, module="sub._C", registers=True, installed="_C.so"
)
GRAFT = VariantFile(path="shared/0123/libz.so", kind="graft", sha256=SHA, size=8)
TABLE = VariantFile(path="a/table.bin", kind="data", sha256=SHA, size=8, installed="table.bin")


def test_the_literal_holds_what_the_loader_needs() -> None:
    """Every field of the choice, every file that is opened or needed, data too, and its place."""
    registering = replace(MODULE, ends=77, namespaces=("one", "two"), operators=("one::add.Tensor",))
    made = variant(
        "a", torch="2.10", stable_abi=True, cuda="13.0", archs=("9.0", "9.0+PTX"), files=(TABLE, registering, GRAFT)
    )
    moved = PlacedVariant(variant=made, places=(("a/_C.so", "_torch_ext/shared/4567/_C.so"),))
    text = loader.render(replace(layout(), variants=(moved,)), distribution="my-dist")
    assert data_of(text) == {
        "distribution": "my-dist",
        "package": "my_pkg",
        "variants": [
            {
                "label": "a",
                "torch": "2.10",
                "stable_abi": True,
                "cuda": "13.0",
                "archs": {"9.0": [90, 99], "9.0+PTX": [90, 999]},
                "cxx11_abi": True,
                "on_default_index": True,
                "cp": [310, 399],
                "python": None,
                "machine": "x86_64",
                "libc": "glibc",
                "libc_floor": "2.17",
                "files": [
                    {
                        "path": path,
                        "name": name,
                        "kind": kind,
                        "size": size,
                        "sha256": SHA,
                        "ends": ends,
                        "mapped": None,
                        "module": module,
                        "registers": registers,
                        "namespaces": namespaces,
                        "operators": operators,
                    }
                    for path, name, kind, size, ends, module, registers, namespaces, operators in (
                        (
                            *("shared/4567/_C.so", "_C.so", "module", 9, 77, "sub._C", True),
                            *(["one", "two"], ["one::add.Tensor"]),
                        ),
                        ("a/table.bin", "table.bin", "data", 8, None, None, False, [], []),
                        ("shared/0123/libz.so", "", "graft", 8, None, None, False, [], []),
                    )
                ],
            }
        ],
    }


@pytest.mark.parametrize("number", [0, 1, 8, 40])
def test_the_text_is_the_template_with_a_literal(number: int) -> None:
    """Nothing but the literal differs between two packages, and each variant is a block of it, a field a line."""
    labels = [f"v{index:03}" for index in range(number)]
    before, after = loader.template().split('DATA: Dict[str, Any] = {"', maxsplit=1)
    after = after.split("\n", maxsplit=1)[1]
    head = 'DATA: Dict[str, Any] = {"distribution": "my-dist", "package": "my_pkg", "variants": []}\n'
    if number:
        head = 'DATA: Dict[str, Any] = {\n    "distribution": "my-dist",\n    "package": "my_pkg",\n    "variants": [\n'
    tail = "    ],\n}\n" if number else ""
    blocks = "".join(BLOCK.replace("LABEL", label) for label in labels)
    assert text_of(*map(variant, labels)) == f"{before}{head}{blocks}{tail}{after}"


def test_the_text_does_not_depend_on_the_order_of_the_variants() -> None:
    """Variants stand the way people count, however they arrive: 2.9 before 2.10."""
    variants = [variant("b", "2.10"), variant("a", "2.10"), variant("c", "2.9"), variant("d", "2.4")]
    shuffled = [variants[number] for number in (2, 0, 3, 1)]
    assert text_of(*variants) == text_of(*shuffled)
    assert [each["label"] for each in data_of(text_of(*shuffled))["variants"]] == ["d", "c", "a", "b"]


@given(
    st.recursive(
        st.text() | st.none() | st.booleans() | st.integers(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_any_value_survives_as_source(value: object) -> None:
    """Quotes, backslashes, line breaks and letters of every script: the same value when it is read."""
    source = loader._literal(value, prefix="")
    assert source.isascii()
    assert ast.literal_eval(source) == value


def test_the_syntax_is_that_of_python_3_8() -> None:
    """Users' Pythons are older than builders'."""
    ast.parse(text_of(variant("a")), feature_version=(3, 8))
    for part in loader.parts(fallback=True).values():
        ast.parse(part.read_text(encoding="utf-8"), feature_version=(3, 8))


def python(version: str) -> str:
    """Return a Python of that version, the system's or pyenv's; skip if there is none."""
    homes = [os.environ.get("PYENV_ROOT", ""), str(Path.home() / ".pyenv")]
    found = [str(path) for home in homes if home for path in Path(home, "versions").glob(f"{version}.*/bin/python")]
    for candidate in [*found, f"python{version}"]:
        with contextlib.suppress(OSError, subprocess.CalledProcessError):
            subprocess.run([candidate, "-c", ""], check=True, capture_output=True)
            return candidate
    pytest.skip(f"no Python {version} on this machine")


@pytest.mark.parametrize("version", ["3.8", "3.9", "3.10", "3.11", "3.12", "3.13", "3.14"])
def test_every_python_explains(version: str, tmp_path: Path) -> None:
    """`python -m` imports the package first, whose `load()` then explains instead of raising."""
    module_of(tmp_path, variant("it"))
    (tmp_path / "my_pkg" / "__init__.py").write_text(
        "from my_pkg import _variants\n_variants.load()\n", encoding="utf-8"
    )
    command = [python(version), "-S", "-m", "my_pkg._variants"]
    told = subprocess.run([*command, "--json"], cwd=tmp_path, check=False, capture_output=True, text=True)
    assert json.loads(told.stdout)["facts"]["python"] == f"cp{version.replace('.', '')}", told.stderr
    assert told.returncode == 1
    table = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True)
    assert "\n  it: rejected: built for torch 2.8, found no torch\n" in table.stdout


@pytest.mark.performs("Rename it, or take its folder")
@pytest.mark.parametrize("name", ["torch.py", "torch/note.txt", "torch/__init__.py", "torch/version.py"])
def test_what_hides_torch_is_named(name: str, tmp_path: Path) -> None:
    """A file or a folder called torch, on the path before the real one; renamed, as the message says, it is gone."""
    module_of(tmp_path, variant("a"))
    hiding = tmp_path / name
    hiding.parent.mkdir(exist_ok=True)
    hiding.write_text("from . import version\n" if name.endswith("__init__.py") else "", encoding="utf-8")
    (hiding.parent / "version.py").touch()
    done = run(tmp_path, "-c", "import my_pkg._variants as loader; loader.load()")
    place = hiding if hiding.name in {"torch.py", "__init__.py"} else hiding.parent
    assert done.stderr.splitlines()[-1] == (
        f"ImportError: my_pkg: `import torch` finds {place}, which is not PyTorch and hides it. "
        "Rename it, or take its folder off sys.path"
    )
    first = tmp_path / name.partition("/")[0]
    first.rename(tmp_path / "renamed")
    done = run(tmp_path, "-c", "import my_pkg._variants as loader; loader.load()")
    assert "\nHere: no torch, " in done.stderr


MOCKS = {
    "unittest": "import sys; from unittest.mock import MagicMock; sys.modules['torch'] = MagicMock()\n",
    "a mock with a version": (
        "import sys; from unittest.mock import MagicMock; sys.modules['torch'] = MagicMock(__version__='2.8.0')\n"
    ),
    # As sphinx.ext.autodoc.mock has it: modules whose every name is an object that can be called, and has every name.
    "Sphinx": (
        "import sys, types\n"
        "class Mocked(types.ModuleType):\n"
        "    def __getattr__(self, name): return Mocked(f'{self.__name__}.{name}')\n"
        "    def __call__(self, *arguments): return self\n"
        "    def __str__(self): return self.__name__\n"
        "sys.modules['torch'] = Mocked('torch')\n"
    ),
}


@pytest.mark.parametrize("mock", MOCKS)
def test_with_a_mock_of_torch_nothing_is_loaded(mock: str, tmp_path: Path) -> None:
    """Case 47: pages are made of the Python side; one warning says that the rest is missing, and nothing is raised."""
    module_of(tmp_path, variant("a"))
    (tmp_path / "my_pkg" / "__init__.py").write_text(
        "from my_pkg import _variants\nloaded = _variants.load()\n", encoding="utf-8"
    )
    program = "import my_pkg; l = my_pkg.loaded; print([l.label, l.files, l.variant, l.verdicts(), str(l)[:9]])"
    done = run(tmp_path, "-c", "import sys\n" + MOCKS[mock] + program)
    assert done.stdout == "['', [], None, {'a': 'not loaded: torch is a mock'}, 'Here: cp3']\n", done.stderr
    assert (
        "TorchExtWarning: my_pkg: no compiled variant is loaded, as torch is a mock: operators and modules are missing"
    ) in done.stderr


@pytest.mark.parametrize("variable", ["TORCH_EXT_VARIANT", "MY_PKG_TORCH_EXT_VARIANT"])
def test_only_the_python_side_is_a_switch(variable: str, tmp_path: Path) -> None:
    """Case 47: ``none`` loads no variant and imports no torch, so a broken one does not matter; without a word."""
    module_of(tmp_path, variant("a"))
    (tmp_path / "torch.py").write_text("raise OSError('libcudart.so.13')\n", encoding="utf-8")
    program = "import my_pkg._variants as v; print([v.load().label, v.load().files]); v.main(['--check'])"
    done = run(tmp_path, "-c", program, **{variable: "none"})
    assert done.stdout == "['', []]\n"
    assert done.stderr == f"my_pkg: nothing is checked, as {variable}=none\n"
    start = "import runpy; runpy.run_module('my_pkg._variants', run_name='__main__', alter_sys=True)"
    told = run(tmp_path, "-c", start, **{variable: "none"})
    assert told.returncode == 0
    assert told.stdout.splitlines()[1:] == [f"  a: not loaded: {variable}=none"]
    path = run(tmp_path, "-c", start, "--library-path", **{variable: "none"})
    assert (path.returncode, path.stderr) == (1, f"my_pkg: no variant is chosen, as {variable}=none\n")


def test_the_file_itself_explains_where_the_package_cannot_be_imported(tmp_path: Path) -> None:
    """Case 51: without torch, ``-m`` fails if the package imports torch first; run by its path, the loader answers.

    The package's other modules, in the same folder, do not hide modules of the standard library.
    """
    module_of(tmp_path, variant("one"))
    package = tmp_path / "my_pkg"
    (package / "__init__.py").write_text("import torch\n", encoding="utf-8")
    for name in ("json", "re", "warnings", "torch"):
        (package / f"{name}.py").write_text("raise RuntimeError('hidden')\n", encoding="utf-8")
    failed = subprocess.run(
        [sys.executable, "-S", "-m", "my_pkg._variants"], cwd=tmp_path, check=False, capture_output=True, text=True
    )
    assert "No module named 'torch'" in failed.stderr
    command = [sys.executable, "-S", str(package / "_variants.py")]
    told = subprocess.run(command, check=False, capture_output=True, text=True)
    assert (told.returncode, told.stderr) == (1, "")
    assert told.stdout.splitlines()[1] == "  one: rejected: built for torch 2.8, found no torch"
    as_json = subprocess.run([*command, "--json"], check=False, capture_output=True, text=True)
    assert json.loads(as_json.stdout)["root"] == str(package / "_torch_ext")


def test_a_torch_that_breaks_is_one_line_of_the_command(tmp_path: Path) -> None:
    """A missing CUDA library is an OSError when torch is imported: the command prints one line, without a traceback."""
    module_of(tmp_path, variant("one"))
    (tmp_path / "torch.py").write_text("raise OSError('libcudart.so.13: no such file')\n", encoding="utf-8")
    start = "import runpy; runpy.run_module('my_pkg._variants', run_name='__main__', alter_sys=True)"
    done = run(tmp_path, "-c", start)
    assert (done.returncode, done.stderr) == (
        1,
        "my_pkg: torch cannot be imported: OSError: libcudart.so.13: no such file\n",
    )


@pytest.mark.parametrize(
    ("raised", "told"),
    [
        ("PermissionError(13, 'Permission denied', '/x/manifest.json.new')", "/x/manifest.json.new: Permission denied"),
        ("OSError('no name')", "OSError: no name"),
        ("SyntaxError('bad', ('/x/y.py', 1, 1, ''))", "SyntaxError: bad (y.py, line 1) (/x/y.py)"),
    ],
)
def test_an_error_that_is_not_torchs_is_one_line_with_its_file(tmp_path: Path, raised: str, told: str) -> None:
    """In a folder that cannot be written, ``--renew`` names the file and the reason; torch is not blamed."""
    module_of(tmp_path, variant("one"))
    program = (
        f"import my_pkg._variants as v\nhelp = v._part('help')\ndef fail(): raise {raised}\n"
        "help.renew = fail\nraise SystemExit(help.main(['--renew']))"
    )
    done = run(tmp_path, "-c", program)
    assert (done.returncode, done.stderr) == (1, f"my_pkg: {told}\n")


def test_odd_interpreters(tmp_path: Path) -> None:
    """An installation of compiled Python only explains itself; a Python that is embedded may have no ``sys.argv``."""
    module = module_of(tmp_path, variant("one", "2.8"))
    process.run([sys.executable, "-m", "compileall", "-q", "-b", tmp_path / "my_pkg"])
    for file in (tmp_path / "my_pkg").rglob("*.py"):
        file.unlink()
    assert not Path(module.ROOT, "help.py").exists()
    done = run(tmp_path, "-c", "import sys, my_pkg._variants as v; del sys.argv; v.load()")
    assert "\nMore: python -m my_pkg._variants\n" in done.stderr


@pytest.mark.performs("Run as its owner: chmod")
def test_a_file_that_another_user_may_not_read() -> None:
    """An installation under a strict umask is whole: its owner opens it to others. It was called damaged."""
    data = b"library"
    sha256 = hashlib.sha256(data).hexdigest()
    one = variant("one", "2.10")
    library = replace(one.files[0], sha256=sha256, size=len(data), ends=zlib.crc32(data))
    with tempfile.TemporaryDirectory(prefix="with space ") as folder:
        Path(folder).chmod(0o755)
        module = module_of(Path(folder), replace(one, files=(library,)))
        path = Path(module.ROOT, library.path)
        path.parent.mkdir()
        path.write_bytes(data)
        path.chmod(0)
        module._part("help")
        user = os.geteuid()
        (file,) = module.DATA["variants"][0]["files"]
        try:
            os.seteuid(user or 65534)  # the administrator may read everything
            with pytest.raises(module.LoadError) as refused:
                module._inspect(file)
            said = module._explained(refused.value)
        finally:
            os.seteuid(user)
        reason, _, command = said.partition("). Run as its owner: ")
        assert reason == f"my_pkg: {path} cannot be read (Permission denied) (sha256 {sha256} is expected"
        process.run(shlex.split(command))
        module._inspect(file)


def test_what_is_chosen_and_missing_is_not_a_success(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The explanation of a damaged installation has the reason, the remedy and a status of 1; so has ``--renew``."""
    module = module_of(tmp_path, variant("one", "2.10"))
    module.facts = lambda: {**HERE, **TORCH}
    helper = module._part("help")
    *_, choice, fault = helper.explain().splitlines()
    assert choice == "  one: chosen"
    assert "cannot be read (No such file or directory)" in fault
    assert fault.endswith("Repair it: pip install --force-reinstall --no-deps my-dist")
    assert [helper.main(arguments) for arguments in ([], ["--json"], ["--renew"])] == [1, 1, 1]
    monkeypatch.setattr(helper, "faults", lambda _: iter(()))
    assert helper.main([]) == 0


LIBRARY_FILES = (
    VariantFile(path="a/libcore4.so", kind="library", sha256=SHA, size=7),
    VariantFile(path="a/libcore5.so", kind="library", sha256=SHA, size=7),
    GRAFT,
)


def test_a_library_that_registers_nothing_has_a_path_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Case 59: without a name the libraries are listed with a command, which works."""
    module = module_of(tmp_path, variant("a", "2.10", files=LIBRARY_FILES))
    module.facts = lambda: {**HERE, **TORCH}
    for file in LIBRARY_FILES:
        place = tmp_path / "my_pkg" / "_torch_ext" / file.path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(b"x" * file.size)
    with pytest.raises(ImportError) as caught:
        module.library_path()
    text, command = str(caught.value).split(" Type: ")
    assert text == (
        "my_pkg: no library that load() opens registers operators, so say which one you mean: libcore4.so, libcore5.so."
    )
    arguments = command.removeprefix("python -m my_pkg._variants ").split()
    said: list[str] = []
    monkeypatch.setattr("builtins.print", lambda text, **_: said.append(text))
    assert module.main(arguments) == 0
    assert said == [f"{tmp_path}/my_pkg/_torch_ext/a/libcore4.so"]
    assert module.path("libz.so") == f"{tmp_path}/my_pkg/_torch_ext/shared/0123/libz.so"


def test_what_is_foreign_is_cut_and_never_raw(tmp_path: Path) -> None:
    """A variable of 10 kB, a version with control characters and of 10,000 digits: short, printable, no traceback."""
    module_of(tmp_path, variant("a"))
    program = "import my_pkg._variants; my_pkg._variants.load()"
    long = run(tmp_path, "-c", program, TORCH_EXT_VARIANT="\x1b]0;x\a" + "x" * 10_000).stderr.splitlines()[-1]
    assert long.startswith("ImportError: my_pkg has no variant '\\\\x1b]0;x\\\\x07xxx")
    assert len(long) < 200
    torch = "class version: cuda = None\nclass _C: pass\n__version__ = '2.8.0\\x1b[31m\\u202e' + '8' * 10_000\n"
    (tmp_path / "torch.py").write_text(torch, encoding="utf-8")
    done = run(tmp_path, "-c", program)
    (here,) = [line for line in done.stderr.splitlines() if line.startswith("Here: ")]
    assert here.startswith("Here: torch 2.8.0\\x1b[31m\\u202e888")
    assert "..." in here
    assert len(done.stderr) < 2000


@pytest.mark.parametrize("close", ["import sys; sys.stderr.close(); ", "import os; os.close(2); "])
def test_a_trace_that_nobody_reads_is_not_an_error(close: str, tmp_path: Path) -> None:
    """TRACE with stderr closed: the package is imported all the same."""
    module_of(tmp_path, variant("a"))
    program = f"import my_pkg._variants as v; {close}v._part('help').trace(v.choose(must=False)); print('traced')"
    done = run(tmp_path, "-c", program, TORCH_EXT_TRACE="1")
    assert done.stdout == "traced\n"


def test_both_ends_of_a_file_are_compared(tmp_path: Path) -> None:
    """The build and the loader hash the same bytes: a change at either end is noticed, one in the middle is not."""
    file = tmp_path / "lib.so"
    module = module_of(tmp_path)
    for size in (0, 1, content.END, content.END + 1, 2 * content.END, 2 * content.END + 2):
        data = bytes(number % 251 for number in range(size))
        file.write_bytes(data)
        ends = content.ends(file)
        assert module._ends(str(file), size) == ends
        for place in {0, size // 2, size - 1} if size else ():
            file.write_bytes(data[:place] + b"\xff" + data[place + 1 :])
            unseen = content.END <= place < size - content.END
            assert (module._ends(str(file), size) == ends) is unseen


def test_the_loader_is_read_in_a_few_minutes() -> None:
    """What every process runs is one file of 800 lines; what builds at first use is only where sources are.

    A wheel without sources has less than 24 kB of the two files, as archives pack them.
    """
    assert len(loader.template().splitlines()) <= 800
    files = [TEMPLATE, *loader.parts(fallback=False).values()]
    assert sum(len(zlib.compress(file.read_bytes())) for file in files) < 24_000
    assert sorted(loader.parts(fallback=False)) == ["_torch_ext/help.py"]
    assert sorted(loader.parts(fallback=True)) == ["_torch_ext/build.py", "_torch_ext/help.py"]


ERRORS = {
    "nothing fits": ("", {}),
    "an unknown label": ("", {"TORCH_EXT_VARIANT": "x"}),
    "a file that is missing": ("", {"TORCH_EXT_VARIANT": "a"}),
    "something that hides torch": ("x = 1\n", {}),
}


@pytest.mark.parametrize("error", ERRORS)
def test_the_users_traceback_ends_in_one_line_of_the_loader(error: str, tmp_path: Path) -> None:
    """Every error comes from one frame, with nothing chained: the line of the user's import, one of ours, the text."""
    module_of(tmp_path, variant("a"))
    torch, environ = ERRORS[error]
    init = "from my_pkg import _variants\n_variants.load()\n"
    (tmp_path / "my_pkg" / "__init__.py").write_text(init, encoding="utf-8")
    if torch:
        (tmp_path / "torch.py").write_text(torch, encoding="utf-8")
    done = run(tmp_path, "-c", "import my_pkg", **environ)
    frames = [line for line in done.stderr.splitlines() if line.startswith('  File "')]
    assert [Path(line.split('"')[1]).name for line in frames] == ["<string>", "__init__.py", "_variants.py"]
    assert done.stderr.count("Error: ") == 1, done.stderr


@pytest.mark.performs("pip install {}")
@pytest.mark.parametrize("fault", ["missing", "cut short", "empty"])
def test_a_half_deleted_installation_still_gives_its_reasons(fault: str, tmp_path: Path) -> None:
    """Without help.py the error has the facts, the reasons, and what brings the file back; so has the command."""
    module = module_of(tmp_path, variant("one", "2.8"))
    helper = Path(module.ROOT) / "help.py"
    text = helper.read_text(encoding="utf-8")
    if fault == "missing":
        helper.unlink()
    else:
        helper.write_text(text[: text.index("nothing_fits")] if fault == "cut short" else "", encoding="utf-8")
    program = "import my_pkg._variants as v; v.load()"
    head, here, reason, remedy = run(tmp_path, "-c", program).stderr.partition("Error: ")[2].splitlines()
    assert head == "my_pkg: none of its compiled variants (1) fits here."
    assert here.startswith("Here: no torch, cp")
    assert reason.endswith("  one: built for torch 2.8, found no torch")
    assert remedy == (
        f"({helper}, which explains more, is missing or damaged: pip install --force-reinstall --no-deps my-dist)"
    )
    start = "import runpy; runpy.run_module('my_pkg._variants', run_name='__main__', alter_sys=True)"
    done = run(tmp_path, "-c", start)
    assert (done.returncode, done.stdout.splitlines()) == (1, [here, reason, remedy])
    helper.write_text(text, encoding="utf-8")
    assert "\nMore: python -m my_pkg._variants\n" in run(tmp_path, "-c", program).stderr


def test_a_zip_archive_gives_reasons_and_remedies(tmp_path: Path) -> None:
    """In a zipapp the loader's other files are read from the archive."""
    module_of(tmp_path, variant("b", "2.9"))
    archive = shutil.make_archive(str(tmp_path / "app"), "zip", tmp_path, "my_pkg")
    name = f"import os, sys; os.chdir({str(tmp_path)!r}); sys.path[0] = 'app.zip'; "  # as in `python app.pyz`
    for first in ("", name):
        place = tmp_path / "none" if first else Path(archive)
        done = run(place, "-c", f"{first}import my_pkg._variants as v; v.load()")
        assert "my_pkg: none of its compiled variants (1) fits here.\n" in done.stderr
        assert '\n  pip install "torch==2.9.*"\n' in done.stderr


def test_importing_it_costs_nearly_nothing(tmp_path: Path) -> None:
    """No torch, no typing, no pathlib: the import adds only modules of the interpreter's core."""
    module_of(tmp_path, variant("a"))
    program = "import sys, os; before = {*sys.modules}; import my_pkg._variants; print(sorted({*sys.modules} - before))"
    done = run(tmp_path, "-c", program)
    assert done.stdout.strip() == "['__future__', 'my_pkg', 'my_pkg._variants']"


HERE = {"python": "cp311", "system": "linux", "machine": "x86_64", "libc": "glibc", "libc_version": "2.36"}
TORCH = {"torch": "2.10.0", "backend": "CPU", "cxx11_abi": True}


def refusal(folder: Path, here: dict[str, Any], *variants: Variant) -> str:
    """Return the ImportError of a package with ``variants`` on a machine with the facts ``here``."""
    module = module_of(folder, *variants)
    module.facts = lambda: {**HERE, **TORCH, **here}
    with pytest.raises(ImportError) as caught:
        module.choose()
    return str(caught.value)


def test_without_torch_it_says_which_to_install(tmp_path: Path) -> None:
    """The whole message for a user who has no torch: what the package was built for, and the newest as a command."""
    text = refusal(
        tmp_path, {"torch": ""}, variant("b", "2.9"), variant("c", "2.8"), variant("a", "2.9", python="cp30")
    )
    assert text == (
        "my_pkg: none of its compiled variants (3) fits here.\n"
        "Here: no torch, cp311, linux x86_64, glibc 2.36\n"
        "  c: built for torch 2.8, found no torch\n"
        "  a: built for cp30, found cp311; built for torch 2.9, found no torch\n"
        "  b: built for torch 2.9, found no torch\n"
        "Install a torch that it was built for:\n"
        '  pip install "torch==2.9.*"\n'
        "or a newer release, if there is one:\n"
        "  pip install -U my-dist\n"
        "More: python -m my_pkg._variants"
    )


def test_torch_that_is_not_there_is_not_an_accident(tmp_path: Path) -> None:
    """A Python without torch really gets that message from ``load()``, and nothing is printed besides."""
    module_of(tmp_path, variant("b", "2.9"))
    done = run(tmp_path, "-c", "import my_pkg._variants; my_pkg._variants.load()")
    first, here, reason, *_ = done.stderr.partition("ImportError: ")[2].splitlines()
    assert first == "my_pkg: none of its compiled variants (1) fits here."
    assert here.startswith("Here: no torch, cp3")
    assert reason.endswith("built for torch 2.9, found no torch")


def test_a_torch_that_does_not_import_is_reported_as_it_is(tmp_path: Path) -> None:
    """If torch is installed but broken, the user sees torch's own error."""
    module_of(tmp_path, variant("b", "2.9"))
    (tmp_path / "torch.py").write_text("import libgone\n", encoding="utf-8")
    done = run(tmp_path, "-c", "import my_pkg._variants; my_pkg._variants.load()")
    assert done.stderr.splitlines()[-1] == "ModuleNotFoundError: No module named 'libgone'"


def test_many_variants_are_reported_by_rule(tmp_path: Path) -> None:
    """The whole message for a wheel of 42: a line for each rule with everything that was built, the nearest torch."""
    variants = [variant(f"c{minor}", f"2.{minor}") for minor in range(4, 10)]
    variants += [variant(f"g{minor}", f"2.{minor}", cuda="12.8", cxx11_abi=minor > 6) for minor in range(4, 11)]
    variants += [variant(f"p{minor}", f"2.{minor}", python="cp312") for minor in range(4, 11)]
    variants += [variant(f"a{minor}", f"2.{minor}", machine="aarch64") for minor in range(22)]
    assert refusal(tmp_path, {"torch": "2.10.0+cu126", "backend": "CUDA 12.6"}, *variants) == (
        "my_pkg: none of its compiled variants (42) fits here.\n"
        "Here: torch 2.10.0+cu126 (CUDA 12.6, the C++11 ABI), cp311, linux x86_64, glibc 2.36\n"
        "  22 built for linux aarch64; found linux x86_64\n"
        "  12 built for torch 2.4, ..., torch 2.9; found 2.10.0+cu126\n"
        "  7 built for cp312; found cp311\n"
        "  1 built for CUDA 12.8 or a newer 12.x; found a torch for CUDA 12.6\n"
        "Install a torch that it was built for:\n"
        f'  pip install "torch==2.9.*" --index-url {releases.TORCH_INDEX}/cu126\n'
        "or a newer release, if there is one:\n"
        "  pip install -U my-dist\n"
        "More: python -m my_pkg._variants"
    )


OLD_ABI = variant("torch2.6_cpu_cxx98", "2.6", cxx11_abi=False)
NEW_ABI = variant("torch2.6_cpu_cxx11", "2.6")
CU128 = f" --index-url {releases.TORCH_INDEX}/cu128"


@pytest.mark.performs("Install a torch that", 'pip install{} "{}"{}')
@pytest.mark.parametrize(
    ("here", "variants", "remedy"),
    [
        ({}, [variant("a", "2.8"), variant("b", "2.9")], ['pip install "torch==2.9.*"']),
        ({}, [variant("a", "2.9"), variant("b", "2.11")], ['pip install "torch==2.11.*"']),
        ({}, [variant("a", "2.12", stable_abi=True)], ['pip install "torch>=2.12"']),
        ({}, [variant("a", "2.11", python="cp312"), variant("b", "2.7")], ['pip install "torch==2.7.*"']),
        ({}, [variant("a", "2.11", cuda="12.8"), variant("b", "2.7")], ['pip install "torch==2.7.*"']),
        ({}, [variant("a", "2.11", cuda="12.8")], [f'pip install "torch==2.11.*"{CU128}']),
        ({}, [variant("a", "2.10", cuda="12.8")], [f'pip install --force-reinstall "torch==2.10.*"{CU128}']),
        ({"torch": "2.6.0+cu126"}, [OLD_ABI], ['pip install --force-reinstall "torch==2.6.*"']),
        ({"torch": "2.6.0", "cxx11_abi": False}, [NEW_ABI, variant("b", "2.8")], ['pip install "torch==2.8.*"']),
        ({"python": "cp38"}, [replace(OLD_ABI, torch="2.4"), variant("b", "2.9")], ['pip install "torch==2.4.*"']),
        ({"python": "cp314t"}, [variant("a", "2.8"), variant("b", "2.9")], ['pip install "torch==2.9.*"']),
        (
            {"python": "cp315"},
            [variant("a", "2.8"), variant("b", "2.13", stable_abi=True)],
            ['pip install "torch>=2.13"'],
        ),
        ({"backend": "ROCm"}, [variant("a", "2.9", cuda="12.8")], [f'pip install "torch==2.9.*"{CU128}']),
        (
            {"torch": "2.10.0+cpu"},
            [variant("a", "2.9")],
            [f'pip install "torch==2.9.*" --index-url {releases.TORCH_INDEX}/cpu'],
        ),
        (
            {"torch": "2.10.0+xpu", "backend": "XPU"},  # the default index would give a torch for CUDA
            [variant("a", "2.9")],
            [f'pip install "torch==2.9.*" --index-url {releases.TORCH_INDEX}/xpu'],
        ),
        (
            {"torch": "2.10.0+cu128", "backend": "CUDA 12.8"},
            [variant("a", "2.9"), variant("b", "2.9", cuda="12.8")],
            [f'pip install "torch==2.9.*"{CU128}'],
        ),
        ({"torch": "2.10.0a0+nv"}, [variant("a", "2.10")], ['pip install --force-reinstall "torch==2.10.*"']),
    ],
)
def test_the_remedy_is_the_nearest_torch(
    tmp_path: Path, here: dict[str, str], variants: list[Variant], remedy: list[str]
) -> None:
    """For this Python: the nearest minor, of the user's kind of build if there is one, from its index if needed.

    The oldest torch that the command installs is one for which a variant fits.
    """
    lines = refusal(tmp_path / "before", here, *variants).splitlines()
    start = [line.endswith("nstall a torch that it was built for:") for line in lines].index(True) + 1
    assert [line.strip() for line in lines[start : lines.index("or a newer release, if there is one:")]] == remedy
    pattern = rf'"torch[=>]=([0-9.]+?)(?:\.\*)?"(?: --index-url {releases.TORCH_INDEX}/(\w+))?'
    ((line, index),) = re.findall(pattern, remedy[0])
    default = releases.index_cuda(releases.minor_of(line))
    cuda = {"": default, "cpu": None, "xpu": None}.get(index, f"{index[2:4]}.{index[4:]}")
    installed = {
        "torch": f"{line}.0",
        "backend": f"CUDA {cuda}" if cuda else "CPU",
        "cxx11_abi": releases.cxx11_abi(line, "x86_64", cuda),
    }
    module = module_of(tmp_path / "after", *variants)
    module.facts = lambda: {**HERE, **here, **installed}
    assert module.choose().variant is not None


@pytest.mark.performs("Use a build of")
@pytest.mark.parametrize(
    ("here", "only", "build"),
    [
        ({"torch": "2.6.0", "cxx11_abi": False}, NEW_ABI, "torch==2.6.* with the C++11 ABI"),
        ({}, variant("a", "2.10", cxx11_abi=False), "torch==2.10.* with the C++ ABI from before C++11"),
    ],
)
def test_no_command_is_given_that_cannot_help(tmp_path: Path, here: dict[str, Any], only: Variant, build: str) -> None:
    """The default index has one C++ ABI of each release: installing it again would bring the same one."""
    lines = refusal(tmp_path, here, only).splitlines()
    assert lines[3:5] == [
        f"Use a build of {build}, which torch's default index lacks,",
        "or a newer release, if there is one:",
    ]
    module = module_of(tmp_path / "after", only)
    module.facts = lambda: {**HERE, **TORCH, **here, "cxx11_abi": build.endswith("with the C++11 ABI")}
    assert module.choose().variant is not None


USERS: dict[str, tuple[dict[str, Any], list[Variant]]] = {
    "a CPU torch, CUDA alone": ({}, [variant(f"torch2.{m}_cu12.8_cxx11", f"2.{m}", cuda="12.8") for m in (9, 10)]),
    "CUDA 12, built for 13": (
        {"torch": "2.10.0+cu128", "backend": "CUDA 12.8"},
        [variant(f"torch2.{m}_cu13.0_cxx11", f"2.{m}", cuda="13.0") for m in (10, 11)],
    ),
    "the old C++ ABI": ({"torch": "2.6.0", "cxx11_abi": False}, [variant("torch2.6_cpu_cxx11", "2.6")]),
    "Python 3.10, modules for newer ones": (
        {"python": "cp310"},
        [variant(f"torch2.10_cpu_cxx11_{python}", "2.10", python=python) for python in ("cp311", "cp312")],
    ),
    "a build from git": (
        {"torch": "2.14.0a0+gitf7bd3d3"},
        [variant(f"torch2.{m}_cpu_cxx11", f"2.{m}") for m in (13, 14)],
    ),
    "a vendor's build": (
        {"torch": "2.10.0a0+7c8ec84dab.nv25.11", "backend": "CUDA 13.0"},
        [variant(f"torch2.{m}_cu12.8_cxx11_cp312", f"2.{m}", cuda="12.8", python="cp312") for m in (9, 10)],
    ),
    "macOS": (
        {"system": "darwin", "machine": "arm64", "libc": "", "libc_version": ""},
        [variant("torch2.10_cpu_cxx11", "2.10")],
    ),
    "Windows": (
        {"system": "win32", "machine": "unknown", "libc": "", "libc_version": ""},
        [variant("torch2.10_cpu_cxx11", "2.10")],
    ),
    "musl": ({"libc": "musl", "libc_version": ""}, [variant("torch2.10_cpu_cxx11", "2.10")]),
    "PyPy": ({"python": "pypy310"}, [variant("torch2.10_cpu_cxx11_cp311", "2.10", python="cp311")]),
    "40 variants": (
        {"torch": "2.14.0a0+gitf7bd3d3", "backend": "CUDA 12.8"},
        [variant(f"v{n}", f"2.{n % 11 + 4}", cuda=("12.6", "13.0", "11.8")[n % 3]) for n in range(40)],
    ),
}


@pytest.mark.parametrize("user", USERS)
def test_what_users_read_fits_their_screen(user: str, tmp_path: Path) -> None:
    """At most 15 lines of at most 120 characters, nothing empty in them, and the last but one is to be typed."""
    lines = refusal(tmp_path, USERS[user][0], *USERS[user][1]).splitlines()
    assert len(lines) <= 15
    assert max(map(len, lines)) <= 120
    assert not [line for line in lines if "here is ;" in line or line.endswith((" ", "here is"))]
    torch = USERS[user][0].get("torch", "")
    command = "pip install -U --no-deps my-dist" if "a0" in torch else "pip install -U my-dist"
    assert lines[-2] == f"  {command}"


@pytest.mark.performs("Use a Python that")
def test_another_python_or_machine_is_named_where_torch_cannot_help(tmp_path: Path) -> None:
    """No torch of any release would do: the Pythons that would, else another machine."""
    text = refusal(tmp_path / "1", {}, variant("a", "2.10", python="cp312"), variant("b", "2.10", python="cp313"))
    assert "\nUse a Python that it was built for: cp312, cp313\nor a newer release" in text
    for python in ("cp312", "cp313"):
        module = module_of(tmp_path / python, *(variant(each, "2.10", python=each) for each in ("cp312", "cp313")))
        module.facts = lambda python=python: {**HERE, **TORCH, "python": python}
        assert module.choose().label == python
    text = refusal(tmp_path / "3", {"python": "cp315"}, variant("a", "2.8"), variant("b", "2.7"), variant("c", "2.4"))
    assert "\nUse a Python that it was built for: cp38 to cp312, cp39 to cp313\nor a newer release" in text
    text = refusal(tmp_path / "2", {}, variant("a", "2.10", machine="aarch64"))
    assert "\nUse another system,\nor a newer release" in text


def test_a_cpu_variant_on_a_gpu_torch_is_a_fallback_that_is_reported(tmp_path: Path) -> None:
    """Once, with what was built for CUDA and why not: only where the package has CUDA variants at all."""
    module = module_of(tmp_path, variant("cpu", "2.10"), variant("gpu", "2.9", cuda="12.8"))
    cuda = {**HERE, **TORCH, "backend": "CUDA 12.8"}
    cautions = module._part("help").cautions
    (told,) = cautions(module.select(cuda, module.DATA["variants"]))
    assert told == (
        "my_pkg: operators for the CPU only are loaded (cpu).\n"
        "Here: torch 2.10.0 (CUDA 12.8, the C++11 ABI), cp311, linux x86_64, glibc 2.36\n"
        "  gpu: built for torch 2.9, found 2.10.0\n"
        "Install a torch that it was built for:\n"
        '  pip install "torch==2.9.*"\n'
        "or a newer release, if there is one:\n"
        "  pip install -U my-dist\n"
        "More: python -m my_pkg._variants"
    )
    assert list(cautions(module.select({**cuda, "backend": "CPU"}, module.DATA["variants"]))) == []
    assert list(cautions(module.select(cuda, module.DATA["variants"][1:]))) == []


def test_variables_of_the_package_go_before_those_of_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``TORCH_EXT_VARIANT`` is for every package, ``MY_PKG_TORCH_EXT_VARIANT`` for one; wrong values are errors."""
    module = module_of(tmp_path, variant("one", "2.8"), variant("two", "2.9"))
    module.facts = lambda: {**HERE, **TORCH}
    monkeypatch.setenv("TORCH_EXT_VARIANT", "one")
    assert module.choose().label == "one"
    monkeypatch.setenv("MY_PKG_TORCH_EXT_VARIANT", "two")
    assert module.choose().label == "two"
    monkeypatch.setenv("MY_PKG_TORCH_EXT_VARIANT", "three")
    with pytest.raises(ImportError) as caught:
        module.choose()
    assert str(caught.value) == (
        "my_pkg has no variant 'three' (MY_PKG_TORCH_EXT_VARIANT), only one, two. Name one of these, or none: "
        "unset MY_PKG_TORCH_EXT_VARIANT"
    )


def test_snapshots_are_taken_where_the_user_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``TORCH_EXT_PRERELEASE=1`` is the opt-in; ``0`` and nothing are not."""
    module = module_of(tmp_path, variant("one", "2.10"))
    module.facts = lambda: {**HERE, **TORCH, "torch": "2.10.0a0+7c8ec84dab.nv26.01"}
    monkeypatch.setenv("TORCH_EXT_PRERELEASE", "0")
    assert module.choose(must=False).label == ""
    monkeypatch.setenv("TORCH_EXT_PRERELEASE", "1")
    assert module.choose().label == "one"


@pytest.mark.performs("See what it is for")
def test_python_m_explains_without_torch(tmp_path: Path) -> None:
    """Case 35: what is in the package, and what becomes of it here, for people and as JSON; status 1."""
    module_of(tmp_path, variant("one", "2.8"), variant("two", "2.9"))
    start = "import runpy; runpy.run_module('my_pkg._variants', run_name='__main__', alter_sys=True)"
    table = run(tmp_path, "-c", start)
    assert table.returncode == 1
    assert table.stdout.splitlines()[1:] == [
        "  one: rejected: built for torch 2.8, found no torch",
        "  two: rejected: built for torch 2.9, found no torch",
        "Install a torch that it was built for:",
        '  pip install "torch==2.9.*"',
    ]
    report = json.loads(run(tmp_path, "-c", start, "--json").stdout)
    assert report["chosen"] == ""
    assert report["facts"]["torch"] == ""
    assert report["verdicts"] == {
        "one": "rejected: built for torch 2.8, found no torch",
        "two": "rejected: built for torch 2.9, found no torch",
    }
    assert report["variants"][0]["files"][0]["path"] == "one/libops.so"
    wrong = run(tmp_path, "-c", start, "--jsno")
    assert wrong.returncode == 2
    options = "--json | --library-path | --check | --path NAME | --renew | --build | --cache | --clear-cache"
    for option in ("--build", "--cache", "--clear-cache"):
        without = run(tmp_path, "-c", start, option)
        told = "my_pkg holds no sources, so nothing is built at first use. "
        told += "See what it is for: python -m my_pkg._variants\n"
        assert (without.returncode, without.stderr) == (1, told)
    assert wrong.stderr == f"usage: python -m my_pkg._variants [{options}]\n"


def test_python_of_a_variant_is_a_module_of_the_package(tmp_path: Path) -> None:
    """Each variant's own is imported, under the package's name: packages with equal texts do not share it."""
    for package in ("my_pkg", "other"):
        for label in ("old", "new"):
            folder = tmp_path / package / "_torch_ext" / label / "sub"
            folder.mkdir(parents=True)
            (folder / "_built.py").write_text(f"LABEL = {label!r}\n", encoding="utf-8")
        file = VariantFile(path="new/sub/_built.py", kind="python", sha256=SHA, size=14, module="sub._built")
        (tmp_path / package / "sub").mkdir()
        made = layout(variant("new", files=(file,)), package=package)
        loaders.write(tmp_path / package, made, distribution="my-dist")
    program = "import my_pkg._variants, other._variants\n"
    for package in ("my_pkg", "other"):
        program += f"{package}._variants._Modules({package}._variants.DATA['variants'][0]).install()\n"
        program += f"from {package}.sub import _built; print(_built.__name__, _built.LABEL)\n"
    assert run(tmp_path, "-c", program).stdout == "my_pkg.sub._built new\nother.sub._built new\n"


@pytest.mark.parametrize(
    ("arch", "device", "runs"),
    [
        ("8.0", (8, 0), True),
        ("8.0", (8, 9), True),
        ("8.6", (8, 0), False),
        ("8.0", (9, 0), False),
        ("8.0+PTX", (12, 0), True),
        ("9.0+PTX", (8, 0), False),
        ("9.0a", (9, 0), True),
        ("9.0a", (10, 0), False),
        ("9.0a+PTX", (10, 0), False),
        ("10.0f", (10, 3), True),
        ("10.3f", (10, 0), False),
        ("10.0f", (12, 0), False),
        ("10.0f+PTX", (12, 0), False),
        ("12.0", (12, 1), True),
        ("8.0", (8, 7), False),
        ("8.0+PTX", (8, 7), True),
        ("8.7", (8, 9), False),
        ("10.1", (11, 0), True),
        ("10.1", (10, 3), False),
    ],
)
def test_devices_that_no_code_runs_on_are_warned_of(
    tmp_path: Path,
    arch: str,
    device: tuple[int, int],
    runs: bool,  # noqa: FBT001
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Case 9: the check waits where torch keeps its own until CUDA is first used, and is a warning users can filter."""
    queue: list[Any] = []
    cuda = SimpleNamespace(
        is_initialized=lambda: False,
        _queued_calls=queue,
        device_count=lambda: 1,
        get_device_capability=lambda _index: device,
    )
    monkeypatch.setitem(sys.modules, "torch", cast("ModuleType", SimpleNamespace(cuda=cuda)))
    module = module_of(tmp_path)
    variant = {"label": "it", "archs": {arch: archs.capabilities(arch)}}
    module._watch_devices(module.Choice({"torch": "2.8.0"}, [variant], variant, {}))
    ((check, trace),) = queue
    assert trace == ["  import my_pkg\n"]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check()
    text = f"my_pkg: no code of it runs on cuda:0 (capability {device[0]}.{device[1]}), only on {arch}. "
    assert [str(each.message) for each in caught] == ([] if runs else [f"{text}Try: pip install -U my-dist"])
    assert all(each.category is module.TorchExtWarning for each in caught)


def pruned_of(module: Any, *labels: str) -> None:
    """Let the installation be one from which `hatch-torch-ext prune` removed variants."""
    manifest = {"pruned": list(labels), "reinstall": "pip install --force-reinstall --no-deps my-dist==1.0"}
    (Path(module.ROOT) / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")


WAY_BACK = "  pip install --force-reinstall --no-deps my-dist==1.0"


def test_a_pruned_installation_says_so_and_knows_the_way_back(tmp_path: Path) -> None:
    """Case 94: no torch of a pruned variant is advised; the way back is first, and what is gone has no reason."""
    module = module_of(tmp_path, variant("old", "2.8"), variant("gone", "2.9"), variant("lost", "2.11"))
    pruned_of(module, "gone", "lost")
    module.facts = lambda: {**HERE, **TORCH}
    with pytest.raises(ImportError) as caught:
        module.choose()
    assert str(caught.value).splitlines() == [
        "my_pkg: none of its compiled variants (1) fits here.",
        "Here: torch 2.10.0 (CPU, the C++11 ABI), cp311, linux x86_64, glibc 2.36",
        "  old: built for torch 2.8, found 2.10.0",
        "Pruned from this installation: gone, lost. The way back:",
        WAY_BACK,
        "Or install a torch that it was built for:",
        '  pip install "torch==2.8.*"',
        "or a newer release, if there is one:",
        "  pip install -U my-dist",
        "More: python -m my_pkg._variants",
    ]
    assert module._part("help").explain().splitlines()[1:6] == [
        "  old: rejected: built for torch 2.8, found 2.10.0",
        "  gone: pruned from this installation",
        "  lost: pruned from this installation",
        "Pruned from this installation: gone, lost. The way back:",
        WAY_BACK,
    ]


def test_a_pruned_variant_that_would_fit_is_not_a_missing_file(tmp_path: Path) -> None:
    """Another torch came after `prune`: the error says pruned, not that a file cannot be read; the command tells it."""
    module = module_of(tmp_path, variant("fits", "2.10"), variant("old", "2.8"))
    pruned_of(module, "fits")
    module.facts = lambda: {**HERE, **TORCH}
    with pytest.raises(ImportError) as caught:
        module.path("libops.so")
    assert str(caught.value) == (
        f"my_pkg: fits fits, but was pruned from this installation. The way back: {WAY_BACK.strip()}"
    )
    assert module.choose().verdicts()["fits"] == "pruned from this installation, though it would be chosen"
    assert module.main([]) == 1
    pruned_of(module, "fits", "old")
    module.facts = lambda: {**HERE, **TORCH, "torch": "2.7.0"}
    with pytest.raises(ImportError) as caught:
        module.choose()
    head, _, way, back, newer, *_ = str(caught.value).splitlines()
    assert head == "my_pkg: all its variants were pruned from this installation."
    assert (way, back) == ("Pruned from this installation: old, fits. The way back:", WAY_BACK)
    assert newer == "Or a newer release, if there is one:"


@pytest.mark.performs("Take this pre-release of torch")
def test_a_vendors_torch_is_kept(tmp_path: Path) -> None:
    """Case 80: for a pre-release of the release that a variant is for, the opt-in is first, and pip keeps it."""
    vendor = {"torch": "2.9.0a0+145a3a7bda.nv25.10", "backend": "CUDA 13.0"}
    lines = refusal(tmp_path, vendor, variant("it", "2.9")).splitlines()
    assert lines[3:] == [
        "Take this pre-release of torch for its release, at your own risk:",
        "  export TORCH_EXT_PRERELEASE=1",
        "Or install a torch that it was built for:",
        '  pip install --force-reinstall "torch==2.9.*"',
        "or a newer release, if there is one:",
        "  pip install -U --no-deps my-dist",
        "More: python -m my_pkg._variants",
    ]
    module = module_of(tmp_path / "after", variant("it", "2.9"))
    module.facts = lambda: {**HERE, **TORCH, **vendor}
    name, _, value = lines[4].split()[1].partition("=")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(name, value)
        assert module.choose().label == "it"
