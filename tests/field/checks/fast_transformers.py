"""pytorch-fast-transformers: its seven modules against products of whole matrices."""

import torch
from fast_transformers.aggregate import aggregate, broadcast
from fast_transformers.causal_product import causal_dot_product
from fast_transformers.clustering.hamming import cluster
from fast_transformers.hashing import compute_hashes
from fast_transformers.local_product import local_dot_product
from fast_transformers.sparse_product import clustered_sparse_dot_product, sparse_dot_product

torch.manual_seed(0)
q, k, v = torch.randn(2, 3, 12, 5), torch.randn(2, 3, 12, 5), torch.randn(2, 3, 12, 4)
scores = torch.einsum("nhle,nhse->nhls", q, k)
sides = [each.clone().requires_grad_() for each in (q, k, v)]
got, expected = causal_dot_product(*sides), scores.tril() @ v
torch.testing.assert_close(got, expected)
# Not of a sum: the extension reads gradients by pointers, whatever their strides are.
weights = torch.randn_like(got)
got.backward(weights)
again = [each.clone().requires_grad_() for each in (q, k, v)]
(torch.einsum("nhle,nhse->nhls", again[0], again[1]).tril() @ again[2]).backward(weights)
for one, other in zip(sides, again, strict=True):
    torch.testing.assert_close(one.grad, other.grad)

topk = scores.topk(4, dim=3).indices
torch.testing.assert_close(sparse_dot_product(q, k, topk), scores.gather(3, topk))
groups = torch.randint(0, 3, (2, 3, 12), dtype=torch.int32).sort(-1).values  # the kernel for CUDA expects them so
chosen = torch.randint(0, 12, (2, 3, 3, 4))
counts = torch.nn.functional.one_hot(groups.long(), 3).sum(2).int()
of_group = chosen.gather(2, groups.long()[..., None].expand(-1, -1, -1, 4))
got = clustered_sparse_dot_product(q, k, chosen, groups, counts, torch.full((2,), 12))
torch.testing.assert_close(got, scores.gather(3, of_group))

lengths = torch.full((2,), 12)
got = local_dot_product(q, k, torch.zeros(12, 12), lengths, 4)
for row in range(12):
    for column in range(4):
        at = row + column - 2
        if 0 <= at < 12:
            torch.testing.assert_close(got[..., row, column], scores[..., row, at])

planes, x = torch.randn(8, 6), torch.randn(40, 5)
bits = (x @ planes[:, :5].T > planes[:, 5]).long()
hashes = compute_hashes(x, planes)
assert torch.equal(hashes, (bits << torch.arange(8)).sum(1))
members, sizes = cluster(
    hashes.view(1, 1, 40), torch.full((1,), 40, dtype=torch.int32), clusters=4, iterations=5, bits=8
)
assert torch.equal(sizes.long(), members.long().flatten().bincount(minlength=4).view(1, 1, 4))

ones = torch.ones(2, 3, 3)
summed = aggregate(v, groups, ones)
hot = torch.nn.functional.one_hot(groups.long(), 3).float()
torch.testing.assert_close(summed, torch.einsum("nhlc,nhld->nhcd", hot, v))
torch.testing.assert_close(broadcast(summed, groups, ones), torch.einsum("nhlc,nhcd->nhld", hot, summed))
print("right under torch", torch.__version__)
