"""Several seeds: the mean with its interval. And the rate that each contender gets, from a grid that may grow."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence

from scipy import stats


def best_of_growing_grid(
    grid: Sequence[float], score: Callable[[float], float], beyond: Callable[[float, int], float]
) -> float:
    """The value with the highest score, which doesn't lie at an edge of the values that were tried.

    While the best is at an edge, one more value is tried: ``beyond(best, side)``, with side -1 at the lower edge and 1
    at the upper one.
    """
    scores = {value: score(value) for value in grid}
    while (best := max(scores, key=lambda value: scores[value])) in (min(scores), max(scores)):
        further = beyond(best, -1 if best == min(scores) else 1)
        scores[further] = score(further)
    return best


def half_interval(values: Sequence[float]) -> float:
    """Half of Student's 95 % interval of the mean of ``values``, one for each seed; they may be paired differences."""
    if len(values) < 2:
        return math.inf
    return float(stats.t.ppf(0.975, len(values) - 1)) * statistics.stdev(values) / math.sqrt(len(values))


def mean_with_interval(values: Sequence[float]) -> str:
    """Such as "81.3 ± 0.7"; the mean alone if there is one value."""
    mean = f"{statistics.mean(values):.1f}"
    return f"{mean} ± {half_interval(values):.1f}" if len(values) > 1 else mean
