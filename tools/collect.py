"""What was handed in: whose it is, which exercise, and when; and the list of a class.

``submitted/`` may hold, mixed as you like,

* a folder for each student, with notebooks anywhere in it: ``submitted/ada/01_patches.ipynb``
* flat files, as Canvas names them: ``lovelaceada_12345_67890_01_patches.ipynb``, with ``_LATE`` behind the name or not
* folders as Moodle names them: ``Ada Lovelace_12345_assignsubmission_file``
* archives (.zip) of all of that, or of one student's files
"""

from __future__ import annotations

import csv
import io
import os
import re
import stat
import tomllib
import unicodedata
import uuid
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, time
from pathlib import Path, PurePosixPath

from wire import clean

CANVAS = re.compile(r"(?P<who>[^_]+)(?P<late>_LATE)?_(?P<id>\d+)_(?P<file>\d+)_(?P<rest>.+)", re.IGNORECASE)
MOODLE = re.compile(r"(?P<who>.+?)_(?P<id>\d+)_assignsubmission_(file|onlinetext)_?")
MOST_FILES, MOST_FILE = 5_000, 20_000_000
TOO_LARGE = f"it has more than {MOST_FILE / 1e6:.0f} MB, the most that a file may have"
MOST_OTHERS = 5  # files of a student's that are no notebooks, and have a row
MOST_OF_A_CLASS, MOST_OF_ONE = 1_000_000_000, 60_000_000  # bytes of an archive, unpacked
IGNORED = {".ipynb_checkpoints", "__MACOSX", ".DS_Store", "Thumbs.db", "desktop.ini", ".gitkeep"}


@dataclass(frozen=True)
class Student:
    """One of the class: the id in our tables, the name, and the row of the list."""

    id: str
    name: str
    row: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    """The term: the class, when each exercise is due, and how many hours later is still in time."""

    students: tuple[Student, ...] = ()
    due: dict[str, datetime] = field(default_factory=dict)
    grace: float = 0.0

    def hours_late(self, exercise: str, when: datetime) -> float:
        """How many hours behind the date and its grace; 0 for in time."""
        due = next((date for start, date in self.due.items() if exercise.startswith(start)), None)
        hours = (when - due).total_seconds() / 3600 if due else 0.0
        return round(hours, 1) if hours > self.grace else 0.0


@dataclass(frozen=True)
class Submission:
    """One file that was handed in.

    Args:
        student: the id in our tables; a folder's name, where the class has no list.
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


# ---- The class ---------------------------------------------------------------------------------------------------


def read_plan(folder: Path) -> Plan:
    """The term as ``course.toml`` and ``class.csv`` of a folder say it; both may be missing.

    Raises:
        SystemExit: one of them can't be read, or two students have the same id.
    """
    students = tuple(_class(folder / "class.csv")) if (folder / "class.csv").exists() else ()
    twice = [one.id for number, one in enumerate(students) if one.id in {other.id for other in students[:number]}]
    if twice:
        raise SystemExit(f"class.csv: two students have the id {twice[0]}")
    try:
        said = tomllib.loads((folder / "course.toml").read_text("utf-8")) if (folder / "course.toml").exists() else {}
        due = {
            name: date if isinstance(date, datetime) else datetime.combine(date, time(23, 59))
            for name, date in said.get("due", {}).items()
        }
        return Plan(
            students, {name: date.replace(tzinfo=None) for name, date in due.items()}, float(said.get("grace", 0))
        )
    except (ValueError, TypeError, AttributeError, OSError) as error:
        raise SystemExit(
            f"course.toml: {error}. Write 01_patches = 2026-10-05T23:59:00 below [due], grace = 24"
        ) from error


def _class(path: Path) -> Iterator[Student]:
    """The students of a list: ours (id, name), Canvas's gradebook, or Moodle's grading worksheet."""
    text = _text(path.read_bytes())
    rows = list(
        csv.DictReader(io.StringIO(text), delimiter=";" if text[:200].count(";") > text[:200].count(",") else ",")
    )
    for row in rows:
        row = {(key or "").strip(): (value or "").strip() for key, value in row.items() if isinstance(value, str)}
        name = row.get("name") or row.get("Student") or row.get("Full name") or ""
        if not name and row.get("First name"):
            name = f"{row['First name']} {row.get('Last name') or row.get('Surname') or ''}".strip()
        own = row.get("id") or row.get("SIS Login ID") or row.get("ID number") or row.get("ID") or row.get("Identifier")
        own = own or row.get("Email address") or name
        if name.lower().startswith(("points possible", "student, test")) or not own:
            continue
        yield Student(safe(own), clean(name or own, 200), row)


def _text(data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def safe(name: str) -> str:
    """A name that can be a file's: letters, digits, dots, dashes."""
    made = re.sub(r"[^\w.-]+", "_", unicodedata.normalize("NFC", clean(name, 100))).strip("._")
    return made or "nameless"


def one_line(name: str, most: int) -> str:
    """A name as a table and a terminal can show it."""
    return " ".join(clean(name, most).split())


