"""Which of several processes this is."""

from __future__ import annotations

import os
from typing import NamedTuple


class Processes(NamedTuple):
    """The place of this process among all of them."""

    rank: int
    number: int


def processes() -> Processes:
    """What ``accelerate launch`` or torchrun tells each process; without them 0 of 1."""
    return Processes(int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1")))
