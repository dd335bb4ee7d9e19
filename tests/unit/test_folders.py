"""The folders of the package and of the CMake project, and the errors if they are not found."""

from __future__ import annotations

import re
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import pytest

from hatch_torch_ext import backend, config
from hatch_torch_ext import config as configuration
from hatch_torch_ext.base.errors import ConfigurationError
from hatch_torch_ext.config.options import Options
from hatch_torch_ext.hooks import shipping

if TYPE_CHECKING:
    from collections.abc import Mapping

HOOK = "for build hook `torch-ext`"


def package(
    root: Path, named: str | None = None, *, project: str = "my-pkg", sources: Mapping[str, str] = MappingProxyType({})
) -> tuple[str, Path]:
    """Return what is found without a fault."""
    options = Options(raw={} if named is None else {"package": named}, problems=[])
    found = config._package(options, root, project, sources)
    assert options.problems == []
    return found


def faults(root: Path, *, project: str = "my-pkg", **raw: str) -> list[str]:
    """Return the faults of `package` and `source`."""
    options = Options(raw=raw, problems=[])
    config._package(options, root, project, {})
    config._source(options, root)
    return options.problems


def test_usual_places(project: Path) -> None:
    """The package in `src`, CMakeLists.txt in `csrc`."""
    assert package(project) == ("my_pkg", project / "src" / "my_pkg")
    assert config._source(Options(raw={}, problems=[]), project) == project / "csrc"


def test_places_in_the_root(tmp_path: Path) -> None:
    """Without `src` and `csrc`, the project's root is looked at."""
    (tmp_path / "my_pkg").mkdir()
    (tmp_path / "CMakeLists.txt").touch()
    assert package(tmp_path) == ("my_pkg", tmp_path / "my_pkg")
    assert config._source(Options(raw={}, problems=[]), tmp_path) == tmp_path


@pytest.mark.performs("create it", "create one")
def test_nothing_to_be_found(tmp_path: Path) -> None:
    """Where nothing is found, the places that were looked at are named, and the option that settles it.

    What the messages say to create, or to name, is found.
    """
    no_package = (
        "No folder `src/my_pkg_ext`, `my_pkg_ext`, `src/My_Pkg_ext` or `My_Pkg_ext` for the package of project "
        f"`My-Pkg.ext`; create it, or name another package with option `package` {HOOK}"
    )
    no_source = (
        "No CMakeLists.txt in `csrc` or in the project's root; create one, or name its folder with option "
        f"`source` {HOOK}"
    )
    assert faults(tmp_path, project="My-Pkg.ext") == [no_package, no_source]
    (tmp_path / "other").mkdir()
    (tmp_path / "native").mkdir()
    (tmp_path / "native" / "CMakeLists.txt").touch()
    assert faults(tmp_path, project="My-Pkg.ext", package="other", source="native") == []
    for place in re.findall("`(.*?)`", no_package)[:4]:
        (tmp_path / place).mkdir(parents=True)
        assert faults(tmp_path, project="My-Pkg.ext") == [no_source]
        (tmp_path / place).rmdir()
    (tmp_path / "my_pkg_ext").mkdir()
    (tmp_path / "csrc").mkdir()
    for place in ("csrc", "."):
        (tmp_path / place / "CMakeLists.txt").touch()
        assert faults(tmp_path, project="My-Pkg.ext") == []
        (tmp_path / place / "CMakeLists.txt").unlink()


@pytest.mark.performs("name the folder that contains", "name the one that contains")
@pytest.mark.parametrize(
    ("source", "fault"),
    [
        ("nope", "is `nope`, but there is no such folder; name the one that contains CMakeLists.txt"),
        ("src", "is `src`, which has no CMakeLists.txt; create it there, or name its folder"),
        (
            "csrc/CMakeLists.txt",
            "is `csrc/CMakeLists.txt`, which is a file; name the folder that contains CMakeLists.txt",
        ),
    ],
)
def test_source_without_cmakelists(project: Path, source: str, fault: str) -> None:
    """A named source that cannot be configured is reported before any work, with the remedy."""
    assert faults(project, source=source) == [f"Option `source` {HOOK} {fault}"]
    assert faults(project, source="csrc") == []
    if "create it there" in fault:
        (project / source / "CMakeLists.txt").touch()
        assert faults(project, source=source) == []


def test_source_that_the_sdist_lacks(project: Path) -> None:
    """An sdist has no files from outside the project: an error if the wheel is built from it."""
    (project / "PKG-INFO").touch()
    assert faults(project, source="../cpp") == [
        f"Option `source` {HOOK} is `../cpp`, and this unpacked sdist has no such folder: build the wheel from the "
        "tree (`hatch build -t wheel`), or include the folder in the sdist: it must be in the project, and neither "
        "`exclude` nor .gitignore may match it"
    ]


