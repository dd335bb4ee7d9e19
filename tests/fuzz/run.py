"""Fuzzes the readers of foreign bytes: ``python tests/fuzz/run.py [TARGET…] --minutes N``, from the project's root.

Inputs are whole ones, cut, spliced, repeated and sprinkled with what breaks readers; the seed is printed, and with
``FUZZ_SEED`` the same inputs come again. What fails is kept in the current folder as ``fuzz-TARGET-HASH.bin``.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import resource
import sys
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parents[2] / "src")]

from fuzz.targets import TARGETS  # noqa: E402 -- found by the lines above

LONGEST = 1 << 16
SLOWEST = 5.0
"""Seconds of the processor after which an input of at most 64 kB is a failure."""
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


@dataclass
class Result:
    """What a run found: how many inputs, the slowest in seconds, and the files of those that failed."""

    runs: int = 0
    slowest: float = 0.0
    failures: list[str] = field(default_factory=list)


def mutated(chance: random.Random, seeds: tuple[bytes, ...]) -> bytes:
    """Return an input that no writer of ours wrote."""
    data = bytearray(chance.choice(seeds))
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
    target, seeds = TARGETS[name]
    chance, result = random.Random(seed), Result()  # noqa: S311 -- the same inputs again for the same seed
    end = time.monotonic() + seconds
    while time.monotonic() < end and result.runs != most:
        data = mutated(chance, seeds)
        began = time.process_time()
        problem = ""
        try:
            target(data)
        except Exception:  # noqa: BLE001 -- what is looked for
            problem = traceback.format_exc()
        took = time.process_time() - began
        if took > SLOWEST:
            problem = problem or f"{took:.1f} s for {len(data)} bytes"
        if problem:
            file = folder / f"fuzz-{name}-{hashlib.sha256(data).hexdigest()[:12]}.bin"
            file.write_bytes(data)
            result.failures.append(f"{file}\n{problem}")
        result.runs, result.slowest = result.runs + 1, max(result.slowest, took)
    return result


def main() -> int:
    """Run the targets one after another; 1 where an input fails."""
    parser = argparse.ArgumentParser()
    parser.add_argument("targets", nargs="*", choices=[*TARGETS, []], metavar="TARGET", help=f"of {', '.join(TARGETS)}")
    parser.add_argument("--minutes", type=float, default=5.0, help="for each target (5)")
    options = parser.parse_args()
    minutes, names = options.minutes, options.targets or list(TARGETS)
    seed = int(os.environ.get("FUZZ_SEED") or time.time())
    failed = False
    for name in names:
        found = run(name, minutes * 60, seed, Path.cwd())
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        sys.stdout.write(
            f"{name}: {found.runs} inputs in {minutes:g} min, seed {seed}, slowest {found.slowest:.2f} s, "
            f"peak {memory:.0f} MB, {len(found.failures)} failures\n"
        )
        sys.stdout.write("".join(f"{failure}\n" for failure in found.failures[:5]))
        sys.stdout.flush()
        failed = failed or bool(found.failures)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
