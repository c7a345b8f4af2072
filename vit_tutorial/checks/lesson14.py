"""Checks of lesson 14: a power law and its floor, the fit, models in proportion, and runs drawn again."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from vit_tutorial.analysis import scaling
from vit_tutorial.checks.engine.exercise import Case, Exercise, Fault, Mistake, Observation
from vit_tutorial.checks.engine.functions import changed_argument, copy_arguments, entries
from vit_tutorial.checks.engine.questions import Question, Slip, pencil

_LAW = "A law, with a pencil"
_SURE = "How sure is it?"
_STRAIGHT = "A straight line on logarithmic axes."

# ---- With a pencil -----------------------------------------------------------------------------------------------

SCALING_NUMBERS = pencil(
    "scaling_numbers",
    lesson="14",
    points=4,
    tolerance=0.001,
    questions={
        "loss": Question(
            3,
            "The root of 9 is 3. Divide a by it, and add the floor.",
            _LAW,
            {2: Slip("a law without its floor", "6 / √9 alone is 2. Add the floor of 1.")},
        ),
        "floor": Question(1, "What is left of a · C^-b when C is very large?"),
        "half": Question(
            4,
            "C^-1/2 has to become half of what it was.",
            _LAW,
            {
                2: Slip(
                    "twice the cost for half the loss",
                    "With b = 1/2, twice the cost divides the loss by √2. Which cost divides it by 2?",
                )
            },
        ),
        "cost": Question(144, "First subtract the floor: what has to remain above it? Then solve 6 / √C for C."),
        "exponent": Question(
            0.5,
            "Subtract the floor from both losses. How many powers of ten lie between them, and how many between the "
            "costs?",
            _STRAIGHT,
            {
                math.log(5) / math.log(100): Slip(
                    "a slope with its floor",
                    "Subtract the floor first: then the loss falls from 8 to 0.8, by a factor of 10.",
                ),
            },
        ),
        "width": Question(4, "A matrix of D × D, or of D × M, has two sides, and both grow."),
        "tokens": Question(197, "224 / 16 patches in each direction, and the class token."),
        "together": Question(27, "Three times the layers, and each has matrices of three times the width."),
        "speed": Question(100, "MACs per image times images per second."),
    },
)


# ---- A line through the logarithms -------------------------------------------------------------------------------


def _runs(seed: int, n: int, a: float, b: float, c: float, noise: float = 0.03) -> tuple[Tensor, Tensor]:
    """Costs and losses (n,) of runs that nearly follow a law, in float64."""
    generator = torch.Generator().manual_seed(seed)
    cost = torch.rand(n, generator=generator, dtype=torch.float64).cumsum(0).mul(2).exp()
    chance = torch.randn(n, generator=generator, dtype=torch.float64).mul(noise).exp()
    return cost, a * cost**-b * chance + c


def _slope(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Slope and intercept of the line of least squares."""
    from_mean = x - x.mean()
    slope = (from_mean * y).sum() / from_mean.square().sum()
    return slope, y.mean() - slope * x.mean()


def _line(cost: Tensor, loss: Tensor, floor: float) -> tuple[Tensor, Tensor]:
    slope, intercept = _slope(cost.log(), (loss - floor).log())
    return intercept.exp(), -slope


LAW_FROM_FLOOR = Exercise(
    name="law_from_floor",
    lesson="14",
    points=3,
    right=_line,
    cases=lambda: [
        Case(f"{n} runs, a floor of {c}", (*_runs(seed, n, a, b, c), c))
        for seed, n, a, b, c in [
            (0, 4, 4.0, 0.5, 1.0),
            (1, 6, 2.0, 0.3, 0.4),
            (3, 8, 30.0, 0.2, 2.5),
            (5, 2, 3.0, 0.4, 0.0),
        ]
    ],
    mistakes=(
        Mistake(
            name="a line without the floor",
            says="Subtract the floor from the loss before the logarithm: only what is above it falls as a power.",
            reread=_STRAIGHT,
            wrong=lambda cost, loss, floor: _line(cost, loss, 0.0),
        ),
    ),
)


# ---- All three numbers -------------------------------------------------------------------------------------------


def _fit(cost: Tensor, loss: Tensor, exponents: Tensor) -> tuple[Any, ...]:
    xs = [cost**-b for b in exponents]
    fits = [_slope(x, loss) for x in xs]
    errors = [(a * x + c - loss).square().sum() for x, (a, c) in zip(xs, fits, strict=True)]
    best = int(torch.stack(errors).argmin())
    return fits[best][0], exponents[best], fits[best][1]


def _grid(low: float, high: float, n: int) -> Tensor:
    return torch.linspace(low, high, n, dtype=torch.float64)


