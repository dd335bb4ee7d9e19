"""Entries as tasks of a Dask cluster: the project is sent once, each entry returns as a wheel, events arrive live.

A worker builds an entry by ``hatch-torch-ext build --only`` in a separate program: it ends with a lost worker, and
the scheduler gives the entry to another worker.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import platform
import re
import shutil
import socket
import tarfile
import uuid
import warnings
import zlib
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hatch_torch_ext import __version__
from hatch_torch_ext.base.errors import ConfigurationError, EntryError, WheelError
from hatch_torch_ext.facts import content, project, variables
from hatch_torch_ext.outlets import parts
from hatch_torch_ext.pipeline import crew, events, inputs
from hatch_torch_ext.pipeline.worker import Order, build_entry, builder, minor, same
from hatch_torch_ext.toolchain import tools

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from hatch_torch_ext.config import Config
    from hatch_torch_ext.facts.variant import BuiltVariant
    from hatch_torch_ext.values import Packaging, Task

RESOURCE = "torch-ext"
"""A resource of which every worker has one, so that it builds one entry at a time; its threads are the compile jobs."""
ANSWER = 15
"""Timeout in seconds for the scheduler."""
FIRST_WORKER = 600.0
"""Timeout in seconds for the first worker: a batch system may take its time."""
RETRIES = 2
"""How often an entry is restarted after a failure of Dask; Dask's own setting counts lost workers."""
SECURE = ("tls://", "wss://")
OPEN_TO_ALL = (
    "takes tasks from everyone who reaches it: they can run programs on its workers, and read what is sent to them. "
    "Use a network that only you reach, or TLS (https://distributed.dask.org/en/stable/tls.html)"
)
_ABSENT = re.compile(
    r"([^\s:'\"`]+)['\"]?(?:: No such file or directory|, needed by| does not exist)|source file:\s+(\S+)"
)
"""A file that a compiler, Ninja or CMake misses."""
EXTRA = 'pip install "hatch-torch-ext[dask]"'


