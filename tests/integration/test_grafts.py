"""Third-party libraries: copied in under a name of their own with all that they need, or refused with a remedy."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hatch_torch_ext import audit, elf
from hatch_torch_ext.audit.findings import CODES
from hatch_torch_ext.base.errors import RepairError
from hatch_torch_ext.facts.variant import built_from_json, built_to_json
from hatch_torch_ext.repair import search
from trees import TORCH_CALL, Site, compile_library, file_of, opens

if TYPE_CHECKING:
    from hatch_torch_ext.config import Config

LABEL = "torch2.8_cpu_cxx11_x86_64"


def _third_party(site: Site) -> Path:
    """Make /opt-like prefix with libfoo.so.2, which needs libbar.so, and a licence; return libfoo."""
    prefix = site.root / "opt"
    bar = compile_library(prefix / "lib" / "libbar.so", "void bar(void) {}")
    foo = compile_library(
        prefix / "lib" / "libfoo.so.2",
        "void bar(void); void foo(void) { bar(); }",
        links=[bar],
        options=["-Wl,-rpath,$ORIGIN"],
    )
    (prefix / "LICENSE").write_text("Do as you like.\n", encoding="utf-8")
    return foo


def test_grafts_are_renamed_by_content_and_bring_what_they_need(site: Site) -> None:
    """Libfoo and, through it, libbar are in the wheel under hashed names that SONAME and NEEDED agree on; it opens."""
    foo = _third_party(site)
    site.add("libops.so", "void foo(void); void f(void) { foo(); }", links=[foo], options=[f"-Wl,-rpath,{foo.parent}"])
    built = site.repair()
    grafts = {
        file.path.rpartition("/")[2].partition("-")[0]: file for file in built.variant.files if file.kind == "graft"
    }
    assert sorted(grafts) == ["libbar", "libfoo"]
    assert grafts["libfoo"].soname == grafts["libfoo"].path.rpartition("/")[2]
    assert grafts["libfoo"].soname.endswith(".so.2")
    assert grafts["libbar"].soname in grafts["libfoo"].needed
    assert grafts["libfoo"].soname in file_of(built, "libops.so").needed
    assert grafts["libfoo"].path.split("/")[:2] == ["shared", grafts["libfoo"].sha256[:12]]
    foo.unlink()
    library = site.install(built) / LABEL / "libops.so"
    assert opens(library).returncode == 0, opens(library).stderr


def test_licences_beside_a_graft_come_along(site: Site) -> None:
    """The licence of the prefix is package data, in a folder named like the graft."""
    foo = _third_party(site)
    site.add("libops.so", "void foo(void); void f(void) { foo(); }", links=[foo], options=[f"-Wl,-rpath,{foo.parent}"])
    built = site.repair()
    stems = sorted(
        file.path.rpartition("/")[2].partition(".so")[0] for file in built.variant.files if file.kind == "graft"
    )
    assert [target for target, _ in built.package_files] == [f"_torch_ext/licenses/{stem}/LICENSE" for stem in stems]
    assert {file.origin for file in built.variant.files if file.kind == "graft"} == {
        "pkg:generic/libfoo",
        "pkg:generic/libbar",
    }


def test_folders_of_a_linkers_command_line(tmp_path: Path) -> None:
    """Only words with an absolute folder count: `/lib64` of `out/lib64/libcore.so` is not the system's."""
    (tmp_path / "build.ninja").write_text(
        "build x: LINK y\n  LINK_PATH = -L/of/option -Lrelative/lib\n"
        "  LINK_LIBRARIES = -Wl,-rpath-link,/of/link  out/lib64/libcore.so  /of/file/libx.so.1  -lm\n",
        encoding="utf-8",
    )
    found = search.Search(machine="x86_64", build=tmp_path, prefixes=(), environ={})
    assert [*map(str, found._linked_folders())] == ["/of/option", "/of/link", "/of/file"]


def test_the_build_tree_says_where_a_library_was_linked_from(site: Site) -> None:
    """CMake takes the RPATH out when it installs; the same file in the build tree still has it."""
    foo = _third_party(site)
    source = "void foo(void); void f(void) { foo(); }"
    site.add("libops.so", source, links=[foo])
    compile_library(
        site.root / "work" / "e" / "build" / "sub" / "libops.so",
        source,
        links=[foo],
        options=[f"-Wl,-rpath,{foo.parent}"],
    )
    assert len([file for file in site.repair().variant.files if file.kind == "graft"]) == 2


