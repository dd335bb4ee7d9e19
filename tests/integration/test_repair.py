"""Repair of install trees of real shared libraries: what stays, what is removed, and the NEEDED and RPATH entries."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import disk
from hatch_torch_ext import elf, merge
from hatch_torch_ext.base.errors import MergeError, RepairError
from hatch_torch_ext.facts import content, owners
from trees import TORCH_CALL, Site, compile_library, file_of, opens, program

if TYPE_CHECKING:
    from pathlib import Path

CUDA_CALL = "void _ZN3c104cuda20getCurrentCUDAStreamEa(void); void f(void) { _ZN3c104cuda20getCurrentCUDAStreamEa(); }"
BUILT_FOR_CPU = "torch2.8_cpu_cxx11_x86_64"


@pytest.fixture
def cuda_site(tmp_path: Path, stubs: Path) -> Site:
    """Return a site whose torch is a CUDA 12.8 build."""
    return Site(root=tmp_path, stubs=stubs, cuda="12.8")


@pytest.mark.parametrize("links", [(), ("libtorch.so",), ("libtorch.so", "libtorch_cpu.so", "libc10.so")])
def test_needed_names_the_owners_of_the_symbols_however_it_was_linked(site: Site, links: tuple[str, ...]) -> None:
    """NEEDED of torch's libraries follows from the symbols, whether the linker saw all, one, or none of them."""
    site.add("libops.so", TORCH_CALL, links=[site.torch / name for name in links])
    built = site.repair()
    file = file_of(built, "libops.so")
    assert file.path == f"{BUILT_FOR_CPU}/libops.so"
    assert sorted(file.needed) == ["libc.so.6", "libc10.so", "libtorch_cpu.so"]
    assert built.variant.python is None


def test_a_repaired_library_opens_before_torch(site: Site) -> None:
    """From a program that never imported torch, ld.so finds torch's libraries by RUNPATH; from shared/ as well."""
    site.add("libops.so", TORCH_CALL, links=[site.torch / "libtorch.so"])
    folder = site.install(site.repair())
    library = folder / BUILT_FOR_CPU / "libops.so"
    moved = folder / "shared" / "0123456789ab" / "libops.so"
    moved.parent.mkdir(parents=True)
    shutil.copyfile(library, moved)
    for place in (library, moved):
        assert opens(place).returncode == 0, opens(place).stderr
    assert elf.read(library).runpath == ("$ORIGIN/../../../torch/lib", "$ORIGIN/../../../../torch/lib")


def test_a_dotted_package_is_deeper(tmp_path: Path, stubs: Path) -> None:
    """RUNPATH counts the parts of the package's name; a folder of the install tree adds one more."""
    site = Site(root=tmp_path, stubs=stubs, package="a.b")
    site.add("a/b/plugins/libops.so", TORCH_CALL)
    folder = site.install(site.repair())
    library = folder / BUILT_FOR_CPU / "plugins" / "libops.so"
    assert opens(library).returncode == 0, opens(library).stderr


def test_build_paths_and_empty_entries_leave_the_rpath(site: Site) -> None:
    """An absolute RPATH and the odd empty entry of torch's own CMake package are gone."""
    site.add("libplain.so", "int f(void) { return 1; }", options=["-Wl,-rpath,/lib/intel64:/build/dir:"])
    facts = elf.read(site.repair().root / BUILT_FOR_CPU / "libplain.so")
    assert facts.rpath + facts.runpath == ()


def test_a_cpu_extension_built_with_a_cuda_torch_is_a_cpu_variant(cuda_site: Site) -> None:
    """libtorch_cuda and libcudart in the link command, no symbol of them used: NEEDED loses them."""
    cudart = compile_library(cuda_site.root / "toolkit" / "libcudart.so.12", "void cudaMalloc(void) {}")
    cuda_site.add("libops.so", TORCH_CALL, links=[cuda_site.torch / "libtorch_cuda.so", cudart])
    built = cuda_site.repair()
    assert (built.variant.backend, built.variant.label) == ("cpu", BUILT_FOR_CPU)
    assert sorted(file_of(built, "libops.so").needed) == ["libc.so.6", "libc10.so", "libtorch_cpu.so"]


def test_cuda_symbols_make_a_cuda_variant(cuda_site: Site) -> None:
    """c10::cuda belongs to libc10_cuda.so, which is then in NEEDED; the label carries the version of CUDA."""
    cuda_site.add("libops.so", CUDA_CALL)
    built = cuda_site.repair()
    assert built.variant.label == "torch2.8_cu12.8_cxx11_x86_64"
    assert "libc10_cuda.so" in file_of(built, "libops.so").needed


