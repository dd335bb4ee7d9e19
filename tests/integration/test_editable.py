"""Editable installs, as an author lives with them: built for the torch that is there, and never stale in silence."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import uv

import plain
from hatch_torch_ext.base import locks, process

if TYPE_CHECKING:
    from collections.abc import Callable

    Once = Callable[[str, Callable[[Path], None]], Path]

PROJECT = """
[build-system]
requires = ["hatchling", "hatch-torch-ext"]
build-backend = "hatchling.build"
[project]
name = "my-pkg"
version = "1"
dynamic = ["dependencies"]
[tool.hatch.metadata.hooks.torch-ext]
[tool.hatch.build.targets.wheel.hooks.torch-ext]
editable.rebuild = {rebuild}
[tool.hatch.envs.matrix]
skip-install = true
dependencies = ["torch=={matrix:torch}.*"]
[[tool.hatch.envs.matrix.matrix]]
torch = ["2.8", "2.13"]
"""
PACKAGE = """
import ctypes
from my_pkg import _variants

((label, path),) = [(each["label"], file["path"]) for each in _variants.DATA["variants"] for file in each["files"]]
answer = ctypes.CDLL(f"{_variants.ROOT}/{path}").answer()
"""
NEWEST, OLDER = "torch2.13_cpu_cxx11_x86_64", "torch2.8_cpu_cxx11_x86_64"

pytestmark = pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the fake wheels are for Python 3.11")


class Author:
    """A project, and an environment that has the plugin and, perhaps, a torch."""

    def __init__(self, folder: Path, shared: Path) -> None:
        self.root = folder / "my project"
        self.env = folder / "env"
        self.python = self.env / "bin" / "python"
        shutil.copytree(shared / "env", self.env, symlinks=True)
        (self.site,) = (self.env / "lib").glob("python*/site-packages")
        self.lent = self.site / "zz_plugin.pth"
        self.lent.write_text(f"{sysconfig.get_path('purelib')}\n{Path(process.__file__).parents[2]}\n")
        self.environ: dict[str, str | None] = {
            "UV_FIND_LINKS": str(shared / "wheels"),
            "PIP_NO_INDEX": "1",
            "HATCH_TORCH_EXT_CACHE": str(shared / "store"),
            "PYTHONPATH": None,
            "VIRTUAL_ENV": None,
        }
        files = {"pyproject.toml": PROJECT.replace("{rebuild}", "false"), "src/my_pkg/__init__.py": PACKAGE}
        plain.write(self.root, files)
        self.edit("return 1;")

    def edit(self, body: str) -> None:
        """Write the C source."""
        (self.root / "csrc" / "plain.c").write_text(f"int answer(void) {{ {body} }}\n", encoding="utf-8")

    def rebuilding(self) -> None:
        """Let the project build at import."""
        (self.root / "pyproject.toml").write_text(PROJECT.replace("{rebuild}", "true"), encoding="utf-8")

    def torch(self, version: str) -> None:
        """Put a torch into the environment that says its version and does nothing else."""
        (self.site / "torch").mkdir()
        (self.site / "torch" / "__init__.py").touch()
        text = f"__version__ = {version!r}\ncuda: Optional[str] = None\n"
        (self.site / "torch" / "version.py").write_text(text, encoding="utf-8")

    def install(self, **environ: str | None) -> str:
        """Install the project as editable, without isolation; return the output."""
        command: list[str | Path] = [
            self.python,
            "-m",
            "pip",
            "install",
            "-v",
            "--no-deps",
            "--no-build-isolation",
            "-e",
            self.root,
        ]
        done = process.run(command, env_changes={**self.environ, **environ}, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def run(self, *arguments: str, **environ: str | None) -> process.Completed:
        """Run the environment's Python in a folder of its own."""
        changes = {**self.environ, **environ}
        return process.run([self.python, *arguments], cwd=self.env, env_changes=changes, check=False)

    def answer(self, **environ: str | None) -> str:
        """Import the package; return the label that it has and what its library answers."""
        done = self.run("-c", "import my_pkg; print(my_pkg.label, my_pkg.answer)", **environ)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.strip()

    def refusal(self, **environ: str | None) -> str:
        """Import the package, which fails; return the error."""
        done = self.run("-c", "import my_pkg", **environ)
        assert done.returncode == 1, done.stdout
        return done.stderr


