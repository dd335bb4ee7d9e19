"""Layout -> what an editable wheel holds: the builds beside the sources, and a finder that leads there."""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING

from hatch_torch_ext.errors import ConfigurationError
from hatch_torch_ext.facts.variant import FOLDER

if TYPE_CHECKING:
    from hatch_torch_ext.config import Config
    from hatch_torch_ext.pipeline import Product

_DATA = 'PACKAGE = "package"\nFOLDER = "folder"\nMODULES: dict[str, str] = {}\n'


def inclusion(config: Config, product: Product) -> dict[str, str]:
    """Return source -> place in site-packages for everything but the author's own sources.

    The folder has the depth of the package itself, so that the RPATHs of a wheel hold here as well. Writes the finder
    and its ``.pth`` file beside the generated loader.
    """
    _, *below = config.package.split(".")
    name = f"_{config.package.replace('.', '_')}_torch_ext_editable"
    folder = "/".join([f"{name}_files", *below])
    included = {str(file.source): f"{folder}/{file.target}" for file in product.layout.files}
    included[str(product.variants_module)] = f"{folder}/_variants.py"
    included[str(product.manifest)] = f"{folder}/_torch_ext/manifest.json"
    modules = {"_variants": "_variants.py"}
    for file in product.layout.files:
        if file.target.endswith(".py") and not file.target.startswith(f"{FOLDER}/"):
            modules[_dotted(file.target)] = file.target
    finder = product.variants_module.with_name(f"{name}.py")
    finder.write_text(_render(config.package, folder, modules), encoding="utf-8")
    pth = finder.with_suffix(".pth")
    pth.write_text(f"import {name}\n", encoding="utf-8")
    included[str(finder)] = finder.name
    included[str(pth)] = pth.name
    return included


def _dotted(target: str) -> str:
    parts = target.removesuffix(".py").split("/")
    if parts[-1] == "__init__":
        parts.pop()
    return ".".join(parts)


def _render(package: str, folder: str, modules: dict[str, str]) -> str:
    template = (resources.files("hatch_torch_ext") / "resources" / "_editable.py").read_text(encoding="utf-8")
    if template.count(_DATA) != 1:
        raise ConfigurationError(["the template of the editable finder is damaged: reinstall hatch-torch-ext."])
    listed = dict(sorted(modules.items()))
    data = f"PACKAGE = {package!r}\nFOLDER = {folder!r}\nMODULES: dict[str, str] = {listed!r}\n"
    return template.replace(_DATA, data)