@pytest.mark.performs("leave the GPU sources out")
def test_cuda_symbols_with_a_cpu_torch_are_refused(site: Site) -> None:
    """A torch without CUDA cannot serve a file that uses c10::cuda; the message names file, symbol and remedy."""
    site.add("libops.so", CUDA_CALL)
    with pytest.raises(RepairError) as caught:
        site.repair()
    uses = "e: `libops.so` uses _ZN3c104cuda20getCurrentCUDAStreamEa of libc10_cuda.so, but "
    assert str(caught.value) == (
        f"{uses}torch 2.8.0+cpu is a CPU build: take a GPU build of torch for this entry, or leave the GPU sources "
        "out of it"
    )
    with pytest.raises(RepairError) as caught:
        site.repair(cuda="cpu")
    assert str(caught.value) == (
        f"{uses}the matrix says `cuda = cpu`: leave the GPU sources out where `TORCH_EXT_CUDA` is `cpu`, or give the "
        "entry the version of its toolkit"
    )
    site.add("libops.so", TORCH_CALL)
    for cuda in (None, "cpu"):
        assert site.repair(cuda=cuda).variant.backend == "cpu"
    site.add("libops.so", CUDA_CALL)
    for_cuda = Site(root=site.root / "other", stubs=site.stubs, cuda="12.8")
    assert site.repair(sdk=for_cuda.sdk(), cuda="12.8").variant.cuda == "12.8"


def test_the_driver_with_a_cpu_torch(site: Site) -> None:
    """A file that needs libcuda.so.1 is refused in words; where `exclude` leaves the driver to users, it is kept."""
    driver = compile_library(site.root / "driver" / "libcuda.so.1", "void cuInit(void) {}")
    site.add("libops.so", TORCH_CALL + "void cuInit(void); void start(void) { cuInit(); }", links=[driver])
    with pytest.raises(
        RepairError, match=r"`libops.so` needs libcuda.so.1, but torch 2\.8\.0\+cpu is a CPU build: take"
    ):
        site.repair()
    built = site.repair(config=site.config(exclude=("libcuda.so.1",)))
    assert (built.variant.backend, built.variant.external) == ("cpu", (("libcuda.so.1", "author"),))


def _mangled_cudart(site: Site) -> Path:
    """Install a runtime as another repair tool left it, with versions, beside a library that uses it."""
    versions = site.root / "cudart.map"
    versions.write_text("libcudart.so.12 { global: *; };\n", encoding="utf-8")
    return site.add(
        "libcudart-d0da41ae.so.12", "void cudaMalloc(void) {}", options=[f"-Wl,--version-script={versions}"]
    )


def test_a_vendored_cuda_runtime_is_taken_out(cuda_site: Site) -> None:
    """The mangled copy of CMake's is removed; NEEDED, version needs and RUNPATH lead to torch's nvidia wheel."""
    cudart = _mangled_cudart(cuda_site)
    cuda_site.add("libops.so", "void cudaMalloc(void); void f(void) { cudaMalloc(); }", links=[cudart])
    sdk = cuda_site.sdk(nvidia={"libcudart.so.12": "nvidia/cuda_runtime/lib"})
    built = cuda_site.repair(sdk=sdk)
    file = file_of(built, "libops.so")
    assert [each.path for each in built.variant.files] == ["torch2.8_cu12.8_cxx11_x86_64/libops.so"]
    assert sorted(file.needed) == ["libc.so.6", "libcudart.so.12"]
    facts = elf.read(built.root / file.path)
    assert dict(facts.version_needs)["libcudart.so.12"] == ("libcudart.so.12",)
    assert facts.runpath[0] == "$ORIGIN/../../../nvidia/cuda_runtime/lib"
    assert "libcudart-d0da41ae.so.12 is left out: torch or the driver provides it" in cuda_site.said


@pytest.mark.performs("compile with the toolkit")
def test_the_runtime_of_another_cuda_is_refused(cuda_site: Site) -> None:
    """A file that uses CUDA 11's runtime is refused for a torch with CUDA 12's."""
    cudart = compile_library(cuda_site.root / "toolkit" / "libcudart.so.11.0", "void cudaMalloc(void) {}")
    cuda_site.add("libops.so", "void cudaMalloc(void); void f(void) { cudaMalloc(); }", links=[cudart])
    with pytest.raises(RepairError) as caught:
        cuda_site.repair(sdk=cuda_site.sdk(nvidia={"libcudart.so.12": "nvidia/cuda_runtime/lib"}))
    assert str(caught.value) == (
        "e: `libops.so` needs libcudart.so.11.0, but torch 2.8.0 has libcudart.so.12; compile with the toolkit of "
        "CUDA 12.8"
    )
    cudart = compile_library(cuda_site.root / "toolkit-12.8" / "libcudart.so.12", "void cudaMalloc(void) {}")
    cuda_site.add("libops.so", "void cudaMalloc(void); void f(void) { cudaMalloc(); }", links=[cudart])
    built = cuda_site.repair(sdk=cuda_site.sdk(nvidia={"libcudart.so.12": "nvidia/cuda_runtime/lib"}))
    assert "libcudart.so.12" in file_of(built, "libops.so").needed


