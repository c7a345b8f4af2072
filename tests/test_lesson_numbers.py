"""What a lesson prints after "≈" differs between processors, so nbval skips it: here it must be near the committed one.

A break that trains a model in another way changes these numbers alone.
"""

import re
from pathlib import Path

import nbformat
import pytest
from lessons import NOTEBOOKS, execute, find

pytestmark = pytest.mark.slow
NUMBER = re.compile(r"≈[ \u00a0]*([-+−]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:[eE][-+]?\d+)?)[ \u00a0]*(\w+|[%×])?")
TIMES = {"s", "ms", "µs", "seconds", "minutes", "×"}  # what depends on the machine, and a ratio of it
POINTS = 12  # between two percentages
RATIO = 2  # between two other numbers


def approximate_numbers(notebook: nbformat.NotebookNode) -> list[tuple[int, float, str]]:
    """Each number after "≈" in what the cells print: the cell, the number, its unit."""
    found = []
    for index, cell in enumerate(notebook.cells):
        for output in cell.get("outputs", []):
            text = output.get("text", "") or output.get("data", {}).get("text/plain", "")
            for number, unit in NUMBER.findall(text):
                found.append((index, float(number.replace(",", "").replace("−", "-")), unit))
    return found


def near(new: float, committed: float, unit: str) -> bool:
    if unit == "%":
        return abs(new - committed) <= POINTS
    smaller, larger = sorted((abs(new), abs(committed)))
    return larger <= RATIO * smaller or larger < 1e-3  # rounding errors have no size of their own


@pytest.mark.parametrize("lesson", find([]), ids=lambda path: path.stem)
def test_the_numbers_are_near_those_that_are_committed(lesson: Path) -> None:
    committed = approximate_numbers(nbformat.read(lesson, as_version=4))
    notebook, error = execute(NOTEBOOKS / lesson.name)
    assert not error
    numbers = approximate_numbers(notebook)
    assert [(cell, unit) for cell, _, unit in numbers] == [(cell, unit) for cell, _, unit in committed]
    far = [
        f"cell {cell}: {new:g}{unit}, committed {old:g}{unit}"
        for (cell, new, unit), (_, old, _) in zip(numbers, committed, strict=True)
        if unit not in TIMES and not near(new, old, unit)
    ]
    assert far == []
