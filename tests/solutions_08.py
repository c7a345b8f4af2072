"""Submissions to the exercises of lesson 08: right ones, in different ways, and wrong ones by their mistake."""

import math
from functools import reduce

import numpy as np
import torch
from einops import rearrange
from einops import reduce as pool
from scipy.spatial.distance import cdist
from sklearn.metrics.pairwise import cosine_similarity
from torch.nn import functional as F

NUMBERS = {"patch": (2, 3), "rollout": [0.25, 0.5, 0.25], "relevance": [1.2, 0.6, 0], "distance": 6}


def class_by_einops(weights, grid):
    return rearrange(weights[..., 0, 1:], "... (r c) -> ... r c", r=grid[0], c=grid[1])


def class_by_split(weights, grid):
    _, row = weights.select(-2, 0).split([1, grid[0] * grid[1]], dim=-1)
    return row.reshape(*row.shape[:-1], *grid)


def class_by_stack(weights, grid):
    rows, columns = grid
    lines = [weights[..., 0, 1 + r * columns : 1 + (r + 1) * columns] for r in range(rows)]
    return torch.stack(lines, dim=-2)


def rollout_by_reduce(weights, fusion):
    fused = weights.mean(2) if fusion == "mean" else weights.max(2).values  # (L, B, T, T)
    mixed = fused + torch.eye(weights.shape[-1])
    factors = mixed / mixed.sum(-1, keepdim=True)
    return reduce(lambda R, a: a @ R, factors)


def rollout_by_einsum(weights, fusion):
    L, B, _, T, _ = weights.shape
    R = torch.eye(T).expand(B, T, T)
    for layer in range(L):
        w = pool(weights[layer], "b h i j -> b i j", fusion)
        a = F.normalize(0.5 * w + 0.5 * torch.eye(T), p=1, dim=-1)
        R = torch.einsum("bij,bjk->bik", a, R)
    return R


def rollout_by_images(weights, fusion):
    """One image at a time, the product from the left."""
    results = []
    for image in weights.unbind(1):  # (L, h, T, T)
        factors = []
        for w in image:
            a = (w.sum(0) / len(w) if fusion == "mean" else w.amax(0)) / 2
            a = a + torch.diag(torch.full((len(a),), 0.5))
            factors.append(torch.stack([row / row.sum() for row in a]))
        results.append(torch.linalg.multi_dot(factors[::-1]))
    return torch.stack(results)


def rollout_divided_where_needed(weights, fusion):
    """With the mean, rows sum to 1 by themselves."""
    R = torch.eye(weights.shape[-1])
    for w in weights:
        a = (w.mean(1) if fusion == "mean" else w.amax(1)).lerp(torch.eye(w.shape[-1]), 0.5)
        R = (a if fusion == "mean" else a / a.sum(2)[:, :, None]) @ R
    return R


def relevance_by_relu(weights, gradients):
    R = torch.eye(weights[0].shape[-1])
    for w, g in zip(weights, gradients, strict=True):
        R = R + torch.relu(w * g).mean(1) @ R
    return R


def relevance_by_product(weights, gradients):
    """(I + E) R is the same step."""
    I = torch.eye(weights[0].shape[-1])  # noqa: E741
    factors = [I + (w * g.clamp(min=0)).mean(dim=1) for w, g in zip(weights, gradients, strict=True)]
    return reduce(torch.matmul, reversed(factors))


def relevance_by_loops(weights, gradients):
    B, h, T, _ = weights[0].shape
    R = torch.stack([torch.eye(T)] * B)
    for layer in range(len(weights)):
        for b in range(B):
            E = torch.zeros(T, T)
            for head in range(h):
                product = gradients[layer][b, head] * weights[layer][b, head]
                E += torch.where(product > 0, product, 0.0) / h
            R[b] += E @ R[b]
    return R


def positions_by_torch(position):
    x = position[0, 1:]
    return F.cosine_similarity(x[:, None], x[None], dim=-1)


def positions_by_lengths(position):
    x = position.squeeze(0)[1:]
    dots, lengths = x @ x.T, x.norm(dim=1)
    return dots / torch.outer(lengths, lengths)


def positions_by_diagonal(position):
    gram = torch.einsum("bnd,bmd->nm", position, position)[1:, 1:]
    root = gram.diagonal().sqrt()
    return gram / root / root[:, None]


def distance_by_cdist(weights, grid, patch_size):
    rows, columns = torch.meshgrid(torch.arange(grid[0]), torch.arange(grid[1]), indexing="ij")
    places = torch.stack([rows.flatten() * patch_size[0], columns.flatten() * patch_size[1]], dim=-1).float()
    w = weights[..., 1:, 1:]
    return (w / w.sum(-1, keepdim=True) * torch.cdist(places, places)).sum(-1).mean(-1)


def distance_by_what_the_class_token_leaves(weights, grid, patch_size):
    """A row of all tokens sums to 1, so without the class token it sums to 1 less its share."""
    n = torch.arange(grid[0] * grid[1])
    y, x = n // grid[1] * patch_size[0], n % grid[1] * patch_size[1]
    away = torch.hypot((y[:, None] - y).float(), (x[:, None] - x).float())
    rows = weights[..., 1:, :]
    return ((rows[..., 1:] * away).sum(-1) / (1 - rows[..., 0])).mean(-1)


