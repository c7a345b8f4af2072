"""Step 1 of a check, observe: call a work on one case, and record what it gives.

:func:`call` observes a function, :func:`layer` a class, :func:`answers` a dictionary of answers. A result is a
dictionary of what is compared, by name.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
import operator
import re
import weakref
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from vit_tutorial.checks.capture import unheard
from vit_tutorial.checks.compare import changed_in_place, kind, shape, unchanged
from vit_tutorial.checks.declare import Case, Fault, Result, Words
from vit_tutorial.checks.watch import memory_outside_torch, name_of, students_line, with_line

SECOND = "the result of a second call, with other inputs,"
LAYOUT = "the result for tensors whose numbers lie in memory in another order, such as x.transpose(0, 1),"
TRAINING = "the result in training mode, compared with evaluation mode,"
MODE = "the layer's mode (train, eval) after a call"


_ALONE = ContextVar("_ALONE", default=False)


@contextmanager
def the_result_alone() -> Iterator[None]:
    """While it is open, :func:`call` and :func:`layer` observe one call and its result: what a diagnosis asks for."""
    before = _ALONE.set(True)
    try:
        yield
    finally:
        _ALONE.reset(before)


# ---- A function --------------------------------------------------------------------------------------------------


def call(work: Any, case: Case, differentiable: bool = False) -> Result:
    """Call ``work(*args)``: its result, those of two calls with other numbers, and what it has left of its arguments.

    Nothing of the first call may stay for the second, and it is the numbers that count, not where they lie in memory.
    With ``differentiable``, also the gradient of a fixed combination of the result in each argument: only for an
    exercise whose text says that the work must be differentiable.
    """
    observed = _called(work, case, differentiable and not _ALONE.get())
    again = not _ALONE.get() and observed["result"] is not None and any(map(tensors, case.args))
    if again and not any(x.is_meta for x in tensors(observed["result"])):  # those keep no numbers to compare
        observed[SECOND] = _once_more(work, case, observed["result"])
        observed[LAYOUT] = _laid_out_anew(work, case, observed[SECOND])
    return observed


def _called(work: Any, case: Case, differentiable: bool) -> Result:
    before = [_leaf(x, differentiable) for x in case.args]
    given = copied(before)
    try:
        answer = work(*given)
        observed = {"result": list(answer) if isinstance(answer, list) else answer}  # a later call may make it longer
        gradients = _gradients(observed["result"], before) if differentiable else []
    except RuntimeError as error:  # torch's, if it keeps numbers for the gradient that are others by now
        numbers = changed(given, before)
        if numbers and re.search("in-?place", str(error)):
            raise Fault(with_line(changed_in_place(numbers[0]), students_line(error))) from error
        raise
    in_place = changed(given, before)
    graphs = [number for number, pair in enumerate(zip(given, before, strict=True), 1) if _another_graph(*pair)]
    if graphs and not in_place:
        raise Fault(
            f"argument {graphs[0]} has another requires_grad or grad: leave requires_grad and backward() to the caller"
        )
    for number, (gradient, leaf) in enumerate(zip(gradients, before, strict=False), 1):
        if is_float(leaf):
            observed[f"gradient of argument {number}"] = gradient
    observed["arguments"] = as_left(given)
    return observed


def _another_graph(x: Any, leaf: Any) -> bool:
    """Whether a work has switched an argument's gradients on or off, or filled them."""
    if not (isinstance(x, Tensor) and isinstance(leaf, Tensor)):
        return False
    return x.requires_grad is not leaf.requires_grad or leaf.grad is not None or (x.is_leaf and x.grad is not None)


def copied(args: Iterable[Any]) -> list[Any]:
    """Arguments of a work's own: tensors, and lists and dictionaries of them."""
    return [_copy(x) for x in args]


def changed(given: Iterable[Any], before: Iterable[Any], first: int = 1) -> list[int]:
    """Which arguments a work has changed, by their numbers; ``first`` is the first one's."""
    pairs = enumerate(zip(given, before, strict=True), first)
    return [number for number, (now, old) in pairs if not unchanged(now, old)]


def as_left(given: Iterable[Any], first: int = 1) -> dict[int, Any]:
    """A work's arguments as it has left them, by their numbers: who judges it knows how they were."""
    with torch.no_grad():
        return {n: _copy(x) for n, x in enumerate(given, first) if isinstance(x, (Tensor, list, tuple, dict))}


