"""The files in which builds remember something, each with its reader: what is damaged counts as absent."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest import mock

import disk
import values
import wheels
from hatch_torch_ext import config as configuration
from hatch_torch_ext import resolve, store
from hatch_torch_ext.cmake import buildfolder, ninja, replies
from hatch_torch_ext.cmake.replies import Reply
from hatch_torch_ext.environments import making, reading
from hatch_torch_ext.facts import content
from hatch_torch_ext.facts.variant import BuiltVariant
from hatch_torch_ext.pipeline import memory
from hatch_torch_ext.pipeline.history import HISTORY, History, Took
from hatch_torch_ext.pipeline.inputs import Digests, Inputs
from hatch_torch_ext.resolve import ResolvedWheel, available
from hatch_torch_ext.resources import _variants
from hatch_torch_ext.user import builtcache
from hatch_torch_ext.values import Matrix, Task

if TYPE_CHECKING:
    from collections.abc import Callable

    from hatch_torch_ext.store import Store

    Reader = Callable[[], object]

LABEL = "torch2.8_cpu_cxx11_x86_64"
_WHEEL = ResolvedWheel(name="torch", version="2.8.0", url="https://host/torch-2.8.0.whl", sha256="0" * 64, size=10)
_MATRIX = Matrix(
    variables={"m": {"torch": "2.8"}},
    dependencies={"m": ("torch==2.8.*",)},
    pythons={"m": None},
    env_vars={"m": (("A", "b"),)},
)


def of(root: Path) -> dict[str, tuple[Path, Reader]]:
    """Write every such file below ``root``, and return each with the function that reads it."""
    project, work = root / "project", root / "work"
    (project / "my_pkg").mkdir(parents=True)
    (project / "CMakeLists.txt").write_text("project(x)\n", encoding="utf-8")
    options = {"source": ".", "package": "my_pkg"}
    config = configuration.parse(options, root=project, project_name="my-pkg", environ={})
    task = Task(entry=values.entry("m"), config=config, work=work)
    return {
        **_of_entries(task),
        **_of_a_build_folder(root / "build"),
        **_of_a_configured_folder(root / "notes", buildfolder.NOTES),
        **_of_a_configured_folder(root / "run path", buildfolder.RUN_PATH),
        **_of_ninja(root / "ninja"),
        **_of_a_reply(root / "reply"),
        **_of_the_store(store.open_store(root / "store")),
        **_of_an_environment(task, root / "data"),
        **_of_first_use(store.open_store(root / "first-use")),
    }


def _of_entries(task: Task) -> dict[str, tuple[Path, Reader]]:
    source, folder = task.config.root / "CMakeLists.txt", task.work / "m"
    of_all = Inputs(task.config, task.work)
    known = memory.Memory(of_all)
    known.begin(task)
    disk.write(folder, {f"repaired/{LABEL}/libx.so": "x", "notes": "of the package"})
    built = BuiltVariant(
        variant=wheels.variant(LABEL, {f"{LABEL}/libx.so": b"x"}),
        root=folder / "repaired",
        package_files=(("notes", folder / "notes"),),
    )
    environment = SimpleNamespace(site_packages=folder / "site-packages")
    result: Any = SimpleNamespace(built=built, warnings=(), peak=1, setup=SimpleNamespace(environment=environment))
    used = {"root/CMakeLists.txt": of_all.digests.of(str(source))}
    with mock.patch.object(memory.Memory, "_used", return_value=used):
        known.keep(task, result)
    of_all.digests.save()
    History(task.work / HISTORY).note("m", Took(seconds=1.0, peak=1))

    def entry() -> object:
        found = known.take(task)
        before = (folder / memory.FILE).read_bytes()
        known.begin(task)
        (folder / memory.FILE).write_bytes(before)
        return found

    def digest() -> object:
        return Digests(task.work / "files.json").of(str(source)) == content.sha256(source)

    def history() -> object:
        found = History(task.work / HISTORY)
        found.longest_first([task])
        return found.of("m")

    return {
        "entry": (folder / memory.FILE, entry),
        "hashes": (task.work / "files.json", digest),
        "history": (task.work / HISTORY, history),
    }


def _of_a_build_folder(build: Path) -> dict[str, tuple[Path, Reader]]:
    setup: Any = SimpleNamespace(build=build, prefix=build.parent / "install")

    def prepare() -> object:
        """Return whether the folder was kept."""
        disk.write(build, {"object": ""})
        with mock.patch.multiple(buildfolder, _key=lambda *_: "key", _found_by=lambda _: "found"):
            buildfolder.prepare(setup, ())
        return (build / "object").exists()

    prepare()
    buildfolder.note_placed(setup)
    return {"build folder": (build / buildfolder.FILE, prepare)}


def _of_a_configured_folder(folder: Path, name: str) -> dict[str, tuple[Path, Reader]]:
    """Write what our CMake files leave for later; the reader of one of it says whether CMake need not run again."""
    build, reply = folder / "build", Reply(compilers={}, targets=(), rules=())
    environment = SimpleNamespace(site_packages=folder, interpreter=SimpleNamespace(machine="x86_64"))
    setup: Any = SimpleNamespace(build=build, folder=folder, environment=environment)
    left = {buildfolder.NOTES: "nvcc 13.0\n", buildfolder.RUN_PATH: "/build/own"}
    disk.write(build, {"CMakeCache.txt": "", "build.ninja": "", **left})

    def is_configured() -> object:
        with mock.patch.dict("os.environ", clear=True), mock.patch.object(replies, "read", return_value=reply):
            return buildfolder.configured(setup, (), {}, {}) is not None

    with mock.patch.dict("os.environ", clear=True), mock.patch.object(replies, "read", return_value=reply):
        buildfolder.note(setup, (), {}, {})
    return {name: (build / name, is_configured)}


def _of_ninja(build: Path) -> dict[str, tuple[Path, Reader]]:
    def read() -> object:
        return ninja.known(build, "outside", lambda: ["/a"]) == ["/a"]

    disk.write(build, {"build.ninja": ""})
    read()
    return {"lists of Ninja": (build / ninja.KNOWN, read)}


def _of_a_reply(build: Path) -> dict[str, tuple[Path, Reader]]:
    """Write a reply of CMake with one target and one install rule."""
    kinds = ("codemodel", "toolchains", "cmakeFiles")
    responses = [{"kind": kind, "jsonFile": f"{kind}.json"} for kind in kinds]
    graph = {"nodes": [{"file": 0, "line": 1}], "files": ["CMakeLists.txt"], "commands": []}
    installer = {"type": "target", "destination": ".", "backtrace": 0, "paths": ["libx.so"]}
    targets = [{"name": "x", "jsonFile": "target.json"}]
    configuration = {
        "targets": targets,
        "directories": [{"jsonFile": "directory.json", "projectIndex": 0}],
        "projects": [{"name": "x"}],
    }
    files: dict[str, object] = {
        "index-1.json": {"reply": {replies.CLIENT: {"query.json": {"responses": responses}}}},
        "codemodel.json": {"configurations": [configuration], "paths": {"build": "/build", "source": "/source"}},
        "toolchains.json": {"toolchains": [{"language": "CXX", "compiler": {"id": "GNU", "version": "12"}}]},
        "cmakeFiles.json": {"inputs": [{"path": "CMakeLists.txt"}]},
        "target.json": {"name": "x", "type": "SHARED_LIBRARY", "artifacts": [{"path": "libx.so"}], "sources": []},
        "directory.json": {"backtraceGraph": graph, "installers": [installer], "paths": {"source": "."}},
    }
    folder = build / replies.API / "reply"
    disk.write(folder, {name: json.dumps(data) for name, data in files.items()})

    def read() -> object:
        setup: Any = SimpleNamespace(build=build, folder=build / "work")
        with mock.patch.multiple(buildfolder, _read=lambda _: {"configured": "x"}, _digest=lambda *_: "x"):
            return buildfolder.configured(setup, (), {}, {})

    return {f"reply: {name}": (folder / name, read) for name in files}


def _of_the_store(cache: Store) -> dict[str, tuple[Path, Reader]]:
    root = cache.root
    environ = {store.VARIABLE: str(root)}

    def matrix() -> object:
        with mock.patch.object(reading, "read", return_value=_MATRIX):
            return reading.read_cached(root, "m", project_name="p", environ=environ) == _MATRIX

    matrix()
    (resolved,) = (root / "resolved").iterdir()
    cache.keep_answer("wheels.json", wheels=[dataclasses.asdict(_WHEEL)])
    build = {"line": "2.8", "backend": "cpu", "machine": "x86_64", "python": "cp311"}
    cache.keep_answer("published.json", builds=[build])
    return {
        "matrix": (resolved, matrix),
        "wheels": (root / store.ANSWERS / "wheels.json", lambda: cache.answer("wheels.json", resolve._wheels)),
        "builds": (root / store.ANSWERS / "published.json", lambda: cache.answer("published.json", available._builds)),
    }


def _of_an_environment(task: Task, data: Path) -> dict[str, tuple[Path, Reader]]:
    names = ("prefix", "bin", "site_packages", "platlib", "include")
    answer = {
        **{name: f"/{name}" for name in names},
        "python": str(Path(__file__)),
        "version": "3.11.7",
        "tag": "cp311",
        "ext_suffix": ".so",
        "machine": "x86_64",
        "markers": {"python_version": "3.11"},
    }

    def make() -> object:
        with mock.patch.multiple(making, _run=lambda *_, **__: answer, _check_complete=lambda *_, **__: None):
            made = making.without_torch(task.entry, data=data, uv=Path("uv"), installer={})
        return str(made.site_packages) == "/site_packages"

    make()
    (file,) = (data / "environments").glob("*/finished.json")
    return {"environment": (file, make)}


def _of_first_use(cache: Store) -> dict[str, tuple[Path, Reader]]:
    view = cache.root / builtcache.VIEWS / "my_pkg-view"
    (view / "site").mkdir(parents=True)
    (view / "site" / "libx.so").write_bytes(b"x")
    variant = {"label": LABEL, "files": [{"path": "site/libx.so", "size": 1}]}
    record = {"variant": variant, "key": "my_pkg-key", "torch": "/torch"}
    (view / builtcache.VARIANT).write_text(json.dumps(record), encoding="utf-8")
    (cache.root / builtcache.BUILT / "my_pkg-key").mkdir(parents=True)

    def read() -> object:
        list(builtcache._builds(cache))
        with mock.patch.dict("os.environ", {builtcache.VARIABLE: str(cache.root)}):
            _variants._part("build").show_cache()
        return builtcache.is_whole(cache, view.name)

    return {"first use": (view / builtcache.VARIANT, read)}
