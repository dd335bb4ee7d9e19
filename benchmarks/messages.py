"""Each message of the loader, a first use, doctor, prune and install in its state, and whether its first command helps.

    PYTHONPATH=tests python benchmarks/messages.py [--write] [-v] [WORDS OF A STATE ...]

Every state is made in a fresh environment with a tiny torch, and something is typed in it. The first command that is
printed is typed in a shell then, and after it the same as before: does it work now? ``pip`` and ``python`` are those of
the environment. Folders stand for indexes, so the shell's ``pip`` leaves out options with an index's address.
``--write`` writes benchmarks/results/messages.md; ``-v`` prints all that is printed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import uv

import fake_torch
import hatch_torch_ext
import plain
import used
import wheels
from hatch_torch_ext.facts import variant as variants
from integration import test_distributors
from merged import merge_wheels

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hatch_torch_ext.facts.variant import FileKind

RESULTS = Path(__file__).parent / "results" / "messages.md"
REPOSITORY = Path(__file__).parent.parent
TORCHES = ("2.8.0+cpu", "2.9.1+cpu", "2.13.0+cpu")
NEWEST = "2.13.0+cpu"
VENDORS = "2.9.0a0+145a3a7bda.nv25.10"
CMAKE = f"{plain.CMAKE}target_compile_definitions(plain PRIVATE TORCH=${{TORCH_EXT_TORCH}})\n"
PROGRAMS = r"uv|pip|python|export|chmod|hatch-torch-ext|unset|LD_LIBRARY_PATH|TORCH_EXT_[A-Z_]+|/\S*/python|PYTHON"
COMMAND = re.compile(
    rf"(?m)(?:^  |^type +|[^:]: |, or keep one of them: |start the process with |it with |`)"
    rf"((?:{PROGRAMS})(?: |=)(?!is not).*?)(?=`|\. Repair it: |\. The way back|$)"
)
SHIM = """#!/bin/bash
arguments=()
while [ $# -gt 0 ]; do
  case "$1" in
    --index-url) shift ;;
    --no-cache-dir) arguments+=(--no-cache) ;;
    *) arguments+=("$1") ;;
  esac
  shift
done
action=${{arguments[0]}}; unset 'arguments[0]'
places=(); [ "$action" = uninstall ] || places=(--find-links "{wheels}")
exec "{uv}" pip "$action" --quiet --python "{python}" "${{places[@]}}" "${{arguments[@]}}"
"""
IMPORT = 'python -c "import my_pkg; my_pkg.load()"'
ONLY_IMPORT = 'python -c "import my_pkg"'
EXPLAIN = "python -m my_pkg._variants"
DOCTOR = "hatch-torch-ext doctor"
PRUNE = "hatch-torch-ext prune my-pkg"
INSTALL = "hatch-torch-ext install --dry-run"
FOREIGN = ("PIP_", "UV_", "HATCH_", "TORCH_EXT_", "PYTHON", "VIRTUAL_ENV", "CONDA_", "XDG_")
"""What the variables of this process begin with that no state has."""
NO_INDEX = {"PIP_NO_INDEX": "1"}
SMI = "#!/bin/sh\necho '0, {driver}, {capability}, A GPU, GPU-1'\n"


def torch_wheel(folder: Path, version: str, cuda: str | None = None) -> None:
    """Write a wheel of a tiny torch that can be imported."""
    folder.mkdir(parents=True, exist_ok=True)
    versions = f"__version__ = {version!r}\ncuda = {cuda!r}\nhip = None\ngit_version = 'f00'\n".encode()
    extra = {"torch/__init__.py": used.TORCH.encode(), "torch/version.py": versions}
    files = fake_torch.contents(version, cuda=cuda, extra=extra)
    kept = {name: data for name, data in files.items() if "/ATen/ops/" not in name and ".dist-info" not in name}
    wheels.write(folder, kept, name=f"torch-{version}-{fake_torch.TAG}.whl", requires=())


class Place:
    """What all states share: tiny torches, and wheels of a package, one with its sources."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for version in TORCHES:
            torch_wheel(root / "index" / "cpu", version)
        torch_wheel(root / "index" / "cu128", "2.9.1+cu128", "12.8")
        plain.make_wheels(root / "wheels", ["2.8.0+cpu", "2.9.0+cpu"])
        self.sourced = self._built(used.project(root / "sourced", root))
        source = f"{plain.C}double torch = TORCH;\n"  # each variant is another
        files = {"src/my_pkg/__init__.py": used.INIT, "csrc/CMakeLists.txt": CMAKE, "csrc/plain.c": source}
        self.plain = self._built(plain.Project(root / "plain", root, files=files))
        build = [uv.find_uv_bin(), "build", "--quiet", "--wheel", "--out-dir"]
        subprocess.run([*build, root / "ours", REPOSITORY], check=True)

    @staticmethod
    def _built(project: plain.Project) -> Path:
        done = project.build()
        if done.returncode:
            raise SystemExit(done.stderr)
        return project.wheel()


