"""CUDA architectures: notation, groups, defaults, and the flags that they become."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hatch_torch_ext.facts import archs
from hatch_torch_ext.facts.archs import Arch

NVCC_12_4 = (50, 52, 53, 60, 61, 62, 70, 72, 75, 80, 86, 87, 89, 90)
NVCC_13_0 = (75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121)


def names(*texts: str, supported: tuple[int, ...] = NVCC_13_0) -> list[str]:
    """Return what ``texts`` resolve to, in torch's notation."""
    return [arch.name for arch in archs.resolve(texts, supported)]


@pytest.mark.parametrize(
    ("text", "arch"),
    [
        ("7.5", Arch(number=75)),
        ("9.0a", Arch(number=90, suffix="a")),
        ("10.0f", Arch(number=100, suffix="f")),
        ("9.0+PTX", Arch(number=90, ptx=True)),
        ("12.1a+PTX", Arch(number=121, suffix="a", ptx=True)),
    ],
)
def test_torch_notation_is_read_and_written(text: str, arch: Arch) -> None:
    """Each form that torch knows is read, and written back as it was."""
    assert archs.parse(text) == arch
    assert arch.name == text


@pytest.mark.performs("write it as torch does")
@pytest.mark.parametrize("text", ["", "sm_90", "90", "9", "9.0b", "9.0+ptx", "9.0 ", "0.5", "٩.0", "9.10", "all"])
def test_anything_else_is_refused(text: str) -> None:
    """The message quotes what was written and shows the notation, which is read."""
    with pytest.raises(ValueError, match="is not a CUDA architecture") as failure:
        archs.parse(text)
    assert str(failure.value) == (
        f"`{text}` is not a CUDA architecture: write it as torch does, such as `8.0` or `9.0a+PTX`"
    )
    assert [archs.parse(shown).name for shown in str(failure.value).split("`")[3::2]] == ["8.0", "9.0a+PTX"]


@given(st.text(max_size=12))
def test_what_is_read_is_written_back(text: str) -> None:
    """No text is read as something other than it says."""
    try:
        arch = archs.parse(text)
    except ValueError:
        return
    assert arch.name == text


def test_duplicates_merge_and_order_does_not_matter() -> None:
    """9.0 and 9.0+PTX are one architecture with PTX; 9.0a is another; the result is sorted."""
    assert names("9.0a", "9.0", "8.0", "9.0+PTX", "8.0") == ["8.0", "9.0+PTX", "9.0a"]


def test_groups_are_what_nvcc_supports() -> None:
    """`all` is every architecture with PTX of the newest; `all-major` is as nvcc defines it, checked against 13.0."""
    assert names("all-major") == ["7.5", "8.0", "9.0", "10.0", "11.0", "12.0+PTX"]
    assert names("all-major", supported=NVCC_12_4) == ["5.0", "6.0", "7.0", "8.0", "9.0+PTX"]
    assert names("all")[0] == "7.5"
    assert names("all")[-1] == "12.1+PTX"
    assert len(names("all")) == len(NVCC_13_0)
    assert names("all-major", "9.0a") == ["7.5", "8.0", "9.0", "9.0a", "10.0", "11.0", "12.0+PTX"]


def test_flags_for_cmake_torch_and_nvcc_agree() -> None:
    """Machine code without PTX is `-real` for CMake; PTX is added, never put in its place."""
    found = archs.resolve(("8.0", "9.0+PTX", "10.0f"), NVCC_13_0)
    assert archs.cmake_value(found) == "80-real;90;100f-real"
    assert archs.torch_value(found) == "8.0;9.0+PTX;10.0f"
    assert archs.gencode(found) == (
        "-gencode=arch=compute_80,code=sm_80",
        "-gencode=arch=compute_90,code=sm_90",
        "-gencode=arch=compute_90,code=compute_90",
        "-gencode=arch=compute_100f,code=sm_100f",
    )


