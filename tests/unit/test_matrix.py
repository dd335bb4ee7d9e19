"""Raw matrices become entries; all problems are reported at once; selectors choose among the entries."""

from __future__ import annotations

import platform
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import values
from hatch_torch_ext import matrix
from hatch_torch_ext.base.errors import ConfigurationError
from hatch_torch_ext.facts.backend import Backend
from hatch_torch_ext.matrix import declaring

if TYPE_CHECKING:
    from hatch_torch_ext.values import Entry

PIN = '"torch=={matrix:torch}.*"'


def entries(*names: str, environment: str = "matrix", **declared: list[str]) -> tuple[Entry, ...]:
    """Return expanded entries: each name's parts are values of the variables in ``declared``, in order."""
    envs = {f"{environment}.{name}": dict(zip(declared, name.split("-"), strict=False)) for name in names}
    dependencies = {name: [f"torch=={variables['torch']}.*", "pytest"] for name, variables in envs.items()}
    pythons = {name: variables["python"] for name, variables in envs.items() if "python" in variables}
    return expand(envs, dependencies, pythons)


def expand(
    envs: dict[str, dict[str, str]], dependencies: dict[str, list[str]], pythons: dict[str, str] | None = None
) -> tuple[Entry, ...]:
    """Return the entries of a matrix."""
    return declaring.entries_of(values.matrix(envs, dependencies, pythons))


def problems(
    envs: dict[str, dict[str, str]], dependencies: dict[str, list[str]], pythons: dict[str, str] | None = None
) -> list[str]:
    """Return what is wrong with a matrix."""
    with pytest.raises(ConfigurationError) as caught:
        expand(envs, dependencies, pythons)
    return list(caught.value.problems)


def names(found: tuple[Entry, ...]) -> list[str]:
    """Return the names of entries without their environment's."""
    return [entry.name.removeprefix("matrix.") for entry in found]


def test_entry_holds_what_the_matrix_declares() -> None:
    """Variables, dependencies and Python are kept as hatch gave them; torch, CUDA and ABI are read out of them."""
    name = "matrix.py3.11-2.10-cu130-stable"
    variables = {"python": "3.11", "torch": "2.10", "cuda": "cu130", "abi": "stable", "x": "1"}
    read = values.matrix({name: variables}, {name: ["Torch[opt] == 2.10.*", "pytest"]}, {name: "3.11"})
    found = declaring.entries_of(replace(read, env_vars={name: (("UV_INDEX", "x"),)}))
    assert found == (
        values.entry(
            name=name,
            variables=(("python", "3.11"), ("torch", "2.10"), ("cuda", "cu130"), ("abi", "stable"), ("x", "1")),
            dependencies=("Torch[opt] == 2.10.*", "pytest"),
            torch_requirement="Torch[opt] == 2.10.*",
            python="3.11",
            stable_abi=True,
            torch="2.10",
            backend=Backend("cuda", "13.0"),
            env_vars=(("UV_INDEX", "x"),),
        ),
    )
    assert found[0].variable("x") == "1"
    assert found[0].variable("y") is None


def test_entries_keep_hatchs_order() -> None:
    """The order is the matrix's own, neither sorted as text nor as versions."""
    found = entries("2.9", "2.10", "2.8", torch=[])
    assert names(found) == ["2.9", "2.10", "2.8"]


def test_undeclared_parts_stay_open() -> None:
    """Without variables `torch` and `cuda`, a requirement that admits one release line still declares it."""
    envs = {"a": {"flavour": "x"}, "b": {"flavour": "y"}, "c": {"flavour": "z"}}
    wheel = "torch @ https://host/torch-2.8.0-cp311-cp311-linux_x86_64.whl"
    found = expand(envs, {"a": ["torch~=2.8.0"], "b": ["torch>=2.8"], "c": [wheel]})
    assert [(entry.torch, entry.backend) for entry in found] == [("2.8", None), (None, None), (None, None)]


