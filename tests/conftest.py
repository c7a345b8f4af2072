"""What every test file shares: one seed, quick hypothesis settings, and a strict look at error messages."""

from collections.abc import Iterator
from contextlib import contextmanager

import hypothesis
import pytest
import torch

# The same examples on every machine, and no deadline: a shared runner may stall for a second.
hypothesis.settings.register_profile("tutorial", max_examples=40, deadline=None, derandomize=True, database=None)
hypothesis.settings.load_profile("tutorial")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Several processes begin with the lessons, the later and longer ones first, so that they end at the same time."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: item.path.name if item.path.parent.name == "notebooks" else "", reverse=True)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


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
