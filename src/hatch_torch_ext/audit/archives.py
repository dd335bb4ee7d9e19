"""Static libraries that register with torch, and of which the linker took nothing that does.

It takes an object file out of a static library only where something needs a name that the file defines. Nothing needs
a registration. The real libraries of torch need names too, of the C++ standard library above all, and some linkers
(mold) look for these in the project's static libraries: a plain build may have a registration by that accident.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hatch_torch_ext.audit.findings import Finding, finding, some
from hatch_torch_ext.elf import archive
from hatch_torch_ext.facts import owners, registered, sonames

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from hatch_torch_ext.audit.subject import Subject


def check(subject: Subject, archives: Sequence[tuple[str, Path]]) -> Iterator[Finding]:
    """Find the static libraries whose registrations no file of the variant has.

    ``archives`` are (file name of a library, static library that it links). Where a library that links one registers
    anything, that is taken for what the static library has.
    """
    registering = [item for item in subject.binaries if owners.registers(item.symbols)]
    for path in sorted({path for _, path in archives}):
        stems = {sonames.stem(name) for name, each in archives if each == path}
        linking = [item for item in subject.binaries if sonames.stem(item.name) in stems]
        if not linking or any(item in registering for item in linking):
            continue
        try:
            members = [name for name, symbols in archive.undefined(path) if owners.registers(symbols)]
            found = registered.read(path) if members else registered.Registered()
        except OSError:
            continue
        if members and not any(
            _common(found, registered.read(item.unstripped or item.elf.path)) for item in registering
        ):
            message = (
                f"links {path.name}, of which {some(members)} registers with torch, and has none of it: the linker "
                "left it out, since nothing calls it"
            )
            yield finding("not-registered", linking[0].place, message, variant=subject.variant)


def _common(one: registered.Registered, other: registered.Registered) -> bool:
    """Say whether two files register something under one name."""
    pairs = (
        (one.whole, other.whole),
        (one.fragments, other.fragments),
        (one.schemas, other.schemas),
        (one.classes, other.classes),
    )
    return any(not first.isdisjoint(second) for first, second in pairs)
