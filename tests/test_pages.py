"""How a page is put together: one script of many modules, a page of its own."""

import re
from pathlib import Path

import pytest
from browser import browser_only

import vit_tutorial as vt
from vit_tutorial import pages

ROOT = Path(__file__).parent.parent
SCRIPTS = sorted((ROOT / "vit_tutorial").rglob("*.js"))


def test_a_script_is_its_modules_each_after_what_it_imports_and_no_name_is_declared_twice():
    script = pages.script("live/live.js")
    assert not re.search(r"^(import|export)\b", script, re.MULTILINE)
    declared = re.findall(r"^(?:async )?(?:function\*?|const|let|class) (\w+)", script, re.MULTILINE)
    assert len(declared) == len(set(declared)) > 10
    assert script.count("// What a page needs, whatever it shows") == 1
    assert script.index("function begin(") < script.index("begin(start);")


def test_every_module_is_part_of_a_page():
    both = "".join(pages.script(name) for name in ("live/live.js", "plots/slider.js", "plots/matches.js"))
    last = {path.name: path.read_text("utf-8").splitlines()[-1].removeprefix("export ") for path in SCRIPTS}
    unused = [name for name, line in last.items() if line not in both]
    assert unused == []


def test_a_page_of_its_own_has_one_heading_of_the_first_level(tmp_path):
    page = vt.live.shipped("digits")
    page.save(tmp_path / "page.html")
    assert re.findall(r"<h1>(.*?)</h1>", (tmp_path / "page.html").read_text("utf-8")) == [page.title]
    assert "<h1" not in page.html  # a notebook and a book have their own
    with pytest.raises(ValueError, match=r"ends in \.html, got page\.pdf"):
        page.save("page.pdf")


@browser_only
def test_long_inline_code_doesn_t_make_a_page_of_the_book_wider_than_a_phone(show):
    style = (ROOT / "book" / "static" / "book.css").read_text("utf-8")
    code = "vit_tutorial.weights.load(" + "a" * 90 + ")"
    page = show(
        f"<style>{style}</style><div class='bd-article'><p>As <code>{code}</code> does", ready=0, size=(390, 800)
    )
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