@pytest.fixture
def author(tmp_path: Path, once: Once) -> Author:
    """Return a fresh author; wheels of torch, the store and an environment with pip are shared."""

    def make(folder: Path) -> None:
        plain.make_wheels(folder / "wheels", ["2.8.9", "2.13.9"])
        process.run([uv.find_uv_bin(), "venv", "--quiet", "--python", sys.executable, folder / "env"])
        python = folder / "env" / "bin" / "python"
        process.run([uv.find_uv_bin(), "pip", "install", "--quiet", "--python", python, "pip", "editables"])

    return Author(tmp_path, once("editable", make))


@pytest.mark.slow
def test_the_torch_of_the_environment_is_built_for(author: Author) -> None:
    """One older than the newest of the matrix, one that the matrix has not, and none."""
    author.torch("2.8.1+cpu")
    assert f"editable: for torch 2.8.1+cpu of {author.python}" in author.install()
    assert author.answer() == f"{OLDER} 1"
    again = author.install()
    assert "unchanged, taken as it is" in again
    shutil.rmtree(author.site / "torch")
    author.torch("2.11.0")
    assert "no entry of the matrix serves torch 2.11.0" in author.install()
    assert author.answer() == f"{NEWEST} 1"
    shutil.rmtree(author.site / "torch")
    assert "editable: for torch" not in author.install()
    assert author.answer() == f"{NEWEST} 1"


