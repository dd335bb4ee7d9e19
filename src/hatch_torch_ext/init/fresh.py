"""A new package: an operator in C++, on request with CUDA, a Python module or the stable ABI; and its workflows."""

from __future__ import annotations

import json
import keyword
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hatch_torch_ext import __version__
from hatch_torch_ext.base import resources
from hatch_torch_ext.base.errors import ConfigurationError
from hatch_torch_ext.facts import releases
from hatch_torch_ext.init import served
from hatch_torch_ext.init.texts import Migration

if TYPE_CHECKING:
    from collections.abc import Iterator

REMARKS = {"python": "  # a module is built for each Python: add those that your users have"}
"""Comments in the matrix, by variable."""
OF_CUDA = (
    (
        "// The same for device memory, on a CUDA stream (a cudaStream_t).\n"
        "void muladd_cuda(const float* a, const float* b, float c, float* out, std::int64_t count, void* stream);\n",
        "",
    ),
    ('DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]', 'DEVICES = ["cpu"]'),
)
"""Lines of the templates that only a package with a CUDA kernel has, and what others have in their place."""
OF_JIT = (('fallback = "build"  # where no variant fits, the wheel builds one at first use\n', ""),)
"""The same of a package that can be built at first use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """What the package has besides an operator for the CPU; ``jit``: it can be built at first use.

    ``torch`` are the releases of the matrix and ``pythons`` those of a module; if empty, they are chosen.
    """

    cuda: bool = False
    module: bool = False
    stable: bool = False
    jit: bool = False
    torch: tuple[str, ...] = ()
    pythons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPackage:
    """The files of a new package below ``root``: (name, text), names POSIX."""

    root: Path
    files: tuple[tuple[str, str], ...]

    def diff(self) -> str:
        """Return the files in the form of ``diff -u``, with the folder in their names."""
        files = tuple((f"{self.root.name}/{name}", text) for name, text in self.files)
        return Migration(root=self.root.parent, files=files, notes=(), entries=0).diff()

    def write(self) -> tuple[Path, ...]:
        """Write the files; return their paths."""
        written = []
        for name, text in self.files:
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            written.append(path)
        return tuple(written)


def new(name: str, folder: Path, choices: Choices) -> NewPackage:
    """Return the package ``name`` in ``folder``/``name``, of which nothing is written yet.

    Raises ``ConfigurationError`` if ``name`` cannot be a package's name, or if the folder is not empty.
    """
    package = re.sub(r"[-.]+", "_", name).lower()
    if not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?", name) or not package.isidentifier():
        raise ConfigurationError(f"`{name[:60]}` is not a package's name: letters, digits and `-`, a letter first.")
    if keyword.iskeyword(package) or package in {"torch", *sys.stdlib_module_names}:
        raise ConfigurationError(
            f"`{name}` cannot be the name: `import {package}` already means another module. Choose another."
        )
    root = folder / name
    if root.exists() and any(root.iterdir()):
        moved = ", or run `init` without a name in it, for its setup.py" if (root / "setup.py").is_file() else ""
        raise ConfigurationError(f"{root} has files in it: choose another name{moved}.")
    if choices.pythons and not choices.module:
        raise ConfigurationError("`--python` is for a Python module: add `--module`, or leave it out.")
    if choices.cuda and (without := [each for each in choices.torch if each not in served.with_compiler([each])]):
        text = f"The index has no compiler for the CUDA of torch {', '.join(without)}: name a later one by `--torch`."
        raise ConfigurationError(text)
    return NewPackage(root=root, files=tuple(_files(name, package, choices)))


def _files(name: str, package: str, choices: Choices) -> Iterator[tuple[str, str]]:
    def template(source: str) -> str:
        text = resources.text(f"fresh/{source}")
        for words in (*(() if choices.cuda else OF_CUDA), *(() if choices.jit else OF_JIT)):
            text = text.replace(*words)
        return text.replace("fresh_package", package).replace("fresh-package", name)

    ops = "ops_stable" if choices.stable else "ops"
    yield "csrc/kernels.h", template("csrc/kernels.h")
    yield "csrc/kernels.cpp", template("csrc/kernels.cpp")
    yield "csrc/ops.cpp", template(f"csrc/{ops}.cpp")
    if choices.cuda:
        yield "csrc/kernels.cu", template("csrc/kernels.cu")
        yield "csrc/ops_cuda.cpp", template(f"csrc/{ops}_cuda.cpp")
    if choices.module:
        yield "csrc/module.cpp", template("csrc/module.cpp")
        yield "tests/test_module.py", template("tests/test_module.py")
    yield "csrc/CMakeLists.txt", _cmake(package, choices)
    yield f"src/{package}/__init__.py", template("package/__init__.py")
    yield f"src/{package}/ops.py", template("package/ops.py")
    yield f"src/{package}/py.typed", ""
    yield "tests/test_ops.py", template("tests/test_ops.py")
    yield "README.md", template("README.md") + (template("README-jit.md") if choices.jit else "")
    for file, text in sorted(workflow_texts().items()):
        yield (WORKFLOWS / file).as_posix(), text
    yield ".gitignore", template("gitignore")
    yield "pyproject.toml", _pyproject(template("pyproject.toml"), name, choices)


def _cmake(package: str, choices: Choices) -> str:
    torch = "torch_stable" if choices.stable else "torch"
    lines = [
        "cmake_minimum_required(VERSION 3.26)",
        f"project({package} LANGUAGES CXX)",
        "",
        "find_package(Torch REQUIRED)",
        "",
        f"add_library({package} SHARED kernels.cpp ops.cpp)",
        f"target_link_libraries({package} PRIVATE {torch})",
        f"set_target_properties({package} PROPERTIES CXX_VISIBILITY_PRESET hidden CUDA_VISIBILITY_PRESET hidden)",
        f"install(TARGETS {package} LIBRARY DESTINATION .)",
    ]
    if choices.cuda:
        lines += [
            "",
            "# With CUDA: in an entry of the matrix that declares `cuda`, or by hand with -DTORCH_EXT_CUDA=cu130.",
            'if(TORCH_EXT_CUDA AND NOT TORCH_EXT_CUDA STREQUAL "cpu")',
            "  enable_language(CUDA)",
            f"  target_sources({package} PRIVATE kernels.cu ops_cuda.cpp)",
            f"  set_target_properties({package} PROPERTIES CUDA_RUNTIME_LIBRARY Shared)",
        ]
        if choices.stable:
            lines.append(f"  target_compile_definitions({package} PRIVATE USE_CUDA)")
        lines.append("endif()")
    if choices.module:
        lines += [
            "",
            "find_package(Python REQUIRED COMPONENTS Interpreter Development.Module)",
            "Python_add_library(_C MODULE WITH_SOABI module.cpp)",
            "target_link_libraries(_C PRIVATE Torch::Python)",
            "install(TARGETS _C LIBRARY DESTINATION .)",
        ]
    return "\n".join(lines) + "\n"


def _pyproject(text: str, name: str, choices: Choices) -> str:
    """Return pyproject.toml with the matrix; only a package on the stable ABI is tested on the newest torch."""
    python, matrix = _matrix(choices)
    if not choices.stable or choices.module:
        text = text.partition("\n# The build for the oldest torch")[0]
    tests = [f'  "{line}",' for line in served.script_of_tests(name, "tests")]
    lines = {"MATRIX": matrix, "TESTS": tests}
    return re.sub(r"@(\w+)@\n", lambda match: "\n".join(lines[match[1]]) + "\n", text.replace("@PYTHON@", python))


def _matrix(choices: Choices) -> tuple[str, list[str]]:
    """Return the oldest Python for which every release of torch in the matrix has wheels, and the matrix's lines."""
    pythons = choices.pythons or (f"{sys.version_info[0]}.{sys.version_info[1]}",)
    backends = ("cpu", "cuda") if choices.cuda else ()
    # The stable ABI serves the operators of every later torch; a module is for one torch and one Python.
    if choices.stable and not choices.module:
        torch = choices.torch or (served.first_stable(with_compiler=choices.cuda),)
        tables = served.matrix(torch, backends=backends, abi="stable")
    else:
        torch = choices.torch or tuple(served.torch_releases())
        tables = served.matrix(torch, pythons if choices.module else (), backends)
    lines = []
    for table in tables["matrix"]:
        lines += ["[[tool.hatch.envs.matrix.matrix]]"]
        lines += [f"{name} = {_list(values)}{REMARKS.get(name, '')}" for name, values in table.items()]
        lines += [""]
    if choices.cuda:
        lines += [
            "[tool.hatch.envs.matrix.overrides]",
            "matrix.cuda.extra-dependencies = [",
            *(
                f'  {{ value = "{each["value"]}", if = {_list(each["if"])} }},'
                for each in tables["overrides"]["matrix"]["cuda"]["extra-dependencies"]
            ),
            "]",
            "",
        ]
    first = max(releases.published_pythons(each, later=False)[0] for each in torch)
    return f"{first // 100}.{first % 100}", lines


