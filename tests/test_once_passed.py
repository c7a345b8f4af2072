"""Wrong submissions that once passed a check, one for each kind, and what the reports say of them now."""

import contextlib
import functools
import io
import re
from typing import ClassVar

import numpy as np
import pytest
import torch
from PIL import Image
from solutions_01 import ByConvolution, overlapping_by_loops, patchify_by_loops
from solutions_02 import starting, stretch_by_loops
from solutions_05 import Block, Stack
from solutions_06 import ByLoop
from solutions_07 import fit_by_scheduler
from solutions_08 import distance_by_loops, relevance_by_loops, rollout_by_einsum
from solutions_09 import finder, flax_by_permute, name_by_all_names, teacher_by_loop
from solutions_10 import features_by_inference_mode, knn_by_mode, rates_by_name, task_by_package
from solutions_11 import halves_by_loop
from solutions_12 import fair_by_groups, field_by_loop
from solutions_13 import NUMBERS as MASKING
from solutions_13 import loss_by_index, spoil_by_index
from solutions_14 import NUMBERS as SCALING
from solutions_14 import fit_by_polyfit, grown_by_hand, grown_by_the_package
from solutions_15 import angles_by_meshgrid, gated_by_chunk, turn_by_halves
from torch import nn
from torch.nn import functional as F

import vit_tutorial as vt
from vit_tutorial import checks, convert, data, positions, train


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


def tuned(optimizer=torch.optim.AdamW, drop=0.3, **settings):
    """Tuning of the head with other settings, or with the model's dropout changed."""

    def tune_head(model, images, labels, rate, decay, steps):
        for layer in model.modules():
            if isinstance(layer, nn.Dropout):
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
    kernels = [convert.from_flax("blocks.0.attention.qkv.weight", kernel) for kernel in (query, key, value)]
    biases = [convert.from_flax("blocks.0.attention.qkv.bias", bias) for bias in (query_bias, key_bias, value_bias)]
    return torch.cat(kernels), torch.cat(biases), convert.from_flax("blocks.0.attention.proj.weight", out)


def prepared_by_the_package(pixels, mean, std):
    preprocess = data.Preprocessing(tuple(pixels.shape[:2]), tuple(mean), tuple(std))
    return preprocess(Image.fromarray(pixels.numpy()))


def dropout_layers_told(model, images):
    for part in model.modules():
        if isinstance(part, nn.Dropout):
            part.eval()
    with torch.no_grad():
        return model.features(images)[:, 0]


def field_from_behind(layers):
    layers.reverse()
    return functools.reduce(lambda r, layer: (r - 1) * layer[1] + layer[0], layers, 1)


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
    turn = functools.partial(convert.from_flax, "blocks.0.attention.qkv.weight")
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


class Clipped(torch.optim.AdamW):
    def step(self, closure=None):
        torch.nn.utils.clip_grad_norm_(self.param_groups[0]["params"], 1.0)
        return super().step(closure)


ONCE_PASSED = [
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
    ("accuracy", accuracy_without_a_last_image, "how many images the model is asked about is 6 alone"),
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
    ("our_name", with_all_rules_seen(), "layer3.fc.bias"),
    ("our_name", name_without_zeros, "encoder_layer_20"),
    ("our_name", with_module_cut, "No rule fits 'module.head.weight'"),
    ("teacher", with_names_of_before({}), "pos_embed shouldn't be there"),
    ("teacher", matrices_alone, "There is no module.scale"),
    ("frozen_features", features_of_the_first_call({}), "the features of other images, in a second call,"),
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
]  # fmt: skip


@pytest.mark.parametrize(("name", "work", "words"), ONCE_PASSED)
def test_what_once_passed_is_refused_and_told_why(name, work, words):
    report = io.StringIO()
    with contextlib.redirect_stdout(report):
        assert getattr(checks, f"check_{name}")(work) is False
    assert words in " ".join(report.getvalue().split())


def test_the_same_works_without_their_mistake_are_right():
    assert checks.check_encoder_block(Block)
    assert checks.check_vit(ByLoop)
    assert checks.check_teacher(teacher(lambda name: name.startswith("backbone.")))
    assert checks.check_tune_head(tuned())
