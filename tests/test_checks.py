"""The exercises' checks: mistakes are named, right answers pass, and nothing of a student's code gets out."""

import dataclasses
import functools
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
from submissions import answers, hand_in, on_one_line
from torch import nn
from torch.nn import functional as F

import vit_tutorial as vt
from vit_tutorial import checks
from vit_tutorial.checks import capture, compare, declare, diagnose, harness, record, report, run, symptoms, watch
from vit_tutorial.checks.lesson01 import PATCH_EMBEDDING, PATCHIFY

NOTEBOOKS = Path(__file__).resolve().parent.parent / "notebooks"
CATALOGUE = checks.CATALOGUE
# Lines are counted in the first of an exercise's, which runs the others too: counting them takes two thirds more.
MISTAKES = [
    pytest.param(exercise, mistake, id=f"{exercise.name}-{mistake.name}", marks=[pytest.mark.no_cover] if index else [])
    for exercise in CATALOGUE.values()
    for index, mistake in enumerate(exercise.mistakes)
]


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
    return (lambda: answers(exercise.name) | wrong) if isinstance(wrong, dict) else wrong


# ---- Every lesson's catalogue ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("exercise", "mistake"), MISTAKES)
def test_a_mistake_is_caught_and_named(exercise, mistake, monkeypatch):
    """By its own name, or by that of another mistake that gives the same numbers on every input."""
    if not isinstance(mistake.wrong, dict):
        # What it gives is computed once, for the work and for the mistake; the last input is tried again, as new.
        given = list(run.known(exercise, mistake))
        again = run.run_once(exercise, mistake.wrong, exercise.cases()[-1])
        monkeypatch.setattr(run, "attempt", lambda *_: [*given[:-1], again])
    tried = run.try_out(exercise, submit(exercise, mistake.wrong), watched=False)
    assert tried.wrong
    fitting = [found for found, inputs in diagnose.named(exercise, tried.right, tried.outcomes) if inputs == 0]
    assert mistake in fitting
    text, named = on_one_line(report.report(tried)), fitting[0]
    assert f"It looks like {named.name}. {named.says}" in text
    lesson = named.lesson or exercise.lesson
    assert f'Reread in lesson {lesson}: "{named.reread}"' in text
    assert named.reread in places(lesson)


def scaled_in_place(q, k, v):
    q /= q.shape[-1] ** 0.5
    weights = (q @ k.mT).softmax(-1)
    return weights @ v, weights


class DropsInTraining(vt.MultiHeadSelfAttention):
    def forward(self, x):
        return F.dropout(super().forward(x), 0.5, self.training)


@pytest.mark.parametrize(
    ("name", "work", "words"),
    [
        ("attention", scaled_in_place, "changed in place"),
        ("multi_head_attention", DropsInTraining, "in training mode"),
    ],
)
def test_no_more_is_said_of_the_numbers_where_they_are_right(name, work, words, capsys):
    assert harness.check(CATALOGUE[name], work, watched=False) is False
    text = said(capsys)
    assert words in text
    assert "What your numbers show" not in text


@pytest.mark.parametrize("exercise", CATALOGUE.values(), ids=CATALOGUE)
def test_an_exercise_is_declared_in_full(exercise):
    function = getattr(checks, f"check_{exercise.name}")
    assert function.__name__ == f"check_{exercise.name}"
    assert re.match(r"Check (fn|cls)\(", function.__doc__), "the work's signature, and what goes in and comes out"
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


def test_the_root_or_part_of_a_length_is_no_cause_of_a_negative_factor():
    right = torch.tensor([0.3, 0.5, 0.9])
    assert symptoms.symptom([(right, -right / 2, {"n": 2}, "x")], 1e-5, symptoms.EXACT).endswith("times the right one.")


def test_a_few_of_many_close_numbers_that_are_off_are_not_said_to_be_in_other_places():
    right = torch.linspace(0, 1, 20_000).double()
    given = right.clone()
    given[::2000] += 3e-4
    assert "in other places" not in symptoms.symptom([(right, given, {}, "x")], 1e-4, symptoms.EXACT)


