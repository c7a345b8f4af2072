"""What the test files share: one seed, the same hypothesis examples everywhere, and the browser's tabs."""

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import torch
from browser import CHROMIUM, FLAGS, Tabs

# The same examples on every machine, and no deadline: a shared runner may stall for a second.
hypothesis.settings.register_profile("tutorial", max_examples=40, deadline=None, derandomize=True, database=None)
hypothesis.settings.load_profile("tutorial")


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def tool() -> Any:
    """tools/classroom.py as a module."""
    pytest.importorskip("resource", reason="Windows can't fork")
    return importlib.import_module("classroom")


@contextmanager
def _refuses(kind: type[Exception], *words: str) -> Iterator[pytest.ExceptionInfo[Exception]]:
    with pytest.raises(kind) as caught:
        yield caught
    missing = [word for word in words if word not in str(caught.value)]
    assert not missing, f"{caught.value!r} doesn't say {missing}"


@pytest.fixture(scope="session")
def refuses():
    """A context manager around a call that must raise: the error's class, then the words that its message must hold."""
    return _refuses


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """Debian's Chromium, one for each test file."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def tabs(chromium: Any) -> Tabs:
    """The browser's tabs, which tests use again."""
    return Tabs(chromium)


@pytest.fixture
def show(tabs: Tabs, tmp_path: Path) -> Iterator[Any]:
    """Tabs.show for a test; at its end the page asked for nothing on a network and reported no error."""
    tabs.heard.clear()
    yield lambda content, **how: tabs.show(content, tmp_path, **how)
    assert tabs.heard == []
