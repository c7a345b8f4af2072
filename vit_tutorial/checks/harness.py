"""What all checks share: try a student's work on several inputs, and say which mistake its numbers show.

A check never knows a mistake by reading code. It runs small implementations that *have* the mistake, and names the one
that gives the student's numbers. Everything goes to stdout; whatever the student's code does, it stays in there.
"""

from __future__ import annotations

import ctypes
import functools
import io
import linecache
import math
import numbers as numeric
import sysconfig
import textwrap
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

SECONDS = 10.0  # for one student's work, all its inputs together
KEPT = 2000  # characters of what the student's code prints
WIDTH = 76  # of the report's lines: nbgrader's feedback cuts longer ones off
UNWRITTEN = "is not written yet"

Result = dict[str, Any]  # what is compared, by name: "result", "gradient of x", …


@dataclass(frozen=True)
class Case:
    """One input to try.

    Args:
        label: how the report calls it.
        args: what the work is called with.
        build: for :func:`layer`, what the class is built with.
        weights: for :func:`layer`, the parameters to copy in, by the names that the stub agrees on.
    """

    label: str
    args: tuple[Any, ...] = ()
    build: tuple[Any, ...] = ()
    weights: dict[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Mistake:
    """A misconception, and a small implementation that has it.

    Args:
        name: what it is called, in a few words that fit after "It looks like".
        says: one to three sentences that explain what happens, and what to do.
        reread: a heading (or a bold opening) of the lesson, word for word.
        wrong: the implementation, with the signature of the right one.
    """

    name: str
    says: str
    reread: str
    wrong: Any


@dataclass(frozen=True, eq=False)
class Exercise:
    """What a check needs to know.

    Args:
        name: what follows ``check_``.
        lesson: two digits.
        right: the reference.
        cases: makes the inputs, new ones at each call.
        mistakes: those that the check can name, the likelier one first.
        observe: runs a work on a case, and returns what to compare: :func:`call`, :func:`layer`, :func:`answers`.
        tolerance: the largest difference that counts as equal, relative to the largest number.
        secret: whether the report must not show the right numbers.
    """

    name: str
    lesson: str
    right: Any
    cases: Callable[[], list[Case]]
    mistakes: tuple[Mistake, ...]
    observe: Callable[[Any, Case], Result]
    tolerance: float = 1e-5
    secret: bool = False


class Fault(Exception):
    """What is wrong with a student's work, in a plain sentence."""


class _TimeUp(BaseException):
    """Raised inside the student's code when its time is over. Not an Exception, so that few can swallow it."""


# ---- Observers: how a work is run --------------------------------------------------------------------------------


def call(work: Any, case: Case) -> Result:
    """Call ``work(*args)``: its result, and the gradient of a fixed combination of it in each argument."""
    leaves = [x.detach().clone().requires_grad_() if _differentiable(x) else x for x in case.args]
    given = [x.clone() if isinstance(x, Tensor) else x for x in leaves]
    result = work(*given)
    observed = {"result": result}
    for index, (gradient, leaf) in enumerate(zip(_gradients(result, leaves), leaves, strict=True)):
        if _differentiable(leaf):
            observed[f"gradient of argument {index + 1}"] = gradient
    pairs = zip(given, leaves, strict=True)
    observed["changed"] = [i + 1 for i, (a, b) in enumerate(pairs) if isinstance(b, Tensor) and not _unchanged(a, b)]
    return observed


def layer(work: Any, case: Case, aliases: dict[str, str] | None = None) -> Result:
    """Build ``work(*build)``, copy the weights in, call it in eval mode: its result, and all gradients.

    ``aliases`` are other names that a parameter may have, as {theirs: agreed}. See :func:`adopt`.
    """
    module = work(*case.build)
    if not isinstance(module, nn.Module):
        raise Fault(f"{_name(work)}(...) gives {_kind(module)}, expected an nn.Module: derive the class from nn.Module")
    parameters = adopt(module, case.weights, aliases or {})
    observed = call(module.eval(), case)
    result = module(*[x.clone() if isinstance(x, Tensor) else x for x in case.args])
    for name, gradient in zip(parameters, _gradients(result, list(parameters.values())), strict=True):
        if gradient is not None:
            observed[f"gradient of {name}"] = gradient.reshape(case.weights[name].shape)
    observed["missing"] = [name for name in case.weights if name not in parameters]
    return observed


def answers(work: Any, case: Case) -> Result:
    """The answer to the question ``args[0]`` in the dictionary that ``work()`` returns."""
    given = work() if callable(work) else work
    if not isinstance(given, dict):
        raise Fault(f"returned {_kind(given)}, expected a dictionary of answers")
    if case.args[0] not in given or given[case.args[0]] is ...:
        raise Fault(f"there is no answer for {case.args[0]!r} yet")
    answer = given[case.args[0]]
    return {case.args[0]: answer.tolist() if hasattr(answer, "tolist") else answer}  # an array's or a tensor's numbers


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
        fitting = [name for name in names if own == name or own.endswith(f".{name}")]
        if not fitting:
            raise Fault(f"the class has a parameter that the stub doesn't name: {own}; {_agreed(weights)}")
        name = names[max(fitting, key=len)]
        if parameter.numel() != weights[name].numel():
            raise Fault(f"{own} has shape {_shape(parameter)}, expected {_shape(weights[name])}")
        with torch.no_grad():
            parameter.copy_(weights[name].reshape(parameter.shape))
        adopted[name] = parameter
    return adopted


def random_weights(module: nn.Module, seed: int = 0) -> dict[str, Tensor]:
    """A module's parameters by name, filled with normal numbers of spread 0.5: zeros and ones would hide mistakes."""
    generator = torch.Generator().manual_seed(seed)
    return {name: 0.5 * torch.randn(p.shape, generator=generator) for name, p in module.named_parameters()}


def normal(*shape: int, seed: int = 0) -> Tensor:
    """Normal numbers of a shape, the same at each call."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def _differentiable(x: Any) -> bool:
    return isinstance(x, Tensor) and x.is_floating_point()


def _unchanged(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and torch.equal(a.detach(), b.detach())


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


# ---- Comparing ---------------------------------------------------------------------------------------------------


def difference(expected: Any, got: Any, name: str, exercise: Exercise) -> str:
    """The first difference in a plain sentence, or "" where there is none."""
    if isinstance(expected, (tuple, list)):
        if not isinstance(got, (tuple, list)) or len(got) != len(expected):
            many = f" of {len(got)}" if isinstance(got, (tuple, list)) else ""
            return f"{name} is {_kind(got)}{many}, expected a {type(expected).__name__} of {len(expected)}"
        pairs = enumerate(zip(expected, got, strict=True))
        found = [difference(a, b, f"{name}[{i}]", exercise) for i, (a, b) in pairs]
        return next(filter(None, found), "")
    if got is None:
        return f"{name} is None: is the return missing?"
    if isinstance(expected, Tensor):
        return _tensor_difference(expected, got, name, exercise)
    if isinstance(expected, numeric.Number) and not isinstance(expected, bool):
        return _number_difference(expected, got, name, exercise)
    same = type(got) is type(expected) and got == expected
    return "" if same else f"{name} is {_short(got)}{_expected(_short(expected), exercise)}"


def _tensor_difference(expected: Tensor, got: Any, name: str, exercise: Exercise) -> str:
    if not isinstance(got, Tensor):
        return f"{name} is {_kind(got)}, expected a torch.Tensor of shape {_shape(expected)}"
    for what, was, should in (
        ("has shape", _shape(got), _shape(expected)),
        ("is on device", got.device, expected.device),
        ("is of dtype", got.dtype, expected.dtype),
    ):
        if was != should:
            return f"{name} {what} {was}, expected {should}"
    a, b = got.detach(), expected.detach()
    if a.is_floating_point() and a.isnan().any() and not b.isnan().any():
        return f"{name} holds nan (not a number), first at {_index(a.isnan())}"
    if not a.numel():
        return ""
    scale = max(1.0, b.abs().max().item())
    wrong = ~((a - b).abs() <= exercise.tolerance * scale) & ~(a == b) & ~(a.isnan() & b.isnan())  # inf - inf is nan
    if not wrong.any():
        return ""
    at = _index(wrong)
    values = f"{name}{at} is {_digits(a[tuple(at)])}{_expected(_digits(b[tuple(at)]), exercise)}"
    return f"{values}; {int(wrong.sum())} of {wrong.numel()} numbers differ, shape {_shape(a)}"


def _number_difference(expected: Any, got: Any, name: str, exercise: Exercise) -> str:
    if not isinstance(got, numeric.Number):
        if not (hasattr(got, "item") and getattr(got, "size", None) is not None and math.prod(got.shape) == 1):
            return f"{name} is {_kind(got)}, expected a number"
        got = got.item()  # an array of one number, NumPy's or torch's
    close = abs(got - expected) <= exercise.tolerance * max(1.0, abs(expected))
    return "" if close else f"{name} is {_digits(got)}{_expected(_digits(expected), exercise)}"


def _expected(value: str, exercise: Exercise) -> str:
    return ", and should be something else" if exercise.secret else f", expected {value}"


def differs(expected: Result, got: Result, exercise: Exercise) -> str:
    """The first difference of two results in a plain sentence, or ""."""
    for name, value in expected.items():
        if name in ("changed", "missing"):
            continue
        if name.startswith("gradient"):
            if found := _gradient_difference(value, got.get(name), name, exercise):
                return found
        elif found := difference(value, got.get(name), name, exercise):
            return found
    changed = [number for number in got.get("changed", []) if number not in expected.get("changed", [])]
    return f"argument {changed[0]} was changed in place: make a new tensor, the caller needs the old" if changed else ""


def _gradient_difference(expected: Tensor | None, got: Tensor | None, name: str, exercise: Exercise) -> str:
    if expected is None or not expected.any():
        empty = got is None or not got.any()
        return "" if empty else f"{name} is not zero, expected none: the result must not depend on it"
    if got is None:
        return (
            f"the numbers are right, but {name} is missing: something cuts the graph "
            "(detach, .data, .item(), .tolist(), torch.tensor(…), torch.no_grad)"
        )
    found = _tensor_difference(expected, got, name, exercise)
    return f"the numbers are right, but {found}" if found else ""


def _index(mask: Tensor) -> list[int]:
    return mask.nonzero()[0].tolist()


def _shape(x: Tensor) -> tuple[int, ...]:
    return tuple(x.shape)


def _kind(x: Any) -> str:
    if x is None:
        return "None"
    names = {"ndarray": "a NumPy array", "Tensor": f"a tensor of shape {_shape(x) if isinstance(x, Tensor) else ''}"}
    return names.get(type(x).__name__, f"of type {type(x).__name__}")


def _digits(x: Any) -> str:
    value = x.item() if isinstance(x, Tensor) else x
    return f"{value:.5g}" if isinstance(value, float) else str(value)


def _short(x: Any, most: int = 200) -> str:
    text = " ".join(str(x).split()) if isinstance(x, BaseException) else " ".join(repr(x).split())
    return text if len(text) <= most else f"{text[:most]} …"


def _name(work: Any) -> str:
    return getattr(work, "__name__", type(work).__name__)


def _agreed(weights: dict[str, Tensor]) -> str:
    return f"agreed are {', '.join(f'{name} {_shape(value)}' for name, value in weights.items())}"


# ---- Running a student's work ------------------------------------------------------------------------------------


class _Kept(io.TextIOBase):
    """A stream that keeps its first characters and counts the rest: print may stand in an endless loop."""

    def __init__(self) -> None:
        self.text, self.lines = "", 0

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.text += text[: max(KEPT - len(self.text), 0)]
        self.lines += text.count("\n")
        return len(text)


@contextmanager
def _quiet() -> Iterator[_Kept]:
    kept = _Kept()
    with redirect_stdout(kept), redirect_stderr(kept):
        yield kept


def attempt(exercise: Exercise, work: Any, cases: list[Case]) -> list[Result | Fault]:
    """Run a work on the cases, within the time limit: for each a result, or what went wrong (then it may end early)."""
    outcomes: list[Result | Fault] = []
    given_up = threading.Event()

    def job() -> None:
        try:
            for case in cases:
                if not given_up.is_set():
                    outcomes.append(_one(exercise, work, case))
        except _TimeUp:
            pass

    # A daemon: if nothing stops it, it must not keep the interpreter alive.
    thread = threading.Thread(target=job, name="check", daemon=True)
    thread.start()
    try:
        thread.join(SECONDS)
    finally:  # Interrupt in Jupyter arrives here, too
        given_up.set()
        stopped = _stop(thread)
    done = outcomes.copy()  # what the thread may still add doesn't count
    if len(done) < len(cases):
        more = "" if stopped else " It can't be stopped from here and still runs: restart the kernel."
        done.append(Fault(f"took more than {SECONDS:.0f} seconds: is there a loop that doesn't end?{more}"))
    return done


def _stop(thread: threading.Thread) -> bool:
    """Raise _TimeUp in a thread until it ends; False if it doesn't (it swallows all, or hangs outside Python)."""
    for _ in range(5):
        if not thread.is_alive():
            return True
        if hasattr(ctypes, "pythonapi") and thread.ident is not None:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(_TimeUp))
        thread.join(0.2)
    return not thread.is_alive()


