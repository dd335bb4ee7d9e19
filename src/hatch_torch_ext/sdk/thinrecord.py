"""The store's record of a thin SDK: the marker of its folder, as a value."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from hatch_torch_ext.base import redact
from hatch_torch_ext.remote.archive import ArchiveMember
from hatch_torch_ext.remote.settings import public
from hatch_torch_ext.resolve.values import ResolvedWheel
from hatch_torch_ext.sdk.facts import TorchFacts
from hatch_torch_ext.store import MARKER, record

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

REAL = "real"
"""The folder of the few real libraries beside ``torch``; link targets are stubs, so that all SDKs link alike."""
LAYOUT = 2
"""The version of the folder's layout; it is part of the key, so no version of this project reads another's layout."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThinRecord:
    """``libraries`` are the members of the wheel below ``torch/lib``; ``requires`` its Requires-Dist lines.

    ``modules`` are the importable names in the wheel besides ``torch`` (``torchgen``, ``functorch``).
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
        """Return the record that a marker holds."""
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
