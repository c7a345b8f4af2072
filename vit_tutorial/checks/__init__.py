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
from typing import TYPE_CHECKING, Any

from vit_tutorial.checks.declare import Case, Exercise, Mistake
from vit_tutorial.checks.record import progress

if TYPE_CHECKING:
    from vit_tutorial.checks.lesson01 import *  # noqa: F403
    from vit_tutorial.checks.lesson02 import *  # noqa: F403
    from vit_tutorial.checks.lesson03 import *  # noqa: F403
    from vit_tutorial.checks.lesson04 import *  # noqa: F403
    from vit_tutorial.checks.lesson05 import *  # noqa: F403
    from vit_tutorial.checks.lesson06 import *  # noqa: F403
    from vit_tutorial.checks.lesson07 import *  # noqa: F403
    from vit_tutorial.checks.lesson08 import *  # noqa: F403
    from vit_tutorial.checks.lesson09 import *  # noqa: F403
    from vit_tutorial.checks.lesson10 import *  # noqa: F403

    CATALOGUE: dict[str, Exercise]

LESSONS = sorted(module.name for module in pkgutil.iter_modules(__path__) if module.name.startswith("lesson"))  # noqa: F405


def __getattr__(name: str) -> Any:
    # One lesson after the other, at first use: the first need torch alone, the last ones much more.
    if name.startswith("check_"):
        for lesson in LESSONS:
            module = importlib.import_module(f"{__name__}.{lesson}")
            if name in module.__all__:
                return getattr(module, name)
    if name == "CATALOGUE":
        modules = [importlib.import_module(f"{__name__}.{lesson}") for lesson in LESSONS]
        return {exercise.name: exercise for module in modules for exercise in module.EXERCISES}
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    checks = [name for lesson in LESSONS for name in importlib.import_module(f"{__name__}.{lesson}").__all__]
    return sorted({*globals(), "CATALOGUE", *checks})


__all__ = ["CATALOGUE", "Case", "Exercise", "Mistake", "progress"]
