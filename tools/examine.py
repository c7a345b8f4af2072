"""What becomes of a rebuilt notebook: run it in a sandbox, check its works in another one, and fill in the outputs."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import sandbox
from collect import clean, one_line
from nbformat import NotebookNode
from rebuild import as_plain, is_answer, is_check, name_of, without_hidden

SOLUTIONS = sandbox.TOOLS.parent / "notebooks" / "solutions"
CHECK = re.compile(r"assert checks\.check_(\w+)\((\w+)\)")
PICTURE = re.compile(r"[\w+/=\s]{100,}", re.ASCII)  # in base64: nothing that ends an attribute of HTML

Output = dict[str, Any]


def examine(notebook: NotebookNode, stem: str, kind: str, limits: sandbox.Limits) -> dict[str, Any]:
    """Run and check a rebuilt notebook; never raises for what a submission does.

    Returns:
        ``outputs`` of its code cells; of each check by its cell's name in ``checks`` whether it is
        ``passed``, and the ``report``; what is ``copied`` from the package; the ``problem``, "" for none.
    """
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    asked = {name_of(cell): CHECK.search(cell.source) for cell in code if is_check(cell)}
    jobs = [_job(cell) for cell in code]
    try:
        ran = sandbox.run("execute_notebook.py", {"cells": jobs, "seconds": limits.cell_seconds}, kind, limits)
    except sandbox.Stopped as stopped:
        ran = {"problem": str(stopped)}
    ran = ran if isinstance(ran, dict) else {}
    works = ran.get("works") if isinstance(ran.get("works"), dict) else {}
    found = _found(works, asked, notebook, stem, kind, limits)
    outputs = ran.get("outputs") if isinstance(ran.get("outputs"), list) else []
    return {
        "outputs": [list(sound(some)) for some in outputs[: len(code)]],
        "checks": found["checks"],
        "copied": found["copied"],
        "problem": one_line(ran.get("problem") or found["problem"], 300),
    }


def _job(cell: NotebookNode) -> dict[str, Any]:
    """A cell as a sandbox runs it: of a check, which work is to be kept; of the table of marks, nothing."""
    if is_check(cell) and (asked := CHECK.search(cell.source)):
        return {"source": "", "check": {"name": asked[1], "work": asked[2]}}
    return {"source": "" if is_check(cell) or name_of(cell) == "given-progress" else cell.source}


def _found(
    works: dict[str, Any],
    asked: dict[str, re.Match[str] | None],
    notebook: NotebookNode,
    stem: str,
    kind: str,
    limits: sandbox.Limits,
) -> dict[str, Any]:
    """The checks' results, from a second sandbox."""
    hidden, given, answers = _source(stem)
    found = {name: {"passed": False, "report": "There was nothing to check.\n"} for name in asked}
    reached = [name for name, check in asked.items() if check and isinstance(works.get(check[1]), str)]
    checks = [
        {"check": asked[name][1], "work": asked[name][2], "pickle": works[asked[name][1]], "hidden": hidden[name]}
        for name in reached
    ]
    theirs = [cell.source for cell in notebook.cells if cell.cell_type == "code" and not is_check(cell)]
    message = {"lesson": stem[:2], "checks": checks, "given": given, "theirs": theirs, "model": answers}
    message |= {"seconds": limits.check_seconds}
    try:
        said = sandbox.run("check_works.py", message, kind, limits)
        results = [{"passed": one["passed"] is True, "report": clean(one["report"], 50_000)} for one in said["checks"]]
        copied = [clean(line, 200) for line in said["copied"]][:10]
    except sandbox.Stopped as stopped:
        return {"checks": found, "copied": [], "problem": str(stopped)}
    except (KeyError, TypeError):
        return {"checks": found, "copied": [], "problem": "what it answered can't be read"}
    return {"checks": found | dict(zip(reached, results, strict=False)), "copied": copied, "problem": ""}


@functools.cache
def _source(stem: str) -> tuple[dict[str, str], str, list[str]]:
    """Of an exercise's solved source the hidden tests by their cells' names, the given code, the model answers."""
    cells = [cell for cell in nbformat.read(SOLUTIONS / f"{stem}.ipynb", 4).cells if cell.cell_type == "code"]
    hidden = {name_of(cell): without_hidden(cell.source)[1] for cell in cells}
    given = [cell.source for cell in cells if name_of(cell).startswith("given") and "progress" not in cell.source]
    return hidden, "\n".join(given) + "\n", [cell.source for cell in cells if is_answer(cell)]


def fill_in(notebook: NotebookNode, outcome: dict[str, Any]) -> None:
    """Put the outputs into a notebook, as nbgrader reads marks from them: a check that isn't passed has an error."""
    outputs = iter(nbformat.from_dict(outcome["outputs"]))
    for number, cell in enumerate(cell for cell in notebook.cells if cell.cell_type == "code"):
        cell.outputs, cell.execution_count = next(outputs, []), number + 1
        if is_check(cell):
            cell.source = without_hidden(cell.source)[0].strip()  # feedback would show them
            result = outcome["checks"].get(name_of(cell), {"passed": False, "report": ""})
            cell.outputs = [] if result["passed"] else [o for o in cell.outputs if o["output_type"] == "error"]
            cell.outputs += [nbformat.v4.new_output("stream", name="stdout", text=result["report"])]
            if not result["passed"]:
                said = "not right yet"
                cell.outputs += [nbformat.v4.new_output("error", ename="Check", evalue=said, traceback=[said])]
    if outcome["problem"]:
        notebook.cells.insert(0, nbformat.v4.new_markdown_cell(as_plain(f"What went wrong: {outcome['problem']}")))


# ---- Outputs -----------------------------------------------------------------------------------------------------


def sound(outputs: Any) -> Iterator[NotebookNode]:
    """Of what a sandbox calls outputs, texts and pictures. No HTML, which could run a script at the teacher's."""
    for output in outputs[:100] if isinstance(outputs, list) else []:
        kind = output.get("output_type") if isinstance(output, dict) else ""
        if kind == "stream":
            name = "stderr" if output.get("name") == "stderr" else "stdout"
            yield nbformat.v4.new_output("stream", name=name, text=clean(output.get("text", ""), 100_000))
        elif kind == "error":
            lines = output.get("traceback")
            traceback = [clean(line, 5_000) for line in lines[:60]] if isinstance(lines, list) else []
            words = {key: clean(output.get(key, ""), 2_000) for key in ("ename", "evalue")}
            yield nbformat.v4.new_output("error", traceback=traceback, **words)
        elif kind in ("display_data", "execute_result") and isinstance(output.get("data"), dict):
            data = {"text/plain": clean(output["data"].get("text/plain", ""), 100_000)}
            if PICTURE.fullmatch(str(output["data"].get("image/png"))):
                data["image/png"] = str(output["data"]["image/png"])
            # As display_data: nbgrader reads marks out of a check's execute_result.
            yield nbformat.v4.new_output("display_data", data)


# ---- Files -------------------------------------------------------------------------------------------------------


def read_json(path: Path) -> dict[str, Any]:
    """What an earlier grading has kept, {} for nothing."""
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
