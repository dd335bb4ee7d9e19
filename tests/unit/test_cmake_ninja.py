"""Ninja's arguments, and the notes on how compilers are called."""

from __future__ import annotations

import sysconfig
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hatch_torch_ext.base.errors import ProcessError
from hatch_torch_ext.cmake import launchers, ninja
from workbench import Fixed


@pytest.mark.performs("Leave it out of the CUDA flags")
@pytest.mark.parametrize(
    ("flags", "word"),
    [
        pytest.param("-O3 --threads 4 -std=c++17", "`--threads 4`", id="threads"),
        pytest.param("-O3 --threads=0", "`--threads=0`", id="equals"),
        pytest.param("-t4", "`-t4`", id="short"),
        pytest.param("--split-compile=8", "`--split-compile=8`", id="split"),
        pytest.param("-O3 -std=c++17 -target-dir=x", None, id="none"),
    ],
)
def test_threads_of_nvcc_are_reported(flags: str, word: str | None) -> None:
    """They multiply what a job takes, unseen by the pool; a C++ target's flags do not concern nvcc."""
    said = ninja.threads([("ops CXX", "--threads 9"), ("ops CUDA", flags)])
    assert said is None if word is None else f"nvcc is called with {word}" in (said or "")
    if word is not None:
        assert (said or "").endswith("Leave it out of the CUDA flags")
        assert ninja.threads([("ops CUDA", flags.replace(word.strip("`"), ""))]) is None


@pytest.mark.parametrize(
    ("output", "killed"),
    [
        pytest.param("g++: fatal error: Killed signal terminated program cc1plus", True, id="gcc"),
        pytest.param("FAILED: [code=137] a.o", True, id="ninja"),
        pytest.param("/bin/sh: line 1: 77\nKilled\n", True, id="shell"),
        pytest.param("nvcc error   : 'cicc' died due to signal 9 (Kill signal)", True, id="nvcc"),
        pytest.param("virtual memory exhausted: Cannot allocate memory", True, id="no-memory"),
        pytest.param("FAILED: [code=255] a.o \nccache c++ a.cpp\nninja: build stopped", True, id="ccache"),
        pytest.param("FAILED: [code=255] a.o \nccache c++ a.cpp\n[2/3] Building b.o", True, id="ccache-and-more"),
        pytest.param("FAILED: [code=255] a.o \nnvcc a.cu\nerror: no\nninja: build stopped", False, id="said-why"),
        pytest.param("a.cpp:1:1: error: 'Killed' was not declared", False, id="a-name"),
        pytest.param("FAILED: [code=1] a.o", False, id="an-error"),
    ],
)
def test_what_a_compiler_that_was_killed_looks_like(output: str, *, killed: bool) -> None:
    """What the kernel does to a compiler for want of memory; an error of the sources is never tried again."""
    assert bool(ninja.KILLED.search(output)) is killed


