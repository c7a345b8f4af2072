"""Answers to the exercises of lesson 17: right ones in different styles, and wrong ones, each with its report."""

import math
from collections import Counter

import torch
from submissions import Wrong
from torch.nn import functional as F

NUMBERS = {
    "cosines": 16384,
    "classes": 128,
    "guessing": 4.852,
    "floor": 3.466,
    "gained": 1.386,
    "scale": 2.659,
    "most": 200,
    "new": 12,
    "sigmoid": 16256,
}


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


def floor_by_counter(meanings):
    counts = Counter(meanings.tolist())
    return sum(math.log(counts[meaning]) for meaning in meanings.tolist()) / len(meanings)


def floor_by_table(meanings):
    return (meanings[:, None] == meanings[None]).sum(1).float().log().mean()


def zero_shot_by_normalize(images, captions):
    names = F.normalize(F.normalize(captions, dim=-1).mean(0), dim=-1)
    return F.normalize(images, dim=-1) @ names.T


def zero_shot_by_sum(images, captions):
    names = (captions / captions.norm(dim=-1, keepdim=True)).sum(0)  # the length doesn't matter
    return F.cosine_similarity(images[:, None], names[None], dim=-1)


def sigmoid_by_signs(logits, bias):
    signs = 2 * torch.eye(len(logits)) - 1
    return -F.logsigmoid(signs * (logits + bias)).sum() / len(logits)


def sigmoid_by_bce(logits, bias):
    answers = torch.eye(len(logits))
    return F.binary_cross_entropy_with_logits(logits + bias, answers, reduction="sum") / len(logits)


RIGHT = {
    "two_towers_numbers": (lambda: NUMBERS,),
    "clip_loss": (loss_by_labels, loss_by_logsumexp),
    "floor_of": (floor_by_counter, floor_by_table),
    "zero_shot": (zero_shot_by_normalize, zero_shot_by_sum),
    "sigmoid_pairs": (sigmoid_by_signs, sigmoid_by_bce),
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
    "two_towers_numbers": [Wrong("eight new ones", answers(new=8), "minus those that were shown")],
    "clip_loss": [
        Wrong("no clip", lambda i, c, s: loss_by_labels(i, c, s) if s < 4.6 else one_way(i, c, s), "a scale of 150"),
        Wrong("no gradient of the scale", lambda i, c, s: loss_by_labels(i, c, s.detach()), "gradient"),
    ],
    "floor_of": [
        Wrong("base 2", changed(floor_by_table, lambda x: x / math.log(2))),
    ],
    "zero_shot": [
        Wrong("transposed", changed(zero_shot_by_normalize, lambda x: x.T), "shape"),
    ],
    "sigmoid_pairs": [
        Wrong(
            "logs of sigmoids",
            lambda logits, bias: (
                -((2 * torch.eye(len(logits)) - 1) * (logits + bias)).sigmoid().log().sum() / len(logits)
            ),
            "up to 900",
        ),
        Wrong("no gradient of the bias", lambda logits, bias: sigmoid_by_bce(logits, bias.detach()), "gradient"),
    ],
}
