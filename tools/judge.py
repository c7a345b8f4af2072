"""Judge a submission, outside of the sandbox that its code runs in; none of the student's code ever runs here.

* :func:`read` takes the cells of a file, as plain text; :func:`rebuild` puts the student's answers into the teacher's
  notebook, so that checks, points and metadata are ours.
* :class:`Examiner` lets the cells run in a sandbox. At a check it sends in one input after the other, drawn anew for
  each ``make grade``, and compares what comes back with the right results, which the sandbox never sees. Hidden tests
  run here, too: the student's function is a stand-in that asks the sandbox.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import importlib
import io
import json
import pickle
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import sandbox
import stripped
import torch
import wire
from wire import clean

Cell = dict[str, Any]
CHECK = re.compile(r"assert checks\.check_(\w+)\((\w+)\)")
HIDDEN = re.compile(r"### BEGIN HIDDEN TESTS\n(.*?)### END HIDDEN TESTS", re.DOTALL)
BASE64 = re.compile(r"[\w+/=\s]*", re.ASCII)
MOST_BYTES, MOST_CELLS, MOST_SOURCE = 20_000_000, 500, 100_000
MOST_PIXELS = 20_000_000  # of a picture
DRAWS = 3  # of inputs, at most
MOST_HELD = 8_000_000  # bytes, on an exercise's large input: right works hold 3 million, all at once is 16
DELETED = "# This cell was deleted."


@dataclass
class Paper:
    """A submission, rebuilt: the cells to run and to show, and what was found on the way."""

    cells: list[Cell]
    notes: list[str] = field(default_factory=list)


# ---- Rebuilding --------------------------------------------------------------------------------------------------


def read(path: Path) -> list[Cell]:
    """The cells of a submitted file.

    Raises:
        ValueError: it is not a notebook, or too large to be one.
    """
    if path.stat().st_size > MOST_BYTES:
        raise ValueError(f"the file has {path.stat().st_size / 1e6:.0f} MB, and {MOST_BYTES / 1e6:.0f} are the most")
    try:
        notebook = json.loads(path.read_text(encoding="utf-8-sig", errors="replace"))
        found = notebook["cells"]
        cells = [_cell(cell) for cell in found[: MOST_CELLS + 1]]
    except (RecursionError, Exception) as error:  # whatever a broken file makes it stumble over
        why = f"it is not a notebook ({type(error).__name__}): hand in a file that opens in Jupyter"
        raise ValueError("the file is empty" if not path.stat().st_size else why) from error
    if len(found) > MOST_CELLS:
        raise ValueError(f"it has {len(found)} cells, and {MOST_CELLS} are the most")
    return cells


def _cell(cell: dict[str, Any]) -> Cell:
    source = cell.get("source", "")
    text = clean("".join(map(str, source)) if isinstance(source, list) else source, MOST_SOURCE)
    metadata = cell.get("metadata")
    data = metadata.get("nbgrader") if isinstance(metadata, dict) else None
    return {
        "cell_type": "code" if cell.get("cell_type") == "code" else "markdown",
        "source": text,
        "id": clean(cell.get("id", ""), 100),
        "nbgrader": dict(data) if isinstance(data, dict) else {},
    }


def rebuild(submitted: list[Cell], release: list[Cell]) -> Paper:
    """The teacher's notebook with the student's answers in it, and their own cells where they had them."""
    paper = Paper([])
    places = {cell["nbgrader"]["grade_id"]: i for i, cell in enumerate(release) if cell["nbgrader"]}
    ids = {cell["id"]: i for i, cell in enumerate(release) if cell["id"]}
    given = {cell["source"].strip(): i for i, cell in enumerate(release) if not own(cell)}
    taken: dict[int, Cell] = {}
    extra: dict[int, list[Cell]] = {}
    here = -1
    for cell in submitted:
        name = clean(cell["nbgrader"].get("grade_id", ""), 100)
        place = places.get(name) if name else ids.get(cell["id"], given.get(HIDDEN.sub("", cell["source"]).strip()))
        if place is not None and place not in taken:
            here, taken[place] = place, cell
            continue
        if place is not None:
            paper.notes.append(f"{_title(release[place], place)} is there twice")
            if not own(release[place]):
                continue
        if CHECK.search(cell["source"]) and name:
            continue  # the check of an exercise that is none any more
        extra.setdefault(here, []).append(cell)
    _put_back(release, taken, extra, paper)
    for place in range(-1, len(release)):
        if place >= 0:
            paper.cells.append(_filled(release[place], taken.get(place), place, paper))
        for cell in extra.get(place, []):
            paper.cells.append({"cell_type": cell["cell_type"], "source": cell["source"], "nbgrader": {}, "own": True})
    return paper


def _put_back(release: list[Cell], taken: dict[int, Cell], extra: dict[int, list[Cell]], paper: Paper) -> None:
    """Take for a missing cell what stands in its place: some programs save notebooks without the cells' metadata."""
    for place, cell in enumerate(release):
        before = extra.get(max((i for i in taken if i < place), default=-1), [])
        found = [one for one in before if one["cell_type"] == cell["cell_type"] and not CHECK.match(one["source"])]
        if not own(cell) or place in taken or not found:
            continue
        if cell["cell_type"] == "code":
            found = found[-1:]  # those above it run before it
        before[:] = [one for one in before if not any(one is other for other in found)]
        taken[place] = found[0] | {"source": "\n\n".join(one["source"] for one in found)}
        paper.notes.append(f"{_title(cell, place)} had lost its name, and was known by its place")


