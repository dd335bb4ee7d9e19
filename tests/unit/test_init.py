"""``init`` after ``setup.py`` was recorded: recordings -> targets -> CMakeLists.txt, pyproject.toml and imports."""

from __future__ import annotations

import itertools
import os
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import tomlkit

import disk
from hatch_torch_ext import config
from hatch_torch_ext.base.errors import ConfigurationError, ProcessError
from hatch_torch_ext.init import (
    cmakelists,
    declared,
    imports,
    migrating,
    packing,
    pyproject,
    recording,
    served,
    splitting,
    targets,
)
from hatch_torch_ext.init import texts as project_texts
from hatch_torch_ext.init.recording import Extension, Recording
from hatch_torch_ext.init.served import FirstMatrix, MatrixOptions
from hatch_torch_ext.init.texts import Migration, Note

if TYPE_CHECKING:
    from pathlib import Path

    from hatch_torch_ext.init.targets import Target

MODULE = "PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {}\n"
LIBRARY = "TORCH_LIBRARY(pkg, m) {}\n"


def recorded(*extensions: Extension, **metadata: Any) -> Recording:
    """Return what a setup.py declares on one kind of machine."""
    return Recording(extensions=extensions, metadata=metadata, notes=())


def extension(name: str = "pkg._C", kind: str = "cpp", sources: tuple[str, ...] = ("a.cpp",), **more: Any) -> Extension:
    """Return one extension."""
    return Extension(name=name, kind=kind, sources=sources, **more)


