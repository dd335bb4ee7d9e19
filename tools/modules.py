"""Writes docs/contributing/modules.md: every module in one line, the first of its docstring.

Run `hatch run modules` after a module was added, moved or described anew; a test fails as long as the page differs.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
SOURCES = PROJECT / "src" / "hatch_torch_ext"
PAGE = PROJECT / "docs" / "contributing" / "modules.md"
ROOMS = (
    *("", "hooks", "cli", "views", "user", "pipeline", "outlets", "init", "config", "matrix", "environments", "sdk"),
    *("toolchain", "cmake", "repair", "audit", "merge", "compare", "report", "resolve", "remote", "store", "wheel"),
    *("values", "facts", "elf", "base", "resources"),
)
"""The rooms, in the order of CONTRIBUTING.md; the first is the package itself."""
HEAD = """# Modules

This page finds the file for a change: each module of `src/hatch_torch_ext`, room by room, in the words of its
docstring. Search it for what you are looking for. `hatch run modules` writes it.
"""


def first_line(path: Path) -> str:
    """Return what a file says of itself in its first line: a module's docstring, or the comment of a CMake file."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        line = (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0]
    else:
        comment = re.match(r"(?:# .*\n)*", text)
        words = " ".join(each.removeprefix("# ") for each in (comment[0] if comment else "").splitlines())
        line = re.split(r"(?<=\.)\s", words)[0]
    if not line:
        raise ValueError(f"{path.relative_to(PROJECT)} does not say what it is for: give it a docstring of one line")
    return line.replace("``", "`").replace("|", "\\|")


def files(folder: Path, *, deep: bool) -> list[Path]:
    """Return the files of a folder that the page lists, sorted, ``__init__.py`` first."""
    paths = [path for suffix in ("py", "cmake") for path in (folder.rglob if deep else folder.glob)(f"*.{suffix}")]
    return sorted(paths, key=lambda path: (path.name != "__init__.py" or path.parent != folder, path.as_posix()))


def table(folder: Path, paths: list[Path]) -> str:
    """Return the rows of some files, named relative to ``folder``."""
    rows = [f"| `{path.relative_to(folder).as_posix()}` | {first_line(path)} |" for path in paths]
    return "\n".join(["| file | what is in it |", "|---|---|", *rows])


def page() -> str:
    """Return the page as it is to be."""
    parts = [HEAD]
    for room in ROOMS:
        title = f"`{room}/`" if room else "The package itself"
        parts.append(f"## {title}\n\n{table(SOURCES / room, files(SOURCES / room, deep=bool(room)))}\n")
    tests = PROJECT / "tests"
    parts.append(f"## `tests/`: what tests share\n\n{table(tests, files(tests, deep=False))}\n")
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
