"""``hatch-torch-ext init``: a project from its setup.py, scikit-build-core or kernel-builder, or a new one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hatch_torch_ext.base import untrusted
from hatch_torch_ext.cli import terminal

if TYPE_CHECKING:
    import argparse

    from hatch_torch_ext.init.migration import Migration


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command and its options."""
    command = commands.add_parser(
        "init", help="a project from the setup.py, scikit-build-core or build.toml here, or new"
    )
    command.add_argument("name", metavar="NAME", nargs="?", help="make a new package of this name, in a folder of it")
    command.add_argument("--cuda", action="store_true", help="the new package has a CUDA kernel")
    command.add_argument("--module", action="store_true", help="the new package has a Python module made with pybind11")
    command.add_argument("--stable", action="store_true", help="the new package's operator is on torch's stable ABI")
    command.add_argument("--jit", action="store_true", help="the new package is built at first use where no build fits")
    command.add_argument("--dry-run", action="store_true", help="show what would be written, and write nothing")
    command.add_argument("--force", action="store_true", help="replace a CMakeLists.txt that is there")
    command.add_argument(
        "--with", dest="extra", metavar="PACKAGE", action="append", default=[], help="a package that setup.py imports"
    )
    command.add_argument(
        "--argument",
        dest="arguments",
        metavar="WORD",
        action="append",
        default=[],
        help="a word that setup.py expects on its command line",
    )
    command.add_argument(
        "--torch",
        metavar="RELEASE",
        action="append",
        default=[],
        help="a release of torch for the matrix, as 2.13 (default: the newest two, or one where there is CUDA too)",
    )
    command.add_argument(
        "--python",
        metavar="VERSION",
        action="append",
        default=[],
        help="a Python for the matrix, as 3.12, where Python modules are built (default: the one that runs this)",
    )
    command.add_argument(
        "--split", action="store_true", help="part a module that registers operators too into a library and a module"
    )
    command.add_argument("--cpu", action="store_true", help="leave CUDA out of the matrix")
    command.add_argument("--timeout", metavar="SECONDS", type=int, default=60, help="for setup.py (60)")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the command; return the exit status."""
    if options.name is not None:
        return _fresh(options)
    from hatch_torch_ext.init import build_toml, kernel_builder, migrating
    from hatch_torch_ext.init.served import Wanted

    if build_toml.is_project(Path.cwd()):
        migration = kernel_builder.migrate(Path.cwd(), torch=options.torch, cpu_alone=options.cpu)
    else:
        migration = migrating.migrate(
            Path.cwd(),
            extra=options.extra,
            arguments=options.arguments,
            timeout=float(options.timeout),
            wanted=Wanted(torch=options.torch, pythons=options.python, cpu_alone=options.cpu),
            split=options.split,
        )
    if not options.dry_run:
        migration.require(force=options.force)
    terminal.say(migration.diff(), end="")
    if not options.dry_run:
        migration.write(force=options.force)
    for note in migration.notes:
        where = f"{migration.made_of}:{note.line}: " if note.line else ""
        terminal.complain(f"by hand: {where}{note.text}")
    if not options.dry_run:
        _next(migration)
    return 0


def _next(migration: Migration) -> None:
    """Print what to type next, and how the wheel of setup.py is made and compared."""
    count = f"{migration.entries} entr{'y' if migration.entries == 1 else 'ies'}"
    wider = f"; for more: {migration.wider}" if migration.wider else ""
    terminal.complain(f"written; the matrix has {count}, each compiled once{wider}")
    then = "hatch build, then hatch run matrix:test"
    if migration.made_of == "pyproject.toml":
        terminal.complain(f"Next: {then}")
    else:
        terminal.complain(f"{migration.made_of} stays: remove it when the wheel is right. Next: {then}")
    if migration.made_of == "build.toml":
        return
    old = f"../{untrusted.safe(migration.name)}-old"
    terminal.complain(
        "A comparison with the project as it was, where torch is installed, shows what users would lose:\n"
        f"  git worktree add {old} HEAD\n"
        f"  pip wheel --no-deps --no-build-isolation -w {old}/wheel {old}\n"
        f"  hatch-torch-ext compare {old}/wheel/*.whl dist/*.whl"
    )


def _fresh(options: argparse.Namespace) -> int:
    from hatch_torch_ext.init import fresh

    choices = fresh.Choices(cuda=options.cuda, module=options.module, stable=options.stable, jit=options.jit)
    for path in fresh.create(options.name, Path.cwd(), choices):
        terminal.say(path.relative_to(Path.cwd()))
    newest = " && hatch run newest:test" if options.stable and not options.module else ""
    terminal.complain(f"next: cd {options.name} && hatch build && hatch run matrix:test{newest}")
    return 0
