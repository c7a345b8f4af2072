"""Checks of lesson 14: a power law and its floor, the fit, models in proportion, and runs drawn again."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from vit_tutorial.checks.compare import as_number
from vit_tutorial.checks.harness import SECOND, Case, Exercise, Fault, Mistake, Result, Slip, answers, call, check

__all__ = [
    "check_fit_law",
    "check_grown_sizes",
    "check_law_from_floor",
    "check_redrawn_runs",
    "check_scaling_numbers",
]

_LAW = "1 · A law, with a pencil"
_SURE = "2 · How sure is it?"
_WAYS = "3 · Six ways to grow"
_TOGETHER = "4 · All together, live"
_SPEED = "6 · MACs are not seconds"
_STRAIGHT = "A straight line on logarithmic axes."

# ---- With a pencil -----------------------------------------------------------------------------------------------

# L = 6 C^-1/2 + 1. Runs (1, 9) and (100, 1.8) above a floor of 1: 8 and 0.8.
NUMBERS = {
    "loss": 3,
    "floor": 1,
    "half": 4,
    "cost": 144,
    "exponent": 0.5,
    "width": 4,
    "tokens": 197,
    "together": 27,
    "speed": 100,
}

SCALING_NUMBERS = Exercise(
    name="scaling_numbers",
    lesson="14",
    points=4,
    right=NUMBERS,
    cases=lambda: [Case(question, (question,)) for question in NUMBERS],
    observe=answers,
    tolerance=0.001,
    secret=True,
    advice={
        "loss": "The root of 9 is 3. Divide a by it, and add the floor.",
        "floor": "What is left of a · C^-b when C is very large?",
        "half": "C^-1/2 is to become half of what it was.",
        "cost": "First take the floor off: what is to be left above it? Then solve 6 / √C for C.",
        "exponent": "Take the floor off both losses. How many powers of ten lie between them, and how many between the "
        "costs?",
        "width": "A matrix of D × D, or of D × M, has two sides, and both grow.",
        "tokens": "224 / 16 patches in each direction, and the class token.",
        "together": "Three times the layers, and each has matrices of three times the width.",
        "speed": "MACs an image times images a second.",
    },
    mistakes=(
        Mistake("a law without its floor", "You have 6 / √9 alone. The floor of 1 is added.", _LAW, {"loss": 2}),
        Mistake(
            "a cost that is not raised to the power",
            "C^-b with b = 1/2 is 1 / √C, here 1/3, not 1/9.",
            _LAW,
            {"loss": 6 / 9 + 1},
        ),
        Mistake(
            "a loss that grows with cost",
            "The exponent is -b: more cost, less loss. 6 is divided by √9.",
            _LAW,
            {"loss": 19},
        ),
        Mistake(
            "the floor taken away",
            "The floor is what stays: it is added to 6 / √9, not taken from it.",
            _LAW,
            {"loss": 1.0001},
        ),
        Mistake(
            "a factor in front of the floor, too",
            "6 multiplies C^-b alone. The floor stands beside it.",
            _LAW,
            {"loss": 8},
        ),
        Mistake(
            "a floor of zero",
            "The first part goes to zero, but c = 1 stays however much you pay.",
            _LAW,
            {"floor": 0},
        ),
        Mistake(
            "the loss at cost 1",
            "That is a + c, where the law starts. The floor is where it ends.",
            _LAW,
            {"floor": 7},
        ),
        Mistake("the factor a as the floor", "a is what the first model loses above the floor.", _LAW, {"floor": 6}),
        Mistake(
            "twice the cost for half the loss",
            "With b = 1/2, twice the cost divides by √2 only. How much divides by 2?",
            _LAW,
            {"half": 2},
        ),
        Mistake(
            "the factor that the loss gets",
            "Twice the cost divides what is above the floor by √2 = 1.41. The question is which cost divides it by 2.",
            _LAW,
            {"half": 2**0.5},
        ),
        Mistake(
            "the floor halved, too",
            "Only what is above the floor is to be halved, from 2 to 1, not the whole loss.",
            _LAW,
            {"half": 16},
        ),
        Mistake(
            "a cost for the whole loss",
            "You solved 6 / √C = 1.5. First take the floor off: 0.5 is to be left.",
            _LAW,
            {"cost": 16},
        ),
        Mistake(
            "a root in place of a square",
            "6 / √C = 0.5 gives √C = 12. The cost is its square.",
            _LAW,
            {"cost": 12},
        ),
        Mistake(
            "a root that is drawn twice",
            "√C = 12 gives C = 12², not √12.",
            _LAW,
            {"cost": 12**0.5},
        ),
        Mistake(
            "the floor added to the loss",
            "1.5 is the whole loss: take the floor off, and 0.5 is left, not 2.5.",
            _LAW,
            {"cost": (6 / 2.5) ** 2},
        ),
        Mistake(
            "a slope with its floor",
            "From 9 to 1.8 the loss falls by 5 only. Take the floor off first: from 8 to 0.8 it falls by 10.",
            _STRAIGHT,
            {"exponent": math.log(5) / math.log(100)},
        ),
        Mistake(
            "a slope the other way round",
            "It is the fall of the loss divided by the growth of the cost, in powers of ten: one of two.",
            _LAW,
            {"exponent": 2},
        ),
        Mistake(
            "an exponent with the sign of the slope",
            "The slope is -1/2. In C^-b the minus is written already, so b is positive.",
            _LAW,
            {"exponent": -0.5},
        ),
        Mistake(
            "a quotient in place of a quotient of logarithms",
            "10 / 100 compares the factors themselves. Compare their logarithms: 1 power of ten against 2.",
            _LAW,
            {"exponent": 0.1},
        ),
        Mistake(
            "one side of the matrices",
            "Each matrix goes from a width to a width: both sides double, so it grows by 2 · 2.",
            _WAYS,
            {"width": 2},
        ),
        Mistake(
            "a third factor of 2",
            "Of a matrix, both sides grow: 2 · 2. Depth and tokens stay, and so does attention's T².",
            _WAYS,
            {"width": 8},
        ),
        Mistake("twice the tokens", "Halved in both directions: four patches where one was.", _WAYS, {"tokens": 99}),
        Mistake(
            "no class token",
            "14 · 14 are the patches. The class token is one more.",
            _WAYS,
            {"tokens": 196},
        ),
        Mistake(
            "four class tokens",
            "Only the patches become four times as many: 4 · 49 + 1.",
            _WAYS,
            {"tokens": 200},
        ),
        Mistake(
            "the number of tokens of before",
            "These are the patches of 32 pixels. With 16 there are 14 in each direction.",
            _WAYS,
            {"tokens": 50},
        ),
        Mistake(
            "depth forgotten",
            "Nine times is what width alone costs. There are three times the layers, too.",
            _TOGETHER,
            {"together": 9},
        ),
        Mistake("one factor alone", "Depth and width grow, and width counts twice.", _TOGETHER, {"together": 3}),
        Mistake(
            "sizes added up",
            "The factors are multiplied: 3 for the layers, 3 · 3 for each matrix.",
            _TOGETHER,
            {"together": 12},
        ),
        Mistake(
            "MACs divided by images",
            "Each of the 50 images takes 2 G MACs, so they are multiplied.",
            _SPEED,
            {"speed": 0.04},
        ),
        Mistake(
            "images divided by MACs",
            "Each of the 50 images takes 2 G MACs, so they are multiplied.",
            _SPEED,
            {"speed": 25},
        ),
        Mistake(
            "operations in place of MACs",
            "A MAC is a multiplication with an addition, two operations. The question is for MACs.",
            _SPEED,
            {"speed": 200},
        ),
    ),
)


def check_scaling_numbers(fn: Callable[[], Mapping[str, Any]]) -> bool:
    """Check the answers found with a pencil: ``fn()`` returns them in a dictionary."""
    return check(SCALING_NUMBERS, fn)


Compared = list[tuple[Case, Result, Result]]


def _parts(*names: str) -> Callable[[Compared], str]:
    """Says which of a law's numbers are right, where not all are wrong."""

    def explain(compared: Compared) -> str:
        right = [
            name
            for place, name in enumerate(names)
            if all(math.isclose(a["result"][place], b["result"][place], rel_tol=1e-5) for _, a, b in compared)
        ]
        wrong = [name for name in names if name not in right]
        return f"Right: {', '.join(right)}. Wrong: {', '.join(wrong)}." if right and wrong else ""

    return explain


