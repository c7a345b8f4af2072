"""Step 2 of a check, run: a student's work on all cases, within limits, and a verdict on each."""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import random
import re
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from vit_tutorial.checks.capture import Kept, quiet
from vit_tutorial.checks.compare import changed_arguments, changed_in_place, differs, short
from vit_tutorial.checks.declare import Case, Exercise, Fault, Mistake, Result
from vit_tutorial.checks.watch import library, place, students_line, unwrapped, watching, with_line

SECONDS = 10.0  # of computing, for one student's work, all its inputs together
PATIENCE = 3.0  # times as long may it take by the clock, on a busy machine, or asleep
QUICK = 0.5  # a work that takes longer is not tried again to find out what it does
UNWRITTEN = "is not written yet"
IN_PLACE = ("inplace operation", "in-place operation", "modified inplace")  # in torch's error messages


Outcome = Result | Fault  # what a work gives on a case, or what went wrong
Record = Callable[[Case, Outcome], None]


class _TimeUp(BaseException):
    """Raised inside the student's code when its time is over. Not an Exception, so that few can swallow it."""


# ---- Limits ------------------------------------------------------------------------------------------------------


@contextmanager
def plain_settings() -> Iterator[None]:
    """The checks' own numbers don't depend on what the notebook has set."""
    dtype = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        yield
    finally:
        torch.set_default_dtype(dtype)


@contextmanager
def _own_chance(seed: int) -> Iterator[None]:
    """The notebook's random numbers go on afterwards as if nothing had happened: torch's, NumPy's and Python's."""
    pythons, numpys, torchs = random.getstate(), np.random.get_state(), torch.get_rng_state()
    torch.default_generator.manual_seed(seed)  # torch.manual_seed would note each call for a GPU, with its traceback
    try:
        yield
    finally:
        random.setstate(pythons)
        np.random.set_state(numpys)
        torch.set_rng_state(torchs)


def attempt(
    exercise: Exercise, work: Any, cases: list[Case], watched: bool = True, record: Record | None = None
) -> list[Outcome]:
    """Run a work on the cases, within the time limit: for each a result, or what went wrong (then it may end early)."""
    outcomes: list[Outcome] = []
    given_up = threading.Event()

    def job() -> None:
        try:
            for case in cases:
                if not given_up.is_set():
                    outcomes.append(run_once(exercise, work, case, watched))
                    if record is not None:
                        record(case, outcomes[-1])
        except _TimeUp:
            pass

    # A daemon: if nothing stops it, it must not keep the interpreter alive.
    thread = threading.Thread(target=job, name="check", daemon=True)
    thread.start()
    try:
        _wait(thread)
    finally:  # Interrupt in Jupyter arrives here, too
        given_up.set()
        stopped = _stop(thread)
    done = outcomes.copy()  # what the thread may still add doesn't count
    if len(done) < len(cases):
        more = "" if stopped else " It can't be stopped from here and still runs: restart the kernel."
        after = f"took more than {SECONDS:.0f} seconds, all inputs up to this one together"
        done.append(Fault(f"{after}: is there a loop that doesn't end?{more}"))
    return done


def _wait(thread: threading.Thread) -> None:
    """Until a thread ends, or its time is over.

    What counts is the work of this process, so that a busy machine refuses nobody; but several processors may work at
    once, so it must have lasted as long by the clock, too. A thread that sleeps ends with our patience. Imports don't
    count: they are no work of the student's, and cut off in the middle a module would stay broken for everybody.
    """
    spent = waited = 0.0
    clock, work, modules = time.monotonic(), time.process_time(), len(sys.modules)
    while thread.is_alive() and spent <= SECONDS and waited <= PATIENCE * SECONDS:
        thread.join(0.05)
        now, worked, loaded = time.monotonic(), time.process_time(), len(sys.modules)
        if loaded == modules and not _imports(thread):  # loading may keep us from looking until it is done
            waited += now - clock
            spent += min(now - clock, worked - work)
        clock, work, modules = now, worked, loaded


def _imports(thread: threading.Thread) -> bool:
    """Whether a thread is in the middle of an import."""
    frame = sys._current_frames().get(thread.ident or 0)
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False


def _stop(thread: threading.Thread) -> bool:
    """Raise _TimeUp in a thread until it ends; False if it doesn't (it swallows all, or hangs outside Python)."""
    for _ in range(5):
        if not thread.is_alive():
            return True
        if hasattr(ctypes, "pythonapi") and thread.ident is not None:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(_TimeUp))
        thread.join(0.2)
    return not thread.is_alive()


def run_once(exercise: Exercise, work: Any, case: Case, watched: bool = False, seed: int = 0) -> Outcome:
    """What a work gives on one case, or what went wrong. It never raises, but for the end of its time."""
    # The notebook may have switched gradients off.
    with torch.enable_grad(), _own_chance(seed), _calls(exercise, watched) as calls:
        try:
            outcome: Outcome = exercise.observe(work, case)
            if not torch.is_grad_enabled():
                outcome = Fault(
                    "gradients stay switched off afterwards: `with torch.no_grad():` switches them on again"
                )
        except _TimeUp:
            if not calls:
                raise
            outcome = Fault(calls[0])  # what is forbidden may also be what took so long
        except Fault as fault:
            outcome = fault
        except NotImplementedError as error:
            unwritten = not str(error) and not isinstance(error.__cause__, Exception)
            outcome = Fault(UNWRITTEN if unwritten else _raised(error, work))
        except BaseException as error:  # SystemExit, too
            outcome = Fault(_raised(error, work))
    return Fault(calls[0]) if calls else outcome


