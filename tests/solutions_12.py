"""Answers to the exercises of lesson 12: right ones, written in different ways, and wrong ones with what they hear."""

import functools
from collections import defaultdict
from statistics import mean

import numpy as np
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


def matrix_by_padding(kernel, size):
    # Where each pixel of the padded picture comes from, and then the padding's columns off.
    (H, W), e = size, len(kernel) // 2
    rows = torch.zeros(H, W, H + 2 * e, W + 2 * e)
    for y in range(H):
        for x in range(W):
            rows[y, x, y : y + len(kernel), x : x + len(kernel)] = kernel
    return rows[:, :, e : e + H, e : e + W].reshape(H * W, H * W)


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


RIGHT = {
    "bias_numbers": (
        lambda: NUMBERS,
        lambda: {name: float(value) for name, value in NUMBERS.items()},
        lambda: {name: torch.tensor(value) for name, value in NUMBERS.items()},
    ),
    "conv_matrix": (matrix_by_loops, matrix_by_single_pixels, matrix_by_padding),
    "receptive_field": (field_by_loop, field_from_the_last, field_by_places),
    "fair_comparison": (fair_by_groups, fair_by_sorting, fair_by_arrays),
    "nine_heads": (heads_by_coordinates, heads_by_padding, heads_by_einsum),
}


# ---- Wrong ones --------------------------------------------------------------------------------------------------


def changed(work, change):
    """A right work whose result is changed afterwards."""
    return lambda *args: change(work(*args))


def up_to(most, work):
    """Right as long as no number of the first argument is larger."""
    return lambda x, *args: work(x.clamp(-most, most), *args)


def kept_by(key, work):
    """A work that keeps its results by a part of what decides."""
    kept = {}
    return lambda *args: kept.setdefault(key(*args), work(*args))


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


def without_corners(kernel):
    e = len(kernel) // 2
    kept = torch.zeros_like(kernel)
    kept[e], kept[:, e] = kernel[e], kernel[:, e]
    return kept


def field(grow=lambda r, k, s, step: r + (k - 1) * step):
    """The loop with other steps."""

    def receptive_field(layers):
        r, step = 1, 1
        for k, s in layers:
            r, step = grow(r, k, s, step), step * s
        return r

    return receptive_field


def field_from_behind(layers):
    layers.reverse()
    return functools.reduce(lambda r, layer: (r - 1) * layer[1] + layer[0], layers, 1)


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


def with_runs(least):
    return fair(among=lambda groups: [rate for rate in groups if len(groups[rate]) >= least])


def with_all_their_runs(groups):
    return [rate for rate in groups if len(groups[rate]) == max(map(len, groups.values()))]


def by_common_seeds(groups):
    common = set.intersection(*({run["seed"] for run in own} for own in groups.values()))
    means = {rate: mean(run["held_out"] for run in own if run["seed"] in common) for rate, own in groups.items()}
    return [max(means, key=means.get)]


def divided_by_two(key):
    return lambda own: sum(run[key] for run in own) / 2


def fair_by_the_first_models_rates(runs):
    rates = {run["rate"] for run in runs if run["model"] == runs[0]["model"]}
    return fair_by_groups([run for run in runs if run["rate"] in rates])


def fair_by_ten_seeds(runs):
    return fair_by_groups([run for run in runs if run["seed"] in range(10)])


def fair_without_doubles(runs):
    return fair_by_groups([dict(run) for run in {(r["model"], r["rate"], r["test"]): r for r in runs}.values()])


def fair_from_zero(runs):
    found = fair_by_groups(runs)
    held = {model: mean(run["held_out"] for run in runs if run["model"] == model) for model in found}
    return {model: pair if held[model] > 0 else (None, None) for model, pair in found.items()}


def fair_in_place(runs):
    runs.sort(key=lambda run: run["seed"])
    return fair_by_groups(runs)


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


def first_patch_for_nobody(head):
    head[head.sum(1) == 0, 0] = 1
    return head


def as_images(x, grid):
    return x.mT.unflatten(2, grid)


def heads_by_an_operator(x, weight, grid):
    one, none = [1, 1], [0, 0]
    return torch.ops.aten.convolution.default(as_images(x, grid), weight, None, one, one, one, False, none, 1)


def some(keep):
    """The weight with zeros for the heads that are left out."""
    return lambda weight: weight * torch.tensor([[float(keep(i, j)) for j in range(3)] for i in range(3)])


def answers(key, value):
    return lambda: NUMBERS | {key: value}


