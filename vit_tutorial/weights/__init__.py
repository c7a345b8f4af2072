"""Lesson 09: from a published model to ours, proven equal, and back. :func:`load` goes the whole way.

Of a published model: ``download`` fetches its files, ``adapters`` reads the facts off the library's live model,
``convert`` makes ours by a table of ``tables``, ``proof`` compares the two, ``pixels`` the preprocessing.
``checkpoint`` is this package's own folder, ``files`` reads without running code, ``export`` is the way back, ``pairs``
has both towers of CLIP and SigLIP.
"""

from vit_tutorial.weights.checkpoint import Trained, check_savable, push_to_hub, save, shipped
from vit_tutorial.weights.export import (
    huggingface_model,
    timm_model,
    to_huggingface,
    to_timm,
    to_torchvision,
    torchvision_model,
)
from vit_tutorial.weights.files import read
from vit_tutorial.weights.loading import load
from vit_tutorial.weights.pairs import Pair, load_pair

__all__ = [
    "Pair",
    "Trained",
    "check_savable",
    "huggingface_model",
    "load",
    "load_pair",
    "push_to_hub",
    "read",
    "save",
    "shipped",
    "timm_model",
    "to_huggingface",
    "to_timm",
    "to_torchvision",
    "torchvision_model",
]
