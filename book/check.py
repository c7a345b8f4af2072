"""What a reader would trip over in a built site: ``python book/check.py build/book/html``.

Every link and anchor within the site leads somewhere, every picture has alternative text, every table is whole, nothing
that a page needs to be shown comes from another host, and the whole is small enough to carry about.
"""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

MEGABYTES = 60
LOADING = {"script", "img", "iframe", "source", "video", "audio", "embed", "track"}
LINKING = {"stylesheet", "icon", "shortcut", "preload", "modulepreload", "manifest"}
AS_TYPED = {"code", "pre", "script", "style"}  # where "|" is no table's
TABLE = re.compile(r"(?:^|\s)\|\s[^|]*\|(?:\s|$)|-\s*\|\s*:?-")  # |x| is a number's size, "a | b" a line of links
CSS_URL = re.compile(r"""(?:url\(|@import)\s*["']?((?:https?:)?//[^"')\s]+)""")


class Page(HTMLParser):
    """What a page offers to link to (``ids``), links to, loads, and shows without a text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = CSS_URL.findall(html)
        self.without_text: list[str] = []
        self.broken_tables: list[str] = []
        self._open: list[str] = []  # the elements that we are in, as far as tables need them
        self._widths: list[list[int]] = []  # of each table that we are in, the columns of its rows
        self._text = ""  # of the paragraph that we are in
        self.feed(html)

    def handle_starttag(self, tag: str, pairs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in pairs}
        if tag in AS_TYPED | {"p"} or "math" in attributes.get("class", "").split():
            self._open.append(tag)
        elif tag == "table":
            self._widths.append([])
        elif tag == "tr" and self._widths:
            self._widths[-1].append(0)
        elif tag in ("td", "th") and self._widths and self._widths[-1]:
            self._widths[-1][-1] += int(attributes.get("colspan", 1))
        self.ids.add(attributes.get("id", ""))
        if tag == "a":
            self.ids.add(attributes.get("name", ""))
            self.links.append(attributes.get("href", ""))
        if tag in LOADING:
            self.loads.append(attributes.get("src", ""))
        if tag == "link" and LINKING & set(attributes.get("rel", "").split()):
            self.loads.append(attributes.get("href", ""))
        if tag == "img" and not attributes.get("alt", "").strip() and attributes.get("role") != "presentation":
            self.without_text.append(attributes.get("src", "")[:80])

    def handle_data(self, text: str) -> None:
        if self._open == ["p"]:
            self._text += text

    def handle_endtag(self, tag: str) -> None:
        if self._open and self._open[-1] == tag:
            self._open.pop()
        if tag == "p":
            if TABLE.search(self._text):
                self.broken_tables.append(f"a table that stayed text: {' '.join(self._text.split())[:60]}")
            self._text = ""
        if tag == "table" and self._widths:
            widths = self._widths.pop()
            if len(set(widths)) > 1:
                self.broken_tables.append(f"a table with rows of {min(widths)} to {max(widths)} columns")


def problems(site: Path, most: float = MEGABYTES) -> list[str]:
    """One line for each thing that is wrong with the site."""
    paths = [path for path in sorted(site.rglob("*.html")) if "_static" not in path.parts]  # a theme's templates
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in paths}
    found = [] if pages else [f"{site}: no page"]
    for path, page in pages.items():
        name = path.relative_to(site).as_posix()
        found += [f"{name}: a picture without alternative text: {source}" for source in page.without_text]
        found += [f"{name}: {problem}" for problem in page.broken_tables]
        found += [f"{name}: loads {url}" for url in page.loads if is_elsewhere(url)]
        local = [url for url in dict.fromkeys((*page.links, *page.loads)) if url and not urlsplit(url).scheme]
        found += [f"{name}: broken link {url}" for url in local if not leads_somewhere(path, url, pages)]
    for path in sorted(site.rglob("*.css")):
        urls = CSS_URL.findall(path.read_text(encoding="utf-8"))
        found += [f"{path.relative_to(site).as_posix()}: loads {url}" for url in urls]
    if megabytes(site) > most:
        found.append(f"the site has {megabytes(site):.1f} MB, more than {most}")
    return found


def megabytes(site: Path) -> float:
    return sum(path.stat().st_size for path in site.rglob("*") if path.is_file()) / 1e6


def is_elsewhere(url: str) -> bool:
    return url.startswith(("http:", "https:", "//"))


def leads_somewhere(path: Path, url: str, pages: dict[Path, Page]) -> bool:
    """Whether a relative link leads to a file, and to an id where it names one."""
    parts = urlsplit(url)
    if parts.netloc:
        return True
    if parts.path.startswith("/"):  # the site may lie in a folder of its host
        return False
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path.resolve()
    if target not in pages:
        return target.is_file() and not parts.fragment
    return not parts.fragment or unquote(parts.fragment) in pages[target].ids


def main(site: Path) -> int:
    site = site.resolve()
    found = problems(site)
    print(*found, sep="\n")
    print(f"{len(found)} problems, {megabytes(site):.1f} MB: {site / 'index.html'}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