def test_requirement_for_another_python_does_not_count() -> None:
    """Markers are read for the entry's own Python, not for the one that builds."""
    dependencies = ["torch==2.8.*; python_version >= '3.10'", "torch==2.4.*; python_version < '3.10'"]
    envs = {"py39": {"python": "3.9"}, "py313t": {"python": "3.13t"}}
    found = expand(envs, {"py39": dependencies, "py313t": dependencies}, {"py39": "3.9", "py313t": "3.13t"})
    assert [entry.torch for entry in found] == ["2.4", "2.8"]


def test_same_requirement_twice_counts_once() -> None:
    """Hatch joins inherited lists, so that one line may come twice."""
    (entry,) = expand({"a": {"torch": "2.8"}}, {"a": ["torch==2.8.*", "torch==2.8.*"]})
    assert entry.torch_requirement == "torch==2.8.*"


@pytest.mark.parametrize(
    ("value", "requirement"),
    [
        ("2.8", "torch==2.8.*"),
        ("2.8", "torch==2.8.1"),
        ("2.8", "torch>=2.8,<2.9"),
        ("2.8", "torch<=2.8.1"),
        ("2.8.1", "torch==2.8.1"),
        ("2.8.12", "torch==2.8.*"),
        ("2.8.0", "torch==2.8.0+cu128"),
        ("2.8.0+cu128", "torch==2.8.0+cu128"),
        ("2.9.0.dev20250801", "torch==2.9.0.dev20250801"),
        ("2.8", "torch @ file:///wheels/torch-2.8.0-cp311-cp311-linux_x86_64.whl"),
    ],
)
def test_requirement_that_keeps_to_the_variable(value: str, requirement: str) -> None:
    """Every way to pin what the variable names is accepted."""
    (entry,) = expand({"a": {"torch": value}}, {"a": [requirement]})
    assert entry.torch == value[:3]


@pytest.mark.performs("require {}")
@pytest.mark.parametrize(
    ("value", "requirement", "problem"),
    [
        ("2.8", "torch==2.9.*", f"admits no such version; require {PIN}"),
        ("2.8.1", "torch==2.8.0", f"admits no such version; require {PIN}"),
        ("2.8", "torch>=2.8,<2.8", f"admits no such version; require {PIN}"),
        ("2.8", "torch", f"admits newer releases, and an installer takes the newest; require {PIN}"),
        ("2.8", "torch>=2.8", f"admits newer releases, and an installer takes the newest; require {PIN}"),
        ("1.13", "torch!=2.0.*", f"admits newer releases, and an installer takes the newest; require {PIN}"),
    ],
)
def test_requirement_that_contradicts_the_variable(value: str, requirement: str, problem: str) -> None:
    """A requirement that contradicts the variable `torch`, or admits another release, is an error before any work."""
    expected = f"a: the variable `torch` is `{value}`, but the requirement `{requirement}` {problem}"
    assert problems({"a": {"torch": value}}, {"a": [requirement]}) == [expected]
    required = problem.partition("require ")[2].strip('"').replace("{matrix:torch}", value)
    assert expand({"a": {"torch": value}}, {"a": [required]})


