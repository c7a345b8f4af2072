"""The one format for works that students might hand in; ``solutions_NN.py`` has two tables of them, RIGHT and WRONG.

``RIGHT[exercise]`` is a tuple of works that no check may refuse. ``WRONG[exercise]`` is a list of :class:`Wrong`.
"""

import contextlib
import importlib
import io
from dataclasses import dataclass
from typing import Any

from vit_tutorial.checks import CATALOGUE, harness


@dataclass(frozen=True)
class Wrong:
    """A wrong work, and what its report must say.

    Args:
        label: what is wrong with it, in a few words.
        work: a function, a class, or for questions a dictionary of answers.
        says: words that the report must have; "" if being refused is all that matters.
        never: words that the report must not have, because they are not true of this work.
    """

    label: str
    work: Any
    says: str = ""
    never: str = ""


def hand_in(exercise: str, work: Any) -> tuple[bool, str]:
    """Whether the check of an exercise finds a work right, and what it prints."""
    out, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        passed = harness.check(CATALOGUE[exercise], work)
    assert errors.getvalue() == "", "nbgrader takes what is on stderr for a failure"
    return passed, out.getvalue()


def on_one_line(text: str) -> str:
    """A report without its line breaks, to look for words in it."""
    return " ".join(text.split())


def answers(exercise: str) -> dict[str, Any]:
    """The right answers to an exercise of questions: the package has them as hashes alone."""
    solutions = importlib.import_module(f"solutions_{CATALOGUE[exercise].lesson}")
    return dict(solutions.RIGHT[exercise][0]())
