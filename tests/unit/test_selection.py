"""Which variant a user gets: the rules as data in, data out, over everything that users have."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hatch_torch_ext.resources import _variants as loader

HELP = loader._part("help")
RELEASES = ["1.13.1", "2.4.0", "2.4.1", "2.8.0", "2.9.1", "2.10.0", "2.13.0", "2.8.0.post2", "2.15.0"]
BUILDS = ["", "+cpu", "+cu118", "+cu128", "+rocm6.3", "+xpu", "+cpu.cxx11.abi"]
SNAPSHOTS = ["a0", "b1", "rc1", ".dev20250801", "a0+git1f2e3d4", "a0+7c8ec84dab.nv25.03", "rc1+computecanada"]
OWN_BUILDS = ["+git1f2e3d4", "+5d2e1a7", "+41361538", "+e6216047b8", "+computecanada", "+nv25.11", "+local.1"]


def variant(**fields: Any) -> dict[str, Any]:
    """Return a variant of the loader's literal: torch 2.8, CPU, unless stated otherwise."""
    plain: dict[str, Any] = {
        "label": "it",
        "torch": "2.8",
        "stable_abi": False,
        "cuda": None,
        "archs": [],
        "cxx11_abi": True,
        "on_default_index": True,
        "cp": [38, 399],
        "python": None,
        "machine": "x86_64",
        "libc": "glibc",
        "libc_floor": "2.17",
        "files": [],
    }
    return {**plain, **fields}


def facts(**fields: Any) -> dict[str, Any]:
    """Return the facts of a machine: torch 2.8.0 for the CPU, CPython 3.11, unless stated otherwise."""
    plain: dict[str, Any] = {
        "torch": "2.8.0",
        "backend": "CPU",
        "cxx11_abi": True,
        "python": "cp311",
        "system": "linux",
        "machine": "x86_64",
        "libc": "glibc",
        "libc_version": "2.36",
    }
    return {**plain, **fields}


def chosen(here: dict[str, Any], *variants: dict[str, Any], **options: Any) -> str:
    """Return the label that ``select`` chooses, or ""."""
    return str(loader.select(here, variants, **options).label)


def why(here: dict[str, Any], candidate: dict[str, Any]) -> str:
    """Return the words against ``candidate``, or ""."""
    return str(loader.select(here, [candidate]).against(candidate["label"]))


@pytest.mark.parametrize("torch", ["2.8.0", "2.8.1", "2.8", "2.8.0.post1", *(f"2.8.1{build}" for build in BUILDS)])
def test_a_variant_serves_every_patch_of_its_minor(torch: str) -> None:
    """Case 2: built on 2.8.0, it runs on 2.8.1, wherever that build was downloaded."""
    assert chosen(facts(torch=torch), variant()) == "it"


@pytest.mark.parametrize("torch", ["2.7.1", "2.9.0", "2.80.0", "1.8.0", "3.8.0", "2.10.0"])
def test_a_variant_serves_no_other_minor(torch: str) -> None:
    """Case 1: another minor may abort the process, so it is rejected with the reason."""
    assert why(facts(torch=torch), variant()) == f"built for torch 2.8, found {torch}"


@pytest.mark.performs("TORCH_EXT_PRERELEASE=1")
@pytest.mark.parametrize("suffix", SNAPSHOTS)
def test_snapshots_need_the_opt_in(suffix: str) -> None:
    """A pre-release, whoever built it: no exact variant unless the user says so."""
    here = facts(torch=f"2.8.0{suffix}")
    assert why(here, variant()) == f"built for releases of torch 2.8, found the snapshot 2.8.0{suffix}"
    assert chosen(here, variant(), prerelease=True) == "it"
    assert chosen(here, variant(torch="2.9"), prerelease=True) == ""


@pytest.mark.parametrize("suffix", OWN_BUILDS)
def test_a_final_release_under_a_local_name_is_that_release(suffix: str) -> None:
    """Case 68: distributions and clusters build the final sources themselves: served, with one line of caution."""
    choice = loader.select(facts(torch=f"2.8.0{suffix}"), [variant(), variant(label="other", torch="2.9")])
    assert choice.verdicts() == {"it": "chosen", "other": f"rejected: built for torch 2.9, found 2.8.0{suffix}"}
    assert list(HELP.cautions(choice)) == [
        f"hatch_torch_ext.resources: torch 2.8.0{suffix} is not an official build of the release 2.8; "
        "it was compiled for torch's and is loaded"
    ]


