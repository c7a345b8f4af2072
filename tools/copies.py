"""Hints at copies: which two answers have more in common than the exercise explains. A hint is not a proof.

Code is compared function by function, bare: without names that its writer chose, annotations, docstrings, comments,
imports, assertions and guards that raise. So renaming and tidying up hide nothing; writing it in another way does.
"""

from __future__ import annotations

import ast
import functools
import io
import itertools
import keyword
import re
import tokenize
import warnings
from collections import Counter
from typing import Any

LENGTH, WORDS = 6, 4  # tokens, and words of prose, in a piece
LEAST, SHARE = 15, 0.6  # pieces in common, and their share of the smaller one: of two answers, or of the package's code
SAME = 0.9  # the share, of two functions or paragraphs in two students' answers
MOST = 40_000  # characters of one student's that are looked at
NAMED = 20  # functions that an exercise forbids by name; more are a whole package's, forbidden by a star

Cell = dict[str, Any]
Pieces = frozenset[tuple[str, ...]]


class _Bare(ast.NodeTransformer):
    """Takes off what tells nothing about how a function works."""

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            node.decorator_list = []
        if isinstance(node, ast.FunctionDef):
            node.returns = None
        if isinstance(node, ast.arg):
            node.annotation = None
        if getattr(node, "body", None) == []:
            node.body = [ast.Pass()]  # type: ignore[attr-defined]
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        return None if isinstance(node.value, ast.Constant) else self.generic_visit(node)

    def visit_If(self, node: ast.If) -> ast.AST | None:
        guard = not node.orelse and isinstance(node.body[-1], ast.Raise)
        return None if guard else self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        return ast.Assign([node.target], self.visit(node.value)) if node.value else None

    def _nothing(self, node: ast.AST) -> None:
        return None

    visit_Assert = visit_Import = visit_ImportFrom = _nothing


@functools.lru_cache(1000)  # of one exercise many cells are alike, and each is looked at twice
def units(kind: str, source: str) -> list[Pieces]:
    """The pieces of each function and class of a cell, and of the rest of it; of prose all runs of four words."""
    if kind == "markdown":
        return [_runs(source.lower().split(), WORDS)]
    lines = [line for line in source.split("\n") if not line.lstrip().startswith(("%", "!", "?"))]
    try:
        with warnings.catch_warnings(action="ignore"):  # of strings like "\d"
            body = ast.parse("\n".join(lines)).body
        whole = [node for node in body if isinstance(node, (ast.FunctionDef, ast.ClassDef))]
        parts = [*([node] for node in whole), [node for node in body if node not in whole]]
        bare = [ast.fix_missing_locations(_Bare().visit(ast.Module(part, []))) for part in parts if part]
        return [_runs(_tokens(ast.unparse(part), _own_attributes(part)), LENGTH) for part in bare]
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # no Python: as it stands
        return [_runs(source.split(), LENGTH)]


def _own_attributes(tree: ast.AST) -> set[str]:
    """The names of attributes that code sets, and of functions that it defines."""
    sets = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)}
    return sets | {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def _tokens(source: str, own: set[str]) -> list[str]:
    """The tokens of Python code, with one word for all names that its writer chose: of variables, and of ``own``."""
    words, before = list[str](), ""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.NAME and not keyword.iskeyword(token.string):
            words.append("name" if before != "." or token.string in own else token.string)
        elif token.type in (tokenize.NAME, tokenize.OP, tokenize.NUMBER):
            words.append(token.string)
        elif token.type == tokenize.STRING:
            words.append("text")
        before = token.string
    return words


def _runs(words: list[str], length: int) -> Pieces:
    return frozenset(tuple(words[at : at + length]) for at in range(len(words) - length + 1))


def _own(cells: list[Cell], known: Pieces) -> list[Pieces]:
    """The pieces of a student's cells, unit by unit, without those that are known."""
    ends = itertools.accumulate(len(cell["source"]) for cell in cells)
    few = [cell for cell, end in zip(cells, ends, strict=True) if end <= MOST]
    return [unit - known for cell in few for unit in units(cell["cell_type"], cell["source"])]


def _union(some: list[Pieces]) -> Pieces:
    return frozenset().union(*some)


def _all(cells: list[Cell]) -> Pieces:
    return _union([unit for cell in cells for unit in units(cell["cell_type"], cell["source"])])


def hints(answers: dict[str, list[Cell]], explained: list[Cell]) -> list[dict[str, Any]]:
    """Pairs of students whose answers have much in common, or single functions nearly everything; likelier ones first.

    Args:
        answers: of each student the cells that they wrote.
        explained: cells that explain what is alike: what was handed out, and the model answers.
    """
    known = _all(explained)
    made = {student: _own(cells, known) for student, cells in answers.items()}
    often = Counter(piece for some in made.values() for piece in _union(some))
    usual = frozenset(piece for piece, many in often.items() if many > max(2, len(made) // 4))  # many came to it
    left = {student: [unit - usual for unit in some] for student, some in made.items()}
    found = []
    for (a, of_a), (b, of_b) in itertools.combinations(sorted(left.items()), 2):
        whole = _union(of_a), _union(of_b)
        share = _alike(*whole, SHARE) or max((_alike(x, y, SAME) for x in of_a for y in of_b), default=0.0)
        if share:
            found.append({"student": a, "other": b, "share": share, "pieces": len(whole[0] & whole[1])})
    return sorted(found, key=lambda one: -one["pieces"])


def _alike(one: Pieces, other: Pieces, least: float) -> float:
    """The share of the smaller one that both have; 0 where it is too little to say anything."""
    common, smaller = len(one & other), min(len(one), len(other))
    return round(common / smaller, 2) if common >= LEAST and common >= least * smaller else 0.0


class Package:
    """The package's own code that a lesson's exercises ask to do without.

    Args:
        sources: of each exercise by its name: its functions' and classes' sources, by full names.
        explained: as for :func:`hints`.
    """

    def __init__(self, sources: dict[str, dict[str, str]], explained: list[Cell]) -> None:
        self.known = _all(explained)

        @functools.cache  # exercises share sources
        def cut(source: str) -> Pieces:
            return _all([{"cell_type": "code", "source": source}]) - self.known

        self.own = {
            exercise: {name.removeprefix("vit_tutorial."): cut(source) for name, source in some.items()}
            for exercise, some in sources.items()
        }

    def like(self, cells: list[Cell]) -> dict[str, list[str]]:
        """Of each exercise the names of what one of a student's functions looks like, wherever it stands.

        Where the whole package is forbidden, only the cells count that define what the exercise asks for.
        """
        found = {}
        for exercise, some in self.own.items():
            asked = re.compile(rf"\b(def|class) {exercise}\b")
            written = cells if len(some) <= NAMED else [cell for cell in cells if asked.search(cell["source"])]
            theirs = _own(written, self.known)
            found[exercise] = [name for name, own in some.items() if any(_alike(one, own, SHARE) for one in theirs)]
        return {exercise: names for exercise, names in found.items() if names}
