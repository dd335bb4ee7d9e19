"""Check the installed example on the CUDA device of this machine, measure it, and write down both.

    python tests/gpu/check.py [--out gpu.md]

Prints one line for each check and two tables of times; the exit status is 1 if any check failed.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
import traceback
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

sys.path.insert(0, str(Path(__file__).parent))
torch: Any = import_module("torch")


def table(rows: Iterable[tuple[str, ...]]) -> str:
    """Return ``rows``, the first of them the head, as a Markdown table."""
    head, *body = rows
    lines = [head, tuple("---" for _ in head), *body]
    return "\n".join(f"| {' | '.join(row)} |" for row in lines) + "\n"


def chosen() -> str:
    """Return what the package's loader says about its choice."""
    command = [sys.executable, "-m", "torch_ext_example._variants"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def main() -> int:
    """Run everything; return the exit status."""
    parser = argparse.ArgumentParser(description="Check and measure the installed example on a CUDA device.")
    parser.add_argument("--out", type=Path, help="a Markdown file to write the same to")
    parser.add_argument("--no-speed", action="store_true", help="check only")
    options = parser.parse_args()
    parts: list[str] = []

    def say(text: str) -> None:
        parts.append(text)
        print(text, flush=True)  # noqa: T201
        if options.out:
            options.out.write_text("\n".join(parts) + "\n")

    say(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, Python {sys.version.split()[0]}\n")
    say(f"```\n{chosen()}\n```\n")
    checks = import_module("checks").CHECKS
    rows, failed = [("check", "result", "s")], 0
    for check in checks:
        torch.manual_seed(0)
        start = time.perf_counter()
        try:
            result = check()
        except Exception:  # noqa: BLE001  # every check is run, whatever came of the others
            failed += 1
            result = "FAILED"
            print(f"{check.__name__}:\n{traceback.format_exc()}", flush=True)  # noqa: T201
        rows.append((check.__name__.replace("_", " "), result, f"{time.perf_counter() - start:.1f}"))
    say(table(rows))
    say(f"{len(checks) - failed} of {len(checks)} checks passed\n")
    if not options.no_speed:
        speed = import_module("speed")
        rate = speed.bandwidth()
        say(f"A copy on the device moves {rate / 1e12:.2f} TB/s, bytes read and written. float32 throughout.\n")
        say(table(speed.sampling(rate)))
        say(table(speed.distances(rate)))
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
