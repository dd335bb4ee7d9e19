"""``install`` against an index laid out as torch's, with a hostile package of each name on the other index."""

from __future__ import annotations

import io
import os
import re
import sys
import tarfile
from typing import TYPE_CHECKING

import pytest
import uv

import wheels
from hatch_torch_ext import cli
from hatch_torch_ext.base import process
from hatch_torch_ext.base import uv as own_uv
from hatch_torch_ext.user import machine
from loopback import served
from merged import merge_wheels

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

TAG = f"cp{sys.version_info[0]}{sys.version_info[1]}"
PLATFORM = f"manylinux_2_17_{os.uname().machine}"
HONEST = b"honest = True\n"
HOSTILE = b"honest = False\n"


def put(folder: Path, name: str, members: Mapping[str, bytes], requires: tuple[str, ...] = ()) -> None:
    """Put a wheel onto the page of its project."""
    project = folder / name.split("-", maxsplit=1)[0].replace("_", "-")
    project.mkdir(parents=True, exist_ok=True)
    wheels.write(project, members, name=name, requires=requires)
    links = "".join(f'<a href="{each.name}">{each.name}</a>\n' for each in sorted(project.glob("*.whl")))
    (project / "index.html").write_text(f"<!DOCTYPE html><html><body>{links}</body></html>")


def torch(version: str, source: bytes = HONEST) -> dict[str, bytes]:
    """Return the members of a tiny torch."""
    cuda = version.partition("+cu")[2]
    about = f"__version__ = {version!r}\ncuda = {f'{cuda[:2]}.{cuda[2:]}' if cuda else None!r}\nhip = xpu = None\n"
    body = b"from . import version\n__version__ = version.__version__\nclass _C: _GLIBCXX_USE_CXX11_ABI = True\n"
    return {"torch/__init__.py": body + source, "torch/version.py": about.encode()}


@pytest.fixture
def indexes(tmp_path: Path) -> Iterator[tuple[str, str]]:
    """Serve torch's index and the default one: (address of torch's, address of the default one)."""
    root = tmp_path / "web"
    for backend, versions in (
        ("cpu", ("2.8.0", "2.9.1", "2.13.0")),
        ("cu126", ("2.8.0", "2.9.1")),
        ("cu128", ("2.8.0", "2.9.1")),
        ("cu130", ("2.9.1", "2.13.0")),
        ("rocm6.4", ("2.8.0", "2.9.1")),
        ("xpu", ("2.9.1",)),
    ):
        for version in versions:
            local = f"{version}+{backend}"
            name = f"torch-{local}-{TAG}-{TAG}-{PLATFORM}.whl"
            triton = {"rocm6.4": ("pytorch-triton-rocm==3.4",), "xpu": ("pytorch-triton-xpu==3.4",)}.get(backend, ())
            put(root / "whl" / backend, name, torch(local), ("helper", *triton))
            for each in triton:
                project, _, number = each.partition("==")
                build = f"{project.replace('-', '_')}-{number}-{TAG}-{TAG}-{PLATFORM}.whl"
                put(root / "whl" / backend, build, {"triton.py": HONEST})
                put(root / "simple", build, {"triton.py": HOSTILE})
        vision = f"torchvision-0.23.0+{backend}-{TAG}-{TAG}-{PLATFORM}.whl"
        put(root / "whl" / backend, vision, {"torchvision/__init__.py": HONEST}, ("torch==2.8.0",))
        put(root / "whl" / backend, "my_pkg-9.0-py3-none-any.whl", {"my_pkg/__init__.py": HOSTILE})
        put(root / "whl" / backend, "helper-9.0-py3-none-any.whl", {"helper.py": HOSTILE})
    nightly = f"torch-2.16.0.dev20261101+cpu-{TAG}-{TAG}-{PLATFORM}.whl"
    put(root / "whl/nightly/cpu", nightly, torch("2.16.0.dev20261101+cpu"))
    labels = {
        "torch2.8_cpu_cxx11_x86_64": {},
        "torch2.8_cu12.6_cxx11_x86_64": {"backend": "cuda", "cuda": "12.6"},
        "torch2.9_cpu_cxx11_x86_64": {"torch": "2.9"},
    }
    built = []
    for label, changes in labels.items():
        files = {f"{label}/libx.so": label.encode()}
        built.append((wheels.variant(label, files, machine=os.uname().machine, **changes), files))
    draft = wheels.ours(tmp_path, built, extra={"my_pkg/honest.py": HONEST})
    (root / "simple/my-pkg").mkdir(parents=True)
    merged = merge_wheels([draft], out=root / "simple/my-pkg")
    (root / "simple/my-pkg/index.html").write_text(f'<a href="{merged.name}">{merged.name}</a>')
    put(root / "simple", "helper-1.0-py3-none-any.whl", {"helper.py": HONEST})
    for version in ("2.8.0", "2.9.1", "99.0"):
        put(root / "simple", f"torch-{version}-py3-none-any.whl", torch(version, HOSTILE))
    with served(root) as address:
        yield f"{address}/whl", f"{address}/simple"


