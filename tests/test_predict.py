"""The command line of lesson 09, on the checkpoints that come with the package."""

import csv
import json
import os
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import vit_tutorial as vt
import vit_tutorial_cli as cli
from vit_tutorial import data, plots, predict
from vit_tutorial.predict import command, probabilities
from vit_tutorial.predict import photos as reading

ROOT = Path(__file__).parent.parent
SCENES = data.shapes(train=1, test=8).test


@pytest.fixture
def photos(tmp_path):
    """Four scenes as files, twice as large as the model wants them."""
    paths = []
    for number, image in enumerate(SCENES.images[:4]):
        pixels = image.permute(1, 2, 0).numpy().repeat(2, axis=0).repeat(2, axis=1)
        Image.fromarray(pixels).save(path := tmp_path / f"scene {number}.png")
        paths.append(str(path))
    return paths


def main(words):
    cli.main(["predict", *words])


@pytest.fixture
def fails(capfd):
    """What to open around a command that must fail: its exit status, then the words that it must say."""

    @contextmanager
    def fails(status, *words):
        with pytest.raises(SystemExit) as caught:
            yield
        err = " ".join(capfd.readouterr().err.replace("│", " ").split())
        assert caught.value.code == status, err
        assert all(word in err for word in words), err

    return fails


def test_the_percentages_are_the_model_s(photos, capsys):
    main([photos[0], "--weights", "shapes", "--top", "99"])
    model, classes, preprocess = vt.load("shapes")
    with Image.open(photos[0]) as photo, torch.inference_mode():
        chances = model(preprocess(photo)).softmax(dim=1)[0]
    expected = [f"  {chances[k]:6.1%}  {classes[k]}" for k in chances.argsort(descending=True).tolist()]
    out, progress = capsys.readouterr()
    assert out.splitlines() == [photos[0], *expected]  # all eight, not 99
    assert "1/1" in progress


def test_features_are_what_the_head_reads(photos, folder, tmp_path, capfd, fails):
    main([*photos, str(folder / "notes.txt"), "--weights", "shapes", "--features", str(tmp_path / "f.npz"),
          "--batch-size", "3"])  # fmt: skip
    out, err = capfd.readouterr()
    assert "4 photographs, 64 numbers each" in out
    assert "skipped: " in err
    assert "notes.txt" in err
    with np.load(tmp_path / "f.npz", allow_pickle=False) as found:
        files, features = found["files"].tolist(), torch.from_numpy(found["features"])
    assert files == photos
    model, _, preprocess = vt.load("shapes")
    with torch.inference_mode():
        expected = model(torch.cat([preprocess(data.open_photo(photo)) for photo in photos]))
        torch.testing.assert_close(model.head(features), expected)
    for words in (["--out", "a.csv"], ["--labels", "a cat"], ["--attention", "a.png"]):
        with fails(2, "--features goes without"):
            main([photos[0], "--weights", "shapes", "--features", "f.npz", *words])
    with fails(2, "--features writes an .npz file"):
        main([photos[0], "--weights", "shapes", "--features", "f.csv"])


# ------------------------------------------------------------------------------------------------------ what is read


@pytest.fixture
def folder(photos, tmp_path):
    """photos/: two scenes, one below in a folder of its own, a hidden one, and two files that are not images."""
    root = tmp_path / "photos"
    (root / "more").mkdir(parents=True)
    (root / ".thumbnails").mkdir()
    for source, name in zip(photos, ("b.PNG", "a.jpeg", "more/c.png", ".thumbnails/d.png"), strict=True):
        with Image.open(source) as picture:
            picture.save(root / name)
    for name in ("notes.txt", ".hidden.png"):
        (root / name).write_text("not an image", "utf-8")
    return root


def test_a_folder_stands_for_the_pictures_in_it_and_below(folder):
    inside = [str(folder / name) for name in ("a.jpeg", "b.PNG", "more/c.png", "notes.txt")]
    assert predict.find([str(folder)]) == (inside, [])
    assert predict.find([str(folder / "more"), str(folder / "notes.txt"), str(folder / "more")]) == (
        [inside[2], str(folder / "notes.txt"), inside[2]],  # as often as it is named; a file may have any name
        [],
    )


