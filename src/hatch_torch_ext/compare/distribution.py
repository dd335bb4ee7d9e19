"""What is compared and what is found: a distribution as its users meet it, and one difference between two of them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping
    from pathlib import Path

    from hatch_torch_ext.elf import ElfFile
    from hatch_torch_ext.facts.registered import Texts

Kind = Literal["wheel", "sdist", "installed"]

_PYTHON_SUFFIX = re.compile(r"\.cpython-(\d)(\d+t?)-[^/]*\.so$")
_HASH = re.compile(r"-[0-9a-f]{8,}$")


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A file at the ``path`` where it is installed: below the folder of packages, ``<scripts>/…`` or ``<data>/…``."""

    path: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """A compiled file, of one variant where the wheel is ours.

    ``name`` is the dotted name under which it is imported, else its path without what only says for which Python or
    machine it is (``pkg/my_ops`` for ``pkg/libmy_ops.so``); two files of one name are the same to users.
    """

    name: str
    place: str
    binary: Path
    """The file itself, while the distribution is open."""
    module: bool
    python: str | None
    """``cp311``, ``abi3-cp39``; None: any that the distribution is for."""
    graft: bool
    elf: ElfFile
    texts: Texts
    namespaces: frozenset[str]
    operators: frozenset[str]
    """``ns::name`` that the build of a wheel of ours saw."""
    label: str | None
    size: int

    @property
    def installed(self) -> str:
        """Return where users find it: beside the package's Python files, though each variant of ours has a folder."""
        folder, file = self.name.replace(".", "/") if self.module else self.name, self.place.rpartition("/")[2]
        return f"{folder.rpartition('/')[0]}/{file}".lstrip("/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """All that is compared. ``files`` lack compiled ones and what is generated; ``everything`` is all files."""

    place: str
    kind: Kind
    name: str
    version: str
    generator: str | None
    tags: tuple[str, ...]
    size: int | None
    metadata: Mapping[str, tuple[str, ...]]
    """Fields of METADATA or PKG-INFO in lower case, each with all its values; ``description`` too."""
    entry_points: Mapping[tuple[str, str], str]
    licenses: Mapping[str, str]
    """License files by name -> SHA-256."""
    files: Mapping[str, File]
    everything: tuple[File, ...]
    compiled: tuple[Compiled, ...]
    labels: tuple[str, ...]
    text: Callable[[str], str | None] = field(repr=False)
    """Return the text of one of ``files``."""

    @property
    def modules(self) -> frozenset[str]:
        """Return every dotted name that can be imported."""
        if self.kind == "sdist":
            return frozenset()
        found = {name for path in self.files if (name := module_of(path)) is not None}
        return frozenset(found | {each.name for each in self.compiled if each.module})


def module_of(path: str) -> str | None:
    """Return the module that the Python file ``path`` is, or None."""
    if not path.endswith(".py"):
        return None
    parts = path.removesuffix(".py").split("/")
    if parts[-1] == "__init__" and len(parts) > 1:
        parts.pop()
    return ".".join(parts) if all(part.isidentifier() for part in parts) else None


def name_of(path: str, *, is_module: bool) -> str:
    """Return the name of a foreign compiled file, as ``Compiled.name`` says."""
    folder, _, file = path.rpartition("/")
    stem = file.partition(".")[0]
    if is_module:
        return f"{folder}/{stem}".lstrip("/").replace("/", ".")
    return f"{folder}/{_HASH.sub('', stem).removeprefix('lib')}".lstrip("/")


def python_of(path: str) -> str | None:
    """Return for which Python a compiled file is, by its name."""
    if found := _PYTHON_SUFFIX.search(path):
        return f"cp{found[1]}{found[2]}"
    return "abi3" if path.endswith(".abi3.so") else None


def read_text(path: Path, limit: int) -> str | None:
    """Return the text of a file, or None if it is longer than ``limit`` bytes."""
    if not path.is_file() or path.stat().st_size > limit:
        return None
    return path.read_text(encoding="utf-8", errors="replace")


Verdict = Literal["lost", "changed", "new"]
Topic = Literal[
    "distribution", "variant", "python", "platform", "module", "operator", "class", "entry point", "script",
    "requirement", "extra", "metadata", "license", "file", "library", "symbol",
]  # fmt: skip
"""In the order in which they are listed."""

VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
TOPICS: tuple[Topic, ...] = get_args(Topic)


@dataclass(frozen=True, slots=True)
class Difference:
    """What differs in one ``subject``: a file, a module, an operator.

    ``lost`` is what users of the old had and users of the new have not, ``changed`` what both have and which is not the
    same, ``new`` what only the new has. ``old`` and ``new`` are the values, None where there is none; ``message`` says
    it in a sentence that names the subject.
    """

    verdict: Verdict
    topic: Topic
    subject: str
    message: str
    old: str | None = None
    new: str | None = None

    @property
    def rank(self) -> int:
        """Return the place of its topic in the listing."""
        return TOPICS.index(self.topic)


def of_one_side(
    topic: Topic, old: Collection[str], new: Collection[str], *, gone: str, come: str
) -> Iterator[Difference]:
    """Yield the names that only one side has; ``{}`` in the messages is the name."""
    for name in sorted({*old} - {*new}):
        yield Difference("lost", topic, name, gone.replace("{}", name))
    for name in sorted({*new} - {*old}):
        yield Difference("new", topic, name, come.replace("{}", name))
