"""``init`` runs a setup.py that a test wrote, under the recording torch, and never builds or touches the project."""

from __future__ import annotations

import re
import shutil
import sys
import zipfile
from typing import TYPE_CHECKING, Any

import pytest
from hatchling.builders.wheel import WheelBuilder

import disk
import warm
from hatch_torch_ext.base import process
from hatch_torch_ext.base.errors import ConfigurationError
from hatch_torch_ext.init import migrating, recording
from hatch_torch_ext.init.served import MatrixOptions
from hatch_torch_ext.init.texts import Note

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from hatch_torch_ext.init.recording import Recording

USUAL = """
import os, glob, subprocess, sys
import torch
from setuptools import setup, find_packages, Extension
from torch.utils.cpp_extension import BuildExtension, CppExtension, CUDAExtension, CUDA_HOME

class Build(BuildExtension):
    def run(self):
        raise SystemExit("built")

sources = glob.glob(os.path.join("csrc", "*.cpp"))
common = dict(include_dirs=["csrc\\\\include"], define_macros=[("A", "1"), ("B", None)])
extensions = [CppExtension("pkg._C", sources, extra_compile_args=["-O3"], **common)]
if (torch.cuda.is_available() and CUDA_HOME is not None) or os.getenv("FORCE_CUDA", "0") == "1":
    capability = torch.cuda.get_device_capability()
    extensions = [CUDAExtension("pkg._C", sources + glob.glob("csrc/*.cu"), extra_compile_args={
        "cxx": ["-O3"], "nvcc": ["-gencode", "arch=compute_%d%d" % capability]}, dlink=True, **common)]
extensions.append(Extension("pkg.plain", ["csrc\\\\plain.c"], libraries=["m"]))
flavour = os.environ.get("PKG_FLAVOUR", "plain")
subprocess.check_call(["protoc", "x.proto"])
open("written.txt", "w").write("x")
setup(name="pkg", packages=find_packages(), ext_modules=extensions, cmdclass={"build_ext": Build})
"""
CONFIGURED = "[metadata]\nname = pkg-by-cfg\nversion = 1.5\n[options]\ninstall_requires =\n    numpy\n"


def project(root: Path, setup: str | bytes | None, **files: str) -> Path:
    """Write a project and return its folder."""
    disk.write(root, {"pkg/__init__.py": "", **files})
    if setup is not None:
        (root / "setup.py").write_bytes(setup if isinstance(setup, bytes) else setup.encode())
    return root


def recorded(root: Path, extra: Sequence[str] = (), **more: Any) -> tuple[Recording, Recording]:
    """Record a project in an environment of its own."""
    with recording.environment(root, extra) as (python, _):
        cpu, cuda, notes = recording.record(root, python, **more)
    assert cpu is not None, notes
    assert cuda is not None, notes
    return cpu, cuda


@pytest.fixture
def usual(tmp_path: Path) -> Path:
    """Return a project as they are: C++ and CUDA, plain C, a command of its own, a program, a file."""
    sources = {f"csrc/{name}": "" for name in ("b.cpp", "a.cpp", "k.cu", "plain.c")}
    return project(tmp_path / "project", USUAL, **sources, **{"setup.cfg": CONFIGURED})


def listing(root: Path) -> list[tuple[str, bytes]]:
    """Return every file with its content."""
    return [
        (path.relative_to(root).as_posix(), path.read_bytes()) for path in sorted(root.rglob("*")) if path.is_file()
    ]


def test_both_faces_are_recorded_and_the_project_is_not_touched(usual: Path) -> None:
    """Sources in a fixed order, POSIX paths, flags by compiler; what it did besides is reported with its line."""
    before = listing(usual)
    cpu, cuda = recorded(usual)
    assert listing(usual) == before
    first, plain = cpu.extensions
    assert (first.name, first.kind, first.sources) == ("pkg._C", "cpp", ("csrc/a.cpp", "csrc/b.cpp"))
    assert (first.include_dirs, first.macros, first.cxx) == (("csrc/include",), (("A", "1"), ("B", None)), ("-O3",))
    assert (plain.name, plain.kind, plain.sources, plain.libraries) == ("pkg.plain", "other", ("csrc/plain.c",), ("m",))
    with_cuda = cuda.extensions[0]
    assert (with_cuda.kind, with_cuda.sources) == ("cuda", ("csrc/a.cpp", "csrc/b.cpp", "csrc/k.cu"))
    assert (with_cuda.nvcc, with_cuda.dlink) == (("-gencode", "arch=compute_90"), True)
    assert (cpu.metadata["name"], cpu.metadata["version"], cpu.metadata["packages"]) == ("pkg-by-cfg", "1.5", ["pkg"])
    assert cpu.metadata["install_requires"] == ["numpy"]
    assert cpu.variables == cuda.variables == ("PKG_FLAVOUR",)
    assert set(cpu.notes) == {
        Note(line=7, text="the command `build_ext` is replaced by `Build`"),
        Note(line=20, text="runs `protoc x.proto`"),
        Note(line=0, text="writes `written.txt` while it runs"),
    }


