"""Check a submission: run it on an exercise's cases, compare it with the reference, find the mistake, report."""

from __future__ import annotations

import contextlib
import functools
import io
import random
import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from vit_tutorial.checks.engine.compare import observation_difference, one_line
from vit_tutorial.checks.engine.exercise import Attempt, Case, Exercise, Fault, Mistake, Observation, Submission, Trial
from vit_tutorial.checks.engine.forbidden import forbid, package_origin
from vit_tutorial.checks.engine.functions import call
from vit_tutorial.checks.engine.report import report, wrap
from vit_tutorial.checks.engine.symptoms import symptom

Verdict = Literal["right", "not yet", "not written yet"]


@dataclass(frozen=True)
class Grade:
    """What the check of an exercise found."""

    passed: bool
    points: int  # the exercise's points, or 0
    verdict: Verdict
    report: str  # what a student reads


def grade(exercise: Exercise, submission: Submission, may_call_anything: bool = False) -> Grade:
    """Run the check of one exercise on a submission. Never raises for a fault of the submission.

    Args:
        exercise: what was asked for.
        submission: the student's.
        may_call_anything: allows what the exercise forbids: for implementations of the checks' own.
    """
    if not may_call_anything and (sentence := package_origin(submission)):
        return _not_yet(exercise, sentence)
    references(exercise)  # if these fail, the check is at fault, and raises
    try:
        trial = run(exercise, submission, may_call_anything)
        if not trial.wrong:
            return Grade(True, exercise.points, "right", report(trial))
        if all(attempt.is_fault("not written") for attempt in trial.attempts):
            return Grade(False, 0, "not written yet", f"{exercise.name}: not written yet")
        mistakes = matching_mistakes(trial)
        hint = "" if mistakes else symptom(trial)
        return Grade(False, 0, "not yet", report(trial, mistakes, hint))
    except Exception as error:  # a result that Python or torch can't compare or print
        sentence = f"The result can't be compared ({type(error).__name__}): return what the exercise asks for."
        return _not_yet(exercise, sentence)


def _not_yet(exercise: Exercise, sentence: str) -> Grade:
    return Grade(False, 0, "not yet", f"{exercise.name}: not yet\n{wrap(sentence)}")


# ---- On all cases ------------------------------------------------------------------------------------------------


def run(exercise: Exercise, submission: Submission, may_call_anything: bool) -> Trial:
    """Run a student's submission on all cases, and compare it with the reference."""
    attempts, printed = [], io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        for case, untouched, right in zip(exercise.cases(), exercise.cases(), references(exercise), strict=True):
            outcome = _run_on_case(exercise, submission, case, may_call_anything)
            attempts.append(Attempt(untouched, right, outcome, _difference(exercise, right, outcome)))
    return Trial(exercise, attempts, printed.getvalue())


def _difference(exercise: Exercise, right: Observation, outcome: Observation | Fault) -> str:
    """What is wrong with an outcome, "" for nothing."""
    if isinstance(outcome, Fault):
        return str(outcome)
    if difference := observation_difference(right, outcome, exercise):
        return difference
    return outcome.changed_argument if outcome.changed_argument != right.changed_argument else ""


def references(exercise: Exercise) -> list[Observation]:
    """What the reference does on each case.

    Raises:
        RuntimeError: it fails.
    """
    observations = []
    for outcome in _own_outcomes(exercise, None):
        if isinstance(outcome, Fault):
            raise RuntimeError(f"the check's own reference fails: {outcome}")
        observations.append(outcome)
    return observations


@functools.cache
def _own_outcomes(exercise: Exercise, mistake: Mistake | None) -> list[Observation | Fault]:
    """What a mistake's implementation does on each case, or the reference: kept, since checks are run repeatedly."""
    implementation = exercise.right if mistake is None else mistake.wrong
    return [_run_on_case(exercise, implementation, case, may_call_anything=True) for case in exercise.cases()]


# ---- Which mistake it is -----------------------------------------------------------------------------------------


def matching_mistakes(trial: Trial) -> list[Mistake]:
    """The mistakes whose wrong implementations give the student's results."""
    return [mistake for mistake in trial.exercise.mistakes if _explains(mistake, trial)]


def _explains(mistake: Mistake, trial: Trial) -> bool:
    """Whether a mistake gives the student's result on each case, and a wrong one on some.

    A submission that raises an error where the mistake doesn't may have another fault as well: then the mistake must
    show on two cases.
    """
    exercise, shows, raises = trial.exercise, 0, False
    for attempt, wrong in zip(trial.attempts, _own_outcomes(exercise, mistake), strict=True):
        if isinstance(attempt.outcome, Fault):
            raises = raises or not isinstance(wrong, Fault)
        elif isinstance(wrong, Fault):
            # The student's may avoid what the mistake stumbles over, such as a division by 0.
            if attempt.difference and not exercise.asks_questions:
                return False
        elif observation_difference(wrong, attempt.outcome, exercise):
            return False
        elif observation_difference(attempt.right, attempt.outcome, exercise):
            shows += 1
    return shows >= (2 if raises else 1)


# ---- On one case -------------------------------------------------------------------------------------------------


def _run_on_case(
    exercise: Exercise, submission: Submission, case: Case, may_call_anything: bool
) -> Observation | Fault:
    """What a submission does on a case, or what went wrong."""
    watch = contextlib.nullcontext() if may_call_anything else forbid(exercise)
    try:
        with _isolated(), watch:
            return (exercise.observe or call)(submission, case)
    except Fault as fault:
        return Fault(_with_students_line(str(fault), fault), fault.kind)
    except (Exception, SystemExit) as error:
        if isinstance(error, NotImplementedError) and not str(error):
            return Fault("is not written yet", "not written")
        return Fault(_describe_error(error), "raised")


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
    return _with_students_line(text, error)


def _with_students_line(text: str, error: BaseException) -> str:
    """A sentence, and below it the last line of the student's own code that an error came through, if there is one."""
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if not _is_library(frame.filename)]
    return f"{text}\n    in line {own[-1].lineno} of {own[-1].name}: {own[-1].line}" if own else text


@functools.cache
def _is_library(filename: str) -> bool:
    """Whether a file belongs to Python, an installed package or this one."""
    if filename.startswith(("<frozen", "<string", "<__array_function__")):
        return True
    python = map(Path, sysconfig.get_paths().values())
    folders = [*python, Path(torch.__file__).parent, Path(__file__).parents[2]]
    return any(Path(filename).is_relative_to(folder) for folder in folders)
