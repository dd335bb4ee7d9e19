"""What the build of a wheel needs besides this package: its extra ``build``, requested when a wheel is built.

Metadata and sdists need none of it, so an isolated build of only these installs few packages.
"""

from __future__ import annotations

import re
import shutil
from importlib import metadata

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from hatch_torch_ext.base import process
from hatch_torch_ext.base.errors import ConfigurationError, ProcessError
from hatch_torch_ext.environments import program

EXTRA = "build"
_PROGRAMS = ("cmake", "ninja")
_OF_HATCHLING = ("editables",)  # hatchling requests it itself
_STORED = ("hatch", "rich")


def of_a_wheel() -> list[str]:
    """Return the requirements, sorted; cmake and ninja only if those of the machine are missing or too old.

    hatch and rich have a separate environment (``environments.program``). If it cannot be made, they are among the
    requirements, and the front end installs them with its own settings.
    """
    found = []
    for line in metadata.requires("hatch-torch-ext") or []:
        requirement = Requirement(line)
        name = canonicalize_name(requirement.name)
        is_ours = requirement.marker is not None and requirement.marker.evaluate({"extra": EXTRA})
        if not is_ours or name in _OF_HATCHLING or (name in _PROGRAMS and _is_on_path(name, requirement)):
            continue
        if name in _STORED and _hatch_is_stored():
            continue
        requirement.marker = None
        found.append(str(requirement))
    return sorted(found)


def _is_on_path(name: str, requirement: Requirement) -> bool:
    """Return whether a program of that name is on PATH, and new enough."""
    if (path := shutil.which(name)) is None:
        return False
    try:
        output = process.run([path, "--version"], timeout=60.0).stdout
    except ProcessError:
        return False
    version = re.search(r"\d+(?:\.\d+)+", output)
    return version is not None and requirement.specifier.contains(version[0], prereleases=True)


def _hatch_is_stored() -> bool:
    try:
        program.folder()
    except ConfigurationError:
        return False
    return True
