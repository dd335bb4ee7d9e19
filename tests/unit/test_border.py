"""Foreign wheels: no text in them reaches an output unescaped, and none causes more than a message.

Each source is a place where foreign text comes in, each output a command that shows it.
"""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import zipfile
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

import elves
import wheels
from hatch_torch_ext import __version__, cli, store, views
from hatch_torch_ext.cli import user
from hatch_torch_ext.facts import variant as variants
from hatch_torch_ext.pipeline import events
from hatch_torch_ext.user import doctor, machine, pruning
from hatch_torch_ext.views import live

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LABEL = "torch2.8_cpu_cxx11_x86_64"
CUDA = "torch2.8_cu12.8_cxx11_x86_64"
MANIFEST = "my_pkg/_torch_ext/manifest.json"
INFO = "my_pkg-1.0.dist-info"
NAME = f"my_pkg-1.0-{wheels.TAG}.whl"
EVIL = "\x1b]0;x\x07\x1b[2J\x9b31m\u202e[/nope][red]<script>alert(1)</script>"
"""Title, bell, clearing, C1, bidi, rich's markup, HTML's."""
WORSE = f"{EVIL}\x00\ud800"
"""Where NUL and half a surrogate pair can be said."""


def rewritten(path: Path, changes: dict[str, bytes]) -> Path:
    """Change members of a wheel."""
    with zipfile.ZipFile(path) as source:
        kept = {name: source.read(name) for name in source.namelist()}
    with zipfile.ZipFile(path, "w") as target:
        for name, data in {**kept, **changes}.items():
            target.writestr(name, data)
    return path


def ours(folder: Path) -> Path:
    """Write a wheel with a CPU and a CUDA variant."""
    built = []
    for label, changes in ((LABEL, {}), (CUDA, {"backend": "cuda", "cuda": "12.8", "archs": ("9.0",)})):
        files = {f"{label}/libx.so": elves.shared_object(needed=("libc10.so", "libc.so.6"), undefined=(label,))}
        built.append((wheels.variant(label, files, **changes), files))
    return wheels.ours(folder, built)


def record(line: str) -> Callable[[Path], Path]:
    """Return a source: a line of RECORD."""

    def make(folder: Path) -> Path:
        path = ours(folder)
        with zipfile.ZipFile(path) as source:
            text = source.read(f"{INFO}/RECORD")
        return rewritten(path, {f"{INFO}/RECORD": text + line.encode("utf-8", "surrogatepass") + b"\n"})

    return make


def metadata(field: str, *, file: str = "METADATA") -> Callable[[Path], Path]:
    """Return a source: a field of METADATA or WHEEL; RECORD is true."""

    def make(folder: Path) -> Path:
        path = ours(folder)
        with zipfile.ZipFile(path) as source:
            members = {name: source.read(name) for name in source.namelist() if not name.endswith("RECORD")}
        members[f"{INFO}/{file}"] += f"{field}: {WORSE}\n".encode("utf-8", "surrogatepass")
        lines = [f"{name},sha256={wheels.digest(data)},{len(data)}" for name, data in members.items()]
        with zipfile.ZipFile(path, "w") as target:
            for name, data in {**members, f"{INFO}/RECORD": "\n".join([*lines, f"{INFO}/RECORD,,"]).encode()}.items():
                target.writestr(name, data)
        return path

    return make


def manifest(change: Callable[[dict[str, Any]], None]) -> Callable[[Path], Path]:
    """Return a source: a text in the manifest."""

    def make(folder: Path) -> Path:
        files = {f"{LABEL}/libx.so": elves.shared_object(needed=("libc10.so", "libc.so.6"))}
        described = wheels.variant(LABEL, files)
        head = {"package": "my_pkg", "distribution": "my-pkg", "requires": "torch", "tag": wheels.TAG}
        data = {**head, "variants": [{**json.loads(json.dumps(variants.to_json(described))), "places": {}}]}
        data["package_files"] = []
        change(data)
        members = {"my_pkg/__init__.py": b"", "my_pkg/_variants.py": b"", MANIFEST: json.dumps(data).encode()}
        return wheels.write(folder, members | {f"my_pkg/_torch_ext/{path}": text for path, text in files.items()})

    return make