def own(cell: Cell) -> bool:
    """Whether a cell of the release is the student's to fill."""
    return bool(cell["nbgrader"]) and bool(cell["nbgrader"]["solution"])


def _title(cell: Cell, place: int) -> str:
    return str(cell["nbgrader"].get("grade_id", f"cell {place}"))


def _filled(ours: Cell, theirs: Cell | None, place: int, paper: Paper) -> Cell:
    """A cell of the release with the student's source, where it is theirs to write."""
    title = _title(ours, place)
    if not own(ours):
        if theirs and ours["nbgrader"] and HIDDEN.sub("", theirs["source"]).strip() != ours["source"].strip():
            paper.notes.append(f"{title} is not as it was handed out")
        return ours
    if theirs is None:
        paper.notes.append(f"{title} is missing")
        # Not the stub: the answer may stand in a cell of their own above, and would be replaced by it.
        return ours | {"source": DELETED if ours["cell_type"] == "code" else ""} | {"own": True}
    if theirs["cell_type"] != ours["cell_type"]:
        paper.notes.append(f"{title} is not a {ours['cell_type']} cell any more")
        return ours | {"source": DELETED if ours["cell_type"] == "code" else theirs["source"], "own": True}
    return ours | {"source": theirs["source"], "own": True}


def is_check(cell: Cell) -> bool:
    """Whether a cell is one of the teacher's checks."""
    data = cell["nbgrader"]
    return bool(data) and bool(data["grade"]) and not data["solution"]


def is_given(cell: Cell) -> bool:
    """Whether a cell of code is given, and stays as it is."""
    data = cell["nbgrader"]
    return bool(data) and cell["cell_type"] == "code" and bool(data["locked"]) and not data["grade"]


# ---- Inputs ------------------------------------------------------------------------------------------------------


def exercises(lesson: str, seed: int) -> dict[str, list[Any]]:
    """A lesson's exercises by name, each with several draws of its inputs, none the one that students' checks have."""
    declared = importlib.import_module("vit_tutorial.checks.declare").exercises_of
    found = declared(importlib.import_module(f"vit_tutorial.checks.lesson{lesson}"))
    draws = [seed + number for number in range(DRAWS)]
    return {one.name: [dataclasses.replace(one, cases=_drawn(one.cases, draw)) for draw in draws] for one in found}


def _drawn(cases: Callable[[], list[Any]], seed: int) -> Callable[[], list[Any]]:
    usual = torch.Generator

    class Generator(torch.Generator):
        def manual_seed(self, number: int) -> torch.Generator:
            return super().manual_seed((number + seed) % 2**63)

    def made() -> list[Any]:
        torch.Generator = Generator  # type: ignore[misc]
        try:
            return cases()
        finally:
            torch.Generator = usual  # type: ignore[misc]

    return made


def _packed(value: Any) -> str:
    """What goes into a sandbox. Nothing comes out of one in this form: it is code, too."""
    return base64.b64encode(pickle.dumps(value)).decode("ascii")


# ---- Examining ---------------------------------------------------------------------------------------------------


@dataclass
class Verdict:
    """What becomes of a submission: its code cells' outputs, the checks that are passed, notes for the teacher.

    ``untested`` are passed checks whose hidden tests could not be tried.
    """

    outputs: list[tuple[int | None, list[dict[str, Any]]]] = field(default_factory=list)
    passed: dict[str, bool] = field(default_factory=dict)
    untested: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    problem: str = ""
    ran: int = 0  # cells, of a sandbox that was ended


