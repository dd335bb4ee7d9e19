"""What the Python module `_C` computes."""

import torch

from fresh_package import _C


def test_count_zeros():
    assert _C.count_zeros(torch.tensor([0.0, 1.0, 0.0])) == 2
