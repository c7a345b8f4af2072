"""Run the lessons one after the other, or run them and keep their outputs.

python tools/lessons.py run               every lesson: name, seconds, ok or the failing cell with its traceback
python tools/lessons.py run 01 03         those whose names begin so
python tools/lessons.py refresh 01        run it, and write the outputs into the notebook if all went well
python tools/lessons.py fold 01           fold the cells that only draw, without running anything (refresh does it, too)
python tools/lessons.py minutes           how long each lesson takes to read
"""

from __future__ import annotations

import argparse
import ast
import base64
import io
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import nbformat
import numpy as np
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from PIL import Image

NOTEBOOKS = Path(__file__).resolve().parent.parent / "notebooks"
SECONDS_A_CELL = 300
COLOUR_CODES = re.compile(r"\x1b\[[0-9;]*m")
FOLDED = "hide-input"  # the book's tag for what JupyterLab calls jupyter.source_hidden
# Calls that prepare a figure and compute nothing; those that lay an array out count so within a call of plots alone.
PLAIN = re.compile(
    r"list|tuple|dict|set|zip|range|enumerate|len|str|int|float|round|sorted|reversed|min|max|tolist|item|keys|values|"
    r"items|format|join|removesuffix|removeprefix|set_[xy]?(ticks|ticklabels|label|lim|title)"
)
LAYOUT = re.compile(
    r"reshape|view|permute|transpose|flatten|unflatten|unsqueeze|squeeze|expand|movedim|numpy|detach|clone|contiguous|"
    r"cpu|double|long|bool|stack|cat"
)
WORDS_A_MINUTE, SECONDS_A_FIGURE, SECONDS_A_LINE = 200, 12, 4
PICTURE = re.compile(r"(data:image/png;base64,)([A-Za-z0-9+/=]+)")
SEEN = 12  # of 255: a larger difference in a colour could be seen
MUST_HOLD = "# What must hold"  # the first line of a cell of assertions, which a reader needn't see
NOT_READ = re.compile(r"```.*?```|</?\w+(?:\s[^<>]*)?>|(?<=\])\([^)]*\)|^\s*\|[-:| ]+\|\s*$", re.DOTALL | re.MULTILINE)
WORD = re.compile(r"[^\W_][\w'’.,/-]*")


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
    """Write the notebook with metadata that is the same on every machine."""
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    for cell in notebook.cells:
        cell.metadata = {key: cell.metadata[key] for key in ("tags", "nbgrader", "jupyter") if key in cell.metadata}
    write(path, nbformat.writes(notebook) + "\n")


def write(path: Path, text: str) -> None:
    """Write a file, which is never seen half-written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.tmp")
    temporary.write_text(text, encoding="utf-8", newline="")
    temporary.replace(path)


# ---- Pictures: few bytes, so that a notebook opens quickly -----------------------------------------------------------


def lighten(notebook: nbformat.NotebookNode) -> None:
    """Give each picture in the outputs a palette of 256 colours, a third of the bytes, where that can't be seen."""
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            if "image/png" in data:
                data["image/png"] = _lighter(data["image/png"])
            if "text/html" in data:
                data["text/html"] = PICTURE.sub(lambda found: found[1] + _lighter(found[2]), data["text/html"])


def _lighter(png: str) -> str:
    picture = Image.open(io.BytesIO(base64.b64decode(png))).convert("RGB")
    few = picture.quantize(256, dither=Image.Dither.NONE)
    error = np.abs(np.asarray(few.convert("RGB"), dtype=int) - np.asarray(picture, dtype=int))
    out = io.BytesIO()
    (few if error.max() <= SEEN else picture).save(out, format="PNG", optimize=True, dpi=(144, 144))
    return base64.b64encode(out.getvalue()).decode()


# ---- Figures: a cell that only draws is folded, so that its caption and text don't give away what it shows ---------


def only_draws(source: str, later: Sequence[str] = ()) -> bool:
    """Whether a code cell draws, and does nothing else that a reader would want to see.

    It shows a figure (``plots.show``) or a page (``display``); what it calls besides belongs to ``plots``, lays arrays
    out within such a call, or is plain Python; it may assert, and name what the figure needs, as long as no ``later``
    cell uses such a name. It prints nothing, and multiplies no matrices.
    """
    try:
        statements = ast.parse(source).body
    except SyntaxError:  # a magic command
        return False
    shows, names = False, set[str]()
    for statement in statements:
        match statement:
            case ast.Assert():
                continue
            case ast.Assign(targets=targets):
                if not all(isinstance(node, ast.Name | ast.Tuple) for node in targets):
                    return False
                names |= _stored(statement)
            case ast.Expr(value=ast.Call() as call):
                shows = shows or _called(call) in ("plots.show", "plots.show_slider", "display")
            case _:
                return False
        if _computes(statement):
            return False
    return shows and not names & _needed(later)


