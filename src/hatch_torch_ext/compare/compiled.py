"""The compiled files of two distributions: variants, operators with their schemas, classes, libraries, symbols."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hatch_torch_ext.base import escape
from hatch_torch_ext.compare import schemas
from hatch_torch_ext.compare.distribution import Difference, Verdict, of_one_side
from hatch_torch_ext.facts import owners, registered

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hatch_torch_ext.compare.distribution import Compiled, Distribution, Topic

UNREAD = "its schema is in the new files in parts, as some compilers keep texts, and was not compared"
SHOWN = 5
"""Number of symbols that a message names."""
_LINKERS = re.compile(r"_?_?(?:bss_start|edata|end|init|fini)")
_MANGLED = re.compile(rf"_Z|\.|{_LINKERS.pattern}$|PyInit_|_GLOBAL_")


def differences(old: Distribution, new: Distribution) -> Iterator[Difference]:
    """Yield what differs in compiled files."""
    yield from _variants(old, new)
    yield from _operators(old, new)
    yield from _classes(old, new)
    yield from _machines(old, new)
    yield from _gone(old, new)
    yield from _needed(old, new)
    yield from _symbols(old, new)


def _variants(old: Distribution, new: Distribution) -> Iterator[Difference]:
    if old.labels and new.labels:
        yield from of_one_side("variant", old.labels, new.labels, gone="the variant {} is gone", come="the variant {}")


Operators = dict[tuple[str, str], set[str]]
"""(namespace or "", name with its overload) -> its schemas, as they are written: ``(arguments) -> results``."""


def _registered(side: Distribution) -> Operators:
    """Return all operators of a distribution; a namespace is "" where no file tells it."""
    found: Operators = {}
    for each in side.compiled:
        if each.graft:
            continue
        known = dict[str, set[str]]()
        for operator in each.operators:
            namespace, _, name = operator.partition("::")
            known.setdefault(name, set()).add(namespace)
            found.setdefault((namespace, name), set())
        only = next(iter(each.namespaces)) if len(each.namespaces) == 1 else ""
        for namespace, name, schema in each.texts.schemas:
            spaces = {namespace} if namespace else known.get(name) or {only}
            for space in spaces:
                known_as = found.setdefault((space, name), set())
                known_as |= {schema} if schemas.is_whole(schema) else set()
    return found


def _operators(old: Distribution, new: Distribution) -> Iterator[Difference]:
    before, after = _registered(old), _registered(new)
    gone = {key: mine for key, mine in before.items() if _find(after, *key) is None}
    come = {key: mine for key, mine in after.items() if _find(before, *key) is None}
    kept, unread = _in_parts(gone, new)
    known = {*_in_parts(come, old)[0]}
    for (namespace, name), mine in sorted(before.items()):
        theirs = _find(after, namespace, name)
        full = f"{namespace}::{name}" if namespace else name
        if (namespace, name) in kept:
            continue
        if theirs is None:
            schema = "; ".join(sorted(mine)) or None
            written = f"torch.ops.{full.replace('::', '.')}"
            if (namespace, name) in unread:
                yield Difference("changed", "operator", full, f"{written}: {UNREAD}", old=schema)
                continue
            message = f"{written} is gone: programs that were saved with it cannot be loaded"
            yield Difference("lost", "operator", full, message, old=schema)
            continue
        if not mine or not theirs or mine <= theirs:
            continue
        one, other = "; ".join(sorted(mine)), "; ".join(sorted(theirs))
        broken = next((why for schema in sorted(mine) if (why := _breaks(schema, theirs))), None)
        message = f"{full} was `{name}{one}`, and is `{name}{other}`"
        if broken:
            message += f": {broken}, so calls and saved programs of the old fail"
        yield Difference("lost" if broken else "changed", "operator", full, message, old=one, new=other)
    for (namespace, name), added_here in sorted(come.items()):
        if (namespace, name) not in known:
            full = f"{namespace}::{name}" if namespace else name
            added = "; ".join(sorted(added_here))
            yield Difference("new", "operator", full, f"torch.ops.{full.replace('::', '.')}{added}", new=added or None)


def _in_parts(missing: Operators, side: Distribution) -> tuple[set[tuple[str, str]], set[tuple[str, str]]]:
    """Return which of the operators that no text of ``side`` shows are in its files all the same, in parts.

    The first are there with the schema that they have, or their name if that is all that is known of them; of the
    second only the name and how its schema begins.
    """
    files = [each.binary for each in side.compiled if not each.graft]
    texts = {key: [text for schema in mine or {"("} for text in _texts(*key, schema)] for key, mine in missing.items()}
    names = {key: [text[: _whole_parts(text)] for text in these] for key, these in texts.items()}
    held = registered.held(files, {text for these in (*texts.values(), *names.values()) for text in these})
    kept = {key for key, these in texts.items() if not held.isdisjoint(these)}
    return kept, {key for key, these in names.items() if not held.isdisjoint(these)} - kept


def _whole_parts(text: str) -> int:
    """Return the length of the parts of a schema that have its name in them."""
    return -(-(text.index("(") + 1) // registered.PART) * registered.PART


def _texts(namespace: str, name: str, schema: str) -> list[str]:
    """Return how an operator may be written in the code that registers it."""
    return [f"{name}{schema}", *([f"{namespace}::{name}{schema}"] if namespace else [])]


def _find(operators: Operators, namespace: str, name: str) -> set[str] | None:
    """Return the schemas of an operator; if one of the two has no namespace, compare only the names."""
    if (namespace, name) in operators:
        return operators[namespace, name]
    if namespace:
        return operators.get(("", name))
    return next((known for (_, other), known in sorted(operators.items()) if other == name), None)


def _breaks(schema: str, theirs: set[str]) -> str | None:
    """Return why none of ``theirs`` takes what ``schema`` took, or None."""
    reasons = [schemas.breaks(schema, other) for other in sorted(theirs)]
    return None if None in reasons else reasons[0]


def _classes(old: Distribution, new: Distribution) -> Iterator[Difference]:
    before, after = (
        {name for each in side.compiled if not each.graft for name in each.texts.classes} for side in (old, new)
    )
    yield from of_one_side(
        "class",
        before,
        after,
        gone="the C++ class {} is not registered with torch any more (torch.classes)",
        come="the C++ class {} is registered with torch (torch.classes)",
    )


def _machines(old: Distribution, new: Distribution) -> Iterator[Difference]:
    before, after = ({each.elf.machine for each in side.compiled} for side in (old, new))
    if before and after:
        gone, come = "there are no compiled files for {} any more", "there are compiled files for {}"
        yield from of_one_side("platform", before, after, gone=gone, come=come)


def _gone(old: Distribution, new: Distribution) -> Iterator[Difference]:
    """Yield the libraries and programs that the new has not: whoever opens or runs them by their path has lost them.

    What became of a module is reported with the modules.
    """
    before, after = (_by_name(side) for side in (old, new))
    registered = [_registrations(files) for files in after.values()]
    everything = frozenset[str]().union(*registered)
    commands = {f"<scripts>/{name}" for group, name in new.entry_points if group in {"console_scripts", "gui_scripts"}}
    for name in sorted(before.keys() - after.keys()):
        files = before[name]
        place = files[0].installed
        if any(each.module for each in files) or place in new.files or place in commands:
            continue
        mine, exported = _registrations(files), _exports(files)
        same = [
            theirs
            for other, theirs in sorted(after.items())
            if other not in before
            and (mine or exported)
            and mine <= _registrations(theirs)
            and exported <= _exports(theirs)
        ]
        topic: Topic = "script" if place.startswith("<scripts>/") else "file"
        verdict: Verdict = "lost"
        message = f"{place} is gone: what opens or runs it by its path fails"
        if same:
            verdict, message = "changed", f"{place} is {same[0][0].installed} now, with all that it had"
        elif mine and mine <= everything:
            verdict, message = "changed", f"{place} is gone; all that it registered with torch is in other files"
        yield Difference(verdict, topic, place, message)


def _registrations(files: list[Compiled]) -> frozenset[str]:
    """Return the names of what compiled files register, without a namespace: not every file tells it."""
    found = {operator.rpartition("::")[2] for each in files for operator in each.operators}
    found |= {name for each in files for _, name, _ in each.texts.schemas}
    return frozenset(found | {f"class {name}" for each in files for name in each.texts.classes})


def _exports(files: list[Compiled]) -> frozenset[str]:
    """Return what compiled files export, without what every linker adds."""
    return frozenset(name for each in files for name in each.elf.exported if not _LINKERS.fullmatch(name))


def _needed(old: Distribution, new: Distribution) -> Iterator[Difference]:
    """Yield the libraries that only one side needs; those in the package and those of torch are not compared."""
    inside = [{_stem(each.place) for each in side.compiled} for side in (old, new)]
    bundled = [{_stem(each.place) for each in side.compiled if each.graft} for side in (old, new)]
    needs = [
        {name for each in side.compiled if not each.graft for name in each.elf.needed if not owners.is_torch(name)}
        for side in (old, new)
    ]
    stems = [{_stem(name): name for name in side} for side in needs]
    verdicts: tuple[Verdict, ...] = ("changed", "new")
    for number, verdict in enumerate(verdicts):
        for stem in sorted(stems[number].keys() - stems[1 - number].keys()):
            if stem in inside[number] and stem not in bundled[number]:
                continue
            name = stems[number][stem]
            message = f"{name} is not needed any more" if number == 0 else f"{name} is needed"
            yield Difference(verdict, "library", name, message)
    for stem in sorted(bundled[0] - bundled[1]):
        if stem in stems[1]:
            message = f"a copy of {stem} was in the wheel; now the user's system has to have it"
            yield Difference("lost", "library", stem, message)
    for stem in sorted(bundled[1] - bundled[0]):
        if stem in stems[0]:
            yield Difference("new", "library", stem, f"a copy of {stem} is in the wheel")


def _stem(place: str) -> str:
    """Return the name of a library without its version and what a repair added: ``libz`` of ``libz-01ab.so.1``."""
    return re.sub(r"-[0-9a-f]{8,}$", "", place.rpartition("/")[2].partition(".so")[0].partition(".")[0])


def _symbols(old: Distribution, new: Distribution) -> Iterator[Difference]:
    """Yield the C functions that other programs could call, and in one line for each file all other symbols."""
    before, after = (_by_name(side) for side in (old, new))
    everywhere = {symbol for files in after.values() for each in files for symbol in each.elf.exported}
    for name in sorted(before.keys() & after.keys()):
        one, other = before[name], after[name]
        place = one[0].place
        exported = [{symbol for each in files for symbol in each.elf.exported} for files in (one, other)]
        gone = exported[0] - exported[1] - everywhere
        called = sorted(symbol for symbol in gone if not _MANGLED.match(symbol))
        if called:
            named = escape.few(called, SHOWN)
            message = f"{place} does not export {named} any more: ctypes and other programs cannot call it"
            yield Difference("lost", "symbol", place, message, old=", ".join(called))
        undefined = [{symbol for each in files for symbol in each.elf.undefined} for files in (one, other)]
        parts = [
            f"{word} {len(these)} symbol{'' if len(these) == 1 else 's'} {what}"
            for word, these, what in (
                ("exports", exported[1] - exported[0], "more"),
                ("exports", gone - set(called), "fewer"),
                ("needs", undefined[1] - undefined[0], "more"),
                ("needs", undefined[0] - undefined[1], "fewer"),
            )
            if these
        ]
        if parts:
            yield Difference("changed", "symbol", place, f"{place} {', '.join(parts)}")


def _by_name(side: Distribution) -> dict[str, list[Compiled]]:
    """Return the compiled files by a name that a module and the library that it became have in common."""
    found: dict[str, list[Compiled]] = {}
    for each in side.compiled:
        if not each.graft:
            found.setdefault(each.name.replace("/", "."), []).append(each)
    return found
