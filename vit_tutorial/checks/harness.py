"""What all checks share: try a student's work on several inputs, and say which mistake its numbers show.

A check never knows a mistake by reading code. It runs small implementations that *have* the mistake, and names the one
that gives the student's numbers on every input; else it says what the numbers have to do with the right ones. What a
text forbids is seen while the work runs. Everything goes to stdout; whatever a student's code does, it stays in there.
"""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import inspect
import io
import itertools
import linecache
import math
import random
import sys
import textwrap
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from vit_tutorial.checks.compare import BESIDE, as_parts, as_tensor, differs, kind, shape, short
from vit_tutorial.checks.declare import Case, Exercise, Fault, Forbidden, Mistake, Result, Slip, Words, joined, section
from vit_tutorial.checks.record import note
from vit_tutorial.checks.symptoms import EXACT, WEAK, Finder, Pair, apart, reach, symptom
from vit_tutorial.checks.watch import borrowed, library, name_of, place, unwrapped, watching

__all__ = [
    "Case",
    "Exercise",
    "Fault",
    "Forbidden",
    "Mistake",
    "Result",
    "Slip",
    "Words",
    "adopt",
    "answers",
    "attempt",
    "call",
    "changed",
    "check",
    "copied",
    "filled",
    "layer",
    "named",
    "normal",
    "of_its_own",
    "random_weights",
    "section",
    "students_line",
]

SECONDS = 10.0  # of computing, for one student's work, all its inputs together
PATIENCE = 3.0  # times as long may it take by the clock, on a busy machine, or asleep
QUICK = 0.5  # a work that takes longer is not tried again to find out what it does
COUPLES = 150  # pairs of mistakes that are tried, the likelier ones first
CHANGES = 20  # inputs and weights that are changed, one at a time, to see what hangs on them
DRAWS = (9, 10)  # seeds of those changes: one alone may leave a rounded number as it was
KEPT = 2000  # characters of what the student's code prints
WIDTH = 76  # of the report's lines: nbgrader's feedback cuts longer ones off
UNWRITTEN = "is not written yet"
SECOND = "the result of a second call, with other numbers,"
LAYOUT = "the result for tensors whose numbers lie in memory in another order, such as x.transpose(0, 1),"
TRAINING = "the result in training mode, compared with evaluation mode,"
MODE = "the layer's mode (train, eval) after a call"


class _TimeUp(BaseException):
    """Raised inside the student's code when its time is over. Not an Exception, so that few can swallow it."""


# ---- Observers: how a work is run --------------------------------------------------------------------------------


def call(work: Any, case: Case, differentiable: bool = False) -> Result:
    """Call ``work(*args)``: its result, those of two calls with other numbers, and which arguments it changed.

    Nothing of the first call may stay for the second, and it is the numbers that count, not where they lie in memory.
    With ``differentiable``, also the gradient of a fixed combination of the result in each argument: only for an
    exercise whose text says that the work must be differentiable.
    """
    observed = _called(work, case, differentiable)
    if observed["result"] is not None and any(map(_tensors, case.args)):
        observed[SECOND] = _once_more(work, case, observed["result"])
        observed[LAYOUT] = _laid_out_anew(work, case, observed[SECOND])
    return observed


def _called(work: Any, case: Case, differentiable: bool) -> Result:
    leaves = [_leaf(x, differentiable) for x in case.args]
    given = copied(leaves)
    result = work(*given)
    in_place = changed(given, leaves)
    taught = [number for number, pair in enumerate(zip(given, leaves, strict=True), 1) if _taught(*pair)]
    if taught and not in_place:
        raise Fault(
            f"argument {taught[0]} requires a gradient now, or has got one: leave requires_grad and backward() to the "
            "caller"
        )
    observed = {"result": result}
    if differentiable:
        for index, (gradient, leaf) in enumerate(zip(_gradients(result, leaves), leaves, strict=True)):
            if _differentiable(leaf):
                observed[f"gradient of argument {index + 1}"] = gradient
    observed["changed"] = in_place
    return observed


def _taught(x: Any, leaf: Any) -> bool:
    """Whether a work has switched an argument's gradients on or off, or filled them."""
    if not (isinstance(x, Tensor) and isinstance(leaf, Tensor)):
        return False
    return x.requires_grad is not leaf.requires_grad or leaf.grad is not None or (x.is_leaf and x.grad is not None)


def copied(args: Iterable[Any]) -> list[Any]:
    """Arguments of a work's own: tensors, and lists and dictionaries of them."""
    return [_copy(x) for x in args]


def changed(given: Iterable[Any], before: Iterable[Any], first: int = 1) -> list[int]:
    """Which arguments a work has changed, by their numbers; ``first`` is the first one's."""
    pairs = enumerate(zip(given, before, strict=True), first)
    return [number for number, (a, b) in pairs if not _unchanged(a, b)]


def _once_more(work: Any, case: Case, result: Any) -> Any:
    """The result of a second call, with the arguments' images, tokens or the like in another order.

    Raises:
        Fault: it changes the first one.
    """
    first = [(x, _dense(x).clone()) for x in _tensors(result)]
    with torch.no_grad(), _unheard():
        given = copied(case.args)
        work(*given)
        again = work(*map(_filled, given, map(_turned, case.args)))
    if any(not torch.equal(_dense(x), before) and not before.isnan().any() for x, before in first):
        raise Fault("a second call changes the result of the first: make a new tensor in each call")
    return again


def _laid_out_anew(work: Any, case: Case, result: Any) -> Any:
    """The result of the second call's numbers, laid out in another order; ``result`` where the work can't take them.

    Nothing is said of ``view`` in the texts: who uses it raises an error, which is no wrong number.
    """
    turned = [_turned(x) for x in case.args]
    given = [_laid_out(x) for x in turned]
    if all(a is b for a, b in zip(turned, given, strict=True)):
        return result
    try:
        with torch.no_grad(), _unheard():
            return work(*given)
    except Exception:
        return result


