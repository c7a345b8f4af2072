"""Answers to the exercises of lesson 14: right ones, written in different ways, and wrong ones with what they hear."""

import math
from decimal import ROUND_HALF_UP, Decimal

import numpy as np
import torch
from scipy import stats

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


def line_by_decimal_logarithms(cost, loss, floor):
    x, y = cost.log10(), (loss - floor).log10()
    slope = torch.cov(torch.stack([x, y]))[0, 1] / x.var()
    return 10 ** (y.mean() - slope * x.mean()), -slope


def line_by_scipy(cost, loss, floor):
    found = stats.linregress(cost.log(), (loss - floor).log())
    return math.exp(found.intercept), -found.slope


def line_by_loops(cost, loss, floor):
    x, y = [math.log(c) for c in cost], [math.log(value - floor) for value in loss]
    n = len(x)
    slope = (n * sum(u * v for u, v in zip(x, y, strict=True)) - sum(x) * sum(y)) / (
        n * sum(u * u for u in x) - sum(x) ** 2
    )
    return math.exp((sum(y) - slope * sum(x)) / n), -slope


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


def fit_by_correlation(cost, loss, exponents):
    """The line that misses least is the one whose x goes most nearly with the loss."""
    most = max(exponents, key=lambda b: np.corrcoef(cost**-b, loss)[0, 1] ** 2)
    a, c = np.polyfit(cost**-most, loss, 1)
    return [a, most, c]


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


def drawn_in_logarithms(fitted, loss, rows):
    n = loss.numel()
    misses = (loss.log() - fitted.log()) * n**0.5 / (n - 3) ** 0.5
    return torch.exp(fitted.log() + misses.take(rows))


def drawn_by_numpy(fitted, loss, rows):
    fitted, loss, rows = (x.numpy() for x in (fitted, loss, rows))
    misses = np.log10(loss / fitted) * np.sqrt(loss.size / (loss.size - 3))
    return np.stack([fitted * 10 ** misses[row] for row in rows])


SOLUTIONS = {
    "scaling_numbers": (
        lambda: NUMBERS,
        lambda: {name: torch.tensor(float(value)) for name, value in NUMBERS.items()},
        lambda: NUMBERS | {"exponent": np.log10(10) / np.log10(100), "speed": 50 * 2e9 / 1e9},
    ),
    "law_from_floor": (line_by_polyfit, line_by_lstsq, line_by_decimal_logarithms, line_by_scipy, line_by_loops),
    "fit_law": (fit_by_polyfit, fit_by_residuals, fit_at_once, fit_by_correlation),
    "grown_sizes": (grown_by_hand, grown_by_decimals, grown_by_numpy, grown_in_floats),
    "redrawn_runs": (drawn_by_powers, drawn_by_loops, drawn_in_logarithms, drawn_by_numpy),
}


def changed(work, change):
    """A right work whose result is changed afterwards."""
    return lambda *args: change(work(*args))


def fit_of_the_package(cost, loss, exponents):
    law = scaling.fit_law(cost, loss)
    return law.a, law.b, law.c


def grown_by_the_package(sizes, factor):
    config = scaling.grown(ViTConfig(**sizes), factor)
    return {name: getattr(config, name) for name in sizes}


def grown_in_place(sizes, factor):
    sizes.update(grown_by_hand(dict(sizes), factor))
    return sizes


def grown_to_a_config(sizes, factor):
    return ViTConfig(**grown_by_hand(sizes, factor))


def line_in_float16(cost, loss, floor):
    return line_by_polyfit(cost.half().float(), loss.half().float(), floor)


def redrawn_once(fitted, loss, rows):
    return drawn_by_powers(fitted, loss, rows)[0]


def redrawn_by_chance(fitted, loss, rows):
    return drawn_by_powers(fitted, loss, torch.randint(len(loss), rows.shape))


WRONG = {
    "law_from_floor": (
        (changed(line_by_polyfit, lambda found: found[0]), "a tuple of 2"),
        (changed(line_by_polyfit, lambda found: (2 * found[0], found[1])), "Right: b. Wrong: a."),
        (changed(line_by_polyfit, lambda found: (found[0], 2 * found[1])), "Right: a. Wrong: b."),
        (changed(line_by_polyfit, lambda found: (*found, 0.0)), ""),
        (changed(line_by_polyfit, lambda found: (1 / found[0], found[1])), ""),
        (line_in_float16, ""),
        (lambda cost, loss, floor: None, "None"),
        (lambda cost, loss, floor: loss - floor, ""),
    ),
    "fit_law": (
        (fit_of_the_package, "it calls the package's own fit_law: write your own"),
        (changed(fit_by_polyfit, lambda found: found[:2]), "a tuple of 3"),
        (changed(fit_by_polyfit, lambda found: {"a": found[0], "b": found[1], "c": found[2]}), ""),
        (changed(fit_by_polyfit, lambda found: (found[0], -found[1], found[2])), "Wrong: b"),
        (changed(fit_by_polyfit, lambda found: (found[0], found[1], 0.0)), "Wrong: c"),
        (changed(fit_by_polyfit, lambda found: (found[0], round(found[1], 1), found[2])), ""),
        (lambda cost, loss, exponents: fit_by_polyfit(cost, loss, exponents[::2]), ""),
        (lambda cost, loss, exponents: fit_by_polyfit(cost / 2, loss, exponents), ""),
    ),
    "grown_sizes": (
        (grown_by_the_package, "it calls the package's own grown: write your own"),
        (grown_in_place, "changed in place"),
        (grown_to_a_config, "in a dictionary"),
        (changed(grown_by_hand, lambda new: {name: new[name] for name in ("depth", "dim")}), ""),
        (changed(grown_by_hand, lambda new: tuple(new.values())), ""),
        (changed(grown_by_hand, lambda new: new | {"depth": new["depth"] + 1}), "depth is 9 and should be 8"),
        (changed(grown_by_hand, lambda new: new | {"patch_size": 4}), ""),
    ),
    "redrawn_runs": (
        (redrawn_once, "has shape"),
        (redrawn_by_chance, "other numbers"),
        (changed(drawn_by_powers, torch.log), ""),
        (changed(drawn_by_powers, lambda drawn: drawn.T), "shape"),
        (changed(drawn_by_powers, lambda drawn: drawn.mean(dim=1)), "shape"),
        (changed(drawn_by_powers, lambda drawn: 2 * drawn), "2 times"),
    ),
}
