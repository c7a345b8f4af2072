"""The photograph: at its own resolution a crop holds the file's very pixels, so no tolerance is needed."""

import numpy as np
import pytest
import torch
from matplotlib import cbook
from PIL import Image

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


@pytest.mark.parametrize(
    ("size", "rows", "columns"),
    [((600, 512), (0, 600), (0, 512)), (512, (0, 512), (0, 512)), ((600, 256), (0, 600), (128, 384))],
)
def test_crops_from_the_top_and_from_the_middle(original, size, rows, columns):
    assert torch.equal(photograph(size), original[:, slice(*rows), slice(*columns)])


def test_a_smaller_one_shows_the_same(original):
    means = torch.nn.functional.avg_pool2d(original[None, :, :512, :512], 64)[0]  # 8 x 8 boxes
    torch.testing.assert_close(photograph(8), means, rtol=0, atol=0.15)
    torch.testing.assert_close(photograph(8).mean(), means.mean(), rtol=0, atol=0.01)


@pytest.mark.parametrize(("size", "error"), [("224", TypeError), ((1, 2, 3), TypeError), (0, ValueError)])
def test_refuses(refuses, size, error):
    with refuses(error, "size", repr(size)):
        photograph(size)
