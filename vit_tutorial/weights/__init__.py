"""Lesson 09: from a published model to ours, proven equal, and back. :func:`load` goes the whole way.

To follow ``load("timm/…")``, read in the order of the calls:

1. ``loading``: the name says who published the model; from here each step below is called.
2. ``files``: downloads its repository, and reads files without running code.
3. ``timm_models``, or ``torchvision_models``, ``transformers_models``: the library builds the model; what it calls its
   tensors, and the facts that no tensor shows. A family of models is added here.
4. ``convert``: our config, and our tensors by the library's table of names.
5. ``tables``: how such a table is read, in both directions.
6. ``our_models``: a config and tensors become our model (of ``variants.modern``, or a plain ``ViT``).
7. ``proof``: both models compute the same, or ours is refused.

Apart from this way: ``checkpoint`` is this package's own folder, ``export`` goes back to the libraries, and ``pairs``
has both towers of CLIP and SigLIP. Everywhere, ``original`` is the library's own module, and ``published`` what is
known of it.
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
