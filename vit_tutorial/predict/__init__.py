"""Lesson 09: what photographs show, as a table, and as a picture of where the model looked."""

from vit_tutorial.predict.command import best_device, find, main, open_photo, parser, rank

__all__ = ["best_device", "find", "main", "open_photo", "parser", "rank"]
