"""Messages about a Dask cluster that does not fit, and what is sent to it; no cluster is started."""

from __future__ import annotations

import dataclasses
import io
import json
import platform
import tarfile
import zlib
from typing import TYPE_CHECKING, Any

import pytest

from hatch_torch_ext import __version__
from hatch_torch_ext import config as configuration
from hatch_torch_ext.base.errors import ConfigurationError
from hatch_torch_ext.pipeline import cluster, record, worker

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
    "builder": record.own_digest(),
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


def test_sources_outside_of_the_project(tmp_path: Path) -> None:
    """The folder is named; moved into the project, and named as `source`, it is sent."""
    root = tmp_path / "python"
    for place in (root / "my_pkg", tmp_path / "csrc"):
        place.mkdir(parents=True)
    (tmp_path / "csrc" / "CMakeLists.txt").touch()

    def pack(source: str) -> bytes:
        config = configuration.parse({"source": source}, root=root, project_name="my-pkg", environ={})
        return cluster.pack(config)

    with pytest.raises(ConfigurationError) as caught:
        pack("../csrc")
    assert str(caught.value) == (
        f"`{tmp_path / 'csrc'}` is outside of the project, and only the project is sent to the cluster: move the "
        "folder into the project, and name it as `source`"
    )
    (tmp_path / "csrc").rename(root / "native")
    with tarfile.open(fileobj=io.BytesIO(zlib.decompress(pack("native")))) as archive:
        assert "native/CMakeLists.txt" in archive.getnames()


def test_an_order_is_data() -> None:
    """What a worker is given survives JSON: nothing in it belongs to this process."""
    order = worker.Order(name="m.2.8", environ={"CXXFLAGS": "-O2"}, topic="t", builder="b", sources="s")
    assert worker.Order(**json.loads(json.dumps(dataclasses.asdict(order)))) == order
