"""``torch.__version__`` as a string that compares as a version, as the real one does."""

import re
from typing import Callable, Tuple

Key = Tuple[object, ...]


def _key(text: str) -> Key:
    """Return the sort key of a version: release, then development, pre-release, final and post-release, then local."""
    match = re.match(r"v?(\d+(?:\.\d+)*)[._-]?(a|b|rc)?(\d*)(?:[._-]?(post|dev)(\d*))?(?:\+(.*))?", text)
    if match is None:
        raise ValueError(f"not a version: {text!r}")
    release = [int(part) for part in match.group(1).split(".")]
    while release and release[-1] == 0:
        release.pop()
    stage = {"a": -3, "b": -2, "rc": -1, None: 0}[match.group(2)]
    if stage == 0 and match.group(4) == "dev":
        stage = -4
    post = {"dev": -1, "post": 1, None: 0}[match.group(4)]
    local = match.group(6)
    number = (int(match.group(3) or 0), post, int(match.group(5) or 0))
    return (tuple(release), stage, number, local is not None, local or "")


class TorchVersion(str):
    """A version string; other strings and tuples of numbers are compared with it as versions."""

    __slots__ = ()

    def _compared(self, other: object, holds: Callable[[Key, Key], bool]) -> bool:
        if isinstance(other, (tuple, list)):
            other = ".".join(str(part) for part in other)
        if not isinstance(other, str):
            raise TypeError(f"a version cannot be compared with {other!r}")
        try:
            return holds(_key(self), _key(other))
        except ValueError:
            return holds((str(self),), (str(other),))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, (str, tuple, list)) and self._compared(other, lambda ours, theirs: ours == theirs)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __lt__(self, other: object) -> bool:
        return self._compared(other, lambda ours, theirs: ours < theirs)

    def __le__(self, other: object) -> bool:
        return self._compared(other, lambda ours, theirs: ours <= theirs)

    def __gt__(self, other: object) -> bool:
        return self._compared(other, lambda ours, theirs: ours > theirs)

    def __ge__(self, other: object) -> bool:
        return self._compared(other, lambda ours, theirs: ours >= theirs)

    __hash__ = str.__hash__
