"""Checks of lesson 15: RMS norm, the gated MLP, rotary positions and attention pooling, by hand."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import gelu, linear, pad, silu

from vit_tutorial.checks.engine.exercise import Case, Exercise, Forbidden, Mistake
from vit_tutorial.checks.engine.functions import normal
from vit_tutorial.checks.engine.questions import Question, Slip, pencil
from vit_tutorial.variants import modern

_GATED = "Gated MLP"
_ROTARY = "Rotary positions, and another resolution"
_RMS = "RMS norm"
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
            "Gated MLP",
            {192: Slip("a plain MLP's width", "Gate, value and output are three matrices, not two: M gets smaller.")},
        ),
        "tokens": Question(145, "Count the patches: rows times columns. Then add what stands before them."),
        "rms": Question(
            [0.333, -0.333, 1, 1.667],
            "Square the four numbers, take the mean of the squares and the root of it. Divide each number by that.",
            _RMS,
            {
                (-0.4472, -1.3416, 0.4472, 1.3416): Slip(
                    "layer norm in place of RMS norm", "RMS norm doesn't subtract the mean."
                ),
                (1 / 9, -1 / 9, 1 / 3, 5 / 9): Slip(
                    "a root forgotten", "The mean of the squares is 9. Divide by its root."
                ),
            },
        ),
        "rotated": Question(
            [-4, 3],
            "Rotated by α, (a, b) becomes (a cos α - b sin α, b cos α + a sin α). Here cos α = 0 and sin α = 1.",
            _ROTARY,
            {(4, -3): Slip("a rotation the other way", "The first number becomes a cos α - b sin α.")},
        ),
        "layer scale": Question(9216, "A vector as long as a token for each branch. How many branches has a block?"),
        "folded": Question([1, 2, 1.5], "γ (w · x + b) = (γ w) · x + γ b."),
        "slopes": Question(
            [1, 0],
            "The derivative of tanh is 1 at 0, and 0 where tanh is flat. The 5 outside and the 5 inside cancel.",
            "A control that changes two things.",
            {
                (5, 0): Slip(
                    "a factor of 5 too many", "The chain rule multiplies by 1 / 5, which cancels the 5 outside."
                )
            },
        ),
    },
)


# ---- RMS norm ----------------------------------------------------------------------------------------------------


def _rms_cases() -> list[Case]:
    sizes: list[tuple[tuple[int, ...], float, float, float]] = [
        ((4, 6), 1.0, 0.0, 1e-6), ((2, 3, 8), 1.0, 2.0, 0.1), ((2, 4, 3, 4), 0.001, 0.0, 1e-6), ((7,), 1.0, 0.0, 1e-6)
    ]  # fmt: skip
    return [
        Case(
            f"x {shape}, std {std:g}, mean {mean:g}, eps {eps:g}",
            (mean + std * normal(*shape), normal(shape[-1], seed=1), eps),
        )
        for shape, std, mean, eps in sizes
    ]


def _rms(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return x / (x.square().mean(-1, keepdim=True) + eps).sqrt() * weight


RMS_NORM = Exercise(
    name="rms_norm",
    lesson="15",
    points=2,
    right=_rms,
    cases=_rms_cases,
    forbidden=(Forbidden("rms_norm", "write the norm yourself"),),
    mistakes=(
        Mistake(
            name="layer norm",
            says="You subtract the mean. RMS norm doesn't: square the numbers as they are.",
            reread=_RMS,
            wrong=lambda x, weight, eps: _rms(x - x.mean(-1, keepdim=True), weight, eps),
        ),
        Mistake(
            name="ε outside the root",
            says="√(mean of x² + ε): add ε first, then take the root.",
            reread=_RMS,
            wrong=lambda x, weight, eps: x / (x.square().mean(-1, keepdim=True).sqrt() + eps) * weight,
        ),
        Mistake(
            name="a root forgotten",
            says="You divide by the mean of the squares. Divide by its root.",
            reread=_RMS,
            wrong=lambda x, weight, eps: x / (x.square().mean(-1, keepdim=True) + eps) * weight,
        ),
        Mistake(
            name="the weight forgotten",
            says="At the end each number is multiplied by its learned weight.",
            reread=_RMS,
            wrong=lambda x, weight, eps: _rms(x, torch.ones_like(weight), eps),
        ),
    ),
)


# ---- The gated MLP -----------------------------------------------------------------------------------------------


def _gated_cases() -> list[Case]:
    cases = []
    sizes: list[tuple[tuple[int, ...], int]] = [((3, 5), 4), ((2, 3, 4), 6), ((5,), 3), ((2, 1, 3), 1)]
    for shape, M in sizes:
        D = shape[-1]
        weights = [normal(*size, seed=i + 1) for i, size in enumerate([(2 * M, D), (2 * M,), (D, M), (D,)])]
        cases.append(Case(f"x {shape}, M={M}", (2 * normal(*shape), *weights)))
    return cases


def _halves(hidden: Tensor) -> tuple[Tensor, ...]:
    return hidden.chunk(2, dim=-1)


def _gated(
    mix: Callable[[Tensor, Tensor], Tensor] = lambda gate, value: silu(gate) * value,
    cut: Callable[[Tensor], tuple[Tensor, ...]] = _halves,
) -> Callable[..., Tensor]:
    """The gated MLP with another mixture, or with gate and value elsewhere."""
    return lambda x, w1, b1, w2, b2: linear(mix(*cut(linear(x, w1, b1))), w2, b2)


GATED_MLP = Exercise(
    name="gated_mlp",
    lesson="15",
    points=3,
    right=_gated(),
    cases=_gated_cases,
    forbidden=(modern.ModernMLP,),
    mistakes=(
        Mistake(
            name="gate and value exchanged",
            says="The first M numbers are the gate, which goes through SiLU; the others are the value.",
            reread=_GATED,
            wrong=_gated(lambda gate, value: gate * silu(value)),
        ),
        Mistake(
            name="a gate without SiLU",
            says="silu(gate) · value.",
            reread=_GATED,
            wrong=_gated(torch.mul),
        ),
        Mistake(
            name="GELU in place of SiLU",
            says="The gate goes through a SiLU, x · sigmoid(x).",
            reread=_GATED,
            wrong=_gated(lambda gate, value: gelu(gate) * value),
        ),
        Mistake(
            name="even and odd numbers in place of halves",
            says="The first M rows of w1 make the gate, the last M the value: chunk(2, dim=-1).",
            reread=_GATED,
            wrong=_gated(cut=lambda hidden: (hidden[..., ::2], hidden[..., 1::2])),
        ),
    ),
)


# ---- Rotary positions --------------------------------------------------------------------------------------------


def _angles(rows: int, columns: int, head_dim: int, temperature: float) -> Tensor:
    n = torch.arange(rows * columns)[:, None]
    f = temperature ** (-4 * torch.arange(head_dim // 4) / head_dim)
    return torch.cat([n // columns * f, n % columns * f], dim=1)  # (N, d/2)


ROTARY_ANGLES = Exercise(
    name="rotary_angles",
    lesson="15",
    points=3,
    right=_angles,
    cases=lambda: [
        Case(f"{R} × {C} patches, d={d}, temperature={t:g}", (R, C, d, t))
        for R, C, d, t in [(2, 3, 8, 100.0), (3, 2, 12, 10_000.0), (1, 9, 16, 50.0), (4, 4, 4, 2.0)]
    ],
    tolerance=2e-6,
    forbidden=(modern.Rotary.angles,),
)


def _rotate_cases() -> list[Case]:
    # The shape of x, and how many tokens come before the patches.
    sizes = [((1, 2, 6, 4), 0), ((2, 3, 7, 8), 1), ((2, 2, 9, 12), 5), ((1, 4, 5, 2), 1)]
    cases = []
    for (B, h, T, d), before in sizes:
        angles = 2 * normal(T - before, d // 2, seed=1)
        label = f"x {(B, h, T, d)}, angles {(T - before, d // 2)}"
        cases.append(Case(label, (normal(B, h, T, d), angles)))
    return cases


def _rotate(x: Tensor, angles: Tensor) -> Tensor:
    angles = pad(angles, (0, 0, x.shape[-2] - len(angles), 0))  # (T, d/2), the first tokens stay as they are
    (a, b), cos, sin = _halves(x), angles.cos(), angles.sin()
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


def _with_neighbours(x: Tensor) -> Tensor:
    """Numbers 0, d/2, 1, d/2 + 1, …: halves become neighbours."""
    return x.unflatten(-1, (2, -1)).mT.flatten(-2)


def _rotate_neighbours(x: Tensor, angles: Tensor) -> Tensor:
    """The rotation of numbers 2i and 2i + 1."""
    pairs = x.unflatten(-1, (-1, 2)).mT.flatten(-2)  # the first ones of all pairs, then the second ones
    return _with_neighbours(_rotate(pairs, angles))


def _neighbours_out(x: Tensor, angles: Tensor) -> Tensor:
    before = x.shape[-2] - len(angles)
    return torch.cat([x[..., :before, :], _with_neighbours(_rotate(x[..., before:, :], angles))], dim=-2)


def _rotate_all(x: Tensor, angles: Tensor) -> Tensor:
    """The first tokens get the first patch's angles."""
    return _rotate(x, torch.cat([angles[:1].expand(x.shape[-2] - len(angles), -1), angles]))


