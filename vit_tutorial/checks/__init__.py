"""The exercises' checks: is it right, or *which* mistake is it?

    from vit_tutorial import checks
    assert checks.check_patchify(patchify)

A check tries a function or class on several shapes, prints what it found, and returns True or False; it never raises
for a fault of the work. :func:`progress` prints what is done and what is open. :data:`CATALOGUE` holds every exercise
by name, with the mistakes that its check can name.
"""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType
from typing import TYPE_CHECKING, Any

from vit_tutorial.checks.declare import Case, Exercise, Mistake, exercises_of
from vit_tutorial.checks.record import progress

if TYPE_CHECKING:
    CATALOGUE: dict[str, Exercise]

LESSONS = sorted(module.name for module in pkgutil.iter_modules(__path__) if module.name.startswith("lesson"))


def __getattr__(name: str) -> Any:
    # One lesson after the other, at first use: the first need torch alone, the last ones much more.
    if name.startswith("check_"):
        for module in map(_module, LESSONS):
            if name in vars(module):
                return getattr(module, name)
    if name == "CATALOGUE":
        return {exercise.name: exercise for lesson in LESSONS for exercise in exercises_of(_module(lesson))}
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _module(lesson: str) -> ModuleType:
    return importlib.import_module(f"{__name__}.{lesson}")


def __dir__() -> list[str]:
    checks = [name for module in map(_module, LESSONS) for name in vars(module) if name.startswith("check_")]
    return sorted({*globals(), "CATALOGUE", *checks})


__all__ = ["CATALOGUE", "Case", "Exercise", "Mistake", "progress"]