def _calls(exercise: Exercise, watched: bool) -> AbstractContextManager[list[str]]:
    return watching(exercise) if watched else nullcontext([])


def _raised(error: BaseException, work: Any) -> str:
    text = f"raised {type(error).__name__}" + (f": {short(error)}" if str(error) else "")
    if isinstance(error, RuntimeError) and any(words in text for words in IN_PLACE):
        said = "changes numbers in place where a gradient forbids it: write z = z + …, not z += …"
        return with_line(said, students_line(error))
    if ".numpy()" in text and "requires grad" in text:
        text += " Stay with torch's own functions, so that gradients can flow."
    frames = traceback.extract_tb(error.__traceback__)
    if any(frame.name == "_gradients" and library(frame.filename) for frame in frames):
        text += " It came up when the gradient was computed."
    called = re.search(r"([\w<>]+)\(\) (takes|missing|got)", text) if isinstance(error, TypeError) else None
    return with_line(text, students_line(error) or (_definition(work, called[1]) if called else ""))


def _definition(work: Any, name: str) -> str:
    """Where a student's function begins, for an error that comes up outside of it: it takes other arguments."""
    work = unwrapped(work)
    if isinstance(work, type):
        work = next((vars(member)[name] for member in work.__mro__ if name in vars(member)), None)
    code = getattr(work, "__code__", None)
    if code is None or code.co_name != name or library(code.co_filename):
        return ""
    return place(code, code.co_firstlineno)


# ---- The student's work beside the reference ---------------------------------------------------------------------


@dataclass(frozen=True)
class Tried:
    """A student's work, tried: what the reference gives, what the work gives, and a verdict, case by case.

    Args:
        exercise: what was asked for.
        right: the reference's results.
        outcomes: the student's; fewer, if the time was over.
        verdicts: what is wrong with each, "" for nothing.
        work: the student's; None where only its results are known.
        quick: whether it can be tried again and again.
        printed: what it printed.
    """

    exercise: Exercise
    right: list[Result]
    outcomes: list[Outcome]
    verdicts: list[str]
    work: Any = None
    quick: bool = False
    printed: Kept = field(default_factory=Kept)

    @functools.cached_property
    def cases(self) -> list[Case]:
        """The inputs once more, untouched."""
        return self.exercise.cases()

    @property
    def wrong(self) -> list[int]:
        """The numbers of the cases on which it is wrong."""
        return [i for i, verdict in enumerate(self.verdicts) if verdict]


def try_out(exercise: Exercise, work: Any, watched: bool = True, record: Record | None = None) -> Tried:
    """Run a student's work on all cases, and compare. ``record`` gets each result as soon as there is one."""
    _references(exercise)  # before the student's code, which may replace something
    with quiet() as printed:
        began, worked = time.monotonic(), time.process_time()
        outcomes = attempt(exercise, work, exercise.cases(), watched, record)
        # By both: who sleeps does no work, and is slow for all that.
        quick = time.process_time() - worked < QUICK and time.monotonic() - began < PATIENCE * QUICK
    return dataclasses.replace(compared(exercise, outcomes), work=work, quick=quick, printed=printed)


def compared(exercise: Exercise, outcomes: list[Outcome]) -> Tried:
    """What a student's work gave, beside what the reference gives."""
    right = _references(exercise)
    verdicts = [_verdict(exercise, *pair) for pair in zip(right, outcomes, strict=False)]
    return Tried(exercise, right, outcomes, verdicts)


def _verdict(exercise: Exercise, right: Result, given: Outcome) -> str:
    """What is wrong with an outcome, "" for nothing; with the student's line, where an observer kept one."""
    if isinstance(given, Fault):
        return str(given) or "raised a Fault without a message"
    found = differs(right, given, exercise) or next(map(changed_in_place, changed_arguments(right, given)), "")
    return with_line(found, given.get("line", "")) if found else ""


class Known:
    """What a work of the checks' own gives on each input: computed when it is asked for, and only once."""

    def __init__(self, exercise: Exercise, work: Any) -> None:
        self.exercise, self.work, self.outcomes = exercise, work, list[Outcome]()
        self.cases = exercise.cases()

    def __iter__(self) -> Iterator[Outcome]:
        for index, case in enumerate(self.cases):
            if index == len(self.outcomes):
                self.outcomes.append(run_once(self.exercise, self.work, case))
            yield self.outcomes[index]


@functools.cache
def known(exercise: Exercise, mistake: Mistake | None) -> Known:
    """What the reference gives, or a wrong implementation: kept, since a check is run again and again.

    Most mistakes don't fit from the first input on; what they would give on the others is never computed.
    """
    return Known(exercise, mistake.wrong if mistake else exercise.right)


def _references(exercise: Exercise) -> list[Result]:
    with quiet():
        outcomes = list(known(exercise, None))
    for outcome in outcomes:
        if isinstance(outcome, Fault):
            raise RuntimeError(f"the check's own reference fails: {outcome}")
    return [outcome for outcome in outcomes if isinstance(outcome, dict)]
