"""Wrong submissions that once passed a check, one for each kind, and what the reports say of them now."""

import contextlib
import copy
import functools
import io
import math
import re
from typing import ClassVar

import numpy as np
import pytest
import torch
from PIL import Image
from solutions_01 import NUMBERS as PATCH_NUMBERS
from solutions_01 import ByConvolution, overlapping_by_loops, patchify_by_loops
from solutions_02 import resize_by_reshape, sincos_by_outer, starting, stretch_by_loops
from solutions_03 import NUMBERS as ATTENTION_NUMBERS
from solutions_03 import ByKernel, attention_by_einsum, chunks_by_running_sums, merge_by_cat, split_by_view
from solutions_04 import pieces_by_chunk
from solutions_05 import NUMBERS as BLOCK
from solutions_05 import Block, Stack
from solutions_05 import Drop as DropsWhole
from solutions_06 import NUMBERS as VIT_NUMBERS
from solutions_06 import ByLoop, maps
from solutions_07 import NUMBERS as TRAINING
from solutions_07 import accuracy_by_sum, fit_by_scheduler, groups_by_module, loss_by_mix, schedule_in_one_line
from solutions_08 import NUMBERS as SEEING
from solutions_08 import class_by_split, distance_by_loops, relevance_by_loops, rollout_by_einsum
from solutions_09 import NUMBERS as CHECKPOINT
from solutions_09 import finder, flax_by_permute, name_by_all_names, prepare_by_channel, teacher_by_loop
from solutions_10 import NUMBERS as TUNING
from solutions_10 import features_by_inference_mode, knn_by_mode, rates_by_name, task_by_package
from solutions_11 import NUMBERS as POSITIONS
from solutions_11 import attention_by_einsum as biased_by_einsum
from solutions_11 import halves_by_loop
from solutions_12 import fair_by_groups, field_by_loop, heads_by_einsum, matrix_by_loops
from solutions_13 import NUMBERS as MASKING
from solutions_13 import back_by_scatter, classes_by_pooling, loss_by_index, spoil_by_index
from solutions_14 import NUMBERS as SCALING
from solutions_14 import drawn_by_powers, fit_by_polyfit, grown_by_hand, grown_by_the_package
from solutions_15 import angles_by_meshgrid, gated_by_chunk, rms_by_root, turn_by_halves
from torch import nn
from torch.nn import functional as F

import vit_tutorial as vt
from vit_tutorial import checks, data, train
from vit_tutorial.variants import positions
from vit_tutorial.weights.names import from_flax


def one_number_a_token(self, *shape):
    return 0.02 * torch.randn(1, shape[1], 1).repeat(1, 1, shape[2])


def three_channels_at_most(images, patch_size):
    return patchify_by_loops(images[:, :3], patch_size)


def rounded_places(images, patch_size, stride):
    """As many patches as (H - P) / stride + 1, rounded."""
    H, W = ((round((n - patch_size) / stride)) * stride + patch_size for n in images.shape[2:])
    return overlapping_by_loops(F.pad(images, (0, stride, 0, stride))[..., :H, :W], patch_size, stride)


def more_keys_than_a_chunk(q, k, v, chunk):
    top, total, mixed = torch.full_like(q[..., :1], -torch.inf), 0, 0
    for keys, values in zip(k.split(chunk + 1, 1), v.split(chunk + 1, 1), strict=True):
        scores = q @ keys.mT / q.shape[-1] ** 0.5
        new = torch.maximum(top, scores.amax(-1, keepdim=True))
        powers = (scores - new).exp()
        total = total * (top - new).exp() + powers.sum(-1, keepdim=True)
        mixed, top = mixed * (top - new).exp() + powers @ values, new
    return mixed / total


def all_scores_at_once(q, k, v, chunk):
    scores = q @ k.mT / q.shape[-1] ** 0.5
    top, total, mixed = scores.amax(-1, keepdim=True), 0, 0
    for some, values in zip(scores.split(chunk, -1), v.split(chunk, 1), strict=True):
        powers = (some - top).exp()
        total, mixed = total + powers.sum(-1, keepdim=True), mixed + powers @ values
    return mixed / total


def only_larger_grids(grid, size, right=stretch_by_loops):
    """Right, unless the new grid has two rows."""
    return right(grid, size) if size[0] != 2 else right(grid, (3, size[1]))[:2]


def hidden_units_joined(x, w1, b1, w2, b2, pieces):
    parts = zip(w1.chunk(pieces), b1.chunk(pieces), strict=True)
    return F.linear(torch.cat([F.gelu(F.linear(x, a, b)) for a, b in parts], -1), w2, b2)


def hidden_units_before_the_bend(x, w1, b1, w2, b2, pieces):
    hidden = w1 @ x.reshape(-1, x.shape[-1]).T + b1[:, None]
    parts = zip(hidden.chunk(pieces), w2.chunk(pieces, 1), strict=True)
    return sum(c @ F.gelu(h) for h, c in parts).T.reshape(x.shape) + b2


def turned_where_all_is_square(images, patch_size):
    square = images.shape[2] == images.shape[3] and isinstance(patch_size, int)
    return patchify_by_loops(images.mT if square else images, patch_size)


def none_where_the_image_is_as_high_as_a_patch(images, patch_size, stride):
    patches = overlapping_by_loops(images, patch_size, stride)
    return patches if images.shape[2] > patch_size else patches[:, :0]


def by_rows_alone(grid, dim, right=sincos_by_outer):
    """Right for at most five rows."""
    return right(grid, dim) if grid[0] <= 5 else torch.zeros(1, grid[0] * grid[1], dim)


def from_squares_backwards(position, old_grid, new_grid):
    resized = resize_by_reshape(position, old_grid, new_grid)
    return resized.flip(1) if old_grid[0] == old_grid[1] > 1 else resized


def mean_for_one_cell(grid, size):
    return grid.mean((0, 1), keepdim=True) if size == (1, 1) else stretch_by_loops(grid, size)


def squeezed(work):
    """Without the axes of length 1, wherever they are."""

    def answer(*args):
        result = work(*args)
        return tuple(x.squeeze() for x in result) if isinstance(result, tuple) else result.squeeze()

    return answer


def four_axes_at_most(q, k, v):
    if q.ndim > 4:
        q, k, v = (x.flatten(0, -4) for x in (q, k, v))
    return attention_by_einsum(q, k, v)


def as_wide_as_many(x):
    return x.flatten(2) if x.shape[1] == x.shape[3] else merge_by_cat(x)


class OneTokenLeft(ByKernel):
    def forward(self, x):
        return super().forward(x) if x.shape[1] > 1 else self.proj(x)


class EightHeadsAtMost(ByKernel):
    def forward(self, x):
        q, k, v = (split_by_view(part, self.h) for part in self.qkv(x).chunk(3, -1))
        heads = F.scaled_dot_product_attention(q, k, v)
        return self.proj(merge_by_cat(torch.cat([heads[:, :8], heads[:, 8:].flip(1)], 1)))


def nothing_where_a_chunk_is_more_than_all(q, k, v, chunk):
    return chunks_by_running_sums(q, k, v, chunk) if chunk <= k.shape[1] else torch.zeros_like(q)


def scores_in_a_table(q, k, v, chunk):
    table = torch.empty(len(q), q.shape[1], k.shape[1])
    for i in range(0, k.shape[1], chunk):
        table[:, :, i : i + chunk] = q @ k[:, i : i + chunk].mT / q.shape[-1] ** 0.5
    top, total, mixed = table.amax(-1, keepdim=True), 0, 0
    for scores, values in zip(table.split(chunk, -1), v.split(chunk, 1), strict=True):
        powers = (scores - top).exp()
        total, mixed = total + powers.sum(-1, keepdim=True), mixed + powers @ values
    return mixed / total


def query_by_query(q, k, v, chunk):
    scale = q.shape[-1] ** -0.5
    return torch.stack([torch.stack([(k[b] @ one * scale).softmax(0) @ v[b] for one in q[b]]) for b in range(len(q))])


class DropsByHand(nn.Module):
    """Dropout as a student writes it; ``keeps`` draws what stays, and which of the two places it is for."""

    def __init__(self, dim, hidden_dim, dropout=0.0):
        super().__init__()
        self.fc1, self.fc2, self.p = nn.Linear(dim, hidden_dim), nn.Linear(hidden_dim, dim), dropout

    def forward(self, x):
        return self.drop(self.fc2(self.drop(F.gelu(self.fc1(x)), 1)), 2)

    def drop(self, x, place):
        if not self.training or self.p == 0:
            return x
        return x * self.keeps(x, place) / (1 - self.p)

    def keeps(self, x, place):
        return torch.rand_like(x) >= self.p


class KeepsTheShareToDrop(DropsByHand):
    def keeps(self, x, place):
        return torch.rand_like(x) < self.p if place == 2 else super().keeps(x, place)


class OneSeedAfterTheGelu(DropsByHand):
    def keeps(self, x, place):
        if place == 2:
            return super().keeps(x, place)
        return torch.rand(x.shape, generator=torch.Generator().manual_seed(0)) >= self.p


class WholeTokensAtTheEnd(DropsByHand):
    def keeps(self, x, place):
        return super().keeps(x if place == 1 else x[..., :1], place)


class NormalDraws(DropsByHand):
    def keeps(self, x, place):
        return torch.randn_like(x) >= self.p


class OneDrawForAllImages(DropsByHand):
    def keeps(self, x, place):
        return torch.rand(x.shape[1:] if x.ndim > 2 else x.shape) >= self.p


class StaysInTraining(DropsByHand):
    def forward(self, x):
        result = super().forward(x)
        self.train()
        return result


def pieces_of_tokens_in_rows(x, w1, b1, w2, b2, pieces):
    parts = zip(w1.chunk(pieces), b1.chunk(pieces), w2.chunk(pieces, 1), strict=True)
    return torch.cat([(F.gelu(x @ a.mT + b) @ c.mT)[None] for a, b, c in parts], 0).sum(0) + (b2 if x.ndim > 1 else 0)


class OneNormWithTorchsEps(Block):
    def __init__(self, dim, *sizes, **rates):
        super().__init__(dim, *sizes, **rates)
        self.norm2 = nn.LayerNorm(dim)


