"""One project of the field, from the package index to operators that were compared with a reference."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tarfile
import time
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import uv
from packaging.utils import InvalidSdistFilename, canonicalize_name, parse_sdist_filename
from packaging.version import Version

from archives import unpack
from hatch_torch_ext.base import process
from hatch_torch_ext.remote import index, pipconfig, settings
from hatch_torch_ext.remote.http import Http, RemoteError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from .projects import Edit, Project

CHECKS = Path(__file__).resolve().parent / "checks"
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
PYPROJECT = """\
[build-system]
requires = ["hatchling", "hatch-torch-ext"]
build-backend = "hatchling.build"

[project]
name = "{name}"
version = "{version}"
dynamic = ["dependencies"]

[tool.hatch.metadata.hooks.torch-ext]

[tool.hatch.build.targets.wheel]
packages = ["{folder}"]

[tool.hatch.build.targets.wheel.hooks.torch-ext]
package = "{package}"
source = "{source}"
{options}
[tool.hatch.envs.matrix]
skip-install = true
dependencies = [{dependencies}]

[[tool.hatch.envs.matrix.matrix]]
torch = [{releases}]
python = ["{python}"]
"""


@dataclass(kw_only=True)
class Outcome:
    """What became of a project: files written and lines by hand, what ``init`` listed, what each step said."""

    project: Project
    written: list[str] = field(default_factory=list)
    lines_by_hand: int = 0
    listed: list[str] = field(default_factory=list)
    seconds: float = 0.0
    size: int = 0
    checked: list[str] = field(default_factory=list)
    failed: str | None = None

    @property
    def row(self) -> str:
        """Return the row of the results' table."""
        if self.failed:
            end = self.failed
        elif self.checked:
            end = f"right under {', '.join(self.checked)}"
        else:
            end = f"turned, not compiled: {self.project.why or 'not yet'}"
        built = f"{self.seconds:.0f} s, {self.size / 1000:.0f} kB" if self.size else ""
        listed = "<br>".join(self.listed) or "nothing"
        project = self.project
        return (
            f"| {project.name} {project.version} | {project.way} | {', '.join(self.written)} | {self.lines_by_hand} | "
            f"{listed} | {built} | {end} |"
        )


def fetch(project: Project, folder: Path) -> Path:
    """Return the folder of the project's unpacked source distribution, fetched once into ``folder``."""
    target = folder / "sources" / f"{project.name}-{project.version}"
    if target.is_dir():
        return target
    folder.mkdir(parents=True, exist_ok=True)
    wanted = canonicalize_name(project.name), Version(project.version)
    environ = pipconfig.merged(os.environ)
    with Http(settings.of_environ(environ)) as http:
        for address in http.settings.indexes:
            try:
                files = index.files(http, address, wanted[0])
            except RemoteError:
                continue
            for file in files:
                if _identity(file.name) == wanted:
                    archive = folder / file.name
                    if not archive.is_file():
                        body, _, _ = http.page(file.url, "*/*")
                        archive.write_bytes(body)
                    return _unpack(archive, target)
    raise LookupError(f"no index has a source distribution of {project.name} {project.version}")


def _identity(name: str) -> tuple[str, Version] | None:
    try:
        return parse_sdist_filename(name)
    except InvalidSdistFilename:
        return None


def _unpack(archive: Path, target: Path) -> Path:
    scratch = target.with_name(f"{target.name}.part")
    shutil.rmtree(scratch, ignore_errors=True)
    if archive.suffix == ".zip":
        with zipfile.ZipFile(archive) as zipped:
            zipped.extractall(scratch)
    else:
        with tarfile.open(archive) as tarred:
            unpack(tarred, scratch)
    (inner,) = scratch.iterdir()
    inner.rename(target)
    scratch.rmdir()
    return target


def prepare(project: Project, source: Path, root: Path, releases: Sequence[str], outcome: Outcome) -> None:
    """Make ``root`` of the sources: theirs, and what our side adds."""
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(source, root, symlinks=True)
    for archive in root.glob(project.unpack) if project.unpack else ():
        with tarfile.open(archive) as tarred:
            unpack(tarred, root)
    before = texts(root)
    if project.way == "init":
        options = [part for release in releases for part in ("--torch", release)]
        command = [sys.executable, "-m", "hatch_torch_ext", "init", "--python", PYTHON, *options, *project.init]
        done = process.run(command, cwd=root, check=False)
        if done.returncode:
            raise AssertionError(done.stderr.removeprefix("hatch-torch-ext: "))
        for line in done.stderr.splitlines():
            if line.startswith("by hand: "):
                outcome.listed.append(line.removeprefix("by hand: "))
    else:
        text = PYPROJECT.format(
            name=project.name,
            version=project.version,
            folder=project.folder or project.package,
            package=project.package,
            source=project.source,
            options="".join(f"{line}\n" for line in project.options),
            dependencies=", ".join(f'"{line}"' for line in ("torch=={matrix:torch}.*", *project.dependencies)),
            releases=", ".join(f'"{release}"' for release in releases),
            python=PYTHON,
        )
        (root / "pyproject.toml").write_text(text, encoding="utf-8")
        outcome.lines_by_hand += len(text.splitlines())
    for edit in project.edits:
        outcome.lines_by_hand += _edit(root, edit)
    outcome.written = sorted(name for name, text in texts(root).items() if before.get(name) != text)


