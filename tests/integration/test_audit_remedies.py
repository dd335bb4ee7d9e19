"""What the audit says of files that real compilers make, and its remedies, performed: each makes its finding vanish."""

from __future__ import annotations

import platform
import re
import subprocess
import sys
import sysconfig
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import wheels
from hatch_torch_ext import audit, elf, report
from hatch_torch_ext.audit import binary, operators, python, symbols, variants
from hatch_torch_ext.audit.findings import settle
from hatch_torch_ext.audit.subject import AuditedBinary, Subject
from hatch_torch_ext.base.errors import RepairError
from hatch_torch_ext.cmake import replies
from hatch_torch_ext.facts import owners
from trees import TORCH_CALL, compile_library, file_of, program

if TYPE_CHECKING:
    from hatch_torch_ext.audit import Finding
    from trees import Site

LIBRARY = ("-shared", "-fPIC", "-O1")


def compiled(folder: Path, name: str, *arguments: str, **sources: str) -> Path:
    """Compile ``sources`` (file name with __ for the dot -> text) into one file, each argument as g++ takes it."""
    for file, text in sources.items():
        (folder / file.replace("__", ".")).write_text(text, encoding="utf-8")
    files = [file.replace("__", ".") for file in sources]
    subprocess.run(["g++", *LIBRARY, "-o", name, *files, *arguments], cwd=folder, check=True)
    return folder / name


def judged(path: Path) -> list[Finding]:
    """Return what the checks of symbols say of one file of a build, hidden names available."""
    binary = AuditedBinary(place=path.name, elf=elf.read(path), unstripped=path)
    return list(symbols.check(Subject(variant="label", binaries=(binary,), ours=True)))


def checked(*paths: Path, **facts: object) -> list[Finding]:
    """Return the findings on files of one variant, of every check that opens nothing."""
    binaries = tuple(AuditedBinary(place=path.name, elf=elf.read(path), depth=3) for path in paths)
    given = {"variant": "label", "ours": True, **facts}
    return [*settle(variants.check(Subject(binaries=binaries, **given)))]  # type: ignore[arg-type]


def built(project: Path, lines: str, *options: str) -> Path:
    """Build a CMake project of these lines; return its build folder."""
    (project / "CMakeLists.txt").write_text(lines, encoding="utf-8")
    build = project / "build"
    cmake, ninja = program("cmake"), f"-DCMAKE_MAKE_PROGRAM={program('ninja')}"
    configure = [str(part) for part in (cmake, "-G", "Ninja", ninja, "-S", project, "-B", build, *options)]
    subprocess.run(configure, check=True, capture_output=True)
    subprocess.run([cmake, "--build", build], check=True, capture_output=True)
    return build


@pytest.fixture
def toolkit(cuda13_wheels: Path, tmp_path: Path) -> Path:
    """Return a CUDA toolkit of the wheels' compiler and runtime; its cuRAND is a stand-in: the real one has 60 MB."""
    root = tmp_path / "toolkit"
    (root / "lib64").mkdir(parents=True)
    found = cuda13_wheels / "nvidia" / "cu13"
    for name in ("bin", "include", "nvvm"):
        (root / name).symlink_to(found / name)
    for file in (found / "lib").iterdir():
        (root / "lib64" / file.name).symlink_to(file)
    (root / "lib64" / "libcudart.so").symlink_to(found / "lib" / "libcudart.so.13")
    compiled(
        root / "lib64",
        "libcurand.so",
        "-Wl,-soname,libcurand.so.10",
        c__cpp='extern "C" int curandCreate() {return 0;}',
    )
    return root


@pytest.mark.performs("Link the library: {}.")
def test_the_lines_that_link_a_cuda_library(toolkit: Path, tmp_path: Path) -> None:
    """CASE 41: a function of cuRAND without cuRAND: a fault, and the two lines of its remedy link the library."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "noise.c").write_text("int curandCreate(void); int noise(void) { return curandCreate(); }")
    lines = "cmake_minimum_required(VERSION 3.18)\nproject(noise C)\nadd_library(noise SHARED noise.c)\n"
    (found,) = judged(built(project, lines) / "libnoise.so")
    assert (found.code, found.warning) == ("undefined-symbol", False)
    assert found.message == "needs curandCreate of libcurand, but libcurand is not in NEEDED"
    added = re.findall(r"\w+\([^)]*\)", found.remedy)
    assert added == ["find_package(CUDAToolkit REQUIRED)", "target_link_libraries(noise PRIVATE CUDA::curand)"]
    build = built(project, lines + "\n".join(added) + "\n", f"-DCUDAToolkit_ROOT={toolkit}")
    assert "libcurand.so.10" in elf.read(build / "libnoise.so").needed
    assert judged(build / "libnoise.so") == []


@pytest.mark.parametrize(
    ("function", "soname"),
    [("ncclAllReduce", "libnccl.so.2"), ("cudnnCreate", "libcudnn.so.9"), ("cusparseLtInit", "libcusparseLt.so.0")],
)
def test_the_line_for_a_library_without_a_target_of_cmake(function: str, soname: str, tmp_path: Path) -> None:
    """CASE 41: NCCL, cuDNN and cuSPARSELt do not belong to the toolkit; CMake finds them where the toolchain looks."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "sum.c").write_text(f"int {function}(void); int sum(void) {{ return {function}(); }}")
    lines = "cmake_minimum_required(VERSION 3.18)\nproject(sum C)\nadd_library(sum SHARED sum.c)\n"
    (found,) = judged(built(project, lines) / "libsum.so")
    added = re.findall(r"(?:find|target)\w+\((?:[^)]*)\)", found.remedy)
    name = soname.rpartition(".")[0]
    compiled(tmp_path, name, f"-Wl,-soname,{soname}", c__cpp=f'extern "C" int {function}() {{return 0;}}')
    build = built(project, lines + "\n".join(added) + "\n", f"-DCMAKE_LIBRARY_PATH={tmp_path}")
    assert judged(build / "libsum.so") == []


