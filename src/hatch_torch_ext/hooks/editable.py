"""Layout -> contents of an editable wheel: the compiled files, and an import finder that joins them to the sources."""

from __future__ import annotations

import importlib.util
import os
import pprint
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from hatchling.builders.wheel import WheelBuilder

from hatch_torch_ext.base import resources
from hatch_torch_ext.base.errors import ConfigurationError
from hatch_torch_ext.facts import content, project
from hatch_torch_ext.facts.variant import FOLDER, MANIFEST
from hatch_torch_ext.merge import loader

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hatch_torch_ext.config import Config
    from hatch_torch_ext.pipeline import Product
    from hatch_torch_ext.values import Entry

    Sources = Mapping[str, tuple[int, int, str]]

_DATA = 'DATA: Dict[str, Any] = {"package": "", "distribution": "", "folder": "", "modules": {}}\n'


def inclusion(config: Config, product: Product, *, distribution: str, sources: Sources) -> dict[str, str]:
    """Return source -> place in site-packages of each installed file; the author's own Python files stay in place.

    ``sources`` are the files that were compiled, as ``sources`` of this module returns them. The folder in
    site-packages is as deep as the package itself, so the RPATHs of a wheel are valid in it. The function writes the
    finder, its ``.pth`` file and a loader that knows the project's folder; they are beside the loader of the wheel.
    """
    _, *below = config.package.split(".")
    name = finder_name(config.package)
    folder = "/".join([f"{name}_files", *below])
    included = {str(file.source): f"{folder}/{file.target}" for file in product.layout.files}
    variants = product.variants_module.with_name(f"{name}_variants.py")
    text = loader.render(product.layout, distribution=distribution, editable=str(config.root))
    variants.write_text(text, encoding="utf-8")
    included[str(variants)] = f"{folder}/_variants.py"
    included[str(product.manifest)] = f"{folder}/{MANIFEST}"
    modules = {"_variants": "_variants.py"}
    for file in product.layout.files:
        if file.target.endswith(".py") and not file.target.startswith(f"{FOLDER}/"):
            modules[_dotted(file.target)] = file.target
    finder = product.variants_module.with_name(f"{name}.py")
    data = {
        "package": config.package,
        "distribution": distribution,
        "folder": folder,
        "modules": dict(sorted(modules.items())),
        "root": str(config.root),
        "sources": dict(sources),
        "rebuild": config.editable_rebuild,
    }
    finder.write_text(_render(data), encoding="utf-8")
    pth = finder.with_suffix(".pth")
    pth.write_text(f"import {name}\n", encoding="utf-8")
    included[str(finder)] = finder.name
    included[str(pth)] = pth.name
    return included


def finder_name(package: str) -> str:
    """Return the name of the finder's module.

    Every file that an editable install adds to site-packages begins with it.
    """
    return f"_{package.replace('.', '_')}_torch_ext_editable"


def show_commands(config: Config, entries: Sequence[Entry], work: Path) -> None:
    """Link ``compile_commands.json`` into the project's folder ``build``, where clangd and editors look for it.

    The link leads to the file that CMake wrote for the first entry. It is not made when the work folder is outside
    the project.
    """
    written = work / entries[0].folder / "build" / "compile_commands.json"
    link = config.root / "build" / "compile_commands.json"
    if work.parent == link.parent and written.is_file() and (link.is_symlink() or not link.exists()):
        link.unlink(missing_ok=True)
        link.symlink_to(written.relative_to(link.parent))


def main() -> None:
    """Build the project in the folder of the first argument into the site-packages folder of the second.

    The finder of an editable install runs this with the interpreter in which the project is installed, and lets one
    process at a time do so.
    """
    root, site = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        (wheel,) = WheelBuilder(root).build(directory=folder, versions=["editable"])
        with zipfile.ZipFile(wheel) as archive:
            names = [name for name in archive.namelist() if "_torch_ext_editable" in name.partition("/")[0]]
            # The finder is written last: once it is in place, the other files are taken to be up to date.
            for name in sorted(names, key=lambda name: ("/" not in name, name.endswith(".py"))):
                target = Path(site, name)
                target.parent.mkdir(parents=True, exist_ok=True)
                scratch = target.with_name(f"{target.name}.{os.getpid()}")
                scratch.write_bytes(archive.read(name))
                scratch.replace(target)  # another process may be running the old one
                if target.suffix == ".py":
                    # To Python it holds this file, too, if both were written within one second and have one size.
                    Path(importlib.util.cache_from_source(target)).unlink(missing_ok=True)


def sources(config: Config, work: Path) -> Sources:
    """Return the files that are compiled: path -> size in bytes, time of last change in ns, SHA-256."""
    found = {}
    for path in map(Path, project.build_inputs(config.root, config.source, work)):
        below = config.source != config.root and path.is_relative_to(config.source)
        if below or project.is_compiled(path.name):
            status = path.stat()
            found[str(path)] = (status.st_size, status.st_mtime_ns, content.sha256(path))
    return dict(sorted(found.items()))


def _dotted(target: str) -> str:
    parts = target.removesuffix(".py").split("/")
    if parts[-1] == "__init__":
        parts.pop()
    return ".".join(parts)


def _render(data: Mapping[str, object]) -> str:
    template = resources.text("_editable.py")
    if template.count(_DATA) != 1:
        raise ConfigurationError("the template of the editable finder is damaged: reinstall hatch-torch-ext.")
    return template.replace(
        _DATA, f"DATA: Dict[str, Any] = {pprint.pformat(dict(data), width=120, sort_dicts=False)}\n"
    )
