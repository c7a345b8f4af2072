"""The CSV files of the benchmarks that go on where they were stopped: a row a run, added as soon as it is done."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path


def read(path: Path) -> list[dict[str, str]]:
    """All rows, by the names in the first line; none if there is no file yet."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def add(path: Path, columns: Sequence[str], row: Sequence[object]) -> None:
    """Write a row, and the names first if the file is new; and show it."""
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if new:
            writer.writerow(columns)
        writer.writerow(row)
    print(*row, flush=True)
