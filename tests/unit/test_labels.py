"""Labels, the CUDA versions and Python tags in them, and which of them an entry may get."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hatch_torch_ext.facts import labels
from hatch_torch_ext.facts.backend import Backend


@pytest.mark.parametrize(
    ("identity", "expected"),
    [
        (("2.8", False, "12.8", True, "x86_64", None), "torch2.8_cu12.8_cxx11_x86_64"),
        (("2.6", False, None, False, "x86_64", None), "torch2.6_cpu_cxx98_x86_64"),
        (("2.10", True, None, None, "x86_64", None), "stable2.10_cpu_x86_64"),
        (("2.10", True, "13.0", True, "aarch64", None), "stable2.10_cu13.0_aarch64"),
        (("2.13", False, None, True, "aarch64", "cp311"), "torch2.13_cpu_cxx11_aarch64_cp311"),
        (("2.13", False, None, True, "x86_64", "cp313t"), "torch2.13_cpu_cxx11_x86_64_cp313t"),
        (("2.10", True, None, None, "x86_64", "abi3-cp39"), "stable2.10_cpu_x86_64_abi3"),
        (("2.8", False, None, None, "x86_64", None), "torch2.8_cpu_x86_64"),
    ],
)
def test_label_says_what_a_variant_is(
    identity: tuple[str, bool, str | None, bool | None, str, str | None], expected: str
) -> None:
    """Every part of a variant's identity that a user's machine must match is in its label, and nothing else."""
    torch_minor, stable_abi, cuda, cxx11_abi, machine, python = identity
    made = labels.label(
        torch_minor=torch_minor,
        stable_abi=stable_abi,
        backend=Backend.of_cuda(cuda),
        cxx11_abi=cxx11_abi,
        machine=machine,
        python=python,
    )
    assert made == expected


def test_label_of_unsafe_characters_is_refused() -> None:
    """A part that could not be a folder's name everywhere never becomes one."""
    cpu = Backend("cpu")
    with pytest.raises(ValueError, match="label") as caught:
        labels.label(torch_minor="2.8", stable_abi=False, backend=cpu, cxx11_abi=True, machine="../X", python=None)
    expected = "`torch2.8_cpu_cxx11_../X` is not a label: it may contain only `0-9`, `a-z`, `.` and `_`"
    assert str(caught.value) == expected


@pytest.mark.parametrize(
    ("value", "version"),
    [
        ("cpu", None),
        ("cu130", "13.0"),
        ("13.0", "13.0"),
        ("cu128", "12.8"),
        ("12.8", "12.8"),
        ("cu118", "11.8"),
        ("cu102", "10.2"),
    ],
)
def test_cuda_variable_is_read(value: str, version: str | None) -> None:
    """Torch's spelling and NVIDIA's name the same version; `cpu` names none."""
    assert Backend.parse(value) == Backend.of_cuda(version)


@pytest.mark.parametrize("value", ["", "CPU", "cu13", "13", "rocm6.3", "cuda13.0", "130", "cu13.0", "13.0.1"])
def test_other_cuda_values_are_refused(value: str) -> None:
    """Anything else is an error rather than a guess."""
    with pytest.raises(ValueError, match="neither") as caught:
        Backend.parse(value)
    assert str(caught.value) == f"`{value}` is neither `cpu` nor a CUDA version such as `cu130` or `13.0`"


@pytest.mark.parametrize(
    ("python", "tag"),
    [
        ("3.11", "cp311"),
        ("py311", "cp311"),
        ("py3.11", "cp311"),
        ("python3.9", "cp39"),
        ("cp313t", "cp313t"),
        ("3.13t", "cp313t"),
        ("3.12.4", "cp312"),
        ("cpython-3.12", "cp312"),
        ("pypy3.10", None),
        ("/usr/bin/python3", None),
        (None, None),
    ],
)
def test_python_tag_of_an_environment(python: str | None, tag: str | None) -> None:
    """Hatch's spellings of a CPython give its tag; others stay open."""
    assert labels.python_tag(python) == tag


@given(
    minor=st.integers(0, 40),
    stable_abi=st.booleans(),
    cuda=st.sampled_from([None, "11.8", "12.6", "12.8"]),
    cxx11_abi=st.sampled_from([None, False, True]),
    machine=st.sampled_from(labels.MACHINES),
    python=st.sampled_from([None, "cp39", "cp311", "cp314t", "abi3-cp310"]),
)
def test_every_label_is_safe_and_among_the_possible_ones(
    *, minor: int, stable_abi: bool, cuda: str | None, cxx11_abi: bool | None, machine: str, python: str | None
) -> None:
    """A label is a plain folder name, and selectors saw it before the build, declared or open."""
    made = labels.label(
        torch_minor=f"2.{minor}",
        stable_abi=stable_abi,
        backend=Backend.of_cuda(cuda),
        cxx11_abi=cxx11_abi,
        machine=machine,
        python=python,
    )
    assert re.fullmatch(r"[0-9a-z._]+", made)
    tag = python if python and not python.startswith("abi3") else "cp312"
    declared = labels.possible(torch=[(2, minor)], stable_abi=stable_abi, backend=Backend.of_cuda(cuda), python=tag)
    assert made in set(declared)


def test_open_backend_and_python_try_every_published_one() -> None:
    """Where the matrix declares neither CUDA nor Python, all that this torch may have are tried, and no other."""
    found = set(labels.possible(torch=[(2, 8)], stable_abi=False, backend=None, python=None))
    assert {"torch2.8_cpu_cxx11_x86_64", "torch2.8_cu12.8_cxx11_aarch64_cp313t", "torch2.8_cu12.9_x86_64_abi3"} <= found
    assert not any("cu11" in text or "cu13" in text or "stable" in text for text in found)
