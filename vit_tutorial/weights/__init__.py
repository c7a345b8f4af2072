"""Lesson 09: from a published model to ours, proven equal, and back. :func:`load` goes the whole way.

Read four files, in this order, to follow ``load("timm/…")``:

1. ``loading``: the name says who published the model.
2. ``timm_models``, or ``torchvision_models``, ``transformers_models``: the library builds the model; what it calls its
   tensors, and the facts that no tensor shows. A family of models is added here.
3. ``convert``: our model of it.
4. ``proof``: both compute the same, or the model is refused.

They call ``files``, which downloads and reads without running code; ``tables``, which reads the tables of names in both
directions; and ``our_models``, which puts tensors into our models. ``checkpoint`` is this package's own folder,
``export`` goes back to the libraries, and ``pairs`` has both towers of CLIP and SigLIP.
"""

from vit_tutorial.weights.checkpoint import bundled_models, check_savable, save
from vit_tutorial.weights.export import (
    copy_into,
    huggingface_model,
    timm_model,
    to_huggingface,
    to_timm,
    to_torchvision,
    torchvision_model,
)
from vit_tutorial.weights.files import read
from vit_tutorial.weights.loading import load
from vit_tutorial.weights.our_models import KnowsPreprocessing, LoadedModel
from vit_tutorial.weights.pairs import Pair, load_pair

__all__ = [
    "KnowsPreprocessing",
    "LoadedModel",
    "Pair",
    "bundled_models",
    "check_savable",
    "copy_into",
    "huggingface_model",
    "load",
    "load_pair",
    "read",
    "save",
    "timm_model",
    "to_huggingface",
    "to_timm",
    "to_torchvision",
    "torchvision_model",
]
