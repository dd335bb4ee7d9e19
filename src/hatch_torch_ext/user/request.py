"""What the loader of an installed package asks for when it needs a build at first use."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A loader's request.

    ``root`` is the package's ``_torch_ext``; ``torch`` and ``nvidia`` are folders of that process.
    """

    package: str
    distribution: str
    root: Path
    cache: Path
    view: str
    torch: Path
    nvidia: tuple[Path, ...]

    @classmethod
    def load(cls, data: Mapping[str, Any]) -> Request:
        """Return the request in a loader's JSON."""
        return cls(
            package=data["package"],
            distribution=data["distribution"],
            root=Path(data["root"]),
            cache=Path(data["cache"]),
            view=data["view"],
            torch=Path(data["torch"]).resolve(),
            nvidia=tuple(Path(each) for each in data["nvidia"]),
        )
