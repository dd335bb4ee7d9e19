"""Messages about a Dask cluster that does not fit, and what is sent to it; no cluster is started."""

from __future__ import annotations

import dataclasses
import io
import json
import platform
import shutil
import tarfile
import zlib
from typing import TYPE_CHECKING, Any

import pytest

from hatch_torch_ext import __version__
from hatch_torch_ext import config as configuration
from hatch_torch_ext.base.errors import ConfigurationError
from hatch_torch_ext.hooks import shipping
from hatch_torch_ext.pipeline import cluster, events, inputs, worker
from hatch_torch_ext.toolchain import tools
from hatch_torch_ext.values import Packaging
from hatch_torch_ext.views.board import Board, summary
from plain import write

if TYPE_CHECKING:
    from pathlib import Path

metadata = pytest.importorskip("importlib.metadata")
pytest.importorskip("distributed", reason="dask.distributed, the extra `dask`, is not installed")
DISTRIBUTED = metadata.version("distributed")
REMEDY = (
    "install the same there, in an environment of the same Python: pip install "
    f'"hatch-torch-ext[dask]=={__version__}" "distributed=={DISTRIBUTED}"'
)
FITTING: dict[str, Any] = {
    "host": "far",
    "version": __version__,
    "builder": inputs.own_digest(),
    "compiler": "/usr/bin/c++",
}


def versions(python: str, distributed: str | None) -> dict[str, Any]:
    """Return what a worker says of itself to ``Client.get_versions``."""
    return {"host": {"python": python}, "packages": {"distributed": distributed}}


def test_another_python_or_distributed() -> None:
    """Each worker that differs is named with its version, the version here, and the command; a patch release fits."""
    here = platform.python_version()
    fitting = f"{here.rpartition('.')[0]}.99.final.0"
    cluster.check_versions({"tcp://a:1": versions(fitting, DISTRIBUTED)})
    with pytest.raises(ConfigurationError) as caught:
        cluster.check_versions(
            {
                "tcp://c:1": versions(fitting, None),
                "tcp://b:1": versions("3.7.1.final.0", "2020.1"),
                "tcp://a:1": versions(fitting, DISTRIBUTED),
            }
        )
    minor = ".".join(here.split(".")[:2])
    assert list(caught.value.problems) == [
        f"The worker tcp://b:1 has Python 3.7, here {minor}; dask.distributed 2020.1, here {DISTRIBUTED}: {REMEDY}",
        f"The worker tcp://c:1 has dask.distributed not at all, here {DISTRIBUTED}: {REMEDY}",
    ]


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"version": "0.0.1"}, f"has hatch-torch-ext 0.0.1, here {__version__}: {REMEDY}"),
        ({"version": None, "builder": None}, f"has hatch-torch-ext not at all, here {__version__}: {REMEDY}"),
        ({"builder": "other"}, "has another hatch-torch-ext, of the same version: install the same there"),
        (
            {"compiler": None},
            "has no C++ compiler: install one there, or give that worker's CXX the path of one, and CC that of a C "
            "compiler",
        ),
    ],
)
def test_a_worker_that_would_build_otherwise(said: dict[str, Any], told: str) -> None:
    """Another version of this project, none, or no compiler: an error with a remedy before anything is sent."""
    cluster.check({"tcp://a:1": FITTING})
    with pytest.raises(ConfigurationError) as caught:
        cluster.check({"tcp://a:1": FITTING, "tcp://b:1": {**FITTING, **said}})
    assert list(caught.value.problems) == [f"The worker tcp://b:1 on far {told}"]


