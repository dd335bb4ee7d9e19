"""warp_rnnt: the transducer's loss and its gradient against dynamic programming in plain torch."""

import torch
from warp_rnnt import rnnt_loss

torch.manual_seed(0)
N, T, U, V = 3, 7, 5, 6
frames = torch.tensor([7, 5, 6], dtype=torch.int, device="cuda")
lengths = torch.tensor([4, 2, 3], dtype=torch.int, device="cuda")
labels = torch.randint(1, V, (N, U - 1), dtype=torch.int, device="cuda")
scores = torch.randn(N, T, U, V, device="cuda", requires_grad=True)


def reference(logs, label, t_end, u_end):
    """Return the negative logarithm of the sum over all alignments of one sample."""
    table = {(0, 0): logs.new_zeros(())}
    for t in range(t_end):
        for u in range(u_end + 1):
            ways = []
            if t > 0:
                ways.append(table[t - 1, u] + logs[t - 1, u, 0])
            if u > 0:
                ways.append(table[t, u - 1] + logs[t, u - 1, label[u - 1]])
            if ways:
                table[t, u] = torch.logsumexp(torch.stack(ways), 0)
    return -(table[t_end - 1, u_end] + logs[t_end - 1, u_end, 0])


logs = scores.log_softmax(-1)
found = rnnt_loss(logs, labels, frames, lengths)
expected = torch.stack(
    [reference(logs[n].double(), labels[n].tolist(), int(frames[n]), int(lengths[n])) for n in range(N)]
)
torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-4)
(got,) = torch.autograd.grad(found.sum(), scores, retain_graph=True)
(want,) = torch.autograd.grad(expected.sum(), scores)
torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-4)
print("right under torch", torch.__version__)
