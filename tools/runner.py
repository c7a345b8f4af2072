"""Run one submission, inside the sandbox. It is started by tools/sandbox.py, and not meant for hands.

It is asked line by line, in JSON, and answers each line with one. Cells run one after the other in this process, as
they would in Jupyter. For a check the process forks: the child gets one input after the other, calls the student's
work, and tells *what the work gave*, and what it has left of its arguments.

The student's code may do to this process what it likes: replace any function here, in torch or in the checks, and send
what it likes. What that can gain, and what not:

* No mark without the right numbers. What is right isn't in here; inputs come when they are used, are drawn anew for
  each ``make grade`` and exercise, and what comes out is plain numbers, compared outside (tools/judge.py). Nothing
  that is sent is run or unpickled there, and a line that comes unasked ends the notebook.
* No argument changed in place: outside, what comes back is compared with what went in. Whoever sends a copy that was
  made before could have worked on that copy, which is what the text asks for.
* Nothing kept in memory that must not be: the kernel says outside what all processes hold (``Exercise.large``).
* It can hide what a work calls, in which mode it leaves a model, and where gradients flow: that is told in words, and
  words only take marks. So can a copy of the code that was called. Feedback and TEACHING.md say so.
* It can end itself: what was right before counts.
"""

from __future__ import annotations

import base64
import gc
import importlib
import io
import json
import os
import pickle
import resource
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

MOST_TEXT, MOST_OUTPUTS, MOST_PICTURES = 50_000, 200, 3_000_000  # of one cell: characters, outputs, bytes
KEPT_TYPES = ("text/plain", "image/png")  # no HTML: a feedback page must not run a student's scripts


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


# ---- Cells and checks --------------------------------------------------------------------------------------------


class Lines:
    """Lines of JSON, in and out, over two pipes."""

    def __init__(self, source: int, target: int) -> None:
        self.source, self.target, self.waiting = source, target, b""

    def read(self, deadline: float = 0.0) -> Any:
        """The next line; None at the end of them all, or when ``deadline`` has passed."""
        while b"\n" not in self.waiting:
            if deadline and not select.select([self.source], [], [], max(0.0, deadline - time.monotonic()))[0]:
                return None
            data = os.read(self.source, 1 << 20)
            if not data:
                return None
            self.waiting += data
        line, _, self.waiting = self.waiting.partition(b"\n")
        return json.loads(line)

    def write(self, message: dict[str, Any]) -> None:
        data = memoryview(json.dumps(message).encode() + b"\n")
        while data:
            data = data[os.write(self.target, data) :]


class Child:
    """A fork of this process that holds what the notebook has made; its end takes nothing else along."""

    def __init__(self, serve: Callable[[Lines], None], seconds: float) -> None:
        (there, mine), (here, theirs) = os.pipe(), os.pipe()
        self.deadline = time.monotonic() + seconds
        self.number = os.fork()
        if self.number == 0:
            try:
                serve(Lines(there, theirs))
            finally:
                os._exit(0)
        os.close(there)
        os.close(theirs)
        self.lines = Lines(here, mine)

    def ask(self, message: dict[str, Any]) -> dict[str, Any]:
        """Its answer, or why there is none."""
        try:
            self.lines.write(message)
            answer = self.lines.read(self.deadline)
        except (OSError, ValueError):
            answer = None
        if isinstance(answer, dict):
            return answer
        if time.monotonic() >= self.deadline:
            return {"fault": "took more time than a check has: is there a loop that doesn't end?"}
        return {"fault": "ended the process that it was called in"}

    def end(self) -> None:
        os.kill(self.number, signal.SIGKILL)
        os.waitpid(self.number, 0)
        os.close(self.lines.source)
        os.close(self.lines.target)


