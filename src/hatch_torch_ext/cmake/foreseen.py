"""The files that ``install(DIRECTORY)`` will install, before anything is compiled: CMake applies its patterns."""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING

from hatch_torch_ext.base import process

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from hatch_torch_ext.cmake.replies import InstallPlan
    from hatch_torch_ext.values.job import Job

_RULE = re.compile(r'^ *file\(INSTALL DESTINATION ("[^"\n]*") TYPE DIRECTORY ([^\n]*)$', re.MULTILINE)
"""A rule as CMake writes it into cmake_install.cmake: one line, the folders quoted, then what is left out."""
_PREFIX = "${CMAKE_INSTALL_PREFIX}"


def files(job: Job, plan: InstallPlan) -> tuple[tuple[str, Path], ...]:
    """Return (place in the install tree, source) of the files of ``plan.folders``, but for what the build may change.

    CMake runs these rules alone, and makes links in a folder of ours.
    """
    there = [path for _, path in plan.folders if path.is_dir() and not path.is_relative_to(job.build)]
    rules = list(_rules(job, there))
    if not rules:
        return ()
    scratch, script = job.folder / "foreseen", job.folder / "foreseen.cmake"
    shutil.rmtree(scratch, ignore_errors=True)
    script.write_text("\n".join([f'set(CMAKE_INSTALL_PREFIX "{scratch}")', *rules, ""]), encoding="utf-8")
    links = {"CMAKE_INSTALL_MODE": "ABS_SYMLINK", "DESTDIR": None}
    # Where it fails, so will the installation, which then says why.
    process.run([job.toolchain.cmake.path, "-P", script], env_changes=links, check=False)
    found = [(path.relative_to(scratch).as_posix(), path.resolve()) for path in sorted(scratch.rglob("*"))]
    return tuple((place, path) for place, path in found if path.is_file())


def _rules(job: Job, folders: list[Path]) -> Iterator[str]:
    wanted = {str(folder).rstrip("/") for folder in folders}
    site = job.environment.site_packages
    for script in sorted(job.build.rglob("cmake_install.cmake")):
        for match in _RULE.finditer(script.read_text(encoding="utf-8", errors="replace")):
            sources = {path.rstrip("/") for path in re.findall(r'"([^"]*)"', match[2].partition(" REGEX ")[0])}
            place = match[1].replace(str(site), f"{_PREFIX}/{site.name}").replace(str(job.prefix), _PREFIX)
            if sources <= wanted and place.startswith(f'"{_PREFIX}'):
                yield f"file(INSTALL DESTINATION {place} TYPE DIRECTORY {match[2]}"
