"""What students might hand in: the right ones pass, the wrong ones are refused and told why."""

import importlib

import pytest
from submissions import hand_in

from vit_tutorial import checks

CATALOGUE = checks.CATALOGUE
SOLUTIONS = {
    lesson: importlib.import_module(f"solutions_{lesson}")
    for lesson in sorted({exercise.lesson for exercise in CATALOGUE.values()})
}
RIGHT = [
    pytest.param(name, submission, id=f"{name}-{index}")
    for module in SOLUTIONS.values()
    for name, submissions in module.RIGHT.items()
    for index, submission in enumerate(submissions)
]
WRONG = [
    pytest.param(name, wrong, id=f"{name}-{wrong.label}")
    for module in SOLUTIONS.values()
    for name, submissions in module.WRONG.items()
    for wrong in submissions
]


@pytest.mark.parametrize(("name", "submission"), RIGHT)
def test_a_right_submission_passes(name, submission):
    passed, report = hand_in(name, submission)
    assert passed, report
    assert report.startswith(f"{name}: right. Tried: {' '.join(CATALOGUE[name].cases()[0].label.split())}")


@pytest.mark.parametrize(("name", "wrong"), WRONG)
def test_a_wrong_submission_is_refused_and_told_why(name, wrong):
    passed, report = hand_in(name, wrong.submission)
    assert not passed
    assert wrong.says in report
    assert not wrong.never or wrong.never not in report


@pytest.mark.parametrize("lesson", SOLUTIONS)
def test_every_exercise_has_submissions_of_both_kinds(lesson):
    names = {exercise.name for exercise in checks.exercises(lesson)}
    module = SOLUTIONS[lesson]
    assert set(module.RIGHT) == set(module.WRONG) == names
    assert all(module.RIGHT.values())
    for name, submissions in module.WRONG.items():
        assert len({wrong.label for wrong in submissions}) == len(submissions) > 0, name
