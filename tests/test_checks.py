"""The exercises' checks: mistakes are named, right answers pass, and nothing of a student's code gets out."""

import functools
import importlib
import json
import re
import subprocess
import sys
import threading
import time
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from solutions_05 import Stack
from solutions_12 import matrix_by_loops
from solutions_13 import classes_by_pooling
from torch import nn
from torch.nn import functional as F

import vit_tutorial as vt
from vit_tutorial import checks
from vit_tutorial.checks import harness, record, symptoms
from vit_tutorial.checks.lesson01 import PATCH_EMBEDDING, PATCH_NUMBERS, PATCHIFY

NOTEBOOKS = Path(__file__).resolve().parent.parent / "notebooks"
CATALOGUE = checks.CATALOGUE
# Lines are counted in the first of an exercise's, which runs the others too: counting them takes two thirds more.
MISTAKES = [
    pytest.param(exercise, mistake, id=f"{exercise.name}-{mistake.name}", marks=[pytest.mark.no_cover] if index else [])
    for exercise in CATALOGUE.values()
    for index, mistake in enumerate(exercise.mistakes)
]
RIGHT = [
    pytest.param(CATALOGUE[name], work, id=f"{name}-{index}")
    for lesson in sorted({exercise.lesson for exercise in CATALOGUE.values()})
    for name, works in importlib.import_module(f"solutions_{lesson}").SOLUTIONS.items()
    for index, work in enumerate(works)
]
# Every sixth of the wrong answers here, all of them in `make slow`: there are many, and several of a kind.
WRONG = [
    pytest.param(CATALOGUE[name], work, words, id=f"{name}-{index}", marks=[pytest.mark.slow] if index % 6 else [])
    for lesson in sorted({exercise.lesson for exercise in CATALOGUE.values()})
    for name, works in getattr(importlib.import_module(f"solutions_{lesson}"), "WRONG", {}).items()
    if not isinstance(works, dict)  # those of lessons 06 to 10 are kept by names, with tests of their own
    for index, (work, words) in enumerate(works)
]
# What a report says beyond a number that should be another: one of these, or a piece of advice.
TOLD = (
    "It looks like", "What your numbers show", "raised", "has shape", "is None", "numbers are right", "expected a",
    "changed in place", "gradient of", "it calls", "is the package's", "the stub doesn't name", "there is no answer",
    "The class has no", "of dtype", "holds", "in eval mode,", "in training,",
    "Sizes of tensors must match", "the start of", "cls_token is", "drop path[", "the number of blocks",
    "what falls is", "what images are multiplied by", "what share of", "each draw is",
    "the path of the gradient", "at once", "table of positions is", "how the two branches fall", "in training mode",
    "in one step", "a row a token, but",
)  # fmt: skip
UNTOLD = {  # where some get no more than the first difference
    (name, "")
    for name in (
        "attention",
        "embeddings",
        "multi_head_attention",
        "attention_in_chunks",
        "gelu",
        "gelu_tanh",
        "mlp",
        "mlp_in_pieces",
        "layer_norm",
        "encoder_block",
        "law_from_floor",
    )
}


def said(capsys) -> str:
    """What was printed, on one line; nothing may go to stderr, where nbgrader takes it for a failure."""
    captured = capsys.readouterr()
    assert captured.err == ""
    return " ".join(captured.out.split())


@functools.cache
def places(lesson: str) -> set[str]:
    """The headings and the bold openings of a lesson."""
    (path,) = NOTEBOOKS.glob(f"{lesson}_*.ipynb")
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    prose = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    found = re.findall(r"^#+ (.+)$", prose, re.MULTILINE) + re.findall(r"\*\*(.+?)\*\*", prose, re.DOTALL)
    return {" ".join(place.split()) for place in found}


def submit(exercise, wrong):
    """The mistake as somebody's work: a partial dictionary of answers is filled up with right ones."""
    return (lambda: exercise.right | wrong) if isinstance(wrong, dict) else wrong


