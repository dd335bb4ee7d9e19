"""The entry for an installed torch that no entry of the matrix serves: it has what all entries have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hatch_torch_ext.facts.backend import Backend
from hatch_torch_ext.values import Entry

if TYPE_CHECKING:
    from collections.abc import Sequence

CURRENT = "current"
"""The entry for the installed torch, and the word of `only` that builds only it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Common:
    """What all entries of a matrix have in common, and what an entry for another torch gets too.

    Variables except ``torch``, ``python`` and ``machine`` (``cuda`` only if it is ``cpu``), environment variables,
    whether the stable ABI is used, and whether any entry asks for a GPU's backend.
    """

    variables: tuple[tuple[str, str], ...]
    env_vars: tuple[tuple[str, str], ...]
    stable_abi: bool
    has_gpu: bool = False


def common(entries: Sequence[Entry]) -> Common:
    """Return what ``entries`` have in common."""

    def alike(pairs: Sequence[tuple[tuple[str, str], ...]]) -> tuple[tuple[str, str], ...]:
        first = pairs[0] if pairs else ()
        return tuple(pair for pair in first if all(pair in each for each in pairs))

    variables = [
        (name, value)
        for name, value in alike([entry.variables for entry in entries])
        if name not in {"torch", "python", "cuda", "machine"} or (name, value) == ("cuda", "cpu")
    ]
    return Common(
        variables=tuple(variables),
        env_vars=alike([entry.env_vars for entry in entries]),
        stable_abi=bool(entries) and all(entry.stable_abi for entry in entries),
        has_gpu=any(entry.gpu for entry in entries),
    )


def current(shared: Common, *, torch: str, cuda: str | None = None) -> Entry:
    """Return the entry for an installed ``torch`` (``2.13.0+cu130``), whichever releases the matrix serves.

    ``cuda`` is the CUDA version of that torch: where the matrix has entries for CUDA, the variable ``cuda`` names it,
    so that the project compiles the same for this torch as for those of the matrix.
    """
    line = ".".join(torch.split(".")[:2])
    backend = Backend.of_cuda(cuda) if cuda and shared.has_gpu else None
    if ("cuda", "cpu") in shared.variables:
        backend = Backend("cpu")
    declared = (("cuda", backend.tag),) if backend is not None and backend.is_gpu else ()
    return Entry(
        name=CURRENT,
        variables=(("torch", line), *declared, *shared.variables),
        dependencies=(),
        torch_requirement="torch",
        python=None,
        stable_abi=shared.stable_abi,
        torch=line,
        backend=backend,
        env_vars=shared.env_vars,
    )