def _laid_out(x: Any) -> Any:
    """A tensor with the same numbers, whose last axis isn't the one that is contiguous; anything else as it is."""
    if not isinstance(x, Tensor) or x.layout != torch.strided or x.ndim < 2 or 1 in x.shape[-2:]:
        return x
    return x.mT.contiguous().mT


def _dense(x: Tensor) -> Tensor:
    """A tensor without its graph, and with all its zeros."""
    return x.detach() if x.layout == torch.strided else x.detach().to_dense()


def _filled(x: Any, other: Any) -> Any:
    """The very tensor that a work has got before, now with other numbers: whoever remembers it by itself goes wrong."""
    if isinstance(x, list):
        return [_filled(a, b) for a, b in zip(x, other, strict=True)] if len(x) == len(other) else other
    return x.copy_(other) if isinstance(x, Tensor) and x.shape == other.shape else other


def _turned(x: Any) -> Any:
    """A tensor rolled along its first axis that is longer than 1: what holds of its last axes goes on holding.

    The tensors of a list are rolled one by one, anything else is copied.
    """
    if not isinstance(x, Tensor):
        return [_turned(part) for part in x] if type(x) is list else _copy(x)
    axis = next((axis for axis, length in enumerate(x.shape) if length > 1), None)
    return x.clone() if axis is None else x.detach().roll(1, axis)


def layer(
    work: Any,
    case: Case,
    aliases: dict[str, str] | None = None,
    differentiable: bool = True,
    chance: bool = False,
) -> Result:
    """Build ``work(*build)``, copy the weights in, call it in eval mode: its result, and the parameters' gradients.

    The gradients belong to a second call with other numbers: nothing of the first call may stay in the layer. Before
    it, a call in training mode shows whether that changes the result, unless ``chance`` says that it may.
    ``aliases`` are other names that a parameter may have, as {theirs: agreed}. See :func:`adopt`. With
    ``differentiable``, the gradients in the arguments are observed, too: a layer between others must let them through.
    """
    module = work(*case.build)
    if not isinstance(module, nn.Module):
        raise Fault(
            f"{name_of(work)}(...) gives {kind(module)}, expected an nn.Module: derive the class from nn.Module"
        )
    parameters = adopt(module, case.weights, aliases or {})
    of_its_own(module, work(*case.build))
    observed = _called(module.eval(), case, differentiable)
    others = _rolled(case).args
    trained = None if chance else module.train()(*map(_copy, others))
    left = [] if chance else [module.training]
    result = module.eval()(*map(_copy, others))
    observed[SECOND] = result
    if not chance:
        cut = [x.requires_grad for x in _tensors(trained)] != [x.requires_grad for x in _tensors(result)]
        same = "the same, but without gradients" if cut else "the same"
        observed[TRAINING] = Words(same if _alike(trained, result) else "another one")
        kept = [*left, module.training] == [True, False]
        observed[MODE] = Words("the one that it had" if kept else "another one: a call doesn't change it")
    for name, gradient in zip(parameters, _gradients(result, list(parameters.values())), strict=True):
        if gradient is not None:
            observed[f"gradient of {name}"] = gradient.reshape(case.weights[name].shape)
    observed["missing"] = [name for name in case.weights if name not in parameters]
    return observed


def _rolled(case: Case) -> Case:
    """The case of a layer's second call: the same numbers, each one place on."""
    return dataclasses.replace(case, args=tuple(x.roll(1) if isinstance(x, Tensor) else x for x in case.args))


def of_its_own(module: nn.Module, another: Any) -> None:
    """See that two layers of a class share no parameter.

    Raises:
        Fault: they share one.
    """
    if another is module or not isinstance(another, nn.Module):
        return
    theirs = {id(p) for p in another.parameters()}
    if shared := [name for name, p in module.named_parameters() if id(p) in theirs]:
        raise Fault(f"two layers of your class share {shared[0]}: make it anew in each __init__")


def filled(work: Any, case: Case, *defaults: Any) -> Case:
    """A case that leaves ``defaults`` out, with them where the class asks for them: that it has none is no mistake."""
    try:
        inspect.signature(work).bind(*case.build)
    except TypeError:
        return dataclasses.replace(case, build=(*case.build, *defaults))
    except ValueError:  # nothing is known of its arguments
        pass
    return case


def _alike(a: Any, b: Any) -> bool:
    """Whether two results hold the same numbers; the way of computing them may differ in training mode."""
    pairs = zip(_tensors(a), _tensors(b), strict=False)
    return all(x.shape == y.shape and torch.allclose(x, y, rtol=1e-4, atol=1e-4, equal_nan=True) for x, y in pairs)


def answers(work: Any, case: Case) -> Result:
    """The answer to the question ``args[0]`` in the dictionary that ``work()`` returns, as plain numbers."""
    given = work() if callable(work) else work
    if not isinstance(given, dict):
        raise Fault(f"returned {kind(given)}, expected a dictionary of answers")
    question = case.args[0]
    if question not in given or given[question] is ...:
        raise Fault(f"there is no answer for {question!r} yet")
    return {question: _plain(given[question])}


def _plain(answer: Any) -> Any:
    """Numbers without their wrapping: an array, a tensor, a range, a list of tensors; a tuple stays one."""
    if isinstance(answer, (np.ndarray, np.generic, Tensor)):
        return answer.tolist()
    if isinstance(answer, (tuple, list, range)):
        parts = [_plain(part) for part in answer]
        return tuple(parts) if isinstance(answer, tuple) else parts
    return answer


def _fitting(names: Iterable[str], own: str) -> list[str]:
    return [name for name in names if own == name or own.endswith(f".{name}")]


