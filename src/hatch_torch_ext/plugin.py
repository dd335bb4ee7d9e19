"""hatchling's interface <-> pipeline: the only code that touches ``build_data``."""

from __future__ import annotations

import errno
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from packaging.requirements import Requirement

from hatch_torch_ext import scrub
from hatch_torch_ext.errors import ConfigurationError, TorchExtError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hatchling.builders.config import BuilderConfig

    from hatch_torch_ext.config import Config
    from hatch_torch_ext.matrix import Entry
    from hatch_torch_ext.metadata import TorchExtMetadataHook
    from hatch_torch_ext.pipeline import Product

DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
GENERATED = ("_variants.py", "_torch_ext")


class TorchExtBuildHook(BuildHookInterface["BuilderConfig"]):
    """Builds every entry of the matrix before the wheel is written, and looks at the wheel afterwards."""

    PLUGIN_NAME = "torch-ext"

    _built: tuple[Config, Product] | None = None
    """What ``initialize`` built, and from what, for ``finalize``: hatchling calls both on one instance."""

    def clean(self, versions: list[str]) -> None:  # noqa: ARG002 -- hatchling's signature
        """Remove the work folder: called by ``hatch clean``, ``hatch build --clean`` and ``--clean-hooks-after``."""
        from hatch_torch_ext import pipeline

        if self.target_name == "wheel":  # an sdist made anew is no reason to compile anew
            pipeline.clean(Path(self.root), report=self._say)

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and say in ``build_data`` what goes into the wheel. Other targets than wheels are left alone."""
        if self.target_name != "wheel":
            from hatch_torch_ext.config import epoch_faults

            if faults := epoch_faults(os.environ):
                self.app.abort(f"hatch-torch-ext: {faults[0]}")
            return
        try:
            self._initialize(version, build_data)
        except TorchExtError as error:
            self.app.abort(f"hatch-torch-ext: {error}")
        except KeyboardInterrupt as error:
            code = 128 + getattr(error, "number", signal.SIGINT)
            self.app.abort("hatch-torch-ext: interrupted; the same command goes on with what is finished.", code=code)
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise
            self.app.abort(
                f"hatch-torch-ext: {error.strerror}: {error.filename or self.root}. Free some space, and run the same "
                "command again: it goes on with what is finished."
            )

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        """Audit the finished wheel; one that fails is removed, so that it cannot be published."""
        if self.target_name != "wheel" or version == "editable":
            return
        try:
            self._finalize(Path(artifact_path))
        except TorchExtError as error:
            Path(artifact_path).unlink(missing_ok=True)
            self.app.abort(f"hatch-torch-ext: {error}")

    # The imports below stand where they are used: hatchling loads every hook for `hatch version`, too.

    def _initialize(self, version: str, build_data: dict[str, Any]) -> None:
        from hatch_torch_ext import editable, environments, metadata, pipeline
        from hatch_torch_ext.views.plain import Plain

        if os.environ.get(environments.ACTIVE):
            raise ConfigurationError([environments.RECURSION])
        pipeline.check_platform()
        config = self._config()
        if version != "editable":
            self._check_selection(config)
        hook = metadata.hook_of(self.metadata)
        found = hook.matrix if hook is not None else None  # read when hatchling asked for the project's name
        entries = pipeline.expand(config, distribution=self._distribution, remember=True, found=found)
        if version == "editable":
            selected = pipeline.select_editable(config, entries)
        else:
            selected = pipeline.select(config, entries, report=self._say)
        promised = self._promised(config, entries, hook)
        product = pipeline.build(config, selected, distribution=self._distribution, views=[Plain(self._say)])
        self._built = config, product
        if not promised:
            # As hatchling writes the others.
            build_data["dependencies"].append(str(Requirement(product.layout.requires)))
        build_data["pure_python"] = False
        if version == "editable":
            pipeline.check_package(config, report=self._say)
            # Hatchling takes this instead of the author's own `force-include`, so his go in first.
            inclusion = {**self.build_config.get_force_include(), **editable.inclusion(config, product)}
            build_data["force_include_editable"].update(inclusion)
            return
        build_data["infer_tag"] = False
        build_data["tag"] = product.layout.tag
        build_data["force_include"].update(self._inclusion(config, product))
        if "sbom_files" in build_data:
            build_data["sbom_files"].append(str(product.sbom))

    def _finalize(self, wheel: Path) -> None:
        from hatch_torch_ext import pipeline

        self._say_of_sdist()
        if self._built is not None:
            config, product = self._built
            pipeline.check_wheel(wheel, config, product.layout, report=self._say)

    def _promised(self, config: Config, entries: Sequence[Entry], hook: TorchExtMetadataHook | None) -> bool:
        """Return whether the metadata require torch as the matrix serves it; say what an author should know of them.

        Raises ``ConfigurationError`` where nothing could install the wheel.
        """
        from hatch_torch_ext import matrix, metadata

        served = matrix.select(entries, only=config.only, skip=config.skip)
        if any(entry.torch is None for entry in served):  # known after resolving it, and required by the wheel alone
            return False
        core = self.metadata.core
        given, notes = metadata.judge(core.dependencies, core.optional_dependencies, served, hook=hook)
        for note in notes:
            self.app.display_warning(f"torch-ext: {note}")
        return given

    def _check_selection(self, config: Config) -> None:
        """Raise where hatchling would leave the author's own package out: with a hook's files inside, it is silent."""
        place = f"{config.package.replace('.', '/')}/__init__.py"
        if not (config.package_dir / "__init__.py").is_file():
            return
        if place not in self._shipped():
            top = config.package_dir.parents[config.package.count(".")] / config.package.partition(".")[0]
            raise ConfigurationError(
                [
                    f"The wheel would not hold `{place}`: the build configuration of the wheel does not select it. "
                    f'Name its folder there: `packages = ["{top.relative_to(config.root).as_posix()}"]`.'
                ]
            )

    def _shipped(self) -> dict[str, Path]:
        """Return what hatchling puts into the wheel by itself: place in the wheel -> file."""
        from hatchling.builders.wheel import WheelBuilder

        try:
            found = list(WheelBuilder(self.root).recurse_included_files())
        except ValueError:  # nothing selected at all
            return {}
        return {file.distribution_path: Path(file.path) for file in found}

    def _inclusion(self, config: Config, product: Product) -> dict[str, str]:
        """Return source -> place in the wheel; a file that the author's package has already is not added again."""
        folder = config.package.replace(".", "/")
        shipped, included, clashes = self._shipped(), {}, []
        for file in product.layout.files:
            place = f"{folder}/{file.target}"
            if place not in shipped:
                included[str(file.source)] = place
            elif shipped[place].read_bytes() != file.source.read_bytes():
                clashes.append(
                    f"CMake installs `{file.target}`, which is in the package already, not the same "
                    f"(`{shipped[place]}`): take one of them out, or install it under another name."
                )
        if clashes:
            raise ConfigurationError(clashes)
        included[str(product.variants_module)] = f"{folder}/_variants.py"
        included[str(product.manifest)] = f"{folder}/_torch_ext/manifest.json"
        return included

    def _say_of_sdist(self) -> None:
        """Warn where an sdist made after this wheel would hold the work folder: thousands of files."""
        from hatchling.builders.sdist import SdistBuilder

        folder = "build/torch-ext"
        config = SdistBuilder(self.root).config
        if (Path(self.root) / folder).is_dir() and not config.only_include and config.include_path(f"{folder}/lock"):
            self.app.display_warning(
                f"torch-ext: an sdist would hold the work folder `{folder}`: add the line `/build/` to .gitignore, or "
                f'`exclude = ["/build"]` to `[tool.hatch.build.targets.sdist]`.'
            )

    def _config(self) -> Config:
        from hatch_torch_ext import config as configuration

        config = configuration.parse(
            self.config,
            root=Path(self.root),
            project_name=self._distribution,
            environ=os.environ,
            sources=package_sources(self.build_config),
        )
        clashes = [name for name in GENERATED if (config.package_dir / name).exists()]
        if clashes:
            raise ConfigurationError(
                [
                    f"`{config.package_dir / name}` is in the sources, but the wheel's own is generated: remove it."
                    for name in clashes
                ]
            )
        return config

    @property
    def _distribution(self) -> str:
        return str(self.metadata.core.raw_name)

    def _say(self, line: str) -> None:
        self.app.display_info(f"torch-ext: {scrub.clean(line)}")


def package_sources(config: BuilderConfig) -> dict[str, str]:
    """Return from which folders hatchling takes the packages of a wheel; nothing where it would select nothing."""
    try:
        return dict(config.sources)
    except ValueError:  # told when the wheel is built
        return {}
