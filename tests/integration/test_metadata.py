"""What a project requires is the same wherever it is read: real uv, pip, build and hatch on a library in C."""

from __future__ import annotations

import email
import json
import os
import sys
import tarfile
import zipfile
from typing import TYPE_CHECKING

import pytest
import uv

import plain
import warm
from archives import unpack
from hatch_torch_ext.base import process

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    Once = Callable[[str, Callable[[Path], None]], Path]

PROJECT = """
[build-system]
requires = ["hatchling", "hatch-torch-ext"]
build-backend = "hatchling.build"

[project]
name = "my-pkg"
version = "1"
requires-python = "==3.11.*"
dynamic = ["dependencies"]
{optional}
[tool.hatch.metadata.hooks.torch-ext]
dependencies = {own}

[tool.hatch.build.targets.wheel.hooks.torch-ext]

[tool.hatch.envs.hatch-test]
dependencies = ["pytest"]
default-args = ["tests"]
[[tool.hatch.envs.hatch-test.matrix]]
python = ["3.11"]

[tool.hatch.envs.matrix]
skip-install = true
dependencies = ["torch=={matrix:torch}.*"]
[[tool.hatch.envs.matrix.matrix]]
torch = ["2.8", "2.13"]
"""
TEST = """
from importlib.metadata import version

def test_torch_is_here():
    assert version("torch") == "2.13.9"
"""
TORCH = "torch!=2.10.*,!=2.11.*,!=2.12.*,!=2.9.*,<2.14,>=2.8"
"""What the matrix amounts to, as hatchling writes it."""
STATIC = '[project]\nname = "my-pkg"\nversion = "1"\nrequires-python = "==3.11.*"\ndependencies = {}\n'

pytestmark = pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the fake wheels are for Python 3.11")


def write(root: Path, *, own: Sequence[str] = (), optional: str = "") -> Path:
    """Write the project."""
    files = {
        "pyproject.toml": PROJECT.replace("{own}", json.dumps(list(own))).replace("{optional}", optional),
        "csrc/plain.c": "int answer(void) { return 42; }\n",
        "tests/test_torch.py": TEST,
    }
    return plain.write(root, files)


def change(root: Path, *changes: tuple[str, str]) -> None:
    """Replace text in pyproject.toml; each must be there."""
    file = root / "pyproject.toml"
    text = file.read_text(encoding="utf-8")
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    file.write_text(text, encoding="utf-8")


@pytest.fixture(scope="session")
def shared(once: Once, wheelhouse: Path) -> Path:
    """Return a folder of wheels: the plugin, and two small torches, newer than any that an index has of these lines."""
    name = wheelhouse.name  # by the plugin's content, as `wheelhouse` says

    def make(folder: Path) -> None:
        (folder / name).mkdir()
        plain.make_wheels(folder / name, ["2.8.9", "2.13.9"])
        for path in wheelhouse.iterdir():
            (folder / name / path.name).hardlink_to(path)

    return once("metadata_wheels", make) / name


@pytest.fixture
def isolated(shared: Path, session_folder: Path) -> dict[str, str | None]:
    """Return the environment in which isolated builds find the plugin and the small torches."""
    links = os.environ.get("PIP_FIND_LINKS", "")
    return {
        "PIP_FIND_LINKS": f"{shared} {links}".strip(),
        "UV_FIND_LINKS": str(shared),
        "HATCH_TORCH_EXT_CACHE": str(session_folder / "metadata_store"),
        "HATCH_DATA_DIR": str(session_folder / "metadata_hatch"),
        **dict.fromkeys(("PYTHONPATH", "VIRTUAL_ENV", "HATCH_ENV", "HATCH_ENV_ACTIVE")),
    }


def requires(metadata: str) -> list[str]:
    """Return the ``Requires-Dist`` lines, and which extras there are."""
    message = email.message_from_string(metadata)
    return [*message.get_all("Requires-Dist", []), *message.get_all("Provides-Extra", [])]


