"""A smaller installation: variants of an installed package that its environment cannot load are removed.

RECORD and the manifest are updated, so that the package can still be uninstalled completely. The loader keeps the data
of removed variants; the manifest has their labels as `pruned`, and the way back as `reinstall`. RECORD and the manifest
are foreign files. Only files that are in the package's own folder (after resolving links) and in the RECORD of its own
distribution are removed.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import os
import shlex
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlsplit

from packaging.utils import canonicalize_name

from hatch_torch_ext.base import atomic, escape, untrusted
from hatch_torch_ext.base.errors import ConfigurationError, NewerManifestError, WheelError
from hatch_torch_ext.facts.manifest import MAX_BYTES, parse
from hatch_torch_ext.facts.variant import MANIFEST
from hatch_torch_ext.user.builtcache import VARIABLE as CACHE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from hatch_torch_ext.facts.variant import Variant

MAX_RECORD = 64 << 20
"""Longest RECORD that is read, in bytes; one file takes about a hundred."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledPackage:
    """An installed package with variants: ``root`` is its folder, ``record`` the RECORD that lists it.

    ``variants`` are those of its manifest, with the path of each file below ``root``; ``head`` is the manifest as read.
    If the manifest is invalid there are no variants, and ``fault`` is a clause with the reason. If only a later
    hatch-torch-ext reads it there are none either, and ``newer`` is the message. ``version`` is "" for a folder that
    was copied, of which no ``.dist-info`` is there.
    """

    distribution: str
    version: str
    root: Path
    record: Path
    head: Mapping[str, Any]
    variants: tuple[tuple[Variant, tuple[str, ...]], ...] = ()
    pruned: frozenset[str] = frozenset()
    fault: str = ""
    newer: str = ""

    @property
    def package(self) -> str:
        """Return the import name."""
        return ".".join(self.root.relative_to(self.record.parent.parent).parts)

    @property
    def labels(self) -> tuple[str, ...]:
        """Return the labels of the manifest."""
        return tuple(variant.label for variant, _ in self.variants)

    @property
    def origin(self) -> Mapping[str, Any]:
        """Return where the package was installed from (direct_url.json); empty if that was an index."""
        try:
            found = untrusted.json(untrusted.text(self.record.with_name("direct_url.json"), MAX_BYTES))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError):
            found = None
        return found if isinstance(found, dict) and isinstance(found.get("url"), str) else {"url": "?"}

    @property
    def requirement(self) -> str | None:
        """Return what ``install`` takes to install the package again: its name, or the wheel that it came from.

        None if it came from a folder, a repository or a wheel that is gone: an index may have another of its name. None
        for a copied folder, which no installer replaces.
        """
        if not self.version:
            return None
        if not self.origin:
            return self.distribution
        parts = urlsplit(self.origin["url"])
        path = unquote(parts.path)
        return path if parts.scheme == "file" and path.endswith(".whl") and Path(path).is_file() else None

    @property
    def again(self) -> str:
        """Return the command that reinstalls the package."""
        if not self.version:
            name = shlex.quote(self.distribution)
            return f"rm -r {shlex.quote(escape.name(self.root))} && pip install --no-deps {name}"
        requirement = f"{self.distribution}=={self.version}"
        if origin := self.origin:
            requirement = self.requirement or f"{self.distribution} @ {_address(origin)}"
        return f"pip install --force-reinstall --no-deps {shlex.quote(escape.line(requirement))}"

    @property
    def problem(self) -> str:
        """Return the message about a manifest that cannot be used, or an empty text."""
        fault = f"{self.root / MANIFEST} {self.fault}: {self.again}" if self.fault else self.newer
        return f"{self.distribution}: {fault}" if fault else ""


def _address(origin: Mapping[str, Any]) -> str:
    """Return the address of what direct_url.json describes, as pip takes it: with commit and subdirectory."""
    address = str(origin["url"])
    if isinstance(vcs := origin.get("vcs_info"), dict):
        address = f"{vcs.get('vcs')}+{address}"
        if commit := vcs.get("commit_id") or vcs.get("requested_revision"):
            address += f"@{commit}"
    folder = origin.get("subdirectory")
    return f"{address}#subdirectory={quote(folder)}" if isinstance(folder, str) and folder else address


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruning:
    """What pruning removes: ``labels``, ``files`` (absolute paths), and their size in bytes.

    ``again`` is the command that brings it back.
    """

    installed: InstalledPackage
    labels: tuple[str, ...]
    files: tuple[Path, ...]
    size: int
    again: str


def packages(site: Path) -> tuple[InstalledPackage, ...]:
    """Return the packages with variants below ``site`` (site-packages, or the folder of ``--target``), by name."""
    found = []
    for record in sorted(site.glob("*.dist-info/RECORD")):
        for row in _rows(record):
            if row and f"/{row[0]}".endswith(f"/{MANIFEST}"):
                place = site / row[0]
                if place.exists() and _is_inside(place, site):
                    found.append(_installed(record, place))
    return tuple(found)


