"""A submission's marks: run it in a sandbox, let nbgrader enter the result into a course folder.

Nbgrader's own ``Execute`` would run students' code with the teacher's rights. :class:`FillIn` stands in its place, also
for ``nbgrader autograde`` in the course folder, and for formgrader's button.
"""

from __future__ import annotations

import functools
import json
import logging
import re
import shutil
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import nbformat
import sandbox
from lessons import SOLUTIONS, write
from messages import CheckedFunction, ChecksMessage, NotebookCell, NotebookMessage
from nbformat import NotebookNode
from nbgrader import api, dbutil
from nbgrader.apps import NbGraderAPI
from nbgrader.converters import Autograde
from nbgrader.preprocessors import Execute, NbGraderPreprocessor
from sandbox import GradingError, Kind, Limits
from student_notebooks import as_plain, clean, is_check, name_of, one_line, without_hidden
from traitlets.config import Config

# The contract of the exercise notebooks, this module and check_submission.py: a check's cell has such a line.
CHECK = re.compile(r"assert checks\.check_(?P<check>\w+)\((?P<function>\w+)\)")
PICTURE = re.compile(r"[\w+/=\s]{100,}", re.ASCII)  # in base64: nothing that ends an attribute of HTML

SETTINGS = """import sys

sys.path.insert(0, {tools!r})
from course import configure

configure(get_config())  # noqa: F821
"""

SERVER = """c = get_config()  # noqa: F821
# What students wrote is shown as text alone. Should anything slip through, a browser loads nothing from elsewhere.
POLICY = (
    "default-src 'self' 'unsafe-inline' 'unsafe-eval' data: blob:; object-src 'none'; "
    "form-action 'self'; base-uri 'self'; frame-ancestors 'self'"
)
c.ServerApp.tornado_settings = {"headers": {"Content-Security-Policy": POLICY}}
"""


@dataclass(frozen=True)
class CheckMark:
    """What a check found, of which nothing is believed any more than its type."""

    passed: bool = False
    report: str = "There was nothing to check.\n"


@dataclass(frozen=True)
class Outcome:
    """What a submission gave, as the course folder keeps it in graded/.

    Args:
        outputs: of each code cell.
        checks: by the name of the check's cell.
        notes: what the teacher should know.
        problem: why it couldn't be graded, "" if it could.
        entered: whether its marks are in the gradebook.
    """

    outputs: list[list[NotebookNode]] = field(default_factory=list)
    checks: dict[str, CheckMark] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    problem: str = ""
    entered: bool = False

    @classmethod
    def read(cls, path: Path) -> Outcome | None:
        """The outcome that a file holds; None without one."""
        try:
            values = json.loads(path.read_text("utf-8"))
            checks = {name: CheckMark(**result) for name, result in values.pop("checks").items()}
            return cls(**values, checks=checks)
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def write(self, path: Path) -> None:
        """Replace the file in one step."""
        write(path, json.dumps(asdict(self)))


# ---- Running and checking ----------------------------------------------------------------------------------------


def examine(notebook: NotebookNode, stem: str, kind: Kind, limits: Limits) -> Outcome:
    """Run a rebuilt notebook and its checks in a sandbox; never raises for what a submission does."""
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    checks = {name_of(cell): match for cell in code if is_check(cell) and (match := CHECK.search(cell.source))}
    hidden, given = _source(stem)
    notebook_message: NotebookMessage = {
        "cells": [_as_run(cell) for cell in code],
        "lesson": stem[:2],
        "cell_seconds": limits.cell_seconds,
    }
    checks_message: ChecksMessage = {
        "checks": [{**_checked(match), "hidden": hidden[name]} for name, match in checks.items()],
        "given": given,
        "check_seconds": limits.check_seconds,
    }
    try:
        answer = sandbox.run((notebook_message, checks_message), kind, limits)
    except sandbox.SandboxStopped as stopped:
        answer = {"problem": str(stopped)}
    answer = answer if isinstance(answer, dict) else {"problem": "what its process answered can't be read"}
    outputs, marks = answer.get("outputs"), answer.get("checks")
    outputs = outputs if isinstance(outputs, list) else []
    marks = marks if isinstance(marks, dict) else {}
    return Outcome(
        outputs=[list(text_and_pictures(of_cell)) for of_cell in outputs[: len(code)]],
        checks={name: _mark(marks.get(match["check"])) for name, match in checks.items()},
        problem=one_line(answer.get("problem", ""), 300),
    )


