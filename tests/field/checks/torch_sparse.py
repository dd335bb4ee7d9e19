"""torch_sparse: products, transposes and reductions of sparse matrices against dense ones, and their gradients."""

import torch
import torch_sparse
from torch_sparse import SparseTensor, coalesce, matmul, spmm, spspmm, transpose

torch.manual_seed(0)
dense = torch.randn(9, 7, dtype=torch.float64) * (torch.rand(9, 7) < 0.4)
other = torch.randn(7, 5, dtype=torch.float64)
matrix = SparseTensor.from_dense(dense)
torch.testing.assert_close(matrix.to_dense(), dense)
torch.testing.assert_close(matrix.t().to_dense(), dense.T)
torch.testing.assert_close(matmul(matrix, other), dense @ other)
torch.testing.assert_close(matrix.sum(dim=1), dense.sum(dim=1))
right = SparseTensor.from_dense(torch.randn(7, 6, dtype=torch.float64) * (torch.rand(7, 6) < 0.5))
torch.testing.assert_close((matrix @ right).to_dense(), dense @ right.to_dense())

index = dense.nonzero().T
value = dense[index[0], index[1]].clone().requires_grad_()
product = spmm(index, value, 9, 7, other)
torch.testing.assert_close(product, dense @ other)
product.sum().backward()
torch.testing.assert_close(value.grad, other.sum(1)[index[1]])
for reduce in ("min", "max", "mean"):
    got = matmul(matrix, other, reduce=reduce)
    for row in range(9):
        columns = dense[row].nonzero()[:, 0]
        if len(columns):
            terms = dense[row, columns][:, None] * other[columns]
            expected = terms.mean(0) if reduce == "mean" else getattr(terms, reduce)(0).values
            torch.testing.assert_close(got[row], expected)
twice = torch.cat([index, index], dim=1)
_, summed = coalesce(twice, torch.cat([value.detach(), value.detach()]), 9, 7)
torch.testing.assert_close(summed, 2 * value.detach())
turned, values = transpose(index, value.detach(), 9, 7)
torch.testing.assert_close(torch.sparse_coo_tensor(turned, values, (7, 9)).to_dense(), dense.T)
found, values = spspmm(index, value.detach(), torch.stack(right.coo()[:2]), right.coo()[2], 9, 7, 6)
torch.testing.assert_close(torch.sparse_coo_tensor(found, values, (9, 6)).to_dense(), dense @ right.to_dense())
walked = SparseTensor.from_dense(torch.ones(4, 4)).random_walk(torch.arange(4), 3)
assert walked.shape == (4, 4)
assert torch.equal(walked[:, 0], torch.arange(4))
assert torch_sparse.__version__ == "0.6.18"
print("right under torch", torch.__version__)
