"""Whether a student's result is the right one, and the first difference in a plain sentence.

What counts are the numbers. A NumPy array, another integer dtype, float64 in place of float32, a result with or
without a graph: all are accepted. Half precision isn't, it loses digits. Where the numbers are right and the form
isn't, the sentence says so. Everywhere, ``right`` is what the reference gives, and ``given`` what the student's work
gives.
"""

from __future__ import annotations

import math
import numbers as numeric
from decimal import Decimal
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vit_tutorial.checks.engine.exercise import Exercise, Result, Row, Words

NOT_COMPARED = ("arguments", "missing")  # parts of a result that the report tells beside the first difference
HALF = (torch.float16, torch.bfloat16)


def differs(right: Result, given: Result, exercise: Exercise) -> str:
    """The first difference of two results in a plain sentence, or ""."""
    for name, value in right.items():
        if name in NOT_COMPARED:
            continue
        compared = _gradient_difference if name.startswith("gradient of") else difference
        if found := compared(value, given.get(name), name, exercise):
            return found
    return ""


def difference(right: Any, given: Any, name: str, exercise: Exercise) -> str:
    """The first difference of two values in a plain sentence, or ""."""
    if given is None and right is not None:
        return f"{name} is None: is the return missing?" if name == "result" else f"{name} is None"
    if isinstance(right, (tuple, list)):
        return _sequence_difference(right, given, name, exercise)
    if isinstance(right, Tensor):
        return _tensor_difference(right, given, name, exercise)
    if isinstance(right, numeric.Number) and not isinstance(right, bool):
        return _number_difference(right, given, name, exercise)
    if isinstance(right, bool) and isinstance(given, (np.bool_, Tensor, np.ndarray)) and np.size(given) == 1:
        given = given.item()
    if isinstance(right, str) and isinstance(given, str):
        return "" if given == right else f"{name} is {given}. It should be {right}."
    same = type(given) is type(right) and given == right
    return "" if same else f"{name} is {short(given)}, expected {short(right)}"


def off(rows: list[Row], exercise: Exercise) -> list[Row]:
    """The rows whose main result differs from the right one."""
    return [row for row in rows if differs({"result": row[1]["result"]}, row[2], exercise)]


def equal(right: Tensor, given: Tensor, exercise: Exercise) -> bool:
    """Whether two tensors have one shape, and the same numbers within the exercise's tolerance."""
    return given.shape == right.shape and not _wrong(right, given, exercise).any()


# ---- Several values ----------------------------------------------------------------------------------------------


def _sequence_difference(right: tuple[Any, ...] | list[Any], given: Any, name: str, exercise: Exercise) -> str:
    numbers, theirs = _leaves(right), _leaves(given)
    if len(numbers) == len(theirs) and all(isinstance(number, numeric.Number) for _, number in numbers):
        # Nested or not: the same numbers in the same order are as good.
        pairs = zip(numbers, theirs, strict=True)
        found = (_number_difference(ours, other, name + place, exercise) for (_, ours), (place, other) in pairs)
        return next(filter(None, found), "")
    parts = as_parts(given, len(right))
    if parts is None:
        many = f" of {len(given)}" if isinstance(given, (tuple, list)) else ""
        return f"{name} is {kind(given)}{many}, expected a {type(right).__name__} of {len(right)}"
    found = (difference(*pair, f"{name}[{i}]", exercise) for i, pair in enumerate(zip(right, parts, strict=True)))
    return next(filter(None, found), "")


def _leaves(x: Any) -> list[tuple[str, Any]]:
    """The leaves of nested lists, tuples, ranges, arrays and tensors, each with its place, such as [0][1]."""
    if isinstance(x, (list, tuple, range)) or (isinstance(x, (Tensor, np.ndarray)) and x.ndim):
        return [(f"[{i}]{place}", leaf) for i, part in enumerate(x) for place, leaf in _leaves(part)]
    return [("", x)]


