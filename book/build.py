"""Build the book, a static site in ``build/book/html``: lessons, exercises, the reference, the live page.

No notebook is run: the pages show the committed outputs. The sources are put together in ``build/book/source``, Sphinx
makes the pages (a warning is an error), and ``check.py`` looks for broken links and the like. ``make book`` runs it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import check
import glossary
import nbformat
from module_pages import module_page, modules, reference_page
from notebook_pages import exercises, lessons, notebook_page, notebook_to_run

BOOK = Path(__file__).resolve().parent
ROOT = BOOK.parent
BUILD = ROOT / "build" / "book"
AFTER_THE_TOUR = {  # where the live page's last stop leads
    "Small photographs": "_static/live/photographs.html",
    "Patches and their kin, in large photographs": "_static/live/matches.html",
    "Lesson 01: patches": "notebooks/01_patches.html",
    "The glossary": "glossary.html",
}


def write_sources(source: Path) -> None:
    """Write everything that Sphinx reads into one folder, laid out as the repository is."""
    shutil.rmtree(source, ignore_errors=True)
    write_notebooks(source)
    write_reference(source)
    write_live_pages(source)
    write_mathjax(source / "static" / "mathjax")
    shutil.copytree(BOOK / "static", source / "static", dirs_exist_ok=True)
    for folder in ("assets", "teaching"):
        shutil.copytree(ROOT / folder, source / folder)
    pages = (BOOK / name for name in ("command_line.md", "installation.md", "live.md", "recipes.md"))
    for path in (ROOT / "README.md", ROOT / "TEACHING.md", *pages):
        shutil.copy(path, source)
    (source / "glossary.md").write_text(glossary.page(), encoding="utf-8")


def write_notebooks(source: Path) -> None:
    repository = os.environ.get("REPOSITORY_URL", "")
    for path in (*lessons(), *exercises()):
        relative = path.relative_to(ROOT)
        for copy, notebook in (
            (source / relative, notebook_page(path)),
            (source / "to_run" / relative, notebook_to_run(path, repository)),
        ):
            copy.parent.mkdir(parents=True, exist_ok=True)
            nbformat.write(notebook, copy)


def write_reference(source: Path) -> None:
    """A page for each module, the page that lists them, and the book's first page, whose contents name them."""
    api = source / "api"
    api.mkdir()
    notebooks = [path.relative_to(ROOT) for path in (*lessons(), *exercises())]
    for page in modules():
        (api / f"{page}.md").write_text(module_page(page, notebooks), encoding="utf-8")
    (api / "index.md").write_text(reference_page(), encoding="utf-8")
    index = (BOOK / "index.md").read_text(encoding="utf-8")
    contents = "\n".join(f"api/{page}" for page in modules())
    (source / "index.md").write_text(index.replace("{modules}", contents), encoding="utf-8")


def write_live_pages(source: Path) -> None:
    """The page of digits, which "Play first" includes, and those of shapes, of small and of large photographs."""
    from vit_tutorial import live

    digits = live.shipped("digits", states=True, next_pages=AFTER_THE_TOUR)
    (source / "live.html").write_text(digits.html, encoding="utf-8")
    folder = source / "static" / "live"
    for name in ("shapes", "photographs"):
        live.shipped(name).save(folder / f"{name}.html")
    (folder / "matches.html").write_text(live.matches_page(), encoding="utf-8")


def write_mathjax(folder: Path) -> None:
    """MathJax, from a package, so that formulas are set without a network."""
    mathjax = files("mathjax") / "static" / "mathjax"
    folder.mkdir(parents=True)
    (folder / "tex-svg.js").write_bytes((mathjax / "es5" / "tex-svg.js").read_bytes())
    (folder / "LICENSE").write_bytes((mathjax / "LICENSE").read_bytes())


def main() -> int:
    write_sources(BUILD / "source")
    site = BUILD / "html"
    shutil.rmtree(site, ignore_errors=True)
    options = ["-b", "html", "-W", "--keep-going", "-q", "-c", str(BOOK), "-d", str(BUILD / "doctrees")]
    sphinx = subprocess.run([sys.executable, "-m", "sphinx", *options, str(BUILD / "source"), str(site)], check=False)
    return sphinx.returncode or check.main(site)


if __name__ == "__main__":
    sys.exit(main())