def _as_run(cell: NotebookNode) -> NotebookCell:
    """A cell as a sandbox runs it: of a check, which function is to be saved; of the table of marks, nothing."""
    if is_check(cell) and (match := CHECK.search(cell.source)):
        return {"source": "", "check": _checked(match)}
    return {"source": "" if is_check(cell) or name_of(cell) == "given-progress" else cell.source}


def _checked(match: re.Match[str]) -> CheckedFunction:
    return {"check": match["check"], "function": match["function"]}


def _mark(answer: Any) -> CheckMark:
    """What a sandbox says of a check, which may be anything."""
    if not isinstance(answer, dict):
        return CheckMark()
    return CheckMark(answer.get("passed") is True, clean(answer.get("report", ""), 50_000))


@functools.cache
def _source(stem: str) -> tuple[dict[str, str], str]:
    """Of an exercise's solved source the hidden tests by their cells' names, and the code that students are given."""
    cells = [cell for cell in nbformat.read(SOLUTIONS / f"{stem}.ipynb", 4).cells if cell.cell_type == "code"]
    hidden = {name_of(cell): without_hidden(cell.source)[1] for cell in cells}
    given = [cell.source for cell in cells if name_of(cell).startswith("given") and "progress" not in cell.source]
    return hidden, "\n".join(given) + "\n"


def text_and_pictures(outputs: Any) -> Iterator[NotebookNode]:
    """The texts and pictures among a cell's outputs. No HTML, which could run a script in the teacher's browser."""
    for output in outputs[:100] if isinstance(outputs, list) else []:
        kind = output.get("output_type") if isinstance(output, dict) else ""
        if kind == "stream":
            name = "stderr" if output.get("name") == "stderr" else "stdout"
            yield nbformat.v4.new_output("stream", name=name, text=clean(output.get("text", ""), 100_000))
        elif kind == "error":
            lines = output.get("traceback")
            traceback = [clean(line, 5_000) for line in lines[:60]] if isinstance(lines, list) else []
            words = {key: clean(output.get(key, ""), 2_000) for key in ("ename", "evalue")}
            yield nbformat.v4.new_output("error", traceback=traceback, **words)
        elif kind in ("display_data", "execute_result") and isinstance(output.get("data"), dict):
            data = {"text/plain": clean(output["data"].get("text/plain", ""), 100_000)}
            if PICTURE.fullmatch(str(output["data"].get("image/png"))):
                data["image/png"] = str(output["data"]["image/png"])
            # As display_data: nbgrader reads marks out of a check's execute_result.
            yield nbformat.v4.new_output("display_data", data)


def fill_in(notebook: NotebookNode, outcome: Outcome) -> None:
    """Put the outputs into a notebook, as nbgrader reads marks from them: a check that isn't passed has an error."""
    outputs = iter(nbformat.from_dict(outcome.outputs))
    for number, cell in enumerate(cell for cell in notebook.cells if cell.cell_type == "code"):
        cell.outputs, cell.execution_count = next(outputs, []), number + 1
        if is_check(cell):
            cell.source = without_hidden(cell.source)[0].strip()  # feedback would show them
            result = outcome.checks.get(name_of(cell), CheckMark(report=""))
            cell.outputs = [] if result.passed else [out for out in cell.outputs if out["output_type"] == "error"]
            cell.outputs += [nbformat.v4.new_output("stream", name="stdout", text=result.report)]
            if not result.passed:
                text = "not right yet"
                cell.outputs += [nbformat.v4.new_output("error", ename="Check", evalue=text, traceback=[text])]
    if outcome.problem:
        notebook.cells.insert(0, nbformat.v4.new_markdown_cell(as_plain(f"What went wrong: {outcome.problem}")))


# ---- Nbgrader ----------------------------------------------------------------------------------------------------


