"""Grading: marks from judged results alone, a sandbox that shows and allows nothing, a class, what a kill leaves."""

from __future__ import annotations

import csv
import html
import importlib.util
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import hostile
import psutil
import pytest

ROOT = Path(__file__).resolve().parent.parent
SOLUTIONS = sorted((ROOT / "notebooks" / "solutions").glob("*.ipynb"))
FIRST = SOLUTIONS[0]
NBGRADER = importlib.util.find_spec("nbgrader") is not None
pytestmark = [
    pytest.mark.skipif(not NBGRADER, reason="nbgrader is not installed: pip install -e .[teach]"),
    pytest.mark.filterwarnings("ignore:Object of type:sqlalchemy.exc.SAWarning" if NBGRADER else "default"),
]
MARKER = "0n1y-7he-7eacher-5hou1d-5ee-7hi5"


@pytest.fixture(scope="module")
def sandboxed(tool: ModuleType) -> str:
    """The sandbox to test with: bubblewrap, or the test is skipped."""
    try:
        return str(tool.sandbox.choose("bwrap"))
    except SystemExit as error:
        pytest.skip(str(error).splitlines()[0])


@pytest.fixture
def limits(tool: ModuleType) -> Any:
    """Small limits: what is tried here must not disturb the machine that tests run on."""
    return tool.sandbox.Limits(
        seconds=10, grace=5, total_seconds=120, memory=400_000_000, processes=16, disk=4_000_000, output=8_000_000
    )


def copy_of(source: Path) -> Path:
    return ROOT / "notebooks" / "exercises" / source.name


def hand_in(
    path: Path, folder: Path, student: str, edit: Callable[[dict[str, Any]], None] | None = None, **changed: str
) -> None:
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


def marks(course: Path) -> dict[tuple[str, str], dict[str, str]]:
    with (course / "marks.csv").open(encoding="utf-8", newline="") as file:
        return {(row["student"], row["exercise"]): row for row in csv.DictReader(file)}


def feedback(course: Path, student: str, source: Path = FIRST) -> str:
    page = (course / "feedback" / student / f"{source.stem}.html").read_text("utf-8")
    return html.unescape(page)


def by_hand(source: Path) -> list[int]:
    """The points of each answer that a teacher marks."""
    return [
        int(cell["metadata"]["nbgrader"]["points"])
        for cell in json.loads(source.read_text("utf-8"))["cells"]
        if cell["metadata"].get("nbgrader", {}).get("grade") and cell["metadata"]["nbgrader"]["solution"]
    ]


# ---- Marks -------------------------------------------------------------------------------------------------------

RESHAPED = """def patchify(images, patch_size):
    P, Q = (patch_size, patch_size) if isinstance(patch_size, int) else patch_size
    B, C, H, W = images.shape
    return images.reshape(B, H * W // (P * Q), C * P * Q)"""


def solved_and_untouched(tool: ModuleType, tmp_path: Path, kind: str, sources: list[Path]) -> None:
    for source in sources:
        hand_in(source, tmp_path / "in", "solved")
        hand_in(copy_of(source), tmp_path / "in", "untouched")
    assert tool.grade(tmp_path / "in", tmp_path / "course", kind) == 0
    rows = marks(tmp_path / "course")
    for source in sources:
        solved, untouched = rows["solved", source.stem], rows["untouched", source.stem]
        assert (float(solved["marks"]), float(solved["of"])) == (20 - sum(by_hand(source)), 20)
        assert (solved["by hand"], solved["problem"], solved["noticed"]) == (str(len(by_hand(source))), "", "")
        assert (float(untouched["marks"]), untouched["by hand"], untouched["problem"]) == (0, "0", "")
        assert untouched["noticed"] == ""


ONE = SOLUTIONS[4]  # a solution of the first is in most classes below


def test_solutions_get_full_marks_and_stubs_none_in_a_lesson(tool, sandboxed, tmp_path, capsys):
    solved_and_untouched(tool, tmp_path, sandboxed, [ONE])


@pytest.mark.slow
def test_solutions_get_full_marks_and_stubs_none_in_the_others(tool, sandboxed, tmp_path, capsys):
    solved_and_untouched(tool, tmp_path, sandboxed, [source for source in SOLUTIONS if source != ONE])


