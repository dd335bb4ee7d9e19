"""One difference between two distributions, and the order in which differences are listed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

Verdict = Literal["lost", "changed", "new"]
Topic = Literal[
    "distribution",
    "variant",
    "python",
    "platform",
    "module",
    "operator",
    "class",
    "entry point",
    "script",
    "requirement",
    "extra",
    "metadata",
    "license",
    "file",
    "library",
    "symbol",
]
"""In the order in which they are listed."""

VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
TOPICS: tuple[Topic, ...] = get_args(Topic)


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """What differs in one ``subject``: a file, a module, an operator.

    ``lost`` is what users of the old had and users of the new have not, ``changed`` what both have and which is not the
    same, ``new`` what only the new has. ``old`` and ``new`` are the values, None where there is none; ``message`` says
    it in a sentence that names the subject.
    """

    verdict: Verdict
    topic: Topic
    subject: str
    message: str
    old: str | None = None
    new: str | None = None

    @property
    def rank(self) -> int:
        """Return the place of its topic in the listing."""
        return TOPICS.index(self.topic)
