"""The exercises' checks: mistakes are named, right answers pass, and a report says only what is so."""

import dataclasses
import functools
import json
import re
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
import torch
from submissions import Wrong, hand_in
from torch import nn
from torch.nn import functional as F

import vit_tutorial as vt
from vit_tutorial import checks
from vit_tutorial.checks import lesson01
from vit_tutorial.checks.engine import compare, symptoms
from vit_tutorial.checks.engine.exercise import Attempt, Case, Observation, Trial
from vit_tutorial.checks.engine.models import ModelSnapshot
from vit_tutorial.checks.engine.questions import Question, Slip, pencil
from vit_tutorial.checks.lesson01 import PATCH_EMBEDDING, PATCHIFY

NOTEBOOKS = Path(__file__).resolve().parent.parent / "notebooks"
CATALOGUE = checks.CATALOGUE
MISTAKES = [
    pytest.param(exercise, mistake, id=f"{exercise.name}-{mistake.name}")
    for exercise in CATALOGUE.values()
    for mistake in exercise.mistakes
]


@functools.cache
def places(lesson: str) -> set[str]:
    """The headings, without their numbers, and the bold openings of a lesson."""
    (path,) = NOTEBOOKS.glob(f"{lesson}_*.ipynb")
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    prose = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    prose = re.sub(r"```.*?```", "", prose, flags=re.DOTALL)
    prose = re.sub(r"`[^`\n]*`", lambda code: code[0].replace("**", ""), prose)  # Python's ** opens no bold text
    found = re.findall(r"^#+ (?:\d · )?(.+)$", prose, re.MULTILINE) + re.findall(r"\*\*(.+?)\*\*", prose, re.DOTALL)
    return {" ".join(place.split()) for place in found}


def said(capsys) -> str:
    """What was printed, on one line."""
    return " ".join(capsys.readouterr().out.split())


# ---- Every lesson's catalogue ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("exercise", "mistake"), MISTAKES)
def test_a_mistake_is_caught_and_named(exercise, mistake):
    wrong = mistake.wrong
    work = (lambda: exercise.right | wrong) if isinstance(wrong, dict) else wrong
    passed, text = hand_in(exercise.name, work, may_call_anything=True)
    assert not passed
    assert f"It looks like {mistake.name}. {mistake.says}" in text
    assert f'Reread in lesson {mistake.lesson or exercise.lesson}: "{mistake.reread}"' in text
    assert mistake.reread in places(mistake.lesson or exercise.lesson)


@pytest.mark.parametrize("exercise", CATALOGUE.values(), ids=CATALOGUE)
def test_an_exercise_is_declared_in_full(exercise):
    function = getattr(checks, f"check_{exercise.name}")
    assert function.__name__ == f"check_{exercise.name}"
    assert exercise.name in function.__doc__
    assert len({mistake.name for mistake in exercise.mistakes}) == len(exercise.mistakes)
    for mistake in exercise.mistakes:
        assert re.search(r"[.?]\)?$", mistake.says), mistake.says
        assert "!" not in mistake.says + mistake.name
        assert not re.match(r"(A|An|The|You|It)\b|.*\.$", mistake.name), "it goes on after: It looks like"


def test_points_are_those_of_the_notebooks():
    for exercise in CATALOGUE.values():
        (path,) = (NOTEBOOKS / "solutions").glob(f"{exercise.lesson}_*.ipynb")
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        (cell,) = [cell for cell in cells if f"checks.check_{exercise.name}(" in "".join(cell["source"])]
        assert exercise.points == cell["metadata"]["nbgrader"]["points"], exercise.name


def test_the_cases_are_new_each_time():
    for exercise in CATALOGUE.values():
        for a, b in zip(exercise.cases(), exercise.cases(), strict=True):
            for x, y in zip(a.args, b.args, strict=True):
                assert not isinstance(x, torch.Tensor) or (x is not y and torch.equal(x, y))
    assert all(case.weights for case in PATCH_EMBEDDING.cases())


