"""What an exercise declares for its check: inputs, the right work, the mistakes that have names, what is forbidden."""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from torch import Tensor

Result = dict[str, Any]  # what is compared, by name: "result", "gradient of x", …


class Fault(Exception):
    """What is wrong with a student's work, in a plain sentence."""


@dataclass(frozen=True)
class Case:
    """One input to try.

    Args:
        label: how the report calls it.
        args: what the work is called with.
        build: for :func:`layer`, what the class is built with.
        weights: for :func:`layer`, the parameters to copy in, by the names that the stub agrees on.
    """

    label: str
    args: tuple[Any, ...] = ()
    build: tuple[Any, ...] = ()
    weights: dict[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Mistake:
    """A misconception, and a small implementation that has it.

    Args:
        name: what it is called, in a few words that fit after "It looks like".
        says: one to three sentences that explain what happens, and what to do.
        reread: a heading (or a bold opening) of the lesson, word for word.
        wrong: the implementation, with the signature of the right one: a function, a class, or for
            questions a dictionary of the wrong answers.
        lesson: where to reread, two digits; "" for the exercise's own lesson.
    """

    name: str
    says: str
    reread: str
    wrong: Any
    lesson: str = ""


def section(reread: str, *rows: tuple[str, str, Any], lesson: str = "") -> tuple[Mistake, ...]:
    """The mistakes that one section of the lesson explains: rows of name, says and wrong, as in :class:`Mistake`."""
    return tuple(Mistake(name, says, reread, wrong, lesson) for name, says, wrong in rows)


class Words(str):
    """A description in a result; a report prints it without quotation marks."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


@functools.cache
def hashed(salt: str, number: int) -> str:
    """A whole number that is to be recognised, and not read; slow, so that trying all numbers takes hours."""
    return hashlib.pbkdf2_hmac("sha256", str(number).encode(), salt.encode(), 20_000).hex()[:10]


@dataclass(frozen=True)
class Hashed:
    """The answer to a question as students get it: its numbers can be recognised, but not read. See ``pencil.hide``.

    Args:
        parts: for each number a hash; where the number need not be whole, followed by "@width+start": it is the hash
            of the interval of that width, counted from start, that holds all numbers which are near enough.
        kind: "number", "list" or "tuple".
    """

    parts: str
    kind: str = "number"

    def holds(self, place: int, number: Any, question: str) -> bool:
        """Whether a number is the right one at its place in the answer."""
        digest, _, near = self.parts.split()[place].partition("@")
        if isinstance(number, complex) or not math.isfinite(number):
            return False
        if near:
            width, start = map(float, near.split("+"))
            return hashed(f"{question}/{place}", math.floor((number - start) / width)) == digest
        whole = abs(number - round(number)) <= 1e-6 * max(1.0, abs(number))
        return whole and hashed(f"{question}/{place}", round(number)) == digest


@dataclass(frozen=True)
class Forbidden:
    """What an exercise's text asks to do without.

    Args:
        what: a Python function or class, what the names of built-in functions and of torch's operators have in common
            ("scaled_dot_product"), or the full name of a function whose module the checks need not load
            ("vit_tutorial.train.schedule"), or of all in a package ("vit_tutorial.*").
        instead: what to do, or why, as an end of the sentence "It calls …: ".
        when: which calls count, by the function's arguments as it got them; all for None.
    """

    what: Any
    instead: str = "this exercise asks you to do without"
    when: Callable[[Mapping[str, Any]], bool] | None = None


@dataclass(frozen=True, eq=False)
class Exercise:
    """What a check needs to know.

    Args:
        name: what follows ``check_``.
        lesson: two digits.
        takes: the work's signature, and what goes in and comes out, for ``help(checks.check_…)``.
        right: the reference. If it is the package's own, no student's work may call it. For questions a dictionary of
            :class:`Hashed` answers.
        cases: makes the inputs, new ones at each call.
        observe: runs a work on a case, and returns what to compare: :func:`call`, :func:`layer`, :func:`answers`.
        mistakes: those that the check can name, the likelier one first.
        tolerance: the largest difference that counts as equal, relative to the largest number.
        secret: whether the report must not show the right numbers.
        large: where a work must not hold all numbers at once: makes an input on which that would be 16 MB, for grading.
        points: as in the exercise's notebook.
        forbidden: what the text asks to do without, beside ``right``: what :class:`Forbidden` takes, or one.
        advice: for questions: what to say to an answer that no mistake explains.
        explain: what to say of wrong results that no mistake explains, given (case, right result, student's) of each
            wrong input, or "".
        locate: where in the work the numbers go wrong, given the same of all inputs, right or wrong, or "": asked where
            nothing exact is seen.
    """

    name: str
    lesson: str
    right: Any
    cases: Callable[[], list[Case]]
    observe: Callable[[Any, Case], Result]
    mistakes: tuple[Mistake, ...] = ()
    tolerance: float = 1e-5
    secret: bool = False
    large: Callable[[], Case] | None = None
    points: int = 0
    takes: str = "fn(): the answers found with a pencil, in a dictionary"
    forbidden: tuple[Any, ...] = ()
    advice: Mapping[str, str] = field(default_factory=dict)
    explain: Callable[[list[tuple[Case, Result, Result]]], str] | None = None
    locate: Callable[[list[tuple[Case, Result, Result]]], str] | None = None

    @property
    def asks_questions(self) -> bool:
        """Whether each case is a question, and a work a dictionary of answers."""
        return isinstance(self.right, dict)


def exercises_of(module: ModuleType) -> tuple[Exercise, ...]:
    """The exercises that a lesson's checks declare, in their order: no list has to be kept."""
    return tuple(thing for thing in vars(module).values() if isinstance(thing, Exercise))
