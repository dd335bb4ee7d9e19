"""Subjects of the audit whose files are written byte by byte."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import elves
from hatch_torch_ext import elf
from hatch_torch_ext.audit import variants
from hatch_torch_ext.audit.findings import settle
from hatch_torch_ext.audit.subject import AuditedBinary, Subject

if TYPE_CHECKING:
    from pathlib import Path

C = {"needed": ("libc.so.6",)}


class Making:
    """Makes subjects of files in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def binary(
        self, place: str = "my_pkg/_torch_ext/label/lib.so", *, depth: int | None = 3, **parts: Any
    ) -> AuditedBinary:
        """Write a file at ``place`` and return it in the audit's form."""
        path = self.folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(elves.shared_object(**{**C, **parts}))
        return AuditedBinary(place=place, elf=elf.read(path), depth=depth)

    def one(self, *, facts: dict[str, Any] | None = None, **parts: Any) -> list[tuple[str, str]]:
        """Return code and message of every finding on one file."""
        return self.all(self.binary(**parts), **(facts or {}))

    def all(self, *binaries: AuditedBinary, **facts: Any) -> list[tuple[str, str]]:
        """Return code and message of every finding on files that belong together."""
        subject = Subject(**{"variant": "label", "binaries": binaries, **facts})
        return [(found.code, found.message) for found in settle(variants.check(subject))]
