"""Lesson 09: one folder for several processes, and for a run that was killed: each photograph once, in one table.

Each process takes every n-th photograph, and writes each answer at once to a file of its own beside the table, its
journal. Whoever finds that all photographs are in the journals makes the table of them, and removes them. So nobody
waits for anybody, and a run that was killed goes on by the same command.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple

from vit_tutorial.predict.output import FORMATS
from vit_tutorial.predict.ranking import Ranked
from vit_tutorial.weights.keeping import replacing


class Place(NamedTuple):
    """Which of the processes this is, as ``accelerate launch`` and ``torchrun`` tell each."""

    rank: int
    processes: int


def place() -> Place:
    """The place of this process; (0, 1) where it is the only one.

    Raises:
        ValueError: the environment names no such place.
    """
    rank, processes = os.environ.get("RANK", "0"), os.environ.get("WORLD_SIZE", "1")
    if not (rank.isdecimal() and processes.isdecimal() and int(rank) < int(processes)):
        raise ValueError(
            f"the environment has RANK={rank} and WORLD_SIZE={processes}: a number from 0 below that of the processes "
            "is needed, as accelerate launch sets it; alone, unset both"
        )
    return Place(int(rank), int(processes))


class Journals:
    """The answers so far, of all processes, beside the table ``out``.

    Args:
        out: the table, .csv or .jsonl.
        files: all photographs, the same in every process.
        options: what decides an answer, such as the weights.
        place: of this process.

    Raises:
        ValueError: journals of other photographs or options.
    """

    def __init__(self, out: Path, files: Sequence[str], options: dict[str, Any], place: Place) -> None:
        self.out, self.files, self.place = out, files, place
        digest = hashlib.sha256("\0".join(files).encode(errors="surrogatepass")).hexdigest()[:16]
        self.header = json.dumps({**options, "photographs": len(files), "names": digest})
        self.path = out.with_name(f"{out.name}.part-{place.rank}-of-{place.processes}")
        self.done = {number for number, _ in self._rows()}

    def begin(self) -> None:
        """Make this process's journal ready for :meth:`add`: with a header, and without a row that a kill cut short."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        rows = self.path.read_bytes() if self.path.exists() else b""
        whole = rows[: rows.rfind(b"\n") + 1] or f"{self.header}\n".encode()
        if whole != rows:
            self.path.write_bytes(whole)

    def complete(self) -> bool:
        """Whether an earlier run made the table: it is there, and no journal. Raises ValueError for another file."""
        if self._paths() or not self.out.exists():
            return False
        first = FORMATS[self.out.suffix][0] or '{"file": '
        with self.out.open("rb") as table:
            if table.read(len(first)) not in (first.encode(), b""):
                raise ValueError(f"{self.out} is there, and isn't a table of predictions: give --out another name")
        return True

    def left(self) -> list[int]:
        """The places of the photographs that this process has still to do."""
        mine = range(self.place.rank, len(self.files), self.place.processes)
        return [number for number in mine if number not in self.done]

    def add(self, number: int, answer: Ranked | ValueError) -> None:
        """Write down the answer for a photograph, or what is wrong with it."""
        row = {"n": number} | ({"wrong": str(answer)} if isinstance(answer, ValueError) else {"ranked": answer})
        with self.path.open("ab") as file:
            file.write(f"{json.dumps(row)}\n".encode())

    def merge(self) -> list[str] | None:
        """Make the table and remove the journals, if all is done; a line for each photograph that was skipped.

        None: other processes are still at work, or one of them has made the table.
        """
        try:
            where = dict(self._rows())
            if len(where) < len(self.files):
                return None
            return self._write(where)
        except FileNotFoundError:  # another process was faster
            return None

    def _write(self, where: dict[int, tuple[Path, int]]) -> list[str]:
        first, form = FORMATS[self.out.suffix]
        own = self.out.with_name(f"{self.out.name}.rank-{self.place.rank}")  # two processes may be the last at once
        skipped = []
        with ExitStack() as journals:
            opened = {path: journals.enter_context(path.open("rb")) for path in self._paths()}
            with replacing(own) as table:
                table.write(first.encode())
                for number, file in enumerate(self.files):
                    path, offset = where[number]
                    opened[path].seek(offset)
                    row = json.loads(opened[path].readline())
                    if "wrong" in row:
                        skipped.append(row["wrong"])
                    else:
                        table.write(form(file, row["ranked"]).encode(errors="backslashreplace"))
            own.replace(self.out)
        for path in opened:
            with suppress(OSError):
                path.unlink()
        return skipped

    def _paths(self) -> list[Path]:
        return sorted(self.out.parent.glob(f"{glob.escape(self.out.name)}.part-*-of-*"))

    def _rows(self) -> Iterator[tuple[int, tuple[Path, int]]]:
        """Each row that is whole: the photograph's place, and where the row is."""
        for path in self._paths():
            with path.open("rb") as journal:
                header = journal.readline()
                if header.endswith(b"\n") and header.decode(errors="replace").rstrip("\n") != self.header:
                    raise ValueError(
                        f"{path} is of another run, with other photographs or options: finish that one, or remove "
                        f"{self.out.name}.part-* to start again"
                    )
                offset = journal.tell()
                for line in journal:
                    if line.endswith(b"\n"):
                        yield _number(line, path), (path, offset)
                    offset += len(line)


def _number(line: bytes, path: Path) -> int:
    """The photograph's place that a row begins with."""
    try:
        return int(json.loads(line)["n"])
    except (ValueError, KeyError, TypeError):
        raise ValueError(f"{path} is damaged: remove it, and its photographs are done again") from None
