"""What is seen of a build, only out of its events: lines, GitHub's commands, the table of a terminal, the timeline."""

from __future__ import annotations

import io
import json
import threading
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from hatch_torch_ext import cli
from hatch_torch_ext.base import redact
from hatch_torch_ext.pipeline import events
from hatch_torch_ext.pipeline.events import Begun, Compiled, Done, Ended, Event, Failed, Machine, Note, Progress, Step
from hatch_torch_ext.views import GitHub, Plain, shown, timeline
from hatch_torch_ext.views.board import Board, clock
from hatch_torch_ext.views.live import Live

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

ERROR = "compiling failed: `ninja -C build`\nthe first errors:\n  ops.cpp:7:3: error: 'x' was not declared\nmore"


def told(log: str = "") -> list[tuple[float, Event]]:
    """Return the events of a build of four entries: one reused, one built, one failed, one still compiling."""
    names = ("m.1", "m.2", "m.3", "m.4")
    return [
        (100.0, Begun(entries=names, jobs=2, last={"m.2": 8.0, "m.4": 60.0})),
        (100.1, Done(entry="m.1", label="torch2.8_cpu", size=2000, seconds=0.0, reused=True)),
        (100.2, Step(entry="m.2", step="prepare")),
        (100.3, Step(entry="m.2", step="configure")),
        (100.4, Step(entry="m.3", step="configure")),
        (101.0, Step(entry="m.2", step="compile")),
        (101.5, Note(text="mind the gap", entry="m.2", warning=True)),
        (104.0, Progress(entry="m.2", finished=2, total=3, running=1)),
        (105.0, Failed(entry="m.3", message=ERROR, seconds=4.6, log=log)),
        (106.0, Machine(jobs=2, kept_back=1, available=3_000_000_000)),
        (107.0, Compiled(entry="m.2", output="a.o", start=101.0, end=103.0)),
        (107.0, Compiled(entry="m.2", output="b.o", start=102.0, end=104.0)),
        (108.0, Done(entry="m.2", label="torch2.9_cpu", size=3000, seconds=7.7, peak=5, log=log)),
        (109.0, Step(entry="m.4", step="configure")),
        (109.5, Step(entry="m.4", step="compile")),
        (120.0, Progress(entry="m.4", finished=5, total=20, running=2)),
    ]


END = (130.0, Ended(built=2, reused=1, failed=1, left=0, seconds=30.0))
LAST = (129.0, Done(entry="m.4", label="torch2.10_cpu", size=9000, seconds=20.0, cached=(3, 4)))


def feed(view: events.View, happened: Sequence[tuple[float, Event]]) -> None:
    """Show every event to the view."""
    for at, event in happened:
        view(at, event)


def test_events_survive_the_file(tmp_path: Path) -> None:
    """Every kind is read as it was written, secrets taken out; a line that was cut off is passed over."""
    happened = [*told("log.txt"), LAST, END]
    file = tmp_path / events.FILE
    redact.learn("tops3cret")
    times = iter([at for at, _ in happened] + [131.0])
    with file.open("w", encoding="utf-8") as stream:
        record = events.Stream(stream, [], clock=lambda: next(times))
        for _, event in happened:
            record(event)
        record(Note(text="the password is tops3cret"))
        stream.write('{"event": "no')
    *read, (_, note) = events.read(file)
    assert read == happened
    assert note == Note(text="the password is ****")
    assert json.loads(file.read_text(encoding="utf-8").splitlines()[0])["event"] == "begun"


def test_plain_lines() -> None:
    """A line for each thing that happened, a failure with its command, first error and log, and the end names all."""
    said: list[str] = []
    feed(Plain(said.append), [*told("/logs/m.3.txt"), LAST, END])
    failure = "compiling failed: `ninja -C build`; ops.cpp:7:3: error: 'x' was not declared; whole log: /logs/m.3.txt"
    assert said == [
        "4 entries, 2 jobs at once",
        "[1/4] m.1: torch2.8_cpu, 2.0 kB, unchanged, taken as it is",
        "m.2: mind the gap",
        f"[2/4] m.3: failed: {failure}",
        "[3/4] m.2: torch2.9_cpu, 3.0 kB, built in 7.7 s",
        "[4/4] m.4: torch2.10_cpu, 9.0 kB, built in 20.0 s, 3 of 4 compiles cached",
        "4 entries in 30.0 s: 2 built, 1 unchanged, 1 failed",
        "slowest: m.4 20.0 s, m.2 7.7 s",
        "largest: m.4 9.0 kB, m.2 3.0 kB, m.1 2.0 kB",
        "compiler cache: 3 of 4 compiles taken from it",
        f"failed: m.3: {failure}",
    ]


