"""RPATHs, names and neighbouring files of the author work in the wheel too; messages name those that cannot."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hatch_torch_ext import audit, elf, merge
from hatch_torch_ext.audit import opening
from hatch_torch_ext.audit.subject import AuditedBinary
from hatch_torch_ext.base.errors import MergeError
from trees import Site, compile_library, file_of, program

if TYPE_CHECKING:
    from hatch_torch_ext.facts.variant import BuiltVariant

DOCS = Path(__file__).resolve().parents[2] / "docs"
LABEL = "torch2.8_cpu_cxx11_x86_64"
OPENER = """
#include <dlfcn.h>
int f(void) {{
  void *found = dlopen("{name}", RTLD_NOW);
  if (!found) return -1;
  int (*answer)(void) = (int (*)(void)) dlsym(found, "answer");
  return answer ? answer() : -2;
}}
"""
READER = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
int f(void) {
  Dl_info info;
  char path[4096];
  if (!dladdr((void *) f, &info)) return -1;
  strncpy(path, info.dli_fname, sizeof path - 32);
  strcpy(strrchr(path, '/') + 1, "data/kernel.ptx");
  FILE *file = fopen(path, "r");
  int found = file ? fgetc(file) : -2;
  if (file) fclose(file);
  return found;
}
"""


def answer(library: Path) -> int:
    """Return what ``f`` of ``library`` returns in a process of its own."""
    program = f"import ctypes; print(ctypes.CDLL({str(library)!r}).f())"
    done = subprocess.run(
        [sys.executable, "-c", program], env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True, check=True
    )
    return int(done.stdout)


def installed(site: Site, built: BuiltVariant, name: str = "libops.so") -> Path:
    """Install the variant and return one of its files."""
    return site.install(built) / file_of(built, name).path


def other_entry(built: BuiltVariant) -> BuiltVariant:
    """Return the same variant as another entry of the matrix would give it: equal bytes in a folder of its own."""
    label = LABEL.replace("2.8", "2.9")
    files = tuple(replace(file, path=file.path.replace(LABEL, label)) for file in built.variant.files)
    (built.root / label).symlink_to(LABEL)
    build = replace(built.variant.build, entry="other")
    return replace(built, variant=replace(built.variant, label=label, torch="2.9", files=files, build=build))


@pytest.mark.parametrize(
    ("library", "plugin", "rpath"),
    [
        pytest.param("libops.so", "libplugin.so", "$ORIGIN", id="beside"),
        pytest.param("lib/libops.so", "lib/plugins/libplugin.so", "$ORIGIN/plugins", id="below"),
        pytest.param("pkg/lib/libops.so", "pkg/plugins/libplugin.so", "${ORIGIN}/../plugins", id="across"),
    ],
)
def test_a_plugin_is_opened_by_its_name(site: Site, library: str, plugin: str, rpath: str) -> None:
    """The author's relative RPATH leads to the plugin from the wheel too, with a short name, in any of the layouts."""
    site.add(plugin, "int answer(void) { return 42; }")
    site.add(library, OPENER.format(name="libplugin.so"), options=[f"-Wl,-rpath,{rpath}"])
    built = site.repair()
    assert file_of(built, "libplugin.so").path.rpartition("/")[2] == "libplugin.so"
    assert answer(installed(site, built)) == 42
    assert not [line for line in site.said if "RPATH" in line]


def test_a_plugin_that_others_link_keeps_its_name(site: Site) -> None:
    """What is needed by name gets a hash into it, unless it is opened by name as well: one file serves both."""
    plugin = site.add("libplugin.so", "int answer(void) { static int n = 41; return ++n; }")
    site.add("libops.so", OPENER.format(name="libplugin.so"), options=["-Wl,-rpath,$ORIGIN"])
    site.add("liblinked.so", "int answer(void); int f(void) { return answer(); }", links=[plugin])
    built = site.repair()
    assert "libplugin.so" in file_of(built, "liblinked.so").needed
    folder = site.install(built) / LABEL
    program = f"import ctypes; print(ctypes.CDLL('{folder}/liblinked.so').f(), ctypes.CDLL('{folder}/libops.so').f())"
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "42 43\n"


