"""Programs that are stopped together, with all that they started, however they were started and whoever was killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from hatch_torch_ext.base import process
from hatch_torch_ext.base.errors import ProcessError, Stopped
from hatch_torch_ext.base.process import Family
from hatch_torch_ext.resources import reaper

BUILDER = """
import sys
import signal
from hatch_torch_ext.base.process import Family, run
signal.signal(signal.SIGINT, signal.default_int_handler)  # a test run in the background ignores it
family = Family(sys.argv[1])
with family.guarded(), family.active():
    run(["sh", "-c", "(sleep 60 & sleep 60) & setsid sleep 61 & echo ready > $0; sleep 60", sys.argv[2]])
"""


ORACLE = """
import subprocess, sys
from oracle import run
if __name__ == "__main__":
    with run.together(), run.pool_of(2) as pool:
        list(pool.map(subprocess.call, [["sh", "-c", f"touch {sys.argv[1]}{number}; sleep 60"] for number in range(2)]))
"""
TESTS = Path(__file__).resolve().parent.parent


@pytest.fixture
def name() -> str:
    """Return a name that no other family has."""
    return uuid.uuid4().hex


def gone(name: str) -> bool:
    """Say whether nothing of the family is left, within a few seconds."""
    deadline = time.monotonic() + 10
    while reaper.members(name) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not reaper.members(name)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_is_left_when_the_builder_is_killed(number: signal.Signals, name: str, tmp_path: Path) -> None:
    """Children, grandchildren and background processes end; a daemon, which has another session, stays."""
    ready = tmp_path / "ready"
    command = [sys.executable, "-c", BUILDER, name, str(ready)]
    with subprocess.Popen(command, start_new_session=True, stderr=subprocess.DEVNULL) as builder:
        deadline = time.monotonic() + 30
        while not (ready.exists() and len(reaper.members(name)) >= 4 and daemons(name)) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert len(reaper.members(name)) >= 4
        builder.send_signal(number)
        builder.wait()
    assert gone(name)
    (left,) = daemons(name)
    os.kill(left, signal.SIGKILL)


def test_nothing_is_left_of_a_killed_oracle(tmp_path: Path) -> None:
    """Its workers, which wait for more to do, end too, and what they started."""
    program, ready = tmp_path / "program.py", [tmp_path / "ready0", tmp_path / "ready1"]
    program.write_text(ORACLE, encoding="utf-8")
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path])}
    with subprocess.Popen([sys.executable, program, tmp_path / "ready"], env=environ) as oracle:
        deadline = time.monotonic() + 60
        while not all(file.exists() for file in ready) and time.monotonic() < deadline:
            time.sleep(0.02)
        name = f"oracle{oracle.pid}"
        assert len(reaper.members(name)) >= 4
        oracle.kill()
    assert gone(name)


def daemons(name: str) -> list[int]:
    """Return the processes that the family started and that made themselves independent of it."""
    started = [int(folder.name) for folder in Path("/proc").glob("[0-9]*") if f"={name}.".encode() in _environ(folder)]
    return [process for process in started if process not in reaper.members(name)]


def _environ(process: Path) -> bytes:
    try:
        return (process / "environ").read_bytes()
    except OSError:
        return b""


def test_a_stopped_family_starts_nothing(name: str) -> None:
    """Whatever a program's exit status says, it was stopped; so was every family within."""
    family = Family(name)
    inner = Family("inner", within=family)
    with inner.active():
        assert process.run(["sh", "-c", f"echo ${reaper.VARIABLE}"]).stdout.startswith(f"{name}.inner.")
        family.stop()
        with pytest.raises(Stopped):
            process.run(["true"])


def test_families_side_by_side_do_not_touch(name: str) -> None:
    """Orphans of one are ended, the other's programs go on."""
    one, two = Family("one", within=Family(name)), Family("on", within=Family(name))
    running = [
        subprocess.Popen(["sleep", "60"], env={**os.environ, **family.environ}, start_new_session=False)
        for family in (one, two)
    ]
    assert one.end_orphans() == 1
    assert running[0].wait(10) == -signal.SIGTERM
    assert running[1].poll() is None
    assert two.end_orphans() == 1
    running[1].wait(10)


