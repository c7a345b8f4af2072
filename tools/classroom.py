"""The classroom: make the students' copies of the exercises, and grade what comes back. Needs nbgrader.

python tools/classroom.py assignments         notebooks/solutions/ -> notebooks/exercises/, by nbgrader
python tools/classroom.py grade               submitted/ -> classroom/: marks.csv, feedback/, and nbgrader's own folders
python tools/classroom.py refresh 01          run a solved source, and keep its outputs (as tools/lessons.py does)

submitted/ holds one folder a student, with notebooks anywhere in it whose names begin with that of an exercise:
submitted/ada/01_patches.ipynb, or nbgrader's submitted/ada/01_patches/01_patches.ipynb.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import dataclasses
import functools
import hashlib
import io
import json
import logging
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import threading
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import judge
import lessons
import nbformat
import psutil
import sandbox
from filelock import FileLock, Timeout

import vit_tutorial

ROOT = Path(__file__).resolve().parent.parent
SOLUTIONS, EXERCISES = ROOT / "notebooks" / "solutions", ROOT / "notebooks" / "exercises"
SECONDS_A_CELL = 60
GB = 1_000_000_000


def nbgrader(course: Path) -> Any:
    """Nbgrader's own interface to a course in a folder."""
    try:
        from nbgrader.apps import NbGraderAPI
        from traitlets.config import Config
    except ImportError as error:
        raise SystemExit("nbgrader is missing: make assignments installs it, or pip install -e .[classroom]") from error
    warnings.filterwarnings("ignore", module=r"nbgrader\.")  # of its own database queries
    # nbgrader calls alembic by name, and the environment that this runs in needn't be activated.
    os.environ["PATH"] = os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", os.defpath)])
    (course / "exchange").mkdir(parents=True, exist_ok=True)
    config = Config()
    config.CourseDirectory.root = str(course)
    config.Exchange.root = str(course / "exchange")  # else it complains of a missing system folder
    config.CourseDirectory.course_id = "vit_tutorial"
    config.Autograde.autograde_preprocessors = [_executed(course), *_without_running()]
    config.NbGraderAPI.log_level = logging.ERROR
    return NbGraderAPI(config=config)


def _without_running() -> list[Any]:
    from nbgrader.converters import Autograde
    from nbgrader.preprocessors import Execute

    usual = Autograde.class_traits()["autograde_preprocessors"].default()
    return [kind for kind in usual if kind is not Execute]


def sources(names: list[str]) -> list[Path]:
    """The solved sources whose file names begin with one of ``names``; all for none."""
    return lessons.find(names, SOLUTIONS)


def release(source: Path, course: Path, api: Any) -> Path:
    """Put a solved source into the course, and let nbgrader make the students' copy (and note it in its gradebook)."""
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


def submissions(folder: Path, stems: list[str]) -> Iterator[tuple[str, str, Path]]:
    """(student, exercise, file) of every notebook below ``folder`` with an exercise's name; of two, the newer."""
    found: dict[tuple[str, str], Path] = {}
    paths = [path for path in folder.rglob("*.ipynb") if _is_in(folder, path)]
    for path in sorted(paths, key=lambda path: path.stat().st_mtime):
        stem = next((stem for stem in stems if path.name.startswith(stem)), None)
        parts = path.relative_to(folder).parts
        if ".ipynb_checkpoints" in parts:
            continue
        if stem is None or len(parts) < 2:
            print(f"left out: {path.relative_to(folder)} (expected STUDENT/NN_….ipynb, with an exercise's name)")
            continue
        found[re.sub(r"[^\w.-]+", "_", parts[0]), stem] = path
    yield from ((student, stem, path) for (student, stem), path in sorted(found.items()))


def _is_in(folder: Path, path: Path) -> bool:
    """Whether a path is a file of its own: an archive can hold a link to somebody else's notebook."""
    parts = path.relative_to(folder).parts
    if path.is_file() and not any((folder / Path(*parts[: end + 1])).is_symlink() for end in range(len(parts))):
        return True
    print(f"left out: {path.relative_to(folder)} (a link, or no file)")
    return False


@dataclass(frozen=True)
class Grading:
    """How to grade: which sandbox, how many at a time, and what each may take."""

    kind: str
    workers: int
    limits: sandbox.Limits


def grade(folder: Path, course: Path, kind: str = "", workers: int = 0, limits: sandbox.Limits | None = None) -> int:
    """Grade what is new or changed in ``folder``, write marks.csv and feedback; return how many could not be graded.

    Each submission runs in a sandbox, and is judged outside. What was found is kept in ``course``/judged, a file a
    submission, written when it is whole: after a kill the next call goes on with the rest. The course folder keeps
    nbgrader's gradebook, too, so marks given by hand stay. A submission that can't be graded gets 0 marks and a line
    that says so; the others don't notice.

    Args:
        folder: holds one folder a student.
        course: where everything is kept.
        kind: one of :data:`sandbox.KINDS`, or "" for what this machine has.
        workers: how many sandboxes run at a time; 0 for as many as processors and memory allow.
        limits: what a submission may take.
    """
    kind = sandbox.choose(kind)
    how = Grading(kind, workers or _workers(), limits or sandbox.Limits(seconds=SECONDS_A_CELL))
    if kind in ("podman", "docker"):
        _build_image(kind)
    course.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(course / "grading.lock", timeout=0):
            return _grade(folder, course, how)
    except Timeout:
        raise SystemExit(f"{course} is being graded already: wait for it to end") from None