def unrecorded(site: Path, recorded: Collection[InstalledPackage]) -> Iterator[InstalledPackage]:
    """Yield the packages below ``site`` besides the ``recorded``: copied folders, packages of a distributor.

    Their ``record`` is where a RECORD would be.
    """
    roots = {each.root for each in recorded}
    for place in sorted([*site.glob(f"*/{MANIFEST}"), *site.glob(f"*/*/{MANIFEST}")]):
        root = place.parent.parent
        try:
            head = untrusted.json(untrusted.text(place, MAX_BYTES))
            name, package = canonicalize_name(head["distribution"], validate=True), head["package"]
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if root not in roots and package == ".".join(root.relative_to(site).parts):
            own = (each for each in site.glob("*.dist-info") if canonicalize_name(each.name.partition("-")[0]) == name)
            yield _installed(next(own, site / f"{name.replace('-', '_')}.dist-info") / "RECORD", place)


def _installed(record: Path, place: Path) -> InstalledPackage:
    name, _, version = record.parent.name.removesuffix(".dist-info").partition("-")
    head: dict[str, Any] = {}
    variants: tuple[tuple[Variant, tuple[str, ...]], ...] = ()
    pruned: list[str] = []
    fault = newer = ""
    try:
        manifest = parse(untrusted.text(place, MAX_BYTES), MANIFEST, file=place)
        variants = tuple((each.variant, tuple(sorted(each.files))) for each in manifest.variants)
        head = dict(manifest.head)
        json.dumps(head, ensure_ascii=False).encode()  # checks that it can be written again
        pruned = head.get("pruned", [])
        if not isinstance(pruned, list) or not all(isinstance(label, str) for label in pruned):
            fault, pruned = "must have a list of labels as `pruned`", []
        named = head.get("distribution")
        if isinstance(named, str) and canonicalize_name(named) == canonicalize_name(name):
            name = named
    except NewerManifestError as error:
        newer = str(error)
    except WheelError as error:
        fault = f"is invalid ({error})"
    except (OSError, ValueError) as error:
        fault = f"cannot be read: {escape.name(error)}"
    return InstalledPackage(
        distribution=name,
        version=version,
        root=place.parent.parent,
        record=record,
        head=head,
        variants=() if fault else variants,
        pruned=frozenset(pruned),
        fault=fault,
        newer=newer,
    )


def check_cache(installed: InstalledPackage, environ: Mapping[str, str]) -> None:
    """Check that every user of the installation can read the build made at first use, where no variant is kept.

    Raises ``ConfigurationError``.
    """
    if not installed.labels:
        return
    named = environ.get(CACHE, "")
    folder = Path(named).expanduser()
    if not named:
        why = (
            "what this environment loads of it was built at first use, and is in the cache of this user only. Build it "
            f"in a folder that every user of this installation reads, and set {CACHE} where it runs, too: "
            f"export {CACHE}=/path/to/folder && python -m {installed.package}._variants --build && "
            "chmod -R a+rX /path/to/folder"
        )
    elif _is_private(folder):
        why = (
            f"what this environment loads of it was built at first use, and {folder} can be read by its owner only. "
            f"Let every user of this installation read it: chmod -R a+rX {shlex.quote(os.fspath(folder))}"
        )
    else:
        return
    raise ConfigurationError(f"{installed.distribution}: nothing is removed, since no variant would stay: {why}")


def _is_private(folder: Path) -> bool:
    """Return whether other users cannot read what is in ``folder``."""
    try:
        return any(not each.stat().st_mode & 0o004 for each in (folder, *folder.rglob("*")) if not each.is_symlink())
    except OSError:
        return True


def check_keep(installed: Collection[InstalledPackage], keep: Collection[str]) -> None:
    """Check that each label to keep is one of a package's, and that each package has one of them.

    Raises ``ConfigurationError`` that names the labels there are.
    """
    known = {each.distribution: {*each.labels, *each.pruned} for each in installed if not each.problem}
    wrong = sorted(set(keep) - set().union(*known.values()))
    without = [name for name, labels in known.items() if not labels & set(keep)]
    if wrong or without:
        what = f"{', '.join(wrong)}: no variant has that label" if wrong else f"{', '.join(without)}: nothing to keep"
        there = "; ".join(f"{name}: {', '.join(sorted(labels)) or 'none'}" for name, labels in known.items())
        raise ConfigurationError(
            f"--keep: {escape.line(what)}. Nothing is removed. Give labels that are there ({there})."
        )


