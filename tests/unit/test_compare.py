"""``compare``: what users of a new wheel have lost, what changed and what is new, whoever made the two."""

from __future__ import annotations

import dataclasses
import io
import json
import tarfile
from typing import TYPE_CHECKING

import pytest

import elves
import wheels
from hatch_torch_ext import cli, compare
from hatch_torch_ext.base.errors import WheelError
from hatch_torch_ext.compare import schemas

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from hatch_torch_ext.compare import Comparison

CPU, STABLE = "torch2.8_cpu_cxx11_x86_64", "stable2.10_cpu_x86_64"
ENTRY_POINTS = "[console_scripts]\nmy-tool = my_pkg.tools:main\n"
CAPSULE = b"N3c1014tagged_capsuleIN6my_pkg5StackEEE\0"


def binary(*texts: str, classes: bytes = b"", **parts: object) -> bytes:
    """Return a compiled file with schemas among its texts."""
    data = b"\0" + b"\0".join(text.encode() for text in texts) + b"\0\0" + classes
    return elves.shared_object(needed=("libtorch_cpu.so", "libc.so.6"), data=data, **parts)  # type: ignore[arg-type]


def setuptools_wheel(
    folder: Path, members: Mapping[str, bytes] | None = None, *, name: str = "", **keywords: object
) -> Path:
    """Return a wheel as setuptools makes it, with a module, a library, data and a command."""
    folder.mkdir(exist_ok=True)
    content = {
        "my_pkg/__init__.py": b"from my_pkg import _C\n",
        "my_pkg/tools.py": b"def main():\n    return 0\n",
        "my_pkg/data/a.bin": b"1",
        "my_pkg/_C.cpython-311-x86_64-linux-gnu.so": binary(exported=("PyInit__C",), undefined=("PyLong_FromLong",)),
        "my_pkg/libops.so": binary("f(Tensor x) -> Tensor", exported=("c_function",)),
        "my_pkg-1.0.dist-info/entry_points.txt": ENTRY_POINTS.encode(),
        **(members or {}),
    }
    wheel_name = name or "my_pkg-1.0-cp311-cp311-linux_x86_64.whl"
    return wheels.write(folder, content, name=wheel_name, **keywords)  # type: ignore[arg-type]


def our_wheel(folder: Path, extra: Mapping[str, bytes] | None = None) -> Path:
    """Return the same project in a wheel of ours, for two Pythons."""
    folder.mkdir(exist_ok=True)
    built = []
    for python in ("cp311", "cp312"):
        files = {
            f"{CPU}_{python}/_C.cpython-{python[2:]}-x86_64-linux-gnu.so": binary(exported=("PyInit__C",)),
            f"{CPU}_{python}/libops.so": binary("f(Tensor x) -> Tensor", exported=("c_function",)),
        }
        plain = wheels.variant(f"{CPU}_{python}", files, python=python)
        described = tuple(
            dataclasses.replace(
                each,
                kind="module" if "_C." in each.path else "library",
                module="_C" if "_C." in each.path else None,
                installed=each.path.partition("/")[2],
                operators=() if "_C." in each.path else ("my_pkg::f",),
                namespaces=() if "_C." in each.path else ("my_pkg",),
            )
            for each in plain.files
        )
        built.append((dataclasses.replace(plain, files=described), files))
    more = {
        "my_pkg/tools.py": b"def main():\n    return 0\n",
        "my_pkg/data/a.bin": b"1",
        "my_pkg-1.0.dist-info/entry_points.txt": ENTRY_POINTS.encode(),
    }
    return wheels.ours(folder, built, extra={**more, **(extra or {})}, requires=("torch<2.10,>=2.8",))


def told(found: Comparison, verdict: str) -> list[tuple[str, str]]:
    """Return topic and message of the differences with a verdict."""
    return [(each.topic, each.message) for each in found.differences if each.verdict == verdict]