def _numbered(module: nn.Module, name: str) -> str:
    """A parameter's name with numbers where a Sequential or a ModuleDict has names: blocks.first is blocks.0."""
    *parts, last = name.split(".")
    path = []
    for part in parts:
        children = list(module._modules)
        inside = isinstance(module, (nn.Sequential, nn.ModuleDict))
        path.append(str(children.index(part)) if inside else part)
        module = module.get_submodule(part)
    return ".".join([*path, last])


def adopt(module: nn.Module, weights: dict[str, Tensor], aliases: dict[str, str]) -> dict[str, Tensor]:
    """Copy ``weights`` into a module's parameters; return those parameters by the agreed names.

    A parameter may be nested deeper than agreed ("mha.proj.weight"), and have another shape if it holds as many
    numbers (a Conv2d for a Linear). One that is left out is reported only if no mistake explains the numbers.

    Raises:
        Fault: a parameter of another size, or one that nobody agreed on.
    """
    adopted: dict[str, Tensor] = {}
    names = {**{name: name for name in weights}, **aliases}
    for own, parameter in module.named_parameters():
        fitting = _fitting(names, own) or _fitting(names, _numbered(module, own))
        if not fitting:
            raise Fault(f"the class has a parameter that the stub doesn't name: {own}; {_agreed(weights)}")
        name = names[max(fitting, key=len)]
        if not _holds(parameter, weights[name]):
            raise Fault(f"{own} has shape {shape(parameter)}, expected {shape(weights[name])}")
        if name in adopted:
            raise Fault(f"two parameters stand for {name}, and {own} is one of them: the class needs one")
        with torch.no_grad():
            parameter.copy_(weights[name].reshape(parameter.shape))
        adopted[name] = parameter
    return adopted


def _holds(parameter: Tensor, agreed: Tensor) -> bool:
    """Whether a parameter has the agreed shape, but for axes of length 1 and for axes that are joined (a Conv2d's)."""
    a, b = ([n for n in x.shape if n != 1] for x in (parameter, agreed))
    return a == b or (a[:1] == b[:1] and math.prod(a) == math.prod(b) and 1 < min(len(a), len(b)) < max(len(a), len(b)))


def random_weights(module: nn.Module, seed: int = 0) -> dict[str, Tensor]:
    """A module's parameters by name, filled with normal numbers of spread 0.5: zeros and ones would hide mistakes."""
    generator = torch.Generator().manual_seed(seed)
    return {name: 0.5 * torch.randn(p.shape, generator=generator) for name, p in module.named_parameters()}


