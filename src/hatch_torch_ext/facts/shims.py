"""The C functions of torch's stable ABI, with the release that introduced each: they show a binary's lowest torch.

``tools/shims.py`` generates ``shims.json`` from the headers of the releases. The libraries of torch 2.8, 2.9 and 2.13
export exactly these functions.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

from hatch_torch_ext.facts import releases

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hatch_torch_ext.facts.releases import Minor

_SHIM = re.compile(r"aoti_torch_\w+|torch_[a-z]\w*")


@dataclass(frozen=True, slots=True, kw_only=True)
class LowestTorch:
    """The lowest release line that has every stable-ABI function among a file's symbols.

    ``functions`` are those that no earlier line has, sorted; ``unknown`` are named like functions of the stable ABI and
    are in no release of the table: either newer than it, or not torch's.
    """

    torch: Minor
    functions: tuple[str, ...]
    unknown: tuple[str, ...]


def lowest(symbols: Iterable[str]) -> LowestTorch | None:
    """Return the lowest torch for a file with these undefined symbols; None if it uses no such function."""
    wanted = {symbol for symbol in symbols if _SHIM.fullmatch(symbol)}
    since = {symbol: _table()[symbol] for symbol in wanted & _table().keys()}
    if not since:
        return None
    torch = max(since.values())
    return LowestTorch(
        torch=torch,
        functions=tuple(sorted(symbol for symbol, minor in since.items() if minor == torch)),
        unknown=tuple(sorted(wanted - since.keys())),
    )


def newest() -> Minor:
    """Return the newest release line of the table."""
    return max(_table().values())


@cache
def _table() -> Mapping[str, Minor]:
    text = (resources.files("hatch_torch_ext.facts") / "shims.json").read_text(encoding="utf-8")
    since: dict[str, list[str]] = json.loads(text)["since"]
    return {name: releases.minor_of(line) for line, names in since.items() for name in names}
