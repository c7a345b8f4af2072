"""What every test file shares: one seed, quick hypothesis settings, and a strict look at error messages."""

import gc
import importlib
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import hypothesis
import kernels
import pytest
from browser import CHROMIUM, FLAGS, Tabs
from jupyter_client.provisioning import local_provisioner
from xdist.scheduler import LoadFileScheduling

# What is imported stays: looking through a million objects of torch, timm and transformers for garbage takes seconds.
gc.set_threshold(50_000, 50, 100)

# The same examples on every machine, and no deadline: a shared runner may stall for a second.
hypothesis.settings.register_profile("tutorial", max_examples=40, deadline=None, derandomize=True, database=None)
hypothesis.settings.load_profile("tutorial")


APART = ("test_recipes.py", "test_grading.py", "test_live.py")  # each of their slow tests may take a minute
# One process has all of these: what an exercise's mistakes give is computed once.
CHECKS = ("test_checks.py", "test_submissions.py", "test_snapshot.py")
LONG = (
    *("test_live.py", "test_grading_parts.py", "test_grading.py", "test_modern.py"),
    *(
        "test_publish.py",
        "test_train_command.py",
        "test_cli.py",
        "test_readme.py",
        "test_slides.py",
    ),  # their slow tests
)


def _forks(config: pytest.Config) -> bool:
    return sys.platform == "linux" and not config.getoption("cov_source", None)


def pytest_configure(config: pytest.Config) -> None:
    """Kernels fork, but not where that is unsafe, or where coverage counts lines from a process's start."""
    if _forks(config):
        local_provisioner.launch_kernel = kernels.launch


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Several processes begin with what takes long, a file each, so that they end at the same time.

    In slow tests no lines are counted, which would make them slower still: the others reach nearly all that they do.
    """
    for item in items:
        if item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.no_cover)
    if not hasattr(config, "workerinput"):
        return

    def place(item: pytest.Item) -> tuple[int, int]:
        name = item.path.name
        if name in CHECKS:
            return 0, CHECKS.index(name)
        if name in APART and item.get_closest_marker("slow"):
            return 1, APART.index(name)
        if name in LONG:
            return 2, LONG.index(name)
        if item.path.parent.name == "notebooks":
            return 3, -int(name[:2])  # the later lessons are the longer ones
        return 4, 0

    items.sort(key=place)


class Files(LoadFileScheduling):  # type: ignore[misc]
    """A file is one process's, and so are those in CHECKS; with the slow ones, each test of those APART is one's."""

    def _split_scope(self, nodeid: str) -> str:
        file, _, _ = nodeid.partition("::")
        name = file.rpartition("/")[2]
        if name in CHECKS:
            return "checks"
        return file if self.config.option.markexpr == "not slow" or name not in APART else nodeid


@pytest.hookimpl(optionalhook=True)  # pytest -p no:xdist doesn't know it
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Files:
    return Files(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config, specs: list[Any]) -> None:
    """Workers fork, too."""
    if _forks(config):
        kernels.serve()
        for spec in specs:
            spec.python, spec.execmodel = shlex.join([sys.executable, kernels.__file__]), "main_thread_only"


@pytest.fixture(autouse=True)
def _seed() -> None:
    import torch  # the process that hands tests out doesn't need it

    torch.default_generator.manual_seed(0)  # torch.manual_seed notes each call for a GPU, with its traceback: 3 ms


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
    """What to open around a call that must raise: the error, then the words that its message must hold."""
    return _refuses


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """Debian's Chromium, one for a file."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def tabs(chromium: Any) -> Tabs:
    """Its tabs, which are used again."""
    return Tabs(chromium)


@pytest.fixture
def show(tabs: Tabs, tmp_path: Path) -> Iterator[Any]:
    """Tabs.show for a test, at whose end nothing was asked of a network and nothing was complained of."""
    tabs.heard.clear()
    yield lambda content, **how: tabs.show(content, tmp_path, **how)
    assert tabs.heard == []
