"""Answers to the exercises of lesson 12: right ones, written in different ways, and wrong ones with what they hear."""

from collections import defaultdict
from statistics import mean

import numpy as np
import torch
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


def matrix_by_padding(kernel, size):
    # Where each pixel of the padded picture comes from, and then the padding's columns off.
    (H, W), e = size, len(kernel) // 2
    rows = torch.zeros(H, W, H + 2 * e, W + 2 * e)
    for y in range(H):
        for x in range(W):
            rows[y, x, y : y + len(kernel), x : x + len(kernel)] = kernel
    return rows[:, :, e : e + H, e : e + W].reshape(H * W, H * W)


def matrix_by_sums(kernel, size):
    # A sum over the kernel of shifts, each a Kronecker product of one in rows and one in columns.
    (H, W), e = size, len(kernel) // 2
    numbers = np.asarray(kernel)
    return sum(
        numbers[i, j] * np.kron(np.eye(H, k=i - e), np.eye(W, k=j - e))
        for i in range(len(kernel))
        for j in range(len(kernel))
    )


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


def field_by_places(layers):
    seen = {0}
    for kernel, stride in reversed(layers):
        seen = {place * stride + i for place in seen for i in range(kernel)}
    return max(seen) - min(seen) + 1


def field_by_tensors(layers):
    if not layers:
        return torch.tensor(1)
    kernels, strides = torch.tensor(layers).T
    before = torch.cat([torch.ones(1, dtype=torch.int64), strides.cumprod(0)[:-1]])
    return 1 + ((kernels - 1) * before).sum()


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


def fair_by_arrays(runs):
    models, rates = np.array([run["model"] for run in runs]), np.array([run["rate"] for run in runs])
    held, test = (np.array([run[key] for run in runs]) for key in ("held_out", "test"))
    answer = {}
    for model in np.unique(models):
        tried = np.unique(rates[models == model])
        means = [held[(models == model) & (rates == rate)].mean() for rate in tried]
        rate = tried[int(np.argmax(means))]
        answer[str(model)] = np.array([rate, test[(models == model) & (rates == rate)].mean()])
    return answer


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


def heads_by_einsum(x, weight, grid):
    R, C = grid
    heads = torch.stack(
        [
            torch.kron(torch.diag(torch.ones(R - abs(i)), i), torch.diag(torch.ones(C - abs(j)), j))
            for i in (-1, 0, 1)
            for j in (-1, 0, 1)
        ]
    )
    return torch.einsum("hnm,bmc,fch->bnf", heads.to(x.dtype), x, weight.flatten(2))


SOLUTIONS = {
    "bias_numbers": (
        lambda: NUMBERS,
        lambda: {name: float(value) for name, value in NUMBERS.items()},
        lambda: {name: torch.tensor(value) for name, value in NUMBERS.items()},
    ),
    "conv_matrix": (matrix_by_loops, matrix_by_single_pixels, matrix_by_padding, matrix_by_sums),
    "receptive_field": (field_by_loop, field_from_the_last, field_by_places, field_by_tensors),
    "fair_comparison": (fair_by_groups, fair_by_sorting, fair_by_arrays),
    "nine_heads": (heads_by_coordinates, heads_by_padding, heads_by_einsum),
}


def matrix_of_the_upper_half(kernel, size):
    return matrix_by_loops(kernel, size)[: size[0] * size[1] // 2]


def matrix_doubled(kernel, size):
    return 2 * matrix_by_loops(kernel, size)


def field_of_one_side(layers):
    return field_by_loop(layers) // 2


def field_as_an_area(layers):
    return field_by_loop(layers) ** 2


def field_with_two_more(layers):
    return field_by_loop(layers) + 2


def field_as_a_list(layers):
    return [field_by_loop(layers[:i]) for i in range(len(layers))]


def fair_without_rates(runs):
    return {model: accuracy for model, (_, accuracy) in fair_by_groups(runs).items()}


def fair_of_the_worst_seed(runs):
    found = fair_by_groups(runs)
    return {
        model: (rate, sorted(run["test"] for run in runs if (run["model"], run["rate"]) == (model, rate))[0])
        for model, (rate, _) in found.items()
    }


def fair_in_place(runs):
    runs.sort(key=lambda run: run["seed"])
    return fair_by_groups(runs)


def fair_of_one_model(runs):
    return dict(list(fair_by_groups(runs).items())[:-1]) if runs[0]["model"] in "abcd" else fair_by_groups(runs)


def fair_the_other_way_round(runs):
    return {model: pair[::-1] for model, pair in fair_by_groups(runs).items()}


def heads_by_convolution(x, weight, grid):
    images = x.transpose(1, 2).unflatten(2, grid)
    return F.conv2d(images, weight, padding=1).flatten(2).transpose(1, 2)


def heads_by_another_name(x, weight, grid):
    images = x.transpose(1, 2).unflatten(2, grid)
    return torch.convolution(images, weight, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1).flatten(2).transpose(1, 2)


def heads_cut_off(x, weight, grid):
    return heads_by_einsum(x, weight.detach(), grid)


def heads_channels_first(x, weight, grid):
    return heads_by_einsum(x, weight, grid).transpose(1, 2)


WRONG = {
    "conv_matrix": ((matrix_of_the_upper_half, "has shape"), (matrix_doubled, "2 times")),
    "receptive_field": (
        (field_of_one_side, "one side"),
        (field_as_an_area, "an area"),
        (field_with_two_more, "the sum is"),
        (field_as_a_list, "expected a"),
    ),
    "fair_comparison": (
        (fair_without_rates, "expected a pair"),
        (fair_of_one_model, "there is no answer"),
        (fair_the_other_way_round, "is no rate"),
        (fair_of_the_worst_seed, "the worst seed's accuracy"),
        (fair_in_place, "changed in place"),
    ),
    "nine_heads": (
        (heads_by_convolution, "conv2d"),
        (heads_by_another_name, "convolution"),
        (heads_cut_off, "gradient"),
        (heads_channels_first, ""),
    ),
}