@pytest.mark.slow
def test_uv_builds_in_isolation_for_the_environment_that_it_installs_into(author: Author, wheelhouse: Path) -> None:
    """Its build runs in an environment of its cache; which one is meant, and where to look, is seen all the same."""
    author.torch("2.8.1")
    command: list[str | Path] = [uv.find_uv_bin(), "pip", "install"]
    command += ["--no-deps", "--python", author.python, "-e", author.root]
    links = ["--find-links", str(author.environ["UV_FIND_LINKS"]), "-f", str(wheelhouse)]
    environ = {**author.environ, "PIP_NO_INDEX": None, "UV_FIND_LINKS": None, "PIP_FIND_LINKS": None}
    done = process.run([*command, *links], env_changes=environ, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert author.answer() == f"{OLDER} 1"
    (manifest,) = author.site.glob("*/_torch_ext/manifest.json")
    assert '"2.8.9"' in manifest.read_text(encoding="utf-8")  # no index has it

    author.edit("return 2;")
    stale = author.run("-c", "import my_pkg").stderr
    assert f"Compile it: uv pip install --reinstall --no-deps -e '{author.root}'" in stale
    command[3:4] = ["--reinstall", "--no-deps"]
    done = process.run([*command, *links], env_changes=environ, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert author.answer() == f"{OLDER} 2"
    shutil.rmtree(author.site / "torch")
    shown = author.run("-c", "from my_pkg import _variants; _variants.load()").stderr
    assert f"\n  uv pip install --reinstall --no-deps -e '{author.root}'\n" in shown


@pytest.mark.performs("Compile it: ")
def test_stale_code_is_reported_and_what_the_message_says_helps(author: Author) -> None:
    """Sources with only another time are not stale; changed ones give a warning, and `pip install -e` compiles them."""
    author.install()
    source = author.root / "csrc" / "plain.c"
    os.utime(source, ns=(1, 1))
    assert "changed" not in author.run("-c", "import my_pkg").stderr
    author.edit("return 2;")
    done = author.run("-c", "import my_pkg; print(my_pkg.answer)")
    assert done.stdout == "1\n"
    told = (
        f"my_pkg: {source} changed since it was compiled: the old code is loaded. Compile it: "
        f"pip install -e '{author.root}'"
    )
    assert done.stderr.count(told) == 1
    author.install()
    assert author.answer() == f"{NEWEST} 2"


@pytest.mark.slow
def test_messages_and_editors_know_an_editable_install(author: Author) -> None:
    """The remedy is a build, by a command that a shell takes as it is; clangd looks for the commands in ``build``."""
    author.install()
    shown = author.run("-c", "from my_pkg import _variants; _variants.load()").stderr
    assert f"or build it for this one, if its matrix has it:\n  pip install -e '{author.root}'" in shown
    assert "pip install -U" not in shown
    commands = json.loads((author.root / "build" / "compile_commands.json").read_text(encoding="utf-8"))
    assert [each["file"] for each in commands] == [str(author.root / "csrc" / "plain.c")]


@pytest.mark.slow
def test_rebuild_at_import(author: Author) -> None:
    """Off by default; with the option, or a variable, what changed is compiled before it is loaded, once."""
    author.rebuilding()
    author.install()
    author.edit("return 2;")
    done = author.run("-c", "import my_pkg; print(my_pkg.answer)")
    assert done.stdout == "2\n", done.stderr
    assert "plain.c changed since it was compiled: compiled in" in done.stderr
    assert author.run("-c", "import my_pkg; print(my_pkg.answer)").stderr == ""

    author.edit("return 3;")
    code = "import my_pkg; print(my_pkg.answer)"
    env = {name: value for name, value in {**os.environ, **author.environ}.items() if value is not None}
    both = [
        subprocess.Popen([author.python, "-c", code], cwd=author.env, env=env, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    assert [process.communicate()[0] for process in both] == ["3\n", "3\n"]

    author.edit("return 4")
    error = author.refusal()
    assert "plain.c changed since it was compiled, and cannot be compiled:" in error
    assert "plain.c:1:" in error
    assert author.answer(TORCH_EXT_REBUILD="0") == f"{NEWEST} 3"
    author.edit("return 5;")
    assert "no C++ compiler was found" in author.refusal(PATH=str(author.env / "bin"))
    assert author.answer() == f"{NEWEST} 5"


@pytest.mark.slow
def test_a_rebuild_leaves_no_compiled_file_of_before(author: Author) -> None:
    """Within one second, and of one size, the old finder's would be taken for the new one's."""
    author.rebuilding()
    author.install()
    author.run("-c", "import my_pkg", PYTHONDONTWRITEBYTECODE=None)
    pattern = "__pycache__/_my_pkg_torch_ext_editable*.pyc"
    assert list(author.site.glob(pattern))
    author.edit("return 2;")
    author.run("-c", "import my_pkg", PYTHONDONTWRITEBYTECODE=None)
    assert not list(author.site.glob(pattern))


WITHOUT_PRIVILEGES = (
    ["setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-all"] if os.geteuid() == 0 else []
)
"""The head of a command for which the permissions of files count, root's or not."""


@pytest.mark.slow
@pytest.mark.parametrize("case", ["of another", "with places of its own", "missing"])
def test_rebuild_where_home_cannot_be_used(author: Author, tmp_path: Path, case: str) -> None:
    """A container's user has none, or root's: neither hatch nor uv nor a look for .netrc ends the import."""
    author.rebuilding()
    author.install()
    author.edit("return 2;")
    home = tmp_path / "home"
    places = ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME") if case == "with places of its own" else ()
    home.touch() if case == "missing" else home.mkdir(mode=0)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    environ: dict[str, str | None] = {
        **author.environ,
        **dict.fromkeys(("HATCH_TORCH_EXT_CACHE", "HATCH_CONFIG", "HATCH_DATA_DIR", "UV_CACHE_DIR", "NETRC")),
        **{place: str(tmp_path / place) for place in places},
        "HOME": str(home / "of" / "nobody"),
        "TMPDIR": str(temporary),
    }
    command: list[str | Path] = [*WITHOUT_PRIVILEGES, author.python, "-c", "import my_pkg; print(my_pkg.answer)"]
    done = process.run(command, cwd=author.env, env_changes=environ, check=False)
    home.chmod(0o700)
    assert done.stdout == "2\n", done.stderr
    assert (temporary / f"hatch-torch-ext-{os.geteuid()}").is_dir() is (not places)


@pytest.mark.performs("Make it writable", "or install it into your")
def test_rebuild_in_an_environment_that_cannot_be_written(author: Author) -> None:
    """The error comes before anything is compiled; it names the folder, its owner, and what to do.

    Made writable, the environment has the new code; so has one of the author's own.
    """
    author.rebuilding()
    author.install()
    author.edit("return 2;")
    events = author.root / "build" / "torch-ext" / "events.jsonl"
    before = events.read_bytes()
    source = author.root / "csrc" / "plain.c"
    command: list[str | Path] = [*WITHOUT_PRIVILEGES, author.python, "-c", "import my_pkg; print(my_pkg.answer)"]

    def refused(told: str) -> None:
        author.site.chmod(0o555)
        done = process.run(command, cwd=author.env, env_changes=author.environ, check=False)
        author.site.chmod(0o755)
        assert done.stderr.splitlines()[-2:] == [
            f"ImportError: my_pkg: {source} changed since it was compiled, and cannot be compiled, since nothing can "
            f"be put into {author.site}: {told}, or install it into your own environment, which "
            "`python -m venv` makes.",
            "TORCH_EXT_REBUILD=0 loads what was compiled before.",
        ]
        assert events.read_bytes() == before

    if os.geteuid() == 0:
        os.chown(author.site, 4321, 4321)
        refused(f"it belongs to uid 4321, and this process is root's. Run as uid 4321: pip install -e '{author.root}'")
        os.chown(author.site, 0, 0)
    refused("it is read-only. Make it writable")
    assert author.answer() == f"{NEWEST} 2"
    own = author.env.with_name("own")
    process.run([sys.executable, "-m", "venv", own])
    author.python = own / "bin" / "python"
    (site,) = (own / "lib").glob("python*/site-packages")
    shutil.copy(author.lent, site)
    author.edit("return 3;")
    author.install()
    assert author.answer() == f"{NEWEST} 3"


@pytest.mark.slow
def test_a_process_that_waits_for_another_to_compile_says_so(author: Author) -> None:
    """At once, with the process that it waits for; then it compiles nothing, and says that the other did."""
    author.rebuilding()
    author.install()
    author.edit("return 2;")
    env = {name: value for name, value in {**os.environ, **author.environ}.items() if value is not None}
    lock = author.site / "_my_pkg_torch_ext_editable.lock"
    with locks.held(lock, what="nothing"):
        waiting = subprocess.Popen(
            [author.python, "-c", "import my_pkg; print(my_pkg.answer)"],
            cwd=author.env,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert waiting.stderr is not None
        assert waiting.stderr.readline().startswith(
            f"my_pkg: waiting for its compiled files, which process {os.getpid()} ("
        )
        code = "from hatch_torch_ext import editable; editable.main()"
        done = author.run("-c", code, str(author.root), str(author.site))
        assert done.returncode == 0, done.stderr
    answer, said = waiting.communicate()
    assert answer == "2\n"
    assert "plain.c changed since it was compiled: waited " in said
    assert said.endswith(" s for that process, which compiled it\n")
    assert not lock.exists()


@pytest.mark.slow
def test_uv_keeps_what_compiles(author: Author, wheelhouse: Path) -> None:
    """With the dependency that the message gives, `uv sync` does not remove the plugin."""
    author.rebuilding()
    file = author.root / "pyproject.toml"
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace('version = "1"\n', 'version = "1"\nrequires-python = "==3.11.*"\n'), encoding="utf-8")
    links = f"{author.environ['UV_FIND_LINKS']},{wheelhouse}"
    environ = {**author.environ, "PIP_NO_INDEX": None, "UV_FIND_LINKS": links, "UV_PYTHON": sys.executable}

    def run(*command: str | Path) -> str:
        done = process.run(command, cwd=author.root, env_changes=environ, check=False)
        return done.stdout if done.returncode == 0 else done.stderr

    imported = (author.root / ".venv" / "bin" / "python", "-c", "import my_pkg; print(my_pkg.answer)")
    run(uv.find_uv_bin(), "sync")
    assert run(*imported) == "1\n"
    author.edit("return 2;")
    said = run(*imported)
    assert "hatch-torch-ext in this Python: uv add --dev 'hatch-torch-ext[build]' --project " in said
    remedy = shlex.split(said.partition("in this Python: uv ")[2].partition("; or compile")[0])
    run(uv.find_uv_bin(), *remedy)
    assert 'dev = [\n    "hatch-torch-ext[build]' in file.read_text(encoding="utf-8")
    author.edit("return 3;")
    assert run(*imported) == "3\n"
    run(uv.find_uv_bin(), "sync")
    author.edit("return 4;")
    assert run(*imported) == "4\n"


@pytest.mark.performs("compile it by hand", "pip install 'hatch-torch-ext[build]'")
@pytest.mark.slow
def test_rebuild_without_the_plugin_says_what_to_do(author: Author) -> None:
    """An install in isolation leaves no plugin behind: both remedies of the message work.

    The checkout cannot be written here: the work is done in the user's cache, as for any build.
    """
    author.rebuilding()
    (author.root / "build").write_text("in the way\n", encoding="utf-8")
    author.install()
    author.edit("return 2;")
    lent = author.lent.read_text(encoding="utf-8")
    author.lent.unlink()
    error = author.refusal()
    assert "`editable.rebuild` needs hatch-torch-ext in this Python: pip install 'hatch-torch-ext[build]'" in error
    assert f"or compile it by hand: pip install -e '{author.root}'" in error
    assert author.answer(TORCH_EXT_REBUILD="0") == f"{NEWEST} 1"
    (installer,) = author.site.glob("my_pkg-1.dist-info/INSTALLER")
    installer.write_text("uv", encoding="utf-8")
    error = author.refusal()
    assert "in this Python: uv pip install 'hatch-torch-ext[build]'; or compile it by hand: uv pip install" in error
    author.lent.write_text(lent, encoding="utf-8")
    assert author.answer() == f"{NEWEST} 2"
    assert (author.root / "build").read_text(encoding="utf-8") == "in the way\n"