def examine(
    opened: Callable[[], sandbox.Sandbox], known: dict[str, list[Any]], solved: list[Cell], paper: Paper
) -> Verdict:
    """What becomes of a notebook. One that ends its sandbox runs again up to there, for the hidden tests."""
    with opened() as box:
        verdict = Examiner(box, known, solved).examine(paper)
    if verdict.untested:
        cells = [cell for cell in paper.cells if cell["cell_type"] == "code"][: verdict.ran]
        with opened() as box:
            again = Examiner(box, known, solved).examine(Paper(cells))
        verdict.passed |= again.passed | dict.fromkeys(again.untested, False)
        verdict.outputs[: len(cells)] = again.outputs
    return verdict


class Examiner:
    """One notebook in one sandbox, cell by cell.

    Args:
        box: the sandbox.
        known: the lesson's :func:`exercises`.
        solved: the cells of the solved source, with its hidden tests.
    """

    def __init__(self, box: sandbox.Sandbox, known: dict[str, list[Any]], solved: list[Cell]) -> None:
        self.box, self.known = box, known
        self.harness = importlib.import_module("vit_tutorial.checks.harness")
        self.compared = importlib.import_module("vit_tutorial.checks.run").compared
        self.differs = importlib.import_module("vit_tutorial.checks.compare").differs
        self.hidden = {cell["nbgrader"].get("grade_id"): "".join(HIDDEN.findall(cell["source"])) for cell in solved}
        self.given = [cell["source"] for cell in solved if is_given(cell)]
        self.verdict = Verdict()

    def examine(self, paper: Paper) -> Verdict:
        """Run and judge all cells of code; what was right before a sandbox had to be ended stays right."""
        self.verdict.notes += paper.notes
        cells = [cell for cell in paper.cells if cell["cell_type"] == "code"]
        for cell in cells:
            self.verdict.passed |= {cell["nbgrader"]["grade_id"]: False} if is_check(cell) else {}
        try:
            for cell in cells:
                self.verdict.outputs.append(self._cell(cell))
            while self.verdict.untested:
                self._try_hidden(cells, self.verdict.untested[0])
        except sandbox.Stopped as stopped:
            self.verdict.problem, self.verdict.ran = str(stopped), len(self.verdict.outputs)
            left = cells[self.verdict.ran :]
            self.verdict.outputs += [(None, [_failed(f"not checked: {stopped}")] * is_check(cell)) for cell in left]
        return self.verdict

    def _cell(self, cell: Cell) -> tuple[int | None, list[dict[str, Any]]]:
        if is_check(cell):
            return None, self._check(cell)
        if is_given(cell) and "checks.progress(" in cell["source"]:  # the table of marks says it
            return None, []
        answer = self.box.ask({"cell": cell["source"]})
        count = answer.get("count")
        return count if isinstance(count, int) and 0 <= count < 10**6 else None, list(sound(answer.get("outputs")))

    def _check(self, cell: Cell) -> list[dict[str, Any]]:
        found, name = CHECK.search(cell["source"]), cell["nbgrader"]["grade_id"]
        if found is None or found[1] not in self.known:
            return [_failed(f"{name} has no check that is known")]
        exercise = self.known[found[1]][0]
        begun = self.box.ask({"check": exercise.name, "work": found[2]})
        if "fault" in begun:
            return [_stream(f"{exercise.name}: not yet\n  {clean(begun['fault'], 1000)}\n"), _failed("not right yet")]
        right, report = self._tried(self.known[found[1]])
        if right and exercise.large and (wrong := self._on_a_large_input(exercise, found[2])):
            right, report = False, f"{exercise.name}: not yet\n  On a large input: {wrong}\n"
        self.box.ask({"done": True})
        self.verdict.passed[name] = right
        self.verdict.untested += [name] * bool(right and self.hidden.get(name))
        return [_stream(report)] if right else [_stream(report), _failed("not right yet")]

    def _try_hidden(self, cells: list[Cell], name: str) -> None:
        """A check's hidden test, when all cells have run: what a work has seen of it, no cell can show any more."""
        (place,) = [place for place, cell in enumerate(cells) if cell["nbgrader"].get("grade_id") == name]
        check, work = CHECK.search(cells[place]["source"]).groups()  # type: ignore[union-attr]
        exercise = self.known[check][0]
        begun = self.box.ask({"check": exercise.name, "work": work, "hidden": True})
        if "fault" in begun or self._fails_hidden(exercise, work, self.hidden[name]):
            self.verdict.passed[name] = False
            said = _stream("Not right with one more input, which isn't shown here.\n")
            self.verdict.outputs[place][1].extend([said, _failed("not right yet")])
        self.box.ask({"done": True})
        self.verdict.untested.remove(name)

    def _tried(self, draws: list[Any]) -> tuple[bool, str]:
        """Whether the work is right on all inputs, and the check's report.

        Where few inputs are wrong, the next draw is tried: an input can be so unlucky that rounding decides.
        """
        report = ""
        for exercise in draws:
            outcomes, said = self._outcomes(exercise), io.StringIO()
            try:
                with contextlib.redirect_stdout(said):
                    right = bool(self.harness.check_results(exercise, outcomes))
                    wrong = len(self.compared(exercise, outcomes).wrong)
            except (RecursionError, Exception) as error:  # whatever a forged result makes it stumble over
                self.verdict.notes.append(f"what {exercise.name} gave can't be compared ({type(error).__name__})")
                return False, f"{exercise.name}: not yet\n  What it gave can't be compared.\n"
            report = report or clean(said.getvalue())
            if right:
                return len(outcomes) == len(exercise.cases()), clean(said.getvalue())
            if exercise.asks_questions or 4 * wrong > len(outcomes):
                break
        return False, report

    def _outcomes(self, exercise: Any) -> list[Any]:
        """What the work gives on each input; fewer, if its time is over or its process has ended."""
        outcomes: list[Any] = []
        for case in exercise.cases():
            answer = self.box.ask({"case": True, "given": _packed(case)})
            outcomes.append(self._outcome(exercise, answer))
            if isinstance(outcomes[-1], Exception) and str(outcomes[-1]).startswith(("took more", "ended the")):
                break
        return outcomes

    def _outcome(self, exercise: Any, answer: dict[str, Any]) -> Any:
        """What a work has given on one input, or what went wrong."""
        ran = [str(one) for one in answer["ran"]] if isinstance(answer.get("ran"), list) else []
        if ran == ["changed"]:
            self.verdict.notes.append(f"{exercise.name}: the package was changed, what it calls can't be seen")
            return self.harness.Fault("the package was changed by your notebook: leave it as it is")
        if name := stripped.borrowed(exercise, ran):
            self.verdict.notes.append(f"{exercise.name} calls the package's own {name}")
            return self.harness.Fault(f"it calls the package's own {name}: write your own in the cell above")
        if "fault" in answer:
            return self.harness.Fault(clean(answer["fault"], 2000) or "raised something without a message")
        try:
            result = wire.decode(answer.get("result"))
        except (RecursionError, Exception):
            result = None
        if not isinstance(result, dict):
            return self.harness.Fault("what it gave can't be read")
        return result

    def _on_a_large_input(self, exercise: Any, work: str) -> str:
        """What is wrong on an input so large that the kernel shows from outside whether all is held at once, or ""."""
        small, large = exercise.cases()[0], exercise.large()
        self.box.ask({"check": exercise.name, "work": work, "hidden": True})
        self._plainly(exercise, small)  # some memory is taken at the first call, and kept
        self.box.most = before = self.box.held()
        outcome, most = self._plainly(exercise, large), self.box.most
        self.box.most = None
        if isinstance(outcome, Exception):
            return str(outcome)
        right = {"result": exercise.right(*large.args)}
        held = f"it holds {(most - before) / 1e6:.0f} MB at once: take one piece after the other, and keep none"
        return self.differs(right, outcome, exercise) or held * (most - before > MOST_HELD)

    def _plainly(self, exercise: Any, case: Any) -> Any:
        """What the work gives, called as it is."""
        answer = self.box.ask({"call": "()", "of": None, "given": _packed((case.args, {}))})
        return self._outcome(exercise, answer | {"result": {"dict": [["result", answer.get("result")]]}})

    def _fails_hidden(self, exercise: Any, work: str, test: str) -> bool:
        """Whether a work fails the teacher's own test of it; what went wrong could tell the input, and isn't said."""
        names: dict[str, Any] = {}
        for source in self.given:
            with contextlib.redirect_stdout(io.StringIO()):
                exec(compile(source, "<given>", "exec"), names)
        names[work] = Remote(self.box, self._borrowed_in_call(exercise))
        try:
            exec(compile(test, "<hidden test>", "exec"), names)
        except sandbox.Stopped:
            raise
        except (RecursionError, Exception):
            return True
        return False

    def _borrowed_in_call(self, exercise: Any) -> Callable[[dict[str, Any]], str]:
        def look(answer: dict[str, Any]) -> str:
            outcome = self._outcome(exercise, answer | {"result": {"dict": []}})
            return str(outcome) if isinstance(outcome, Exception) else ""

        return look


