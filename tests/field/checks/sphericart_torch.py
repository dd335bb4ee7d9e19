"""sphericart: spherical and solid harmonics against their formulas up to l = 2, and gradients against differences."""

import math

import torch
from sphericart.torch import SolidHarmonics, SphericalHarmonics

torch.manual_seed(0)
points = torch.randn(30, 3, dtype=torch.float64)


def solid(xyz):
    """Return the real solid harmonics of l = 0, 1, 2 in the order of m."""
    x, y, z = xyz.T
    first, second = math.sqrt(3 / (4 * math.pi)), math.sqrt(15 / (4 * math.pi))
    values = [torch.full_like(x, math.sqrt(1 / (4 * math.pi))), first * y, first * z, first * x]
    values += [second * x * y, second * y * z, math.sqrt(5 / (16 * math.pi)) * (2 * z * z - x * x - y * y)]
    return torch.stack([*values, second * x * z, second / 2 * (x * x - y * y)], dim=1)


torch.testing.assert_close(SolidHarmonics(2).compute(points), solid(points))
unit = points / points.norm(dim=1, keepdim=True)
torch.testing.assert_close(SphericalHarmonics(2).compute(points), solid(unit))
torch.testing.assert_close(SphericalHarmonics(2).compute(points.float()), solid(unit).float())
for kind in (SolidHarmonics, SphericalHarmonics):
    assert torch.autograd.gradcheck(kind(4).compute, points[:4].clone().requires_grad_())
print("right under torch", torch.__version__)
