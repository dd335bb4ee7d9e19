"""A variant, described as data that survives a round trip through JSON; the manifest, ``manifest.json``, lists them."""

from __future__ import annotations

import dataclasses
import re
import reprlib
import types
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeGuard, TypeVar, get_args, get_origin, get_type_hints

from hatch_torch_ext.base import escape
from hatch_torch_ext.base.errors import WheelError
from hatch_torch_ext.facts.backend import Backend

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

FOLDER = "_torch_ext"
"""The folder of the variants, below the package."""
MANIFEST = f"{FOLDER}/manifest.json"
"""The file that lists the variants, below the package."""
LOADER, HELP, BUILD = "_variants.py", f"{FOLDER}/help.py", f"{FOLDER}/build.py"
"""The loader's files, below the package: what loads, what explains and what builds at first use."""
SHARED = "shared"
"""The folder in it for files that several variants need, or several files of one."""

FileKind = Literal["library", "module", "graft", "program", "python", "data"]
"""library: registers operators or serves those that do; module: exports PyInit_…; graft: third-party library
copied in; program: another ELF file; python: a module's source; data: anything else that belongs to the variant."""

ExternalProvider = Literal["torch", "author", "process"]
"""Who provides a library that is not in the wheel.

torch: its installation; author: every user has it, as the option `exclude` says; process: it is a runtime of which a
process has one (a sanitizer, an allocator), loaded before the variant's files.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantFile:
    """One file of a variant. ``path`` is POSIX, below ``_torch_ext``: ``<label>/libx.so``, ``shared/<hash>/liby.so``.

    ``sha256`` (hex) and ``size`` (bytes) are of the file as it is in the wheel. ``needed`` is DT_NEEDED in order.
    ``module`` is the dotted name below the package under which a file is imported (``_C``, ``sub._C``).
    ``registers`` says that the loader must open the file: it registers operators or classes with torch, or only acts
    when it is opened.
    ``versions`` are the symbol versions that the file needs (``GLIBC_2.17``), sorted.
    ``ends`` is the CRC-32 of both its ends (``content.ends``), ``mapped`` that of what strip leaves as it is
    (``content.mapped``), for files that are opened.
    ``namespaces`` are those that the file opens with TORCH_LIBRARY, and ``operators`` what it defines
    (``ns::add.Tensor``), each sorted, as far as the build could tell.
    """

    path: str
    kind: FileKind
    sha256: str
    size: int
    soname: str | None = None
    needed: tuple[str, ...] = ()
    module: str | None = None
    registers: bool = False
    versions: tuple[str, ...] = ()
    installed: str = ""
    """Its path in the install tree (``plugins/libp.so``); empty for grafts."""
    fixed: bool = False
    """It stays at ``path``, whatever other variants hold: others open it by name, or it finds data beside itself."""
    unopened: bool = False
    """The package opens it itself (option `unopened`), not the loader."""
    ends: int | None = None
    mapped: int | None = None
    namespaces: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()
    fragments: tuple[str, ...] = ()
    """Namespaces of TORCH_LIBRARY_FRAGMENT in which it may define operators only by function: no text has them."""
    classes: bool = False
    """It registers classes with torch (``torch::class_``); their names in torch are in no table of the file."""
    origin: str | None = None
    """The origin of a graft, as a package URL: ``pkg:deb/debian/libyaml-0-2@0.2.5-1``, ``pkg:generic/libyaml``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildRecord:
    """What a variant was built from, for the manifest: enough to repeat the build, without absolute paths and times."""

    entry: str
    variables: tuple[tuple[str, str], ...]
    torch_version: str
    python: str
    sdk: str
    compiler: str
    cmake: str
    cuda_compiler: str | None = None
    flags: tuple[tuple[str, str], ...] = ()
    torch_sha256: str | None = None
    debug_symbols: str = "strip"
    """The option of that name: what the audit accepts of symbols and debug information."""
    ignored: tuple[str, ...] = ()
    """Audit codes that the author set aside; an audit by anybody honours them."""

    @property
    def compilers(self) -> tuple[str, ...]:
        """Return what compiled, in words: the C++ compiler, and that of the GPU's code if there is any."""
        return (self.compiler, *([self.cuda_compiler] if self.cuda_compiler is not None else []))


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One compiled build inside the wheel.

    ``torch`` is the major.minor that it serves exactly or, with ``stable_abi``, the lowest that it serves. ``backend``
    is ``cpu`` or ``cuda``; ``cuda`` is then its version (``12.8``). ``cxx11_abi`` is None on the stable ABI. ``python``
    is None if nothing in it needs Python, else ``cp311``, ``cp313t``, ``abi3-cp39`` …. ``archs`` are read from the fat
    binaries, in torch's notation (``9.0`` machine code, ``9.0+PTX`` PTX). ``libc`` is ``glibc`` or ``musl``;
    ``libc_floor`` the lowest version with all its symbols (``2.17``).
    """

    label: str
    torch: str
    stable_abi: bool
    backend: Literal["cpu", "cuda"]
    cuda: str | None
    cxx11_abi: bool | None
    python: str | None
    machine: str
    libc: Literal["glibc", "musl"]
    libc_floor: str
    policy: str
    """The lowest manylinux/musllinux policy that all its symbols meet (``manylinux_2_17_x86_64``)."""
    archs: tuple[str, ...]
    files: tuple[VariantFile, ...]
    build: BuildRecord
    external: tuple[tuple[str, ExternalProvider], ...] = ()
    """Libraries that files need, not in the wheel and not known to every audit: (SONAME, provider), sorted."""

    @property
    def runs_on(self) -> Backend:
        """Return its backend as one value; the manifest has its parts."""
        return Backend.of_cuda(self.cuda if self.backend == "cuda" else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltVariant:
    """A variant and the place of its files: ``root`` is a ``_torch_ext`` folder in which each ``file.path`` is.

    ``package_files`` are what CMake installed for the package as a whole (headers, Python files, data): pairs of the
    POSIX path relative to the package and the absolute file. ``elsewhere`` holds the files of the variant that do not
    are below ``root``: pairs of ``file.path`` and the absolute file. ``excluded`` are the libraries of `exclude` that
    are on this machine, which only the audit of the build needs: pairs of the name and the absolute file.
    """

    variant: Variant
    root: Path
    package_files: tuple[tuple[str, Path], ...] = ()
    elsewhere: tuple[tuple[str, Path], ...] = ()
    excluded: tuple[tuple[str, Path], ...] = ()

    @property
    def size(self) -> int:
        """Return the size of its files together, in bytes."""
        return sum(file.size for file in self.variant.files)

    def source(self, path: str) -> Path:
        """Return the place of the variant's file ``path``."""
        return dict(self.elsewhere).get(path) or self.root / path