# ---- Every lesson's catalogue ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("exercise", "mistake"), MISTAKES)
def test_a_mistake_is_caught_and_named_and_confused_with_no_other(exercise, mistake, capsys, monkeypatch):
    fitting, named = [], harness.named
    monkeypatch.setattr(harness, "named", lambda *a: fitting.extend(named(*a)) or fitting)
    if not isinstance(mistake.wrong, dict):
        # What it gives is computed once, for the work and for the mistake; the last input is tried again, as new.
        given = list(harness.known(exercise, mistake))
        again = harness._one(exercise, mistake.wrong, exercise.cases()[-1])
        monkeypatch.setattr(harness, "attempt", lambda *_, **__: [*given[:-1], again])
    assert harness.check(exercise, submit(exercise, mistake.wrong), watched=False) is False
    text = said(capsys)
    assert f"It looks like {mistake.name}. {mistake.says}" in text
    lesson = mistake.lesson or exercise.lesson
    assert f'Reread in lesson {lesson}: "{mistake.reread}"' in text
    assert mistake.reread in places(lesson)
    assert [found for found, some in fitting if not some] == [mistake]


@pytest.mark.parametrize(("exercise", "work"), RIGHT)
def test_a_right_answer_passes(exercise, work, capsys):
    passed = harness.check(exercise, work)
    text = said(capsys)
    assert passed is True, text
    assert text.startswith(f"{exercise.name}: right. Tried: {exercise.cases()[0].label}")


@pytest.mark.parametrize(("exercise", "work", "words"), WRONG)
def test_a_wrong_answer_is_caught_and_told_more_than_that_numbers_differ(exercise, work, words, capsys):
    assert harness.check(exercise, work) is False
    text = said(capsys)
    assert words in text
    told = any(one in text for one in (*TOLD, *exercise.advice.values()))
    assert told or (exercise.name, words) in UNTOLD, text


def scaled_in_place(q, k, v):
    q /= q.shape[-1] ** 0.5
    weights = (q @ k.mT).softmax(-1)
    return weights @ v, weights


class DropsInTraining(vt.MultiHeadSelfAttention):
    def forward(self, x):
        return F.dropout(super().forward(x), 0.5, self.training)


class FailsForOneBlock(Stack):
    def __init__(self, dim, num_heads, mlp_dim, depth, drop_path=0.0):
        super().__init__(dim, num_heads, mlp_dim, depth, drop_path=drop_path / (depth > 1))


@pytest.mark.parametrize(
    ("name", "work", "words"),
    [
        ("attention", scaled_in_place, "changed in place"),
        ("multi_head_attention", DropsInTraining, "in training mode"),
        ("encoder", FailsForOneBlock, "raised ZeroDivisionError"),
    ],
)
def test_no_more_is_said_of_the_numbers_where_they_are_right(name, work, words, capsys):
    assert harness.check(CATALOGUE[name], work, watched=False) is False
    text = said(capsys)
    assert words in text
    assert "What your numbers show" not in text


def test_there_are_enough():
    assert len(MISTAKES) >= 40
    for lesson in {exercise.lesson for exercise in CATALOGUE.values()}:
        exercises = [exercise for exercise in CATALOGUE.values() if exercise.lesson == lesson]
        assert 3 <= len(exercises) <= 6, lesson
        assert sum(len(exercise.mistakes) for exercise in exercises) >= 4, lesson
        solutions = importlib.import_module(f"solutions_{lesson}").SOLUTIONS
        assert {exercise.name for exercise in exercises} == set(solutions)
        assert all(len(works) >= 3 for works in solutions.values())


@pytest.mark.parametrize("exercise", CATALOGUE.values(), ids=CATALOGUE)
def test_an_exercise_is_declared_in_full(exercise):
    function = getattr(checks, f"check_{exercise.name}")
    assert len(function.__doc__) > 20
    assert function.__module__ == f"vit_tutorial.checks.lesson{exercise.lesson}"
    assert f"check_{exercise.name}" in dir(checks)
    assert len({mistake.name for mistake in exercise.mistakes}) == len(exercise.mistakes)
    for mistake in exercise.mistakes:
        assert re.search(r"[.?]\)?$", mistake.says), mistake.says
        assert "!" not in mistake.says + mistake.name
        assert not re.match(r"(A|An|The|You|It)\b|.*\.$", mistake.name), "it goes on after: It looks like"


