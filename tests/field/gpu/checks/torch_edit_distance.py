"""torch_edit_distance: its distances of single tokens against the textbook's table."""

import torch
from torch_edit_distance import levenshtein_distance


def distance(hypothesis, reference):
    """Return the least number of insertions, deletions and substitutions."""
    row = list(range(len(reference) + 1))
    for i, have in enumerate(hypothesis, 1):
        row, before = [i], row
        for j, want in enumerate(reference, 1):
            row.append(min(before[j] + 1, row[-1] + 1, before[j - 1] + (have != want)))
    return row[-1]


torch.manual_seed(0)
pairs = torch.randint(1, 6, (64, 2, 30)).tolist()
pairs = [(a[: 1 + i % 30], b[: 1 + i * 7 % 30]) for i, (a, b) in enumerate(pairs)]
none = torch.empty(0, dtype=torch.int, device="cuda")


def padded(rows):
    """Return the rows as one tensor, and their lengths."""
    width = max(map(len, rows))
    data = torch.tensor([row + [0] * (width - len(row)) for row in rows], dtype=torch.int, device="cuda")
    return data, torch.tensor([len(row) for row in rows], dtype=torch.int, device="cuda")


(left, left_lengths), (right, right_lengths) = padded([a for a, _ in pairs]), padded([b for _, b in pairs])
found = levenshtein_distance(left, right, left_lengths, right_lengths, none, none).cpu().tolist()
for (a, b), (inserted, deleted, replaced, length) in zip(pairs, found, strict=True):
    assert inserted + deleted + replaced == distance(a, b), (a, b, inserted, deleted, replaced)
    assert length == len(b)
print("right under torch", torch.__version__)
