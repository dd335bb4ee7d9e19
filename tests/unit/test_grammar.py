"""The values of single options, as texts and numbers of TOML."""

from __future__ import annotations

import pytest

from hatch_torch_ext.config import kinds


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (12345, 12345),
        ("12345", 12345),
        ("100 MB", 100_000_000),
        ("64MiB", 64 * 2**20),
        ("1.5 gb", 1_500_000_000),
        ("10kB", 10_000),
        (" 2 KiB ", 2048),
        ("1GiB", 2**30),
        ("7 B", 7),
    ],
)
def test_sizes(value: object, expected: int) -> None:
    """Bytes, decimal and binary units, with a fraction and in any case."""
    assert kinds.size(value) == expected


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("100 parsec", ", not `100 parsec`"),
        ("MB", ", not `MB`"),
        (-5, ", not `-5`"),
        ("1,5 MB", ", not `1,5 MB`"),
        (1.5, ""),
        (True, ""),
    ],
)
def test_what_is_not_a_size(value: object, shown: str) -> None:
    """What is not a size is refused with examples."""
    with pytest.raises(ValueError, match="size") as caught:
        kinds.size(value)
    assert str(caught.value) == f"must be a number of bytes, or a size such as `100 MB` or `64 MiB`{shown}"


@pytest.mark.parametrize("value", [0, "0.2 B"])
def test_size_of_nothing(value: object) -> None:
    """A limit that no wheel can keep is refused."""
    with pytest.raises(ValueError, match="byte") as caught:
        kinds.size(value)
    assert str(caught.value) == f"must be at least one byte, not `{value}`"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("auto", None),
        ("2_28", "manylinux_2_28"),
        ("manylinux_2_28", "manylinux_2_28"),
        ("manylinux2014", "manylinux2014"),
        ("musllinux_1_2", "musllinux_1_2"),
    ],
)
def test_policies(value: str, expected: str | None) -> None:
    """A policy is kept as it is called, the short form made whole; `auto` asks for none."""
    assert kinds.policy(value) == expected


@pytest.mark.performs("remove the machine from")
@pytest.mark.parametrize(
    ("value", "remedy"),
    [
        ("manylinux_2_28_x86_64", ": remove the machine from `manylinux_2_28_x86_64`, it is that of the build"),
        ("manylinux2014_aarch64", ": remove the machine from `manylinux2014_aarch64`, it is that of the build"),
        ("linux", ", not `linux`"),
        ("2.28", ", not `2.28`"),
    ],
)
def test_what_is_not_a_policy(value: str, remedy: str) -> None:
    """A policy with the machine's name, or a mistyped one, is reported with what to write, which is one."""
    with pytest.raises(ValueError, match="policy") as caught:
        kinds.policy(value)
    assert str(caught.value) == f"must be a policy such as `manylinux_2_28` or `2_28`, or `auto`{remedy}"
    if "remove the machine from" in remedy:
        policy = value.removesuffix("_x86_64").removesuffix("_aarch64")
        assert kinds.policy(policy) == policy


@pytest.mark.parametrize("value", ["7.5", "9.0a", "10.0f", "12.0+PTX", "9.0a+PTX", "all", "all-major"])
def test_architectures(value: str) -> None:
    """What torch's TORCH_CUDA_ARCH_LIST takes, and nvcc's words for several, are kept as written."""
    assert kinds.architecture(value) == value


@pytest.mark.parametrize(
    ("value", "remedy"),
    [
        ("sm_90", ": `9.0`, not `sm_90`"),
        ("90a", ": `9.0a`, not `90a`"),
        ("compute_100f", ": `10.0f+PTX`, not `compute_100f`"),
        ("75-virtual", ": `7.5+PTX`, not `75-virtual`"),
        ("86-real", ": `8.6`, not `86-real`"),
        ("Hopper", ", not `Hopper`"),
        ("9.0+ptx", ", not `9.0+ptx`"),
        ("native", ", not `native`"),
        ("8.0;9.0", ", not `8.0;9.0`"),
    ],
)
def test_what_is_not_an_architecture(value: str, remedy: str) -> None:
    """For spellings of nvcc and CMake, the error gives torch's notation."""
    with pytest.raises(ValueError, match="architecture") as caught:
        kinds.architecture(value)
    expected = "must be an architecture as torch writes it, such as `8.0`, `9.0a`, `10.0f`, `9.0+PTX` or `all-major`"
    assert str(caught.value) == expected + remedy


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (True, "ON"),
        (False, "OFF"),
        ("a name", "a name"),
        ("a;b", "a;b"),
        ("", ""),
        (3, "3"),
        (1.5, "1.5"),
        (["a", "b;c", 2, True], r"a;b\;c;2;ON"),
        ([], ""),
    ],
)
def test_definitions(value: object, expected: str) -> None:
    """CMake's own words for booleans and lists; a semicolon inside an entry stays inside it."""
    assert kinds.definition(value) == expected


@pytest.mark.parametrize("value", [[["a"]], {"a": 1}, None, [None]])
def test_what_cmake_has_no_word_for(value: object) -> None:
    """Tables and arrays of arrays cannot be values of a CMake variable."""
    with pytest.raises(ValueError, match="must be") as caught:
        kinds.definition(value)
    assert str(caught.value) == "must be a string, a boolean, a number, or an array of these"