class Cluster:
    """The Dask cluster at the address of the option `dask`, for one build."""

    def __init__(self, config: Config, packaging: Packaging) -> None:
        self._address, self._config, self._packaging = config.dask, config, packaging
        self._environ = _environ(packaging.version)
        self._sent: Sequence[Path] = ()

    def run(
        self, tasks: Sequence[Task], *, sources: str, stream: events.Stream
    ) -> list[crew.Outcome[Task, BuiltVariant]]:
        """Build the entries on the cluster and return the outcomes, in the order of ``tasks``.

        ``sources`` is the digest of the project's files; wheels that an interrupted build received for the same digest
        are reused. Raises ``ConfigurationError`` if the cluster cannot be reached or does not fit;
        ``KeyboardInterrupt`` once the cluster is to stop.
        """
        key = content.digest([sources, self._environ, inputs.own_digest()])[:16]
        outcomes = {}
        for task in tasks:
            with contextlib.suppress(OSError, WheelError):
                outcomes[task.name] = self._done(task, _folder(task, key), {}, stream, reused=True)
        waiting = [task for task in tasks if task.name not in outcomes]
        if waiting:
            with self._connected() as client:
                outcomes |= self._all(client, waiting, key, stream)
        return [outcomes.get(task.name, crew.Outcome(item=task)) for task in tasks]

    @contextlib.contextmanager
    def _connected(self) -> Iterator[Any]:
        try:
            from distributed import Client
        except ImportError as error:
            raise ConfigurationError(f"`--dask` needs dask.distributed, which is not installed: {EXTRA}") from error
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # warnings about versions: those that matter become messages
                client: Any = Client(self._address, timeout=ANSWER)
        except (OSError, ValueError, TypeError) as error:
            raise ConfigurationError(
                f"No Dask scheduler answers at `{self._address}` ({_reason(error)}): start one, as in "
                "`dask scheduler`, and give `--dask` the address that it prints."
            ) from error
        with client:
            yield client

    def _all(
        self, client: Any, tasks: Sequence[Task], key: str, stream: events.Stream
    ) -> dict[str, crew.Outcome[Task, BuiltVariant]]:
        import distributed

        self._prepare(client, stream)
        topic = f"torch-ext-{uuid.uuid4()}"
        reported = _Reported(stream)
        client.subscribe_topic(topic, reported)
        by_future = self._submitted(client, tasks, topic)
        outcomes: dict[str, crew.Outcome[Task, BuiltVariant]] = {}
        with crew.signals_raise():
            try:
                for future in distributed.as_completed(list(by_future)):
                    task = by_future[future]
                    reported.over(task.name)
                    outcomes[task.name] = self._outcome(task, future, key, stream)
                    # Dask would make again what the client still refers to, if the worker that has it is lost.
                    future.release()
                    if outcomes[task.name].error is not None and not self._config.keep_going:
                        break
            finally:
                waiting = [future for future, task in by_future.items() if task.name not in outcomes]
                client.cancel([future for future in waiting if not future.done()], force=True)
                client.unsubscribe_topic(topic)
        return outcomes

    def _prepare(self, client: Any, stream: events.Stream) -> None:
        """Wait for the first worker; refuse workers that cannot build; tell the author of an open scheduler."""
        if not client.nthreads():
            stream(events.Note(text=f"the cluster at {self._address} has no worker yet: waiting for one"))
        try:
            client.wait_for_workers(1, timeout=FIRST_WORKER)
        except (TimeoutError, OSError) as error:
            why = f"The cluster at {self._address} got no worker in {FIRST_WORKER:.0f} s"
            raise ConfigurationError(f"{why}: add one, as in `dask worker {self._address}`.") from error
        check_versions(client.get_versions()["workers"])
        check(client.run(_probe()))
        client.register_plugin(_one_at_a_time(), name=RESOURCE)
        if not str(client.scheduler.address).startswith(SECURE):
            stream(events.Note(text=f"{client.scheduler.address} {OPEN_TO_ALL}"))

    def _submitted(self, client: Any, tasks: Sequence[Task], topic: str) -> dict[Any, Task]:
        """Send the project, and give the scheduler each task; workers report on ``topic``. Return future -> task."""
        self._sent = self._packaging.travelling()
        packed = pack(self._config, self._sent)
        digest = hashlib.sha256(packed).hexdigest()
        # A task, not scattered data: the scheduler can run it again if the worker with its result is lost.
        bundle = client.submit(bytes, packed, key=f"torch-ext-project-{digest}", pure=True)
        by_future = {}
        for task in tasks:
            task.log.unlink(missing_ok=True)
            order = Order(name=task.name, environ=self._environ, topic=topic, builder=builder(), sources=digest)
            future = client.submit(
                build_entry, order, bundle, key=f"{task.name}-{uuid.uuid4()}", pure=False,
                retries=RETRIES, resources={RESOURCE: 1},
            )  # fmt: skip
            by_future[future] = task
        return by_future

    def _outcome(self, task: Task, future: Any, key: str, stream: events.Stream) -> crew.Outcome[Task, BuiltVariant]:
        try:
            given = future.result()
            task.log.parent.mkdir(parents=True, exist_ok=True)
            task.log.write_text(given["log"], encoding="utf-8")
            if given["error"] is None:
                _keep(_folder(task, key), given["name"], given["wheel"])
                return self._done(task, _folder(task, key), given["done"], stream)
            failure = EntryError(task.name, "\n".join([given["error"], *self._not_sent(given["error"])]))
        except Exception as error:  # noqa: BLE001 -- whatever the cluster raises is that entry's failure
            failure = EntryError(task.name, _lost(error))
        log = str(task.log) if task.log.exists() else ""
        stream(events.Failed(entry=task.name, message=failure.message, seconds=0.0, log=log))
        return crew.Outcome(item=task, error=failure)

    def _not_sent(self, error: str) -> Iterator[str]:
        """Yield a sentence for each file of the project that is missing on the worker because it was not sent."""
        root = self._config.root
        absent = {Path(match[1] or match[2]).name for match in _ABSENT.finditer(error)}
        kept = set(self._sent)
        for text in project.build_inputs(root, self._config.source, root / "build"):
            path = Path(text)
            if path.name in absent and path not in kept and path.is_relative_to(root):
                place = path.relative_to(root).as_posix()
                yield (
                    f"`{place}` is not sent to workers: an sdist would not hold it, since git ignores it or `exclude` "
                    "names it, and no CMake file names it. Write "
                    f'`artifacts = ["/{place}"]` into `[tool.hatch.build.targets.sdist]`'
                )

    def _done(
        self, task: Task, folder: Path, done: Mapping[str, Any], stream: events.Stream, *, reused: bool = False
    ) -> crew.Outcome[Task, BuiltVariant]:
        """Return the variant in a wheel that was received. Raises ``WheelError``, ``OSError`` if there is none."""
        wheel = next(folder.glob("*.whl"), None)
        if wheel is None:
            raise FileNotFoundError(folder)
        unpacked = folder / "unpacked"
        shutil.rmtree(unpacked, ignore_errors=True)
        unpacked.mkdir()
        (built,) = parts.read(wheel, folder=unpacked).variants
        stream(
            events.Done(
                entry=task.name,
                label=built.variant.label,
                size=built.size,
                seconds=float(done.get("seconds", 0.0)),
                peak=int(done.get("peak", 0)),
                reused=reused,
                log=str(task.log),
            )
        )
        return crew.Outcome(item=task, value=built)