def test_openmp_is_torchs_own_even_under_its_mangled_name(site: Site) -> None:
    """Libgomp of the system, installed beside the library or not, gives way to the copy that torch has."""
    gomp = site.add("libgomp.so.1", "void GOMP_parallel(void) {}")
    site.add("libops.so", "void GOMP_parallel(void); void f(void) { GOMP_parallel(); }", links=[gomp])
    built = site.repair()
    assert sorted(file_of(built, "libops.so").needed) == ["libc.so.6", "libgomp-a34b3233.so.1"]
    library = site.install(built) / BUILT_FOR_CPU / "libops.so"
    assert opens(library).returncode == 0, opens(library).stderr


def test_another_openmp_runtime_is_refused(site: Site) -> None:
    """LLVM's runtime beside torch's GNU one would start its threads twice; it is never grafted."""
    omp = compile_library(site.root / "llvm" / "libomp.so.5", "void __kmpc_fork_call(void) {}")
    site.add("libops.so", "void __kmpc_fork_call(void); void f(void) { __kmpc_fork_call(); }", links=[omp])
    with pytest.raises(RepairError) as caught:
        site.repair()
    assert str(caught.value) == (
        "e: `libops.so` needs the OpenMP runtime libomp.so.5, which torch 2.8.0+cpu does not have, and two OpenMP "
        "runtimes in one process break each other; compile with GCC (Clang's `-fopenmp=libgomp` ignores the pragmas)"
    )


def test_a_module_belongs_to_its_python(site: Site) -> None:
    """PyInit_ makes a module: its dotted name skips lib/, libpython leaves NEEDED, torch's Python half comes in."""
    python = compile_library(site.root / "python" / "libpython3.11.so.1.0", "void PyModule_Create2(void) {}")
    source = (
        "void PyModule_Create2(void); void THPVariable_Wrap(void);"
        "void PyInit__C(void) { PyModule_Create2(); THPVariable_Wrap(); }"
    )
    site.add("lib/sub/_C.cpython-311-x86_64-linux-gnu.so", source, links=[python])
    built = site.repair()
    file = file_of(built, ".so")
    assert file.path == f"{BUILT_FOR_CPU}_cp311/sub/_C.cpython-311-x86_64-linux-gnu.so"
    assert (file.kind, file.module, built.variant.python) == ("module", "sub._C", "cp311")
    assert sorted(file.needed) == ["libc.so.6", "libtorch_python.so"]


@pytest.mark.parametrize(
    ("flags", "python"),
    [("-DPy_LIMITED_API=0x03090000", "abi3-cp39"), ("", "abi3-cp311"), ("-DPy_LIMITED_API=3", "abi3-cp32")],
)
def test_a_limited_api_module_serves_from_its_oldest_python_on(site: Site, flags: str, python: str) -> None:
    """The oldest Python is the one that Py_LIMITED_API names; without it, the one that compiled."""
    site.add("_C.abi3.so", "void PyInit__C(void) {}")
    assert site.repair(flags=flags).variant.python == python


def test_a_module_may_carry_cmakes_lib_prefix(site: Site) -> None:
    """`add_library(_C SHARED)` makes lib_C.so; its PyInit_ function shows that it is a module."""
    site.add("lib_C.so", "void PyInit__C(void) {}")
    assert file_of(site.repair(), "lib_C.so").module == "_C"


def test_registration_is_seen(site: Site) -> None:
    """A file that uses torch's registration, C++ or stable, is one that the loader opens."""
    site.add("libstable.so", "void aoti_torch_library_def(void); void f(void) { aoti_torch_library_def(); }")
    site.add("libcxx.so", "void _ZN5torch7LibraryC1Ev(void); void f(void) { _ZN5torch7LibraryC1Ev(); }")
    site.add("libnone.so", TORCH_CALL)
    built = site.repair()
    assert {file.path.rpartition("/")[2]: file.registers for file in built.variant.files} == {
        "libstable.so": True, "libcxx.so": True, "libnone.so": False,
    }  # fmt: skip
    assert sorted(file_of(built, "libstable.so").needed) == ["libc.so.6", "libtorch_cpu.so"]


