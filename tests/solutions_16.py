"""Answers to the exercises of lesson 16: right ones in different styles, and wrong ones, each with its report."""

import numpy as np
import torch
from submissions import Wrong
from torch.nn import functional as F

NUMBERS = {
    "tokens": 29,
    "lands": 4,
    "head": 165,
    "outputs": 120,
    "enlarged": 30720,
    "iou": 0.5,
    "miou": 0.45,
    "all background": 0.08,
    "fraction": 0.125,
    "last block": 0,
}


def grid_by_unflatten(tokens, grid, prefix_tokens):
    return tokens[:, prefix_tokens:].unflatten(1, grid).movedim(-1, 1)


def grid_by_loop(tokens, grid, prefix_tokens):
    rows, columns = grid
    at = [[tokens[:, prefix_tokens + r * columns + c] for c in range(columns)] for r in range(rows)]
    return torch.stack([torch.stack(row, dim=2) for row in at], dim=2)


def grid_by_view(tokens, grid, prefix_tokens):
    B, _, D = tokens.shape
    return tokens[:, prefix_tokens:].transpose(1, 2).reshape(B, D, grid[0], grid[1])


def fractions_by_one_hot(targets, num_classes, grid):
    one_hot = F.one_hot(targets, num_classes).movedim(-1, 1).float()
    return F.adaptive_avg_pool2d(one_hot, grid)


def fractions_by_numpy(targets, num_classes, grid):
    B, H, W = targets.shape
    cut = targets.numpy().reshape(B, grid[0], H // grid[0], grid[1], W // grid[1])
    return np.stack([(cut == k).mean(axis=(2, 4)) for k in range(num_classes)], axis=1)


def fractions_by_loop(targets, num_classes, grid):
    B, H, W = targets.shape
    h, w = H // grid[0], W // grid[1]
    fractions = torch.zeros(B, num_classes, *grid)
    for r in range(grid[0]):
        for c in range(grid[1]):
            patch = targets[:, r * h : (r + 1) * h, c * w : (c + 1) * w].flatten(1)
            for k in range(num_classes):
                fractions[:, k, r, c] = (patch == k).sum(dim=1) / (h * w)
    return fractions


def iou_by_loop(predicted, targets, num_classes):
    scores = []
    for k in range(num_classes):
        either = ((predicted == k) | (targets == k)).sum().item()
        if either:
            scores.append(((predicted == k) & (targets == k)).sum().item() / either)
    return sum(scores) / len(scores)


def iou_by_one_hot(predicted, targets, num_classes):
    said, true = (F.one_hot(x.flatten(), num_classes).double() for x in (predicted, targets))
    both = (said * true).sum(dim=0)
    either = said.sum(dim=0) + true.sum(dim=0) - both
    return (both / either)[either > 0].mean()


def segment_by_interpolate(logits, size):
    return F.interpolate(logits, size, mode="bilinear").max(dim=1).indices


def segment_by_double(logits, size):
    return F.interpolate(logits.double(), size=tuple(size), mode="bilinear").numpy().argmax(axis=1)


RIGHT = {
    "dense_numbers": (lambda: NUMBERS,),
    "token_grid": (grid_by_unflatten, grid_by_loop),
    "class_fractions": (fractions_by_one_hot, fractions_by_numpy),
    "mean_iou": (iou_by_loop, iou_by_one_hot),
    "segment": (segment_by_interpolate, segment_by_double),
}


# ---- Wrong ones --------------------------------------------------------------------------------------------------


def answers(**changes):
    return lambda: NUMBERS | {name.replace("_", " "): value for name, value in changes.items()}


def changed(work, change):
    """A right work whose result is changed afterwards."""
    return lambda *args: change(work(*args))


WRONG = {
    "dense_numbers": [Wrong("a small gradient", answers(last_block=0.1), "What reads these tokens")],
    "token_grid": [
        Wrong("channels last", changed(grid_by_view, lambda x: x.movedim(1, -1)), "shape"),
        Wrong("no gradient", lambda z, *rest: grid_by_view(z.detach(), *rest), "gradient"),
        Wrong("class token left in", lambda z, g, p: grid_by_view(z[:, : z.shape[1] - p], g, 0), ""),
    ],
    "class_fractions": [
        Wrong("in percent", changed(fractions_by_one_hot, lambda x: 100 * x), "100 times the right one"),
        Wrong("without the background", lambda t, K, g: fractions_by_loop(t, K, g)[:, 1:], "shape"),
    ],
    "mean_iou": [
        Wrong("only true classes", lambda p, t, K: iou_by_loop(torch.where(torch.isin(p, t), p, 0), t, K), "is 0.5"),
    ],
    "segment": [
        Wrong("logits", lambda x, size: F.interpolate(x, size, mode="bilinear"), "shape"),
    ],
}