ROTATE = Exercise(
    name="rotate",
    lesson="15",
    points=3,
    right=_rotate,
    cases=_rotate_cases,
    forbidden=(modern.rotate,),
    mistakes=(
        Mistake(
            name="neighbours in place of halves",
            says="Number i is paired with number i + d/2 here, not 2i with 2i + 1.",
            reread=_ROTARY,
            wrong=_rotate_neighbours,
        ),
        Mistake(
            name="halves that come back as neighbours",
            says="Both numbers of a pair go back to their places, i and i + d/2: join the halves with torch.cat.",
            reread=_ROTARY,
            wrong=_neighbours_out,
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
            reread=_ROTARY,
            wrong=_rotate_all,
        ),
    ),
)


# ---- Attention pooling -------------------------------------------------------------------------------------------


def _pool_cases() -> list[Case]:
    cases = []
    for (B, S, D), heads in [((2, 5, 6), 1), ((3, 4, 8), 2), ((1, 7, 12), 3)]:
        vectors = [normal(*size, seed=i + 1) for i, size in enumerate([(D,), (D, D), (D, D), (D, D)])]
        vectors[1] = vectors[1] / math.sqrt(D)  # soft weights, so that each token counts in each image
        cases.append(Case(f"z {(B, S, D)}, num_heads={heads}", (normal(B, S, D), *vectors, heads)))
    return cases