@pytest.mark.parametrize("build", BUILDS)
def test_builds_of_torch_itself_need_no_caution(build: str) -> None:
    """The local names of torch's own index say what was built, and nothing of the sources."""
    assert list(HELP.cautions(loader.select(facts(torch=f"2.8.0{build}"), [variant()]))) == []


def test_the_stable_abi_needs_no_caution() -> None:
    """It is a promise of the sources, whoever compiles them."""
    choice = loader.select(facts(torch="2.11.0+computecanada"), [variant(torch="2.10", stable_abi=True)])
    assert (choice.label, list(HELP.cautions(choice))) == ("it", [])


@pytest.mark.parametrize("suffix", SNAPSHOTS)
def test_a_stable_variant_serves_snapshots_above_its_minimum(suffix: str) -> None:
    """The stable ABI holds for what comes after its minimum, released or not."""
    assert chosen(facts(torch=f"2.11.0{suffix}"), variant(torch="2.10", stable_abi=True)) == "it"


def test_a_stable_variant_is_not_for_what_came_before_its_minimum() -> None:
    """2.10.0a0 is older than 2.10.0: it may lack what the minimum promises. A build of the final sources is not."""
    stable = variant(torch="2.10", stable_abi=True)
    assert why(facts(torch="2.9.1"), stable) == "built for torch 2.10 or newer, found 2.9.1"
    assert why(facts(torch="2.10.0a0+nv"), stable) == (
        "built for releases of torch 2.10 or newer, found the snapshot 2.10.0a0+nv"
    )
    assert chosen(facts(torch="2.10.0a0+nv"), stable, prerelease=True) == "it"
    assert chosen(facts(torch="2.10.0+git123"), stable) == "it"
    assert chosen(facts(torch="2.10.0"), stable) == "it"
    assert chosen(facts(torch="3.0.0"), stable) == "it"


NO_VERSIONS = [
    "",
    "unknown",
    "2",
    "2.x",
    "+",
    "2..8",
    "v2.8",
    "٢.٨",
    "2.²",
    "main+cpu",
    "9" * 10_000,
    "2." + "8" * 9999,
]


@pytest.mark.parametrize("torch", NO_VERSIONS)
def test_a_version_that_is_none_serves_nothing(torch: str) -> None:
    """Whatever a torch calls itself, the answer is a reason, never an exception."""
    assert why(facts(torch=torch), variant())
    assert why(facts(torch=torch), variant(torch="2.10", stable_abi=True))


@pytest.mark.parametrize(
    ("cuda", "backend", "fits"),
    [
        ("12.4", "CUDA 12.6", True),
        ("12.4", "CUDA 12.4", True),
        ("12.8", "CUDA 12.10", True),
        ("12.8", "CUDA 12.6", False),
        ("11.8", "CUDA 12.6", False),
        ("12.8", "CUDA 13.0", False),
        ("13.0", "CUDA 12.8", False),
        ("12.4", "CPU", False),
        ("12.4", "ROCm", False),
        ("12.4", "XPU", False),
    ],
)
def test_a_cuda_variant_needs_its_major_and_at_least_its_minor(cuda: str, backend: str, fits: bool) -> None:  # noqa: FBT001
    """Cases 6 and 7: CUDA's minor releases are compatible upwards, its majors are not, and no CUDA is no CUDA."""
    against = why(facts(backend=backend), variant(cuda=cuda))
    reason = f"built for CUDA {cuda} or a newer {cuda[:2]}.x, found a torch for {backend}"
    assert against == ("" if fits else reason)


@pytest.mark.parametrize("backend", ["CPU", "CUDA 12.8", "ROCm", "XPU"])
def test_a_cpu_variant_serves_every_backend(backend: str) -> None:
    """What runs on the CPU runs there under any torch of its minor."""
    assert chosen(facts(backend=backend), variant()) == "it"


def test_the_cxx_abi_is_never_mixed() -> None:
    """Case 3: one release exists with both ABIs; a variant without C++ symbols of torch does not care."""
    old, new, either = (variant(label=label, cxx11_abi=abi) for label, abi in [("a", False), ("b", True), ("c", None)])
    assert chosen(facts(cxx11_abi=False), old, new) == "a"
    assert chosen(facts(cxx11_abi=True), old, new) == "b"
    assert chosen(facts(cxx11_abi=False), either) == "c"
    assert why(facts(), old) == "built for the C++ ABI from before C++11, found the C++11 ABI"
    assert why(facts(cxx11_abi=False), new) == "built for the C++11 ABI, found the C++ ABI from before C++11"