def joined(
    root: Path, cpu: Recording | None, cuda: Recording | None = None, **files: str
) -> tuple[tuple[Target, ...], tuple[Note, ...]]:
    """Return targets and notes of a project with these files, `a.cpp` among them."""
    for name, text in {"a_cpp": MODULE, **files}.items():
        path = root / name.replace("__", "/").replace("_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return targets.join(root, cpu, cuda or cpu, package="pkg")


def texts(notes: tuple[Note, ...]) -> list[str]:
    """Return the texts of the notes."""
    return [note.text for note in notes]


def test_what_cuda_adds_is_apart(tmp_path: Path) -> None:
    """Sources, macros and flags that are declared only with CUDA are under `if(WITH_CUDA)`, the rest is common."""
    cpu = extension(macros=(("X", "1"),), cxx=("-O3",))
    cuda = extension(
        kind="cuda", sources=("a.cpp", "k.cu"), macros=(("X", "1"), ("WITH_CUDA", None)), cxx=("-O3",), nvcc=("-O2",)
    )
    (target,), notes = joined(tmp_path, recorded(cpu), recorded(cuda), k_cu="")
    assert notes == ()
    text = cmakelists.text("pkg", [target])
    head, _, rest = text.partition("if(WITH_CUDA)\n  target_sources(")
    assert "project(pkg LANGUAGES CXX)" in head
    assert "Python_add_library(_C MODULE WITH_SOABI\n  a.cpp\n)" in head
    assert "target_compile_definitions(_C PRIVATE X=1)" in head
    assert '"$<$<COMPILE_LANGUAGE:CXX>:-O3>"' in head
    assert rest == (
        "_C PRIVATE\n    k.cu\n  )\n  target_compile_definitions(_C PRIVATE WITH_CUDA)\n"
        '  target_compile_options(_C PRIVATE\n    "$<$<COMPILE_LANGUAGE:CUDA>:-O2>"\n  )\nendif()\n'
        "install(TARGETS _C LIBRARY DESTINATION .)\n"
    )


def test_files_of_cuda_on_both_faces_are_a_project_only_for_cuda(tmp_path: Path) -> None:
    """CMake ignores `.cu` without the language, and the module would lack what they define."""
    both = recorded(extension(kind="cuda", sources=("a.cpp", "k.cu")))
    (target,), _ = joined(tmp_path, both, k_cu="")
    assert targets.cuda_only(both, both)
    assert targets.cuda_only(None, both)
    assert not targets.cuda_only(both, None)
    text = cmakelists.text("pkg", [target], cuda_only=True)
    assert "project(pkg LANGUAGES CXX CUDA)" in text
    assert "WITH_CUDA" not in text


def test_a_library_differs_from_a_module_by_what_linux_compiles(tmp_path: Path) -> None:
    """`PyInit_` only for Windows makes no module: a library of operators serves every Python."""
    windows = "#ifdef _WIN32\nPyMODINIT_FUNC PyInit__C(void) { return NULL; }\n#endif\n" + LIBRARY
    (target,), _ = joined(tmp_path, recorded(extension()), a_cpp=windows)
    assert target.kind == "library"
    assert "add_library(_C SHARED" in cmakelists.text("pkg", [target])
    (target,), _ = joined(tmp_path, recorded(extension()), a_cpp=LIBRARY + MODULE)
    assert target.kind == "module"


def test_an_extension_whose_sources_are_made_later_is_a_module(tmp_path: Path) -> None:
    """Nothing says that it is a library, as whose import its users' would be taken away."""
    (target,), notes = joined(tmp_path, recorded(extension(sources=("made.cpp",))))
    assert target.kind == "module"
    assert texts(notes) == ["`pkg._C`: `made.cpp` does not exist: CMakeLists.txt has to make it"]


def test_of_two_that_register_the_same_one_is_built(tmp_path: Path) -> None:
    """`_x_cpu` and `_x_cuda` from one source would register its operators twice."""
    cpu = extension("pkg._x_cpu", sources=("x.cpp",))
    cuda = extension("pkg._x_cuda", "cuda", ("x.cpp", "x.cu"))
    found, _ = joined(tmp_path, recorded(cpu), recorded(cpu, cuda), x_cpp=LIBRARY, x_cu="")
    assert [(each.name, each.when) for each in found] == [("_x_cpu", "cpu"), ("_x_cuda", "cuda")]


@pytest.mark.parametrize(
    ("flags", "kept", "told"),
    [
        (("-gencode", "arch=compute_80,code=sm_80", "-O3"), ("-O3",), "architectures of CUDA are the option `archs`"),
        (("-gencode=arch=compute_80,code=sm_80",), (), "architectures of CUDA are the option `archs`"),
        (("-arch=sm_90",), (), "architectures of CUDA are the option `archs`"),
        (("-std=c++14", "-fPIC", "--threads", "4"), (), None),
        (("-march=native",), (), "`-march=native` makes code for the machine that builds, and a wheel runs on others"),
        (("-Xcompiler", "-fopenmp"), ("SHELL:-Xcompiler -fopenmp",), None),
        (("-diag-suppress", "20012,186", "-O3"), ("SHELL:-diag-suppress 20012,186", "-O3"), None),
        (("-rdc=true", "-O3"), ("-O3",), None),
        (("-rdc", "true", "-O3"), ("-O3",), None),
    ],
)
def test_flags(flags: tuple[str, ...], kept: tuple[str, ...], told: str | None, tmp_path: Path) -> None:
    """What a wheel cannot have, or CMake says otherwise, is left out; a flag keeps its value."""
    cuda = recorded(extension(kind="cuda", sources=("a.cu",), nvcc=flags))
    (target,), notes = joined(tmp_path, cuda, a_cu="")
    assert target.flags.nvcc == kept
    assert texts(notes) == ([told] if told else [])
    assert target.device_linked == flags[0].startswith("-rdc")
    text = cmakelists.text("pkg", [target])
    assert ("PROPERTIES CUDA_SEPARABLE_COMPILATION ON" in text) == target.device_linked


def test_flags_of_nvcc_where_nothing_is_for_it(tmp_path: Path) -> None:
    """One list of flags is for both compilers; a C++ extension has no lines for the other."""
    one = extension(cxx=("-fopenmp",), nvcc=("-fopenmp",), undefined=("NDEBUG",))
    (target,), _ = joined(tmp_path, recorded(one))
    assert (target.flags.cxx, target.flags.nvcc) == (("-fopenmp", "-UNDEBUG"), ())


def test_libraries_and_folders(tmp_path: Path) -> None:
    """Torch's come with its target, CUDA's are targets, and notes name those outside of the project."""
    one = extension(libraries=("torch", "c10", "cublas", "z"), library_dirs=("/opt/x/lib",), include_dirs=("inc", "."))
    one = replace(one, objects=("obj/x.o",), runtime_library_dirs=("$ORIGIN/../z",))
    (target,), notes = joined(tmp_path, recorded(one))
    assert target.flags.libraries == ("CUDA::cublas", "z", "${CMAKE_CURRENT_SOURCE_DIR}/obj/x.o")
    assert target.flags.include_dirs == ("inc", ".")
    assert texts(notes) == [
        "the RPATH `$ORIGIN/../z` is not carried over: INSTALL_RPATH of the target, where a library is found by it",
        "the folder `/opt/x/lib` is outside the project: find the library with find_package() instead",
    ]
    assert "find_package(CUDAToolkit REQUIRED)" in cmakelists.text("pkg", [target])


def test_what_is_not_carried_over_is_reported(tmp_path: Path) -> None:
    """Cython, files that something makes, and extensions of another package."""
    found, notes = joined(
        tmp_path,
        recorded(
            extension("pkg.fast", "other", ("fast.pyx",)),
            extension("pkg.slow", "other", ("slow.c",)),
            extension("pkg.made", sources=("gen/made.cpp",)),
            extension("other._C"),
            extension("pkg_more._D"),
        ),
        slow_pyx="",
    )
    assert texts(notes) == [
        "`pkg.fast` is made by Cython of `fast.pyx`: build it by hand in CMake",
        "`pkg.slow` is made by Cython of `slow.pyx`: build it by hand in CMake",
        "`pkg.made`: `gen/made.cpp` does not exist: CMakeLists.txt has to make it",
        "`other._C` is put into `pkg`, since a wheel's variants are in one package: import it from there",
        "`pkg_more._D` is put into `pkg`, since a wheel's variants are in one package: import it from there",
    ]
    assert [(each.name, each.destination) for each in found] == [("made", "."), ("_C", "."), ("_D", ".")]


def test_what_torchs_own_command_adds(tmp_path: Path) -> None:
    """What torch gives nvcc by itself is given here: without it, two operators compare values of `c10::Half`."""
    found, _ = joined(tmp_path, recorded(), recorded(extension("pkg._C", sources=("a.cpp", "b.cu"))))
    lines = cmakelists.text("pkg", found).splitlines()
    start = lines.index("add_compile_options(")
    assert [line.strip() for line in lines[start + 1 : lines.index(")", start)]] == [
        f'"$<$<COMPILE_LANGUAGE:CUDA>:{flag}>"' for flag in cmakelists.OF_NVCC
    ]
    assert start < lines.index("  Python_add_library(_C MODULE WITH_SOABI"), "an option of a target comes later"
    (cpu, _) = joined(tmp_path, recorded(extension("pkg._C", sources=("a.cpp",))))
    assert "add_compile_options" not in cmakelists.text("pkg", cpu)


def test_names_that_no_target_can_have(tmp_path: Path) -> None:
    """An empty part and a letter that CMake does not take are left out; of two by one name the last is built."""
    names = ("pkg._C", "pkg._C", "pkg._D.", "pkg/_E", "pkg._é")
    (target,), notes = joined(tmp_path, recorded(*(extension(each) for each in names)))
    assert target.dotted == "pkg._C"
    told = [each.partition(": ")[2] for each in texts(notes)]
    assert told == ["the last one is carried over", *["it is left out"] * 3]


def test_names_of_targets_are_their_own(tmp_path: Path) -> None:
    """Two of one name, and names that CMake or torch reserve, get another name in CMake; their files keep theirs."""
    found, _ = joined(
        tmp_path, recorded(extension("pkg.a._C"), extension("pkg.b._C"), extension("pkg.test"), extension("pkg.torch"))
    )
    assert [each.name for each in found] == ["pkg_a__C_ext", "pkg_b__C_ext", "pkg_test_ext", "pkg_torch_ext"]
    text = cmakelists.text("pkg", found)
    assert "set_target_properties(pkg_a__C_ext PROPERTIES\n  OUTPUT_NAME _C\n" in text
    assert "  LIBRARY_OUTPUT_DIRECTORY pkg_a__C_ext " in text  # Ninja builds a file by one rule
    assert (
        "target_compile_definitions(pkg_a__C_ext PRIVATE TORCH_EXTENSION_NAME=_C TORCH_API_INCLUDE_EXTENSION_H)" in text
    )
    assert "install(TARGETS pkg_a__C_ext LIBRARY DESTINATION a)" in text


def test_an_extension_without_torch_links_none(tmp_path: Path) -> None:
    """A plain C extension stays one."""
    (target,), _ = joined(
        tmp_path, recorded(extension("pkg.plain", "other", ("p.c",))), p_c="PyMODINIT_FUNC PyInit_plain"
    )
    text = cmakelists.text("pkg", [target])
    assert "LANGUAGES C CXX" in text
    assert "Torch::Python" not in text
    assert "TORCH_EXTENSION_NAME" not in text


@pytest.mark.parametrize(
    ("more", "tag", "abi", "told"),
    [
        ({"py_limited_api": True}, "", "3.9", ""),
        ({"py_limited_api": True}, "cp311-abi3", "3.11", ""),
        ({"macros": (("Py_LIMITED_API", "0x030A0000"),)}, "cp39-abi3", "3.10", "it is for 3.10 and later"),
        ({"macros": (("Py_LIMITED_API", None),)}, "cp310-abi3", "3.10", ""),
        ({"cxx": ("-DPy_LIMITED_API=0x03090000",)}, "", "3.9", ""),
        ({}, "cp39-abi3", None, "it is made for each Python"),
        ({}, "py3-none", None, "it is made for each Python"),
        ({}, "", None, ""),
    ],
)
def test_pythons_limited_api(more: dict[str, Any], tag: str, abi: str | None, told: str, tmp_path: Path) -> None:
    """A module on it is built once for all Pythons, from the oldest that the wheel's tag or a macro names."""
    recording = replace(recorded(extension(**more)), tag=tag)
    (target,), notes = joined(tmp_path, recording, a_cpp="PyMODINIT_FUNC PyInit__C(void)")
    assert target.python_abi == abi
    text = cmakelists.text("pkg", [target])
    assert (f"USE_SABI {abi}" in text) == (abi is not None)
    assert ("Development.SABIModule" in text) == (abi is not None)
    assert "Py_LIMITED_API" not in text  # USE_SABI defines it
    assert len(notes) == bool(told)
    assert all(f"`{tag}`" in each and each.endswith(told) for each in texts(notes))


def test_a_library_is_not_on_pythons_limited_api(tmp_path: Path) -> None:
    """Whatever its wheel's tag is, a library serves every Python."""
    recording = replace(recorded(extension(py_limited_api=True)), tag="cp39-abi3")
    (target,), notes = joined(tmp_path, recording, a_cpp=f"#include <torch/extension.h>\n{LIBRARY}")
    assert (target.kind, target.python_abi, notes) == ("library", None, ())


def test_pythons_limited_api_and_pybind11(tmp_path: Path) -> None:
    """pybind11 cannot use the limited API: the module is made for each Python, with a note."""
    (target,), notes = joined(tmp_path, recorded(extension(py_limited_api=True)))
    assert target.python_abi is None
    assert texts(notes) == [
        "`pkg._C` asks for Python's limited API, which pybind11 does not have: it is made for each Python"
    ]


def tables_of(text: str) -> dict[str, Any]:
    """Return TOML as plain values."""
    plain: dict[str, Any] = tomlkit.parse(text).unwrap()
    return plain


def rendered(root: Path, metadata: dict[str, Any], **more: Any) -> tuple[str, tuple[Note, ...]]:
    """Return the new pyproject.toml of a project with one module, and notes."""
    found, _ = joined(root, recorded(extension()))
    given: dict[str, Any] = {"existing": None, "package": "pkg", "targets": found, **more}
    contents = pyproject.Contents(root=root, metadata=metadata, matrix=served.matrix(["2.8"], ["3.11"]), **given)
    return pyproject.render(contents)


def written_tables(root: Path, metadata: dict[str, Any], found: tuple[Target, ...], **more: Any) -> dict[str, Any]:
    """Return the tables that are written."""
    return tables_of(rendered(root, metadata, targets=found, **more)[0])


def test_metadata_are_carried_over(tmp_path: Path) -> None:
    """What `setup()` is given becomes [project]; torch's requirement comes of the matrix."""
    found, _ = joined(tmp_path, recorded(extension()), README_md="", LICENSE="")
    tables = written_tables(
        tmp_path,
        {
            "name": "pkg", "version": "1.2", "description": "a\n b", "author": "A, B", "author_email": "a@x.org",
            "license": "Apache", "python_requires": ">=3.8", "keywords": "x, y", "url": "https://x.org",
            "install_requires": ["torch>=2", "numpy", "x @ git+https://x.org/x"],
            "extras_require": {"my-test": ["pytest"], "my_test": ["six"]},
            "packages": ["pkg", "pkg.sub", "more"], "py_modules": ["alone"],
            "entry_points": {"console_scripts": ["tool = pkg:main"]},
            "classifiers": ["License :: OSI Approved :: Apache Software License"],
        },
        found,
    )  # fmt: skip
    project = tables["project"]
    assert project == {
        "name": "pkg", "version": "1.2", "description": "a b", "readme": "README.md", "requires-python": ">=3.8",
        "license": {"text": "Apache"}, "license-files": ["LICENSE"], "keywords": ["x", "y"],
        "authors": [{"name": "A"}, {"name": "B"}, {"email": "a@x.org"}], "urls": {"Homepage": "https://x.org"},
        "classifiers": ["License :: OSI Approved :: Apache Software License"],
        "optional-dependencies": {"my-test": ["pytest", "six"]}, "scripts": {"tool": "pkg:main"},
        "dynamic": ["dependencies"],
    }  # fmt: skip
    hatch = tables["tool"]["hatch"]
    assert hatch["metadata"] == {
        "allow-direct-references": True,
        "hooks": {"torch-ext": {"dependencies": ["numpy", "x @ git+https://x.org/x"]}},
    }


def test_every_package_and_module_goes_along(tmp_path: Path) -> None:
    """As setuptools would install them all: the wheel has them too."""
    found, _ = joined(tmp_path, recorded(extension()), pkg____init___py="", more__a_py="", alone_py="")
    tables = written_tables(tmp_path, {"packages": ["more", "pkg", "gone"], "py_modules": ["alone"]}, found)
    assert tables["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"] == ["pkg", "more", "alone.py"]


def test_a_project_table_that_is_there_is_kept(tmp_path: Path) -> None:
    """Its fields and comments stay; a version that setuptools reads is written as hatch reads it."""
    existing = (
        '# mine\n[build-system]\nrequires = ["setuptools", "torch"]\n[project]\nname = "p"\ndynamic = ["version"]\n'
    )
    existing += 'dependencies = ["torch", "six"]\n[tool.ruff]\nline-length = 99\n'
    text, _ = rendered(tmp_path, {"version": "3"}, existing=existing)
    assert text.startswith("# mine\n")
    tables = tables_of(text)
    assert tables["build-system"]["requires"] == ["hatchling", "hatch-torch-ext"]
    assert tables["project"] == {"name": "p", "version": "3", "dynamic": ["dependencies"]}
    assert tables["tool"]["ruff"] == {"line-length": 99}
    assert tables["tool"]["hatch"]["metadata"]["hooks"]["torch-ext"]["dependencies"] == ["six"]


def test_what_setup_installs_besides_the_package(tmp_path: Path) -> None:
    """Scripts, data files, maintainers and entry points of every group have their place in pyproject.toml."""
    found, _ = joined(tmp_path, recorded(extension()))
    points = {"gui_scripts": ["win = pkg:win"], "torch.backends": ["own = pkg:own"], "console_scripts": []}
    metadata = {"scripts": ["bin/tool"], "data_files": [["share/pkg", ["data/a.txt"]], "b.txt"], "entry_points": points}
    tables = written_tables(tmp_path, {**metadata, "maintainer": ["M"], "maintainer_email": "m@x.org"}, found)
    assert tables["project"]["gui-scripts"] == {"win": "pkg:win"}
    assert tables["project"]["entry-points"] == {"torch.backends": {"own": "pkg:own"}}
    assert tables["project"]["maintainers"] == [{"name": "M", "email": "m@x.org"}]
    wheel = tables["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel["shared-scripts"] == {"bin/tool": "tool"}
    assert wheel["shared-data"] == {"data/a.txt": "share/pkg/a.txt", "b.txt": "b.txt"}


def test_what_a_project_table_leaves_to_setup_is_written_down(tmp_path: Path) -> None:
    """Hatchling fills no dynamic field: what setup() or a file says is in [project] itself."""
    found, _ = joined(tmp_path, recorded(extension()), README_md="")
    existing = '[project]\nname = "p"\nversion = "1"\ndynamic = ["description", "dependencies", "readme", "urls"]\n'
    metadata = {"description": "d", "install_requires": ["six"]}
    tables = written_tables(tmp_path, metadata, found, existing=existing)
    expected = {"name": "p", "version": "1", "description": "d", "readme": "README.md"}
    assert tables["project"] == {**expected, "dynamic": ["dependencies", "urls"]}
    assert tables["tool"]["hatch"]["metadata"]["hooks"]["torch-ext"]["dependencies"] == ["six"]


def test_a_package_in_a_namespace(tmp_path: Path) -> None:
    """The namespace is shared with other projects: no `__init__.py` is put into it, and the wheel has its folders."""
    found, _ = joined(tmp_path, recorded(extension("space.pkg._C")), src__space__pkg____init___py="")
    metadata = {"package_dir": {"": "src"}, "packages": ["space.pkg"]}
    tables = written_tables(tmp_path, metadata, found, package="space.pkg")
    assert tables["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"] == ["src/space"]
    (tmp_path / "setup.py").write_text(
        "from setuptools import setup\nfrom torch.utils.cpp_extension import CppExtension\n"
        "setup(name='x', package_dir={'': 'src'}, packages=['space.pkg'],\n"
        "      ext_modules=[CppExtension('space.pkg._C', ['a.cpp'])])\n",
        encoding="utf-8",
    )
    (tmp_path / "src" / "space" / "pkg" / "__init__.py").touch()
    migration = migrating.migrate(tmp_path, options=MatrixOptions(torch=["2.13"]))
    assert [name for name, _ in migration.files if name.endswith(".py")] == ["src/space/pkg/__init__.py"]
    assert 'package = "space.pkg"' in dict(migration.files)["pyproject.toml"]
    assert "install(TARGETS _C LIBRARY DESTINATION .)" in dict(migration.files)["CMakeLists.txt"]
    beside = recorded(extension("_C"), name="x", **metadata)  # the extension is beside the package
    assert declared.of(tmp_path, beside, beside).package == "space.pkg"


def test_the_matrix(tmp_path: Path) -> None:
    """Pythons if a module needs them; with CUDA, the releases whose compiler is on the index, and that compiler."""
    (module,), _ = joined(tmp_path, recorded(extension()))
    assert targets.for_each_python([module])
    assert not targets.for_each_python([replace(module, kind="library"), replace(module, python_abi="3.9")])
    assert served.matrix(["2.8", "2.13"]) == {"matrix": [{"torch": ["2.8", "2.13"]}]}
    assert served.matrix(["2.8"], ["3.11"]) == {"matrix": [{"torch": ["2.8"], "python": ["3.11"]}]}
    compiler = {"value": "cuda-toolkit[nvcc,cudart,cccl]==13.0.*", "if": ["cu130"]}
    assert served.matrix(["2.8", "2.13"], (), ("cpu", "cuda")) == {
        "matrix": [{"torch": ["2.8"], "cuda": ["cpu"]}, {"torch": ["2.13"], "cuda": ["cpu", "cu130"]}],
        "overrides": {"matrix": {"cuda": {"extra-dependencies": [compiler]}}},
    }
    only_cuda = served.matrix(["2.8", "2.13"], (), ("cuda",))
    assert only_cuda["matrix"] == [{"torch": ["2.13"], "cuda": ["cu130"]}]
    assert served.matrix(["2.8"], (), ("cuda",))["matrix"] == [{"torch": ["2.8"]}]
    newer = served.matrix(["2.14", "2.15"], (), ("cpu", "cuda"))
    assert newer["matrix"] == [
        {"torch": ["2.14"], "cuda": ["cpu", "cu130"]},
        {"torch": ["2.15"], "cuda": ["cpu", "cu132"]},
    ]
    assert newer["overrides"]["matrix"]["cuda"]["extra-dependencies"] == [
        compiler,
        {"value": "cuda-toolkit[nvcc,cudart,cccl]==13.2.*", "if": ["cu132"]},
    ]
    assert served.with_compiler(["2.8", "2.9", "2.11", "2.99"]) == {"2.11": "13.0", "2.99": "13.2"}


def test_pythons_that_are_named() -> None:
    """Classifiers or a range name them, as far as the chosen releases have them; else all that those have."""
    every = served.admitted_pythons({}, ["2.8", "2.9"])
    assert every == ["3.10", "3.11", "3.12", "3.13"]
    assert (
        served.admitted_pythons({"classifiers": ["Programming Language :: Python :: 3.10"]}, ["2.8", "2.9"])
        == every[:1]
    )
    assert served.admitted_pythons({"classifiers": ["Programming Language :: Python :: 3.5"]}, ["2.8", "2.9"]) == every
    assert served.admitted_pythons({"python_requires": ">=3.8,<3.12"}, ["2.8", "2.9"]) == every[:2]
    assert served.admitted_pythons({"python_requires": "<3"}, ["2.8", "2.9"]) == every


def test_releases_that_are_named() -> None:
    """The project's requirement of torch chooses among all releases; without one, the newest are taken."""
    newest = served.torch_releases()
    assert len(newest) == served.NEWEST
    assert served.torch_specifier(["numpy", "not one!", "torch"]) is None
    assert served.torch_releases(served.torch_specifier(["numpy", "Torch>=2.0,<2.4"])) == [
        "2.0",
        "2.1",
        "2.2",
        "2.3",
    ]
    assert served.torch_releases(served.torch_specifier(["torch==2.3.1"])) == ["2.3"]
    assert served.torch_releases(served.torch_specifier(["torch>=1.4"])) == newest
    assert served.torch_releases(served.torch_specifier(["torch==1.7"])) == []


@pytest.mark.parametrize(
    ("existing", "metadata", "written"),
    [
        ('[tool.setuptools.dynamic]\nversion = {attr = "pkg.about.__version__"}', {}, "3.4"),
        ('[tool.setuptools.dynamic]\nversion = {file = "VERSION"}', {}, "5.6"),
        ('[tool.setuptools_scm]\nlocal_scheme = "no-local-version"\nversion_file = "pkg/_v.py"', {}, None),
        (
            "",
            {"use_scm_version": {"local_scheme": "no-local-version", "write_to": "pkg/_v.py", "root": None}},
            None,
        ),
    ],
    ids=["an attribute", "a file", "tags", "tags, by setup()"],
)
def test_a_version_that_is_read(existing: str, metadata: dict[str, Any], written: str | None, tmp_path: Path) -> None:
    """Hatch reads the version at the place where setuptools does, without a note."""
    found, _ = joined(tmp_path, recorded(extension()), src__pkg__about_py="", VERSION="5.6\n")
    (tmp_path / "src" / "pkg" / "about.py").write_text("__version__: str = '3.4'\n", encoding="utf-8")
    existing = f'[project]\nname = "p"\ndynamic = ["version"]\n{existing}\n'
    assert pyproject.versioned(existing, metadata, tmp_path)
    assert not pyproject.versioned('[project]\nname = "p"\ndynamic = ["version"]\n', {}, tmp_path)
    tables = written_tables(tmp_path, metadata, found, existing=existing)
    assert tables["project"] == {"name": "p", "dynamic": ["dependencies", "version"]}
    asked = tables["tool"]["hatch"]["version"]
    if written is None:
        assert asked == {"source": "vcs", "raw-options": {"local_scheme": "no-local-version"}}
        assert tables["tool"]["hatch"]["build"]["hooks"] == {"vcs": {"version-file": "pkg/_v.py"}}
        assert "hatch-vcs" in tables["build-system"]["requires"]
    else:
        text = (tmp_path / asked["path"]).read_text(encoding="utf-8")
        match = re.search(asked["pattern"], text, re.MULTILINE)
        assert match is not None
        assert match["version"] == written


def test_a_package_whose_folder_has_another_name(tmp_path: Path) -> None:
    """`package_dir` gives the folder `frameworks/torch` the name `pkg`: the wheel has it under that name."""
    found, _ = joined(tmp_path, recorded(extension()), frameworks__torch____init___py="", src__more__x_py="")
    metadata = {"package_dir": {"pkg": "frameworks/torch", "": "src"}, "packages": ["pkg", "more"]}
    wheel = written_tables(tmp_path, metadata, found)["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel["only-include"] == ["frameworks/torch", "src/more"]
    assert wheel["sources"] == {"frameworks/torch": "pkg", "src": ""}
    assert "packages" not in wheel


def test_a_folder_of_a_package_that_ends_in_a_slash(tmp_path: Path) -> None:
    """`package_dir` of setuptools may name `src/py/` or `./src/py`: its `__init__.py` is found."""
    for named in ("src/py/", "./src/py", "src/py"):
        assert pyproject.package_folder({"package_dir": {"pkg": named}}, "pkg", tmp_path) == "src/py"


BETWEEN = """[tool.black]
text = '''
[a]
'''
[tool.ruff]
line-length = 99
[project.optional-dependencies]
a = []"""


def test_tables_are_apart(tmp_path: Path) -> None:
    """An empty line is before each table that is added, also where other tables follow; the author's lines stay."""
    text, _ = rendered(tmp_path, {"name": "p", "version": "3"}, existing=BETWEEN)
    together = {line for last, line in itertools.pairwise(text.splitlines()) if line.startswith("[") and last.strip()}
    assert together == {"[a]", "[tool.ruff]"}
    assert tables_of(text)["tool"]["black"] == {"text": "[a]\n"}
    assert text.endswith("\n")


def test_extensions_that_no_target_is_made_of(tmp_path: Path) -> None:
    """One without sources is built by a command of the project; SYCL has no variant: both are noted."""
    own, sycl = extension("pkg.own", "other", ()), extension("pkg.x", "sycl")
    found, notes = joined(tmp_path, recorded(own, sycl, extension()))
    assert [each.name for each in found] == ["_C"]
    assert texts(notes) == [
        "`pkg.own` names no sources, so that a command of the project builds it: add its target to CMake",
        "`pkg.x` is for SYCL, which no variant is built for: it is left out",
    ]


@pytest.mark.performs("in the hook's table")
def test_a_file_with_torchs_version_is_each_variants_own(tmp_path: Path) -> None:
    """CMake writes it as setup.py does, with what CUDA changes; a copy that is there is not packed."""
    disk.write(tmp_path, {"a.cpp": MODULE, "setup.py": "'1.5'", "pkg/__init__.py": "", "pkg/_built.py": "TORCH = '2'"})
    written = ("pkg/_built.py", "TORCH = '@Torch_VERSION@'\nX = [[1]=]\n"), ("elsewhere.py", "'@Torch_VERSION@'")
    notes = tuple(Note(line=0, text=f"writes `{name}` while it runs") for name, _ in written)
    packed = tuple((name, name) for name in ("pkg/__init__.py", "pkg/_built.py"))
    metadata = {"name": "pkg", "version": "1.5", "packages": ["pkg"]}
    cpu = Recording(extensions=(extension(),), metadata=metadata, notes=notes, packed=packed, stamps=written)
    cuda = replace(cpu, stamps=(("pkg/_built.py", "TORCH = '@Torch_VERSION@'\nCUDA = True\n"),))
    found = migrating.assemble(tmp_path, cpu, cuda, [], options=MatrixOptions(torch=["2.13"], pythons=["3.11"]))
    files = dict(found.files)
    assert 'exclude = ["/pkg/_built.py"]' in files["pyproject.toml"]
    assert files["CMakeLists.txt"].endswith(f"""\

{cmakelists.WHY}
file(CONFIGURE OUTPUT _built.py @ONLY CONTENT [=[
TORCH = '@Torch_VERSION@'
CUDA = True
]=])
install(FILES ${{CMAKE_CURRENT_BINARY_DIR}}/_built.py DESTINATION .)
""")
    assert [note.text for note in found.notes] == ["writes `elsewhere.py` while it runs"]
    (stamp,) = cmakelists.stamps_of(cpu, cuda, "pkg")
    assert "\n".join(cmakelists._stamped([stamp], with_cuda=True)).startswith(f"""
{cmakelists.WHY}
if(WITH_CUDA)
file(CONFIGURE OUTPUT _built.py @ONLY CONTENT [=[
TORCH = '@Torch_VERSION@'
CUDA = True
]=])
else()
file(CONFIGURE OUTPUT _built.py @ONLY CONTENT [==[
TORCH = '@Torch_VERSION@'
X = [[1]=]
]==])
endif()
""")


def test_an_extension_of_the_projects_own_cmake_project(tmp_path: Path) -> None:
    """The folder of that project is named, not one of somebody else's, and how it is built: beside others, or alone.

    Where it is alone, the option that the message gives names it.
    """
    files = {"third-party__CMakeLists_txt": "project(x)", "csrc__CMakeLists_txt": "PROJECT (own CXX)\n"}
    files |= {"csrc__sub__CMakeLists_txt": "project(below)", "cmake__CMakeLists_txt": "add_library(no_project x.c)"}
    own = extension("pkg.own", "other", ())
    _, beside = joined(tmp_path, recorded(own, extension()), None, **files)
    told = (
        "`pkg.own` names no sources, so that a command of the project builds it: there is a CMake project in `csrc`: "
    )
    assert texts(beside) == [f"{told}`add_subdirectory(csrc)`, and `install()` what it makes"]
    _, alone = joined(tmp_path, recorded(own))
    assert texts(alone) == [
        f'{told}keep that, with `source = "csrc"` in the hook\'s table, and `install()` what it makes'
    ]
    (tmp_path / "pkg").mkdir()
    table = tomlkit.parse(texts(alone)[0].split("`")[-4]).unwrap()
    assert config.parse(table, root=tmp_path, project_name="pkg", environ={}).source == tmp_path / "csrc"


def test_what_only_the_face_without_cuda_has(tmp_path: Path) -> None:
    """A flag or macro with another value without CUDA is under `else`; a project only for CUDA has no condition."""
    cpu = extension(macros=(("GPU", "0"),), cxx=("-DFAST=0",))
    cuda = extension(kind="cuda", sources=("a.cpp", "k.cu"), macros=(("GPU", "1"),), cxx=("-DFAST=1",))
    found, _ = joined(tmp_path, recorded(cpu), recorded(cuda))
    _, _, conditional = cmakelists.text("pkg", found).partition("\nif(WITH_CUDA)\n")
    assert conditional.split("endif()")[0].split() == [
        "target_sources(_C", "PRIVATE", "k.cu", ")",
        "target_compile_definitions(_C", "PRIVATE", "GPU=1)",
        "target_compile_options(_C", "PRIVATE", '"$<$<COMPILE_LANGUAGE:CXX>:-DFAST=1>"', ")",
        "else()",
        "target_compile_definitions(_C", "PRIVATE", "GPU=0)",
        "target_compile_options(_C", "PRIVATE", '"$<$<COMPILE_LANGUAGE:CXX>:-DFAST=0>"', ")",
    ]  # fmt: skip
    alone = cmakelists.text("pkg", found, cuda_only=True)
    assert "WITH_CUDA" not in alone
    assert "GPU=1" in alone
    assert "GPU=0" not in alone


def test_flags_of_an_extension_in_c(tmp_path: Path) -> None:
    """C gets them too, the standard with them where torch asks for none; folders of libraries go along."""
    plain = extension("pkg.p", "other", ("p.c",), cxx=("-std=c99", "-O1"), library_dirs=("lib", "/opt/lib"))
    found, notes = joined(tmp_path, recorded(plain), p_c="PyMODINIT_FUNC PyInit_p(void)")
    text = cmakelists.text("pkg", found)
    assert '"$<$<COMPILE_LANGUAGE:C,CXX>:-std=c99>"' in text
    assert '"$<$<COMPILE_LANGUAGE:C,CXX>:-O1>"' in text
    assert "target_link_directories(p PRIVATE lib)" in text
    assert texts(notes) == [
        "the folder `/opt/lib` is outside the project: find the library with find_package() instead"
    ]


def test_headers_of_python_packages(tmp_path: Path) -> None:
    """Those of numpy come with CMake's target; pybind11's with torch, or with pybind11 where torch is not used."""
    both = ("numpy", "pybind11")
    found, notes = joined(tmp_path, recorded(extension(packages=both), extension("pkg.p", "other", packages=both)))
    assert notes == ()
    text = cmakelists.text("pkg", found)
    assert "find_package(Python REQUIRED COMPONENTS Interpreter Development.Module NumPy)" in text
    assert "target_link_libraries(_C PRIVATE Python::NumPy)" in text
    assert "find_package(pybind11 CONFIG REQUIRED)" in text
    assert "target_link_libraries(p PRIVATE Python::NumPy pybind11::headers)" in text
    assert "pybind11" in written_tables(tmp_path, {}, found)["tool"]["hatch"]["envs"]["matrix"]["dependencies"]
    _, notes = joined(tmp_path, recorded(extension(packages=("other_headers",))))
    assert texts(notes) == ["headers of the Python package `other_headers` are not carried over: find them in CMake"]


def test_macros_of_torch_are_each_torchs_own(tmp_path: Path) -> None:
    """The C++ ABI of the recording torch is not carried over: the wheel is for several."""
    macros = (("_GLIBCXX_USE_CXX11_ABI", "0"), ("TORCH_EXTENSION_NAME", "_C"), ("MINE", None))
    flags = ("-D_GLIBCXX_USE_CXX11_ABI=0", "-DTORCH_API_INCLUDE_EXTENSION_H", "-O3")
    (target,), notes = joined(tmp_path, recorded(extension(macros=macros, cxx=flags)))
    assert (target.flags.macros, target.flags.cxx, notes) == (("MINE",), ("-O3",), ())


def test_operators_under_the_name_of_the_extension(tmp_path: Path) -> None:
    """`TORCH_LIBRARY(TORCH_EXTENSION_NAME, m)` alone makes no module, and needs that name."""
    text = "TORCH_LIBRARY(TORCH_EXTENSION_NAME, m) {}\nTORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, m) {}\n"
    (target,), _ = joined(tmp_path, recorded(extension()), a_cpp=text)
    assert target.kind == "library"
    assert "target_compile_definitions(_C PRIVATE TORCH_EXTENSION_NAME=_C)" in cmakelists.text("pkg", [target])


MATRIX = FirstMatrix(torch=("2.8", "2.9", "2.10", "2.11"), pythons=("3.11", "3.12", "3.13"), backends=())
SENTENCE = "the wheel has the operators in 4 files instead of 12, which serve every Python, and C++ programs"


def test_a_library_and_a_module_by_one_name(tmp_path: Path) -> None:
    """Told without `--split`; with it two targets, by what each file makes, and operators keep their namespace."""
    sources = ("ops.cpp", "bind.cpp")
    cuda = recorded(extension(kind="cuda", sources=(*sources, "k.cu"), macros=(("X", None),)))
    cpu = recorded(extension(sources=sources, macros=(("X", None),)))
    ops = "TORCH_LIBRARY(TORCH_EXTENSION_NAME, m) {}\n"
    found, _ = joined(tmp_path, cpu, cuda, ops_cpp=ops, bind_cpp=MODULE, k_cu="")
    same, notes = splitting.part(tmp_path, found, package="pkg", matrix=MATRIX, write=False)
    assert same == found
    assert texts(notes) == [
        f"`pkg._C` registers operators and has functions for Python: `init --split` splits it, and {SENTENCE}"
    ]
    (library, module), notes = splitting.part(tmp_path, found, package="pkg", matrix=MATRIX, write=True)
    assert texts(notes) == [
        f"`pkg._C` is split: in `pkg_c_ops` {SENTENCE}; the module keeps what bind.cpp has for Python, in 12 files"
    ]
    assert (library.kind, library.sources, library.cuda_sources) == ("library", ("ops.cpp",), ("k.cu",))
    assert (module.kind, module.sources, module.cuda_sources) == ("module", ("bind.cpp",), ())
    text = cmakelists.text("pkg", (library, module))
    assert "target_compile_definitions(pkg_c_ops PRIVATE X TORCH_EXTENSION_NAME=_C)" in text
    assert "target_link_libraries(_C PRIVATE pkg_c_ops)" in text


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            f'{LIBRARY}\nPYBIND11_MODULE(_C, m) {{\n  m.def("f", &f);\n}}\n',
            "in one file: move the module (a.cpp:3) into a separate file, then `init --split --force` splits it: ",
        ),
        (
            f"{LIBRARY}\nPYBIND11_MODULE(_C, m) {{\n}}\n",
            "operators, and the Python module that a.cpp:3 makes is empty: without it, _C is a library, and ",
        ),
        (
            'extern "C" PyObject *PyInit__C(void) {\n  static struct PyModuleDef d = {};\n  return '
            'PyModule_Create(&d);\n}\nTORCH_LIBRARY(pkg, m) {\n  m.def("f() -> ()");\n}\n',
            "operators, and the Python module that a.cpp:1 makes is empty: without it, _C is a library, and ",
        ),
        (
            'extern "C" PyObject *PyInit__C(void) { return PyModule_Create(&d); }\n'
            'TORCH_LIBRARY(pkg, m) { m.def("f() -> ()"); if (true) { m.impl("f", &f); } }\n',
            "operators, and the Python module that a.cpp:1 makes is empty: without it, _C is a library, and ",
        ),
    ],
    ids=["functions", "an empty module", "an empty module in C", "an empty module in C on one line"],
)
def test_one_file_with_both(text: str, told: str, tmp_path: Path) -> None:
    """Code is the author's: the place is named, and nothing is changed."""
    found, _ = joined(tmp_path, recorded(extension()), a_cpp=text)
    for write in (False, True):
        same, notes = splitting.part(tmp_path, found, package="pkg", matrix=MATRIX, write=write)
        assert same == found
        assert len(notes) == 1
        assert told in notes[0].text
        assert SENTENCE in notes[0].text


