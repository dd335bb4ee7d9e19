"""What ``init`` writes into a project: files with their new texts, and notes on what is left to the author."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hatch_torch_ext.base.errors import ConfigurationError
from hatch_torch_ext.init import texts

if TYPE_CHECKING:
    from pathlib import Path

    from hatch_torch_ext.init.recording import Note

CMAKE = "CMakeLists.txt"


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """``files`` are (name, new text), names POSIX, relative to the project; ``notes`` say what the author has to do.

    ``entries`` is the number of entries of the matrix, ``torch`` its releases; ``wider`` says how it gets more of what
    the project admits. ``name`` is the distribution's, and ``made_of`` the file that declared the project before.
    """

    root: Path
    files: tuple[tuple[str, str], ...]
    notes: tuple[Note, ...]
    entries: int
    torch: tuple[str, ...] = ()
    name: str = ""
    wider: str | None = None
    made_of: str = "setup.py"
    kept: tuple[str, ...] = ()
    """Those of the files that are CMake's own, with lines added."""

    def diff(self) -> str:
        """Return the changes in the form of ``diff -u``. Raises ``ConfigurationError`` for a file that is not text."""
        shown: list[str] = []
        for name, text in self.files:
            before = (texts.of(self.root / name) or "").splitlines(keepends=True)
            there = f"a/{name}" if before else "/dev/null"
            lines = difflib.unified_diff(before, text.splitlines(keepends=True), there, f"b/{name}")
            shown += (line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)
        return "".join(shown)

    def require(self, *, force: bool) -> None:
        """Raise ``ConfigurationError`` if a CMake project that is there would be replaced, unless ``force``."""
        there = self.root / CMAKE
        if not force and there.exists() and CMAKE in {name for name, _ in self.files} - {*self.kept}:
            raise ConfigurationError(
                [f"{there} is there: `--force` replaces it; or keep it, and write the tables by hand."]
            )

    def write(self, *, force: bool) -> None:
        """Write the files. Raises ``ConfigurationError`` as ``require`` does."""
        self.require(force=force)
        for name, text in self.files:
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            lines = "\r\n" if path.is_file() and b"\r\n" in path.read_bytes() else "\n"
            path.write_text(text, encoding="utf-8", newline=lines)


def ignored(root: Path) -> list[tuple[str, str]]:
    """Return .gitignore with the folders that a build writes: hatchling leaves ignored files out of the sdist."""
    text = texts.of(root / ".gitignore") or ""
    there = {line.strip().strip("/") for line in text.splitlines()}
    new = "".join(f"/{name}/\n" for name in ("build", "dist") if name not in there)
    return [(".gitignore", f"{text.rstrip()}\n{new}".lstrip())] if new else []