def normal(*shape: int, seed: int = 0) -> Tensor:
    """Normal numbers of a shape, the same at each call."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def _leaf(x: Any, differentiable: bool) -> Any:
    if not isinstance(x, Tensor):
        return _copy(x)
    copy = x.detach().clone()
    return copy.requires_grad_() if differentiable and _differentiable(x) else copy


def _differentiable(x: Any) -> bool:
    return isinstance(x, Tensor) and x.is_floating_point()


def _copy(x: Any) -> Any:
    """A tensor, a list or a dictionary of its own: what a work does to it is seen in comparison."""
    if isinstance(x, Tensor):
        # As a slice of a larger tensor: who counts from the beginning of its memory is seen.
        return torch.cat([x.new_zeros(3), x.reshape(-1)])[3:].view(x.shape) if x.layout == torch.strided else x.clone()
    if type(x) is dict:
        return {name: _copy(part) for name, part in x.items()}
    return [_copy(part) for part in x] if type(x) is list else x


def _unchanged(a: Any, b: Any) -> bool:
    """Whether an argument, a tensor or a list or dictionary of anything, is still what it was."""
    if isinstance(b, Tensor):
        return isinstance(a, Tensor) and a.shape == b.shape and torch.equal(a.detach(), b.detach())
    if type(b) in (list, tuple):
        return len(a) == len(b) and all(_unchanged(x, y) for x, y in zip(a, b, strict=True))
    if type(b) is dict:
        return list(a) == list(b) and all(_unchanged(a[name], b[name]) for name in b)
    return bool(a == b) if isinstance(b, (str, int, float)) else True


def _tensors(result: Any) -> list[Tensor]:
    if isinstance(result, Tensor):
        return [result]
    parts = result.values() if isinstance(result, dict) else result if isinstance(result, (tuple, list)) else ()
    return [tensor for part in parts for tensor in _tensors(part)]


def _gradients(result: Any, leaves: list[Any]) -> list[Tensor | None]:
    wanted = [leaf for leaf in leaves if isinstance(leaf, Tensor) and leaf.requires_grad]
    outputs = [tensor for tensor in _tensors(result) if tensor.requires_grad and _differentiable(tensor)]
    if not wanted or not outputs:
        return [None] * len(leaves)
    # Every entry gets a weight of its own: the plain sum of a softmax has no gradient.
    total = torch.stack([(tensor * normal(*tensor.shape, seed=1).to(tensor)).sum() for tensor in outputs]).sum()
    found = iter(torch.autograd.grad(total, wanted, allow_unused=True))
    return [next(found) if any(leaf is x for x in wanted) else None for leaf in leaves]


def _agreed(weights: dict[str, Tensor]) -> str:
    if len(weights) > 12:
        return f"the parts are {', '.join(dict.fromkeys(name.split('.')[0] for name in weights))}"
    return f"agreed are {', '.join(f'{name} {shape(value)}' for name, value in weights.items())}"


# ---- Running a student's work ------------------------------------------------------------------------------------


class _Kept(io.TextIOBase):
    """A stream that keeps its first characters and counts the rest: print may stand in an endless loop."""

    def __init__(self) -> None:
        self.text, self.lines, self.deaf = "", 0, False

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if self.deaf:
            return len(text)
        self.text += text[: max(KEPT - len(self.text), 0)]
        self.lines += text.count("\n")
        return len(text)


@contextmanager
def _quiet() -> Iterator[_Kept]:
    kept = _Kept()
    with redirect_stdout(kept), redirect_stderr(kept):
        yield kept


@contextmanager
def _unheard() -> Iterator[None]:
    """What is printed in a second call has been printed in the first one."""
    kept = sys.stdout
    if not isinstance(kept, _Kept):
        yield
        return
    kept.deaf = True
    try:
        yield
    finally:
        kept.deaf = False


@contextmanager
def _plain_settings() -> Iterator[None]:
    """The checks' own numbers don't hang on what the notebook has set."""
    dtype = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        yield
    finally:
        torch.set_default_dtype(dtype)


@contextmanager
def _own_chance(seed: int) -> Iterator[None]:
    """The notebook's random numbers go on afterwards as if nothing had happened: torch's, NumPy's and Python's."""
    pythons, numpys, torchs = random.getstate(), np.random.get_state(), torch.get_rng_state()
    torch.default_generator.manual_seed(seed)  # torch.manual_seed would note each call for a GPU, with its traceback
    try:
        yield
    finally:
        random.setstate(pythons)
        np.random.set_state(numpys)
        torch.set_rng_state(torchs)


def attempt(exercise: Exercise, work: Any, cases: list[Case], watched: bool = True) -> list[Result | Fault]:
    """Run a work on the cases, within the time limit: for each a result, or what went wrong (then it may end early)."""
    outcomes: list[Result | Fault] = []
    given_up = threading.Event()

    def job() -> None:
        try:
            for case in cases:
                if not given_up.is_set():
                    outcomes.append(_one(exercise, work, case, watched))
        except _TimeUp:
            pass

    # A daemon: if nothing stops it, it must not keep the interpreter alive.
    thread = threading.Thread(target=job, name="check", daemon=True)
    thread.start()
    try:
        _wait(thread)
    finally:  # Interrupt in Jupyter arrives here, too
        given_up.set()
        stopped = _stop(thread)
    done = outcomes.copy()  # what the thread may still add doesn't count
    if len(done) < len(cases):
        more = "" if stopped else " It can't be stopped from here and still runs: restart the kernel."
        done.append(Fault(f"took more than {SECONDS:.0f} seconds: is there a loop that doesn't end?{more}"))
    return done


def _wait(thread: threading.Thread) -> None:
    """Until a thread ends, or its time is over.

    What counts is the work of this process, so that a busy machine refuses nobody; but several processors may work at
    once, so it must have lasted as long by the clock, too. A thread that sleeps ends with our patience. Imports don't
    count: they are no work of the student's, and cut off in the middle a module would stay broken for everybody.
    """
    spent = waited = 0.0
    clock, work, modules = time.monotonic(), time.process_time(), len(sys.modules)
    while thread.is_alive() and spent <= SECONDS and waited <= PATIENCE * SECONDS:
        thread.join(0.05)
        now, worked, loaded = time.monotonic(), time.process_time(), len(sys.modules)
        if loaded == modules and not _imports(thread):  # loading may keep us from looking until it is done
            waited += now - clock
            spent += min(now - clock, worked - work)
        clock, work, modules = now, worked, loaded


def _imports(thread: threading.Thread) -> bool:
    """Whether a thread is in the middle of an import."""
    frame = sys._current_frames().get(thread.ident or 0)
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False


def _stop(thread: threading.Thread) -> bool:
    """Raise _TimeUp in a thread until it ends; False if it doesn't (it swallows all, or hangs outside Python)."""
    for _ in range(5):
        if not thread.is_alive():
            return True
        if hasattr(ctypes, "pythonapi") and thread.ident is not None:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(_TimeUp))
        thread.join(0.2)
    return not thread.is_alive()


def _one(exercise: Exercise, work: Any, case: Case, watched: bool = False, seed: int = 0) -> Result | Fault:
    # The notebook may have switched gradients off.
    with torch.enable_grad(), _own_chance(seed), _calls(exercise, watched) as calls:
        try:
            outcome: Result | Fault = exercise.observe(work, case)
            if not torch.is_grad_enabled():
                outcome = Fault(
                    "gradients stay switched off afterwards: `with torch.no_grad():` switches them on again"
                )
        except _TimeUp:
            if not calls:
                raise
            outcome = Fault(calls[0])  # what is forbidden may also be what took so long
        except Fault as fault:
            outcome = fault
        except NotImplementedError as error:
            unwritten = not str(error) and not isinstance(error.__cause__, Exception)
            outcome = Fault(UNWRITTEN if unwritten else _raised(error, work))
        except BaseException as error:  # SystemExit, too
            outcome = Fault(_raised(error, work))
    return Fault(calls[0]) if calls else outcome


def _calls(exercise: Exercise, watched: bool) -> AbstractContextManager[list[str]]:
    return watching(exercise) if watched else nullcontext([])


def _raised(error: BaseException, work: Any) -> str:
    text = f"raised {type(error).__name__}" + (f": {short(error)}" if str(error) else "")
    if ".numpy()" in text and "requires grad" in text:
        text += " Stay with torch's own functions, so that gradients can flow."
    line = students_line(error) or _definition(work)
    return f"{text}\n    {line}" if line else text


def students_line(error: BaseException) -> str:
    """The last line of a student's own code that an error came through, "" for none."""
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if not library(frame.filename)]
    if not own:
        return ""
    line = (own[-1].line or linecache.getline(own[-1].filename, own[-1].lineno or 0)).strip()
    return f"in line {own[-1].lineno} of {own[-1].name}: {line}"


