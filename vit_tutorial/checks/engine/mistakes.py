"""Which mistake a wrong work has: a small implementation of each is run, and named if it gives the work's numbers."""

from __future__ import annotations

from vit_tutorial.checks.engine.compare import differs
from vit_tutorial.checks.engine.exercise import Exercise, Fault, Mistake, Result
from vit_tutorial.checks.engine.run import Outcome, known


def named(exercise: Exercise, right: list[Result], outcomes: list[Outcome]) -> list[tuple[Mistake, int]]:
    """The mistakes whose wrong implementation gives the student's results, with 0 if it does so on all inputs.

    Where the student's work raises, or gives another shape than the right one, it may have another fault besides. Then
    the mistake must show on two other inputs at least, and their number comes with it. No input may speak against it.
    """
    found = []
    for mistake in exercise.mistakes:
        fits = []
        for correct, given, wrong in zip(right, outcomes, known(exercise, mistake), strict=True):
            fits.append(_fit(exercise, mistake, correct, given, wrong))
            if fits[-1] == "no":
                break
        telling, beside = fits.count("tells"), fits.count("raises") + fits.count("shape")
        if "no" not in fits and telling >= (2 if beside else 1) and telling > fits.count("shape"):
            found.append((mistake, telling if beside else 0))
    sure = [pair for pair in found if not pair[1]]
    return sure if sure else found if len(found) == 1 else []


def _fit(exercise: Exercise, mistake: Mistake, right: Result, given: Outcome, wrong: Outcome) -> str:
    """What one input says of a mistake: "tells" for it, "no", or "" for nothing.

    It is "raises" or "shape" where the student's work has another fault besides.
    """
    if isinstance(wrong, Fault):  # the student's may avoid what the mistake stumbles over, such as a division by 0
        silent = isinstance(given, Fault) or exercise.asks_questions or not differs(right, given, exercise)
        return "" if silent else "no"
    if isinstance(given, Fault):
        return "raises"
    off, apart = differs(right, given, exercise), differs(wrong, given, exercise)
    if not apart:
        return "tells" if off else ""
    return "shape" if "has shape" in off and "has shape" in apart else "no"