@pytest.mark.performs(
    "correct it",
    "keep one",
    "keep only one",
    "make them agree",
    "or remove `abi` from the ",
    "to the environment's `dependencies`",
)
def test_all_problems_of_all_entries_at_once() -> None:
    """Every fault of every entry is reported, with the entry and a remedy; unreadable lines first."""
    envs = {
        "m.none": {"torch": "2.8"},
        "m.two": {"torch": "2.8"},
        "m.latest": {"torch": "latest"},
        "m.major": {"torch": "2"},
        "m.rocm": {"torch": "2.8", "cuda": "rocm6.3"},
        "m.local": {"torch": "2.8", "cuda": "cu128"},
        "m.old": {"torch": "2.9", "abi": "stable"},
        "m.abi": {"torch": "2.10", "abi": "limited"},
        "m.broken": {"torch": "2.10"},
    }
    dependencies = {
        "m.none": ["torchvision", "pytest"],
        "m.two": ["torch==2.8.*", "TORCH==2.8.1"],
        "m.latest": ["torch"],
        "m.major": ["torch==2.*"],
        "m.rocm": ["torch==2.8.*"],
        "m.local": ["torch==2.8.0+cpu"],
        "m.old": ["torch==2.9.*"],
        "m.abi": ["torch==2.10.*"],
        "m.broken": ["torch==2.10.*", "torch=2"],
    }
    found = problems(envs, dependencies)
    local = (
        "m.local: the variable `cuda` is `cu128`, but the requirement `torch==2.8.0+cpu` installs torch's build for "
        "`cpu`; make them agree"
    )
    stable = (
        "m.old: `abi` is `stable`, but torch 2.9 has no stable ABI to build for; use torch 2.10 or newer, or remove "
        "`abi` from the entry"
    )
    assert found == [
        "m.broken: dependency #2 `torch=2` is not a requirement (PEP 508); correct it",
        f"m.none: no torch among the dependencies; add {PIN} to the environment's `dependencies`",
        "m.two: 2 requirements on torch (`torch==2.8.*` and `TORCH==2.8.1`); keep only one",
        "m.latest: the variable `torch` must be a version such as `2.8`, not `latest`",
        "m.major: the variable `torch` must be a version such as `2.8`, not `2`",
        "m.rocm: the variable `cuda`: `rocm6.3` is neither `cpu` nor a CUDA version such as `cu130` or `13.0`",
        local,
        stable,
        "m.abi: the variable `abi` must be `stable` or `exact`, not `limited`",
    ]
    envs |= {
        "m.latest": {"torch": "2.8"},
        "m.major": {"torch": "2.8"},
        "m.rocm": {"torch": "2.8", "cuda": "cu128"},
        "m.old": {"torch": "2.10", "abi": "stable"},
        "m.abi": {"torch": "2.10", "abi": "exact"},
    }
    pins = {name: [PIN.strip('"').replace("{matrix:torch}", variables["torch"])] for name, variables in envs.items()}
    assert len(expand(envs, {**pins, "m.two": ["TORCH==2.8.1"], "m.local": ["torch==2.8.0+cu128"]})) == len(envs)
    del envs["m.old"]["abi"]
    assert len(expand(envs, pins)) == len(envs)


@pytest.mark.performs("give it `torch =")
def test_matrix_without_any_torch() -> None:
    """Where no entry requires torch, one sentence says so instead of one for each entry; written so, it is a matrix."""
    remedy = f'requires no torch: give it `torch = ["2.8", …]`, and its environment {PIN} in `dependencies`'
    with_variable = problems({"m.a": {"torch": "2.8"}, "m.b": {"torch": "2.9"}}, {"m.a": [], "m.b": ["numpy"]})
    assert with_variable == [f"The matrix {remedy}"]
    assert problems({"m": {}}, {"m": ["numpy"]}) == [f"The matrix has no `torch` variable and {remedy}"]
    (release,) = re.findall(r'torch = \["(.*?)",', remedy)
    pin = PIN.strip('"').replace("{matrix:torch}", release)
    assert expand({f"m.{release}": {"torch": release}}, {f"m.{release}": ["numpy", pin]})


def test_exact_and_stable_side_by_side() -> None:
    """`abi` may name the ordinary ABI, so that one table of a matrix has both; their labels differ."""
    found = entries("2.10-exact", "2.10-stable", torch=[], abi=[])
    assert [entry.stable_abi for entry in matrix.select(found)] == [False, True]


def test_cpu_variant_of_a_cuda_build() -> None:
    """What needs no CUDA may be compiled against any build of torch, so `cpu` contradicts none."""
    (entry,) = expand({"a": {"torch": "2.8", "cuda": "cpu"}}, {"a": ["torch==2.8.0+cu128"]})
    assert (entry.torch, entry.backend) == ("2.8", Backend("cpu"))


SAMPLE = ("2.8-cpu", "2.8-cu128", "2.9-cpu", "2.9-cu130", "2.10-cpu")


