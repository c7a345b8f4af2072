"""Hand in every wrong and every right submission that the solutions files hold, and count what the checks say.

``python tests/stress_checks.py 06 07``: a line for each exercise, and the wrong ones that passed or got no more than a
number. The lessons' numbers choose; none means 06 to 10, and 12. It takes a minute or two of CPU time a lesson, so the
tests hand in only a part (``tests/test_wrong_submissions.py``).
"""

from __future__ import annotations

import contextlib
import importlib
import io
import re
import sys
from collections import Counter
from typing import Any

from vit_tutorial import checks

LESSONS = ("06", "07", "08", "09", "10", "12")
FOUND = (  # the first that is found in the report decides
    ("passed", r"^\w+: right\."),
    ("named", r"It looks like|is the package's, or derives|it calls "),
    ("described", r"What your numbers show"),
    ("only numbers", r"numbers differ|and should be something else| is -?[\d.e+-]+, expected -?[\d.]"),
)


def hand_in(name: str, work: Any) -> str:
    """What the check of an exercise prints about a work, on one line."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        getattr(checks, f"check_{name}")(work)
    return " ".join(out.getvalue().split())


def kind(name: str, said: str) -> str:
    """What sort of answer a report is: "told" is a shape, a type, an exception, or what was forgotten."""
    if any(advice in said for advice in checks.CATALOGUE[name].advice.values()) and "It looks like" not in said:
        return "described"
    return next((word for word, pattern in FOUND if re.search(pattern, said)), "told")


def main(lessons: list[str]) -> int:
    """Print the table; return how many wrong ones passed and right ones were refused."""
    failures = 0
    for lesson in lessons or LESSONS:
        module = importlib.import_module(f"solutions_{lesson}")
        for name, works in module.BY_LABEL.items():
            counts: Counter[str] = Counter()
            for label, work in works.items():
                said = hand_in(name, work)
                counts[kind(name, said)] += 1
                if kind(name, said) in ("passed", "only numbers"):
                    print(f"    {kind(name, said)}: {label}")
            rights = module.SOLUTIONS[name]
            refused = sum(kind(name, hand_in(name, work)) != "passed" for work in rights)
            failures += counts["passed"] + refused
            print(f"{name}: {len(works)} wrong, {dict(counts)}; {len(rights)} right, {refused} refused", flush=True)
    return failures


if __name__ == "__main__":
    sys.exit(bool(main(sys.argv[1:])))
