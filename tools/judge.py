"""Decide about what came out of a sandbox; none of the student's code ever runs here.

* :func:`rebuild` puts the student's answers into the teacher's notebook, so that checks, points and metadata are ours.
* :func:`tricks` reads their code for what honest answers have no use for. It gives no marks and takes none away.
* :func:`decide` repeats each check that said "right" in the sandbox, with the results that the student's work is said
  to have given. Only who gives the right results for the check's inputs gets the mark.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nbformat
import wire
from IPython.core.inputtransformer2 import TransformerManager

Cell = dict[str, Any]
CHECK = re.compile(r"assert checks\.check_(\w+)\((\w+)\)")
HIDDEN = re.compile(r"### BEGIN HIDDEN TESTS\n(.*?)### END HIDDEN TESTS", re.DOTALL)
BASE64 = re.compile(r"[\w+/=\s]*", re.ASCII)
MOST_BYTES, MOST_CELLS = 20_000_000, 500
MOST_NOTES = 12
DELETED = "# This cell was deleted."


@dataclass
class Paper:
    """A submission, rebuilt: the cells to run and to show, and what was found on the way."""

    cells: list[Cell]
    notes: list[str] = field(default_factory=list)
    written: list[str] = field(default_factory=list)  # the student's own code


@dataclass
class Verdict:
    """What becomes of a submission: the outputs of its cells, in their order, and what the teacher should know."""

    outputs: list[tuple[int | None, list[dict[str, Any]]]]
    notes: list[str]
    problem: str = ""


# ---- Rebuilding --------------------------------------------------------------------------------------------------


def read(path: Path) -> list[Cell]:
    """The cells of a submitted file.

    Raises:
        ValueError: it is not a notebook, or too large to be one.
    """
    if path.stat().st_size > MOST_BYTES:
        raise ValueError(f"the file has {path.stat().st_size / 1e6:.0f} MB, and {MOST_BYTES / 1e6:.0f} are the most")
    try:
        notebook = nbformat.reads(path.read_text(encoding="utf-8"), as_version=4)
        cells = [
            {"cell_type": str(cell.cell_type), "source": str(cell.source), "id": str(cell.get("id", ""))}
            | {"nbgrader": _plain(cell.get("metadata", {}).get("nbgrader"))}
            for cell in notebook.cells
        ]
    except (RecursionError, Exception) as error:  # nbformat raises whatever a broken file makes it stumble over
        raise ValueError(f"it is not a notebook ({type(error).__name__})") from error
    if len(cells) > MOST_CELLS:
        raise ValueError(f"it has {len(cells)} cells, and {MOST_CELLS} are the most")
    return cells


def _plain(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, dict) else {}


def rebuild(submitted: list[Cell], release: list[Cell]) -> Paper:
    """The teacher's notebook with the student's answers in it, and their own cells where they had them."""
    paper = Paper([])
    places = {cell["nbgrader"]["grade_id"]: i for i, cell in enumerate(release) if cell["nbgrader"]}
    ids = {cell["id"]: i for i, cell in enumerate(release) if cell["id"]}
    prose = {cell["source"].strip(): i for i, cell in enumerate(release) if not cell["nbgrader"]}
    taken: dict[int, Cell] = {}
    extra: dict[int, list[Cell]] = {}
    here = -1
    for cell in submitted:
        name = str(cell["nbgrader"].get("grade_id", ""))
        place = places.get(name) if name else ids.get(cell["id"], prose.get(cell["source"].strip()))
        if place is not None and place not in taken:
            here, taken[place] = place, cell
            continue
        if place is not None:
            paper.notes.append(f"{_title(release[place], place)} is there twice")
            if not _own(release[place]):
                continue
        extra.setdefault(here, []).append(cell)
    for place in range(-1, len(release)):
        if place >= 0:
            paper.cells.append(_filled(release[place], taken.get(place), place, paper))
        for cell in extra.get(place, []):
            paper.cells.append({"cell_type": cell["cell_type"], "source": _harmless(cell), "nbgrader": {}, "id": ""})
            if cell["cell_type"] == "code":
                paper.written.append(cell["source"])
    return paper


def _own(cell: Cell) -> bool:
    """Whether a cell of the release is the student's to fill."""
    return bool(cell["nbgrader"]) and bool(cell["nbgrader"]["solution"])


