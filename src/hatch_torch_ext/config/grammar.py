"""The notation of options' values: sizes, policies, architectures, counts, CMake definitions; pure functions.

Each function raises ``ValueError`` with a text that continues "Option `x` for build hook `torch-ext` ".
"""

from __future__ import annotations

import re
from decimal import Decimal

from hatch_torch_ext.facts import archs

# fmt: off
SIZE_UNITS = {
    "": 1, "b": 1,
    "kb": 10**3, "mb": 10**6, "gb": 10**9,
    "kib": 2**10, "mib": 2**20, "gib": 2**30,
}
# fmt: on

# The same for a JSON Schema: regular expressions without flags and named groups.
SIZE = r"^\s*\d+(\.\d+)?\s*([kmgKMG][iI]?[bB]|[bB])?\s*$"
POLICY = r"\d+_\d+|(many|musl)linux_\d+_\d+|manylinux(1|2010|2014)"
ARCHITECTURE = r"all|all-major|[1-9]\d?\.\d[af]?(\+PTX)?"


def size(value: object) -> int:
    """Return the bytes of ``100``, ``"100 MB"`` or ``"64MiB"``; at least one."""
    expected = "must be a number of bytes, or a size such as `100 MB` or `64 MiB`"
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise ValueError(expected)  # noqa: TRY004 - one kind of error, whose text is what counts
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", str(value).strip().lower())
    if not match or match[2] not in SIZE_UNITS:
        raise ValueError(f"{expected}, not `{value}`")
    count = int(Decimal(match[1]) * SIZE_UNITS[match[2]])
    if count < 1:
        raise ValueError(f"must be at least one byte, not `{value}`")
    return count


def policy(value: object) -> str | None:
    """Return ``manylinux_2_28`` for itself and for ``2_28``, legacy names unchanged, None for ``auto``."""
    if not isinstance(value, str):
        raise ValueError("must be a string")  # noqa: TRY004 - one kind of error, whose text is what counts
    if value == "auto":
        return None
    if re.fullmatch(r"\d+_\d+", value):
        return f"manylinux_{value}"
    if re.fullmatch(POLICY, value):
        return value
    expected = "must be a policy such as `manylinux_2_28` or `2_28`, or `auto`"
    if value.endswith(("_x86_64", "_aarch64")):
        raise ValueError(f"{expected}: leave the machine out of `{value}`, it is that of the build")
    raise ValueError(f"{expected}, not `{value}`")


def architecture(value: str) -> str:
    """Return a GPU architecture in torch's notation, or a word that means several."""
    if value in archs.GROUPS:
        return value
    try:
        archs.parse(value)
    except ValueError:
        expected = (
            "must be an architecture as torch writes it, such as `8.0`, `9.0a`, `10.0f`, `9.0+PTX` or `all-major`"
        )
        if match := re.fullmatch(r"(?:sm_?|compute_?)?([1-9]\d?)(\d)([af]?)(?:-real|-virtual)?", value):
            ptx = "+PTX" if value.startswith("compute") or value.endswith("-virtual") else ""
            raise ValueError(f"{expected}: `{match[1]}.{match[2]}{match[3]}{ptx}`, not `{value}`") from None
        raise ValueError(f"{expected}, not `{value}`") from None
    return value


def count(value: object) -> int:
    """Return a whole number of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"must be a whole number of at least 1, not `{value}`")
    return value


def definition(value: object) -> str:
    """Return a CMake variable's value: ``ON`` or ``OFF`` for a boolean, ``a;b`` for an array."""
    if isinstance(value, bool):
        return "ON" if value else "OFF"
    if isinstance(value, (str, int, float)):
        return str(value)
    if isinstance(value, (list, tuple)) and not any(isinstance(part, (list, tuple)) for part in value):
        return ";".join(definition(part).replace(";", r"\;") for part in value)
    raise ValueError("must be a string, a boolean, a number, or an array of these")