def test_files_tied_together_stay_together_when_variants_share(site: Site) -> None:
    """Equal bytes of two variants are once in shared/, but not those that find each other by their places."""
    site.add("libplugin.so", "int answer(void) { return 42; }")
    site.add("libops.so", OPENER.format(name="libplugin.so"), options=["-Wl,-rpath,$ORIGIN"])
    site.add("plain/libplain.so", "int f(void) { return 1; }")
    built = site.repair()
    layout = merge.merge([built, other_entry(built)], package="pkg", distribution="d")
    names = [file.target.removeprefix("_torch_ext/") for file in layout.files]
    assert [name for name in names if name != "help.py" and not name.startswith("shared/")] == [
        f"{label}/{name}" for label in (LABEL, LABEL.replace("2.8", "2.9")) for name in ("libops.so", "libplugin.so")
    ]
    assert len([name for name in names if name.startswith("shared/")]) == 1


@pytest.mark.parametrize(
    ("place", "rpath"),
    [
        pytest.param("lib/libops.so", "$ORIGIN/../../other_pkg/lib", id="as-installed"),
        pytest.param("libops.so", "$ORIGIN/../other_pkg/lib", id="beside-the-package"),
        pytest.param("libops.so", "$ORIGIN/../../../other_pkg/lib", id="as-in-the-wheel"),
    ],
)
def test_a_library_of_another_wheel_is_found(site: Site, place: str, rpath: str) -> None:
    """`exclude` leaves it to that wheel, and the author's RPATH leads there, counted from either place."""
    vendor = compile_library(
        site.root / "site" / "other_pkg" / "lib" / "libvendor.so.1", "int answer(void) { return 7; }"
    )
    site.add(
        place, "int answer(void); int f(void) { return answer(); }", links=[vendor], options=[f"-Wl,-rpath,{rpath}"]
    )
    built = site.repair(config=site.config(exclude=("libvendor.so*",)))
    library = installed(site, built)
    assert elf.read(library).runpath == ("$ORIGIN/../../../other_pkg/lib",)
    assert answer(library) == 7


def test_libraries_in_the_packages_sources_are_found(site: Site) -> None:
    """A library that the package itself ships as a file, beside its Python modules."""
    (site.root / "lib").mkdir()
    vendor = compile_library(site.root / "site" / "pkg" / "lib" / "libvendor.so.1", "int answer(void) { return 7; }")
    source = "int answer(void); int f(void) { return answer(); }"
    site.add("libops.so", source, links=[vendor], options=["-Wl,-rpath,$ORIGIN/lib"])
    built = site.repair(config=site.config(exclude=("libvendor.so*",)))
    folder = site.root / "site" / "pkg" / "_torch_ext"
    for file in built.variant.files:
        (folder / file.path).parent.mkdir(parents=True, exist_ok=True)
        (folder / file.path).write_bytes((built.root / file.path).read_bytes())
    assert answer(folder / LABEL / "libops.so") == 7


@pytest.mark.performs("Let CMake install what it is for")
@pytest.mark.parametrize(
    ("rpath", "why"),
    [
        ("/usr/lib", "it is a folder of this machine"),
        ("$ORIGIN/../nothing", "it leads to nothing inside site-packages"),
    ],
)
def test_an_rpath_that_cannot_be_kept_is_reported(site: Site, rpath: str, why: str) -> None:
    """A file that opens others by name loses an RPATH: the build names it, the reason, and what is no longer found."""
    site.add("libops.so", OPENER.format(name="libgone.so"), options=[f"-Wl,-rpath,{rpath}"])
    built = site.repair()
    assert elf.read(built.root / LABEL / "libops.so").runpath == ()
    assert site.said[0] == (
        f"`libops.so`: the entry {rpath} of its RPATH is taken out, since {why}; what the file opens by name there "
        "is not found that way. Let CMake install what it is for, or name a folder of site-packages relative to $ORIGIN"
    )
    opener = OPENER.format(name="libgone.so")
    gone = compile_library(site.root / "site" / "other_pkg" / "libgone.so", "int answer(void) { return 7; }")
    site.add("libops.so", opener, options=["-Wl,-rpath,$ORIGIN/../other_pkg"])
    assert answer(installed(site, site.repair())) == 7
    gone.unlink()
    shutil.rmtree(site.root / "site" / "pkg")
    site.add("libgone.so", "int answer(void) { return 7; }")
    site.add("libops.so", opener, options=["-Wl,-rpath,$ORIGIN"])
    assert answer(installed(site, site.repair())) == 7


