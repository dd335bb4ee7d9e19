"""What a package provides: the variants in its newest wheel, which is read from an index by ranges, or from a file."""

from __future__ import annotations

import contextlib
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion

from hatch_torch_ext.base.errors import ConfigurationError, WheelError
from hatch_torch_ext.facts import manifest
from hatch_torch_ext.facts.variant import MANIFEST
from hatch_torch_ext.merge import loader
from hatch_torch_ext.remote import archive, index
from hatch_torch_ext.remote.archive import ArchiveError
from hatch_torch_ext.remote.http import FileSource, HttpSource, NoRangesError, RemoteError
from hatch_torch_ext.remote.settings import public
from hatch_torch_ext.values import PlacedVariant

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from packaging.tags import Tag
    from packaging.version import Version

    from hatch_torch_ext.remote.http import Http
    from hatch_torch_ext.user.target import TargetPython

TRITON = frozenset({"pytorch-triton", "pytorch-triton-rocm", "pytorch-triton-xpu", "triton-rocm", "triton-xpu"})
"""Builds of triton that only torch's own index has; torch requires one of them by its exact version."""
TORCH_FAMILY = frozenset({"torch", "torchvision", "torchaudio", "triton", *TRITON})
"""The packages that come from torch's own index; no others do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageOffer:
    """A package that could be installed; ``requirement`` is for the installer, ``variants`` are in the loader's form.

    A package that was not made with hatch-torch-ext has no variants, so it does not affect the choice of torch.
    """

    name: str
    requirement: str
    variants: tuple[dict[str, Any], ...] = ()

    @property
    def served(self) -> str:
        """Return which releases of torch the variants serve, in words."""
        named = []
        for each in self.variants:
            newer = " and newer" if each["stable_abi"] else ""
            backend = f"CUDA {each['cuda']}" if each["cuda"] else "CPU"
            named.append(f"torch {each['torch']}{newer} ({backend})")
        return ", ".join(dict.fromkeys(named))


def offer(requested: str, target: TargetPython, http: Http) -> PackageOffer:
    """Return what the package ``requested`` (a requirement, or the path of a wheel) provides for ``target``.

    Raises ``ConfigurationError`` if it is neither, ``RemoteError`` if no index has a wheel of it.
    """
    path = Path(requested)
    if is_path_of_wheel(requested) or path.is_file():
        return _of_file(path)
    try:
        requirement = Requirement(requested)
    except InvalidRequirement as error:
        raise ConfigurationError(f"`{requested[:80]}` is neither a requirement nor a wheel: {error}.") from error
    name = canonicalize_name(requirement.name)
    if requirement.url is not None:  # the installer takes it from there, and no index may replace it
        address = requirement.url.partition("#")[0]
        is_wheel = address.startswith(("https://", "http://")) and address.endswith(".whl")
        return PackageOffer(name=name, requirement=requested, variants=_variants(http, address) if is_wheel else ())
    newest = _newest(_files(http, name), requirement.specifier, target)
    if newest is None:
        return PackageOffer(name=name, requirement=requested)  # only an sdist, or nothing: the installer will report it
    version, file = newest
    extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
    return PackageOffer(name=name, requirement=f"{name}{extras}=={version}", variants=_variants(http, file.url))


def is_path_of_wheel(text: str) -> bool:
    """Return whether what is to be installed is given as the path of a wheel, rather than by name or address."""
    return text.endswith(".whl") and "://" not in text


def _of_file(path: Path) -> PackageOffer:
    if not path.is_file():
        raise ConfigurationError(f"{path}: no such file. Give the path of a wheel.")
    try:
        name, _, _, _ = parse_wheel_filename(path.name)
    except InvalidWheelFilename as error:
        raise ConfigurationError(f"{path} is not named as a wheel: {error}.") from error
    return PackageOffer(name=name, requirement=str(path.resolve()), variants=_read(FileSource(path)))


def _files(http: Http, name: str) -> list[index.IndexFile]:
    found: list[index.IndexFile] = []
    problems = []
    links = http.settings.find_links
    for place in (*links, *http.settings.indexes):
        try:
            listed = index.find_links(http, place) if place in links else index.files(http, place, name)
            found += [file for file in listed if _named(file.name) == name]
        except RemoteError as error:  # noqa: PERF203 -- a handful of indexes
            problems.append(error)
    if not found and problems:
        raise problems[0]
    return found


def _named(file: str) -> str | None:
    try:
        return parse_wheel_filename(file)[0]
    except (InvalidWheelFilename, InvalidVersion):
        return None


def admitted(
    files: Iterable[index.IndexFile], specifier: SpecifierSet, tags: frozenset[Tag], python: str, *, prereleases: bool
) -> Iterator[tuple[Version, index.IndexFile]]:
    """Yield the wheels among ``files`` that ``specifier``, ``tags`` and the Python version admit."""
    for file in files:
        try:
            _, version, _, own = parse_wheel_filename(file.name)
        except (InvalidWheelFilename, InvalidVersion):
            continue
        if file.yanked or not own & tags or not specifier.contains(version, prereleases=prereleases):
            continue
        if file.requires_python is None or _admits(file.requires_python, python):
            yield version, file


def newest(
    files: Iterable[index.IndexFile], specifier: SpecifierSet, tags: frozenset[Tag], python: str, *, prereleases: bool
) -> tuple[Version, index.IndexFile] | None:
    """Return the newest wheel of ``files`` that is ``admitted``, of one version the highest build number, or None."""
    found = admitted(files, specifier, tags, python, prereleases=prereleases)
    return max(found, key=lambda each: (each[0], parse_wheel_filename(each[1].name)[2]), default=None)


def _newest(
    files: Iterable[index.IndexFile], specifier: SpecifierSet, target: TargetPython
) -> tuple[Version, index.IndexFile] | None:
    listed = list(files)
    found = newest(listed, specifier, target.tags, target.python_version, prereleases=False)
    return found or newest(listed, specifier, target.tags, target.python_version, prereleases=True)


def _admits(requires_python: str, python: str) -> bool:
    try:
        return SpecifierSet(requires_python).contains(python)
    except InvalidSpecifier:
        return True


@contextlib.contextmanager
def opened(http: Http, url: str) -> Iterator[FileSource | HttpSource]:
    """Provide the bytes of a wheel at ``url``: by ranges, or as a whole file if the server does not support ranges."""
    parts = urlsplit(url)
    if parts.scheme == "file":
        yield FileSource(Path(unquote(parts.path)))
        return
    try:
        source = HttpSource(http, url, None)
    except NoRangesError:
        with tempfile.TemporaryDirectory(prefix="torch-ext-install-") as folder:
            whole = Path(folder) / "wheel"
            http.download(url, whole, None, lambda _: None)
            yield FileSource(whole)
        return
    yield source


def _variants(http: Http, url: str) -> tuple[dict[str, Any], ...]:
    with opened(http, url) as source:
        return _read(source)


def _read(source: FileSource | HttpSource) -> tuple[dict[str, Any], ...]:
    """Return the loader's variants from the manifest of a wheel, or () if it has none."""
    file = source.path if isinstance(source, FileSource) else public(source.url)
    try:
        members = [member for member in archive.directory(source) if f"/{member.name}".endswith(f"/{MANIFEST}")]
        listed = [
            item
            for member, data in archive.extract(source, members)
            for item in manifest.parse(data.decode(), member.name, file=f"{file}: {member.name}").variants
        ]
    except (ArchiveError, ValueError, WheelError) as error:
        raise WheelError(f"the wheel's manifest cannot be read: {error}") from error
    return tuple(loader.fields(PlacedVariant(variant=item.variant, places=())) for item in listed)
