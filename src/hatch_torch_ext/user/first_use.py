"""A build at first use: the sources in an installed package, and the torch beside it -> a variant in the user's cache.

The package's loader runs this in a process of its own. The build uses the same CMake files, toolchain checks, repair
and audit as the build of a wheel.

Imports are inside the functions: a process that only waits for another's build needs few of them.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hatch_torch_ext import store
from hatch_torch_ext.base import locks, untrusted
from hatch_torch_ext.base.errors import ConfigurationError, EntryError, TorchExtError, WheelError
from hatch_torch_ext.facts import content, variables
from hatch_torch_ext.user import builtcache

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from hatch_torch_ext.config import Config
    from hatch_torch_ext.facts.manifest import Fallback
    from hatch_torch_ext.pipeline.events import Event
    from hatch_torch_ext.store import Store
    from hatch_torch_ext.values import PreparedEntry, Toolchain, TorchFolders

    Say = Callable[[str], None]

EVERY = 2.0
"""Seconds between two progress messages."""
MAX_SOURCE = 256 << 20
"""Longest source file that is read, in bytes."""
LOCAL = ("pre-release", "this-processor")
"""Audit codes that matter only for a wheel that others install."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What the loader of an installed package asks for.

    ``root`` is the package's ``_torch_ext``; ``torch`` and ``nvidia`` are folders of that process.
    """

    package: str
    distribution: str
    root: Path
    cache: Path
    view: str
    torch: Path
    nvidia: tuple[Path, ...]

    @classmethod
    def load(cls, data: Mapping[str, Any]) -> Request:
        """Return the request in a loader's JSON."""
        return cls(
            package=data["package"],
            distribution=data["distribution"],
            root=Path(data["root"]),
            cache=Path(data["cache"]),
            view=data["view"],
            torch=Path(data["torch"]).resolve(),
            nvidia=tuple(Path(each) for each in data["nvidia"]),
        )


def build(data: Mapping[str, Any], *, say: Say) -> str:
    """Build the variant of the loader's request ``data`` unless it exists; return "", or the reason of a failure.

    ``say`` is called with each progress message.
    """
    request = Request.load(data)
    try:
        _build(request, say)
    except EntryError as error:
        return error.message
    except TorchExtError as error:
        return str(error)
    except OSError as error:
        return _of_the_system(error, request)
    except Exception as error:  # noqa: BLE001 - the last boundary: the loader shows a sentence
        return _unexpected(error)
    return ""


def _unexpected(error: Exception) -> str:
    from hatch_torch_ext.base import errors

    return errors.sentence(error)


def _of_the_system(error: OSError, request: Request) -> str:
    if error.errno == errno.EAGAIN:
        return _unexpected(error)
    why = f"{error.strerror or error} ({error.filename or request.cache})"
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return f"the disk is full: {why}. Free some space; or another folder for the cache. {builtcache.ELSEWHERE}"
    return f"the cache {request.cache} cannot be used: {why}. {builtcache.ELSEWHERE}"


def _build(request: Request, say: Say) -> None:
    from hatch_torch_ext.facts import project

    if (why := project.unusable(Path(request.cache))) is not None:
        raise ConfigurationError(f"{why}. {builtcache.ELSEWHERE}")
    cache = store.open_store(request.cache, say)
    builtcache.check_place(cache.root)
    os.environ[store.VARIABLE] = str(cache.root / "sdk")  # this process does nothing else
    cache.root.joinpath("locks").mkdir(mode=0o700, exist_ok=True)
    what = f"the build of {request.distribution}"
    with locks.held(cache.root / "locks" / f"{request.view}.lock", what=what, report=say):
        if builtcache.is_whole(cache, request.view):
            return
        with cache.scratch() as scratch, _temporary(scratch / "tmp"):
            _make(cache, request, scratch, say)
    builtcache.keep_within_limit(cache, request.view, say)


@contextlib.contextmanager
def _temporary(folder: Path) -> Iterator[None]:
    """Let this process and what it starts put temporary files into ``folder``: /tmp may be full or read-only."""
    folder.mkdir()
    before = os.environ.get("TMPDIR"), tempfile.tempdir
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
    try:
        yield
    finally:
        named, tempfile.tempdir = before
        del os.environ["TMPDIR"]
        if named is not None:
            os.environ["TMPDIR"] = named


