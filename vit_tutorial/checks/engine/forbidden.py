"""What an exercise asks to do without, calls and large tensors, raises a Fault while the student's code runs."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NoReturn
from unittest.mock import patch

from torch.overrides import TorchFunctionMode

from vit_tutorial.checks.engine.compare import name_of
from vit_tutorial.checks.engine.exercise import Case, Exercise, Fault, Forbidden, Observation, Submission
from vit_tutorial.checks.engine.functions import call, tensors

_WRITE_YOUR_OWN = "write your own in the cell above"


# ---- The package's own -------------------------------------------------------------------------------------------


def package_origin(submission: Submission) -> str:
    """A sentence if a submission is the package's own, or derives from it; else ""."""
    function = _unwrap(submission)
    family = function.__mro__ if isinstance(function, type) else [function]
    if any(f"{getattr(member, '__module__', '')}.".startswith("vit_tutorial.") for member in family):
        return f"{name_of(function)} is the package's, or derives from it: {_WRITE_YOUR_OWN}"
    return ""


def _unwrap(function: Any) -> Any:
    """What stands behind partials and decorators."""
    while isinstance(function, functools.partial):
        function = function.func
    return inspect.unwrap(function)


def _is_package(what: Any) -> bool:
    module = f"{getattr(what, '__module__', '')}."
    return module.startswith("vit_tutorial.") and not module.startswith("vit_tutorial.checks.")


# ---- Calls -------------------------------------------------------------------------------------------------------


@contextmanager
def forbid(exercise: Exercise) -> Iterator[None]:
    """While it is open, a call of what the exercise forbids raises a Fault.

    It changes functions and classes for the whole process, so no two threads may be in it: grading takes processes.
    """
    with ExitStack() as stack:
        for rule in rules(exercise):
            if isinstance(rule.what, str):
                stack.enter_context(_ForbidNames(rule.what, rule.instead))
            elif isinstance(rule.what, type):
                stack.enter_context(_forbid_class(rule.what, rule.instead))
            else:
                stack.enter_context(_forbid_function(rule.what, rule.instead))
        yield


def rules(exercise: Exercise) -> list[Forbidden]:
    """What an exercise forbids; its reference is part of it where that is the package's own."""
    declared = [rule if isinstance(rule, Forbidden) else Forbidden(rule) for rule in exercise.forbidden]
    if callable(exercise.right) and _is_package(exercise.right):
        declared.append(Forbidden(exercise.right))
    return [Forbidden(rule.what, _WRITE_YOUR_OWN) if _is_package(rule.what) else rule for rule in declared]


class _ForbidNames(TorchFunctionMode):
    """Raises where a function of torch is called whose name has a certain part."""

    def __init__(self, part: str, instead: str) -> None:
        super().__init__()
        self.part, self.instead = part, instead

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = getattr(func, "__name__", "")
        if self.part in name:
            raise Fault(f"it calls {name}: {self.instead}")
        return func(*args, **(kwargs or {}))


@contextmanager
def _forbid_class(forbidden: type, instead: str) -> Iterator[None]:
    """A class can't be built."""

    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise Fault(_sentence(forbidden, instead))

    with patch.object(forbidden, "__init__", refuse):
        yield


@contextmanager
def _forbid_function(forbidden: Callable[..., Any], instead: str) -> Iterator[None]:
    """A function can't be called.

    A notebook has names of its own for the function (``from vit_tutorial import patchify``), which no patch of a module
    reaches. So the function object itself gets another body for a while, ``_refuse``'s, and what that has to raise as a
    keyword's default, since the body of a function with a closure doesn't fit into another one.
    """
    function: Any = _unwrap(forbidden)
    body, defaults = function.__code__, function.__kwdefaults__
    function.__code__ = _refuse.__code__
    function.__kwdefaults__ = {"fault": functools.partial(Fault, _sentence(forbidden, instead))}
    try:
        yield
    finally:
        function.__code__, function.__kwdefaults__ = body, defaults


def _refuse(*args: Any, fault: Callable[[], Fault], **kwargs: Any) -> NoReturn:
    raise fault()


def _sentence(forbidden: Any, instead: str) -> str:
    whose = "the package's own " if _is_package(forbidden) else ""
    return f"it calls {whose}{name_of(forbidden)}: {instead}"


# ---- Large tensors -----------------------------------------------------------------------------------------------


def call_with_small_tensors(submission: Submission, case: Case, limit: int, why: str) -> Observation:
    """As ``call``; a Fault where a function of torch gives a tensor of ``limit`` numbers, or more.

    ``why`` goes on after "there is a tensor of shape …,".
    """
    with _SizeLimit(limit, why):
        return call(submission, case)


class _SizeLimit(TorchFunctionMode):
    def __init__(self, limit: int, why: str) -> None:
        super().__init__()
        self.limit, self.why = limit, why

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in tensors(result):
            if math.prod(tensor.shape) >= self.limit:
                raise Fault(f"there is a tensor of shape {tuple(tensor.shape)}, {self.why}")
        return result
