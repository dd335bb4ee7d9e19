"""How an author's requirement of torch agrees with the matrix, and which entries serve an installed torch."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import values
from hatch_torch_ext.base.errors import ConfigurationError
from hatch_torch_ext.environments import frontend
from hatch_torch_ext.facts.backend import Backend
from hatch_torch_ext.matrix import declaring, serving

if TYPE_CHECKING:
    from hatch_torch_ext.values import Entry


def entry(torch: str | None, *, stable: bool = False, cuda: str | None = None) -> Entry:
    """Return an entry with a name that tells its fields."""
    name = f"{torch}{'-stable' * stable}{f'-{cuda}' if cuda else ''}"
    required = f"torch=={torch}.*" if torch else "torch>=2.8"
    return values.entry(
        name=name,
        torch_requirement=required,
        torch=torch,
        stable_abi=stable,
        cuda=cuda,
    )


TWO = (entry("2.8"), entry("2.13"))


@pytest.mark.parametrize(
    ("lines", "kind", "unused"),
    [
        ([], "absent", ()),
        (["numpy", "torchvision"], "absent", ()),
        (["torch"], "wider", ()),
        (["torch>=2.8"], "wider", ()),
        (["Torch >= 2.8, < 2.14, != 2.9.*, != 2.10.*, != 2.11.*, != 2.12.*"], "agrees", ()),
        (["torch>=2.8", "torch<2.14,!=2.9.*,!=2.10.*,!=2.11.*,!=2.12.*"], "agrees", ()),
        (["torch<2.10"], "narrower", ("2.13",)),
        (["torch!=2.8.0"], "narrower", ()),
        (["torch<2.5"], "excludes", ()),
        (["torch>=2.8", "torch<2.8"], "excludes", ()),
        (["torch<2.5; sys_platform == 'win32'"], "absent", ()),
        (["torch @ https://example.invalid/torch-2.4.0-py3-none-any.whl"], "absent", ()),
        (["torch==2.8.0+cu128"], "narrower", ("2.13",)),
        (["not a requirement!!"], "absent", ()),
    ],
)
def test_how_requirements_agree(lines: list[str], kind: str, unused: tuple[str, ...]) -> None:
    """Every relation to a matrix of torch 2.8 and 2.13, and the entries that no user could use."""
    found = declaring.compare(lines, TWO)
    assert (found.kind, found.unused) == (kind, unused)


def test_a_stable_entry_serves_what_comes_later() -> None:
    """A requirement above its release leaves it in use."""
    found = declaring.compare(["torch>=2.12"], [entry("2.8"), entry("2.10", stable=True)])
    assert (found.kind, found.unused) == ("narrower", ("2.8",))


@pytest.mark.performs("require one")
def test_entries_whose_torch_is_open_have_no_requirement() -> None:
    """Each is named, with what to write, either way of which gives the metadata a requirement."""
    with pytest.raises(ConfigurationError) as caught:
        declaring.requirement([entry(None)])
    assert str(caught.value) == (
        "None: `torch>=2.8` does not name a release of torch, so the project's metadata cannot name it: require "
        'one, such as `torch==2.8.*`, or give the matrix a `torch` variable and require "torch=={matrix:torch}.*"'
    )
    fixed, pin = re.findall('require one, such as `(.*?)`.* require "(.*?)"', str(caught.value))[0]
    for variables, line in (({}, fixed), ({"torch": "2.8"}, pin.replace("{matrix:torch}", "2.8"))):
        found = declaring.entries_of(values.matrix({"a": variables}, {"a": [line]}))
        assert declaring.requirement(found) == "torch>=2.8,<2.9"


@pytest.mark.parametrize(
    ("torch", "cuda", "expected"),
    [
        ("2.8.1+cpu", None, ["2.8"]),
        ("2.9.0", None, []),
        ("2.10.0", None, ["2.10-stable"]),
        ("2.16.0.dev20261101", None, ["2.12-stable"]),
        ("2.13.0+cu130", "13.0", ["2.13-13.0"]),
        ("2.13.0+cu126", "12.6", ["2.13-12.4"]),
        ("2.13.0+cpu", None, ["2.13-cpu"]),
        ("2.13.0+rocm7", None, ["2.13-cpu"]),
        ("2.13.0+cu118", "11.8", ["2.13-cpu"]),
    ],
)
def test_entries_that_serve_an_installed_torch(torch: str, cuda: str | None, expected: list[str]) -> None:
    """Exact before stable, the newest stable that is not too new, a CUDA that torch can use, else the CPU."""
    entries = [
        entry("2.8"),
        entry("2.10", stable=True),
        entry("2.12", stable=True),
        *(entry("2.13", cuda=each) for each in ("cpu", "12.4", "13.0")),
    ]
    assert [each.name for each in serving(entries, torch=torch, backend=Backend.of_cuda(cuda))] == expected


@pytest.mark.parametrize(
    ("arguments", "environ", "expected"),
    [
        (["uv", "sync"], {}, ["root/.venv"]),
        (["uv", "sync"], {"VIRTUAL_ENV": "{}/other"}, ["root/.venv"]),
        (["uv", "sync", "--active"], {"VIRTUAL_ENV": "{}/other"}, ["other", "root/.venv"]),
        (["uv", "sync"], {"UV_PROJECT_ENVIRONMENT": "elsewhere"}, ["root/elsewhere"]),
        (["uv", "pip", "install", "-e", "."], {"VIRTUAL_ENV": "{}/other"}, ["other", "root/.venv"]),
        (["/opt/uv", "pip", "install", "--python", "../other"], {}, ["other", "root/.venv"]),
        (["uv", "pip", "install", "--python=../other/bin/python"], {}, ["other", "root/.venv"]),
        (["uv", "pip", "install", "-p", "3.11"], {}, ["root/.venv"]),
        (["uv", "pip", "install", "-p"], {"CONDA_PREFIX": "{}/other"}, ["other", "root/.venv"]),
    ],
)
def test_the_environment_that_uv_means(
    arguments: list[str], environ: dict[str, str], expected: list[str], tmp_path: Path
) -> None:
    """By option, variable or folder, in uv's own order; the build's own interpreter is none of them."""
    for name in ("root/.venv", "root/elsewhere", "other"):
        (tmp_path / name / "bin").mkdir(parents=True)
        (tmp_path / name / "bin" / "python").touch()
    root = tmp_path / "root"
    variables = {name: value.format(tmp_path) for name, value in environ.items()}
    parent = frontend.Parent(arguments=tuple(arguments), environ=variables, folder=root)
    found = list(dict.fromkeys(path.resolve().parent.parent for path in frontend.targets(root, parent)))
    assert [path.relative_to(tmp_path).as_posix() for path in found] == expected


@pytest.mark.parametrize("place", ["PYTHONPATH", "PYTHONUSERBASE"])
def test_an_installed_torch_outside_of_the_environment(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cluster's module has its torch in PYTHONPATH, `pip install --user` in the home; pip hides both from a build."""
    base = Path(sys.base_prefix, "bin", "python3")  # an environment has no folder of the user
    version = "{}.{}".format(*sys.version_info)
    site = {"PYTHONPATH": tmp_path, "PYTHONUSERBASE": tmp_path / f"lib/python{version}/site-packages"}[place]
    (site / "torch").mkdir(parents=True)
    (site / "torch" / "__init__.py").write_text("raise SystemExit\n", encoding="utf-8")  # it is not imported
    (site / "torch" / "version.py").write_text("__version__ = '2.8.0+cu128'\ncuda = '12.8'\n", encoding="utf-8")
    pip = frontend.Parent(arguments=("pip", "install", "-e", "."), environ={place: str(tmp_path)}, folder=tmp_path)
    monkeypatch.setattr(frontend, "parent", lambda: pip)
    monkeypatch.setattr(sys, "executable", str(base))
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    monkeypatch.setenv("PYTHONNOUSERSITE", "1")
    found = frontend.installed_torch(tmp_path)
    assert found is not None
    assert (found.version, found.backend, found.folder) == ("2.8.0+cu128", Backend.parse("12.8"), site / "torch")


