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


# ---- Wrong works by their names ----------------------------------------------------------------------------------


def matrix(read=lambda k: k, place=None, middle=lambda k: k // 2, end=lambda m, size: m):
    """The matrix by its loops, with another kernel, another place for a pixel (None: outside), another middle."""

    def inside(y, x, H, W):
        return y * W + x if 0 <= y < H and 0 <= x < W else None

    def conv_matrix(kernel, size):
        (H, W), k, where = size, len(kernel), place or inside
        kernel, whole = read(kernel), torch.zeros(H * W, H * W)
        for y in range(H):
            for x in range(W):
                for i in range(k):
                    for j in range(k):
                        column = where(y + i - middle(k), x + j - middle(k), H, W)
                        if column is not None:
                            whole[y * W + x, column] += kernel[i, j]
        return end(whole, size)

    return conv_matrix


def kept(keep):
    """A kernel with zeros where ``keep(i - middle, j - middle)`` says no."""

    def read(kernel):
        e = len(kernel) // 2
        rows = [[float(bool(keep(i - e, j - e))) for j in range(len(kernel))] for i in range(len(kernel))]
        return kernel * torch.tensor(rows)

    return read


def without_rows(edge):
    """The rows of the matrix that belong to the picture's edge away, or zero."""

    def end(whole, size):
        (H, W), rows = size, whole.clone()
        n = torch.arange(H * W)
        inner = (n // W > 0) & (n // W < H - 1) & (n % W > 0) & (n % W < W - 1)
        return rows[inner] if edge == "away" else rows * inner[:, None]

    return end


WRONG_MATRIX = {
    "both flipped": matrix(lambda k: k.flip(0, 1)),
    "transposed": matrix(end=lambda m, size: m.T),
    "upside down": matrix(lambda k: k.flip(0)),
    "mirrored": matrix(lambda k: k.flip(1)),
    "rot90": matrix(lambda k: k.rot90()),
    "kernel transposed": matrix(lambda k: k.T),
    "number inside alone": matrix(place=lambda y, x, H, W: y * W + x if 0 <= y * W + x < H * W else None),
    "modulo in both": matrix(place=lambda y, x, H, W: y % H * W + x % W),
    "modulo in columns": matrix(place=lambda y, x, H, W: y * W + x % W if 0 <= y < H else None),
    "modulo in rows": matrix(place=lambda y, x, H, W: y % H * W + x if 0 <= x < W else None),
    "clamped": matrix(place=lambda y, x, H, W: min(max(y, 0), H - 1) * W + min(max(x, 0), W - 1)),
    "column by column": lambda kernel, size: (
        matrix_by_loops(kernel.T, size[::-1]).unflatten(0, size[::-1]).flatten(0, 1)
    ),
    "height for width": matrix(place=lambda y, x, H, W: y * H + x if 0 <= y < H and 0 <= x < W else None),
    "size exchanged": lambda kernel, size: matrix_by_loops(kernel, size[::-1]),
    "from the place on": matrix(middle=lambda k: 0),
    "up to the place": matrix(middle=lambda k: k - 1),
    "moved by one": matrix(middle=lambda k: 1),
    "middle alone": matrix(kept(lambda i, j: i == j == 0)),
    "no middle": matrix(kept(lambda i, j: i or j)),
    "cross": matrix(kept(lambda i, j: i == 0 or j == 0)),
    "diagonals": matrix(kept(lambda i, j: abs(i) == abs(j))),
    "one row of the kernel": matrix(kept(lambda i, j: i == 0)),
    "ones": matrix(torch.ones_like),
    "normalised": matrix(lambda k: k / k.sum()),
    "absolute": matrix(torch.abs),
    "doubled": matrix(lambda k: 2 * k),
    "inner places alone": matrix(end=without_rows("away")),
    "edge of zeros": matrix(end=without_rows("zero")),
    "four axes": matrix(end=lambda m, size: m.view(*size, *size)),
    "no return": lambda kernel, size: None,
    "nested lists of tensors": lambda kernel, size: list(matrix_by_loops(kernel, size))[:1],
    "kernel in place": lambda kernel, size: matrix_by_loops(kernel.mul_(1.5), size),
}


def field(grow=lambda r, k, s, step: r + (k - 1) * step, widen=lambda step, s: step * s, r=1, step=1, first=False):
    """The loop with other steps; ``first`` widens before it grows."""

    def receptive_field(layers, r=r, step=step):
        for k, s in layers:
            step = widen(step, s) if first else step
            r = grow(r, k, s, step)
            step = step if first else widen(step, s)
        return r

    return receptive_field


WRONG_FIELD = {
    "widened first": field(first=True),
    "no strides": field(widen=lambda step, s: 1),
    "last stride": field(widen=lambda step, s: s),
    "strides added": field(widen=lambda step, s: step + s),
    "strides added, less one": field(widen=lambda step, s: step + s - 1),
    "strides squared": field(widen=lambda step, s: step * s * s),
    "whole kernels": field(lambda r, k, s, step: r + k * step),
    "half kernels": field(lambda r, k, s, step: r + k // 2 * step),
    "twice half kernels": field(lambda r, k, s, step: r + 2 * (k // 2) * step),
    "k step - 1": field(lambda r, k, s, step: r + k * step - 1),
    "own stride": field(lambda r, k, s, step: r + (k - 1) * s),
    "multiplied": field(lambda r, k, s, step: r * k),
    "largest": lambda layers: max([k for k, _ in layers] or [1]),
    "start at 0": field(r=0),
    "start at 2": field(r=2),
    "sum of kernels": lambda layers: sum(k for k, _ in layers),
    "strides alone": lambda layers: int(np.prod([s for _, s in layers])),
    "exchanged": lambda layers: field_by_loop([(s, k) for k, s in layers]),
    "reversed": lambda layers: field_by_loop(layers[::-1]),
    "r s + k - s": field(lambda r, k, s, step: r * s + k - s),
    "r s + k": field(lambda r, k, s, step: r * s + k),
    "all strides": lambda layers: 1 + sum(k - 1 for k, _ in layers) * int(np.prod([s for _, s in layers])),
    "no last layer": lambda layers: field_by_loop(layers[:-1]),
    "no first layer": lambda layers: field_by_loop(layers[1:]),
    "one side": lambda layers: field_by_loop(layers) // 2,
    "area": lambda layers: field_by_loop(layers) ** 2,
    "both": lambda layers: (field_by_loop(layers),) * 2,
    "doubled": lambda layers: 2 * field_by_loop(layers),
    "popped": lambda layers: field_by_loop([layers.pop(0) for _ in range(len(layers))]),
    "raises without layers": lambda layers: field_by_loop(layers) + 0 * layers[0][0],
    "no return": lambda layers: print(end=""),
}


def fair(choose=lambda held, test: mean(held), tell=lambda held, test: mean(test), best=max, order=sorted):
    """Chosen and told by what ``choose`` and ``tell`` make of a rate's numbers, in the order of the runs."""

    def fair_comparison(runs):
        found = {}
        for model in order({run["model"] for run in runs}):
            groups = defaultdict(lambda: ([], []))
            for run in runs:
                if run["model"] == model:
                    groups[run["rate"]][0].append(run["held_out"])
                    groups[run["rate"]][1].append(run["test"])
            rate = best(groups, key=lambda rate: choose(*groups[rate]))
            found[model] = (rate, tell(*groups[rate]))
        return found

    return fair_comparison


def fair_at(rate_of, tell=lambda own, rate: mean(run["test"] for run in own if run["rate"] == rate)):
    """The rate that ``rate_of`` picks of a model's runs (and of all runs)."""

    def fair_comparison(runs):
        found = {}
        for model in {run["model"] for run in runs}:
            own = [run for run in runs if run["model"] == model]
            rate = rate_of(own, runs)
            found[model] = (rate, tell(own, rate))
        return found

    return fair_comparison


def right_rate(own, runs):
    return fair_by_groups(own)[own[0]["model"]][0]


def changed(work, change):
    """A right work whose result is changed afterwards."""
    return lambda *args: change(work(*args))


WRONG_FAIR = {
    "by test": fair(lambda held, test: mean(test)),
    "by the best run": fair(lambda held, test: max(held)),
    "by the best test run": fair(lambda held, test: max(test)),
    "by the worst run": fair(lambda held, test: min(held)),
    "by the median": fair(lambda held, test: sorted(held)[len(held) // 2]),
    "by the sum": fair(lambda held, test: sum(held)),
    "by both": fair(lambda held, test: mean(held) + mean(test)),
    "by the spread": fair(lambda held, test: -np.var(held)),
    "the worst mean": fair(best=min),
    "by the first run": fair(lambda held, test: held[0]),
    "by the last run": fair(lambda held, test: held[-1]),
    "the largest rate": fair_at(lambda own, runs: max(run["rate"] for run in own)),
    "the smallest rate": fair_at(lambda own, runs: min(run["rate"] for run in own)),
    "the first rate": fair_at(lambda own, runs: own[0]["rate"]),
    "the last rate": fair_at(lambda own, runs: own[-1]["rate"]),
    "one rate for all": fair_at(lambda own, runs: right_rate([run | {"model": "all"} for run in runs], runs)),
    "held_out told": fair(tell=lambda held, test: mean(held)),
    "the best told": fair(tell=lambda held, test: max(test)),
    "the worst told": fair(tell=lambda held, test: min(test)),
    "the sum told": fair(tell=lambda held, test: sum(test)),
    "the first told": fair(tell=lambda held, test: test[0]),
    "the last told": fair(tell=lambda held, test: test[-1]),
    "both told": fair(tell=lambda held, test: mean(held + test)),
    "the best by held_out told": fair(tell=lambda held, test: test[held.index(max(held))]),
    "all rates told": fair_at(right_rate, lambda own, rate: mean(run["test"] for run in own)),
    "divided by three": fair(tell=lambda held, test: sum(test) / 3),
    "a share": fair(tell=lambda held, test: mean(test) / 100),
    "an error": fair(tell=lambda held, test: 100 - mean(test)),
    "whole numbers": fair(tell=lambda held, test: round(mean(test))),
    "one decimal": fair(tell=lambda held, test: round(mean(test), 1)),
    "a list of pairs": changed(fair_by_groups, lambda found: list(found.values())),
    "a third number": changed(fair_by_groups, lambda found: {name: (*pair, 0) for name, pair in found.items()}),
    "the rate alone": changed(fair_by_groups, lambda found: {name: pair[0] for name, pair in found.items()}),
    "exchanged": changed(fair_by_groups, lambda found: {name: pair[::-1] for name, pair in found.items()}),
    "the best model alone": changed(fair_by_groups, lambda found: dict([max(found.items(), key=lambda x: x[1][1])])),
    "a mean of models, too": changed(fair_by_groups, lambda found: found | {"mean": (0.0, 0.0)}),
    "no return": lambda runs: None,
}


def heads(use=lambda weight: weight, look=lambda R, C, down, right: None, join=sum, values=lambda x: x):
    """The nine parts by shifted grids; ``look`` may put something in place of a head's matrix (N, N)."""

    def nine_heads(x, weight, grid):
        R, C = grid
        n, parts, matrices = torch.arange(R * C), [], use(weight)
        down = n[None] // C - n[:, None] // C
        right = n[None] % C - n[:, None] % C
        for i in range(3):
            for j in range(3):
                head = look(R, C, i - 1, j - 1)
                head = ((down == i - 1) & (right == j - 1)).to(x.dtype) if head is None else head.to(x.dtype)
                parts.append(head @ values(x) @ matrices[:, :, i, j].T)
        return join(parts)

    return nine_heads


def shifted(change):
    """A head's matrix of ones and zeros, changed."""

    def look(R, C, down, right):
        n = torch.arange(R * C)
        rows, columns = n[None] // C - n[:, None] // C, n[None] % C - n[:, None] % C
        return change(((rows == down) & (columns == right)).float())

    return look


def nobody(change):
    """The heads where a patch without a neighbour gets a row of ``change``."""

    def fill(head):
        alone = head.sum(1) == 0
        head[alone] = change(head)[alone]
        return head

    return shifted(fill)


def along_the_list(R, C, down, right):
    n = torch.arange(R * C)
    return (n[None] - n[:, None] == down * C + right).float()


def rolled(R, C, down, right):
    n = torch.arange(R * C).view(R, C).roll((-down, -right), (0, 1)).flatten()
    return torch.eye(R * C)[n]


def some(keep):
    """The weight with zeros for the heads that are left out."""
    return lambda weight: weight * torch.tensor([[float(keep(i, j)) for j in range(3)] for i in range(3)])


WRONG_HEADS = {
    "conv2d": heads_by_convolution,
    "convolution": heads_by_another_name,
    "unfold": lambda x, weight, grid: (weight.flatten(1) @ F.unfold(x.mT.unflatten(2, grid), 3, padding=1)).transpose(
        1, 2
    ),
    "conv3d": lambda x, weight, grid: (
        F.conv3d(x.mT.unflatten(2, grid)[:, :, None], weight[:, :, None], padding=(0, 1, 1)).flatten(2).mT
    ),
    "both flipped": heads(lambda weight: weight.flip(2, 3)),
    "heads transposed": heads(look=shifted(lambda head: head.T)),
    "upside down": heads(lambda weight: weight.flip(2)),
    "mirrored": heads(lambda weight: weight.flip(3)),
    "kernel transposed": heads(lambda weight: weight.mT),
    "softmax of the matrix": heads(look=shifted(lambda head: head.softmax(1))),
    "mean of all for nobody": heads(look=nobody(lambda head: torch.ones_like(head) / len(head))),
    "itself for nobody": heads(look=nobody(lambda head: torch.eye(len(head)))),
    "the first patch for nobody": heads(look=nobody(lambda head: torch.eye(len(head))[:1].expand_as(head))),
    "along the list": heads(look=along_the_list),
    "rolled": heads(look=rolled),
    "corners left out": heads(some(lambda i, j: 1 in (i, j))),
    "corners alone": heads(some(lambda i, j: 1 not in (i, j))),
    "sides left out": heads(some(lambda i, j: (i + j) % 2 == 0)),
    "middle left out": heads(some(lambda i, j: (i, j) != (1, 1))),
    "middle alone": heads(some(lambda i, j: i == j == 1)),
    "one row": heads(some(lambda i, j: i == 1)),
    "one column": heads(some(lambda i, j: j == 1)),
    "range(2)": heads(some(lambda i, j: i < 2 and j < 2)),
    "one matrix": heads(lambda weight: weight[:, :, 1:2, 1:2].expand_as(weight)),
    "mean of the matrices": heads(lambda weight: weight.mean((2, 3), keepdim=True).expand_as(weight)),
    "column by column": lambda x, weight, grid: heads_by_einsum(
        x.unflatten(1, grid[::-1]).transpose(1, 2).flatten(1, 2), weight, grid
    ),
    "grid exchanged": lambda x, weight, grid: heads_by_einsum(x, weight, grid[::-1]),
    "mean of heads": heads(join=lambda parts: sum(parts) / 9),
    "largest": heads(join=lambda parts: torch.stack(parts).amax(0)),
    "stacked": heads(join=torch.stack),
    "side by side": heads(join=lambda parts: torch.cat(parts, -1)),
    "channels first": heads(join=lambda parts: sum(parts).mT),
    "weight cut off": heads(lambda weight: weight.detach()),
    "tokens cut off": heads(values=lambda x: x.detach()),
    "first image": heads(values=lambda x: x[:1].expand_as(x)),
    "last head's part": heads(join=lambda parts: parts[-1]),
    "doubled": heads(join=lambda parts: 2 * sum(parts)),
    "weight not transposed": lambda x, weight, grid: heads_by_einsum(x, weight.transpose(0, 1), grid),
    "no return": lambda x, weight, grid: None,
}

BY_LABEL = {
    "bias_numbers": {
        f"{key}: {value}": (lambda key=key, value=value: NUMBERS | {key: value})
        for key, values in {
            "convolution": [27, 216, 240, 672, 72, 9, 675, 1944],
            "patches": [1536, 4704, 48, 294912, 96, 144, 73728],
            "convolution's work": [9216, 583200, 648, 27648, 221184, 688128],
            "patches' work": [4608, 4718592, 98304, 73728, 301056],
            "matrix": [144, 256, 36, 64, 9, 81, 84],
            "different": [10, 100, 16, 8, 3],
            "field": [7, 9, 17, 13, 10, 6, 8, 5],
            "heads": [9, 5, 24, 16, 1],
        }.items()
        for value in values
    },
    "conv_matrix": WRONG_MATRIX,
    "receptive_field": WRONG_FIELD,
    "fair_comparison": WRONG_FAIR,
    "nine_heads": WRONG_HEADS,
}


# What the check calls the mistake of a wrong work; one that isn't listed must not be given a name.
NAMES = {
    "bias_numbers": {
        "convolution: 27": "kernels of one output channel",
        "convolution: 216": "one kernel for all input channels",
        "convolution: 672": "a bias of the convolution that isn't there",
        "convolution: 72": "kernels of one number",
        "patches: 1536": "a patch of one channel",
        "patches: 4704": "a bias of E that isn't there",
        "patches: 48": "the numbers of one patch",
        "patches: 294912": "E once for each patch",
        "convolution's work: 9216": "the work of one channel",
        "convolution's work: 583200": "work at the inner places alone",
        "convolution's work: 648": "parameters in place of work",
        "convolution's work: 27648": "the work for one output channel",
        "convolution's work: 221184": "the work on one input channel",
        "patches' work: 4608": "E's parameters in place of its work",
        "patches' work: 4718592": "work at each pixel",
        "patches' work: 98304": "E's work on one channel",
        "matrix: 144": "nine numbers in each row",
        "matrix: 256": "all entries",
        "matrix: 36": "the inner places alone",
        "different: 10": "zero counted with the kernel",
        "different: 100": "each entry as a number of its own",
        "field: 7": "kernels that are added without strides",
        "field: 9": "the last stride alone",
        "field: 17": "a layer's own stride counted",
        "heads: 9": "a head for each direction of the 3 × 3 kernel",
        "heads: 5": "one head for each row",
        "heads: 24": "heads for the neighbours alone",
    },
    "conv_matrix": {
        "both flipped": "a kernel that is turned by 180 degrees",
        "transposed": "a kernel that is turned by 180 degrees",
        "upside down": "a kernel that stands on its head",
        "mirrored": "a kernel that is mirrored",
        "kernel transposed": "rows and columns of the kernel exchanged",
        "number inside alone": "neighbours along the list",
        "modulo in both": "a picture that goes on at the other side",
        "modulo in columns": "rows of the picture that go on at the other side",
        "modulo in rows": "columns of the picture that go on at the other side",
        "clamped": "an edge that is repeated",
        "column by column": "pixels numbered column by column",
        "size exchanged": "height and width exchanged",
        "from the place on": "a kernel that isn't centred",
        "up to the place": "a kernel that ends on the place",
        "moved by one": "a kernel that is centred for 3 × 3 alone",
        "middle alone": "the middle of the kernel alone",
        "no middle": "a kernel without its middle",
        "cross": "a cross in place of the whole kernel",
        "ones": "ones in place of the kernel's numbers",
        "normalised": "a kernel whose sum is made 1",
        "inner places alone": "places at the edge left out",
        "four axes": "a matrix that isn't flattened",
    },
    "receptive_field": {
        "widened first": "a layer's own stride counted",
        "no strides": "strides left out",
        "last stride": "only the stride of the layer before",
        "strides added, less one": "strides that are added",
        "strides squared": "powers of the last stride",
        "whole kernels": "whole kernels added",
        "half kernels": "half the kernel",
        "twice half kernels": "even kernels taken for odd",
        "k step - 1": "one taken off behind the product",
        "own stride": "a layer's own stride in place of those before it",
        "multiplied": "kernels that are multiplied",
        "largest": "the largest kernel alone",
        "start at 0": "a start at zero",
        "start at 2": "one step too many",
        "sum of kernels": "a sum of kernels",
        "strides alone": "a product of strides",
        "exchanged": "kernel and stride exchanged",
        "reversed": "layers in the wrong order",
        "r s + k - s": "layers in the wrong order",
        "all strides": "all strides for every layer",
        "no last layer": "the last layer left out",
        "no first layer": "the first layer left out",
        "one side": "one side alone",
        "area": "an area",
    },
    "fair_comparison": {
        "by test": "a rate that is chosen by the test images",
        "by the best run": "a rate that is chosen by its best run",
        "by the best test run": "a rate that is chosen by its best test run",
        "by the worst run": "a rate that is chosen by its worst run",
        "by the sum": "a rate that is chosen by a sum in place of a mean",
        "by both": "a rate that is chosen by held_out and test together",
        "by the spread": "a rate that is chosen by its spread",
        "the worst mean": "the worst rate",
        "the largest rate": "the largest rate",
        "the smallest rate": "the smallest rate",
        "the first rate": "the first rate of the list",
        "the last rate": "the last rate of the list",
        "one rate for all": "one rate for all models",
        "held_out told": "the images held out in place of the test images",
        "the best told": "the best seed's accuracy",
        "the worst told": "the worst seed's accuracy",
        "the sum told": "the sum over the seeds",
        "the first told": "the accuracy of the rate's first run",
        "the last told": "the accuracy of the rate's last run",
        "both told": "a mean of held_out and test",
        "the best by held_out told": "the accuracy of the run that was best on the images held out",
        "all rates told": "the mean over all rates",
        "a share": "a share in place of percent",
        "an error": "an error in place of an accuracy",
    },
    "nine_heads": {
        "both flipped": "heads that look the other way",
        "heads transposed": "heads that look the other way",
        "upside down": "heads that look up for down",
        "mirrored": "heads that look left for right",
        "kernel transposed": "rows and columns of the kernel exchanged",
        "softmax of the matrix": "a softmax over the ones and zeros",
        "mean of all for nobody": "the mean of all patches where there is no neighbour",
        "itself for nobody": "the patch itself where there is no neighbour",
        "along the list": "neighbours along the list",
        "rolled": "a grid that goes on at the other side",
        "corners left out": "the corners left out",
        "sides left out": "the four sides left out",
        "middle left out": "eight heads, without the middle",
        "middle alone": "the middle head alone",
        "one row": "the heads of one row alone",
        "one column": "the heads of one column alone",
        "range(2)": "four heads of nine",
        "one matrix": "one matrix for all heads",
        "mean of the matrices": "a mean matrix for all heads",
        "grid exchanged": "rows and columns of the grid exchanged",
        "mean of heads": "a mean over the nine heads",
        "largest": "the largest of the nine",
        "stacked": "nine heads that are not joined",
        "side by side": "nine heads side by side",
        "channels first": "channels before the patches",
        "weight cut off": "a weight that doesn't learn",
        "first image": "the first image for all",
    },
}
