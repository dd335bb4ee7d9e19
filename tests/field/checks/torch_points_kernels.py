"""torch-points-kernels: neighbours, interpolation and sampling against pairwise distances of torch."""

import torch
import torch_points_kernels as tp

torch.manual_seed(0)
support, queries = torch.rand(2, 50, 3), torch.rand(2, 20, 3)
squares = (queries[:, :, None] - support[:, None]).square().sum(-1)
near = squares.topk(4, dim=2, largest=False)
index, distance = tp.knn(support, queries, 4)
assert torch.equal(index, near.indices)
torch.testing.assert_close(distance, near.values)
distance, index = tp.three_nn(queries, support)
assert torch.equal(index.long(), near.indices[:, :, :3])
torch.testing.assert_close(distance, near.values[:, :, :3].sqrt())
features = torch.randn(2, 6, 50)
weights = torch.rand(2, 20, 3)
picked = torch.stack([features[b][:, near.indices[b, :, :3]] for b in range(2)])
torch.testing.assert_close(tp.three_interpolate(features, index, weights), (picked * weights[:, None]).sum(-1))
chosen = tp.furthest_point_sample(support, 10)
for batch in range(2):
    assert len(set(chosen[batch].tolist())) == 10
print("right under torch", torch.__version__)
