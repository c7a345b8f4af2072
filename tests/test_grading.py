"""Grading: a class with its marks, what is noticed, and works that mean harm: each costs its own row alone."""

from __future__ import annotations

import csv
import html
import importlib
import importlib.util
import io
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import hostile
import nbformat
import psutil
import pytest
from browser import browser_only
from payloads import PAYLOADS

ROOT = Path(__file__).resolve().parent.parent
SOLUTIONS = sorted((ROOT / "notebooks" / "solutions").glob("*.ipynb"))
FIRST, FIFTH = SOLUTIONS[0], SOLUTIONS[4]
COPY = ROOT / "notebooks" / "exercises" / FIRST.name
MARKER = "0n1y-7he-7eacher-5hou1d-5ee-7hi5"
NBGRADER = importlib.util.find_spec("nbgrader") is not None
pytestmark = [
    pytest.mark.skipif(not NBGRADER, reason="nbgrader is not installed: pip install -e .[teach]"),
    pytest.mark.filterwarnings("ignore:Object of type:sqlalchemy.exc.SAWarning" if NBGRADER else "default"),
]
RESHAPED = """def patchify(images, patch_size):
    P, Q = (patch_size, patch_size) if isinstance(patch_size, int) else patch_size
    B, C, H, W = images.shape
    return images.reshape(B, H * W // (P * Q), C * P * Q)"""


@pytest.fixture(scope="module")
def sandboxed(tool: ModuleType) -> str:
    """The sandbox to test with: bubblewrap, or the test is skipped."""
    try:
        tool.sandbox.check_kind("bwrap")
    except tool.GradingError as error:
        pytest.skip(str(error).splitlines()[0])
    return "bwrap"


@pytest.fixture
def limits(tool: ModuleType) -> Any:
    """Small limits: what is tried here must not disturb the machine that tests run on."""
    return tool.Limits(
        cell_seconds=20, check_seconds=30, total_seconds=200, memory=1_500_000_000, processes=64, disk=16_000_000
    )