def test_a_prefix_given_to_cmake_is_looked_through(site: Site) -> None:
    """A library below CMAKE_PREFIX_PATH is found without any RPATH."""
    foo = _third_party(site)
    site.add("libops.so", "void foo(void); void f(void) { foo(); }", links=[foo])
    config = site.config(define=(("CMAKE_PREFIX_PATH:PATH", f"/nowhere;{site.root / 'opt'}"),))
    assert len([file for file in site.repair(config=config).variant.files if file.kind == "graft"]) == 2


def test_a_library_that_is_nowhere_is_refused(site: Site) -> None:
    """The message names who needs what, and the three ways out."""
    lost = compile_library(site.root / "lost" / "liblost.so.3", "void lost(void) {}")
    site.add("libops.so", "void lost(void); void f(void) { lost(); }", links=[lost])
    with pytest.raises(RepairError) as caught:
        site.repair()
    assert str(caught.value) == (
        "e: `libops.so` needs liblost.so.3, which is in none of the folders that were searched; "
        "set INSTALL_RPATH of that target to its folder, "
        "add its prefix to CMAKE_PREFIX_PATH, or name it in `exclude` if every user has it"
    )


@pytest.mark.performs("or name it in `exclude`")
def test_excluded_libraries_are_left_alone(site: Site) -> None:
    """`exclude` leaves NEEDED as it is, and nothing is grafted."""
    lost = compile_library(site.root / "lost" / "liblost.so.3", "void lost(void) {}")
    site.add("libops.so", "void lost(void); void f(void) { lost(); }", links=[lost])
    built = site.repair(config=site.config(exclude=("liblost.so.*",)))
    assert len(built.variant.files) == 1
    assert sorted(built.variant.files[0].needed) == ["libc.so.6", "liblost.so.3"]


def test_a_library_without_soname_is_grafted_by_its_path(site: Site) -> None:
    """Linked by path, a library without SONAME leaves that path in NEEDED: an absolute one must not reach a user."""
    plain = compile_library(site.root / "opt" / "libplain.so", "void plain(void) {}", soname="")
    site.add("libops.so", "void plain(void); void f(void) { plain(); }", links=[plain])
    built = site.repair()
    assert not [name for name in file_of(built, "libops.so").needed if "/" in name]
    library = site.install(built) / LABEL / "libops.so"
    plain.unlink()
    assert opens(library).returncode == 0, opens(library).stderr


def test_what_the_policy_brings_is_never_grafted(site: Site) -> None:
    """Zlib and libstdc++ are on every system; copies that CMake installed are taken out."""
    zlib = site.add("lib/libz.so.1", "void zlibVersion(void) {}")
    site.add("lib/libops.so", "void zlibVersion(void); void f(void) { zlibVersion(); }", links=[zlib])
    built = site.repair()
    assert [file.path for file in built.variant.files] == [f"{LABEL}/libops.so"]
    assert "libz.so.1" in file_of(built, "libops.so").needed


def test_a_library_of_the_system_brings_its_package(site: Site) -> None:
    """A graft from the system's folders is described by its package, with the package's licence."""
    expat = next((path for path in elf_candidates() if path.exists()), None)
    if expat is None:
        pytest.skip("no library of the system to graft here: libexpat, libffi and liblzma are missing")
    site.add("libops.so", TORCH_CALL, links=[expat])
    built = site.repair()
    graft = next(file for file in built.variant.files if file.kind == "graft")
    assert graft.origin is not None
    assert graft.origin.startswith(("pkg:deb/", "pkg:rpm/", "pkg:generic/"))
    facts = elf.read(built.root / graft.path)
    assert facts.soname == graft.path.rpartition("/")[2]


@pytest.mark.parametrize("kept", [{"exclude": ("libplain.so",)}, {}], ids=["exclude", "system"])
def test_a_library_without_soname_that_is_left_to_users_is_needed_by_its_name(
    kept: dict[str, Any], site: Site, tmp_path: Path
) -> None:
    """The path of the machine that built it reaches no user: NEEDED has the name, and the audits know who has it."""
    name = "libplain.so" if kept else "libm.so.6"
    plain = compile_library(site.root / "opt" / name, "double cos(double x) { return x; }", soname="")
    site.add("libops.so", "double cos(double); double f(double x) { return cos(x); }", links=[plain])
    built = site.repair(config=site.config(**kept))
    assert [file.path for file in built.variant.files] == [f"{LABEL}/libops.so"]
    assert name in built.variant.files[0].needed
    assert not [each for each in built.variant.files[0].needed if "/" in each]
    assert built.variant.external == (((name, "author"),) if kept else ())
    assert [path.name for _, path in built.excluded] == ([name] if kept else [])
    assert audit.audit_wheel(site.wheel(built, tmp_path)) == ()