def test_an_rpath_that_nothing_depends_on_goes_quietly(site: Site) -> None:
    """A library that opens nothing by name, and whose needed libraries are in the wheel, loses an RPATH silently."""
    site.add("libops.so", "int f(void) { return 1; }", options=["-Wl,-rpath,/usr/lib:$ORIGIN:$ORIGIN/../nothing"])
    site.add("libother.so", "int g(void) { return 1; }")
    assert elf.read(site.repair().root / LABEL / "libops.so").runpath == ()
    assert not [line for line in site.said if "RPATH" in line]


def test_data_of_the_variant_is_beside_its_library(site: Site) -> None:
    """A kernel that the library finds by dladdr: `variant-data` installs it beside the library, in each variant."""
    site.add("lib/libops.so", READER)
    kernel = site.prefix / "lib" / "data" / "kernel.ptx"
    kernel.parent.mkdir(parents=True)
    kernel.write_text("A", encoding="utf-8")
    built = site.repair(config=site.config(variant_data=("data/*.ptx",)))
    assert file_of(built, "kernel.ptx").path == f"{LABEL}/data/kernel.ptx"
    assert built.package_files == ()
    assert answer(installed(site, built)) == ord("A")
    layout = merge.merge([built, other_entry(built)], package="pkg", distribution="d")
    assert len([file for file in layout.files if file.target.endswith(("libops.so", "kernel.ptx"))]) == 4


def with_data(site: Site, code: str) -> None:
    """Add a library of this code, and data that it may look for."""
    site.add("libops.so", code)
    kernel = site.prefix / "data" / "kernel.ptx"
    kernel.parent.mkdir()
    kernel.write_text("A", encoding="utf-8")


TOLD = (
    "`libops.so` looks up its own path (dladdr) and mentions data/kernel.ptx, which the wheel has once, in `pkg`, "
    "and not beside it. If it looks there, let CMake install the file and name it in `variant-data`"
)


@pytest.mark.performs("let CMake install the file and name it in `variant-data`")
def test_data_that_a_library_may_look_for_beside_itself(site: Site) -> None:
    """Data goes into the package unless `variant-data` names it: a library that may look beside itself is reported."""
    literal = '"data/kernel.ptx"'  # a variable, so that no compiler makes numbers of the text
    with_data(site, f"static const char *volatile name = {literal};{READER.replace(literal, 'name')}")
    assert answer(installed(site, site.repair())) == -2
    assert site.said.count(TOLD) == 1
    built = site.repair(config=site.config(variant_data=("data/*.ptx",)))
    shutil.rmtree(site.root / "site" / "pkg" / "_torch_ext")
    assert answer(installed(site, built)) == ord("A")
    assert site.said.count(TOLD) == 1


@pytest.mark.parametrize(
    ("literal", "told"), [("/data/kernel.p", True), ("/lib/kernel.pt", True), ("../data/kern", True), ("/data", False)]
)
def test_the_literals_of_copies(literal: str, *, told: bool, site: Site) -> None:
    """The end of a literal that a compiler copies by itself is in the code, as numbers."""
    code = f'static const char *volatile name = "{literal}"; int dladdr(void *, void *);'
    with_data(site, f"{code} int f(void) {{ return dladdr(0, 0) + *name; }}")
    site.repair()
    assert (TOLD in site.said) is told


def test_data_that_differs_per_entry_names_the_option(site: Site, tmp_path: Path) -> None:
    """Without the option, two entries that install different data are refused; the message's remedy is the option."""
    builds = []
    for number, options in enumerate(((), (), ("lib/kernel.ptx",), ("lib/kernel.ptx",))):
        each = Site(root=tmp_path / f"{number}", stubs=site.stubs)
        each.add("libops.so", READER)
        (each.prefix / "lib").mkdir()
        (each.prefix / "lib" / "kernel.ptx").write_text(f"{number % 2}", encoding="utf-8")
        built = each.repair(config=each.config(variant_data=options))
        builds.append(built if number % 2 == 0 else other_entry(built))
    with pytest.raises(MergeError, match=r'variant-data = \["lib/kernel\.ptx"\]'):
        merge.merge(builds[:2], package="pkg", distribution="d")
    layout = merge.merge(builds[2:], package="pkg", distribution="d")
    assert len([file for file in layout.files if file.target.endswith("kernel.ptx")]) == 2