def test_what_is_to_be_added_is_in_the_line() -> None:
    """A message that gives lines to add is whole in the line of the failed entry, not cut off at the colon."""
    lines = "  install(TARGETS a\n    DESTINATION .)"
    message = f"CMake installs nothing. Add to CMakeLists.txt:\n{lines}\nThe whole log is x"
    said: list[str] = []
    feed(Plain(said.append), [told()[0], (101.0, Failed(entry="m.1", message=message, seconds=1.0, log="x"))])
    added = "CMake installs nothing. Add to CMakeLists.txt: install(TARGETS a DESTINATION .); whole log: x"
    assert said[-1] == f"[1/4] m.1: failed: {added}"


def test_a_long_silence_is_broken() -> None:
    """Where nothing happens for a while, a line says what runs, since when, and about how long it may still take."""
    said: list[str] = []
    spoken = threading.Event()

    def say(line: str) -> None:
        said.append(line)
        if "finished;" in line:
            spoken.set()

    view = Plain(say, every=0.05)
    feed(view, told())
    assert spoken.wait(10)
    view(*END)
    line = next(line for line in said if "finished;" in line)
    assert line.startswith("[3/4] finished; m.4 5/20 for ")


def test_github_folds_annotates_and_sums_up(tmp_path: Path) -> None:
    """A group holds the log, in which no line is a command; the error stands at its line; the summary is a table."""
    log, summary = tmp_path / "log.txt", tmp_path / "summary.md"
    log.write_text("$ ninja\n::add-mask::gotcha\n", encoding="utf-8")
    said: list[str] = []
    environ = {"GITHUB_WORKSPACE": str(tmp_path), "GITHUB_STEP_SUMMARY": str(summary)}
    view = GitHub(said.append, said.append, environ, tmp_path / "csrc")
    feed(view, [*told(str(log)), LAST, END])
    start = said.index("::group::m.3: failed")
    assert said[start + 1] == "$ ninja\n: :add-mask::gotcha\n"
    assert said[start + 2] == "::endgroup::"
    assert said[start + 3] == "::error file=csrc/ops.cpp,line=7,col=3,title=m.3::'x' was not declared"
    assert "| m.3 | **failed** |  |  | 4.6 s |" in summary.read_text(encoding="utf-8").splitlines()
    assert "| m.1 | unchanged | torch2.8_cpu | 2.0 kB |  |" in summary.read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        pytest.param("a.cu(12): error: no", "::error file=csrc/a.cu,line=12,title=m::no", id="nvcc"),
        pytest.param(
            "CMake Error at sub/CMakeLists.txt:5 (find_package): not found.",
            "::error file=csrc/sub/CMakeLists.txt,line=5,title=m::not found.",
            id="cmake",
        ),
        pytest.param("  /usr/x.h:1:2: fatal error: 50%", "::error file=/usr/x.h,line=1,col=2,title=m::50%25", id="far"),
    ],
)
def test_places_of_errors(line: str, expected: str, tmp_path: Path) -> None:
    """Each compiler has its own form of a place; a path outside of the project is not shortened."""
    from hatch_torch_ext.views import places  # noqa: PLC0415

    assert list(places(f"said:\n{line}", tmp_path / "csrc", tmp_path, title="m")) == [expected]


def test_an_error_is_annotated_once(tmp_path: Path) -> None:
    """The last lines of the output, which follow the first errors, name them again; GitHub shows ten of all."""
    from hatch_torch_ext.views import places  # noqa: PLC0415

    message = """the first errors:
  CMake Error at CMakeLists.txt:5 (message): This is no good.
  a.c:7:3: error: 'x' was not declared
  a.c:7:9: error: 'y' was not declared
the last lines:
  CMake Error at CMakeLists.txt:5 (message):
    This is no good.
  a.c:7:3: error: 'x' was not declared
"""
    assert list(places(message, tmp_path, tmp_path, title="m")) == [
        "::error file=CMakeLists.txt,line=5,title=m::This is no good.",
        "::error file=a.c,line=7,col=3,title=m::'x' was not declared",
        "::error file=a.c,line=7,col=9,title=m::'y' was not declared",
    ]


