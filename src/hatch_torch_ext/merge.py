"""Variants -> ``Layout``: the same bytes once, one policy tag, one torch requirement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from hatch_torch_ext.variant import Variant


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutFile:
    """A file of the wheel: ``target`` is POSIX, relative to the package's folder; ``source`` is absolute."""

    target: str
    source: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedVariant:
    """A variant and where each of its files landed: ``places`` maps ``VariantFile.path`` to a target in the package."""

    variant: Variant
    places: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """What goes into the wheel besides the author's files: everything sorted, nothing written yet.

    ``tag`` is the wheel's full tag; ``requires`` the ``Requires-Dist`` line for torch; ``manifest`` the text of
    ``_torch_ext/manifest.json``.
    """

    package: str
    variants: tuple[PlacedVariant, ...]
    files: tuple[LayoutFile, ...]
    tag: str
    requires: str
    manifest: str