def _once_more(work: Any, case: Case, result: Any) -> Any:
    """The result of a second call, with the arguments' images, tokens or the like in another order.

    Raises:
        Fault: it changes the first one.
    """
    first = [(x, _dense(x).clone()) for x in tensors(result)]
    with torch.no_grad(), unheard():
        given = copied(case.args)
        work(*given)
        again = work(*map(_filled, given, map(_turned, case.args)))
    if any(not torch.equal(_dense(x), before) and not before.isnan().any() for x, before in first):
        raise Fault("a second call changes the result of the first: make a new tensor in each call")
    return again


def _laid_out_anew(work: Any, case: Case, result: Any) -> Any:
    """The result of the second call's numbers, laid out in another order; ``result`` where the work can't take them.

    Nothing is said of ``view`` in the texts: who uses it raises an error, and no number is wrong.
    """
    turned = [_turned(x) for x in case.args]
    given = [_laid_out(x) for x in turned]
    if all(map(operator.is_, turned, given)):
        return result
    try:
        with torch.no_grad(), unheard():
            return work(*given)
    except Exception:
        return result


def _laid_out(x: Any) -> Any:
    """A tensor with the same numbers, whose last axis isn't the one that is contiguous; anything else as it is."""
    if not isinstance(x, Tensor) or x.layout != torch.strided or x.ndim < 2 or 1 in x.shape[-2:]:
        return x
    return x.mT.contiguous().mT


def _dense(x: Tensor) -> Tensor:
    """A tensor without its graph, and with all its zeros."""
    return x.detach() if x.layout == torch.strided else x.detach().to_dense()


def _filled(x: Any, other: Any) -> Any:
    """The very tensor that a work has got before, now with other numbers: whoever remembers it by itself goes wrong."""
    if isinstance(x, list):
        return [_filled(a, b) for a, b in zip(x, other, strict=True)] if len(x) == len(other) else other
    return x.copy_(other) if isinstance(x, Tensor) and x.shape == other.shape else other


def _turned(x: Any) -> Any:
    """A tensor rolled along its first axis that is longer than 1: what holds of its last axes goes on holding.

    The tensors of a list are rolled one by one, anything else is copied.
    """
    if not isinstance(x, Tensor):
        return [_turned(part) for part in x] if type(x) is list else _copy(x)
    axis = next((axis for axis, length in enumerate(x.shape) if length > 1), None)
    return x.clone() if axis is None else x.detach().roll(1, axis)


class _Alive(TorchFunctionMode):
    """Counts the numbers in the tensors that torch makes: all, and those that are there at once, every ``step``."""

    def __init__(self, step: int) -> None:
        super().__init__()
        self.step = step
        self.made = self.counted = self.most = 0
        self.there: list[tuple[weakref.ref[Tensor], int, int]] = []  # with the place in memory: out += 1 makes nothing

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        for x in tensors(result):
            if x.numel() * x.itemsize == x.untyped_storage().nbytes():  # else it is a part of another one
                self.made += x.numel()
                self.there.append((weakref.ref(x), x.untyped_storage().data_ptr(), x.numel()))
        if self.made >= self.counted + self.step:
            self._count()
        return result

    def _count(self) -> None:
        self.counted = self.made
        self.there = [one for one in self.there if one[0]() is not None]
        self.most = max(self.most, sum({place: many for _, place, many in self.there}.values()))