def _grade(folder: Path, course: Path, how: Grading) -> int:
    api = nbgrader(course)
    found = list(submissions(folder, [source.stem for source in sources([])]))
    for source in sources([]):
        if source.stem not in {stem for _, stem, _ in found}:
            continue
        released = course / "source" / source.stem / source.name
        if not released.exists() or released.read_bytes() != source.read_bytes():
            release(source, course, api)
    rows, failures = {}, 0
    stop = threading.Event()
    hidden = [path.resolve() for path in (ROOT, folder, course, Path.home())]
    with ThreadPoolExecutor(how.workers) as pool:
        waiting = {pool.submit(_run, course, *one, how, hidden, stop): one for one in found}
        try:
            for done in as_completed(waiting):
                student, stem, _ = waiting[done]
                problem = _record(api, course, student, stem, done.result())
                failures += bool(problem)
                rows[student, stem] = row = _row(api, course, student, stem, problem)
                note = "; ".join(filter(None, [problem, f"{row['by hand']} to mark by hand" * bool(row["by hand"])]))
                seconds = done.result().get("seconds", 0)
                print(f"{student:<24}{stem:<20}{row['marks']:>5} of {row['of']:<5}{seconds:6.1f} s  {note}", flush=True)
                if row["noticed"]:
                    print(f"{'':<24}noticed: {row['noticed']}", flush=True)
        except BaseException:
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    _write_csv([rows[key] for key in sorted(rows)], course / "marks.csv")
    return failures


