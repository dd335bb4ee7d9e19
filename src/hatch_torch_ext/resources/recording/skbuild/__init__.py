"""A scikit-build that records what ``setup.py`` gives to CMake, which does not run."""

import os

import setuptools

_OWN = (
    "cmake_args", "cmake_install_dir", "cmake_install_target", "cmake_languages", "cmake_minimum_required_version",
    "cmake_process_manifest_hook", "cmake_source_dir", "cmake_with_sdist",
)  # fmt: skip


def setup(*args, **keywords):
    """Stand for ``skbuild.setup``: setuptools' with arguments for CMake."""
    given = {name: keywords.pop(name, None) for name in _OWN}
    keywords["torch_ext_cmake"] = {
        "source": os.fspath(given["cmake_source_dir"] or "."),
        "args": given["cmake_args"] or [],
    }
    return setuptools.setup(*args, **keywords)
