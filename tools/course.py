"""A course folder of nbgrader's: its settings, its gradebook, its feedback.

Nbgrader's own ``Execute`` would run students' code with the teacher's rights. :class:`FillIn` stands in its place, also
for ``nbgrader autograde`` in the course folder, and for formgrader's button.
"""

from __future__ import annotations

import logging
import shutil
import warnings
from pathlib import Path
from typing import Any

import sandbox
from examine import fill_in, read_json
from nbformat import NotebookNode

try:
    from nbgrader import api, dbutil
    from nbgrader.apps import NbGraderAPI
    from nbgrader.converters import Autograde
    from nbgrader.preprocessors import Execute, NbGraderPreprocessor
    from traitlets.config import Config
except ImportError as error:
    raise SystemExit("nbgrader is missing: make grade installs it, or pip install -e .[teach]") from error

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


class FillIn(NbGraderPreprocessor):  # type: ignore[misc]
    """Runs nothing: fills in what a notebook gave in the sandbox, when ``make grade`` ran it."""

    def preprocess(self, nb: NotebookNode, resources: Any) -> tuple[NotebookNode, Any]:
        of = resources["nbgrader"]
        outcome = read_json(outcome_of(Path.cwd(), of["student"], of["assignment"]))
        if "checks" not in outcome:
            raise RuntimeError("it hasn't been run in a sandbox yet: make grade does that")
        fill_in(nb, outcome)
        return nb, resources


def outcome_of(course: Path, student: str, stem: str) -> Path:
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
            SystemExit: nbgrader refuses.
        """
        target = self.folder / "source" / source.stem / source.name
        release = self.folder / "release" / source.stem / source.name
        if not target.exists() or target.read_bytes() != source.read_bytes() or not release.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
            done = self.nbgrader.generate_assignment(source.stem, force=True, create=True)
            if not done["success"]:
                target.unlink()
                raise SystemExit(f"nbgrader can't make {source.stem}:\n{done['log']}")
        return release

    def enter(self, student: str, stem: str, autograde: bool) -> str:
        """Let nbgrader enter a submission's marks and write its feedback; what went wrong, "" for nothing."""
        if autograde:
            done = self.nbgrader.autograde(stem, student)
            if not done["success"]:
                return _said(done)
        done = self.nbgrader.generate_feedback(stem, student)
        return "" if done["success"] else _said(done)

    def marks(self, student: str, stem: str) -> dict[str, Any]:
        """A submission's row: marks, of how many, how many wait for a hand, hours late, and each check's marks."""
        with self.gradebook as book:
            most = float(book.find_assignment(stem).max_score)
            try:
                submission = book.find_submission(stem, student)
            except api.MissingEntry:
                return {"marks": 0.0, "of": most, "by hand": 0, "hours late": 0.0}
            grades = [grade for notebook in submission.notebooks for grade in notebook.grades]
            return {
                "marks": float(submission.score),
                "of": most,
                "by hand": sum(bool(grade.needs_manual_grade) for grade in grades),
                "hours late": round(submission.total_seconds_late / 3600, 1),
            } | {grade.name: grade.score for grade in grades}


def _said(done: dict[str, str]) -> str:
    return "nbgrader can't grade it: " + " ".join((done.get("error") or done.get("log") or "").split())[-300:]
