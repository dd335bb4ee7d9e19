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

from hatch_torch_ext.base import escape, process, untrusted
from hatch_torch_ext.base.errors import CompileError, EntryError, ProcessError
from hatch_torch_ext.cmake import buildfolder, failures, launchers, ninja, package, replies, surroundings, toolchainfile
from hatch_torch_ext.values import InstallTree

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hatch_torch_ext.cmake.buildfolder import Turn
    from hatch_torch_ext.cmake.ninja import Slots
    from hatch_torch_ext.values import Setup


def build(
    setup: Setup,
    *,
    slots: Slots,
    report: Callable[[str], None],
    check_plan: Callable[[str, replies.InstallPlan], None] = lambda _entry, _plan: None,
) -> InstallTree:
    """Build the project in the entry's folder and return what it installs; ``slots`` limits concurrent compilers.

    ``check_plan`` is called before anything is compiled, with what will be installed, and may raise.

    Raises ``CompileError`` if a step fails, if the project would install outside of the prefix, or if nothing is
    installed; the message has the step, the command, the first errors and the path of the whole log.
    """
    entry, config = setup.entry, setup.config
    failures.check_folders(entry.name, config.source, setup.folder, setup.sdk.prefix, setup.environment.prefix)
    package.write(setup)
    toolchainfile.write(setup)
    launchers.write(setup)
    cache = surroundings.cache_entries(setup)
    buildfolder.prepare(setup, cache)
    where = ["-S", str(config.source), "-B", str(setup.build), "-G", "Ninja", *_quiet(setup.toolchain.cmake.version)]
    configuring = [str(setup.toolchain.cmake.path), *where, *cache, *package.before(config.cmake)[1]]
    run = _Runner(
        setup=setup,
        env=surroundings.env_changes(setup),
        configuring=configuring,
        slots=slots,
        report=report,
        check_plan=check_plan,
    )
    with slots.turn() as turn:
        reply = _compiled(run, turn)
    return _install_tree(run, reply)


def _compiled(run: _Runner, turn: Turn) -> replies.Reply:
    """Configure, compile and install the project, and return CMake's description of it.

    A project that writes into its sources is compiled by itself, since all entries share what it writes there. The
    first time, this is only seen where something has been written: what was done beside other entries is done again.
    """
    setup = run.setup
    if distrusted := buildfolder.is_distrusted(setup):
        turn.by_itself()
        ninja.forget(setup.build)
    before = buildfolder.snapshot(setup)
    failure = None
    try:
        reply = _steps(run, turn, before)
    except EntryError as error:
        failure = error
    changed = buildfolder.what_changed(setup, before)
    if changed is not None:
        buildfolder.distrust(setup)
        if turn.is_shared:
            turn.by_itself()
            return _compiled(run, turn)
    if failure is not None:
        raise failure
    if changed is not None:
        run.report(changed)
    else:
        if distrusted:
            buildfolder.trust(setup)
        buildfolder.note(setup, run.configuring, run.env, before)
    return reply


def _steps(run: _Runner, turn: Turn, before: Mapping[Path, buildfolder.State]) -> replies.Reply:
    """Do the same once, with the project's files as they were ``before``."""
    setup, entry = run.setup, run.setup.entry
    # The order matters: an entry that ends its configure step has reported before whether it wrote.
    reply = None if turn.others_configure else buildfolder.configured(setup, run.configuring, run.env, before)
    buildfolder.forget(setup)
    if reply is None:
        replies.query(setup.build)
        with turn.configuring():
            run.configure()
            if writes := buildfolder.what_changed(setup, before) is not None:
                buildfolder.distrust(setup)
        if writes and turn.is_shared:  # before anything is compiled in vain
            turn.by_itself()
            run.configure()
        toolchainfile.check_runs(setup)
    for note in (*_notes(setup), *failures.tried_in_vain(setup.build)):
        run.report(note)
    reply = reply or _reply(setup)
    failures.check_destinations(entry.name, reply, prefix=setup.prefix, site=setup.environment.site_packages)
    if not reply.rules and not failures.installs_while_compiling(setup.config.source):
        # Reported before the minutes that compiling takes.
        raise CompileError(entry.name, failures.nothing_installed(setup, reply))
    plan, package_name = replies.install_plan(setup, reply), setup.config.package
    run.check_plan(entry.name, plan)
    if beside := failures.beside_the_package((place for place, _ in plan.files), package_name):
        run.report(beside)
    if outside := ninja.outside(setup, run.env):
        turn.by_itself()
        ninja.forget(setup.build, outside)  # another entry's would pass for this entry's own
    if (threads := ninja.threads(replies.flags(reply, rename=()))) is not None:
        run.report(threads)
    run.compile()
    _install(run, reply)
    if not beside and (beside := failures.beside_the_package(buildfolder.contents(setup.prefix), package_name)):
        run.report(beside)  # of files that Ninja makes, or code installs
    return reply


