"""What the example's operators must do on a CUDA device: one function for each property, run by check.py and by pytest.

The reference is the same operator on the CPU, which example_project/tests compares with plain torch. Both give the same
values bit for bit: neither fuses multiplications with additions.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Bound at run time: the tools that read these files (types, lint) run where there is no torch.
torch: Any = import_module("torch")
example: Any = import_module("torch_ext_example")

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
SAMPLED = (
    # One warp, one block, several blocks for an item, more items than the device holds at once, points in memory.
    *((1, 3), (31, 3), (257, 1), (1000, 2), (4096, 3), (8192, 4), (8193, 3), (30_000, 3), (200_000, 3)),
    *((64, 500, 3), (3, 20_000, 3), (40, 40_000, 3), (2000, 40, 2), (500, 64), (3, 5000, 7), (2_500_000, 3), (9, 0)),
    *((0, 3), (0, 10, 3), (4, 0, 3)),
)
MEASURED = (
    *(((5, 3), (7, 3)), ((64, 16), (64, 16)), ((200, 33), (65, 33)), ((2, 3, 100, 8), (2, 3, 50, 8))),
    *(((0, 3), (4, 3)), ((4, 3), (0, 3)), ((0, 4, 3), (0, 5, 3)), ((4, 0), (5, 0)), ((70_000, 2), (66, 2))),
)


def _same(got: Any, expected: Any) -> None:
    """Require equal values, shapes and element types, and that ``got`` is on the device."""
    assert got.device.type == "cuda", got.device
    torch.testing.assert_close(got.cpu(), expected, rtol=0, atol=0, equal_nan=True)


def picks_equal_the_cpus() -> str:
    """Farthest point sampling of every shape and element type."""
    for shape in SAMPLED:
        for dtype in FLOATS:
            points = torch.randn(shape, dtype=torch.float64).to(dtype)
            k = min(shape[-2], 24 if points.numel() > 1_000_000 else 100)
            _same(example.farthest_point_sampling(points.cuda(), k), example.farthest_point_sampling(points, k))
    return f"{len(SAMPLED)} shapes, {len(FLOATS)} element types"


def ties_and_nan_equal_the_cpus() -> str:
    """Points on a coarse grid are full of ties; NaN and infinity follow the documented rules."""
    for shape in ((700, 3), (50_000, 3), (20_000, 5)):
        for dtype in FLOATS:
            points = torch.randint(0, 4, shape).to(dtype)
            _same(example.farthest_point_sampling(points.cuda(), 90), example.farthest_point_sampling(points, 90))
            points[5::50, 0] = torch.nan
            points[7::91, 1] = torch.inf
            _same(example.farthest_point_sampling(points.cuda(), 90), example.farthest_point_sampling(points, 90))
            points[0, 1] = torch.nan
            _same(example.farthest_point_sampling(points.cuda(), 90), example.farthest_point_sampling(points, 90))
    return "3 shapes"


def distances_equal_the_cpus() -> str:
    """Squared distances of every shape and element type."""
    for left, right in MEASURED:
        for dtype in FLOATS:
            a, b = (torch.randn(shape, dtype=torch.float64).to(dtype) for shape in (left, right))
            _same(example.squared_distance(a.cuda(), b.cuda()), example.squared_distance(a, b))
    return f"{len(MEASURED)} shapes, {len(FLOATS)} element types"


def any_strides() -> str:
    """Read views that are not contiguous, with an offset into their storage."""
    points = torch.randn(3, 400, 9)[:, 1:, 2:].transpose(0, 2)
    _same(example.farthest_point_sampling(points.cuda(), 50), example.farthest_point_sampling(points, 50))
    on_device = torch.randn(3, 400, 9, device="cuda")[:, 1:, 2:].transpose(0, 2)
    assert not on_device.is_contiguous()
    _same(example.farthest_point_sampling(on_device, 50), example.farthest_point_sampling(on_device.cpu(), 50))
    other = torch.randn(7, 3, 60, device="cuda").mT
    _same(example.squared_distance(on_device, other), example.squared_distance(on_device.cpu(), other.cpu()))
    return "views with offsets"


def _refusal(call: Callable[[str], Any], device: str) -> str | None:
    try:
        call(device)
    except (ValueError, RuntimeError) as error:
        return str(error)
    return None


def errors_are_the_cpus() -> str:
    """Refuse with the same ``ValueError``, and leave the device usable."""
    points = torch.zeros(5, 3)
    calls: tuple[Callable[[str], Any], ...] = (
        lambda device: example.farthest_point_sampling(points.to(device), 6),
        lambda device: example.farthest_point_sampling(points.to(device), -1),
        lambda device: example.farthest_point_sampling(points.to(device)[0], 1),
        lambda device: example.farthest_point_sampling(points.to(device).int(), 1),
        lambda device: example.squared_distance(points.to(device), points.to(device).double()),
    )
    for call in calls:
        said = _refusal(call, "cpu")
        assert said
        assert _refusal(call, "cuda") == said
    mixed = _refusal(lambda device: example.squared_distance(points.to(device), points), "cuda")
    assert mixed == "squared_distance: a and b must have one dtype and be on one device"
    torch.cuda.synchronize()
    return f"{len(calls) + 1} calls"


def opcheck() -> str:
    """Compare schema, fake kernels and autograd with what the operators do."""
    operators = torch.ops.torch_ext_example
    for shape in ((20, 3), (2, 9000, 3), (0, 3)):
        for dtype in FLOATS:
            points = torch.randn(shape, device="cuda").to(dtype)
            torch.library.opcheck(operators.farthest_point_sampling.default, (points, min(4, shape[-2])))
        points = torch.randn(shape, device="cuda", requires_grad=True)
        torch.library.opcheck(operators.squared_distance.default, (points, points.detach()[..., :5, :]))
    return "both operators"


def gradients() -> str:
    """First and second derivatives against finite differences."""
    a = torch.randn(2, 4, 3, dtype=torch.float64, device="cuda", requires_grad=True)
    b = torch.randn(2, 5, 3, dtype=torch.float64, device="cuda", requires_grad=True)
    assert torch.autograd.gradcheck(example.squared_distance, (a, b))
    assert torch.autograd.gradgradcheck(example.squared_distance, (a, b))
    return "gradcheck, gradgradcheck"


def _coverage(points: Any) -> Any:
    picks = example.farthest_point_sampling(points, 16)
    return example.squared_distance(points, points[picks]).min(-1).values.mean()


def compiled() -> str:
    """``torch.compile(fullgraph=True)`` with its default compiler, forward and backward."""
    torch._dynamo.reset()
    function = torch.compile(_coverage, fullgraph=True)
    points = torch.randn(3000, 3, device="cuda", requires_grad=True)
    again = points.detach().clone().requires_grad_()
    function(points).backward()
    _coverage(again).backward()
    torch.testing.assert_close(points.grad, again.grad)
    return "inductor, forward and backward"


def _shapes_of_every_path() -> Iterator[tuple[int, ...]]:
    yield from ((4096, 3), (50_000, 3), (20, 3000, 3), (6000, 10))


def side_stream() -> str:
    """Queue the work on the current stream, behind what makes its input, and wait for nothing."""
    stream = torch.cuda.Stream()
    for shape in _shapes_of_every_path():
        points = torch.randn(shape)
        expected = example.farthest_point_sampling(points, 60)
        with torch.cuda.stream(stream):
            torch.cuda._sleep(50_000_000)  # tens of milliseconds: the default stream would be long done
            on_device = points.cuda(non_blocking=True)
            picks = example.farthest_point_sampling(on_device, 60)
            squares = example.squared_distance(on_device, on_device[..., :8, :])
        assert not stream.query(), "the call waited for the device"
        stream.synchronize()
        _same(picks, expected)
        _same(squares, example.squared_distance(points, points[..., :8, :]))
    return "4 shapes, no wait in the call"


def cuda_graph() -> str:
    """Capture once, replay on new contents of the same input, four times."""
    for shape in _shapes_of_every_path():
        points = torch.randn(shape, device="cuda")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            picks = example.farthest_point_sampling(points, 33)
            squares = example.squared_distance(points, points[..., :5, :])
        for _ in range(4):
            points.normal_()
            graph.replay()
            torch.cuda.synchronize()
            _same(picks, example.farthest_point_sampling(points.cpu(), 33))
            _same(squares, example.squared_distance(points.cpu(), points.cpu()[..., :5, :]))
    return "4 shapes, 4 replays each"


def deterministic() -> str:
    """Twenty runs of the paths with blocks that wait for each other give one result."""
    for shape in ((100_000, 3), (20_000, 12)):
        points = torch.randn(shape, device="cuda")
        first = example.farthest_point_sampling(points, 300)
        assert all(torch.equal(first, example.farthest_point_sampling(points, 300)) for _ in range(20))
    return "2 shapes, 20 runs each"


class Program(torch.nn.Module):  # type: ignore[misc]  # torch is not known to the type checker here
    """A TorchScript program that uses both operators."""

    def forward(self, points: torch.Tensor) -> torch.Tensor:
        """Return each pick's distance to the first."""
        sample = points[torch.ops.torch_ext_example.farthest_point_sampling(points, 12)]
        return torch.ops.torch_ext_example.squared_distance(sample, sample)[0]


