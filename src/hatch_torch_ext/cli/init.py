"""What is written into a project: ``hatch-torch-ext init``, and ``ci init`` for its workflows on GitHub."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING

from hatch_torch_ext.base import untrusted
from hatch_torch_ext.base.errors import ConfigurationError
from hatch_torch_ext.cli import terminal

if TYPE_CHECKING:
    from hatch_torch_ext.init.texts import Migration


TIMEOUT = 60
"""Seconds that setup.py may take."""
NEW = "a new package (`init NAME`)"
_EVERYWHERE = frozenset({"name", "run", "dry_run", "torch"})
_OPTIONS = {
    NEW: _EVERYWHERE | {"cuda", "jit", "module", "python", "stable"},
    "a kernel with build.toml": _EVERYWHERE | {"cpu", "force"},
    "a project with scikit-build-core": _EVERYWHERE | {"cpu", "force", "python"},
    "a project with setup.py": _EVERYWHERE | {"argument", "cpu", "force", "python", "split", "timeout", "with"},
}
"""The options of ``init``, by what it makes a project of."""


def add_init(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
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
        "--with", metavar="PACKAGE", action="append", default=[], help="a package that setup.py imports"
    )
    command.add_argument(
        "--argument",
        metavar="WORD",
        action="append",
        default=[],
        help="a word that setup.py expects on its command line",
    )
    command.add_argument(
        "--torch",
        metavar="RELEASE",
        type=release,
        action="append",
        default=[],
        help="a release of torch for the matrix, as 2.13 (default: the newest two, or one where there is CUDA too)",
    )
    command.add_argument(
        "--python",
        metavar="VERSION",
        type=python,
        action="append",
        default=[],
        help="a Python for the matrix, as 3.12, where Python modules are built (default: the one that runs this)",
    )
    command.add_argument(
        "--split", action="store_true", help="split a module that registers operators too into a library and a module"
    )
    command.add_argument("--cpu", action="store_true", help="leave CUDA out of the matrix")
    command.add_argument("--timeout", metavar="SECONDS", type=int, help=f"for setup.py ({TIMEOUT})")
    command.set_defaults(run=run_init)


def release(text: str) -> str:
    """Return a release of torch as it was given. Raises ``ArgumentTypeError`` for another text."""
    from hatch_torch_ext.facts import releases

    try:
        releases.minor_of(text)
    except ValueError as error:
        message = f"{text[:60]!r} is not a release of torch: write it as 2.13"
        raise argparse.ArgumentTypeError(message) from error
    return text


def python(text: str) -> str:
    """Return a version of Python as it was given. Raises ``ArgumentTypeError`` for another text."""
    if not re.fullmatch(r"3\.[0-9]{1,2}t?", text):
        raise argparse.ArgumentTypeError(f"{text[:60]!r} is not a version of Python: write it as 3.12")
    return text


def run_init(options: argparse.Namespace) -> int:
    """Run the command; return the exit status."""
    from hatch_torch_ext.init import build_toml, kernel_builder, migrating
    from hatch_torch_ext.init.served import MatrixOptions

    is_kernel = build_toml.is_project(Path.cwd())
    _check(options, is_kernel=is_kernel)
    if options.name is not None:
        return _fresh(options)
    if is_kernel:
        migration = kernel_builder.migrate(Path.cwd(), torch=options.torch, cpu_only=options.cpu)
    else:
        migration = migrating.migrate(
            Path.cwd(),
            extra=vars(options)["with"],
            arguments=options.argument,
            timeout=float(options.timeout or TIMEOUT),
            options=MatrixOptions(torch=options.torch, pythons=options.python, cpu_only=options.cpu),
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


def _check(options: argparse.Namespace, *, is_kernel: bool) -> None:
    """Raise ``ConfigurationError`` for options that have no effect on what is made a project."""
    if options.name is not None:
        of = NEW
    elif is_kernel:
        of = "a kernel with build.toml"
    else:
        of = f"a project with {'setup.py' if (Path.cwd() / 'setup.py').is_file() else 'scikit-build-core'}"
    given = [name for name, value in vars(options).items() if value and name not in _OPTIONS[of]]
    if given:
        others = [each for each, known in _OPTIONS.items() if known.issuperset(given)]
        only = f", only for {' or '.join(others)}" if others else ""
        are, them = ("is", "it") if len(given) == 1 else ("are", "them")
        words = ", ".join(f"`--{name}`" for name in sorted(given))
        raise ConfigurationError(f"{words} {are} not for {of}{only}: leave {them} out.")


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

    choices = fresh.Choices(
        cuda=options.cuda,
        module=options.module,
        stable=options.stable,
        jit=options.jit,
        torch=tuple(options.torch),
        pythons=tuple(options.python),
    )
    package = fresh.new(options.name, Path.cwd(), choices)
    if options.dry_run:
        terminal.say(package.diff(), end="")
        return 0
    for path in package.write():
        terminal.say(path.relative_to(Path.cwd()))
    newest = " && hatch run newest:test" if options.stable and not options.module else ""
    terminal.complain(f"next: cd {options.name} && hatch build && hatch run matrix:test{newest}")
    return 0


def add_ci(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command and its options."""
    command = commands.add_parser("ci", help="workflows for GitHub Actions")
    actions = command.add_subparsers(required=True, metavar="ACTION")
    init = actions.add_parser("init", help="write the workflows into .github/workflows of this repository")
    init.add_argument("--force", action="store_true", help="replace workflows that exist already")
    init.set_defaults(run=run_ci)
    tag = actions.add_parser(
        "tag", help="check that a tag names the project's version, and print name and version as outputs of a step"
    )
    tag.add_argument("tag", metavar="TAG")
    tag.set_defaults(run=check_tag)


def run_ci(options: argparse.Namespace) -> int:
    """Run ``ci init``; return the exit status. An existing file that it did not write is not overwritten."""
    from hatch_torch_ext.base import atomic
    from hatch_torch_ext.cli import project
    from hatch_torch_ext.init import fresh

    root = _repository(project.root())
    folder = root / fresh.WORKFLOWS
    if not folder.resolve().is_relative_to(root.resolve()):
        raise ConfigurationError(f"{folder} is a link out of the repository: GitHub reads no workflow there.")
    texts = {folder / name: text for name, text in fresh.workflow_texts(Path.cwd().relative_to(root)).items()}
    if links := [path for path in texts if path.is_symlink()]:
        raise ConfigurationError(
            *(f"{path} is a link, and GitHub reads no workflow from a link: remove it." for path in links)
        )
    others = [path for path, text in texts.items() if path.is_file() and path.read_text(encoding="utf-8") != text]
    if others and not options.force:
        raise ConfigurationError(
            *(f"{path} exists and has other contents. Move it away, or replace it with `--force`." for path in others)
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
            f"the tag `{options.tag}` does not name the version of the project, {version}: tag the commit that has "
            f"the tag's version, or name this tag `v{version}`"
        )
    terminal.say(f"name={found.name}\nversion={version}")  # outputs of a step
    return 0


def _repository(folder: Path) -> Path:
    """Return the top of the repository that ``folder`` is in; the folder itself where there is none."""
    return next((each for each in (folder, *folder.parents) if (each / ".git").exists()), folder)
