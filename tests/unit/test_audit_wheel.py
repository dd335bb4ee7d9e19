"""The audit of whole wheels: RECORD, manifest, tags, sizes; ours and foreign ones; files that are broken on purpose."""

from __future__ import annotations

import json
import re
import zipfile
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import elves
import wheels
from hatch_torch_ext import audit
from hatch_torch_ext.audit import loading
from hatch_torch_ext.base.errors import ConfigurationError, WheelError

if TYPE_CHECKING:
    from collections.abc import Mapping

LABEL = "torch2.8_cpu_cxx11_x86_64"
MANIFEST = "my_pkg/_torch_ext/manifest.json"


def library(**parts: Any) -> bytes:
    """Return a library as the build hook makes it."""
    return elves.shared_object(
        **{
            "needed": ("libc10.so", "libtorch_cpu.so", "libc.so.6"),
            "runpath": "$ORIGIN/../../../torch/lib:$ORIGIN/../../../../torch/lib",
            "versions": {"libc.so.6": ("GLIBC_2.14",)},
            **parts,
        }
    )


def ours(folder: Path, *, label: str = LABEL, extra: Mapping[str, bytes] | None = None, **parts: Any) -> Path:
    """Write a wheel with one variant that holds one library."""
    files = {f"{label}/libmy_ops.so": library(**parts)}
    return wheels.ours(folder, [(wheels.variant(label, files), files)], extra=extra)


def found(path: Path, **options: Any) -> list[tuple[str, str, str]]:
    """Return code, file and message of every finding."""
    return [(item.code, item.file, item.message) for item in audit.audit_wheel(path, **options)]


def rewrite(path: Path, changes: Mapping[str, bytes | None]) -> Path:
    """Change or remove members of a wheel behind RECORD's back."""
    with zipfile.ZipFile(path) as source:
        kept = {name: source.read(name) for name in source.namelist()}
    with zipfile.ZipFile(path, "w") as target:
        for name, data in {**kept, **changes}.items():
            if data is not None:
                target.writestr(name, data)
    return path


def manifest(path: Path) -> dict[str, Any]:
    """Return the manifest of a wheel."""
    with zipfile.ZipFile(path) as archive:
        content: dict[str, Any] = json.loads(archive.read(MANIFEST))
    return content


def test_a_wheel_of_ours_is_clean(tmp_path: Path) -> None:
    """A wheel as the build hook makes it has no findings."""
    assert found(ours(tmp_path)) == []


def test_a_wheel_without_torch_is_clean(tmp_path: Path) -> None:
    """Pure Python wheels and others that have nothing to do with torch are fine."""
    assert found(wheels.write(tmp_path, {"a/__init__.py": b""}, name="a-1-py3-none-any.whl", pure=True)) == []


def test_a_variant_that_is_not_there(tmp_path: Path) -> None:
    """A file that the manifest lists and the wheel lacks is found for its variant, and in RECORD."""
    path = rewrite(ours(tmp_path), {f"my_pkg/_torch_ext/{LABEL}/libmy_ops.so": None})
    findings = audit.audit_wheel(path)
    assert [(item.code, item.variant) for item in findings] == [
        ("record-missing-file", None),
        ("manifest-missing-file", LABEL),
    ]
    assert findings[1].message == f"variant {LABEL} needs the file, says {MANIFEST}, but it is not in the wheel"


def test_files_that_the_manifest_does_not_know(tmp_path: Path) -> None:
    """A file below _torch_ext that no variant lists is found, however harmless."""
    path = ours(tmp_path, extra={"my_pkg/_torch_ext/old/readme.txt": b"x"})
    message = "is below my_pkg/_torch_ext/, but my_pkg/_torch_ext/manifest.json does not list it"
    assert found(path) == [("manifest-unknown-file", "my_pkg/_torch_ext/old/readme.txt", message)]


def test_a_file_with_another_hash(tmp_path: Path) -> None:
    """A library that was changed after the build is found by the manifest's hash and by RECORD's."""
    place = f"my_pkg/_torch_ext/{LABEL}/libmy_ops.so"
    codes = [(code, file) for code, file, _ in found(rewrite(ours(tmp_path), {place: library(data=b"changed")}))]
    assert codes == [("manifest-hash", place), ("record-hash", place)]


