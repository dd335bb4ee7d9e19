"""metatensor: sets of labels, blocks out of a buffer, values and gradients moved between keys, and scripted code."""

import metatensor_torch as mts
import torch

torch.manual_seed(0)


def labels(names, *rows):
    """Return labels of these rows."""
    return mts.Labels(names, torch.tensor(rows, dtype=torch.int32))


first = labels(["a", "b"], (0, 1), (2, 3), (4, 5))
second = labels(["a", "b"], (4, 5), (0, 1), (7, 8))
rows = [{tuple(row) for row in each.values.tolist()} for each in (first, second)]
for method, expected in (("union", rows[0] | rows[1]), ("intersection", rows[0] & rows[1])):
    got = getattr(first, method)(second).values.tolist()
    assert len(got) == len(expected)
    assert {tuple(row) for row in got} == expected
assert first.position([2, 3]) == 1
assert first.position([2, 4]) is None

values = [torch.randn(3, 2, dtype=torch.float64, requires_grad=True) for _ in range(2)]
blocks = [
    mts.TensorBlock(
        values=each,
        samples=labels(["s"], (0,), (2,), (5 + number,)),
        components=[],
        properties=labels(["p"], (0,), (1,)),
    )
    for number, each in enumerate(values)
]
tensor = mts.TensorMap(labels(["key"], (0,), (1,)), blocks)
moved = tensor.keys_to_properties("key").block()
expected = torch.zeros(4, 4, dtype=torch.float64)
for number, each in enumerate(values):
    for row, sample in enumerate((0, 2, 5 + number)):
        expected[(0, 2, 5, 6).index(sample), 2 * number : 2 * number + 2] = each[row].detach()
torch.testing.assert_close(moved.values.detach(), expected)
moved.values.pow(2).sum().backward()
for each in values:
    torch.testing.assert_close(each.grad, 2 * each.detach())

again = mts.load_buffer(mts.save_buffer(mts.TensorMap(tensor.keys, [block.copy() for block in tensor.blocks()])))
assert again.keys == tensor.keys
for block, each in zip(again.blocks(), values, strict=True):
    torch.testing.assert_close(block.values, each.detach())


class Sums(torch.nn.Module):
    """Adds up what a map holds."""

    def forward(self, tensor: mts.TensorMap) -> torch.Tensor:
        """Return the sum of all values."""
        total = torch.zeros(1, dtype=torch.float64)
        for block in tensor.blocks():
            total += block.values.detach().sum()
        return total


torch.testing.assert_close(torch.jit.script(Sums())(tensor), sum(each.detach().sum() for each in values).reshape(1))
print("right under torch", torch.__version__)