def test_a_pattern_that_the_shell_leaves_is_filled_in(folder, monkeypatch):
    assert predict.find([f"{folder}/*.*"])[0] == [str(folder / name) for name in ("a.jpeg", "b.PNG", "notes.txt")]
    monkeypatch.chdir(folder)
    assert predict.find(["**/*.png"]) == ([str(Path("more/c.png"))], [])
    assert predict.find(["m*"]) == ([str(Path("more/c.png"))], [])
    (folder / "[1].png").write_bytes((folder / "b.PNG").read_bytes())
    assert predict.find(["[1].png"]) == (["[1].png"], [])  # a file with such a name comes first


def test_a_name_that_stands_for_nothing_is_named(folder):
    (folder / "empty").mkdir()
    files, wrong = predict.find(["nowhere.jpg", str(folder / "empty"), f"{folder}/*.gif", str(folder / "b.PNG")])
    assert files == [str(folder / "b.PNG")]
    assert [line.partition(" ")[2][:15] for line in wrong] == ["was not found", "holds no files", "was not found"]
    assert all(name in line for name, line in zip(("nowhere.jpg", "empty", "*.gif"), wrong, strict=True))


def test_a_name_alone_is_no_list(refuses):
    for function in (predict.find, predict.open_all):
        with refuses(TypeError, "names must be a list", "['cat.jpg']"):
            function("cat.jpg")


def test_new_threads_have_torch_s_number_of_threads_after_reading(photos):
    def of_a_new_thread():
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(torch.get_num_threads).result()

    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        assert len(list(predict.read(photos, vt.load("shapes").preprocess, ahead=2))) == len(photos)
        assert (of_a_new_thread(), torch.get_num_threads()) == (3, 3)
    finally:
        torch.set_num_threads(before)


def test_pictures_come_in_their_order_and_are_read_only_so_far_ahead(photos, monkeypatch):
    preprocess, opened, lock, open_photo = vt.load("shapes").preprocess, [], threading.Lock(), predict.open_photo

    def slow(path):
        with lock:
            opened.append(path)
        time.sleep(0.02 if path == photos[0] else 0)  # the others are ready before it
        return open_photo(path)

    monkeypatch.setattr(reading, "open_photo", slow)
    right = {photo: preprocess(open_photo(photo)) for photo in photos}
    names = photos * 8
    for taken, (name, picture) in enumerate(predict.read(iter(names), preprocess, ahead=3)):
        assert name == names[taken]
        assert torch.equal(picture, right[name])
        assert len(opened) <= taken + 3
    assert len(opened) == 32


# ----------------------------------------------------------------------------------------------- how it is worked off


@pytest.mark.parametrize("batch", [3, 100])
def test_the_model_gets_batches_and_the_answers_do_not_depend_on_them(photos, batch, capsys, monkeypatch):
    forward, sizes = vt.ViT.forward, []

    def watched(self, images):
        sizes.append(len(images))
        return forward(self, images)

    main([*photos * 2, "--weights", "shapes"])
    expected = capsys.readouterr().out
    monkeypatch.setattr(vt.ViT, "forward", watched)
    main([*photos * 2, "--weights", "shapes", "--batch-size", str(batch)])
    assert sizes == [min(batch, 8 - i) for i in range(0, 8, batch)]
    assert capsys.readouterr().out == expected


# ------------------------------------------------------------------------------------------------ the file of answers


