"""Prints facts of this Python's torch and the folders of its packages, as JSON; run by that Python (3.8 or newer)."""

from __future__ import annotations

import json
import os
import sys
from typing import Any, Dict


def about_torch() -> Dict[str, Any]:
    """Return how torch was built and where it comes from, or why it cannot be imported."""
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
    # Of this file's own folder, which Python may have put first, nothing is to be found.
    own = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder) != own]
    sites = [folder for folder in dict.fromkeys(map(os.path.abspath, filter(None, sys.path))) if os.path.isdir(folder)]
    print(json.dumps(dict(about_torch(), sites=sites, python=sys.version.split()[0])))
