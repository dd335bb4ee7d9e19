"""A smaller installation: the variants of an installed package that its environment cannot load are removed.

RECORD and the manifest stay true, so that the package is uninstalled whole. The loader keeps the data of what was
removed: its messages still name it, and say that it was pruned.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hatch_torch_ext.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

MANIFEST = "_torch_ext/manifest.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """A package of ours in a folder of packages: ``root`` is its own folder, ``record`` the RECORD that lists it."""

    distribution: str
    version: str
    root: Path
    record: Path
    manifest: Mapping[str, Any]

    @property
    def labels(self) -> tuple[str, ...]:
        """Return the labels that the manifest lists."""
        return tuple(str(each["label"]) for each in self.manifest["variants"])


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
                try:
                    manifest = json.loads(place.read_text(encoding="utf-8"))
                    variants = manifest["variants"]
                    name, _, version = record.parent.name.removesuffix(".dist-info").partition("-")
                    if not isinstance(variants, list) or not all("label" in each for each in variants):
                        continue
                except (OSError, ValueError, KeyError, TypeError):
                    continue
                found.append(
                    Installed(
                        distribution=str(manifest.get("distribution", name)),
                        version=version,
                        root=place.parent.parent,
                        record=record,
                        manifest=manifest,
                    )
                )
    return tuple(found)


def prepare(installed: Installed, keep: Collection[str]) -> Pruning:
    """Return what is removed when only the variants ``keep`` stay. Raises ``ConfigurationError`` when none would."""
    if not set(keep) & set(installed.labels):
        raise ConfigurationError(
            [
                f"{installed.distribution} has no variant that this environment can load "
                f"({', '.join(installed.labels)}): nothing is removed. Install the torch that it is for first."
            ]
        )
    kept: set[str] = set()
    dropped: set[str] = set()
    for variant in installed.manifest["variants"]:
        places = variant.get("places", {})
        own = {str(places.get(file["path"], f"_torch_ext/{file['path']}")) for file in variant["files"]}
        (kept if variant["label"] in keep else dropped).update(own)
    files = tuple(sorted(installed.root / place for place in dropped - kept if (installed.root / place).is_file()))
    return Pruning(
        installed=installed,
        labels=tuple(label for label in installed.labels if label not in keep),
        files=files,
        size=sum(file.stat().st_size for file in files),
    )


def apply(pruning: Pruning) -> None:
    """Remove the files, first from RECORD and the manifest: a kill in between leaves files that nothing lists.

    Raises ``OSError`` where the installation cannot be written.
    """
    installed = pruning.installed
    site = installed.record.parent.parent
    removed = set(pruning.labels)
    manifest = dict(installed.manifest)
    manifest["variants"] = [each for each in manifest["variants"] if each["label"] not in removed]
    manifest["pruned"] = sorted({*manifest.get("pruned", []), *removed})
    text = json.dumps(manifest, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    place = installed.root / MANIFEST
    _replace(place, text)
    _replace(installed.record, _record(installed.record, site, set(pruning.files), place, text.encode()))
    for file in pruning.files:
        file.unlink(missing_ok=True)
    folders = {parent for file in pruning.files for parent in file.parents if parent.is_relative_to(place.parent)}
    for folder in sorted(folders, key=lambda each: len(each.parts), reverse=True):
        if folder != place.parent and folder.is_dir() and not any(folder.iterdir()):
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
        return list(csv.reader(record.read_text(encoding="utf-8").splitlines()))
    except (OSError, csv.Error, UnicodeDecodeError):
        return []


def _replace(path: Path, text: str) -> None:
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_text(text, encoding="utf-8")
        draft.chmod(path.stat().st_mode & 0o777)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
