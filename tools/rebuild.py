"""The teacher's copy of an exercise with a student's answers in it, and what was touched besides.

Only the text of cells is taken from what was handed in: no metadata, no outputs, no attachments. So points, checks and
names of cells are always the teacher's.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
from collect import MOST_FILE, clean
from nbformat import NotebookNode

MOST_CELLS, MOST_SOURCE, MOST_SOURCES = 500, 20_000, 1_000_000  # cells, characters of one and of all
MOST_BLANK = 3  # blank lines in a run: feedback's highlighter takes minutes for thousands
DELETED = "# This cell was deleted."
BEGIN_HIDDEN, END_HIDDEN = "### BEGIN HIDDEN TESTS\n", "### END HIDDEN TESTS"

Cell = dict[str, Any]


def read(path: Path) -> list[Cell]:
    """The cells of a submitted file: type, source, id, and nbgrader's name.

    Raises:
        ValueError: it is not a notebook, or too large to be one.
    """
    if path.stat().st_size > MOST_FILE:
        raise ValueError("the file is too large")
    if not path.stat().st_size:
        raise ValueError("the file is empty")
    try:
        cells = json.loads(path.read_text("utf-8-sig", errors="replace"))["cells"]
        many = len(cells)
        found = [_cell(cell) for cell in cells[:MOST_CELLS]]
    except (RecursionError, Exception) as error:  # whatever a broken file makes it stumble over
        raise ValueError(
            f"it is not a notebook ({type(error).__name__}): hand in a file that opens in Jupyter"
        ) from error
    if many > MOST_CELLS or sum(len(cell["source"]) for cell in found) > MOST_SOURCES:
        raise ValueError(f"it has more than {MOST_CELLS} cells, or {MOST_SOURCES} characters")
    return found


def _cell(cell: Cell) -> Cell:
    source = cell.get("source", "")
    metadata = cell.get("metadata")
    nbgrader = metadata.get("nbgrader") if isinstance(metadata, dict) else None
    return {
        "cell_type": "code" if cell.get("cell_type") == "code" else "markdown",
        "source": clean("".join(map(str, source)) if isinstance(source, list) else source),
        "id": clean(cell.get("id", ""), 100),
        "name": clean(nbgrader.get("grade_id", ""), 100) if isinstance(nbgrader, dict) else "",
    }


def rebuild(submitted: list[Cell], release: NotebookNode) -> tuple[NotebookNode, list[str]]:
    """The release with the student's answers, and cells of their own where they had them; what was noticed."""
    shortened = [cell | {"source": _shortened(cell["source"])} for cell in submitted]
    answers, extra, notes = _placed(shortened, release)
    if shortened != submitted:
        notes.append(f"a cell was cut to {MOST_SOURCE} characters, or runs of blank lines to {MOST_BLANK}")
    cells = list(_new(extra.get(-1, [])))
    for place, ours in enumerate(release.cells):
        theirs = answers.get(place)
        notes += _touched(ours, theirs) if submitted else []
        cells.append(_filled(ours, theirs))
        cells += _new(extra.get(place, []))
    for number, cell in enumerate(cells):
        cell.id = f"cell-{number}"
    return nbformat.v4.new_notebook(cells=cells, metadata=release.metadata), notes


def _shortened(source: str) -> str:
    """A cell's source of a length, and with runs of blank lines, that feedback's highlighter can take."""
    lines, blank = [], 0
    for line in source.split("\n"):
        blank = 0 if line.strip() else blank + 1
        if blank <= MOST_BLANK:
            lines.append(line)
    return "\n".join(lines)[:MOST_SOURCE]


def _placed(submitted: list[Cell], release: NotebookNode) -> tuple[dict[int, Cell], dict[int, list[Cell]], list[str]]:
    """The student's cells by their places in the release, those of their own by the place before them, and notes."""
    names = {name_of(cell): place for place, cell in enumerate(release.cells) if name_of(cell)}
    ids = {cell.id: place for place, cell in enumerate(release.cells)}
    sources = {cell.source.strip(): place for place, cell in enumerate(release.cells) if not is_answer(cell)}
    answers: dict[int, Cell] = {}
    extra: dict[int, list[Cell]] = {}
    notes, here = [], -1
    for cell in submitted:
        place = names.get(cell["name"], ids.get(cell["id"], sources.get(cell["source"].strip())))
        if place is None:
            extra.setdefault(here, []).append(cell)
        elif place not in answers:
            here, answers[place] = place, cell
        else:
            notes.append(f"{_title(release.cells[place])} is there twice")
            extra.setdefault(here, []).append(cell)
    return answers, extra, notes


def _touched(ours: NotebookNode, theirs: Cell | None) -> Iterator[str]:
    """What a teacher should know of one cell."""
    if not name_of(ours):
        return
    if theirs is None:
        yield f"{_title(ours)} was deleted"
    elif theirs["cell_type"] != ours.cell_type:
        yield f"{_title(ours)} was turned into a {theirs['cell_type'].capitalize()} cell"
    elif not is_answer(ours) and without_hidden(theirs["source"])[0].strip() != ours.source.strip():
        yield f"{_title(ours)} was changed"


def _filled(ours: NotebookNode, theirs: Cell | None) -> NotebookNode:
    """A cell of the release, with the student's source where it is theirs to write."""
    cell = nbformat.from_dict(ours)
    if not is_answer(ours):
        return cell
    if cell.cell_type == "code":
        # Not the stub: the answer may stand in a cell of their own above, and would be replaced by it.
        cell.source = theirs["source"] if theirs and theirs["cell_type"] == "code" else DELETED
    elif theirs and theirs["source"].strip() != ours.source.strip():
        cell.source = as_plain(theirs["source"])
    return cell


def _new(cells: list[Cell]) -> Iterator[NotebookNode]:
    for cell in cells:
        if cell["cell_type"] == "code":
            yield nbformat.v4.new_code_cell(cell["source"])
        else:
            yield nbformat.v4.new_markdown_cell(as_plain(cell["source"]))


def as_plain(text: str) -> str:
    """A student's text as Markdown that shows it letter by letter: no link, image, HTML or formula."""
    lines = [part for line in text.splitlines() for part in (textwrap.wrap(line, 100) or [""])]
    return "\n".join(f"    {line}" for line in lines)


# ---- Kinds of cells ----------------------------------------------------------------------------------------------


def name_of(cell: NotebookNode) -> str:
    """Nbgrader's name of a cell of the release, "" for one that has none."""
    return str(cell.metadata.get("nbgrader", {}).get("grade_id", ""))


def without_hidden(source: str) -> tuple[str, str]:
    """A check's source without its hidden tests, and these."""
    before, _, after = source.partition(BEGIN_HIDDEN)
    hidden, _, rest = after.partition(END_HIDDEN)
    return before + rest.removeprefix("\n"), hidden


def is_answer(cell: NotebookNode) -> bool:
    """Whether a cell is the student's to fill."""
    return bool(cell.metadata.get("nbgrader", {}).get("solution"))


def is_check(cell: NotebookNode) -> bool:
    """Whether a cell is one of the teacher's checks."""
    return bool(cell.metadata.get("nbgrader", {}).get("grade")) and not is_answer(cell)


def _title(cell: NotebookNode) -> str:
    return name_of(cell) or "a cell"
