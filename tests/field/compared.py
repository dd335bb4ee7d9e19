"""``python tests/field/compared.py TORCH [NAME…]``: what setuptools packs of projects of others beside what we pack.

TORCH is a Python with a CPU build of torch; its release is that of the matrix. Each source distribution is fetched, its
wheel is made by its setup.py, in a fresh environment with what its pyproject.toml asks for, and ours by ``init`` and
hatchling; ``hatch-torch-ext compare`` sets them side by side. Without ``--compile`` neither compiles anything: files,
modules, metadata, commands and requirements are compared, in seconds. Rows go into ``benchmarks/results/compared.md``.

What no index has is taken from ``FOLDER/sources/NAME-VERSION``, where a checkout of that commit must be.
"""

from __future__ import annotations

import argparse
import importlib
import os
import re
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path

import uv
from packaging.requirements import Requirement

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent.parent / "src"), str(HERE.parent)]

from field import work  # noqa: E402
from field.projects import PROJECTS, Project  # noqa: E402
from hatch_torch_ext import compare  # noqa: E402
from hatch_torch_ext.base import process  # noqa: E402

tomllib = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")

RESULTS = HERE.parent.parent / "benchmarks" / "results" / "compared.md"
HEAD = """\
# Projects of others: the wheel of setup.py beside ours

`python tests/field/compared.py TORCH [NAME…] [--compile]`: the wheel that the published sources make by their own
setup.py, and the wheel of the same sources after `hatch-torch-ext init`, for one release of torch and the CPU, compared
by `hatch-torch-ext compare`. *Compiled* says whether the extensions were compiled; else both wheels were made without
them, and what compiled files hold was not compared. Both compilers optimize only where the project's own flags ask for
it. *Listed* says whether `init` names each thing that is lost. A
version of hexadecimal digits is a commit of the project's repository.

| project | torch | compiled | lost | changed | new | what is lost | listed |
|---|---|---|---|---|---|---|---|
"""


def _more(name: str, version: str, *init: str) -> Project:
    """Return a project that is compared only; a version of hexadecimal digits is a commit, which no index has."""
    return Project(name=name, version=version, way="init", package=name, check=name, init=("--cpu", *init))


MORE = (
    _more("torchmcubes", "3381600dd"),
    _more("libtorch_pybind", "ba3d572ed"),
    _more("openpifpaf", "37aacead5"),
    _more("fairseq", "3d262bb25"),
    _more("detectron2", "02b5c4e29"),
    _more("torchrl", "ae9719f17"),
    _more("torchopt", "960fb0aa5"),
    _more("quad-iou", "0.2.0"),
    _more("dbscan-torch", "0.2.0"),
    _more("lanms-pytorch", "1.0.3"),
    _more("torch-ms-deform-attn", "0.1.1"),
    _more("torch-ans", "0.4.0"),
    _more("torch-projectors", "0.13.1"),
    _more("torchcompactradius", "0.5.5"),
    _more("beamgrad", "2.3.0", "--force"),
    _more("fast_rnnt", "1.3"),
    _more("torch-linear-assignment", "0.0.6"),
    _more("torchdtw", "0.4.2"),
    _more("philtorch", "0.7.0"),
    _more("extension-cpp", "0ec4969c7"),
)
"""Projects that are compared, and whose operators are not compared with a reference."""
TOOLS = ("setuptools<81", "wheel", "ninja", "packaging", "numpy", "pybind11")
"""What a setup.py finds besides torch, as in a `pip install --no-build-isolation` of its readme."""
OLD = """
import runpy, sys
import setuptools
setup = setuptools.setup
if {plain}:
    import torch.utils.cpp_extension
    torch.utils.cpp_extension.CUDA_HOME = "/usr/local/cuda"  # nothing is compiled, whatever is declared
def without(**given):
    if {plain}:
        for name in ("ext_modules", "cmdclass"):
            given.pop(name, None)
    return setup(**given)
setuptools.setup = without
sys.argv[:] = ["setup.py", "bdist_wheel", "-d", {out!r}]
sys.path.insert(0, "")
runpy.run_path("setup.py", run_name="__main__")
"""


VERDICTS = ("lost", "changed", "new")


