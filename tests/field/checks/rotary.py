"""rotary: rotated halves against plain torch, in place, for float32 and bfloat16."""

import rotary
import torch

torch.manual_seed(0)
for dtype, tolerance in ((torch.float32, 1e-5), (torch.bfloat16, 4e-2)):
    for shape in ((2, 8, 16, 32), (64, 8, 32)):
        x1, x2 = torch.randn(shape, dtype=dtype), torch.randn(shape, dtype=dtype)
        angles = torch.randn(*shape[:-3], 1, *shape[-2:]) if len(shape) > 3 else torch.randn(shape[0], 1, shape[-1])
        cos, sin = angles.cos().to(dtype), angles.sin().to(dtype)
        for conjugate in (False, True):
            sign = -1 if conjugate else 1
            right = (x1 * cos - sign * x2 * sin, x2 * cos + sign * x1 * sin)
            out1, out2 = x1.clone(), x2.clone()
            rotary.apply_rotary(out1, out2, cos, sin, out1, out2, conjugate)
            torch.testing.assert_close((out1, out2), right, rtol=tolerance, atol=tolerance)
print("right under torch", torch.__version__)