def test_what_the_loader_compares_is_described(site: Site) -> None:
    """What a file registers with torch, read before it is stripped, and the checksum of both ends, read after."""
    register = "void _ZN5torch7LibraryC1Ev(void);"
    macro = "static int _ZL32TORCH_LIBRARY_static_init_vision __attribute__((used)) = 1;"
    schema = 'const char *schema(void) { return "nms.out(Tensor boxes, *, Tensor(a!) out) -> Tensor(a!)"; }'
    site.add("libcxx.so", f"{register} {macro} {schema} void f(void) {{ _ZN5torch7LibraryC1Ev(); }}")
    site.add("libnone.so", TORCH_CALL)
    built = site.repair()
    cxx, none = file_of(built, "libcxx.so"), file_of(built, "libnone.so")
    assert (cxx.namespaces, none.namespaces) == (("vision",), ())
    assert (cxx.operators, none.operators) == (("vision::nms.out",), ())
    assert b"TORCH_LIBRARY" not in built.source(cxx.path).read_bytes()
    for file in cxx, none:
        assert file.ends == content.ends(built.source(file.path))


def test_a_stable_abi_variant_has_no_cxx_abi(site: Site) -> None:
    """Where torch's C++ interface is not used, its ABI does not tell variants apart."""
    site.add("libops.so", "void aoti_torch_library_def(void); void f(void) { aoti_torch_library_def(); }")
    variant = site.repair(stable=True).variant
    assert (variant.label, variant.cxx11_abi, variant.stable_abi) == ("stable2.8_cpu_x86_64", None, True)


def test_what_leads_to_one_library(site: Site) -> None:
    """An exported CMake package leads to the variant's library; targets that cannot be followed are left out."""
    site.add("lib/libops.so", TORCH_CALL)
    site.add("lib/libanother.so", TORCH_CALL)
    texts = {
        "lib/cmake/ops/ops-targets-release.cmake": 'IMPORTED_LOCATION "${_IMPORT_PREFIX}/lib/libops.so"',
        "lib/cmake/ops/ops-config.cmake": "include(ops-targets.cmake)",
        "lib/cmake/found/found-config.cmake": "find_library(LIB NAMES ops PATHS ${PACKAGE_PREFIX_DIR}/lib)",
        "lib/cmake/each/each-config.cmake": "foreach(name another x)\n find_library(LIB_${name} NAMES ${name})",
        "lib/cmake/free/free-config.cmake": "foreach(name anothers x)\n find_library(LIB_${name} NAMES ${name})",
        "lib/cmake/other/other-config.cmake": "set(libops.so.1 libopsx.so xlibops.so)",
        "ops-flat.cmake": "libops.so",
        "lib/pkgconfig/ops.pc": "Libs: -L${libdir} -lops",
        "lib/pkgconfig/headers.pc": "Cflags: -I${includedir} -lopsx",
        "ops.txt": "libops.so -lops",
    }
    disk.write(site.prefix, texts)
    led = ["lib/cmake/ops/ops-config.cmake", "lib/cmake/ops/ops-targets-release.cmake"]
    others = ["lib/cmake/free/free-config.cmake", "lib/cmake/other/other-config.cmake", "lib/pkgconfig/headers.pc"]
    kept = sorted([*led, *others, "ops.txt"])
    built = site.repair()
    assert [target for target, _ in built.package_files] == kept
    data = [file.installed for file in built.variant.files if file.kind == "data"]
    assert data == [f"exported/{path}" for path in led]
    own = built.source(f"{built.variant.label}/exported/{led[1]}").read_text(encoding="utf-8")
    assert own == 'IMPORTED_LOCATION "@torch-ext:libops.so@"'
    assert site.said[0] == (
        f"left out: {', '.join(sorted(texts.keys() - kept))}, since a wheel has one library for each variant, and "
        "these files name one in a way that cannot be redirected. C++ dependents ask `python -m pkg._variants --path "
        "libanother.so` or `python -m pkg._variants --path libops.so`: docs/loader.md, C++ programs, has the lines for "
        "CMake"
    )


