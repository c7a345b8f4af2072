"""Works for the exercises of lesson 09: right ones, in different ways, and wrong ones."""

import math
import re

import numpy as np
import torch
from einops import rearrange
from PIL import Image
from submissions import Wrong
from torch import nn
from torchvision.transforms.functional import normalize

from vit_tutorial import data

NUMBERS = {
    "entries": 68,
    "left as they began": 8,
    "row 3 of q": [110, 111, 112, 113, 114, 115],
    "axes": (3, 2, 0, 1),
    "pixel": -1.2,
    "factor": 0.71,
}


def raw_by_einsum(weight, bias, mean, std):
    weight = torch.einsum("dcij,c->dcij", weight, 1 / torch.tensor(std))
    return weight, bias - torch.einsum("dcij,c->d", weight, torch.tensor(mean))


def raw_by_running(weight, bias, mean, std):
    """What the old layer gives for a black patch, and for each pixel alone."""
    black = (-torch.tensor(mean) / torch.tensor(std))[:, None, None].expand(weight.shape[1:])
    return weight / torch.tensor(std)[None, :, None, None], nn.functional.conv2d(black[None], weight, bias).flatten()


def raw_by_loop(weight, bias, mean, std):
    weight, bias = weight.clone(), bias.clone()
    for c, (m, s) in enumerate(zip(mean, std, strict=True)):
        weight[:, c] /= s
        bias -= m * weight[:, c].flatten(1).sum(dim=1)
    return weight, bias


def raw_by_numpy(weight, bias, mean, std):
    kernel = weight.numpy() / np.array(std).reshape(-1, 1, 1)
    return kernel, bias.numpy() - kernel.sum(axis=(2, 3)) @ np.array(mean)


def flax_by_einops(query, key, value, query_bias, key_bias, value_bias, out):
    weight = rearrange([query, key, value], "three i h d -> (three h d) i")
    bias = rearrange([query_bias, key_bias, value_bias], "three h d -> (three h d)")
    return weight, bias, rearrange(out, "h d o -> o (h d)")


def flax_by_permute(query, key, value, query_bias, key_bias, value_bias, out):
    D = out.shape[-1]
    parts = [kernel.permute(1, 2, 0).reshape(D, D) for kernel in (query, key, value)]
    bias = torch.stack([query_bias, key_bias, value_bias]).reshape(-1)
    return torch.vstack(parts), bias, out.permute(2, 0, 1).reshape(D, D)


def flax_by_the_identity(query, key, value, query_bias, key_bias, value_bias, out):
    """What Flax's layers give for the unit vectors."""
    eye = torch.eye(out.shape[-1])
    weight = torch.cat([torch.einsum("ti,ihd->thd", eye, kernel).flatten(1).mT for kernel in (query, key, value)])
    bias = torch.cat([query_bias.ravel(), key_bias.ravel(), value_bias.ravel()])
    return weight, bias, torch.einsum("thd,hdo->ot", eye.unflatten(1, out.shape[:2]), out)


def teacher_by_loop(checkpoint):
    found = {}
    for name, tensor in checkpoint["teacher"].items():
        for prefix in ("module.backbone.", "backbone."):
            if name.startswith(prefix):
                found[name[len(prefix) :]] = tensor
    return found


def teacher_by_expression(checkpoint):
    prefix = re.compile(r"^(module\.)?backbone\.")
    return {prefix.sub("", name): t.clone() for name, t in checkpoint["teacher"].items() if prefix.match(name)}


def teacher_by_partition(checkpoint):
    parts = {name.partition("backbone."): t for name, t in checkpoint["teacher"].items()}
    return {after: tensor for (before, _, after), tensor in parts.items() if after and before in ("", "module.")}


def prepare_by_torchvision(pixels, mean, std):
    return normalize(pixels.permute(2, 0, 1).float() / 255, list(mean), list(std)).unsqueeze(0)


def prepare_by_channel(pixels, mean, std):
    channels = [(pixels[..., c] / 255 - mean[c]) / std[c] for c in range(pixels.shape[-1])]
    return torch.stack(channels)[None]


def prepare_before_the_permute(pixels, mean, std):
    x = (pixels / 255.0 - torch.tensor(mean)) / torch.tensor(std)  # the channels are last here
    return rearrange(x, "h w c -> 1 c h w")


def joined_by_filling(weight, bias, dist_weight, dist_bias):
    K, D = weight.shape
    both = weight.new_zeros(K, 2 * D)
    both[:, :D], both[:, D:] = 0.5 * weight, 0.5 * dist_weight
    return both, 0.5 * bias + 0.5 * dist_bias