def test_lesson_01_needs_torch_alone():
    heavy = ("matplotlib", "PIL", "torchvision", "nbgrader", "vit_tutorial.data", "vit_tutorial.train")
    code = f"""import sys
from vit_tutorial import checks
checks.check_patchify(lambda images, patch_size: None)
print([name for name in {heavy!r} if name in sys.modules])"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_check_loads_the_module_of_its_own_lesson_alone():
    code = """import sys
from vit_tutorial import checks
checks.check_online_softmax
print([name for name in sys.modules if name.startswith("vit_tutorial.checks.lesson")])"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "['vit_tutorial.checks.lesson19']\n"


def test_the_template_of_an_exercise_works():
    section = (NOTEBOOKS.parent / "CONTRIBUTING.md").read_text("utf-8").partition("## An exercise")[2]
    names = {**vars(lesson01), "__name__": "template", "Wrong": Wrong, "RIGHT": {}, "WRONG": {}}
    exec(re.search(r"```python\n(.+?)```", section, re.DOTALL)[1], names)
    exercise, (wrong,) = names["MEAN_COLOUR"], names["WRONG"]["mean_colour"]
    assert all(checks.grade(exercise, right).passed for right in [names["mean_colour"], *names["RIGHT"]["mean_colour"]])
    assert wrong.says in " ".join(checks.grade(exercise, wrong.submission).report.split())
    (mistake,) = exercise.mistakes
    assert f"It looks like {mistake.name}" in checks.grade(exercise, mistake.wrong).report
    assert mistake.reread in places("01")


# ---- Verdicts and reports ----------------------------------------------------------------------------------------