class Setting:
    """A fresh environment with a package and a torch, and a shell in it."""

    def __init__(self, place: Place, state: State) -> None:
        self.place, self.root = place, Path(tempfile.mkdtemp(prefix="state-", dir=place.root))
        process: list[str | Path] = [uv.find_uv_bin(), "venv", "--quiet", "--python", sys.executable, self.root / "env"]
        subprocess.run(process, check=True)
        self.python = self.root / "env" / "bin" / "python"
        (self.site,) = (self.root / "env" / "lib").glob("python*/site-packages")
        links = shutil.copytree(place.root / "index" / "cpu", self.root / "links")
        for wheel in (place.sourced if state.sourced else place.plain, *(place.root / "ours").glob("*.whl")):
            shutil.copy(wheel, links)
        shim = SHIM.format(wheels=links, uv=uv.find_uv_bin(), python=self.python)
        self.program("pip", shim)
        self.program("python", f'#!/bin/bash\nexec "{self.python}" "$@"\n')
        self.program("hatch-torch-ext", f'#!/bin/bash\nexec "{sys.executable}" -m hatch_torch_ext "$@"\n')
        self.environ = {
            **{name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)},
            "PATH": f"{self.root / 'bin'}:{Path(sys.executable).parent}:/usr/bin:/bin",
            "HOME": str(self.root),
            "VIRTUAL_ENV": str(self.root / "env"),
            "TORCH_EXT_CUDA_DRIVER": "none",
            "TORCH_EXT_TORCH_INDEX": str(place.root / "index"),
            "UV_FIND_LINKS": str(links),
            "PIP_FIND_LINKS": str(links),
            "PYTHONDONTWRITEBYTECODE": "1",
            "UV_CACHE_DIR": os.environ.get("UV_CACHE_DIR") or str(Path.home() / ".cache" / "uv"),
            **NO_INDEX,
        }
        self.type("pip install --no-deps my-pkg", must=True)
        if state.torch in TORCHES:
            self.type(f'pip install --no-deps "torch=={state.torch}"', must=True)
        elif state.torch:
            self.torch(state.torch, state.cuda)
        if state.builder:
            lines = [str(Path(hatch_torch_ext.__file__).parents[1]), sysconfig.get_path("purelib")]
            (self.site / "builder.pth").write_text("\n".join(lines) + "\n")
        if state.make is not None:
            state.make(self)
        if state.indexes:
            self.environ = {name: value for name, value in self.environ.items() if name not in NO_INDEX}
        self.environ |= {name: value.replace("HERE", str(self.root)) for name, value in state.environ.items()}

    def program(self, name: str, text: str) -> None:
        """Put a program on PATH."""
        path = self.root / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def torch(self, version: str, cuda: str | None = None) -> None:
        """Put a torch of that version into the environment, as its vendor does: without metadata."""
        for folder in (self.site / "torch", *self.site.glob("torch-*.dist-info")):
            shutil.rmtree(folder, ignore_errors=True)
        (self.site / "torch").mkdir()
        (self.site / "torch" / "__init__.py").write_text(used.TORCH)
        text = f"__version__ = {version!r}\ncuda = {cuda!r}\nhip = None\ngit_version = 'f00'\n"
        (self.site / "torch" / "version.py").write_text(text)

    def replaced(self, pattern: str, data: bytes | None) -> Path:
        """Replace a file of the environment (its installer may have linked it), or remove it."""
        path = next(self.site.glob(pattern))
        path.unlink()
        if data is not None:
            path.write_bytes(data)
        return path

    def library(self) -> bytes:
        """Return the library of the variant for torch 2.8."""
        return next(self.site.glob("my_pkg/_torch_ext/torch2.8*/libplain.so")).read_bytes()

    def type(self, command: str, *, must: bool = False) -> subprocess.CompletedProcess[str]:
        """Type a command in a shell."""
        shell = ["/bin/bash", "-c", command]
        done = subprocess.run(shell, cwd=self.root, env=self.environ, text=True, capture_output=True, check=False)
        if must and done.returncode:
            raise SystemExit(f"{command}\n{done.stdout}{done.stderr}")
        return done

    def shown(self, text: str) -> str:
        """Return a text without the folders of this run."""
        text = text.replace(uv.find_uv_bin(), "uv")
        for path, name in ((self.site, "SITE"), (self.python, "PYTHON"), (self.root, "HERE"), (self.place.root, "..")):
            text = text.replace(str(path), name)
        return text


