"""What the operator computes, its gradients, and the inputs that it refuses."""

import pytest
import torch

from fresh_package import muladd

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


@pytest.mark.parametrize("device", DEVICES)
def test_values(device):
    a, b = torch.randn(7, 5, device=device), torch.randn(7, 5, device=device)
    torch.testing.assert_close(muladd(a, b, 2.0), a * b + 2.0)


@pytest.mark.parametrize("device", DEVICES)
def test_gradients_and_compilation(device):
    a = torch.randn(4, device=device, requires_grad=True)
    b = torch.randn(4, device=device, requires_grad=True)
    checks = ("test_schema", "test_autograd_registration", "test_faketensor")
    torch.library.opcheck(torch.ops.fresh_package.muladd.default, (a, b, 1.5), test_utils=checks)
    muladd(a, b, 1.5).sum().backward()
    torch.testing.assert_close(a.grad, b.detach())


def test_other_shapes_are_refused():
    with pytest.raises((ValueError, RuntimeError), match="same shape"):
        muladd(torch.zeros(3), torch.zeros(4), 0.0)