def drawn(view: Live) -> list[str]:
    """Return the lines of the table."""
    paper = Console(file=io.StringIO(), width=100, color_system=None)
    with paper.capture() as captured:
        paper.print(view.table())
    return [line.rstrip() for line in captured.get().splitlines()]


def test_the_table_of_a_terminal() -> None:
    """Failed and running entries with their progress and last time; the bottom line counts; the rest is history."""
    console = Console(file=io.StringIO(), width=100, height=30, force_terminal=True, color_system=None)
    view = Live(console, clock_now=lambda: 122.0)
    feed(view, told())
    lines = drawn(view)
    view.close()
    assert lines[0].split() == ["✘", "m.3", "failed", "4.6", "s"]
    assert lines[1].split()[:2] == ["⏵", "m.4"]
    assert "5/20 2 jobs 13.0 s (last time 1:00)" in " ".join(lines[1].split())
    assert lines[2] == "✔ 2 ✘ 1 ⏵ 1 · jobs 2/2 · 1 kept back for memory · 3.00 GB free · 22.0 s, about 47.0 s left"


def test_the_table_takes_a_third_of_the_screen() -> None:
    """However many entries run; a line counts those that are not shown."""
    console = Console(file=io.StringIO(), width=100, height=24, force_terminal=True, color_system=None)
    view = Live(console, clock_now=lambda: 101.0)
    names = tuple(f"m.{number}" for number in range(40))
    feed(view, [(100.0, Begun(entries=names, jobs=40, last={}))])
    feed(view, [(100.0, Step(entry=name, step="configure")) for name in names])
    lines = drawn(view)
    view.close()
    assert len(lines) <= 24 // 3
    assert lines[-1].endswith("34 more run")


def test_the_view_fits_the_place(tmp_path: Path) -> None:
    """A table on a terminal that can draw it, GitHub's form in its actions, plain lines in other CI and in pipes."""

    def kind(terminal: bool, **environ: str) -> type:  # noqa: FBT001
        with shown(lambda _: None, lambda _: None, source=tmp_path, environ=environ, terminal=terminal) as view:
            return type(view)

    assert kind(True, TERM="xterm") is Live
    assert kind(True, TERM="dumb") is Plain
    assert kind(True, TERM="xterm", CI="1") is Plain
    assert kind(False, TERM="xterm") is Plain
    assert kind(True, TERM="xterm", GITHUB_ACTIONS="true") is GitHub


def test_the_estimate_of_the_end() -> None:
    """What entries took last time, or on average so far, over the jobs; nothing where nothing is known."""
    board = Board()
    for at, event in told():
        board.take(at, event)
    assert board.left(109.0) == pytest.approx(60.0)
    fresh = Board()
    fresh.take(0.0, Begun(entries=("a",), jobs=1, last={}))
    assert fresh.left(1.0) is None
    assert [clock(seconds) for seconds in (0.04, 59.9, 61, 3723)] == ["0.0 s", "59.9 s", "1:01", "1:02:03"]


def test_the_timeline_is_one_page() -> None:
    """Bars for steps and compiles, overlapping compiles in lanes of their own, what was not built named below."""
    page = timeline.render([*told(), LAST, END])
    assert page.count("<rect") == 6 + 2
    assert "<title>m.2: compile, 7.0 s</title>" in page
    assert "<title>b.o, 2.0 s</title>" in page
    assert "<p>m.1: unchanged, 2.0 kB</p>" in page
    assert "http" not in page.replace("http-equiv", "")
    assert "did not come to its end" in timeline.render(told())


def test_the_command_needs_a_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without events there is a sentence that says what to run; with them, a page."""
    monkeypatch.chdir(tmp_path)
    assert cli.main(["timeline", "-o", "page.html"]) == 1
    work = tmp_path / "build" / "torch-ext"
    work.mkdir(parents=True)
    lines = [json.dumps(events.to_json(at, event)) for at, event in [*told(), LAST, END]]
    (work / events.FILE).write_text("\n".join(lines), encoding="utf-8")
    assert cli.main(["timeline", "-o", "page.html"]) == 0
    assert (tmp_path / "page.html").read_text(encoding="utf-8").startswith("<!doctype html>")
