"""The loader with a real torch: once in a process however it is asked, and never an abort."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import loaders
from forks import Forks, environ
from hatch_torch_ext import elf
from hatch_torch_ext.facts import content, registered
from hatch_torch_ext.facts.variant import BuildRecord, FileKind, Variant, VariantFile
from hatch_torch_ext.values import Layout, PlacedVariant

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SOURCES = Path(__file__).parent / "loading"
INIT = "from {name} import _variants\nloaded = _variants.load()\n"
RECORD = BuildRecord(entry="e", variables=(), torch_version="", python="", sdk="", compiler="", cmake="")


@pytest.fixture(scope="session")
def binaries(once: Callable[[str, Callable[[Path], None]], Path], torch_cpu_python: Path) -> Path:
    """Return a folder with ``libops.so`` (an operator, a class), ``libother.so``, modules ``_C.so``, ``_bad.so``."""

    def make(folder: Path) -> None:
        ask = "import sysconfig; print(sysconfig.get_path('include'), sysconfig.get_path('purelib'), sep='\\n')"
        asked = subprocess.run([torch_cpu_python, "-c", ask], check=True, capture_output=True, text=True)
        include, purelib = asked.stdout.splitlines()
        torch = Path(purelib) / "torch"
        flags = ["-shared", "-fPIC", f"-I{include}", '-DMODULE_PACKAGE="my_pkg"']
        for name, result in ("_C", "_C.so"), ("_bad", "_bad.so"), ("other", "libother.so"):
            subprocess.run(["gcc", *flags, SOURCES / f"{name}.c", "-o", folder / result], check=True)
        headers = [f"-I{torch}/include", f"-I{torch}/include/torch/csrc/api/include"]
        links = [f"-L{torch}/lib", "-ltorch_cpu", "-lc10", "-Wl,-soname,libops.so"]
        compiler = ["g++", "-std=c++20", "-O0", *flags, *headers]
        subprocess.run([*compiler, SOURCES / "ops.cpp", "-o", folder / "libops.so", *links], check=True)

    return once("loading", make)


def file_of(source: Path, **fields: Any) -> VariantFile:
    """Describe a file as the build does."""
    data = source.read_bytes()
    kind: FileKind = "module" if source.name.startswith("_") else "library"
    plain: dict[str, Any] = {"registers": kind == "library", "module": source.stem if kind == "module" else None}
    plain["ends"] = content.ends(source)
    found = registered.read(source)
    plain["classes"] = bool(found.classes)
    spaces = registered.namespaces(found)
    plain["namespaces"] = tuple(sorted(spaces.whole))
    if registered.by_function(elf.read(source).undefined):
        plain["fragments"] = tuple(sorted(spaces.fragments))
    plain["operators"] = tuple(sorted(f"{space}::{name}" for space, name in registered.operators(found, spaces)))
    sha256 = hashlib.sha256(data).hexdigest()
    return VariantFile(path=f"it/{source.name}", kind=kind, sha256=sha256, size=len(data), **{**plain, **fields})


def variant_of(label: str, *files: VariantFile, **fields: Any) -> Variant:
    """Describe a variant for torch 2.13 on this machine, unless stated otherwise."""
    plain: dict[str, Any] = {
        "torch": "2.13",
        "stable_abi": False,
        "backend": "cpu",
        "cuda": None,
        "cxx11_abi": True,
        "python": None,
        "machine": os.uname().machine,
        "libc": "glibc",
        "libc_floor": "2.17",
        "policy": "",
        "archs": (),
    }
    return Variant(label=label, files=files, build=RECORD, **{**plain, **fields})


def install(site: Path, name: str, *sources: Path, others: tuple[Variant, ...] = (), **fields: Any) -> Path:
    """Install a package with one variant of these files into ``site``, and return its ``_torch_ext``."""
    folder = site / name / "_torch_ext"
    (folder / "it").mkdir(parents=True)
    for source in sources:
        shutil.copy(source, folder / "it")
    files = [file_of(source, **fields.get("file", {})) for source in sources]
    chosen = variant_of(fields.pop("label", "it"), *files, **{key: fields[key] for key in fields if key != "file"})
    placed = tuple(PlacedVariant(variant=each, places=()) for each in (chosen, *others))
    made = Layout(package=name, variants=placed, files=(), tag="", requires="", manifest="")
    (site / name / "__init__.py").write_text(INIT.format(name=name), encoding="utf-8")
    loaders.write(site / name, made, distribution=name.replace("_", "-"))
    return folder


class Torch:
    """A Python with torch that sees the packages of ``site``; ``forks`` is the same with torch imported."""

    def __init__(self, python: Path, site: Path, forks: Forks) -> None:
        self.python, self.site, self.forks = python, site, forks

    def run(self, *arguments: str, check: bool = True, flags: tuple[str, ...] = (), **environ: str) -> Any:
        """Run it; with ``check``, show the output if it fails."""
        env = {**os.environ, "PYTHONPATH": str(self.site), "PYTHONDONTWRITEBYTECODE": "1", **environ}
        command: list[str | Path] = [self.python, *flags, *arguments]
        done = subprocess.run(command, env=env, cwd=self.site.parent, check=False, capture_output=True, text=True)
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done

    def after_torch(self, program: str, *arguments: str) -> str:
        """Run a text that imports torch before all else, and return what it prints."""
        variables = {**environ(), "PYTHONPATH": str(self.site)}
        status, output, errors = self.forks.run("-c", program, *arguments, cwd=self.site.parent, variables=variables)
        assert status == 0, output + errors
        return output


@pytest.fixture(scope="module")
def forks(torch_cpu_python: Path) -> Iterator[Forks]:
    """Return the Python that has imported torch."""
    made = Forks(torch_cpu_python)
    yield made
    made.close()


@pytest.fixture
def torch(torch_cpu_python: Path, forks: Forks, tmp_path: Path) -> Torch:
    """Return the Python with torch, with an empty folder of packages."""
    site = tmp_path / "site"
    site.mkdir()
    return Torch(torch_cpu_python, site, forks)


WORLD = """
import concurrent.futures, copy, importlib, multiprocessing, os, pickle, sys
import torch