class Remote:
    """In a hidden test, the student's function or class, or a module that it has made: a call goes into the sandbox."""

    class Fault(Exception):
        """What went wrong in there."""

    def __init__(self, box: sandbox.Sandbox, look: Callable[[dict[str, Any]], str], of: int | None = None) -> None:
        self._box, self._look, self._of = box, look, of

    def __call__(self, *given: Any, **named: Any) -> Any:
        return self._ask("()", given, named)

    def eval(self) -> Any:
        return self._ask("eval", (), {})

    def train(self) -> Any:
        return self._ask("train", (), {})

    def parameters(self) -> Any:
        return self._ask("parameters", (), {})

    def _ask(self, call: str, given: tuple[Any, ...], named: dict[str, Any]) -> Any:
        answer = self._box.ask({"call": call, "of": self._of, "given": _packed((given, named))})
        if problem := self._look(answer):
            raise Remote.Fault(problem)
        models = [x for x in given if isinstance(x, torch.nn.Module)]
        for model, (training, state) in zip(models, answer["after"], strict=True):
            model.train(training is True)
            for mine, theirs in zip(model.state_dict().values(), wire.decode(state), strict=True):
                mine.copy_(theirs)
        if isinstance(answer.get("module"), int):
            return Remote(self._box, self._look, answer["module"])
        own = {(number, name): p for number, model in enumerate(models) for name, p in model.named_parameters()}
        result = wire.decode(answer["result"], own)
        kinds = [x.dtype for x in given if isinstance(x, torch.Tensor) and x.is_floating_point()]
        return _as_given(result, kinds[0] if kinds else torch.float32) if call == "()" else result


