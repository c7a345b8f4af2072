"""Lesson 07: text for people: on one line, with plurals, not too long."""

from __future__ import annotations

from collections.abc import Sequence


def printable(text: str) -> str:
    """The text on one line: line ends, codes that colour a terminal, all that can't be printed as escapes."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def brief(text: str, limit: int = 1500) -> str:
    """The text on one line, cut in its middle where it is longer."""
    text = printable(text)
    return text if len(text) <= limit else f"{text[: limit - 300]} … {text[-290:]}"


def counted(number: int, noun: str) -> str:
    """A number with its noun: ``1 image``, ``2,000 images``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def first_of(lines: Sequence[str], limit: int = 5) -> str:
    """The first lines in one, and how many more there are."""
    return "; ".join(lines[:limit]) + (f"; and {len(lines) - limit:,} more" if len(lines) > limit else "")
