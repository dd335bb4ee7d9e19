"""hatchling's interface <-> pipeline: the only code that touches ``build_data``."""

from __future__ import annotations

import atexit
import contextlib
import errno
import os
import re
import signal
import weakref
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from hatch_torch_ext.base import errors, escape, redact
from hatch_torch_ext.base.errors import ConfigurationError, TorchExtError
from hatch_torch_ext.facts import project, releases
from hatch_torch_ext.facts.variant import MANIFEST

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hatch_torch_ext.config import Config
    from hatch_torch_ext.environments import InstalledTorch
    from hatch_torch_ext.hooks import editable
    from hatch_torch_ext.hooks.metadata import TorchExtMetadataHook
    from hatch_torch_ext.hooks.shipping import SdistFiles
    from hatch_torch_ext.pipeline import Product
    from hatch_torch_ext.pipeline.selection import Selected
    from hatch_torch_ext.values import Entry

DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
UNAUDITED = ".torch-ext-unaudited"
"""The folder of a finished wheel until it is audited; it is made beside the wheel."""
GENERATED = ("_variants.py", "_torch_ext")
_ABSENT = re.compile(
    r"No such file or directory|file not found|Cannot find source file|does not exist|missing and no known rule"
)
"""How CMake and compilers report a file that is not there."""


def wheels(folder: Path) -> dict[Path, int]:
    """Return the wheels in ``folder``, each with its time of last change in ns."""
    return {path: path.stat().st_mtime_ns for path in folder.glob("*.whl")}


def written_since(folder: Path, before: Mapping[Path, int]) -> list[Path]:
    """Return the wheels in ``folder`` that are new or changed since ``wheels`` returned ``before``, sorted."""
    return sorted(path for path, changed in wheels(folder).items() if before.get(path) != changed)


