"""Checks of lesson 15: RMS norm, the gated MLP, rotary positions and attention pooling, by hand."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import linear, pad, silu

from vit_tutorial.checks.engine import (
    Case,
    Exercise,
    Forbidden,
    Mistake,
    Question,
    call,
    normal,
    pencil,
)
from vit_tutorial.variants import modern

_SCALE = "Layer scale"
_REGISTERS = "Registers"
_GATED = "Gated MLP"
_ROTARY = "Rotary positions"
_RMS = "RMS norm, and no bias for the keys"
_POOL = "Attention pooling"

# ---- With a pencil -----------------------------------------------------------------------------------------------

MODERN_NUMBERS = pencil(
    "modern_numbers",
    lesson="15",
    points=3,
    tolerance=0.006,
    questions={
        "gated width": Question(
            128,
            "A plain MLP has two matrices of D · M numbers. How many such matrices has a gated one?",
            _GATED,
            {192: "a plain MLP's width. Gate, value and output are three matrices, not two: M gets smaller."},
        ),
        "tokens": Question(
            145,
            "Count the patches: rows times columns. Then add what stands before them.",
            _REGISTERS,
            {141: "the registers forgotten. Registers are tokens: each goes through every block."},
        ),
        "rms": Question(
            [0.333, -0.333, 1, 1.667],
            "Square the four numbers, take the mean of the squares and the root of it. Divide each number by that.",
            _RMS,
            {
                (-0.4472, -1.3416, 0.4472, 1.3416): "layer norm in place of RMS norm. RMS norm doesn't subtract the "
                "mean.",
                (1 / 9, -1 / 9, 1 / 3, 5 / 9): "a root forgotten. The mean of the squares is 9. Divide by its root.",
            },
        ),
        "rotated": Question(
            [-4, 3],
            "Rotated by α, (a, b) becomes (a cos α - b sin α, b cos α + a sin α). Here cos α = 0 and sin α = 1.",
            _ROTARY,
            {(4, -3): "a rotation the other way. The first number becomes a cos α - b sin α."},
        ),
        "layer scale": Question(
            9216,
            "A vector as long as a token for each branch. How many branches has a block?",
            _SCALE,
            {4608: "one vector a block. A block has two branches, attention and MLP, each with its own vector."},
        ),
        "folded": Question([1, 2, 1.5], "γ (w · x + b) = (γ w) · x + γ b."),
    },
)


# ---- RMS norm ----------------------------------------------------------------------------------------------------


def _rms_cases() -> list[Case]:
    asked: list[tuple[tuple[int, ...], float, float, float]] = [
        ((4, 6), 1.0, 0.0, 1e-6), ((2, 3, 8), 1.0, 0.0, 0.1), ((5, 5), 1.0, 2.0, 1e-6),
        ((2, 4, 3, 4), 0.001, 0.0, 1e-6), ((7,), 1.0, 0.0, 1e-6), ((3, 1), 1.0, 0.0, 0.1), ((1, 2, 80), 1.0, 1.0, 1e-6),
        ((2, 1, 3, 2, 5), 3000.0, 0.0, 1e-6), ((3, 4), 1e-4, 0.0, 1e-9),
    ]  # fmt: skip
    made = []
    for shape, spread, mean, eps in asked:
        label = f"x {shape}, std {spread:g}, mean {mean:g}, eps {eps:g}"
        made.append(Case(label, (mean + spread * normal(*shape), normal(shape[-1], seed=1), eps)))
    zeros = normal(3, 4) * torch.tensor([[1.0], [0.0], [2.0]])
    return [*made, Case("x (3, 4), a token of zeros", (zeros, normal(4, seed=1), 1e-6))]


def _rms(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return x / (x.square().mean(-1, keepdim=True) + eps).sqrt() * weight


RMS_NORM = Exercise(
    name="rms_norm",
    lesson="15",
    points=2,
    takes="fn(x, weight, eps): (..., D), (D,), a number -> (..., D)",
    right=_rms,
    cases=_rms_cases,
    observe=call,
    forbidden=(Forbidden("rms_norm", "write the norm yourself"),),
    mistakes=(
        Mistake(
            name="layer norm",
            says="You subtract the mean. RMS norm doesn't: square the numbers as they are.",
            reread=_RMS,
            wrong=lambda x, weight, eps: _rms(x - x.mean(-1, keepdim=True), weight, eps),
        ),
    ),
)


# ---- The gated MLP -----------------------------------------------------------------------------------------------


def _gated_cases() -> list[Case]:
    made = []
    sizes: list[tuple[tuple[int, ...], int]] = [((3, 5), 4), ((2, 3, 4), 6), ((2, 4, 4), 4), ((5,), 3), ((2, 1, 3), 1),
                                                ((1, 72), 45), ((2, 3, 1, 2, 4), 5), ((6, 2), 3)]  # fmt: skip
    for shape, M in sizes:
        D = shape[-1]
        weights = [normal(*size, seed=i + 1) for i, size in enumerate([(2 * M, D), (2 * M,), (D, M), (D,)])]
        made.append(Case(f"x {shape}, M={M}", (2 * normal(*shape), *weights)))
    made.append(Case("x (6, 2), M=3, large numbers", (200 * normal(6, 2), *weights)))  # exp(x) is more than float32 has
    return made


def _halves(hidden: Tensor) -> tuple[Tensor, ...]:
    return hidden.chunk(2, dim=-1)


def _gated(x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor) -> Tensor:
    gate, value = _halves(linear(x, w1, b1))
    return linear(silu(gate) * value, w2, b2)


GATED_MLP = Exercise(
    name="gated_mlp",
    lesson="15",
    points=3,
    takes="fn(x, w1, b1, w2, b2): (..., D), (2M, D), (2M,), (D, M), (D,) -> (..., D)",
    right=_gated,
    cases=_gated_cases,
    observe=call,
    forbidden=(modern.ModernMLP,),
    mistakes=(
        Mistake(
            name="gate and value exchanged",
            says="The first M numbers are the gate, which goes through SiLU; the others are the value.",
            reread=_GATED,
            wrong=lambda x, w1, b1, w2, b2: _gated(x, w1.roll(len(w1) // 2, 0), b1.roll(len(b1) // 2, 0), w2, b2),
        ),
        Mistake(
            name="a gate without SiLU",
            says="silu(gate) · value.",
            reread=_GATED,
            wrong=lambda x, w1, b1, w2, b2: linear(torch.mul(*_halves(linear(x, w1, b1))), w2, b2),
        ),
    ),
)


# ---- Rotary positions --------------------------------------------------------------------------------------------


def _angle_cases() -> list[Case]:
    asked = [(2, 3, 8, 100.0), (3, 2, 8, 100.0), (3, 2, 12, 10_000.0), (4, 4, 8, 100.0), (1, 9, 16, 50.0),
             (3, 4, 4, 100.0), (2, 3, 8, 10.0), (1, 1, 8, 100.0), (13, 12, 40, 100.0), (2, 2, 64, 100_000.0),
             (33, 2, 8, 100.0), (2, 5, 8, 2.0)]  # fmt: skip
    return [Case(f"{R} × {C} patches, d={d}, temperature={t:g}", (R, C, d, t)) for R, C, d, t in asked]


def _angles(rows: int, columns: int, head_dim: int, temperature: float) -> Tensor:
    n = torch.arange(rows * columns)[:, None]
    f = temperature ** (-4 * torch.arange(head_dim // 4) / head_dim)
    return torch.cat([n // columns * f, n % columns * f], dim=1)  # (N, d/2)


ROTARY_ANGLES = Exercise(
    name="rotary_angles",
    lesson="15",
    points=3,
    takes="fn(rows, columns, head_dim, temperature) -> (N, d / 2), radians",
    right=_angles,
    cases=_angle_cases,
    observe=call,
    tolerance=2e-6,
    forbidden=(modern.Rotary.angles,),
)


def _rotate_cases() -> list[Case]:
    # The shape of x, and how many tokens come before the patches.
    asked = [((1, 2, 6, 4), 0), ((2, 3, 7, 8), 1), ((2, 2, 9, 12), 5), ((3, 1, 5, 4), 2),
             ((1, 4, 5, 2), 1),  # as many heads as angles, and more tokens
             ((4, 4, 4, 4), 0), ((2, 2, 1, 4), 0), ((1, 12, 45, 4), 3), ((1, 2, 3, 64), 1), ((2, 1, 8, 4), 4),
             ((1, 3, 14, 6), 9), ((1, 2, 20, 2), 17)]  # fmt: skip
    made = []
    for (B, h, T, d), before in asked:
        angles = 2 * normal(T - before, d // 2, seed=1)
        label = f"x {(B, h, T, d)}, angles {(T - before, d // 2)}"
        made.append(Case(label, (normal(B, h, T, d), angles)))
    many = 10 * normal(2, 2, 5, 6, seed=2), 30 * normal(4, 3, seed=3)  # as far down and right in a large image
    return [*made, Case("x (2, 2, 5, 6), angles (4, 3), many full rotations", many)]


def _rotate(x: Tensor, angles: Tensor) -> Tensor:
    angles = pad(angles, (0, 0, x.shape[-2] - len(angles), 0))  # (T, d/2), the first tokens stay as they are
    (a, b), cos, sin = _halves(x), angles.cos(), angles.sin()
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


def _rotate_neighbours(x: Tensor, angles: Tensor) -> Tensor:
    """The rotation of numbers 2i and 2i + 1."""
    pairs = x.unflatten(-1, (-1, 2)).mT.flatten(-2)  # the first ones of all pairs, then the second ones
    return _rotate(pairs, angles).unflatten(-1, (2, -1)).mT.flatten(-2)


def _rotate_all(x: Tensor, angles: Tensor) -> Tensor:
    """The first tokens get the first patch's angles."""
    return _rotate(x, torch.cat([angles[:1].expand(x.shape[-2] - len(angles), -1), angles]))