def _definition(work: Any) -> str:
    """Where a student's work begins, for an error that comes up outside of it: it was called in another way."""
    work = unwrapped(work)
    if isinstance(work, type):
        own = [vars(member)["__init__"] for member in work.__mro__ if "__init__" in vars(member)]
        work = next((function for function in own if inspect.isfunction(function)), None)
    code = getattr(work, "__code__", None)
    return "" if code is None or library(code.co_filename) else place(code, code.co_firstlineno)


# ---- The check ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Tried:
    """A student's work, tried: what the reference gives, what the work gives, and a verdict, case by case."""

    exercise: Exercise
    work: Any
    right: list[Result]
    outcomes: list[Result | Fault]
    verdicts: list[str]  # "" for right
    quick: bool  # whether it can be tried again and again

    @functools.cached_property
    def cases(self) -> list[Case]:
        """The inputs once more, untouched."""
        return self.exercise.cases()


def check(exercise: Exercise, work: Any, *, watched: bool = True) -> bool:
    """Try a student's work and print what was found; whether it is right. Never raises for its faults.

    ``watched=False`` leaves out the look at what the work calls: for implementations of the checks' own.
    """
    if watched and (theirs := borrowed(work, exercise)):
        print("\n".join([f"{exercise.name}: not yet", _wrap(theirs)]))
        note(exercise, "not yet")
        return False
    with _plain_settings():
        with _quiet():
            right = [_sound(outcome) for outcome in known(exercise, None)]
        with _quiet() as kept:
            began, worked = time.monotonic(), time.process_time()
            outcomes = attempt(exercise, work, exercise.cases(), watched)
            # By both: who sleeps does no work, and is slow for all that.
            quick = time.process_time() - worked < QUICK and time.monotonic() - began < PATIENCE * QUICK
        pairs = zip(right, outcomes, strict=False)
        verdicts = [_verdict(exercise, a, b) for a, b in pairs]
        tried = _Tried(exercise, work, right, outcomes, verdicts, quick)
        passed = not any(verdicts)
        if all(verdict == UNWRITTEN for verdict in verdicts):
            print(f"{exercise.name}: not written yet")
            note(exercise, "not written yet")
            return False
        print(f"{exercise.name}: {'right' if passed else 'not yet'}. Tried:")
        _print_tried(tried)
        if not passed:
            with _quiet():
                report = _report(tried)
            print(report)
    _print_kept(kept)
    note(exercise, "right" if passed else "not yet")
    return passed


def _verdict(exercise: Exercise, right: Result, outcome: Result | Fault) -> str:
    """What is wrong with an outcome, "" for nothing; with the student's line, where an observer kept one."""
    if isinstance(outcome, Fault):
        return str(outcome) or "raised a Fault without a word"
    found = differs(right, outcome, exercise)
    return f"{found}\n    {outcome['line']}" if found and outcome.get("line") else found


class _Known:
    """What a work of the checks' own gives on each input: computed when it is asked for, and only once."""

    def __init__(self, exercise: Exercise, work: Any) -> None:
        self.exercise, self.work, self.outcomes = exercise, work, list[Result | Fault]()
        self.cases = exercise.cases()

    def __iter__(self) -> Iterator[Result | Fault]:
        for index, case in enumerate(self.cases):
            if index == len(self.outcomes):
                self.outcomes.append(_one(self.exercise, self.work, case))
            yield self.outcomes[index]


@functools.cache
def known(exercise: Exercise, mistake: Mistake | None) -> _Known:
    """What the reference gives, or a wrong implementation: kept, since a check is run again and again.

    Most mistakes don't fit from the first input on; what they would give on the others is never computed.
    """
    return _Known(exercise, mistake.wrong if mistake else exercise.right)


def _sound(outcome: Result | Fault) -> Result:
    if isinstance(outcome, Fault):
        raise RuntimeError(f"the check's own reference fails: {outcome}")
    return outcome


# ---- Which mistake it is -----------------------------------------------------------------------------------------


def named(exercise: Exercise, right: list[Result], outcomes: list[Result | Fault]) -> list[tuple[Mistake, int]]:
    """The mistakes whose wrong implementation gives the student's results, with 0 if it does so on all inputs.

    Where the student's work raises, or gives another shape than the right one, it may have another fault besides. Then
    the mistake must show on two other inputs at least, and their number comes with it. No input may speak against it.
    """
    found = []
    off = _off(exercise, right, outcomes)
    for mistake in exercise.mistakes:
        telling, beside, shapes = 0, False, 0
        for verdict, b, wrong in zip(off, outcomes, known(exercise, mistake), strict=False):
            fit = _fit(exercise, mistake.wrong, wrong, b, verdict)
            if fit == "no":
                break
            telling += fit == "tells"
            beside |= fit == "beside"
            shapes += fit == "beside" and not isinstance(b, Fault)
        else:
            if telling >= (2 if beside else 1) and telling > shapes:
                found.append((mistake, telling if beside else 0))
    sure = [pair for pair in found if not pair[1]]
    return sure if sure else found if len(found) == 1 else []


def _off(exercise: Exercise, right: list[Result], outcomes: list[Result | Fault]) -> list[str]:
    """In what each result differs from the right one, but for arguments that were changed in place; "" for a Fault."""
    pairs = zip(right, outcomes, strict=False)
    return ["" if isinstance(b, Fault) else differs(a, b | {"changed": []}, exercise) for a, b in pairs]


def _fit(exercise: Exercise, work: Any, wrong: Result | Fault, b: Result | Fault, off: str) -> str:
    """What one input says of a mistake: "tells" for it, "no", "beside" another fault, or "" for nothing.

    ``wrong`` is what the mistake gives, ``b`` what the student's work gives, and ``off`` how that differs from right.
    """
    if isinstance(wrong, Fault):
        return "" if isinstance(b, Fault) or isinstance(work, dict) else "no"
    if isinstance(b, Fault):
        return "beside"
    differs_too = differs(wrong, b | {"changed": []}, exercise)
    if not differs_too:
        return "tells" if off else ""
    return "beside" if "has shape" in off and "has shape" in differs_too else "no"


