"""The classroom: make the students' copies of the exercises, and grade what comes back. Needs nbgrader.

python tools/classroom.py assignments         notebooks/solutions/ -> notebooks/exercises/, by nbgrader
python tools/classroom.py grade               submitted/ -> classroom/: marks.csv, feedback/, and nbgrader's own folders
python tools/classroom.py refresh 01          run a solved source, and keep its outputs (as tools/lessons.py does)

submitted/ holds one folder a student, with notebooks anywhere in it whose names begin with that of an exercise:
submitted/ada/01_patches.ipynb, or nbgrader's submitted/ada/01_patches/01_patches.ipynb.
"""

from __future__ import annotations

import argparse
import csv
import logging
import os
import re
import shutil
import sys
import sysconfig
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lessons

ROOT = Path(__file__).resolve().parent.parent
SOLUTIONS, EXERCISES = ROOT / "notebooks" / "solutions", ROOT / "notebooks" / "exercises"
SECONDS_A_CELL = 60


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
    config.Execute.timeout = SECONDS_A_CELL
    config.Execute.extra_arguments = ["--log-level=ERROR", "--HistoryManager.hist_file=:memory:"]
    config.NbGraderAPI.log_level = logging.ERROR
    return NbGraderAPI(config=config)


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
    for path in sorted(folder.rglob("*.ipynb"), key=lambda path: path.stat().st_mtime):
        stem = next((stem for stem in stems if path.name.startswith(stem)), None)
        parts = path.relative_to(folder).parts
        if ".ipynb_checkpoints" in parts:
            continue
        if stem is None or len(parts) < 2:
            print(f"left out: {path.relative_to(folder)} (expected STUDENT/NN_….ipynb, with an exercise's name)")
            continue
        found[re.sub(r"[^\w.-]+", "_", parts[0]), stem] = path
    yield from ((student, stem, path) for (student, stem), path in sorted(found.items()))


def grade(folder: Path, course: Path) -> int:
    """Grade what is new or changed in ``folder``, write marks.csv and feedback; return how many could not be graded.

    The course folder keeps nbgrader's gradebook, so marks given by hand stay. A submission that can't be graded gets
    0 marks and a line that says so; the others don't notice.
    """
    api = nbgrader(course)
    for source in sources([]):
        released = course / "source" / source.stem / source.name
        if not released.exists() or released.read_bytes() != source.read_bytes():
            release(source, course, api)
    rows, failures = [], 0
    for student, stem, path in submissions(folder, [source.stem for source in sources([])]):
        start = time.perf_counter()
        problem = _autograde(api, course, student, stem, path)
        failures += bool(problem)
        row = _marks(api, student, stem) | {"problem": problem} | ({"by hand": 0} if problem else {})
        rows.append(row)
        note = problem or f"{row['by hand']} to mark by hand" * bool(row["by hand"])
        seconds = time.perf_counter() - start
        print(f"{student:<24}{stem:<20}{row['marks']:>5} of {row['of']:<5}{seconds:6.1f} s  {note}", flush=True)
    _write_csv(rows, course / "marks.csv")
    return failures


def _autograde(api: Any, course: Path, student: str, stem: str, path: Path) -> str:
    """Grade one submission and write its feedback; what went wrong, or ""."""
    target = course / "submitted" / student / stem / f"{stem}.ipynb"
    graded = course / "autograded" / student / stem / f"{stem}.ipynb"
    new = not target.exists() or target.read_bytes() != path.read_bytes()
    if new:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    if new or not graded.exists():
        done = api.autograde(stem, student, force=True)
        if not done["success"]:
            log = course / "failed" / f"{student}_{stem}.txt"
            log.parent.mkdir(exist_ok=True)
            log.write_text(done["log"], encoding="utf-8")
            return f"could not be graded, see {log.relative_to(course).as_posix()}"
    done = api.generate_feedback(stem, student, force=True)
    return "" if done["success"] else "has no feedback"


def _marks(api: Any, student: str, stem: str) -> dict[str, Any]:
    """A row of the table: the marks so far, how many of them wait for a hand, and those of each exercise."""
    from nbgrader.api import MissingEntry

    with api.gradebook as gradebook:
        row = {"student": student, "exercise": stem, "marks": 0.0, "of": gradebook.find_assignment(stem).max_score}
        try:
            submission = gradebook.find_submission(stem, student)
        except MissingEntry:
            return row | {"by hand": 0}
        row |= {"marks": submission.score, "by hand": 0}
        for notebook in submission.notebooks:
            row["by hand"] += sum(grade.needs_manual_grade for grade in notebook.grades)
            row |= {grade.cell.name: grade.score for grade in notebook.grades}
    return row


def _write_csv(rows: list[dict[str, Any]], path: Path) -> None:
    first = ["student", "exercise", "marks", "of", "by hand", "problem"]
    names = [*first, *dict.fromkeys(name for row in rows for name in row if name not in first)]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerows(rows)
    print(f"{len(rows)} submissions: {path.name} and feedback/ are in {path.parent.name}/")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("assignments", "refresh"):
        commands.add_parser(name).add_argument("names", nargs="*", help="beginnings of file names; none means all")
    marking = commands.add_parser("grade")
    marking.add_argument("--submitted", type=Path, default=ROOT / "submitted")
    marking.add_argument("--course", type=Path, default=ROOT / "classroom")
    arguments = parser.parse_args()
    if arguments.command == "assignments":
        assignments(arguments.names)
        return 0
    if arguments.command == "refresh":
        return int(refresh(arguments.names) > 0)
    if not arguments.submitted.is_dir():
        raise SystemExit(f"there is no folder {arguments.submitted}: put one folder a student in it")
    return int(grade(arguments.submitted, arguments.course) > 0)


if __name__ == "__main__":
    sys.exit(main())
