"""Step 3 of a check, diagnose: which mistake a wrong work shows, or what its numbers have to do with the right ones.

A mistake is never recognised by reading code. A small implementation that *has* it is run, and it is named if it gives
the student's numbers. Where none does, the numbers are looked at: how they differ, and on which inputs they depend.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import itertools
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from vit_tutorial.checks.compare import BESIDE, HALF, as_parts, as_tensor, differs, shape
from vit_tutorial.checks.declare import Case, Exercise, Fault, Mistake, Result
from vit_tutorial.checks.observe import LAYOUT, SECOND, is_float, normal, rolled, tensors, the_result_alone
from vit_tutorial.checks.run import Outcome, Tried, known, run_once
from vit_tutorial.checks.symptoms import EXACT, WEAK, Finder, Pair, apart, reach, symptom
from vit_tutorial.checks.watch import unwrapped

ENOUGH = ("half precision", "are right, but in another order (")  # verdicts that explain what is wrong
CHANGES = 20  # inputs and weights that are changed, one at a time, to see what depends on them
OTHERS = 40  # other inputs with which the student's result may be right
DRAWS = (9, 10)  # seeds of those changes: one alone may leave a rounded number as it was
SCALES = (0.01, 10.0)  # a softmax of large scores depends on less than it should, and so do rounded small numbers

Change = tuple[str, "int | str", int, bool]  # what is said of it; argument or weight; axis; whether index 0 of it alone
Row = tuple[Case, Result, Result]
Reader = Callable[[list[Row]], str]


@dataclass(frozen=True)
class Diagnosis:
    """What a wrong work shows.

    Args:
        mistake: the one that explains it.
        inputs: on how many inputs alone the mistake shows; 0 for all.
        seen: what the numbers show, where no mistake explains them, in plain sentences.
    """

    mistake: Mistake | None = None
    inputs: int = 0
    seen: str = ""


def diagnose(tried: Tried) -> Diagnosis:
    """The mistake, or what the numbers show: the first explanation that holds."""
    exercise, wrong = tried.exercise, tried.wrong
    if mistakes := named(exercise, tried.right, tried.outcomes):
        mistake, inputs = mistakes[0]
        return Diagnosis(mistake, inputs)
    off = _off(tried.right, tried.outcomes, exercise)
    if any(words in tried.verdicts[wrong[0]] for words in ENOUGH) or not any(off):
        return Diagnosis()  # all numbers that there are are right: it raises with some, or changes an argument
    if seen := _read(tried, exercise.explain, wrong):
        return Diagnosis(seen=seen)
    if exercise.secret:
        return Diagnosis()
    return Diagnosis(seen=_unsteady(tried, wrong[0]) or _stale(tried, wrong) or _numbers_show(tried, wrong))


def _numbers_show(tried: Tried, wrong: list[int]) -> str:
    exercise = tried.exercise
    parts = _numbers(tried, wrong)
    seen = _symptom(parts, exercise, EXACT, len(tried.verdicts))
    if not seen and parts and tried.quick:
        fewest = min(len(tried.cases[i].weights) for i in wrong)
        fitting = [i for i in wrong if len(tried.cases[i].weights) == fewest]
        seen = _right_for_others(tried) or _dependence(tried, max(fitting, key=lambda i: _size(tried.right[i])))
    first = dict(list(parts.items())[:1])  # what is weak may be said of no later part, which hangs on the first
    return seen or _read(tried, exercise.locate) or _symptom(first, exercise, WEAK, len(tried.verdicts))


def _read(tried: Tried, reader: Reader | None, only: list[int] | None = None) -> str:
    """What the exercise itself says of the results, or of some of them; of all only if there are all."""
    rows = enumerate(zip(tried.cases, tried.right, tried.outcomes, strict=False))
    compared = [(case, a, b) for i, (case, a, b) in rows if not isinstance(b, Fault) and (only is None or i in only)]
    if not compared or reader is None or (only is None and len(compared) < len(tried.cases)):
        return ""
    try:
        return reader(compared)
    except Exception:  # a student's result may be anything: then there is nothing to say
        return ""


# ---- Named mistakes ----------------------------------------------------------------------------------------------


def named(exercise: Exercise, right: list[Result], outcomes: list[Outcome]) -> list[tuple[Mistake, int]]:
    """The mistakes whose wrong implementation gives the student's results, with 0 if it does so on all inputs.

    Where the student's work raises, or gives another shape than the right one, it may have another fault besides. Then
    the mistake must show on two other inputs at least, and their number comes with it. No input may speak against it.
    """
    found = []
    off = _off(right, outcomes, exercise)
    for mistake in exercise.mistakes:
        fits = []
        for verdict, given, wrong in zip(off, outcomes, known(exercise, mistake), strict=False):
            fits.append(_fit(exercise, mistake.wrong, wrong, given, verdict))
            if fits[-1] == "no":
                break
        telling, beside = fits.count("tells"), fits.count("raises") + fits.count("shape")
        if "no" not in fits and telling >= (2 if beside else 1) and telling > fits.count("shape"):
            found.append((mistake, telling if beside else 0))
    sure = [pair for pair in found if not pair[1]]
    return sure if sure else found if len(found) == 1 else []


def _off(right: list[Result], outcomes: list[Outcome], exercise: Exercise) -> list[str]:
    """In what each result differs from the right one; "" for a Fault."""
    pairs = zip(right, outcomes, strict=False)
    return ["" if isinstance(given, Fault) else differs(a, given, exercise) for a, given in pairs]


def _fit(exercise: Exercise, work: Any, wrong: Outcome, given: Outcome, off: str) -> str:
    """What one input says of a mistake: "tells" for it, "no", or "" for nothing.

    It is "raises" or "shape" where the student's work has another fault besides. ``wrong`` is what the mistake gives,
    and ``off`` how the student's result differs from the right one.
    """
    if isinstance(wrong, Fault):  # the student's may avoid what the mistake stumbles over, such as a division by 0
        return "" if isinstance(given, Fault) or isinstance(work, dict) or not off else "no"
    if isinstance(given, Fault):
        return "raises"
    apart_too = differs(wrong, given, exercise)
    if not apart_too:
        return "tells" if off else ""
    return "shape" if "has shape" in off and "has shape" in apart_too else "no"


# ---- From one call to the next -----------------------------------------------------------------------------------


def _unsteady(tried: Tried, i: int) -> str:
    """Whether a work gives other numbers in another call, and whether it is torch's random numbers that matter."""
    if not tried.quick or isinstance(tried.outcomes[i], Fault):  # above all one that took too long, and would again
        return ""
    exercise, said = tried.exercise, "The same input gives other numbers in another call."
    again = run_once(exercise, tried.work, exercise.cases()[i])  # a new case: a model of it may have been changed
    if _moved(tried, i, tried.outcomes[i], again):
        return (
            f"{said} Is something kept from one call to the next, or never filled (torch.empty)? Or random by itself?"
        )
    if not _moved(tried, i, again, run_once(exercise, tried.work, exercise.cases()[i], seed=1)):
        return ""
    if _moved(tried, i, tried.right[i], run_once(exercise, exercise.right, exercise.cases()[i], seed=1)):
        return ""  # what is asked for is random itself
    said += " Is something random, such as dropout, or was it never filled (torch.empty)?"
    return f"{said} Or a weight that isn't one of the agreed parameters?" if tried.cases[i].build else said


