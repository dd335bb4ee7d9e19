"""torchlpc: filters that vary in time against the recursion that defines them, and gradients against differences."""

import torch
import torchlpc
from torchlpc.recurrence import Recurrence

assert torchlpc.EXTENSION_LOADED


def filtered(x, a, before):
    """Return ``y[t] = x[t] - sum(a[t, i] * y[t - 1 - i])``; ``before`` is what came before, newest first."""
    known = list(before.flip(1).T)
    for t in range(x.shape[1]):
        past = torch.stack(known[-1 : -1 - a.shape[2] : -1], dim=1)
        known.append(x[:, t] - (a[:, t] * past).sum(dim=1))
    return torch.stack(known[a.shape[2] :], dim=1)


torch.manual_seed(0)
for order in (1, 3):
    for dtype in (torch.float32, torch.float64):
        x, a = torch.randn(4, 30, dtype=dtype), torch.randn(4, 30, order, dtype=dtype) * 0.3
        before = torch.randn(4, order, dtype=dtype)
        torch.testing.assert_close(torchlpc.sample_wise_lpc(x, a, before), filtered(x, a, before))
x, a = torch.randn(2, 6, dtype=torch.float64), torch.randn(2, 6, 2, dtype=torch.float64) * 0.3
before = torch.randn(2, 2, dtype=torch.float64)
inputs = tuple(each.requires_grad_() for each in (x, a, before))
assert torch.autograd.gradcheck(torchlpc.sample_wise_lpc, inputs)
decay, impulse, first = torch.rand(3, 8).double(), torch.randn(3, 8).double(), torch.randn(3).double()
expected = filtered(impulse, -decay[:, :, None], first[:, None])
torch.testing.assert_close(Recurrence.apply(decay, impulse, first), expected)
print("right under torch", torch.__version__)
