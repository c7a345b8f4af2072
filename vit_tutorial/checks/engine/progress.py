"""How far a student is: what is done, what is open, and the points."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from vit_tutorial.checks.engine.exercise import Exercise

Verdict = Literal["right", "not yet", "not written yet"]

IN_ALL = 20  # points of each exercise notebook; what the checks don't give, the teacher does
_verdicts: dict[str, tuple[str, Verdict]] = {}  # the lesson and the last verdict on each exercise, by its name


def note(exercise: Exercise, verdict: Verdict) -> None:
    """Keep what a check found."""
    _verdicts[exercise.name] = (exercise.lesson, verdict)


def lessons_begun() -> list[str]:
    """The lessons of which a check has run, two digits each."""
    return sorted({lesson for lesson, _ in _verdicts.values()})


def print_progress(lesson: str, exercises: Sequence[Exercise]) -> None:
    """Print which of a lesson's exercises are done and which are open."""
    verdicts = {one.name: _verdicts.get(one.name, (lesson, "not checked yet"))[1] for one in exercises}
    done = [one for one in exercises if verdicts[one.name] == "right"]
    points, most = sum(one.points for one in done), sum(one.points for one in exercises)
    print(f"Lesson {lesson}: {len(done)} of {len(exercises)} exercises are done, {points} of {most} points.")
    wide = max(len(one.name) for one in exercises)
    for one in exercises:
        word = "done" if one in done else f"open ({verdicts[one.name]})"
        print(f"    {one.name:<{wide}}  {one.points} points  {word}")
    if most < IN_ALL:
        print(f"    What your teacher marks gives {IN_ALL - most} more.")