def test_metadata_in_every_form_that_setuptools_takes(tmp_path: Path) -> None:
    """Texts of several lines, iterators, extras with markers, entry points as an .ini file."""
    text = """
from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
import versioneer
class Wheel(bdist_wheel):
    def get_tag(self):
        return ("py3", "none", super().get_tag()[2])
setup(name="pkg", cmdclass={"bdist_wheel": Wheel}, ext_modules=[Extension("pkg._C", ["a.c"])],
      install_requires="torch\\n# no\\nnumpy>1; python_version > '3.8'", packages=iter(["pkg"]),
      extras_require={"all": "six\\nattrs", ":os_name == 'a'": ["old"], "fast:os_name == 'b'": ["w ; x == '1'"]},
      entry_points="[console_scripts]\\nRun = pkg:main\\n[other]\\na=b:c", data_files=[("share", ["x.txt"])])
"""
    cpu, _ = recorded(project(tmp_path, text, **{"versioneer.py": ""}))
    assert cpu.metadata == {
        "name": "pkg",
        "install_requires": ["torch", "numpy>1; python_version > '3.8'", "old; os_name == 'a'"],
        "packages": ["pkg"],
        "extras_require": {"all": ["six", "attrs"], "fast": ["w; (x == '1') and (os_name == 'b')"]},
        "entry_points": {"console_scripts": ["Run = pkg:main"], "other": ["a = b:c"]},
        "data_files": [["share", ["x.txt"]]],
    }
    assert cpu.tag == "py3-none"
    assert [note.text for note in cpu.notes] == [
        "the command `bdist_wheel` is replaced by `Wheel`",
        "its version is versioneer's: the one of today is written; for versions out of tags, see hatch-vcs",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("packages", ['packages = ["pkg"]', ""], ids=["named", "found by setuptools"])
def test_what_pyproject_says_to_setuptools(packages: str, tmp_path: Path) -> None:
    """Packages of [tool.setuptools], or those that setuptools finds itself; requirements in a file."""
    tables = f"""
[project]
name = "pkg"
version = "1"
dynamic = ["dependencies", "optional-dependencies"]
[tool.setuptools]
{packages}
[tool.setuptools.dynamic]
dependencies = {{ file = ["requirements.txt"] }}
optional-dependencies.test = {{ file = ["test.txt"] }}
"""
    setup = "from setuptools import setup\nsetup()\n"
    files = {"pyproject.toml": tables, "requirements.txt": "torch\nsix\n", "test.txt": "pytest\n"}
    cpu, _ = recorded(project(tmp_path, setup, **files))
    assert cpu.metadata == {
        "packages": ["pkg"],
        "install_requires": ["torch", "six"],
        "extras_require": {"test": ["pytest"]},
    }


FAILS = "fails when it is recorded as a machine without CUDA: "


@pytest.mark.slow
@pytest.mark.parametrize(
    ("setup", "message"),
    [
        ("raise ValueError('no luck')", f"setup.py (line 1) {FAILS}ValueError: no luck"),
        ("import sys\nsys.exit(3)", f"setup.py (line 2) {FAILS}calls sys.exit(3) before setup()"),
        (
            "import sys\nprint('clone the submodules')\nsys.exit(1)",
            "calls sys.exit(1) before setup(), and prints:\nclone the submodules",
        ),
        (
            "\nimport nowhere_to_be_found",
            "setup.py (line 2) imports `nowhere_to_be_found`, which is not available: add",
        ),
        (b"x = 1\ny = '\xe4'", f"setup.py (line 2) {FAILS}SyntaxError: (unicode error)"),
        ("print('hello')", f"setup.py {FAILS}never calls setup()"),
        (
            "import setuptools\nsetuptools.setup(project_urls=['x'])",
            f"setup.py (line 2) {FAILS}TypeError: the argument `project_urls` of setup() must be a dict: ['x']",
        ),
        (
            "import urllib.request\nurllib.request.urlopen('https://example.org')",
            f"setup.py (line 2) {FAILS}OSError: no network while setup.py is recorded. Put what it downloads",
        ),
    ],
)
def test_a_setup_that_does_not_come_to_its_end(setup: str | bytes, message: str, tmp_path: Path) -> None:
    """The error gives the line, the cause and a remedy."""
    with pytest.raises(ConfigurationError) as raised:
        recorded(project(tmp_path, setup))
    assert message in str(raised.value)


@pytest.mark.performs("then run `init` again")
def test_a_setup_that_downloads(tmp_path: Path) -> None:
    """What it fetches, put into its place, is not fetched: the remedy of the message, performed."""
    text = (
        "import os, urllib.request\nfrom setuptools import Extension, setup\n"
        "if not os.path.exists('third/x.h'):\n    urllib.request.urlretrieve('https://example.org', 'third/x.h')\n"
        "setup(name='pkg', ext_modules=[Extension('pkg.plain', ['plain.c'], include_dirs=['third'])])\n"
    )
    root = project(tmp_path, text, **{"third/readme": ""})
    with pytest.raises(
        ConfigurationError, match=r"recorded\. Put what it downloads into its place in the project, then"
    ):
        recorded(root)
    (root / "third" / "x.h").touch()
    assert recorded(root)[0].extensions[0].include_dirs == ("third",)


@pytest.mark.performs("Make a folder `{}` with", "if a file has it, name that file")
def test_a_package_and_a_version_that_setup_does_not_say(tmp_path: Path) -> None:
    """The remedies of both messages, performed: the folder that is named, and the version that hatchling reads."""
    text = (
        "from setuptools import Extension, setup\nsaid = {}\nexec(open('about.py').read(), said)\n"
        "setup(name='My-Pkg', version=said['__version__'], ext_modules=[Extension('plain', ['plain.c'])])\n"
    )
    root = project(tmp_path, text, **{"plain.c": PLAIN, "about.py": "__version__ = '3.4'\n"})
    folder = re.findall("Make a folder `(.*?)` with an empty `(.*?)`", command(root, check=False).stderr)[0]
    root.joinpath(*folder).parent.mkdir()
    root.joinpath(*folder).touch()
    told = command(root, "--torch", "2.8", "--python", "3.11").stderr
    assert "the matrix has 1 entry, each" in told
    assert "3.4, which it gives now, is written: if a file has it, name that file as `path` in `[tool.hatch" in told
    tables = (root / "pyproject.toml").read_text(encoding="utf-8")
    assert 'version = "3.4"\ndynamic = ["dependencies"]' in tables
    moved = tables.replace('version = "3.4"\ndynamic = [', 'dynamic = ["version", ')
    (root / "pyproject.toml").write_text(f'{moved}\n[tool.hatch.version]\npath = "about.py"\n', encoding="utf-8")
    (root / "about.py").write_text("__version__ = '3.5'\n", encoding="utf-8")
    read = warm.run([sys.executable, "-m", "hatchling", "metadata", "version"], cwd=root)
    assert read.stdout.strip() == "3.5"


def test_a_setup_in_another_encoding_that_says_so(tmp_path: Path) -> None:
    """Latin-1 with its declaration is read as Python reads it."""
    text = "# -*- coding: latin-1 -*-\nfrom setuptools import setup\nsetup(name='pkg', author='J\xf6rg')\n"
    cpu, _ = recorded(project(tmp_path, text.encode("latin-1")))
    assert cpu.metadata["author"] == "J\xf6rg"


def test_a_setup_that_hangs(tmp_path: Path) -> None:
    """It is ended, and its input is empty: nothing waits for an answer."""
    root = project(tmp_path, "import time\ntime.sleep(600)\n")
    with pytest.raises(ConfigurationError, match=r"did not finish within 5 s"):
        recorded(root, timeout=5)


@pytest.mark.performs("add `--with")
def test_a_package_that_is_named_is_at_hand(tmp_path: Path) -> None:
    """The remedy of a missing import works; a package that no index has is reported as such."""
    text = "import iniconfig\nfrom setuptools import setup\nsetup(name=iniconfig.__name__)\n"
    root = project(tmp_path, text)
    with pytest.raises(ConfigurationError, match="add `--with iniconfig`"):
        recorded(root)
    cpu, _ = recorded(root, extra=["iniconfig"])
    assert cpu.metadata["name"] == "iniconfig"
    with pytest.raises(ConfigurationError, match=r"no-such-package-of-ours\) cannot be installed"):
        recorded(root, extra=["no-such-package-of-ours"])


@pytest.mark.performs("leave `--cpu` out")
def test_a_setup_only_for_cuda(tmp_path: Path) -> None:
    """One recording is enough: a note gives the line at which setup.py refuses the other, and every entry has CUDA."""
    text = (
        "import torch\nfrom setuptools import setup\nfrom torch.utils.cpp_extension import CUDAExtension\n"
        "if not torch.cuda.is_available(): raise RuntimeError('needs CUDA')\n"
        "setup(name='pkg', packages=['pkg'], ext_modules=[CUDAExtension('pkg_cuda', ['k.cu'])])\n"
    )
    root = project(tmp_path, text, **{"k.cu": "PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {}\n"})
    said = command(root, "--dry-run", "--torch", "2.8", "--torch", "2.13", "--python", "3.11")
    assert "by hand: setup.py:4: setup.py (line 4) fails when it is recorded as a machine without CUDA" in said.stderr
    assert "the project is carried over only with CUDA" in said.stderr
    assert "by hand: torch 2.8 has no entry with CUDA, since the index has no compiler for its CUDA" in said.stderr
    assert '+torch = ["2.13"]\n+python = ["3.11"]\n+cuda = ["cu130"]\n' in said.stdout
    assert "+project(pkg LANGUAGES CXX CUDA)\n" in said.stdout
    assert "leave `--cpu` out" in command(root, "--dry-run", "--cpu", check=False).stderr


def test_a_setup_that_builds_nothing_without_cuda(tmp_path: Path) -> None:
    """Entries for the CPU would install nothing: every entry has CUDA, and a note says what becomes of the import."""
    text = (
        "import torch\nfrom setuptools import setup\nfrom torch.utils.cpp_extension import CUDAExtension\n"
        "made = [CUDAExtension('pkg._C', ['k.cu'])] if torch.cuda.is_available() else None\n"
        "setup(name='pkg', packages=['pkg'], ext_modules=made)\n"
    )
    root = project(tmp_path, text, **{"k.cu": "PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {}\n"})
    said = command(root, "--dry-run", "--torch", "2.13", "--python", "3.11")
    assert f"by hand: {migrating.NOTHING_WITHOUT_CUDA}" in said.stderr
    assert '+torch = ["2.13"]\n+python = ["3.11"]\n+cuda = ["cu130"]\n' in said.stdout
    assert "+project(pkg LANGUAGES CXX CUDA)\n" in said.stdout
    assert "leave `--cpu` out" in command(root, "--dry-run", "--cpu", check=False).stderr


INSISTS = """
import os, shutil, subprocess, torch
from setuptools import setup, Extension
from setuptools.command.build_ext import build_ext
try:
    import iniconfig
except ImportError:
    iniconfig = None
if not torch.__version__ > "2.9" or not torch.__version__ >= (2, 10) or torch.__version__ == "no version":
    raise RuntimeError("versions are compared by number")
if torch.cuda.is_available() and "TORCH_CUDA_ARCH_LIST" not in os.environ:
    raise RuntimeError("set TORCH_CUDA_ARCH_LIST")
archs = (torch._C._cuda_getArchFlags() or "").split()
with open("pkg/_built.py", "w") as stream:
    stream.write(f"TORCH = '{torch.__version__}'\\nCUDA = {torch.version.cuda!r}\\n")

class Build(build_ext):
    def build_extension(self, extension):
        os.makedirs(self.build_temp, exist_ok=True)
        flags = f"-DWITH_TESTS=OFF -DTORCH={torch.__path__[0]} -DCUDA={torch.version.cuda}"
        os.system(f"cd {self.build_temp}\\ncmake -G Ninja {flags} {os.getcwd()}\\nmake -j")
        self.spawn([shutil.which("cmake"), "--build", "."])
        shutil.copy("there/is/none.so", self.build_lib)

setup(name=str(iniconfig and iniconfig.__name__), packages=["pkg"], version="1", cmdclass={"build_ext": Build},
      ext_modules=[Extension("_ops", [])])
"""


def test_what_a_setup_insists_on(tmp_path: Path) -> None:
    """It has what pyproject.toml requires, and architectures; its stamps and what it gives to CMake are known."""
    needs = '[build-system]\nrequires = ["setuptools", "torch>=2", "iniconfig"]\n'
    cmake = "project(ops CXX)\nadd_library(core SHARED core.cpp)\npybind11_add_module(_ops ops.cpp)\n"
    files = {"pyproject.toml": needs, "CMakeLists.txt": cmake, "core.cpp": "", "ops.cpp": "PYBIND11_MODULE(_ops, m) {}"}
    root = project(tmp_path, INSISTS, **files)
    cpu, cuda = recorded(root, torch="2.13")
    assert cpu.metadata["name"] == "iniconfig"
    assert cpu.stamps == (("pkg/_built.py", "TORCH = '@Torch_VERSION@'\nCUDA = None\n"),)
    assert cuda.stamps == (("pkg/_built.py", "TORCH = '@Torch_VERSION@'\nCUDA = '13.0'\n"),)
    assert cpu.commanded == {"source": ".", "args": ["-DWITH_TESTS=OFF", "-DCUDA=None"]}
    migration = migrating.assemble(root, cpu, cuda, [], options=MatrixOptions(torch=["2.13"], pythons=["3.11"]))
    files = dict(migration.files)
    assert 'args = ["-DWITH_TESTS=OFF", "-DCUDA=None"]' in files["pyproject.toml"]
    installed = "install(TARGETS core LIBRARY DESTINATION .)\ninstall(TARGETS _ops LIBRARY DESTINATION .)\n"
    assert files["CMakeLists.txt"] == f"{cmake}\n{installed}"
    assert [note.text for note in migration.notes] == [
        "writes `pkg/_built.py` while it runs",
        "reads TORCH_CUDA_ARCH_LIST, whose place the option `archs` takes: the sources and macros that depend on it "
        "are those with 9.0 in it",
    ]


@pytest.mark.performs("--argument")
def test_a_setup_that_waits_for_a_word(tmp_path: Path) -> None:
    """Extensions that are declared by a word on the command line: the remedy of the message, performed."""
    text = (
        "import sys\nfrom setuptools import setup, Extension\n"
        "given = [Extension('pkg.plain', ['plain.c'])] if 'ext' in sys.argv else print('no ext') or []\n"
        "setup(name='pkg', version='1', packages=['pkg'], ext_modules=given)\n"
    )
    root = project(tmp_path, text, **{"plain.c": PLAIN})
    said = command(root, "--dry-run", check=False).stderr
    assert "add `--argument ext`. It prints:\nno ext\n" in said
    assert "Python_add_library(plain MODULE" in command(root, "--dry-run", "--argument", "ext").stdout
    (root / "CMakeLists.txt").write_text("project(pkg CXX)\n")
    said = command(root, "--dry-run", check=False).stderr
    assert 'there is a CMake project in `.`: keep that, with `source = "."` in the hook\'s table, and' in said


@pytest.mark.slow
def test_a_setup_that_asks_torch_for_more(tmp_path: Path) -> None:
    """If setup.py fails without them, names that the recording torch lacks are accepted at any depth, and noted."""
    text = (
        "import abc, torch\nfrom setuptools import setup\nfrom torch._C import parse_schema\n"
        "from torch.distributed.tensor import DTensor\n"
        "class Function(torch.autograd.Function, abc.ABC): pass\n"
        "@torch.jit.script\ndef f(x: DTensor): return x\n"
        "memory = torch.mps.current_allocated_memory() + int(torch.finfo(0).bits) or parse_schema('f()')[0]\n"
        "setup(name='pkg' if not memory and torch.mps.is_available() is False else 'other')\n"
    )
    cpu, _ = recorded(project(tmp_path / "asks", text))
    assert cpu.metadata["name"] == "pkg"
    asked = "torch._C.parse_schema, torch.distributed.tensor.DTensor, torch.autograd, torch.jit, torch.mps.current_"
    assert [note.text.startswith(f"asks torch for {asked}") for note in cpu.notes] == [True]


def test_what_a_setup_takes_for_missing_is_reported(tmp_path: Path) -> None:
    """A setup.py that goes another way where torch lacks a name says nothing: the note is all that tells of it."""
    text = (
        "import torch\nfrom setuptools import setup\nfrom torch.utils import cpp_extension\n"
        "try:\n    from torch.distributed import rpc\nexcept ImportError:\n    rpc = None\n"
        "known = 'OpenMP' in torch._C._parallel_info() and hasattr(torch.version, 'hip')\n"
        "setup(name=str([known, rpc, hasattr(torch, 'npu'), getattr(cpp_extension, 'NEW', 'old')]))\n"
    )
    cpu, cuda = recorded(project(tmp_path, text))
    assert cpu.metadata["name"] == cuda.metadata["name"] == "[True, None, False, 'old']"
    asked = "torch.distributed, torch.npu, torch.utils.cpp_extension.NEW"
    note = Note(line=0, text=f"asks torch for {asked}, which a recording does not know: refused as unknown")
    assert cpu.notes == cuda.notes == (note,)


def test_what_every_extension_gets_from_elsewhere(tmp_path: Path) -> None:
    """Arguments of setup() and options of `build_ext` hold for each: a lost macro computes otherwise."""
    text = (
        "from os.path import abspath\n"
        "from setuptools import setup, Extension\nfrom torch.utils.cpp_extension import CppExtension\n"
        "setup(name='pkg', packages=['pkg'], ext_package='pkg', include_dirs=['third'], libraries=[('helper', {})],\n"
        "      package_dir={'pkg': abspath('pkg')}, data_files=[('share', [abspath('a.txt'), '/etc/b'])],\n"
        "      options={'build_ext': {'undef': 'NDEBUG'}}, ext_modules=[\n"
        "    CppExtension('_C', ['c.cpp'], include_dirs=['own'], define_macros=[('A', '2')]),\n"
        "    Extension('plain', ['p.c'])])\n"
    )
    configured = "[build_ext]\ndefine = WITH_X,N\nlibrary-dirs = a:b\nlibraries = m z\n"
    configured += "[bdist_wheel]\npy_limited_api = cp39\nplat_name = manylinux2014_x86_64\nbuild_number = 3\n"
    configured += "[egg_info]\ntag_build = .dev0\n"
    cpu, _ = recorded(project(tmp_path, text, **{"setup.cfg": configured}))
    first, second = cpu.extensions
    assert (first.name, second.name) == ("pkg._C", "pkg.plain")
    assert (first.include_dirs, second.include_dirs) == (("own", "third"), ("third",))
    assert (first.macros, second.macros) == ((("A", "2"), ("WITH_X", "1"), ("N", "1")), (("WITH_X", "1"), ("N", "1")))
    for each in cpu.extensions:
        assert (each.undefined, each.library_dirs, each.libraries) == (("NDEBUG",), ("a", "b"), ("m", "z"))
    assert cpu.tag == "cp39-abi3"
    assert cpu.metadata["package_dir"] == {"pkg": "pkg"}  # not where the recording ran
    assert cpu.metadata["data_files"] == [["share", ["a.txt", "/etc/b"]]]
    assert [note.text for note in cpu.notes] == [
        "setup.cfg adds `.dev0` to each version (`tag_build`), which is not carried over",
        "builds the static library `helper` by the argument `libraries` of setup()",
        "the platform `manylinux2014_x86_64` (`plat_name` of bdist_wheel) is not carried over: the tag says what the "
        "files need, and the hook's option `manylinux` asks for a policy",
        "the build number `3` (`build_number` of bdist_wheel) is not carried over",
    ]
    (tmp_path / "setup.cfg").unlink()
    text = "[tool.distutils.build_ext]\ninclude-dirs = 'other'\ndefine = 'FROM_TOML'\n"
    # Newer than the Python of a recording; setuptools reads it only beside a table of its own.
    text += "[tool.distutils.bdist_wheel]\npy-limited-api = 'cp313'\n[tool.setuptools]\nzip-safe = false\n"
    (tmp_path / "pyproject.toml").write_text(text, encoding="utf-8")
    cpu, _ = recorded(tmp_path)
    assert [each.include_dirs for each in cpu.extensions] == [("own", "other"), ("other",)]
    assert cpu.extensions[1].macros == (("FROM_TOML", "1"),)
    assert cpu.tag == "cp313-abi3"


def test_a_setup_whose_schemes_are_functions(tmp_path: Path) -> None:
    """Options of setuptools-scm go to hatch-vcs; what is a function is named, since pyproject.toml cannot hold it."""
    text = (
        "from setuptools import setup\nfrom torch.utils.cpp_extension import CppExtension\n"
        "setup(name='pkg', packages=['pkg'], ext_modules=[CppExtension('pkg._C', ['c.cpp'])], use_scm_version={\n"
        "    'version_scheme': lambda version: '1', 'local_scheme': 'no-local-version', 'relative_to': __file__})\n"
    )
    said = command(project(tmp_path, text, **{"c.cpp": "PYBIND11_MODULE(_C, m) {}\n"}), "--dry-run")
    table = '+[tool.hatch.version]\n+source = "vcs"\n+\n+[tool.hatch.version.raw-options]\n'
    assert f'{table}+local_scheme = "no-local-version"\n' in said.stdout
    assert "by hand: the option `version_scheme` of setuptools-scm is code" in said.stderr


@pytest.mark.performs("Move `{}.py` to")
def test_a_module_that_is_not_a_package(tmp_path: Path) -> None:
    """An extension beside a single module needs a package: the module becomes one, as the message says."""
    text = (
        "import ops_of_mine\nfrom setuptools import setup\nfrom torch.utils.cpp_extension import CppExtension\n"
        "setup(name='ops-of-mine', version=ops_of_mine.__version__, py_modules=['ops_of_mine'],\n"
        "      ext_modules=[CppExtension('ops_cpp', ['c.cpp'])])\n"
    )
    sources = {"c.cpp": "PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {}\n"}
    module = "__version__ = '1.2'\ndef f():\n    import ops_cpp\n"
    root = project(tmp_path, text, **sources, **{"ops_of_mine.py": module})
    shutil.rmtree(root / "pkg")
    said = command(root, "--dry-run", check=False).stderr
    assert "Move `ops_of_mine.py` to `ops_of_mine/__init__.py`: its import stays `ops_of_mine`." in said
    (root / "ops_of_mine").mkdir()
    (root / "ops_of_mine.py").rename(root / "ops_of_mine" / "__init__.py")
    turned = command(root, "--dry-run")
    assert '+packages = ["ops_of_mine"]\n' in turned.stdout
    assert "+    from ops_of_mine import ops_cpp\n" in turned.stdout
    assert '+version = "1.2"\n' in turned.stdout


def test_a_setup_that_tries_cuda(tmp_path: Path) -> None:
    """An extension for CUDA cannot be declared on a machine without, as with torch: what is caught is caught."""
    text = (
        "from setuptools import setup\nfrom torch.utils.cpp_extension import CppExtension, CUDAExtension\n"
        "found = [CppExtension('pkg.a', ['a.cpp'])]\n"
        "try:\n    found.append(CUDAExtension('pkg.b', ['b.cu']))\nexcept OSError:\n    pass\n"
        "setup(name='pkg', ext_modules=found)\n"
    )
    cpu, cuda = recorded(project(tmp_path, text))
    assert [[each.name for each in found.extensions] for found in (cpu, cuda)] == [
        ["pkg.a"],
        ["pkg.a", "pkg.b"],
    ]


def test_files_that_are_written_again_are_reported(tmp_path: Path) -> None:
    """A note names each file of the project that setup.py rewrites: its content depends on this machine."""
    text = (
        "from setuptools import setup\nopen('pkg/_build.py', 'w').write('TORCH = \"2.8\"')\n"
        "import numpy, pybind11, sysconfig\nfrom torch.utils.cpp_extension import CppExtension\n"
        "folders = [numpy.get_include(), pybind11.get_include(), sysconfig.get_path('include'), 'csrc']\n"
        "setup(name='pkg', ext_modules=[CppExtension('pkg._C', ['a.cpp'], include_dirs=folders)])\n"
    )
    cpu, _ = recorded(project(tmp_path, text, **{"pkg/_build.py": "TORCH = None", "a.cpp": ""}))
    assert cpu.notes == (Note(line=0, text="writes `pkg/_build.py` while it runs"),)
    assert (cpu.extensions[0].packages, cpu.extensions[0].include_dirs) == (("numpy", "pybind11"), ("csrc",))


def test_a_version_file_that_setup_writes(tmp_path: Path) -> None:
    """A hook of hatchling's writes it from then on, where the package imports it; a note says what stays as it is."""
    text = (
        "from setuptools import Extension, setup\n"
        "open('pkg/version.py', 'w').write('__version__ = \"1.4\"\\nTAGS = {}\\n')\n"
        "setup(name='pkg', version='1.4', packages=['pkg'], ext_modules=[Extension('pkg.plain', ['plain.c'])])\n"
    )
    root = project(tmp_path, text, **{"plain.c": PLAIN})
    said = command(root, "--torch", "2.13", "--python", "3.11").stderr
    assert f"by hand: {recording.WRITES_VERSION.format('pkg/version.py')}\n" in said
    assert not (root / "pkg" / "version.py").exists()
    tables = (root / "pyproject.toml").read_text(encoding="utf-8")
    (root / "pyproject.toml").write_text(tables.replace('version = "1.4"', 'version = "1.5"'), encoding="utf-8")
    hook = WheelBuilder(str(root)).get_build_hooks(str(tmp_path))["version"]
    data: dict[str, Any] = {"artifacts": []}
    hook.initialize("standard", data)
    assert data["artifacts"] == ["/pkg/version.py"]
    assert (root / "pkg" / "version.py").read_text(encoding="utf-8") == '__version__ = "1.5"\nTAGS = {}\n'


def test_extensions_that_a_variable_asks_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The remedy of the message, performed; folders of a build are left out of git then."""
    text = (
        "import os\nfrom setuptools import setup, Extension\n"
        "given = [Extension('pkg.plain', ['plain.c'])] if os.environ.get('PKG_BUILD') == '1' else []\n"
        "setup(name='pkg', version='1', packages=['pkg'], ext_modules=given)\n"
    )
    root = project(tmp_path, text, **{"plain.c": PLAIN, ".gitignore": "*.o\n/dist"})
    assert "It reads PKG_BUILD: `PKG_BUILD=1 hatch-torch-ext init` sets one" in command(root, check=False).stderr
    monkeypatch.setenv("PKG_BUILD", "1")
    assert "PKG_BUILD" not in command(root).stderr  # it is set, and what it does is carried over
    assert (root / ".gitignore").read_text(encoding="utf-8") == "*.o\n/dist\n/build/\n"


def test_submodules_that_are_not_checked_out(tmp_path: Path) -> None:
    """An empty folder of a submodule, or of one inside of it, is named with the command that fills it."""
    text = (
        "import glob\nfrom setuptools import setup, Extension\n"
        "setup(name='pkg', version='1', packages=['pkg'], ext_modules=["
        "Extension('pkg.plain', ['plain.c', *glob.glob('third/inner/*.c')])])\n"
    )
    module = '[submodule "x"]\n\tpath = {}\n\turl = ../x\n'
    files = {".gitmodules": module.format("third"), "third/.gitmodules": module.format("inner"), "plain.c": PLAIN}
    root = project(tmp_path, text, **files)
    (root / ".git").mkdir()
    told = command(root, "--dry-run").stderr
    assert ".gitmodules names the submodule third/inner, and that folder is empty. Check it out: `git -C " in told
    (root / "third" / "inner").mkdir()
    (root / "third" / "inner" / "a.c").write_text("", encoding="utf-8")
    assert "submodule" not in command(root, "--dry-run").stderr
    (root / "third" / "inner" / "a.c").unlink()
    (root / "setup.py").write_text("import sys\nprint('clone it')\nsys.exit(1)\n", encoding="utf-8")
    told = command(root, "--dry-run", check=False).stderr
    assert "prints:\nclone it\n" in told
    assert ".gitmodules names the submodule third/inner, and that folder is empty" in told
    assert "2 problems" not in told  # CASE 89: the second is the cause of the first


def test_data_that_a_manifest_names(tmp_path: Path) -> None:
    """SOURCES.txt of an sdist, MANIFEST.in, and what git tracks where setuptools-scm is used: each is package data."""
    setup = (
        "from setuptools import setup, Extension\nsetup(name='pkg', version='1', packages=['pkg'], "
        "include_package_data=True, ext_modules=[Extension('pkg.plain', ['pkg/plain.c'])])\n"
    )
    files = {"MANIFEST.in": "include pkg/a.txt\n", "pkg.egg-info/SOURCES.txt": "pkg/b.txt\n", "pkg/plain.c": PLAIN}
    files |= {f"pkg/{name}.txt": "" for name in "abc"}
    root = project(tmp_path / "project", setup, **files)
    cpu, _ = recorded(root)
    data = {installed for installed, _ in cpu.packed or () if not installed.endswith(".py")}
    assert data == {"pkg/a.txt", "pkg/b.txt", "pkg/plain.c"}
    (root / "pyproject.toml").write_text('[build-system]\nrequires = ["setuptools", "setuptools-scm"]\n', "utf-8")
    process.run(["git", "init", "-q"], cwd=root)
    process.run(["git", "add", "pkg/c.txt"], cwd=root)
    cpu, _ = recorded(root)
    assert ("pkg/c.txt", "pkg/c.txt") in (cpu.packed or ())


def command(root: Path, *options: str, check: bool = True) -> process.Completed:
    """Run ``hatch-torch-ext init``."""
    return warm.run([sys.executable, "-m", "hatch_torch_ext", "init", *options], cwd=root, check=check)


PLAIN = """
#define PY_SSIZE_T_CLEAN
#include <Python.h>
static struct PyModuleDef def = {PyModuleDef_HEAD_INIT, "plain", NULL, -1, NULL};
PyMODINIT_FUNC PyInit_plain(void) {
    PyObject *m = PyModule_Create(&def);
    PyModule_AddIntConstant(m, "answer", ANSWER);
    return m;
}
"""
SETUP = """
from setuptools import setup, Extension
setup(name="pkg", version="1", license="MIT", packages=["pkg"],
      ext_modules=[Extension("pkg.plain", ["plain.c"], define_macros=[("ANSWER", "42")]),
                   Extension("other.more", ["more.c"], define_macros=[("ANSWER", "43")])])
"""


@pytest.mark.performs("remove it when the wheel is right", "import it from there")
def test_from_setup_py_to_a_wheel(tmp_path: Path, torch_cpu_python: Path) -> None:
    """``--dry-run`` writes nothing; ``init`` writes; a second one is refused; what it wrote is built and imported.

    A module of another package is imported from where the note says.
    """
    files = {"plain.c": PLAIN, "more.c": PLAIN.replace("plain", "more"), "pkg/__init__.py": "from . import plain\n"}
    root = project(tmp_path / "project", SETUP, **files)
    before = listing(root)
    options = ("--torch", "2.13", "--python", "3.11")
    shown = command(root, "--dry-run", *options)
    told = "by hand: `other.more` is put into `pkg`, since a wheel's variants are in one package: import it from there"
    assert told in shown.stderr.splitlines()
    assert listing(root) == before
    assert command(root, *options).stdout == shown.stdout
    assert "CMakeLists.txt is there: `--force` replaces it" in command(root, *options, check=False).stderr
    assert [name for name, _ in listing(root)] == [
        ".gitignore", "CMakeLists.txt", "more.c", "pkg/__init__.py", "plain.c", "pyproject.toml", "setup.py",
    ]  # fmt: skip
    build: list[str | Path] = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path / "dist"]
    warm.run(build, cwd=root)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    assert wheel.name.startswith("pkg-1-cp311-cp311-")
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as zipped:  # as an installer does
        zipped.extractall(site)
    code = f"import sys; sys.path.insert(0, {str(site)!r}); import pkg; print(pkg.plain.answer)\n"
    code += "from pkg import more; print(more.answer)"
    assert process.run([torch_cpu_python, "-P", "-c", code], cwd=tmp_path).stdout == "42\n43\n"


KEPT = """
cmake_minimum_required(VERSION 3.18)
project(${SKBUILD_PROJECT_NAME} LANGUAGES C)
find_package(Python REQUIRED COMPONENTS Interpreter Development.Module)
set(KIND SHARED) # so that `init` does not know what to install
add_library(plain ${KIND} plain.c)
target_compile_definitions(plain PRIVATE ANSWER=42)
target_link_libraries(plain PRIVATE Python::Module)
set_target_properties(plain PROPERTIES PREFIX "")
"""


@pytest.mark.performs("add `install(TARGETS … LIBRARY DESTINATION .)`")
def test_from_scikit_build_core_to_a_wheel(tmp_path: Path, torch_cpu_python: Path) -> None:
    """CMake's own project stays, and installs what its rules name: the wheel has the module, under the package."""
    pyproject = (
        '[build-system]\nrequires = ["scikit-build-core"]\nbuild-backend = "scikit_build_core.build"\n'
        '[project]\nname = "pkg"\nversion = "1"\ndependencies = ["torch"]\n'
    )
    files = {"CMakeLists.txt": KEPT, "plain.c": PLAIN, "pkg/__init__.py": "from . import plain\n"}
    root = project(tmp_path / "project", None, **files, **{"pyproject.toml": pyproject})
    done = command(root, "--torch", "2.13", "--python", "3.11")
    assert "by hand: CMakeLists.txt installs nothing: add `install(TARGETS" in done.stderr
    assert (root / "CMakeLists.txt").read_text(encoding="utf-8") == KEPT
    with (root / "CMakeLists.txt").open("a", encoding="utf-8") as stream:
        stream.write("install(TARGETS plain LIBRARY DESTINATION .)\n")
    warm.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path / "dist"], cwd=root)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as zipped:
        zipped.extractall(site)
    code = f"import sys; sys.path.insert(0, {str(site)!r}); import pkg; print(pkg.plain.answer)"
    assert process.run([torch_cpu_python, "-P", "-c", code], cwd=tmp_path).stdout == "42\n"


