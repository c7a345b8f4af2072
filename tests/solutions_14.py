"""Answers to the exercises of lesson 14: right ones, written in different ways, and wrong ones with what they hear."""

import math
from decimal import ROUND_HALF_UP, Decimal

import numpy as np
import torch
from scipy import stats
from submissions import Wrong
from torch.nn import functional as F

from vit_tutorial.analysis import scaling
from vit_tutorial.vit import ViTConfig

NUMBERS = {
    "loss": 3, "floor": 1, "half": 4, "cost": 144, "exponent": 0.5, "width": 4, "tokens": 197, "together": 27,
    "speed": 100,
}  # fmt: skip


def line_by_polyfit(cost, loss, floor):
    slope, intercept = np.polyfit(cost.log(), (loss - floor).log(), 1)
    return np.exp(intercept), -slope


def line_by_lstsq(cost, loss, floor):
    columns = torch.stack([torch.ones_like(cost), -cost.log()], dim=1)
    found = torch.linalg.lstsq(columns, (loss - floor).log()[:, None]).solution[:, 0]
    return found[0].exp(), found[1]


def line_by_scipy(cost, loss, floor):
    found = stats.linregress(cost.log(), (loss - floor).log())
    return math.exp(found.intercept), -found.slope


def fit_by_polyfit(cost, loss, exponents):
    best = None
    for b in exponents:
        x = cost**-b
        a, c = np.polyfit(x, loss, 1)
        error = float(((a * x + c - loss) ** 2).sum())
        if best is None or error < best[0]:
            best = error, a, float(b), c
    return best[1:]


def fit_by_residuals(cost, loss, exponents):
    fits = []
    for b in exponents.tolist():
        (a, c), errors, *_ = np.polyfit(cost.numpy() ** -b, loss.numpy(), 1, full=True)
        fits.append((errors[0], a, b, c))
    return min(fits)[1:]


def fit_at_once(cost, loss, exponents):
    x = cost ** -exponents[:, None]  # (E, n)
    from_mean = x - x.mean(1, keepdim=True)
    a = (from_mean @ loss) / from_mean.square().sum(1)
    c = loss.mean() - a * x.mean(1)
    best = (a[:, None] * x + c[:, None] - loss).square().mean(1).argmin()
    return a[best], exponents[best], c[best]


def grown_in_floats(sizes, factor):
    grown = grown_by_hand(sizes, factor)
    share = grown["num_heads"] / sizes["num_heads"]
    return grown | {"dim": sizes["dim"] / sizes["num_heads"] * grown["num_heads"], "mlp_dim": sizes["mlp_dim"] * share}


def grown_by_hand(sizes, factor):
    heads = max(1, math.floor(sizes["num_heads"] * factor + 0.5))
    dim = heads * sizes["dim"] // sizes["num_heads"]
    return {
        "depth": max(1, math.floor(sizes["depth"] * factor + 0.5)),
        "dim": dim,
        "num_heads": heads,
        "mlp_dim": dim * sizes["mlp_dim"] // sizes["dim"],
    }


def grown_by_decimals(sizes, factor):
    depth, heads = (
        max(1, int((Decimal(str(factor)) * sizes[name]).quantize(Decimal(1), ROUND_HALF_UP)))
        for name in ("depth", "num_heads")
    )
    dim = sizes["dim"] // sizes["num_heads"] * heads
    return dict(num_heads=heads, depth=depth, mlp_dim=round(dim * (sizes["mlp_dim"] / sizes["dim"])), dim=dim)


