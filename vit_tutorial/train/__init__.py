"""Lesson 07: from data to a trained model, on a laptop or on many machines.

``loop`` has :func:`fit`; ``batches`` and ``checkpoints`` make a run repeatable; ``evaluation`` measures a model;
``layers`` says which parts of a trained model change; ``progress`` how far a run is; ``results`` writes the model and
its history, ``report`` what the model gets wrong; ``command`` is ``vit-tutorial train``.
"""

from vit_tutorial.data import Recipe, normalise
from vit_tutorial.data.extras import install_hint

with install_hint():
    from vit_tutorial.train.evaluation import evaluate, predict
    from vit_tutorial.train.loop import check_finite, fit, parameter_groups, schedule, set_rate, train_epoch

__all__ = [
    "Recipe",
    "check_finite",
    "evaluate",
    "fit",
    "normalise",
    "parameter_groups",
    "predict",
    "schedule",
    "set_rate",
    "train_epoch",
]