def test_what_nvcc_lacks_is_reported() -> None:
    """Nvcc 13 has no 7.0 any more, and nvcc 12.4 not yet 12.0."""
    wanted = archs.resolve(("7.0", "9.0a", "12.0"), ())
    assert [arch.name for arch in archs.unsupported(wanted, NVCC_13_0)] == ["7.0"]
    assert [arch.name for arch in archs.unsupported(wanted, NVCC_12_4)] == ["12.0"]


def test_nvcc_lists_are_read() -> None:
    """Both lists of nvcc, in whatever order it prints them."""
    assert archs.from_nvcc("sm_75\nsm_110\nsm_103\n") == (75, 103, 110)
    assert archs.from_nvcc("compute_50\ncompute_90\n") == (50, 90)
    assert archs.from_nvcc("") == ()


@pytest.mark.parametrize(
    ("cuda", "expected"), [("12.8", "exact"), ("12.4", "major"), ("11.8", "any"), ("12.80", "major"), ("13.0", "any")]
)
def test_the_longest_matching_version_counts(cuda: str, expected: str) -> None:
    """`archs.12.8` before `archs.12` before `archs`; 12.80 is not 12.8."""
    choices = (("12", ("major",)), ("", ("any",)), ("12.8", ("exact",)))
    assert archs.longest_match(choices, cuda) == next(pair for pair in choices if pair[1] == (expected,))
    assert archs.longest_match(choices[:1], "13.0") is None


@pytest.mark.parametrize(
    ("cuda", "machine", "first", "last"),
    [
        ("11.7", "x86_64", "3.7", "8.6"),
        ("12.4", "x86_64", "5.0", "9.0"),
        ("12.8", "x86_64", "7.0", "12.0"),
        ("13.0", "x86_64", "7.5", "12.0"),
        ("13.2", "aarch64", "8.0", "12.0"),
    ],
)
def test_defaults_are_what_torch_was_built_for(cuda: str, machine: str, first: str, last: str) -> None:
    """The table answers for every minor of a known major, and each row is in torch's notation."""
    found = archs.torch_build(cuda, machine)
    assert (found[0], found[-1]) == (first, last)
    for row in archs.TORCH_BUILDS:
        for text in (*row[1], *row[2]):
            archs.parse(text)
    assert archs.torch_build("14.0", machine) == ()


def test_the_newest_of_a_default_has_ptx_besides() -> None:
    """Cards to come are served; architectures with a suffix have no PTX that would run on them."""
    found = archs.with_fallback(archs.resolve(("7.5", "9.0", "10.0a"), ()))
    assert [arch.name for arch in found] == ["7.5", "9.0+PTX", "10.0a"]
    assert archs.with_fallback(()) == ()


@pytest.mark.performs("option `archs` had no effect")
def test_archs_without_cuda_code_are_reported() -> None:
    """The warning comes only when the option is set and no variant holds device code; either remedy ends it."""
    configured = (("", ("8.0",)),)
    assert archs.unused((), [()]) is None
    assert archs.unused(configured, [(), ("8.0",)]) is None
    assert archs.unused(configured, [(), ()]) == (
        "option `archs` had no effect: no variant holds CUDA code. Take it out, or compile CUDA sources "
        "(`enable_language(CUDA)`) in entries whose torch has CUDA"
    )


@pytest.mark.parametrize(
    ("name", "on", "never"),
    [
        ("8.0", (80, 86, 89), (75, 87, 90)),
        ("8.7", (87,), (80, 86, 89)),
        ("8.0+PTX", (80, 87, 121), (75,)),
        ("10.0f", (100, 103), (101, 110)),
        ("10.1", (101, 110), (100, 103)),
        ("9.0a", (90,), (91, 100)),
    ],
)
def test_integrated_gpus_run_only_their_own_code(name: str, on: tuple[int, ...], never: tuple[int, ...]) -> None:
    """A Jetson Orin (8.7) has "no kernel image" in a wheel for 8.0, and the other way round; PTX serves both."""
    assert all(archs.runs(name, capability) for capability in on)
    assert not any(archs.runs(name, capability) for capability in never)
