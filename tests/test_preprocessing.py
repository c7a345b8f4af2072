"""Lesson 07: pictures become a model's input: cropped, resized, normalised."""

import math

import numpy as np
import pytest
import torch
from PIL import Image
from torch.testing import assert_close

from vit_tutorial.data import Preprocessing, open_photo

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


@pytest.mark.parametrize("change", [{"crop": 0.0}, {"crop": 1.1}, {"crop": "middle"}, {"crop": None}, {"crop": True},
                                    {"interpolation": "cubic"}])  # fmt: skip
def test_unknown_ways_to_crop_and_resize(refuses, change):
    with refuses(ValueError, next(iter(change)), repr(next(iter(change.values())))):
        Preprocessing((4, 6), (0.5,), (0.25,), **change)


@pytest.mark.parametrize(
    ("mean", "std"), [((123.7,), (58.4,)), ((0.5,), (0.0,)), ((0.5,), (math.nan,)), ((0.5,) * 3, (0.25,))]
)
def test_statistics_that_pixels_cannot_have(refuses, mean, std):
    with refuses(ValueError, "a mean in [0, 1]", "divide", repr(mean), repr(std)):
        Preprocessing((4, 6), mean, std)


def test_statistics_are_numbers_of_python_s_own(refuses):
    found = Preprocessing((4, 6), [1], np.array([0.25], np.float32))
    assert [type(value) for value in found.mean + found.std] == [float, float]
    assert found == Preprocessing((4, 6), (1.0,), (0.25,))
    with refuses(TypeError, "mean must be a number per channel", "0.5"):
        Preprocessing((8, 8), 0.5, 0.5)


def test_a_picture_is_turned_upright_however_it_was_opened(tmp_path):
    exif = Image.Exif()
    exif[0x112] = 6  # Orientation: turn it clockwise
    pixels = np.random.RandomState(0).randint(0, 255, (12, 18, 3), np.uint8)
    Image.fromarray(pixels).save(file := tmp_path / "turned.png", exif=exif)
    upright = COLOUR(Image.fromarray(np.rot90(pixels, -1)))
    assert torch.equal(COLOUR(Image.open(file)), upright)
    assert torch.equal(COLOUR(open_photo(file)), upright)


def test_the_image_size_is_a_pair(refuses):
    with refuses(TypeError, "image_size must be a pair of ints (height, width), got 32"):
        Preprocessing(32, (0.5,), (0.25,))
    with refuses(ValueError, "image_size must be at least 1 pixel", "(-1, 8)"):
        Preprocessing((-1, 8), (0.5,), (0.25,))
    assert Preprocessing([4, 6], (0.5,), (0.25,)).image_size == (4, 6)  # as JSON has it


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L", "P", "CMYK", "I;16", "1"])
def test_any_picture_goes_to_a_grey_model(mode):
    white = Image.new(mode, (12, 8), {"I;16": 65535, "L": 255, "1": 1, "CMYK": (0, 0, 0, 0)}.get(mode, "white"))
    assert_close(GREY(white), torch.full((1, 1, 4, 6), (1 - 0.5) / 0.25))


def test_a_picture_is_predicted_from_the_pixels_that_training_reads():
    colours = np.random.default_rng(0).integers(0, 256, (8, 12, 3), np.uint8)
    picture = Image.fromarray(colours)
    trained_on = torch.from_numpy(GREY.pixels(picture)).permute(2, 0, 1).float() / 255
    assert torch.equal(GREY(picture), GREY(trained_on))


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
        (COLOUR, torch.full((3, 4, 6), torch.nan), ValueError, ("[0, 1]", "nan")),
        (COLOUR, torch.ones(3, 4, 6, dtype=torch.uint8), TypeError, ("floating-point", "uint8")),
        (COLOUR, np.ones((3, 4, 6)), TypeError, ("floating-point", "ndarray")),
    ],
)
def test_preprocessing_refuses(refuses, preprocess, images, error, words):
    with refuses(error, *words):
        preprocess(images)
