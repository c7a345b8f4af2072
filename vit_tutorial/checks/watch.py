"""What a student's code calls while it runs: what an exercise forbids is seen however it is reached.

A lambda, a partial, a wrapper class or a second name change nothing: it is the function's own code that is recognised.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import inspect
import linecache
import sys
import sysconfig
import threading
import traceback
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from vit_tutorial.checks.declare import Exercise, Forbidden, exercises_of

# torch's public profilers take twenty times as long, and print to the terminal; a torch without these may come.
try:
    from torch._C._autograd import _disable_profiler_legacy, _enable_profiler_legacy, _enable_record_function
    from torch.autograd.profiler_legacy import profile

    UNSEEN = ""
except ImportError:
    UNSEEN = "Which operators run inside torch wasn't checked: this version of torch doesn't show them."

LIBRARIES: tuple[str | Path, ...] = (
    *sysconfig.get_paths().values(),
    Path(torch.__file__).parent,
    Path(__file__).parents[1],
)


# Asked for, and needed: by the next exercises of lesson 05, and by whoever loads a model in lesson 06.
NEEDED = {"vit_tutorial.encoder.DropPath", "vit_tutorial.encoder.EncoderBlock", "vit_tutorial.vit.ViT"}


def full_name(what: Any) -> str:
    """A function's or class's name with its module's; names stay as they are."""
    return what if isinstance(what, str) else f"{what.__module__}.{getattr(what, '__qualname__', '')}"


def asked_for(lesson: str) -> dict[str, Forbidden]:
    """The package's own works that a lesson asks for, by full names: where grading runs, they have no body."""
    module = sys.modules.get(f"vit_tutorial.checks.lesson{lesson}")
    rules = [rule for one in exercises_of(module) for rule in listed(one)] if module else []
    named = {full_name(rule.what): rule for rule in rules if rule.when is None and _is_ours(rule.what)}
    return {name: rule for name, rule in named.items() if name not in NEEDED and not name.endswith("*")}


def listed(exercise: Exercise) -> list[Forbidden]:
    """What an exercise itself forbids, its reference among it where that is the package's own."""
    rules = [one if isinstance(one, Forbidden) else Forbidden(one) for one in exercise.forbidden]
    return [*rules, Forbidden(exercise.right)] if _is_ours(exercise.right) else rules


def forbidden(exercise: Exercise) -> list[Forbidden]:
    """All that an exercise forbids: what it lists, and the package's own works that it or its lesson asks for."""
    own = listed(exercise)
    names = {full_name(rule.what) for rule in own}
    rules = own + [rule for name, rule in asked_for(exercise.lesson).items() if name not in names]
    return [
        Forbidden(one.what, "write your own in the cell above", one.when) if _is_ours(one.what) else one
        for one in rules
    ]


def _is_ours(work: Any) -> bool:
    if isinstance(work, str):
        return work.startswith("vit_tutorial.")
    module = str(getattr(work, "__module__", ""))
    return module.startswith("vit_tutorial") and not module.startswith("vit_tutorial.checks") and callable(work)


def borrowed(work: Any, exercise: Exercise) -> str:
    """Whether a work is the package's or the check's own, or derives from it: a sentence, or ""."""
    work = unwrapped(work)
    family = work.__mro__ if isinstance(work, type) else [work, type(work)]
    modules = [str(getattr(member, "__module__", "")) for member in family]
    if work is exercise.right or any(module.startswith("vit_tutorial") for module in modules):
        return f"{name_of(work)} is the package's, or derives from it: write your own in the cell above"
    return ""


def unwrapped(work: Any) -> Any:
    """What stands behind partials, bound methods and decorators."""
    for _ in range(20):
        if isinstance(work, functools.partial):
            work = work.func
        elif inspect.ismethod(work):
            work = work.__func__
        elif hasattr(work, "__wrapped__"):
            work = work.__wrapped__
        else:
            break
    return work