@pytest.mark.performs("Compile everything with the _GLIBCXX")
def test_a_helper_with_the_other_string(tmp_path: Path) -> None:
    """CASE 67: the finding recognises a hidden static helper of the other ABI; with one flag for both, it is gone."""
    main = "#include <string>\nint helper(const std::string&); int user() { return helper(std::string(99, 'x')); }"
    helper = "#include <string>\nint helper(const std::string& s) { return s.size(); }"
    (tmp_path / "helper.cpp").write_text(helper)

    def linked(flag: str) -> list[Finding]:
        options = ["-fvisibility=hidden", f"-D_GLIBCXX_USE_CXX11_ABI={flag}"]
        subprocess.run(["g++", "-c", "-fPIC", *options, "helper.cpp"], cwd=tmp_path, check=True)
        return judged(compiled(tmp_path, "libuser.so", "helper.o", "-D_GLIBCXX_USE_CXX11_ABI=1", main__cpp=main))

    (found,) = linked("0")
    assert (found.code, found.warning) == ("torch-abi", False)
    assert found.message == (
        "needs helper with the std::string of one C++ ABI (that of C++11), but it is defined with the other (the old "
        "one): its sources were compiled with another _GLIBCXX_USE_CXX11_ABI"
    )
    assert linked("1") == []


DEFINES = """
void torch_library_def(const char *, const char *);
__attribute__((constructor)) static void registers(void) { torch_library_def("my_pkg", "f() -> ()"); }
"""


@pytest.mark.performs("Where a static library registers")
def test_registrations_that_the_linker_drops(tmp_path: Path) -> None:
    """CASE 73: of a static library only what is called is linked; both remedies, and the source, bring it back.

    The wheel is found to register nothing, and the build knows which static library it is.
    """
    sources = {"ops.c": DEFINES, "glue.c": "int glue(void) { return 1; }", "torch.c": "void torch_library_def() {}"}
    for name, text in sources.items():
        (tmp_path / name).write_text(text)
    head = (
        "cmake_minimum_required(VERSION 3.26)\nproject(x C)\nadd_library(torch_cpu SHARED torch.c)\n"
        "set(CMAKE_POSITION_INDEPENDENT_CODE ON)\n"
    )

    replies.query(tmp_path / "build")

    def left_out(build: Path) -> list[str]:
        library = AuditedBinary(place="libx.so", elf=elf.read(build / "libx.so"))
        subject = Subject(variant=None, binaries=(library,))
        found = operators.check_archives(subject, replies.archives(replies.read(build)))
        return [each.message.partition(",")[0] for each in found]

    def codes(lines: str) -> list[str]:
        build = built(tmp_path, head + lines)
        linked = "STATIC" in lines and "WHOLE" not in lines
        assert left_out(build) == ["links libops.a"] * linked
        data = (build / "libx.so").read_bytes()
        described = wheels.variant("l", {"l/libx.so": data})
        registers = owners.registers(elf.read(build / "libx.so").undefined)
        file = replace(described.files[0], registers=registers, needed=("libtorch_cpu.so",))
        path = wheels.ours(tmp_path, [(replace(described, files=(file,)), {"l/libx.so": data})])
        return [each.code for each in audit.audit_wheel(path) if each.code == "not-registered"]

    static = "add_library(ops STATIC ops.c)\nadd_library(x SHARED glue.c)\n"
    assert codes(f"{static}target_link_libraries(x PRIVATE ops torch_cpu)") == ["not-registered"]
    whole = f'{static}target_link_libraries(x PRIVATE "$<LINK_LIBRARY:WHOLE_ARCHIVE,ops>" torch_cpu)'
    assert codes(whole) == []
    assert codes(f"{static.replace('STATIC', 'OBJECT')}target_link_libraries(x PRIVATE ops torch_cpu)") == []
    alone = "add_library(x SHARED glue.c)\ntarget_link_libraries(x PRIVATE torch_cpu)\n"
    assert codes(alone) == ["not-registered"]
    assert codes(f"{alone}target_sources(x PRIVATE ops.c)") == []