def field(*names: str | int, value: Any = WORSE) -> Callable[[Path], Path]:
    """Return a source: a field of the manifest's variant."""

    def change(data: dict[str, Any]) -> None:
        target = data["variants"][0]
        for name in names[:-1]:
            target = target[name]
        target[names[-1]] = value

    return manifest(change)


def elf(**parts: Any) -> Callable[[Path], Path]:
    """Return a source: a text in an ELF file, in a variant and in a file of no variant."""

    def make(folder: Path) -> Path:
        data = elves.shared_object(**{"needed": ("libc10.so", "libc.so.6"), **parts})
        files = {f"{LABEL}/libx.so": data}
        return wheels.ours(folder, [(wheels.variant(LABEL, files), files)], extra={"my_pkg/other.so": data})

    return make


def member(name: str) -> Callable[[Path], Path]:
    """Return a source: the name of a member."""

    def make(folder: Path) -> Path:
        path = ours(folder)
        with zipfile.ZipFile(path, "a") as archive:
            info = zipfile.ZipInfo("x")
            info.filename = name
            archive.writestr(info, b"")
        return path

    return make


def named(name: str) -> Callable[[Path], Path]:
    """Return a source: the name of the file itself."""

    def make(folder: Path) -> Path:
        return ours(folder).rename(folder / name)

    return make


def variant_json(folder: Path) -> Path:
    """Return a wheel with a hostile ``variant.json``."""
    return rewritten(ours(folder), {f"{INFO}/variant.json": json.dumps({"variants": {WORSE: {}}}).encode()})


def top(name: str, value: Any = WORSE) -> Callable[[Path], Path]:
    """Return a source: a field at the top of the manifest."""
    return manifest(lambda data: data.update({name: value}))


