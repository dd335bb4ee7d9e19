"""Which entries are built: those of an editable install without torch, and where it stands that none is."""

from __future__ import annotations

import platform
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

import values
from hatch_torch_ext.base.errors import ConfigurationError
from hatch_torch_ext.config import Config
from hatch_torch_ext.pipeline import selection

if TYPE_CHECKING:
    from pathlib import Path

    from hatch_torch_ext.values import Entry


@pytest.mark.performs("add entries without the variable `machine`")
def test_a_matrix_only_for_another_machine(tmp_path: Path) -> None:
    """The error names this machine; with an entry that names it too, or none, that entry is built."""
    here = platform.machine()
    config = Config(root=tmp_path, package="my_pkg", package_dir=tmp_path, source=tmp_path)
    other = values.entry(
        name="matrix.other",
        torch_requirement="torch==2.8.*",
        torch="2.8",
        machine="aarch64" if here == "x86_64" else "x86_64",
    )

    def built(*entries: Entry) -> list[str]:
        found = selection.editable(config, entries, torch=None, report=lambda _: None)
        return [entry.name for entry in found]

    with pytest.raises(ConfigurationError) as caught:
        built(other)
    assert str(caught.value) == (
        f"Every entry of the matrix is for another machine than {here}, on which it is installed: add entries without "
        f"the variable `machine`, or with `{here}`."
    )
    for machine in (None, here):
        assert built(other, replace(other, name="matrix.here", machine=machine)) == ["matrix.here"]


@pytest.mark.parametrize("option", ["only", "skip"])
def test_a_selection_of_nothing_names_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str) -> None:
    """Globs of a variable, which a shell keeps for hours, are not looked for in the options."""
    entry = values.entry(name="matrix.2.8", torch_requirement="torch==2.8.*", torch="2.8")
    glob = {"only": "matrix.3*", "skip": "*"}[option]
    config = Config(root=tmp_path, package="my_pkg", package_dir=tmp_path, source=tmp_path)
    config = replace(config, only=(glob,)) if option == "only" else replace(config, skip=(glob,))

    def said() -> str:
        with pytest.raises(ConfigurationError) as caught:
            selection.select(config, [entry], report=lambda _: None)
        return str(caught.value).partition(" leaves")[0]

    variable = f"HATCH_TORCH_EXT_{option.upper()}"
    monkeypatch.delenv(variable, raising=False)
    assert said() == f"option `{option}` (`{glob}`)"
    monkeypatch.setenv(variable, glob)
    assert said() == f"the variable `{variable}`{' (`--only` sets it)' if option == 'only' else ''} (`{glob}`)"
