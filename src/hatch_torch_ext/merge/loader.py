"""``Layout`` -> the loader of the package: ``_variants.py`` is a real module with one literal put in.

What few users' processes need is in separate files below ``_torch_ext``: ``help.py``, and ``build.py`` where the wheel
holds its sources. They are the same in every package.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from hatch_torch_ext.base import resources
from hatch_torch_ext.facts import archs, policy, releases
from hatch_torch_ext.facts.variant import BUILD, FOLDER, HELP, LOADER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hatch_torch_ext.facts.manifest import Fallback
    from hatch_torch_ext.values import Layout, PlacedVariant

_START = "DATA: Dict[str, Any] = {"
_END = "}\n"
_WIDTH = 120
"""The longest line, in columns: what fits on one line is on one, the rest has one item a line, as formatters do."""


def template() -> str:
    """Return the module as it is in the sources, without data."""
    return resources.text(LOADER)


def parts(*, fallback: bool) -> dict[str, Path]:
    """Return place in the package -> file of the loader's other files; ``fallback`` says that it holds its sources."""
    return {place: resources.FOLDER / place for place in ([BUILD, HELP] if fallback else [HELP])}


def render(
    layout: Layout,
    *,
    distribution: str,
    editable: str | None = None,
    here: bool = False,
    cut: Sequence[str] = (),
    kernel: tuple[str, int] | None = None,
) -> str:
    """Return the text of ``_variants.py`` for the package of ``layout``.

    ``distribution`` is the name that users install; ``editable`` is the project's folder in an editable install, so
    that messages say how to build, not how to upgrade. ``here`` says that it was built where it is installed, only for
    the torch there. ``cut`` are the wheels with the other variants of the wheel from which this one was split.
    ``kernel`` are the name and version of the kernel of Hugging Face's Hub that the package is. The same layout gives
    the same text, whatever the order of its variants.
    """
    before, start, rest = template().partition(_START)
    _, end, after = rest.partition(_END)
    data = {
        "distribution": distribution,
        "package": layout.package,
        **({"editable": editable} if editable is not None else {}),
        **({"partial": list(layout.partial.lacking)} if layout.partial is not None else {}),
        **({"cut": list(cut)} if cut else {}),
        **({"here": True} if here else {}),
        **({"kernel": {"name": kernel[0], "version": kernel[1]}} if kernel else {}),
        **({"fallback": _fallback(layout.fallback)} if layout.fallback is not None else {}),
        "variants": [fields(placed) for placed in sorted(layout.variants, key=_order)],
    }
    return "".join([before, _literal(data, prefix=start.removesuffix("{")), end.removeprefix("}"), after])


def _fallback(fallback: Fallback) -> dict[str, object]:
    return {"digest": fallback.digest, "default": fallback.default}


def _order(placed: PlacedVariant) -> tuple[object, ...]:
    """Return a sort key that puts torch 2.9 before 2.10."""
    return policy.natural(placed.variant.torch), placed.variant.label


def fields(placed: PlacedVariant) -> dict[str, object]:
    """Return every field of a variant that the loader uses."""
    variant = placed.variant
    exact = variant.build.torch_version
    snapshot = not variant.stable_abi and releases.is_prerelease(exact)
    return {
        "label": variant.label,
        "torch": variant.torch,
        **({"snapshot": exact} if snapshot else {}),
        "stable_abi": variant.stable_abi,
        **variant.runs_on.fields,
        "archs": {name: list(archs.capabilities(name)) for name in variant.archs},
        "cxx11_abi": variant.cxx11_abi,
        "on_default_index": variant.cxx11_abi in (None, releases.cxx11_abi(variant.torch, variant.machine)),
        "cp": list(releases.published_pythons(variant.torch, later=variant.stable_abi)),
        "python": variant.python,
        "machine": variant.machine,
        "libc": variant.libc,
        "libc_floor": variant.libc_floor,
        "files": _files(placed),
    }


def _files(placed: PlacedVariant) -> list[object]:
    """Return the files of a variant, in the order of the paths."""
    places = dict(placed.places)
    return [
        {
            "path": PurePosixPath(places.get(file.path, f"{FOLDER}/{file.path}")).relative_to(FOLDER).as_posix(),
            "name": file.installed,
            "kind": file.kind,
            "size": file.size,
            "sha256": file.sha256,
            "ends": file.ends,
            "mapped": file.mapped,
            "module": file.module,
            "registers": file.registers and not file.unopened,
            "namespaces": list(file.namespaces),
            "operators": list(file.operators),
            **({"unopened": True} if file.unopened else {}),
            **({"fragments": list(file.fragments)} if file.fragments else {}),
            **({"classes": True} if file.classes else {}),
        }
        for file in sorted(placed.variant.files, key=lambda file: file.path)
    ]


def _literal(value: object, *, indent: int = 0, prefix: str = "") -> str:
    """Return ``prefix`` and ``value`` as Python source, formatted ``indent`` columns from the left.

    A value that is too long for one line has one item a line, with a comma after each.
    """
    line = prefix + _on_one_line(value)
    if not isinstance(value, (dict, list)) or not value or indent + len(line) < _WIDTH:
        return line
    inner = indent + 4
    if isinstance(value, dict):
        items = [_literal(item, indent=inner, prefix=f"{_on_one_line(key)}: ") for key, item in value.items()]
    else:
        items = [_literal(item, indent=inner) for item in value]
    start, end = "{}" if isinstance(value, dict) else "[]"
    lines = "".join(f"{' ' * inner}{item},\n" for item in items)
    return f"{prefix}{start}\n{lines}{' ' * indent}{end}"


def _on_one_line(value: object) -> str:
    if isinstance(value, str):
        return '"' + value.encode("unicode_escape").decode().replace('"', '\\"') + '"'
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_on_one_line(key)}: {_on_one_line(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_on_one_line(item) for item in value) + "]"
    return repr(value)