def test_what_a_program_prints_is_not_a_failure_of_a_file() -> None:
    """Where Ninja says that one failed, the launchers of the entry are ended."""
    assert ninja._FAILED.match("FAILED: [code=1] a.o ")
    assert ninja._FAILED.match("FAILED: [code=-9] a.o ")
    assert not ninja._FAILED.match("FAILED: 0 of 3 tests")


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("1.12.1", ninja.Clients.NONE),
        ("1.13.2", ninja.Clients.COMPILERS),
        ("1.13.3", ninja.Clients.NINJA),
        ("1.14.0", ninja.Clients.NINJA),
    ],
)
def test_a_ninja_that_takes_free_jobs_at_once_needs_no_token_server(
    version: str, expected: ninja.Clients, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Newer ones than 1.13.2 do (ninja's pull request 2726); an older one than 1.13.2 takes no part at all."""
    monkeypatch.setattr(ninja, "_only_compiles", lambda *_: True)
    (tmp_path / "build.ninja").write_text("", encoding="utf-8")
    setup: Any = SimpleNamespace(toolchain=SimpleNamespace(ninja=SimpleNamespace(version=version)), build=tmp_path)
    assert ninja._clients(setup, {}, Fixed(jobs=2, compilers_wait=True)) is expected


@pytest.mark.parametrize(
    ("link", "expected"),
    [
        pytest.param(": && c++ -shared -o libx.so x.o  && :", True, id="link"),
        pytest.param(": && cmake -E rm -f libx.a && ar qc libx.a x.o && ranlib libx.a && :", True, id="archive"),
        pytest.param(": && nvcc -dlink x.o -o y.o -L/usr/lib  && :", True, id="device-link"),
        pytest.param(": && c++ -shared -o libx.so x.o  && cd /b && /b/tool libx.so", False, id="POST_BUILD"),
        pytest.param("cd /b && /b/tool && cd /b && c++ -shared -o libx.so x.o  && :", False, id="PRE_LINK"),
    ],
)
def test_what_runs_beside_a_link_counts_as_a_job(
    link: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, expected: bool
) -> None:
    """A program that runs before or after a link has no launcher that could wait for a job: Ninja takes one for it."""
    monkeypatch.setattr(launchers, "script", lambda _: Path("once.py"))
    edges = [("x.o", "python -I -S once.py c++ -c x.cpp"), ("libx", link)]
    rules = [f"rule r{at}\n  command = {each}\nbuild {name}: r{at}\n" for at, (name, each) in enumerate(edges)]
    (tmp_path / "build.ninja").write_text("".join(rules), encoding="utf-8")
    tools = SimpleNamespace(
        ninja=SimpleNamespace(path=Path(sysconfig.get_path("scripts")) / "ninja"), cache=SimpleNamespace(ccache=True)
    )
    setup: Any = SimpleNamespace(toolchain=tools, build=tmp_path)
    assert ninja._only_compiles(setup, {}) is expected


@pytest.mark.parametrize("failed", [True, False], ids=["after-a-failure", "by-itself"])
def test_a_file_that_was_not_begun_is_not_a_failure(tmp_path: Path, *, failed: bool) -> None:
    """After a failure, launchers that wait are ended: the log has their sentence, not a second failure and command."""
    late = "sleep 0.5; echo 'not compiled: why' >&2; exit 75"
    edges = f"rule late\n  command = {late}\n  description = late\nbuild late: late\n"
    if failed:
        edges += "rule bad\n  command = echo bad >&2; exit 3\nbuild bad: bad\n"
    (tmp_path / "build.ninja").write_text(edges, encoding="utf-8")
    program = SimpleNamespace(path=Path(sysconfig.get_path("scripts")) / "ninja")
    setup: Any = SimpleNamespace(toolchain=SimpleNamespace(ninja=program), build=tmp_path, log=tmp_path / "log.txt")
    refused: list[str] = []
    server: Any = SimpleNamespace(running=1, started={}, refuse=lambda: refused.append(""))
    share = ninja.Share(arguments=("-j", "2"), server=server)
    with pytest.raises(ProcessError) as caught:
        ninja._run(setup, {}, share, Fixed(jobs=2))
    output = caught.value.output
    assert refused
    assert output.count("FAILED: ") == 1
    assert ("exit 75" in output) is not failed
    assert "not compiled: why" in output


def test_what_ninja_lists_is_kept_until_its_files_change(tmp_path: Path) -> None:
    """Also after a damaged record, nothing is taken from it; each list has its own name."""
    rules = tmp_path / "CMakeFiles" / "rules.ninja"
    rules.parent.mkdir()
    listed: list[str] = []

    def find() -> list[str]:
        listed.append(str(len(listed)))
        return listed[-1:]

    assert [ninja.known(tmp_path, name, find) for name in ("one", "two", "one", "two")] == [["0"], ["1"], ["0"], ["1"]]
    rules.write_text("rule other", encoding="utf-8")
    assert [ninja.known(tmp_path, "one", find) for _ in range(2)] == [["2"], ["2"]]
    for damaged in "[]", "{", "\x00":
        (tmp_path / ninja.KNOWN).write_text(damaged, encoding="utf-8")
        assert ninja.known(tmp_path, "one", find) == listed[-1:]
    assert listed == list("012345")
