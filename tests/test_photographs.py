"""The photographs of the package: at its own resolution a crop holds the file's very pixels, without a tolerance."""

from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib import cbook
from PIL import Image

from vit_tutorial import data
from vit_tutorial.data import photograph


@pytest.fixture(scope="module")
def original():
    with Image.open(cbook.get_sample_data("grace_hopper.jpg", asfileobj=False)) as picture:
        pixels = np.array(picture.convert("RGB"))
    assert pixels.shape == (600, 512, 3)
    return torch.from_numpy(pixels).permute(2, 0, 1) / 255


@pytest.mark.parametrize("size", [224, (224, 160), (32, 96)])
def test_shape_range_and_dtype(size):
    image = photograph(size)
    height, width = (size, size) if isinstance(size, int) else size
    assert image.shape == (3, height, width)
    assert image.dtype == torch.float32
    assert 0.0 <= image.min() < 0.1
    assert 0.9 < image.max() <= 1.0
    assert torch.equal(image, photograph(size))


def test_the_default_is_224_pixels():
    assert torch.equal(photograph(), photograph((224, 224)))


def test_the_photographs_of_the_package_have_a_file_an_author_and_a_licence():
    names = ("hopper", "cat", "brick", "grass", "gravel")
    shipped = {file.stem: file for file in (Path(data.__file__).parent / "pictures").iterdir()}
    assert sorted(shipped) == sorted(names[1:])
    assert sum(file.stat().st_size for file in shipped.values()) < 250_000
    credits = (Path(__file__).parent.parent / "assets/CREDITS.md").read_text("utf-8")
    for name in names:
        assert photograph(32, name).shape == (3, 32, 32)
        if name in shipped:
            assert data.photograph_file(name) == shipped[name]
            (row,) = [line for line in credits.splitlines() if f"`vit_tutorial/data/pictures/{name}.jpg`" in line]
            assert row.count("|") == 5
            assert row.endswith("| CC0 |")
    assert not torch.equal(photograph(32, "grass"), photograph(32, "gravel"))
    assert torch.equal(photograph(32), photograph(32, "hopper"))


def test_a_photograph_that_is_not_there_is_refused_with_those_that_are(refuses):
    with refuses(ValueError, "'dog'", "hopper, brick, cat, grass, gravel"):
        photograph(32, "dog")


def test_other_photographs_are_cropped_in_the_middle():
    with Image.open(data.photograph_file("cat")) as picture:
        pixels = torch.from_numpy(np.array(picture)).permute(2, 0, 1) / 255  # (3, 300, 451)
    assert torch.equal(photograph((300, 151), "cat"), pixels[:, :, 150:301])


@pytest.mark.parametrize(
    ("size", "rows", "columns"),
    [((600, 512), (0, 600), (0, 512)), (512, (0, 512), (0, 512)), ((600, 256), (0, 600), (128, 384))],
)
def test_crops_from_the_top_and_from_the_middle(original, size, rows, columns):
    assert torch.equal(photograph(size), original[:, slice(*rows), slice(*columns)])


@pytest.mark.parametrize(("size", "error"), [("224", TypeError), ((1, 2, 3), TypeError), (0, ValueError)])
def test_refuses(refuses, size, error):
    with refuses(error, "size", repr(size)):
        photograph(size)