def two_at_once(
    exercise: Exercise, right: list[Result], outcomes: list[Result | Fault]
) -> list[tuple[Mistake, Mistake]]:
    """The pairs of mistakes that together give the student's results on all inputs; see :func:`joined`."""
    if any(isinstance(outcome, Fault) for outcome in outcomes):
        return []
    found, cases, off = [], exercise.cases(), _off(exercise, right, outcomes)
    for first, second, work, start in _couples(exercise):
        fits = [_fit(exercise, work, start, outcomes[0], off[0])]
        for case, b, verdict in zip(cases[1:], outcomes[1:], off[1:], strict=False):
            if fits[-1] in ("no", "beside"):
                break
            fits.append(_fit(exercise, work, _one(exercise, work, case), b, verdict))
        if fits[-1] not in ("no", "beside") and "tells" in fits:
            found.append((first, second))
    return found


@functools.cache
def _couples(exercise: Exercise) -> list[tuple[Mistake, Mistake, Any, Result | Fault]]:
    """The likeliest pairs of mistakes that can be joined, and what they give on the first input: computed once."""
    found: list[tuple[Mistake, Mistake, Any, Result | Fault]] = []
    for first, second in itertools.combinations(exercise.mistakes, 2):
        work = joined(first.wrong, second.wrong)
        if work is not None and len(found) < COUPLES:
            found.append((first, second, work, _one(exercise, work, exercise.cases()[0])))
    return found


def _report(tried: _Tried) -> str:
    """What to tell of a wrong work: the mistake by its name, else what its numbers show; and the first difference."""
    if tried.exercise.observe is answers:
        lines = _on_answers(tried)
    else:
        first = next(i for i, verdict in enumerate(tried.verdicts) if verdict)
        lines = _on_work(tried)
        lines += f"First seen with {tried.cases[first].label}: {tried.verdicts[first]}".split("\n")
        lines += _on_what_is_missing(tried, first) if not lines[0].startswith("It looks like") else []
        lines += _on_what_is_changed(tried, first)
    return "\n".join(_wrap(line) for line in lines)


def _on_work(tried: _Tried) -> list[str]:
    exercise, lesson = tried.exercise, tried.exercise.lesson
    if mistakes := named(exercise, tried.right, tried.outcomes):
        mistake, telling = mistakes[0]
        some = f" (on {telling} inputs, but not on all: there may be another)" if telling else ""
        return [
            f"It looks like {mistake.name}{some}. {mistake.says}",
            f'Reread in lesson {mistake.lesson or lesson}: "{mistake.reread}".',
        ]
    wrong = [i for i, verdict in enumerate(tried.verdicts) if verdict]
    off = _off(exercise, tried.right, tried.outcomes)
    if not any(off) and not any(isinstance(outcome, Fault) for outcome in tried.outcomes):
        return []  # all that is wrong is an argument that was changed in place
    if seen := _told(tried, exercise.explain, wrong):
        return [f"What your numbers show: {seen}"]
    couples = two_at_once(exercise, tried.right, tried.outcomes) if tried.quick else []
    if len(couples) == 1:
        a, b = couples[0]
        places = list(dict.fromkeys(f'in lesson {one.lesson or lesson}: "{one.reread}"' for one in (a, b)))
        return [
            f"It looks like two mistakes at once: {a.name}; and {b.name}. {a.says} {b.says}",
            f"Reread {' and '.join(places)}.",
        ]
    if exercise.secret or "are right, but exchanged" in tried.verdicts[wrong[0]]:
        return []
    if tried.quick and (seen := _unsteady(tried, wrong[0])):
        return [f"What your numbers show: {seen}"]
    if _stale(tried, wrong):
        said = "What your numbers show: The first call is right, and the next one, with other numbers, isn't."
        if tried.cases[wrong[0]].build and tried.quick and all(_right_when_new(tried, i) for i in wrong):
            return [f"{said} Something of the first call stays in the layer, or a call changes its parameters."]
        if not tried.cases[wrong[0]].build and all(_repeated(tried.exercise, tried.outcomes[i]) for i in wrong):
            return [f"{said} Something of the first call is kept for the next."]
        return [
            f"{said} Is something of the first call kept for the next, or does it go wrong for these numbers alone?"
        ]
    parts = _numbers(tried, wrong)
    seen = _seen(parts, exercise, EXACT, len(wrong))
    if not seen and parts and tried.quick:
        fewest = min(len(tried.cases[i].weights) for i in wrong)
        fitting = [i for i in wrong if len(tried.cases[i].weights) == fewest]
        seen = _dependence(tried, max(fitting, key=lambda i: _size(tried.right[i])))
    seen = seen or _told(tried, exercise.locate) or _seen(parts, exercise, WEAK, len(wrong))
    return [f"What your numbers show: {seen}"] if seen else []


def _unsteady(tried: _Tried, i: int) -> str:
    """Whether a work gives other numbers in another call, and whether it is torch's random numbers that matter."""
    if isinstance(tried.outcomes[i], Fault):  # above all one that took too long, and would again
        return ""
    exercise, said = tried.exercise, "The same input gives other numbers in another call: something"
    again = _one(exercise, tried.work, exercise.cases()[i])  # a new case: a model of it may have been changed
    if _moved(tried, i, tried.outcomes[i], again):
        own = "is kept from one call to the next (a random generator of its own, too)"
        return f"{said} {own}, or was never filled (torch.empty)."
    if not _moved(tried, i, again, _one(exercise, tried.work, exercise.cases()[i], seed=1)):
        return ""
    if _moved(tried, i, tried.right[i], _one(exercise, exercise.right, exercise.cases()[i], seed=1)):
        return ""  # what is asked for is random itself
    said += " in it is random, or was never filled (torch.empty). Is there dropout?"
    return f"{said} Or a weight that isn't one of the agreed parameters?" if tried.cases[i].build else said