def rows_of(path):
    if path.suffix == ".csv":
        with path.open(newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_writes_a_line_a_class(photos, tmp_path, capsys, suffix):
    out = tmp_path / "new" / f"answers.{suffix}"
    main([*photos, "--weights", "shapes", "--top", "3", "--out", str(out)])
    assert capsys.readouterr().out == f"4 photographs: {out}\n"
    rows = rows_of(out)
    assert all(list(row) == ["file", "class", "probability", "rank"] for row in rows)
    assert [row["file"] for row in rows] == [photo for photo in photos for _ in range(3)]
    assert [int(row["rank"]) for row in rows] == [1, 2, 3] * 4
    model, classes, preprocess = vt.load("shapes")
    images = torch.cat([preprocess(predict.open_photo(photo)) for photo in photos])
    with torch.inference_mode():
        best = model(images).softmax(dim=1).topk(3)
    assert [row["class"] for row in rows] == [classes[k] for k in best.indices.flatten().tolist()]
    found = torch.tensor([float(row["probability"]) for row in rows])
    assert torch.allclose(found, best.values.flatten(), rtol=1e-5)
    assert [path.name for path in out.parent.iterdir()] == [out.name]


@pytest.mark.skipif(sys.platform != "linux", reason="other systems take only text for a file's name")
def test_a_name_that_is_no_text_stops_nothing(photos, tmp_path, capsys):
    odd = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.png")
    Path(odd).write_bytes(Path(photos[0]).read_bytes())
    main([odd, "--weights", "shapes", "--top", "1"])
    assert capsys.readouterr().out.splitlines()[0] == f"{tmp_path}/caf\\udce9.png"
    for suffix in ("csv", "jsonl"):
        main([odd, "--weights", "shapes", "--out", str(out := tmp_path / f"answers.{suffix}")])
        assert "udce9" in out.read_text("utf-8")
    assert rows_of(out)[0]["file"] == odd  # JSON can say it


def test_an_error_halfway_leaves_the_old_file(photos, tmp_path, monkeypatch, fails):
    (out := tmp_path / "answers.csv").write_text("old", "utf-8")
    rank, calls = probabilities.rank, []

    def breaks(*arguments):
        calls.append(arguments)
        if len(calls) == 3:
            raise FloatingPointError("halfway")
        return rank(*arguments)

    monkeypatch.setattr(probabilities, "rank", breaks)
    with fails(1, "error: halfway"):
        main([*photos, "--weights", "shapes", "--batch-size", "1", "--out", str(out)])
    assert out.read_text("utf-8") == "old"
    assert not list(tmp_path.glob("*.partial"))


# ---------------------------------------------------------------------------------------------------- broken pictures


@pytest.fixture
def broken(tmp_path):
    """A JPEG file that was cut short, a text, and a picture of 32 bits a pixel."""
    whole = tmp_path / "whole.jpg"
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (64, 64, 3), np.uint8)).save(whole)
    (cut := tmp_path / "cut.jpg").write_bytes(whole.read_bytes()[:1500])
    (text := tmp_path / "text.jpg").write_text("hello", "utf-8")
    Image.fromarray(np.full((8, 8), 0.5, np.float32)).save(deep := tmp_path / "deep.tif")
    return [str(path) for path in (cut, text, deep)]


@pytest.mark.parametrize("option", ["--out", "--attention"])
def test_where_it_writes_is_tried_before_the_work(photos, tmp_path, monkeypatch, fails, option):
    monkeypatch.setattr(command, "load", lambda name: pytest.fail("the work has begun"))
    (tmp_path / "file").touch()
    name = str(tmp_path / "file" / "more" / ("a.csv" if option == "--out" else "a.png"))
    with fails(1, "error: can't write a.", str(tmp_path / "file")):
        main([photos[0], "--weights", "shapes", option, name])


def test_a_broken_picture_is_named_counted_and_skipped(photos, broken, tmp_path, capfd):
    out = tmp_path / "answers.csv"
    names = [broken[0], photos[0], broken[1], broken[2], photos[1], "nowhere.jpg"]
    main([*names, "--weights", "shapes", "--batch-size", "2", "--top", "1", "--out", str(out)])
    lines = capfd.readouterr().err.splitlines()
    for name in ("nowhere.jpg", *broken):
        assert sum(f"skipped: {name}" in line for line in lines) == 1
    assert lines[-1].startswith("note: 4 skipped, the others were read: nowhere.jpg was not found; ")
    assert [row["file"] for row in rows_of(out)] == photos[:2]


def test_without_one_good_picture_nothing_is_written(broken, tmp_path, fails):
    (out := tmp_path / "answers.csv").write_text("old", "utf-8")
    with fails(2, "error: no photograph can be read", "cut.jpg", "text.jpg"):
        main([*broken, "--weights", "shapes", "--out", str(out)])
    assert out.read_text("utf-8") == "old"


