"""The manifests of a wheel: its variants, and the member of the wheel that each file of a variant is."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hatch_torch_ext.base.errors import WheelError
from hatch_torch_ext.facts import manifest as manifests
from hatch_torch_ext.facts.variant import MANIFEST, from_json, is_path

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hatch_torch_ext.facts.manifest import Fallback, Origin, Partial
    from hatch_torch_ext.facts.variant import Variant, VariantFile
    from hatch_torch_ext.wheel import Wheel

PLACE = f"/{MANIFEST}"
MAX_MANIFESTS = 8
MAX_VARIANTS = 1000
MAX_BYTES = 4 << 20
"""Longest manifest, in bytes: a variant of ten files takes 5 kB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A variant as a manifest lists it; ``files`` maps members of the wheel to their descriptions."""

    package: str
    variant: Variant
    files: Mapping[str, VariantFile]


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """One manifest: ``root`` is the folder of the variants, ``package_files`` maps other members to their SHA-256.

    ``head`` is all of it as JSON, of which only the other fields are checked.

    Those are what CMake installed for the package, the loader's files below ``_torch_ext`` (wheels that were made when
    it was one file have none) and the sources of ``fallback``.
    """

    place: str
    root: str
    head: Mapping[str, Any]
    variants: tuple[Listed, ...]
    package_files: Mapping[str, str]
    partial: Partial | None
    fallback: Fallback | None = None
    origin: Origin | None = None


def places(wheel: Wheel) -> tuple[str, ...]:
    """Return the members that are such manifests, sorted.

    Raises ``WheelError`` if there are more than any wheel has.
    """
    found = tuple(member.path for member in wheel.members if f"/{member.path}".endswith(PLACE))
    if len(found) > MAX_MANIFESTS:
        raise WheelError(
            f"{wheel.path}: holds {len(found)} manifests (_torch_ext/manifest.json), and no wheel of ours has more "
            f"than {MAX_MANIFESTS}. Do not trust this wheel"
        )
    return found


def variants(wheel: Wheel) -> list[Variant]:
    """Return the variants of all manifests of a wheel; raises as ``read`` does."""
    return [item.variant for place in places(wheel) for item in read(wheel, place).variants]


def read(wheel: Wheel, place: str) -> Manifest:
    """Return the content of the manifest at the member ``place``.

    Raises ``WheelError`` with what is wrong in it, ``NewerManifestError`` for one of a later format.
    """
    text = wheel.text(place, limit=MAX_BYTES)
    if text is None:
        raise WheelError(f"is too large to be read: it has more than {MAX_BYTES >> 20} MiB")
    return parse(text, place, file=f"{wheel.path}: {place}")


def parse(text: str, place: str, *, file: object) -> Manifest:
    """Return the content of the ``text`` of the manifest at the member ``place``; raises as ``read`` does.

    ``file`` is where that is, for the message.
    """
    data = manifests.read(text, file=file)
    if not isinstance(data.get("variants"), list):
        raise WheelError("must be an object with a list `variants`")
    if len(data["variants"]) > MAX_VARIANTS:
        raise WheelError(f"lists {len(data['variants'])} variants; no wheel has more than {MAX_VARIANTS}")
    package = place.removesuffix(PLACE.removeprefix("/"))
    listed = tuple(_listed(item, number, package) for number, item in enumerate(data["variants"], 1))
    labels = sorted(item.variant.label for item in listed)
    twice = sorted({label for label, following in itertools.pairwise(labels) if label == following})
    if twice:
        raise WheelError(f"lists the variant {twice[0]} twice")
    fallback = manifests.fallback_from_json(data["fallback"]) if data.get("fallback") is not None else None
    sources = {f"{package}{manifests.SOURCES}/{path}": sha256 for path, sha256 in fallback.files} if fallback else {}
    return Manifest(
        place=place,
        root=place.removesuffix("manifest.json"),
        head=data,
        variants=listed,
        package_files={
            **_package_files(data, "package_files", package),
            **_package_files(data, "loader", package),
            **sources,
        },
        partial=manifests.partial_from_json(data[manifests.PARTIAL]) if manifests.PARTIAL in data else None,
        fallback=fallback,
        origin=manifests.origin_from_json(data[manifests.ORIGIN]) if manifests.ORIGIN in data else None,
    )


def _listed(item: object, number: int, package: str) -> Listed:
    if not isinstance(item, dict):
        raise WheelError(f"variant {number} must be an object, not {type(item).__name__}")
    moved = item.get("places", {})
    if not isinstance(moved, dict) or not all(is_path(target) for target in moved.values()):
        raise WheelError(f"variant {number}: `places` must map paths to paths")
    variant = from_json({name: value for name, value in item.items() if name != "places"})
    files = {package + moved.get(file.path, f"_torch_ext/{file.path}"): file for file in variant.files}
    return Listed(package=package.rstrip("/").replace("/", "."), variant=variant, files=files)


def _package_files(head: Mapping[str, Any], field: str, package: str) -> dict[str, str]:
    found = {}
    data = head.get(field, [])
    for number, item in enumerate(data if isinstance(data, list) else [data], 1):
        target, sha256 = (item.get("target"), item.get("sha256")) if isinstance(item, dict) else (None, None)
        if not is_path(target) or not isinstance(sha256, str):
            raise WheelError(f"file {number} of `{field}` must have a `target` and a `sha256`")
        labels = item.get("variants", []) if isinstance(item, dict) else []
        if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
            raise WheelError(f"file {number} of `{field}`: `variants` must be a list of labels")
        found[package + target] = sha256
    return found
