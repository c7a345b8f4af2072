"""Grading: marks from judged results alone, a sandbox that shows and allows nothing, a class, what a kill leaves."""

from __future__ import annotations

import csv
import html
import importlib
import importlib.util
import json
import socket
import sys
import time
from collections.abc import Callable, Iterator
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
    pytest.mark.skipif(not NBGRADER, reason="nbgrader is not installed: pip install -e .[classroom]"),
    pytest.mark.filterwarnings("ignore:Object of type:sqlalchemy.exc.SAWarning" if NBGRADER else "default"),
]
MARKER = "0n1y-7he-7eacher-5hou1d-5ee-7hi5"


@pytest.fixture(scope="module")
def tool() -> Iterator[ModuleType]:
    """tools/classroom.py as a module."""
    sys.path.insert(0, str(ROOT / "tools"))
    yield importlib.import_module("classroom")
    sys.path.remove(str(ROOT / "tools"))


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
    page = (course / "feedback" / student / source.stem / f"{source.stem}.html").read_text("utf-8")
    return html.unescape(page)


def by_hand(source: Path) -> int:
    (points,) = [
        cell["metadata"]["nbgrader"]["points"]
        for cell in json.loads(source.read_text("utf-8"))["cells"]
        if cell["metadata"].get("nbgrader", {}).get("grade") and cell["metadata"]["nbgrader"]["solution"]
    ]
    return int(points)


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
        assert (float(solved["marks"]), float(solved["of"])) == (20 - by_hand(source), 20)
        assert (solved["by hand"], solved["problem"], solved["noticed"]) == ("1", "", "")
        assert (float(untouched["marks"]), untouched["by hand"], untouched["problem"]) == (0, "0", "")
        assert untouched["noticed"] == ""


def test_solutions_get_full_marks_and_stubs_none_in_two_lessons(tool, sandboxed, tmp_path, capsys):
    solved_and_untouched(tool, tmp_path, sandboxed, [SOLUTIONS[0], SOLUTIONS[4]])


@pytest.mark.slow
def test_solutions_get_full_marks_and_stubs_none(tool, sandboxed, tmp_path, capsys):
    solved_and_untouched(tool, tmp_path, sandboxed, SOLUTIONS)


def test_one_that_crashes_or_hangs_spoils_only_itself(tool, sandboxed, limits, tmp_path, capsys, monkeypatch):
    source, folder, course = FIRST, tmp_path / "in", tmp_path / "course"
    hand_in(source, folder, "ada", patchify=RESHAPED)
    hand_in(source, folder, "crash", patchify=f"import os\n{RESHAPED}\nos._exit(1)")
    hand_in(source, folder, "hang", unpatchify="while True:\n    pass")
    (folder / "garbled").mkdir()
    (folder / "garbled" / source.name).write_text("{not a notebook", encoding="utf-8")
    (folder / "lost.ipynb").write_text("{}", encoding="utf-8")
    hand_in(source, folder / "zoë b", source.stem)  # nbgrader's own layout, and a name that needs care
    assert tool.grade(folder, course, sandboxed, limits=limits) == 2
    rows = marks(course)
    assert {student for student, _ in rows} == {"ada", "crash", "garbled", "hang", "zoë_b"}
    assert float(rows["zoë_b", source.stem]["marks"]) == 17
    assert float(rows["ada", source.stem]["marks"]) == 12
    assert float(rows["ada", source.stem]["check-patchify"]) == 0
    assert float(rows["hang", source.stem]["marks"]) == 14
    for student in ("crash", "garbled"):
        assert float(rows[student, source.stem]["marks"]) == 0
        assert "could not be graded" in rows[student, source.stem]["problem"]
    assert "It looks like a reshape in place of a permute" in feedback(course, "ada")
    assert "took more than 10 seconds" in feedback(course, "hang")
    assert "lost.ipynb" in capsys.readouterr().out

    # A second time: marks given by hand count; what is unchanged is not run again, what is changed or failed is.
    with tool.nbgrader(course).gradebook as gradebook:
        answer = gradebook.find_grade("answer-scrambled", source.stem, source.stem, "ada")
        answer.manual_score, answer.needs_manual_grade = 2.5, False
        gradebook.db.commit()
    hand_in(source, folder, "crash")
    ran, run = [], tool.sandbox.run
    monkeypatch.setattr(tool.sandbox, "run", lambda *a: ran.append(a) or run(*a))
    assert tool.grade(folder, course, sandboxed, limits=limits) == 1
    assert len(ran) == 1
    rows = marks(course)
    assert float(rows["crash", source.stem]["marks"]) == 17
    assert (float(rows["ada", source.stem]["marks"]), rows["ada", source.stem]["by hand"]) == (14.5, "0")


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
    assert row["noticed"] == "patchify was deleted"
    page = feedback(tmp_path / "course", "ada")
    assert "image/png" in page
    assert "'seen'" in page
    raw = (tmp_path / "course" / "feedback" / "ada" / source.stem / f"{source.stem}.html").read_text("utf-8")
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
    """Hand in the hostile notebooks of these names, and two honest ones."""
    codes = hostile.TAMPERING | hostile.READING | hostile.WRITING | hostile.NETWORK | hostile.TAKING
    for name in names:
        code = codes.get(name, "")
        code = code.replace("PATHS", repr([str(path) for path in paths])).replace("PORT", str(port))
        code = hostile.ATTACKING_WORKS.get(name) or f"{code.replace('MARKER', MARKER)}\n{hostile.WRONG}"
        hand_in(copy_of(FIRST), tmp_path / "in", name, hostile.EDITS.get(name), patch_numbers=code, patchify="pass")
    for honest in ("aaa_honest", "zzz_honest"):
        hand_in(FIRST, tmp_path / "in", honest)


