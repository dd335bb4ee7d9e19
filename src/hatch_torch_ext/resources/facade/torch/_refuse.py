"""The one answer to every question that a torch without its libraries cannot answer."""

import sys
from importlib.abc import MetaPathFinder

REMEDY = (
    "is not in the thin torch SDK, which holds headers and link names alone. "
    'Set `sdk = "environment"` in the hook\'s configuration to build with the full torch'
)


def attributes_of(module):
    """Return a module's ``__getattr__`` that refuses every public name with a sentence."""

    def refuse(name):
        if name.startswith("__"):  # the import system and ``inspect`` try these; silence is the expected answer
            raise AttributeError(name)
        raise AttributeError("{}.{} {}".format(module, name, REMEDY))

    return refuse


class Finder(MetaPathFinder):
    """Asked last: a module below torch that nobody has found is refused with the same sentence."""

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        """Raise for ``torch.…``, pass on for everything else."""
        if name.startswith("torch."):
            raise ModuleNotFoundError("{} {}".format(name, REMEDY), name=name)


if Finder not in sys.meta_path:
    sys.meta_path.append(Finder)
