"""Works that students might hand in: the right ones pass, the wrong ones are refused and told why."""

import importlib

import pytest
from submissions import hand_in, on_one_line

from vit_tutorial import checks

CATALOGUE = checks.CATALOGUE
SOLUTIONS = {
    lesson: importlib.import_module(f"solutions_{lesson}")
    for lesson in sorted({exercise.lesson for exercise in CATALOGUE.values()})
}
# Whole models, eleven blocks, trainings: a wrong work of these takes five times as long as others. The first three of
# each are quick; and so are all the mistakes that its reports name, in test_checks.py.
LONG = (
    *("attention_maps", "biased_attention", "encoder", "encoder_block"),
    *("frozen_features", "layer_rates", "tune_head", "vit"),
)
# Right works of one exercise reach the same lines: in the first of them they are counted, and two are quick.
RIGHT = [
    pytest.param(name, work, id=f"{name}-{index}", marks=[pytest.mark.no_cover, pytest.mark.slow][: min(index, 2)])
    for module in SOLUTIONS.values()
    for name, works in module.RIGHT.items()
    for index, work in enumerate(works)
]
WRONG = [
    pytest.param(name, wrong, id=f"{name}-{wrong.label}", marks=[pytest.mark.slow] * (name in LONG and index > 2))
    for module in SOLUTIONS.values()
    for name, works in module.WRONG.items()
    for index, wrong in enumerate(works)
]


@pytest.mark.parametrize(("name", "work"), RIGHT)
def test_a_right_work_passes(name, work):
    passed, report = hand_in(name, work)
    assert passed is True, report
    assert report.startswith(f"{name}: right. Tried:\n    {CATALOGUE[name].cases()[0].label}")


@pytest.mark.parametrize(("name", "wrong"), WRONG)
def test_a_wrong_work_is_refused_and_told_why(name, wrong):
    passed, report = hand_in(name, wrong.work)
    assert passed is False
    said = on_one_line(report)
    assert wrong.says in said
    assert not wrong.never or wrong.never not in said


@pytest.mark.parametrize("lesson", SOLUTIONS)
def test_every_exercise_has_works_of_both_kinds(lesson):
    names = {exercise.name for exercise in CATALOGUE.values() if exercise.lesson == lesson}
    module = SOLUTIONS[lesson]
    assert set(module.RIGHT) == set(module.WRONG) == names
    assert all(len(works) >= 3 for works in module.RIGHT.values())
    for name, works in module.WRONG.items():
        assert len({wrong.label for wrong in works}) == len(works) > 0, name