@dataclass(kw_only=True)
class Compared:
    """What came of one project: differences, and the lines that ``init`` listed; or why there are none."""

    project: Project
    torch: str
    compiled: bool
    counts: dict[str, int] = field(default_factory=dict)
    lost: list[compare.Difference] = field(default_factory=list)
    listed: list[str] = field(default_factory=list)
    failed: str = ""

    @property
    def unlisted(self) -> list[compare.Difference]:
        """Return what is lost and in no line of ``init``."""
        said = " ".join(self.listed)
        return [each for each in self.lost if each.subject not in said]

    @property
    def key(self) -> str:
        """Return the beginning of its row, by which an older one is found."""
        how = "yes" if self.compiled else "no"
        return f"| {self.project.name} {self.project.version} | {self.torch} | {how} |"

    @property
    def row(self) -> str:
        """Return the row of the table."""
        if self.failed:
            return f"{self.key} | | | fails: {self.failed} | |"
        counts = " | ".join(str(self.counts[verdict]) for verdict in VERDICTS)
        lost = "<br>".join(each.message.replace("|", "/") for each in self.lost[:8]) or "nothing"
        more = f"<br>and {len(self.lost) - 8} more" if len(self.lost) > 8 else ""
        listed = "" if not self.lost else "no" if self.unlisted else "yes"
        return f"{self.key} {counts} | {lost}{more} | {listed} |"


def version(project: Project) -> str:
    """Return the version that setuptools-scm is given, since the sources have no tags."""
    return "0.1.0" if re.fullmatch(r"[0-9a-f]{7,40}", project.version) else project.version


