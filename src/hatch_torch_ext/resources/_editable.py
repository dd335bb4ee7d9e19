"""Serves what a build made for an editable install: the sources stay as they are, the rest lies beside this file.

Made by hatch-torch-ext from its template ``_editable.py``; a line in a ``.pth`` file imports it at start-up.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

# The package, the folder (beside this file) of what was built for it, and its modules: dotted name -> file there.
PACKAGE = "package"
FOLDER = "folder"
MODULES: dict[str, str] = {}


class Finder(importlib.abc.MetaPathFinder):
    """Finds the modules that are not in the package's sources; every other name is left to the others."""

    package = PACKAGE

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,  # noqa: ARG002  the protocol's
        target: ModuleType | None = None,  # noqa: ARG002  the protocol's
    ) -> ModuleSpec | None:
        """Return the spec of ``<package>.<module>`` for the modules listed above, or None."""
        if not fullname.startswith(PACKAGE + "."):
            return None
        file = MODULES.get(fullname[len(PACKAGE) + 1 :])
        if file is None:
            return None
        location = os.path.join(os.path.dirname(os.path.abspath(__file__)), FOLDER, file)
        return importlib.util.spec_from_file_location(fullname, location)


if not any(
    getattr(finder, "package", None) == PACKAGE and type(finder).__name__ == "Finder" for finder in sys.meta_path
):
    sys.meta_path.insert(0, Finder())