THROWS = """
#include <sstream>
#include <stdexcept>
void torch_check(const std::string&);
void f(double x) {
    std::ostringstream text;
    text << x;
    if (x < 0) throw std::runtime_error(text.str());
    torch_check(text.str());
}
"""


@pytest.mark.performs("Link the C++ runtime dynamically")
@pytest.mark.parametrize(
    "options",
    [
        ("-static-libstdc++",),
        ("-static-libstdc++", "-static-libgcc", "-Wl,--exclude-libs,ALL"),
        ("-static-libstdc++", "-Wl,--exclude-libs,ALL", "-s"),
    ],
)
def test_a_cpp_runtime_of_its_own(options: tuple[str, ...], tmp_path: Path) -> None:
    """CASE 72: linked statically, exported, hidden or stripped, it is a fault; linked dynamically, there is none."""
    static = compiled(tmp_path, "libf.so", *options, f__cpp=THROWS)
    (found,) = [each for each in checked(static) if each.code == "static-runtime"]
    assert found.warning is False
    codes = {each.code for each in checked(compiled(tmp_path, "libf.so", "-static-libgcc", f__cpp=THROWS))}
    assert "static-runtime" not in codes


@pytest.mark.performs("link that one")
def test_a_cpp_runtime_in_a_library_of_others(tmp_path: Path) -> None:
    """The author did not link what is grafted: a warning, until another build of the library is linked."""
    static = compiled(tmp_path, "liba.so", "-static-libstdc++", f__cpp=THROWS)
    shared = compiled(tmp_path, "libb.so", f__cpp=THROWS)
    for path, expected in ((static, [True]), (shared, [])):
        binary = AuditedBinary(place=path.name, elf=elf.read(path), depth=3, kind="graft")
        found = settle(variants.check(Subject(variant="label", ours=True, binaries=(binary,))))
        assert [each.warning for each in found if each.code == "static-runtime"] == expected


def test_a_cpp_runtime_behind_a_c_interface(tmp_path: Path) -> None:
    """A library that others call only through C, as NVIDIA's are, keeps a runtime of its own."""
    source = THROWS.replace("torch_check(text.str());", "").replace("void torch_check(const std::string&);", "")
    hidden = ("-static-libstdc++", "-Wl,--exclude-libs,ALL")
    library = compiled(tmp_path, "libf.so", *hidden, f__cpp=source.replace("void f(", 'extern "C" void f('))
    assert "static-runtime" not in {each.code for each in checked(library)}


@pytest.mark.performs("Add the source that defines it")
def test_a_forgotten_extern_c(tmp_path: Path) -> None:
    """CASE 41: a launcher that is C only on one side; `extern "C"` on the other mends it."""
    (tmp_path / "user.c").write_text("void launch(float *); void user(void) { launch(0); }")
    subprocess.run(["gcc", "-c", "-fPIC", "user.c"], cwd=tmp_path, check=True)
    (found,) = judged(compiled(tmp_path, "libl.so", "user.o", kernel__cpp="void launch(float*) {}"))
    assert (found.code, found.warning) == ("missing-symbol", True)
    assert found.message.endswith('`extern "C"` is missing on one side')
    assert judged(compiled(tmp_path, "libl.so", "user.o", kernel__cpp='extern "C" void launch(float*) {}')) == []


def test_a_name_in_torchs_scopes_that_no_header_has(tmp_path: Path) -> None:
    """Without torch's exports its headers tell: a helper in `namespace at` whose source was forgotten is a warning."""
    header = tmp_path / "include" / "ATen" / "core" / "TensorBody.h"
    header.parent.mkdir(parents=True)
    header.write_text("namespace at { int of_torch(int); }")
    declared = "namespace at { int of_torch(int); int of_mine(int); }"
    user = f"{declared} int user() {{ return at::of_torch(1) + at::of_mine(1); }}"
    facts = {"torch": "2.8.0", "headers": tmp_path / "include"}

    def said(**sources: str) -> list[Finding]:
        path = compiled(tmp_path, "libuser.so", "-fvisibility=hidden", user__cpp=user, **sources)
        return [each for each in checked(path, **facts) if each.code == "undefined-symbol"]

    (found,) = said()
    assert found.message == "needs at::of_mine, which no header of torch 2.8.0 declares, and no file defines"
    assert found.warning
    assert found.remedy.startswith("Add the source that defines it to the library")
    assert said(mine__cpp=f"{declared} int at::of_mine(int x) {{ return x; }}") == []
    header.rename(header.with_name("Other.h"))  # not all headers: nothing is known
    (tmp_path / "mine.cpp").unlink()
    assert said() == []


