"""What a plain build gives beside what ours gives: each difference, and what explains it."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from forks import environ
from hatch_torch_ext import elf
from hatch_torch_ext.facts.content import has_cpp_runtime
from oracle.workshop import PACKAGE, WATCH

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from forks import Forks
    from oracle.projects import Project
    from oracle.workshop import Built

PAGE = Path(__file__).resolve().parents[2] / "docs" / "differences.md"


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What a process has after the project was opened in it; ``status`` is its exit status.

    Of each library of the project, ``needed`` has its NEEDED, and ``called`` those libraries whose versioned symbols it
    calls, as all of glibc's are. ``carrying`` are those that have a C++ runtime in them.
    """

    status: int
    opened: str
    constructed: bool
    registered: dict[str, list[str]]
    answers: dict[str, str]
    mapped: list[str]
    needed: dict[str, list[str]]
    called: dict[str, list[str]] = field(default_factory=dict)
    carrying: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One thing that a plain build and ours (``way``) do not have alike; ``by`` is what explains it, or empty."""

    way: str
    what: str
    plain: str
    ours: str
    by: str = ""


def watch(
    project: Project,
    built: Built,
    python: Path,
    *,
    flags: Sequence[str] = (),
    beside: Sequence[str] = (),
    with_needed: bool = True,
    forks: Forks | None = None,
    command: Sequence[str | Path] = (),
    more: Mapping[str, str] | None = None,
) -> Seen:
    """Open what was built in a process of its own, and return what is there then.

    ``flags`` are Python's; ``beside`` are further entries of ``sys.path``; with ``forks``, a project that is opened
    after torch is opened in a child of it. ``command`` is started in place of Python and the
    script, with ``more`` variables.
    """
    opened = [str(built.site / name) if (built.site / name).exists() else name for name in project.opened]
    spec = {
        "way": built.way,
        "path": [str(built.site), *beside],
        "own": str(built.site),
        "package": PACKAGE,
        "opened": opened,
        "module": project.module,
        "before": project.choice["torch"] == "before",
        "prelude": project.prelude,
        "probes": list(project.probes),
    }
    if forks is not None and spec["before"]:
        status, output, errors = forks.run(WATCH, json.dumps(spec))
    else:
        words: list[str | Path] = [*(command or (python, *(flags or ["-P"]), WATCH)), json.dumps(spec)]
        done = subprocess.run(
            words, env={**environ(), **(more or {})}, capture_output=True, text=True, check=False, timeout=300
        )
        status, output, errors = done.returncode, done.stdout, done.stderr
    try:
        seen = json.loads(output.splitlines()[-1])
    except (IndexError, ValueError):
        last = (errors.strip().splitlines() or [""])[-1]
        seen = {"opened": f"died: {last}", "constructed": False, "registered": {}, "answers": {}, "mapped": []}
    needed, called, carrying = {}, {}, []
    for library in built.libraries if with_needed else []:
        name, facts = _plain_name(library.name), elf.read(library)
        needed[name] = sorted(map(_plain_name, facts.needed))
        called[name] = sorted(_plain_name(file) for file, _ in facts.version_needs)
        if has_cpp_runtime(library):
            carrying.append(name)
    return Seen(status=status, needed=needed, called=called, carrying=carrying, **seen)


def _plain_name(name: str) -> str:
    """Return a library's name without a hash, a version, and the ending of Python's modules."""
    return re.sub(r"(-[0-9a-f]{8}|\.cpython-\S+|\.abi3)?(\.so)\S*", r"\2", name)


def compare(plain: Built, ours: Built, seen: Seen | None, of_ours: Seen | None) -> list[Difference]:
    """Return how ``ours`` differs from ``plain``; what was seen is None where nothing was built."""
    if bool(plain.error) != bool(ours.error):
        found = [("built", _last(plain), _last(ours))]
    elif plain.error or seen is None or of_ours is None:
        found = []
    else:
        found = []
        before, after = asdict(seen), asdict(of_ours)
        for name in ("status", "opened", "constructed"):
            found.append((name, str(before[name]), str(after[name])))
        for name in ("registered", "answers", "needed"):
            for key in sorted({*before[name], *after[name]}):
                found.append((f"{name} {key}", str(before[name].get(key)), str(after[name].get(key))))
        for each in sorted({*before["mapped"], *after["mapped"]}):
            found.append((f"mapped {each}", str(each in before["mapped"]), str(each in after["mapped"])))
    facts = Facts(plain=seen, ours=of_ours, said=ours.said, members=any(map(_takes_members, plain.libraries)))
    return [
        Difference(way=ours.way, what=what, plain=one, ours=other, by=explained(facts, what, one, other))
        for what, one, other in found
        if one != other
    ]


def _takes_members(library: Path) -> bool:
    """Say whether lld or mold has linked a library: they write their names into the section `.comment`."""
    return re.search(rb"\0(mold |Linker: LLD )", library.read_bytes()) is not None


def _last(built: Built) -> str:
    """Return that it was built, or the line that says why not."""
    lines = [line.strip() for line in built.error.splitlines() if line.strip()]
    errors = [line for line in lines if re.search(r"\berror: |Error|^[a-z-]+: ", line)]
    return (errors or lines or ["built"])[0][:300]


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What explains differences: what a process has of either, and all that a build of ours said.

    ``members`` says that the linker takes a member of a static library also for what a shared one lacks.
    """

    plain: Seen | None = None
    ours: Seen | None = None
    said: str = ""
    members: bool = False


