"""Reads a wheel, an sdist or an installed distribution into a ``Distribution``; nothing of it is run."""

from __future__ import annotations

import contextlib
import csv
import email.parser
import email.policy
import hashlib
import os
import sys
import tarfile
import tempfile
import zlib
from configparser import ConfigParser
from configparser import Error as ConfigParserError
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from hatch_torch_ext import elf, wheel
from hatch_torch_ext.base import escape, untrusted
from hatch_torch_ext.base.errors import ElfError, WheelError
from hatch_torch_ext.compare.distribution import Compiled, Distribution, File, Kind, name_of, python_of, read_text
from hatch_torch_ext.facts import content, registered
from hatch_torch_ext.facts.manifest import MAX_BYTES, is_manifest, parse
from hatch_torch_ext.facts.variant import FOLDER
from hatch_torch_ext.wheel import MAX_TEXT, members

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from hatch_torch_ext.facts.manifest import Listed, Manifest
    from hatch_torch_ext.facts.variant import VariantFile

SDISTS = (".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar")
KINDS = "Give a wheel (.whl), an sdist (.tar.gz), the name of an installed distribution, or its .dist-info folder"
DAMAGE = frozenset({"unreadable-file", "record-hash", "record-missing-file"})
"""Faults of an archive that make a file missing or another one than was packed."""
LICENSES = ("LICENSE", "LICENCE", "COPYING", "NOTICE", "AUTHORS")
_GENERATED = ("PKG-INFO",)
"""Files of an sdist that the build backend writes, below its folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Member:
    """A file at ``place`` in the archive or below the folder of packages; ``binary`` is there if it is an ELF file."""

    place: str
    size: int
    sha256: str
    binary: Path | None = None


@contextlib.contextmanager
def opened(what: str | Path) -> Iterator[Distribution]:
    """Read what the user named: a path of a file or folder, or the name of an installed distribution.

    Raises ``WheelError`` with what is wrong with it.
    """
    path = Path(os.path.abspath(what))  # noqa: PTH100 -- a link keeps its name, which says the version
    if path.name.endswith(".whl") and not path.is_dir():
        with tempfile.TemporaryDirectory(prefix="torch-ext-compare-") as folder:
            yield _wheel(path, Path(folder))
    elif path.name.endswith(SDISTS) and not path.is_dir():
        yield _sdist(path)
    elif path.is_dir():
        yield _installed(_dist_info(path))
    elif untrusted.is_file(path):
        raise WheelError(f"{path}: is neither a wheel nor an sdist, by its name. {KINDS}")
    elif os.sep in str(what):
        raise WheelError(f"{path}: no such file. {KINDS}")
    else:
        yield _installed(_named(str(what)))


def _wheel(path: Path, folder: Path) -> Distribution:
    read = wheel.read(
        path,
        folder=folder,
        texts=lambda name: name.endswith((".py", ".dist-info/entry_points.txt", "/direct_url.json")),
    )
    damaged = [problem for problem in read.problems if problem.code in DAMAGE]
    if damaged:
        raise WheelError(f"{path}: {damaged[0].file}: {damaged[0].message}. Build or fetch the wheel again")
    found = [
        _Member(
            place=member.path,
            size=member.size,
            sha256=member.sha256,
            binary=folder / member.path if member.elf else None,
        )
        for member in read.members
    ]
    made = _packages(path, "wheel", read.dist_info, found, lambda place, limit=MAX_TEXT: read.text(place, limit=limit))
    return replace(made, tags=read.tags, size=read.size)


def _installed(dist_info: Path) -> Distribution:
    root = dist_info.parent
    record = read_text(dist_info / "RECORD", wheel.MAX_RECORD)
    if record is None:
        raise WheelError(
            f"{dist_info}: has no RECORD, which lists the files of an installed distribution. Install it by pip or uv, "
            "or compare its wheel"
        )
    if _is_editable(dist_info):
        raise WheelError(f"{dist_info}: is an editable installation, whose files are in its project. Compare its wheel")
    found, missing = [], []
    for row in csv.reader(record.splitlines()):
        place = row[0] if row else ""
        if not place or place.endswith(".pyc"):
            continue
        file = root / place
        if not untrusted.is_file(file):
            missing.append(place)
            continue
        found.append(
            _Member(
                place=place,
                size=file.stat().st_size,
                sha256=content.sha256(file),
                binary=file if elf.is_elf(file) else None,
            )
        )
    if missing:
        raise WheelError(
            f"{dist_info}: RECORD lists {escape.name(missing[0])}{escape.more(len(missing))}, but it is not there. "
            "Install the distribution again"
        )
    return _packages(
        dist_info, "installed", dist_info.name, found, lambda place, limit=MAX_TEXT: read_text(root / place, limit)
    )


def _is_editable(dist_info: Path) -> bool:
    """Return whether an installation is editable, by its direct_url.json, which each installer writes in its way."""
    try:
        found = untrusted.json(read_text(dist_info / "direct_url.json", 1 << 16) or "{}")
    except ValueError:
        return False
    about = found.get("dir_info") if isinstance(found, dict) else None
    return isinstance(about, dict) and about.get("editable") is True


def _packages(
    path: Path, kind: Kind, dist_info: str, found: Sequence[_Member], text: Callable[..., str | None]
) -> Distribution:
    """Return the distribution of a wheel's members, or of installed files, with the tags that its WHEEL states."""
    manifests = _manifests(path, found, text)
    entry_points = _entry_points(text(f"{dist_info}/entry_points.txt", limit=1 << 20))
    generated = {f"<scripts>/{name}" for group, name in entry_points if group in {"console_scripts", "gui_scripts"}}
    files = _files(found, dist_info, manifests, generated)
    header = _fields(text(f"{dist_info}/WHEEL", limit=1 << 20) or "")
    metadata = _fields(text(f"{dist_info}/METADATA", limit=MAX_TEXT) or "")
    if "name" not in metadata or "version" not in metadata:
        raise WheelError(f"{path}: its METADATA lacks Name or Version. Build or fetch the distribution again")
    return Distribution(
        place=str(path),
        kind=kind,
        name=metadata["name"][0],
        version=metadata["version"][0],
        generator=next(iter(header.get("generator", ())), None),
        tags=tuple(sorted(header.get("tag", ()))),
        size=None,
        metadata=metadata,
        entry_points=entry_points,
        licenses=files.licenses,
        files=files.of_package,
        everything=tuple(files.everything),
        compiled=tuple(files.compiled),
        labels=tuple(sorted(item.variant.label for each in manifests for item in each.variants)),
        text=lambda where: text(files.places[where]) if where in files.places else None,
    )