def _title(cell: Cell, place: int) -> str:
    return str(cell["nbgrader"].get("grade_id", f"cell {place}"))


def _filled(ours: Cell, theirs: Cell | None, place: int, paper: Paper) -> Cell:
    """A cell of the release with the student's source, where it is theirs to write."""
    title = _title(ours, place)
    if theirs is None:
        if ours["nbgrader"]:
            paper.notes.append(f"{title} was deleted")
        # Not the stub: the answer may stand in a cell of their own above, and would be replaced by it.
        return ours | ({"source": DELETED} if _own(ours) and ours["cell_type"] == "code" else {})
    if ours["nbgrader"] and theirs["nbgrader"]:
        keys = ("grade", "locked", "solution", "points")
        if changed := [key for key in keys if theirs["nbgrader"].get(key) != ours["nbgrader"].get(key)]:
            paper.notes.append(f"{title}: metadata changed ({', '.join(changed)})")
    if ours["nbgrader"] and theirs["cell_type"] != ours["cell_type"]:
        paper.notes.append(f"{title} is not a {ours['cell_type']} cell any more")
    if not _own(ours):
        if ours["nbgrader"] and HIDDEN.sub("", theirs["source"]).strip() != ours["source"].strip():
            paper.notes.append(f"{title} was edited")
            paper.written.append(theirs["source"])
        return ours
    if theirs["cell_type"] != ours["cell_type"]:
        return ours | ({"source": DELETED} if ours["cell_type"] == "code" else {"source": _harmless(theirs)})
    if ours["cell_type"] == "code":
        paper.written.append(theirs["source"])
    return ours | {"source": _harmless(theirs)}


def _harmless(cell: Cell) -> str:
    """Text without HTML: it is shown in the teacher's browser, on formgrader's page."""
    if cell["cell_type"] == "code":
        return cell["source"]
    return re.sub(r"<(?=[A-Za-z/!?])", "&lt;", cell["source"])


def job(paper: Paper, solved: list[Cell], lesson: str) -> dict[str, Any]:
    """What the sandbox has to do: the code cells, with the hidden tests of the solved source."""
    hidden = {cell["nbgrader"].get("grade_id"): "".join(HIDDEN.findall(cell["source"])) for cell in solved}
    given = [cell["source"] for cell in solved if cell["cell_type"] == "code" and _is_given(cell)]
    cells: list[dict[str, Any]] = []
    for cell in paper.cells:
        if cell["cell_type"] != "code":
            continue
        found = CHECK.search(cell["source"]) if _is_check(cell) else None
        if found:
            cells.append({"check": found[1], "work": found[2], "given": given})
            cells[-1]["hidden"] = hidden.get(cell["nbgrader"]["grade_id"], "")
        else:
            cells.append({"source": cell["source"]})
    return {"lesson": lesson, "cells": cells}


def _is_check(cell: Cell) -> bool:
    data = cell["nbgrader"]
    return bool(data) and bool(data["grade"]) and not data["solution"]


def _is_given(cell: Cell) -> bool:
    data = cell["nbgrader"]
    return bool(data) and bool(data["locked"]) and not data["grade"]


# ---- Deciding ----------------------------------------------------------------------------------------------------


