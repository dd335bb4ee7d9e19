"""Prints the facts of one Python as JSON on one line; run by that interpreter (Python 3.8 and newer)."""

import json
import os
import platform
import sys
import sysconfig


def tag() -> str:
    """Return the CPython tag with its ABI flags: ``cp311``, ``cp313t``."""
    threads = "t" if sysconfig.get_config_var("Py_GIL_DISABLED") else ""
    return "cp{}{}{}".format(sys.version_info[0], sys.version_info[1], threads)


def markers() -> "dict[str, str]":
    """Return the variables that markers of requirements use (PEP 508)."""
    return {
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
    }


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
                "platlib": sysconfig.get_path("platlib"),
                "markers": markers(),
            }
        )
    )
