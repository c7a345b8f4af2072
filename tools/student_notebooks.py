"""What was handed in: whose it is, which exercise, and the teacher's copy with the student's answers in it.

``submitted/`` may hold, mixed as you like,

* a folder for each student, with notebooks anywhere in it: ``submitted/ada/01_patches.ipynb``
* files as Canvas names them: ``lovelaceada_12345_67890_01_patches.ipynb``, with ``_LATE`` behind the name or not
* folders as Moodle names them: ``Ada Lovelace_12345_assignsubmission_file``

A student's id is the folder's name, or the platform's number. What lies in a student's folder is that student's,
whatever the files are called. An id that two people have is a problem of both. Links, pipes, devices
and archives are never opened. Of a notebook only the text of its cells is used: no metadata, no outputs, no
attachments. So points, checks and names of cells are always the teacher's.
"""

from __future__ import annotations

import json
import os
import re
import stat
import textwrap
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import nbformat
from nbformat import NotebookNode

CANVAS = re.compile(r"(?P<person>[^_]+)(_LATE)?_(?P<id>\d+)_\d+_(?P<rest>.+)", re.IGNORECASE)
# Greedy: a person's name may look like an id, and the platform's own id is the last one.
MOODLE = re.compile(r"(?P<person>.+)_(?P<id>\d+)_assignsubmission_(file|onlinetext)_?")
IGNORED = {".ipynb_checkpoints", "__MACOSX", ".DS_Store", "Thumbs.db", "desktop.ini", ".gitkeep", "timestamp.txt"}
MB = 1_000_000
MAX_FILE = 20 * MB
MAX_CELLS, MAX_SOURCE, MAX_SOURCES = 500, 20_000, 1_000_000  # cells, characters of one and of all
MAX_BLANK = 3  # blank lines in a run: feedback's highlighter needs minutes for thousands
DELETED = "# This cell was deleted."
# Terminal escapes, control characters, marks that turn a line's direction, halves of characters.
UNPRINTABLE = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)
BEGIN_HIDDEN, END_HIDDEN = "### BEGIN HIDDEN TESTS\n", "### END HIDDEN TESTS"

Cell = dict[str, Any]


@dataclass(frozen=True)
class HandedInFile:
    """One file that was handed in.

    Args:
        student: the id, which can be a folder's name.
        exercise: the stem of its notebook; "" for an unknown one.
        path: the file.
        name: the file's name as it was handed in.
        when: its date.
        notes: what the teacher should know.
        problem: why it can't be graded, "" if it can.
    """

    student: str
    exercise: str
    path: Path
    name: str
    when: datetime
    notes: tuple[str, ...] = ()
    problem: str = ""


class Owner(NamedTuple):
    """Whose a file is, by its path."""

    id: str
    person: str  # the name beside the platform's id
    file: str  # the file's own name
    notes: tuple[str, ...] = ()


def clean(text: object, limit: int = MB) -> str:
    """A student's text as something that every file, terminal and page can show."""
    return UNPRINTABLE.sub("\ufffd", str(text)[:limit].replace("\r\n", "\n").replace("\r", "\n"))


def one_line(text: object, limit: int = 200) -> str:
    """A student's text as a table can show it."""
    return " ".join(clean(text, limit).split())


def file_name(text: str) -> str:
    """A text as the name of a file: letters, digits, dots, dashes."""
    name = re.sub(r"[^\w.-]+", "_", unicodedata.normalize("NFC", clean(text, 100))).strip("._-")
    return name or "nameless"


# ---- Files -------------------------------------------------------------------------------------------------------


