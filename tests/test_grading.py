"""Grading: marks from judged results alone, a sandbox that shows and allows nothing, a class, what a kill leaves."""

from __future__ import annotations

import csv
import html
import importlib
import importlib.util
import json
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import hostile
import hypothesis
import psutil
import pytest
import torch
from filelock import FileLock
from hypothesis import strategies as st
from torch import nn

import vit_tutorial as vt
from vit_tutorial import checks
from vit_tutorial.checks import lesson01, run
from vit_tutorial.checks.declare import Words, exercises_of

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


TWO = [SOLUTIONS[0], SOLUTIONS[4]]


def test_solutions_get_full_marks_and_stubs_none_in_two_lessons(tool, sandboxed, tmp_path, capsys):
    solved_and_untouched(tool, tmp_path, sandboxed, TWO)


@pytest.mark.slow
def test_solutions_get_full_marks_and_stubs_none_in_the_others(tool, sandboxed, tmp_path, capsys):
    solved_and_untouched(tool, tmp_path, sandboxed, [source for source in SOLUTIONS if source not in TWO])


@pytest.mark.slow
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
    """Hand in the hostile notebooks of these names, and an honest one."""
    codes = hostile.TAMPERING | hostile.READING | hostile.WRITING | hostile.NETWORK | hostile.TAKING
    for name in names:
        code = codes.get(name, "")
        code = code.replace("PATHS", repr([str(path) for path in paths])).replace("PORT", str(port))
        code = hostile.ATTACKING_WORKS.get(name) or f"{code.replace('MARKER', MARKER)}\n{hostile.WRONG}"
        hand_in(copy_of(FIRST), tmp_path / "in", name, hostile.EDITS.get(name), patch_numbers=code, patchify="pass")
    hand_in(FIRST, tmp_path / "in", "honest")


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
    names = [*hostile.TAMPERING, *hostile.ATTACKING_WORKS, *hostile.EDITS]
    try_all(tool, sandboxed, limits, tmp_path, monkeypatch, [name for name in names if name not in QUICK])


@pytest.mark.slow
def test_nothing_can_be_read_written_or_reached(tool, sandboxed, limits, tmp_path, monkeypatch):
    names = [*hostile.READING, *hostile.WRITING, *hostile.NETWORK]
    try_all(tool, sandboxed, limits, tmp_path, monkeypatch, [name for name in names if name not in QUICK])


@pytest.mark.slow
def test_nobody_can_take_more_than_the_limits(tool, sandboxed, limits, tmp_path, monkeypatch):
    try_all(tool, sandboxed, limits, tmp_path, monkeypatch, list(hostile.TAKING))
    left = [process.name() for process in psutil.Process().children(recursive=True) if process.is_running()]
    assert left == [], "no process is left"


def test_a_link_to_a_neighbours_notebook_is_left_out(tool, tmp_path, capsys):
    hand_in(FIRST, tmp_path / "in", "ada")
    (tmp_path / "in" / "bob").mkdir()
    (tmp_path / "in" / "bob" / FIRST.name).symlink_to(tmp_path / "in" / "ada" / FIRST.name)
    (tmp_path / "in" / "eve").symlink_to(tmp_path / "in" / "ada")
    found = list(tool.submissions(tmp_path / "in", [FIRST.stem]))
    assert [student for student, _, _ in found] == ["ada"]
    assert f"left out: bob/{FIRST.name} (a link, or no file)" in capsys.readouterr().out


def test_a_file_that_is_no_notebook_says_why(tool, tmp_path):
    path = tmp_path / "x.ipynb"
    many = [{"cell_type": "code", "source": "", "metadata": {}, "outputs": [], "execution_count": None}] * 600
    for text, words in [
        ("{not json", "not a notebook"),
        ("[" * 100_000, "not a notebook"),
        ('{"cells": [3], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}', "not a notebook"),
        (json.dumps({"cells": many, "metadata": {}, "nbformat": 4, "nbformat_minor": 4}), "600 cells, and 500"),
    ]:
        path.write_text(text, encoding="utf-8")
        with pytest.raises(ValueError, match=words):
            tool.judge.read(path)
    with path.open("wb") as file:
        file.truncate(21_000_000)
    with pytest.raises(ValueError, match="21 MB, and 20 are the most"):
        tool.judge.read(path)


# ---- The judge ---------------------------------------------------------------------------------------------------


def observed_of(tool: ModuleType, work: Any) -> list[Any]:
    """What a sandbox tells of a right patchify, or of ``work``."""
    (exercise,) = [exercise for exercise in exercises_of(lesson01) if exercise.name == "patchify"]
    return [[case.label, {"result": tool.judge.wire.encode(exercise.observe(work, case))}] for case in exercise.cases()]


def right_patchify(images: torch.Tensor, patch_size: Any) -> torch.Tensor:
    return vt.patchify(images, patch_size)


