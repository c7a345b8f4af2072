"""What torch computes while a work runs."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from torch.overrides import TorchFunctionMode

from vit_tutorial.checks.engine.functions import tensors


class TorchCalls(TorchFunctionMode):
    """While it is open, note the functions of torch that are called, with the shapes of what they return, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, tuple[int, ...]]] = []

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        self.seen += [(getattr(func, "__name__", ""), tuple(x.shape)) for x in tensors(result)]
        return result

    def shape_of(self, numbers: int) -> tuple[int, ...] | None:
        """The shape of the first tensor with at least so many numbers; None if there is none."""
        return next((shape for _, shape in self.seen if math.prod(shape) >= numbers), None)