SOURCES: dict[str, Callable[[Path], Path]] = {
    "record name": record(f"{EVIL},sha256=abc,4"),
    "record algorithm": record(f"my_pkg/__init__.py,{EVIL}=abc,4"),
    "record digest": record(f"my_pkg/__init__.py,sha256={EVIL},4"),
    "record nul": record("a\x00b,,"),
    "record surrogate": record(f"{WORSE},,"),
    "Generator": metadata("Generator", file="WHEEL"),
    "Requires-Dist": metadata("Requires-Dist"),
    "Requires-Python": metadata("Requires-Python"),
    "member": member(EVIL),
    "member in the package": member(f"my_pkg/{EVIL}.so"),
    "member bytes": member("my_pkg/\x80\xff.py"),
    "dist-info": member(f"{EVIL.replace('/', '')}.dist-info/x"),
    "file name": named(f"my_pkg-1.0-{EVIL.replace('/', '')}.whl"),
    "file name bytes": named(os.fsdecode(b"my_pkg-1.0-py3-none-any\xff.whl")),
    "variant.json": variant_json,
    "manifest unknown field": manifest(lambda data: data["variants"][0].update({WORSE: 1})),
    "manifest no object": manifest(lambda data: data.update(variants=[WORSE])),
    "manifest places": field("places", value={WORSE: WORSE}),
    "manifest deep": manifest(lambda data: data.update(variants=json.loads("[" * 400 + "]" * 400))),
    **{f"manifest {name}": top(name) for name in ("package", "distribution", "requires", "tag", "package_files")},
    "manifest owners": top("package_files", [{"target": "a", "sha256": "b", "variants": 5}]),
    "manifest target": top("package_files", [{"target": WORSE, "sha256": WORSE}]),
    **{
        f"variant {name}": field(name)
        for name in ("label", "torch", "backend", "cuda", "python", "machine", "libc", "libc_floor", "policy", "files")
    },
    "variant cxx11_abi": field("cxx11_abi"),
    "variant archs": field("archs", value=[WORSE]),
    "variant external": field("external", value=[[WORSE, "author"]]),
    **{
        f"file {name}": field("files", 0, name)
        for name in ("path", "kind", "sha256", "soname", "module", "installed", "origin")
    },
    "file needed": field("files", 0, "needed", value=[EVIL]),
    "file namespaces": field("files", 0, "namespaces", value=[EVIL]),
    "file operators": field("files", 0, "operators", value=[EVIL]),
    "file versions": field("files", 0, "versions", value=[EVIL]),
    **{f"build {name}": field("build", name, value=EVIL) for name in ("entry", "torch_version", "python", "compiler")},
    "build flags": field("build", "flags", value=[[EVIL, f"-march=native {EVIL}"]]),
    "build ignored": field("build", "ignored", value=[EVIL]),
    "elf soname": elf(soname=EVIL),
    "elf needed": elf(needed=(EVIL, "libc10.so", "libc.so.6")),
    "elf runpath": elf(runpath=f"/{EVIL}"),
    "elf rpath": elf(rpath=EVIL),
    "elf undefined": elf(undefined=(f"_ZN2at{EVIL}", EVIL, f"Py{EVIL}")),
    "elf exported": elf(exported=(f"PyInit_{EVIL}", "PyInit_x")),
    "elf versions": elf(versions={"libc.so.6": (f"GLIBC_{EVIL}", "GLIBC_²", "GLIBC_" + "9" * 10_000), EVIL: (EVIL,)}),
    "elf paths": elf(data=f"/home/{EVIL}/a.cpp\0/home/x/a.cpp\0".encode()),
    "digits label": field("label", value="²" * 5),
    "digits torch": field("torch", value="9" * 10_000),
    "digits floor": field("libc_floor", value="9" * 10_000),
    "digits build": field("build", "torch_version", value=f"2.8.{'9' * 10_000}"),
    "digits size": manifest(lambda data: data["variants"][0]["files"][0].update(size=10**4000)),
    "digits symbol": elf(undefined=(f"_ZN2at{'9' * 5000}SsE", f"_Z{'9' * 5000}x", "_ZN2at²Ss")),
    "suffix": lambda folder: wheels.write(
        folder, {"a/x.cpython-3.so": elves.shared_object(needed=("libc.so.6",), exported=("PyInit_x",))}, name=NAME
    ),
    "torch of any length": lambda folder: wheels.write(folder, {"a/x.py": b""}, requires=(f"torch>={'9' * 10_000}",)),
    "deep marker": lambda folder: wheels.write(folder, {"a/x.py": b""}, requires=(f"torch; {'(' * 900}",)),
}

OUTPUTS: dict[str, list[str]] = {
    "inspect": ["inspect"],
    "inspect --json": ["inspect", "--json"],
    "inspect --html": ["inspect", "--html", "{out}/page.html"],
    "audit": ["audit"],
    "audit --json": ["audit", "--json"],
    "merge": ["merge", "-o", "{out}"],
    "variants": ["variants", "-o", "{out}"],
    "index": ["index", "-o", "{out}"],
}


def check(text: str, *, page: bool = False) -> None:
    """Hold an output against what may be in it: letters that can be shown, line breaks; no markup; no fault of ours."""
    raw = {letter for letter in text if not letter.isprintable() and letter != "\n"}
    assert raw == set()
    assert "this is a fault of hatch-torch-ext" not in text
    assert "Traceback" not in text
    if page:
        assert "<script>" not in text


