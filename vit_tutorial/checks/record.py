"""How far a student is: what is done, what is open, and the points."""

from __future__ import annotations

import importlib

from vit_tutorial.checks.declare import Exercise, exercises_of

IN_ALL = 20  # points of each exercise notebook; what the checks don't give, the teacher does
_SEEN: dict[str, tuple[Exercise, str]] = {}  # the last verdict on each exercise in this session of Python


def note(exercise: Exercise, verdict: str) -> None:
    """Keep what a check found: "right", "not yet" or "not written yet"."""
    _SEEN[exercise.name] = (exercise, verdict)


def progress(lesson: str = "") -> None:
    """Print which exercises are done and which are open, with their points.

    Args:
        lesson: "01", …; "" for those of which a check has run since the kernel was started.
    """
    lessons = [lesson] if lesson else sorted({exercise.lesson for exercise, _ in _SEEN.values()})
    if not lessons:
        print("No check has run yet: run the cells above.")
    for number in lessons:
        _print_lesson(number)


def _print_lesson(lesson: str) -> None:
    exercises = exercises_of(importlib.import_module(f"vit_tutorial.checks.lesson{lesson}"))
    verdicts = {exercise.name: _SEEN.get(exercise.name, (exercise, "not checked yet"))[1] for exercise in exercises}
    done = [exercise for exercise in exercises if verdicts[exercise.name] == "right"]
    points, most = sum(exercise.points for exercise in done), sum(exercise.points for exercise in exercises)
    print(f"Lesson {lesson}: {len(done)} of {len(exercises)} exercises are done, {points} of {most} points.")
    wide = max(len(exercise.name) for exercise in exercises)
    for exercise in exercises:
        verdict = verdicts[exercise.name]
        word = "done" if verdict == "right" else f"open ({verdict})"
        print(f"    {exercise.name:<{wide}}  {exercise.points} points  {word}")
    if most < IN_ALL:
        print(f"    What your teacher marks gives {IN_ALL - most} more.")
