"""Run the checks of an exercise notebook on the works that a student's notebook has made. Started by tools/sandbox.py.

Message: of each check its name, the pickled work, and the hidden tests of the source. Answer: of each check whether it
is passed, and its report. A work is unpickled and called in a process of its own, which ends with it: no check sees
what another one's work has done.
"""

from __future__ import annotations

import base64
import io
import json
import linecache
import multiprocessing
import os
import pickle
import sys
from contextlib import redirect_stdout
from multiprocessing.connection import Connection
from typing import Any

import torch
from execute_notebook import answer, limit, scaled_limit

from vit_tutorial import checks

MAX_REPORT = 20_000  # characters


def check(job: dict[str, Any]) -> dict[str, Any]:
    """Unpickle a work, and run its check and its hidden tests."""
    try:
        work, lines = pickle.loads(base64.b64decode(job["pickle"]))
    except Exception as error:  # a work that stands on something that exists in its notebook's process alone
        return {"passed": False, "report": f"{job['check']}: can't be checked outside of the notebook: {error!r}\n"}
    linecache.cache.update({file: (len(text), None, text.splitlines(True), file) for file, text in lines.items()})
    grade = checks.grade(job["exercise"], work)
    if grade.passed and job["hidden"]:
        try:
            with redirect_stdout(io.StringIO()):
                exec(job["given"] + job["hidden"], {"__name__": "__main__", job["work"]: work})
        except Exception:
            return {"passed": False, "report": "Not right with one more input, which isn't shown here.\n"}
    return {"passed": grade.passed, "report": grade.report[:MAX_REPORT]}


def _child(job: dict[str, Any], connection: Connection) -> None:
    torch.set_num_threads(1)
    connection.send_bytes(json.dumps(check(job)).encode())


def check_apart(job: dict[str, Any], seconds: int) -> dict[str, Any]:
    """Run a check in a process of its own, for so many seconds at most."""
    here, there = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=_child, args=(job, there), daemon=True)
    process.start()
    there.close()
    try:
        if not here.poll(seconds):
            return {"passed": False, "report": f"{job['check']}: not yet\n  It took more than {seconds} seconds.\n"}
        result = json.loads(here.recv_bytes(1_000_000))
        return {"passed": result["passed"] is True, "report": str(result["report"])}
    except Exception:
        return {"passed": False, "report": f"{job['check']}: not yet\n  It ended the process that it was called in.\n"}
    finally:
        process.kill()
        process.join()


def main() -> None:
    message = json.load(sys.stdin)
    target = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    limit(message)
    # Once, for all processes that fork off: the lesson's checks, and what the notebook's given cells import.
    exercises = {exercise.name: exercise for exercise in checks.exercises(message["lesson"])}
    exec(message["given"], {})
    seconds = scaled_limit(message["seconds"])
    results = [
        check_apart(job | {"exercise": exercises[job["check"]], "given": message["given"]}, seconds)
        for job in message["checks"]
    ]
    answer(results, target)


if __name__ == "__main__":
    main()
