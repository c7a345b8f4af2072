"""tools/lessons.py: a lesson that fails is named with its cell, hides no other, and keeps its old outputs."""

import base64
import io
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import lessons as tool
import nbformat
import numpy as np
import pytest
from nbval.plugin import get_sanitize_patterns
from PIL import Image

ROOT = Path(__file__).resolve().parent.parent
SANITISER = ROOT / "tests" / "nbval_sanitize.cfg"


@pytest.fixture
def lessons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr(tool, "NOTEBOOKS", tmp_path)
    for name, code in {"01_good": "print(6 * 7)", "02_bad": "1 / 0", "03_good": "x = 1\nx"}.items():
        cells = [nbformat.v4.new_markdown_cell("# A lesson"), nbformat.v4.new_code_cell(code)]
        nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / f"{name}.ipynb")
    return tool


def call(tool: ModuleType, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr("sys.argv", ["lessons.py", *arguments])
    return tool.main()


def test_run_names_the_failing_cell_and_goes_on(
    lessons: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (tmp_path / "01_good.ipynb").read_bytes()
    assert call(lessons, monkeypatch, "run") == 1
    assert (tmp_path / "01_good.ipynb").read_bytes() == before
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


# ---- Figures that are folded ----------------------------------------------------------------------------------------

SHOW = 'plots.show(plots.heatmaps([x], ["x"]), alt="A map.", caption="**Figure 1.**")'


@pytest.mark.parametrize(
    "source",
    [
        SHOW,
        f"{SHOW}\nassert x.shape == (2, 2)",
        f'titles = ["a", f"{{len(x)}} rows"]\n{SHOW}',
        "figure = plots.curves(range(3), {'x': x.tolist()})\nfigure.axes[0].set_xticks(range(3))\n" + SHOW,
        'plots.show(plots.pictures([x[0].reshape(3, 16, 16) / 2 + 0.5]), alt="A patch.")',
        'plots.show(plots.dots({name: [100 * share] for name, share in shares.items()}), alt="Dots.")',
        'vt.plots.show(vt.plots.steps(3), alt="Five steps.")',
        "display(page)",
    ],
)
def test_a_cell_that_only_draws(lessons: ModuleType, source: str) -> None:
    assert lessons.only_draws(source)


@pytest.mark.parametrize(
    "source",
    [
        "x = 1",
        "figure = plots.steps(3)",  # shows nothing
        f"{SHOW}\nprint(x.mean())",
        f"x = q @ k.T\n{SHOW}",
        'plots.show(plots.matrices([q, k, q @ k.T]), alt="Three matrices.")',
        f"x = images.reshape(196, 768)\n{SHOW}",  # in "What goes wrong" this is the mistake itself
        f"x = model(images)\n{SHOW}",
        'plots.show(plots.heatmaps([model(images)]), alt="Logits.")',
        f"for n in range(3):\n    x[n] = n\n{SHOW}",
        f"x[0] = 1\n{SHOW}",
        f"torch.manual_seed(0)\n{SHOW}",
        f"%matplotlib inline\n{SHOW}",
    ],
)
def test_a_cell_that_computes(lessons: ModuleType, source: str) -> None:
    assert not lessons.only_draws(source)


def test_a_name_that_a_later_cell_needs_is_not_hidden(lessons: ModuleType) -> None:
    source = f'names = ["a", "b"]\n{SHOW}'
    assert lessons.only_draws(source, ["print(x)", "names = []\nprint(names)"])
    assert lessons.only_draws(source, ["def f(names):\n    return names", "[names for names in x]"])
    assert not lessons.only_draws(source, ["print(x)", "print(names)"])
    assert not lessons.only_draws(source, ["names = [*names, 'c']"])


def test_folding_is_kept_in_the_file_and_undone_when_a_cell_computes(
    lessons: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "04_drawn.ipynb"
    code = [nbformat.v4.new_code_cell(source) for source in ("x = 1\nprint(x)", SHOW)]
    code[0].metadata = {"tags": ["other", "hide-input"], "jupyter": {"source_hidden": True}}
    code[1].outputs = [nbformat.v4.new_output("stream", text="kept")]
    nbformat.write(nbformat.v4.new_notebook(cells=code), path)
    assert call(lessons, monkeypatch, "fold", "04") == 0
    assert "1 cells folded" in capsys.readouterr().out
    first, second = nbformat.read(path, as_version=4).cells
    assert first.metadata == {"tags": ["other"]}
    assert second.metadata == {"tags": ["hide-input"], "jupyter": {"source_hidden": True}}
    assert second.outputs[0].text == "kept"


def test_assertions_out_of_a_reader_s_sight_are_folded(lessons: ModuleType) -> None:
    cells = [nbformat.v4.new_code_cell(f"{first}\nassert 0.4 < loss < 0.6") for first in ("# What must hold", "x = 1")]
    assert lessons.fold(nbformat.v4.new_notebook(cells=cells)) == 1
    assert lessons.is_folded(cells[0])


def encoded(picture: Image.Image) -> str:
    out = io.BytesIO()
    picture.save(out, format="PNG")
    return base64.b64encode(out.getvalue()).decode()


def test_pictures_get_a_palette_where_that_cannot_be_seen(lessons: ModuleType) -> None:
    drawing = Image.new("RGB", (60, 40), "white")
    drawing.paste((213, 94, 0), (10, 10, 30, 30))
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (60, 60, 3), dtype=np.uint8))
    html = f'<img src="data:image/png;base64,{encoded(drawing)}" alt="2 squares">'
    outputs = [
        nbformat.v4.new_output("display_data", {"image/png": encoded(drawing), "text/plain": "a square"}),
        nbformat.v4.new_output("display_data", {"image/png": encoded(noise)}),
        nbformat.v4.new_output("display_data", {"text/html": html}),
    ]
    lessons.lighten(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("", outputs=outputs)]))
    first, second, third = (output.data for output in outputs)
    light = Image.open(io.BytesIO(base64.b64decode(first["image/png"])))
    assert light.mode == "P"
    assert np.array_equal(np.asarray(light.convert("RGB")), np.asarray(drawing))
    kept = Image.open(io.BytesIO(base64.b64decode(second["image/png"])))
    assert np.array_equal(np.asarray(kept), np.asarray(noise))
    assert third["text/html"] == f'<img src="data:image/png;base64,{first["image/png"]}" alt="2 squares">'


