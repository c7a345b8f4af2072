"""Right answers to the exercises of lesson 08, written in different ways: no check may find fault with them."""

import math
from functools import reduce

import numpy as np
import torch
from einops import rearrange
from einops import reduce as pool
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


SOLUTIONS = {
    "seeing_numbers": (
        lambda: NUMBERS,
        lambda: NUMBERS | {"patch": divmod(19, 8), "rollout": torch.tensor([0.25, 0.5, 0.25]), "distance": 6.0},
        lambda: NUMBERS | {"patch": [2, 3], "relevance": np.array([1.2, 0.6, 0.0]), "distance": np.float32(6)},
    ),
    "class_attention": (class_by_einops, class_by_split, class_by_stack),
    "rollout": (rollout_by_reduce, rollout_by_einsum, rollout_by_images, rollout_divided_where_needed),
    "relevance_matrix": (relevance_by_relu, relevance_by_product, relevance_by_loops),
    "position_similarity": (positions_by_torch, positions_by_lengths, positions_by_diagonal),
    "attention_distance": (
        distance_by_cdist,
        distance_by_loops,
        distance_by_numpy_places,
        distance_by_what_the_class_token_leaves,
    ),
}
