"""Which manylinux or musllinux policy a set of symbol versions meets; the tables are auditwheel's data files."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Literal, TypedDict

if TYPE_CHECKING:
    from collections.abc import Iterable

Libc = Literal["glibc", "musl"]

_FILES: dict[Libc, str] = {"glibc": "manylinux-policy.json", "musl": "musllinux-policy.json"}
_OLDEST_MUSL = "musllinux_1_2"
"""musl has no symbol versions, so a file does not show which release it needs.

1.1 ended in 2020: no image builds for it.
"""
_OWN = re.compile(
    r"ld-linux[\w-]*\.so\.\d+|ld64\.so\.\d+|ld-musl-\w+\.so\.\d+|libc\.musl-\w+\.so\.\d+|linux-vdso\.so\.\d+"
)


class _Row(TypedDict):
    name: str
    aliases: list[str]
    priority: int
    symbol_versions: dict[str, dict[str, list[str]]]
    lib_whitelist: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A policy and what it guarantees.

    ``name`` ends with the machine: ``manylinux_2_17_x86_64``. ``rank`` grows with what the policy requires of a user's
    system; ``linux_<machine>``, which guarantees nothing, has the highest.
    """

    name: str
    rank: int
    libraries: frozenset[str]
    """SONAMEs of the libraries on every system of the policy."""

    @property
    def version(self) -> str | None:
        """Return the libc version in the name (``2.17``), or None for plain ``linux``."""
        match = re.match(r"(?:many|musl)linux_(\d+)_(\d+)_", self.name)
        return f"{match[1]}.{match[2]}" if match else None

    def guarantees(self, soname: str) -> bool:
        """Return whether every system of the policy has the library; the dynamic linker itself always counts."""
        return soname in self.libraries or _OWN.fullmatch(soname) is not None


def libc_of(needed: Iterable[str]) -> Libc | None:
    """Return the C library that files with these NEEDED names are linked with, or None if they name none."""
    found: Libc | None = None
    for name in needed:
        if name == "libc.so" or name.startswith(("libc.musl-", "ld-musl-")):
            return "musl"
        if name.startswith("libc.so."):
            found = "glibc"
    return found


def lowest(machine: str, libc: Libc, versions: Iterable[str]) -> Policy:
    """Return the lowest policy that all ``versions`` (``GLIBC_2.17``, ``GLIBCXX_3.4.24`` …) meet.

    Versions of libraries that no policy mentions (``OMP_4.0``, ``libcudart.so.12``) do not count.
    """
    versions = set(versions)
    known = _policies(machine, libc)
    for candidate, promised in known:
        if not any(_exceeds(version, promised) for version in versions):
            return candidate
    libraries = known[-1][0].libraries if known else frozenset()  # a newer libc is still a libc
    return Policy(name=f"linux_{machine}", rank=1000, libraries=libraries)


def named(name: str, machine: str) -> Policy | None:
    """Return the policy that authors call ``name``: ``manylinux_2_28``, ``manylinux2014``, with or without machine."""
    bare = name.removesuffix(f"_{machine}")
    libc: Libc = "musl" if bare.startswith("musl") else "glibc"
    for candidate, _ in _policies(machine, libc):
        if candidate.name == f"{_aliases(libc).get(bare, bare)}_{machine}":
            return candidate
    return None


def breaking(policy: Policy, machine: str, versions: Iterable[str]) -> tuple[str, ...]:
    """Return the ``versions`` that ``policy`` does not guarantee, sorted."""
    libc: Libc = "musl" if policy.name.startswith("musl") else "glibc"
    promised = next((p for candidate, p in _policies(machine, libc) if candidate.name == policy.name), None)
    if promised is None:
        return ()
    return tuple(sorted((v for v in set(versions) if _exceeds(v, promised)), key=natural))


def unpromised(machine: str, libc: Libc, versions: Iterable[str]) -> tuple[str, ...]:
    """Return the ``versions`` that no policy guarantees, sorted."""
    known = _policies(machine, libc)
    return breaking(known[-1][0], machine, versions) if known else ()


def floor(libc: Libc, policy: Policy, versions: Iterable[str]) -> str:
    """Return the lowest C library version that provides all ``versions``; that of the policy if they name none."""
    named_versions = [version[6:] for version in versions if re.fullmatch(r"GLIBC_\d[\d.]*", version)]
    if libc == "glibc" and named_versions:
        return max(named_versions, key=natural)
    return policy.version or "0"


_NUMBER = re.compile("[0-9]{1,18}")


def natural(text: str) -> tuple[tuple[int, str | int], ...]:
    """Return a sort key for any text that puts 2.9 before 2.17; a run of too many digits sorts as a word."""
    parts = (part for part in re.split(r"([0-9]+)", text) if part)
    return tuple((1, int(part)) if _NUMBER.fullmatch(part) else (0, part) for part in parts)


def _exceeds(version: str, promised: dict[str, frozenset[str]]) -> bool:
    name, _, number = version.partition("_")
    return name in promised and number not in promised[name]


@cache
def _rows(libc: Libc) -> tuple[_Row, ...]:
    text = (resources.files("auditwheel") / "policy" / _FILES[libc]).read_text(encoding="utf-8")
    rows: list[_Row] = json.loads(text)
    # auditwheel's priority is reversed: the highest requires the least.
    return tuple(sorted((row for row in rows if row["name"] != "linux"), key=lambda row: -row["priority"]))


@cache
def _policies(machine: str, libc: Libc) -> tuple[tuple[Policy, dict[str, frozenset[str]]], ...]:
    """Return the policies of a machine, the least demanding first, each with the versions that it guarantees."""
    found: list[tuple[Policy, dict[str, frozenset[str]]]] = []
    for row in _rows(libc):
        versions = row["symbol_versions"].get(machine)
        if versions is None or (libc == "musl" and natural(row["name"]) < natural(_OLDEST_MUSL)):
            continue
        libraries = frozenset(row["lib_whitelist"])
        if libc == "musl":
            libraries |= {f"libc.musl-{machine}.so.1"}
        policy = Policy(name=f"{row['name']}_{machine}", rank=len(found), libraries=libraries)
        found.append((policy, {name: frozenset(numbers) for name, numbers in versions.items()}))
    return tuple(found)


@cache
def _aliases(libc: Libc) -> dict[str, str]:
    return {alias: row["name"] for row in _rows(libc) for alias in row["aliases"]}
