"""Call a work that must not make large tensors."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from torch.overrides import TorchFunctionMode

from vit_tutorial.checks.engine.exercise import Case, Fault, Observation, Work
from vit_tutorial.checks.engine.functions import call, tensors


def call_with_small_tensors(work: Work, case: Case, too_many: int, why: str) -> Observation:
    """As :func:`call`; a Fault where a function of torch gives a tensor of ``too_many`` numbers, or more.

    ``why`` goes on after "there is a tensor of shape …,".
    """
    with _SizeLimit(too_many, why):
        return call(work, case)


class _SizeLimit(TorchFunctionMode):
    def __init__(self, too_many: int, why: str) -> None:
        super().__init__()
        self.too_many, self.why = too_many, why

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in tensors(result):
            if math.prod(tensor.shape) >= self.too_many:
                raise Fault(f"there is a tensor of shape {tuple(tensor.shape)}, {self.why}")
        return result