class _Reported:
    """Receives the workers' events and shows them here.

    An entry that begins on a second worker has lost its first one. Once an entry's outcome is known, its events are
    dropped.
    """

    def __init__(self, stream: events.Stream) -> None:
        self._stream = stream
        self._worker: dict[str, str] = {}
        self._over: set[str] = set()

    def over(self, name: str) -> None:
        """Take note that the entry's outcome is known."""
        self._over.add(name)

    def __call__(self, message: tuple[float, Mapping[str, Any]]) -> None:
        fields = message[1]
        name, worker = str(fields["entry"]), str(fields["worker"])
        if name in self._over:
            return
        before = self._worker.setdefault(name, worker)
        if before != worker:
            self._worker[name] = worker
            text = f"the worker {before} was lost; the entry is built again on {worker}"
            self._stream(events.Note(text=text, entry=name, warning=True))
        with contextlib.suppress(KeyError, TypeError, ValueError):
            _, event = events.from_json(fields["event"])
            self._stream(event)


def _folder(task: Task, key: str) -> Path:
    """Return the folder of the received wheel."""
    return task.folder / "cluster" / key


def _keep(folder: Path, name: str, wheel: bytes) -> None:
    """Store the wheel atomically, in place of what an earlier build received."""
    shutil.rmtree(folder.parent, ignore_errors=True)
    folder.mkdir(parents=True)
    draft = folder / f"{name}.new"
    draft.write_bytes(wheel)
    draft.rename(folder / name)


def _environ(version: str) -> dict[str, str]:
    """Return the variables that affect the build or where packages come from; they are sent with the task."""
    own = {name for name in os.environ if name.startswith("HATCH_TORCH_EXT_")}
    own -= {f"HATCH_TORCH_EXT_{name}" for name in ("CACHE", "DASK", "JOBS", "ONLY", "SKIP")}
    found = {**variables.sent(os.environ), **{name: os.environ[name] for name in own}}
    # The project is sent without its history, so a version that is read from tags is known only here.
    return {**found, "SETUPTOOLS_SCM_PRETEND_VERSION": version}