@pytest.mark.parametrize(
    ("arguments", "environ", "expected"),
    [
        (
            ["/env/bin/python", "/env/bin/pip3.11", "wheel", "--no-index", "--find-links", "my wheels", "."],
            {},
            {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "file://{}/my%20wheels"},
        ),
        (
            ["python", "-m", "pip", "install", "-f", "https://a.example/links", "-f=my wheels", "."],
            {"PIP_FIND_LINKS": "/first https://a.example/links"},
            {"PIP_FIND_LINKS": "/first https://a.example/links file://{}/my%20wheels"},
        ),
        (
            ["pip", "install", "-i", "https://one.example/", "--index-url=https://two.example/", "--cert", "ca.pem"],
            {"PIP_INDEX_URL": "https://none.example/"},
            {"PIP_INDEX_URL": "https://two.example/", "PIP_CERT": "{}/ca.pem"},
        ),
        (
            [
                "/opt/uv",
                "pip",
                "install",
                "--find-links=my wheels",
                "--index",
                "mine=https://one.example/",
                "--offline",
            ],
            {"UV_FIND_LINKS": "/first"},
            {
                "UV_FIND_LINKS": "/first,file://{}/my%20wheels",
                "UV_INDEX": "mine=https://one.example/",
                "UV_OFFLINE": "1",
            },
        ),
        (["uv", "build", "--no-index"], {}, {"PIP_NO_INDEX": "1"}),  # uv has no variable for it
        (["pip", "install", ".", "--index-url"], {}, {}),
        (["tox", "--index-url", "https://one.example/"], {}, {}),
    ],
)
def test_where_the_front_end_is_told_to_look(
    arguments: list[str], environ: dict[str, str], expected: dict[str, str], tmp_path: Path
) -> None:
    """Options that pip and uv do not pass on are turned into variables of the same meaning, from any folder."""
    (tmp_path / "my wheels").mkdir()
    (tmp_path / "ca.pem").touch()
    parent = frontend.Parent(arguments=tuple(arguments), environ={}, folder=tmp_path)
    variables = {name: value.format(tmp_path) for name, value in expected.items()}
    assert frontend.index_variables(parent, environ) == variables
