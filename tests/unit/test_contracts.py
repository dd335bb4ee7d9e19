"""The names by which files that are already installed at users find us: they stay where they are.

A wheel keeps the loader of the release that built it, and an editable install its `_editable.py`: they import these
names of whichever release of ours is installed beside them years later. Whoever moves one leaves the old name.
"""

from __future__ import annotations

import importlib
import inspect
from importlib import resources

import pytest

from hatch_torch_ext import backend


@pytest.mark.parametrize(
    ("module", "name", "parameters"),
    [
        # `build-backend` of projects and of their sdists
        ("hatch_torch_ext.backend", "build_wheel", ("wheel_directory", "config_settings", "metadata_directory")),
        ("hatch_torch_ext.backend", "build_sdist", ("sdist_directory", "config_settings")),
        ("hatch_torch_ext.backend", "prepare_metadata_for_build_wheel", ("metadata_directory", "config_settings")),
        # `_editable.py` of an editable install, in a process of its own and in the user's
        ("hatch_torch_ext.editable", "main", ()),
        ("hatch_torch_ext.locks", "held", ("path", "what", "report")),
        # `_variants.py` of a wheel with `fallback`, in the process of the builder
        ("hatch_torch_ext.user.first_use", "build", ("data", "say")),
    ],
)
def test_installed_files_find_what_they_import(module: str, name: str, parameters: tuple[str, ...]) -> None:
    """The module, the function and its parameters are as installed files expect them."""
    function = getattr(importlib.import_module(module), name)
    assert tuple(inspect.signature(function).parameters) == parameters


def test_loaders_of_one_process_share_a_register() -> None:
    """Loaders of any release note in one module what they loaded, so that two of them load nothing twice."""
    loader = (resources.files("hatch_torch_ext") / "resources" / "_variants.py").read_text(encoding="utf-8")
    assert '"_torch_ext_loaded"' in loader


def test_hatch_and_hatchling_find_the_hooks() -> None:
    """The entry points of a release that an environment was made with name this module."""
    hooks = importlib.import_module("hatch_torch_ext.hooks")
    assert hooks.hatch_register_build_hook()[0].PLUGIN_NAME == "torch-ext"
    assert hooks.hatch_register_metadata_hook().PLUGIN_NAME == "torch-ext"


def test_settings_that_are_not_read(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A setting of the front end is named, and hatchling gets it as before; without one nothing is shown."""
    monkeypatch.setattr("hatchling.build.build_wheel", lambda *given: repr(given))
    assert backend.build_wheel("dist") == "('dist', None, None)"
    assert capsys.readouterr().err == ""
    assert backend.build_wheel("dist", {"cmake.define.A": "1"}) == "('dist', {'cmake.define.A': '1'}, None)"
    assert "config settings (-C) are not read: cmake.define.A; the options" in capsys.readouterr().err
