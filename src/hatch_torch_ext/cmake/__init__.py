"""Configures, builds and installs one entry's CMake project -> ``InstallTree``.

``find_package(Torch)`` finds this project's own CMake package (resources/cmake), which is written for the entry beside
its build folder; Python is pinned to the entry's. A build folder is reused as long as nothing that it was made from has
changed.
"""

from __future__ import annotations

import os
import shutil
import signal
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.version import Version

from hatch_torch_ext.base import escape, process
from hatch_torch_ext.base.errors import CompileError, EntryError, ProcessError
from hatch_torch_ext.cmake import buildfolder, failures, launchers, ninja, package, replies, surroundings, toolchainfile
from hatch_torch_ext.cmake.launchers import Share
from hatch_torch_ext.values import InstallTree

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hatch_torch_ext.cmake.launchers import Slots, Turn
    from hatch_torch_ext.values import Job

NOTES = "torch_ext_notes.txt"
RUN_PATH = "torch_ext_run_path.txt"
"""Where the project's programs and modules find libraries while it is built, as ``LD_LIBRARY_PATH`` has it."""


def build(
    job: Job,
    *,
    slots: Slots,
    report: Callable[[str], None],
    planned: Callable[[str, replies.InstallPlan], None] = lambda _entry, _plan: None,
) -> InstallTree:
    """Build the project in the entry's folder and return what it installs; ``slots`` limits concurrent compilers.

    ``planned`` is called before anything is compiled, with what will be installed, and may raise.

    Raises ``CompileError`` if a step fails, if the project would install outside of the prefix, or if nothing is
    installed; the message has the step, the command, the first errors and the path of the whole log.
    """
    entry, config = job.entry, job.config
    failures.check_folders(entry.name, config.source, job.folder, job.sdk.prefix, job.environment.prefix)
    package.write(job)
    toolchainfile.write(job)
    toolchainfile.write_python(job)
    launchers.write(job)
    cache = surroundings.cache_entries(job)
    buildfolder.prepare(job, cache)
    run = _Runner(job=job, env=surroundings.env_changes(job))

    where = ["-S", str(config.source), "-B", str(job.build), "-G", "Ninja", *_quiet(job.toolchain.cmake.version)]
    configuring = [str(job.toolchain.cmake.path), *where, *cache, *package.before(config.cmake)[1]]
    with slots.turn() as turn:
        reply = _compiled(run, configuring, turn, slots=slots, report=report, planned=planned)

    files = _files(job.prefix)
    if not files:
        raise CompileError(entry.name, failures.nothing_installed(reply, source=config.source, log=job.log))
    roots = (config.root, config.source)
    for project, places in replies.of_dependencies(reply, job.prefix, roots=roots, build=job.build).items():
        report(
            f"the install rules of {project}, which the project brings in, put {escape.few(places)} into "
            "the wheel. EXCLUDE_FROM_ALL in FetchContent_Declare (CMake 3.28) or add_subdirectory leaves them out"
        )
    return InstallTree(
        prefix=job.prefix,
        files=files,
        log=job.log,
        compiler=reply.compilers.get("CXX") or reply.compilers.get("C") or "none",
        gpu_compiler=reply.compilers.get("CUDA"),
        flags=replies.flags(reply, rename=package.mapped(job)),
        archives=replies.archives(reply),
        build_dirs=tuple(sorted({config.root, config.source, job.folder, job.environment.prefix, job.sdk.prefix})),
    )


