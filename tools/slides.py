"""Make a deck of slides of each lesson, from its kept outputs: nothing is run.

python tools/slides.py            every lesson -> build/slides/NN_….html
python tools/slides.py 01 03      those whose names begin so

A deck is one file, with reveal.js and MathJax in it, so it needs no network: the lesson's title, a title for each
section, every figure with its caption, and the questions at the end, whose answers appear at a click.
"""

from __future__ import annotations

import argparse
import html
import importlib.util
import re
import string
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lessons
import nbformat
from nbconvert.filters import markdown2html

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "build" / "slides"
REVEAL = ("sphinx_revealjs", "_static/revealjs/dist")  # packages that bring these files; neither is imported
MATHJAX = ("mathjax", "static/mathjax/es5/tex-svg.js")
SLIDER = re.compile(r'<div data-vit-slider.*?<img src="(?P<source>[^"]+)" alt="(?P<alt>[^"]*)"', re.DOTALL)
QUESTION = re.compile(r"\*\*(\d+)\.\*\* (.+?)<details><summary>Answer</summary>(.+?)</details>", re.DOTALL)
HEADING = re.compile(r"^(#{1,3}) (.+)$", re.MULTILINE)

PAGE = string.Template("""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title</title>
<style>$styles</style>
<style>
.reveal { font: 30px/1.4 system-ui, sans-serif; color: #222; }
.reveal h1, .reveal h2, .reveal h3 { font-family: inherit; text-transform: none; color: #1b3a5b; margin: 0 0 0.6em; }
.reveal h1 { font-size: 2em; }
.reveal h2 { font-size: 1.6em; }
.reveal .where { font-size: 0.75em; color: #667; margin: 0 0 0.8em; }
.reveal .slides section { text-align: left; height: 100%; }
.reveal .slides section.title { display: flex !important; flex-direction: column; justify-content: center; }
.reveal figure { margin: 0; display: flex; flex-direction: column; height: 86%; }
.reveal figure img { flex: 1; min-height: 0; width: 100%; object-fit: contain; margin: 0; }
.reveal figcaption { font-size: 0.8em; margin-top: 0.6em; }
.reveal figcaption p { margin: 0; }
.reveal .slide-number { left: 8px; right: auto; background: none; color: #667; font-size: 16px; }
.reveal section.question { font-size: 0.85em; }
.reveal .answer { border-left: 4px solid #1b3a5b; padding-left: 0.8em; margin-top: 1em; }
.reveal pre { font-size: 0.7em; width: 100%; }
.reveal code { font-size: 0.9em; background: #eef1f5; padding: 0 0.2em; }
.reveal table { font-size: 0.8em; }
a.anchor-link { display: none; }
</style>
<script>MathJax = {tex: {inlineMath: [["$$", "$$"], ["\\\\(", "\\\\)"]]}, svg: {fontCache: "global"}};</script>
<script>$mathjax</script>
</head>
<body>
<div class="reveal"><div class="slides">
$slides
</div></div>
<script>$reveal</script>
<script>
Reveal.initialize({
  width: 1280, height: 720, margin: 0.06, hash: true, center: false, transition: "none", slideNumber: "c/t",
});
</script>
</body>
</html>
""")


def deck(path: Path) -> str:
    """The HTML of a lesson's deck.

    Raises:
        SystemExit: reveal.js or MathJax is not installed.
    """
    notebook = nbformat.read(path, as_version=4)
    styles = [_file(*REVEAL, name).read_text("utf-8") for name in ("reset.css", "reveal.css", "theme/white.css")]
    return PAGE.substitute(
        title=html.escape(_headings(notebook.cells[0].source)[0][1]),
        styles=re.sub(r"@import [^;]+;", "", "\n".join(styles)),  # fonts that would lie beside the file
        mathjax=_script(_file(*MATHJAX)),
        reveal=_script(_file(*REVEAL, "reveal.js")),
        slides="\n".join(slides(notebook)),
    )