@pytest.mark.slow
def test_one_that_crashes_or_hangs_spoils_only_itself(tool, sandboxed, limits, tmp_path, capsys, monkeypatch):
    source, folder, course = FIRST, tmp_path / "in", tmp_path / "course"
    hand_in(source, folder, "ada", patchify=RESHAPED)
    hand_in(source, folder, "crash", patchify=f"import os\n{RESHAPED}\nos._exit(1)")
    hand_in(source, folder, "hang", unpatchify="while True:\n    pass")
    hand_in(source, folder, "hangs later", unpatchify="def unpatchify(*_):\n    while True:\n        pass")
    hand_in(source, folder / "zoë b", source.stem)  # nbgrader's own layout, and a name that needs care
    assert tool.grade(folder, course, sandboxed, limits=limits) == 1
    rows = marks(course)
    found = {student: float(rows[student, source.stem]["marks"]) for student, _ in rows}
    assert found == {"ada": 12, "crash": 3, "hang": 14, "hangs_later": 14, "zoë_b": 17}, "what was right before counts"
    assert float(rows["ada", source.stem]["check-patchify"]) == 0
    assert "ended itself" in rows["crash", source.stem]["problem"]
    assert "It looks like a reshape in place of a permute" in feedback(course, "ada")
    assert "took more than 10 seconds" in feedback(course, "hang")
    assert "took more than 10 seconds" in " ".join(feedback(course, "hangs_later").split())
    assert "4 handed in" not in capsys.readouterr().out

    # A second time: marks given by hand count; what is unchanged is not run again, what is changed or failed is.
    mark_by_hand(tool, course, "ada", 2.5)
    hand_in(source, folder, "crash")
    assert tool.grade(folder, course, sandboxed, limits=limits) == 0
    again = [line.split() for line in capsys.readouterr().out.splitlines() if source.stem in line]
    assert {words[0] for words in again if float(words[words.index("s") - 1]) > 0} == {"crash"}
    rows = marks(course)
    assert float(rows["crash", source.stem]["marks"]) == 17
    assert (float(rows["ada", source.stem]["marks"]), rows["ada", source.stem]["by hand"]) == (14.5, "0")


def mark_by_hand(tool: ModuleType, course: Path, student: str, score: float) -> None:
    with tool.Book(course) as book:
        answer = book.gradebook.find_grade("answer-scrambled", FIRST.stem, FIRST.stem, student)
        answer.manual_score, answer.needs_manual_grade = score, False
        book.gradebook.db.commit()


def test_whatever_is_handed_in_costs_its_own_row_alone(tool, sandboxed, limits, tmp_path, capsys):
    """Half an emoji everywhere, escapes, a file that is none, one without a name, one in a folder of Latin-1."""
    folder, course = tmp_path / "in", tmp_path / "course"
    odd = "raise ValueError('\ud83d \x1b[31m\x1b]0;x\x07 \u202e')"
    hand_in(FIRST, folder, "emoji", patchify=odd, answer_scrambled="half \ud83d [a](javascript:x) \x1b[2J")
    hand_in(
        FIRST, folder, "forged", lambda notebook: notebook["cells"].extend([3, None, {"cell_type": []}, {"source": 3}])
    )
    hand_in(
        FIRST,
        folder,
        "names",
        lambda notebook: [cell["metadata"].update(nbgrader="\ud83d") for cell in notebook["cells"]],
    )
    (folder / "names" / FIRST.name).rename(folder / "names" / "My homework.ipynb")
    hand_in(FIRST, folder, "renamed")
    (folder / "renamed" / FIRST.name).rename(folder / "renamed" / "My homework.ipynb")
    for name, data in {"nothing": b"", "list": b"[" * 100_000, "zip": b"PK\x03\x04", "numbers": b"1" * 10_000}.items():
        (folder / name).mkdir()
        (folder / name / FIRST.name).write_bytes(data)
    for place in (folder / "essay" / "essay.docx", course / "feedback" / "essay" / "unrecognised_99.html"):
        place.parent.mkdir(parents=True)
        place.write_text("words", encoding="utf-8")
    latin = Path(os.fsdecode(os.fsencode(folder) + b"/zo\xeb"))
    latin.mkdir()
    (latin / FIRST.name).write_bytes(FIRST.read_bytes())
    tool.grade(folder, course, sandboxed, 2, limits)
    rows = marks(course)
    assert not (course / "feedback" / "essay" / "unrecognised_99.html").exists(), "it is of the last time"
    full = {"renamed": 17, "zo": 17, "emoji": 12}
    for student in (path.name for path in folder.iterdir()):
        own = [row for (name, _), row in rows.items() if name == tool.collect.safe(student)]
        assert len(own) == 1, student
        assert list((course / "feedback" / tool.collect.safe(student)).glob("*.html")), student
        assert float(own[0]["marks"]) == full.get(tool.collect.safe(student), 0), student
        assert own[0]["problem"] or own[0]["student"] in full, student
    said = capsys.readouterr().out
    assert "\x1b" not in said + (course / "marks.csv").read_text("utf-8")
    assert said.splitlines()[-1].startswith(f"{len(rows)} handed in; {len(rows) - 3} with a problem")


