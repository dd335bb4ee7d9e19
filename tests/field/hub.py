"""Kernels of kernel-builder's format: moved by `init`, built, checked by their own tests, made kernels of the Hub.

    python tests/field/hub.py SOURCE [NAME…] [--write]

SOURCE is a git repository of such kernels, one a folder (kernels-community); a NAME is one of ``KERNELS``, and without
any all are tried. Nothing is edited by hand. The wheel has a variant of the CPU for each of ``--releases``, and with
``--cuda`` those of CUDA beside it; under each release the kernel's own tests are run, as far as a CPU runs them, and
`kernels` loads what `hatch-torch-ext kernels` made of the wheel. Full installs of torch are made in ``--torches`` where
they are missing. ``--write`` puts the rows into benchmarks/results/hub.md. The exit status is 1 if any failed.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import tarfile
import time
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent.parent / "src"), str(HERE.parent)]

from archives import unpack  # noqa: E402
from field import run, work  # noqa: E402
from hatch_torch_ext.base import process  # noqa: E402
from hatch_torch_ext.outlets import kernels  # noqa: E402

RESULTS = HERE.parent.parent / "benchmarks" / "results" / "hub.md"
HEAD = """\
| kernel | files written | noted | built | its own tests | from its kernel repository |
|---|---|---|---|---|---|
"""
RAN = re.compile(r"(?:\d+ (?:passed|failed|skipped|errors?)(?:, )?)+")
FROM_THE_HUB = """
import sys
from pathlib import Path
import torch
from kernels import get_local_kernel
kernel = get_local_kernel(Path(sys.argv[1]), backend="cpu")
operators = torch._C._dispatch_get_all_op_names()
print(kernel.__name__, *sorted(name for name in operators if name.startswith(f"{kernel.__name__}::")))
"""


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """One kernel: what its tests need besides torch, and which of them are run on a CPU.

    ``check`` is one of ours (tests/field/checks), for a kernel whose own tests all need a GPU.
    """

    name: str
    tests: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    check: str = ""


KERNELS = (
    Kernel(name="relu"),
    Kernel(name="rmsnorm"),
    Kernel(name="quantization-gptq", tests=("-k", "1024-2048")),  # the smallest of its matrices: 10 of 90
    Kernel(name="activation", check="activation"),
    Kernel(name="rotary", check="rotary"),
    Kernel(name="flash-attn2", check="flash_attn2", needs=("einops",)),
    Kernel(name="quantization-bitsandbytes", tests=("-k", "1024-2048")),  # likewise: 20 of 180
)


@dataclass(kw_only=True)
class Outcome:
    """What became of a kernel."""

    kernel: Kernel
    written: list[str] = field(default_factory=list)
    noted: list[str] = field(default_factory=list)
    built: str = ""
    tests: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)
    failed: str = ""

    @property
    def row(self) -> str:
        """Return the row of the table."""
        tests = "<br>".join(self.tests) + (f" fails: {self.failed}" if self.failed else "")
        cells = (self.kernel.name, ", ".join(self.written), "<br>".join(self.noted), self.built, tests)
        return f"| {' | '.join(cells)} | {'<br>'.join(self.loaded)} |\n"


def prepare(kernel: Kernel, source: Path, root: Path, options: list[str], outcome: Outcome) -> None:
    """Make ``root`` of the kernel's folder in the repository, and move it."""
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    archive = root.with_name(f"{root.name}.tar")
    process.run(["git", "-C", source, "archive", "-o", archive, f"HEAD:{kernel.name}"])
    with tarfile.open(archive) as tarred:
        unpack(tarred, root)
    before = work.texts(root)
    done = process.run([sys.executable, "-m", "hatch_torch_ext", "init", *options], cwd=root)
    noted = (line for line in done.stderr.splitlines() if line.startswith("by hand: "))
    outcome.noted = [line.removeprefix("by hand: ") for line in noted]
    outcome.written = sorted(name for name, text in work.texts(root).items() if before.get(name) != text)


