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
        "hooks",
        "pass",
        "stable",
        "nothing",
    ),
    "form": ("shared", "module", "static", "object", "several", "another wheel"),
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
    "compiler": ("g++", "clang++"),
    "language": ("unnamed", "C++17", "C++20", "C++14", "C++23", "modules"),
    "cmake": ("3.10", "3.18", "3.28", "4.0"),
    "runs": ("none", "post-build", "tool", "stubs", "torch tool", "discovery", "try_run", "opening"),
    "installed": ("library", "component", "version", "rpath", "headers", "package", "data", "dependency"),
    "python": ("none", "module", "limited", "pybind11", "nanobind"),
    "torch": ("before", "after"),
}
TOOLS = {"gold": "ld.gold", "lld": "ld.lld", "mold": "ld.mold", "clang++": "clang++", "modules": "clang-scan-deps"}
"""What a machine may lack, and the program of each."""
NEEDS_TORCH = ("torch tool", "discovery", "opening")
"""What runs while the project is built and needs torch's libraries, which a thin SDK has not."""

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


EVERYWHERE = frozenset(TOOLS)


def lacking() -> frozenset[str]:
    """Return the values of dimensions that cannot be tried on this machine, since their program is not there."""
    return frozenset(value for value, program in TOOLS.items() if shutil.which(program) is None)


def choices(count: int | None = None, *, seed: int = 0, at_hand: frozenset[str] = EVERYWHERE) -> list[Choice]:
    """Return choices in which each pair of values that can meet does; with ``count``, the first of them.

    ``seed`` turns each dimension's values, so that other choices come first. More than there are pairs for is drawn
    with the seeds that follow. ``at_hand`` are those of ``TOOLS`` that may be used.
    """
    found = _drawn(seed, at_hand)
    while count is not None and len(found) < count:
        seed += 1
        found += [choice for choice in _drawn(seed, at_hand) if choice not in found]
    return found[:count]


QUICK: tuple[Choice, ...] = tuple(
    dict(zip(DIMENSIONS, row, strict=True))
    for row in (
        ("function", "module", "as-needed", "g++", "unnamed", "4.0", "post-build", "dependency", "limited", "before"),
        ("nothing", "object", "exclude-libs", "clang++", "C++14", "4.0", "none", "component", "none", "before"),
        ("fallback", "several", "exclude-libs", "g++", "C++23", "3.18", "try_run", "package", "module", "before"),
        ("stable", "shared", "lld", "clang++", "C++17", "3.18", "opening", "dependency", "module", "before"),
        ("fragment", "static", "no-undefined", "g++", "C++14", "3.28", "stubs", "version", "nanobind", "before"),
        ("backend", "module", "static runtime", "clang++", "C++20", "3.18", "post-build", "headers", "none", "before"),
        ("impl", "several", "gold", "g++", "C++17", "3.28", "post-build", "data", "limited", "before"),
        ("both", "another wheel", "mold", "g++", "C++14", "3.18", "tool", "headers", "module", "before"),
        ("library", "object", "lto", "g++", "C++23", "3.10", "opening", "library", "limited", "before"),
        ("hooks", "static", "gold", "clang++", "C++23", "4.0", "tool", "data", "none", "before"),
        ("pass", "shared", "hidden", "g++", "unnamed", "3.10", "discovery", "rpath", "none", "before"),
        ("class", "module", "hidden", "clang++", "modules", "3.28", "tool", "component", "pybind11", "before"),
        ("pass", "several", "Bsymbolic", "clang++", "C++20", "4.0", "torch tool", "version", "limited", "before"),
        ("hooks", "another wheel", "default", "clang++", "C++20", "3.10", "post-build", "rpath", "module", "after"),
    )
)
"""Each value at least once, in few projects that compile quickly; not each pair of values, as in ``choices``."""


