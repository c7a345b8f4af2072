"""What was handed in: whose it is, which exercise, and when.

``submitted/`` may hold, mixed as you like,

* a folder for each student, with notebooks anywhere in it: ``submitted/ada/01_patches.ipynb``
* files as Canvas names them: ``lovelaceada_12345_67890_01_patches.ipynb``, with ``_LATE`` behind the name or not
* folders as Moodle names them: ``Ada Lovelace_12345_assignsubmission_file``

A student's id is the folder's name, or the platform's number. What lies in a student's folder is that student's,
whatever the files are called. An id that two people have is a problem of both. Links, pipes, devices
and archives are never opened.
"""

from __future__ import annotations

import dataclasses
import os
import re
import stat
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

CANVAS = re.compile(r"(?P<person>[^_]+)(_LATE)?_(?P<id>\d+)_\d+_(?P<rest>.+)", re.IGNORECASE)
# Greedy: a person's name may look like an id, and the platform's own id is the last one.
MOODLE = re.compile(r"(?P<person>.+)_(?P<id>\d+)_assignsubmission_(file|onlinetext)_?")
IGNORED = {".ipynb_checkpoints", "__MACOSX", ".DS_Store", "Thumbs.db", "desktop.ini", ".gitkeep", "timestamp.txt"}
MB = 1_000_000
MOST_FILE = 20 * MB
# Terminal escapes, control characters, marks that turn a line's direction, halves of characters.
UNSEEN = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)


@dataclass(frozen=True)
class Submission:
    """One file that was handed in.

    Args:
        student: the id, which can be a folder's name.
        exercise: the stem of its notebook; "" where nothing tells.
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


def clean(text: object, most: int = MB) -> str:
    """A student's text as something that every file, terminal and page can show."""
    return UNSEEN.sub("\ufffd", str(text)[:most].replace("\r\n", "\n").replace("\r", "\n"))


def one_line(text: object, most: int = 200) -> str:
    """A student's text as a table can show it."""
    return " ".join(clean(text, most).split())


def safe(name: str) -> str:
    """A name that can be a file's: letters, digits, dots, dashes."""
    made = re.sub(r"[^\w.-]+", "_", unicodedata.normalize("NFC", clean(name, 100))).strip("._-")
    return made or "nameless"


def collect(folder: Path, exercises: dict[str, set[str]]) -> list[Submission]:
    """Everything that was handed in; of two files of one student for one exercise the newer.

    Args:
        folder: where submissions lie.
        exercises: for each exercise's stem the names of its graded cells: so a renamed file is known.
    """
    newest: dict[tuple[str, str], Submission] = {}
    others: dict[tuple[str, str], Submission] = {}
    files = sorted(_files(folder), key=lambda file: (file[2], file[1]))
    people = _people(files)
    for path, parts, when in files:
        owner, person, name, notes = _owner(parts)
        student = safe(owner)
        if len(same := people[student.casefold()]) > 1:
            problem = f"the same id for {' and '.join(map(one_line, sorted(same)))}: rename one of them"
            others[student, person] = Submission(student, "", path, one_line("/".join(parts)), when, notes, problem)
            continue
        exercise, problem = _exercise(path, name, exercises)
        notes += () if name.startswith(exercise) else (f"the file was called {one_line(name)}",)
        one = Submission(student, exercise, path, one_line("/".join(parts)), when, notes, problem)
        if older := newest.get((student, exercise)):
            one = dataclasses.replace(one, notes=(*notes, f"an older file is left out: {older.name}"))
        (newest if exercise else others)[student, exercise] = one
    return [*(newest[key] for key in sorted(newest)), *others.values()]


def _people(files: list[tuple[Path, tuple[str, ...], datetime]]) -> dict[str, set[str]]:
    """For each id the people that it can stand for: more than one, and nobody knows whose a file is."""
    people: dict[str, set[str]] = {}
    for _, parts, _ in files:
        owner, person, _, _ = _owner(parts)
        people.setdefault(safe(owner).casefold(), set()).add(person)
    return people


def _files(folder: Path) -> Iterator[tuple[Path, tuple[str, ...], datetime]]:
    """All files, with the folders that they lie in, and their dates."""
    for top, folders, names in os.walk(folder):
        links = [name for name in folders if (Path(top) / name).is_symlink()]
        folders[:] = [name for name in folders if name not in (*IGNORED, *links)]
        for path in [Path(top) / name for name in (*names, *links) if name not in IGNORED]:
            parts = tuple(os.fsencode(part).decode("utf-8", "replace") for part in path.relative_to(folder).parts)
            yield path, _of_class(parts), datetime.fromtimestamp(path.lstat().st_mtime, UTC)


def _of_class(parts: tuple[str, ...]) -> tuple[str, ...]:
    """A path without the folder ``submissions`` around a class. A student's folder may begin so: it stays."""
    return parts[1:] if len(parts) > 1 and parts[0] == "submissions" else parts


def _owner(parts: tuple[str, ...]) -> tuple[str, str, str, tuple[str, ...]]:
    """A file's owner by id, and by the name before it; the file's own name; what a teacher should know of that."""
    if platform := MOODLE.fullmatch(parts[0]) if len(parts) > 1 else CANVAS.fullmatch(parts[0]):
        return platform["id"], platform["person"], platform.groupdict().get("rest", parts[-1]), ()
    if len(parts) > 1:  # a file's name says nothing of its owner there: the student chose it
        return parts[0], parts[0], parts[-1], ()
    stem = Path(parts[0]).stem
    return stem, stem, parts[0], ("it lies in no student's folder",)


def _exercise(path: Path, name: str, exercises: dict[str, set[str]]) -> tuple[str, str]:
    """Which exercise a file is, by its name or by its cells; and why it can't be graded, "" if it can."""
    if not stat.S_ISREG(path.lstat().st_mode):  # a pipe would be waited for, and a link may lead to a neighbour's
        return "", "it is no file, but a link, a pipe or a device"
    named = next((stem for stem in exercises if name.startswith(stem)), "")
    if path.stat().st_size > MOST_FILE:
        return named, f"it has more than {MOST_FILE // MB} MB, the most that a file may have"
    try:
        data = path.read_bytes()
    except OSError as error:
        return named, f"it can't be read: {error.strerror}"
    if named and (name.lower().endswith(".ipynb") or b'"cells"' in data):  # some add .txt or .json to a notebook
        return named, ""
    ids = {word.decode() for word in re.findall(rb'"grade_id":\s*"([\w-]{1,80})"', data)}
    shared = {stem: len(ids & own) / len(own) for stem, own in exercises.items()}
    best = max(shared, key=lambda stem: shared[stem])
    return (best, "") if shared[best] >= 0.5 else (named, "it is not a notebook of an exercise")
