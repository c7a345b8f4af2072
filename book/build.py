"""The lessons, the exercises and the package's reference as a static site in ``build/book/html``: ``make book``.

Nothing is run: the pages show the notebooks' committed outputs. The sources are put together in ``build/book/source``,
Sphinx makes the pages (a warning is an error), and ``check.py`` looks at what came out.
"""

from __future__ import annotations

import html
import importlib
import inspect
import re
import shutil
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import check
import nbformat

BOOK = Path(__file__).resolve().parent
ROOT = BOOK.parent
BUILD = ROOT / "build" / "book"
DOORS = {  # where the live page's story leads
    "Small photographs": "_static/live/photographs.html",
    "Patches and their kin, in large photographs": "_static/live/matches.html",
    "Lesson 01: patches": "notebooks/01_patches.html",
    "The glossary": "glossary.html",
}
LONG = 14  # lines of printed output that stay open
GUESS = re.compile(r"\bPredict\b|[Bb]efore you (?:run|look|go on)\b|[Mm]ake (?:a|your) guess|\bGuess (?:first|now)\b")
MODULE = re.compile(r"vit_tutorial/([\w/]+?)(?:\.py|/)(?=[`)#]|$)")
ROW = re.compile(r"^\| [\d, -]+? +\| ([\w.]+) +\| .+\.$", re.MULTILINE)  # of the package's map
TO_BENCHMARKS = re.compile(r"\[([^\]]+)\]\((?:\.\./)+(benchmarks/[^)#\s]+)[^)]*\)")
TERM = re.compile(r"^\| ([^|]+) \|[^|]*\| ([^|]+) \| \[(\d\d)\]", re.MULTILINE)  # a row of the glossary
NO_PROSE = r"```.*?```|`[^`]*`|\$\$.*?\$\$|\$[^$]*\$|!?\[[^\]]*\]\([^)]*\)|<a .*?</a>|<[^>]+>|^#.*?$"  # code, TeX …
OUTWARD_LINK = re.compile(r"(?<=\]\()((?:\.\./)+[^)#\s]*)(?=[)#])")


def lessons() -> list[Path]:
    return sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))


def exercises() -> list[Path]:
    return sorted((ROOT / "notebooks" / "exercises").glob("*.ipynb"))


def modules() -> dict[str, str]:
    """{page: the module's full name}, in the order of the package's map. A page is called as the name ends."""
    import vit_tutorial as vt

    return {name.rpartition(".")[2]: f"vit_tutorial.{name}" for name in ROW.findall(vt.__doc__ or "")}


def page_of(path: str) -> str:
    """The page that documents a module, given its path in the package: that of its room, where rooms have one page."""
    room, _, module = path.partition("/")
    return room if room in modules() else module


def about(module: str) -> str:
    """The first paragraph of a module's docstring."""
    return (importlib.import_module(module).__doc__ or "").strip().partition("\n\n")[0]


def lesson_of(docstring: str) -> str:
    """The number in a docstring that begins with "Lesson 03"; "" of any other."""
    return docstring[7:9] if docstring.startswith("Lesson ") else ""


def titles(notebook: nbformat.NotebookNode) -> str:
    """The first cell's text: the title, what you will learn, and a table that names the module."""
    return str(notebook.cells[0].source)


def links(path: Path, text: str) -> str:
    """The line of links under a title: the lesson, its exercises, its module and that one's source, the notebook."""
    number, is_lesson = path.name[:2], path.parent.name == "notebooks"
    up = "" if is_lesson else "../"
    parts = []
    if is_lesson:
        parts += [f"[Exercises](exercises/{other.name})" for other in exercises() if other.name.startswith(number)]
    else:
        parts += [f"[Lesson {number}](../{other.name})" for other in lessons() if other.name.startswith(number)]
    for module in dict.fromkeys(MODULE.findall(text)):
        name = page_of(module)
        source = f', its <a href="../{up}_modules/vit_tutorial/{module}.html">source</a>' if has_source(module) else ""
        parts.append(f"Module [`{name}`](../{up}api/{name}.md){source}")
    parts.append(f"{{download}}`This notebook, to run </to_run/{path.relative_to(ROOT).as_posix()}>`")
    return line_of(parts)


def redirected(link: re.Match[str], page: Path) -> str:
    """A link out of the notebooks as one within the book: to a module, a page of the book, or the index for README."""
    target = (page.parent / link[1]).resolve().relative_to(ROOT).as_posix()
    up = "../" * (len(page.relative_to(ROOT).parts) - 1)
    if module := MODULE.fullmatch(target):
        return f"{up}api/{page_of(module[1])}.md"
    if target.startswith("book/"):
        return f"{up}{target.removeprefix('book/')}"
    return f"{up}index.md" if target in ("README.md", ".") else link[0]


