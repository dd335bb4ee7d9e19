"""What two distributions say of themselves: metadata, requirements, entry points, tags, licenses."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from hatch_torch_ext.compare.distribution import Difference, Topic, Verdict, of_one_side
from hatch_torch_ext.facts import syntax
from hatch_torch_ext.wheel import parsed_requirement

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from hatch_torch_ext.compare.distribution import Distribution

PYTHONS = tuple(f"3.{minor}" for minor in range(6, 20))
"""The Pythons that are looked at in tags and in Requires-Python."""
NOT_COMPARED = frozenset(
    {"metadata-version", "name", "version", "dynamic", "license-file", "requires-dist", "provides-extra", "platform"}
)
"""Fields that say how the metadata were written, or that are compared in another way."""
MANY = frozenset({"classifier", "project-url", "keywords", "obsoletes-dist", "provides-dist", "requires-external"})
"""Fields each of whose values counts."""
NAMES = {
    "project-url": "Project-URL", "author": "Author (with email)", "maintainer": "Maintainer (with email)",
}  # fmt: skip
"""How fields are written that do not only get capitals."""
SHOWN = 100
"""Number of characters of a field's value that a message shows."""
_LEGACY = {"manylinux1": (2, 5), "manylinux2010": (2, 12), "manylinux2014": (2, 17)}
_PLATFORM = re.compile(r"(manylinux\d*|musllinux|linux|macosx|win)(?:_(\d+)_(\d+))?(?:_(\w+)|(32)|)")


def differences(old: Distribution, new: Distribution) -> Iterator[Difference]:
    """Yield what differs in what the two say of themselves."""
    if canonicalize_name(old.name) != canonicalize_name(new.name):
        yield Difference(
            "changed",
            "distribution",
            "name",
            f"the distribution was called {old.name}, and is {new.name}",
            old=old.name,
            new=new.name,
        )
    if old.version != new.version:
        yield _changed("metadata", "Version", old.version, new.version)
    yield from _fields(_normal(old.metadata), _normal(new.metadata))
    yield from _requirements(old, new)
    yield from _entry_points(old, new)
    yield from _licenses(old, new)
    yield from _pythons(old, new)
    if old.tags and new.tags:
        yield from _platforms(old, new)


def _changed(topic: Topic, subject: str, old: str, new: str) -> Difference:
    return Difference("changed", topic, subject, f"{subject} was {_short(old)}, and is {_short(new)}", old=old, new=new)


def _short(text: str) -> str:
    line = " ".join(text.split())
    return f"`{line if len(line) <= SHOWN else line[:SHOWN] + '…'}`"


def _normal(metadata: Mapping[str, tuple[str, ...]]) -> dict[str, frozenset[str]]:
    """Return the fields with what one backend writes in another way than the next brought to one form."""
    found: dict[str, set[str]] = {}
    for name, values in metadata.items():
        if name in {"home-page", "download-url"}:
            label = "Homepage" if name == "home-page" else "Download"
            found.setdefault("project-url", set()).update(f"{label}, {value.rstrip('/')}" for value in values)
        elif name == "project-url":
            found.setdefault(name, set()).update(_url(value) for value in values)
        elif name == "license-expression":
            found.setdefault("license", set()).update(values)
        elif name == "keywords":
            found[name] = {word.strip() for value in values for word in re.split(r"[,\s]", value) if word.strip()}
        elif name in {"author", "author-email", "maintainer", "maintainer-email"}:
            people = (part for value in values for part in re.split(r"[,<>]", value))
            field = found.setdefault(name.removesuffix("-email"), set())
            field.update(part.strip().strip('"') for part in people if part.strip())
        elif name == "description":
            found[name] = {"\n".join(line.strip() for line in value.strip().splitlines()) for value in values}
        elif name == "requires-python":
            found[name] = {_specifier(value) for value in values}
        elif name not in NOT_COMPARED:
            found[name] = {value for value in values if value and value != "UNKNOWN"}
    return {name: frozenset(values) for name, values in found.items() if values}


def _url(value: str) -> str:
    label, _, address = value.partition(",")
    label = "Homepage" if label.strip().lower().replace("-", "") in {"homepage", "home page"} else label.strip()
    return f"{label}, {address.strip().rstrip('/')}"