def what_went_wrong(tmp_path: Path, names: list[str], paths: list[Path], server: socket.socket) -> list[str]:
    """Marks that were got, secrets that came out, files that were written, connections that were made."""
    rows, wrong = marks(tmp_path / "course"), []
    for name in names:
        row = rows[name, FIRST.stem]
        if float(row["marks"]) != 0:
            wrong.append(f"{name} got {row['marks']}")
        told = row["problem"] + row["noticed"]
        if not told and name not in {*hostile.WRITING, *hostile.TAKING, "outputs_of_its_own"}:
            wrong.append(f"{name}: nothing was noticed")
    for honest in ("aaa_honest", "zzz_honest"):
        if float(rows[honest, FIRST.stem]["marks"]) != 17:
            wrong.append(f"{honest} was disturbed")
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


def table_of(tmp_path: Path, names: list[str]) -> str:
    rows = marks(tmp_path / "course")
    lines = []
    for name in names:
        kept = tmp_path / "course" / "judged" / name / f"{FIRST.stem}.json"
        seconds = json.loads(kept.read_text())["seconds"] if kept.exists() else 0.0
        row = rows[name, FIRST.stem]
        lines.append(f"| {name} | {row['marks']} | {seconds:.1f} | {row['problem']} | {row['noticed']} |")
    return "\n".join(lines)


def try_all(
    tool: ModuleType, kind: str, limits: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: list[str]
) -> None:
    paths, server = set_trap(tmp_path)
    monkeypatch.setenv("A_TOKEN", MARKER)
    hostile_class(tmp_path, names, paths, server.getsockname()[1])
    started = time.monotonic()
    tool.grade(tmp_path / "in", tmp_path / "course", kind, 2, limits)
    seconds = time.monotonic() - started
    print(table_of(tmp_path, names))
    assert what_went_wrong(tmp_path, names, paths, server) == []
    assert seconds < len(names) * (limits.total_seconds + 30), "each ends in bounded time"
    server.close()


QUICK = ["replaces_the_check", "reads_all_files", "uses_the_network"]


def test_three_that_cheat_get_nothing(tool, sandboxed, limits, tmp_path, monkeypatch, capsys):
    try_all(tool, sandboxed, limits, tmp_path, monkeypatch, QUICK)


@pytest.mark.slow
def test_nobody_can_talk_a_check_into_it(tool, sandboxed, limits, tmp_path, monkeypatch):
    try_all(
        tool, sandboxed, limits, tmp_path, monkeypatch, [*hostile.TAMPERING, *hostile.ATTACKING_WORKS, *hostile.EDITS]
    )


@pytest.mark.slow
def test_nothing_can_be_read_written_or_reached(tool, sandboxed, limits, tmp_path, monkeypatch):
    try_all(tool, sandboxed, limits, tmp_path, monkeypatch, [*hostile.READING, *hostile.WRITING, *hostile.NETWORK])


@pytest.mark.slow
def test_nobody_can_take_more_than_the_limits(tool, sandboxed, limits, tmp_path, monkeypatch):
    before = len(psutil.pids())
    try_all(tool, sandboxed, limits, tmp_path, monkeypatch, list(hostile.TAKING))
    assert len(psutil.pids()) < before + 50, "no process is left"
