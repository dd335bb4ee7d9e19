"""A cmake-build-extension that records what ``setup.py`` gives to CMake, which does not run."""

import os

from setuptools import Extension
from setuptools.command.build_ext import build_ext
from setuptools.command.sdist import sdist


class CMakeExtension(Extension):
    """An extension that CMake builds; its sources are CMake's."""

    def __init__(self, name, install_prefix="", source_dir=".", cmake_configure_options=(), **rest):
        super().__init__(name, sources=[])
        self.torch_ext_cmake = {"source": os.fspath(source_dir), "args": list(cmake_configure_options)}


class BuildExtension(build_ext):
    """A command that never runs."""


class GitSdistFolder(sdist):
    """A command that never runs."""


GitSdistTree = GitSdistFolder