@dataclass(frozen=True, slots=True)
class _Files:
    """Files by what they are: ``of_package`` are neither compiled nor ours; ``places`` says where those are now.

    ``licenses`` are file -> sha256.
    """

    of_package: dict[str, File] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)
    everything: list[File] = field(default_factory=list)
    compiled: list[Compiled] = field(default_factory=list)
    licenses: dict[str, str] = field(default_factory=dict)


def _files(
    found: Sequence[_Member], dist_info: str, manifests: Sequence[Manifest], generated: Collection[str]
) -> _Files:
    """Sort the members; ``generated`` are the scripts that an installer writes for entry points."""
    listed = {place: (item, file) for each in manifests for item in each.variants for place, file in item.files.items()}
    roots = tuple(each.root for each in manifests)
    loaders = {root.removesuffix(f"{FOLDER}/") + "_variants.py" for root in roots}
    files = _Files()
    for member in found:
        where = _where(member.place, dist_info)
        files.everything.append(File(path=where, size=member.size, sha256=member.sha256))
        if member.place.startswith(f"{dist_info}/"):
            if name := _license(member.place.removeprefix(f"{dist_info}/")):
                files.licenses[name] = member.sha256
            continue
        item, described = listed.get(member.place, (None, None))
        if (made := _compiled(member, where, item, described)) is not None:
            files.compiled.append(made)
            continue
        if described is not None and item is not None and described.installed:
            where = f"{item.package.replace('.', '/')}/{described.installed}"
        elif where in loaders or where.startswith(roots) or where in generated:
            continue
        files.of_package.setdefault(where, File(path=where, size=member.size, sha256=member.sha256))
        files.places.setdefault(where, member.place)
    return files


def _manifests(path: Path, found: Sequence[_Member], text: Callable[..., str | None]) -> list[Manifest]:
    read = []
    for member in found:
        if not is_manifest(member.place):
            continue
        try:
            manifest = parse(text(member.place, limit=MAX_BYTES) or "", member.place, file=f"{path}: {member.place}")
        except WheelError as error:
            raise WheelError(f"{path}: {member.place} {error}. Build or fetch the wheel again") from error
        if manifest.partial is not None:
            lacking = ", ".join(manifest.partial.lacking[:3])
            raise WheelError(
                f"{path}: is a part of a wheel; it lacks {lacking or 'the other parts'}. Merge the parts first: "
                "hatch-torch-ext merge PART… -o DIR"
            )
        read.append(manifest)
    return read