def test_a_glob_that_matches_nothing_is_reported(site: Site) -> None:
    """A misspelt glob would otherwise have no effect, in silence."""
    site.add("libops.so", "int f(void) { return 1; }")
    site.repair(config=site.config(unopened=("libcore*.so",), variant_data=("*.ptx",)))
    assert site.said[:2] == [
        "`libcore*.so` of `unopened` matches nothing that CMake installed (libops.so)",
        "`*.ptx` of `variant-data` matches nothing that CMake installed (no file)",
    ]


def _cores(site: Site) -> BuiltVariant:
    """Return a variant with one library for each version of a system library, of which this machine has 5."""
    for number in (4, 5):
        vendor = compile_library(
            site.root / f"vendor{number}" / f"libavcodec.so.{number}",
            f"int decode(void) {{ return {number}; }}",
        )
        source = """
            void aoti_torch_library_def(void); int decode(void);
            int f(void) { aoti_torch_library_def(); return decode(); }
        """
        site.add(f"libcore{number}.so", source, links=[vendor])
    site.add("libops.so", "void aoti_torch_library_def(void); void g(void) { aoti_torch_library_def(); }")
    config = site.config(exclude=("libavcodec.so.*",), unopened=("libcore*.so",))
    built = site.repair(config=config)
    assert site.audit(built, config) == []
    return built


def test_unopened_files_are_left_to_the_package(site: Site) -> None:
    """The loader opens none of these files, though each registers operators; the package opens the right one."""
    built = _cores(site)
    assert [(file.installed, file.unopened) for file in built.variant.files] == [
        ("libcore4.so", True),
        ("libcore5.so", True),
        ("libops.so", False),
    ]
    site.install_wheel(built)
    program = """
import ctypes, sys, torch
from pkg import _variants
_variants.load()
print(*[path.rpartition("/")[2] for path in torch.opened])
ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)
for number in (4, 5):
    try:
        print(ctypes.CDLL(_variants.path(f"libcore{number}.so")).f())
    except OSError as error:
        print(error)
"""
    done = site.python("-c", program, str(site.root / "vendor5" / "libavcodec.so.5"))
    assert done.stdout.splitlines() == [
        "libops.so",
        "libavcodec.so.4: cannot open shared object file: No such file or directory",
        "5",
    ], done.stderr


def test_every_file_of_the_variant_is_found_by_the_authors_name(site: Site) -> None:
    """A library under a hashed name, a plugin, data: `_variants.path` and `--path` say where each is."""
    kernels = site.add("lib/libkernels.so", "int k(void) { return 1; }")
    site.add("lib/libops.so", "int k(void); int f(void) { return k(); }", links=[kernels])
    (site.prefix / "lib" / "data").mkdir()
    (site.prefix / "lib" / "data" / "kernel.ptx").write_text("A", encoding="utf-8")
    built = site.repair(config=site.config(variant_data=("*.ptx",)))
    folder = site.install_wheel(built, other_entry(built)) / "_torch_ext"
    for name, file in (("libkernels.so", "libkernels.so"), ("kernel.ptx", "data/kernel.ptx")):
        described = next(each for each in built.variant.files if each.installed == file)
        asked = site.python("-m", "pkg._variants", "--path", name)
        assert asked.stdout == f"{folder}/{described.path}\n", asked.stderr
    missing = site.python("-m", "pkg._variants", "--path", "libgone.so")
    assert (missing.returncode, missing.stderr) == (
        1,
        "pkg: its variant has no file called 'libgone.so', but: data/kernel.ptx, libkernels.so, libops.so\n",
    )


PROGRAM = """
#include <stdio.h>
void _ZN3c106detail14torchCheckFailEPKcS2_jS2_(void);
int main(void) { _ZN3c106detail14torchCheckFailEPKcS2_jS2_(); return puts("it runs") < 0; }
"""