def _compiled(
    run: _Runner,
    configuring: Sequence[str],
    turn: Turn,
    *,
    slots: Slots,
    report: Callable[[str], None],
    planned: Callable[[str, replies.InstallPlan], None],
) -> replies.Reply:
    """Configure, compile and install the project, and return CMake's description of it.

    A project that writes into its sources is compiled by itself, since all entries share what it writes there. The
    first time, this is only seen where something has been written: what was done beside other entries is done again.
    """
    job = run.job
    if distrusted := buildfolder.is_distrusted(job):
        turn.by_itself()
        ninja.forget(job.build)
    before = buildfolder.snapshot(job)
    failure = None
    try:
        reply = _steps(run, configuring, turn, before, slots=slots, report=report, planned=planned)
    except EntryError as error:
        failure = error
    changed = buildfolder.what_changed(job, before)
    if changed is not None:
        buildfolder.distrust(job)
        if turn.is_shared:
            turn.by_itself()
            return _compiled(run, configuring, turn, slots=slots, report=report, planned=planned)
    if failure is not None:
        raise failure
    if changed is not None:
        report(changed)
    else:
        if distrusted:
            buildfolder.trust(job)
        buildfolder.note(job, configuring, run.env, before)
    return reply


def _steps(
    run: _Runner,
    configuring: Sequence[str],
    turn: Turn,
    before: Mapping[Path, buildfolder.State],
    *,
    slots: Slots,
    report: Callable[[str], None],
    planned: Callable[[str, replies.InstallPlan], None],
) -> replies.Reply:
    job, entry = run.job, run.job.entry
    # The order matters: an entry that ends its configure step has reported before whether it wrote.
    is_configured = not turn.others_configure and buildfolder.is_configured(job, configuring, run.env, before)
    buildfolder.forget(job)
    if not is_configured:
        replies.query(job.build)
        with turn.configuring():
            run.configure(configuring)
            if writes := buildfolder.what_changed(job, before) is not None:
                buildfolder.distrust(job)
        if writes and turn.is_shared:  # before anything is compiled in vain
            turn.by_itself()
            run.configure(configuring)
        toolchainfile.check_runs(job)
    for note in (*_notes(job), *failures.tried_in_vain(job.build)):
        report(note)
    reply = _reply(job)
    failures.check_destinations(entry.name, reply, prefix=job.prefix, site=job.environment.site_packages)
    if not reply.rules and not failures.installs_while_compiling(job.config.source):
        # Reported before the minutes that compiling takes.
        raise CompileError(entry.name, failures.nothing_installed(reply, source=job.config.source, log=job.log))
    planned(entry.name, replies.install_plan(job, reply))
    if outside := ninja.outside(job, run.env):
        turn.by_itself()
        ninja.forget(job.build, outside)  # another entry's would pass for this entry's own
    if (threads := ninja.threads(replies.flags(reply, rename=()))) is not None:
        report(threads)
    run.compile(slots, report)
    _install(run, reply)
    return reply


@dataclass(frozen=True, slots=True, kw_only=True)
class _Runner:
    job: Job
    env: dict[str, str | None]

    def __call__(self, step: str, command: Sequence[str]) -> None:
        try:
            process.run(command, env_changes=self.env, log=self.job.log)
        except ProcessError as error:
            raise self._explained(step, command, error) from error

    def configure(self, command: Sequence[str]) -> None:
        buildfolder.begin_configuring(self.job)
        (self.job.build / NOTES).unlink(missing_ok=True)
        # CMake's try_compile results are neither kept nor counted.
        replace(self, env={**self.env, "CCACHE_DISABLE": "1"})("configuring", command)
        buildfolder.end_configuring(self.job)

    def compile(self, slots: Slots, report: Callable[[str], None]) -> None:
        try:
            with launchers.counted(self.job, slots) as counting:
                ninja.build(self.job, {**self.env, **counting}, slots, report)
        except ProcessError as error:
            raise self._explained("compiling", ninja.command(self.job, Share()), error) from error

    def _explained(self, step: str, command: Sequence[str], error: ProcessError) -> EntryError:
        output = error.output or str(error)
        if (complaint := surroundings.complaint(self.job.entry, self.job.toolchain, output)) is not None:
            return complaint
        job = self.job
        if step == "compiling":
            output = failures.from_root(output, root=job.config.root, build=job.build)
        text = failures.step_failed(
            step,
            command,
            output,
            log=job.log,
            source=job.config.source,
            left_out=job.sdk.left_out,
            thin=job.sdk.kind == "thin",
            hints=(
                *toolchainfile.hints(job, output),
                *(f"{tried}." for tried in failures.tried_in_vain(job.build) if step == "configuring"),
            ),
            killed=_killed(step, command, error),
        )
        cause = "\n".join(failures.first_errors(output)).replace(str(job.folder), "")
        return CompileError(job.entry.name, text, cause=cause)


