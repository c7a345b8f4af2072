"""The classroom: make the students' copies of the exercises, and grade what comes back. Needs nbgrader.

python tools/classroom.py assignments         notebooks/solutions/ -> notebooks/exercises/, by nbgrader
python tools/classroom.py grade               submitted/ -> classroom/: nbgrader's gradebook, feedback, and marks.csv

The route of a submission, from ``make grade`` to its row:

    classroom.grade                  the course, its lock, the table
    student_notebooks.collect        the files, and whose they are
    classroom.in_processes           a process for each submission, with a deadline
    student_notebooks.rebuild        the teacher's copy with the student's answers
    course.examine                   sandbox.run: check_submission.py runs the cells, then each check
    vit_tutorial.checks              a verdict and a report for each exercise, see checks/engine
    course.enter, course.marks       nbgrader's gradebook, feedback, and the row

What submitted/ may hold, tools/student_notebooks.py says; teaching/grading.md walks through a week.
"""

from __future__ import annotations

import argparse
import csv
import io
import math
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from ctypes import c_double
from dataclasses import dataclass, replace
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple, get_args

import lessons
import nbformat
import psutil
import sandbox
from course import Course, Outcome, examine, outcome_path
from filelock import FileLock, Timeout
from lessons import EXERCISES, SOLUTIONS, write
from nbformat import NotebookNode
from sandbox import GradingError, Kind, Limits
from student_notebooks import HandedInFile, collect, file_name, name_of, read, rebuild

ROOT = Path(__file__).resolve().parent.parent
COLUMNS = ("student", "name", "exercise", "marks", "of", "by hand", "hours late", "problem", "noticed", "file")
NOT_HANDED_IN = "not handed in"
OVERHEAD = 180  # seconds to read a submission and start its sandbox, and again to enter its marks
TIMED_OUT = Outcome(problem="it could not be graded within the limits")

Row = dict[str, Any]  # of marks.csv: COLUMNS, and the marks of each check


def assignments(sources: list[Path], out: Path = EXERCISES) -> None:
    """Write the students' copies of solved sources."""
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        course = Course(Path(folder))
        # No gradebook, which would be written cell by cell and then forgotten: nbgrader's --no-db.
        course.nbgrader.config.GenerateAssignment.no_database = True
        course.nbgrader.config.SaveCells.enabled = False
        for source in sources:
            shutil.copyfile(course.generate(source), out / source.name)
            print(f"{source.name} -> {out.name}/", flush=True)


# ---- Grading -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Grading:
    """How to grade: into which course, in which sandbox, within which limits."""

    course: Course
    kind: Kind
    limits: Limits


class GradingProcess(NamedTuple):
    """A process that grades a submission, and when it is ended, which the process itself may move."""

    process: BaseProcess
    submission: HandedInFile
    deadline: c_double


def grade(
    folder: Path, course: Path, kind: Kind = "bwrap", workers: int | None = None, limits: Limits | None = None
) -> int:
    """Grade what is new or changed in ``folder``; return how many files could not be graded.

    Each submission is read, run and entered by a process of its own, so that it costs nothing but its own row. What it
    gave is kept in ``course``/graded, written when it is whole: after a kill the next call goes on with the rest.

    Args:
        folder: what was handed in, see tools/student_notebooks.py.
        course: nbgrader's course folder; class.csv is read from it.
        kind: of the sandbox.
        workers: how many submissions at a time; None for as many as processors and memory allow.
        limits: of one submission.

    Raises:
        GradingError: no submissions, no sandbox, a course that is being graded already.
    """
    if not folder.is_dir():
        raise GradingError(f"there is no folder {folder}: put one folder a student in it")
    sandbox.check_kind(kind)
    sandbox.check_invisible([folder, course, SOLUTIONS])
    course.mkdir(parents=True, exist_ok=True)
    limits = limits or Limits()
    try:
        with FileLock(course / "grading.lock", timeout=0):
            grading = Grading(Course(course), kind, limits)
            rows = _rows(folder, grading, workers or default_workers(limits))
            write_table(rows, course / "marks.csv")
    except Timeout:
        raise GradingError(f"{course} is being graded already: wait for it to end") from None
    return _summarise(rows, course)