def of_wheel(wheel: Path) -> list[str]:
    """Return the same of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return requires(archive.read(name).decode())


def run(root: Path, environ: dict[str, str | None], *command: str | Path) -> str:
    """Run a command in ``root``, and return its output."""
    done = process.run(command, cwd=root, env_changes=environ, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def hatchling(root: Path, *arguments: str, **environ: str | None) -> process.Completed:
    """Run hatchling in ``root`` with the plugin that is tested, without isolation."""
    return warm.run([sys.executable, "-m", "hatchling", *arguments], cwd=root, env_changes=environ, check=False)


def said(done: process.Completed) -> str:
    """Return what was written, each run of blanks as one."""
    return " ".join((done.stdout + done.stderr).split())


@pytest.mark.slow
def test_every_reader_gets_the_same(tmp_path: Path, isolated: dict[str, str | None]) -> None:
    """Sdist, the wheel made of it, wheel of the tree, editable and lock file require torch to the letter alike."""
    expected = ["packaging>=24", TORCH, "pluggy; extra == 'fast'", "fast"]
    optional = '[project.optional-dependencies]\nfast = ["pluggy"]'
    root = write(tmp_path / "project", own=["packaging>=24"], optional=optional)
    run(root, isolated, uv.find_uv_bin(), "build", "-o", "dist", ".")
    with tarfile.open(root / "dist" / "my_pkg-1.tar.gz") as archive:
        info = archive.extractfile("my_pkg-1/PKG-INFO")
        assert info is not None
        assert requires(info.read().decode()) == expected
    (wheel,) = (root / "dist").glob("*.whl")
    assert of_wheel(wheel) == expected
    run(root, isolated, uv.find_uv_bin(), "build", "--wheel", "-o", "tree", ".")
    (again,) = (root / "tree").glob("*.whl")
    assert again.read_bytes() == wheel.read_bytes()

    run(root, isolated, uv.find_uv_bin(), "sync", "--python", sys.executable)  # locks, then installs it as editable
    lock = (root / "uv.lock").read_text(encoding="utf-8")
    assert '{ name = "torch", specifier = ">=2.8,!=2.9.*,!=2.10.*,!=2.11.*,!=2.12.*,<2.14" }' in lock
    (site,) = (root / ".venv" / "lib").glob("python*/site-packages")
    installed = (site / "my_pkg-1.dist-info" / "METADATA").read_text(encoding="utf-8")
    assert requires(installed) == expected
    assert (site / "torch-2.13.9.dist-info").is_dir()


BACKEND = ('"hatchling.build"', '"hatch_torch_ext.backend"')


def test_added_to_another_project_it_brings_torch(tmp_path: Path, isolated: dict[str, str | None]) -> None:
    """``uv add ../it`` locks torch for the project that depends on it; our backend compiles nothing for that."""
    root = write(tmp_path / "project")
    change(root, BACKEND)
    (root / "csrc" / "plain.c").write_text("#error compiled\n", encoding="utf-8")
    other = tmp_path / "other"
    other.mkdir()
    (other / "pyproject.toml").write_text(
        '[project]\nname = "other"\nversion = "1"\nrequires-python = "==3.11.*"\n', encoding="utf-8"
    )
    run(other, isolated, uv.find_uv_bin(), "add", "--no-sync", "--python", sys.executable, "../project")
    assert 'name = "torch"\nversion = "2.13.9"' in (other / "uv.lock").read_text(encoding="utf-8")
    assert not (root / "build").exists()


@pytest.mark.performs("Add it to pyproject.toml")
def test_our_backend_gives_only_metadata(tmp_path: Path) -> None:
    """``prepare_metadata`` writes the hook's dependencies, also for pip, for which hatchling's backend has none."""
    root = write(tmp_path, own=["packaging"], optional='[project.optional-dependencies]\nfast = ["pluggy"]')
    code = "from hatch_torch_ext import backend; print(backend.prepare_metadata_for_build_editable('.'))"
    done = process.run([sys.executable, "-c", code], cwd=root, env_changes={"PIP_BUILD_TRACKER": "there"})
    assert done.stdout == "my_pkg-1.dist-info\n"
    metadata = (root / "my_pkg-1.dist-info" / "METADATA").read_text(encoding="utf-8")
    assert requires(metadata) == ["packaging", TORCH, "pluggy; extra == 'fast'", "fast"]
    static(root, ["packaging"])
    refused = process.run([sys.executable, "-c", code], cwd=root, check=False)
    assert refused.returncode == 1
    assert said(refused) == (
        "hatch-torch-ext: The build backend `hatch_torch_ext.backend` needs the metadata hook `torch-ext`. Add it to "
        'pyproject.toml, or write `build-backend = "hatchling.build"`: [project] dynamic = ["dependencies"] # in place '
        'of its `dependencies` [tool.hatch.metadata.hooks.torch-ext] dependencies = ["packaging"]'
    )
    pasted(root, refused.stderr)
    done = process.run([sys.executable, "-c", code], cwd=root)
    assert requires((root / done.stdout.strip() / "METADATA").read_text(encoding="utf-8")) == ["packaging", TORCH]


@pytest.mark.slow
def test_hatch_test_has_torch(tmp_path: Path, isolated: dict[str, str | None]) -> None:
    """``hatch test`` installs what the project requires, which hatch asks the metadata hook for."""
    root = write(tmp_path / "project")
    assert "1 passed" in run(root, isolated, sys.executable, "-m", "hatch", "test")


BAD = [
    pytest.param(
        [('dynamic = ["dependencies"]', 'dynamic = ["dependencies"]\ndependencies = ["numpy"]')],
        "`dependencies` of `[project]` and the metadata hook `torch-ext` (`[tool.hatch.metadata.hooks.torch-ext]`) "
        "both say what the project requires. Take it out of `[project]`, and move its content: [project] dynamic "
        '= ["dependencies"] [tool.hatch.metadata.hooks.torch-ext] dependencies = ["packaging", "numpy"]',
        [
            ('dependencies = ["numpy"]\n', ""),
            ('dependencies = ["packaging"]', 'dependencies = ["packaging", "numpy"]'),
        ],
        id="static-and-dynamic",
    ),
    pytest.param(
        [('dynamic = ["dependencies"]', 'dynamic = ["readme"]')],
        "The metadata hook `torch-ext` (`[tool.hatch.metadata.hooks.torch-ext]`) makes the dependencies, and "
        '`[project]` does not declare them dynamic: add `dynamic = ["dependencies"]` to `[project]`.',
        [('dynamic = ["readme"]', 'dynamic = ["dependencies"]')],
        id="not-listed-as-dynamic",
    ),
    pytest.param(
        [("[tool.hatch.build.targets.wheel.hooks.torch-ext]", "")],
        "The metadata hook `torch-ext` (`[tool.hatch.metadata.hooks.torch-ext]`) is there, but the wheel has no build "
        "hook of that name: nothing would be compiled. Add `[tool.hatch.build.targets.wheel.hooks.torch-ext]`; the "
        "table may be empty.",
        [("[tool.hatch.envs.matrix]", "[tool.hatch.build.targets.wheel.hooks.torch-ext]\n[tool.hatch.envs.matrix]")],
        id="no-build-hook",
    ),
    pytest.param(
        [('["packaging"]', '["packaging", "torch<2.5"]')],
        "`torch<2.5` in `dependencies` of `[tool.hatch.metadata.hooks.torch-ext]` admits no torch that the matrix is "
        "built for (`torch>=2.8,<2.14,!=2.9.*,!=2.10.*,!=2.11.*,!=2.12.*`): nobody could install such a wheel. Remove "
        "it, since the matrix says which torch is served, or correct the matrix.",
        [('["packaging", "torch<2.5"]', '["packaging"]')],
        id="torch-excluded",
    ),
    pytest.param(
        [('torch = ["2.8", "2.13"]', 'torch = [2.8, "2.13"]')],
        "TypeError: Value #1 of variable `torch` in matrix #1 in field `tool.hatch.envs.matrix.matrix` must be a "
        "string Correct the environments in pyproject.toml or hatch.toml; `hatch env show` reads only them.",
        [('torch = [2.8, "2.13"]', 'torch = ["2.8", "2.13"]')],
        id="matrix-that-hatch-refuses",
    ),
    pytest.param(
        [('"torch=={matrix:torch}.*"', '"torch>=2.8"'), ("torch = [", "os = [")],
        "matrix.2.8: `torch>=2.8` does not name a release of torch, so the project's metadata cannot name it: "
        "require one, such as `torch==2.8.*`, or give the matrix a `torch` variable and require "
        '"torch=={matrix:torch}.*"',
        [('"torch>=2.8"', '"torch=={matrix:torch}.*"'), ("os = [", "torch = [")],
        id="torch-left-open",
    ),
    pytest.param(
        [('dependencies = ["packaging"]', 'dependencie = ["packaging"]')],
        "Unknown option `dependencie` for metadata hook `torch-ext`: did you mean `dependencies`?",
        [("dependencie =", "dependencies =")],
        id="unknown-option",
    ),
    pytest.param(
        [('["packaging"]', '["packaging", 3]')],
        "Entry #2 of option `dependencies` of `[tool.hatch.metadata.hooks.torch-ext]` must be a string",
        [('["packaging", 3]', '["packaging"]')],
        id="no-string",
    ),
    pytest.param(
        [("skip-install = true", "")],
        "Environment `matrix.2.8` installs the project itself, which would start this build again: set "
        "`skip-install = true` in the environment.",
        [("[tool.hatch.envs.matrix]", "[tool.hatch.envs.matrix]\nskip-install = true")],
        id="recursion",
    ),
]


@pytest.mark.performs(
    "Add `[{}]`",
    "Correct the environments in pyproject.toml",
    "Take it out of `[project]`",
    "add `dynamic =",
    "set `skip-install = true`",
)
@pytest.mark.parametrize(("changes", "message", "remedy"), BAD)
def test_bad_input_is_one_sentence_and_its_remedy_helps(
    changes: list[tuple[str, str]], message: str, remedy: list[tuple[str, str]], tmp_path: Path
) -> None:
    """Every reader of the metadata gets a message without a traceback, and its remedy works."""
    root = write(tmp_path, own=["packaging"])
    change(root, *changes)
    done = hatchling(root, "metadata", "dependencies")
    assert done.returncode == 1
    assert message in said(done)
    assert "Traceback" not in said(done)
    change(root, *remedy)
    mended = hatchling(root, "metadata", "dependencies")
    assert mended.returncode == 0, said(mended)
    assert TORCH in json.loads(mended.stdout)


def test_only_the_sdist_knows_the_metadata_that_it_was_made_with(tmp_path: Path) -> None:
    """An unpacked sdist says what its PKG-INFO says, whatever variables are set where its wheel is built."""
    root = write(tmp_path / "project")
    assert hatchling(root, "build", "-t", "sdist").returncode == 0
    with tarfile.open(root / "dist" / "my_pkg-1.tar.gz") as archive:
        unpack(archive, tmp_path)
    done = hatchling(tmp_path / "my_pkg-1", "metadata", "dependencies", HATCH_TORCH_EXT_ONLY="matrix.2.8")
    assert json.loads(done.stdout) == [TORCH]
    here = hatchling(root, "metadata", "dependencies", HATCH_TORCH_EXT_ONLY="matrix.2.8")
    assert json.loads(here.stdout) == ["torch<2.9,>=2.8"]


@pytest.mark.performs(
    "hatchling takes metadata from it: remove that file", "if another tool than hatchling wrote it, remove"
)
@pytest.mark.parametrize(("required", "refused"), [("torch<2.8,>=2.7", True), ("torch>=2.4", False)])
def test_metadata_of_another_tool(required: str, *, refused: bool, tmp_path: Path) -> None:
    """A PKG-INFO by setuptools has the say until it is removed: the message says so, and the matrix has it then."""
    root = write(tmp_path)
    (root / "PKG-INFO").write_text(f"Metadata-Version: 2.4\nName: my_pkg\nVersion: 1\nRequires-Dist: {required}\n")
    told = said(hatchling(root, "build", "-t", "wheel"))
    if refused:
        assert "`torch<2.8,>=2.7` in PKG-INFO admits no torch that the matrix is built for" in told
        assert "Remove it (the file), since the matrix says which torch is served" in told
    else:
        assert "a part of what its metadata require: `torch>=2.4`" in told
        assert "PKG-INFO says that; if another tool than hatchling wrote it, remove that file." in told
    (root / "PKG-INFO").write_text("Metadata-Version: 2.4\nName: my_pkg\nVersion: 1\n")  # without the lines
    assert json.loads(hatchling(root, "metadata", "dependencies").stdout) == [TORCH]
    (root / "PKG-INFO").unlink()
    assert "PKG-INFO" not in said(hatchling(root, "build", "-t", "wheel"))
    assert json.loads(hatchling(root, "metadata", "dependencies").stdout) == [TORCH]


def test_metadata_need_none_of_the_folders(tmp_path: Path) -> None:
    """``uv sync --no-install-project`` in a container reads metadata before the sources are copied."""
    root = write(tmp_path)
    for path in sorted(root.rglob("*"), reverse=True):
        if path.name != "pyproject.toml":
            path.rmdir() if path.is_dir() else path.unlink()
    assert json.loads(hatchling(root, "metadata", "dependencies").stdout) == [TORCH]


def wheel_of(root: Path, shared: Path, session_folder: Path) -> process.Completed:
    """Build the wheel with torch from ``shared``, without isolation; it need not succeed."""
    store = str(session_folder / "metadata_store")
    return hatchling(
        root, "build", "-t", "wheel", UV_FIND_LINKS=str(shared), PIP_NO_INDEX="1", HATCH_TORCH_EXT_CACHE=store
    )


def static(root: Path, dependencies: Sequence[str]) -> None:
    """Let ``[project]`` say what is required, without a metadata hook."""
    text = (root / "pyproject.toml").read_text(encoding="utf-8")
    start, end = text.index("[project]"), text.index("[tool.hatch.build")
    static = STATIC.format(json.dumps(list(dependencies)))
    (root / "pyproject.toml").write_text(text[:start] + static + text[end:], encoding="utf-8")


def pasted(root: Path, said: str) -> None:
    """Write the given lines into pyproject.toml, the first in place of what it names."""
    text = said[said.index("  [project]\n") :]
    of_project, table, own = (line.strip() for line in text.splitlines()[1:4])
    assert of_project.endswith("# in place of its `dependencies`")
    file = root / "pyproject.toml"
    lines = [
        of_project if line.startswith("dependencies = ") and "torch==" not in line else line
        for line in file.read_text(encoding="utf-8").splitlines()
    ]
    file.write_text("\n".join([*lines, table, own, ""]), encoding="utf-8")


STATIC_CASES = [
    (
        ["packaging"],
        ["packaging", TORCH],
        "`project.dependencies` has no torch: an sdist, `uv lock`, `uv sync` and `hatch test` know nothing of "
        "`torch>=2.8,<2.14,!=2.9.*,!=2.10.*,!=2.11.*,!=2.12.*`, which the wheel requires. Let the matrix say it "
        'everywhere, in pyproject.toml: [project] dynamic = ["dependencies"] # in place of its `dependencies` '
        '[tool.hatch.metadata.hooks.torch-ext] dependencies = ["packaging"]',
    ),
    (
        ["torch>=2"],
        ["torch>=2", TORCH],
        "`project.dependencies` has `torch>=2`, which is wider than the matrix: an sdist,",
    ),
    ([TORCH], [TORCH], None),
    (
        ["torch<2.10"],
        ["torch<2.10", TORCH],
        "matrix.2.13: `torch<2.10` in `project.dependencies` forbids the torch that this is built for, so "
        "nobody could use it. Take the requirement out, or name the entry in `skip`.",
    ),
]
"""What `[project]` may say of torch: absent, wider, agreeing, narrower."""


def test_the_build_hook_by_itself_says_what_is_missing(tmp_path: Path, shared: Path, session_folder: Path) -> None:
    """Without the metadata hook the wheel is right, and a warning names the tools that lack the requirement.

    If `[project]` excludes the matrix's torch, nothing is compiled: no user could install the wheel.
    """
    root = write(tmp_path)
    original = (root / "pyproject.toml").read_text(encoding="utf-8")
    static(root, ["torch<2.5"])
    done = wheel_of(root, shared, session_folder)
    assert done.returncode == 1
    assert said(done) == (
        "hatch-torch-ext: `torch<2.5` in `project.dependencies` admits no torch that the matrix is built for "
        "(`torch>=2.8,<2.14,!=2.9.*,!=2.10.*,!=2.11.*,!=2.12.*`): nobody could install such a wheel. Remove it, "
        "since the matrix says which torch is served, or correct the matrix."
    )
    assert not list(root.glob("dist/*"))
    assert not list(root.glob("build/torch-ext/matrix.2*"))
    for dependencies, required, note in STATIC_CASES:
        (root / "pyproject.toml").write_text(original, encoding="utf-8")
        static(root, dependencies)
        done = wheel_of(root, shared, session_folder)
        assert done.returncode == 0, said(done)
        (wheel,) = (root / "dist").glob("*.whl")
        assert of_wheel(wheel) == required
        if note is None:
            assert "`project.dependencies`" not in said(done)
        else:
            assert f"torch-ext: {note}" in said(done)


def matrix_of(root: Path) -> process.Completed:
    """Run ``hatch-torch-ext matrix``; it need not succeed."""
    return warm.run([sys.executable, "-m", "hatch_torch_ext", "matrix"], cwd=root, check=False)


@pytest.mark.performs("Correct it, such as", "Let the matrix say it everywhere", "Take the requirement out")
def test_the_matrix_command_says_what_a_build_would(tmp_path: Path) -> None:
    """Without an index and without compiling: notes and warnings, and the errors of the metadata with status 1."""
    root = write(tmp_path)
    original = (root / "pyproject.toml").read_text(encoding="utf-8")
    assert matrix_of(root).stderr == ""
    for dependencies, _, note in STATIC_CASES:
        (root / "pyproject.toml").write_text(original, encoding="utf-8")
        static(root, dependencies)
        done = matrix_of(root)
        assert done.returncode == 0, said(done)
        assert f"hatch-torch-ext: {note}" in said(done) if note else done.stderr == ""
        if "Let the matrix say it" in done.stderr:
            pasted(root, done.stderr)
        elif note:  # the entry that the requirement forbids
            change(root, (json.dumps(dependencies), "[]"))
            assert "so nobody could use it" not in said(matrix_of(root))
            continue
        assert matrix_of(root).stderr == ""
    static(root, ["torch<2.5"])
    assert matrix_of(root).returncode == 1
    (root / "pyproject.toml").write_text(original, encoding="utf-8")
    change(root, ("dependencies = []", 'dependencies = ["torch <2.9", "numpy >>= 3"]'))
    done = matrix_of(root)
    assert done.returncode == 1
    assert said(done).startswith(
        "hatch-torch-ext: Entry #2 of option `dependencies` of `[tool.hatch.metadata.hooks.torch-ext]` is not a "
        "requirement (PEP 508): `numpy >>= 3`: "
    )
    assert said(done).endswith('. Correct it, such as `dependencies = ["numpy>=2"]`')
    change(root, ('dependencies = ["torch <2.9", "numpy >>= 3"]', said(done).split("`")[-2]))
    assert matrix_of(root).stderr == ""
    change(root, ('"numpy>=2"', ""), ('torch = ["2.8"', 'torch = ["2.31", "2.8"'))
    assert "matrix.2.31: torch 2.31 is newer than 2." in said(matrix_of(root))


@pytest.mark.performs("is a requirement of the build and not of the wheel")
def test_torch_among_the_requirements_of_the_build(tmp_path: Path) -> None:
    """Two tables have the same name and option: an error for torch in the build hook's names the right table."""
    root = write(tmp_path)
    hook = "[tool.hatch.build.targets.wheel.hooks.torch-ext]\n"
    change(root, (hook, f'{hook}dependencies = ["torch>=2.8", "numpy"]\n'))
    assert (
        "`torch>=2.8` in `dependencies` of `[tool.hatch.build.targets.wheel.hooks.torch-ext]` is a requirement of the "
        "build and not of the wheel: an isolated build would install this torch. Take it out: "
    ) in said(matrix_of(root))
    change(root, ('"torch>=2.8", "numpy"', '"numpy"'))
    assert matrix_of(root).stderr == ""


