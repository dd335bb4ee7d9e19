"""What explains a difference between a plain build and ours: facts of the files, and the words of errors."""

from __future__ import annotations

import pytest

from oracle import comparing

OPS = "liboracle_ops.so"
PLAIN = ("ld-linux-x86-64.so", "libc.so", "libtorch_cpu.so")


def seen(
    needed: tuple[str, ...] = (), *, called: tuple[str, ...] = (), carries: bool = False, opened: str = ""
) -> comparing.Seen:
    """Return what a process has of one library."""
    return comparing.Seen(
        status=0,
        opened=opened,
        constructed=False,
        registered={},
        answers={},
        mapped=[],
        needed={OPS: [*needed]},
        called={OPS: [*called]},
        carrying=[OPS] * carries,
    )


@pytest.mark.parametrize(
    ("plain", "ours", "by"),
    [
        (seen(PLAIN, called=PLAIN[:2], carries=True), seen(), "archives"),
        (seen(PLAIN, called=PLAIN[:2], carries=True), seen(("libc.so", "libm.so")), "archives"),
        (seen(PLAIN, called=PLAIN[:2]), seen(), ""),
        (seen(PLAIN, called=PLAIN[:2], carries=True), seen(carries=True), ""),
        (seen(PLAIN, called=PLAIN[:2], carries=True), seen(called=PLAIN[:1]), ""),
        (seen((*PLAIN, "libfoo.so"), called=PLAIN[:2], carries=True), seen(), ""),
        (seen(PLAIN, called=PLAIN[:2], carries=True), seen(("libfoo.so",)), ""),
    ],
)
def test_what_a_static_runtime_calls_that_only_the_plain_file_has(
    plain: comparing.Seen, ours: comparing.Seen, by: str
) -> None:
    """It is of the runtime if the plain file has one in it, ours has none, and ours calls nothing of what it lacks."""
    one, other = (str(each.needed[OPS]) for each in (plain, ours))
    assert comparing.explained(comparing.Facts(plain=plain, ours=ours), f"needed {OPS}", one, other) == by


UNDEFINED = f"{OPS}: undefined symbol: _Z10dependencyv"


@pytest.mark.parametrize(
    ("plain", "same"),
    [
        (f"OSError: Could not load this library: {OPS}: {UNDEFINED}", True),
        (f"OSError: libtorch.so: cannot open shared object file: No such; after torch, OSError: {UNDEFINED}", True),
        (f"OSError: {OPS}: undefined symbol: _Z5othersv", False),
        (f"OSError: Could not load this library: {OPS}", False),
        ("", False),
    ],
)
def test_both_are_refused_for_one_symbol(plain: str, *, same: bool) -> None:
    """The texts differ, and the name that is missing is one: while it is built, or when it is opened."""
    ours = f"ImportError: oracle_pkg: label cannot be opened: {UNDEFINED}"
    assert comparing.explained(comparing.Facts(), "opened", plain, ours) == "unopenable" * same
    at_build = f"label/{OPS}: does not open: OSError: label/{UNDEFINED}"
    facts = comparing.Facts(plain=seen(opened=plain))
    assert comparing.explained(facts, "built", "built", at_build) == "refused" * same


def test_a_registration_of_a_static_library_is_told() -> None:
    """By the words of the audit, and by nothing else."""
    told = "warning: l/libops.so: links libcore.a, of which ops.cpp.o registers with torch, and has none of it: the"
    what = ("registered class Counter", "[]", "None")
    assert comparing.explained(comparing.Facts(said=told), *what).startswith("said: links libcore.a")
    assert comparing.explained(comparing.Facts(said="links libcore.a", members=True), *what) == ""