def hand_in(
    path: Path, folder: Path, student: str, edit: Callable[[dict[str, Any]], None] | None = None, **changed: str
) -> Path:
    """Put a notebook into a folder of submissions, edited, some of its cells replaced: {grade_id: source}."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    for cell in notebook["cells"]:
        name = cell["metadata"].get("nbgrader", {}).get("grade_id", "").replace("-", "_")
        cell["source"] = changed.pop(name, "".join(cell["source"]))
    assert not changed
    if edit:
        edit(notebook)
    target = folder / student / path.name
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(notebook), encoding="utf-8")
    return target


def table(course: Path) -> dict[tuple[str, str], dict[str, str]]:
    with (course / "marks.csv").open(encoding="utf-8", newline="") as file:
        return {(row["student"], row["exercise"]): row for row in csv.DictReader(file)}


def feedback(course: Path, student: str, stem: str = FIRST.stem) -> str:
    return html.unescape((course / "feedback" / student / stem / f"{stem}.html").read_text("utf-8"))


def in_gradebook(tool: ModuleType, course: Path, student: str) -> float:
    with tool.Course(course).gradebook as book:
        return float(book.find_submission(FIRST.stem, student).score)


# ---- A class -----------------------------------------------------------------------------------------------------


def test_a_class_has_a_row_for_everybody_and_hand_marks_stay(tool, sandboxed, tmp_path, capsys):
    folder, course = tmp_path / "in", tmp_path / "course"
    course.mkdir()
    (course / "class.csv").write_text("id,first_name,last_name\nada,Ada,<b>L\nbob,Bob,B\neve,Eve,E\n", "utf-8")
    tool.Course(course).generate(FIRST)
    with tool.Course(course).gradebook as book:
        book.update_or_create_assignment(FIRST.stem, duedate="2026-10-05 12:00:00 UTC")
    ada = hand_in(COPY, folder, "ada", patchify=RESHAPED, answer_scrambled="No pixel is *lost*.")
    bob = hand_in(FIRST, folder, "bob")
    (folder / "carl").mkdir()
    (folder / "carl" / FIRST.name).write_text("no notebook", "utf-8")
    for path, day in ((ada, 5), (bob, 6)):
        when = datetime(2026, 10, day, 6, tzinfo=UTC).timestamp()
        os.utime(path, (when, when))
    assert tool.grade(folder, course, sandboxed, 2) == 1
    rows = table(course)
    marks = {student: (float(row["marks"]), row["of"], row["by hand"]) for (student, _), row in rows.items()}
    assert marks == {
        "ada": (0, "20.0", "1"),
        "bob": (17, "20.0", "1"),
        "carl": (0, "20.0", "0"),
        "eve": (0, "20.0", "0"),
    }
    late = {student: float(row["hours late"]) for (student, _), row in rows.items() if student in ("ada", "bob")}
    assert late == {"ada": 0, "bob": 18}
    assert "not a notebook" in rows["carl", FIRST.stem]["problem"]
    assert rows["carl", FIRST.stem]["noticed"] == "carl is not in class.csv"
    assert rows["eve", FIRST.stem]["problem"] == "not handed in"
    assert {row["noticed"] for (student, _), row in rows.items() if student != "carl"} == {""}
    assert in_gradebook(tool, course, "bob") == 17
    assert "It looks like a reshape in place of a permute" in feedback(course, "ada")
    assert "What went wrong: it is not a notebook" in feedback(course, "carl")
    assert "BEGIN HIDDEN" not in feedback(course, "bob")
    assert "4 answers" not in capsys.readouterr().out

    # A second time: marks given by hand count, nothing that is unchanged runs again, what is handed in anew does.
    with tool.Course(course).gradebook as book:
        grade = book.find_grade("answer-scrambled", FIRST.stem, FIRST.stem, "ada")
        grade.manual_score, grade.needs_manual_grade = 2.5, False
        book.db.commit()
    stamp = (course / "autograded" / "ada" / FIRST.stem / FIRST.name).stat().st_mtime_ns
    hand_in(FIRST, folder, "carl")
    assert tool.grade(folder, course, sandboxed, 2) == 0
    rows = table(course)
    assert (float(rows["ada", FIRST.stem]["marks"]), rows["ada", FIRST.stem]["by hand"]) == (2.5, "0")
    assert (course / "autograded" / "ada" / FIRST.stem / FIRST.name).stat().st_mtime_ns == stamp
    assert float(rows["carl", FIRST.stem]["marks"]) == 17
    hand_in(FIRST, folder, "ada", answer_scrambled="No pixel is *lost*.")
    assert tool.grade(folder, course, sandboxed, 2) == 0
    assert float(table(course)["ada", FIRST.stem]["marks"]) == 19.5


@pytest.mark.slow
def test_solutions_get_full_marks_and_stubs_none(tool, sandboxed, tmp_path):
    for source in SOLUTIONS:
        hand_in(source, tmp_path / "in", "solved")
        hand_in(ROOT / "notebooks" / "exercises" / source.name, tmp_path / "in", "untouched")
    assert tool.grade(tmp_path / "in", tmp_path / "course", sandboxed) == 0
    rows = table(tmp_path / "course")
    for source in SOLUTIONS:
        cells = [cell.metadata.get("nbgrader", {}) for cell in nbformat.read(source, 4).cells]
        by_hand = [cell["points"] for cell in cells if cell.get("grade") and cell["solution"]]
        solved, untouched = rows["solved", source.stem], rows["untouched", source.stem]
        assert (float(solved["marks"]), float(solved["of"])) == (20 - sum(by_hand), 20), source.stem
        assert (solved["by hand"], solved["problem"], solved["noticed"]) == (str(len(by_hand)), "", ""), source.stem
        assert (float(untouched["marks"]), untouched["by hand"], untouched["problem"]) == (0, "0", ""), source.stem


@pytest.mark.slow
def test_what_crashes_or_hangs_spoils_only_itself(tool, sandboxed, limits, tmp_path):
    folder, course = tmp_path / "in", tmp_path / "course"
    hand_in(FIRST, folder, "crash", patchify=f"import os\n{RESHAPED}\nos._exit(1)")
    hand_in(FIRST, folder, "hang", unpatchify="while True:\n    pass")
    hand_in(FIRST, folder, "hangs later", unpatchify="def unpatchify(*_):\n    while True:\n        pass")
    cached = "import functools\n@functools.cache\ndef halves(n):\n    return n // 2\n"
    hand_in(FIRST, folder, "cached", patch_embedding=cached + SOLVED["patch-embedding"])
    assert tool.grade(folder, course, sandboxed, 2, limits) == 1
    rows = table(course)
    found = {student: float(row["marks"]) for (student, _), row in rows.items()}
    assert found == {"crash": 3, "hang": 14, "hangs_later": 14, "cached": 17}, "what was right before counts"
    assert "ended itself" in rows["crash", FIRST.stem]["problem"]
    assert "took more than 20 seconds" in feedback(course, "hang")
    assert "took more than" in feedback(course, "hangs_later")


SOLVED = {
    cell.metadata.nbgrader.grade_id: cell.source
    for cell in nbformat.read(FIRST, 4).cells
    if "nbgrader" in cell.metadata
}


@pytest.mark.slow
def test_after_a_kill_it_goes_on_and_no_mark_is_lost(tool, sandboxed, tmp_path):
    for number in range(4):
        hand_in(FIRST, tmp_path / "in", f"student{number}", **({"patchify": RESHAPED} if number % 2 else {}))
    command = [sys.executable, str(ROOT / "tools" / "classroom.py"), "grade", "--submitted", str(tmp_path / "in")]
    process = subprocess.Popen([*command, "--course", str(tmp_path / "course"), "--workers", "1"])
    kept = tmp_path / "course" / "graded"
    while process.poll() is None and len(list(kept.rglob("*.json"))) < 2:
        time.sleep(0.05)
    process.kill()
    process.wait()
    stamps = {path: path.stat().st_mtime_ns for path in (tmp_path / "course" / "autograded").rglob("*.ipynb")}
    assert 0 < len(stamps) < 4
    assert tool.grade(tmp_path / "in", tmp_path / "course", sandboxed, 2) == 0
    assert [float(row["marks"]) for row in table(tmp_path / "course").values()] == [17, 12, 17, 12]
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in stamps.items()), "what was done is not run again"


# ---- Collecting --------------------------------------------------------------------------------------------------


def collected(tool: ModuleType, tmp_path: Path) -> dict[tuple[str, str], Any]:
    submissions = tool.collect(tmp_path / "in", tool.graded_cells())
    return {(submission.student, submission.exercise): submission for submission in submissions}


def test_what_platforms_give_is_recognised(tool, tmp_path):
    folder = tmp_path / "in"
    names = [
        "ada/01_patches.ipynb",
        "submissions/lovelacegrace_LATE_12_345_01_patches-1.ipynb",
        "Li Wei_34_assignsubmission_file/My homework.ipynb",
        "bob/01_patches/01_patches.ipynb",
        "zoë b/01_patches (2).ipynb.txt",
        "<img src=x>\n&/01_patches.ipynb",
        "turingalan_56_789_01_patches.ipynb",
        "mary_90_1_work.zip",
        "eve/essay.docx",
    ]
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"PK" if name.endswith(("docx", "zip")) else COPY.read_bytes())
    found = collected(tool, tmp_path)
    stem = FIRST.stem
    students = ["ada", "12", "34", "bob", "zoë_b", "img_src_x", "56"]
    assert set(found) == {(one, stem) for one in students} | {("eve", ""), ("90", "")}
    assert found["34", stem].notes == ("the file was called My homework.ipynb",)
    assert "\n" not in found["img_src_x", stem].name
    assert found["90", ""].problem == "it is not a notebook of an exercise"


def test_links_and_pipes_are_not_opened_and_the_newer_of_two_counts(tool, tmp_path):
    neighbour = hand_in(COPY, tmp_path / "in", "ada")
    newer = hand_in(COPY, tmp_path / "in", "ada/again")
    os.utime(newer, (2e9, 2e9))
    for name in ("link", "pipe", "folder"):
        (tmp_path / "in" / name).mkdir()
    (tmp_path / "in" / "link" / FIRST.name).symlink_to(neighbour)
    (tmp_path / "in" / "folder" / "all").symlink_to("/")
    os.mkfifo(tmp_path / "in" / "pipe" / FIRST.name)
    with (tmp_path / "in" / "large.ipynb").open("wb") as file:
        file.truncate(200_000_000)
    found = collected(tool, tmp_path)
    assert set(found) == {("ada", FIRST.stem), ("link", ""), ("folder", ""), ("pipe", ""), ("large", "")}
    assert found["ada", FIRST.stem].path == newer
    assert "an older file is left out" in found["ada", FIRST.stem].notes[0]
    assert all("link, a pipe" in found[name, ""].problem for name in ("link", "pipe", "folder"))
    assert "more than 20 MB" in found["large", ""].problem


def test_nobody_hands_in_as_another_student(tool, tmp_path):
    """A name chosen to hold a neighbour's number, a folder that begins as the platform's, a file named as Canvas's."""
    victim = "victim_12345_1_01_patches.ipynb"
    for name in (
        "Eve_12345_assignsubmission_x_77_assignsubmission_file",
        "submissions eve_88_assignsubmission_file",
        "submissions_of_class",
        "carl",
    ):
        (tmp_path / "in" / name).mkdir(parents=True)
        (tmp_path / "in" / name / victim).write_bytes(COPY.read_bytes())
    assert set(collected(tool, tmp_path)) == {(one, FIRST.stem) for one in ("77", "88", "submissions_of_class", "carl")}


