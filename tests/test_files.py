"""Trained models on disk: what comes with the package is what it claims, and what is written is whole or not at all."""

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from PIL import Image
from torch.testing import assert_close

import vit_tutorial as vt
from vit_tutorial import data
from vit_tutorial.data import Preprocessing
from vit_tutorial.weights import keeping, messages, reading

NAMES = ("digits", "shapes")
PICTURES = {"cifar10": 170, "photographs": 161}  # how many of the 200 that come with the package are named right

# ------------------------------------------------------------------------------------------ what comes with the package


@pytest.fixture(scope="module", params=NAMES)
def shipped(request):
    """Name, folder and config of one model of the package."""
    folder = keeping.SHIPPED / request.param
    return request.param, folder, json.loads((folder / "config.json").read_text())


def test_these_come_with_the_package():
    names = [*NAMES, "cifar10", "digits-patch2", "photographs"]
    assert sorted(folder.name for folder in keeping.SHIPPED.iterdir()) == sorted(names)
    assert sum(file.stat().st_size for file in keeping.SHIPPED.rglob("*.*")) <= 8_000_000


def test_its_accuracy_on_the_test_split_is_what_it_claims(shipped):
    name, folder, config = shipped
    model, classes, preprocess = vt.load(name)
    data_set = data.shapes(train=1) if name == "shapes" else data.load(name)  # its test split is the same
    images, labels = data_set.test.batch()
    with torch.inference_mode():
        predicted = torch.cat([model(preprocess(part)).argmax(1) for part in images.split(250)])
    right = int((predicted == labels).sum())
    # On another CPU the last bits differ, and with them, at most, an image on the border of two classes.
    assert abs(right - round(config["test_accuracy"] * len(labels))) <= 1
    assert config["test_accuracy"] >= 0.99
    assert (classes, preprocess.mean, preprocess.std) == (data_set.classes, data_set.mean, data_set.std)
    with (folder / "history.csv").open(encoding="utf-8") as table:
        assert float(list(csv.DictReader(table))[-1]["test_accuracy"]) == config["test_accuracy"]


def test_it_says_which_command_made_it(shipped):
    name, _, config = shipped
    assert config["command"].startswith(f"python -m vit_tutorial.train --data {name} ")
    assert "/" not in config["command"].replace("runs/", "")  # nobody's home


@pytest.mark.parametrize(
    ("name", "parameters", "by"),
    [
        ("cifar10", 1_000_000, "python -m vit_tutorial.train --data cifar10"),
        ("photographs", 1_500_000, "python benchmarks/photographs.py vit --data cifar10-jpeg"),
    ],
)
def test_the_models_of_photographs_are_small_and_answer_the_pictures_that_come_with_the_package(name, parameters, by):
    folder = keeping.SHIPPED / name
    config = json.loads((folder / "config.json").read_text())
    model, classes, preprocess = vt.load(name)
    assert sum(parameter.numel() for parameter in model.parameters()) <= parameters
    assert (folder / "model.safetensors").stat().st_size <= 3_000_000
    assert classes == data.CIFAR10_CLASSES
    images, labels = data.cifar10_pictures().batch()
    with torch.inference_mode():
        right = int((model(preprocess(images)).argmax(1) == labels).sum())
    assert abs(right - PICTURES[name]) <= 1  # of 200; on another CPU the last bits differ
    # 200 pictures, drawn by chance, can't be far from the whole split: 3 standard deviations.
    share = config["test_accuracy"]
    assert abs(right / 200 - share) < 3 * (share * (1 - share) / 200) ** 0.5
    with (folder / "history.csv").open(encoding="utf-8") as table:
        rows = list(csv.DictReader(table))
    assert float(rows[-1]["validation_accuracy"]) == pytest.approx(config["validation_accuracy"], abs=5e-4)
    assert len(rows) == config["recipe"]["epochs"]
    assert config["command"].startswith(by)
    assert config["machine"]


def test_the_pictures_of_cifar10_are_twenty_of_each_class():
    pictures = data.cifar10_pictures()
    assert pictures.images.shape == (200, 3, 32, 32)
    assert pictures.labels.bincount().tolist() == [20] * 10
    assert len({image.numpy().tobytes() for image in pictures.images}) == 200
    # Neighbouring rows are alike within a picture; of a sheet cut wrong, one pair would be from two pictures.
    difference = (pictures.images[:, :, 1:].float() - pictures.images[:, :, :-1].float()).abs().mean(dim=(0, 1, 3))
    assert difference.max() < 2 * difference.median()


# ------------------------------------------------------------------------------------------------------------- loading