def _make(cache: Store, request: Request, scratch: Path, say: Say) -> None:
    from hatch_torch_ext import environments, matrix, toolchain
    from hatch_torch_ext.sdk import environment as sdk_environment
    from hatch_torch_ext.sdk import facts
    from hatch_torch_ext.values import PreparedEntry, TorchFolders

    fallback = _fallback(request)
    project = _unpacked(request, fallback, scratch / "project")
    installed = TorchFolders(
        environment=environments.of_python(Path(sys.executable)), torch=request.torch, nvidia=request.nvidia
    )
    try:
        torch = facts.read(request.torch)
    except facts.FactError as error:
        raise ConfigurationError(f"the torch in {request.torch} is not usable to compile against: {error}") from error
    shared = matrix.Common(
        variables=fallback.variables,
        env_vars=fallback.env_vars,
        stable_abi=fallback.stable_abi,
        has_gpu=any(path.endswith(".cu") for path, _ in fallback.files),
    )
    entry = matrix.current(shared, torch=torch.version, built_for=torch.backend)
    config = _config(request, fallback, project)
    sdk = sdk_environment.acquire(entry, installed.environment, found=installed)
    if sdk.backend.is_gpu:
        config = _for_the_gpus(config)
    prepared = PreparedEntry(
        entry=entry, config=config, environment=installed.environment, sdk=sdk, folder=scratch / "tools" / entry.folder
    )
    tools = toolchain.find(prepared, report=lambda _: None)
    key = _key(request, fallback, prepared, tools, torch.git_version)
    say(f"building for torch {torch.version}, in {cache.root}")

    def fill(made: Path) -> dict[str, object]:
        return _compile(request, prepared, installed, work=scratch / "work", made=made, say=say)

    log = scratch / "work" / entry.folder / "log.txt"
    try:
        folder, marker = cache.make(builtcache.BUILT, f"{_name(request.distribution)}-{key}", fill)
    except EntryError as error:
        kept = builtcache.keep_log(cache, request.view, log)
        raise EntryError(error.entry, _for_the_user(error.message, request).replace(str(log), str(kept))) from error
    _show(cache, request, folder, marker["variant"], scratch)


def _fallback(request: Request) -> Fallback:
    from hatch_torch_ext.facts import manifest

    file = request.root / "manifest.json"
    try:
        return manifest.fallback_from_json(manifest.head(untrusted.text(file, MAX_SOURCE), file=file)["fallback"])
    except (OSError, ValueError, KeyError, WheelError) as error:
        raise ConfigurationError(f"{file} is damaged ({error}): {_again(request)}") from error


def _again(request: Request) -> str:
    return f"pip install --force-reinstall --no-deps {request.distribution}"


def _unpacked(request: Request, fallback: Fallback, project: Path) -> Path:
    """Copy the sources, each compared with its hash.

    Nothing is written into the package, and none of its links is followed.
    """
    for path, sha256 in fallback.files:
        source, target = request.root / "sources" / path, project / path
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            target.write_bytes(untrusted.data(source, MAX_SOURCE))
            target.chmod(0o700 if source.stat().st_mode & 0o100 else 0o600)
        except FileNotFoundError as error:
            raise ConfigurationError(f"{source} is missing: {_again(request)}") from error
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise ConfigurationError(f"{source} cannot be read ({why}): {_again(request)}") from error
        if content.sha256(target) != sha256:
            raise ConfigurationError(f"{source} is damaged or was changed: {_again(request)}")
    return project


def _config(request: Request, fallback: Fallback, project: Path) -> Config:
    from hatch_torch_ext import config as configuration
    from hatch_torch_ext.config import kinds

    (project / request.package.replace(".", "/")).mkdir(parents=True, exist_ok=True)
    environ = dict(os.environ)
    if jobs := environ.get("MAX_JOBS"):  # of torch's own extension builder
        try:
            environ.setdefault("HATCH_TORCH_EXT_JOBS", str(kinds.count(kinds.COUNT.raw(jobs))))
        except ValueError as error:
            raise ConfigurationError(f"Environment variable `MAX_JOBS` {error}") from error
    parsed = configuration.parse(
        {**fallback.options, "package": request.package, "source": fallback.source},
        root=project,
        project_name=request.distribution,
        environ=environ,
    )
    return replace(
        parsed,
        package_dir=request.root.parent,
        environment="",
        ignore=(*parsed.ignore, *LOCAL),
        sdk="environment",
        # For one build on a user's machine, a compiler cache is used if it is installed, but not downloaded.
        compiler_launcher=parsed.compiler_launcher if shutil.which("ccache") or shutil.which("sccache") else "none",
    )


def _for_the_gpus(config: Config) -> Config:
    """Return the configuration with the architectures of TORCH_CUDA_ARCH_LIST, else of this machine's GPUs, if any."""
    from hatch_torch_ext.user import machine

    if named := tuple(filter(None, re.split(r"[;,\s]+", os.environ.get("TORCH_CUDA_ARCH_LIST", "")))):
        return replace(config, archs=(("", named),), archs_source="TORCH_CUDA_ARCH_LIST")
    found = {gpu.capability for gpu in machine.read(os.environ).gpus if gpu.capability is not None}
    if not found:
        return config
    names = tuple(f"{major}.{minor}" for major, minor in sorted(found))
    return replace(config, archs=(("", names),), archs_source="the GPUs of this machine")


def _key(request: Request, fallback: Fallback, prepared: PreparedEntry, tools: Toolchain, git: str | None) -> str:
    """Return the digest of what a build depends on; ``git`` is the commit of torch."""
    from hatch_torch_ext import __version__

    cuda, sdk, interpreter = tools.toolkit, prepared.sdk, prepared.environment.interpreter
    facts = {
        "package": [request.distribution, request.package, fallback.version, fallback.digest],
        "torch": [sdk.version, git, sdk.backend.name, sdk.foreign, sdk.cxx11_abi],
        "python": [interpreter.tag, interpreter.machine],
        "compiler": [tools.cxx.version, str(tools.cxx.path), tools.cmake.version],
        "cuda": None if cuda is None else [cuda.compiler.version, [arch.name for arch in cuda.archs]],
        "environ": variables.of(variables.Use.COMPILE, prepared.entry.environ(os.environ)),
        "config": repr(prepared.config.archs),
        "by": __version__,
    }
    return content.digest(facts)[:32]


