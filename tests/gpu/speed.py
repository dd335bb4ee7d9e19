"""How fast the example's operators are on a CUDA device, against plain torch and against the memory's bandwidth."""

from __future__ import annotations

import statistics
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

torch: Any = import_module("torch")
example: Any = import_module("torch_ext_example")

# A shape (batch, points, dimensions) and how many points are picked.
SAMPLED = (
    ((1, 1024, 3), 512),
    ((1, 4096, 3), 1024),
    ((1, 8192, 3), 1024),
    ((1, 16_384, 3), 1024),
    ((1, 100_000, 3), 1024),
    ((1, 1_000_000, 3), 256),
    ((1, 4_000_000, 3), 128),
    ((32, 4096, 3), 1024),
    ((32, 40_000, 3), 256),
    ((512, 1024, 3), 256),
    ((1, 20_000, 64), 256),
)
MEASURED = (((8, 4096, 3), (8, 4096, 3)), ((1, 8192, 64), (1, 8192, 64)))


def milliseconds(call: Callable[[], Any], repeats: int) -> float:
    """Return the median time of one call on the device, after two calls to warm up."""
    times: list[float] = []
    for turn in range(repeats + 2):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        call()
        end.record()
        end.synchronize()
        if turn >= 2:
            times.append(start.elapsed_time(end))
    return statistics.median(times)


def bandwidth() -> float:
    """Return bytes a second, read and written, of a copy on the device."""
    source = torch.randn(1 << 28, device="cuda")
    target = torch.empty_like(source)
    moved: int = 2 * source.nbytes
    return moved / milliseconds(lambda: target.copy_(source), 20) * 1e3


def plain_loop(points: Any, k: int) -> Any:
    """Farthest point sampling as one writes it in torch."""
    batch = torch.arange(points.shape[0], device=points.device)
    nearest = torch.full(points.shape[:2], torch.inf, device=points.device)
    picked = torch.zeros_like(batch)
    picks = torch.empty((points.shape[0], k), dtype=torch.int64, device=points.device)
    for pick in range(k):
        picks[:, pick] = picked
        distance = (points - points[batch, picked][:, None]).square_().sum(-1)
        nearest = torch.minimum(nearest, distance)
        picked = nearest.argmax(-1)
    return picks


def sampling(rate: float) -> Iterator[tuple[str, ...]]:
    """Yield the rows of the table for farthest point sampling; ``rate`` is the bandwidth."""
    yield ("points", "picks", "ours ms", "us per pick", "torch loop ms", "times faster", "read every pick: floor ms")
    for shape, k in SAMPLED:
        points = torch.randn(shape, device="cuda")
        ours = milliseconds(partial(example.farthest_point_sampling, points, k), 10)
        loop = milliseconds(partial(plain_loop, points, k), 1 if k > 500 else 3)
        # Each pick reads the points and reads and writes their distances, where nothing is kept on chip.
        floor = points[..., 0].numel() * (shape[-1] + 2) * 4 * (k - 1) / rate * 1e3
        yield (
            *(str(shape), str(k), f"{ours:.3f}", f"{ours / k * 1e3:.2f}"),
            *(f"{loop:.1f}", f"{loop / ours:.0f}", f"{floor:.3f}"),
        )


def distances(rate: float) -> Iterator[tuple[str, ...]]:
    """Yield the rows of the table for squared distances."""
    yield ("a", "b", "ours ms", "torch.cdist ms", "write the result: floor ms")
    for left, right in MEASURED:
        a, b = torch.randn(left, device="cuda"), torch.randn(right, device="cuda")
        ours = milliseconds(partial(example.squared_distance, a, b), 20)
        theirs = milliseconds(partial(torch.cdist, a, b, compute_mode="donot_use_mm_for_euclid_dist"), 20)
        floor = left[0] * left[1] * right[1] * 4 / rate * 1e3
        yield (str(left), str(right), f"{ours:.3f}", f"{theirs:.3f}", f"{floor:.3f}")
