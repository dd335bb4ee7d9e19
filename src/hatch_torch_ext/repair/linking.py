"""What a file needs in the wheel: who provides each library of its NEEDED, torch's included; whose a copied one is."""

from __future__ import annotations

import os
import platform
import shutil
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from hatch_torch_ext.base import process
from hatch_torch_ext.base.errors import ProcessError, RepairError
from hatch_torch_ext.facts import content, owners
from hatch_torch_ext.repair import writing
from hatch_torch_ext.repair.contents import Links, VariantBinary
from hatch_torch_ext.repair.search import TORCH_FOLDER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from hatch_torch_ext.elf import ElfFile
    from hatch_torch_ext.facts.variant import ExternalProvider
    from hatch_torch_ext.repair.search import Provided, Search
    from hatch_torch_ext.values import Sdk


@dataclass(slots=True, kw_only=True)
class Linker:
    """Computes the links of one variant's files, and collects what they need of others."""

    entry: str
    no_gpu: str
    """Why the entry has no GPU's toolkit, and what to do, for messages."""
    sdk: Sdk
    provided: Provided
    search: Search
    exclude: tuple[str, ...]
    siblings: Mapping[str, VariantBinary]
    """The variant's own files, by every name."""
    report: Callable[[str], None]
    external: dict[str, ExternalProvider] = field(default_factory=dict)
    excluded: dict[str, Path] = field(default_factory=dict)
    """Those of `exclude` that are on this machine."""
    licences: dict[str, tuple[Path, ...]] = field(default_factory=dict)
    """The licence files of each graft, by its name."""
    _grafts: dict[Path, VariantBinary] = field(default_factory=dict)
    _reported: set[str] = field(default_factory=set)
    _own: frozenset[str] = frozenset()
    """The symbols that the variant's own files define."""

    def __post_init__(self) -> None:
        """Collect the symbols."""
        self._own = frozenset(symbol for binary in self.siblings.values() for symbol in binary.elf.exported)

    def links(self, binary: VariantBinary) -> Links:
        """Return what ``binary`` will need. Raises ``RepairError`` if nothing provides a library."""
        links = Links()
        for name in binary.elf.needed:
            self._need(binary, name, links)
            # The linker writes the path, on this machine, of a library without SONAME.
            if "/" in name and name not in links.remove and name not in links.own:
                links.replace.setdefault(name, _bare(name))
        self._torch(binary, links)
        final = {links.replace.get(name, name) for name in binary.elf.needed if name not in links.remove}
        for file, _ in binary.elf.version_needs:
            # ld.so asserts that the file of a version need is loaded; some linkers omit it from NEEDED.
            if links.replace.get(file, file) not in final and self.provided.provider(file) == "system":
                links.add.add(file)
        return links

    def _need(self, binary: VariantBinary, name: str, links: Links) -> None:
        plain = _bare(name)
        sibling = self.siblings.get(plain)
        match self.provided.provider(plain) if sibling is None else None:
            case "python":
                if binary.kind != "program":  # the program that opens a module has the interpreter's symbols
                    links.remove.add(name)
            case "torch" if owners.is_torch(plain):
                links.remove.add(name)  # computed from the symbols below
            case "gpu":
                self._of_gpu(binary, name, links)
            case "openmp":
                self._openmp(binary, name, links)
            case "torch":
                self._torchs_own_copy(binary, name, links)
            case "desktop":
                self._desktop(binary, name, links)
            case "process":
                self._process(binary, name, links)
            case "system":
                pass
            case _:
                self._other(binary, name, sibling, links)

    def _other(self, binary: VariantBinary, name: str, sibling: VariantBinary | None, links: Links) -> None:
        if sibling is None and self._left_to_users(name):
            if (found := self.search.find(name, binary)) is not None:
                self.excluded[_bare(name)] = found[0]
            return
        target = sibling or self._graft(binary, name)
        if target is binary:
            links.remove.add(name)
        else:
            links.own[name] = target

    def _excluded(self, name: str) -> bool:
        return any(fnmatchcase(_bare(name), glob) for glob in self.exclude)

    def _left_to_users(self, name: str) -> bool:
        """Return whether `exclude` names the library; if so, take note that users have it."""
        if excluded := self._excluded(name):
            self.external[_bare(name)] = "author"
        return excluded

    def _installed(self, name: str, links: Links) -> str | None:
        """Need the library of torch's installation in place of ``name``; return its name, or None without one."""
        if (installed := self.provided.real(name)) is None:
            return None
        links.rename(name, installed.name)
        links.folders.add(installed.folder)
        return installed.name

    def _torch(self, binary: VariantBinary, links: Links) -> None:
        """Set NEEDED of torch's own libraries from the symbols that no file of the variant defines."""
        needed = owners.libraries(symbol for symbol in binary.elf.undefined if symbol not in self._own)
        of_gpu = sorted(needed & owners.OF_GPU)
        if of_gpu and not self.sdk.backend.is_gpu:
            symbol = next(s for s in binary.elf.undefined if set(owners.owner(s)) & set(of_gpu))
            raise RepairError(
                self.entry,
                f"`{binary.place}` uses {symbol} of {of_gpu[0]}, but {self.no_gpu}",
            )
        links.gpu = links.gpu or bool(of_gpu)
        links.add |= needed - set(binary.elf.needed)
        links.remove -= needed
        if needed:
            links.folders.add(TORCH_FOLDER)

    def _of_gpu(self, binary: VariantBinary, name: str, links: Links) -> None:
        if _idle(name, binary.elf):
            links.remove.add(name)
            return
        if not self.sdk.backend.is_gpu:
            if self._left_to_users(name):
                return
            raise RepairError(self.entry, f"`{binary.place}` needs {owners.plain(name)}, but {self.no_gpu}")
        links.gpu = True
        if owners.is_driver(name):
            links.rename(name, owners.plain(name))
            return
        if self._installed(name, links) or self._left_to_users(name):
            return
        if others := self.provided.same_stem(name):
            raise RepairError(
                self.entry,
                f"`{binary.place}` needs {owners.plain(name)}, but torch {self.sdk.version} has "
                f"{', '.join(others)}; compile with the toolkit of {self.sdk.backend.words}",
            )
        links.rename(name, owners.plain(name))

    def _openmp(self, binary: VariantBinary, name: str, links: Links) -> None:
        """Use torch's own OpenMP runtime: with a second one, threads are started twice, or pinned to one core."""
        if self._installed(name, links):
            return
        if owners.stem(name) == "libgomp":
            links.rename(name, owners.plain(name))
        elif not self._left_to_users(name):
            raise RepairError(
                self.entry,
                f"`{binary.place}` needs the OpenMP runtime {owners.plain(name)}, which torch {self.sdk.version} "
                "does not have, and two OpenMP runtimes in one process break each other; compile with GCC (Clang's "
                "`-fopenmp=libgomp` ignores the pragmas)",
            )

    def _desktop(self, binary: VariantBinary, name: str, links: Links) -> None:
        """Leave libraries of the driver, the display and the session to the user's machine."""
        links.rename(name, plain := owners.plain(name))
        if not self._excluded(plain):
            self._say_once(
                plain,
                f"`{binary.place}` needs {plain}, a part of the graphics driver or the desktop: it is left to the "
                f"user's system, and a machine without it cannot open the file",
            )

    def _process(self, binary: VariantBinary, name: str, links: Links) -> None:
        """Leave a runtime to the process, which has it already: a second one breaks both."""
        links.rename(name, plain := owners.plain(name))
        if self._left_to_users(plain):
            return
        self.external[plain] = "process"
        how = (
            f"test it with `LD_PRELOAD=$(gcc -print-file-name={plain}) python …`, and publish a build without it"
            if owners.is_sanitizer(plain)
            else "users must have it where ld.so looks; `exclude` says that they have, and ends this line"
        )
        self._say_once(
            plain,
            f"`{binary.place}` needs {plain}, {owners.process_runtime(plain)}: a process can have only one, so it is "
            f"not copied into the wheel; {how}",
        )

    def _say_once(self, name: str, text: str) -> None:
        if name not in self._reported:
            self._reported.add(name)
            self.report(text)

    def _torchs_own_copy(self, binary: VariantBinary, name: str, links: Links) -> None:
        """Use a library of torch's installation if it is the same version; another version is a graft."""
        if (installed := self._installed(name, links)) is None:
            self._other(binary, name, None, links)
        else:
            self.external[installed] = "torch"

    def _graft(self, binary: VariantBinary, name: str) -> VariantBinary:
        found = self.search.find(name, binary)
        if found is None:
            raise RepairError(
                self.entry,
                f"`{binary.place}` needs {name}, which is in none of the folders that were searched; "
                "set INSTALL_RPATH of that target to its folder, add its prefix to CMAKE_PREFIX_PATH, or name it in "
                "`exclude` if every user has it",
            )
        path, facts = found
        source = path.resolve()
        if source not in self._grafts:
            provenance = of(source)
            graft = _graft(source, facts, provenance.url)
            self._grafts[source] = graft
            self.licences[graft.name] = provenance.licences
            licence = "" if provenance.licences else ", no licence found beside it"
            copied = f"{source} is copied into the wheel as {graft.name}"
            self.report(f"{copied} ({provenance.url}{licence})")
        return self._grafts[source]


def _bare(name: str) -> str:
    return name.rpartition("/")[2]


def _graft(source: Path, facts: ElfFile, origin: str) -> VariantBinary:
    """Return the graft of ``source``; its name depends on the file as it was found, so all variants agree on it."""
    name = writing.name_by_content(facts.soname or source.name, content.sha256(source))
    return VariantBinary(
        source=source, place=name, installed=name, names=frozenset({name}), kind="graft", elf=facts, origin=origin
    )


def _idle(name: str, facts: ElfFile) -> bool:
    """Return whether no symbol of the toolkit's library ``name`` is used: it was only on the linker's command line."""
    prefixes = owners.gpu_prefixes(name)
    if prefixes is None or any(file == name for file, _ in facts.version_needs):
        return False
    return not any(symbol.startswith(prefixes) for symbol in (*facts.undefined, *facts.weak))


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
    return Provenance(url=f"pkg:generic/{quote(owners.stem(real.name))}", licences=licences)


def _beside(real: Path) -> Iterator[Path]:
    """Yield licences of an own prefix, such as ``/opt/foo/lib/libfoo.so`` -> ``/opt/foo/LICENSE``."""
    base = owners.stem(real.name).removeprefix("lib")
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
