"""The one format for what students might hand in; ``solutions_NN.py`` has two tables of such submissions.

``RIGHT[exercise]`` is a tuple of those that no check may refuse. ``WRONG[exercise]`` is a list of :class:`Wrong`.
"""

import contextlib
import io
from dataclasses import dataclass
from typing import Any

from vit_tutorial.checks import CATALOGUE, engine


@dataclass(frozen=True)
class Wrong:
    """A wrong submission, and what its report must say.

    Args:
        label: what is wrong with it, in a few words.
        submission: a function, a class, or for questions a dictionary of answers.
        says: words that the report must have; "" if being refused is all that matters.
        never: words that the report must not have, because they are not true of this submission.
    """

    label: str
    submission: Any
    says: str = ""
    never: str = ""


def hand_in(exercise: str, submission: Any, may_call_anything: bool = False) -> tuple[bool, str]:
    """Whether the check of an exercise finds a submission right, and its report on one line."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        grade = engine.grade(CATALOGUE[exercise], submission, may_call_anything)
    assert out.getvalue() == "", "a grade prints nothing: nbgrader takes what is on stderr for a failure"
    return grade.passed, " ".join(grade.report.split())
