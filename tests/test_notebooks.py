"""The lessons as files. (That they run, and give the outputs they are committed with, is what ``--nbval`` checks.)"""

import ast
import hashlib
import json
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import lessons as tool
import nbformat
import pytest

ROOT = Path(__file__).resolve().parent.parent
LESSONS = sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))
# {(lesson, marker): why its output can't be compared}; such a cell asserts instead.
SKIPS: dict[tuple[str, str], str] = {}
MARKER = re.compile(r"NBVAL_\w+|nbval-[\w-]+|raises-exception", re.IGNORECASE)
FORBIDDEN = {
    "a path": re.compile(r"(?<![\w.])(?:/(?:home|root|tmp|usr|opt|work|Users|mnt|var)/|[A-Z]:\\)"),
    "a warning": re.compile(r"\b\w*Warning\b"),
    "an address": re.compile(r"\bat 0x[0-9a-f]{6,}"),  # as Python prints it; a page may have such numbers of its own
    "a process's name": re.compile(r"ipykernel_\d+"),
}
# A boolean that stands where a reader wants the number: "above 97 %: True".
BOUND = re.compile(
    r"\b(?:above|below|more than|less than|at least|under|within|over)\b.*(?:True|False)"
    r"|(?:\b(?:beyond|more|less|fewer|at most|up to|higher|lower|larger|smaller|greater|better|worse|faster|slower|"
    r"wider|surer|between|costs?)\b|\d ?%|[<>]).*[:?]\s+(?:True|False)\b"
)
APPROXIMATELY = re.compile(r"≈\s*[-+−]?\d")
# What older lessons still owe, and how much of it. A lesson takes its lines out as it mends them; none is added.
DEBTS: dict[str, dict[str, int]] = tomllib.loads((ROOT / "tests/lesson_debts.toml").read_text(encoding="utf-8"))
KINDS_OF_DEBT = {"booleans", "minutes", "too_long", "sliced_source", "figures_of_others"}
MOST_MINUTES = 45
SECTIONS = ("What goes wrong", "Check yourself", "Summary", "Further reading")


@cache
def cells(path: Path, kind: str = "") -> list[dict[str, Any]]:
    """The cells of a notebook, each source joined to one string; without the one that `make publish` puts in front."""
    found = json.loads(path.read_text(encoding="utf-8"))["cells"]
    own = [cell for cell in found if cell.get("id") != "published-install"]
    return [cell | {"source": "".join(cell["source"])} for cell in own if kind in ("", cell["cell_type"])]


@cache
def outputs(path: Path) -> list[dict[str, Any]]:
    return [output for cell in cells(path, "code") for output in cell["outputs"]]


def text_of(output: dict[str, Any]) -> str:
    """Everything of an output that a reader can read."""
    data = output.get("data", {})
    texts = [data[kind] for kind in data if not kind.startswith("image/")]
    return "\n".join("".join(part) for part in [output.get("text", ""), *texts, *output.get("traceback", [])])


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse("\n".join(cell["source"] for cell in cells(path, "code")))


def prose_of(path: Path) -> str:
    return "\n".join(cell["source"] for cell in cells(path, "markdown"))


def imported(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.ImportFrom):
            names |= {node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)}
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return names


@pytest.fixture(params=LESSONS, ids=lambda path: path.stem)
def lesson(request: pytest.FixtureRequest) -> Path:
    return request.param


def test_every_lesson_has_a_number_of_its_own() -> None:
    numbers = [path.name[:2] for path in LESSONS]
    assert numbers[:11] == [f"{number:02}" for number in range(11)]
    assert len(set(numbers)) == len(numbers)


def test_run_from_top_to_bottom(lesson: Path) -> None:
    counts = [cell["execution_count"] for cell in cells(lesson, "code")]
    assert counts == list(range(1, len(counts) + 1)), "restart and run all: make refresh"


def test_imports_its_module(lesson: Path) -> None:
    # The first of those that its first cell names is its own.
    named = re.findall(r"`vit_tutorial/([\w/]+?)(?:\.py|/)`", cells(lesson)[0]["source"])
    assert ("vit_tutorial." + named[0].replace("/", ".") if named else "vit_tutorial") in imported(lesson)
    assert named or lesson.name[:2] == "00"


