"""Save the TorchScript program that cpp_consumer runs, and print what it gives in Python for the same points.

python program.py PROGRAM N K
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

# Bound at run time: the tools that read this file (types, lint) run where there is no torch.
torch: Any = import_module("torch")
import_module("torch_ext_example")  # registers the operators


class Program(torch.nn.Module):  # type: ignore[misc]  # torch is not known to the type checker here
    """Samples points; says which, and how far each is from the first."""

    def forward(self, points: torch.Tensor, k: int) -> torch.Tensor:
        """Return two rows: the picks, and their squared distances to the first."""
        picks = torch.ops.torch_ext_example.farthest_point_sampling(points, k)
        sample = points[picks]
        return torch.stack([picks.to(points.dtype), torch.ops.torch_ext_example.squared_distance(sample, sample)[0]])


def main() -> None:
    """Save and print."""
    path, n, k = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    program = torch.jit.script(Program())
    torch.jit.save(program, path)
    t = torch.arange(n, dtype=torch.float32) / 8
    for row in program(torch.stack([torch.cos(t) * t, torch.sin(t) * t, t], 1), k).tolist():
        print(*(f"{value:.6g}" for value in row))  # noqa: T201


if __name__ == "__main__":
    main()