ROTATE = Exercise(
    name="rotate",
    lesson="15",
    points=3,
    takes="fn(x, angles): (B, h, T, d), (N, d / 2) with N <= T -> (B, h, T, d)",
    right=_rotate,
    cases=_rotate_cases,
    observe=call,
    forbidden=(modern.rotate,),
    mistakes=(
        Mistake(
            name="neighbours in place of halves",
            says="Number i is paired with number i + d/2 here, not 2i with 2i + 1.",
            reread="Neighbours or halves.",
            wrong=_rotate_neighbours,
        ),
        Mistake(
            name="a turn the other way",
            says="a cos - b sin in the first half, b cos + a sin in the second.",
            reread=_ROTARY,
            wrong=lambda x, angles: _rotate(x, -angles),
        ),
        Mistake(
            name="the class token with the first patch's angles",
            says="The tokens before the patches have no place in the image: leave them as they are.",
            reread="The class token rotated, too.",
            wrong=_rotate_all,
        ),
        Mistake(
            name="the first tokens rotated in place of the last",
            says="The class token comes first and has no place: the last N tokens are the patches.",
            reread="The class token rotated, too.",
            wrong=lambda x, angles: torch.cat(
                [_rotate(x[..., : len(angles), :], angles), x[..., len(angles) :, :]], dim=-2
            ),
        ),
    ),
)


