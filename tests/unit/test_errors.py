"""What the user reads when several things fail at once."""

from __future__ import annotations

from hatch_torch_ext.base.errors import BuildError, CompileError, ConfigurationError


def test_what_entries_say_alike_is_written_once() -> None:
    """One mistake in the sources breaks every entry: its text comes once, with the log of the first."""
    failures = [
        CompileError("matrix.2.8", "error in a.cpp\nthe whole log is /w/matrix.2.8/log.txt"),
        CompileError("matrix.2.9", "another"),
        CompileError("matrix.2.10", "error in a.cpp\nthe whole log is /w/matrix.2.10/log.txt"),
    ]
    assert str(BuildError(failures, total=5)) == (
        "3 of 5 entries failed; the others' work is kept for the next run.\n\n"
        "matrix.2.8, matrix.2.10: error in a.cpp\nthe whole log is /w/matrix.2.8/log.txt\n\n"
        "matrix.2.9: another"
    )


def test_one_mistake_is_reported_once_whatever_is_around_it() -> None:
    """Commands, options and progress differ between entries; the compiler's errors are the same, and are shown once."""
    failures = [
        CompileError(
            f"matrix.{torch}", f"compiling failed: c++ -std={std} a.cpp\nerror in a.cpp", cause="error in a.cpp"
        )
        for torch, std in (("2.8", "17"), ("2.13", "20"), ("2.14", "20"))
    ]
    assert str(BuildError(failures, total=3)) == (
        "3 of 3 entries failed; the others' work is kept for the next run.\n\n"
        "matrix.2.8, matrix.2.13, matrix.2.14: compiling failed: c++ -std=17 a.cpp\nerror in a.cpp"
    )


def test_problems_of_a_configuration_are_listed() -> None:
    """One is a sentence, several are a list."""
    assert str(ConfigurationError("a.")) == "a."
    assert str(ConfigurationError("a.", "b.")) == "2 problems in the configuration:\n  - a.\n  - b."
