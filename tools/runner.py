"""Run one submission, inside the sandbox. It is started by tools/classroom.py, and not meant for hands.

A job comes as JSON on stdin: the notebook's code cells, and which of them are checks. What happens goes out as lines of
JSON. The cells run one after the other in this process, as they would in Jupyter. At a check, the process forks: the
child puts back what the student's code has replaced in torch and in the checks, runs the check, and tells *what the
student's work gave*, case by case. Whether that is right is decided outside, where none of their code ever ran
(tools/judge.py): a process that holds their code can be made to say anything.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import io
import json
import linecache
import os
import resource
import signal
import sys
import threading
import time
import traceback
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

MOST_TEXT, MOST_OUTPUTS, MOST_PICTURES = 50_000, 200, 3_000_000  # of one cell: characters, outputs, bytes
KEPT_TYPES = ("text/plain", "image/png", "image/jpeg")  # no HTML: a feedback page must not run a student's scripts
MODULES = [
    *("builtins", "base64", "collections", "contextlib", "copy", "ctypes", "dataclasses", "functools", "inspect", "io"),
    *("json", "linecache", "math", "numbers", "os", "random", "re", "sys", "textwrap", "threading", "time"),
    *("traceback", "types", "weakref", "numpy", "torch", "torch.autograd", "torch.autograd.grad_mode", "torch.linalg"),
    *("torch.nn", "torch.nn.functional", "torch.nn.init", "torch.nn.utils", "torch.optim", "torch.overrides"),
    *("torch.random", "torch.testing", "torch.utils.data"),
]
LEFT = {"stdin", "stdout", "stderr", "displayhook", "excepthook", "last_type", "last_value", "last_exc"}
LEFT |= {"manual_seed"}  # torch itself replaces it when its compiler is imported


class OutOfTime(BaseException):
    """Raised in a cell whose time is over. Not an Exception, so that few can swallow it."""


# ---- What a cell shows -------------------------------------------------------------------------------------------


class Outputs:
    """A cell's outputs as nbformat has them, cut where they get too long."""

    def __init__(self) -> None:
        self.made: list[dict[str, Any]] = []
        self.text, self.pictures, self.cut = 0, 0, False

    def stream(self, name: str, text: str) -> None:
        room = MOST_TEXT - self.text
        if len(text) > room and not self.cut:
            self.cut = True
            text = f"{text[:room]}\n[the rest is left out]\n"
        elif self.cut:
            return
        self.text += len(text)
        if self.made and self.made[-1].get("name") == name:
            self.made[-1]["text"] += text
        else:
            self.made.append({"output_type": "stream", "name": name, "text": text})

    def shown(self, kind: str, data: dict[str, Any], count: int | None = None) -> None:
        kept = {key: value for key, value in data.items() if key in KEPT_TYPES and isinstance(value, str)}
        size = sum(map(len, kept.values()))
        if not kept or len(self.made) >= MOST_OUTPUTS or self.pictures + size > MOST_PICTURES:
            return
        self.pictures += size
        output: dict[str, Any] = {"output_type": kind, "data": kept, "metadata": {}}
        self.made.append(output | ({"execution_count": count} if kind == "execute_result" else {}))

    def error(self, name: str, value: str, lines: list[str]) -> None:
        cut = [line[:2000] for line in lines[-40:]]
        self.made.append({"output_type": "error", "ename": name[:200], "evalue": value[:2000], "traceback": cut})


class Stream(io.TextIOBase):
    """Stands for stdout or stderr, and writes into the outputs of the cell that runs."""

    def __init__(self, name: str, current: Callable[[], Outputs]) -> None:
        self.name, self.current = name, current

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.current().stream(self.name, str(text))
        return len(text)


def make_shell(current: Callable[[], Outputs]) -> Any:
    """IPython's own shell, without a kernel and so without sockets; what it shows goes into ``current()``."""
    from IPython.core.displayhook import DisplayHook
    from IPython.core.displaypub import DisplayPublisher
    from IPython.core.interactiveshell import InteractiveShell

    class Hook(DisplayHook):
        def write_output_prompt(self) -> None:
            pass

        def write_format_data(self, format_dict: Any, md_dict: Any = None) -> None:
            current().shown("execute_result", format_dict, self.prompt_count)

        def finish_displayhook(self) -> None:
            pass

    class Publisher(DisplayPublisher):
        def publish(self, data: Any, metadata: Any = None, **more: Any) -> None:
            current().shown("display_data", data)

        def clear_output(self, wait: bool = False) -> None:
            pass

    class Shell(InteractiveShell):
        def _showtraceback(self, etype: Any, evalue: Any, stb: Any) -> None:
            lines = self.InteractiveTB.stb2text(stb).split("\n")
            current().error(getattr(etype, "__name__", "error"), str(evalue), lines)

        def ask_exit(self) -> None:
            pass

        def enable_gui(self, gui: Any = None) -> None:
            pass

    from traitlets.config import Config

    config = Config()
    config.HistoryManager.enabled = False
    config.InteractiveShell.colors = "nocolor"
    config.InteractiveShell.cache_size = 0
    shell = Shell.instance(config=config, displayhook_class=Hook, display_pub_class=Publisher)
    shell.system = shell.system_piped
    shell.user_ns["__name__"] = "__main__"
    return shell