def test_a_factor_that_holds_nearly_is_not_told():
    right = torch.tensor([0.3, 0.5, 0.9])
    given = right * torch.tensor([1.001, 1.0011, 1.001])
    assert "times" not in symptoms.symptom([(right, given, {}, "x")], 1e-4, symptoms.EXACT)


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
    right = answers("embedding_numbers")
    rows = [list(row) for row in right["z0"]]
    rows[1][0] += 50
    checks.check_embedding_numbers(lambda: right | {"z0": rows})
    assert "z0[1][0] is" in said(capsys)


def positions_one_place_late(x, cls_token, position):
    return torch.cat([cls_token.expand(len(x), -1, -1), x], dim=1) + position.roll(1, dims=1)


ONE_PLACE_LATE = "If position[:, 0] changes, only result[:, 0] should change; in yours result[:, 1] did"
REPORTS = [  # of an exercise and a wrong work, what is said of it, and what isn't so
    ("patch_numbers", {"pixel 16": (3,)}, "is a tuple of 1, expected a tuple of 2", "a list"),
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
        (lambda *a: right(*a).half(), "result is of dtype torch.float16, expected torch.float32: half precision keeps"),
        (cuts_the_graph, ""),
        (lambda *a: right(*a) * 1 + 0 * a[0].sum(), ""),
        (lambda *a: right(*a).requires_grad_().numpy(), "Stay with torch's own functions"),
        (lambda *a: right(*a).tolist(), "the numbers are right, but result is a list: make a tensor of it"),
        (lambda *a: list(right(*a)), "but result is a list: make a tensor of it with torch.stack(…), expected a"),
        (lambda *a: (right(*a), 1), "result is a tuple of 2, whose part 0 is right: return it alone"),
        (lambda *a: right(*a).bool(), "result is of dtype torch.bool, expected torch.float32"),
        (lambda *a: right(*a).to("meta"), "result is on device meta, which keeps no numbers"),
        (lambda *a: right(*a)[None], "result has shape (1, 1, 6, 4), expected (1, 6, 4)"),
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
    assert f"result[0, 1, 2] is {expected + 1:.5g}, expected {expected:.5g}; 1 of 24 numbers are wrong, shape" in text
    assert "What your numbers show: All that is wrong is at index 1 along axis 1 (of 6); the rest is right." in text
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


def test_beside_another_fault_a_mistake_is_named_only_if_two_inputs_show_it(capsys):
    def mostly_raises(images, patch_size):
        if images.shape != (1, 1, 4, 6):
            raise ValueError
        return images.reshape(1, 6, 4)  # a reshape in place of a permute

    assert not checks.check_patchify(mostly_raises)
    assert "It looks like" not in said(capsys)


def test_three_times_the_tolerance_is_too_much():
    x = torch.ones(3)
    assert compare.equal(x, x + 0.5 * PATCHIFY.tolerance, PATCHIFY)
    assert not compare.equal(x, x + 3 * PATCHIFY.tolerance, PATCHIFY)


@pytest.mark.parametrize(
    ("right", "given", "says"),
    [
        (2.0, [2.0], ""),
        (2.0, (torch.tensor([[2.0]]),), ""),
        (2.0, [2.0, 2.0], "n is a list, expected a number"),
        (2.0, declare.Words("a story"), "n is a story"),
        (2.0, "2", "n is a str, expected a number"),
        (2.0, True, "n is a bool, expected a number"),
        (2, 10**400, "n is a whole number of 400 digits or so"),
        (2, -(10**400), "n is a whole number of 400 digits or so"),
        (2.0, 2.0 + 0.9e-3, ""),
        (2.0, 2.0 + 2.1e-3, "n is 2.0021, expected 2"),
        (0.0, 0.9e-3, ""),
        (0.0, -1.1e-3, "n is -0.0011, expected 0"),
        (1000.0, 1000.9, ""),
        (1000.0, 1001.1, "n is 1001.1, expected 1000"),
        (2, 2.0009, ""),
        (2.0, float("nan"), "n is nan, expected 2"),
    ],
)
def test_single_numbers_are_compared_within_the_tolerance(right, given, says):
    exercise = dataclasses.replace(PATCHIFY, tolerance=1e-3)
    found = compare.difference(right, given, "n", exercise)
    assert found == says


def test_of_a_secret_whole_number_none_is_nearly_right():
    secret = dataclasses.replace(PATCHIFY, tolerance=1e-3, secret=True)
    assert compare.difference(1000, 1000.5, "n", secret) == "n is 1000.5, and should be something else"
    assert compare.difference(1000, 1000.0, "n", secret) == ""
    assert compare.difference(1000.0, 1000.5, "n", secret) == "", "of a measured one some are"
    assert compare.difference(1000, 1000.5, "n", dataclasses.replace(secret, secret=False)) == ""


def test_the_stub_is_not_a_mistake(capsys):
    def stub(images, patch_size):
        raise NotImplementedError

    assert not checks.check_patchify(stub)
    assert said(capsys) == "patchify: not written yet"


def test_answers_are_not_given_away(capsys):
    assert not checks.check_patch_numbers(lambda: answers("patch_numbers") | {"photo patches": 12, "patch 1": ...})
    text = said(capsys)
    assert "there is no answer for 'patch 1' yet" in text
    assert "photo patches is 12, and should be something else" in text
    assert "140" not in text
    assert not checks.check_patch_numbers(lambda: answers("patch_numbers") | {"photo patches": 12})
    text = said(capsys)
    assert "photo patches is 12, and should be something else" in text
    assert "140" not in text
    assert not checks.check_patch_numbers(lambda: [6])
    assert "returned a list, expected a dictionary of answers" in said(capsys)


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
        lambda images, patch_size: right(images, patch_size) + 0 * vt.dot_product_attention(*[images] * 3)[0].sum()
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
    with capture.quiet() as kept:
        for _ in range(1000):
            print("x" * 99)
    assert (len(kept.text), kept.lines) == (capture.KEPT, 1000)


@pytest.mark.parametrize("swallow", [False, True])
def test_an_endless_loop_ends(swallow, capsys, monkeypatch):
    monkeypatch.setattr(run, "SECONDS", 0.3)
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
    assert "took more than 0 seconds, all inputs up to this one together: is there a loop that doesn't end?" in text
    assert "9 more were not tried" in text
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
    assert "raised a Fault without a message" in said(capsys)


def test_a_busy_machine_refuses_nobody_and_who_sleeps_is_stopped(capsys, monkeypatch):
    monkeypatch.setattr(run, "SECONDS", 0.3)
    monkeypatch.setattr(run, "PATIENCE", 6.0)

    def waits(images, patch_size):  # as one does whom the processor is taken from
        time.sleep(0.02)
        return right(images, patch_size)

    assert checks.check_patchify(waits)
    assert not checks.check_patchify(lambda *a: time.sleep(2.5))
    assert "took more than 0 seconds" in said(capsys)
    # As long as an error is pending in a thread, CPython 3.11 runs no other one that is traced or profiled.
    for thread in threading.enumerate():
        if thread.name == "check":
            thread.join(5)


def test_an_import_is_not_cut_off(tmp_path, capsys, monkeypatch):
    """A module that is half loaded would stay broken for the whole session."""
    code = b"import time\ntime.sleep(0.1)\nsum(range(20_000_000))\nloaded = True\n"
    (tmp_path / "slow_to_load.py").write_bytes(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(run, "SECONDS", 0.2)
    monkeypatch.setattr(run, "PATIENCE", 0.5)  # neither the work of an import counts, nor the time that it takes

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
    assert "Is something random" in said(capsys)


def test_memory_that_was_never_filled_is_among_the_causes_of_changing_numbers(capsys):
    def unfilled(fitted, loss, rows):
        return torch.empty(rows.shape).random_(5) + fitted

    assert not checks.check_redrawn_runs(unfilled)
    assert "or was it never filled (torch.empty)" in said(capsys)


def test_nan_is_right_where_it_is_expected_alone():
    right = torch.tensor([1.0, torch.nan])
    assert compare.equal(right, right.clone(), PATCHIFY)
    assert not compare.equal(right, torch.tensor([torch.nan, torch.nan]), PATCHIFY)
    assert not compare.equal(right, torch.tensor([1.0, 1.0]), PATCHIFY)


def test_between_whole_numbers_a_factor_is_whole():
    right = torch.tensor([2.0, 4.0, 6.0], dtype=torch.float64)
    for factor, seen in ((1.5, False), (3.0, True)):
        found = symptoms.symptom([(right, factor * right, {}, "a case")], 1e-6, symptoms.EXACT)
        assert ("times the right one" in found) is seen, found


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
    work = {"scaling_numbers": lambda: answers(name) | {"exponent": answer}}.get(name, lambda *args: answer)
    assert not getattr(checks, f"check_{name}")(work)
    assert "not yet" in said(capsys)


def test_a_decimal_is_as_good_a_number(capsys):
    right = answers("scaling_numbers")
    assert checks.check_scaling_numbers(lambda: {name: Decimal(str(value)) for name, value in right.items()})
    said(capsys)


def reference_then(name, change):
    """The reference's result, changed: nobody watches what it calls."""
    exercise = CATALOGUE[name]
    return harness.check(exercise, lambda *args: change(exercise.right(*args)), watched=False)


def test_right_numbers_of_another_kind_are_not_said_to_be_elsewhere(capsys):
    assert not reference_then("colour_classes", lambda classes: classes.to(torch.complex64))
    text = said(capsys)
    assert "the numbers are right, but result is of dtype torch.complex64" in text
    assert "What your numbers show" not in text


def test_a_sparse_result_is_as_good(capsys):
    assert reference_then("conv_matrix", lambda matrix: matrix.to_sparse())
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
        (NoBias, "The class has no parameter of its own for proj.bias; agreed are proj.weight (5, 1, 2, 2), proj.bias"),
        (NoClass, "NoClass(...) gives a str, expected an nn.Module"),
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


def test_grade_returns_what_a_check_prints(capsys):
    wrong = checks.grade("patchify", unknown)
    assert said(capsys) == ""
    assert (wrong.passed, wrong.points) == (False, 0)
    assert not checks.check_patchify(unknown)
    assert " ".join(wrong.report.split()) == said(capsys)
    exercise = next(one for one in checks.exercises("01") if one.name == "patchify")
    assert checks.grade(exercise, right).points == exercise.points == 5


def test_an_unknown_exercise_or_lesson_is_refused():
    with pytest.raises(ValueError, match="no exercise is called 'nonsense'"):
        checks.grade("nonsense", right)
    with pytest.raises(ValueError, match="no lesson '77' has checks"):
        checks.exercises("77")


def test_an_unknown_name():
    with pytest.raises(AttributeError, match="check_nonsense"):
        _ = checks.check_nonsense
    with pytest.raises(AttributeError, match="nonsense"):
        _ = checks.nonsense


# ---- What watches a work -----------------------------------------------------------------------------------------


def test_a_folder_whose_name_begins_as_a_librarys_is_a_students(monkeypatch):
    monkeypatch.setattr(watch, "LIBRARIES", ("/home/ada/vit",))
    library = watch.library.__wrapped__  # without its memory
    assert library("/home/ada/vit/lib/torch/nn.py")
    assert not library("/home/ada/vit_tutorial/my_answers.py")


def test_an_operator_is_seen_where_a_cell_has_switched_the_record_off():
    resized = torch.ops.aten.upsample_bilinear2d.default._op  # which Python's profiler knows no name of
    exercise = CATALOGUE["stretch"]
    torch.autograd._enable_record_function(False)
    found = run.run_once(exercise, lambda grid, size: resized(grid[None], size, True), exercise.cases()[0], True)
    assert str(found).startswith("it calls upsample_bilinear2d: ")


def test_where_torch_shows_no_operators_the_rest_is_watched_and_the_report_says_so(monkeypatch):
    monkeypatch.setattr(watch, "UNSEEN", "Operators weren't checked.")
    resized = torch.ops.aten.upsample_bilinear2d.default._op
    passed, text = hand_in("stretch", lambda grid, size: resized(grid[None], size, True)[0])
    assert "it calls" not in text
    assert text.endswith("\n  Operators weren't checked.\n")
    passed, text = hand_in("patchify", lambda images, patch_size: vt.patchify(images, patch_size))
    assert not passed
    assert "the package's own patchify" in on_one_line(text)
    assert "Operators" not in text


def test_whoever_looked_before_looks_afterwards():
    exercise, calls = CATALOGUE["patchify"], []

    def another(frame, event, arg):
        calls.append(event)

    sys.setprofile(another)
    try:
        with watch.watching(exercise):
            assert sys.getprofile() is not another
        assert sys.getprofile() is another
    finally:
        sys.setprofile(None)


def test_the_memory_that_numpy_takes_is_counted():
    q, chunk = np.ones((256, 4), np.float32), 16
    whole = watch.memory_outside_torch(lambda: np.exp(q @ q.T).sum())
    parts = watch.memory_outside_torch(lambda: sum(np.exp(q @ q[i : i + chunk].T).sum() for i in range(0, 256, chunk)))
    assert whole >= 256 * 256 * 4
    assert parts < 256 * 256 * 4 / 2


def test_a_table_that_is_kept_piece_by_piece_is_seen_and_one_that_is_forgotten_is_not():
    rows = torch.ones(256, 4)

    def kept():
        pieces = [rows @ part.T for part in rows.split(16)]
        return sum(piece.sum() for piece in pieces)

    def forgotten():
        return sum((rows @ part.T).sum() for part in rows.split(16))

    def by_numpy():
        return np.exp(rows.numpy() @ rows.numpy().T).sum()

    assert harness.at_once(kept, 256 * 256).startswith("as much")
    assert harness.at_once(forgotten, 256 * 256) == "one piece"
    assert harness.at_once(by_numpy, 256 * 256).startswith("as much")


def test_parts_in_another_order_are_said_to_be_so(capsys):
    assert not reference_then("attention_maps", lambda maps: maps[::-1])
    assert "the parts of maps are right, but in another order (2, 1, 0)" in said(capsys)


# ---- What a report says without names ----------------------------------------------------------------------------


def without_names(name, work):
    """The report on a work, as if no mistake had a name."""
    exercise = dataclasses.replace(CATALOGUE[name], mistakes=(), explain=None, locate=None)
    assert harness.check(exercise, work, watched=False) is False


class Changed(nn.Module):
    """Lesson 05's block, whose steps may change what they are given."""

    def __init__(self, dim, num_heads, mlp_dim, dropout=0.0, drop_path=0.0):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim, eps=1e-6), nn.LayerNorm(dim, eps=1e-6)
        self.attention, self.mlp = vt.MultiHeadSelfAttention(dim, num_heads), vt.MLP(dim, mlp_dim)


class ChangesItsInput(Changed):
    def forward(self, z):
        z += self.attention(self.norm1(z))
        return z + self.mlp(self.norm2(z))


class ChangesWhatTheGradientNeeds(Changed):
    def forward(self, z):
        normed = self.norm1(z)
        update = self.attention(normed)
        normed += 1
        z = z + update
        return z + self.mlp(self.norm2(z))


@pytest.mark.parametrize(
    ("work", "words"),
    [
        (ChangesItsInput, "argument 1 was changed in place: make a new one (z = z + …, not z += …)"),
        (ChangesWhatTheGradientNeeds, "changes numbers in place where a gradient forbids it: write z = z + …"),
    ],
)
def test_a_change_in_place_is_called_so_where_torch_raises_an_error(work, words, capsys):
    assert not checks.check_encoder_block(work)
    text = said(capsys)
    assert words in text
    assert "AsStrided" not in text
    assert "__init__" not in text


class TakesNothing(nn.Module):
    def __init__(self, dim, num_heads):
        super().__init__()
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self):
        return self.qkv


