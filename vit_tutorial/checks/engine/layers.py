"""Build a student's layer, copy agreed weights into it, call it, and observe results, gradients and modes."""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Container
from typing import Any

import torch
from torch import Tensor, nn

from vit_tutorial.checks.engine.compare import kind, shape
from vit_tutorial.checks.engine.exercise import Case, Fault, Result, Words
from vit_tutorial.checks.engine.functions import SECOND, call, copied, gradients_of, tensors
from vit_tutorial.checks.engine.student import name_of

TRAINING = "the result in training mode, compared with evaluation mode,"
MISSING = "missing"  # in a result: the agreed parameters that a layer doesn't have


def layer(
    work: Any, case: Case, aliases: dict[str, str] | None = None, differentiable: bool = True, chance: bool = False
) -> Result:
    """Build ``work(*build)``, copy the weights in, call it in eval mode: its result, and the parameters' gradients.

    The gradients belong to a second call with other numbers: nothing of the first call may stay in the layer. A call in
    training mode shows whether that changes the result, unless ``chance`` says that it may. ``aliases`` are other names
    that a parameter may have, as {theirs: agreed}. With ``differentiable``, the gradients in the arguments are
    observed, too: a layer between others must let them through.
    """
    module = built(work, case)
    parameters = adopt(module, case.weights, aliases or {})
    observed = call(module.eval(), case, differentiable)
    others = [x.roll(1) if isinstance(x, Tensor) else x for x in case.args]
    observed[SECOND] = result = module(*copied(others))
    if not chance:
        trained = module.train()(*copied(others))
        observed[TRAINING] = Words("the same" if _alike(trained, result) else "another one")
    for name, gradient in zip(parameters, gradients_of(result, list(parameters.values())), strict=True):
        if gradient is not None:
            gradient = gradient.reshape(case.weights[name].shape)
        observed[f"gradient of {name}"] = gradient
    observed[MISSING] = [name for name in case.weights if name not in parameters]
    return observed


def built(work: Any, case: Case) -> nn.Module:
    """The layer that a class builds.

    Raises:
        Fault: it is no nn.Module.
    """
    module = work(*case.build)
    if isinstance(module, nn.Module):
        return module
    raise Fault(f"{name_of(work)}(...) gives {kind(module)}, expected an nn.Module: derive the class from nn.Module")


def _alike(a: Any, b: Any) -> bool:
    """Whether two results hold the same numbers, up to rounding."""
    pairs = zip(tensors(a), tensors(b), strict=False)
    return all(x.shape == y.shape and torch.allclose(x, y, rtol=1e-4, atol=1e-4, equal_nan=True) for x, y in pairs)


def same_shape(output: Any, x: Tensor) -> None:
    """See that a result has its input's shape.

    Raises:
        Fault: it has another one, or is no tensor.
    """
    if not isinstance(output, Tensor) or output.shape != x.shape:
        raise Fault(f"the result is {kind(output)}, and must be a tensor of the input's shape, {shape(x)}")


def share_no_parameter(module: nn.Module, another: Any) -> None:
    """See that two layers of a class have parameters of their own.

    Raises:
        Fault: they share one.
    """
    theirs = {id(p) for p in another.parameters()}
    if shared := [name for name, p in module.named_parameters() if id(p) in theirs]:
        raise Fault(f"two layers of your class share {shared[0]}: make it anew in each __init__")


def with_defaults(work: Any, case: Case, *defaults: Any) -> Case:
    """A case that leaves the last settings out, with ``defaults`` where the class asks for them."""
    try:
        inspect.signature(work).bind(*case.build)
    except TypeError:
        return dataclasses.replace(case, build=(*case.build, *defaults))
    return case


def variant(cls: type[nn.Module], **methods: Any) -> type[nn.Module]:
    """A class with other methods or settings: a wrong implementation in one line."""
    return type(cls.__name__, (cls,), methods)


# ---- Parameters --------------------------------------------------------------------------------------------------


def adopt(module: nn.Module, weights: dict[str, Tensor], aliases: dict[str, str]) -> dict[str, Tensor]:
    """Copy ``weights`` into a module's parameters; return those parameters by the agreed names.

    A parameter may be nested deeper than agreed ("mha.proj.weight"), and have another shape if it holds as many
    numbers (a Conv2d for a Linear).

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
        children = [child for child, _ in module.named_children()]
        inside = isinstance(module, (nn.Sequential, nn.ModuleDict))
        path.append(str(children.index(part)) if inside else part)
        module = module.get_submodule(part)
    return ".".join([*path, last])


def _holds(parameter: Tensor, agreed: Tensor) -> bool:
    """Whether a parameter has the agreed shape, but for axes of length 1 and for axes that are joined (a Conv2d's)."""
    a, b = ([n for n in x.shape if n != 1] for x in (parameter, agreed))
    joined = a[:1] == b[:1] and math.prod(a) == math.prod(b)
    return a == b or (joined and 1 < min(len(a), len(b)) < max(len(a), len(b)))


def agreed(weights: dict[str, Tensor]) -> str:
    """The parameters that a stub asks for, for a sentence."""
    if len(weights) > 12:
        return f"the parts are {', '.join(dict.fromkeys(name.split('.')[0] for name in weights))}"
    return f"agreed are {', '.join(f'{name} {shape(value)}' for name, value in weights.items())}"


def random_weights(module: nn.Module, seed: int = 0) -> dict[str, Tensor]:
    """A module's parameters by name, normal numbers of standard deviation 0.5: zeros and ones would hide mistakes."""
    generator = torch.Generator().manual_seed(seed)
    return {name: 0.5 * torch.randn(p.shape, generator=generator) for name, p in module.named_parameters()}