def right(images, patch_size):
    P, Q = (patch_size, patch_size) if isinstance(patch_size, int) else patch_size
    B, C, H, W = images.shape
    x = images.reshape(B, C, H // P, P, W // Q, Q).permute(0, 2, 4, 1, 3, 5)
    return x.reshape(B, (H // P) * (W // Q), C * P * Q)


def raises(images, patch_size):
    batch = images.shape[4]
    return images[batch]


def adds_in_place(images, patch_size):
    images += 1.0
    return right(images - 1.0, patch_size)


def changed_at(place, value):
    def patchify(images, patch_size):
        patches = right(images, patch_size).clone()
        patches[place] = value(patches[place])
        return patches

    return patchify


unknown = changed_at((0, 1, 2), lambda x: x + 1)


@pytest.mark.parametrize(
    ("work", "words"),
    [
        (raises, "raised IndexError: tuple index out of range in line {line} of raises: batch = images.shape[4]"),
        (lambda images, patch_size: None, "result is None: is the return missing?"),
        (lambda images: images, "raised TypeError:"),
        (lambda *a: np.asarray(right(*a)), ""),
        (lambda *a: right(*a).double(), ""),
        (lambda *a: right(*a).half(), "result[0, 0, 0] is"),
        (lambda *a: right(*a).to(torch.complex64), "result is of dtype torch.complex64, expected torch.float32"),
        (lambda *a: right(*a).tolist(), "result is a list, expected a torch.Tensor of shape (1, 6, 4)"),
        (lambda *a: (right(*a), 1), "result is a tuple, expected a torch.Tensor of shape (1, 6, 4)"),
        (lambda *a: right(*a).bool(), "result is of dtype torch.bool, expected torch.float32"),
        (lambda *a: right(*a)[None], "result has shape (1, 1, 6, 4), expected (1, 6, 4)"),
        (changed_at((0, 1, 2), lambda x: torch.nan), "result holds nan (not a number), first at [0, 1, 2]"),
        (adds_in_place, "argument 1 was changed in place"),
        (lambda *a: sys.exit(3), "raised SystemExit: 3"),
        (3, "raised TypeError: 'int' object is not callable"),
    ],
)
def test_a_plain_sentence(work, words):
    passed, text = hand_in("patchify", work)
    assert passed is (words == ""), text
    line = raises.__code__.co_firstlineno + 1
    assert words.format(line=line) in text
    assert "Traceback" not in text


def test_an_unknown_mistake_gets_the_first_difference():
    text = hand_in("patchify", unknown)[1]
    expected = right(PATCHIFY.cases()[0].args[0], 2)[0, 1, 2].item()
    assert f"result[0, 1, 2] is {expected + 1:.5g}, expected {expected:.5g}; 1 of 24 numbers are wrong, shape" in text
    assert "All that is wrong is at index 1 along axis 1 (of 6); the rest is right." in text
    assert "It looks like" not in text


def test_a_mistake_is_named_beside_an_error():
    def only_squares(images, patch_size):  # a reshape, and no rectangular patches
        (B, _, H, W), P = images.shape, patch_size
        return images.reshape(B, H * W // P**2, -1)

    text = hand_in("patchify", only_squares)[1]
    assert "It looks like a reshape in place of a permute." in text
    assert "raises" in text


def test_a_mistake_that_one_input_alone_shows_beside_errors_is_not_named():
    def mostly_raises(images, patch_size):
        if images.shape != (1, 1, 4, 6):
            raise ValueError
        return images.reshape(1, 6, 4)  # a reshape in place of a permute

    assert "It looks like" not in hand_in("patchify", mostly_raises)[1]


def test_the_stub_is_not_a_mistake(capsys):
    def stub(images, patch_size):
        raise NotImplementedError

    assert not checks.check_patchify(stub)
    assert said(capsys) == "patchify: not written yet"


def test_prints_are_kept_short():
    def chatty(images, patch_size):
        for number in range(1000):
            print("line", number)
        print("careful", file=sys.stderr)
        return right(images, patch_size)

    passed, text = hand_in("patchify", chatty)
    assert passed
    calls = 2 * len(checks.CATALOGUE["patchify"].cases())
    assert f"Your code printed {1001 * calls} lines, at first: | line 0 | line 1 | line 2 | line 3 | line 4" in text
    assert "line 5" not in text


def test_the_notebook_stays_as_it_was():
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    with torch.no_grad():
        assert hand_in("patchify", lambda *a: right(*a) + 0 * torch.rand(1))[0]
        assert not torch.is_grad_enabled()
    assert torch.equal(torch.rand(1), expected)


@pytest.mark.parametrize(
    ("right", "given", "says"),
    [
        (2.0, [2.0], ""),
        (2.0, [2.0, 2.0], "n is a list, expected a number"),
        (2.0, True, "n is a bool, expected a number"),
        (2, 10**400, "expected 2"),
        (2.0, 2.0 + 2.1e-3, "n is 2.0021, expected 2"),
        (0.0, -1.1e-3, "n is -0.0011, expected 0"),
        (1000.0, 1000.9, ""),
        (1000.0, 1001.1, "n is 1001.1, expected 1000"),
        (2.0, float("nan"), "n is nan, expected 2"),
        ([1.0, 2.0], ((1.0,), torch.tensor([2.0])), ""),
        ([1.0, 2.0], [1.0, 3.0], "n[1] is 3, expected 2"),
        ([1.0, 2.0], [1.0], "n is a list of 1, expected a list of 2"),
        (torch.tensor([1.0, torch.nan]), torch.tensor([1.0, torch.nan]), ""),
        (torch.tensor([1, 2]), torch.tensor([1.0, 2.0]), "n is of dtype torch.float32, expected whole numbers"),
        (torch.tensor([1, 2]), np.array([1, 2], dtype=np.int32), ""),
        (torch.tensor([1, 2]), torch.tensor([1.0, 2.5]), "whole numbers, such as torch.int64"),
    ],
)
def test_values_are_compared_within_the_tolerance(right, given, says):
    found = compare.difference(right, given, "n", dataclasses.replace(PATCHIFY, tolerance=1e-3))
    assert says in found
    assert bool(found) is bool(says)


# ---- What is forbidden -------------------------------------------------------------------------------------------


class Mine(vt.PatchEmbedding):
    pass


@pytest.mark.parametrize(
    ("name", "work"),
    [
        ("patchify", vt.patchify),
        ("patchify", lambda *a: vt.patchify(*a)),
        ("patchify", functools.partial(vt.patchify)),
        ("patch_embedding", Mine),
        ("patch_embedding", lambda *a: vt.PatchEmbedding(*a)),
    ],
)
def test_the_packages_own_work_is_no_answer(name, work):
    passed, text = hand_in(name, work)
    assert not passed
    assert "write your own in the cell above" in text


def test_what_torch_has_is_refused_where_the_text_says_so():
    passed, text = hand_in("attention", lambda q, k, v: (F.scaled_dot_product_attention(q, k, v), q @ k.mT))
    assert not passed
    assert "it calls scaled_dot_product_attention: this exercise asks you to do without" in text
    assert "in line" in text


def test_what_was_refused_works_afterwards():
    table = torch.zeros(1, 5, 3)
    hand_in("resize_positions", lambda *a: vt.resize_position_embedding(*a))
    assert vt.resize_position_embedding(table, (2, 2), (3, 3)).shape == (1, 10, 3), "its own defaults are back, too"
    hand_in("patch_embedding", lambda *a: vt.PatchEmbedding(*a))
    assert vt.PatchEmbedding(4, 2, 1, 3)(torch.zeros(1, 1, 4, 4)).shape == (1, 4, 3)


def test_what_belongs_to_another_exercise_may_be_called():
    assert hand_in("patchify", lambda images, P: right(images, P) + 0 * vt.MLP(2, 2)(torch.zeros(2)).sum())[0]


# ---- A layer -----------------------------------------------------------------------------------------------------


class Odd(nn.Module):
    def __init__(self, image_size, patch_size, in_channels, dim):
        super().__init__()
        P, Q = patch_size if isinstance(patch_size, tuple) else (patch_size, patch_size)
        self.layers(in_channels * P * Q, dim)
        self.patch_size = patch_size

    def layers(self, length, dim):
        self.proj = nn.Linear(length, dim)

    def forward(self, images):
        return self.proj(right(images, self.patch_size))


class NoClass(Odd):
    def __new__(cls, *args):
        return "a string"


class OtherName(Odd):
    def layers(self, length, dim):
        self.linear = nn.Linear(length, dim)


class OtherSize(Odd):
    def layers(self, length, dim):
        self.proj = nn.Linear(length, dim + 1)


class NoBias(Odd):
    def layers(self, length, dim):
        self.proj = nn.Linear(length, dim, bias=False)


class WithDropout(Odd):
    def forward(self, images):
        return F.dropout(super().forward(images), 0.5, training=self.training)


class Cut(Odd):
    def forward(self, images):
        return right(images, self.patch_size) @ self.proj.weight.detach().T + self.proj.bias


class Remembers(Odd):
    def forward(self, images):
        self.first = getattr(self, "first", images)
        return super().forward(self.first)


@pytest.mark.parametrize(
    ("work", "words"),
    [
        (Odd, ""),
        (OtherName, "has a parameter that the stub doesn't name: linear.weight; agreed are proj.weight (5, 1, 2, 2)"),
        (OtherSize, "proj.weight has shape (6, 4), expected (5, 1, 2, 2)"),
        (NoBias, "the class has no parameter of its own for proj.bias; agreed are proj.weight (5, 1, 2, 2), proj.bias"),
        (NoClass, "NoClass(...) gives a str, expected an nn.Module"),
        (WithDropout, "the result in training mode (compared with evaluation mode) is another one"),
        (Cut, "the numbers are right, but gradient of proj.weight is missing"),
        (Remembers, "the result of a second call with other inputs"),
    ],
)
def test_a_layer_is_told_what_is_wrong_with_it(work, words):
    passed, text = hand_in("patch_embedding", work)
    assert passed is (words == ""), text
    assert words in text


# ---- What the numbers show ---------------------------------------------------------------------------------------


def trial(*pairs):
    """A student's work on inputs that have these right results and gave those."""
    attempts = [
        Attempt(Case(f"input {i}"), Observation({"result": ours}), Observation({"result": theirs}), "")
        for i, (ours, theirs) in enumerate(pairs)
    ]
    wrong = [
        dataclasses.replace(one, difference="wrong") if one.right.result is not one.outcome.result else one
        for one in attempts
    ]
    return Trial(PATCHIFY, wrong, "")


ROWS = torch.tensor([[0.3, 0.5, 0.9], [1.2, -0.7, 2.1]])


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (1.7 * ROWS, "Every number is 1.7 times the right one."),
        (-ROWS, "Every number is right but for its sign."),
        (ROWS.T, "Your numbers are right, but axes 0 and 1 are exchanged: transpose(0, 1)."),
        (ROWS.reshape(3, 2), "Your numbers are right, and in the right order; only the shape isn't."),
        (torch.cat([ROWS, ROWS[:1]]), "Along axis 0, the last 1 of yours are too many; the rest is right."),
        (ROWS[1:], "Along axis 0, the first 1 of the right ones are missing; what is there is right."),
        (ROWS.flip(0, 1), "The right numbers are all there, but in other places"),
        (ROWS + torch.tensor([0.0, 0.0, 1.0]), "All that is wrong is at index 2, the last along axis 1 (of 3)"),
        (ROWS / 0, ""),
        (ROWS.square() + 3, ""),
        (ROWS * torch.tensor([1.001, 1.0011, 1.001]), ""),
    ],
)
def test_what_the_numbers_show(given, words):
    seen = symptoms.symptom(trial((ROWS, given)))
    assert words in seen
    assert bool(seen) is bool(words)


def test_what_holds_of_the_first_input_alone_is_told_with_its_name():
    seen = symptoms.symptom(trial((ROWS, 2 * ROWS), (ROWS, 3 * ROWS)))
    assert seen == "Every number is 2 times the right one. (with input 0)"
    assert symptoms.symptom(trial((ROWS, 2 * ROWS), (ROWS, ROWS))).endswith("(with input 0)")


def test_between_single_numbers_no_factor_is_told():
    assert symptoms.symptom(trial(*[(torch.tensor(n), torch.tensor(1.7 * n)) for n in (0.5, 0.3, 0.9)])) == ""


# ---- With a pencil -----------------------------------------------------------------------------------------------

EXCHANGED, HAND = Slip("a side exchanged", "Height comes first."), "By hand"
SIDES = pencil(
    "sides",
    lesson="99",
    points=2,
    questions={
        "rows": Question(4, "Count them.", HAND, {3: EXCHANGED}),
        "columns": Question(3, "Count those, too.", HAND, {4: EXCHANGED}),
        "share": Question(0.123456, "Divide."),
        "both": Question([4, 3], "Take the two.", HAND, {(3, 4): Slip("a list backwards", "Rows come first.")}),
    },
)


@pytest.mark.parametrize(
    ("answers", "says"),
    [
        ({}, "sides: right"),
        ({"rows": torch.tensor(4), "both": np.array([4, 3])}, "sides: right"),
        ({"rows": 3, "columns": 4}, "It looks like a side exchanged. Height comes first. Reread in lesson 99"),
        ({"both": [3, 4]}, "It looks like a list backwards. Rows come first."),
        ({"both": [3, 3]}, "Take the two."),
        ({"columns": 3.0001}, "columns is 3.0001, which is not right Count those, too."),
        ({"columns": ...}, "there is no answer for 'columns' yet"),
    ],
)
def test_a_wrong_answer_is_told_its_mistake_or_the_advice(answers, says):
    grade = checks.grade(SIDES, lambda: SIDES.right | answers)
    text = " ".join(grade.report.split())
    assert says in text
    assert grade.passed is says.endswith("right")
    assert "0.123" not in text, "no right answer is shown"


def test_a_mistake_that_shows_in_two_answers_is_one():
    assert [mistake.wrong for mistake in SIDES.mistakes] == [{"rows": 3, "columns": 4}, {"both": (3, 4)}]


def test_answers_come_in_a_dictionary():
    assert "returned a list, expected a dictionary of answers" in hand_in("patch_numbers", lambda: [6])[1]


# ---- Models and torch's calls ------------------------------------------------------------------------------------


def replace_a_part(model):
    model[1] = nn.Tanh()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda model: model(torch.zeros(1, 2)), "as it was"),
        (replace_a_part, "there is a change in the part 1"),
        (
            lambda model: model[0].register_forward_hook(print),
            "a change in the hooks on 0 (handle",
        ),
        (lambda model: model[0].bias.data.add_(1), "a change in the numbers of 0.bias"),
        (lambda model: model.requires_grad_(False), "a change in requires_grad of 0.weight"),
        (lambda model: setattr(model[2], "p", 0.0), "a change in the rate of 2"),
    ],
)
def test_a_model_is_compared_with_what_it_was(change, words):
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Dropout(0.3))
    snapshot = ModelSnapshot(model)
    change(model)
    assert words in snapshot.afterwards()