def distance_by_loops(weights, grid, patch_size):
    (rows, columns), (P, Q) = grid, patch_size
    N = rows * columns
    total = 0.0
    for i in range(N):
        row = weights[..., 1 + i, 1:]
        for j in range(N):
            away = math.hypot((i // columns - j // columns) * P, (i % columns - j % columns) * Q)
            total = total + away * row[..., j] / row.sum(-1)
    return total / N


def distance_by_numpy_places(weights, grid, patch_size):
    """Centres in place of corners, and a weighted sum over all pairs."""
    P, Q = patch_size
    y, x = np.indices(grid)
    centres = np.stack([(y + 0.5) * P, (x + 0.5) * Q], -1).reshape(-1, 2)
    away = torch.from_numpy(np.linalg.norm(centres[:, None] - centres, axis=-1)).to(weights)
    shares = F.normalize(weights[..., 1:, 1:], p=1.0, dim=-1)
    return torch.einsum("...ij,ij->...", shares, away) / len(away)


def class_by_numpy(weights, grid):
    rows = weights.numpy()[..., 0, 1:]
    return rows.reshape(*rows.shape[:-1], *grid)


@torch.no_grad()
def class_in_doubles(weights, grid):
    return weights.double().narrow(-2, 0, 1)[..., 0, 1:].unflatten(-1, grid)


def rollout_by_numpy(weights, fusion):
    w = weights.numpy()
    fused = w.mean(2) if fusion == "mean" else w.max(2)
    R = np.eye(w.shape[-1])
    for a in fused:
        a = 0.5 * a + 0.5 * np.eye(w.shape[-1])
        R = a / a.sum(-1, keepdims=True) @ R
    return R


def rollout_detached(weights, fusion):
    return rollout_by_reduce(weights.detach().double(), fusion)


def relevance_by_numpy(weights, gradients):
    R = np.eye(weights[0].shape[-1])
    for w, g in zip(weights, gradients, strict=True):
        R = R + np.maximum(w.numpy() * g.numpy(), 0).mean(1) @ R
    return R


@torch.inference_mode()
def relevance_stacked(weights, gradients):
    E = (torch.stack(weights) * torch.stack(gradients)).relu().mean(2).double()
    R = torch.eye(E.shape[-1], dtype=torch.float64).expand_as(E[0])
    for e in E:
        R = torch.baddbmm(R, e, R)
    return R


def positions_by_sklearn(position):
    return cosine_similarity(position[0, 1:].numpy())


def positions_by_numpy(position):
    x = position.numpy()[0, 1:]
    return x @ x.T / np.outer(np.linalg.norm(x, axis=1), np.linalg.norm(x, axis=1))


def positions_by_loops(position):
    x = position[0, 1:].tolist()
    return np.array([[np.dot(a, b) / (math.hypot(*a) * math.hypot(*b)) for b in x] for a in x])


def distance_by_scipy(weights, grid, patch_size):
    places = np.indices(grid).reshape(2, -1).T * np.array(patch_size)
    w = weights.numpy()[..., 1:, 1:]
    return (w / w.sum(-1, keepdims=True) * cdist(places, places)).sum(-1).mean(-1)


SOLUTIONS = {
    "seeing_numbers": (
        lambda: NUMBERS,
        lambda: NUMBERS | {"patch": divmod(19, 8), "rollout": torch.tensor([0.25, 0.5, 0.25]), "distance": 6.0},
        lambda: NUMBERS | {"patch": [2, 3], "relevance": np.array([1.2, 0.6, 0.0]), "distance": np.float32(6)},
        lambda: {name: np.array(value) for name, value in NUMBERS.items()},
    ),
    "class_attention": (class_by_einops, class_by_split, class_by_stack, class_by_numpy, class_in_doubles),
    "rollout": (
        rollout_by_reduce,
        rollout_by_einsum,
        rollout_by_images,
        rollout_divided_where_needed,
        rollout_by_numpy,
        rollout_detached,
    ),
    "relevance_matrix": (
        relevance_by_relu,
        relevance_by_product,
        relevance_by_loops,
        relevance_by_numpy,
        relevance_stacked,
    ),
    "position_similarity": (
        positions_by_torch,
        positions_by_lengths,
        positions_by_diagonal,
        positions_by_sklearn,
        positions_by_numpy,
        positions_by_loops,
    ),
    "attention_distance": (
        distance_by_cdist,
        distance_by_loops,
        distance_by_numpy_places,
        distance_by_what_the_class_token_leaves,
        distance_by_scipy,
        lambda *a: distance_by_cdist(*a).double(),
    ),
}


# ---- Wrong ones --------------------------------------------------------------------------------------------------


def looks(row=lambda w: w[..., 0, 1:], lay=lambda row, grid: row.unflatten(-1, grid)):
    return lambda weights, grid: lay(row(weights), grid)


def to_range(row):
    low, high = row.amin(-1, keepdim=True), row.amax(-1, keepdim=True)
    return (row - low) / (high - low)


def one(x):
    return x / x.sum(-1, keepdim=True)


WRONG_LOOKS = {
    "column 0": looks(lambda w: w[..., 1:, 0]),
    "class token kept": looks(lambda w: w[..., 0, :-1]),
    "row 1": looks(lambda w: w[..., 1, 1:]),
    "last row": looks(lambda w: w[..., -1, 1:]),
    "last column": looks(lambda w: w[..., 1:, -1]),
    "mean of rows": looks(lambda w: w.mean(-2)[..., 1:]),
    "mean of the patches' rows": looks(lambda w: w[..., 1:, 1:].mean(-2)),
    "mean of columns": looks(lambda w: w[..., 1:, :].mean(-1)),
    "sum of rows": looks(lambda w: w.sum(-2)[..., 1:]),
    "diagonal": looks(lambda w: w.diagonal(dim1=-2, dim2=-1)[..., 1:]),
    "the patches' diagonal": looks(lambda w: w[..., 1:, 1:].diagonal(dim1=-2, dim2=-1)),
    "grid exchanged": looks(lay=lambda row, grid: row.unflatten(-1, grid[::-1])),
    "filled down": looks(lay=lambda row, grid: row.unflatten(-1, grid[::-1]).transpose(-2, -1)),
    "transposed": looks(lay=lambda row, grid: row.unflatten(-1, grid).transpose(-2, -1)),
    "upside down": looks(lay=lambda row, grid: row.unflatten(-1, grid).flip(-2)),
    "mirrored": looks(lay=lambda row, grid: row.unflatten(-1, grid).flip(-1)),
    "a square": looks(lay=lambda row, grid: row.unflatten(-1, (round(row.shape[-1] ** 0.5),) * 2)),
    "flat": looks(lay=lambda row, grid: row),
    "sum of 1": looks(lambda w: one(w[..., 0, 1:])),
    "from 0 to 1": looks(lambda w: to_range(w[..., 0, 1:])),
    "by the maximum": looks(lambda w: w[..., 0, 1:] / w[..., 0, 1:].amax(-1, keepdim=True)),
    "by the largest of all": looks(lambda w: w[..., 0, 1:] / w[..., 0, 1:].max()),
    "softmax again": looks(lambda w: w[..., 0, 1:].softmax(-1)),
    "logarithm": looks(lambda w: w[..., 0, 1:].log()),
    "times N": looks(lambda w: w[..., 0, 1:] * (w.shape[-1] - 1)),
    "rounded": looks(lambda w: w[..., 0, 1:].round(decimals=2)),
    "mean over heads": looks(lambda w: w.mean(-3)[..., 0, 1:]),
    "max over heads": looks(lambda w: w.amax(-3)[..., 0, 1:]),
    "mean over heads, axis kept": looks(lambda w: w.mean(-3, keepdim=True)[..., 0, 1:]),
    "mean over heads, for each": looks(lambda w: w.mean(-3, keepdim=True).expand_as(w)[..., 0, 1:]),
    "first head": looks(lambda w: w[..., 0, :, :][..., 0, 1:]),
    "first of all axes": looks(lambda w: w[0][..., 0, 1:]),
    "w[0, 1:]": looks(lambda w: w[0, 1:]),
    "w[:, :, 0, 1:]": looks(lambda w: w[:, :, 0, 1:]),
    "with the class token": looks(lambda w: w[..., 0, :]),
    "class token left out of both": looks(lambda w: w[..., 1:, 1:][..., 0, :]),
    "negative": looks(lambda w: -w[..., 0, 1:]),
    "1 - w": looks(lambda w: 1 - w[..., 0, 1:]),
    "a threshold": looks(lambda w: w[..., 0, 1:] > 0.1),
    "shifted": looks(lambda w: w[..., 0, 1:].roll(1, -1)),
    "in place": looks(lambda w: w.sub_(w.amin())[..., 0, 1:]),
    "lists": lambda w, grid: class_by_split(w, grid).tolist(),
    "no return": lambda w, grid: None,
}


def roll(
    *,
    fuse=lambda w, fusion: w.amax(1) if fusion == "max" else w.mean(1),
    factor=lambda w, eye: one(0.5 * w + 0.5 * eye),
    join=lambda a, R: a @ R,
    which=lambda layers: layers,
    end=lambda R: R,
    start=lambda eye: eye,
):
    def rollout(weights, fusion):
        eye = torch.eye(weights.shape[-1])
        R = start(eye)
        for w in which(list(weights)):
            R = join(factor(fuse(w, fusion), eye), R)
        return end(R)

    return rollout


WRONG_ROLLOUT = {
    "no identity": roll(factor=lambda w, eye: one(w)),
    "no identity, not normed": roll(factor=lambda w, eye: w),
    "order": roll(join=lambda a, R: R @ a),
    "not halved": roll(factor=lambda w, eye: w + eye),
    "not normed": roll(factor=lambda w, eye: 0.5 * w + 0.5 * eye),
    "normed at the end": roll(factor=lambda w, eye: 0.5 * w + 0.5 * eye, end=one),
    "normed before the identity": roll(factor=lambda w, eye: 0.5 * one(w) + 0.5 * eye),
    "no keepdim": roll(factor=lambda w, eye: (w + eye) / (w + eye).sum(-1)[0]),
    "keepdim forgotten": roll(factor=lambda w, eye: (w + eye) / (w + eye).sum(-1)),
    "columns": roll(factor=lambda w, eye: (w + eye) / (w + eye).sum(-2, keepdim=True)),
    "whole matrix": roll(factor=lambda w, eye: (w + eye) / (w + eye).sum((-2, -1), keepdim=True)),
    "softmax": roll(factor=lambda w, eye: (0.5 * w + 0.5 * eye).softmax(-1)),
    "length 1": roll(factor=lambda w, eye: F.normalize(0.5 * w + 0.5 * eye, dim=-1)),
    "by the maximum": roll(factor=lambda w, eye: (w + eye) / (w + eye).amax(-1, keepdim=True)),
    "identity once": roll(factor=lambda w, eye: one(w), end=lambda R: 0.5 * R + 0.5 * torch.eye(R.shape[-1])),
    "identity of 0.1": roll(factor=lambda w, eye: one(0.9 * w + 0.1 * eye)),
    "ones for the identity": roll(factor=lambda w, eye: one(w + 1)),
    "identity subtracted": roll(factor=lambda w, eye: one(w - 0.5 * eye)),
    "mean for max": roll(fuse=lambda w, fusion: w.mean(1)),
    "max for mean": roll(fuse=lambda w, fusion: w.amax(1)),
    "exchanged": roll(fuse=lambda w, fusion: w.mean(1) if fusion == "max" else w.amax(1)),
    "min": roll(fuse=lambda w, fusion: w.amin(1)),
    "min for max": roll(fuse=lambda w, fusion: w.amin(1) if fusion == "max" else w.mean(1)),
    "sum of heads": roll(fuse=lambda w, fusion: w.amax(1) if fusion == "max" else w.sum(1)),
    "first head": roll(fuse=lambda w, fusion: w[:, 0]),
    "last head": roll(fuse=lambda w, fusion: w[:, -1]),
    "product of heads": roll(fuse=lambda w, fusion: w.prod(1)),
    "entry by entry": roll(join=lambda a, R: a * R),
    "sum of layers": roll(join=lambda a, R: a + R),
    "mean of layers": lambda weights, fusion: roll()(weights.mean(0, keepdim=True), fusion),
    "last layer": roll(which=lambda layers: layers[-1:]),
    "first layer": roll(which=lambda layers: layers[:1]),
    "first layer left out": roll(which=lambda layers: layers[1:]),
    "last layer left out": roll(which=lambda layers: layers[:-1]),
    "layers backwards": roll(which=lambda layers: layers[::-1]),
    "twice the first": roll(which=lambda layers: [layers[0], *layers]),
    "start from zeros": roll(start=torch.zeros_like),
    "start from ones": roll(start=torch.ones_like),
    "row 0": roll(end=lambda R: R[:, 0]),
    "row 0 of the patches": roll(end=lambda R: R[:, 0, 1:]),
    "transposed": roll(end=lambda R: R.mT),
    "first image": roll(end=lambda R: R[0]),
    "mean of images": roll(end=lambda R: R.mean(0)),
    "first image for all": roll(end=lambda R: R[:1].expand_as(R)),
    "mean of the batch for the heads": lambda weights, fusion: roll()(weights.transpose(1, 2), fusion),
    "heads never joined": lambda weights, fusion: roll(fuse=lambda w, _: w)(weights, fusion),
    "heads joined at the end": lambda weights, fusion: roll(fuse=lambda w, _: w)(weights, fusion).mean(1),
    "a matrix each layer": lambda weights, fusion: torch.stack([roll()(weights[:1], fusion)] * len(weights)),
    "halved after all": roll(
        factor=lambda w, eye: one(w), join=lambda a, R: 0.5 * (a @ R) + 0.5 * R, end=lambda R: R / 2
    ),
    "in place": lambda weights, fusion: roll()(weights.mul_(1.0).add_(0.1), fusion),
    "no return": lambda weights, fusion: None,
}


def relate(
    *,
    part=lambda g, w: (g * w).clamp(min=0).mean(1),
    step=lambda E, R: R + E @ R,
    start=lambda eye: eye,
    which=lambda pairs: pairs,
    end=lambda R: R,
):
    def relevance_matrix(weights, gradients):
        R = start(torch.eye(weights[0].shape[-1]).repeat(len(weights[0]), 1, 1))
        for w, g in which(list(zip(weights, gradients, strict=True))):
            R = step(part(g, w), R)
        return end(R)

    return relevance_matrix


def eye_like(R):
    return torch.eye(R.shape[-1])


WRONG_RELEVANCE = {
    "no positive part": relate(part=lambda g, w: (g * w).mean(1)),
    "gradients backwards": lambda w, g: relate()(w, g[::-1]),
    "weights backwards": lambda w, g: relate()(w[::-1], g),
    "mean first": relate(part=lambda g, w: (g * w).mean(1).clamp(min=0)),
    "mean of each first": relate(part=lambda g, w: (g.mean(1) * w.mean(1)).clamp(min=0)),
    "absolute": relate(part=lambda g, w: (g * w).abs().mean(1)),
    "absolute gradient": relate(part=lambda g, w: g.abs().mean(1)),
    "negative part": relate(part=lambda g, w: (g * w).clamp(max=0).mean(1)),
    "the negative part's size": relate(part=lambda g, w: (-g * w).clamp(min=0).mean(1)),
    "cut at 1": relate(part=lambda g, w: (g * w).clamp(0, 1).mean(1)),
    "no gradient": relate(part=lambda g, w: w.mean(1)),
    "no weights": relate(part=lambda g, w: g.clamp(min=0).mean(1)),
    "sum of both": relate(part=lambda g, w: (g + w).clamp(min=0).mean(1)),
    "matrix product": relate(part=lambda g, w: (g @ w).clamp(min=0).mean(1)),
    "gradient squared": relate(part=lambda g, w: (g * g * w).clamp(min=0).mean(1)),
    "weights squared": relate(part=lambda g, w: (g * w * w).clamp(min=0).mean(1)),
    "softmax": relate(part=lambda g, w: (g * w).softmax(-1).mean(1)),
    "normed": relate(part=lambda g, w: one((g * w).clamp(min=0).mean(1) + 1e-9)),
    "sigmoid": relate(part=lambda g, w: (g * w).sigmoid().mean(1)),
    "forgets": relate(step=lambda E, R: E @ R),
    "sum": relate(step=lambda E, R: R + E),
    "order": relate(step=lambda E, R: R + R @ E),
    "I + E R": relate(step=lambda E, R: eye_like(R) + E @ R),
    "entry by entry": relate(step=lambda E, R: R + E * R),
    "minus": relate(step=lambda E, R: R - E @ R),
    "halved": relate(step=lambda E, R: 0.5 * R + 0.5 * E @ R),
    "Eᵀ": relate(step=lambda E, R: R + E.mT @ R),
    "rows of 1": relate(step=lambda E, R: one(R + E @ R)),
    "zeros": relate(start=torch.zeros_like),
    "ones": relate(start=torch.ones_like),
    "half an identity": relate(start=lambda eye: eye / 2),
    "max": relate(part=lambda g, w: (g * w).clamp(min=0).amax(1)),
    "sum of heads": relate(part=lambda g, w: (g * w).clamp(min=0).sum(1)),
    "first head": relate(part=lambda g, w: (g * w).clamp(min=0)[:, 0]),
    "last head": relate(part=lambda g, w: (g * w).clamp(min=0)[:, -1]),
    "backwards": relate(which=lambda pairs: pairs[::-1]),
    "first layer left out": relate(which=lambda pairs: pairs[1:]),
    "last layer left out": relate(which=lambda pairs: pairs[:-1]),
    "last layer": relate(which=lambda pairs: pairs[-1:]),
    "first layer": relate(which=lambda pairs: pairs[:1]),
    "less the identity": relate(end=lambda R: R - eye_like(R)),
    "row 0": relate(end=lambda R: R[:, 0]),
    "row 0 of the patches": relate(end=lambda R: R[:, 0, 1:]),
    "first image": relate(end=lambda R: R[0]),
    "transposed": relate(end=lambda R: R.mT),
    "sum of 1 at the end": relate(end=one),
    "mean of images": relate(end=lambda R: R.mean(0, keepdim=True).expand_as(R)),
    "no return": lambda w, g: None,
    "a list of layers": lambda w, g: [relate()(w[: i + 1], g[: i + 1]) for i in range(len(w))],
}


def cosines(x):
    x = x / x.norm(dim=-1, keepdim=True)
    return x @ x.mT


WRONG_POSITIONS = {
    "softmax": lambda p: cosines(p[0, 1:]).softmax(-1),
    "class token, too": lambda p: cosines(p[0]),
    "last left out": lambda p: cosines(p[0, :-1]),
    "first two left out": lambda p: cosines(p[0, 2:]),
    "dots": lambda p: p[0, 1:] @ p[0, 1:].T,
    "one length": lambda p: F.normalize(p[0, 1:], dim=-1) @ p[0, 1:].T,
    "the other length": lambda p: p[0, 1:] @ F.normalize(p[0, 1:], dim=-1).T,
    "scaled": lambda p: p[0, 1:] @ p[0, 1:].T / p.shape[-1] ** 0.5,
    "by D": lambda p: p[0, 1:] @ p[0, 1:].T / p.shape[-1],
    "columns": lambda p: F.normalize(p[0, 1:], dim=0) @ F.normalize(p[0, 1:], dim=0).T,
    "columns of all": lambda p: F.normalize(p, dim=1)[0, 1:] @ F.normalize(p, dim=1)[0, 1:].T,
    "whole table": lambda p: (p[0, 1:] / p[0, 1:].norm()) @ (p[0, 1:] / p[0, 1:].norm()).T,
    "by the largest": lambda p: p[0, 1:] @ p[0, 1:].T / (p[0, 1:] @ p[0, 1:].T).max(),
    "squared lengths": lambda p: (
        p[0, 1:] @ p[0, 1:].T / p[0, 1:].square().sum(-1, keepdim=True) / p[0, 1:].square().sum(-1)
    ),
    "sum for length": lambda p: (
        cosines(p[0, 1:]) * 0
        + (p[0, 1:] / p[0, 1:].sum(-1, keepdim=True)) @ (p[0, 1:] / p[0, 1:].sum(-1, keepdim=True)).T
    ),
    "sum of sizes": lambda p: F.normalize(p[0, 1:], p=1, dim=-1) @ F.normalize(p[0, 1:], p=1, dim=-1).T,
    "norm over tokens without keepdim": lambda p: p[0, 1:] @ p[0, 1:].T / p[0, 1:].norm(dim=-1),
    "distances": lambda p: torch.cdist(p[0, 1:], p[0, 1:]),
    "negative distances": lambda p: -torch.cdist(p[0, 1:], p[0, 1:]),
    "correlation": lambda p: torch.corrcoef(p[0, 1:]),
    "covariance": lambda p: torch.cov(p[0, 1:]),
    "mean position subtracted": lambda p: cosines(p[0, 1:] - p[0, 1:].mean(0)),
    "absolute": lambda p: cosines(p[0, 1:]).abs(),
    "squared": lambda p: cosines(p[0, 1:]).square(),
    "from 0 to 1": lambda p: (cosines(p[0, 1:]) + 1) / 2,
    "cosine distance": lambda p: 1 - cosines(p[0, 1:]),
    "angle": lambda p: cosines(p[0, 1:]).clamp(-1, 1).acos(),
    "negative": lambda p: -cosines(p[0, 1:]),
    "cut at 0": lambda p: cosines(p[0, 1:]).clamp(min=0),
    "zero diagonal": lambda p: cosines(p[0, 1:]) * (1 - torch.eye(p.shape[1] - 1)),
    "upper half": lambda p: cosines(p[0, 1:]).triu(),
    "of channels": lambda p: cosines(p[0, 1:].T),
    "with itself": lambda p: F.cosine_similarity(p[0, 1:], p[0, 1:], dim=-1),
    "with the first patch": lambda p: cosines(p[0, 1:])[0],
    "with the class token": lambda p: F.cosine_similarity(p[0, 1:], p[0, :1], dim=-1),
    "a batch": lambda p: cosines(p[:, 1:]),
    "p[1:]": lambda p: cosines(p[1:]),
    "p[:, 1:] and T": lambda p: p[:, 1:] @ p[:, 1:].T,
    "rounded": lambda p: cosines(p[0, 1:]).round(decimals=2),
    "layer norm": lambda p: F.layer_norm(p[0, 1:], p.shape[-1:]) @ F.layer_norm(p[0, 1:], p.shape[-1:]).T,
    "in place": lambda p: cosines(p[0, 1:].div_(2.0)),
    "no return": lambda p: None,
    "a list": lambda p: list(cosines(p[0, 1:])[0]),
}


def reach(
    *,
    weigh=lambda w: one(w[..., 1:, 1:]),
    between=lambda step: step.square().sum(-1).sqrt(),
    place=lambda n, grid, size: torch.stack([n // grid[1] * size[0], n % grid[1] * size[1]], 1),
    join=lambda w, away: (w * away).sum(-1).mean(-1),
):
    def attention_distance(weights, grid, patch_size):
        w = weigh(weights)
        places = place(torch.arange(w.shape[-1]), grid, patch_size).to(w.dtype)
        return join(w, between(places[:, None] - places))

    return attention_distance


WRONG_REACH = {
    "in patches": reach(place=lambda n, grid, size: torch.stack([n // grid[1], n % grid[1]], 1)),
    "not weighted": reach(weigh=lambda w: torch.full_like(w[..., 1:, 1:], 1 / (w.shape[-1] - 1))),
    "not 1": reach(weigh=lambda w: w[..., 1:, 1:]),
    "class token a patch": reach(weigh=lambda w: w),
    "last left out": reach(weigh=lambda w: one(w[..., :-1, :-1])),
    "class token's column alone left out": reach(weigh=lambda w: one(w[..., :-1, 1:])),
    "normed before the cut": reach(weigh=lambda w: one(w)[..., 1:, 1:]),
    "columns of 1": reach(weigh=lambda w: w[..., 1:, 1:] / w[..., 1:, 1:].sum(-2, keepdim=True)),
    "no keepdim": reach(weigh=lambda w: w[..., 1:, 1:] / w[..., 1:, 1:].sum(-1)[..., None, :]),
    "all of 1": reach(weigh=lambda w: w[..., 1:, 1:] / w[..., 1:, 1:].sum((-2, -1), keepdim=True)),
    "softmax again": reach(weigh=lambda w: w[..., 1:, 1:].softmax(-1)),
    "divided by 1 less the column": reach(weigh=lambda w: w[..., 1:, 1:] / (1 - w[..., :1, 1:].mT)),
    "squared weights": reach(weigh=lambda w: one(w[..., 1:, 1:].square())),
    "the largest weight": reach(weigh=lambda w: (w[..., 1:, 1:] == w[..., 1:, 1:].amax(-1, keepdim=True)).float()),
    "grid exchanged": reach(
        place=lambda n, grid, size: torch.stack([n // grid[0] * size[0], n % grid[0] * size[1]], 1)
    ),
    "divided by the rows": reach(
        place=lambda n, grid, size: torch.stack([n % grid[0] * size[0], n // grid[0] * size[1]], 1)
    ),
    "y by %": reach(place=lambda n, grid, size: torch.stack([n % grid[1] * size[0], n // grid[1] * size[1]], 1)),
    "size exchanged": reach(
        place=lambda n, grid, size: torch.stack([n // grid[1] * size[1], n % grid[1] * size[0]], 1)
    ),
    "height for both": reach(place=lambda n, grid, size: torch.stack([n // grid[1], n % grid[1]], 1) * size[0]),
    "width for both": reach(place=lambda n, grid, size: torch.stack([n // grid[1], n % grid[1]], 1) * size[1]),
    "area": reach(place=lambda n, grid, size: torch.stack([n // grid[1], n % grid[1]], 1) * size[0] * size[1]),
    "divided by the size": reach(
        place=lambda n, grid, size: torch.stack([n // grid[1] / size[0], n % grid[1] / size[1]], 1)
    ),
    "counted in a line": reach(place=lambda n, grid, size: n[:, None] * size[1]),
    "rows alone": reach(place=lambda n, grid, size: (n // grid[1] * size[0])[:, None]),
    "columns alone": reach(place=lambda n, grid, size: (n % grid[1] * size[1])[:, None]),
    "true division": reach(place=lambda n, grid, size: torch.stack([n / grid[1] * size[0], n % grid[1] * size[1]], 1)),
    "n - 1": reach(
        place=lambda n, grid, size: torch.stack([(n + 1) // grid[1] * size[0], (n + 1) % grid[1] * size[1]], 1)
    ),
    "steps": reach(between=lambda step: step.abs().sum(-1)),
    "squared": reach(between=lambda step: step.square().sum(-1)),
    "the larger step": reach(between=lambda step: step.abs().amax(-1)),
    "root of the mean": reach(between=lambda step: step.square().mean(-1).sqrt()),
    "signed": reach(between=lambda step: step.sum(-1)),
    "from the first patch": reach(between=lambda step: step[:1].square().sum(-1).sqrt().expand(step.shape[:2])),
    "transposed": reach(weigh=lambda w: one(w[..., 1:, 1:].mT)),
    "columns as rows": reach(weigh=lambda w: w[..., 1:, 1:].mT),
    "sum of queries": reach(join=lambda w, away: (w * away).sum((-2, -1))),
    "mean of all": reach(join=lambda w, away: (w * away).mean((-2, -1))),
    "largest": reach(join=lambda w, away: (w * away).sum(-1).amax(-1)),
    "median": reach(join=lambda w, away: (w * away).sum(-1).median(-1).values),
    "first query": reach(join=lambda w, away: (w * away).sum(-1)[..., 0]),
    "each query": reach(join=lambda w, away: (w * away).sum(-1)),
    "mean of heads, too": reach(join=lambda w, away: (w * away).sum(-1).mean((-2, -1))),
    "mean of all axes": reach(join=lambda w, away: (w * away).sum(-1).mean()),
    "itself left out": reach(weigh=lambda w: one(w[..., 1:, 1:] * (1 - torch.eye(w.shape[-1] - 1)))),
    "matrix product": reach(join=lambda w, away: (w @ away).sum(-1).mean(-1)),
    "matrix product, mean": reach(join=lambda w, away: (w @ away).mean((-2, -1))),
    "root of the mean square": reach(join=lambda w, away: (w * away.square()).sum(-1).mean(-1).sqrt()),
    "weights averaged over queries": reach(join=lambda w, away: (w.mean(-2, keepdim=True) * away).sum(-1).mean(-1)),
    "class token's row": lambda weights, grid, size: reach(
        weigh=lambda w: one(w[..., :1, 1:]).expand_as(w[..., 1:, 1:])
    )(weights, grid, size),
    "halved": reach(join=lambda w, away: (w * away).sum(-1).mean(-1) / 2),
    "rounded": reach(join=lambda w, away: (w * away).sum(-1).mean(-1).round()),
    "whole numbers": reach(join=lambda w, away: (w * away).sum(-1).mean(-1).long()),
    "no return": lambda *a: None,
}

BY_LABEL = {
    "seeing_numbers": {
        f"{key}: {value}": (lambda key=key, value=value: NUMBERS | {key: value})
        for key, values in {
            "patch": [
                (2, 4),
                (3, 1),
                (3, 2),
                (1, 3),
                (2, 2),
                (20,),
                (3, 3),
                (2, 5),
                (3, 4),
                19,
                (16, 24),
                (1, 12),
                (4, 2),
            ],
            "rollout": [
                [0, 0, 1],
                [0.25, 0.75, 0],
                [1, 2, 1],
                [0.25, 0, 0],
                [0, 1, 0],
                [0.5, 0.5, 0],
                [0.25, 0.25, 0.5],
                [0.5, 0.25, 0.25],
                [0.25, 0.5],
                [1, 0, 0],
                [0, 0.5, 0.5],
                0.25,
                [0.5, 1, 0.5],
            ],
            "relevance": [
                [1.2, 0.6, -2],
                [0.2, 0.6, 0],
                [1.2, 0.3, 0.5],
                [1.2, 0.6, 2],
                [0.2, 0.6, -2],
                [1.2, 1.6, 1],
                [1, 0.6, 0],
                [0.2, 0.3, 0.5],
                [1, 2, -4],
                [2.2, 0.6, 0],
                [0.6, 0.3, 0],
                [1.2, 0.6],
                [0.25, 0.75, 0],
                [0, 0, 2],
                [1, 2, 0],
            ],
            "distance": [0.75, 8, 4.8, 6.4, 3.2, 12, 7.5, 16, 24, 9.6, 4, 5.33, 60, 0],
        }.items()
        for value in values
    },
    "class_attention": WRONG_LOOKS,
    "rollout": WRONG_ROLLOUT,
    "relevance_matrix": WRONG_RELEVANCE,
    "position_similarity": WRONG_POSITIONS,
    "attention_distance": WRONG_REACH,
}


# What the check calls the mistake of a wrong submission; one that isn't listed must not be given a name.
NAMES = {
    "seeing_numbers": {
        "patch: (3, 1)": "rows and columns of the grid exchanged",
        "patch: (3, 2)": "the column named before the row, or token 20 on a grid of 6 columns",
        "patch: (1, 3)": "patches counted down the columns",
        "rollout: [0, 0, 1]": "a rollout without the identity",
        "rollout: [0.25, 0.75, 0]": "factors in the wrong order",
        "rollout: [1, 2, 1]": "an identity that is not halved",
        "rollout: [0.25, 0, 0]": "the class token's column in place of its row",
        "rollout: [0, 1, 0]": "the look of the class token in one layer",
        "relevance: [1.2, 0.6, -2]": "a relevance without the positive part",
        "relevance: [0.2, 0.6, 0]": "a relevance without the identity",
        "relevance: [1.2, 0.3, 0.5]": "a relevance that ignores the gradient",
        "relevance: [1.2, 0.6, 2]": "an absolute value in place of the positive part",
        "distance: 0.75": "a distance in patches",
        "distance: 8": "a distance that is not weighted",
        "distance: 4.8": "weights that do not sum to 1",
    },
    "class_attention": {
        "column 0": "the class token's column in place of its row",
        "class token kept": "a class token that is not dropped",
        "row 1": "the first patch's row",
        "last row": "the last token's row",
        "last column": "the last token's column",
        "mean of rows": "a mean over all tokens' rows",
        "mean of the patches' rows": "a mean over the patches' rows",
        "mean of columns": "what all tokens give away",
        "diagonal": "what each patch gives to itself",
        "the patches' diagonal": "what each patch gives to itself",
        "grid exchanged": "rows and columns of the grid exchanged",
        "filled down": "a map filled down its columns",
        "upside down": "a picture that stands on its head",
        "mirrored": "a picture that is mirrored",
        "sum of 1": "a map brought to a sum of 1",
        "from 0 to 1": "a map stretched to the range from 0 to 1",
        "by the maximum": "a map divided by its largest weight",
        "softmax again": "a second softmax",
        "logarithm": "logarithms of the weights",
        "mean over heads": "a mean over the heads",
        "max over heads": "a largest weight over the heads",
        "class token left out of both": "the first patch's row",
    },
    "rollout": {
        "no identity": "a rollout without the identity",
        "no identity, not normed": "attention without identity, and rows that do not sum to 1",
        "order": "factors in the wrong order",
        "not halved": "an identity that is not halved",
        "not normed": "rows that do not sum to 1",
        "normed at the end": "rows brought to 1 after the product",
        "normed before the identity": "rows brought to 1 before the identity",
        "keepdim forgotten": "a sum without keepdim",
        "columns": "columns brought to a sum of 1",
        "whole matrix": "the whole matrix divided by its sum",
        "softmax": "a softmax in place of a division",
        "length 1": "rows brought to length 1",
        "by the maximum": "rows divided by their maximum",
        "identity once": "the identity mixed in once",
        "ones for the identity": "ones in place of the identity",
        "mean for max": "the mean over heads where the max is asked for",
        "max for mean": "the max over heads where the mean is asked for",
        "exchanged": "mean and max exchanged",
        "min": "the smallest weight over the heads",
        "sum of heads": "a sum over the heads",
        "first head": "a single head",
        "last layer": "the last layer alone",
        "first layer": "the first layer alone",
        "first layer left out": "the first layer left out",
        "last layer left out": "the last layer left out",
        "layers backwards": "factors in the wrong order",
        "twice the first": "the first layer counted twice",
        "start from zeros": "a product that begins with zeros",
        "transposed": "a rollout that lies on its side",
        "first image for all": "the first image's rollout for all",
    },
    "relevance_matrix": {
        "no positive part": "a relevance without the positive part",
        "gradients backwards": "gradients paired with the wrong layers",
        "mean first": "the positive part after the mean over heads",
        "mean of each first": "means of both before the product",
        "absolute": "an absolute value in place of the positive part",
        "absolute gradient": "the size of the gradients",
        "negative part": "the negative part",
        "the negative part's size": "gradients with the wrong sign",
        "no gradient": "a relevance that ignores the gradient",
        "no weights": "a relevance that ignores the weights",
        "sum of both": "a sum of gradient and weights",
        "matrix product": "a matrix product of gradient and weights",
        "softmax": "a softmax in place of the positive part",
        "normed": "rows of E brought to a sum of 1",
        "forgets": "a step that forgets what was there",
        "sum": "a sum over the layers",
        "order": "factors in the wrong order",
        "I + E R": "an identity in place of what was there",
        "entry by entry": "a product entry by entry",
        "minus": "a difference",
        "halved": "halves of both",
        "Eᵀ": "an E that lies on its side",
        "rows of 1": "rows brought to a sum of 1 in each layer",
        "zeros": "a start from zeros",
        "ones": "a start from ones",
        "half an identity": "a start from half an identity",
        "max": "a maximum over the heads",
        "sum of heads": "a sum over the heads",
        "first head": "the first head alone",
        "last head": "the last head alone",
        "backwards": "factors in the wrong order",
        "first layer left out": "the first layer left out",
        "last layer left out": "the last layer left out",
        "last layer": "the last layer alone",
        "first layer": "the first layer alone",
        "less the identity": "an identity taken off again",
        "transposed": "a relevance that lies on its side",
        "sum of 1 at the end": "rows brought to a sum of 1 at the end",
        "mean of images": "a mean over the images",
    },
    "position_similarity": {
        "softmax": "a softmax of the similarities",
        "class token, too": "a class token among the patches",
        "last left out": "the last patch left out in place of the class token",
        "dots": "dot products in place of cosines",
        "one length": "a division by one of the two lengths",
        "the other length": "a division by the second length alone",
        "scaled": "a scaled dot product",
        "by D": "dot products divided by the width",
        "columns": "columns brought to length 1",
        "whole table": "one length for all",
        "squared lengths": "a division by the squares of the lengths",
        "sum of sizes": "a division by sums in place of lengths",
        "norm over tokens without keepdim": "a division by the second length alone",
        "distances": "distances in place of similarities",
        "correlation": "correlations",
        "mean position subtracted": "a mean position taken off",
        "absolute": "absolute values of the cosines",
        "squared": "squares of the cosines",
        "from 0 to 1": "cosines moved to the range from 0 to 1",
        "cosine distance": "one minus the cosine",
        "angle": "angles in place of cosines",
        "cut at 0": "cosines without their negative part",
        "zero diagonal": "a diagonal of zeros",
        "upper half": "half of the matrix",
        "layer norm": "a layer norm in place of a length",
    },
    "attention_distance": {
        "in patches": "a distance in patches",
        "not weighted": "a distance that is not weighted",
        "not 1": "weights that do not sum to 1",
        "class token a patch": "a class token counted as a patch",
        "last left out": "the last patch left out in place of the class token",
        "class token's column alone left out": "the class token's row in place of the last patch's",
        "normed before the cut": "weights that do not sum to 1",
        "columns of 1": "weights transposed",
        "no keepdim": "a sum without keepdim",
        "softmax again": "a second softmax",
        "grid exchanged": "rows and columns of the grid exchanged",
        "y by %": "a patch's height and width exchanged",
        "size exchanged": "a patch's height and width exchanged",
        "height for both": "the patch's height for both directions",
        "width for both": "the patch's width for both directions",
        "area": "steps of a patch's area",
        "counted in a line": "patches in a line",
        "rows alone": "rows alone",
        "columns alone": "columns alone",
        "true division": "a row that is not cut off",
        "n - 1": "patches counted from 1",
        "steps": "steps along the grid in place of the distance",
        "squared": "squared distances",
        "the larger step": "the larger one of two steps",
        "root of the mean": "a root of the mean square",
        "signed": "steps with their sign",
        "transposed": "weights transposed",
        "columns as rows": "weights that do not sum to 1",
        "sum of queries": "a sum over the queries",
        "mean of all": "a mean over all pairs",
        "largest": "the largest distance over the queries",
        "median": "the median over the queries",
        "first query": "the first query alone",
        "each query": "a number for each query",
        "itself left out": "the patch itself left out",
        "matrix product, mean": "weights averaged over the queries first",
        "weights averaged over queries": "weights averaged over the queries first",
        "class token's row": "the class token's look",
    },
}