def _moved(tried: Tried, i: int, one: Outcome, other: Outcome) -> bool:
    """Whether two results of one input hold other numbers."""
    if isinstance(one, Fault) or isinstance(other, Fault):
        return False
    name = _main(tried.right[i])
    pairs = zip(tensors(one.get(name)), tensors(other.get(name)), strict=False)
    wide = torch.complex128  # holds all kinds
    kept = [(a.detach().to(wide), b.detach().to(wide)) for a, b in pairs if not a.is_meta and not b.is_meta]
    return any(a.shape != b.shape or not torch.allclose(a, b, 1e-6, 1e-6, equal_nan=True) for a, b in kept)


def _stale(tried: Tried, wrong: list[int]) -> str:
    """Whether only the second call goes wrong, and why."""
    if not all(_only_the_second(tried, i) for i in wrong):
        return ""
    said = "The first call is right, and the next one, with other inputs, isn't."
    if tried.cases[wrong[0]].build and tried.quick and all(_right_when_new(tried, i) for i in wrong):
        return f"{said} Does something of the first call stay in the layer, or does a call change its parameters?"
    if not tried.cases[wrong[0]].build and all(_repeated(tried, i) for i in wrong):
        return f"{said} It gives what the first gave: is something of the first call kept for the next?"
    return f"{said} Is something of the first call kept for the next, or does it go wrong for these numbers alone?"


def _only_the_second(tried: Tried, i: int) -> bool:
    right, given = tried.right[i], tried.outcomes[i]
    if isinstance(given, Fault) or SECOND not in right:
        return False
    first, second = {"result": right["result"]}, {SECOND: right[SECOND]}
    return not differs(first, given, tried.exercise) and bool(differs(second, given, tried.exercise))


