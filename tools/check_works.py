"""Run the checks of an exercise notebook on the works that a student's notebook has made. Started by tools/sandbox.py.

Message: of each check its name, the pickled work, and the hidden tests of the source. Answer: of each check whether it
is passed, and its report; and which functions of the student's are copies of the package's. A work is unpickled and
called in a process of its own, which ends with it: no check sees what another one's work has done.
"""

from __future__ import annotations

import ast
import base64
import io
import json
import linecache
import multiprocessing
import os
import pickle
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import torch
from execute_notebook import answer, limit

from vit_tutorial import checks

PACKAGE = Path(checks.__file__).parent.parent
MOST_REPORT = 20_000  # characters
LEAST = 120  # characters of a function's body: what is shorter, anybody writes


def check(one: dict[str, Any]) -> dict[str, Any]:
    """Unpickle a work, and run its check and its hidden tests."""
    try:
        work, lines = pickle.loads(base64.b64decode(one["pickle"]))
    except Exception as error:  # a work that stands on something that exists in its notebook's process alone
        return {"passed": False, "report": f"{one['check']}: can't be checked outside of the notebook: {error!r}\n"}
    linecache.cache.update({file: (len(text), None, text.splitlines(True), file) for file, text in lines.items()})
    grade = checks.grade(one["exercise"], work)
    if grade.passed and one["hidden"]:
        try:
            with redirect_stdout(io.StringIO()):
                exec(one["given"] + one["hidden"], {"__name__": "__main__", one["work"]: work})
        except Exception:
            return {"passed": False, "report": "Not right with one more input, which isn't shown here.\n"}
    return {"passed": grade.passed, "report": grade.report[:MOST_REPORT]}


def _child(one: dict[str, Any], connection: Any) -> None:
    torch.set_num_threads(1)
    connection.send_bytes(json.dumps(check(one)).encode())


def check_apart(one: dict[str, Any], seconds: int) -> dict[str, Any]:
    """Run a check in a process of its own, for so many seconds at most."""
    here, there = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=_child, args=(one, there), daemon=True)
    process.start()
    there.close()
    try:
        if not here.poll(seconds):
            return {"passed": False, "report": f"{one['check']}: not yet\n  It took more than {seconds} seconds.\n"}
        found = json.loads(here.recv_bytes(1_000_000))
        return {"passed": found["passed"] is True, "report": str(found["report"])}
    except Exception:
        return {"passed": False, "report": f"{one['check']}: not yet\n  It ended the process that it was called in.\n"}
    finally:
        process.kill()
        process.join()


def copied(theirs: list[str], model_answers: list[str]) -> list[str]:
    """Of a student's functions those whose lines stand in the package, unless the model answers have them, too."""
    explained = "\n".join(map(_bare, model_answers))
    package = {path.stem: _bare(path.read_text("utf-8")) for path in sorted(PACKAGE.glob("**/*.py"))}
    return [
        f"{name} is in the package's {module}.py"
        for source in theirs
        for name, body in _functions(source)
        for module, text in package.items()
        if len(body) >= LEAST and body in text and body not in explained
    ]


def _functions(source: str) -> Iterator[tuple[str, str]]:
    """The functions and methods of a source, each with its body's lines."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # a magic, say
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and (body := node.body[bool(ast.get_docstring(node)) :]):
            yield node.name, _bare("\n".join(source.split("\n")[body[0].lineno - 1 : node.end_lineno]))


def _bare(source: str) -> str:
    """The lines of a source without indentation, comments and empty lines."""
    lines = (line.partition("  # ")[0].strip() for line in source.split("\n"))
    return "\n".join(line for line in lines if line and not line.startswith("#"))


def main() -> None:
    message = json.load(sys.stdin)
    target = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    limit(message)
    # Once, for all processes that fork off: the lesson's checks, and what the notebook's given cells import.
    exercises = {exercise.name: exercise for exercise in checks.exercises(message["lesson"])}
    exec(message["given"], {})
    found = [
        check_apart(one | {"exercise": exercises[one["check"]], "given": message["given"]}, message["seconds"])
        for one in message["checks"]
    ]
    answer({"checks": found, "copied": copied(message["theirs"], message["model"])}, target)


if __name__ == "__main__":
    main()