def _moved(tried: _Tried, i: int, one: Result | Fault, other: Result | Fault) -> bool:
    """Whether two results of one input hold other numbers."""
    if isinstance(one, Fault) or isinstance(other, Fault):
        return False
    name = _main(tried.right[i])
    pairs = zip(_tensors(one.get(name)), _tensors(other.get(name)), strict=False)
    kept = [(a, b) for a, b in pairs if not a.is_meta and not a.isnan().any()]
    return any(a.shape != b.shape or not torch.equal(a, b) for a, b in kept)


def _stale(tried: _Tried, wrong: list[int]) -> bool:
    """Whether only the second call of a layer goes wrong."""
    pairs = [(tried.right[i], tried.outcomes[i]) for i in wrong]
    return all(
        isinstance(b, dict)
        and SECOND in a
        and not differs({"result": a["result"]}, b, tried.exercise)
        and differs({SECOND: a[SECOND]}, b, tried.exercise)
        for a, b in pairs
    )


def _right_when_new(tried: _Tried, i: int) -> bool:
    """Whether a new layer gives the right result for the numbers of the second call."""
    outcome = _one(tried.exercise, tried.work, _rolled(tried.cases[i]))
    right = {"result": tried.right[i][SECOND]}
    return isinstance(outcome, dict) and not differs(right, outcome | {"changed": []}, tried.exercise)


def _repeated(exercise: Exercise, outcome: Result | Fault) -> bool:
    """Whether the second call gave what the first one had given."""
    return isinstance(outcome, dict) and not differs({SECOND: outcome["result"]}, outcome | {"changed": []}, exercise)


def _told(
    tried: _Tried, tell: Callable[[list[tuple[Case, Result, Result]]], str] | None, only: list[int] | None = None
) -> str:
    """What the exercise itself says of the results, or of some of them."""
    rows = enumerate(zip(tried.cases, tried.right, tried.outcomes, strict=False))
    compared = [(case, a, b) for i, (case, a, b) in rows if not isinstance(b, Fault) and (only is None or i in only)]
    if not compared or tell is None:
        return ""
    try:
        return tell(compared)
    except Exception:  # a student's result may be anything: then there is nothing to say
        return ""


def _seen(parts: dict[str, list[Pair]], exercise: Exercise, finders: tuple[Finder, ...], wrong: int) -> str:
    """What the numbers of one part of the results show; ``wrong`` inputs are wrong in one part or another."""
    for name, pairs in parts.items():
        if seen := symptom(pairs, exercise.tolerance, finders, others=len(pairs) < wrong):
            return seen if name == "result" else f"{name.rstrip(',')}: {seen}"
    return ""


def _size(result: Result) -> int:
    return sum(x.numel() for x in _tensors(result.get(_main(result))))


def _dependence(tried: _Tried, i: int) -> str:
    """On which inputs, and which parts of them, the student's result hangs where the right one doesn't, or not."""
    lent = any(isinstance(arg, nn.Module) for arg in tried.cases[i].args)  # it may be another one after the first call
    if lent or isinstance(tried.outcomes[i], Fault):
        return ""
    for change, cases in itertools.islice(_changes(tried.exercise, tried.cases[i]), CHANGES):
        right, yours = (_reached(tried, work, i, cases) for work in (tried.exercise.right, tried.work))
        if right is None or yours is None or not (words := apart(right, yours, _first(tried.right[i]))):
            continue
        if not right.any() and _hangs(tried, change):
            return ""  # here the right one is saturated: a softmax of large scores, rounded numbers
        if not _clearly_apart(right, yours):
            continue
        return f"If {change} changes, {words} (with {tried.cases[i].label})."
    return ""


def _hangs(tried: _Tried, change: str) -> bool:
    """Whether the right result hangs on an input with the first case."""
    cases = next((cases for name, cases in _changes(tried.exercise, tried.cases[0]) if name == change), [])
    reached = _reached(tried, tried.exercise.right, 0, cases)
    return reached is not None and bool(reached.any())


def _clearly_apart(right: Tensor, yours: Tensor) -> bool:
    """Whether two results hang on different parts of an input, by more than a few numbers that stay by chance."""
    return right.shape != yours.shape or bool((right ^ yours).sum() > 0.25 * (right | yours).sum())


def _reached(tried: _Tried, work: Any, i: int, cases: list[Case]) -> Tensor | None:
    """Where the result of the right work, or of the student's, changes if a case is changed into others."""
    before = tried.right[i] if work is tried.exercise.right else tried.outcomes[i]
    after = [_one(tried.exercise, work, case) for case in cases]
    if isinstance(before, Fault) or any(isinstance(one, Fault) for one in after):
        return None
    return reach(before, [one for one in after if isinstance(one, dict)], _main(tried.right[i]))


def _main(result: Result) -> str:
    """The name of the first thing in a result that is made of numbers."""
    names = [name for name in result if name not in BESIDE and not name.startswith("gradient")]
    return next((name for name in names if _tensors(result[name])), "")


def _first(result: Result) -> str:
    """What a result's main tensor is called, the first one of several."""
    name = _main(result)
    x = result.get(name)
    while isinstance(x, (tuple, list)) and x:
        name, x = f"{name}[0]", x[0]
    return name