def as_parts(given: Any, many: int) -> list[Any] | None:
    """The parts of a sequence of ``many``: of a list or tuple, or of a stacked tensor or array."""
    if isinstance(given, (Tensor, np.ndarray)) and not given.ndim:
        return None
    found = isinstance(given, (list, tuple, range, Tensor, np.ndarray)) and len(given) == many
    return list(given) if found else None


# ---- Tensors -----------------------------------------------------------------------------------------------------


def as_tensor(given: Any) -> Tensor | None:
    """A tensor of the numbers of a tensor, an array or a single number; None for anything else."""
    if isinstance(given, Tensor):
        return given.to_dense() if given.layout != torch.strided else given
    try:
        if isinstance(given, (np.ndarray, np.generic)) and given.dtype != object:
            return torch.as_tensor(np.array(given))
        if isinstance(given, (bool, int, float)):
            return torch.tensor(given)
    except (RuntimeError, TypeError, ValueError):  # dates, whole numbers of many digits
        pass
    return None


def _tensor_difference(right: Tensor, given: Any, name: str, exercise: Exercise) -> str:
    tensor = as_tensor(given)
    if tensor is None:
        return f"{_form(right, given, name, exercise)}, expected a torch.Tensor of shape {shape(right)}"
    if tensor.is_meta:
        return f"{name} is on device meta, which keeps no numbers, expected {right.device}"
    if tensor.shape != right.shape:
        return f"{name} has shape {shape(tensor)}, expected {shape(right)}"
    given, right = tensor.detach().to(right.device), right.detach()
    if given.dtype in HALF and right.dtype not in HALF:
        why = "half precision keeps only two or three digits. Compute in the dtype of what you are given"
        return f"{name} is of dtype {given.dtype}, expected {right.dtype}: {why}"
    if expected := _other_kind(right, given):
        real = given.real if given.is_complex() else given
        but = "" if _wrong(right, real, exercise).any() else "the numbers are right, but "
        return f"{but}{name} is of dtype {given.dtype}, expected {expected}"
    for word, bad in (("nan (not a number)", given.isnan()), ("infinite numbers", given.isinf() & ~right.isinf())):
        if bad.any() and not right.isnan().any():
            return f"{name} holds {word}, first at {_first_index(bad)}"
    wrong = _wrong(right, given, exercise)
    if not wrong.any():
        return ""
    at = _first_index(wrong)
    theirs, ours = distinct(given[tuple(at)], right[tuple(at)])
    first = f"{name}{at or ''} is {theirs}, expected {ours}"
    return f"{first}; {int(wrong.sum())} of {wrong.numel()} numbers are wrong, shape {shape(given)}" if at else first


def _other_kind(right: Tensor, given: Tensor) -> str:
    """What kind of number was expected in place of the given one, or "" where that will do."""
    if right.dtype == torch.bool:
        return "" if given.dtype == torch.bool else "torch.bool, True or False"
    if given.dtype == torch.bool or given.is_complex():
        return str(right.dtype)
    if not given.is_floating_point() or right.is_floating_point():
        return ""
    return "" if torch.equal(given.double(), right.double()) else "whole numbers, such as torch.int64"


def _wrong(right: Tensor, given: Tensor, exercise: Exercise) -> Tensor:
    """Where two tensors of one shape differ."""
    right, given = right.to(torch.float64), given.to(torch.float64)
    finite = right[right.isfinite()]
    scale = max(1.0, finite.abs().max().item()) if finite.numel() else 1.0
    near = (given - right).abs() <= exercise.tolerance * scale  # False for two infinities: their difference is nan
    return ~near & (given != right) & ~(given.isnan() & right.isnan())


def _form(right: Tensor, given: Any, name: str, exercise: Exercise) -> str:
    """What came in place of a tensor, and whether its numbers are right."""
    said = f"{name} is {kind(given)}"
    if not isinstance(given, (tuple, list)):
        return said
    for index, part in enumerate(given):
        inner = as_tensor(part)
        if isinstance(part, (Tensor, np.ndarray)) and inner is not None and equal(right, inner, exercise):
            return f"{said} of {len(given)}, whose part {index} is right: return it alone"
    try:
        stacked = torch.stack([torch.as_tensor(part) for part in given])
    except (TypeError, ValueError, RuntimeError):
        return said
    if not equal(right, stacked, exercise):
        return said
    function = "torch.stack(…)" if isinstance(given[0], Tensor) else "torch.tensor(…)"
    return f"the numbers are right, but {said}: make a tensor of it with {function}"