def _sizes(compared: Compared) -> str:
    """Says which sizes are wrong, missing or too many."""
    case, a, b = compared[0]
    right, yours = a["result"], b["result"]
    if not isinstance(yours, dict):
        return "The four sizes are wanted in a dictionary, as they were given."
    if missing := [name for name in right if name not in yours]:
        return f"There is no {missing[0]!r} in your dictionary."
    if strange := [name for name in yours if name not in right]:
        return f"There is a {strange[0]!r} in your dictionary, which nobody gave and nobody asked for."
    apart = [name for name in right if as_number(yours[name]) != right[name]]
    wrong = [f"{name} is {yours[name]!r} and should be {right[name]}" for name in apart]
    others = "The others are right, but " if len(wrong) < len(right) else "No size is right: "
    return f"{others}{'; '.join(wrong)} (with {case.label})." if wrong else ""


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


def _line(
    above: Callable[[Tensor, float], Tensor] = lambda loss, floor: loss - floor,
    x_of: Callable[[Tensor], Tensor] = torch.log,
    y_of: Callable[[Tensor], Tensor] = torch.log,
    line: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]] = _slope,
    sign: int = -1,
    back: Callable[[Tensor], Tensor] = torch.exp,
    order: int = 1,
) -> Callable[[Tensor, Tensor, float], tuple[Tensor, Tensor]]:
    def law_from_floor(cost: Tensor, loss: Tensor, floor: float) -> tuple[Tensor, Tensor]:
        slope, intercept = line(x_of(cost), y_of(above(loss, floor)))
        found = back(intercept), sign * slope
        return found if order == 1 else (found[1], found[0])

    return law_from_floor