@pytest.fixture
def environment(tmp_path: Path, indexes: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the Python of a fresh environment, with the default index set as users set it."""
    process.run([uv.find_uv_bin(), "venv", "--quiet", "--python", sys.executable, tmp_path / "venv"])
    for name in ("UV_DEFAULT_INDEX", "PIP_INDEX_URL"):
        monkeypatch.setenv(name, indexes[1])
    for name in ("UV_INDEX", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("UV_NO_CACHE", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    return tmp_path / "venv" / "bin" / "python"


def install(python: Path, indexes: tuple[str, str], *arguments: str) -> int:
    """Run ``hatch-torch-ext install``."""
    return cli.main(["install", "--python", str(python), "--torch-index", indexes[0], *arguments])


def versions(python: Path) -> dict[str, str]:
    """Return what is installed, and that no byte of it is the hostile one."""
    listed = process.run([uv.find_uv_bin(), "pip", "list", "--format", "json", "--python", python]).stdout
    import json  # noqa: PLC0415

    site = next((python.parent.parent / "lib").glob("python*/site-packages"))
    for file in site.rglob("*.py"):
        assert HOSTILE not in file.read_bytes(), file
    return {each["name"]: each["version"] for each in json.loads(listed)}


@pytest.mark.parametrize(
    ("driver", "expected"),
    [
        ("12.4", "2.8.0+cu128"),  # the package's CUDA variant, in the newest build that the driver runs
        ("13.0", "2.8.0+cu128"),
        ("none", "2.9.1+cpu"),  # the newest torch that it serves
        ("11.8", "2.9.1+cpu"),
    ],
)
def test_the_torch_that_the_package_serves_best(
    environment: Path, indexes: tuple[str, str], monkeypatch: pytest.MonkeyPatch, driver: str, expected: str
) -> None:
    """Torch is installed from torch's index, everything else from the default one, never the other way round."""
    monkeypatch.setenv(machine.DRIVER, driver)
    assert install(environment, indexes, "my-pkg") == 0
    assert versions(environment) == {"torch": expected, "my-pkg": "1.0", "helper": "1.0"}


@pytest.mark.parametrize(
    ("driver", "expected"), [("13.0", "2.13.0+cu130"), ("12.8", "2.9.1+cu128"), ("none", "2.13.0+cpu")]
)
def test_only_torch(
    environment: Path, indexes: tuple[str, str], monkeypatch: pytest.MonkeyPatch, driver: str, expected: str
) -> None:
    """The newest that the machine runs on its GPU, though the newest CPU build is newer."""
    monkeypatch.setenv(machine.DRIVER, driver)
    assert install(environment, indexes, "torch") == 0
    assert versions(environment)["torch"] == expected


def test_torchvision_comes_with_its_torch(
    environment: Path, indexes: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The release that requires the very torch that was chosen, from torch's index."""
    monkeypatch.setenv(machine.DRIVER, "12.8")
    assert install(environment, indexes, "torch<2.9", "torchvision") == 0
    assert versions(environment) == {"torch": "2.8.0+cu128", "torchvision": "0.23.0+cu128", "helper": "1.0"}


@pytest.mark.performs("leave it out, or name another torch")
def test_no_torchvision_for_that_torch(
    environment: Path,
    indexes: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The torch is named; without torchvision, or with another torch, there is a plan."""
    monkeypatch.setenv(machine.DRIVER, "13.0")
    assert install(environment, indexes, "torch", "torchvision") == 1
    told = f"{indexes[0]}/cu130 has no torchvision for torch 2.13.0+cu130: leave it out, or name another torch."
    assert told in capsys.readouterr().err
    assert install(environment, indexes, "torch", "--dry-run") == 0
    assert install(environment, indexes, "torch<2.9", "torchvision", "--dry-run") == 0


def test_dry_run_prints_what_can_be_typed(
    environment: Path,
    indexes: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Nothing is installed; what is printed does it, typed into a shell."""
    monkeypatch.setenv(machine.DRIVER, "none")
    assert install(environment, indexes, "my-pkg", "--dry-run", "--quiet") == 0
    lines = capsys.readouterr().out.splitlines()
    commands = [line for line in lines if not line.startswith("#")]
    assert versions(environment) == {}
    assert "--quiet" in commands[0]
    for command in commands:
        process.run(["sh", "-c", command])
    assert versions(environment)["torch"] == "2.9.1+cpu"


def test_a_constraints_file_limits_torch(
    environment: Path, indexes: tuple[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Torch is chosen within the lines on it that are for this Python; the installer gets the file for the packages."""
    monkeypatch.setenv(machine.DRIVER, "none")
    limits = tmp_path / "limits.txt"
    limits.write_text("# ours\ntorch==2.8.0  # because\ntorch<2; python_version<'3'\nhelper<=2\n")
    assert install(environment, indexes, "my-pkg", "-c", str(limits)) == 0
    assert versions(environment) == {"torch": "2.8.0+cpu", "my-pkg": "1.0", "helper": "1.0"}


def test_a_backend_that_was_requested(
    environment: Path, indexes: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The option overrides the machine's."""
    monkeypatch.setenv(machine.DRIVER, "none")
    assert install(environment, indexes, "my-pkg", "--backend", "cu126") == 0
    assert versions(environment)["torch"] == "2.8.0+cu126"


@pytest.mark.parametrize(("backend", "triton"), [("rocm6.4", "pytorch-triton-rocm"), ("xpu", "pytorch-triton-xpu")])
def test_a_backend_for_other_gpus(
    environment: Path,
    indexes: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    backend: str,
    triton: str,
) -> None:
    """By hand: torch and its build of triton come from that index, and the package says what it runs there."""
    monkeypatch.setenv(machine.DRIVER, "none")
    assert install(environment, indexes, "my-pkg", "--backend", backend) == 0
    expected = {"torch": f"2.9.1+{backend}", "my-pkg": "1.0", "helper": "1.0", triton: "3.4"}
    assert versions(environment) == expected
    said = capsys.readouterr().out
    assert f"# the build of torch for {'XPU' if backend == 'xpu' else 'ROCm 6.4'} was requested\n" in said
    assert "# my-pkg serves it with its variant torch2.9_cpu_cxx11_x86_64: its operators run on the CPU\n" in said


@pytest.mark.performs("Take another Python")
def test_nothing_serves_everything(
    environment: Path,
    indexes: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What each package has is named, and nothing is installed; with another release of torch it would be."""
    monkeypatch.setenv(machine.DRIVER, "none")
    assert install(environment, indexes, "my-pkg", "torch>=2.13") == 1
    said = capsys.readouterr().err
    assert "my-pkg==1.0 has variants for torch 2.8 (CPU), torch 2.8 (CUDA 12.6), torch 2.9 (CPU)" in said
    assert "Take another Python (--python), another backend (--backend), or another release." in said
    assert versions(environment) == {}
    assert install(environment, indexes, "my-pkg", "torch<2.13", "--dry-run") == 0


def test_a_channel(environment: Path, indexes: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Nightly builds come from their own index."""
    monkeypatch.setenv(machine.DRIVER, "none")
    assert install(environment, indexes, "torch", "--channel", "nightly", "--no-deps") == 0
    assert versions(environment) == {"torch": "2.16.0.dev20261101+cpu"}


@pytest.mark.parametrize("way", ["option", "two words", "variable", "page", "pip's variable"])
def test_find_links(
    environment: Path, indexes: tuple[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, way: str
) -> None:
    """A folder or a page of wheels: the variants of what is there count, and the installer is led there too."""
    monkeypatch.setenv(machine.DRIVER, "12.8")
    folder = tmp_path / "web" / "links"
    (tmp_path / "web/simple/my-pkg").rename(folder)
    place, options = str(folder), [f"--find-links={folder}"]
    if way == "two words":
        options = ["-f", place]
    elif way == "page":
        options = ["--find-links", f"{indexes[0].removesuffix('whl')}links/"]
    elif way != "option":
        monkeypatch.setenv("UV_FIND_LINKS" if way == "variable" else "PIP_FIND_LINKS", place)
        options = []
    assert install(environment, indexes, "my-pkg", *options) == 0
    assert versions(environment) == {"torch": "2.8.0+cu128", "my-pkg": "1.0", "helper": "1.0"}


@pytest.mark.performs("give a mirror of it, or a folder with")
@pytest.mark.usefixtures("indexes")
def test_without_an_index(
    environment: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Where nothing is reached: the option is named that takes a folder, and folders are enough for all."""
    monkeypatch.setenv(machine.DRIVER, "12.8")
    arguments = ["install", "--python", str(environment), "my-pkg", "--no-index"]
    arguments += [f"--find-links={tmp_path / 'web/simple' / name}" for name in ("my-pkg", "helper")]
    assert cli.main([*arguments, "--torch-index", "http://127.0.0.1:9/whl"]) == 1
    told = capsys.readouterr().err
    assert "Where torch's index cannot be reached, give a mirror of it, or a folder with a folder of wheels for" in told
    assert "by --torch-index or TORCH_EXT_TORCH_INDEX" in told
    for backend in ("cu128", "cpu"):
        (tmp_path / "torch").mkdir(exist_ok=True)
        (tmp_path / "web/whl" / backend / "torch").rename(tmp_path / "torch" / backend)
    monkeypatch.chdir(tmp_path)
    assert cli.main([*arguments, "--torch-index", "torch"]) == 0
    assert versions(environment) == {"torch": "2.8.0+cu128", "my-pkg": "1.0", "helper": "1.0"}


def test_find_links_to_nothing(
    environment: Path, indexes: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder that is not there is named with the option."""
    assert install(environment, indexes, "none-such", f"--find-links={tmp_path / 'gone'}") == 1
    told = "which `--find-links` (UV_FIND_LINKS, PIP_FIND_LINKS) names, is neither a folder nor a page"
    assert f"{tmp_path / 'gone'}, {told}" in capsys.readouterr().err


def test_a_vendors_torch_is_not_replaced_without_a_word(
    environment: Path, indexes: tuple[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is lost is named, with the command that keeps it."""
    monkeypatch.setenv(machine.DRIVER, "none")
    site = next((environment.parent.parent / "lib").glob("python*/site-packages"))
    vendors = "2.9.0a0+145a3a7bda.nv25.10"
    for version, told in ((vendors, True), ("2.8.0+cpu", False), ("2.16.0.dev20261101+cpu", False)):
        (site / "torch-1.dist-info").mkdir(exist_ok=True)
        (site / "torch-1.dist-info/METADATA").write_text(f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n")
        assert install(environment, indexes, "my-pkg", "--dry-run") == 0
        keep = f"{own_uv.installed()} pip install --python {environment} --no-deps my-pkg"
        line = f"# this replaces torch {version}, which no index has: to keep it, type instead: {keep}\n"
        assert (line in capsys.readouterr().out) is told


BACKEND = """
import os, sys
def build_wheel(*arguments, **settings):
    sys.stderr.write("\\x1b[2J\\x1b]0;title\\x07 " + os.environ["MY_TOKEN"] + "\\n")
    raise SystemExit(1)
build_sdist = get_requires_for_build_wheel = lambda *_, **__: []
"""


def test_what_the_installer_prints_is_clean(
    environment: Path,
    indexes: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """A dependency's build prints a secret and control characters: the user sees neither, but sees the failure."""
    monkeypatch.setenv(machine.DRIVER, "none")
    monkeypatch.setenv("MY_TOKEN", "hunter2-and-more")
    project = tmp_path / "web" / "simple" / "loud"
    project.mkdir()
    with tarfile.open(project / "loud-1.0.tar.gz", "w:gz") as archive:
        build_system = '[build-system]\nrequires = []\nbuild-backend = "loud"\nbackend-path = ["."]\n'
        for name, text in {
            "pyproject.toml": f'[project]\nname = "loud"\nversion = "1.0"\n{build_system}',
            "loud.py": BACKEND,
            "PKG-INFO": "Metadata-Version: 2.4\nName: loud\nVersion: 1.0\n",
        }.items():
            info = tarfile.TarInfo(f"loud-1.0/{name}")
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text.encode()))
    (project / "index.html").write_text('<a href="loud-1.0.tar.gz">loud-1.0.tar.gz</a>')
    wheels.write(tmp_path, {"quiet.py": HONEST}, name="quiet-1.0-py3-none-any.whl", requires=("loud",))
    assert install(environment, indexes, "torch", str(tmp_path / "quiet-1.0-py3-none-any.whl")) == 1
    said = capfd.readouterr()
    everything = said.out + said.err
    assert "Call to `loud.build_wheel` failed" in everything
    assert "****" in everything
    assert "\x1b" not in everything
    assert "hunter2" not in everything


def test_files_of_requirements_and_projects_are_of_the_second_step(
    environment: Path,
    indexes: tuple[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The index of torch has a package of each name: what a file lists comes from the other index."""
    monkeypatch.setenv(machine.DRIVER, "none")
    listed = tmp_path / "requirements.txt"
    listed.write_text("helper\n", encoding="utf-8")
    assert install(environment, indexes, "-r", str(listed), "-e", "a b", "torch<2.10", "--dry-run") == 0
    first, second = [line for line in capsys.readouterr().out.splitlines() if not line.startswith("#")]
    assert not first.endswith(f" -r {listed} -e 'a b'")
    assert str(listed) not in first
    assert second.endswith(f" -r {listed} -e 'a b'")
    assert install(environment, indexes, "torch<2.10", f"--requirement={listed}") == 0
    assert versions(environment) == {"torch": "2.9.1+cpu", "helper": "1.0"}


@pytest.mark.performs("is not a requirement ({}): write", "by its version only: write")
@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("torch=2.8", "`torch=2.8` is not a requirement ("),
        ("torchvision=0.23", "`torchvision=0.23` is not a requirement ("),
        ("torch @ https://x.example/torch-2.8.0-py3-none-any.whl", "torch is given with an address, but it is taken"),
        ("torch[opt-einsum]", "torch is given with extras, but it is taken"),
        ("torch; python_version > '3'", "torch is given with a condition, but it is taken"),
    ],
)
def test_torch_is_given_by_its_version(
    environment: Path, indexes: tuple[str, str], capsys: pytest.CaptureFixture[str], asked: str, told: str
) -> None:
    """What would have no effect is refused in a sentence, and what that says to write is taken."""
    assert install(environment, indexes, asked, "--dry-run") == 1
    said = capsys.readouterr().err
    assert told in said
    version = "0.23.*" if "torchvision" in asked else "2.8.*"
    for written in re.findall("(?:write|or) `(.*?)`", said):
        assert install(environment, indexes, written.replace("VERSION", version), "torch<2.9", "--dry-run") == 0
    assert "fault" not in said


def test_a_package_from_an_address(
    environment: Path, indexes: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is what torch is chosen for, and is installed from that address."""
    (wheel,) = (tmp_path / "web/simple/my-pkg").glob("*.whl")
    asked = f"my-pkg @ {indexes[1]}/my-pkg/{wheel.name}"
    assert install(environment, indexes, asked, "--dry-run") == 0
    said = capsys.readouterr().out
    assert "my-pkg serves it with its variant" in said
    assert f"'{asked}'" in said.splitlines()[-1]


@pytest.mark.performs("give `cu130`")
def test_wrong_words(
    environment: Path, indexes: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An unknown backend, a missing wheel and an invalid package name give messages; what they say to give works."""
    assert install(environment, indexes, "my-pkg", "--backend", "cuda") == 1
    said = capsys.readouterr().err
    assert "the backend 'cuda' is not known: give `cu130`, `rocm6.4`, `xpu`, `cpu` or `auto`" in said
    for backend in re.findall("`(.*?)`", said):
        assert install(environment, indexes, "my-pkg", "--backend", backend, "--dry-run") == 0
    gone = tmp_path / "gone-1-py3-none-any.whl"
    assert install(environment, indexes, str(gone)) == 1
    assert f"{gone}: no such file. Give the path of a wheel." in capsys.readouterr().err
    (wheel,) = (tmp_path / "web/simple/my-pkg").glob("*.whl")
    assert install(environment, indexes, str(wheel), "--dry-run") == 0
    assert install(environment, indexes, "no such package") == 1
    assert "`no such package` is neither a requirement nor a wheel" in capsys.readouterr().err
