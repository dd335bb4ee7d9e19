"""Requirements of strangers: the metadata of a wheel may say anything, at any length."""

from __future__ import annotations

from packaging.requirements import Requirement

LONGEST = 1000
"""Characters: a requirement of a person, or of a resolver, is shorter."""


def parse(text: str) -> Requirement | None:
    """Return the requirement that ``text`` is, or None. One whose versions no number can hold is none."""
    if len(text) > LONGEST:
        return None
    try:
        requirement = Requirement(text)
        for clause in requirement.specifier:
            clause.contains("1")  # parses the version, which is not done before
    except (ValueError, RecursionError):  # InvalidRequirement, InvalidVersion and int()'s own are ValueErrors
        return None
    return requirement
