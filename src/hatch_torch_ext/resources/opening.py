"""Opens compiled files in this Python's torch, one after another, and says what happened.

Run as a program: ``opening.py FILE`` with a JSON list of ``[path, module name or null]``. Each line that begins with
the mark is a JSON object; anything else on the output was printed by what was opened. The process may die in it.
"""

import importlib.machinery
import importlib.util
import json
import resource
import sys

MARK = "@@torch-ext-opening "


def say(**facts):
    """Write one marked line, at once: the next step may be the last."""
    sys.stdout.write("\n" + MARK + json.dumps(facts) + "\n")
    sys.stdout.flush()


def words(error):
    """Say what went wrong: torch wraps the linker's own words into others that tell less."""
    while error.__cause__ is not None:
        error = error.__cause__
    return "%s: %s" % (type(error).__name__, error)


def open_one(torch, path, module):
    """Open a library for its operators, or import a module under its own name."""
    if module is None:
        torch.ops.load_library(path)
        return
    loader = importlib.machinery.ExtensionFileLoader(module, path)
    spec = importlib.util.spec_from_file_location(module, path, loader=loader)
    loader.exec_module(importlib.util.module_from_spec(spec))


def main(arguments):
    """Open every file that the list names."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with open(arguments[0], encoding="utf-8") as stream:
        files = json.load(stream)
    import _variants  # lies beside this file: the loader's own way to read the facts

    sys.path.pop(0)  # the folder of this file is no part of the user's Python
    try:
        here = _variants.facts()
        import torch
    except Exception as error:
        say(event="no-torch", error=words(error))
        return
    say(event="torch", facts=vars(here))
    known = set(torch._C._dispatch_get_all_op_names())
    for number, (path, module) in enumerate(files):
        say(event="open", number=number)
        try:
            open_one(torch, path, module)
        except Exception as error:
            say(event="refused", number=number, error=words(error))
            continue
        now = set(torch._C._dispatch_get_all_op_names())
        say(event="opened", number=number, operators=sorted(now - known))
        known = now


if __name__ == "__main__":
    main(sys.argv[1:])
    sys.stdout.flush()
