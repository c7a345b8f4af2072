"""Build a student's layer, copy agreed weights into it, call it, and observe results, gradients and modes."""

from __future__ import annotations

from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from vit_tutorial.checks.engine.compare import describe, name_of, shape
from vit_tutorial.checks.engine.exercise import Case, Fault, Observation, Submission, Value
from vit_tutorial.checks.engine.functions import call, copy_arguments, gradients_of, tensors

Class = TypeVar("Class")
TORCHS_NAMES = {"qkv.": "in_proj_", "proj.": "out_proj."}  # what nn.MultiheadAttention calls the same numbers


def layer(submission: Submission, case: Case, differentiable: bool = True, chance: bool = False) -> Observation:
    """Build ``submission(*build)``, copy the weights in, call it in eval mode: result, and the parameters' gradients.

    The gradients belong to a second call with other numbers: nothing of the first call may stay in the layer. A call in
    training mode shows whether that changes the result, unless ``chance`` says that it may. With ``differentiable``,
    the gradients in the arguments are observed, too: a layer between others must let them through.
    """
    module = build_layer(submission, case)
    parameters = copy_weights(module, case.weights)
    observed = call(module.eval(), case, differentiable)
    others = [x.roll(1) if isinstance(x, Tensor) else x for x in case.args]
    observed.second_result = result = module(*copy_arguments(others))
    if not chance:
        trained = module.train()(*copy_arguments(others))
        changed = "the same" if _alike(trained, result) else "another one"
        observed.values["the result in training mode (compared with evaluation mode)"] = changed
    for name, gradient in zip(parameters, gradients_of(result, list(parameters.values())), strict=True):
        fitting = gradient.reshape(case.weights[name].shape) if gradient is not None else None
        observed.gradients[name] = fitting
    return observed


def build_layer(submission: Submission, case: Case) -> nn.Module:
    """The layer that a class builds.

    Raises:
        Fault: it is no nn.Module.
    """
    module = submission(*case.build)
    if isinstance(module, nn.Module):
        return module
    raise Fault(
        f"{name_of(submission)}(...) gives {describe(module)}, expected an nn.Module: derive the class from nn.Module"
    )


def _alike(a: Value, b: Value) -> bool:
    """Whether two results hold the same numbers, up to rounding."""
    pairs = zip(tensors(a), tensors(b), strict=False)
    return all(x.shape == y.shape and torch.allclose(x, y, rtol=1e-4, atol=1e-4, equal_nan=True) for x, y in pairs)


def share_no_parameter(module: nn.Module, another: Any) -> None:
    """See that two layers of a class have parameters of their own.

    Raises:
        Fault: they share one.
    """
    theirs = {id(p) for p in another.parameters()}
    if shared := [name for name, p in module.named_parameters() if id(p) in theirs]:
        raise Fault(f"two layers of your class share {shared[0]}: make it anew in each __init__")


def variant(cls: type[Class], **methods: Any) -> type[Class]:
    """A class with other methods or settings: a wrong implementation in one line."""
    return type(cls.__name__, (cls,), methods)


# ---- Parameters --------------------------------------------------------------------------------------------------


def copy_weights(module: nn.Module, weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Copy ``weights`` into a module's parameters; return those parameters by the agreed names.

    A parameter may be nested deeper than agreed ("mha.proj.weight"), and have another shape if it holds the same
    numbers in the same order (a Conv2d's for a Linear's). It may be called as in torch's MultiheadAttention.

    Raises:
        Fault: a parameter of another size, one that nobody agreed on, or none for an agreed name.
    """
    agreed_names = {name: name for name in weights}
    for ours, torchs in TORCHS_NAMES.items():
        agreed_names |= {name.replace(ours, torchs): name for name in weights}
    parameters: dict[str, Tensor] = {}
    for own, parameter in module.named_parameters():
        parts = own.split(".")
        ends = (".".join(parts[start:]) for start in range(len(parts)))
        name = next((agreed_names[end] for end in ends if end in agreed_names), None)
        if name is None:
            raise Fault(f"the class has a parameter that the stub doesn't name: {own}; {agreed_parameters(weights)}")
        if not _same_order(parameter, weights[name]):
            raise Fault(f"{own} has shape {shape(parameter)}, expected {shape(weights[name])}")
        if name in parameters:
            raise Fault(f"two parameters stand for {name}, and {own} is one of them: the class needs one")
        with torch.no_grad():
            parameter.copy_(weights[name].reshape(parameter.shape))
        parameters[name] = parameter
    if missing := [name for name in weights if name not in parameters]:
        raise Fault(f"the class has no parameter of its own for {', '.join(missing)}; {agreed_parameters(weights)}")
    return parameters


def _same_order(parameter: Tensor, agreed: Tensor) -> bool:
    """Whether a reshape puts the agreed numbers into a parameter: axes of length 1 and the last axes don't matter."""
    a, b = parameter.squeeze(), agreed.squeeze()
    joined = a.ndim != b.ndim and min(a.ndim, b.ndim) > 1 and a.flatten(1).shape == b.flatten(1).shape
    return a.shape == b.shape or joined


def agreed_parameters(weights: dict[str, Tensor]) -> str:
    """The parameters that a stub asks for, for a sentence."""
    if len(weights) > 12:
        return f"the parts are {', '.join(dict.fromkeys(name.split('.')[0] for name in weights))}"
    return f"agreed are {', '.join(f'{name} {shape(value)}' for name, value in weights.items())}"


def random_weights(module: nn.Module, seed: int = 0) -> dict[str, Tensor]:
    """A module's parameters by name, normal numbers of standard deviation 0.5: zeros and ones would hide mistakes."""
    generator = torch.Generator().manual_seed(seed)
    return {name: 0.5 * torch.randn(p.shape, generator=generator) for name, p in module.named_parameters()}
