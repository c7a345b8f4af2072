"""The exercises' checks: is it right, or *which* mistake is it?

In a notebook a check prints what it found, and returns True or False; it never raises for a fault of the submission:

    from vit_tutorial import checks
    assert checks.check_patchify(patchify)

A program, such as a grader, asks for the exercises of a lesson and grades a submission for each of them. Its name in
the notebook stands in the check's cell, ``assert checks.check_patch_embedding(PatchEmbedding)``:

    for exercise in checks.exercises("01"):               # Exercise: .name, .lesson, .points, in the notebook's order
        grade = checks.grade(exercise, submissions[exercise.name])   # Grade: .passed, .points, .report; prints nothing
        print(exercise.name, grade.points, "of", exercise.points, grade.report)

:func:`grade` calls the submission in the calling process and thread: limits of time and memory are the caller's.
:func:`progress` prints what is done and what is open. :data:`CATALOGUE` holds every exercise by name, with the mistakes
that its check can name. ``lesson01``, … declare the exercises; ``engine/check.py`` runs, compares and reports.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable, Iterable, Iterator
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from vit_tutorial.checks import engine
from vit_tutorial.checks.engine import Case, Exercise, Grade, Mistake, Submission, Verdict

if TYPE_CHECKING:
    CATALOGUE: dict[str, Exercise]

LESSONS = sorted(module.name for module in pkgutil.iter_modules(__path__) if module.name.startswith("lesson"))
POINTS = 20  # of each exercise notebook; what the checks don't give, the teacher does


def exercises(lesson: str) -> tuple[Exercise, ...]:
    """The exercises that have a check, in the order of the lesson's notebook.

    Args:
        lesson: two digits, such as "01".

    Raises:
        ValueError: no lesson of that number has checks.
    """
    if f"lesson{lesson}" not in LESSONS:
        numbers = ", ".join(name.removeprefix("lesson") for name in LESSONS)
        raise ValueError(f"no lesson {lesson!r} has checks: take one of {numbers}")
    module = importlib.import_module(f"{__name__}.lesson{lesson}")
    return tuple(value for value in vars(module).values() if isinstance(value, Exercise))


def grade(exercise: Exercise | str, submission: Submission) -> Grade:
    """Run the check of one exercise, and return what it found. Never raises for a fault of the submission.

    Args:
        exercise: one of :func:`exercises`, or its name.
        submission: what the notebook's check cell hands in: a function or a class.

    Raises:
        ValueError: no exercise has that name.
    """
    declared = _find(exercise) if isinstance(exercise, str) else exercise
    if declared is None:
        raise ValueError(f"no exercise is called {exercise!r}: see checks.CATALOGUE")
    return engine.grade(declared, submission)


# ---- Progress ----------------------------------------------------------------------------------------------------

_verdicts: dict[Exercise, Verdict] = {}  # the last one on each exercise since the kernel was started


def progress(lesson: str = "") -> None:
    """Print which exercises are done and which are open, with their points.

    Args:
        lesson: "01", …; "" for those of which a check has run since the kernel was started.
    """
    lessons = [lesson] if lesson else sorted({exercise.lesson for exercise in _verdicts})
    if not lessons:
        print("No check has run yet: run the cells above.")
    for number in lessons:
        _print_progress(number)


def _print_progress(lesson: str) -> None:
    every = exercises(lesson)
    done = [exercise for exercise in every if _verdicts.get(exercise) == "right"]
    points, most = sum(exercise.points for exercise in done), sum(exercise.points for exercise in every)
    print(f"Lesson {lesson}: {len(done)} of {len(every)} exercises are done, {points} of {most} points.")
    width = max(len(exercise.name) for exercise in every)
    for exercise in every:
        word = "done" if exercise in done else f"open ({_verdicts.get(exercise, 'not checked yet')})"
        print(f"    {exercise.name:<{width}}  {exercise.points} points  {word}")
    if most < POINTS:
        print(f"    What your teacher marks gives {POINTS - most} more.")


# ---- check_… -----------------------------------------------------------------------------------------------------


@functools.cache
def _check_of(exercise: Exercise) -> Callable[[Submission], bool]:
    """The function ``check_…`` of an exercise: it prints a report, and returns whether a submission is right."""

    def check(submission: Submission) -> bool:
        result = engine.grade(exercise, submission)
        print(result.report)
        _verdicts[exercise] = result.verdict
        return result.passed

    check.__name__ = check.__qualname__ = f"check_{exercise.name}"
    check.__doc__ = f"Check a submission for exercise {exercise.name} of lesson {exercise.lesson}: print the report."
    return check


def _all(lessons: Iterable[str] = LESSONS) -> Iterator[Exercise]:
    for name in lessons:
        yield from exercises(name.removeprefix("lesson"))


def _find(name: str) -> Exercise | None:
    # The lesson whose text has the name comes first, since importing all others takes seconds.
    texts = {lesson: files(__name__).joinpath(f"{lesson}.py").read_text("utf-8") for lesson in LESSONS}
    likely_first = sorted(LESSONS, key=lambda lesson: f'"{name}"' not in texts[lesson])
    return next((exercise for exercise in _all(likely_first) if exercise.name == name), None)


def __getattr__(name: str) -> Any:
    if name == "CATALOGUE":
        return {exercise.name: exercise for exercise in _all()}
    exercise = _find(name.removeprefix("check_")) if name.startswith("check_") else None
    if exercise is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _check_of(exercise)


def __dir__() -> list[str]:
    return sorted({*globals(), "CATALOGUE", *(f"check_{exercise.name}" for exercise in _all())})


__all__ = ["CATALOGUE", "Case", "Exercise", "Grade", "Mistake", "exercises", "grade", "progress"]