def test_a_wheel_of_ours_beside_one_of_setuptools(tmp_path: Path) -> None:
    """The same project loses nothing: a module is found by its name, generated files are not reported."""
    found = compare.compare(setuptools_wheel(tmp_path / "old"), our_wheel(tmp_path / "new"))
    assert told(found, "lost") == []
    assert [message for topic, message in told(found, "new") if topic == "module"] == [
        "`import my_pkg._C` works on cp312 too"
    ]
    assert not [each for each in found.differences if "_torch_ext" in each.message or "_variants" in each.subject]
    assert ("file", "my_pkg/__init__.py: 22 bytes, now 47") in told(found, "changed")


def test_what_is_lost_by_a_move(tmp_path: Path) -> None:
    """A module, data, a command whose module is gone, a function of the C library, an operator: each in a sentence."""
    old = setuptools_wheel(
        tmp_path / "old",
        {
            "my_pkg/extra/__init__.py": b"",
            **{f"my_pkg/configs/{number}.yaml": b"" for number in range(9)},
            "my_pkg/libops.so": binary(
                "f(Tensor x) -> Tensor", "gone(Tensor x) -> int", exported=("c_function", "other"), classes=CAPSULE
            ),
            "my_pkg-1.0.data/scripts/run-it": b"#!python\n",
            "helpers.cpython-311-x86_64-linux-gnu.so": binary(exported=("PyInit_helpers",)),
        },
    )
    new = our_wheel(tmp_path / "new", {"my_pkg/tools.py": b"def start():\n    return 0\n"})
    found = compare.compare(old, new)
    assert told(found, "lost") == [
        ("module", "`import helpers` fails: the compiled module is gone"),
        ("module", "`import my_pkg.extra` fails"),
        ("operator", "torch.ops.gone is gone: programs that were saved with it cannot be loaded"),
        ("class", "the C++ class my_pkg::Stack is not registered with torch any more (torch.classes)"),
        ("entry point", "the command `my-tool` is my_pkg.tools:main, but my_pkg.tools does not define `main`"),
        ("script", "<scripts>/run-it is gone"),
        *(("file", f"my_pkg/configs/{number}.yaml is gone") for number in range(9)),
        ("symbol", "my_pkg/libops.so does not export other any more: ctypes and other programs cannot call it"),
    ]
    shown = list(compare.lines(found))
    assert shown[3] == "lost"
    assert "  file          9 files below my_pkg/configs (my_pkg/configs/0.yaml, my_pkg/configs/1.yaml, " in "\n".join(
        shown
    )


def test_a_compiled_file_that_is_gone(tmp_path: Path) -> None:
    """What ctypes opens and what a shell runs is lost; not what another file registers, nor what is renamed."""
    program, library = binary(), binary(exported=("_ZN1a1bEv", "c_call"))
    old = setuptools_wheel(
        tmp_path / "old",
        {
            "my_pkg/libgone.so": library,
            "my_pkg/lib/libempty.so": binary(),
            "my_pkg/librenamed.so": binary(exported=("first", "second", "_init")),
            "my_pkg/libregisters.so": binary("g(Tensor x) -> Tensor", exported=("_ZN1cEv",)),
            "my_pkg.libs/libz-01234567.so.1": binary(exported=("deflate",)),
            **{f"my_pkg-1.0.data/scripts/{name}": program for name in ("gone", "command", "shell")},
            "my_pkg-1.0.data/scripts/compiled": b"#!/bin/sh\n",
        },
    )
    new = setuptools_wheel(
        tmp_path / "new",
        {
            "my_pkg/libops.so": binary("f(Tensor x) -> Tensor", "g(Tensor x) -> Tensor", exported=("c_function",)),
            "my_pkg/libother.so": binary(exported=("first", "second", "third")),
            "my_pkg-1.0.data/scripts/shell": b"#!/bin/sh\n",
            "my_pkg-1.0.data/scripts/compiled": program,
            "my_pkg-1.0.dist-info/entry_points.txt": f"{ENTRY_POINTS}command = my_pkg.tools:main\n".encode(),
        },
    )
    found = compare.compare(old, new)
    assert told(found, "lost") == [
        ("script", "<scripts>/gone is gone: what opens or runs it by its path fails"),
        ("file", "my_pkg/lib/libempty.so is gone: what opens or runs it by its path fails"),
        ("file", "my_pkg/libgone.so is gone: what opens or runs it by its path fails"),
    ]
    changed = told(found, "changed")
    assert ("file", "my_pkg/librenamed.so is my_pkg/libother.so now, with all that it had") in changed
    moved = "my_pkg/libregisters.so is gone; all that it registered with torch is in other files"
    assert ("file", moved) in changed
    assert ("script", "<scripts>/shell was compiled, and is not") in changed
    assert ("script", "<scripts>/compiled is compiled, and was not") in changed
    assert compare.compare(old, old).differences == ()


