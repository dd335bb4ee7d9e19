"""Fuzzes the readers of foreign bytes: ``python tests/fuzz/run.py [TARGET…] --minutes N [--workers N]``.

Inputs are whole ones, cut, spliced, repeated and sprinkled with what breaks readers; from Python 3.12 on, an input that
reaches a new line of the package is one to start from too. The seed is printed, and with ``FUZZ_SEED`` the same inputs
come again. What fails is kept in the current folder as ``fuzz-TARGET-HASH.bin``.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import random
import resource
import signal
import subprocess
import sys
import threading
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import CodeType

sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parents[2] / "src")]

from fuzz.targets import TARGETS  # noqa: E402 -- found by the lines above

LONGEST = 1 << 16
SLOWEST = 5.0
"""Seconds of the processor after which an input of at most 64 kB is a failure."""
TOOL = 4
"""Among the tools of ``sys.monitoring``, one that nobody has reserved."""
MOST_MEMORY = 4 << 30
"""Bytes of address space, beyond which a process of ``main`` gets a ``MemoryError``: a failure."""
TOKENS = (
    *(b"[", b"]", b"{", b"}", b'"', b"\\ud800", b"\\u0000", b"null", b"true", b"NaN", b"-1", b"1e999", b"9" * 5000),
    *(
        b"[" * 20_000,
        b'{"a":' * 5000,
        b"\x00",
        b"\xff\xfe",
        b"\x1b[2J",
        b"\xed\xa0\x80",
        "\u00b2".encode(),
        b"\xff" * 8,
    ),
    *(b"<a ", b"<a href=", b"'", b"<!--", b"&#" + b"9" * 50, b"http://[", b"../", b"/"),
    *(b"PK\x01\x02", b"PK\x03\x04", b"PK\x05\x06"),
)
ODD: tuple[object, ...] = (
    *(None, True, -1, 0, 10**30, 1e308, float("nan"), [], {}, [[]], {"": None}, [None] * 3000),
    *(
        "",
        "\ud800",
        "\u00b2",
        "\x1b[2J",
        "\u202e",
        "[/nope]",
        "9" * 5000,
        "a" * 60_000,
        "../../x",
        "/etc/passwd",
        "a/../../x",
        "\0",
    ),
)
"""Values that readers of JSON trip over."""


@dataclass
class Result:
    """What a run found: inputs, those that reached new lines, the slowest in seconds, the files that failed."""

    runs: int = 0
    grown: int = 0
    slowest: float = 0.0
    failures: list[str] = field(default_factory=list)


class Stuck(BaseException):
    """An input takes twice as long as a failure does. No reader may take this for an error of its own."""


@contextlib.contextmanager
def new_lines() -> Iterator[list[str]]:
    """Add the file of each line of the package that runs for the first time. Nothing before Python 3.12."""
    monitoring: Any = getattr(sys, "monitoring", None)
    found: list[str] = []
    if monitoring is None:
        yield found
        return

    def line(code: CodeType, _line: int) -> object:
        if "hatch_torch_ext" in code.co_filename:
            found.append(code.co_filename)
        return monitoring.DISABLE

    monitoring.use_tool_id(TOOL, "fuzz")
    monitoring.register_callback(TOOL, monitoring.events.LINE, line)
    monitoring.set_events(TOOL, monitoring.events.LINE)
    try:
        yield found
    finally:
        monitoring.set_events(TOOL, 0)
        monitoring.free_tool_id(TOOL)
        monitoring.restart_events()


def altered(chance: random.Random, value: object) -> object:
    """Return JSON with an odd value or an odd key at one place, or with one less."""
    if not isinstance(value, (dict, list)) or not value or not chance.randrange(8):
        return chance.choice(ODD)
    if isinstance(value, list):
        at = chance.randrange(len(value))
        return [altered(chance, each) if number == at else each for number, each in enumerate(value)]
    changed, at = dict(value), chance.choice(list(value))
    how = chance.randrange(8)
    if how == 0:
        del changed[at]
    elif how == 1:
        changed[chance.choice(("", "../x", "\ud800", "\x1b[2J", "[/x]", "9" * 5000))] = value[at]
    else:
        changed[at] = altered(chance, value[at])
    return changed


def mutated(chance: random.Random, seeds: Sequence[bytes]) -> bytes:
    """Return an input that no writer of ours wrote."""
    data = bytearray(chance.choice(seeds))
    if data.startswith((b"{", b"[")) and chance.randrange(2):
        with contextlib.suppress(ValueError, RecursionError):
            value = json.loads(data)
            for _ in range(chance.randint(1, 3)):
                value = altered(chance, value)
            return json.dumps(value).encode()[:LONGEST]
    for _ in range(chance.randint(1, 6)):
        at = chance.randint(0, len(data))
        end = min(len(data), at + chance.randint(0, 40))
        how = chance.randrange(6)
        if how == 0:
            data[at:end] = b""
        elif how == 1:
            data[at:at] = chance.choice(TOKENS)
        elif how == 2:
            data[at:end] = chance.randbytes(end - at)
        elif how == 3:
            data[at:at] = data[at:end] * chance.choice((1, 2, 100))
        elif how == 4:
            data[at:end] = chance.choice(seeds)[at:end]
        elif at < len(data):
            data[at] ^= 1 << chance.randrange(8)
    return bytes(data[:LONGEST])


def run(name: str, seconds: float, seed: int, folder: Path, *, most: int | None = None) -> Result:
    """Run one target for some time, or on the first ``most`` inputs of the seed."""
    target, whole = TARGETS[name]
    chance, result = random.Random(seed), Result()  # noqa: S311 -- the same inputs again for the same seed
    seeds, end = list(whole), time.monotonic() + seconds
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGPROF, _stuck)
    with new_lines() as lines:
        for data in seeds:
            target(data)
        while time.monotonic() < end and result.runs != most:
            data = mutated(chance, seeds)
            lines.clear()
            began = time.process_time()
            problem = ""
            signal.setitimer(signal.ITIMER_PROF, 2 * SLOWEST)
            try:
                target(data)
            except (Exception, Stuck):  # noqa: BLE001 -- what is looked for
                problem = traceback.format_exc()
            signal.setitimer(signal.ITIMER_PROF, 0)
            took = time.process_time() - began
            if took > SLOWEST:
                problem = problem or f"{took:.1f} s for {len(data)} bytes"
            if problem:
                file = folder / f"fuzz-{name}-{hashlib.sha256(data).hexdigest()[:12]}.bin"
                file.write_bytes(data)
                result.failures.append(f"{file}\n{problem}")
            elif lines:
                seeds.append(data)
                result.grown += 1
            result.runs, result.slowest = result.runs + 1, max(result.slowest, took)
    return result


def _stuck(*_: object) -> None:
    raise Stuck


def main() -> int:
    """Run the targets, one after another or all at once; 1 where an input fails."""
    parser = argparse.ArgumentParser()
    parser.add_argument("targets", nargs="*", choices=[*TARGETS, []], metavar="TARGET", help=f"of {', '.join(TARGETS)}")
    parser.add_argument("--minutes", type=float, default=5.0, help="for each target (5)")
    parser.add_argument("--workers", type=int, default=0, help="processes for each target, all of them at once")
    options = parser.parse_args()
    minutes, names = options.minutes, options.targets or list(TARGETS)
    seed = int(os.environ.get("FUZZ_SEED") or time.time())
    if options.workers:
        programs = [
            subprocess.Popen(
                [sys.executable, __file__, name, "--minutes", str(minutes)],
                env={**os.environ, "FUZZ_SEED": str(seed + number)},
            )
            for name in names
            for number in range(options.workers)
        ]
        return max([program.wait() != 0 for program in programs])
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    failed = False
    for name in names:
        began = time.process_time()
        found = run(name, minutes * 60, seed, Path.cwd())
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        sys.stdout.write(
            f"{name}: {found.runs} inputs in {minutes:g} min ({(time.process_time() - began) / 60:.1f} used), seed "
            f"{seed}, {found.grown} kept, slowest {found.slowest:.2f} s, peak {memory:.0f} MB, "
            f"{len(found.failures)} failures\n" + "".join(f"{failure}\n" for failure in found.failures[:5])
        )
        sys.stdout.flush()
        failed = failed or bool(found.failures)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
