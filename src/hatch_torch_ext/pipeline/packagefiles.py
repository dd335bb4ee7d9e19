"""Checks CMake's install plan before compiling, so that a certain clash is reported at once instead of minutes later.

Files that Ninja makes, or that install rules with code install, are checked afterwards.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from hatch_torch_ext import elf, merge
from hatch_torch_ext.base.errors import CompileError
from hatch_torch_ext.facts import content

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from hatch_torch_ext.cmake.replies import InstallPlan
    from hatch_torch_ext.config import Config
    from hatch_torch_ext.facts.variant import BuiltVariant


class PackageFiles:
    """The files of one build's package: ``shipped`` are the author's, by place in the wheel. Thread-safe.

    ``wheels`` holds, for each entry, the machine of its wheel, or None if there is one wheel.
    """

    def __init__(self, config: Config, shipped: Mapping[str, Path], wheels: Mapping[str, str | None]) -> None:
        self._config, self._shipped, self._wheels = config, shipped, wheels
        self._folder = config.package.replace(".", "/")
        self._lock = threading.Lock()
        self._seen: dict[tuple[str | None, str], tuple[str, str]] = {}

    def know(self, built: BuiltVariant) -> None:
        """Record the files of an entry that is finished already."""
        for target, path in built.package_files:
            entry = built.variant.build.entry
            self._seen.setdefault((self._wheels[entry], target), (entry, content.sha256(path)))

    def check(self, entry: str, plan: InstallPlan) -> None:
        """Raise ``CompileError`` if the files of ``entry`` cannot be in one package with those of the others."""
        from hatch_torch_ext.repair import contents

        files = {contents.fold(place, self._config.package): source for place, source in plan.files}
        if not (self._config.package_dir.is_dir() or plan.code or _brings_python(plan)):
            raise CompileError(entry, no_package(self._config))
        for target, source in sorted(files.items()):
            if contents.matches(target, self._config.variant_data) or elf.is_elf(source):
                continue
            if (own := self._shipped.get(f"{self._folder}/{target}")) is not None:
                if own.read_bytes() != source.read_bytes():
                    raise CompileError(entry, in_both(target, own))
            elif not merge.may_differ(target):
                found = content.sha256(source)
                with self._lock:
                    other, first = self._seen.setdefault((self._wheels[entry], target), (entry, found))
                    if other == entry:  # configured again
                        first = found
                        self._seen[self._wheels[entry], target] = entry, found
                if found != first:
                    raise CompileError(entry, merge.not_the_same(target, other, entry))


def in_both(target: str, own: Path) -> str:
    """Return the message for a file that both CMake and the author's package install, with different content."""
    return (
        f"CMake installs `{target}`, which is in the package already, not the same (`{own}`): take one of them out, or "
        "install it under another name."
    )


def no_package(config: Config) -> str:
    """Return the message for a package that is neither in the sources nor among the files that CMake installs."""
    place = config.package_dir.relative_to(config.root).as_posix()
    return (
        f"The package `{config.package}` has no folder `{place}`, and CMake installs no Python file for it. Create the "
        "folder, name another package with option `package`, or let CMake install the package's files: "
        f"`install(DIRECTORY <folder>/ DESTINATION {config.package.replace('.', '/')})`."
    )


def _brings_python(plan: InstallPlan) -> bool:
    return any(place.endswith(".py") for place, _ in plan.files) or any(
        next(folder.rglob("*.py"), None) is not None for _, folder in plan.folders
    )
