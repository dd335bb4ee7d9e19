"""torch_spline_conv: the linear B-spline basis and its weighting, with gradients, against plain torch."""

import itertools

import torch
from torch_spline_conv import spline_basis, spline_weighting

torch.manual_seed(0)
edges, size = 20, (4, 5)
pseudo = torch.rand(edges, 2, dtype=torch.float64, requires_grad=True)
basis, index = spline_basis(pseudo, torch.tensor(size), torch.ones(2, dtype=torch.uint8), 1)


def dense(values, places):
    """Return values at their places in all cells of the grid."""
    return torch.zeros(edges, size[0] * size[1], dtype=values.dtype).scatter_add(1, places, values)


position = pseudo * (torch.tensor(size) - 1)
low = position.detach().floor().long()
expected = torch.zeros(edges, size[0] * size[1], dtype=torch.float64)
for corner in itertools.product((0, 1), repeat=2):
    part = position - low
    weight = torch.stack([part[:, d] if bit else 1 - part[:, d] for d, bit in enumerate(corner)]).prod(0)
    cell = ((low[:, 0] + corner[0]) % size[0]) + size[0] * ((low[:, 1] + corner[1]) % size[1])
    expected = expected.scatter_add(1, cell[:, None], weight[:, None])
torch.testing.assert_close(dense(basis, index), expected)
wish = torch.randn_like(expected)
torch.testing.assert_close(
    torch.autograd.grad((dense(basis, index) * wish).sum(), pseudo),
    torch.autograd.grad((expected * wish).sum(), pseudo),
)
x = torch.randn(edges, 3, dtype=torch.float64)
weight = torch.randn(size[0] * size[1], 3, 2, dtype=torch.float64)
got = spline_weighting(x, weight, basis.detach(), index)
torch.testing.assert_close(got, torch.einsum("es,esio,ei->eo", basis.detach(), weight[index], x))
print("right under torch", torch.__version__)
