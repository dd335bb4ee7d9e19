"""Whether a package loads its variants: without the two lines, it registers nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hatch_torch_ext.audit.findings import Finding, finding
from hatch_torch_ext.facts.variant import BUILD, HELP, LOADER

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def check(package: str, files: Mapping[str, str | None]) -> Iterator[Finding]:
    """Find a ``package`` (dotted) none of whose Python ``files`` mentions the loader, or that has no ``__init__.py``.

    ``files`` maps POSIX paths below site-packages to their text; None is a text that was not read, and may mention it.
    """
    folder = package.replace(".", "/")
    init = f"{folder}/__init__.py"
    of_the_loader = {f"{folder}/{name}" for name in (LOADER, HELP, BUILD)}
    texts = [text for path, text in files.items() if path not in of_the_loader]
    if init not in files:
        message = f"is missing: `import {package}` works, but loads nothing"
    elif all(text is not None and "_variants" not in text for text in texts):
        message = f"loads no variant, and no other Python file does: `import {package}` registers no operator"
    else:
        return
    remedy = f"Write `from {package} import _variants` and `_variants.load()` into {init}."
    yield finding("never-loaded", init, message, remedy=remedy)