def at_once(work: Callable[[], Any], numbers: int) -> Words:
    """Whether a work that makes a table of ``numbers`` piece by piece holds all of it at once.

    Who makes fewer numbers by torch makes them by NumPy or Python, and then a whole table is held twice, before and
    after a function, in four bytes a number or in eight.
    """
    with _Alive(numbers // 16) as alive, torch.no_grad():
        work()
    most = alive.most if alive.made >= numbers else memory_outside_torch(work) / 8
    return Words("as much as all pieces take, or more" if most >= numbers else "one piece")


# ---- Answers -----------------------------------------------------------------------------------------------------


def answers(work: Any, case: Case) -> Result:
    """The answer to the question ``args[0]`` in the dictionary that ``work()`` returns, as plain numbers."""
    given = work() if callable(work) else work
    if not isinstance(given, dict):
        raise Fault(f"returned {kind(given)}, expected a dictionary of answers")
    question = case.args[0]
    if question not in given or given[question] is ...:
        raise Fault(f"there is no answer for {question!r} yet")
    return {question: _plain(given[question])}


def _plain(answer: Any) -> Any:
    """Numbers without their wrapping: an array, a tensor, a range, a list of tensors; a tuple stays one."""
    if isinstance(answer, (np.ndarray, np.generic, Tensor)):
        return answer.tolist()
    if isinstance(answer, (tuple, list, range)):
        parts = [_plain(part) for part in answer]
        return tuple(parts) if isinstance(answer, tuple) else parts
    return answer


# ---- A layer -----------------------------------------------------------------------------------------------------


def layer(
    work: Any,
    case: Case,
    aliases: dict[str, str] | None = None,
    differentiable: bool = True,
    chance: bool = False,
) -> Result:
    """Build ``work(*build)``, copy the weights in, call it in eval mode: its result, and the parameters' gradients.

    The gradients belong to a second call with other numbers: nothing of the first call may stay in the layer. Before
    it, a call in training mode shows whether that changes the result, unless ``chance`` says that it may.
    ``aliases`` are other names that a parameter may have, as {theirs: agreed}. See :func:`adopt`. With
    ``differentiable``, the gradients in the arguments are observed, too: a layer between others must let them through.
    """
    module = built(work, case)
    parameters = adopt(module, case.weights, aliases or {})
    if _ALONE.get():
        return _called(module.eval(), case, differentiable=False)
    of_its_own(module, work(*case.build))
    observed = _called(module.eval(), case, differentiable)
    others = rolled(case).args
    trained = None if chance else module.train()(*map(_copy, others))
    left = [] if chance else [module.training]
    result = module.eval()(*map(_copy, others))
    observed[SECOND] = result
    if not chance:
        cut = [x.requires_grad for x in tensors(trained)] != [x.requires_grad for x in tensors(result)]
        same = "the same, but one of the two has no gradients" if cut else "the same"
        observed[TRAINING] = Words(same if _alike(trained, result) else "another one")
        kept = [*left, module.training] == [True, False]
        observed[MODE] = Words("as it was set" if kept else "another one than was set")
    for name, gradient in zip(parameters, _gradients(result, list(parameters.values())), strict=True):
        if gradient is not None:
            observed[f"gradient of {name}"] = gradient.reshape(case.weights[name].shape)
    observed["missing"] = [name for name in case.weights if name not in parameters]
    return observed


def built(work: Any, case: Case) -> nn.Module:
    """The layer that a class builds.

    Raises:
        Fault: it is no nn.Module.
    """
    module = work(*case.build)
    if not isinstance(module, nn.Module):
        raise Fault(
            f"{name_of(work)}(...) gives {kind(module)}, expected an nn.Module: derive the class from nn.Module"
        )
    return module


def same_shape(output: Any, x: Tensor) -> None:
    """See that a result has its input's shape.

    Raises:
        Fault: it has another one, or is no tensor.
    """
    if not isinstance(output, Tensor) or output.shape != x.shape:
        raise Fault(f"the result is {kind(output)}, and must be a tensor of the input's shape, {shape(x)}")


def rolled(case: Case) -> Case:
    """The case of a layer's second call: the same numbers, each one place on."""
    return dataclasses.replace(case, args=tuple(x.roll(1) if isinstance(x, Tensor) else x for x in case.args))


def of_its_own(module: nn.Module, another: Any) -> None:
    """See that two layers of a class share no parameter.

    Raises:
        Fault: they share one.
    """
    if another is module or not isinstance(another, nn.Module):
        return
    theirs = {id(p) for p in another.parameters()}
    if shared := [name for name, p in module.named_parameters() if id(p) in theirs]:
        raise Fault(f"two layers of your class share {shared[0]}: make it anew in each __init__")


def filled(work: Any, case: Case, *defaults: Any) -> Case:
    """A case that leaves ``defaults`` out, with them where the class asks for them: a class need not have any."""
    try:
        inspect.signature(work).bind(*case.build)
    except TypeError:
        return dataclasses.replace(case, build=(*case.build, *defaults))
    except ValueError:  # nothing is known of its arguments
        pass
    return case


def _alike(a: Any, b: Any) -> bool:
    """Whether two results hold the same numbers; the way of computing them may differ in training mode."""
    pairs = zip(tensors(a), tensors(b), strict=False)
    return all(x.shape == y.shape and torch.allclose(x, y, rtol=1e-4, atol=1e-4, equal_nan=True) for x, y in pairs)


def _fitting(names: Container[str], own: str) -> list[str]:
    """The names that are a parameter's own, or its end behind a dot."""
    parts = own.split(".")
    ends = (".".join(parts[start:]) for start in range(len(parts)))
    return [end for end in ends if end in names]


def _numbered(module: nn.Module, name: str) -> str:
    """A parameter's name with numbers where a Sequential or a ModuleDict has names: blocks.first is blocks.0."""
    *parts, last = name.split(".")
    path = []
    for part in parts:
        children = list(module._modules)
        inside = isinstance(module, (nn.Sequential, nn.ModuleDict))
        path.append(str(children.index(part)) if inside else part)
        module = module.get_submodule(part)
    return ".".join([*path, last])


def adopt(module: nn.Module, weights: dict[str, Tensor], aliases: dict[str, str]) -> dict[str, Tensor]:
    """Copy ``weights`` into a module's parameters; return those parameters by the agreed names.

    A parameter may be nested deeper than agreed ("mha.proj.weight"), and have another shape if it holds as many
    numbers (a Conv2d for a Linear). One that is left out is reported only if no mistake explains the numbers.

    Raises:
        Fault: a parameter of another size, or one that nobody agreed on.
    """
    adopted: dict[str, Tensor] = {}
    names = {**{name: name for name in weights}, **aliases}
    for own, parameter in module.named_parameters():
        fitting = _fitting(names, own) or _fitting(names, _numbered(module, own))
        if not fitting:
            raise Fault(f"the class has a parameter that the stub doesn't name: {own}; {agreed(weights)}")
        name = names[max(fitting, key=len)]
        if not _holds(parameter, weights[name]):
            raise Fault(f"{own} has shape {shape(parameter)}, expected {shape(weights[name])}")
        if name in adopted:
            raise Fault(f"two parameters stand for {name}, and {own} is one of them: the class needs one")
        with torch.no_grad():
            parameter.copy_(weights[name].reshape(parameter.shape))
        adopted[name] = parameter
    return adopted


def _holds(parameter: Tensor, agreed: Tensor) -> bool:
    """Whether a parameter has the agreed shape, but for axes of length 1 and for axes that are joined (a Conv2d's)."""
    a, b = ([n for n in x.shape if n != 1] for x in (parameter, agreed))
    return a == b or (a[:1] == b[:1] and math.prod(a) == math.prod(b) and 1 < min(len(a), len(b)) < max(len(a), len(b)))


def random_weights(module: nn.Module, seed: int = 0) -> dict[str, Tensor]:
    """A module's parameters by name, normal numbers of standard deviation 0.5: zeros and ones would hide mistakes."""
    generator = torch.Generator().manual_seed(seed)
    return {name: 0.5 * torch.randn(p.shape, generator=generator) for name, p in module.named_parameters()}


def normal(*shape: int, seed: int = 0) -> Tensor:
    """Normal numbers of a shape, the same at each call."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def _leaf(x: Any, differentiable: bool) -> Any:
    if not isinstance(x, Tensor):
        return _copy(x)
    copy = x.detach().clone()
    return copy.requires_grad_() if differentiable and is_float(x) else copy


def is_float(x: Any) -> bool:
    """Whether something is a tensor of floats."""
    return isinstance(x, Tensor) and x.is_floating_point()


def _copy(x: Any) -> Any:
    """A tensor, a list or a dictionary of its own: what a work does to it is seen in comparison."""
    if isinstance(x, Tensor):
        # As a slice of a larger tensor: who counts from the beginning of its memory is seen.
        return torch.cat([x.new_zeros(3), x.reshape(-1)])[3:].view(x.shape) if x.layout == torch.strided else x.clone()
    if type(x) is dict:
        return {name: _copy(part) for name, part in x.items()}
    return [_copy(part) for part in x] if type(x) is list else x


def tensors(result: Any) -> list[Tensor]:
    """All tensors of a result, however nested, in order."""
    if isinstance(result, Tensor):
        return [result]
    parts = result.values() if isinstance(result, dict) else result if isinstance(result, (tuple, list)) else ()
    return [tensor for part in parts for tensor in tensors(part)]


def _gradients(result: Any, leaves: list[Any]) -> list[Tensor | None]:
    wanted = [leaf for leaf in leaves if isinstance(leaf, Tensor) and leaf.requires_grad]
    outputs = [tensor for tensor in tensors(result) if tensor.requires_grad and is_float(tensor)]
    if not wanted or not outputs:
        return [None] * len(leaves)
    # Every entry gets a weight of its own: the plain sum of a softmax has no gradient.
    total = torch.stack([(tensor * normal(*tensor.shape, seed=1).to(tensor)).sum() for tensor in outputs]).sum()
    found = iter(torch.autograd.grad(total, wanted, allow_unused=True))
    return [next(found) if any(leaf is x for x in wanted) else None for leaf in leaves]


def agreed(weights: dict[str, Tensor]) -> str:
    """The parameters that a stub asks for, for a sentence."""
    if len(weights) > 12:
        return f"the parts are {', '.join(dict.fromkeys(name.split('.')[0] for name in weights))}"
    return f"agreed are {', '.join(f'{name} {shape(value)}' for name, value in weights.items())}"