class _Rules:
    """What an exercise forbids, by what shows it: a function's code, its name and module, or a built-in's name."""

    def __init__(self, exercise: Exercise) -> None:
        self.codes: dict[CodeType, Forbidden] = {}
        self.names: dict[str, Forbidden] = {}  # of built-ins
        self.places: dict[str, tuple[str, Forbidden]] = {}  # by a function's own name: compared at each call
        self.modules: dict[str, Forbidden] = {}
        self.reference = set(_codes(exercise.right))
        for one in forbidden(exercise):
            self._add(one)
        if self.names:
            alone = "leave it alone, the check needs it to see what your code calls"
            eyes = ("setprofile", "_profiler", "_clear_callbacks", "_enable_record_function")
            self.names |= {name: Forbidden(name, alone) for name in eyes}
        self.builtin = functools.cache(self._builtin)

    def _add(self, one: Forbidden) -> None:
        if isinstance(one.what, str) and one.what.endswith(".*"):
            self.modules[one.what.removesuffix("*")] = one
        elif isinstance(one.what, str) and "." in one.what:
            module, _, own = one.what.rpartition(".")
            self.places[own] = module, one
        elif codes := _codes(one.what):
            self.codes |= dict.fromkeys(codes, one)
        else:
            self.names[one.what if isinstance(one.what, str) else one.what.__name__] = one

    def _builtin(self, name: str) -> Forbidden | None:
        return next((one for part, one in self.names.items() if part in name), None)

    def concern(self, code: CodeType) -> bool:
        """Whether a call of this code may ever be forbidden."""
        return bool(self.modules) or code in self.codes or code.co_name in self.places or code in self.reference

    def broken(self, frame: FrameType) -> Forbidden | None:  # pragma: no cover (nothing sees a profiler run)
        """The rule that the call which has just begun breaks."""
        code, module = frame.f_code, frame.f_globals.get("__name__")
        one = self.codes.get(code)
        if one is None and code.co_name in self.places:
            where, rule = self.places[code.co_name]
            one = rule if module == where else None
        if one is None and code in self.reference and _by_a_student(frame.f_back):
            one = Forbidden("the check's own answer", "write your own in the cell above")
        if one is None and self.modules:
            one = self._whole(frame, f"{module}.")
        return one if one and (one.when is None or one.when(frame.f_locals)) else None

    def _whole(self, frame: FrameType, module: str) -> Forbidden | None:  # pragma: no cover (as broken)
        """The rule that forbids a whole module, if a student calls into it."""
        if frame.f_code.co_name == "__getattr__":  # a package that loads its parts when they are asked for
            return None
        if module.startswith("vit_tutorial.checks."):
            return None
        rule = next((one for start, one in self.modules.items() if module.startswith(start)), None)
        return rule if rule and _by_a_student(frame.f_back) else None


@contextmanager
def watching(exercise: Exercise) -> Iterator[list[str]]:
    """While it is open, note what this thread, and those that it starts, call that is forbidden, in sentences."""
    seen: list[str] = []
    rules = _Rules(exercise)
    ran: set[str] = set()  # torch's operators: those that an overload or a script runs show nowhere else
    dull: dict[int, CodeType] = {}  # seen before, and of no interest; by ids, since a code's hash takes its time
    load(exercise)

    def look(frame: FrameType, event: str, arg: Any) -> None:  # pragma: no cover (nothing sees a profiler run)
        code = frame.f_code
        if code is _THREAD and rules.names:  # operators are recorded thread by thread
            if event == "call":
                _record()
            elif event == "return":
                ran.update(_recorded())
        if event == "call":
            if id(code) in dull:
                return
            if one := rules.broken(frame):
                seen.append(_sentence(one, frame))
            elif not rules.concern(code):
                dull[id(code)] = code
        elif rules.names and event == "c_call" and (one := rules.builtin(getattr(arg, "__name__", ""))):
            seen.append(_sentence(dataclasses.replace(one, what=arg.__name__), frame))

    names = rules.names
    if names:
        _record()
    before, in_threads = sys.getprofile(), threading.getprofile()
    threading.setprofile(look)
    sys.setprofile(look)
    try:
        yield seen
    finally:
        rules.names = {}  # the next lines are not a student's
        sys.setprofile(before)
        threading.setprofile(in_threads)
        ran.update(_recorded() if names else ())
        if not seen:
            found = [(name, one) for name in sorted(ran) for part, one in names.items() if part in name]
            seen += [f"it calls {name}: {one.instead}" for name, one in found]


_THREAD = threading.Thread.run.__code__


def _record() -> None:
    """Note from now on which of torch's operators this thread runs, however they are called."""
    # Not by a TorchDispatchMode: it loads torch's compiler, and that takes seconds.
    if not UNSEEN:
        _enable_record_function(True)  # a cell may have switched it off for good
        _enable_profiler_legacy(profile().config())


def _recorded() -> set[str]:
    """The names of the operators that have run since :func:`_record`, such as "upsample_bilinear2d"."""
    if UNSEEN:
        return set()
    with contextlib.suppress(RuntimeError):  # the student's code has ended the record, and is told so
        names = {event.name() for events in _disable_profiler_legacy() for event in events}
        return {name.removeprefix("aten::") for name in names if name.startswith("aten::")}
    return set()


def unseen(exercise: Exercise) -> str:
    """What of an exercise's rules this torch doesn't let us see, in a sentence, or ""."""
    return UNSEEN if UNSEEN and _Rules(exercise).names else ""


def load(exercise: Exercise) -> None:
    """Load what a work is going to load: watched, it takes twice as long, and in each process that forks off anew."""
    if set(NOT_ADAMW) & {one for one in exercise.forbidden if isinstance(one, Forbidden)}:
        importlib.import_module("torch._dynamo")  # by the first optimiser


