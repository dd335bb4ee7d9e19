"""The loader of a package, written into a folder as a wheel has it."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

from hatch_torch_ext.merge import loader

if TYPE_CHECKING:
    from pathlib import Path

    from hatch_torch_ext.values import Layout


def write(package: Path, layout: Layout, **options: Any) -> None:
    """Write ``_variants.py`` and its other files into the folder of the package; options are those of ``render``."""
    (package / "_torch_ext").mkdir(parents=True, exist_ok=True)
    (package / "_variants.py").write_text(loader.render(layout, **options), encoding="utf-8")
    for place, source in loader.parts(fallback=layout.fallback is not None).items():
        shutil.copy(source, package / place)
