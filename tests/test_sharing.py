"""Several processes share photographs and write one table; killed at any moment, each photograph is in it once."""

import csv
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from PIL import Image

from vit_tutorial import data, predict
from vit_tutorial.predict import command
from vit_tutorial.predict.output import FORMATS
from vit_tutorial.predict.sharing import Journals, Place, place

ROOT = Path(__file__).parent.parent


@pytest.fixture
def photos(tmp_path):
    """Seven scenes and a file that is not an image, as scene 3."""
    folder = tmp_path / "photos"
    folder.mkdir()
    for number, image in enumerate(data.shapes(train=1, test=8).test.images):
        Image.fromarray(image.permute(1, 2, 0).numpy()).save(folder / f"{number}.png")
    (folder / "3.png").write_bytes(b"not an image")
    return folder


def table(path):
    with path.open(encoding="utf-8") as file:
        return list(csv.reader(file))


def as_process(monkeypatch, rank, processes):
    monkeypatch.setenv("RANK", str(rank))
    monkeypatch.setenv("WORLD_SIZE", str(processes))


def test_two_processes_write_the_table_of_one(photos, tmp_path, monkeypatch, refuses, capsys):
    words = [str(photos), "--weights", "shapes", "--top", "2", "--batch-size", "2"]
    with refuses(SystemExit, "1 skipped", "3.png"):
        predict.main([*words, "--out", str(tmp_path / "one.csv")])
    two = tmp_path / "two.csv"
    as_process(monkeypatch, 0, 2)
    predict.main([*words, "--out", str(two)])
    assert not two.exists()
    as_process(monkeypatch, 1, 2)
    capsys.readouterr()
    with refuses(SystemExit, "1 skipped", "3.png"):
        predict.main([*words, "--out", str(two)])
    assert capsys.readouterr().out == f"7 photographs: {two}\n"
    assert two.read_bytes() == (tmp_path / "one.csv").read_bytes()
    assert not list(tmp_path.glob("*.part-*"))
    predict.main([*words, "--out", str(two)])  # a process that comes late finds nothing to do
    assert "is complete already" in capsys.readouterr().err


@pytest.mark.parametrize("suffix", list(FORMATS))
def test_a_file_that_is_no_table_isn_t_taken_for_one(photos, tmp_path, refuses, suffix):
    (out := tmp_path / f"mine{suffix}").write_text("my own words\n")
    with refuses(SystemExit, f"error: {out} is there, and isn't a table of predictions"):
        predict.main([str(photos), "--weights", "shapes", "--resume", "--out", str(out)])
    assert out.read_text() == "my own words\n"


def test_a_stopped_run_goes_on(photos, tmp_path, monkeypatch, refuses):
    out, asked = tmp_path / "table.csv", []
    original = command.read

    def watched(files, preprocess, ahead):
        for file, image in original(files, preprocess, ahead):
            if len(asked) in (3, 5):  # which stops the second run, too
                asked.append("stop")
                raise KeyboardInterrupt
            asked.append(file)
            yield file, image

    monkeypatch.setattr(command, "read", watched)
    words = [str(photos), "--weights", "shapes", "--top", "1", "--batch-size", "1", "--out", str(out), "--resume"]
    for _ in range(2):
        with refuses(SystemExit, "stopped"):
            predict.main(words)
        assert not out.exists()
        (journal,) = tmp_path.glob("*.part-*")
        with journal.open("ab") as file:
            file.write(b'{"n": 7, "ran')  # a kill in the middle of a row
    with refuses(SystemExit, "1 skipped"):
        predict.main(words)
    assert len(asked) == len(set(asked)) + 1 == 8 + 2  # "stop" is there twice, and no file
    rows = table(out)
    assert [Path(row[0]).name for row in rows[1:]] == [f"{n}.png" for n in range(8) if n != 3]


def test_another_number_of_processes_goes_on_too(photos, tmp_path, monkeypatch, refuses):
    words = [str(photos), "--weights", "shapes", "--top", "1", "--out", str(tmp_path / "t.csv")]
    as_process(monkeypatch, 2, 3)
    predict.main(words)
    as_process(monkeypatch, 0, 1)
    with refuses(SystemExit, "1 skipped"):
        predict.main([*words, "--resume"])
    assert len(table(tmp_path / "t.csv")) == 8


