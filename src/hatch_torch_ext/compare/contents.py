"""What can be imported from two distributions, and what else is installed with them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hatch_torch_ext.compare.distribution import Difference, Topic, Verdict, module_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hatch_torch_ext.compare.distribution import Compiled, Distribution

_CONTENT = frozenset({"PyModule_Create2", "PyModuleDef_Init", "PyModule_FromDefAndSpec2"})
"""All that a module without content asks of Python."""


def differences(old: Distribution, new: Distribution) -> Iterator[Difference]:
    """Yield what differs in modules, files and scripts."""
    yield from _modules(old, new)
    yield from _files(old, new)


def _modules(old: Distribution, new: Distribution) -> Iterator[Difference]:
    before, after = old.modules, new.modules
    compiled = {each.name: each for each in old.compiled if each.module}
    for name in sorted(before - after):
        if name in compiled:
            yield _gone(name, compiled[name], new)
        else:
            yield Difference("lost", "module", name, f"`import {name}` fails")
    for name in sorted(after - before):
        yield Difference("new", "module", name, f"`import {name}` works")
    for name in sorted(before & after):
        lost, come = _pythons(old, name) - _pythons(new, name), _pythons(new, name) - _pythons(old, name)
        if lost and not _any(new, name):
            yield Difference("lost", "module", name, f"`import {name}` fails on {', '.join(sorted(lost))}")
        if come and not lost and not _any(old, name):
            yield Difference("new", "module", name, f"`import {name}` works on {', '.join(sorted(come))} too")


def _gone(name: str, module: Compiled, new: Distribution) -> Difference:
    """Return what became of a compiled module that cannot be imported any more."""
    stem = name.rpartition(".")[2].strip("_")
    library = next(
        (each for each in new.compiled if not each.module and each.name.rpartition("/")[2].strip("_") == stem), None
    )
    needed = {symbol for symbol in module.elf.undefined if symbol.startswith(("Py", "_Py"))}
    registers = bool(module.namespaces or module.texts.schemas)
    verdict: Verdict = "lost"
    why = "the compiled module is gone"
    if registers and needed <= _CONTENT:
        verdict, why = "changed", "it was a module without content, which only registered operators"
    elif library is not None:
        why = f"{library.place.rpartition('/')[2]}, which `_variants.load()` opens, is a library and not a module"
    else:
        moved = [each for each in sorted(new.modules) if each.rpartition(".")[2] == name.rpartition(".")[2]]
        why = f"it is `{moved[0]}` now" if moved else why
    return Difference(verdict, "module", name, f"`import {name}` fails: {why}", old=module.place)


def _pythons(side: Distribution, name: str) -> set[str]:
    """Return for which Pythons a compiled module is, where its files say so."""
    return {each.python for each in side.compiled if each.module and each.name == name and each.python is not None}


def _any(side: Distribution, name: str) -> bool:
    """Return whether a module is for every Python that the distribution is for."""
    found = [each for each in side.compiled if each.module and each.name == name]
    return not found or any(each.python is None or each.python.startswith("abi3") for each in found)


def _files(old: Distribution, new: Distribution) -> Iterator[Difference]:
    linked = [{each.installed for each in side.compiled} for side in (old, new)]  # reported with the compiled files
    for path in sorted(old.files.keys() | new.files.keys()):
        before, after = old.files.get(path), new.files.get(path)
        topic: Topic = "script" if path.startswith("<scripts>/") else "file"
        is_module = old.kind != "sdist" and module_of(path) is not None
        if before is not None and after is not None:
            if before.sha256 != after.sha256:
                message = f"{path}: {before.size} bytes, now {after.size}"
                if before.size == after.size:
                    message = f"{path}: other content"
                yield Difference("changed", topic, path, message)
        elif path in linked[0] | linked[1]:
            message = f"{path} was compiled, and is not" if path in linked[0] else f"{path} is compiled, and was not"
            yield Difference("changed", topic, path, message)
        elif not is_module:  # a module is listed as such
            verdict: Verdict = "lost" if before is not None else "new"
            message = f"{path} is gone" if before is not None else path
            yield Difference(verdict, topic, path, message)
