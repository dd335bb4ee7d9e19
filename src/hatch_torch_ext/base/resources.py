"""The files in ``resources/``, which run elsewhere or are written into other folders: where each is."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent.parent / "resources"
PROBE = FOLDER / "ask_python.py"
"""The script by which a Python reports its facts."""


def text(name: str) -> str:
    """Return the text of ``resources/<name>``."""
    return (FOLDER / name).read_text(encoding="utf-8")
