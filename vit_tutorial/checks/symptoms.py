"""What a wrong result has to do with the right one, where no known mistake explains it.

Each finder takes the right tensor, the student's and the inputs by name, and says what it sees in a sentence, or "".
The first one that sees something on every wrong input is reported. It says what is, never what may have been meant.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

Inputs = Mapping[str, Any]
Finder = Callable[[Tensor, Tensor, Inputs, float], str]
Pair = tuple[Tensor, Tensor, Inputs, str]  # the right one, the student's, the inputs, what the case is called
_THAT_IS = ", that is "
_OR = " | "  # between what a factor may come from, until it is known what holds on all inputs


def symptom(pairs: list[Pair], tolerance: float, finders: Iterable[Finder], others: bool = False) -> str:
    """What holds of the student's results on all inputs, or at least on the first; "" if nothing is seen.

    What holds of one input only, or of each in another way, is said with the first one's name; ``others`` says that
    other inputs were tried beside the pairs.
    """
    prepared = [
        (right.detach().double(), given.detach().double(), inputs, label)
        for right, given, inputs, label in pairs
        if right.numel() and given.numel() and right.isfinite().all()
    ]
    partly, alone = "", all(right.numel() == 1 for right, *_ in prepared)
    for finder in finders:
        found = [_tell(finder, pair, tolerance) for pair in prepared]
        if alone and finder in OF_MANY and (len(found) < 3 or len(set(map(_without_origin, found))) > 1):
            continue  # between any two numbers there is a factor, and two factors may agree by chance
        if found and all(found):
            text = _with_origin(found)
            # Another factor, or other places, with each input: what is said holds of the first.
            return f"{text} (with {prepared[0][3]})" if others or len(set(found)) > 1 else text
        if found and found[0] and not partly and finder not in WEAK:
            partly = f"{_without_origin(found[0])} (with {prepared[0][3]})"
    return partly


def _with_origin(found: list[str]) -> str:
    """The first text, with what its factor comes from if that is one and the same on all inputs, else by chance."""
    origins = [text.partition(_THAT_IS)[2].removesuffix(".").split(_OR) for text in found]
    common = set.intersection(*({re.sub(r"[\d.]+", "", one) for one in some} for some in origins))
    fitting = [one for one in origins[0] if re.sub(r"[\d.]+", "", one) in common]
    head = found[0].partition(_THAT_IS)[0]
    return f"{head}{_THAT_IS}{fitting[0]}." if len(fitting) == 1 and fitting[0] else _without_origin(found[0])


def _without_origin(text: str) -> str:
    return text if _THAT_IS not in text else text.partition(_THAT_IS)[0] + "."


def _tell(finder: Finder, pair: Pair, tolerance: float) -> str:
    right, given, inputs, _ = pair
    if _same(given, right, tolerance):
        return ""  # right in its numbers: it is of another kind
    if given.shape != right.shape and finder not in OF_ANY_SHAPE:
        return ""
    try:
        return finder(right, given, inputs, tolerance)
    except (ArithmeticError, IndexError, RuntimeError, ValueError):
        return ""  # odd shapes, nan: a description is an extra, and must not cost the report


def _same(x: Tensor, y: Tensor, tolerance: float) -> bool:
    """Whether two tensors hold the same numbers, within a tolerance relative to the largest of y."""
    if x.shape != y.shape or not y.isfinite().all():
        return False
    scale = max(1.0, y.abs().max().item())
    return bool(((x - y).abs() <= tolerance * scale).all())


def _explains(mended: Tensor, right: Tensor, given: Tensor, tolerance: float) -> bool:
    """Whether yours are the right ones, changed so: what is left over is little beside the change, in each number."""
    left = (given - mended).abs()
    little = bool((left <= 3e-5 * (mended - right).abs() + 1e-6 * right.abs().max()).all())
    return little and _same(mended, given, tolerance)


def _axes(*axes: int) -> str:
    return f"axis {axes[0]}" if len(axes) == 1 else f"axes {', '.join(map(str, axes[:-1]))} and {axes[-1]}"


def _number(value: float) -> str:
    return f"{value:.4g}"


# ---- The result as a whole ---------------------------------------------------------------------------------------


def _not_finite(right: Tensor, given: Tensor, inputs: Inputs, tolerance: float) -> str:
    bad = ~given.isfinite()
    if not bad.any():
        return ""
    kinds = " or ".join(["nan"] * bool(given.isnan().any()) + ["infinite"] * bool(given.isinf().any()))
    if bool(bad.all()):
        return (
            f"All of your numbers are {kinds}. Is something divided by 0, is e raised to a power that is too large, or "
            "is a root or a logarithm taken of a number for which there is none?"
        )
    where = _slices_that_differ(bad)
    return f"{int(bad.sum())} of your {bad.numel()} numbers are {kinds}{', ' + where if where else ''}."


def _one_number(right: Tensor, given: Tensor, inputs: Inputs, tolerance: float) -> str:
    one = given.flatten()[0].item()
    if given.numel() < 2 or not (given - one).abs().max() <= 1e-9 * abs(one):
        return ""
    if _same(right, torch.full_like(right, one), tolerance):
        return ""  # so are the right ones
    return f"All of your numbers are the same, {_number(one)}."


def _an_input(right: Tensor, given: Tensor, inputs: Inputs, tolerance: float) -> str:
    for name, x in inputs.items():
        if isinstance(x, Tensor) and torch.equal(given, x.double()) and given.unique().numel() > 1:
            return f"You return {name} as it came in."
    return ""


def _scaled(right: Tensor, given: Tensor, inputs: Inputs, tolerance: float) -> str:
    if not right.any():
        return ""
    factor = ((given * right).sum() / (right * right).sum()).item()
    if not math.isfinite(factor) or factor == 0.0 or not _same(given / factor, right, tolerance):
        return ""
    if abs(factor - 1) < tolerance:  # right in its numbers: it is another kind of number
        return ""
    if abs(factor + 1) < tolerance:
        return "Every number is right but for its sign."
    if _whole(given, right) and factor != round(factor):
        return ""  # labels and places: a factor is chance
    if not _explains(factor * right, right, given, tolerance):
        return ""
    digits = _number(factor) if abs(factor - 1) > 0.01 else f"{factor:.7g}"
    return f"Every number is {digits} times the right one{_origin(factor, inputs)}."


def _whole(given: Tensor, right: Tensor) -> bool:
    return all(bool((x == x.round()).all()) for x in (given, right))


def _shifted(right: Tensor, given: Tensor, inputs: Inputs, tolerance: float) -> str:
    if given.numel() < 2:
        return ""
    shift = (given - right).mean().item()
    if abs(shift) < tolerance or not _explains(right + shift, right, given, tolerance):
        return ""
    return f"Every number is {_number(abs(shift))} too {'large' if shift > 0 else 'small'}."


def _origin(factor: float, inputs: Inputs) -> str:
    """All that a factor may come from: lengths, or the roots of them."""
    found = []
    for n, words in _lengths(inputs):
        for value, text in ((n, f"{n}"), (math.sqrt(n), f"√{n}")):
            if n > 1 and math.isclose(factor, value, rel_tol=1e-5):
                found.append(f"{text}; {words}")
            if n > 1 and math.isclose(factor, 1 / value, rel_tol=1e-5):
                found.append(f"1/{text}; {words}")
    return _THAT_IS + _OR.join(found) if found else ""


def _lengths(inputs: Inputs) -> Iterator[tuple[int, str]]:
    for name, x in inputs.items():
        if isinstance(x, int) and not isinstance(x, bool):
            yield x, f"{name} is {x}"
        elif isinstance(x, Tensor):
            for axis, n in enumerate(x.shape):
                yield n, f"{n} is the length of axis {axis} of {name}"


# ---- An input too much or too little -----------------------------------------------------------------------------


def _plus_an_input(right: Tensor, given: Tensor, inputs: Inputs, tolerance: float) -> str:
    for name, x in _broadcast(inputs, right):
        times = (((right - given) * x).sum() / (x * x).sum()).item()
        if abs(times) < 1e-3 or not _explains(right - times * x, right, given, tolerance):
            continue
        if abs(times - 1) < 1e-4:
            return f"What is missing is {name}: added to yours, it gives the right numbers."
        if abs(times + 1) < 1e-4:
            return f"{name} is added once too often: without it your numbers are right."
        return f"Yours and the right numbers differ by {_number(abs(times))} times {name}."
    return ""


def _times_an_input(right: Tensor, given: Tensor, inputs: Inputs, tolerance: float) -> str:
    for name, x in _broadcast(inputs, right):
        if _explains(given * x, given, right, tolerance):
            return f"What is missing is a multiplication by {name}."
        if bool((x != 0).all()) and _explains(right * x, right, given, tolerance):
            return f"You multiply by {name} once too often."
    return ""


def _broadcast(inputs: Inputs, right: Tensor) -> Iterator[tuple[str, Tensor]]:
    for name, x in inputs.items():
        if not isinstance(x, Tensor) or not x.any():
            continue
        try:
            yield name, x.detach().double().broadcast_to(right.shape)
        except RuntimeError:
            continue


# ---- Axes and places ---------------------------------------------------------------------------------------------


def _permuted(right: Tensor, given: Tensor, inputs: Inputs, tolerance: float) -> str:
    if given.ndim != right.ndim or not 2 <= given.ndim <= 5:
        return ""
    for order in itertools.permutations(range(given.ndim)):
        moved = [axis for axis, place in enumerate(order) if axis != place]
        if moved and all(given.shape[place] == n for place, n in zip(order, right.shape, strict=True)):
            if not _same(given.permute(order), right, tolerance):
                continue
            if len(moved) == 2:
                return f"Your numbers are right, but {_axes(*moved)} are exchanged: transpose{tuple(moved)}."
            return f"Your numbers are right, but the axes are in another order: permute{order} puts them right."
    return ""


def _another_shape(right: Tensor, given: Tensor, inputs: Inputs, tolerance: float) -> str:
    if given.shape == right.shape or given.numel() != right.numel():
        return ""
    if _same(given.reshape(right.shape), right, tolerance):
        return "Your numbers are right, and in the right order; only the shape isn't."
    if _same(given.flatten().sort().values, right.flatten().sort().values, tolerance):
        return "The right numbers are all there, but in another order and another shape."
    return ""


def _too_long_or_short(right: Tensor, given: Tensor, inputs: Inputs, tolerance: float) -> str:
    if given.ndim != right.ndim:
        return ""
    apart = [axis for axis in range(given.ndim) if given.shape[axis] != right.shape[axis]]
    if len(apart) != 1:
        return ""
    (axis,) = apart
    long, brief = (given, right) if given.shape[axis] > right.shape[axis] else (right, given)
    rest = long.shape[axis] - brief.shape[axis]
    starts = [n for n in range(rest + 1) if _same(long.narrow(axis, n, brief.shape[axis]), brief, tolerance)]
    if len(starts) != 1:
        return ""  # of equal slices it can't be said which are missing
    (start,) = starts
    ends = [f"the first {start}" * bool(start), f"the last {rest - start}" * (rest > start)]
    where = " and ".join(filter(None, ends))
    if long is given:
        return f"Along axis {axis}, {where} of yours are too many; the rest is right."
    return f"Along axis {axis}, {where} of the right ones are missing; what is there is right."


def _summed(right: Tensor, given: Tensor, inputs: Inputs, tolerance: float) -> str:
    pairs = (("yours is", right, given, "the right one"), ("the right one is", given, right, "yours"))
    for words, large, small, other in pairs:
        if large.ndim not in (small.ndim, small.ndim + 1):
            continue
        for axis in range(large.ndim):
            if large.shape[axis] < 2:
                continue
            keep = large.ndim == small.ndim
            fitting = [verb for verb, value in _along(large, axis, keep) if _same(value, small, tolerance)]
            if len(fitting) == 1:  # of equal numbers it can't be said which it is
                return f"{words[0].upper()}{words[1:]} {fitting[0]} along axis {axis} of {other}."
    return ""


def _along(x: Tensor, axis: int, keep: bool) -> Iterator[tuple[str, Tensor]]:
    yield "the sum", x.sum(axis, keepdim=keep)
    yield "the mean", x.mean(axis, keepdim=keep)
    yield "the largest", x.amax(axis, keepdim=keep)
    yield "index 0", x.narrow(axis, 0, 1) if keep else x.select(axis, 0)


def _flipped_or_rolled(right: Tensor, given: Tensor, inputs: Inputs, tolerance: float) -> str:
    for axis, n in enumerate(given.shape):
        if n > 1 and _same(given.flip(axis), right, tolerance):
            return f"Axis {axis} runs backwards: the first of yours is the last of the right ones."
        for steps in range(1, n):
            if _same(given.roll(-steps, axis), right, tolerance):
                if 2 * steps == n > 2:
                    return f"Along axis {axis}, the two halves are exchanged."
                places, word = (steps, "late") if steps <= n / 2 else (n - steps, "early")
                return f"Along axis {axis}, all stands {places} place{'s' * (places > 1)} too {word}, as in torch.roll."
    return ""


def _slices_in_another_order(right: Tensor, given: Tensor, inputs: Inputs, tolerance: float) -> str:
    scale = max(1.0, right.abs().max().item())
    for axis, n in enumerate(given.shape):
        if not 1 < n <= 200:
            continue
        ours, theirs = right.movedim(axis, 0).reshape(n, -1), given.movedim(axis, 0).reshape(n, -1)
        if theirs.shape[1] < 2 and (given.ndim > 1 or right.unique().numel() < n):
            continue
        match = torch.cdist(theirs, ours, p=math.inf) <= tolerance * scale
        if not match.any(1).all():
            continue
        order = _places(match)
        if len(set(order)) < (n if _whole(given, right) else n / 2 if theirs.shape[1] == 1 else 0):
            continue  # labels, and single numbers, may be right ones of other places by chance
        shown = ", ".join(map(str, order[:12])) + (", …" if n > 12 else "")
        if len(set(order)) == n:
            return f"Along axis {axis} the slices are right, but in another order: yours are the right {shown}."
        return f"Along axis {axis} each slice is a right one, but not all are in their places: yours are {shown}."
    return ""


def _places(match: Tensor) -> list[int]:
    """Which right slice each one of yours is; of several that are equal each comes once, as long as there are some."""
    free = torch.ones_like(match[0])
    order = []
    for fitting in match:
        left = fitting & free
        order.append(int((left if left.any() else fitting).double().argmax()))
        free[order[-1]] = False
    return order


def _shuffled(right: Tensor, given: Tensor, inputs: Inputs, tolerance: float) -> str:
    """The right numbers in other places, and within what they stay."""
    theirs, ours = (x.flatten().sort().values for x in (given, right))
    # Of many numbers that lie close together, each is near another one.
    if not _same(theirs, ours, tolerance) or (theirs - ours).abs().max() > 0.02 * (given - right).abs().max():
        return ""
    within = []
    for axis, n in enumerate(given.shape):
        if n > 1 and n < given.numel():
            theirs, ours = (x.movedim(axis, 0).reshape(n, -1).sort(1).values for x in (given, right))
            if _same(theirs, ours, tolerance):
                within.append(axis)
    if not within:
        return (
            "The right numbers are all there, but in other places: look at the order of the axes, and at signs."
            f"{_trace(right, given, inputs)}"
        )
    return (
        f"The right numbers are all there, and each index of {_axes(*within)} has its own, but not all are in "
        f"their places.{_trace(right, given, inputs)}"
    )


def _trace(right: Tensor, given: Tensor, inputs: Inputs) -> str:
    """Where the first misplaced number comes from, if results are made of an input's numbers, moved."""
    at = (given != right).nonzero()
    for name, x in inputs.items():
        if not _numbers(x) or x.unique().numel() < x.numel() or not len(at):
            continue
        place = tuple(at[0].tolist())
        found = [(x.double() == value).nonzero().tolist() for value in (given[place], right[place])]
        if all(len(one) == 1 for one in found):
            which = f"Your [{_list(place)}]" if place else "Yours"
            return f" {which} is {name}[{_list(found[0][0])}], and should be {name}[{_list(found[1][0])}]."
    return ""