def anchor(term: str) -> str:
    """The id of a term's row in the glossary."""
    return re.sub(r"\W+", "-", term).strip("-").lower()


def glossary() -> str:
    """The glossary's page: each row has an anchor, and a line leads to the first term of each letter."""
    text = (BOOK / "glossary.md").read_text(encoding="utf-8").replace("](../notebooks/", "](notebooks/")
    first = {row[1][0].upper(): anchor(row[1]) for row in reversed([*TERM.finditer(text)])}
    letters = " · ".join(f'<a href="#{first[letter]}">{letter}</a>' for letter in sorted(first))
    text = TERM.sub(lambda row: f'| <span id="{anchor(row[1])}"></span>{row[0][2:]}', text)
    return text.replace("| term |", f"{letters}\n\n| term |", 1)


def link_terms(cells: list[nbformat.NotebookNode], lesson: str) -> None:
    """Link the first use of each term in a lesson's prose to its row in the glossary.

    A term is linked from the lesson on that introduces it: before, the word has its everyday meaning.
    """
    rows = TERM.findall((BOOK / "glossary.md").read_text(encoding="utf-8"))
    names = "|".join(re.escape(term) for term, _, _ in sorted(rows, key=lambda row: -len(row[0])))
    to_link = {term.lower(): (anchor(term), html.escape(meaning)) for term, meaning, first in rows if first <= lesson}

    def linked(found: re.Match[str]) -> str:
        if (name := (found[1] or "").lower()) not in to_link:
            return found[0]
        row, meaning = to_link.pop(name)
        return f'<a class="term" href="../glossary.html#{row}" title="{meaning}">{found[0]}</a>'

    word = re.compile(rf"{NO_PROSE}|\b({names})s?\b", re.DOTALL | re.MULTILINE | re.IGNORECASE)
    for cell in cells:
        if cell.cell_type == "markdown":
            cell.source = word.sub(linked, cell.source)


def for_the_book(path: Path) -> nbformat.NotebookNode:
    """A notebook with its line of links; its imports are folded, and outputs that are long or to be predicted."""
    notebook = nbformat.read(path, as_version=4)
    asked = False
    imports = next(cell for cell in notebook.cells if cell.cell_type == "code")
    imports.metadata["tags"] = ["hide-input"]
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            asked = bool(GUESS.search(cell.source))
            cell.source = TO_BENCHMARKS.sub(
                r"\1 (in the repository, `\2`)", cell.source
            )  # they aren't pages of the book
            cell.source = OUTWARD_LINK.sub(lambda link: redirected(link, path), cell.source)
            continue
        outputs = cell.get("outputs", [])
        printed = sum(len(output.get("text", "").splitlines()) for output in outputs)
        if outputs and (asked or (printed > LONG and len(outputs) == 1)):
            cell.metadata["tags"] = [*cell.metadata.get("tags", []), "hide-output"]
        asked = False
    if path.parent.name == "notebooks":
        link_terms(notebook.cells, path.name[:2])
    head = nbformat.v4.new_markdown_cell(links(path, titles(notebook)), id="links")
    notebook.cells.insert(1, head)
    return notebook


def write_to_run(path: Path, copy: Path) -> None:
    """The notebook without its outputs, to be downloaded."""
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    copy.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook, copy)


def has_source(module: str) -> bool:
    """Whether Sphinx makes a page of its source, given its path in the package: not of a room's list of names."""
    name = f"vit_tutorial.{module.replace('/', '.')}"
    public = {key: thing for key, thing in vars(importlib.import_module(name)).items() if not key.startswith("_")}
    return any(getattr(thing, "__module__", "") == name for thing in public.values())


def module_page(name: str, module: str) -> str:
    """A module's page, with its lesson's links; a room's holds its modules, one after the other."""
    number = lesson_of(about(module)) or "-"
    parts = [f"[Lesson {number}](../notebooks/{path.name})" for path in lessons() if path.name[:2] == number]
    parts += [f"[Exercises](../notebooks/exercises/{path.name})" for path in exercises() if path.name[:2] == number]
    path = module.removeprefix("vit_tutorial.").replace(".", "/")
    inner = [f"{module}.{file.stem}" for file in sorted((ROOT / "vit_tutorial" / path).glob("[!_]*.py"))]
    if has_source(path):
        parts.append(f'<a href="../_modules/vit_tutorial/{path}.html">Source</a>')
    page = f"# `{name}`\n\n{line_of(parts)}\n\n{automodule(module)}"
    return page + "".join(f"\n## `{part.rpartition('.')[2]}`\n\n{automodule(part)}" for part in inner)