class TorchExtBuildHook(BuildHookInterface[Any]):
    """Builds every entry of the matrix before hatchling writes the wheel, and audits the wheel afterwards."""

    PLUGIN_NAME = "torch-ext"

    _unfinished: Callable[[], None] | None = None
    """Called at the end of the process unless ``finalize`` runs: hatchling calls no hook when it fails."""

    _repeated: tuple[str, ...] = ()
    """Warnings that ``finalize`` shows again: the log of a build is long."""

    _held: contextlib.ExitStack | None = None
    """Holds the work folder from before the build until the wheel is packed and audited: hatchling packs from it."""

    _built: tuple[Config, Product, SdistFiles] | None = None
    """What ``initialize`` read and built, for ``finalize``: hatchling calls both on one instance."""

    _before_others: tuple[editable.Sources, Path] | None = None
    """What was compiled, as it was before the hooks that run after this one, and the work folder."""

    def dependencies(self) -> list[str]:
        """Return the requirements of building a wheel; the front end installs them into the build environment."""
        from hatch_torch_ext import environments
        from hatch_torch_ext.hooks import requirements

        if self.target_name != "wheel":
            return []
        environments.set_variables()
        return requirements.of_a_wheel()

    def clean(self, versions: list[str]) -> None:  # noqa: ARG002 -- hatchling's signature
        """Remove the work folder: called by ``hatch clean``, ``hatch build --clean`` and ``--clean-hooks-after``."""
        from hatch_torch_ext.pipeline import folders

        if self.target_name == "wheel":  # making an sdist again does not compile again
            folders.clean(Path(self.root), distribution=self._distribution, report=self._say)

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and add the result to ``build_data``. Targets other than the wheel are not touched."""
        if self.target_name != "wheel":
            from hatch_torch_ext.config import epoch_faults

            if found := epoch_faults(os.environ):
                self.app.abort(f"hatch-torch-ext: {found[0]}")
            self._check_sdist()
            return
        try:
            with contextlib.ExitStack() as held:
                self._initialize(version, build_data, held)
                self._held = held.pop_all()
            # Where hatchling fails to pack, it calls no hook: the folder is free once nothing refers to this one.
            weakref.finalize(self, self._held.close)
        except TorchExtError as error:
            lacks = _ABSENT.search(str(error)) is not None and self._later()
            hint = f"\n{self._order('so what that makes is not there yet')}" if lacks else ""
            self.app.abort(f"hatch-torch-ext: {error}{hint}")
        except ModuleNotFoundError as error:
            if str(error.name).startswith("hatch"):
                raise
            self.app.abort(
                f"hatch-torch-ext: the build of a wheel needs `{error.name}`, which is not installed here. Build with "
                "isolation, or run: pip install 'hatch-torch-ext[build]'"
            )
        except KeyboardInterrupt as error:
            code = 128 + getattr(error, "number", signal.SIGINT)
            self.app.abort("hatch-torch-ext: interrupted; the same command continues with what is finished.", code=code)
        except OSError as error:
            if error.errno not in DISK_FULL:
                self._abort_at(error)
            self.app.abort(
                f"hatch-torch-ext: {error.strerror}: {error.filename or self.root}. Free some space, and run the same "
                "command again: it continues with what is finished."
            )
        except Exception as error:  # noqa: BLE001 -- the last boundary: no traceback of ours reaches the user
            self._abort_at(error)

    def _check_sdist(self) -> None:
        """Warn if the sdist cannot hold the C++ sources; faults of the options are for the build of a wheel."""
        from hatch_torch_ext.hooks import shipping

        if self.target_name == "sdist" and (note := shipping.sdist_of_options(self.root, self.config)) is not None:
            self._warn(note)

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        """Audit the finished wheel, and delete it if it fails, so that it cannot be published.

        During the audit it is in a separate folder: if the process is killed, no unaudited wheel is left in the
        usual place. Those of several machines are put into place together: either all or none stay.
        """
        if self._unfinished is not None:
            atexit.unregister(self._unfinished)
        with self._held or contextlib.nullcontext():
            if self.target_name == "wheel" and version != "editable":
                self._put_into_place(Path(artifact_path))

    def _put_into_place(self, wheel: Path) -> None:
        aside = wheel.parent / UNAUDITED / wheel.name
        written = {wheel, aside}
        try:
            aside.parent.mkdir(exist_ok=True)
            wheel.replace(aside)
            audited = self._finalize(aside)
            written.update(audited)
            for path in audited:
                target = wheel.with_name(path.name)
                _move(path, target)
                written.add(target)
        except BaseException as error:  # noqa: BLE001 -- raised again
            for path in written:
                with contextlib.suppress(OSError):  # the first error is the one to report
                    path.unlink()
            if isinstance(error, TorchExtError):
                self.app.abort(f"hatch-torch-ext: {error}")
            self._abort_at(error)
        finally:
            with contextlib.suppress(OSError):  # the folder holds a wheel of another build
                aside.parent.rmdir()

    def _abort_at(self, error: BaseException) -> NoReturn:
        """Abort with a message and a report file for a defect of ours; raise an exception of hatchling again."""
        if not isinstance(error, Exception) or not errors.is_ours(error):
            raise error
        self.app.abort(f"hatch-torch-ext: {errors.sentence(error)}")
        raise error

    # The imports below are inside the functions: hatchling loads every hook, even for `hatch version`.

    def _initialize(self, version: str, build_data: dict[str, Any], held: contextlib.ExitStack) -> None:
        from hatch_torch_ext import environments
        from hatch_torch_ext.environments import program

        if os.environ.get(environments.ACTIVE):
            raise ConfigurationError(environments.RECURSION)
        environments.set_variables()
        program.make_rich_importable()
        from hatch_torch_ext import pipeline
        from hatch_torch_ext.hooks import editable, metadata, shipping
        from hatch_torch_ext.pipeline import folders, selection

        is_editable = version == "editable"
        pipeline.check_platform()
        config = self._config()
        if not is_editable:
            shipping.check_package(self.root, config)
        hook = metadata.hook_of(self.metadata)
        found = hook.matrix if hook is not None else None  # set when hatchling read the project's metadata
        config, work = self._at_work(config)
        held.enter_context(folders.lock(work, self._say))
        entries = selection.expand(config, distribution=self._distribution, found=found)
        selected = selection.choose(config, entries, for_editable=is_editable, report=self._say, warn=self._warn)
        config = selected.config
        promised = self._promised(config, entries, hook)
        # Read before the build, so that files which change during it count as changed.
        compiled = editable.sources(config, work) if is_editable else {}
        packed = shipping.SdistFiles(()) if is_editable else shipping.of_sdist(self.root, work)
        product = self._compile(selected, entries, work, packed, is_wheel=not is_editable)
        self._built = config, product, packed
        if not promised:
            # As hatchling writes its other fields.
            build_data["dependencies"].append(str(Requirement(_required(product, selected.torch))))
        build_data["pure_python"] = not product.layout.variants
        if is_editable:
            self._include_editable(config, product, compiled, build_data)
            editable.show_commands(config, selected.entries, work)
            return
        if self._later():
            self._before_others = editable.sources(config, work), work
        self._guard_writing()
        build_data["infer_tag"] = False
        build_data["tag"] = product.layout.tag
        build_data["force_include"].update(self._inclusion(config, product))
        if "sbom_files" in build_data:
            build_data["sbom_files"].append(str(product.sbom))

    def _compile(
        self, selected: Selected, entries: Sequence[Entry], work: Path, packed: SdistFiles, *, is_wheel: bool
    ) -> Product:
        """Build what is selected, and show what happens.

        ``entries`` are those of the matrix; ``packed`` are the sdist's files.
        """
        from hatch_torch_ext import pipeline, views
        from hatch_torch_ext.hooks import shipping
        from hatch_torch_ext.values import Packaging

        config, version = selected.config, str(self.metadata.version)
        sources = None
        if config.fallback == "build" and is_wheel:
            sources = shipping.gather(config, entries, packed=packed, options=self.config, version=version, work=work)
            self._offer_extra(config)
        for_others = is_wheel and not selected.here
        packaging = Packaging(
            distribution=self._distribution,
            version=version,
            shipped=shipping.of_wheel(self.root),
            sdist=packed.relative if for_others else None,
            travelling=lambda: shipping.travelling(self.root, config, work),
        )
        whole = self._whole(config, entries) if for_others else ()
        with views.shown(self._say, self.app.display_info, source=config.source) as view:
            return pipeline.build(selected, packaging, views=[view], work=work, whole=whole, sources=sources)

    def _at_work(self, config: Config) -> tuple[Config, Path]:
        """Return the configuration to build with, and the work folder."""
        from hatch_torch_ext import environments
        from hatch_torch_ext.pipeline import folders

        from_sdist = project.is_unpacked(config.root) and not environments.installs(environments.parent())
        work = folders.work(
            config.root, distribution=self._distribution, aside=self._work_is_shipped(), from_sdist=from_sdist
        )
        # Variants compiled in a temporary folder cannot be resumed, so their build trees are not kept.
        return (replace(config, keep="results") if from_sdist else config), work

    def _include_editable(
        self, config: Config, product: Product, compiled: editable.Sources, build_data: dict[str, Any]
    ) -> None:
        from hatch_torch_ext import pipeline
        from hatch_torch_ext.hooks import editable

        pipeline.check_package(config, product.layout, report=self._say)
        if config.package_dir.is_dir():
            inclusion = editable.inclusion(config, product, distribution=self._distribution, sources=compiled)
        else:
            self._say(f"{config.package} is made only by CMake, and installed whole: install again after a change")
            inclusion = self._inclusion(config, product)
            build_data["force_include"].update(inclusion)  # hatchling refuses a project without a package
        # hatchling takes this instead of the author's own `force-include`, so the author's entries go in first.
        build_data["force_include_editable"].update({**self.build_config.get_force_include(), **inclusion})

    def _whole(self, config: Config, entries: Sequence[Entry]) -> tuple[Entry, ...]:
        """Return the entries of the complete wheel.

        ``HATCH_TORCH_EXT_ONLY`` selects what is built now and does not change it.
        """
        from hatch_torch_ext import config as configuration
        from hatch_torch_ext import matrix

        selection = configuration.selection(self.config, {})
        return matrix.filter_entries(entries, only=selection.only, skip=config.skip)

    def _offer_extra(self, config: Config) -> None:
        """Declare the extra `build`, which installs what a build at first use needs, unless the author declares one."""
        from hatch_torch_ext.hooks.metadata import EXTRA, at_first_use

        extras = self.metadata.core.optional_dependencies
        if EXTRA not in extras:
            extras[EXTRA] = at_first_use(config.fallback_requires)
        elif not any(canonicalize_name(Requirement(line).name) == "hatch-torch-ext" for line in extras[EXTRA]):
            self._warn(
                f"users who build at first use are advised to install the extra `{EXTRA}`, and yours lacks "
                "hatch-torch-ext: add it there"
            )

    def _guard_writing(self) -> None:
        """Make sure that no truncated wheel is left if hatchling fails to write it, for example on a full disk."""
        folder = Path(self.directory)
        before = wheels(folder)

        def remove() -> None:
            for path in (path for path in written_since(folder, before) if not zipfile.is_zipfile(path)):
                path.unlink()
                self.app.display_error(
                    f"hatch-torch-ext: {path} could not be written whole, and was removed. Free some space on that "
                    "disk, and run the same command again: it continues with what is finished."
                )

        self._unfinished = remove
        atexit.register(remove)

    def _finalize(self, wheel: Path) -> list[Path]:
        """Audit ``wheel``; return it and the wheels of other machines, which are written from it and audited too."""
        from hatch_torch_ext import pipeline
        from hatch_torch_ext.hooks import shipping

        if self._built is None:
            return [wheel]
        config, product, packed = self._built
        for warning in self._repeated:
            self._warn(warning)
        if (lacking := shipping.sdist_lacks_cmake(self.root, config.source, packed)) is not None:
            self._warn(lacking)
        for lacking in shipping.wheel_lacks_python(self.root, config, wheel):
            self._warn(lacking)
        if changed := self._changed_by_others(config):
            self._warn(self._order(f"and {changed} changed after it was compiled: the wheel is of what was there then"))
        tag = wheel.name.removesuffix(".whl").split("-", 2)[2]
        if not tag.endswith(product.layout.tag) and self._later():
            self._warn(self._order(f"and the wheel got the tag {tag} in place of {product.layout.tag}"))
        pipeline.check_wheel(wheel, config, product.layout, report=self._say)
        return [wheel, *(self._write_others(wheel, config, product) if product.others else ())]

    def _disregarded(self) -> str:
        """Return the options that only the hook's table for every target has, where the target has one, too."""
        tables = self.build_config.build_config, self.build_config.target_config
        general, own = (table.get("hooks", {}).get(self.PLUGIN_NAME) for table in tables)
        if general is None or own is None:
            return ""
        return ", ".join(f"`{name}`" for name in general if name not in own)

    def _later(self) -> list[str]:
        """Return the names of the build hooks that hatchling runs after this one."""
        names = list(self.build_config.hook_config)
        return names[names.index(self.PLUGIN_NAME) + 1 :] if self.PLUGIN_NAME in names else []

    def _order(self, why: str) -> str:
        """Return the sentence on hooks that run after this one."""
        named = " and ".join(f"`{name}`" for name in self._later())
        return (
            f"hatchling runs {named} after this build hook, {why}. Put the table "
            "`[tool.hatch.build.targets.wheel.hooks.torch-ext]` below those of all other hooks: hatchling runs those "
            "of `[tool.hatch.build.hooks]` first, then those of the target, each in the order of the file"
        )

    def _changed_by_others(self, config: Config) -> str:
        """Return the files that were compiled, and that other hooks changed or made since; empty if there are none."""
        from hatch_torch_ext.hooks import editable

        if self._before_others is None:
            return ""
        before, work = self._before_others
        now = editable.sources(config, work)
        changed = [path for path, found in now.items() if (known := before.get(path)) is None or known[2] != found[2]]
        return escape.few([os.path.relpath(path, config.root) for path in changed]) if changed else ""

    def _write_others(self, wheel: Path, config: Config, product: Product) -> list[Path]:
        """Write and audit the wheels of the other machines beside ``wheel``, since hatchling expects one.

        Either all or none stay.
        """
        from hatch_torch_ext import environments, pipeline
        from hatch_torch_ext.outlets import writing

        written: list[Path] = []
        try:
            for other, layout in zip(writing.beside(wheel, product.others), product.others, strict=True):
                written.append(other)
                pipeline.check_wheel(other, config, layout, report=self._say)
        except BaseException:
            for other in written:
                other.unlink(missing_ok=True)
            raise
        if environments.keeps_one_wheel(environments.parent()):
            self._warn(
                f"pip keeps only {wheel.name}, and drops {', '.join(other.name for other in written)}: build by "
                "`hatch build`, `python -m build` or `uv build`, which keep all"
            )
        return written

    def _promised(self, config: Config, entries: Sequence[Entry], hook: TorchExtMetadataHook | None) -> bool:
        """Return whether the metadata require torch as the matrix serves it, and show what the author should know.

        Raises ``ConfigurationError`` if no user could install the wheel.
        """
        from hatch_torch_ext import matrix
        from hatch_torch_ext.hooks import metadata

        only = () if config.only == (matrix.CURRENT,) else config.only
        served = matrix.select(entries, only=only, skip=config.skip)
        found = metadata.judge(self.metadata, self.config, served, hook=hook, open_ended=config.fallback == "build")
        for note in (*found.notes, *found.warnings):
            self._warn(note)
        self._repeated = found.warnings
        return found.suffices

    def _inclusion(self, config: Config, product: Product) -> dict[str, str]:
        """Return source -> place in the wheel; files that the author's package already holds are left out."""
        from hatch_torch_ext.hooks import shipping
        from hatch_torch_ext.pipeline import packagefiles

        folder = config.package.replace(".", "/")
        shipped = shipping.of_wheel(self.root)
        placed = [(f"{folder}/{file.target}", file) for file in product.layout.files]
        every = [*placed, *((f"{folder}/{file.target}", file) for other in product.others for file in other.files)]
        clashes = [
            packagefiles.in_both(file.target, shipped[place])
            for place, file in every
            if place in shipped and shipped[place].read_bytes() != file.source.read_bytes()
        ]
        if clashes:
            raise ConfigurationError(*dict.fromkeys(clashes))
        included = {str(file.source): place for place, file in placed if place not in shipped}
        included[str(product.variants_module)] = f"{folder}/_variants.py"
        included[str(product.manifest)] = f"{folder}/{MANIFEST}"
        return included

    def _work_is_shipped(self) -> bool:
        """Return whether an sdist would hold the work folder, and if so, say that the work is elsewhere."""
        from hatch_torch_ext.hooks import shipping

        if not shipping.sdist_holds_work(self.root):
            return False
        held = "an sdist would hold `build/torch-ext`, so the work is in the user's cache"
        if (cause := shipping.disregarded(self.root)) is None:
            self._say(f"{held}; to have it in the project, add the line `/build/` to .gitignore")
        else:
            self._say(
                f"{held}: {cause}. To have it in the project, move it out of that folder, or write "
                '`exclude = ["/build"]` into `[tool.hatch.build.targets.sdist]`'
            )
        return True

    def _config(self) -> Config:
        from hatch_torch_ext import config as configuration
        from hatch_torch_ext.hooks import shipping

        config = configuration.parse(
            self.config,
            root=Path(self.root),
            project_name=self._distribution,
            environ=os.environ,
            sources=shipping.package_folders(self.build_config),
        )
        if (unread := _not_read(os.environ)) is not None:
            self._warn(unread)
        if lost := self._disregarded():
            self._warn(
                f"hatchling disregards the options {lost} of `[tool.hatch.build.hooks.torch-ext]`, since "
                "`[tool.hatch.build.targets.wheel.hooks.torch-ext]` is there too: write them all into that one"
            )
        clashes = [name for name in GENERATED if (config.package_dir / name).exists()]
        if clashes:
            raise ConfigurationError(
                *(
                    f"`{config.package_dir / name}` is in the sources, but this file is generated for each wheel: "
                    "remove it."
                    for name in clashes
                )
            )
        return config

    @property
    def _distribution(self) -> str:
        return str(self.metadata.core.raw_name)

    def _warn(self, line: str) -> None:
        self.app.display_warning(f"torch-ext: {escape.text(redact.clean(line))}")

    def _say(self, line: str) -> None:
        self.app.display_info(f"torch-ext: {escape.text(redact.clean(line))}")


