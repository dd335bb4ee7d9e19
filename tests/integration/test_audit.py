"""Opening files in a real torch: registrations, refusals, and crashes of the process are all reported."""

from __future__ import annotations

import dataclasses
import hashlib
import shlex
import subprocess
import venv
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import uv

import disk
import fake_torch
import trees
import values
import wheels
from hatch_torch_ext import audit, elf
from hatch_torch_ext.audit import opening, operators, symbols
from hatch_torch_ext.audit.subject import AuditedBinary, Subject
from hatch_torch_ext.base import process
from hatch_torch_ext.base.errors import ConfigurationError
from hatch_torch_ext.config import Config
from hatch_torch_ext.facts import registered
from hatch_torch_ext.facts.variant import BuiltVariant
from hatch_torch_ext.sdk import environment as sdk_environment
from hatch_torch_ext.values import Environment, InstallTree, Interpreter, Setup

if TYPE_CHECKING:
    from hatch_torch_ext.audit import Finding

# torch's own C functions, declared by hand: a file that registers compiles in a tenth of a second.
REGISTER = """
#include <stdint.h>
#include <stdio.h>
extern int32_t aoti_torch_library_init_def(const char*, const char*, uint32_t, void**);
extern int32_t aoti_torch_library_def(void*, const char*);
__attribute__((constructor)) static void registers(void) {
  void* library = 0;
  if (aoti_torch_library_init_def("%s", __FILE__, 1, &library) != 0) __builtin_abort();
  aoti_torch_library_def(library, "%s(Tensor x) -> Tensor");
}
"""
ABORTS = """
#include <stdio.h>
__attribute__((constructor)) static void f(void) { fputs("bad_alloc\\n", stderr); __builtin_abort(); }
"""
EXITS = "#include <stdlib.h>\n__attribute__((constructor)) static void f(void) { _Exit(3); }"
HANGS = "#include <unistd.h>\n__attribute__((constructor)) static void f(void) { for (;;) pause(); }"
WARNS = '__attribute__((constructor)) static void f(void) { fputs("UserWarning: of something else\\n", stderr); }'
AT_EXIT = "#include <stdlib.h>\n__attribute__((destructor)) static void f(void) { abort(); }"
MISSING = "extern int not_there(void); int f(void) { return not_there(); }"
OTHERS = """
#include <stdint.h>
extern int32_t aoti_torch_library_init_def(const char*, const char*, uint32_t%s);
__attribute__((constructor)) static void f(void) { %s }
"""
"""A call of torch as its release declares it, or as another release may."""
MODULE = """
#include <Python.h>
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "%s", 0, -1, 0};
PyMODINIT_FUNC PyInit_%s(void) { %s return PyModule_Create(&definition); }
"""