def _name(distribution: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", distribution.lower())


def _compile(
    request: Request, prepared: PreparedEntry, installed: TorchFolders, *, work: Path, made: Path, say: Say
) -> dict[str, object]:
    from hatch_torch_ext import pipeline
    from hatch_torch_ext.facts.variant import BUILD, HELP
    from hatch_torch_ext.merge import loader
    from hatch_torch_ext.pipeline.selection import Selected
    from hatch_torch_ext.values import Packaging

    work.mkdir()
    began = time.monotonic()
    selected = Selected(config=prepared.config, entries=(prepared.entry,), installed=installed)
    packaging = Packaging(distribution=request.distribution)
    product = pipeline.build(selected, packaging, views=[_Progress(say)], work=work)
    package = f"site/{request.package.replace('.', '/')}"
    for file in product.layout.files:
        if file.target in {HELP, BUILD}:
            continue  # the installed package has them
        target = made / package / file.target
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file.source, target)
        target.chmod(0o555 if file.source.stat().st_mode & 0o100 else 0o444)
    (placed,) = product.layout.variants
    fields = loader.fields(placed)
    files: Any = fields["files"]
    for each in files:
        each["path"] = f"{package}/_torch_ext/{each['path']}"
    say(f"built in {time.monotonic() - began:.0f} s")
    return {"title": f"{request.distribution} {placed.variant.label}", "variant": {**fields, "built": True}}


class _Progress:
    """Reports the progress of a build, a line at a time."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._last = 0.0

    def __call__(self, _: float, event: Event) -> None:
        """Report what is new in the event."""
        from hatch_torch_ext.pipeline import events

        if isinstance(event, events.Note):
            self._say(event.text)
        elif isinstance(event, events.Step):
            self._say(f"{event.step} ...")
        elif isinstance(event, events.Progress):
            now = time.monotonic()
            if now - self._last >= EVERY and event.finished:
                self._last = now
                self._say(f"compiled {event.finished} of {event.total}")


def _show(cache: Store, request: Request, folder: Path, variant: Mapping[str, Any], scratch: Path) -> None:
    """Make the view: hard links to the files of the build in ``folder``, and symbolic links where their RPATHs lead."""
    from hatch_torch_ext import elf

    made = scratch / "view"
    made.mkdir()
    for source in sorted(folder.rglob("*")):
        target = made / source.relative_to(folder)
        if source.is_dir():
            target.mkdir()
        elif source.name != store.MARKER:
            try:
                os.link(source, target)
            except OSError:
                shutil.copy(source, target)
    for file in variant["files"]:
        place = made / file["path"]
        if elf.is_elf(place):
            image = elf.read(place)
            for path in (*image.runpath, *image.rpath):
                _lead(request, made / "site", place.parent, path)
    text = json.dumps({"variant": dict(variant), "key": folder.name, "torch": str(request.torch)}, indent=1)
    (made / builtcache.VARIANT).write_text(text + "\n", encoding="utf-8")
    views = cache.root / builtcache.VIEWS
    views.mkdir(mode=0o700, exist_ok=True)
    store.remove(views / request.view)
    made.rename(views / request.view)


def _lead(request: Request, site: Path, folder: Path, path: str) -> None:
    """Make one RPATH of a file in ``folder`` lead where it would lead from the installed package."""
    if not path.startswith("$ORIGIN"):
        return
    target = Path(os.path.normpath(path.replace("$ORIGIN", str(folder), 1)))
    if not target.is_relative_to(site) or target == site:
        return
    depth = request.package.count(".") + 1
    parts = target.relative_to(site).parts
    homes = [request.torch.parent, *(each.parent for each in request.nvidia), request.root.parents[depth]]
    real = next((home for home in homes if home.joinpath(*parts).exists()), None)
    if real is None:
        return
    for count in range(1, len(parts) + 1):
        place = site.joinpath(*parts[:count])
        if place.is_symlink():
            return
        if not place.exists():
            place.symlink_to(real.joinpath(*parts[:count]))
            return


def _for_the_user(message: str, request: Request) -> str:
    """Return the message of a failed build with what a user can do, in place of what an author can."""
    from hatch_torch_ext.cmake import failures

    given = variables.of(variables.Use.COMPILE, os.environ)
    set_here = [name for name, value in given.items() if value and name != "SOURCE_DATE_EPOCH"]
    mine = f"tell the authors of {request.distribution}"
    mine = f"Unset {', '.join(set_here)} unless needed, or {mine}" if set_here else f"T{mine[1:]}"
    return re.sub(f"{re.escape(failures.IN_SOURCES)}({re.escape(failures.IN_OPTIONS)})?", mine, message)