@pytest.mark.parametrize(
    "forge",
    [
        lambda told: [],
        lambda told: told[:-1],
        lambda told: [*told, told[0]],
        lambda told: told[::-1],
        lambda told: [[label, {"result": {"dict": [["result", 0.0]]}}] for label, _ in told],
        lambda told: [[label, {"result": {"dict": []}}] for label, _ in told],
        lambda told: [[label, {"fault": ""}] for label, _ in told],
        lambda told: [[label, {"result": True}] for label, _ in told],
        lambda told: [[label, {}] for label, _ in told],
        lambda told: "right",
        lambda told: None,
        lambda told: {"right": True},
        lambda told: [[label, json.loads(json.dumps(result).replace("float32", "float64"))] for label, result in told],
    ],
)
def test_a_report_without_the_right_results_gives_no_mark(tool, forge):
    told = observed_of(tool, right_patchify)
    assert tool.judge.confirms("01", "patchify", told)[0] is True
    assert tool.judge.confirms("01", "patchify", forge(told))[0] is False


def test_the_right_results_of_every_exercise_are_confirmed_after_their_way_out_of_the_sandbox(tool):
    for exercise in checks.CATALOGUE.values():
        pairs = zip(exercise.cases(), run.known(exercise, None), strict=True)
        told = [[case.label, {"result": tool.judge.wire.encode(result)}] for case, result in pairs]
        right, report = tool.judge.confirms(exercise.lesson, exercise.name, json.loads(json.dumps(told)))
        assert right, report


def test_a_report_with_one_wrong_number_gives_no_mark(tool):
    def nearly(images: torch.Tensor, patch_size: Any) -> torch.Tensor:
        return vt.patchify(images, patch_size) + 1e-3 * (len(images) == 3)

    right, report = tool.judge.confirms("01", "patchify", observed_of(tool, nearly))
    assert not right
    assert "patchify: not yet" in report


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=5) | st.integers(), inner, max_size=4)
        | st.tuples(inner, inner)
        | st.frozensets(st.integers(), max_size=3)
    ),
    max_leaves=12,
)


@hypothesis.given(value=VALUES)
def test_values_come_out_of_a_sandbox_as_they_were(value):
    wire = importlib.import_module("wire")
    back = wire.decode(json.loads(json.dumps(wire.encode(value))))
    assert back == value
    assert type(back) is type(value)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64])
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3)])
def test_tensors_come_out_of_a_sandbox_as_they_were(tool, dtype, shape):
    tensor = torch.randn(shape).to(dtype).requires_grad_(dtype.is_floating_point)
    for value in (tensor, torch.randn(shape).numpy()):
        back = tool.judge.wire.decode(json.loads(json.dumps(tool.judge.wire.encode(value))))
        assert back.dtype == value.dtype
        assert tuple(back.shape) == shape
        assert (back == value).all()


def test_a_checks_own_words_come_out_as_they_were(tool):
    back = tool.judge.wire.decode(json.loads(json.dumps(tool.judge.wire.encode({"a": Words("whole")}))))
    assert back == {"a": "whole"}
    assert type(back["a"]) is Words


def test_what_has_no_form_keeps_its_types_name_and_its_text(tool):
    back = tool.judge.wire.decode(json.loads(json.dumps(tool.judge.wire.encode({"a": range(3), "b": nn.ReLU()}))))
    assert (type(back["a"]).__name__, repr(back["a"])) == ("range", "range(0, 3)")
    assert (type(back["b"]).__name__, repr(back["b"])) == ("ReLU", "ReLU()")


@pytest.mark.parametrize(
    "forged",
    [
        [1],
        {},
        {"pickle": "x"},
        {"tensor": "float32", "shape": [10**12], "bytes": ""},
        {"tensor": "float32", "shape": [-1, -1], "bytes": "AAAAAA=="},
        {"tensor": "quint8", "shape": [1], "bytes": "AA=="},
        {"array": "object", "shape": [1], "bytes": "AAAAAAAAAAA="},
    ],
)
def test_what_encode_does_not_write_is_refused(tool, forged):
    with pytest.raises(ValueError):  # noqa: PT011
        tool.judge.wire.decode(forged)


def test_honest_answers_are_not_noticed(tool):
    for source in SOLUTIONS:
        written = [cell["source"] for cell in tool.judge.read(source) if cell["cell_type"] == "code"]
        assert tool.judge.tricks(written) == []


# ---- The sandbox -------------------------------------------------------------------------------------------------


