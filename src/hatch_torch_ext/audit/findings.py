"""What the audit can find: one table of codes, each with its weight and its remedy, and the finding itself.

``docs/audit.md`` describes the cause of each code; a test compares the two.
"""

from __future__ import annotations

import dataclasses
import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hatch_torch_ext.base import escape
from hatch_torch_ext.base.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

MOST = 50
"""Number of findings of one code that are listed one by one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """One kind of finding. ``warning``: the file works for some or most users, so a build continues."""

    remedy: str
    warning: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One fault: ``file`` is the member of the wheel (or of ``_torch_ext``), POSIX.

    ``variant`` is the label of the variant it belongs to, or None. ``str()`` gives the line for a person.
    """

    code: str
    file: str
    message: str
    remedy: str
    variant: str | None = None
    warning: bool = False

    def __str__(self) -> str:
        """Return one line: file, fault, remedy, code."""
        return f"{self.file}: {self.message}. {self.remedy} [{self.code}]"


_REBUILD = "Build the wheel again, and change nothing in it afterwards."

CODES = {
    "abi3-violation": Code(
        remedy="Build the module without the limited API, or with Py_LIMITED_API set to the oldest Python that you "
        "promise.",
    ),
    "build-path": Code(
        warning=True,
        remedy="Replace the folder's name with -ffile-prefix-map (the build hook passes it, unless COMPILE_OPTIONS of "
        "the target or its folder are overwritten), and take it out of definitions and generated sources.",
    ),
    "bundled-cuda": Code(
        remedy="Leave the CUDA library out: torch's own requirements install it. The hook's repair does so.",
    ),
    "bundled-runtime": Code(
        warning=True,
        remedy="Leave the library out: the user's system or process has the one to use. The hook's repair does so.",
    ),
    "bundled-torch": Code(
        remedy="Leave torch's library out: two copies in one process break each other. The hook's repair does so.",
    ),
    "cannot-open": Code(
        remedy="Link the library that is missing, or compile against the torch that the file is opened in."
    ),
    "class-twice": Code(
        warning=True,
        remedy="Register each class once: in one library that the others link. Where two packages have it, give each "
        'its own name: torch::class_<T>("my_package", "T").',
    ),
    "crash": Code(
        remedy="Compile it against the same torch release, C++ ABI and flags as the torch that it is opened in.",
    ),
    "cuda-runtime": Code(
        remedy="Compile with a toolkit of torch's own CUDA version or an older minor of it (`cuda-home`), or take a "
        "torch of the toolkit's CUDA.",
    ),
    "duplicate-file": Code(remedy=_REBUILD),
    "executable-stack": Code(
        remedy="Link with -Wl,-z,noexecstack; assembler files need a .note.GNU-stack section.",
    ),
    "fast-math": Code(
        warning=True,
        remedy="Pass -ffast-math (-Ofast, -funsafe-math-optimizations) only to the compiler, by "
        "target_compile_options: in CMAKE_CXX_FLAGS or CXXFLAGS the linker gets it too.",
    ),
    "generic-namespace": Code(
        warning=True,
        remedy="Register under the name of your package: TORCH_LIBRARY(my_package, m). Two packages with one "
        "namespace cannot meet.",
    ),
    "gil-enabled": Code(
        warning=True,
        remedy="If the module is safe without the GIL, say so: the slot {Py_mod_gil, Py_MOD_GIL_NOT_USED} or "
        "PyUnstable_Module_SetGIL in C, py::mod_gil_not_used() in pybind11, FREE_THREADED in nanobind, "
        "freethreading_compatible in Cython. Else leave free-threaded Pythons out of the matrix.",
    ),
    "isa-level": Code(
        warning=True,
        remedy="Leave out -Wl,-z,x86-64-v3 (LDFLAGS) and -mneeded, or put the code that needs such processors into a "
        "library of its own, which the package opens where it fits (`unopened`).",
    ),
    "libpython": Code(
        remedy="Link Python::Module instead of Python::Python: many Pythons have no libpython to load.",
    ),
    "lowest-torch": Code(
        remedy="Require the torch that it needs, or a newer one (`torch>=` in the metadata, the entry's `torch` in the "
        "matrix), or do not call the newer functions.",
    ),
    "manifest-hash": Code(remedy=_REBUILD),
    "manifest-invalid": Code(remedy=_REBUILD),
    "manifest-missing-file": Code(remedy=_REBUILD),
    "manifest-unknown-file": Code(remedy=_REBUILD),
    "missing-library": Code(
        remedy="Install the library below the install prefix so that it is grafted, link it statically, or name it "
        "in `exclude`.",
    ),
    "missing-module": Code(
        warning=True,
        remedy="Remove the import where it only registered operators, which `_variants.load()` does; else give the "
        "module that name in CMake (Python_add_library).",
    ),
    "missing-symbol": Code(
        warning=True,
        remedy="Add the source that defines it to the library (`add_library`, `target_sources`), or link the library "
        "that has it.",
    ),
    "module-name": Code(
        remedy="Give the file the name that its PyInit_ function says (set_target_properties(... PROPERTIES "
        "OUTPUT_NAME ... PREFIX ...), the prefix being empty), or the function the name of the file: "
        "PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) has it in every target that links Torch::Python.",
    ),
    "needed-path": Code(
        remedy="Link the library by its name: give it a SONAME (-Wl,-soname,libname.so), or set the property "
        "IMPORTED_NO_SONAME to ON at the CMake target that imports it. The hook's repair writes the name.",
    ),
    "never-loaded": Code(
        warning=True,
        remedy="Write `from <package> import _variants` and `_variants.load()` into the package's `__init__.py`.",
    ),
    "no-policy": Code(
        warning=True,
        remedy="Build in a manylinux image (manylinux_2_28 and the like), whose libraries are older.",
    ),
    "not-registered": Code(
        warning=True,
        remedy="Where a static library registers them, make it an OBJECT library, or link it as a whole "
        '("$<LINK_LIBRARY:WHOLE_ARCHIVE,name>"): the linker drops what nothing calls. Else add the source that '
        "registers them (target_sources).",
    ),
    "not-stripped": Code(
        warning=True,
        remedy='Set debug-symbols = "strip" (the default) or "split", or link with -s.',
    ),
    "openmp-twice": Code(
        remedy="Compile with GCC's -fopenmp, whose runtime torch provides, and graft no OpenMP runtime.",
    ),
    "operator-twice": Code(
        remedy="Use TORCH_LIBRARY once for each namespace, TORCH_LIBRARY_FRAGMENT elsewhere, and define each "
        "operator once.",
    ),
    "own-path": Code(
        warning=True,
        remedy="Remove what opens the library, since `_variants.load()` does it; a library that the package opens "
        "itself is at `_variants.path(NAME)`, and its NAME belongs in the option `unopened`.",
    ),
    "partial-wheel": Code(
        warning=True,
        remedy="Publish no part by itself: `hatch-torch-ext merge` makes the wheel of all of them, and `extend` adds "
        "what it builds to a published wheel.",
    ),
    "policy-too-low": Code(
        remedy="Build in the manylinux image of the policy, or name the wheel by the policy that is really met.",
    ),
    "pre-release": Code(
        warning=True,
        remedy="Publish a build against the release, once there is one. Users of the pre-release itself must set "
        "TORCH_EXT_PRERELEASE=1.",
    ),
    "process-runtime": Code(
        warning=True,
        remedy="To test it, preload the library that is named. To publish, build without it (-fsanitize and the like), "
        "or name it in `exclude` if every user's process has it.",
    ),
    "pybind11-internals": Code(
        warning=True,
        remedy="Compile it with torch's own pybind11, whose headers come first for what links torch, or take the "
        "release of pybind11 that torch contains.",
    ),
    "python-in-library": Code(
        warning=True,
        remedy="Leave out torch/extension.h and pybind11 (torch/library.h and ATen are enough): one library then "
        "serves every Python.",
    ),
    "python-tag": Code(remedy="Build the module with the Python that is in the names of its file and of its wheel."),
    "record-hash": Code(remedy=_REBUILD),
    "record-missing-file": Code(remedy=_REBUILD),
    "record-unknown-file": Code(remedy=_REBUILD),
    "rpath": Code(
        remedy="Use paths that begin with $ORIGIN and stay inside site-packages, or none. The hook's repair sets them.",
    ),
    "size": Code(
        remedy="Build fewer architectures or variants, compress device code (`cuda.compress`), or raise `max-size`.",
    ),
    "static-runtime": Code(
        remedy="Link the C++ runtime dynamically: take -static-libstdc++ (-static-libgcc, -static) out of the link "
        "options of the project and of LDFLAGS; where the compiler does it by itself, set CXX to another, or build in "
        "a manylinux image.",
    ),
    "static-tls": Code(
        warning=True,
        remedy='Take -ftls-model=initial-exec and tls_model("initial-exec") out of the sources and of static '
        "libraries that go into it (jemalloc and tcmalloc have an option for it), or allocate the large object.",
    ),
    "text-relocations": Code(
        remedy="Compile everything that goes into it with -fPIC (CMAKE_POSITION_INDEPENDENT_CODE=ON), static "
        "libraries too.",
    ),
    "this-processor": Code(
        warning=True,
        remedy="Take -march=native (-mcpu=native) out of the project's CMake files, of CXXFLAGS and the like; name "
        "what all users' processors have (-march=x86-64-v2), or choose among several at run time.",
    ),
    "torch-abi": Code(
        remedy="Compile everything with the _GLIBCXX_USE_CXX11_ABI of the torch that it is for (TORCH_CXX_FLAGS says "
        "it).",
    ),
    "undefined-symbol": Code(
        remedy="Compile against the torch release that it is for, and link the library that owns the symbol.",
    ),
    "unreadable-file": Code(remedy=_REBUILD),
    "unsafe-path": Code(remedy="Do not install the wheel unless you made it; build it with a known tool."),
    "unstable-symbol": Code(
        remedy="Where TORCH_EXT_STABLE_ABI is ON, compile only sources that use torch/csrc/stable and "
        "torch/headeronly, and link torch_stable; or remove `abi` from the entry.",
    ),
    "variant-label": Code(
        remedy="Cut the wheel again with `hatch-torch-ext variants`, and do not rename what it writes.",
    ),
    "version-needs": Code(
        remedy="Patch NEEDED and the version needs together (patchelf --replace-needed does both); the hook's repair "
        "does so.",
    ),
    "wheel-name": Code(remedy="Give the file its published name back, or build the wheel again."),
    "wheel-tag": Code(remedy="Name the wheel by the platform of the files inside it, never `any`."),
    "wrong-machine": Code(remedy="Build it for the machine that the wheel names."),
}

