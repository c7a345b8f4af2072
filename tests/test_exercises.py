"""The exercise notebooks: solved sources, and the students' copies that nbgrader makes of them."""

import contextlib
import importlib.util
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

from vit_tutorial import checks

ROOT = Path(__file__).resolve().parent.parent
SOLUTIONS = sorted((ROOT / "notebooks" / "solutions").glob("*.ipynb"))
FLAGS = {  # grade, locked, solution
    "given": (False, True, False),
    "solution": (False, False, True),
    "check": (True, True, False),
    "answer": (True, False, True),
}
TRAINED = ("01", "04", "05", "06", "07", "08", "10")  # these take seconds each
NBGRADER = importlib.util.find_spec("nbgrader") is not None
PARTS = ("What each exercise trains", "Marking the open question")
needs_nbgrader = pytest.mark.skipif(not NBGRADER, reason="nbgrader is not installed: pip install -e .[teach]")


def cells(path: Path, kind: str = "") -> list[dict[str, Any]]:
    """The cells of a notebook, each source joined to one string; ``kind`` is code, markdown or one of FLAGS."""
    found = json.loads(path.read_text(encoding="utf-8"))["cells"]
    found = [cell | {"source": "".join(cell["source"])} for cell in found]
    return [cell for cell in found if kind in ("", cell["cell_type"], role(cell))]


def role(cell: dict[str, Any]) -> str:
    """What a cell is for nbgrader: one of FLAGS, or ""."""
    data = cell["metadata"].get("nbgrader")
    flags = data and (data["grade"], data["locked"], data["solution"])
    return next((name for name, value in FLAGS.items() if value == flags), "")


def copy_of(source: Path) -> Path:
    return ROOT / "notebooks" / "exercises" / source.name


@pytest.fixture(params=SOLUTIONS, ids=lambda path: path.stem)
def source(request) -> Path:
    return request.param


# ---- The solved sources ------------------------------------------------------------------------------------------


def test_every_lesson_but_00_has_exercises_and_a_copy_for_students():
    lessons = [path.name for path in sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))[1:]]
    assert [path.name for path in SOLUTIONS] == lessons
    assert all(copy_of(source).exists() for source in SOLUTIONS)


def test_every_exercise_of_the_catalogue_is_in_a_notebook():
    stems = {path.stem[:2]: path.stem for path in SOLUTIONS}
    for exercise in checks.CATALOGUE.values():
        (path,) = [path for path in SOLUTIONS if path.stem == stems[exercise.lesson]]
        code = "\n".join(cell["source"] for cell in cells(path, "check"))
        assert code.count(f"checks.check_{exercise.name}(") == 1, exercise.name


def test_has_the_name_of_its_lesson(source):
    assert (ROOT / "notebooks" / source.name).exists()
    title = cells(source)[0]["source"].splitlines()[0]
    assert re.fullmatch(rf"# {source.stem[:2]} · .+: exercises", title)
    assert f"(../{source.name})" in cells(source)[0]["source"]


def test_nbgrader_knows_every_cell(source):
    names = []
    for cell in cells(source):
        data = cell["metadata"].get("nbgrader")
        if data is None:
            assert "SOLUTION" not in cell["source"]
            assert "HIDDEN" not in cell["source"]
            continue
        assert role(cell), data
        assert data["schema_version"] == 3
        assert set(data) == {"grade", "grade_id", "locked", "schema_version", "solution", "task"} | (
            {"points"} if data["grade"] else set()
        )
        names.append(data["grade_id"])
    assert len(set(names)) == len(names)
    graded = cells(source, "check") + cells(source, "answer")
    points = sum(cell["metadata"]["nbgrader"]["points"] for cell in graded)
    assert points == checks.POINTS, f"the cells give {points} points, not {checks.POINTS}"
    assert all(cell["metadata"]["nbgrader"]["points"] > 0 for cell in graded)


def test_has_the_shape_of_an_exercise_notebook(source):
    order = [role(cell) for cell in cells(source) if role(cell)]
    assert order[0] == "given"
    solutions, tests = cells(source, "solution"), cells(source, "check")
    assert len(tests) == len(solutions), "each exercise has one cell to be solved, and one check"
    assert 3 <= len(tests) <= 7, f"{len(tests)} exercises with a check, not 3 to 7"
    for place, kind in enumerate(order):
        assert kind != "check" or order[place - 1] == "solution"
    assert order.count("answer") in (1, 2), "one or two open questions, which the teacher marks"
    for cell in solutions:
        assert cell["source"].count("### BEGIN SOLUTION") == cell["source"].count("### END SOLUTION") >= 1
        assert '"""' in cell["source"], "a stub says its shapes in a docstring"
    for cell in tests:
        assert re.match(r"assert checks\.check_\w+\(\w+\)(\n### BEGIN HIDDEN TESTS\n|$)", cell["source"])
    for cell in cells(source, "answer"):
        points = cell["metadata"]["nbgrader"]["points"]
        key = cell["source"].partition("*Marking key.")[2]
        assert sum(map(int, re.findall(r"\b(\d+) points?: ", key))) == points, cell["source"][:80]


