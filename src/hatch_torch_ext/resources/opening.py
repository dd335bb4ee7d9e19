"""Opens compiled files in this Python's torch, one after another, and reports what happened.

Run as a program: ``opening.py FILE`` with a JSON list of ``[path, module name or null]``. Each line that begins with
the mark is a JSON object; all other output is from the opened files. The process may die while opening one.
"""

from __future__ import annotations

import gc
import glob
import importlib.machinery
import importlib.util
import json
import os
import resource
import subprocess
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, List, Optional

PROGRAM = "<program>"
MARK = "@@torch-ext-opening "


def say(**facts: Any) -> None:
    """Write one marked line at once: the next step may end the process."""
    sys.stdout.write("\n" + MARK + json.dumps(facts) + "\n")
    sys.stdout.flush()


def words(error: BaseException) -> str:
    """Return the message of an error: torch wraps the linker's own message into a less useful one."""
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {error}"


def trace_program(torch: Any, path: str) -> None:
    """Let the dynamic linker load and bind a program beside torch's libraries, and stop before it runs."""
    folders = [os.path.join(os.path.dirname(torch.__file__), "lib")]
    folders += sorted(glob.glob(os.path.join(os.path.dirname(folders[0]), "..", "nvidia", "*", "lib")))
    linker = {"LD_TRACE_LOADED_OBJECTS": "1", "LD_BIND_NOW": "1", "LD_WARN": "1", "LD_LIBRARY_PATH": ":".join(folders)}
    done = subprocess.run([path], env=linker, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    lines = done.stdout.decode(errors="replace").splitlines()
    wrong = [line.strip() for line in lines if "undefined symbol" in line or "not found" in line or "error" in line]
    if wrong or done.returncode:
        raise OSError(wrong[0] if wrong else f"the dynamic linker ends with status {done.returncode}")


def open_one(torch: Any, path: str, module: Optional[str]) -> None:
    """Open a library for its operators, or import a module under its own name; a program is bound, and not run."""
    if module == PROGRAM:
        trace_program(torch, path)
        return
    if module is None:
        torch.ops.load_library(path)
        return
    loader = importlib.machinery.ExtensionFileLoader(module, path)
    spec = importlib.util.spec_from_file_location(module, path, loader=loader)
    if spec is not None:
        loader.exec_module(importlib.util.module_from_spec(spec))


def main(arguments: List[str]) -> None:
    """Open every file of the list."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    gc.disable()  # torch's import leaves a million objects: looking through them takes a third of this process's time
    with open(arguments[0], encoding="utf-8") as stream:
        files = json.load(stream)
    import _variants  # type: ignore[import-not-found,unused-ignore]  # beside this file: how the loader reads the facts

    sys.path.pop(0)  # the folder of this file does not belong to the user's Python
    try:
        here = _variants.facts()
        import torch
    except Exception as error:  # noqa: BLE001 - whatever a broken torch raises
        say(event="no-torch", error=words(error))
        return
    say(event="torch", facts=here)
    known = set(torch._C._dispatch_get_all_op_names())
    for number, (path, module) in enumerate(files):
        say(event="open", number=number)
        try:
            open_one(torch, path, module)
        except Exception as error:  # noqa: BLE001 - whatever the library raises while it registers
            say(event="refused", number=number, error=words(error))
            continue
        now = set(torch._C._dispatch_get_all_op_names())
        say(event="opened", number=number, operators=sorted(now - known))
        known = now
    gc.freeze()  # nor at its end


if __name__ == "__main__":
    main(sys.argv[1:])
