"""What a submission does to a model, and what it says of the model's parameters."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from vit_tutorial.checks.engine.compare import as_number, describe
from vit_tutorial.checks.engine.exercise import Case, Fault, Observation, Submission, Value
from vit_tutorial.checks.engine.functions import changed_argument, copy_arguments, is_unchanged


class ModelSnapshot:
    """A model as it is now, to be compared afterwards: its parts, hooks and dropout rates.

    Unless the model is to be ``trained``, also its numbers and what of it is frozen. Modes and gradients are not looked
    at.
    """

    def __init__(self, model: nn.Module, trained: bool = False) -> None:
        self.model, self.trained = model, trained
        self.parts = list(model.modules())  # kept alive: a new part must not get an old one's id
        self.before = self._facts()

    def afterwards(self) -> str:
        """Whether the model is as it was, or the first change in it."""
        after = self._facts()
        for name in {**self.before, **after}:
            if name not in after or name not in self.before or not is_unchanged(after[name], self.before[name]):
                return f"not as it was: there is a change in {name}"
        return "as it was"

    def _facts(self) -> dict[str, Any]:
        facts: dict[str, Any] = {}
        for name, part in self.model.named_modules():
            facts[f"the part {name}"] = id(part)
            facts[f"the hooks on {name} (handle.remove() takes one off)"] = _count_hooks(part)
            if isinstance(part, nn.Dropout):
                facts[f"the rate of {name}"] = part.p
        if not self.trained:
            facts |= {f"the numbers of {name}": value.clone() for name, value in self.model.state_dict().items()}
            facts |= {f"requires_grad of {name}": p.requires_grad for name, p in self.model.named_parameters()}
        return facts


def _count_hooks(part: nn.Module) -> int:
    return sum(len(value) for name, value in vars(part).items() if name.endswith("_hooks"))


def call_with_model(submission: Submission, case: Case, trained: bool = False) -> Observation:
    """Call ``submission(model, *others)``: its result, and what it does to the model and to the other arguments."""
    model, *others = case.args
    snapshot, copies = ModelSnapshot(model, trained), copy_arguments(others)
    result = submission(model, *copies)
    values = {"result": result, "the model afterwards": snapshot.afterwards()}
    return Observation(values, changed_argument=changed_argument(others, copies, first=2))


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
