"""What a lesson's checks are made of, and :func:`check`, which runs one.

A check goes through four steps, each a module: ``observe`` what a work gives on a case, ``run`` it on all cases beside
the reference, ``diagnose`` what is wrong, ``report`` it. Whatever a student's code does, it stays in there.
"""

from __future__ import annotations

import contextlib
import functools
import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from vit_tutorial.checks.capture import quiet
from vit_tutorial.checks.declare import Case, Exercise, Fault, Forbidden, Hashed, Mistake, Result, Words, section
from vit_tutorial.checks.diagnose import named
from vit_tutorial.checks.observe import (
    SECOND,
    adopt,
    answers,
    as_left,
    at_once,
    built,
    call,
    changed,
    copied,
    filled,
    layer,
    normal,
    of_its_own,
    random_weights,
    same_shape,
)
from vit_tutorial.checks.record import note
from vit_tutorial.checks.report import report, wrapped
from vit_tutorial.checks.run import UNWRITTEN, Outcome, Record, Tried, attempt, compared, plain_settings, try_out
from vit_tutorial.checks.watch import borrowed, students_line

__all__ = [
    "SECOND",
    "Case",
    "Exercise",
    "Fault",
    "Forbidden",
    "Grade",
    "Hashed",
    "Mistake",
    "Result",
    "Words",
    "adopt",
    "answers",
    "as_left",
    "at_once",
    "attempt",
    "built",
    "call",
    "changed",
    "check",
    "check_of",
    "check_results",
    "copied",
    "filled",
    "grade",
    "layer",
    "named",
    "normal",
    "of_its_own",
    "random_weights",
    "same_shape",
    "section",
    "students_line",
]


@dataclass(frozen=True)
class Grade:
    """What the check of an exercise found.

    Args:
        passed: whether the work is right.
        points: what it earns: the exercise's points, or 0.
        report: what a student reads.
    """

    passed: bool
    points: int
    report: str


def grade(exercise: Exercise, work: Any) -> Grade:
    """Run the check of one exercise on a work, and print nothing."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        passed = check(exercise, work)
    return Grade(passed, exercise.points * passed, printed.getvalue())


def check(exercise: Exercise, work: Any, *, watched: bool = True, record: Record | None = None) -> bool:
    """Try a student's work and print what was found; whether it is right. Never raises for its faults.

    Args:
        exercise: what was asked for.
        work: the student's.
        watched: False leaves out the look at what the work calls: for implementations of the checks' own.
        record: gets each case and its result, or its fault, as soon as there is one.
    """
    if watched and (theirs := borrowed(work, exercise)):
        print("\n".join([f"{exercise.name}: not yet", wrapped(theirs)]))
        note(exercise, "not yet")
        return False
    with plain_settings():
        return _conclude(try_out(exercise, work, watched, record))


@functools.cache
def check_of(exercise: Exercise) -> Callable[[Any], bool]:
    """The function ``check_…`` of an exercise, which tries a work: see :func:`check`."""

    def its_check(work: Any) -> bool:
        return check(exercise, work)

    its_check.__name__ = its_check.__qualname__ = f"check_{exercise.name}"
    its_check.__doc__ = f"Check {exercise.takes}."
    return its_check


def check_results(exercise: Exercise, outcomes: list[Outcome]) -> bool:
    """As :func:`check`, of what a work gave somewhere else: a result or a fault for each case, in their order."""
    with plain_settings():
        return _conclude(compared(exercise, outcomes))


def _conclude(tried: Tried) -> bool:
    """Print the report on a work that was tried, and note the verdict for ``progress``; whether it is right."""
    right = not tried.wrong
    unwritten = all(verdict == UNWRITTEN for verdict in tried.verdicts)
    with quiet():  # a diagnosis may run the work again
        text = report(tried)
    print(text)
    note(tried.exercise, "right" if right else "not written yet" if unwritten else "not yet")
    return right
