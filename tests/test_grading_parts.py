"""Grading without a sandbox: each thing that stands between a submission and a mark, tried by itself and fast."""

from __future__ import annotations

import ast
import base64
import builtins
import concurrent.futures
import csv
import importlib
import importlib.util
import inspect
import json
import os
import pickle
import re
import signal
import socket
import subprocess
import sys
import textwrap
import time
import types
import zipfile
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import hypothesis
import psutil
import pytest
import torch
from filelock import FileLock
from hypothesis import strategies as st
from submissions import answers
from torch import nn

import vit_tutorial as vt
from vit_tutorial import checks
from vit_tutorial.checks import lesson01, run, watch
from vit_tutorial.checks.declare import Words, exercises_of

ROOT = Path(__file__).resolve().parent.parent
STEM = "01_patches"
SOLVED, HANDED_OUT = (ROOT / "notebooks" / name / f"{STEM}.ipynb" for name in ("solutions", "exercises"))
NBGRADER = importlib.util.find_spec("nbgrader") is not None
pytestmark = [
    pytest.mark.skipif(not NBGRADER, reason="nbgrader is not installed: pip install -e .[teach]"),
    pytest.mark.filterwarnings("ignore:Object of type:sqlalchemy.exc.SAWarning" if NBGRADER else "default"),
]


# ---- Limits ------------------------------------------------------------------------------------------------------


@pytest.fixture
def box(tool, monkeypatch) -> Any:
    """A sandbox with nothing in it yet, and room for little."""
    sandbox = tool.sandbox
    one = sandbox.Sandbox.__new__(sandbox.Sandbox)
    one.limits = sandbox.Limits(seconds=10, grace=5, check_seconds=10, total_seconds=100, memory=1_000, processes=3)
    one.started = one.heard = time.monotonic()
    one.base, one.own = 500, True
    monkeypatch.setattr(sandbox.psutil, "virtual_memory", lambda: SimpleNamespace(available=10**10))
    one._processes, one._memory = list, lambda found: 0
    return one


def test_what_takes_little_goes_on_until_the_machine_has_no_memory(box, tool, monkeypatch):
    box._processes, box._memory = lambda: [None] * 7, lambda found: 1_500
    assert box._too_much() == ""
    monkeypatch.setattr(tool.sandbox.psutil, "virtual_memory", lambda: SimpleNamespace(available=1))
    assert box._too_much() == tool.sandbox.MACHINE_FULL


@pytest.mark.parametrize(
    ("takes", "words"),
    [
        ({"_processes": lambda: [None] * 8}, "more than 3 processes"),
        ({"_memory": lambda found: 1_501}, "MB of memory"),
        ({"started": time.monotonic() - 101}, "the notebook took more than 100 seconds"),
        ({"heard": time.monotonic() - 16}, "a cell took more than 10 seconds and could not be stopped"),
        ({"heard": time.monotonic() - 200, "base": 0}, "a cell took more than 10 seconds"),
    ],
)
def test_each_limit_ends_it(box, takes, words):
    vars(box).update(takes)
    assert words in box._too_much()


def test_a_process_that_ends_while_it_is_looked_at_has_no_children(tool, monkeypatch):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    monkeypatch.setattr(Path, "is_dir", lambda self: True)  # it was there a moment ago
    assert list(tool.sandbox._below(ended.pid)) == []


def test_who_failed_for_want_of_memory_is_tried_again_by_itself(tool, monkeypatch, tmp_path):
    one = tool.collect.Submission("ada", STEM, HANDED_OUT, "x", datetime(2026, 10, 5))
    tried = []

    def processes(waiting: list[Any], how: Any, workers: int) -> Iterator[Any]:
        tried.append((len(waiting), workers))
        problem = tool.sandbox.MACHINE_FULL if len(tried) == 1 else ""
        yield from ((one, {"problem": problem}) for one in waiting)

    monkeypatch.setattr(tool, "_in_processes", processes)
    monkeypatch.setattr(tool, "_warm", lambda *_: None)
    how = tool.Grading("none", 4, tool.sandbox.Limits(), tmp_path, tmp_path, [], 1)
    assert [judged["problem"] for _, judged in tool._all_judged([one], how)] == [""]
    assert tried == [(1, 4), (1, 1)]


def test_a_process_that_dies_while_it_reads_costs_its_own_row(tool, monkeypatch, tmp_path):
    names = ["dies", "hangs", "reads"]
    found = [tool.collect.Submission(name, STEM, HANDED_OUT, name, datetime(2026, 10, 5)) for name in names]

    def examine(one: Any, how: Any) -> None:
        if one.student == "dies":
            os._exit(1)
        if one.student == "hangs":
            time.sleep(60)
        tool.write(
            tool._kept(tmp_path, one.student, STEM).with_suffix(".new"), '{"problem": "", "cells": [], "notes": []}'
        )

    monkeypatch.setattr(tool, "_examine", examine)
    monkeypatch.setattr(tool, "READING", 1)
    how = tool.Grading("none", 3, tool.sandbox.Limits(total_seconds=1), tmp_path, tmp_path, [], 1)
    problems = {one.student: judged["problem"] for one, judged in tool._in_processes(found, how, 3)}
    assert problems["reads"] == ""
    assert problems["dies"] == problems["hangs"] == "it could not be read within the limits"


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_memory_that_belongs_to_no_process_is_refused_by_the_kernel(tool, machine):
    """A small machine that runs the filter, as the kernel does."""
    program = tool.sandbox.forbidden_calls(machine)
    steps = [tool.sandbox.struct.unpack("HBBI", program[at : at + 8]) for at in range(0, len(program), 8)]
    architecture, numbers = tool.sandbox.CALLS[machine]

    def verdict(call: int, where: int = architecture) -> int:
        at, loaded = 0, 0
        while True:
            code, yes, no, value = steps[at]
            at += 1
            if code == 0x06:
                return int(value)
            if code == 0x20:
                loaded = where if value == 4 else call
            else:
                at += yes if (loaded == value if code == 0x15 else loaded >= value) else no

    refused = 0x00050001
    assert [verdict(number) for number in numbers] == [refused] * 3
    assert verdict(numbers[0], where=3) == verdict(0x40000000 + numbers[1]) == refused
    assert [verdict(call) for call in (0, 1, 63, 318, 320, 500) if call not in numbers] == [0x7FFF0000] * 6


# ---- What comes out of a sandbox ---------------------------------------------------------------------------------

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=5) | st.integers(), inner, max_size=4)
        | st.tuples(inner, inner)
        | st.frozensets(st.integers(), max_size=3)
    ),
    max_leaves=12,
)


@hypothesis.given(value=VALUES)
def test_values_come_out_of_a_sandbox_as_they_were(value):
    wire = importlib.import_module("wire")
    back = wire.decode(json.loads(json.dumps(wire.encode(value))))
    assert back == value
    assert type(back) is type(value)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64])
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3)])
def test_tensors_come_out_of_a_sandbox_as_they_were(tool, dtype, shape):
    tensor = torch.randn(shape).to(dtype).requires_grad_(dtype.is_floating_point)
    for value in (tensor, torch.randn(shape).numpy()):
        back = tool.judge.wire.decode(json.loads(json.dumps(tool.judge.wire.encode(value))))
        assert back.dtype == value.dtype
        assert tuple(back.shape) == shape
        assert (back == value).all()


def test_what_has_no_form_keeps_its_types_name_and_its_text(tool):
    given = {"a": range(3), "b": nn.ReLU(), "c": Words("whole")}
    back = tool.judge.wire.decode(json.loads(json.dumps(tool.judge.wire.encode(given))))
    assert [type(value).__name__ for value in back.values()] == ["range", "ReLU", "Words"]
    assert [str(value) for value in back.values()] == ["range(0, 3)", "ReLU()", "whole"]


