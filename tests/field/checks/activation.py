"""activation: the operator that its part for the CPU has, against plain torch, by function and by layer."""

import activation
import torch

torch.manual_seed(0)
for dtype, tolerance in ((torch.float32, 1e-6), (torch.bfloat16, 2e-2), (torch.half, 2e-3)):
    x = torch.randn(7, 2 * 512, dtype=dtype)
    right = torch.nn.functional.silu(x[..., :512]) * x[..., 512:]
    out = activation.silu_and_mul(torch.empty(7, 512, dtype=dtype), x)
    torch.testing.assert_close(out, right, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(activation.layers.SiluAndMul()(x), right, rtol=tolerance, atol=tolerance)
print("right under torch", torch.__version__)
