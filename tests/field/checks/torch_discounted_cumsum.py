"""torch_discounted_cumsum: both directions against a matrix of powers, and gradients against differences.

One gamma a row: for one gamma and several rows, the code for the CPU reads behind the end of gamma.
"""

import torch
from torch_discounted_cumsum import discounted_cumsum_left, discounted_cumsum_right

torch.manual_seed(0)
x, gamma = torch.randn(5, 20, dtype=torch.float64), torch.rand(5, dtype=torch.float64)
apart = (torch.arange(20)[:, None] - torch.arange(20)).double()
powers = torch.where(apart >= 0, gamma[:, None, None] ** apart.clamp(min=0), 0.0)
torch.testing.assert_close(discounted_cumsum_left(x, gamma), torch.einsum("nj,nij->ni", x, powers))
torch.testing.assert_close(discounted_cumsum_right(x, gamma), torch.einsum("nj,nji->ni", x, powers))
for direction in (discounted_cumsum_left, discounted_cumsum_right):
    assert torch.autograd.gradcheck(lambda t, d=direction: d(t, gamma), x[:, :6].clone().requires_grad_())
print("right under torch", torch.__version__)
