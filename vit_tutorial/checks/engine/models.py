"""What a student's work does to a model that it is given, and what it says of the model's parameters."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from vit_tutorial.checks.engine.compare import as_number, kind
from vit_tutorial.checks.engine.exercise import Fault, Result, Words

AS_IT_WAS = Words("as it was")


class ModelSnapshot:
    """A model as it is now, its numbers, parts, hooks and what is frozen, to be compared afterwards.

    Args:
        model: what a work is about to get.
        trained: whether the work is to train it; then its numbers, and what of it is frozen, are not looked at.
    """

    def __init__(self, model: nn.Module, trained: bool = False) -> None:
        self.model = model
        self.numbers = {} if trained else {name: value.clone() for name, value in model.state_dict().items()}
        self.frozen = {} if trained else {name: not p.requires_grad for name, p in model.named_parameters()}
        self.parts = dict(model.named_modules())
        self.hooks = {name: _hooks(part) for name, part in self.parts.items()}
        self.rates = {name: part.p for name, part in self.parts.items() if isinstance(part, nn.Dropout)}

    def afterwards(self) -> Words:
        """What has changed, or :data:`AS_IT_WAS`. Modes and gradients are not looked at."""
        parts = dict(self.model.named_modules())
        if changed := [name for name in {**self.parts, **parts} if parts.get(name) is not self.parts.get(name)]:
            return Words(f"another one: its part {changed[0]} is not the one that it had")
        if changed := [name for name, part in parts.items() if _hooks(part) > self.hooks[name]]:
            return Words(f"not as it was: a hook is left on {changed[0] or 'it'} (take it off: handle.remove())")
        if changed := [name for name, rate in self.rates.items() if parts[name].p != rate]:
            return Words(f"not as it was: the rate of {changed[0]} is {parts[changed[0]].p}")
        now = self.model.state_dict()
        if changed := [name for name, value in self.numbers.items() if not torch.equal(now[name], value)]:
            return Words(f"not as it was: {changed[0]} has other numbers")
        grads = {name: p.requires_grad for name, p in self.model.named_parameters()}
        if changed := [name for name, frozen in self.frozen.items() if grads[name] is frozen]:
            return Words(f"not as it was: requires_grad of {changed[0]} is {grads[changed[0]]}")
        return AS_IT_WAS


def _hooks(part: nn.Module) -> int:
    return sum(len(value) for name, value in vars(part).items() if name.endswith("_hooks"))


def by_parameter(groups: Any, model: nn.Module, key: str, missing: Any) -> Result:
    """What an optimiser's groups say of each parameter of a model, by its name; ``missing`` where they say nothing.

    Raises:
        Fault: the groups are no list of dictionaries with parameters of the model, each of them once.
    """
    if not isinstance(groups, (list, tuple)) or not all(isinstance(one, dict) and "params" in one for one in groups):
        raise Fault(f'expected a list of dictionaries, each with "params" and "{key}", as an optimiser takes them')
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    found: Result = {}
    for group in groups:
        params = [group["params"]] if isinstance(group["params"], Tensor) else group["params"]
        if isinstance(params, (set, frozenset, str)):
            raise Fault(f'"params" is {kind(params)}: make a list of parameters')
        for parameter in params:
            name = names.get(id(parameter))
            if name is None:
                raise Fault(f"a group holds {kind(parameter)}, which is not a parameter of the model")
            if name in found:
                raise Fault(f"{name} is in the groups twice: put it in once")
            found[name] = as_number(group.get(key, missing))
    if lost := [name for name in names.values() if name not in found]:
        raise Fault(f"{lost[0]} is in no group, so it would never be trained ({len(lost)} such)")
    return {f"{key} of {name}": found[name] for name in names.values()}
