"""Run a work, the reference and the wrong implementations on an exercise's cases, and compare what comes out."""

from __future__ import annotations

import contextlib
import functools
import io
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from vit_tutorial.checks.engine.compare import differs, short
from vit_tutorial.checks.engine.exercise import Case, Exercise, Fault, Mistake, Result, Row
from vit_tutorial.checks.engine.forbidden import refused
from vit_tutorial.checks.engine.functions import ARGUMENTS
from vit_tutorial.checks.engine.student import students_line, with_line

UNWRITTEN = "is not written yet"
IN_PLACE = ("inplace operation", "in-place operation", "modified inplace")  # in torch's error messages

Outcome = Result | Fault  # what a work gives on a case, or what went wrong


@dataclass(frozen=True)
class Tried:
    """A student's work, tried: what the reference gives, what the work gives, and a verdict, case by case.

    Args:
        exercise: what was asked for.
        work: the student's.
        right: the reference's results.
        outcomes: the student's.
        verdicts: what is wrong with each, "" for nothing.
        printed: what the work printed.
    """

    exercise: Exercise
    work: Any
    right: list[Result]
    outcomes: list[Outcome]
    verdicts: list[str]
    printed: str = ""

    @functools.cached_property
    def cases(self) -> list[Case]:
        """The inputs once more, untouched."""
        return self.exercise.cases()

    @property
    def wrong(self) -> list[int]:
        """The numbers of the cases on which it is wrong."""
        return [i for i, verdict in enumerate(self.verdicts) if verdict]

    def rows(self) -> list[Row]:
        """The cases that are wrong and gave a result, with the right one and the student's."""
        found = []
        for i in self.wrong:
            outcome = self.outcomes[i]
            if not isinstance(outcome, Fault):
                found.append((self.cases[i], self.right[i], outcome))
        return found


def try_out(exercise: Exercise, work: Any, watched: bool = True) -> Tried:
    """Run a student's work on all cases, and compare.

    Args:
        exercise: what was asked for.
        work: the student's.
        watched: False allows what the exercise forbids: for implementations of the checks' own.
    """
    right = references(exercise)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        outcomes = [run_once(exercise, work, case, watched) for case in exercise.cases()]
    verdicts = [_verdict(exercise, *pair) for pair in zip(right, outcomes, strict=True)]
    return Tried(exercise, work, right, outcomes, verdicts, printed.getvalue())


def _verdict(exercise: Exercise, right: Result, given: Outcome) -> str:
    """What is wrong with an outcome, "" for nothing."""
    if isinstance(given, Fault):
        return str(given)
    return differs(right, given, exercise) or changed_in_place(right, given)


def changed_in_place(right: Result, given: Result) -> str:
    """Which argument was changed in place, "" for none."""
    left, untouched = given.get(ARGUMENTS, ""), right.get(ARGUMENTS, "")
    return "" if left in ("", untouched) else str(left)


def references(exercise: Exercise) -> list[Result]:
    """What the reference gives on each case."""
    outcomes = list(known(exercise, None))
    faults = [outcome for outcome in outcomes if isinstance(outcome, Fault)]
    if faults:
        raise RuntimeError(f"the check's own reference fails: {faults[0]}")
    return [outcome for outcome in outcomes if isinstance(outcome, dict)]


@functools.cache
def known(exercise: Exercise, mistake: Mistake | None) -> Known:
    """What the reference gives, or a wrong implementation: kept, since a check is run again and again."""
    return Known(exercise, mistake.wrong if mistake else exercise.right)


class Known:
    """What an implementation of the checks' own gives on each case, computed when it is asked for, and only once.

    Most mistakes don't fit from the first case on; what they would give on the others is never computed.
    """

    def __init__(self, exercise: Exercise, work: Any) -> None:
        self.exercise, self.work, self.outcomes = exercise, work, list[Outcome]()
        self.cases = exercise.cases()

    def __iter__(self) -> Iterator[Outcome]:
        for index, case in enumerate(self.cases):
            if index == len(self.outcomes):
                self.outcomes.append(run_once(self.exercise, self.work, case))
            yield self.outcomes[index]


# ---- One call ----------------------------------------------------------------------------------------------------


def run_once(exercise: Exercise, work: Any, case: Case, watched: bool = False, seed: int = 0) -> Outcome:
    """What a work gives on one case, or what went wrong."""
    watch = refused(exercise) if watched else contextlib.nullcontext()
    try:
        with _isolated(seed), watch:
            outcome = exercise.observe(work, case)
            if not torch.is_grad_enabled():
                said = "gradients stay switched off afterwards: `with torch.no_grad():` switches them on again"
                raise Fault(said)
            return outcome
    except Fault as fault:
        return Fault(with_line(str(fault), students_line(fault)))
    except NotImplementedError as error:
        return Fault(_raised(error) if str(error) else UNWRITTEN)
    except (Exception, SystemExit) as error:
        return Fault(_raised(error))


@contextmanager
def _isolated(seed: int) -> Iterator[None]:
    """What the notebook has set doesn't matter, and its random numbers go on afterwards as if nothing had happened."""
    dtype, states = torch.get_default_dtype(), (random.getstate(), np.random.get_state(), torch.get_rng_state())
    torch.set_default_dtype(torch.float32)
    random.seed(seed)
    np.random.seed(seed)
    torch.default_generator.manual_seed(seed)
    try:
        with torch.enable_grad():
            yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])
        torch.set_default_dtype(dtype)


def _raised(error: BaseException) -> str:
    text = f"raised {type(error).__name__}" + (f": {short(error)}" if str(error) else "")
    if isinstance(error, RuntimeError) and any(words in text for words in IN_PLACE):
        text = "changes numbers in place where a gradient forbids it: write z = z + …, not z += …"
    elif ".numpy()" in text and "requires grad" in text:
        text += " Stay with torch's own functions, so that gradients can flow."
    return with_line(text, students_line(error))
