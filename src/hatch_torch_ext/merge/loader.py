"""``Layout`` -> the text of the package's ``_variants.py``: a real module with one literal put in."""

from __future__ import annotations

from importlib.resources import files
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from hatch_torch_ext.facts import archs, policy, releases
from hatch_torch_ext.facts.variant import FOLDER

if TYPE_CHECKING:
    from hatch_torch_ext.facts.variant import Variant
    from hatch_torch_ext.merge import Layout, PlacedVariant

TEMPLATE = "_variants.py"
KINDS = ("library", "module", "graft", "python")
_START = "DATA: Dict[str, Any] = {"
_END = "}\n"
_LINES = 399
"""Lines of the file at most, for any package: variants have one each, or share those that the code leaves."""


def template() -> str:
    """Return the module as it stands in our own tree, with the data of no package."""
    return (files("hatch_torch_ext") / "resources" / TEMPLATE).read_text(encoding="utf-8")


def render(layout: Layout, *, distribution: str) -> str:
    """Return the text of ``_variants.py`` for the package of ``layout``.

    ``distribution`` is the name that users install. The same layout gives the same text, whatever the order
    of its variants.
    """
    before, start, rest = template().partition(_START)
    _, end, after = rest.partition(_END)
    named = f'"distribution": {_literal(distribution)}, "package": {_literal(layout.package)}, "variants": [\n'
    variants = [f"{_literal(_fields(placed))}," for placed in sorted(layout.variants, key=_order)]
    a_line = -(-len(variants) // (_LINES - 2 - (before + after).count("\n")))
    lines = [f"    {' '.join(variants[at : at + a_line])}\n" for at in range(0, len(variants), a_line or 1)]
    return "".join([before, start, named, *lines, "]", end, after])


def _order(placed: PlacedVariant) -> tuple[tuple[int, ...], str]:
    """Sort the way people count: torch 2.9 before 2.10."""
    return tuple(int(part) for part in placed.variant.torch.split(".")), placed.variant.label


def _fields(placed: PlacedVariant) -> dict[str, object]:
    """Return what the loader needs to know of a variant, every field of it."""
    variant = placed.variant
    return {
        "label": variant.label,
        "torch": variant.torch,
        "stable_abi": variant.stable_abi,
        "cuda": variant.cuda if variant.backend == "cuda" else None,
        "archs": {name: list(archs.capabilities(name)) for name in variant.archs},
        "cxx11_abi": variant.cxx11_abi,
        "on_default_index": variant.cxx11_abi in (None, _default_cxx11_abi(variant)),
        "cp": list(releases.published_pythons(variant.torch, later=variant.stable_abi)),
        "python": variant.python,
        "machine": variant.machine,
        "libc": variant.libc,
        "libc_floor": variant.libc_floor,
        "files": _files(placed),
    }


def _default_cxx11_abi(variant: Variant) -> bool:
    """Return which C++ ABI a plain ``pip install torch`` of that release brings: the remedies must be able to help.

    torch's wheels for Linux turned to the C++11 ABI with 2.7 on x86-64 and with 2.6 on aarch64 (pytorch's
    ``RELEASE.md`` and release notes of 2.6).
    """
    return policy.natural(variant.torch) >= policy.natural("2.6" if variant.machine == "aarch64" else "2.7")


def _files(placed: PlacedVariant) -> list[object]:
    """Return what a variant runs, in the order of the paths; its data files are nothing to the loader."""
    places = dict(placed.places)
    return [
        {
            "path": PurePosixPath(places.get(file.path, f"{FOLDER}/{file.path}")).relative_to(FOLDER).as_posix(),
            "size": file.size,
            "sha256": file.sha256,
            "module": file.module,
            "registers": file.registers,
        }
        for file in sorted(placed.variant.files, key=lambda file: file.path)
        if file.kind in KINDS
    ]


def _literal(value: object) -> str:
    """Return ``value`` as Python source on one line, with the quotes that formatters use."""
    if isinstance(value, str):
        return '"' + value.encode("unicode_escape").decode().replace('"', '\\"') + '"'
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_literal(key)}: {_literal(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_literal(item) for item in value) + "]"
    return repr(value)
