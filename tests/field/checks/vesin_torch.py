"""vesin_torch: neighbours in boxes and without, against all pairs, and the gradient of their distances."""

import itertools

import torch
from vesin_torch import NeighborList

torch.manual_seed(0)
points = torch.rand(20, 3, dtype=torch.float64) * 4
box = torch.diag(torch.tensor([4.0, 4.5, 5.0], dtype=torch.float64))
cutoff = 1.7


def pairs(images):
    """Return (i, j, shift) -> distance of every pair within the cutoff, each way, for the images of the box."""
    found = {}
    for shift in images:
        moved = points + torch.tensor(shift, dtype=torch.float64) @ box
        distances = torch.cdist(points, moved)
        for i, j in (distances < cutoff).nonzero().tolist():
            if i != j or any(shift):
                found[(i, j, *shift)] = distances[i, j]
    return found


for periodic, images in ((False, [(0, 0, 0)]), (True, list(itertools.product((-1, 0, 1), repeat=3)))):
    expected = pairs(images)
    for algorithm in ("auto", "cell_list"):
        calculator = NeighborList(cutoff=cutoff, full_list=True, algorithm=algorithm)
        moving = points.clone().requires_grad_()
        i, j, shifts, distances = calculator.compute(moving, box, periodic, "ijSd")
        got = {(a, b, *s): d for a, b, s, d in zip(i.tolist(), j.tolist(), shifts.tolist(), distances, strict=True)}
        assert got.keys() == expected.keys()
        for pair, distance in expected.items():
            torch.testing.assert_close(got[pair], distance)
        distances.sum().backward()
        other = points.clone().requires_grad_()
        (other[j] + shifts.to(box) @ box - other[i]).norm(dim=1).sum().backward()
        torch.testing.assert_close(moving.grad, other.grad)
print("right under torch", torch.__version__)
