"""Asks one of NVIDIA's libraries about this machine (``ask_nvidia.py nvml`` or ``cuda``); prints the answer as JSON.

It runs in a separate process, since a broken driver can hang or crash the process that opens it. No CUDA context is
created.
"""

from __future__ import annotations

import ctypes
import json
import sys
from typing import Any, Dict, Optional

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


if __name__ == "__main__":
    print(json.dumps({"nvml": nvml, "cuda": cuda}[sys.argv[1]]()))
