"""Hostile wheels of about 10 MB: seconds, memory and text of what reads them. Writes ``results/hostile_wheels.md``.

python benchmarks/hostile_wheels.py              every wheel and every command
python benchmarks/hostile_wheels.py symbols      the wheels of that name alone, and nothing is written
"""

from __future__ import annotations

import argparse
import io
import json
import multiprocessing
import os
import platform
import struct
import subprocess
import sys
import tempfile
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "tests")]

import elves  # noqa: E402 -- found by the line above
import wheels  # noqa: E402
from hatch_torch_ext.facts import variant as variants  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

RESULTS = Path(__file__).parent / "results" / "hostile_wheels.md"
SIZE = 10_000_000
NAME = f"my_pkg-1.0-{wheels.TAG}.whl"
INFO = "my_pkg-1.0.dist-info"
MANIFEST = "my_pkg/_torch_ext/manifest.json"
SECONDS, MEGABYTES, TEXT = 10.0, 300.0, 1e6
"""The aims: processor time, peak memory, bytes of text."""
COMMANDS = (("inspect",), ("inspect", "--json"), ("inspect", "--html", "page.html"), ("audit",), ("audit", "--json"))
LABEL = "torch2.8_cpu_cxx11_x86_64"


def archive(members: Iterator[tuple[str, bytes]], *, stored: bool = False) -> bytes:
    """Return a wheel of ``members``, and of what a wheel must have besides."""
    stream = io.BytesIO()
    with zipfile.ZipFile(
        stream, "w", zipfile.ZIP_STORED if stored else zipfile.ZIP_DEFLATED, compresslevel=6
    ) as target:
        target.writestr(f"{INFO}/WHEEL", "Wheel-Version: 1.0\n")
        names = set()
        for name, data in members:
            info = zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_DEFLATED if data else zipfile.ZIP_STORED
            target.writestr(info, data)
            names.add(name)
        for name, data in ((f"{INFO}/METADATA", b"Name: my-pkg\n"), (f"{INFO}/RECORD", b"")):
            if name not in names:
                target.writestr(name, data)
    return stream.getvalue()


def one(data: bytes, **parts: object) -> Iterator[tuple[str, bytes]]:
    """Yield one library that holds ``data``."""
    yield from noisy(elves.shared_object(needed=("libc10.so", "libc.so.6"), data=data, **parts))  # type: ignore[arg-type]


