"""The command line, over the same pipeline as the build hook."""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from hatch_torch_ext import __version__
from hatch_torch_ext.errors import ConfigurationError, TorchExtError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hatch_torch_ext.config import Config

LOG_WIDTH = 150
"""Columns of a table that goes elsewhere than to a terminal."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return the exit status: 0, 1 for findings or a failure, 2 for a wrong call."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except TorchExtError as error:
        print(f"hatch-torch-ext: {error}", file=sys.stderr)
        return 1
    except OSError as error:  # a file that was named on the command line
        print(f"hatch-torch-ext: {error.filename or 'input or output'}: {error.strerror}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="hatch-torch-ext", description="One wheel for every torch, CUDA and Python.")
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    command = commands.add_parser("matrix", help="list the entries of the matrix and what each resolves to")
    command.add_argument("--json", action="store_true")
    command.set_defaults(run=_matrix)

    command = commands.add_parser("build", help="build the wheel of the project in this folder")
    command.add_argument("-d", "--directory", type=Path, default=Path("dist"), help="where the wheel goes (dist)")
    command.add_argument("--only", metavar="GLOB", action="append", help="entries or labels to build")
    command.add_argument("--jobs", metavar="N", type=int, help="compilers at once")
    command.add_argument("--resume", action="store_true", help="keep what earlier builds of these entries left")
    command.set_defaults(run=_build)

    command = commands.add_parser("inspect", help="show what is in a wheel")
    command.add_argument("wheel", type=Path)
    command.add_argument("--json", action="store_true")
    command.add_argument("--html", metavar="FILE", type=Path, help="write a page of it")
    command.set_defaults(run=_inspect)

    command = commands.add_parser(
        "audit", help="look for everything that keeps a wheel from working; exit 1 on findings"
    )
    command.add_argument("wheel", type=Path)
    command.add_argument("--json", action="store_true")
    command.add_argument("--ignore", metavar="CODE", action="append", default=[])
    command.add_argument("--python", metavar="PYTHON", type=Path, help="a Python with torch, to open the variant in")
    command.set_defaults(run=_audit)

    command = commands.add_parser("sdk", help="the store of thin torch SDKs")
    command.add_argument("action", choices=("list", "prune", "path"))
    command.add_argument("--json", action="store_true")
    command.set_defaults(run=_sdk)
    return parser


def _project() -> tuple[Config, str]:
    from hatchling.builders.wheel import WheelBuilder

    from hatch_torch_ext import config as configuration
    from hatch_torch_ext.plugin import package_sources

    root = Path.cwd()
    if not (root / "pyproject.toml").is_file():
        raise ConfigurationError([f"There is no pyproject.toml in {root}: run this in the folder of your project."])
    builder = WheelBuilder(str(root))
    name = builder.metadata.core.raw_name
    raw = builder.config.hook_config.get("torch-ext")
    if raw is None:
        raise ConfigurationError(
            [
                "The wheel target has no build hook `torch-ext`: "
                "add `[tool.hatch.build.targets.wheel.hooks.torch-ext]` to pyproject.toml."
            ]
        )
    sources = package_sources(builder.config)
    return configuration.parse(raw, root=root, project_name=name, environ=os.environ, sources=sources), name


def _matrix(options: argparse.Namespace) -> int:
    from rich.console import Console
    from rich.table import Table

    from hatch_torch_ext import matrix, pipeline

    config, name = _project()
    entries = pipeline.expand(config, distribution=name)
    selected = matrix.select(entries, only=config.only, skip=config.skip)
    rows = [{**asdict(entry), "selected": entry in selected} for entry in entries]
    if options.json:
        print(json.dumps(rows, indent=2))
        return 0
    table = Table(box=None, pad_edge=False)
    for column in ("entry", "torch", "python", "variables", "built"):
        table.add_column(column)
    for entry in entries:
        variables = " ".join(f"{key}={value}" for key, value in entry.variables)
        built = "yes" if entry in selected else "no"
        table.add_row(entry.name, entry.torch_requirement, entry.python or "any", variables, built)
    Console(width=None if sys.stdout.isatty() else LOG_WIDTH).print(table)
    return 0


def _build(options: argparse.Namespace) -> int:
    from hatchling.builders.wheel import WheelBuilder

    from hatch_torch_ext import pipeline

    _project()
    if options.only:
        os.environ["HATCH_TORCH_EXT_ONLY"] = ",".join(options.only)
    if options.jobs:
        os.environ["HATCH_TORCH_EXT_JOBS"] = str(options.jobs)
    if not options.resume:
        pipeline.clean(Path.cwd())
    for artifact in WheelBuilder(str(Path.cwd())).build(directory=str(options.directory), versions=["standard"]):
        print(artifact)
    return 0


def _inspect(options: argparse.Namespace) -> int:
    from rich.console import Console

    from hatch_torch_ext import report
    from hatch_torch_ext.report import page

    described = report.describe(options.wheel)
    if options.html:
        options.html.write_text(page.render(described), encoding="utf-8")
    if options.json:
        print(json.dumps(asdict(described), indent=2))
    else:
        # What is read by another program or kept in a log has no width.
        report.render(described, Console(width=None if sys.stdout.isatty() else LOG_WIDTH))
    return 0


def _audit(options: argparse.Namespace) -> int:
    from hatch_torch_ext import audit

    findings = audit.audit_wheel(options.wheel, open_with=options.python, ignore=options.ignore)
    if options.json:
        print(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        if findings:
            print(audit.text(findings))
        print(f"{options.wheel.name}: {len(findings)} finding{'' if len(findings) == 1 else 's'}")
    return 1 if findings else 0


def _sdk(options: argparse.Namespace) -> int:
    from hatch_torch_ext.report import table
    from hatch_torch_ext.sdk import store

    place = store.path(os.environ)
    if options.action == "path":
        print(place)
        return 0
    kept = store.Store(place)
    rows = kept.listing() if options.action == "list" else kept.prune()
    if options.json:
        print(json.dumps([asdict(row) for row in rows], indent=2, default=str))
        return 0
    for row in rows:
        print(f"{table.size(row.size):>8}  {row.title}")
    total = table.size(sum(row.size for row in rows))
    print(f"{total:>8}  {'in' if options.action == 'list' else 'removed from'} {place}")
    return 0
