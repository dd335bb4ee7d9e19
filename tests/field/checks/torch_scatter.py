"""torch_scatter: every reduction over indices and over segments, with gradients, against torch's own scatter."""

import torch
import torch_scatter

torch.manual_seed(0)
x = torch.randn(40, 3, dtype=torch.float64, requires_grad=True)
index = torch.randint(0, 6, (40,)).sort().values
index[:6] = torch.arange(6)
index = index.sort().values
ends = torch.cat([torch.zeros(1, dtype=torch.long), torch.bincount(index, minlength=6).cumsum(0)])
wide = index[:, None].expand_as(x)
for name, of_torch in (("sum", "sum"), ("mean", "mean"), ("max", "amax"), ("min", "amin")):
    expected = torch.zeros(6, 3, dtype=torch.float64).scatter_reduce(0, wide, x, of_torch, include_self=False)
    for got in (
        torch_scatter.scatter(x, index, dim=0, reduce=name),
        torch_scatter.segment_coo(x, index, reduce=name),
        torch_scatter.segment_csr(x, ends, reduce=name),
    ):
        torch.testing.assert_close(got, expected)
        wish = torch.randn_like(got)
        torch.testing.assert_close(
            torch.autograd.grad((got * wish).sum(), x),
            torch.autograd.grad((expected * wish).sum(), x, retain_graph=True),
        )
table = torch.randn(6, 3, dtype=torch.float64)
torch.testing.assert_close(torch_scatter.gather_csr(table, ends), table[index])
torch.testing.assert_close(torch_scatter.gather_coo(table, index), table[index])
print("right under torch", torch.__version__)