def test_a_factor_is_told_with_its_cause_only_where_no_other_axis_has_that_length():
    right, x = torch.arange(1.0, 9.0).view(2, 4) / 3, torch.rand(4, 4)
    seen = [symptoms.symptom([(right, 4 * right, one, "x")], 1e-5, symptoms.EXACT) for one in ({"x": x}, {"x": x[0]})]
    assert seen[0] == "Every number is 4 times the right one."
    assert seen[1] == "Every number is 4 times the right one, that is 4; 4 is the length of axis 0 of x."


def test_between_single_numbers_a_factor_is_told_only_if_it_holds_of_several():
    pairs = [(torch.tensor(n), torch.tensor(1.7 * n), {}, "one") for n in (0.5, 0.3, 0.9)]
    assert symptoms.symptom(pairs[:1], 1e-5, symptoms.EXACT) == ""
    assert symptoms.symptom(pairs[:2], 1e-5, symptoms.EXACT) == ""
    assert symptoms.symptom(pairs, 1e-5, symptoms.EXACT) == "Every number is 1.7 times the right one."


def test_what_holds_of_one_input_alone_is_told_with_its_name():
    right = torch.tensor([0.3, 0.5, 0.9])
    pairs = [(right, 2 * right, {}, "the first input"), (right, right.square() + 3, {}, "the second")]
    seen = symptoms.symptom(pairs, 1e-5, (symptoms._scaled,))
    assert seen == "Every number is 2 times the right one. (with the first input)"


def test_a_factor_that_is_another_with_each_input_is_told_with_the_first_ones_name():
    right = torch.tensor([0.3, 0.5, 0.9])
    pairs = [(right, factor * right, {}, name) for factor, name in ((2, "the first input"), (3, "the second"))]
    seen = symptoms.symptom(pairs, 1e-5, (symptoms._scaled,))
    assert seen == "Every number is 2 times the right one. (with the first input)"


def test_what_holds_of_some_of_the_wrong_inputs_is_told_with_the_firsts_name(capsys):
    def adds_one_to_what_it_was_given(images, patch_size):
        patches = right(images, patch_size)
        images += 1.0
        return patches  # a view of the images where one patch is the whole image

    assert not checks.check_patchify(adds_one_to_what_it_was_given)
    assert "Every number is 1 too large. (with images (2, 3, 4, 5), patch_size=(4, 5))" in said(capsys)


def test_a_place_in_nested_lists_is_told_as_the_student_has_it(capsys):
    answers = CATALOGUE["embedding_numbers"].right
    rows = [list(row) for row in answers["z0"]]
    rows[1][0] += 50
    checks.check_embedding_numbers(lambda: answers | {"z0": rows})
    assert "z0[1][0] is" in said(capsys)


def starting(cls_token=lambda tokens, dim: torch.zeros(1, 1, dim), position=None):
    """Lesson 02's layer with another start."""
    position = position or (lambda tokens, dim: 0.02 * torch.randn(1, tokens, dim))

    class Embeddings(nn.Module):
        def __init__(self, image_size, patch_size, in_channels, dim):
            super().__init__()
            self.patches = vt.PatchEmbedding(image_size, patch_size, in_channels, dim)
            tokens = 1 + self.patches.grid[0] * self.patches.grid[1]
            self.cls_token = nn.Parameter(cls_token(tokens, dim))
            self.position = nn.Parameter(position(tokens, dim))

        def forward(self, images):
            x = self.patches(images)
            return torch.cat([self.cls_token.expand(len(x), -1, -1), x], dim=1) + self.position

    return Embeddings


