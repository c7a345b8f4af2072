"""Wrong submissions to the exercises of lessons 06 to 10 and 12: refused, and nobody is told of another's mistake.

Each test hands in every sixth of an exercise's wrong works; ``python tests/stress_checks.py`` hands in all.
"""

import importlib

import pytest
from stress_checks import LESSONS, hand_in, kind

EXERCISES = [
    pytest.param(module, name, id=name)
    for module in [importlib.import_module(f"solutions_{lesson}") for lesson in LESSONS]
    for name in module.BY_LABEL
]


@pytest.mark.parametrize(("module", "name"), EXERCISES)
def test_wrong_works_are_refused_and_told_of_their_own_mistake(module, name):
    works, names = module.BY_LABEL[name], module.NAMES.get(name)
    assert len(works) >= 20
    unexplained = 0
    for label in list(works)[::6]:
        said = hand_in(name, works[label])
        found = kind(name, said)
        assert found != "passed", label
        unexplained += found == "only numbers"
        if names is not None:
            expected = f"It looks like {names[label]}" if label in names else "It looks like"
            assert (expected in said) is (label in names), (label, said)
    assert unexplained <= 2


@pytest.mark.parametrize(("module", "name"), EXERCISES)
def test_a_name_belongs_to_a_submission(module, name):
    assert module.NAMES.get(name, {}).keys() <= module.BY_LABEL[name].keys()
