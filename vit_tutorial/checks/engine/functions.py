"""Call a student's function on one input, and observe what it returns and what it does to its arguments."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from vit_tutorial.checks.engine.exercise import Case, Result, Words

SECOND = "the result of a second call, with other inputs,"
ARGUMENTS = "arguments"  # in a result: which ones were changed in place


def call(work: Any, case: Case, differentiable: bool = False) -> Result:
    """Call ``work(*args)``: its result, that of a call with other numbers, and whether it has changed its arguments.

    Nothing of the first call may stay for the second.

    With ``differentiable``, also the gradient of a fixed combination of the result in each argument: only for an
    exercise whose text says that the work must be differentiable.
    """
    leaves = [_leaf(x, differentiable) for x in case.args]
    given = copied(leaves)
    answer = work(*given)
    observed: Result = {"result": list(answer) if isinstance(answer, list) else answer}
    if differentiable:
        gradients = gradients_of(answer, leaves)
        floats = (number for number, leaf in enumerate(leaves) if is_float(leaf))
        observed |= {f"gradient of argument {number + 1}": gradients[number] for number in floats}
    observed[ARGUMENTS] = changed_arguments(leaves, given)
    if any(map(tensors, case.args)):
        with torch.no_grad():
            observed[SECOND] = work(*map(turned, case.args))
    return observed


def turned(x: Any) -> Any:
    """A tensor rolled along its first axis longer than 1; the tensors of a list one by one; anything else copied."""
    if not isinstance(x, Tensor):
        return [turned(part) for part in x] if type(x) is list else _copy(x)
    axis = next((axis for axis, length in enumerate(x.shape) if length > 1), None)
    return x.clone() if axis is None else x.detach().roll(1, axis)


def changed_arguments(before: Iterable[Any], now: Iterable[Any], first: int = 1) -> Words:
    """A description of the first argument that was changed in place; ``first`` is the number of the first one."""
    for number, (old, new) in enumerate(zip(before, now, strict=True), first):
        if not unchanged(new, old):
            return Words(
                f"argument {number} was changed in place: make a new one (z = z + …, not z += …), the caller needs "
                "the old one"
            )
    return Words("unchanged")


def unchanged(now: Any, old: Any) -> bool:
    """Whether an argument, a tensor or a list or dictionary of anything, is still what it was."""
    if isinstance(old, Tensor):
        same = isinstance(now, Tensor) and now.shape == old.shape
        return same and torch.equal(now.detach(), old.detach())
    if type(old) in (list, tuple):
        return isinstance(now, type(old)) and len(now) == len(old) and all(map(unchanged, now, old))
    if type(old) is dict:
        return isinstance(now, dict) and list(now) == list(old) and all(unchanged(now[name], old[name]) for name in old)
    return bool(now == old) if isinstance(old, (str, int, float)) else True


def copied(args: Iterable[Any]) -> list[Any]:
    """Arguments of a work's own: tensors, and lists and dictionaries of them."""
    return [_copy(x) for x in args]


def _copy(x: Any) -> Any:
    if isinstance(x, Tensor):
        return x.clone()
    if type(x) is dict:
        return {name: _copy(part) for name, part in x.items()}
    return [_copy(part) for part in x] if type(x) is list else x


def _leaf(x: Any, differentiable: bool) -> Any:
    if not isinstance(x, Tensor):
        return _copy(x)
    copy = x.detach().clone()
    return copy.requires_grad_() if differentiable and is_float(x) else copy


def gradients_of(result: Any, leaves: list[Any]) -> list[Tensor | None]:
    """The gradients of a fixed combination of a result's numbers in each leaf; None where no graph leads there."""
    outputs = [tensor for tensor in tensors(result) if tensor.requires_grad and is_float(tensor)]
    wanted = [leaf for leaf in leaves if isinstance(leaf, Tensor) and leaf.requires_grad]
    if not wanted or not outputs:
        return [None] * len(leaves)
    # Every number gets a weight of its own: the plain sum of a softmax has no gradient.
    total = torch.stack([(tensor * normal(*tensor.shape, seed=1).to(tensor)).sum() for tensor in outputs]).sum()
    found = iter(torch.autograd.grad(total, wanted, allow_unused=True))
    return [next(found) if any(leaf is x for x in wanted) else None for leaf in leaves]


def tensors(result: Any) -> list[Tensor]:
    """All tensors of a result, however nested, in order."""
    if isinstance(result, Tensor):
        return [result]
    parts = result.values() if isinstance(result, dict) else result if isinstance(result, (tuple, list)) else ()
    return [tensor for part in parts for tensor in tensors(part)]


def is_float(x: Any) -> bool:
    """Whether something is a tensor of floats."""
    return isinstance(x, Tensor) and x.is_floating_point()


def normal(*shape: int, seed: int = 0) -> Tensor:
    """Normal numbers of a shape, the same at each call."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))
