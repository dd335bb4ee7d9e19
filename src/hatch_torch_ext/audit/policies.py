"""The symbol versions of every file, compared with the wheel's platform tag and with all existing policies."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hatch_torch_ext.audit.findings import Finding, finding, some
from hatch_torch_ext.facts import policy

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from hatch_torch_ext.audit.subject import AuditedBinary
    from hatch_torch_ext.facts.policy import Policy

_PLATFORM = re.compile(r"(?P<name>(?:many|musl)linux(?:1|2010|2014|_\d+_\d+))_(?P<machine>\w+)")


def check(tags: Sequence[str], binaries: Iterable[AuditedBinary]) -> Iterator[Finding]:
    """Find files that need more of glibc, libstdc++ or libgcc than the lowest policy of the tag guarantees."""
    promised = [found for tag in tags if (found := _policy(tag.rpartition("-")[2])) is not None]
    if not promised:
        yield from beyond_all(binaries, variant=None)
        return
    machine, lowest = min(promised, key=lambda pair: pair[1].rank)
    for binary in binaries:
        if binary.elf.machine != machine:
            continue
        beyond = policy.breaking(lowest, machine, _versions(binary))
        if beyond:
            symbols = _symbols(binary, beyond)
            yield finding("policy-too-low", binary.place, f"needs {symbols}, but the wheel is tagged {lowest.name}")


def beyond_all(binaries: Iterable[AuditedBinary], *, variant: str | None) -> Iterator[Finding]:
    """Find files that need more than any policy guarantees: few systems load them, and no index accepts them."""
    for binary in binaries:
        libc = policy.libc_of(binary.elf.needed) or "glibc"
        beyond = policy.unpromised(binary.elf.machine, libc, _versions(binary))
        if beyond:
            message = f"needs {_symbols(binary, beyond)}, which no policy of manylinux or musllinux promises"
            yield finding("no-policy", binary.place, message, variant=variant)


def _versions(binary: AuditedBinary) -> list[str]:
    return [version for _, needed in binary.elf.version_needs for version in needed]


def _policy(platform: str) -> tuple[str, Policy] | None:
    match = _PLATFORM.fullmatch(platform)
    found = policy.named(match["name"], match["machine"]) if match else None
    return (match["machine"], found) if match and found else None


def _symbols(binary: AuditedBinary, versions: Sequence[str]) -> str:
    """Name each version with a symbol that requires it, if there is one."""
    by_version: dict[str, str] = {}
    for symbol, version in binary.elf.symbol_versions:
        by_version.setdefault(version, symbol)
    named = [
        f"{by_version[version]} of {version}" if version in by_version else version for version in reversed(versions)
    ]
    return some(named)
