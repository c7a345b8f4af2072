"""Whether a student's result is the right one, and the first difference in a plain sentence.

What counts are the numbers. A NumPy array, another width of float or of integer, a result with or without a graph: all
are accepted. A result whose numbers are right and whose form isn't is told so.
"""

from __future__ import annotations

import math
import numbers as numeric
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vit_tutorial.checks.declare import Exercise, Result, Words

BESIDE = ("changed", "missing", "line")  # parts of a result that are told, but not compared
# How far a number may be off because of its own dtype, relative to the largest.
COARSE = {torch.float16: 2e-3, torch.bfloat16: 2e-2}


def differs(expected: Result, got: Result, exercise: Exercise) -> str:
    """The first difference of two results in a plain sentence, or ""."""
    for name, value in expected.items():
        if name in BESIDE:
            continue
        if name.startswith("gradient"):
            if found := _gradient_difference(value, got.get(name), name, exercise):
                return found
        elif found := difference(value, got.get(name), name, exercise):
            return found
    changed = [number for number in got.get("changed", []) if number not in expected.get("changed", [])]
    return f"argument {changed[0]} was changed in place: make a new one, the caller needs the old" if changed else ""


def difference(expected: Any, got: Any, name: str, exercise: Exercise) -> str:
    """The first difference in a plain sentence, or "" where there is none."""
    if got is None and expected is not None:
        return f"{name} is None: is the return missing?" if name == "result" else f"{name} is None"
    if isinstance(expected, (tuple, list)):
        return _sequence_difference(expected, got, name, exercise)
    if isinstance(expected, Tensor):
        return _tensor_difference(expected, got, name, exercise)
    if isinstance(expected, numeric.Number) and not isinstance(expected, bool):
        return _number_difference(expected, got, name, exercise)
    if isinstance(expected, bool) and isinstance(got, (np.bool_, Tensor, np.ndarray)) and np.size(got) == 1:
        got = got.item()
    if isinstance(expected, str) and isinstance(got, str):  # words that describe what was seen
        return "" if got == expected else f"{name} is {got}{_expected(expected, exercise)}"
    same = type(got) is type(expected) and got == expected
    return "" if same else f"{name} is {short(got)}{_expected(short(expected), exercise)}"


def _sequence_difference(expected: tuple[Any, ...] | list[Any], got: Any, name: str, exercise: Exercise) -> str:
    numbers = flat(expected) if _holds_numbers_alone(expected) else []
    theirs = flat(got) if numbers else []
    if numbers and len(numbers) == len(theirs):
        # Nested or not: it is the same numbers in the same order.
        places = _places(got) if len(_places(got)) == len(numbers) else [f"[{i}]" for i in range(len(numbers))]
        triples = zip(numbers, theirs, places, strict=True)
        return next(filter(None, (_number_difference(a, b, _at(name, place), exercise) for a, b, place in triples)), "")
    parts = as_parts(got, len(expected))
    if parts is None:
        many = f" of {len(got)}" if isinstance(got, (tuple, list)) else ""
        said = f"{name} is {kind(got)}{many}, expected a {type(expected).__name__} of {len(expected)}"
        for index, part in enumerate(expected):
            if isinstance(part, Tensor) and not exercise.secret and not difference(part, got, name, exercise):
                said += f"; it is the right {name}[{index}]: return all {len(expected)}"
        return said
    found = [
        difference(a, b, _at(name, f"[{i}]"), exercise) for i, (a, b) in enumerate(zip(expected, parts, strict=True))
    ]
    first = next(filter(None, found), "")
    if first and len(expected) == 2 and isinstance(expected[0], Tensor) and not exercise.secret:
        turned = [difference(a, b, name, exercise) for a, b in zip(expected, parts[::-1], strict=True)]
        if not any(turned):
            return f"the two parts of {name} are right, but exchanged: {first}"
    return first


def _at(name: str, place: str) -> str:
    """A part of something: result[0], but [0] of the result of a second call, …,"""
    return f"{place} of {name}" if place and name.endswith(",") else name + place


def _holds_numbers_alone(x: Any) -> bool:
    """Whether no leaf of nested sequences is a tensor, a word or the like; it ends at the first that is."""
    if isinstance(x, (list, tuple, range)):
        return all(map(_holds_numbers_alone, x))
    return isinstance(x, (numeric.Number, np.ndarray))


def flat(x: Any) -> list[Any]:
    """The leaves of nested lists, tuples, ranges, arrays and tensors, in order."""
    if isinstance(x, (Tensor, np.ndarray)):
        return [number for part in x for number in flat(part)] if x.ndim else [x]
    return [leaf for part in x for leaf in flat(part)] if isinstance(x, (list, tuple, range)) else [x]


