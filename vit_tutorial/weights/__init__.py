"""Lesson 09: from a file to a model, and back. :func:`load` goes the whole way.

The steps are the modules, and each imports only those before it: ``messages``, ``reading`` (a file, without running
code), ``keeping`` (this package's own), ``names`` (what each library calls its tensors), ``unwrap`` (what training put
around them), ``sources`` (what a library's files don't say), ``fields`` (how a config is read), ``hf_configs`` and
``configs`` (what a config.json says), ``model`` (names, shapes and configs become a model), ``export`` (the way out),
``hub`` (published names, downloads), ``loading``;
``pairs`` (both towers of CLIP and SigLIP); ``publishing`` writes a model for others.
"""

from vit_tutorial.weights.export import to_huggingface, to_timm, to_torchvision
from vit_tutorial.weights.loading import load
from vit_tutorial.weights.model import Converted, Trained, assemble, convert, with_head, with_size
from vit_tutorial.weights.pairs import Pair, load_pair
from vit_tutorial.weights.publishing import push_to_hub
from vit_tutorial.weights.reading import read

__all__ = [
    "Converted",
    "Pair",
    "Trained",
    "assemble",
    "convert",
    "load",
    "load_pair",
    "push_to_hub",
    "read",
    "to_huggingface",
    "to_timm",
    "to_torchvision",
    "with_head",
    "with_size",
]
