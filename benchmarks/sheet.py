"""The CSV files of the benchmarks that go on where they were stopped, and intervals over their rows."""

from __future__ import annotations

import csv
import math
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

from scipy import stats


def read(path: Path, **wanted: object) -> list[dict[str, str]]:
    """The rows with these values, by the names in the first line; none if there is no file yet."""
    if not path.exists():
        return []
    values = {column: str(value) for column, value in wanted.items()}
    with path.open(encoding="utf-8", newline="") as file:
        return [row for row in csv.DictReader(file) if values.items() <= row.items()]


def add(path: Path, columns: Sequence[str], row: Sequence[object]) -> None:
    """Write a row as soon as its run is done, and the names first if the file is new; and show it."""
    new = not path.exists()
    with path.open("a", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if new:
            writer.writerow(columns)
        writer.writerow(row)
    print(*row, flush=True)


def search(values: Sequence[float], score: Callable[[float], float], beyond: Callable[[float, int], float]) -> float:
    """The value with the highest score; while that is at the grid's edge, ``beyond(best, side)`` is tried, too.

    ``side`` is -1 at the lower edge, 1 at the upper one.
    """
    scores = {value: score(value) for value in values}
    while (best := max(scores, key=lambda value: scores[value])) in (min(scores), max(scores)):
        further = beyond(best, -1 if best == min(scores) else 1)
        scores[further] = score(further)
    return best


def half(values: Sequence[float]) -> float:
    """Half of Student's 95 % interval of the mean; of paired differences, where these are the values."""
    if len(values) < 2:
        return math.inf
    return float(stats.t.ppf(0.975, len(values) - 1)) * statistics.stdev(values) / math.sqrt(len(values))


def interval(values: Sequence[float]) -> str:
    """The mean and, of several values, :func:`half`."""
    if len(values) < 2:
        return f"{statistics.mean(values):.1f}"
    return f"{statistics.mean(values):.1f} ± {half(values):.1f}"