def test_a_library_of_ours_that_is_gone(tmp_path: Path) -> None:
    """It is named as users find it, once for all its variants."""
    label, other = CPU, STABLE
    sides = []
    for name, libraries in (("old", ("libx.so", "liby.so")), ("new", ("libx.so",))):
        (tmp_path / name).mkdir()
        built = []
        for each in (label, other):
            files = {f"{each}/{library}": binary(exported=(library[:4],)) for library in libraries}
            built.append((wheels.variant(each, files), files))
        sides.append(wheels.ours(tmp_path / name, built))
    lost = ("file", "my_pkg/liby.so is gone: what opens or runs it by its path fails")
    assert told(compare.compare(*sides), "lost") == [lost]


def test_a_module_without_content_that_became_a_library(tmp_path: Path) -> None:
    """A module that only registered operators may go; one with functions may not."""
    for asked, verdict in ((("PyModule_Create2",), "changed"), (("PyModule_Create2", "PyLong_FromLong"), "lost")):
        folder = tmp_path / verdict
        folder.mkdir()
        module = binary("f(Tensor x) -> Tensor", exported=("PyInit__ops",), undefined=asked)
        old = setuptools_wheel(folder / "old", {"my_pkg/_ops.abi3.so": module})
        found = compare.compare(old, our_wheel(folder / "new"))
        assert [each.verdict for each in found.differences if each.subject == "my_pkg._ops"] == [verdict]


def test_metadata_in_the_words_of_two_backends(tmp_path: Path) -> None:
    """What setuptools and hatchling write in another way is the same; what is missing is named."""
    head = "Metadata-Version: 2.1\nName: my_pkg\nVersion: 1.0\n"
    one = (
        "Home-page: https://a.example/\nProject-URL: Source, https://a.example\nAuthor: A B\n"
        "Author-email: a@b.example\nLicense: MIT\nKeywords: x y\n"
        "Requires-Python: >=3.8,<4\nClassifier: A :: B\nProvides-Extra: all\nRequires-Dist: numpy>=1 ; extra == 'all'\n"
        "Requires-Dist: Py_Yaml\n"
    )
    other = (
        "Project-URL: homepage, https://a.example\nAuthor-email: A B <a@b.example>\nLicense-Expression: MIT\n"
        "Keywords: x,y\nRequires-Python: <4,>=3.8\nRequires-Dist: py-yaml\nRequires-Dist: torch>=2.8\n"
    )
    sides = []
    for name, fields in (("old", one), ("new", other)):
        metadata = {"my_pkg-1.0.dist-info/METADATA": (head + fields).encode()}
        sides.append(_with_metadata(tmp_path / name / "lib" / "python", metadata))
    found = compare.compare(*sides)
    assert told(found, "lost") == [
        ("extra", "the extra `all` is gone: `pip install my_pkg[all]` installs no further package"),
        ("metadata", "Classifier `A :: B` is not in the metadata any more"),
    ]
    renamed = "Project-URL `Source, https://a.example` is `Homepage, https://a.example`"
    assert told(found, "changed") == [("metadata", renamed)]
    assert told(found, "new") == [("requirement", "`torch>=2.8` is required")]


def _with_metadata(folder: Path, metadata: Mapping[str, bytes]) -> Path:
    """Return a distribution with these metadata, installed into ``folder``, and with a script two folders above."""
    info = folder / "my_pkg-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_bytes(next(iter(metadata.values())))
    (info / "WHEEL").write_text("Wheel-Version: 1.0\nTag: py3-none-any\n", encoding="utf-8")
    (info / "RECORD").write_text("my_pkg-1.0.dist-info/METADATA,,\n../../bin/x,,\n", encoding="utf-8")
    (folder / "../../bin").resolve().mkdir(exist_ok=True)
    (folder / "../../bin/x").write_text("", encoding="utf-8")
    return info