def _plain(name: str) -> str:
    """A name without all that platforms change in it: case, accents, spaces, the order of its words."""
    letters = unicodedata.normalize("NFKD", clean(name, 200)).casefold()
    words = re.findall(r"[^\W_]+", "".join(c for c in letters if not unicodedata.combining(c)))
    return "".join(sorted(words))


def _same_letters(name: str) -> str:
    return "".join(sorted(_plain(name)))


# ---- Files -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _File:
    """A file, the names of the folders that it was found in (an archive is one, too), and why it can't be read."""

    path: Path
    parts: tuple[str, ...]
    when: datetime
    problem: str = ""


def collect(folder: Path, exercises: dict[str, set[str]], plan: Plan, inbox: Path) -> list[Submission]:
    """Everything that was handed in, of two files of one student for one exercise the newer.

    Args:
        folder: where submissions lie.
        exercises: for each exercise's stem the names of its graded cells: so a renamed file is known.
        plan: the class, if it has a list.
        inbox: where archives are unpacked.

    Raises:
        SystemExit: two names fall together.
    """
    found: dict[tuple[str, str], Submission] = {}
    others: dict[str, list[Submission]] = {}
    names: dict[str, set[str]] = {}
    numbers: dict[tuple[str, str], set[str]] = {}
    for file in sorted(_files(folder, inbox), key=lambda file: (file.when, file.parts)):
        one, whose, number = _recognised(file, exercises, plan)
        names.setdefault(one.student.casefold(), set()).add(whose)
        numbers.setdefault((one.student, one.exercise), set()).add(number)
        if one.exercise and len(numbers[one.student, one.exercise] - {""}) > 1:
            raise SystemExit(
                f"two students are called {one_line(whose, 80)}. Put what each handed in into a folder of its own, "
                "named by the id in class.csv"
            )
        if not one.exercise:
            others.setdefault(one.student, []).append(one)
            continue
        if older := found.get((one.student, one.exercise)):
            if one.problem and not older.problem:  # a drawing, say, that is called as the notebook
                one = _with_note(older, f"a newer file is left out: {one.name}: {one.problem}")
            else:
                one = _with_note(one, f"an older file is left out: {older.name}")
        found[one.student, one.exercise] = one
    for student, spelt in names.items():
        if len(spelt) > 1 and not any(student == one.id.casefold() for one in plan.students):
            raise SystemExit(f"two students fall together: {' and '.join(sorted(spelt))}. Rename one of the folders.")
    return [*(found[key] for key in sorted(found)), *(one for some in others.values() for one in _first(some))]


def _first(some: list[Submission]) -> list[Submission]:
    """Of what a student handed in beside notebooks, as much as a table has room for."""
    more = len(some) - MOST_OTHERS
    return [*some[: MOST_OTHERS - 1], _with_note(some[MOST_OTHERS - 1], f"and {more} more")] if more > 0 else some


def _with_note(one: Submission, note: str) -> Submission:
    return Submission(one.student, one.exercise, one.path, one.name, one.when, (*one.notes, note), one.problem)


def _files(folder: Path, inbox: Path) -> Iterator[_File]:
    many = 0
    for top, folders, names in os.walk(folder):
        links = [name for name in folders if (Path(top) / name).is_symlink()]
        folders[:] = [name for name in folders if name not in (*IGNORED, *links)]
        empty = [""] if top.lower().endswith(".ipynb") and not folders and not names else []
        for name in [*names, *links, *empty]:
            path = Path(top) / name
            if name in IGNORED:
                continue
            many += 1
            if many > MOST_FILES:
                raise SystemExit(f"more than {MOST_FILES} files in {folder}: is it the right folder?")
            parts = _within(os.fsencode(part).decode("utf-8", "replace") for part in path.relative_to(folder).parts)
            when = datetime.fromtimestamp(path.lstat().st_mtime)
            if name.lower().endswith(".zip") and stat.S_ISREG(path.lstat().st_mode):
                yield from _unpacked(path, parts, when, inbox)
            else:
                yield _File(path, parts, when)


def _within(parts: Iterable[str]) -> tuple[str, ...]:
    """A path without the folder that platforms put around a class: ``submissions``, or one that begins so."""
    first, *rest = parts
    return tuple(rest) if rest and first.lower().startswith("submissions") else (first, *rest)