def _list(values: list[str]) -> str:
    return "[" + ", ".join(f'"{each}"' for each in values) + "]"


REUSABLE = ("build-wheels.yml", "add-torch.yml")
"""The workflows that the others call; in a repository of several projects they share them."""
CALLERS = ("wheels.yml", "follow-torch.yml")
"""The workflow of releases and pull requests, and the one that looks for a new torch."""
WORKFLOWS = Path(".github") / "workflows"
UNPINNED = "hatch-torch-ext[build]"
"""What the workflows install; as they are written, of the version that writes them."""


def workflow_texts(place: Path = Path()) -> dict[str, str]:
    """Return name -> text of the workflows for a project at ``place`` in its repository.

    A project in a subfolder has its own callers, since there may be several, and tags with its name.
    """
    ours = resources.FOLDER / "ci"
    found = {
        file: (ours / file).read_text("utf-8").replace(f": {UNPINNED}\n", f": {UNPINNED}=={__version__}\n")
        for file in (*REUSABLE, *CALLERS)
    }
    if place == Path():
        return found
    name = re.sub(r"[^\w.-]+", "-", place.as_posix())
    callers = {file.replace(".yml", f"-{name}.yml"): _in_subfolder(found[file], place, name) for file in CALLERS}
    return {**{file: found[file] for file in REUSABLE}, **callers}


def _in_subfolder(text: str, place: Path, name: str) -> str:
    """Return a caller's text for the project in the folder ``place`` of the repository."""
    folder, paths = json.dumps(place.as_posix()), json.dumps([f"{place.as_posix()}/**"])
    inputs = f"\n      working-directory: {folder}\n      artifact-prefix: {name}-"
    changes = (
        (r"(?m)^(name: [\w-]+)$", f"-{name}"),
        (r"(?m)^(  group: [\w-]+|concurrency: [\w-]+)(?=$|-\$)", f"-{name}"),
        (r"(?m)^(  pull_request:)$", f"\n    paths: {paths}"),
        (r"(?m)^(    with:)$", inputs),
        (r"(?m)^( +name: )(?=dist$)", f"{name}-"),
        (r'(tags: \[")(?=v\*"\])', f"{name}-"),
    )
    for pattern, added in changes:
        text = re.sub(pattern, lambda found, added=added: found[1] + added, text)  # type: ignore[misc]
    return text
