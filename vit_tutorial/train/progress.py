"""Lesson 07: how far a run is, and how long it will take."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tqdm import tqdm  # type: ignore[import-untyped]

from vit_tutorial.train.checkpoints import History
from vit_tutorial.train.evaluation import Totals

FIRST = 3  # steps before the estimate; the very first one allocates memory and compiles
LONG, HOURS = 120, 3600  # seconds: from where on an estimate is printed, and a way to take less


@contextmanager
def progress_bar(steps: int, done: int, shown: bool) -> Iterator[Callable[[History, Totals], None]]:
    """A bar on stderr, and after the first steps an estimate of the time, if it is minutes.

    Args:
        steps: of the whole run.
        done: how many a run that is resumed has behind it.
        shown: False: nothing is printed.
    """
    # A log file gets a line every half minute, a terminal ten per second.
    interval = 0.1 if sys.stderr.isatty() else 30
    starts: list[float] = []
    with tqdm(total=steps, initial=done, disable=not shown, unit=" steps", mininterval=interval) as bar:

        def show(history: History, totals: Totals) -> None:
            if shown and len(starts) <= FIRST:
                starts.append(time.perf_counter())
                if len(starts) == FIRST + 1 and (text := estimate((starts[-1] - starts[0]) / FIRST, steps - done)):
                    tqdm.write(text, file=sys.stderr)
            if bar.update():  # True when it was drawn: reading a loss off a GPU costs time
                loss, correct, count = totals.sums.tolist()
                values = {"loss": f"{loss / count:.3f}", "accuracy": f"{correct / count:.1%}"}
                if history:
                    values["test"] = f"{history[-1]['test_accuracy']:.1%}"
                bar.set_postfix(values, refresh=False)

        yield show


def estimate(seconds: float, steps: int) -> str:
    """How long so many steps of so many seconds take; "" for less than two minutes.

    >>> estimate(0.5, 1200)
    'about 10 minutes for 1,200 steps of 0.5 s'
    """
    total = seconds * steps
    if total < LONG:
        return ""
    if total < HOURS:
        return f"about {total / 60:.0f} minutes for {steps:,} steps of {seconds:.2g} s"
    return (
        f"about {total / HOURS:.1f} hours for {steps:,} steps of {seconds:.2g} s; faster: a GPU, a smaller "
        "--image-size, fewer --epochs or, with --weights, --freeze"
    )