# ---- Reading times --------------------------------------------------------------------------------------------------


def test_reading_takes_its_time(lessons: ModuleType) -> None:
    prose = nbformat.v4.new_markdown_cell(
        "# Title\n\n" + "word " * 199 + "[link](../a/long/path.md) <b>\n\n| a |\n|---|"
    )
    picture = nbformat.v4.new_output("display_data", {"image/png": "", "text/plain": "words that are not read"})
    drawing = nbformat.v4.new_code_cell(SHOW, outputs=[picture])
    code = nbformat.v4.new_code_cell("x = 1\n\nprint(x)  # two lines")
    notebook = nbformat.v4.new_notebook(cells=[prose, code, drawing])
    assert lessons.minutes(notebook) == pytest.approx(202 / 200 + 3 * 4 / 60 + 12 / 60)
    lessons.fold(notebook)
    assert lessons.minutes(notebook) == pytest.approx(202 / 200 + 2 * 4 / 60 + 12 / 60)


def test_the_command_prints_reading_times(
    lessons: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(lessons, monkeypatch, "minutes", "01") == 0
    assert capsys.readouterr().out.split() == ["01_good", "0", "minutes"]


# ---- Numbers that may differ ----------------------------------------------------------------------------------------


def sanitised(text: str) -> str:
    for pattern, replacement in get_sanitize_patterns(SANITISER.read_text(encoding="ascii")):
        text = re.sub(pattern, replacement, text)
    return text


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("right in ≈ 93.1 %", "right in ≈ 9 %"),
        ("≈ -0.5 and ≈ 1,234,567 pixels", "≈ 0.25 and ≈ 999 pixels"),
        ("loss ≈ 1.5e-05", "loss ≈ 2e-4"),
        ("loss ≈  9.50 |", "loss ≈ 10.25 |"),
        ("≈−3", "≈ +3"),
    ],
)
def test_a_number_after_almost_equal_is_not_compared(one: str, other: str) -> None:
    assert sanitised(one) == sanitised(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("0.93", "0.94"),
        ("right in ≈ 93 %", "right in ≈ 93"),
        ("≈ 93 % of 360", "≈ 93 % of 361"),
        ("≈ 0.93, 0.5", "≈ 0.93, 0.6"),
        ("≈ 0.93", "≈ nan"),
        ("≈ 0.93", "0.93"),
        ("after ≈ two epochs", "after ≈ three epochs"),
    ],
)
def test_everything_else_is_compared(one: str, other: str) -> None:
    assert sanitised(one) != sanitised(other)


def test_nbval_compares_all_but_the_number_after_almost_equal(tmp_path: Path) -> None:
    """With this project's own settings, on a notebook whose first cell may differ and whose second may not."""
    cells = [
        nbformat.v4.new_code_cell(
            f'print("{now}")', execution_count=n, outputs=[nbformat.v4.new_output("stream", text=f"{then}\n")]
        )
        for n, (then, now) in enumerate([("≈ 0.93 of 9", "≈ 0.91 of 9"), ("≈ 0.93 of 9", "≈ 0.93 of 8")], 1)
    ]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / "approximately.ipynb")
    words = ["-m", "pytest", "-c", "pyproject.toml", "--rootdir", ".", "-q", "-p", "no:cacheprovider", "-p", "no:cov"]
    done = subprocess.run(
        [sys.executable, *words, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, encoding="utf-8", check=False
    )
    assert "1 failed, 1 passed" in done.stdout
    assert re.search(r"FAILED .*approximately.ipynb::Cell 1", done.stdout)