def elf_candidates() -> list[Path]:
    """Return places of small libraries that many systems have and no policy below 2.31 lists."""
    folders = (Path("/usr/lib/x86_64-linux-gnu"), Path("/lib/x86_64-linux-gnu"), Path("/usr/lib64"))
    return [folder / name for name in ("libffi.so.8", "liblzma.so.5", "libffi.so.6") for folder in folders]


def _vendored(site: Site) -> Config:
    """Link libops.so with a C++ library of another wheel, and return a configuration that leaves it to that wheel."""
    vendor = compile_library(site.root / "vendor" / "libvendor.so.1", "void _ZN6vendor4callEv(void) {}")
    call = "void _ZN6vendor4callEv(void); void f(void) { _ZN6vendor4callEv(); }"
    site.add("libops.so", call, links=[vendor])
    return site.config(exclude=("libvendor.so*",))


@pytest.mark.performs("or name it in `exclude`.")
def test_what_exclude_leaves_to_users_is_known_to_every_audit(site: Site, tmp_path: Path) -> None:
    """`exclude` is in the manifest: the audits of the build, of the wheel and on another machine report nothing."""
    config = _vendored(site)
    built = site.repair(config=config)
    assert built.variant.external == (("libvendor.so.1", "author"),)
    assert site.audit(built, config) == []
    assert audit.audit_wheel(site.wheel(built, tmp_path)) == ()


def test_without_exclude_no_audit_accepts_it(site: Site, tmp_path: Path) -> None:
    """Without `exclude` in its manifest, every audit of the same wheel reports the missing library."""
    built = site.repair(config=_vendored(site))
    silent = replace(built, variant=replace(built.variant, external=()))
    assert [found.code for found in site.audit(silent, site.config())] == ["missing-library"]
    assert [found.code for found in audit.audit_wheel(site.wheel(silent, tmp_path))] == ["missing-library"]


def test_what_the_author_ignores_a_stranger_is_not_told(site: Site, tmp_path: Path) -> None:
    """`ignore` and `debug-symbols` stand in the manifest too; what guards the archive is never set aside."""
    site.add("libops.so", "void _ZN4lost4callEv(void); void f(void) { _ZN4lost4callEv(); }", options=["-g"])
    plain = site.repair()
    assert [found.code for found in audit.audit_wheel(site.wheel(plain, tmp_path / "plain"))] == ["missing-symbol"]
    config = site.config(ignore=("build-path", "missing-symbol", "record-hash"), debug_symbols="keep")
    built = site.repair(config=config)
    assert audit.audit_wheel(site.wheel(built, tmp_path / "accepted")) == ()
    broken = site.wheel(built, tmp_path / "broken", record="pkg/__init__.py,sha256=AAAA,0\n")
    assert {found.code for found in audit.audit_wheel(broken)} == {"record-hash", "record-unknown-file"}


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("libasan.so.8", "a sanitizer's runtime"),
        ("libtcmalloc_minimal.so.4", "a memory allocator"),
        ("libmpi.so.40", "MPI"),
        ("libjvm.so", "the Java machine"),
    ],
)
def test_a_runtime_of_which_a_process_has_one_is_not_copied(site: Site, name: str, what: str) -> None:
    """Sanitizers, allocators, MPI: neither grafted nor taken from the install tree; a warning says so."""
    runtime = site.add(name, "void once(void) {}")
    site.add("libops.so", "void once(void); void f(void) { once(); }", links=[runtime])
    built = site.repair()
    assert [file.path for file in built.variant.files] == [f"{LABEL}/libops.so"]
    assert built.variant.external == ((name, "process"),)
    assert (
        f"`libops.so` needs {name}, {what}: a process can have only one, so it is not copied into the wheel"
        in "\n".join(site.said)
    )
    (told,) = site.audit(built, site.config())
    assert (told.code, told.warning) == ("process-runtime", True)
    assert told.message.endswith(f"to preload it: LD_PRELOAD=$(gcc -print-file-name={name}) python ...")
    assert "libasan" not in CODES["process-runtime"].remedy  # the file may need another
    trusted = site.config(exclude=(f"{name.partition('.')[0]}*",))
    built = site.repair(config=trusted)
    assert site.audit(built, trusted) == []


