"""Write ``src/hatch_torch_ext/facts/shims.json``: since which torch each C function of the stable ABI is there.

    python tools/shims.py [--releases 2.6,2.7,…]

Reads the headers of thin SDKs, which come from the index into the user's store: about 10 MB a release. Run it when
torch has a new release, add that to ``RELEASES``, and commit what it writes.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import sys
import sysconfig
import tempfile
from pathlib import Path

from hatch_torch_ext.config import Config
from hatch_torch_ext.sdk import thin
from hatch_torch_ext.values import Entry, Interpreter

RELEASES = ("2.4", "2.5", "2.6", "2.7", "2.8", "2.9", "2.10", "2.11", "2.12", "2.13", "2.14", "2.15")
OUT = Path(__file__).resolve().parent.parent / "src" / "hatch_torch_ext" / "facts" / "shims.json"
HEADERS = (
    "torch/csrc/stable/c/*.h",
    "torch/csrc/inductor/aoti_torch/c/*.h",
    "torch/csrc/inductor/aoti_torch/generated/*.h",
)
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
FUNCTION = re.compile(r"\bAOTI_TORCH_EXPORT\b[^;{(]*?\b((?:aoti_)?torch_\w+)\s*\(")


def include_dir(release: str, root: Path) -> Path:
    """Return the folder of the headers of ``release``, fetched where the store lacks them."""
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    interpreter = Interpreter(
        version=platform.python_version(),
        tag=f"cp{version.replace('.', '')}",
        ext_suffix=sysconfig.get_config_var("EXT_SUFFIX"),
        machine=platform.machine(),
        include=Path(sysconfig.get_paths()["include"]),
    )
    requirement = f"torch=={release}.*"
    entry = Entry(
        name=release,
        variables=(("torch", release), ("cuda", "cpu")),
        dependencies=(requirement,),
        torch_requirement=requirement,
        python=version,
        torch=release,
        cuda="cpu",
    )
    config = Config(root=root, package="none", package_dir=root, source=root)
    return thin.acquire(entry, interpreter, Path(sys.executable), config, report=print).include_dirs[0]


def functions(include: Path) -> set[str]:
    """Return the C functions that the stable ABI's headers in ``include`` declare."""
    texts = [path.read_text(encoding="utf-8") for pattern in HEADERS for path in sorted(include.glob(pattern))]
    return {name for text in texts for name in FUNCTION.findall(COMMENT.sub("", text))}


def main() -> None:
    """Read the releases, oldest first, and write the table."""
    parser = argparse.ArgumentParser(description="Since which torch each C function of the stable ABI is there.")
    parser.add_argument("--releases", default=",".join(RELEASES))
    options = parser.parse_args()
    releases = options.releases.split(",")
    since: dict[str, list[str]] = {}
    known: set[str] = set()
    with tempfile.TemporaryDirectory() as root:
        for release in releases:
            found = functions(include_dir(release, Path(root)))
            since[release] = sorted(found - known)
            print(f"{release}: {len(found)} functions, {len(since[release])} of them new, {len(known - found)} gone")
            known |= found
    table = {"command": "python tools/shims.py", "since": since}
    OUT.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
