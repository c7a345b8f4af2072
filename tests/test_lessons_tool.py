"""tools/lessons.py: a lesson that fails is named with its cell, hides no other, and keeps its old outputs."""

import importlib.util
from pathlib import Path
from types import ModuleType

import nbformat
import pytest

TOOL = Path(__file__).resolve().parent.parent / "tools" / "lessons.py"


@pytest.fixture
def lessons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("lessons", TOOL)
    assert spec is not None
    assert spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    monkeypatch.setattr(tool, "NOTEBOOKS", tmp_path)
    for name, code in {"01_good": "print(6 * 7)", "02_bad": "1 / 0", "03_good": "x = 1\nx"}.items():
        cells = [nbformat.v4.new_markdown_cell("# A lesson"), nbformat.v4.new_code_cell(code)]
        nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / f"{name}.ipynb")
    return tool


def call(tool: ModuleType, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr("sys.argv", ["lessons.py", *arguments])
    return tool.main()


def test_run_names_the_failing_cell_and_goes_on(
    lessons: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(lessons, monkeypatch, "run") == 1
    printed = capsys.readouterr().out
    first, second, *_, third, last = printed.splitlines()
    assert first.startswith("01_good")
    assert first.endswith("s  ok")
    assert second.startswith("02_bad")
    assert second.endswith("FAILED in cell 1")
    assert "1 / 0" in printed
    assert "ZeroDivisionError: division by zero" in printed
    assert third.startswith("03_good")
    assert last.startswith("2 of 3 lessons ok")


def test_run_leaves_the_files_alone(lessons: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before = (tmp_path / "01_good.ipynb").read_bytes()
    assert call(lessons, monkeypatch, "run", "01") == 0
    assert (tmp_path / "01_good.ipynb").read_bytes() == before


def test_refresh_keeps_outputs_only_if_all_went_well(
    lessons: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broken = (tmp_path / "02_bad.ipynb").read_bytes()
    assert call(lessons, monkeypatch, "refresh", "01", "02") == 1
    good = nbformat.read(tmp_path / "01_good.ipynb", as_version=4)
    assert good.cells[1].outputs[0].text == "42\n"
    assert good.cells[1].execution_count == 1
    assert good.metadata.language_info == {"name": "python"}
    assert (tmp_path / "02_bad.ipynb").read_bytes() == broken
    assert not list(tmp_path.glob("*.tmp"))


def test_an_unknown_lesson_lists_the_known(lessons: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit, match=r"no lesson begins with 07: there are 01_good, 02_bad, 03_good"):
        call(lessons, monkeypatch, "run", "07")