def _numbers(x: Any) -> bool:
    """Whether something holds floats, which no others equal by chance."""
    return isinstance(x, Tensor) and x.is_floating_point() and x.unique().numel() > 2


def _list(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers))


def _misplaced(right: Tensor, given: Tensor, inputs: Inputs, tolerance: float) -> str:
    """Numbers of an input, from the wrong places of it."""
    for name, x in inputs.items():
        if _numbers(x) and all(bool(torch.isin(y, x.double()).all()) for y in (given, right)):
            return (
                f"Yours are numbers of {name}, but not all are those that belong there.{_trace(right, given, inputs)}"
            )
    return ""


# ---- Right in part -----------------------------------------------------------------------------------------------


def _partly_right(right: Tensor, given: Tensor, inputs: Inputs, tolerance: float) -> str:
    scale = max(1.0, right.abs().max().item())
    wrong = (given - right).abs() > tolerance * scale
    nearly = (given - right).abs() > 0.02 * tolerance * scale  # which is not right
    where = _slices_that_differ(wrong)
    if where:
        if nearly[~_lines(wrong)].any():
            return ""
        if where.startswith("all but "):
            return f"All is right at {where.removeprefix('all but ')}; each other index holds something wrong."
        return f"All that is wrong is at {where}; the rest is right."
    if nearly[~wrong].any():
        return ""
    signs = ((given + right).abs() <= tolerance * scale) & wrong
    if torch.equal(signs, wrong):
        return f"{int(wrong.sum())} of {wrong.numel()} numbers have the wrong sign, and the others are right."
    share = wrong.double().mean().item()
    if 0 < share <= 0.5:
        if not given[wrong].any():
            return f"{int(wrong.sum())} of {wrong.numel()} numbers are 0 and shouldn't be; all others are right."
        if not right[wrong].any():
            return f"{int(wrong.sum())} of {wrong.numel()} numbers should be 0 and aren't; all others are right."
    return ""