def test_package_files_are_held_against_the_manifest(tmp_path: Path) -> None:
    """What CMake installed for the package as a whole is listed with its hash too."""
    path = ours(tmp_path, extra={"my_pkg/a.h": b"int a;"})
    content = manifest(path)
    content["package_files"] = [{"target": "a.h", "sha256": "0" * 64}, {"target": "b.h", "sha256": "1" * 64}]
    codes = {(code, file) for code, file, _ in found(rewrite(path, {MANIFEST: json.dumps(content).encode()}))}
    assert codes == {
        ("record-hash", MANIFEST),
        ("manifest-hash", "my_pkg/a.h"),
        ("manifest-missing-file", "my_pkg/b.h"),
    }


@pytest.mark.performs("the wheel again")
def test_a_wheel_that_is_built_again(tmp_path: Path) -> None:
    """Whatever was done to a wheel behind its RECORD and manifest: built again, it has no findings."""
    place = f"my_pkg/_torch_ext/{LABEL}/libmy_ops.so"
    changes: dict[str, dict[str, bytes | None]] = {
        "record-missing-file": {"my_pkg/_variants.py": None},
        "record-unknown-file": {"my_pkg/new.py": b""},
        "manifest-hash": {place: library(data=b"changed")},
        "manifest-missing-file": {place: None},
        "manifest-unknown-file": {"my_pkg/_torch_ext/new": b""},
        "manifest-invalid": {MANIFEST: b"{"},
        "unreadable-file": {place: SMALL[:100]},
    }
    for code, change in changes.items():
        remedies = {each.code: each.remedy for each in audit.audit_wheel(rewrite(ours(tmp_path), change))}
        assert remedies[code] == "Build the wheel again, and change nothing in it afterwards."
        assert found(ours(tmp_path)) == []


def test_a_file_that_merge_moved(tmp_path: Path) -> None:
    """The manifest's places say where a file of several variants is."""
    files = {f"{LABEL}/libmy_ops.so": library()}
    path = wheels.ours(tmp_path, [(wheels.variant(LABEL, files), files)])
    content = manifest(path)
    content["variants"][0]["places"] = {f"{LABEL}/libmy_ops.so": "_torch_ext/shared/abc/libmy_ops.so"}
    moved = {
        MANIFEST: json.dumps(content).encode(),
        f"my_pkg/_torch_ext/{LABEL}/libmy_ops.so": None,
        "my_pkg/_torch_ext/shared/abc/libmy_ops.so": files[f"{LABEL}/libmy_ops.so"],
    }
    assert {code for code, _, _ in found(rewrite(path, moved))} == {
        "record-hash",
        "record-missing-file",
        "record-unknown-file",
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"{", "is not JSON"),
        (b"[]", "must be an object with a list `variants`"),
        (b'{"variants": [3]}', "variant 1 must be an object, not int"),
        (b'{"variants": [{"places": 3}]}', "variant 1: `places` must map paths to paths"),
        (b'{"variants": [{"label": "x"}]}', "variant lacks the field `torch`"),
        (b'{"variants": [], "package_files": [1]}', "file 1 of `package_files` must have a `target` and a `sha256`"),
        (b"[" * 100_000, "is not JSON"),
        (b"\xff\xfe", "is not JSON"),
    ],
)
def test_manifests_that_are_none(text: bytes, message: str, tmp_path: Path) -> None:
    """A manifest that is not JSON, or has another shape, is one finding that says where."""
    path = wheels.write(tmp_path, {MANIFEST: text})
    ((code, file, told),) = found(path)
    assert (code, file) == ("manifest-invalid", MANIFEST)
    assert told.startswith(message)


def test_a_variant_twice(tmp_path: Path) -> None:
    """Two variants of one label cannot be told apart."""
    files = {f"{LABEL}/libmy_ops.so": library()}
    variant = wheels.variant(LABEL, files)
    path = wheels.ours(tmp_path, [(variant, files), (variant, files)])
    assert ("manifest-invalid", MANIFEST, f"lists the variant {LABEL} twice") in found(path)


def test_faults_name_their_variant(tmp_path: Path) -> None:
    """A finding on a file has the label of its variant; a stable-ABI variant is checked by its own rules."""
    label = "stable2.10_cpu_x86_64"
    files = {f"{label}/libmy_ops.so": library(undefined=("_ZN2at5emptyEv",))}
    variant = wheels.variant(label, files, torch="2.10", stable_abi=True, cxx11_abi=None)
    (item,) = audit.audit_wheel(wheels.ours(tmp_path, [(variant, files)]))
    assert (item.code, item.variant) == ("unstable-symbol", label)


