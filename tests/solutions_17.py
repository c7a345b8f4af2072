"""Answers to the exercises of lesson 17: right ones, written in different ways, and wrong ones with what they hear."""

import math
from collections import Counter

import numpy as np
import torch
from submissions import Wrong
from torch.nn import functional as F

NUMBERS = {
    "cosines": 16384, "classes": 128, "guessing": 4.852, "floor": 3.466, "gained": 1.386, "scale": 2.659, "most": 200,
    "new": 12, "sigmoid": 16256,
}  # fmt: skip


def loss_by_labels(images, captions, log_scale):
    images, captions = F.normalize(images, dim=1), F.normalize(captions, dim=1)
    logits = log_scale.exp().clamp(max=100) * images @ captions.T
    labels = torch.arange(len(images))
    return (F.cross_entropy(logits, labels) + F.cross_entropy(logits.T, labels)) / 2


def loss_by_logsumexp(images, captions, log_scale):
    images = images / images.norm(dim=-1, keepdim=True)
    captions = captions / captions.norm(dim=-1, keepdim=True)
    logits = torch.einsum("ie,je->ij", images, captions) * torch.clamp(torch.exp(log_scale), max=100)
    both = logits.logsumexp(dim=0) + logits.logsumexp(dim=1)  # (B,)
    return (both / 2 - logits.diagonal()).mean()


def loss_by_loop(images, captions, log_scale):
    scale = torch.minimum(log_scale.exp(), torch.tensor(100.0))
    losses = []
    for i in range(len(images)):
        row = torch.stack([scale * F.cosine_similarity(images[i], c, dim=0) for c in captions])
        column = torch.stack([scale * F.cosine_similarity(x, captions[i], dim=0) for x in images])
        losses += [-row.log_softmax(0)[i], -column.log_softmax(0)[i]]
    return torch.stack(losses).mean()


def floor_by_counter(meanings):
    counts = Counter(meanings.tolist())
    return sum(math.log(counts[meaning]) for meaning in meanings.tolist()) / len(meanings)


def floor_by_table(meanings):
    return (meanings[:, None] == meanings[None]).sum(1).float().log().mean()


def floor_by_numpy(meanings):
    _, counts = np.unique(meanings.numpy(), return_counts=True)
    return float((counts * np.log(counts)).sum() / counts.sum())


def zero_shot_by_normalize(images, captions):
    names = F.normalize(F.normalize(captions, dim=-1).mean(0), dim=-1)
    return F.normalize(images, dim=-1) @ names.T


def zero_shot_by_sum(images, captions):
    names = (captions / captions.norm(dim=-1, keepdim=True)).sum(0)  # the length doesn't matter
    return F.cosine_similarity(images[:, None], names[None], dim=-1)


def zero_shot_by_numpy(images, captions):
    images, captions = images.numpy(), captions.numpy()
    captions = captions / np.linalg.norm(captions, axis=-1, keepdims=True)
    names = captions.mean(axis=0)
    names = names / np.linalg.norm(names, axis=-1, keepdims=True)
    return images / np.linalg.norm(images, axis=-1, keepdims=True) @ names.T


def sigmoid_by_signs(logits, bias):
    signs = 2 * torch.eye(len(logits)) - 1
    return -F.logsigmoid(signs * (logits + bias)).sum() / len(logits)


def sigmoid_by_bce(logits, bias):
    answers = torch.eye(len(logits))
    return F.binary_cross_entropy_with_logits(logits + bias, answers, reduction="sum") / len(logits)


def sigmoid_by_softplus(logits, bias):
    z = logits + bias
    own = torch.eye(len(z), dtype=torch.bool)
    return (F.softplus(-z[own]).sum() + F.softplus(z[~own]).sum()) / len(z)


RIGHT = {
    "two_towers_numbers": (
        lambda: NUMBERS,
        lambda: NUMBERS | {"guessing": math.log(128), "floor": math.log(32), "gained": math.log(4)},
        lambda: {name: float(value) for name, value in NUMBERS.items()} | {"scale": torch.tensor(1 / 0.07).log()},
    ),
    "clip_loss": (loss_by_labels, loss_by_logsumexp, loss_by_loop),
    "floor_of": (floor_by_counter, floor_by_table, floor_by_numpy),
    "zero_shot": (zero_shot_by_normalize, zero_shot_by_sum, zero_shot_by_numpy),
    "sigmoid_pairs": (sigmoid_by_signs, sigmoid_by_bce, sigmoid_by_softplus),
}


# ---- Wrong ones --------------------------------------------------------------------------------------------------


def answers(**changes):
    return lambda: NUMBERS | changes


def changed(work, change):
    """A right work whose result is changed afterwards."""
    return lambda *args: change(work(*args))


def one_way(images, captions, log_scale):
    logits = log_scale.exp().clamp(max=100) * F.normalize(images, dim=1) @ F.normalize(captions, dim=1).T
    return F.cross_entropy(logits, torch.arange(len(images)))


WRONG = {
    "two_towers_numbers": [
        Wrong("eight new ones", answers(new=8), "without those that were shown"),
    ],
    "clip_loss": [
        Wrong("no clip", lambda i, c, s: loss_by_labels(i, c, s) if s < 4.6 else one_way(i, c, s), "which is clipped"),
        Wrong("twice", changed(loss_by_labels, lambda x: 2 * x), "2 times the right one"),
        Wrong("a loss per picture", lambda i, c, s: loss_by_labels(i, c, s).expand(len(i)), "shape"),
        Wrong("no gradient of the scale", lambda i, c, s: loss_by_labels(i, c, s.detach()), "gradient"),
        Wrong("wrong pairs", lambda i, c, s: loss_by_labels(i, c.flip(0), s)),
    ],
    "floor_of": [
        Wrong("base 2", changed(floor_by_table, lambda x: x / math.log(2))),
        Wrong("summed", lambda m: len(m) * floor_by_table(m), "itself among them: 3, 2, 3, 3, 2, 1."),
        Wrong("always 0", lambda m: 0.0),
    ],
    "zero_shot": [
        Wrong("the first", lambda i, c: zero_shot_by_normalize(i, c[:1]), "result[0, 0] is"),
        Wrong("transposed", changed(zero_shot_by_normalize, lambda x: x.T), "shape"),
        Wrong("over names", lambda i, c: zero_shot_by_normalize(i, c.transpose(0, 1))),
    ],
    "sigmoid_pairs": [
        Wrong("mean of all", changed(sigmoid_by_bce, lambda x: x / 3)),
        Wrong("no bias", lambda logits, bias: sigmoid_by_bce(logits, 0 * bias), "with zeros in place of bias"),
        Wrong("logs of sigmoids", lambda logits, bias: -(
            (2 * torch.eye(len(logits)) - 1) * (logits + bias)).sigmoid().log().sum() / len(logits), "hundreds"),
        Wrong("no gradient of the bias", lambda logits, bias: sigmoid_by_bce(logits, bias.detach()), "gradient"),
    ],
}  # fmt: skip