INIT = '''"""Docs."""
from __future__ import annotations

import torch
torch.ops.load_library("x.so")
import _C
from _C import f
'''


def test_imports_are_changed(tmp_path: Path) -> None:
    """Code that opens libraries is removed; the variant is loaded first; modules beside the package move into it."""
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "__init__.py").write_text(INIT, encoding="utf-8")
    later = "def load():\n    import torch\n    torch.ops.load_library('y')\n\ndef g():\n    import _C as c\n"
    (tmp_path / "pkg" / "later.py").write_text(later, encoding="utf-8")
    (tmp_path / "pkg" / "latin.py").write_bytes(b"x = '\xe4'\n")
    found, _ = joined(tmp_path, recorded(extension("_C")))
    changes, notes = imports.change(tmp_path, "pkg", "pkg", found)
    assert {each.name: each.text for each in changes} == {
        "pkg/__init__.py": '"""Docs."""\nfrom __future__ import annotations\n\nfrom pkg import _variants\n\n'
        "_variants.load()\n\nimport torch\nfrom pkg import _C\nfrom pkg._C import f\n",
        "pkg/later.py": later.replace("import _C as c", "from pkg import _C as c"),
    }
    assert [text.partition(" (")[0] for text in texts(notes)] == [
        "pkg/later.py:1: `load` opens a library, which `_variants.load()` has opened already: remove its calls",
        "`pkg/latin.py` cannot be read",
    ]


