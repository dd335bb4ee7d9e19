"""The environment variables with which CMake, the compilers and the interpreter run."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from hatch_torch_ext.cmake import cuda, launchers, prefixes, toolchainfile
from hatch_torch_ext.facts import content

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hatch_torch_ext.config import Config
    from hatch_torch_ext.values import Job

# A build's front end sets these for its own Python (pip's isolated environments use PYTHONPATH), and DESTDIR or the
# user's generator would affect the install tree.
_REMOVED = ("CMAKE_GENERATOR", "DESTDIR", "LANGUAGE", "__PYVENV_LAUNCHER__")
# Variables that affect where and how another Python finds modules, or what it runs before and after a program: the
# interpreter that CMake starts is the entry's, with the entry's packages alone.
_OF_ANOTHER_PYTHON = (
    *("PYTHONBREAKPOINT", "PYTHONDEVMODE", "PYTHONEXECUTABLE", "PYTHONHOME", "PYTHONINSPECT", "PYTHONOPTIMIZE"),
    *("PYTHONPLATLIBDIR", "PYTHONPROFILEIMPORTTIME", "PYTHONSAFEPATH", "PYTHONSTARTUP", "PYTHONUSERBASE"),
    *("PYTHONVERBOSE", "PYTHONWARNINGS"),
)

# A zip file cannot hold a time before 1980-01-01; hatchling uses this time by default.
DEFAULT_EPOCH = "1580601600"


def contents_read_once(config: Config, environ: Mapping[str, str]) -> dict[str, str]:
    """Return path -> hash of the files that are read once into CMake's cache: those of ``-C``, and the toolchain file.

    A relative path of ``-C`` is relative to this folder, as CMake takes it; the others to the folder of CMakeLists.txt.
    """
    define = dict(config.cmake.define)
    named = [define.get("CMAKE_TOOLCHAIN_FILE"), environ.get("CMAKE_TOOLCHAIN_FILE")]
    after = ""
    for argument in config.cmake.args:
        match = re.match(r"(?:-C|--toolchain=?|-D\s*CMAKE_TOOLCHAIN_FILE(?::\w+)?=)(.*)", argument)
        named.append(argument if after else match[1] if match else None)
        after = argument if argument in {"-C", "--toolchain"} else ""
    found = {}
    for text in filter(None, named):
        for path in (Path.cwd() / text, config.source / text):
            if path.is_file():
                found[str(path)] = content.sha256(path)
                break
    return found


def env_changes(job: Job) -> dict[str, str | None]:
    """Return the changes to this process's environment; the user's and the hatch environment's flags stay."""
    environment, toolchain = job.environment, job.toolchain
    environ = job.entry.environ(os.environ)
    given = dict(job.entry.env_vars)
    changes: dict[str, str | None] = {**dict.fromkeys(_OF_ANOTHER_PYTHON), **given, **dict.fromkeys(_REMOVED)}
    folders = [environment.bin, toolchain.cmake.path.parent, toolchain.ninja.path.parent]
    if toolchain.cuda is not None:
        folders.insert(1, toolchain.cuda.root / "bin")
    changes |= cuda.env_changes(toolchain)
    changes |= toolchainfile.env_changes(job)
    packages = [environment.site_packages]
    if job.upstream:
        packages.insert(0, job.torch)
    changes |= {
        "PATH": _joined(folders, environ.get("PATH")),
        # The hatch environment's own is the author's; that of the process is the user's.
        "PYTHONPATH": _joined(job.sdk.python_path, given.get("PYTHONPATH")) or None,
        "PYTHONNOUSERSITE": "1",
        "PYTHONHASHSEED": "0",  # a fixed order of sets, so that programs write the same in every build
        "VIRTUAL_ENV": str(environment.prefix),
        "CMAKE_PREFIX_PATH": _joined(packages, environ.get("CMAKE_PREFIX_PATH")),
        # For a FindTorch.cmake of the project's own.
        "CMAKE_LIBRARY_PATH": _joined([job.torch / "lib"], environ.get("CMAKE_LIBRARY_PATH")),
        "LC_ALL": "C.UTF-8",
        "SOURCE_DATE_EPOCH": environ.get("SOURCE_DATE_EPOCH", DEFAULT_EPOCH),
    }
    changes |= launchers.environ(job, environ)
    if (base := prefixes.base_dir(job)) is not None:
        changes |= {"CCACHE_BASEDIR": str(base), "CCACHE_NOHASHDIR": "1"}
        # By content: every environment has a copy of nvcc, with a time of its own.
        changes["CCACHE_COMPILERCHECK"] = environ.get("CCACHE_COMPILERCHECK", "content")
    return changes


def _joined(first: Sequence[Path], present: str | None) -> str:
    return os.pathsep.join([*dict.fromkeys(str(path) for path in first), *([present] if present else [])])
