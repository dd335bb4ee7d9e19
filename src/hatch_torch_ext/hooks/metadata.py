"""hatchling's metadata hook <-> the matrix: what a project requires, known before anything is built."""

from __future__ import annotations

import difflib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

from hatch_torch_ext import __version__
from hatch_torch_ext.base.errors import ConfigurationError, TorchExtError
from hatch_torch_ext.facts.project import PACKED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from hatchling.builders.wheel import WheelBuilder
    from hatchling.metadata.core import ProjectMetadata

    from hatch_torch_ext.config import Selection
    from hatch_torch_ext.matrix.declaring import Agreement
    from hatch_torch_ext.values import Entry, Matrix

TABLE = "tool.hatch.metadata.hooks.torch-ext"
"""The table of the hook's options in pyproject.toml; hatch.toml leaves out the first two words."""
BUILD_TABLE = "tool.hatch.build.targets.wheel.hooks.torch-ext"
OPTIONS = ("dependencies",)
EXAMPLE = '`dependencies = ["numpy>=2"]`'
OPTIONAL = "optional-dependencies"
EXTRA = "build"
"""The extra that installs what a build at first use needs."""


class TorchExtMetadataHook(MetadataHookInterface):
    """Sets ``project.dependencies``: those in the hook's table, and the torch that the matrix serves."""

    PLUGIN_NAME = "torch-ext"

    matrix: Matrix | None = None
    """The matrix as hatch gave it, set by ``update`` so that the build hook need not ask hatch again."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set ``dependencies``. hatchling calls this whenever something reads the project's metadata."""
        try:
            self._update(metadata)
        except TorchExtError as error:
            abort(error)

    # The imports below are inside the functions: hatchling loads every hook, whatever it builds.

    def _update(self, metadata: dict[str, Any]) -> None:
        from hatchling.builders.wheel import WheelBuilder

        from hatch_torch_ext.matrix import declaring

        builder: WheelBuilder = WheelBuilder(self.root)
        written = builder.metadata.config["project"]
        own = self._own()
        _check_fields(written, own)
        if "dependencies" in metadata and (Path(self.root) / PACKED).is_file():
            return  # an unpacked sdist: its metadata were computed when it was made
        entries, selection = self._entries(builder)
        open_ended = selection.builds_anywhere
        served = declaring.requirement(entries, open_ended=open_ended)
        found = declaring.compare(own, entries, open_ended=open_ended)
        check(found, served, place=f"`dependencies` of `[{TABLE}]`")
        others = metadata.get("dependencies", [])  # set by a metadata hook that ran earlier
        metadata["dependencies"] = [*others, *own, served]
        if selection.builds_anywhere and (OPTIONAL in metadata or OPTIONAL in written["dynamic"]):
            extras = metadata.setdefault(OPTIONAL, {})
            extras.setdefault(EXTRA, at_first_use(selection.fallback_requires))

    def _own(self) -> list[str]:
        """Return the project's own dependencies. Raises ``ConfigurationError`` with every fault of the hook's table."""
        problems = []
        for name in self.config:
            if name not in OPTIONS:
                close = difflib.get_close_matches(name, OPTIONS, n=1)
                remedy = f"did you mean `{close[0]}`?" if close else "the one option is `dependencies`"
                problems.append(f"Unknown option `{name}` for metadata hook `torch-ext`: {remedy}")
        own = self.config.get("dependencies", [])
        if not isinstance(own, list):
            problems.append(f"Option `dependencies` of `[{TABLE}]` must be an array of strings, such as {EXAMPLE}")
        else:
            problems += _unfit(own)
        if problems:
            raise ConfigurationError(*problems)
        return list(own)

    def _entries(self, builder: WheelBuilder) -> tuple[tuple[Entry, ...], Selection]:
        """Return the entries that a wheel of this project has, and the options that select them."""
        from hatch_torch_ext import config, environments, matrix
        from hatch_torch_ext.matrix import declaring

        raw = build_hook_options(builder)
        if raw is None:
            raise ConfigurationError(
                f"The metadata hook `torch-ext` (`[{TABLE}]`) is there, but the wheel has no build hook of that "
                f"name: nothing would be compiled. Add `[{BUILD_TABLE}]`; the table may be empty."
            )
        if os.environ.get(environments.ACTIVE):
            raise ConfigurationError(environments.RECURSION)
        environments.set_variables()
        selection = config.selection(raw, os.environ)
        name = str(builder.metadata.core_raw_metadata["name"])
        self.matrix = environments.read_cached(
            Path(self.root),
            selection.environment,
            project_name=name,
            optional=selection.builds_anywhere,
            environ=os.environ,
        )
        only = () if selection.only == (matrix.CURRENT,) else selection.only
        entries = matrix.select(declaring.entries_of(self.matrix), only=only, skip=selection.skip)
        return entries, selection