def confirms(lesson: str, name: str, observed: Any) -> tuple[bool, str]:
    """Whether the check finds these results right, and its report."""
    harness = importlib.import_module("vit_tutorial.checks.harness")
    declared = importlib.import_module("vit_tutorial.checks.declare").exercises_of
    exercises = declared(importlib.import_module(f"vit_tutorial.checks.lesson{lesson}"))
    (exercise,) = [exercise for exercise in exercises if exercise.name == name]
    report = io.StringIO()
    try:
        if [label for label, _ in observed] != [case.label for case in exercise.cases()]:
            return False, "the sandbox's report is about other inputs\n"
        outcomes = [_outcome(said, harness.Fault) for _, said in observed]
        with contextlib.redirect_stdout(report):
            right = bool(harness.check_results(exercise, outcomes))
    except (RecursionError, Exception) as error:  # whatever a forged message makes it stumble over
        return False, f"the sandbox's report can't be read ({type(error).__name__})\n"
    return right, report.getvalue()


def _outcome(said: Any, fault: type[Exception]) -> Any:
    """What a work is said to have given in one case."""
    if "fault" in said:
        return fault(str(said["fault"])[:2000])
    result = wire.decode(said["result"])
    if not isinstance(result, dict):
        raise ValueError("a result is a dictionary")
    return result


def decide(paper: Paper, work: dict[str, Any], messages: list[dict[str, Any]], problem: str) -> Verdict:
    """The outputs of every code cell. A check without a sound report has failed; with a ``problem``, all have."""
    notes = [*paper.notes, *tricks(paper.written)]
    by_cell: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for message in messages:
        for kind in ("cell", "check"):
            if isinstance(message.get(kind), int):
                by_cell.setdefault((kind, message[kind]), []).append(message)
    if sum("ready" in message for message in messages) > 1 or any("garbled" in message for message in messages):
        notes.append("wrote into the channel of the reports")
    outputs: list[tuple[int | None, list[dict[str, Any]]]] = []
    for number, cell in enumerate(work["cells"]):
        reports = by_cell.get(("check" if "check" in cell else "cell", number), [])
        if len(reports) > 1:
            notes.append(f"two reports for one cell ({cell.get('check', number)})")
        message = reports[0] if len(reports) == 1 else {}
        shown = list(_sound(message.get("outputs")))
        if "check" in cell:
            passed, shown = _checked(cell, message, shown, work["lesson"], notes)
            if not passed or problem:
                shown.append(_failed(problem or "not right yet"))
            outputs.append((None, shown))
        else:
            count = message.get("count")
            outputs.append((count if isinstance(count, int) else None, shown))
    last = messages[-1] if messages and "end" in messages[-1] else {}
    notes += _replaced(last.get("replaced"), "was replaced")
    if isinstance(last.get("threads"), int) and last["threads"] > 0:
        notes.append(f"threads that go on ({last['threads']})")
    return Verdict(outputs, shortened(notes), problem)


def _checked(
    cell: dict[str, Any], message: dict[str, Any], shown: list[dict[str, Any]], lesson: str, notes: list[str]
) -> tuple[bool, list[dict[str, Any]]]:
    """Whether a check is passed, and what is shown of it."""
    name = cell["check"]
    notes += _replaced(message.get("replaced"), "was replaced")
    during = _replaced(message.get("during"), f"was replaced by the work that check_{name} called")
    notes += during
    if message.get("said") is not True:
        return False, shown
    right, report = confirms(lesson, name, message.get("observed"))
    if not right:
        notes.append(f"check_{name} was made to say right")
        return False, [_stream(report)]
    if any(output["output_type"] == "error" or output.get("name") == "stderr" for output in shown):
        shown = [output for output in shown if output["output_type"] == "stream"]
        for output in shown:
            output["name"] = "stdout"  # a warning is not a mistake
    return not during, shown


def _replaced(names: Any, what: str) -> list[str]:
    if not isinstance(names, list) or not names:
        return []
    some = ", ".join(str(name)[:60] for name in names[:3])
    return [f"{some}{' and more' if len(names) > 3 else ''} {what}"]


def _stream(text: str) -> dict[str, Any]:
    return {"output_type": "stream", "name": "stdout", "text": text}


