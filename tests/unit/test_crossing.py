"""The Python of another machine: where its headers are searched for, and what replaces them."""

from __future__ import annotations

from pathlib import Path

import pytest

from hatch_torch_ext import config as configuration
from hatch_torch_ext import environments
from hatch_torch_ext.base.errors import ToolchainError
from hatch_torch_ext.config import Cross
from hatch_torch_ext.toolchain import crosscompiler
from hatch_torch_ext.values import Entry, Environment, Interpreter


def environment(prefix: Path) -> Environment:
    """Return an environment of x86-64's Python 3.11."""
    interpreter = Interpreter(
        version="3.11.2",
        tag="cp311",
        ext_suffix=".cpython-311-x86_64-linux-gnu.so",
        machine="x86_64",
        include=Path("/usr/include/python3.11"),
    )
    return Environment(
        prefix=prefix,
        python=prefix / "bin" / "python",
        bin=prefix / "bin",
        site_packages=prefix / "site-packages",
        interpreter=interpreter,
    )


def python_of(root: Path, machine: str) -> None:
    """Write headers as Debian lays them out: those of all machines, and one for each."""
    for folder in ("python3.11/cpython", f"{machine}-linux-gnu/python3.11"):
        (root / "usr" / "include" / folder).mkdir(parents=True)
    for name in ("Python.h", "patchlevel.h", "cpython/object.h"):
        (root / "usr" / "include" / "python3.11" / name).touch()
    choice = f"#if defined(__{machine}__)\n# include <{machine}-linux-gnu/python3.11/pyconfig.h>\n#endif\n"
    (root / "usr" / "include" / "python3.11" / "pyconfig.h").write_text(choice)
    (root / "usr" / "include" / f"{machine}-linux-gnu" / "python3.11" / "pyconfig.h").write_text("own")


def test_own_machine_changes_nothing(tmp_path: Path) -> None:
    """An entry for this machine has the environment as it is."""
    here = environment(tmp_path)
    assert environments.for_machine(here, Cross(machine="x86_64"), data=tmp_path) is here


def test_headers_of_debian_are_joined(tmp_path: Path) -> None:
    """Common headers and those of the machine are one folder; run twice, it is the same folder."""
    python_of(tmp_path / "debian", "aarch64")
    cross = Cross(machine="aarch64", python=str(tmp_path / "{python}").replace("{python}", "debian"))
    for _ in range(2):
        there = environments.for_machine(environment(tmp_path), cross, data=tmp_path / "work")
    assert there.cross
    assert there.interpreter.machine == "aarch64"
    assert there.interpreter.ext_suffix == ".cpython-311-aarch64-linux-gnu.so"
    include = there.interpreter.include
    assert sorted(path.name for path in include.iterdir()) == ["Python.h", "cpython", "patchlevel.h", "pyconfig.h"]
    assert (include / "pyconfig.h").read_text() == "own"
    assert (include / "cpython" / "object.h").is_file()


def test_headers_of_another_machine_are_not_taken(tmp_path: Path) -> None:
    """Debian's headers of x86-64 do not serve aarch64: a compile ends with an error that names the package."""
    python_of(tmp_path / "debian", "x86_64")
    cross = Cross(machine="aarch64", sysroot=str(tmp_path / "debian"))
    include = environments.for_machine(environment(tmp_path), cross, data=tmp_path).interpreter.include
    text = (include / "Python.h").read_text()
    assert text.startswith(
        "#error The headers of Python 3.11 for aarch64 are not installed: install libpython3.11-dev:arm64"
    )
    assert "cross.aarch64.python" in text
    assert (include / "patchlevel.h").read_text() == '#define PY_VERSION "3.11.2"\n'  # what CMake reads


def test_headers_of_a_prefix(tmp_path: Path) -> None:
    """A Python with one folder of headers is used if the author names it, for each version its own."""
    include = tmp_path / "python-3.11" / "include" / "python3.11"
    include.mkdir(parents=True)
    for name in ("Python.h", "pyconfig.h"):
        (include / name).touch()
    cross = Cross(machine="aarch64", python=f"{tmp_path}/python-{{python}}")
    assert environments.for_machine(environment(tmp_path), cross, data=tmp_path).interpreter.include == include


def test_a_named_folder_without_headers_is_told(tmp_path: Path) -> None:
    """The option names a folder that has none: the error of what includes them names it, not the option to set."""
    cross = Cross(machine="aarch64", python=f"{tmp_path}/none-{{python}}")
    include = environments.for_machine(environment(tmp_path), cross, data=tmp_path).interpreter.include
    text = (include / "Python.h").read_text()
    assert text == (
        f"#error The headers of Python 3.11 for aarch64 are not in {tmp_path}/none-3.11, which the option "
        "cross.aarch64.python names (include/python3.11/Python.h below it, or usr/include/python3.11/Python.h): name "
        "the folder into which libpython3.11-dev:arm64 was unpacked\n"
    )


COMPILER = """#!/bin/sh
case "$*" in *-dM*) printf '#define %s 1\\n' __aarch64__ __GNUC__ __GNUC_MINOR__ __GNUC_PATCHLEVEL__ ;; esac
"""


@pytest.mark.performs(": correct it, or remove it to use the C compiler beside")
def test_a_c_compiler_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program of `cross.aarch64.cc` is looked for before any work; corrected, or removed, one is found."""
    for name in "aarch64-linux-gnu-g++", "aarch64-linux-gnu-gcc":
        (tmp_path / name).write_text(COMPILER)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    entry = Entry(name="e", variables=(), dependencies=(), torch_requirement="torch", python=None)

    def found(cc: str | None) -> Path | None:
        options = {"package": "p", "cross": {"aarch64": {"cc": cc}} if cc is not None else {}}
        config = configuration.parse(options, root=tmp_path, project_name="p", environ={})
        return crosscompiler.compiler(entry, config, "aarch64", environ={})[1].cc

    (tmp_path / "p").mkdir()
    (tmp_path / "CMakeLists.txt").touch()
    for name, where in ("no-such-gcc", "is not on PATH"), ("/no/such/gcc", "does not exist"):
        with pytest.raises(ToolchainError) as caught:
            found(f"{name} -O1")
        assert str(caught.value) == (
            f"e: option `cross.aarch64.cc` names `{name}`, which {where}: correct it, or remove it to use the C "
            "compiler beside the C++ compiler"
        )
    for right in "aarch64-linux-gnu-gcc -O1", None:
        assert found(right) == tmp_path / "aarch64-linux-gnu-gcc"