@pytest.fixture
def folder(tmp_path):
    return Path(shutil.copytree(keeping.SHIPPED / "digits", tmp_path / "mine"))


def test_a_shipped_name_wins_over_a_folder(tmp_path, monkeypatch):
    (tmp_path / "digits").mkdir()
    monkeypatch.chdir(tmp_path)
    assert vt.load("digits").classes == tuple("0123456789")
    with pytest.raises(OSError, match="safetensors"):
        vt.load("./digits")


def test_load_refuses_an_unknown_name(refuses):
    with refuses(ValueError, "'dogs'", "digits", "shapes", "--out"):
        vt.load("dogs")


def change_config(folder, **changes):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))


def change_depth(folder, depth):
    config = json.loads((folder / "config.json").read_text())
    change_config(folder, model=config["model"] | {"depth": depth})


def change_weights(folder, change):
    weights = safetensors.torch.load_file(folder / "model.safetensors")
    change(weights)
    safetensors.torch.save_file(weights, folder / "model.safetensors")


def cut(folder, name):
    whole = (folder / name).read_bytes()
    (folder / name).write_bytes(whole[: len(whole) // 2])


DAMAGE = {
    "another width": lambda folder: change_config(folder, model={"image_size": 8, "patch_size": 4, "dim": 96}),
    "an unknown setting": lambda folder: change_config(folder, model={"nonsense": 1}),
    "settings that make no model": lambda folder: change_config(folder, model={"image_size": 8, "patch_size": 3}),
    "a class too many": lambda folder: change_config(folder, classes=[*"0123456789", "ten"]),
    "a depth of a billion": lambda folder: change_depth(folder, 10**9),
    "another way to crop": lambda folder: change_config(folder, crop="border"),
    "NaN": lambda folder: change_weights(folder, lambda weights: weights["norm.bias"].fill_(torch.nan)),
    "no settings": lambda folder: (folder / "config.json").write_text("{}"),
    "half a config": lambda folder: cut(folder, "config.json"),
    "half of the weights": lambda folder: cut(folder, "model.safetensors"),
    "a pickle": lambda folder: torch.save({}, folder / "model.safetensors"),
    "no weights": lambda folder: (folder / "model.safetensors").write_bytes(b""),
    "a missing tensor": lambda folder: change_weights(folder, lambda weights: weights.pop("norm.weight")),
    "a tensor too many": lambda folder: change_weights(folder, lambda weights: weights.update(x=torch.ones(1))),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_load_refuses_a_damaged_folder(folder, refuses, damage):
    damage(folder)
    with refuses(ValueError, str(folder), "isn't as this package writes it"):
        vt.load(folder)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"image_size": 0}, ("image_size must be at least 1",)),
        ({"image_size": 9}, ("9x9", "not divisible by patch")),
        ({"num_classes": -1}, ("num_classes must be at least 0",)),
        ({"gelu": "relu"}, ("unknown gelu 'relu'",)),
        ({"part": "x"}, ("part= is for what other libraries",)),
    ],
)
def test_what_is_asked_for_is_not_a_damage_of_the_files(refuses, asked, words):
    with refuses(ValueError, "digits", *words) as caught:
        vt.load("digits", **asked)
    assert "damaged" not in str(caught.value)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_load_names_a_missing_file(folder, refuses, name):
    (folder / name).unlink()
    with refuses(OSError, str(folder), f"has no {name}"):
        vt.load(folder)


def test_names_messages_and_values_are_cut_each_by_itself():
    assert messages.some(["x" * 5000]) == "x" * 60 + "…" + "x" * 30
    assert messages.some([str(k) for k in range(12)]) == "0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more"
    assert messages.brief("y" * 1500) == "y" * 1500
    assert messages.brief("y" * 9000) == "y" * 1200 + " … " + "y" * 290
    assert messages.brief("a\nb\x1b[0m\udcff") == r"a\nb\x1b[0m\udcff"
    assert messages.short({"a": [1, "b"]}) == "{'a': [1, 'b']}"
    assert len(messages.short(["z" * 9000] * 9000)) <= 200


# ------------------------------------------------------------------------------------------------------- preprocessing

COLOUR = Preprocessing((4, 6), (0.5, 0.4, 0.3), (0.2, 0.25, 0.5))
GREY = Preprocessing((4, 6), (0.5,), (0.25,))


def test_preprocessing_is_what_training_did():
    images = torch.rand(2, 3, 4, 6)
    expected = torch.stack(
        [(images[:, c] - m) / s for c, (m, s) in enumerate(zip(COLOUR.mean, COLOUR.std, strict=True))], dim=1
    )
    assert_close(COLOUR(images), expected)
    assert_close(COLOUR(images[0]), expected[:1])
    assert COLOUR(images.double()).dtype == torch.float64
    assert COLOUR(images[:0]).shape == (0, 3, 4, 6)


