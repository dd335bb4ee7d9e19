"""Serves what a build made for an editable install: the sources stay as they are, the rest lies beside this file.

Made by hatch-torch-ext from its template ``_editable.py``; a line in a ``.pth`` file imports it at start-up. Before the
package's loader is imported, the compiled sources are compared with what they were when they were compiled.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import os
import sys

TYPE_CHECKING = False  # this runs at every start of this Python: nothing is imported that need not be
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any, Dict, List, Optional, Sequence

# The package and its distribution; the folder (beside this file) of what was built for it; its modules: dotted name ->
# file there; the project's folder; the files that were compiled: path -> size, time of change in ns, sha256; whether to
# build again.
# fmt: off
DATA: Dict[str, Any] = {"package": "", "distribution": "", "folder": "", "modules": {}}
# fmt: on

HERE = os.path.dirname(os.path.abspath(__file__))


class Finder(importlib.abc.MetaPathFinder):
    """Finds the modules that are not in the package's sources; every other name is left to the others."""

    def __init__(self, data: Dict[str, Any]) -> None:
        self.data = data
        self.package: str = data["package"]

    def find_spec(
        self,
        fullname: str,
        path: Optional[Sequence[str]] = None,  # noqa: ARG002  the protocol's
        target: Optional[ModuleType] = None,  # noqa: ARG002  the protocol's
    ) -> Optional[ModuleSpec]:
        """Return the spec of ``<package>.<module>`` for the modules listed above, or None."""
        if not fullname.startswith(self.package + "."):
            return None
        name = fullname[len(self.package) + 1 :]
        if name == "_variants":
            self._look()
        file = self.data["modules"].get(name)
        if file is None:
            return None
        return importlib.util.spec_from_file_location(fullname, os.path.join(HERE, self.data["folder"], file))

    def _look(self) -> None:
        """Build again, or warn, where sources are not what was compiled."""
        wish = self._setting("REBUILD")
        if wish == "0":
            return
        changed = [path for path, known in self.data["sources"].items() if _differs(path, known)]
        if not changed:
            return
        more = " and {} more".format(len(changed) - 1) if len(changed) > 1 else ""
        head = "{}: {}{} changed since it was compiled".format(self.package, changed[0], more)
        if self.data["rebuild"] or wish:
            self._rebuild(head)
        else:
            import warnings

            told = "{}: the old code is loaded. Compile it: {}".format(head, self._command())
            warnings.warn(told, RuntimeWarning, stacklevel=2)

    def _rebuild(self, head: str) -> None:
        import subprocess
        import time

        old = "TORCH_EXT_REBUILD=0 loads what was compiled before."
        if importlib.util.find_spec("hatch_torch_ext") is None:
            told = (
                "{}, and `editable.rebuild` needs hatch-torch-ext in this Python: pip install 'hatch-torch-ext[build]'"
            )
            raise ImportError("{}; or compile it by hand: {}\n{}".format(told.format(head), self._command(), old))
        began = time.time()
        code = "import sys; sys.path[:] = filter(None, sys.path); from hatch_torch_ext import editable; editable.main()"
        done = subprocess.run(
            [sys.executable, "-c", code, self.data["root"], HERE],
            env=dict(os.environ, TORCH_EXT_REBUILD="0"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        said = done.stdout.decode("utf-8", "replace").strip()
        if done.returncode:
            raise ImportError("{}, and cannot be compiled:\n{}\n{}".format(head, said, old))
        names: Dict[str, Any] = {"__file__": __file__, "__name__": __name__}
        with open(os.path.join(HERE, os.path.basename(__file__)), encoding="utf-8") as stream:
            exec(compile(stream.read(), __file__, "exec"), names)  # noqa: S102  this very file, as it is written now
        self.data = names["DATA"]
        if sys.stderr is not None:
            sys.stderr.write("{}: compiled in {:.1f} s\n".format(head, time.time() - began))

    def _command(self) -> str:
        import shlex
        from importlib.metadata import PackageNotFoundError, distribution

        try:
            by = distribution(self.data["distribution"]).read_text("INSTALLER") or ""
        except PackageNotFoundError:
            by = ""
        # uv takes a project for unchanged while its pyproject.toml is.
        command = "uv pip install --reinstall --no-deps" if by.strip() == "uv" else "pip install"
        return "{} -e {}".format(command, shlex.quote(self.data["root"]))

    def _setting(self, name: str) -> str:
        general = "TORCH_EXT_" + name
        return os.environ.get(self.package.replace(".", "_").upper() + "_" + general, os.environ.get(general, ""))


def _differs(path: str, known: List[Any]) -> bool:
    size, changed, sha256 = known
    try:
        there = os.stat(path)
        if there.st_size != size:
            return True
        if there.st_mtime_ns == changed:
            return False
        import hashlib

        with open(path, "rb") as stream:
            return bool(hashlib.sha256(stream.read()).hexdigest() != sha256)
    except OSError:
        return True  # gone


def install() -> None:
    """Put the finder before all others, unless it is there."""
    mine = [finder for finder in sys.meta_path if type(finder).__name__ == "Finder"]
    if not any(getattr(finder, "package", None) == DATA["package"] for finder in mine):
        sys.meta_path.insert(0, Finder(DATA))


install()