@pytest.mark.performs("-ftls-model=initial-exec")
def test_static_thread_local_storage(tmp_path: Path) -> None:
    """What no process has room for is a fault, what some have none for a warning; the usual model has no limit."""
    source = "static __thread char kept[%s] %s; char *f(void) { return kept; }"
    early = '__attribute__((tls_model("initial-exec")))'

    def said(size: int, model: str) -> list[tuple[str, bool]]:
        (tmp_path / "k.c").write_text(source % (size, model))
        subprocess.run(["gcc", "-c", "-fPIC", "k.c"], cwd=tmp_path, check=True)
        path = compiled(tmp_path, f"lib{size}.so", "k.o", "-s")
        subject = Subject(variant="label", binaries=(AuditedBinary(place=path.name, elf=elf.read(path)),), ours=True)
        return [(each.message, each.warning) for each in binary.check(subject)]

    def opened(size: int, **environ: str) -> bool:
        code = f"import ctypes; ctypes.CDLL('./lib{size}.so')"
        return not subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=False, env=environ).returncode

    text = (
        "needs {} bytes of static TLS; glibc keeps 1664 for all libraries together that a process opens after its start"
    )
    assert said(256, early) == []
    assert said(1000, early) == [(text.format(1000), True)]
    assert opened(1000)
    assert said(4000, early) == [(text.format(4000), False)]
    assert not opened(4000)
    assert opened(4000, GLIBC_TUNABLES="glibc.rtld.optional_static_tls=4096")
    assert said(4000, "") == []
    assert opened(4000)


@pytest.mark.performs("Pass -ffast-math")
def test_subnormal_numbers(tmp_path: Path) -> None:
    """What -ffast-math links makes the whole process calculate otherwise; given only to the compiler, it does not."""
    lines = "cmake_minimum_required(VERSION 3.18)\nproject(m C)\nadd_library(m SHARED m.c)\n"
    (tmp_path / "m.c").write_text("double twice(double x) { return 2 * x; }")
    linked = subprocess.run(["gcc", "-print-file-name=crtfastmath.o"], check=True, capture_output=True, text=True)
    code = "import ctypes, sys; ctypes.CDLL(sys.argv[1]); print(sys.float_info.min / 2 > 0)"

    def said(more: str) -> tuple[list[str], str]:
        path = built(tmp_path, lines + more) / "libm.so"
        subject = Subject(variant="label", binaries=(AuditedBinary(place=path.name, elf=elf.read(path)),), ours=True)
        found = [each.message for each in binary.check(subject) if each.code == "fast-math"]
        run = subprocess.run([sys.executable, "-c", code, path], check=True, capture_output=True, text=True)
        return found, run.stdout.strip()

    message = "makes the processor take subnormal numbers for zero, for all of the process that opens it"
    assert said(f"target_link_libraries(m PRIVATE {linked.stdout})") == ([message], "False")
    assert said("target_compile_options(m PRIVATE -ffast-math)") == ([], "True")


@pytest.mark.performs(
    "Leave out -Wl,-z,x86-64-v3", "or put the code", "take a build of it that is linked without -Wl,-z,x86-64-v3"
)
@pytest.mark.skipif(platform.machine() != "x86_64", reason="levels of x86-64")
def test_a_file_for_newer_processors(tmp_path: Path) -> None:
    """The linker's option and -mneeded write what glibc compares with the processor; without them nothing is found.

    ``inspect`` names the level.
    """

    def said(*options: str, kind: str | None = None, unopened: bool = False) -> list[tuple[str, str]]:
        path = compiled(tmp_path, "libf.so", "-s", *options, f__c="int f;")
        one = AuditedBinary(place=path.name, elf=elf.read(path), kind=kind, unopened=unopened)
        return [(each.code, each.remedy) for each in binary.check(Subject(variant="label", binaries=(one,)))]

    ((code, remedy),) = said("-Wl,-z,x86-64-v3")
    assert (code, "Leave out -Wl,-z,x86-64-v3 (LDFLAGS) and -mneeded" in remedy) == ("isa-level", True)
    files = {"torch2.8_cpu_cxx11_x86_64/libf.so": (tmp_path / "libf.so").read_bytes()}
    described = report.describe(wheels.ours(tmp_path, [(wheels.variant("torch2.8_cpu_cxx11_x86_64", files), files)]))
    assert [row.needs for row in described.variants] == ["glibc 2.17, x86-64-v3"]
    assert [row.binary.isa_level for row in described.files if row.binary is not None] == [3]
    ((code, remedy),) = said("-Wl,-z,x86-64-v4", kind="graft")
    assert (code, "take a build of it" in remedy) == ("isa-level", True)
    assert len(said("-march=x86-64-v3", "-mneeded")) == 1
    assert said("-Wl,-z,x86-64-v3", unopened=True) == []
    assert said("-march=x86-64-v3", "-Wl,-z,x86-64-v2") == said() == []


@pytest.mark.performs("the name that its PyInit_")
def test_a_module_by_the_name_of_its_file(tmp_path: Path) -> None:
    """CASE 50: the properties that the remedy names give the file the module's name."""
    (tmp_path / "m.c").write_text("void *PyInit__C(void) { return 0; }")
    lines = "cmake_minimum_required(VERSION 3.18)\nproject(m C)\nadd_library(core SHARED m.c)\n"

    def said(name: str) -> list[str]:
        path = tmp_path / "build" / name
        file = AuditedBinary(place=name, elf=elf.read(path))
        return [each.message for each in python.check(Subject(variant="label", binaries=(file,), ours=True))]

    built(tmp_path, lines)
    assert said("libcore.so") == ["exports PyInit__C, so Python cannot import it as `libcore`"]
    built(tmp_path, lines + 'set_target_properties(core PROPERTIES OUTPUT_NAME _C PREFIX "")\n')
    assert said("_C.so") == []


