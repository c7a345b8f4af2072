"""What a wrong result has to do with the right one, where no known mistake explains it.

Each finder takes the right tensor and the student's, and says what it sees in a sentence, or "". The first one that
sees something is reported. It says what is, never what may have been meant.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from vit_tutorial.checks.engine.compare import as_parts, as_tensor, difference
from vit_tutorial.checks.engine.exercise import Observation, Value
from vit_tutorial.checks.engine.run import Trial

Finder = Callable[[Tensor, Tensor, float], str]


class WrongTensor(NamedTuple):
    """A tensor that is wrong, and the right one."""

    right: Tensor
    given: Tensor
    label: str  # what the case is called


def symptom(trial: Trial) -> str:
    """What the wrong results have to do with the right ones: in all cases, or in the first wrong one alone."""
    name, wrong = _first_wrong_value(trial)
    if not wrong:
        return ""
    for finder in FINDERS:
        found = [_apply(finder, tensor, trial.exercise.tolerance) for tensor in wrong]
        everywhere = len(set(found)) == 1 and len(trial.wrong) == len(trial.attempts)
        # Between any two single numbers there is a factor.
        if finder is scaled and all(one.right.numel() == 1 for one in wrong) and (len(found) < 3 or not everywhere):
            continue
        if found[0]:
            sentence = found[0] if everywhere else f"{found[0]} (with {wrong[0].label})"
            return sentence if name == "result" else f"{name.rstrip(',')}: {sentence}"
    return ""


def _first_wrong_value(trial: Trial) -> tuple[str, list[WrongTensor]]:
    """The first tensor among the values that is wrong, by its name, in all cases where it is wrong."""
    found: dict[str, list[WrongTensor]] = {}
    for attempt in trial.wrong:
        if not isinstance(attempt.outcome, Observation):
            continue
        for name, value in attempt.right.values.items():
            for place, right, given in _pairs(value, attempt.outcome.values.get(name)):
                if difference(right, given, name, trial.exercise):
                    one = WrongTensor(right.detach().double(), given.detach().double(), attempt.case.label)
                    found.setdefault(name + place, []).append(one)
    return next(iter(found.items()), ("", []))


def _pairs(right: Value, given: Value) -> Iterator[tuple[str, Tensor, Tensor]]:
    """The tensors of a value and of the student's, each with its place, such as [0]."""
    if isinstance(right, (tuple, list)):
        for index, (ours, theirs) in enumerate(zip(right, as_parts(given, len(right)) or [], strict=False)):
            for place, expected, part in _pairs(ours, theirs):
                yield f"[{index}]{place}", expected, part
        return
    tensor = as_tensor(given)
    if isinstance(right, Tensor) and tensor is not None and _is_usable(right, tensor):
        yield "", right, tensor


def _is_usable(right: Tensor, given: Tensor) -> bool:
    if given.is_complex() or not right.numel() or not given.numel():
        return False
    return bool(right.isfinite().all() and given.isfinite().all())


def _apply(finder: Finder, wrong: WrongTensor, tolerance: float) -> str:
    if wrong.given.shape != wrong.right.shape and finder not in OF_ANY_SHAPE:
        return ""
    # Of numbers that are right and of another kind nothing is said.
    same = _same(wrong.given, wrong.right, tolerance)
    return "" if same else finder(wrong.right, wrong.given, tolerance)


def _same(x: Tensor, y: Tensor, tolerance: float) -> bool:
    """Whether two tensors hold the same numbers, within a tolerance relative to the largest of y."""
    return x.shape == y.shape and bool(((x - y).abs() <= tolerance * max(1.0, y.abs().max().item())).all())


# ---- The finders -------------------------------------------------------------------------------------------------


def scaled(right: Tensor, given: Tensor, tolerance: float) -> str:
    """One factor for all numbers."""
    if not right.any():
        return ""
    factor = ((given * right).sum() / (right * right).sum()).item()
    if not math.isfinite(factor) or abs(factor) < tolerance or abs(factor - 1) < tolerance:
        return ""
    whole = all(bool((x == x.round()).all()) for x in (given, right))
    if whole and factor != round(factor):  # labels and places: a factor is chance
        return ""
    left, change = (given - factor * right).abs(), ((factor - 1) * right).abs()
    if not bool((left <= 3e-5 * change + 1e-6 * right.abs().max()).all()):
        return ""
    if abs(factor + 1) < tolerance:
        return "Every number is right but for its sign."
    return f"Every number is {factor:.4g} times the right one." if abs(factor - 1) > 0.01 else ""