def _program(site: Site, place: str, source: str = PROGRAM) -> Path:
    """Link a program as our CMake files do."""
    interpreter = 'const char i[] __attribute__((section(".interp"))) = "/lib64/ld-linux-x86-64.so.2";'
    options = ["-pie", "-Wl,-shared", "-Wl,--unresolved-symbols=ignore-all"]
    target = site.prefix / place
    target.parent.mkdir(parents=True, exist_ok=True)
    command = ["gcc", "-fPIC", "-xc", "-", "-o", str(target), *options]
    subprocess.run(command, input=f"{source}\n{interpreter}", text=True, check=True)
    return target


def test_a_program_runs_from_the_wheel(site: Site, tmp_path: Path) -> None:
    """It is executable, finds torch's libraries from its place, and `_variants.path` returns that place."""
    _program(site, "bin/tool")
    built = site.repair()
    file = file_of(built, "tool")
    assert (file.path, file.kind) == (f"{LABEL}/tool", "program")
    assert "libc10.so" in file.needed
    assert site.audit(built, site.config()) == []
    assert audit.audit_wheel(site.wheel(built, tmp_path)) == ()
    site.install_wheel(built)
    tool = site.python("-m", "pkg._variants", "--path", "tool").stdout.strip()
    assert subprocess.check_output([tool], env={}, text=True) == "it runs\n"


def test_the_audit_binds_programs(site: Site, torch_cpu_python: Path) -> None:
    """With a torch available, each program is loaded and bound by the dynamic linker, and not run."""
    binaries = []
    for name in ("good", "bad"):
        symbol = "aoti_torch_device_type_cpu" if name == "good" else "aoti_torch_no_such_thing"
        path = _program(site, name, f"int {symbol}(void); int main(void) {{ return 100 + {symbol}(); }}")
        command = ["patchelf", "--add-needed", "libtorch_cpu.so", "--add-needed", "libc10.so", str(path)]
        subprocess.run([program(command[0]), *command[1:]], check=True)
        binaries.append(AuditedBinary(place=name, elf=elf.read(path)))
    found = opening.open_all(torch_cpu_python, binaries, variant="a", package="pkg").findings
    assert [(each.code, each.file) for each in found] == [("cannot-open", "bad")]
    assert "undefined symbol: aoti_torch_no_such_thing" in found[0].message


def test_a_cpp_project_compiles_against_the_library_of_the_wheel(site: Site, tmp_path: Path) -> None:
    """The lines that the docs give, as they stand there: header and library of the variant for the torch available."""
    site.add("lib/libmy_ops.so", "int answer(void) { return 42; }")
    (site.prefix / "include").mkdir()
    (site.prefix / "include" / "my_ops.h").write_text("int answer(void);\n", encoding="utf-8")
    site.install_wheel(site.repair())
    page = (DOCS / "loader.md").read_text(encoding="utf-8")
    (lines,) = re.findall(r"```cmake\n(find_package.+?)```", page, flags=re.DOTALL)
    source = tmp_path / "dependent"
    (source / "torch").mkdir(parents=True)
    (source / "torch" / "TorchConfig.cmake").write_text("add_library(torch INTERFACE IMPORTED)\n", encoding="utf-8")
    (source / "main.c").write_text("#include <my_ops.h>\nint main(void) { return answer(); }\n", encoding="utf-8")
    (source / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.19)\nproject(dependent LANGUAGES C)\n"
        + lines.replace("my_pkg", "pkg")
        + "add_executable(dependent main.c)\ntarget_link_libraries(dependent PRIVATE my_ops)\n",
        encoding="utf-8",
    )
    environ = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(site.root / "site")}
    ninja = ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={program('ninja')}", f"-DTorch_DIR={source / 'torch'}"]
    configure: list[str | Path] = [
        program("cmake"),
        "-S",
        source,
        "-B",
        tmp_path / "b",
        *ninja,
        f"-DPython_EXECUTABLE={sys.executable}",
    ]
    subprocess.run(configure, env=environ, check=True)
    subprocess.run([program("cmake"), "--build", tmp_path / "b"], env=environ, check=True)
    assert subprocess.run([tmp_path / "b" / "dependent"], env={}, check=False).returncode == 42
