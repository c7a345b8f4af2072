"""The exercises' checks: is it right, or *which* mistake is it?

In a notebook a check prints what it found, and returns True or False; it never raises for a fault of the work:

    from vit_tutorial import checks
    assert checks.check_patchify(patchify)

A program, such as a grader, asks for the exercises of a lesson and grades the work for each of them. Which name of the
notebook holds the work stands in its cell ``assert checks.check_patch_embedding(PatchEmbedding)``:

    for exercise in checks.exercises("01"):               # Exercise: .name, .lesson, .points, in the notebook's order
        grade = checks.grade(exercise, works[exercise.name])   # Grade: .passed, .points, .report; prints nothing
        print(exercise.name, grade.points, "of", exercise.points, grade.report)

:func:`grade` runs the work in the calling process and thread: limits of time and memory are the caller's.
:func:`progress` prints what is done and what is open. :data:`CATALOGUE` holds every exercise by name, with the mistakes
that its check can name. ``engine`` runs, compares and reports; ``lesson01``, … declare the exercises.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from vit_tutorial.checks import engine
from vit_tutorial.checks.engine import Case, Exercise, Grade, Mistake, Work
from vit_tutorial.checks.engine.progress import lessons_begun, print_progress

if TYPE_CHECKING:
    CATALOGUE: dict[str, Exercise]

LESSONS = sorted(module.name for module in pkgutil.iter_modules(__path__) if module.name.startswith("lesson"))


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
    return engine.exercises_of(importlib.import_module(f"{__name__}.lesson{lesson}"))


def grade(exercise: Exercise | str, work: Work) -> Grade:
    """Run the check of one exercise, and return what it found. Never raises for a fault of the work.

    Args:
        exercise: one of :func:`exercises`, or its name.
        work: what the notebook's check cell hands in: a function or a class.

    Raises:
        ValueError: no exercise has that name.
    """
    declared = _find(exercise) if isinstance(exercise, str) else exercise
    if declared is None:
        raise ValueError(f"no exercise is called {exercise!r}: see checks.CATALOGUE")
    return engine.grade(declared, work)


def progress(lesson: str = "") -> None:
    """Print which exercises are done and which are open, with their points.

    Args:
        lesson: "01", …; "" for those of which a check has run since the kernel was started.
    """
    lessons = [lesson] if lesson else lessons_begun()
    if not lessons:
        print("No check has run yet: run the cells above.")
    for number in lessons:
        print_progress(number, exercises(number))


def _all() -> Iterator[Exercise]:
    # One lesson after the other, at first use: the first need torch alone, the last ones much more.
    for name in LESSONS:
        yield from exercises(name.removeprefix("lesson"))


def _find(name: str) -> Exercise | None:
    return next((exercise for exercise in _all() if exercise.name == name), None)


def __getattr__(name: str) -> Any:
    if name == "CATALOGUE":
        return {exercise.name: exercise for exercise in _all()}
    exercise = _find(name.removeprefix("check_")) if name.startswith("check_") else None
    if exercise is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return engine.check_of(exercise)


def __dir__() -> list[str]:
    return sorted({*globals(), "CATALOGUE", *(f"check_{exercise.name}" for exercise in _all())})


__all__ = ["CATALOGUE", "Case", "Exercise", "Grade", "Mistake", "exercises", "grade", "progress"]