@dataclass(frozen=True, kw_only=True)
class State:
    """What is there, what is typed, and, where words are printed and no command, what a reader of them types.

    ``alone`` says that the first command is the whole way: what is typed before it need not work afterwards.
    """

    type: str
    torch: str | None = "2.8.0+cpu"
    cuda: str | None = None
    sourced: bool = False
    builder: bool = False
    indexes: bool = False
    make: Callable[[Setting], None] | None = None
    environ: Mapping[str, str] = ()  # type: ignore[assignment]
    reader: str = ""
    alone: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "environ", dict(self.environ))


LIBRARY = "my_pkg/_torch_ext/torch2.8*/libplain.so"


def damage(here: Setting) -> None:
    """Cut the library short."""
    here.replaced(LIBRARY, here.library()[:-500])


def remove(here: Setting) -> None:
    """Remove the library."""
    here.replaced(LIBRARY, None)


def patch(here: Setting) -> None:
    """Give the library another RPATH."""
    path = here.replaced(LIBRARY, here.library())
    here.type(f"patchelf --set-rpath /opt/a-folder-of-the-distributor/lib {path}", must=True)


def prune(here: Setting) -> None:
    """Prune for torch 2.8, then replace it."""
    here.type(PRUNE, must=True)
    here.type('pip install --no-deps "torch==2.9.1+cpu"', must=True)


def without_help(here: Setting) -> None:
    """Remove the loader's messages."""
    here.replaced("my_pkg/_torch_ext/help.py", None)


def another_torch(here: Setting) -> None:
    """Hide torch by a file in the current folder."""
    (here.root / "torch.py").write_text("")


def broken_torch(here: Setting) -> None:
    """Break torch, as a missing library of CUDA does."""
    here.replaced("torch/__init__.py", b"raise OSError('libcudart.so.13: cannot open shared object file')\n")


def elsewhere(here: Setting) -> None:
    """Install a package that needs a library without a SONAME, which is on another entry of sys.path."""
    here.type("pip uninstall my-pkg", must=True)
    shutil.rmtree(here.site / "torch")
    test_distributors.package(here.site, here.root / "other" / "vendor" / "lib")
    here.environ["PYTHONPATH"] = str(here.root / "other")


def taken(here: Setting) -> None:
    """Install two packages of one namespace, the other of which registers it when torch is imported."""
    here.type("pip uninstall my-pkg", must=True)
    files = {"lib/libx.so": b"x"}
    for name in ("other_pkg", "my_pkg"):
        variant = wheels.variant("it", files, machine=os.uname().machine)
        variant = replace(variant, files=(replace(variant.files[0], namespaces=("ops",)),))
        folder = here.root / name
        folder.mkdir()
        draft = wheels.ours(folder, [(variant, files)], package=name)
        here.type(f"pip install --no-deps {merge_wheels([draft], out=folder / 'dist')}", must=True)
    registered = (
        "import os, sys, types, _thread\n"
        "if os.path.exists(os.path.join(os.path.dirname(__file__), '..', 'other_pkg')):\n"
        "    shared = sys.modules['_torch_ext_loaded'] = types.ModuleType('shared')\n"
        "    shared.lock, shared.files, shared.modules = _thread.RLock(), {}, {}\n"
        "    shared.packages = {('other-pkg', 'other_pkg'): {'namespaces': ['ops'], 'label': 'it'}}\n"
        "    def registers(*_): raise RuntimeError('Previous registration of TORCH_LIBRARY')\n"
        "    _C._dispatch_library = registers\n"
    )
    text = used.TORCH.replace("ctypes.CDLL(path)", "pass")
    here.replaced("torch/__init__.py", f"{text}{registered}".encode())