def noisy(library: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield a library, and noise without which the archive is refused as a bomb."""
    yield "a/noise.bin", os.urandom(SIZE)
    yield "a/lib.so", library


REGISTERS = "_ZN5torch7LibraryC1ENS0_4KindESsSt8optionalIN3c1011DispatchKeyEEPKcj"


def symbols(count: int, name: str) -> bytes:
    """Return a library with ``count`` undefined symbols whose names all are the ends of one."""
    data = bytearray(elves.shared_object(needed=("libc.so.6",), undefined=(name,)))
    headers = data  # the tables are written anew behind the file, and the dynamic section is pointed at them
    base = len(data)
    dynamic = headers.index(struct.pack("<QQ", 6, 0)[:8])
    del dynamic
    strings = b"\0libc.so.6\0" + name.encode() + b"\0"
    first = 11
    table = bytes(24) + b"".join(
        struct.pack("<IBBHQQ", first + number % max(1, len(name) - 1), 0x12, 0, 0, 0, 0) for number in range(count)
    )
    hashes = struct.pack("<4I", 1, count + 1, 0, 0)
    at = 64 + 56 * 3
    places = {"strings": at, "symbols": at + len(strings) + -len(strings) % 8}
    places["hashes"] = places["symbols"] + len(table)
    tags = [
        (1, 1),
        (5, places["strings"]),
        (10, len(strings)),
        (6, places["symbols"]),
        (11, 24),
        (4, places["hashes"]),
        (0, 0),
    ]
    body = strings + bytes(-len(strings) % 8) + table + hashes
    where = at + len(body)
    packed = b"".join(struct.pack("<QQ", *tag) for tag in tags)
    size = where + len(packed)
    segments = b"".join(
        struct.pack("<IIQQQQQQ", *row)
        for row in (
            (1, 5, 0, 0, 0, size, size, 4096),
            (2, 6, where, where, where, len(packed), len(packed), 8),
            (0x6474E551, 6, 0, 0, 0, 0, 0, 16),
        )
    )
    del base
    return bytes(data[:64]) + segments + body + packed


def sections(name: bytes, data: bytes) -> bytes:
    """Return a library with one section of that name."""
    library = elves.shared_object(needed=("libc.so.6",))
    names = b"\0.shstrtab\0" + name + b"\0"
    at = len(library)
    body = data + names
    body += bytes(-(at + len(body)) % 8)
    rows = [
        struct.pack("<IIQQQQIIQQ", 0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
        struct.pack("<IIQQQQIIQQ", 11, 1, 0, 0, at, len(data), 0, 0, 1, 0),
        struct.pack("<IIQQQQIIQQ", 1, 3, 0, 0, at + len(data), len(names), 0, 0, 1, 0),
    ]
    header = bytearray(library[:64])
    struct.pack_into("<Q", header, 40, at + len(body))
    struct.pack_into("<HHH", header, 58, 64, 3, 2)
    return bytes(header) + library[64:] + body + b"".join(rows)


def listed(count: int, files: int) -> bytes:
    """Return a manifest with that many variants of as many files."""
    found = []
    for number in range(count):
        label = f"torch2.{number}_cpu_x86_64"
        described = wheels.variant(label, {f"{label}/{file}.so": b"x" for file in range(files)})
        found.append({**variants.to_json(described), "places": {}})
    head = {"package": "my_pkg", "distribution": "my-pkg", "requires": "torch", "tag": wheels.TAG}
    return json.dumps({**head, "variants": found, "package_files": []}).encode()


def evil_manifest() -> bytes:
    """Return a manifest with one text of all that may be read."""
    data = json.loads(listed(1, 1))
    data["variants"][0]["label"] = "x" * 4_000_000
    return json.dumps(data).encode()


HOSTILE: dict[str, Callable[[], bytes]] = {
    "members": lambda: archive(((f"a/{number:05}.t", b"") for number in range(90_000)), stored=True),
    "python": lambda: archive((f"a/{number:05}.py", b"x = 1\n") for number in range(60_000)),
    "long names": lambda: archive((f"{'a/' * 32_000}{number}", b"") for number in range(75)),
    "deep names": lambda: archive((f"{'a/' * 500}{number}", b"") for number in range(4_500)),
    "record": lambda: archive(
        iter([(f"{INFO}/RECORD", "".join(f"gone/{number},,\n" for number in range(1_000_000)).encode())])
    ),
    "record of empty lines": lambda: archive(iter([(f"{INFO}/RECORD", b"\n" * (16 << 20)), ("a/x", os.urandom(SIZE))])),
    "unrecorded": lambda: archive((f"{'é' * 60}{number}.so", b"x") for number in range(30_000)),
    "variants": lambda: archive(iter([(MANIFEST, listed(1000, 8)), ("a/x", os.urandom(SIZE))])),
    "files of a variant": lambda: archive(iter([(MANIFEST, listed(1, 9000)), ("a/x", os.urandom(SIZE))])),
    "one text": lambda: archive(iter([(MANIFEST, evil_manifest()), ("a/x", os.urandom(SIZE))])),
    "nested": lambda: archive(iter([(MANIFEST, b"[" * 2_000_000), ("a/x", os.urandom(SIZE))])),
    "lists": lambda: archive(iter([(MANIFEST, b"[" + b"[]," * 1_390_000 + b"[]]"), ("a/x", os.urandom(SIZE))])),
    "requirements": lambda: archive(iter([(f"{INFO}/METADATA", b"Requires-Dist: torch>=9\n" * 43_000)])),
    "requirement": lambda: archive(iter([(f"{INFO}/METADATA", b"Requires-Dist: torch" + b">=2," * 200_000)])),
    "libraries": lambda: archive(
        (
            f"a/lib{number}.so",
            elves.shared_object(needed=(f"lib{number + 1}.so", "libc.so.6"), soname=f"lib{number}.so"),
        )
        for number in range(20_000)
    ),
    "symbols": lambda: archive(noisy(symbols(400_000, "_ZN2at" + "x" * 200))),
    "long symbols": lambda: archive(noisy(symbols(20_000, "_Z" + "S" * 20_000 + "Ss"))),
    "paths": lambda: archive(one(b" /tmp/x" * 40_000_000)),
    "schemas": lambda: archive(one(b"a(" + b") -> " * 60_000_000, undefined=(REGISTERS,))),
    "schema whitespace": lambda: archive(
        one((b"\0a() ->" + b" " * 2000 + b"x" * 2000 + b"\n") * 70_000, undefined=(REGISTERS,))
    ),
    "macros": lambda: archive(one(b"TORCH_LIBRARY_" * 20_000_000, undefined=(REGISTERS,))),
    "device code": lambda: archive(noisy(sections(b".nv_fatbin", b"\x50\xed\x55\xba" * 70_000_000))),
    "no device code": lambda: archive(noisy(sections(b".nv_fatbin", b"\1" * 280_000_000))),
    "zeros": lambda: archive(iter([("a/x.bin", bytes(300_000_000)), ("a/y", os.urandom(8_000_000))])),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What one command took: processor and wall seconds, peak memory in MB, text in bytes, exit status."""

    wheel: str
    size: int
    command: str
    cpu: float
    wall: float
    memory: float
    text: int
    status: int

    @property
    def fits(self) -> bool:
        """Say whether the aims are met."""
        small = self.memory <= MEGABYTES and self.text <= TEXT
        return self.cpu <= SECONDS and small and self.status in {0, 1}


def write(name: str, path: Path) -> None:
    """Write one of the wheels."""
    path.write_bytes(HOSTILE[name]())


def measure(name: str, path: Path, command: tuple[str, ...], folder: Path) -> Measured:
    """Run one command on one wheel."""
    page = folder / "page.html"
    page.unlink(missing_ok=True)
    output = folder / "output"
    began = time.monotonic()
    with output.open("wb") as stream:
        running = subprocess.Popen(
            ["timeout", "120", sys.executable, "-m", "hatch_torch_ext", *command, str(path)],
            stdout=stream,
            stderr=subprocess.STDOUT,
            cwd=folder,
        )
        _, status, usage = os.wait4(running.pid, 0)
        running.returncode = os.waitstatus_to_exitcode(status)
    text = output.stat().st_size + (page.stat().st_size if page.exists() else 0)
    return Measured(
        wheel=name, size=path.stat().st_size, command=" ".join(command), cpu=usage.ru_utime + usage.ru_stime,
        wall=time.monotonic() - began, memory=usage.ru_maxrss / 1024, text=text, status=running.returncode,
    )  # fmt: skip


def main() -> int:
    """Measure, print, and write the results; 1 where an aim is missed."""
    parser = argparse.ArgumentParser(description="Seconds, memory and text of what reads hostile wheels.")
    parser.add_argument("wheels", nargs="*", metavar="WHEEL", help=f"of {', '.join(HOSTILE)}; all by default")
    chosen = parser.parse_args().wheels or list(HOSTILE)
    if unknown := sorted({*chosen} - {*HOSTILE}):
        parser.error(f"there is no wheel {', '.join(unknown)}: name some of {', '.join(HOSTILE)}")
    rows = []
    with tempfile.TemporaryDirectory(prefix="hatch-torch-ext-wheels-") as scratch:
        folder = Path(scratch)
        for name in chosen:
            path = folder / NAME
            made = multiprocessing.get_context("spawn").Process(target=write, args=(name, path))
            made.start()  # apart: a program's peak memory is never below that of the process that started it
            made.join()
            for command in COMMANDS:
                row = measure(name, path, command, folder)
                rows.append(row)
                sys.stdout.write(f"{line(row)}\n")
                sys.stdout.flush()
    if len(chosen) == len(HOSTILE):
        RESULTS.write_text(page(rows), encoding="utf-8")
    return int(not all(row.fits for row in rows))


def line(row: Measured) -> str:
    """Return a row of the table."""
    fits = "yes" if row.fits else "**no**"
    return (
        f"| {row.wheel} | {row.size / 1e6:.1f} | `{row.command}` | {row.cpu:.1f} | {row.wall:.1f} | {row.memory:.0f} | "
        f"{row.text / 1e3:,.0f} | {row.status} | {fits} |"
    )


def page(rows: list[Measured]) -> str:
    """Return the results."""
    return "\n".join(
        [
            "# Reading hostile wheels",
            "",
            f"`python benchmarks/hostile_wheels.py` on {platform.machine()} Linux, Python {platform.python_version()}. "
            f"The aims: {SECONDS:.0f} s of processor time, {MEGABYTES:.0f} MB, {TEXT / 1e6:.0f} MB of text.",
            "",
            "| wheel | MB | command | processor, s | wall, s | memory, MB | text, kB | status | meets the aims |",
            "|---|---|---|---|---|---|---|---|---|",
            *map(line, rows),
            "",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
