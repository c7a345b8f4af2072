"""Lesson 09: what photographs show, as a table, and as a figure of where the model looked.

``photos`` finds and reads the files, ``probabilities`` ranks the classes, ``output`` prints, writes and draws, and
``command`` is ``vit-tutorial predict``. ``features`` writes what the head reads; ``evaluate`` is ``vit-tutorial
evaluate``.
"""

from vit_tutorial.data import open_photo
from vit_tutorial.predict.photos import find, open_all, read
from vit_tutorial.predict.probabilities import best_device, predictions, rank

__all__ = ["best_device", "find", "open_all", "open_photo", "predictions", "rank", "read"]