@pytest.mark.parametrize(
    ("line", "changed"),
    [
        ("from . import _ops; from .other import add", "from .other import add"),
        ("from .other import add; from . import _ops", "from .other import add"),
        ("from .other import add; from . import _ops;", "from .other import add"),
        ("from . import _ops; from pkg import _ops as o; add = 1", "add = 1"),
        ("if True: from . import _ops; from pkg import _ops as o", "if True: pass  # _variants.load() has opened it"),
        ("if True: from . import _ops; add = 1", "if True: add = 1"),
        ("from . import _ops, other; add = other.f  # ä", "from . import other; add = other.f  # ä"),
        ("add = 'ä'; from . import _ops  # why", "add = 'ä'  # why"),
        ("from . import _ops  # noqa: F401", ""),
        ("from . import _ops;", ""),
        ("from . import (\n    _ops,\n    other,\n); add = 1", "from . import other; add = 1"),
        ("import torch; torch.ops.load_library('x.so'); add = 1", "import torch; add = 1"),
        ("torch.ops.load_library('x.so'); torch.ops.load_library('y.so'); add = 1", "add = 1"),
        ("with a: torch.ops.load_library('x.so'); from .other import add", "with a: from .other import add"),
        ("import _C as c; add = 1", "from pkg import _C as c; add = 1"),
        (
            "from _C import f; from _C import (\n    g,  # why\n)",
            "from pkg._C import f; from pkg._C import (\n    g,  # why\n)",
        ),
    ],
)
def test_what_shares_a_line_stays(tmp_path: Path, line: str, changed: str) -> None:
    """Only the statement that opens or imports an extension goes, be others before or behind it on its line."""
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "__init__.py").write_text("", encoding="utf-8")
    (tmp_path / "pkg" / "lines.py").write_text(f"x = 1\n{line}\ny = 2\n", encoding="utf-8")
    found, _ = joined(tmp_path, recorded(extension("pkg._ops")), a_cpp=LIBRARY)
    outside, _ = joined(tmp_path, recorded(extension("_C")))
    changes, notes = imports.change(tmp_path, "pkg", "pkg", [*found, *outside])
    text = {each.name: each.text for each in changes}["pkg/lines.py"]
    assert text == f"x = 1\n{changed}\ny = 2\n".replace("\n\n", "\n")
    assert notes == ()


