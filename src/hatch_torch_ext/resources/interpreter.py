"""Prints what one Python is, as JSON on one line; run by the interpreter in question (Python 3.8 and newer)."""

import json
import os
import platform
import sys
import sysconfig


def tag() -> str:
    """Return the CPython tag with its ABI flags: ``cp311``, ``cp313t``."""
    threads = "t" if sysconfig.get_config_var("Py_GIL_DISABLED") else ""
    return "cp{}{}{}".format(sys.version_info[0], sys.version_info[1], threads)


if __name__ == "__main__":
    print(
        "torch-ext-interpreter:"
        + json.dumps(
            {
                "implementation": sys.implementation.name,
                "version": platform.python_version(),
                "tag": tag(),
                "ext_suffix": sysconfig.get_config_var("EXT_SUFFIX"),
                "machine": platform.machine(),
                "include": sysconfig.get_path("include"),
                "python": sys.executable,
                "prefix": sys.prefix,
                "bin": os.path.dirname(sys.executable),
                "site_packages": sysconfig.get_path("purelib"),
            }
        )
    )