# ---- What must be as it was --------------------------------------------------------------------------------------


class Pristine:
    """The functions, classes and modules that a check relies on, as they were before the student's first line."""

    def __init__(self) -> None:
        ours = [name for name in sys.modules if name.split(".")[0] == "vit_tutorial"]
        self.modules = {name: module for name, module in sys.modules.items() if isinstance(module, types.ModuleType)}
        self.owners: list[tuple[str, Any, dict[str, Any]]] = []
        self.functions: dict[int, tuple[str, Any, tuple[Any, ...]]] = {}
        self.records: list[tuple[str, Any, dict[str, Any]]] = []
        for name in [*MODULES, *ours]:
            if name in sys.modules:
                self._keep(name, sys.modules[name])
        torch = sys.modules["torch"]
        for kind in (torch.Tensor, torch.nn.Module, torch.nn.Parameter, torch.Generator, torch.nn.Linear):
            self._keep(f"{kind.__module__}.{kind.__name__}", kind)
        for name in ours:
            if ".checks" in name:
                for key, value in list(vars(sys.modules[name]).items()):
                    if isinstance(value, type) and value.__module__ == name:
                        self._keep(f"{name}.{key}", value)
                    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
                        self.records.append((f"{name}.{key}", value, dict(vars(value))))

    def _keep(self, label: str, owner: Any) -> None:
        kept = {key: value for key, value in vars(owner).items() if key not in LEFT and _solid(value)}
        self.owners.append((label, owner, kept))
        for key, value in kept.items():
            if isinstance(value, types.FunctionType) and value.__module__ in (label, getattr(owner, "__module__", "")):
                self.functions[id(value)] = (f"{label}.{key}", value, _inside(value))

    def put_back(self) -> list[str]:
        """Undo what was replaced; its names."""
        found = []
        for name, module in self.modules.items():
            if sys.modules.get(name) is not module:
                found.append(f"sys.modules[{name!r}]")
                sys.modules[name] = module
        for label, owner, kept in self.owners:
            now = vars(owner)
            for key in [key for key, value in kept.items() if now.get(key, found) is not value]:
                found.append(f"{label}.{key}")
                setattr(owner, key, kept[key])
            for key in [key for key in now if key not in kept and _intruder(label, owner, key, now[key])]:
                found.append(f"{label}.{key}")
                delattr(owner, key)
        for label, record, kept in self.records:
            for key in [key for key, value in kept.items() if vars(record).get(key, found) is not value]:
                found.append(f"{label}.{key}")
                object.__setattr__(record, key, kept[key])
        for label, function, inside in self.functions.values():
            if _inside(function) != inside:
                found.append(f"{label} (its code)")
                function.__code__, function.__defaults__, function.__kwdefaults__ = inside
        return found


def _solid(value: Any) -> bool:
    return callable(value) or isinstance(value, (types.ModuleType, staticmethod, classmethod, property))


def _inside(function: Any) -> tuple[Any, ...]:
    return function.__code__, function.__defaults__, function.__kwdefaults__


def _intruder(label: str, owner: Any, key: str, value: Any) -> bool:
    """Whether a new name hides another one: a check that the package finds on demand, or a method of a base class."""
    if isinstance(owner, type):
        return callable(value) and not key.startswith("__") and any(key in vars(base) for base in owner.__mro__[1:])
    return label.startswith("vit_tutorial") and callable(value) and not isinstance(value, types.ModuleType)


# ---- Cells and checks --------------------------------------------------------------------------------------------