def slides(notebook: nbformat.NotebookNode) -> Iterator[str]:
    """The lesson's slides, in its order, each as a ``<section>``."""
    section, questions, ended = "", [], False
    for place, cell in enumerate(notebook.cells):
        if cell.cell_type == "code":
            yield from _figures(cell, section)
            continue
        questions += QUESTION.findall(cell.source)
        for depth, heading in _headings(cell.source):
            if depth == 1:
                first = cell.source.split("\n\n")[1] if "\n\n" in cell.source else ""
                yield _titled("h1", heading, first)
            ended |= heading == "Check yourself"
            if depth == 2 and not ended:
                section = heading
                yield _titled("h2", heading, "\n".join(f"- {name}" for name in _parts(notebook.cells[place:])))
    for number, question, answer in questions:
        body = f"{_html(question)}<div class='fragment answer'>{_html(answer)}</div>"
        yield f"<section class='question'><p class='where'>Question {number}</p>{body}</section>"


def _headings(source: str) -> list[tuple[int, str]]:
    text = re.sub(r"```.*?```", "", source, flags=re.DOTALL)
    return [(len(marks), words) for marks, words in HEADING.findall(text)]


def _parts(cells: list[nbformat.NotebookNode]) -> Iterator[str]:
    """The headings below the first one, up to the next of its depth."""
    found = [heading for cell in cells if cell.cell_type == "markdown" for heading in _headings(cell.source)]
    for depth, words in found[1:]:
        if depth <= 2:
            return
        yield words


def _titled(level: str, heading: str, below: str) -> str:
    words = markdown2html(heading).removeprefix("<p>").strip().removesuffix("</p>")
    return f"<section class='title'><{level}>{words}</{level}>{_html(below)}</section>"


def _figures(cell: nbformat.NotebookNode, section: str) -> Iterator[str]:
    """Each picture of a cell, and the first of a slider, with the caption that follows it."""
    outputs: list[Any] = [output for output in cell.outputs if "data" in output]
    for place, output in enumerate(outputs):
        slider = SLIDER.search(output.data.get("text/html", ""))
        if slider:
            alt, source = slider["alt"], slider["source"]  # its first picture; the markup has escaped the text
        elif "image/png" in output.data:
            alt = html.escape(output.get("metadata", {}).get("image/png", {}).get("alt", ""), quote=True)
            source = f"data:image/png;base64,{''.join(output.data['image/png'].split())}"
        else:
            continue
        after = outputs[place + 1].data if place + 1 < len(outputs) else {}
        picture = f'<img alt="{alt}" src="{source}">'
        caption = f"<figcaption>{_html(after.get('text/markdown', ''))}</figcaption>"
        where = f"<p class='where'>{html.escape(section)}</p>" if section else ""
        yield f"<section>{where}<figure>{picture}{caption}</figure></section>"


def _html(text: str) -> str:
    """Markdown as HTML; links into other files of the course lead nowhere from a deck, so their words alone stay."""
    return markdown2html(re.sub(r"(?<!!)\[([^\]]+)\]\((?!https?:)[^)]+\)", r"\1", text.strip())) if text.strip() else ""


def _file(package: str, *parts: str) -> Path:
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit(f"{package} is missing: make slides installs it, or pip install -e .[book]")
    return Path(spec.submodule_search_locations[0]).joinpath(*parts)


def _script(path: Path) -> str:
    """A script's text, so that it can stand between script tags."""
    return path.read_text("utf-8").replace("</script", "<\\/script")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lessons", nargs="*", help="beginnings of file names, as in 01; none means all")
    parser.add_argument("--out", type=Path, default=OUT)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    for path in lessons.find(arguments.lessons):
        made = deck(path)
        target = arguments.out / f"{path.stem}.html"
        target.write_text(made, encoding="utf-8")
        print(f"{target.name}  {made.count('<section')} slides, {len(made) / 1e6:.1f} MB", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
