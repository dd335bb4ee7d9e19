"""``torch.__version__`` as a string that compares as a version, as the real one does."""

import re


def _key(text):
    """Return what orders versions: release, then development, pre-release, final and post-release, then local."""
    match = re.match(r"v?(\d+(?:\.\d+)*)[._-]?(a|b|rc)?(\d*)(?:[._-]?(post|dev)(\d*))?(?:\+(.*))?", str(text))
    if match is None:
        raise ValueError("not a version: {!r}".format(text))
    release = [int(part) for part in match.group(1).split(".")]
    while release and release[-1] == 0:
        release.pop()
    stage = {"a": -3, "b": -2, "rc": -1, None: 0}[match.group(2)]
    if stage == 0 and match.group(4) == "dev":
        stage = -4
    post = {"dev": -1, "post": 1, None: 0}[match.group(4)]
    local = match.group(6)
    return (
        tuple(release),
        stage,
        int(match.group(3) or 0),
        post,
        int(match.group(5) or 0),
        local is not None,
        local or "",
    )


class TorchVersion(str):
    """A version string; other strings and tuples of numbers are compared with it as versions."""

    def _compared(self, other):
        if isinstance(other, (tuple, list)):
            other = ".".join(str(part) for part in other)
        if not isinstance(other, str):
            return None
        try:
            return _key(self), _key(other)
        except ValueError:
            return str(self), other

    def __eq__(self, other):
        pair = self._compared(other)
        return NotImplemented if pair is None else pair[0] == pair[1]

    def __ne__(self, other):
        return not self == other

    def __lt__(self, other):
        pair = self._compared(other)
        return NotImplemented if pair is None else pair[0] < pair[1]

    def __le__(self, other):
        pair = self._compared(other)
        return NotImplemented if pair is None else pair[0] <= pair[1]

    def __gt__(self, other):
        pair = self._compared(other)
        return NotImplemented if pair is None else pair[0] > pair[1]

    def __ge__(self, other):
        pair = self._compared(other)
        return NotImplemented if pair is None else pair[0] >= pair[1]

    __hash__ = str.__hash__