def _failed(why: str) -> dict[str, Any]:
    return {"output_type": "error", "ename": "AssertionError", "evalue": why, "traceback": [f"AssertionError: {why}"]}


def _sound(outputs: Any) -> Iterator[dict[str, Any]]:
    """Of what a sandbox calls outputs, those that are, part by part."""
    for output in outputs if isinstance(outputs, list) else []:
        if not isinstance(output, dict):
            continue
        kind = output.get("output_type")
        if kind == "stream":
            name = "stderr" if output.get("name") == "stderr" else "stdout"
            yield _stream(str(output.get("text"))[:200_000]) | {"name": name}
        elif kind == "error":
            lines = output.get("traceback")
            traceback = [str(line)[:5000] for line in lines[:60]] if isinstance(lines, list) else []
            words = {key: str(output.get(key))[:2000] for key in ("ename", "evalue")}
            yield {"output_type": "error", "traceback": traceback} | words
        elif kind in ("display_data", "execute_result") and isinstance(output.get("data"), dict):
            data = output["data"]
            kept = {key: str(data[key]) for key in ("text/plain", "image/png", "image/jpeg") if key in data}
            base = {key: text for key, text in kept.items() if key == "text/plain" or BASE64.fullmatch(text)}
            # As display_data: nbgrader reads marks out of a check's execute_result.
            yield {"output_type": "display_data", "data": base, "metadata": {}}


def shortened(notes: list[str]) -> list[str]:
    """Each note once, and not too many."""
    lines = list(dict.fromkeys(notes))
    return lines if len(lines) <= MOST_NOTES else [*lines[:MOST_NOTES], f"and {len(lines) - MOST_NOTES} more"]


# ---- Reading their code ------------------------------------------------------------------------------------------

OURS = {"checks", "vt", "vit_tutorial", "torch", "nn", "F", "builtins", "sys", "harness", "IPython", "os", "inspect"}
PROGRAMS, FILES = "starts programs", "goes through files or the environment"
WATCHED = {
    r"os\.(_exit|abort|kill|killpg)|sys\.exit|exit|quit": "ends its own process",
    r"os\.(fork|forkpty|system|popen|spawn\w+|exec\w+|posix_spawn)": PROGRAMS,
    r"(subprocess|multiprocessing)\.\w+|get_ipython\(\)\.(system|getoutput)": PROGRAMS,
    r"(socket|urllib|http|requests|ftplib|smtplib|httpx|aiohttp)\.\w[\w.]*": "uses the network",
    r"(threading\.)?(Thread|Timer)|_thread\.\w+|concurrent\.\w[\w.]*": "starts threads",
    r"(atexit|signal|faulthandler)\.\w+": "hooks into the end of the process",
    r"sys\.(_getframe|settrace|setprofile|_current_frames)": "looks at its callers",
    r"inspect\.(stack|currentframe|getouterframes)": "looks at its callers",
    r"gc\.(get_\w+|freeze)": "searches the memory",
    r"ctypes\.\w[\w.]*": "writes past Python",
    r"importlib\.(reload|util)[\w.]*": "loads modules anew",
    r"shutil\.\w+|os\.(remove|unlink|rmdir|rename|replace|chmod|symlink|link)": FILES,
    r"os\.(walk|listdir|scandir|getenv)|(pathlib\.)?Path\.home": FILES,
    r"get_ipython\(\)\.(kernel|ast_transformers|events|input_\w+|user_ns|run_cell)[\w.]*": "changes the shell",
    r"(eval|exec|compile|__import__)": "runs text as code",
    r"resource\.setrlimit": "changes its limits",
}
HOOKS = {"__eq__", "__torch_function__", "__torch_dispatch__", "__instancecheck__", "__getattribute__"}
MODULES_NAMED = {"harness", "ctypes", "gc", "builtins", "socket", "subprocess", "multiprocessing"}


