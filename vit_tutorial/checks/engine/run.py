"""Run a work, the reference and the wrong implementations on an exercise's cases, and compare what comes out."""

from __future__ import annotations

import contextlib
import functools
import io
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch

from vit_tutorial.checks.engine.compare import observation_difference, one_line
from vit_tutorial.checks.engine.exercise import Case, Exercise, Fault, Mistake, Observation, Work
from vit_tutorial.checks.engine.forbidden import forbid
from vit_tutorial.checks.engine.functions import call
from vit_tutorial.checks.engine.student import with_students_line

NOT_WRITTEN = "is not written yet"

Outcome: TypeAlias = Observation | Fault  # what a work does on a case, or what went wrong


@dataclass(frozen=True)
class Attempt:
    """A student's work on one case."""

    case: Case  # untouched
    right: Observation  # what the reference does
    outcome: Outcome  # what the work does
    difference: str  # what is wrong with that, in a sentence; "" for nothing


@dataclass(frozen=True)
class Trial:
    """A student's work on all cases of an exercise."""

    exercise: Exercise
    attempts: list[Attempt]
    printed: str  # what the work printed

    @property
    def wrong(self) -> list[Attempt]:
        """The attempts that are wrong."""
        return [attempt for attempt in self.attempts if attempt.difference]

    @property
    def not_written(self) -> bool:
        """Whether the work is still the stub."""
        return all(attempt.difference.startswith(NOT_WRITTEN) for attempt in self.attempts)


def run_work(exercise: Exercise, work: Work, may_call_anything: bool = False) -> Trial:
    """Run a student's work on all cases, and compare it with the reference.

    Args:
        exercise: what was asked for.
        work: the student's.
        may_call_anything: allows what the exercise forbids: for implementations of the checks' own.
    """
    attempts, printed = [], io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        for case, untouched, right in zip(exercise.cases(), exercise.cases(), references(exercise), strict=True):
            outcome = run_once(exercise, work, case, may_call_anything)
            attempts.append(Attempt(untouched, right, outcome, _difference(exercise, right, outcome)))
    return Trial(exercise, attempts, printed.getvalue())


def _difference(exercise: Exercise, right: Observation, outcome: Outcome) -> str:
    """What is wrong with an outcome, "" for nothing."""
    if isinstance(outcome, Fault):
        return str(outcome)
    if difference := observation_difference(right, outcome, exercise):
        return difference
    return outcome.changed_argument if outcome.changed_argument != right.changed_argument else ""


# ---- The checks' own implementations -----------------------------------------------------------------------------


def references(exercise: Exercise) -> list[Observation]:
    """What the reference does on each case."""
    observations = []
    for index in range(len(exercise.cases())):
        outcome = outcome_of(exercise, None, index)
        if isinstance(outcome, Fault):
            raise RuntimeError(f"the check's own reference fails: {outcome}")
        observations.append(outcome)
    return observations


@functools.cache
def outcome_of(exercise: Exercise, mistake: Mistake | None, index: int) -> Outcome:
    """What a mistake's implementation does on a case, or the reference: kept, since a check is run again and again."""
    work = exercise.right if mistake is None else mistake.wrong
    return run_once(exercise, work, exercise.cases()[index], may_call_anything=True)


# ---- One call ----------------------------------------------------------------------------------------------------


def run_once(exercise: Exercise, work: Work, case: Case, may_call_anything: bool) -> Outcome:
    """What a work does on one case, or what went wrong."""
    watch = contextlib.nullcontext() if may_call_anything else forbid(exercise)
    try:
        with _isolated(), watch:
            return (exercise.observe or call)(work, case)
    except Fault as fault:
        return Fault(with_students_line(str(fault), fault))
    except NotImplementedError as error:
        return Fault(_describe_error(error) if str(error) else NOT_WRITTEN)
    except (Exception, SystemExit) as error:
        return Fault(_describe_error(error))


@contextmanager
def _isolated() -> Iterator[None]:
    """What the notebook has set doesn't matter, and its random numbers go on afterwards as if nothing had happened."""
    dtype, states = torch.get_default_dtype(), (random.getstate(), np.random.get_state(), torch.get_rng_state())
    torch.set_default_dtype(torch.float32)
    random.seed(0)
    np.random.seed(0)
    torch.default_generator.manual_seed(0)
    try:
        with torch.enable_grad():
            yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])
        torch.set_default_dtype(dtype)


def _describe_error(error: BaseException) -> str:
    text = f"raised {type(error).__name__}" + (f": {one_line(error)}" if str(error) else "")
    return with_students_line(text, error)