def test_source_outside_the_project(tmp_path: Path, project: Path) -> None:
    """CMakeLists.txt may be beside the project, as where Python is one part of a larger source tree."""
    root = project / "python"
    root.mkdir()
    assert config._source(Options(raw={"source": "../csrc"}, problems=[]), root) == tmp_path / "csrc"


def test_package_that_does_not_exist(project: Path) -> None:
    """The places that were looked at are named; created there, or called by its name, the package is found."""
    fault = "is `my_pkg.ops`, but there is no folder `src/my_pkg/ops` or `my_pkg/ops`; create it, or correct the name"
    assert faults(project, package="my_pkg.ops") == [f"Option `package` {HOOK} {fault}"]
    assert faults(project, package="my_pkg") == []
    for place in ("src/my_pkg/ops", "my_pkg/ops"):
        (project / place).mkdir(parents=True)
        assert package(project, "my_pkg.ops") == ("my_pkg.ops", project / place)
        (project / place).rmdir()


@pytest.mark.parametrize("name", ["my-pkg", "src/my_pkg", "my_pkg.", ".ops", "my_pkg.import", "1st"])
def test_package_that_cannot_be_imported(project: Path, name: str) -> None:
    """A folder's or a distribution's name is not taken for an import name."""
    fault = f"must be an import name such as `my_package` or `my.package`, not `{name}`"
    assert faults(project, package=name) == [f"Option `package` {HOOK} {fault}"]


def test_dotted_package(project: Path) -> None:
    """A package inside another is found with its parents."""
    (project / "src" / "my_pkg" / "ops").mkdir()
    assert package(project, "my_pkg.ops") == ("my_pkg.ops", project / "src" / "my_pkg" / "ops")


def test_package_is_found_as_hatchling_finds_it(project: Path) -> None:
    """A folder of sources that shares the project's name is not a package; of two, hatchling's choice counts."""
    (project / "my_pkg").mkdir()
    assert package(project) == ("my_pkg", project / "src" / "my_pkg")
    (project / "my_pkg" / "__init__.py").touch()
    assert package(project) == ("my_pkg", project / "my_pkg")


@pytest.mark.parametrize(
    "sources",
    [{"bindings/python/": ""}, {"bindings/python/my_pkg/": "my_pkg/"}, {"": "other/", "bindings/python/": ""}],
)
@pytest.mark.parametrize("name", ["my_pkg", "my_pkg.ops"])
def test_package_where_the_wheel_takes_it_from(tmp_path: Path, sources: dict[str, str], name: str) -> None:
    """A layout in hatchling's options needs no second option; a source folder of the same name is not a package."""
    folder = tmp_path / "bindings" / "python" / name.replace(".", "/")
    folder.mkdir(parents=True)
    (tmp_path / "my_pkg" / "ops").mkdir(parents=True)
    assert package(tmp_path, name, sources=sources) == (name, folder)


def test_places_of_the_wheels_configuration_are_named(tmp_path: Path) -> None:
    """Where nothing is found, the folders that the wheel's configuration names were looked at as well."""
    options = Options(raw={}, problems=[])
    config._package(options, tmp_path, "my-pkg", {"bindings/python/": "", "data/": "my_pkg/data/"})
    assert options.problems == [
        "No folder `src/my_pkg`, `my_pkg` or `bindings/python/my_pkg` for the package of project `my-pkg`; create it, "
        f"or name another package with option `package` {HOOK}"
    ]


def test_project_name_with_capitals(project: Path) -> None:
    """A folder spelt like the project's name is found, and so is the normalised one."""
    (project / "src" / "My_Pkg").mkdir()
    assert package(project, project="My.Pkg") == ("my_pkg", project / "src" / "my_pkg")
    (project / "src" / "My_Pkg" / "__init__.py").touch()
    assert package(project, project="My.Pkg") == ("My_Pkg", project / "src" / "My_Pkg")


