"""The lessons as files. (That they run, and give the outputs they are committed with, is what ``--nbval`` checks.)"""

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
LESSONS = sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))
MODULES = {
    "01": "patches",
    "02": "embeddings",
    "03": "attention",
    "04": "mlp",
    "05": "encoder",
    "06": "vit",
    "07": "train",
    "08": "explain",
    "09": "weights",
    "10": "train",
}
# {(lesson, marker): why its output can't be compared}; such a cell asserts instead.
SKIPS: dict[tuple[str, str], str] = {}
MARKER = re.compile(r"NBVAL_\w+|nbval-[\w-]+|raises-exception", re.IGNORECASE)
FORBIDDEN = {
    "a path": re.compile(r"(?<![\w.])(?:/(?:home|root|tmp|usr|opt|work|Users|mnt|var)/|[A-Z]:\\)"),
    "a warning": re.compile(r"\b\w*Warning\b"),
    "an address": re.compile(r"\b0x[0-9a-f]{6,}"),
    "a process's name": re.compile(r"ipykernel_\d+"),
}
SECTIONS = ("What goes wrong", "Check yourself", "Summary", "Further reading")


def cells(path: Path, kind: str = "") -> list[dict[str, Any]]:
    """The cells of a notebook, each source joined to one string."""
    found = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [cell | {"source": "".join(cell["source"])} for cell in found if kind in ("", cell["cell_type"])]


def outputs(path: Path) -> list[dict[str, Any]]:
    return [output for cell in cells(path, "code") for output in cell["outputs"]]


def text_of(output: dict[str, Any]) -> str:
    """Everything of an output that a reader can read."""
    data = output.get("data", {})
    texts = [data[kind] for kind in data if not kind.startswith("image/")]
    return "\n".join("".join(part) for part in [output.get("text", ""), *texts, *output.get("traceback", [])])


def imported(path: Path) -> set[str]:
    code = "\n".join(cell["source"] for cell in cells(path, "code"))
    names = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom):
            names |= {node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)}
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return names


@pytest.fixture(params=LESSONS, ids=lambda path: path.stem)
def lesson(request: pytest.FixtureRequest) -> Path:
    return request.param


def test_the_series_is_complete() -> None:
    assert [path.name[:2] for path in LESSONS] == ["00", *MODULES]


def test_run_from_top_to_bottom(lesson: Path) -> None:
    counts = [cell["execution_count"] for cell in cells(lesson, "code")]
    assert counts == list(range(1, len(counts) + 1)), "restart and run all: make refresh"


def test_imports_its_module(lesson: Path) -> None:
    names = imported(lesson)
    module = MODULES.get(lesson.name[:2])
    assert (f"vit_tutorial.{module}" if module else "vit_tutorial") in names


def test_asserts_what_it_says(lesson: Path) -> None:
    code = "\n".join(cell["source"] for cell in cells(lesson, "code"))
    assert sum(isinstance(node, ast.Assert) for node in ast.walk(ast.parse(code))) >= 5


def test_skips_no_comparison_without_a_reason(lesson: Path) -> None:
    for cell in cells(lesson):
        marked = cell["source"] + " ".join(cell["metadata"].get("tags", []))
        for marker in MARKER.findall(marked):
            assert (lesson.stem, marker) in SKIPS, f"{marker} is not on the allow-list: {cell['source'][:80]}"


def test_outputs_hold_nothing_of_the_machine(lesson: Path) -> None:
    for output in outputs(lesson):
        assert output.get("name") != "stderr", text_of(output)
        assert output["output_type"] != "error", text_of(output)
        for what, pattern in FORBIDDEN.items():
            assert not (found := pattern.search(text_of(output))), f"{what} in an output: {found.group(0)}"


def test_figures_have_alternative_text(lesson: Path) -> None:
    figures = [output for output in outputs(lesson) if "image/png" in output.get("data", {})]
    assert figures, "a lesson without a picture"
    for output in figures:
        assert len(output["metadata"].get("image/png", {}).get("alt", "")) > 20, text_of(output)


def test_cells_are_short(lesson: Path) -> None:
    for cell in cells(lesson, "code"):
        lines = [line for line in cell["source"].splitlines() if line.strip()]
        assert len(lines) <= 24, f"{len(lines)} lines: {cell['source'][:80]}"
        assert max(map(len, lines)) <= 120, cell["source"][:80]
        assert not lines[-1].startswith("#"), f"prose at the end of a code cell: {lines[-1]}"


def test_every_cell_ends_in_something_to_look_at(lesson: Path) -> None:
    silent = [cell["source"] for cell in cells(lesson, "code") if not cell["outputs"]]
    assert not silent, silent[0]


def test_has_the_shape_of_a_lesson(lesson: Path) -> None:
    prose = "\n".join(cell["source"] for cell in cells(lesson, "markdown"))
    assert prose.startswith(f"# {lesson.name[:2]} · ")
    headings = [line.lstrip("# ").strip() for line in prose.splitlines() if line.startswith("#")]
    for section in SECTIONS if lesson.name[:2] != "00" else SECTIONS[-1:]:
        assert any(section in heading for heading in headings), section
    assert lesson.name[:2] == "00" or prose.count("<details>") >= 3
    assert prose.count("<details>") == prose.count("</details>")
    assert "!" not in re.sub(r"!\[|!=|`[^`]*`|\$[^$]*\$", "", prose), "no exclamation marks"


def test_links_to_its_exercises(lesson: Path) -> None:
    prose = "\n".join(cell["source"] for cell in cells(lesson, "markdown"))
    assert lesson.name[:2] == "00" or f"](exercises/{lesson.name})" in prose


def test_links_lead_somewhere(lesson: Path) -> None:
    prose = "\n".join(cell["source"] for cell in cells(lesson, "markdown"))
    for target in re.findall(r"\]\(([^)\s]+)\)", prose):
        if not target.startswith(("http://", "https://", "#")):
            assert (lesson.parent / target.split("#")[0]).exists(), target


def test_names_no_machine_in_its_metadata(lesson: Path) -> None:
    metadata = json.loads(lesson.read_text(encoding="utf-8"))["metadata"]
    assert metadata["kernelspec"]["name"] == "python3"
    assert metadata["language_info"] == {"name": "python"}