def test_the_line_shown_is_that_of_the_function_which_takes_other_arguments(capsys):
    assert not checks.check_multi_head_attention(TakesNothing)
    assert "of forward: def forward(self):" in said(capsys)


class WithoutBias(vt.MultiHeadSelfAttention):
    def forward(self, x):
        q, k, v = (x @ self.qkv.weight.mT).unflatten(-1, (3, self.num_heads, -1)).movedim(-2, -4).unbind(-2)
        return self.proj(vt.dot_product_attention(q, k, v)[0].transpose(-2, -3).flatten(-2))


@pytest.mark.parametrize(
    ("name", "work", "words"),
    [
        ("attention", lambda q, k, v: vt.dot_product_attention(-q, k, v), "would be right with -q in place of q."),
        ("multi_head_attention", WithoutBias, "would be right with zeros in place of qkv.bias."),
    ],
)
def test_inputs_with_which_a_work_would_be_right_are_found(name, work, words, capsys):
    without_names(name, work)
    assert words in said(capsys)


def test_of_a_permutation_no_slice_is_said_to_come_twice():
    right = torch.tensor([[1.5, 2.0], [1.5, 2.0], [3.0, 4.0], [5.0, 6.0]])
    seen = symptoms.symptom([(right, right[[2, 0, 3, 1]], {}, "x")], 1e-5, (symptoms._slices_in_another_order,))
    assert "the slices are right, but in another order: yours are the right 2, 0, 3, 1" in seen
    seen = symptoms.symptom([(right, right[[2, 2, 3, 0]], {}, "x")], 1e-5, (symptoms._slices_in_another_order,))
    assert "not all are in their places" in seen


