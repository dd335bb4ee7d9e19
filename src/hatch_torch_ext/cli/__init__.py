"""The command line: one module per command, on the same pipeline as the build hook.

A command's module declares its options in ``add`` and does its work in ``run``, which returns the exit status.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from hatch_torch_ext import __version__
from hatch_torch_ext.base import errors, escape
from hatch_torch_ext.base.errors import TorchExtError
from hatch_torch_ext.cli import build, extend, init, matrix, outlets, sdk, terminal, user, wheels

if TYPE_CHECKING:
    from collections.abc import Sequence

COMMANDS = {
    "init": init.add_init,
    "matrix": matrix.add,
    "build": build.add,
    "timeline": build.add_timeline,
    "merge": outlets.add_merge,
    "extend": extend.add,
    "variants": outlets.add_variants,
    "index": outlets.add_index,
    "kernels": outlets.add_kernels,
    "ci": init.add_ci,
    "inspect": wheels.add_inspect,
    "audit": wheels.add_audit,
    "compare": wheels.add_compare,
    "sdk": sdk.add,
    "install": user.add_install,
    "doctor": user.add_doctor,
    "prune": user.add_prune,
}
"""In the order of ``--help``."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return the exit status: 0, 1 for findings or a failure, 2 for wrong arguments."""
    terminal.prepare()
    try:
        parser = _parser()
    except FileNotFoundError:  # paths are taken from the current folder
        said = "hatch-torch-ext: the current folder was removed: change to one that is there (cd /)"
        raise SystemExit(said) from None
    options, more = parser.parse_known_args(arguments)
    options.more = more
    if more and not getattr(options, "hands_on", False):  # arguments that a command passes to another program
        parser.error(f"unrecognized arguments: {' '.join(more)}")
    try:
        return int(options.run(options))
    except TorchExtError as error:
        terminal.complain(f"hatch-torch-ext: {error}")
        return 1
    except ModuleNotFoundError as error:
        ours = str(error.name).startswith("hatch")
        needs = f"this needs `{error.name}`: pip install 'hatch-torch-ext[build]'"
        if not ours and (lacking := _not_installed()) is not None:  # a hook of the project imports it
            needs = f"this needs `{error.name}`. {lacking}"
        terminal.complain(f"hatch-torch-ext: {errors.sentence(error) if ours else needs}")
        return 1
    except OSError as error:  # a file that the command line names
        where = escape.line(error.filename or "input or output")
        terminal.complain(f"hatch-torch-ext: {where}: {error.strerror or error}")
        return 1
    except KeyboardInterrupt:
        return 130
    except Exception as error:  # noqa: BLE001 -- the last boundary: no traceback reaches the user
        if errors.is_ours(error):
            terminal.complain(f"hatch-torch-ext: {errors.sentence(error)}")
        else:
            lacking = _not_installed() if type(error).__name__ == "UnknownPluginError" else None  # hatchling's
            terminal.complain(f"hatch-torch-ext: {error}{f'. {lacking}' if lacking is not None else ''}")
        return 1


def _not_installed() -> str | None:
    """Return which build requirements of the project in this folder are missing, None if none is."""
    try:
        from hatch_torch_ext.cli import project

        return project.not_installed()
    except ModuleNotFoundError:
        return None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="hatch-torch-ext", description="One wheel for every torch, CUDA and Python.")
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for add in COMMANDS.values():
        add(commands)
    return parser
