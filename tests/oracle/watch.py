"""Runs in a process of its own, under the Python with torch: opens what was built, and prints what there is then."""

from __future__ import annotations

import ctypes
import gc
import importlib
import io
import json
import os
import re
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

NAMESPACE = "oracle"


def plain(text: str) -> str:
    """Return a message's first line without folders, which differ from build to build."""
    line = text.strip().splitlines()[0] if text.strip() else ""
    return re.sub(r"[^\s:'\"]*/([^/\s:'\"]+)", r"\1", line)


def answered(probe: str, names: dict[str, Any]) -> str:
    """Return what an expression gives: its value, or the exception."""
    try:
        return repr(eval(probe, names))  # noqa: S307 -- our own text
    except BaseException as error:  # noqa: BLE001 -- whatever it is, it is compared
        return f"{type(error).__name__}: {plain(str(error))}"


def registrations(torch: Any) -> dict[str, list[str]]:
    """Return each operator of the project, with its schema and kernels, and each method of its classes."""
    found: dict[str, list[str]] = {}
    for name in torch._C._dispatch_get_all_op_names():
        if name.startswith(f"{NAMESPACE}::"):
            lines = [line for line in torch._C._dispatch_dump(name).splitlines() if ": " in line]
            found[name] = sorted(plain(line) for line in lines if line.startswith(("schema", "alias")) or "[" in line)
    for schema in torch._C._jit_get_custom_class_schemas():
        if f".{NAMESPACE}." in str(schema):
            found[f"class {schema}"] = []
    return found


def mapped(own: str, torch: Path) -> list[str]:
    """Return the shared objects of the process beyond those of Python: whose each is, and its name without a hash."""
    found = set()
    for line in Path("/proc/self/maps").read_text().splitlines():
        path = line.split(maxsplit=5)[5] if line.count(" ") > 5 and "/" in line else ""
        if ".so" not in path:
            continue
        name = re.sub(r"(-[0-9a-f]{8})?(\.so)\S*", r"\2", Path(path).name)
        if path.startswith(own):
            found.add(f"own {name}")
        elif Path(path).is_relative_to(torch):
            found.add(f"torch {name}")
        elif re.match(r"lib(stdc\+\+|gcc_s|c|m|gomp)\b", name):
            found.add(f"system {name}")
    return sorted(found)


def placed(name: str) -> str:
    """Return the path of a library, which may be somewhere on ``sys.path``."""
    found = [os.path.join(folder, name) for folder in sys.path if os.path.exists(os.path.join(folder, name))]  # noqa: PTH110, PTH118
    return found[0] if found else name


def opened(spec: dict[str, Any], names: dict[str, Any]) -> str:
    """Open what was built, by hand or by the package; return the error, or nothing."""
    try:
        if spec["way"] == "plain":
            for path in map(placed, spec["opened"]):
                if "torch" in sys.modules:
                    sys.modules["torch"].ops.load_library(path)
                else:
                    ctypes.CDLL(path)
            if spec["module"]:
                names["module"] = importlib.import_module(spec["module"])
        else:
            importlib.import_module(spec["package"] + "._variants").load()
            if spec["module"]:
                names["module"] = importlib.import_module(f"{spec['package']}.{spec['module']}")
    except BaseException as error:  # noqa: BLE001 -- whatever it is, it is compared
        cause = plain(str(error.__cause__ or ""))
        return ": ".join(filter(None, (type(error).__name__, plain(str(error)), cause)))
    return ""


def look(spec: dict[str, Any]) -> None:
    """Do as the specification says."""
    sys.path[:0] = spec["path"]
    seen: dict[str, Any] = {"opened": "", "answers": {}, "registered": {}, "mapped": [], "constructed": False}
    names: dict[str, Any] = {}
    if spec["before"] or spec["prelude"]:
        names["torch"] = importlib.import_module("torch")
        exec(spec["prelude"], names)  # noqa: S102 -- our own text
    seen["opened"] = opened(spec, names)
    if spec["way"] == "plain" and seen["opened"] and "torch" not in sys.modules:
        importlib.import_module("torch")  # as a person does who reads that error
        if again := opened(spec, names):
            seen["opened"] += f"; after torch, {again}"
    torch = names["torch"] = importlib.import_module("torch")
    getenv = ctypes.CDLL(None).getenv
    getenv.restype = ctypes.c_char_p
    seen["constructed"] = getenv(b"ORACLE_OPENED") is not None
    with redirect_stdout(io.StringIO()):
        seen["registered"] = registrations(torch)
    seen["answers"] = {probe: answered(probe, names) for probe in spec["probes"]}
    seen["mapped"] = mapped(spec["own"], Path(os.path.realpath(str(torch.__file__))).parent)
    print(f"\n{json.dumps(seen)}")
    gc.freeze()  # Python would look through all of torch's objects when it ends: 0.4 s


if __name__ == "__main__":
    gc.disable()  # while torch is imported: another 0.3 s
    look(json.loads(sys.argv[1]))