WRONG = {
    "bias_numbers": [
        Wrong("kernels of one number", answers("convolution", 72), "A kernel of 3 × 3 for each pair"),
        Wrong("E at each pixel", answers("patches' work", 4718592), "used once for each patch"),
        Wrong("with zero", answers("different", 10), "All places use the same kernel"),
        Wrong("3 × 3", answers("heads", 9), "One head for each place of the kernel"),
    ],
    "conv_matrix": [
        Wrong("once passed: up to 10", up_to(10, matrix_by_loops), "a kernel with large numbers"),
        Wrong("once passed: rounded", changed(matrix_by_loops, lambda m: m.round(decimals=5)), "result[0, 0] is"),
        Wrong("once passed: up to 7 × 7", matrix(lambda k: k if len(k) < 9 else 0 * k), "a kernel of 9 × 9"),
        Wrong("four axes", lambda k, size: matrix_by_loops(k, size).view(*size, *size), "only the shape isn't"),
        Wrong("transposed", changed(matrix_by_loops, lambda m: m.T), "transpose(0, 1)"),
        Wrong("upside down", matrix(lambda k: k.flip(0)), "What your numbers show"),
        Wrong("a cross", matrix(without_corners), "are 0 and shouldn't be"),
        Wrong("modulo columns", matrix(place=lambda y, x, H, W: y * W + x % W if 0 <= y < H else None), "What your"),
        Wrong("height for width", matrix(place=lambda y, x, H, W: y * H + x if 0 <= y < H and 0 <= x < W else None)),
        Wrong("kernel in place", lambda kernel, size: matrix_by_loops(kernel.mul_(1.5), size), "changed in place"),
    ],
    "receptive_field": [
        Wrong("once passed: up to 1024", changed(field_by_loop, lambda r: min(r, 1024)), "16 layers of (3, 2)"),
        Wrong("once passed: kernels up to 11", field(lambda r, k, s, step: r + (min(k, 11) - 1) * step), "(31, 7)"),
        Wrong(
            "once passed: kept by kernels",
            kept_by(lambda layers: tuple(k for k, _ in layers), field_by_loop),
            "(3, 2), (3, 3), (3, 1)",
        ),
        Wrong(
            "once passed: 1 × 1 left out",
            lambda layers: field_by_loop([(k, s) for k, s in layers if k > 1]),
            "(3, 2), (1, 2), (3, 1)",
        ),
        Wrong("once passed: in place", field_from_behind, "argument 1 was changed in place"),
        Wrong("one side", changed(field_by_loop, lambda r: r // 2), "the sum is"),
        Wrong("a list", lambda layers: [field_by_loop(layers[:i]) for i in range(len(layers))], "expected a"),
        Wrong("r s + k", field(lambda r, k, s, step: r * s + k)),
    ],
    "fair_comparison": [
        Wrong("once passed: names in names", fair(fits=lambda model, name: model in name), "of 'vit'"),
        Wrong("once passed: small letters", fair(fits=lambda a, b: a.lower() == b.lower()), "4 models"),
        Wrong(
            "once passed: five digits", fair(change=lambda r: r | {"rate": round(r["rate"], 5)}), "rates from 0.00001"
        ),
        Wrong("once passed: ten seeds", fair_by_ten_seeds, "rates from 0.00001 on"),
        Wrong("once passed: the first model's rates", fair_by_the_first_models_rates, "'c'"),
        Wrong("once passed: without doubles", fair_without_doubles, "a model that is never right"),
        Wrong("once passed: from zero", fair_from_zero, "a model that is never right"),
        Wrong("once passed: all runs", fair(among=with_all_their_runs), "You chose the rate"),
        Wrong("once passed: three runs", with_runs(3), "You chose the rate"),
        Wrong("once passed: common seeds", fair(among=by_common_seeds), "You chose the rate 0.001."),
        Wrong("once passed: squares", fair(lambda own: mean(r["held_out"] ** 2 for r in own)), "of 'b'"),
        Wrong("once passed: halves", fair(divided_by_two("held_out"), divided_by_two("test")), "You chose the rate"),
        Wrong("once passed: a sum", fair(lambda own: sum(r["held_out"] for r in own)), "The means of held_out"),
        Wrong(
            "once passed: rounded", fair(tell=lambda own: round(mean(r["test"] for r in own), 2)), "the rates are right"
        ),
        Wrong("in place", fair_in_place, "changed in place"),
        Wrong("no rates", changed(fair_by_groups, lambda x: {m: pair[1] for m, pair in x.items()}), "expected a pair"),
        Wrong("exchanged", changed(fair_by_groups, lambda x: {m: p[::-1] for m, p in x.items()}), "was never trained"),
        Wrong("one model", changed(fair_by_groups, lambda x: dict(list(x.items())[:1])), "there is no answer"),
        Wrong("a mean, too", changed(fair_by_groups, lambda x: x | {"mean": (0, 0)}), "which is no model"),
    ],
    "nine_heads": [
        Wrong("once passed: an operator", heads_by_an_operator, "this exercise asks you to do without"),
        Wrong("once passed: up to 100", up_to(100, heads_by_einsum), "large numbers"),
        Wrong(
            "once passed: unfold",
            lambda x, weight, grid: (weight.flatten(1) @ F.unfold(as_images(x, grid), 3, padding=1)).mT,
            "torch's unfold",
        ),
        Wrong(
            "conv2d", lambda x, weight, grid: F.conv2d(as_images(x, grid), weight, padding=1).flatten(2).mT, "conv2d"
        ),
        Wrong("no gradient", heads(lambda weight: weight.detach()), "gradient"),
        Wrong("channels first", changed(heads_by_einsum, lambda y: y.mT), "exchanged"),
        Wrong("stacked", heads(join=torch.stack), "the sum along axis 0 of yours"),
        Wrong("heads transposed", heads(head=lambda head: head.T), "in yours result[:, 0:3] did"),
        Wrong("down and across", heads(lambda weight: weight.mT), "with the last two axes of weight exchanged"),
        Wrong("the first patch for nobody", heads(head=first_patch_for_nobody)),
        Wrong("no corners", heads(some(lambda i, j: 1 in (i, j)))),
    ],
}
