"""What a student's code prints while a check runs: the first characters are kept, and shown with the report."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout

KEPT = 2000  # characters of what the student's code prints


class Kept(io.TextIOBase):
    """A stream that keeps its first characters and counts the lines: a loop may print without an end."""

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
def quiet() -> Iterator[Kept]:
    """While it is open, nothing is printed: stdout and stderr go into what it gives."""
    kept = Kept()
    with redirect_stdout(kept), redirect_stderr(kept):
        yield kept


@contextmanager
def unheard() -> Iterator[None]:
    """While it is open, nothing is kept: what a second call prints is what the first one has printed."""
    kept = sys.stdout
    if not isinstance(kept, Kept):
        yield
        return
    kept.deaf = True
    try:
        yield
    finally:
        kept.deaf = False
