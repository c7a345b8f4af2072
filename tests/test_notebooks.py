"""The lessons as files. (That they run, and print the outputs they are committed with, is what ``--nbval`` checks.)"""

import inspect
import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import lessons
import nbformat
import pytest
from lessons import FOLDED, add_badges, minutes
from nbval.plugin import get_sanitize_patterns

from vit_tutorial.analysis import scaling
from vit_tutorial.variants import modern, selfsup, tokens, words

ROOT = Path(__file__).resolve().parent.parent
LESSONS = sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))
SECTIONS = ("What goes wrong", "Check yourself", "Summary", "Further reading")
MOST_MINUTES = 45
WHOLE_MODEL = "whole-model"  # lesson 06: a ViT on one page, to be copied in one piece
SKIPS_COMPARISON = re.compile(r"NBVAL_\w+|nbval-[\w-]+|raises-exception", re.IGNORECASE)
OF_THE_MACHINE = {
    "a path": re.compile(r"(?<![\w.])(?:/(?:home|root|tmp|usr|opt|work|Users|mnt|var)/|[A-Z]:\\)"),
    "a warning": re.compile(r"\b\w*Warning\b"),
    "an address in memory": re.compile(r"\bat 0x[0-9a-f]{6,}"),
    "a process's name": re.compile(r"ipykernel_\d+"),
}


@cache
def cells(path: Path, kind: str = "") -> list[dict[str, Any]]:
    """The cells of a notebook, of one kind or all, each source as one string."""
    found = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [cell | {"source": "".join(cell["source"])} for cell in found if kind in ("", cell["cell_type"])]


def outputs(path: Path) -> list[dict[str, Any]]:
    return [output for cell in cells(path, "code") for output in cell["outputs"]]


def text_of(output: dict[str, Any]) -> str:
    """Everything in an output that a reader can read."""
    data = output.get("data", {})
    texts = [data[kind] for kind in data if not kind.startswith("image/")]
    return "\n".join("".join(part) for part in [output.get("text", ""), *texts, *output.get("traceback", [])])


def prose_of(path: Path) -> str:
    return "\n".join(cell["source"] for cell in cells(path, "markdown"))


@pytest.fixture(params=LESSONS, ids=lambda path: path.stem)
def lesson(request: pytest.FixtureRequest) -> Path:
    return request.param


def test_lessons_are_numbered_without_a_gap() -> None:
    assert [path.name[:2] for path in LESSONS] == [f"{number:02}" for number in range(len(LESSONS))]


def test_outputs_come_from_one_run_from_top_to_bottom(lesson: Path) -> None:
    counts = [cell["execution_count"] for cell in cells(lesson, "code")]
    assert counts == list(range(1, len(counts) + 1)), "make refresh"


def test_no_comparison_is_skipped(lesson: Path) -> None:
    for cell in cells(lesson):
        assert not SKIPS_COMPARISON.search(cell["source"] + " ".join(cell["metadata"].get("tags", []))), cell["source"]


def test_outputs_hold_nothing_of_the_machine(lesson: Path) -> None:
    for output in outputs(lesson):
        assert output.get("name") != "stderr", text_of(output)
        assert output["output_type"] != "error", text_of(output)
        for what, pattern in OF_THE_MACHINE.items():
            assert not (found := pattern.search(text_of(output))), f"{what} in an output: {found.group(0)}"


def test_figures_have_alternative_text(lesson: Path) -> None:
    figures = [output for output in outputs(lesson) if "image/png" in output.get("data", {})]
    assert figures, "a lesson without a picture"
    for output in figures:
        assert len(output["metadata"].get("image/png", {}).get("alt", "")) > 20, text_of(output)


def test_cells_are_short_and_end_in_something_to_look_at(lesson: Path) -> None:
    for cell in cells(lesson, "code"):
        if WHOLE_MODEL in cell["metadata"].get("tags", []):
            continue
        lines = [line for line in cell["source"].splitlines() if line.strip()]
        assert len(lines) <= 24, f"{len(lines)} lines: {cell['source'][:80]}"
        assert max(map(len, lines)) <= 120, cell["source"][:80]
        assert cell["outputs"] or FOLDED in cell["metadata"].get("tags", []), cell["source"][:80]


def test_the_source_of_a_figure_is_folded(lesson: Path) -> None:
    # So that its caption doesn't give away what the figure shows.
    for cell in cells(lesson, "code"):
        folded = FOLDED in cell["metadata"].get("tags", [])
        assert folded or "plots.show(" not in cell["source"], f"tag the cell {FOLDED}: {cell['source'][:80]}"
        assert cell["metadata"].get("jupyter") == ({"source_hidden": True} if folded else None), "make refresh"


def test_has_the_sections_of_a_lesson(lesson: Path) -> None:
    prose = prose_of(lesson)
    headings = "\n".join(line for line in prose.splitlines() if line.startswith("#"))
    assert prose.startswith(f"# {lesson.name[:2]} · ")
    for section in SECTIONS[-1:] if lesson == LESSONS[0] else SECTIONS:
        assert section in headings
    if lesson != LESSONS[0]:
        assert prose.count("<details>") >= 3
        assert f"](exercises/{lesson.name})" in prose
    assert prose.count("<details>") == prose.count("</details>")


