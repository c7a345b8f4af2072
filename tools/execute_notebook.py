"""Run a student's cells in a Jupyter kernel, and save what the checks are about. Used by tools/check_submission.py."""

from __future__ import annotations

import functools
import io
import linecache
import multiprocessing
import os
import resource
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import cloudpickle
import nbformat
from ipykernel.kernelapp import IPKernelApp
from jupyter_client.manager import AsyncKernelManager
from jupyter_client.provisioning.local_provisioner import LocalProvisioner
from messages import NotebookCell
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

MAX_OUTPUTS, MAX_CHARACTERS = 100, 3_000_000  # of one cell
SAVED = Path("saved")
SAVE = "__import__('execute_notebook').save({check!r}, {function})"


class _Pickler(cloudpickle.Pickler):
    """Pickles a function of the notebook that has a cache, which cloudpickle mistakes for an imported one."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, functools._lru_cache_wrapper):
            return functools.cache, (obj.__wrapped__,)
        return super().reducer_override(obj)


def save(check: str, function: Any) -> None:
    """In the notebook's own process: write a function or class, with all it needs, and the lines of its cells."""
    target = io.BytesIO()
    lines = {file: "".join(linecache.getlines(file)) for file in list(linecache.cache) if "ipykernel_" in file}
    _Pickler(target).dump((function, lines))
    SAVED.mkdir(exist_ok=True)
    (SAVED / check).write_bytes(target.getvalue())


def close_files(keep: Connection) -> None:
    """In a forked process: close what it has inherited, but for the standard streams and one connection."""
    os.closerange(3, keep.fileno())
    os.closerange(keep.fileno() + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[0])


# ---- A kernel that is forked, and so need not import torch again -------------------------------------------------


class _Process:
    """A forked process with the methods of subprocess.Popen that jupyter_client calls."""

    stdin = stdout = stderr = None

    def __init__(self, process: BaseProcess) -> None:
        self.process, self.pid = process, process.pid
        self.kill, self.terminate = process.kill, process.terminate

    def poll(self) -> int | None:
        return self.process.exitcode

    def wait(self) -> int | None:
        self.process.join()
        return self.process.exitcode

    def send_signal(self, number: int) -> None:
        os.kill(self.process.pid or 0, number)


class _ForkedKernel(LocalProvisioner):
    """Starts the kernel in a process that was forked earlier: it sends the command line for which that one waits."""

    process: Any
    parent: Any
    waiting: BaseProcess
    arguments: Connection  # to the waiting process, see _run_kernel

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> Any:
        self.arguments.send(["-f", self.parent.connection_file, "--log-level=CRITICAL"])
        self.process = _Process(self.waiting)
        self.pid = self.pgid = self.waiting.pid  # it leads a group of its own, to which an interrupt is sent
        return self.connection_info


def _run_kernel(arguments: Connection, before: Callable[[], None]) -> None:
    """In the forked process: wait for the command line of a kernel, and become that kernel."""
    os.setpgid(0, 0)  # an interrupt reaches the kernel and what it has started, and nobody else
    close_files(keep=arguments)
    before()
    IPKernelApp.launch_instance(arguments.recv())


# ---- The cells ---------------------------------------------------------------------------------------------------


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


def execute(cells: list[NotebookCell], seconds: int, slowness: float, in_kernel: Callable[[], None]) -> dict[str, Any]:
    """Run cells, and return their outputs, and what went wrong with the whole; SAVED holds what checks are about.

    Args:
        cells: each with its source; a check's with the names of the check and of the function that it is about.
        seconds: the limit of a cell.
        slowness: how many times longer it becomes.
        in_kernel: called first in the kernel's process.
    """
    theirs, ours = multiprocessing.Pipe(duplex=False)
    forking = multiprocessing.get_context("fork")
    kernel = forking.Process(target=_run_kernel, args=(theirs, in_kernel))
    kernel.start()  # now: this process has no event loop, no sockets and no threads yet
    manager = AsyncKernelManager(kernel_name="python3")
    manager.provisioner = _ForkedKernel(kernel_id="notebook", kernel_spec=manager.kernel_spec, parent=manager)
    manager.provisioner.waiting, manager.provisioner.arguments = kernel, ours
    sources = [SAVE.format(**cell["check"]) if cell.get("check") else cell["source"] for cell in cells]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
    client = _Client(
        notebook,
        km=manager,
        timeout=round(seconds * slowness),
        allow_errors=True,
        interrupt_on_timeout=True,
        error_on_timeout={"status": "error", "ename": "CellTimeoutError", "evalue": "", "traceback": []},
        record_timing=False,
        coalesce_streams=True,
        store_widget_state=False,
    )
    client.on_cell_executed, client.limit = client.count, seconds
    problem = ""
    try:
        client.execute()
    except DeadKernelError as error:
        problem = str(error) if "running" in str(error) else "the notebook's process ended itself"
    except (CellTimeoutError, CellExecutionError, RuntimeError, OSError) as error:
        problem = f"{type(error).__name__}: {str(error)[:300]}"
    return {"outputs": [cell.outputs for cell in notebook.cells], "problem": problem}
