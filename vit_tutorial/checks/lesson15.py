"""Checks of lesson 15: RMS norm, the gated MLP, rotary positions and attention pooling, by hand."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import gelu, silu

from vit_tutorial.checks.harness import Case, Exercise, Forbidden, Slip, answers, call, check, normal, section
from vit_tutorial.variants import modern

__all__ = [
    "check_attention_pool",
    "check_gated_mlp",
    "check_modern_numbers",
    "check_rms_norm",
    "check_rotary_angles",
    "check_turn",
]

_SCALE = "1 · Layer scale: a block that begins by doing almost nothing"
_REGISTERS = "2 · Registers: scratch paper"
_GATED = "4 · Gated MLP"
_ROTARY = "5 · Rotary positions: places that fit every size"
_RMS = "7 · What can go: a bias, a mean"
_POOL = "8 · What is read out"

# ---- With a pencil -----------------------------------------------------------------------------------------------

NUMBERS = {
    "gated width": 128,  # 3 · 64 · M = 2 · 64 · 192
    "tokens": 145,  # 14 · 10 patches, one class token, four registers
    "rms": [1 / 3, -1 / 3, 1, 5 / 3],  # the root of (1 + 1 + 9 + 25) / 4 is 3
    "turned": [-4, 3],  # (3, 4) by a quarter turn
    "layer scale": 9216,  # 2 branches · 12 blocks · 384
    "folded": [1, 2, 1.5],  # (2, 4) and 3, times 0.5
}


MODERN_NUMBERS = Exercise(
    name="modern_numbers",
    lesson="15",
    points=3,
    right=NUMBERS,
    cases=lambda: [Case(question, (question,)) for question in NUMBERS],
    observe=answers,
    tolerance=0.006,
    secret=True,
    advice={
        "gated width": "A plain MLP has two matrices of D · M numbers. How many such matrices has a gated one?",
        "tokens": "Count the patches: rows times columns. Then add what stands before them.",
        "rms": "Square the four numbers, take the mean of the squares and the root of it. Divide each number by that.",
        "turned": "Turned by α, (a, b) becomes (a cos α - b sin α, b cos α + a sin α). Here cos α = 0 and sin α = 1.",
        "layer scale": "A vector as long as a token for each branch. How many branches has a block?",
        "folded": "γ (w · x + b) = (γ w) · x + γ b.",
    },
    mistakes=(
        *section(
            _GATED,
            (
                "the second first layer forgotten",
                "Gate, value and output are three matrices, not two: M gets smaller.",
                {"gated width": 192},
            ),
            ("half the width", "The last matrix counts, too: 3 · D · M must equal 2 · D · 192.", {"gated width": 96}),
        ),
        *section(
            _REGISTERS,
            ("the registers forgotten", "Registers are tokens: each goes through every block.", {"tokens": 141}),
            (
                "the class token forgotten",
                "Registers come beside the class token; they don't replace it.",
                {"tokens": 144},
            ),
            ("a square image", "The image has 224 × 160 pixels: 14 rows, but 10 columns of patches.", {"tokens": 201}),
        ),
        *section(
            _RMS,
            (
                "layer norm in place of RMS norm",
                "You subtracted the mean. RMS norm doesn't.",
                {"rms": [-0.4472, -1.3416, 0.4472, 1.3416]},
            ),
            (
                "a division by the length",
                "You divided by the root of the sum of squares, 6. Use the root of their mean, 3.",
                {"rms": [1 / 6, -1 / 6, 1 / 2, 5 / 6]},
            ),
            (
                "a root forgotten",
                "You divided by the mean of the squares, 9. Divide by its root.",
                {"rms": [1 / 9, -1 / 9, 1 / 3, 5 / 9]},
            ),
        ),
        *section(
            _ROTARY,
            (
                "a turn the other way",
                "You turned clockwise. The first number becomes a cos α - b sin α.",
                {"turned": [4, -3]},
            ),
            (
                "an exchange without a sign",
                "A quarter turn exchanges the two numbers, and one changes its sign.",
                {"turned": [4, 3]},
            ),
        ),
        *section(
            _SCALE,
            (
                "one vector a block",
                "A block has two branches, attention and MLP, each with its own vector.",
                {"layer scale": 4608},
            ),
            (
                "the bias left as it was",
                "γ multiplies all that the layer returns, its bias included.",
                {"folded": [1, 2, 3]},
            ),
        ),
    ),
)


def check_modern_numbers(fn: Callable[[], Mapping[str, Any]]) -> bool:
    """Check the answers found with a pencil: ``fn()`` returns them in a dictionary."""
    return check(MODERN_NUMBERS, fn)


# ---- RMS norm ----------------------------------------------------------------------------------------------------


def _rms_cases() -> list[Case]:
    asked = [
        ((4, 6), 1.0, 0.0, 1e-6),
        ((2, 3, 8), 1.0, 0.0, 0.1),
        ((5, 5), 1.0, 2.0, 1e-6),
        ((2, 4, 3, 4), 0.001, 0.0, 1e-6),
        ((7,), 1.0, 0.0, 1e-6),
        ((3, 1), 1.0, 0.0, 0.1),
        ((1, 2, 80), 1.0, 1.0, 1e-6),
        ((2, 1, 3, 2, 5), 3000.0, 0.0, 1e-6),
        ((3, 4), 1e-4, 0.0, 1e-9),
    ]
    made = []
    for shape, spread, mean, eps in asked:
        label = f"x {shape}, std {spread:g}, mean {mean:g}, eps {eps:g}"
        made.append(Case(label, (mean + spread * normal(*shape), normal(shape[-1], seed=1), eps)))
    zeros = normal(3, 4) * torch.tensor([[1.0], [0.0], [2.0]])
    return [*made, Case("x (3, 4), a token of zeros", (zeros, normal(4, seed=1), 1e-6))]


def _rms(
    mean: Callable[[Tensor], Tensor] = lambda x: x.square().mean(-1, keepdim=True),
    root: Callable[[Tensor, float], Tensor] = lambda mean, eps: (mean + eps).sqrt(),
    centre: Callable[[Tensor], Tensor] = lambda x: x,
    finish: Callable[[Tensor, Tensor], Tensor] = lambda x, weight: x * weight,
) -> Callable[..., Tensor]:
    """RMS norm with another mean or root to divide by, a centre, or another use of the weight."""

    def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
        x = centre(x)
        return finish(x / root(mean(x), eps), weight)

    return rms_norm


RMS_NORM = Exercise(
    name="rms_norm",
    lesson="15",
    points=2,
    right=_rms(),
    cases=_rms_cases,
    observe=call,
    forbidden=tuple(Forbidden(name, "write the norm yourself") for name in ("rms_norm", "_fused_rms_norm")),
    mistakes=section(
        _RMS,
        (
            "layer norm",
            "You subtract the mean. RMS norm doesn't: square the numbers as they are.",
            Slip(_rms, centre=lambda x: x - x.mean(-1, keepdim=True)),
        ),
        (
            "a division by the standard deviation",
            "std and var subtract the mean inside. RMS norm takes the mean of the squares of x itself.",
            Slip(_rms, mean=lambda x: x.var(-1, correction=0, keepdim=True)),
        ),
        (
            "the sum of squares in place of their mean",
            "Without the weight, your rows would have length 1. Divide by the root of the mean of the squares.",
            Slip(_rms, mean=lambda x: x.square().sum(-1, keepdim=True)),
        ),
        (
            "eps outside the root",
            "Where the numbers are small it counts: √(mean of squares + eps), not √(mean of squares) + eps.",
            Slip(_rms, root=lambda mean, eps: mean.sqrt() + eps),
        ),
        (
            "eps left out",
            "Add eps to the mean of the squares, inside the root: a row of zeros would be divided by 0.",
            Slip(_rms, root=lambda mean, eps: mean.sqrt()),
        ),
        (
            "an eps of its own",
            "Use the argument eps: models have different ones.",
            Slip(_rms, root=lambda mean, eps: (mean + 1e-5).sqrt()),
        ),
        (
            "a root forgotten",
            "You divide by the mean of the squares. Divide by its root.",
            Slip(_rms, root=lambda mean, eps: mean + eps),
        ),
        (
            "one size for all tokens",
            "You average over the whole of x. Average over the last axis alone, with keepdim=True.",
            Slip(_rms, mean=lambda x: x.square().mean()),
        ),
        (
            "a mean over the tokens",
            "You average over axis -2, the tokens. Each token is normalised by itself: axis -1.",
            Slip(_rms, mean=lambda x: x.square().mean(-2, keepdim=True)),
        ),
        (
            "a weight that counts from 1",
            "Some language models store weight - 1. Here the weight multiplies as it is.",
            Slip(_rms, finish=lambda x, weight: x * (1 + weight)),
        ),
    ),
)


def check_rms_norm(fn: Callable[..., Tensor]) -> bool:
    """Check ``fn(x, weight, eps)``: (..., D), (D,), a number -> (..., D)."""
    return check(RMS_NORM, fn)


# ---- The gated MLP -----------------------------------------------------------------------------------------------


def _gated_cases() -> list[Case]:
    made = []
    for shape, M in [
        ((3, 5), 4),
        ((2, 3, 4), 6),
        ((2, 4, 4), 4),
        ((5,), 3),
        ((2, 1, 3), 1),
        ((1, 72), 45),
        ((2, 3, 1, 2, 4), 5),
        ((6, 2), 3),
    ]:
        D = shape[-1]
        weights = [normal(*size, seed=i + 1) for i, size in enumerate([(2 * M, D), (2 * M,), (D, M), (D,)])]
        made.append(Case(f"x {shape}, M={M}", (2 * normal(*shape), *weights)))
    made.append(Case("x (6, 2), M=3, large numbers", (200 * normal(6, 2), *weights)))  # exp(x) is more than float32 has
    return made


def _halves(hidden: Tensor) -> tuple[Tensor, ...]:
    return hidden.chunk(2, dim=-1)


def _gated(
    first: Callable[[Tensor, Tensor, Tensor], Tensor] = torch.nn.functional.linear,
    cut: Callable[[Tensor], tuple[Tensor, ...]] = _halves,
    mix: Callable[[Tensor, Tensor], Tensor] = lambda gate, value: silu(gate) * value,
    last: Callable[[Tensor, Tensor, Tensor], Tensor] = torch.nn.functional.linear,
) -> Callable[..., Tensor]:
    """A gated MLP with another first layer, cut, mixture or last layer."""

    def gated_mlp(x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor) -> Tensor:
        gate, value = cut(first(x, w1, b1))
        return last(mix(gate, value), w2, b2)

    return gated_mlp


GATED_MLP = Exercise(
    name="gated_mlp",
    lesson="15",
    points=3,
    right=_gated(),
    cases=_gated_cases,
    observe=call,
    forbidden=(modern.ModernMLP,),
    mistakes=(
        *section(
            "Gate and value exchanged.",
            (
                "gate and value exchanged",
                "The first M rows of w1 are the gate's, and the SiLU is on the gate. No shape tells the two apart.",
                Slip(_gated, cut=lambda hidden: _halves(hidden)[::-1]),
            ),
        ),
        *section(
            _GATED,
            (
                "a GELU on the gate",
                "That is GEGLU, another gated MLP. SwiGLU has a SiLU: x · sigmoid(x).",
                Slip(_gated, mix=lambda gate, value: gelu(gate) * value),
            ),
            (
                "a sigmoid on the gate",
                "That is the gated linear unit of 2016. The SiLU is gate · sigmoid(gate).",
                Slip(_gated, mix=lambda gate, value: gate.sigmoid() * value),
            ),
            (
                "a gate without its activation function",
                "You multiply gate and value as they are. The SiLU is missing on the gate.",
                Slip(_gated, mix=lambda gate, value: gate * value),
            ),
            (
                "an activation function on both halves",
                "The SiLU is on the gate alone. The value comes as it is.",
                Slip(_gated, mix=lambda gate, value: silu(gate) * silu(value)),
            ),
            (
                "an activation function after the product",
                "The SiLU is on the gate, before it is multiplied.",
                Slip(_gated, mix=lambda gate, value: silu(gate * value)),
            ),
            (
                "a sum of gate and value",
                "The gate opens and closes the value: multiply the two.",
                Slip(_gated, mix=lambda gate, value: silu(gate) + value),
            ),
            (
                "rows that alternate",
                "You took every other row for the gate. The gate's M rows come first, then the value's.",
                Slip(_gated, cut=lambda hidden: (hidden[..., ::2], hidden[..., 1::2])),
            ),
            (
                "the first bias forgotten",
                "The first layer has a bias, b1, for gate and value alike.",
                Slip(_gated, first=lambda x, w1, b1: x @ w1.T),
            ),
            (
                "a second layer that isn't transposed",
                "torch's weight is (out, in): y @ w2.T. Where D equals M, nothing complains.",
                Slip(_gated, last=lambda y, w2, b2: y @ w2 + b2),
            ),
        ),
    ),
)


def check_gated_mlp(fn: Callable[..., Tensor]) -> bool:
    """Check ``fn(x, w1, b1, w2, b2)``: (..., D), (2M, D), (2M,), (D, M), (D,) -> (..., D)."""
    return check(GATED_MLP, fn)


# ---- Rotary positions --------------------------------------------------------------------------------------------


def _angle_cases() -> list[Case]:
    asked = [
        (2, 3, 8, 100.0),
        (3, 2, 8, 100.0),
        (3, 2, 12, 10_000.0),
        (4, 4, 8, 100.0),
        (1, 9, 16, 50.0),
        (3, 4, 4, 100.0),
        (2, 3, 8, 10.0),
        (1, 1, 8, 100.0),
        (13, 12, 40, 100.0),
        (2, 2, 64, 100_000.0),
        (33, 2, 8, 100.0),
        (2, 5, 8, 2.0),
    ]
    return [Case(f"{R} × {C} patches, d={d}, temperature={t:g}", (R, C, d, t)) for R, C, d, t in asked]


def _falling(head_dim: int, temperature: float) -> Tensor:
    return temperature ** (-4 * torch.arange(head_dim // 4) / head_dim)


def _angles(
    places: Callable[[Tensor, int, int], tuple[Tensor, Tensor]] = lambda n, rows, columns: (n // columns, n % columns),
    frequency: Callable[[int, float], Tensor] = _falling,
    give: Callable[[Tensor, Tensor], Tensor] = lambda row, column: torch.cat([row, column], dim=1),
) -> Callable[..., Tensor]:
    """Rotary angles from other places, with other frequencies, or put together in another way."""

    def rotary_angles(rows: int, columns: int, head_dim: int, temperature: float) -> Tensor:
        row, column = places(torch.arange(rows * columns), rows, columns)  # (N,) each
        f = frequency(head_dim, temperature)
        return give(row[:, None] * f, column[:, None] * f)  # (N, d/2)

    return rotary_angles


ROTARY_ANGLES = Exercise(
    name="rotary_angles",
    lesson="15",
    points=3,
    right=_angles(),
    cases=_angle_cases,
    observe=call,
    tolerance=2e-6,
    forbidden=(modern.Rotary.angles,),
    mistakes=section(
        _ROTARY,
        (
            "patches divided by the number of rows",
            "A row is as long as there are columns: patch n is in row n // columns and column n % columns.",
            Slip(_angles, places=lambda n, rows, columns: (n // rows, n % rows)),
        ),
        (
            "columns before rows",
            "The first half of the pairs turns with the row, the second half with the column.",
            Slip(_angles, give=lambda row, column: torch.cat([column, row], dim=1)),
        ),
        (
            "patches counted column by column",
            "Patch n is in row n // columns and column n % columns. (torch.meshgrid wants indexing='ij'.)",
            Slip(_angles, places=lambda n, rows, columns: (n % rows, n // rows)),
        ),
        (
            "places along one line",
            "You used the patch's number n for both halves. Row and column are two coordinates.",
            Slip(_angles, places=lambda n, rows, columns: (n, n)),
        ),
        (
            "rows and columns that alternate",
            "All d / 4 angles of the row come first, then those of the column.",
            Slip(_angles, give=lambda row, column: torch.stack([row, column], dim=2).flatten(1)),
        ),
        (
            "frequencies that fall half as fast",
            "You divide k by d / 2, as in one dimension. Here a coordinate has d / 4 pairs: -4 k / d.",
            Slip(_angles, frequency=lambda d, t: t ** (-2 * torch.arange(d // 4) / d)),
        ),
        (
            "frequencies that grow",
            "Divide by temperature ** (4 k / d): the first pair turns fastest, by 1 radian per patch.",
            Slip(_angles, frequency=lambda d, t: 1 / _falling(d, t)),
        ),
        (
            "frequencies counted from 1",
            "k counts from 0, so that pair 0 turns by 1 radian per patch.",
            Slip(_angles, frequency=lambda d, t: t ** (-4 * (torch.arange(d // 4) + 1) / d)),
        ),
        (
            "frequencies down to 1 / temperature",
            "The last k is d / 4 - 1, so the last frequency is a little above 1 / temperature. linspace reaches it.",
            Slip(_angles, frequency=lambda d, t: t ** -torch.linspace(0, 1, d // 4)),
        ),
        (
            "a temperature of its own",
            "Use the argument temperature: models have different ones.",
            Slip(_angles, frequency=lambda d, t: _falling(d, 10_000.0)),
        ),
    ),
)


def check_rotary_angles(fn: Callable[[int, int, int, float], Tensor]) -> bool:
    """Check ``fn(rows, columns, head_dim, temperature)`` -> (N, d / 2), radians."""
    return check(ROTARY_ANGLES, fn)


def _turn_cases() -> list[Case]:
    # The shape of x, and how many tokens come before the patches.
    asked = [
        ((1, 2, 6, 4), 0),
        ((2, 3, 7, 8), 1),
        ((2, 2, 9, 12), 5),
        ((3, 1, 5, 4), 2),
        ((1, 4, 5, 2), 1),  # as many heads as angles, and more tokens
        ((4, 4, 4, 4), 0),
        ((2, 2, 1, 4), 0),
        ((1, 12, 45, 4), 3),
        ((1, 2, 3, 64), 1),
        ((2, 1, 8, 4), 4),
        ((1, 3, 14, 6), 9),
        ((1, 2, 20, 2), 17),
    ]
    made = []
    for (B, h, T, d), before in asked:
        angles = 2 * normal(T - before, d // 2, seed=1)
        label = f"x {(B, h, T, d)}, angles {(T - before, d // 2)}"
        made.append(Case(label, (normal(B, h, T, d), angles)))
    many = 10 * normal(2, 2, 5, 6, seed=2), 30 * normal(4, 3, seed=3)  # as far down and right in a large image
    return [*made, Case("x (2, 2, 5, 6), angles (4, 3), many turns", many)]


def _rotated(a: Tensor, b: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    return a * cos - b * sin, b * cos + a * sin


def _neighbours(x: Tensor) -> tuple[Tensor, Tensor]:
    return x[..., ::2], x[..., 1::2]


def _alternate(a: Tensor, b: Tensor) -> Tensor:
    return torch.stack([a, b], dim=-1).flatten(-2)


def _first_ones_still(angles: Tensor, tokens: int) -> Tensor:
    return torch.nn.functional.pad(angles, (0, 0, tokens - len(angles), 0))


def _turn(
    pairs: Callable[[Tensor], tuple[Tensor, ...]] = _halves,
    rotation: Callable[[Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]] = _rotated,
    join: Callable[[Tensor, Tensor], Tensor] = lambda a, b: torch.cat([a, b], dim=-1),
    fill: Callable[[Tensor, int], Tensor] = _first_ones_still,
) -> Callable[[Tensor, Tensor], Tensor]:
    """The rotation with other pairs, another formula, or angles given to the tokens in another way."""

    def turn(x: Tensor, angles: Tensor) -> Tensor:
        given = fill(angles, x.shape[-2])  # (T, d/2)
        a, b = pairs(x)
        return join(*rotation(a, b, given.cos(), given.sin()))

    return turn


def _overwritten(a: Tensor, b: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    a = a * cos - b * sin
    return a, b * cos + a * sin


def _each_angle_twice(x: Tensor, angles: Tensor) -> Tensor:
    """Cosine and sine with each angle twice in a row, as neighbours need it, and halves exchanged."""
    angles = _first_ones_still(angles, x.shape[-2]).repeat_interleave(2, dim=-1)  # (T, d)
    a, b = _halves(x)
    return x * angles.cos() + torch.cat([-b, a], dim=-1) * angles.sin()


TURN = Exercise(
    name="turn",
    lesson="15",
    points=3,
    right=_turn(),
    cases=_turn_cases,
    observe=call,
    forbidden=(modern.rotate,),
    mistakes=(
        *section(
            _ROTARY,
            (
                "a turn the other way",
                "Your angles have the wrong sign. The first half becomes a cos - b sin, the second b cos + a sin.",
                Slip(_turn, rotation=lambda a, b, cos, sin: _rotated(a, b, cos, -sin)),
            ),
            (
                "the cosine alone",
                "A turn mixes the two numbers of a pair: a cos - b sin, b cos + a sin.",
                Slip(_turn, rotation=lambda a, b, cos, sin: (a * cos, b * cos)),
            ),
            (
                "cosine and sine exchanged",
                "An angle of 0 must change nothing: the number itself goes with the cosine.",
                Slip(_turn, rotation=lambda a, b, cos, sin: _rotated(a, b, sin, cos)),
            ),
            (
                "two plus signs",
                "One of the sines has a minus: a cos - b sin. Otherwise lengths change.",
                Slip(_turn, rotation=lambda a, b, cos, sin: (a * cos + b * sin, b * cos + a * sin)),
            ),
            (
                "two minus signs",
                "Only one of the sines has a minus: the second half is b cos + a sin.",
                Slip(_turn, rotation=lambda a, b, cos, sin: (a * cos - b * sin, b * cos - a * sin)),
            ),
            (
                "a half that was overwritten",
                "The second half needs the first one as it was. Compute both, then store them.",
                Slip(_turn, rotation=_overwritten),
            ),
        ),
        *section(
            "Neighbours or halves.",
            (
                "neighbours paired",
                "You pair numbers 2i and 2i + 1, as EVA-02 does. Here number i belongs to number i + d / 2.",
                Slip(_turn, pairs=_neighbours, join=_alternate),
            ),
            (
                "neighbours paired, and put back as halves",
                "Here number i belongs to number i + d / 2, and stays where it is. You pair 2i and 2i + 1.",
                Slip(_turn, pairs=_neighbours),
            ),
            (
                "halves paired, and put back as neighbours",
                "The pairs are right, but each number must return to where it was: torch.cat, not torch.stack.",
                Slip(_turn, join=_alternate),
            ),
            (
                "each angle twice in a row",
                "You repeat each angle for two neighbours and exchange halves. Repeat the whole row of angles instead.",
                _each_angle_twice,
            ),
        ),
        *section(
            "The class token turned, too.",
            (
                "the last tokens left alone",
                "Tokens without a place come first, so the angles belong to the last N tokens. You turned the first N.",
                Slip(_turn, fill=lambda angles, T: torch.nn.functional.pad(angles, (0, 0, 0, T - len(angles)))),
            ),
            (
                "the class token turned like the first patch",
                "Tokens without a place in the image stay as they are.",
                Slip(_turn, fill=lambda angles, T: torch.cat([angles[:1].expand(T - len(angles), -1), angles])),
            ),
        ),
    ),
)


def check_turn(fn: Callable[[Tensor, Tensor], Tensor]) -> bool:
    """Check ``fn(x, angles)``: (B, h, T, d), (N, d / 2) with N <= T -> (B, h, T, d)."""
    return check(TURN, fn)


# ---- Attention pooling -------------------------------------------------------------------------------------------


def _pool_cases() -> list[Case]:
    made = []
    for (B, S, D), heads in [
        ((2, 5, 6), 1),
        ((3, 4, 8), 2),
        ((1, 7, 12), 3),
        ((4, 3, 4), 4),
        ((4, 4, 4), 2),
        ((2, 1, 6), 3),
        ((1, 45, 24), 12),
        ((9, 70, 16), 4),
        ((5, 5, 8), 2),
    ]:
        given = [normal(*size, seed=i + 1) for i, size in enumerate([(D,), (D, D), (D, D), (D, D)])]
        given[1] = given[1] / math.sqrt(D)  # soft weights, so that each token counts in each image
        made.append(Case(f"z {(B, S, D)}, num_heads={heads}", (normal(B, S, D), *given, heads)))
    hard = [300 * given[0], *given[1:]]  # exp of these scores is more than float32 has
    made.append(Case("z (5, 5, 8), num_heads=2, large scores", (normal(5, 5, 8), *hard, 2)))
    return made


def _by_heads(x: Tensor, num_heads: int) -> Tensor:
    return x.unflatten(-1, (num_heads, -1)).transpose(-2, -3)  # (..., S, D) -> (..., h, S, d)


def _softmax(scores: Tensor) -> Tensor:
    return scores.softmax(dim=-1)


def _pooled(
    layers: Callable[..., tuple[Tensor, Tensor, Tensor]] = lambda z, p, q, k, v: (p @ q.T, z @ k.T, z @ v.T),
    split: Callable[[Tensor, int], Tensor] = _by_heads,
    scale: Callable[[int, int], float] = lambda D, h: math.sqrt(D / h),
    squash: Callable[[Tensor], Tensor] = _softmax,
    merge: Callable[[Tensor], Tensor] = lambda y: y.transpose(-2, -3).flatten(-2),
) -> Callable[..., Tensor]:
    """Attention pooling with other projections, heads, scale or softmax."""

    def attention_pool(z: Tensor, probe: Tensor, wq: Tensor, wk: Tensor, wv: Tensor, num_heads: int) -> Tensor:
        q, k, v = (split(x, num_heads) for x in layers(z, probe[None], wq, wk, wv))  # (h, 1, d), (B, h, S, d) twice
        weights = squash(q @ k.mT / scale(z.shape[-1], num_heads))  # (B, h, 1, S)
        return merge(weights @ v)[:, 0]  # (B, D)

    return attention_pool


def _probe_among_the_tokens(z: Tensor, p: Tensor, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    z = torch.cat([p.expand(len(z), 1, -1), z], dim=1)  # (B, 1 + S, D)
    return p @ q.T, z @ k.T, z @ v.T


def _tokens_that_ask(z: Tensor, p: Tensor, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return (z @ q.T).mean(1, keepdim=True), z @ k.T, z @ v.T


ATTENTION_POOL = Exercise(
    name="attention_pool",
    lesson="15",
    points=3,
    right=_pooled(),
    cases=_pool_cases,
    observe=call,
    forbidden=(modern.AttentionPool,),
    mistakes=section(
        _POOL,
        (
            "no scale",
            "Divide the scores by √d before the softmax, as everywhere in attention.",
            Slip(_pooled, scale=lambda D, h: 1.0),
        ),
        (
            "one head of width D",
            "Use num_heads: split queries, keys and values into h heads of D / h numbers, each with own weights.",
            lambda z, probe, wq, wk, wv, num_heads: _pooled()(z, probe, wq, wk, wv, 1),
        ),
        (
            "√D in place of √d",
            "Each head has d = D / h numbers: divide by √d.",
            Slip(_pooled, scale=lambda D, h: math.sqrt(D)),
        ),
        (
            "interleaved heads",
            "Head 0 has the first d numbers, not every h-th one.",
            Slip(_pooled, split=lambda x, h: x.unflatten(-1, (-1, h)).movedim(-1, -3)),
        ),
        (
            "heads joined crosswise",
            "All d numbers of head 0 come first, then those of head 1.",
            Slip(_pooled, merge=lambda y: y.movedim(-3, -1).flatten(-2)),
        ),
        (
            "a softmax over the heads",
            "The weights of one head must sum to 1 over the tokens: the last axis.",
            Slip(_pooled, squash=lambda scores: scores.softmax(dim=1)),
        ),
        (
            "no softmax",
            "You weigh with the scores themselves. A softmax turns them into weights that sum to 1.",
            Slip(_pooled, squash=lambda scores: scores),
        ),
        (
            "the probe among the tokens",
            "Your probe also looks at itself. It is the query alone: keys and values come from the tokens.",
            Slip(_pooled, layers=_probe_among_the_tokens),
        ),
        (
            "queries from the tokens",
            "The query comes from the probe, the same for every image.",
            Slip(_pooled, layers=_tokens_that_ask),
        ),
        (
            "keys and values exchanged",
            "The probe is compared with the keys, wk, and what is mixed are the values, wv.",
            Slip(_pooled, layers=lambda z, p, q, k, v: (p @ q.T, z @ v.T, z @ k.T)),
        ),
        (
            "matrices that aren't transposed",
            "The matrices are torch's, (out, in): z @ wk.T. They are square, so nothing complains.",
            Slip(_pooled, layers=lambda z, p, q, k, v: (p @ q, z @ k, z @ v)),
        ),
    ),
)


def check_attention_pool(fn: Callable[..., Tensor]) -> bool:
    """Check ``fn(z, probe, wq, wk, wv, num_heads)``: (B, S, D), (D,), three (D, D) -> (B, D)."""
    return check(ATTENTION_POOL, fn)