@pytest.mark.performs("Let CMake install that file")
def test_a_cmake_package_in_the_packages_sources(site: Site) -> None:
    """CASE 86: it is in the wheel as it is, leads to nothing, and is reported; installed by CMake, it leads there."""
    site.add("lib/libops.so", TORCH_CALL)
    text = 'set(PREFIX ".")\nset_target_properties(o PROPERTIES IMPORTED_LOCATION "${PREFIX}/lib/libops.so")'
    own = site.root / "sources" / "cmake" / "ops-config.cmake"
    own.parent.mkdir(parents=True)
    own.write_text(text)
    (own.parent / "other.cmake").write_text("set(A 1)")
    config = site.config(package_dir=site.root / "sources")
    site.repair(config=config)
    (said,) = [line for line in site.said if "cmake/" in line]
    assert said.startswith("`cmake/ops-config.cmake` of pkg names libops.so, of which the wheel has one for each")
    (site.prefix / "cmake").mkdir()
    own.rename(site.prefix / "cmake" / "ops-config.cmake")
    site.said.clear()
    built = site.repair(config=config)
    assert [place for place, _ in built.package_files] == ["cmake/ops-config.cmake"]
    assert not any("of which the wheel" in line for line in site.said)


def test_data_headers_and_archives(site: Site) -> None:
    """Headers and Python files go to the package, at their place below its name; archives and objects stay out."""
    site.add("pkg/libops.so", TORCH_CALL)
    for place in ("include/ops.h", "lib/python3.11/site-packages/pkg/helper.py", "libops.a", "ops.o"):
        target = site.prefix / place
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text("text\n", encoding="utf-8")
    built = site.repair()
    assert [target for target, _ in built.package_files] == ["helper.py", "include/ops.h"]
    assert file_of(built, ".so").path == f"{BUILT_FOR_CPU}/libops.so"
    assert site.said[:2] == [
        f"{name} is left out: users of a wheel have no use for static archives and object files"
        for name in ("libops.a", "ops.o")
    ]


@pytest.mark.performs("install the file that it names")
def test_versioned_links_are_one_file(site: Site) -> None:
    """libk.so -> libk.so.1 -> libk.so.1.2 is one file, under the name that others need it by, with a hash in it."""
    library = site.add("lib/libk.so.1.2", "void k(void) {}", soname="libk.so.1")
    for link, target in (("libk.so.1", "libk.so.1.2"), ("libk.so", "libk.so.1")):
        (library.parent / link).symlink_to(target)
    site.add("lib/libops.so", "void k(void); void f(void) { k(); }", links=[library])
    built = site.repair()
    (kernel,) = (file for file in built.variant.files if file.path.startswith("shared/"))
    assert kernel.soname is not None
    assert re.fullmatch(r"libk-[0-9a-f]{8}\.so\.1", kernel.soname)
    assert kernel.path == f"shared/{kernel.sha256[:12]}/{kernel.soname}"
    library = site.install(built) / BUILT_FOR_CPU / "libops.so"
    assert opens(library).returncode == 0, opens(library).stderr


def test_two_packages_with_kernels_of_one_name_do_not_meet(tmp_path: Path, stubs: Path) -> None:
    """ld.so resolves a needed name in the whole process: still, each package gets its own libkernels.so."""
    opened = []
    for number, package in enumerate(("one", "two"), 1):
        site = Site(root=tmp_path / package, stubs=stubs, package=package)
        kernel = site.add("libkernels.so", f"int k(void) {{ return {number}; }}")
        site.add("libops.so", "int k(void); int f(void) { return k(); }", links=[kernel])
        opened.append(site.install(site.repair()) / BUILT_FOR_CPU / "libops.so")
    program = f"import ctypes; print(*(ctypes.CDLL(path).f() for path in {[*map(str, opened)]}))"
    assert subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout == "1 2\n"


def test_a_sibling_that_registers_operators_is_opened_by_its_path(site: Site) -> None:
    """It is renamed like any other sibling, since it is needed by name; the loader's list has its place, once."""
    register = "void _ZN5torch7LibraryC1Ev(void);"
    kernel = site.add("libkernels.so", f"{register} void k(void) {{ _ZN5torch7LibraryC1Ev(); }}")
    source = f"{register} void k(void); void f(void) {{ k(); _ZN5torch7LibraryC1Ev(); }}"
    site.add("libops.so", source, links=[kernel])
    built = site.repair()
    registering = {file.path: file.soname for file in built.variant.files if file.registers}
    (shared,) = (path for path in registering if path.startswith("shared/"))
    assert sorted(registering) == sorted([shared, f"{BUILT_FOR_CPU}/libops.so"])
    assert registering[shared] == shared.rpartition("/")[2] != "libkernels.so"


def test_a_module_that_others_need_keeps_its_suffix(site: Site) -> None:
    """The hash goes before the suffix that names the Python, and the module's dotted name stays."""
    module = site.add("_C.cpython-311-x86_64-linux-gnu.so", "void PyInit__C(void) {} void k(void) {}")
    site.add("libops.so", "void k(void); void f(void) { k(); }", links=[module])
    file = next(file for file in site.repair().variant.files if file.module is not None)
    assert file.module == "_C"
    assert re.fullmatch(r"_C-[0-9a-f]{8}\.cpython-311-x86_64-linux-gnu\.so", file.path.rpartition("/")[2])


