"""What a ``setup.py`` declares under one release of torch and not under another, in words."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from hatch_torch_ext.base.errors import ConfigurationError
from hatch_torch_ext.init.recording import Note

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from hatch_torch_ext.init.recording import Recording


def notes(
    first: tuple[Recording | None, Recording | None],
    newest: str,
    others: Sequence[str],
    recorded: Callable[[str], tuple[Recording | None, Recording | None, list[Note]]],
) -> Iterator[Note]:
    """Yield notes on what ``setup.py`` declares under another release of the matrix and not under the newest.

    ``first`` was recorded under ``newest``, without and with CUDA; ``recorded`` records under another.
    """
    for release in others:
        try:
            found = recorded(release)
        except ConfigurationError as error:
            yield Note(line=0, text=f"under torch {release}: {error}; leave it out of the matrix, or correct setup.py")
            continue
        last = ""
        for backend, one, other in zip(("", " with CUDA"), first, found[:2], strict=True):
            differences = _differences(one, other)
            if differences and last != "; ".join(differences):
                last = "; ".join(differences)
                text = (
                    f"under torch {release}{backend} setup.py declares {last}. What it declares under {newest} is "
                    f"carried over: write the rest as `if(Torch_VERSION VERSION_LESS {newest})` into CMakeLists.txt"
                )
                yield Note(line=0, text=text)


def _differences(newest: Recording | None, other: Recording | None) -> list[str]:
    """Return in words what ``other`` declares and ``newest`` does not, and the reverse."""
    if newest is None or other is None:
        return [] if newest is other else ["another kind of machine"]
    theirs = {each.name: each for each in other.extensions}
    ours = {each.name: each for each in newest.extensions}
    found = [f"`{name}` too" for name in theirs if name not in ours]
    found += [f"no `{name}`" for name in ours if name not in theirs]
    for name, mine in ours.items():
        compiled = any(source.endswith(".cu") for source in mine.sources)
        for field in dataclasses.fields(mine) if name in theirs else ():
            if field.name != "nvcc" or compiled:
                found += _differences_of(name, field.name, getattr(mine, field.name), getattr(theirs[name], field.name))
    return found


def _differences_of(name: str, field: str, newest: object, other: object) -> list[str]:
    """Return in words in what one field of an extension differs."""
    if newest == other:
        return []
    if not isinstance(newest, tuple) or not isinstance(other, tuple):
        return [f"{field} of `{name}` as {other}"]
    added = [_written(each) for each in other if each not in newest]
    gone = [_written(each) for each in newest if each not in other]
    words = [f"`{' '.join(added)}` among {field} of `{name}`"] if added else []
    return [*words, f"no `{' '.join(gone)}` among {field} of `{name}`"] if gone else words


def _written(value: object) -> str:
    """Return a flag, or a macro with its value."""
    if isinstance(value, tuple):
        return str(value[0]) if value[1] is None else f"{value[0]}={value[1]}"
    return str(value)