def test_lines_are_shown_before_they_are_logged(tmp_path: Path) -> None:
    """A line can be changed or left out; what has no end of line is kept, and a failure carries what was logged."""
    log = tmp_path / "log.txt"
    command = ["sh", "-c", "echo one; echo two; echo three >&2; printf four; exit 3"]
    with pytest.raises(ProcessError) as caught:
        process.run_logged(command, log, line=lambda text: None if text == "two" else text.upper())
    assert caught.value.returncode == 3
    assert caught.value.output == "ONE\nTHREE\nFOUR\n"
    assert log.read_text(encoding="utf-8").splitlines()[1:] == ["ONE", "THREE", "FOUR"]


def test_a_daemon_that_holds_the_pipe_does_not_hold_us(name: str, tmp_path: Path) -> None:
    """As a compiler cache's server may: the program's end is the end."""
    with Family(name).active():
        done = process.run_logged(["sh", "-c", "sleep 600 & echo done"], tmp_path / "log", line=str)
    assert done.stdout == "done\n"
    assert reaper.end(name) == 1


def test_the_largest_process_is_known(tmp_path: Path) -> None:
    """It may be one that the program started."""
    grand = f"import subprocess, sys; subprocess.run([sys.executable, '-c', 'x = bytearray({200 << 20})'])"
    done = process.run_logged([sys.executable, "-c", grand], tmp_path / "log", line=str)
    assert done.peak > 200 << 20


def test_a_program_is_asked_about_itself_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked again only if its file or the environment has changed, on both of which its answer may depend."""
    program, asked = tmp_path / "program", tmp_path / "asked"

    def write(version: int) -> None:
        program.write_text(f'#!/bin/sh\necho "$1" >> "{asked}"\necho {version}\n', encoding="utf-8")
        program.chmod(0o755)
        os.utime(program, (version, version))

    write(1)
    assert [process.answer(program, "--version") for _ in range(3)] == ["1\n"] * 3
    assert asked.read_text(encoding="utf-8") == "--version\n"
    write(2)
    assert process.answer(program, "--version") == "2\n"
    monkeypatch.setenv("ELSEWHERE", "1")
    assert process.answer(program, "--version") == "2\n"
    assert asked.read_text(encoding="utf-8") == "--version\n" * 3
    with pytest.raises(ProcessError, match=r"^cannot start"):
        process.answer(tmp_path / "none", "--version")


def test_a_command_is_logged_as_it_can_be_typed(tmp_path: Path) -> None:
    """Pasted into a shell it does the same: variables are set, and others taken away, whatever their names."""
    changes = {"A_SET": "a b", "B_GONE": None, "C_SET": "$x"}
    command = ["sh", "-c", 'printf "%s|%s|%s" "$A_SET" "${B_GONE-gone}" "$C_SET"']
    log = tmp_path / "log"
    process.run_logged(command, log, env_changes=changes)
    typed = log.read_text(encoding="utf-8").splitlines()[0].removeprefix("$ ")
    environ = {**os.environ, "B_GONE": "here"}
    pasted = subprocess.run(["sh", "-c", typed], env=environ, check=True, capture_output=True, text=True)
    assert pasted.stdout == "a b|gone|$x"


def test_a_system_without_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    """A chroot may have no /proc, where no process can be found: none is, and the build goes on."""
    monkeypatch.setattr("os.path.isdir", lambda _: False)
    assert reaper.members("anything") == []


def test_what_a_program_says_that_prints_nothing() -> None:
    """The words of a failure are its output; of a program that cannot be started, what kept it from that."""
    with pytest.raises(ProcessError) as absent:
        process.run(["/nowhere/program"])
    assert absent.value.words == "cannot start `/nowhere/program`: No such file or directory"
    with pytest.raises(ProcessError) as silent:
        process.run(["sh", "-c", "exit 3"])
    assert silent.value.words == "`sh -c 'exit 3'` failed with exit status 3"
    with pytest.raises(ProcessError) as loud:
        process.run(["sh", "-c", "echo why; exit 3"])
    assert loud.value.words == "why\n"