def _lines(wrong: Tensor) -> Tensor:
    """The indices of the telling axis that hold all that is wrong, whole, as a mask."""
    axis, bad = _telling_axis(wrong)
    mask = torch.zeros_like(wrong)
    mask.index_fill_(axis, torch.tensor(bad), True)
    return mask


def _slices_that_differ(wrong: Tensor) -> str:
    """Which indices of one axis hold all that is wrong, "" if no axis singles them out."""
    axis, bad = _telling_axis(wrong)
    return f"{_indices(bad, wrong.shape[axis])} along axis {axis} (of {wrong.shape[axis]})" if bad else ""


def _telling_axis(wrong: Tensor) -> tuple[int, list[int]]:
    """The axis of which the smallest share of indices holds all that is wrong, and those; no indices if all do."""
    best: tuple[float, int, list[int]] = (1.0, 0, [])
    for axis, n in enumerate(wrong.shape):
        if n < 2:
            continue
        bad = wrong.movedim(axis, 0).reshape(n, -1).any(1).nonzero().flatten().tolist()
        share = len(bad) / n
        if 0 < len(bad) < n and share < best[0]:
            best = (share, axis, bad)
    return best[1:]


def _indices(bad: list[int], n: int) -> str:
    if len(bad) == 1:
        return f"index {bad[0]}" + (", the last" if bad[0] == n - 1 else ", the first" if bad[0] == 0 else "")
    if bad == list(range(bad[0], bad[-1] + 1)):
        if bad[0] == 1 and bad[-1] == n - 1:
            return "all but the first index"
        if bad[0] == 0 and bad[-1] == n - 2:
            return "all but the last index"
        return f"indices {bad[0]} to {bad[-1]}"
    others = [i for i in range(n) if i not in bad]
    if len(bad) > 8 and len(others) <= 3:
        return f"all but ind{'ices' if len(others) > 1 else 'ex'} {_list(others)}"
    return f"indices {_list(bad[:8])}{', …' if len(bad) > 8 else ''}"


