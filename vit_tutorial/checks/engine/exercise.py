"""What a lesson declares: exercises, the inputs to try, the mistakes that have a name, and what is forbidden."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, NamedTuple, TypeAlias

from torch import Tensor

Work: TypeAlias = Any  # what a student hands in: a function, a class, or a dictionary of answers, if all is well
Value: TypeAlias = Any  # what a work returns: a tensor, an array, a number, a list of them, or anything else


class Fault(Exception):
    """What is wrong with a student's work, in a plain sentence."""


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


@dataclass
class Observation:
    """What a work did on one case.

    Args:
        values: what is compared with the reference's, by the words that a report calls it ("result" for most works).
        second_result: what a second call with other numbers gave, to see that nothing of the first one stays.
        gradients: of a fixed combination of the result's numbers, by the name of the argument or parameter.
        changed_argument: a sentence on the first argument that was changed in place; "" if none was.
        missing_parameters: what the stub agrees on and the student's layer doesn't have.
    """

    values: dict[str, Value]
    second_result: Value = None
    gradients: dict[str, Tensor | None] = field(default_factory=dict)
    changed_argument: str = ""
    missing_parameters: tuple[str, ...] = ()

    @property
    def result(self) -> Value:
        """What the work returned."""
        return self.values.get("result")


class Row(NamedTuple):
    """A case, and what the reference and the student's work did on it."""

    case: Case
    right: Observation
    given: Observation


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
    wrong: Work
    lesson: str = ""


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
        forbidden: what the text asks to do without: a :class:`Forbidden`, or its ``what``.
        advice: for questions: what to say to an answer that no mistake explains.
        explain: what to say of wrong results that no mistake explains, given the wrong rows; or "".
    """

    name: str
    lesson: str
    points: int
    right: Work
    cases: Callable[[], list[Case]]
    observe: Callable[[Work, Case], Observation]
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
    return tuple(value for value in vars(module).values() if isinstance(value, Exercise))
