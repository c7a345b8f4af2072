"""Run a notebook's cells in a sandbox, and keep what its checks are about. Started by tools/sandbox.py.

Message: the cells, each with its source and, for a check, the name of the work that it is about. Answer: of each cell
its outputs; of each check the work, pickled, as it was when the check was reached. The checks themselves run
afterwards, in another process (tools/check_works.py): what the notebook does to torch or to the checks is gone there.
"""

from __future__ import annotations

import base64
import functools
import io
import json
import linecache
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

import cloudpickle
import nbformat
import psutil
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

MAX_OUTPUTS, MAX_CHARACTERS = 100, 3_000_000  # of one cell
BUSIEST = 10  # a limit becomes at most so many times as long
WORKS = Path("works")
SAVE = "__import__('execute_notebook').save_work({name!r}, {work})"


class _Pickler(cloudpickle.Pickler):
    """Pickles a function of the notebook that has a cache, which cloudpickle mistakes for an imported one."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, functools._lru_cache_wrapper):
            return functools.cache, (obj.__wrapped__,)
        return super().reducer_override(obj)


def save_work(name: str, work: Any) -> None:
    """In the notebook's own process: write a function or class, with all it needs, and the lines of its cells."""
    target = io.BytesIO()
    lines = {file: "".join(entry[2]) for file, entry in linecache.cache.items() if "ipykernel" in file}
    _Pickler(target).dump((work, lines))
    WORKS.mkdir(exist_ok=True)
    (WORKS / name).write_bytes(target.getvalue())


class _Client(NotebookClient):
    """Runs a notebook; cuts outputs that get too long, and gives up when two cells running don't end."""

    unanswered, limit = 0, 0

    def output(self, outs: Any, msg: Any, display_id: Any, cell_index: int) -> Any:
        size = sum(len(str(output.get("text", output.get("data")))) for output in outs)
        if len(outs) < MAX_OUTPUTS and size < MAX_CHARACTERS:
            return super().output(outs, msg, display_id, cell_index)
        return None

    def count(self, cell: Any, cell_index: int, execute_reply: Any) -> None:
        timed_out = execute_reply["content"].get("ename") == "CellTimeoutError"
        self.unanswered = self.unanswered + 1 if timed_out else 0
        if timed_out:
            text = f"this cell took more than {self.limit} seconds"
            error = {"ename": "Timeout", "evalue": text, "traceback": [text]}
            cell.outputs.append(nbformat.v4.new_output("error", **error))
        if self.unanswered == 2:
            raise DeadKernelError("two cells running did not end")


def execute(cells: list[dict[str, Any]], seconds: int) -> dict[str, Any]:
    """Run the cells, and return outputs, works, and what went wrong with the whole."""
    notebook = nbformat.v4.new_notebook(
        cells=[
            nbformat.v4.new_code_cell(SAVE.format(**cell["check"]) if cell.get("check") else cell["source"])
            for cell in cells
        ]
    )
    timeout = {"status": "error", "ename": "CellTimeoutError", "evalue": "", "traceback": []}
    client = _Client(
        notebook,
        timeout=scaled_limit(seconds),
        kernel_name="python3",
        allow_errors=True,
        interrupt_on_timeout=True,
        error_on_timeout=timeout,
        record_timing=False,
        coalesce_streams=True,
        store_widget_state=False,
        extra_arguments=["--log-level=CRITICAL"],
    )
    client.on_cell_executed, client.limit = client.count, seconds
    problem = ""
    try:
        client.execute()
    except DeadKernelError as error:
        problem = str(error) if "running" in str(error) else "the notebook's process ended itself"
    except (CellTimeoutError, CellExecutionError, RuntimeError, OSError) as error:
        problem = f"{type(error).__name__}: {str(error)[:300]}"
    works = {path.name: base64.b64encode(path.read_bytes()).decode() for path in WORKS.glob("*") if path.is_file()}
    return {"outputs": [cell.outputs for cell in notebook.cells], "works": works, "problem": problem}


def scaled_limit(seconds: int) -> int:
    """The limit by the clock, lengthened in proportion to how little of a processor this process got until now."""
    share = time.process_time() / (time.time() - psutil.Process().create_time())
    return round(seconds / min(1, max(share, 1 / BUSIEST)))


def limit(message: dict[str, Any]) -> None:
    """Set limits for this process and those that it starts; nobody can raise them again."""
    limits = {resource.RLIMIT_FSIZE: message["file_bytes"], resource.RLIMIT_CORE: 0, resource.RLIMIT_NOFILE: 512}
    if message["processes"]:
        limits[resource.RLIMIT_NPROC] = message["processes"]
    for kind, value in limits.items():
        resource.setrlimit(kind, (value, value))


def answer(value: Any, target: int) -> None:
    """Write the one JSON text."""
    with os.fdopen(target, "w", encoding="utf-8", errors="replace") as file:
        json.dump(value, file)


def main() -> None:
    message = json.load(sys.stdin)
    target = os.dup(1)  # what the notebook's processes inherit as stdout leads nowhere
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    limit(message)
    answer(execute(message["cells"], message["seconds"]), target)


if __name__ == "__main__":
    main()
