"""What an exercise asks to do without raises a Fault while the student's code runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import FunctionType
from typing import Any
from unittest.mock import patch

from torch.overrides import TorchFunctionMode

from vit_tutorial.checks.engine.exercise import Exercise, Fault, Forbidden
from vit_tutorial.checks.engine.student import name_of, unwrapped

_OWN = "write your own in the cell above"


def rules(exercise: Exercise) -> list[Forbidden]:
    """What an exercise forbids; its reference among it where that is the package's own."""
    listed = [one if isinstance(one, Forbidden) else Forbidden(one) for one in exercise.forbidden]
    if callable(exercise.right) and _is_ours(exercise.right):
        listed.append(Forbidden(exercise.right))
    return [Forbidden(one.what, _OWN) if _is_ours(one.what) else one for one in listed]


def borrowed(work: Any) -> str:
    """Whether a work is the package's own, or derives from it: a sentence, or ""."""
    work = unwrapped(work)
    family = work.__mro__ if isinstance(work, type) else [work]
    if any(f"{getattr(member, '__module__', '')}.".startswith("vit_tutorial.") for member in family):
        return f"{name_of(work)} is the package's, or derives from it: {_OWN}"
    return ""


@contextmanager
def refused(exercise: Exercise) -> Iterator[None]:
    """While it is open, a call of what the exercise forbids raises a Fault."""
    with ExitStack() as stack:
        names = {}
        for rule in rules(exercise):
            if isinstance(rule.what, str):
                names[rule.what] = rule.instead
            else:
                stack.enter_context(_refused_object(rule))
        if names:
            stack.enter_context(_RefusedNames(names))
        yield


class _RefusedNames(TorchFunctionMode):
    """Raises where a function of torch is called whose name has one of these parts."""

    def __init__(self, names: dict[str, str]) -> None:
        super().__init__()
        self.names = names

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = getattr(func, "__name__", "")
        for part, instead in self.names.items():
            if part in name:
                raise Fault(f"it calls {name}: {instead}")
        return func(*args, **(kwargs or {}))


@contextmanager
def _refused_object(rule: Forbidden) -> Iterator[None]:
    """Refuse a class when it is built, and a function by whatever name, alias or partial it is called."""
    whose = "the package's own " if _is_ours(rule.what) else ""
    refuse = _refusing(f"it calls {whose}{name_of(rule.what)}: {rule.instead}")
    if isinstance(rule.what, type):
        with patch.object(rule.what, "__init__", refuse):
            yield
        return
    function = unwrapped(rule.what)
    code = function.__code__
    function.__code__ = refuse.__code__
    try:
        yield
    finally:
        function.__code__ = code


def _refusing(sentence: str) -> FunctionType:
    """A function that raises a Fault with this sentence; its code may run with another function's globals."""
    constants = (sentence if constant == "SENTENCE" else constant for constant in _refuse.__code__.co_consts)
    return FunctionType(_refuse.__code__.replace(co_consts=tuple(constants)), globals(), "_refuse")


def _refuse(*args: Any, **named: Any) -> Any:
    from vit_tutorial.checks.engine.exercise import Fault

    raise Fault("SENTENCE")


def _is_ours(what: Any) -> bool:
    module = f"{getattr(what, '__module__', '')}."
    return module.startswith("vit_tutorial.") and not module.startswith("vit_tutorial.checks.")