def test_sections_and_figures_are_numbered_without_a_gap(lesson: Path) -> None:
    # A heading is easily lost with the cell that it stands in.
    sections = [int(number) for number in re.findall(r"^## (\d+) ·", prose_of(lesson), re.MULTILINE)]
    assert sections == list(range(1, len(sections) + 1))
    code = "\n".join(cell["source"] for cell in cells(lesson, "code"))
    figures = re.findall(r"\*\*Figure (\d+)\.(\d+)\.\*\*", code)
    assert figures == [(str(int(lesson.name[:2])), str(number)) for number in range(1, len(figures) + 1)]


TYPED_LINES = {  # the functions whose lines a lesson has in its prose, in this order
    "13": (selfsup.MaskedAutoencoder.predict_patches,),
    "14": (scaling.predict,),
    "15": (modern.ModernMLP.forward, modern.LayerScale.forward, modern.AttentionPool.forward),
    "17": (words.TwoTowers.forward, words.contrastive_loss),
    "19": (tokens.FewerTokens.encode,),
}


def without_indents(text: str) -> str:
    return "\n".join(line.strip() for line in text.splitlines())


@pytest.mark.parametrize(("number", "functions"), TYPED_LINES.items())
def test_a_lesson_types_the_lines_of_the_package(number: str, functions: tuple[Callable[..., Any], ...]) -> None:
    blocks = [block.partition("```")[0] for block in prose_of(LESSONS[int(number)]).split("```python\n")[1:]]
    for block, function in zip(blocks[: len(functions)], functions, strict=True):
        assert without_indents(block).strip() in without_indents(inspect.getsource(function)), function


def test_the_stated_reading_time_is_right(lesson: Path) -> None:
    measured = minutes(nbformat.read(lesson, as_version=4))
    stated = int(re.search(r"^\| (\d+) minutes \|", cells(lesson)[0]["source"], re.MULTILINE)[1])
    row = rf"\]\(notebooks/{lesson.name}\) \|.*\| {stated}\smin \|"
    assert re.search(row, (ROOT / "README.md").read_text("utf-8")), "README's table has another time"
    assert abs(stated - measured) <= max(0.1 * measured, 2.5), f"{stated} minutes are stated, it takes {measured:.0f}"
    assert measured <= MOST_MINUTES, "cut it, or split it at a named break"


def test_the_solved_exercises_of_some_lessons_are_run(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[Path] = []
    monkeypatch.setattr(lessons, "run", lambda path, refresh: not ran.append(path))
    assert lessons.main(["run", "--solutions", "01", "03"]) == 0  # as make assignments asks for them
    assert [(path.parent.name, path.name[:2]) for path in ran] == [("solutions", "01"), ("solutions", "03")]


def test_a_second_repository_s_badges_replace_those_of_the_first() -> None:
    notebook = nbformat.read(LESSONS[1], as_version=4)
    before = notebook.cells[0].source
    for url in ("https://github.com/they/old", "https://github.com/you/vit.git"):
        add_badges(notebook, "01_patches", url)
    title, badges, rest = notebook.cells[0].source.split("\n\n", 2)
    assert f"{title}\n\n{rest}" == before
    colab, book = re.findall(r"\]\((.+?)\)", badges)
    assert colab == "https://colab.research.google.com/github/you/vit/blob/main/notebooks/01_patches.ipynb"
    assert book == "https://you.github.io/vit/notebooks/01_patches.html"


def sanitised(text: str) -> str:
    for pattern, replacement in get_sanitize_patterns((ROOT / "tests/nbval_sanitize.cfg").read_text("ascii")):
        text = re.sub(pattern, replacement, text)
    return text


SCRIPT = '<script type="application/json">{}</script><script>draw()</script>'


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        ("loss ≈  9.50 |", "loss ≈ 10.25 |", True),
        ("≈ -0.5 and ≈ 1,234,567 pixels", "≈ 1.5e-05 and ≈ 9 pixels", True),
        ("right in ≈ 93 % of 360", "right in ≈ 93 % of 361", False),
        ("≈ 0.93", "≈ nan", False),
        ("≈ 0.93", "0.93", False),
        ("0.93", "0.94", False),
        (SCRIPT.format('{"maps": "AB"}'), SCRIPT.format('{"maps": "C", "side": 8}'), True),
        (SCRIPT.format("1"), SCRIPT.format("1").replace("draw", "erase"), False),
        ('<img src="data:image/png;base64,iVBO" alt="A">', '<img src="data:image/png;base64,iVBP" alt="A">', True),
        ('<img src="data:image/png;base64,iVBO" alt="A">', '<img src="data:image/png;base64,iVBO" alt="B">', False),
    ],
)
def test_what_the_sanitiser_leaves_out_of_the_comparison(one: str, other: str, equal: bool) -> None:
    assert (sanitised(one) == sanitised(other)) is equal
