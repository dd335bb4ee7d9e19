"""The worker's side of a Dask cluster: an entry is built there in a separate program, which sends its events."""

from __future__ import annotations

import contextlib
import dataclasses
import glob
import io
import platform
import shutil
import sys
import tarfile
import tempfile
import threading
import zlib
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hatch_torch_ext import __version__
from hatch_torch_ext.base import process, untrusted
from hatch_torch_ext.base.errors import Stopped
from hatch_torch_ext.pipeline import events, inputs
from hatch_torch_ext.pipeline.cleanup import take_over

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hatch_torch_ext.base.process import Family

LOOK = 0.5
_FORWARDED = (events.Step, events.Fetched, events.Progress, events.Compiled, events.Note)
_NAMES = frozenset(kind.__name__.lower() for kind in _FORWARDED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What a worker needs to build an entry, as plain values; ``environ`` are variables that affect the build."""

    name: str
    environ: Mapping[str, str]
    topic: str
    builder: str
    """The digest of the hatch-torch-ext that sends the order, and its Python."""
    sources: str
    """The digest of the packed project."""


def build_entry(order: Order, packed: bytes) -> dict[str, Any]:
    """Build an entry on the worker that runs this; return the bytes of its wheel, or the error, and the log.

    The project is unpacked below the worker's own folder, and stays there for the next entry.
    """
    from distributed import get_worker

    worker: Any = get_worker()
    if builder() != order.builder:
        fault = f"the worker {worker.address}, which joined later, has another hatch-torch-ext or Python: {same()}"
        return {"error": fault, "log": ""}
    key = worker.get_current_task()

    def tell(event: Mapping[str, Any]) -> None:
        worker.log_event(order.topic, {"entry": order.name, "worker": worker.address, "event": event})

    def is_current() -> bool:
        state = worker.state.tasks.get(key)
        return state is not None and state.state != "cancelled"

    folder = Path(worker.local_directory) / "torch-ext"
    return built_in(folder, order, packed, jobs=worker.state.nthreads, tell=tell, is_current=is_current)


def built_in(
    folder: Path,
    order: Order,
    packed: bytes,
    *,
    jobs: int,
    tell: Callable[[Mapping[str, Any]], None],
    is_current: Callable[[], bool],
) -> dict[str, Any]:
    """Build an entry of the packed project below ``folder``; end it as soon as ``is_current`` is false."""
    root = _unpacked(folder, order.sources, packed)
    work = root / "build" / "torch-ext"
    (work / events.FILE).unlink(missing_ok=True)
    family = take_over(root)
    ended = threading.Event()
    out = Path(tempfile.mkdtemp(prefix="out-", dir=folder))
    follower = threading.Thread(
        target=_follow,
        args=(work / events.FILE, order.name),
        kwargs={"tell": tell, "is_current": is_current, "family": family, "ended": ended},
    )
    environ: dict[str, str | None] = {**order.environ, "HATCH_TORCH_EXT_JOBS": str(jobs), "HATCH_TORCH_EXT_DASK": None}
    command = [sys.executable, "-m", "hatch_torch_ext", "build", "--only", glob.escape(order.name), "-d", str(out)]
    try:
        with family.guarded(), family.active():
            follower.start()
            try:
                done = process.run(command, cwd=root, env_changes=environ, check=False)
            finally:
                ended.set()
                follower.join()
        return _result(done, work, out)
    except Stopped:
        return {"error": "stopped", "log": ""}
    finally:
        shutil.rmtree(out, ignore_errors=True)


def _result(done: process.Completed, work: Path, out: Path) -> dict[str, Any]:
    """Return what the client gets of a build that ended: its error and its log, or the wheel and the event of it."""
    recorded = [event for _, event in events.read(work / events.FILE)] if (work / events.FILE).is_file() else []
    log = "".join(
        Path(event.log).read_text(encoding="utf-8", errors="replace")
        for event in recorded
        if isinstance(event, (events.Done, events.Failed)) and event.log and Path(event.log).is_file()
    )
    wheels = sorted(out.glob("*.whl"))
    if done.returncode or not wheels:
        failed = [event.message for event in recorded if isinstance(event, events.Failed)]
        error = failed[0] if failed else process.tail(f"{done.stdout}\n{done.stderr}")
        return {"error": error, "log": log}
    finished = [dataclasses.asdict(event) for event in recorded if isinstance(event, events.Done)]
    return {
        "error": None,
        "log": log,
        "name": wheels[0].name,
        "wheel": wheels[0].read_bytes(),
        "done": finished[0] if finished else {},
    }


def _unpacked(folder: Path, digest: str, packed: bytes) -> Path:
    """Return the folder of the unpacked project, and unpack it if it is not there."""
    root = folder / digest[:16]
    if not root.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix="new-", dir=folder))
        with tarfile.open(fileobj=io.BytesIO(zlib.decompress(packed))) as archive:
            archive.extractall(scratch, **({"filter": "tar"} if hasattr(tarfile, "tar_filter") else {}))  # type: ignore[arg-type]  # noqa: S202
        scratch.chmod(0o755)
        scratch.rename(root)
    return root


def _follow(
    file: Path,
    name: str,
    *,
    tell: Callable[[Mapping[str, Any]], None],
    is_current: Callable[[], bool],
    family: Family,
    ended: threading.Event,
) -> None:
    """Send every event of the entry as it is written, and stop its program as soon as ``is_current`` is false."""
    sent = 0
    while True:
        last = ended.wait(LOOK)
        with contextlib.suppress(OSError, ValueError):
            lines = file.read_text(encoding="utf-8").split("\n")[:-1]
            for event in map(untrusted.json, lines[sent:]):
                if event.get("entry") == name and event["event"] in _NAMES:
                    tell(event)
            sent = len(lines)
        if last:
            return
        if not is_current():
            family.stop()


def builder() -> str:
    """Return what all workers, including those that join later, must have in common with this side."""
    return f"{inputs.own_digest()} {minor(platform.python_version())}"


def same() -> str:
    """Return what makes a worker the same as this side, as a command."""
    return (
        "install the same there, in an environment of the same Python: "
        f'pip install "hatch-torch-ext[dask]=={__version__}" "distributed=={metadata.version("distributed")}"'
    )


def minor(python: str) -> str:
    """Return ``3.11`` for ``3.11.7``."""
    return ".".join(python.split(".")[:2])