@pytest.mark.parametrize(
    ("only", "skip", "expected"),
    [
        ([], [], [*SAMPLE]),
        (["matrix.2.8-cpu"], [], ["2.8-cpu"]),
        (["*-cpu"], [], ["2.8-cpu", "2.9-cpu", "2.10-cpu"]),
        (["*.2.9-*", "matrix.2.10*"], [], ["2.9-cpu", "2.9-cu130", "2.10-cpu"]),
        (["torch2.8_*"], [], ["2.8-cpu", "2.8-cu128"]),
        (["*_cu13.*"], [], ["2.9-cu130"]),
        (["torch2.9_cpu_cxx11_x86_64_cp311"], [], ["2.9-cpu"]),
        (["torch2.8_cpu_cxx98_aarch64"], [], ["2.8-cpu"]),
        (["stable*", "*-cu128"], [], ["2.8-cu128"]),
        ([], ["*_cu1?.?_*"], ["2.8-cpu", "2.9-cpu", "2.10-cpu"]),
        ([], ["matrix.2.8-*"], ["2.9-cpu", "2.9-cu130", "2.10-cpu"]),
        (["torch2.[89]_*"], ["*_cpu_*"], ["2.8-cu128", "2.9-cu130"]),
    ],
)
def test_globs_over_names_and_labels(only: list[str], skip: list[str], expected: list[str]) -> None:
    """`only` and `skip` know an entry by its name and by any label it may get; `skip` is the stronger."""
    assert names(matrix.select(entries(*SAMPLE, torch=[], cuda=[]), only=only, skip=skip)) == expected


def test_globs_reach_what_the_matrix_leaves_open() -> None:
    """An entry without `cuda` may become either backend, so that globs over both reach it, within its torch's CUDAs."""
    found = entries("2.8", "2.9", torch=[])
    assert names(matrix.select(found, only=["*_cu12.8_*"])) == ["2.8", "2.9"]
    assert names(matrix.select(found, only=["*_cpu_*"])) == ["2.8", "2.9"]
    assert names(matrix.select(found, only=["*_cu13.0_*"])) == ["2.9"]


def test_a_release_is_not_taken_for_a_cuda_version() -> None:
    """A glob that matches a name is about names; one that matches none is compared with published CUDA versions."""
    found = entries("2.8", "2.9", torch=[])  # torch 2.8 was published for CUDA 12.9
    assert names(matrix.select(found, only=["*2.9*"])) == ["2.9"]
    assert names(matrix.select(found, skip=["*2.9*"])) == ["2.8"]
    with pytest.raises(ConfigurationError, match=r"`only` \(`\*2.7\*`\) leaves no entry of the matrix to build"):
        matrix.select(found, only=["*2.7*"])


def test_globs_are_case_sensitive_and_match_as_a_whole() -> None:
    """A part of a name is not a match."""
    with pytest.raises(ConfigurationError):
        matrix.select(entries("2.8", torch=[]), only=["2.8", "MATRIX.2.8", "torch2.8"])


@pytest.mark.parametrize(
    ("only", "skip", "beginning"),
    [
        (["matrix.3.*", "x"], [], "`only` (`matrix.3.*`, `x`) leaves"),
        ([], ["*"], "`skip` (`*`) leaves"),
        (["*2.8"], ["*2.8"], "`only` (`*2.8`) and `skip` (`*2.8`) leave"),
    ],
)
def test_nothing_selected(only: list[str], skip: list[str], beginning: str) -> None:
    """A selection of nothing is an error that lists what there is."""
    with pytest.raises(ConfigurationError) as caught:
        matrix.select(entries("2.8", "2.9", torch=[]), only=only, skip=skip)
    assert str(caught.value) == (
        f"{beginning} no entry of the matrix to build; globs match an entry's name or a label such as "
        f"`torch2.8_cpu_cxx11_x86_64`, and the entries are `matrix.2.8`, `matrix.2.9`"
    )