def _places(x: Any) -> list[str]:
    """Where the leaves of nested lists, tuples, ranges, arrays and tensors stand, such as [0][1]."""
    if isinstance(x, (list, tuple, range)) or (isinstance(x, (Tensor, np.ndarray)) and x.ndim):
        return [f"[{i}]{place}" for i, part in enumerate(x) for place in _places(part)]
    return [""]


def as_parts(got: Any, many: int) -> list[Any] | None:
    """The parts of a sequence of ``many``, however it is kept: a list, a stacked tensor, a dictionary 0, 1, …"""
    if isinstance(got, (Tensor, np.ndarray)):
        return list(got) if got.ndim and len(got) == many else None
    if isinstance(got, Mapping):
        in_order = list(got) == list(range(many))
        return list(got.values()) if in_order else None
    once = isinstance(got, Iterator)  # a generator is empty for whoever reads it next
    if once or isinstance(got, (set, frozenset, str, bytes)) or not isinstance(got, Iterable):
        return None
    parts = list(got)
    return parts if len(parts) == many else None


def as_tensor(got: Any) -> Tensor | None:
    """A tensor of the numbers of a tensor, an array or a single number; None for anything else."""
    if isinstance(got, Tensor):
        return got.to_dense() if got.layout != torch.strided else got
    try:
        if isinstance(got, (np.ndarray, np.generic)) and got.dtype != object:
            return torch.as_tensor(np.array(got))
        if isinstance(got, (bool, int, float)):
            return torch.tensor(got)
    except (TypeError, ValueError):  # dates, whole numbers of many digits
        pass
    return None


def _tensor_difference(expected: Tensor, got: Any, name: str, exercise: Exercise) -> str:
    tensor = as_tensor(got)
    if tensor is None:
        return f"{_form(expected, got, name, exercise)}, expected a torch.Tensor of shape {shape(expected)}"
    if tensor.device.type == "meta":
        return f"{name} is on device meta, which keeps no numbers, expected {expected.device}"
    if tensor.shape != expected.shape:
        said = f"{name} has shape {shape(tensor)}, expected {shape(expected)}"
        found = "" if exercise.secret else _right_but_for_its_shape(expected, tensor, exercise)
        return said + found
    a, b = tensor.detach().to(expected.device), expected.detach()
    if _near(a, b, exercise.tolerance):
        return ""
    if _kind_of_numbers(a, b) and not _whole(a, b):
        right = "" if _wrong(a.to(b.dtype), b, exercise).any() else "the numbers are right, but "
        return f"{right}{name} is of dtype {a.dtype}, expected {_kind_of_numbers(a, b)}"
    if a.is_floating_point() and not b.isnan().any():
        for word, bad in (("nan (not a number)", a.isnan()), ("infinite numbers", a.isinf() & ~b.isinf())):
            if bad.any():
                return f"{name} holds {word}, first at {_index(bad)}"
    if not a.numel():
        return ""
    wrong = _wrong(a, b, exercise)
    if not wrong.any():
        return ""
    at = _index(wrong)
    mine, right = distinct(a[tuple(at)], b[tuple(at)])
    values = f"{_at(name, str(at or ''))} is {mine}{_expected(right, exercise)}"
    return f"{values}; {int(wrong.sum())} of {wrong.numel()} numbers differ, shape {shape(a)}"


def _kind_of_numbers(a: Tensor, b: Tensor) -> str:
    """What kind was expected in place of a's, or "" where a's will do: whole numbers may stand for others."""
    if b.dtype == torch.bool:
        return "" if a.dtype == torch.bool else "torch.bool, True or False"
    if a.dtype == torch.bool or a.is_complex():
        return str(b.dtype)
    return "whole numbers, such as torch.int64" if a.is_floating_point() and not b.is_floating_point() else ""


def _whole(a: Tensor, b: Tensor) -> bool:
    """Whether floats are just the whole numbers that were expected."""
    return a.is_floating_point() and b.dtype != torch.bool and torch.equal(a.to(torch.float64), b.to(torch.float64))


def _near(a: Tensor, b: Tensor, tolerance: float) -> bool:
    """Whether no number is off by more than the least tolerance there is: quick, and False where it can't tell."""
    if a.dtype != b.dtype or not a.is_floating_point() or not a.numel():
        return False
    return bool((a - b).abs().max() <= tolerance)


def _wrong(a: Tensor, b: Tensor, exercise: Exercise) -> Tensor:
    """Where two tensors of one shape differ."""
    tolerance = max(exercise.tolerance, COARSE.get(a.dtype, 0.0))
    a, b = a.to(torch.float64), b.to(torch.float64)
    finite = b[b.isfinite()]
    scale = max(1.0, finite.abs().max().item()) if finite.numel() else 1.0
    return ~((a - b).abs() <= tolerance * scale) & ~(a == b) & ~(a.isnan() & b.isnan())  # inf - inf is nan