@pytest.mark.parametrize(
    "forged",
    [
        [1],
        {},
        {"pickle": "x"},
        {"tensor": "float32", "shape": [10**12], "bytes": ""},
        {"tensor": "float32", "shape": [-1, -1], "bytes": "AAAAAA=="},
        {"tensor": "quint8", "shape": [1], "bytes": "AA=="},
        {"array": "object", "shape": [1], "bytes": "AAAAAAAAAAA="},
    ],
)
def test_what_encode_does_not_write_is_refused(tool, forged):
    with pytest.raises(ValueError):  # noqa: PT011
        tool.judge.wire.decode(forged)


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("half \ud83d", "half �"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07x", "x"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("a\u202eb\u2066c", "a�b�c"),
        ("a\x00\x08b\x9bc", "a��b�c"),
        ("a\r\nb\tc", "a\nb\tc"),
        ("größer · ✓ 🙂", "größer · ✓ 🙂"),
    ],
)
def test_a_students_text_can_be_shown_by_every_terminal_and_file(tool, text, clean):
    assert tool.judge.clean(text) == clean
    clean.encode("utf-8")


def png(width: int, height: int) -> str:
    """The beginning of a picture of so many pixels."""
    head = b"\x89PNG\r\n\x1a\n" + (13).to_bytes(4) + b"IHDR" + width.to_bytes(4) + height.to_bytes(4)
    return base64.b64encode(head + bytes(60)).decode("ascii")


def test_nbgrader_finds_no_marks_in_what_a_cell_returned(tool):
    made = [
        {"output_type": "execute_result", "data": {"text/plain": "5", "text/html": "<script>"}, "execution_count": 1},
        {"output_type": "update_display_data", "data": {"text/plain": "5"}},
        {"output_type": "display_data", "data": {"image/png": '"><script>', "image/svg+xml": "<svg onload=x>"}},
        {"output_type": "display_data", "data": {"image/jpeg": base64.b64encode(b"<svg onload=x>" * 9).decode()}},
        {"output_type": "display_data", "data": {"image/png": png(60_000, 60_000)}},
        "no output",
    ]
    assert list(tool.judge.sound(made)) == [
        {"output_type": "display_data", "data": {"text/plain": "5"}, "metadata": {}},
    ]
    assert len(list(tool.judge.sound([{"output_type": "display_data", "data": {"image/png": png(640, 480)}}]))) == 1
    for broken in ("", "AA==", "=" * 64, png(0, 5), png(640, 480)[:20]):
        assert not tool.judge._can_be_shown(broken)


# ---- What goes into one ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def package(tool, tmp_path_factory) -> Path:
    """The package as sandboxes get it."""
    return Path(tool.stripped.make(ROOT / "vit_tutorial", tmp_path_factory.mktemp("stripped")))


LESSONS = sorted({exercise.lesson for exercise in checks.CATALOGUE.values()})


@pytest.mark.parametrize("lesson", LESSONS)
def test_a_sandbox_knows_no_answer_no_reference_and_no_input(tool, package, lesson):
    module = importlib.import_module(f"vit_tutorial.checks.lesson{lesson}")
    text = (package / "checks" / f"lesson{lesson}.py").read_text("utf-8")
    names = dict[str, Any]()
    exec(compile(text, f"lesson{lesson}", "exec"), names)
    own = {id(value): name for name, value in vars(module).items() if not name.startswith("__")}
    assert [one.name for one in names["EXERCISES"]] == [one.name for one in exercises_of(module)]
    for exercise, stripped in zip(exercises_of(module), names["EXERCISES"], strict=True):
        assert stripped.cases() == []
        assert stripped.mistakes == ()
        if stripped.right is not None:
            assert not stripped.right.__module__.startswith("vit_tutorial.checks"), "it may only be forbidden"
        elif id(exercise.right) in own and not issubclass(type(exercise.right), type):  # a class wraps the package's
            assert own[id(exercise.right)] not in names
        assert names[f"check_{exercise.name}"](None) is True
    assert "lambda s:" not in text


def test_what_a_lesson_asks_for_has_no_body_in_its_sandbox(tool, package, tmp_path):
    copy = tool.stripped.for_lesson(package, "01", tmp_path)
    text = (copy / "patches.py").read_text("utf-8")
    assert text.count("write your own in the cell above") == 4  # patchify, unpatchify, and a class of two functions
    assert ".permute(0, 2, 4" not in text
    assert "nn.Conv2d(" not in text
    assert (copy / "vit.py").read_bytes() == (package / "vit.py").read_bytes()
    assert "write your own" not in (package / "patches.py").read_text("utf-8"), "the other lessons' copy stays whole"


@pytest.mark.parametrize("lesson", LESSONS)
def test_a_lessons_exercises_need_nothing_that_it_asks_for(tool, lesson):
    """Else a right answer would fail: what is needed is named in watch.NEEDED, and watched."""
    solved = "\n".join(cell["source"] for cell in tool.judge.read(next(tool.SOLUTIONS.glob(f"{lesson}_*"))))
    code = re.sub(r"### BEGIN HIDDEN TESTS.*?### END HIDDEN TESTS", "", solved, flags=re.DOTALL)
    importlib.import_module(f"vit_tutorial.checks.lesson{lesson}")
    for name in watch.asked_for(lesson):
        assert not re.search(rf"\b(vt|train|explain|lesson)\.{name.rpartition('.')[2]}\(", code), name


def test_at_home_too_no_exercise_takes_what_another_one_asks_for(capsys):
    class Linear(nn.Module):
        def __init__(self, image_size: Any, patch_size: Any, in_channels: int, dim: int) -> None:
            super().__init__()
            self.proj, self.size = nn.Conv2d(in_channels, dim, patch_size, patch_size), patch_size

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            patches = vt.patchify(images, self.size)
            return nn.functional.linear(patches, self.proj.weight.flatten(1), self.proj.bias)

    assert not checks.check_patch_embedding(Linear)
    assert "it calls the package's own patchify: write your own" in " ".join(capsys.readouterr().out.split())


