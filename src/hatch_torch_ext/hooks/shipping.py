"""What hatchling puts into a wheel and an sdist, what excludes a file, and the sources for a build at first use."""

from __future__ import annotations

import os
import re
import shutil
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder
from pathspec import GitIgnoreSpec

from hatch_torch_ext import matrix
from hatch_torch_ext.base.errors import ConfigurationError
from hatch_torch_ext.facts import content, project
from hatch_torch_ext.facts.manifest import OPTIONS, Fallback, Sources
from hatch_torch_ext.hooks import metadata

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from hatchling.builders.config import BuilderConfig
    from hatchling.builders.plugin.interface import IncludedFile

    from hatch_torch_ext.config import Config
    from hatch_torch_ext.values import Entry


def package_folders(config: BuilderConfig) -> dict[str, str]:
    """Return the folders from which hatchling takes a wheel's packages; empty if its configuration selects nothing."""
    try:
        return dict(config.sources)
    except ValueError:  # hatchling reports this when the wheel is built
        return {}


def of_wheel(root: str) -> dict[str, Path]:
    """Return the files that hatchling puts into the wheel by itself: place in the wheel -> file."""
    try:
        found = list(WheelBuilder(root).recurse_included_files())
    except ValueError:  # nothing selected at all
        return {}
    return {file.distribution_path: Path(file.path) for file in found}


@dataclass(frozen=True, slots=True)
class SdistFiles:
    """The files that hatchling puts into an sdist. The project is walked for them once in a build: see ``of_sdist``."""

    files: tuple[IncludedFile, ...]

    @property
    def relative(self) -> frozenset[str]:
        """Return their paths relative to the project's folder."""
        return frozenset(file.relative_path for file in self.files)

    def place(self, source: Path) -> str | None:
        """Return the folder of CMakeLists.txt (``csrc``; ``.`` is the sdist's root), or None if the sdist lacks it.

        A link in the project may lead to ``source``: hatchling packs the files behind it.
        """
        lists = source / "CMakeLists.txt"
        named = (file for file in self.files if file.path.endswith(lists.name))
        places = {Path(file.distribution_path): Path(file.path) for file in named}
        found = [place for place, path in places.items() if path.resolve() == lists.resolve()]
        # The folder itself before links to it.
        found.sort(key=lambda place: (places[place] != lists, place))
        return found[0].parent.as_posix() if found else None


def of_sdist(root: str, work: Path | None = None) -> SdistFiles:
    """Walk the project, and return the files that hatchling puts into an sdist.

    The folder ``work`` of builds, which an sdist excludes, is not entered: it has thousands of files.
    """
    builder = SdistBuilder(root)
    if work is not None:
        builder.config.build_reserved_paths.add(os.path.relpath(work, root))
    try:
        return SdistFiles(tuple(builder.recurse_included_files()))
    except ValueError:
        return SdistFiles(())


def check_package(root: str, config: Config) -> None:
    """Raise ``ConfigurationError`` if hatchling would exclude the package, which it does silently beside a hook."""
    place = f"{config.package.replace('.', '/')}/__init__.py"
    file = config.package_dir / "__init__.py"
    if not file.is_file() or place in of_wheel(root):
        return
    if (why := left_out(root, "wheel", file)) is not None:
        raise ConfigurationError(f"The wheel would not hold `{place}`: {why}.")
    top = config.package_dir.parents[config.package.count(".")] / config.package.partition(".")[0]
    raise ConfigurationError(
        f"The wheel would not hold `{place}`: the build configuration of the wheel does not select it. "
        f'Name its folder there: `packages = ["{top.relative_to(config.root).as_posix()}"]`.'
    )


