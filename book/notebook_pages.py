"""Lessons and exercises as pages of the book, and as notebooks to download and run."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import nbformat
from glossary import link_terms
from module_pages import has_source_page, line_of_links, page_of
from nbformat import NotebookNode

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "tools"))
from lessons import GITHUB, add_badges  # noqa: E402

MAX_OPEN_LINES = 14  # of printed output; what is longer is folded
ASKS_FOR_A_GUESS = re.compile(
    r"\bPredict\b|[Bb]efore you (?:run|look|go on)\b|[Mm]ake (?:a|your) guess|\bGuess (?:first|now)\b"
)
MODULE_PATH = re.compile(r"vit_tutorial/([\w/]+?)(?:\.py|/)(?=[`)#]|$)")
LINK_TO_BENCHMARKS = re.compile(r"\[([^\]]+)\]\((?:\.\./)+(benchmarks/[^)#\s]+)[^)]*\)")
LINK_OUT_OF_THE_FOLDER = re.compile(r"(?<=\]\()((?:\.\./)+[^)#\s]*)(?=[)#])")


def lessons() -> list[Path]:
    return sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))


def exercises() -> list[Path]:
    return sorted((ROOT / "notebooks" / "exercises").glob("*.ipynb"))


def is_lesson(path: Path) -> bool:
    return path.parent.name == "notebooks"


def file_of_benchmarks(link: re.Match[str]) -> str:
    """A link's text and file: benchmarks/ has no pages in the book. A text that names the file is left out."""
    text, file = link.groups()
    return f"`{file}`" if text.strip("`") in ("benchmarks", file, Path(file).name) else f"{text} (`{file}`)"


def notebook_page(path: Path) -> NotebookNode:
    """A notebook as the book shows it.

    Below its title stands a line of links. The imports are folded, and so are outputs that are long or to be guessed.
    """
    notebook = nbformat.read(path, as_version=4)
    fold_cells(notebook)
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = LINK_TO_BENCHMARKS.sub(file_of_benchmarks, cell.source)
            cell.source = LINK_OUT_OF_THE_FOLDER.sub(lambda link: link_within_the_book(link, path), cell.source)
    links = links_below_title(path, notebook.cells[0].source)
    if is_lesson(path):
        link_terms(notebook.cells, path.name[:2])
    notebook.cells.insert(1, nbformat.v4.new_markdown_cell(links, id="links"))
    return notebook


def fold_cells(notebook: NotebookNode) -> None:
    """Tag what the book folds: the first code cell's source, and outputs that are long or that a reader is to guess."""
    imports = next(cell for cell in notebook.cells if cell.cell_type == "code")
    imports.metadata["tags"] = ["hide-input"]
    to_be_guessed = False
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            to_be_guessed = bool(ASKS_FOR_A_GUESS.search(cell.source))
            continue
        outputs = cell.get("outputs", [])
        lines = sum(len(output.get("text", "").splitlines()) for output in outputs)
        is_long = len(outputs) == 1 and lines > MAX_OPEN_LINES
        if outputs and (to_be_guessed or is_long):
            cell.metadata["tags"] = [*cell.metadata.get("tags", []), "hide-output"]
        to_be_guessed = False


def link_within_the_book(link: re.Match[str], path: Path) -> str:
    """Where a notebook's link to a module, to a page of the book or to README leads in the book."""
    target = (path.parent / link[1]).resolve().relative_to(ROOT).as_posix()
    up = "../" * (len(path.relative_to(ROOT).parts) - 1)
    if module := MODULE_PATH.fullmatch(target):
        return f"{up}api/{page_of(module[1])}.md"
    if target.startswith("book/"):
        return f"{up}{target.removeprefix('book/')}"
    return f"{up}index.md" if target in ("README.md", ".") else link[0]


def links_below_title(path: Path, first_cell: str) -> str:
    """The line of links: a lesson's exercises or an exercise's lesson, the modules in its first cell, the notebook."""
    number = path.name[:2]
    if is_lesson(path):
        up = "../"
        links = [f"[Exercises](exercises/{other.name})" for other in exercises() if other.name.startswith(number)]
    else:
        up = "../../"
        links = [f"[Lesson {number}](../{other.name})" for other in lessons() if other.name.startswith(number)]
    for module in dict.fromkeys(MODULE_PATH.findall(first_cell)):
        link = f"Module [`{page_of(module)}`]({up}api/{page_of(module)}.md)"
        if has_source_page(module):
            link += f', its <a href="{up}_modules/vit_tutorial/{module}.html">source</a>'
        links.append(link)
    links.append(f"{{download}}`This notebook, to run </to_run/{path.relative_to(ROOT).as_posix()}>`")
    return line_of_links(links)


def notebook_to_run(path: Path, repository: str) -> NotebookNode:
    """The notebook without its outputs; a lesson of a repository on GitHub with links to Colab and to the book."""
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    if is_lesson(path) and repository.startswith(GITHUB):
        add_badges(notebook, path.stem, repository)
    return notebook