def prepare(
    installed: InstalledPackage, keep: Collection[str], *, built: bool = False, python: str = "python", again: str = ""
) -> Pruning:
    """Return what is removed if only the variants ``keep`` stay; none need stay if what is loaded was ``built`` here.

    ``python`` is the Python of the environment, and ``again`` the command that reinstalls the package there.
    Raises ``ConfigurationError`` if none would stay, or if the manifest names files that are not the package's own.
    """
    again = again or installed.again
    if installed.fault:
        problem = f"{installed.distribution}: {installed.root / MANIFEST} {installed.fault}: {again}"
        raise ConfigurationError(f"{problem}. Nothing is removed.")
    if installed.newer:
        raise ConfigurationError(f"{installed.problem}. Nothing is removed.")
    if not built and installed.labels and not set(keep) & set(installed.labels):
        if gone := sorted(set(keep) & installed.pruned):
            raise ConfigurationError(
                f"{installed.distribution}: an earlier prune removed {', '.join(gone)}, which this environment "
                f"would load. Nothing is removed this time. The way back: {again}"
            )
        raise ConfigurationError(
            f"{installed.distribution} has no variant that this environment can load "
            f"({', '.join(installed.labels)}). Nothing is removed. Install a torch that it has a variant for "
            f"first: hatch-torch-ext install --python {shlex.quote(python)} "
            f"{shlex.quote(installed.requirement or installed.distribution)}"
        )
    kept: set[str] = set()
    dropped: set[str] = set()
    for variant, places in installed.variants:
        (kept if variant.label in keep else dropped).update(places)
    site = installed.record.parent.parent
    listed = {os.path.normpath(site / row[0]) for row in _rows(installed.record) if row}
    files = sorted(installed.root / place for place in dropped - kept if (installed.root / place).is_file())
    for file in files:
        if not _is_inside(file, installed.root) or os.path.normpath(file) not in listed:
            raise ConfigurationError(
                f"{installed.distribution}: its manifest lists {escape.name(file)}, which is not a file of this "
                f"package. Nothing is removed. Reinstall it: {again}"
            )
    return Pruning(
        installed=installed,
        labels=tuple(label for label in installed.labels if label not in keep),
        files=tuple(files),
        size=sum(file.stat().st_size for file in files),
        again=again,
    )


def _is_inside(path: Path, root: Path) -> bool:
    """Return whether the folder of ``path`` is in ``root`` after resolving links. The file itself may be a link."""
    own = Path(os.path.normpath(path))
    return own.is_relative_to(root) and own.parent.resolve().is_relative_to(root.resolve())


def apply(pruning: Pruning) -> None:
    """Remove the files, first from RECORD and the manifest, so that a kill in between leaves no entry without its file.

    Raises ``ConfigurationError`` if the installation cannot be written, before anything is changed.
    """
    installed = pruning.installed
    site = installed.record.parent.parent
    if not pruning.labels:
        return
    for folder in sorted({installed.record.parent, installed.root / "_torch_ext", *(f.parent for f in pruning.files)}):
        if (why := _unwritable(folder)) is not None:
            raise ConfigurationError(
                f"{installed.distribution} is not pruned: {folder} cannot be written ({why}). Prune it where it is "
                "installed, as the user who installs it: in a Dockerfile, in the same RUN."
            )
    removed = set(pruning.labels)
    manifest = dict(installed.head)
    manifest["variants"] = [each for each in manifest["variants"] if each["label"] not in removed]
    manifest["pruned"] = sorted({*installed.pruned, *removed})
    manifest["reinstall"] = installed.again
    text = (json.dumps(manifest, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode()
    place = installed.root / MANIFEST
    atomic.write(place, text)
    atomic.write(installed.record, _record(installed.record, site, set(pruning.files), place, text).encode())
    for file in pruning.files:
        file.unlink(missing_ok=True)
    folders = {parent for file in pruning.files for parent in file.parents if parent.is_relative_to(place.parent)}
    for folder in sorted(folders, key=lambda each: len(each.parts), reverse=True):
        if folder != place.parent and folder.is_dir() and not folder.is_symlink() and not any(folder.iterdir()):
            folder.rmdir()


def _unwritable(folder: Path) -> str | None:
    """Return why files of ``folder`` cannot be removed or replaced, or None."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            return None
    except OSError as error:
        return error.strerror or "an error"


def _record(record: Path, site: Path, gone: set[Path], manifest: Path, text: bytes) -> str:
    """Return RECORD without the removed files, and with the manifest's new hash."""
    digest = base64.urlsafe_b64encode(hashlib.sha256(text).digest()).rstrip(b"=").decode()
    out = io.StringIO()
    lines = csv.writer(out, lineterminator="\n")
    for row in _rows(record):
        if not row:
            continue
        path = Path(os.path.normpath(site / row[0]))
        if path in gone:
            continue
        lines.writerow([row[0], f"sha256={digest}", str(len(text))] if path == manifest else row)
    return out.getvalue()


def _rows(record: Path) -> list[list[str]]:
    try:
        return list(csv.reader(untrusted.text(record, MAX_RECORD).splitlines()))
    except (OSError, csv.Error, ValueError):
        return []
