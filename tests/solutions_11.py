"""Answers to the exercises of lesson 11: right ones in different styles, and wrong ones, each with its report."""

import math

import torch
from submissions import Wrong
from torch.nn import functional as F

from vit_tutorial.variants import positions

NUMBERS = {
    "1-D": 48, "2-D": 20, "sine-cosine": 0, "offsets": 15, "pairs": 4,
    "vector": [1, 2, 5, 6], "weights": [0.75, 0.25], "biases": 180,
}  # fmt: skip


def halves_by_loop(row, column):
    return torch.stack([torch.cat([r, c]) for r in row for c in column])


def halves_by_expand(row, column):
    R, C = len(row), len(column)
    return torch.cat([row[:, None].expand(-1, C, -1), column[None].expand(R, -1, -1)], dim=-1).reshape(R * C, -1)


def offsets_by_loop(grid):
    R, C = grid
    places = [(r, c) for r in range(R) for c in range(C)]
    return torch.tensor([[(b[0] - a[0] + R - 1) * (2 * C - 1) + b[1] - a[1] + C - 1 for b in places] for a in places])


def offsets_by_division(grid):
    R, C = grid
    n = torch.arange(R * C)
    row, column = n // C, n % C
    down = row.unsqueeze(0) - row.unsqueeze(1)
    right = column.unsqueeze(0) - column.unsqueeze(1)
    return (down + R - 1) * (2 * C - 1) + (right + C - 1)


def attention_by_kernel(q, k, v, bias):
    weights = (q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1]) + bias).softmax(-1)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias.to(q.dtype)), weights


def attention_by_einsum(q, k, v, bias):
    scores = torch.einsum("bhtd,bhsd->bhts", q, k) * q.size(-1) ** -0.5
    weights = F.softmax(scores + bias[None], dim=-1)
    return torch.einsum("bhts,bhsd->bhtd", weights, v), weights


def bias_by_index(table, grid):
    numbers = offsets_by_loop(grid)
    many, T = table.shape[1] - 3, len(numbers) + 1
    index = torch.full((T, T), many + 2)
    index[0, 1:], index[1:, 0], index[1:, 1:] = many, many + 1, numbers
    return table[:, index]


def bias_by_cat(table, grid):
    h, N = len(table), grid[0] * grid[1]
    patches = table[:, offsets_by_division(grid)]
    first = torch.cat([table[:, -1:, None], table[:, -3, None, None].expand(h, 1, N)], dim=2)
    rest = torch.cat([table[:, -2, None, None].expand(h, N, 1), patches], dim=2)
    return torch.cat([first, rest], dim=1)


RIGHT = {
    "position_numbers": (lambda: NUMBERS,),
    "two_d_positions": (halves_by_loop, halves_by_expand),
    "offset_index": (offsets_by_loop, offsets_by_division),
    "biased_attention": (attention_by_kernel, attention_by_einsum),
    "relative_bias": (bias_by_index, bias_by_cat),
}


# ---- Wrong ones --------------------------------------------------------------------------------------------------


def answers(**changes):
    return lambda: NUMBERS | changes


def changed(work, change):
    """A right work whose result is changed afterwards."""
    return lambda *args: change(work(*args))


def positions_of_the_package(row, column):
    whole = positions.GridPosition((len(row), len(column)), 2 * row.shape[1], "2d", prefix_tokens=0)
    return torch.func.functional_call(whole, {"row": row[:, None], "column": column[None]}, ())[0]


def offsets(where=lambda n, grid: (n // grid[1], n % grid[1]), factor=lambda grid: 2 * grid[1] - 1, sign=1):
    """The offsets' numbers with patches in other places, another factor, or other signs."""

    def offset_index(grid):
        row, column = where(torch.arange(grid[0] * grid[1]), grid)
        down, right = row[None] - row[:, None] + grid[0] - 1, sign * (column[None] - column[:, None]) + grid[1] - 1
        return (down * factor(grid) + right).long()

    return offset_index


def bias(columns=(-3, -2, -1), change=lambda whole: whole):
    """The bias with other columns for the class token: where it looks, is looked at, and looks at itself."""

    def relative_bias(table, grid):
        where = torch.nn.functional.pad(offsets_by_loop(grid), (1, 0, 1, 0))
        where[0], where[:, 0] = (table.shape[1] + column for column in columns[:2])
        where[0, 0] = table.shape[1] + columns[2]
        return change(table[:, where])

    return relative_bias


def bias_of_the_package(table, grid):
    return torch.func.functional_call(positions.RelativeBias(grid, len(table)), {"table": table}, ())


WRONG = {
    "position_numbers": [
        Wrong("once passed: rounded weights", answers(weights=[0.745, 0.255]), "which is not right"),
        Wrong("along a list", answers(offsets=11), "Down, a patch can lie"),
    ],
    "two_d_positions": [
        Wrong("once passed: the package's", positions_of_the_package, "the package's own GridPosition"),
    ],
    "offset_index": [
        Wrong("columns first", lambda grid: offsets_by_loop(grid[::-1])),
    ],
    "biased_attention": [
        Wrong("scaled twice", lambda q, k, v, b: attention_by_einsum(q / q.shape[-1] ** 0.5, k, v, b))
    ],
    "relative_bias": [
        Wrong("once passed: the package's", bias_of_the_package, "the package's own RelativeBias"),
        Wrong("no gradient", lambda table, grid: bias_by_index(table.detach(), grid), "gradient"),
        Wrong("heads last", bias(change=lambda whole: whole.permute(1, 2, 0)), "permute"),
    ],
}