def _as_given(result: Any, kind: torch.dtype) -> Any:
    """A work's numbers as the tensors that a hidden test expects: an array, or float64, is as good."""
    if isinstance(result, np.ndarray):
        result = torch.tensor(result)
    if isinstance(result, torch.Tensor):
        return result.to(kind) if result.is_floating_point() else result
    if isinstance(result, (tuple, list)):
        return type(result)(_as_given(part, kind) for part in result)
    return result


# ---- What is shown -----------------------------------------------------------------------------------------------


def _stream(text: str) -> dict[str, Any]:
    return {"output_type": "stream", "name": "stdout", "text": text}


def _failed(why: str) -> dict[str, Any]:
    return {"output_type": "error", "ename": "AssertionError", "evalue": why, "traceback": [f"AssertionError: {why}"]}


def sound(outputs: Any) -> Iterator[dict[str, Any]]:
    """Of what a sandbox calls outputs, those that are, part by part."""
    for output in outputs[:300] if isinstance(outputs, list) else []:
        if not isinstance(output, dict):
            continue
        kind = output.get("output_type")
        if kind == "stream":
            name = "stderr" if output.get("name") == "stderr" else "stdout"
            yield _stream(clean(output.get("text"), 200_000)) | {"name": name}
        elif kind == "error":
            lines = output.get("traceback")
            traceback = [clean(line, 5000) for line in lines[:60]] if isinstance(lines, list) else []
            words = {key: clean(output.get(key), 2000) for key in ("ename", "evalue")}
            yield {"output_type": "error", "traceback": traceback} | words
        elif kind in ("display_data", "execute_result") and isinstance(output.get("data"), dict):
            data = output["data"]
            base = {"text/plain": clean(data["text/plain"], 200_000)} if "text/plain" in data else {}
            if _can_be_shown(data.get("image/png")):
                base["image/png"] = data["image/png"]
            # As display_data: nbgrader reads marks out of a check's execute_result.
            if base:
                yield {"output_type": "display_data", "data": base, "metadata": {}}


def _can_be_shown(picture: Any) -> bool:
    """Whether it is a PNG of a size that a browser bears: a small file may hold billions of pixels."""
    if not isinstance(picture, str) or not BASE64.fullmatch(picture):
        return False
    start = "".join(picture[:64].split())[:48]
    head = b"" if "=" in start else base64.b64decode(start[: len(start) // 4 * 4])
    width, height = (int.from_bytes(head[at : at + 4]) for at in (16, 20))
    return head.startswith(b"\x89PNG\r\n\x1a\n") and 0 < width * height <= MOST_PIXELS
