"""``hatch-torch-ext ci init``: the workflows that build, test and publish the project on GitHub."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from hatch_torch_ext.base.errors import ConfigurationError
from hatch_torch_ext.cli import terminal

if TYPE_CHECKING:
    import argparse

FILES = ("build-wheels.yml", "wheels.yml")
"""The reusable workflow, and the one that calls it and publishes."""


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command and its options."""
    command = commands.add_parser("ci", help="workflows for GitHub Actions")
    actions = command.add_subparsers(required=True, metavar="ACTION")
    init = actions.add_parser("init", help="write the workflows into .github/workflows of this folder")
    init.add_argument("--force", action="store_true", help="replace workflows that exist already")
    init.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the command; return the exit status. An existing file that this command did not write is not overwritten."""
    folder = Path.cwd() / ".github" / "workflows"
    ours = resources.files("hatch_torch_ext") / "resources" / "ci"
    texts = {folder / name: (ours / name).read_text("utf-8") for name in FILES}
    others = [path for path, text in texts.items() if path.is_file() and path.read_text(encoding="utf-8") != text]
    if others and not options.force:
        raise ConfigurationError(
            [f"{path} exists and has other contents. Move it away, or replace it with `--force`." for path in others]
        )
    folder.mkdir(parents=True, exist_ok=True)
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8")
        terminal.say(path.relative_to(Path.cwd()))
    return 0
