"""Run the lessons, or run them and keep their outputs.

python tools/lessons.py run               every lesson: name, seconds, ok or the failing cell with its traceback
python tools/lessons.py run 01 03         those whose names begin so
python tools/lessons.py refresh 01        run it, and write the outputs into the notebook if every cell passed
python tools/lessons.py minutes           how long each lesson takes to read

With --solutions it is about the exercises' solved sources instead.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

NOTEBOOKS = Path(__file__).resolve().parent.parent / "notebooks"
SOLUTIONS, EXERCISES = NOTEBOOKS / "solutions", NOTEBOOKS / "exercises"
SECONDS_PER_CELL = 300
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
    """Replace a file in one step, so that nobody reads half of it."""
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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("run", "refresh", "minutes"))
    parser.add_argument("lessons", nargs="*", help="beginnings of file names, as in 01; none means all")
    parser.add_argument("--solutions", action="store_const", const=SOLUTIONS, default=NOTEBOOKS, dest="folder")
    arguments = parser.parse_args()
    try:
        paths = find(arguments.lessons, arguments.folder)
    except ValueError as error:
        parser.error(str(error))
    failures = 0
    for path in paths:
        if arguments.command == "minutes":
            print(f"{path.stem:<28}{minutes(nbformat.read(path, as_version=4)):4.0f} minutes")
            continue
        start = time.perf_counter()
        notebook, error = execute(path)
        status = f"FAILED in {error}" if error else "ok"
        print(f"{path.stem:<28}{time.perf_counter() - start:6.1f} s  {status}", flush=True)
        failures += bool(error)
        if arguments.command == "refresh" and not error:
            save(notebook, path)
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
