"""``hatch-torch-ext kernels``: a finished wheel becomes a kernel repository of Hugging Face's Hub."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hatch_torch_ext.cli import terminal
from hatch_torch_ext.cli.terminal import path

if TYPE_CHECKING:
    import argparse


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command and its options."""
    command = commands.add_parser("kernels", help="make a kernel repository of Hugging Face's Hub from a wheel")
    command.add_argument("wheel", metavar="WHEEL", type=path, nargs="?")
    command.add_argument("-o", "--output", metavar="DIR", type=path, help="folder for the repository")
    command.add_argument("--name", help="the kernel's name (default: that of the package)")
    command.add_argument(
        "--kernel-version", metavar="N", type=int, help="the kernel's version (default: the major of the wheel's)"
    )
    command.add_argument("--license", metavar="NAME", help="the kernel's licence (default: that of the wheel)")
    command.add_argument(
        "--keep-namespace",
        action="store_true",
        help="keep the operators' name of the wheel, though a process can then load one version only",
    )
    command.add_argument(
        "--header",
        metavar="FILE",
        type=path,
        help="write registration.h, with which operators get another name in each build, and do nothing else",
    )
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the command; return the exit status."""
    from hatch_torch_ext.base.errors import ConfigurationError
    from hatch_torch_ext.outlets import kernels

    if options.header is not None:
        kernels.write_header(options.header)
        terminal.say(options.header)
        return 0
    if options.wheel is None or options.output is None:
        raise ConfigurationError(["`kernels` takes a wheel and a folder: hatch-torch-ext kernels WHEEL -o DIR"])
    made = kernels.write(
        options.wheel,
        out=options.output,
        name=options.name,
        version=options.kernel_version,
        licence=options.license,
        keep_namespace=options.keep_namespace,
    )
    for folder, identifier, label in made.variants:
        terminal.say(f"{made.folder / kernels.BUILD / folder}  {identifier}, of {label}")
    for note in made.notes:
        terminal.complain(f"note: {note}")
    return 0
