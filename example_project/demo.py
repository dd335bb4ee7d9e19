"""The main job in one go: build the example's fat wheel, show what is in it, install it and run its operator.

Run by ``hatch run demo`` in the project's root. Everything is made in temporary and build folders of the project.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
TORCH = "torch==2.13.0"
PROGRAM = """
import torch, torch_ext_example
from torch_ext_example import _variants
print("torch", torch.__version__, "->", _variants.load().label)
points = torch.rand(1000, 3)
print("picked", torch.ops.torch_ext_example.farthest_point_sampling(points, 8).tolist())
"""


def run(*command: str | Path, cwd: Path = HERE) -> None:
    """Show a command, run it, and stop where it fails."""
    print("$", *command, flush=True)
    subprocess.run([str(part) for part in command], cwd=cwd, check=True)


def main() -> None:
    """Build, inspect, install, run."""
    run(sys.executable, "-m", "hatch_torch_ext", "build")
    wheel = max((HERE / "dist").glob("*.whl"), key=lambda path: path.stat().st_mtime)
    run(sys.executable, "-m", "hatch_torch_ext", "inspect", wheel)
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = Path(folder) / "bin" / "python"
        run(python, "-m", "pip", "install", "--quiet", TORCH, wheel, cwd=Path(folder))
        run(python, "-W", "ignore:Failed to initialize NumPy", "-c", PROGRAM, cwd=Path(folder))


if __name__ == "__main__":
    main()