@pytest.mark.parametrize(
    ("wanted", "python", "fits"),
    [
        (None, "cp39", True),
        (None, "pypy310", True),
        ("cp311", "cp311", True),
        ("cp311", "cp312", False),
        ("cp313", "cp313t", False),
        ("cp313t", "cp313t", True),
        ("cp313t", "cp313", False),
        ("abi3-cp39", "cp39", True),
        ("abi3-cp39", "cp314", True),
        ("abi3-cp310", "cp39", False),
        ("abi3-cp39", "cp313t", False),
        ("abi3-cp39", "pypy310", False),
        ("abi3-cp38", "cp27", False),
    ],
)
def test_a_module_needs_its_python(wanted: str | None, python: str, fits: bool) -> None:  # noqa: FBT001
    """Free-threaded Pythons differ, and have no abi3; a variant without modules serves every Python."""
    assert why(facts(python=python), variant(python=wanted)) == ("" if fits else f"built for {wanted}, found {python}")


@pytest.mark.parametrize(
    ("here", "against"),
    [
        ({"system": "darwin"}, "built for linux x86_64, found darwin x86_64"),
        ({"machine": "aarch64"}, "built for linux x86_64, found linux aarch64"),
        ({"libc_version": "2.12"}, "built for glibc 2.17 or newer, found glibc 2.12"),
        ({"libc_version": "2.5"}, "built for glibc 2.17 or newer, found glibc 2.5"),
        ({"libc": "musl", "libc_version": ""}, "built for glibc 2.17 or newer, found musl"),
        ({"libc_version": "2.17"}, ""),
        ({"libc_version": "2.100"}, ""),
    ],
)
def test_the_machine_must_fit(here: dict[str, str], against: str) -> None:
    """System, processor and C library are looked at first; versions are numbers, not texts."""
    assert why(facts(**here), variant()) == against


def test_musl_variants_serve_musl() -> None:
    """The version cannot be had without opening a file, so only the kind of library is compared."""
    musl = variant(libc="musl", libc_floor="1.2")
    assert chosen(facts(libc="musl", libc_version=""), musl) == "it"
    assert why(facts(), musl) == "built for musl 1.2 or newer, found glibc 2.36"


def test_every_reason_is_given() -> None:
    """A variant that fails by several rules says them all, the ones that no installation can change first."""
    assert why(facts(machine="aarch64", torch="2.9.0"), variant(cuda="12.8", python="cp312")) == (
        "built for linux x86_64, found linux aarch64; built for cp312, found cp311; "
        "built for torch 2.8, found 2.9.0; built for CUDA 12.8 or a newer 12.x, found a torch for CPU"
    )


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        ({"cuda": "12.4"}, {}),
        ({"cuda": "12.4", "torch": "2.7", "stable_abi": True}, {}),
        ({}, {"torch": "2.7", "stable_abi": True}),
        ({"cuda": "12.4"}, {"cuda": "12.8", "torch": "2.7", "stable_abi": True}),
        ({"cuda": "12.8"}, {"cuda": "12.4"}),
        ({"python": "cp311"}, {"python": None}),
        ({"python": "cp311"}, {"python": "abi3-cp39"}),
        ({"python": "abi3-cp39"}, {"python": None}),
        ({"python": "abi3-cp310"}, {"python": "abi3-cp39"}),
        ({"stable_abi": True, "torch": "2.8"}, {"stable_abi": True, "torch": "2.7"}),
    ],
)
def test_the_better_of_two_is_taken(better: dict[str, Any], worse: dict[str, Any]) -> None:
    """CUDA over CPU, exact over stable, the newer CUDA, what was built for this Python, the newer minimum."""
    here = facts(backend="CUDA 12.8")
    pair = variant(label="better", **better), variant(label="worse", **worse)
    assert chosen(here, *pair) == chosen(here, *reversed(pair)) == "better"
    assert loader.select(here, pair).verdicts() == {"better": "chosen", "worse": "fits, but better is better"}


def test_a_forced_variant_is_taken_whatever_speaks_against_it() -> None:
    """A forced variant is chosen, and its reasons against it are kept for the messages."""
    choice = loader.select(facts(), [variant(), variant(label="other", torch="2.9")], forced="other")
    assert choice.label == "other"
    assert choice.verdicts() == {
        "it": "fits, but other is better",
        "other": "forced, though built for torch 2.9, found 2.8.0",
    }
    assert list(HELP.cautions(choice)) == [
        "hatch_torch_ext.resources: other was forced, although it was built for torch 2.9, found 2.8.0: it may crash"
    ]