def test_asserts_what_it_says(lesson: Path) -> None:
    assert sum(isinstance(node, ast.Assert) for node in ast.walk(tree_of(lesson))) >= 5


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
    silent = [source for source in silent if not source.startswith(tool.MUST_HOLD)]
    assert not silent, silent[0]


def test_has_the_shape_of_a_lesson(lesson: Path) -> None:
    prose = prose_of(lesson)
    assert prose.startswith(f"# {lesson.name[:2]} · ")
    headings = [line.lstrip("# ").strip() for line in prose.splitlines() if line.startswith("#")]
    for section in SECTIONS if lesson.name[:2] != "00" else SECTIONS[-1:]:
        assert any(section in heading for heading in headings), section
    assert lesson.name[:2] == "00" or prose.count("<details>") >= 3
    assert prose.count("<details>") == prose.count("</details>")
    assert "!" not in re.sub(r"!\[|!=|`[^`]*`|\$[^$]*\$", "", prose), "no exclamation marks"


def test_links_to_its_exercises(lesson: Path) -> None:  # that links lead somewhere: tests/test_markdown.py
    assert lesson.name[:2] == "00" or f"](exercises/{lesson.name})" in prose_of(lesson)


def test_names_no_machine_in_its_metadata(lesson: Path) -> None:
    metadata = json.loads(lesson.read_text(encoding="utf-8"))["metadata"]
    assert metadata["kernelspec"]["name"] == "python3"
    assert metadata["language_info"] == {"name": "python"}


# ---- What a reader sees -------------------------------------------------------------------------------------------


def assert_owed(lesson: Path, kind: str, found: list[str]) -> None:
    """The faults found are as many as the list of debts says: not one more, and not one fewer, so that it shrinks."""
    owed = DEBTS.get(lesson.name[:2], {}).get(kind, 0)
    listed = "\n".join(found)
    assert len(found) <= owed, f"{kind}: {len(found)}, where tests/lesson_debts.toml allows {owed}:\n{listed}"
    assert len(found) == owed, (
        f"{kind}: {owed} in tests/lesson_debts.toml, {len(found)} now: lower it, or drop the line"
    )


def test_the_debts_are_those_of_lessons() -> None:
    assert set(DEBTS) <= {path.name[:2] for path in LESSONS}
    for owed in DEBTS.values():
        assert set(owed) <= KINDS_OF_DEBT
        assert min(owed.values()) > 0


def test_what_is_measured_is_printed_as_a_number(lesson: Path) -> None:
    lines = [line for output in outputs(lesson) for line in "".join(output.get("text", "")).splitlines()]
    assert_owed(lesson, "booleans", [line for line in lines if BOUND.search(line)])


def test_a_number_that_may_differ_is_asserted(lesson: Path) -> None:
    code = cells(lesson, "code")
    for cell, after in zip(code, [*code[1:], {"source": ""}], strict=True):
        printed = "".join("".join(output.get("text", "")) for output in cell["outputs"])
        if APPROXIMATELY.search(printed):
            both = ast.parse(cell["source"] + "\n" + after["source"])
            assert any(isinstance(node, ast.Assert) for node in ast.walk(both)), cell["source"][:80]


def test_cells_that_only_draw_are_folded_and_no_others(lesson: Path) -> None:
    kept, made = (nbformat.read(lesson, as_version=4) for _ in range(2))
    tool.fold(made)
    for one, other in zip(kept.cells, made.cells, strict=True):
        assert one.metadata == other.metadata, f"make refresh, or tools/lessons.py fold: {one.source[:80]}"


def test_what_draws_stands_in_a_cell_of_its_own(lesson: Path) -> None:
    # So that it can be folded, and its caption doesn't tell what the figure shows before it is seen.
    for cell in cells(lesson, "code"):
        if "plots.show(" in cell["source"]:
            assert tool.FOLDED in cell["metadata"].get("tags", []), cell["source"][:80]


def numbered(prose: str) -> list[str]:
    """What is wrong with the numbers of a lesson's sections, and with the places that name one."""
    sections = [int(number) for number in re.findall(r"^## (\d+) ·", prose, re.MULTILINE)]
    wrong = [f"sections {sections}"] * (sections != list(range(1, len(sections) + 1)))
    named = re.findall(r"^(?:.*[^\w.])?sections? (\d+)(?![.\d])(?! of the paper)", prose, re.MULTILINE | re.IGNORECASE)
    return wrong + [f"section {number} is named" for number in named if int(number) not in sections]