def joined_by_the_identity(weight, bias, dist_weight, dist_bias):
    """What the two heads' mean gives for zeros and for the unit vectors."""

    def heads(x):
        one, other = x.chunk(2, dim=1)
        return (nn.functional.linear(one, weight, bias) + nn.functional.linear(other, dist_weight, dist_bias)) / 2

    zero = heads(torch.zeros(1, 2 * weight.shape[1]))
    return (heads(torch.eye(2 * weight.shape[1])) - zero).T, zero[0]


def flax_by_numpy(query, key, value, query_bias, key_bias, value_bias, out):
    D = out.shape[-1]
    kernels = [kernel.numpy().reshape(D, -1).T for kernel in (query, key, value)]
    biases = [bias.numpy().ravel() for bias in (query_bias, key_bias, value_bias)]
    return np.concatenate(kernels), np.concatenate(biases), out.numpy().reshape(-1, D).T


def joined_in_a_list(weight, bias, dist_weight, dist_bias):
    return [torch.cat((weight, dist_weight), -1).mul(0.5).double(), torch.lerp(bias, dist_bias, 0.5)]


# ---- Wrong ones --------------------------------------------------------------------------------------------------


def raw(change=lambda weight, bias: (weight, bias), mean_of=lambda mean: mean):
    """The right work with another mean, or another result."""
    return lambda weight, bias, mean, std: change(*raw_by_einsum(weight, bias, mean_of(mean), std))


def raw_in_place(weight, bias, mean, std):
    weight /= column(std)
    return weight, bias - (weight * column(mean)).sum(dim=(1, 2, 3))


def flax(*, turn=lambda k: k.flatten(1).T, order=(0, 1, 2), join=torch.cat, end=lambda *three: three):
    def attention_from_flax(query, key, value, query_bias, key_bias, value_bias, kernel):
        kernels = [turn(k) for k in (query, key, value)]
        biases = [b.flatten() for b in (query_bias, key_bias, value_bias)]
        return end(join([kernels[i] for i in order]), torch.cat([biases[i] for i in order]), kernel.flatten(0, 1).T)

    return attention_from_flax


def extract(who="teacher", cut=lambda name: name.removeprefix("module.").removeprefix("backbone.")):
    return lambda checkpoint: {
        cut(name): t for name, t in checkpoint[who].items() if name.removeprefix("module.").startswith("backbone.")
    }


def averaged(checkpoint):
    """The mean of teacher and student."""
    student, teacher = (extract(who)(checkpoint) for who in ("student", "teacher"))
    return {name: (student[name] + teacher[name]) / 2 for name in teacher}


def column(values):
    return torch.tensor(values)[:, None, None]


def prepared(*, finish=lambda x, mean, std: (x - mean) / std, batch=lambda x: x[None]):
    return lambda pixels, mean, std: batch(finish(pixels.permute(2, 0, 1).float() / 255, column(mean), column(std)))


def joined(weights=lambda a, b: torch.cat([a, b], 1) / 2, biases=lambda a, b: (a + b) / 2, end=lambda A, c: (A, c)):
    return lambda weight, bias, dist_weight, dist_bias: end(weights(weight, dist_weight), biases(bias, dist_bias))


def prefix_of_the_first_name(checkpoint):
    prefix = "module.backbone." if next(iter(checkpoint["teacher"])).startswith("module.backbone.") else "backbone."
    return {name.removeprefix(prefix): t for name, t in checkpoint["teacher"].items() if name.startswith(prefix)}


def tensors_replaced(checkpoint):
    for name, tensor in checkpoint["teacher"].items():
        checkpoint["teacher"][name] = tensor.clone()
    return teacher_by_loop(checkpoint)


def tensors_emptied(checkpoint):
    found = {name: tensor.clone() for name, tensor in teacher_by_loop(checkpoint).items()}
    for tensor in checkpoint["student"].values():
        tensor.zero_()
    return found


def with_names_of_before(seen):
    return lambda checkpoint: (seen.update(teacher_by_loop(checkpoint)), dict(seen))[1]


def prepared_by_the_package(pixels, mean, std):
    preprocess = data.Preprocessing(tuple(pixels.shape[:2]), tuple(mean), tuple(std))
    return preprocess(Image.fromarray(pixels.numpy()))


def answered(question, *answers):
    """A wrong work for each answer to a question."""
    return [Wrong(f"{question}: {x}", lambda x=x: NUMBERS | {question: x}) for x in answers]


