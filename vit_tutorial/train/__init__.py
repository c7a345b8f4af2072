"""Lesson 07: from data to a trained model, on a laptop or on many machines.

:func:`fit` is the loop (``loop``); ``runs`` makes a run repeatable, ``precision`` chooses between bf16 and fp32, and
``command`` is ``python -m vit_tutorial.train``.
"""

from typing import Any

from vit_tutorial.data import Recipe, normalise
from vit_tutorial.train.loop import (
    check_finite,
    evaluate,
    fit,
    parameter_groups,
    predict,
    schedule,
    set_rate,
    train_epoch,
)

__all__ = [
    "Recipe",
    "check_finite",
    "evaluate",
    "fit",
    "main",
    "normalise",
    "parameter_groups",
    "parser",
    "predict",
    "schedule",
    "set_rate",
    "train_epoch",
]


def __getattr__(name: str) -> Any:
    # Only who asks for the command line loads it.
    if name in ("main", "parser"):
        from vit_tutorial.train import command

        return getattr(command, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
