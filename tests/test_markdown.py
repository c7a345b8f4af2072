"""The pages as a reader sees them on a code host: rendered as GitHub's Markdown, then looked at for what broke."""

import re
import subprocess
from collections import Counter
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

import nbformat
import pytest
from bs4 import BeautifulSoup
from markdown_it import MarkdownIt

ROOT = Path(__file__).resolve().parent.parent


@cache
def in_repository() -> set[Path]:
    """The files that a clone has, or is about to have; without git, those that lie here."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    try:
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
        files = {ROOT / name for name in listed if name and (ROOT / name).exists()}
    except (OSError, subprocess.CalledProcessError):
        made = {".venv", "build", "classroom", "data", "runs", "submitted"}
        files = {path for path in ROOT.rglob("*") if not made & set(path.relative_to(ROOT).parts)}
    return files | {folder for path in files for folder in path.parents if folder.is_relative_to(ROOT)}


# The book's own are another kind of Markdown; what Sphinx makes of them is in tests/test_book.py.
PAGES = sorted(
    name
    for path in in_repository()
    if path.suffix == ".md" and (name := path.relative_to(ROOT).as_posix()).partition("/")[0] != "book"
)
LESSONS = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "notebooks").rglob("[0-9]*.ipynb"))
MARKDOWN = MarkdownIt("commonmark").enable(["table", "strikethrough"])  # what GitHub adds and these pages use
FORMULA = re.compile(r"\$\$.+?\$\$|(?<![\\\w$])\$(?![\s$])[^$\n]*(?:\n[^$\n]+)?(?<!\s)\$(?!\w)", re.DOTALL)


def problems(text: str, page: Path) -> list[str]:
    """One line for each thing in the Markdown that a reader of ``page`` would trip over."""
    soup = BeautifulSoup(MARKDOWN.render(text), "html.parser")
    found = [*unclosed_fences(text), *broken_tables(text, soup), *left_markup(soup)]
    unnamed = [image["src"] for image in soup.find_all("img") if not image.get("alt", "").strip()]
    found += [f"a picture without alternative text: {source}" for source in unnamed]
    addresses = [tag["href"] for tag in soup.find_all("a", href=True)] + [tag["src"] for tag in soup.find_all("img")]
    found += [f"broken link {address}" for address in addresses if not leads_somewhere(address, page, anchors(soup))]
    return found


def unclosed_fences(text: str) -> list[str]:
    lines = text.splitlines()
    found = []
    for token in MARKDOWN.parse(text):
        if token.type == "fence" and token.map:
            first, end = token.map
            last = lines[end - 1].strip()
            if end - 1 == first or not last.startswith(token.markup) or last.strip(token.markup[0]):
                found.append(f"line {first + 1}: a code block that nothing closes")
    return found


def broken_tables(text: str, soup: BeautifulSoup) -> list[str]:
    """Rows that stayed text, or whose cells are more or fewer than the header's (GitHub drops them, or adds some)."""
    code = {n for token in MARKDOWN.parse(text) if token.type in ("fence", "code_block") for n in range(*token.map)}
    rows = [line.strip() for n, line in enumerate(text.splitlines()) if n not in code and line.lstrip().startswith("|")]
    written = [row for row in rows if not re.fullmatch(r"[|:\s]*-[|:\-\s]*", row)]
    found = []
    if len(written) != len(soup.find_all("tr")):
        found.append(f"{len(written)} rows of tables are written, {len(soup.find_all('tr'))} are shown")
    widths = [len(row.find_all(["td", "th"])) for row in soup.find_all("tr")]
    for row, width in zip(written, widths, strict=False):
        cells = len(re.split(r"(?<!\\)\|", row.removeprefix("|").removesuffix("|")))
        if cells != width:
            found.append(f"{cells} cells in a table of {width} columns: {row[:60]}")
    return found


def left_markup(soup: BeautifulSoup) -> list[str]:
    """What was meant as markup and is shown as it was typed."""
    found = []
    for block in soup.find_all(["p", "li", "td", "th", "h1", "h2", "h3", "h4"]):
        inner = block.find_all(string=True)
        text = "".join(piece for piece in inner if not piece.find_parent(["code", "pre"]))
        # "a | b" is a line of links, and |x| a number's size.
        for pattern in (r"(?:^|\s)\|\s[^|]*\|(?:\s|$)", r"-\s*\|\s*:?-", r"\*\*", r"`", r"\]\(", r"\]\["):
            if re.search(pattern, text):
                found.append(f"markup is shown as it was typed: {text.strip()[:60]}")
    return found


