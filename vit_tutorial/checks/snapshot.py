"""What becomes of a model that a student's work is given: others go on using it."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from vit_tutorial.checks.declare import Words

AS_IT_WAS = Words("as it was")
MODE = "training"  # the exercises say themselves which mode a model must be in afterwards


class ModelSnapshot:
    """A model as it is now, its numbers, parts, hooks and settings, to be compared afterwards.

    Args:
        model: what a work is about to get.
        trained: whether the work is to train it; then its numbers, and what of it is frozen, are not looked at.
    """

    def __init__(self, model: nn.Module, trained: bool = False) -> None:
        self.model = model
        self.numbers = {} if trained else {name: value.clone() for name, value in model.state_dict().items()}
        self.frozen = {} if trained else {name: not p.requires_grad for name, p in model.named_parameters()}
        self.parts = dict(model.named_modules())
        self.parameters = dict(model.named_parameters())
        self.hooks = {name: _hooks(part) for name, part in self.parts.items()}
        self.settings = {name: _settings(part) for name, part in self.parts.items()}

    def afterwards(self) -> Words:
        """What has changed, or :data:`AS_IT_WAS`. Modes and gradients are not looked at."""
        parts, parameters = dict(self.model.named_modules()), dict(self.model.named_parameters())
        for words, before, now in (("part", self.parts, parts), ("parameter", self.parameters, parameters)):
            for name in {**before, **now}:
                if now.get(name) is not before.get(name):
                    return Words(f"another one: its {words} {name} is not the one that it had")
        for name, part in parts.items():
            if (many := _hooks(part)) != self.hooks[name]:
                end = "is left on {} (take it off: handle.remove())" if many > self.hooks[name] else "of {} is gone"
                return Words(f"not as it was: a hook {end.format(name or 'it')}")
            settings = _settings(part)
            for key in {**self.settings[name], **settings}:
                if settings.get(key) != self.settings[name].get(key):
                    return Words(f"not as it was: {f'{name}.{key}'.lstrip('.')} is new, gone or another one")
        now = self.model.state_dict()
        if others := [name for name, value in self.numbers.items() if not _equal(now.get(name), value)]:
            return Words(f"not as it was: {others[0]} has other numbers, or another dtype")
        if others := [name for name, frozen in self.frozen.items() if parameters[name].requires_grad is frozen]:
            return Words(f"not as it was: requires_grad of {others[0]} is {parameters[others[0]].requires_grad}")
        return AS_IT_WAS


def _equal(now: torch.Tensor | None, before: torch.Tensor) -> bool:
    return now is not None and now.dtype == before.dtype and torch.equal(now, before)


def _settings(part: nn.Module) -> dict[str, Any]:
    """A part's own plain values, and what else it holds by itself, such as a forward that replaces its class's."""
    own = {name: value for name, value in vars(part).items() if name != MODE and name[0] != "_"}
    return {name: value if isinstance(value, (int, float, str, tuple)) else id(value) for name, value in own.items()}


def _hooks(part: nn.Module) -> int:
    return sum(len(value) for name, value in vars(part).items() if name.endswith("_hooks"))
