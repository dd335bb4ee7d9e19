"""Small CMake projects over the ways in which extensions differ, and the pairs of them that are tried."""

from __future__ import annotations

import itertools
import shutil
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from allpairspy import AllPairs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Choice = dict[str, str]
"""Dimension -> the value that a project has in it."""

DIMENSIONS: dict[str, tuple[str, ...]] = {
    "registered": (
        "library",
        "fragment",
        "function",
        "impl",
        "class",
        "both",
        "fallback",
        "backend",
        "nothing",
    ),
    "form": ("shared", "module", "static", "object", "several"),
    "linked": (
        "default",
        "static runtime",
        "hidden",
        "exclude-libs",
        "lto",
        "Bsymbolic",
        "as-needed",
        "no-undefined",
        "gold",
        "lld",
        "mold",
    ),
    "language": ("unnamed", "C++14", "C++17", "C++20", "C++23"),
    "cmake": ("3.10", "3.18", "3.28", "4.0"),
    "runs": ("none", "post-build", "generator", "try_run", "stub"),
    "installed": ("library", "component", "version", "rpath", "headers", "package", "data"),
    "python": ("none", "module", "limited", "pybind11"),
    "torch": ("before", "after"),
}
TOOLS = {"gold": "ld.gold", "lld": "ld.lld", "mold": "mold"}
"""Linkers that a machine may lack, and the program of each."""

NAMESPACE = "oracle"


@dataclass(frozen=True, kw_only=True)
class Project:
    """Files of the folder ``csrc``, and how it is used by hand.

    ``opened`` are the installed libraries in the order in which a person opens them; ``module`` is the Python module;
    ``prelude`` is Python that runs before; ``probes`` are Python expressions.
    """

    choice: Choice
    files: Mapping[str, str]
    opened: Sequence[str]
    module: str | None = None
    prelude: str = ""
    probes: Sequence[str] = field(default=())

    @property
    def name(self) -> str:
        """Return the choice as one line."""
        return ", ".join(f"{dimension} {value}" for dimension, value in self.choice.items())


def choices(count: int | None = None, *, seed: int = 0) -> list[Choice]:
    """Return choices in which each pair of values that can meet does; with ``count``, the first of them.

    ``seed`` turns each dimension's values, so that other choices come first.
    """
    names = list(DIMENSIONS)
    values = []
    for name in names:
        there = [value for value in DIMENSIONS[name] if value not in TOOLS or shutil.which(TOOLS[value])]
        turn = seed % len(there)
        values.append([*there[turn:], *there[:turn]])
    found = [
        dict(zip(names, row, strict=True))
        for row in AllPairs(values, filter_func=lambda row: fit(dict(zip(names, row, strict=False))))
    ]
    # Where some values do not fit together, it leaves pairs out.
    found += _completion(found, dict(zip(names, values, strict=True)))
    return found if count is None else found[:count]


def _pairs(choice: Choice) -> set[frozenset[tuple[str, str]]]:
    """Return the pairs of values that are in a choice."""
    return {frozenset(pair) for pair in itertools.combinations(choice.items(), 2)}


def _completion(found: list[Choice], values: Mapping[str, list[str]]) -> list[Choice]:
    """Return further choices, which have the pairs that ``found`` lacks."""
    every = itertools.combinations([(name, value) for name in values for value in values[name]], 2)
    lacking = [dict(pair) for pair in every if pair[0][0] != pair[1][0] and fit(dict(pair))]
    missing = {frozenset(pair.items()) for pair in lacking}.difference(*map(_pairs, found))
    added = []
    for start in lacking:
        if frozenset(start.items()) not in missing:
            continue
        choice = dict(start)
        for name in values:
            if name not in choice:
                fitting = [value for value in values[name] if fit({**choice, name: value})]
                choice[name] = max(fitting, key=lambda value: len(_pairs({**choice, name: value}) & missing))
        ordered = {name: choice[name] for name in values}
        missing -= _pairs(ordered)
        added.append(ordered)
    return added


def fit(choice: Choice) -> bool:
    """Say whether the values can be in one project; ``choice`` may be a beginning of one."""
    form = choice.get("form")
    if form == "static" and choice.get("registered") in {"fallback", "backend", "nothing"}:
        return False  # says no more than the others
    return not (form == "module" and choice.get("installed") in {"version", "package"})


# --- sources

