"""Prints hatch's answer on the environments of the project in the working directory, as JSON on one marked line.

Run by a Python that has hatch. ``environments`` is the output of ``hatch env show --json``: each with its dependencies
resolved; ``matrices`` maps the name of each matrix to its environments' variables, which no command of hatch prints:
they come from its undocumented reader.
"""

import contextlib
import io
import json
import sys
from pathlib import Path

MARK = "torch-ext-matrices:"


def main() -> None:
    """Print both, or hatch's own message, and return its exit status."""
    from hatch.cli import main as hatch
    from hatch.project.core import Project
    from hatch.utils.fs import Path as HatchPath

    shown = io.StringIO()
    sys.argv[1:] = ["env", "show", "--json"]
    try:
        with contextlib.redirect_stdout(shown):
            status = hatch()  # type: ignore[no-untyped-call,unused-ignore]
    except SystemExit as end:
        status = end.code
    if status:
        print(shown.getvalue())
        raise SystemExit(status)
    matrices = Project(HatchPath(Path.cwd()), locate=False).config.matrices
    variables = {name: {env: dict(values) for env, values in one["envs"].items()} for name, one in matrices.items()}
    print(MARK + json.dumps({"environments": json.loads(shown.getvalue()), "matrices": variables}))


if __name__ == "__main__":
    main()
