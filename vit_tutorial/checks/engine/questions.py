"""Exercises with a pencil: questions, their answers, and what the likely wrong answers show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from vit_tutorial.checks.engine.compare import describe
from vit_tutorial.checks.engine.exercise import Case, Exercise, Fault, Mistake, Observation, Submission, Value


class Slip(NamedTuple):
    """A misconception that a wrong answer shows."""

    name: str  # a few words that fit after "It looks like"
    says: str  # one to three sentences that explain it


@dataclass(frozen=True)
class Question:
    """One question of an exercise with a pencil.

    The likely wrong answers are keys, with lists written as tuples.
    """

    answer: Value  # a number, or a list or tuple of numbers; whole numbers must be met exactly
    advice: str  # what to say to a wrong answer that isn't one of the likely ones
    reread: str = ""  # the section that explains the likely ones, as in Mistake
    wrong: Mapping[Any, Slip] = field(default_factory=dict)  # the likely ones


def pencil(name: str, lesson: str, points: int, questions: Mapping[str, Question], tolerance: float = 1e-5) -> Exercise:
    """An exercise of questions, by their keys; a report never shows the right answers."""
    explained: dict[tuple[Slip, str], dict[str, Any]] = {}  # one slip may show in several answers
    for key, question in questions.items():
        for answer, slip in question.wrong.items():
            explained.setdefault((slip, question.reread), {})[key] = answer
    return Exercise(
        name=name,
        lesson=lesson,
        points=points,
        right={key: question.answer for key, question in questions.items()},
        cases=lambda: [Case(key, (key,)) for key in questions],
        observe=answers,
        tolerance=tolerance,
        advice={key: question.advice for key, question in questions.items()},
        mistakes=tuple(Mistake(*slip, reread, wrong) for (slip, reread), wrong in explained.items()),
    )


def answers(submission: Submission, case: Case) -> Observation:
    """The answer to the question ``args[0]`` in the dictionary that ``submission()`` returns.

    Raises:
        Fault: there is no dictionary, or no answer in it.
    """
    result = submission() if callable(submission) else submission
    if not isinstance(result, dict):
        raise Fault(f"returned {describe(result)}, expected a dictionary of answers")
    question = case.args[0]
    if question not in result or result[question] is ...:
        raise Fault(f"there is no answer for {question!r} yet", "unanswered")
    return Observation({question: result[question]})
