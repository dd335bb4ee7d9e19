"""Files for other machines and another C library: read, repaired and tagged by their own tables."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

import elves
from hatch_torch_ext import elf, merge
from hatch_torch_ext.audit import variants
from hatch_torch_ext.audit.findings import settle
from hatch_torch_ext.audit.subject import AuditedBinary, Subject
from trees import TORCH_CALL, Site, compile_library

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

AARCH64 = "aarch64-linux-gnu-gcc"
LABEL = "torch2.8_cpu_cxx11_aarch64"
SYMBOL = "_ZN3c106detail14torchCheckFailEPKcS2_jS2_"


@pytest.fixture
def site(tmp_path: Path, stubs: Path) -> Site:
    """Return a site for aarch64; this machine's `strip` does not know its files, so symbols are kept."""
    return Site(root=tmp_path, stubs=stubs, machine="aarch64")


def written(site: Site) -> None:
    """Install a library that the test itself writes: no compiler is needed."""
    site.prefix.mkdir(parents=True)
    (site.prefix / "libops.so").write_bytes(
        elves.shared_object(machine="aarch64", needed=("libc.so.6",), soname="libops.so", undefined=(SYMBOL,))
    )


def compiled(site: Site) -> None:
    """Install a library that a cross compiler makes."""
    if shutil.which(AARCH64) is None:
        pytest.skip(f"no {AARCH64} on this machine (Debian: gcc-aarch64-linux-gnu)")
    site.prefix.mkdir(parents=True)
    command = [
        AARCH64,
        "-w",
        "-shared",
        "-fPIC",
        "-Wl,-soname,libops.so",
        "-o",
        str(site.prefix / "libops.so"),
        "-xc",
        "-",
    ]
    source = TORCH_CALL + "double pow(double, double); double g(double x) { return pow(x, x); }"
    subprocess.run([*command, "-xnone", "-lm"], input=source.encode(), check=True)


def test_a_cross_made_library(site: Site) -> None:
    """The policy is that of aarch64's own table; NEEDED, RPATH and the tag come out as on the machine itself."""
    compiled(site)
    config = site.config(debug_symbols="keep")
    built = site.repair(config=config)
    (file,) = built.variant.files
    assert (built.variant.label, built.variant.machine, file.path) == (LABEL, "aarch64", f"{LABEL}/libops.so")
    assert {"libc10.so", "libtorch_cpu.so", "libm.so.6"} <= set(file.needed)
    assert built.variant.policy.endswith("_aarch64")
    facts = elf.read(built.root / file.path)
    assert (facts.machine, facts.runpath[0]) == ("aarch64", "$ORIGIN/../../../torch/lib")
    assert merge.merge([built], package=config.package, distribution="d").tag == f"py3-none-{built.variant.policy}"


@pytest.mark.parametrize("make", [written, compiled])
def test_the_audit_reads_it(make: Callable[[Site], None], site: Site) -> None:
    """The checks are the same; only where the wheel says another machine is there a fault."""
    make(site)
    binary = AuditedBinary(place="label/libops.so", elf=elf.read(site.prefix / "libops.so"))
    needed = (*binary.elf.needed, "libc10.so")
    whole = replace(binary, elf=replace(binary.elf, needed=needed, has_symbol_table=False, has_debug=False))
    subject = Subject(variant="label", binaries=(whole,), machines=("aarch64",), ours=True)
    assert list(found(subject)) == []
    assert list(found(replace(subject, machines=("x86_64",)))) == [
        ("wrong-machine", "is for aarch64, but it is packed for x86_64")
    ]


def test_names_of_glibc_are_asked_of_the_files_machine(arm64: Path, tmp_path: Path) -> None:
    """The machine's own glibc shows which names it has since when; without it, C names are not checked."""
    path = tmp_path / "libops.so"
    path.write_bytes(
        elves.shared_object(
            machine="aarch64",
            needed=("libc.so.6",),
            soname="libops.so",
            versions={"libc.so.6": ("GLIBC_2.17",)},
            # only x86-64 has arch_prctl, __libc_single_threaded of 2.32.
            undefined=("strlen@GLIBC_2.17", "pow", "arch_prctl", "__libc_single_threaded", "launch_kernel"),
        )
    )
    binary = AuditedBinary(place="label/libops.so", elf=elf.read(path))
    subject = Subject(variant="label", binaries=(binary,), machines=("aarch64",), sysroot=arm64 / "root", ours=True)
    told = "needs __libc_single_threaded, arch_prctl, launch_kernel, which no file that it loads defines"
    assert ("missing-symbol", told) in list(found(subject))
    nowhere = replace(binary, elf=replace(binary.elf, machine="riscv64"))
    subject = replace(subject, binaries=(nowhere,), machines=("riscv64",), sysroot=None)
    assert "missing-symbol" not in dict(found(subject))


def found(subject: Subject) -> Iterator[tuple[str, str]]:
    """Yield code and message of each finding."""
    return ((item.code, item.message) for item in settle(variants.check(subject)))


def test_musl(tmp_path: Path, stubs: Path) -> None:
    """A library of musl gets musl's tag, whether NEEDED has the name of Alpine's libc or the one of musl's own gcc."""
    for number, libc in enumerate(("libc.musl-x86_64.so.1", "libc.so")):
        site = Site(root=tmp_path / str(number), stubs=stubs)
        library = compile_library(tmp_path / libc, "void puts(void) {}", options=["-nostdlib"])
        site.add("libops.so", TORCH_CALL, links=[library], options=["-nostdlib"])
        built = site.repair()
        assert (built.variant.libc, built.variant.policy) == ("musl", "musllinux_1_2_x86_64")
        assert libc in built.variant.files[0].needed
        assert merge.merge([built], package="pkg", distribution="d").tag == "py3-none-musllinux_1_2_x86_64"


def test_musl_as_its_compiler_makes_it(tmp_path: Path, stubs: Path) -> None:
    """The same of a file that musl-gcc linked."""
    if shutil.which("musl-gcc") is None:
        pytest.skip("no musl-gcc on this machine (Debian: musl-tools)")
    site = Site(root=tmp_path, stubs=stubs)
    site.prefix.mkdir(parents=True)
    command = ["musl-gcc", "-w", "-shared", "-fPIC", "-o", str(site.prefix / "libops.so"), "-xc", "-"]
    subprocess.run(command, input=b'#include <stdio.h>\nvoid f(void) { puts("f"); }', check=True)
    assert site.repair().variant.policy == "musllinux_1_2_x86_64"
