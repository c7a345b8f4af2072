"""The classroom: make the students' copies of the exercises, and grade what comes back. Needs nbgrader.

python tools/classroom.py assignments         notebooks/solutions/ -> notebooks/exercises/, by nbgrader
python tools/classroom.py grade               submitted/ -> classroom/: marks, feedback, and nbgrader's gradebook
python tools/classroom.py refresh 01          run a solved source, and keep its outputs (as tools/lessons.py does)

What submitted/ may hold, tools/collect.py says; TEACHING.md walks through a week.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import ctypes
import functools
import hashlib
import importlib
import io
import json
import logging
import multiprocessing
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import collect
import copies
import feedback
import gradebook
import judge
import lessons
import nbformat
import psutil
import sandbox
import stripped
import torch
from filelock import FileLock, Timeout
from gradebook import Book
from lessons import write

import vit_tutorial

try:
    import resource
except ModuleNotFoundError:  # Windows, which can't fork either
    raise SystemExit("make grade needs Linux, or a Mac with Docker; on Windows, run it in WSL") from None

ROOT = Path(__file__).resolve().parent.parent
SOLUTIONS, EXERCISES = ROOT / "notebooks" / "solutions", ROOT / "notebooks" / "exercises"
SECONDS_A_CELL = 60
READING = 120  # seconds that a submission may take beside what it takes in its sandbox
GB = 1_000_000_000


def nbgrader(course: Path) -> Any:
    """Nbgrader's own interface to a course in a folder."""
    try:
        from nbgrader.apps import NbGraderAPI
        from traitlets.config import Config
    except ImportError as error:
        raise SystemExit("nbgrader is missing: make assignments installs it, or pip install -e .[teach]") from error
    gradebook.prepare_nbgrader()
    (course / "exchange").mkdir(parents=True, exist_ok=True)
    config = Config()
    config.CourseDirectory.root = str(course)
    config.Exchange.root = str(course / "exchange")  # else it complains of a missing system folder
    config.CourseDirectory.course_id = "vit_tutorial"
    config.NbGraderAPI.log_level = logging.ERROR
    return NbGraderAPI(config=config)


def sources(names: list[str]) -> list[Path]:
    """The solved sources whose file names begin with one of ``names``; all for none."""
    return lessons.find(names, SOLUTIONS)


def release(source: Path, course: Path, api: Any) -> Path:
    """Put a solved source into the course, and let nbgrader make the students' copy."""
    target = course / "source" / source.stem / source.name
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    done = api.generate_assignment(source.stem, force=True, create=True)
    if not done["success"]:
        raise SystemExit(f"nbgrader can't make {source.stem}:\n{done['log']}")
    return course / "release" / source.stem / source.name


def assignments(names: list[str], out: Path = EXERCISES) -> None:
    """Write the students' copies."""
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        api = nbgrader(Path(folder))
        # No gradebook, which would be written cell by cell and then forgotten: nbgrader's --no-db.
        api.config.GenerateAssignment.no_database, api.config.SaveCells.enabled = True, False
        for source in sources(names):
            shutil.copyfile(release(source, Path(folder), api), out / source.name)
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
    """How to grade: which sandbox, how many at a time, what each may take, and where everything lies."""

    kind: str
    workers: int
    limits: sandbox.Limits
    course: Path
    package: Path
    hidden: list[Path]
    seed: int