def _right_when_new(tried: Tried, i: int) -> bool:
    """Whether a new layer gives the right result for the numbers of the second call."""
    given = run_once(tried.exercise, tried.work, rolled(tried.cases[i]))
    right = {"result": tried.right[i][SECOND]}
    return isinstance(given, dict) and not differs(right, given, tried.exercise)


def _repeated(tried: Tried, i: int) -> bool:
    """Whether the second call gave what the first one had given."""
    given = tried.outcomes[i]
    return isinstance(given, dict) and not differs({SECOND: given["result"]}, given, tried.exercise)


# ---- With other inputs -------------------------------------------------------------------------------------------


def _right_for_others(tried: Tried) -> str:
    """With which other inputs the student's results would be right, on all cases; "" for none."""
    rows = [i for i, given in enumerate(tried.outcomes) if not isinstance(given, Fault)]
    rows.sort(key=lambda i: (not tried.verdicts[i], _size(tried.right[i])))
    if not rows or _takes_a_model(tried.cases[rows[0]]):
        return ""
    for words, other in itertools.islice(_others(tried.exercise, tried.cases[rows[0]]), OTHERS):
        found = {_gives(tried, rows[0], words, other)}
        for i in rows[1:]:
            if "no" in found:
                break
            there = dict(_others(tried.exercise, tried.cases[i])).get(words)
            found.add(_gives(tried, i, words, there) if there else "no")
        if "no" not in found and "yes" in found:
            return f"Your numbers would be right {words}."
    return ""


def _gives(tried: Tried, i: int, words: str, other: Callable[[], Case]) -> str:
    """Whether the reference gives the student's result, all of it, if it gets another case, which ``words`` say.

    It is "" where the other case gives what the right one gives, too.
    """
    given, reference = tried.outcomes[i], _reference(tried.exercise, i)
    there, here = reference.on(words, other), reference.on(1.0, lambda: tried.cases[i])
    if isinstance(given, Fault) or isinstance(there, Fault) or isinstance(here, Fault) or there.keys() != here.keys():
        return "no"
    tolerance = tried.exercise.tolerance  # that it can't be told from the right one is not enough
    strict = dataclasses.replace(tried.exercise, tolerance=min(tolerance, max(1e-5, 0.1 * tolerance)))
    return "no" if differs(there, given, strict) else "yes" if differs(here, there, tried.exercise) else ""


def _others(exercise: Exercise, case: Case) -> Iterator[tuple[str, Callable[[], Case]]]:
    """A case with one of its inputs replaced, or two exchanged, each in words."""
    inputs = _inputs(exercise, case)
    for name, x in inputs.items():
        for words, other in _instead_of(name, x):
            yield f"with {words}", functools.partial(_with, exercise, case, {name: other})
    for (one, x), (two, y) in itertools.combinations(inputs.items(), 2):
        if not (is_float(x) and is_float(y) and x.shape == y.shape):
            continue
        yield f"with {one} and {two} exchanged", functools.partial(_with, exercise, case, {one: y, two: x})
        yield f"with {two} in place of {one}", functools.partial(_with, exercise, case, {one: y})
        yield f"with {one} in place of {two}", functools.partial(_with, exercise, case, {two: x})


def _instead_of(name: str, x: Any) -> Iterator[tuple[str, Any]]:
    """What an input may be mistaken for, each in words."""
    if is_float(x):
        yield f"zeros in place of {name}", torch.zeros_like(x)
        yield f"ones in place of {name}", torch.ones_like(x)
        yield f"-{name} in place of {name}", -x
        if x.ndim > 1 and x.shape[-1] == x.shape[-2]:
            yield f"{name} transposed" if x.ndim == 2 else f"the last two axes of {name} exchanged", x.mT.clone()
    elif isinstance(x, bool):
        yield f"{name} the other way round", not x
    elif isinstance(x, int):
        yield f"{name} = 1", 1
        yield f"{name} - 1 in place of {name}", x - 1
        yield f"{name} + 1 in place of {name}", x + 1
    elif isinstance(x, float):
        yield f"{name} = 0", 0.0
        yield f"{name} = 1", 1.0
    elif isinstance(x, tuple) and len(x) == 2 and all(isinstance(n, int) for n in x):
        yield f"the two numbers of {name} exchanged", x[::-1]


