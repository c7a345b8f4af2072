"""The classroom: make the students' copies of the exercises, and grade what comes back. Needs nbgrader.

python tools/classroom.py assignments         notebooks/solutions/ -> notebooks/exercises/, by nbgrader
python tools/classroom.py grade               submitted/ -> classroom/: nbgrader's gradebook, feedback, and marks.csv
python tools/classroom.py refresh 01          run a solved source, and keep its outputs (as tools/lessons.py does)

What submitted/ may hold, tools/collect.py says; TEACHING.md walks through a week.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import math
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import lessons
import nbformat
import psutil
import sandbox
from collect import Submission, collect, safe
from course import Course, outcome_of
from examine import examine, read_json
from filelock import FileLock, Timeout
from lessons import write
from rebuild import name_of, read, rebuild

ROOT = Path(__file__).resolve().parent.parent
SOLUTIONS, EXERCISES = ROOT / "notebooks" / "solutions", ROOT / "notebooks" / "exercises"
COLUMNS = ("student", "name", "exercise", "marks", "of", "by hand", "hours late", "problem", "noticed", "file")
NOT_HANDED_IN = "not handed in"
READING = 180  # seconds to read a submission and start its sandboxes, and again to enter its marks


def sources(names: list[str]) -> list[Path]:
    """The solved sources whose file names begin with one of ``names``; all for none."""
    return lessons.find(names, SOLUTIONS)


def assignments(names: list[str], out: Path = EXERCISES) -> None:
    """Write the students' copies."""
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        course = Course(Path(folder))
        # No gradebook, which would be written cell by cell and then forgotten: nbgrader's --no-db.
        course.nbgrader.config.GenerateAssignment.no_database = True
        course.nbgrader.config.SaveCells.enabled = False
        for source in sources(names):
            shutil.copyfile(course.generate(source), out / source.name)
            print(f"{source.name} -> {out.name}/", flush=True)


def refresh(names: list[str]) -> int:
    """Run the solved sources, and keep the outputs of those in which every cell went well."""
    failures = 0
    for source in sources(names):
        notebook, problem = lessons.execute(source)
        print(f"{source.name}  {f'FAILED in {problem}' if problem else 'ok'}", flush=True)
        failures += bool(problem)
        if not problem:
            lessons.save(notebook, source)
    return failures


# ---- Grading -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Grading:
    """How to grade: into which course, in which sandbox, how many at a time, within which limits."""

    course: Course
    kind: str
    workers: int
    limits: sandbox.Limits


def grade(folder: Path, course: Path, kind: str = "", workers: int = 0, limits: sandbox.Limits | None = None) -> int:
    """Grade what is new or changed in ``folder``; return how many files could not be graded.

    Each submission is read, run and entered by a process of its own, so that it costs nothing but its own row. What it
    gave is kept in ``course``/graded, written when it is whole: after a kill the next call goes on with the rest.

    Args:
        folder: what was handed in, see tools/collect.py.
        course: nbgrader's course folder; class.csv is read from it.
        kind: one of :data:`sandbox.KINDS`, or "" for bubblewrap.
        workers: how many submissions at a time; 0 for as many as processors and memory allow.
        limits: what a submission may take.
    """
    kind = sandbox.choose(kind)
    sandbox.refuse_visible([folder, course, SOLUTIONS])
    course.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(course / "grading.lock", timeout=0):
            limits = limits or sandbox.Limits()
            how = Grading(Course(course), kind, workers or _workers(limits), limits)
            return _grade(folder, how)
    except Timeout:
        raise SystemExit(f"{course} is being graded already: wait for it to end") from None


