"""The manifest: its format, read for every command; its variants, a first-use build, its origin, what a part lacks."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from packaging.version import InvalidVersion, Version

from hatch_torch_ext import __version__
from hatch_torch_ext.base import escape, untrusted
from hatch_torch_ext.base.errors import NewerManifestError, WheelError
from hatch_torch_ext.facts.variant import FOLDER, MANIFEST, from_json, is_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from hatch_torch_ext.facts.variant import Variant, VariantFile

SCHEMA = 1
"""The format that this hatch-torch-ext writes, and the newest that it reads."""
MAX_VARIANTS = 1000
MAX_BYTES = 4 << 20
"""Longest manifest, in bytes: a variant of ten files takes 5 kB."""
SOURCES = f"{FOLDER}/sources"
"""The folder of the sources, below the package."""
OPTIONS = ("archs", "cmake", "debug-symbols", "exclude", "ignore", "unopened", "variant-data")
"""Options of the hook that affect how a variant is compiled and repaired on any machine."""


def head(text: str, *, file: object) -> dict[str, Any]:
    """Return the manifest of that text, unchecked except for its format; ``file`` is where it is, for the message.

    Raises ``NewerManifestError`` for a later format than this version's, ``WheelError`` for other text.
    """
    try:
        data = untrusted.json(text)
    except ValueError as error:
        raise WheelError(f"is not JSON: {escape.name(error)}") from error
    if not isinstance(data, dict):
        raise WheelError("must be an object with a list `variants`")
    schema = data.get("schema", SCHEMA)
    if type(schema) is not int:
        raise WheelError("`schema` must be a number")
    if schema > SCHEMA:
        maker = newer_maker(data)
        to = f" to {maker}, which made it" if maker else ""
        known = f"hatch-torch-ext {__version__} reads formats up to {SCHEMA}"
        raise NewerManifestError(
            f"{file} is of format {str(schema)[:20]} (`schema`), and {known}: upgrade hatch-torch-ext{to}"
        )
    return data


def newer_maker(data: Mapping[str, Any]) -> str:
    """Return the version of the hatch-torch-ext that wrote a manifest, if that is a later one; else ""."""
    origin = data.get(ORIGIN)
    version = origin.get("version") if isinstance(origin, dict) else None
    return str(version) if _is_version(version) and is_newer(str(version)) else ""


def is_newer(version: str) -> bool:
    """Return whether a version of hatch-torch-ext is later than this one."""
    return Version(version) > Version(__version__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fallback:
    """``files`` are (path below the sources, SHA-256), sorted; ``source`` is the folder of CMakeLists.txt among them.

    ``options`` are the hook's, as the author wrote them (those of ``OPTIONS``). ``variables`` and ``env_vars`` are
    those that all entries of the matrix have in common; ``stable_abi`` says that all are for torch's stable ABI.
    ``default`` says that the author allows the build, so that users need not.
    """

    version: str
    source: str
    options: Mapping[str, Any]
    files: tuple[tuple[str, str], ...]
    variables: tuple[tuple[str, str], ...] = ()
    env_vars: tuple[tuple[str, str], ...] = ()
    stable_abi: bool = False
    default: bool = False

    @property
    def digest(self) -> str:
        """Return a hash of all inputs of a build except torch."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """A fallback and the folder of its files."""

    fallback: Fallback
    root: Path


def fallback_to_json(fallback: Fallback) -> dict[str, Any]:
    """Return the fallback in the manifest's form."""
    return {**asdict(fallback), "files": [{"path": path, "sha256": sha256} for path, sha256 in fallback.files]}


def fallback_from_json(data: object) -> Fallback:
    """Return the fallback of that form. Raises ``WheelError`` for anything else."""
    try:
        found = dict(data)  # type: ignore[call-overload]
        files = tuple((_path(each["path"]), str(each["sha256"])) for each in found.pop("files"))
        pairs = {name: tuple((str(a), str(b)) for a, b in found.pop(name)) for name in ("variables", "env_vars")}
        fallback = Fallback(**{**found, **pairs, "files": files})
        texts = all(isinstance(each, str) for each in (fallback.version, fallback.source))
        flags = all(isinstance(each, bool) for each in (fallback.stable_abi, fallback.default))
        if texts and flags and isinstance(fallback.options, dict):
            return fallback
    except (KeyError, TypeError, ValueError) as error:
        raise WheelError(f"`fallback` is not as it must be: {error}") from error
    raise WheelError("`fallback` is not as it must be")


