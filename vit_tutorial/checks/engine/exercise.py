"""What a lesson declares (exercises, their inputs, mistakes that have a name), and what a run of it gives.

A run has five words, from the inside out:

- :class:`Observation`: what an implementation did on one case; of a submission's faults, a :class:`Fault` in its place;
- ``outcome``: of a submission on one case, the one or the other;
- :class:`Attempt`: the case, the reference's observation, the submission's outcome, and how they differ;
- :class:`Trial`: the attempts of one submission on all cases of an exercise;
- :class:`.check.Grade`: the verdict on a trial, its points, and the report that a student reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from torch import Tensor

Submission: TypeAlias = Any  # what a student hands in: a function, a class, or a dictionary of answers, if all is well
Value: TypeAlias = Any  # what a submission returns: a tensor, an array, a number, a list of them, or anything else
State: TypeAlias = dict[str, Tensor]  # tensors by their names


FaultKind = Literal["wrong", "raised", "not written", "unanswered"]


class Fault(Exception):
    """What is wrong with a submission, in a plain sentence, and what kind of fault that is."""

    def __init__(self, sentence: str, kind: FaultKind = "wrong") -> None:
        super().__init__(sentence)
        self.kind = kind


# ---- What a lesson declares --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """One input that a submission is tried on."""

    label: str  # how the report calls it
    args: tuple[Any, ...] = ()  # what the submission is called with
    build: tuple[Any, ...] = ()  # what a class is built with
    weights: State = field(default_factory=dict)  # of a layer, by the names that the stub agrees on


@dataclass(frozen=True, eq=False)
class Mistake:
    """A misconception, and a small implementation that has it."""

    name: str  # a few words that fit after "It looks like"
    says: str  # one to three sentences that explain what happens, and what to do
    reread: str  # a heading of the lesson, without its number, or a bold opening, word for word
    wrong: Submission  # with the signature of the right one; for questions a dictionary of the wrong answers
    lesson: str = ""  # where to reread, two digits; "" for the exercise's own lesson


@dataclass(frozen=True)
class Forbidden:
    """What an exercise's text asks to do without."""

    what: Any  # a Python function or class; or a part of the names of torch's functions ("scaled_dot_product")
    instead: str = "this exercise asks you to do without"  # what to do, or why: the end of "It calls …: "


@dataclass(frozen=True, eq=False)
class Exercise:
    """An exercise, and all that its check needs."""

    name: str  # what follows ``check_``
    lesson: str  # two digits
    points: int  # as in the exercise's notebook
    right: Submission  # the reference; students must not call the package's own. For questions the right answers
    cases: Callable[[], list[Case]]  # makes the inputs, new ones at each call
    observe: Callable[[Submission, Case], Observation] | None = None  # tries one on a case; None: ``functions.call``
    mistakes: tuple[Mistake, ...] = ()  # those that the check can name, the likelier one first
    tolerance: float = 1e-5  # the largest difference that counts as equal, relative to the largest number
    forbidden: tuple[Any, ...] = ()  # what the text asks to do without: a Forbidden, or its ``what``
    advice: Mapping[str, str] = field(default_factory=dict)  # for questions: to an answer that no mistake explains

    @property
    def asks_questions(self) -> bool:
        """Whether each case is a question, and a submission a dictionary of answers; no report shows the right ones."""
        return isinstance(self.right, dict)


# ---- What a run gives --------------------------------------------------------------------------------------------


@dataclass
class Observation:
    """What a submission did on one case."""

    values: dict[str, Value]  # by the words that a report calls them ("result" for most): what is compared
    second_result: Value = None  # of a call with other numbers, to see that nothing of the first one stays
    gradients: dict[str, Tensor | None] = field(default_factory=dict)  # by the name of the argument or parameter
    changed_argument: str = ""  # a sentence on the first argument that was changed in place

    @property
    def result(self) -> Value:
        """What the submission returned."""
        return self.values.get("result")


@dataclass(frozen=True)
class Attempt:
    """A student's submission on one case."""

    case: Case  # untouched
    right: Observation  # what the reference does
    outcome: Observation | Fault  # what the submission does, or what went wrong
    difference: str  # what is wrong with that, in a sentence; "" for nothing

    def is_fault(self, kind: FaultKind) -> bool:
        """Whether the submission came to no result, for a reason of this kind."""
        return isinstance(self.outcome, Fault) and self.outcome.kind == kind


@dataclass(frozen=True)
class Trial:
    """A student's submission on all cases of an exercise."""

    exercise: Exercise
    attempts: list[Attempt]
    printed: str  # what the submission printed

    @property
    def wrong(self) -> list[Attempt]:
        """The attempts that are wrong."""
        return [attempt for attempt in self.attempts if attempt.difference]
