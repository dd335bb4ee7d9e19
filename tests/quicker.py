"""Real torches that take less of the processor: Python neither looks for cycles in them nor compiles all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

# `import torch` makes so many objects that looking through them, and once more at the end, takes a second of three.
WITHOUT_COLLECTOR = "import gc, atexit; gc.disable(); atexit.register(gc.freeze)\n"


def start(environment: Path) -> None:
    """Let each process of an environment that has torch, or sees another's, start without Python's collector."""
    for site in environment.glob("lib/python*/site-packages"):
        (site / "zz_without_collector.pth").write_text(WITHOUT_COLLECTOR, encoding="utf-8")
