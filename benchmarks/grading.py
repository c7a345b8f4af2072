"""How long grading takes: a class of 30 in one exercise, two at a time, each in its sandbox.

python benchmarks/grading.py                    lesson 01
python benchmarks/grading.py 05 --workers 2     another lesson

Most of the class hand in answers, right ones and ones with an exercise left open; some hand in the copy as it was, one
notebook ends its own process, one has an answer that doesn't end (the check stops it after 10 seconds).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import classroom  # noqa: E402
import psutil  # noqa: E402
import sandbox  # noqa: E402

CLASS = 30


def answers(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    """The cells that a student fills."""
    found = [cell for cell in notebook["cells"] if cell["metadata"].get("nbgrader", {}).get("solution")]
    return [cell for cell in found if cell["cell_type"] == "code"]


def hand_in(folder: Path, source: Path) -> None:
    """A class's submissions below ``folder``."""
    copy = source.parent.parent / "exercises" / source.name
    for number in range(CLASS):
        notebook = json.loads((copy if number % 6 == 5 else source).read_text("utf-8"))
        cells = answers(notebook)
        if number % 6 in (1, 3):
            cells[number % len(cells)]["source"] = "pass"
        if number == 0:
            cells[2]["source"] = "import os\nos._exit(1)"
        if number == 2:
            name = "".join(cells[1]["source"]).split("(")[0].split()[-1]
            cells[1]["source"] = f"def {name}(*_):\n    while True:\n        pass"
        target = folder / f"student{number:02}" / source.name
        target.parent.mkdir(parents=True)
        target.write_text(json.dumps(notebook), encoding="utf-8")


def processor_seconds(noted: Path) -> float:
    """What this process and those that it waited for have used, and what was noted of those that were ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used) + sum(map(float, noted.read_text("utf-8").split()))


class Noting(sandbox.Sandbox):
    """A sandbox that notes what its processes have used before it ends them: nobody waits for those."""

    noted: Path

    def end(self) -> None:
        for process in self._processes():
            with contextlib.suppress(psutil.Error), self.noted.open("a", encoding="utf-8") as file:
                file.write(f"{sum(process.cpu_times())}\n")
        super().end()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lesson", nargs="?", default="01")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--sandbox", default="")
    arguments = parser.parse_args()
    (source,) = classroom.sources([arguments.lesson])
    with tempfile.TemporaryDirectory() as folder:
        hand_in(Path(folder) / "submitted", source)
        Noting.noted = Path(folder) / "noted"
        Noting.noted.touch()
        sandbox.Sandbox = Noting  # type: ignore[misc]
        started, used = time.perf_counter(), processor_seconds(Noting.noted)
        classroom.grade(Path(folder) / "submitted", Path(folder) / "course", arguments.sandbox, arguments.workers)
        wall, processor = time.perf_counter() - started, processor_seconds(Noting.noted) - used
        started = time.perf_counter()
        classroom.grade(Path(folder) / "submitted", Path(folder) / "course", arguments.sandbox, arguments.workers)
        again = time.perf_counter() - started
    many = f"{CLASS} submissions of {source.stem}, {arguments.workers} at a time"
    print(f"\n{many}: {wall:.0f} s, {processor:.0f} s of CPU")
    print(f"a second time, with one that failed run again: {again:.0f} s")


if __name__ == "__main__":
    main()
