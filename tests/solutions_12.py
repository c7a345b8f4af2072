"""Answers to the exercises of lesson 12: right ones in different styles, and wrong ones, each with its report."""

from collections import defaultdict
from statistics import mean

import torch
from submissions import Wrong
from torch.nn import functional as F

NUMBERS = {
    "convolution": 648,
    "patches": 4608,
    "convolution's work": 663552,
    "patches' work": 294912,
    "matrix": 100,
    "different": 9,
    "field": 11,
    "heads": 25,
}


def matrix_by_loops(kernel, size):
    (H, W), k = size, len(kernel)
    matrix = torch.zeros(H * W, H * W)
    for y in range(H):
        for x in range(W):
            for i in range(k):
                for j in range(k):
                    v, u = y + i - k // 2, x + j - k // 2
                    if 0 <= v < H and 0 <= u < W:
                        matrix[y * W + x, v * W + u] = kernel[i, j]
    return matrix


def matrix_by_single_pixels(kernel, size):
    # Column n is what the convolution makes of a picture in which pixel n alone is lit.
    N = size[0] * size[1]
    lit = torch.eye(N).view(N, 1, *size)
    return F.conv2d(lit, kernel[None, None], padding=len(kernel) // 2).flatten(1).T


def field_by_loop(layers):
    r, step = 1, 1
    for kernel, stride in layers:
        r += (kernel - 1) * step
        step *= stride
    return r


def field_from_the_last(layers):
    r = 1
    for kernel, stride in reversed(layers):
        r = r * stride + kernel - stride
    return r


def fair_by_groups(runs):
    groups = defaultdict(lambda: defaultdict(list))
    for run in runs:
        groups[run["model"]][run["rate"]].append(run)
    best = {}
    for model, rates in groups.items():
        rate = max(rates, key=lambda rate: mean(run["held_out"] for run in rates[rate]))
        best[model] = (rate, mean(run["test"] for run in rates[rate]))
    return best


def fair_by_sorting(runs):
    found = {}
    for model in {run["model"] for run in runs}:
        scored = []
        for rate in {run["rate"] for run in runs if run["model"] == model}:
            these = [run for run in runs if run["model"] == model and run["rate"] == rate]
            scored.append((sum(run["held_out"] for run in these) / len(these), rate, these))
        _, rate, these = sorted(scored, key=lambda score: score[0])[-1]
        found[model] = [rate, sum(run["test"] for run in these) / len(these)]
    return found


def heads_by_coordinates(x, weight, grid):
    n = torch.arange(grid[0] * grid[1])
    row, column = n // grid[1], n % grid[1]
    down, right = row[None] - row[:, None], column[None] - column[:, None]
    out = 0
    for i in range(3):
        for j in range(3):
            head = ((down == i - 1) & (right == j - 1)).to(x.dtype)
            out = out + head @ x @ weight[:, :, i, j].T
    return out


def heads_by_padding(x, weight, grid):
    B, _, C = x.shape
    padded = F.pad(x.view(B, *grid, C), (0, 0, 1, 1, 1, 1))
    out = 0
    for i in range(3):
        for j in range(3):
            out = out + padded[:, i : i + grid[0], j : j + grid[1]] @ weight[:, :, i, j].mT
    return out.flatten(1, 2)


RIGHT = {
    "bias_numbers": (lambda: NUMBERS,),
    "conv_matrix": (matrix_by_loops, matrix_by_single_pixels),
    "receptive_field": (field_by_loop, field_from_the_last),
    "fair_comparison": (fair_by_groups, fair_by_sorting),
    "nine_heads": (heads_by_coordinates, heads_by_padding),
}


# ---- Wrong ones --------------------------------------------------------------------------------------------------


def changed(work, change):
    """A right work whose result is changed afterwards."""
    return lambda *args: change(work(*args))


def matrix(read=lambda k: k, place=lambda y, x, H, W: y * W + x if 0 <= y < H and 0 <= x < W else None):
    """The matrix by its loops, with another kernel or another place for a pixel (None: outside)."""

    def conv_matrix(kernel, size):
        (H, W), k = size, len(kernel)
        kernel, whole = read(kernel), torch.zeros(H * W, H * W)
        for y in range(H):
            for x in range(W):
                for i in range(k):
                    for j in range(k):
                        column = place(y + i - k // 2, x + j - k // 2, H, W)
                        if column is not None:
                            whole[y * W + x, column] += kernel[i, j]
        return whole

    return conv_matrix


def field(grow=lambda r, k, s, step: r + (k - 1) * step):
    """The loop with other steps."""

    def receptive_field(layers):
        r, step = 1, 1
        for k, s in layers:
            r, step = grow(r, k, s, step), step * s
        return r

    return receptive_field


def fair(
    choose=lambda own: mean(run["held_out"] for run in own),
    tell=lambda own: mean(run["test"] for run in own),
    among=lambda groups: groups,
    change=lambda run: run,
    fits=lambda model, name: model == name,
):
    """The rate that ``choose`` likes best, of those that ``among`` leaves, and what ``tell`` makes of its runs."""

    def fair_comparison(runs):
        found = {}
        for model in sorted({run["model"] for run in runs}):
            groups = defaultdict(list)
            for run in filter(lambda run: fits(model, run["model"]), map(change, runs)):
                groups[run["rate"]].append(run)
            rate = max(among(groups) or groups, key=lambda rate: choose(groups[rate]))
            found[model] = (rate, tell(groups[rate]))
        return found

    return fair_comparison


def heads(use=lambda weight: weight, head=lambda head: head, join=sum):
    """The nine parts with another weight, other matrices of the heads, or joined in another way."""

    def nine_heads(x, weight, grid):
        n, parts = torch.arange(grid[0] * grid[1]), []
        down = n[None] // grid[1] - n[:, None] // grid[1]
        right = n[None] % grid[1] - n[:, None] % grid[1]
        for i in range(3):
            for j in range(3):
                one = head(((down == i - 1) & (right == j - 1)).to(x.dtype))
                parts.append(one @ x @ use(weight)[:, :, i, j].T)
        return join(parts)

    return nine_heads


def as_images(x, grid):
    return x.mT.unflatten(2, grid)


def heads_by_an_operator(x, weight, grid):
    one, none = [1, 1], [0, 0]
    return torch.ops.aten.convolution.default(as_images(x, grid), weight, None, one, one, one, False, none, 1)


def answers(key, value):
    return lambda: NUMBERS | {key: value}


WRONG = {
    "bias_numbers": [
        Wrong("kernels of one number", answers("convolution", 72), "A kernel of 3 × 3 for each pair"),
        Wrong("E at each pixel", answers("patches' work", 4718592), "used once for each patch"),
    ],
    "conv_matrix": [
        Wrong("four axes", lambda k, size: matrix_by_loops(k, size).view(*size, *size), "only the shape isn't"),
        Wrong("upside down", matrix(lambda k: k.flip(0)), "What your numbers show"),
    ],
    "receptive_field": [
        Wrong("strides ignored", lambda layers: 1 + sum(k - 1 for k, _ in layers)),
        Wrong("from the last", lambda layers: field_by_loop(layers[::-1])),
    ],
    "fair_comparison": [
        Wrong("once passed: names in names", fair(fits=lambda model, name: model in name), "of 'vit'"),
    ],
    "nine_heads": [
        Wrong("once passed: an operator", heads_by_an_operator, "this exercise asks you to do without"),
        Wrong("no gradient", heads(lambda weight: weight.detach()), "gradient"),
    ],
}