# ---- The public functions ----------------------------------------------------------------------------------------


def test_progress_says_what_is_done_and_what_is_open(capsys, monkeypatch):
    monkeypatch.setattr(checks, "_verdicts", {})
    checks.progress()
    assert said(capsys) == "No check has run yet: run the cells above."
    checks.check_patchify(right)
    checks.check_unpatchify(lambda *a: None)
    said(capsys)
    checks.progress()
    text = said(capsys)
    assert text.startswith("Lesson 01: 1 of 5 exercises are done, 5 of 17 points.")
    assert "patchify 5 points done unpatchify 3 points open (not yet) patch_embedding 4 points open (not" in text
    assert text.endswith("What your teacher marks gives 3 more.")
    checks.check_patchify(unknown)  # what was right and is no longer is open again
    said(capsys)
    checks.progress("01")
    assert "0 of 5 exercises are done, 0 of 17 points" in said(capsys)


def test_grade_returns_what_a_check_prints(capsys):
    wrong = checks.grade("patchify", unknown)
    assert said(capsys) == ""
    assert (wrong.passed, wrong.points, wrong.verdict) == (False, 0, "not yet")
    assert not checks.check_patchify(unknown)
    assert " ".join(wrong.report.split()) == said(capsys)
    exercise = next(one for one in checks.exercises("01") if one.name == "patchify")
    assert checks.grade(exercise, right).points == exercise.points == 5


def test_an_unknown_exercise_or_lesson_is_refused():
    with pytest.raises(ValueError, match="no exercise is called 'nonsense'"):
        checks.grade("nonsense", right)
    with pytest.raises(ValueError, match="no lesson '77' has checks"):
        checks.exercises("77")
    with pytest.raises(AttributeError, match="check_nonsense"):
        _ = checks.check_nonsense


class NoText:
    def __repr__(self):
        raise ValueError("nothing to print")


def holding_itself():
    found = []
    found.append(found)
    return found


@pytest.mark.parametrize("result", [holding_itself(), torch.ones(2, 2).to_sparse(), Decimal("sNaN"), NoText()])
def test_a_result_that_can_t_be_compared_is_wrong(result):
    found = checks.grade("patchify", lambda images, patch_size: result)
    assert not found.passed
    assert "not yet" in found.report


def test_a_student_s_module_may_begin_with_the_package_s_name():
    def patchify(images, patch_size):
        return images

    patchify.__module__ = "vit_tutorial_homework"
    assert "the package's" not in checks.grade("patchify", patchify).report
