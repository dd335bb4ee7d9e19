"""Prints what hatch says of the environments of the project in the working directory, as JSON on one marked line.

Run by a Python that has hatch. ``environments`` is what ``hatch env show --json`` gives: each with its dependencies
resolved; ``matrices`` maps the name of each matrix to its environments' variables, which are in no output of hatch's
command line: they come from its own, undocumented, reader.
"""

import contextlib
import io
import json
import sys
from pathlib import Path

MARK = "torch-ext-matrices:"


def main() -> None:
    """Print both, or hatch's own words and its exit status."""
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
