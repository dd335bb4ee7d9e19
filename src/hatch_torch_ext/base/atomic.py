"""Files that are written whole or not at all: a wheel in dist/, a file in site-packages, what a build tree reads."""

from __future__ import annotations

import contextlib
import glob
import os
import stat
import threading
from typing import TYPE_CHECKING

from hatch_torch_ext.base import locks

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextlib.contextmanager
def replacing(target: Path) -> Iterator[Path]:
    """Provide a draft beside ``target`` that replaces it at the end, with its mode, or is removed after an error.

    Drafts that killed processes left are removed; those of running processes stay.
    """
    for old in target.parent.glob(f".{glob.escape(target.name)}.*"):
        if not old.suffix[1:].isdigit():
            continue  # not named for a process: another program made it
        with contextlib.suppress(OSError):
            if (lease := locks.take(old, certain=True)) is not None:
                old.unlink()
                os.close(lease)
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    draft.open("x").close()  # never follows a link in its place
    lease = locks.take(draft)
    try:
        yield draft
        if target.exists():
            draft.chmod(stat.S_IMODE(target.stat().st_mode))
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)
        if lease is not None:
            os.close(lease)


def write(target: Path, data: bytes) -> None:
    """Write a file whole or not at all."""
    with replacing(target) as draft:
        draft.write_bytes(data)


def write_held(target: Path, text: str) -> None:
    """Write a file whole or not at all, in a folder that the caller holds: nobody else writes it meanwhile."""
    draft = target.with_name(f"{target.name}.new")
    draft.write_text(text, encoding="utf-8")
    draft.replace(target)


def update(target: Path, text: str, *, executable: bool = False) -> Path:
    """Write the file, whole, unless it has this text: its time says since when it has it. Return ``target``."""
    if not target.is_file() or target.read_bytes() != text.encode():
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = target.with_name(f"{target.name}.{os.getpid()}.{threading.get_ident()}")
        draft.write_text(text, encoding="utf-8")
        if executable:
            draft.chmod(0o755)
        draft.replace(target)
    return target