def _path(text: object) -> str:
    if not is_path(text):
        raise ValueError(f"{text!r} is not a path below the sources")
    return text


ORIGIN = "origin"
"""The key in the manifest's head; wheels of older versions have none."""
SHORT = 16
"""Digits of a digest: enough to notice a change."""
_DIGEST = re.compile(f"[0-9a-f]{{{SHORT}}}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The sources and the configuration of a wheel, the same on every machine, and whether built from an sdist or not.

    The matrix is not part of it: more entries do not make another wheel.
    """

    version: str
    """Of hatch-torch-ext."""
    options: tuple[tuple[str, str], ...]
    """(option, digest) of the hook's options that affect what is built and are not at their defaults, sorted."""
    folders: tuple[tuple[str, str], ...]
    """(folder of the project, digest of the files in it that a build may read), sorted; ``.`` is the project's own."""


def origin_to_json(origin: Origin) -> dict[str, object]:
    """Return ``origin`` in JSON form."""
    return {"version": origin.version, "options": dict(origin.options), "folders": dict(origin.folders)}


def origin_from_json(data: object) -> Origin:
    """Return the ``Origin`` of that form; fields of later versions are left out. Raises ``WheelError``."""
    if not isinstance(data, dict) or not _is_version(data.get("version")):
        raise WheelError(f"`{ORIGIN}` must be an object with the `version` of hatch-torch-ext")
    return Origin(version=str(data["version"]), options=_digests(data, "options"), folders=_digests(data, "folders"))


def differences(wheel: Origin, here: Origin, *, source: str) -> Iterator[str]:
    """Yield what of the project ``here`` differs from that of the ``wheel``, in words for a message.

    ``source`` is the folder of CMakeLists.txt. A folder outside of it that only one of the two has is not compared: a
    checkout has folders that an sdist lacks.
    """
    for name in _differing(wheel.options, here.options):
        yield f"the option `{name}`"
    both = dict(wheel.folders).keys() & dict(here.folders).keys()
    for name in _differing(wheel.folders, here.folders):
        if name in both or source == "." or f"{name}/".startswith(f"{source}/"):
            yield "the files of the project's own folder" if name == "." else f"the files in `{name}`"


def _differing(ours: tuple[tuple[str, str], ...], theirs: tuple[tuple[str, str], ...]) -> list[str]:
    return sorted({name for name, _ in {*ours} ^ {*theirs}})


def _is_version(data: object) -> bool:
    try:
        return isinstance(data, str) and bool(Version(data))
    except InvalidVersion:
        return False


def _digests(data: Mapping[object, object], field: str) -> tuple[tuple[str, str], ...]:
    found = data.get(field)
    if not isinstance(found, dict):
        raise WheelError(f"`{ORIGIN}.{field}` must map names to digests")
    for name, value in found.items():
        if not (isinstance(name, str) and name.isprintable() and isinstance(value, str) and _DIGEST.fullmatch(value)):
            raise WheelError(f"`{ORIGIN}.{field}` must map names to digests of {SHORT} hexadecimal digits")
    return tuple(sorted(found.items()))


PARTIAL = "partial"
"""The key in the manifest's head; a complete wheel has none."""
_LOCAL = re.compile(r"[+.]part\d+of\d+$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Partial:
    """Names of entries, sorted, and digests (SHA-256 in hex) of inputs, which are the same on every machine."""

    entries: tuple[str, ...]
    """All entries of the complete wheel; those that declare no machine are built on each machine."""
    built: tuple[str, ...]
    """The entries that were built. Variants do not tell: entries with the same bytes share one."""
    sources: str
    """The digest of the project's files."""
    configuration: str
    """The digest of the hook's options that affect what is built."""
    builder: str
    """The digest of hatch-torch-ext itself."""
    machines: tuple[tuple[str, str], ...] = ()
    """(entry, machine) of the ``entries`` that declare the variable ``machine``, sorted."""

    def of(self, names: Iterable[str], machine: str) -> set[str]:
        """Return those of the entries ``names`` that are for ``machine``, or declare none."""
        declared = dict(self.machines)
        return {name for name in names if declared.get(name, machine) == machine}

    @property
    def lacking(self) -> tuple[str, ...]:
        """Return the entries that were not built."""
        return tuple(sorted(set(self.entries) - set(self.built)))


def partial_to_json(partial: Partial) -> dict[str, object]:
    """Return ``partial`` in JSON form."""
    return dataclasses.asdict(partial)


def partial_from_json(data: object) -> Partial:
    """Return the ``Partial`` of that form. Raises ``WheelError`` for anything else."""
    names = {field.name for field in dataclasses.fields(Partial)}
    if not isinstance(data, dict) or data.keys() != names:
        raise WheelError(f"`{PARTIAL}` must be an object with {', '.join(sorted(names))}")
    fields: dict[str, Any] = {}
    for name, value in data.items():
        if name == "machines":
            if not isinstance(value, list) or not all(_is_pair(item) for item in value):
                raise WheelError(f"`{PARTIAL}.{name}` must be an array of pairs, an entry and its machine")
            fields[name] = tuple((entry, machine) for entry, machine in value)
        elif name not in {"built", "entries"}:
            if not isinstance(value, str) or not value.isprintable():
                raise WheelError(f"`{PARTIAL}.{name}` must be a string")
            fields[name] = value
        elif isinstance(value, list) and value and all(isinstance(item, str) and item.isprintable() for item in value):
            fields[name] = tuple(value)
        else:
            raise WheelError(f"`{PARTIAL}.{name}` must be an array of names of entries")
    return Partial(**fields)


def _is_pair(data: object) -> bool:
    return (
        isinstance(data, list)
        and len(data) == 2  # noqa: PLR2004 - a pair
        and all(isinstance(each, str) and each.isprintable() for each in data)
    )


def partial_version(whole: str, part: int, parts: int) -> str:
    """Return the version of a partial wheel: ``1.0+part3of8``, which an index refuses since it has a local part."""
    return f"{whole}{'.' if '+' in whole else '+'}part{part}of{parts}"


def whole_version(part: str) -> str:
    """Return the version of the complete wheel to which a partial wheel of version ``part`` belongs."""
    return _LOCAL.sub("", part)


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


def is_manifest(member: str) -> bool:
    """Return whether a member of a wheel is a manifest of ours."""
    return f"/{member}".endswith(f"/{MANIFEST}")


def parse(text: str, place: str, *, file: object) -> Manifest:
    """Return the content of the ``text`` of the manifest at the member ``place``; ``file`` is for the message.

    Raises ``WheelError`` with what is wrong in it, ``NewerManifestError`` for one of a later format.
    """
    data = head(text, file=file)
    if not isinstance(data.get("variants"), list):
        raise WheelError("must be an object with a list `variants`")
    if len(data["variants"]) > MAX_VARIANTS:
        raise WheelError(f"lists {len(data['variants'])} variants; no wheel has more than {MAX_VARIANTS}")
    package = place.removesuffix(MANIFEST)
    listed = tuple(_listed(item, number, package) for number, item in enumerate(data["variants"], 1))
    labels = sorted(item.variant.label for item in listed)
    twice = sorted({label for label, following in itertools.pairwise(labels) if label == following})
    if twice:
        raise WheelError(f"lists the variant {twice[0]} twice")
    fallback = fallback_from_json(data["fallback"]) if data.get("fallback") is not None else None
    sources = {f"{package}{SOURCES}/{path}": sha256 for path, sha256 in fallback.files} if fallback else {}
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
        partial=partial_from_json(data[PARTIAL]) if PARTIAL in data else None,
        fallback=fallback,
        origin=origin_from_json(data[ORIGIN]) if ORIGIN in data else None,
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


def _package_files(document: Mapping[str, Any], field: str, package: str) -> dict[str, str]:
    found = {}
    data = document.get(field, [])
    for number, item in enumerate(data if isinstance(data, list) else [data], 1):
        target, sha256 = (item.get("target"), item.get("sha256")) if isinstance(item, dict) else (None, None)
        if not is_path(target) or not isinstance(sha256, str):
            raise WheelError(f"file {number} of `{field}` must have a `target` and a `sha256`")
        labels = item.get("variants", []) if isinstance(item, dict) else []
        if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
            raise WheelError(f"file {number} of `{field}`: `variants` must be a list of labels")
        found[package + target] = sha256
    return found
