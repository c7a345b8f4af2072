"""Look for faults in a built site: ``python book/check.py build/book/html``.

Every link and anchor within the site leads somewhere, every picture has alternative text, and no page loads anything
from another host.
"""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADING = {"script", "img", "iframe", "source", "video", "audio", "embed", "track"}
STYLES = {"stylesheet", "icon", "preload", "modulepreload"}


class Page(HTMLParser):
    """A page's ids, its links, what it loads, and its pictures without alternative text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.without_text: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, pairs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in pairs}
        self.ids.add(attributes.get("id", ""))
        if tag == "a":
            self.ids.add(attributes.get("name", ""))
            self.links.append(attributes.get("href", ""))
        if tag in LOADING:
            self.loads.append(attributes.get("src", ""))
        if tag == "link" and STYLES & set(attributes.get("rel", "").split()):
            self.loads.append(attributes.get("href", ""))
        if tag == "img" and not attributes.get("alt", "").strip() and attributes.get("role") != "presentation":
            self.without_text.append(attributes.get("src", "")[:80])


def problems(site: Path) -> list[str]:
    """One line for each fault."""
    paths = [path for path in sorted(site.rglob("*.html")) if "_static" not in path.parts]  # a theme's templates
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in paths}
    found = [] if pages else [f"{site}: no page"]
    for path, page in pages.items():
        name = path.relative_to(site).as_posix()
        found += [f"{name}: a picture without alternative text: {source}" for source in page.without_text]
        found += [f"{name}: loads {url}" for url in page.loads if url.startswith(("http:", "https:", "//"))]
        local = [url for url in dict.fromkeys((*page.links, *page.loads)) if url and not urlsplit(url).scheme]
        found += [f"{name}: broken link {url}" for url in local if not leads_somewhere(path, url, pages)]
    return found


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
    print(f"{len(found)} faults: {site / 'index.html'}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
