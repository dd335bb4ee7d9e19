"""Install trees of tiny shared libraries, compiled by gcc, and the inputs of a repair; no torch is needed."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from cmake import CMAKE_BIN_DIR

import loaders
import values
import wheels
from hatch_torch_ext import audit, merge, repair
from hatch_torch_ext.config import CMakeConfig, Config
from hatch_torch_ext.facts.backend import Backend
from hatch_torch_ext.values import Environment, InstallTree, Interpreter, Sdk, Setup, Tool, Toolchain

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hatch_torch_ext.facts.variant import BuiltVariant, VariantFile

MACHINE = "x86_64"
TORCH_CALL = """
void _ZN3c106detail14torchCheckFailEPKcS2_jS2_(void);
void f(void) { _ZN3c106detail14torchCheckFailEPKcS2_jS2_(); }
"""
TORCH = {
    "libc10.so": "void _ZN3c106detail14torchCheckFailEPKcS2_jS2_(void) {}",
    "libtorch_cpu.so": "void _ZN2at4_ops9add_Tensor4callEv(void) {} void aoti_torch_library_def(void) {}",
    "libc10_cuda.so": "void _ZN3c104cuda20getCurrentCUDAStreamEa(void) {}",
    "libtorch_cuda.so": "void _ZN2at4cuda28getCurrentDevicePropertiesEv(void) {}",
    "libtorch_python.so": "void THPVariable_Wrap(void) {}",
    "libtorch.so": "",
    "libgomp-a34b3233.so.1": "void GOMP_parallel(void) {}",
}
TORCH_MODULE = """
import ctypes
from types import SimpleNamespace
__version__ = "2.8.0+cpu"
version = SimpleNamespace(cuda=None, hip=None)
_C = SimpleNamespace(_GLIBCXX_USE_CXX11_ABI=True)
opened = []
ops = SimpleNamespace(load_library=lambda path: opened.append(path) or ctypes.CDLL(path))
"""
"""A torch with what the loader uses; it records which files are opened."""


def compile_library(
    target: Path, source: str, *, soname: str | None = None, links: Iterable[Path] = (), options: Iterable[str] = ()
) -> Path:
    """Compile C ``source`` into the shared library ``target``, linked with ``links`` even if it does not need them."""
    target.parent.mkdir(parents=True, exist_ok=True)
    code = target.with_name(f"{target.name}.c")
    code.write_text(source + "\n", encoding="utf-8")
    name = [f"-Wl,-soname,{soname or target.name}"] if soname != "" else []
    linked = ["-Wl,--no-as-needed", *map(str, links)]
    command = ["gcc", "-w", "-shared", "-fPIC", "-o", str(target), str(code), *name, *options, *linked]
    subprocess.run(command, check=True)
    code.unlink()
    return target


@dataclass(kw_only=True)
class Site:
    """A folder with the layout of site-packages that has a torch of stubs, and an install tree beside it."""

    root: Path
    stubs: Path
    cuda: str | None = None
    package: str = "pkg"
    machine: str = MACHINE
    said: list[str] = field(default_factory=list)

    @property
    def prefix(self) -> Path:
        """Return the prefix that "CMake" installs into."""
        return self.root / "work" / "e" / "install"

    @property
    def torch(self) -> Path:
        """Return the folder of torch's libraries, filled on first use."""
        folder = self.root / "site" / "torch" / "lib"
        if not folder.exists():
            folder.mkdir(parents=True)
            for stub in self.stubs.iterdir():
                if self.cuda is not None or "cuda" not in stub.name:
                    shutil.copyfile(stub, folder / stub.name)
        return folder

    def add(self, place: str, source: str, **options: object) -> Path:
        """Compile a library into the install tree."""
        return compile_library(self.prefix / place, source, **options)  # type: ignore[arg-type]

    def sdk(self, *, nvidia: Mapping[str, str] | None = None) -> Sdk:
        """Return the SDK of the stub torch."""
        return Sdk(
            kind="environment",
            version="2.8.0+cpu" if self.cuda is None else "2.8.0",
            backend=Backend.of_cuda(self.cuda),
            cxx11_abi=True,
            cxx_standard=17,
            prefix=self.torch.parent,
            library_dir=self.torch,
            include_dirs=(),
            libraries=tuple(sorted(path.name for path in self.torch.iterdir())),
            nvidia_libraries=tuple(sorted((nvidia or {}).items())),
        )

    def config(self, **changes: object) -> Config:
        """Return a configuration; ``define`` are CMake's definitions."""
        define = changes.pop("define", ())
        base: dict[str, object] = {"root": self.root, "package": self.package, "package_dir": self.root}
        base["source"] = self.root
        return Config(**{**base, "cmake": CMakeConfig(define=define), **changes})  # type: ignore[arg-type]

    def tree(self, flags: str = "") -> InstallTree:
        """Return the install tree, as "CMake" left it."""
        files = sorted(
            path.relative_to(self.prefix).as_posix()
            for path in self.prefix.rglob("*")
            if path.is_symlink() or not path.is_dir()
        )
        return InstallTree(
            prefix=self.prefix,
            files=tuple(files),
            log=self.root / "log.txt",
            compiler="GNU 12.2.0",
            flags=(("CXX", flags),) if flags else (),
        )

    def interpreter(self) -> Interpreter:
        """Return the Python that the variant is for."""
        return Interpreter(
            version="3.11.7",
            tag="cp311",
            ext_suffix=".cpython-311-x86_64-linux-gnu.so",
            machine=self.machine,
            include=Path(sysconfig.get_path("include")),
        )

    def repair(
        self,
        *,
        config: Config | None = None,
        sdk: Sdk | None = None,
        stable: bool = False,
        flags: str = "",
        cuda: str | None = None,
    ) -> BuiltVariant:
        """Repair the install tree; messages are appended to ``said``. ``cuda`` is the entry's variable."""
        entry = values.entry(
            name="e",
            torch_requirement="torch==2.8.*",
            stable_abi=stable,
            cuda=cuda,
        )
        setup = replace(self.setup(config or self.config(), sdk or self.sdk()), entry=entry)
        return repair.repair(setup, self.tree(flags), report=self.said.append)

    def setup(self, config: Config, sdk: Sdk) -> Setup:
        """Return the build that left the install tree."""
        environment = Environment(
            prefix=self.root,
            python=Path(sys.executable),
            bin=self.root,
            site_packages=self.root / "site",
            interpreter=self.interpreter(),
        )
        entry = values.entry(name="e", torch_requirement="torch==2.8.*")
        return Setup(
            entry=entry,
            config=config,
            environment=environment,
            sdk=sdk,
            toolchain=toolchain(),
            folder=self.root / "work" / entry.folder,
        )

    def audit(self, built: BuiltVariant, config: Config) -> list[audit.Finding]:
        """Return the findings of the build's own audit; nothing is opened."""
        setup = self.setup(config, replace(self.sdk(), kind="thin"))
        return [*audit.audit_variant(built, setup, self.tree())]

    def wheel(self, built: BuiltVariant, folder: Path, *, record: str | None = None) -> Path:
        """Write the wheel of one variant, with its manifest, in the merge's layout."""
        folder.mkdir(parents=True, exist_ok=True)
        layout = merge.merge([built], package=self.package, distribution="my-pkg")
        members = {f"{self.package}/{file.target}": file.source.read_bytes() for file in layout.files}
        members |= {
            f"{self.package}/__init__.py": f"from {self.package} import _variants\n_variants.load()\n".encode(),
            f"{self.package}/places.py": f"from {self.package} import _variants\nplace = _variants.path\n".encode(),
            f"{self.package}/_torch_ext/manifest.json": layout.manifest.encode(),
        }
        return wheels.write(folder, members, name=f"my_pkg-1.0-{layout.tag}.whl", record=record)

    def install_wheel(self, *variants: BuiltVariant) -> Path:
        """Install the package with its loader, as the wheel of ``variants`` does, beside a small torch."""
        layout = merge.merge(variants, package=self.package, distribution="my-pkg")
        folder = self.root / "site" / Path(*self.package.split("."))
        for compiled in [*self.root.joinpath("site").rglob("__pycache__")]:  # of one second and one size, it would stay
            shutil.rmtree(compiled)
        for file in layout.files:
            (folder / file.target).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file.source, folder / file.target)
        (folder / "__init__.py").touch()
        loaders.write(folder, layout, distribution="my-pkg")
        (self.torch.parent / "__init__.py").write_text(TORCH_MODULE, encoding="utf-8")
        return folder

    def python(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run Python, with the site on its path, in a process of its own."""
        environ = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(self.root / "site")}
        return subprocess.run([sys.executable, *arguments], env=environ, capture_output=True, text=True, check=False)

    def install(self, built: BuiltVariant) -> Path:
        """Put the variant where a wheel would; return its folder ``_torch_ext`` in the site."""
        folder = self.root / "site" / Path(*self.package.split(".")) / "_torch_ext"
        shutil.copytree(built.root, folder)
        return folder


def make_stubs(folder: Path) -> None:
    """Fill ``folder`` with libraries that have the names of torch's, with a symbol or two each."""
    for name, source in TORCH.items():
        compile_library(folder / name, source)


def toolchain() -> Toolchain:
    """Return this machine's toolchain, as far as a repair uses it."""
    tool = Tool(path=Path(program("gcc")), version="12.2.0")
    return Toolchain(
        cmake=Tool(path=Path("cmake"), version="3.31.0"),
        ninja=tool,
        cxx=tool,
        patchelf=Tool(path=Path(program("patchelf")), version="0.17.2"),
        strip=Path(program("strip")),
        objcopy=Path(program("objcopy")),
    )


def program(name: str) -> str:
    """Return the path of a program that the tests need: CMake itself, not the script that starts it."""
    beside = Path(CMAKE_BIN_DIR if name == "cmake" else sysconfig.get_path("scripts")) / name
    found = str(beside) if beside.exists() else shutil.which(name)
    assert found is not None, f"the tests need {name}"
    return found


def file_of(built: BuiltVariant, name: str) -> VariantFile:
    """Return the file of the variant whose path ends with ``name``."""
    found = [file for file in built.variant.files if file.path.endswith(name)]
    assert len(found) == 1, [file.path for file in built.variant.files]
    return found[0]


def opens(library: Path) -> subprocess.CompletedProcess[str]:
    """Open ``library`` in a new process; call ``f`` if the library has it."""
    code = f"import ctypes, os; lib = ctypes.CDLL({str(library)!r}, mode=os.RTLD_NOW); getattr(lib, 'f', int)()"
    return subprocess.run(
        [sys.executable, "-c", code], env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True, check=False
    )
