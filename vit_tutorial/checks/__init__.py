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
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from vit_tutorial.checks.declare import Case, Exercise, Mistake, exercises_of
from vit_tutorial.checks.harness import check_of
from vit_tutorial.checks.record import progress

if TYPE_CHECKING:
    CATALOGUE: dict[str, Exercise]

LESSONS = sorted(module.name for module in pkgutil.iter_modules(__path__) if module.name.startswith("lesson"))


def __getattr__(name: str) -> Any:
    if name.startswith("check_"):
        for exercise in _exercises():
            if name == f"check_{exercise.name}":
                return check_of(exercise)
    if name == "CATALOGUE":
        return {exercise.name: exercise for exercise in _exercises()}
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _exercises() -> Iterator[Exercise]:
    # One lesson after the other, at first use: the first need torch alone, the last ones much more.
    for lesson in LESSONS:
        yield from exercises_of(importlib.import_module(f"{__name__}.{lesson}"))


def __dir__() -> list[str]:
    return sorted({*globals(), "CATALOGUE", *(f"check_{exercise.name}" for exercise in _exercises())})


__all__ = ["CATALOGUE", "Case", "Exercise", "Mistake", "progress"]