REGISTERS = 'extern "C" { void torch_library_impl(); int %s(); int use() { torch_library_impl(); return %s(); } }'


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tag", "requires", "why"),
    [
        ("py3-none", "torch>=2.10", "p/x.so was not opened: it needs libcudart.so.12, and there is torch 2.13.0"),
        ("py3-none", "torch==2.8.*", "not opened: the wheel requires torch==2.8.*, and there is torch 2.13.0"),
        ("cp310-cp310", "torch", "not opened: the wheel is for cp310, and the Python is cp311"),
    ],
)
def test_a_wheel_for_another_torch(tag: str, requires: str, why: str, torch_cpu_python: Path, tmp_path: Path) -> None:
    """CASE 69: files for another torch, backend or Python are reported as not opened, which is not a fault."""
    compiled(tmp_path, "libcudart.so", "-Wl,-soname,libcudart.so.12", c__cpp='extern "C" int cudaRun() {return 0;}')
    data = compiled(tmp_path, "x.so", "-L.", "-lcudart", x__cpp=REGISTERS % ("cudaRun", "cudaRun")).read_bytes()
    path = wheels.write(tmp_path, {"p/x.so": data}, name=f"p-1-{tag}-linux_x86_64.whl", requires=[requires])
    said: list[str] = []
    found = audit.audit_wheel(path, open_with=torch_cpu_python, report=said.append)
    assert "cannot-open" not in {item.code for item in found}
    assert len(said) == 1
    assert said[0].startswith(why)


# --- one file, compiled as the remedy says

C_FUNCTION = "int f(void) { return 1; }"
NO_NOTE = ".globl f\nf: ret\n"
NOTE = '.section .note.GNU-stack,"",@progbits\n'


@pytest.mark.performs("-Wl,-z,noexecstack")
def test_an_executable_stack(tmp_path: Path) -> None:
    """Assembler files say nothing of the stack: the linker's option of the remedy, or the section, takes it away."""

    def linked(text: str, *options: str) -> list[Finding]:
        (tmp_path / "f.S").write_text(text, encoding="utf-8")
        # An older linker, or one that its distribution changed, asks for no such stack by itself.
        usual = ("-Wl,-z,execstack",) if text == NO_NOTE else ()
        return checked(compiled(tmp_path, "libf.so", "f.S", "-s", *usual, *options))

    (found,) = linked(NO_NOTE)
    assert found.code == "executable-stack"
    (option,) = re.findall(r"-Wl,[\w,-]+", found.remedy)
    assert linked(NO_NOTE, option) == []
    assert ".note.GNU-stack" in found.remedy
    assert linked(NO_NOTE + NOTE) == []


@pytest.mark.performs("-fPIC")
def test_code_that_is_not_position_independent(tmp_path: Path) -> None:
    """A static library without -fPIC goes into a shared one: both the option and CMake's variable mend it."""
    (tmp_path / "helper.c").write_text("static int kept; int *helper(void) { return &kept; }", encoding="utf-8")
    (tmp_path / "user.c").write_text("int *helper(void); int *user(void) { return helper(); }", encoding="utf-8")
    lines = (
        "cmake_minimum_required(VERSION 3.18)\nproject(user C)\nadd_library(helper STATIC helper.c)\n"
        # Addresses of 64 bits: those are what a linker puts into code at all.
        "target_compile_options(helper PRIVATE -fno-pie -mcmodel=large)\n"
        "add_library(user SHARED user.c)\ntarget_link_libraries(user PRIVATE helper -s -Wl,-z,notext)\n"
    )
    (found,) = checked(built(tmp_path, lines) / "libuser.so")
    assert found.code == "text-relocations"
    option, variable = re.findall(r"-fPIC|CMAKE_\w+=ON", found.remedy)
    mended = lines.replace("-fno-pie", f"-fno-pie {option}")
    assert checked(built(tmp_path, mended) / "libuser.so") == []
    # CMake's own word for it comes before options of the project, which here take it back.
    assert checked(built(tmp_path, lines.replace("-fno-pie ", ""), f"-D{variable}") / "libuser.so") == []


@pytest.mark.performs('Set debug-symbols = "strip"')
@pytest.mark.parametrize("mend", ["strip", "-s"])
def test_symbols_that_were_left(mend: str, site: Site, tmp_path: Path) -> None:
    """What an author kept is not a finding of a build; of another wheel's file it is, and both ways out end it."""
    (found,) = checked(site.add("libops.so", C_FUNCTION))
    assert (found.code, found.message) == ("not-stripped", "still has its symbol table")
    assert mend in found.remedy
    if mend == "-s":
        assert checked(compiled(tmp_path, "libf.so", mend, f__c=C_FUNCTION)) == []
    else:
        config = site.config(debug_symbols=mend)
        assert site.audit(site.repair(config=config), config) == []


