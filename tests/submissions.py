"""The one format for works that students might hand in; ``solutions_NN.py`` has two tables of them, RIGHT and WRONG.

``RIGHT[exercise]`` is a tuple of works that no check may refuse. ``WRONG[exercise]`` is a list of :class:`Wrong`.
"""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Wrong:
    """A wrong work, and what its report must say.

    Args:
        label: what is wrong with it, in a few words.
        work: a function, a class, or for questions a dictionary of answers.
        says: words that the report must have; "" if being refused is all that matters.
        never: words that the report must not have, because they are not true of this work.
        slow: whether it's tried among the slow tests alone.
    """

    label: str
    work: Any
    says: str = ""
    never: str = ""
    slow: bool = False