_Value = TypeVar("_Value", Variant, VariantFile, BuildRecord)

LARGEST = 1 << 62
"""Sizes of a file in bytes, and all other numbers."""
_NUMBERS = r"[0-9]{1,4}\.[0-9]{1,4}"
_PATH = r"(?!/)(?!(?:.*/)?\.{0,2}(?:/|$))[^\0\\]{1,1024}"
"""Relative, without empty parts, ``.`` and ``..``."""
_FORMS = {
    (kind, field): re.compile(form)
    for kind, forms in {
        Variant: {
            "label": r"[0-9a-z._]{1,200}",
            "torch": _NUMBERS,
            "cuda": _NUMBERS,
            "python": r"(?:abi3-)?cp[0-9]{1,4}t?",
            "machine": r"[0-9a-z_]{1,40}",
            "libc_floor": r"[0-9]{1,4}(?:\.[0-9]{1,4}){0,3}",
            "policy": r"[0-9a-z_]{1,80}",
            "archs": r"[0-9]{1,3}\.[0-9]{1,2}[a-z]?(?:\+PTX)?",
        },
        VariantFile: {
            "path": _PATH,
            "sha256": r"[0-9a-f]{64}",
            "module": r"\w{1,255}(?:\.\w{1,255}){0,63}",
        },
    }.items()
    for field, form in forms.items()
}
"""Texts from which other files are generated, or that are compared: only what a build writes is accepted."""


def to_json(variant: Variant) -> dict[str, object]:
    """Return ``variant`` in JSON form: every field by its name, tuples as lists."""
    return dataclasses.asdict(variant)


def from_json(data: object) -> Variant:
    """Return the variant of that form. Raises ``WheelError`` with the name of a wrong field."""
    return _decode(Variant, data, "variant")


