"""Whether a student's result is the right one, and the first difference in a plain sentence.

What counts are the numbers. A NumPy array, another integer dtype, float64 in place of float32, a result with or
without a graph: all are accepted. Half precision isn't, it loses digits. Where the numbers are right and the form
isn't, the sentence says so. Everywhere, ``right`` is what the reference gives, and ``given`` what the student's work
gives.
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

from vit_tutorial.checks.declare import Case, Exercise, Hashed, Result, Words

BESIDE = ("arguments", "missing", "line")  # parts of a result that are reported, but not compared
HALF = (torch.float16, torch.bfloat16)


def differs(right: Result, given: Result, exercise: Exercise) -> str:
    """The first difference of two results in a plain sentence, or ""."""
    for name, value in right.items():
        if name in BESIDE:
            continue
        if name.startswith("gradient"):
            if found := _gradient_difference(value, given.get(name), name, exercise):
                return found
        elif found := difference(value, given.get(name), name, exercise):
            return found
    return ""


def changed_arguments(right: Result, given: Result) -> list[int]:
    """The numbers of the arguments that aren't what the reference, which changes none, has left of them."""
    now = given.get("arguments", {})
    return [number for number, old in right.get("arguments", {}).items() if not unchanged(now.get(number), old)]


def unchanged(now: Any, old: Any) -> bool:
    """Whether an argument, a tensor or a list or dictionary of anything, is still what it was."""
    if isinstance(old, Tensor):
        return isinstance(now, Tensor) and now.shape == old.shape and torch.equal(now.detach(), old.detach())
    if type(old) in (list, tuple):
        return isinstance(now, type(old)) and len(now) == len(old) and all(map(unchanged, now, old))
    if type(old) is dict:
        return isinstance(now, dict) and list(now) == list(old) and all(unchanged(now[name], old[name]) for name in old)
    return bool(now == old) if isinstance(old, (str, int, float)) else True


def changed_in_place(number: int) -> str:
    """What is wrong with a work that changes one of its arguments, counted from 1."""
    return (
        f"argument {number} was changed in place: make a new one (z = z + …, not z += …), the caller needs the old one"
    )


def difference(right: Any, given: Any, name: str, exercise: Exercise) -> str:
    """The first difference in a plain sentence, or "" where there is none."""
    if given is None and right is not None:
        return f"{name} is None: is the return missing?" if name == "result" else f"{name} is None"
    if isinstance(right, Hashed):
        return _answers_difference(right, given, name, exercise)
    if isinstance(right, (tuple, list)):
        return _sequence_difference(right, given, name, exercise)
    if isinstance(right, Tensor):
        return _tensor_difference(right, given, name, exercise)
    if isinstance(right, numeric.Number) and not isinstance(right, bool):
        return _number_difference(right, given, name, exercise)
    if isinstance(right, bool) and isinstance(given, (np.bool_, Tensor, np.ndarray)) and np.size(given) == 1:
        given = given.item()
    if isinstance(right, str) and isinstance(given, str):  # words that describe what was seen
        more = _expected(right, exercise) if exercise.secret else f". It should be {right}."
        return "" if given == right else f"{name} is {given}{more}"
    same = type(given) is type(right) and given == right
    return "" if same else f"{name} is {short(given)}{_expected(short(right), exercise)}"


def _sequence_difference(right: tuple[Any, ...] | list[Any], given: Any, name: str, exercise: Exercise) -> str:
    numbers = flat(right) if _holds_numbers_alone(right) else []
    theirs = flat(given) if numbers else []
    if numbers and len(numbers) == len(theirs):
        # Nested or not: it is the same numbers in the same order.
        places = _places(given) if len(_places(given)) == len(numbers) else [f"[{i}]" for i in range(len(numbers))]
        triples = zip(numbers, theirs, places, strict=True)
        found = (_number_difference(ours, other, _at(name, place), exercise) for ours, other, place in triples)
        return next(filter(None, found), "")
    parts = as_parts(given, len(right))
    if parts is None:
        many = f" of {len(given)}" if isinstance(given, (tuple, list)) else ""
        said = f"{name} is {kind(given)}{many}, expected a {type(right).__name__} of {len(right)}"
        for index, part in enumerate(right):
            if isinstance(part, Tensor) and not exercise.secret and not difference(part, given, name, exercise):
                said += f"; it is the right {name}[{index}]: return all {len(right)}"
        return said
    pairs = enumerate(zip(right, parts, strict=True))
    first = next(filter(None, (difference(*pair, _at(name, f"[{i}]"), exercise) for i, pair in pairs)), "")
    if first and not exercise.secret and all(isinstance(part, Tensor) for part in right):
        order = [
            next((i for i, a in enumerate(right) if not difference(a, part, name, exercise)), -1) for part in parts
        ]
        if sorted(order) == list(range(len(right))):
            return f"the parts of {name} are right, but in another order ({', '.join(map(str, order))}): {first}"
    return first