def grade(folder: Path, course: Path, kind: str = "", workers: int = 0, limits: sandbox.Limits | None = None) -> int:
    """Grade what is new or changed in ``folder``, write tables and feedback; return how many could not be graded.

    Each submission is read, run in a sandbox and judged in a process of its own, so that it costs nothing but its own
    row. What was found is kept in ``course``/judged, a file a submission, written when it is whole: after a kill the
    next call goes on with the rest. The course folder keeps nbgrader's gradebook, too, so marks given by hand stay.

    Args:
        folder: what was handed in, see tools/collect.py.
        course: where everything is kept; class.csv and course.toml are read from it.
        kind: one of :data:`sandbox.KINDS`, or "" for what this machine has.
        workers: how many sandboxes run at a time; 0 for as many as processors and memory allow.
        limits: what a submission may take.
    """
    kind = sandbox.choose(kind)
    if kind in ("podman", "docker"):
        _build_image(kind)
    course.mkdir(parents=True, exist_ok=True)
    package = Path(vit_tutorial.__file__).resolve().parent
    hidden = [path.resolve() for path in (ROOT, folder, course, Path.home(), package)]
    try:
        with FileLock(course / "grading.lock", timeout=0), tempfile.TemporaryDirectory() as made:
            of_sandboxes = stripped.make(package, Path(made))
            bounds = limits or sandbox.Limits(seconds=SECONDS_A_CELL)
            how = Grading(kind, workers or _workers(), bounds, course, of_sandboxes, hidden, secrets.randbits(40))
            return _grade(folder, how)
    except Timeout:
        raise SystemExit(f"{course} is being graded already: wait for it to end") from None


def _grade(folder: Path, how: Grading) -> int:
    plan = collect.read_plan(how.course)
    releases = {source.stem: judge.read(EXERCISES / source.name) for source in sources([])}
    graded = {stem: _graded(cells) for stem, cells in releases.items()}
    inbox = how.course / "inbox"
    shutil.rmtree(inbox, ignore_errors=True)
    for page in (how.course / "feedback").glob("*/unrecognised_*.html"):
        page.unlink()  # what was none the last time may be a notebook now
    found = collect.collect(folder, graded, plan, inbox)
    stems = sorted({one.exercise for one in found} - {""} | _due(plan, list(releases)))
    rows: list[dict[str, Any]] = []
    with Book(how.course) as book:
        for stem in stems:
            for said in book.prepare(stem, releases[stem]):
                print(said, flush=True)
        for one, judged in _all_judged([one for one in found if one.exercise and not one.problem], how):
            rows.append(_recorded(book, one, judged, releases[one.exercise], plan, how.course))
        for number, one in enumerate(one for one in found if not one.exercise or one.problem):
            rows.append(_unrecognised(one, number, plan, how.course))
        rows += list(_not_handed_in(book, stems, rows, plan))
        _tables(rows, plan, book, stems, how.course)
    _hints(rows, how.course)
    _zip(how.course)
    return _sum_up(rows, how.course)


def _graded(cells: list[dict[str, Any]]) -> set[str]:
    return {cell["nbgrader"]["grade_id"] for cell in cells if cell["nbgrader"].get("grade")}


def _due(plan: collect.Plan, stems: list[str]) -> set[str]:
    """The exercises whose date has passed."""
    now = collect.datetime.now()
    return {stem for stem in stems for start, date in plan.due.items() if stem.startswith(start) and date < now}


