"""inplace_abn: normalisation and activation in place against batch_norm and torch's activations, with gradients."""

import torch
from inplace_abn import InPlaceABN
from torch.nn import functional

torch.manual_seed(0)
activations = {
    "leaky_relu": lambda x: functional.leaky_relu(x, 0.01),
    "elu": functional.elu,
    "identity": lambda x: x,
}
for name, activation in activations.items():
    for shape in ((6, 5), (4, 5, 3, 7)):
        layer = InPlaceABN(5, activation=name, activation_param=1.0 if name == "elu" else 0.01)
        layer = layer.double().to(torch.get_default_device())
        with torch.no_grad():
            layer.weight.copy_(torch.rand(5).double() + 0.5)
            layer.bias.copy_(torch.randn(5).double())
        weight, bias = (each.detach().clone().requires_grad_() for each in (layer.weight, layer.bias))
        x = torch.randn(shape, dtype=torch.float64)
        one, other = x.clone().requires_grad_(), x.clone().requires_grad_()
        got = layer(one * 1.0)
        mean, variance = torch.zeros(5).double(), torch.ones(5).double()
        scale = weight + layer.eps  # theirs is |weight| + eps: never zero, since it is divided by
        expected = activation(functional.batch_norm(other, mean, variance, scale, bias, training=True))
        torch.testing.assert_close(got, expected)
        torch.testing.assert_close(layer.running_mean, mean)
        torch.testing.assert_close(layer.running_var, variance)
        grad = torch.randn(shape, dtype=torch.float64)
        got.backward(grad)
        expected.backward(grad)
        for mine, theirs in ((one, other), (layer.weight, weight), (layer.bias, bias)):
            torch.testing.assert_close(mine.grad, theirs.grad)
        layer.eval()
        got = layer(x.clone())
        expected = activation(functional.batch_norm(x, mean, variance, scale, bias))
        torch.testing.assert_close(got, expected)
print("right under torch", torch.__version__)