def again(x):
    import my_pkg
    return torch.ops.loading_ops.twice(x), my_pkg.loaded.label

class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, index):
        return torch.ops.loading_ops.twice(torch.tensor([float(index)]))

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.ops.loading_ops.twice(x) + 1

if __name__ == "__main__":
    two = torch.ones(2)

    # Fork before: twenty processes at once, each of which loads for itself.
    children = []
    for _ in range(20):
        child = os.fork()
        if not child:
            import my_pkg
            os._exit(0 if torch.ops.loading_ops.twice(two).tolist() == [2, 2] else 1)
        children.append(child)
    assert {os.waitpid(child, 0)[1] for child in children} == {0}

    # Another package built with us in the same process, with a variant of another kind.
    import other_pkg
    assert other_pkg.loaded.label == "stable2.10_cpu"
    assert sorted(name for _, name in sys.modules["_torch_ext_loaded"].packages) == ["other_pkg"]

    # Two dozen threads, through two import names.
    def load(number):
        package = importlib.import_module("my_pkg" if number % 2 else "second_name")
        return importlib.import_module(package.__name__ + "._variants").load().files
    with concurrent.futures.ThreadPoolExecutor(24) as pool:
        assert len({tuple(os.path.realpath(file) for file in files) for files in pool.map(load, range(24))}) == 1

    import my_pkg, second_name
    from my_pkg import _C, _variants
    import second_name._C
    assert second_name._C is _C
    importlib.reload(_variants)
    importlib.reload(my_pkg)
    _variants.load()
    assert [type(each).__name__ for each in sys.meta_path].count("_Modules") == 2
    assert importlib.util.find_spec("my_pkg._D") is None
    assert not torch.cuda.is_initialized()

    # Stable names: what is pickled here is found by the import name, whatever the variant.
    assert pickle.loads(pickle.dumps(_C.Point)) is _C.Point
    assert _C.Point.__module__ == "my_pkg._C"
    assert type(pickle.loads(pickle.dumps(_C.Point(), 2))) is _C.Point

    # Fork after, spawn, torch.multiprocessing, workers.
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.apply(again, (two,))[1] == "it"
    with torch.multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(again, (two,))[0].tolist() == [2, 2]
    batches = torch.utils.data.DataLoader(Data(), num_workers=2)
    assert [batch.tolist() for batch in batches] == [[[0]], [[2]], [[4]], [[6]]]

    # torch.classes, TorchScript, fake and meta tensors, export, compile, files.
    counter = torch.classes.loading_ops.Counter(3)
    twin = copy.deepcopy(counter)
    assert (twin.increment(), counter.increment(), twin.increment()) == (4, 4, 5)
    torch.jit.script(Model()).save("model.pt")
    assert torch.ops.loading_ops.twice(torch.ones(3, device="meta")).shape == (3,)
    from torch._subclasses.fake_tensor import FakeTensorMode
    with FakeTensorMode() as mode:
        assert torch.ops.loading_ops.twice(torch.empty(5)).shape == (5,)
    program = torch.export.export(Model(), (two,))
    torch.export.save(program, "model.pt2")
    assert torch.compile(Model(), fullgraph=True, backend="aot_eager")(two).tolist() == [3, 3]
    torch.save({"weight": torch.ops.loading_ops.twice(two)}, "state.pt")
    print("the whole world")
"""

ANOTHER_PROCESS = """
import my_pkg
import torch
assert torch.jit.load("model.pt")(torch.ones(2)).tolist() == [3, 3]
assert torch.export.load("model.pt2").module()(torch.ones(2)).tolist() == [3, 3]
assert torch.load("state.pt", weights_only=True)["weight"].tolist() == [2, 2]
"""


@pytest.mark.slow
def test_everything_that_torch_does_with_an_operator(torch: Torch, binaries: Path) -> None:
    """Cases 15, 30, 31: threads, forks, spawn, reload, two import names; pickles, graphs and programs that outlive it.

    The library is registered once in each process, or the process would abort.
    """
    install(torch.site, "my_pkg", binaries / "libops.so", binaries / "_C.so")
    install(torch.site, "other_pkg", binaries / "libother.so", label="stable2.10_cpu", torch="2.10", stable_abi=True)
    (torch.site / "second_name").symlink_to("my_pkg")
    (torch.site / "second_name" / "__init__.py").write_text(INIT.replace("{name}", "."), encoding="utf-8")
    (torch.site / "world.py").write_text(WORLD, encoding="utf-8")
    assert torch.run(str(torch.site / "world.py")).stdout == "the whole world\n"
    torch.run("-c", ANOTHER_PROCESS)


COMPILE = """
import sys, warnings
warnings.simplefilter("ignore")
import my_pkg
import torch
import torch._inductor.config

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.ops.loading_ops.twice(x) + 1