# ---- A factor or an offset of its own for each row ---------------------------------------------------------------


def _row_by_row(right: Tensor, given: Tensor, inputs: Inputs, tolerance: float) -> str:
    """A factor, an offset, or both, that is constant along some axes."""
    if given.ndim < 2:
        return ""
    axes = [axis for axis, n in enumerate(given.shape) if n > 1]
    groups = [g for many in range(len(axes), 0, -1) for g in itertools.combinations(axes, many) if many < given.ndim]
    for group in groups:
        square = (right * right).sum(group, keepdim=True)
        factor = (given * right).sum(group, keepdim=True) / square.where(square > 0, torch.ones_like(square))
        if bool((factor.abs() > 1e-6).all()) and _explains(factor * right, right, given, tolerance):
            return f"Yours is the right one times a factor of its own{_some(factor)}, the same along {_axes(*group)}."
        offset = (given - right).mean(group, keepdim=True)
        if _explains(right + offset, right, given, tolerance):
            return f"Yours is the right one plus an offset of its own{_some(offset)}, the same along {_axes(*group)}."
    for group in groups:
        if math.prod(given.shape[axis] for axis in group) < 4:
            continue
        a0, b0 = given - given.mean(group, keepdim=True), right - right.mean(group, keepdim=True)
        square = (b0 * b0).sum(group, keepdim=True)
        factor = (a0 * b0).sum(group, keepdim=True) / square.where(square > 0, torch.ones_like(square))
        if bool((factor.abs() > 1e-3).all()) and _explains(given - a0 + factor * b0, right, given, tolerance):
            return f"All along {_axes(*group)}, yours is the right one times a factor{_some(factor)}, plus an offset."
    return ""


