"""Answers to the exercises of lesson 11: right ones, written in different ways, and wrong ones with what they hear."""

import math

import numpy as np
import torch
from torch.nn import functional as F

NUMBERS = {
    "1-D": 48, "2-D": 20, "sine-cosine": 0, "ways": 15, "pairs": 4,
    "vector": [1, 2, 5, 6], "weights": [0.75, 0.25], "biases": 180,
}  # fmt: skip


def halves_by_loop(row, column):
    return torch.stack([torch.cat([r, c]) for r in row for c in column])


def halves_by_expand(row, column):
    R, C = len(row), len(column)
    return torch.cat([row[:, None].expand(-1, C, -1), column[None].expand(R, -1, -1)], dim=-1).reshape(R * C, -1)


def halves_by_index(row, column):
    n = torch.arange(len(row) * len(column))
    return torch.cat([row[n // len(column)], column[n % len(column)]], dim=1)


def halves_by_meshgrid(row, column):
    y, x = torch.meshgrid(torch.arange(len(row)), torch.arange(len(column)), indexing="ij")
    return torch.hstack([row[y.flatten()], column[x.flatten()]])


def ways_by_loop(grid):
    R, C = grid
    places = [(r, c) for r in range(R) for c in range(C)]
    return torch.tensor([[(b[0] - a[0] + R - 1) * (2 * C - 1) + b[1] - a[1] + C - 1 for b in places] for a in places])


def ways_by_division(grid):
    R, C = grid
    n = torch.arange(R * C)
    row, column = n // C, n % C
    down = row.unsqueeze(0) - row.unsqueeze(1)
    right = column.unsqueeze(0) - column.unsqueeze(1)
    return (down + R - 1) * (2 * C - 1) + (right + C - 1)


def ways_by_one_number(grid):
    # A place as row (2 C - 1) + column: then the difference of two places is the number of the way, but for a shift.
    R, C = grid
    place = (torch.arange(R)[:, None] * (2 * C - 1) + torch.arange(C)).flatten()
    return place - place[:, None] + (R - 1) * (2 * C - 1) + C - 1


def ways_by_numpy(grid):
    R, C = grid
    row, column = np.divmod(np.arange(R * C), C)
    return (np.subtract.outer(row, row).T + R - 1) * (2 * C - 1) + np.subtract.outer(column, column).T + C - 1


def attention_by_kernel(q, k, v, bias):
    weights = (q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1]) + bias).softmax(-1)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias.to(q.dtype)), weights


def attention_by_einsum(q, k, v, bias):
    scores = torch.einsum("bhtd,bhsd->bhts", q, k) * q.size(-1) ** -0.5
    weights = F.softmax(scores + bias[None], dim=-1)
    return torch.einsum("bhts,bhsd->bhtd", weights, v), weights


def attention_by_product(q, k, v, bias):
    # e to the power of a sum is a product
    scores = (q / q.shape[-1] ** 0.5) @ k.mT
    powers = (scores - scores.amax(-1, keepdim=True)).exp() * bias.exp()
    weights = powers / powers.sum(-1, keepdim=True)
    return weights @ v, weights


def attention_head_by_head(q, k, v, bias):
    outputs, weights = [], []
    for h in range(q.shape[1]):
        w = torch.softmax(q[:, h] @ k[:, h].mT / q.shape[-1] ** 0.5 + bias[h], dim=-1)
        weights.append(w)
        outputs.append(w @ v[:, h])
    return torch.stack(outputs, dim=1), torch.stack(weights, dim=1)


def bias_by_index(table, grid):
    ways = ways_by_loop(grid)
    many, T = table.shape[1] - 3, len(ways) + 1
    index = torch.full((T, T), many + 2)
    index[0, 1:], index[1:, 0], index[1:, 1:] = many, many + 1, ways
    return table[:, index]


def bias_by_cat(table, grid):
    h, N = len(table), grid[0] * grid[1]
    patches = table[:, ways_by_division(grid)]
    first = torch.cat([table[:, -1:, None], table[:, -3, None, None].expand(h, 1, N)], dim=2)
    rest = torch.cat([table[:, -2, None, None].expand(h, N, 1), patches], dim=2)
    return torch.cat([first, rest], dim=1)


def bias_by_product(table, grid):
    many = table.shape[1]
    index = bias_by_index(torch.arange(many)[None], grid)[0]
    return torch.einsum("ijw,hw->hij", F.one_hot(index, many).to(table.dtype), table)


def bias_by_padding(table, grid):
    index = F.pad(ways_by_one_number(grid), (1, 0, 1, 0))
    index[0], index[:, 0] = table.shape[1] - 3, table.shape[1] - 2
    index[0, 0] = table.shape[1] - 1
    return torch.stack([row[index] for row in table])


SOLUTIONS = {
    "position_numbers": (
        lambda: NUMBERS,
        lambda: NUMBERS | {"vector": torch.tensor([1.0, 2, 5, 6]), "weights": np.array([0.75, 0.25])},
        lambda: {name: float(value) if isinstance(value, int) else tuple(value) for name, value in NUMBERS.items()},
    ),
    "two_d_positions": (halves_by_loop, halves_by_expand, halves_by_index, halves_by_meshgrid),
    "offset_index": (ways_by_loop, ways_by_division, ways_by_one_number, ways_by_numpy),
    "biased_attention": (attention_by_kernel, attention_by_einsum, attention_by_product, attention_head_by_head),
    "relative_bias": (bias_by_index, bias_by_cat, bias_by_padding, bias_by_product),
}


def half_the_rows(row, column):
    return halves_by_loop(row[: max(len(row) // 2, 1)], column)


def rows_twice(row, column):
    return torch.cat([halves_by_loop(row, column)[:, : row.shape[1]]] * 2, dim=1)


def ways_from_one(grid):
    return ways_by_loop(grid) + 1


def ways_of_floats(grid):
    return ways_by_loop(grid) / 2


def ways_too_far_apart(grid):
    n = torch.arange(grid[0] * grid[1])
    place = n // grid[1] * 100 + n % grid[1]
    return place - place[:, None] + (grid[0] - 1) * 100 + grid[1] - 1


def attention_without_weights(q, k, v, bias):
    return attention_by_einsum(q, k, v, bias)[0]


def attention_twice_biased(q, k, v, bias):
    return attention_by_einsum(q, k, v, 2 * bias)


def attention_exchanged(q, k, v, bias):
    return attention_by_einsum(q, k, v, bias)[::-1]


def bias_of_one_head(table, grid):
    return bias_by_index(table[:1], grid)


def bias_cut_off(table, grid):
    return bias_by_index(table.detach(), grid)


WRONG = {
    "two_d_positions": ((half_the_rows, "has shape"), (rows_twice, "the row's half twice")),
    "offset_index": (
        (ways_from_one, "numbers that begin at 1"),
        (ways_of_floats, ""),
        (ways_too_far_apart, "Each way has one number"),
    ),
    "biased_attention": (
        (attention_without_weights, "return all 2"),
        (attention_twice_biased, "a bias that is added twice"),
        (attention_exchanged, "exchanged"),
    ),
    "relative_bias": ((bias_cut_off, "gradient"),),
}
