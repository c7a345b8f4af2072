"""Run the lessons, keep their outputs, measure their reading time, link them to Colab and the book.

python tools/lessons.py run               every lesson: name, seconds, ok or the failing cell with its traceback
python tools/lessons.py run 01 03         lessons whose file names begin with 01 or 03
python tools/lessons.py refresh 01        run lesson 01, and write the outputs into the notebook if every cell passed
python tools/lessons.py minutes           how long each lesson takes to read
python tools/lessons.py badges URL        links to Colab and to the book, for the repository on GitHub with that address

With --solutions, run and refresh take the solved exercises in place of the lessons.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

NOTEBOOKS = Path(__file__).resolve().parent.parent / "notebooks"
SOLUTIONS, EXERCISES = NOTEBOOKS / "solutions", NOTEBOOKS / "exercises"
SECONDS_PER_CELL = 300
GITHUB = "https://github.com/"
FOLDED = "hide-input"  # the author's tag for a cell whose source is folded
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
WORDS_PER_MINUTE, SECONDS_PER_FIGURE, SECONDS_PER_LINE = 200, 12, 4
NOT_PROSE = re.compile(r"```.*?```|</?\w+(?:\s[^<>]*)?>|(?<=\])\([^)]*\)|^\s*\|[-:| ]+\|\s*$", re.DOTALL | re.MULTILINE)
WORD = re.compile(r"[^\W_][\w'’.,/-]*")


def find(names: list[str], folder: Path = NOTEBOOKS) -> list[Path]:
    """The notebooks of ``folder`` whose file names begin with one of ``names``; all if there are no names.

    Raises:
        ValueError: none begins with one of the names.
    """
    lessons = sorted(folder.glob("[0-9][0-9]_*.ipynb"))
    for name in names:
        if not any(path.name.startswith(name) for path in lessons):
            raise ValueError(f"no lesson begins with {name}: there are {', '.join(path.stem for path in lessons)}")
    return [path for path in lessons if not names or path.name.startswith(tuple(names))]


def execute(path: Path) -> tuple[nbformat.NotebookNode, str]:
    """Run a notebook in a new kernel. Returns it with its outputs, and the error, which is "" if every cell passed."""
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook,
        timeout=SECONDS_PER_CELL,
        kernel_name="python3",
        resources={"metadata": {"path": str(path.parent)}},
        record_timing=False,
        extra_arguments=["--log-level=ERROR"],  # a kernel warns about its local sockets at every start
        coalesce_streams=True,
    )
    try:
        client.execute()
    except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
        return notebook, f"{_failed_cell(notebook)}\n{error}"
    return notebook, ""


def _failed_cell(notebook: nbformat.NotebookNode) -> str:
    for index, cell in enumerate(notebook.cells):
        if any(output.output_type == "error" for output in cell.get("outputs", [])):
            return f"cell {index}"
    return "a cell"


def save(notebook: nbformat.NotebookNode, path: Path) -> None:
    """Write the notebook with metadata that is the same on every machine; JupyterLab folds the cells tagged FOLDED."""
    notebook.metadata = METADATA
    for cell in notebook.cells:
        cell.metadata = {key: cell.metadata[key] for key in ("nbgrader", "tags") if key in cell.metadata}
        if FOLDED in cell.metadata.get("tags", []):
            cell.metadata["jupyter"] = {"source_hidden": True}
    write(path, nbformat.writes(notebook) + "\n")


def write(path: Path, text: str) -> None:
    """Replace a file in one step, so that nobody reads half of it. (The package's own function would load torch.)"""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.tmp")
    temporary.write_text(text, encoding="utf-8", newline="")
    temporary.replace(path)


def minutes(notebook: nbformat.NotebookNode) -> float:
    """How long a lesson takes to read: its prose, its figures, and the lines of code that aren't folded."""
    prose = "\n\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    visible = [cell for cell in code if FOLDED not in cell.metadata.get("tags", [])]
    kinds = [output.get("data", {}).keys() for cell in code for output in cell.outputs]
    words = len(WORD.findall(NOT_PROSE.sub(" ", prose)))
    figures = sum(bool({"image/png", "text/html"} & kind) for kind in kinds)
    lines = sum(bool(line.strip()) for cell in visible for line in cell.source.splitlines())
    return words / WORDS_PER_MINUTE + (figures * SECONDS_PER_FIGURE + lines * SECONDS_PER_LINE) / 60


def add_badges(notebook: nbformat.NotebookNode, name: str, url: str) -> None:
    """Put links to Colab and to the book below a lesson's title, in place of those that may stand there.

    Args:
        notebook: the lesson, which is changed.
        name: its file's name without the ending.
        url: the repository's address, https://github.com/OWNER/NAME; its book is at https://OWNER.github.io/NAME.
    """
    owner, repository = urlsplit(url).path.strip("/").removesuffix(".git").split("/")
    colab = f"https://colab.research.google.com/github/{owner}/{repository}/blob/main/notebooks/{name}.ipynb"
    book = f"https://{owner}.github.io/{repository}/notebooks/{name}.html"
    title, *rest = notebook.cells[0].source.split("\n\n")
    rest = [paragraph for paragraph in rest if not paragraph.startswith("[Open in Colab]")]
    notebook.cells[0].source = "\n\n".join([title, f"[Open in Colab]({colab}) · [In the book]({book})", *rest])


def write_badges(url: str) -> None:
    for path in find([]):
        notebook = nbformat.read(path, as_version=4)
        add_badges(notebook, path.stem, url)
        save(notebook, path)


def run(path: Path, *, refresh: bool) -> bool:
    """Run a notebook, print how it went, and keep its outputs if that is wished and every cell passed."""
    start = time.perf_counter()
    notebook, error = execute(path)
    status = f"FAILED in {error}" if error else "ok"
    print(f"{path.stem:<28}{time.perf_counter() - start:6.1f} s  {status}", flush=True)
    if refresh and not error:
        save(notebook, path)
    return not error


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("run", "refresh", "minutes", "badges"))
    parser.add_argument("names", nargs="*", help="beginnings of file names, such as 01 (none: all lessons); or the URL")
    parser.add_argument("--solutions", action="store_const", const=SOLUTIONS, default=NOTEBOOKS, dest="folder")
    arguments = parser.parse_intermixed_args(words)  # names may follow --solutions
    if arguments.command == "badges":
        if len(arguments.names) != 1 or not arguments.names[0].startswith(GITHUB):
            parser.error(f"badges needs the repository's address, such as {GITHUB}you/vit_tutorial")
        write_badges(arguments.names[0])
        return 0
    try:
        paths = find(arguments.names, arguments.folder)
    except ValueError as error:
        parser.error(str(error))
    if arguments.command == "minutes":
        for path in paths:
            print(f"{path.stem:<28}{minutes(nbformat.read(path, as_version=4)):4.0f} minutes")
        return 0
    passed = [run(path, refresh=arguments.command == "refresh") for path in paths]
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