@pytest.mark.performs("cannot be cut out: change it by hand")
def test_what_cannot_be_cut_out_is_noted(tmp_path: Path) -> None:
    """A continued line that would end the file is left as it is, with its number; changed by hand, nothing is left."""
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "__init__.py").write_text("from pkg import _variants\n\n_variants.load()\n", encoding="utf-8")
    file = tmp_path / "pkg" / "lines.py"
    file.write_text("x = 1; \\\nfrom . import _ops", encoding="utf-8")
    found, _ = joined(tmp_path, recorded(extension("pkg._ops")), a_cpp=LIBRARY)
    changes, notes = imports.change(tmp_path, "pkg", "pkg", found)
    assert changes == ()
    assert texts(notes) == [
        "pkg/lines.py: what opens or imports the extensions cannot be cut out: change it by hand (line 2)"
    ]
    file.write_text("x = 1\n", encoding="utf-8")
    assert imports.change(tmp_path, "pkg", "pkg", found) == ((), ())


TRIES = """import glob
import torch

try:
    for path in glob.glob("*.so"):
        torch.ops.load_library(path)
    from . import meta
except OSError as error:
    print(error)
"""


def test_only_the_opening_goes(tmp_path: Path) -> None:
    """What a statement does besides opening a library stays: imports of the package, and what they set up."""
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "__init__.py").write_text(TRIES, encoding="utf-8")
    found, _ = joined(tmp_path, recorded(extension()))
    (change,), notes = imports.change(tmp_path, "pkg", "pkg", found)
    assert change.text.endswith(
        TRIES.replace("torch.ops.load_library(path)", "pass  # _variants.load() has opened it").split("\n", 2)[2]
    )
    assert notes == ()