def texts(root: Path) -> dict[str, bytes]:
    """Return path -> bytes of every file of a project."""
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def _edit(root: Path, edit: Edit) -> int:
    path = root / edit.file
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    first = next(at for at, line in enumerate(lines) if line.startswith(edit.start))
    last = next((at for at in range(first + 1, len(lines)) if lines[at].startswith(edit.end)), len(lines))
    path.write_text("".join([*lines[:first], edit.text, *lines[last:]]), encoding="utf-8")
    return len([line for line in edit.text.splitlines() if line.strip()])


def build(root: Path, out: Path, environ: Mapping[str, str | None]) -> Path:
    """Build the wheel as ``hatch build`` does, without its isolation; return it."""
    shutil.rmtree(out, ignore_errors=True)
    process.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", out], cwd=root, env_changes=environ)
    (wheel,) = out.glob("*.whl")
    return wheel


def _check_others(project: Project, folder: Path) -> None:
    for key in project.beside:
        if not any(_wheels(key, folder)):
            raise AssertionError(f"its check needs the wheel of {key}: name that before it")


def _wheels(key: str, folder: Path) -> Iterator[Path]:
    return (folder / key.replace(":", "-") / "dist").glob("*.whl")


def installed(wheels: Sequence[Path], torch: Path, folder: Path, *, needs: Sequence[str] = ()) -> Path:
    """Install wheels, and what they need, into a fresh environment in ``folder``; return its Python.

    It sees the torch of the Python ``torch``.
    """
    shutil.rmtree(folder, ignore_errors=True)
    process.run([uv.find_uv_bin(), "venv", "--quiet", "--python", torch, folder])
    python = folder / "bin" / "python"
    install: list[str | Path] = [uv.find_uv_bin(), "pip", "install", "--quiet", "--python", python]
    process.run([*install, "--no-deps", *wheels])
    if needs:
        process.run([*install, *needs])
    said = process.run([torch, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"])
    (site,) = (folder / "lib").glob("python*/site-packages")
    (site / "zz_torch.pth").write_text(said.stdout, encoding="utf-8")
    return python


def check(project: Project, wheel: Path, torch: Path, folder: Path, work: Path) -> str:
    """Install the wheel into a fresh environment that sees ``torch``, a Python that has one; run the check there.

    ``work`` has the projects that are needed beside it. Returns the release of torch under which the operators gave
    what the reference gives.
    """
    wheels = [wheel, *(each for key in project.beside for each in _wheels(key, work))]
    python = installed(wheels, torch, folder, needs=(*project.dependencies, *project.needs))
    return right(project.check, python, folder)


def right(name: str, python: Path, folder: Path) -> str:
    """Run the check ``name`` in ``folder``; return the release of torch under which all was as it should be."""
    script = CHECKS / f"{name}.py"
    done = process.run([python, "-P", script], cwd=folder, env_changes={"PYTHONPATH": None, "CUDA_VISIBLE_DEVICES": ""})
    release = re.search(r"^right under torch (\S+)$", done.stdout, re.MULTILINE)
    if release is None:
        raise AssertionError(f"{script.name} did not say that all is right:\n{done.stdout}")
    return release[1]


def run(
    project: Project,
    folder: Path,
    torches: Mapping[str, Path],
    environ: Mapping[str, str | None],
    *,
    turn_alone: bool = False,
) -> Outcome:
    """Take the project all the way in ``folder``; ``torches``: release of the matrix -> a Python that has it.

    ``turn_alone`` stops before the build, in a folder of its own.
    """
    outcome = Outcome(project=project)
    root = folder / f"{project.key.replace(':', '-')}{'-turned' if turn_alone else ''}"
    try:
        prepare(project, fetch(project, folder), root, list(torches), outcome)
        if project.built and not turn_alone:
            _check_others(project, folder)
            start = time.monotonic()
            wheel = build(root, root / "dist", environ)
            outcome.seconds = time.monotonic() - start
            outcome.size = wheel.stat().st_size
            for python in torches.values():
                outcome.checked.append(check(project, wheel, python, root / "build" / "installed", folder))
    except Exception as error:  # noqa: BLE001 -- the next project is tried, and the row says what went wrong
        said = getattr(error, "output", "").strip().splitlines()
        told = " ".join([*str(error).split(), *said[-3:]]).replace(f"{folder}/", "").replace(sys.executable, "python")
        outcome.failed = f"fails: {told.replace('|', '/')[:500]}"
    return outcome
