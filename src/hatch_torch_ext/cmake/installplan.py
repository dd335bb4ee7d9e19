"""What the install rules of a configured project will install, before anything is compiled.

Which files ``install(DIRECTORY)`` takes, CMake says: it applies its patterns.
"""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hatch_torch_ext.base import process

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hatch_torch_ext.cmake.replies import Reply
    from hatch_torch_ext.values import Job

_RULE = re.compile(r'^ *file\(INSTALL DESTINATION ("[^"\n]*") TYPE DIRECTORY ([^\n]*)$', re.MULTILINE)
"""A rule as CMake writes it into cmake_install.cmake: one line, the folders quoted, then what is left out."""
_PREFIX = "${CMAKE_INSTALL_PREFIX}"


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallPlan:
    """What will be in the install tree besides targets, as far as it is known before anything is compiled.

    ``files`` and ``folders`` are (place in the tree, source); ``code`` says that install rules also run code, which may
    install anything.
    """

    files: tuple[tuple[str, Path], ...]
    folders: tuple[tuple[str, Path], ...]
    code: bool


def of(job: Job, reply: Reply) -> InstallPlan:
    """Return what the install rules will install, without what Ninja makes."""
    build, prefix, site = job.build, job.prefix, job.environment.site_packages
    made = (build / "build.ninja").read_text(encoding="utf-8", errors="replace")
    found: dict[str, list[tuple[str, Path]]] = {"files": [], "folders": []}
    for rule in reply.rules:
        folder = Path(os.path.normpath(prefix / (rule.destination or "")))
        folder = Path(site.name) / folder.relative_to(site) if folder.is_relative_to(site) else folder
        folder = folder.relative_to(prefix) if folder.is_relative_to(prefix) else folder
        for kind, paths in (("files", rule.files), ("folders", rule.folders)):
            found[kind] += [(os.path.normpath(folder / name), path) for name, path in paths]
    files = [
        (place, path)
        for place, path in found["files"]
        if path.is_file() and not (path.is_relative_to(build) and path.relative_to(build).as_posix() in made)
    ]
    return InstallPlan(
        files=(*files, *_of_folders(job, [path for _, path in found["folders"]])),
        folders=tuple(found["folders"]),
        code=any(rule.destination is None for rule in reply.rules),
    )


def _of_folders(job: Job, folders: Sequence[Path]) -> tuple[tuple[str, Path], ...]:
    """Return (place in the install tree, source) of the files of ``folders``, but for what the build may change.

    CMake runs only these rules, and makes links in a folder of ours.
    """
    there = [path for path in folders if path.is_dir() and not path.is_relative_to(job.build)]
    rules = list(_rules(job, there))
    if not rules:
        return ()
    scratch, script = job.folder / "installplan", job.folder / "installplan.cmake"
    shutil.rmtree(scratch, ignore_errors=True)
    script.write_text("\n".join([f'set(CMAKE_INSTALL_PREFIX "{scratch}")', *rules, ""]), encoding="utf-8")
    links = {"CMAKE_INSTALL_MODE": "ABS_SYMLINK", "DESTDIR": None}
    # Where it fails, so will the installation, which then says why.
    process.run([job.toolchain.cmake.path, "-P", script], env_changes=links, check=False)
    found = [(path.relative_to(scratch).as_posix(), path.resolve()) for path in sorted(scratch.rglob("*"))]
    return tuple((place, path) for place, path in found if path.is_file())


def _rules(job: Job, folders: list[Path]) -> Iterator[str]:
    copied = {str(folder).rstrip("/") for folder in folders}
    site = job.environment.site_packages
    for script in sorted(job.build.rglob("cmake_install.cmake")):
        for match in _RULE.finditer(script.read_text(encoding="utf-8", errors="replace")):
            sources = {path.rstrip("/") for path in re.findall(r'"([^"]*)"', match[2].partition(" REGEX ")[0])}
            place = match[1].replace(str(site), f"{_PREFIX}/{site.name}").replace(str(job.prefix), _PREFIX)
            if sources <= copied and place.startswith(f'"{_PREFIX}'):
                yield f"file(INSTALL DESTINATION {place} TYPE DIRECTORY {match[2]}"