def pack(config: Config, files: Sequence[Path]) -> bytes:
    """Return the project's ``files`` as a compressed archive, the same bytes for the same files.

    Raises ``ConfigurationError`` if the folder of CMakeLists.txt is not in it.
    """
    if not config.source.is_relative_to(config.root):
        raise ConfigurationError(
            f"`{config.source}` is outside of the project, and only the project is sent to the cluster: move the "
            "folder into the project, and name it as `source`"
        )
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT, dereference=True) as archive:
        for path in files:
            info = archive.gettarinfo(path, arcname=path.relative_to(config.root).as_posix())
            info.uid = info.gid = info.mtime = 0
            info.uname = info.gname = ""
            if info.isreg():
                with path.open("rb") as data:
                    archive.addfile(info, data)
    return zlib.compress(stream.getvalue(), 6)


def check_versions(workers: Mapping[str, Mapping[str, Any]]) -> None:
    """Raise ``ConfigurationError`` if a worker has another Python or ``distributed`` than this process.

    This is checked first, since data sent to another Python may end its worker. ``workers`` is from
    ``Client.get_versions``.
    """
    here = {"Python": minor(platform.python_version()), "dask.distributed": metadata.version("distributed")}
    problems = []
    for address, facts in sorted(workers.items()):
        there = {"Python": minor(facts["host"]["python"]), "dask.distributed": facts["packages"].get("distributed")}
        if differing := _differing(there, here):
            problems.append(f"The worker {address} has {differing}: {same()}")
    if problems:
        raise ConfigurationError(*problems)


def check(workers: Mapping[str, Mapping[str, Any]]) -> None:
    """Raise ``ConfigurationError`` if a worker could not build, or would build something else."""
    problems = []
    for address, facts in sorted(workers.items()):
        where = f"The worker {address} on {facts['host']}"
        if differing := _differing({"hatch-torch-ext": facts["version"]}, {"hatch-torch-ext": __version__}):
            problems.append(f"{where} has {differing}: {same()}")
        elif facts["builder"] != inputs.own_digest():
            problems.append(f"{where} has another hatch-torch-ext, of the same version: install the same there")
        elif facts["compiler"] is None:
            problems.append(
                f"{where} has no C++ compiler: install one there, or give that worker's CXX the path of one, and CC "
                "that of a C compiler"
            )
    if problems:
        raise ConfigurationError(*problems)


def _differing(there: Mapping[str, str | None], here: Mapping[str, str]) -> str:
    return "; ".join(
        f"{what} {there[what] or 'not at all'}, here {version}"
        for what, version in here.items()
        if there[what] != version
    )


def _probe() -> Callable[[], dict[str, Any]]:
    """Return the function that examines a worker; it is sent by value, since a worker may not have this package."""
    names, launchers = tools.COMPILERS, tools.LAUNCHERS

    def probe() -> dict[str, Any]:
        import contextlib
        import os
        import shutil

        try:
            import hatch_torch_ext
        except ImportError:
            own, builder = None, None
        else:
            own, builder = hatch_torch_ext.__version__, None
            with contextlib.suppress(ImportError, AttributeError):  # another version
                from hatch_torch_ext.pipeline import inputs

                builder = inputs.own_digest()
        words = os.environ.get("CXX", "").split()
        names_of_cxx = [word for word in words if os.path.basename(word) not in launchers][:1] or names  # noqa: PTH119
        return {
            "host": socket.gethostname(),
            "version": own,
            "builder": builder,
            "compiler": next(filter(None, map(shutil.which, names_of_cxx)), None),
        }

    return probe


def _one_at_a_time() -> Any:
    """Return the plugin that gives every worker, also those that join later, one unit of the resource."""
    from distributed import WorkerPlugin

    name = RESOURCE

    class OneAtATime(WorkerPlugin):  # type: ignore[misc]
        async def setup(self, worker: Any) -> None:
            await worker.set_resources(**{name: 1})

    return OneAtATime()


def _lost(error: Exception) -> str:
    if type(error).__name__ == "KilledWorker":
        return (
            "every worker that started this entry was lost, which often means that memory ran out: look at the "
            "workers' logs, give them more "
            "memory or fewer threads (`dask worker --nthreads`), and run the same command again"
        )
    return f"the cluster could not build the entry: {_reason(error)}"


def _reason(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), "") or type(error).__name__