# What it compiles is small: headers made ready for more, vectors and optimisation take most of the time.
settings = torch._inductor.config
settings.cpp_cache_precompile_headers = settings.aot_inductor.precompile_headers = False
settings.cpp.simdlen, settings.aot_inductor.compile_wrapper_opt_level = 1, "O0"
two = torch.ones(2)
assert torch.compile(Model(), fullgraph=True)(two).tolist() == [3, 3]
torch._inductor.aoti_compile_and_package(torch.export.export(Model(), (two,)), package_path=sys.argv[1])
"""

RUN_COMPILED = """
import sys
import my_pkg
import torch
assert torch._inductor.aoti_load_package(sys.argv[1])(torch.ones(2)).tolist() == [3, 3]
"""


@pytest.mark.slow
def test_compiled_programs_hold_the_operator(torch: Torch, binaries: Path, tmp_path: Path) -> None:
    """Case 30: code of inductor, and an AOTInductor package that runs in a process that only imports the package."""
    install(torch.site, "my_pkg", binaries / "libops.so")
    package = str(tmp_path / "model.pt2")
    torch.run(
        "-c", COMPILE, package, TORCHINDUCTOR_CACHE_DIR=str(tmp_path / "cache"), TORCHINDUCTOR_COMPILE_THREADS="1"
    )
    torch.run("-c", RUN_COMPILED, package)


BARE = """
import sys
sys.path[:0] = [SITE, TORCH]
import my_pkg
import torch
assert torch.ops.loading_ops.twice(torch.ones(2)).tolist() == [2, 2]
"""


def tree(folder: Path) -> dict[str, tuple[int, int]]:
    """Return every file below ``folder`` with its size and its time."""
    return {str(each): (each.lstat().st_size, each.lstat().st_mtime_ns) for each in sorted(folder.rglob("*"))}


def test_a_bare_process_and_a_symlinked_folder_are_enough(torch: Torch, binaries: Path, tmp_path: Path) -> None:
    """Cases 15 and 32: imported before torch, ``-I -S -E``, no HOME, torch on another path entry, nothing written."""
    install(torch.site, "my_pkg", binaries / "libops.so")
    link = tmp_path / "link"
    link.symlink_to(torch.site)
    before = tree(torch.site)
    ask = torch.run("-c", "import sysconfig; print(sysconfig.get_path('purelib'))").stdout.strip()
    program = BARE.replace("SITE", repr(str(link))).replace("TORCH", repr(ask))
    command: list[str | Path] = ["env", "-i", torch.python, "-I", "-S", "-E", "-B", "-c", program]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd="/")
    assert done.returncode == 0, done.stderr
    assert tree(torch.site) == before


READ_ONLY = 'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && if touch "$1/x" 2>&-; then exit 9; fi'


def test_a_file_system_that_is_mounted_read_only(torch: Torch, binaries: Path) -> None:
    """Case 32: really read-only, for root as well; the mount is seen only by the process that is tested."""
    place = install(torch.site, "my_pkg", binaries / "libops.so").parent
    mounted: list[str | Path] = ["unshare", "--map-root-user", "--mount", "sh", "-c"]
    try:
        subprocess.run([*mounted, READ_ONLY, "sh", torch.site], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"this machine allows no mount in a new namespace: {error}")
    program = "import my_pkg; print(my_pkg.loaded.label)"
    command = [*mounted, f'{READ_ONLY}; PYTHONPATH="$1" exec "$2" -c "$3"', "sh", torch.site, torch.python, program]
    environ = {name: value for name, value in os.environ.items() if name not in ("HOME", "PYTHONDONTWRITEBYTECODE")}
    done = subprocess.run(command, env=environ, check=False, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("it\n", "")
    assert not (place / "__pycache__").exists()


TROUBLE = """
import importlib, json, os, sys, warnings
warnings.simplefilter("always")
import torch
said = {}
for name in sys.argv[1:]:
    os.environ["TORCH_EXT_VARIANT"] = "it" if name.startswith("forced") else ""
    with warnings.catch_warnings(record=True) as caught:
        try:
            importlib.import_module(name)
            said[name] = "loaded"
        except Exception as error:
            said[name] = type(error).__name__ + ": " + str(error)
    said[name] += "".join(" | " + each.category.__name__ + ": " + str(each.message) for each in caught)
    said[name] += " (CUDA is awake)" * torch.cuda.is_initialized()
    said["queue of " + name] = sum("import " + name in "".join(trace) for _, trace in torch.cuda._queued_calls)