@pytest.mark.performs("or name the wheel by the policy that is really met")
def test_a_tag_below_the_symbols(tmp_path: Path) -> None:
    """CASE 14: a tag that promises less than the files need is found, naming symbol and version."""
    data = library(undefined=("pthread_create",), versions={"libc.so.6": ("GLIBC_2.17", "GLIBC_2.34")})
    path = wheels.write(tmp_path, {"my_pkg/lib.so": data}, name="my_pkg-1.0-cp311-cp311-manylinux_2_17_x86_64.whl")
    assert (
        "policy-too-low",
        "my_pkg/lib.so",
        "needs GLIBC_2.34, but the wheel is tagged manylinux_2_17_x86_64",
    ) in found(path)
    met = path.rename(path.with_name("my_pkg-1.0-cp311-cp311-manylinux_2_34_x86_64.whl"))
    assert not [code for code, _, _ in found(met) if code == "policy-too-low"]


def test_symbols_beyond_every_policy(tmp_path: Path) -> None:
    """A wheel tagged plain linux promises nothing; symbols beyond every policy are a finding all the same."""
    library = elves.shared_object(needed=("libc.so.6",), versions={"libc.so.6": ("GLIBC_2.17", "GLIBC_2.999")})
    path = wheels.write(tmp_path, {"a/x.so": library}, name="a-1-py3-none-linux_x86_64.whl")
    assert found(path) == [
        ("no-policy", "a/x.so", "needs GLIBC_2.999, which no policy of manylinux or musllinux promises")
    ]


@pytest.mark.performs("Name the wheel by the platform", "then its WHEEL file says")
def test_binaries_in_a_wheel_for_any_platform(tmp_path: Path) -> None:
    """A compiled file in a wheel that says `any`, or that says it is pure, is found."""
    path = wheels.write(tmp_path, {"a/lib.so": elves.shared_object()}, name="a-1-py3-none-any.whl", pure=True)
    assert found(path) == [
        ("wheel-tag", path.name, "is tagged for any platform, but holds a/lib.so for x86_64"),
        ("wheel-tag", path.name, "says Root-Is-Purelib: true, but holds compiled files"),
    ]
    (item,) = audit.audit_wheel(path.rename(path.with_name("a-1-py3-none-linux_x86_64.whl")))
    (line,) = re.findall(r"Root-Is-Purelib: \w+", item.remedy)
    assert line == "Root-Is-Purelib: false"
    name = "a-1-py3-none-linux_x86_64.whl"
    assert found(wheels.write(tmp_path, {"a/lib.so": elves.shared_object()}, name=name, pure=False)) == []


@pytest.mark.performs("Build it for the machine")
def test_the_wrong_machine(tmp_path: Path) -> None:
    """A file for another machine than the wheel's tag is found; one wheel may name several tags."""
    path = wheels.write(
        tmp_path, {"a/lib.so": elves.shared_object(machine="aarch64")}, name="a-1-py3-none-manylinux_2_28_x86_64.whl"
    )
    assert found(path) == [("wrong-machine", "a/lib.so", "is for aarch64, but it is packed for x86_64")]
    right = {"a/lib.so": elves.shared_object(machine="x86_64")}
    assert found(wheels.write(tmp_path, right, name=path.name)) == []


@pytest.mark.performs("raise `max-size`")
def test_a_wheel_over_its_budget(tmp_path: Path) -> None:
    """CASE 16: over `max-size`, the largest parts are named."""
    noise = bytes((value * value * 7919 >> 5) & 255 for value in range(300_000))
    path = wheels.write(tmp_path, {"a/big.bin": noise, "a/small.bin": noise[:1000]}, name="a-1-py3-none-any.whl")
    ((code, file, message),) = found(path, max_size=1000)
    assert (code, file) == ("size", path.name)
    told = r"is \d\.\d kB, over the budget of 1\.0 kB; the largest parts are a/big\.bin \(\d\.\d kB\), "
    assert re.match(told, message)
    assert found(path, max_size=10_000_000) == []
    less = wheels.write(tmp_path, {"a/small.bin": noise[:100]}, name="a-1-py3-none-any.whl")
    assert found(less, max_size=1000) == []


