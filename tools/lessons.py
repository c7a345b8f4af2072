"""Run the lessons one after the other, or run them and keep their outputs.

python tools/lessons.py run               every lesson: name, seconds, ok or the failing cell with its traceback
python tools/lessons.py run 01 03         those whose names begin so
python tools/lessons.py refresh 01        run it, and write the outputs into the notebook if all went well
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
SECONDS_A_CELL = 300
COLOUR_CODES = re.compile(r"\x1b\[[0-9;]*m")


def find(names: list[str], folder: Path | None = None) -> list[Path]:
    """The lessons whose file names begin with one of ``names``; all for none."""
    lessons = sorted((folder or NOTEBOOKS).glob("[0-9][0-9]_*.ipynb"))
    chosen = [path for path in lessons if not names or path.name.startswith(tuple(names))]
    unknown = [name for name in names if not any(path.name.startswith(name) for path in lessons)]
    if unknown or not chosen:
        raise SystemExit(f"no lesson begins with {', '.join(unknown) or 'anything'}: there are "
                         f"{', '.join(path.stem for path in lessons) or 'none'}")  # fmt: skip
    return chosen


def execute(path: Path) -> tuple[nbformat.NotebookNode, str]:
    """Run a notebook from a fresh kernel; return it with its outputs, and what went wrong ("" if nothing did)."""
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook,
        timeout=SECONDS_A_CELL,
        kernel_name="python3",
        resources={"metadata": {"path": str(path.parent)}},
        record_timing=False,
        extra_arguments=["--log-level=ERROR"],  # a kernel warns about its local sockets at every start
        coalesce_streams=True,
    )
    try:
        client.execute()
    except CellExecutionError as error:
        return notebook, f"{_failed_cell(notebook)}\n{error}"
    except (CellTimeoutError, DeadKernelError) as error:
        return notebook, f"{_failed_cell(notebook)}: {error}"
    return notebook, ""


def _failed_cell(notebook: nbformat.NotebookNode) -> str:
    for index, cell in enumerate(notebook.cells):
        if any(output.output_type == "error" for output in cell.get("outputs", [])):
            return f"cell {index}"
    return "a cell"


def save(notebook: nbformat.NotebookNode, path: Path) -> None:
    """Write the notebook with metadata that is the same on every machine; the old file stays until the new is whole."""
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    for cell in notebook.cells:
        cell.metadata = {key: cell.metadata[key] for key in ("tags", "nbgrader") if key in cell.metadata}
    temporary = path.with_suffix(".tmp")
    nbformat.write(notebook, temporary)
    temporary.replace(path)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("run", "refresh"))
    parser.add_argument("lessons", nargs="*", help="beginnings of file names, as in 01; none means all")
    arguments = parser.parse_args()
    failures, started = 0, time.perf_counter()
    lessons = find(arguments.lessons)
    for path in lessons:
        start = time.perf_counter()
        notebook, problem = execute(path)
        print(f"{path.stem:<24}{time.perf_counter() - start:6.1f} s  {'FAILED in ' if problem else 'ok'}", end="")
        print(problem if sys.stdout.isatty() else COLOUR_CODES.sub("", problem).rstrip(), flush=True)
        failures += bool(problem)
        if arguments.command == "refresh" and not problem:
            save(notebook, path)
    print(f"{len(lessons) - failures} of {len(lessons)} lessons ok, {time.perf_counter() - started:.0f} s in all")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