print(json.dumps(said))
"""


def test_trouble_is_reported_and_the_process_lives(torch: Torch, binaries: Path) -> None:
    """Missing, cut short, overwritten, foreign and failing files; wrong and forced variants: one process meets all."""
    library = binaries / "libops.so"
    size, sha256 = library.stat().st_size, hashlib.sha256(library.read_bytes()).hexdigest()
    place = {
        name: install(torch.site, name, library) / "it" / "libops.so"
        for name in ("missing", "short", "spoiled", "bitten")
    }
    place["missing"].unlink()
    os.truncate(place["short"], 5000)
    place["spoiled"].write_bytes(b"\0" * size)
    place["bitten"].write_bytes(library.read_bytes()[:4096] + b"\0" * 8 + library.read_bytes()[4104:])
    stranger = torch.site / "libstranger.so"
    source = "void gone(void); __attribute__((constructor)) static void start(void) { gone(); }"
    subprocess.run(["gcc", "-shared", "-fPIC", "-xc", "-", "-o", stranger], input=source, text=True, check=True)
    stranger_place = install(torch.site, "stranger", stranger) / "it" / "libstranger.so"
    install(torch.site, "wrong", stranger, torch="2.12")
    install(torch.site, "forced", library, torch="2.12", backend="cuda", cuda="12.8", archs=("9.0",))
    bad = install(torch.site, "bad", binaries / "_bad.so")
    text = (bad.parent / "_variants.py").read_text(encoding="utf-8")
    (bad.parent / "_variants.py").write_text(text.replace('"registers": False', '"registers": True'), encoding="utf-8")

    names = ["missing", "short", "spoiled", "bitten", "stranger", "wrong", "bad", "forced"]
    said = json.loads(torch.after_torch(TROUBLE, *names))
    repair = f"(sha256 {sha256} is expected). Repair it: pip install --force-reinstall --no-deps"
    assert said["missing"] == (
        f"ImportError: missing: {place['missing']} cannot be read (No such file or directory) {repair} missing"
    )
    for damaged in "short", "spoiled":
        assert said[damaged] == f"ImportError: {damaged}: {place[damaged]} is damaged {repair} {damaged}"
    changed = (
        f"{place['bitten']} was changed after it was built (sha256 {sha256}). If that was meant (patchelf, objcopy): "
    )
    assert said["bitten"].startswith(f"ImportError: bitten: {changed}")
    assert said["stranger"] == (f"ImportError: stranger: it cannot be opened: {stranger_place}: undefined symbol: gone")
    assert said["wrong"].startswith(
        "ImportError: wrong: none of its compiled variants (1) fits here.\nHere: torch 2.13."
    )
    assert said["bad"] == "RuntimeError: the extension's own words"
    forced, _, warned = said["forced"].partition(" | ")
    assert forced == "loaded"
    assert warned.startswith(
        "TorchExtWarning: forced: it was forced, although it was built for torch 2.12, found 2.13."
    )
    assert said["queue of forced"] == 1


COPIES = """
import importlib, sys
import torch
for folder in sys.argv[1:]:
    sys.path.insert(0, folder)
    for name in [name for name in sys.modules if name.split(".")[0] == "my_pkg"]:
        del sys.modules[name]
    try:
        print("loaded", importlib.import_module("my_pkg").loaded.label)
    except ImportError as error:
        print(error)
"""


@pytest.mark.performs("Start a new one")
def test_two_copies_of_one_package_do_not_abort(torch: Torch, binaries: Path, tmp_path: Path) -> None:
    """Case 31: the same library at two places is registered once; another build of it is an error that names both.

    Each of the two works in a process that has no other on its path.
    """
    library = binaries / "libops.so"
    other = tmp_path / "other" / "libops.so"
    other.parent.mkdir()
    other.write_bytes(library.read_bytes() + b"another build")
    folders = [torch.site / name for name in ("one", "same", "other")]
    for folder, source in zip(folders, (library, library, other), strict=True):
        install(folder, "my_pkg", source)
    said = torch.after_torch(COPIES, *map(str, folders)).splitlines()
    one, _, last = (folder / "my_pkg" / "_torch_ext" for folder in folders)
    assert said[:2] == ["loaded it", "loaded it"]
    assert said[2] == (
        f"my_pkg: it of {last} cannot be loaded, as it of {one} is: operators can be registered once in a process. "
        "Start a new one, and keep one of the two on its path"
    )
    for folder in (folders[0], folders[2]):
        assert torch.after_torch(COPIES, str(folder)) == "loaded it\n"


NEIGHBOURS = """
import importlib, sys
import torch
for name in sys.argv[1:]:
    if name.endswith(".so"):
        torch.ops.load_library(name)
        continue
    try:
        module = importlib.import_module(name)
        print("loaded", module.loaded.label if hasattr(module, "loaded") else name)
    except ImportError as error:
        print(error)
