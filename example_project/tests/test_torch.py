"""The operators are at home in torch: opcheck, autograd, torch.compile, TorchScript in another process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

import torch_ext_example
from torch_ext_example import farthest_point_sampling, squared_distance


def coverage(points: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Sample, and measure how far every point is from the sample."""
    picks = farthest_point_sampling(points, k)
    return picks, squared_distance(points, points[picks])


class Coverage(torch.nn.Module):
    """The same as a module, scripted below."""

    def forward(self, points: Tensor, k: int) -> Tensor:
        """Return the picks beside each pick's distance to the first."""
        picks = torch.ops.torch_ext_example.farthest_point_sampling(points, k)
        sample = points[picks]
        return torch.stack([picks.to(points.dtype), torch.ops.torch_ext_example.squared_distance(sample, sample)[0]])


def test_the_installed_package_is_tested() -> None:
    """Not the source tree beside these tests: nothing is compiled there."""
    assert not Path(torch_ext_example.__file__).is_relative_to(Path(__file__).parents[1] / "src")


@pytest.mark.parametrize("shape", [(20, 3), (2, 20, 3), (0, 3)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_opcheck(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """Schema, fake kernels and autograd agree with what the operators do."""
    points = torch.randn(shape, dtype=dtype)
    torch.library.opcheck(torch.ops.torch_ext_example.farthest_point_sampling.default, (points, min(4, shape[-2])))
    other = torch.randn((*shape[:-2], 5, 3), dtype=dtype)
    for gradients in (False, True):
        operands = (points.requires_grad_(gradients), other.requires_grad_(gradients))
        torch.library.opcheck(torch.ops.torch_ext_example.squared_distance.default, operands)


def test_gradients() -> None:
    """First and second derivatives agree with finite differences, for one and for both operands."""
    a = torch.randn(2, 4, 3, dtype=torch.float64, requires_grad=True)
    b = torch.randn(2, 5, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(squared_distance, (a, b))
    assert torch.autograd.gradcheck(squared_distance, (a.detach(), b))
    assert torch.autograd.gradgradcheck(squared_distance, (a, b))


def test_picks_take_no_part_in_autograd() -> None:
    """Points that require gradients can be sampled; the indices do not require any."""
    picks = farthest_point_sampling(torch.randn(10, 3, requires_grad=True), 3)
    assert not picks.requires_grad


@pytest.mark.parametrize("dynamic", [False, True])
def test_compile(*, dynamic: bool) -> None:
    """torch.compile traces both operators, forward and backward, without a break in the graph."""
    torch._dynamo.reset()
    compiled = torch.compile(coverage, fullgraph=True, dynamic=dynamic, backend="aot_eager")
    for n in (30, 50):
        points = torch.randn(n, 3, requires_grad=True)
        again = points.detach().clone().requires_grad_()
        (picks, distance), (expected_picks, expected_distance) = compiled(points, 6), coverage(again, 6)
        assert torch.equal(picks, expected_picks)
        assert torch.equal(distance, expected_distance)
        distance.sum().backward()
        expected_distance.sum().backward()
        torch.testing.assert_close(points.grad, again.grad)


def test_compile_with_inductor() -> None:
    """The default compiler calls both operators; nothing else is in the graph, so it needs no C++ compiler."""
    torch._dynamo.reset()

    def both(points: Tensor) -> tuple[Tensor, Tensor]:
        return farthest_point_sampling(points, 6), squared_distance(points, points)

    points = torch.randn(2, 30, 3)
    for got, expected in zip(torch.compile(both, fullgraph=True)(points), both(points), strict=True):
        assert torch.equal(got, expected)


def test_torchscript_in_another_process(tmp_path: Path) -> None:
    """A saved program finds the operators in a process that only imported the package."""
    points = torch.randn(64, 3)
    torch.jit.save(torch.jit.script(Coverage()), tmp_path / "coverage.pt")
    torch.save(points, tmp_path / "points.pt")
    program = (
        "import torch, torch_ext_example\n"
        "points = torch.load('points.pt', weights_only=True)\n"
        "torch.save(torch.jit.load('coverage.pt')(points, 8), 'result.pt')\n"
    )
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True, timeout=120)
    assert torch.equal(torch.load(tmp_path / "result.pt", weights_only=True), Coverage()(points, 8))