@pytest.mark.performs("-ffile-prefix-map")
def test_folders_of_the_builder(tmp_path: Path) -> None:
    """`__FILE__` holds the folder; the option of the remedy replaces its name."""
    (tmp_path / "f.c").write_text("const char *f(void) { return __FILE__; }", encoding="utf-8")

    def said(*options: str) -> list[Finding]:
        return checked(
            compiled(tmp_path, "libf.so", str(tmp_path / "f.c"), "-s", *options), build_dirs=(f"{tmp_path}",)
        )

    (found,) = said()
    assert (found.code, found.warning) == ("build-path", True)
    (option,) = re.findall(r"-ffile\S+map", found.remedy)
    assert said(f"{option}={tmp_path}=src") == []


@pytest.mark.performs("Link the library by its name", "Set the property IMPORTED_NO_SONAME")
def test_a_library_that_is_imported_by_its_file(tmp_path: Path) -> None:
    """Without SONAME the linker writes its path, which the repair cannot erase; the property or a SONAME help."""
    (tmp_path / "m.c").write_text("int v(void); int m(void) { return v(); }", encoding="utf-8")
    lines = (
        "cmake_minimum_required(VERSION 3.18)\nproject(m C)\nadd_library(v SHARED IMPORTED)\n"
        "set_target_properties(v PROPERTIES IMPORTED_LOCATION ${CMAKE_SOURCE_DIR}/libv.so)\n"
        "add_library(m SHARED m.c)\ntarget_link_libraries(m PRIVATE v -s)\n"
    )

    def said(more: str, *options: str) -> tuple[list[str], list[str]]:
        library = compiled(tmp_path, "libv.so", *options, v__cpp='extern "C" int v() { return 1; }')
        path = built(tmp_path, lines + more, "-DCMAKE_SKIP_RPATH=ON") / "libm.so"
        first = [found.code for found in checked(path, external={"libv.so": "author"})]
        repaired = path.with_name("repaired.so")
        repaired.write_bytes(path.read_bytes())
        subprocess.run([program("patchelf"), "--replace-needed", library, "libv.so", repaired], check=True)
        one = AuditedBinary(place=path.name, elf=elf.read(repaired), unstripped=path)
        subject = Subject(variant="label", binaries=(one,), build_dirs=(f"{tmp_path}",), external={"libv.so": "author"})
        later = [found for found in binary.check(subject) if found.code == "build-path"]
        assert all("IMPORTED_NO_SONAME" in found.remedy for found in later)
        return first, [found.message for found in later]

    message = f"holds the path by which the linker got a library without SONAME: {tmp_path / 'libv.so'}"
    assert said("") == (["needed-path"], [message])
    assert said("set_target_properties(v PROPERTIES IMPORTED_NO_SONAME ON)\n") == ([], [])
    assert said("", "-Wl,-soname,libv.so") == ([], [])


@pytest.mark.performs("Publish a build without --coverage")
def test_paths_of_coverage(tmp_path: Path) -> None:
    """A library that counts its lines names the files of the counts; without --coverage there are none."""

    def said(*options: str) -> list[str]:
        path = compiled(tmp_path, "libf.so", "-s", *options, f__c="int f(int x) { return x + 1; }")
        return [found.message for found in checked(path, build_dirs=(f"{tmp_path}",))]

    (found,) = said("--coverage")
    assert found.startswith(f"holds the paths of the files into which --coverage counts: {tmp_path}/")
    assert said() == []


@pytest.mark.performs("Use paths that begin with $ORIGIN")
@pytest.mark.parametrize("entry", ["/opt/torch/lib", "lib", "$ORIGIN:", "$ORIGIN/../../../../x"])
def test_paths_to_libraries(entry: str, site: Site) -> None:
    """Every kind of bad RPATH is gone with paths that stay inside site-packages, with none, and by the repair."""
    rpath = "-Wl,--enable-new-dtags,-rpath,{}".format
    path = site.add("libops.so", TORCH_CALL, options=["-s", rpath(entry)], links=[site.torch / "libc10.so"])
    (found,) = checked(path)
    assert found.code == "rpath"
    assert "$ORIGIN" in found.remedy
    for options in ([rpath("$ORIGIN/../torch/lib")], []):
        other = compile_library(site.root / "libops.so", TORCH_CALL, options=["-s", *options])
        assert checked(other) == []
    assert site.audit(site.repair(), site.config()) == []


@pytest.mark.performs("ook's repair does so.")
def test_what_the_repair_leaves_out(site: Site) -> None:
    """Libraries of torch, CUDA, OpenMP and the process are in the install tree: in the variant there is no finding."""
    names = ("libc10.so", "libcudart-d0da41ae.so.12", "libgomp.so.1", "libX11.so.6", "libtcmalloc.so.4")
    there = [site.add(name, "", options=["-s"]) for name in names]
    site.add("libops.so", TORCH_CALL, options=["-s"])
    told = {found.code: found.remedy for found in checked(*there)}
    assert set(told) == {"bundled-torch", "bundled-cuda", "bundled-runtime", "openmp-twice"}
    assert [code for code, remedy in told.items() if "The hook's repair does so." not in remedy] == ["openmp-twice"]
    built = site.repair()
    assert site.audit(built, site.config()) == []
    assert [file.path.rpartition("/")[2] for file in built.variant.files] == ["libops.so"]