def tricks(sources: list[str]) -> list[str]:
    """What a student's code does that no exercise asks for, in words; an honest answer may do some of it, too."""
    found: list[str] = []
    for source in sources:
        with contextlib.suppress(SyntaxError, ValueError, RecursionError, MemoryError):
            tree = ast.parse(TransformerManager().transform_cell(source))
            found += [note for node in ast.walk(tree) for note in _notes(node)]
    return list(dict.fromkeys(found))


def _notes(node: ast.AST) -> Iterator[str]:
    if isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Delete)):
        targets = node.targets if isinstance(node, (ast.Assign, ast.Delete)) else [node.target]
        for target in targets:
            yield from _target(target)
    elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        if node.name.startswith("check_") or node.name in HOOKS:
            yield f"defines a {node.name} of its own"
    elif isinstance(node, ast.Call):
        yield from _call(node)
    elif isinstance(node, (ast.Import, ast.ImportFrom)):
        names = [alias.name for alias in node.names] + [getattr(node, "module", "") or ""]
        for name in names:
            if set(name.split(".")) & MODULES_NAMED or re.search(r"vit_tutorial\.checks\.\w", name):
                yield f"imports {name}"
    elif isinstance(node, ast.Attribute):
        name = _dotted(node)
        if re.search(r"checks\.CATALOGUE|\.__(globals|code|closure|subclasses)__", name):
            yield f"reaches into {name}"
        if name == "os.environ":
            yield f"{FILES}: {name}"
    elif isinstance(node, ast.Constant) and isinstance(node.value, str) and ": right. Tried:" in node.value:
        yield "prints what looks like a check's report"


def _target(target: ast.AST) -> Iterator[str]:
    """What is noticed of something that is assigned to, or deleted."""
    if isinstance(target, (ast.Tuple, ast.List)):
        for part in target.elts:
            yield from _target(part)
    elif isinstance(target, ast.Name):
        if target.id in ("AssertionError", "__builtins__", "checks", "torch", "vt") or target.id.startswith("check_"):
            yield f"gives the name {target.id} to something else"
    elif isinstance(target, (ast.Attribute, ast.Subscript)):
        name = _dotted(target)
        root = name.split(".")[0].split("[")[0]
        if root in OURS | {"__builtins__"} and not name.startswith("torch.backends"):
            yield f"replaces {name}"
        elif ".__code__" in name or ".__globals__" in name or ".__dict__" in name:
            yield f"reaches into {name}"


def _call(node: ast.Call) -> Iterator[str]:
    name = _dotted(node.func)
    for pattern, what in WATCHED.items():
        if re.fullmatch(pattern, name):
            yield f"{what}: {name}"
    first = node.args[0] if node.args else None
    if name == "object.__setattr__":
        yield f"reaches into {_dotted(first) if first is not None else 'an object'}"
    if name in ("setattr", "delattr") and first is not None and _dotted(first).split(".")[0] in OURS:
        key = node.args[1].value if len(node.args) > 1 and isinstance(node.args[1], ast.Constant) else "…"
        yield f"replaces {_dotted(first)}.{key}"
    if name.endswith(("patch", "patch.object")) and name.split(".")[0] in ("mock", "unittest", "patch"):
        yield f"replaces something by {name}"
    text = first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else ""
    if name in ("open", "Path", "pathlib.Path", "io.open", "os.open") and (text.startswith(("/", "~")) or ".." in text):
        yield f"{FILES}: {name}({text[:60]!r})"


def _dotted(node: ast.AST) -> str:
    """``torch.nn.functional`` of an expression that reads so; calls and keys of it are kept short."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    if isinstance(node, ast.Call):
        return f"{_dotted(node.func)}()"
    if isinstance(node, ast.Subscript):
        key = node.slice.value if isinstance(node.slice, ast.Constant) else "…"
        return f"{_dotted(node.value)}[{key!r}]"
    return ""