def permuted(right: Tensor, given: Tensor, tolerance: float) -> str:
    """The right numbers with axes in another order."""
    if given.ndim != right.ndim or not 2 <= given.ndim <= 5:
        return ""
    for order in itertools.permutations(range(given.ndim)):
        moved = [axis for axis, place in enumerate(order) if axis != place]
        if not moved or not _same(given.permute(order), right, tolerance):
            continue
        if len(moved) == 2:
            return f"Your numbers are right, but {_axes(moved)} are exchanged: transpose{tuple(moved)}."
        return f"Your numbers are right, but the axes are in another order: permute{order} puts them right."
    return ""


def another_shape(right: Tensor, given: Tensor, tolerance: float) -> str:
    """The right numbers in another shape."""
    if given.shape == right.shape or given.numel() != right.numel():
        return ""
    if _same(given.reshape(right.shape), right, tolerance):
        return "Your numbers are right, and in the right order; only the shape isn't."
    if _same(given.flatten().sort().values, right.flatten().sort().values, tolerance):
        return "The right numbers are all there, but in another order and another shape."
    return ""


def too_long_or_short(right: Tensor, given: Tensor, tolerance: float) -> str:
    """Some slices too many or too few along one axis."""
    if given.ndim != right.ndim:
        return ""
    apart = [axis for axis in range(given.ndim) if given.shape[axis] != right.shape[axis]]
    if len(apart) != 1:
        return ""
    (axis,) = apart
    long, brief = (given, right) if given.shape[axis] > right.shape[axis] else (right, given)
    rest = long.shape[axis] - brief.shape[axis]
    starts = [n for n in range(rest + 1) if _same(long.narrow(axis, n, brief.shape[axis]), brief, tolerance)]
    if len(starts) != 1:  # of equal slices it can't be said which are missing
        return ""
    (start,) = starts
    where = " and ".join([f"the first {start}"] * bool(start) + [f"the last {rest - start}"] * (rest > start))
    if long is given:
        return f"Along axis {axis}, {where} of yours are too many; the rest is right."
    return f"Along axis {axis}, {where} of the right ones are missing; what is there is right."


def shuffled(right: Tensor, given: Tensor, tolerance: float) -> str:
    """The right numbers in other places."""
    if right.unique().numel() < 5 < right.numel():  # a few labels are all there by chance
        return ""
    theirs, ours = (x.flatten().sort().values for x in (given, right))
    # Of many numbers that lie close together, each is near another one.
    if not _same(theirs, ours, tolerance) or (theirs - ours).abs().max() > 0.02 * (given - right).abs().max():
        return ""
    within = []
    for axis, n in enumerate(given.shape):
        if 1 < n < given.numel():
            theirs, ours = (x.movedim(axis, 0).reshape(n, -1).sort(1).values for x in (given, right))
            if _same(theirs, ours, tolerance):
                within.append(axis)
    if not within:
        return "The right numbers are all there, but in other places: look at the order of the axes, and at signs."
    return (
        f"The right numbers are all there, and each index of {_axes(within)} has its own, but not all are in "
        "their places."
    )


def partly_right(right: Tensor, given: Tensor, tolerance: float) -> str:
    """All that is wrong is at some indices of one axis."""
    apart, scale = (given - right).abs(), max(1.0, right.abs().max().item())
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


def _axes(axes: list[int]) -> str:
    return f"axis {axes[0]}" if len(axes) == 1 else f"axes {', '.join(map(str, axes[:-1]))} and {axes[-1]}"


def _narrowest_axis(wrong: Tensor) -> tuple[int, list[int]]:
    """The axis of which the smallest share of indices holds all that is wrong, and those; no indices if all do."""
    smallest, axis, indices = 1.0, 0, list[int]()
    for candidate, n in enumerate(wrong.shape):
        bad = wrong.movedim(candidate, 0).reshape(n, -1).any(1).nonzero().flatten().tolist()
        if 0 < len(bad) < n and len(bad) / n < smallest:
            smallest, axis, indices = len(bad) / n, candidate, bad
    return axis, indices


def _indices(bad: list[int], n: int) -> str:
    if len(bad) == 1:
        return f"index {bad[0]}" + (", the last" if bad[0] == n - 1 else ", the first" if bad[0] == 0 else "")
    if bad == list(range(bad[0], bad[-1] + 1)):
        return f"indices {bad[0]} to {bad[-1]}"
    return f"indices {', '.join(map(str, bad[:8]))}{', …' if len(bad) > 8 else ''}"
