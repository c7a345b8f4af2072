"""Lesson 09: from a published model to ours, proven equal, and back. :func:`load` goes the whole way.

In this order: ``loading``, the name; ``timm_models``, ``torchvision_models`` or ``transformers_models``, what the
library builds, and the facts that no tensor shows; ``tables``, the names of its tensors; ``convert``, our model of it;
``proof``, that both are equal.

Supporting modules: ``assembly`` puts tensors into our models, ``files`` downloads and reads without running code,
``checkpoint`` is this package's own folder, ``export`` goes back to the libraries, and ``pairs`` has both towers of
CLIP and SigLIP.
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
