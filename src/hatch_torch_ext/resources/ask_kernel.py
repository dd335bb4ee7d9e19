"""Prints what the kernel's files have about GPUs of AMD and Intel (``ask_kernel.py ROOT``), as JSON.

No driver is called. It runs in a separate process, since a file of a broken driver can hang whoever reads it.
"""

from __future__ import annotations

import glob
import json
import os
import re
import sys
from typing import Any, Dict, Iterator, List

DISPLAY = "0x03"
VENDORS = {"0x1002": "AMD", "0x8086": "Intel"}
MOST = 256


def text(path: str) -> str:
    """Return the first kilobytes of a file on one line, "" if it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return " ".join(stream.read(8192).split())
    except OSError:
        return ""


def devices(root: str) -> Iterator[Dict[str, Any]]:
    """Yield the display devices on the PCI bus: their vendor, and their name or PCI identifiers."""
    for folder in sorted(glob.glob(os.path.join(root, "sys/bus/pci/devices/*")))[:MOST]:
        vendor = text(folder + "/vendor")
        if vendor in VENDORS and text(folder + "/class").startswith(DISPLAY):
            numbers = "{}:{}".format(vendor[2:], text(folder + "/device")[2:] or "?")
            yield {"vendor": VENDORS[vendor], "name": text(folder + "/product_name") or numbers}


def architectures(root: str) -> List[str]:
    """Return the architectures of AMD's GPUs, as the compute driver lists them: 90402 is gfx942, 90010 is gfx90a."""
    found = []
    for path in sorted(glob.glob(os.path.join(root, "sys/class/kfd/kfd/topology/nodes/*/properties")))[:MOST]:
        match = re.search(r"\bgfx_target_version ([0-9]{5,6})\b", text(path))
        if match:
            number = int(match.group(1))
            found.append("gfx{}{:x}{:x}".format(number // 10000, number // 100 % 100, number % 100))
    return found


if __name__ == "__main__":
    where = sys.argv[1]
    print(json.dumps({"devices": list(devices(where)), "architectures": architectures(where)}))