def test_a_packages_function_says_that_it_has_run_however_it_is_called(tool, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    ran = types.ModuleType("vit_tutorial.ran")
    ran.__file__ = "/x/vit_tutorial/ran.py"
    exec(tool.stripped.NOTES, vars(ran))
    monkeypatch.setitem(sys.modules, "vit_tutorial.ran", ran)
    source = "'''Text.'''\nfrom __future__ import annotations\ndef f(x):\n    '''More.'''\n    return x + 1\n"
    source += "class A:\n    def g(self):\n        return 3\n    @property\n    def h(self): return 4\n"
    names: dict[str, Any] = {}
    exec(compile(tool.stripped.telling(source, "vit_tutorial.x"), "x", "exec"), names)

    def in_another_process() -> None:
        if (child := os.fork()) == 0:
            names["f"](1)
            os._exit(0)
        os.waitpid(child, 0)

    ways: list[Callable[[], Any]] = [
        lambda: names["f"](1),
        lambda: types.FunctionType(names["f"].__code__.replace(co_name="q", co_filename="q"), names)(1),
        lambda: concurrent.futures.ThreadPoolExecutor(1).submit(names["f"], 1).result(),
        lambda: exec("f(1)", names),
        in_another_process,
    ]
    for way in ways:
        ran.forget()
        way()
        assert ran.told() == ["vit_tutorial.x.f"]
    ran.forget()
    assert (names["A"]().g(), names["A"]().h) == (3, 4)
    assert ran.told() == ["vit_tutorial.x.A.g", "vit_tutorial.x.A.h"]
    module = types.ModuleType("vit_tutorial.x")
    vars(module).update(names | {"_ran": lambda name: None})
    monkeypatch.setitem(sys.modules, "vit_tutorial.x", module)
    assert ran.told() == ["changed"], "who silences a module is found out"
    ran.remember()
    monkeypatch.setattr(watch, "watching", lambda exercise: None)
    module._ran = ran.note  # type: ignore[attr-defined]
    assert ran.told() == ["changed"], "and who silences the checks"


def test_what_an_exercise_forbids_is_found_among_what_has_run(tool):
    find, of = tool.stripped.borrowed, checks.CATALOGUE
    assert find(of["patchify"], ["vit_tutorial.vit.ViT.forward", "vit_tutorial.patches.patchify"]) == "patches.patchify"
    assert find(of["patchify"], ["vit_tutorial.patches.check_images", "vit_tutorial.patches.patchify_all"]) == ""
    assert find(of["patchify"], ["vit_tutorial.patches.unpatchify"]) == "patches.unpatchify", "another exercise's"
    assert find(of["embeddings"], ["vit_tutorial.embeddings.Embeddings.forward"]) == "embeddings.Embeddings.forward"
    assert find(of["schedule"], ["vit_tutorial.train.loop.fit"]) == "train.loop.fit"


# ---- The judge ---------------------------------------------------------------------------------------------------


class Box:
    """In place of a sandbox: does what tools/runner.py does, here, with a given work; notes what it is asked."""

    def __init__(self, work: Any, forge: Callable[[dict[str, Any]], dict[str, Any]] = dict) -> None:
        self.work, self.forge, self.asked = work, forge, list[dict[str, Any]]()

    def ask(self, message: dict[str, Any]) -> dict[str, Any]:
        wire = importlib.import_module("wire")
        self.asked.append(message)
        if "case" in message:
            outcome = run.run_once(lesson01.PATCHIFY, self.work, pickle.loads(base64.b64decode(message["given"])))
            found = {"fault": str(outcome)} if isinstance(outcome, Exception) else {"result": wire.encode(outcome)}
            return self.forge(json.loads(json.dumps(found | {"ran": []})))
        if "call" in message:
            given, named = pickle.loads(base64.b64decode(message["given"]))
            return self.forge({"result": wire.encode(self.work(*given, **named)), "after": [], "ran": []})
        return {"begun": True} if "check" in message else {"outputs": []}


def right_patchify(images: torch.Tensor, patch_size: Any) -> torch.Tensor:
    return vt.patchify(images, patch_size)


def examined(tool: ModuleType, box: Any, seed: int = 1) -> Any:
    """What becomes of a notebook whose one cell is the check of patchify."""
    solved = tool.judge.read(SOLVED)
    (check,) = [cell for cell in solved if cell["nbgrader"].get("grade_id") == "check-patchify"]
    return tool.judge.Examiner(box, tool.judge.exercises("01", seed), solved).examine(tool.judge.Paper([check]))


def shown(verdict: Any) -> str:
    return "\n".join(output.get("text") or output["evalue"] for _, outputs in verdict.outputs for output in outputs)


def test_a_right_work_passes_and_a_wrong_one_is_told_why(tool):
    verdict = examined(tool, Box(right_patchify))
    assert verdict.passed == {"check-patchify": True}
    assert "patchify: right" in shown(verdict)
    wrong = examined(tool, Box(lambda images, size: images.flatten(1)[:, None]))
    assert wrong.passed == {"check-patchify": False}
    assert "patchify: not yet" in shown(wrong)


@pytest.mark.parametrize(
    "forged",
    [
        {},
        {"right": True},
        {"result": True},
        {"result": {"dict": []}},
        {"result": {"dict": [["result", 0.0]]}},
        {"fault": ""},
        {"said": True, "observed": []},
        {"result": {"tensor": "float32", "shape": [10**12], "bytes": ""}},
        {"result": json.loads("[" * 900 + "]" * 900)},
        {"result": {"dict": [["result", {"other": "Tensor", "text": "right"}]]}},
        {"ran": "x", "result": None},
    ],
)
def test_an_answer_without_the_right_numbers_gives_no_mark(tool, forged):
    assert examined(tool, Box(right_patchify, lambda told: forged)).passed == {"check-patchify": False}


def test_one_wrong_number_gives_no_mark(tool):
    def nearly(images: torch.Tensor, patch_size: Any) -> torch.Tensor:
        return vt.patchify(images, patch_size) + 1e-3 * (len(images) == 3)

    assert examined(tool, Box(nearly)).passed == {"check-patchify": False}


@pytest.mark.parametrize(
    ("ran", "noted"),
    [
        ("vit_tutorial.patches.patchify", "patchify calls the package's own patches.patchify"),
        ("changed", "patchify: the package was changed, what it calls can't be seen"),
    ],
)
def test_the_packages_own_work_and_a_package_that_was_silenced_give_no_mark(tool, ran, noted):
    verdict = examined(tool, Box(right_patchify, lambda told: told | {"ran": [ran]}))
    assert verdict.passed == {"check-patchify": False}
    assert noted in verdict.notes


def in_place(images: torch.Tensor, patch_size: Any) -> torch.Tensor:
    cut = vt.patchify(images, patch_size).clone()
    images.data.zero_()
    return cut


def silent(told: dict[str, Any]) -> dict[str, Any]:
    """What a process says that keeps its arguments to itself."""
    parts = told["result"].get("dict", [])
    return told | {"result": {"dict": [pair for pair in parts if pair[0] != "arguments"]}}


@pytest.mark.parametrize(("work", "forge"), [(in_place, dict), (in_place, silent), (right_patchify, silent)])
def test_whether_an_argument_was_changed_is_seen_outside(tool, work, forge):
    verdict = examined(tool, Box(work, forge))
    assert verdict.passed == {"check-patchify": False}
    assert "argument 1 was changed in place" in " ".join(shown(verdict).split())


@pytest.mark.parametrize(("held", "right"), [(3_000_000, True), (16_000_000, False)])
@pytest.mark.parametrize("name", ["attention_in_chunks", "mlp_in_pieces"])
def test_what_a_work_holds_is_seen_outside_and_its_numbers_count_there_too(tool, name, held, right):
    exercise = tool.judge.exercises(checks.CATALOGUE[name].lesson, 1)[name][0]

    class Holds(Box):
        def held(self) -> int:
            return 10**9

        def ask(self, message: dict[str, Any]) -> dict[str, Any]:
            self.most = 10**9 + held
            return super().ask(message)

    def said(work: Any) -> str:
        return str(tool.judge.Examiner(Holds(work), {}, [])._on_a_large_input(exercise, name))

    assert said(exercise.right) == (
        "" if right else "it holds 16 MB at once: take one piece after the other, and keep none"
    )
    assert "expected" in said(lambda *given: exercise.right(*given) + 1)


@pytest.mark.slow
def test_where_inputs_are_always_the_same_a_hidden_test_has_others(tool):
    """Else what a check gives at home could be sent as it is."""
    differs = importlib.import_module("vit_tutorial.checks.compare").differs
    for lesson in LESSONS:
        (solved,) = tool.SOLUTIONS.glob(f"{lesson}_*")
        code = {cell["nbgrader"].get("grade_id", ""): cell["source"] for cell in tool.judge.read(solved)}
        for name, (first, second, *_) in tool.judge.exercises(lesson, 12345).items():
            if first.asks_questions:
                continue
            pairs = zip(
                *([run.run_once(one, one.right, case) for case in one.cases()] for one in (first, second)), strict=True
            )
            if not any(differs(a, b, first) for a, b in pairs):
                assert "### BEGIN HIDDEN TESTS" in code[f"check-{name.replace('_', '-')}"], name


def test_results_of_the_last_time_are_of_no_use(tool):
    first = Box(right_patchify)
    examined(tool, first, seed=1)
    kept: list[Any] = []
    examined(tool, Box(right_patchify, lambda told: kept.append(told) or told), seed=1)
    again = iter(kept)
    assert examined(tool, Box(right_patchify, lambda told: next(again)), seed=2).passed == {"check-patchify": False}
    second = Box(right_patchify)
    examined(tool, second, seed=2)
    inputs = [[m["given"] for m in box.asked if "case" in m] for box in (first, second)]
    assert not set(inputs[0]) & set(inputs[1])


def test_nothing_but_one_input_after_the_other_goes_in(tool):
    box = Box(right_patchify)
    examined(tool, box)
    keys = {"case", "given", "check", "work", "hidden", "call", "of", "done"}
    for message in box.asked:
        assert message.keys() <= keys
        if "case" in message:
            assert type(pickle.loads(base64.b64decode(message["given"]))).__name__ == "Case"


def test_a_hidden_test_is_tried_and_stays_hidden(tool):
    (hidden,) = [cell for cell in tool.judge.read(SOLVED) if cell["nbgrader"].get("grade_id") == "check-patchify"]
    assert "torch.arange(2 * 3 * 32 * 48" in hidden["source"]

    def of_small_ones(images: torch.Tensor, patch_size: Any) -> torch.Tensor:
        cut = vt.patchify(images, patch_size)
        return cut if images.shape[-1] != 48 else cut + 1

    verdict = examined(tool, Box(of_small_ones))
    assert verdict.passed == {"check-patchify": False}
    assert "Not right with one more input, which isn't shown here." in shown(verdict)
    assert "arange" not in shown(verdict)

    def tells(told: dict[str, Any]) -> dict[str, Any]:
        return told if "after" not in told else {"fault": "raised Leak: the input was 1.25", "ran": []}

    verdict = examined(tool, Box(right_patchify, tells))
    assert verdict.passed == {"check-patchify": False}
    assert "1.25" not in shown(verdict), "what a work says of a hidden input"


def of_two_cells(solved: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The check of patchify, a student's cell, and the check once more."""
    (check,) = [cell for cell in solved if cell["nbgrader"].get("grade_id") == "check-patchify"]
    other = check | {"nbgrader": check["nbgrader"] | {"grade_id": "another"}}
    return [check, {"cell_type": "code", "source": "x", "nbgrader": {}}, other]


def test_no_cell_runs_after_a_hidden_test_and_could_show_its_input(tool):
    solved, box = tool.judge.read(SOLVED), Box(right_patchify)
    verdict = tool.judge.Examiner(box, tool.judge.exercises("01", 1), solved).examine(
        tool.judge.Paper(of_two_cells(solved))
    )
    assert verdict.passed == {"check-patchify": True, "another": True}
    first = next(place for place, message in enumerate(box.asked) if "call" in message)
    assert [message for message in box.asked[first:] if "cell" in message] == []
    assert [message for message in box.asked[:first] if "cell" in message] != []


@pytest.mark.parametrize("kept", [torch.Tensor.numpy, torch.Tensor.double])
def test_a_hidden_test_asks_for_numbers_however_they_are_kept(tool, kept):
    box = Box(lambda images, patch_size: kept(vt.patchify(images, patch_size)))
    assert examined(tool, box).passed == {"check-patchify": True}
    assert any("call" in message for message in box.asked)


@pytest.mark.parametrize("lesson", sorted({one.lesson for one in checks.CATALOGUE.values()}))
def test_no_hidden_test_refuses_what_the_check_takes(tool, lesson):
    """All our right works, written in very different ways."""
    runner, wire = importlib.import_module("runner"), importlib.import_module("wire")

    class Calls(Box):
        def ask(self, message: dict[str, Any]) -> dict[str, Any]:
            if "call" not in message:
                return {"begun": True}
            inside = SimpleNamespace(made=made, encode=wire.encode)
            given = pickle.loads(base64.b64decode(message["given"]))
            return runner.Runner.called(inside, message, self.work, given) | {"ran": []}

    (source,) = tool.sources([lesson])
    solved, works = tool.judge.read(source), importlib.import_module(f"solutions_{lesson}").RIGHT
    known, refused = tool.judge.exercises(lesson, 1), []
    for cell in (cell for cell in solved if tool.judge.HIDDEN.search(cell["source"])):
        name, work = tool.judge.CHECK.search(cell["source"]).groups()
        test = "".join(tool.judge.HIDDEN.findall(cell["source"]))
        for one in works[name][: 2 if name == "fit" else None]:  # each of its works trains a model
            made: list[Any] = []
            if tool.judge.Examiner(Calls(one), known, solved)._fails_hidden(known[name][0], work, test):
                refused.append((name, one))
    assert refused == []


@pytest.mark.parametrize("right", [True, False])
def test_what_was_right_before_a_sandbox_had_to_be_ended_stays_right_if_its_hidden_test_says_so(tool, right):
    def work(images: torch.Tensor, patch_size: Any) -> torch.Tensor:
        return vt.patchify(images, patch_size) + (not right and images.shape[-1] == 48)

    class Ends(Box):
        __enter__, __exit__ = lambda self: self, lambda self, *_: None

        def ask(self, message: dict[str, Any]) -> dict[str, Any]:
            if "cell" in message:
                raise tool.sandbox.Stopped("it ended itself")
            return super().ask(message)

    solved = tool.judge.read(SOLVED)
    paper = tool.judge.Paper(of_two_cells(solved))
    verdict = tool.judge.examine(lambda: Ends(work), tool.judge.exercises("01", 1), solved, paper)
    assert verdict.problem == "it ended itself"
    assert verdict.passed == {"check-patchify": right, "another": False}
    assert len(verdict.outputs) == 3
    assert ("Not right with one more input" in shown(verdict)) is not right


def test_the_right_results_of_every_exercise_are_confirmed_after_their_way_out_of_the_sandbox(tool):
    for exercise in checks.CATALOGUE.values():
        work = answers(exercise.name) if exercise.asks_questions else exercise.right
        known = () if exercise.asks_questions else run.known(exercise, None)
        results = [*known] or [run.run_once(exercise, work, case) for case in exercise.cases()]
        told = [tool.judge.wire.decode(json.loads(json.dumps(tool.judge.wire.encode(result)))) for result in results]
        assert importlib.import_module("vit_tutorial.checks.harness").check_results(exercise, told), exercise.name


# ---- Reading -----------------------------------------------------------------------------------------------------


def notebook(*cells: Any) -> str:
    return json.dumps({"cells": list(cells), "metadata": {}, "nbformat": 4, "nbformat_minor": 4})


def test_a_file_that_is_no_notebook_says_why(tool, tmp_path):
    path = tmp_path / "x.ipynb"
    many = {"cell_type": "code", "source": "", "metadata": {}, "outputs": [], "execution_count": None}
    for text, words in [
        ("{not json", "not a notebook"),
        ("[" * 100_000, "not a notebook"),
        ("1" * 100_000, "not a notebook"),
        (notebook(3), "not a notebook"),
        ('{"worksheets": []}', "not a notebook"),
        (notebook(*[many] * 60_000), "60000 cells, and 500"),
    ]:
        path.write_text(text, encoding="utf-8")
        with pytest.raises(ValueError, match=words):
            tool.judge.read(path)
    with path.open("wb") as file:
        file.truncate(21_000_000)
    with pytest.raises(ValueError, match="21 MB, and 20 are the most"):
        tool.judge.read(path)


@pytest.mark.parametrize(
    "cell",
    [
        {"cell_type": "code", "source": ["a\n", 3, None]},
        {"cell_type": [], "source": {"a": 1}, "metadata": []},
        {"source": "\ud83d", "metadata": {"nbgrader": "x"}, "id": ["\ud83d"]},
        {"cell_type": "code", "metadata": {"nbgrader": {"grade_id": {"a": "\ud83d"}, "points": float("nan")}}},
    ],
)
def test_forged_fields_are_read_as_text(tool, tmp_path, cell):
    path = tmp_path / "x.ipynb"
    path.write_text(notebook(cell), encoding="utf-8")
    (read,) = tool.judge.read(path)
    json.dumps(read["source"] + read["id"], ensure_ascii=False).encode("utf-8")
    assert tool.judge.rebuild([read], tool.judge.read(HANDED_OUT)).cells


def changed(source: Path, **new: Any) -> list[dict[str, Any]]:
    judge = importlib.import_module("judge")
    cells: list[dict[str, Any]] = judge.read(source)
    for cell in cells:
        cell["nbgrader"] |= new.get(cell["nbgrader"].get("grade_id", "").replace("-", "_"), {})
    return cells


def test_an_honest_copy_is_accused_of_nothing_after_the_exercise_has_changed(tool):
    """Other points, a dropped exercise, an added one."""
    release = [cell for cell in tool.judge.read(HANDED_OUT) if cell["nbgrader"].get("grade_id") != "check-unpatchify"]
    for cell in release:
        if cell["nbgrader"].get("grade_id") == "check-patchify":
            cell["nbgrader"]["points"] = 7
    added = {"cell_type": "code", "source": "assert checks.check_new(new)", "id": "new"}
    added |= {"nbgrader": {"grade_id": "check-new", "grade": True, "solution": False, "locked": True, "points": 1}}
    paper = tool.judge.rebuild(tool.judge.read(SOLVED), [*release, added])
    assert paper.notes == []
    assert [cell["source"] for cell in paper.cells if "check_unpatchify" in cell["source"]] == []
    assert [cell["nbgrader"].get("grade_id") for cell in paper.cells].count("check-new") == 1


def test_a_notebook_without_its_cells_metadata_is_put_back_together(tool):
    """As some programs save it: no names, no ids. The open answer reaches the teacher, and code runs in its order."""
    cells = [cell | {"nbgrader": {}, "id": ""} for cell in tool.judge.read(SOLVED)]
    place = next(place for place, cell in enumerate(cells) if cell["source"].startswith("def patchify"))
    cells.insert(place, {"cell_type": "code", "source": "def helper(): pass", "id": "", "nbgrader": {}})
    release, solved = tool.judge.read(HANDED_OUT), tool.judge.read(SOLVED)
    paper = tool.judge.rebuild(cells, release)
    wanted = {cell["nbgrader"]["grade_id"]: cell["source"] for cell in solved if tool.judge.own(cell)}
    assert {cell["nbgrader"]["grade_id"]: cell["source"] for cell in paper.cells if tool.judge.own(cell)} == wanted
    assert tool._answers(paper.cells, release, []) == {"answer-scrambled": "new"}
    names = [cell["source"][:12] for cell in paper.cells if cell.get("own")]
    assert names.index("def helper()") + 1 == names.index("def patchify")
    assert paper.notes == [f"{name} had lost its name, and was known by its place" for name in wanted]


# ---- Marks -------------------------------------------------------------------------------------------------------


def points(release: list[dict[str, Any]], name: str, value: float) -> None:
    for cell in release:
        if cell["nbgrader"].get("grade_id") == name:
            cell["nbgrader"]["points"] = value


def test_hand_marks_stay_when_points_change_and_exercises_come_and_go(tool, tmp_path):
    release = tool.judge.read(HANDED_OUT)
    passed = {"check-patchify": True, "check-unpatchify": True}
    with tool.Book(tmp_path) as book:
        assert book.prepare(STEM, release) == []
        book.enter("ada", "Ada", STEM, passed, {"answer-scrambled": "new"})
        answer = book.gradebook.find_grade("answer-scrambled", STEM, STEM, "ada")
        answer.manual_score, answer.needs_manual_grade = 2.5, False
        book.gradebook.db.commit()
    points(release, "check-patchify", 7)
    release = [cell for cell in release if cell["nbgrader"].get("grade_id") not in ("unpatchify", "check-unpatchify")]
    new = {"grade_id": "check-new", "grade": True, "solution": False, "locked": True, "points": 4}
    release.append({"cell_type": "code", "source": "", "id": "", "nbgrader": new})
    with tool.Book(tmp_path) as book:
        assert book.prepare(STEM, release) == [
            f"{STEM}: check-unpatchify is dropped",
            f"{STEM}: unpatchify is dropped",
        ]
        book.enter("ada", "Ada", STEM, passed | {"check-new": True}, {"answer-scrambled": "old"})
        marks = {mark["name"]: mark for mark in book.marks("ada", STEM)}
        assert (marks["check-patchify"]["score"], marks["check-new"]["score"]) == (7, 4)
        assert "check-unpatchify" not in marks
        assert (marks["answer-scrambled"]["score"], marks["answer-scrambled"]["waits"]) == (2.5, False)
        assert book.most(STEM) == 20 + 2 - 3 + 4
        book.enter("ada", "Ada", STEM, passed, {"answer-scrambled": "new"})
        marks = {mark["name"]: mark for mark in book.marks("ada", STEM)}
        (row,) = tool.feedback.page("", [], [marks["answer-scrambled"] | {"beside": ""}], []).split("</tr>")[1:-1]
        assert "2.5 of 3 for an earlier answer" in row
        assert "not marked yet" not in row


def test_an_answer_is_empty_old_or_new(tool):
    release = tool.judge.read(HANDED_OUT)
    name = "answer-scrambled"

    def written(text: str) -> list[dict[str, Any]]:
        cells = tool.judge.read(HANDED_OUT)
        for cell in cells:
            cell["source"] = text if cell["nbgrader"].get("grade_id") == name else cell["source"]
        return list(cells)

    assert tool._answers(release, release, []) == {name: "empty"}
    assert tool._answers(written("  "), release, []) == {name: "empty"}
    assert tool._answers(written("An answer."), release, []) == {name: "new"}
    assert tool._answers(written("An answer."), release, written("An answer.")) == {name: "old"}
    assert tool._answers(written("Another."), release, written("An answer.")) == {name: "new"}


@pytest.mark.parametrize("text", ["=HYPERLINK(1)", "+1", "-1", "@sum", "\t=1"])
def test_a_students_text_is_no_formula_of_a_spreadsheet(tool, text, tmp_path):
    tool._write_csv(
        [{"student": "ada", "marks": -1.5, "noticed": text}], ["student", "marks", "noticed"], tmp_path / "m"
    )
    assert (tmp_path / "m").read_text("utf-8").splitlines()[1] == f"ada,-1.5,'{text}"


# ---- What was handed in ------------------------------------------------------------------------------------------

GRADED = {STEM: {"check-patchify", "check-unpatchify"}, "02_embeddings": {"check-embeddings"}}
CANVAS_LIST = "Student,ID,SIS User ID,SIS Login ID,Section,01 (5)\n    Points Possible,,,,,20\n"
CANVAS_LIST += '"Lovelace, Ada",55,s1,ada,A,\n"Hopper, Grace",56,s2,grace,A,\n'
MOODLE_LIST = "Identifier,Full name,ID number,Email address,Status,Grade\n"
MOODLE_LIST += "Participant 77,Ada Lovelace,ada,a@x,,\nParticipant 78,Zoë Ångström,zoe,z@x,,\n"


def collected(tool: ModuleType, tmp_path: Path) -> list[tuple[str, str, str]]:
    found = tool.collect.collect(tmp_path / "in", GRADED, tool.collect.read_plan(tmp_path), tmp_path / "inbox")
    return [(one.student, one.exercise, one.problem) for one in found]


def put(path: Path, text: str = "{}", when: float = 0.0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    if when:
        os.utime(path, (when, when))
    return path


@pytest.mark.parametrize(
    ("listed", "files", "expected"),
    [
        ("", ["ada/01_patches.ipynb", "ada/deep/02_embeddings (1).ipynb"], [("ada", STEM), ("ada", "02_embeddings")]),
        ("", ["lovelaceada_55_99_01_patches-2.ipynb"], [("lovelaceada", STEM)]),
        (CANVAS_LIST, ["lovelaceada_LATE_55_99_01_patches.ipynb", "hoppergrace_56_98_01_patches.ipynb"],
         [("ada", STEM), ("grace", STEM)]),
        (CANVAS_LIST, ["submissions/adalovelace_1_99_01_patches.ipynb"], [("ada", STEM)]),
        (CANVAS_LIST, ["Eve/lovelaceada_55_99_01_patches.ipynb"], [("Eve", "")]),
        (MOODLE_LIST, ["Zoë Ångström_4711_assignsubmission_file/01_patches.ipynb"], [("zoe", STEM)]),
        (MOODLE_LIST, ["Somebody Else_77_assignsubmission_file_/01_patches.ipynb"], [("ada", STEM)]),
        ("id,name\nada,Ada Lovelace\n", ["Ada Lovelace/01_patches.ipynb"], [("ada", STEM)]),
        ("id;name\nada;Ada Lovelace\n", ["ADA/01_patches.ipynb"], [("ada", STEM)]),
    ],
)  # fmt: skip
def test_what_platforms_give_is_recognised(tool, tmp_path, listed, files, expected):
    if listed:
        put(tmp_path / "class.csv", listed)
    for file in files:
        put(tmp_path / "in" / file)
    assert sorted((student, stem) for student, stem, _ in collected(tool, tmp_path)) == sorted(expected)


def test_archives_are_unpacked_and_links_bombs_and_ways_out_are_not(tool, tmp_path):
    put(tmp_path / "class.csv", CANVAS_LIST)
    (tmp_path / "in").mkdir()
    with zipfile.ZipFile(tmp_path / "in" / "submissions.zip", "w") as archive:
        archive.writestr("lovelaceada_55_99_01_patches.ipynb", "{}")
        archive.writestr("../../evil_56_99_01_patches.ipynb", "{}")
        link = zipfile.ZipInfo("x_56_9_01_patches.ipynb")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, "/etc/passwd")
    (tmp_path / "in" / "grace").mkdir()
    with zipfile.ZipFile(tmp_path / "in" / "grace" / "mine.zip", "w") as archive:
        archive.writestr("folder/02_embeddings.ipynb", "{}")
    (tmp_path / "in" / "grace" / "broken.zip").write_bytes(b"PK\x03\x04broken")
    found = collected(tool, tmp_path)
    assert ("ada", STEM, "") in found
    assert ("grace", "02_embeddings", "") in found
    assert ("grace", STEM, "") in found
    assert ("grace", "", "it can't be unpacked") in found
    assert all((tmp_path / "inbox") in path.parents for path in (tmp_path / "inbox").rglob("*"))
    assert not list(tmp_path.parent.glob("evil*"))


def archive(path: Path, **members: bytes) -> bytes:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        for name, data in members.items():
            made.writestr(name.replace("__", "."), data)
    return path.read_bytes()


def test_two_students_archives_of_one_name_stay_apart(tool, tmp_path):
    for student in ("ada", "bob"):
        archive(tmp_path / "in" / student / "mine.zip", **{"01_patches__ipynb": student.encode()})
    found = tool.collect.collect(tmp_path / "in", GRADED, tool.collect.Plan(), tmp_path / "inbox")
    assert {one.student: one.path.read_text() for one in found} == {"ada": "ada", "bob": "bob"}


def test_an_archive_in_the_classs_archive_is_a_students_and_one_in_that_is_a_file(tool, tmp_path):
    inner = archive(tmp_path / "inner.zip", **{"01_patches__ipynb": b"{}"})
    deep = archive(tmp_path / "deep.zip", **{"mine__zip": inner})
    archive(tmp_path / "in" / "all.zip", **{"adalovelace_55_99_mine__zip": inner, "hoppergrace_56_98_mine__zip": deep})
    problem = "it is not a notebook of an exercise"
    assert collected(tool, tmp_path) == [("adalovelace", STEM, ""), ("hoppergrace", "", problem)]


@pytest.mark.parametrize("name", ["eve_57_99_mine__zip", "submissions/eve_57_99_mine__zip"])
def test_a_students_archive_holds_nobody_elses_work_and_says_not_when_it_came(tool, tmp_path, name):
    """In it: files named as Canvas and Moodle name those of others, dated when the student liked."""
    stolen = ["hoppergrace_56_98_01_patches.ipynb", "../grace/01_patches.ipynb", "grace/01_patches.ipynb"]
    stolen += ["Grace Hopper_56_assignsubmission_file/01_patches.ipynb", "submissions/grace/01_patches.ipynb"]
    put(tmp_path / "class.csv", CANVAS_LIST)
    with zipfile.ZipFile(tmp_path / "eve.zip", "w") as made:
        for number, inside in enumerate(stolen):
            made.writestr(zipfile.ZipInfo(inside, (1990 + number, 1, 1, 0, 0, 0)), '{"grade_id": "check-patchify"}')
    (tmp_path / "in").mkdir()
    with zipfile.ZipFile(tmp_path / "in" / "all.zip", "w") as whole:
        date = (2026, 10, 6, 12, 0, 0)
        whole.writestr(zipfile.ZipInfo(name.replace("__", "."), date), (tmp_path / "eve.zip").read_bytes())
    plan = tool.collect.read_plan(tmp_path)
    (one,) = tool.collect.collect(tmp_path / "in", GRADED, plan, tmp_path / "inbox")
    assert (one.student, one.exercise, one.when) == ("eve", STEM, datetime(2026, 10, 6, 12))


@pytest.mark.parametrize(
    ("limit", "most", "says"),
    [
        ("MOST_OF_ONE", 10**6, "the archive has more than 1 MB when it is unpacked: not all of it was read"),
        ("MOST_FILES", 2, "the archive has more than 2 files: not all of it was read"),
        ("MOST_FILE", 600_000, "it has more than 20 MB, the most that a file may have"),
    ],
)
def test_what_is_too_large_says_what_is_and_costs_no_notebook(tool, tmp_path, monkeypatch, limit, most, says):
    monkeypatch.setattr(tool.collect, limit, most)
    files = {"a__bin": bytes(700_000), "b__bin": bytes(700_000), "01_patches__ipynb": b"{}"}
    archive(tmp_path / "in" / "ada" / "bomb.zip", **files)
    found = collected(tool, tmp_path)
    assert ("ada", STEM, "") in found, "it is read first"
    assert ("ada", "", says) in found
    assert len(list((tmp_path / "inbox").glob("*"))) <= 3


def test_a_student_who_hands_in_a_thousand_files_has_few_rows(tool, tmp_path):
    archive(tmp_path / "in" / "eve" / "mine.zip", **{f"{number}__txt": b"" for number in range(1000)})
    put(tmp_path / "in" / "ada" / "essay.docx", "words")
    found = tool.collect.collect(tmp_path / "in", GRADED, tool.collect.Plan(), tmp_path / "inbox")
    assert [one.student for one in found].count("ada") == 1
    assert [one.notes for one in found if one.student == "eve"] == [*[()] * 4, ("and 995 more",)]


def test_a_files_name_takes_one_line(tool, tmp_path):
    put(tmp_path / "in" / "ada" / "01_patches\nbob  20 of 20\x1b[2J.ipynb")
    (one,) = tool.collect.collect(tmp_path / "in", GRADED, tool.collect.Plan(), tmp_path / "inbox")
    assert one.name == "ada/01_patches bob 20 of 20.ipynb"


def test_a_renamed_file_is_known_by_its_cells_and_another_has_its_row(tool, tmp_path):
    put(tmp_path / "in" / "ada" / "homework.ipynb", '{"x": {"grade_id": "check-patchify"}}')
    put(tmp_path / "in" / "bob" / "essay.docx", "words")
    put(tmp_path / "in" / "cy.ipynb", "{}")
    problem = "it is not a notebook of an exercise"
    assert collected(tool, tmp_path) == [("ada", STEM, ""), ("bob", "", problem), ("cy", "", problem)]


def test_of_two_files_the_newer_counts_and_the_older_is_named(tool, tmp_path):
    put(tmp_path / "in" / "ada" / "01_patches (1).ipynb", when=2e9)
    put(tmp_path / "in" / "ada" / "01_patches.ipynb", when=1e9)
    (one,) = tool.collect.collect(tmp_path / "in", GRADED, tool.collect.Plan(), tmp_path / "inbox")
    assert one.name == "ada/01_patches (1).ipynb"
    assert one.notes == ("an older file is left out: ada/01_patches.ipynb",)
    put(tmp_path / "in" / "ada" / "01_patches.pdf", when=3e9)
    (one,) = tool.collect.collect(tmp_path / "in", GRADED, tool.collect.Plan(), tmp_path / "inbox")
    assert (one.name, one.problem) == ("ada/01_patches (1).ipynb", "")
    assert one.notes[-1] == "a newer file is left out: ada/01_patches.pdf: it is not a notebook of an exercise"


@pytest.mark.parametrize("names", [("Li Wei", "Li_Wei"), ("Zoë", "Zoe\u0308"), ("ada", "ADA")])
def test_two_names_that_fall_together_are_an_error(tool, tmp_path, names):
    for name in names:
        put(tmp_path / "in" / name / "01_patches.ipynb")
    with pytest.raises(SystemExit, match="two students fall together"):
        collected(tool, tmp_path)


@pytest.mark.parametrize(
    "names", ["Anna Schmidt_{}_assignsubmission_file/01_patches.ipynb", "annas_{}_9_01_patches.ipynb"]
)
def test_two_students_of_one_name_are_an_error(tool, tmp_path, names):
    put(tmp_path / "class.csv", "id,name\nanna1,Anna Schmidt\nanna2,Anna Schmidt\n")
    for number in (4711, 4712):
        put(tmp_path / "in" / names.format(number))
    with pytest.raises(SystemExit, match=r"two students are called (?i:anna)"):
        collected(tool, tmp_path)
    put(tmp_path / "in" / names.format(4712)).unlink()
    put(tmp_path / "in" / "anna2" / "01_patches.ipynb")
    assert len(collected(tool, tmp_path)) == 2


def test_what_is_no_file_has_its_row_and_is_never_opened(tool, tmp_path):
    """Links to a neighbour's notebook and folder, a pipe, a socket and an empty folder with a notebook's name."""
    put(tmp_path / "in" / "ada" / "01_patches.ipynb", when=1e9)
    for name in ("bob", "dot", "pip"):
        (tmp_path / "in" / name).mkdir()
    (tmp_path / "in" / "bob" / "01_patches.ipynb").symlink_to(tmp_path / "in" / "ada" / "01_patches.ipynb")
    (tmp_path / "in" / "cy").symlink_to(tmp_path / "in" / "ada")
    (tmp_path / "in" / "dot" / "01_patches.ipynb").mkdir()
    os.mkfifo(tmp_path / "in" / "ada" / "01_patches (1).ipynb")
    os.mkfifo(tmp_path / "in" / "pip" / "class.zip")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(tmp_path / "in" / "sid.ipynb"))  # a socket's name is short
    problem = "it is no file, but a link, a folder, a pipe or a device"
    others = [(name, "", problem) for name in ("ada", "bob", "cy", "dot", "pip", "sid")]
    assert sorted(collected(tool, tmp_path)) == sorted([("ada", STEM, ""), *others])


def test_dates_have_a_grace(tool, tmp_path):
    put(tmp_path / "course.toml", "grace = 2\n[due]\n01_patches = 2026-10-05T12:00:00\n02 = 2026-10-06\n")
    plan = tool.collect.read_plan(tmp_path)
    assert plan.hours_late(STEM, datetime(2026, 10, 5, 13)) == 0
    assert plan.hours_late(STEM, datetime(2026, 10, 5, 15, 30)) == 3.5
    assert plan.hours_late("02_embeddings", datetime(2026, 10, 6, 23)) == 0
    assert plan.hours_late("03_attention", datetime(2027, 1, 1)) == 0


@pytest.mark.parametrize("text", ["grace = 'x'", "[due]\n01 = 'soon'", "due = 3", "[[["])
def test_a_plan_or_a_class_that_cannot_be_read_says_why(tool, tmp_path, text):
    put(tmp_path / "course.toml", text)
    with pytest.raises(SystemExit, match=r"course.toml: .* Write 01_patches = 2026-10-05T23:59:00 below \[due\]"):
        tool.collect.read_plan(tmp_path)
    put(tmp_path / "class.csv", "id,name\nada,A\nada,B\n")
    with pytest.raises(SystemExit, match="two students have the id ada"):
        tool.collect.read_plan(tmp_path)


def test_what_is_no_notebook_has_a_row_with_its_owners_name_and_hours(tool, tmp_path):
    put(tmp_path / "class.csv", CANVAS_LIST)
    put(tmp_path / "course.toml", "[due]\n01_patches = 2026-10-05T12:00:00\n")
    when = datetime(2026, 10, 6, 18)
    one = tool.collect.Submission("ada", STEM, tmp_path, "ada/01_patches.py", when, (), "it is not a notebook")
    row = tool._unrecognised(one, 0, tool.collect.read_plan(tmp_path), tmp_path)
    assert (row["name"], row["hours late"], row["problem"]) == ("Lovelace, Ada", 30.0, "it is not a notebook")


def test_whose_marks_cannot_be_written_has_a_row_and_a_page(tool, tmp_path):
    one, plan = tool.collect.Submission("ada", STEM, HANDED_OUT, "x", datetime.now()), tool.collect.read_plan(tmp_path)
    judged = {"problem": "", "cells": [{"nbgrader": None}], "passed": {}, "notes": [], "seconds": 0.0, "key": ""}
    with tool.Book(tmp_path) as book:
        release = tool.judge.read(HANDED_OUT)
        book.prepare(STEM, release)
        row = tool._recorded(book, one, judged, release, plan, tmp_path)
    assert row["problem"] == "AttributeError while its marks were written"
    assert row["problem"] in (tmp_path / "feedback" / "ada" / f"{STEM}.html").read_text("utf-8")


def test_who_handed_in_nothing_has_a_row_and_marks_go_out_as_platforms_take_them(tool, tmp_path):
    put(tmp_path / "class.csv", CANVAS_LIST)
    plan = tool.collect.read_plan(tmp_path)
    with tool.Book(tmp_path) as book:
        book.prepare(STEM, tool.judge.read(HANDED_OUT))
        rows = [dict.fromkeys(tool.FIRST, "") | {"student": "ada", "exercise": STEM, "marks": 12.5}]
        rows += list(tool._not_handed_in(book, [STEM], rows, plan))
        assert [(row["student"], row["problem"]) for row in rows[1:]] == [("grace", "not handed in")]
        tool._tables(rows, plan, book, [STEM], tmp_path)
    with (tmp_path / "marks_canvas.csv").open(encoding="utf-8", newline="") as file:
        table = list(csv.DictReader(file))
    assert [(row["Student"], row["ID"], row[STEM]) for row in table] == [
        ("    Points Possible", "", "20.0"),
        ("Lovelace, Ada", "55", "12.5"),
        ("Hopper, Grace", "56", "0.0"),
    ]
    with (tmp_path / f"marks_moodle_{STEM}.csv").open(encoding="utf-8", newline="") as file:
        assert [(row["ID number"], row["Grade"]) for row in csv.DictReader(file)] == [("ada", "12.5"), ("grace", "0.0")]


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's list is Linux's")
def test_all_that_a_sandbox_has_started_is_counted(tool):
    command = ["sh", "-c", "sh -c 'sleep 60 & sleep 60 & wait' & wait"]
    with subprocess.Popen(command, start_new_session=True) as process:
        found: set[int] = set()
        for _ in range(200):
            found = {one.pid for one in tool.sandbox._below(process.pid)}
            if len(found) == 3:
                break
            time.sleep(0.05)
        assert found == {one.pid for one in psutil.Process(process.pid).children(recursive=True)}
        assert len(found) == 3
        os.killpg(process.pid, signal.SIGKILL)


# ---- Copies ------------------------------------------------------------------------------------------------------

MINE = """def attention(q, k, v):
    scale = q.shape[-1] ** -0.5
    scores = torch.einsum("bhtd,bhsd->bhts", q, k) * scale
    scores = scores - scores.amax(dim=-1, keepdim=True)
    weights = scores.exp() / scores.exp().sum(dim=-1, keepdim=True)
    return torch.einsum("bhts,bhsd->bhtd", weights, v), weights
"""
THEIRS = """def attention(q, k, v):
    weights = (q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])).softmax(dim=-1)
    return weights @ v, weights
"""


def test_a_copy_is_hinted_at_though_its_names_are_others(tool):
    renamed = MINE.replace("scores", "s1").replace("weights", "out_w").replace("scale", "c")
    sources = {"ada": MINE, "bob": renamed, "cy": THEIRS}
    answers = {name: [{"cell_type": "code", "source": text}] for name, text in sources.items()}
    found = tool.copies.hints(answers, [])
    assert [(one["student"], one["other"]) for one in found] == [("ada", "bob")]
    assert found[0]["share"] == 1.0
    assert tool.copies.hints(answers, answers["ada"]) == [], "what the exercise explains is no copy"


def test_what_a_quarter_of_the_class_writes_is_no_copy(tool):
    answers = {f"s{number}": [{"cell_type": "code", "source": MINE}] for number in range(12)}
    assert tool.copies.hints(answers, []) == []


def test_one_copied_function_among_ones_own_is_hinted_at(tool):
    ada, bob = (
        [MINE, *map(inspect.getsource, some)] for some in ([Box, png, box, answers], [put, pairs, like, archive])
    )
    made = {name: [{"cell_type": "code", "source": text} for text in some] for name, some in (("a", ada), ("b", bob))}
    assert [one["share"] for one in tool.copies.hints(made, [])] == [1.0]


def test_of_an_endless_answer_only_the_beginning_is_compared(tool):
    cell = {"cell_type": "code", "source": MINE}
    endless = {"cell_type": "code", "source": "(" * 10**7}
    answers = {name: [cell, endless] for name in ("ada", "bob")}
    assert [one["share"] for one in tool.copies.hints(answers, [])] == [1.0]


def like(tool, lesson, source):
    """Which of the package's own functions a work looks like."""
    (stem,) = (path.stem for path in tool.sources([lesson]))
    found = tool._package(stem).like([{"cell_type": "code", "source": source}])
    return [name for names in found.values() for name in names]


@pytest.mark.parametrize("lesson", LESSONS)
def test_no_right_work_of_ours_is_taken_for_a_copy_of_the_package(tool, lesson):
    works = importlib.import_module(f"solutions_{lesson}").RIGHT.values()
    for work in (work for some in works for work in some):
        assert like(tool, lesson, textwrap.dedent(inspect.getsource(work))) == [], work


class Renamed(ast.NodeTransformer):
    """A function under other names, without what tells that the package's is carefully written."""

    def visit_FunctionDef(self, node):
        self.generic_visit(node)
        node.name, node.returns = node.name + "_" * (not node.name.startswith("__")), None
        node.body = node.body[ast.get_docstring(node) is not None :]
        return node

    def visit_arg(self, node):
        return ast.arg(node.arg + "_")

    def visit_Name(self, node):
        return node if hasattr(builtins, node.id) or node.id in ("torch", "nn") else ast.Name(node.id + "_", node.ctx)

    def visit_Attribute(self, node):
        own = isinstance(node.value, ast.Name) and node.value.id == "self"
        self.generic_visit(node)
        return ast.Attribute(node.value, node.attr + "_" * own, node.ctx)


def test_a_copy_of_the_package_is_noticed_under_other_names_but_for_what_teaching_says(tool):
    missed = set()
    for path in tool.sources([]):
        for works in tool.stripped.sources(Path(vt.__file__).parent, path.stem[:2]).values():
            for name, source in works.items() if len(works) <= tool.copies.NAMED else ():
                copied = ast.unparse(ast.fix_missing_locations(Renamed().visit(ast.parse(source))))
                if name.removeprefix("vit_tutorial.") not in like(tool, path.stem[:2], copied):
                    missed.add(name.rpartition(".")[2])
    said = (ROOT / "TEACHING.md").read_text("utf-8").partition("too short to tell")[2].partition(")")[0]
    assert missed == set(re.findall("`(.+?)`", said))
    head = "def f(x, size):\n    (B, C, H, W), (P, Q) = x.shape, size\n    rows, columns = H // P, W // Q\n"
    honest = head + "\n".join(inspect.getsource(vt.patchify).splitlines()[-3:])
    assert like(tool, "01", honest) == [], "these three lines are everybody's"


def test_the_mark_says_what_looks_copied(tool, tmp_path):
    (source,) = tool.sources(["16"])
    release = tool.judge.read(tool.EXERCISES / source.name)
    copied = tool.stripped.sources(Path(vt.__file__).parent, "16")["token_grid"][
        "vit_tutorial.analysis.dense.token_grid"
    ]
    cells = [*release, {"cell_type": "code", "source": copied, "nbgrader": {}, "own": True, "outputs": []}]
    one = tool.collect.Submission("ada", source.stem, HANDED_OUT, "x", datetime.now())
    judged = {"cells": cells, "passed": {"check-token-grid": True}, "notes": [], "problem": "", "seconds": 0}
    with tool.Book(tmp_path) as book:
        book.prepare(source.stem, release)
        row = tool._entered(book, one, judged, release, tool.collect.Plan(), tmp_path)
    assert row["noticed"] == "token_grid is like the package's own analysis.dense.token_grid: read it"
    page = (tmp_path / "feedback" / "ada" / f"{source.stem}.html").read_text("utf-8")
    said = "is like the package&#x27;s own analysis.dense.token_grid. Your teacher sees this, too."
    assert page.count(said) == 2  # in the table, and at the cell


def test_where_the_whole_package_is_forbidden_a_copy_is_said_of_its_own_exercise_alone(tool):
    """Lesson 19 forbids vit_tutorial.*: what one exercise copied is no news of the others."""
    (stem,) = (path.stem for path in tool.sources(["19"]))
    copied = inspect.getsource(vt.tokens.bipartite_matching).replace("bipartite_matching", "best_pairs")
    found = tool._package(stem).like([{"cell_type": "code", "source": copied}])
    assert found == {"best_pairs": ["variants.tokens.bipartite_matching"]}


# ---- The sandbox's command line ----------------------------------------------------------------------------------


def test_without_bubblewrap_it_refuses_and_says_how_to_go_on(tool, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    for platform in ("linux", "darwin"):
        monkeypatch.setattr(sys, "platform", platform)
        with pytest.raises(SystemExit) as caught:
            tool.sandbox.choose("")
        for words in ("apt install bubblewrap", "SANDBOX=podman", "SANDBOX=none", "with your rights"):
            assert words in str(caught.value)
    for kind in ("podman", "docker"):
        with pytest.raises(SystemExit, match=f"{kind} is not installed"):
            tool.sandbox.choose(kind)
    with pytest.raises(SystemExit, match="SANDBOX=chroot is not known: take bwrap, podman, docker, none"):
        tool.sandbox.choose("chroot")
    assert tool.sandbox.choose("none") == "none"


def test_a_bubblewrap_that_does_not_work_is_named(tool, monkeypatch, tmp_path):
    (tmp_path / "bwrap").write_text("#!/bin/sh\necho 'setting up uid map: Permission denied' >&2\nexit 1\n")
    (tmp_path / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(sys, "platform", "linux")
    with pytest.raises(SystemExit, match="can't make a sandbox here: setting up uid map: Permission denied"):
        tool.sandbox.choose("")


def pairs(command: list[str], option: str) -> list[str]:
    return [command[place + 1] for place, part in enumerate(command) if part == option]


@pytest.mark.parametrize("kind", ["podman", "docker"])
def test_a_containers_command_line(tool, kind, tmp_path):
    limits = tool.sandbox.Limits(processes=48, disk=64_000_000, memory=2_000_000_000)
    command = tool.sandbox.container(kind, limits, tmp_path / "vit_tutorial", "vit-1")
    assert command[:2] == [kind, "run"]
    assert {"--rm", "--read-only"} <= set(command)
    wanted = {"--network": "none", "--cap-drop": "ALL", "--security-opt": "no-new-privileges", "--pids-limit": "48"}
    wanted |= {"--memory": "3500000000", "--memory-swap": "3500000000", "--user": "65534:65534", "--pull": "never"}
    assert {option: pairs(command, option) for option in wanted} == {name: [value] for name, value in wanted.items()}
    volumes = pairs(command, "--volume")
    assert volumes[0] == f"{tmp_path}/vit_tutorial:/course/vit_tutorial:ro"
    assert [Path(volume.split(":")[0]).name for volume in volumes[1:]] == ["runner.py", "wire.py"]
    assert all(volume.endswith(":ro") for volume in volumes)
    assert command[-3:] == ["vit_tutorial-grading", "python", "/course/tools/runner.py"]
    assert "vit_tutorial-grading" in tool.sandbox.build_image(kind, tmp_path)


def test_bubblewrap_sees_the_package_and_python_and_no_more(tool, tmp_path):
    limits, package = tool.sandbox.Limits(disk=5_000_000), tmp_path / "course" / "vit_tutorial"
    command = tool.sandbox.bwrap(limits, package, [tmp_path, Path("/usr/share")])
    for option in ("--unshare-all", "--die-with-parent", "--new-session", "--disable-userns", "--clearenv"):
        assert option in command
    assert "--bind" not in command
    assert "--share-net" not in command
    shown = pairs(command, "--ro-bind")
    assert str(package) in shown
    for path in (ROOT, ROOT / "notebooks", tmp_path, Path.home(), Path("/"), Path("/etc"), Path("/home")):
        assert str(path) not in shown
    assert shown.index("/usr") < shown.index(str(package))
    assert pairs(command, "--tmpfs") == ["/tmp", "/usr/share", "/dev/shm", "/scratch"]
    assert command.index("/usr/share") > command.index("/usr")
    assert pairs(command, "--size") == ["5000000", "65536", "5000000", "5000000"]
    assert command.index("/tmp") < command.index(str(package)), "an empty /tmp would cover a course that lies in it"
    assert pairs(command, "--remount-ro") == ["/dev", "/usr/share", "/"]
    assert command.index("--remount-ro") > command.index(str(package)), "what lies in a covered folder is mounted first"


def test_grading_twice_at_a_time_is_refused(tool, tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "course").mkdir()
    with FileLock(tmp_path / "course" / "grading.lock"), pytest.raises(SystemExit, match="is being graded already"):
        tool.grade(tmp_path / "in", tmp_path / "course", "none")


def test_the_command_line(tool, tmp_path, monkeypatch):
    for arguments, words in [
        (["grade", "--submitted", str(tmp_path / "none")], "there is no folder"),
        (["assignments", "99"], "no lesson begins with 99"),
    ]:
        monkeypatch.setattr(sys, "argv", ["classroom.py", *arguments])
        with pytest.raises(SystemExit, match=re.escape(words)):
            tool.main()
