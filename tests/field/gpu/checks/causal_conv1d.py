"""causal_conv1d: the convolution, its gradients and its step against a convolution in plain torch."""

import torch
from causal_conv1d import causal_conv1d_fn, causal_conv1d_update

torch.manual_seed(0)
for width in (2, 3, 4):
    x = torch.randn(2, 64, 151, device="cuda", requires_grad=True)
    weight = torch.randn(64, width, device="cuda", requires_grad=True)
    bias = torch.randn(64, device="cuda", requires_grad=True)
    found = causal_conv1d_fn(x, weight, bias, activation="silu")
    padded = torch.nn.functional.pad(x.double(), (width - 1, 0))
    expected = torch.nn.functional.conv1d(padded, weight.double()[:, None], bias.double(), groups=64)
    expected = torch.nn.functional.silu(expected).float()
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)
    wish = torch.randn_like(found)
    got = torch.autograd.grad((found * wish).sum(), [x, weight, bias])
    want = torch.autograd.grad((expected * wish).sum(), [x, weight, bias])
    for one, other in zip(got, want, strict=True):
        torch.testing.assert_close(one, other, rtol=2e-3, atol=5e-3)
    state = x.detach()[..., -width - 1 : -1].contiguous()
    step = causal_conv1d_update(x.detach()[..., -1].contiguous(), state, weight.detach(), bias.detach(), "silu")
    torch.testing.assert_close(step, expected[..., -1].detach(), rtol=1e-3, atol=1e-3)
print("right under torch", torch.__version__)