@pytest.mark.slow
def test_two_processes_write_one_table(photos, broken, tmp_path):
    names = [*photos, broken[0], *photos]
    main([*names, "--weights", "shapes", "--out", str(one := tmp_path / "one.csv")])
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    launch = "-m accelerate.commands.launch --multi_gpu --num_processes 2 --num_machines 1 --mixed_precision no "
    launch += f"--dynamo_backend no --num_cpu_threads_per_process 1 --main_process_port {port} -m vit_tutorial.predict"
    command = [
        sys.executable,
        *launch.split(),
        *names,
        "--weights",
        "shapes",
        "--out",
        str(two := tmp_path / "two.csv"),
    ]
    environment = os.environ | {"ACCELERATE_USE_CPU": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert two.read_text() == one.read_text()
    assert not list(tmp_path.glob("*.part-*"))


# ------------------------------------------------------------------------------------------------------- the rest


def test_draws_where_it_looked(photos, tmp_path, capsys, monkeypatch):
    drawn = {}

    def light_maps(images, maps, titles, **options):
        drawn.update(images=images, maps=maps, titles=titles)
        return drawing(images, maps, titles, **options)

    drawing = plots.light_maps
    monkeypatch.setattr(plots, "light_maps", light_maps)
    out = tmp_path / "pictures" / "looked.png"
    main([*photos[:2], "--weights", "shapes", "--attention", str(out)])
    assert str(out) in capsys.readouterr().out.splitlines()[-1]
    assert min(Image.open(out).size) > 200
    assert drawn["titles"] == [data.scenes.TARGETS[label] for label in SCENES.labels[:2].tolist()]
    model, _, preprocess = vt.load("shapes")
    shown = torch.stack(drawn["images"])  # (B, C, H, W), as the model got them
    assert (shown - SCENES.images[:2] / 255).abs().max() < 0.5
    with torch.inference_mode():
        maps = model.attention_maps(preprocess(shown))
    expected = torch.stack([maps[layer][:, :, 0, 1:].mean(dim=1) for layer in range(4)]).mean(dim=0)
    assert torch.allclose(torch.stack(list(drawn["maps"]["attention"])).flatten(1), expected, atol=1e-5)


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["nowhere.jpg", "--weights", "shapes"], 2, "nowhere.jpg was not found"),
        ([__file__, "--weights", "shapes"], 2, "test_predict.py is not an image"),
        (["PHOTO", "--weights", "cats"], 2, "cats"),
        (["PHOTO", "--weights", "shapes", "--top", "0"], 2, "--top must be at least 1, got 0"),
        (["PHOTO", "--weights", "shapes", "--batch-size", "0"], 2, "--batch-size must be at least 1, got 0"),
        (["PHOTO", "--weights", "shapes", "--out", "answers.txt"], 2, "--out writes .csv or .jsonl files"),
        (["PHOTO", "--weights", "shapes", "--attention", "looked.gif"], 2, "--attention writes a .png file"),
        (["PHOTO", "--weights", "shapes", "--attention", "PHOTO"], 2, "is one of the photographs"),
        (["https://a.org/cat.jpg", "--weights", "shapes"], 2, "cat.jpg was not found: download it first"),
        (["PHOTO"], 2, "--weights is needed"),
        (["--weights", "shapes"], 2, "at least one photograph"),
        (["--labels", "a cat", "PHOTO"], 2, "at least one photograph or folder, before --labels"),
    ],
)
def test_refuses_in_one_line(photos, fails, words, status, said):
    with fails(status, said):
        main([photos[0] if word == "PHOTO" else word for word in words])


def test_a_model_of_one_answer_is_refused(photos, tmp_path, fails):
    vt.save(vt.load("shapes", num_classes=1), tmp_path / "one")
    with fails(2, "has one answer, a number"):
        main([*photos, "--weights", str(tmp_path / "one")])


@pytest.mark.skipif(sys.platform == "win32", reason="there it is another error")
def test_who_reads_its_lines_may_stop(photos, monkeypatch):
    reader, writer = os.pipe()
    os.close(reader)  # as "head" does, earlier
    monkeypatch.setattr(sys, "stdout", os.fdopen(writer, "w", buffering=1, encoding="utf-8"))
    main([*photos, "--weights", "shapes", "--batch-size", "1"])
    print("what Python writes at its end goes nowhere, without an error")
    sys.stdout.close()