def _workers() -> int:
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(processors, psutil.virtual_memory().available // (2 * GB)))


def _build_image(kind: str) -> None:
    with tempfile.TemporaryDirectory() as context:
        for path in (ROOT / "requirements.txt", ROOT / "tools" / "grading.Dockerfile"):
            shutil.copy(path, context)
        if subprocess.run(sandbox.build_image(kind, Path(context)), check=False).returncode:
            raise SystemExit(f"{kind} can't build the image that submissions run in, see above")


# ---- One submission, in a process of its own ---------------------------------------------------------------------


@functools.cache
def _judges() -> str:
    """What decides, as one hash: with other checks, or another judge, everything is judged again."""
    package = Path(vit_tutorial.__file__).parent
    tools = [ROOT / "tools" / f"{name}.py" for name in ("judge", "runner", "wire", "stripped")]
    return hashlib.sha256(b"".join(path.read_bytes() for path in (*sorted(package.rglob("*.py")), *tools))).hexdigest()


def _key(one: collect.Submission) -> str:
    """Of a submission and of all that decides about it, but for the points: they change no verdict."""
    content = one.path.read_bytes() if one.path.stat().st_size <= judge.MOST_BYTES else b"too large"
    parts = []
    for folder in (SOLUTIONS, EXERCISES):
        for cell in judge.read(folder / f"{one.exercise}.ipynb"):
            parts.append([cell["source"], cell["cell_type"], cell["nbgrader"].get("grade_id", "")])
    return hashlib.sha256(content + json.dumps(parts).encode() + _judges().encode()).hexdigest()


def _kept(course: Path, student: str, stem: str) -> Path:
    return course / "judged" / student / f"{stem}.json"


def _all_judged(found: list[collect.Submission], how: Grading) -> Iterator[tuple[collect.Submission, dict[str, Any]]]:
    """What each submission did, kept from the last time or new; as they are done."""
    waiting: list[collect.Submission] = []
    for one in found:
        kept, key = _read(_kept(how.course, one.student, one.exercise)), _key(one)
        if kept.get("key") == key and not kept["problem"]:
            yield one, kept | {"seconds": 0}
        else:
            waiting.append(one)
    _warm({one.exercise[:2] for one in waiting}, how)
    again: list[collect.Submission] = []
    for one, judged in _in_processes(waiting, how, how.workers):
        if judged["problem"] == sandbox.MACHINE_FULL:
            again.append(one)
        else:
            yield one, judged
    yield from _in_processes(again, how, 1)  # by itself: the others may have taken the memory


def _read(path: Path) -> dict[str, Any]:
    with contextlib.suppress(OSError, ValueError):
        found = json.loads(path.read_text(encoding="utf-8"))
        return found if isinstance(found, dict) else {}
    return {}


@functools.cache
def _known(lesson: str, seed: int) -> dict[str, list[Any]]:
    return judge.exercises(lesson, seed)


def _warm(lessons_wanted: set[str], how: Grading) -> None:
    """Compute what is right, and make what sandboxes get, once: before the processes fork off that need it."""
    torch.set_num_threads(1)  # threads don't live through a fork
    known = importlib.import_module("vit_tutorial.checks.run").known
    for lesson in sorted(lessons_wanted):
        stripped.for_lesson(how.package, lesson, how.package.parent)
        for draws in _known(lesson, how.seed).values():
            list(known(draws[0], None))


def _in_processes(
    waiting: list[collect.Submission], how: Grading, workers: int
) -> Iterator[tuple[collect.Submission, dict[str, Any]]]:
    forks, running = multiprocessing.get_context("fork"), {}
    left = list(reversed(waiting))
    most = 2 * how.limits.total_seconds + READING  # it may run twice, see judge.examine
    try:
        while left or running:
            while left and len(running) < workers:
                one = left.pop()
                process = forks.Process(target=_examine, args=(one, how))
                process.start()
                running[process.sentinel] = (process, one, time.monotonic())
            wait(list(running), timeout=1.0)
            for sentinel, (process, one, began) in list(running.items()):
                if process.is_alive() and time.monotonic() - began < most:
                    continue
                _end(process)
                del running[sentinel]
                path = _kept(how.course, one.student, one.exercise).with_suffix(".new")
                judged = _read(path) or {"problem": "it could not be read within the limits", "cells": [], "notes": []}
                path.unlink(missing_ok=True)
                yield one, {"passed": {}, "seconds": time.monotonic() - began, "key": ""} | judged
    finally:
        for process, _, _ in running.values():
            _end(process)


def _end(process: Any) -> None:
    process.join(0)
    if process.is_alive():
        process.terminate()
        process.join(5)
    if process.is_alive():
        process.kill()
        process.join()


def _examine(one: collect.Submission, how: Grading) -> None:
    """In a process of its own: read a submission, run it, judge it, and write down what was found."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the one that waits for us ends us
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # as it does when it is killed itself
    seconds = int(how.limits.total_seconds + READING)
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, resource.getrlimit(resource.RLIMIT_CPU)[1]))
    if sys.platform == "linux":
        room = psutil.Process().memory_info().vms + how.limits.memory
        resource.setrlimit(resource.RLIMIT_AS, (room, resource.getrlimit(resource.RLIMIT_AS)[1]))
    began = time.monotonic()
    try:
        found = _found(one, how)
    except ValueError as error:
        found = {"problem": judge.clean(error, 300), "cells": [], "notes": []}
    except Exception as error:  # whatever it makes us stumble over costs its own row
        where = traceback.extract_tb(error.__traceback__)[-1]
        found = {"problem": f"{type(error).__name__} in {where.name}", "cells": [], "notes": []}
    found |= {"key": _key(one), "seconds": time.monotonic() - began}
    write(_kept(how.course, one.student, one.exercise).with_suffix(".new"), json.dumps(found))


def _found(one: collect.Submission, how: Grading) -> dict[str, Any]:
    release, solved = (judge.read(folder / f"{one.exercise}.ipynb") for folder in (EXERCISES, SOLUTIONS))
    paper = judge.rebuild(judge.read(one.path), release)
    lesson = one.exercise[:2]
    try:
        package = stripped.for_lesson(how.package, lesson, how.package.parent)
        opened = functools.partial(sandbox.Sandbox, how.kind, {"lesson": lesson}, how.limits, package, how.hidden)
        verdict = judge.examine(opened, _known(lesson, how.seed), solved, paper)
    except sandbox.Stopped as stopped:
        return {"problem": str(stopped), "cells": paper.cells, "notes": paper.notes}
    outputs = iter(verdict.outputs)
    for cell in paper.cells:
        if cell["cell_type"] == "code":
            cell["count"], cell["outputs"] = next(outputs)
    notes = list(dict.fromkeys(verdict.notes))
    return {"problem": verdict.problem, "cells": paper.cells, "passed": verdict.passed, "notes": notes}


# ---- Marks, and what is written ----------------------------------------------------------------------------------


def _recorded(book: Book, one: collect.Submission, judged: dict[str, Any], *where: Any) -> dict[str, Any]:
    """Enter a submission's marks, write its page; its row. Whatever goes wrong costs this row alone."""
    try:
        return _entered(book, one, judged, *where)
    except Exception as error:
        book.gradebook.db.rollback()
        problem = f"{judged['problem']} {type(error).__name__} while its marks were written".strip()
        row = _base_row(one, where[1]) | {"of": book.most(one.exercise), "problem": problem}
        _page(where[2], row, [], [])
        return row


def _entered(
    book: Book,
    one: collect.Submission,
    judged: dict[str, Any],
    release: list[dict[str, Any]],
    plan: collect.Plan,
    course: Path,
) -> dict[str, Any]:
    kept = _kept(course, one.student, one.exercise)
    cells = judged["cells"] or judge.rebuild([], release).cells
    answers = _answers(cells, release, _read(kept).get("cells", []))
    book.enter(one.student, _name(one.student, plan), one.exercise, judged["passed"], answers)
    marks = book.marks(one.student, one.exercise)
    for cell in cells:
        if cell["nbgrader"].get("grade_id") in {mark["name"] for mark in marks}:
            cell["nbgrader"] |= {"points": next(m["of"] for m in marks if m["name"] == cell["nbgrader"]["grade_id"])}
    write(kept, json.dumps(judged | {"cells": cells}))
    write(
        course / "autograded" / one.student / one.exercise / f"{one.exercise}.ipynb", nbformat.writes(_notebook(cells))
    )
    like = _package(one.exercise).like([cell for cell in cells if cell.get("own")])
    alike = [f"{name} is like the package's own {_few(of)}: read it" for name, of in like.items()]
    notes = [*alike, *one.notes, *judged["notes"]]
    for mark in marks:
        mark["beside"] = _whose(mark, cells, like)
    row = _base_row(one, plan) | {
        "marks": sum(mark["score"] for mark in marks),
        "of": sum(mark["of"] for mark in marks),
        "by hand": sum(mark["waits"] for mark in marks),
        "problem": judged["problem"],
        "noticed": "; ".join(notes[:12]),
    }
    _page(course, row, marks, cells)
    _print_row(row, judged["seconds"])
    return row | {mark["name"]: mark["score"] for mark in marks}


def _whose(mark: dict[str, Any], cells: list[dict[str, Any]], like: dict[str, list[str]]) -> str:
    """What stands beside an exercise's mark if its code is like the package's, else ""."""
    sources = [cell["source"] for cell in cells if cell["nbgrader"].get("grade_id") == mark["name"]]
    check = judge.CHECK.search("".join(sources))
    if check is None or not mark["score"] or check[1] not in like:
        return ""
    return f"This code is like the package's own {_few(like[check[1]])}. Your teacher sees this, too."


def _answers(
    cells: list[dict[str, Any]], release: list[dict[str, Any]], before: list[dict[str, Any]]
) -> dict[str, str]:
    """Of each answer that is marked by hand: "empty", "old" (as it was the last time) or "new"."""
    handed_out, last = _sources(release), _sources(before)
    states = {}
    for cell in cells:
        data = cell["nbgrader"]
        if data.get("grade") and data.get("solution"):
            name, text = data["grade_id"], cell["source"].strip()
            states[name] = "old" if last.get(name) == text else "new"
            if not text or text in (handed_out.get(name), judge.DELETED):
                states[name] = "empty"
    return states


def _sources(cells: list[dict[str, Any]]) -> dict[str, str]:
    return {cell["nbgrader"]["grade_id"]: cell["source"].strip() for cell in cells if cell["nbgrader"]}


def _name(student: str, plan: collect.Plan) -> str:
    return next((one.name for one in plan.students if one.id == student), student)


def _base_row(one: collect.Submission, plan: collect.Plan) -> dict[str, Any]:
    return {
        "student": one.student,
        "name": _name(one.student, plan),
        "exercise": one.exercise,
        "marks": 0.0,
        "of": "",
        "by hand": 0,
        "hours late": plan.hours_late(one.exercise, one.when),
        "problem": one.problem,
        "noticed": "; ".join(one.notes),
        "file": one.name,
    }


def _print_row(row: dict[str, Any], seconds: float = 0.0) -> None:
    late = f"{row['hours late']:g} hours late" * bool(row["hours late"])
    note = "; ".join(filter(None, [row["problem"], f"{row['by hand']} to mark by hand" * bool(row["by hand"]), late]))
    marks = f"{row['marks']:>5} of {row['of']:<5}{seconds:6.1f} s"
    print(f"{row['student'][:23]:<24}{row['exercise'][:23]:<24}{marks}  {note}", flush=True)
    if row["noticed"]:
        print(f"{'':<24}noticed: {row['noticed']}", flush=True)


def _page(course: Path, row: dict[str, Any], marks: list[dict[str, Any]], cells: list[dict[str, Any]]) -> None:
    facts = [f"{row['marks']:g} of {row['of']:g} marks." if marks else "No marks for this file."]
    earlier = sum(mark["score"] for mark in marks if mark["earlier"])
    facts += [f"Answers that are not marked yet: {row['by hand']}."] * bool(row["by hand"])
    facts += [f"{earlier:g} of these marks are for an earlier answer: they stay until it is marked anew."] * bool(
        earlier
    )
    facts += [f"Handed in {row['hours late']:g} hours late."] * bool(row["hours late"])
    facts += [f"What went wrong: {row['problem']}."] * bool(row["problem"])
    facts += [
        "A mark says that the numbers are right. Whose code gave them is not checked. What it calls, and how it leaves "
        "a model, is what its own process says."
    ] * bool(marks)
    stem = row["exercise"] or "unrecognised"
    page = feedback.page(f"{row['name']}: {stem}", facts, marks, cells)
    write(course / "feedback" / row["student"] / f"{row.get('page', stem)}.html", page)


def _unrecognised(one: collect.Submission, number: int, plan: collect.Plan, course: Path) -> dict[str, Any]:
    row = _base_row(one, plan)
    _page(course, row | {"page": f"unrecognised_{number}", "problem": f"{one.name}: {one.problem}"}, [], [])
    _print_row(row)
    return row


def _not_handed_in(
    book: Book, stems: list[str], rows: list[dict[str, Any]], plan: collect.Plan
) -> Iterator[dict[str, Any]]:
    there = {(row["student"], row["exercise"]) for row in rows}
    for one in plan.students:
        for stem in stems:
            if (one.id, stem) not in there:
                nothing = collect.Submission(one.id, stem, Path(), "", collect.datetime.min, problem=NOT_HANDED_IN)
                kept = sum(mark["score"] for mark in book.marks(one.id, stem))
                gone = "the marks are those of a file that is no longer there" * bool(kept)
                yield _base_row(nothing, plan) | {"marks": float(kept), "of": book.most(stem), "noticed": gone}


def _notebook(cells: list[dict[str, Any]]) -> nbformat.NotebookNode:
    """The notebook for formgrader: the teacher's, with the student's answers as plain text, and what they gave."""
    made = []
    for number, cell in enumerate(cells):
        metadata = {"nbgrader": cell["nbgrader"]} if cell["nbgrader"] else {}
        theirs = cell.get("own") and cell["cell_type"] != "code"
        source = feedback.as_plain(cell["source"]) if theirs else cell["source"]
        new = nbformat.v4.new_code_cell if cell["cell_type"] == "code" else nbformat.v4.new_markdown_cell
        made.append(new(source, metadata=metadata, id=f"cell-{number}"))
        if cell["cell_type"] == "code":
            made[-1].execution_count = cell.get("count")
            made[-1].outputs = [nbformat.from_dict(output) for output in cell.get("outputs", [])]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return nbformat.v4.new_notebook(cells=made, metadata={"kernelspec": kernel, "language_info": {"name": "python"}})


# ---- Tables ------------------------------------------------------------------------------------------------------

NOT_HANDED_IN = "not handed in"
FIRST = ("student", "name", "exercise", "marks", "of", "by hand", "hours late", "problem", "noticed", "file")
CANVAS = ("Student", "ID", "SIS User ID", "SIS Login ID", "Section")


def _tables(rows: list[dict[str, Any]], plan: collect.Plan, book: Book, stems: list[str], course: Path) -> None:
    """marks.csv, and for a class with a list what Canvas and Moodle take."""
    rows.sort(key=lambda row: (row["student"], row["exercise"], row["file"]))
    names = [*FIRST, *dict.fromkeys(name for row in rows for name in row if name not in FIRST)]
    _write_csv(rows, names, course / "marks.csv")
    got = {(row["student"], row["exercise"]): row["marks"] for row in rows}
    if not plan.students:
        return
    points: dict[str, Any] = {"Student": "    Points Possible", **{stem: book.most(stem) for stem in stems}}
    table = [points]
    for one in plan.students:
        known = {name: one.row.get(name, "") for name in CANVAS} | {"Student": one.row.get("Student", one.name)}
        known["SIS Login ID"] = known["SIS Login ID"] or one.id
        table.append(known | {stem: got.get((one.id, stem), 0.0) for stem in stems})
    _write_csv(table, [*CANVAS, *stems], course / "marks_canvas.csv")
    for stem in stems:
        lines = [_for_moodle(one, got.get((one.id, stem), 0.0), book.most(stem)) for one in plan.students]
        columns = list(dict.fromkeys(name for line in lines for name in line))
        _write_csv(lines, columns, course / f"marks_moodle_{stem}.csv")


def _for_moodle(one: collect.Student, marks: float, most: float) -> dict[str, Any]:
    """A row of Moodle's grading worksheet: theirs with the mark in it, or one that Moodle takes as well."""
    known = {key: value for key, value in one.row.items() if key in MOODLE}
    known = known if "Identifier" in known else {"ID number": one.id, "Full name": one.name}
    return known | {"Grade": marks, "Maximum Grade": most}


MOODLE = ("Identifier", "Full name", "ID number", "Email address", "Status")


def _write_csv(rows: list[dict[str, Any]], names: list[str], path: Path) -> None:
    table = io.StringIO(newline="")
    writer = csv.DictWriter(table, names)
    writer.writeheader()
    writer.writerows({name: _cell(value) for name, value in row.items()} for row in rows)
    write(path, table.getvalue())


def _cell(value: Any) -> Any:
    """A value of the table; a spreadsheet must not take a student's text for a formula."""
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t")) else value


def _hints(rows: list[dict[str, Any]], course: Path) -> None:
    """copies.csv: answers that have more in common with another student's than the exercise explains."""
    found = []
    for stem in sorted({row["exercise"] for row in rows} - {""}):
        answers = {}
        for row in rows:
            if row["exercise"] == stem:
                cells = _read(_kept(course, row["student"], stem)).get("cells", [])
                answers[row["student"]] = [cell for cell in cells if cell.get("own")]
        found += [{"exercise": stem} | hint for hint in copies.hints(answers, _explained(stem))]
    _write_csv(found, ["exercise", "student", "other", "share", "pieces"], course / "copies.csv")
    if found:
        print(f"Answers that have much in common: {len(found)}. Read them beside each other (copies.csv)")


def _explained(stem: str) -> list[dict[str, Any]]:
    """What explains why answers are alike: the model answers, and what was handed out."""
    solved = [cell for cell in judge.read(SOLUTIONS / f"{stem}.ipynb") if judge.own(cell)]
    return solved + judge.read(EXERCISES / f"{stem}.ipynb")


@functools.cache
def _package(stem: str) -> copies.Package:
    return copies.Package(stripped.sources(Path(vit_tutorial.__file__).parent, stem[:2]), _explained(stem))


def _few(names: list[str]) -> str:
    return ", ".join(names[:3]) + f" and {len(names) - 3} more" * (len(names) > 3)


def _zip(course: Path) -> None:
    """A student's pages, in one file that can be sent."""
    for folder in sorted((course / "feedback").iterdir()) if (course / "feedback").exists() else []:
        if folder.is_dir():
            target = course / "to_send" / f"{folder.name}.zip"
            target.parent.mkdir(exist_ok=True)
            with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
                for page in sorted(folder.glob("*.html")):
                    archive.write(page, page.name)


def _sum_up(rows: list[dict[str, Any]], course: Path) -> int:
    """The last line; how many that were handed in could not be graded."""
    missing = [row for row in rows if row["problem"] == NOT_HANDED_IN]
    failed = [row for row in rows if row["problem"] and row not in missing]
    names = ", ".join(f"{row['student']} {row['exercise'] or row['file']}" for row in failed[:5])
    names += f" and {len(failed) - 5} more" if len(failed) > 5 else ""
    waiting = sum(row["by hand"] for row in rows)
    said = [f"{len(rows) - len(missing)} handed in"]
    said += [f"{len(failed)} with a problem ({names})"] * bool(failed)
    said += [f"{len(missing)} not handed in"] * bool(missing)
    said += [f"{waiting} answers to mark by hand"] * bool(waiting)
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
    marking.add_argument(
        "--sandbox", default="", help=f"one of {', '.join(sandbox.KINDS)}; bwrap on Linux if none is said"
    )
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
