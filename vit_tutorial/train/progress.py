"""Lesson 07: how far a run is."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tqdm import tqdm  # type: ignore[import-untyped]

from vit_tutorial.train.checkpoints import History
from vit_tutorial.train.evaluation import Totals


@contextmanager
def progress_bar(steps: int, done: int, visible: bool) -> Iterator[Callable[[History, Totals], None]]:
    """A bar on stderr with the loss, the accuracies and the time that is left.

    Args:
        steps: of the whole run.
        done: how many a run that is resumed has behind it.
        visible: False: nothing is printed.
    """
    # A log file gets a line every half minute, a terminal ten per second.
    interval = 0.1 if sys.stderr.isatty() else 30
    with tqdm(total=steps, initial=done, disable=not visible, unit=" steps", mininterval=interval) as bar:

        def show(history: History, totals: Totals) -> None:
            if bar.update():  # True when it was drawn: reading a loss off a GPU costs time
                loss, correct, count = totals.sums.tolist()
                values = {"loss": f"{loss / count:.3f}", "accuracy": f"{correct / count:.1%}"}
                if history:
                    values["test"] = f"{history[-1]['test_accuracy']:.1%}"
                bar.set_postfix(values, refresh=False)

        yield show