def test_dynamic_dependencies_that_nothing_supplies(tmp_path: Path) -> None:
    """Declared dynamic, without a metadata hook: that is the fault, and the lines to paste mend it."""
    root = write(tmp_path)
    table = "[tool.hatch.metadata.hooks.torch-ext]\ndependencies = []\n"
    change(root, (table, ""))
    done = matrix_of(root)
    assert "`project.dependencies` is declared dynamic, and nothing supplies it: an sdist," in said(done)
    change(root, ("[tool.hatch.build.targets", f"{table}[tool.hatch.build.targets"))
    assert matrix_of(root).stderr == ""


@pytest.mark.performs("since the matrix says which torch", "Take it out.")
def test_what_is_odd_in_dynamic_metadata_is_reported(tmp_path: Path, shared: Path, session_folder: Path) -> None:
    """A redundant requirement, one of an extra that no user could install, and a partial wheel: each has a message."""
    extra = '[project.optional-dependencies]\nold = ["torch<2"]'
    root = write(tmp_path, own=["torch>=2"], optional=extra)
    done = wheel_of(root, shared, session_folder)
    assert done.returncode == 0, said(done)
    served = "`torch>=2.8,<2.14,!=2.9.*,!=2.10.*,!=2.11.*,!=2.12.*`"
    place = "`dependencies` of `[tool.hatch.metadata.hooks.torch-ext]`"
    assert f"`torch>=2` in {place} is redundant: the matrix says {served}. Take it out." in said(done)
    assert (
        f"`torch<2` of the extra `old` admits no torch that the matrix is built for ({served}): nobody could install "
        "`[old]`. Take it out."
    ) in said(done)
    change(root, ('dependencies = ["torch>=2"]', "dependencies = []"), (extra, ""))
    assert "torch-ext: `" not in said(wheel_of(root, shared, session_folder))