class FillIn(NbGraderPreprocessor):
    """Runs nothing: fills in what a notebook gave in the sandbox, when ``make grade`` ran it."""

    def preprocess(self, nb: NotebookNode, resources: Any) -> tuple[NotebookNode, Any]:
        names = resources["nbgrader"]
        outcome = Outcome.read(outcome_path(Path.cwd(), names["student"], names["assignment"]))
        if outcome is None:
            raise RuntimeError("it hasn't been run in a sandbox yet: make grade does that")
        fill_in(nb, outcome)
        return nb, resources


def outcome_path(course: Path, student: str, stem: str) -> Path:
    """Where ``make grade`` keeps what a submission gave."""
    return course / "graded" / student / f"{stem}.json"


def configure(config: Any) -> Any:
    """Nbgrader's settings for a course."""
    config.CourseDirectory.course_id = "vit_tutorial"
    steps = Autograde.autograde_preprocessors.default()
    config.Autograde.autograde_preprocessors = [FillIn if step is Execute else step for step in steps]
    return config


class Course:
    """A course folder, made if it isn't there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        # nbgrader would start alembic by name, three seconds for each new gradebook.
        from alembic.script import ScriptDirectory

        api.get_alembic_version = ScriptDirectory(dbutil.ALEMBIC_DIR).get_current_head
        logging.getLogger("alembic").setLevel(logging.ERROR)
        warnings.filterwarnings("ignore", module=r"nbgrader\.")  # of its own database queries
        (self.folder / "exchange").mkdir(parents=True, exist_ok=True)
        (self.folder / "nbgrader_config.py").write_text(SETTINGS.format(tools=str(sandbox.TOOLS)), "utf-8")
        (self.folder / "jupyter_server_config.py").write_text(SERVER, "utf-8")  # for formgrader
        config = configure(Config())
        config.CourseDirectory.root = str(self.folder)
        config.Exchange.root = str(self.folder / "exchange")  # else it complains of a missing system folder
        config.NbGraderAPI.log_level = logging.ERROR
        self.nbgrader = NbGraderAPI(config=config)

    @property
    def gradebook(self) -> Any:
        """Nbgrader's gradebook, to be opened by ``with``."""
        return api.Gradebook(f"sqlite:///{self.folder}/gradebook.db", "vit_tutorial")

    def generate(self, source: Path) -> Path:
        """Let nbgrader make the students' copy of a solved source, if it has changed.

        Raises:
            GradingError: nbgrader refuses.
        """
        target = self.folder / "source" / source.stem / source.name
        release = self.folder / "release" / source.stem / source.name
        if not target.exists() or target.read_bytes() != source.read_bytes() or not release.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
            done = self.nbgrader.generate_assignment(source.stem, force=True, create=True)
            if not done["success"]:
                target.unlink()
                raise GradingError(f"nbgrader can't make {source.stem}:\n{done['log']}")
        return release

    def enter(self, student: str, stem: str, autograde: bool) -> str:
        """Let nbgrader enter a submission's marks and write its feedback; what went wrong, "" for nothing."""
        steps = [self.nbgrader.autograde] if autograde else []
        for step in [*steps, self.nbgrader.generate_feedback]:
            done = step(stem, student)
            if not done["success"]:
                reason = done.get("error") or done.get("log") or ""
                return f"nbgrader can't grade it: {' '.join(reason.split())[-300:]}"
        return ""

    def marks(self, student: str, stem: str) -> dict[str, Any]:
        """A submission's row: marks, of how many, how many wait for a hand, hours late, and each check's marks."""
        with self.gradebook as book:
            max_score = float(book.find_assignment(stem).max_score)
            try:
                submission = book.find_submission(stem, student)
            except api.MissingEntry:
                return {"marks": 0.0, "of": max_score, "by hand": 0, "hours late": 0.0}
            grades = [grade for notebook in submission.notebooks for grade in notebook.grades]
            return {
                "marks": float(submission.score),
                "of": max_score,
                "by hand": sum(bool(grade.needs_manual_grade) for grade in grades),
                "hours late": round(submission.total_seconds_late / 3600, 1),
            } | {grade.name: grade.score for grade in grades}
