"""What this machine has to run torch on: its driver, its GPUs, and the CUDA versions that they run.

The sources, best first: an override, NVML, libcuda, files of the kernel, nvidia-smi. NVIDIA's libraries are called in
child processes with a timeout; no CUDA context is created.
"""

from __future__ import annotations

import platform
import re
import shutil
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from hatch_torch_ext.base import process, resources, untrusted
from hatch_torch_ext.base.errors import ConfigurationError, ProcessError, TooMuchOutputError
from hatch_torch_ext.facts import archs
from hatch_torch_ext.user import drivers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hatch_torch_ext.user.drivers import Version

PROBE = resources.FOLDER / "ask_machine.py"
TIMEOUT = 5.0
"""Timeout in seconds for each call of a library or a program: a broken driver can hang."""
DRIVER = "TORCH_EXT_CUDA_DRIVER"
"""The variable that overrides detection: ``12.8``, or ``none``."""
OUTPUT = 1 << 20
"""The most that is read of what a library or a program prints about GPUs, in bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """An NVIDIA GPU.

    ``capability`` is (9, 0) for 9.0, None if unknown; ``visible`` says whether CUDA programs see it.
    """

    index: int
    name: str | None = None
    uuid: str | None = None
    capability: tuple[int, int] | None = None
    mig: bool = False
    visible: bool = True
    error: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherGpu:
    """A GPU of AMD's or Intel's: its ``vendor``, and its product's name or the PCI identifiers (``8086:56a0``)."""

    vendor: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """``driver`` is the kernel driver's version, ``supported`` the CUDA version that the user-mode driver supports.

    ``source`` is where they were read; ``others`` are GPUs of other vendors, and ``amd`` the architectures of those of
    AMD's that can compute (``gfx942``); ``problems`` are sentences about faults.
    """

    system: str
    machine: str
    driver: str | None = None
    supported: Version | None = None
    gpus: tuple[Gpu, ...] = ()
    others: tuple[OtherGpu, ...] = ()
    amd: tuple[str, ...] = ()
    source: str | None = None
    wsl: bool = False
    problems: tuple[str, ...] = ()

    @property
    def visible(self) -> tuple[Gpu, ...]:
        """Return the GPUs that CUDA programs see."""
        return tuple(gpu for gpu in self.gpus if gpu.visible)

    @property
    def has_nvidia(self) -> bool:
        """Return whether CUDA programs have a GPU here, as far as is known.

        A driver that names no GPU counts (libcuda without NVML, a container that sees only the kernel's files, the
        override); GPUs that CUDA_VISIBLE_DEVICES hides do not.
        """
        return bool(self.visible) or (not self.gpus and bool(self.driver or self.supported))

    @property
    def driver_named(self) -> str:
        """Return the driver in words: its version, or the CUDA version that it supports."""
        if self.driver:
            return f"driver {self.driver}"
        return f"a driver for CUDA {'.'.join(map(str, self.supported))}" if self.supported else "the driver"

    def runs(self, cuda: str) -> bool:
        """Return whether the driver runs programs of ``cuda`` (``12.8``)."""
        driver = drivers.numbers(self.driver) if self.driver else None
        return drivers.runs(drivers.numbers(cuda), driver=driver, supported=self.supported)

    def served(self, cuda: str) -> tuple[Gpu, ...]:
        """Return the visible GPUs for which torch's builds of ``cuda`` have code, and those of unknown capability."""
        built = archs.torch_build(cuda, self.machine)
        return tuple(
            gpu
            for gpu in self.visible
            if gpu.capability is None
            or not built
            or any(archs.runs(name, gpu.capability[0] * 10 + gpu.capability[1]) for name in built)
        )


def read(environ: Mapping[str, str], *, root: Path = Path("/"), timeout: float = TIMEOUT) -> Machine:
    """Read this machine; ``sys`` and ``proc`` are below ``root``.

    Raises ``ConfigurationError`` for an invalid override.
    """
    reading = _Reading(environ, root, timeout)
    if not reading.override():
        reading.nvml()
        reading.libcuda()
        reading.kernel()
        if reading.driver is None or not reading.gpus:
            reading.smi()
        reading.others()
    return Machine(
        system=sys.platform,
        machine=platform.machine(),
        driver=reading.driver,
        supported=reading.supported,
        gpus=reading.with_visibility(),
        others=reading.other_gpus,
        amd=reading.amd,
        source=reading.source,
        wsl=reading.wsl,
        problems=tuple(reading.problems),
    )


