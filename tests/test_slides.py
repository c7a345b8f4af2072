"""make slides: a deck a lesson, with every figure, its caption and the questions, that needs no network."""

import importlib
import importlib.util
import json
import re
import shutil
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).resolve().parent.parent
LESSONS = sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))
MISSING = [name for name in ("sphinx_revealjs", "mathjax") if importlib.util.find_spec(name) is None]
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")

slides = importlib.import_module("slides")
needs_files = pytest.mark.skipif(bool(MISSING), reason=f"{MISSING} not installed: pip install -e .[book]")


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_every_figure_has_a_slide_with_its_caption_and_every_question_its_answer(path):
    notebook = nbformat.read(path, as_version=4)
    made = list(slides.slides(notebook))
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", []) if "data" in output]
    pictures = []
    for output in outputs:
        if "image/png" in output.data:
            pictures.append("".join(output.data["image/png"].split()))
        if "data-vit-slider" in output.data.get("text/html", ""):
            pictures.append(re.search(r"base64,([\w+/=]+)", output.data["text/html"])[1])
    shown = [section for section in made if "<figure>" in section]
    assert [re.search(r"base64,([\w+/=]+)", section)[1] for section in shown] == pictures
    for section in shown:
        assert re.search(r'<img alt="[^"]{10,}"', section)
        assert section.count("<img") == 1
    captions = [section for section in shown if re.search(r"<figcaption><p><strong>Figure [\d.]+</strong>", section)]
    assert len(captions) == len([output for output in outputs if "text/markdown" in output.data])
    assert made[0].startswith("<section class='title'><h1>")
    answers = sum(cell.source.count("<summary>Answer</summary>") for cell in notebook.cells)
    questions = [section for section in made if "class='question'" in section]
    assert len(questions) == answers
    assert made[len(made) - len(questions) :] == questions
    assert all("<div class='fragment answer'>" in section for section in questions)
    assert not [section for section in made if re.search(r'href="(?!https?:)', section)], "a link that leads nowhere"


@needs_files
def test_a_deck_is_one_file_that_asks_for_no_other():
    made = slides.deck(LESSONS[0])
    outside = re.sub(r"<script>.*?</script>", "", made, flags=re.DOTALL)
    assert "<link" not in outside
    assert not re.search(r"<script[^>]+src=|@import|url\((?!data:)", outside)
    assert "Reveal.initialize" in made
    assert "$" not in re.sub(r"<(script|style)>.*?</\1>|<section.*</section>", "", made, flags=re.DOTALL)


def test_formulas_code_and_headings_within_code_come_through():
    sources = [
        "# 99 · A title & more\n\nWhat you can do: $x < 1$.",
        "## 1 · A section\n\n### Its part\n\n```py\n# no\n```",
        "## Check yourself\n\n**1.** Why?\n\n<details><summary>Answer</summary>\n\n"
        "See [there](../x.ipynb) and [here](https://a.org).\n\n</details>",
        "## Further reading\n\nMore.",
    ]
    cells = [nbformat.v4.new_markdown_cell(source) for source in sources]
    made = list(slides.slides(nbformat.v4.new_notebook(cells=cells)))
    assert len(made) == 3
    assert "99 · A title &amp; more" in made[0]
    assert "$x &lt; 1$" in made[0]
    assert "<li>Its part</li>" in made[1]
    assert "See there and" in made[2]
    assert 'href="https://a.org"' in made[2]


def test_without_its_files_it_says_what_to_do(monkeypatch):
    monkeypatch.setattr(slides, "REVEAL", ("no_such_package", "dist"))
    with pytest.raises(SystemExit, match="no_such_package is missing: make slides installs it"):
        slides.deck(LESSONS[0])


@needs_files
@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")
def test_no_slide_of_any_deck_overflows_and_nothing_is_fetched(tmp_path):
    api = pytest.importorskip("playwright.sync_api")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        for path in LESSONS:
            target, asked, errors = tmp_path / f"{path.stem}.html", [], []
            target.write_text(slides.deck(path), encoding="utf-8")
            tab = browser.new_page(viewport={"width": 1280, "height": 720})
            tab.on("request", lambda request, asked=asked: asked.append(request.url))
            tab.on("pageerror", lambda error, errors=errors: errors.append(str(error)))
            tab.goto(target.as_uri())
            tab.wait_for_function("window.Reveal && Reveal.isReady()")
            too_high = tab.evaluate(
                "() => [...document.querySelectorAll('.slides > section')].map((section, i) => {"
                " Reveal.slide(i); return [i, section.scrollHeight] }).filter(([i, height]) => height > 722)"
            )
            assert too_high == [], path.stem
            assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []
            assert errors == []
            assert json.loads(tab.evaluate("JSON.stringify(Reveal.getTotalSlides())")) >= 10
            tab.close()
