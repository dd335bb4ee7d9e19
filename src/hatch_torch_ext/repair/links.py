"""``Links``: what a file will need in the wheel; `linking` computes them, `placing` and `writing` use them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hatch_torch_ext.repair.contents import VariantBinary


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """The changes of a file's NEEDED, and what it needs afterwards.

    ``own`` are the needed names of binaries of the wheel, which get their final names when they are written;
    ``folders`` are those below site-packages that hold the rest.
    """

    remove: tuple[str, ...]
    replace: tuple[tuple[str, str], ...]
    add: tuple[str, ...]
    own: tuple[tuple[str, VariantBinary], ...]
    folders: tuple[str, ...]
    cuda: bool

    @property
    def targets(self) -> tuple[VariantBinary, ...]:
        """Return the distinct binaries of the wheel that the file needs."""
        return tuple(dict.fromkeys(target for _, target in self.own))