TORCH = st.builds(
    lambda version, rest: version + rest, st.sampled_from(RELEASES), st.sampled_from([*BUILDS, *SNAPSHOTS, *OWN_BUILDS])
)
MACHINES = st.sampled_from(["x86_64", "aarch64"])
FACTS = st.builds(
    facts,
    torch=TORCH | st.just("") | st.text("0123456789.+adevrc", max_size=8),
    backend=st.sampled_from(["CPU", "ROCm", "XPU", "CUDA 11.8", "CUDA 12.1", "CUDA 12.8", "CUDA 13.0", "CUDA 13.2"]),
    cxx11_abi=st.booleans(),
    python=st.sampled_from(["cp38", "cp311", "cp313", "cp313t", "cp314", "pypy310"]),
    machine=MACHINES,
    system=st.sampled_from(["linux", "linux", "linux", "darwin", "win32"]),
    libc=st.sampled_from(["glibc", "musl"]),
    libc_version=st.sampled_from(["", "2.17", "2.28", "2.36"]),
)
VARIANTS = st.lists(
    st.builds(
        variant,
        label=st.text("abcdefgh", min_size=1, max_size=4),
        torch=st.sampled_from(["1.13", "2.4", "2.8", "2.9", "2.10", "2.13"]),
        stable_abi=st.booleans(),
        cuda=st.sampled_from([None, None, "11.8", "12.1", "12.4", "12.8", "13.0"]),
        cxx11_abi=st.sampled_from([True, False, None]),
        python=st.sampled_from([None, None, "cp311", "cp313", "cp313t", "abi3-cp39", "abi3-cp312"]),
        machine=MACHINES,
        libc=st.sampled_from(["glibc", "musl"]),
        libc_floor=st.sampled_from(["2.17", "2.28"]),
    ),
    max_size=12,
    unique_by=lambda each: each["label"],
)


@settings(max_examples=150, deadline=None)
@given(here=FACTS, variants=VARIANTS, prerelease=st.booleans(), data=st.data())
def test_the_choice_is_sound(here: dict[str, Any], variants: list[Any], prerelease: bool, data: st.DataObject) -> None:  # noqa: FBT001
    """It is never a rejected variant, and does not depend on the order; every variant not chosen has a reason."""
    choice = loader.select(here, variants, prerelease=prerelease)
    shuffled = loader.select(here, data.draw(st.permutations(variants)), prerelease=prerelease)
    assert (shuffled.label, shuffled.reasons) == (choice.label, choice.reasons)
    assert choice.reasons.keys() == {each["label"] for each in variants}
    assert not choice.variant or not choice.reasons[choice.label]
    assert choice.variant or all(choice.reasons.values())
    assert all(all(reason) for reasons in choice.reasons.values() for reason in reasons)


@settings(max_examples=150, deadline=None)
@given(here=FACTS, variants=VARIANTS, prerelease=st.booleans(), data=st.data())
def test_one_more_variant_never_costs_anybody_theirs(
    here: dict[str, Any],
    variants: list[Any],
    prerelease: bool,  # noqa: FBT001
    data: st.DataObject,
) -> None:
    """Whoever was served is served with more variants in the wheel, by the same one or by a better one."""
    some = data.draw(
        st.lists(st.sampled_from(variants), unique_by=lambda each: each["label"]) if variants else st.just([])
    )
    before, after = (loader.select(here, given, prerelease=prerelease) for given in (some, variants))
    assert after.variant or not before.variant
    assert not before.variant or loader._rank(after.variant) >= loader._rank(before.variant)


@settings(max_examples=150, deadline=None)
@given(here=FACTS, variants=VARIANTS.filter(bool))
def test_what_the_user_reads_is_short_and_ends_in_a_command(here: dict[str, Any], variants: list[Any]) -> None:
    """At most 15 lines, whatever the number of variants, with a command to paste."""
    choice = loader.select(here, variants)
    rejected = [each for each in variants if choice.reasons[each["label"]]]
    text = HELP.refusal(choice, rejected, "none fits.") if rejected else "\n  pip install"
    assert len(text.splitlines()) <= 15
    assert "\n  pip install" in text