def _one(exercise: Exercise, work: Any, case: Case) -> Result | Fault:
    # The notebook may have switched gradients off, and its own random numbers must go on as if nothing had happened.
    with torch.enable_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        try:
            return exercise.observe(work, case)
        except _TimeUp:
            raise
        except Fault as fault:
            return fault
        except NotImplementedError as error:
            return Fault(UNWRITTEN if not str(error) else f"raised NotImplementedError: {_short(error)}")
        except BaseException as error:  # SystemExit, too
            return Fault(_raised(error))


def _raised(error: BaseException) -> str:
    text = f"raised {type(error).__name__}" + (f": {_short(error)}" if str(error) else "")
    if ".numpy()" in text:
        text += " Stay with torch's own functions, so that gradients can flow."
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if not _library(frame.filename)]
    if own:
        line = (own[-1].line or linecache.getline(own[-1].filename, own[-1].lineno or 0)).strip()
        text += f"\n    in line {own[-1].lineno} of {own[-1].name}: {line}"
    return text


def _library(filename: str) -> bool:
    folders = [*sysconfig.get_paths().values(), str(Path(torch.__file__).parent), str(Path(__file__).parent.parent)]
    return filename.startswith(("<frozen", *folders))


# ---- The check ---------------------------------------------------------------------------------------------------


