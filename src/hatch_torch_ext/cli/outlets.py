"""A finished wheel in other forms: ``merge``, ``variants``, ``index``, ``kernels``; which form fits an index."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hatch_torch_ext.base.errors import ConfigurationError, MergeError
from hatch_torch_ext.cli import terminal
from hatch_torch_ext.cli.terminal import path

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence
    from pathlib import Path


def add_merge(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command and its options."""
    command = commands.add_parser(
        "merge",
        help="join parts (or exact or variant wheels, or a kernel repository) into one wheel, as one build makes it",
    )
    command.add_argument("wheels", metavar="WHEEL", type=path, nargs="+")
    command.add_argument("-o", "--output", metavar="DIR", type=path, required=True, help="folder for the wheel")
    command.add_argument(
        "--machines",
        choices=("one-wheel", "wheel-each"),
        default="one-wheel",
        help="variants for several machines: one wheel of all (one-wheel), or a wheel for each",
    )
    command.set_defaults(run=run_merge)


def run_merge(options: argparse.Namespace) -> int:
    """Run the command; return the exit status."""
    from hatch_torch_ext.outlets import kernels, merging

    folders = [each for each in options.wheels if each.is_dir()]
    if folders:
        if len(options.wheels) > 1:
            raise MergeError(f"{folders[0]} is a folder: a kernel repository is merged by itself")
        if not kernels.is_repository(folders[0]):
            raise MergeError(
                f"{folders[0]} is not a kernel repository that `hatch-torch-ext kernels` made: name wheels"
            )
        terminal.say(kernels.wheel_of(folders[0], out=options.output))
        return 0
    for wheel in merging.merge_by_machine(options.wheels, out=options.output, each=options.machines == "wheel-each"):
        terminal.say(wheel)
    return 0


def add_variants(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command and its options."""
    command = commands.add_parser("variants", help="split a wheel by backend into variant wheels (PEP 825)")
    command.add_argument("wheel", metavar="WHEEL", type=path)
    command.add_argument("-o", "--output", metavar="DIR", type=path, required=True, help="where the wheels go")
    _add_max_size(command)
    command.set_defaults(run=run_variants)


def run_variants(options: argparse.Namespace) -> int:
    """Run the command; return the exit status."""
    from hatch_torch_ext.outlets import variantwheels

    limit = _size_limit(options.max_size)
    cut = variantwheels.cut(options.wheel, out=options.output)
    for _, wheel in cut.wheels:
        terminal.say(wheel)
    terminal.say(cut.fat)
    terminal.say(cut.description)
    return _report_sizes(limit, {"fat wheel": [cut.fat], "variant wheels": [wheel for _, wheel in cut.wheels]})


def add_index(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command and its options."""
    command = commands.add_parser("index", help="make exact wheels, one for each variant, and a static index of them")
    command.add_argument("wheels", metavar="WHEEL", type=path, nargs="+")
    command.add_argument("-o", "--output", metavar="DIR", type=path, required=True, help="the folder of the index")
    _add_max_size(command)
    command.set_defaults(run=run_index)


def run_index(options: argparse.Namespace) -> int:
    """Run the command; return the exit status."""
    from hatch_torch_ext.outlets import exact

    limit = _size_limit(options.max_size)
    served = exact.index(options.wheels, out=options.output)
    for each in served:
        terminal.say(each.path)
    terminal.say(options.output / "index.html")
    return _report_sizes(limit, {"fat wheel": options.wheels, "exact wheels": [each.path for each in served]})


def add_kernels(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
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
        help="only write registration.h, which gives the operators another name in each build",
    )
    command.set_defaults(run=run_kernels)


def run_kernels(options: argparse.Namespace) -> int:
    """Run the command; return the exit status."""
    from hatch_torch_ext.outlets import kernels

    if options.header is not None:
        kernels.write_header(options.header)
        terminal.say(options.header)
        return 0
    if options.wheel is None or options.output is None:
        raise ConfigurationError("`kernels` takes a wheel and a folder: hatch-torch-ext kernels WHEEL -o DIR")
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


def _add_max_size(command: argparse.ArgumentParser) -> None:
    """Declare the option that ``_size_limit`` reads."""
    command.add_argument("--max-size", metavar="SIZE", help="print which form fits an index's limit, such as 100MB")


def _size_limit(text: str | None) -> int | None:
    """Return the limit of ``--max-size`` in bytes, or None if it is not given. Raises ``ConfigurationError``."""
    from hatch_torch_ext.config import kinds

    if text is None:
        return None
    try:
        return kinds.size(text)
    except ValueError as error:
        raise ConfigurationError(f"--max-size {error}") from error


def _report_sizes(bound: int | None, forms: Mapping[str, Sequence[Path]]) -> int:
    """Print for each form whether its largest file fits; return 1 if the last form, that of the smallest, does not."""
    from hatch_torch_ext.facts.content import size

    if bound is None:
        return 0
    fits = False
    for form, paths in forms.items():
        largest = max(paths, key=lambda path: path.stat().st_size)
        fits = largest.stat().st_size <= bound
        verdict = "fits into" if fits else "over"
        terminal.say(
            f"{form}: the largest, {largest.name}, has {size(largest.stat().st_size)}: {verdict} {size(bound)}"
        )
    if not fits:
        terminal.complain("hatch-torch-ext: nothing fits: leave architectures or entries out, or compress device code")
    return 0 if fits else 1
