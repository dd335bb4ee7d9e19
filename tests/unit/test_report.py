"""``inspect``: the report of our wheels and of foreign ones, as a value, as a table, and as a page."""

from __future__ import annotations

import io
import json
import re
from dataclasses import asdict
from html.parser import HTMLParser
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

import elves
import wheels
from hatch_torch_ext import report
from hatch_torch_ext.base.errors import WheelError
from hatch_torch_ext.facts import content
from hatch_torch_ext.report import page, table
from hatch_torch_ext.report.page import Box

CUDA, CPU = "torch2.8_cu12.8_cxx11_x86_64", "torch2.8_cpu_cxx11_x86_64"
HELPER = "shared/0123456789ab/libhelper.so"


def library(size: int, **parts: Any) -> bytes:
    """Return a library with that many bytes behind its tables that do not pack."""
    noise = bytes((value * value * 7919 >> 5) & 255 for value in range(size))
    return elves.shared_object(needed=("libtorch_cpu.so", "libc.so.6"), data=noise, **parts)


@pytest.fixture
def fat(tmp_path: Path) -> Path:
    """Return a wheel of ours: a CUDA and a CPU variant that share a library, and Python files."""
    helper = library(500)
    cuda, cpu = {f"{CUDA}/libx.so": library(4000), HELPER: helper}, {f"{CPU}/libx.so": library(1500), HELPER: helper}
    built = [
        (wheels.variant(CUDA, cuda, backend="cuda", cuda="12.8", archs=("8.0", "9.0+PTX"), python="cp311"), cuda),
        (wheels.variant(CPU, cpu), cpu),
    ]
    return wheels.ours(tmp_path, built, extra={"my_pkg/<b>.py": b"x = 1\n"})


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """Return a wheel that somebody else made: a module, a grafted library, a text that is called .so."""
    module = library(2000, exported=("PyInit__C",), versions={"libc.so.6": ("GLIBC_2.17", "GLIBC_2.4")})
    return wheels.write(
        tmp_path,
        {"a/_C.so": module, "a.libs/libz-01234567.so.1": library(100), "a/x.so": b"text", "a/__init__.py": b""},
        name="a-1-cp311-cp311-linux_x86_64.whl",
    )


def printed(path: Path, width: int = 160) -> str:
    """Return what ``inspect`` prints."""
    console = Console(file=io.StringIO(), width=width)
    table.render(report.describe(path), console)
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def test_the_report_of_our_wheel(fat: Path) -> None:
    """Every variant is listed with its bytes, those that it shares, and its share of the wheel; JSON has all of it."""
    found = report.describe(fat)
    cpu, cuda = found.variants
    assert (cpu.label, cpu.cuda, cpu.archs, cpu.python, cpu.libc_floor) == (CPU, None, (), None, "glibc 2.17")
    assert (cuda.label, cuda.cuda, cuda.archs, cuda.python) == (CUDA, "12.8", ("8.0", "9.0+PTX"), "cp311")
    rows = {row.path.partition("_torch_ext/")[2]: row for row in found.files}
    assert cuda.own == rows[f"{CUDA}/libx.so"].size
    assert cuda.shared == cpu.shared == rows[HELPER].size
    assert cuda.share == rows[f"{CUDA}/libx.so"].compressed / fat.stat().st_size
    assert rows[HELPER].variants == (CPU, CUDA)
    assert (found.distribution, found.version, found.size) == ("my-pkg", "1.0", fat.stat().st_size)
    assert found.requires == ("torch<2.10,>=2.8",)
    assert json.loads(json.dumps(asdict(found)))["variants"][0]["label"] == CPU


def test_the_report_of_a_foreign_wheel(foreign: Path) -> None:
    """Without a manifest, the compiled files are listed."""
    found = report.describe(foreign)
    assert found.variants == ()
    kinds = {row.path: row.kind for row in found.files if not row.path.startswith("a-1.dist")}
    assert kinds == {
        "a/_C.so": "module",
        "a.libs/libz-01234567.so.1": "graft",
        "a/x.so": "data",
        "a/__init__.py": "python",
    }
    module = next(row for row in found.files if row.path == "a/_C.so")
    assert module.binary is not None
    assert (module.binary.libc_floor, module.binary.machine, module.binary.python) == ("glibc 2.17", "x86_64", True)


def test_the_table_of_our_wheel(fat: Path) -> None:
    """CASE 35: one line for each variant, with a bar, then what is shared and what else is inside."""
    lines = [re.sub(r"\s{2,}", "  ", line).strip() for line in printed(fat).splitlines()]
    assert lines[0].startswith("my-pkg 1.0  ")
    assert "needs  torch<2.10,>=2.8" in lines
    assert "variant  torch  backend  archs  Python  needs  own  shared  share" in lines
    (cuda,) = [line for line in lines if line.startswith(CUDA)]
    row = rf"{CUDA}  2\.8  CUDA 12\.8  8\.0 9\.0\+PTX  cp311  glibc 2\.17  4\.\d kB  \d+ B  █+.?  \d\d%"
    assert re.match(row, cuda)
    (shared,) = [line for line in lines if line.startswith("shared  ")]
    assert re.fullmatch(r"shared  libhelper\.so, \d+ B, by 2 variants", shared)


def test_the_table_of_a_foreign_wheel(foreign: Path) -> None:
    """A foreign wheel's compiled files are listed, the largest part of the wheel first."""
    text = printed(foreign)
    assert text.index("a/_C.so") < text.index("a.libs/libz-01234567.so.1")
    assert "glibc 2.17" in text