def default_workers(limits: Limits) -> int:
    """As many submissions at a time as processors and memory allow."""
    return max(1, min(os.cpu_count() or 1, psutil.virtual_memory().available // limits.memory))


def _rows(folder: Path, grading: Grading, workers: int) -> list[Row]:
    """A row for each file, printed when it is done, and for each student who handed in nothing."""
    course = grading.course
    submissions = collect(folder, graded_cells())
    students = class_list(course)
    stems = sorted({submission.exercise for submission in submissions} - {""})
    for stem in stems:
        course.generate(SOLUTIONS / f"{stem}.ipynb")
    rows = []
    for submission, outcome in _outcomes(submissions, grading, workers):
        rows.append(_row(submission, outcome, course, students))
        _print_row(rows[-1])
    handed_in = {(row["student"], row["exercise"]) for row in rows}
    for student, name in students.items():
        for stem in [stem for stem in stems if (student, stem) not in handed_in]:
            missing = {"student": student, "name": name, "exercise": stem, "problem": NOT_HANDED_IN, "noticed": ""}
            rows.append(missing | course.marks(student, stem))
    return sorted(rows, key=lambda row: (row["student"], row["exercise"], row.get("file", "")))


def graded_cells() -> dict[str, set[str]]:
    """For each exercise the names of its graded cells."""
    copies = {source.stem: nbformat.read(EXERCISES / source.name, 4).cells for source in lessons.find([], SOLUTIONS)}
    return {
        stem: {name_of(cell) for cell in cells if cell.metadata.get("nbgrader", {}).get("grade")}
        for stem, cells in copies.items()
    }


def class_list(course: Course) -> dict[str, str]:
    """The names of a class by their ids, from class.csv, as nbgrader has it: id, first_name, last_name, email."""
    path = course.folder / "class.csv"
    rows = list(csv.DictReader(io.StringIO(path.read_text("utf-8-sig")))) if path.exists() else []
    if rows and "id" not in rows[0]:
        raise GradingError(
            "class.csv needs a first line with id, first_name, last_name, email; all but id may be missing"
        )
    names = {}
    with course.gradebook as book:
        for row in rows:
            # nbgrader's pages show names as they are: no mark-up in them.
            parts = {key: file_name(row[key]).replace("_", " ") for key in ("first_name", "last_name") if row.get(key)}
            names[file_name(row["id"])] = " ".join(parts.values()) or row["id"]
            book.update_or_create_student(file_name(row["id"]), **parts, email=row.get("email") or None)
    return names


def _outcomes(
    submissions: list[HandedInFile], grading: Grading, workers: int
) -> Iterator[tuple[HandedInFile, Outcome]]:
    """The outcome of each file, as they are done. What ran out of the machine's memory is tried again by itself."""
    retried = []
    for submission, outcome in in_processes([s for s in submissions if s.exercise], grading, workers):
        if outcome.problem == sandbox.MACHINE_FULL:
            retried.append(submission)
        else:
            yield submission, outcome
    yield from in_processes(retried, grading, workers=1)
    for submission in submissions:
        if not submission.exercise:
            yield submission, Outcome(problem=submission.problem)


def in_processes(
    submissions: list[HandedInFile], grading: Grading, workers: int
) -> Iterator[tuple[HandedInFile, Outcome]]:
    """Grade each submission in a process of its own, ``workers`` at a time; their outcomes, as they are done.

    Not by concurrent.futures: a killed worker breaks its whole pool, and a deadline can't move there.
    """
    waiting = list(reversed(submissions))
    running: dict[int, GradingProcess] = {}
    try:
        while waiting or running:
            while waiting and len(running) < workers:
                started = _start(waiting.pop(), grading)
                running[started.process.sentinel] = started
            wait(list(running), timeout=1.0)
            for sentinel, (process, submission, deadline) in list(running.items()):
                if process.is_alive() and time.monotonic() < deadline.value:
                    continue
                process.kill()
                process.join()
                del running[sentinel]
                outcome = Outcome.read(_outcome_path(submission, grading)) if process.exitcode == 0 else None
                yield submission, outcome or TIMED_OUT
    finally:
        for process, _, _ in running.values():
            process.kill()


def _start(submission: HandedInFile, grading: Grading) -> GradingProcess:
    forking = multiprocessing.get_context("fork")
    deadline = forking.Value("d", time.monotonic() + 2 * grading.limits.total_seconds + OVERHEAD, lock=False)
    process = forking.Process(target=_grade_one, args=(submission, grading, deadline))
    process.start()
    return GradingProcess(process, submission, deadline)


def _grade_one(submission: HandedInFile, grading: Grading, deadline: c_double) -> None:
    """In a process of its own: rebuild a submission, run it unless that is done, and let nbgrader enter its marks."""
    notebook, notes, problem = _rebuild(submission)
    earlier = None if problem else _earlier_outcome(submission, grading, notebook)
    outcome = earlier or _examine(submission, grading, notebook, problem)
    outcome = replace(outcome, notes=notes)
    outcome.write(_outcome_path(submission, grading))
    _keep_copy(submission, grading, notebook)  # after the outcome, which otherwise might be that of an older copy
    _enter(submission, grading, outcome, deadline, autograde=earlier is None)


def _examine(submission: HandedInFile, grading: Grading, notebook: NotebookNode, problem: str) -> Outcome:
    """Run a notebook that has no problem yet."""
    if problem:
        return Outcome(problem=problem)
    return examine(notebook, submission.exercise, grading.kind, grading.limits)


def _enter(submission: HandedInFile, grading: Grading, outcome: Outcome, deadline: c_double, autograde: bool) -> None:
    """Let nbgrader enter the marks, one submission at a time, and note whether it did."""
    deadline.value = math.inf  # waiting for the gradebook doesn't count against its limit
    with FileLock(grading.course.folder / "gradebook.lock"):
        deadline.value = time.monotonic() + OVERHEAD
        failure = grading.course.enter(submission.student, submission.exercise, autograde=autograde)
    entered = replace(outcome, problem=failure or outcome.problem, entered=not failure)
    entered.write(_outcome_path(submission, grading))


def _rebuild(submission: HandedInFile) -> tuple[NotebookNode, list[str], str]:
    """The teacher's copy with the student's answers, what was changed in it, and why it can't be graded."""
    cells, problem = [], submission.problem
    if not problem:
        try:
            cells = read(submission.path)
        except ValueError as error:
            problem = str(error)
    notebook, notes = rebuild(cells, nbformat.read(EXERCISES / f"{submission.exercise}.ipynb", 4))
    return notebook, notes, problem


def _outcome_path(submission: HandedInFile, grading: Grading) -> Path:
    return outcome_path(grading.course.folder, submission.student, submission.exercise)


def _copy_path(submission: HandedInFile, grading: Grading) -> Path:
    folder = grading.course.folder / "submitted" / submission.student / submission.exercise
    return folder / f"{submission.exercise}.ipynb"


def _keep_copy(submission: HandedInFile, grading: Grading, notebook: NotebookNode) -> None:
    """Put a rebuilt notebook and its date where nbgrader looks for submissions."""
    path = _copy_path(submission, grading)
    write(path, nbformat.writes(notebook))
    write(path.with_name("timestamp.txt"), submission.when.strftime("%Y-%m-%d %H:%M:%S UTC"))


def _earlier_outcome(submission: HandedInFile, grading: Grading, notebook: NotebookNode) -> Outcome | None:
    """What the same notebook gave in an earlier grading, if that had no problem and is in the gradebook."""
    copy = _copy_path(submission, grading)
    if not copy.exists() or copy.read_text("utf-8") != nbformat.writes(notebook):
        return None
    outcome = Outcome.read(_outcome_path(submission, grading))
    return outcome if outcome and outcome.entered and not outcome.problem else None


# ---- The table ---------------------------------------------------------------------------------------------------


def _row(submission: HandedInFile, outcome: Outcome, course: Course, students: dict[str, str]) -> Row:
    student, exercise = submission.student, submission.exercise
    unknown = [f"{student} is not in class.csv"] if students and student not in students else []
    row = {
        "student": student,
        "name": students.get(student, student),
        "exercise": exercise,
        "problem": outcome.problem,
        "noticed": "; ".join([*submission.notes, *unknown, *outcome.notes]),
        "file": submission.name,
    }
    return row | (course.marks(student, exercise) if exercise else {"marks": 0.0})


def _print_row(row: Row) -> None:
    names = f"{row['student'][:23]:<24}{row['exercise'][:23]:<24}"
    print(f"{names}{row['marks']:>5} of {row.get('of', '')}  {row['problem']}")
    if row["noticed"]:
        print(f"{'':<24}noticed: {row['noticed']}", flush=True)


def write_table(rows: list[Row], path: Path) -> None:
    """Write the rows as CSV."""
    names = [*COLUMNS, *dict.fromkeys(name for row in rows for name in row if name not in COLUMNS)]
    table = io.StringIO(newline="")
    writer = csv.DictWriter(table, names)
    writer.writeheader()
    writer.writerows({name: _no_formula(value) for name, value in row.items()} for row in rows)
    write(path, table.getvalue())


def _no_formula(value: Any) -> Any:
    """A value of the table; a spreadsheet must not compute a student's text as a formula."""
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t")) else value


def _summarise(rows: list[Row], course: Path) -> int:
    """Print the last line; how many that were handed in could not be graded."""
    missing = [row for row in rows if row["problem"] == NOT_HANDED_IN]
    failed = [row for row in rows if row["problem"] and row not in missing]
    names = ", ".join(f"{row['student']} {row['exercise'] or row['file']}" for row in failed[:5])
    parts = [f"{len(rows) - len(missing)} handed in"]
    parts += [f"{len(failed)} with a problem ({names}{', …' if len(failed) > 5 else ''})"] if failed else []
    parts += [f"{len(missing)} not handed in"] if missing else []
    parts += [f"{sum(row.get('by hand', 0) for row in rows)} answers to mark by hand"]
    print(f"{'; '.join(parts)}. Marks and feedback are in {course.name}/: marks.csv, feedback/")
    return len(failed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    copying = commands.add_parser("assignments")
    copying.add_argument("names", nargs="*", help="beginnings of file names; none means all")
    marking = commands.add_parser("grade")
    marking.add_argument("--submitted", type=Path, default=ROOT / "submitted")
    marking.add_argument("--course", type=Path, default=ROOT / "classroom")
    marking.add_argument("--sandbox", choices=get_args(Kind), default="bwrap")
    marking.add_argument("--workers", type=int, help="how many at a time; by default as many as this machine allows")
    arguments = parser.parse_args()
    try:
        if arguments.command == "assignments":
            assignments(lessons.find(arguments.names, SOLUTIONS))
        else:
            # A file that can't be graded has its row: that is no failure of the command.
            grade(arguments.submitted, arguments.course, arguments.sandbox, arguments.workers)
    except (GradingError, ValueError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