def _fit_cases() -> list[Case]:
    laws = [
        (0, 5, 4.0, 0.5, 1.0, _grid(0.1, 0.9, 9)),
        (5, 6, 8.0, 1.2, 0.2, _grid(1.6, 0.2, 15)),
        (21, 6, -2.0, 0.5, 5.0, _grid(0.1, 1.0, 10).roll(2)),  # a negative, the exponents in no order
        (22, 5, 6.0, 0.2, -2.5, _grid(0.4, 1.2, 5)),  # c negative, the first exponent
        (23, 7, 5.0, 0.8, 0.3, _grid(0.1, 0.6, 6)),  # the last exponent
        (39, 8, 600.0, 0.8, 50.0, _grid(0.02, 1.5, 75)),  # large errors: other powers of them choose others
    ]
    return [
        Case(f"{n} runs, {len(grid)} exponents", (*_runs(seed, n, a, b, c, 0.1), grid))
        for seed, n, a, b, c, grid in laws
    ]


FIT_LAW = Exercise(
    name="fit_law",
    lesson="14",
    points=4,
    right=_fit,
    cases=_fit_cases,
    forbidden=(scaling.fit_law,),
    mistakes=(
        Mistake(
            name="a line without the floor",
            says="A line through the logarithms has no c. Try each exponent b in turn, and fit a and c.",
            reread=_STRAIGHT,
            wrong=lambda cost, loss, exponents: (*_line(cost, loss, 0.0), 0.0),
        ),
    ),
)


# ---- In proportion -----------------------------------------------------------------------------------------------

Sizes = dict[str, int]


def _grow(sizes: Sizes, factor: float) -> Sizes:
    layers, heads = (max(1, math.floor(factor * sizes[name] + 0.5)) for name in ("depth", "num_heads"))
    dim = heads * (sizes["dim"] // sizes["num_heads"])
    hidden = round(dim * sizes["mlp_dim"] / sizes["dim"])
    return {"depth": layers, "dim": dim, "num_heads": heads, "mlp_dim": hidden}


def _grow_cases() -> list[Case]:
    tried = [
        ((4, 64, 4, 128), 2.0),
        ((4, 64, 4, 128), 0.625),  # 2.5 layers: up to 3
        ((12, 768, 12, 3072), 1.6),
        ((6, 96, 3, 240), 1.5),  # 4.5 heads: up to 5
        ((2, 32, 4, 48), 0.1),  # at least one layer and one head
        ((2, 40, 5, 164), 3.0),  # 120 * (164 / 40) is a little less than 492 in floating point
    ]
    names = ("depth", "dim", "num_heads", "mlp_dim")
    return [
        Case(f"depth {sizes[0]}, width {sizes[1]}, factor {factor}", (dict(zip(names, sizes, strict=True)), factor))
        for sizes, factor in tried
    ]


def _sizes(submission: Any, case: Case) -> Observation:
    """The sizes of the dictionary that the submission returns, which must be whole numbers."""
    arguments = copy_arguments(case.args)
    sizes = entries(submission(*arguments), case.args[0])
    for name, size in sizes.items():
        if isinstance(size, float):
            raise Fault(f"{name} is {size!r}, a float, and should be a whole number, as it was: round it")
    return Observation(sizes, changed_argument=changed_argument(case.args, arguments))


GROWN_SIZES = Exercise(
    name="grown_sizes",
    lesson="14",
    points=3,
    right=_grow,
    cases=_grow_cases,
    observe=_sizes,
    forbidden=(scaling.scale_config,),
)


# ---- The challenge -----------------------------------------------------------------------------------------------


def _widened(residuals: Tensor) -> Tensor:
    return residuals * math.sqrt(len(residuals) / (len(residuals) - 3))


def _draw_cases() -> list[Case]:
    cases = []
    for n, R in [(5, 4), (10, 3), (6, 6)]:
        generator = torch.Generator().manual_seed(n)
        fitted = 0.5 + torch.rand(n, generator=generator, dtype=torch.float64)
        loss = fitted * (0.2 * torch.randn(n, generator=generator, dtype=torch.float64)).exp()
        cases.append(Case(f"{n} runs, drawn {R} times", (fitted, loss, torch.randint(n, (R, n), generator=generator))))
    return cases


REDRAWN_RUNS = Exercise(
    name="redrawn_runs",
    lesson="14",
    points=3,
    right=lambda fitted, loss, rows: fitted * _widened((loss / fitted).log())[rows].exp(),
    cases=_draw_cases,
    mistakes=(
        Mistake(
            name="differences in place of factors",
            says="A run deviates by a percentage, that is by a factor: take differences of logarithms.",
            reread=_SURE,
            wrong=lambda fitted, loss, rows: fitted + _widened(loss - fitted)[rows],
        ),
        Mistake(
            name="factors that are widened, not their logarithms",
            says="Take the logarithm of loss / fitted, multiply that by the root, and exponentiate at the end.",
            reread=_SURE,
            wrong=lambda fitted, loss, rows: fitted * _widened(loss / fitted)[rows],
        ),
    ),
)
