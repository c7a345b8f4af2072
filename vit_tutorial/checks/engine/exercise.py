"""What a lesson declares: exercises, the inputs to try, the mistakes that have a name, and what is forbidden."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from torch import Tensor

Result = dict[str, Any]  # what is compared, by name: "result", "gradient of proj.weight", …


class Fault(Exception):
    """What is wrong with a student's work, in a plain sentence."""


class Words(str):
    """A description in a result; a report prints it without quotation marks."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


@dataclass(frozen=True)
class Case:
    """One input to try.

    Args:
        label: how the report calls it.
        args: what the work is called with.
        build: what a class is built with.
        weights: the parameters to copy into a layer, by the names that the stub agrees on.
    """

    label: str
    args: tuple[Any, ...] = ()
    build: tuple[Any, ...] = ()
    weights: dict[str, Tensor] = field(default_factory=dict)


Row = tuple[Case, Result, Result]  # an input, the right result, the student's


@dataclass(frozen=True, eq=False)
class Mistake:
    """A misconception, and a small implementation that has it.

    Args:
        name: a few words that fit after "It looks like".
        says: one to three sentences that explain what happens, and what to do.
        reread: a heading (or a bold opening) of the lesson, word for word.
        wrong: the implementation, with the signature of the right one: a function or a class; for questions a
            dictionary of the wrong answers.
        lesson: where to reread, two digits; "" for the exercise's own lesson.
    """

    name: str
    says: str
    reread: str
    wrong: Any
    lesson: str = ""


def section(reread: str, *rows: tuple[str, str, Any], lesson: str = "") -> tuple[Mistake, ...]:
    """The mistakes that one section of a lesson explains: rows of name, says and wrong, as in :class:`Mistake`."""
    return tuple(Mistake(name, says, reread, wrong, lesson) for name, says, wrong in rows)


@dataclass(frozen=True)
class Forbidden:
    """What an exercise's text asks to do without.

    Args:
        what: a Python function or class; or a part of the names of torch's functions ("scaled_dot_product").
        instead: what to do, or why, as an end of the sentence "It calls …: ".
    """

    what: Any
    instead: str = "this exercise asks you to do without"


@dataclass(frozen=True, eq=False)
class Exercise:
    """An exercise, and all that its check needs.

    Args:
        name: what follows ``check_``.
        lesson: two digits.
        points: as in the exercise's notebook.
        takes: the work's signature, and what goes in and comes out, for ``help(checks.check_…)``.
        right: the reference. If it is the package's own, a work must not call it. For questions the right answers.
        cases: makes the inputs, new ones at each call.
        observe: runs a work on a case, and returns what to compare: ``call``, ``layer``, ``answers``.
        mistakes: those that the check can name, the likelier one first.
        tolerance: the largest difference that counts as equal, relative to the largest number.
        forbidden: what the text asks to do without: a :class:`Forbidden`, or what it takes.
        advice: for questions: what to say to an answer that no mistake explains.
        explain: what to say of wrong results that no mistake explains, given the rows of the wrong inputs; or "".
    """

    name: str
    lesson: str
    points: int
    right: Any
    cases: Callable[[], list[Case]]
    observe: Callable[[Any, Case], Result]
    takes: str = "fn(): the answers found with a pencil, in a dictionary"
    mistakes: tuple[Mistake, ...] = ()
    tolerance: float = 1e-5
    forbidden: tuple[Any, ...] = ()
    advice: Mapping[str, str] = field(default_factory=dict)
    explain: Callable[[list[Row]], str] | None = None

    @property
    def asks_questions(self) -> bool:
        """Whether each case is a question, and a work a dictionary of answers; a report shows none of the right."""
        return isinstance(self.right, dict)


def exercises_of(module: ModuleType) -> tuple[Exercise, ...]:
    """The exercises that a lesson's module declares, in their order."""
    return tuple(thing for thing in vars(module).values() if isinstance(thing, Exercise))
