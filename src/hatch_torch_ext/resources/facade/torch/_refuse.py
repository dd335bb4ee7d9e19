"""The one answer to every question that a torch without its libraries cannot answer."""

import sys
from importlib.abc import MetaPathFinder
from typing import Callable

REMEDY = (
    "is not in the thin torch SDK, which holds headers and link names alone. "
    'Set `sdk = "environment"` in the hook\'s configuration to build with the full torch'
)


def attributes_of(module: str) -> Callable[[str], object]:
    """Return a module's ``__getattr__`` that refuses every public name with a sentence."""

    def refuse(name: str) -> object:
        if name.startswith("__"):  # the import system and ``inspect`` try these; silence is the expected answer
            raise AttributeError(name)
        raise AttributeError(f"{module}.{name} {REMEDY}")

    return refuse


class Finder(MetaPathFinder):
    """Asked last: a module below torch that nobody has found is refused with the same sentence."""

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:
        """Raise for ``torch.…``, pass on for everything else."""
        del path, target
        if fullname.startswith("torch."):
            raise ModuleNotFoundError(f"{fullname} {REMEDY}", name=fullname)


sys.meta_path.append(Finder())
