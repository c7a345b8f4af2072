"""Lesson 09: what photographs show, as a table, and as a figure of where the model looked.

``photos`` finds and reads the files, ``ranking`` ranks the classes, ``output`` prints, writes and draws, and
``command`` is ``python -m vit_tutorial.predict``; ``sharing`` lets several processes write one table.
"""

from vit_tutorial.data import open_photo
from vit_tutorial.predict.command import main, parser
from vit_tutorial.predict.photos import find, opened, read
from vit_tutorial.predict.ranking import best_device, predictions, rank

__all__ = ["best_device", "find", "main", "open_photo", "opened", "parser", "predictions", "rank", "read"]
