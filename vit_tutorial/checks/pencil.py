"""Exercises with a pencil: questions, the right answers, advice, and what the likely wrong answers show."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from vit_tutorial.checks.compare import flat
from vit_tutorial.checks.declare import Case, Exercise, Hashed, Mistake, hashed
from vit_tutorial.checks.observe import answers


@dataclass(frozen=True)
class Question:
    """One question.

    Args:
        answer: the right one, from :func:`hide`.
        advice: what to say to a wrong answer that isn't one of the likely ones.
        reread: the section that explains the likely ones, as in :class:`Mistake`.
        wrong: the likely ones, {answer: text}. The text begins with the mistake's name, which fits after "It looks
            like", and goes on with sentences that explain it. Lists are written as tuples.
    """

    answer: Hashed
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


def hide(exercise: str, question: str, answer: Any, within: float = 1e-5) -> Hashed:
    """The right answer to a question, for a lesson's source: ``print(hide("patch_numbers", "patches", 6))``.

    Args:
        exercise: its name.
        question: its key.
        answer: a number, or a list or tuple of numbers. Whole ones must be met exactly.
        within: how far off another number may be, relative to it, or to 1 if it is smaller.
    """
    parts = []
    for place, number in enumerate(flat(answer)):
        salt = f"{exercise}/{question}/{place}"
        if isinstance(number, int):
            parts.append(hashed(salt, number))
            continue
        allowed = within * max(1.0, abs(number))
        unit = 10.0 ** math.floor(math.log10(allowed))
        allowed = math.ceil(round(allowed / unit, 6)) * unit  # one digit: else the width would tell the number
        start = (number - allowed) % (2 * allowed)
        near = f"{2 * allowed:.6g}+{start:.6g}"
        width, start = map(float, near.split("+"))
        parts.append(f"{hashed(salt, math.floor((number - start) / width))}@{near}")
    kind = type(answer).__name__ if isinstance(answer, (list, tuple)) else "number"
    return Hashed(" ".join(parts), kind)
