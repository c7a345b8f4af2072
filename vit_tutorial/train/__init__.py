"""Lesson 07: from data to a trained model, on a laptop or on many machines.

``loop`` has :func:`fit`; ``evaluation`` measures a model; ``runs`` makes a run repeatable; ``layers`` says which parts
of a trained model change; ``progress`` how far a run is, ``report`` what the model gets wrong; ``command`` is
``python -m vit_tutorial.train``.
"""

from typing import Any

from vit_tutorial.data import Recipe, normalise
from vit_tutorial.data.extras import needed

with needed():
    from vit_tutorial.train.evaluation import evaluate, predict
    from vit_tutorial.train.loop import check_finite, fit, parameter_groups, schedule, set_rate, train_epoch

__all__ = [
    "Recipe",
    "check_finite",
    "evaluate",
    "fit",
    "main",  # noqa: F822 (from __getattr__)
    "normalise",
    "parameter_groups",
    "parser",  # noqa: F822
    "predict",
    "schedule",
    "set_rate",
    "train_epoch",
]


def __getattr__(name: str) -> Any:
    # The command line is loaded when it is asked for: argparse and the modern models are not what fit needs.
    if name in ("main", "parser"):
        from vit_tutorial.train import command

        return getattr(command, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