def test_has_cards_and_hints(source):
    prose = "\n".join(cell["source"] for cell in cells(source, "markdown"))
    headings = re.findall(r"^## (\d+) · (.+)$", prose, re.MULTILINE)
    assert [int(number) for number, _ in headings] == list(range(1, len(headings) + 1))
    assert len(headings) == len(cells(source, "check")) + len(cells(source, "answer"))
    assert headings[-1][1].startswith("Challenge: "), "the last exercise is the challenge"
    cards = re.findall(
        r"^\*Difficulty: (easy|medium|hard)\. Importance: (low|medium|high)\. (\d+) minutes\.", prose, re.M
    )
    rows = re.findall(r"^\| (\d+) \| .+ \| (easy|medium|hard) \| (low|medium|high) \| (\d+) \| (\d+) \|$", prose, re.M)
    assert [row[1:4] for row in rows] == cards, "the table at the top has a row for each exercise, with its card"
    assert len(cards) == len(headings)
    assert sum(int(row[4]) for row in rows) == 20
    ((minutes, path),) = re.findall(r"^\*\*Short path, (\d+) minutes:\*\* exercises (.+)\.$", prose, re.M)
    taken = [int(number) for number in re.findall(r"\d+", path)]
    assert int(minutes) == sum(int(row[3]) for row in rows if int(row[0]) in taken) <= 60
    graded = [cell for cell in cells(source) if role(cell) in ("check", "answer")]
    assert [int(row[4]) for row in rows] == [cell["metadata"]["nbgrader"]["points"] for cell in graded]
    assert prose.count("<details><summary>Hint") >= len(cells(source, "check"))
    assert prose.count("<details>") == prose.count("</details>")


def test_code_is_short_and_silent(source):
    for cell in cells(source, "code"):
        lines = [line for line in cell["source"].splitlines() if line.strip()]
        assert len(lines) <= 40, cell["source"][:80]
        assert max(map(len, lines)) <= 100, cell["source"][:80]
        assert all(output.get("name") == "stdout" for output in cell["outputs"]), cell["source"][:80]
    counts = [cell["execution_count"] for cell in cells(source, "code")]
    assert counts == list(range(1, len(counts) + 1)), "run all: python tools/lessons.py refresh --solutions"


# ---- The students' copies ----------------------------------------------------------------------------------------


@needs_nbgrader
def test_the_copies_are_in_step(tool, tmp_path):
    tool.assignments(SOLUTIONS, tmp_path)
    assert {path.name for path in (ROOT / "notebooks" / "exercises").glob("*.ipynb")} == {p.name for p in SOLUTIONS}
    for source in SOLUTIONS:
        made, kept = (
            json.loads((folder / source.name).read_text("utf-8")) for folder in (tmp_path, copy_of(source).parent)
        )
        assert made["cells"] == kept["cells"], f"{source.name} has changed: make assignments"


def test_a_copy_gives_nothing_away(source):
    text = copy_of(source).read_text(encoding="utf-8")
    for word in ("BEGIN SOLUTION", "HIDDEN TESTS", "Marking key"):
        assert word not in text
    assert len(cells(copy_of(source))) == len(cells(source))
    for cell in cells(copy_of(source)):
        assert not cell.get("outputs")
        assert not cell.get("execution_count")
    for cell in cells(copy_of(source), "solution"):
        assert "# YOUR CODE HERE\n" in cell["source"]


def run(cell: dict[str, Any], names: dict[str, Any]) -> tuple[str, bool]:
    """What a code cell prints, and whether its assertion fails; in this process: the notebooks are plain Python."""
    code, printed = compile(cell["source"], "cell", "exec"), io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        try:
            exec(code, names)
        except AssertionError:
            return printed.getvalue(), True
    return printed.getvalue(), False


def test_a_copy_fails_at_its_stubs_alone(source, monkeypatch):
    monkeypatch.chdir(copy_of(source).parent)
    names: dict[str, Any] = {"__name__": "__main__"}
    for cell in cells(copy_of(source), "code"):
        said, failed = run(cell, names)
        assert failed == (role(cell) == "check")
        assert not failed or re.fullmatch(r"\w+: not written yet\n", said)


@pytest.mark.parametrize(
    "source",
    [pytest.param(path, marks=[pytest.mark.slow] * (path.stem[:2] in TRAINED), id=path.stem) for path in SOLUTIONS],
    indirect=True,
)
def test_a_solved_source_prints_what_stands_in_it(source, monkeypatch):
    monkeypatch.chdir(source.parent)
    monkeypatch.setattr(checks, "_verdicts", {})
    names: dict[str, Any] = {"__name__": "__main__"}
    for cell in cells(source, "code"):
        said, failed = run(cell, names)
        assert not failed, said
        assert said == "".join(text for output in cell["outputs"] for text in output["text"])


# ---- The teacher's pages -----------------------------------------------------------------------------------------


def test_the_teachers_pages_have_every_lesson(source):
    timetable = (ROOT / "TEACHING.md").read_text(encoding="utf-8").split("## Timetable")[1].split("\n## ")[0]
    link = re.escape(f"](teaching/{source.stem}.md)")
    row = rf"^\| \[{source.stem[:2]} [^|]+{link} \|[^|]+\|[^|]+\|[^|]+\|$"
    assert re.search(row, timetable, re.MULTILINE), "no row in TEACHING.md's timetable"
    page = (ROOT / "teaching" / f"{source.stem}.md").read_text(encoding="utf-8")
    assert page.startswith(cells(ROOT / "notebooks" / source.name)[0]["source"].splitlines()[0])
    for title in PARTS:
        assert f"\n## {title}" in page, f"no section {title!r}"
