"""What a teacher's browser gets to see of a student: payloads of public lists, in all places that are shown."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from browser import browser_only
from payloads import PAYLOADS

ROOT = Path(__file__).resolve().parent.parent
pytestmark = pytest.mark.skipif(not importlib.util.find_spec("nbgrader"), reason="nbgrader is not installed")
FAR = "http://far.example"


def cells(tool: ModuleType, payload: str) -> list[dict[str, Any]]:
    """A notebook that holds a payload wherever a student can put one, as it comes from a sandbox."""
    text = tool.judge.clean(payload)
    outputs = [
        {"output_type": "stream", "name": "stdout", "text": payload},
        {"output_type": "error", "ename": payload, "evalue": payload, "traceback": [payload]},
        {"output_type": "display_data", "data": {"text/plain": payload, "text/html": payload, "image/png": payload}},
        {"output_type": "display_data", "data": {"text/markdown": payload, "image/svg+xml": payload}},
        {"output_type": "display_data", "data": {"application/javascript": "fired=1", "text/latex": payload}},
    ]
    answer = {"grade_id": "answer-x", "grade": True, "solution": True, "locked": False, "points": 1}
    return [
        {"cell_type": "markdown", "source": text, "nbgrader": answer, "own": True},
        {"cell_type": "markdown", "source": text, "nbgrader": {}, "own": True},
        {"cell_type": "code", "source": text, "nbgrader": {}, "own": True, "outputs": list(tool.judge.sound(outputs))},
    ]


def feedback_page(tool: ModuleType, payloads: list[str]) -> str:
    said = " ".join(payloads)
    marks = [
        {"name": name, "score": 0.0, "of": 1.0, "waits": True, "earlier": False, "comment": said, "beside": said}
        for name in ("answer-x", said)
    ]
    shown = [cell for payload in payloads for cell in cells(tool, payload)]
    return str(tool.feedback.page(said, payloads, marks, shown))


def formgraders_cells(tool: ModuleType, payloads: list[str]) -> str:
    """What formgrader makes of the notebook's cells: without the page around it, and so without any policy."""
    from nbconvert import HTMLExporter

    shown = [cell for payload in payloads for cell in cells(tool, payload)]
    return str(HTMLExporter(template_name="basic").from_notebook_node(tool._notebook(shown))[0])


LIVE = "body script, iframe, object, embed, svg, form, base, audio, video, input, link, meta[http-equiv=refresh]"


@browser_only
@pytest.mark.parametrize("made", [feedback_page, formgraders_cells])
def test_no_payload_runs_or_loads_anything_at_the_teachers(tool, chromium, made, tmp_path):
    page, asked = chromium.new_context().new_page(), []
    page.route("http*://**", lambda route: (asked.append(route.request.url), route.abort()))
    path = tmp_path / "page.html"
    path.write_text(made(tool, [payload.replace("FAR", FAR) for payload in PAYLOADS]), encoding="utf-8")
    page.goto(path.as_uri())
    page.evaluate("document.querySelectorAll('a[href], button, area').forEach(link => link.click())")
    page.wait_for_timeout(300)
    assert page.evaluate(f"document.querySelectorAll('{LIVE}').length") == 0
    links = page.evaluate("[...document.querySelectorAll('a')].map(a => a.getAttribute('href'))")
    assert [href for href in links if not str(href).startswith("#")] == []
    assert page.evaluate("window.fired") is None
    assert asked == []
    assert page.inner_text("body").count("fired=1") > 3 * 50, "the payloads are there, as text"
    assert len(PAYLOADS) >= 50


@browser_only
def test_the_payloads_are_sharp(tool, chromium):
    """As they are, most of them get what they want: else the test above would show nothing."""
    from nbconvert.filters import markdown2html

    pages = [str(markdown2html(payload.replace("FAR", FAR))) for payload in PAYLOADS]
    sharp = f"""pages => pages.filter(html => {{
        const page = new DOMParser().parseFromString("<body>" + html, "text/html");
        const own = [...page.querySelectorAll("*")].filter(x => [...x.attributes].some(a => a.name.startsWith("on")));
        return own.length || page.querySelectorAll("{LIVE}, img, a[href], style").length;
    }}).length"""
    assert chromium.new_context().new_page().evaluate(sharp, pages) >= 45


def test_a_feedback_page_forbids_what_might_slip_through(tool):
    page = feedback_page(tool, ["<script>fired=1</script>"])
    policy = tool.feedback.POLICY
    assert f'<meta http-equiv="Content-Security-Policy" content="{policy}">' in page
    assert page.index("Content-Security-Policy") < page.index("<title>")
    assert "default-src 'none'" in policy
    assert "script" not in policy


def test_formgrader_shows_no_students_name_which_it_would_not_escape(tool, tmp_path):
    """Its template escapes nothing, and shows a name where there is a first and a last one."""
    import nbgrader
    from nbconvert import HTMLExporter

    release = tool.judge.read(ROOT / "notebooks" / "exercises" / "01_patches.ipynb")
    with tool.Book(tmp_path) as book:
        book.prepare("01_patches", release)
        book.enter("ada", "Ada <img src=x onerror=fired=1>", "01_patches", {}, {})
        student = book.gradebook.find_student("ada")
        names = {"student": student.id, "first_name": student.first_name, "last_name": student.last_name}
    templates = Path(nbgrader.__file__).parent / "server_extensions" / "formgrader" / "templates"
    exporter = HTMLExporter(template_name="formgrade", extra_template_basedirs=[str(templates)])
    where = {"index": 0, "total": 1, "base_url": "", "assignment_id": "x", "notebook_id": "x", "submission_id": "x"}
    page = str(exporter.from_notebook_node(tool._notebook(release), resources=where | names | {"notebook_path": ""})[0])
    assert "name-shown" in page
    assert "fired" not in page


def test_formgraders_server_gets_a_policy(tool, tmp_path):
    from traitlets.config import PyFileConfigLoader

    with tool.Book(tmp_path):
        pass
    config = PyFileConfigLoader("jupyter_server_config.py", str(tmp_path)).load_config()
    policy = config.ServerApp.tornado_settings["headers"]["Content-Security-Policy"]
    assert "default-src 'self'" in policy
    assert "http" not in policy
    assert "*" not in policy


def test_an_answer_reads_as_it_was_written(tool):
    long = "word " * 60
    assert tool.feedback.as_plain("One.\n\n* two\n  three").splitlines() == [
        "    One.",
        "    ",
        "    * two",
        "      three",
    ]
    assert max(map(len, tool.feedback.as_plain(long).splitlines())) <= 104
