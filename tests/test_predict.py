"""The command line of lesson 09, on the checkpoints that come with the package."""

import csv
import io
import json
import os
import sys
import threading
import time
import weakref
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from PIL import Image

import vit_tutorial as vt
from vit_tutorial import data, plots, predict
from vit_tutorial.plots.style import writable
from vit_tutorial.predict import command, ranking
from vit_tutorial.predict import photos as reading
from vit_tutorial.predict.output import as_text
from vit_tutorial.weights import keeping
from vit_tutorial.weights.model import Trained

SCENES = data.shapes(train=1, test=8).test
FIGURE = Figure(figsize=(1, 1))


@pytest.fixture
def photos(tmp_path):
    """Four scenes as files, twice as large as the model wants them."""
    paths = []
    for number, image in enumerate(SCENES.images[:4]):
        pixels = image.permute(1, 2, 0).numpy().repeat(2, axis=0).repeat(2, axis=1)
        Image.fromarray(pixels).save(path := tmp_path / f"scene {number}.png")
        paths.append(str(path))
    return paths


def test_the_percentages_are_the_model_s(photos, capsys):
    predict.main([photos[0], "--weights", "shapes", "--top", "99"])
    model, classes, preprocess = vt.load("shapes")
    with Image.open(photos[0]) as photo, torch.inference_mode():
        chances = model(preprocess(photo)).softmax(dim=1)[0]
    expected = [f"  {chances[k]:6.1%}  {classes[k]}" for k in chances.argsort(descending=True).tolist()]
    out, progress = capsys.readouterr()
    assert out.splitlines() == [photos[0], *expected]  # all eight, not 99
    assert "1/1" in progress


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
    inside = [str(folder / name) for name in ("a.jpeg", "b.PNG", "more/c.png")]
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
    assert [line.partition(" ")[2][:15] for line in wrong] == ["was not found", "holds no images", "was not found"]
    assert all(name in line for name, line in zip(("nowhere.jpg", "empty", "*.gif"), wrong, strict=True))


def test_what_is_in_a_closed_folder_is_not_called_missing(folder, monkeypatch):
    monkeypatch.setattr(reading, "may_open", lambda path: path != folder)
    assert predict.find([str(folder / "more" / "x" / "no.png")])[1][0].endswith("no.png was not found")
    ((line,),) = (predict.find([str(folder / "no.png")])[1],)
    assert line == f"{folder} is a folder that can't be opened: get the right to read it"


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


def test_no_reader_is_left_behind(photos):
    before = threading.active_count()
    pictures = predict.read(photos * 50, vt.load("shapes").preprocess, ahead=8)
    next(pictures)
    pictures.close()
    assert threading.active_count() == before


def test_the_main_thread_keeps_its_cores(photos):
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        list(predict.read(photos, vt.load("shapes").preprocess, ahead=4))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


# ----------------------------------------------------------------------------------------------- how it is worked off


@pytest.mark.parametrize("batch", [3, 100])
def test_the_model_gets_batches_and_the_answers_do_not_depend_on_them(photos, batch, capsys, monkeypatch):
    forward, sizes = vt.ViT.forward, []

    def watched(self, images):
        sizes.append(len(images))
        return forward(self, images)

    predict.main([*photos * 2, "--weights", "shapes"])
    expected = capsys.readouterr().out
    monkeypatch.setattr(vt.ViT, "forward", watched)
    predict.main([*photos * 2, "--weights", "shapes", "--batch-size", str(batch)])
    assert sizes == [min(batch, 8 - i) for i in range(0, 8, batch)]
    assert capsys.readouterr().out == expected


def test_a_picture_is_let_go_once_it_is_answered(photos, tmp_path, monkeypatch):
    alive, most = set(), []

    def watched(files, preprocess, ahead):
        for number, file in enumerate(files):
            picture = preprocess(predict.open_photo(file))
            alive.add(number)
            weakref.finalize(picture, alive.discard, number)
            most.append(len(alive))
            yield file, picture

    monkeypatch.setattr(command, "read", watched)
    predict.main([*photos * 10, "--weights", "shapes", "--batch-size", "4", "--out", str(tmp_path / "answers.csv")])
    assert len(most) == 40
    assert max(most) <= 2 * 4


@pytest.mark.parametrize(
    ("cuda", "mps", "expected"), [(True, True, "cuda"), (False, True, "mps"), (False, False, "cpu")]
)
def test_the_model_runs_on_the_best_device_there_is(photos, monkeypatch, cuda, mps, expected):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)
    moved = []
    monkeypatch.setattr(vt.ViT, "to", lambda self, device: moved.append(str(device)))  # and stays: there is none here
    predict.main([photos[0], "--weights", "shapes"])
    assert moved == [expected]