def test_an_answer_in_a_cell_of_its_own_counts_and_is_shown(tool, sandboxed, limits, tmp_path, capsys):
    """Cut out of its cell and pasted above it, with a helper, a picture, a warning, and a cell without an end."""
    source, moved = FIRST, {}

    def edit(notebook: dict[str, Any]) -> None:
        for place, cell in enumerate(notebook["cells"]):
            if cell["metadata"].get("nbgrader", {}).get("grade_id") == "patchify":
                moved["source"] = cell["source"].replace("def patchify", "def helper")
                code = f"{moved['source']}\nimport warnings\ndef patchify(images, patch_size):\n"
                code += "    warnings.warn('careful')\n    return helper(images, patch_size)\n"
                code += "import matplotlib.pyplot as plt\nplt.plot([1, 2]); plt.show()\n'seen'"
                cell |= {"source": code, "metadata": {}, "id": "mine"}
                extra = {
                    "cell_type": "markdown",
                    "metadata": {},
                    "source": "<script>alert(1)</script> a < b",
                    "id": "x",
                }
                notebook["cells"].insert(place, extra)
                return

    hand_in(source, tmp_path / "in", "ada", edit)
    assert tool.grade(tmp_path / "in", tmp_path / "course", sandboxed, limits=limits) == 0
    row = marks(tmp_path / "course")["ada", source.stem]
    assert float(row["marks"]) == 17
    assert row["noticed"] == "patchify had lost its name, and was known by its place"
    page = feedback(tmp_path / "course", "ada")
    assert "image/png" in page
    assert "'seen'" in page
    raw = (tmp_path / "course" / "feedback" / "ada" / f"{source.stem}.html").read_text("utf-8")
    assert "<script>alert(1)" not in raw


# ---- Tricks ------------------------------------------------------------------------------------------------------


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
    codes = hostile.TAMPERING | hostile.READING | hostile.WRITING | hostile.NETWORK | hostile.TAKING
    for name in names:
        code = codes.get(name, "")
        code = code.replace("PATHS", repr([str(path) for path in paths])).replace("PORT", str(port))
        code = (hostile.ATTACKING_WORKS | hostile.BORROWED).get(
            name
        ) or f"{code.replace('MARKER', MARKER)}\n{hostile.WRONG}"
        hand_in(copy_of(FIRST), tmp_path / "in", name, hostile.EDITS.get(name), patch_numbers=code, patchify="pass")
    hand_in(FIRST, tmp_path / "in", "honest")


def what_went_wrong(tmp_path: Path, names: list[str], paths: list[Path], server: socket.socket) -> list[str]:
    """Marks that were got, secrets that came out, files that were written, connections that were made."""
    rows, wrong = marks(tmp_path / "course"), []
    for name in names:
        row = rows[name, FIRST.stem]
        if float(row["marks"]) != 0:
            wrong.append(f"{name} got {row['marks']}")
    if float(rows["honest", FIRST.stem]["marks"]) != 17:
        wrong.append("the honest one was disturbed")
    wrong += [f"{path} was written" for top in paths[:5] for path in top.rglob(f"*{MARKER}*")]
    wrong += [f"{path} was written" for path in (ROOT, Path("/tmp"), Path.home()) if (path / MARKER).exists()]
    for name in {*names} & {*hostile.READING}:
        found = [*(tmp_path / "course").rglob(f"*/{name}/**/*")]
        wrong += [f"{path} holds a secret" for path in found if path.is_file() and MARKER in path.read_text("utf-8")]
    try:
        server.accept()
        wrong.append("the network was reached")
    except TimeoutError:
        pass
    return wrong


