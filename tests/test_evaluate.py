"""The command line of evaluation: the accuracy on somebody's own images, its interval, and what is confused."""

import csv

import pytest
import torch
from PIL import Image

import vit_tutorial as vt
import vit_tutorial_cli as cli
from vit_tutorial import data, train
from vit_tutorial.train import report

PICTURES = data.cifar10_pictures()


@pytest.fixture
def folder(tmp_path):
    """Twelve frogs, ten cats, a file that is no image."""
    for name, count in (("frog", 12), ("cat", 10)):
        (tmp_path / "test" / name).mkdir(parents=True)
        places = (PICTURES.labels == data.CIFAR10_CLASSES.index(name)).nonzero().flatten()[:count]
        for place in places.tolist():
            pixels = PICTURES.images[place].permute(1, 2, 0).numpy()
            Image.fromarray(pixels).save(tmp_path / "test" / name / f"{place}.png")
    (tmp_path / "test" / "cat" / "notes.txt").write_text("no image", "utf-8")
    return tmp_path / "test"


def evaluate(capsys, *words):
    cli.main(["evaluate", *map(str, words)])
    return capsys.readouterr()


def test_the_accuracy_is_the_models_with_an_interval_and_by_class(folder, tmp_path, capsys):
    out, err = evaluate(capsys, folder, "--weights", "photographs", "--out", tmp_path / "found", "--batch-size", "5")
    model, classes, _ = vt.load("photographs")
    right = {}
    for name in ("cat", "frog"):
        rows = PICTURES.labels == classes.index(name)
        split = PICTURES.part(rows & (rows.cumsum(0) <= (12 if name == "frog" else 10)))
        with torch.inference_mode():
            answers = model(vt.load("photographs").preprocess(split.batch()[0])).argmax(1)
        right[name] = int((answers == split.labels).sum())
    low, high = report.interval(sum(right.values()), 22)
    last = out.splitlines()[-1]
    expected = f"({sum(right.values())} of 22 images, 95 % interval {low:.1%} to {high:.1%})"
    assert last == f"accuracy {sum(right.values()) / 22:.2%} {expected}"
    assert [line.split() for line in out.splitlines()[1:3]] == [
        [name, f"{right[name] / count:.1%}", str(right[name]), "of", str(count)]
        for name, count in (("cat", 10), ("frog", 12))
    ]
    assert "note: skipped 1 file that can't be read" in err
    with (tmp_path / "found" / "confusion.csv").open(encoding="utf-8") as file:
        table = {row["true class"]: row for row in csv.DictReader(file)}
    assert (table["cat"]["cat"], table["frog"]["frog"]) == (str(right["cat"]), str(right["frog"]))
    assert {file.name for file in (tmp_path / "found").iterdir()} == {"confusion.csv", "confusion.png", "mistakes.html"}


def test_a_class_that_the_model_does_not_know_is_an_error(folder, capsys):
    (folder / "cat").rename(folder / "tiger")
    with pytest.raises(SystemExit) as caught:
        evaluate(capsys, folder, "--weights", "photographs")
    assert caught.value.code == 2
    assert "tiger is not a class of the model (airplane; automobile" in capsys.readouterr().err


@pytest.mark.parametrize("place", ["", "found"])
def test_results_are_not_written_among_the_images(folder, capsys, place):
    with pytest.raises(SystemExit) as caught:
        evaluate(capsys, folder, "--weights", "photographs", "--out", folder / place)
    assert caught.value.code == 2
    assert "is in the folder of the images: name one outside it" in capsys.readouterr().err
    assert sorted(path.name for path in folder.iterdir()) == ["cat", "frog"]


def test_the_interval_is_wilsons():
    # Both ends are where the test of the normal approximation with the end's own deviation just accepts the share.
    for right, images in ((0, 10), (3, 3), (81, 263)):
        for end in report.interval(right, images):
            assert abs(right / images - end) == pytest.approx(1.96 * (end * (1 - end) / images) ** 0.5, abs=1e-6)


def test_evaluation_after_training_is_what_training_says(folder, tmp_path, capsys):
    (folder / "cat" / "notes.txt").unlink()
    torch.manual_seed(0)
    whole = data.image_folder(folder, 8, 0.4)
    config = vt.ViTConfig(8, 4, num_classes=2, dim=12, depth=1, num_heads=2, mlp_dim=12)
    train.fit(vt.ViT(config), whole, epochs=1, batch_size=4, progress=False, out=tmp_path / "run")
    out, _ = evaluate(capsys, folder, "--weights", tmp_path / "run")
    trained = vt.load(tmp_path / "run")
    found = data.labelled_images(folder, trained.classes, trained.preprocess)
    accuracy = train.evaluate(trained.model, found)["test_accuracy"]
    assert out.splitlines()[-1].startswith(f"accuracy {accuracy:.2%} (")
