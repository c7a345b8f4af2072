"""Lesson 10's command line: how good a trained model is on somebody's own images.

``vit-tutorial evaluate pets/test --weights runs/pets``
"""

from __future__ import annotations

import sys
import warnings

from vit_tutorial.data import labelled_images
from vit_tutorial.data.files import check_writable
from vit_tutorial.options.evaluate import EvaluateOptions
from vit_tutorial.predict.probabilities import best_device
from vit_tutorial.train import report
from vit_tutorial.weights import load


def run(options: EvaluateOptions) -> None:
    """Print the accuracy with its interval and that of each class; write what the model confuses, if asked to.

    Raises:
        ValueError: weights or images that can't be used, or results among the images.
        OSError: weights that can't be fetched, a folder that can't be written.
    """
    if options.out:
        if options.folder.resolve() in (options.out.resolve(), *options.out.resolve().parents):
            raise ValueError(f"--out {options.out} is in the folder of the images: name one outside it")
        check_writable(options.out / "confusion.csv")
    model, classes, preprocess = load(options.weights)
    if not classes:
        raise ValueError(f"{options.weights} has no head with named classes: use weights that were fine-tuned")
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_, **__: print(f"note: {message}", file=sys.stderr)
        data = labelled_images(options.folder, classes, preprocess)
    measured = report.measure(model.to(best_device()), data, options.batch_size)
    print(report.lines(measured, classes))
    if options.out:
        print(f"mistakes: {', '.join(report.save(options.out, measured, data))} in {options.out}")
    print(f"accuracy {report.accuracy(measured)}")
