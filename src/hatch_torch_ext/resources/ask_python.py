"""Prints facts of the Python that runs it (3.8 or newer) as JSON: its tags and folders, its torch by files or imported.

``ask_python.py interpreter`` prints them on one marked line, as other programs print beside it.
"""

from __future__ import annotations

import json
import os
import sys


def interpreter() -> dict[str, object]:
    """Return the facts of the Python itself; the tag has its ABI flags: ``cp311``, ``cp313t``."""
    import platform
    import sysconfig

    threads = "t" if sysconfig.get_config_var("Py_GIL_DISABLED") else ""
    return {
        "implementation": sys.implementation.name,
        "version": platform.python_version(),
        "tag": "cp{}{}{}".format(sys.version_info[0], sys.version_info[1], threads),
        "ext_suffix": sysconfig.get_config_var("EXT_SUFFIX"),
        "machine": platform.machine(),
        "include": sysconfig.get_path("include"),
        "python": sys.executable,
        "prefix": sys.prefix,
        "bin": os.path.dirname(sys.executable),
        "site_packages": sysconfig.get_path("purelib"),
        "platlib": sysconfig.get_path("platlib"),
        "markers": {  # the variables of PEP 508
            "implementation_name": sys.implementation.name,
            "implementation_version": platform.python_version(),
            "os_name": os.name,
            "platform_machine": platform.machine(),
            "platform_python_implementation": platform.python_implementation(),
            "platform_release": platform.release(),
            "platform_system": platform.system(),
            "platform_version": platform.version(),
            "python_full_version": platform.python_version(),
            "python_version": "{}.{}".format(*sys.version_info[:2]),
            "sys_platform": sys.platform,
        },
    }


def files() -> dict[str, object]:
    """Return the folder of the package torch, or None, and each existing folder ``nvidia`` on the path, in order.

    torch is not imported: a CUDA build cannot be imported without its NVIDIA wheels, and importing takes seconds. A
    folder without ``version.py`` is a left-over, not a torch.
    """
    import importlib.util

    try:
        spec = importlib.util.find_spec("torch")
    except (ImportError, ValueError):
        spec = None
    places = (spec.submodule_search_locations if spec is not None else None) or ()
    torch = next((os.path.realpath(each) for each in places if os.path.isfile(os.path.join(each, "version.py"))), None)
    nvidia = [os.path.join(path, "nvidia") for path in sys.path if path]
    return {"torch": torch, "nvidia": [folder for folder in nvidia if os.path.isdir(folder)]}


def imported() -> dict[str, object]:
    """Return how torch was built and where it comes from, or why it cannot be imported; and the folders of packages."""
    sites = [folder for folder in dict.fromkeys(map(os.path.abspath, filter(None, sys.path))) if os.path.isdir(folder)]
    return dict(_torch(), sites=sites, python=sys.version.split()[0])


def _torch() -> dict[str, object]:
    try:
        import torch
    except ModuleNotFoundError as error:
        return {} if error.name == "torch" else {"error": str(error)}
    except Exception as error:  # noqa: BLE001 -- a broken torch raises whatever it likes
        return {"error": "{}: {}".format(type(error).__name__, str(error)[:500])}
    if not hasattr(torch, "version"):
        return {"error": "`import torch` finds {}, which is not PyTorch".format(torch.__spec__)}
    return {
        "version": str(torch.__version__),
        "cuda": torch.version.cuda,
        "hip": getattr(torch.version, "hip", None),
        "git": getattr(torch.version, "git_version", None),
        "cxx11_abi": bool(getattr(torch._C, "_GLIBCXX_USE_CXX11_ABI", True)),
        "folder": os.path.dirname(os.path.abspath(torch.__file__)),
    }


if __name__ == "__main__":
    # Python may have put this file's own folder first: nothing in it is to be found.
    own = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder) != own]
    if sys.argv[1] == "interpreter":
        print("torch-ext-interpreter:" + json.dumps(interpreter()))
    else:
        print(json.dumps({"files": files, "imported": imported}[sys.argv[1]]()))
