"""What the table of releases and version specifiers say of torch."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from hatch_torch_ext.facts import releases
from hatch_torch_ext.facts.releases import torch_requirement

LINES = (
    [(1, minor) for minor in range(10, 14)] + [(2, minor) for minor in range(31)] + [(3, minor) for minor in range(6)]
)
SERVED = st.lists(st.tuples(st.sampled_from(LINES), st.booleans()), min_size=1, max_size=14)


@pytest.mark.parametrize(
    ("served", "expected"),
    [
        ([("2.8", False)], "torch>=2.8,<2.9"),
        ([("2.9", False), ("2.8", False)], "torch>=2.8,<2.10"),
        ([("2.8", False), ("2.9", False), ("2.13", False)], "torch>=2.8,<2.14,!=2.10.*,!=2.11.*,!=2.12.*"),
        ([("2.10", True)], "torch>=2.10"),
        ([("2.8", False), ("2.9", False), ("2.10", True)], "torch>=2.8"),
        ([("2.7", False), ("2.10", True)], "torch>=2.7,!=2.8.*,!=2.9.*"),
        ([("2.7", False), ("2.10", True), ("2.12", False)], "torch>=2.7,!=2.8.*,!=2.9.*"),
        ([("2.12", True), ("2.10", True)], "torch>=2.10"),
        ([("1.13", False), ("2.0", False)], "torch>=1.13,<2.1"),
        ([("1.12", False), ("2.1", False)], "torch>=1.12,<2.2,!=1.13.*,!=2.0.*"),
        ([("1.13", False), ("3.0", False)], "torch>=1.13,<3.1,!=2.*"),
    ],
)
def test_requirement_covers_the_matrix(served: list[tuple[str, bool]], expected: str) -> None:
    """The requirement bounds the served releases, leaves out gaps, and is open upwards only for a stable variant."""
    assert torch_requirement(served) == expected


@given(SERVED)
def test_requirement_admits_exactly_what_is_served(served: list[tuple[tuple[int, int], bool]]) -> None:
    """Of every release line, its first release, patches and local builds are admitted if and only if it is served."""
    specifier = Requirement(
        torch_requirement([(releases.format_minor(line), stable) for line, stable in served])
    ).specifier
    for line in LINES:
        expected = any(line == own or (stable and own <= line) for own, stable in served)
        for release in ("0", "1", "9", "0+cu128", "1+cpu", "0.post1"):
            assert specifier.contains(f"{releases.format_minor(line)}.{release}") is expected, (line, release)


@given(SERVED)
def test_requirement_never_invites_pre_releases(served: list[tuple[tuple[int, int], bool]]) -> None:
    """No clause names a pre-release, so installers do not take one; the order of variants makes no difference."""
    named = [(releases.format_minor(line), stable) for line, stable in served]
    text = torch_requirement(named)
    assert not Requirement(text).specifier.prereleases
    assert text == torch_requirement(named[::-1])


def test_requirement_tolerates_an_installed_snapshot_of_a_served_line() -> None:
    """A snapshot that is already installed satisfies the requirement, but not one of the line above the newest."""
    specifier = Requirement(torch_requirement([("2.8", False), ("2.9", False)])).specifier
    assert specifier.contains("2.9.0a0+git1234567", prereleases=True)
    assert not specifier.contains("2.10.0a0+git1234567", prereleases=True)
    assert not specifier.contains("2.10.0.dev20251101+cu130", prereleases=True)


@pytest.mark.parametrize(
    ("version", "line"),
    [
        ("2.8", (2, 8)),
        ("2.8.1", (2, 8)),
        ("2.10.0+cu128", (2, 10)),
        ("2.9.0.dev20250801", (2, 9)),
        ("2.9.0a0+git1", (2, 9)),
    ],
)
def test_release_line_of_a_version(version: str, line: tuple[int, int]) -> None:
    """Patches, local builds and snapshots belong to the line of their major.minor."""
    assert releases.minor_of(version) == line


@pytest.mark.parametrize(
    ("text", "message"), [("latest", "Invalid version: 'latest'"), ("2", "Version without a minor: '2'")]
)
def test_release_line_needs_a_version_with_a_minor(text: str, message: str) -> None:
    """What is not a version, or has no minor, is refused."""
    with pytest.raises(ValueError, match="ersion") as caught:
        releases.minor_of(text)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("specifier", "lines"),
    [
        ("==2.8.*", [(2, 8)]),
        ("==2.8.0+cu128", [(2, 8)]),
        ("~=2.8.1", [(2, 8)]),
        ("===2.8.0", [(2, 8)]),
        ("===whatever", []),
        ("==2.9.0.dev20250801", [(2, 9)]),
        (">=2.8,<2.10", [(2, 8), (2, 9)]),
        (">=2.8,<2.8", []),
        (">=1.13,<2.1", [(1, 13), (2, 0)]),
    ],
)
def test_lines_that_a_specifier_admits(specifier: str, lines: list[tuple[int, int]]) -> None:
    """Wildcards, local builds, snapshots and ranges are all seen; contradictions admit nothing."""
    assert list(releases.minors_of(releases.admitted_versions(SpecifierSet(specifier)))) == lines


def test_admitted_versions_are_sorted_versions() -> None:
    """A pinned local build is among the admitted, in order."""
    assert releases.admitted_versions(SpecifierSet("==2.8.0+cu128")) == (Version("2.8.0+cu128"),)
    admitted = releases.admitted_versions(SpecifierSet(">=2.8.7,<2.9.2"))
    assert [str(version) for version in admitted] == ["2.8.7", "2.8.8", "2.8.9", "2.9.0", "2.9.1"]


@pytest.mark.parametrize(
    ("line", "majors"),
    [
        ((1, 5), (11,)),
        ((2, 0), (11,)),
        ((2, 7), (11, 12)),
        ((2, 8), (12,)),
        ((2, 9), (12, 13)),
        ((2, 40), (12, 13, 14)),
    ],
)
def test_cuda_majors_of_a_release(line: tuple[int, int], majors: tuple[int, ...]) -> None:
    """The table gives the majors; a release younger than the table may have one more."""
    assert releases.cuda_majors(line) == majors


def test_table_of_builds_has_no_hole() -> None:
    """Every line between the table's first and last is in it, or a pair would silently be taken for possible."""
    lines = sorted(releases.PUBLISHED_CUDA)
    between = [(major, minor) for major in (1, 2) for minor in range(releases.last_minor(major) + 1)]
    assert lines == [line for line in between if lines[0] <= line <= lines[-1]]
    assert [each.name for each in releases.published((2, 8))] == ["cpu", "12.6", "12.8", "12.9"]
    assert releases.published((9, 9)) == ()
    assert [each.name for each in releases.known_backends()][:2] == ["cpu", "13.2"]
