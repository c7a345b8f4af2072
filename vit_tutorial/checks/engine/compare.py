"""Whether a student's result is the right one, and the first difference in a plain sentence.

What counts are the numbers. A NumPy array, another integer dtype, float64 in place of float32, a result with or
without a graph: all are accepted. Floats aren't where whole numbers are asked for. Everywhere, ``right`` is what the
reference gives, and ``actual`` what the submission gives.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from numbers import Number
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vit_tutorial.checks.engine.exercise import Exercise, Observation, Value

SECOND_RESULT = "the result of a second call with other inputs"


def observation_difference(right: Observation, actual: Observation, exercise: Exercise) -> str:
    """The first difference of two observations in a plain sentence, or ""."""
    for name, value in right.values.items():
        if sentence := difference(value, actual.values.get(name), name, exercise):
            return sentence
    if sentence := difference(right.second_result, actual.second_result, SECOND_RESULT, exercise):
        return sentence
    for name, gradient in right.gradients.items():
        if sentence := _gradient_difference(gradient, actual.gradients.get(name), f"gradient of {name}", exercise):
            return sentence
    return ""


def difference(right: Value, actual: Value, name: str, exercise: Exercise) -> str:
    """The first difference of two values in a plain sentence, or ""."""
    if actual is None and right is not None:
        return f"{name} is None: is the return missing?" if name == "result" else f"{name} is None"
    if isinstance(right, (tuple, list)):
        return _sequence_difference(right, actual, name, exercise)
    if isinstance(right, Tensor):
        return _tensor_difference(right, actual, name, exercise)
    if isinstance(right, Number) and not isinstance(right, bool):
        return _number_difference(right, actual, name, exercise)
    if isinstance(right, str) and isinstance(actual, str):
        return "" if actual == right else f"{name} is {actual}. It should be {right}."
    same = type(actual) is type(right) and actual == right
    return "" if same else f"{name} is {one_line(actual)}, expected {one_line(right)}"


# ---- Several values ----------------------------------------------------------------------------------------------


def _sequence_difference(right: tuple[Value, ...] | list[Value], actual: Value, name: str, exercise: Exercise) -> str:
    right_leaves, actual_leaves = _leaves(right), _leaves(actual)
    if len(right_leaves) == len(actual_leaves) and all(isinstance(number, Number) for _, number in right_leaves):
        # Nested or not: the same numbers in the same order are as good.
        return _first(
            _number_difference(right_number, actual_number, name + place, exercise)
            for (_, right_number), (place, actual_number) in zip(right_leaves, actual_leaves, strict=True)
        )
    parts = _as_parts(actual, len(right))
    if parts is None:
        length = f" of {len(actual)}" if isinstance(actual, (tuple, list)) else ""
        return f"{name} is {describe(actual)}{length}, expected a {type(right).__name__} of {len(right)}"
    return _first(
        difference(right_part, actual_part, f"{name}[{i}]", exercise)
        for i, (right_part, actual_part) in enumerate(zip(right, parts, strict=True))
    )


def _first(sentences: Iterable[str]) -> str:
    return next(filter(None, sentences), "")


def _leaves(x: Value) -> list[tuple[str, Value]]:
    """The leaves of nested lists, tuples, ranges, arrays and tensors, each with its place, such as [0][1]."""
    if isinstance(x, (list, tuple, range)) or (isinstance(x, (Tensor, np.ndarray)) and x.ndim):
        return [(f"[{i}]{place}", leaf) for i, part in enumerate(x) for place, leaf in _leaves(part)]
    return [("", x)]


def _as_parts(actual: Value, many: int) -> list[Value] | None:
    """The parts of a sequence of ``many``: of a list or tuple, or of a stacked tensor or array."""
    if isinstance(actual, (Tensor, np.ndarray)) and not actual.ndim:
        return None
    fits = isinstance(actual, (list, tuple, range, Tensor, np.ndarray)) and len(actual) == many
    return list(actual) if fits else None


# ---- Tensors -----------------------------------------------------------------------------------------------------


def as_tensor(actual: Value) -> Tensor | None:
    """A tensor of the numbers of a tensor, an array or a single number; None for anything else."""
    if isinstance(actual, Tensor):
        return actual
    try:
        known = isinstance(actual, (np.ndarray, np.generic, bool, int, float))
        return torch.as_tensor(np.array(actual)) if known else None
    except (RuntimeError, TypeError, ValueError):  # arrays of objects, whole numbers of many digits
        return None


def _tensor_difference(right: Tensor, actual: Value, name: str, exercise: Exercise) -> str:
    tensor = as_tensor(actual)
    if tensor is None:
        return f"{name} is {describe(actual)}, expected a torch.Tensor of shape {shape(right)}"
    if tensor.shape != right.shape:
        return f"{name} has shape {shape(tensor)}, expected {shape(right)}"
    if expected := _expected_dtype(right, tensor):
        return f"{name} is of dtype {tensor.dtype}, expected {expected}"
    return _entry_difference(right.detach(), tensor.detach(), name, exercise)


def _expected_dtype(right: Tensor, actual: Tensor) -> str:
    """What kind of number was expected in place of the given one, or "" where that will do."""
    if right.dtype == torch.bool:
        return "" if actual.dtype == torch.bool else "torch.bool, True or False"
    if actual.dtype == torch.bool or actual.is_complex():
        return str(right.dtype)
    whole = actual.is_floating_point() and not right.is_floating_point()
    return "whole numbers, such as torch.int64" if whole else ""


def _entry_difference(right: Tensor, actual: Tensor, name: str, exercise: Exercise) -> str:
    not_finite = {"nan (not a number)": actual.isnan(), "infinite numbers": actual.isinf() & ~right.isinf()}
    for kind, where in not_finite.items():
        if where.any() and not right.isnan().any():
            return f"{name} holds {kind}, first at {_first_index(where)}"
    wrong = _is_wrong(right, actual, exercise)
    if not wrong.any():
        return ""
    index = _first_index(wrong)
    right_digits, actual_digits = distinguish(right[tuple(index)], actual[tuple(index)])
    if not index:
        return f"{name} is {actual_digits}, expected {right_digits}"
    place = f", at {index}, is" if " " in name else f"{index} is"
    many = f"{int(wrong.sum())} of {wrong.numel()} numbers are wrong"
    return f"{name}{place} {actual_digits}, expected {right_digits}; {many}, shape {shape(actual)}"


def _is_wrong(right: Tensor, actual: Tensor, exercise: Exercise) -> Tensor:
    """Where two tensors of one shape differ."""
    right, actual = right.to(torch.float64), actual.to(torch.float64)
    finite = right[right.isfinite()]
    scale = max(1.0, finite.abs().max().item()) if finite.numel() else 1.0
    near = (actual - right).abs() <= exercise.tolerance * scale  # False for two infinities: their difference is nan
    return ~near & (actual != right) & ~(actual.isnan() & right.isnan())


def _gradient_difference(right: Tensor | None, actual: Tensor | None, name: str, exercise: Exercise) -> str:
    if right is None or not right.any():
        empty = actual is None or not actual.any()
        return "" if empty else f"{name} is not zero, and should be"
    if actual is None:
        return (
            f"the numbers are right, but {name} is missing: does something cut the graph "
            "(detach, .data, .item(), .tolist(), torch.tensor(…), torch.no_grad, requires_grad=False)?"
        )
    sentence = _tensor_difference(right, actual, name, exercise)
    partly = ". Does something cut a part of the graph (detach, .data, torch.tensor(…), torch.no_grad)?"
    return f"the numbers are right, but {sentence}{partly}" if sentence else ""


# ---- Single numbers ----------------------------------------------------------------------------------------------


def _number_difference(right: Value, actual: Value, name: str, exercise: Exercise) -> str:
    number = as_number(actual[0] if isinstance(actual, (list, tuple)) and len(actual) == 1 else actual)
    if number is None:
        return f"{name} is {describe(actual)}, expected a number"
    # Of whole numbers that were counted none is nearly right.
    is_count = isinstance(right, int) and exercise.asks_questions
    tolerance = min(exercise.tolerance, 1e-6) if is_count else exercise.tolerance
    if abs(number - right) <= tolerance * max(1.0, abs(right)):
        return ""
    right_digits, actual_digits = distinguish(right, number)
    expected = ", which is not right" if exercise.asks_questions else f", expected {right_digits}"
    return f"{name} is {actual_digits}{expected}"


def as_number(actual: Value) -> Value:
    """A number, or what holds just one, as a number; None for anything else."""
    if isinstance(actual, (Tensor, np.ndarray)) and math.prod(actual.shape) == 1 and actual.dtype != object:
        return actual.item()
    return actual if isinstance(actual, Number) and not isinstance(actual, bool) else None


# ---- In words ----------------------------------------------------------------------------------------------------


def _first_index(mask: Tensor) -> list[int]:
    index: list[int] = mask.nonzero()[0].tolist()
    return index


def shape(x: Tensor) -> tuple[int, ...]:
    """A tensor's shape as a plain tuple."""
    return tuple(x.shape)


def describe(x: Value) -> str:
    """What something is, for a sentence."""
    if x is None:
        return "None"
    if isinstance(x, Tensor):
        return f"a tensor of shape {shape(x)}"
    name = type(x).__name__
    return "a NumPy array" if name == "ndarray" else f"{'an' if name[0] in 'aeioAEIO' else 'a'} {name}"


def name_of(function: Any) -> str:
    """What a function or class is called."""
    return str(getattr(function, "__name__", type(function).__name__))


def distinguish(a: Value, b: Value) -> tuple[str, str]:
    """Two numbers that differ, each with five digits, or as many as show that they do."""
    pairs = [(_digits(a, many), _digits(b, many)) for many in (5, 7, 9, 17)]
    return next((pair for pair in pairs if pair[0] != pair[1]), pairs[0])


def _digits(x: Value, many: int) -> str:
    value = x.item() if isinstance(x, Tensor) else x
    return f"{value:.{many}g}" if isinstance(value, float) else str(value)


def one_line(x: Value, most: int = 200) -> str:
    """Anything on one line, cut off if it is long."""
    text = " ".join((str(x) if isinstance(x, BaseException) else repr(x)).split())
    return text if len(text) <= most else f"{text[:most]} …"