def cuda_variants(here: Setting) -> None:
    """Add a variant for CUDA 12.6 of torch 2.9 to the package's data."""
    path = next(here.site.glob("my_pkg/_variants.py"))
    text = path.read_text()
    at = text.index("DATA: Dict")
    names: dict[str, object] = {}
    exec(text[at : text.index("\n\n", at)].replace(": Dict[str, Any]", ""), names)  # noqa: S102
    data = names["DATA"]
    cpu = data["variants"][1]  # type: ignore[index]
    data["variants"].append({**cpu, "label": "torch2.9_cu12.8", "cuda": "12.8"})  # type: ignore[index]
    path.unlink()
    path.write_text(f"{text[:at]}DATA: Dict[str, Any] = {data!r}\n{text[text.index(chr(10) * 2, at) :]}")


def gpu(driver: str, capability: str) -> Callable[[Setting], None]:
    """Return what puts an NVIDIA GPU into the machine: a program that says so."""

    def put(here: Setting) -> None:
        del here.environ["TORCH_EXT_CUDA_DRIVER"]
        here.program("nvidia-smi", SMI.format(driver=driver, capability=capability))

    return put


def elsewhere_with_manifest(here: Setting) -> None:
    """As ``elsewhere``, of a package with a manifest, so that doctor finds it."""
    elsewhere(here)
    folder = here.site / "my_pkg" / "_torch_ext"
    files = tuple(test_distributors.described(folder / "it" / name, kind) for name, kind in FILES.items())
    variant = replace(wheels.variant("it", {"x": b""}, machine=os.uname().machine), files=files)
    head = {"schema": 1, "package": "my_pkg", "distribution": "my-pkg", "requires": "torch", "tag": wheels.TAG}
    listed = [{**variants.to_json(variant), "places": {}}]
    (folder / "manifest.json").write_text(json.dumps({**head, "variants": listed, "package_files": []}))
    plain.write(here.site / "my_pkg-1.0.dist-info", {"RECORD": "my_pkg/_torch_ext/manifest.json,,\n"})


FILES: dict[str, FileKind] = {"libops.so": "library", "tool": "program"}


def build(here: Setting) -> None:
    """Build at first use, into the cache of this user or the folder that a variable names."""
    here.environ.update(TORCH_EXT_BUILD_CACHE=str(here.root / "cache"))
    here.type(f"{EXPLAIN} --build", must=True)


def build_for_this_user(here: Setting) -> None:
    """Build at first use, into the cache of this user."""
    here.type(f"{EXPLAIN} --build", must=True)


def private_cache(here: Setting) -> None:
    """Make a cache that others can write, with a build in it."""
    build(here)
    (here.root / "cache").chmod(0o777)


def vendors_metadata(here: Setting) -> None:
    """Give the vendor's torch its metadata."""
    info = f"torch-{VENDORS}.dist-info"
    plain.write(here.site / info, {"METADATA": f"Metadata-Version: 2.1\nName: torch\nVersion: {VENDORS}\n"})


def uninstall(here: Setting) -> None:
    """Remove the package."""
    here.type("pip uninstall my-pkg", must=True)


def bad_source(here: Setting) -> None:
    """Change a source of the installed package."""
    here.replaced("my_pkg/_torch_ext/sources/**/plain.c", b"int answer(void) { return 1; }")


def bad_manifest(here: Setting) -> None:
    """Damage the manifest."""
    here.replaced("my_pkg/_torch_ext/manifest.json", b"[")


def bad_loader(here: Setting) -> None:
    """Damage the loader."""
    here.replaced("my_pkg/_variants.py", b"x =")


