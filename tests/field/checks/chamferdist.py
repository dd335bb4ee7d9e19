"""chamferdist: distances and gradients against pairwise distances of torch."""

import torch
from chamferdist import ChamferDistance

torch.manual_seed(0)
a, b = torch.rand(2, 30, 3, requires_grad=True), torch.rand(2, 40, 3, requires_grad=True)
for reverse in (False, True):
    got = ChamferDistance()(a, b, reverse=reverse)
    squares = (a[:, :, None] - b[:, None]).square().sum(-1)
    expected = squares.min(dim=1 if reverse else 2).values.sum(1).mean()
    torch.testing.assert_close(got, expected)
    torch.testing.assert_close(torch.autograd.grad(got, (a, b)), torch.autograd.grad(expected, (a, b)))
print("right under torch", torch.__version__)
