"""Ninja's log: what it wrote into a build folder, when, and by which command."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

FILE = ".ninja_log"
_FIELDS = 5  # start, end, time of the output, output, hash of the command


def lines(build: Path) -> list[str]:
    """Return the lines of the log, none before Ninja's first run."""
    try:
        text = (build / FILE).read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return []
    return text.removesuffix("\n").split("\n")  # names of files may have other ends of lines in them


def fields(line: str) -> list[str] | None:
    """Return start and end in milliseconds, time of the output, output, and hash of the command; None for the title."""
    found = line.split("\t")
    return found if len(found) == _FIELDS else None


def forget(build: Path, outputs: Collection[str] | None = None) -> None:
    """Let Ninja write ``outputs`` again, by default all but objects.

    It writes again what its log does not say that it wrote; nothing is removed.
    """
    if known := lines(build):
        kept = [line for line in known if (said := fields(line)) is None or not _is_in(said[3], outputs)]
        text = "".join(f"{line}\n" for line in kept)
        (build / FILE).write_text(text, encoding="utf-8", errors="surrogateescape")


def _is_in(output: str, outputs: Collection[str] | None) -> bool:
    return not output.endswith((".o", ".obj")) if outputs is None else output in outputs
