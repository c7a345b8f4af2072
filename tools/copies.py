"""Hints at copies: which two answers have more in common than the exercise explains. A hint is not a proof."""

from __future__ import annotations

import io
import itertools
import keyword
import tokenize
from collections import Counter
from typing import Any

LENGTH, LEAST, SHARE = 8, 20, 0.6  # tokens in a piece; pieces in common, and their share of the smaller answer
MOST = 40_000  # characters of one student's that are looked at


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


def hints(
    answers: dict[str, list[dict[str, Any]]], explained: list[str], package: dict[str, str]
) -> list[dict[str, Any]]:
    """Pairs of students, and of a student and the package's own code, the likelier copies first.

    Args:
        answers: of each student the cells that they wrote.
        explained: sources that explain what is alike: the stub and the model answer.
        package: sources by full names, which the exercise asks to do without.
    """
    known = set().union(*(pieces(source) | of_text(source) for source in explained))
    made = {student: _own(cells) - known for student, cells in answers.items()}
    often = Counter(piece for own in made.values() for piece in own)
    usual = {piece for piece, many in often.items() if many > max(2, len(made) // 4)}  # many have come to it themselves
    new = {student: own - usual for student, own in made.items()}
    pairs = [((a, new[a]), (b, new[b])) for a, b in itertools.combinations(sorted(made), 2)]
    pairs += itertools.product(made.items(), ((name, pieces(source) - known) for name, source in package.items()))
    found = []
    for (a, of_a), (b, of_b) in pairs:
        common, smaller = of_a & of_b, min(len(of_a), len(of_b))
        if len(common) >= LEAST and len(common) >= SHARE * smaller:
            found.append({"student": a, "other": b, "share": round(len(common) / smaller, 2), "pieces": len(common)})
    return sorted(found, key=lambda one: -one["pieces"])


def too_short(package: dict[str, str], explained: list[str]) -> list[str]:
    """Of the package's functions those that a copy can't be told of: too little is left that nothing explains."""
    known = set().union(*map(pieces, explained))
    return [name for name, source in package.items() if len(pieces(source) - known) < LEAST]
