"""Labels: the file-safe names of variants, and the words in them; pure."""

from __future__ import annotations

import re
from itertools import product
from typing import TYPE_CHECKING

from hatch_torch_ext.facts import releases
from hatch_torch_ext.facts.backend import Backend

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hatch_torch_ext.facts.releases import Minor

MACHINES = ("aarch64", "x86_64")
DEBIAN = {"aarch64": "arm64", "x86_64": "amd64"}
"""The names of the machines in package names of Debian and Ubuntu."""
PYTHONS = (*(f"cp3{minor}" for minor in range(8, 21)), *(f"cp3{minor}t" for minor in range(13, 21)))
"""CPython tags that a label may end with if the entry names no Python."""


def python_tag(python: str | None) -> str | None:
    """Return the CPython tag for a Python that an environment asks for (``3.11``, ``py311`` -> ``cp311``), or None."""
    match = re.fullmatch(r"(?:cpython|python|cp|py)?-?(\d)\.?(\d+)(?:\.\d+)?(t?)", python or "")
    return "cp{}{}{}".format(*match.groups()) if match else None


def label(
    *, torch_minor: str, stable_abi: bool, backend: Backend, cxx11_abi: bool | None, machine: str, python: str | None
) -> str:
    """Return the file-safe name of a variant, such as ``torch2.8_cu12.8_cxx11_x86_64_cp311``.

    ``torch_minor`` is ``2.8``; ``cxx11_abi`` None if no C++ symbol of torch is
    needed; ``python`` a tag (``cp313t``, ``abi3-cp39``), or None if nothing in the variant needs Python.
    """
    text = _stem(torch_minor, stable_abi, backend, cxx11_abi, machine) + _suffix(python)
    if not re.fullmatch(r"[0-9a-z._]+", text):
        raise ValueError(f"`{text}` is not a label: it may contain only `0-9`, `a-z`, `.` and `_`")
    return text


def _stem(torch_minor: str, stable_abi: bool, backend: Backend, cxx11_abi: bool | None, machine: str) -> str:  # noqa: FBT001
    kind = "stable" if stable_abi else "torch"
    abi = "" if stable_abi or cxx11_abi is None else "_cxx11" if cxx11_abi else "_cxx98"
    return f"{kind}{torch_minor}_{backend.label}{abi}_{machine}"


def _suffix(python: str | None) -> str:
    return "" if python is None else "_" + python.partition("-")[0]


def possible(
    *,
    torch: Sequence[Minor],
    stable_abi: bool,
    backend: Backend | None,
    python: str | None,
    machine: str | None = None,
) -> Iterator[str]:
    """Yield every label that an entry may get, given what the matrix leaves open (backend, ABI, Python, machine).

    ``torch`` are the release lines that it may be built for; ``backend`` is None for open;
    ``python`` is a CPython tag or None for open, and ``machine`` a machine or None for open.
    """
    suffixes = [_suffix(tag) for tag in (None, "abi3", *((python,) if python else PYTHONS))]
    abis = (None,) if stable_abi else (None, False, True)
    for minor in torch:
        line = releases.format_minor(minor)
        for each_backend, abi, each in product(_backends(minor, backend), abis, (machine,) if machine else MACHINES):
            stem = _stem(line, stable_abi, each_backend, abi, each)
            yield from [stem + suffix for suffix in suffixes]


def _backends(minor: Minor, backend: Backend | None) -> tuple[Backend, ...]:
    if backend is not None:
        return (backend,)
    versions = [f"{major}.{i}" for major in releases.cuda_majors(minor) for i in range(10)]
    return releases.published(minor) or (Backend("cpu"), *(Backend("cuda", version) for version in versions))