@dataclass(frozen=True, slots=True, kw_only=True)
class _Runner:
    """Runs the steps of one build; ``configuring`` is the command of the first."""

    setup: Setup
    env: dict[str, str | None]
    configuring: Sequence[str]
    slots: Slots
    report: Callable[[str], None]
    check_plan: Callable[[str, replies.InstallPlan], None]

    def __call__(self, step: str, command: Sequence[str]) -> None:
        try:
            process.run_logged(command, self.setup.log, env_changes=self.env)
        except ProcessError as error:
            raise self._explained(step, command, error) from error

    def configure(self) -> None:
        buildfolder.begin_configuring(self.setup)
        (self.setup.build / buildfolder.NOTES).unlink(missing_ok=True)
        # CMake's try_compile results are neither kept nor counted.
        replace(self, env={**self.env, "CCACHE_DISABLE": "1"})("configuring", self.configuring)
        buildfolder.end_configuring(self.setup)

    def compile(self) -> None:
        try:
            with launchers.counted(self.setup, self.slots.cached) as counting:
                ninja.build(self.setup, {**self.env, **counting}, self.slots, self.report)
        except ProcessError as error:
            raise self._explained("compiling", ninja.command(self.setup, ninja.Share()), error) from error

    def _explained(self, step: str, command: Sequence[str], error: ProcessError) -> EntryError:
        output = error.words
        if (complaint := surroundings.complaint(self.setup.entry, self.setup.toolchain, output)) is not None:
            return complaint
        setup = self.setup
        if step == "compiling":
            output = failures.from_root(output, root=setup.config.root, build=setup.build)
        hints = list(toolchainfile.hints(setup, output))
        if step == "configuring":
            hints += [f"{tried}." for tried in failures.tried_in_vain(setup.build)]
        killed = _killed(step, command, error)
        text = failures.step_failed(setup, step, command, output, hints=hints, killed=killed)
        cause = "\n".join(failures.first_errors(output)).replace(str(setup.folder), "")
        return CompileError(setup.entry.name, text, cause=cause)


def _killed(step: str, command: Sequence[str], error: ProcessError) -> str | None:
    """Return that the step's program was killed, or that a compiler was that ran by itself, or None."""
    if error.returncode == -signal.SIGKILL:
        return f"{Path(command[0]).name} was killed"
    if step == "compiling" and ninja.KILLED.search(error.output):
        return "A compiler was killed, or got no more memory, though no other ran"
    return None


def _install(run: _Runner, reply: replies.Reply) -> None:
    """Install below the prefix, including files for the environment's site-packages (``${Python_SITEARCH}``)."""
    setup, stage, site = run.setup, run.setup.folder / "stage", run.setup.environment.site_packages
    # The prefix is passed again: a project may have set its own, often the package's folder in the sources.
    command = [str(setup.toolchain.cmake.path), "--install", str(setup.build), "--prefix", str(setup.prefix)]
    run = replace(run, env={**run.env, **_run_path(run)})
    buildfolder.note_placed(setup)
    if not any(rule.destination and Path(rule.destination).is_relative_to(site) for rule in reply.rules):
        run("installing", command)
        return
    shutil.rmtree(stage, ignore_errors=True)
    replace(run, env={**run.env, "DESTDIR": str(stage)})("installing", command)
    for folder, place in (setup.prefix, setup.prefix), (site, setup.prefix / site.name):
        if (staged := stage / folder.relative_to("/")).is_dir():
            shutil.copytree(staged, place, symlinks=True, dirs_exist_ok=True)
    shutil.rmtree(stage)


def _run_path(run: _Runner) -> dict[str, str]:
    """Return the variable by which what install rules run (``install(CODE)``) finds the libraries of the build."""
    ours = (run.setup.build / buildfolder.RUN_PATH).read_text(encoding="utf-8", errors="surrogateescape")
    given = run.env.get("LD_LIBRARY_PATH", os.environ.get("LD_LIBRARY_PATH"))
    return {"LD_LIBRARY_PATH": ":".join(filter(None, [ours, given]))} if ours else {}


def _install_tree(run: _Runner, reply: replies.Reply) -> InstallTree:
    """Return what was installed, and report what other projects put into it."""
    setup, config = run.setup, run.setup.config
    files = buildfolder.contents(setup.prefix)
    if not files:
        raise CompileError(setup.entry.name, failures.nothing_installed(setup, reply))
    roots = (config.root, config.source)
    for project, places in replies.of_dependencies(reply, setup.prefix, roots=roots, build=setup.build).items():
        run.report(
            f"the install rules of {project}, which the project brings in, put {escape.few(places)} into "
            "the wheel. EXCLUDE_FROM_ALL in FetchContent_Declare (CMake 3.28) or add_subdirectory leaves them out"
        )
    return InstallTree(
        prefix=setup.prefix,
        files=files,
        log=setup.log,
        compiler=reply.compilers.get("CXX") or reply.compilers.get("C") or "none",
        gpu_compiler=reply.compilers.get("CUDA"),
        flags=replies.flags(reply, rename=package.mapped(setup)),
        archives=replies.archives(reply),
        build_dirs=tuple(
            sorted({config.root, config.source, setup.folder, setup.environment.prefix, setup.sdk.prefix})
        ),
    )


def _reply(setup: Setup) -> replies.Reply:
    try:
        return replies.read(setup.build)
    except untrusted.DAMAGED as error:
        raise CompileError(
            setup.entry.name,
            f"CMake configured the project, but its description of it in {setup.build / replies.API} cannot be read "
            f"({error}). Make sure that the disk has space, and run the same command again; the whole log is "
            f"{setup.log}",
        ) from error


def _quiet(version: str) -> list[str]:
    """Return this CMake's option against the warning about definitions that a project does not read."""
    return ["--no-warn-unused-cli" if Version(version) < Version("4.4") else "-Wno-unused-cli"]


def _notes(setup: Setup) -> list[str]:
    """Return what our CMake files say to the user. Raises ``CompileError`` where they did not run."""
    notes = setup.build / buildfolder.NOTES
    if not notes.exists():
        raise CompileError(setup.entry.name, failures.did_not_run(setup))
    lines = notes.read_text(encoding="utf-8", errors="replace").splitlines()
    return list(dict.fromkeys(lines))  # Ninja may have started CMake again