def _specifier(text: str) -> str:
    try:
        return ",".join(sorted(str(clause) for clause in SpecifierSet(text)))
    except InvalidSpecifier:
        return text


def _fields(old: Mapping[str, frozenset[str]], new: Mapping[str, frozenset[str]]) -> Iterator[Difference]:
    for name in sorted(old.keys() | new.keys()):
        before, after = old.get(name, frozenset()), new.get(name, frozenset())
        written = NAMES.get(name, "-".join(part.capitalize() for part in name.split("-")))
        if before == after:
            continue
        if name in MANY:
            yield from _values(written, before, after)
        elif before <= after and name in {"author", "maintainer"} and before:
            yield Difference("new", "metadata", written, f"{written}: also {', '.join(sorted(after - before))}")
        elif not after:
            value = ", ".join(sorted(before))
            message = f"{written} ({_short(value)}) is not in the metadata any more"
            yield Difference("lost", "metadata", written, message, old=value)
        elif not before:
            value = ", ".join(sorted(after))
            yield Difference("new", "metadata", written, f"{written} is {_short(value)}", new=value)
        elif name == "description":
            yield _description(written, next(iter(before)), next(iter(after)))
        else:
            yield _changed("metadata", written, ", ".join(sorted(before)), ", ".join(sorted(after)))


def _values(field: str, before: frozenset[str], after: frozenset[str]) -> Iterator[Difference]:
    """Yield the values of a field that only one side has; an address under another label is the same address."""
    renamed: dict[str, tuple[str, str]] = {}
    for one in before - after:
        for other in sorted(after):
            address = one.partition(", ")[2]
            if address and other.partition(", ")[2] == address:
                renamed[one] = (other, address)
    for value in sorted(before - after):
        if value in renamed:
            message = f"{field} `{value}` is `{renamed[value][0]}`"
            yield Difference("changed", "metadata", field, message, old=value, new=renamed[value][0])
        else:
            yield Difference("lost", "metadata", field, f"{field} `{value}` is not in the metadata any more", old=value)
    for value in sorted(after - before - {other for other, _ in renamed.values()}):
        yield Difference("new", "metadata", field, f"{field} `{value}`", new=value)


def _description(written: str, old: str, new: str) -> Difference:
    """Return the difference of two long texts, by the number of their lines."""
    before, after = old.splitlines(), new.splitlines()
    if len(before) + len(after) > 10_000:  # noqa: PLR2004 -- difflib takes the square of it
        message = f"{written} is another text"
    else:
        rows = [row[:2] for row in difflib.ndiff(before, after)] if before != after else []
        message = f"{written}: {rows.count('- ')} lines gone, {rows.count('+ ')} added"
    return Difference("changed", "metadata", written, message, old=old, new=new)


def _requirements(old: Distribution, new: Distribution) -> Iterator[Difference]:
    extras = [{canonicalize_name(extra) for extra in side.metadata.get("provides-extra", ())} for side in (old, new)]
    gone = f"the extra `{{}}` is gone: `pip install {new.name}[{{}}]` installs no further package"
    yield from of_one_side("extra", *extras, gone=gone, come="the extra `{}`")
    before, after = (_required(side.metadata.get("requires-dist", ())) for side in (old, new))
    for key in sorted(before.keys() | after.keys()):
        name, of_extra = key
        of = f" of the extra `{of_extra}`" if of_extra else ""
        one, other = (", ".join(sorted(side.get(key, ()))) for side in (before, after))
        if key not in after:
            if of_extra and of_extra not in extras[1]:
                continue  # with its extra
            yield Difference("lost", "requirement", name, f"`{one}`{of} is not required any more", old=one)
        elif key not in before:
            yield Difference("new", "requirement", name, f"`{other}`{of} is required", new=other)
        elif one != other:
            message = f"the requirement{of} was `{one}`, and is `{other}`"
            yield Difference("changed", "requirement", name, message, old=one, new=other)