def one_row_larger(tokens, dim):
    return 0.02 * torch.cat([50 * torch.randn(1, 1, dim), torch.randn(1, tokens - 1, dim)], 1)


def positions_one_place_late(x, cls_token, position):
    return torch.cat([cls_token.expand(len(x), -1, -1), x], dim=1) + position.roll(1, dims=1)


ONE_PLACE_LATE = "If position[:, 0] changes, only result[:, 0] should change; in yours result[:, 1] does"
REPORTS = [  # of an exercise and a wrong work, what is said of it, and what isn't so
    ("patch_numbers", {"pixel 16": (3,)}, "is of type tuple of 1, expected a tuple of 2", "of type list"),
    ("embeddings", starting(lambda tokens, dim: torch.zeros(1, tokens, dim)), "vectors, expected one", "each image"),
    ("embeddings", starting(lambda tokens, dim: torch.zeros(1, 1, 1)), "cls_token is of shape (1, 1, 1)", "0 vectors"),
    ("embeddings", starting(position=lambda *n: 0.02 * torch.randn(1, *n).abs()), "is not normal", "is normal"),
    ("embeddings", starting(position=one_row_larger), "another one for some tokens", "some channels"),
    ("attention", lambda q, k, v: F.softmax(q @ k.mT / q.shape[-1] ** 0.5, -1) @ v, "of shape (4, 2)", "along axis 0"),
    ("embed_tokens", positions_one_place_late, ONE_PLACE_LATE, "along axis"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "work", "words", "untrue"), REPORTS)
def test_a_report_says_what_is_so_and_no_more(name, work, words, untrue, capsys):
    exercise = CATALOGUE[name]
    assert harness.check(exercise, submit(exercise, work), watched=False) is False
    text = said(capsys)
    assert words in text
    assert untrue not in text


def test_numbers_that_are_none_leave_stderr_empty(capfd):
    right, nothing = torch.arange(12.0).view(3, 4), torch.full((3, 4), torch.nan)
    for a, x in ((nothing, right), (right + 1, torch.full((3, 4), torch.inf)), (2 * right, nothing)):
        symptoms.symptom([(right, a, {"x": x}, "nones")], 1e-5, (symptoms._mixed_with_an_input,))
    mixed = 2 * right + 3 * right.square()
    seen = symptoms.symptom([(right, mixed, {"x": right.square()}, "squares")], 1e-5, (symptoms._mixed_with_an_input,))
    assert seen == "Yours is 2 times the right one plus 3 times x."
    assert capfd.readouterr().err == ""  # of the libraries below Python, too


# ---- What a student's code may do --------------------------------------------------------------------------------


