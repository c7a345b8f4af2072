"""Checks of lesson 14: a power law and its floor, the fit, models in proportion, and runs drawn again."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from vit_tutorial.analysis import scaling
from vit_tutorial.checks.engine import (
    Case,
    Exercise,
    Fault,
    Mistake,
    Observation,
    Question,
    as_number,
    call,
    changed_argument,
    pencil,
)

_LAW = "1 · A law, with a pencil"
_SURE = "2 · How sure is it?"
_WAYS = "4 · Six ways to grow"
_TOGETHER = _WAYS
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
            {2: "a law without its floor. 6 / √9 alone is 2. Add the floor of 1."},
        ),
        "floor": Question(1, "What is left of a · C^-b when C is very large?"),
        "half": Question(
            4,
            "C^-1/2 is to become half of what it was.",
            _LAW,
            {
                2: "twice the cost for half the loss. With b = 1/2, twice the cost divides by √2. What cost divides "
                "by 2?"
            },
        ),
        "cost": Question(
            144,
            "First take the floor off: what is to be left above it? Then solve 6 / √C for C.",
            _LAW,
            {16: "a cost for the whole loss. 16 solves 6 / √C = 1.5. Subtract the floor first: 0.5."},
        ),
        "exponent": Question(
            0.5,
            "Take the floor off both losses. How many powers of ten lie between them, and how many between the costs?",
            _STRAIGHT,
            {
                -0.5: "a slope in place of the exponent. The line falls with a slope of -0.5. The law is written "
                "C^-b, so b is 0.5.",
                math.log(5) / math.log(100): "a slope with its floor. Subtract the floor first: then the loss falls "
                "from 8 to 0.8, by a factor of 10.",
            },
        ),
        "width": Question(
            4,
            "A matrix of D × D, or of D × M, has two sides, and both grow.",
            _WAYS,
            {2: "one side of the matrices. Both sides of each matrix double: 2 · 2."},
        ),
        "tokens": Question(197, "224 / 16 patches in each direction, and the class token."),
        "together": Question(
            27,
            "Three times the layers, and each has matrices of three times the width.",
            _TOGETHER,
            {9: "a factor of three too few. Width alone makes 9 times. There are three times the layers, too."},
        ),
        "speed": Question(100, "MACs an image times images a second."),
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


def _floor_cases() -> list[Case]:
    laws = [
        (0, 4, 4.0, 0.5, 1.0),
        (7, 4, 1.5, 0.8, 0.3),  # as many runs as before: nothing of the first call may stay
        (1, 6, 2.0, 0.3, 0.4),
        (2, 3, 0.7, 1.2, 0.2),
        (3, 8, 30.0, 0.2, 2.5),
    ]
    cases = [Case(f"{n} runs, a floor of {c}", (*_runs(seed, n, a, b, c), c)) for seed, n, a, b, c in laws]
    cost, loss = _runs(4, 5, 4.0, 0.5, 0.0)
    scattered, above = _runs(9, 12, 2.0, 0.4, 0.5, noise=0.5)
    again = scattered[[0, 1, 1, 3, 4, 5, 5, 7, 8, 9, 10, 5]]  # several runs of one cost
    return [
        *cases,
        Case("5 runs, some of a cost below 1, a floor of 0", (cost / 20, loss, 0.0)),
        Case("the same costs, other losses", (cost / 20, loss.sqrt(), 0.0)),
        Case("the same costs and losses, another floor", (cost / 20, loss, 0.1)),
        Case("12 runs that scatter, some of the same cost", (again, above, 0.5)),
        Case("5 runs whose loss grows with the cost", (cost, 1 + 1 / loss, 0.5)),
        Case("2 runs", (cost[:2], loss[:2], 0.0)),
        Case("small costs, losses just above the floor", (1e-6 * cost, 0.5 + 1e-4 * loss, 0.5)),
        _many_runs(),
    ]


def _many_runs() -> Case:
    """One of them is far from the law: all count alike."""
    cost, loss = _runs(10, 60, 3.0, 0.03, 0.2, noise=0.1)
    loss[40] += 10
    return Case("60 runs, one of them far off", (cost, loss, 0.2))


LAW_FROM_FLOOR = Exercise(
    name="law_from_floor",
    lesson="14",
    points=3,
    takes="fn(cost, loss, floor): (n,), (n,) -> a, b of the line of least squares through the logarithms",
    right=_line,
    cases=_floor_cases,
    observe=call,
    mistakes=(
        Mistake(
            name="a line without the floor",
            says="Take the floor off the loss before the logarithm: only what is above it falls as a power.",
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
        (8, 5, 1.5, 0.3, 0.4, _grid(0.1, 0.9, 9)),
        (4, 7, 2.0, 0.3, 0.4, _grid(0.05, 1.0, 20)),
        (5, 6, 8.0, 1.2, 0.2, _grid(1.6, 0.2, 15)),
        (6, 9, 3.0, 0.7, 2.5, _grid(0.2, 2.0, 10)),
        (21, 6, -2.0, 0.5, 5.0, _grid(0.1, 1.0, 10).roll(2)),  # a negative, the exponents in no order
        (22, 5, 6.0, 0.2, -2.5, _grid(0.4, 1.2, 5)),  # c negative, the first exponent
        (23, 7, 5.0, 0.8, 0.3, _grid(0.1, 0.6, 6)),  # the last exponent
        (24, 4, 3.0, 0.5, 1.0, _grid(0.7, 0.7, 1)),
    ]
    cases = [
        Case(f"{n} runs, {len(grid)} exponent{'s'[: len(grid) - 1]}", (*_runs(seed, n, a, b, c, 0.1), grid))
        for seed, n, a, b, c, grid in laws
    ]
    cost, loss, grid = cases[2].args
    return [
        *cases,
        Case("the same costs, 40 times the losses' squares", (cost, 40 * loss.square(), grid)),
        Case("the same runs, other exponents", (cost, loss, 0.93 * grid.flip(0))),
        # Costs as they are counted: C^-b is so small beside 1 that a solver of least squares may take it for nothing.
        Case("6 runs, 15 exponents, costs above 1e9", (1e9 * cases[3].args[0], *cases[3].args[1:])),
        # Other powers of the errors than the square choose another of these exponents, and so do parts of them.
        Case("8 runs, 75 exponents", (*_runs(39, 8, 6.0, 0.8, 0.5, 0.3), _grid(0.02, 1.5, 75))),
        Case("5 runs, a small exponent", (*_runs(40, 5, 4.0, 0.02, 1.0, 0.01), _grid(0.02, 0.3, 8))),
        Case("6 runs, a large exponent", (*_runs(41, 6, 3.0, 3.0, 0.5, 0.01), _grid(0.5, 4.0, 8))),
    ]


FIT_LAW = Exercise(
    name="fit_law",
    lesson="14",
    points=4,
    takes="fn(cost, loss, exponents): (n,), (n,), (E,) -> a, b, c with the smallest squared errors",
    right=_fit,
    cases=_fit_cases,
    observe=call,
    forbidden=(scaling.fit_law,),
    mistakes=(
        Mistake(
            name="a line without the floor",
            says="A line through the logarithms has no c. Take each exponent b in turn, and fit a and c.",
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
        ((8, 1024, 16, 2048), 0.312),  # 2.496 layers: down to 2
        ((2, 32, 4, 48), 0.1),  # at least one layer and one head
        ((5, 60, 6, 210), 1.1),  # 5.5 layers: up to 6
        ((3, 48, 2, 36), 3),
        ((4, 64, 4, 256), 1.0),
        ((6, 32, 4, 48), 2.0),  # factor and heads as in the first
        ((2, 40, 5, 164), 3.0),  # 120 * (164 / 40) is a little less than 492 in floating point,
        ((3, 40, 5, 180), 1.4),  # and 180 * (56 / 40) a little less than 252
        ((1, 24, 1, 60), 8.5),  # one layer and one head become nine
        ((48, 1280, 20, 5120), 2.75),
        ((48, 1280, 20, 5120), 0.35),
    ]
    names = ("depth", "dim", "num_heads", "mlp_dim")
    return [
        Case(f"depth {sizes[0]}, width {sizes[1]}, factor {factor}", (dict(zip(names, sizes, strict=True)), factor))
        for sizes, factor in tried
    ]


def _as_a_dictionary(work: Any, case: Case) -> Observation:
    """As :func:`call`; a dictionary of another class, such as an OrderedDict, is as good as a plain one.

    Raises:
        Fault: it is the dictionary that was given.
    """
    given = dict(case.args[0])
    new = work(given, case.args[1])
    if new is given:
        raise Fault("it returns the dictionary that it was given: the caller may change one of them. Make a new one")
    observed = {"result": _whole(new) if isinstance(new, Mapping) else new}
    return Observation(observed, changed_argument=changed_argument(case.args[:1], [given]))


def _whole(sizes: Mapping[Any, Any]) -> dict[Any, Any]:
    """Sizes that are whole numbers but for a float's last digit, as whole numbers."""
    numbers = {name: as_number(size) for name, size in sizes.items()}
    near = {name for name, x in numbers.items() if isinstance(x, float) and math.isfinite(x) and _near_whole(x)}
    return {name: round(numbers[name]) if name in near else size for name, size in sizes.items()}


