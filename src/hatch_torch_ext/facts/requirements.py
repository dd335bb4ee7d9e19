"""Foreign requirements: the metadata of a wheel may hold any text of any length."""

from __future__ import annotations

from packaging.requirements import Requirement

LONGEST = 1000
"""Longest requirement that is parsed, in characters; those of people and resolvers are shorter."""


def parse(text: str) -> Requirement | None:
    """Return the requirement ``text``, or None if it is invalid or a number in a version is too long."""
    if len(text) > LONGEST:
        return None
    try:
        requirement = Requirement(text)
        for clause in requirement.specifier:
            clause.contains("1")  # parses the version, which Requirement does lazily
    except (ValueError, RecursionError):  # InvalidRequirement, InvalidVersion and int()'s own are ValueErrors
        return None
    return requirement
