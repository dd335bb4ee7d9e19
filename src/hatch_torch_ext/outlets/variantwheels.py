"""A fat wheel, split by backend into variant wheels of PEP 825, with the index's ``-variants.json``.

The PEP is a draft, and the providers (``PROVIDERS``) will be in a later one: all that may still change is in the
constants below.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hatch_torch_ext.base import atomic
from hatch_torch_ext.base.errors import MergeError
from hatch_torch_ext.outlets import parts, writing
from hatch_torch_ext.outlets.merging import relaid

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from hatch_torch_ext.facts.backend import Provider
    from hatch_torch_ext.facts.variant import BuiltVariant
    from hatch_torch_ext.outlets.parts import Part

SCHEMA = "https://variants-schema.wheelnext.dev/peps/850/v0.2.0.json"
NULL = "null"
"""The label of the variant wheel without properties, which fits every machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantWheels:
    """The written files: the variant wheels by label, the fat wheel beside them, and the index's description."""

    wheels: tuple[tuple[str, Path], ...]
    fat: Path
    description: Path


def cut(path: Path, *, out: Path) -> VariantWheels:
    """Split the fat wheel at ``path`` by backend into the folder ``out``, and copy it there for today's installers.

    Raises ``WheelError`` for a wheel that this project did not make, ``MergeError`` for one that is split already or
    has one backend.
    """
    with tempfile.TemporaryDirectory(prefix="torch-ext-variants-") as folder:
        part = parts.read(path, folder=Path(folder))
        parts.refuse_cut(part)
        groups = _groups(part)
        if len(groups) <= 1:
            only = next(iter(groups), "none")
            raise MergeError(
                f"{path.name} has variants for only one backend ({only}): there is nothing that an "
                f"installer could choose, and the wheel as it is serves all of them"
            )
        written = []
        properties = {label: _properties(variants) for label, variants in groups.items()}
        known = (built.variant.runs_on.provider for built in part.variants)
        providers = tuple(dict.fromkeys(each for each in known if each is not None))
        layouts = {label: relaid(variants, [part]) for label, variants in groups.items()}
        releases = {label: writing.Release(version=part.wheel.version, label=label) for label in groups}
        names = {label: writing.file_name(part, layouts[label], release) for label, release in releases.items()}
        for label, layout in layouts.items():
            own = _variant_json({label: properties[label]}, providers)
            described = json.dumps(own, indent=2, sort_keys=True) + "\n"
            wheel = writing.write(
                part,
                layout,
                releases[label],
                out=out,
                dist_info={"variant.json": described.encode()},
                others=[name for other, name in names.items() if other != label],
            )
            written.append((label, wheel))
        fat = out / path.name
        if fat.resolve() != path.resolve():
            with atomic.replacing(fat) as draft:
                shutil.copyfile(path, draft)
        name = path.name.split("-")[0]
        description = out / f"{name}-{part.wheel.version}-variants.json"
        text = json.dumps(_variant_json(properties, providers), indent=2, sort_keys=True) + "\n"
        atomic.write(description, text.encode())
    return VariantWheels(wheels=tuple(written), fat=fat, description=description)


def _groups(part: Part) -> dict[str, list[BuiltVariant]]:
    """Return label -> variants: one for each major of a GPU's toolkit, the newest first, and ``null`` for the CPU."""
    found: dict[str, list[BuiltVariant]] = defaultdict(list)
    for built in sorted(part.variants, key=lambda built: -built.variant.runs_on.major):
        backend = built.variant.runs_on
        found[backend.major_tag if backend.is_gpu else NULL].append(built)
    return dict(found)


def _properties(variants: Sequence[BuiltVariant]) -> dict[str, dict[str, list[str]]]:
    """Return the required properties of a machine: a driver of that major, and a GPU for which a variant has code.

    There is no upper bound, since newer drivers run it too. GPUs are named if all code is for GPUs of its own major
    (``9.0``): the provider has no values for PTX, which every newer GPU runs, nor for code of only one GPU (``9.0a``).
    """
    backend = variants[0].variant.runs_on
    if backend.provider is None:
        return {}
    properties = {backend.provider.driver: [f"{backend.major}.0"]}
    archs = {arch for built in variants for arch in built.variant.archs}
    if archs and all(re.fullmatch(r"[0-9]+\.[0-9]", arch) for arch in archs):
        properties[backend.provider.cards] = sorted(f"{arch.replace('.', '')}_real" for arch in archs)
    return {backend.provider.namespace: properties}


def _variant_json(variants: Mapping[str, object], providers: Collection[Provider]) -> dict[str, object]:
    """Return the description of variant wheels; uv has the providers built in, and runs no code of them."""
    return {
        "$schema": SCHEMA,
        "default-priorities": {"namespace": [each.namespace for each in providers]},
        "providers": {each.namespace: {"plugin-api": each.plugin, "requires": [each.package]} for each in providers},
        "variants": dict(variants),
    }
