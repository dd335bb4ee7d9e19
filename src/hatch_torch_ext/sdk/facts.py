"""Facts of a torch folder, read from its files; nothing of it is imported or run. The record of a thin SDK has them.

``import torch`` fails in an environment without the NVIDIA wheels, and a thin SDK has nothing to import: the files are
the one source that both kinds have.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from packaging.version import InvalidVersion, Version

from hatch_torch_ext.base import escape, redact
from hatch_torch_ext.facts import labels
from hatch_torch_ext.facts.backend import Backend
from hatch_torch_ext.remote.archive import ArchiveMember
from hatch_torch_ext.remote.settings import public
from hatch_torch_ext.resolve import ResolvedWheel
from hatch_torch_ext.store import MARKER, record

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

FALLBACK_CXX_STANDARD = 17
"""For a build whose files do not state it: the standard that every torch release since 2.1 accepts."""

TORCH_CONFIG = "share/cmake/Torch/TorchConfig.cmake"
ALL_HEADER = "include/torch/csrc/api/include/torch/all.h"
OLD_ABI_SYMBOL = b"_ZN3c105ErrorC2ENS_14SourceLocationESs"
"""c10::Error::Error(SourceLocation, std::string) with the std::string from before C++11."""
NEW_ABI_SYMBOL = b"_ZN3c105ErrorC2ENS_14SourceLocationENSt7__cxx1112basic_string"

_FORMS = {
    "__version__": re.compile(r"[\w.+!-]{1,200}", re.ASCII),
    "cuda": re.compile(r"[0-9]{1,3}(\.[0-9]{1,9}){0,3}"),
    "hip": re.compile(r"[0-9][\w.+-]{0,99}", re.ASCII),
    "git_version": re.compile(r"[\w.+-]{0,99}", re.ASCII),
}
"""What ``version.py`` may contain: it is written into CMake's files, the wheel's names and messages."""
_ABI_FLAG = re.compile(r"_GLIBCXX_USE_CXX11_ABI=([01])")
_STANDARD = re.compile(r"\bCXX_STANDARD\s+(\d\d)\b|\bcxx_std_(\d\d)\b")
_HEADER_STANDARD = re.compile(r"#error C\+\+(\d\d) or later")


class FactError(Exception):
    """A fact that cannot be read from the folder; the message is a clause such as ``version.py is missing``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchFacts:
    """``version``, ``cuda``, ``hip`` and ``git_version`` are those of ``torch/version.py``; the rest as in ``Sdk``."""

    version: str
    cuda: str | None
    hip: str | None
    git_version: str | None
    cxx11_abi: bool
    cxx_standard: int

    @property
    def backend(self) -> Backend:
        """Return what this torch was built for."""
        return Backend.of_torch({"cuda": self.cuda})

    @property
    def foreign(self) -> str:
        """Return, in words, the backend that it was built for if no variant is built for that; else ""."""
        return f"ROCm {self.hip}" if self.hip else ""


def read(prefix: Path, *, libc10: Path | None = None) -> TorchFacts:
    """Return the facts of the torch in the folder ``prefix``. Raises ``FactError``.

    ``libc10`` is the real library if the one below ``prefix`` is a stub.
    """
    try:
        values = labels.version_values(_text(prefix / "version.py"))
    except ValueError as error:
        raise FactError(f"version.py {error}") from error
    version = values.get("__version__")
    if version is None:
        raise FactError("version.py does not set __version__")
    for name, form in _FORMS.items():
        if (value := values.get(name)) is not None and not form.fullmatch(value):
            raise FactError(f"version.py has {escape.name(f'{name} = {value!r}')}, as no torch has")
    try:
        Version(version)
    except InvalidVersion as error:
        raise FactError(f"version.py has __version__ = {version!r}, which is not a version") from error
    config = _text(prefix / TORCH_CONFIG)
    return TorchFacts(
        version=version,
        cuda=values.get("cuda"),
        hip=values.get("hip"),
        git_version=values.get("git_version"),
        cxx11_abi=_cxx11_abi(libc10 or prefix / "lib" / "libc10.so", config),
        cxx_standard=_cxx_standard(prefix, config),
    )


def _cxx11_abi(libc10: Path, config: str) -> bool:
    # The CMake files state the flag up to 2.7; later builds show it only by the names that libc10 exports.
    if (match := _ABI_FLAG.search(config)) is not None:
        return match[1] == "1"
    try:
        names = libc10.read_bytes()
    except OSError as error:
        raise FactError("lib/libc10.so, which shows the C++ ABI, cannot be read") from error
    if NEW_ABI_SYMBOL in names:
        return True
    if OLD_ABI_SYMBOL in names:
        return False
    raise FactError("neither TorchConfig.cmake nor lib/libc10.so shows the C++ ABI")


def _cxx_standard(prefix: Path, config: str) -> int:
    standards = [int(match[1] or match[2]) for match in _STANDARD.finditer(config)]
    if standards:
        return max(standards)
    header = prefix / ALL_HEADER
    if header.is_file() and (match := _HEADER_STANDARD.search(_text(header))) is not None:
        return int(match[1])
    return FALLBACK_CXX_STANDARD


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise FactError(f"{path.name} cannot be read") from error


REAL = "real"
"""The folder of the few real libraries beside ``torch``; link targets are stubs, so that all SDKs link alike."""
LAYOUT = 2
"""The version of the folder's layout; it is part of the key, so no version of this project reads another's layout."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThinRecord:
    """``libraries`` are the members of the wheel below ``torch/lib``; ``requires`` its Requires-Dist lines.

    ``modules`` are the importable names in the wheel except ``torch`` (``torchgen``, ``functorch``).
    """

    facts: TorchFacts
    wheel: ResolvedWheel
    libraries: tuple[ArchiveMember, ...]
    requires: tuple[str, ...]
    modules: tuple[str, ...]

    def marker(self) -> dict[str, object]:
        """Return the record as the marker's content, with a title for listings."""
        name = public(self.wheel.url).rpartition("/")[2]
        stored = replace(self, wheel=replace(self.wheel, url=redact.without_tokens(self.wheel.url)))
        return {"title": f"torch {self.facts.version} ({name})", **asdict(stored)}

    @classmethod
    def parse(cls, fields: Mapping[str, Any]) -> ThinRecord:
        """Return the record in the content of a marker."""
        return cls(
            facts=TorchFacts(**fields["facts"]),
            wheel=ResolvedWheel.parse(fields["wheel"]),
            libraries=tuple(ArchiveMember(**one) for one in fields["libraries"]),
            requires=tuple(map(str, fields["requires"])),
            modules=tuple(map(str, fields["modules"])),
        )

    @classmethod
    def read(cls, folder: Path) -> ThinRecord:
        """Return the record in the folder of a complete SDK."""
        return cls.parse(record((folder / MARKER).read_bytes()))
