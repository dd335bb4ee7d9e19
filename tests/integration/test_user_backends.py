"""Which build of torch ``install torch`` takes, for drivers and cards, held against uv's ``--torch-backend=auto``."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import uv

from hatch_torch_ext import process
from hatch_torch_ext.facts import releases
from hatch_torch_ext.remote import settings
from hatch_torch_ext.remote.http import Http
from hatch_torch_ext.user import installing, target
from hatch_torch_ext.user.machine import Gpu, Machine
from loopback import instead_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hatch_torch_ext.user.target import TargetPython

CP = f"cp{sys.version_info[0]}{sys.version_info[1]}"
PLATFORM = f"manylinux_2_17_{os.uname().machine}"
CUDA_11 = ("450.80.02", "470.57.02", "510.47.03", "520.61.05")
CUDA_12 = ("525.60.13", "535.54.03", "550.54.15", "570.86.10", "575.57.08")
CUDA_13 = ("580.65.06", "590.44.01", "595.10")
CARDS = {
    "Tesla M40": (5, 2), "GTX 980": (5, 0), "Tesla P100": (6, 0), "GTX 1080": (6, 1), "Tesla V100": (7, 0),
    "Tesla T4": (7, 5), "A100": (8, 0), "RTX 3090": (8, 6), "RTX 4090": (8, 9), "H100": (9, 0), "B200": (10, 0),
    "RTX 5090": (12, 0),
}  # fmt: skip
BLACKWELL = ("B200", "RTX 5090")
UNTIL_VOLTA = ("Tesla M40", "GTX 980", "Tesla P100", "GTX 1080", "Tesla V100")


def ours_for(driver: str, card: str) -> str:
    """Return the build to expect: the newest release that has code for the card and that the driver runs."""
    if driver in CUDA_11:
        return "2.14.0+cpu" if card in BLACKWELL else "2.7.0+cu118"
    if driver in CUDA_12:
        return "2.11.0+cu128" if card in BLACKWELL else "2.14.0+cu126"
    return "2.14.0+cu126" if card in UNTIL_VOLTA else "2.14.0+cu132"


def published() -> Iterator[tuple[str, str]]:
    """Yield (backend, release) of every build of torch that the table of releases knows."""
    for minor, versions in releases.PUBLISHED_CUDA.items():
        for cuda in versions:
            yield f"cu{cuda.replace('.', '')}", f"{releases.format_minor(minor)}.0"
        yield "cpu", f"{releases.format_minor(minor)}.0"


@pytest.fixture(scope="module")
def whl(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return torch's index as a folder: pages with metadata for uv, and the names of the files for ours."""
    root = tmp_path_factory.mktemp("torch")
    pages: dict[Path, list[str]] = {}
    for backend, version in published():
        name = f"torch-{version}+{backend}-{CP}-{CP}-{PLATFORM}.whl"
        page = root / "whl" / backend / "torch"
        page.mkdir(parents=True, exist_ok=True)
        (page.parent / name).touch()
        metadata = f"Metadata-Version: 2.1\nName: torch\nVersion: {version}+{backend}\n"
        (page / f"{name}.metadata").write_text(metadata)
        pages.setdefault(page, []).append(f'<a href="{name.replace("+", "%2B")}" data-core-metadata="true">{name}</a>')
    for page, links in pages.items():
        (page / "index.html").write_text(f"<!DOCTYPE html><html><body>{''.join(links)}</body></html>")
    return root / "whl"


@pytest.fixture(scope="module")
def here() -> TargetPython:
    """Return this Python."""
    return target.find(Path(sys.executable), {}, folder=Path("/"))


def ours(whl: Path, here: TargetPython, machine: Machine, *asked: str) -> installing.Plan:
    """Return the plan for ``asked`` on ``machine``."""
    with Http(settings.of_environ({})) as http:
        return installing.plan(asked or ["torch"], here, machine, http, torch_index=str(whl))


def a_machine(driver: str, *cards: str) -> Machine:
    """Return a machine with ``cards``; without any, one whose GPUs cannot be asked."""
    gpus = tuple(Gpu(index=number, name=card, capability=CARDS[card]) for number, card in enumerate(cards))
    return Machine(system="linux", machine=os.uname().machine, driver=driver, gpus=gpus)


def uvs(whl: Path, tmp_path: Path, changes: dict[str, str]) -> str:
    """Return the torch that uv takes by ``--torch-backend=auto``, from the same files under the name of torch's index."""
    with instead_of("download.pytorch.org", whl.parent, tmp_path) as environ:
        command = [uv.find_uv_bin(), "pip", "compile", "--torch-backend=auto", "--no-deps", "--no-header", "--quiet"]
        command += ["--no-config", "--no-cache", "--no-annotate", "--python", sys.executable, "-"]
        done = process.run(command, env_changes={**environ, **changes}, given="torch\n")
    return done.stdout.strip().removeprefix("torch==")


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the cards of the table are for x86-64")
def test_every_driver_with_every_card(whl: Path, here: TargetPython) -> None:
    """A GPU gets the newest CUDA build that its driver runs and that has code for it; a CPU build is explained."""
    found = {}
    for driver in (*CUDA_11, *CUDA_12, *CUDA_13):
        for card in CARDS:
            plan = ours(whl, here, a_machine(driver, card))
            found[driver, card] = plan.torch[0]
            if plan.backend == "cpu":
                number = ".".join(map(str, CARDS[card]))
                assert plan.because == (
                    f"the builds of torch for {CP} that driver {driver} runs (CUDA 11.8, 11.7, 11.6, 11.3) have no code for {card} "
                    f"(compute capability {number}): the CPU build is taken",
                )
    assert found == {pair: f"torch=={ours_for(*pair)}" for pair in found}


def test_every_driver_beside_uv(whl: Path, here: TargetPython, tmp_path: Path) -> None:
    """For GPUs that cannot be asked, as uv asks none: the same, but for one difference that is on purpose.

    uv takes the newest CUDA first, and what it has of torch: cu129 ended with 2.8 (of this table). Ours takes the newest
    torch of all that the driver runs. The capability of the cards, which uv does not look at, is in the test above.
    """
    edges = [drivers[number] for drivers in (CUDA_11, CUDA_12, CUDA_13) for number in (0, -1)]
    uvs_own = {driver: uvs(whl, tmp_path, {"UV_CUDA_DRIVER_VERSION": driver}) for driver in edges}
    own = {driver: ours(whl, here, a_machine(driver)).torch[0].removeprefix("torch==") for driver in uvs_own}
    assert own == {**uvs_own, **dict.fromkeys((CUDA_12[0], CUDA_12[-1]), "2.14.0+cu126")}
    assert uvs_own[CUDA_12[0]] == uvs_own[CUDA_12[-1]] == "2.8.0+cu129"
    assert uvs_own[CUDA_11[0]] == "2.7.0+cu118"
    assert uvs_own[CUDA_13[0]] == "2.14.0+cu132"
