"""One call of patchelf makes all changes of a file; errors contain the tools' output."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hatch_torch_ext import elf
from hatch_torch_ext.repair import writing
from hatch_torch_ext.repair.writing import Changes, PatchError
from trees import compile_library, opens, program


def test_all_changes_at_once(tmp_path: Path) -> None:
    """SONAME, NEEDED taken out, renamed and added, and RUNPATH change together; the version needs follow the name."""
    versions = tmp_path / "v.map"
    versions.write_text("V1 { global: *; };\n", encoding="utf-8")
    old = compile_library(tmp_path / "libold.so", "void o(void) {}", options=[f"-Wl,--version-script={versions}"])
    gone = compile_library(tmp_path / "libgone.so", "")
    file = compile_library(tmp_path / "libx.so", "void o(void); void f(void) { o(); }", links=[old, gone])
    changes = Changes(
        soname="liby.so",
        remove_needed=("libgone.so",),
        replace_needed={"libold.so": "libnew.so"},
        add_needed=("libz.so.1",),
        rpath=("$ORIGIN", "$ORIGIN/../a"),
    )
    writing.apply(Path(program("patchelf")), file, changes, log=tmp_path / "log")
    facts = elf.read(file)
    assert facts.soname == "liby.so"
    assert sorted(facts.needed) == ["libc.so.6", "libnew.so", "libz.so.1"]
    assert facts.runpath == ("$ORIGIN", "$ORIGIN/../a")
    assert dict(facts.version_needs)["libnew.so"] == ("V1",)
    old.rename(tmp_path / "libnew.so")
    assert opens(file).returncode == 0, opens(file).stderr


def test_nothing_to_change_needs_no_call(tmp_path: Path) -> None:
    """Without changes the program is not started at all: here it does not exist."""
    writing.apply(tmp_path / "no-such-program", tmp_path / "no-such-file", Changes(), log=tmp_path / "log")


def test_what_patchelf_says_is_in_the_error(tmp_path: Path) -> None:
    """For a file that is not an ELF file, the error has the file's name and patchelf's message."""
    file = tmp_path / "libx.so"
    file.write_text("text", encoding="utf-8")
    with pytest.raises(PatchError) as caught:
        writing.apply(Path(program("patchelf")), file, Changes(soname="liby.so"), log=tmp_path / "log")
    assert str(caught.value).startswith(f"patchelf could not change {file}: ")


@pytest.mark.performs('set `debug-symbols = "keep"`')
def test_a_missing_strip_is_reported(tmp_path: Path) -> None:
    """Without binutils the message names the option that does without."""
    missing: dict[str, Any] = {"strip_program": None, "objcopy": None, "debug": tmp_path / "x.debug", "log": tmp_path}
    with pytest.raises(PatchError) as caught:
        writing.strip(tmp_path / "x", "split", **missing)
    assert str(caught.value) == '`strip` and `objcopy` not found; install binutils, or set `debug-symbols = "keep"`'
    writing.strip(tmp_path / "x", "keep", **missing)