OPS = """
#define TORCH_LIBRARY(name, m) extern "C" int name##_answer() // stands for torch's, which takes long to compile
TORCH_LIBRARY(pkg, m) { return 42; }
"""
BIND = """
#include <Python.h>
extern "C" int pkg_answer();
static PyObject *answer(PyObject *, PyObject *) { return PyLong_FromLong(pkg_answer()); }
static PyMethodDef methods[] = {{"answer", answer, METH_NOARGS, nullptr}, {nullptr, nullptr, 0, nullptr}};
static PyModuleDef def = {PyModuleDef_HEAD_INIT, "_C", nullptr, -1, methods};
PyMODINIT_FUNC PyInit__C() { return PyModule_Create(&def); }
"""


@pytest.mark.performs("`init --split --force`")
@pytest.mark.slow
def test_a_module_parted_in_two(tmp_path: Path, torch_cpu_python: Path) -> None:
    """`--split`: the wheel has a library for every Python and a module that calls it; without, one module."""
    text = (
        "from setuptools import setup\nfrom torch.utils.cpp_extension import BuildExtension, CppExtension\n"
        "setup(name='pkg', version='1', packages=['pkg'], cmdclass={'build_ext': BuildExtension},\n"
        "      ext_modules=[CppExtension('pkg._C', ['ops.cpp', 'bind.cpp'])])\n"
    )
    files = {"ops.cpp": OPS, "bind.cpp": BIND, "pkg/__init__.py": "from . import _C\n"}
    root = project(tmp_path / "project", text, **files)
    options = ("--torch", "2.13", "--python", "3.11", "--python", "3.12")
    told = command(root, "--dry-run", *options).stderr
    gain = "the wheel has the operators in 1 file instead of 2, which serve every Python, and C++ programs"
    assert f"`pkg._C` registers operators and has functions for Python: `init --split` splits it, and {gain}" in told
    told = command(root, "--split", *options[:4]).stderr
    assert "`pkg._C` is split: in `pkg_c_ops` the operators serve every Python, and C++ programs; the module" in told
    warm.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path / "dist"], cwd=root)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as zipped:
        compiled = sorted(name.rpartition("/")[2] for name in zipped.namelist() if ".so" in name)
        zipped.extractall(site)
    assert [re.split(r"[-.]", name)[0] for name in compiled] == ["_C", "libpkg_c_ops"]
    code = f"import sys; sys.path.insert(0, {str(site)!r}); import pkg; print(pkg._C.answer())"
    assert process.run([torch_cpu_python, "-P", "-c", code], cwd=tmp_path).stdout == "42\n"