def _drawn(seed: int, at_hand: frozenset[str]) -> list[Choice]:
    """Return the choices of one seed."""
    names = list(DIMENSIONS)
    values = []
    for name in names:
        there = [value for value in DIMENSIONS[name] if value not in TOOLS or value in at_hand]
        turn = seed % len(there)
        values.append([*there[turn:], *there[:turn]])
    found = [
        dict(zip(names, row, strict=True))
        for row in AllPairs(values, filter_func=lambda row: fit(dict(zip(names, row, strict=False))))
    ]
    # Where some values do not fit together, it leaves pairs out.
    return found + _completion(found, dict(zip(names, values, strict=True)))


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
    here = set(choice.items())
    if choice.get("form") == "static" and choice.get("registered") in {"fallback", "backend", "nothing"}:
        return False  # says no more than the others
    if choice.get("language") == "modules" and choice.get("cmake") in {"3.10", "3.18"}:
        return False
    if choice.get("runs") == "stubs" and choice.get("python") not in {"pybind11", "nanobind", None}:
        return False
    return not any(
        here >= set(pair)
        for pair in (
            (("form", "module"), ("installed", "version")),
            (("form", "module"), ("installed", "package")),
            (("form", "module"), ("runs", "discovery")),  # nothing links a module
            (("compiler", "g++"), ("language", "modules")),
            (("compiler", "clang++"), ("linked", "lto")),  # GNU ld has no plugin for it
            (("language", "modules"), ("linked", "lto")),
            (("form", "several"), ("language", "modules")),
            (("form", "another wheel"), ("language", "modules")),
        )
    )


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
  return oracle_twice(n);
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
    "hooks": "namespace { struct Hooks : at::PrivateUse1HooksInterface {\n"
    "  bool isBuilt() const override { return true; }\n  bool isAvailable() const override { return true; }\n"
    "  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }\n};\n"
    "struct Given { Given() { static Hooks hooks; at::RegisterPrivateUse1HooksInterface(&hooks); } }; Given given; }",
    "pass": "namespace torch::jit { struct Graph;\n"
    "C10_IMPORT unsigned int registerPostPass(std::function<void(std::shared_ptr<Graph>&)>); }\n"
    "static const unsigned int passes = torch::jit::registerPostPass(\n"
    '  [](std::shared_ptr<torch::jit::Graph>&) { setenv("ORACLE_PASSED", "1", 1); });',
    "stable": 'STABLE_TORCH_LIBRARY(oracle, m) { m.def("answer(int n) -> int"); }\n'
    "STABLE_TORCH_LIBRARY_IMPL(oracle, CompositeExplicitAutograd, m) "
    '{ m.impl("answer", TORCH_BOX(&answer)); }',
    "nothing": 'extern "C" __attribute__((visibility("default")))\n'
    "int64_t plain_answer(int64_t n) { return oracle_twice(n); }",
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
PASSED = "torch.jit.CompilationUnit('def f(x):\\n  return x + 1\\n')"
PROBES = {
    **dict.fromkeys(("library", "fragment", "function", "impl", "stable"), CALLS["operator"]),
    "class": CALLS["class"],
    "both": [*CALLS["operator"], *CALLS["class"]],
    "fallback": [],
    "backend": ["torch._C._get_privateuse1_backend_name()"],
    "hooks": ["torch.accelerator.is_available()", "str(torch.accelerator.current_accelerator())"],
    "pass": [
        f"[{PASSED}.f(torch.ones(1)).item() for _ in range(3)]",
        "__import__('ctypes').CDLL(None).getenv(b'ORACLE_PASSED') != 0",
    ],
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


NANOBIND = """
#include <nanobind/nanobind.h>
NB_MODULE(_C, m) {
  m.def("twice", [](int n) { if (n < 0) throw nanobind::value_error("below zero"); return 2 * n; });
}
"""
HEADERS = {
    **dict.fromkeys(("class", "both"), ("torch/custom_class.h",)),
    "backend": ("torch/library.h", "c10/core/DeviceType.h"),
    "hooks": ("ATen/detail/PrivateUse1HooksInterface.h",),
    "pass": ("c10/macros/Export.h", "functional", "memory"),
    "stable": ("torch/csrc/stable/library.h", "torch/headeronly/util/Exception.h"),
    "nothing": ("cstdint",),
}
ELSEWHERE = {"several": "twice_of_helper", "another wheel": "twice_of_wheel", "modules": "twice_of_module"}
"""Forms and languages that have the function in another library, or in a module; and its name there."""


def _source(kind: str) -> str:
    """Return the source that registers; the same in each project that registers this, so that a cache has it."""
    lines = [f"#include <{header}>" for header in HEADERS.get(kind, ("torch/library.h",))]
    lines += ["int64_t oracle_twice(int64_t n);", MARK]
    if kind in {"library", "fragment", "function", "impl", "both", "stable"}:
        lines += [CHECKED.replace("TORCH_CHECK", "STD_TORCH_CHECK" if kind == "stable" else "TORCH_CHECK")]
    if kind in {"class", "both"}:
        lines += [COUNTER]
    return "\n".join([*lines, REGISTERED[kind], ""])


def _twice(choice: Choice) -> str:
    """Return the source of the function that the registered one calls, which may be elsewhere."""
    names = [ELSEWHERE[value] for value in (choice["form"], choice["language"]) if value in ELSEWHERE]
    declared = f"int64_t {names[0]}(int64_t n);" if names else ""
    if choice["language"] == "modules":
        declared = "import oracle.part;"
    called = f"{names[0]}(n)" if names else "2 * n"
    return f"#include <cstdint>\n{declared}\nint64_t oracle_twice(int64_t n) {{ return {called}; }}\n"


# --- CMakeLists.txt


WHEELS = "@WHEELS@"
"""In a text, the folder of packages from which projects take a part."""


def project(choice: Choice) -> Project:
    """Return the project of ``choice``."""
    kind, form, python, runs = choice["registered"], choice["form"], choice["python"], choice["runs"]
    lines = [f"cmake_minimum_required(VERSION {choice['cmake']})", "project(oracle LANGUAGES CXX)"]
    files = {"ops.cpp": _source(kind)}
    if choice["language"] != "unnamed":
        lines += [f"set(CMAKE_CXX_STANDARD {choice['language'].removeprefix('C++').replace('modules', '20')})"]
    if choice["language"] == "modules":  # of gnu++20, clang 16 knows none
        lines += ["set(CMAKE_CXX_EXTENSIONS OFF)"]
    if choice["linked"] == "lto":
        lines += ["set(CMAKE_INTERPROCEDURAL_OPTIMIZATION ON)"]
    if choice["linked"] == "hidden":
        lines += ["set(CMAKE_CXX_VISIBILITY_PRESET hidden)", "set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)"]
    lines += ["find_package(Torch REQUIRED)"]
    if python != "none" or runs in {"opening", "stubs"}:
        wanted = "SABIModule" if python == "limited" else "Module"
        lines += [f"find_package(Python REQUIRED COMPONENTS Interpreter Development.{wanted})"]
    lines += _targets(choice, files)
    targets, opened = ["oracle_ops"], ["liboracle_ops.so"]
    if form == "several":
        targets, opened = ["oracle_helper", "oracle_ops"], ["liboracle_helper.so", "liboracle_ops.so"]
    lines += _link_options(choice["linked"])
    module = None
    if python != "none":
        module = "_C"
        lines += _module(python, files)
        targets += ["_C"]
    lines += _runs(choice, files)
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


def _module(python: str, files: dict[str, str]) -> list[str]:
    """Return the commands that make the Python module."""
    files["module.cpp"] = {"pybind11": PYBIND11, "nanobind": NANOBIND}.get(python, MODULE)
    if python == "nanobind":
        return [
            f'find_package(nanobind CONFIG REQUIRED PATHS "{WHEELS}/nanobind/cmake" NO_DEFAULT_PATH)',
            "nanobind_add_module(_C NB_STATIC NOMINSIZE module.cpp)",
        ]
    sabi = "USE_SABI 3.9 " * (python == "limited")
    lines = [f"Python_add_library(_C MODULE {sabi}WITH_SOABI module.cpp)"]
    return [*lines, "target_link_libraries(_C PRIVATE torch)"] if python == "pybind11" else lines


HELPER = (
    '#include <cstdint>\n__attribute__((visibility("default"))) int64_t twice_of_helper(int64_t n) { return 2 * n; }\n'
)
ENTRY = 'extern "C" __attribute__((visibility("default"))) int oracle_entry() { return 1; }\n'
PART = """module;
#include <cstdint>
export module oracle.part;
export int64_t twice_of_module(int64_t n) { return 2 * n; }
"""


def _targets(choice: Choice, files: dict[str, str]) -> list[str]:
    """Return the commands that make ``oracle_ops``."""
    form, lines = choice["form"], []
    files["entry.cpp"] = ENTRY
    files["twice.cpp"] = _twice(choice)
    core = form in {"static", "object"}
    if core:
        lines += [
            f"add_library(oracle_core {form.upper()} ops.cpp twice.cpp)",
            "set_target_properties(oracle_core PROPERTIES POSITION_INDEPENDENT_CODE ON)",
            "target_link_libraries(oracle_core PRIVATE torch)",
        ]
    part = "$<TARGET_OBJECTS:oracle_core>" if form == "object" else "" if core else "ops.cpp twice.cpp"
    lines += [f"add_library(oracle_ops {'MODULE' if form == 'module' else 'SHARED'} entry.cpp {part})"]
    lines += ["target_link_libraries(oracle_ops PRIVATE torch)"]
    rpath = ["$ORIGIN"]
    if form == "static":
        lines += ["target_link_libraries(oracle_ops PRIVATE oracle_core)"]
    elif form == "several":
        files["helper.cpp"] = HELPER
        lines += ["add_library(oracle_helper SHARED helper.cpp)"]
        lines += ["target_link_libraries(oracle_ops PRIVATE oracle_helper)"]
    elif form == "another wheel":
        folder = f"{WHEELS}/oracle_wheel/lib"
        rpath.append(folder)
        lines += [f'target_link_libraries(oracle_ops PRIVATE "{folder}/liboracle_wheel.so")']
    if choice["language"] == "modules":
        files["part.cppm"] = PART
        lines += [
            f"target_sources({'oracle_core' if core else 'oracle_ops'} PRIVATE "
            "FILE_SET modules TYPE CXX_MODULES FILES part.cppm)"
        ]
    if choice["installed"] == "dependency":
        files["dependency/CMakeLists.txt"] = (
            "add_library(oracle_dependency SHARED dependency.cpp)\n"
            "install(TARGETS oracle_dependency LIBRARY DESTINATION lib)\n"
            "install(FILES dependency.h DESTINATION include)\n"
        )
        files["dependency/dependency.h"] = "int dependency();\n"
        files["dependency/dependency.cpp"] = "int dependency() { return 1; }\n"
        files["entry.cpp"] += '#include "dependency/dependency.h"\nint uses_dependency() { return dependency(); }\n'
        rpath.append("$ORIGIN/lib")
        lines += [
            "include(FetchContent)",
            "FetchContent_Declare(oracle_fetched SOURCE_DIR ${CMAKE_CURRENT_SOURCE_DIR}/dependency)",
            "FetchContent_MakeAvailable(oracle_fetched)",
            "target_link_libraries(oracle_ops PRIVATE oracle_dependency)",
        ]
    elif choice["installed"] == "rpath":
        rpath.append("/opt/nowhere/lib")
    return [*lines, f'set_target_properties(oracle_ops PROPERTIES INSTALL_RPATH "{";".join(rpath)}")']


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


PLAIN_TOOL = """#include <cstdio>
int main(int n, char** names) {
  FILE* out = std::fopen(names[1], "w"); std::fprintf(out, "#define MADE %d\\n", n + 40); return std::fclose(out); }
"""
TORCH_TOOL = """#include <c10/util/Exception.h>
#include <cstdio>
int main(int n, char** names) {
  try { TORCH_CHECK(n < 0, "ran"); } catch (const c10::Error&) { n += 40; }
  FILE* out = std::fopen(names[1], "w"); std::fprintf(out, "#define MADE %d\\n", n); return std::fclose(out); }
"""
TESTS_OF_IT = """#include <cstdio>
extern "C" int oracle_entry();
int main(int n, char**) { return std::puts("Oracle.\\n  answers") < 0 || oracle_entry() != 1 || n < 2; }
"""
OPENING = """import ctypes, sys
ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)
open(sys.argv[2], 'w').write('opened')
"""


def _runs(choice: Choice, files: dict[str, str]) -> list[str]:  # noqa: PLR0911 -- one for each value
    """Return the commands that run something of the project while it is built."""
    runs = choice["runs"]
    tool = ["add_executable(oracle_tool tool.cpp)"]
    if runs == "post-build":
        files["tool.cpp"] = PLAIN_TOOL
        return [*tool, "add_custom_command(TARGET oracle_tool POST_BUILD COMMAND oracle_tool made.h)"]
    if runs in {"tool", "torch tool"}:
        files["tool.cpp"] = TORCH_TOOL if runs == "torch tool" else PLAIN_TOOL
        files["entry.cpp"] = f'#include "made.h"\nstatic_assert(MADE == 42, "");\n{files["entry.cpp"]}'
        if runs == "torch tool":
            tool += ["target_link_libraries(oracle_tool PRIVATE torch)"]
        return [
            *tool,
            "add_custom_command(OUTPUT made.h COMMAND oracle_tool made.h DEPENDS oracle_tool)",
            "target_sources(oracle_ops PRIVATE ${CMAKE_CURRENT_BINARY_DIR}/made.h)",
            "target_include_directories(oracle_ops PRIVATE ${CMAKE_CURRENT_BINARY_DIR})",
        ]
    if runs == "discovery":
        files["test.cpp"] = TESTS_OF_IT
        return [
            "enable_testing()",
            "include(GoogleTest)",
            "add_executable(oracle_test test.cpp)",
            "target_link_libraries(oracle_test PRIVATE oracle_ops)",
            "gtest_discover_tests(oracle_test)",
        ]
    if runs == "try_run":
        files["tried.cpp"] = TORCH_TOOL
        return [
            "if(NOT DEFINED ran)",
            "  set(CMAKE_TRY_COMPILE_CONFIGURATION Quick)",
            "  try_run(ran compiled ${CMAKE_CURRENT_BINARY_DIR} ${CMAKE_CURRENT_SOURCE_DIR}/tried.cpp",
            '    CMAKE_FLAGS "-DINCLUDE_DIRECTORIES=${TORCH_INCLUDE_DIRS}" -DCMAKE_CXX_STANDARD=20',
            "    LINK_LIBRARIES ${TORCH_INSTALL_PREFIX}/lib/libc10.so ARGS ${CMAKE_CURRENT_BINARY_DIR}/tried.h)",
            "endif()",
            "if(NOT ran EQUAL 0)",
            '  message(FATAL_ERROR "the program ended with ${ran}")',
            "endif()",
        ]
    if runs == "opening":
        files["opening.py"] = OPENING
        return [
            "add_custom_command(TARGET oracle_ops POST_BUILD COMMAND ${Python_EXECUTABLE} "
            "${CMAKE_CURRENT_SOURCE_DIR}/opening.py $<TARGET_FILE:oracle_ops> opened.txt)",
        ]
    if runs == "stubs":
        made = ["install(FILES ${CMAKE_CURRENT_BINARY_DIR}/_C.pyi DESTINATION .)"]
        if choice["python"] == "nanobind":
            made.insert(
                0, "nanobind_add_stub(oracle_stub MODULE _C OUTPUT _C.pyi PYTHON_PATH $<TARGET_FILE_DIR:_C> DEPENDS _C)"
            )
        else:
            made.insert(
                0,
                f'add_custom_command(TARGET _C POST_BUILD COMMAND ${{CMAKE_COMMAND}} -E env "PYTHONPATH={WHEELS}:'
                '$<TARGET_FILE_DIR:_C>" ${Python_EXECUTABLE} -m pybind11_stubgen _C -o .)',
            )
        return made
    return []


def _installed(installed: str, targets: list[str], files: dict[str, str]) -> list[str]:
    """Return the commands that install."""
    names = " ".join(targets)
    component = " COMPONENT runtime" * (installed == "component")
    lines = [f"install(TARGETS {names} LIBRARY DESTINATION .{component})"]
    if installed == "version":
        lines.insert(0, "set_target_properties(oracle_ops PROPERTIES VERSION 1.2.3 SOVERSION 1)")
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
