"""The provenance of a library from outside: the package that it came from, and the licence beside it."""

from __future__ import annotations

import os
import platform
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from hatch_torch_ext.base import process
from hatch_torch_ext.base.errors import ProcessError
from hatch_torch_ext.facts import sonames

if TYPE_CHECKING:
    from collections.abc import Iterator

_PATTERNS = ("LICEN[CS]E*", "COPYING*", "COPYRIGHT*", "NOTICE*")
_LEVELS = 3
_TIMEOUT = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """``url`` is a package URL; ``licences`` are the licence files that were found, sorted."""

    url: str
    licences: tuple[Path, ...]


def of(library: Path) -> Provenance:
    """Return where ``library`` came from. If no package manager knows the file, the URL has only its name."""
    real = library.resolve()
    for ask in (_debian, _rpm):
        if found := ask(real):
            return found
    licences = tuple(sorted(set(_beside(real))))
    return Provenance(url=f"pkg:generic/{quote(sonames.stem(real.name))}", licences=licences)


def _beside(real: Path) -> Iterator[Path]:
    """Yield licences of an own prefix, such as ``/opt/foo/lib/libfoo.so`` -> ``/opt/foo/LICENSE``."""
    base = sonames.stem(real.name).removeprefix("lib")
    home = Path(os.path.expanduser("~"))  # noqa: PTH111 -- `Path.home` is an error for a user without one
    for folder in list(real.parents)[:_LEVELS]:
        if folder in {Path("/"), Path("/usr"), Path("/usr/local"), Path("/opt"), home}:
            return
        found = [path for pattern in _PATTERNS for path in folder.glob(pattern) if path.is_file()]
        for name in (base, f"lib{base}"):
            for share in ("share/licenses", "share/doc"):
                found += [p for p in folder.glob(f"{share}/{name}/*") if p.is_file() and _is_licence(p)]
        if found:
            yield from found
            return


def _is_licence(path: Path) -> bool:
    return any(path.match(pattern) for pattern in _PATTERNS) or path.name == "copyright"


def _debian(real: Path) -> Provenance | None:
    # On a merged /usr, dpkg may know the file by its old place.
    for path in (str(real), str(real).removeprefix("/usr")):
        owner = _ask("dpkg-query", "-S", path)
        if owner is None:
            continue
        name = owner.partition(": ")[0].split(",")[0]
        facts = _ask("dpkg-query", "-W", "-f", "${Package} ${Version} ${Architecture}", name)
        if facts is None:
            continue
        package, version, arch = facts.split()
        copyright_file = Path("/usr/share/doc") / package / "copyright"
        return Provenance(
            url=f"pkg:deb/{_distribution('debian')}/{quote(package)}@{quote(version)}?arch={quote(arch)}",
            licences=(copyright_file,) if copyright_file.is_file() else (),
        )
    return None


def _rpm(real: Path) -> Provenance | None:
    facts = _ask("rpm", "-qf", "--qf", "%{NAME} %{VERSION}-%{RELEASE} %{ARCH}\n", str(real))
    if facts is None:
        return None
    package, version, arch = facts.splitlines()[0].split()
    listed = _ask("rpm", "-q", "--licensefiles", package) or ""
    licences = tuple(sorted(path for path in map(Path, listed.splitlines()) if path.is_file()))
    url = f"pkg:rpm/{_distribution('redhat')}/{quote(package)}@{quote(version)}?arch={quote(arch)}"
    return Provenance(url=url, licences=licences)


def _ask(program: str, *arguments: str) -> str | None:
    """Return the package manager's answer, or None if there is no such manager or it does not know the file."""
    found = shutil.which(program)
    if found is None:
        return None
    try:
        answer = process.run([found, *arguments], timeout=_TIMEOUT).stdout.strip()
    except ProcessError:
        return None
    return answer or None


def _distribution(otherwise: str) -> str:
    try:
        return platform.freedesktop_os_release()["ID"]
    except (OSError, KeyError):
        return otherwise
