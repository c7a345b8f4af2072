"""What a wrong result has to do with the right one, where no known mistake explains it.

Each finder takes the right tensor and the student's, and says what it sees in a sentence, or "". The first one that
sees something is reported. It says what is, never what may have been meant.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from vit_tutorial.checks.engine.compare import as_tensor, difference
from vit_tutorial.checks.engine.exercise import Attempt, Exercise, Fault, Trial, Value

Finder = Callable[[Tensor, Tensor, float], str]


class WrongTensor(NamedTuple):
    """The first tensor that is wrong in a case, and the right one."""

    name: str  # of the value that it belongs to
    right: Tensor
    actual: Tensor
    label: str  # what the case is called


def symptom(trial: Trial) -> str:
    """What the wrong results have to do with the right ones: in all cases, or only in the first wrong one."""
    if isinstance(trial.wrong[0].outcome, Fault):
        return ""
    tensors = [tensor for attempt in trial.wrong if (tensor := _first_wrong_tensor(attempt, trial.exercise))]
    for finder in FINDERS if tensors else ():
        sentences = [_apply(finder, tensor, trial.exercise.tolerance) for tensor in tensors]
        if sentences[0]:
            everywhere = len(set(sentences)) == 1 and len(tensors) == len(trial.attempts)
            return sentences[0] if everywhere else f"{sentences[0]} (with {tensors[0].label})"
    return ""


def _first_wrong_tensor(attempt: Attempt, exercise: Exercise) -> WrongTensor | None:
    if isinstance(attempt.outcome, Fault):
        return None
    for name, value in attempt.right.values.items():
        actual = _parts(name, attempt.outcome.values.get(name))
        for place, right in _parts(name, value).items():
            if isinstance(right, Tensor) and difference(right, actual.get(place), place, exercise):
                tensor = as_tensor(actual.get(place))
                if tensor is None or not _is_usable(right, tensor):
                    return None
                return WrongTensor(place, right.detach().double(), tensor.detach().double(), attempt.case.label)
    return None


def _parts(name: str, value: Value) -> dict[str, Value]:
    """A value, or the parts of a tuple or list, by their names."""
    if isinstance(value, (tuple, list)):
        return {f"{name}[{index}]": part for index, part in enumerate(value)}
    return {name: value}


def _is_usable(right: Tensor, actual: Tensor) -> bool:
    if actual.is_complex() or not right.numel() or not actual.numel():
        return False
    return bool(right.isfinite().all() and actual.isfinite().all())


def _apply(finder: Finder, wrong: WrongTensor, tolerance: float) -> str:
    if wrong.actual.shape != wrong.right.shape and finder not in OF_ANY_SHAPE:
        return ""
    if _same(wrong.actual, wrong.right, tolerance):  # the right numbers, of another kind
        return ""
    sentence = finder(wrong.right, wrong.actual, tolerance)
    return f"{wrong.name}: {sentence}" if sentence and wrong.name != "result" else sentence


def _same(x: Tensor, y: Tensor, tolerance: float) -> bool:
    """Whether two tensors hold the same numbers, within a tolerance relative to the largest of y."""
    return x.shape == y.shape and bool(((x - y).abs() <= tolerance * max(1.0, y.abs().max().item())).all())


# ---- The finders -------------------------------------------------------------------------------------------------


def scaled(right: Tensor, actual: Tensor, tolerance: float) -> str:
    """One factor for all numbers."""
    if not right.any() or right.numel() == 1:  # between any two single numbers there is a factor
        return ""
    factor = ((actual * right).sum() / (right * right).sum()).item()
    if not math.isfinite(factor) or abs(factor) < tolerance or abs(factor - 1) < tolerance:
        return ""
    whole = all(bool((x == x.round()).all()) for x in (actual, right))
    if whole and factor != round(factor):  # labels and places: a factor is chance
        return ""
    rest, change = (actual - factor * right).abs(), ((factor - 1) * right).abs()
    if not bool((rest <= 3e-5 * change + 1e-6 * right.abs().max()).all()):
        return ""
    if abs(factor + 1) < tolerance:
        return "Every number is right but for its sign."
    return f"Every number is {factor:.4g} times the right one." if abs(factor - 1) > 0.01 else ""


def permuted(right: Tensor, actual: Tensor, tolerance: float) -> str:
    """The right numbers with axes in another order."""
    if actual.ndim != right.ndim or not 2 <= actual.ndim <= 5:
        return ""
    for order in itertools.permutations(range(actual.ndim)):
        axes = [axis for axis, place in enumerate(order) if axis != place]
        if not axes or not _same(actual.permute(order), right, tolerance):
            continue
        if len(axes) == 2:
            return f"Your numbers are right, but axes {axes[0]} and {axes[1]} are exchanged: transpose{tuple(axes)}."
        return f"Your numbers are right, but the axes are in another order: permute{order} puts them right."
    return ""


def another_shape(right: Tensor, actual: Tensor, tolerance: float) -> str:
    """The right numbers in another shape."""
    if actual.shape == right.shape or actual.numel() != right.numel():
        return ""
    if _same(actual.reshape(right.shape), right, tolerance):
        return "Your numbers are right, and in the right order; only the shape isn't."
    if _same(actual.flatten().sort().values, right.flatten().sort().values, tolerance):
        return "The right numbers are all there, but in another order and another shape."
    return ""


def too_long_or_short(right: Tensor, actual: Tensor, tolerance: float) -> str:
    """Some slices too many or too few along one axis."""
    if actual.ndim != right.ndim:
        return ""
    apart = [axis for axis in range(actual.ndim) if actual.shape[axis] != right.shape[axis]]
    if len(apart) != 1:
        return ""
    (axis,) = apart
    long, brief = (actual, right) if actual.shape[axis] > right.shape[axis] else (right, actual)
    rest = long.shape[axis] - brief.shape[axis]
    starts = [n for n in range(rest + 1) if _same(long.narrow(axis, n, brief.shape[axis]), brief, tolerance)]
    if len(starts) != 1:  # of equal slices it can't be said which are missing
        return ""
    (start,) = starts
    ends = []
    if start > 0:
        ends.append(f"the first {start}")
    if start < rest:
        ends.append(f"the last {rest - start}")
    where = " and ".join(ends)
    if long is actual:
        return f"Along axis {axis}, {where} of yours are too many; the rest is right."
    return f"Along axis {axis}, {where} of the right ones are missing; what is there is right."


def shuffled(right: Tensor, actual: Tensor, tolerance: float) -> str:
    """The right numbers in other places."""
    if right.unique().numel() < 5 < right.numel():  # a few labels are all there by chance
        return ""
    right_sorted, actual_sorted = right.flatten().sort().values, actual.flatten().sort().values
    if not _same(actual_sorted, right_sorted, tolerance):
        return ""
    # Of many numbers that lie close together, each is near another one.
    if (actual_sorted - right_sorted).abs().max() > 0.02 * (actual - right).abs().max():
        return ""
    return "The right numbers are all there, but in other places: look at the order of the axes."


def partly_right(right: Tensor, actual: Tensor, tolerance: float) -> str:
    """All that is wrong is at some indices of one axis."""
    apart, scale = (actual - right).abs(), max(1.0, right.abs().max().item())
    wrong = apart > tolerance * scale
    nearly = (apart > 0.02 * tolerance * scale) & ~wrong  # which is not right
    axis, bad = _narrowest_axis(wrong)
    clean = torch.ones_like(wrong).index_fill_(axis, torch.tensor(bad, dtype=torch.int64), False)
    if not bad or (nearly & clean).any():
        return ""
    n = wrong.shape[axis]
    return f"All that is wrong is at {_indices(bad, n)} along axis {axis} (of {n}); the rest is right."


FINDERS: tuple[Finder, ...] = (scaled, permuted, another_shape, too_long_or_short, shuffled, partly_right)
OF_ANY_SHAPE: tuple[Finder, ...] = (permuted, another_shape, too_long_or_short)


# ---- Axes and indices --------------------------------------------------------------------------------------------


def _narrowest_axis(wrong: Tensor) -> tuple[int, list[int]]:
    """The axis of which the smallest fraction of indices holds all that is wrong, and those; no indices if all do."""
    smallest, axis, indices = 1.0, 0, list[int]()
    for candidate, n in enumerate(wrong.shape):
        bad = wrong.movedim(candidate, 0).reshape(n, -1).any(1).nonzero().flatten().tolist()
        if 0 < len(bad) < n and len(bad) / n < smallest:
            smallest, axis, indices = len(bad) / n, candidate, bad
    return axis, indices


def _indices(bad: list[int], n: int) -> str:
    if bad == [n - 1]:
        return f"index {n - 1}, the last"
    if bad == [0]:
        return "index 0, the first"
    if len(bad) == 1:
        return f"index {bad[0]}"
    if bad == list(range(bad[0], bad[-1] + 1)):
        return f"indices {bad[0]} to {bad[-1]}"
    more = ", …" if len(bad) > 8 else ""
    return f"indices {', '.join(map(str, bad[:8]))}{more}"