def right(images, patch_size):
    P, Q = (patch_size, patch_size) if isinstance(patch_size, int) else patch_size
    B, C, H, W = images.shape
    x = images.reshape(B, C, H // P, P, W // Q, Q).permute(0, 2, 4, 1, 3, 5)
    return x.reshape(B, (H // P) * (W // Q), C * P * Q)


def raises(images, patch_size):
    batch = images.shape[4]
    return images[batch]


def gives_numpy(images, patch_size):
    return np.asarray(right(images, patch_size).detach())


def adds_in_place(images, patch_size):
    images += 1.0
    return right(images - 1.0, patch_size)


def cuts_the_graph(images, patch_size):
    with torch.no_grad():
        return right(images, patch_size)


def interrupts(images, patch_size):
    raise KeyboardInterrupt


def one_nan(images, patch_size):
    patches = right(images, patch_size).clone()
    patches[0, 1, 2] = float("nan")
    return patches


def unknown(images, patch_size):
    patches = right(images, patch_size).clone()
    patches[0, 1, 2] += 1.0
    return patches


@pytest.mark.parametrize(
    ("work", "words"),
    [
        (raises, "raised IndexError: tuple index out of range in line {line} of raises: batch = images.shape[4]"),
        (lambda images, patch_size: None, "result is None: is the return missing?"),
        (lambda images: images, "raised TypeError:"),
        (gives_numpy, ""),
        (lambda *a: np.asarray(right(*a)), ""),
        (lambda *a: right(*a).double(), ""),
        (lambda *a: right(*a).half(), ""),
        (cuts_the_graph, ""),
        (lambda *a: right(*a) * 1 + 0 * a[0].sum(), ""),
        (lambda *a: right(*a).requires_grad_().numpy(), "Stay with torch's own functions"),
        (lambda *a: right(*a).tolist(), "the numbers are right, but result is of type list: make a tensor of it"),
        (lambda *a: list(right(*a)), "but result is of type list: make a tensor of it with torch.stack(…), expected a"),
        (lambda *a: (right(*a), 1), "result is of type tuple of 2, whose part 0 is right: return it alone"),
        (lambda *a: right(*a).bool(), "result is of dtype torch.bool, expected torch.float32"),
        (lambda *a: right(*a).to("meta"), "result is on device meta, which keeps no numbers"),
        (lambda *a: right(*a)[None], "result has shape (1, 1, 6, 4), expected (1, 6, 4): the numbers are right"),
        (one_nan, "result holds nan (not a number), first at [0, 1, 2]"),
        (adds_in_place, "argument 1 was changed in place"),
        (lambda *a: sys.exit(3), "raised SystemExit: 3"),
        (interrupts, "raised KeyboardInterrupt"),
        (3, "raised TypeError: 'int' object is not callable"),
    ],
)
def test_a_plain_sentence(work, words, capsys):
    passed = checks.check_patchify(work)
    text = said(capsys)
    assert passed is (words == ""), text
    line = raises.__code__.co_firstlineno + 1
    assert words.format(line=line) in text
    assert "Traceback" not in text
    assert "harness" not in text


def test_an_unknown_mistake_gets_the_first_difference(capsys):
    assert not checks.check_patchify(unknown)
    text = said(capsys)
    expected = right(PATCHIFY.cases()[0].args[0], 2)[0, 1, 2].item()
    assert f"result[0, 1, 2] is {expected + 1:.5g}, expected {expected:.5g}; 1 of 24 numbers differ, shape" in text
    assert "What your numbers show: Only a part is wrong: index 1 along axis 1 (of 6). The rest is right." in text
    assert "It looks like" not in text


def test_a_mistake_beside_another_is_named_with_care(capsys):
    def plain(images, patch_size):  # a reshape, and blind to rectangular patches
        (B, _, H, W), P = images.shape, patch_size if isinstance(patch_size, int) else patch_size[0]
        return images.reshape(B, H * W // P**2, -1)

    assert not checks.check_patchify(plain)
    text = said(capsys)
    assert "It looks like a reshape in place of a permute (on 5 inputs, but not on all: there may be another)." in text


def test_a_mistake_that_does_not_show_is_not_named(capsys):
    """On square patches nobody can tell height from width."""

    def squares_only(images, patch_size):
        return right(images, int(patch_size))

    assert not checks.check_patchify(squares_only)
    text = said(capsys)
    assert "raised TypeError: int() argument must be" in text
    assert "It looks like" not in text


def test_the_stub_is_not_a_mistake(capsys):
    def stub(images, patch_size):
        raise NotImplementedError

    assert not checks.check_patchify(stub)
    assert said(capsys) == "patchify: not written yet"


def test_answers_are_not_given_away(capsys):
    assert not checks.check_patch_numbers(lambda: PATCH_NUMBERS.right | {"photo patches": 12, "patch 1": ...})
    text = said(capsys)
    assert "there is no answer for 'patch 1' yet" in text
    assert "photo patches wrong" in text
    assert "140" not in text
    assert not checks.check_patch_numbers(lambda: PATCH_NUMBERS.right | {"photo patches": 12})
    text = said(capsys)
    assert "photo patches is 12, and should be something else" in text
    assert "140" not in text
    assert not checks.check_patch_numbers(lambda: [6])
    assert "returned of type list, expected a dictionary of answers" in said(capsys)


def test_the_package_itself_is_no_answer(capsys):
    class Mine(vt.PatchEmbedding):
        pass

    assert not checks.check_patchify(vt.patchify)
    assert not checks.check_patch_embedding(Mine)
    assert said(capsys).count("write your own in the cell above") == 2


@pytest.mark.parametrize(
    "work",
    [
        lambda *a: vt.patchify(*a),
        functools.partial(vt.patchify),
        type("Call", (), {"__call__": lambda self, *a: vt.patchify(*a), "__name__": "mine"})(),
        lambda *a: vt.PatchEmbedding.forward and vt.patches.patchify(*a),
        lambda *a: checks.CATALOGUE["patchify"].right(*a),
    ],
)
def test_the_packages_own_function_is_recognised_behind_others(work, capsys):
    assert not checks.check_patchify(work)
    assert "write your own in the cell above" in said(capsys)


@pytest.mark.parametrize(
    "work",
    [
        lambda *a: vt.PatchEmbedding(*a),
        type("Around", (nn.Module,), {"__new__": lambda cls, *a: vt.PatchEmbedding(*a)}),
        functools.partial(vt.PatchEmbedding),
    ],
)
def test_the_packages_own_class_is_recognised_when_it_is_built(work, capsys):
    assert not checks.check_patch_embedding(work)
    assert "write your own in the cell above" in said(capsys)


def test_what_belongs_to_another_exercise_may_be_called(capsys):
    assert checks.check_patchify(
        lambda images, patch_size: right(images, patch_size) + 0 * vt.attention(*[images] * 3)[0].sum()
    )
    assert "right" in said(capsys)


def test_progress_says_what_is_done_and_what_is_open(capsys, monkeypatch):
    monkeypatch.setattr(record, "_SEEN", {})
    checks.progress()
    assert said(capsys) == "No check has run yet: run the cells above."
    checks.check_patchify(right)
    checks.check_unpatchify(lambda *a: None)
    said(capsys)
    checks.progress()
    text = said(capsys)
    assert text.startswith("Lesson 01: 1 of 5 exercises are done, 5 of 17 points.")
    assert (
        "patchify 5 points done unpatchify 3 points open (not yet) patch_embedding 4 points open (not checked" in text
    )
    assert text.endswith("What your teacher marks gives 3 more.")
    checks.check_patchify(unknown)  # what was right and is no longer is open again
    said(capsys)
    checks.progress("01")
    assert "0 of 5 exercises are done, 0 of 17 points" in said(capsys)


def test_points_are_those_of_the_notebooks():
    for exercise in CATALOGUE.values():
        (path,) = (NOTEBOOKS / "solutions").glob(f"{exercise.lesson}_*.ipynb")
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        (cell,) = [cell for cell in cells if f"checks.check_{exercise.name}(" in "".join(cell["source"])]
        if exercise.lesson <= "05" or exercise.points:
            assert exercise.points == cell["metadata"]["nbgrader"]["points"], exercise.name


def test_prints_are_kept_short_and_in(capsys):
    def chatty(images, patch_size):
        for number in range(1000):
            print("line", number)
        print("careful", file=sys.stderr)
        return right(images, patch_size)

    assert checks.check_patchify(chatty)
    text = said(capsys)
    assert "Your code printed 10010 lines, at first: | line 0 | line 1 | line 2 | line 3 | line 4" in text
    assert "line 5" not in text


def test_an_endless_print_fills_no_memory():
    with harness._quiet() as kept:
        for _ in range(1000):
            print("x" * 99)
    assert (len(kept.text), kept.lines) == (harness.KEPT, 1000)


@pytest.mark.parametrize("swallow", [False, True])
def test_an_endless_loop_ends(swallow, capsys, monkeypatch):
    monkeypatch.setattr(harness, "SECONDS", 0.3)
    stop, calls = [], []

    def endless(images, patch_size):
        calls.append(1)
        while not stop:
            print("and again")
            try:
                time.sleep(0.001)
            except BaseException:
                if not swallow:
                    raise

    assert not checks.check_patchify(endless)
    text = said(capsys)
    assert "took more than 0 seconds: is there a loop that doesn't end?" in text
    assert "not tried" in text
    assert ("still runs: restart the kernel" in text) is swallow
    stop.append(True)  # so that the thread ends with the test, and tries no other case
    for thread in threading.enumerate():
        if thread.name == "check":
            thread.join(5)
    assert len(calls) == 1


def test_a_fault_without_a_word_is_a_fault(capsys):
    def empty(images, patch_size):
        raise harness.Fault("")

    assert not checks.check_patchify(empty)
    assert "raised a Fault without a word" in said(capsys)


def test_a_busy_machine_refuses_nobody_and_who_sleeps_is_stopped(capsys, monkeypatch):
    monkeypatch.setattr(harness, "SECONDS", 0.3)
    monkeypatch.setattr(harness, "PATIENCE", 8.0)

    def waits(images, patch_size):  # as one does whom the processor is taken from
        time.sleep(0.05)
        return right(images, patch_size)

    assert checks.check_patchify(waits)
    assert not checks.check_patchify(lambda *a: time.sleep(5))
    assert "took more than 0 seconds" in said(capsys)
    # As long as an error is pending in a thread, CPython 3.11 runs no other one that is traced or profiled.
    for thread in threading.enumerate():
        if thread.name == "check":
            thread.join(5)


def test_an_import_is_not_cut_off(tmp_path, capsys, monkeypatch):
    """A module that is half loaded would stay broken for the whole session."""
    (tmp_path / "slow_to_load.py").write_text("import time\ntime.sleep(0.1)\nsum(range(20_000_000))\nloaded = True\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(harness, "SECONDS", 0.2)
    monkeypatch.setattr(harness, "PATIENCE", 0.5)  # neither the work of an import counts, nor the time that it takes

    def loads(images, patch_size):
        import slow_to_load

        assert slow_to_load.loaded
        return right(images, patch_size)

    checks.check_patchify(loads)
    said(capsys)
    assert sys.modules["slow_to_load"].loaded


def test_numbers_left_to_chance_are_called_so(capsys):
    def shaky(images, patch_size):
        return right(images, patch_size) + 0.1 * torch.rand(1)

    assert not checks.check_patchify(shaky)
    assert "something in it is random" in said(capsys)


def test_memory_that_was_never_filled_is_among_the_causes_of_changing_numbers(capsys):
    def unfilled(fitted, loss, rows):
        return torch.empty(rows.shape).random_(5) + fitted

    assert not checks.check_redrawn_runs(unfilled)
    assert "random, or was never filled (torch.empty)" in said(capsys)


def test_of_nan_no_single_cause_is_asserted(capsys):
    assert not checks.check_redrawn_runs(lambda fitted, loss, rows: fitted * (loss[rows] - 9).log())
    assert "a root or a logarithm taken of a number for which there is none?" in said(capsys)


@pytest.mark.parametrize(
    "answer",
    [10**5000, -(10**5000), 10**400, Decimal("0.1"), Fraction(1, 3), 1j, np.datetime64("2020")],
    ids=["thousands", "minus thousands", "hundreds", "decimal", "fraction", "complex", "date"],
)
@pytest.mark.parametrize("name", ["scaling_numbers", "receptive_field", "grown_sizes", "redrawn_runs"])
def test_no_number_is_too_strange_for_a_report(name, answer, capsys):
    right = CATALOGUE[name].right
    work = {"scaling_numbers": lambda: right | {"exponent": answer}}.get(name, lambda *args: answer)
    assert not getattr(checks, f"check_{name}")(work)
    assert "not yet" in said(capsys)


def test_a_decimal_is_as_good_a_number(capsys):
    right = CATALOGUE["scaling_numbers"].right
    assert checks.check_scaling_numbers(lambda: {name: Decimal(str(value)) for name, value in right.items()})
    said(capsys)


def test_right_numbers_of_another_kind_are_not_said_to_stand_elsewhere(capsys):
    assert not checks.check_colour_classes(lambda images, P: classes_by_pooling(images, P).to(torch.complex64))
    told = said(capsys)
    assert "the numbers are right, but result is of dtype torch.complex64" in told
    assert "What your numbers show" not in told


def test_a_sparse_result_is_as_good(capsys):
    assert checks.check_conv_matrix(lambda kernel, size: matrix_by_loops(kernel, size).to_sparse())
    said(capsys)


def test_a_change_in_place_is_told_beside_wrong_numbers(capsys):
    assert not checks.check_patchify(lambda images, patch_size: right(images.mul_(3), patch_size))
    assert "Besides, argument 1 was changed in place" in said(capsys)


def test_the_notebook_stays_as_it_was(capsys):
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    with torch.no_grad():
        assert checks.check_patchify(lambda *a: right(*a) + 0 * torch.rand(1))
        assert not torch.is_grad_enabled()
    assert torch.equal(torch.rand(1), expected)
    said(capsys)


class Odd(nn.Module):
    def __init__(self, image_size, patch_size, in_channels, dim):
        super().__init__()
        self.size = harness.__dict__  # never used: a module may keep what it likes
        P, Q = patch_size if isinstance(patch_size, tuple) else (patch_size, patch_size)
        self.layers(in_channels * P * Q, dim)
        self.patch_size = patch_size

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

    def forward(self, images):
        return super().forward(images).flip(-1)


@pytest.mark.parametrize(
    ("work", "words"),
    [
        (OtherName, "has a parameter that the stub doesn't name: linear.weight; agreed are proj.weight (5, 1, 2, 2)"),
        (OtherSize, "proj.weight has shape (6, 4), expected (5, 1, 2, 2)"),
        (NoBias, "The class has no proj.bias; agreed are proj.weight (5, 1, 2, 2), proj.bias (5,)."),
        (NoClass, "NoClass(...) gives of type str, expected an nn.Module"),
    ],
)
def test_a_class_with_other_parameters(work, words, capsys):
    assert not checks.check_patch_embedding(work)
    assert words in said(capsys)


def test_a_layer_that_nobody_asked_for_dropout_gives_the_same_in_training(capsys):
    class WithDropout(Odd):
        def layers(self, length, dim):
            self.proj = nn.Linear(length, dim)

        def forward(self, images):
            return nn.functional.dropout(super().forward(images), 0.5, training=self.training)

    assert not checks.check_patch_embedding(WithDropout)
    assert "the result in training mode, compared with evaluation mode, is another one" in said(capsys)


def test_a_gradient_that_does_not_reach_the_weights(capsys):
    class Cut(Odd):
        def layers(self, length, dim):
            self.proj = nn.Linear(length, dim)

        def forward(self, images):
            x = right(images, self.patch_size)
            return x @ self.proj.weight.detach().T + self.proj.bias

    assert not checks.check_patch_embedding(Cut)
    assert "the numbers are right, but gradient of proj.weight is missing" in said(capsys)


def test_the_cases_are_new_each_time():
    for exercise in CATALOGUE.values():
        for a, b in zip(exercise.cases(), exercise.cases(), strict=True):
            for x, y in zip(a.args, b.args, strict=True):
                assert not isinstance(x, torch.Tensor) or (x is not y and torch.equal(x, y))
    assert all(case.weights for case in PATCH_EMBEDDING.cases())


def test_lesson_01_needs_torch_alone():
    heavy = ("matplotlib", "PIL", "torchvision", "nbgrader", "numpy.testing", "vit_tutorial.data", "vit_tutorial.train")
    code = f"""import sys
from vit_tutorial import checks
checks.check_patchify(lambda images, patch_size: None)
print([name for name in {heavy!r} if name in sys.modules])"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_an_unknown_name():
    with pytest.raises(AttributeError, match="check_nonsense"):
        _ = checks.check_nonsense
    with pytest.raises(AttributeError, match="nonsense"):
        _ = checks.nonsense
