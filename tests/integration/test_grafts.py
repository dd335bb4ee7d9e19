"""Third-party libraries: copied in under a name of their own with all that they need, or refused with a remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from hatch_torch_ext import elf
from hatch_torch_ext.errors import RepairError
from trees import TORCH_CALL, Site, compile_library, file_of, opens

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
        "e: `libops.so` needs liblost.so.3, which is in no folder that was looked through; set its RPATH in the build, "
        "add its prefix to CMAKE_PREFIX_PATH, or name it in `exclude` if every user has it"
    )


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


def elf_candidates() -> list[Path]:
    """Return places of small libraries that many systems have and no policy below 2.31 lists."""
    folders = (Path("/usr/lib/x86_64-linux-gnu"), Path("/lib/x86_64-linux-gnu"), Path("/usr/lib64"))
    return [folder / name for name in ("libffi.so.8", "liblzma.so.5", "libffi.so.6") for folder in folders]
