"""Check a student's work: run it, compare, report."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

from vit_tutorial.checks.engine.exercise import Exercise, Work
from vit_tutorial.checks.engine.forbidden import package_work
from vit_tutorial.checks.engine.progress import Verdict, note
from vit_tutorial.checks.engine.report import report, wrap
from vit_tutorial.checks.engine.run import references, run_work


@dataclass(frozen=True)
class Grade:
    """What the check of an exercise found."""

    passed: bool
    points: int  # the exercise's points, or 0
    verdict: Verdict
    report: str  # what a student reads


def grade(exercise: Exercise, work: Work, may_call_anything: bool = False) -> Grade:
    """Run the check of one exercise on a work. Never raises for a fault of the work.

    Args:
        exercise: what was asked for.
        work: the student's.
        may_call_anything: allows what the exercise forbids: for implementations of the checks' own.
    """
    if not may_call_anything and (sentence := package_work(work)):
        return _not_yet(exercise, sentence)
    references(exercise)  # if these fail, the check is at fault, and raises
    try:
        trial = run_work(exercise, work, may_call_anything)
        if not trial.wrong:
            return Grade(True, exercise.points, "right", report(trial))
        return Grade(False, 0, "not written yet" if trial.not_written else "not yet", report(trial))
    except Exception as error:  # a result that Python or torch can't compare or print
        sentence = f"The result can't be compared ({type(error).__name__}): return what the exercise asks for."
        return _not_yet(exercise, sentence)


def _not_yet(exercise: Exercise, sentence: str) -> Grade:
    return Grade(False, 0, "not yet", f"{exercise.name}: not yet\n{wrap(sentence)}")


@functools.cache
def check_of(exercise: Exercise) -> Callable[[Work], bool]:
    """The function ``check_…`` of an exercise: it prints a report, and returns whether a work is right."""

    def check(work: Work) -> bool:
        result = grade(exercise, work)
        print(result.report)
        note(exercise, result.verdict)
        return result.passed

    check.__name__ = check.__qualname__ = f"check_{exercise.name}"
    check.__doc__ = f"Check a work for exercise {exercise.name} of lesson {exercise.lesson}: print what was found."
    return check
