"""What grading's programs send one another, as JSON: course.py writes it, check_submission.py reads it and answers.

It stands alone, because a sandbox sees no other module of tools/ than its own programs and this one.
"""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict


class CheckedFunction(TypedDict):
    """A check's cell: which check it calls, and on what."""

    check: str  # the exercise's name, without "check_"
    function: str  # the name that the student's function or class has in the notebook


class NotebookCell(TypedDict):
    """A code cell as the sandbox runs it."""

    source: str  # "" for a check's: the check is run later, in a process of its own
    check: NotRequired[CheckedFunction]  # what is saved for it when the cell's turn comes


class NotebookMessage(TypedDict):
    """The first message: the notebook, which is run before the hidden tests are read."""

    cells: list[NotebookCell]
    lesson: str  # two digits
    cell_seconds: int  # the limit of a cell


class CheckJob(CheckedFunction):
    """A check that is run when the notebook has ended."""

    hidden: str  # the code of its hidden tests, "" without any


class ChecksMessage(TypedDict):
    """The second message: the checks."""

    checks: list[CheckJob]
    given: str  # the code that the exercise gives, which hidden tests may use
    check_seconds: int  # the limit of a check


class Bounds(TypedDict):
    """What sandbox.py adds to each message."""

    file_bytes: int  # of each file that is written
    processes: int  # at a time; 0 where the sandbox limits them itself


class CheckResult(TypedDict):
    """What a check found."""

    passed: bool
    report: str


class Answer(TypedDict):
    """What comes back. The sandbox ran a student's code: whoever reads it believes nothing of this."""

    outputs: list[Any]  # of each code cell
    problem: str  # with the whole notebook, "" for none
    checks: NotRequired[dict[str, CheckResult]]