def checked(kernel: Kernel, root: Path, wheel: Path, torch: Path, outcome: Outcome) -> None:
    """Run the kernel's own tests beside the wheel under one torch, and let `kernels` load the kernel made of it."""
    python = work.installed([wheel], torch, root / "build" / "installed", needs=("pytest", "kernels", *kernel.needs))
    release = process.run([torch, "-c", "import torch; print(torch.__version__)"]).stdout.strip()
    environ = {"PYTHONPATH": None, "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1"}
    if kernel.check:
        outcome.tests.append(f"{work.right(kernel.check, python, root)}: all need a GPU; right by our check")
    else:
        pytest = ["-m", "pytest", "-q", "--import-mode=append", "-p", "no:cacheprovider", "tests", *kernel.tests]
        done = process.run([python, "-P", *pytest], cwd=root, check=False, env_changes=environ)
        found = RAN.search((done.stdout.strip().splitlines() or [""])[-1])
        if done.returncode or not found or "passed" not in found[0]:
            raise AssertionError(f"its tests under torch {release}: {done.stdout[-1500:]} {done.stderr[-500:]}")
        outcome.tests.append(f"{release}: {found[0].rstrip(', ')}")
    done = process.run([python, "-P", "-c", FROM_THE_HUB, root / "kernel"], cwd=root, env_changes=environ)
    name, *operators = done.stdout.split()
    if not operators:
        raise AssertionError(f"{name} has no operator under torch {release}")
    outcome.loaded.append(f"{release}: `{name}` with {', '.join(each.partition('::')[2] for each in operators)}")


def take(kernel: Kernel, source: Path, folder: Path, torches: dict[str, Path], *, cuda: bool) -> Outcome:
    """Take a kernel all the way, in a folder of its own below ``folder``."""
    outcome = Outcome(kernel=kernel)
    root = folder / kernel.name
    options: list[str] = [*([] if cuda else ["--cpu"]), *(part for release in torches for part in ("--torch", release))]
    try:
        prepare(kernel, source, root, options, outcome)
        start = time.monotonic()
        wheel = work.build(root, root / "dist", {})
        size = wheel.stat().st_size / 1000
        outcome.built = f"{time.monotonic() - start:.0f} s, {size:.0f} kB"
        kernels.write(wheel, out=root / "kernel")
        kernels.wheel_of(root / "kernel", out=root / "again")  # it compares the bytes
        for torch in torches.values():
            checked(kernel, root, wheel, torch, outcome)
    except Exception as error:  # noqa: BLE001 -- the next kernel is tried, and the row says what went wrong
        told = " ".join(f"{error} {getattr(error, 'output', '')[-600:]}".split())
        outcome.failed = told.replace("|", "/").replace(f"{folder}/", "")[:900]
    return outcome


def record(rows: dict[str, str]) -> None:
    """Put rows into the results, in the order of ``KERNELS``; what is before the table stays."""
    text = RESULTS.read_text(encoding="utf-8")
    before, _, table = text.partition(HEAD)
    there = {line.split("|")[1].strip(): f"{line}\n" for line in table.splitlines() if line.startswith("|")}
    rest = "".join(f"{line}\n" for line in table.splitlines() if not line.startswith("|"))
    found = {**there, **rows}
    listed = "".join(found[each.name] for each in KERNELS if each.name in found)
    RESULTS.write_text(f"{before}{HEAD}{listed}{rest}", encoding="utf-8")


def main() -> int:
    """Run the command; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--releases", default="2.12,2.13", help="of torch (2.12,2.13)")
    parser.add_argument("--torches", type=Path, default=Path("build/torches"), help="folder of full installs")
    parser.add_argument("--folder", type=Path, default=Path("build/hub"), help="what is moved and built")
    parser.add_argument("--cuda", action="store_true", help="compile the sections for CUDA too")
    parser.add_argument("--write", action="store_true", help="put the rows into benchmarks/results/hub.md")
    options = parser.parse_args()
    known = {each.name: each for each in KERNELS}
    if unknown := [name for name in options.names if name not in known]:
        sys.exit(f"no kernel {', '.join(unknown)}; there are {', '.join(known)}")
    torches = {release: run.installed(options.torches.absolute(), release) for release in options.releases.split(",")}
    rows, failed = {}, 0
    for name in options.names or known:
        outcome = take(known[name], options.source, options.folder.absolute(), torches, cuda=options.cuda)
        rows[name] = outcome.row
        print(outcome.row, end="", flush=True)
        failed += bool(outcome.failed)
        if options.write:
            record(rows)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