def _workers() -> int:
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(processors, psutil.virtual_memory().available // (2 * GB)))


def _build_image(kind: str) -> None:
    with tempfile.TemporaryDirectory() as context:
        for path in (ROOT / "requirements.txt", ROOT / "tools" / "grading.Dockerfile"):
            shutil.copy(path, context)
        if subprocess.run(sandbox.build_image(kind, Path(context)), check=False).returncode:
            raise SystemExit(f"{kind} can't build the image that submissions run in, see above")


@functools.cache
def _judges() -> str:
    """What decides, as one hash: with other checks, or another judge, everything is judged again."""
    package = Path(vit_tutorial.__file__).parent
    files = [*sorted(package.rglob("*.py")), *(ROOT / "tools" / f"{name}.py" for name in ("judge", "runner", "wire"))]
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


def _kept(course: Path, student: str, stem: str) -> Path:
    return course / "judged" / student / f"{stem}.json"


def _run(
    course: Path, student: str, stem: str, path: Path, how: Grading, hidden: list[Path], stop: threading.Event
) -> dict[str, Any]:
    """What a submission did in its sandbox, new or kept from the last time."""
    source, released = (course / name / stem / f"{stem}.ipynb" for name in ("source", "release"))
    content = path.read_bytes() if path.stat().st_size <= judge.MOST_BYTES else b"too large"
    key = hashlib.sha256(content + source.read_bytes() + _judges().encode()).hexdigest()
    kept = _kept(course, student, stem)
    if kept.exists():
        found = json.loads(kept.read_text(encoding="utf-8"))
        if found["key"] == key and not found["problem"]:
            return found | {"seconds": 0}
    try:
        paper = judge.rebuild(judge.read(path), judge.read(released))
    except ValueError as error:
        return {"key": key, "problem": f"could not be graded: {error}"}
    work = judge.job(paper, judge.read(source), stem[:2])
    package = Path(vit_tutorial.__file__).resolve().parent
    ran = sandbox.run(how.kind, work, how.limits, package, hidden, stop)
    if stop.is_set():
        raise KeyboardInterrupt
    problem = f"could not be graded: {ran.problem}" if ran.problem else ""
    return {
        "key": key,
        "seconds": ran.seconds,
        "problem": problem,
        "paper": dataclasses.asdict(paper),
        "work": work,
        "messages": ran.messages,
    }


def _record(api: Any, course: Path, student: str, stem: str, found: dict[str, Any]) -> str:
    """Judge what was found, put it into nbgrader's gradebook, write the feedback; what went wrong, or ""."""
    kept = _kept(course, student, stem)
    if "paper" not in found and "cells" not in found:
        _fail(api, course, student, stem, found["problem"])
        return found["problem"]
    if "cells" not in found:
        verdict = judge.decide(judge.Paper(**found["paper"]), found["work"], found["messages"], found["problem"])
        found = {key: found[key] for key in ("key", "seconds", "problem")} | {
            "cells": found["paper"]["cells"],
            "outputs": verdict.outputs,
            "notes": verdict.notes,
            "in the gradebook": False,
        }
        write(kept, json.dumps(found))
    if not found["in the gradebook"]:
        write(course / "submitted" / student / stem / f"{stem}.ipynb", nbformat.writes(_notebook(found["cells"])))
        done = api.autograde(stem, student, force=True)
        if not done["success"]:
            return _fail(api, course, student, stem, "could not be graded by nbgrader", done["log"])
        write(kept, json.dumps(found | {"in the gradebook": True}))
    done = api.generate_feedback(stem, student, force=True)
    return found["problem"] or ("" if done["success"] else "has no feedback")


def _fail(api: Any, course: Path, student: str, stem: str, problem: str, log: str = "") -> str:
    """Note why a submission has no marks; what an earlier one of the same student got doesn't count any more."""
    write(course / "failed" / f"{student}_{stem}.txt", f"{problem}\n{log}")
    _kept(course, student, stem).unlink(missing_ok=True)
    with api.gradebook as gradebook, contextlib.suppress(_missing()):
        gradebook.remove_submission(stem, student)
    return problem


def _notebook(cells: list[dict[str, Any]]) -> nbformat.NotebookNode:
    """The notebook that nbgrader gets: the teacher's, with the student's answers."""
    made = []
    for number, cell in enumerate(cells):
        new = nbformat.v4.new_code_cell if cell["cell_type"] == "code" else nbformat.v4.new_markdown_cell
        metadata = {"nbgrader": cell["nbgrader"]} if cell["nbgrader"] else {}
        made.append(new(cell["source"], metadata=metadata, id=cell["id"] or f"added-{number}"))
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return nbformat.v4.new_notebook(cells=made, metadata={"kernelspec": kernel, "language_info": {"name": "python"}})


def _executed(course: Path) -> type:
    """For nbgrader's autograde, in place of what runs a notebook: it puts in the outputs that were judged."""
    from nbgrader.preprocessors import NbGraderPreprocessor

    class Executed(NbGraderPreprocessor):
        def preprocess(self, nb: Any, resources: Any) -> tuple[Any, Any]:
            info = resources["nbgrader"]
            found = json.loads(_kept(course, info["student"], info["assignment"]).read_text(encoding="utf-8"))
            code = [cell for cell in nb.cells if cell.cell_type == "code"]
            for cell, (count, outputs) in zip(code, found["outputs"], strict=True):
                cell.execution_count = count
                cell.outputs = [nbformat.from_dict(output) for output in outputs]
            return nb, resources

    return Executed


def write(path: Path, text: str) -> None:
    """Write a file, which is never seen half-written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.tmp")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)


def _missing() -> type[Exception]:
    from nbgrader.api import MissingEntry

    missing: type[Exception] = MissingEntry
    return missing


def _row(api: Any, course: Path, student: str, stem: str, problem: str) -> dict[str, Any]:
    """A row of the table."""
    kept = _kept(course, student, stem)
    notes = json.loads(kept.read_text(encoding="utf-8"))["notes"] if kept.exists() else []
    return _marks(api, student, stem) | {"problem": problem, "noticed": "; ".join(notes)}


def _marks(api: Any, student: str, stem: str) -> dict[str, Any]:
    """A row of the table: the marks so far, how many of them wait for a hand, and those of each exercise."""
    with api.gradebook as gradebook:
        row = {"student": student, "exercise": stem, "marks": 0.0, "of": gradebook.find_assignment(stem).max_score}
        try:
            submission = gradebook.find_submission(stem, student)
        except _missing():
            return row | {"by hand": 0}
        row |= {"marks": submission.score, "by hand": 0}
        for notebook in submission.notebooks:
            row["by hand"] += sum(grade.needs_manual_grade for grade in notebook.grades)
            row |= {grade.cell.name: grade.score for grade in notebook.grades}
    return row


def _write_csv(rows: list[dict[str, Any]], path: Path) -> None:
    first = ["student", "exercise", "marks", "of", "by hand", "problem", "noticed"]
    names = [*first, *dict.fromkeys(name for row in rows for name in row if name not in first)]
    table = io.StringIO(newline="")
    writer = csv.DictWriter(table, names)
    writer.writeheader()
    writer.writerows({name: _cell(value) for name, value in row.items()} for row in rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.tmp")
    temporary.write_text(table.getvalue(), encoding="utf-8", newline="")
    temporary.replace(path)
    print(f"{len(rows)} submissions: {path.name} and feedback/ are in {path.parent.name}/")


def _cell(value: Any) -> Any:
    """A value of the table; a spreadsheet must not take a student's text for a formula."""
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@")) else value


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
    return int(grade(arguments.submitted, arguments.course, arguments.sandbox, arguments.workers) > 0)


if __name__ == "__main__":
    sys.exit(main())
