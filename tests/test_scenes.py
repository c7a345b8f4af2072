"""The scenes: the same bytes everywhere, the target's mask on the target, and nothing that gives the class away."""

import hashlib

import numpy as np
import pytest
import torch

from vit_tutorial import data
from vit_tutorial.data import scenes

N = 800


@pytest.fixture(scope="module")
def drawn():
    return scenes.draw((7, 0), N)


def luma(images):
    return np.tensordot(images.astype(float), scenes.LUMA / 1000, (1, 0))  # (n, 64, 64)


def test_the_same_bytes_on_every_machine():
    images, labels, masks = scenes.draw((0, 0), 100)
    found = [hashlib.sha256(array.tobytes()).hexdigest() for array in (images, labels.astype("<i8"), masks)]
    assert found == [
        "ea9a502b69f7fd83c494cceafbbfc053fd177929c264d9958ba1d0574d9fd50f",
        "d9e5fd6de94c790bc5bddccb562c4d13860f5962cca287a8d23aa53b70facf37",
        "2fea70094b1bff9171e15b92eed816cadeefc5206ab53428ac9852cb5a7fe449",
    ]


def test_shapes_are_these_scenes_and_seeds_differ():
    d = data.shapes(seed=3, train=40, test=24)
    for split, which in ((d.train, 0), (d.test, 1)):
        images, labels, masks = scenes.draw((3, which), len(split))
        assert np.array_equal(split.images, images)
        assert np.array_equal(split.labels, labels)
        assert np.array_equal(split.masks, masks)
        assert (split.images.dtype, split.labels.dtype, split.masks.dtype) == (torch.uint8, torch.int64, torch.bool)
    assert torch.equal(data.shapes(seed=3, train=8, test=24).test.images, d.test.images)
    assert torch.equal(data.shapes(seed=3, train=40, test=8).train.images, d.train.images)
    pictures = [*d.train.images, *d.test.images, *data.shapes(seed=4, train=40, test=24).train.images]
    assert len({picture.numpy().tobytes() for picture in pictures}) == len(pictures)


@pytest.mark.parametrize("arguments", [{"seed": -1}, {"train": 0}, {"test": 0}])
def test_refuses(refuses, arguments):
    ((name, value),) = arguments.items()
    with refuses(ValueError, f"{name}={value}", "seed >= 0", "train >= 1"):
        data.shapes(**{"train": 1, "test": 1, **arguments})


def test_classes_are_equally_frequent_and_shuffled(drawn):
    labels = drawn[1]
    assert (np.bincount(labels) == N // 8).all()
    assert 0.05 < (labels[1:] == labels[:-1]).mean() < 0.2  # 1 in 8 by chance


def test_the_mask_lies_on_the_target(drawn):
    """One colour inside it, another just outside; and it is one figure of the right area."""
    images, labels, masks = drawn
    bright = luma(images)
    padded = np.pad(masks, ((0, 0), (2, 2), (2, 2)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (5, 5), (1, 2))  # what is within two pixels
    inner, outer = windows.all((-2, -1)), ~windows.any((-2, -1))
    ring = windows.any((-2, -1)) & ~masks
    for i in range(N):
        core = bright[i][inner[i]] if inner[i].any() else bright[i][masks[i]]
        assert core.std() < (4 if inner[i].any() else 30)  # grain alone
        assert outer[i].any()
        around = np.median(bright[i][ring[i]])
        assert core.mean() - around > 32  # half of the 64, as the ring holds the blurred edge too
    for axis in (1, 2):  # one figure's width: none is cut off at an edge to come back at the other
        hit = masks.any(axis)
        assert (hit[:, ::-1].argmax(1) + hit.argmax(1) >= 64 - scenes.STAMP).all()
    area = np.array([masks[labels == k].sum((1, 2)).mean() for k in range(8)])
    assert area.argmax() == scenes.TARGETS.index("disc")
    assert area.argmin() == scenes.TARGETS.index("star")


def test_nothing_but_the_figure_gives_the_class_away(drawn):
    """Place, brightness and colour are the same for all classes, and the target isn't the brightest thing."""
    images, labels, masks = drawn
    mean = np.stack([(images[:, c] * masks).sum((1, 2)) / masks.sum((1, 2)) for c in range(3)], 1)  # (N, 3)
    place = np.stack([(masks * np.arange(64)[:, None]).sum((1, 2)), (masks * np.arange(64)).sum((1, 2))], 1)
    place = place / masks.sum((1, 2))[:, None]
    for values in (mean, place, images.mean((2, 3))):
        spread = values.std(0) / (N / 8) ** 0.5  # of a class's mean
        for k in range(8):
            assert (abs(values[labels == k].mean(0) - values.mean(0)) < 4 * spread).all()
    assert abs(place.mean(0) - 31.5).max() < 2  # no nearer to one side
    assert masks[:, 32, 32].mean() < 0.2  # so "always the middle" scores little


def test_coloured_scenes_are_those_of_draw_with_the_colour_under_the_mask():
    images, labels, masks = scenes.draw((7, 0), N)
    kept, figures, colours = scenes.coloured((7, 0), N)
    assert 0.85 * N < len(kept) < 0.95 * N
    assert {len(kept), len(figures), len(colours)} == {len(kept)}
    places = {image.tobytes(): place for place, image in enumerate(images)}
    for image, figure, colour in zip(kept, figures, colours, strict=True):
        place = places[image.tobytes()]
        assert labels[place] == figure
        paint = scenes.PAINTS[list(scenes.COLOURS.values())[colour]]
        assert abs(np.median(image[:, masks[place]], axis=1) - paint).max() <= 19  # 15 of the paint, 4 of the grain
    assert (np.bincount(colours) > 0.15 * len(colours)).all()
    assert len(np.bincount(colours)) == len(scenes.COLOURS)
