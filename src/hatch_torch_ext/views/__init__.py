"""What a build shows: every view is drawn only from the stream of events, live or afterwards from the file."""

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
    """Use the view that suits the place where the build runs, and restore the terminal afterwards.

    A table if stderr is a terminal (``terminal`` overrides this) that can move its cursor, outside of CI; GitHub's form
    in its workflows; else plain lines by ``say``. ``command`` prints a line as it is.
    """
    if environ.get("GITHUB_ACTIONS") == "true":
        from hatch_torch_ext.views.plain import GitHub

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