def _compiled(member: _Member, where: str, item: Listed | None, described: VariantFile | None) -> Compiled | None:
    """Return the facts of a compiled file, or None if it is not one that is linked."""
    if member.binary is None:
        return None
    try:
        facts = elf.read(member.binary)
    except ElfError:
        return None
    if facts.type == "other":
        return None
    stem = where.rpartition("/")[2].partition(".")[0]
    is_module = f"PyInit_{stem}" in facts.exported
    found = Compiled(
        name=name_of(where, is_module=is_module),
        place=where,
        binary=member.binary,
        module=is_module,
        python=python_of(where) if is_module else None,
        graft=".libs/" in where,
        elf=facts,
        texts=registered.texts(member.binary),
        namespaces=frozenset(),
        operators=frozenset(),
        label=None,
        size=member.size,
    )
    if item is not None and described is not None:
        return _as_described(found, item, described)
    words = registered.read(member.binary)
    return replace(found, namespaces=words.whole | words.fragments)


def _as_described(found: Compiled, item: Listed, described: VariantFile) -> Compiled:
    """Return the facts of a file of a variant: its manifest names it, and tells what it registers."""
    is_module = described.kind == "module" and described.module is not None
    file = described.installed or described.path.rpartition("/")[2]
    place = f"{item.package.replace('.', '/')}/{file}"
    return replace(
        found,
        name=f"{item.package}.{described.module}" if is_module else name_of(place, is_module=False),
        module=is_module,
        python=item.variant.python if is_module else None,
        graft=described.kind == "graft",
        namespaces=frozenset(described.namespaces),
        operators=frozenset(described.operators),
        label=item.variant.label,
    )


def _where(place: str, dist_info: str) -> str:
    """Return where a member of a wheel is installed, as ``File.path`` says."""
    data = f"{dist_info.removesuffix('.dist-info')}.data/"
    if place.startswith(data):
        scheme, _, rest = place.removeprefix(data).partition("/")
        return rest if scheme in {"purelib", "platlib"} else f"<{scheme}>/{rest}"
    if place.startswith("../"):
        parts = [part for part in place.split("/") if part != ".."]
        return f"<scripts>/{'/'.join(parts[1:])}" if parts[0] == "bin" else f"<data>/{'/'.join(parts)}"
    return place


def _license(place: str) -> str | None:
    """Return the name of a license file, from its path in .dist-info, or None."""
    for folder in ("licenses/", "license_files/"):
        if place.startswith(folder):
            return place.removeprefix(folder)
    return place if "/" not in place and place.upper().startswith(LICENSES) else None


def _fields(text: str) -> dict[str, tuple[str, ...]]:
    """Return the fields of METADATA, PKG-INFO or WHEEL, in lower case, with the text beneath as ``description``."""
    message = email.parser.Parser(policy=email.policy.compat32).parsestr(text)
    found: dict[str, list[str]] = {}
    for name, value in message.items():
        found.setdefault(name.lower(), []).append(str(value).strip())
    body = message.get_payload()
    if isinstance(body, str) and body.strip():
        found.setdefault("description", [body.strip()])
    return {name: tuple(values) for name, values in found.items()}


