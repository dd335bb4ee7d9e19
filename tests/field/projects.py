"""The projects: name and version on the index, how they are built with this project, and what prevents it.

``init``: a project with a ``setup.py``, which ``hatch-torch-ext init`` converts; no file is edited by hand. ``cmake``:
a project with a CMakeLists.txt, to which a pyproject.toml is added.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Edit:
    """Lines of a file from the first that starts with ``start`` up to the next that starts with ``end``, replaced."""

    file: str
    start: str
    end: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Project:
    """One project. ``package`` is its import name; ``check`` the script in ``checks/`` that compares with a reference.

    ``folder`` is where the package lies, ``source`` the folder of CMakeLists.txt. ``options`` are lines of the hook's
    table, ``edits`` what must be changed by hand, ``dependencies`` what the hatch environment and the check need
    installed, ``needs`` what the check needs besides, ``beside`` the keys of projects whose wheels it needs, built
    before. ``unpack`` is a glob of archives in the sources that setup.py would unpack. ``built`` is False for a project
    that is read and turned, but not compiled; ``why`` says why.
    """

    name: str
    version: str
    way: Literal["init", "cmake"]
    package: str
    check: str
    folder: str | None = None
    source: str = "."
    options: tuple[str, ...] = ()
    edits: tuple[Edit, ...] = ()
    dependencies: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    unpack: str = ""
    beside: tuple[str, ...] = ()
    init: tuple[str, ...] = ()
    fast: bool = False
    built: bool = True
    why: str = ""

    @property
    def key(self) -> str:
        """Return the name by which the command knows it."""
        return f"{self.name}:{self.way}"


LOAD = "from {0} import _variants\n\n_variants.load()\n\n"


def _pyg(name: str, version: str, *, needs: tuple[str, ...] = ()) -> Project:
    """Return a project of PyG: its ``__init__`` looks for one library an operator, and CMake makes one of all."""
    loop = Edit(file=f"{name}/__init__.py", start="for library in", end="cuda_version =", text=LOAD.format(name))
    return Project(name=name, version=version, way="cmake", package=name, check=name, edits=(loop,), needs=needs)


def _turned(
    name: str,
    version: str,
    *init: str,
    package: str = "",
    needs: tuple[str, ...] = (),
    beside: tuple[str, ...] = (),
    fast: bool = False,
) -> Project:
    """Return a project that ``init`` turns, built for the CPU."""
    package = package or name.replace("-", "_")
    return Project(
        name=name,
        version=version,
        way="init",
        package=package,
        check=package,
        init=("--cpu", *init),
        needs=needs,
        beside=beside,
        fast=fast,
    )


def _read(name: str, version: str, why: str, *init: str) -> Project:
    """Return a project that ``init`` turns and nothing more."""
    return Project(name=name, version=version, way="init", package=name, check=name, init=init, built=False, why=why)


# `--force`: these have a CMakeLists.txt too, for C++ alone, which their setup.py does not use.
PROJECTS = (
    _turned("torchsort", "0.1.9", fast=True),
    _turned("chamferdist", "1.0.3"),
    _turned("torch-discounted-cumsum", "1.1.0"),
    _turned("torchlpc", "0.7.2", needs=("numba",)),
    _turned("inplace-abn", "1.1.0"),
    _turned("torch_spline_conv", "1.2.2", "--force"),
    _turned("pytorch-fast-transformers", "0.4.0", package="fast_transformers"),
    _turned("torch-points-kernels", "0.7.0", needs=("numba", "scikit-learn")),
    _turned("torch_scatter", "2.1.2", "--force"),
    _turned("torch_cluster", "1.6.3", "--force", needs=("scipy",)),
    _turned("torch_sparse", "0.6.18", "--force", needs=("scipy",), beside=("torch_scatter:init",)),
    Project(
        name="vesin-torch",
        version="0.6.2",
        way="cmake",
        package="vesin_torch",
        check="vesin_torch",
        source="lib",
        edits=(
            Edit(file="vesin_torch/__init__.py", start="from ._c_lib", end="from", text=LOAD.format("vesin_torch")),
            Edit(file="vesin_torch/__init__.py", start="_load_library()", end="\0", text=""),
        ),
    ),
    # From 2.0 on, its CMake clones a repository.
    Project(
        name="sphericart-torch",
        version="1.0.9",
        way="cmake",
        package="sphericart.torch",
        check="sphericart_torch",
        folder="python/sphericart",
        options=(
            "cmake.define = { SPHERICART_TORCH_BUILD_FOR_PYTHON = true, SPHERICART_ARCH_NATIVE = false }",
            'variant-data = ["_build_torch_version.py"]',
        ),
        edits=(
            Edit(
                file="python/sphericart/torch/__init__.py",
                start="Version = namedtuple",
                end="\0",
                text=LOAD.format("sphericart.torch"),
            ),
        ),
    ),
    Project(
        name="metatensor-torch",
        version="0.10.8",
        way="cmake",
        package="metatensor_torch",
        check="metatensor_torch",
        options=(
            'exclude = ["libmetatensor.so*"]',
            'cmake.define = { METATENSOR_TORCH_SOURCE_DIR = "metatensor-torch-cxx-0.10.8" }',
        ),
        dependencies=("metatensor-core==0.2.6",),
        unpack="metatensor-torch-cxx-*.tar.gz",
        edits=(
            Edit(
                file="metatensor_torch/_c_lib.py",
                start="from ._build_versions",
                end="from ._version",
                text='BUILD_METATENSOR_CORE_VERSION = "0.2.6"\n',
            ),
            Edit(
                file="metatensor_torch/_c_lib.py",
                start="    if _already_loaded(_lib_name())",
                end="    lib_version",
                text="    from metatensor_torch import _variants\n\n    _variants.load()\n\n",
            ),
        ),
    ),
    _pyg("torch_spline_conv", "1.2.2"),
    _pyg("torch_scatter", "2.1.2"),
    _pyg("torch_cluster", "1.6.3", needs=("scipy",)),
    _read("torchani", "2.9.0", "its extensions are for CUDA in the first place", "--argument", "ext"),
    _read("warp_rnnt", "0.7.0", "CUDA alone, and its operators need a GPU"),
    _read("causal_conv1d", "1.7.0", "CUDA alone, and its operators need a GPU"),
    _read("mamba_ssm", "2.3.2.post1", "CUDA alone, and its operators need a GPU"),
    _read("gsplat", "1.5.3", "CUDA alone, and its operators need a GPU"),
    _read("torch_edit_distance", "0.4.0", "CUDA alone, and its operators need a GPU"),
    _read("mmcv", "2.2.0", "150 files for the CPU alone: hours of compiling on two cores"),
    _read("xformers", "0.0.35", "CUDA alone: hours of compiling, and its operators need a GPU"),
    _read("natten", "0.21.7", "it has a CMake project of its own, for CUDA alone"),
    _read("deepspeed", "0.19.8", "it compiles at first use; for ahead of time, variables choose what"),
    _read("flash_attn", "2.8.3", "CUDA alone: hours of compiling, and its operators need a GPU"),
)