# Each is an entry of the page, then patterns of what differs, of the plain value and of ours.
RULES: tuple[tuple[str, str, str, str], ...] = (
    ("torch-first", "opened", r"(OSError|ImportError): lib(torch|c10)\S+ cannot open", "^$"),
    # Where the plain build was not opened at all, the rest follows.
    ("standard", "built", "error: ", "^built$"),
    # torch's own libraries, and the runtime's that nothing of the file uses.
    ("needed", "needed .*", "", ""),
    # A helper of another wheel, or of the machine, comes along.
    ("copied-in", "mapped own liboracle_wheel.so", "False", "True"),
    # What calls nothing of torch, so registers nothing either.
    ("opened", "mapped own .*|constructed", "True", "False"),
    # lld and mold take members of a static library for what torch's libraries lack; a stub lacks nothing. What one
    # registers is said.
    ("archives", "answers .*", "", ""),
    # So does GNU ld with the static C++ runtime.
    ("archives", "needed .*", "", ""),
    # Nor can the plain build's be opened.
    ("refused", "built", "^built$", r"\.so: does not open: "),
    ("unopenable", "opened", "^(OSError|ImportError): ", "^ImportError: .* cannot be opened: "),
)
SAID: tuple[tuple[str, str], ...] = (
    ("built", "While CMake configures, it tries a program that links torch"),
    ("built", "While the project is built, it runs a program or a Python module that links torch"),
    ("built", r"carries? the C\+\+ runtime"),
    ("built", "static-runtime"),
    ("registered .*", r"links \S+, of which .* registers with torch, and has none"),
)
"""Pattern of what differs, and words of the build's output that say so."""


def explained(facts: Facts, what: str, plain: str, ours: str) -> str:
    """Return the entry of the page that explains a difference, or the words of the build's output, or nothing."""
    holds = {
        "needed": lambda: _of_the_linker(plain, ours),
        "opened": lambda: _calls_nothing(facts.ours),
        "archives": lambda: _of_a_static_library(facts, what),
        "refused": lambda: facts.plain is not None and _same_refusal(facts.plain.opened, ours),
        "unopenable": lambda: _same_refusal(plain, ours),
    }
    for entry, pattern, of_plain, of_ours in RULES:
        fits = re.fullmatch(pattern, what) and re.search(of_plain, plain) and re.search(of_ours, ours)
        if fits and (entry not in holds or holds[entry]()):
            return entry
    for pattern, words in SAID:
        if re.fullmatch(pattern, what) and (match := re.search(words, facts.said)):
            return f"said: {match[0]}"
    return ""


def _unopened(seen: Seen | None) -> list[list[str]]:
    """Return NEEDED of each library that a process has not opened, though it should have."""
    there = set(map(_plain_name, seen.mapped)) if seen is not None else set()
    return [needed for name, needed in seen.needed.items() if f"own {name}" not in there] if seen is not None else []


def _calls_nothing(seen: Seen | None) -> bool:
    """Say whether no library that ours left unopened calls torch: NEEDED of ours has what a file's symbols are of."""
    unopened = _unopened(seen)
    return bool(unopened) and not any(name.startswith(("libtorch", "libc10")) for names in unopened for name in names)


LINKED = re.compile(r"lib(torch|c10)|lib(stdc\+\+|gcc_s|m|c)\.")
"""torch's libraries, and those that the C++ compiler links by itself."""


def _of_the_linker(plain: str, ours: str) -> bool:
    """Say whether two lists of NEEDED differ only in torch's libraries and in what the C++ compiler links by itself."""
    one, other = (set(re.findall(r"'([^']+)'", text)) for text in (plain, ours))
    return all(LINKED.match(name) for name in one ^ other)


def _of_a_static_library(facts: Facts, what: str) -> bool:
    """Say whether the plain build's file has members of a static library that nothing of the project calls."""
    name, _, library = what.partition(" ")
    if name == "needed":
        return _of_a_static_runtime(library, facts.plain, facts.ours)
    return facts.members and _calls_nothing(facts.ours)


def _of_a_static_runtime(library: str, plain: Seen | None, ours: Seen | None) -> bool:
    """Say whether NEEDED differs by what a C++ runtime calls that only the plain build's file has in it.

    A name that ours lacks is one of which ours calls nothing.
    """
    if plain is None or ours is None or library not in plain.carrying or library in ours.carrying:
        return False
    one, other = (set(each.needed.get(library, ())) for each in (plain, ours))
    lost = {name for name in one - other if not LINKED.match(name)}
    calls = {*ours.called.get(library, ())}
    return all(LINKED.match(name) for name in other - one) and lost <= {*plain.called.get(library, ())} - calls


def _same_refusal(plain: str, ours: str) -> bool:
    """Say whether the dynamic linker refuses both for one thing: a symbol or a library that is not there."""
    words = r"undefined symbol: ([\w@.]+)|([\w+.-]+): cannot open shared object file"
    one, other = ({match[1] or match[2] for match in re.finditer(words, text)} for text in (plain, ours))
    return not one.isdisjoint(other)