def _entry_points(text: str | None) -> dict[tuple[str, str], str]:
    """Return (group, name) -> value of entry_points.txt."""
    parser = ConfigParser(delimiters=("=",), strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    try:
        parser.read_string(text or "")
    except ConfigParserError:
        return {}
    return {(group, name): value.strip() for group in parser.sections() for name, value in parser.items(group)}


def _dist_info(folder: Path) -> Path:
    """Return the .dist-info folder that ``folder`` is, or holds."""
    if folder.name.endswith(".dist-info"):
        return folder
    found = sorted(folder.glob("*.dist-info"))
    if len(found) == 1:
        return found[0]
    if not found:
        raise WheelError(f"{folder}: is a folder without a .dist-info folder. {KINDS}")
    names = ", ".join(escape.name(path.name) for path in found[:3])
    raise WheelError(
        f"{folder}: holds {len(found)} distributions ({names}{', …' if len(found) > 3 else ''}). "  # noqa: PLR2004 -- a few
        "Give one of the .dist-info folders"
    )


def _named(name: str) -> Path:
    """Return the .dist-info folder of an installed distribution of this Python."""
    canonical = canonicalize_name(name)
    for entry in sys.path:
        for path in sorted(Path(entry or ".").glob("*.dist-info")):
            if canonicalize_name(path.name.partition("-")[0]) == canonical:
                return path
    raise WheelError(
        f"{escape.name(name)}: is neither a file nor a distribution that is installed for {sys.executable}. {KINDS}"
    )


def _sdist(path: Path) -> Distribution:
    if not untrusted.is_file(path):
        raise WheelError(f"{path}: no such file. {KINDS}")
    try:
        found, texts = _unpacked(path)
    except (tarfile.TarError, zlib.error, EOFError, ValueError, OSError, MemoryError) as error:
        raise WheelError(
            f"{path}: is not a tar archive, or is damaged ({escape.name(error)}). Build or fetch the sdist again"
        ) from error
    metadata = _fields(texts.get("PKG-INFO", ""))
    if "name" not in metadata or "version" not in metadata:
        raise WheelError(
            f"{path}: has no PKG-INFO with Name and Version in its one folder, so is not an sdist. {KINDS}"
        )
    eggs = [text for place, text in sorted(texts.items()) if place.endswith(".egg-info/entry_points.txt")]
    files = {
        file.path: file
        for file in found
        if file.path not in _GENERATED
        and ".egg-info/" not in f"{file.path}/"
        and not (file.path == "setup.cfg" and "".join(texts.get("setup.cfg", "").split()) == _SETUP_CFG)
    }
    return Distribution(
        place=str(path),
        kind="sdist",
        name=metadata["name"][0],
        version=metadata["version"][0],
        generator=None,
        tags=(),
        size=path.stat().st_size,
        metadata=metadata,
        entry_points=_entry_points(eggs[0]) if eggs else _scripts(texts.get("pyproject.toml", "")),
        licenses={name: file.sha256 for name, file in files.items() if _license(name)},
        files=files,
        everything=tuple(found),
        compiled=(),
        labels=(),
        text=texts.get,
    )


_SETUP_CFG = "[egg_info]tag_build=tag_date=0"
"""What setuptools writes as setup.cfg into every sdist."""


def _unpacked(path: Path) -> tuple[list[File], dict[str, str]]:
    """Return the files of an sdist below its one folder, and the texts that are read."""
    found: dict[str, File] = {}
    texts: dict[str, str] = {}
    tops: set[str] = set()
    room = members.MAX_RATIO * path.stat().st_size + members.RATIO_FREE_BYTES
    with tarfile.open(path) as archive:
        for member in archive:
            top, _, place = member.name.removeprefix("./").partition("/")
            tops.add(top)
            room -= member.size
            if room < 0 or len(found) > members.MAX_MEMBERS:
                raise ValueError("it unpacks to far more than an sdist has")
            stream = archive.extractfile(member) if member.isreg() else None
            if stream is None:
                if member.issym() or member.islnk():
                    linked = hashlib.sha256(member.linkname.encode(errors="replace")).hexdigest()
                    found[place] = File(path=place, size=0, sha256=linked)
                continue
            digest = hashlib.sha256()
            kept = []
            is_text = place in {"PKG-INFO", "pyproject.toml", "setup.cfg"} or place.endswith("/entry_points.txt")
            while chunk := stream.read(wheel.CHUNK):
                digest.update(chunk)
                if is_text and member.size <= MAX_TEXT:
                    kept.append(chunk)
            if kept:
                texts[place] = b"".join(kept).decode("utf-8", "replace")
            found[place] = File(path=place, size=member.size, sha256=digest.hexdigest())
    if len(tops) != 1:
        raise ValueError(f"its top has {len(tops)} folders: in an sdist everything is in one")
    return list(found.values()), texts


def _scripts(pyproject: str) -> Mapping[tuple[str, str], str]:
    """Return the entry points that pyproject.toml declares, as an sdist of hatchling has no other place for them."""
    try:
        project = untrusted.toml(pyproject).get("project", {})
        groups = {"console_scripts": project.get("scripts", {}), "gui_scripts": project.get("gui-scripts", {})}
        groups |= project.get("entry-points", {})
        return {(group, name): str(value) for group, names in groups.items() for name, value in names.items()}
    except (ValueError, AttributeError, RecursionError):  # TOMLDecodeError is a ValueError; a table that is none
        return {}