def _killed(step: str, command: Sequence[str], error: ProcessError) -> str | None:
    """Return that the step's program was killed, or that a compiler was that ran by itself, or None."""
    if error.returncode == -signal.SIGKILL:
        return f"{Path(command[0]).name} was killed"
    if step == "compiling" and ninja.KILLED.search(error.output):
        return "A compiler was killed, or got no more memory, though no other ran"
    return None


def _install(run: _Runner, reply: replies.Reply) -> None:
    """Install below the prefix, including files for the environment's site-packages (``${Python_SITEARCH}``)."""
    job, stage, site = run.job, run.job.folder / "stage", run.job.environment.site_packages
    # The prefix is passed again: a project may have set its own, often the package's folder in the sources.
    command = [str(job.toolchain.cmake.path), "--install", str(job.build), "--prefix", str(job.prefix)]
    run = replace(run, env={**run.env, **_run_path(run)})
    buildfolder.note_placed(job)
    if not any(rule.destination and Path(rule.destination).is_relative_to(site) for rule in reply.rules):
        run("installing", command)
        return
    shutil.rmtree(stage, ignore_errors=True)
    replace(run, env={**run.env, "DESTDIR": str(stage)})("installing", command)
    for folder, place in (job.prefix, job.prefix), (site, job.prefix / site.name):
        if (staged := stage / folder.relative_to("/")).is_dir():
            shutil.copytree(staged, place, symlinks=True, dirs_exist_ok=True)
    shutil.rmtree(stage)


def _run_path(run: _Runner) -> dict[str, str]:
    """Return the variable by which what install rules run (``install(CODE)``) finds the libraries of the build."""
    ours = (run.job.build / RUN_PATH).read_text(encoding="utf-8")
    given = run.env.get("LD_LIBRARY_PATH", os.environ.get("LD_LIBRARY_PATH"))
    return {"LD_LIBRARY_PATH": ":".join(filter(None, [ours, given]))} if ours else {}


def _reply(job: Job) -> replies.Reply:
    try:
        return replies.read(job.build)
    except (KeyError, OSError, ValueError) as error:
        # CMake names these files by their content, and leaves one that is there as it is, cut off or not.
        shutil.rmtree(job.build / replies.API / "reply", ignore_errors=True)
        raise CompileError(
            job.entry.name,
            f"CMake configured the project, but its description of it in {job.build / replies.API} cannot be read "
            f"({error}). Make sure that the disk has space, and run the same command again; the whole log is {job.log}",
        ) from error


def _quiet(version: str) -> list[str]:
    """Return this CMake's option against the warning about definitions that a project does not read."""
    return ["--no-warn-unused-cli" if Version(version) < Version("4.4") else "-Wno-unused-cli"]


def _notes(job: Job) -> list[str]:
    """Return what our CMake files say to the user. Raises ``CompileError`` where they did not run."""
    notes = job.build / NOTES
    if not notes.exists():
        raise CompileError(job.entry.name, failures.did_not_run(source=job.config.source, log=job.log))
    return list(dict.fromkeys(notes.read_text(encoding="utf-8").splitlines()))  # Ninja may have started CMake again


def _files(prefix: Path) -> tuple[str, ...]:
    found = []
    for folder, folders, names in os.walk(prefix):
        links = [name for name in folders if os.path.islink(os.path.join(folder, name))]  # noqa: PTH114, PTH118  many files
        found += [os.path.relpath(os.path.join(folder, name), prefix) for name in (*names, *links)]  # noqa: PTH118
    return tuple(sorted(found))