def stripes(size, crop, interpolation="nearest"):
    """A picture of 10 rows and 40 columns, whose columns are black, then five white, then black, once prepared."""
    pixels = np.zeros((10, 40), np.uint8)
    pixels[:, 15:20] = 255
    grey = Preprocessing(size, (0.0,), (1.0,), crop, interpolation)
    return grey(Image.fromarray(pixels))[0, 0, 0].round().int().tolist()


def test_three_ways_to_crop():
    assert stripes((10, 20), "center") == [0] * 5 + [1] * 5 + [0] * 10  # columns 10 to 29
    assert stripes((10, 40), "none") == [0] * 15 + [1] * 5 + [0] * 20
    assert stripes((10, 8), "none") == [0, 0, 0, 1, 0, 0, 0, 0]  # all 40, by fives
    assert stripes((10, 10), 1.0) == [1] * 5 + [0] * 5  # columns 15 to 24
    assert stripes((5, 5), 0.5) == [1, 1, 0, 0, 0]  # 10 x 40 as it is, columns 18 to 22 (17.5, rounded to even)
    assert stripes((5, 20), 1.0) == [0] * 7 + [1] * 3 + [0] * 10  # to 5 x 20


def test_a_tall_picture_loses_as_much_on_top_as_below():
    pixels = np.zeros((40, 10), np.uint8)
    pixels[15:20] = 255
    image = Preprocessing((10, 10), (0.0,), (1.0,), "center", "nearest")(Image.fromarray(pixels))
    assert image[0, 0, :, 0].tolist() == [1] * 5 + [0] * 5  # rows 15 to 24


@pytest.mark.parametrize("change", [{"crop": 0.0}, {"crop": 1.1}, {"crop": "middle"}, {"crop": None},
                                    {"interpolation": "cubic"}])  # fmt: skip
def test_unknown_ways_to_crop_and_resize(refuses, change):
    with refuses(ValueError, next(iter(change)), repr(next(iter(change.values())))):
        Preprocessing((4, 6), (0.5,), (0.25,), **change)


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L", "P", "CMYK", "I;16", "1"])
def test_any_picture_goes_to_a_grey_model(mode):
    white = Image.new(mode, (12, 8), {"I;16": 65535, "L": 255, "1": 1, "CMYK": (0, 0, 0, 0)}.get(mode, "white"))
    assert_close(GREY(white), torch.full((1, 1, 4, 6), (1 - 0.5) / 0.25))


def test_green_is_brighter_than_blue():
    blue, green, red = (float(GREY(Image.new("RGB", (6, 4), name)).mean()) for name in ("blue", "#00ff00", "red"))
    assert blue < red < green


@pytest.mark.parametrize(
    ("preprocess", "images", "error", "words"),
    [
        (COLOUR, torch.rand(1, 3, 6, 4), ValueError, ("(3, 4, 6)", "(1, 3, 6, 4)", "resize")),
        (COLOUR, torch.rand(1, 1, 4, 6), ValueError, ("(3, 4, 6)", "(1, 1, 4, 6)")),
        (COLOUR, torch.rand(4, 6), ValueError, ("(3, 4, 6)", "(4, 6)")),
        (COLOUR, 255 * torch.ones(3, 4, 6), ValueError, ("[0, 1]", "255", "divide")),
        (COLOUR, torch.full((3, 4, 6), 1.01), ValueError, ("[0, 1]", "1.01")),
        (COLOUR, torch.full((3, 4, 6), -0.1), ValueError, ("[0, 1]", "-0.1")),
        (COLOUR, torch.ones(3, 4, 6, dtype=torch.uint8), TypeError, ("floating-point", "uint8")),
        (COLOUR, np.ones((3, 4, 6)), TypeError, ("floating-point", "ndarray")),
    ],
)
def test_preprocessing_refuses(refuses, preprocess, images, error, words):
    with refuses(error, *words):
        preprocess(images)


def test_training_a_loaded_model_leaves_its_file_alone(folder):
    # The weights are mapped from the file into memory.
    before = (folder / "model.safetensors").read_bytes()
    model = vt.load(folder).model
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1.0)
    assert (folder / "model.safetensors").read_bytes() == before
    assert not torch.equal(model.norm.bias, vt.load(folder).model.norm.bias)


def test_rows_that_are_one_and_the_same_in_memory_are_refused(refuses):
    with refuses(ValueError, "norm.bias (2, 8) declares more numbers than the file holds"):
        reading.check_numbers({"norm.bias": torch.zeros(8).expand(2, 8)})
