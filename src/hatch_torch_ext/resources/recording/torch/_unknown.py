"""Names of torch that the recording torch lacks: each is kept for a note, since ``setup.py`` may depend on the answer.

Where they are accepted, each is an object that takes any use: ``setup.py`` may import a module of its package, which uses
names of torch that do not affect what it declares. Otherwise there is no such name, which ``setup.py`` may catch.
"""

import abc
import importlib.machinery
import types

USED = []
"""The names, as ``torch.mps.current_allocated_memory``."""


class Kind(abc.ABCMeta):
    """What nothing is: false, empty, zero; called, indexed or read for an attribute, it is nothing again.

    It is a class, so that classes of torch can be subclassed, beside abstract ones too.
    """

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return cls

    def __call__(cls, *args, **kwargs):
        """Return nothing; an instance where ``setup.py`` made a class of it."""
        return cls if cls is Nothing else type.__call__(cls)

    def __bool__(cls):
        return False

    def __iter__(cls):
        return iter(())

    def __len__(cls):
        return 0

    def __int__(cls):
        return 0

    __index__ = __hash__ = __int__

    def __float__(cls):
        return 0.0

    def __repr__(cls):
        return "nothing"

    def __same(cls, *rest):
        return cls

    def __never(cls, other):
        return False

    __getitem__ = __enter__ = __add__ = __radd__ = __sub__ = __mul__ = __truediv__ = __floordiv__ = __or__ = __same
    __contains__ = __eq__ = __lt__ = __le__ = __gt__ = __ge__ = __never

    def __exit__(cls, *rest):
        return None


class Nothing(metaclass=Kind):
    """The answer."""

    def __init__(self, *args, **kwargs):
        pass


def keep(name):
    """Keep a name that ``setup.py`` uses."""
    if name not in USED:
        USED.append(name)


def attribute_of(module, accepted):
    """Return the ``__getattr__`` of a module of torch."""

    def answer(name):
        if name.startswith("__"):
            raise AttributeError(name)
        keep("{}.{}".format(module, name))
        if not accepted:
            raise AttributeError("module {!r} has no attribute {!r}".format(module, name))
        return Nothing

    return answer


class Finder:
    """Finds an empty module for every module that the recording torch lacks, if they are accepted."""

    def __init__(self, accepted):
        self.accepted = accepted

    def find_spec(self, name, path=None, target=None):
        """Answer Python's import."""
        if name.split(".")[0] != "torch":
            return None
        if not self.accepted:
            keep(name)
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        """Make the module."""
        module = types.ModuleType(spec.name)
        module.__getattr__ = attribute_of(spec.name, accepted=True)
        return module

    def exec_module(self, module):
        """Do nothing: the module is empty."""
