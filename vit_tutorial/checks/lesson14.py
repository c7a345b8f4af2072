"""Checks of lesson 14: a power law and its floor, the fit, models in proportion, and runs drawn again."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from vit_tutorial.checks.compare import as_number
from vit_tutorial.checks.harness import SECOND, Case, Exercise, Fault, Result, Slip, answers, call, check, section

__all__ = ["check_fit_law", "check_grown_sizes", "check_law_from_floor", "check_redrawn_runs", "check_scaling_numbers"]

_LAW = "1 · A law, with a pencil"
_SURE = "2 · How sure is it?"
_WAYS = "3 · Six ways to grow"
_TOGETHER = "4 · All together, live"
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
        *section(
            _LAW,
            ("a law without its floor", "You have 6 / √9 alone. Add the floor of 1.", {"loss": 2}),
            (
                "a cost that is not raised to the power",
                "C^-b with b = 1/2 is 1 / √C: here 1/3, not 1/9.",
                {"loss": 6 / 9 + 1},
            ),
            ("a floor of zero", "The first part goes to zero, but c = 1 stays at any cost.", {"floor": 0}),
            (
                "twice the cost for half the loss",
                "With b = 1/2, twice the cost divides by √2. What cost divides by 2?",
                {"half": 2},
            ),
            ("the floor halved, too", "Only the part above the floor is to be halved, from 2 to 1.", {"half": 16}),
            ("a cost for the whole loss", "You solved 6 / √C = 1.5. Subtract the floor first: 0.5.", {"cost": 16}),
            ("a root in place of a square", "6 / √C = 0.5 gives √C = 12. The cost is its square.", {"cost": 12}),
            (
                "a slope the other way round",
                "Divide the fall of the loss by the growth of the cost, in powers of ten.",
                {"exponent": 2},
            ),
        ),
        *section(
            _STRAIGHT,
            (
                "a slope with its floor",
                "Subtract the floor first: then the loss falls from 8 to 0.8, by a factor of 10.",
                {"exponent": math.log(5) / math.log(100)},
            ),
        ),
        *section(
            _WAYS,
            ("one side of the matrices", "Both sides of each matrix double: 2 · 2.", {"width": 2}),
            ("no class token", "14 · 14 are the patches. The class token is one more.", {"tokens": 196}),
        ),
        *section(
            _TOGETHER,
            ("depth forgotten", "Width alone makes 9 times. There are three times the layers, too.", {"together": 9}),
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
        return f"There is a {strange[0]!r} in your dictionary, which was neither given nor asked for."
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
    above: Callable[[Tensor, float], Tensor] = lambda loss, floor: (loss - floor).log(),
    x_of: Callable[[Tensor], Tensor] = torch.log,
    line: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]] = _slope,
    give: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]] = lambda slope, intercept: (intercept.exp(), -slope),
) -> Callable[[Tensor, Tensor, float], tuple[Tensor, Tensor]]:
    """The law with other numbers on one of the axes, another line, or its numbers returned in another way."""

    def law_from_floor(cost: Tensor, loss: Tensor, floor: float) -> tuple[Tensor, Tensor]:
        return give(*line(x_of(cost), above(loss, floor)))

    return law_from_floor


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
        *section(
            _STRAIGHT,
            (
                "a floor that is not subtracted",
                "The logarithm of the whole loss is a curve. Subtract the floor first, then take the logarithm.",
                Slip(_line, above=lambda loss, floor: loss.log()),
            ),
            (
                "a floor that is subtracted from the logarithm",
                "You compute ln(L) - c. Subtract the floor first: ln(L - c).",
                Slip(_line, above=lambda loss, floor: loss.log() - floor),
            ),
        ),
        *section(
            _LAW,
            (
                "an exponent with the sign of the slope",
                "The law has C^-b, so b is minus the slope.",
                Slip(_line, give=lambda slope, intercept: (intercept.exp(), slope)),
            ),
            (
                "a factor that is still a logarithm",
                "The intercept is the logarithm of a: return its exp.",
                Slip(_line, give=lambda slope, intercept: (intercept, -slope)),
            ),
            (
                "a factor from the wrong base",
                "You take a power of ten of a natural logarithm. Take exp.",
                Slip(_line, give=lambda slope, intercept: (10**intercept, -slope)),
            ),
            (
                "decimal logarithms and exp",
                "The inverse of log10 is a power of ten. Or take the natural logarithm throughout.",
                Slip(_line, x_of=torch.log10, above=lambda loss, floor: (loss - floor).log10()),
            ),
            (
                "a and b exchanged",
                "Return a first, then b.",
                Slip(_line, give=lambda slope, intercept: (-slope, intercept.exp())),
            ),
            (
                "slope and intercept exchanged",
                "polyfit returns the slope first, then the intercept. b is minus the slope, a is exp of the intercept.",
                Slip(_line, give=lambda slope, intercept: (slope.exp(), -intercept)),
            ),
            (
                "slope and intercept as they are",
                "That is what polyfit returns. a is exp of the intercept, b is minus the slope: return a, then b.",
                Slip(_line, give=lambda slope, intercept: (slope, intercept)),
            ),
            (
                "no logarithm of the cost",
                "A straight line over the cost itself is an exponential law. Take the logarithm of the cost, too.",
                Slip(_line, x_of=lambda cost: cost),
            ),
            (
                "no logarithm of the loss",
                "The line is through the logarithm of L - c, over the logarithm of C.",
                Slip(_line, above=lambda loss, floor: loss - floor),
            ),
            (
                "axes exchanged",
                "You fit the cost's logarithm over the loss's. The cost was chosen, and the loss is random: fit the "
                "loss over the cost.",
                Slip(_line, line=lambda x, y: _slope(y, x)),
            ),
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
    error: Callable[[Tensor], Tensor] = torch.square,
    choose: Callable[[Tensor], int] = lambda errors: int(errors.argmin()),
    tried: Callable[[Tensor], Tensor] = lambda exponents: exponents,
    order: tuple[int, int, int] = (0, 1, 2),
) -> Callable[[Tensor, Tensor, Tensor], tuple[Any, ...]]:
    """A line for each exponent, the best one chosen, with each step to be replaced."""

    def fit_law(cost: Tensor, loss: Tensor, exponents: Tensor) -> tuple[Any, ...]:
        exponents = tried(exponents)
        xs = [x_of(cost, b) for b in exponents]
        fits = [line(x, loss) for x in xs]
        errors = [error(a * x + c - loss).sum() for x, (a, c) in zip(xs, fits, strict=True)]
        best = choose(torch.stack(errors))
        found = fits[best][0], exponents[best], fits[best][1]
        return tuple(found[i] for i in order)

    return fit_law


def _through_zero(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return (x * y).sum() / (x * x).sum(), torch.zeros((), dtype=x.dtype)


def _above_zero(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    slope, intercept = _slope(x, y)
    return slope.clamp(min=0), intercept.clamp(min=0)


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
        *section(
            _LAW,
            (
                "an exponent without its minus",
                "You take x = C^b, which grows with cost. The law has C^-b.",
                Slip(_fit, x_of=lambda cost, b: cost**b),
            ),
            (
                "the logarithm of the cost as x",
                "x is C^-b: a power, another one for each b. Then L = a x + c is the straight line.",
                Slip(_fit, x_of=lambda cost, b: -b * cost.log()),
            ),
            (
                "the sum of the absolute errors",
                "You choose the b with the smallest absolute errors. The text asks for the squares.",
                Slip(_fit, error=torch.abs),
            ),
            (
                "a and c kept above zero",
                "Here nothing keeps a and c above zero: return the line as it comes out.",
                Slip(_fit, line=_above_zero),
            ),
            (
                "the last exponent left out",
                "Try all of the exponents, the last one, too.",
                Slip(_fit, tried=lambda exponents: exponents[: max(len(exponents) - 1, 1)]),
            ),
            (
                "the first exponent left out",
                "Try all of the exponents, the first one, too.",
                Slip(_fit, tried=lambda exponents: exponents[min(len(exponents) - 1, 1) :]),
            ),
            (
                "the first exponent",
                "You return the first b. Keep the one with the smallest error. (Errors that aren't squared cancel: "
                "their sum is zero for each b.)",
                Slip(_fit, choose=lambda errors: 0),
            ),
            ("a and c exchanged", "The slope is a, the intercept is c.", Slip(_fit, order=(2, 1, 0))),
        ),
        *section(
            _STRAIGHT,
            (
                "no floor",
                "Your line goes through zero, so c is zero. Fit slope and intercept.",
                Slip(_fit, line=_through_zero),
            ),
            (
                "a line through the logarithms",
                "On logarithmic axes a law with a floor is no line. Try each b, with x = C^-b.",
                _in_logarithms,
            ),
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
    rounded: Callable[[float], int] = _half_up,
    least: int = 1,
    heads_grow: bool = True,
    width: Callable[[Sizes, int, float], int] = lambda old, heads, factor: heads * (old["dim"] // old["num_heads"]),
    hidden: Callable[[Sizes, int, float], int] = lambda old, dim, factor: round(dim * old["mlp_dim"] / old["dim"]),
) -> Callable[[Sizes, float], Sizes]:
    """Sizes grown with another rounding, width or MLP."""

    def grown_sizes(sizes: Sizes, factor: float) -> Sizes:
        layers = max(least, rounded(factor * sizes["depth"]))
        heads = max(least, rounded(factor * sizes["num_heads"])) if heads_grow else sizes["num_heads"]
        dim = width(sizes, heads, factor)
        return {"depth": layers, "dim": dim, "num_heads": heads, "mlp_dim": hidden(sizes, dim, factor)}

    return grown_sizes


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
    if not isinstance(new, Mapping):
        return result
    first = dict(new)
    given[0].update({name: 2 * size for name, size in case.args[0].items()})
    again = work(given[0], case.args[1])
    if dict(new) != first and not result["changed"]:
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
    mistakes=section(
        _TOGETHER,
        (
            "heads that stay",
            "Each head gets wider. Multiply the number of heads, and keep their width.",
            Slip(
                _grow, heads_grow=False, width=lambda old, heads, factor: heads * _half_up(factor * old["dim"] / heads)
            ),
        ),
        (
            "a width that stays",
            "More heads share the old width, so each gets narrower. The width of a head is to stay.",
            Slip(_grow, width=lambda old, heads, factor: old["dim"]),
        ),
        (
            "a width that is rounded by itself",
            "Your width isn't a multiple of the head's width. Round the heads first: width = heads · width of a head.",
            Slip(_grow, width=lambda old, heads, factor: _half_up(factor * old["dim"])),
        ),
        (
            "an MLP of four times the width",
            "Four is the paper's ratio, not this model's. Keep the ratio that the model has.",
            Slip(_grow, hidden=lambda old, dim, factor: 4 * dim),
        ),
        (
            "an MLP that is rounded by itself",
            "Where heads were rounded, its ratio to the new width changes. Take the new width times the old ratio.",
            Slip(_grow, hidden=lambda old, dim, factor: _half_up(factor * old["mlp_dim"])),
        ),
        (
            "a ratio of whole numbers",
            "You divide the old MLP by the old width without a remainder. Multiply first, or divide exactly.",
            Slip(_grow, hidden=lambda old, dim, factor: dim * (old["mlp_dim"] // old["dim"])),
        ),
        ("sizes that are cut off", "You make 2 of 2.5 layers. Round: halves go up.", Slip(_grow, rounded=int)),
        (
            "halves that go to the even number",
            "Python's round(2.5) is 2, and round(3.5) is 4. Halves are to go up: floor of x + 0.5.",
            Slip(_grow, rounded=round),
        ),
        (
            "no layers and no heads",
            "A small factor leaves 0 layers. There is at least one layer, and one head.",
            Slip(_grow, least=0),
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
    """Runs drawn again, with each step to be replaced."""

    def redrawn_runs(fitted: Tensor, loss: Tensor, rows: Tensor) -> Tensor:
        misses = miss(fitted, loss) * widen(len(loss))  # (n,)
        return put(on(fitted, loss, rows), take(misses, rows))  # (R, n)

    return redrawn_runs


def _whole_losses(fitted: Tensor, loss: Tensor, rows: Tensor) -> Tensor:
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
    mistakes=section(
        _SURE,
        (
            "runs that are drawn, not their misses",
            "A large model's loss lands on a small one. Draw how far runs are from the law, and apply it to the law.",
            _whole_losses,
        ),
        (
            "a law that is drawn along",
            "Place i keeps its own law, fitted[i], and gets the miss of another run.",
            Slip(_draw, on=lambda fitted, loss, rows: fitted[rows]),
        ),
        (
            "misses that are not drawn",
            "Each place keeps its own miss: take the misses at rows.",
            Slip(_draw, take=lambda misses, rows: misses.expand(rows.shape)),
        ),
        (
            "misses applied to the runs",
            "The runs deviate already. Apply the drawn miss to the law.",
            Slip(_draw, on=lambda fitted, loss, rows: loss),
        ),
        (
            "misses that are too small",
            "The law was fitted to the runs, so they lie too close to it: widen by √(n / (n - 3)).",
            Slip(_draw, widen=lambda n: 1.0),
        ),
        (
            "a widening without its root",
            "n / (n - 3) is for the squares. The misses themselves get its root.",
            Slip(_draw, widen=lambda n: n / (n - 3)),
        ),
        (
            "a widening upside down",
            "You make the misses smaller. n / (n - 3) is more than 1.",
            Slip(_draw, widen=lambda n: math.sqrt((n - 3) / n)),
        ),
        (
            "a widening for two fitted numbers",
            "n - 2 is for a straight line. The law has three numbers: a, b and c.",
            Slip(_draw, widen=lambda n: math.sqrt(n / (n - 2))),
        ),
        (
            "misses the wrong way round",
            "You divide the law by the run. A run above the law must lift the law: ln(loss / fitted).",
            Slip(_draw, miss=lambda fitted, loss: (fitted / loss).log()),
        ),
        (
            "differences in place of factors",
            "You add differences. A run deviates by percents, that is by factors: differences of logarithms.",
            Slip(_draw, miss=lambda fitted, loss: loss - fitted, put=lambda base, drawn: base + drawn),
        ),
        (
            "logarithms that are added",
            "You add the logarithms of the factors to the law. Multiply by their exp.",
            Slip(_draw, put=lambda base, drawn: base + drawn),
        ),
    ),
)


def check_redrawn_runs(fn: Callable[[Tensor, Tensor, Tensor], Tensor]) -> bool:
    """Check ``fn(fitted, loss, rows)``: (n,), (n,), (R, n) -> (R, n), the law with the drawn misses applied."""
    return check(REDRAWN_RUNS, fn)
