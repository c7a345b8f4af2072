"""The glossary's page, and the links from a lesson's words to it."""

from __future__ import annotations

import html
import re
from pathlib import Path

from nbformat import NotebookNode

SOURCE = Path(__file__).resolve().parent / "glossary.md"
ROW = re.compile(r"^\| ([^|]+) \|[^|]*\| ([^|]+) \| \[(\d\d)\]", re.MULTILINE)  # term, meaning, its lesson's number
# Code, formulas, links, HTML and headings: a term in them isn't linked.
NOT_PROSE = r"```.*?```|`[^`]*`|\$\$.*?\$\$|\$[^$]*\$|!?\[[^\]]*\]\([^)]*\)|<a .*?</a>|<[^>]+>|^#.*?$"


def anchor(term: str) -> str:
    """The id of a term's row in the glossary."""
    return re.sub(r"\W+", "-", term).strip("-").lower()


def page() -> str:
    """The glossary with an anchor at each row, and above it a line of letters that link to their first terms."""
    text = SOURCE.read_text(encoding="utf-8").replace("](../notebooks/", "](notebooks/")
    first_terms = {row[1][0].upper(): anchor(row[1]) for row in reversed([*ROW.finditer(text)])}
    letters = " · ".join(f'<a href="#{first_terms[letter]}">{letter}</a>' for letter in sorted(first_terms))
    text = ROW.sub(lambda row: f'| <span id="{anchor(row[1])}"></span>{row[0][2:]}', text)
    return text.replace("| term |", f"{letters}\n\n| term |", 1)


def link_terms(cells: list[NotebookNode], lesson: str) -> None:
    """Link the first use of each term in a lesson's prose to its row in the glossary.

    A term is linked from the lesson on that introduces it. Before, the word has its everyday meaning.

    Args:
        cells: the lesson's cells, which are changed.
        lesson: its number, such as "03".
    """
    rows = ROW.findall(SOURCE.read_text(encoding="utf-8"))
    longest_first = sorted((term for term, _, _ in rows), key=len, reverse=True)
    not_linked_yet = {
        term.lower(): (anchor(term), html.escape(meaning)) for term, meaning, first in rows if first <= lesson
    }

    def linked(found: re.Match[str]) -> str:
        term = (found[1] or "").lower()  # None where something else than prose was found
        if term not in not_linked_yet:
            return found[0]
        row, meaning = not_linked_yet.pop(term)
        return f'<a class="term" href="../glossary.html#{row}" title="{meaning}">{found[0]}</a>'

    terms = "|".join(map(re.escape, longest_first))
    word = re.compile(rf"{NOT_PROSE}|\b({terms})s?\b", re.DOTALL | re.MULTILINE | re.IGNORECASE)
    for cell in cells:
        if cell.cell_type == "markdown":
            cell.source = word.sub(linked, cell.source)