def sdist_lacks_cmake(root: str, source: Path, packed: SdistFiles) -> str | None:
    """Return a note for the author if no wheel could be built from an sdist, as it lacks CMakeLists.txt, else None.

    ``packed`` are the sdist's files.
    """
    top, lists = Path(root).resolve(), source / "CMakeLists.txt"
    if not lists.is_file() or packed.place(source) is not None:
        return None
    lacking = f"an sdist would lack `{os.path.relpath(source, top)}`"
    if not source.is_relative_to(top):
        return f"{lacking}, which is outside of the project, so no wheel could be built from it: {_link(source, top)}."
    why = left_out(root, "sdist", lists) or "let `[tool.hatch.build.targets.sdist]` include it"
    return f"{lacking}, so no wheel could be built from it: {why}."


def sdist_of_options(root: str, options: Mapping[str, Any]) -> str | None:
    """Return that note by the hook's table only, whose other faults are for the build of a wheel."""
    top, named = Path(root).resolve(), options.get("source")
    folders = [(top / named).resolve()] if isinstance(named, str) else [top / "csrc", top]
    source = next((folder for folder in folders if (folder / "CMakeLists.txt").is_file()), None)
    return None if source is None else sdist_lacks_cmake(root, source, of_sdist(root))


def sdist_without_hook(root: str) -> str | None:
    """Return that note where only the wheel has the build hook, so that hatchling calls none for an sdist."""
    options = metadata.build_hook_options(WheelBuilder(root))
    if options is None or "torch-ext" in SdistBuilder(root).config.hook_config:
        return None
    return sdist_of_options(root, options)


def _link(folder: Path, root: Path) -> str:
    """Return the remedy for a folder outside of the project."""
    return (
        f'make a link in the project, `ln -s {os.path.relpath(folder, root)} csrc`, and write `source = "csrc"`; '
        "hatchling packs the files behind it"
    )


def wheel_lacks_python(root: str, config: Config, wheel: Path) -> Iterator[str]:
    """Yield a message for each Python file of the package that ``wheel`` lacks because git ignores it."""
    with zipfile.ZipFile(wheel) as archive:
        inside = set(archive.namelist())
    folder = config.package.replace(".", "/")
    of_variants = re.compile(rf"{re.escape(folder)}/_torch_ext/[^/]+/(.*)")  # CMake wrote and installed one for each
    own = {match[1] for name in inside if (match := of_variants.fullmatch(name))}
    for path in sorted(config.package_dir.rglob("*.py")):
        place = path.relative_to(config.package_dir).as_posix()
        if f"{folder}/{place}" in inside or place in own:
            continue
        if (why := left_out(root, "wheel", path, whole=False)) is not None and "git ignores" in why:
            yield f"the wheel lacks `{path.relative_to(config.root)}`: {why}."


def sdist_holds_work(root: str) -> bool:
    """Return whether an sdist of the project would hold its work folder; no sdist is made of an unpacked sdist."""
    config = SdistBuilder(root).config
    packed_again = not project.is_unpacked(Path(root))
    return packed_again and not config.only_include and bool(config.include_path("build/torch-ext/lock"))


def disregarded(root: str) -> str | None:
    """Return the sentence on a line of .gitignore by which hatchling disregards all of them, or None.

    It compares the project's whole path with them: one that names a folder above the project matches.
    """
    config = SdistBuilder(root).config
    for ignored in () if config.ignore_vcs else config.vcs_exclusion_files["git"]:
        for line in Path(ignored).read_text(encoding="utf-8").splitlines():
            if line.strip() and GitIgnoreSpec.from_lines([line]).match_file(root):
                return (
                    f"the project is in a folder that the line `{line.strip()}` of {ignored} names, for which "
                    "hatchling disregards that whole file"
                )
    return None


def travelling(root: str, config: Config, work: Path) -> list[Path]:
    """Return the files with which the project can be built on another machine, sorted.

    They are those that an sdist or a wheel would hold, but hidden ones, and those that CMake files name: a file that
    git ignores may be a secret, or a source that something generated.
    """
    top = Path(root).resolve()
    builder = SdistBuilder(root)
    always = [Path(path) for path in builder.get_default_build_data()["force_include"]]
    packed = [*(Path(file.path) for file in builder.recurse_included_files()), *of_wheel(root).values()]
    every = [Path(path) for path in project.build_inputs(config.root, config.source, work)]
    named = project.named(every, config.source)
    found = {path for path in packed if not any(part.startswith(".") for part in _parts(path, top))}
    return sorted(path for path in {*found, *always, *named} if path.is_relative_to(top) and path.is_file())