@pytest.mark.performs("patchelf --replace-needed")
def test_versions_of_a_library_that_is_not_needed(tmp_path: Path) -> None:
    """One half of a library's name was changed: patchelf, as the remedy calls it, changes both."""
    (tmp_path / "map").write_text("ONE { global: *; };", encoding="utf-8")
    compiled(tmp_path, "libk.so", "-Wl,-soname,libk.so.1", "-Wl,--version-script=map", k__c="int k(void) { return 1; }")
    user = compiled(tmp_path, "libu.so", "-s", "libk.so", u__c="int k(void); int u(void) { return k(); }")
    (tmp_path / "libk.so").rename(tmp_path / "libk-0a.so.1")
    patchelf = program("patchelf")
    half = user.with_name("libhalf.so")
    half.write_bytes(user.read_bytes())
    subprocess.run([patchelf, "--remove-needed", "libk.so.1", half], check=True)
    (found,) = checked(half)
    assert found.code == "version-needs"
    (option,) = re.findall(r"patchelf (--[\w-]+)", found.remedy)
    subprocess.run([patchelf, option, "libk.so.1", "libk-0a.so.1", user], check=True)
    assert checked(user, external={"libk-0a.so.1": "author"}) == []
    code = f"import ctypes; ctypes.CDLL({str(user)!r})"
    subprocess.run([sys.executable, "-c", code], check=True, env={"LD_LIBRARY_PATH": str(tmp_path)})


@pytest.mark.performs("Link Python::Module")
def test_libpython(tmp_path: Path) -> None:
    """Python::Python links the library, Python::Module does not."""
    library = compiled(tmp_path, "libpython3.11.so.1.0", "-Wl,-soname,libpython3.11.so.1.0", p__c="void *PyInit_x;")
    (tmp_path / "m.c").write_text("void *PyInit_m(void) { return 0; }", encoding="utf-8")
    lines = (
        "cmake_minimum_required(VERSION 3.18)\nproject(m C)\n"
        "find_package(Python REQUIRED COMPONENTS Interpreter Development)\n"
        'add_library(m MODULE m.c)\nset_target_properties(m PROPERTIES PREFIX "" LINK_OPTIONS -s)\n'
        "target_link_options(m PRIVATE -Wl,--no-as-needed)\ntarget_link_libraries(m PRIVATE {})\n"
    )
    include = subprocess.check_output(
        [sys.executable, "-c", "import sysconfig; print(sysconfig.get_path('include'))"], text=True
    ).strip()
    options = (
        f"-DPython_EXECUTABLE={sys.executable}",
        f"-DPython_LIBRARY={library}",
        f"-DPython_INCLUDE_DIR={include}",
    )
    (found,) = checked(built(tmp_path, lines.format("Python::Python"), *options) / "m.so", python="cp311")
    assert (found.code, found.message) == ("libpython", "needs libpython3.11.so.1.0")
    right, wrong = re.findall(r"Python::\w+", found.remedy)
    assert wrong == "Python::Python"
    assert checked(built(tmp_path, lines.format(right), *options) / "m.so", python="cp311") == []


LATER = """
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#if !defined(Py_LIMITED_API) || Py_LIMITED_API >= 0x030b0000
static PyObject* name(PyObject*, PyObject* type) { return PyType_GetName((PyTypeObject*)type); }
#else
static PyObject* name(PyObject*, PyObject* type) { return PyObject_GetAttrString(type, "__name__"); }
#endif
static PyMethodDef methods[] = {{"name", name, METH_O, nullptr}, {nullptr, nullptr, 0, nullptr}};
static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_C", nullptr, -1, methods};
PyMODINIT_FUNC PyInit__C() { return PyModule_Create(&definition); }
"""


@pytest.mark.performs("Build the module with the Python", "Build the module without the limited API")
@pytest.mark.skipif(sys.version_info < (3, 11), reason="older headers lack the function")
def test_the_python_of_a_module_and_the_limited_api(tmp_path: Path) -> None:
    """A module of a newer function than it promises: without the promise, or with a definition of it, none is left."""
    here = f"{sys.version_info[0]}{sys.version_info[1]}"
    include = f"-I{Path(sysconfig.get_path('include'))}"

    def said(name: str, python: str, *options: str) -> list[Finding]:
        return checked(compiled(tmp_path, name, include, "-s", *options, m__cpp=LATER), python=python)

    (found,) = said("_C.abi3.so", "abi3-cp39")
    assert (found.code, found.message) == (
        "abi3-violation",
        "says abi3 from Python 3.9 on, but needs PyType_GetName, which came later",
    )
    assert said(f"_C.cpython-{here}-x86_64-linux-gnu.so", f"cp{here}") == []
    (define,) = re.findall(r"Py_LIMITED_API", found.remedy)
    assert said("_C.abi3.so", "abi3-cp39", f"-D{define}=0x03090000") == []
    assert said("_C.abi3.so", "abi3-cp311", f"-D{define}=0x030b0000") == []
    (found,) = said("_C.cpython-310-x86_64-linux-gnu.so", "cp310")
    assert found.code == "python-tag"
    assert found.message.endswith("needs PyType_GetName, which Python 3.10 does not have")
    packed = said("_C.cpython-310-x86_64-linux-gnu.so", f"cp{here}")
    assert f"is a module for cp310, but is packed for cp{here}" in {each.message for each in packed}
    assert {each.code for each in packed} == {"python-tag"}