MARK = """
#include <cstdlib>
namespace { struct Mark { Mark() { setenv("ORACLE_OPENED", "1", 1); } }; Mark mark; }
"""
CHECKED = """
#include <sstream>
#include <stdexcept>
#include <string>
static int64_t answer(int64_t n) {
  TORCH_CHECK(n >= 0, "below zero by half: ", n + 0.5);
  if (n == 7) { std::ostringstream text; text << "seven and " << 1.5; throw std::runtime_error(text.str()); }
  try { if (n == 8) throw std::out_of_range("eight"); } catch (const std::exception&) { return -8; }
  return TWICE(n);
}
"""
REGISTERED = {
    "library": 'TORCH_LIBRARY(oracle, m) { m.def("answer(int n) -> int", &answer); }',
    "fragment": 'TORCH_LIBRARY_FRAGMENT(oracle, m) { m.def("answer(int n) -> int", &answer); }',
    "function": 'TORCH_LIBRARY(oracle, m) { m.def("answer", &answer); }',
    "impl": 'TORCH_LIBRARY_IMPL(oracle, CompositeExplicitAutograd, m) { m.impl("answer", &answer); }',
    "class": "TORCH_LIBRARY(oracle, m) {\n"
    '  m.class_<Counter>("Counter").def(torch::init<>()).def("next", &Counter::next); }',
    "both": 'TORCH_LIBRARY(oracle, m) { m.def("answer(int n) -> int", &answer);\n'
    '  m.class_<Counter>("Counter").def(torch::init<>()).def("next", &Counter::next); }',
    "fallback": "TORCH_LIBRARY_IMPL(_, PrivateUse2, m) { m.fallback(torch::CppFunction::makeFallthrough()); }",
    "backend": "namespace { struct Named {\n"
    '  Named() { c10::register_privateuse1_backend("oracledev"); }\n}; Named named; }',
    "nothing": 'extern "C" __attribute__((visibility("default"))) int64_t plain_answer(int64_t n) { return TWICE(n); }',
}
COUNTER = """
struct Counter : torch::CustomClassHolder {
  int64_t n = 0;
  int64_t next() { TORCH_CHECK(n < 2, "no more than ", 2.5); return ++n; }
};
"""
CALLS = {
    "operator": [f"torch.ops.oracle.answer({n})" for n in (3, -1, 7, 8)],
    "class": [
        "[torch.classes.oracle.Counter().next() for _ in range(2)]",
        "(lambda c: [c.next() for _ in range(3)])(torch.classes.oracle.Counter())",
    ],
}
PROBES = {
    **dict.fromkeys(("library", "fragment", "function", "impl"), CALLS["operator"]),
    "class": CALLS["class"],
    "both": [*CALLS["operator"], *CALLS["class"]],
    "fallback": [],
    "backend": ["torch._C._get_privateuse1_backend_name()"],
    "nothing": [],
}
MODULE = """
#include <Python.h>
#include <cstdint>
int64_t TWICE(int64_t n);
static PyObject* twice(PyObject*, PyObject* given) { return PyLong_FromLongLong(2 * PyLong_AsLongLong(given)); }
static PyMethodDef methods[] = {{"twice", twice, METH_O, ""}, {nullptr, nullptr, 0, nullptr}};
static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_C", nullptr, -1, methods, nullptr, nullptr, nullptr, nullptr};
PyMODINIT_FUNC PyInit__C() { return PyModule_Create(&definition); }
"""
PYBIND11 = """
#include <pybind11/pybind11.h>
PYBIND11_MODULE(_C, m) {
  m.def("twice", [](int n) { if (n < 0) throw pybind11::value_error("below zero"); return 2 * n; });
}
"""


def _source(registered: str) -> str:
    """Return the source that registers."""
    header = "torch/custom_class.h" if registered in {"class", "both"} else "torch/library.h"
    uses = CHECKED if registered in {"library", "fragment", "function", "impl", "both"} else ""
    counter = COUNTER if registered in {"class", "both"} else ""
    device = "#include <c10/core/DeviceType.h>\n" if registered == "backend" else ""
    # A function of the helper, or one of its own.
    twice = "#ifdef HAS_HELPER\nint64_t TWICE(int64_t n);\n#else\n"
    twice += "static int64_t TWICE(int64_t n) { return 2 * n; }\n#endif\n"
    unused = "[[maybe_unused]] static int64_t (*uses_twice)(int64_t) = &TWICE;\n"
    return f"#include <{header}>\n{device}{MARK}{twice}{unused}{uses}{counter}{REGISTERED[registered]}\n"


