"""Call a student's function on one input, and observe what it returns and what it does to its arguments."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from vit_tutorial.checks.engine.compare import describe
from vit_tutorial.checks.engine.exercise import Case, Fault, Observation, Submission, Value


def call(submission: Submission, case: Case, differentiable: bool = False) -> Observation:
    """Call ``submission(*args)``: its result, that of a call with other numbers, and whether arguments were changed.

    With ``differentiable``, also the gradient of a fixed combination of the result in each argument: only for an
    exercise whose text says that it must be differentiable.
    """
    leaves = [_leaf(x, differentiable) for x in case.args]
    arguments = copy_arguments(leaves)
    result = submission(*arguments)
    observed = Observation({"result": list(result) if isinstance(result, list) else result})
    observed.changed_argument = changed_argument(leaves, arguments)
    if differentiable:
        gradients = enumerate(gradients_of(result, leaves))
        observed.gradients = {f"argument {i + 1}": gradient for i, gradient in gradients if is_float(leaves[i])}
    if any(map(tensors, case.args)):
        with torch.no_grad():
            observed.second_result = submission(*map(_roll, case.args))
    return observed


def entries(result: Value, keys: Collection[str]) -> dict[str, Value]:
    """The entries of a dictionary that a submission has returned, in the order of ``keys``.

    Raises:
        Fault: it is no dictionary, a key is missing, or there is one too many.
    """
    if not isinstance(result, Mapping):
        raise Fault(f"returned {describe(result)}, expected a dictionary with the keys {', '.join(keys)}")
    if missing := [key for key in keys if key not in result]:
        raise Fault(f"there is no {missing[0]!r} in the dictionary: it has {', '.join(map(repr, result)) or 'nothing'}")
    if more := [key for key in result if key not in keys]:
        raise Fault(f"the dictionary has {more[0]!r}, and should have only {', '.join(keys)}")
    return {key: result[key] for key in keys}


def changed_argument(before: Iterable[Any], after: Iterable[Any], first: int = 1) -> str:
    """A sentence on the first argument that was changed in place, or ""; ``first`` is the number of the first one."""
    for number, (old, new) in enumerate(zip(before, after, strict=True), first):
        if not is_unchanged(new, old):
            return (
                f"argument {number} was changed in place: make a new one (z = z + …, not z += …), the caller needs "
                "the old one"
            )
    return ""


def is_unchanged(now: Any, old: Any) -> bool:
    """Whether an argument, a tensor or a list or dictionary of anything, is still what it was."""
    if isinstance(old, Tensor):
        same = isinstance(now, Tensor) and now.shape == old.shape
        return same and torch.equal(now.detach(), old.detach())
    if type(old) in (list, tuple):
        return isinstance(now, type(old)) and len(now) == len(old) and all(map(is_unchanged, now, old))
    if type(old) is dict:
        same = isinstance(now, dict) and list(now) == list(old)
        return same and all(is_unchanged(now[name], old[name]) for name in old)
    return bool(now == old) if isinstance(old, (str, int, float)) else True


def copy_arguments(args: Iterable[Any]) -> list[Any]:
    """Copies of arguments: of tensors, and of lists and dictionaries of them."""
    return [_copy(x) for x in args]


def _copy(x: Any) -> Any:
    if isinstance(x, Tensor):
        return x.clone()
    if type(x) is dict:
        return {name: _copy(part) for name, part in x.items()}
    return [_copy(part) for part in x] if type(x) is list else x


def _roll(x: Any) -> Any:
    """A tensor rolled along its first axis longer than 1; the tensors of a list one by one; anything else copied."""
    if not isinstance(x, Tensor):
        return [_roll(part) for part in x] if type(x) is list else _copy(x)
    axis = next((axis for axis, length in enumerate(x.shape) if length > 1), None)
    return x.clone() if axis is None else x.detach().roll(1, axis)


def _leaf(x: Any, differentiable: bool) -> Any:
    if not isinstance(x, Tensor):
        return _copy(x)
    copy = x.detach().clone()
    return copy.requires_grad_() if differentiable and is_float(x) else copy


def gradients_of(result: Value, leaves: Sequence[Any]) -> list[Tensor | None]:
    """The gradients of a fixed combination of a result's numbers in each leaf; None where no graph leads there."""
    outputs = [tensor for tensor in tensors(result) if tensor.requires_grad and is_float(tensor)]
    inputs = [leaf for leaf in leaves if isinstance(leaf, Tensor) and leaf.requires_grad]
    if not inputs or not outputs:
        return [None] * len(leaves)
    # Every number gets a weight of its own: the plain sum of a softmax has no gradient.
    total = torch.stack([(tensor * normal(*tensor.shape, seed=1).to(tensor)).sum() for tensor in outputs]).sum()
    gradients = iter(torch.autograd.grad(total, inputs, allow_unused=True))
    return [next(gradients) if any(leaf is x for x in inputs) else None for leaf in leaves]


def tensors(value: Value) -> list[Tensor]:
    """All tensors of a value, however nested, in order."""
    if isinstance(value, Tensor):
        return [value]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, (tuple, list)) else ()
    return [tensor for part in parts for tensor in tensors(part)]


def is_float(x: Any) -> bool:
    """Whether something is a tensor of floats."""
    return isinstance(x, Tensor) and x.is_floating_point()


def normal(*shape: int, seed: int = 0) -> Tensor:
    """Normal numbers of a shape, the same at each call."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))
