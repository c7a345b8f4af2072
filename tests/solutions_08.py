"""Works for the exercises of lesson 08: right ones, in different ways, and wrong ones."""

import math
from functools import reduce

import torch
from einops import rearrange
from einops import reduce as pool
from submissions import Wrong
from torch.nn import functional as F

NUMBERS = {"patch": (2, 3), "rollout": [0.25, 0.5, 0.25], "relevance": [1.2, 0.6, 0], "distance": 6}


def class_by_einops(weights, grid):
    return rearrange(weights[..., 0, 1:], "... (r c) -> ... r c", r=grid[0], c=grid[1])


def class_by_split(weights, grid):
    _, row = weights.select(-2, 0).split([1, grid[0] * grid[1]], dim=-1)
    return row.reshape(*row.shape[:-1], *grid)


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


def positions_by_diagonal(position):
    gram = torch.einsum("bnd,bmd->nm", position, position)[1:, 1:]
    root = gram.diagonal().sqrt()
    return gram / root / root[:, None]


def distance_by_cdist(weights, grid, patch_size):
    rows, columns = torch.meshgrid(torch.arange(grid[0]), torch.arange(grid[1]), indexing="ij")
    places = torch.stack([rows.flatten() * patch_size[0], columns.flatten() * patch_size[1]], dim=-1).float()
    w = weights[..., 1:, 1:]
    return (w / w.sum(-1, keepdim=True) * torch.cdist(places, places)).sum(-1).mean(-1)


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


# ---- Wrong ones --------------------------------------------------------------------------------------------------


def looks(row=lambda w: w[..., 0, 1:], lay=lambda row, grid: row.unflatten(-1, grid)):
    return lambda weights, grid: lay(row(weights), grid)


def one(x):
    return x / x.sum(-1, keepdim=True)


def roll(*, factor=lambda w, eye: one(0.5 * w + 0.5 * eye), which=lambda layers: layers, end=lambda R: R):
    def rollout(weights, fusion):
        eye = torch.eye(weights.shape[-1])
        R = eye
        for w in which(list(weights)):
            R = factor(w.amax(1) if fusion == "max" else w.mean(1), eye) @ R
        return end(R)

    return rollout


def relate(*, part=lambda g, w: (g * w).clamp(min=0).mean(1), step=lambda E, R: R + E @ R):
    def relevance_matrix(weights, gradients):
        R = torch.eye(weights[0].shape[-1]).repeat(len(weights[0]), 1, 1)
        for w, g in zip(weights, gradients, strict=True):
            R = step(part(g, w), R)
        return R

    return relevance_matrix


def cosines(x):
    x = x / x.norm(dim=-1, keepdim=True)
    return x @ x.mT


def reach(
    *,
    weigh=lambda w: one(w[..., 1:, 1:]),
    place=lambda n, grid, size: torch.stack([n // grid[1] * size[0], n % grid[1] * size[1]], 1),
    join=lambda w, away: (w * away).sum(-1).mean(-1),
):
    def attention_distance(weights, grid, patch_size):
        w = weigh(weights)
        places = place(torch.arange(w.shape[-1]), grid, patch_size).to(w.dtype)
        return join(w, (places[:, None] - places).norm(dim=-1))

    return attention_distance


def kept_by_shape(work):
    """The first answer for each shape of the first argument, again and again."""
    kept = {}

    def answer(x, *more):
        shape = tuple(x.shape) if isinstance(x, torch.Tensor) else tuple(x[0].shape)
        if shape not in kept:
            kept[shape] = work(x, *more)
        return kept[shape]

    return answer


def squeezed(work):
    """Axes of length 1 are lost."""
    return lambda x, *more: work(x, *more).squeeze()


def answered(question, *answers):
    """A wrong work for each answer to a question."""
    return [Wrong(f"{question}: {x}", lambda x=x: NUMBERS | {question: x}) for x in answers]


RIGHT = {
    "seeing_numbers": (lambda: NUMBERS,),
    "class_attention": (class_by_einops, class_by_split),
    "rollout": (rollout_by_einsum, rollout_by_images),
    "relevance_matrix": (relevance_by_relu, relevance_by_product),
    "position_similarity": (positions_by_torch, positions_by_diagonal),
    "attention_distance": (distance_by_cdist, distance_by_loops),
}

WRONG = {
    "seeing_numbers": [
        *answered("patch", (2, 2), (3, 2), (20,), 19),
        *answered("rollout", [0.25, 0, 0], [0.25, 0.5], 0.25),
        *answered("relevance", [1.2, 0.6, 2], [1.2, 0.6]),
        *answered("distance", 8, 6.4),
    ],
    "class_attention": [
        Wrong("a transpose", looks(lay=lambda row, grid: row.unflatten(-1, grid).mT), "axes 3 and 4 are exchanged"),
    ],
    "rollout": [
        Wrong("no keepdim", roll(factor=lambda w, eye: (w + eye) / (w + eye).sum(-1)), "The rows should sum to 1"),
    ],
    "relevance_matrix": [
        Wrong("one layer forgotten", lambda w, g: relate()(w, g) if len(w) > 1 else w[0].mean(1), "1 layer of"),
        Wrong("kept", kept_by_shape(relevance_by_loops), "the result of a second call with other inputs"),
    ],
    "position_similarity": [
        Wrong("with a batch", lambda p: cosines(p[:, 1:]), "has shape"),
    ],
    "attention_distance": [
        Wrong("no keepdim", reach(weigh=lambda w: w[..., 1:, 1:] / w[..., 1:, 1:].sum(-1)), "raised RuntimeError"),
        Wrong("mean over heads", reach(join=lambda w, away: (w * away).sum(-1).mean((-2, -1))), "has shape"),
        Wrong("squeezed", squeezed(distance_by_loops), "First seen"),
    ],
}