def collect(folder: Path, exercises: dict[str, set[str]]) -> list[HandedInFile]:
    """Everything that was handed in; of two files of one student for one exercise the newer.

    Args:
        folder: where submissions lie.
        exercises: for each exercise's stem the names of its graded cells, by which a renamed file is known.
    """
    newest: dict[tuple[str, str], HandedInFile] = {}
    others: dict[tuple[str, str], HandedInFile] = {}
    files = sorted(_files(folder), key=lambda file: (file[2], file[1]))
    people = _people(files)
    for path, parts, when in files:
        owner = _owner(parts)
        student, name = file_name(owner.id), one_line("/".join(parts))
        if len(same_id := people[student.casefold()]) > 1:
            problem = f"the same id for {' and '.join(map(one_line, sorted(same_id)))}: rename one of them"
            others[student, owner.person] = HandedInFile(student, "", path, name, when, owner.notes, problem)
            continue
        exercise, problem = _exercise(path, owner.file, exercises)
        renamed = () if owner.file.startswith(exercise) else (f"the file was called {one_line(owner.file)}",)
        submission = HandedInFile(student, exercise, path, name, when, owner.notes + renamed, problem)
        if older := newest.get((student, exercise)):
            note = f"an older file is left out: {older.name}"
            submission = replace(submission, notes=(*submission.notes, note))
        (newest if exercise else others)[student, exercise] = submission
    return [*(newest[key] for key in sorted(newest)), *others.values()]


def _people(files: list[tuple[Path, tuple[str, ...], datetime]]) -> dict[str, set[str]]:
    """For each id the people that it can stand for: with more than one, nobody knows whose a file is."""
    people: dict[str, set[str]] = {}
    for _, parts, _ in files:
        owner = _owner(parts)
        people.setdefault(file_name(owner.id).casefold(), set()).add(owner.person)
    return people


def _files(folder: Path) -> Iterator[tuple[Path, tuple[str, ...], datetime]]:
    """All files, with the folders that they lie in, and their dates."""
    for top, folders, names in os.walk(folder):
        links = [name for name in folders if (Path(top) / name).is_symlink()]
        folders[:] = [name for name in folders if name not in (*IGNORED, *links)]
        for path in [Path(top) / name for name in (*names, *links) if name not in IGNORED]:
            parts = tuple(os.fsencode(part).decode("utf-8", "replace") for part in path.relative_to(folder).parts)
            yield path, _without_class(parts), datetime.fromtimestamp(path.lstat().st_mtime, UTC)


def _without_class(parts: tuple[str, ...]) -> tuple[str, ...]:
    """A path without the folder ``submissions`` around a class. A student's folder may begin so: it stays."""
    return parts[1:] if len(parts) > 1 and parts[0] == "submissions" else parts


def _owner(parts: tuple[str, ...]) -> Owner:
    if platform := MOODLE.fullmatch(parts[0]) if len(parts) > 1 else CANVAS.fullmatch(parts[0]):
        return Owner(platform["id"], platform["person"], platform.groupdict().get("rest", parts[-1]))
    if len(parts) > 1:  # a file's name says nothing of its owner there: the student chose it
        return Owner(parts[0], parts[0], parts[-1])
    stem = Path(parts[0]).stem
    return Owner(stem, stem, parts[0], ("it lies in no student's folder",))


def _exercise(path: Path, name: str, exercises: dict[str, set[str]]) -> tuple[str, str]:
    """Which exercise a file is, by its name or by its cells; and why it can't be graded, "" if it can."""
    if not stat.S_ISREG(path.lstat().st_mode):  # reading a pipe never ends, and a link may lead to a neighbour's
        return "", "it is no file, but a link, a pipe or a device"
    by_name = next((stem for stem in exercises if name.startswith(stem)), "")
    if path.stat().st_size > MAX_FILE:
        return by_name, f"it has more than {MAX_FILE // MB} MB, the most that a file may have"
    try:
        data = path.read_bytes()
    except OSError as error:
        return by_name, f"it can't be read: {error.strerror}"
    if by_name and (name.lower().endswith(".ipynb") or b'"cells"' in data):  # some add .txt or .json to a notebook
        return by_name, ""
    ids = {word.decode() for word in re.findall(rb'"grade_id":\s*"([\w-]{1,80})"', data)}
    shares = {stem: len(ids & cells) / len(cells) for stem, cells in exercises.items()}
    best = max(shares, key=lambda stem: shares[stem])
    return (best, "") if shares[best] >= 0.5 else (by_name, "it is not a notebook of an exercise")


# ---- Cells -------------------------------------------------------------------------------------------------------