@pytest.mark.performs("write `package = ", "and `packages = [")
@pytest.mark.parametrize("prefix", ["src/", ""])
def test_a_package_in_a_namespace(prefix: str, project: Path) -> None:
    """A project that is named for its namespace: both lines that it needs, and hatchling packs the package then."""
    place = project / f"{prefix}myns/my_pkg"
    place.mkdir(parents=True)
    (place / "__init__.py").touch()
    (fault,) = faults(project, project="myns.my-pkg")
    lines = f'write `package = "myns.my_pkg"` {HOOK}, and `packages = ["{prefix}myns"]`'
    assert lines in fault
    assert package(project, "myns.my_pkg") == ("myns.my_pkg", place)
    (project / "pyproject.toml").write_text('[project]\nname = "myns.my-pkg"\nversion = "1"\n')
    config = configuration.parse({"package": "myns.my_pkg"}, root=project, project_name="myns.my-pkg", environ={})
    with pytest.raises(ConfigurationError, match=rf'Name its folder there: `packages = \["{prefix}myns"\]`'):
        shipping.check_package(str(project), config)
    (project / "pyproject.toml").write_text(
        '[project]\nname = "myns.my-pkg"\nversion = "1"\n'
        f'[tool.hatch.build.targets.wheel]\npackages = ["{prefix}myns"]\n'
    )
    assert "myns/my_pkg/__init__.py" in shipping.of_wheel(str(project))


@pytest.mark.performs("make a link in the project")
def test_an_sdist_without_the_sources_of_cmake(project: Path) -> None:
    """Sources beside the project are in no sdist; behind a link in the project they are."""
    root = project / "python"
    (root / "my_pkg").mkdir(parents=True)
    (root / "my_pkg" / "__init__.py").touch()
    (root / "pyproject.toml").write_text('[project]\nname = "my-pkg"\nversion = "1"\n')
    source = config._source(Options(raw={"source": "../csrc"}, problems=[]), root)
    (source / "ops.cpp").touch()
    packed = shipping.of_sdist(str(root))
    found = re.search(r"`ln -s (\S+) csrc`", shipping.sdist_lacks_cmake(str(root), source, packed) or "")
    assert found is not None
    assert "csrc/ops.cpp" not in packed.relative
    (root / "csrc").symlink_to(found[1])
    packed = shipping.of_sdist(str(root))
    assert {"csrc/CMakeLists.txt", "csrc/ops.cpp"} <= packed.relative
    assert config._source(Options(raw={"source": "csrc"}, problems=[]), root) == source
    assert shipping.sdist_lacks_cmake(str(root), source, packed) is None


def test_an_sdist_that_would_lack_the_sources(tmp_path: Path) -> None:
    """A folder beside the project, left out or not selected, is reported; a link is not."""
    root = tmp_path / "python"
    for folder in (root / "my_pkg", tmp_path / "lib"):
        folder.mkdir(parents=True)
    (tmp_path / "lib" / "CMakeLists.txt").touch()
    (root / "my_pkg" / "__init__.py").touch()
    pyproject = root / "pyproject.toml"
    head = "[project]\nname = 'my-pkg'\nversion = '1'\n[tool.hatch.build.targets.sdist]\n"
    pyproject.write_text(head, encoding="utf-8")
    assert (shipping.sdist_of_options(str(root), {"source": "../lib"}) or "").startswith(
        "an sdist would lack `../lib`, which is outside of the project, so no wheel could be built from it: make a link"
    )
    (root / "csrc").symlink_to("../lib")
    for options in {"source": "csrc"}, {"source": "../lib"}, {}, {"source": 3}, {"source": "none"}:
        assert shipping.sdist_of_options(str(root), options) is None
    (root / "csrc").unlink()
    (tmp_path / "lib").rename(root / "csrc")
    for line, why in (
        ('exclude = ["/csrc"]', "`exclude` of `[tool.hatch.build.targets.sdist]`"),
        ('only-include = ["my_pkg"]', "let `[tool.hatch.build.targets.sdist]` include it"),
    ):
        pyproject.write_text(head + line, encoding="utf-8")
        problem = shipping.sdist_of_options(str(root), {}) or ""
        assert problem.startswith(f"an sdist would lack `csrc`, so no wheel could be built from it: {why}")


def test_our_backend_tells_of_an_sdist_without_the_sources(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Hatchling calls no hook of the wheel for an sdist; a hook of all targets tells it once, by hatchling."""
    (project / "python").mkdir()
    monkeypatch.chdir(project / "python")
    for table, count in ("targets.wheel.hooks", 1), ("hooks", 1), ("targets.wheel.hooks.none", 0):
        Path("pyproject.toml").write_text(
            f'[project]\nname = "my-pkg"\nversion = "1"\n[tool.hatch.build.{table}.torch-ext]\nsource = "../csrc"\n',
            encoding="utf-8",
        )
        backend.build_sdist("dist")
        found = capsys.readouterr()
        assert (found.out + found.err).count("an sdist would lack `../csrc`, which is outside of the project") == count