print(torch.ops.loading_ops.twice(torch.ones(1)).item())
"""


@pytest.mark.performs("Use the two in separate processes", "pip uninstall")
def test_two_distributions_with_one_namespace_are_reported(torch: Torch, binaries: Path, tmp_path: Path) -> None:
    """Two libraries that open one namespace end the process: an error prevents it, whichever was loaded first.

    Each remedy works: separate processes, and uninstalling one of them. The package's own library, opened before, is no
    conflict.
    """
    other = tmp_path / "libops.so"
    other.write_bytes((binaries / "libops.so").read_bytes() + b"another build")
    install(torch.site, "one_pkg", binaries / "libops.so")
    place = install(torch.site, "two_pkg", other) / "it" / "libops.so"
    refused = (
        "two_pkg: it cannot be loaded: {} has registered the operators' namespace `loading_ops` (TORCH_LIBRARY) in "
        "this process, and torch ends a process that does it twice. Use the two in separate processes"
    )
    assert torch.after_torch(NEIGHBOURS, "one_pkg", "two_pkg").splitlines() == [
        "loaded it",
        refused.format("the distribution one-pkg") + ", or keep one of them: pip uninstall one-pkg",
        "2.0",
    ]
    strange = torch.after_torch(NEIGHBOURS, str(binaries / "libops.so"), "two_pkg").splitlines()
    assert strange == [refused.format(f"something else (its source: {SOURCES / 'ops.cpp'}:17)"), "2.0"]
    assert torch.after_torch(NEIGHBOURS, str(place), "two_pkg").splitlines() == ["loaded it", "2.0"]
    shutil.rmtree(torch.site / "one_pkg")
    assert torch.after_torch(NEIGHBOURS, "two_pkg").splitlines() == ["loaded it", "2.0"]


@pytest.fixture(scope="session")
def classes(once: Callable[[str, Callable[[Path], None]], Path], torch_cpu_python: Path) -> Path:
    """Return a library that registers a class in a namespace which it does not open with TORCH_LIBRARY."""

    def make(folder: Path) -> None:
        ask = "import os, torch; print(os.path.dirname(torch.__file__))"
        torch = subprocess.run([torch_cpu_python, "-c", ask], check=True, capture_output=True, text=True).stdout.strip()
        headers = [f"-I{torch}/include", f"-I{torch}/include/torch/csrc/api/include"]
        links = [f"-L{torch}/lib", "-ltorch_cpu", "-lc10"]
        compiler = ["g++", "-std=c++20", "-O0", "-shared", "-fPIC", *headers]
        subprocess.run([*compiler, SOURCES / "class.cpp", "-o", folder / "libclass.so", *links], check=True)

    return once("loading-class", make) / "libclass.so"


def test_a_class_that_is_registered_twice_is_reported(torch: Torch, classes: Path, tmp_path: Path) -> None:
    """Case 75: torch ends a process that registers a class twice: an error names both, by hand and in one package too.

    The library that is open already is not a conflict, and the remedy works: uninstall one of the two.
    """
    other = tmp_path / "libother.so"
    other.write_bytes(classes.read_bytes() + b"another build")
    place = install(torch.site, "one_pkg", classes) / "it" / "libclass.so"
    install(torch.site, "two_pkg", other)
    install(torch.site, "both_pkg", classes, other)
    program = NEIGHBOURS.replace("print(torch.ops.loading_ops.twice(torch.ones(1)).item())", "print('alive')")
    refused = "two_pkg: it cannot be loaded: {} has registered the class `loading_classes::Box` (torch::class_) in "
    refused += "this process, and torch ends a process that does it twice. Use the two in separate processes"
    assert torch.after_torch(program, "one_pkg", "two_pkg").splitlines() == [
        "loaded it",
        refused.format("the distribution one-pkg") + ", or keep one of them: pip uninstall one-pkg",
        "alive",
    ]
    by_hand = torch.after_torch(program, str(classes), "two_pkg").splitlines()
    assert by_hand == [refused.format("something else"), "alive"]
    assert torch.after_torch(program, str(place), "one_pkg").splitlines() == ["loaded it", "alive"]
    both = torch.after_torch(program, "both_pkg").splitlines()
    assert both == [
        "both_pkg: it cannot be loaded: two libraries of it register the class `loading_classes::Box` (torch::class_) "
        "in this process, and torch ends a process that does it twice. Tell its authors",
        "alive",
    ]
    shutil.rmtree(torch.site / "one_pkg")
    assert torch.after_torch(program, "two_pkg").splitlines() == ["loaded it", "alive"]


def test_two_distributions_with_one_operator_are_reported(torch: Torch, binaries: Path, tmp_path: Path) -> None:
    """Libraries that share a namespace by TORCH_LIBRARY_FRAGMENT abort the process where both define one operator.

    Told before, whoever was the first; each remedy works. Another overload is not a second definition, nor are kernels
    that somebody registers before the operator is defined.
    """
    other = tmp_path / "libops.so"
    other.write_bytes((binaries / "libops.so").read_bytes() + b"another build")
    install(torch.site, "one_pkg", binaries / "libops.so")
    install(torch.site, "two_pkg", other, file={"namespaces": ()})
    refused = (
        "two_pkg: it cannot be loaded: {} has registered the operator `loading_ops::twice` in this process, and torch "
        "ends a process that does it twice. Use the two in separate processes"
    )
    assert torch.after_torch(NEIGHBOURS, "one_pkg", "two_pkg").splitlines() == [
        "loaded it",
        refused.format("the distribution one-pkg") + ", or keep one of them: pip uninstall one-pkg",
        "2.0",
    ]
    fragment = "import torch; library = torch.library.Library('loading_ops', 'FRAGMENT'); library."
    define = f"{fragment}define('twice{{}}(Tensor x) -> Tensor'); library.impl('twice{{}}', lambda x: x + x, 'CPU')\n"
    strange = torch.after_torch(define.format("", "") + NEIGHBOURS, "two_pkg").splitlines()
    assert strange == [refused.format("something else (its source: <string>:1)"), "2.0"]
    overload = define.format(".other", ".other")
    kernel = "import torch; kept = torch._C._dispatch_library('IMPL', 'loading_ops', 'Meta'); kept.impl_t_t('twice')\n"
    for harmless in overload, kernel:
        assert torch.after_torch(harmless + NEIGHBOURS, "two_pkg").splitlines() == ["loaded it", "2.0"]
    shutil.rmtree(torch.site / "one_pkg")
    assert torch.after_torch(NEIGHBOURS, "two_pkg").splitlines() == ["loaded it", "2.0"]


@pytest.fixture(scope="session")
def by_function(once: Callable[[str, Callable[[Path], None]], Path], torch_cpu_python: Path) -> Callable[..., Path]:
    """Return a function that makes a library which defines and implements these operators only by function."""

    def make(folder: Path) -> None:
        ask = "import sysconfig; print(sysconfig.get_path('include'), sysconfig.get_path('purelib'), sep='\\n')"
        asked = subprocess.run([torch_cpu_python, "-c", ask], check=True, capture_output=True, text=True)
        include, purelib = asked.stdout.splitlines()
        torch = f"{purelib}/torch"
        headers = [f"-I{include}", f"-I{torch}/include"]
        compiler = ["g++", "-std=c++20", "-O0", "-shared", "-fPIC", *headers, str(SOURCES / "function.cpp")]
        links = [f"-L{torch}/lib", "-ltorch_cpu", "-lc10"]
        subprocess.run([*compiler, "-o", str(folder / "libfunction.so"), *links], check=True)

    source = once("loading-function", make) / "libfunction.so"

    def write(path: Path, *, defined: str, kernels: str, more: str = "") -> Path:
        data = source.read_bytes().replace(b"\0defined\0", b"\0%s\0" % defined.encode())
        path.write_bytes(data.replace(b"\0kernels\0", b"\0%s\0" % kernels.encode()) + more.encode())
        return path

    return write


def test_operators_defined_only_by_function_are_reported(
    torch: Torch, by_function: Callable[..., Path], tmp_path: Path
) -> None:
    """Case 124: no text of the file has their schema, and two distributions that define one end the process.

    Told with the owner; a library that only has a kernel of the same name is loaded.
    """
    program = NEIGHBOURS.replace("print(torch.ops.loading_ops.twice(torch.ones(1)).item())", "print('alive')")
    install(torch.site, "one_pkg", by_function(tmp_path / "libone.so", defined="doubled", kernels="missing"))
    install(torch.site, "two_pkg", by_function(tmp_path / "libtwo.so", defined="doubled", kernels="strange"))
    install(torch.site, "its_pkg", by_function(tmp_path / "libits.so", defined="another", kernels="doubled"))
    refused = "two_pkg: it cannot be loaded: {} has registered the operator `loading_shared::doubled` in this process, "
    refused += "and torch ends a process that does it twice. Use the two in separate processes"
    done = torch.after_torch(program, "one_pkg", "its_pkg", "two_pkg").splitlines()
    assert done == [
        "loaded it",
        "loaded it",
        refused.format("the distribution one-pkg") + ", or keep one of them: pip uninstall one-pkg",
        "alive",
    ]
    by_hand = torch.after_torch(program, str(tmp_path / "libone.so"), "two_pkg").splitlines()
    assert by_hand == [refused.format(f"something else (its source: {SOURCES / 'function.cpp'}:14)"), "alive"]
    assert torch.after_torch(program, "two_pkg").splitlines() == ["loaded it", "alive"]


def test_two_files_of_one_package_that_register_the_same_are_reported(
    torch: Torch, by_function: Callable[..., Path], tmp_path: Path
) -> None:
    """A static library in two libraries, or in two modules, defines its operators twice: no process ends of it."""
    program = NEIGHBOURS.replace("print(torch.ops.loading_ops.twice(torch.ones(1)).item())", "print('alive')")
    names = ("libone.so", "libtwo.so", "_C.so", "_D.so")
    files = {name: by_function(tmp_path / name, defined="doubled", kernels="missing", more=name) for name in names}
    install(torch.site, "both_pkg", files["libone.so"], files["libtwo.so"])
    twice = "two libraries of it register the operator `loading_shared::doubled` in this process, and torch ends a "
    twice += "process that does it twice. Tell its authors"
    done = torch.after_torch(program, "both_pkg").splitlines()
    assert done == [f"both_pkg: it cannot be loaded: {twice}", "alive"]
    install(torch.site, "pair_pkg", files["_C.so"], files["_D.so"], file={"registers": True})
    done = torch.after_torch(program, "pair_pkg", "pair_pkg._C", "pair_pkg._D").splitlines()
    assert done[-1] == "alive"
    assert "loading_shared::doubled" in done[-2]


LARGE = """
__thread char large[20000] __attribute__((tls_model("initial-exec")));
char *where(void) { return large; }
"""


def linked(folder: Path, source: str, *arguments: str) -> Path:
    """Return a library of this C source that a loader opens; it registers nothing."""
    (folder / "it.c").write_text(source, encoding="utf-8")
    subprocess.run(["gcc", "-shared", "-fPIC", "it.c", "-o", "libit.so", *arguments], cwd=folder, check=True)
    return folder / "libit.so"


@pytest.mark.performs("GLIBC_TUNABLES=")
def test_static_thread_local_storage_is_explained(torch: Torch, tmp_path: Path) -> None:
    """torch2trt#563: other libraries took the room. The variable of glibc that the message names gives more."""
    install(torch.site, "my_pkg", linked(tmp_path, LARGE))
    done = torch.run("-c", "import my_pkg", check=False)
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("ImportError")]
    assert "cannot allocate memory in static TLS block. Libraries that were loaded before took the room" in line
    name, value = line.rpartition(" ")[2].split("=", 1)
    assert torch.run("-c", "import my_pkg; print('it works')", **{name: value}).stdout == "it works\n"