@pytest.mark.performs("LD_PRELOAD=", "preload the library")
def test_a_sanitizer_works_where_its_runtime_is_preloaded(site: Site) -> None:
    """What the message says is done: a library with AddressSanitizer opens under LD_PRELOAD, and finds the overflow."""
    runtime = subprocess.check_output(["gcc", "-print-file-name=libasan.so"], text=True).strip()
    if "/" not in runtime:
        pytest.skip("this gcc has no AddressSanitizer")
    code = (
        "#include <stdlib.h>\nint f(void) { char *p = malloc(8); volatile int i = 8; int c = p[i]; free(p); return c; }"
    )
    site.add("libops.so", code, options=["-fsanitize=address"])
    built = site.repair()
    assert [file.path for file in built.variant.files] == [f"{LABEL}/libops.so"]
    library = site.install(built) / LABEL / "libops.so"
    environ = {"PATH": "/usr/bin:/bin", "ASAN_OPTIONS": "detect_leaks=0"}
    program = f"import ctypes; lib = ctypes.CDLL({str(library)!r}); print('opened', flush=True); lib.f()"
    command = [sys.executable, "-c", program]
    alone = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    preloaded = subprocess.run(
        command, env={**environ, "LD_PRELOAD": runtime}, capture_output=True, text=True, check=False
    )
    assert "opened" not in alone.stdout
    assert preloaded.stdout == "opened\n"
    assert "heap-buffer-overflow" in preloaded.stderr


@pytest.mark.parametrize("name", ["libGLX.so.0", "libGLdispatch.so.0", "libGL.so.1", "libX11.so.6", "libxcb.so.1"])
def test_the_graphics_driver_and_the_desktop_are_left_to_the_system(site: Site, name: str) -> None:
    """A copy works only with the driver of the build machine: the system's is used, and a note says so once."""
    driver = site.add(f"lib/{name}", "void draw(void) {}")
    for library in ("libops.so", "libmore.so"):
        site.add(f"lib/{library}", "void draw(void); void f(void) { draw(); }", links=[driver])
    built = site.repair()
    assert sorted(file.path for file in built.variant.files) == [f"{LABEL}/libmore.so", f"{LABEL}/libops.so"]
    assert all(name in file.needed for file in built.variant.files)
    said = [line for line in site.said if "graphics driver" in line]
    assert len(said) == 1
    assert site.audit(built, site.config()) == []


@pytest.mark.parametrize("where", ["prefix", "site-packages"])
def test_what_an_excluded_library_lacks(where: str, site: Site) -> None:
    """CASE 85: a name that neither the file nor the library of `exclude` defines is reported, where that is here."""
    folder = site.root / ("opt/lib" if where == "prefix" else "site/vendor/lib")
    helper = compile_library(folder / "libhelper.so", "void vendor_helper(void) {}")
    vendor = compile_library(folder / "libvendor.so", "void vendor(void) {}", links=[helper])
    source = "void vendor(void); void vendor_helper(void); void gone(void); void f(void) {{ vendor(); {calls} }}"
    run_path = ["-Wl,-rpath,$ORIGIN/../vendor/lib"]
    config = site.config(exclude=("libvendor.so",), define=(("CMAKE_PREFIX_PATH", str(site.root / "opt")),))

    def messages(calls: str) -> list[str]:
        options = [*run_path, "-Wl,--allow-shlib-undefined"] if where != "prefix" else []
        site.add("libops.so", source.format(calls=calls), links=[vendor], options=options)
        built = site.repair(config=config)
        assert [name for name, _ in built.excluded] == ["libvendor.so"]
        assert dict(built_from_json(built_to_json(built, site.root), site.root).variant.external) == {
            "libvendor.so": "author"
        }
        return [each.message for each in site.audit(built, config) if each.code == "missing-symbol"]

    assert messages("vendor_helper();") == []
    assert messages("gone();") == ["needs gone, which no file that it loads defines"]
    helper.unlink()  # what it loads is not all here: nothing can be said
    assert messages("gone();") == []
