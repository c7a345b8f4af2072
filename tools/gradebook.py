"""Marks in nbgrader's gradebook, so that formgrader shows them and takes those that are given by hand.

nbgrader's own ``autograde`` is not used: it would run students' code, and it refuses an exercise whose cells have
changed after somebody handed in.
"""

from __future__ import annotations

import json
import logging
import warnings
from pathlib import Path
from typing import Any

Cell = dict[str, Any]
SERVER = """c = get_config()  # noqa: F821
# What students wrote is shown as text alone. Should anything slip through, a browser loads nothing from elsewhere.
POLICY = (
    "default-src 'self' 'unsafe-inline' 'unsafe-eval' data: blob:; object-src 'none'; "
    "form-action 'self'; base-uri 'self'; frame-ancestors 'self'"
)
c.ServerApp.tornado_settings = {"headers": {"Content-Security-Policy": POLICY}}
"""
COURSE = 'c = get_config()  # noqa: F821\nc.CourseDirectory.course_id = "vit_tutorial"\n'


def prepare_nbgrader() -> None:
    """Its gradebooks' version is read here: nbgrader would start alembic by name, three seconds for each new one."""
    from alembic.script import ScriptDirectory
    from nbgrader import api, dbutil

    warnings.filterwarnings("ignore", module=r"nbgrader\.")  # of its own database queries
    logging.getLogger("alembic").setLevel(logging.ERROR)
    api.get_alembic_version = ScriptDirectory(dbutil.ALEMBIC_DIR).get_current_head


class Book:
    """The gradebook of a course folder."""

    def __init__(self, course: Path) -> None:
        try:
            from nbgrader import api
        except ImportError as error:
            raise SystemExit("nbgrader is missing: make grade installs it, or pip install -e .[teach]") from error
        prepare_nbgrader()
        course.mkdir(parents=True, exist_ok=True)
        for name, text in (("jupyter_server_config.py", SERVER), ("nbgrader_config.py", COURSE)):
            if not (course / name).exists():
                (course / name).write_text(text, encoding="utf-8")
        self.api = api
        self.gradebook = api.Gradebook(f"sqlite:///{course.resolve()}/gradebook.db", "vit_tutorial")

    def __enter__(self) -> Book:
        return self

    def __exit__(self, *_: object) -> None:
        self.gradebook.close()

    def prepare(self, stem: str, release: list[Cell]) -> list[str]:
        """Make the gradebook know an exercise as it is now; what becomes of those that it knew otherwise, in sentences.

        Points may have changed, and cells come or gone: marks given by hand stay, but for cells that are no more.
        """
        book, said = self.gradebook, []
        book.update_or_create_assignment(stem)
        book.update_or_create_notebook(stem, stem, kernelspec=json.dumps({"name": "python3", "language": "python"}))
        graded = {cell["nbgrader"]["grade_id"]: cell for cell in release if cell["nbgrader"].get("grade")}
        written = {cell["nbgrader"]["grade_id"] for cell in release if cell["nbgrader"].get("solution")}
        notebook = book.find_notebook(stem, stem)
        for cell in [*notebook.grade_cells, *notebook.solution_cells]:
            if cell.name not in (graded if cell in notebook.grade_cells else written):
                lost = [grade.manual_score for grade in getattr(cell, "grades", []) if grade.manual_score is not None]
                said.append(f"{stem}: {cell.name} is dropped" + f", with {len(lost)} marks by hand" * bool(lost))
                for part in (*getattr(cell, "grades", ()), *getattr(cell, "comments", ())):
                    book.db.delete(part)
                book.db.delete(cell)
        book.db.commit()
        for name, cell in graded.items():
            points = float(cell["nbgrader"]["points"])
            book.update_or_create_grade_cell(name, stem, stem, max_score=points, cell_type=cell["cell_type"])
        for name in written:
            book.update_or_create_solution_cell(name, stem, stem)
        book.db.refresh(notebook)
        for submission in notebook.submissions:
            known = {grade.cell_id for grade in submission.grades}
            commented = {comment.cell_id for comment in submission.comments}
            for one in notebook.grade_cells:
                if one.id not in known:
                    book.db.add(self.api.Grade(cell_id=one.id, notebook=submission))
            for one in notebook.solution_cells:
                if one.id not in commented:
                    book.db.add(self.api.Comment(cell_id=one.id, notebook=submission))
        book.db.commit()
        return said

    def enter(self, student: str, name: str, stem: str, passed: dict[str, bool], answers: dict[str, Any]) -> None:
        """Put a submission's marks in.

        Args:
            student: the id.
            name: the name, as the class list has it.
            stem: the exercise.
            passed: of each check, whether it is passed.
            answers: of each answer that is marked by hand, "empty", "new", or "old" if it was there before.
        """
        book = self.gradebook
        book.update_or_create_student(student, first_name=name if name != student else None)
        submission = book.update_or_create_submission(stem, student)
        for grade in submission.notebooks[0].grades:
            if grade.name in answers:
                state = answers[grade.name]
                grade.auto_score = 0.0 if state == "empty" else None
                if state == "empty":
                    grade.needs_manual_grade = grade.manual_score is not None
                elif state == "new" or grade.manual_score is None:
                    grade.needs_manual_grade = True
            else:
                grade.auto_score = grade.cell.max_score if passed.get(grade.name) else 0.0
                grade.needs_manual_grade = False
        book.db.commit()

    def marks(self, student: str, stem: str) -> list[dict[str, Any]]:
        """Of each graded cell its name, score, the most, whether it waits for a hand, and the teacher's comment.

        ``earlier`` is whether a score that waits is the mark of an earlier answer.
        """
        book = self.gradebook
        try:
            submission = book.find_submission(stem, student)
        except self.api.MissingEntry:
            return []
        (notebook,) = submission.notebooks
        said = {comment.name: comment.comment for comment in notebook.comments}
        return [
            {
                "name": grade.name,
                "score": grade.score,
                "of": grade.cell.max_score,
                "waits": grade.needs_manual_grade,
                "earlier": grade.needs_manual_grade and grade.manual_score is not None,
                "comment": said.get(grade.name) or "",
            }
            for grade in notebook.grades
        ]

    def most(self, stem: str) -> float:
        """The most marks of an exercise."""
        return float(self.gradebook.find_assignment(stem).max_score)