@pytest.fixture(scope="module")
def site(torch_cpu_python: Path) -> Path:
    """Return the site-packages of a Python that has torch."""
    command = [str(torch_cpu_python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    return Path(subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip())


@pytest.fixture(scope="module")
def include(torch_cpu_python: Path) -> str:
    """Return the folder of that Python's headers."""
    command = [str(torch_cpu_python), "-c", "import sysconfig; print(sysconfig.get_path('include'))"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def compiled(place: Path, source: str, *options: str, strip: bool = True) -> Path:
    """Compile a shared object from C at ``place``."""
    place.parent.mkdir(parents=True, exist_ok=True)
    command = ["gcc", "-shared", "-fPIC", *(["-s"] * strip), "-x", "c", "-", "-o", str(place), "-x", "none", *options]
    subprocess.run(command, check=True, input=source.encode(), cwd=place.parent)
    return place


def registering(place: Path, site: Path, namespace: str, name: str) -> Path:
    """Compile a library that defines one operator."""
    return compiled(place, REGISTER % (namespace, name), f"-L{site}/torch/lib", "-Wl,--no-as-needed", "-ltorch_cpu")


def binary(path: Path, *, module: str | None = None) -> AuditedBinary:
    """Return a file as the audit sees it."""
    return AuditedBinary(place=path.name, elf=elf.read(path), module=module)


def told(findings: tuple[Finding, ...]) -> list[tuple[str, str, str]]:
    """Return code, file and message of findings."""
    return [(item.code, item.file, item.message) for item in findings]


def test_everything_is_opened_and_a_crash_is_a_finding(
    torch_cpu_python: Path, site: Path, include: str, tmp_path: Path
) -> None:
    """CASE 12: a file that kills the process is reported with what it printed; the files after it are opened too."""
    files = [
        binary(registering(tmp_path / "a.so", site, "hte_audit", "fine")),
        binary(compiled(tmp_path / "b.so", ABORTS)),
        binary(compiled(tmp_path / "c.so", MISSING)),
        binary(registering(tmp_path / "d.so", site, "_C", "generic")),
        binary(compiled(tmp_path / "e.so", EXITS)),
        binary(compiled(tmp_path / "_m.so", MODULE % ("_m", "_m", ""), f"-I{include}"), module="sub._m"),
        binary(
            compiled(
                tmp_path / "_n.so",
                MODULE % ("_n", "_n", 'PyErr_SetString(PyExc_OSError, "no"); return 0;'),
                f"-I{include}",
            )
        ),
    ]
    opened = opening.open_all(torch_cpu_python, files, variant="label", package="pkg")
    assert told(opened.findings) == [
        ("crash", "b.so", "opening it kills the process (SIGABRT); it printed: bad_alloc"),
        ("cannot-open", "c.so", "does not open: OSError: c.so: undefined symbol: not_there"),
        ("crash", "e.so", "opening it ends the process with status 3 without a word"),
        ("cannot-open", "_n.so", "does not open: OSError: no"),
    ]
    assert opened.operators == {
        "a.so": {"hte_audit::fine"},
        "d.so": {"_C::generic"},
        "_m.so": frozenset(),
    }
    subject = Subject(variant="label", binaries=tuple(files))
    found = [(item.code, item.file) for item in operators.check(subject, opened=opened.operators)]
    assert found == [("generic-namespace", "d.so")]


@pytest.mark.performs('Export it there: `__attribute__((visibility("default")))` at its declaration')
def test_a_symbol_that_is_hidden_in_a_file_beside(torch_cpu_python: Path, tmp_path: Path) -> None:
    """No library is missing: the one that is linked has the symbol for itself. It is found without opening, too."""
    for attribute, messages in (
        ("hidden", ["needs not_there, which liba.so has, but hidden", "not_there, which liba.so has, but hidden"]),
        ("default", []),
    ):
        folder = tmp_path / attribute
        source = f'__attribute__((visibility("{attribute}"))) int not_there(void) {{ return 0; }}'
        compiled(folder / "liba.so", source, "-Wl,-soname,liba.so", strip=False)
        compiled(folder / "b.so", MISSING, "-Wl,--no-as-needed", str(folder / "liba.so"), "-Wl,-rpath,$ORIGIN")
        files = tuple(binary(folder / name) for name in ("liba.so", "b.so"))
        subject = Subject(variant="label", binaries=files, ours=True)
        opened = opening.open_all(torch_cpu_python, files[1:], variant="label", package="pkg", beside=files)
        found = [*(item for item in symbols.check(subject) if item.code == "missing-symbol"), *opened.findings]
        assert [(item.file, item.remedy) for item in found] == [("b.so", symbols.EXPORT)] * len(messages)
        assert all(item.message.endswith(words) for item, words in zip(found, messages, strict=True))


def test_a_static_function_is_not_a_hidden_symbol(tmp_path: Path) -> None:
    """It is another function of the same name; what a version script of the linker hides is hidden."""
    source = "static int not_there(void) { return 0; } int own(void) { return not_there(); }"
    disk.write(tmp_path, {"own.map": "{ local: *; };"})
    file = compiled(tmp_path / "liba.so", source, f"-Wl,--version-script={tmp_path}/own.map", strip=False)
    assert elf.defined(file) >= {"not_there", "own"}
    assert symbols.hiding([binary(file)]).keys() & {"not_there", "own"} == {"own"}


@pytest.mark.performs(
    "Compile it against the same torch release",
    "Link the library that is missing",
    "Link the library that has the symbol, or compile",
)
def test_what_was_compiled_anew_opens(torch_cpu_python: Path, site: Path, tmp_path: Path) -> None:
    """The library that was missing is linked, and a call is made as this torch declares it: both files open."""
    compiled(tmp_path / "libthere.so", "int not_there(void) { return 0; }", "-Wl,-soname,libthere.so")
    there = (str(tmp_path / "libthere.so"), "-Wl,-rpath,$ORIGIN")
    torch = (f"-L{site}/torch/lib", "-Wl,--no-as-needed", "-ltorch_cpu")
    wrong = OTHERS % (", void*", 'aoti_torch_library_init_def("hte_one", "f", 1, (void*)8);')
    right = OTHERS % (", void**", 'void* made = 0; aoti_torch_library_init_def("hte_two", "f", 1, &made);')
    files = [
        binary(compiled(tmp_path / "a.so", MISSING)),
        binary(compiled(tmp_path / "b.so", MISSING, *there)),
        binary(compiled(tmp_path / "c.so", wrong, *torch)),
        binary(compiled(tmp_path / "d.so", right, *torch)),
    ]
    opened = opening.open_all(torch_cpu_python, files, variant="label", package="pkg")
    assert [(item.code, item.file) for item in opened.findings] == [("cannot-open", "a.so"), ("crash", "c.so")]
    assert opened.operators.keys() == {"b.so", "d.so"}


def test_a_second_registration(torch_cpu_python: Path, site: Path, tmp_path: Path) -> None:
    """Two libraries that open one namespace: torch ends the process, and the audit says why, not only that."""
    source = '#include <torch/library.h>\nTORCH_LIBRARY(hte_audit, m) { m.def("f(Tensor x) -> Tensor"); }'
    includes = [f"-I{site}/torch/include", f"-I{site}/torch/include/torch/csrc/api/include"]
    torch = [f"-L{site}/torch/lib", "-Wl,--no-as-needed", "-ltorch_cpu", "-lc10"]
    one, other = tmp_path / "a.so", tmp_path / "b.so"
    command = ["g++", "-std=c++20", "-O0", "-shared", "-fPIC", "-x", "c++", "-", "-o", str(one), "-x", "none"]
    subprocess.run([*command, *includes, *torch], check=True, input=source.encode(), cwd=tmp_path)
    other.write_bytes(one.read_bytes())
    files = [binary(one), binary(other)]
    ((code, file, message),) = told(opening.open_all(torch_cpu_python, files, variant=None, package=None).findings)
    assert (code, file) == ("operator-twice", "b.so")
    assert message.startswith(
        "opening it kills the process (SIGABRT); it printed: terminate called after throwing an instance of "
        "'c10::Error' / what():  Only a single TORCH_LIBRARY can be used to register the namespace hte_audit;"
    )
    assert registered.read(one).whole == {"hte_audit"}


def two_of_one(folder: Path, site: Path, source: str, **differing: str) -> None:
    """Link torch's registrations, compiled once, with each of the C sources into ``folder/NAME.so``."""
    torch = [f"-I{site}/torch/include", f"-I{site}/torch/include/torch/csrc/api/include"]
    command = ["g++", "-std=c++20", "-O0", "-fPIC", *torch, "-c", "-x", "c++", "-", "-o", "both.o"]
    subprocess.run(command, check=True, input=source.encode(), cwd=folder)
    libraries = ["both.o", f"-L{site}/torch/lib", "-Wl,--no-as-needed", "-ltorch_cpu", "-lc10", "-lstdc++"]
    for name, text in differing.items():
        compiled(folder / f"{name}.so", text, *libraries, strip=False)


REFUSED = """
#include <ATen/core/Tensor.h>
#include <torch/library.h>
extern "C" const int is_wrong;
at::Tensor wrong(const at::Tensor& x, const c10::SymIntArrayRef& s) { return x; }
at::Tensor right(const at::Tensor& x, c10::SymIntArrayRef s) { return x; }
TORCH_LIBRARY(hte_refused, m) {
  constexpr char schema[] = "f(Tensor x, SymInt[] s) -> Tensor";
  is_wrong ? m.def(schema, &wrong) : m.def(schema, &right);
}
"""


@pytest.mark.performs("Correct what the exception says")
@pytest.mark.slow
def test_a_registration_that_torch_refuses(torch_cpu_python: Path, site: Path, tmp_path: Path) -> None:
    """Types that a schema cannot have (pytorch#163501): the finding has the whole reason, and its own remedy."""
    two_of_one(tmp_path, site, REFUSED, wrong="const int is_wrong = 1;", right="const int is_wrong = 0;")
    wrong, right = binary(tmp_path / "wrong.so"), binary(tmp_path / "right.so")
    assert opening.open_all(torch_cpu_python, [right], variant="label", package="pkg").findings == ()
    (found,) = opening.open_all(torch_cpu_python, [wrong], variant="label", package="pkg").findings
    assert (found.code, found.file, found.remedy) == ("crash", "wrong.so", opening.THROWN)
    assert "reason: Type mismatch in argument 2: int[] vs SymInt[]." in found.message
    assert "frame #" not in found.message


CLASS = """
#include <torch/custom_class.h>
struct Counter : torch::CustomClassHolder { int64_t next() { return 1; } };
extern "C" const char space[];
static auto registered = torch::class_<Counter>(space, "Counter").def(torch::init<>()).def("next", &Counter::next);
"""


@pytest.mark.performs("Register each class once")
@pytest.mark.slow
def test_a_class_that_is_registered_twice(torch_cpu_python: Path, site: Path, tmp_path: Path) -> None:
    """CASE 75: the process dies, and the finding says of what; under a name of its own each of both opens."""
    two_of_one(tmp_path, site, CLASS, one='const char space[] = "hte_one";', two='const char space[] = "hte_two";')
    (tmp_path / "again.so").write_bytes((tmp_path / "one.so").read_bytes())
    warning = binary(compiled(tmp_path / "a.so", "#include <stdio.h>\n" + WARNS))
    files = [warning, binary(tmp_path / "again.so"), binary(tmp_path / "one.so")]
    (found,) = opening.open_all(torch_cpu_python, files, variant="label", package="pkg").findings
    assert (found.code, found.file, found.warning) == ("class-twice", "one.so", False)
    assert found.message.startswith(
        "opening it kills the process (SIGABRT); it printed: terminate called after throwing an instance of "
        "'c10::Error' / what():  Custom class with name __torch__.torch.classes.hte_one.Counter is already registered."
    )
    both = [binary(tmp_path / "one.so"), binary(tmp_path / "two.so")]
    opened = opening.open_all(torch_cpu_python, both, variant="label", package="pkg")
    assert opened.findings == ()
    subject = Subject(variant="label", binaries=tuple(both), ours=True)
    assert [each.code for each in operators.check(subject)] == ["class-twice"]  # names in torch are not in the files
    assert list(operators.check(subject, opened=opened.operators)) == []


SHARED = """
#include <pybind11/pybind11.h>
struct Counter { int next() { return 1; } };
PYBIND11_MODULE(one, m) { pybind11::class_<Counter>(m, "Counter").def(pybind11::init<>()); }
PYBIND11_MODULE(two, m) { pybind11::class_<Counter>(m, "Counter").def(pybind11::init<>()); }
PYBIND11_MODULE(local, m) {
  pybind11::class_<Counter>(m, "Counter", pybind11::module_local()).def(pybind11::init<>());
}
"""


@pytest.mark.performs("use pybind11::module_local() in each")
@pytest.mark.slow
def test_a_class_of_pybind11_that_two_modules_define(
    torch_cpu_python: Path, site: Path, include: str, tmp_path: Path
) -> None:
    """The second module cannot be imported, and the finding says what helps: both have it for themselves."""
    flags = [f"-I{site}/torch/include", f"-I{include}", "-O0", "-std=c++17"]
    command = ["g++", "-shared", "-fPIC", "-x", "c++", "-", "-o", "one.so"]
    subprocess.run([*command, *flags], check=True, input=SHARED.encode(), cwd=tmp_path)
    modules = []
    for name in ("one", "two", "local"):  # each from a file of its own, which has them all
        path = tmp_path / f"{name}.so"
        path.write_bytes((tmp_path / "one.so").read_bytes())
        modules.append(dataclasses.replace(binary(path), module=name))
    one, two, local = modules
    (found,) = opening.open_all(torch_cpu_python, [one, two], variant="label", package="pkg").findings
    assert (found.code, found.file, found.warning) == ("class-twice", "two.so", False)
    assert found.message == 'does not open: ImportError: generic_type: type "Counter" is already registered!'
    assert found.remedy.endswith("use pybind11::module_local() in each.")
    assert opening.open_all(torch_cpu_python, [one, local], variant="label", package="pkg").findings == ()


HOOKS = """
#include <ATen/detail/PrivateUse1HooksInterface.h>
namespace { struct Hooks : at::PrivateUse1HooksInterface {}; Hooks hooks;
struct Given { Given() { at::RegisterPrivateUse1HooksInterface(&hooks); } } given; }
"""


@pytest.mark.performs("Let one library register it")
@pytest.mark.slow
def test_hooks_that_two_libraries_register(torch_cpu_python: Path, site: Path, tmp_path: Path) -> None:
    """The process dies, and the finding says of what; with one library of the two there is none."""
    command = ["g++", "-std=c++20", "-O0", "-shared", "-fPIC", "-x", "c++", "-", "-o", "one.so", "-x", "none"]
    flags = [f"-I{site}/torch/include", f"-L{site}/torch/lib", "-Wl,--no-as-needed", "-ltorch_cpu", "-lc10"]
    subprocess.run([*command, *flags], check=True, input=HOOKS.encode(), cwd=tmp_path)
    (tmp_path / "two.so").write_bytes((tmp_path / "one.so").read_bytes())
    one, two = binary(tmp_path / "one.so"), binary(tmp_path / "two.so")
    (found,) = opening.open_all(torch_cpu_python, [one, two], variant="label", package="pkg").findings
    assert (found.code, found.file, found.warning) == ("operator-twice", "two.so", False)
    assert found.remedy == "Let one library register it, which the others link."
    assert found.message.endswith("what():  PrivateUse1HooksInterface only could be registered once.")
    assert opening.open_all(torch_cpu_python, [one], variant="label", package="pkg").findings == ()


@pytest.mark.slow
def test_the_names_that_a_macro_stands_for(torch_cpu_python: Path, site: Path, tmp_path: Path) -> None:
    """CASE 65: two libraries of one source open two namespaces; optimised, their bytes have only the macro's name."""
    source = '#include <torch/library.h>\nTORCH_LIBRARY(LIBRARY_NAME, m) { m.def("f(Tensor x) -> Tensor"); }'
    flags = [f"-I{site}/torch/include", f"-I{site}/torch/include/torch/csrc/api/include", f"-L{site}/torch/lib"]
    files = []
    for name in ("_C", "hte_two"):
        command = ["g++", "-std=c++20", "-O3", "-shared", "-fPIC", f"-DLIBRARY_NAME={name}", "-x", "c++", "-"]
        path = tmp_path / f"{name}.so"
        after = ["-o", str(path), "-x", "none", *flags, "-Wl,--no-as-needed", "-ltorch_cpu", "-lc10"]
        subprocess.run([*command, *after], check=True, input=source.encode(), cwd=tmp_path)
        files.append(binary(path))
        assert registered.read(path).whole == {"LIBRARY_NAME"}
    opened = opening.open_all(torch_cpu_python, files, variant="label", package="pkg")
    assert opened.findings == ()
    assert opened.operators == {"_C.so": {"_C::f"}, "hte_two.so": {"hte_two::f"}}
    subject = Subject(variant="label", binaries=tuple(files), ours=True)
    assert told(tuple(operators.check(subject, opened=opened.operators))) == [
        ("generic-namespace", "_C.so", "registers operators in the namespace `_C`")
    ]


@pytest.mark.slow
def test_a_crash_at_the_end_and_one_that_never_ends(torch_cpu_python: Path, tmp_path: Path) -> None:
    """A library that crashes when the process ends, and one whose opening does not end, are findings."""
    at_exit = [binary(compiled(tmp_path / "a.so", AT_EXIT))]
    assert told(opening.open_all(torch_cpu_python, at_exit, variant=None, package=None).findings) == [
        ("crash", "a.so", "after it was opened well, opening it kills the process (SIGABRT) without a word")
    ]
    hangs = [binary(compiled(tmp_path / "b.so", HANGS))]
    assert told(opening.open_all(torch_cpu_python, hangs, variant=None, package=None, timeout=15).findings) == [
        ("crash", "b.so", "opening it did not finish without a word")
    ]


TORCH = """
import types
from torch import version
__version__ = version.__version__
_C = types.SimpleNamespace(_GLIBCXX_USE_CXX11_ABI=True, _dispatch_get_all_op_names=list)
"""


@pytest.mark.performs("Install one, such as", "Name the Python itself")
def test_a_python_without_torch(tmp_path: Path) -> None:
    """A path that is none, and a Python without torch, are errors with a remedy; an environment is its Python."""
    assert opening.probe(tmp_path / "python") is None
    path = wheels.write(tmp_path, {"a/__init__.py": b""}, name="a-1-py3-none-any.whl", pure=True)
    with pytest.raises(ConfigurationError) as caught:
        audit.audit_wheel(path, open_with=tmp_path / "python")
    assert str(caught.value) == (
        f"`--python`: {tmp_path}/python is not a program. Name the Python itself, by its path."
    )
    venv.create(tmp_path / "an env", symlinks=True)
    python = tmp_path / "an env" / "bin" / "python"
    with pytest.raises(ConfigurationError) as caught:
        audit.audit_wheel(path, open_with=tmp_path / "an env")
    command = f"uv pip install --python '{python}' torch"
    assert str(caught.value) == (
        f"`--python`: {python} has no torch that can be imported, so nothing can be opened. Install one, such as "
        f"by `{command}`, or name another Python."
    )
    (tmp_path / "index").mkdir()
    files = fake_torch.contents("2.8.0+cpu", cuda=None, extra={"torch/__init__.py": TORCH.encode()})
    (tmp_path / "index" / "torch-2.8.0+cpu-py3-none-any.whl").write_bytes(fake_torch.wheel(files))
    program, *arguments = shlex.split(command)
    assert program == "uv"
    index = tmp_path / "index"
    settings = {"UV_DEFAULT_INDEX": index.as_uri(), "UV_FIND_LINKS": str(index), "UV_NO_CONFIG": "1"}
    process.run([uv.find_uv_bin(), *arguments], env_changes={**settings, "UV_CACHE_DIR": str(tmp_path / "cache")})
    assert audit.audit_wheel(path, open_with=tmp_path / "an env") == ()
    assert audit.audit_wheel(path, open_with=python) == ()


@pytest.mark.performs("Repair that installation")
def test_a_python_whose_torch_is_broken(tmp_path: Path) -> None:
    """CASE 124: a torch that cannot be imported is reported as such, with Python's words; mended, it is used."""
    path = wheels.write(tmp_path, {"a/__init__.py": b""}, name="a-1-py3-none-any.whl", pure=True)
    venv.create(tmp_path / "env", symlinks=True)
    python = tmp_path / "env" / "bin" / "python"
    (packages,) = (tmp_path / "env" / "lib").glob("python*/site-packages")
    files = fake_torch.contents("2.8.0+cpu", cuda=None, extra={"torch/__init__.py": TORCH.encode()})
    disk.write(packages, files)
    init = packages / "torch" / "__init__.py"
    for broken, words in (
        ("raise ImportError('libfoo.so.1: cannot open shared object file')", "ImportError: libfoo.so.1: cannot open"),
        ("from torch import _C", "ImportError: cannot import name '_C'"),
        ("import os; os.abort()", "importing it kills the process (SIGABRT)"),
    ):
        init.write_text(broken)
        with pytest.raises(ConfigurationError) as caught:
            audit.audit_wheel(path, open_with=python)
        told = str(caught.value)
        what = f"`--python`: the torch of {python} cannot be imported, so nothing can be opened"
        assert told.startswith(f"{what}: {words}")
        command = told.partition("Repair that installation (`")[2].partition("`")[0]
        assert subprocess.run(shlex.split(command), capture_output=True, check=False).returncode
    init.write_bytes(TORCH.encode())
    assert subprocess.run(shlex.split(command), capture_output=True, check=False).returncode == 0
    assert audit.audit_wheel(path, open_with=python) == ()


@pytest.mark.slow
def test_only_what_is_for_this_torch_is_opened(torch_cpu_python: Path, site: Path, tmp_path: Path) -> None:
    """Of a wheel's variants those are opened that the loader may choose here; one for another torch is left alone."""
    good = registering(tmp_path / "good.so", site, "_C", "generic").read_bytes()
    bad = compiled(tmp_path / "bad.so", ABORTS).read_bytes()
    labels = {"torch2.13_cpu_cxx11_x86_64": ("2.13", good), "torch2.8_cpu_cxx11_x86_64": ("2.8", bad)}
    built = []
    for label, (torch, data) in labels.items():
        files = {f"{label}/libx.so": data}
        built.append((wheels.variant(label, files, torch=torch, libc_floor="2.2"), files))
    findings = audit.audit_wheel(wheels.ours(tmp_path, built), open_with=torch_cpu_python)
    assert [(item.code, item.variant) for item in findings] == [("generic-namespace", "torch2.13_cpu_cxx11_x86_64")]


@pytest.mark.slow
def test_a_foreign_wheel_is_opened(torch_cpu_python: Path, site: Path, tmp_path: Path) -> None:
    """Modules and registering libraries of a foreign wheel are opened where its Python fits; a refusal is a warning."""
    library = registering(tmp_path / "x.so", site, "ops", "f").read_bytes()
    broken = compiled(
        tmp_path / "y.so", MISSING, f"-L{site}/torch/lib", "-Wl,--no-as-needed", "-ltorch_cpu"
    ).read_bytes()
    path = wheels.write(
        tmp_path, {"a/x.so": library, "a/y.so": broken}, name="a-1-py3-none-linux_x86_64.whl", requires=["torch>=2.13"]
    )
    findings = audit.audit_wheel(path, open_with=torch_cpu_python)
    assert [(item.code, item.file, item.warning) for item in findings] == [
        ("generic-namespace", "a/x.so", True),
        ("missing-symbol", "a/y.so", True),
    ]
    other = path.rename(tmp_path / "a-1-cp39-cp39-linux_x86_64.whl")
    assert [item.code for item in audit.audit_wheel(other, open_with=torch_cpu_python)] == ["missing-symbol"]


def test_the_audit_of_a_built_variant(torch_cpu_python: Path, site: Path, include: str, tmp_path: Path) -> None:
    """What every build runs: the files of a variant are checked against its own torch and opened in it."""
    label = "torch2.13_cpu_cxx11_x86_64"
    place = tmp_path / "repaired" / label / "libx.so"
    registering(place, site, "ops", "f")
    data = place.read_bytes()
    described = wheels.variant(label, {f"{label}/libx.so": data}, torch="2.13")
    assert described.files[0].sha256 == hashlib.sha256(data).hexdigest()
    interpreter = Interpreter(version="3.11", tag="cp311", ext_suffix=".so", machine="x86_64", include=Path(include))
    environment = Environment(
        prefix=torch_cpu_python.parent.parent,
        python=torch_cpu_python,
        bin=torch_cpu_python.parent,
        site_packages=site,
        interpreter=interpreter,
    )
    entry = values.entry(name="matrix.2.13", torch_requirement="torch==2.13.*", python="3.11")
    sdk = sdk_environment.acquire(entry, environment)
    config = Config(root=tmp_path, package="my_pkg", package_dir=tmp_path, source=tmp_path)
    tree = InstallTree(
        prefix=tmp_path / "install", files=(), log=tmp_path / "log", compiler="GNU", build_dirs=(tmp_path,)
    )
    built = BuiltVariant(variant=described, root=tmp_path / "repaired")
    setup = Setup(
        entry=entry, config=config, environment=environment, sdk=sdk, toolchain=trees.toolchain(), folder=tmp_path
    )

    def findings(**changes: object) -> list[tuple[str, bool]]:
        found = audit.audit_variant(
            built,
            dataclasses.replace(setup, config=dataclasses.replace(config, **changes)),  # type: ignore[arg-type]
            tree,
            exports={"libtorch_cpu.so": frozenset({"aoti_torch_library_def"}), "libc10.so": frozenset()},
        )
        return [(item.code, item.warning) for item in found]

    assert findings() == [("undefined-symbol", False), ("generic-namespace", True)]
    assert findings(ignore=("undefined-symbol", "generic-namespace")) == []
