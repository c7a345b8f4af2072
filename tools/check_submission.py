"""Run a student's notebook, then its checks, each in a process of its own. Started in a sandbox by tools/sandbox.py.

Messages, a line each: the cells, and then the checks with their hidden tests, which is read when the notebook has
ended. Answer: of each cell its outputs, of each check whether it is passed and its report.

All processes are forked off this one, which has imported torch and the lesson's checks once. It never runs a student's
code: what the notebook does to torch or to the checks stays in the notebook's process, and no check sees what another
one has done.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import json
import linecache
import multiprocessing
import os
import pickle
import resource
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import execute_notebook
import psutil
import torch
from messages import Answer, Bounds, CheckJob, CheckResult, ChecksMessage, NotebookMessage

from vit_tutorial import checks
from vit_tutorial.checks import Exercise
from vit_tutorial.checks.engine.check import references

MAX_REPORT = 20_000  # characters
MAX_ANSWER = 50_000_000  # bytes that a process gives back
BUSIEST = 10  # a limit becomes at most so many times as long
PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER = 4, 36  # of linux/prctl.h


# ---- Processes ---------------------------------------------------------------------------------------------------


def set_limits(message: Bounds) -> None:
    """Set limits for this process and those that it starts; nobody can raise them again."""
    limits = {resource.RLIMIT_FSIZE: message["file_bytes"], resource.RLIMIT_CORE: 0, resource.RLIMIT_NOFILE: 512}
    if message["processes"]:
        limits[resource.RLIMIT_NPROC] = message["processes"]
    for kind, value in limits.items():
        resource.setrlimit(kind, (value, value))


def set_process_flag(flag: int, value: int) -> None:
    """Linux's prctl."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(flag, value, 0, 0, 0)


def can_be_traced() -> None:
    """Make a process an ordinary one again: its own code may read /proc/self."""
    set_process_flag(PR_SET_DUMPABLE, 1)


def slowness() -> float:
    """How many times longer this process has taken, by the clock, than it would on a processor of its own."""
    busy = time.process_time() / (time.time() - psutil.Process().create_time())  # the fraction of its time so far
    return 1 / min(1, max(busy, 1 / BUSIEST))


def in_process(function: Callable[..., Any], *args: Any, seconds: float | None = None) -> Any:
    """What a function gives in a forked process, as JSON; then all that it has started is ended.

    Raises:
        TimeoutError: it takes longer.
        Exception: of any kind, if it has ended without an answer.
    """
    here, there = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=_send_result, args=(there, function, *args))
    process.start()
    there.close()
    try:
        if not here.poll(seconds):
            raise TimeoutError
        return json.loads(here.recv_bytes(MAX_ANSWER))
    finally:
        end_descendants()
        process.join()


def _send_result(connection: Connection, function: Callable[..., Any], *args: Any) -> None:
    execute_notebook.close_files(keep=connection)
    connection.send_bytes(json.dumps(function(*args)).encode("utf-8", "replace"))


def end_descendants() -> None:
    """Kill every process that descends from this one; orphans are children of this one, see PR_SET_CHILD_SUBREAPER."""
    while descendants := psutil.Process().children(recursive=True):
        for process in descendants:
            with contextlib.suppress(psutil.Error):
                process.kill()
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


# ---- A check -----------------------------------------------------------------------------------------------------


def check(job: CheckJob, exercise: Exercise, pickled: bytes, given: str) -> CheckResult:
    """Unpickle a function or class, and run its check and its hidden tests."""
    torch.set_num_threads(1)
    try:
        function, lines = pickle.loads(pickled)
    except Exception as error:  # it stands on something that exists in its notebook's process alone
        return {"passed": False, "report": f"{job['check']}: can't be checked outside of the notebook: {error!r}\n"}
    linecache.cache.update({file: (len(text), None, text.splitlines(True), file) for file, text in lines.items()})
    grade = checks.grade(exercise, function)
    if grade.passed and job["hidden"]:
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                exec(given + job["hidden"], {"__name__": "__main__", job["function"]: function})
        except Exception:
            return {"passed": False, "report": "Not right with one more input, which isn't shown here.\n"}
    return {"passed": grade.passed, "report": grade.report[:MAX_REPORT]}


def check_apart(job: CheckJob, exercise: Exercise, given: str, limit: int, slow: float) -> CheckResult:
    """Run a check in a process of its own, for so many seconds at most."""
    pickled = (execute_notebook.SAVED / job["check"]).read_bytes()
    sentence = "It ended the process that it was called in."
    try:
        result = in_process(check, job, exercise, pickled, given, seconds=limit * slow)
        return {"passed": result["passed"] is True, "report": str(result["report"])}
    except TimeoutError:
        sentence = f"It took more than {limit} seconds."
    except Exception:  # whatever it has sent in place of an answer
        pass
    return {"passed": False, "report": f"{job['check']}: not yet\n  {sentence}\n"}


def main() -> None:
    set_process_flag(PR_SET_DUMPABLE, 0)  # the notebook's process can't look into this one
    set_process_flag(PR_SET_CHILD_SUBREAPER, 1)
    answer = os.fdopen(os.dup(1), "w", encoding="utf-8", errors="replace")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what other processes inherit as stdout leads nowhere
    with open(0, "rb", buffering=0) as messages:
        first = json.loads(messages.readline())
        set_limits(first)
        notebook: NotebookMessage = first
        exercises = {exercise.name: exercise for exercise in checks.exercises(notebook["lesson"])}
        slow = slowness()
        result: Answer
        try:
            result = in_process(
                execute_notebook.execute, notebook["cells"], notebook["cell_seconds"], slow, can_be_traced
            )
        except Exception:
            result = {"outputs": [], "problem": "the notebook's process ended itself"}
        message: ChecksMessage = json.loads(messages.readline())
    # Once, for all checks: what the notebook's given cells and the references import.
    exec(message["given"], {})
    for exercise in exercises.values():
        references(exercise)
    result["checks"] = {
        job["check"]: check_apart(job, exercises[job["check"]], message["given"], message["check_seconds"], slow)
        for job in message["checks"]
        if (execute_notebook.SAVED / job["check"]).is_file()
    }
    with answer:
        json.dump(result, answer)


if __name__ == "__main__":
    main()
