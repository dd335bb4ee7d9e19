"""``hatch-torch-ext doctor``: what is installed, what does not work, and what to type next."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from hatch_torch_ext.base import escape
from hatch_torch_ext.cli import terminal
from hatch_torch_ext.cli.terminal import path

if TYPE_CHECKING:
    import argparse

    from hatch_torch_ext.user.doctor import Diagnosis


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command and its options."""
    command = commands.add_parser("doctor", help="report what is installed here, what does not work, and what to type")
    command.add_argument("packages", metavar="PACKAGE", nargs="*", help="only these (default: all that are installed)")
    command.add_argument("--python", metavar="PYTHON", type=path, help="the Python or environment to look at")
    command.add_argument(
        "--json", action="store_true", help="JSON for bug reports, without user names, tokens or paths in your home"
    )
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the command; return the exit status: 1 when something does not work."""
    from hatch_torch_ext.user import doctor, machine, target

    into = target.find(options.python, os.environ, folder=Path.cwd(), with_torch=True)
    found = doctor.diagnose(into, machine.read(os.environ), options.packages, os.environ)
    terminal.say(found.to_json(os.environ) if options.json else _text(found))
    return 0 if found.healthy else 1


def _text(found: Diagnosis) -> str:
    here = found.machine
    driver = f"driver {here.driver or 'unknown'}" if here.driver or here.supported else "no NVIDIA driver"
    supports = f", supports CUDA {'.'.join(map(str, here.supported))}" if here.supported else ""
    lines = [
        f"machine   {here.system} {here.machine}{', WSL' if here.wsl else ''}; {driver}{supports}"
        f"{f' (from {here.source})' if here.source else ''}"
    ]
    for gpu in here.gpus:
        number = ".".join(map(str, gpu.capability)) if gpu.capability else "unknown"
        notes = "".join([", MIG" if gpu.mig else "", "" if gpu.visible else ", hidden by CUDA_VISIBLE_DEVICES"])
        lines.append(f"GPU {gpu.index}     {gpu.name or 'unknown'}, compute capability {number}{notes}")
    lines += [f"GPU       {line}" for line in found.other_gpus]
    lines.append(f"python    {found.python}")
    torch = found.torch
    if torch.get("version"):
        lines.append(f"torch     {torch['version']}, built for {found.built_for}, in {torch.get('folder')}")
    else:
        lines.append("torch     none")
    lines += [f"tool      {program}: {version}" for program, version in found.tools]
    for each in found.packages:
        notes = "".join(
            [", built here at first use" if each.built else "", f"; {len(each.pruned)} pruned" if each.pruned else ""]
        )
        lines.append(f"package   {each.distribution} {each.version}: {each.chosen or 'nothing fits'}{notes}")
        if not each.works:
            gone = dict.fromkeys(each.pruned, "removed by prune")
            lines += [f"          {label}: {gone.get(label, verdict)}" for label, verdict in each.verdicts]
    lines += [f"problem   {problem}" for problem in found.problems]
    lines += [f"type      {command}" for command in found.commands]
    return "\n".join(escape.line(line) for line in lines)