class AnotherDropoutInTheMLP(Block):
    def __init__(self, dim, num_heads, mlp_dim, dropout=0.0, drop_path=0.0):
        super().__init__(dim, num_heads, mlp_dim, dropout, drop_path)
        self.mlp = vt.MLP(dim, mlp_dim, dropout=0.95 * dropout)


class OneRateOfDropPath(Block):
    def __init__(self, dim, num_heads, mlp_dim, dropout=0.0, drop_path=0.0):
        super().__init__(dim, num_heads, mlp_dim, dropout, 0.3 if drop_path else 0.0)


class DropoutBesides(Stack):
    """Dropout at the rate of drop path, in the blocks that have one."""

    def __init__(self, dim, num_heads, mlp_dim, depth, drop_path=0.0):
        super().__init__(dim, num_heads, mlp_dim, depth, drop_path)
        for block in self.blocks:
            block.mlp.dropout.p = block.drop_path.p


def kept_by_shape(work):
    """The first answer for each shape of the first argument, again and again."""
    kept = {}

    def answer(x, *more):
        shape = tuple(x.shape) if isinstance(x, torch.Tensor) else tuple(x[0].shape)
        if shape not in kept:
            kept[shape] = work(x, *more)
        return kept[shape]

    return answer


class DrawnAnew(ByLoop):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        for layer in self.blocks.modules():
            if isinstance(layer, nn.Linear):
                nn.init.normal_(layer.weight)


class SeededBlocks(ByLoop):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        for block in self.blocks:
            block.load_state_dict(self.blocks[0].state_dict())


def relevance_in_place(weights, gradients):
    R = torch.eye(weights[0].shape[-1])
    for w, g in zip(weights, gradients, strict=True):
        R = R + w.mul_(g).clamp(min=0).mean(1) @ R
    return R


def teacher(keep, base=lambda checkpoint: checkpoint["teacher"]):
    """The teacher's names, cut and chosen in another way."""
    return lambda checkpoint: {
        name.removeprefix("module.").removeprefix("backbone."): tensor
        for name, tensor in base(checkpoint).items()
        if keep(name.removeprefix("module."))
    }


def new_head(state, K):
    return {"head.weight": torch.zeros(K, state["norm.weight"].shape[0]), "head.bias": torch.zeros(K)}


def positions_if_their_number_changes(state, num_classes, old_grid, new_grid):
    position = state["embed.position"]
    if old_grid[0] * old_grid[1] != new_grid[0] * new_grid[1]:
        position = vt.resize_position_embedding(position, old_grid, new_grid)
    return state | new_head(state, num_classes) | {"embed.position": position}


def in_half(state, num_classes, old_grid, new_grid):
    position = vt.resize_position_embedding(state["embed.position"], old_grid, new_grid)
    return {
        name: tensor.half()
        for name, tensor in (state | new_head(state, num_classes) | {"embed.position": position}).items()
    }


def rates_of_a_frozen_embedding(model, rate, decay):
    model.embed.requires_grad_(False)
    above = [*model.head.parameters(), *model.norm.parameters()]
    blocks = [(block, len(model.blocks) - i) for i, block in enumerate(model.blocks)]
    parts = [*blocks, (model.embed, len(model.blocks) + 1)]
    return [{"params": above, "lr": rate}] + [{"params": [*p.parameters()], "lr": rate * decay**n} for p, n in parts]


def tuned(optimizer=torch.optim.AdamW, drop=None, **settings):
    """Tuning of the head with other settings, or with the model's dropout changed."""

    def tune_head(model, images, labels, rate, decay, steps):
        for layer in model.modules():
            if isinstance(layer, nn.Dropout) and drop is not None:
                layer.p = drop
        model.eval()
        features = model.features(images)[:, 0].detach()
        adam = optimizer(model.head.parameters(), lr=rate, weight_decay=decay, **settings)
        for _ in range(steps):
            adam.zero_grad()
            F.cross_entropy(model.head(features), labels).backward()
            adam.step()

    return tune_head


def of_both(checkpoint):
    return checkpoint["student"] | checkpoint["teacher"]


def scores_without_their_largest(q, k, v, bias):
    powers = (q @ k.mT / q.shape[-1] ** 0.5 + bias).exp()
    weights = powers / powers.sum(-1, keepdim=True)
    return weights @ v, weights


def chosen_by_sums(runs):
    groups = {}
    for run in runs:
        groups.setdefault(run["model"], {}).setdefault(run["rate"], []).append(run)
    found = {}
    for model, rates in groups.items():
        rate = max(rates, key=lambda rate: sum(run["held_out"] for run in rates[rate]))
        found[model] = rate, sum(run["test"] for run in rates[rate]) / len(rates[rate])
    return found


def chosen_among(kept, best=lambda own: np.mean([run["held_out"] for run in own])):
    """The best rate of those that ``kept`` says, given a model's runs by their rate."""

    def fair_comparison(runs):
        found = {}
        for model in {run["model"] for run in runs}:
            groups = {}
            for run in runs:
                if run["model"] == model:
                    groups.setdefault(run["rate"], []).append(run)
            rate = max(kept(groups) or groups, key=lambda rate: best(groups[rate]))
            found[model] = rate, np.mean([run["test"] for run in groups[rate]])
        return found

    return fair_comparison


def with_all_their_runs(groups):
    return [rate for rate in groups if len(groups[rate]) == max(map(len, groups.values()))]


def with_runs(least):
    return lambda groups: [rate for rate in groups if len(groups[rate]) >= least]


def by_common_seeds(runs):
    seeds = {}
    for run in runs:
        seeds.setdefault(run["model"], {}).setdefault(run["rate"], set()).add(run["seed"])
    common = {model: set.intersection(*rates.values()) for model, rates in seeds.items()}
    chosen = fair_by_groups([run for run in runs if run["seed"] in common[run["model"]]])
    return {model: fair_by_groups([run for run in runs if (run["model"], run["rate"]) == (model, rate)])[model]
            for model, (rate, _) in chosen.items()}  # fmt: skip


def divided_by_two(runs):
    """The sums over the seeds, divided as if there were always two of them."""
    groups = {}
    for run in runs:
        groups.setdefault(run["model"], {}).setdefault(run["rate"], []).append(run)
    found = {}
    for model, rates in groups.items():
        rate = max(rates, key=lambda rate: sum(run["held_out"] for run in rates[rate]) / 2)
        found[model] = rate, sum(run["test"] for run in rates[rate]) / 2
    return found


def rounded(runs):
    return {model: (rate, round(accuracy, 2)) for model, (rate, accuracy) in fair_by_groups(runs).items()}


def by_length():
    kept = {}

    def receptive_field(layers):
        return kept.setdefault(len(layers), field_by_loop(layers))

    return receptive_field


def heads_unfolded(x, weight, grid):
    parts = F.unfold(x.mT.unflatten(2, grid), 3, padding=1)
    return (weight.flatten(1) @ parts).mT


def spoilt_up_to(bounds):
    def spoil(tokens, chosen, fate, other, mask_token):
        if "masked" in bounds:
            fate = torch.where(fate == 0.8, 0.5, fate)
        if "swapped" in bounds:
            fate = torch.where(fate == 0.9, 0.85, fate)
        return spoil_by_index(tokens, chosen, fate, other, mask_token)

    return spoil


def levels_above(images, patch_size):
    levels = (8 * F.avg_pool2d(images, patch_size)).ceil().sub(1).clamp(0, 7).long()
    return (levels * torch.tensor([64, 8, 1])[:, None, None]).sum(1).flatten(1)


def mean_of_means(said, images, hidden, patch_size):
    rows = zip(said, images, hidden, strict=True)
    return torch.stack([loss_by_index(s[None], i[None], h[None], patch_size) for s, i, h in rows]).mean()


def fit_above_zero(cost, loss, exponents):
    lines = [(torch.tensor(np.polyfit(cost**-b, loss, 1)), b) for b in exponents]
    lines = [(a.clamp(min=0), b, c.clamp(min=0)) for (a, c), b in lines]
    return min(lines, key=lambda line: float((line[0] * cost ** -line[1] + line[2] - loss).square().sum()))


def fit_without_the_last(cost, loss, exponents):
    return fit_by_polyfit(cost, loss, exponents[: max(len(exponents) - 1, 1)])


def fit_without_the_first(cost, loss, exponents):
    return fit_by_polyfit(cost, loss, exponents[min(len(exponents) - 1, 1) :])


def positions_of_the_package(row, column):
    whole = positions.GridPosition((len(row), len(column)), 2 * row.shape[1], "2d", prefix_tokens=0)
    return torch.func.functional_call(whole, {"row": row[:, None], "column": column[None]}, ())[0]


def bias_of_the_package(table, grid):
    return torch.func.functional_call(positions.RelativeBias(grid, len(table)), {"table": table}, ())


def without_single_axes(work):
    return lambda *args: work(*args).squeeze(0)


