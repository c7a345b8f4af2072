"""What the tests of pages share: the system's Chromium, its tabs, and waiting that a page's policy allows."""

import importlib.util
import shutil
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
WHY = "needs playwright" if importlib.util.find_spec("playwright") is None else "" if CHROMIUM else "needs chromium"
browser_only = pytest.mark.skipif(bool(WHY), reason=f"{WHY}: apt-get install chromium, pip install playwright")
# No traffic of the browser's own, and it runs in a container.
FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--renderer-process-limit=1"),  # or each page starts a spare one
]


def wait(page: Any, condition: str) -> None:
    """Until an expression is true. Playwright's own waiting evaluates text, which the page's policy forbids."""
    for _ in range(600):
        if page.evaluate(condition):
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"never came true: {condition}")


class Tabs:
    """Shows content in one tab of a kind, again and again, since opening a tab costs more than most tests.

    What the pages complain of, and what they ask of a network, is noted in ``heard``.
    """

    def __init__(self, chromium: Any) -> None:
        self.chromium, self.heard = chromium, list[str]()
        self._tabs: dict[str, Any] = {}

    def show(
        self,
        content: Any,
        folder: Path,
        *,
        ready: int = 1,
        strict: bool = True,
        fragment: str = "",
        size: tuple[int, int] = (1200, 900),
        color_scheme: str = "light",
        reduced_motion: str = "reduce",  # a click waits until what scrolls stands still
        **context: Any,
    ) -> Any:
        """A tab with HTML, or with what has a ``save``, as soon as ``ready`` pages in it have started."""
        tab = self._tab(strict, context)
        tab.set_viewport_size({"width": size[0], "height": size[1]})
        tab.emulate_media(color_scheme=color_scheme, reduced_motion=reduced_motion)
        tab.mouse.move(0, 0)
        path = folder / f"page {len(list(folder.iterdir()))}.html"
        if isinstance(content, str):
            path.write_text(content, "utf-8")
        else:
            content.save(path)
        tab.goto(path.as_uri() + fragment)
        if ready:
            wait(tab, f"document.querySelectorAll('[data-ready]').length === {ready}")
        return tab

    def _tab(self, strict: bool, context: dict[str, Any]) -> Any:
        kind = f"{strict} {context}"
        if kind not in self._tabs:
            self._tabs[kind] = tab = self.chromium.new_context(**context).new_page()
            tab.on("pageerror", lambda error: self.heard.append(str(error)))
            if strict:
                tab.on("console", lambda message: self.heard.append(message.text))
                tab.on("request", lambda asked: self.heard.append(asked.url) if "://" in asked.url[5:] else None)
            tab.route("http*://**", lambda route: route.abort())
        return self._tabs[kind]