FOUND = """import torch

for name in ("x", "y"):
    spec = find(name)
    if spec is not None:
        torch.ops.load_library(spec.origin)
    elif not DOCS:
        raise ImportError(name)
    else:
        from .placeholder import add
"""


def test_what_only_a_missing_library_leads_to_goes_with_the_opening(tmp_path: Path) -> None:
    """As torch_scatter has it: nothing finds the files in the package now, and what was left would always raise."""
    disk.write(tmp_path, {"pkg/__init__.py": FOUND})
    (changed,), notes = imports.change(tmp_path, "pkg", "pkg", ())
    assert changed.text.rstrip() == "from pkg import _variants\n\n_variants.load()\n\nimport torch"
    assert notes == ()


@pytest.mark.parametrize("above", ["", "# Copyright\n# SPDX-License-Identifier: MIT\n\n", '"""A page."""\n\n'])
def test_the_variant_is_loaded_below_a_licence(above: str, tmp_path: Path) -> None:
    """A comment of the first statement stays with it."""
    disk.write(tmp_path, {"pkg/__init__.py": f"{above}# isort: off\nimport torch\n"})
    (changed,), _ = imports.change(tmp_path, "pkg", "pkg", ())
    assert changed.text == f"{above}from pkg import _variants\n\n_variants.load()\n\n# isort: off\nimport torch\n"


@pytest.mark.performs("and does more there: check the condition")
def test_a_condition_of_the_opening_is_named_where_more_depends_on_it(tmp_path: Path) -> None:
    """The import in the branch that opens stays, and with it a condition that only the author can judge."""
    more = FOUND.replace("spec.origin)\n", "spec.origin)\n        from .ops import mul\n")
    disk.write(tmp_path, {"pkg/__init__.py": more})
    (changed,), notes = imports.change(tmp_path, "pkg", "pkg", ())
    assert "from .ops import mul" in changed.text
    assert "load_library" not in changed.text
    assert texts(notes) == [
        "pkg/__init__.py:3: opens a library under a condition, which may not hold any more, and does more there: "
        "check the condition"
    ]
    by_hand = "from pkg import _variants\n\n_variants.load()\n\nimport torch\n\nfrom .ops import mul\n"
    disk.write(tmp_path, {"pkg/__init__.py": by_hand})
    assert imports.change(tmp_path, "pkg", "pkg", ()) == ((), ())


def test_imports_of_what_became_a_library(tmp_path: Path) -> None:
    """Where nothing reads the name the import goes; where something does, the place is named."""
    (tmp_path / "pkg").mkdir()
    text = "from . import _ops, other\nimport pkg._ops\nif True:\n    from pkg import _ops as unused\n"
    (tmp_path / "pkg" / "__init__.py").write_text(text, encoding="utf-8")
    (tmp_path / "pkg" / "other.py").write_text("from pkg import _ops\nf = _ops.f\n", encoding="utf-8")
    found, _ = joined(tmp_path, recorded(extension("pkg._ops")), a_cpp=LIBRARY)
    changes, notes = imports.change(tmp_path, "pkg", "pkg", found)
    assert {each.name: each.text for each in changes} == {
        "pkg/__init__.py": "from pkg import _variants\n\n_variants.load()\n\nfrom . import other\nif True:\n"
        "    pass  # _variants.load() has opened it\n"
    }
    assert texts(notes) == [
        "pkg/other.py:1: imports `pkg._ops`, which is a library now and cannot be imported: its operators are in "
        "torch.ops"
    ]


def packed(root: Path, installed: dict[str, str], *files: str, **tables: Any) -> dict[str, Any]:
    """Return the wheel's table for a project with ``files``, of which setuptools packs ``installed``."""
    for name in {*files, *installed.values()}:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# {name}\n", encoding="utf-8")
    metadata = {"name": "pkg", "packages": ["pkg"], **tables}
    written, notes = rendered(root, metadata, packed=tuple(installed.items()))
    table: dict[str, Any] = tomlkit.parse(written).unwrap()["tool"]["hatch"]["build"]["targets"]["wheel"]
    return {**table, "notes": texts(notes)}


def test_hatchling_packs_what_setuptools_packs(tmp_path: Path) -> None:
    """Folders and kinds of files that it does not pack are left out, files from elsewhere brought to their place.

    What git ignores and setuptools packs is an artifact.
    """
    (tmp_path / ".gitignore").write_text("made.py\n", encoding="utf-8")
    same = ("pkg/__init__.py", "pkg/made.py", "pkg/jit/a.cpp", "pkg/[x].txt")
    moved = {"pkg/configs/a.yaml": "configs/a.yaml", "pkg/configs/b/c.yaml": "configs/b/c.yaml", "pkg/x.py": "x/x.py"}
    table = packed(
        tmp_path,
        {**{each: each for each in same}, **moved},
        "pkg/tests/__init__.py",
        "pkg/tests/data/x.txt",
        "pkg/k.cu",
        "pkg/jit/b.cpp",
        "x/other.py",
        "pkg/*y.txt",
    )
    assert table["exclude"] == ["*.cu", "/pkg/\\*y.txt", "/pkg/jit/b.cpp", "/pkg/tests/"]
    assert table["artifacts"] == ["/pkg/made.py"]
    assert table["force-include"] == {"configs": "pkg/configs", "x/x.py": "pkg/x.py"}
    assert table["notes"] == [
        "setuptools packs `configs/` as `pkg/configs`: `force-include` of pyproject.toml does so",
        "setuptools packs `x/x.py` as `pkg/x.py`: `force-include` of pyproject.toml does so",
    ]


def test_what_setuptools_adds_to_the_metadata(tmp_path: Path) -> None:
    """Its files of the license, the download's address, and those of setup() beside a [project] table without any."""
    for name in ("LICENSE", "AUTHORS", "NOTICE.txt"):
        (tmp_path / name).write_text("", encoding="utf-8")
    metadata = {"name": "pkg", "url": "https://a.example", "download_url": "https://b.example"}
    table = pyproject.project_table(metadata, tmp_path)
    assert table["license-files"] == ["AUTHORS", "LICENSE", "NOTICE.txt"]
    addresses = {"Homepage": "https://a.example", "Download": "https://b.example"}
    assert table["urls"] == addresses
    start = '[project]\nname = "pkg"\nversion = "1"\n'
    own = {"X": "https://a.example/", "Y": "y"}
    with_own = f'{start}[project.urls]\nX = "{own["X"]}"\nY = "y"\n'
    for existing, urls in ((start, addresses), (with_own, {**own, "Download": "https://b.example"})):
        written, _ = rendered(tmp_path, metadata, existing=existing)
        assert tomlkit.parse(written).unwrap()["project"]["urls"] == urls


