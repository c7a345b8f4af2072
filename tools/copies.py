"""Hints at copies: which two answers have more in common than the exercise explains. A hint is not a proof."""

from __future__ import annotations

import functools
import io
import itertools
import keyword
import re
import tokenize
from collections import Counter
from typing import Any

LENGTH, LEAST, SHARE = 8, 20, 0.6  # tokens in a piece; pieces in common, and their share of the smaller answer
MOST = 40_000  # characters of one student's that are looked at
NAMED = 20  # functions that an exercise forbids by name; more are a whole package's, forbidden by a star


def pieces(source: str) -> set[tuple[str, ...]]:
    """All runs of tokens of an answer; names that it chose itself count as one, so that renaming hides nothing."""
    words: list[str] = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.NAME:
                chosen = not keyword.iskeyword(token.string) and not (words and words[-1] == ".")
                words.append("name" if chosen else token.string)
            elif token.type in (tokenize.OP, tokenize.NUMBER):
                words.append(token.string)
            elif token.type == tokenize.STRING:
                words.append("text")
    except (tokenize.TokenError, SyntaxError):
        words = source.split()
    return {tuple(words[at : at + LENGTH]) for at in range(len(words) - LENGTH + 1)}


def of_text(source: str) -> set[tuple[str, ...]]:
    """All runs of four words of an answer in prose."""
    words = source.lower().split()
    return {tuple(words[at : at + 4]) for at in range(len(words) - 3)}


def _own(cells: list[dict[str, Any]]) -> set[tuple[str, ...]]:
    """All pieces of a student's cells."""
    ends = itertools.accumulate(len(cell["source"]) for cell in cells)
    few = [cell for cell, end in zip(cells, ends, strict=True) if end <= MOST]
    return set().union(*((of_text if cell["cell_type"] == "markdown" else pieces)(cell["source"]) for cell in few))


def hints(answers: dict[str, list[dict[str, Any]]], explained: list[str]) -> list[dict[str, Any]]:
    """Pairs of students whose answers have much in common, the likelier copies first.

    Args:
        answers: of each student the cells that they wrote.
        explained: sources that explain what is alike: the stub and the model answer.
    """
    known = set().union(*(pieces(source) | of_text(source) for source in explained))
    made = {student: _own(cells) - known for student, cells in answers.items()}
    often = Counter(piece for own in made.values() for piece in own)
    usual = {piece for piece, many in often.items() if many > max(2, len(made) // 4)}  # many have come to it themselves
    found = []
    for (a, of_a), (b, of_b) in itertools.combinations(sorted((who, own - usual) for who, own in made.items()), 2):
        if share := _alike(of_a, of_b):
            found.append({"student": a, "other": b, "share": share, "pieces": len(of_a & of_b)})
    return sorted(found, key=lambda one: -one["pieces"])


def _alike(one: set[tuple[str, ...]], other: set[tuple[str, ...]]) -> float:
    """The share of the smaller answer that both have; 0 where it is too little to say anything."""
    common, smaller = len(one & other), min(len(one), len(other))
    return round(common / smaller, 2) if common >= LEAST and common >= SHARE * smaller else 0.0


class Package:
    """The package's own code that a lesson's exercises ask to do without.

    Args:
        sources: of each exercise by its name: its functions' and classes' sources, by full names.
        explained: as for :func:`hints`.
    """

    def __init__(self, sources: dict[str, dict[str, str]], explained: list[str]) -> None:
        self.known = set().union(*map(pieces, explained))
        cut = functools.cache(lambda source: pieces(source) - self.known)  # exercises share sources
        self.own = {
            exercise: {name.removeprefix("vit_tutorial."): cut(source) for name, source in some.items()}
            for exercise, some in sources.items()
        }

    def like(self, cells: list[dict[str, Any]]) -> dict[str, list[str]]:
        """Of each exercise the names of what a student's cells look like, wherever they stand.

        Where the whole package is forbidden, only the cells count that define what the exercise asks for.
        """
        found = {}
        for exercise, some in self.own.items():
            asked = re.compile(rf"\b(def|class) {exercise}\b")
            written = cells if len(some) <= NAMED else [cell for cell in cells if asked.search(cell["source"])]
            theirs = _own(written) - self.known
            found[exercise] = [name for name, own in some.items() if _alike(theirs, own)]
        return {exercise: names for exercise, names in found.items() if names}

    def too_short(self, exercise: str) -> list[str]:
        """Of which functions that it names no copy can be told: there is one good way to write them."""
        own = self.own.get(exercise, {})
        return [name for name, some in own.items() if len(some) < LEAST] if len(own) <= NAMED else []