def grown_by_numpy(sizes, factor):
    depth, heads = np.maximum(np.floor(np.array([sizes["depth"], sizes["num_heads"]]) * factor + 0.5), 1)
    new = dict(sizes, depth=int(depth), num_heads=int(heads))
    new["dim"] = int(heads) * (sizes["dim"] // sizes["num_heads"])
    new["mlp_dim"] = round(new["dim"] / sizes["dim"] * sizes["mlp_dim"])
    return new


def drawn_by_powers(fitted, loss, rows):
    n = len(loss)
    factors = (loss / fitted) ** math.sqrt(n / (n - 3))
    return fitted * factors[rows]


def drawn_by_loops(fitted, loss, rows):
    n = len(loss)
    widen = (n / (n - 3)) ** 0.5
    drawn = torch.empty(rows.shape, dtype=loss.dtype)
    for r in range(len(rows)):
        for i in range(n):
            j = rows[r, i]
            drawn[r, i] = fitted[i] * torch.exp(widen * torch.log(loss[j] / fitted[j]))
    return drawn


def drawn_by_numpy(fitted, loss, rows):
    fitted, loss, rows = (x.numpy() for x in (fitted, loss, rows))
    misses = np.log10(loss / fitted) * np.sqrt(loss.size / (loss.size - 3))
    return np.stack([fitted * 10 ** misses[row] for row in rows])


RIGHT = {
    "scaling_numbers": (
        lambda: NUMBERS,
        lambda: {name: torch.tensor(float(value)) for name, value in NUMBERS.items()},
        lambda: NUMBERS | {"exponent": np.log10(10) / np.log10(100), "speed": 50 * 2e9 / 1e9},
    ),
    "law_from_floor": (line_by_polyfit, line_by_lstsq, line_by_scipy),
    "fit_law": (fit_by_polyfit, fit_by_residuals, fit_at_once),
    "grown_sizes": (grown_by_hand, grown_by_decimals, grown_by_numpy, grown_in_floats),
    "redrawn_runs": (drawn_by_powers, drawn_by_loops, drawn_by_numpy),
}


# ---- Wrong ones --------------------------------------------------------------------------------------------------


def answers(**changes):
    return lambda: NUMBERS | changes


def changed(work, change):
    """A right work whose result is changed afterwards."""
    return lambda *args: change(work(*args))


def kept_by(key, work):
    """A work that keeps its results by a part of what decides."""
    kept = {}
    return lambda *args: kept.setdefault(key(*args), work(*args))


def sorted_apart(cost, loss, floor):
    return line_by_polyfit(cost.sort().values, loss.sort(descending=True).values, floor)


def one_run_a_cost(cost, loss, floor):
    last = dict(zip(cost.tolist(), loss.tolist(), strict=True))
    return line_by_polyfit(torch.tensor(list(last)), torch.tensor(list(last.values())), floor)


def without_those_far_off(cost, loss, floor):
    y = (loss - floor).log()
    near = (y - y.mean()).abs() < 2 * y.std() if len(cost) > 4 else torch.ones(len(cost), dtype=torch.bool)
    return line_by_polyfit(cost[near], loss[near], floor)


def line(give=lambda slope, intercept: (np.exp(intercept), -slope), y=lambda loss, floor: (loss - floor).log()):
    """The line with its numbers returned in another way, or through other logarithms."""

    def law_from_floor(cost, loss, floor):
        return give(*np.polyfit(cost.log(), y(loss, floor), 1))

    return law_from_floor


def fit(
    errors=lambda e: e.square().sum(), best=min, some=lambda exponents: exponents, change=lambda a, c, x, loss: (a, c)
):
    """The line of each exponent, and the best by what ``errors`` makes of its residuals."""

    def fit_law(cost, loss, exponents):
        fits = []
        for b in some(exponents).tolist():
            x = cost**-b
            a, c = change(*np.polyfit(x, loss, 1), x, loss)
            fits.append((float(errors(a * x + c - loss)), a, b, c))
        return best(fits)[1:]

    return fit_law


def smallest_on_the_way_back(fits):
    return next((fits[i] for i in range(len(fits) - 1, 0, -1) if fits[i - 1][0] > fits[i][0]), fits[0])


def falling(fits):
    return [fits[i] for i in range(len(fits)) if i == 0 or fits[i][0] < fits[i - 1][0]][-1]


def those(keep):
    """The exponents that ``keep`` leaves, or all if it leaves none."""
    return lambda exponents: exponents[keep(exponents)] if keep(exponents).any() else exponents


def through_zero_below(a, c, x, loss):
    return (a, c) if c >= 0 else ((x * loss).sum() / x.square().sum(), 0.0)


def law_by_single_precision(cost, loss, exponents):
    found = []
    for b in exponents.tolist():
        A = torch.stack([cost.float() ** -b, torch.ones(len(cost))], dim=1)
        a, c = torch.linalg.lstsq(A, loss.float()[:, None], driver="gelsy").solution[:, 0].tolist()
        found.append((((a * cost**-b + c - loss) ** 2).sum().item(), a, b, c))
    return min(found)[1:]


def smallest_from_one(cost, loss, exponents):
    a, b, c = fit_by_polyfit(cost, loss, exponents)
    return (a, b, c) if float(((a * cost**-b + c - loss) ** 2).sum()) < 1 else (None, None, None)


def fit_of_the_package(cost, loss, exponents):
    law = scaling.fit_law(cost, loss)
    return law.a, law.b, law.c


def grown_by_the_package(sizes, factor):
    config = scaling.grown(ViTConfig(**sizes), factor)
    return {name: getattr(config, name) for name in sizes}


def grown_in_place(sizes, factor):
    sizes.update(grown_by_hand(dict(sizes), factor))
    return sizes


def grown(**others):
    """The right sizes, but for those that are given as functions of (sizes, factor, the right ones)."""

    def grown_sizes(sizes, factor):
        new = grown_by_hand(sizes, factor)
        return new | {name: work(sizes, factor, new) for name, work in others.items()}

    return grown_sizes


def heads_up(sizes, factor):
    heads = math.ceil(sizes["num_heads"] * factor)
    dim = heads * (sizes["dim"] // sizes["num_heads"])
    new = {"dim": dim, "num_heads": heads, "mlp_dim": dim * sizes["mlp_dim"] // sizes["dim"]}
    return grown_by_hand(sizes, factor) | new


WRONG = {
    "scaling_numbers": [
        Wrong("the start", answers(floor=7), "when C is very large"),
        Wrong("divided", answers(speed=0.04), "MACs an image times images a second"),
    ],
    "law_from_floor": [
        Wrong(
            "once passed: clamped",
            lambda cost, loss, floor: line_by_polyfit(cost, floor + (loss - floor).clamp(min=1e-3), floor),
            "just above the floor",
        ),
        Wrong(
            "once passed: no sign", changed(line_by_polyfit, lambda x: (x[0], abs(x[1]))), "loss grows with the cost"
        ),
        Wrong("once passed: sorted apart", sorted_apart, "that scatter"),
        Wrong("once passed: one run per cost", one_run_a_cost, "that scatter"),
        Wrong(
            "once passed: kept by cost",
            kept_by(lambda cost, *rest: tuple(cost.tolist()), line_by_polyfit),
            "the same costs, other losses",
        ),
        Wrong("once passed: outliers", without_those_far_off, "one of them far off"),
        Wrong(
            "twice a",
            line(lambda slope, intercept: (2 * np.exp(intercept), -slope)),
            "Right in each of your results: b. Not in each: a.",
        ),
        Wrong("as polyfit gives them", line(lambda *found: found), "Your numbers give losses of"),
        Wrong("ln L - c", line(y=lambda loss, floor: loss.log() - floor), "Your numbers give losses of"),
        Wrong("one number", changed(line_by_polyfit, lambda found: found[0]), "a tuple of 2"),
        Wrong("nothing", lambda cost, loss, floor: None, "None"),
    ],
    "fit_law": [
        Wrong("once passed: up to 2", fit(some=those(lambda b: b <= 2)), "a large exponent"),
        Wrong("once passed: from 0.05", fit(some=those(lambda b: b > 0.05)), "a small exponent"),
        Wrong("once passed: 20 exponents", fit(some=lambda b: b[:20]), "75 exponents"),
        Wrong("once passed: no last", fit(some=lambda b: b[: max(len(b) - 1, 1)]), "with b = 0.6"),
        Wrong("once passed: no first", fit(some=lambda b: b[min(len(b) - 1, 1) :]), "with b = 0.1"),
        Wrong("once passed: Huber", fit(lambda e: F.huber_loss(e, 0 * e, delta=0.5)), "75 exponents"),
        Wrong("once passed: on the way back", fit(best=smallest_on_the_way_back), "for these numbers alone?"),
        Wrong(
            "once passed: above zero",
            fit(change=lambda a, c, x, loss: (max(a, 0.0), max(c, 0.0))),
            "the best one's to",
        ),
        Wrong("smaller than the one before", fit(best=falling), "First seen", never="other numbers"),
        Wrong("once passed: single precision", law_by_single_precision, "costs above 1e9"),
        Wrong(
            "once passed: kept by loss",
            kept_by(lambda cost, loss, grid: (tuple(loss.tolist()), len(grid)), fit_by_polyfit),
            "is none of the exponents to try",
        ),
        Wrong("once passed: smallest from 1", smallest_from_one, "40 times the losses"),
        Wrong("c above zero", fit(change=through_zero_below), "expected", never="times the right one"),
        Wrong("the package's", fit_of_the_package, "it calls the package's own fit_law: write your own"),
        Wrong("minus b", changed(fit_by_polyfit, lambda found: (found[0], -found[1], found[2])), "Not in each: b"),
        Wrong("no floor told", changed(fit_by_polyfit, lambda found: (*found[:2], 0.0)), "Not in each: c"),
    ],
    "grown_sizes": [
        Wrong("once passed: kept by object", kept_by(lambda sizes, factor: id(sizes), grown_by_hand), "second call"),
        Wrong("once passed: up to 3", lambda sizes, factor: grown_by_hand(sizes, min(factor, 3)), "factor 8.5"),
        Wrong(
            "once passed: cut off",
            grown(mlp_dim=lambda old, factor, new: int(new["dim"] * (old["mlp_dim"] / old["dim"]))),
            "mlp_dim is 491 and should be 492",
        ),
        Wrong(
            "once passed: as given",
            lambda sizes, factor: sizes if factor == 1 else grown_by_hand(sizes, factor),
            "that it was given",
        ),
        Wrong(
            "once passed: kept by heads",
            kept_by(lambda sizes, factor: (factor, sizes["num_heads"]), grown_by_hand),
            "factor 2.0",
        ),
        Wrong("once passed: heads up", heads_up, "num_heads is 20 and should be 19"),
        Wrong(
            "once passed: halves down",
            grown(depth=lambda old, factor, new: max(1, math.ceil(old["depth"] * factor - 0.5))),
            "depth is 2 and should be 3 (with depth 4, width 64, factor 0.625)",
        ),
        Wrong(
            "once passed: nearly a half",
            grown(depth=lambda old, factor, new: max(1, math.floor(old["depth"] * factor + 0.505))),
            "depth is 3 and should be 2 (with depth 8,",
        ),
        Wrong("once passed: the package's", grown_by_the_package, "it calls the package's own grown: write your own"),
        Wrong("in place", grown_in_place, "changed in place", never="is None"),
        Wrong("a config", lambda sizes, factor: ViTConfig(**grown_by_hand(sizes, factor)), "in a dictionary"),
        Wrong(
            "two sizes", changed(grown_by_hand, lambda new: {"depth": new["depth"], "dim": new["dim"]}), "There is no"
        ),
        Wrong("one more", grown(patch_size=lambda *given: 4), "which isn't asked for"),
    ],
    "redrawn_runs": [
        Wrong(
            "once passed: a third to 3",
            lambda fitted, loss, rows: drawn_by_powers(fitted, loss.clamp(fitted / 3, 3 * fitted), rows),
            "6 runs, drawn 6 times",
        ),
        Wrong("one draw", changed(drawn_by_powers, lambda drawn: drawn[0]), "has shape"),
        Wrong(
            "other rows",
            lambda fitted, loss, rows: drawn_by_powers(fitted, loss, torch.randint(len(loss), rows.shape)),
            "other numbers",
        ),
        Wrong("logarithms", changed(drawn_by_powers, torch.log)),
        Wrong("transposed", changed(drawn_by_powers, lambda drawn: drawn.T), "shape"),
        Wrong("losses", lambda fitted, loss, rows: loss[rows], "in yours nothing did"),
        Wrong("not widened", lambda fitted, loss, rows: fitted * (loss / fitted)[rows], "First seen"),
    ],
}
