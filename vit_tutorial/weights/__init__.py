"""Lesson 09: from a file to a model, and back. :func:`load` goes the whole way.

``files`` reads and writes without running code, ``unwrap`` takes off what training put around the weights, ``names``
has what each library calls them, ``configs`` what its config.json says, and ``loading`` makes the model.
"""

from vit_tutorial.weights.files import Trained, read, save
from vit_tutorial.weights.loading import load, with_head, with_size
from vit_tutorial.weights.names import Converted, convert, to_huggingface, to_timm, to_torchvision

__all__ = [
    "Converted",
    "Trained",
    "convert",
    "load",
    "read",
    "save",
    "to_huggingface",
    "to_timm",
    "to_torchvision",
    "with_head",
    "with_size",
]
