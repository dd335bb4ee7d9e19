"""``Layout`` -> a CycloneDX document for the wheel (PEP 770): the torch, CUDA, compilers and grafts in it."""

from __future__ import annotations

import json
from pathlib import PurePosixPath
from typing import TYPE_CHECKING
from urllib.parse import quote

from packaging.utils import canonicalize_name

from hatch_torch_ext import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hatch_torch_ext.facts.variant import Variant
    from hatch_torch_ext.values import Layout, PlacedVariant

SPECIFICATION = "1.6"

Component = dict[str, object]


def render(layout: Layout, *, distribution: str) -> str:
    """Return the document as JSON text: the same for the same layout, without times and serial numbers."""
    components: dict[str, Component] = {}
    dependencies: list[dict[str, object]] = []
    for placed in layout.variants:
        used: set[str] = set()
        for component in _used(placed):
            reference = str(component["bom-ref"])
            components.setdefault(reference, component)
            used.add(reference)
        variant = _variant(placed)
        components[str(variant["bom-ref"])] = variant
        dependencies.append({"ref": variant["bom-ref"], "dependsOn": sorted(used)})
    root = f"pkg:pypi/{canonicalize_name(distribution)}"
    dependencies.append({"ref": root, "dependsOn": sorted(str(each["ref"]) for each in dependencies)})
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": SPECIFICATION,
        "version": 1,
        "metadata": {
            "component": {"type": "library", "bom-ref": root, "name": distribution, "purl": root},
            "tools": {"components": [{"type": "application", "name": "hatch-torch-ext", "version": __version__}]},
        },
        "components": [component for _, component in sorted(components.items())],
        "dependencies": sorted(dependencies, key=lambda each: str(each["ref"])),
    }
    return json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def _variant(placed: PlacedVariant) -> Component:
    variant = placed.variant
    places = dict(placed.places)
    return {
        "type": "library",
        "bom-ref": f"variant:{variant.label}",
        "name": variant.label,
        "components": [
            {
                "type": "file",
                "bom-ref": f"variant:{variant.label}#{file.path}",
                "name": places.get(file.path, file.path),
                "hashes": [{"alg": "SHA-256", "content": file.sha256}],
            }
            for file in sorted(variant.files, key=lambda file: file.path)
        ],
        "properties": [
            {"name": f"hatch-torch-ext:flags:{name}", "value": value} for name, value in sorted(variant.build.flags)
        ],
    }


def _used(placed: PlacedVariant) -> Iterator[Component]:
    """Yield the components of a variant: its tools, and the foreign parts in it."""
    variant = placed.variant
    yield _torch(variant)
    for compiler in variant.build.compilers:
        yield _tool(compiler, "compiler")
    yield _tool(f"CMake {variant.build.cmake}", "build tool")
    backend = variant.runs_on
    if purl := backend.purl:
        yield {
            "type": "framework",
            "bom-ref": purl,
            "name": backend.toolkit,
            "version": backend.version,
            "purl": purl,
        }
    for file in variant.files:
        if file.kind == "graft":
            yield _graft(file.origin or f"pkg:generic/{quote(PurePosixPath(file.path).name)}", file.path, file.sha256)


def _torch(variant: Variant) -> Component:
    version = variant.build.torch_version
    reference = f"pkg:pypi/torch@{quote(version)}"
    component: Component = {
        "type": "framework",
        "bom-ref": reference,
        "name": "torch",
        "version": version,
        "purl": reference,
        "scope": "required",
    }
    if variant.build.torch_sha256 is not None:
        component["bom-ref"] = f"{reference}#{variant.build.torch_sha256[:12]}"
        component["hashes"] = [{"alg": "SHA-256", "content": variant.build.torch_sha256}]
        component["properties"] = [{"name": "hatch-torch-ext:hash", "value": "as its index says it"}]
    return component


def _tool(words: str, description: str) -> Component:
    name, _, version = words.partition(" ")
    return {
        "type": "application",
        "bom-ref": f"tool:{quote(words)}",
        "name": name,
        "version": version,
        "description": description,
        "scope": "excluded",
    }


def _graft(origin: str, path: str, sha256: str) -> Component:
    name, _, version = origin.partition("?")[0].rpartition("/")[2].partition("@")
    component: Component = {
        "type": "library",
        "bom-ref": f"{origin}#{sha256[:12]}",
        "name": name,
        "purl": origin,
        "hashes": [{"alg": "SHA-256", "content": sha256}],
        "properties": [{"name": "hatch-torch-ext:file", "value": PurePosixPath(path).name}],
    }
    return component | ({"version": version} if version else {})