def test_pythons_and_platforms(tmp_path: Path) -> None:
    """A Python, a machine or a glibc that was served and is not any more is a loss."""
    old = setuptools_wheel(tmp_path / "old", name="my_pkg-1.0-cp39-abi3-manylinux_2_17_x86_64.whl")
    new = setuptools_wheel(tmp_path / "new", name="my_pkg-1.0-cp311-abi3-manylinux_2_28_x86_64.whl")
    assert told(compare.compare(old, new), "lost") == [
        ("python", "Python 3.9, 3.10 cannot install it any more"),
        (
            "platform",
            "it needs glibc 2.28 on Linux x86_64, and needed 2.17: systems between them cannot install it any more",
        ),
    ]
    everywhere = setuptools_wheel(tmp_path / "any", name="my_pkg-1.0-py3-none-any.whl")
    one = setuptools_wheel(tmp_path / "one", name="my_pkg-1.0-py3-none-manylinux_2_17_x86_64.whl")
    lost = ("platform", "it was for every machine, and is for Linux x86_64 only")
    assert told(compare.compare(everywhere, one), "lost") == [lost]
    assert told(compare.compare(one, everywhere), "lost") == []
    arm = setuptools_wheel(tmp_path / "arm", name="my_pkg-1.0-cp39-abi3-manylinux_2_17_aarch64.whl")
    assert told(compare.compare(old, arm), "lost") == [("platform", "Linux x86_64 cannot install it any more")]


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("(Tensor x) -> Tensor", "(Tensor x) -> Tensor", None),
        ("(Tensor x) -> Tensor", "(Tensor x, int k=1) -> Tensor", None),
        ("(Tensor x) -> Tensor", "(Tensor x, *, int[2] k=[1, 2]) -> Tensor", None),
        ("(Tensor x, str s='a,b') -> ()", "(Tensor x, str s='a,c') -> ()", None),
        ("(Tensor x) -> Tensor", "(Tensor x, int k) -> Tensor", "the new argument `k` has no default"),
        ("(Tensor x) -> Tensor", "(Tensor x) -> (Tensor, Tensor)", "it returns `(Tensor,Tensor)` in place of `Tensor`"),
        ("(Tensor x) -> Tensor", "(Tensor y) -> Tensor", "the argument `x` is gone"),
        ("(Tensor x) -> Tensor", "(Tensor? x) -> Tensor", None),
        ("(Tensor? x) -> Tensor", "(Tensor x) -> Tensor", "`x` is `Tensor` in place of `Tensor?`"),
        ("(Tensor(a!) x) -> ()", "(Tensor(a!)? x) -> ()", None),
        ("(int k) -> Tensor", "(SymInt k) -> Tensor", None),
        ("(int[2] k, int? n) -> Tensor", "(SymInt[2] k, SymInt? n) -> Tensor", None),
        ("(SymInt k) -> SymInt", "(int k) -> int", None),
        ("(float k) -> Tensor", "(Scalar? k) -> Tensor", None),
        ("(bool k) -> Tensor", "(Scalar k) -> Tensor", "`k` is `Scalar` in place of `bool`"),
        ("(int k) -> Tensor", "(float k) -> Tensor", "`k` is `float` in place of `int`"),
        ("(Tensor[] k) -> Tensor", "(Tensor?[] k) -> Tensor", "`k` is `Tensor?[]` in place of `Tensor[]`"),
        ("(Tensor x) -> Tensor", "(Tensor x) -> (Tensor)", None),
        ("(Tensor x) -> (Tensor, int)", "(Tensor x) -> (Tensor out, int n)", None),
        ("(Tensor x) -> Tensor?", "(Tensor x) -> Tensor", None),
        ("(Tensor x) -> Tensor", "(Tensor x) -> Tensor?", "it returns `Tensor?` in place of `Tensor`"),
        ("(Tensor x) -> ()", "(Tensor x) -> Tensor", "it returns `Tensor` in place of `()`"),
        ("(Tensor x, int k=1) -> Tensor", "(Tensor x, int k) -> Tensor", "`k` has no default any more"),
        ("(Tensor x, int k) -> Tensor", "(int k, Tensor x) -> Tensor", "`x` is at another place"),
        ("(Tensor x, int k) -> Tensor", "(Tensor x, *, int k) -> Tensor", "`k` is at another place"),
    ],
)
def test_schemas(old: str, new: str, why: str | None) -> None:
    """An operator may get arguments with a default, take more, return less: programs are saved with the old schema."""
    assert schemas.breaks(old, new) == why


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("(Tensor x) -> Tensor", True),
        ("() -> ()", True),
        ("(Tensor(a!) x, int[2] k=[1, 2], *, str? s=None) -> (Tensor(a!), int[] n)", True),
        ("(Dict(str, Tensor) d, __torch__.torch.classes.a.B b, Tensor?[] l) -> Tensor[]", True),
        ("(Tensor x) sor x) -> Tensor", False),
        ("(Tensor x) -> Tensor\x01\x1b", False),
        ("(Tensor, x) -> Tensor", False),
    ],
)
def test_texts_that_are_no_schema(text: str, *, whole: bool) -> None:
    """Compilers keep a short text as two halves that overlap: such a mixture is not taken for a schema."""
    assert schemas.is_whole(text) is whole