def test_libraries_that_need_each_other_share_a_folder(site: Site) -> None:
    """Libraries in a cycle cannot be named by a hash of their bytes; they share a folder, and open."""
    first = site.add("liba.so", "void a(void) {}")
    second = site.add("libb.so", "void a(void); void b(void) { a(); }", links=[first])
    site.add("liba.so", "void b(void); void a(void) {} void aa(void) { b(); }", links=[second])
    site.add("libops.so", "void b(void); void f(void) { b(); }", links=[second])
    built = site.repair()
    shared = [file for file in built.variant.files if file.path.startswith("shared/")]
    assert len({file.path.rpartition("/")[0] for file in shared}) == 1
    assert [owners.plain(file.soname or "") for file in shared] == ["liba.so", "libb.so"]
    library = site.install(built) / BUILT_FOR_CPU / "libops.so"
    assert opens(library).returncode == 0, opens(library).stderr


def test_a_link_that_leads_nowhere_is_refused(site: Site) -> None:
    """A dangling link in the install tree cannot go into a wheel."""
    site.add("libops.so", TORCH_CALL)
    (site.prefix / "liblost.so").symlink_to("nowhere.so")
    with pytest.raises(RepairError) as caught:
        site.repair()
    assert str(caught.value) == (
        "e: CMake installed the link `liblost.so`, which points to nothing; install the file that it names as well"
    )


@pytest.mark.performs("folder under both names")
def test_a_link_to_a_folder_is_left_out(site: Site) -> None:
    """What was found through it is not there; a copy of the folder is."""
    site.add("libops.so", TORCH_CALL)
    (site.prefix / "v1").mkdir()
    (site.prefix / "v1" / "data.txt").touch()
    (site.prefix / "latest").symlink_to("v1")
    assert [place for place, _ in site.repair().package_files] == ["v1/data.txt"]
    assert [line for line in site.said if "a link to a folder" in line and line.startswith("latest is left out")]
    (site.prefix / "latest").unlink()
    shutil.copytree(site.prefix / "v1", site.prefix / "latest")
    assert [place for place, _ in site.repair().package_files] == ["latest/data.txt", "v1/data.txt"]


@pytest.mark.performs("install(TARGETS <yours>")
def test_an_empty_install_is_refused(site: Site) -> None:
    """Without a library there is no variant; what the line in the message installs is one."""
    site.prefix.mkdir(parents=True)
    with pytest.raises(RepairError) as caught:
        site.repair()
    assert str(caught.value) == (
        "e: CMake installed no library and no module; add `install(TARGETS <yours> LIBRARY DESTINATION .)`"
    )
    site.add("libops.so", TORCH_CALL)
    assert len(site.repair().variant.files) == 1


@pytest.mark.performs("build it again", "leave it out")
def test_a_truncated_library_is_refused(site: Site) -> None:
    """A file that is ELF by name and magic only gives one clean error that names it."""
    library = site.add("libops.so", TORCH_CALL)
    library.write_bytes(library.read_bytes()[:100])
    with pytest.raises(
        RepairError,
        match=r"e: .*/libops\.so cannot be read as an ELF file: its program .*; build it again, or leave it out$",
    ):
        site.repair()
    site.add("libother.so", TORCH_CALL)
    library.unlink()
    assert len(site.repair().variant.files) == 1
    site.add("libops.so", TORCH_CALL)
    assert len(site.repair().variant.files) == 2


@pytest.mark.performs("--no-as-needed")
def test_versions_of_a_library_that_the_linker_left_out(site: Site) -> None:
    """NEEDED lacks the library that has the versions: linked with the options of the message, it is there."""
    versions = site.root / "k.map"
    versions.write_text("ONE { global: *; };\n", encoding="utf-8")
    folder = site.root / "opt"
    compile_library(folder / "libk.so.1", "void k(void) {}", options=[f"-Wl,--version-script={versions}"])
    source = "void k(void); void f(void) { k(); }"
    library = site.add("libops.so", source, links=[folder / "libk.so.1"])
    subprocess.run([program("patchelf"), "--remove-needed", "libk.so.1", library], check=True)
    with pytest.raises(RepairError) as caught:
        site.repair()
    said = str(caught.value)
    assert said.startswith("e: `libops.so` asks for symbol versions of libk.so.1, which it does not need any more: ")
    options = said.split("`")[-2].split()
    site.add("libops.so", source, options=[f"-L{folder}", f"-Wl,-rpath,{folder}", *options])
    built = site.repair()
    assert opens(site.install(built) / BUILT_FOR_CPU / "libops.so").returncode == 0


