"""Exercises with a pencil."""

import pytest

from vit_tutorial.checks import CATALOGUE
from vit_tutorial.checks.harness import Hashed, check
from vit_tutorial.checks.pencil import Question, hide, pencil

EXCHANGED, HAND = "a side exchanged. Height comes first.", "1 · By hand"
SIDES = pencil(
    "sides",
    lesson="99",
    points=2,
    questions={
        "rows": Question(hide("sides", "rows", 4), "Count them.", HAND, {3: EXCHANGED}),
        "columns": Question(hide("sides", "columns", 3), "Count those, too.", HAND, {4: EXCHANGED}),
        "both": Question(
            hide("sides", "both", [4, 3]), "Take the two.", HAND, {(3, 4): "a list backwards. Rows come first."}
        ),
    },
)


def report(capsys, **answers):
    right = check(SIDES, lambda: {"rows": 4, "columns": 3, "both": [4, 3]} | answers)
    return right, " ".join(capsys.readouterr().out.split())


def test_right_answers_pass(capsys):
    assert report(capsys)[0]


def test_a_mistake_that_shows_in_two_answers_is_one():
    assert [(mistake.name, mistake.wrong) for mistake in SIDES.mistakes] == [
        ("a side exchanged", {"rows": 3, "columns": 4}),
        ("a list backwards", {"both": (3, 4)}),
    ]


@pytest.mark.parametrize(
    ("answers", "says"),
    [
        ({"rows": 3, "columns": 4}, "It looks like a side exchanged. Height comes first. Reread in lesson 99"),
        ({"both": [3, 4]}, "It looks like a list backwards. Rows come first."),
        ({"both": [3, 3]}, "Take the two."),
        ({"columns": 7}, "Count those, too."),
    ],
)
def test_a_wrong_answer_is_told_its_mistake_or_the_advice(capsys, answers, says):
    right, said = report(capsys, **answers)
    assert not right
    assert says in said


def test_the_right_answer_is_not_shown(capsys):
    assert "4" not in report(capsys, rows=7)[1].replace("sides", "")


QUESTIONS = [exercise for exercise in CATALOGUE.values() if exercise.asks_questions]


@pytest.mark.parametrize("exercise", QUESTIONS, ids=lambda exercise: exercise.name)
def test_no_right_answer_can_be_read(exercise, capsys):
    assert all(type(answer) is Hashed for answer in exercise.right.values())
    assert not check(exercise, lambda: exercise.right), "nor can what stands there be handed in"


@pytest.mark.parametrize(
    ("answer", "within", "near", "off"),
    [
        (6, 1e-5, [6, 6.0, 6 + 1e-9], [5, 7, 6.1, 6.001, float("nan"), float("inf"), 6j]),
        (-1.2, 0.0016, [-1.2, -1.1985, -1.2015], [-1.203, -1.197, 1.2]),
        (100.5, 0.01, [100, 101, 99.6], [98, 103]),
        (0.0, 0.01, [0, 0.009, -0.009], [0.02, -0.02]),
    ],
)
def test_a_number_is_known_by_its_hash_as_far_as_it_is_near_enough(answer, within, near, off):
    hidden = hide("x", "y", answer, within)
    assert all(hidden.holds(0, number, "x/y") for number in near)
    assert not any(hidden.holds(0, number, "x/y") for number in off)
    assert not hidden.holds(0, answer, "x/z"), "each question has a salt of its own"
