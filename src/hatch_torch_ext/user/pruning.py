"""A smaller installation: the variants of an installed package that its environment cannot load are removed.

RECORD and the manifest stay true, so that the package is uninstalled whole. The loader keeps the data of what was
removed: its messages still name it, and say that it was pruned.

Both are files that others wrote. Nothing is removed but files that lie in the package's own folder, links resolved,
and that the RECORD of its own distribution lists.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.utils import canonicalize_name

from hatch_torch_ext import foreign, printable
from hatch_torch_ext.errors import ConfigurationError, WheelError
from hatch_torch_ext.wheel import listing

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from hatch_torch_ext.facts.variant import Variant

MANIFEST = "_torch_ext/manifest.json"
MAX_RECORD = 64 << 20
"""Bytes; a file takes a hundred."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """A package of ours in a folder of packages: ``root`` is its own folder, ``record`` the RECORD that lists it.

    ``variants`` are what its manifest lists, with the place of each file below ``root``; ``head`` is the manifest as it
    stands there. Where it cannot be believed, there are none, and ``fault`` is a clause that says why.
    """

    distribution: str
    version: str
    root: Path
    record: Path
    head: Mapping[str, Any]
    variants: tuple[tuple[Variant, tuple[str, ...]], ...] = ()
    pruned: frozenset[str] = frozenset()
    fault: str = ""

    @property
    def labels(self) -> tuple[str, ...]:
        """Return the labels that the manifest lists."""
        return tuple(variant.label for variant, _ in self.variants)

    @property
    def again(self) -> str:
        """Return the command that installs it again."""
        requirement = shlex.quote(f"{self.distribution}=={self.version}")
        return f"pip install --force-reinstall --no-deps {requirement}"

    @property
    def problem(self) -> str:
        """Return the sentence about a manifest that cannot be believed; empty where all is well."""
        return f"{self.distribution}: {self.root / MANIFEST} {self.fault}: {self.again}" if self.fault else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruning:
    """What is removed: ``labels`` and ``files`` (absolute), and how many bytes that is."""

    installed: Installed
    labels: tuple[str, ...]
    files: tuple[Path, ...]
    size: int


def packages(site: Path) -> tuple[Installed, ...]:
    """Return the packages of ours below the folder ``site`` (site-packages, or what ``--target`` named), by name."""
    found = []
    for record in sorted(site.glob("*.dist-info/RECORD")):
        for row in _rows(record):
            if row and f"/{row[0]}".endswith(f"/{MANIFEST}"):
                place = site / row[0]
                if place.exists() and _is_inside(place, site):
                    found.append(_installed(record, place))
    return tuple(found)


def _installed(record: Path, place: Path) -> Installed:
    name, _, version = record.parent.name.removesuffix(".dist-info").partition("-")
    head: dict[str, Any] = {}
    variants: tuple[tuple[Variant, tuple[str, ...]], ...] = ()
    pruned: list[str] = []
    fault = ""
    try:
        text = foreign.text(place, listing.MAX_BYTES)
        variants = tuple((each.variant, tuple(sorted(each.files))) for each in listing.parse(text, MANIFEST).variants)
        head = foreign.json(text)
        json.dumps(head, ensure_ascii=False).encode()  # it can be written again
        pruned = head.get("pruned", [])
        if not isinstance(pruned, list) or not all(isinstance(label, str) for label in pruned):
            fault, pruned = "must have a list of labels as `pruned`", []
        said = head.get("distribution")
        if isinstance(said, str) and canonicalize_name(said) == canonicalize_name(name):
            name = said
    except WheelError as error:
        fault = f"cannot be believed: it {error}"
    except (OSError, ValueError) as error:
        fault = f"cannot be read: {printable.name(error)}"
    return Installed(
        distribution=name,
        version=version,
        root=place.parent.parent,
        record=record,
        head=head,
        variants=() if fault else variants,
        pruned=frozenset(pruned),
        fault=fault,
    )


def prepare(installed: Installed, keep: Collection[str]) -> Pruning:
    """Return what is removed when only the variants ``keep`` stay.

    Raises ``ConfigurationError`` when none would, and where the manifest names what is not the package's own.
    """
    if installed.fault:
        raise ConfigurationError([f"{installed.problem}. Nothing is removed."])
    if not set(keep) & set(installed.labels):
        raise ConfigurationError(
            [
                f"{installed.distribution} has no variant that this environment can load "
                f"({', '.join(installed.labels)}): nothing is removed. Install the torch that it is for first."
            ]
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
                [
                    f"{installed.distribution}: its manifest lists {printable.name(file)}, which is no file of this "
                    f"package. Nothing is removed. Install it anew: {installed.again}"
                ]
            )
    return Pruning(
        installed=installed,
        labels=tuple(label for label in installed.labels if label not in keep),
        files=tuple(files),
        size=sum(file.stat().st_size for file in files),
    )


def _is_inside(path: Path, root: Path) -> bool:
    """Say whether the folder of ``path`` lies in ``root``, wherever links lead. The last step may be a link itself."""
    own = Path(os.path.normpath(path))
    return own.is_relative_to(root) and own.parent.resolve().is_relative_to(root.resolve())


def apply(pruning: Pruning) -> None:
    """Remove the files, first from RECORD and the manifest: a kill in between leaves files that nothing lists.

    Raises ``OSError`` where the installation cannot be written.
    """
    installed = pruning.installed
    site = installed.record.parent.parent
    removed = set(pruning.labels)
    manifest = dict(installed.head)
    manifest["variants"] = [each for each in manifest["variants"] if each["label"] not in removed]
    manifest["pruned"] = sorted({*installed.pruned, *removed})
    text = json.dumps(manifest, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    place = installed.root / MANIFEST
    _replace(place, text)
    _replace(installed.record, _record(installed.record, site, set(pruning.files), place, text.encode()))
    for file in pruning.files:
        file.unlink(missing_ok=True)
    folders = {parent for file in pruning.files for parent in file.parents if parent.is_relative_to(place.parent)}
    for folder in sorted(folders, key=lambda each: len(each.parts), reverse=True):
        if folder != place.parent and folder.is_dir() and not folder.is_symlink() and not any(folder.iterdir()):
            folder.rmdir()


def _record(record: Path, site: Path, gone: set[Path], manifest: Path, text: bytes) -> str:
    """Return RECORD without the files that go, and with the manifest's new hash."""
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
        return list(csv.reader(foreign.text(record, MAX_RECORD).splitlines()))
    except (OSError, csv.Error, ValueError):
        return []


def _replace(path: Path, text: str) -> None:
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    try:
        with draft.open("x", encoding="utf-8") as stream:  # never through a link that lies there
            stream.write(text)
        draft.chmod(path.stat().st_mode & 0o777)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