def _computes(tree: ast.AST, drawing: bool = False) -> bool:
    """Whether a piece of code does more than lay out, or draw, what was there before."""
    if isinstance(tree, ast.Call):
        name = _called(tree)
        if name.startswith("plots.") or name == "display":
            drawing = True
        elif not any(kind.fullmatch(name.rpartition(".")[2]) for kind in ([PLAIN, LAYOUT] if drawing else [PLAIN])):
            return True
    if isinstance(tree, ast.BinOp) and isinstance(tree.op, ast.MatMult):
        return True
    if isinstance(tree, ast.Lambda | ast.NamedExpr | ast.Await | ast.Yield):
        return True
    return any(_computes(child, drawing) for child in ast.iter_child_nodes(tree))


def _called(call: ast.Call) -> str:
    """The dotted name of what is called, as far as it has one: ``plots.show``; ``x[0].view`` is ``.view``."""
    parts, node = [], call.func
    while isinstance(node, ast.Attribute):
        parts, node = [node.attr, *parts], node.value
    dotted = ".".join([node.id if isinstance(node, ast.Name) else "", *parts])
    return dotted.removeprefix("vt.")


def _stored(tree: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def _needed(cells: Sequence[str]) -> set[str]:
    """The names that these cells read before they set them."""
    needed, known = set[str](), set[str]()
    for cell in cells:
        for statement in ast.parse(cell).body:
            own = set().union(*map(_local, ast.walk(statement)))
            read = {n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
            needed |= read - own - known
            known |= _stored(statement) - own
    return needed


def _local(node: ast.AST) -> set[str]:
    """The names that belong to a comprehension or to a function."""
    match node:
        case ast.comprehension(target=target):
            return _stored(target)
        case ast.FunctionDef() | ast.Lambda():
            return _stored(node) | {inner.arg for inner in ast.walk(node.args) if isinstance(inner, ast.arg)}
    return set()


def fold(notebook: nbformat.NotebookNode) -> int:
    """Hide the source of the cells that only draw, or hold assertions, in JupyterLab and in the book; show the others'.

    Returns how many are hidden. Outputs are left as they are.
    """
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for index, cell in enumerate(cells):
        tags = [tag for tag in cell.metadata.get("tags", []) if tag != FOLDED]
        cell.metadata.pop("jupyter", None)
        if cell.source.startswith(MUST_HOLD) or only_draws(cell.source, [other.source for other in cells[index + 1 :]]):
            cell.metadata["jupyter"] = {"source_hidden": True}
            tags.append(FOLDED)
        cell.metadata.pop("tags", None)
        if tags:
            cell.metadata["tags"] = tags
    return sum(map(is_folded, cells))


def is_folded(cell: nbformat.NotebookNode) -> bool:
    return FOLDED in cell.metadata.get("tags", [])


# ---- Reading times --------------------------------------------------------------------------------------------------


def minutes(notebook: nbformat.NotebookNode) -> float:
    """How long a lesson takes to read: its prose, its figures, and the lines of code that aren't folded."""
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    prose = "\n\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    words = len(WORD.findall(NOT_READ.sub(" ", prose)))
    outputs = [output for cell in code for output in cell.get("outputs", [])]
    figures = sum(not {"image/png", "text/html"}.isdisjoint(output.get("data", {})) for output in outputs)
    lines = sum(bool(line.strip()) for cell in code if not is_folded(cell) for line in cell.source.splitlines())
    return words / WORDS_A_MINUTE + (figures * SECONDS_A_FIGURE + lines * SECONDS_A_LINE) / 60


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("run", "refresh", "fold", "minutes"))
    parser.add_argument("lessons", nargs="*", help="beginnings of file names, as in 01; none means all")
    arguments = parser.parse_args()
    failures, started = 0, time.perf_counter()
    lessons = find(arguments.lessons)
    if arguments.command in ("fold", "minutes"):
        for path in lessons:
            notebook = nbformat.read(path, as_version=4)
            if arguments.command == "fold":
                print(f"{path.stem:<24}{fold(notebook):4d} cells folded")
                save(notebook, path)
            else:
                print(f"{path.stem:<24}{minutes(notebook):4.0f} minutes")
        return 0
    for path in lessons:
        start = time.perf_counter()
        notebook, problem = execute(path)
        print(f"{path.stem:<24}{time.perf_counter() - start:6.1f} s  {'FAILED in ' if problem else 'ok'}", end="")
        print(problem if sys.stdout.isatty() else COLOUR_CODES.sub("", problem).rstrip(), flush=True)
        failures += bool(problem)
        if arguments.command == "refresh" and not problem:
            lighten(notebook)
            fold(notebook)
            save(notebook, path)
    print(f"{len(lessons) - failures} of {len(lessons)} lessons ok, {time.perf_counter() - started:.0f} s in all")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