def _unfit(dependencies: Sequence[Any]) -> Iterator[str]:
    """Yield a problem for each of the hook's ``dependencies`` that is not a requirement."""
    from packaging.requirements import InvalidRequirement, Requirement

    for number, each in enumerate(dependencies, 1):
        place = f"Entry #{number} of option `dependencies` of `[{TABLE}]`"
        if not isinstance(each, str):
            yield f"{place} must be a string, such as {EXAMPLE}"
            continue
        try:
            Requirement(each)
        except InvalidRequirement as error:
            why = str(error).partition("\n")[0]
            yield f"{place} is not a requirement (PEP 508): `{each}`: {why}. Correct it, such as {EXAMPLE}"


def at_first_use(requires: Iterable[str]) -> list[str]:
    """Return the requirements of the extra ``build`` of an author's package: this package, and ``requires``."""
    return sorted([f"hatch-torch-ext[build]>={__version__}", *requires])


def write(folder: str) -> str:
    """Write the wheel's metadata of the project in the current folder into ``folder``; return their folder's name.

    Raises ``ConfigurationError`` if no metadata hook sets the dependencies: the metadata of a built wheel would then
    require more.
    """
    from hatchling.builders.wheel import WheelBuilder

    builder: WheelBuilder = WheelBuilder(str(Path.cwd()))
    try:
        if hook_of(builder.metadata) is None:
            raise ConfigurationError(
                "The build backend `hatch_torch_ext.backend` needs the metadata hook `torch-ext`. Add it to "
                'pyproject.toml, or write `build-backend = "hatchling.build"`:\n'
                f"{_instead(builder.metadata, builder.metadata.config['project'].get('dependencies', []))}"
            )
    except TorchExtError as error:
        abort(error)
    made = Path(folder, f"{builder.artifact_project_id}.dist-info")
    made.mkdir(exist_ok=True)
    text = builder.config.core_metadata_constructor(builder.metadata)
    (made / "METADATA").write_text(text, encoding="utf-8")
    return made.name


def abort(error: TorchExtError) -> None:
    """End the program with the error's message. A build hook has ``app`` for this; a metadata hook has not."""
    from hatchling.bridge.app import Application

    Application().abort(f"hatch-torch-ext: {error}")


def build_hook_options(builder: WheelBuilder) -> Mapping[str, Any] | None:
    """Return the options of the wheel's build hook, or None if it has none.

    Variables that disable hooks have no effect.
    """
    for table in builder.config.target_config, builder.config.build_config:
        hooks = table.get("hooks", {})
        if isinstance(hooks, dict) and isinstance(hooks.get("torch-ext"), dict):
            return dict(hooks["torch-ext"])
    return None


def hook_of(metadata: ProjectMetadata[Any]) -> TorchExtMetadataHook | None:
    """Return the metadata hook if the project has one that sets the dependencies, else None.

    Raises ``ConfigurationError`` if the project declares one that hatchling does not call.
    """
    if "torch-ext" not in metadata.hatch.metadata.hook_config:
        return None
    _check_fields(metadata.config["project"], ())
    hook = metadata.hatch.metadata.hooks["torch-ext"]
    return hook if isinstance(hook, TorchExtMetadataHook) else None


def _check_fields(written: Mapping[str, Any], own: Sequence[str]) -> None:
    """Raise ``ConfigurationError`` unless the project leaves the field ``dependencies`` to the hook."""
    dynamic = written.get("dynamic", [])
    listed = isinstance(dynamic, list) and "dependencies" in dynamic
    static = written.get("dependencies")
    if static is not None:
        moved = [*own, *(static if isinstance(static, list) else [])]
        raise ConfigurationError(
            f"`dependencies` of `[project]` and the metadata hook `torch-ext` (`[{TABLE}]`) both say what the "
            f"project requires. Take it out of `[project]`, and move its content:\n{advice(moved)}"
        )
    if not listed:
        raise ConfigurationError(
            f"The metadata hook `torch-ext` (`[{TABLE}]`) makes the dependencies, and `[project]` does not declare "
            f'them dynamic: add `dynamic = ["dependencies"]` to `[project]`.'
        )


def advice(own: Iterable[str]) -> str:
    """Return the lines of pyproject.toml with which the matrix says which torch is required."""
    listed = ", ".join(f"'{each}'" if '"' in each else f'"{each}"' for each in dict.fromkeys(own))
    return f'  [project]\n  dynamic = ["dependencies"]\n  [{TABLE}]\n  dependencies = [{listed}]'


def _instead(metadata: ProjectMetadata[Any], own: Iterable[str]) -> str:
    """Return the same lines for a project whose own `dependencies` they replace, if it has them."""
    line = 'dynamic = ["dependencies"]'
    stays = "dependencies" not in metadata.config["project"]
    return advice(own) if stays else advice(own).replace(line, f"{line}  # in place of its `dependencies`", 1)