def _changes(exercise: Exercise, case: Case) -> Iterator[tuple[str, list[Case]]]:
    """The case with one input changed, or a part of it, in ways that differ; and what was changed."""
    names = list(_inputs(exercise, dataclasses.replace(case, weights={})))
    numbers = [i for i, x in enumerate(case.args) if _differentiable(x)]
    for i in numbers:
        yield names[i], [_changed(case, i, slice(None), 0, draw) for draw in DRAWS]
    for name, weight in case.weights.items():
        others = [case.weights | {name: weight + normal(*weight.shape, seed=draw)} for draw in DRAWS]
        yield name, [dataclasses.replace(case, weights=weights) for weights in others]
    for i in numbers:
        for axis, length in enumerate(case.args[i].shape):
            if length > 1:
                changed = [_changed(case, i, slice(1), axis, draw) for draw in DRAWS]
                yield f"{names[i]}[{':, ' * axis}0]", changed


def _changed(case: Case, index: int, part: slice, axis: int, draw: int) -> Case:
    x = case.args[index].clone()
    one = x.movedim(axis, 0)[part] if x.ndim else x
    one += normal(*one.shape, seed=draw)
    return dataclasses.replace(case, args=(*case.args[:index], x, *case.args[index + 1 :]))


def _numbers(tried: _Tried, wrong: list[int]) -> dict[str, list[Pair]]:
    """The tensors that differ, by their names, in each wrong case as (right, student's, inputs)."""
    found: dict[str, list[Pair]] = {}
    for i in wrong:
        outcome, of_first = tried.outcomes[i], _inputs(tried.exercise, tried.cases[i])
        if isinstance(outcome, Fault):
            continue
        for name, expected in tried.right[i].items():
            inputs = {} if name in (SECOND, LAYOUT) else of_first
            if name in BESIDE or name.startswith("gradient"):
                continue
            many = isinstance(expected, (tuple, list))
            got = _parts(expected, outcome.get(name)) if many else [outcome.get(name)]
            for index, (a, b) in enumerate(zip(expected if many else [expected], got or [], strict=False)):
                tensor = as_tensor(b)
                if tensor is None or tensor.is_meta:
                    continue
                if isinstance(a, Tensor) and differs({name: a}, {name: b}, tried.exercise):
                    pair = (a, tensor.to(a.device), inputs, tried.cases[i].label)
                    found.setdefault(f"{name}[{index}]" if many else name, []).append(pair)
    return found


def _parts(expected: Sequence[Any], got: Any) -> list[Any] | None:
    """The parts of a result that should have several; a tensor may hold them all, or be one of them, and no more."""
    stacked = isinstance(got, (Tensor, np.ndarray))
    if stacked and any(isinstance(x, Tensor) and shape(x) != tuple(got.shape[1:]) for x in expected):
        return None
    return as_parts(got, len(expected))


def _inputs(exercise: Exercise, case: Case) -> dict[str, Any]:
    """A case's arguments by their names, and its weights."""
    work = unwrapped(exercise.right)
    code = getattr(work, "__code__", None)
    names = code.co_varnames[: code.co_argcount] if code else ()
    if isinstance(work, type) and (forward := vars(work).get("forward")):
        names = forward.__code__.co_varnames[1 : forward.__code__.co_argcount]
    numbered = [f"argument {i + 1}" for i in range(len(case.args))]
    return dict(zip([*names, *numbered[len(names) :]], case.args, strict=False)) | case.weights


def _on_what_is_missing(tried: _Tried, first: int) -> list[str]:
    seen = [outcome for outcome in tried.outcomes if isinstance(outcome, dict)]
    if seen and (missing := seen[0].get("missing")):
        return [f"The class has no {', no '.join(missing)}; {_agreed(tried.cases[first].weights)}."]
    return []


def _on_what_is_changed(tried: _Tried, first: int) -> list[str]:
    """Arguments that were changed in place, where the numbers are wrong besides."""
    outcome = tried.outcomes[first]
    changed = outcome.get("changed") if isinstance(outcome, dict) else None
    if not changed or "changed in place" in tried.verdicts[first]:
        return []
    return [f"Besides, argument {changed[0]} was changed in place: make a new one, the caller needs the old."]


def _on_answers(tried: _Tried) -> list[str]:
    """Each question that is answered wrongly, with its mistake, or a piece of advice."""
    lines: list[str] = []
    mistakes = [found for found, _ in named(tried.exercise, tried.right, tried.outcomes)]
    said: set[Mistake] = set()
    for case, verdict in zip(tried.cases, tried.verdicts, strict=False):
        if not verdict:
            continue
        question = case.args[0]
        lines.append(verdict if verdict.startswith(str(question)) else f"{question}: {verdict}")
        mistake = next((found for found in mistakes if question in found.wrong), None)
        if mistake is not None and mistake not in said:
            said.add(mistake)
            lines.append(f"It looks like {mistake.name}. {mistake.says}")
            lines.append(f'Reread in lesson {mistake.lesson or tried.exercise.lesson}: "{mistake.reread}".')
        elif mistake is None and "no answer" not in verdict:
            lines += [tried.exercise.advice[question]] if question in tried.exercise.advice else []
    return lines


# ---- In print ----------------------------------------------------------------------------------------------------


def _wrap(text: str) -> str:
    if text.startswith(" "):  # the student's own line, as it is
        return text
    return textwrap.fill(text, WIDTH, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)


def _print_tried(tried: _Tried) -> None:
    labels = [case.label for case in known(tried.exercise, None).cases]
    wide = max(map(len, labels))
    for index, label in enumerate(labels):
        word = "not tried" if index >= len(tried.verdicts) else _word(tried.verdicts[index])
        print(f"    {label:<{wide}}  {word}")


def _word(verdict: str) -> str:
    for start, word in (("raised", "raises"), ("took", "does not end")):
        if verdict.startswith(start):
            return word
    return "wrong" if verdict else "right"


def _print_kept(kept: _Kept) -> None:
    if text := kept.text.strip():
        lines = [line[: WIDTH - 6] for line in text.splitlines()[:5]]
        print(f"  Your code printed{'' if kept.lines <= 5 else f' {kept.lines} lines, at first'}:")
        print(textwrap.indent("\n".join(lines), "    | "))