def test_journals_of_another_run_are_refused(tmp_path, refuses):
    journals = Journals(tmp_path / "t.csv", ["a", "b"], {"weights": "shapes"}, Place(0, 1))
    journals.begin()
    journals.add(0, [("ring", 0.5)])
    assert Journals(tmp_path / "t.csv", ["a", "b"], {"weights": "shapes"}, Place(0, 1)).left() == [1]
    for files, weights in ((["a", "c"], "shapes"), (["a", "b"], "digits")):
        with refuses(ValueError, "other photographs or options", "t.csv.part-*"):
            Journals(tmp_path / "t.csv", files, {"weights": weights}, Place(0, 1))
    with journals.path.open("ab") as file:
        file.write(b"\xff\n")
    with refuses(ValueError, "t.csv.part-0-of-1 is damaged"):
        Journals(tmp_path / "t.csv", ["a", "b"], {"weights": "shapes"}, Place(0, 1))


def test_two_that_finish_at_once_do_not_spoil_the_table(tmp_path, monkeypatch):
    both = [Journals(tmp_path / "t.csv", ["a", "b"], {}, Place(rank, 2)) for rank in (0, 1)]
    for rank, journals in enumerate(both):
        journals.begin()
        journals.add(rank, [("ring", 0.5)])
    first, form = FORMATS[".csv"]

    def other_is_killed(file, ranked):
        """In the middle of the first one's table the second begins its own, and ends at once."""
        monkeypatch.setitem(FORMATS, ".csv", (first, lambda file, ranked: 1 / 0))
        with pytest.raises(ZeroDivisionError):
            both[1].merge()
        monkeypatch.setitem(FORMATS, ".csv", (first, form))
        return form(file, ranked)

    monkeypatch.setitem(FORMATS, ".csv", (first, other_is_killed))
    assert both[0].merge() == []
    assert [row[0] for row in table(tmp_path / "t.csv")] == ["file", "a", "b"]
    assert [path.name for path in tmp_path.iterdir()] == ["t.csv"]


@pytest.mark.parametrize("arguments", [[], ["--out", "t.csv", "--attention", "a.png"]])
def test_it_is_for_a_table(photos, refuses, arguments):
    with refuses(SystemExit, "give --out FILE"):
        predict.main([str(photos), "--weights", "shapes", "--resume", *arguments])


def test_alone_by_default_and_no_place_outside_the_processes(monkeypatch, refuses):
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert place() == (0, 1)
    for rank, processes in (("abc", 2), (2, 2), (0, 0)):
        as_process(monkeypatch, rank, processes)
        with refuses(ValueError, f"RANK={rank}", f"WORLD_SIZE={processes}"):
            place()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL")
def test_two_real_processes_killed(photos, tmp_path):
    for n in range(8, 60):
        (photos / f"{n}.png").write_bytes((photos / f"{n % 3}.png").read_bytes())
    out = tmp_path / "t.csv"
    command = [sys.executable, "-m", "vit_tutorial.predict", str(photos), "--weights", "shapes", "--top", "1"]
    command += ["--batch-size", "1", "--out", str(out)]

    def start():
        env = os.environ | {"WORLD_SIZE": "2", "PYTHONPATH": str(ROOT)}
        return [subprocess.Popen(command, env=env | {"RANK": str(rank)}, stderr=subprocess.DEVNULL) for rank in (0, 1)]

    def rows():
        return sum(len(path.read_bytes().splitlines()) for path in tmp_path.glob("*.part-*"))

    processes, deadline = start(), time.monotonic() + 120
    while rows() < 12 and time.monotonic() < deadline:
        time.sleep(0.01)
    for process in processes:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert not out.exists()
    assert {process.wait(timeout=300) for process in start()} == {0, 1}  # one of them skipped 3.png
    assert [Path(row[0]).name for row in table(out)[1:]] == sorted(f"{n}.png" for n in range(60) if n != 3)