def test_all_inputs_can_go_wrong_with_right_numbers(capsys):
    checks.check_patchify(adds_in_place)
    assert "Found wrong with all 10 inputs." in said(capsys)


def test_a_label_has_the_very_number():
    assert all(
        f"eps={case.args[3]:.17g}" in case.label for case in CATALOGUE["layer_norm"].cases() if case.args[3] > 0.1
    )


def test_an_offset_within_the_tolerance_is_no_explanation():
    right, left = torch.tensor([[1.8891, 0.0, 1.5686, 2.6969]]), torch.tensor([[3.04e-4, 0.0, 3.45e-4, 2.21e-4]])
    assert "offset" not in symptoms.symptom([(right, right + left, {}, "x")], 1e-4, symptoms.EXACT)


def test_infinite_numbers_are_not_called_nan():
    right, given = torch.ones(2, 2), torch.tensor([[torch.nan, torch.inf], [torch.inf, torch.inf]])
    assert symptoms.symptom([(right, given, {}, "x")], 1e-5, symptoms.EXACT).startswith(
        "All of your numbers are nan or"
    )


def test_nearly_equal_weights_are_not_said_to_be_the_right_ones_but_for_a_factor_and_an_offset():
    scores, other = 3e-3 * torch.randn(2, 2, 3, 5, generator=torch.Generator().manual_seed(1)).double()
    finders = symptoms._softmax_of_others, symptoms._row_by_row
    for theirs, seen in (
        (2 * scores, "The logarithms of yours are 2 times the right ones, but"),
        (scores / 2 + other / 30, ""),
    ):
        found = symptoms.symptom([(scores.softmax(-1), theirs.softmax(-1), {}, "x")], 1e-4, finders)
        assert found.startswith(seen) if seen else not found


def test_of_a_saturated_softmax_nothing_is_said_to_stay():
    """Here each right number depends on one value alone, since one weight is 1: with other scores it's another one."""
    q, k, v = (100 * harness.normal(n, 4, seed=n) for n in (3, 5, 5))
    exercise = dataclasses.replace(CATALOGUE["attention"], cases=lambda: [harness.Case("large", (q, k, v))])
    tried = run.try_out(exercise, lambda q, k, v: vt.dot_product_attention(q, k.clamp(-1, 1), v), watched=False)
    assert "only" not in diagnose._dependence(tried, 0)