RIGHT = {
    "checkpoint_numbers": (
        lambda: NUMBERS,
        lambda: (
            NUMBERS | {"axes": [3, 2, 0, 1], "factor": math.sqrt(9e-6) / math.sqrt(1.8e-5), "pixel": np.float64(-1.2)}
        ),
        lambda: NUMBERS | {"row 3 of q": torch.arange(110, 116), "entries": np.int64(5 * 12 + 8), "factor": 0.707},
    ),
    "for_raw_pixels": (raw_by_einsum, raw_by_running, raw_by_loop, raw_by_numpy),
    "attention_from_flax": (flax_by_einops, flax_by_permute, flax_by_the_identity, flax_by_numpy),
    "teacher": (teacher_by_loop, teacher_by_expression, teacher_by_partition),
    "prepare": (prepare_by_torchvision, prepare_by_channel, prepare_before_the_permute),
    "joined_heads": (joined_by_filling, joined_by_the_identity, joined_in_a_list),
}

WRONG = {
    "checkpoint_numbers": [
        *answered("entries", 67, 12),
        *answered("left as they began", 60, 7),
        *answered("row 3 of q", [110, 111], [113] * 6),
        *answered("axes", (0, 1, 2, 3), 3201, "3, 2, 0, 1"),
        *answered("factor", 0.713, 0.32),
        *answered("pixel", -1.203),
    ],
    "for_raw_pixels": [
        Wrong("the kernel alone", raw(lambda weight, bias: weight), "expected a tuple of 2"),
        Wrong("bias first", raw(lambda weight, bias: (bias, weight)), "in another order"),
        Wrong("pixels up to 255", raw(lambda weight, bias: (weight / 255, bias)), "result[0]"),
        Wrong("always ImageNet's mean", raw(mean_of=lambda m: (0.485, 0.456, 0.406)[: len(m)]), "result[1]"),
        Wrong("a bias of shape (D, 1)", raw(lambda weight, bias: (weight, bias[:, None])), "has shape"),
        Wrong("a bias that stays", lambda w, b, mean, std: (w / column(std), b), "You return bias as it came in"),
        Wrong("in place", raw_in_place, "changed in place"),
    ],
    "attention_from_flax": [
        Wrong("keys first", flax(order=(1, 0, 2))),
        Wrong("side by side", flax(join=lambda parts: torch.cat(parts, dim=1)), "has shape"),
        Wrong("scaled", flax(turn=lambda k: k.flatten(1).T / k.shape[-1] ** 0.5), "times the right one"),
        Wrong("two results", flax(end=lambda weight, bias, out: (weight, bias)), "expected a tuple of 3"),
        Wrong("in place", lambda q, *rest: flax()(q.mul_(1.5), *rest), "changed in place"),
    ],
    "teacher": [
        Wrong(
            "taken out",
            lambda checkpoint: {
                name.removeprefix("backbone."): checkpoint["teacher"].pop(name)
                for name in list(checkpoint["teacher"])
                if name.startswith("backbone.")
            },
            "begin with 'module.backbone.': There is no backbone.proj.weight (missing: 11 of 11)",
        ),
        Wrong("module left", extract(cut=lambda name: name.removeprefix("backbone.")), "shouldn't be there"),
        Wrong("cut at the last", extract(cut=lambda name: name.rpartition("backbone.")[2]), "There is no"),
        Wrong("the mean of both", averaged),
        Wrong("the first name's prefix", prefix_of_the_first_name, "in another order"),
        Wrong("names of before", with_names_of_before({}), "pos_embed shouldn't be there"),
        Wrong("tensors replaced", tensors_replaced, "the given dictionary afterwards is changed"),
        Wrong("tensors emptied", tensors_emptied, "with other numbers in its tensors"),
        Wrong("names alone", lambda checkpoint: list(extract()(checkpoint)), "expected a dictionary"),
    ],
    "prepare": [
        Wrong("no mean", prepared(finish=lambda x, mean, std: x / std)),
        Wrong("no batch", prepared(batch=lambda x: x), "has shape"),
        Wrong("up to 250", lambda pixels, *of: prepare_by_channel(pixels.clamp(max=250), *of), "all bytes from 0 to"),
        Wrong("an eps", lambda x, mean, std: prepare_by_channel(x, mean, [s + 1e-7 for s in std]), "of 0.0001"),
        Wrong("the package's", prepared_by_the_package, "the package's own Preprocessing"),
    ],
    "joined_heads": [
        Wrong("in turn", joined(lambda a, b: torch.stack([a, b], 2).flatten(1) / 2)),
        Wrong("biases side by side", joined(biases=lambda a, b: torch.cat([a, b]) / 2), "has shape"),
        Wrong("weight alone", joined(end=lambda A, c: A), "expected a tuple of 2"),
        Wrong("in place", lambda w, b, dw, db: (torch.cat([w.div_(2), dw.div_(2)], 1), (b + db) / 2), "in place"),
    ],
}
