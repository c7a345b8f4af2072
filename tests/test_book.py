"""The book: its sources, its checker, and, after ``make book``, the built pages."""

import json
import re
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import ModuleType, SimpleNamespace
from typing import Any

import check
import glossary
import module_pages
import notebook_pages
import pytest
from browser import browser_only

import build
import vit_tutorial as vt

ROOT = Path(__file__).resolve().parent.parent
SITE = ROOT / "build" / "book" / "html"
PAGES = ("index.html", "notebooks/02_embeddings.html", "api/attention.html")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources that Sphinx reads, with empty files in place of MathJax, which the extra "book" brings."""
    folder = tmp_path_factory.mktemp("book")
    for name in ("es5/tex-svg.js", "LICENSE"):
        file = folder / "static" / "mathjax" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build, "files", lambda name: folder)
        build.write_sources(folder / "source")
    return folder / "source"


def test_every_lesson_exercise_and_teaching_page_is_in_the_book(source: Path) -> None:
    contents = (source / "index.md").read_text(encoding="utf-8")
    patterns = re.findall(r"^(?:notebooks|teaching)/.*\*$", contents, re.MULTILINE)
    listed = {path.relative_to(source) for pattern in patterns for path in source.glob(pattern)}
    expected = [path for pattern in ("notebooks/*.ipynb", "notebooks/exercises/*.ipynb", "teaching/*.md")
                for path in ROOT.glob(pattern)]  # fmt: skip
    assert listed == {path.relative_to(ROOT) for path in expected}


def test_every_module_and_public_name_is_in_the_reference(source: Path) -> None:
    modules = set(module_pages.modules())
    reference = (source / "api" / "index.md").read_text(encoding="utf-8")
    names, _, table = reference.partition("## The modules")
    functions = {name for name in vt.__all__ if not isinstance(getattr(vt, name), ModuleType)}
    assert {path.stem for path in (source / "api").glob("*.md")} == modules | {"index"}
    assert set(re.findall(r"^\| \[`vt\.(\w+)`", names, re.MULTILINE)) == functions
    assert set(re.findall(r"^\| \[`(\w+)`", table, re.MULTILINE)) == modules


def test_the_first_use_of_a_term_leads_to_its_row_of_the_glossary(source: Path) -> None:
    rows = re.findall(r'^\| <span id="([^"]+)"></span>', (source / "glossary.md").read_text("utf-8"), re.MULTILINE)
    assert len(rows) == len(set(rows)) > 140
    for lesson in sorted((source / "notebooks").glob("*.ipynb")):
        cells = json.loads(lesson.read_text("utf-8"))["cells"]
        text = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
        linked = re.findall(r'href="../glossary.html#([^"]+)"', text)
        assert linked, lesson.name
        assert len(linked) == len(set(linked)), lesson.name
        assert set(linked) <= set(rows), lesson.name
        assert "attention" not in linked or lesson.name >= "03"  # which introduces it


def test_only_prose_is_linked() -> None:
    text = "# Softmax\n`softmax` and $softmax$, ```softmax```, [softmax](a.md), Softmax, softmax, batch norms"
    cell = SimpleNamespace(cell_type="markdown", source=text)
    glossary.link_terms([cell], "03")
    link = r'<a class="term" href="../glossary.html#softmax" title="[^"]+">(\w+)</a>'
    plain, links = re.subn(link, r"\1", cell.source)
    assert (plain, links) == (text, 1)  # batch norm is introduced later, and isn't a batch


def test_a_file_of_benchmarks_is_named_once_and_not_linked() -> None:
    text = "([benchmarks](../benchmarks/a.csv)), [`a.csv`](../benchmarks/a.csv), [15](../benchmarks/a.csv#x)"
    found = notebook_pages.LINK_TO_BENCHMARKS.sub(notebook_pages.file_of_benchmarks, text)
    assert found == "(`benchmarks/a.csv`), `benchmarks/a.csv`, 15 (`benchmarks/a.csv`)"


GOOD = """<link rel="stylesheet" href="a.css"><h1 id="top">A</h1><a href="https://arxiv.org">a</a> <a href="#top">b</a>
<a href="b/c.html#there">c</a> <img src="p.png" alt="a cat"> <script src="a.js"></script>"""
FAULTS = {
    "": [],
    '<img src="p.png">': ["a picture without alternative text: p.png"],
    '<script src="https://cdn.example/x.js"></script>': ["loads https://cdn.example/x.js"],
    '<link rel="stylesheet" href="//cdn.example/x.css">': ["loads //cdn.example/x.css"],
    '<a href="gone.html">x</a>': ["broken link gone.html"],
    '<a href="b/c.html#gone">x</a>': ["broken link b/c.html#gone"],
    '<a href="/b/c.html">x</a>': ["broken link /b/c.html"],
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_checker_finds_faults(fault: str, tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "index.html").write_text(GOOD + fault, encoding="utf-8")
    (tmp_path / "b" / "c.html").write_text('<p id="there"><a href="../index.html#top">up</a></p>', encoding="utf-8")
    for name in ("a.css", "a.js", "p.png"):
        (tmp_path / name).touch()
    assert check.problems(tmp_path) == [f"index.html: {line}" for line in FAULTS[fault]]


built_book = pytest.mark.skipif(not (SITE / "search.html").exists(), reason="no built book: make book")


@pytest.mark.slow
@browser_only
@built_book
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_built_book_in_a_browser(scheme: str, chromium: Any) -> None:
    """axe-core finds nothing serious, formulas are set, the search answers: from the file system, without a network."""
    from axe_playwright_python.sync_playwright import Axe

    asked: list[str] = []
    errors: list[str] = []
    page = chromium.new_page(viewport={"width": 1300, "height": 1000}, color_scheme=scheme)
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: errors.append(str(error)))
    for name in PAGES:
        page.goto((SITE / name).as_uri(), wait_until="load")
        if page.locator("div.math").count():
            page.wait_for_selector("div.math mjx-container svg")
        # While the theme fades in, colours are those of neither scheme.
        page.wait_for_function("!document.getAnimations().some(a => a.playState === 'running')")
        found = Axe().run(page).response["violations"]
        assert not [violation for violation in found if violation["impact"] in ("serious", "critical")], name
    page.goto((SITE / "search.html").as_uri() + "?q=softmax")
    page.wait_for_selector("#search-results li a")
    assert "Attention" in page.inner_text("#search-results")
    assert errors == []
    assert not [url for url in asked if not url.startswith(("file:", "data:", "blob:"))]


SHAPES = """
[...document.querySelectorAll(".bd-article img")].filter(img => img.offsetWidth).map(img => {
  const {width, height} = img.getBoundingClientRect();
  return [img.alt.slice(0, 60), width / height / (img.naturalWidth / img.naturalHeight)];
})
"""


@pytest.mark.slow
@browser_only
@built_book
@pytest.mark.parametrize("width", [390, 768, 1440])
def test_every_figure_keeps_its_shape(width: int, chromium: Any) -> None:
    page = chromium.new_page(viewport={"width": width, "height": 900})
    shapes = []
    for lesson in sorted((SITE / "notebooks").glob("*.html")):
        page.goto(lesson.as_uri(), wait_until="load")
        page.evaluate("document.querySelectorAll('details').forEach(folded => { folded.open = true })")
        shapes += [(lesson.name, *shape) for shape in page.evaluate(SHAPES)]
    assert len(shapes) > 60
    assert [shape for shape in shapes if not 0.98 < shape[-1] < 1.02] == []


@pytest.mark.slow
@browser_only
@built_book
def test_a_search_shows_prose_and_no_tex(chromium: Any) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=SITE))
    Thread(target=server.serve_forever, daemon=True).start()
    page = chromium.new_page()
    page.goto(f"http://127.0.0.1:{server.server_port}/search.html?q=GELU")
    page.wait_for_selector("#search-results .context")
    page.wait_for_function("document.querySelectorAll('#search-results .context').length > 3")
    extracts = page.inner_text("#search-results")
    server.shutdown()
    assert "GELU" in extracts
    assert not re.search(r"\\[(\[a-z]", extracts)


def test_the_live_page_s_last_stop_leads_to_pages_of_the_book(source: Path) -> None:
    for address in build.AFTER_THE_TOUR.values():
        page = source / address.replace("_static/", "static/").removesuffix(".html")
        assert [*page.parent.glob(f"{page.name}.*")], address


@browser_only
def test_a_figure_keeps_its_shape_on_a_phone(show):
    style = (ROOT / "book" / "static" / "book.css").read_text("utf-8")
    picture = "data:image/svg+xml,<svg xmlns='http://www.w3.org/2000/svg' width='700' height='200'/>"
    img = f'<img src="{picture}" width="700" height="200" style="max-width: 100%" alt="a">'
    page = show(f"<style>{style}</style><div class='bd-article'>{img}", ready=0, size=(390, 800))
    box = page.locator("img").bounding_box()
    assert box["width"] < 390
    assert box["width"] / box["height"] == pytest.approx(3.5, rel=0.02)


@browser_only
def test_long_inline_code_doesn_t_make_a_page_of_the_book_wider_than_a_phone(show):
    style = (ROOT / "book" / "static" / "book.css").read_text("utf-8")
    code = "vit_tutorial.weights.load(" + "a" * 90 + ")"
    page = show(
        f"<style>{style}</style><div class='bd-article'><p>As <code>{code}</code> does", ready=0, size=(390, 800)
    )
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