def _workers(limits: sandbox.Limits) -> int:
    return max(1, min(os.cpu_count() or 1, psutil.virtual_memory().available // limits.memory))


def _grade(folder: Path, how: Grading) -> int:
    graded = {source.stem: _graded_cells(EXERCISES / source.name) for source in sources([])}
    found = collect(folder, graded)
    students = _class_list(how.course)
    stems = sorted({one.exercise for one in found} - {""})
    for stem in stems:
        how.course.generate(SOLUTIONS / f"{stem}.ipynb")
    rows = [_print(_row(one, outcome, how.course, students)) for one, outcome in _outcomes(found, how)]
    there = {(row["student"], row["exercise"]) for row in rows}
    for student in students:
        for stem in stems:
            if (student, stem) not in there:
                missing = {"student": student, "name": students[student], "exercise": stem, "problem": NOT_HANDED_IN}
                rows.append(missing | how.course.marks(student, stem))
    rows.sort(key=lambda row: (row["student"], row["exercise"], row.get("file", "")))
    _write_table(rows, how.course.folder / "marks.csv")
    return _sum_up(rows, how.course.folder)


def _graded_cells(copy: Path) -> set[str]:
    cells = nbformat.read(copy, 4).cells
    return {name_of(cell) for cell in cells if cell.metadata.get("nbgrader", {}).get("grade")}


def _class_list(course: Course) -> dict[str, str]:
    """The names of a class by their ids, from class.csv, as nbgrader has it: id, first_name, last_name, email."""
    path = course.folder / "class.csv"
    rows = list(csv.DictReader(io.StringIO(path.read_text("utf-8-sig")))) if path.exists() else []
    if rows and "id" not in rows[0]:
        raise SystemExit(
            "class.csv needs a first line with id, first_name, last_name, email; all but id may be missing"
        )
    names = {}
    with course.gradebook as book:
        for row in rows:
            # nbgrader's pages show names as they are: no mark-up in them.
            parts = {key: safe(row[key]).replace("_", " ") for key in ("first_name", "last_name") if row.get(key)}
            names[safe(row["id"])] = " ".join(parts.values()) or row["id"]
            book.update_or_create_student(safe(row["id"]), **parts, email=row.get("email") or None)
    return names


def _outcomes(found: list[Submission], how: Grading) -> Iterator[tuple[Submission, dict[str, Any]]]:
    """What each file gave, as they are done; who ran out of the machine's memory is tried again by itself."""
    again = []
    for one, outcome in _in_processes([one for one in found if one.exercise], how, how.workers):
        if outcome["problem"] == sandbox.MACHINE_FULL:
            again.append(one)
        else:
            yield one, outcome
    yield from _in_processes(again, how, 1)
    for one in found:
        if not one.exercise:
            yield one, {"problem": one.problem, "noticed": []}


def _in_processes(waiting: list[Submission], how: Grading, workers: int) -> Iterator[tuple[Submission, dict[str, Any]]]:
    left, running = list(reversed(waiting)), dict[Any, Any]()
    most = 2 * how.limits.total_seconds + READING
    forking = multiprocessing.get_context("fork")
    try:
        while left or running:
            while left and len(running) < workers:
                one = left.pop()
                end = forking.Value("d", time.monotonic() + most, lock=False)
                process = forking.Process(target=_grade_one, args=(one, how, end))
                process.start()
                running[process.sentinel] = process, one, end
            wait(list(running), timeout=1.0)
            for sentinel, (process, one, end) in list(running.items()):
                if process.is_alive() and time.monotonic() < end.value:
                    continue
                process.kill()
                process.join()
                del running[sentinel]
                outcome = read_json(outcome_of(how.course.folder, one.student, one.exercise))
                lost = {"problem": "it could not be graded within the limits", "noticed": []}
                yield one, outcome if process.exitcode == 0 and "problem" in outcome else lost
    finally:
        for process, _, _ in running.values():
            process.kill()


def _grade_one(one: Submission, how: Grading, end: Any) -> None:
    """In a process of its own: rebuild a submission, run it unless that is done, and let nbgrader enter its marks.

    ``end`` is when it is ended, shared with the process that does so.
    """
    release = nbformat.read(EXERCISES / f"{one.exercise}.ipynb", 4)
    problem, cells = one.problem, []
    try:
        cells = [] if problem else read(one.path)
    except ValueError as error:
        problem = str(error)
    notebook, noticed = rebuild(cells, release)
    text = nbformat.writes(notebook)
    path = outcome_of(how.course.folder, one.student, one.exercise)
    copy = how.course.folder / "submitted" / one.student / one.exercise / f"{one.exercise}.ipynb"
    outcome = read_json(path)
    done = outcome.get("problem") == "" == problem and copy.exists() and copy.read_text("utf-8") == text
    if problem:
        outcome = {"outputs": [], "checks": {}, "copied": [], "problem": problem}
    elif not done:
        outcome = examine(notebook, one.exercise, how.kind, how.limits)
    if not done:
        write(copy, text)
        write(copy.with_name("timestamp.txt"), one.when.strftime("%Y-%m-%d %H:%M:%S UTC"))
    write(path, json.dumps(outcome | {"noticed": [*outcome["copied"], *noticed]}))
    end.value = math.inf  # it must not pay for those who are entered before it
    with FileLock(how.course.folder / "gradebook.lock"):
        end.value = time.monotonic() + READING
        said = how.course.enter(one.student, one.exercise, autograde=not done)
    if said:
        write(path, json.dumps(outcome | {"problem": said, "noticed": noticed}))


# ---- The table ---------------------------------------------------------------------------------------------------


def _row(one: Submission, outcome: dict[str, Any], course: Course, students: dict[str, str]) -> dict[str, Any]:
    """The row of a file."""
    unknown = [f"{one.student} is not in class.csv"] if students and one.student not in students else []
    row = {
        "student": one.student,
        "name": students.get(one.student, one.student),
        "exercise": one.exercise,
        "problem": outcome["problem"],
        "noticed": "; ".join([*one.notes, *unknown, *outcome["noticed"]]),
        "file": one.name,
    }
    return row | (course.marks(one.student, one.exercise) if one.exercise else {"marks": 0.0})


def _print(row: dict[str, Any]) -> dict[str, Any]:
    print(
        f"{row['student'][:23]:<24}{row['exercise'][:23]:<24}{row['marks']:>5} of {row.get('of', '')}  {row['problem']}"
    )
    if row["noticed"]:
        print(f"{'':<24}noticed: {row['noticed']}", flush=True)
    return row


def _write_table(rows: list[dict[str, Any]], path: Path) -> None:
    names = [*COLUMNS, *dict.fromkeys(name for row in rows for name in row if name not in COLUMNS)]
    table = io.StringIO(newline="")
    writer = csv.DictWriter(table, names)
    writer.writeheader()
    writer.writerows({name: _no_formula(value) for name, value in row.items()} for row in rows)
    write(path, table.getvalue())


def _no_formula(value: Any) -> Any:
    """A value of the table; a spreadsheet must not take a student's text for a formula."""
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t")) else value


def _sum_up(rows: list[dict[str, Any]], course: Path) -> int:
    """The last line; how many that were handed in could not be graded."""
    missing = [row for row in rows if row["problem"] == NOT_HANDED_IN]
    failed = [row for row in rows if row["problem"] and row not in missing]
    names = ", ".join(f"{row['student']} {row['exercise'] or row['file']}" for row in failed[:5])
    said = [f"{len(rows) - len(missing)} handed in"]
    said += [f"{len(failed)} with a problem ({names}{', …' if len(failed) > 5 else ''})"] if failed else []
    said += [f"{len(missing)} not handed in"] if missing else []
    said += [f"{sum(row.get('by hand', 0) for row in rows)} answers to mark by hand"]
    print(f"{'; '.join(said)}. Marks and feedback are in {course.name}/: marks.csv, feedback/")
    return len(failed)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("assignments", "refresh"):
        commands.add_parser(name).add_argument("names", nargs="*", help="beginnings of file names; none means all")
    marking = commands.add_parser("grade")
    marking.add_argument("--submitted", type=Path, default=ROOT / "submitted")
    marking.add_argument("--course", type=Path, default=ROOT / "classroom")
    marking.add_argument("--sandbox", default="", help=f"one of {', '.join(sandbox.KINDS)}; bwrap if none is said")
    marking.add_argument("--workers", type=int, default=0, help="how many at a time; 0: as this machine allows")
    arguments = parser.parse_args()
    if arguments.command == "assignments":
        assignments(arguments.names)
        return 0
    if arguments.command == "refresh":
        return int(refresh(arguments.names) > 0)
    if not arguments.submitted.is_dir():
        raise SystemExit(f"there is no folder {arguments.submitted}: put one folder a student in it")
    grade(arguments.submitted, arguments.course, arguments.sandbox, arguments.workers)
    return 0  # each file has its row: what is wrong with one is no failure of ours


if __name__ == "__main__":
    sys.exit(main())