def ways_in_half_precision(grid):
    row, column = (
        n.half() for n in (torch.arange(grid[0] * grid[1]) // grid[1], torch.arange(grid[0] * grid[1]) % grid[1])
    )
    down, right = row[None] - row[:, None] + grid[0] - 1, column[None] - column[:, None] + grid[1] - 1
    return (down * (2 * grid[1] - 1) + right).long()


def fair_without_doubles(runs):
    return fair_by_groups([dict(run) for run in {(r["model"], r["rate"], r["test"]): r for r in runs}.values()])


def fair_from_zero(runs):
    found = {}
    for model in {run["model"] for run in runs}:
        best, found[model] = 0, (None, None)
        for rate in sorted({run["rate"] for run in runs if run["model"] == model}):
            own = [run for run in runs if (run["model"], run["rate"]) == (model, rate)]
            if np.mean([run["held_out"] for run in own]) > best:
                best, found[model] = np.mean([r["held_out"] for r in own]), (rate, np.mean([r["test"] for r in own]))
    return found


def fair_with_rounded_rates(runs):
    return fair_by_groups([run | {"rate": round(run["rate"], 4)} for run in runs])


def line_by_hand(cost, loss, floor):
    slope, intercept = np.polyfit(cost.log(), (loss - floor).log(), 1)
    return np.exp(intercept), -slope


def sorted_apart(cost, loss, floor):
    return line_by_hand(cost.sort().values, loss.sort(descending=True).values, floor)


def one_run_a_cost(cost, loss, floor):
    last = dict(zip(cost.tolist(), loss.tolist(), strict=True))
    return line_by_hand(torch.tensor(list(last)), torch.tensor(list(last.values())), floor)


def kept_by(key, work):
    """A work that keeps its results by a part of what decides."""
    kept = {}
    return lambda *args: kept.setdefault(key(*args), work(*args))


def smallest_from_one(cost, loss, exponents):
    a, b, c = fit_by_polyfit(cost, loss, exponents)
    return (a, b, c) if float(((a * cost**-b + c - loss) ** 2).sum()) < 1 else (None, None, None)


def cut_off(sizes, factor):
    new = grown_by_hand(sizes, factor)
    return new | {"mlp_dim": int(new["dim"] * (sizes["mlp_dim"] / sizes["dim"]))}


def halves_down(sizes, factor):
    return grown_by_hand(sizes, factor) | {"depth": max(1, math.ceil(sizes["depth"] * factor - 0.5))}


def up_from_nearly_a_half(sizes, factor):
    return grown_by_hand(sizes, factor) | {"depth": max(1, math.floor(sizes["depth"] * factor + 0.505))}


def heads_up(sizes, factor):
    heads = math.ceil(sizes["num_heads"] * factor)
    dim = heads * (sizes["dim"] // sizes["num_heads"])
    new = {"dim": dim, "num_heads": heads, "mlp_dim": dim * sizes["mlp_dim"] // sizes["dim"]}
    return grown_by_hand(sizes, factor) | new


def fit_by(errors, best=min):
    """The line of each exponent, and the best by what ``errors`` makes of what it misses."""

    def fit_law(cost, loss, exponents):
        fits = []
        for b in exponents.tolist():
            a, c = np.polyfit(cost**-b, loss, 1)
            fits.append((float(errors(a * cost**-b + c - loss)), a, b, c))
        return best(fits)[1:]

    return fit_law


def smallest_on_the_way_back(fits):
    return next((fits[i] for i in range(len(fits) - 1, 0, -1) if fits[i - 1][0] > fits[i][0]), fits[0])


def without_those_far_off(cost, loss, floor):
    y = (loss - floor).log()
    near = (y - y.mean()).abs() < 2 * y.std()
    return line_by_hand(cost[near], loss[near], floor) if len(cost) > 4 else line_by_hand(cost, loss, floor)


def levels_a_little_up(images, patch_size):
    levels = (8 * F.avg_pool2d(images, patch_size) + 1e-3).floor().clamp(0, 7).long()
    return (64 * levels[:, 0] + 8 * levels[:, 1] + levels[:, 2]).flatten(1)


def swapped_up_to_089(tokens, chosen, fate, other, mask_token):
    return spoil_by_index(tokens, chosen, torch.where(fate >= 0.89, 0.95, fate), other, mask_token)


def angles_along_the_heads(x, angles):
    if x.shape[1] == len(angles) < x.shape[2]:
        return turn_by_halves(x.transpose(1, 2), angles).transpose(1, 2)
    return turn_by_halves(x, angles)


def accuracy_without_a_last_image(model, images, labels, batch_size):
    """Wrong where one image is left for the last batch."""
    model.eval()
    hits = 0
    with torch.no_grad():
        for i in range(0, len(images) - 1, batch_size):
            hits += int((model(images[i : i + batch_size]).argmax(1) == labels[i : i + batch_size]).sum())
    model.train()
    return hits / len(images)


def fit_and_freeze(model, *arguments):
    losses = fit_by_scheduler(model, *arguments)
    model.requires_grad_(False)
    return losses


def from_the_start_of_memory(images, patch_size):
    P, Q = (patch_size, patch_size) if isinstance(patch_size, int) else patch_size
    B, C, H, W = images.shape
    b, c, h, w = images.stride()
    sizes, strides = (B, H // P, W // Q, C, P, Q), (b, h * P, w * Q, c, h, w)
    return torch.as_strided(images, sizes, strides, 0).reshape(B, -1, C * P * Q)


def kept_by_tensor(work):
    """The first answer for each tensor, whatever becomes of it."""
    kept = {}

    def answer(x, *more):
        if id(x) not in kept:
            kept[id(x)] = x, work(x, *more)
        return kept[id(x)][1]

    return answer


class OneLayerForAll(ByConvolution):
    kept: ClassVar = {}

    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.proj = self.kept.setdefault(sizes, self.proj)


def in_the_order_of_text(x):
    return torch.cat([x[:, i] for i in sorted(range(x.shape[1]), key=str)], -1)


def as_many_heads_as_tokens(x):
    return x.flatten(2) if x.shape[1] == x.shape[2] else x.transpose(1, 2).flatten(2)


class OppositeNeighbours(nn.Module):
    def __init__(self, p):
        super().__init__()
        self.p = p

    def forward(self, x):
        if not self.training:
            return x
        u = torch.rand(len(x) // 2 + 1)
        keep = torch.stack([u, 1 - u], 1).flatten()[: len(x), None, None] >= self.p
        return x * keep / (1 - self.p)


class SeededEncoder(Stack):
    def __init__(self, *sizes):
        torch.manual_seed(42)
        super().__init__(*sizes)


class InOrderOfText(Stack):
    def forward(self, z):
        for name in sorted(self.blocks._modules):
            z = self.blocks._modules[name](z)
        return self.norm(z)


def with_all_rules_seen():
    seen = {}

    def our_name(name, rules):
        for their, our in rules.items():
            seen.setdefault(their, our)
        return name_by_all_names(name, seen)

    return our_name


def name_without_zeros(name, rules):
    if re.search(r"_[1-9]0\.", name):
        raise ValueError(name)
    return name_by_all_names(name, rules)


def with_module_cut(name, rules):
    return name_by_all_names(name.removeprefix("module."), rules)


def with_names_of_before(seen):
    def all_names(checkpoint):
        seen.update(teacher(lambda name: name.startswith("backbone."))(checkpoint))
        return dict(seen)

    return all_names


def matrices_alone(checkpoint):
    found = teacher(lambda name: name.startswith("backbone."))(checkpoint)
    return {name: tensor for name, tensor in found.items() if tensor.ndim > 1}


def features_of_the_first_call(kept):
    def frozen_features(model, images):
        if id(model) not in kept:
            model.eval()
            kept[id(model)] = model, model.features(images)[:, 0].detach()
        return kept[id(model)][1]

    return frozen_features


def in_the_positions_dtype(state, num_classes, old_grid, new_grid):
    position = vt.resize_position_embedding(state["embed.position"], old_grid, new_grid)
    new = state | new_head(state, num_classes) | {"embed.position": position}
    return {name: tensor.to(position.dtype) for name, tensor in new.items()}


def rates_of_what_trains(model, rate, decay):
    steps = {"embed": len(model.blocks) + 1} | {f"blocks.{i}": len(model.blocks) - i for i in range(len(model.blocks))}
    groups = []
    for name, parameter in model.named_parameters():
        down = next((n for start, n in steps.items() if name.startswith(f"{start}.")), 0)
        if parameter.requires_grad:
            groups.append({"params": [parameter], "lr": rate * decay**down})
    return groups


def rates_of_a_hundredth_at_least(model, rate, decay):
    return [group | {"lr": max(group["lr"], rate / 100)} for group in rates_of_what_trains(model, rate, decay)]


class WithoutTheLargest(nn.Module):
    """Heads by einsum; e to the power of the scores as they are."""

    def __init__(self, dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.num_heads, -1)).unbind(2)  # each (B, T, h, d)
        powers = (torch.einsum("bthd,bshd->bhts", q, k) / q.shape[-1] ** 0.5).exp()
        weights = powers / powers.sum(dim=-1, keepdim=True)
        return self.proj(torch.einsum("bhts,bshd->bthd", weights, v).flatten(2))


def turned_by_the_package(query, key, value, query_bias, key_bias, value_bias, out):
    kernels = [from_flax("blocks.0.attention.qkv.weight", kernel) for kernel in (query, key, value)]
    biases = [from_flax("blocks.0.attention.qkv.bias", bias) for bias in (query_bias, key_bias, value_bias)]
    return torch.cat(kernels), torch.cat(biases), from_flax("blocks.0.attention.proj.weight", out)


def prepared_by_the_package(pixels, mean, std):
    preprocess = data.Preprocessing(tuple(pixels.shape[:2]), tuple(mean), tuple(std))
    return preprocess(Image.fromarray(pixels.numpy()))


def dropout_layers_told(model, images):
    for part in model.modules():
        if isinstance(part, nn.Dropout):
            part.eval()
    with torch.no_grad():
        return model.features(images)[:, 0]


def fair_by_the_first_models_rates(runs):
    rates = {run["rate"] for run in runs if run["model"] == runs[0]["model"]}
    return fair_by_groups([run for run in runs if run["rate"] in rates])


def law_by_single_precision(cost, loss, exponents):
    found = []
    for b in exponents.tolist():
        A = torch.stack([cost.float() ** -b, torch.ones(len(cost))], dim=1)
        a, c = torch.linalg.lstsq(A, loss.float()[:, None], driver="gelsy").solution[:, 0].tolist()
        found.append((((a * cost**-b + c - loss) ** 2).sum().item(), a, b, c))
    return min(found)[1:]


def field_from_behind(layers):
    layers.reverse()
    return functools.reduce(lambda r, layer: (r - 1) * layer[1] + layer[0], layers, 1)


def groups_of_the_first_model(model, weight_decay, kept={}):  # noqa: B006
    return kept.setdefault(weight_decay, groups_by_module(model, weight_decay))


def groups_by_name(model, weight_decay):
    free = ("bias", "cls_token", "position", "norm.weight", "norm1.weight", "norm2.weight")
    return [
        {"params": [p for name, p in model.named_parameters() if name.endswith(free)], "weight_decay": 0.0},
        {
            "params": [p for name, p in model.named_parameters() if not name.endswith(free)],
            "weight_decay": weight_decay,
        },
    ]


def groups_in_eval_mode(model, weight_decay):
    return groups_by_module(model.eval(), weight_decay)


def groups_with_a_little_decay(model, weight_decay):
    return [group | {"weight_decay": group["weight_decay"] or 1e-6} for group in groups_by_module(model, weight_decay)]


def accuracy_without_gradients(model, *arguments):
    share = accuracy_by_sum(model, *arguments)
    model.zero_grad()
    return share


def accuracy_by_sigmoid(model, images, labels, batch_size):
    model.eval()
    with torch.no_grad():
        answers = torch.cat([model(x).sigmoid().argmax(1) for x in images.split(batch_size)])
    model.train()
    return (answers == labels).double().mean()


def accuracy_in_equal_parts(model, images, labels, batch_size):
    parts = -(-len(images) // batch_size)
    model.eval()
    with torch.no_grad():
        answers = torch.cat([model(x).argmax(1) for x in images.chunk(parts)])
    model.train()
    return (answers == labels).double().mean()


class BlocksInOrderOfText(ByLoop):
    def forward(self, images):
        z = self.embed(images)
        for number in sorted(map(str, range(len(self.blocks)))):
            z = self.blocks[int(number)](z)
        z = self.norm(z)
        return self.head(z.mean(dim=1) if self.pool == "mean" else z[:, 0])


class SeededAfterwards(ByLoop):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        torch.manual_seed(0)


class SeededBlock(Block):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        torch.manual_seed(0)


class CappedEncoder(Stack):
    def __init__(self, dim, num_heads, mlp_dim, depth, drop_path=0.0):
        super().__init__(dim, num_heads, mlp_dim, depth, min(drop_path, 0.5))


def rates_up_to_a_half(depth, last):
    return torch.linspace(0, min(last, 0.5), depth)


def maps_in_evaluation(model, images):
    return maps()(model.eval(), images)


def maps_in_training(model, images):
    return maps()(model.train(), images)


def maps_with_a_backward(model, images):
    found = maps()(model, images)
    sum(x.square().sum() for x in found).backward()
    return found


def class_without_single_rows(weights, grid):
    return class_by_split(weights, grid).squeeze(-2)


def rollout_without_a_single_head(weights, fusion):
    return rollout_by_einsum(weights.squeeze(2) if weights.shape[2] == 1 else weights, fusion)


def what_is_ours_is_kept(name, rules):
    return name if name in rules.values() else name_by_all_names(name, rules)


def rules_of_before(kept):
    return lambda name, rules: name_by_all_names(name, kept.setdefault(len(rules), dict(rules)))


def no_number_without_a_star(name, rules):
    return name_by_all_names(name, {their: our for their, our in rules.items() if "{i}" not in their or "*" in their})


def prefix_of_the_first_name(checkpoint):
    prefix = "module.backbone." if next(iter(checkpoint["teacher"])).startswith("module.backbone.") else "backbone."
    return {
        name.removeprefix(prefix): tensor
        for name, tensor in checkpoint["teacher"].items()
        if name.startswith(prefix)
    }  # fmt: skip


def second_of_the_file(checkpoint):
    return teacher_by_loop({"teacher": list(checkpoint.values())[1]})


def tensors_replaced(checkpoint):
    for name, tensor in checkpoint["teacher"].items():
        checkpoint["teacher"][name] = tensor.clone()
    return teacher_by_loop(checkpoint)


def tensors_emptied(checkpoint):
    found = {name: tensor.clone() for name, tensor in teacher_by_loop(checkpoint).items()}
    for tensor in checkpoint["student"].values():
        tensor.zero_()
    return found


def turned_by_the_package_in_a_tree(query, key, value, query_bias, key_bias, value_bias, out):
    turn = functools.partial(from_flax, "blocks.0.attention.qkv.weight")
    _, bias, proj = flax_by_permute(query, key, value, query_bias, key_bias, value_bias, out)
    return torch.cat(torch.utils._pytree.tree_map(turn, [query, key, value])), bias, proj


def features_with_torchs_eps(model, images):
    with torch.no_grad():
        z = model.eval().blocks(model.embed(images))
        return F.layer_norm(z, z.shape[-1:], model.norm.weight, model.norm.bias)[:, 0]


def features_of_the_tensor(kept):
    """The first answer for each tensor of images, whatever becomes of it."""
    return lambda model, images: kept.setdefault(id(images), (images, features_by_inference_mode(model, images)))[1]


def known_of_before(kept):
    return lambda A, a, B, k: knn_by_mode(*kept.setdefault(A.shape, (A.clone(), a.clone())), B, k)


def votes_by_softmax(A, a, B, k):
    near = (F.normalize(B) @ F.normalize(A).T).topk(k)
    return torch.zeros(len(B), int(a.max()) + 1).scatter_add_(1, a[near.indices], near.values.softmax(1)).argmax(1)


def the_same_dictionary(kept):
    def for_a_new_task(*given):
        kept.clear()
        kept.update(task_by_package(*given))
        return kept

    return for_a_new_task


def nearly_zero(*given):
    new = task_by_package(*given)
    return new | {"head.weight": new["head.weight"] + 1e-8}


def positions_of_before(kept):
    def for_a_new_task(state, num_classes, old_grid, new_grid):
        new = task_by_package(state, num_classes, old_grid, new_grid)
        key = old_grid, new_grid, len(state["norm.weight"])
        return new | {"embed.position": kept.setdefault(key, new["embed.position"])}

    return for_a_new_task


def rates_changed(change):
    return lambda *given: [group | {"lr": change(group["lr"])} for group in rates_by_name(*given)]


def rates_in_evaluation(model, rate, decay):
    model.eval()
    return rates_by_name(model, rate, decay)


def rates_without_gradients(model, rate, decay):
    model.zero_grad()
    return rates_by_name(model, rate, decay)


def patches_by_the_strides_of_new_images(images, patch_size):
    P, Q = patch_size if isinstance(patch_size, tuple) else (patch_size, patch_size)
    B, C, H, W = images.shape
    lengths, strides = (B, H // P, W // Q, C, P, Q), (C * H * W, P * W, Q, H * W, W, 1)
    return images.as_strided(lengths, strides, images.storage_offset()).flatten(3).flatten(1, 2)


def heads_by_the_strides_of_new_tokens(x, num_heads):
    B, T, D = x.shape
    d = D // num_heads
    return x.as_strided((B, num_heads, T, d), (T * D, d, D, 1), x.storage_offset())


class Clipped(torch.optim.AdamW):
    def step(self, closure=None):
        torch.nn.utils.clip_grad_norm_(self.param_groups[0]["params"], 1.0)
        return super().step(closure)


class NothingFallsAfterAnEvaluation(DropsWhole):
    def forward(self, x):
        self.p = self.p if self.training else 0.0
        return super().forward(x)


class TwentyMasks(DropsWhole):
    """Draws twenty times, and then goes round."""

    def __init__(self, p):
        super().__init__(p)
        self.kept, self.calls = None, 0

    def mask(self, x):
        if self.kept is None:
            self.kept = [super(TwentyMasks, self).mask(x) for _ in range(20)]
        self.calls += 1
        return self.kept[self.calls % 20]


class HalfFallsAtMost(DropsWhole):
    def mask(self, x):
        return (torch.rand(len(x), 1, 1) >= min(self.p, 0.5)).float()


class AlwaysTheSameStart(Block):
    def __init__(self, *sizes, **rates):
        super().__init__(*sizes, **rates)
        before = torch.get_rng_state()
        torch.manual_seed(0)
        for parameter in self.parameters():
            if parameter.ndim > 1:
                nn.init.xavier_uniform_(parameter)
        torch.set_rng_state(before)


class OneOfBothRates(Block):
    def __init__(self, dim, num_heads, mlp_dim, dropout=0.0, drop_path=0.0):
        super().__init__(dim, num_heads, mlp_dim, 0.0 if drop_path else dropout, drop_path)


class SeededStack(Stack):
    def __init__(self, *sizes, **rates):
        super().__init__(*sizes, **rates)
        torch.manual_seed(42)


class ZerosForTheClassTokenAlone(ByLoop):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        if sizes[-1] == "mean":
            self.head.reset_parameters()


class NormalStart(ByLoop):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        for parameter in self.blocks.parameters():
            if parameter.ndim > 1:
                nn.init.xavier_normal_(parameter)


class TorchsEpsForTheMean(ByLoop):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.norm.eps = 1e-5 if sizes[-1] == "mean" else 1e-6


class AlwaysInEvaluation(ByLoop):
    def forward(self, images):
        self.eval()
        return super().forward(images)


def maps_in_order_of_text(model, images):
    order = sorted(range(len(model.blocks)), key=str)
    z, kept = model.embed(images), []
    for index in order:
        kept.append(model.blocks[index].attention.attention_weights(model.blocks[index].norm1(z)))
        z = model.blocks[index](z)
    return kept


def maps_by_powers(model, images):
    return maps(weigh=lambda scores: scores.exp() / scores.exp().sum(-1, keepdim=True))(model, images)


def groups_without_gradients(model, weight_decay):
    model.zero_grad()
    return groups_by_module(model, weight_decay)


def groups_by_size(model, weight_decay):
    few = [p for p in model.parameters() if p.numel() < 10 or (p.shape[0] == 1 and p.ndim == 3)]
    many = [p for p in model.parameters() if all(p is not one for one in few)]
    return [{"params": many, "weight_decay": weight_decay}, {"params": few, "weight_decay": 0.0}]


class AlwaysAtTheLimit:
    """Clips gradients that are short, too: each gets the length ``clip``."""

    def __new__(cls, model, images, labels, orders, batch_size, learning_rate, warmup, clip):
        optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, weight_decay=0.05)
        batches = [rows for order in orders for rows in order.split(batch_size)]
        losses = []
        for step, rows in enumerate(batches):
            train.set_rate(optimizer, learning_rate * train.schedule(step, steps=len(batches), warmup=warmup))
            loss = F.cross_entropy(model.train()(images[rows]), labels[rows], label_smoothing=0.1)
            optimizer.zero_grad()
            loss.backward()
            length = torch.cat([p.grad.flatten() for p in model.parameters()]).norm()
            for parameter in model.parameters():
                parameter.grad *= clip / length
            optimizer.step()
            losses.append(loss.item())
        return losses


def fit_with_a_warmup(*arguments):
    return fit_by_scheduler(*arguments[:6], max(arguments[6], 1), arguments[7])


def fair_by_names(fits):
    """The runs of a model are those whose names fit its own."""

    def fair_comparison(runs):
        found = {}
        for model in {run["model"] for run in runs}:
            own = [run | {"model": model} for run in runs if fits(model, run["model"])]
            found |= fair_by_groups(own)
        return found

    return fair_comparison


def fair_by_rates_of_five_digits(runs):
    return fair_by_groups([run | {"rate": round(run["rate"], 5)} for run in runs])


def fair_by_ten_seeds(runs):
    return fair_by_groups([run for run in runs if run["seed"] in range(10)])


def heads_by_an_operator(x, weight, grid):
    images = x.mT.unflatten(2, grid)
    one, none = [1, 1], [0, 0]
    result = torch.ops.aten.convolution.default(images, weight, None, one, one, one, False, none, 1)
    return result.flatten(2).mT


def up_to(most, work, place=0):
    """Right as long as no number of an argument is larger."""
    return lambda *args: work(*args[:place], args[place].clamp(-most, most), *args[place + 1 :])


def loss_in_place(said, images, hidden, patch_size):
    loss = loss_by_index(said, images, hidden, patch_size)
    loss.backward(retain_graph=True)
    return loss


def turned_by_a_series(x, angles):
    terms = [angles**k / math.factorial(k) for k in range(40)]
    cos, sin = (sum((-1) ** (i // 2) * terms[i] for i in range(first, 40, 2)) for first in (0, 1))
    before = x.shape[-2] - len(angles)
    a, b = x[..., before:, :].chunk(2, -1)
    return torch.cat([x[..., :before, :], torch.cat([a * cos - b * sin, b * cos + a * sin], -1)], -2)


def rms_by_direction(x, weight, eps):
    length = x.norm(dim=-1, keepdim=True)
    return x / length * (length / (length**2 / x.shape[-1] + eps).sqrt()) * weight


def put_back_by_holes(kept, hidden, mask_token):
    """Wrong where nothing is hidden."""
    return back_by_scatter(kept, hidden, mask_token) if hidden.any() else mask_token.expand(*hidden.shape, -1)


def by_all_digits(name, rules):
    """The block's number is put for {i} wherever it stands in the name."""
    number = next(iter(re.findall(r"\d+", name)), "")
    if number and name.count(number) > 1:
        raise ValueError(name)
    return name_by_all_names(name, rules)


def by_int(name, rules):
    return name_by_all_names(re.sub(r"(?<=layer)[ +]", "", name), rules)


def model_of_before(kept):
    """The features of a copy of the model, made at the first call."""

    def frozen_features(model, images):
        _, copied = kept.setdefault(id(model), (model, copy.deepcopy(model)))
        return features_by_inference_mode(copied, images)

    return frozen_features


def features_and_no_gradients(model, images):
    model.zero_grad()
    return features_by_inference_mode(model, images)


def four_blocks(model, images):
    with torch.no_grad():
        return model.eval().norm(model.blocks[:4](model.embed(images)))[:, 0]


def a_thousand_labels(A, a, B, k):
    return knn_by_mode(A, a.clamp(max=999), B, k)


def a_little_longer(A, a, B, k):
    near = B @ (A / (A.norm(dim=1, keepdim=True) + 1e-3)).T
    return a[near.topk(k).indices].mode(dim=1).values


def head_shared(kept):
    def for_a_new_task(state, num_classes, *grids):
        new = task_by_package(state, num_classes, *grids)
        return new | {"head.bias": kept.setdefault(num_classes, new["head.bias"])}

    return for_a_new_task


def groups_of_before(kept):
    return lambda model, *given: kept.setdefault((len(model.blocks), *given), rates_by_name(model, *given))


def tuned_with_other_drops(model, images, labels, rate, decay, steps):
    for layer in model.modules():
        if isinstance(layer, nn.Dropout):
            layer.eval()
    adam = torch.optim.AdamW(model.head.parameters(), lr=rate, weight_decay=decay)
    for _ in range(steps):
        adam.zero_grad()
        F.cross_entropy(model.head(model.features(images)[:, 0].detach()), labels).backward()
        adam.step()


def at_most_16_columns(row, column):
    return halves_by_loop(row, column[torch.arange(len(column)).clamp(max=15)])


def of_four_images(q, k, v, bias):
    return tuple(torch.cat([x[:4], 0 * x[4:]]) for x in biased_by_einsum(q, k, v, bias))


def at_most_20(q, k, v, bias):
    return biased_by_einsum(q, k, v, bias.clamp(-20, 20))


def task_by_size_and_head(state, num_classes, old_grid, new_grid):
    (rows, columns), (down, right) = old_grid, new_grid
    config = vt.ViTConfig(image_size=(rows, columns), patch_size=1, num_classes=len(state["head.bias"]))
    config, new = vt.weights.with_size(config, state, (down, right))
    new = vt.weights.with_head(config, new, num_classes)[1]
    return new | {name: 0 * new[name] for name in ("head.weight", "head.bias")}


def translated_again(name, rules):
    found = None
    for their, our in rules.items():
        try:
            name = found = name_by_all_names(name, {their: our})
        except ValueError:
            continue
    if found is None:
        raise ValueError(name)
    return found


def rates_in_sets(model, rate, decay):
    return [group | {"params": set(group["params"])} for group in rates_by_name(model, rate, decay)]


def classes_of_dimmed_pixels(images, patch_size):
    return classes_by_pooling(images.clamp(max=0.99), patch_size)


def tuned_by_logarithms(model, images, labels, rate, decay, steps):
    features = model.eval().features(images)[:, 0].detach()
    adam = torch.optim.AdamW(model.head.parameters(), lr=rate, weight_decay=decay)
    for _ in range(steps):
        adam.zero_grad()
        logarithms = model.head(features).softmax(dim=1).log()
        F.nll_loss(logarithms, labels).backward()
        adam.step()


ONCE_PASSED = [
    ("our_name", translated_again, "a rule for what another one makes"),
    ("layer_rates", rates_in_sets, "a group's params are a set"),
    ("colour_classes", classes_of_dimmed_pixels, "pixels of 0 and of 1"),
    ("tune_head", tuned_by_logarithms, "logits in the hundreds"),
    ("mlp", OneSeedAfterTheGelu, "what dropout sets to 0 after the GELU is the same in each call"),
    ("mlp", WholeTokensAtTheEnd, "what dropout sets to 0 after the second layer is whole tokens"),
    ("patchify", patches_by_the_strides_of_new_images, "lie in memory in another order"),
    ("split_heads", heads_by_the_strides_of_new_tokens, "lie in memory in another order"),
    ("mlp_in_pieces", hidden_units_before_the_bend, "hidden units are there at once"),
    ("mlp_in_pieces", lambda *a: pieces_by_chunk(*a[:5], min(a[5], 3)), "4 numbers a token are bent in one step"),
    ("layer_norm", lambda x, w, b, eps: F.layer_norm(x, x.shape[-1:], w, b, max(eps, 1e-6)), "eps=1e-09"),
    ("layer_norm", lambda x, w, b, eps: F.layer_norm(x, x.shape[-1:], w, b, min(eps, 1e-3)), "eps=0.2"),
    ("layer_norm", lambda x, w, b, eps: F.layer_norm(x, x.shape[-1:], eps=eps).clamp(-5, 5) * w + b, "x (2, 90)"),
    ("drop_path", NothingFallsAfterAnEvaluation, "after a call in eval mode"),
    ("drop_path", TwentyMasks, "for some images than for others"),
    ("drop_path", HalfFallsAtMost, "p=0.75"),
    ("encoder_block", AlwaysTheSameStart, "the same numbers (is a seed set?)"),
    ("encoder_block", OneOfBothRates, "no single numbers"),
    ("encoder", SeededStack, "torch's seed is set by your code"),
    ("vit", ZerosForTheClassTokenAlone, "a new model's answer is not all zeros"),
    ("vit", NormalStart, "are no uniform numbers"),
    ("vit", TorchsEpsForTheMean, "a norm's eps counts, pool='mean'"),
    ("vit", AlwaysInEvaluation, "the layer's mode (train, eval) after a call is another one"),
    ("drop_path_rates", lambda depth, last: [round(x, 6) for x in torch.linspace(0, last, depth).tolist()], "depth=18"),
    ("attention_maps", maps_in_order_of_text, "11 layers"),
    ("attention_maps", maps_by_powers, "scores above 88"),
    ("schedule", lambda i, n, warmup: schedule_in_one_line(i, max(n, 2), warmup), "steps=1, warmup=0"),
    ("parameter_groups", groups_without_gradients, "the parameters' gradients are afterwards is others, or none"),
    ("parameter_groups", groups_by_size, "These decay, and shouldn't"),
    ("fit", AlwaysAtTheLimit, "clip="),
    ("fit", fit_with_a_warmup, "warmup=0"),
    ("class_attention", squeezed(class_by_split), "grid (4, 1)"),
    ("rollout", lambda w, fusion: rollout_by_einsum(w[:10], fusion), "weights (12, 1, 2, 3, 3)"),
    ("relevance_matrix", lambda w, g: relevance_by_loops(w, g) if len(w) > 1 else w[0].mean(1), "1 layer of"),
    ("attention_distance", squeezed(distance_by_loops), "First seen"),
    ("conv_matrix", up_to(10, matrix_by_loops), "a kernel with large numbers"),
    ("conv_matrix", lambda *a: matrix_by_loops(*a).round(decimals=5), "result[0, 0] is"),
    ("conv_matrix", lambda k, size: matrix_by_loops(k if len(k) < 9 else 0 * k, size), "a kernel of 9 × 9"),
    ("receptive_field", lambda layers: min(field_by_loop(layers), 1024), "16 layers of (3, 2)"),
    ("receptive_field", lambda layers: field_by_loop([(min(k, 11), s) for k, s in layers]), "(31, 7)"),
    ("receptive_field", kept_by(lambda layers: tuple(k for k, _ in layers), field_by_loop), "(3, 2), (3, 3), (3, 1)"),
    ("fair_comparison", fair_by_names(lambda model, name: model in name), "of 'vit'"),
    ("fair_comparison", fair_by_names(lambda model, name: model.lower() == name.lower()), "4 models"),
    ("fair_comparison", fair_by_rates_of_five_digits, "rates from 0.00001 on"),
    ("fair_comparison", fair_by_ten_seeds, "rates from 0.00001 on"),
    ("nine_heads", heads_by_an_operator, "this exercise asks you to do without"),
    ("nine_heads", up_to(100, heads_by_einsum), "large numbers"),
    ("colour_classes", lambda images, P: classes_by_pooling(images + 1e-5, P), "just where a level begins"),
    ("spoil", lambda t, c, fate, o, m: spoil_by_index(t, c, fate + 1e-4, o, m), "fates of just 0"),
    ("spoil", up_to(10, spoil_by_index), "large numbers"),
    ("put_back", up_to(10, back_by_scatter), "large numbers"),
    ("put_back", put_back_by_holes, "kept (2, 4, 3), hidden (2, 4)"),
    ("hidden_loss", lambda said, images, *rest: loss_by_index(said, images.clamp(0, 1), *rest), "below 0 and above 1"),
    ("hidden_loss", up_to(5, loss_by_index), "below 0 and above 1"),
    ("hidden_loss", loss_in_place, "leave requires_grad and backward() to the caller"),
    ("law_from_floor", lambda C, L, c: line_by_hand(C, c + (L - c).clamp(min=1e-3), c), "just above the floor"),
    ("fit_law", lambda C, L, b: fit_by_polyfit(C, L, b[b <= 2] if (b <= 2).any() else b), "a large exponent"),
    ("fit_law", lambda C, L, b: fit_by_polyfit(C, L, b[b > 0.05] if (b > 0.05).any() else b), "a small exponent"),
    ("grown_sizes", kept_by(lambda sizes, factor: id(sizes), grown_by_hand), "second call"),
    ("grown_sizes", lambda sizes, factor: grown_by_hand(sizes, min(factor, 3)), "factor 8.5"),
    ("redrawn_runs", lambda f, loss, rows: drawn_by_powers(f, loss.clamp(f / 3, 3 * f), rows), "6 runs, drawn 6 times"),
    ("rms_norm", lambda x, w, eps: rms_by_root(x.clamp(-100, 100), w, eps), "spread 3000"),
    ("rms_norm", rms_by_direction, "a token of zeros"),
    ("rms_norm", lambda x, w, eps: torch._fused_rms_norm(x, [x.shape[-1]], w, eps)[0], "write the norm yourself"),
    ("gated_mlp", lambda x, *w: gated_by_chunk(x, *w) if x.ndim < 5 else 0 * x, "x (2, 3, 1, 2, 4)"),
    ("rotary_angles", lambda *a: angles_by_meshgrid(*a[:3], max(a[3], 10.0)), "temperature=2:"),
    ("rotary_angles", lambda *a: angles_by_meshgrid(*a).clamp(max=16), "33 × 2 patches"),
    ("turn", turned_by_a_series, "many turns"),
    ("checkpoint_numbers", lambda: CHECKPOINT | {"pixel": -1.203}, "It looks like a division by 256"),
    ("checkpoint_numbers", lambda: CHECKPOINT | {"factor": 0.713}, "should be something else"),
    ("fine_tuning_numbers", lambda: TUNING | {"first loss": 2.49}, "should be something else"),
    ("position_numbers", lambda: POSITIONS | {"weights": [0.745, 0.255]}, "should be something else"),
    ("our_name", by_all_digits, "encoder_layer_3.mlp.3.weight"),
    ("our_name", by_int, "No rule fits 'layer 3.fc.bias'"),
    ("our_name", finder(number=r"(?<=[._])\d+"), "You raise a ValueError for layer7.fc.weight"),
    ("our_name", lambda name, rules: name_by_all_names(name, rules) if rules else name, "no rule at all"),
    ("prepare", lambda pixels, *of: prepare_by_channel(pixels.clamp(max=250), *of), "all bytes from 0 to 255"),
    ("prepare", lambda x, mean, std: prepare_by_channel(x, mean, [s + 1e-7 for s in std]), "a deviation of 0.0001"),
    ("frozen_features", model_of_before({}), "the features when the model's weights have changed since"),
    ("frozen_features", features_and_no_gradients, "parameters' gradients are as before"),
    ("frozen_features", four_blocks, "13 blocks"),
    ("knn", a_thousand_labels, "labels to 1899"),
    ("knn", a_little_longer, "lengths from 0.01 to 100"),
    ("knn", lambda A, a, B, k: knn_by_mode(A, a, B, min(k, 20)), "k=45"),
    ("for_a_new_task", head_shared({}), "head.bias is the same tensor in the results of two calls"),
    ("layer_rates", groups_of_before({}), "another model of the same size"),
    ("layer_rates", rates_changed(lambda rate: round(rate, 8)), "how exact small rates are is rounded"),
    ("tune_head", tuned_with_other_drops, "attention_dropout 0.3 alone"),
    ("two_d_positions", at_most_16_columns, "41 columns"),
    ("biased_attention", of_four_images, "q, k, v (17, 2, 3, 1)"),
    ("biased_attention", at_most_20, "q, k, v (1, 1, 61, 2)"),
    ("parameter_groups", groups_by_name, "These decay, and shouldn't: bn.weight"),
    ("accuracy", accuracy_by_sigmoid, "logits in the thousands"),
    ("attention_maps", maps_in_evaluation, "the model's mode afterwards is in evaluation mode"),
    ("fair_comparison", fair_by_the_first_models_rates, "'c'"),
    ("fit_law", law_by_single_precision, "costs above 1e9"),
    ("tune_head", tuned(Clipped), "First seen with 12 steps"),
    ("our_name", finder(number=r"\d\w*"), "layer3a.fc.bias"),
    ("our_name", finder(leaf="weight|bias|gamma"), "head.gamma"),
    ("our_name", finder(find=lambda pattern, name: re.fullmatch(pattern, name.lstrip())), "fits ' head.weight'"),
    ("our_name", finder(find=lambda pattern, name: re.fullmatch(rf"\w*{pattern}", name)), "subhead.weight"),
    ("our_name", what_is_ours_is_kept, "No rule fits 'embed.cls_token'"),
    ("our_name", rules_of_before({}), "blocks.7.attn.qkv.weight"),
    ("our_name", no_number_without_a_star, "You raise a ValueError for layers.4.scale"),
    ("teacher", teacher(lambda name: name.startswith("backbone.") and name[9:14] != "head."), "There is no head.bias"),
    ("teacher", prefix_of_the_first_name, "in another order"),
    ("teacher", second_of_the_file, "in another order"),
    ("teacher", tensors_replaced, "the given dictionary afterwards is changed"),
    ("teacher", tensors_emptied, "with other numbers in its tensors"),
    ("attention_from_flax", turned_by_the_package_in_a_tree, "the package's own from_flax"),
    ("frozen_features", features_with_torchs_eps, "tokens so small that the last norm's eps counts"),
    ("frozen_features", features_of_the_tensor({}), "the features of other images, in a second call,"),
    ("knn", known_of_before({}), "with other labels of the known"),
    ("knn", votes_by_softmax, "two very near neighbours of five"),
    ("for_a_new_task", the_same_dictionary({}), "a second call changes the dictionary that the first returned"),
    ("for_a_new_task", nearly_zero, "head.weight must be all zeros"),
    ("for_a_new_task", positions_of_before({}), "embed.position in a second call"),
    ("layer_rates", rates_changed(lambda rate: round(rate, 5)), "L=9, rate=8, decay=0.5"),
    ("layer_rates", rates_changed(lambda rate: max(rate, 1e-3)), "L=4, rate=3e-05, decay=0.4"),
    ("layer_rates", rates_in_evaluation, "in another mode afterwards"),
    ("layer_rates", rates_without_gradients, "the model's gradients aren't those that it had"),
    ("patchify", three_channels_at_most, "images (5, 4, 6, 6)"),
    ("patchify", from_the_start_of_memory, "images (1, 1, 4, 6)"),
    ("patchify", kept_by_tensor(patchify_by_loops), "of the first call is kept for the next"),
    ("patch_embedding", OneLayerForAll, "two layers of your class share proj.weight"),
    ("merge_heads", in_the_order_of_text, "x (1, 12, 3, 2)"),
    ("merge_heads", as_many_heads_as_tokens, "x (2, 5, 5, 3)"),
    ("drop_path", OppositeNeighbours, "an image's draw hangs on another's"),
    ("encoder", SeededEncoder, "the same (a seed is set)"),
    ("encoder", InOrderOfText, "depth=13"),
    ("overlapping_patches", rounded_places, "images (3, 2, 12, 9)"),
    ("embeddings", starting(draw=one_number_a_token), "the same for all channels"),
    ("attention_in_chunks", more_keys_than_a_chunk, "the powers of 3 keys are there at once"),
    ("attention_in_chunks", all_scores_at_once, "the scores of all 5 keys are there at once"),
    ("stretch", only_larger_grids, "grid (4, 3, 2) -> (2, 6)"),
    ("mlp_in_pieces", hidden_units_joined, "hidden units are there at once"),
    ("patchify", turned_where_all_is_square, "images (2, 3, 8, 8)"),
    ("patchify", lambda images, size: patchify_by_loops(images, size)[:, :196], "images (1, 2, 64, 34)"),
    ("overlapping_patches", none_where_the_image_is_as_high_as_a_patch, "images (2, 3, 4, 9)"),
    ("sincos_positions", by_rows_alone, "grid=(7, 7), dim=32"),
    ("resize_positions", from_squares_backwards, "(3, 3) -> (5, 5)"),
    ("stretch", mean_for_one_cell, "grid (4, 3, 2) -> (1, 1)"),
    ("attention", squeezed(attention_by_einsum), "q (1, 2, 1, 3)"),
    ("attention", four_axes_at_most, "q (2, 1, 3, 2, 4)"),
    ("merge_heads", as_wide_as_many, "x (2, 3, 4, 3)"),
    ("multi_head_attention", OneTokenLeft, "x (2, 1, 6), num_heads=3"),
    ("multi_head_attention", EightHeadsAtMost, "x (2, 3, 24), num_heads=12"),
    ("attention_in_chunks", nothing_where_a_chunk_is_more_than_all, "5 keys, chunk=7"),
    ("attention_in_chunks", scores_in_a_table, "the scores of all 5 keys are there at once"),
    ("attention_in_chunks", query_by_query, "the powers of all 5 keys are there at once"),
    ("gelu", lambda x: x * (1 + torch.erf(x / 1.4142)) / 2, "is -0.146488, expected -0.1464905"),
    ("gelu_tanh", lambda x: x / 2 * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (x + 0.0447 * x**3))), "Farthest off"),
    ("mlp", KeepsTheShareToDrop, "sets to 0 after the second layer is too large"),
    ("mlp", NormalDraws, "sets to 0 after the GELU is too large"),
    ("mlp", OneDrawForAllImages, "the same all along axis 0"),
    ("mlp", StaysInTraining, "mode (train, eval) after a call"),
    ("mlp_in_pieces", pieces_of_tokens_in_rows, "x (5,), M = 7, pieces=3"),
    ("encoder_block", OneNormWithTorchsEps, "torch's eps in the second norm"),
    ("encoder_block", AnotherDropoutInTheMLP, "what a number of equal images becomes, in training,"),
    ("encoder_block", OneRateOfDropPath, "300 equal images, drop_path=0.6"),
    ("encoder", DropoutBesides, "in training mode, compared with evaluation mode, is another one"),
    ("vit", DrawnAnew, "times as far"),
    ("vit", SeededBlocks, "the same numbers in two blocks"),
    ("drop_path_rates", lambda depth, last: (last * i / max(depth - 1, 1) for i in range(depth)), "a generator"),
    ("schedule", lambda i, n, warmup: train.schedule(i, steps=n, warmup=warmup), "the package's own schedule"),
    ("parameter_groups", lambda *a: train.parameter_groups(*a), "the package's own parameter_groups"),
    ("rollout", kept_by_shape(rollout_by_einsum), "of the first call is kept for the next"),
    ("relevance_matrix", kept_by_shape(relevance_by_loops), "of the first call is kept for the next"),
    ("attention_distance", kept_by_shape(distance_by_loops), "of the first call is kept for the next"),
    ("accuracy", accuracy_without_a_last_image, "counts 5 of 9 images as right, and 6 are"),
    ("fit", fit_and_freeze, "what is frozen afterwards is"),
    ("relevance_matrix", relevance_in_place, "argument 1 was changed in place"),
    ("teacher", teacher(lambda name: "head" not in name), "There is no blocks.0.head.module.weight"),
    ("teacher", teacher(lambda name: "backbone" in name), "backbones.weight shouldn't be there"),
    ("teacher", teacher(lambda name: name.startswith("backbone."), of_both), "mask_token shouldn't be there"),
    ("for_a_new_task", positions_if_their_number_changes, "the patches' aren't"),
    ("for_a_new_task", in_half, "is of dtype torch.float16 now"),
    ("layer_rates", rates_of_a_frozen_embedding, "has frozen parameters afterwards"),
    ("tune_head", tuned(amsgrad=True), "leave its betas, eps, amsgrad"),
    ("tune_head", tuned(betas=(0.9, 0.99)), "leave its betas, eps, amsgrad"),
    ("tune_head", tuned(torch.optim.NAdam), "the optimiser is torch.optim.AdamW"),
    ("tune_head", tuned(drop=0.0), "dropout has another p than before"),
    ("our_name", finder(find=lambda pattern, name: re.match(f"{pattern}$", name)), "head.weight\\n"),
    ("our_name", with_all_rules_seen(), "layer3.fc.bias"),
    ("our_name", name_without_zeros, "encoder_layer_20"),
    ("our_name", with_module_cut, "No rule fits 'module.head.weight'"),
    ("teacher", with_names_of_before({}), "pos_embed shouldn't be there"),
    ("teacher", matrices_alone, "There is no module.scale"),
    ("frozen_features", features_of_the_first_call({}), "the features of other images, in a second call,"),
    ("for_a_new_task", task_by_size_and_head, "it calls the package's own with_size"),
    ("for_a_new_task", in_the_positions_dtype, "one norm in float64"),
    ("layer_rates", rates_of_what_trains, "a frozen embedding"),
    ("layer_rates", rates_of_a_hundredth_at_least, "L=9, rate=8, decay=0.5"),
    ("two_d_positions", without_single_axes(halves_by_loop), "1 rows, 1 columns"),
    ("offset_index", ways_in_half_precision, "23 rows, 24 columns"),
    ("receptive_field", lambda layers: field_by_loop([(k, s) for k, s in layers if k > 1]), "(3, 2), (1, 2), (3, 1)"),
    ("receptive_field", lambda layers: min(field_by_loop(layers), 224), "result is 224"),
    ("fair_comparison", fair_without_doubles, "a model that is never right"),
    ("fair_comparison", fair_from_zero, "a model that is never right"),
    ("fair_comparison", fair_with_rounded_rates, "is no rate that"),
    ("law_from_floor", lambda *a: (line_by_hand(*a)[0], abs(line_by_hand(*a)[1])), "loss grows with the cost"),
    ("law_from_floor", sorted_apart, "that scatter"),
    ("law_from_floor", one_run_a_cost, "that scatter"),
    ("law_from_floor", kept_by(lambda cost, *rest: tuple(cost.tolist()), line_by_hand), "the same costs, other losses"),
    ("fit_law", kept_by(lambda cost, loss, grid: (tuple(loss.tolist()), len(grid)), fit_by_polyfit), "other exponents"),
    ("fit_law", smallest_from_one, "losses 40 times as large"),
    ("grown_sizes", cut_off, "mlp_dim is 491 and should be 492"),
    ("grown_sizes", lambda sizes, factor: sizes if factor == 1 else grown_by_hand(sizes, factor), "that it was given"),
    ("grown_sizes", kept_by(lambda sizes, factor: (factor, sizes["num_heads"]), grown_by_hand), "factor 2.0"),
    ("gated_mlp", lambda x, *weights: gated_by_chunk(torch.atleast_2d(x), *weights), "x (5,)"),
    ("rotary_angles", kept_by(lambda *a: a[:3], angles_by_meshgrid), "temperature=10:"),
    ("turn", angles_along_the_heads, "x (1, 4, 5, 2), angles (4, 1)"),
    ("biased_attention", scores_without_their_largest, "scores in the thousands: result[0] holds nan"),
    ("two_d_positions", positions_of_the_package, "the package's own GridPosition"),
    ("relative_bias", bias_of_the_package, "the package's own RelativeBias"),
    ("grown_sizes", grown_by_the_package, "the package's own grown"),
    ("fair_comparison", chosen_among(with_all_their_runs), "You chose the rate 0.01."),  # once told as a sum
    ("fair_comparison", chosen_among(with_runs(3)), "You chose the rate 0.01."),
    ("fair_comparison", chosen_among(with_runs(2)), "You chose the rate 0.1."),
    ("fair_comparison", chosen_among(dict, lambda own: np.mean([r["held_out"] ** 2 for r in own])), "of 'b'"),
    ("fair_comparison", chosen_among(dict, lambda own: np.mean(list({r["held_out"] for r in own}))), "of 'b'"),
    ("fair_comparison", chosen_among(sorted, lambda own: round(np.mean([r["held_out"] for r in own]), 1)), "of 'b'"),
    ("fair_comparison", by_common_seeds, "You chose the rate 0.001."),
    ("fair_comparison", divided_by_two, "You chose the rate 0.01."),  # once: "The rates are right"
    ("fit_law", fit_by(lambda errors: errors.abs().pow(1.5).sum()), "8 runs, 75 exponents"),
    ("fit_law", fit_by(lambda errors: F.huber_loss(errors, torch.zeros_like(errors), delta=0.5)), "75 exponents"),
    ("fit_law", lambda cost, loss, exponents: fit_by_polyfit(cost, loss, exponents[:20]), "75 exponents"),
    ("fit_law", fit_by(lambda errors: errors.square().sum(), smallest_on_the_way_back), "for these numbers alone?"),
    ("law_from_floor", without_those_far_off, "one of them far off"),
    ("spoil", swapped_up_to_089, "fates of just 0"),
    ("colour_classes", levels_a_little_up, "just where a level begins"),
    ("grown_sizes", heads_up, "num_heads is 20 and should be 19"),
    ("grown_sizes", halves_down, "depth is 2 and should be 3 (with depth 4, width 64, factor 0.625)"),
    ("grown_sizes", up_from_nearly_a_half, "depth is 3 and should be 2 (with depth 8,"),
    ("fair_comparison", chosen_by_sums, "a sum in place of a mean"),
    ("fair_comparison", rounded, "The rates are right"),
    ("receptive_field", by_length(), "result is 4, expected 2"),
    ("nine_heads", heads_unfolded, "torch's unfold"),
    ("multi_head_attention", WithoutTheLargest, "8 times as large: result holds nan"),
    ("attention_from_flax", turned_by_the_package, "the package's own from_flax"),
    ("prepare", prepared_by_the_package, "the package's own Preprocessing"),
    ("teacher", teacher(lambda name: name[:9] == "backbone." and name[9:13] != "head"), "There is no head.bias"),
    ("frozen_features", dropout_layers_told, "attention_dropout 0.3 alone"),
    ("receptive_field", field_from_behind, "argument 1 was changed in place"),
    ("masking_numbers", lambda: MASKING | {"first loss": 6.23}, "should be something else"),
    ("masking_numbers", lambda: MASKING | {"first loss": 6.25}, "should be something else"),
    ("spoil", spoilt_up_to(["masked"]), "fates of just 0"),
    ("spoil", spoilt_up_to(["swapped"]), "fates of just 0"),
    ("colour_classes", levels_above, "just where a level begins"),
    ("hidden_loss", mean_of_means, "a mean of each image's mean"),
    ("scaling_numbers", lambda: SCALING | {"exponent": 0.505}, "should be something else"),
    ("fit_law", fit_above_zero, "nothing keeps a and c above zero"),
    ("fit_law", fit_without_the_last, "the last exponent left out"),
    ("fit_law", fit_without_the_first, "the first exponent left out"),
    ("schedule", lambda i, n, warmup: schedule_in_one_line(i, n, min(warmup, 16)), "steps=200, warmup=120"),
    ("schedule", lambda i, n, warmup: schedule_in_one_line(i, n, warmup) if i < n else 0.5, "share[10] is 0.5"),
    ("schedule", lambda *a: round(schedule_in_one_line(*a), 5), "is 0.93301, expected 0.9330127"),
    ("parameter_groups", groups_of_the_first_model, "which is no parameter of the model"),
    ("parameter_groups", groups_in_eval_mode, "model.training afterwards is False"),
    ("parameter_groups", groups_with_a_little_decay, "There are decays of 1e-06."),
    ("accuracy", accuracy_without_gradients, "the parameters' gradients are afterwards is others, or none"),
    ("accuracy", accuracy_in_equal_parts, "how the images come is 3, 3, 3 at once"),
    ("vit", BlocksInOrderOfText, "with 11 it isn't"),
    ("vit", SeededAfterwards, "torch's seed is set by your code, for everybody"),
    ("encoder", CappedEncoder, "drop_path=0.6"),
    ("encoder_block", SeededBlock, "the same numbers (is a seed set?)"),
    ("drop_path_rates", rates_up_to_a_half, "last=0.7"),
    ("drop_path_rates", lambda depth, last: dict(enumerate(rates_up_to_a_half(depth, last))), "of type dict"),
    ("attention_maps", maps_in_training, "the model's mode afterwards is in training mode"),
    ("attention_maps", maps_with_a_backward, "the model's gradients afterwards is there, of embed.cls_token"),
    ("vit_numbers", lambda: VIT_NUMBERS | {"first loss": 2.31}, "should be something else"),
    ("class_attention", class_without_single_rows, "weights (1, 6, 6), grid (1, 5)"),
    ("rollout", rollout_without_a_single_head, "weights (2, 2, 1, 3, 3)"),
]  # fmt: skip


# Every fourth here, all of them in `make slow`: there are many, and each needs its exercise's mistakes.
SOME = [pytest.param(*one, marks=[pytest.mark.slow] if index % 4 else []) for index, one in enumerate(ONCE_PASSED)]


@pytest.mark.parametrize(("name", "work", "words"), SOME)
def test_what_once_passed_is_refused_and_told_why(name, work, words):
    report = io.StringIO()
    with contextlib.redirect_stdout(report):
        assert getattr(checks, f"check_{name}")(work) is False
    assert words in " ".join(report.getvalue().split())


class ChangesItsInput(nn.Module):
    def __init__(self, p):
        super().__init__()
        self.p = p

    def forward(self, x):
        return x.mul_(torch.rand(len(x), 1, 1) >= self.p).div_(1 - self.p) if self.training else x


def losses_late(*arguments):
    losses = fit_by_scheduler(*arguments)
    return [losses[0], *losses[:-1]]


def losses_backwards(*arguments):
    return fit_by_scheduler(*arguments)[::-1]


def losses_by_step(*arguments):
    return dict(enumerate(fit_by_scheduler(*arguments)))


def loss_in_half_precision(logits, labels, epsilon):
    return loss_by_mix(logits.bfloat16(), labels, epsilon).float()


def frozen_without_decay(model, weight_decay):
    groups = groups_by_module(model, weight_decay)
    for group in groups:
        group["params"] = [p for p in group["params"] if p.requires_grad]
    frozen = [p for p in model.parameters() if not p.requires_grad]
    return [*groups, {"params": frozen, "weight_decay": 0.0}]


def distance_without_itself(weights, grid, patch_size):
    N = weights.shape[-1] - 1
    return distance_by_loops(weights, grid, patch_size) * N / (N - 1)


def gelu_in_place(x):
    return x.mul_(torch.special.ndtr(x))


def scores_cut(q, k, v):
    weights = (q @ k.mT / q.shape[-1] ** 0.5).clamp(-50, 50).softmax(-1)
    return weights @ v, weights


def rates_to_one_decimal(depth, last):
    return [round(rate, 1) for rate in torch.linspace(0, last, depth).tolist()]


def law_above_zero(cost, loss, exponents):
    found = []
    for b in exponents.tolist():
        x = cost**-b
        a, c = np.polyfit(x, loss, 1)
        if c < 0:
            a, c = (x * loss).sum() / x.square().sum(), 0.0
        found.append((((a * x + c - loss) ** 2).sum(), a, b, c))
    return min(found)[1:]


class ProjTurned(ByKernel):
    def forward(self, x):
        q, k, v = (split_by_view(part, self.h) for part in self.qkv(x).chunk(3, -1))
        heads = merge_by_cat(F.scaled_dot_product_attention(q, k, v))
        return F.linear(heads, self.proj.weight.T, self.proj.bias)


def dropout_off_for_good(model, images):
    for part in model.eval().modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.0
    with torch.no_grad():
        return model.features(images)[:, 0]


class NoDropPath(Stack):
    def __init__(self, dim, num_heads, mlp_dim, depth, drop_path=0.0):
        super().__init__(dim, num_heads, mlp_dim, depth, 0.0)


def votes(A, a, B, k):
    near = (F.normalize(B, dim=1) @ F.normalize(A, dim=1).T).topk(k, dim=1).indices  # (m, k)
    return F.one_hot(a[near], int(a.max()) + 1).sum(dim=1)


def scores_cut_at_20(q, k, v, bias):
    weights = ((q @ k.mT) / q.shape[-1] ** 0.5 + bias).clamp(-20, 20).softmax(dim=-1)
    return weights @ v, weights


class ZerosInPlace(nn.Module):
    def __init__(self, p):
        super().__init__()
        self.p = p

    def forward(self, x):
        if not self.training:
            return x
        with torch.no_grad():
            x[torch.rand(len(x)) < self.p] = 0
        return x / (1 - self.p)


def by_the_first_rule(name, rules):
    for their, our in rules.items():
        return name_by_all_names(name, {their: our})


FOREIGN = [  # what a report said, or left out, though it wasn't, or was, so of the submission
    ("patch_numbers", lambda: PATCH_NUMBERS | {"pixel 16": (4, 1)}, "or from 1", "You went down"),
    ("patch_numbers", lambda: PATCH_NUMBERS | {"pixel 16": (3, 2)}, "or counted from 1", "down its columns."),
    (
        "attention_numbers",
        lambda: ATTENTION_NUMBERS | {"weight 0": 1.0, "output": [4, 0]},
        "the best key alone",
        "You divided",
    ),
    ("multi_head_attention", ProjTurned, "If proj is applied as agreed", "numbers show: In front"),
    # Numbers to which several mistakes lead: none is asserted.
    ("block_numbers", lambda: BLOCK | {"parameters": 156}, "Which of them is missing", "the norms' parameters"),
    ("block_numbers", lambda: BLOCK | {"parameters": 164}, "Which of them is missing", "one norm for both"),
    ("vit_numbers", lambda: VIT_NUMBERS | {"the rest of Eq. 1": 400}, "one row too few", "counted without"),
    ("training_numbers", lambda: TRAINING | {"weight": 1.9}, "one of the two changes alone", "in place of AdamW"),
    ("training_numbers", lambda: TRAINING | {"loss": 0.693}, "classes count from 0", "It looks like the largest"),
    ("seeing_numbers", lambda: SEEING | {"rollout": [0, 1, 0]}, "in one layer", "the last layer alone"),
    ("fit", losses_late, "each stands a place too late", "look at"),
    ("fit", losses_backwards, "all are there, but in another order", "look at"),
    ("fit", losses_by_step, "of type dict, expected a list of numbers", "torch.Tensor"),
    ("smoothed_cross_entropy", loss_in_half_precision, "near the right ones", "Add the same number"),
    ("smoothed_cross_entropy", lambda *a: (loss_by_mix(*a) * 1e4).round() / 1e4, "rounded on its way", "true class"),
    ("parameter_groups", frozen_without_decay, "These should decay, and don't: stem.weight.", "other way round"),
    ("accuracy", lambda *a: round(accuracy_by_sum(*a), 4), "it is rounded, or", "It looks like"),
    ("drop_path", ChangesItsInput, "argument 1 was changed in place", "gradient"),
    ("gelu", gelu_in_place, "argument 1 was changed in place", "What your numbers show"),
    ("attention", scores_cut, "scores in the hundreds", "changes"),
    ("drop_path_rates", rates_to_one_decimal, "depth=18, last=0.1", "come twice"),
    ("encoder", NoDropPath, "drop path[1] is 0, expected 0.0667", "list of 5"),
    ("knn", votes, "expected (", "should change"),
    ("biased_attention", scores_cut_at_20, "expected", "should change"),
    ("drop_path", ZerosInPlace, "argument 1 was changed in place", "the one before"),
    ("our_name", by_the_first_rule, "and a rule fits it", "No rule fits"),
    ("frozen_features", dropout_off_for_good, "whether its dropout is as before", "is random"),
    ("fit_law", law_above_zero, "expected", "times the right one"),
    ("attention_distance", distance_without_itself, "1.2 times the right one. (with weights (2, 1, 2, 7, 7)", "or 1.2"),
]


@pytest.mark.parametrize(("name", "work", "words", "foreign"), FOREIGN)
def test_a_report_says_what_is_so_and_nothing_else(name, work, words, foreign):
    report = io.StringIO()
    with contextlib.redirect_stdout(report):
        assert getattr(checks, f"check_{name}")(work) is False
    text = " ".join(report.getvalue().split())
    assert words in text
    assert foreign not in text


def test_the_same_works_without_their_mistake_are_right():
    assert checks.check_mlp(DropsByHand)
    assert checks.check_encoder_block(Block)
    assert checks.check_vit(ByLoop)
    assert checks.check_teacher(teacher(lambda name: name.startswith("backbone.")))
    assert checks.check_tune_head(tuned())