def _parts(path: Path, top: Path) -> tuple[str, ...]:
    return path.relative_to(top).parts if path.is_relative_to(top) else ()


def left_out(root: str, target: Literal["sdist", "wheel"], file: Path, *, whole: bool = True) -> str | None:
    """Return which pattern excludes ``file`` from a target, with the remedy, or None if no pattern does.

    The remedy includes the ``whole`` folder of the file, or only the file.
    """
    config = (SdistBuilder if target == "sdist" else WheelBuilder)(root).config
    try:
        place = file.relative_to(Path(root).resolve()).as_posix()
        if config.path_is_artifact(place) or not config.path_is_excluded(place):
            return None
    except ValueError:  # outside of the project, or hatchling's configuration selects nothing
        return None
    for ignored in () if config.ignore_vcs else config.vcs_exclusion_files["git"]:
        for line in reversed(Path(ignored).read_text(encoding="utf-8").splitlines()):
            if line.strip() and GitIgnoreSpec.from_lines([line]).match_file(place):
                back = place.rpartition("/")[0] if whole else place
                return (
                    f"the line `{line.strip()}` of {ignored} leaves it out, since hatchling leaves out what git "
                    f'ignores. Take the line out, or write `artifacts = ["/{back}"]` into '
                    f"`[tool.hatch.build.targets.{target}]`"
                )
    return f"`exclude` of `[tool.hatch.build.targets.{target}]` or `[tool.hatch.build]` leaves it out"


def gather(
    config: Config,
    entries: Sequence[Entry],
    *,
    packed: SdistFiles,
    options: Mapping[str, Any],
    version: str,
    work: Path,
) -> Sources:
    """Copy the sources into a folder below ``work``; return them with the options and variables to compile them with.

    ``entries`` are those of the whole matrix, so that every partial wheel has the same; ``packed`` are the sdist's
    files; ``options`` is the hook's table. Raises ``ConfigurationError`` if the sdist lacks CMakeLists.txt.
    """
    source = packed.place(config.source)
    if source is None:
        takes = '`fallback = "build"` takes the sources that the sdist has, and'
        if config.source.is_relative_to(config.root):
            lists = (config.source / "CMakeLists.txt").relative_to(config.root).as_posix()
            remedy = "let `[tool.hatch.build.targets.sdist]` include it, or remove the option"
            problem = f"{takes} it would lack `{lists}`: {remedy}"
        else:
            link = _link(config.source, config.root)
            problem = f"{takes} {config.source} is outside of the project: {link}. Or take the option `fallback` out"
        raise ConfigurationError(problem)
    folder = work / "sources"
    shutil.rmtree(folder, ignore_errors=True)
    files = []
    for place, path in sorted(_compiled(packed, source)):
        target = folder / place
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
        target.chmod(0o755 if path.stat().st_mode & 0o100 else 0o644)
        files.append((place, content.sha256(target)))
    shared = matrix.common(entries)
    fallback = Fallback(
        version=version,
        source=source,
        options={name: options[name] for name in OPTIONS if name in options},
        files=tuple(files),
        variables=shared.variables,
        env_vars=shared.env_vars,
        stable_abi=shared.stable_abi,
        default=config.fallback_default or not entries,
    )
    return Sources(fallback=fallback, root=folder)


def _compiled(packed: SdistFiles, source: str) -> Iterator[tuple[str, Path]]:
    """Yield (place in the sdist, file) of what a build may read: the CMake folder, and sources to compile elsewhere.

    If CMakeLists.txt is in the root, that is every file.
    """
    for file in packed.files:
        place = Path(file.distribution_path).as_posix()
        name = place.rpartition("/")[2]
        below = source == "." or place.startswith(f"{source}/")
        if name == project.PACKED or place.startswith("build/torch-ext/"):
            continue
        if below or project.is_compiled(name):
            yield place, Path(file.path)