def read(path: Path) -> list[Cell]:
    """The cells of a submitted file: type, source, id, and nbgrader's name.

    Raises:
        ValueError: it is not a notebook, or too large to be one.
    """
    if path.stat().st_size > MAX_FILE:
        raise ValueError("the file is too large")
    if not path.stat().st_size:
        raise ValueError("the file is empty")
    try:
        cells = json.loads(path.read_text("utf-8-sig", errors="replace"))["cells"]
        number = len(cells)
        texts = [_text_of(cell) for cell in cells[:MAX_CELLS]]
    except (RecursionError, Exception) as error:  # whatever a broken file makes it stumble over
        raise ValueError(
            f"it is not a notebook ({type(error).__name__}): hand in a file that opens in Jupyter"
        ) from error
    if number > MAX_CELLS or sum(len(cell["source"]) for cell in texts) > MAX_SOURCES:
        raise ValueError(f"it has more than {MAX_CELLS} cells, or {MAX_SOURCES} characters")
    return texts


def _text_of(cell: Cell) -> Cell:
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
    """The release with the student's answers and own cells at their places; what a teacher should know of them."""
    shortened = [cell | {"source": _shortened(cell["source"])} for cell in submitted]
    answers, own_cells, notes = _match_cells(shortened, release)
    if shortened != submitted:
        notes.append(f"a cell was cut to {MAX_SOURCE} characters, or runs of blank lines to {MAX_BLANK}")
    cells = list(_new_cells(own_cells.get(-1, [])))
    for place, cell in enumerate(release.cells):
        answer = answers.get(place)
        notes += _changes(cell, answer) if submitted else []
        cells.append(_with_answer(cell, answer))
        cells += _new_cells(own_cells.get(place, []))
    for number, cell in enumerate(cells):
        cell.id = f"cell-{number}"
    return nbformat.v4.new_notebook(cells=cells, metadata=release.metadata), notes


def _shortened(source: str) -> str:
    """A cell's source of a length, and with runs of blank lines, that feedback's highlighter can digest."""
    lines, blank = [], 0
    for line in source.split("\n"):
        blank = 0 if line.strip() else blank + 1
        if blank <= MAX_BLANK:
            lines.append(line)
    return "\n".join(lines)[:MAX_SOURCE]


def _match_cells(
    submitted: list[Cell], release: NotebookNode
) -> tuple[dict[int, Cell], dict[int, list[Cell]], list[str]]:
    """The student's cells by their places in the release, those of their own by the place before them, and notes."""
    names = {name_of(cell): place for place, cell in enumerate(release.cells) if name_of(cell)}
    ids = {cell.id: place for place, cell in enumerate(release.cells)}
    sources = {cell.source.strip(): place for place, cell in enumerate(release.cells) if not is_answer(cell)}
    answers: dict[int, Cell] = {}
    own_cells: dict[int, list[Cell]] = {}
    notes, last = [], -1
    for cell in submitted:
        place = names.get(cell["name"], ids.get(cell["id"], sources.get(cell["source"].strip())))
        if place is None:
            own_cells.setdefault(last, []).append(cell)
        elif place not in answers:
            last, answers[place] = place, cell
        else:
            notes.append(f"{_title(release.cells[place])} is there twice")
            own_cells.setdefault(last, []).append(cell)
    return answers, own_cells, notes


def _changes(cell: NotebookNode, submitted: Cell | None) -> Iterator[str]:
    """What the student did to a cell of the release that isn't theirs to change."""
    if not name_of(cell):
        return
    if submitted is None:
        yield f"{_title(cell)} was deleted"
    elif submitted["cell_type"] != cell.cell_type:
        yield f"{_title(cell)} was turned into a {submitted['cell_type'].capitalize()} cell"
    elif not is_answer(cell) and without_hidden(submitted["source"])[0].strip() != cell.source.strip():
        yield f"{_title(cell)} was changed"


def _with_answer(cell: NotebookNode, submitted: Cell | None) -> NotebookNode:
    """A cell of the release; an answer's has the student's source."""
    copy = nbformat.from_dict(cell)
    if not is_answer(cell):
        return copy
    if copy.cell_type == "code":
        # Not the stub: the answer may stand in a cell of their own above, which the stub would replace.
        copy.source = submitted["source"] if submitted and submitted["cell_type"] == "code" else DELETED
    elif submitted and submitted["source"].strip() != cell.source.strip():
        copy.source = as_plain(submitted["source"])
    return copy


def _new_cells(cells: list[Cell]) -> Iterator[NotebookNode]:
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