def test_two_folders_give_the_same_bytes(tmp_path: Path, stubs: Path) -> None:
    """The repair of equal trees in different folders gives equal variants, hashes included."""
    variants = []
    for name in ("one", "another/and-deeper"):
        site = Site(root=tmp_path / name, stubs=stubs)
        kernel = compile_library(tmp_path / "kernel" / "libk.so", "void k(void) {}")
        site.prefix.mkdir(parents=True)
        shutil.copyfile(kernel, site.prefix / "libk.so")
        ops = compile_library(tmp_path / "ops" / "libops.so", "void k(void); void f(void) { k(); }", links=[kernel])
        shutil.copyfile(ops, site.prefix / "libops.so")
        variants.append(site.repair().variant)
    assert variants[0] == variants[1]


def test_the_build_id_is_of_what_is_left(tmp_path: Path, stubs: Path) -> None:
    """Files that differ only in their symbol tables are the same after the repair, build id included."""
    built, ids = [], []
    for name in ("one", "other"):
        site = Site(root=tmp_path / name, stubs=stubs)
        source = f"static int {name}(void) {{ return 1; }} int f(void) {{ return {name}(); }}"
        ids.append(elf.read(site.add("libops.so", source, options=["-Wl,--build-id"])).build_id)
        built.append(site.repair())
    assert ids[0] != ids[1]
    assert built[0].variant == built[1].variant
    facts = elf.read(built[0].root / BUILT_FOR_CPU / "libops.so")
    assert facts.build_id is not None
    assert len(facts.build_id) == 40


@pytest.mark.performs("take that option out")
@pytest.mark.parametrize("mode", ["strip", "split", "keep"])
def test_debug_symbols_are_stripped_split_or_kept(site: Site, mode: str) -> None:
    """`split` leaves what was stripped beside the variant, and the file says where; `keep` touches nothing."""
    site.add("libops.so", TORCH_CALL, options=["-g"])
    built = site.repair(config=site.config(debug_symbols=mode))
    facts = elf.read(built.root / BUILT_FOR_CPU / "libops.so")
    assert (facts.has_debug, facts.has_symbol_table) == (mode == "keep", mode == "keep")
    separate = site.root / "work" / "e" / "debug" / "libops.so.debug"
    assert separate.exists() == (mode == "split")
    site.repair(config=site.config(debug_symbols=mode), flags="-g -gsplit-dwarf")
    apart = [line for line in site.said if "stays in .dwo files" in line]
    assert len(apart) == (mode != "strip")


@pytest.mark.performs("{} or set it to `{}`")
def test_a_lower_policy_that_is_requested_is_refused(site: Site) -> None:
    """The message names the file and the very symbol that the policy requested does not promise."""
    versions = site.root / "libm.map"
    versions.write_text("GLIBC_2.34 { global: *; };\n", encoding="utf-8")
    libm = compile_library(
        site.root / "new" / "libm.so.6", "void fresh(void) {}", options=[f"-Wl,--version-script={versions}"]
    )
    site.add("libops.so", "void fresh(void); void f(void) { fresh(); }", links=[libm])
    built = site.repair()
    assert (built.variant.policy, built.variant.libc_floor) == ("manylinux_2_34_x86_64", "2.34")
    with pytest.raises(MergeError) as caught:
        merge.merge([built], package="pkg", manylinux="manylinux2014", distribution="d")
    assert str(caught.value) == (
        f"manylinux_2_17_x86_64 is required, but `{BUILT_FOR_CPU}/libops.so` of e needs fresh@GLIBC_2.34, which that "
        f"policy does not promise; take the option `manylinux` out or set it to `manylinux_2_34`, or build in the "
        f"image of manylinux_2_17_x86_64"
    )
    for manylinux in (None, "manylinux_2_34"):
        merged = merge.merge([built], package="pkg", manylinux=manylinux, distribution="d")
        assert merged.tag == "py3-none-manylinux_2_34_x86_64"


@pytest.mark.performs("compile it for that")
def test_a_library_of_another_machine_is_refused(site: Site) -> None:
    """An aarch64 library in an x86-64 variant is named, with both machines."""
    library = site.add("libops.so", TORCH_CALL)
    data = bytearray(library.read_bytes())
    data[18:20] = (183).to_bytes(2, "little")
    library.write_bytes(data)
    with pytest.raises(RepairError) as caught:
        site.repair()
    assert str(caught.value) == (
        "e: `libops.so` is for aarch64, the variant for x86_64; compile it for that, or leave it out"
    )
    site.add("libother.so", TORCH_CALL)
    library.unlink()
    assert len(site.repair().variant.files) == 1
    site.add("libops.so", TORCH_CALL)
    assert len(site.repair().variant.files) == 2