def _required(texts: Sequence[str]) -> dict[tuple[str, str], set[str]]:
    """Return (name, extra or "") -> requirements, each in one form and without the extra's marker."""
    found: dict[tuple[str, str], set[str]] = {}
    for text in texts:
        requirement = parsed_requirement(text)
        if requirement is None:
            found.setdefault((text, ""), set()).add(text)
            continue
        marker = str(requirement.marker) if requirement.marker is not None else ""
        extra = re.search(r"""\bextra == ["']([^"']+)["']""", marker)
        rest = re.sub(r"""(?:\s*\band\s+)?\bextra == ["'][^"']+["'](?:\s*and\s+)?""", "", marker).strip()
        name = canonicalize_name(requirement.name)
        options = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
        address = f" @ {requirement.url}" if requirement.url else ""
        clauses = ",".join(sorted(str(clause) for clause in requirement.specifier))
        plain = f"{name}{options}{clauses}{address}{f'; {rest}' if rest and rest != '()' else ''}"
        found.setdefault((name, canonicalize_name(extra[1]) if extra else ""), set()).add(plain)
    return found


def _entry_points(old: Distribution, new: Distribution) -> Iterator[Difference]:
    for key in sorted(old.entry_points.keys() | new.entry_points.keys()):
        group, name = key
        one, other = old.entry_points.get(key), new.entry_points.get(key)
        what = f"the command `{name}`" if group in {"console_scripts", "gui_scripts"} else f"`{name}` of {group}"
        if other is None:
            yield Difference("lost", "entry point", f"{group}: {name}", f"{what} ({one}) is gone", old=one)
            continue
        fault = _unresolved(new, other)
        if one is None:
            message = f"{what} is {other}{f', but {fault}' if fault else ''}"
            yield Difference("new", "entry point", f"{group}: {name}", message, new=other)
        elif (gone := fault or _moved_out(old, new, one, other)) and not _unresolved(old, one):
            message = f"{what} is {other}, but {gone}"
            yield Difference("lost", "entry point", f"{group}: {name}", message, old=one, new=other)
        elif _plain(one) != _plain(other):
            message = f"{what} was {one}, and is {other}"
            yield Difference("changed", "entry point", f"{group}: {name}", message, old=one, new=other)


def _plain(value: str) -> str:
    return re.sub(r"\s", "", value)


def _moved_out(old: Distribution, new: Distribution, one: str, other: str) -> str | None:
    """Return what of an entry point the new lacks altogether, where the old had it."""
    module = _plain(other).partition(":")[0].partition("[")[0]
    if new.kind == "sdist" or old.kind == "sdist" or _plain(one).partition(":")[0] not in old.modules:
        return None
    return None if module in new.modules else f"the module {module} is gone"


def _unresolved(side: Distribution, value: str) -> str | None:
    """Return why the ``value`` of an entry point leads nowhere inside of the distribution, or None."""
    module, _, attribute = _plain(value).partition("[")[0].partition(":")
    modules = side.modules
    top = module.partition(".")[0]
    if side.kind == "sdist" or all(name.partition(".")[0] != top for name in modules):
        return None  # another distribution's
    if module not in modules:
        return f"there is no module {module}"
    if not attribute:
        return None
    place = module.replace(".", "/")
    texts = (side.text(path) for path in (f"{place}/__init__.py", f"{place}.py"))
    text = next((each for each in texts if each is not None), None)
    first = attribute.partition(".")[0]
    if text is None or f"{module}.{first}" in modules or syntax.bound(text, module) & {first, syntax.ANYTHING}:
        return None
    return f"{module} does not define `{first}`"


def _licenses(old: Distribution, new: Distribution) -> Iterator[Difference]:
    for name in sorted(old.licenses.keys() - new.licenses.keys()):
        if old.licenses[name] not in new.licenses.values():
            yield Difference("lost", "license", name, f"the license file {name} is not in the metadata any more")
    for name in sorted(new.licenses.keys() - old.licenses.keys()):
        if new.licenses[name] not in old.licenses.values():
            yield Difference("new", "license", name, f"the license file {name}")
    for name in sorted(old.licenses.keys() & new.licenses.keys()):
        if old.licenses[name] != new.licenses[name]:
            yield Difference("changed", "license", name, f"the license file {name} is another text")


