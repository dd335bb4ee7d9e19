"""gsplat: spherical harmonics, covariances and their gradients against its own versions in plain torch."""

import torch
from gsplat.cuda import _torch_impl as reference
from gsplat.cuda import _wrapper as cuda

torch.manual_seed(0)


def alike(found, expected, inputs):
    """Compare values, and the gradients with respect to ``inputs``."""
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    wish = torch.randn_like(found)
    got = torch.autograd.grad((found * wish).sum(), inputs)
    want = torch.autograd.grad((expected * wish).sum(), inputs)
    for one, other in zip(got, want, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3)


for degree in range(4):
    coefficients = torch.randn(1000, (4) ** 2, 3, device="cuda", requires_grad=True)
    directions = torch.randn(1000, 3, device="cuda", requires_grad=True)
    found = cuda.spherical_harmonics(degree, directions, coefficients)
    unit = torch.nn.functional.normalize(directions, dim=-1)
    alike(found, reference._spherical_harmonics(degree, unit, coefficients), [coefficients])
turns = torch.nn.functional.normalize(torch.randn(500, 4, device="cuda"), dim=-1).requires_grad_()
scales = torch.rand(500, 3, device="cuda").add_(0.1).requires_grad_()
found, _ = cuda.quat_scale_to_covar_preci(turns, scales, True, False, False)
expected, _ = reference._quat_scale_to_covar_preci(turns, scales, True, False, False)
alike(found, expected, [turns, scales])
print("right under torch", torch.__version__)
