"""Grading without a sandbox: each thing that stands between a submission and a mark, tried by itself and fast."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from vit_tutorial.checks import lesson01, run

ROOT = Path(__file__).resolve().parent.parent
STEM = "01_patches"
pytestmark = pytest.mark.skipif(not importlib.util.find_spec("nbgrader"), reason="nbgrader is not installed")


@pytest.fixture(scope="module")
def tool() -> Iterator[ModuleType]:
    """tools/classroom.py as a module."""
    sys.path.insert(0, str(ROOT / "tools"))
    yield importlib.import_module("classroom")
    sys.path.remove(str(ROOT / "tools"))


# ---- Limits ------------------------------------------------------------------------------------------------------


@pytest.fixture
def watch(tool, monkeypatch) -> Any:
    """What watches a sandbox, with nothing in it yet, and room for little."""
    sandbox = tool.sandbox
    limits = sandbox.Limits(seconds=10, grace=5, total_seconds=100, memory=1_000, processes=3)
    one = sandbox._Watch(SimpleNamespace(pid=1), limits, threading.Event(), own=True)
    one.base = 500
    monkeypatch.setattr(sandbox.psutil, "virtual_memory", lambda: SimpleNamespace(available=10**10))
    one._processes, one._memory = list, lambda found: 0
    return one


def test_what_takes_little_goes_on(watch):
    watch._processes, watch._memory = lambda: [None] * 7, lambda found: 1_500
    assert watch._too_much() == ""


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
def test_each_limit_ends_it(watch, takes, words):
    vars(watch).update(takes)
    assert words in watch._too_much()


def test_an_interrupted_teacher_ends_it(watch):
    watch.stop.set()
    assert watch._too_much() == "grading was interrupted"


def test_a_machine_without_memory_ends_it(watch, tool, monkeypatch):
    monkeypatch.setattr(tool.sandbox.psutil, "virtual_memory", lambda: SimpleNamespace(available=1))
    assert watch._too_much() == "this machine's memory ran out"


# ---- From a report to a mark -------------------------------------------------------------------------------------


def told(tool: ModuleType) -> list[Any]:
    """What a sandbox tells of a right patchify."""
    exercise = lesson01.PATCHIFY
    results = zip(exercise.cases(), run.known(exercise, None), strict=True)
    return [[case.label, {"result": tool.judge.wire.encode(result)}] for case, result in results]


def found(tool: ModuleType, problem: str = "", observed: Any = None) -> dict[str, Any]:
    """What :func:`classroom._run` gives of a notebook whose one cell is a check that said "right"."""
    cell = {"cell_type": "code", "source": "", "nbgrader": {}, "id": "a"}
    return {
        "key": "k",
        "seconds": 1.0,
        "problem": problem,
        "paper": {"cells": [cell], "notes": ["a note"], "written": []},
        "work": {"lesson": "01", "cells": [{"check": "patchify", "work": "patchify", "given": []}]},
        "messages": [
            {"check": 0, "said": True, "observed": told(tool) if observed is None else observed},
            {"end": True},
        ],
    }


class Api:
    """In place of nbgrader: notes what it is asked for."""

    def __init__(self, score: float = 0.0) -> None:
        self.removed: list[tuple[str, str]] = []
        grades = [SimpleNamespace(needs_manual_grade=True, cell=SimpleNamespace(name="check-patchify"), score=score)]
        self.submission = SimpleNamespace(score=score, notebooks=[SimpleNamespace(grades=grades)])

    def autograde(self, stem: str, student: str, force: bool) -> dict[str, bool]:
        return {"success": True}

    generate_feedback = autograde

    @property
    @contextlib.contextmanager
    def gradebook(self) -> Iterator[Any]:
        yield SimpleNamespace(
            remove_submission=lambda stem, student: self.removed.append((stem, student)),
            find_assignment=lambda stem: SimpleNamespace(max_score=20.0),
            find_submission=lambda stem, student: self.submission,
        )


def outputs(tool: ModuleType, course: Path, one: dict[str, Any]) -> tuple[str, list[dict[str, Any]], list[str]]:
    problem = tool._record(Api(), course, "ada", STEM, one)
    kept = json.loads((course / "judged" / "ada" / f"{STEM}.json").read_text("utf-8"))
    return problem, kept["outputs"][0][1], kept["notes"]


def test_a_right_report_leaves_no_error(tool, tmp_path):
    assert outputs(tool, tmp_path, found(tool)) == ("", [], ["a note"])


def test_after_a_kernel_that_died_no_check_has_passed(tool, tmp_path):
    problem, shown, _ = outputs(tool, tmp_path, found(tool, problem="could not be graded: it ended itself"))
    assert problem == "could not be graded: it ended itself"
    assert [output["output_type"] for output in shown] == ["error"]


@pytest.mark.parametrize("observed", [[], "right", [["a label", {"result": True}]]])
def test_a_check_that_was_made_to_say_right_has_not_passed(tool, tmp_path, observed):
    _, shown, notes = outputs(tool, tmp_path, found(tool, observed=observed))
    assert shown[-1]["output_type"] == "error"
    assert "check_patchify was made to say right" in notes


def test_marks_are_nbgraders_and_the_notes_are_the_judges(tool, tmp_path):
    outputs(tool, tmp_path, found(tool))
    row = tool._row(Api(score=3.5), tmp_path, "ada", STEM, "a problem")
    assert row == {
        "student": "ada",
        "exercise": STEM,
        "marks": 3.5,
        "of": 20.0,
        "by hand": 1,
        "check-patchify": 3.5,
        "problem": "a problem",
        "noticed": "a note",
    }


def test_one_that_cannot_be_graded_loses_what_an_earlier_one_got(tool, tmp_path):
    outputs(tool, tmp_path, found(tool))
    api = Api()
    assert tool._record(api, tmp_path, "ada", STEM, {"key": "k", "problem": "no notebook"}) == "no notebook"
    assert api.removed == [(STEM, "ada")]
    assert not (tmp_path / "judged" / "ada" / f"{STEM}.json").exists()
    assert (tmp_path / "failed" / f"ada_{STEM}.txt").read_text("utf-8") == "no notebook\n"


def test_what_is_unchanged_is_not_run_again_and_what_is_changed_is(tool, tmp_path, monkeypatch):
    for name, folder in (("source", "solutions"), ("release", "exercises")):
        target = tmp_path / "course" / name / STEM
        target.mkdir(parents=True)
        shutil.copy(ROOT / "notebooks" / folder / f"{STEM}.ipynb", target)
    path = Path(shutil.copy(ROOT / "notebooks" / "exercises" / f"{STEM}.ipynb", tmp_path))
    ran: list[int] = []
    monkeypatch.setattr(tool.sandbox, "run", lambda *a: ran.append(1) or tool.sandbox.Ran([{"end": True}]))

    def run() -> dict[str, Any]:
        how = tool.Grading("none", 1, tool.sandbox.Limits())
        return dict(tool._run(tmp_path / "course", "ada", STEM, path, how, [], threading.Event()))

    tool._record(Api(), tmp_path / "course", "ada", STEM, run())
    run()
    assert len(ran) == 1
    path.write_text(path.read_text("utf-8").replace("YOUR CODE HERE", "MY CODE"), encoding="utf-8")
    run()
    assert len(ran) == 2


def test_nbgrader_finds_no_marks_in_what_a_cell_returned(tool):
    made = [
        {"output_type": "execute_result", "data": {"text/plain": "5", "text/html": "<script>"}, "execution_count": 1},
        {"output_type": "update_display_data", "data": {"text/plain": "5"}},
        "no output",
    ]
    assert list(tool.judge._sound(made)) == [
        {"output_type": "display_data", "data": {"text/plain": "5"}, "metadata": {}}
    ]


@pytest.mark.parametrize("text", ["=HYPERLINK(1)", "+1", "-1", "@sum"])
def test_a_students_text_is_no_formula_of_a_spreadsheet(tool, text, tmp_path):
    tool._write_csv(
        [{"student": "ada", "exercise": STEM, "marks": -1.5, "noticed": text}], tmp_path / "c" / "marks.csv"
    )
    line = (tmp_path / "c" / "marks.csv").read_text("utf-8").splitlines()[1]
    assert line == f"ada,{STEM},-1.5,,,,'{text}"