def is_path(data: object) -> TypeGuard[str]:
    """Return whether ``data`` is a path as in a manifest: POSIX, relative, without ``..``."""
    return isinstance(data, str) and _is_text(data, _FORMS[VariantFile, "path"])


def built_to_json(built: BuiltVariant, base: Path) -> dict[str, object]:
    """Return ``built`` in JSON form, with the paths of its files relative to ``base``."""
    data = dataclasses.asdict(dataclasses.replace(built, excluded=()))
    del data["excluded"]
    data["root"] = _from(base, built.root)
    for name in ("package_files", "elsewhere"):
        data[name] = [(place, _from(base, path)) for place, path in getattr(built, name)]
    return data


def built_from_json(data: Mapping[str, Any], base: Path) -> BuiltVariant:
    """Return the ``BuiltVariant`` of that form, with its files below ``base``. Raises ``WheelError``."""
    fields = {**data, "variant": from_json(data["variant"]), "root": base / data["root"]}
    for name in ("package_files", "elsewhere"):
        fields[name] = tuple((place, base / path) for place, path in data[name])
    return BuiltVariant(**fields)


def _from(base: Path, path: Path) -> str:
    return path.relative_to(base).as_posix() if path.is_relative_to(base) else path.as_posix()


def _decode(kind: type[_Value], data: object, where: str) -> _Value:
    if not isinstance(data, dict):
        raise WheelError(f"{where} must be an object, not {type(data).__name__}")
    known = _FIELDS[kind]
    if unknown := sorted(data.keys() - known.keys(), key=str):
        field = escape.name(unknown[0])
        raise WheelError(f"{where} has the field `{field}`, which this hatch-torch-ext does not know")
    values: dict[str, Any] = {}
    for name, (hint, form, needed) in known.items():
        if name in data:
            values[name] = _value(hint, form, data[name], (where, name))
        elif needed:
            raise WheelError(f"{where} lacks the field `{name}`")
    return kind(**values)


def _fields(kind: type) -> dict[str, tuple[Any, re.Pattern[str] | None, bool]]:
    """Return name -> (type, pattern of its texts, whether it is required); cached for each class."""
    hints = get_type_hints(kind)
    return {
        field.name: (hints[field.name], _FORMS.get((kind, field.name)), field.default is dataclasses.MISSING)
        for field in dataclasses.fields(kind)
    }


_FIELDS: dict[type, dict[str, tuple[Any, re.Pattern[str] | None, bool]]] = {
    kind: _fields(kind) for kind in (Variant, VariantFile, BuildRecord)
}


def _value(hint: Any, form: re.Pattern[str] | None, data: object, where: tuple[object, ...]) -> Any:  # noqa: ANN401 - a type as the typing module has it
    """Return ``data`` as the type ``hint``; the parts of ``where`` are joined only for a message."""
    if dataclasses.is_dataclass(hint):
        return _decode(hint, data, _joined(where))  # type: ignore[type-var, arg-type]
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is types.UnionType:
        inner = next(argument for argument in arguments if argument is not type(None))
        return None if data is None else _value(inner, form, data, where)
    if origin is tuple and isinstance(data, (list, tuple)):
        if arguments[-1] is ...:
            return tuple(_value(arguments[0], form, item, (*where, number)) for number, item in enumerate(data))
        if len(data) == len(arguments):
            return tuple(_value(part, form, item, where) for part, item in zip(arguments, data, strict=True))
    elif origin is Literal:
        if isinstance(data, str) and data in arguments:
            return data
    elif type(data) is hint and (not isinstance(data, str) or _is_text(data, form)) and _is_small(data):
        return data
    raise WheelError(f"{_joined(where)} cannot be {escape.name(reprlib.repr(data))}")


def _joined(where: tuple[object, ...]) -> str:
    first, *rest = where
    return str(first) + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in rest)


def _is_text(data: str, form: re.Pattern[str] | None) -> bool:
    """Return whether the text matches the pattern of its field; without one, any text that can be encoded does."""
    if form is not None:
        return data.isprintable() and form.fullmatch(data) is not None
    return data.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in data)


def _is_small(data: object) -> bool:
    return not isinstance(data, int) or 0 <= data <= LARGEST