def _with(exercise: Exercise, case: Case, replaced: dict[str, Any]) -> Case:
    """A case with other inputs, given by their names."""
    inputs = list((_inputs(exercise, case) | replaced).values())
    args, build = len(case.args), len(case.build)
    weights = dict(zip(case.weights, inputs[args + build :], strict=True))
    return dataclasses.replace(
        case, args=tuple(inputs[:args]), build=tuple(inputs[args : args + build]), weights=weights
    )


# ---- What depends on what ----------------------------------------------------------------------------------------


def _dependence(tried: Tried, i: int) -> str:
    """On which inputs, and which parts of them, the student's result depends where the right one doesn't, or not."""
    case, outcome, name = tried.cases[i], tried.outcomes[i], _first(tried.right[i])
    if _takes_a_model(case) or isinstance(outcome, Fault):
        return ""
    probes = _reference(tried.exercise, i), Probe(tried.exercise, tried.work, case)
    for change in itertools.islice(_changes(tried.exercise, case), CHANGES):
        if change[1] in outcome.get("missing", ()):
            continue  # a weight that the work lacks, or shares, can't be changed
        right, given = (probe.reach(change) for probe in probes)
        if right is None or given is None or not _clearly_apart(right, given) or not apart(right, given, name):
            continue
        right, given = (_ever(probe, change) for probe in probes)
        unclear = any(probes[1].reach(change, scale) is None for scale in SCALES)
        if unclear and right.shape == given.shape and (right & ~given).any():
            continue  # what seems to stay may change by little
        if _clearly_apart(right, given) and (words := apart(right, given, name)):
            return f"If {change[0]} changes, {words} (tried with {case.label})."
    return ""


def _clearly_apart(right: Tensor, given: Tensor) -> bool:
    """Whether two results depend on different parts of an input, by more than a few numbers that stay by chance."""
    return right.shape != given.shape or bool((right ^ given).sum() > 0.25 * (right | given).sum())


class Probe:
    """What a work gives on a case and on others made of it: each is computed once, and its numbers are kept."""

    def __init__(self, exercise: Exercise, work: Any, case: Case) -> None:
        self.exercise, self.work, self.case = exercise, work, case
        self.kept: dict[Hashable, Outcome] = {}

    def on(self, key: Hashable, other: Callable[[], Case]) -> Outcome:
        """What it gives on another case, which ``key`` stands for."""
        if key not in self.kept:
            with the_result_alone():
                outcome = run_once(self.exercise, self.work, copy.deepcopy(other()))
            self.kept[key] = outcome if isinstance(outcome, Fault) else _numbers_alone(outcome)
        return self.kept[key]

    def reach(self, change: Change, scale: float = 1.0) -> Tensor | None:
        """Where the result changes if the case is changed; None if that can't be said."""
        case = _scaled(self.case, scale)
        draws = {(change, scale, draw): functools.partial(_changed, case, change, draw) for draw in DRAWS}
        outcomes = [self.on(scale, lambda: case), *(self.on(*pair) for pair in draws.items())]
        results = [one for one in outcomes if isinstance(one, dict)]
        return reach(results[0], results[1:], _main(results[0])) if len(results) == len(outcomes) else None


@functools.cache
def _reference(exercise: Exercise, i: int) -> Probe:
    """The reference, on one of an exercise's cases: kept, since it is asked the same of every wrong work."""
    return Probe(exercise, exercise.right, exercise.cases()[i])


def _ever(probe: Probe, change: Change) -> Tensor:
    """Where a result changes on any of several cases of one shape."""
    found = [one for scale in (1.0, *SCALES) if (one := probe.reach(change, scale)) is not None]
    return torch.stack([one for one in found if one.shape == found[0].shape]).any(0)


def _changes(exercise: Exercise, case: Case) -> Iterator[Change]:
    """The inputs, and the parts of them, that can be changed by themselves."""
    names = list(_inputs(exercise, case))
    numbers = [i for i, x in enumerate(case.args) if is_float(x)]
    for i in numbers:
        yield names[i], i, 0, False
    for name in case.weights:
        yield name, name, 0, False
    for i in numbers:
        for axis, length in enumerate(case.args[i].shape):
            if length > 1:
                yield f"{names[i]}[{':, ' * axis}0]", i, axis, True


def _changed(case: Case, change: Change, draw: int) -> Case:
    _, which, axis, first_alone = change
    if isinstance(which, str):
        weight = case.weights[which]
        return dataclasses.replace(case, weights=case.weights | {which: weight + normal(*weight.shape, seed=draw)})
    x = case.args[which].clone()
    part = x.movedim(axis, 0)[:1] if first_alone else x
    part += normal(*part.shape, seed=draw)
    return dataclasses.replace(case, args=(*case.args[:which], x, *case.args[which + 1 :]))


