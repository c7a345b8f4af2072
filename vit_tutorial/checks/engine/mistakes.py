"""Which mistake a wrong work has: a small implementation of each is run, and named if it gives the work's numbers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from vit_tutorial.checks.engine.compare import observation_difference
from vit_tutorial.checks.engine.exercise import Exercise, Fault, Mistake, Value
from vit_tutorial.checks.engine.functions import tensors
from vit_tutorial.checks.engine.run import Attempt, Outcome, Trial, outcome_of


class Evidence(Enum):
    """What one case says of a mistake."""

    FOR = auto()  # the student's numbers are wrong, and the mistake gives the same ones
    NOTHING = auto()  # both give the right numbers, or the mistake raises an error
    WORK_RAISES = auto()  # the student's work raises an error: it may have another fault besides
    OTHER_SHAPE = auto()  # its result has neither the right shape nor the mistake's: so, too
    AGAINST = auto()  # the mistake gives other numbers than the student's


@dataclass(frozen=True)
class NamedMistake:
    """A mistake that a student's work has."""

    mistake: Mistake
    cases: int | None  # on how many it shows, if there may be another fault besides; None if it explains them all


def matching_mistakes(trial: Trial) -> list[NamedMistake]:
    """The mistakes whose wrong implementation gives the student's results; those that explain all of them come alone.

    Where the student's work raises, or gives another shape than the right one, it may have another fault besides. Then
    a mistake must show on two cases at least, and be the only one that does. No case may speak against it.
    """
    matches = [match for mistake in trial.exercise.mistakes if (match := _match(trial, mistake))]
    sure = [match for match in matches if match.cases is None]
    return sure if sure else matches if len(matches) == 1 else []


def _match(trial: Trial, mistake: Mistake) -> NamedMistake | None:
    """A mistake, if the student's work has it."""
    evidence = []
    for index, attempt in enumerate(trial.attempts):
        evidence.append(_evidence(trial.exercise, attempt, outcome_of(trial.exercise, mistake, index)))
        if evidence[-1] is Evidence.AGAINST:
            return None
    cases, other_shapes = evidence.count(Evidence.FOR), evidence.count(Evidence.OTHER_SHAPE)
    another_fault = other_shapes > 0 or Evidence.WORK_RAISES in evidence
    if cases < (2 if another_fault else 1) or cases <= other_shapes:
        return None
    return NamedMistake(mistake, cases if another_fault else None)


def _evidence(exercise: Exercise, attempt: Attempt, wrong: Outcome) -> Evidence:
    """What one case says of a mistake, which gives ``wrong`` on it."""
    outcome = attempt.outcome
    if isinstance(wrong, Fault):  # the student's may avoid what the mistake stumbles over, such as a division by 0
        compatible = isinstance(outcome, Fault) or exercise.asks_questions or not attempt.difference
        return Evidence.NOTHING if compatible else Evidence.AGAINST
    if isinstance(outcome, Fault):
        return Evidence.WORK_RAISES
    is_wrong = bool(observation_difference(attempt.right, outcome, exercise))
    if not observation_difference(wrong, outcome, exercise):
        return Evidence.FOR if is_wrong else Evidence.NOTHING
    other_shape = _shapes(outcome.result) not in (_shapes(attempt.right.result), _shapes(wrong.result))
    return Evidence.OTHER_SHAPE if is_wrong and other_shape else Evidence.AGAINST


def _shapes(result: Value) -> list[tuple[int, ...]]:
    return [tuple(tensor.shape) for tensor in tensors(result)]
