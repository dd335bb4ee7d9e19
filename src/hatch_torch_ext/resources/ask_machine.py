"""Asks about this machine's GPUs, and prints the answer as JSON (``ask_machine.py nvml``, ``cuda``, ``kernel ROOT``).

Of NVIDIA's it asks NVIDIA's libraries, of AMD's and Intel's the kernel's files. It runs in a separate process, since a
broken driver can hang or crash whoever opens it. No CUDA context is created.
"""

from __future__ import annotations

import ctypes
import glob
import json
import os
import re
import sys
from typing import Any, Dict, Iterator, List, Optional

FOLDERS = (
    "",
    "/usr/lib64/nvidia/",
    "/usr/lib/x86_64-linux-gnu/",
    "/usr/lib/aarch64-linux-gnu/",
    "/usr/lib/wsl/lib/",
)


def opened(name: str) -> Any:
    """Return the library, or exit with the reason."""
    problems = []
    for folder in FOLDERS:
        try:
            return ctypes.CDLL(folder + name)
        except OSError as error:  # noqa: PERF203 -- a handful of folders
            problems.append(str(error))
    print(json.dumps({"missing": problems[0]}))
    raise SystemExit(0)


def cuda() -> Dict[str, Any]:
    """Return the CUDA version that the user-mode driver supports: 12080 is CUDA 12.8. It needs no ``cuInit``."""
    version = ctypes.c_int(0)
    code = opened("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version))
    return {"error": code} if code else {"supported": version.value}


def nvml() -> Dict[str, Any]:
    """Return the kernel driver, the CUDA version that it supports, and every device."""
    library = opened("libnvidia-ml.so.1")
    code = library.nvmlInit_v2()
    if code:
        return {"error": code}
    found: Dict[str, Any] = {"driver": text(library.nvmlSystemGetDriverVersion), "devices": []}
    version = ctypes.c_int(0)
    for name in ("nvmlSystemGetCudaDriverVersion_v2", "nvmlSystemGetCudaDriverVersion"):
        if hasattr(library, name) and not getattr(library, name)(ctypes.byref(version)):
            found["supported"] = version.value
            break
    count = ctypes.c_uint(0)
    code = library.nvmlDeviceGetCount_v2(ctypes.byref(count))
    if code:
        found["error"] = code
    for index in range(count.value):
        found["devices"].append(device(library, index))
    return found


def device(library: Any, index: int) -> Dict[str, Any]:
    """Return the facts of one device; a device that fails does not hide the others."""
    handle = ctypes.c_void_p()
    code = library.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(handle))
    if code:
        return {"index": index, "error": code}
    found: Dict[str, Any] = {
        "index": index,
        "name": text(library.nvmlDeviceGetName, handle),
        "uuid": text(library.nvmlDeviceGetUUID, handle),
    }
    major, minor = ctypes.c_int(0), ctypes.c_int(0)
    if not library.nvmlDeviceGetCudaComputeCapability(handle, ctypes.byref(major), ctypes.byref(minor)):
        found["capability"] = [major.value, minor.value]
    current, pending = ctypes.c_uint(0), ctypes.c_uint(0)
    if hasattr(library, "nvmlDeviceGetMigMode"):
        code = library.nvmlDeviceGetMigMode(handle, ctypes.byref(current), ctypes.byref(pending))
        found["mig"] = not code and current.value == 1
    return found


def text(function: Any, *arguments: Any) -> Optional[str]:
    """Return the string that an NVML function writes, or None if it fails."""
    buffer = ctypes.create_string_buffer(96)
    if function(*arguments, buffer, ctypes.c_uint(len(buffer))):
        return None
    return buffer.value.decode("utf-8", "replace")


DISPLAY = "0x03"
VENDORS = {"0x1002": "AMD", "0x8086": "Intel"}
MOST = 256


def first_line(path: str) -> str:
    """Return the first kilobytes of a file on one line, "" if it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return " ".join(stream.read(8192).split())
    except OSError:
        return ""


def devices(root: str) -> Iterator[Dict[str, Any]]:
    """Yield the display devices on the PCI bus: their vendor, and their name or PCI identifiers."""
    for folder in sorted(glob.glob(os.path.join(root, "sys/bus/pci/devices/*")))[:MOST]:
        vendor = first_line(folder + "/vendor")
        if vendor in VENDORS and first_line(folder + "/class").startswith(DISPLAY):
            numbers = "{}:{}".format(vendor[2:], first_line(folder + "/device")[2:] or "?")
            yield {"vendor": VENDORS[vendor], "name": first_line(folder + "/product_name") or numbers}


def architectures(root: str) -> List[str]:
    """Return the architectures of AMD's GPUs, as the compute driver lists them: 90402 is gfx942, 90010 is gfx90a."""
    found = []
    for path in sorted(glob.glob(os.path.join(root, "sys/class/kfd/kfd/topology/nodes/*/properties")))[:MOST]:
        match = re.search(r"\bgfx_target_version ([0-9]{5,6})\b", first_line(path))
        if match:
            number = int(match.group(1))
            found.append("gfx{}{:x}{:x}".format(number // 10000, number // 100 % 100, number % 100))
    return found


def kernel() -> Dict[str, Any]:
    """Return what the kernel's files below the root say; no driver is called."""
    return {"devices": list(devices(sys.argv[2])), "architectures": architectures(sys.argv[2])}


if __name__ == "__main__":
    print(json.dumps({"nvml": nvml, "cuda": cuda, "kernel": kernel}[sys.argv[1]]()))