def test_elf_by_name_only_and_by_bytes_only(tmp_path: Path) -> None:
    """A text called .so is a finding; an ELF file is read whatever its name."""
    path = wheels.write(
        tmp_path,
        {
            "a/lib.so": b"INPUT(libfoo.so)",
            "a/weights.bin": elves.shared_object(rpath="/opt/x"),
            "a/cut.so": b"\x7fELF\x02",
        },
        name="a-1-py3-none-manylinux_2_28_x86_64.whl",
    )
    assert [(code, file) for code, file, _ in found(path)] == [
        ("unreadable-file", "a/cut.so"),
        ("unreadable-file", "a/lib.so"),
        ("rpath", "a/weights.bin"),
    ]
    told = {file: message for code, file, message in found(path) if code == "unreadable-file"}
    assert told["a/lib.so"] == "is named as a shared library, but is not an ELF file"
    assert told["a/cut.so"].startswith("a/cut.so cannot be read as an ELF file: ")


def test_ignored_and_unknown_codes(tmp_path: Path) -> None:
    """Codes can be ignored; an unknown one is an error before the wheel is read."""
    path = ours(tmp_path, rpath="/opt/x")
    assert found(path, ignore=["rpath"]) == []
    with pytest.raises(ConfigurationError, match="There is no audit code `nonsense` to ignore"):
        audit.audit_wheel(tmp_path / "missing-1-py3-none-any.whl", ignore=["nonsense"])


SMALL = library(undefined=("_ZN3c105ErrorE",), exported=("PyInit__C",), soname="libsmall.so")


def test_cut_at_every_byte(tmp_path: Path) -> None:
    """An ELF file that ends early, wherever it was cut, is findings and nothing worse."""
    members = {f"a/{length:04}.so": SMALL[:length] for length in range(0, len(SMALL), 3)}
    path = wheels.write(tmp_path, members, name="a-1-py3-none-manylinux_2_28_x86_64.whl")
    codes = {code for code, _, _ in found(path)}
    assert "unreadable-file" in codes


@settings(max_examples=100)
@given(st.lists(st.tuples(st.integers(4, len(SMALL) - 1), st.integers(0, 255)), min_size=1, max_size=10))
def test_changed_bytes_of_an_elf_file(changes: list[tuple[int, int]]) -> None:
    """Whatever bytes of an ELF file are changed: findings, or none; never an exception."""
    data = bytearray(SMALL)
    for at, value in changes:
        data[at] = value
    with TemporaryDirectory() as folder:
        path = wheels.write(Path(folder), {"a/x.so": bytes(data)}, name="a-1-cp311-cp311-manylinux_2_28_x86_64.whl")
        for item in audit.audit_wheel(path):
            assert folder not in str(item)


@settings(max_examples=60)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(
                st.sampled_from(["variants", "places", "label", "files", "package_files", "torch"]), inner
            )
        ),
    )
)
def test_any_json_as_manifest(content: object) -> None:
    """The manifest may hold any JSON."""
    with TemporaryDirectory() as folder:
        path = wheels.write(Path(folder), {MANIFEST: json.dumps(content).encode()})
        assert {item.code for item in audit.audit_wheel(path)} <= {"manifest-invalid"}


def test_what_is_not_a_wheel(tmp_path: Path) -> None:
    """What cannot be read as a wheel at all is one error."""
    path = tmp_path / "a-1-py3-none-any.whl"
    path.write_bytes(b"nothing")
    with pytest.raises(WheelError, match="is not a zip archive, or its end is missing"):
        audit.audit_wheel(path)


LOADS = b"from my_pkg import _variants\n\n_variants.load()\n"


@pytest.mark.performs("Write `from")
@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (
            {"my_pkg/__init__.py": b"import torch\n", "my_pkg/_variants.py": b"_variants"},
            "loads no variant, and no other Python file does: `import my_pkg` registers no operator",
        ),
        ({"my_pkg/__init__.py": b"", "my_pkg/ops.py": b"from my_pkg._variants import load"}, None),
        ({"my_pkg/__init__.py": LOADS}, None),
    ],
)
def test_a_package_that_forgets_to_load(extra: dict[str, bytes], message: str | None, tmp_path: Path) -> None:
    """CASE 51: a warning with the lines to write; what the remedy says makes it vanish."""
    data = library()
    path = wheels.ours(tmp_path, [(wheels.variant("l", {"l/libx.so": data}), {"l/libx.so": data})], extra=extra)
    findings = [item for item in audit.audit_wheel(path) if item.code == "never-loaded"]
    assert [(item.file, item.message, item.warning) for item in findings] == (
        [("my_pkg/__init__.py", message, True)] if message else []
    )
    for item in findings:
        lines = re.findall("`([^`]+)`", item.remedy)
        assert lines == ["from my_pkg import _variants", "_variants.load()"]
        mended = {**extra, item.file: "\n".join(lines).encode()}
        path = wheels.ours(tmp_path, [(wheels.variant("l", {"l/libx.so": data}), {"l/libx.so": data})], extra=mended)
        assert "never-loaded" not in {item.code for item in audit.audit_wheel(path)}


