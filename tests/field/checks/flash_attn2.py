"""flash-attn2: sequences of several lengths, which its part for the CPU takes, against plain torch's attention."""

import flash_attn2
import torch

torch.manual_seed(0)
HEADS = 4
lengths = [33, 128, 64]
starts = torch.tensor([0, *torch.tensor(lengths).cumsum(0)], dtype=torch.int32)
for dtype, tolerance in ((torch.half, 5e-3), (torch.bfloat16, 3e-2)):
    for keys, causal in ((HEADS, False), (HEADS, True), (2, True)):
        q = torch.randn(sum(lengths), HEADS, 64, dtype=dtype)
        k, v = torch.randn(2, sum(lengths), keys, 64, dtype=dtype)
        longest = max(lengths)
        out = flash_attn2.flash_attn_varlen_func(q, k, v, starts, starts, longest, longest, causal=causal)
        for one, attended in zip(
            zip(*(x.split(lengths) for x in (q, k, v)), strict=True), out.split(lengths), strict=True
        ):
            q1, k1, v1 = (x.float().transpose(0, 1) for x in one)
            k1, v1 = (x.repeat_interleave(HEADS // keys, 0) for x in (k1, v1))
            right = torch.nn.functional.scaled_dot_product_attention(q1, k1, v1, is_causal=causal)
            torch.testing.assert_close(attended.float(), right.transpose(0, 1), rtol=tolerance, atol=tolerance)
print("right under torch", torch.__version__)