@pytest.mark.performs("remove the pair from the matrix")
def test_torch_that_was_never_built_for_that_cuda() -> None:
    """An impossible pair is an error that lists the possible ones, unless `skip` names it; minors may differ."""
    found = entries("2.8-cu130", "2.8-cu121", "2.9-cu118", "2.14-cu118", "2.40-cu118", torch=[], cuda=[])
    with pytest.raises(ConfigurationError) as caught:
        matrix.select(found, only=["*2.8-cu121"])
    remedy = "remove the pair from the matrix, or name it in `skip`"
    cases = [
        ("2.8", "cu130", "13.0", "12.6, 12.8, 12.9"),
        ("2.9", "cu118", "11.8", "12.6, 12.8, 13.0"),
        ("2.14", "cu118", "11.8", "12.6, 13.0, 13.2"),
    ]
    assert list(caught.value.problems) == [
        f"matrix.{torch}-{value}: there is no torch {torch} for CUDA {cuda}: it was published for CUDA {has}; {remedy}"
        for torch, value, cuda, has in cases
    ]
    assert names(matrix.select(found, skip=["*2.8-cu130", "*cu118"])) == ["2.8-cu121"]
    assert names(matrix.select(entries("2.8-cu121", torch=[], cuda=[]))) == ["2.8-cu121"]


def test_exact_build_of_torch_is_trusted() -> None:
    """A requirement that names one build (a local version, an address) is not held against the table."""
    envs = {"m.a": {"torch": "2.7", "cuda": "cu130"}, "m.b": {"torch": "2.8", "cuda": "cu130"}}
    found = expand(envs, {"m.a": ["torch==2.7.0+cu130"], "m.b": ["torch @ file:///w/torch-2.8.0-py3-none-any.whl"]})
    assert matrix.select(found) == found


@pytest.mark.performs("Leave one out with `skip`", "name the others in `skip`")
def test_two_entries_of_one_label() -> None:
    """Entries that differ only in an author's variable are an error, which names the variable; `skip` resolves it."""
    found = entries("2.8-fast", "2.8-small", "2.9-fast", torch=[], flavour=[])
    with pytest.raises(ConfigurationError) as caught:
        matrix.select(found, only=["*2.9*"])
    assert str(caught.value) == (
        "`matrix.2.8-fast` and `matrix.2.8-small` would give variants of one label: they differ only in `flavour`, and "
        "the loader compares only torch's major.minor, ABI, CUDA version, Python and processor; keep one of "
        "them, or name the others in `skip`"
    )
    assert names(matrix.select(found, skip=["*small"])) == ["2.8-fast", "2.9-fast"]


def test_labels_are_compared_by_meaning() -> None:
    """Two patches of one release, or two spellings of one CUDA version, are one label; two Pythons are not."""
    envs = {
        "m.a": {"torch": "2.8.0", "cuda": "cu128"},
        "m.b": {"torch": "2.8.1", "cuda": "12.8"},
        "m.c": {"torch": "2.8.0", "cuda": "cu128", "python": "3.12"},
    }
    dependencies = {name: [f"torch=={variables['torch']}"] for name, variables in envs.items()}
    with pytest.raises(ConfigurationError) as caught:
        matrix.select(expand(envs, dependencies, {"m.c": "3.12"}))
    (problem,) = caught.value.problems
    assert problem.startswith("`m.a` and `m.b` would give variants of one label: they differ only in `torch`, `cuda`,")


def test_machine_tells_entries_apart() -> None:
    """Entries for two machines do not collide; one without the variable is that of the machine that builds."""
    found = entries("2.8-x86_64", "2.8-aarch64", torch=[], machine=[])
    assert [entry.machine for entry in matrix.select(found)] == ["x86_64", "aarch64"]
    assert names(matrix.select(found, only=["torch2.8_*_aarch64"])) == ["2.8-aarch64"]
    here = platform.machine()
    assert names(matrix.of_this_machine(found)) == [f"2.8-{here}"]
    envs = {"m.own": {"torch": "2.8"}, "m.named": {"torch": "2.8", "machine": here}}
    own = expand(envs, {name: ["torch==2.8.*"] for name in envs})
    assert matrix.of_this_machine(own) == own
    with pytest.raises(ConfigurationError, match="they differ only in `machine`"):
        matrix.select(own)


