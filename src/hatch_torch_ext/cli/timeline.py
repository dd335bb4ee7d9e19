"""``hatch-torch-ext timeline``: what the last build of this project did, and when."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hatch_torch_ext.base.errors import ConfigurationError
from hatch_torch_ext.cli import terminal
from hatch_torch_ext.cli.terminal import path

if TYPE_CHECKING:
    import argparse


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command and its options."""
    command = commands.add_parser("timeline", help="write a page that shows what the last build did, and when")
    command.add_argument("-o", "--output", metavar="FILE", type=path, required=True, help="the page, HTML")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the command; return the exit status."""
    from hatch_torch_ext.pipeline import events, folders
    from hatch_torch_ext.views import timeline

    file = folders.left(Path.cwd(), events.FILE)
    if file is None:
        raise ConfigurationError([f"{Path.cwd()} has no record of a build: run `hatch build` here first."])
    options.output.write_text(timeline.render(list(events.read(file))), encoding="utf-8")
    terminal.say(options.output)
    return 0
