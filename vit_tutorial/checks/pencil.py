"""Exercises with a pencil: questions, the right answers, advice, and what the likely wrong answers show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from vit_tutorial.checks.declare import Case, Exercise, Mistake
from vit_tutorial.checks.observe import answers


@dataclass(frozen=True)
class Question:
    """One question.

    Args:
        answer: the right one.
        advice: what to say to a wrong answer that isn't one of the likely ones.
        reread: the section that explains the likely ones, as in :class:`Mistake`.
        wrong: the likely ones, {answer: text}. The text begins with the mistake's name, which fits after "It looks
            like", and goes on with sentences that explain it. Lists are written as tuples.
    """

    answer: Any
    advice: str
    reread: str = ""
    wrong: Mapping[Any, str] = field(default_factory=dict)


def pencil(name: str, lesson: str, points: int, questions: Mapping[str, Question], tolerance: float = 1e-5) -> Exercise:
    """An exercise of questions, by their keys; a report never shows the right answers."""
    explained: dict[tuple[str, str], dict[str, Any]] = {}  # one mistake may show in several answers
    for key, question in questions.items():
        for answer, text in question.wrong.items():
            explained.setdefault((text, question.reread), {})[key] = answer
    mistakes = []
    for (text, reread), wrong in explained.items():
        title, says = text.split(". ", maxsplit=1)
        mistakes.append(Mistake(title, says, reread, wrong))
    return Exercise(
        name=name,
        lesson=lesson,
        points=points,
        right={key: question.answer for key, question in questions.items()},
        cases=lambda: [Case(key, (key,)) for key in questions],
        observe=answers,
        tolerance=tolerance,
        secret=True,
        advice={key: question.advice for key, question in questions.items()},
        mistakes=tuple(mistakes),
    )