def check(exercise: Exercise, work: Any) -> bool:
    """Try a student's work and print what was found; whether it is right. Never raises for its faults."""
    if borrowed := _borrowed(work):
        print(f"{exercise.name}: not yet\n  {borrowed}")
        return False
    with _quiet():
        right = _known(exercise, None)
    with _quiet() as kept:
        outcomes = attempt(exercise, work, exercise.cases())
    pairs = list(zip(right, outcomes, strict=False))
    verdicts = [str(b) if isinstance(b, Fault) else differs(_sound(a), b, exercise) for a, b in pairs]
    passed = not any(verdicts)
    if all(verdict == UNWRITTEN for verdict in verdicts):
        print(f"{exercise.name}: not written yet")
        return False
    print(f"{exercise.name}: {'right' if passed else 'not yet'}. Tried:")
    _print_tried(exercise.cases(), verdicts)
    if not passed:
        print(_diagnosis(exercise, right, outcomes, verdicts))
    _print_kept(kept)
    return passed


@functools.cache
def _known(exercise: Exercise, mistake: Mistake | None) -> list[Result | Fault]:
    """What the reference, or a wrong implementation, gives: computed once, since a check is run again and again."""
    work = mistake.wrong if mistake else exercise.right
    return [_one(exercise, work, case) for case in exercise.cases()]


