"""mamba_ssm: the selective scan and its gradients against its own version in plain torch."""

import torch
from mamba_ssm.ops.selective_scan_interface import selective_scan_fn, selective_scan_ref

torch.manual_seed(0)
batch, width, states, length = 2, 16, 8, 128
x = {
    "u": torch.randn(batch, width, length),
    "delta": torch.rand(batch, width, length) * 0.5,
    "A": -torch.rand(width, states) * 0.5,
    "B": torch.randn(batch, states, length),
    "C": torch.randn(batch, states, length),
    "D": torch.randn(width),
    "z": torch.randn(batch, width, length),
    "delta_bias": torch.rand(width) * 0.5,
}
x = {name: value.cuda().requires_grad_() for name, value in x.items()}
found = selective_scan_fn(**x, delta_softplus=True)
expected = selective_scan_ref(**x, delta_softplus=True)
torch.testing.assert_close(found, expected, rtol=2e-3, atol=2e-3)
wish = torch.randn_like(found)
got = torch.autograd.grad((found * wish).sum(), list(x.values()))
want = torch.autograd.grad((expected * wish).sum(), list(x.values()))
for one, other in zip(got, want, strict=True):
    torch.testing.assert_close(one, other, rtol=5e-3, atol=5e-2)
print("right under torch", torch.__version__)