def test_sections_are_numbered_without_a_gap_and_those_that_are_named_exist(lesson: Path) -> None:
    # A heading is easily lost with the cell that it stands in.
    assert not numbered("\n".join(cell["source"] for cell in cells(lesson)))


def test_figures_are_numbered_without_a_gap(lesson: Path) -> None:
    drawn = "\n".join(cell["source"] for cell in cells(lesson, "code"))
    found = re.findall(r"\*\*Figure (\d+)\.(\d+)\.\*\*", drawn)
    assert found == [(str(int(lesson.name[:2])), str(number)) for number in range(1, len(found) + 1)]


def test_the_reading_time_holds(lesson: Path) -> None:
    minutes = tool.minutes(nbformat.read(lesson, as_version=4))
    stated = int(re.search(r"^\| (\d+) minutes \|", cells(lesson)[0]["source"], re.MULTILINE)[1])
    (listed,) = re.findall(
        rf"\]\(notebooks/{lesson.name}\) \|.*\| (\d+)\smin \|", (ROOT / "README.md").read_text("utf-8")
    )
    assert int(listed) == stated, "README's table and the lesson"
    wrong = abs(stated - minutes) > max(0.1 * minutes, 2.5)
    assert_owed(lesson, "minutes", [f"{stated} minutes are stated, it takes {minutes:.0f}"] * wrong)
    long = minutes > MOST_MINUTES
    assert_owed(lesson, "too_long", [f"{minutes:.0f} minutes: cut it, or split it at a named break"] * long)


def sliced(source: str) -> Iterator[str]:
    """What a cell does to a source but print it whole: ``print(inspect.getsource(thing))``, ``.rstrip()`` at most.

    Whoever edits the printed code can't know that a lesson looks for a line in it. Nor is a private name printed.
    """
    tree = ast.parse(source)
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(attr="getsource") | ast.Name(id="getsource"), args=[thing]):
                around = parents[node]
                while isinstance(around, ast.Attribute) and around.attr in ("strip", "rstrip"):
                    around = parents[parents[around]]
                if not (isinstance(around, ast.Call) and ast.unparse(around.func) in ("print", "textwrap.dedent")):
                    yield f"cuts up {ast.unparse(node)}"
                if re.search(r"(?:^|\.)_", ast.unparse(thing)):
                    yield f"prints the private {ast.unparse(thing)}"
            case ast.Attribute(attr="getsourcelines" | "__file__") | ast.Name(id="getsourcelines"):
                yield f"cuts up {ast.unparse(node)}"


def test_source_is_printed_whole(lesson: Path) -> None:
    found = [what for cell in cells(lesson, "code") for what in sliced(cell["source"])]
    assert_owed(lesson, "sliced_source", found)


def test_no_figure_stands_twice_in_the_series() -> None:
    seen: dict[str, Path] = {}
    twice: dict[Path, list[str]] = {path: [] for path in LESSONS}
    for path in LESSONS:
        for output in outputs(path):
            if "image/png" in output.get("data", {}):
                picture = hashlib.sha256("".join(output["data"]["image/png"]).encode()).hexdigest()
                if picture in seen:
                    twice[path].append(f"{output['metadata']['image/png']['alt']} (also in {seen[picture].name})")
                seen.setdefault(picture, path)
    for path, found in twice.items():
        assert_owed(path, "figures_of_others", found)


def test_each_detector_finds_a_fault_and_leaves_what_is_right() -> None:
    assert BOUND.search("test accuracy above 97 %: True")
    assert BOUND.search("difference < 1e-6: True")
    assert not BOUND.search("same as the loop: True")
    assert numbered("## 1 · A\n## 3 · B")
    assert numbered("## 1 · A\nas section 4 shows")
    assert not numbered("## 1 · A\n## 2 · B\nsection 2 says so (section 3.1 of the paper, too)\n## Summary")
    assert list(sliced("print(inspect.getsource(fit).split('for epoch')[1])"))
    assert not list(sliced("print(inspect.getsource(vt.patchify).rstrip())"))