@pytest.mark.parametrize(
    "names",
    [
        ("Li Wei", "Li_Wei"),
        ("ada", "Ada"),
        ("Ada L_12_assignsubmission_file", "Bob B_12_assignsubmission_file"),
    ],
)
def test_two_people_of_one_id_have_a_problem_and_the_others_their_rows(tool, tmp_path, names):
    for name in (*names, "carl"):
        hand_in(COPY, tmp_path / "in", name)
    found = tool.collect(tmp_path / "in", tool.graded_cells())
    assert [(one.student, one.problem) for one in found if one.exercise] == [("carl", "")]
    assert {one.name for one in found if "the same id for" in one.problem} == {f"{name}/{FIRST.name}" for name in names}


def test_nbgraders_dates_are_no_submissions_and_a_file_that_cannot_be_read_has_its_row(tool, tmp_path, monkeypatch):
    (hand_in(COPY, tmp_path / "in", "ada").parent / "timestamp.txt").write_text("2026-10-05 12:00:00 UTC", "utf-8")
    assert set(collected(tool, tmp_path)) == {("ada", FIRST.stem)}

    def refuse(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", refuse)
    assert collected(tool, tmp_path)["ada", FIRST.stem].problem == "it can't be read: Permission denied"


# ---- What is touched ---------------------------------------------------------------------------------------------


def rebuilt(tool: ModuleType, tmp_path: Path, edit: Callable[[dict[str, Any]], None]) -> tuple[Any, list[str]]:
    path = hand_in(COPY, tmp_path, "ada", edit)
    return tool.rebuild(tool.read(path), nbformat.read(COPY, 4))


def _delete(notebook: dict[str, Any]) -> None:
    notebook["cells"].remove(hostile.check_of(notebook, "check-patchify"))


def _to_markdown(notebook: dict[str, Any]) -> None:
    hostile.check_of(notebook, "check-patchify")["cell_type"] = "markdown"


def _change(notebook: dict[str, Any]) -> None:
    hostile.check_of(notebook, "check-patchify")["source"] = "print('right')"


def _double(notebook: dict[str, Any]) -> None:
    notebook["cells"].append(hostile.check_of(notebook, "check-patchify"))


@pytest.mark.parametrize(
    ("edit", "noticed"),
    [
        (_delete, ["check-patchify was deleted"]),
        (_to_markdown, ["check-patchify was turned into a Markdown cell"]),
        (_change, ["check-patchify was changed"]),
        (_double, ["check-patchify is there twice"]),
        (hostile.points, []),
        (hostile.outputs_of_its_own, []),
        (lambda notebook: notebook["cells"].reverse(), []),
    ],
)
def test_checks_are_the_teachers_and_what_was_touched_is_noticed(tool, tmp_path, edit, noticed):
    notebook, notes = rebuilt(tool, tmp_path, edit)
    assert notes == noticed
    ours = {cell.metadata.nbgrader.grade_id: cell for cell in nbformat.read(COPY, 4).cells if cell.metadata}
    theirs = {cell.metadata.nbgrader.grade_id: cell for cell in notebook.cells if cell.metadata}
    assert list(theirs) == list(ours)
    assert all(
        (cell.source, cell.metadata) == (ours[name].source, ours[name].metadata) for name, cell in theirs.items()
    )
    assert not any(cell.get("outputs") for cell in notebook.cells)


@pytest.mark.parametrize("text", ["x = 1\n" + "\n " * 12_500 + "y = 2", "\n" * 30_000, "x = '" + "(" * 50_000 + "'"])
def test_no_cell_takes_the_highlighter_long(tool, tmp_path, text):
    path = hand_in(COPY, tmp_path, "ada", patchify=text)
    notebook, noticed = tool.rebuild(tool.read(path), nbformat.read(COPY, 4))
    (cell,) = [cell for cell in notebook.cells if cell.metadata.get("nbgrader", {}).get("grade_id") == "patchify"]
    assert len(cell.source) <= 20_000
    assert cell.source.count("\n") < 6
    assert ("y = 2" in cell.source) == ("y = 2" in text)
    assert noticed == ["a cell was cut to 20000 characters, or runs of blank lines to 3"]


def test_hidden_tests_are_parted_in_one_pass(tool):
    without_hidden = sys.modules["student_notebooks"].without_hidden
    begin, end = "### BEGIN HIDDEN TESTS\n", "### END HIDDEN TESTS"
    assert without_hidden(f"a\n{begin}b\n{end}\nc") == ("a\nc", "b\n")
    assert without_hidden("a\n") == ("a\n", "")
    start = time.process_time()
    without_hidden(begin * 40_000)
    assert time.process_time() - start < 1


def test_who_waits_for_the_gradebook_is_not_ended(tool, tmp_path, monkeypatch):
    """The time that others take to be entered is no part of a submission's own."""
    path = hand_in(COPY, tmp_path / "in", "ada")
    course = tool.Course(tmp_path / "course")
    monkeypatch.setattr(tool, "OVERHEAD", 4)
    monkeypatch.setattr(tool, "examine", lambda *_: tool.Outcome())
    monkeypatch.setattr(tool.Course, "enter", lambda *_, **__: "")
    submission = tool.HandedInFile("ada", FIRST.stem, path, path.name, datetime.now(UTC))
    grading = tool.Grading(course, "none", tool.Limits(total_seconds=0))
    lock = tool.FileLock(course.folder / "gradebook.lock", thread_local=False)
    lock.acquire()
    threading.Timer(6, lock.release).start()
    assert [outcome.problem for _, outcome in tool.in_processes([submission], grading, 1)] == [""]


def test_what_was_not_entered_is_run_again_and_what_was_is_not(tool, tmp_path, monkeypatch):
    path = hand_in(COPY, tmp_path / "in", "ada")
    submission = tool.HandedInFile("ada", FIRST.stem, path, path.name, datetime.now(UTC))
    grading = tool.Grading(tool.Course(tmp_path / "course"), "none", tool.Limits())
    runs = tmp_path / "runs"

    def examine(*_):
        with runs.open("a", encoding="utf-8") as file:
            file.write("run;")
        return tool.Outcome()

    monkeypatch.setattr(tool, "examine", examine)
    for enter, problem, number in (
        (lambda *_, **__: os._exit(1), tool.TIMED_OUT.problem, 1),  # killed
        (lambda *_, **__: "nbgrader can't grade it", "nbgrader can't grade it", 2),
        (lambda *_, **__: "", "", 3),
        (lambda *_, **__: "", "", 3),
    ):
        monkeypatch.setattr(tool.Course, "enter", enter)
        assert [outcome.problem for _, outcome in tool.in_processes([submission], grading, 1)] == [problem]
        assert runs.read_text("utf-8") == number * "run;"


def test_nothing_but_text_is_taken_from_a_notebook(tool, tmp_path):
    notebook, _ = rebuilt(tool, tmp_path, hostile.imitated)
    own = [cell for cell in notebook.cells if cell.source in ("20.0", "    <script>fired=1</script>")]
    assert len(own) == 5
    assert all(not cell.metadata and not cell.get("outputs") and "attachments" not in cell for cell in own)
    assert notebook.metadata == nbformat.read(COPY, 4).metadata
    nbformat.validate(notebook)


@pytest.mark.parametrize(
    "outputs",
    [
        3,
        [3, None, {"output_type": []}, {"output_type": "stream", "text": "\ud83d\x1b[31m"}],
        [{"output_type": "error", "ename": 3, "traceback": [["x"]]}, {"output_type": "display_data", "data": 3}],
        [{"output_type": "execute_result", "data": {"text/plain": "20.0", "text/html": "<script>", "image/png": "<"}}],
    ],
)
def test_what_comes_out_of_a_sandbox_becomes_text_and_pictures(tool, outputs):
    found = list(sys.modules["course"].text_and_pictures(outputs))
    cell = nbformat.v4.new_code_cell(outputs=found)
    nbformat.validate(nbformat.v4.new_notebook(cells=[cell]))
    assert "execute_result" not in {output.output_type for output in found}, "nbgrader would read marks out of it"
    assert not {"text/html", "image/png"} & {key for output in found for key in output.get("data", {})}
    json.dumps(found, ensure_ascii=False).encode()


def test_a_students_text_is_no_formula_of_a_spreadsheet(tool, tmp_path):
    tool.write_table([{"student": "=1+1", "noticed": '@x\n","'}], tmp_path / "marks.csv")
    (row,) = csv.DictReader(io.StringIO((tmp_path / "marks.csv").read_text("utf-8")))
    assert (row["student"], row["noticed"]) == ("'=1+1", '\'@x\n","')


# ---- Pages -------------------------------------------------------------------------------------------------------


ALIVE = """[...document.querySelectorAll('*')].filter(one =>
    [...one.attributes].some(a => /fired|far.example/.test(a.value)) ||
    (one.matches('script, style') && /fired|far.example/.test(one.textContent))).length"""


@browser_only
def test_no_payload_runs_or_loads_anything_in_feedback_or_formgrader(tool, chromium, tmp_path):
    """Payloads in answers, in cells of their own, in code and in what it printed; formgrader shows the same cells."""
    from nbconvert import HTMLExporter

    texts = [payload.replace("FAR", "http://far.example") for payload in PAYLOADS]
    cells = [{"cell_type": kind, "source": text, "metadata": {}} for text in texts for kind in ("markdown", "code")]
    path = hand_in(
        COPY, tmp_path / "in", "ada", lambda nb: nb["cells"].extend(cells), answer_scrambled="\n\n".join(texts)
    )
    course = tool.Course(tmp_path / "course")
    course.generate(FIRST)
    notebook, _ = tool.rebuild(tool.read(path), nbformat.read(COPY, 4))
    shown = [{"output_type": "stream", "name": "stdout", "text": text} for text in texts]
    shown += [{"output_type": "display_data", "data": {"text/plain": text, "text/html": text}} for text in texts]
    shown += [{"output_type": "error", "ename": text, "evalue": text, "traceback": [text]} for text in texts]
    outputs = [list(sys.modules["course"].text_and_pictures(shown[start : start + 100])) for start in (0, 100)]
    outcome = tool.Outcome(outputs=outputs, problem=texts[0])
    copy = tmp_path / "course" / "submitted" / "ada" / FIRST.stem / FIRST.name
    tool.write(copy, nbformat.writes(notebook))
    outcome.write(tool.outcome_path(tmp_path / "course", "ada", FIRST.stem))
    assert course.enter("ada", FIRST.stem, autograde=True) == ""
    autograded = nbformat.read(tmp_path / "course" / "autograded" / "ada" / FIRST.stem / FIRST.name, 4)
    formgraders = tmp_path / "formgrader.html"
    formgraders.write_text(HTMLExporter(template_name="basic").from_notebook_node(autograded)[0], "utf-8")
    for page_path in (tmp_path / "course" / "feedback" / "ada" / FIRST.stem / f"{FIRST.stem}.html", formgraders):
        page, asked = chromium.new_context().new_page(), []
        page.route("http*://**", lambda route: (asked.append(route.request.url), route.abort()))  # noqa: B023
        page.goto(page_path.as_uri())
        page.wait_for_timeout(300)
        assert page.evaluate("window.fired") is None
        assert [url for url in asked if "far.example" in url] == []
        assert page.evaluate(ALIVE) == 0, "in attributes or scripts"
        assert page.inner_text("body").count("fired=1") > 4 * len(texts) // 2, "the payloads are there, as text"


def test_no_name_holds_markup_which_formgrader_would_show_as_it_is(tool, tmp_path):
    (tmp_path / "class.csv").write_text('id,first_name,last_name\nada,"<img src=x onerror=fired=1>",x\n', "utf-8")
    assert tool.class_list(tool.Course(tmp_path)) == {"ada": "img src x onerror fired 1 x"}


def test_formgrader_loads_nothing_from_elsewhere(tool, tmp_path):
    from traitlets.config import PyFileConfigLoader

    tool.Course(tmp_path)
    settings = PyFileConfigLoader("jupyter_server_config.py", str(tmp_path)).load_config().ServerApp.tornado_settings
    assert settings["headers"]["Content-Security-Policy"].startswith("default-src 'self' ")


def test_nbgraders_own_autograde_runs_nothing(tool, tmp_path):
    """The command in the course folder, and so formgrader's button: a submission that is not judged yet is refused."""
    course = tool.Course(tmp_path)
    course.generate(FIRST)
    trace = tmp_path / "trace"
    tool.write(
        tmp_path / "submitted" / "ada" / FIRST.stem / FIRST.name,
        hand_in(COPY, tmp_path / "in", "ada", patchify=f"open({str(trace)!r}, 'w')").read_text("utf-8"),
    )
    command = [sys.executable, "-m", "nbgrader", "autograde", FIRST.stem]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode != 0
    assert "make grade does that" in done.stderr
    assert not trace.exists()


# ---- Sandboxes ---------------------------------------------------------------------------------------------------


def test_without_bubblewrap_it_refuses_and_says_how_to_go_on(tool, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(tool.GradingError, match=r"bwrap is not installed(.|\n)*SANDBOX=docker(.|\n)*SANDBOX=none"):
        tool.sandbox.check_kind("bwrap")
    tool.sandbox.check_kind("none")


def test_a_containers_command_line_has_its_walls(tool):
    command = " ".join(tool.sandbox.container("docker", tool.Limits(), "vit-x"))
    for wall in (
        "--network none",
        "--read-only",
        "--cap-drop ALL",
        "--pids-limit 128",
        "--memory 4000000000",
        "--user",
    ):
        assert wall in command
    assert "solutions" not in command
    assert all(volume.endswith(":ro") for volume in command.split() if volume.startswith("/") and ":/course" in volume)


def test_a_course_that_submissions_could_read_is_refused(tool):
    with pytest.raises(tool.GradingError, match="every submission can read"):
        tool.sandbox.check_invisible([Path("/usr/share/course")])


def test_an_answer_has_a_limit_of_its_own(tool, sandboxed):
    cells = {"cells": [{"source": "print('x' * 50_000)"}], "lesson": "01", "cell_seconds": 20}
    checks = {"checks": [], "given": "", "check_seconds": 20}
    with pytest.raises(tool.sandbox.SandboxStopped, match=r"MB of output|can.t be read"):
        tool.sandbox.run([cells, checks], sandboxed, tool.Limits(answer=10_000))


def test_there_are_as_many_at_a_time_as_memory_allows(tool, monkeypatch):
    monkeypatch.setattr(tool.os, "cpu_count", lambda: 64)
    available = tool.psutil.virtual_memory().available
    assert tool.default_workers(tool.Limits(memory=available // 2)) <= 3
    assert tool.default_workers(tool.Limits(memory=10 * available)) == 1


def test_grading_twice_at_a_time_is_refused(tool, sandboxed, tmp_path):
    (tmp_path / "in").mkdir()
    with tool.FileLock(tmp_path / "grading.lock"), pytest.raises(tool.GradingError, match="being graded already"):
        tool.grade(tmp_path / "in", tmp_path, sandboxed)


@pytest.mark.parametrize(("share", "times"), [(1.7, 1), (1.0, 1), (0.25, 4), (0.001, 10)])
def test_a_busy_machine_makes_no_limit_harder(tool, monkeypatch, share, times):
    program = importlib.import_module("check_submission")
    monkeypatch.setattr(program.psutil, "Process", lambda: SimpleNamespace(create_time=lambda: time.time() - 100))
    monkeypatch.setattr(program.time, "process_time", lambda: 100 * share)
    assert program.slowness() == pytest.approx(times, rel=1e-3)


# ---- Tricks ------------------------------------------------------------------------------------------------------

# What a work does in its own process can pass for a right one; teaching/grading.md says what to look for.
FORGED = {"in_another_process", "the_checks_own_numbers"}


def set_trap(tmp_path: Path) -> tuple[list[Path], socket.socket]:
    """Secrets in all places that a submission must not see, and a server that nobody may reach."""
    places = [tmp_path / "in" / "neighbour", tmp_path / "course", tmp_path / "home", tmp_path / "solutions"]
    for place in places:
        place.mkdir(parents=True)
        (place / "secret.txt").write_text(MARKER, encoding="utf-8")
    server = socket.create_server(("127.0.0.1", 0))
    server.settimeout(0.01)
    return [*places, tmp_path, ROOT / "notebooks" / "solutions", ROOT / "tests", Path.home()], server


def hostile_class(tmp_path: Path, names: list[str], paths: list[Path], port: int) -> None:
    """Hand in the hostile notebooks of these names, and an honest one."""
    cells = hostile.TAMPERING | hostile.READING | hostile.WRITING | hostile.NETWORK | hostile.TAKING
    works = hostile.ATTACKING_WORKS | hostile.BORROWED | hostile.CHECKED
    for name in names:
        code = works.get(name) or f"{cells.get(name, '')}\n{hostile.WRONG}"
        code = code.replace("PATHS", repr([str(path) for path in paths])).replace("PORT", str(port))
        code = code.replace("MARKER", MARKER)
        hand_in(COPY, tmp_path / "in", name, hostile.EDITS.get(name), patch_numbers=code, patchify="pass")
    hand_in(FIRST, tmp_path / "in", "honest")


def try_all(tool: ModuleType, kind: str, limits: Any, tmp_path: Path, names: list[str]) -> None:
    """Grade a hostile class, and look for harm: marks, secrets that came out, files, connections, processes, rows."""
    paths, server = set_trap(tmp_path)
    os.environ["A_TOKEN"] = MARKER
    hostile_class(tmp_path, names, paths, server.getsockname()[1])
    running = {process.pid for process in psutil.Process().children(recursive=True)}  # another test's browser, say
    began = time.monotonic()
    tool.grade(tmp_path / "in", tmp_path / "course", kind, 2, limits)
    assert time.monotonic() - began < len(names) * (limits.total_seconds + 60), "each ends in bounded time"
    rows = table(tmp_path / "course")
    got = {name for name in names if float(rows[name, FIRST.stem]["marks"])}
    assert got <= FORGED
    assert float(rows["honest", FIRST.stem]["marks"]) == in_gradebook(tool, tmp_path / "course", "honest") == 17
    assert len(rows) == len(names) + 2, "with the neighbour's, whose file is no notebook"
    # By the marker: whoever works on the package while this runs may change it.
    assert not [path for path in (ROOT / "vit_tutorial").rglob("*.py") if MARKER in path.read_text("utf-8")]
    assert not [path for top in paths[:5] for path in top.rglob(f"*{MARKER}*")]
    assert not [path for path in (ROOT, Path("/tmp"), Path.home(), Path("/")) if (path / MARKER).exists()]
    for name in {*names} & {*hostile.READING, *hostile.WRITING}:
        pages = [*(tmp_path / "course" / "feedback" / name).rglob("*.html")]
        assert pages
        assert not [page for page in pages if MARKER in page.read_text("utf-8") and name in hostile.READING]
    with pytest.raises(TimeoutError):
        server.accept()
    left = [process.name() for process in psutil.Process().children(recursive=True) if process.pid not in running]
    assert left == [], "no process is left"
    server.close()


QUICK = ["uses_the_network", "writes_the_whole_answer", "replaces_the_checks"]
TRICKS = {
    "talks": [*hostile.TAMPERING, *hostile.ATTACKING_WORKS, *hostile.BORROWED, *hostile.EDITS],
    "reads_and_writes": [*hostile.READING, *hostile.WRITING, *hostile.NETWORK],
    "attacks_the_check": [*hostile.CHECKED],
    "takes": [*hostile.TAKING],
}


def test_those_that_cheat_get_nothing(tool, sandboxed, limits, tmp_path):
    try_all(tool, sandboxed, limits, tmp_path, QUICK)


@pytest.mark.slow
@pytest.mark.parametrize("kind", TRICKS)
def test_no_trick_does_harm(tool, sandboxed, limits, tmp_path, kind):
    try_all(tool, sandboxed, limits, tmp_path, TRICKS[kind])


@pytest.mark.slow
def test_a_file_of_any_bytes_has_its_row(tool, sandboxed, limits, tmp_path):
    for name, data in hostile.FILES.items():
        (tmp_path / "in" / name).mkdir(parents=True)
        (tmp_path / "in" / name / FIRST.name).write_bytes(data)
    hand_in(FIRST, tmp_path / "in", "honest")
    tool.grade(tmp_path / "in", tmp_path / "course", sandboxed, 2, limits)
    rows = table(tmp_path / "course")
    assert {student: float(row["marks"]) for (student, _), row in rows.items()} == dict.fromkeys(hostile.FILES, 0.0) | {
        "honest": 17.0
    }
    assert [name for name, _ in rows if not (tmp_path / "course" / "feedback" / name).exists()] == []
