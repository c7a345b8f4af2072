"""Works for the exercises of lesson 09: right ones, in different ways, and wrong ones."""

import re

import torch
from einops import rearrange
from submissions import Wrong
from torch import nn
from torchvision.transforms.functional import normalize

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


def flax_by_einops(query, key, value, query_bias, key_bias, value_bias, out):
    weight = rearrange([query, key, value], "three i h d -> (three h d) i")
    bias = rearrange([query_bias, key_bias, value_bias], "three h d -> (three h d)")
    return weight, bias, rearrange(out, "h d o -> o (h d)")


def flax_by_permute(query, key, value, query_bias, key_bias, value_bias, out):
    D = out.shape[-1]
    parts = [kernel.permute(1, 2, 0).reshape(D, D) for kernel in (query, key, value)]
    bias = torch.stack([query_bias, key_bias, value_bias]).reshape(-1)
    return torch.vstack(parts), bias, out.permute(2, 0, 1).reshape(D, D)


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


def prepare_by_torchvision(pixels, mean, std):
    return normalize(pixels.permute(2, 0, 1).float() / 255, list(mean), list(std)).unsqueeze(0)


def prepare_by_channel(pixels, mean, std):
    channels = [(pixels[..., c] / 255 - mean[c]) / std[c] for c in range(pixels.shape[-1])]
    return torch.stack(channels)[None]


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


# ---- Wrong ones --------------------------------------------------------------------------------------------------


def raw(change=lambda weight, bias: (weight, bias), mean_of=lambda mean: mean):
    """The right work with another mean, or another result."""
    return lambda weight, bias, mean, std: change(*raw_by_einsum(weight, bias, mean_of(mean), std))


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


def column(values):
    return torch.tensor(values)[:, None, None]


def prepared(*, finish=lambda x, mean, std: (x - mean) / std, batch=lambda x: x[None]):
    return lambda pixels, mean, std: batch(finish(pixels.permute(2, 0, 1).float() / 255, column(mean), column(std)))


def joined(weights=lambda a, b: torch.cat([a, b], 1) / 2, biases=lambda a, b: (a + b) / 2, end=lambda A, c: (A, c)):
    return lambda weight, bias, dist_weight, dist_bias: end(weights(weight, dist_weight), biases(bias, dist_bias))


def answered(question, *answers):
    """A wrong work for each answer to a question."""
    return [Wrong(f"{question}: {x}", lambda x=x: NUMBERS | {question: x}) for x in answers]


RIGHT = {
    "checkpoint_numbers": (lambda: NUMBERS,),
    "for_raw_pixels": (raw_by_einsum, raw_by_running),
    "attention_from_flax": (flax_by_einops, flax_by_permute),
    "teacher": (teacher_by_loop, teacher_by_expression),
    "prepare": (prepare_by_torchvision, prepare_by_channel),
    "joined_heads": (joined_by_filling, joined_by_the_identity),
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
        Wrong("pixels up to 255", raw(lambda weight, bias: (weight / 255, bias)), "result[0]"),
        Wrong("always ImageNet's mean", raw(mean_of=lambda m: (0.485, 0.456, 0.406)[: len(m)]), "result[1]"),
    ],
    "attention_from_flax": [
        Wrong("side by side", flax(join=lambda parts: torch.cat(parts, dim=1)), "has shape"),
        Wrong("scaled", flax(turn=lambda k: k.flatten(1).T / k.shape[-1] ** 0.5), "times the right one"),
        Wrong("two results", flax(end=lambda weight, bias, out: (weight, bias)), "expected a tuple of 3"),
    ],
    "teacher": [
        Wrong("module left", extract(cut=lambda name: name.removeprefix("backbone."))),
    ],
    "prepare": [
        Wrong("no batch", prepared(batch=lambda x: x), "has shape"),
    ],
    "joined_heads": [
        Wrong("biases side by side", joined(biases=lambda a, b: torch.cat([a, b]) / 2), "has shape"),
    ],
}