# ------------------------------------------------------------------------------------------------ the file of answers


def rows_of(path):
    if path.suffix == ".csv":
        with path.open(newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_a_name_takes_one_line_whatever_it_holds():
    assert as_text("a\n\x1b[1m.png", [("c\rd", 0.5)]) == "a\\n\\x1b[1m.png\n   50.0%  c\\rd\n"


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_writes_a_line_a_class(photos, tmp_path, capsys, suffix):
    out = tmp_path / "new" / f"answers.{suffix}"
    predict.main([*photos, "--weights", "shapes", "--top", "3", "--out", str(out)])
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


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_names_of_files_come_through_whole(photos, tmp_path, suffix):
    odd = tmp_path / 'a "cat", née\nKätzchen.png'
    odd.write_bytes(Path(photos[0]).read_bytes())
    predict.main([str(odd), "--weights", "shapes", "--out", str(out := tmp_path / f"answers.{suffix}")])
    assert {row["file"] for row in rows_of(out)} == {str(odd)}


@pytest.mark.skipif(sys.platform != "linux", reason="other systems take only text for a file's name")
def test_a_name_that_is_no_text_stops_nothing(photos, tmp_path, capsys):
    odd = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.png")
    Path(odd).write_bytes(Path(photos[0]).read_bytes())
    predict.main([odd, "--weights", "shapes", "--top", "1"])
    assert capsys.readouterr().out.splitlines()[0] == f"{tmp_path}/caf\\udce9.png"
    for suffix in ("csv", "jsonl"):
        predict.main([odd, "--weights", "shapes", "--out", str(out := tmp_path / f"answers.{suffix}")])
        assert "udce9" in out.read_text("utf-8")
    assert rows_of(out)[0]["file"] == odd  # JSON can say it


def test_a_pipe_that_takes_few_characters_gets_escapes(photos, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stdout", pipe := io.TextIOWrapper(io.BytesIO(), encoding="cp1252"))  # as on Windows
    predict.main([photos[0], "--weights", "shapes", "--out", str(tmp_path / "猫.csv")])
    pipe.flush()
    assert b"\\u732b.csv" in pipe.buffer.getvalue()


def test_an_error_halfway_leaves_the_old_file(photos, tmp_path, monkeypatch, refuses):
    (out := tmp_path / "answers.csv").write_text("old", "utf-8")
    rank, calls = ranking.rank, []

    def fails(*arguments):
        calls.append(arguments)
        if len(calls) == 3:
            raise ValueError("halfway")
        return rank(*arguments)

    monkeypatch.setattr(ranking, "rank", fails)
    with refuses(SystemExit, "error: halfway"):
        predict.main([*photos, "--weights", "shapes", "--batch-size", "1", "--out", str(out)])
    assert out.read_text("utf-8") == "old"
    assert not out.with_name("answers.csv.partial").exists()


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


def test_a_broken_picture_is_named_and_skipped_and_the_status_says_so(photos, broken, tmp_path, capsys, refuses):
    names = [broken[0], photos[0], broken[1], broken[2], photos[1], "nowhere.jpg"]
    out = tmp_path / "answers.csv"
    with refuses(SystemExit, "error: 4 skipped", "cut.jpg", "text.jpg", "deep.tif", "nowhere.jpg was not found"):
        predict.main([*names, "--weights", "shapes", "--batch-size", "2", "--top", "1", "--out", str(out)])
    said = [line for line in capsys.readouterr().err.splitlines() if "skipped: " in line]
    for name in ("nowhere.jpg", *broken):
        assert sum(f"skipped: {name}" in line for line in said) == 1
    assert [row["file"] for row in rows_of(out)] == photos[:2]


def test_whatever_goes_wrong_with_one_picture_is_its_own(photos, monkeypatch, refuses, tmp_path):
    def explodes(self, picture):
        raise error

    for error in (OSError("disk"), MemoryError(), ZeroDivisionError("zero")):
        monkeypatch.setattr(data.Preprocessing, "__call__", explodes)
        with refuses(SystemExit, "error: no photograph can be read", photos[0], str(error) or "MemoryError"):
            predict.main([photos[0], "--weights", "shapes", "--out", str(tmp_path / "answers.csv")])


def test_a_link_to_nowhere_and_a_name_too_long_are_named(photos, tmp_path):
    (folder := tmp_path / "links").mkdir()
    try:
        (folder / "gone.png").symlink_to(tmp_path / "nowhere.png")
    except OSError:
        pytest.skip("no right to make links")
    assert predict.find([str(folder), "x" * 5000]) == ([str(folder / "gone.png")], [f"{'x' * 5000} was not found"])
    ((name, error),) = predict.read([str(folder / "gone.png")], vt.load("shapes").preprocess, ahead=1)
    assert str(error) == f"{name} was not found"


def test_heic_in_a_folder_is_named_not_passed_over(photos, tmp_path, refuses):
    (heic := tmp_path / "IMG_1.HEIC").write_bytes(b"\0\0\0\x18ftypheic")
    assert predict.find([str(tmp_path)]) == ([str(heic), *photos], [])
    with refuses(SystemExit, "error: 1 skipped", f"{heic} is a .heic file", "convert it to JPEG"):
        predict.main([str(tmp_path), "--weights", "shapes"])


@pytest.mark.parametrize("option", ["--out", "--attention"])
def test_where_it_writes_is_tried_before_the_work(photos, tmp_path, monkeypatch, refuses, option):
    monkeypatch.setattr(command, "find", lambda names: pytest.fail("the work has begun"))
    (tmp_path / "file").touch()
    name = str(tmp_path / "file" / "more" / ("a.csv" if option == "--out" else "a.png"))
    with refuses(SystemExit, "error: can't write a.", str(tmp_path / "file")):
        predict.main([photos[0], "--weights", "shapes", option, name])


def test_what_a_figure_can_t_write_is_numbered(photos, tmp_path, monkeypatch, capsys):
    trained = vt.load("shapes")
    names = ("猫", "قط", "a\nb", "naïve", "Ω", "кот", "$5$", "bird")
    assert writable([*names, 50 * "a"]) == ["class 1", "class 2", "class 3", *names[3:], 39 * "a" + "…"]
    monkeypatch.setattr(command, "load", lambda name: Trained(trained.model, names[:1] * 8, trained.preprocess))
    predict.main([photos[0], "--weights", "shapes", "--attention", str(tmp_path / "a.png")])
    assert capsys.readouterr().out.endswith(f"{tmp_path / 'a.png'}, class 8 is 猫\n")


def test_an_unfinished_run_is_to_be_resumed(photos, tmp_path, refuses):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "state.pt").write_bytes(b"")
    with refuses(SystemExit, "error: ", str(tmp_path / "run"), "--resume"):
        predict.main([photos[0], "--weights", str(tmp_path / "run")])


def test_without_one_good_picture_nothing_is_written(broken, tmp_path, refuses):
    (out := tmp_path / "answers.csv").write_text("old", "utf-8")
    with refuses(SystemExit, "error: no photograph can be read", "cut.jpg", "text.jpg"):
        predict.main([*broken, "--weights", "shapes", "--out", str(out)])
    assert out.read_text("utf-8") == "old"
    with refuses(SystemExit, "error: no photograph can be read", "nowhere.jpg"):  # before any weights are fetched
        predict.main(["nowhere.jpg", "--weights", "torchvision/vit_b_16"])


def test_of_many_broken_pictures_the_last_line_names_five(broken, photos, capsys, refuses):
    with refuses(SystemExit, "error: 30 skipped", "; and 25 more"):
        predict.main([photos[0], *broken * 10, "--weights", "shapes"])
    assert capsys.readouterr().err.count("skipped: ") == 30


# ------------------------------------------------------------------------------------------------------- the rest


def test_draws_where_it_looked(photos, tmp_path, capsys, monkeypatch):
    drawn = {}

    def overlays(images, maps, titles, **options):
        drawn.update(images=images, maps=maps, titles=titles)
        return plots_overlays(images, maps, titles, **options)

    plots_overlays = plots.overlays
    monkeypatch.setattr(plots, "overlays", overlays)
    out = tmp_path / "pictures" / "looked.png"
    predict.main([*photos[:2], "--weights", "shapes", "--attention", str(out)])
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


def test_the_picture_of_the_attention_leaves_out_what_is_broken(photos, broken, tmp_path, capsys, monkeypatch):
    titles = []
    monkeypatch.setattr(plots, "overlays", lambda *arguments, **options: titles.extend(arguments[2]) or FIGURE)
    out = tmp_path / "looked.png"
    with pytest.raises(SystemExit):
        predict.main(
            [photos[0], broken[0], photos[1], "--weights", "shapes", "--batch-size", "1", "--attention", str(out)]
        )
    assert titles == [data.scenes.TARGETS[label] for label in SCENES.labels[:2].tolist()]
    assert out.exists()


def test_does_not_draw_what_nobody_could_see(photos, tmp_path, refuses):
    with refuses(SystemExit, "error: --attention", "at most 100", "101"):
        predict.main([*[photos[0]] * 101, "--weights", "shapes", "--attention", str(tmp_path / "looked.png")])


def test_a_model_without_a_head_names_nothing(photos, tmp_path, refuses):
    config = vt.ViTConfig(image_size=8, patch_size=4, num_classes=0, dim=16, depth=1, num_heads=2, mlp_dim=16)
    history = [dict.fromkeys(("epoch", "loss", "test_loss", "accuracy", "test_accuracy"), 0.1)]
    about = data.Data("none", None, None, (), (8, 8), 3, (0.5,) * 3, (0.5,) * 3)
    keeping.save(tmp_path / "body", vt.ViT(config), about, history)
    with refuses(SystemExit, "error: ", "body", "no head", "fine-tuned"):
        predict.main([photos[0], "--weights", str(tmp_path / "body")])


def test_a_mean_pooled_grey_model(tmp_path, capsys):
    # No class token: the picture is the mean over the patches.
    digits = data.digits()
    config = vt.ViTConfig(
        image_size=8, patch_size=4, in_channels=1, num_classes=10, dim=16, depth=2, num_heads=2, mlp_dim=16, pool="mean"
    )
    history = [dict.fromkeys(("epoch", "loss", "test_loss", "accuracy", "test_accuracy"), 0.1)]
    keeping.save(tmp_path / "model", vt.ViT(config), digits, history)
    Image.fromarray(np.full((20, 30), 200, np.uint8)).save(tmp_path / "grey.png")
    arguments = [str(tmp_path / "grey.png"), "--weights", str(tmp_path / "model")]
    predict.main([*arguments, "--attention", str(tmp_path / "looked.png")])
    assert capsys.readouterr().out.splitlines()[1] == "   10.0%  0"
    assert (tmp_path / "looked.png").exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda photo: ["nowhere.jpg", "--weights", "shapes"], ("nowhere.jpg", "was not found")),
        (lambda photo: [__file__, "--weights", "shapes"], ("test_predict.py", "is not an image")),
        (lambda photo: [photo, "--weights", "cats"], ("cats", "digits", "shapes")),
        (lambda photo: [photo, "--weights", "shapes", "--top", "0"], ("--top", "at least 1", "0")),
        (lambda photo: [photo, "--weights", "shapes", "--batch-size", "0"], ("--batch-size", "at least 1", "0")),
        (lambda photo: [photo, "--weights", "shapes", "--out", "answers.txt"], (".csv", ".jsonl", "answers.txt")),
        (lambda photo: [photo, "--weights", "shapes", "--out", f"{photo}/x.csv"], ("x.csv", "is a file")),
        (lambda photo: [photo, "--weights", "shapes", "--attention", f"{photo}/x.png"], ("x.png", "is a file")),
        (lambda photo: [photo, "--weights", "shapes", "--attention", "looked.gif"], ("--attention", ".png")),
        (lambda photo: [photo, "--weights", "shapes", "--attention", photo], ("is one of the photographs",)),
        (lambda photo: ["https://a.org/cat.jpg", "--weights", "shapes"], ("cat.jpg was not found: download it",)),
        (lambda photo: ["", "--weights", "shapes"], ("'' was not found",)),
        (lambda photo: [photo, "--weights", ""], ("the name is empty",)),
    ],
)
def test_refuses_in_one_line(photos, capsys, refuses, change, words):
    with refuses(SystemExit, "error: ", *words):
        predict.main(change(photos[0]))


def test_ctrl_c_needs_no_traceback(photos, monkeypatch):
    def interrupted(name):
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "load", interrupted)
    with pytest.raises((SystemExit, KeyboardInterrupt)) as caught:
        predict.main([photos[0], "--weights", "shapes"])
    assert str(caught.value) == "stopped"


@pytest.mark.skipif(sys.platform == "win32", reason="there it is another error")
def test_who_reads_its_lines_may_stop(photos, monkeypatch):
    reader, writer = os.pipe()
    os.close(reader)  # as "head" does, earlier
    monkeypatch.setattr(sys, "stdout", os.fdopen(writer, "w", buffering=1, encoding="utf-8"))
    with pytest.raises(SystemExit) as caught:
        predict.main([*photos, "--weights", "shapes", "--batch-size", "1"])
    assert caught.value.code == 1
    print("what Python writes at its end goes nowhere, without an error")
    sys.stdout.close()
