"""Pages that go back to students: one HTML file a submission, without scripts, links or anything from elsewhere.

What a student wrote is shown as text, whatever it holds; so is what their code printed. A Content-Security-Policy
forbids the rest a second time, should something have been overlooked.
"""

from __future__ import annotations

import textwrap
from html import escape
from typing import Any

POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; form-action 'none'; base-uri 'none'"
STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 56rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; background: #f5f5f5; padding: .6rem .8rem; margin: .3rem 0; }
pre.text { background: none; border-left: 3px solid #ccc; font-family: inherit; }
pre.shown { background: #fff; border: 1px solid #ddd; }
pre.error { background: #fdecea; }
table { border-collapse: collapse; } td, th { text-align: left; padding: .1rem 1rem .1rem 0; }
.mark { font-weight: bold; margin: 1rem 0 .2rem; } img { max-width: 100%; }
"""


def page(title: str, facts: list[str], marks: list[dict[str, Any]], cells: list[dict[str, Any]]) -> str:
    """A page.

    Args:
        title: of the page.
        facts: sentences above the marks, such as what went wrong.
        marks: of each graded cell name, score, of, comment, whether it still waits for the teacher (and the score is
            an earlier answer's), and what is said beside it of whose code it is.
        cells: of the notebook, each with cell_type, source, nbgrader, and for code its outputs.
    """
    rows = [
        f"<tr><td>{escape(mark['name'].removeprefix('check-'))}</td><td>{_score(mark)}</td><td>{escape(_beside(mark))}</td></tr>"
        for mark in marks
    ]
    table = f"<table><tr><th>exercise</th><th>marks</th><th></th></tr>{''.join(rows)}</table>" if rows else ""
    by_name = {mark["name"]: mark for mark in marks}
    parts = [part for cell in cells for part in _cell(cell, by_name)]
    return "\n".join(
        [
            '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
            f'<meta name="referrer" content="no-referrer"><title>{escape(title)}</title><style>{STYLE}</style></head>',
            f"<body><h1>{escape(title)}</h1>",
            *(f"<p>{escape(fact)}</p>" for fact in facts),
            table,
            *parts,
            "</body></html>",
        ]
    )


def _score(mark: dict[str, Any]) -> str:
    if mark["waits"] and not mark["earlier"]:
        return f"not marked yet (of {mark['of']:g})"
    return f"{mark['score']:g} of {mark['of']:g}" + " for an earlier answer" * mark["earlier"]


def _beside(mark: dict[str, Any]) -> str:
    return " ".join(filter(None, [mark["comment"], mark["beside"]]))


def _cell(cell: dict[str, Any], marks: dict[str, dict[str, Any]]) -> list[str]:
    mark = marks.get(cell["nbgrader"].get("grade_id", ""))
    if not mark and not cell.get("own"):  # the exercise's own text and code, which they have
        line = cell["source"].partition("\n")[0]
        heading = cell["cell_type"] == "markdown" and line.startswith("#")
        return [f"<h2>{escape(line.lstrip('# '))}</h2>"] * heading + [*map(_output, cell.get("outputs", []))]
    parts = [f'<div class="mark">{escape(mark["name"].removeprefix("check-"))}: {_score(mark)}</div>'] if mark else []
    if mark and _beside(mark):
        parts.append(f"<p>{escape(_beside(mark))}</p>")
    kind = "code" if cell["cell_type"] == "code" else "text"
    if cell["source"].strip():
        parts.append(f'<pre class="{kind}">{escape(cell["source"])}</pre>')
    return parts + [_output(output) for output in cell.get("outputs", [])]


def _output(output: dict[str, Any]) -> str:
    if output["output_type"] == "error":
        return f'<pre class="shown error">{escape(chr(10).join(output["traceback"]))}</pre>'
    if output["output_type"] == "stream":
        return f'<pre class="shown">{escape(output["text"])}</pre>'
    if "image/png" in output["data"]:
        return f'<img alt="a picture" src="data:image/png;base64,{escape(output["data"]["image/png"])}">'
    return f'<pre class="shown">{escape(output["data"].get("text/plain", ""))}</pre>'


def as_plain(text: str) -> str:
    """A student's text as Markdown that shows it letter by letter, for formgrader: no link, image, HTML or formula."""
    lines = [part for line in text.splitlines() for part in (textwrap.wrap(line, 100) or [""])]
    return "\n".join(f"    {line}" for line in lines)