def unregistered(
    tmp_path: Path, text: str, *, data: bytes = b"", sources: Path | None = None, **fields: Any
) -> list[str]:
    """Return what `not-registered` says of a wheel with this Python file and one library with ``data``."""
    elf = library(data=b"\0" + data + b"\0")
    described = wheels.variant("l", {"l/libx.so": elf})
    file = replace(described.files[0], **fields)
    extra = {"my_pkg/__init__.py": LOADS, "my_pkg/ops.py": text.encode()}
    path = wheels.ours(tmp_path, [(replace(described, files=(file,)), {"l/libx.so": elf})], extra=extra)
    found = audit.audit_wheel(path, sources=sources)
    assert {each.warning for each in found if each.code == "not-registered"} <= {True}
    return [f"{each.file}: {each.message}" for each in found if each.code == "not-registered"]


@pytest.mark.parametrize(
    ("text", "fields", "told"),
    [
        ("", {"registers": False}, True),
        ("", {"registers": True}, False),
        ("", {"registers": False, "unopened": True}, False),
        ("", {"registers": False, "kind": "program"}, False),
        ("", {"registers": False, "module": "_C"}, False),
        ("ctypes.CDLL(_variants.path('libx.so'))", {"registers": False}, False),
    ],
)
def test_a_variant_that_registers_nothing(text: str, fields: dict[str, Any], told: bool, tmp_path: Path) -> None:  # noqa: FBT001  a parameter
    """CASE 73: `load()` has nothing to open, and nothing else uses the library."""
    message = "my_pkg/__init__.py: loads nothing: no file of l registers operators or classes with torch (libx.so)"
    assert unregistered(tmp_path, text, **fields) == ([message] if told else [])


@pytest.mark.parametrize(
    ("text", "data", "told"),
    [
        ("import torch\ntorch.ops.my_pkg.add(x)", b"other", "my_pkg`, which no file of l registers"),
        ("import torch\ntorch.ops.my_pkg.add(x)", b"my_pkg\0add", None),
        ("import torch\ntorch.ops.my_pkg.add(x)", b"_ZNO3c1017RegisterOperators2opE", None),
        ("import torch\ntorch.ops.my_pkg.add(x)", b"my_pkg\0add.out(Tensor x) -> Tensor", None),
        ("import torch\ntorch.ops.my_pkg.add(x)", b"my_pkg\0badd", "my_pkg.add`, which no file of any variant defines"),
        ("import torch\ntorch.ops.of_source.add(x)", b"other", "of_source`, which no file of l registers"),
        ("import torch\ntorch.ops.another.add(x)", b"other", None),
        ("lib = Library('my_pkg', 'DEF')\ntorch.ops.my_pkg.add", b"other", None),
        ("lib = Library('my_pkg', 'IMPL')\ntorch.ops.my_pkg.add", b"other", "my_pkg`, which no file of l registers"),
        ('@custom_op("my_pkg::add", mutates_args=())\ntorch.ops.my_pkg.add', b"other", None),
        ('@register_fake("my_pkg::add")\ntorch.ops.my_pkg.add', b"other", "my_pkg`, which no file of l registers"),
        ("@custom_op(NAME + '::add')\ntorch.ops.my_pkg.add", b"other", None),
    ],
)
def test_what_no_file_registers(text: str, data: bytes, told: str | None, tmp_path: Path) -> None:
    """CASE 73: of the package's own namespaces, by its name or by its C++ files; others may come from elsewhere."""
    (tmp_path / "csrc").mkdir()
    (tmp_path / "csrc" / "ops.cpp").write_text("TORCH_LIBRARY_FRAGMENT( of_source, m) {}\nTORCH_LIBRARY(more, m) {}")
    message = f"my_pkg/ops.py: line 2 names `torch.ops.{told}"
    assert unregistered(tmp_path, text, data=data, sources=tmp_path / "csrc") == ([message] if told else [])