def _pythons(old: Distribution, new: Distribution) -> Iterator[Difference]:
    before, after = (_served(side) for side in (old, new))
    gone, come = sorted(before - after, key=PYTHONS.index), sorted(after - before, key=PYTHONS.index)
    if gone:
        yield Difference("lost", "python", _range(gone), f"Python {_range(gone)} cannot install it any more")
    if come:
        yield Difference("new", "python", _range(come), f"Python {_range(come)} can install it")


def _range(pythons: Sequence[str]) -> str:
    """Return Pythons in words; a run of them by its ends."""
    numbers = [PYTHONS.index(python) for python in pythons]
    if numbers == list(range(numbers[0], numbers[-1] + 1)) and len(numbers) > 2:  # noqa: PLR2004 -- a run
        return f"{pythons[0]} to {pythons[-1]}" if numbers[-1] < len(PYTHONS) - 1 else f"{pythons[0]} and newer"
    return ", ".join(pythons)


def _served(side: Distribution) -> frozenset[str]:
    """Return the Pythons that may install the distribution, by its tags and Requires-Python."""
    text = next(iter(side.metadata.get("requires-python", ())), "")
    try:
        accepted = frozenset(python for python in PYTHONS if SpecifierSet(text).contains(f"{python}.99"))
    except InvalidSpecifier:
        accepted = frozenset(PYTHONS)
    by_tags = frozenset(python for tag in side.tags for python in _of_tag(tag))
    return accepted & by_tags if side.tags else accepted


def _of_tag(tag: str) -> frozenset[str]:
    interpreter, abi, *_ = tag.split("-")
    found = re.fullmatch(r"(?:cp|py)3(\d*)", interpreter)
    if found is None:
        return frozenset()
    minor = int(found[1] or 0)
    exact = interpreter.startswith("cp") and abi != "abi3"
    return frozenset(
        python for python in PYTHONS if (mine := int(python.partition(".")[2])) == minor or (mine > minor and not exact)
    )


def _platforms(old: Distribution, new: Distribution) -> Iterator[Difference]:
    before, after = (_of_platform(side) for side in (old, new))
    for machine in sorted(before.keys() - after.keys()) if "any" not in after else ():
        if machine == "any":
            message = f"it was for every machine, and is for {', '.join(sorted(after))} only"
            yield Difference("lost", "platform", "any", message)
        else:
            yield Difference("lost", "platform", machine, f"{machine} cannot install it any more")
    for machine in sorted(after.keys() - before.keys()) if "any" not in before else ():
        yield Difference("new", "platform", machine, f"{machine} can install it")
    for machine in sorted(before.keys() & after.keys()):
        one, other = before[machine], after[machine]
        if one == other:
            continue
        if one is not None and other is not None and one < other:
            message = (
                f"it needs glibc {_dotted(other)} on {machine}, and needed {_dotted(one)}: systems between them "
                "cannot install it any more"
            )
            yield Difference("lost", "platform", machine, message, old=_dotted(one), new=_dotted(other))
            continue
        words = [f"glibc {_dotted(floor)} or newer" if floor else "the system that built it" for floor in (one, other)]
        message = f"its tag for {machine} was for {words[0]}, and is for {words[1]}"
        verdict: Verdict = "new" if other is not None else "changed"
        yield Difference(verdict, "platform", machine, message, old=words[0], new=words[1])


def _dotted(floor: tuple[int, int]) -> str:
    return f"{floor[0]}.{floor[1]}"


def _of_platform(side: Distribution) -> dict[str, tuple[int, int] | None]:
    """Return what the tags are for -> the lowest glibc, None where the tag does not say."""
    found: dict[str, tuple[int, int] | None] = {}
    for tag in side.tags:
        platform = tag.split("-")[-1]
        match = _PLATFORM.fullmatch(platform)
        if match is None:
            found[platform] = None
            continue
        system, major, minor, machine = match[1], match[2], match[3], match[4] or ""
        floor = (int(major), int(minor)) if major and system.startswith("manylinux") else _LEGACY.get(system)
        names = {"macosx": f"macOS {machine}", "win": f"Windows {machine}", "musllinux": f"musl Linux {machine}"}
        name = names.get(system, f"Linux {machine}").strip()
        known = [known for known in (found.get(name), floor) if known is not None]
        found[name] = min(known) if known else None
    return found
