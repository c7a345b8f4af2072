"""Check a student's work: run it, compare, report."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from vit_tutorial.checks.engine.exercise import Exercise
from vit_tutorial.checks.engine.forbidden import borrowed
from vit_tutorial.checks.engine.progress import note
from vit_tutorial.checks.engine.report import report, unwritten, wrapped
from vit_tutorial.checks.engine.run import references, try_out

INCOMPARABLE = "The result can't be compared: return what the exercise asks for. The comparison ended with a "


@dataclass(frozen=True)
class Grade:
    """What the check of an exercise found.

    Args:
        passed: whether the work is right.
        points: what it earns: the exercise's points, or 0.
        verdict: "right", "not yet" or "not written yet".
        report: what a student reads.
    """

    passed: bool
    points: int
    verdict: str
    report: str


def grade(exercise: Exercise, work: Any, watched: bool = True) -> Grade:
    """Run the check of one exercise on a work. Never raises for a fault of the work.

    Args:
        exercise: what was asked for.
        work: the student's.
        watched: False allows what the exercise forbids: for implementations of the checks' own.
    """
    if watched and (sentence := borrowed(work)):
        return Grade(False, 0, "not yet", f"{exercise.name}: not yet\n{wrapped(sentence)}")
    references(exercise)  # if these fail, the check is at fault, and raises
    try:
        tried = try_out(exercise, work, watched)
        passed = not tried.wrong
        verdict = "right" if passed else "not written yet" if unwritten(tried) else "not yet"
        return Grade(passed, exercise.points * passed, verdict, report(tried))
    except Exception as error:  # a result that Python or torch can't compare or print
        return Grade(False, 0, "not yet", f"{exercise.name}: not yet\n{wrapped(INCOMPARABLE + type(error).__name__)}")


@functools.cache
def check_of(exercise: Exercise) -> Callable[[Any], bool]:
    """The function ``check_…`` of an exercise: it prints a report, and returns whether a work is right."""

    def its_check(work: Any) -> bool:
        found = grade(exercise, work)
        print(found.report)
        note(exercise, found.verdict)
        return found.passed

    its_check.__name__ = its_check.__qualname__ = f"check_{exercise.name}"
    its_check.__doc__ = f"Check {exercise.takes}."
    return its_check