OF_THE_ARCHIVE = frozenset(code for code, kind in CODES.items() if kind.remedy == _REBUILD) | {
    "partial-wheel",
    "unsafe-path",
    "wheel-name",
    "wheel-tag",
}
"""Codes that protect the wheel as a file: no author can set them aside for others."""


def finding(
    code: str,
    file: str,
    message: str,
    *,
    variant: str | None = None,
    remedy: str | None = None,
    warning: bool | None = None,
) -> Finding:
    """Return a finding of ``code``; its remedy and weight are the table's unless given."""
    kind = CODES[code]
    return Finding(
        code=code, file=escape.name(file), message=escape.line(message), remedy=remedy or kind.remedy,
        variant=None if variant is None else escape.name(variant),
        warning=kind.warning if warning is None else warning,
    )  # fmt: skip


def some(names: Sequence[str]) -> str:
    """Return the first few of ``names``, and how many more there are."""
    return escape.few([*map(escape.name, names[:3]), *names[3:]])


def settle(findings: Iterable[Finding], *, ignore: Collection[str] = ()) -> tuple[Finding, ...]:
    """Return each finding once, without the ignored codes, the faults before the warnings, in a stable order.

    The first ones of each code are kept; one more finding, as severe as the most severe of the rest, says how many more
    there are. Raises ``ConfigurationError`` for a code that does not exist.
    """
    unknown = [code for code in ignore if code not in CODES]
    if unknown:
        raise ConfigurationError(*(_unknown(code) for code in unknown))
    kept = {found for found in findings if found.code not in ignore}
    counts: dict[str, int] = {}
    shown: list[Finding] = []
    rest: dict[str, Finding] = {}
    for found in sorted(kept, key=lambda each: (each.warning, each.variant or "", each.file, each.code, each.message)):
        counts[found.code] = counts.get(found.code, 0) + 1
        if counts[found.code] <= MOST:
            shown.append(found)
        else:
            rest.setdefault(found.code, found)
    more = [
        dataclasses.replace(first, file="other files", variant=None, message=f"{counts[code] - MOST} more of these")
        for code, first in rest.items()
    ]
    ordered = sorted((*shown, *more), key=lambda found: found.warning)
    shown, _ = escape.fitting(ordered, escape.JSON)
    if left_out := ordered[len(shown) :]:
        message = f"{len(left_out)} more findings, of this code and others; output is limited to 1 MB"
        shown.append(dataclasses.replace(left_out[0], file="other files", variant=None, message=message))
    return tuple(shown)


def _unknown(code: str) -> str:
    close = difflib.get_close_matches(code, CODES, n=1)
    hint = f"; did you mean `{close[0]}`?" if close else f". The codes are: {', '.join(sorted(CODES))}"
    return f"There is no audit code `{code}` to ignore{hint}"


def text(findings: Iterable[Finding]) -> str:
    """Return findings for a person: for each code its remedy once, then what is wrong file by file."""
    groups: dict[tuple[bool, str, str], list[Finding]] = {}
    for found in findings:
        groups.setdefault((found.warning, found.code, found.remedy), []).append(found)
    lines = []
    for (warning, code, remedy), members in sorted(groups.items()):
        lines.append(f"{'warning' if warning else 'fault'} {code}: {remedy}")
        lines += [f"  {found.file}: {found.message}" for found in members]
    return "\n".join(lines)