def try_all(
    tool: ModuleType, kind: str, limits: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: list[str]
) -> None:
    paths, server = set_trap(tmp_path)
    monkeypatch.setenv("A_TOKEN", MARKER)
    hostile_class(tmp_path, names, paths, server.getsockname()[1])
    started = time.monotonic()
    tool.grade(tmp_path / "in", tmp_path / "course", kind, 2, limits)
    seconds = time.monotonic() - started
    assert what_went_wrong(tmp_path, names, paths, server) == []
    assert seconds < len(names) * (limits.total_seconds + 30), "each ends in bounded time"
    server.close()


QUICK = ["the_checks_own_numbers", "a_code_of_another_name", "uses_the_network"]


def test_those_that_cheat_get_nothing(tool, sandboxed, limits, tmp_path, monkeypatch, capsys):
    try_all(tool, sandboxed, limits, tmp_path, monkeypatch, QUICK)


@pytest.mark.slow
def test_nobody_can_talk_a_check_into_it(tool, sandboxed, limits, tmp_path, monkeypatch):
    names = [*hostile.TAMPERING, *hostile.ATTACKING_WORKS, *hostile.BORROWED, *hostile.EDITS]
    try_all(tool, sandboxed, limits, tmp_path, monkeypatch, [name for name in names if name not in QUICK])


@pytest.mark.slow
def test_what_is_kept_in_memory_is_seen_from_outside(tool, sandboxed, tmp_path, capsys):
    source = SOLUTIONS[2]
    for name, code in hostile.WHOLE.items():
        hand_in(copy_of(source), tmp_path / "in", name, attention_in_chunks=code)
    hand_in(source, tmp_path / "in", "honest")
    tool.grade(tmp_path / "in", tmp_path / "course", sandboxed)
    rows = marks(tmp_path / "course")
    got = {student: float(row["check-attention-in-chunks"]) for (student, _), row in rows.items()}
    assert got == dict.fromkeys(hostile.WHOLE, 0.0) | {"honest": 2.0}


@pytest.mark.slow
def test_nothing_can_be_read_written_or_reached(tool, sandboxed, limits, tmp_path, monkeypatch):
    names = [*hostile.READING, *hostile.WRITING, *hostile.NETWORK]
    try_all(tool, sandboxed, limits, tmp_path, monkeypatch, [name for name in names if name not in QUICK])


@pytest.mark.slow
def test_nobody_can_take_more_than_the_limits(tool, sandboxed, limits, tmp_path, monkeypatch):
    try_all(tool, sandboxed, limits, tmp_path, monkeypatch, list(hostile.TAKING))
    left = [process.name() for process in psutil.Process().children(recursive=True) if process.is_running()]
    assert left == [], "no process is left"


# ---- A kill ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_after_a_kill_it_goes_on_and_no_mark_is_lost_or_doubled(tool, sandboxed, tmp_path, monkeypatch):
    answers = {"right": {}, "reshaped": {"patchify": RESHAPED}, "crash": {"unpatchify": "import os\nos._exit(1)"}}
    for number in range(2):
        for name, changed in answers.items():
            hand_in(FIRST, tmp_path / "in", f"{name}{number}", **changed)
    folders = ["--submitted", str(tmp_path / "in"), "--course", str(tmp_path / "killed"), "--workers", "2"]
    command = [sys.executable, str(ROOT / "tools" / "classroom.py"), "grade", *folders]
    for enough in (1, 3):  # killed twice, the second time later
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        kept = tmp_path / "killed" / "judged"
        while process.poll() is None and len(list(kept.rglob("*.json"))) < enough:
            time.sleep(0.05)
        process.kill()
        process.wait()
    done = len(list(kept.rglob("*.json")))
    assert 0 < done < 6
    sound = [path for path in kept.rglob("*.json") if not json.loads(path.read_text("utf-8"))["problem"]]
    stamps = {path: path.stat().st_mtime_ns for path in sound}
    found = {path: json.loads(path.read_text("utf-8"))["key"] for path in sound}
    assert tool.grade(tmp_path / "in", tmp_path / "killed", sandboxed, 2) == 2
    assert all(json.loads(path.read_text("utf-8"))["seconds"] == 0 for path in stamps), "what was done is not run again"
    assert all(json.loads(path.read_text("utf-8"))["key"] == key for path, key in found.items())
    assert tool.grade(tmp_path / "in", tmp_path / "undisturbed", sandboxed, 2) == 2
    assert marks(tmp_path / "killed") == marks(tmp_path / "undisturbed")
    assert len(marks(tmp_path / "killed")) == 6
    mine = [process for process in psutil.process_iter(["cmdline"]) if str(tmp_path) in str(process.info["cmdline"])]
    assert mine == [], "no sandbox goes on"
