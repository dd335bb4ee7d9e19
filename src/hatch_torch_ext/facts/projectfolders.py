"""Folders of a project that tools make, and whose files nobody compiles."""

from __future__ import annotations

SKIPPED = ("__pycache__", "node_modules")
SIGNS = ("pyvenv.cfg", "CACHEDIR.TAG")
"""Files that mark their folder as generated."""
