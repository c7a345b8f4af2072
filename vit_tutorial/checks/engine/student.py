"""The student's code in a sentence: what a work is called, and which line an error came through."""

from __future__ import annotations

import functools
import inspect
import sysconfig
import traceback
from pathlib import Path
from typing import Any

import torch

from vit_tutorial.checks.engine.exercise import Work

_LIBRARIES = (*map(Path, sysconfig.get_paths().values()), Path(torch.__file__).parent, Path(__file__).parents[2])


def name_of(work: Work) -> str:
    """What a function or class is called."""
    return str(getattr(work, "__name__", type(work).__name__))


def unwrap(work: Work) -> Any:
    """What stands behind partials and decorators."""
    while isinstance(work, functools.partial):
        work = work.func
    return inspect.unwrap(work)


def with_students_line(text: str, error: BaseException) -> str:
    """A sentence, and below it the last line of the student's own code that an error came through, if there is one."""
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if not _is_library(frame.filename)]
    return f"{text}\n    in line {own[-1].lineno} of {own[-1].name}: {own[-1].line}" if own else text


@functools.cache
def _is_library(filename: str) -> bool:
    """Whether a file belongs to Python, an installed package or this one."""
    if filename.startswith(("<frozen", "<string", "<__array_function__")):
        return True
    return any(Path(filename).is_relative_to(folder) for folder in _LIBRARIES)
