"""hatch's interface <-> emulated environments: the environment type ``torch-ext``. Only hatch loads this module."""

from __future__ import annotations

import platform
import shutil
from functools import cached_property
from pathlib import Path
from typing import Any

from hatch.env.plugin.interface import EnvironmentInterface
from hatch.env.virtual import VirtualEnvironment

from hatch_torch_ext.base.errors import ConfigurationError
from hatch_torch_ext.config import kinds
from hatch_torch_ext.config.options import Options
from hatch_torch_ext.environments import machines


class MachineEnvironment(VirtualEnvironment):
    """A virtual environment of hatch; for an entry of another machine, one with that machine's Python, run by qemu."""

    PLUGIN_NAME = "torch-ext"

    @cached_property
    def machine(self) -> str | None:
        """Return the machine that the entry is for if it is not this one, else None."""
        machine = dict(self.matrix_variables).get("machine")
        return machine if machine not in {None, platform.machine()} else None

    @cached_property
    def use_uv(self) -> bool:
        """Return whether uv installs packages.

        For another machine it always does: pip would run under qemu, which takes minutes.
        """
        return self.machine is not None or bool(super().use_uv)

    @cached_property
    def emulated(self) -> machines.Emulated:
        """Return the Python of the other machine.

        Raises ``OSError``, as hatch expects, when something for it is missing.
        """
        try:
            return machines.find(self.version, self._cross(str(self.machine)))
        except ConfigurationError as error:
            raise OSError("; ".join(error.problems)) from error

    @cached_property
    def version(self) -> str:
        """Return the Python version of the environment: the one that the entry asks for, else that of hatch."""
        return str(self.config.get("python") or ".".join(platform.python_version_tuple()[:2]))

    def check_compatibility(self) -> None:
        """Raise ``OSError`` if the environment cannot be made; hatch then skips the entry and prints the reason."""
        if self.machine is None:
            super().check_compatibility()  # type: ignore[no-untyped-call]
            return
        EnvironmentInterface.check_compatibility(self)  # type: ignore[no-untyped-call]
        _ = self.emulated

    def create(self) -> None:
        """Make the environment. One for another machine gets pip, which the author's scripts may call."""
        if self.machine is None:
            super().create()  # type: ignore[no-untyped-call]
            return
        folder = Path(str(self.virtual_env_path))
        try:
            machines.make(folder, self.emulated, self.version)
            with self.safe_activation():
                self.platform.check_command([*self.construct_pip_install_command(["--quiet"]), "pip"])
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise

    def _cross(self, machine: str) -> kinds.Cross:
        """Return the options `cross` of the build hook for ``machine``. Raises ``ConfigurationError``."""
        build: dict[str, Any] = self.metadata.hatch.config.get("build", {})
        tables = [build.get("targets", {}).get("wheel", {}), build]
        raw: dict[str, Any] = next(filter(None, (each.get("hooks", {}).get("torch-ext") for each in tables)), {})
        problems: list[str] = []
        found = kinds.CROSS.read(Options(raw=raw, problems=problems), "cross") or ()
        if problems:
            raise ConfigurationError(*problems)
        return kinds.with_absolute_paths(kinds.cross_for(machine, found), Path(str(self.root)))