FIRST = {"TORCH_EXT_BUILD": "1"}
STATES = {
    "import: no torch": State(type=IMPORT, torch=None),
    "import: torch too new": State(type=IMPORT, torch=NEWEST),
    "import: torch too new, with sources and builder": State(type=IMPORT, torch=NEWEST, sourced=True, builder=True),
    "import: a vendor's pre-release": State(type=IMPORT, torch=VENDORS),
    "import: pruned, then another torch": State(type=IMPORT, make=prune),
    "import: a damaged file": State(type=IMPORT, make=damage),
    "import: a patched file": State(type=IMPORT, make=patch),
    "import: a missing file": State(type=IMPORT, make=remove),
    "import: without help.py, torch too new": State(type=EXPLAIN, torch="2.8.0+cpu", make=without_help),
    "import: an unknown variant is forced": State(type=IMPORT, environ={"TORCH_EXT_VARIANT": "torch2.7_cpu"}),
    "import: another package has the namespace": State(type=ONLY_IMPORT, make=taken),
    "import: a library without SONAME is elsewhere": State(type=ONLY_IMPORT, make=elsewhere),
    "import: another file is called torch": State(type=IMPORT, make=another_torch, reader="mv torch.py mine.py"),
    "import: CPU variant, torch for CUDA 12.6, one for 12.8": State(
        type=f"{IMPORT.replace('python', 'python -W error::RuntimeWarning', 1)}",
        torch="2.9.0+cu126",
        cuda="12.6",
        make=cuda_variants,
        alone=True,
    ),
    "command: torch too new": State(type=EXPLAIN, torch=NEWEST),
    "command: a damaged file": State(type=EXPLAIN, make=damage),
    "command: pruned, then another torch": State(type=EXPLAIN, make=prune),
    "--check: a damaged file": State(type=f"{EXPLAIN} --check", make=damage),
    "--check: a program whose library is elsewhere": State(type=f"{EXPLAIN} --check", make=elsewhere),
    "--renew: a missing file": State(type=f"{EXPLAIN} --renew", make=remove),
    "--renew: a file cut short": State(type=f"{EXPLAIN} --renew", make=damage),
    "--library-path: none registers operators": State(type=f"{EXPLAIN} --library-path", alone=True),
    "--build: no sources": State(type=f"{EXPLAIN} --build", alone=True),
    "first use: no builder": State(type=IMPORT, torch=NEWEST, sourced=True, indexes=True, environ=FIRST),
    "first use: not allowed, no builder": State(type=IMPORT, torch=NEWEST, sourced=True, indexes=True, alone=True),
    "first use: no home folder": State(
        type=IMPORT, torch=NEWEST, sourced=True, builder=True, environ={**FIRST, "HOME": "x", "XDG_CACHE_HOME": "x"}
    ),
    "first use: no compiler": State(
        type=IMPORT, torch=NEWEST, sourced=True, builder=True, environ={**FIRST, "CXX": "/none/c++"}, reader="unset CXX"
    ),
    "first use: a compiler that fails": State(
        type=IMPORT, torch=NEWEST, sourced=True, builder=True, environ={**FIRST, "CC": "/bin/false"}, reader="unset CC"
    ),
    "first use: a source is damaged": State(
        type=IMPORT, torch=NEWEST, sourced=True, builder=True, environ=FIRST, make=bad_source
    ),
    "first use: TORCH_EXT_BUILD=0": State(
        type=IMPORT, torch=NEWEST, sourced=True, builder=True, environ={"TORCH_EXT_BUILD": "0"}
    ),
    "first use: others can write the cache": State(
        type=IMPORT, torch=NEWEST, sourced=True, builder=True, make=private_cache
    ),
    "doctor: no torch": State(type=DOCTOR, torch=None),
    "doctor: torch too new": State(type=DOCTOR, torch=NEWEST),
    "doctor: torch does not import": State(type=DOCTOR, make=broken_torch),
    "doctor: torch for CUDA 13, driver for 12.8": State(
        type=DOCTOR, torch="2.9.1+cu130", cuda="13.0", make=gpu("570.86.15", "9.0")
    ),
    "doctor: a GPU, torch for the CPU": State(type=DOCTOR, torch="2.9.1+cpu", make=gpu("570.86.15", "9.0")),
    "doctor: a vendor's pre-release": State(type=DOCTOR, torch=VENDORS),
    "doctor: pruned, then another torch": State(type=DOCTOR, make=prune),
    "doctor: torch too new, with sources and builder": State(type=DOCTOR, torch=NEWEST, sourced=True, builder=True),
    "doctor: torch too new, with sources": State(type=DOCTOR, torch=NEWEST, sourced=True, indexes=True, alone=True),
    "doctor: not installed": State(type=f"{DOCTOR} my-pkg", make=uninstall),
    "doctor: an invalid manifest": State(type=DOCTOR, make=bad_manifest),
    "doctor: a damaged file": State(type=DOCTOR, make=damage),
    "doctor: a patched file": State(type=DOCTOR, make=patch),
    "doctor: a missing file": State(type=DOCTOR, make=remove),
    "doctor: the loader is damaged": State(type=DOCTOR, make=bad_loader),
    "doctor: help.py is missing": State(type=DOCTOR, make=without_help),
    "doctor: a program whose library is elsewhere": State(type=DOCTOR, make=elsewhere_with_manifest),
    "prune: nothing fits": State(type=PRUNE, torch=NEWEST),
    "prune: pruned before for another torch": State(type=PRUNE, make=prune),
    "prune: an unknown label": State(
        type=f"{PRUNE} --keep torch2.7", reader=f"{PRUNE} --keep torch2.8_cpu_cxx11_x86_64"
    ),
    "prune: not installed": State(type="hatch-torch-ext prune other-pkg"),
    "prune: a build of this user's cache": State(
        type=PRUNE, torch=NEWEST, sourced=True, builder=True, make=build_for_this_user
    ),
    "prune: a build that others cannot read": State(type=PRUNE, torch=NEWEST, sourced=True, builder=True, make=build),
    "install: no torch serves it": State(type=f"{INSTALL} my-pkg 'torch>=2.10'", reader=f"{INSTALL} my-pkg"),
    "install: an unknown backend": State(
        type=f"{INSTALL} --backend cuda my-pkg", reader=f"{INSTALL} --backend cpu my-pkg"
    ),
    "install: torch's index cannot be reached": State(
        type=f"{INSTALL} my-pkg",
        environ={"TORCH_EXT_TORCH_INDEX": "http://127.0.0.1:9/whl"},
        reader="export TORCH_EXT_TORCH_INDEX=$HOME/../index",
    ),
    "install: a wheel that is not there": State(
        type=f"{INSTALL} ./my_pkg-9-py3-none-any.whl", reader=f"{INSTALL} links/my_pkg*.whl"
    ),
    "install: no such Python": State(type=f"{INSTALL} --python /none my-pkg", reader=f"{INSTALL} --python env my-pkg"),
    "install: over a vendor's torch": State(
        type=f"{INSTALL} my-pkg", torch=VENDORS, make=vendors_metadata, alone=True, indexes=True
    ),
}