def test_a_schema_that_breaks_saved_programs_is_lost(tmp_path: Path) -> None:
    """A new default is a change, a new argument without one is a loss; the message has both schemas."""
    old = setuptools_wheel(tmp_path / "old", {"my_pkg/libops.so": binary("my_pkg::f(Tensor x) -> Tensor")})
    for number, (schema, verdict) in enumerate(
        (("(Tensor x, int k=1) -> Tensor", "changed"), ("(Tensor x, int k) -> Tensor", "lost"))
    ):
        new = setuptools_wheel(tmp_path / str(number), {"my_pkg/libops.so": binary(f"my_pkg::f{schema}")})
        row = next(each for each in compare.compare(old, new).differences if each.topic == "operator")
        assert (row.verdict, row.subject, row.old, row.new) == (verdict, "my_pkg::f", "(Tensor x) -> Tensor", schema)
        assert row.message.startswith(f"my_pkg::f was `f(Tensor x) -> Tensor`, and is `f{schema}`")


SCHEMA = "my_pkg::nearest(Tensor points, Tensor queries, float radius) -> (Tensor, Tensor)"


def in_parts(text: str) -> list[str]:
    """Return a text as a compiler keeps one that it copies: constants of 16 bytes, the last of them overlapping."""
    parts = [text[at : at + 16] for at in range(0, len(text) - 15, 16)]
    return sorted({*parts, text[-16:]}, reverse=True)


def test_a_schema_that_a_compiler_keeps_in_parts(tmp_path: Path) -> None:
    """An operator whose text is in parts is neither lost nor new; one with other arguments was not compared."""
    whole = setuptools_wheel(tmp_path / "whole", {"my_pkg/libops.so": binary(SCHEMA)})
    same, other, none = (
        setuptools_wheel(tmp_path / name, {"my_pkg/libops.so": binary(*texts)})
        for name, texts in (
            ("same", in_parts(SCHEMA)),
            ("other", in_parts(SCHEMA.replace("float radius", "int k"))),
            ("none", in_parts("my_pkg::neighbours(Tensor points, Tensor queries) -> Tensor")),
        )
    )

    def operators(old: Path, new: Path) -> list[tuple[str, str]]:
        rows = [each for each in compare.compare(old, new).differences if each.topic == "operator"]
        return [(each.verdict, each.message.removeprefix("torch.ops.my_pkg.nearest")) for each in rows]

    assert operators(whole, same) == operators(same, whole) == []
    ((verdict, message),) = operators(whole, other)
    assert verdict == "changed"
    assert message.startswith(": its schema is in the new files in parts")
    assert operators(whole, none) == [("lost", " is gone: programs that were saved with it cannot be loaded")]