def equal(a: Tensor, b: Tensor, exercise: Exercise) -> bool:
    """Whether two tensors have one shape, and the same numbers within the exercise's tolerance."""
    return a.shape == b.shape and not _wrong(a, b, exercise).any()


def _form(expected: Tensor, got: Any, name: str, exercise: Exercise) -> str:
    """What came in place of a tensor, and whether its numbers are right."""
    said = f"{name} is {kind(got)}"
    if exercise.secret or not isinstance(got, (tuple, list)):
        return said
    for index, part in enumerate(got):
        inner = as_tensor(part)
        if isinstance(part, (Tensor, np.ndarray)) and inner is not None and equal(inner, expected, exercise):
            return f"{said} of {len(got)}, whose part {index} is right: return it alone"
    try:
        stacked = torch.stack([torch.as_tensor(part) for part in got])
    except (TypeError, ValueError, RuntimeError):
        return said
    right = stacked.shape == expected.shape and equal(stacked, expected, exercise)
    way = "torch.stack(…)" if isinstance(got[0], Tensor) else "torch.tensor(…)"
    return f"the numbers are right, but {said}: make a tensor of it with {way}" if right else said


def _right_but_for_its_shape(expected: Tensor, got: Tensor, exercise: Exercise) -> str:
    if got.numel() != expected.numel() or not equal(got.detach().reshape(expected.shape), expected, exercise):
        return ""
    return ": the numbers are right, and in the right order, but the axes aren't"


def _number_difference(expected: Any, got: Any, name: str, exercise: Exercise) -> str:
    value = as_number(got[0] if isinstance(got, (list, tuple)) and len(got) == 1 else got)
    if isinstance(got, Words):
        return f"{name} is {got}"
    if value is None:
        return f"{name} is {kind(got)}, expected a number"
    if isinstance(value, int) and abs(value) > 10**300:  # more than a float can hold, and maybe than Python prints
        return f"{name} is a whole number of {abs(value).bit_length() * math.log10(2):.0f} digits or so"
    # Of whole numbers that were counted none is nearly right.
    tolerance = min(exercise.tolerance, 1e-6) if isinstance(expected, int) and exercise.secret else exercise.tolerance
    close = abs(value - expected) <= tolerance * max(1.0, abs(expected))
    if close:
        return ""
    mine, right = distinct(value, expected)
    return f"{name} is {mine}{_expected(right, exercise)}"


def as_number(got: Any) -> Any:
    """A number, or what holds just one, as a number; None for anything else."""
    if isinstance(got, (Tensor, np.ndarray)) and math.prod(got.shape) == 1 and got.dtype != object:
        return got.detach().cpu().item() if isinstance(got, Tensor) else got.item()
    if isinstance(got, Decimal):  # which no float can be subtracted from
        return float(got)
    return got if isinstance(got, numeric.Number) and not isinstance(got, bool) else None


def _gradient_difference(expected: Tensor | None, got: Tensor | None, name: str, exercise: Exercise) -> str:
    if expected is None or not expected.any():
        empty = got is None or not got.any()
        return "" if empty else f"{name} is not zero, expected none: the result must not depend on it"
    if got is None:
        return (
            f"the numbers are right, but {name} is missing: something cuts the graph "
            "(detach, .data, .item(), .tolist(), torch.tensor(…), torch.no_grad, requires_grad=False)"
        )
    found = _tensor_difference(expected, got, name, exercise)
    partly = ". Does something cut a part of the graph (detach, .data, torch.tensor(…), torch.no_grad)?"
    return f"the numbers are right, but {found}{partly}" if found else ""


# ---- In words ----------------------------------------------------------------------------------------------------


def _expected(value: str, exercise: Exercise) -> str:
    return ", and should be something else" if exercise.secret else f", expected {value}"


def _index(mask: Tensor) -> list[int]:
    return mask.nonzero()[0].tolist()


def shape(x: Tensor) -> tuple[int, ...]:
    """A tensor's shape as a plain tuple."""
    return tuple(x.shape)


def kind(x: Any) -> str:
    """What something is, for a sentence."""
    if x is None:
        return "None"
    if isinstance(x, Tensor):
        return f"a tensor of shape {shape(x)}"
    names = {"ndarray": "a NumPy array", "generator": "a generator, which can be read only once"}
    return names.get(type(x).__name__, f"of type {type(x).__name__}")


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
    try:
        text = " ".join(str(x).split()) if isinstance(x, BaseException) else " ".join(repr(x).split())
    except Exception:  # a whole number of thousands of digits, or a class that can't be shown
        return kind(x)
    return text if len(text) <= most else f"{text[:most]} …"