def test_wrong_machine_is_reported_with_the_right_word() -> None:
    """For another name of a machine, the error gives ours; for an unknown one, both machines."""
    envs = {f"m.{machine}": {"torch": "2.8", "machine": machine} for machine in ("arm64", "riscv64")}
    assert problems(envs, {name: ["torch==2.8.*"] for name in envs}) == [
        "m.arm64: the variable `machine` must be `aarch64`, not `arm64`",
        "m.riscv64: the variable `machine` must be `x86_64` or `aarch64`, not `riscv64`",
    ]


def test_markers_are_those_of_the_entrys_machine() -> None:
    """A requirement for one machine holds for the entries of that machine, wherever they are built."""
    lines = ["torch==2.8.*; platform_machine=='aarch64'", "torch==2.8.1; platform_machine=='x86_64'"]
    envs = {f"m.{machine}": {"torch": "2.8", "machine": machine} for machine in ("aarch64", "x86_64")}
    found = expand(envs, dict.fromkeys(envs, lines))
    assert [entry.torch_requirement for entry in found] == lines


def test_another_torch_is_built_for_this_machine() -> None:
    """A matrix only for another machine says nothing of the machine on which a build at first use runs."""
    found = entries("2.8-aarch64-fast", "2.9-aarch64-fast", torch=[], machine=[], flavour=[])
    assert matrix.common(found).variables == (("flavour", "fast"),)


@pytest.mark.parametrize(
    ("names", "cuda", "expected"),
    [
        (("2.10-cpu", "2.10-cu126"), "13.0", "13.0"),
        (("2.10-cpu", "2.10-cu126"), None, None),
        (("2.10-cpu", "2.9-cpu"), "13.0", "cpu"),
    ],
)
def test_an_installed_torch_for_cuda(names: tuple[str, ...], cuda: str | None, expected: str | None) -> None:
    """Where the matrix has entries for CUDA, what is built for an installed CUDA torch has its CUDA sources too."""
    found = entries(*names, torch=[], cuda=[])
    made = matrix.current(matrix.common(found), torch="2.11.0", built_for=Backend.of_cuda(cuda))
    assert (made.backend.name if made.backend else None) == expected
    assert dict(made.variables).get("cuda") == {"13.0": "cu130", "cpu": "cpu", None: None}[expected]


def test_newest_torch_of_the_matrix() -> None:
    """The newest release by version, not by text, in every backend and ABI it has."""
    found = entries("2.10-cpu", "2.9-cpu", "2.10-cu130", "2.8-cpu", torch=[], cuda=[])
    assert names(matrix.newest(found)) == ["2.10-cpu", "2.10-cu130"]


def test_newest_of_undeclared_torches() -> None:
    """An open requirement counts as the newest that it admits; where nothing is known, all are taken."""
    found = expand({"a": {"x": "1"}, "b": {"x": "2"}}, {"a": ["torch>=2.8,<2.10"], "b": ["torch>=2.8,<2.12"]})
    assert [entry.name for entry in matrix.newest(found)] == ["b"]
    wheel = ["torch @ file:///w/torch-2.8.0-py3-none-any.whl"]
    unknown = expand({"a": {"x": "1"}, "b": {"x": "2"}}, {"a": wheel, "b": wheel})
    assert matrix.newest(unknown) == unknown


TORCHES = st.lists(st.sampled_from([f"2.{minor}" for minor in range(1, 15)]), min_size=1, max_size=6, unique=True)


@settings(max_examples=40)
@given(TORCHES, st.sampled_from(["*2.1?*", "torch2.[4-9]_*", "*_cu12.*", "*_cp312", "zzz"]))
def test_only_and_skip_of_one_glob_part_the_matrix(torches: list[str], glob: str) -> None:
    """What `only` takes and what `skip` leaves are the whole matrix, each in its order, with nothing in both."""
    found = entries(*torches, torch=[])

    def taken(*, only: list[str], skip: list[str]) -> tuple[Entry, ...]:
        try:
            return matrix.select(found, only=only, skip=skip)
        except ConfigurationError:
            return ()

    chosen, left = taken(only=[glob], skip=[]), taken(only=[], skip=[glob])
    assert not set(chosen) & set(left)
    assert [entry for entry in found if entry in chosen or entry in left] == list(found)
    assert [entry for entry in found if entry in chosen] == list(chosen)