def _answers_difference(right: Hashed, given: Any, name: str, exercise: Exercise) -> str:
    many = len(right.parts.split())
    wanted = "a number" if right.kind == "number" else f"a {right.kind} of {many}"
    answer = as_parts(given, many) if isinstance(given, Mapping) else given
    if not _holds_numbers_alone(answer) or len(flat(answer)) != many:
        of = f" of {len(given)}" if isinstance(given, (tuple, list)) else ""
        wanted += " single numbers" * (of == f" of {many}")
        return f"{name} is {given if isinstance(given, Words) else kind(given)}{of}, expected {wanted}"
    places = [""] if right.kind == "number" else _places(answer)
    for number, (leaf, place) in enumerate(zip(flat(answer), places, strict=True)):
        value = as_number(leaf)
        if _too_long(value) or not right.holds(number, value, f"{exercise.name}/{name}"):
            return f"{_at(name, place)} is {_too_long(value) or digits(value, 7)}, and should be something else"
    return ""


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


def as_parts(given: Any, many: int) -> list[Any] | None:
    """The parts of a sequence of ``many``, however it is kept: a list, a stacked tensor, a dictionary 0, 1, …"""
    if isinstance(given, (Tensor, np.ndarray)):
        return list(given) if given.ndim and len(given) == many else None
    if isinstance(given, Mapping):
        in_order = list(given) == list(range(many))
        return list(given.values()) if in_order else None
    once = isinstance(given, Iterator)  # a generator is empty for whoever reads it next
    if once or isinstance(given, (set, frozenset, str, bytes)) or not isinstance(given, Iterable):
        return None
    parts = list(given)
    return parts if len(parts) == many else None


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
    if tensor.device.type == "meta":
        return f"{name} is on device meta, which keeps no numbers, expected {right.device}"
    if tensor.shape != right.shape:
        return f"{name} has shape {shape(tensor)}, expected {shape(right)}"
    given, right = tensor.detach().to(right.device), right.detach()
    if _near(right, given, exercise.tolerance):
        return ""
    if given.dtype in HALF and right.dtype not in HALF:
        why = "half precision keeps only two or three digits. Compute in the dtype of what you are given"
        return f"{name} is of dtype {given.dtype}, expected {right.dtype}: {why}"
    if _kind_of_numbers(right, given) and not _whole(right, given):
        pairs = [(right, given)]
        if given.is_complex():
            pairs = [(right, given.real), (torch.zeros_like(right), given.imag)]
        but = "" if any(_wrong(a, b, exercise).any() for a, b in pairs) else "the numbers are right, but "
        return f"{but}{name} is of dtype {given.dtype}, expected {_kind_of_numbers(right, given)}"
    if given.is_floating_point() and not right.isnan().any():
        for word, bad in (("nan (not a number)", given.isnan()), ("infinite numbers", given.isinf() & ~right.isinf())):
            if bad.any():
                return f"{name} holds {word}, first at {_index(bad)}"
    if not given.numel():
        return ""
    wrong = _wrong(right, given, exercise)
    if not wrong.any():
        return ""
    at = _index(wrong)
    theirs, ours = distinct(given[tuple(at)], right[tuple(at)])
    values = f"{_at(name, str(at or ''))} is {theirs}{_expected(ours, exercise)}"
    many = f"; {int(wrong.sum())} of {wrong.numel()} numbers are wrong, shape {shape(given)}"
    return values + many if given.ndim else values


