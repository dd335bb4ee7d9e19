"""What the manifests of a wheel list: each variant, and at which member of the wheel each of its files lies."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hatch_torch_ext import variant as variants
from hatch_torch_ext.errors import WheelError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hatch_torch_ext.variant import Variant, VariantFile
    from hatch_torch_ext.wheel import Wheel

PLACE = "/_torch_ext/manifest.json"
MAX_VARIANTS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A variant as a manifest lists it: ``files`` maps members of the wheel to their descriptions."""

    package: str
    manifest: str
    variant: Variant
    files: Mapping[str, VariantFile]


def manifests(wheel: Wheel) -> tuple[str, ...]:
    """Return the members that are manifests of ours, sorted."""
    return tuple(member.path for member in wheel.members if f"/{member.path}".endswith(PLACE))


def read(wheel: Wheel, manifest: str) -> tuple[Listed, ...]:
    """Return the variants that the member ``manifest`` lists. Raises ``WheelError`` naming what is wrong in it."""
    text = wheel.text(manifest)
    if text is None:
        raise WheelError("is too large to be read")
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise WheelError(f"is no JSON: {error}") from error
    if not isinstance(data, dict) or not isinstance(data.get("variants"), list):
        raise WheelError("must be an object with a list `variants`")
    if len(data["variants"]) > MAX_VARIANTS:
        raise WheelError(f"lists {len(data['variants'])} variants; no wheel has more than {MAX_VARIANTS}")
    root = manifest.removesuffix("_torch_ext/manifest.json")
    package = root.rstrip("/").replace("/", ".")
    return tuple(_listed(item, number, manifest, package, root) for number, item in enumerate(data["variants"], 1))


def _listed(item: object, number: int, manifest: str, package: str, root: str) -> Listed:
    if not isinstance(item, dict):
        raise WheelError(f"variant {number} must be an object, not {type(item).__name__}")
    places = item.get("places", {})
    if not isinstance(places, dict) or not all(isinstance(place, str) for place in places.values()):
        raise WheelError(f"variant {number}: `places` must map paths to paths")
    variant = variants.from_json({name: value for name, value in item.items() if name != "places"})
    files = {root + places.get(file.path, f"_torch_ext/{file.path}"): file for file in variant.files}
    return Listed(package=package, manifest=manifest, variant=variant, files=files)