def anchors(soup: BeautifulSoup) -> set[str]:
    """What GitHub makes of the headings: small letters, hyphens for spaces, no punctuation, a number if it is taken."""
    seen: Counter[str] = Counter()
    found = {tag[name] for tag in soup.find_all(["a", "span", "div"]) for name in ("id", "name") if tag.get(name)}
    for heading in soup.find_all(re.compile("^h[1-6]$")):
        slug = re.sub(r"[^\w\- ]", "", heading.get_text().strip().lower()).replace(" ", "-")
        found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return found


@cache
def anchors_of(page: Path) -> set[str]:
    if page.suffix != ".md":
        return set()
    return anchors(BeautifulSoup(MARKDOWN.render(page.read_text("utf-8")), "html.parser"))


def leads_somewhere(address: str, page: Path, own: set[str]) -> bool:
    """Whether the address leads to a file of the repository, and to a heading where it names one."""
    parts = urlsplit(address)
    if parts.scheme in ("http", "https", "mailto"):
        return True
    if parts.scheme or parts.netloc or parts.path.startswith("/"):
        return False
    if not parts.path:
        return unquote(parts.fragment) in own
    target = page.parent.joinpath(unquote(parts.path)).resolve()
    if target not in in_repository():
        return False
    return not parts.fragment or unquote(parts.fragment) in anchors_of(target)


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_whole(page: str) -> None:
    assert problems((ROOT / page).read_text("utf-8"), ROOT / page) == []


@pytest.mark.parametrize("lesson", LESSONS)
def test_the_text_of_a_notebook_is_whole(lesson: str) -> None:
    notebook = nbformat.read(ROOT / lesson, as_version=4)
    cells = [cell.source for cell in notebook.cells if cell.cell_type == "markdown"]
    text = "\n\n".join(FORMULA.sub("formula", source) for source in cells)
    assert problems(text, ROOT / lesson) == []


# ------------------------------------------------------------------------------------------- what the checks above find

GOOD = """# A page

## `vit-tutorial`, and more: 1×1

| a | b |
|---|---:|
| `x` | x \\| y |

```sh
| no | table |
```

~~~~python
```
~~~~

- ![a cat](assets/hero.png) [up](#a-page), [down](#vit-tutorial-and-more-11), [again](#a-page-1)
- [file](LICENSE), [folder](notebooks), [page](README.md#start), [web](https://arxiv.org), |x| > 1
- <a id="here"></a>[here](#here)

# A page
"""
FAULTS = {
    "a blank line in a table": (
        "|---|---:|\n",
        "|---|---:|\n| 1 | 2 |\n\n",
        "3 rows of tables are written, 2 are shown",
    ),
    "a cell too many": (
        "| a | b |\n|---|---:|",
        "| a | b |\n|---|---:|\n| 1 | 2 | 3 |",
        "3 cells in a table of 2 columns",
    ),
    "a table without outer lines": (
        "\n```sh",
        "\na | b\n--|--|--\n1 | 2\n\n```sh",
        "markup is shown as it was typed: a | b",
    ),
    "an open block of code": ("| no | table |\n```\n", "| no | table |\n", "a code block that nothing closes"),
    "a picture without a text": ("![a cat]", "![ ]", "a picture without alternative text: assets/hero.png"),
    "a picture that isn't there": ("assets/hero.png", "assets/zero.png", "broken link assets/zero.png"),
    "a file that isn't there": ("(LICENSE)", "(LICENCE)", "broken link LICENCE"),
    "a file that git ignores": ("(LICENSE)", "(.git/config)", "broken link .git/config"),
    "a place of this machine": ("(LICENSE)", "(/etc/passwd)", "broken link /etc/passwd"),
    "a heading that isn't there": ("(#a-page)", "(#a-pages)", "broken link #a-pages"),
    "a heading of another page": ("#start", "#end", "broken link README.md#end"),
    "bold that doesn't end": ("- [file]", "- **so [file]", "markup is shown as it was typed: **so"),
    "a link cut by a space": (
        "[web](https://arxiv.org)",
        "[web](https:// arxiv.org)",
        "markup is shown as it was typed",
    ),
}


def test_nothing_is_found_in_a_good_page() -> None:
    assert problems(GOOD, ROOT / "README.md") == []


@pytest.mark.parametrize("fault", FAULTS)
def test_the_check_finds(fault: str) -> None:
    right, wrong, expected = FAULTS[fault]
    assert GOOD.count(right) == 1
    found = problems(GOOD.replace(right, wrong), ROOT / "README.md")
    assert any(expected in line for line in found), found