def _near_whole(x: float) -> bool:
    return abs(x - round(x)) <= 1e-12 * max(1.0, abs(x))


GROWN_SIZES = Exercise(
    name="grown_sizes",
    lesson="14",
    points=3,
    takes="fn(sizes, factor): depth, dim, num_heads and mlp_dim in a dictionary, grown in proportion",
    right=_grow,
    cases=_grow_cases,
    observe=_as_a_dictionary,
    forbidden=(scaling.scale_config,),
)


# ---- The challenge -----------------------------------------------------------------------------------------------


def _draw(
    residual: Callable[[Tensor, Tensor], Tensor] = lambda fitted, loss: (loss / fitted).log(),
    put: Callable[[Tensor, Tensor], Tensor] = lambda base, drawn: base * drawn.exp(),
) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """Runs drawn again, with each step to be replaced."""

    def redrawn_runs(fitted: Tensor, loss: Tensor, rows: Tensor) -> Tensor:
        residuals = residual(fitted, loss) * math.sqrt(len(loss) / (len(loss) - 3))  # (n,)
        return put(fitted, residuals[rows])  # (R, n)

    return redrawn_runs


def _draw_cases() -> list[Case]:
    cases = []
    for seed, n, R, spread in (
        (0, 5, 4, 0.2),
        (1, 4, 1, 0.2),
        (2, 10, 3, 0.2),
        (3, 7, 12, 0.2),
        (4, 6, 6, 1.5),
        (5, 45, 60, 0.2),
    ):
        generator = torch.Generator().manual_seed(seed)
        fitted = 0.5 + torch.rand(n, generator=generator, dtype=torch.float64)
        loss = fitted * (spread * torch.randn(n, generator=generator, dtype=torch.float64)).exp()
        rows = torch.randint(n, (R, n), generator=generator)
        cases.append(Case(f"{n} runs, drawn {R} times", (fitted, loss, rows)))
    return cases


REDRAWN_RUNS = Exercise(
    name="redrawn_runs",
    lesson="14",
    points=3,
    takes="fn(fitted, loss, rows): (n,), (n,), (R, n) -> (R, n), the law with the drawn residuals applied",
    right=_draw(),
    cases=_draw_cases,
    observe=call,
    mistakes=(
        Mistake(
            name="differences in place of factors",
            says="A run deviates by percents, that is by factors: take differences of logarithms.",
            reread=_SURE,
            wrong=_draw(residual=lambda fitted, loss: loss - fitted, put=lambda base, drawn: base + drawn),
        ),
        Mistake(
            name="factors that are widened, not their logarithms",
            says="Take the logarithm of loss / fitted first, multiply that by the root, and take e to its power at the "
            "end.",
            reread=_SURE,
            wrong=_draw(residual=lambda fitted, loss: loss / fitted, put=lambda base, drawn: base * drawn),
        ),
    ),
)