def test_a_wheel_without_compiled_files(tmp_path: Path) -> None:
    """For a pure wheel, a sentence says so."""
    path = wheels.write(tmp_path, {"a/__init__.py": b""}, name="a-1-py3-none-any.whl")
    assert "no compiled files" in printed(path)


def test_problems_are_reported(tmp_path: Path) -> None:
    """Problems of reading do not hide the rest: they are listed below it."""
    path = wheels.write(
        tmp_path, {"a/cut.so": b"\x7fELF", "my/_torch_ext/manifest.json": b"{"}, name="a-1-py3-none-any.whl"
    )
    found = report.describe(path)
    assert found.problems[0].startswith("my/_torch_ext/manifest.json: is not JSON")
    assert found.problems[1].startswith("a/cut.so cannot be read as an ELF file: ")
    assert " ! a/cut.so cannot be read" in printed(path)
    assert "a/cut.so cannot be read" in page.render(found)


class _Page(HTMLParser):
    """Collects what a page refers to, and whether its elements are closed in order."""

    VOID = frozenset({"meta", "wbr", "rect"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.names: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.links += [f"{name}={value}" for name, value in attrs if name in {"href", "src", "action", "srcset"}]
        if tag not in {"meta", "wbr"}:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_needs_nothing_else(fat: Path) -> None:
    """The page is one well-formed document without scripts, links or resources, and names are escaped."""
    text = page.render(report.describe(fat))
    parsed = _Page()
    parsed.feed(text)
    assert parsed.open == []
    assert parsed.links == []
    assert "script" not in parsed.names
    assert "url(" not in text
    assert "@import" not in text
    assert "<b>.py" not in text
    assert "my_pkg/&lt;b&gt;.py" in text
    assert "prefers-color-scheme: dark" in text


def test_the_picture_is_of_the_right_areas(fat: Path) -> None:
    """The treemap is well-formed SVG; the areas of two files are in proportion to their bytes, gaps aside."""
    found = report.describe(fat)
    svg = re.search(r"<svg.*</svg>", page.picture(found), flags=re.DOTALL)
    assert svg is not None
    drawn = ET.fromstring(svg[0])  # noqa: S314 - our own text
    rects = [rect for rect in drawn.iter("rect") if rect.get("class") == "file"]
    areas = {
        (rect.findtext("title") or "").partition("\n")[0]: float(rect.get("width", 0)) * float(rect.get("height", 0))
        for rect in rects
    }
    packed = {row.path: row.compressed for row in found.files}
    one, other = f"my_pkg/_torch_ext/{CUDA}/libx.so", f"my_pkg/_torch_ext/{CPU}/libx.so"
    assert areas[one] / areas[other] == pytest.approx(packed[one] / packed[other], rel=0.15)


def test_the_page_of_a_foreign_wheel(foreign: Path) -> None:
    """A foreign wheel's page groups by kind of file."""
    text = page.render(report.describe(foreign))
    assert "Python modules" in text
    assert "Variants<small>" not in text


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (9999, "10.0 kB"),
        (123_456, "123 kB"),
        (4_100_000, "4.1 MB"),
        (2_500_000_000, "2.50 GB"),
    ],
)
def test_sizes_for_people(count: int, words: str) -> None:
    """Sizes are in decimal units, as package indexes count."""
    assert content.size(count) == words


@settings(max_examples=60)
@given(
    st.lists(st.integers(1, 10_000_000), min_size=1, max_size=40).map(lambda amounts: sorted(amounts, reverse=True)),
    st.integers(1, 2000),
    st.integers(1, 2000),
)
def test_the_treemap_fills_its_box(amounts: list[int], width: int, height: int) -> None:
    """Every amount gets its part of the area, inside the box."""
    box = Box(x=0.0, y=0.0, width=width, height=height)
    placed = page.layout(amounts, box)
    for amount, area in zip(amounts, placed, strict=True):
        assert area.width * area.height == pytest.approx(amount / sum(amounts) * width * height, rel=1e-3, abs=1e-3)
        assert area.x >= -1e-3
        assert area.x + area.width <= width * (1 + 1e-3)
        assert area.y >= -1e-3
        assert area.y + area.height <= height * (1 + 1e-3)


def test_the_treemap_of_nothing() -> None:
    """No amounts, or no room, give no area and no error."""
    assert page.layout([], Box(x=0, y=0, width=1, height=1)) == []
    assert page.layout([1.0], Box(x=0, y=0, width=0, height=1)) == [Box(x=0, y=0, width=0, height=0)]


def test_what_is_not_a_wheel(tmp_path: Path) -> None:
    """What cannot be read as a wheel is one error."""
    with pytest.raises(WheelError, match="no such file"):
        report.describe(tmp_path / "a-1-py3-none-any.whl")


SMALL = library(300, exported=("PyInit__C",))


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(4, len(SMALL) - 1), st.integers(0, 255)), min_size=1, max_size=10))
def test_changed_bytes(changes: list[tuple[int, int]]) -> None:
    """Whatever bytes of an ELF file are changed: a report, a table and a page."""
    data = bytearray(SMALL)
    for at, value in changes:
        data[at] = value
    with TemporaryDirectory() as folder:
        path = wheels.write(Path(folder), {"a/x.so": bytes(data)}, name="a-1-cp311-cp311-linux_x86_64.whl")
        assert page.render(report.describe(path))
        assert printed(path)