def _scaled(case: Case, scale: float) -> Case:
    return dataclasses.replace(case, args=tuple(scale * x if is_float(x) else x for x in case.args))


# ---- Parts of results and of cases -------------------------------------------------------------------------------


def _symptom(parts: dict[str, list[Pair]], exercise: Exercise, finders: tuple[Finder, ...], tried: int) -> str:
    """What the numbers of one part of the results show, of so many inputs that were ``tried``."""
    for name, pairs in parts.items():
        if seen := symptom(pairs, exercise.tolerance, finders, others=len(pairs) < tried):
            return seen if name == "result" else f"{name.rstrip(',')}: {seen}"
    return ""


def _numbers(tried: Tried, wrong: list[int]) -> dict[str, list[Pair]]:
    """The tensors that differ, by their names, in each wrong case as (right, given, inputs, label)."""
    found: dict[str, list[Pair]] = {}
    for i in wrong:
        outcome, of_first = tried.outcomes[i], _args_and_weights(tried.exercise, tried.cases[i])
        if isinstance(outcome, Fault):
            continue
        for name, expected in tried.right[i].items():
            inputs = {} if name in (SECOND, LAYOUT) else of_first
            if name in BESIDE or name.startswith("gradient"):
                continue
            many = isinstance(expected, (tuple, list))
            parts = _parts(expected, outcome.get(name)) if many else [outcome.get(name)]
            for index, (right, part) in enumerate(zip(expected if many else [expected], parts or [], strict=False)):
                given = as_tensor(part)
                if given is None or given.is_meta or given.is_complex() or given.dtype in HALF:
                    continue
                if isinstance(right, Tensor) and differs({name: right}, {name: part}, tried.exercise):
                    pair = (right, given.to(right.device), inputs, tried.cases[i].label)
                    at = f" part {index}" if name.endswith(",") else f"[{index}]"
                    found.setdefault(name + at if many else name, []).append(pair)
    return found


def _parts(expected: Sequence[Any], given: Any) -> list[Any] | None:
    """The parts of a result that should have several; a tensor may hold them all, or be one of them, and no more."""
    stacked = isinstance(given, (Tensor, np.ndarray))
    if stacked and any(isinstance(x, Tensor) and shape(x) != tuple(given.shape[1:]) for x in expected):
        return None
    return as_parts(given, len(expected))


def _inputs(exercise: Exercise, case: Case) -> dict[str, Any]:
    """A case's arguments by their names, what its class is built with, and its weights."""
    work = unwrapped(exercise.right)
    forward, build = (vars(work).get("forward"), vars(work).get("__init__")) if isinstance(work, type) else (work, None)
    args = _named(forward, case.args, "argument", method=build is not None)
    return args | _named(build, case.build, "setting", method=True) | case.weights


def _args_and_weights(exercise: Exercise, case: Case) -> dict[str, Any]:
    return _inputs(exercise, dataclasses.replace(case, build=()))


def _named(function: Any, values: tuple[Any, ...], kind: str, method: bool) -> dict[str, Any]:
    """Values by the names of a function's arguments, or by their numbers where it has none."""
    code = getattr(function, "__code__", None)
    names = code.co_varnames[: code.co_argcount][method:] if code else ()
    numbered = [f"{kind} {i + 1}" for i in range(len(values))]
    return dict(zip([*names, *numbered[len(names) :]], values, strict=False))


def _takes_a_model(case: Case) -> bool:
    """Whether an argument is a model: it may be another one after the first call."""
    return any(isinstance(arg, nn.Module) for arg in case.args)


def _numbers_alone(result: Result) -> Result:
    """Without the gradients, and what stands beside the numbers."""
    return {name: x for name, x in result.items() if name not in BESIDE and not name.startswith("gradient")}


def _main(result: Result) -> str:
    """The name of the first thing in a result that is made of numbers."""
    return next((name for name, x in _numbers_alone(result).items() if tensors(x)), "")


def _first(result: Result) -> str:
    """What a result's main tensor is called, the first one of several."""
    name = _main(result)
    x = result.get(name)
    while isinstance(x, (tuple, list)) and x:
        name, x = f"{name}[0]", x[0]
    return name


def _size(result: Result) -> int:
    return sum(x.numel() for x in tensors(result.get(_main(result))))