class _Reading:
    """A machine while it is read: each method asks one source, and the first answer to a question counts."""

    def __init__(self, environ: Mapping[str, str], root: Path, timeout: float) -> None:
        self._environ, self._root, self._timeout = environ, root, timeout
        self.wsl = "microsoft" in _text(root / "proc/version").lower()
        self.driver: str | None = None
        self.supported: Version | None = None
        self.source: str | None = None
        self.gpus: list[Gpu] = []
        self.other_gpus: tuple[OtherGpu, ...] = ()
        self.amd: tuple[str, ...] = ()
        self.problems: list[str] = []

    def _say(self, source: str, *, driver: str | None = None, supported: Version | None = None) -> None:
        if driver and self.driver is None:
            self.driver, self.source = driver, self.source or source
        if supported and self.supported is None:
            self.supported, self.source = supported, self.source or source

    def override(self) -> bool:
        """Read the variable; return whether it is set."""
        value = self._environ.get(DRIVER, "").strip()
        if not value:
            return False
        if value.lower() in {"none", "cpu"}:
            return True
        if not re.fullmatch(r"[0-9]{1,3}\.[0-9]{1,2}", value):
            raise ConfigurationError(
                f"{DRIVER} is {value[:40]!r}; it must be a CUDA version such as `12.8`, or `none`."
            )
        self._say(DRIVER, supported=drivers.numbers(value))
        return True

    def _ask(self, what: str) -> dict[str, object]:
        """Run the probe. A missing or invalid answer is recorded as a problem, and is not an error."""
        library = {"nvml": "libnvidia-ml.so.1 (NVML)", "cuda": "libcuda.so.1"}[what]
        keep = {"LD_LIBRARY_PATH": self._environ.get("LD_LIBRARY_PATH")}
        command: list[str | Path] = [sys.executable, "-I", "-S", PROBE, what]
        try:
            done = process.run(command, timeout=self._timeout, env_changes=keep, check=False, limit=OUTPUT)
            answer = untrusted.json(done.stdout) if done.returncode == 0 else None
        except (TooMuchOutputError, ValueError):
            answer = None
        except ProcessError:
            self.problems.append(f"{library} did not answer within {self._timeout:g} s: the NVIDIA driver hangs")
            return {}
        if not isinstance(answer, dict):
            self.problems.append(f"{library} crashes the process that asks it: the NVIDIA driver is broken")
            return {}
        if "error" in answer:
            self.problems.append(f"{library} answers with error {answer['error']}: the NVIDIA driver does not work")
        return answer

    def nvml(self) -> None:
        """Ask NVML. It reports what the kernel driver supports; libcuda may be newer (cuda-compat), so it is next."""
        answer = self._ask("nvml")
        if not answer or "missing" in answer:
            return
        self._say("NVML", driver=_string(answer.get("driver")))
        devices = answer.get("devices")
        for device in devices if isinstance(devices, list) else []:
            capability = device.get("capability")
            self.gpus.append(
                Gpu(
                    index=int(device["index"]),
                    name=_string(device.get("name")),
                    uuid=_string(device.get("uuid")),
                    capability=(int(capability[0]), int(capability[1])) if capability else None,
                    mig=bool(device.get("mig")),
                    error=device.get("error"),
                )
            )
            if device.get("error"):
                self.problems.append(f"GPU {device['index']} answers with error {device['error']}")

    def libcuda(self) -> None:
        """Ask libcuda."""
        version = self._ask("cuda").get("supported")
        if isinstance(version, int) and version > 0:
            self._say("libcuda", supported=(version // 1000, version % 1000 // 10))

    def kernel(self) -> None:
        """Read the kernel's files."""
        self._say("/sys/module/nvidia/version", driver=_version(_text(self._root / "sys/module/nvidia/version")))
        # "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sun Jul 27 …": the version has blanks around it
        line = _text(self._root / "proc/driver/nvidia/version").partition("\n")[0]
        self._say("/proc/driver/nvidia/version", driver=_version(line))

    def smi(self) -> None:
        """Ask nvidia-smi, where the others left a question."""
        query = ["--query-gpu=index,driver_version,compute_cap,name,uuid", "--format=csv,noheader"]
        for name in ("nvidia-smi", *(("nvidia-smi.exe", "/usr/lib/wsl/lib/nvidia-smi") if self.wsl else ())):
            program = shutil.which(name, path=self._environ.get("PATH"))
            if program is None:
                continue
            try:
                done = process.run([program, *query], timeout=self._timeout, check=False, limit=OUTPUT)
            except TooMuchOutputError:
                self.problems.append(f"{name} prints more than {OUTPUT >> 20} MB: its answer is ignored")
                continue
            except ProcessError:
                self.problems.append(f"{name} did not answer within {self._timeout:g} s: the NVIDIA driver hangs")
                continue
            if done.returncode:
                first = next(iter(f"{done.stdout}\n{done.stderr}".strip().splitlines()), "")
                self.problems.append(f"{name} fails: {_printable(first)}")
                continue
            self._rows(name, done.stdout)
            return

    def _rows(self, name: str, text: str) -> None:
        found = []
        for line in text.splitlines():
            cells = [cell.strip() for cell in line.split(",")]
            if len(cells) != 5 or not re.fullmatch("[0-9]{1,4}", cells[0]):  # noqa: PLR2004 - the requested fields
                continue
            self._say(name, driver=_version(cells[1]))
            capability = re.fullmatch(r"([0-9]{1,2})\.([0-9])", cells[2])
            found.append(
                Gpu(
                    index=int(cells[0]),
                    name=_printable(cells[3]),
                    uuid=_printable(cells[4]),
                    capability=(int(capability[1]), int(capability[2])) if capability else None,
                )
            )
        if not self.gpus:
            self.gpus += found

    def others(self) -> None:
        """Read the GPUs of other vendors, and the architectures of AMD's."""
        if not (self._root / "sys/bus/pci/devices").is_dir():
            return
        command: list[str | Path] = [sys.executable, "-I", "-S", PROBE, "kernel", self._root]
        try:
            answer = untrusted.json(process.run(command, timeout=self._timeout, limit=OUTPUT).stdout)
            gpus = [OtherGpu(vendor=each["vendor"], name=_printable(each["name"])) for each in answer["devices"]]
            self.amd, self.other_gpus = tuple(map(str, answer["architectures"])), tuple(gpus)
        except ProcessError:
            files = "/sys/bus/pci and /sys/class/kfd"
            self.problems.append(f"the kernel's files about GPUs ({files}) were not read within {self._timeout:g} s")
        except (ValueError, KeyError, TypeError):
            pass

    def with_visibility(self) -> tuple[Gpu, ...]:
        """Apply CUDA_VISIBLE_DEVICES as CUDA does: indexes or prefixes of UUIDs, up to one that matches no GPU."""
        value = self._environ.get("CUDA_VISIBLE_DEVICES")
        if value is None:
            return tuple(self.gpus)
        chosen: set[int] = set()
        for part in (each.strip() for each in value.split(",")):
            if part.startswith("MIG-"):
                matches = [gpu.index for gpu in self.gpus if gpu.mig]
            elif part.startswith("GPU-"):
                matches = [gpu.index for gpu in self.gpus if (gpu.uuid or "").startswith(part)]
            else:
                is_number = part.isascii() and part.isdigit()
                matches = [gpu.index for gpu in self.gpus if is_number and gpu.index == int(part[:9])]
            if not matches:
                break
            chosen.update(matches)
        if self.gpus and not chosen:
            self.problems.append(f"CUDA_VISIBLE_DEVICES={_printable(value)!r} hides every GPU")
        return tuple(replace(gpu, visible=gpu.index in chosen) for gpu in self.gpus)


def usable_cuda(machine: Machine, versions: Sequence[str]) -> tuple[str, ...]:
    """Return the CUDA ``versions`` that this machine runs, best first: by the number of GPUs served, then newest first.

    Without a GPU that CUDA programs see there are none.
    """
    if not machine.has_nvidia:
        return ()
    fitting = [cuda for cuda in versions if machine.runs(cuda) and (not machine.visible or machine.served(cuda))]
    return tuple(sorted(fitting, key=lambda cuda: (len(machine.served(cuda)), drivers.numbers(cuda)), reverse=True))


def _version(text: str) -> str | None:
    match = re.search(r"(?<![\w.])([0-9]{3,4}\.[0-9]{1,3}(?:\.[0-9]{1,3})?)(?![\w.])", text)
    return match[1] if match else None


def _string(value: object) -> str | None:
    return _printable(value) if isinstance(value, str) else None


def _printable(text: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in text)[:120]


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")[:4096]
    except OSError:
        return ""
