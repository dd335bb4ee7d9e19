"""CUDA extensions of others: moved by `init` where there is an index, built and checked where there is a GPU.

    python tests/field/gpu/run.py prepare FOLDER [NAME…]      fetch each source distribution, and move it by `init`
    python tests/field/gpu/run.py run FOLDER [NAME…] [--out FILE]

`prepare` needs the package index and no GPU; `run` needs torch with CUDA, nvcc and hatch-torch-ext with its extra
`build` in this Python, and no network. Nothing is edited by hand; the one setting that is added is `archs`. A wheel is
built for the torch that is installed (`HATCH_TORCH_EXT_ONLY=current`) and put into a folder of its own, and a script
compares its operators, values and gradients, with a reference in plain torch. The exit status is 1 if any project
failed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
CHECKS = HERE / "checks"
OF_THE_CPU = HERE.parent / "checks"
"""Scripts that are run with CUDA as the default device."""
ON_CUDA = "import runpy, sys, torch; torch.set_default_device('cuda'); runpy.run_path(sys.argv[1], run_name='__main__')"
ARCHS = "9.0"
LEFT_OUT = shutil.ignore_patterns("*.egg-info", "doc", "docs", "dev-data", "examples")


@dataclass(frozen=True, kw_only=True)
class Extension:
    """One project: its release on the index, its package, what `init` is given, and the wheels it is checked beside."""

    name: str
    version: str
    init: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()

    @property
    def script(self) -> Path:
        """Return the script that compares it with a reference."""
        name = f"{self.name.removeprefix('pytorch-').replace('-', '_')}.py"
        return CHECKS / name if (CHECKS / name).is_file() else OF_THE_CPU / name


EXTENSIONS = (
    Extension(name="torch_edit_distance", version="0.4.0"),
    Extension(name="warp_rnnt", version="0.7.0"),
    Extension(name="torch-discounted-cumsum", version="1.1.0"),
    Extension(name="chamferdist", version="1.0.3"),
    Extension(name="torchsort", version="0.1.9"),
    Extension(name="torchlpc", version="0.7.2"),
    Extension(name="torch_spline_conv", version="1.2.2", init=("--force",)),
    Extension(name="torch_scatter", version="2.1.2", init=("--force",)),
    Extension(name="torch_cluster", version="1.6.3", init=("--force",)),
    Extension(name="torch_sparse", version="0.6.18", init=("--force",), beside=("torch_scatter",)),
    Extension(name="torch-points-kernels", version="0.7.0"),
    Extension(name="inplace-abn", version="1.1.0"),
    Extension(name="pytorch-fast-transformers", version="0.4.0"),
    Extension(name="gsplat", version="1.5.3", init=("--force",)),
    Extension(name="mamba_ssm", version="2.3.2.post1", init=("--force",)),
    Extension(name="causal_conv1d", version="1.7.0", init=("--force",)),
)


def chosen(names: list[str]) -> list[Extension]:
    """Return the extensions that are named, all without a name. Ends the program for an unknown name."""
    known = {each.name: each for each in EXTENSIONS}
    if unknown := [name for name in names if name not in known]:
        sys.exit(f"no extension {', '.join(unknown)}; there are {', '.join(known)}")
    return [known[name] for name in names or known]


def prepare(extension: Extension, folder: Path, torch: str, python: str) -> None:
    """Put the project, moved, into ``folder/<name>``. Raises ``CalledProcessError`` if ``init`` fails."""
    sys.path[:0] = [str(HERE.parent.parent)]
    from field import work  # noqa: PLC0415 -- where nothing is fetched, its libraries need not be installed
    from field.projects import Project  # noqa: PLC0415

    described = Project(name=extension.name, version=extension.version, way="init", package="", check="")
    source = work.fetch(described, folder / "sources")
    root = folder / extension.name
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(source, root, symlinks=True, ignore=LEFT_OUT)
    root.joinpath("PKG-INFO").unlink(missing_ok=True)  # a checkout has none
    command = [sys.executable, "-m", "hatch_torch_ext", "init", "--python", python, "--torch", torch, *extension.init]
    subprocess.run(command, cwd=root, check=True)
    pyproject = root / "pyproject.toml"
    text = pyproject.read_text(encoding="utf-8")
    table = "[tool.hatch.build.targets.wheel.hooks.torch-ext]\n"
    assert table in text, f"{pyproject} has no table of the hook"
    pyproject.write_text(text.replace(table, f'{table}archs = ["{ARCHS}"]\n'), encoding="utf-8")


def built(extension: Extension, folder: Path, jobs: int) -> tuple[Path, float]:
    """Return the wheel of a project that was prepared, and the seconds that it took; one that is there is kept."""
    root = folder / extension.name
    if not (wheels := [*(root / "dist").glob("*.whl")]):
        environ = {**os.environ, "HATCH_TORCH_EXT_ONLY": "current", "HATCH_TORCH_EXT_JOBS": str(jobs)}
        environ["SETUPTOOLS_SCM_PRETEND_VERSION"] = extension.version  # a checkout has its tags
        start = time.monotonic()
        with (folder / f"{extension.name}.log").open("wb") as log:
            command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(root / "dist")]
            subprocess.run(command, cwd=root, env=environ, stdout=log, stderr=subprocess.STDOUT, check=True)
        (wheel,) = (root / "dist").glob("*.whl")
        return wheel, time.monotonic() - start
    return wheels[0], 0.0


def check(extension: Extension, folder: Path) -> str:
    """Return the last line of the script that compares the project with its reference. Raises ``AssertionError``."""
    site = folder / "installed" / extension.name
    shutil.rmtree(site, ignore_errors=True)
    for name in (extension.name, *extension.beside):
        (wheel,) = (folder / name / "dist").glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(site)  # as an installer puts it there: the wheel has no scripts and no data
    before = [] if extension.script.parent == CHECKS else ["-c", ON_CUDA]
    done = subprocess.run(
        [sys.executable, "-P", *before, str(extension.script)],
        env={**os.environ, "PYTHONPATH": str(site)},
        cwd=site,
        capture_output=True,
        text=True,
        check=False,
    )
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines or not lines[-1].startswith("right"):
        raise AssertionError(f"exit status {done.returncode}\n{done.stdout[-1500:]}\n{done.stderr[-1200:]}")
    return lines[-1]


def taken(extension: Extension, folder: Path, jobs: int) -> tuple[str, ...]:
    """Return the row of the results for one extension."""
    try:
        wheel, seconds = built(extension, folder, jobs)
    except (subprocess.CalledProcessError, OSError, ValueError) as error:
        log = folder / f"{extension.name}.log"
        end = log.read_text(encoding="utf-8", errors="replace")[-3000:] if log.is_file() else ""
        print(f"== {extension.name}: not built: {error}\n{end}", flush=True)
        return extension.name, extension.version, "", "", "not built"
    return extension.name, extension.version, f"{seconds:.0f} s", f"{wheel.stat().st_size / 1000:.0f} kB", ""


def run(extensions: list[Extension], folder: Path, out: Path | None, workers: int) -> int:
    """Build all, some side by side, then check one after another; print a table. Returns the exit status."""
    jobs = max(1, 3 * (os.cpu_count() or 1) // (2 * workers))
    with ThreadPoolExecutor(workers) as pool:
        rows = [*pool.map(lambda each: taken(each, folder, jobs), extensions)]
    ends = []
    for extension, row in zip(extensions, rows, strict=True):
        end = row[-1]
        if not end:
            try:
                end = check(extension, folder)
            except (AssertionError, OSError, ValueError) as error:
                print(f"== {extension.name}: {error}", flush=True)
                end = "wrong"
        ends.append((*row[:-1], end))
    head = ("extension", "release", "built", "wheel", "outcome")
    lines = [f"| {' | '.join(each)} |" for each in (head, ("---",) * len(head), *ends)]
    print("\n".join(lines), flush=True)
    if out is not None:
        out.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return 0 if all(end[-1].startswith("right") for end in ends) else 1


def main() -> int:
    """Run what the command line asks for; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("prepare", "run"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--out", type=Path, help="a Markdown file for the table")
    parser.add_argument("--torch", default="2.11", help="the release that `init` is given")
    parser.add_argument("--python", default="3.12", help="the Python that `init` is given")
    parser.add_argument("--workers", type=int, default=4, help="how many are built side by side")
    options = parser.parse_intermixed_args()
    extensions = chosen(options.names)
    folder = options.folder.resolve()
    if options.what == "run":
        return run(extensions, folder, options.out, options.workers)
    for extension in extensions:
        prepare(extension, folder, options.torch, options.python)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