def row(place: Place, words: str, *, verbose: bool) -> tuple[str, str]:
    """Make a state, type what is typed in it, the first command that is printed, and the same again."""
    state = STATES[words]
    here = Setting(place, state)
    before = here.type(state.type)
    text = before.stdout + before.stderr
    if verbose:
        print(f"\n##### {words} (status {before.returncode})\n{here.shown(text.strip())}")
    found = COMMAND.search(here.shown(text))
    first = found[1].rstrip(".)") if found else state.reader
    if before.returncode == 0 and not found:
        return "", "nothing is wrong"
    if not first:
        return here.shown(text.strip().splitlines()[-1]), "no command"
    real = re.sub(r"PYTHON\b", str(here.python), first.replace("SITE", str(here.site)))
    real = real.replace("HERE", str(here.root))
    real = real.replace("/path/to/folder", str(here.root / "folder"))
    real = f"export {real}" if re.match("[A-Z_]+=", real) else real
    other = real.startswith((PRUNE, INSTALL))
    after = here.type(real if state.alone or other else f"{real} && {state.type}")
    if verbose:
        print(f"----- {first}: status {after.returncode}\n{here.shown((after.stdout + after.stderr).strip())[-1500:]}")
    helped = "yes" if after.returncode == 0 else "no"
    return first, helped if found else f"{helped}, by what the words say"


def main() -> None:
    """Print the table, and with ``--write`` write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("-v", "--verbose", action="store_true")
    options = parser.parse_args()
    lines = ["| state: what is typed | the first command | helped |", "|---|---|---|"]
    with tempfile.TemporaryDirectory(prefix="messages-") as folder:
        place = Place(Path(folder))
        for words in STATES:
            if all(each in words for each in options.words):
                first, helped = row(place, words, verbose=options.verbose)
                lines.append(f"| {words} | `{first.replace('|', '/')}` | {helped} |")
                print(lines[-1], flush=True)
    if options.write and not options.words:
        head = (
            "# What is printed, typed\n\n"
            f"Recorded on {datetime.now(timezone.utc):%Y-%m-%d} with `PYTHONPATH=tests python benchmarks/messages.py "
            "--write`: each state is made\nin a fresh environment with a tiny torch, the first command of the message "
            "is typed, and then the same as before.\n"
        )
        RESULTS.write_text("\n".join([head, *lines]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
