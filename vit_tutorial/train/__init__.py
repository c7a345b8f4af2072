"""Lesson 07: from data to a trained model, on a laptop or on many machines.

``loop`` has :func:`fit`; ``evaluation`` measures a model; ``runs`` makes a run repeatable; ``layers`` says which parts
of a trained model change; ``progress`` how far a run is, ``report`` what the model gets wrong; ``command`` is
``python -m vit_tutorial.train``.
"""

from vit_tutorial.data import Recipe, normalise
from vit_tutorial.data.extras import needed

with needed():
    from vit_tutorial.train.command import main, parser
    from vit_tutorial.train.evaluation import evaluate, predict
    from vit_tutorial.train.loop import check_finite, fit, parameter_groups, schedule, set_rate, train_epoch

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
