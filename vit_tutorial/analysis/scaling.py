"""Lesson 14: how quality grows with size: a power law with its interval, models in proportion."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vit_tutorial.vit import ViTConfig

Array = NDArray[np.float64]
EXPONENTS: Array = np.arange(1, 301) / 100  # 0.01 to 3: where b is looked for


@dataclass(frozen=True)
class PowerLaw:
    """L = a C^-b + c, a loss by its cost C.

    Args:
        a: what a model of cost 1 loses above the floor.
        b: the exponent: four times the cost divides what is above the floor by 4^b.
        c: the floor, which no cost gets below; it has the loss's unit.
    """

    a: float
    b: float
    c: float

    def __call__(self, cost: ArrayLike) -> Array:
        """The loss at each cost, (...) -> (...)."""
        return self.a * np.asarray(cost, float) ** -self.b + self.c


def fit_lines(cost: Array, losses: Array, exponents: Array) -> tuple[Array, Array, Array]:
    """For each exponent b the best a and c: with x = C^-b, L = a x + c is a straight line.

    The squares of the relative errors are as small as they can be, with neither a nor c below zero.

    Args:
        cost: C, (n,).
        losses: L, (n,).
        exponents: b, (E,).

    Returns:
        a, c, and the root of the mean squared relative error, (E,) each.
    """
    x = cost ** -exponents[:, None]  # (E, n)
    weights = losses**-2.0 / np.sum(losses**-2.0)  # (n,): an error of 1 % counts the same at each loss
    mean_x = x @ weights  # (E,)
    mean_loss = losses @ weights  # ()
    from_mean = x - mean_x[:, None]  # (E, n)
    a = (from_mean * losses) @ weights / (from_mean**2 @ weights)  # (E,)
    c = mean_loss - a * mean_x  # (E,)
    a = np.where(c < 0, (x * losses) @ weights / (x**2 @ weights), a)  # the best line through zero
    c = np.where(a < 0, mean_loss, np.maximum(c, 0))
    a = np.maximum(a, 0)
    errors = (a[:, None] * x + c[:, None]) / losses - 1  # (E, n)
    return a, c, np.sqrt(np.mean(errors**2, axis=1))


def fit_law(cost: ArrayLike, losses: ArrayLike) -> PowerLaw:
    """The law with the smallest relative errors, its exponent to two digits: from 0.01 to 3.

    Args:
        cost: of each run, (n,), multiply-accumulates or seconds, in a unit that keeps a readable.
        losses: of each run, (n,).

    Raises:
        ValueError: numbers not positive, lists of different lengths, fewer than three different costs.
    """
    x, y = _runs(cost, losses)
    a, c, errors = fit_lines(x, y, EXPONENTS)
    best = int(errors.argmin())
    return PowerLaw(float(a[best]), float(EXPONENTS[best]), float(c[best]))


@dataclass(frozen=True)
class Prediction:
    """What a law predicts for a run that has not been made, and how much of it is chance.

    Args:
        law: fitted to all runs.
        loss: the law at the new cost.
        run: (low, high): 95 of 100 new runs of this cost lie between them, if the law's form is right.
        exponent: (low, high) of b.
        floor: (low, high) of c.
        laws: fitted to the runs drawn again.
    """

    law: PowerLaw
    loss: float
    run: tuple[float, float]
    exponent: tuple[float, float]
    floor: tuple[float, float]
    laws: tuple[PowerLaw, ...]


def predict(cost: ArrayLike, losses: ArrayLike, new_cost: float, *, draws: int = 1000, seed: int = 0) -> Prediction:
    """Fit the law, and predict a run of another cost, with intervals by drawing the runs again.

    The loss of a run is the law's times a factor, whose logarithm we assume normal. Its standard deviation is known
    from n - 3 degrees of freedom only. So each draw first draws one that fits these runs (by a chi-squared
    number, which makes Student's t of a normal one), then n runs around the law, fits a law to them, and
    draws the new run around that. No interval covers a law of the wrong form.

    Args:
        cost: of each run, (n,), n at least 4.
        losses: of each run, (n,).
        new_cost: in the same unit.
        draws: how many.
        seed: of the draws.

    Raises:
        ValueError: as :func:`fit_law`, fewer than four runs, which leave no degree of freedom, or a new cost that isn't
            positive and finite.
    """
    x, y = _runs(cost, losses)
    n = len(x)
    if n < 4:
        raise ValueError(f"{n} runs determine a law of three numbers, without residuals: make at least 4")
    if not 0 < new_cost < math.inf:
        raise ValueError(f"new_cost must be positive and finite, got {new_cost}")
    law = fit_law(x, y)
    squares = np.sum(np.log(y / law(x)) ** 2)
    random = np.random.default_rng(seed)
    deviations = np.sqrt(squares / random.chisquare(n - 3, draws))  # (draws,)
    again = law(x) * np.exp(deviations[:, None] * random.standard_normal((draws, n)))  # (draws, n)
    laws = [fit_law(x, runs) for runs in again]
    chance = np.exp(deviations * random.standard_normal(draws))  # (draws,)
    runs = np.array([float(sample(new_cost)) for sample in laws]) * chance
    return Prediction(
        law=law,
        loss=float(law(new_cost)),
        run=interval(runs),
        exponent=interval([sample.b for sample in laws]),
        floor=interval([sample.c for sample in laws]),
        laws=tuple(laws),
    )


def interval(values: Sequence[float] | Array) -> tuple[float, float]:
    """The middle 95 % of some numbers, as many of them below it as above: (low, high)."""
    low, high = np.quantile(values, [0.025, 0.975])
    return float(low), float(high)


def scale_config(config: ViTConfig, factor: float) -> ViTConfig:
    """The model grown, or shrunk, in all its sizes at once: depth, heads, width and MLP by one factor.

    Each is rounded to whole layers and heads; the width of a head stays, and the MLP's ratio to the width.

    Raises:
        ValueError: a factor that isn't positive and finite.
    """
    if not 0 < factor < math.inf:
        raise ValueError(f"a model grows by a positive, finite factor, got {factor}")
    depth, heads = (max(1, math.floor(factor * size + 0.5)) for size in (config.depth, config.num_heads))
    dim = heads * (config.dim // config.num_heads)
    return replace(config, depth=depth, num_heads=heads, dim=dim, mlp_dim=round(dim * config.mlp_dim / config.dim))


def _runs(cost: ArrayLike, losses: ArrayLike) -> tuple[Array, Array]:
    x, y = np.asarray(cost, float), np.asarray(losses, float)
    if x.shape != y.shape or x.ndim != 1:
        raise ValueError(f"costs {x.shape} and losses {y.shape} must be two lists of the same length, a number per run")
    for name, values in (("costs", x), ("losses", y)):
        if not (np.isfinite(values).all() and (values > 0).all()):
            raise ValueError(f"{name} must be positive numbers, got {values.min():g}: leave out runs that failed")
    different = len(np.unique(x))
    if different < 3:
        raise ValueError(f"a law has three numbers, and {different} different costs don't determine it: take 3 or more")
    return x, y