@pytest.mark.performs("give it another", "install one of them elsewhere", "rename the file in the sources")
def test_names_that_no_wheel_can_have_or_that_it_needs(site: Site) -> None:
    """The loader's own name, one of control characters, two files for one place: under other names they are there."""
    site.add("libops.so", TORCH_CALL)
    (site.prefix / "lib").mkdir()

    def refused(*names: str) -> str:
        for number, name in enumerate(names):
            (site.prefix / name).parent.mkdir(parents=True, exist_ok=True)
            (site.prefix / name).write_text(f"{number}", encoding="utf-8")
        with pytest.raises(RepairError) as caught:
            site.repair()
        return str(caught.value)

    assert (
        refused("_variants.py")
        == "e: CMake installed `_variants.py`, a name that the wheel needs itself; give it another"
    )
    (site.prefix / "_variants.py").rename(site.prefix / "variants.py")
    said = refused("a\nb.txt")
    assert said == (
        "e: CMake installed `a\\nb.txt`, whose name is not UTF-8 or has control characters or a backslash, and no "
        "wheel can hold it; rename the file in the sources, or do not install it"
    )
    (site.prefix / "a\nb.txt").rename(site.prefix / "a\\b.txt")
    assert "or a backslash" in refused("a\\b.txt")
    (site.prefix / "a\\b.txt").rename(site.prefix / "a\nb.txt")
    (site.prefix / "a\nb.txt").rename(site.prefix / "ab.txt")
    said = refused("pkg/data.txt", "data.txt")
    assert said == (
        f"e: {site.prefix}/data.txt and {site.prefix}/pkg/data.txt both go to `data.txt` of the package; install one "
        "of them elsewhere, or not at all"
    )
    (site.prefix / "data.txt").rename(site.prefix / "other.txt")
    assert [name for name, _ in site.repair().package_files] == ["ab.txt", "data.txt", "other.txt", "variants.py"]


ACTS = TORCH_CALL + "__attribute__((constructor)) static void hooks(void) { f(); }"


def test_a_library_that_only_acts_when_it_is_opened(site: Site) -> None:
    """CASE 74: hooks of a device, a fallback, a pass of the JIT are opened as what registers is; others are not."""
    acting = site.add("libhooks.so", ACTS)
    site.add("libplain.so", TORCH_CALL)
    site.add("libown.so", ACTS)
    site.add("libfree.so", "__attribute__((constructor)) static void nothing(void) {}")
    site.add("libneeded.so", ACTS.replace("f(", "g("))
    site.add("libuser.so", "void g(void); void h(void) { g(); }", links=[site.prefix / "libneeded.so"])
    built = site.repair(config=site.config(unopened=("libown.so",)))
    assert [file.path.rpartition("/")[2] for file in built.variant.files if file.registers] == ["libhooks.so"]
    assert [line for line in site.said if "runs when it is opened" in line] == [
        "libhooks.so registers no operator, but has code that runs when it is opened, so `load()` opens it; "
        "`unopened` leaves that to the package"
    ]
    site.install_wheel(built)
    opened = site.python("-c", "import pkg._variants as v, torch; v.load(); print(*torch.opened)")
    assert [part.rpartition("/")[2] for part in opened.stdout.split()] == ["libhooks.so"], opened.stderr
    assert elf.read(acting).runs_when_opened
    site.said.clear()
    left = site.repair(config=site.config(unopened=("libown.so", "libhooks.so")))
    assert not any(file.registers for file in left.variant.files)
    assert not any("runs when it is opened" in line for line in site.said)


def test_the_check_of_a_variant_that_registers_nothing(site: Site) -> None:
    """CASE 73: it is not said to work; a variant that the loader opens is."""
    said = []
    for source in (TORCH_CALL, ACTS):
        site.add("libops.so", source)
        site.install_wheel(site.repair())
        with (site.torch.parent / "__init__.py").open("a", encoding="utf-8") as torch:
            torch.write("_C._dispatch_get_all_op_names = list\n")
        said.append(site.python("-m", "pkg._variants", "--check").stdout)
    assert said == [
        f"{BUILT_FOR_CPU} is whole, but load() opens nothing of it: no file registers an operator or a class\n",
        f"{BUILT_FOR_CPU} works; its operators: none\n",
    ]
