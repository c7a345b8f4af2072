"""The CSV file of a benchmark: a row for each run, written as soon as the run is done.

A script that was stopped asks for the rows that are there, and goes on with the runs that are missing.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path


class ResultTable:
    """The rows of a CSV file, whose first line names the columns.

    Args:
        path: the file, which :meth:`add` makes if there is none.
        columns: the names of its columns.
    """

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        self.path, self.columns = path, columns

    def rows(self, **wanted: object) -> list[dict[str, str]]:
        """The rows that have these values in these columns; all without ``wanted``."""
        if not self.path.exists():
            return []
        values = {column: str(value) for column, value in wanted.items()}
        with self.path.open(encoding="utf-8", newline="") as file:
            return [row for row in csv.DictReader(file) if values.items() <= row.items()]

    def add(self, row: Sequence[object]) -> None:
        """Append a row, a value for each column, and print it."""
        is_new = not self.path.exists()
        with self.path.open("a", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            if is_new:
                writer.writerow(self.columns)
            writer.writerow(row)
        print(*row, flush=True)