def _kind_of_numbers(right: Tensor, given: Tensor) -> str:
    """What kind was expected in place of the given one, or "" where that will do."""
    if right.dtype == torch.bool:
        return "" if given.dtype == torch.bool else "torch.bool, True or False"
    if given.dtype == torch.bool or given.is_complex():
        return str(right.dtype)
    return "whole numbers, such as torch.int64" if given.is_floating_point() and not right.is_floating_point() else ""


def _whole(right: Tensor, given: Tensor) -> bool:
    """Whether floats are just the whole numbers that were expected."""
    if right.dtype == torch.bool or not given.is_floating_point():
        return False
    return torch.equal(given.to(torch.float64), right.to(torch.float64))


def _near(right: Tensor, given: Tensor, tolerance: float) -> bool:
    """Whether no number is off by more than the least tolerance there is: quick, and False where it can't tell."""
    if given.dtype != right.dtype or not given.is_floating_point() or not given.numel():
        return False
    return bool((given - right).abs().max() <= tolerance)


def _wrong(right: Tensor, given: Tensor, exercise: Exercise) -> Tensor:
    """Where two tensors of one shape differ."""
    right, given = right.to(torch.float64), given.to(torch.float64)
    finite = right[right.isfinite()]
    scale = max(1.0, finite.abs().max().item()) if finite.numel() else 1.0
    near = (given - right).abs() <= exercise.tolerance * scale  # False for two infinities: their difference is nan
    return ~near & (given != right) & ~(given.isnan() & right.isnan())


def off(rows: list[tuple[Case, Result, Result]], exercise: Exercise) -> list[tuple[Case, Result, Result]]:
    """The rows whose result differs from the right one, whatever may be wrong besides."""
    return [row for row in rows if differs({"result": row[1]["result"]}, row[2], exercise)]


def equal(right: Tensor, given: Tensor, exercise: Exercise) -> bool:
    """Whether two tensors have one shape, and the same numbers within the exercise's tolerance."""
    return given.shape == right.shape and not _wrong(right, given, exercise).any()


def _form(right: Tensor, given: Any, name: str, exercise: Exercise) -> str:
    """What came in place of a tensor, and whether its numbers are right."""
    said = f"{name} is {kind(given)}"
    if exercise.secret or not isinstance(given, (tuple, list)):
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


def _number_difference(right: Any, given: Any, name: str, exercise: Exercise) -> str:
    value = as_number(given[0] if isinstance(given, (list, tuple)) and len(given) == 1 else given)
    if isinstance(given, Words):
        return f"{name} is {given}"
    if value is None:
        return f"{name} is {kind(given)}, expected a number"
    if _too_long(value):
        return f"{name} is {_too_long(value)}"
    # Of whole numbers that were counted none is nearly right.
    tolerance = min(exercise.tolerance, 1e-6) if isinstance(right, int) and exercise.secret else exercise.tolerance
    close = abs(value - right) <= tolerance * max(1.0, abs(right))
    if close:
        return ""
    theirs, ours = distinct(value, right)
    return f"{name} is {theirs}{_expected(ours, exercise)}"


def _too_long(value: Any) -> str:
    """What a whole number is called that is more than a float can hold, and maybe than Python prints; "" for others."""
    if not isinstance(value, int) or abs(value) <= 10**300:
        return ""
    return f"a whole number of {abs(value).bit_length() * math.log10(2):.0f} digits or so"


def as_number(given: Any) -> Any:
    """A number, or what holds just one, as a number; None for anything else."""
    if isinstance(given, (Tensor, np.ndarray)) and math.prod(given.shape) == 1 and given.dtype != object:
        return given.detach().cpu().item() if isinstance(given, Tensor) else given.item()
    if isinstance(given, Decimal):  # which no float can be subtracted from
        return float(given)
    return given if isinstance(given, numeric.Number) and not isinstance(given, bool) else None


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
    name = type(x).__name__
    names = {"ndarray": "a NumPy array", "generator": "a generator, which can be read only once"}
    return names.get(name, f"{'an' if name[0] in 'aeioAEIO' else 'a'} {name}")


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
