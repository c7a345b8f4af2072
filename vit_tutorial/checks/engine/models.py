"""What a student's work does to a model that it is given, and what it says of the model's parameters."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from vit_tutorial.checks.engine.compare import as_number, describe
from vit_tutorial.checks.engine.exercise import Case, Fault, Observation, Value, Work
from vit_tutorial.checks.engine.functions import changed_argument, copy_arguments

AS_IT_WAS = "as it was"


class ModelSnapshot:
    """A model as it is now, its numbers, parts, hooks and what is frozen, to be compared afterwards.

    Args:
        model: what a work is about to get.
        trained: whether the work is to train it; then its numbers, and what of it is frozen, are not looked at.
    """

    def __init__(self, model: nn.Module, trained: bool = False) -> None:
        self.model = model
        self.numbers = {} if trained else {name: value.clone() for name, value in model.state_dict().items()}
        self.trainable = {} if trained else {name: p.requires_grad for name, p in model.named_parameters()}
        self.parts = dict(model.named_modules())
        self.hooks = {name: _count_hooks(part) for name, part in self.parts.items()}
        self.rates = {name: part.p for name, part in self.parts.items() if isinstance(part, nn.Dropout)}

    def afterwards(self) -> str:
        """What has changed, or :data:`AS_IT_WAS`. Modes and gradients are not looked at."""
        parts = dict(self.model.named_modules())
        for name in {**self.parts, **parts}:
            if parts.get(name) is not self.parts.get(name):
                return f"another one: its part {name} is not the one that it had"
        for name, part in parts.items():
            if _count_hooks(part) > self.hooks[name]:
                return f"not as it was: a hook is left on {name or 'it'} (take it off: handle.remove())"
        for name, rate in self.rates.items():
            if (now := parts[name].p) != rate:
                return f"not as it was: the rate of {name} is {now}"
        state = self.model.state_dict()
        for name, numbers in self.numbers.items():
            if not torch.equal(state[name], numbers):
                return f"not as it was: {name} has other numbers"
        parameters = dict(self.model.named_parameters())
        for name, trainable in self.trainable.items():
            if parameters[name].requires_grad != trainable:
                return f"not as it was: requires_grad of {name} is {not trainable}"
        return AS_IT_WAS


def _count_hooks(part: nn.Module) -> int:
    return sum(len(value) for name, value in vars(part).items() if name.endswith("_hooks"))


def call_with_model(work: Work, case: Case, trained: bool = False) -> Observation:
    """Call ``work(model, *others)``: its result, and what it does to the model and to the other arguments."""
    model, *others = case.args
    snapshot, given = ModelSnapshot(model, trained), copy_arguments(others)
    result = work(model, *given)
    values = {"result": result, "the model afterwards": snapshot.afterwards()}
    return Observation(values, changed_argument=changed_argument(others, given, first=2))


def by_parameter(groups: Value, model: nn.Module, key: str, default: float | None) -> dict[str, Value]:
    """What an optimiser's groups say of each parameter of a model, by its name; ``default`` where they say nothing.

    Raises:
        Fault: the groups are no list of dictionaries with parameters of the model, each of them once.
    """
    if not isinstance(groups, (list, tuple)) or not all(isinstance(one, dict) and "params" in one for one in groups):
        raise Fault(f'expected a list of dictionaries, each with "params" and "{key}", as an optimiser takes them')
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    settings: dict[str, Value] = {}
    for group in groups:
        params = [group["params"]] if isinstance(group["params"], Tensor) else group["params"]
        if isinstance(params, (set, frozenset, str)):
            raise Fault(f'"params" is {describe(params)}: make a list of parameters')
        for parameter in params:
            name = names.get(id(parameter))
            if name is None:
                raise Fault(f"a group holds {describe(parameter)}, which is not a parameter of the model")
            if name in settings:
                raise Fault(f"{name} is in the groups twice: put it in once")
            settings[name] = as_number(group.get(key, default))
    if absent := [name for name in names.values() if name not in settings]:
        raise Fault(f"{absent[0]} is in no group ({len(absent)} parameters are in none)")
    return {f"{key} of {name}": settings[name] for name in names.values()}