def torchscript() -> str:
    """Save here; load onto the device in another process that only imported the package."""
    points = torch.randn(5000, 3)
    with tempfile.TemporaryDirectory() as folder:
        torch.jit.save(torch.jit.script(Program()), Path(folder) / "program.pt")
        torch.save(points, Path(folder) / "points.pt")
        code = (
            "import torch, torch_ext_example\n"
            "program = torch.jit.load('program.pt', map_location='cuda')\n"
            "torch.save(program(torch.load('points.pt').cuda()).cpu(), 'result.pt')\n"
        )
        path = os.pathsep.join(filter(None, [str(Path(example.__file__).parents[1]), os.environ.get("PYTHONPATH")]))
        environment = {**os.environ, "PYTHONPATH": path}
        subprocess.run([sys.executable, "-c", code], cwd=folder, check=True, timeout=300, env=environment)
        _same(torch.load(Path(folder) / "result.pt").cuda(), Program()(points))
    return "in another process"


def import_does_not_start_cuda() -> str:
    """Leave CUDA alone while the package is loaded, so that fork stays safe."""
    code = "import torch, torch_ext_example; raise SystemExit(torch.cuda.is_initialized())"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)
    return "torch.cuda.is_initialized() is false"


CHECKS: tuple[Callable[[], str], ...] = (
    picks_equal_the_cpus,
    ties_and_nan_equal_the_cpus,
    distances_equal_the_cpus,
    any_strides,
    errors_are_the_cpus,
    opcheck,
    gradients,
    compiled,
    side_stream,
    cuda_graph,
    deterministic,
    torchscript,
    import_does_not_start_cuda,
)