def _codes(what: Any) -> list[CodeType]:
    """The code of a Python function, or of all functions that a class defines itself; none for a built-in."""
    if isinstance(what, type):
        parts = [getattr(part, "__func__", part) for part in vars(what).values()]
        return [part.__code__ for part in parts if inspect.isfunction(part)]
    function = unwrapped(what)
    return [function.__code__] if inspect.isfunction(function) else []


def _sentence(one: Forbidden, frame: FrameType) -> str:  # pragma: no cover (as look, which calls it)
    name = one.what.rpartition(".")[2] if isinstance(one.what, str) else name_of(one.what)
    if name == "*":
        name = frame.f_code.co_name
        if name.startswith("__") and "self" in frame.f_locals:
            name = type(frame.f_locals["self"]).__name__
    if name == "__init__":  # of a class whose other functions may be wrapped alike in all classes
        name = one.what.__qualname__.split(".")[-2]
    whose = "the package's own" if _is_ours(one.what) else "torch's" if not isinstance(one.what, str) else ""
    said = f"it calls {' '.join(filter(None, (whose, name)))}: {one.instead}"
    back: FrameType | None = frame
    while back is not None and library(back.f_code.co_filename):
        back = back.f_back
    return said if back is None else f"{said}\n    {place(back.f_code, back.f_lineno)}"


def _by_a_student(frame: FrameType | None) -> bool:  # pragma: no cover (as look)
    """Whether a call comes from a student's line, be it through a library's function, such as a tree_map; no import."""
    while frame is not None and library(frame.f_code.co_filename):
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return False
        frame = frame.f_back
    return frame is not None


def name_of(work: Any) -> str:
    """What a function or class is called."""
    return getattr(work, "__name__", type(work).__name__)


def place(code: CodeType, number: int | None) -> str:
    """A line of the student's, as the reports show it."""
    line = linecache.getline(code.co_filename, number or 0).strip()
    return f"in line {number} of {code.co_name}: {line}"


def students_line(error: BaseException) -> str:
    """The last line of a student's own code that an error came through, "" for none."""
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if not library(frame.filename)]
    if not own:
        return ""
    line = (own[-1].line or linecache.getline(own[-1].filename, own[-1].lineno or 0)).strip()
    return f"in line {own[-1].lineno} of {own[-1].name}: {line}"


def with_line(text: str, line: str) -> str:
    """A sentence, and the student's line below it, if there is one."""
    return f"{text}\n    {line}" if line else text


@functools.cache
def library(filename: str) -> bool:
    """Whether a file belongs to Python, an installed package or this one: no line of a student's."""
    if filename.startswith(("<frozen", "<string", "<__array_function__")):
        return True
    return any(Path(filename).is_relative_to(folder) for folder in LIBRARIES)


def _settings_of_its_own(given: Mapping[str, Any]) -> bool:  # pragma: no cover (as look)
    """Whether AdamW is built with other settings than its own, but for rate and decay."""
    usual = given.get("betas", (0.9, 0.999)), given.get("eps", 1e-8)
    return usual != ((0.9, 0.999), 1e-8) or bool(given.get("amsgrad") or given.get("maximize"))


# For exercises that compare each step with AdamW's: what else would come out nearly the same.
NOT_ADAMW = (
    Forbidden(
        torch.optim.AdamW.__init__, "leave its betas, eps, amsgrad and maximize as they are", when=_settings_of_its_own
    ),
    *(
        Forbidden(one.__init__, "the optimiser is torch.optim.AdamW")
        for one in (torch.optim.NAdam, torch.optim.RAdam, torch.optim.Adamax, torch.optim.RMSprop, torch.optim.Adagrad)
    ),
)


# ---- What torch computes -----------------------------------------------------------------------------------------


class Operations(TorchFunctionMode):
    """Notes what torch computes: the functions' names with the shapes of what comes out, in order."""

    # Not a TorchDispatchMode, which sees more: it loads torch's compiler, and that takes seconds.
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, tuple[int, ...]]] = []

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        parts = result if isinstance(result, (tuple, list)) else [result]
        self.seen += [(getattr(func, "__name__", ""), tuple(x.shape)) for x in parts if isinstance(x, Tensor)]
        return result

    def shapes(self, *names: str) -> list[tuple[int, ...]]:
        """The shapes that the functions of these names gave; "exp" stands for ``exp_`` and ``__exp__``, too."""
        return [shape for name, shape in self.seen if name.strip("_") in names]


def memory_outside_torch(work: Callable[[], Any]) -> int:
    """The most bytes that NumPy and Python hold at once while a work runs, beside what they held before.

    :class:`Operations` doesn't see what they compute. Take an input so large that the call itself, some 50 kB, is
    nothing beside it.
    """
    tracing = tracemalloc.is_tracing()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        work()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        if not tracing:
            tracemalloc.stop()