# ---- Attention pooling -------------------------------------------------------------------------------------------


def _pool_cases() -> list[Case]:
    made = []
    sizes = [((2, 5, 6), 1), ((3, 4, 8), 2), ((1, 7, 12), 3), ((4, 3, 4), 4), ((4, 4, 4), 2), ((2, 1, 6), 3),
             ((1, 45, 24), 12), ((9, 70, 16), 4), ((5, 5, 8), 2)]  # fmt: skip
    for (B, S, D), heads in sizes:
        given = [normal(*size, seed=i + 1) for i, size in enumerate([(D,), (D, D), (D, D), (D, D)])]
        given[1] = given[1] / math.sqrt(D)  # soft weights, so that each token counts in each image
        made.append(Case(f"z {(B, S, D)}, num_heads={heads}", (normal(B, S, D), *given, heads)))
    hard = [300 * given[0], *given[1:]]  # exp of these scores is more than float32 has
    made.append(Case("z (5, 5, 8), num_heads=2, large scores", (normal(5, 5, 8), *hard, 2)))
    return made


def _by_heads(x: Tensor, num_heads: int) -> Tensor:
    return x.unflatten(-1, (num_heads, -1)).transpose(-2, -3)  # (..., S, D) -> (..., h, S, d)


def _pooled(
    split: Callable[[Tensor, int], Tensor] = _by_heads,
    scale: Callable[[int, int], float] = lambda D, h: math.sqrt(D / h),
) -> Callable[..., Tensor]:
    """Attention pooling with other heads or scale."""

    def attention_pool(z: Tensor, probe: Tensor, wq: Tensor, wk: Tensor, wv: Tensor, num_heads: int) -> Tensor:
        made = probe[None] @ wq.T, z @ wk.T, z @ wv.T
        q, k, v = (split(x, num_heads) for x in made)  # (h, 1, d), (B, h, S, d) twice
        weights = (q @ k.mT / scale(z.shape[-1], num_heads)).softmax(dim=-1)  # (B, h, 1, S)
        return (weights @ v).transpose(-2, -3).flatten(2)[:, 0]  # (B, D)

    return attention_pool


ATTENTION_POOL = Exercise(
    name="attention_pool",
    lesson="15",
    points=3,
    takes="fn(z, probe, wq, wk, wv, num_heads): (B, S, D), (D,), three (D, D) -> (B, D)",
    right=_pooled(),
    cases=_pool_cases,
    observe=call,
    forbidden=(modern.AttentionPool,),
    mistakes=(
        Mistake(
            name="√D in place of √d",
            says="Each head has d = D / h numbers: divide by √d.",
            reread=_POOL,
            wrong=_pooled(scale=lambda D, h: math.sqrt(D)),
        ),
        Mistake(
            name="interleaved heads",
            says="Head 0 has the first d numbers, not every h-th one.",
            reread=_POOL,
            wrong=_pooled(split=lambda x, h: x.unflatten(-1, (-1, h)).movedim(-1, -3)),
        ),
    ),
)
