"""A squarified treemap: amounts become rectangles of proportional area, as close to squares as possible. Pure.

After Bruls, Huizing and van Wijk, "Squarified Treemaps" (2000).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A rectangle, ``x`` and ``y`` its upper left corner."""

    x: float
    y: float
    width: float
    height: float

    def inside(self, gap: float, *, top: float = 0.0) -> Box:
        """Return the rectangle that remains within a border of ``gap`` and a strip of height ``top``."""
        return Box(
            x=self.x + gap,
            y=self.y + gap + top,
            width=max(0.0, self.width - 2 * gap),
            height=max(0.0, self.height - 2 * gap - top),
        )


def layout(amounts: Sequence[float], box: Box) -> list[Box]:
    """Return a rectangle within ``box`` for each of ``amounts``, which must be positive and in descending order."""
    total = sum(amounts)
    if not amounts or total <= 0 or box.width <= 0 or box.height <= 0:
        return [Box(x=box.x, y=box.y, width=0.0, height=0.0) for _ in amounts]
    scale = box.width * box.height / total
    areas = [amount * scale for amount in amounts]
    placed: list[Box] = []
    start = 0
    while start < len(areas):
        side = min(box.width, box.height)
        end = start + 1
        while end < len(areas) and _worst(areas[start : end + 1], side) <= _worst(areas[start:end], side):
            end += 1
        row, box = _row(areas[start:end], box)
        placed += row
        start = end
    return placed


def _worst(row: Sequence[float], side: float) -> float:
    """Return the largest ratio of long to short side in a row of areas along ``side``."""
    depth = sum(row) / side if side else 0.0
    if not depth:
        return float("inf")
    return max(max(depth * depth / area, area / (depth * depth)) if area else float("inf") for area in row)


def _row(row: Sequence[float], box: Box) -> tuple[list[Box], Box]:
    """Lay out one row along the shorter side of ``box``; return it and the rest of the box."""
    upright = box.width >= box.height
    side = box.height if upright else box.width
    depth = sum(row) / side if side else 0.0
    placed = []
    at = 0.0
    for area in row:
        length = area / depth if depth else 0.0
        if upright:
            placed.append(Box(x=box.x, y=box.y + at, width=depth, height=length))
        else:
            placed.append(Box(x=box.x + at, y=box.y, width=length, height=depth))
        at += length
    if upright:
        rest = Box(x=box.x + depth, y=box.y, width=max(0.0, box.width - depth), height=box.height)
    else:
        rest = Box(x=box.x, y=box.y + depth, width=box.width, height=max(0.0, box.height - depth))
    return placed, rest