def _gradient_difference(right: Tensor | None, given: Tensor | None, name: str, exercise: Exercise) -> str:
    if right is None or not right.any():
        empty = given is None or not given.any()
        return "" if empty else f"{name} is not zero, and should be"
    if given is None:
        return (
            f"the numbers are right, but {name} is missing: does something cut the graph "
            "(detach, .data, .item(), .tolist(), torch.tensor(…), torch.no_grad, requires_grad=False)?"
        )
    found = _tensor_difference(right, given, name, exercise)
    partly = ". Does something cut a part of the graph (detach, .data, torch.tensor(…), torch.no_grad)?"
    return f"the numbers are right, but {found}{partly}" if found else ""


# ---- Single numbers ----------------------------------------------------------------------------------------------


def _number_difference(right: Any, given: Any, name: str, exercise: Exercise) -> str:
    value = as_number(given[0] if isinstance(given, (list, tuple)) and len(given) == 1 else given)
    if isinstance(given, Words):
        return f"{name} is {given}"
    if value is None:
        return f"{name} is {kind(given)}, expected a number"
    # Of whole numbers that were counted none is nearly right.
    counted = isinstance(right, int) and exercise.asks_questions
    tolerance = min(exercise.tolerance, 1e-6) if counted else exercise.tolerance
    if abs(value - right) <= tolerance * max(1.0, abs(right)):
        return ""
    theirs, ours = distinct(value, right)
    expected = ", and should be something else" if exercise.asks_questions else f", expected {ours}"
    return f"{name} is {theirs}{expected}"


def as_number(given: Any) -> Any:
    """A number, or what holds just one, as a number; None for anything else."""
    if isinstance(given, (Tensor, np.ndarray)) and math.prod(given.shape) == 1 and given.dtype != object:
        return given.detach().cpu().item() if isinstance(given, Tensor) else given.item()
    if isinstance(given, Decimal):  # which no float can be subtracted from
        return float(given)
    if isinstance(given, int) and abs(given) > 1e300:  # more than a float can hold
        return math.inf if given > 0 else -math.inf
    return given if isinstance(given, numeric.Number) and not isinstance(given, bool) else None


# ---- In words ----------------------------------------------------------------------------------------------------


def _first_index(mask: Tensor) -> list[int]:
    found: list[int] = mask.nonzero()[0].tolist()
    return found


def shape(x: Tensor) -> tuple[int, ...]:
    """A tensor's shape as a plain tuple."""
    return tuple(x.shape)


def kind(x: Any) -> str:
    """What something is, for a sentence."""
    if x is None:
        return "None"
    if isinstance(x, Tensor):
        return f"a tensor of shape {shape(x)}"
    name = type(x).__name__
    return "a NumPy array" if name == "ndarray" else f"{'an' if name[0] in 'aeioAEIO' else 'a'} {name}"


def distinct(a: Any, b: Any) -> tuple[str, str]:
    """Two numbers that differ, each with five digits, or as many as show that they do."""
    pairs = ((digits(a, many), digits(b, many)) for many in (5, 7, 9, 17))
    return next((pair for pair in pairs if pair[0] != pair[1]), (digits(a), digits(b)))


def digits(x: Any, many: int = 5) -> str:
    """A number with so many digits."""
    value = x.item() if isinstance(x, Tensor) else x
    return f"{value:.{many}g}" if isinstance(value, float) else str(value)


def short(x: Any, most: int = 200) -> str:
    """Anything on one line, cut off if it is long."""
    text = " ".join((str(x) if isinstance(x, BaseException) else repr(x)).split())
    return text if len(text) <= most else f"{text[:most]} …"
