"""The documentation hangs together: every page is in the site's navigation, and every link leads to something."""

from __future__ import annotations

import ast
import importlib.util
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import tomlkit

from hatch_torch_ext import cli

if TYPE_CHECKING:
    from collections.abc import Iterator

PROJECT = Path(__file__).resolve().parent.parent.parent
DOCS = PROJECT / "docs"
PAGES = sorted(path.relative_to(PROJECT).as_posix() for path in DOCS.rglob("*.md"))
MAP = (PROJECT / "CONTRIBUTING.md", DOCS / "contributing" / "recipes.md", *sorted((DOCS / "decisions").glob("*.md")))
OTHERS = ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "example_project/README.md"]


def listed(nav: list[Any]) -> Iterator[str]:
    """Yield the pages of a navigation, in order."""
    for each in nav:
        for target in each.values() if isinstance(each, dict) else [each]:
            yield from [target] if isinstance(target, str) else listed(target)


def test_every_page_is_in_the_navigation_once() -> None:
    """A new page is added to `nav` in zensical.toml."""
    site = tomlkit.parse((PROJECT / "zensical.toml").read_text(encoding="utf-8")).unwrap()
    pages = [f"docs/{name}" for name in listed(site["project"]["nav"])]
    assert sorted(pages) == PAGES


@pytest.mark.parametrize("page", [*(page for page in PAGES if not (PROJECT / page).is_symlink()), *OTHERS])
def test_links_lead_to_something(page: str) -> None:
    """Relative links name files and headings that are there; those of the site's pages stay inside of docs."""
    path = PROJECT / page
    text = re.sub(r"```.*?```|`[^`\n]*`", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if link.startswith(("https://", "mailto:")):
            continue
        name, _, anchor = link.partition("#")
        target = path.parent / name if name else path
        # Symlinks count as the files of docs that they are for the site.
        inside = not page.startswith("docs/") or DOCS in (target.parent.resolve() / target.name).parents
        if not (target.exists() and inside and (not anchor or anchor in anchors(target))):
            broken.append(link)
    assert broken == []


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and the site make them."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    headings = re.findall(r"^#+ (.+?)\s*$", text, re.MULTILINE)
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower() for heading in headings)
    return {re.sub(r"[^\w\- ]", "", heading).strip().replace(" ", "-") for heading in plain}


def spoken(folder: Path) -> str:
    """Return all texts in the sources below ``folder``, values that are filled in left out."""
    texts = []
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = (str(each.value) if isinstance(each, ast.Constant) else "…" for each in node.values)
                texts.append("".join(parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.append(node.value)
    return "\n".join(texts)


def test_messages_of_the_page_on_troubleshooting_are_printed() -> None:
    """Each message that the page explains is one of ours, to the letter: whoever changes it changes the page."""
    page = (DOCS / "troubleshooting.md").read_text(encoding="utf-8").split("## Messages of the build")[1]
    messages = re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE)
    said = spoken(PROJECT / "src")
    assert len(messages) > 20
    assert [message for message in messages if message not in said] == []


def test_readme_names_every_command() -> None:
    """In the order of `--help`."""
    (sentence,) = re.findall(
        r"The command line `hatch-torch-ext` has (.+?);", (PROJECT / "README.md").read_text(encoding="utf-8"), re.DOTALL
    )
    assert re.findall(r"`(\w+)`", sentence) == list(cli.COMMANDS)


def test_the_page_of_modules_is_of_these_modules() -> None:
    """A module was added, moved or described anew: `hatch run modules` writes the page."""
    spec = importlib.util.spec_from_file_location("modules", PROJECT / "tools" / "modules.py")
    assert spec is not None
    assert spec.loader is not None
    modules = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(modules)
    assert modules.PAGE.read_text(encoding="utf-8") == modules.page(), "run `hatch run modules`"
    rooms = {path.parent.name for path in modules.SOURCES.glob("*/__init__.py")} | {"resources"}
    assert sorted({"", *rooms}) == sorted(modules.ROOMS)
    listed = re.findall(r"`(\w+)/`", re.findall(r"(?s)\| room \|.*?\n\n", MAP[0].read_text(encoding="utf-8"))[0])
    assert sorted(set(listed) & rooms) == sorted(rooms)


@pytest.mark.parametrize("page", MAP, ids=lambda path: path.name)
def test_the_map_names_what_is_there(page: Path) -> None:
    """Each file that these pages name exists, and a function that is named "in" a file is in it."""
    places = [PROJECT, PROJECT / "src" / "hatch_torch_ext", PROJECT / "tests"]
    text = re.sub(r"(?s)```.*?```", "", page.read_text(encoding="utf-8"))
    names = {path.name: path for place in places[1:] for path in place.rglob("*") if "__pycache__" not in path.parts}
    missing = []
    for word in re.findall(r"`([\w./-]*(?:/|\.(?:py|md|toml|json|cmake)))`", text):
        paths = [place / word for place in places if (place / word).exists()]
        if not paths and word not in names and not word.startswith((".", "cli/NAME")):
            missing.append(word)
    for name, word in re.findall(r"`(\w+)` (?:in|of) `([\w./]+\.py)`", text):
        path = next((place / word for place in places if (place / word).exists()), names.get(word))
        if path is None or not re.search(rf"\b{name}\b", path.read_text(encoding="utf-8")):
            missing.append(f"{name} in {word}")
    assert missing == []