def line_of(parts: list[str]) -> str:
    return ":::{container} links\n" + "\n· ".join(parts) + "\n:::" if parts else ""


def automodule(name: str) -> str:
    """The directive for one module; what it hands on from another is linked, and documented there."""
    module = importlib.import_module(name)
    homes = {public: getattr(getattr(module, public), "__module__", "") for public in getattr(module, "__all__", [])}
    others = [
        f":py:obj:`{public} <{home}.{public}>`"
        for public, home in homes.items()
        if home.startswith("vit_tutorial.") and home != module.__name__ and hasattr(sys.modules[home], public)
    ]
    lines = [f".. automodule:: {module.__name__}", "   :members:", "   :ignore-module-all:"]
    lines += ["", f"Also here: {', '.join(others)}."] if others else []
    return "\n".join(["```{eval-rst}", *lines, "```", ""])


def reference() -> str:
    """The page of the functions and classes that ``import vit_tutorial as vt`` gives, and of the modules."""
    import vit_tutorial as vt

    values = {name: getattr(vt, name) for name in vt.__all__}
    names = [
        f"| [`vt.{name}`](#{value.__module__}.{name}) | {first_line(value.__doc__)} |"
        for name, value in values.items()
        if not inspect.ismodule(value)
    ]
    rows = [f"| [`{name}`]({name}.md) | {first_line(about(module))} |" for name, module in modules().items()]
    text = (BOOK / "reference.md").read_text(encoding="utf-8")
    return text.replace("{names}", "\n".join(names)).replace("{modules}", "\n".join(rows))


def first_line(docstring: str | None) -> str:
    return (docstring or "").strip().partition("\n")[0].replace("|", r"\|")


def stage(source: Path) -> None:
    """Everything that Sphinx reads, in one folder laid out as the repository is."""
    shutil.rmtree(source, ignore_errors=True)
    (source / "api").mkdir(parents=True)
    for path in [*lessons(), *exercises()]:
        copy = source / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        nbformat.write(for_the_book(path), copy)
        write_to_run(path, source / "to_run" / path.relative_to(ROOT))
    for name, module in modules().items():
        (source / "api" / f"{name}.md").write_text(module_page(name, module), encoding="utf-8")
    (source / "api" / "index.md").write_text(reference(), encoding="utf-8")
    index = (BOOK / "index.md").read_text(encoding="utf-8")
    pages = "\n".join(f"api/{name}" for name in modules())
    (source / "index.md").write_text(index.replace("{modules}", pages), encoding="utf-8")
    (source / "glossary.md").write_text(glossary(), encoding="utf-8")
    shutil.copytree(BOOK / "static", source / "static")
    live_pages(source)
    for name in ("README.md", "TEACHING.md"):
        shutil.copy(ROOT / name, source)
    for name in ("command_line.md", "installation.md", "recipes.md"):
        shutil.copy(BOOK / name, source)
    for name in ("assets", "teaching"):
        shutil.copytree(ROOT / name, source / name)
    mathjax = files("mathjax") / "static" / "mathjax"
    for name in ("es5/tex-svg.js", "LICENSE"):
        target = source / "static" / "mathjax" / Path(name).name
        target.parent.mkdir(exist_ok=True)
        target.write_bytes((mathjax / name).read_bytes())


def live_pages(source: Path) -> None:
    """The page on which a model runs, those of the other two models, and one of large photographs."""
    from vit_tutorial import live

    shutil.copy(BOOK / "live.md", source)
    (source / "live.html").write_text(live.shipped("digits", states=True, doors=DOORS).html, encoding="utf-8")
    for name in ("shapes", "photographs"):
        live.shipped(name).save(source / "static" / "live" / f"{name}.html")
    (source / "static" / "live" / "matches.html").write_text(live.matches_page(), encoding="utf-8")


def main() -> int:
    stage(BUILD / "source")
    site = BUILD / "html"
    shutil.rmtree(site, ignore_errors=True)
    options = ["-b", "html", "-W", "--keep-going", "-q", "-c", str(BOOK), "-d", str(BUILD / "doctrees")]
    done = subprocess.run([sys.executable, "-m", "sphinx", *options, str(BUILD / "source"), str(site)], check=False)
    return done.returncode or check.main(site)


if __name__ == "__main__":
    sys.exit(main())