def check(found: Agreement, served: str, *, place: str) -> None:
    """Raise ``ConfigurationError`` if the torch requirements in ``place`` exclude all of ``served``."""
    if found.kind == "excludes":
        raise ConfigurationError(
            f"{_quoted(found)} in {place} admits no torch that the matrix is built for "
            f"(`{served}`): nobody could install such a wheel. Remove it{' (the file)' * (place == PACKED)}, since "
            f"the matrix says which torch is served, or correct the matrix."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """How a project's metadata and its matrix agree.

    ``suffices``: the metadata's torch requirement is the wheel's; otherwise the wheel adds its own. ``notes`` are for
    the author, before the build; ``warnings`` are repeated beside the finished wheel.
    """

    suffices: bool
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def judge(
    metadata: ProjectMetadata[Any],
    options: Mapping[str, Any],
    entries: Sequence[Entry],
    *,
    hook: TorchExtMetadataHook | None,
    open_ended: bool = False,
) -> Judgement:
    """Return how the project's ``metadata`` and the torch releases that ``entries`` serve agree.

    The metadata suffice if they admit exactly those, or if ``hook`` set them. ``options`` are those of the build hook.
    Raises ``ConfigurationError`` if the metadata admit nothing that the entries serve.
    """
    from hatch_torch_ext.matrix import declaring

    notes = list(_misplaced(options))
    if any(entry.torch is None for entry in entries):  # unknown until torch is resolved; the wheel adds it
        return Judgement(suffices=False, notes=tuple(notes))
    dependencies = metadata.core.dependencies
    found = declaring.compare(dependencies, entries, open_ended=open_ended)
    served = declaring.requirement(entries, open_ended=open_ended)
    own = declaring.compare(hook.config.get("dependencies", []) if hook else [], entries, open_ended=open_ended)
    place = "`project.dependencies`" if hook is None else f"`dependencies` of `[{TABLE}]`"
    if hook is not None and own.kind == "absent" and (Path(metadata.root) / PACKED).is_file():
        place = PACKED
    check(found, served, place=place)
    if hook is not None and found.kind != "absent":
        if own.kind in {"agrees", "wider"}:
            notes.append(f"{_quoted(own)} in {place} is redundant: the matrix says `{served}`. Take it out.")
        if found.kind == "wider":
            notes.append(f"this wheel serves `{served}`, a part of what its metadata require: {_quoted(found)}.")
            if place == PACKED:
                notes.append(f"{PACKED} says that; if another tool than hatchling wrote it, remove that file.")
    elif found.kind in {"absent", "wider"}:
        if found.kind == "wider":
            fault = f"has {_quoted(found)}, which is wider than the matrix"
        elif "dependencies" in metadata.config["project"].get("dynamic", []):
            fault = "is declared dynamic, and nothing supplies it"
        else:
            fault = "has no torch"
        notes.append(
            f"{place} {fault}: an sdist, `uv lock`, `uv sync` and `hatch test` know nothing of `{served}`, which the "
            f"wheel requires. Let the matrix say it everywhere, in pyproject.toml:\n"
            f"{_instead(metadata, _without(dependencies, found.lines))}\n"
            f"Where it must be static, as for `match-runtime` of uv, write in `[project]` without that hook: "
            f"`{_static(_without(dependencies, found.lines), served)}`"
        )
    unusable = [
        *_unused(found, place),
        *_uninstallable(metadata.core.optional_dependencies, entries, served, open_ended=open_ended),
    ]
    suffices = found.kind == "agrees" or (hook is not None and found.kind != "absent")
    return Judgement(suffices=suffices, notes=tuple(notes), warnings=tuple(unusable))


def _unused(found: Agreement, place: str) -> Iterator[str]:
    if found.unused:
        verb = "forbids" if len(found.lines) == 1 else "forbid"
        yield (
            f"{', '.join(found.unused)}: {_quoted(found)} in {place} {verb} the torch that this is built for, so "
            f"nobody could use it. Take the requirement out, or name the entry in `skip`."
        )


def _uninstallable(
    extras: Mapping[str, Sequence[str]], entries: Sequence[Entry], served: str, *, open_ended: bool
) -> Iterator[str]:
    from hatch_torch_ext.matrix import declaring

    for extra, required in extras.items():
        if (optional := declaring.compare(required, entries, open_ended=open_ended)).kind == "excludes":
            yield (
                f"{_quoted(optional)} of the extra `{extra}` admits no torch that the matrix is built for "
                f"(`{served}`): nobody could install `[{extra}]`. Take it out."
            )


def _misplaced(options: Mapping[str, Any]) -> Iterator[str]:
    """Yield a note for each torch among the build hook's ``dependencies``, which hatchling installs for the build."""
    from hatch_torch_ext.matrix import declaring

    for line in declaring.torch_requirements(options.get("dependencies", [])):
        yield (
            f"`{line}` in `dependencies` of `[{BUILD_TABLE}]` is a requirement of the build and not of the wheel: an "
            f"isolated build would install this torch. Take it out: the matrix says which torch is served, and other "
            f"requirements of the wheel are in `dependencies` of `[{TABLE}]`."
        )


def _static(own: Sequence[str], served: str) -> str:
    """Return the line of `[project]` that says the same without the metadata hook."""
    return f"dependencies = [{', '.join(json.dumps(each) for each in (*own, served))}]"


def _without(dependencies: Sequence[str], lines: Sequence[str]) -> list[str]:
    from packaging.requirements import Requirement

    return [each for each in dependencies if str(Requirement(each)) not in lines]


def _quoted(found: Agreement) -> str:
    return " and ".join(f"`{line}`" for line in found.lines)