@pytest.mark.performs("name and build it for each Python")
def test_pybind11_under_the_limited_api(torch_cpu_python: Path, tmp_path: Path) -> None:
    """The same module, named and packed for its Python, is as it should be."""
    command = [str(torch_cpu_python), "-c", "import sysconfig as s; print(*map(s.get_path, ('include', 'purelib')))"]
    include, site = subprocess.check_output(command, text=True).split()
    source = '#include <pybind11/pybind11.h>\nPYBIND11_MODULE(_C, m) { m.attr("answer") = 42; }'
    module = compiled(tmp_path, "_C.abi3.so", "-O0", "-s", f"-I{include}", f"-I{site}/torch/include", m__cpp=source)

    def said(path: Path, packed: str) -> set[str]:
        found = checked(path, python=packed)
        return {each.remedy for each in found if each.code in {"abi3-violation", "python-tag"}}

    (remedy,) = said(module, "abi3-cp39")
    assert remedy.endswith("or name and build it for each Python (WITH_SOABI, no USE_SABI).")
    named = module.rename(tmp_path / "_C.cpython-311-x86_64-linux-gnu.so")
    assert said(named, "cp311") == set()


@pytest.mark.performs("-fopenmp", "compile with GCC")
def test_openmp(site: Site, tmp_path: Path) -> None:
    """GCC's -fopenmp needs a runtime that torch has, and the repair leads there; Clang's needs one that it lacks."""
    source = "void f(int *x) {\n#pragma omp parallel for\nfor (int i = 0; i < 9; i++) x[i] = i; }"
    gomp = site.torch / "libgomp-a34b3233.so.1"
    facts = {"provided": frozenset(path.name for path in site.torch.iterdir())}
    vendored = compiled(
        tmp_path, "libgomp-0a1b2c3d.so.1", "-s", "-Wl,-soname,libgomp-0a1b2c3d.so.1", g__c="void GOMP_x(void) {}"
    )
    (found,) = checked(vendored)
    assert found.code == "openmp-twice"
    (option,) = re.findall(r"-fopenmp", found.remedy)
    path = site.add("libops.so", source, options=["-s", option])
    assert [each.message for each in checked(path, **facts)] == [
        f"needs libgomp.so.1, but the OpenMP runtime of this torch is {gomp.name}"
    ]
    built = site.repair()
    assert gomp.name in file_of(built, "libops.so").needed
    assert site.audit(built, site.config()) == []
    omp = compile_library(site.root / "llvm" / "libomp.so.5", "void __kmpc_fork_call(void) {}")
    site.add("libops.so", "void __kmpc_fork_call(void); void f(void) { __kmpc_fork_call(); }", links=[omp])
    with pytest.raises(RepairError, match=r"; compile with GCC "):
        site.repair()


@pytest.mark.performs("Compile against the torch release that it is for", "Where TORCH_EXT_STABLE_ABI is ON")
def test_symbols_of_torch(site: Site) -> None:
    """What torch lacks, what another library has, what is not stable: each is mended by what it says."""
    exports = {
        name: frozenset(elf.read(site.torch / name).exported)
        for name in ("libc10.so", "libtorch_cpu.so", "libtorch.so")
    }
    call = "void {0}(void); void f(void) {{ {0}(); }}".format
    known, gone, c10 = "_ZN2at4_ops9add_Tensor4callEv", "_ZN2at4goneEv", "_ZN3c106detail14torchCheckFailEPKcS2_jS2_"

    def said(symbol: str, *links: str, **facts: object) -> list[Finding]:
        paths = [site.torch / name for name in links]
        path = compile_library(site.root / "libx.so", call(symbol), links=paths, options=["-s"])
        return checked(path, exports=exports, torch="2.8.0", **facts)

    (found,) = said(gone, "libtorch_cpu.so", "libc10.so")
    assert (found.code, found.message) == ("undefined-symbol", "needs _ZN2at4goneEv, which torch 2.8.0 does not export")
    assert said(known, "libtorch_cpu.so", "libc10.so") == []
    (found,) = said(c10)
    assert found.message == f"needs {c10}, which libc10.so exports, but libc10.so is not in NEEDED"
    assert said(c10, "libc10.so") == []
    assert [each.code for each in said(known, "libtorch_cpu.so", stable_abi=True)] == ["unstable-symbol"]
    assert said("aoti_torch_library_def", "libtorch_cpu.so", stable_abi=True) == []
    assert said(known, "libtorch_cpu.so", stable_abi=False) == []