def _unpacked(path: Path, parts: tuple[str, ...], when: datetime, inbox: Path, inner: bool = False) -> Iterator[_File]:
    """The files of an archive, each no larger than a notebook may be; the archive itself if not all can be read.

    An archive in a class's archive is a student's, and unpacked, too.
    """
    size = 0
    stem = parts[-1][: -len(".zip")]
    # An archive at the top holds the class's files; one in a student's folder, or of a student's name, that student's.
    before = (*parts[:-1], stem) if len(parts) > 1 or CANVAS.fullmatch(parts[-1]) else ()
    try:
        with zipfile.ZipFile(path) as archive:
            members = [info for info in archive.infolist() if not info.is_dir()]
            members.sort(key=lambda info: not info.filename.endswith(".ipynb"))  # before what may be too much
            for number, info in enumerate(members):
                inside = [
                    part for part in PurePosixPath(info.filename.replace("\\", "/")).parts if part not in ("/", "..")
                ]
                if not inside or set(inside) & IGNORED or (info.external_attr >> 16) & 0o170000 == 0o120000:
                    continue
                with archive.open(info) as member:
                    data = member.read(MOST_FILE + 1)
                size += len(data)
                most = MOST_OF_ONE if before else MOST_OF_A_CLASS
                if size > most or number == MOST_FILES:
                    what = f"{most / 1e6:.0f} MB when it is unpacked" if size > most else f"{MOST_FILES} files"
                    raise ValueError(f"the archive has more than {what}: not all of it was read")
                target = inbox / f"{uuid.uuid4().hex}_{safe(inside[-1])}"  # two students may call an archive alike
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(data)
                # The platform dates what is in its archive; what is in a student's, the student dates.
                dated = when if before or info.date_time <= (1980, 1, 1, 0, 0, 0) else datetime(*info.date_time)
                within = _within([*before, *(one_line(part, 200) for part in inside)])
                if len(data) > MOST_FILE:
                    yield _File(target, within, dated, TOO_LARGE)
                elif within[-1].lower().endswith(".zip") and not inner:
                    yield from _unpacked(target, within, dated, inbox, inner=True)
                else:
                    yield _File(target, within, dated)
    except (zipfile.BadZipFile, RuntimeError, ValueError, NotImplementedError, EOFError, OSError, zlib.error) as error:
        locked = "it is locked with a password" if "password" in str(error) else "it can't be unpacked"
        yield _File(path, parts, when, str(error) if isinstance(error, ValueError) else locked)


def _recognised(file: _File, exercises: dict[str, set[str]], plan: Plan) -> tuple[Submission, str, str]:
    """Whose a file is, and which exercise; with how its owner was spelt, and the platform's number of them."""
    name, notes, late = file.parts[-1], [], False
    owner, platform_id = file.parts[0], ""
    if len(file.parts) == 1:  # in a student's folder a file's name says nothing of its owner: the student chose it
        if canvas := CANVAS.fullmatch(name):
            owner, platform_id, name, late = canvas["who"], canvas["id"], canvas["rest"], bool(canvas["late"])
        else:
            owner = Path(name).stem
            notes.append("it lies in no student's folder")
    elif moodle := MOODLE.fullmatch(owner):
        owner, platform_id = moodle["who"], moodle["id"]
    elif canvas := CANVAS.fullmatch(owner):
        owner, platform_id, late = canvas["who"], canvas["id"], bool(canvas["late"])
    student = _student(owner, platform_id, plan)
    if plan.students and student is None:
        notes.append(f"{one_line(owner, 80)} is not in class.csv")
    exercise, problem = _exercise(file, name, exercises)
    if exercise and not name.startswith(exercise):
        notes.append(f"the file was called {one_line(name, 80)}")
    if late:
        notes.append("Canvas says: late")
    own = student.id if student else safe(owner)
    one = Submission(own, exercise, file.path, one_line("/".join(file.parts), 300), file.when, tuple(notes), problem)
    return one, owner, platform_id


def _student(owner: str, platform_id: str, plan: Plan) -> Student | None:
    """Who of the class it is, by id, by the platform's number, or by name."""
    for one in plan.students:
        numbers = {one.row.get("ID"), re.sub(r"\D", "", one.row.get("Identifier", ""))} - {None, ""}
        if safe(owner).casefold() == one.id.casefold() or (platform_id and platform_id in numbers):
            return one
    for same in (_plain, _same_letters):  # Canvas joins surname and name
        fitting = [one for one in plan.students if same(one.name) == same(owner)]
        if len(fitting) == 1:
            return fitting[0]
    return None


def _exercise(file: _File, name: str, exercises: dict[str, set[str]]) -> tuple[str, str]:
    """Which exercise a file is, by its name or by its cells; and why it can't be graded, "" if it can."""
    path = file.path
    if not stat.S_ISREG(path.lstat().st_mode):  # a pipe would be waited for, and a link may lead to a neighbour's
        return "", "it is no file, but a link, a folder, a pipe or a device"
    named = next((stem for stem in exercises if name.startswith(stem)), "")
    if file.problem or path.stat().st_size > MOST_FILE:
        return named, file.problem or TOO_LARGE
    data = path.read_bytes()
    if named and (name.lower().endswith(".ipynb") or b'"cells"' in data):  # some add .txt or .json to a notebook
        return named, ""
    ids = {word.decode() for word in re.findall(rb'"grade_id":\s*"([\w-]{1,80})"', data)}
    shared = {stem: len(ids & own) / len(own) for stem, own in exercises.items() if own}
    best = max(shared, key=lambda stem: shared[stem], default="")
    if best and shared[best] >= 0.5:
        return best, ""
    return named, "it is not a notebook of an exercise"