# --- CMakeLists.txt


def project(choice: Choice) -> Project:
    """Return the project of ``choice``."""
    kind, form, python = choice["registered"], choice["form"], choice["python"]
    lines = [f"cmake_minimum_required(VERSION {choice['cmake']})", "project(oracle LANGUAGES C CXX)"]
    files = {"ops.cpp": _source(kind)}
    if choice["language"] != "unnamed":
        lines += [f"set(CMAKE_CXX_STANDARD {choice['language'].removeprefix('C++')})"]
    if choice["linked"] == "lto":
        lines += ["set(CMAKE_INTERPROCEDURAL_OPTIMIZATION ON)"]
    if choice["linked"] == "hidden":
        lines += ["set(CMAKE_CXX_VISIBILITY_PRESET hidden)", "set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)"]
    lines += ["find_package(Torch REQUIRED)"]
    if python != "none" or choice["runs"] == "stub":
        wanted = "SABIModule" if python == "limited" else "Module"
        lines += [f"find_package(Python REQUIRED COMPONENTS Interpreter Development.{wanted})"]
    lines += _targets(form, files)
    targets, opened = ["oracle_ops"], ["liboracle_ops.so"]
    if form == "several":
        targets, opened = ["oracle_helper", "oracle_ops"], ["liboracle_helper.so", "liboracle_ops.so"]
    lines += [f"target_link_libraries(oracle_ops PRIVATE torch{' oracle_helper' * (form == 'several')})"]
    lines += _link_options(choice["linked"])
    lines += _runs(choice["runs"], files)
    module = None
    if python != "none":
        module = "_C"
        files["module.cpp"] = PYBIND11 if python == "pybind11" else MODULE
        sabi = "USE_SABI 3.9 " * (python == "limited")
        lines += [f"Python_add_library(_C MODULE {sabi}WITH_SOABI module.cpp)"]
        if python == "pybind11":
            lines += ["target_link_libraries(_C PRIVATE torch)"]
        targets += ["_C"]
    lines += _installed(choice["installed"], targets, files)
    prelude = ""
    if kind == "impl":
        prelude = 'library = torch.library.Library("oracle", "DEF"); library.define("answer(int n) -> int")'
    probes = [*PROBES[kind], *(["module.twice(21)", "module.twice('text')"] if module else [])]
    return Project(
        choice=choice,
        files={"CMakeLists.txt": "\n".join(lines) + "\n", **files},
        opened=opened,
        module=module,
        prelude=prelude,
        probes=probes,
    )


HELPER = "#include <cstdint>\nint64_t TWICE(int64_t n) { return 2 * n; }\n"


def _targets(form: str, files: dict[str, str]) -> list[str]:
    """Return the commands that make ``oracle_ops``."""
    if form in {"shared", "module"}:
        return [f"add_library(oracle_ops {form.upper()} ops.cpp)"]
    if form == "several":
        files["helper.cpp"] = HELPER.replace("int64_t TWICE", '__attribute__((visibility("default"))) int64_t TWICE')
        return [
            "add_library(oracle_helper SHARED helper.cpp)",
            "add_library(oracle_ops SHARED ops.cpp)",
            "target_compile_definitions(oracle_ops PRIVATE HAS_HELPER)",
            'set_target_properties(oracle_ops PROPERTIES INSTALL_RPATH "$ORIGIN")',
        ]
    kind = form.upper()
    files["entry.cpp"] = 'extern "C" __attribute__((visibility("default"))) int entry() { return 1; }\n'
    part = "$<TARGET_OBJECTS:oracle_core>" if form == "object" else ""
    return [
        f"add_library(oracle_core {kind} ops.cpp)",
        "set_target_properties(oracle_core PROPERTIES POSITION_INDEPENDENT_CODE ON)",
        "target_link_libraries(oracle_core PRIVATE torch)",
        f"add_library(oracle_ops SHARED entry.cpp {part})",
        *(["target_link_libraries(oracle_ops PRIVATE oracle_core)"] if form == "static" else []),
    ]


def _link_options(linked: str) -> list[str]:
    options = {
        "static runtime": "-static-libstdc++ -static-libgcc",
        "exclude-libs": "LINKER:--exclude-libs,ALL",
        "Bsymbolic": "LINKER:-Bsymbolic",
        "as-needed": "LINKER:--as-needed",
        "no-undefined": "LINKER:-z,defs",
        **{tool: f"-fuse-ld={tool}" for tool in TOOLS},
    }
    return [f"target_link_options(oracle_ops PRIVATE {options[linked]})"] if linked in options else []


