"""What is seen of a build: every view is made from the stream of events alone, live or from the file afterwards."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING

from hatch_torch_ext.views.plain import Plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from hatch_torch_ext.pipeline.events import View

__all__ = ["shown"]


@contextlib.contextmanager
def shown(
    say: Callable[[str], None],
    command: Callable[[str], None],
    *,
    source: Path,
    environ: Mapping[str, str] = os.environ,
    terminal: bool | None = None,
) -> Iterator[View]:
    """Give the view that fits where the build runs, and leave the terminal as it was afterwards.

    A table where stderr is a terminal (``terminal`` says so in its stead), and neither in CI nor on one that cannot
    move its cursor; GitHub's form in its actions; else plain lines by ``say``. ``command`` says a line as it is.
    """
    if environ.get("GITHUB_ACTIONS") == "true":
        from hatch_torch_ext.views.github import GitHub

        yield GitHub(say, command, environ, source)
        return
    dumb = environ.get("CI") or environ.get("TERM", "") in {"", "dumb"}
    if dumb or not (sys.stderr.isatty() if terminal is None else terminal):
        yield Plain(say)
        return
    from rich.console import Console

    from hatch_torch_ext.views.live import Live

    view = Live(Console(stderr=True))
    try:
        yield view
    finally:
        view.close()