@pytest.mark.performs("Install into another folder")
def test_a_folder_that_forbids_programs_is_explained(torch: Torch, tmp_path: Path) -> None:
    """pytorch#123054, sam2#360: site-packages on a mount without `exec`; in another folder the package works."""
    other = tmp_path / "other"
    install(other, "my_pkg", linked(tmp_path, "int it(void) { return 1; }"))
    script = f"""
mount -t tmpfs -o noexec none {torch.site} && cp -r {other}/my_pkg {torch.site} || exit 77
{torch.python} -c 'import my_pkg'
PYTHONPATH={other} {torch.python} -c 'import my_pkg; print("it works")'
"""
    command = ["unshare", "--map-root-user", "--mount", "sh", "-c", script]
    environ = {**os.environ, "PYTHONPATH": str(torch.site)}
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environ)
    if done.returncode in (1, 77) and "ImportError" not in done.stderr:
        pytest.skip(f"no mount can be made here: {done.stderr}")
    assert "failed to map segment from shared object" in done.stderr
    assert f"Its file system may be mounted without `exec` (findmnt -T {torch.site}/my_pkg/_torch_ext)" in done.stderr
    assert "Install into another folder: pip install --target FOLDER, and PYTHONPATH=FOLDER" in done.stderr
    assert done.stdout == "it works\n"