def _some(values: Tensor) -> str:
    """The first three, in the order in which they stand."""
    noise = 1e-6 * values.abs().max()
    heard = values.where(values.abs() > noise, 0.0).flatten().tolist()
    different = list(dict.fromkeys(f"{value:.4g}" if abs(value - 1) > 0.01 else f"{value:.7g}" for value in heard))
    return f" ({', '.join(different[:3])}{', …' if len(different) > 3 else ''})"


def _sums(right: Tensor, given: Tensor, inputs: Inputs, tolerance: float) -> str:
    if right.ndim < 2 or bool((right < -1e-9).any()):
        return ""
    ones = torch.ones(())
    if not _same(right.sum(-1), ones.double().expand(right.shape[:-1]), 1e-4):
        return ""
    sums = given.sum(-1)
    if _same(sums, ones.double().expand(sums.shape), 1e-4):
        return ""
    for axis in range(given.ndim - 1):
        if given.shape[axis] > 1 and _same(given.sum(axis), ones.double().expand(given.sum(axis).shape), 1e-4):
            return f"The rows should sum to 1 along the last axis; yours sum to 1 along axis {axis}."
    worst = sums.flatten()[(sums.flatten() - 1).abs().argmax()].item()
    return f"The rows should sum to 1; yours don't: one sums to {worst:.7g}."


