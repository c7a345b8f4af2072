"""Whether random draws are fresh, and fall as often as they should.

All bounds are so wide that a right work fails less than once in a million runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

DEVIATIONS = 6.0  # how many standard deviations a share may be off: 2 in a billion


def staleness(draw: Callable[[], Tensor], times: int = 6) -> str:
    """What each draw is, in words that fit after "each draw is", or "" if every one of them is fresh.

    Args:
        draw: makes one draw; two fair ones must be equal less than once in 10 ** 9.
        times: how many draws are compared with one another.
    """
    runs = []
    for seed in (101, 202):
        torch.default_generator.manual_seed(seed)
        runs.append([draw().detach().clone() for _ in range(times)])
        if torch.initial_seed() != seed:
            return "tied to a seed that your code sets, for everybody (torch.manual_seed)"
    first, second = runs
    if any(torch.equal(a, b) for i, a in enumerate(first) for b in first[:i]):
        return "the same as one before: each needs random numbers of its own"
    if any(torch.equal(a, b) for a, b in zip(first, second, strict=True)):
        return "the same with another seed of torch, as from a generator with a fixed seed"
    return ""


def is_improbable(hits: int, draws: int, p: float) -> bool:
    """Whether so many ``hits`` can't be chance, out of independent ``draws`` of probability ``p``."""
    return abs(hits - draws * p) > DEVIATIONS * math.sqrt(draws * p * (1 - p)) + 1


def distinct_numbers(numbers: Tensor, digits: int) -> str:
    """The different numbers among many, in order, rounded."""
    ordered = numbers.detach().flatten().sort().values
    first = torch.cat([torch.tensor([True]), ordered.diff() > 1e-3])
    distinct = [f"{round(number, digits) + 0.0:g}" for number in ordered[first].tolist()]
    return ", ".join(distinct[:8]) + (", …" if len(distinct) > 8 else "")
