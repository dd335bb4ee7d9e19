"""Run by the Python of an entry's environment: prints where its torch is, as one JSON object, without importing it.

torch is not imported: a CUDA build cannot be imported without its NVIDIA wheels, and importing takes seconds.
"""

import importlib.util
import json
import sys
from pathlib import Path
from typing import List, Optional


def find_torch() -> Optional[str]:
    """Return the folder of the package torch, or None; a folder without ``version.py`` is a left-over, not a torch."""
    try:
        spec = importlib.util.find_spec("torch")
    except (ImportError, ValueError):
        return None
    locations = (spec.submodule_search_locations if spec is not None else None) or ()
    for location in locations:
        if Path(location, "version.py").is_file():
            return str(Path(location).resolve())
    return None


def nvidia_folders() -> List[str]:
    """Return each existing folder ``nvidia`` on the path, in order."""
    folders = [Path(path, "nvidia") for path in sys.path if path]
    return [str(folder) for folder in folders if folder.is_dir()]


if __name__ == "__main__":
    if sys.path[:1] == [str(Path(__file__).resolve().parent)]:
        sys.path.pop(0)  # the folder of this file does not belong to the user's Python
    print(json.dumps({"torch": find_torch(), "nvidia": nvidia_folders()}))