class Misspelt(TorchExtBuildHook):
    """Refuses the misspelling of the hook's name with an underscore, on which hatchling would fail with a traceback."""

    PLUGIN_NAME = "torch_ext"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002
        """Abort with the right spelling."""
        self.app.abort(
            "hatch-torch-ext: the build hook is called `torch-ext`, with a dash: write `hooks.torch-ext` in place of "
            "`hooks.torch_ext`."
        )


def _not_read(environ: Mapping[str, str]) -> str | None:
    """Return the note on a variable that other build backends read, and this hook does not."""
    if not environ.get("CMAKE_ARGS", "").strip():
        return None
    return (
        "the environment variable CMAKE_ARGS is not read; the options `cmake.args` and `cmake.define` are, and the "
        "variables CXXFLAGS, LDFLAGS and CMAKE_BUILD_TYPE"
    )


def _move(wheel: Path, target: Path) -> None:
    try:
        wheel.replace(target)
    except OSError as error:
        raise TorchExtError(
            f"{target} cannot be written: {error.strerror}. No wheel of this build stays in {target.parent}. Make room "
            "for it, and run the same command again: it continues with what is finished"
        ) from error


def _required(product: Product, torch: InstalledTorch | None) -> str:
    """Return the wheel's requirement of torch.

    For a snapshot it has no version: a range of releases would exclude it.
    """
    if torch is not None and releases.is_prerelease(torch.version):
        return "torch"
    return product.layout.requires