class Runner:
    """One notebook: what it is asked for, it does, and answers."""

    def __init__(self, hello: dict[str, Any], lines: Lines) -> None:
        self.hello, self.lines = hello, lines
        self.outputs = Outputs()
        self.child: Child | None = None
        self.made: list[Any] = []  # modules that a work has given, by their numbers
        self.works: dict[str, Any] = {}  # by the names of their checks
        self.lesson = importlib.import_module(f"vit_tutorial.checks.lesson{hello['lesson']}")
        self.run = importlib.import_module("vit_tutorial.checks.run")
        self.watch = importlib.import_module("vit_tutorial.checks.watch")
        import wire  # before the student's code, like all that is needed later

        ran = importlib.import_module("vit_tutorial.ran")
        self.forget, self.told = ran.forget, ran.told
        ran.remember()

        self.encode = wire.encode
        self.shell = make_shell(lambda: self.outputs)
        sys.stdout, sys.stderr = (Stream(name, lambda: self.outputs) for name in ("stdout", "stderr"))

    def serve(self) -> None:
        self.lines.write({"ready": True})
        while (message := self.lines.read()) is not None:
            if "cell" in message:
                answer = self.cell(message["cell"])
            elif "check" in message:
                answer = self.begin(message)
            elif "done" in message or self.child is None:
                answer = self.done()
            else:
                answer = self.child.ask(message)
            self.lines.write(answer)

    def cell(self, source: str) -> dict[str, Any]:
        self.outputs = Outputs()
        with time_limit(self.hello["seconds"]):
            self.shell.run_cell(source, store_history=True)
        return {"count": self.shell.execution_count - 1, "outputs": self.outputs.made}

    def begin(self, message: dict[str, Any]) -> dict[str, Any]:
        """Begin a check of a work, if the notebook has one of this name."""
        self.done()
        if message["work"] not in self.shell.user_ns:
            return {"fault": f"name {message['work']!r} is not defined"}
        if "hidden" not in message:  # a hidden test, which comes when all cells have run, tries the work of the check
            self.works[message["check"]] = self.shell.user_ns[message["work"]]
        work = self.works[message["check"]]
        (exercise,) = [one for one in self.lesson.EXERCISES if one.name == message["check"]]
        try:
            self.watch.load(exercise)
            borrowed = self.watch.borrowed(work, exercise)
        except BaseException as error:  # a class of the student's that can't be looked at
            return {"fault": f"raised {type(error).__name__}: {str(error)[:1000]}"}
        self.child = Child(lambda lines: self.work(exercise, work, lines), self.hello["check_seconds"])
        return {"fault": borrowed} if borrowed else {"begun": True}

    def done(self) -> dict[str, Any]:
        if self.child is not None:
            self.child.end()
            self.child = None
        return {"done": True}

    def work(self, exercise: Any, work: Any, lines: Lines) -> None:
        """In the child: call the work on what comes in."""
        sys.settrace(None)
        sys.setprofile(None)
        sys.stdout = sys.stderr = Stream("stdout", Outputs)
        while (message := lines.read()) is not None:
            self.forget()
            given = pickle.loads(base64.b64decode(message["given"]))
            try:
                if "case" in message:
                    answer = self.plain(self.run.attempt(exercise, work, [given])[0])
                else:
                    answer = self.called(message, work, given)
            except BaseException as error:
                answer = {"fault": f"raised {type(error).__name__}: {str(error)[:1000]}"}
            try:
                lines.write(answer | {"ran": self.told()})
            except Exception as error:  # what JSON can't hold: a number of 5000 digits
                lines.write({"fault": f"gave what can't be shown ({type(error).__name__})"})

    def plain(self, outcome: Any) -> dict[str, Any]:
        """A result, or what went wrong, as JSON can hold it."""
        if isinstance(outcome, self.run.Fault):
            return {"fault": str(outcome)[:2000]}
        return {"result": self.encode(outcome)}

    def called(self, message: dict[str, Any], work: Any, given: tuple[Any, ...]) -> dict[str, Any]:
        """A plain call of the work, or of a module that it has given: for a hidden test, which waits outside."""
        import torch

        thing = work if message["of"] is None else self.made[message["of"]]
        given, named = given
        if message["call"] == "parameters":
            result = list(thing.parameters())
        else:
            function = thing if message["call"] == "()" else getattr(thing, message["call"])
            result = function(*given, **named)
        models = [x for x in given if isinstance(x, torch.nn.Module)]
        after = [[x.training, self.encode(list(x.state_dict().values()))] for x in models]
        if isinstance(result, torch.nn.Module):
            if not any(result is one for one in self.made):
                self.made.append(result)
            (number,) = [number for number, one in enumerate(self.made) if one is result]
            return {"module": number, "after": after}
        own = {id(p): [number, name] for number, x in enumerate(models) for name, p in x.named_parameters()}
        return {"result": self.encode(result, own), "after": after}


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
    now = int(statm.read_text("utf-8").split()[0]) * resource.getpagesize() if statm.exists() else 0
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
    lines = Lines(os.dup(0), os.dup(1))
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nothing, number)
    hello = lines.read()
    gc.disable()  # what is loaded now stays: looking through it is time lost, and so would it be in each fork
    import torch

    torch.set_num_threads(1)
    runner = Runner(hello, lines)
    gc.freeze()
    gc.enable()
    set_limits(hello)
    runner.serve()
    os._exit(0)


if __name__ == "__main__":
    main()