def _sound(outcome: Result | Fault) -> Result:
    if isinstance(outcome, Fault):
        raise RuntimeError(f"the check's own reference fails: {outcome}")
    return outcome


def _borrowed(work: Any) -> str:
    """Whether this is the package's own function or class (its wrong implementations live in checks, and are not)."""
    family = work.__mro__ if isinstance(work, type) else [work]
    modules = [str(getattr(member, "__module__", "")) for member in family]
    if modules[0].startswith(__name__.rpartition(".")[0]) or not any(m.startswith("vit_tutorial") for m in modules):
        return ""
    return f"{_name(work)} is the package's, or derives from it: write your own in the cell above"


def named(exercise: Exercise, right: list[Result | Fault], outcomes: list[Result | Fault]) -> list[tuple[Mistake, int]]:
    """The mistakes whose wrong implementation gives the student's results, with the number of cases that tell.

    A case tells if the wrong result is the student's, and not the right one. First the mistakes that fit wherever both
    run (with the number of all cases that tell), then those that fit on two cases at least, the best one first.
    """
    whole, partial = [], []
    for mistake in exercise.mistakes:
        telling, fits = 0, True
        for wrong, a, b in zip(_known(exercise, mistake), right, outcomes, strict=False):
            if isinstance(wrong, Fault) or isinstance(b, Fault):
                continue
            if differs(wrong, b | {"changed": []}, exercise):
                fits = False
            elif differs(_sound(a), wrong | {"changed": []}, exercise):
                telling += 1
        if telling and fits:
            whole.append((mistake, 0))
        elif telling >= 2:
            partial.append((mistake, telling))
    return whole + sorted(partial, key=lambda found: -found[1])