def test_a_namespace_that_is_not_a_text_of_the_file(tmp_path: Path) -> None:
    """Compilers put a short one into instructions; the build saw it registered."""
    text = "import torch\ntorch.ops.my_pkg.add(x)"
    assert unregistered(tmp_path, text, data=b"add(Tensor x)", namespaces=("my_pkg",)) == []


def test_sources_of_others_declare_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Build folders, environments and hidden folders are not of the project, and do not count; a link leads nowhere."""
    monkeypatch.setattr("hatch_torch_ext.audit.loading.MAX_SOURCES", 1)
    text = 'TORCH_LIBRARY(of_source, m) { m.def("add"); }'
    others = {".git": "", ".venv/include": "", "env": "pyvenv.cfg", "build/_deps": "", "cmake-debug": "CMakeCache.txt"}
    for folder, sign in others.items():
        (tmp_path / "p" / folder / "sub").mkdir(parents=True)
        (tmp_path / "p" / folder / sign).touch()
        (tmp_path / "p" / folder / "sub" / "ops.cpp").write_text(text)
    for number in range(3):
        (tmp_path / "p" / f"a{number}.txt").touch()
    (tmp_path / "p" / "gone.cpp").symlink_to("nowhere")
    use = "import torch\ntorch.ops.of_source.add(x)"
    assert unregistered(tmp_path, use, data=b"other", sources=tmp_path / "p") == []
    (tmp_path / "p" / "zz.tpp").write_text(text)
    assert len(unregistered(tmp_path, use, data=b"other", sources=tmp_path / "p")) == 1


def imported(
    files: dict[str, str], modules: tuple[str, ...] = (), elsewhere: tuple[str, ...] = ()
) -> list[tuple[str, str]]:
    """Return code and message of what the Python files of `my_pkg` (name -> text) import and open."""
    texts = {f"my_pkg/{name}.py": text for name, text in {"__init__": "", **files}.items()}
    found = loading.check_imported("my_pkg", texts, modules=modules, elsewhere=elsewhere)
    return [(each.code, each.message) for each in found]


@pytest.mark.parametrize(
    ("line", "missing"),
    [
        ("from . import _C", "my_pkg._C"),
        ("from my_pkg import _C as native", "my_pkg._C"),
        ("import my_pkg._C", "my_pkg._C"),
        ("from ._C import add", "my_pkg._C"),
        ("from my_pkg.gone import add", "my_pkg.gone"),
        ("from .gone.deeper import add", "my_pkg.gone.deeper"),
        ("from . import sub, _variants, name, _core", None),
        ("from .sub.deep import f", None),
        ("from .sub import from_star, deep", None),
        ("try:\n    from . import _C\nexcept ImportError:\n    _C = None", None),
        ("def f():\n    from . import _C", None),
        ("import torch.gone, another", None),
        ("import _core", "_core"),
        ("from ._core import anything", None),
    ],
)
def test_modules_that_nothing_has(line: str, missing: str | None) -> None:
    """`import my_pkg` fails at a module that is not a file of the package and in no variant."""
    files = {"use": line, "name": "", "sub/__init__": "from math import *", "sub/deep": "def f(): ..."}
    found = imported(files, ("_core",))
    where = "is `my_pkg._core` in the wheel" if missing == "_core" else "neither the package nor a variant has"
    assert found == ([("missing-module", f"line 1 imports `{missing}`, which {where}")] if missing else [])


def test_names_of_a_package_are_no_modules() -> None:
    """What `__init__` binds may be imported of it: by assignment, import, definition, or by a `__getattr__`."""
    binds = "from .a import x\nimport b.c\nfrom . import _C as d\ne: int = 1\ndef f(): ...\n"
    wanted = "from . import x, b, d, e, f"
    assert imported({"__init__": binds, "a": "x = 1", "use": wanted}, ("_C",)) == []
    assert imported({"__init__": "def __getattr__(name): ...", "use": "from . import _C"}) == []
    assert imported({"__init__": "import sys\nsys.modules['my_pkg.x.y'] = z", "use": "from .x.y import moved"}) == []
    assert imported({"__init__": "from .use import __doc__, __file__", "use": ""}) == []
    assert imported({"use": "from . import _C"}, elsewhere=("my_pkg/_C.cpython-311-x86_64-linux-gnu.so",)) == []


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('torch.ops.load_library(Path(__file__).with_name("libx.so"))', 1),
        ('here = Path(__file__).parent\nfor each in here.glob("*.so"):\n    torch.ops.load_library(each)', 3),
        ("def place():\n    return os.path.dirname(__file__)\nlib = ctypes.CDLL(os.path.join(place(), 'x.so'))", 3),
        ("spec = find_spec(__spec__.parent + '._C')\npath = spec.origin\ntorch.ops.load_library(path)", 3),
        ("here = Path(__file__)\nctypes.CDLL('libcuda.so.1')\nctypes.CDLL(None)", None),
        ("ctypes.CDLL(_variants.path('libx.so'))", None),
        ("path = _variants.path(__file__)\ntorch.ops.load_library(path)", None),
    ],
)
def test_libraries_that_lie_elsewhere(text: str, line: int | None) -> None:
    """A package that opened its library beside its files: that fails, unless another tool put one there."""
    message = f"line {line} opens a library by a path beside the file, where the wheel has none"
    assert imported({"__init__": text}) == ([("own-path", message)] if line else [])
    assert imported({"__init__": text}, elsewhere=("my_pkg/libx.so",)) == []


@pytest.mark.performs("Import it as `", "Remove the import where", "Remove what opens the library")
def test_a_wheel_whose_package_imports_what_it_lacks(tmp_path: Path) -> None:
    """Both are warnings about the wheel; what the remedies say makes them vanish."""
    data = library()
    old = b"from my_pkg import _C, _variants\nimport torch\ntorch.ops.load_library(__file__[:-11] + 'libx.so')\n"

    def said(text: bytes) -> list[tuple[str, str, bool]]:
        extra = {"my_pkg/__init__.py": text}
        path = wheels.ours(tmp_path, [(wheels.variant("l", {"l/libx.so": data}), {"l/libx.so": data})], extra=extra)
        codes = {"missing-module", "own-path"}
        return [(each.code, each.file, each.warning) for each in audit.audit_wheel(path) if each.code in codes]

    assert said(old) == [("missing-module", "my_pkg/__init__.py", True), ("own-path", "my_pkg/__init__.py", True)]
    assert said(LOADS) == []


def test_a_package_without_init() -> None:
    """CASE 51: a folder of files without `__init__.py` is imported, and nothing is run."""
    (found,) = loading.check("my_pkg.sub", {"my_pkg/__init__.py": "", "my_pkg/sub/ops.py": "_variants"})
    assert (found.file, found.message) == (
        "my_pkg/sub/__init__.py",
        "is missing: `import my_pkg.sub` works, but loads nothing",
    )
    assert list(loading.check("my_pkg", {"my_pkg/__init__.py": "", "my_pkg/large.py": None})) == []


@pytest.mark.performs("Require the torch that it needs")
@pytest.mark.parametrize(
    ("requires", "found"),
    [
        (("torch>=2.10",), "needs torch_from_blob of torch 2.11, but the wheel's metadata admit torch 2.10"),
        (
            ("numpy", "Torch (>=2.9,!=2.9.*)"),
            "needs torch_from_blob of torch 2.11, but the wheel's metadata admit torch 2.10",
        ),
        (("torch",), "needs torch_from_blob of torch 2.11, but the wheel's metadata admit torch 1.0"),
        (("torch>=2.11",), None),
        (("torch==2.13.0",), None),
        (("torch>=2.8; extra == 'dev'",), None),
        (("numpy",), None),
        (
            ("torch @ file:///x", "not a requirement ("),
            "needs torch_from_blob of torch 2.11, but the wheel's metadata admit torch 1.0",
        ),
    ],
)
def test_the_torch_that_the_metadata_admit(requires: tuple[str, ...], found: str | None, tmp_path: Path) -> None:
    """CASE 70: a foreign wheel promises what its metadata admit; one that asks for no torch promises nothing."""
    data = library(undefined=("torch_from_blob",), needed=("libtorch_cpu.so", "libc.so.6"))
    path = wheels.write(tmp_path, {"p/lib.so": data}, name="p-1-py3-none-linux_x86_64.whl", requires=requires)
    assert [item.message for item in audit.audit_wheel(path) if item.code == "lowest-torch"] == (
        [found] if found else []
    )