def test_text_of_others_stays_text_in_cmake(tmp_path: Path) -> None:
    """Quotes, lines, variables and brackets in what setup.py declares do not become commands of CMake."""
    said = extension(
        include_dirs=('inc"x', 'a\n)\nmessage(FATAL_ERROR "no")', "${HOME}"),
        macros=(("A", "1;2"),),
        cxx=("-DX=a>b;c",),
        libraries=('m")\nevil(',),
    )
    (target,), _ = joined(tmp_path, recorded(said))
    text = cmakelists.text("pkg", [target])
    assert (
        'target_include_directories(_C PRIVATE "inc\\"x" "a\n)\nmessage(FATAL_ERROR \\"no\\")" "\\${HOME}")\n' in text
    )
    assert 'target_compile_definitions(_C PRIVATE "A=1\\;2")' in text
    assert '"$<$<COMPILE_LANGUAGE:CXX>:-DX=a$<ANGLE-R>b$<SEMICOLON>c>"' in text
    assert 'target_link_libraries(_C PRIVATE "m\\")\nevil(")' in text
    found, notes = joined(tmp_path, recorded(extension("pkg._C)\nevil(")))
    assert found == ()
    assert texts(notes)[0].endswith("is not a name that a file and a target can have: it is left out")


def test_a_first_matrix_is_small(tmp_path: Path) -> None:
    """Two entries: two releases, or the newest for the CPU and with CUDA, for one Python; the rest is named."""
    (tmp_path / "pkg").mkdir()
    (tmp_path / "setup.py").write_text("", encoding="utf-8")
    metadata = {"name": "pkg", "packages": ["pkg"], "python_requires": ">=3.10,<3.14"}
    joined(tmp_path, recorded(extension()), k_cu="")
    cpu = recorded(extension(), **metadata)
    cuda = recorded(extension(kind="cuda", sources=("a.cpp", "k.cu")), **metadata)
    for other, releases in ((cpu, 2), (cuda, 1)):
        made = migrating.assemble(tmp_path, cpu, other, [])
        assert (made.entries, len(made.torch)) == (2, releases)
        assert made.wider is not None
        assert made.wider.startswith("hatch-torch-ext matrix --add torch=2.")
        assert "(the project names 3.1" in made.wider
    options = MatrixOptions(torch=["2.8", "2.9", "2.10"], pythons=["3.11", "3.12"])
    exact = migrating.assemble(tmp_path, cpu, cpu, [], options=options)
    assert (exact.entries, exact.wider) == (6, None)


def test_other_ways_to_load_are_reported_with_their_line(tmp_path: Path) -> None:
    """Ctypes with a path, and a name in a string; several modules in one statement are changed as one is."""
    (tmp_path / "pkg").mkdir()
    text = (
        "import ctypes, _C as c, os\nimport importlib\nlib = ctypes.CDLL(os.path.join('x', 'lib.so'))\n"
        "ctypes.CDLL('libcudart.so')\nmodule = importlib.import_module('_C')\n"
    )
    (tmp_path / "pkg" / "ways.py").write_text(text, encoding="utf-8")
    found, _ = joined(tmp_path, recorded(extension("_C")))
    changes, notes = imports.change(tmp_path, "pkg", "pkg", found)
    expected = "import ctypes; from pkg import _C as c; import os\n"
    assert {each.name: each.text for each in changes}["pkg/ways.py"].splitlines(keepends=True)[0] == expected
    assert texts(notes) == [
        "pkg/ways.py:3: opens a library by ctypes: if it is this project's, it is at `_variants.path(NAME)` now",
        "pkg/ways.py:5: imports `_C`, which is `pkg._C` now",
    ]


FLAGS = """import torch
try:
    torch.ops.load_library("x.so")
    HAS_X = True
except OSError:
    HAS_X = False
for name in ("y", "z"):
    spec = name
    torch.ops.load_library(spec)
if not HAS_X:
    print("slow")
"""


def test_a_loop_that_opens_libraries_goes_whole(tmp_path: Path) -> None:
    """`os.path` does not use the loop's own `path`; a module that takes `here` from the package is one of `here`."""
    loop = "for {0} in glob.glob(os.path.join('x', '*.so')):\n    torch.ops.load_library({0})\n"
    text = f"import glob, os, torch\n\n{loop.format('path')}{loop.format('here')}"
    disk.write(tmp_path, {"pkg/__init__.py": text, "pkg/b.py": "import pkg\n\nprint(pkg.here)\n"})
    (changed,), notes = imports.change(tmp_path, "pkg", "pkg", ())
    kept = "for here in glob.glob(os.path.join('x', '*.so')):\n    pass  # _variants.load() has opened it\n"
    assert changed.text == f"from pkg import _variants\n\n_variants.load()\n\nimport glob, os, torch\n\n{kept}"
    assert [note.text.partition(", because it sets ")[2][:5] for note in notes] == ["here,"]


def test_what_tells_the_rest_of_the_package_stays(tmp_path: Path) -> None:
    """Of a statement that also sets a name which is read elsewhere, only the opening is replaced, with a note."""
    (tmp_path / "pkg" / "ops").mkdir(parents=True)
    (tmp_path / "pkg" / "__init__.py").write_text("from pkg import _variants\n\n_variants.load()\n", encoding="utf-8")
    (tmp_path / "pkg" / "ops" / "__init__.py").write_text(FLAGS, encoding="utf-8")
    found, _ = joined(tmp_path, recorded(extension()))
    (change,), notes = imports.change(tmp_path, "pkg", "pkg", found)
    loop = 'for name in ("y", "z"):\n    spec = name\n    torch.ops.load_library(spec)\n'
    opened = 'torch.ops.load_library("x.so")'
    assert change.text == FLAGS.replace(loop, "").replace(opened, "pass  # _variants.load() has opened it")
    assert texts(notes) == [
        "pkg/ops/__init__.py:2: opens a library and was left as it is, because it sets HAS_X, which is read elsewhere: "
        "check that this is still right"
    ]


def test_a_package_without_init_gets_one(tmp_path: Path) -> None:
    """The variant is loaded by the package, and nothing is changed twice."""
    (tmp_path / "pkg").mkdir()
    found, _ = joined(tmp_path, recorded(extension()))
    (change,), _ = imports.change(tmp_path, "pkg", "pkg", found)
    assert change.text == "from pkg import _variants\n\n_variants.load()\n"
    (tmp_path / "pkg" / "__init__.py").write_text(change.text, encoding="utf-8")
    assert imports.change(tmp_path, "pkg", "pkg", found) == ((), ())


@pytest.mark.parametrize(
    ("said", "table"),
    [
        ("file: pkg/VERSION", {"path": "pkg/VERSION", "pattern": r"(?P<version>\S+)"}),
        (
            "attr: pkg.__version__",
            {"path": "pkg/__init__.py", "pattern": r"^__version__[^=]*= *['\"](?P<version>[^'\"]+)"},
        ),
        ("1.2", None),
    ],
)
def test_a_version_that_setup_cfg_reads_stays_in_its_file(said: str, table: object, tmp_path: Path) -> None:
    """setup() is given the version of today; the next one must come out of the same file."""
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "__init__.py").touch()
    (tmp_path / "setup.cfg").write_text(f"[metadata]\nversion = {said}\n", encoding="utf-8")
    metadata = {"name": "pkg", "version": "1.2"}
    written = written_tables(tmp_path, metadata, ())
    assert written["tool"]["hatch"].get("version") == table
    assert written["project"].get("version") == (None if table else "1.2")
    assert pyproject.computed(metadata, tmp_path) == ("1.2" if table else None)


def test_the_matrix_has_a_script_for_the_projects_own_tests(tmp_path: Path) -> None:
    """`hatch run matrix:test` installs the wheel and its requirements, and runs the tests beside the sources."""
    (tmp_path / "test").mkdir()
    scripts = [
        written_tables(tmp_path, {"name": "pkg", **more}, ())["tool"]["hatch"]["envs"]["matrix"]["scripts"]["test"]
        for more in ({}, {"install_requires": ["scipy", "torch"]})
    ]
    install = "python -m pip install --quiet"
    wheel = f"{install} --no-index --no-deps --force-reinstall --only-binary :all: --find-links {{root}}/dist pkg"
    tests = "python -P -m pytest --import-mode=append {root}/test {args}"
    assert scripts == [[wheel, tests], [wheel, f"{install} pkg", tests]]