def _softmax_of_others(right: Tensor, given: Tensor, inputs: Inputs, tolerance: float) -> str:
    """Up to a number for each row, the logarithm of a softmax is what was put in."""
    if right.ndim < 2 or right.shape[-1] < 3 or not all(_is_softmax(x) for x in (right, given)):
        return ""
    b, a = (x.log() - x.log().mean(-1, keepdim=True) for x in (right, given))
    factor = ((a * b).sum() / (b * b).sum()).item()
    if factor < 0 or abs(factor - 1) < 0.02 or not _same(factor * b / a.abs().max(), a / a.abs().max(), 1e-3):
        return ""
    return (
        f"The logarithms of yours are {factor:.3g} times the right ones, but for an offset of each row: have the "
        "scores of a softmax another scale?"
    )


def _is_softmax(x: Tensor) -> bool:
    return bool((x > 0).all()) and _same(x.sum(-1), torch.ones_like(x[..., 0]), 1e-4)


# ---- Another function, and how far -------------------------------------------------------------------------------

_FUNCTIONS: tuple[tuple[str, Callable[[Tensor], Tensor]], ...] = (
    ("the whole part", torch.trunc),
    ("the rounding", torch.round),
    ("the square", torch.square),
    ("the absolute value", torch.abs),
    ("e to the power", torch.exp),
    ("the reciprocal", torch.reciprocal),
    ("the square root", torch.sqrt),
    ("the logarithm", torch.log),
    ("the complement, 1 - x,", lambda x: 1 - x),
    ("the positive part", torch.relu),
    ("the tanh", torch.tanh),
    ("the sigmoid", torch.sigmoid),
    ("the GELU", torch.nn.functional.gelu),
)  # fmt: skip


def _a_function(right: Tensor, given: Tensor, inputs: Inputs, tolerance: float) -> str:
    if not given.any() or not right.any():
        return ""
    for words, x, y in (
        ("Your number is {} of the right one.", right, given),
        ("The right number is {} of yours.", given, right),
    ):
        for name, function in _FUNCTIONS:
            value = function(x)
            if value.isfinite().all() and _explains(value, x, y, tolerance):
                return words.format(name)
        for axis in range(x.ndim):
            if x.shape[axis] > 1 and _explains(x.softmax(axis), x, y, tolerance):
                return words.format(f"the softmax along axis {axis}")
            norm = x.norm(dim=axis, keepdim=True)
            if x.shape[axis] > 1 and bool(norm.all()) and _explains(x / norm, x, y, tolerance):
                return words.format(f"the unit vector along axis {axis}")
    return ""


