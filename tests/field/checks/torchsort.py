"""torchsort: its isotonic solvers against the pool-adjacent-violators algorithm, and gradients against differences."""

import torch
import torchsort
from torchsort import ops


def pooled(values):
    """Return the non-increasing sequence nearest to ``values`` (least squares)."""
    blocks = []
    for value in values.tolist():
        blocks.append([value, 1])
        while len(blocks) > 1 and blocks[-2][0] < blocks[-1][0]:
            mean, count = blocks.pop()
            before, others = blocks.pop()
            blocks.append([(mean * count + before * others) / (count + others), count + others])
    return torch.tensor([mean for mean, count in blocks for _ in range(count)], dtype=values.dtype)


torch.manual_seed(0)
x = torch.randn(5, 17, dtype=torch.float64)
torch.testing.assert_close(ops.isotonic_l2[x.device.type](x), torch.stack([pooled(row) for row in x]))
torch.testing.assert_close(torchsort.soft_sort(x, regularization_strength=1e-6), x.sort(dim=1).values)
ranks = x.argsort(dim=1).argsort(dim=1).double() + 1
torch.testing.assert_close(torchsort.soft_rank(x, regularization_strength=1e-6), ranks)
for regularization in ("l2", "kl"):
    for operator in (torchsort.soft_sort, torchsort.soft_rank):
        assert torch.autograd.gradcheck(
            lambda t, o=operator, r=regularization: o(t, r), x[:2, :6].clone().requires_grad_()
        )
print("right under torch", torch.__version__)
