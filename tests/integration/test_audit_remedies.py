"""What the audit says of files that real compilers make, and its remedies, performed: each makes its finding vanish."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import wheels
from hatch_torch_ext import audit, elf
from hatch_torch_ext.audit import binary, python, symbols
from hatch_torch_ext.audit.subject import AuditedBinary, Subject

if TYPE_CHECKING:
    from hatch_torch_ext.audit import Finding

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


def built(project: Path, lines: str, *options: str) -> Path:
    """Build a CMake project of these lines; return its build folder."""
    (project / "CMakeLists.txt").write_text(lines, encoding="utf-8")
    build = project / "build"
    tools = Path(sys.executable).parent  # both are dependencies of the project
    cmake, ninja = tools / "cmake", f"-DCMAKE_MAKE_PROGRAM={tools / 'ninja'}"
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
    """CASE 41: NCCL, cuDNN and cuSPARSELt are no part of the toolkit; CMake finds them where the toolchain looks."""
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


def test_a_forgotten_extern_c(tmp_path: Path) -> None:
    """CASE 41: a launcher that is C on one side alone; `extern "C"` on the other mends it."""
    (tmp_path / "user.c").write_text("void launch(float *); void user(void) { launch(0); }")
    subprocess.run(["gcc", "-c", "-fPIC", "user.c"], cwd=tmp_path, check=True)
    (found,) = judged(compiled(tmp_path, "libl.so", "user.o", kernel__cpp="void launch(float*) {}"))
    assert (found.code, found.warning) == ("missing-symbol", True)
    assert found.message.endswith('`extern "C"` is missing on one side')
    assert judged(compiled(tmp_path, "libl.so", "user.o", kernel__cpp='extern "C" void launch(float*) {}')) == []


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


def test_a_module_by_the_name_of_its_file(tmp_path: Path) -> None:
    """CASE 50: the properties that the remedy names give the file the module's name."""
    (tmp_path / "m.c").write_text("void *PyInit__C(void) { return 0; }")
    lines = "cmake_minimum_required(VERSION 3.18)\nproject(m C)\nadd_library(core SHARED m.c)\n"

    def said(name: str) -> list[str]:
        path = tmp_path / "build" / name
        file = AuditedBinary(place=name, elf=elf.read(path))
        return [each.message for each in python.check(Subject(variant="label", binaries=(file,), ours=True))]

    built(tmp_path, lines)
    assert said("libcore.so") == ["exports PyInit__C, so that Python cannot import it as `libcore`"]
    built(tmp_path, lines + 'set_target_properties(core PROPERTIES OUTPUT_NAME _C PREFIX "")\n')
    assert said("_C.so") == []


REGISTERS = 'extern "C" { void torch_library_impl(); int %s(); int use() { torch_library_impl(); return %s(); } }'


@pytest.mark.parametrize(
    ("tag", "requires", "why"),
    [
        ("py3-none", "torch>=2.10", "p/x.so was not opened: it needs libcudart.so.12, and there is torch 2.13.0"),
        ("py3-none", "torch==2.8.*", "not opened: the wheel requires torch==2.8.*, and there is torch 2.13.0"),
        ("cp310-cp310", "torch", "not opened: the wheel is for cp310, and the Python is cp311"),
    ],
)
def test_a_wheel_for_another_torch(tag: str, requires: str, why: str, torch_cpu_python: Path, tmp_path: Path) -> None:
    """CASE 69: files for another torch, backend or Python are reported as not opened, which is no fault."""
    compiled(tmp_path, "libcudart.so", "-Wl,-soname,libcudart.so.12", c__cpp='extern "C" int cudaRun() {return 0;}')
    data = compiled(tmp_path, "x.so", "-L.", "-lcudart", x__cpp=REGISTERS % ("cudaRun", "cudaRun")).read_bytes()
    path = wheels.write(tmp_path, {"p/x.so": data}, name=f"p-1-{tag}-linux_x86_64.whl", requires=[requires])
    said: list[str] = []
    found = audit.audit_wheel(path, open_with=torch_cpu_python, report=said.append)
    assert "cannot-open" not in {item.code for item in found}
    assert len(said) == 1
    assert said[0].startswith(why)