def _ends(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    slope = (y[-1] - y[0]) / (x[-1] - x[0])
    return slope, y[0] - slope * x[0]


def _neighbours(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    slope = (y.diff() / x.diff()).mean()
    return slope, y.mean() - slope * x.mean()


def _through_zero(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return (x * y).sum() / (x * x).sum(), torch.zeros((), dtype=x.dtype)


def _other_way(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    slope, intercept = _slope(y, x)
    return slope, intercept


def _turned_back(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    slope = 1 / _slope(y, x)[0]
    return slope, y.mean() - slope * x.mean()


def _first_point(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return _slope(x, y)[0], y[0]


def _mean_level(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return _slope(x, y)[0], y.mean()


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
    right=_line(),
    cases=_floor_cases,
    observe=call,
    explain=_parts("a", "b"),
    mistakes=(
        Mistake(
            "a floor that is not taken off",
            "You fit the logarithm of the whole loss, which bends. Take the floor off first, then the logarithm.",
            _STRAIGHT,
            Slip(_line, above=lambda loss, floor: loss),
        ),
        Mistake(
            "an exponent with the sign of the slope",
            "Your b is negative: the law has C^-b, so b is minus the slope.",
            _LAW,
            Slip(_line, sign=1),
        ),
        Mistake(
            "a factor that is still a logarithm",
            "The intercept is the logarithm of a. Bring it back with exp.",
            _LAW,
            Slip(_line, back=lambda intercept: intercept),
        ),
        Mistake(
            "a factor brought back with the wrong base",
            "You bring a natural logarithm back with a power of ten. Take exp.",
            _LAW,
            Slip(_line, back=lambda intercept: 10**intercept),
        ),
        Mistake(
            "decimal logarithms brought back with e",
            "The slope is the same for each base, but a decimal logarithm comes back by a power of ten, or take the "
            "natural one throughout.",
            _LAW,
            Slip(_line, x_of=torch.log10, y_of=torch.log10),
        ),
        Mistake("a and b exchanged", "Return a first, then b.", _LAW, Slip(_line, order=-1)),
        Mistake(
            "no logarithm of the cost",
            "A straight line over the cost itself is an exponential law. Take the logarithm of the cost, too.",
            _LAW,
            Slip(_line, x_of=lambda cost: cost),
        ),
        Mistake(
            "no logarithm of the loss",
            "You fit L - c itself. It is the logarithm of L - c that is a line over the logarithm of C.",
            _LAW,
            Slip(_line, y_of=lambda above: above),
        ),
        Mistake(
            "no logarithms",
            "L - c over C is a curve. The logarithm of one over the logarithm of the other is a line.",
            _LAW,
            Slip(_line, x_of=lambda cost: cost, y_of=lambda above: above, back=lambda intercept: intercept),
        ),
        Mistake(
            "a floor that is added",
            "The floor is part of each loss. What is above it is the loss minus the floor.",
            _LAW,
            Slip(_line, above=lambda loss, floor: loss + floor),
        ),
        Mistake(
            "losses divided by the floor",
            "Minus the logarithm of the floor is a division. Take the floor off before the logarithm: ln(L - c).",
            _LAW,
            Slip(_line, above=lambda loss, floor: loss / floor),
        ),
        Mistake(
            "axes exchanged",
            "You fit the cost's logarithm over the loss's. The cost was chosen, and the loss has the chance in it: "
            "fit the loss over the cost.",
            _LAW,
            Slip(_line, line=_other_way),
        ),
        Mistake(
            "a line fitted the other way round",
            "Your slope is one over the slope of cost over loss. That is another line, as soon as points miss it.",
            _LAW,
            Slip(_line, line=_turned_back),
        ),
        Mistake(
            "the first and the last run alone",
            "Your line goes through two of the runs. Least squares uses all of them.",
            _LAW,
            Slip(_line, line=_ends),
        ),
        Mistake(
            "the mean of the slopes between neighbours",
            "Runs that are close together would count most, though their slope is the least sure. Fit one line.",
            _LAW,
            Slip(_line, line=_neighbours),
        ),
        Mistake(
            "a line through zero",
            "Your line has no intercept, so a would always be 1.",
            _LAW,
            Slip(_line, line=_through_zero),
        ),
        Mistake(
            "the first run's loss as the factor",
            "a is what the law gives at cost 1: the intercept, where ln C is zero.",
            _LAW,
            Slip(_line, line=_first_point),
        ),
        Mistake(
            "the mean of the losses as the factor",
            "a belongs to cost 1, where ln C is zero. At the mean of ln C the line has the mean of ln(L - c).",
            _LAW,
            Slip(_line, line=_mean_level),
        ),
    ),
)


def check_law_from_floor(fn: Callable[[Tensor, Tensor, float], tuple[Any, Any]]) -> bool:
    """Check ``fn(cost, loss, floor)``: (n,), (n,) -> a, b of the line of least squares through the logarithms."""
    return check(LAW_FROM_FLOOR, fn)


# ---- All three numbers -------------------------------------------------------------------------------------------


def _fit(
    x_of: Callable[[Tensor, Tensor], Tensor] = lambda cost, b: cost**-b,
    line: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]] = _slope,
    error: Callable[[Tensor, Tensor], Tensor] = lambda guess, loss: (guess - loss).square().sum(),
    choose: Callable[[Tensor], int] = lambda errors: int(errors.argmin()),
    give: Callable[[Tensor, int], Any] = lambda exponents, best: exponents[best],
    order: tuple[int, int, int] = (0, 1, 2),
) -> Callable[[Tensor, Tensor, Tensor], tuple[Any, ...]]:
    def fit_law(cost: Tensor, loss: Tensor, exponents: Tensor) -> tuple[Any, ...]:
        fits, errors = [], []
        for b in exponents:
            x = x_of(cost, b)
            a, c = line(x, loss)
            fits.append((a, c))
            errors.append(error(a * x + c, loss))
        best = choose(torch.stack(errors))
        found = fits[best][0], give(exponents, best), fits[best][1]
        return tuple(found[i] for i in order)

    return fit_law


def _relative_line(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    weights = y**-2 / (y**-2).sum()
    from_mean = x - (weights * x).sum()
    slope = (weights * from_mean * y).sum() / (weights * from_mean**2).sum()
    return slope, (weights * y).sum() - slope * (weights * x).sum()


def _lowest_floor(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return _through_zero(x, y - y.min())[0], y.min()


def _in_logarithms(cost: Tensor, loss: Tensor, exponents: Tensor) -> tuple[Any, ...]:
    slope, intercept = _slope(cost.log(), loss.log())
    return intercept.exp(), -slope, torch.zeros((), dtype=cost.dtype)


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
        Case("the same costs, losses 40 times as large", (cost, 40 * loss.square(), grid)),
        Case("the same runs, other exponents", (cost, loss, 0.93 * grid.flip(0))),
        # Costs as they are counted: C^-b is so small beside 1 that a solver of least squares may take it for nothing.
        Case("6 runs, 15 exponents, costs above 1e9", (1e9 * cases[3].args[0], *cases[3].args[1:])),
        # Other powers of the errors than the square choose another of these exponents, and so do parts of them.
        Case("8 runs, 75 exponents", (*_runs(39, 8, 6.0, 0.8, 0.5, 0.3), _grid(0.02, 1.5, 75))),
        Case("5 runs, a small exponent", (*_runs(40, 5, 4.0, 0.02, 1.0, 0.01), _grid(0.02, 0.3, 8))),
        Case("6 runs, a large exponent", (*_runs(41, 6, 3.0, 3.0, 0.5, 0.01), _grid(0.5, 4.0, 8))),
    ]


def _above_zero(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    slope, intercept = _slope(x, y)
    return slope.clamp(min=0), intercept.clamp(min=0)


def _some_exponents(some: slice) -> Callable[[Tensor, Tensor, Tensor], tuple[Any, ...]]:
    def fit_law(cost: Tensor, loss: Tensor, exponents: Tensor) -> tuple[Any, ...]:
        return _fit()(cost, loss, exponents[some] if len(exponents) > 1 else exponents)

    return fit_law


FIT_LAW = Exercise(
    name="fit_law",
    lesson="14",
    points=4,
    right=_fit(),
    cases=_fit_cases,
    observe=call,
    forbidden=("vit_tutorial.analysis.scaling.fit_law", "vit_tutorial.analysis.scaling.lines"),
    explain=_parts("a", "b", "c"),
    mistakes=(
        Mistake(
            "an exponent without its minus",
            "You take x = C^b, which grows with cost. The law has C^-b.",
            _LAW,
            Slip(_fit, x_of=lambda cost, b: cost**b),
        ),
        Mistake(
            "the logarithm of the cost as x",
            "x is C^-b: a power, which changes with each b. Then L = a x + c is the straight line.",
            _LAW,
            Slip(_fit, x_of=lambda cost, b: -b * cost.log()),
        ),
        Mistake(
            "the sum of the absolute errors",
            "You choose the b with the smallest absolute errors. The text asks for the squares.",
            _LAW,
            Slip(_fit, error=lambda guess, loss: (guess - loss).abs().sum()),
        ),
        Mistake(
            "the largest error of each law",
            "You choose by the worst run. The sum of squares takes all runs.",
            _LAW,
            Slip(_fit, error=lambda guess, loss: (guess - loss).abs().max()),
        ),
        Mistake(
            "the worst exponent",
            "You return the b whose line misses most: argmin, not argmax.",
            _LAW,
            Slip(_fit, choose=lambda errors: int(errors.argmax())),
        ),
        Mistake(
            "a and c kept above zero",
            "Here nothing keeps a and c above zero: return the line as it comes out.",
            _LAW,
            Slip(_fit, line=_above_zero),
        ),
        Mistake(
            "the last exponent left out",
            "You try all but the last of the exponents.",
            _LAW,
            _some_exponents(slice(-1)),
        ),
        Mistake(
            "the first exponent left out",
            "You try all but the first of the exponents.",
            _LAW,
            _some_exponents(slice(1, None)),
        ),
        Mistake(
            "the last exponent",
            "You return the last b that was tried. Keep the one with the smallest error.",
            _LAW,
            Slip(_fit, choose=lambda errors: len(errors) - 1),
        ),
        Mistake(
            "the first exponent",
            "You return the first b that was tried. Keep the one with the smallest error. (Errors that aren't squared "
            "cancel: their sum is zero for each b.)",
            _LAW,
            Slip(_fit, choose=lambda errors: 0),
        ),
        Mistake(
            "the number of the exponent",
            "You return its place in the list. exponents[best] is b.",
            _LAW,
            Slip(_fit, give=lambda exponents, best: torch.tensor(float(best))),
        ),
        Mistake(
            "no floor",
            "Your line goes through zero, so c is zero. Fit slope and intercept.",
            _STRAIGHT,
            Slip(_fit, line=_through_zero),
        ),
        Mistake(
            "the smallest loss as the floor",
            "The floor is the intercept of the line: where x is zero, so where the cost is without end. It lies below "
            "the best run.",
            _LAW,
            Slip(_fit, line=_lowest_floor),
        ),
        Mistake("a and c exchanged", "The slope is a, the intercept is c.", _LAW, Slip(_fit, order=(2, 1, 0))),
        Mistake("b in front", "Return a, b, c in this order.", _LAW, Slip(_fit, order=(1, 0, 2))),
        Mistake("b at the end", "Return a, b, c in this order.", _LAW, Slip(_fit, order=(0, 2, 1))),
        Mistake(
            "relative errors",
            "This is the package's way, by errors in percent. The text asks for plain least squares.",
            _LAW,
            Slip(_fit, line=_relative_line, error=lambda guess, loss: (guess / loss - 1).square().sum()),
        ),
        Mistake(
            "plain lines, chosen by relative errors",
            "The lines are right, and then you choose b by errors in percent. Take the squares of L's own errors.",
            _LAW,
            Slip(_fit, error=lambda guess, loss: (guess / loss - 1).square().sum()),
        ),
        Mistake(
            "a line through the logarithms",
            "On logarithmic axes a law with a floor is no line. Try each b, with x = C^-b.",
            _STRAIGHT,
            _in_logarithms,
        ),
    ),
)


def check_fit_law(fn: Callable[[Tensor, Tensor, Tensor], tuple[Any, Any, Any]]) -> bool:
    """Check ``fn(cost, loss, exponents)``: (n,), (n,), (E,) -> a, b, c with the smallest squared errors."""
    return check(FIT_LAW, fn)


# ---- In proportion -----------------------------------------------------------------------------------------------

Sizes = dict[str, int]


def _half_up(x: float) -> int:
    return math.floor(x + 0.5)


def _grow(
    depth: Callable[[float], float] = lambda factor: factor,
    heads: Callable[[float], float] = lambda factor: factor,
    rounded: Callable[[float], int] = _half_up,
    least: int = 1,
    width: Callable[[Sizes, int, float], int] = lambda old, heads, factor: heads * (old["dim"] // old["num_heads"]),
    hidden: Callable[[Sizes, int, float], int] = lambda old, dim, factor: round(dim * old["mlp_dim"] / old["dim"]),
) -> Callable[[Sizes, float], Sizes]:
    def grown_sizes(sizes: Sizes, factor: float) -> Sizes:
        layers = max(least, rounded(depth(factor) * sizes["depth"]))
        many = max(least, rounded(heads(factor) * sizes["num_heads"]))
        dim = width(sizes, many, factor)
        return {"depth": layers, "dim": dim, "num_heads": many, "mlp_dim": hidden(sizes, dim, factor)}

    return grown_sizes


def _wider_heads(old: Sizes, heads: int, factor: float) -> int:
    return heads * _half_up(factor * old["dim"] / heads)


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


def _as_a_dictionary(work: Any, case: Case) -> Result:
    """What was called, with a dictionary of another class, such as an OrderedDict, as a plain one.

    A second call gets all sizes doubled, in the same dictionary: nothing of the first may stay.

    Raises:
        Fault: it is the dictionary that was given, or the second call changes what the first gave.
    """
    given: list[Any] = []

    def kept(sizes: Sizes, factor: float) -> Any:
        given.append(sizes)
        return work(sizes, factor)

    result = call(kept, case)
    new = result["result"]
    if new is given[0] and not result["changed"]:
        raise Fault("it returns the dictionary that it was given: the caller may change one of them. Make a new one")
    if not isinstance(new, Mapping) or result["changed"]:
        return result
    first = dict(new)
    given[0].update({name: 2 * size for name, size in case.args[0].items()})
    again = work(given[0], case.args[1])
    if dict(new) != first:
        raise Fault("a second call changes the dictionary that the first returned: make a new one in each call")
    return result | {"result": _whole(first), SECOND: _whole(again) if isinstance(again, Mapping) else again}


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
    right=_grow(),
    cases=_grow_cases,
    observe=_as_a_dictionary,
    forbidden=("vit_tutorial.analysis.scaling.grown",),
    explain=_sizes,
    mistakes=(
        Mistake(
            "depth that stays",
            "Layers grow, too: factor times the depth.",
            _TOGETHER,
            Slip(_grow, depth=lambda factor: 1),
        ),
        Mistake(
            "heads that stay",
            "Then each head gets wider, or the width stays. Grow the number of heads, and keep their width.",
            _TOGETHER,
            Slip(_grow, heads=lambda factor: 1, width=_wider_heads),
        ),
        Mistake(
            "width and heads that stay",
            "Only the depth grows. The width is the number of heads times the width of one.",
            _TOGETHER,
            Slip(_grow, heads=lambda factor: 1),
        ),
        Mistake(
            "a width that stays",
            "More heads share the old width, so each gets narrower. The width of a head is to stay.",
            _TOGETHER,
            Slip(_grow, width=lambda old, heads, factor: old["dim"]),
        ),
        Mistake(
            "a width that is rounded by itself",
            "Your width isn't a whole number of the old head widths. Round the heads first: width = heads times the "
            "width of a head.",
            _TOGETHER,
            Slip(_grow, width=lambda old, heads, factor: _half_up(factor * old["dim"])),
        ),
        Mistake(
            "the width of a head grown, too",
            "Both the heads and their width grow, so the width grows by the square of the factor.",
            _TOGETHER,
            Slip(_grow, width=lambda old, heads, factor: _half_up(heads * old["dim"] // old["num_heads"] * factor)),
        ),
        Mistake(
            "an MLP that stays",
            "The MLP keeps its share of the width: its hidden width grows as the width does.",
            _TOGETHER,
            Slip(_grow, hidden=lambda old, dim, factor: old["mlp_dim"]),
        ),
        Mistake(
            "an MLP of four times the width",
            "Four is the paper's ratio, not this model's. Keep the ratio that the model has.",
            _TOGETHER,
            Slip(_grow, hidden=lambda old, dim, factor: 4 * dim),
        ),
        Mistake(
            "an MLP of twice the width",
            "Two is this lesson's ratio, not every model's. Keep the ratio that the model has.",
            _TOGETHER,
            Slip(_grow, hidden=lambda old, dim, factor: 2 * dim),
        ),
        Mistake(
            "an MLP that is rounded by itself",
            "Its ratio to the new width differs from the old one, where heads were rounded. Take the new width times "
            "the old ratio.",
            _TOGETHER,
            Slip(_grow, hidden=lambda old, dim, factor: _half_up(factor * old["mlp_dim"])),
        ),
        Mistake(
            "a ratio of whole numbers",
            "You divide the old MLP by the old width without a remainder. Multiply first, or divide exactly.",
            _TOGETHER,
            Slip(_grow, hidden=lambda old, dim, factor: dim * (old["mlp_dim"] // old["dim"])),
        ),
        Mistake(
            "sizes that are cut off",
            "You cut the fraction off: 2.5 layers become 2. Round: halves go up.",
            _TOGETHER,
            Slip(_grow, rounded=int),
        ),
        Mistake(
            "halves that go to the even number",
            "Python's round(2.5) is 2, and round(3.5) is 4. Halves are to go up: floor of x + 0.5.",
            _TOGETHER,
            Slip(_grow, rounded=round),
        ),
        Mistake(
            "sizes that are always rounded up",
            "You take the next whole number above. Only from a half on it goes up.",
            _TOGETHER,
            Slip(_grow, rounded=math.ceil),
        ),
        Mistake(
            "no layers and no heads",
            "A small factor leaves 0 layers. There is at least one layer, and one head.",
            _TOGETHER,
            Slip(_grow, least=0),
        ),
        Mistake(
            "the square of the factor",
            "MACs grow by more than the factor; the sizes grow by the factor itself.",
            _TOGETHER,
            Slip(_grow, depth=lambda factor: factor**2, heads=lambda factor: factor**2),
        ),
        Mistake(
            "the root of the factor",
            "The sizes grow by the factor itself, whatever MACs do.",
            _TOGETHER,
            Slip(_grow, depth=lambda factor: factor**0.5, heads=lambda factor: factor**0.5),
        ),
        Mistake(
            "the cube root of the factor",
            "That would make the MACs grow by the factor. Here the sizes do.",
            _TOGETHER,
            Slip(_grow, depth=lambda factor: factor ** (1 / 3), heads=lambda factor: factor ** (1 / 3)),
        ),
    ),
)


def check_grown_sizes(fn: Callable[[Sizes, float], Sizes]) -> bool:
    """Check ``fn(sizes, factor)``: depth, dim, num_heads and mlp_dim in a dictionary, grown in proportion."""
    return check(GROWN_SIZES, fn)


# ---- The challenge -----------------------------------------------------------------------------------------------


def _draw(
    miss: Callable[[Tensor, Tensor], Tensor] = lambda fitted, loss: (loss / fitted).log(),
    widen: Callable[[int], float] = lambda n: math.sqrt(n / (n - 3)),
    on: Callable[[Tensor, Tensor, Tensor], Tensor] = lambda fitted, loss, rows: fitted,
    take: Callable[[Tensor, Tensor], Tensor] = lambda misses, rows: misses[rows],
    put: Callable[[Tensor, Tensor], Tensor] = lambda base, drawn: base * drawn.exp(),
) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    def redrawn_runs(fitted: Tensor, loss: Tensor, rows: Tensor) -> Tensor:
        misses = miss(fitted, loss) * widen(len(loss))  # (n,)
        return put(on(fitted, loss, rows), take(misses, rows))  # (R, n)

    return redrawn_runs


def _redrawn_losses(fitted: Tensor, loss: Tensor, rows: Tensor) -> Tensor:
    return loss[rows]


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
    right=_draw(),
    cases=_draw_cases,
    observe=call,
    mistakes=(
        Mistake(
            "runs that are drawn, not their misses",
            "You draw whole losses, so the loss of a large model lands on a small one. Draw what the runs miss the law "
            "by, and put that on the law.",
            _SURE,
            _redrawn_losses,
        ),
        Mistake(
            "a law that is drawn along",
            "Place i keeps its own law, fitted[i], and gets the miss of another run.",
            _SURE,
            Slip(_draw, on=lambda fitted, loss, rows: fitted[rows]),
        ),
        Mistake(
            "misses that are not drawn",
            "By yours each place keeps its own miss: take the misses at rows.",
            _SURE,
            Slip(_draw, take=lambda misses, rows: misses.expand(rows.shape)),
        ),
        Mistake(
            "misses on top of the runs",
            "The runs have a miss already. Put the drawn one on the law.",
            _SURE,
            Slip(_draw, on=lambda fitted, loss, rows: loss),
        ),
        Mistake(
            "misses that are too small",
            "The law has followed the runs, so they miss it by too little: widen by √(n / (n - 3)).",
            _SURE,
            Slip(_draw, widen=lambda n: 1.0),
        ),
        Mistake(
            "a widening without its root",
            "n / (n - 3) mends the squares. The misses themselves get its root.",
            _SURE,
            Slip(_draw, widen=lambda n: n / (n - 3)),
        ),
        Mistake(
            "a widening upside down",
            "You make the misses smaller. n / (n - 3) is more than 1.",
            _SURE,
            Slip(_draw, widen=lambda n: math.sqrt((n - 3) / n)),
        ),
        Mistake(
            "a widening for one fitted number",
            "n - 1 is for a mean, one fitted number. The law has three.",
            _SURE,
            Slip(_draw, widen=lambda n: math.sqrt(n / (n - 1))),
        ),
        Mistake(
            "a widening for two fitted numbers",
            "n - 2 is for a straight line. The law has three numbers: a, b and c.",
            _SURE,
            Slip(_draw, widen=lambda n: math.sqrt(n / (n - 2))),
        ),
        Mistake(
            "misses the wrong way round",
            "You divide the law by the run. A run above the law must lift the law: ln(loss / fitted).",
            _SURE,
            Slip(_draw, miss=lambda fitted, loss: (fitted / loss).log()),
        ),
        Mistake(
            "differences in place of factors",
            "You add differences. A run misses by percents, so that a small loss isn't moved by a large one's miss: "
            "factors, that is differences of logarithms.",
            _SURE,
            Slip(_draw, miss=lambda fitted, loss: loss - fitted, put=lambda base, drawn: base + drawn),
        ),
        Mistake(
            "factors that are widened without a logarithm",
            "You multiply the factors by the widening, which lifts them all. Widen their logarithms.",
            _SURE,
            Slip(_draw, miss=lambda fitted, loss: loss / fitted, put=lambda base, drawn: base * drawn),
        ),
        Mistake(
            "percents in place of logarithms",
            "You widen the percents: 1 + s (factor - 1). For small misses that is nearly right; widen the logarithms.",
            _SURE,
            Slip(_draw, miss=lambda fitted, loss: loss / fitted - 1, put=lambda base, drawn: base * (1 + drawn)),
        ),
        Mistake(
            "logarithms that are not brought back",
            "You add the logarithms of the factors to the law. Multiply by their exp.",
            _SURE,
            Slip(_draw, put=lambda base, drawn: base + drawn),
        ),
        Mistake(
            "logarithms that are multiplied",
            "The misses are logarithms, around zero. Bring them back with exp before you multiply.",
            _SURE,
            Slip(_draw, put=lambda base, drawn: base * drawn),
        ),
        Mistake(
            "decimal logarithms brought back with e",
            "log10 comes back by a power of ten. Take the natural logarithm, and exp.",
            _SURE,
            Slip(_draw, miss=lambda fitted, loss: (loss / fitted).log10()),
        ),
        Mistake(
            "the sizes of the misses",
            "You take absolute values, so all runs lie above the law. A miss has a sign.",
            _SURE,
            Slip(_draw, miss=lambda fitted, loss: (loss / fitted).log().abs()),
        ),
        Mistake(
            "misses from their mean",
            "You take the mean off the misses. Take them as they are.",
            _SURE,
            Slip(_draw, miss=lambda fitted, loss: (loss / fitted).log() - (loss / fitted).log().mean()),
        ),
        Mistake(
            "logarithms of the runs alone",
            "The miss is what lies between run and law: ln(loss / fitted).",
            _SURE,
            Slip(_draw, miss=lambda fitted, loss: loss.log()),
        ),
    ),
)


def check_redrawn_runs(fn: Callable[[Tensor, Tensor, Tensor], Tensor]) -> bool:
    """Check ``fn(fitted, loss, rows)``: (n,), (n,), (R, n) -> (R, n), the law with the drawn misses on it."""
    return check(REDRAWN_RUNS, fn)