def _near(right: Tensor, given: Tensor, inputs: Inputs, tolerance: float) -> str:
    most, scale = (given - right).abs().max().item(), max(right.abs().max().item(), 1e-12)
    near = 0.03 if given.numel() > 2 else 0.01  # one number or two may be near by chance
    if not most <= near * scale:
        return ""
    return (
        f"Yours are near the right ones, but not equal: off by {_number(most)} at most, where the largest number is "
        f"{_number(scale)}. Look for another constant, another eps, or an approximation."
    )


EXACT: tuple[Finder, ...] = (
    _not_finite,
    _one_number,
    _an_input,
    _scaled,
    _shifted,
    _plus_an_input,
    _times_an_input,
    _permuted,
    _another_shape,
    _too_long_or_short,
    _summed,
    _flipped_or_rolled,
    _slices_in_another_order,
    _shuffled,
    _partly_right,
    _misplaced,
    _sums,
    _softmax_of_others,
    _row_by_row,
    _a_function,
)
WEAK: tuple[Finder, ...] = (_near,)  # too weak to be said where they hold of one input alone
OF_ANY_SHAPE: tuple[Finder, ...] = (
    _one_number,
    _an_input,
    _permuted,
    _another_shape,
    _too_long_or_short,
    _summed,
)
# Of one number these say nothing.
OF_MANY: tuple[Finder, ...] = (_scaled, _plus_an_input, _times_an_input, _a_function)


# ---- What depends on what ------------------------------------------------------------------------------------------


def reach(before: Mapping[str, Any], after: Iterable[Mapping[str, Any]], name: str) -> Tensor | None:
    """Where other runs changed a result, each number by itself; None where that can't be said, as of a full softmax."""
    first = _first_tensor(before.get(name))
    others = [_first_tensor(one.get(name)) for one in after]
    if first is None or not first.numel():
        return None
    changed = torch.zeros_like(first, dtype=torch.bool)
    hardly = changed.clone()
    for other in others:
        if other is None or other.shape != first.shape:
            return None
        by = (first - other).abs()
        by[(first == other) | (first.isnan() & other.isnan())] = 0.0
        changed |= ~(by <= 1e-6 * max(1.0, first.abs().max().item()))
        hardly |= by > 1e-3 * first.abs()
    return None if (hardly & ~changed).any() else changed


def apart(right: Tensor, given: Tensor, name: str) -> str:
    """What of a result should change, and what does; "" if they are the same, or can't be said in a few words."""
    places = [_telling_axis(changed) for changed in (right, given)]
    axes = {axis for axis, indices in places if indices}
    parts = [_part(changed, name) for changed in (right, given)]
    # Scattered indices are those of these numbers alone.
    scattered = any(found and len(found) < found[-1] - found[0] + 1 for _, found in places)
    if (places[0] == places[1] and right.any() == given.any()) or len(axes) > 1 or scattered:
        return ""
    # Other parts of the result aren't spoken of.
    only = f"of {name} only " if places[0][1] and "[" in name else "only " if places[0][1] else ""
    return f"{only}{parts[0]} should change; in yours {parts[1]} did"


def _part(changed: Tensor, name: str) -> str:
    """All, nothing, or some indices along the axis that tells most, as Python writes them."""
    axis, indices = _telling_axis(changed)
    if not changed.any():
        return "nothing"
    if not indices:
        return f"all of {name}" if changed.all() else f"{int(changed.sum())} of the {changed.numel()} numbers of {name}"
    part = f"{name}[{':, ' * axis}{_written(indices)}]"
    return part if changed.movedim(axis, 0)[indices].all() else f"numbers in {part}"


def _written(indices: list[int]) -> str:
    """Indices as they stand in square brackets."""
    first, last = indices[0], indices[-1]
    if len(indices) == 1:
        return str(first)
    if indices == list(range(first, last + 1)):
        return f"{first}:{last + 1}"
    return f"[{_list(indices[:8])}{', …' if len(indices) > 8 else ''}]"


def _first_tensor(x: Any) -> Tensor | None:
    while isinstance(x, (tuple, list)) and x:
        x = x[0]
    # A whole number, such as a class, changes or stays by chance.
    return x.detach().double() if isinstance(x, Tensor) and x.is_floating_point() else None