def test_variants_of_two_releases(tmp_path: Path) -> None:
    """Of two wheels of ours, a variant that is gone is a loss: its users have no wheel any more."""
    old, new = ({f"{label}/libx.so": binary()} for label in (CPU, STABLE))
    (tmp_path / "old").mkdir()
    (tmp_path / "new").mkdir()
    found = compare.compare(
        wheels.ours(tmp_path / "old", [(wheels.variant(CPU, old), old)]),
        wheels.ours(tmp_path / "new", [(wheels.variant(STABLE, new), new)]),
    )
    assert told(found, "lost") == [("variant", f"the variant {CPU} is gone")]
    assert told(found, "new") == [("variant", f"the variant {STABLE}")]


def sdist(folder: Path, files: Mapping[str, str], *, name: str = "my_pkg-1.0") -> Path:
    """Return an sdist of ``files``."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for place, content in files.items():
            member = tarfile.TarInfo(f"{name}/{place}")
            member.size = len(content.encode())
            archive.addfile(member, io.BytesIO(content.encode()))
    return path


INFO = "Metadata-Version: 2.1\nName: my_pkg\nVersion: 1.0\nRequires-Dist: torch<2.10,>=2.8\n"


def test_sdists(tmp_path: Path) -> None:
    """Files and commands of two sdists; an sdist beside a wheel is compared by its metadata, and that is reported."""
    old = sdist(tmp_path / "old", {"PKG-INFO": INFO, "csrc/a.h": "", "my_pkg.egg-info/entry_points.txt": ENTRY_POINTS})
    project = '[project.scripts]\nmy-tool = "my_pkg.tools:main"\n'
    new = sdist(tmp_path / "new", {"PKG-INFO": INFO, "pyproject.toml": project})
    found = compare.compare(old, new)
    assert told(found, "lost") == [("file", "csrc/a.h is gone")]
    assert told(found, "new") == [("file", "pyproject.toml")]
    assert compare.compare(old, setuptools_wheel(tmp_path)).notes == (
        "one of the two is an sdist: files, modules and operators were not compared",
    )


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit status 1 for a loss and 0 for none; ``--json`` has the documented shape."""
    old = setuptools_wheel(tmp_path / "old")
    new = setuptools_wheel(tmp_path / "new", {"my_pkg/tools.py": b"def main(): ...\n"})
    bare = setuptools_wheel(tmp_path / "bare", {"my_pkg-1.0.dist-info/entry_points.txt": b""})
    assert cli.main(["compare", str(old), str(new)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "1 changed"
    assert cli.main(["compare", str(old), str(old)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "no difference"
    assert cli.main(["compare", str(old), str(bare), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert sorted(found) == ["counts", "differences", "format", "left_out", "new", "notes", "old"]
    assert (found["format"], found["counts"], found["left_out"]) == (1, {"lost": 1, "changed": 0, "new": 0}, 0)
    assert found["differences"] == [
        {
            "verdict": "lost",
            "topic": "entry point",
            "subject": "console_scripts: my-tool",
            "message": "the command `my-tool` (my_pkg.tools:main) is gone",
            "old": "my_pkg.tools:main",
            "new": None,
        }
    ]
    assert (found["old"]["kind"], found["old"]["modules"], found["old"]["compiled"]) == ("wheel", 3, 2)


@pytest.mark.performs("Build or fetch the distribution again", "Build or fetch the sdist again", "Give a wheel (.whl)")
@pytest.mark.parametrize(
    ("make", "words"),
    [
        pytest.param(lambda folder: folder / "a-1.0-py3-none-any.whl", "no such file", id="missing"),
        pytest.param(lambda folder: folder / "x" / "a.tar.gz", "no such file", id="missing-sdist"),
        pytest.param(lambda folder: _file(folder / "a-1.0-py3-none-any.whl"), "is not a zip archive", id="no-wheel"),
        pytest.param(lambda folder: _file(folder / "a.txt"), "is neither a wheel nor an sdist, by its name", id="text"),
        pytest.param(lambda folder: _file(folder / "a-1.tar.gz"), "is not a tar archive, or is damaged", id="no-tar"),
        pytest.param(lambda folder: sdist(folder, {"a": ""}), "has no PKG-INFO with Name and Version", id="no-sdist"),
        pytest.param(lambda folder: folder, "is a folder without a .dist-info folder", id="folder"),
        pytest.param(lambda _: "no-such-distribution", "nor a distribution that is installed for", id="name"),
        pytest.param(
            lambda folder: wheels.write(folder, {"a.py": b""}, record="a.py,sha256=x,1\n"),
            "a.py: its sha256 is .* Build or fetch the wheel again",
            id="damaged",
        ),
        pytest.param(
            lambda folder: wheels.write(folder, {"a.py": b""}, record="b.py,,\n"),
            "b.py: RECORD lists the file, but it is not in the wheel",
            id="incomplete",
        ),
    ],
)
def test_bad_input(tmp_path: Path, make: object, words: str) -> None:
    """What is none of the three, or damaged, is refused in a sentence that names it; what it says to give is taken."""
    new = setuptools_wheel(tmp_path / "new")
    with pytest.raises(WheelError, match=words):
        compare.compare(make(tmp_path), new)  # type: ignore[operator]
    for given in (setuptools_wheel(tmp_path / "again"), sdist(tmp_path / "sdist", {"PKG-INFO": INFO}), "packaging"):
        assert compare.compare(given, new).new.place == str(new)


@pytest.mark.performs("Give one of the .dist-info folders", "Install the distribution again", "Install it by pip or uv")
def test_a_folder_of_several_distributions(tmp_path: Path) -> None:
    """One of its .dist-info folders is given; an installation that lacks a file, or a RECORD, is installed again."""
    folder = tmp_path / "lib" / "python"
    (folder / "other-1.dist-info").mkdir(parents=True)
    info = _with_metadata(folder, {"": b"Name: a\nVersion: 1\n"})
    with pytest.raises(WheelError, match=r"holds 2 distributions .* Give one of the .dist-info folders"):
        compare.compare(folder, folder)
    assert compare.compare(info, info).differences == ()
    with pytest.raises(WheelError, match="has no RECORD"):
        compare.compare(folder / "other-1.dist-info", info)
    kept = (info / "METADATA").read_bytes()
    (info / "METADATA").unlink()
    with pytest.raises(WheelError, match=r"RECORD lists my_pkg-1.0.dist-info/METADATA, but it is not there"):
        compare.compare(info, info)
    (info / "METADATA").write_bytes(kept)
    assert compare.compare(info, info).differences == ()


def _file(path: Path) -> Path:
    path.write_text("text", encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "written", ['{"url":"file:///a","dir_info":{"editable":false}}', '{"dir_info": {}}', "[]", "{"]
)
def test_an_installation_from_a_folder(tmp_path: Path, written: str) -> None:
    """It has its files, and is compared as any other."""
    info = _with_metadata(tmp_path / "lib" / "python", {"": b"Name: my_pkg\nVersion: 1.0\n"})
    (info / "direct_url.json").write_text(written, encoding="utf-8")
    assert compare.compare(info, info).differences == ()


def test_a_part_of_a_wheel(tmp_path: Path) -> None:
    """A part lacks entries by design: it is merged first."""
    files = {f"{CPU}/libx.so": binary()}
    partial = {
        "entries": ["matrix.2.8", "matrix.2.9"],
        "built": ["matrix.2.8"],
        "sources": "0" * 64,
        "configuration": "0" * 64,
        "builder": "0" * 64,
        "machines": [],
    }
    path = wheels.ours(tmp_path, [(wheels.variant(CPU, files), files)], partial=partial)
    with pytest.raises(WheelError, match=r"is a part of a wheel; it lacks matrix.2.9. Merge the parts first"):
        compare.compare(path, path)


@pytest.mark.parametrize(
    "written", ['{"dir_info": {"editable": true}}', '{"url":"file:///a","dir_info":{"editable":true}}']
)
def test_an_editable_installation(tmp_path: Path, written: str) -> None:
    """Its files are in the project: the wheel is compared. pip and uv write the JSON in their own ways."""
    info = _with_metadata(tmp_path / "lib" / "python", {"": b"Name: a\nVersion: 1\n"})
    (info / "direct_url.json").write_text(written, encoding="utf-8")
    with pytest.raises(WheelError, match=r"is an editable installation, .* Compare its wheel"):
        compare.compare(info, info)
    assert compare.compare(setuptools_wheel(tmp_path), setuptools_wheel(tmp_path)).differences == ()