@pytest.mark.parametrize("source", SOURCES)
def test_nothing_foreign_is_shown_raw(source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every command shows what the source says as text, or refuses it in words; JSON is JSON."""
    (tmp_path / "in").mkdir()
    path = SOURCES[source](tmp_path / "in")
    for output, command in OUTPUTS.items():
        out = tmp_path / output.replace(" ", "_")
        out.mkdir()
        status = cli.main([*(part.format(out=out) for part in command), str(path)])
        said = capsys.readouterr()
        assert status in {0, 1}
        check(said.out)
        check(said.err)
        for page in out.rglob("*.html"):
            check(page.read_text(encoding="utf-8"), page=page.name == "page.html")
        if output.endswith("--json") and not said.err:
            assert isinstance(json.loads(said.out), dict | list)
            assert said.out.isascii()


@pytest.mark.parametrize(
    ("source", "command", "told"),
    [
        ("Generator", "inspect", "made by \\x1b]0;x\\x07"),
        ("Requires-Dist", "inspect", "\\x1b]0;x\\x07"),
        ("record name", "audit", "\\x1b]0;x\\x07"),
        ("record algorithm", "audit", "the hash `\\x1b]0;x\\x07"),
        ("member", "inspect", "\\x1b]0;x\\x07"),
        ("elf undefined", "audit", "\\x1b]0;x\\x07"),
        ("elf versions", "audit", "\\x1b]0;x\\x07"),
        ("elf needed", "audit", "\\x1b]0;x\\x07"),
        ("variant label", "audit", "variant.label cannot be"),
        ("manifest unknown field", "merge", "has the field `\\x1b]0;x\\x07"),
        ("file name", "inspect", "is not named as a wheel"),
    ],
)
def test_what_is_shown_instead(
    source: str, command: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The text is there, in escapes: who reads it sees what was tried."""
    path = SOURCES[source](tmp_path)
    out = ["-o", str(tmp_path / "out")] if command == "merge" else []
    cli.main([command, *out, str(path)])
    said = capsys.readouterr()
    assert told in " ".join((said.out + said.err).split())


@pytest.mark.parametrize(
    "command", ["inspect", "audit", "merge", "variants", "index", "kernels", "compare {old}", "install --dry-run"]
)
def test_a_wheel_of_a_later_format(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every command names the file, the format and what to do, and writes nothing: another format is not guessed at."""
    (tmp_path / "new").mkdir()
    made = {"version": "99.1", "options": {}, "folders": {}}
    path = wheels.changed(ours(tmp_path), {"schema": 2, "origin": made}, folder=tmp_path / "new")
    words = command.format(old=tmp_path / path.name).split()
    out = ["-o", str(tmp_path / "out")] if command in {"merge", "variants", "index", "kernels"} else []
    assert cli.main([*words, str(path), *out]) == 1
    shown = capsys.readouterr()
    known = f"hatch-torch-ext {__version__} reads formats up to 1: upgrade hatch-torch-ext to 99.1, which made it"
    assert shown.err == f"hatch-torch-ext: {path}: {MANIFEST} is of format 2 (`schema`), and {known}\n"
    assert shown.out == ""
    assert not (tmp_path / "out").exists()


def test_what_a_build_says_is_shown_as_text(tmp_path: Path) -> None:
    """Every line of a build comes from events; no text in one, a compiler's or an index's, reaches the terminal raw."""
    log = tmp_path / "log.txt"
    log.write_text(f"{EVIL}\r::add-mask::x\n##[error]x\n")
    lines: list[str] = []
    drawn = io.StringIO()
    board = live.Live(Console(file=drawn, force_terminal=False, width=200))
    for view in (views.Plain(lines.append), views.GitHub(lines.append, lines.append, {}, tmp_path), board):
        stream = events.Stream(None, [view])
        stream(events.Begun(entries=("one",), jobs=1, last={}))
        stream(events.Note(text=WORSE))
        stream(events.Fetched(entry="one", title=WORSE, received=1, total=2))
        stream(events.Failed(entry="one", message=f"{WORSE}\n{WORSE}", seconds=1, log=str(log)))
        stream(events.Ended(built=0, reused=0, failed=1, left=0, seconds=1))
    said = "\n".join(lines)
    check(said)
    check(drawn.getvalue())
    assert "::group::one: failed" in said
    assert not re.search(r"(?m)^::add-mask|##\[", said)  # neither form of a command to GitHub's runner


def test_the_page_of_a_build_shows_no_foreign_text_raw(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lines of a record of a build that are damaged are passed over; what the others say is text on the page."""
    work = tmp_path / "build" / "torch-ext"
    work.mkdir(parents=True)
    good: list[dict[str, Any]] = [
        {"event": "begun", "time": 1.0, "entries": [EVIL], "jobs": 2, "last": {}},
        {"event": "step", "time": 2.0, "entry": EVIL, "step": WORSE},
        {"event": "note", "time": 2.5, "text": WORSE, "entry": None},
        {"event": "failed", "time": 3.0, "entry": EVIL, "message": WORSE},
    ]
    bad = ["[]", "7", "[" * 100_000, "{}", '{"event": "step", "time": "nan", "entry": "a", "step": "b"}']
    values: list[Any] = [10**400, {"a": [1]}, [[]], 1e300]
    bad += [json.dumps({**good[1], "entry": odd}) for odd in values]
    bad += [json.dumps({**good[1], "time": 9e14}), json.dumps({**good[1], "entry": "unknown"})]
    lines = [*map(json.dumps, good), *bad]
    (work / "events.jsonl").write_bytes("\n".join(lines).encode() + b"\n\xff\xfe\n")
    monkeypatch.chdir(tmp_path)
    assert cli.main(["timeline", "-o", "page.html"]) == 0
    check(capsys.readouterr().err)
    check((tmp_path / "page.html").read_text(encoding="utf-8"), page=True)


@pytest.mark.parametrize(
    "marker", [b"[]", b"[" * 100_000, b'{"title": 7}', b"\xff", b"", json.dumps({"title": WORSE}).encode()]
)
def test_markers_of_the_store_are_shown_as_text(
    marker: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`sdk list`, `verify` and `prune` read what is in the store, whatever it is."""
    monkeypatch.setenv(store.VARIABLE, str(tmp_path))
    folder, _ = store.open_store(tmp_path).make("stubs", "key", lambda _: {"title": "x"})
    store.release()
    (folder / store.MARKER).chmod(0o644)
    (folder / store.MARKER).write_bytes(marker)
    for action in ("list", "verify", "prune"):
        for options in ([], ["--json"]):
            assert cli.main(["sdk", action, *options]) in {0, 1}
            said = capsys.readouterr()
            check(said.out)
            check(said.err)


def test_doctor_shows_no_foreign_text_raw(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What an installed package, a torch or a driver says of itself is one line each, as text and as JSON."""
    here = replace(machine.read({}), driver=EVIL)
    installed = pruning.InstalledPackage(
        distribution=f"{EVIL}\nproblem   none",
        version=WORSE,
        root=tmp_path / EVIL,
        record=tmp_path / "x.dist-info" / "RECORD",
        head={},
    )
    health = doctor.PackageHealth(installed=installed, chosen=None, verdicts=((EVIL, WORSE),))
    found = doctor.Diagnosis(
        hatch_torch_ext="1",
        machine=here,
        python=EVIL,
        facts={},
        torch={"version": WORSE, "folder": EVIL},
        tools=((EVIL, EVIL),),
        packages=(health,),
        problems=(WORSE,),
    )
    text = user._text(found)
    check(text)
    assert sum(line.startswith("problem") for line in text.splitlines()) == 1
    check(found.to_json({}))
    assert json.loads(found.to_json({}))["packages"][0]["package"] == EVIL.replace("/", ".")
    assert asdict(found)
    capsys.readouterr()


def test_a_letter_that_the_terminal_lacks(tmp_path: Path) -> None:
    """A terminal of another encoding gets an escape, and no traceback."""
    path = wheels.write(tmp_path, {"a/ümlaut.so": elves.shared_object(needed=("libc.so.6",))})
    done = subprocess.run(
        [sys.executable, "-m", "hatch_torch_ext", "inspect", str(path)],
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert b"\\xfcmlaut.so" in done.stdout


def test_closed_stderr() -> None:
    """Who closed stderr gets an exit status, and no traceback on stdout."""
    program = (
        "import sys; sys.stderr.close(); sys.stderr = None; from hatch_torch_ext import cli; "
        "sys.exit(cli.main(['inspect', '/nowhere.whl']))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (1, b"", b"")
