"""``hatch-torch-ext ci``: the workflows that build, test and publish the project on GitHub, and what they check."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from hatch_torch_ext.base.errors import ConfigurationError
from hatch_torch_ext.cli import terminal

if TYPE_CHECKING:
    import argparse


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command and its options."""
    command = commands.add_parser("ci", help="workflows for GitHub Actions")
    actions = command.add_subparsers(required=True, metavar="ACTION")
    init = actions.add_parser("init", help="write the workflows into .github/workflows of this repository")
    init.add_argument("--force", action="store_true", help="replace workflows that exist already")
    init.set_defaults(run=run)
    tag = actions.add_parser(
        "tag", help="check that a tag names the project's version, and print name and version as outputs of a step"
    )
    tag.add_argument("tag", metavar="TAG")
    tag.set_defaults(run=check_tag)


def run(options: argparse.Namespace) -> int:
    """Run ``ci init``; return the exit status. An existing file that it did not write is not overwritten."""
    from hatch_torch_ext.base import atomic
    from hatch_torch_ext.init import fresh

    root = _repository(Path.cwd())
    folder = root / fresh.WORKFLOWS
    if not folder.resolve().is_relative_to(root.resolve()):
        raise ConfigurationError([f"{folder} is a link out of the repository: GitHub reads no workflow there."])
    texts = {folder / name: text for name, text in fresh.workflow_texts(Path.cwd().relative_to(root)).items()}
    if links := [path for path in texts if path.is_symlink()]:
        raise ConfigurationError(
            [f"{path} is a link, and GitHub reads no workflow from a link: remove it." for path in links]
        )
    others = [path for path, text in texts.items() if path.is_file() and path.read_text(encoding="utf-8") != text]
    if others and not options.force:
        raise ConfigurationError(
            [f"{path} exists and has other contents. Move it away, or replace it with `--force`." for path in others]
        )
    folder.mkdir(parents=True, exist_ok=True)
    for path, text in texts.items():
        atomic.write(path, text.encode())
        terminal.say(path.relative_to(root) if root == Path.cwd() else path)
    return 0


def check_tag(options: argparse.Namespace) -> int:
    """Run ``ci tag``; return the exit status. Raises ``ConfigurationError`` for the tag of another version."""
    from packaging.version import InvalidVersion, Version

    from hatch_torch_ext.cli import project

    found = project.read()
    version = str(found.builder.metadata.version)
    named = re.sub(r"^(?:.*[-_/])?v?(?=\d)", "", options.tag)  # `v1.0`, `my-pkg-v1.0`, `my-pkg/1.0`
    try:
        same = Version(named) == Version(version)
    except InvalidVersion:
        same = False
    if not same:
        raise ConfigurationError(
            [
                f"the tag `{options.tag}` does not name the version of the project, {version}: tag the commit in which "
                f"the version is that of the tag, or name this one `v{version}`"
            ]
        )
    terminal.say(f"name={found.name}\nversion={version}")  # outputs of a step
    return 0


def _repository(folder: Path) -> Path:
    """Return the top of the repository that ``folder`` is in; the folder itself where there is none."""
    return next((each for each in (folder, *folder.parents) if (each / ".git").exists()), folder)
