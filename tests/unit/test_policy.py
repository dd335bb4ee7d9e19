"""Policies from symbol versions, held against what the manylinux standards say."""

from __future__ import annotations

import pytest

from hatch_torch_ext.facts import policy


@pytest.mark.parametrize(
    ("versions", "name"),
    [
        ((), "manylinux_2_5_x86_64"),
        (("GLIBC_2.5", "GLIBCXX_3.4.8"), "manylinux_2_5_x86_64"),
        (("GLIBC_2.17", "GLIBC_2.2.5"), "manylinux_2_17_x86_64"),
        (("GLIBC_2.32", "GLIBC_2.17"), "manylinux_2_34_x86_64"),
        (("GLIBC_2.17", "GLIBCXX_3.4.26"), "manylinux_2_31_x86_64"),
        (("GLIBC_2.17", "CXXABI_1.3.13"), "manylinux_2_34_x86_64"),
        (("OMP_4.0", "libcudart.so.12", "FOO"), "manylinux_2_5_x86_64"),
        (("GLIBC_2.999",), "linux_x86_64"),
        (("GLIBC_PRIVATE",), "linux_x86_64"),
    ],
)
def test_the_lowest_policy(versions: tuple[str, ...], name: str) -> None:
    """The lowest policy that promises every version of glibc, libstdc++ and libgcc; others do not count."""
    assert policy.lowest("x86_64", "glibc", versions).name == name


def test_machines_have_their_own_tables() -> None:
    """aarch64 begins at 2.17: its lowest policy asks more than that of x86-64."""
    assert policy.lowest("aarch64", "glibc", ["GLIBC_2.17"]).name == "manylinux_2_17_aarch64"


def test_musl_is_recognised_and_has_no_versions() -> None:
    """NEEDED tells the C library; musl's files fit the one policy that images are still made for."""
    assert policy.libc_of(["libfoo.so", "libc.musl-x86_64.so.1"]) == "musl"
    assert policy.libc_of(["libc.so"]) == "musl"
    assert policy.libc_of(["libm.so.6", "libc.so.6"]) == "glibc"
    assert policy.libc_of(["libfoo.so"]) is None
    found = policy.lowest("x86_64", "musl", ())
    assert (found.name, policy.floor("musl", found, ())) == ("musllinux_1_2_x86_64", "1.2")
    assert found.guarantees("libc.musl-x86_64.so.1")


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ("manylinux_2_28", "manylinux_2_28_x86_64"),
        ("manylinux_2_28_x86_64", "manylinux_2_28_x86_64"),
        ("manylinux2014", "manylinux_2_17_x86_64"),
        ("musllinux_1_2", "musllinux_1_2_x86_64"),
    ],
)
def test_policies_by_the_names_that_authors_use(asked: str, name: str) -> None:
    """Old aliases and names without the machine are understood."""
    found = policy.named(asked, "x86_64")
    assert found is not None
    assert found.name == name


def test_an_unknown_policy_is_none() -> None:
    """What is not a policy, or one of another machine, is not guessed at."""
    assert policy.named("manylinux_9_99", "x86_64") is None
    assert policy.named("manylinux_2_28_aarch64", "x86_64") is None


def test_what_breaks_a_policy() -> None:
    """Only the versions beyond the policy are named, in natural order."""
    wanted = policy.named("manylinux2014", "x86_64")
    assert wanted is not None
    assert policy.breaking(wanted, "x86_64", ["GLIBC_2.34", "GLIBC_2.4", "GLIBC_2.18"]) == ("GLIBC_2.18", "GLIBC_2.34")


def test_what_no_policy_promises() -> None:
    """Versions above the newest policy, private ones, and nothing for what no policy speaks of."""
    asked = ["GLIBC_2.999", "GLIBC_2.17", "GLIBC_PRIVATE", "OMP_4.0"]
    assert policy.unpromised("x86_64", "glibc", asked) == ("GLIBC_2.999", "GLIBC_PRIVATE")
    assert policy.unpromised("x86_64", "musl", ["OMP_4.0"]) == ()
    assert policy.unpromised("machine190", "glibc", asked) == ()


def test_the_floor_is_the_newest_glibc_that_is_requested() -> None:
    """2.17 is above 2.4; without a glibc version among the symbols, the policy's own counts."""
    found = policy.lowest("x86_64", "glibc", ["GLIBC_2.4", "GLIBC_2.17"])
    assert policy.floor("glibc", found, ["GLIBC_2.4", "GLIBC_2.17"]) == "2.17"
    assert policy.floor("glibc", found, ["GLIBCXX_3.4"]) == "2.17"


def test_what_a_policy_brings() -> None:
    """Libraries of the policy's list and the dynamic linker itself are everywhere; libfoo is not."""
    found = policy.lowest("x86_64", "glibc", ())
    assert [name for name in ("libstdc++.so.6", "ld-linux-x86-64.so.2", "libfoo.so.1") if found.guarantees(name)] == [
        "libstdc++.so.6", "ld-linux-x86-64.so.2",
    ]  # fmt: skip


@pytest.mark.parametrize("odd", ["2.²", "٢.٨", "9" * 10_000, "v" + "1" * 10_000 + ".2", ""])
def test_any_text_has_its_place(odd: str) -> None:
    """Labels and versions of foreign wheels are sorted too: superscripts, other scripts' digits, long ones."""
    ordered = sorted(["2.10", odd, "2.9"], key=policy.natural)
    assert [each for each in ordered if each != odd] == ["2.9", "2.10"]