def test_without_bubblewrap_it_refuses_and_says_how_to_go_on(tool, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    for platform in ("linux", "darwin"):
        monkeypatch.setattr(sys, "platform", platform)
        with pytest.raises(SystemExit) as caught:
            tool.sandbox.choose("")
        for words in ("apt install bubblewrap", "SANDBOX=podman", "SANDBOX=none", "with your rights"):
            assert words in str(caught.value)
    for kind in ("podman", "docker"):
        with pytest.raises(SystemExit, match=f"{kind} is not installed"):
            tool.sandbox.choose(kind)
    with pytest.raises(SystemExit, match="SANDBOX=chroot is not known: take bwrap, podman, docker, none"):
        tool.sandbox.choose("chroot")
    assert tool.sandbox.choose("none") == "none"


def test_a_bubblewrap_that_does_not_work_is_named(tool, monkeypatch, tmp_path):
    (tmp_path / "bwrap").write_text("#!/bin/sh\necho 'setting up uid map: Permission denied' >&2\nexit 1\n")
    (tmp_path / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(sys, "platform", "linux")
    with pytest.raises(SystemExit, match="can't make a sandbox here: setting up uid map: Permission denied"):
        tool.sandbox.choose("")


def pairs(command: list[str], option: str) -> list[str]:
    return [command[place + 1] for place, part in enumerate(command) if part == option]


@pytest.mark.parametrize("kind", ["podman", "docker"])
def test_a_containers_command_line(tool, kind, tmp_path):
    limits = tool.sandbox.Limits(processes=48, disk=64_000_000, memory=2_000_000_000)
    command = tool.sandbox.container(kind, limits, tmp_path / "vit_tutorial", "vit-1")
    assert command[:2] == [kind, "run"]
    for option in ("--rm", "--interactive", "--read-only"):
        assert option in command
    for option, value in {
        "--network": "none",
        "--cap-drop": "ALL",
        "--security-opt": "no-new-privileges",
        "--pids-limit": "48",
        "--memory": "3500000000",
        "--memory-swap": "3500000000",
        "--user": "65534:65534",
        "--pull": "never",
        "--name": "vit-1",
        "--workdir": "/scratch",
    }.items():
        assert pairs(command, option) == [value]
    volumes = pairs(command, "--volume")
    assert volumes[0] == f"{tmp_path}/vit_tutorial:/course/vit_tutorial:ro"
    assert [Path(volume.split(":")[0]).name for volume in volumes[1:]] == ["runner.py", "wire.py"]
    assert all(volume.endswith(":ro") for volume in volumes)
    assert pairs(command, "--tmpfs") == [f"{folder}:size=64000000,mode=1777" for folder in ("/scratch", "/tmp")]
    assert command[-3:] == ["vit_tutorial-grading", "python", "/course/tools/runner.py"]
    built = tool.sandbox.build_image(kind, tmp_path)
    assert built == [
        kind,
        "build",
        "--tag",
        "vit_tutorial-grading",
        "--file",
        f"{tmp_path}/grading.Dockerfile",
        f"{tmp_path}",
    ]


def test_bubblewrap_sees_the_package_and_python_and_no_more(tool, tmp_path):
    limits, package = tool.sandbox.Limits(disk=5_000_000), tmp_path / "course" / "vit_tutorial"
    command = tool.sandbox.bwrap(limits, package, [tmp_path, Path("/usr/share")])
    for option in ("--unshare-all", "--die-with-parent", "--new-session", "--disable-userns", "--clearenv"):
        assert option in command
    assert "--bind" not in command
    assert "--share-net" not in command
    shown = pairs(command, "--ro-bind")
    assert str(package) in shown
    for path in (ROOT, ROOT / "notebooks", tmp_path, Path.home(), Path("/"), Path("/etc"), Path("/home")):
        assert str(path) not in shown
    assert shown.index("/usr") < shown.index(str(package))
    assert pairs(command, "--tmpfs") == ["/tmp", "/usr/share", "/dev/shm", "/scratch"]
    assert command.index("/usr/share") > command.index("/usr")
    assert pairs(command, "--size") == ["5000000", "65536", "5000000", "5000000"]
    assert command.index("/tmp") < command.index(str(package)), "an empty /tmp would cover a course that lies in it"
    assert pairs(command, "--remount-ro") == ["/dev", "/usr/share", "/"]
    assert command.index("--remount-ro") > command.index(str(package)), "what lies in a covered folder is mounted first"


def test_grading_twice_at_a_time_is_refused(tool, tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "course").mkdir()
    with FileLock(tmp_path / "course" / "grading.lock"), pytest.raises(SystemExit, match="is being graded already"):
        tool.grade(tmp_path / "in", tmp_path / "course", "none")


def test_the_command_line(tool, tmp_path, monkeypatch):
    for arguments, words in [
        (["grade", "--submitted", str(tmp_path / "none")], "there is no folder"),
        (["assignments", "99"], "no lesson begins with 99"),
    ]:
        monkeypatch.setattr(sys, "argv", ["classroom.py", *arguments])
        with pytest.raises(SystemExit, match=re.escape(words)):
            tool.main()


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
    ran, run = [], tool.sandbox.run
    monkeypatch.setattr(tool.sandbox, "run", lambda *a: ran.append(a) or run(*a))
    assert tool.grade(tmp_path / "in", tmp_path / "killed", sandboxed, 2) == 2
    assert len(ran) == 6 - len(sound), "what was done is not run again"
    assert tool.grade(tmp_path / "in", tmp_path / "undisturbed", sandboxed, 2) == 2
    assert marks(tmp_path / "killed") == marks(tmp_path / "undisturbed")
    assert len(marks(tmp_path / "killed")) == 6
    mine = [process for process in psutil.process_iter(["cmdline"]) if str(tmp_path) in str(process.info["cmdline"])]
    assert mine == [], "no sandbox goes on"
