"""The workflows of a project for GitHub: two short ones of the author's, and two that these call."""

from __future__ import annotations

import json
import re
from importlib import resources
from pathlib import Path

from hatch_torch_ext import __version__

REUSABLE = ("build-wheels.yml", "add-torch.yml")
"""The workflows that the others call; in a repository of several projects they share them."""
CALLERS = ("wheels.yml", "follow-torch.yml")
"""The workflow of releases and pull requests, and the one that looks for a new torch."""
FOLDER = Path(".github") / "workflows"
UNPINNED = "hatch-torch-ext[build]"
"""What the workflows install; as they are written, of the version that writes them."""


def texts(place: Path = Path()) -> dict[str, str]:
    """Return name -> text of the workflows for a project at ``place`` in its repository.

    A project in a subfolder has its own callers, since there may be several, and tags with its name.
    """
    ours = resources.files("hatch_torch_ext") / "resources" / "ci"
    found = {
        file: (ours / file).read_text("utf-8").replace(f": {UNPINNED}\n", f": {UNPINNED}=={__version__}\n")
        for file in (*REUSABLE, *CALLERS)
    }
    if place == Path():
        return found
    name = re.sub(r"[^\w.-]+", "-", place.as_posix())
    callers = {file.replace(".yml", f"-{name}.yml"): _in_subfolder(found[file], place, name) for file in CALLERS}
    return {**{file: found[file] for file in REUSABLE}, **callers}


def _in_subfolder(text: str, place: Path, name: str) -> str:
    """Return a caller's text for the project in the folder ``place`` of the repository."""
    folder, paths = json.dumps(place.as_posix()), json.dumps([f"{place.as_posix()}/**"])
    inputs = f"\n      working-directory: {folder}\n      artifact-prefix: {name}-"
    changes = (
        (r"(?m)^(name: [\w-]+)$", f"-{name}"),
        (r"(?m)^(  group: [\w-]+|concurrency: [\w-]+)(?=$|-\$)", f"-{name}"),
        (r"(?m)^(  pull_request:)$", f"\n    paths: {paths}"),
        (r"(?m)^(    with:)$", inputs),
        (r"(?m)^( +name: )(?=dist$)", f"{name}-"),
        (r'(tags: \[")(?=v\*"\])', f"{name}-"),
    )
    for pattern, added in changes:
        text = re.sub(pattern, lambda found, added=added: found[1] + added, text)  # type: ignore[misc]
    return text
