"""Answers to the exercises of lesson 14: right ones in different styles, and wrong ones, each with its report."""

import math
from decimal import ROUND_HALF_UP, Decimal

import numpy as np
import torch
from submissions import Wrong

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


RIGHT = {
    "scaling_numbers": (lambda: NUMBERS,),
    "law_from_floor": (line_by_polyfit, line_by_lstsq),
    "fit_law": (fit_by_polyfit, fit_by_residuals),
    "grown_sizes": (grown_by_hand, grown_by_decimals),
    "redrawn_runs": (drawn_by_powers, drawn_by_loops),
}


# ---- Wrong ones --------------------------------------------------------------------------------------------------


def answers(**changes):
    return lambda: NUMBERS | changes


def changed(work, change):
    """A right work whose result is changed afterwards."""
    return lambda *args: change(work(*args))


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


def falling(fits):
    return [fits[i] for i in range(len(fits)) if i == 0 or fits[i][0] < fits[i - 1][0]][-1]


def those(keep):
    """The exponents that ``keep`` leaves, or all if it leaves none."""
    return lambda exponents: exponents[keep(exponents)] if keep(exponents).any() else exponents


def grown(**others):
    """The right sizes, but for those that are given as functions of (sizes, factor, the right ones)."""

    def grown_sizes(sizes, factor):
        new = grown_by_hand(sizes, factor)
        return new | {name: work(sizes, factor, new) for name, work in others.items()}

    return grown_sizes


WRONG = {
    "scaling_numbers": [
        Wrong("the start", answers(floor=7), "when C is very large"),
        Wrong("divided", answers(speed=0.04), "MACs per image times images per second"),
    ],
    "law_from_floor": [
        Wrong("one number", changed(line_by_polyfit, lambda found: found[0]), "a tuple of 2"),
    ],
    "fit_law": [
        Wrong("smaller than the one before", fit(best=falling), "First seen", never="other numbers"),
    ],
    "grown_sizes": [
        Wrong(
            "once passed: cut off",
            grown(mlp_dim=lambda old, factor, new: int(new["dim"] * (old["mlp_dim"] / old["dim"]))),
        ),
    ],
    "redrawn_runs": [
        Wrong("one draw", changed(drawn_by_powers, lambda drawn: drawn[0]), "has shape"),
    ],
}
