"""Hand in sets of right and wrong works, and count what the checks say of them.

``python tests/stress_checks.py FILE.py ...``: each file has two tables, RIGHT and WRONG, as ``tests/submissions.py``
describes them; ``tests/solutions_NN.py`` are such files. It prints a line for each exercise, and the totals. The
reports go into FILE.txt beside each file, for reading.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

from submissions import hand_in, on_one_line

from vit_tutorial.checks import CATALOGUE

KINDS = (  # the first that is found in the report decides
    ("named", r"It looks like|is the package's, or derives|it calls "),
    ("described", r"What your numbers show"),
    ("only the first difference", r"numbers differ|and should be something else| is -?[\d.e+-]+, expected -?[\d.]"),
)
OTHERWISE = "described"  # a shape, a type, an exception, or what was forgotten


def kind(name: str, said: str) -> str:
    """How much the report on a refused work says."""
    if any(advice in said for advice in CATALOGUE[name].advice.values()) and "It looks like" not in said:
        return "described"
    return next((word for word, pattern in KINDS if re.search(pattern, said)), OTHERWISE)


def count(name: str, rights: Any, wrongs: Any, reports: list[str]) -> Counter[str]:
    """The outcomes of one exercise's works; each report is added to ``reports``."""
    counts: Counter[str] = Counter()
    for index, work in enumerate(rights):
        passed, report = hand_in(name, work)
        counts["right", "passed" if passed else "refused"] += 1
        reports.append(f"==== {name}, right work {index}: {'passed' if passed else 'REFUSED'}\n{report}")
    for wrong in wrongs:
        passed, report = hand_in(name, wrong.work)
        found = "PASSED" if passed else kind(name, on_one_line(report))
        counts["wrong", found] += 1
        reports.append(f"==== {name}, {wrong.label}: {found}\n{report}")
    return counts


def load(path: Path) -> ModuleType:
    """A file as a module."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def summary(counts: Counter[Any]) -> str:
    right, wrong = (sum(many for (which, _), many in counts.items() if which == one) for one in ("right", "wrong"))
    parts = [f"{counts['right', 'refused']} of {right} right refused"]
    for word in ("PASSED", "named", "described", "only the first difference"):
        many = counts["wrong", word]
        parts.append(f"{word} {many}" + (f" ({many / wrong:.1%})" if wrong else ""))
    return f"{parts[0]}; of {wrong} wrong: {', '.join(parts[1:])}"


def main(paths: list[str]) -> int:
    """Print the counts; return how many wrong works passed and right ones were refused."""
    total: Counter[Any] = Counter()
    for path in map(Path, paths):
        module, reports = load(path), []
        for name in {**module.RIGHT, **module.WRONG}:
            counts = count(name, module.RIGHT.get(name, ()), module.WRONG.get(name, ()), reports)
            total += counts
            print(f"{name}: {summary(counts)}", flush=True)
        path.with_suffix(".txt").write_text("\n".join(reports), encoding="utf-8")
    print(f"\nAll: {summary(total)}")
    return total["wrong", "PASSED"] + total["right", "refused"]


if __name__ == "__main__":
    if not sys.argv[1:]:
        raise SystemExit(__doc__)
    sys.exit(bool(main(sys.argv[1:])))
