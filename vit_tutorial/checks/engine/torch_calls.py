"""What torch computes while a work runs."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from torch.overrides import TorchFunctionMode

from vit_tutorial.checks.engine.functions import tensors


class TorchCalls(TorchFunctionMode):
    """While it is open, note the shapes of the tensors that torch's functions return."""

    def __init__(self) -> None:
        super().__init__()
        self.shapes: list[tuple[int, ...]] = []

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        self.shapes += [tuple(x.shape) for x in tensors(result)]
        return result

    def shape_of(self, numbers: int) -> tuple[int, ...] | None:
        """The shape of the first tensor with at least so many numbers; None if there is none."""
        return next((shape for shape in self.shapes if math.prod(shape) >= numbers), None)
