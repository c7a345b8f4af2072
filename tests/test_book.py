"""The book: what its sources are made of, what its checker finds, and, after ``make book``, the pages themselves."""

import importlib.util
import json
import re
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

import vit_tutorial as vt

ROOT = Path(__file__).resolve().parent.parent
SITE = ROOT / "build" / "book" / "html"
PAGES = ("index.html", "notebooks/02_embeddings.html", "api/attention.html")
BROWSERS = ("/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome")


def module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "book" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    sys.modules[name] = found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


check = module("check")
build = module("build")  # imports check


def text_of(notebook: Path) -> str:
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The staged sources, with something in the place of MathJax, which the extra "book" brings."""
    folder = tmp_path_factory.mktemp("book") / "source"
    mathjax = folder.parent / "mathjax"
    for name in ("es5/tex-svg.js", "LICENSE"):
        file = mathjax / "static" / "mathjax" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("", encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build, "files", lambda name: mathjax)
        build.stage(folder)
    return folder


def test_every_lesson_and_exercise_is_in_the_book(source: Path) -> None:
    contents = (source / "index.md").read_text(encoding="utf-8")
    patterns = re.findall(r"^notebooks/.*\*$", contents, re.MULTILINE)
    listed = {path.relative_to(source) for pattern in patterns for path in source.glob(pattern)}
    notebooks = [*(ROOT / "notebooks").glob("*.ipynb"), *(ROOT / "notebooks/exercises").glob("*.ipynb")]
    assert listed == {path.relative_to(ROOT) for path in notebooks}
    assert len(listed) > 8


def test_every_lesson_has_a_page_for_teachers_in_the_book(source: Path) -> None:
    assert "teaching/*" in (source / "index.md").read_text(encoding="utf-8")
    pages = {path.stem for path in (source / "teaching").glob("*.md")}
    assert pages == {path.stem for path in (ROOT / "notebooks/solutions").glob("*.ipynb")}


def test_every_module_and_public_name_is_in_the_reference(source: Path) -> None:
    modules = set(build.modules())
    assert {"patches", "data", "positions", "weights", "checks"} <= modules
    assert {path.stem for path in (source / "api").glob("*.md")} == modules | {"index"}
    reference = (source / "api" / "index.md").read_text(encoding="utf-8")
    names, _, table = reference.partition("## The modules")
    functions = {name for name in vt.__all__ if not isinstance(getattr(vt, name), ModuleType)}
    assert set(re.findall(r"^\| \[`vt\.(\w+)`", names, re.MULTILINE)) == functions
    assert set(re.findall(r"^\| \[`(\w+)`", table, re.MULTILINE)) == modules
    contents = (source / "index.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^api/(\w+)$", contents, re.MULTILINE)) == modules | {"index"}


def test_a_modules_page_links_to_its_source_if_sphinx_has_one(source: Path) -> None:
    linked = {path.stem for path in (source / "api").glob("*.md") if "_modules/" in path.read_text(encoding="utf-8")}
    assert linked >= {"attention", "positions", "explain"}
    assert not linked & {"data", "plots"}  # rooms: lists of names


@pytest.mark.parametrize("lesson", build.lessons(), ids=lambda path: path.stem)
def test_a_lesson_links_to_its_module_its_source_and_its_exercises(source: Path, lesson: Path) -> None:
    staged = text_of(source / lesson.relative_to(ROOT))
    for name in build.MODULE.findall(staged.partition("\n## ")[0]):
        assert f"](../api/{build.page_of(name)}.md)" in staged
        assert (f'"../_modules/vit_tutorial/{name}.html"' in staged) == build.has_source(name)
    for exercises in (ROOT / "notebooks/exercises").glob(f"{lesson.name[:2]}_*.ipynb"):
        assert f"](exercises/{exercises.name})" in staged
        back = text_of(source / exercises.relative_to(ROOT))
        assert f"](../{lesson.name})" in back
    to_run = source / "to_run" / lesson.relative_to(ROOT)
    assert f"</to_run/notebooks/{lesson.name}>" in staged
    assert '"output_type"' not in to_run.read_text(encoding="utf-8")
    assert text_of(to_run) == text_of(lesson)


def test_long_outputs_and_predictions_are_folded_and_nothing_else_is_changed(source: Path) -> None:
    lesson = ROOT / "notebooks" / "03_attention.ipynb"
    before = json.loads(lesson.read_text(encoding="utf-8"))["cells"]
    after = json.loads((source / "notebooks" / lesson.name).read_text(encoding="utf-8"))["cells"]
    del after[1]  # the line of links
    folded = {i for i, cell in enumerate(after) if "hide-output" in cell["metadata"].get("tags", [])}
    question = next(i for i, cell in enumerate(before) if "Before you run it" in "".join(cell["source"]))
    assert question + 1 in folded
    assert 2 < len(folded) < len(before) / 6
    for i, (one, other) in enumerate(zip(before, after, strict=True)):
        assert "".join(one["source"]).replace("../README.md#", "../index.md#") == "".join(other["source"])
        assert one.get("outputs") == other.get("outputs")
        if sum(len("".join(output.get("text", "")).splitlines()) for output in one.get("outputs", [])) > 20:
            assert i in folded


@pytest.mark.parametrize(
    ("link", "expected"),
    [
        ("[a](../vit_tutorial/attention.py)", "[a](../api/attention.md)"),
        ("[a](../README.md#start)", "[a](../index.md#start)"),
        ("[a](04_mlp.ipynb)", "[a](04_mlp.ipynb)"),
        ("[a](exercises/04_mlp.ipynb)", "[a](exercises/04_mlp.ipynb)"),
    ],
)
def test_links_out_of_the_notebooks_lead_to_pages(link: str, expected: str) -> None:
    page = ROOT / "notebooks" / "03_attention.ipynb"
    assert build.OUTWARD_LINK.sub(lambda found: build.redirected(found, page), link) == expected


def glossary() -> list[list[str]]:
    """The rows: term, symbol, meaning, lesson."""
    lines = (ROOT / "book" / "glossary.md").read_text(encoding="utf-8").splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
    assert rows[0] == ["term", "symbol", "meaning", "lesson"]
    return rows[1:]


def test_the_glossary_has_each_term_once_in_one_sentence_with_its_lesson() -> None:
    terms = [row[0] for row in glossary()]
    assert terms == sorted(set(terms), key=str.lower)
    for term, _, meaning, lesson in glossary():
        assert meaning.endswith(".")
        assert ". " not in meaning, term
        number, target = re.fullmatch(r"\[(\d\d)\]\(\.\./notebooks/(\S+)\)", lesson).groups()  # type: ignore[union-attr]
        assert target.startswith(f"{number}_")
        assert (ROOT / "notebooks" / target).exists(), target


def test_the_book_has_the_glossary_with_links_to_its_pages(source: Path) -> None:
    text = (source / "glossary.md").read_text(encoding="utf-8")
    links = re.findall(r"\]\((.*?)\)", text)
    assert len(links) == len(glossary())
    assert all((source / link).exists() for link in links)
    assert re.search("^glossary$", (source / "index.md").read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize("name", ["patches", "embeddings", "attention", "mlp", "encoder", "vit"])
def test_the_glossary_has_every_symbol_of_the_shapes_in_the_six_modules(name: str) -> None:
    known = {symbol for row in glossary() for symbol in row[1].split(", ")}
    text = (ROOT / "vit_tutorial" / f"{name}.py").read_text(encoding="utf-8")
    shapes = re.findall(r"\((\.\.\.(?:, \w)+|[A-Z](?:, ?[\w* ]+)+)\)", text)  # (B, N, C*P*P), (..., D)
    shapes = [shape for shape in shapes if all(len(word) == 1 or word.isdigit() for word in re.findall(r"\w+", shape))]
    symbols = set(re.findall(r"[A-Za-z]", " ".join(shapes)))
    assert symbols
    assert symbols <= known, symbols - known


GOOD = """<link rel="stylesheet" href="a.css"><h1 id="top">A</h1><a href="https://arxiv.org">a</a> <a href="#top">b</a>
<a href="b/c.html#there">c</a> <img src="p.png" alt="a cat"> <script src="a.js"></script>
<p>|x| and |y|, <code>| a | b |</code>, <span class="math">p(a | b | c)</span>, one | other</p><pre>| a | b |</pre>
<table><tr><th>a</th><th>b</th></tr><tr><td colspan="2">| a | b |</td></tr></table>"""
FAULTS = {
    "no text": ('<img src="p.png">', "a picture without alternative text: p.png"),
    "an empty text": ('<img src="p.png" alt=" ">', "a picture without alternative text: p.png"),
    "a script": ('<script src="https://cdn.example/x.js"></script>', "loads https://cdn.example/x.js"),
    "a script, either scheme": ('<script src="//cdn.example/x.js"></script>', "loads //cdn.example/x.js"),
    "a style": ('<link rel="stylesheet" href="https://cdn.example/x.css">', "loads https://cdn.example/x.css"),
    "a font": ("<style>@font-face{src:url('https://cdn.example/f')}</style>", "loads https://cdn.example/f"),
    "a page": ('<a href="gone.html">x</a>', "broken link gone.html"),
    "a folder": ('<a href="b/">x</a>', "broken link b/"),
    "an anchor": ('<a href="b/c.html#gone">x</a>', "broken link b/c.html#gone"),
    "an anchor here": ('<a href="#gone">x</a>', "broken link #gone"),
    "a picture": ('<img src="gone.png" alt="x">', "broken link gone.png"),
    "a table": (
        '<p>| <a href="b/c.html">07 training</a>\n | train one | 30 min |</p>',
        "a table that stayed text: | 07 training | train one | 30 min |",
    ),
    "a table's second line": ("<p>a | b\n--- | ---</p>", "a table that stayed text: a | b --- | ---"),
    "a row": (
        "<table><tr><th>a</th><th>b</th></tr><tr><td>1</td></tr></table>",
        "a table with rows of 1 to 2 columns",
    ),
}


def small_site(folder: Path, more: str = "") -> Path:
    (folder / "b").mkdir()
    (folder / "index.html").write_text(GOOD + more, encoding="utf-8")
    (folder / "b" / "c.html").write_text('<p id="there"><a href="../index.html#top">up</a></p>', encoding="utf-8")
    for name in ("a.css", "a.js", "p.png"):
        (folder / name).write_text("", encoding="utf-8")
    return folder


def test_the_checker_finds_nothing_in_a_good_site(tmp_path: Path) -> None:
    assert check.problems(small_site(tmp_path)) == []


@pytest.mark.parametrize("fault", FAULTS)
def test_the_checker_finds(fault: str, tmp_path: Path) -> None:
    html, expected = FAULTS[fault]
    assert check.problems(small_site(tmp_path, html)) == [f"index.html: {expected}"]


def test_the_checker_wants_links_that_hold_wherever_the_site_lies(tmp_path: Path) -> None:
    link = (tmp_path / "b" / "c.html").as_posix()  # from the root: right here, and nowhere else
    assert check.problems(small_site(tmp_path, f'<a href="{link}">x</a>')) == [f"index.html: broken link {link}"]


def test_the_checker_reads_styles_weighs_the_site_and_wants_a_page(tmp_path: Path) -> None:
    site = small_site(tmp_path)
    (site / "a.css").write_text('@import "https://cdn.example/y.css";', encoding="utf-8")
    assert check.problems(site) == ["a.css: loads https://cdn.example/y.css"]
    (site / "a.css").write_text(" " * 3_000_000, encoding="utf-8")
    assert check.problems(site) == []
    assert check.problems(site, most=2) == ["the site has 3.0 MB, more than 2"]
    assert "no page" in check.problems(site / "none")[0]


def test_pins_of_the_book_fit_the_bounds() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = (ROOT / "book" / "requirements.txt").read_text(encoding="utf-8").splitlines()
    pins = {pin.name: Version(next(iter(pin.specifier)).version) for pin in map(Requirement, lines)}
    main = {Requirement(line).name for line in (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
            if not line.startswith("#")}  # fmt: skip
    for line in project["optional-dependencies"]["book"]:
        bound = Requirement(line)
        assert bound.specifier.contains(pins[bound.name]), line
    assert not main & set(pins), "pinned twice"


@pytest.fixture
def site() -> Path:
    """Looked for when a test wants it: .ci/run builds the book beside the other tests."""
    if not (SITE / "search.html").exists():
        pytest.skip("no built book: make book")
    return SITE


@pytest.mark.slow
def test_the_built_book_has_no_problem(site: Path) -> None:
    assert check.problems(site) == []


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_built_book_in_a_browser(site: Path, scheme: str) -> None:
    """No serious finding of axe-core, formulas set, the search answers: from the file system, without a network."""
    sync_api = pytest.importorskip("playwright.sync_api")
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    browser_path = next((path for path in BROWSERS if Path(path).exists()), None)
    if browser_path is None:
        pytest.skip("no Chromium on this machine")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1300, "height": 1000}, color_scheme=scheme)
        asked: list[str] = []
        wrong: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        for name in PAGES:
            page.goto((site / name).as_uri(), wait_until="load")
            if page.locator("div.math").count():
                page.wait_for_selector("div.math mjx-container svg")
            # Halfway through the theme's fading in, colours are those of neither scheme.
            page.wait_for_function("!document.getAnimations().some(a => a.playState === 'running')")
            found = axe.run(page).response["violations"]
            assert not [violation for violation in found if violation["impact"] in ("serious", "critical")], name
        page.goto((site / "search.html").as_uri() + "?q=softmax")
        page.wait_for_selector("#search-results li a")
        assert "Attention" in page.inner_text("#search-results")
        browser.close()
    assert wrong == []
    assert not [url for url in asked if not url.startswith(("file:", "data:", "blob:"))]