def test_hooks_that_are_turned_off_leave_the_metadata_as_they_are(tmp_path: Path) -> None:
    """``HATCH_BUILD_NO_HOOKS`` compiles nothing, and the sdist that is made so requires torch all the same."""
    root = write(tmp_path)
    done = hatchling(root, "metadata", "dependencies", HATCH_BUILD_NO_HOOKS="true")
    assert json.loads(done.stdout) == [TORCH]


def test_dependencies_of_another_metadata_hook_are_kept(tmp_path: Path) -> None:
    """A project whose other hook gives dependencies too has both."""
    root = write(tmp_path, own=["packaging"])
    table = "[tool.hatch.metadata.hooks.torch-ext]"
    change(root, (table, f"[tool.hatch.metadata.hooks.custom]\n{table}"))
    (root / "hatch_build.py").write_text(
        "from hatchling.metadata.plugin.interface import MetadataHookInterface\n"
        "class Mine(MetadataHookInterface):\n"
        "    def update(self, metadata):\n"
        "        metadata['dependencies'] = ['pluggy']\n",
        encoding="utf-8",
    )
    done = hatchling(root, "metadata", "dependencies")
    assert done.returncode == 0, said(done)
    assert json.loads(done.stdout) == ["packaging", "pluggy", TORCH]