def _runs(runs: str, files: dict[str, str]) -> list[str]:
    """Return the commands that run something of the project while it is built."""
    tool = "#include <c10/util/Exception.h>\n#include <cstdio>\nint main(int n, char** names) {\n"
    tool += '  try { TORCH_CHECK(n < 0, "ran"); } catch (const c10::Error&) { n += 40; }\n'
    tool += '  FILE* out = std::fopen(names[1], "w"); std::fprintf(out, "#define MADE %d\\n", n);\n'
    tool += "  return std::fclose(out); }\n"
    made = [
        "add_executable(oracle_tool tool.cpp)",
        "target_link_libraries(oracle_tool PRIVATE torch)",
    ]
    if runs == "post-build":  # without torch, so that the thin SDK can run it too
        files["tool.cpp"] = "#include <cstdio>\nint main(int, char** names) { std::remove(names[1]); return 0; }\n"
        return [made[0], "add_custom_command(TARGET oracle_tool POST_BUILD COMMAND oracle_tool made.h)"]
    if runs == "generator":
        files["tool.cpp"] = tool
        files["ops.cpp"] = f'#include "made.h"\nstatic_assert(MADE == 42);\n{files["ops.cpp"]}'
        target = "oracle_core" if "oracle_core" in "".join(files) else "oracle_ops"
        return [
            *made,
            "add_custom_command(OUTPUT made.h COMMAND oracle_tool made.h DEPENDS oracle_tool)",
            "add_custom_target(oracle_made DEPENDS made.h)",
            "foreach(target oracle_ops oracle_core)",
            "  if(TARGET ${target})",
            "    add_dependencies(${target} oracle_made)",
            "    target_include_directories(${target} PRIVATE ${CMAKE_CURRENT_BINARY_DIR})",
            "  endif()",
            f"endforeach() # {target}",
        ]
    if runs == "try_run":
        files["tried.cpp"] = tool
        return [
            "set(CMAKE_TRY_COMPILE_CONFIGURATION Quick)",
            "try_run(ran compiled ${CMAKE_CURRENT_BINARY_DIR} ${CMAKE_CURRENT_SOURCE_DIR}/tried.cpp",
            '  CMAKE_FLAGS "-DINCLUDE_DIRECTORIES=${TORCH_INCLUDE_DIRS}" -DCMAKE_CXX_STANDARD=20',
            "  LINK_LIBRARIES ${TORCH_INSTALL_PREFIX}/lib/libc10.so ARGS ${CMAKE_CURRENT_BINARY_DIR}/tried.h)",
            "if(NOT ran EQUAL 0)",
            '  message(FATAL_ERROR "the program ended with ${ran}")',
            "endif()",
        ]
    if runs == "stub":
        files["stub.py"] = (
            "import ctypes, sys\nctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)\n"
            "open(sys.argv[2], 'w').write('stub')\n"
        )
        return [
            "add_custom_command(TARGET oracle_ops POST_BUILD COMMAND ${Python_EXECUTABLE} "
            "${CMAKE_CURRENT_SOURCE_DIR}/stub.py $<TARGET_FILE:oracle_ops> stub.pyi)",
        ]
    return []


def _installed(installed: str, targets: list[str], files: dict[str, str]) -> list[str]:
    """Return the commands that install."""
    names = " ".join(targets)
    component = " COMPONENT runtime" * (installed == "component")
    lines = [f"install(TARGETS {names} LIBRARY DESTINATION .{component})"]
    if installed == "version":
        lines.insert(0, "set_target_properties(oracle_ops PROPERTIES VERSION 1.2.3 SOVERSION 1)")
    elif installed == "rpath":
        lines.insert(0, 'set_target_properties(oracle_ops PROPERTIES INSTALL_RPATH "$ORIGIN;/opt/nowhere/lib")')
    elif installed == "headers":
        files["oracle.h"] = "int entry();\n"
        lines.append("install(FILES oracle.h DESTINATION include)")
    elif installed == "package":
        lines = [
            f"install(TARGETS {names} EXPORT oracleTargets LIBRARY DESTINATION .)",
            "install(EXPORT oracleTargets DESTINATION share/cmake/oracle)",
        ]
    elif installed == "data":
        files["data.json"] = "{}\n"
        lines.append("install(FILES data.json DESTINATION share)")
    return lines