class Runner:
    """One notebook, cell by cell; what happens goes to the channel."""

    def __init__(self, job: dict[str, Any], channel: int) -> None:
        self.job, self.channel = job, channel
        self.outputs = Outputs()
        self.lesson = importlib.import_module(f"vit_tutorial.checks.lesson{job['lesson']}")
        self.harness = importlib.import_module("vit_tutorial.checks.harness")
        self.exercises = importlib.import_module("vit_tutorial.checks.declare").exercises_of(self.lesson)
        self.note = importlib.import_module("vit_tutorial.checks.record").note
        import wire  # before the student's code, like all that is needed later

        self.encode = wire.encode
        self.shell = make_shell(lambda: self.outputs)
        sys.stdout, sys.stderr = (Stream(name, lambda: self.outputs) for name in ("stdout", "stderr"))
        self.pristine = Pristine()
        self.main = os.getpid()

    def send(self, **message: Any) -> None:
        data = memoryview(json.dumps(message).encode() + b"\n")
        while data:
            data = data[os.write(self.channel, data) :]

    def run(self) -> None:
        self.send(ready=True)
        for number, cell in enumerate(self.job["cells"]):
            self.send(begin=number)
            if cell.get("check"):
                self.in_a_fork(number, cell)
            else:
                self.cell(number, cell["source"])
        others = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
        self.send(end=True, replaced=self.pristine.put_back()[:20], threads=len(others))

    def cell(self, number: int, source: str) -> None:
        self.outputs = Outputs()
        with time_limit(self.job["seconds"]):
            self.shell.run_cell(source, store_history=True)
        self.send(cell=number, count=self.shell.execution_count - 1, outputs=self.outputs.made)

    def in_a_fork(self, number: int, cell: dict[str, Any]) -> None:
        """Check in a child, whose end nothing can survive; a child that ends without a report has failed."""
        child = os.fork()
        if child == 0:
            said = False
            try:
                said = self.check(number, cell)
            finally:
                os._exit(0 if said else 1)
        deadline = time.monotonic() + self.job["seconds"]
        while time.monotonic() < deadline:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:  # for checks.progress(), which counts what was checked in this process
                self.note(self.exercise(cell["check"]), "not yet" if status else "right")
                return
            time.sleep(0.01)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)

    def exercise(self, name: str) -> Any:
        (exercise,) = [exercise for exercise in self.exercises if exercise.name == name]
        return exercise

    def check(self, number: int, cell: dict[str, Any]) -> bool:
        """Check what the notebook has made, and tell what was found; whether it is said to be right."""
        replaced = self.pristine.put_back()
        sys.settrace(None)
        sys.setprofile(None)
        self.outputs = Outputs()
        stdout, stderr = (Stream(name, lambda: self.outputs) for name in ("stdout", "stderr"))
        observed: list[Any] = []
        said, names = False, self.shell.user_ns
        with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
            if cell["work"] in names:
                work, names = names[cell["work"]], dict(names)
                said = self.judged(cell["check"], work, observed)
                said = said and self.hidden(cell, names)
            else:
                missing = f"name {cell['work']!r} is not defined"
                self.outputs.error("NameError", missing, [f"NameError: {missing}"])
        during = self.pristine.put_back()
        outputs = self.outputs.made
        self.send(check=number, said=said, observed=observed, outputs=outputs, replaced=replaced, during=during)
        return said

    def judged(self, name: str, work: Any, observed: list[Any]) -> bool:
        """The check's own verdict; into ``observed`` what the work gave in each case."""

        def record(case: Any, outcome: Any) -> None:
            observed.append([case.label, self.plain(outcome)])

        try:
            return bool(self.harness.check(self.exercise(name), work, record=record))
        except BaseException as error:
            self.outputs.error(type(error).__name__, str(error), traceback.format_exc().splitlines())
            return False

    def plain(self, outcome: Any) -> dict[str, Any]:
        """A result, or what went wrong, as JSON can hold it."""
        if isinstance(outcome, self.harness.Fault):
            return {"fault": str(outcome)[:2000]}
        try:
            return {"result": self.encode(outcome)}
        except Exception as error:  # a class of the student's that can't be shown
            return {"fault": f"raised {type(error).__name__}: {error}"[:2000]}

    def hidden(self, cell: dict[str, Any], names: dict[str, Any]) -> bool:
        """The teacher's own tests of a cell, with what the notebook is given put back over the student's names."""
        try:
            for given in cell["given"]:
                exec(compile(given, "<given>", "exec"), names)
            linecache.cache["<test>"] = (len(cell["hidden"]), None, cell["hidden"].splitlines(True), "<test>")
            names["__builtins__"] = __builtins__
            exec(compile(cell["hidden"], "<test>", "exec"), names)
        except BaseException as error:
            self.outputs.error(type(error).__name__, str(error), traceback.format_exc().splitlines()[-6:])
            return False
        return True


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise OutOfTime in what runs longer, again and again until it ends."""

    def over(*_: Any) -> None:
        raise OutOfTime(f"the cell took more than {seconds:.0f} seconds")

    signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
    try:
        yield
    except OutOfTime:
        pass
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def set_limits(job: dict[str, Any]) -> None:
    """What this process and each of its children may take; all of them together are watched from outside."""
    statm = Path("/proc/self/statm")
    now = int(statm.read_text().split()[0]) * resource.getpagesize() if statm.exists() else 0
    wanted = {
        resource.RLIMIT_FSIZE: job["file_bytes"],
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NOFILE: 256,
        resource.RLIMIT_CPU: int(job["cpu_seconds"]),
    }
    if now:
        wanted[resource.RLIMIT_AS] = now + job["memory_bytes"]
    if job["processes"]:
        wanted[resource.RLIMIT_NPROC] = job["processes"]
    for kind, value in wanted.items():
        hard = resource.getrlimit(kind)[1]
        most = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (most, most))


def main() -> None:
    job = json.loads(sys.stdin.buffer.read())
    channel = os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nothing, number)
    import torch

    torch.set_num_threads(1)
    runner = Runner(job, channel)
    set_limits(job)
    runner.run()
    os._exit(0)


if __name__ == "__main__":
    main()