@pytest.mark.parametrize("named", ["{}", "ccache {}", "{} -m64", ""])
def test_the_compiler_of_a_worker(named: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """CXX may name a launcher before the compiler, and arguments after it."""
    compiler = shutil.which("true")
    monkeypatch.setattr(tools, "COMPILERS", ("true",))
    monkeypatch.setenv("CXX", named.format(compiler))
    assert cluster._probe()()["compiler"] == compiler


@pytest.mark.performs("move the folder into the project")
def test_sources_outside_of_the_project(tmp_path: Path) -> None:
    """The folder is named; moved into the project, and named as `source`, it is sent."""
    root = tmp_path / "python"
    for place in (root / "my_pkg", tmp_path / "csrc"):
        place.mkdir(parents=True)
    (tmp_path / "csrc" / "CMakeLists.txt").touch()

    def pack(source: str) -> bytes:
        config = configuration.parse({"source": source}, root=root, project_name="my-pkg", environ={})
        return cluster.pack(config, [root / source / "CMakeLists.txt"])

    with pytest.raises(ConfigurationError) as caught:
        pack("../csrc")
    assert str(caught.value) == (
        f"`{tmp_path / 'csrc'}` is outside of the project, and only the project is sent to the cluster: move the "
        "folder into the project, and name it as `source`"
    )
    (tmp_path / "csrc").rename(root / "native")
    with tarfile.open(fileobj=io.BytesIO(zlib.decompress(pack("native")))) as archive:
        assert "native/CMakeLists.txt" in archive.getnames()


SENT = {
    ".gitignore": "/build/\n/dist/\n*.secret\ngenerated.*\nmade_*.c\nid_rsa\n",
    "pyproject.toml": '[project]\nname = "my-pkg"\nversion = "1"\nreadme = "README.md"\n',
    "hatch.toml": "",
    "README.md": "",
    "LICENSE": "",
    "include/api.h": "",
    "csrc/CMakeLists.txt": 'file(GLOB made "${CMAKE_CURRENT_SOURCE_DIR}/made_*.c")\n'
    "add_library(plain SHARED plain.c ${CMAKE_CURRENT_SOURCE_DIR}/generated.c ${made})\n",
    "csrc/plain.c": "",
    "csrc/generated.c": "ignored by git, named by CMake",
    "csrc/made_1.c": "ignored by git, matched by a pattern of CMake",
    "src/my_pkg/__init__.py": "",
}
KEPT_HERE = {
    ".env": "TOKEN=1",
    ".ssh/id_rsa": "",
    "id_rsa": "ignored by git",
    "csrc/generated.h": "ignored by git, and named by nothing",
    "deploy.secret": "",
    "build/torch-ext/lock": "",
    "dist/my_pkg-1.whl": "",
}


def test_what_a_build_needs_travels(tmp_path: Path) -> None:
    """What an sdist would hold without hidden files, and what CMake files name; nothing that is only there."""
    write(tmp_path, {**SENT, **KEPT_HERE})
    options = {"source": "csrc"}
    config = configuration.parse(options, root=tmp_path, project_name="my-pkg", environ={})
    files = shipping.travelling(str(tmp_path), config, tmp_path / "build/torch-ext")
    assert [path.relative_to(tmp_path).as_posix() for path in files] == sorted(SENT)
    with tarfile.open(fileobj=io.BytesIO(zlib.decompress(cluster.pack(config, files)))) as archive:
        assert archive.getnames() == sorted(SENT)


@pytest.mark.performs("is not sent to workers")
def test_a_file_that_was_not_sent_is_named_where_a_worker_misses_it(tmp_path: Path) -> None:
    """With the line that sends it; done as it says, the file travels."""
    root = write(tmp_path, {**SENT, **KEPT_HERE})
    config = configuration.parse({"source": "csrc"}, root=root, project_name="my-pkg", environ={})
    work = root / "build/torch-ext"
    files = Packaging(distribution="p", travelling=lambda: shipping.travelling(str(root), config, work))
    away = cluster.Cluster(config, files)
    away._sent = away._packaging.travelling()
    error = "compiling failed\n/w/csrc/plain.c:1:10: fatal error: generated.h: No such file or directory"
    assert list(away._not_sent(error)) == [
        "`csrc/generated.h` is not sent to workers: an sdist would not hold it, since git ignores it or `exclude` "
        'names it, and no CMake file names it. Write `artifacts = ["/csrc/generated.h"]` into '
        "`[tool.hatch.build.targets.sdist]`"
    ]
    assert list(away._not_sent(error.replace("generated.h", "other.h"))) == []
    with (root / "pyproject.toml").open("a", encoding="utf-8") as file:
        file.write('[tool.hatch.build.targets.sdist]\nartifacts = ["/csrc/generated.h"]\n')
    assert root / "csrc/generated.h" in shipping.travelling(str(root), config, work)


def test_an_entry_whose_outcome_is_known_stays_over() -> None:
    """What a worker that was lost had begun, and events that come late, change no count."""
    board = Board()
    stream = events.Stream(None, [board.take])
    stream(events.Begun(entries=("m.2.8",), jobs=1, last={}))
    told = cluster._Reported(stream)

    def step(worker: str) -> None:
        event = events.to_json(0.0, events.Step(entry="m.2.8", step="configure"))
        told((0.0, {"entry": "m.2.8", "worker": worker, "event": event}))

    step("tcp://one")
    assert [row.state for row in board.rows.values()] == ["configure"]
    told.over("m.2.8")
    stream(events.Done(entry="m.2.8", label="x", size=1, seconds=1.0, peak=1, log=""))
    step("tcp://two")
    assert [row.state for row in board.rows.values()] == ["done"]
    assert board.warnings == 0
    assert "1 built, 0 unchanged, 0 failed" in next(summary(board, 1.0))


def test_an_order_is_data() -> None:
    """What a worker is given survives JSON: nothing in it belongs to this process."""
    order = worker.Order(name="m.2.8", environ={"CXXFLAGS": "-O2"}, topic="t", builder="b", sources="s")
    assert worker.Order(**json.loads(json.dumps(dataclasses.asdict(order)))) == order
