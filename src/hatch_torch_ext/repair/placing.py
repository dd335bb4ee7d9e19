"""The places of a variant's binaries below ``_torch_ext``, the order of writing, and the RPATHs between them.

A file that others of the variant need is in ``shared/<hash>/``, with the hash of its final bytes; so it is written
after what it needs itself. Files that need each other share one folder, named by a hash of their inputs. The file's own
name and its SONAME contain the hash too: ld.so takes a needed name from anywhere in the process, so of two packages
that each have a ``libkernels.so`` the second would run with that of the first.
"""

from __future__ import annotations

import hashlib
import posixpath
from typing import TYPE_CHECKING

from hatch_torch_ext.facts import content
from hatch_torch_ext.facts.variant import FOLDER, SHARED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from hatch_torch_ext.repair.contents import Links, VariantBinary

HASH_LENGTH = 12
NAME_HASH_LENGTH = 8


def groups(links: Mapping[VariantBinary, Links]) -> list[tuple[VariantBinary, ...]]:
    """Return the binaries, each after all that it needs; those that need each other are together, sorted by place.

    Tarjan's algorithm, without recursion: https://doi.org/10.1137/0201010
    """
    number: dict[VariantBinary, int] = {}
    low: dict[VariantBinary, int] = {}
    stack: list[VariantBinary] = []
    found: list[tuple[VariantBinary, ...]] = []
    for root in sorted(links, key=_key):
        work: list[tuple[VariantBinary, Iterator[VariantBinary]]] = [(root, iter(()))] if root not in number else []
        while work:
            node, targets = work.pop()
            if node not in number:
                number[node] = low[node] = len(number)
                stack.append(node)
                targets = iter(links[node].targets)
            for target in targets:
                if target not in number:
                    work += [(node, targets), (target, iter(()))]
                    break
                if target in stack:
                    low[node] = min(low[node], number[target])
            else:
                if low[node] == number[node]:
                    start = stack.index(node)
                    found.append(tuple(sorted(stack[start:], key=_key)))
                    del stack[start:]
                if work:
                    parent = work[-1][0]
                    low[parent] = min(low[parent], low[node])
    return found


def is_shared(binary: VariantBinary, links: Mapping[VariantBinary, Links]) -> bool:
    """Return whether another file of the variant needs ``binary``."""
    return binary.kind == "graft" or any(binary in other.targets for other in links.values())


def name_by_content(name: str, sha256: str) -> str:
    """Return ``libk-0123abcd.so.1`` for ``libk.so.1``; a module's suffix stays whole, since Python reads it."""
    base, dot_so, rest = name.partition(".so")
    base, dot, suffix = base.partition(".cpython-") if ".cpython-" in base else base.partition(".abi3")
    return f"{base}-{sha256[:NAME_HASH_LENGTH]}{dot}{suffix}{dot_so}{rest}"


def run_path(place: str, *, package: str, inside: Iterable[str], folders: Iterable[str]) -> tuple[str, ...]:
    """Return the RUNPATH of the file at ``place`` (below ``_torch_ext``): only folders with a library that it needs.

    ``inside`` are folders below ``_torch_ext``, ``folders`` those below site-packages. A file of a label's folder may
    be moved to ``shared/<hash>/`` if another variant has the same bytes, so it has the paths from both.
    """
    root = f"{package.replace('.', '/')}/{FOLDER}"
    outside = sorted(set(folders), key=lambda folder: (not folder.startswith("torch/"), folder))
    targets = [*(f"{root}/{folder}" for folder in sorted(set(inside))), *outside]
    homes = [posixpath.dirname(place)]
    if not place.startswith(f"{SHARED}/"):
        homes.append(f"{SHARED}/<hash>")
    found = [
        posixpath.join("$ORIGIN", posixpath.relpath(target, f"{root}/{home}")).removesuffix("/.")
        for home in homes
        for target in targets
    ]
    return tuple(dict.fromkeys(found))


def hash_before_names(files: Sequence[Path], needs: Iterable[str]) -> str:
    """Return a hash to name ``files`` by, which contain their own names: of their present bytes, and their needs.

    ``needs`` are the places of needed files that were written before them.
    """
    together = hashlib.sha256()
    for line in _lines(files, needs):
        together.update(f"{line}\n".encode())
    return together.hexdigest()


def _lines(files: Sequence[Path], needs: Iterable[str]) -> Iterator[str]:
    yield from (f"{file.name} {content.sha256(file)}" for file in files)
    yield from sorted(needs)


def _key(binary: VariantBinary) -> tuple[str, str]:
    return binary.place, binary.source.as_posix()
