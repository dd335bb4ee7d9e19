"""What hatchling itself puts into a wheel and an sdist of the project, and which line leaves a file out."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder
from pathspec import GitIgnoreSpec

from hatch_torch_ext.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hatchling.builders.config import BuilderConfig

    from hatch_torch_ext.config import Config


def package_folders(config: BuilderConfig) -> dict[str, str]:
    """Return from which folders hatchling takes the packages of a wheel; nothing where it would select nothing."""
    try:
        return dict(config.sources)
    except ValueError:  # told when the wheel is built
        return {}


def of_wheel(root: str) -> dict[str, Path]:
    """Return what hatchling puts into the wheel by itself: place in the wheel -> file."""
    try:
        found = list(WheelBuilder(root).recurse_included_files())
    except ValueError:  # nothing selected at all
        return {}
    return {file.distribution_path: Path(file.path) for file in found}


def check_package(root: str, config: Config) -> None:
    """Raise where hatchling would leave the author's own package out: with a hook's files inside, it is silent."""
    place = f"{config.package.replace('.', '/')}/__init__.py"
    file = config.package_dir / "__init__.py"
    if not file.is_file() or place in of_wheel(root):
        return
    if (why := left_out(root, "wheel", file)) is not None:
        raise ConfigurationError([f"The wheel would not hold `{place}`: {why}."])
    top = config.package_dir.parents[config.package.count(".")] / config.package.partition(".")[0]
    raise ConfigurationError(
        [
            f"The wheel would not hold `{place}`: the build configuration of the wheel does not select it. "
            f'Name its folder there: `packages = ["{top.relative_to(config.root).as_posix()}"]`.'
        ]
    )


def sdist_lacks_cmake(root: str, config: Config) -> str | None:
    """Return what an author should know where no wheel could be built from an sdist of the project, else None."""
    if (why := left_out(root, "sdist", config.source / "CMakeLists.txt")) is None:
        return None
    folder = config.source.relative_to(config.root)
    return f"an sdist would lack `{folder}`, so no wheel could be built from it: {why}."


def wheel_lacks_python(root: str, config: Config, wheel: Path) -> Iterator[str]:
    """Yield a sentence for each Python file that lies in the package and not in ``wheel``, since git ignores it."""
    with zipfile.ZipFile(wheel) as archive:
        inside = set(archive.namelist())
    folder = config.package.replace(".", "/")
    for path in sorted(config.package_dir.rglob("*.py")):
        if f"{folder}/{path.relative_to(config.package_dir).as_posix()}" in inside:
            continue
        if (why := left_out(root, "wheel", path, whole=False)) is not None and "git ignores" in why:
            yield f"the wheel lacks `{path.relative_to(config.root)}`: {why}."


def sdist_holds_work(root: str) -> bool:
    """Say whether an sdist of the project would hold its work folder; an unpacked sdist is not packed again."""
    config = SdistBuilder(root).config
    packed_again = not (Path(root) / "PKG-INFO").exists()
    return packed_again and not config.only_include and bool(config.include_path("build/torch-ext/lock"))


def left_out(root: str, target: Literal["sdist", "wheel"], file: Path, *, whole: bool = True) -> str | None:
    """Return what leaves ``file`` out of a target, with the remedy, or None where nothing does by a pattern.

    The remedy brings in the ``whole`` folder of the file, or the file alone.
    """
    config = (SdistBuilder if target == "sdist" else WheelBuilder)(root).config
    try:
        place = file.relative_to(Path(root).resolve()).as_posix()
    except ValueError:
        return None
    if config.path_is_artifact(place) or not config.path_is_excluded(place):
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