def test_an_older_cxx_library_is_explained(torch: Torch, tmp_path: Path) -> None:
    """slang-torch#7: the libstdc++ of a conda environment lacks a version that the compiler's has."""
    fake = tmp_path / "fake"
    fake.mkdir()
    (fake / "versions").write_text("GLIBCXX_9.9.9 { newest; };")
    newest = linked(
        fake, "int newest(void) { return 1; }", "-Wl,-soname,libstdc++.so.6", "-Wl,--version-script=versions"
    )
    needs = linked(tmp_path, "int newest(void); int it(void) { return newest(); }", "-Wl,--no-as-needed", str(newest))
    install(torch.site, "my_pkg", needs)
    done = torch.run("-c", "import my_pkg", check=False)
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("ImportError")]
    assert "version `GLIBCXX_9.9.9' not found" in line
    assert line.endswith("In a conda environment: conda install -c conda-forge 'libstdcxx-ng>=14'")
    install(torch.site, "my_mod", needs.rename(tmp_path / "_it.so"))
    done = torch.run("-c", "import my_mod._it", check=False)
    assert done.stderr.splitlines()[-1].endswith("conda install -c conda-forge 'libstdcxx-ng>=14'")


@pytest.mark.performs("Start it by `env -u LD_LIBRARY_PATH -u LD_PRELOAD python`")
def test_libraries_of_another_torch_are_named(torch: Torch, tmp_path: Path) -> None:
    """pytorch#102272: LD_LIBRARY_PATH has libtorch for C++ programs, so that torch itself runs with its libraries."""
    own = torch.after_torch("import os, torch; print(os.path.dirname(torch.__file__))").strip()
    other = tmp_path / "libtorch"
    other.mkdir()
    shutil.copy(Path(own, "lib", "libc10.so"), other)
    source = "int it_is_not_there(void); int it(void) { return it_is_not_there(); }"
    install(torch.site, "my_pkg", linked(tmp_path, source))
    done = torch.run("-c", "import my_pkg", check=False, LD_LIBRARY_PATH=str(other))
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("ImportError")]
    assert f": it_is_not_there. The libc10.so of another torch is loaded in place of {own}/lib/libc10.so. " in line
    environ = {**os.environ, "PYTHONPATH": str(torch.site), "LD_LIBRARY_PATH": str(other)}
    command = ["env", "-u", "LD_LIBRARY_PATH", "-u", "LD_PRELOAD", str(torch.python), "-c", "import my_pkg"]
    done = subprocess.run(command, env=environ, check=False, capture_output=True, text=True)
    assert done.stderr.splitlines()[-1].endswith("undefined symbol: it_is_not_there")


@pytest.mark.performs("make the program again with all of")
def test_a_frozen_program_without_the_package_s_files_is_explained(
    torch: Torch, binaries: Path, tmp_path: Path
) -> None:
    """pyinstaller#7803: PyInstaller took only the Python files, of which help.py is none; the remedy takes all.

    Its `--collect-all` takes no Python module from a folder that is not a package, so it is not the remedy.
    """
    install(torch.site, "my_pkg", binaries / "libops.so", binaries / "_C.so")
    program = Torch(torch.python, tmp_path / "program", torch.forks)
    shutil.copytree(torch.site, program.site, ignore=shutil.ignore_patterns("_torch_ext"))
    frozen = "import sys; sys.frozen = True; sys._MEIPASS = ''; import my_pkg._C; print('it works')"
    said = program.run("-c", frozen, check=False).stderr.splitlines()[-1]
    remedy = "make the program again with all of my_pkg/_torch_ext, without --strip: "
    head, _, added = said.partition(remedy)
    assert "help.py, which explains more, is missing" in head
    show = f"printf %s {added.removeprefix('pyinstaller --add-data ').removesuffix(')')}"
    environ = {**os.environ, "PYTHONPATH": str(torch.site), "PATH": f"{torch.python.parent}:{os.environ['PATH']}"}
    done = subprocess.run(["sh", "-c", show], env=environ, check=True, capture_output=True, text=True)
    source, _, place = done.stdout.partition(":")
    shutil.copytree(source, program.site / place)
    assert program.run("-c", frozen).stdout == "it works\n"
    next((program.site / place).glob("it/libops.so")).unlink()
    said = program.run("-c", frozen, check=False).stderr.splitlines()[-1]
    assert said.endswith(f"Repair it: {remedy}{added[:-1]}")


def test_runfiles_of_links_beside_torch(torch: Torch, binaries: Path, tmp_path: Path) -> None:
    """rules_python#2125: Bazel gives each distribution a folder of its own, and puts links to files into another."""
    real = tmp_path / "external" / "site-packages"
    install(real, "my_pkg", binaries / "libops.so")
    for file in (path for path in real.rglob("*") if path.is_file()):
        link = torch.site / file.relative_to(real)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(file)
    code = "import my_pkg, torch; print(torch.ops.loading_ops.twice(torch.ones(1)).item())"
    assert torch.run("-c", code).stdout == "2.0\n"


WORKERS = """
import multiprocessing
import torch
import my_pkg

class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 2

    def __getitem__(self, index):
        return torch.ops.loading_ops.twice(torch.tensor([float(index)]))

def twice(number):
    return torch.ops.loading_ops.twice(torch.tensor([number])).item()

if __name__ == "__main__":
    for method in ("fork", "spawn"):
        with multiprocessing.get_context(method).Pool(1) as pool:
            print(method, pool.map(twice, [1.0, 3.0]))
    print([batch.tolist() for batch in torch.utils.data.DataLoader(Numbers(), batch_size=2, num_workers=1)])
"""


def test_workers_have_the_operators(torch: Torch, binaries: Path, tmp_path: Path) -> None:
    """pytorch#46409: processes that are forked or started anew, and the workers of a DataLoader."""
    install(torch.site, "my_pkg", binaries / "libops.so")
    program = tmp_path / "program.py"
    program.write_text(WORKERS, encoding="utf-8")
    assert torch.run(str(program)).stdout.splitlines() == ["fork [2.0, 6.0]", "spawn [2.0, 6.0]", "[[[0.0], [2.0]]]"]