def _pooled(z: Tensor, probe: Tensor, wq: Tensor, wk: Tensor, wv: Tensor, num_heads: int) -> Tensor:
    projected = probe[None] @ wq.T, z @ wk.T, z @ wv.T
    q, k, v = (x.unflatten(-1, (num_heads, -1)).transpose(-2, -3) for x in projected)  # (h, 1, d), (B, h, S, d) twice
    weights = (q @ k.mT / math.sqrt(q.shape[-1])).softmax(dim=-1)  # (B, h, 1, S)
    return (weights @ v).transpose(-2, -3).flatten(2)[:, 0]  # (B, D)


def _interleaved(z: Tensor, probe: Tensor, wq: Tensor, wk: Tensor, wv: Tensor, num_heads: int) -> Tensor:
    wq, wk, wv = (w.unflatten(0, (-1, num_heads)).transpose(0, 1).flatten(0, 1) for w in (wq, wk, wv))
    return _pooled(z, probe, wq, wk, wv, num_heads)


ATTENTION_POOL = Exercise(
    name="attention_pool",
    lesson="15",
    points=3,
    right=_pooled,
    cases=_pool_cases,
    forbidden=(modern.AttentionPool,),
    mistakes=(
        Mistake(
            name="√D in place of √d",
            says="Each head has d = D / h numbers: divide by √d.",
            reread=_POOL,
            wrong=lambda z, probe, *others: _pooled(z, probe / math.sqrt(others[-1]), *others),
        ),
        Mistake(
            name="interleaved heads",
            says="The first head has the first d numbers, not every h-th one.",
            reread=_POOL,
            wrong=_interleaved,
        ),
    ),
)
