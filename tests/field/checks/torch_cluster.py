"""torch_cluster: neighbours, sampling and matching against pairwise distances of torch."""

import torch
from torch_cluster import fps, graclus_cluster, grid_cluster, knn, radius

torch.manual_seed(0)
x, y = torch.rand(60, 3, dtype=torch.float64), torch.rand(15, 3, dtype=torch.float64)
distance = torch.cdist(y, x)
pairs = knn(x, y, 4)
for query in range(15):
    assert set(pairs[1][pairs[0] == query].tolist()) == set(distance[query].topk(4, largest=False).indices.tolist())
pairs = radius(x, y, 0.3, max_num_neighbors=60)
found = torch.zeros(15, 60, dtype=torch.bool)
found[pairs[0], pairs[1]] = True
assert torch.equal(found, distance <= 0.3)
sampled = fps(x, ratio=0.25, random_start=False)
expected, nearest = [0], torch.cdist(x, x[:1])[:, 0]
while len(expected) < 15:
    expected.append(int(nearest.argmax()))
    nearest = torch.minimum(nearest, torch.cdist(x, x[expected[-1:]])[:, 0])
assert sampled.tolist() == expected
cells = grid_cluster(x, torch.full((3,), 0.5, dtype=torch.float64), torch.zeros(3).double(), torch.ones(3).double())
_, same = torch.unique((x / 0.5).floor(), dim=0, return_inverse=True)
_, got = torch.unique(cells, return_inverse=True)
assert torch.equal(got[:, None] == got, same[:, None] == same)
row, col = torch.tensor([0, 1, 1, 2, 2, 3]), torch.tensor([1, 0, 2, 1, 3, 2])
matched = graclus_cluster(row, col)
assert matched.bincount().max() <= 2
print("right under torch", torch.__version__)