def _diagnosis(
    exercise: Exercise, right: list[Result | Fault], outcomes: list[Result | Fault], verdicts: list[str]
) -> str:
    first = next(i for i, verdict in enumerate(verdicts) if verdict)
    lines = []
    with _quiet():
        mistakes = named(exercise, right, outcomes)
    if mistakes:
        mistake, telling = mistakes[0]
        some = f" (on {telling} inputs, but not on all: there may be another)" if telling else ""
        lines = [f"It looks like {mistake.name}{some}. {mistake.says}"]
        lines += [f'Reread in lesson {exercise.lesson}: "{mistake.reread}".']
    lines += f"First seen with {exercise.cases()[first].label}: {verdicts[first]}".split("\n")
    seen = [outcome for outcome in outcomes if isinstance(outcome, dict)]
    if seen and not mistakes:
        if missing := seen[0].get("missing"):
            lines += [f"The class has no {', no '.join(missing)}; {_agreed(exercise.cases()[first].weights)}."]
        if "differ, shape" in verdicts[first]:
            lines += [f"None of the {len(exercise.mistakes)} mistakes that this check knows gives these numbers."]
    return "\n".join(_wrap(line) for line in lines)


def _wrap(text: str) -> str:
    if text.startswith(" "):  # the student's own line, as it is
        return text
    return textwrap.fill(text, WIDTH, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)


def _print_tried(cases: list[Case], verdicts: list[str]) -> None:
    wide = max(len(case.label) for case in cases)
    for index, case in enumerate(cases):
        word = "not tried" if index >= len(verdicts) else _word(verdicts[index])
        print(f"    {case.label:<{wide}}  {word}")


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
