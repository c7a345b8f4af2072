"""What the tests of pages share: the system's Chromium, and waiting that a page's policy allows."""

import importlib.util
import shutil
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
WHY = "needs playwright" if importlib.util.find_spec("playwright") is None else "" if CHROMIUM else "needs chromium"
browser_only = pytest.mark.skipif(bool(WHY), reason=f"{WHY}: apt-get install chromium, pip install playwright")
# No traffic of the browser's own, and it runs in a container.
FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
]


def wait(page: Any, condition: str) -> None:
    """Until an expression is true. Playwright's own waiting evaluates text, which the page's policy forbids."""
    for _ in range(600):
        if page.evaluate(condition):
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"never came true: {condition}")
