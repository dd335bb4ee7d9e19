"""docs/from-setuptools.md: its example and each row of its table, recorded by `init`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import disk
from hatch_torch_ext.init import migrating

if TYPE_CHECKING:
    from hatch_torch_ext.init.texts import Migration

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "from-setuptools.md").read_text(encoding="utf-8")
TABLE = PAGE.split("## What becomes of each argument")[1].split("torch's own `BuildExtension` adds")[0]
ADDED = PAGE.split("torch's own `BuildExtension` adds")[1].split("Not carried over")[0]
ROWS = [
    (argument, [each for each in re.findall(r"`([^`]+)`", cmake) if each != "target_compile_options"])
    for argument, cmake in re.findall(r"^\| `([^`]+)` \| (.+) \|$", TABLE, re.MULTILINE)
]
SETUP = """
import numpy
from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CUDAExtension
setup(
    name="my_pkg", version="1.0", packages=["my_pkg"], cmdclass={{"build_ext": BuildExtension}},
    ext_modules=[
{extensions}
    ],
)
"""


def project(root: Path, files: dict[str, str]) -> Path:
    """Write a project."""
    return disk.write(root, files)


def text_of(migration: Migration, name: str) -> str:
    """Return one of the files that `init` would write."""
    return dict(migration.files)[name]


def test_the_example(tmp_path: Path) -> None:
    """The CMake lines of the page are written, in this order, and nothing is left to the author."""
    (setup,) = re.findall(r"```python\n(# setup\.py\n.*?)```", PAGE, re.DOTALL)
    lines = re.findall(r"^becomes\n\n```cmake\n(.*?)```", PAGE, re.DOTALL | re.MULTILINE)[0]
    files = {"setup.py": setup, "my_pkg/__init__.py": "", "csrc/ops.cpp": "TORCH_LIBRARY(my_pkg, m) {}\n"}
    root = project(tmp_path / "p", {**files, "csrc/kernels.cu": ""})
    migration = migrating.migrate(root)
    written = text_of(migration, "CMakeLists.txt")
    assert lines in re.sub(r"^ *#.*\n", "", written, flags=re.MULTILINE)
    assert migration.notes == ()
    assert text_of(migration, "my_pkg/__init__.py") == "from my_pkg import _variants\n\n_variants.load()\n\n"


def test_every_row_of_the_table(tmp_path: Path) -> None:
    """One extension for each row, all of them recorded at once: what the page says is in CMakeLists.txt."""
    assert len(ROWS) == TABLE.count("\n|") - 2
    extensions = "\n".join(
        f'        CUDAExtension("my_pkg.row{n}", ["{"c" if "limited" in argument else "a"}.cpp", "k.cu"], {argument}),'
        for n, (argument, _) in enumerate(ROWS)
    )
    sources = {"a.cpp": "PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {}\n", "c.cpp": "PyMODINIT_FUNC PyInit_c(void);\n"}
    sources |= {"k.cu": "", "my_pkg/__init__.py": ""}
    root = project(tmp_path / "p", {"setup.py": SETUP.format(extensions=extensions), **sources})
    written = text_of(migrating.migrate(root), "CMakeLists.txt")
    missing = [
        line
        for n, (_, said) in enumerate(ROWS)
        for line in (each.replace("_C ", f"row{n} ") for each in said)
        if line not in (written if line.startswith("find_package") else _target(written, f"row{n}"))
    ]
    assert missing == []


def test_what_torchs_own_command_adds(tmp_path: Path) -> None:
    """Each definition of the second table is in CMakeLists.txt."""
    extension = '        CUDAExtension("my_pkg._C", ["a.cpp", "k.cu"]),'
    sources = {"a.cpp": "#include <torch/torch.h>\nPYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {}\n", "k.cu": ""}
    files = {"setup.py": SETUP.format(extensions=extension), **sources, "my_pkg/__init__.py": ""}
    written = text_of(migrating.migrate(project(tmp_path / "p", files)), "CMakeLists.txt")
    lines = re.findall(r"`(-D\w+|target_compile_definitions[^`]+)`", ADDED)
    assert len(lines) == 5
    assert [line for line in lines if line not in written] == []


def _target(written: str, name: str) -> str:
    """Return the lines about one target."""
    _, start, rest = written.partition(f"Python_add_library({name} ")
    return start + rest.partition(f"install(TARGETS {name} ")[0]


@pytest.mark.parametrize(
    ("setup", "word"),
    [
        pytest.param('import subprocess\nsubprocess.run(["make", "codegen"])', "runs `…`", id="a program"),
        pytest.param('open("made.h", "w").write("1")', "writes `…` while it runs", id="a file"),
        pytest.param(
            'import urllib.request\ntry:\n    urllib.request.urlopen("https://a.example/x")\nexcept OSError:\n    pass',
            "downloads …",
            id="a download",
        ),
    ],
)
def test_what_is_left_to_the_author_is_in_the_list(setup: str, word: str, tmp_path: Path) -> None:
    """The words of the note are those of the page's list."""
    extension = 'CUDAExtension("my_pkg._C", ["a.cpp"])'
    text = f"{setup}\n{SETUP.format(extensions=extension)}"
    root = project(tmp_path / "p", {"setup.py": text, "a.cpp": "", "my_pkg/__init__.py": ""})
    notes = [note.text for note in migrating.migrate(root).notes]
    assert word in PAGE
    assert [note for note in notes if re.match(re.escape(word).replace("…", ".+"), note)], notes
