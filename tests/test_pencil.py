"""Exercises with a pencil."""

import pytest

from vit_tutorial.checks.harness import check
from vit_tutorial.checks.pencil import Question, pencil

SIDES = pencil(
    "sides",
    lesson="99",
    points=2,
    questions={
        "rows": Question(4, "Count them.", "1 · By hand", {3: "a side exchanged. Height comes first."}),
        "columns": Question(3, "Count those, too.", "1 · By hand", {4: "a side exchanged. Height comes first."}),
        "both": Question([4, 3], "Take the two.", "1 · By hand", {(3, 4): "a list backwards. Rows come first."}),
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
