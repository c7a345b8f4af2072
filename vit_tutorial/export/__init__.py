"""Lesson 18: a trained model as a file for other runtimes: ONNX, with int8 weights or without, or torch.export's pt2.

``formats`` writes and runs such files; ``quantise`` rounds to few bits by hand; ``command`` is
``vit-tutorial export``, which compares a file with the model before it keeps it.
"""

from vit_tutorial.export.formats import onnx, pt2, run, saturating_weights

__all__ = ["onnx", "pt2", "run", "saturating_weights"]