@pytest.mark.performs("install the package unpacked")
def test_a_zipped_package_is_reported(torch: Torch, binaries: Path, tmp_path: Path) -> None:
    """No library can be opened inside an archive: the message names the archive, and what to do; unpacked, it works."""
    install(torch.site, "my_pkg", binaries / "libops.so")
    archive = shutil.make_archive(str(tmp_path / "app"), "zip", torch.site)
    done = torch.run("-c", "import my_pkg", check=False, PYTHONPATH=archive)
    line = done.stderr.splitlines()[-1]
    assert f"{archive}/my_pkg/_torch_ext/" in line
    assert "is inside an archive, where no library can be opened (sha256 " in line
    assert line.endswith("is expected). Repair it: install the package unpacked")
    assert line.startswith("ImportError: my_pkg: ")
    shutil.unpack_archive(archive, tmp_path / "unpacked")
    torch.run("-c", "import my_pkg", PYTHONPATH=str(tmp_path / "unpacked"))


EXPORTED = """
import sys
from torch.package import PackageExporter, PackageImporter
for how in ("intern", "extern"):
    with PackageExporter(how) as exporter:
        getattr(exporter, how)("my_pkg.**")
        exporter.extern("**")
        exporter.save_source_string("model", "import my_pkg, torch; print(torch.ops.loading_ops.twice(torch.ones(1)))")
    try:
        PackageImporter(how).import_module("model")
    except ImportError as error:
        print(error)
"""


@pytest.mark.performs("leave the package to the installed one: exporter.extern(")
def test_a_package_inside_an_archive_of_torch_package(torch: Torch, binaries: Path, tmp_path: Path) -> None:
    """Such an archive holds Python sources only: the message has the line that leaves the package outside."""
    install(torch.site, "my_pkg", binaries / "libops.so")
    program = tmp_path / "program.py"
    program.write_text(EXPORTED, encoding="utf-8")
    assert torch.run(str(program)).stdout.splitlines()[1:] == [
        "(when you export, leave the package to the installed one: exporter.extern('my_pkg.**'))",
        "tensor([2.])",
    ]


SUB_INTERPRETER = """
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
made = interpreters.create()
interpreters.run_string(made, '''
import sys
sys.path.insert(0, %r)
try:
    import my_pkg
except ImportError as error:
    print(error, flush=True)
''')
interpreters.destroy(made)  # a process that ends before it can hang
"""


@pytest.mark.performs("use the main one")
def test_a_sub_interpreter_is_refused(torch: Torch, binaries: Path) -> None:
    """The error comes before torch is imported, which does not work there; in the main interpreter it works."""
    install(torch.site, "my_pkg", binaries / "libops.so")
    main = f"{SUB_INTERPRETER % str(torch.site)}import my_pkg; print(my_pkg.loaded.label)"
    assert torch.run("-c", main).stdout == (
        "my_pkg: torch does not work in a sub-interpreter: use the main one (threads and processes are fine; "
        "mod_wsgi: WSGIApplicationGroup %{GLOBAL})\nit\n"
    )


def test_the_command_line_explains_and_checks(torch: Torch, binaries: Path) -> None:
    """Case 35: ``python -m`` explains and loads nothing, though the package loads when imported; or it checks apart."""
    libraries = binaries / "libops.so", binaries / "libother.so"
    place = install(torch.site, "my_pkg", *libraries, others=(variant_of("old", torch="2.12"),))
    paths = torch.run("-m", "my_pkg._variants", "--library-path").stdout
    assert paths == f"{place}/it/libops.so\n{place}/it/libother.so\n"
    assert torch.run("-m", "my_pkg._variants", "--check").stdout == "it works; its operators: loading_ops::twice\n"
    (place / "it" / "libops.so").write_bytes(b"")
    explained = torch.run("-m", "my_pkg._variants", check=False)
    here, *lines, fault = explained.stdout.splitlines()
    assert (explained.returncode, "libops.so is damaged (" in fault) == (1, True)
    assert here.startswith("Here: torch 2.13.")
    assert [line.partition(", found")[0] for line in lines] == ["  old: rejected: built for torch 2.12", "  it: chosen"]
    checked = torch.run("-m", "my_pkg._variants", "--check", check=False)
    assert checked.returncode == 1
    assert "is damaged (" in checked.stderr


def test_a_package_of_only_modules_has_no_library_path(torch: Torch, binaries: Path) -> None:
    """A program without Python can open no module: it is an error, not an empty line."""
    install(torch.site, "my_pkg", binaries / "_C.so")
    done = torch.run("-m", "my_pkg._variants", "--library-path", check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "my_pkg has only Python modules, no library for programs without Python\n"


def test_a_module_that_cannot_be_imported_is_reported_by_the_check(torch: Torch, binaries: Path) -> None:
    """``--check`` imports the modules that load() leaves to the package, and names the one that fails."""
    install(torch.site, "my_pkg", binaries / "_C.so", binaries / "_bad.so")
    done = torch.run("-m", "my_pkg._variants", "--check", check=False)
    words = "it failed: my_pkg._bad cannot be imported: RuntimeError: the extension's own words"
    assert (done.returncode, done.stderr.splitlines()[-1]) == (1, words)


def test_a_crash_while_loading_is_reported_by_the_check(torch: Torch) -> None:
    """``--check`` loads in another process, so that a library which kills its process gives a message and status 1."""
    killer = torch.site / "libkiller.so"
    source = "#include <stdlib.h>\n__attribute__((constructor)) static void start(void) { abort(); }"
    subprocess.run(["gcc", "-shared", "-fPIC", "-xc", "-", "-o", killer], input=source, text=True, check=True)
    install(torch.site, "my_pkg", killer)
    done = torch.run("-m", "my_pkg._variants", "--check", check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "it failed: the process that loaded it ended with status -6"