def checkout(source: Path, target: Path) -> None:
    """Copy the sources as a checkout has them, without what setuptools writes into a source distribution."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target, symlinks=True, ignore=shutil.ignore_patterns("*.egg-info", ".git"))
    (target / "PKG-INFO").unlink(missing_ok=True)


def site_of(python: Path) -> Path:
    """Return the folder in which a Python has its packages."""
    return Path(process.run([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]).stdout.strip())


def environment(folder: Path, source: Path, torch: Path) -> Path:
    """Make an environment that sees ``torch`` and has what the sources are built with; return its Python."""
    shutil.rmtree(folder, ignore_errors=True)
    process.run([uv.find_uv_bin(), "venv", "--quiet", "--python", torch, folder])
    python = folder / "bin" / "python"
    asked: list[str] = []
    if (path := source / "pyproject.toml").is_file():
        asked = tomllib.loads(path.read_text(encoding="utf-8")).get("build-system", {}).get("requires", [])
    wanted = [each for each in asked if Requirement(each).name not in {"torch", "setuptools"}]
    install: list[str | Path] = [uv.find_uv_bin(), "pip", "install", "--quiet", "--python", python]
    process.run([*install, *TOOLS, *wanted])
    (site,) = (folder / "lib").glob("python*/site-packages")
    (site / "zz_torch.pth").write_text(f"{site_of(torch)}\n", encoding="utf-8")
    return python


def of_setuptools(project: Project, root: Path, python: Path, torch: Path, *, compiled: bool) -> Path:
    """Return the wheel that the project in ``root`` makes by its own backend, on a machine without CUDA."""
    code = OLD.format(plain=not compiled, out=str(root / "wheel"))
    variables: dict[str, str | None] = {
        "CUDA_VISIBLE_DEVICES": "",
        "CUDA_HOME": None,
        "CFLAGS": "-g0 -O0",
        "CMAKE_PREFIX_PATH": str(site_of(torch) / "torch" / "share" / "cmake"),
        "MAX_JOBS": "2",
        "TORCH_CUDA_ARCH_LIST": "9.0",  # some refuse a machine with CUDA where it is not set
        "PATH": f"{python.parent}:/usr/bin:/bin" if compiled else f"{python.parent}:{os.environ['PATH']}",
        "PYTHONPATH": None,
        "SETUPTOOLS_SCM_PRETEND_VERSION": version(project),
    }
    command: list[str | Path] = [python, "-c", code]
    if not (root / "setup.py").is_file():
        assert compiled, "it has no setup.py: its wheel is made with --compile only"
        command = [
            uv.find_uv_bin(),
            "build",
            "--wheel",
            "--no-build-isolation",
            "--python",
            python,
            "-o",
            "wheel",
            root,
        ]
    process.run(command, cwd=root, env_changes=variables, timeout=3000 if compiled else 300)
    (wheel,) = (root / "wheel").glob("*.whl")
    return wheel


def without_optimization(root: Path) -> None:
    """Let CMake compile as ``of_setuptools`` does: names and schemas are the same, in a third of the time."""
    pyproject = root / "pyproject.toml"
    text = pyproject.read_text(encoding="utf-8")
    table = "[tool.hatch.build.targets.wheel.hooks.torch-ext]\n"
    assert table in text, f"{pyproject} has no table of the hook"
    if ".hooks.torch-ext.cmake" in text:
        return  # it has such a table of its own
    flags = 'cmake.define = { CMAKE_CXX_FLAGS_RELEASE = "-O0 -DNDEBUG", CMAKE_C_FLAGS_RELEASE = "-O0 -DNDEBUG" }\n'
    pyproject.write_text(text.replace(table, f"{table}{flags}"), encoding="utf-8")


def written_by_cmake(root: Path) -> set[str]:
    """Return the modules that CMake writes, which a wheel without compiled files lacks."""
    cmake, hook = root / "CMakeLists.txt", tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    package = hook["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["torch-ext"]["package"]
    found = re.findall(r"^file\(CONFIGURE OUTPUT (\S+)\.py ", cmake.read_text(encoding="utf-8"), re.MULTILINE)
    return {f"{package}.{name.replace('/', '.')}" for name in found}


def side_by_side(project: Project, folder: Path, torch: Path, release: str, *, compiled: bool) -> Compared:
    """Make both wheels of the project in ``folder`` and compare them."""
    found = Compared(project=project, torch=release, compiled=compiled)
    outcome = work.Outcome(project=project)
    place = folder / f"{project.name}-{project.version}"
    try:
        source = work.fetch(project, folder)
        checkout(source, place / "checkout")
        checkout(source, place / "old")
        python = environment(place / "environment", source, torch)
        before = of_setuptools(project, place / "old", python, torch, compiled=compiled)
        work.prepare(project, place / "checkout", place / "new", [release], outcome)
        without_optimization(place / "new")
        variables: dict[str, str | None] = {"SETUPTOOLS_SCM_PRETEND_VERSION": version(project)}
        if not compiled:
            variables["HATCH_BUILD_NO_HOOKS"] = "true"
        made = work.build(place / "new", place / "new" / "dist", variables)
        by_cmake = set() if compiled else written_by_cmake(place / "new")
        differences = [each for each in compare.compare(before, made).differences if each.subject not in by_cmake]
        found.counts = {verdict: sum(each.verdict == verdict for each in differences) for verdict in VERDICTS}
        found.lost = [each for each in differences if each.verdict == "lost"]
    except Exception as error:  # noqa: BLE001 -- the next project is compared, and the row says what went wrong
        said = getattr(error, "output", "").strip().splitlines()
        told = " ".join(said[-2:] or str(error).split()).replace(f"{folder}/", "")
        found.failed = told.replace("|", "/").replace(str(torch), "python")[:400]
    found.listed = outcome.listed
    return found


def record(found: Compared) -> None:
    """Write the row of a project in place of its older one."""
    text = RESULTS.read_text(encoding="utf-8") if RESULTS.exists() else HEAD
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    rows = [line for line in lines if not line.startswith("| project |")]
    rows = [*(row for row in rows if not row.startswith(found.key)), found.row]
    RESULTS.write_text(HEAD + "".join(f"{row}\n" for row in sorted(rows, key=str.lower)), encoding="utf-8")


def main() -> int:
    """Compare the projects that are named, or all that ``init`` turns."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("torch", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--folder", type=Path, default=Path("build") / "compared")
    options = parser.parse_args()
    said = process.run([options.torch.absolute(), "-c", "import torch; print(torch.__version__)"]).stdout
    release = re.sub(r"^(\d+\.\d+).*", r"\1", said.strip())
    status = 0
    for project in (*PROJECTS, *MORE):
        if project.way != "init" or (options.names and project.name not in options.names):
            continue
        folder, torch = options.folder.resolve(), options.torch.absolute()
        found = side_by_side(project, folder, torch, release, compiled=options.compile)
        record(found)
        print(found.row, *(f"    {line}" for line in found.listed), sep="\n", flush=True)
        status |= bool(found.failed or found.unlisted)
    return status


if __name__ == "__main__":
    sys.exit(main())