@pytest.mark.parametrize(
    ("name", "text", "pattern"),
    [
        ("pkg/__init__.py", "__version__ = '1.2.dev0'\n", {}),
        ("src/pkg/version.py", '"""Made once."""\nVERSION: str = "1.2.dev0"\n', {}),
        ("version.txt", "1.2.dev0\n", {"pattern": r"(?P<version>\S+)"}),
        ("pkg/__init__.py", "__version__ = '1.3'\n", None),
    ],
)
def test_a_version_that_setup_reads_itself(
    name: str, text: str, pattern: dict[str, str] | None, tmp_path: Path
) -> None:
    """setup.py opens the file by code of its own: hatch reads it from there, if it is the same."""
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text(text, encoding="utf-8")
    folders = {"package_dir": {"": "src"}} if name.startswith("src") else {}
    metadata = {"name": "pkg", "version": "1.2.dev0", "packages": ["pkg"], **folders}
    expected = {} if pattern is None else {"path": name, **pattern}
    assert pyproject.version_table(tomlkit.document(), metadata, tmp_path) == expected


def test_a_version_of_versioneer_is_reported_once(tmp_path: Path) -> None:
    """Its own line names the way out; a line about a file that says the version does not fit."""
    (tmp_path / "pkg").mkdir()
    (tmp_path / "a.cpp").write_text(MODULE, encoding="utf-8")
    about = Note(line=1, text="its version is versioneer's")
    metadata = {"name": "pkg", "version": "0+unknown", "packages": ["pkg"]}
    for notes, number in (((about,), 0), ((), 1)):
        recording = Recording(extensions=(extension(),), metadata=metadata, notes=notes)
        found = migrating.assemble(
            tmp_path, recording, recording, [], options=MatrixOptions(torch=["2.13"], pythons=["3.11"])
        )
        assert sum("setup.py computes the version" in each for each in texts(found.notes)) == number


def test_many_files_from_elsewhere_are_one_note(tmp_path: Path) -> None:
    """A folder from which some files are packed is named once, with their number."""
    names = [f"configs/{name}" for name in ("a.yaml", "b.yaml", "c.yaml", "d.yaml")]
    for name in (*names, "configs/README", "pkg/__init__.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("", encoding="utf-8")
    packed = [(f"pkg/zoo/{name}", name) for name in names] + [("pkg/__init__.py", "pkg/__init__.py")]
    document = {
        "project": {"name": "pkg", "version": "1"},
        "tool": {"hatch": {"build": {"targets": {"wheel": {"packages": ["pkg"]}}}}},
    }
    found = packing.options(tmp_path, document, packed)
    assert dict(found.force_include) == {name: f"pkg/zoo/{name}" for name in names}
    assert [each.text for each in found.notes] == [
        "setuptools packs 4 files and folders of `configs/` as `pkg/zoo/configs`: `force-include` of pyproject.toml "
        "does so"
    ]


def test_files_of_git_are_left_out(tmp_path: Path) -> None:
    """A submodule in the package data has a file `.git`, which setuptools packs and hatchling never does."""
    packed = [(name, name) for name in ("pkg/__init__.py", "pkg/glm/.git", "pkg/glm/a.hpp")]
    for name, _ in packed:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("", encoding="utf-8")
    document = {
        "project": {"name": "pkg", "version": "1"},
        "tool": {"hatch": {"build": {"targets": {"wheel": {"packages": ["pkg"]}}}}},
    }
    found = packing.options(tmp_path, document, packed)
    assert (found.exclude, found.artifacts, found.force_include) == ((), (), ())
    assert [each.text for each in found.notes] == [packing.NEVER.format("pkg/glm/.git")]
    # A setup() without `packages` packs none: what loads the variant is packed all the same, and may not be there yet.
    for own in (packed[0], ("pkg/sub/__init__.py", "pkg/sub/__init__.py")):
        exclude = packing.options(tmp_path, document, [], own=own).exclude
        assert "/pkg/" not in exclude
        assert "/pkg/__init__.py" not in exclude or own != packed[0]
        assert any(each.startswith("/pkg/glm") or each == "*.hpp" for each in exclude)


@pytest.mark.performs("`--force` replaces it")
def test_nothing_is_overwritten_without_force(tmp_path: Path) -> None:
    """A CMake project that is there is the author's; the diff shows what would come."""
    (tmp_path / "CMakeLists.txt").write_text("old\n", encoding="utf-8")
    migration = Migration(root=tmp_path, files=(("CMakeLists.txt", "new\n"), ("a/b.txt", "b\n")), notes=(), entries=1)
    assert migration.diff() == (
        "--- a/CMakeLists.txt\n+++ b/CMakeLists.txt\n@@ -1 +1 @@\n-old\n+new\n"
        "--- /dev/null\n+++ b/a/b.txt\n@@ -0,0 +1 @@\n+b\n"
    )
    with pytest.raises(ConfigurationError, match="--force"):
        migration.write(force=False)
    assert not (tmp_path / "a").exists()
    migration.write(force=True)
    assert (tmp_path / "CMakeLists.txt").read_text(encoding="utf-8") == "new\n"
    assert (tmp_path / "a" / "b.txt").read_text(encoding="utf-8") == "b\n"


GOOD = '[build-system]\nrequires = ["numpy"]\n'


@pytest.mark.performs("Correct it, then run `init` again", "move it away, then run `init` again")
@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (b'[build-system]\nrequires = ["a b c"]\n', "`build-system.requires`, entry 1, is not a requirement: `a b c`"),
        (b'[build-system]\nrequires = ["six", 1]\n', "`build-system.requires`, entry 2, must be a text, not `1`."),
        (b'build-system = "x"\n', "`build-system` must be a table, not `x`."),
        (b'[project]\nname = 1\ndynamic = "version"\n', "`project.dynamic` must be a list, not `version`."),
        (b"[tool]\nsetuptools_scm = true\n", "`tool.setuptools_scm` must be a table, not `True`."),
        (b"[build-system\n", "is not TOML: "),
        (b"\xef\xbb\xbf[build-system]\n", "is not TOML: it begins with a byte order mark"),
        (b"# \xe9\n", "is not UTF-8 (byte 3 is 0xe9): "),
        (None, "is not a file, and `init` writes one: "),
    ],
)
def test_a_pyproject_that_is_not_sound(wrong: bytes | None, told: str, tmp_path: Path) -> None:
    """Before anything runs, an error names file, entry and what to do; what then is done is taken."""
    disk.write(tmp_path, {"setup.py": ""})
    path = tmp_path / "pyproject.toml"
    if wrong is None:
        path.mkdir()
    else:
        path.write_bytes(wrong)
    for read in (migrating.migrate, project_texts.document):
        with pytest.raises(ConfigurationError) as raised:
            read(tmp_path)
        assert raised.value.problems[-1].startswith(str(path))
        assert told in raised.value.problems[-1]
        assert raised.value.problems[-1].endswith(", then run `init` again")
    if wrong is None:
        path.rmdir()
    path.write_text(GOOD.replace("numpy", "six>=1"), encoding="utf-8")
    assert project_texts.build_requirements(project_texts.document(tmp_path), without={"setuptools"}) == ["six>=1"]


def test_a_build_requirement_that_cannot_be_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is named, and the others are there: one that has no wheel does not take them along."""
    installed = []

    def run(command: list[Any], **_: Any) -> None:
        if "none" in command:
            raise ProcessError("no wheel", returncode=1, output="")
        installed.append(command)

    disk.write(tmp_path, {"pyproject.toml": '[build-system]\nrequires = ["setuptools", "torch", "six", "none"]\n'})
    monkeypatch.setattr("hatch_torch_ext.base.process.run", run)
    with recording.environment(tmp_path) as (_, notes):
        assert installed[-1][-1] == "six"
    assert texts(notes) == [recording.NOT_INSTALLED.format("none")]


def test_files_keep_their_line_ends_and_byte_order_marks(tmp_path: Path) -> None:
    """What `init` changes in a file of Windows are the lines that it tells of."""
    disk.write(tmp_path, {"pkg/__init__.py": b"\xef\xbb\xbfimport torch\r\nx = 1\r\n"})
    (change,), notes = imports.change(tmp_path, "pkg", "pkg", [])
    Migration(root=tmp_path, files=((change.name, change.text),), notes=(), entries=1).write(force=False)
    written = (tmp_path / "pkg" / "__init__.py").read_bytes()
    assert written.startswith(b"\xef\xbb\xbf")
    assert written.count(b"\r\n") == written.count(b"\n") == change.text.count("\n") > 3
    assert notes == ()


def test_files_that_cannot_be_read_as_python(tmp_path: Path) -> None:
    """Each is named with what is to be done in it; a pipe is not waited for."""
    deep = f"x = {'(' * 300}1{')' * 300}\n"
    disk.write(tmp_path, {"pkg/__init__.py": "print 'x'\n", "pkg/deep.py": deep, "pkg/old.py": b"# \xe9\n"})
    os.mkfifo(tmp_path / "pkg" / "pipe.py")
    changes, notes = imports.change(tmp_path, "pkg", "pkg", [])
    assert changes == ()
    told = texts(notes)
    assert [each.split("`")[1] for each in told] == ["pkg/__init__.py", "pkg/deep.py", "pkg/old.py"]
    about = ": look for what loads the extensions in it"
    assert told[0].endswith(f"{about}, and begin it with `from pkg import _variants` and `_variants.load()`")
    assert all(each.endswith(about) for each in told[1:])
