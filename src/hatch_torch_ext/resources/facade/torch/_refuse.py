"""The one answer to every question that torch cannot answer without its libraries."""

import sys
from importlib.abc import MetaPathFinder
from typing import Callable

REMEDY = (
    "is not in the thin torch SDK, which has only headers and link stubs. "
    'Set `sdk = "environment"` in the hook\'s configuration to build with the full torch'
)


def attributes_of(module: str) -> Callable[[str], object]:
    """Return a module's ``__getattr__`` that refuses every public name with a message."""

    def refuse(name: str) -> object:
        if name.startswith("__"):  # the import system and ``inspect`` try these, and expect an AttributeError
            raise AttributeError(name)
        raise AttributeError(f"{module}.{name} {REMEDY}")

    return refuse


class Finder(MetaPathFinder):
    """The last finder: a module below torch that no other has found is refused with the same message."""

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:
        """Raise for ``torch.…``; return None for everything else."""
        del path, target
        if fullname.startswith("torch."):
            raise ModuleNotFoundError(f"{fullname} {REMEDY}", name=fullname)


sys.meta_path.append(Finder())
