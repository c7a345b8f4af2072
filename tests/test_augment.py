"""Augmentation: a batch at once equals torchvision image by image; shares, shapes, mixing; torch's chance alone."""

import random
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F
from torch.testing import assert_close
from torchvision.transforms.v2 import Compose
from torchvision.transforms.v2 import functional as V

from vit_tutorial.data import augment
from vit_tutorial.data.augment import Affine, Crop, Flip
from vit_tutorial.options.recipe import STRONG

H, W, K = 16, 24, 4
by_name = partial(augment.by_name, image_size=(H, W), num_classes=K)


def pictures(n, channels=3, size=(H, W)):
    return torch.rand(n, channels, *size)


# --- a whole batch -------------------------------------------------------------------------------------------------

shapes = st.tuples(*(st.integers(1, high) for high in (5, 4, 9, 9)))


@given(shapes, st.integers(0, 3), st.integers(0, 3))
def test_crop_of_a_batch_equals_torchvision_image_by_image(shape, rows, columns):
    images, crop = torch.rand(shape), Crop((rows, columns))
    drawn = crop.draw(len(images))
    for image, (top, left), ours in zip(images, drawn.tolist(), crop.change(images, drawn), strict=True):
        padded = V.pad(image, [columns, rows])
        assert torch.equal(ours, V.crop(padded, top, left, *shape[2:]))


@given(shapes)
def test_flip_of_a_batch_equals_torchvision_image_by_image(shape):
    images, flip = torch.rand(shape), Flip()
    drawn = flip.draw(len(images))
    for image, mirrored, ours in zip(images, drawn.tolist(), flip.change(images, drawn), strict=True):
        assert torch.equal(ours, V.horizontal_flip(image) if mirrored else image)


@given(shapes)
def test_affine_of_a_batch_is_that_of_each_image(shape):
    images, affine = torch.rand(shape), Affine()
    drawn = affine.draw(len(images))
    for image, theta, ours in zip(images, drawn, affine.change(images, drawn), strict=True):
        grid = F.affine_grid(theta[None], [1, *image.shape], align_corners=False)
        assert_close(ours, F.grid_sample(image[None], grid, align_corners=False)[0], rtol=0, atol=1e-6)


@pytest.mark.parametrize("change", [Crop((2, 3)), Flip(), Affine()], ids=repr)
def test_called_with_images_alone_a_change_draws_from_torch_s_generator(change):
    images = pictures(6)
    torch.manual_seed(1)
    ours = change(images)
    torch.manual_seed(1)
    assert torch.equal(ours, change.change(images, change.draw(6)))
    torch.manual_seed(2)
    one = change(images[0])
    torch.manual_seed(2)
    assert torch.equal(one, change(images[:1])[0])
    assert not torch.equal(ours, change(images))


def test_crop_draws_every_shift_equally_often():
    drawn = Crop((2, 3)).draw(35_000)
    assert drawn.shape == (35_000, 2)
    counts = (drawn[:, 0] * 7 + drawn[:, 1]).bincount(minlength=35)
    assert len(counts) == 35
    assert ((counts - 1000).abs() < 160).all()  # five standard deviations


def test_affine():
    image = pictures(1, 2, (8, 6))[0]
    assert_close(Affine(0.0)(image), image, rtol=0, atol=1e-5)
    moved = torch.stack([Affine()(image) for _ in range(200)])
    assert moved.shape == (200, 2, 8, 6)
    assert (moved[0] - moved[1]).abs().max() > 0.01
    # A bright dot in the middle goes as far as it should: 0.1 of half an image is 4 pixels of 80 rows.
    dots = torch.zeros(400, 1, 80, 80)
    dots[:, :, 39:41, 39:41] = 1
    places = [(torch.nonzero(dot[0]).float().mean(dim=0) - 39.5) / 40 for dot in Affine()(dots)]
    assert_close(torch.stack(places).std(dim=0), torch.tensor([0.1, 0.1]), rtol=0.15, atol=0)
    assert repr(Affine()) == "Affine(strength=0.1)"
    assert Affine() != Affine(0.2)


# --- by name -------------------------------------------------------------------------------------------------------


def test_parts_by_name():
    whole = by_name("cutmix+randaugment+flip+crop+affine")
    assert whole.changes == (Affine(), Crop((2, 3)), Flip())  # an eighth of 16 and of 24; always in this order
    assert type(whole.image_change).__name__ == "RandAugment"
    assert type(whole.mix.transforms[0]).__name__ == "CutMix"
    assert by_name("crop").changes == (Crop((2, 3)),)
    assert (by_name("crop").image_change, by_name("crop").mix) == (None, None)
    assert augment.by_name("crop", (28, 30), 2).changes == (Crop((4, 4)),)


@pytest.mark.parametrize("channels", [1, 3])
def test_randaugment_keeps_shape_and_range(channels):
    image, change = pictures(1, channels)[0], by_name("randaugment").image_change
    outs = [change(image) for _ in range(60)]
    assert all(out.shape == image.shape and out.dtype == torch.float32 for out in outs)
    assert all(0 <= out.min() and out.max() <= 1 for out in outs)
    assert sum(not torch.equal(out, image) for out in outs) > 30


@pytest.mark.parametrize("name", ["mixup", "cutmix", "mixup+cutmix"])
def test_mixing_mixes_labels_as_it_mixes_pixels(name):
    mix = by_name(name)
    assert (mix.changes, mix.image_change) == ((), None)
    labels, seen = torch.tensor([0, 1, 2, 3]), set()
    # Every image has its own constant colour, so that its pixels tell what went into it.
    images = torch.tensor([0.1, 0.2, 0.4, 0.8]).view(4, 1, 1, 1).expand(4, 3, H, W).clone()
    for _ in range(40):
        mixed, soft = mix.mix(images, labels)
        assert soft.shape == (4, 4)
        assert mixed.shape == images.shape
        assert_close(soft.sum(1), torch.ones(4))
        assert_close(mixed.mean((1, 2, 3)), soft @ images[:, 0, 0, 0], rtol=0, atol=1e-5)
        pasted = all(len(image.unique()) <= 2 and torch.isin(image, images).all() for image in mixed)
        seen.add("cutmix" if pasted else "mixup")
    assert seen == set(name.split("+"))


def test_torch_s_seed_settles_everything():
    """So a training loop that restores torch's generator repeats itself, and nobody else's generator is touched."""
    whole, images, labels = by_name(f"affine+{STRONG}"), pictures(8), torch.arange(8) % K
    one_by_one = Compose([*whole.changes, whole.image_change])
    python, numpy, found = random.getstate(), np.random.get_state()[1].tolist(), []
    for _ in range(2):
        torch.manual_seed(5)
        mixed = [whole.mix(torch.stack([one_by_one(x) for x in images]), labels) for _ in range(5)]
        found.append(torch.cat([torch.cat([x.flatten(), y.flatten()]) for x, y in mixed]))
    assert torch.equal(*found)
    assert random.getstate() == python
    assert np.random.get_state()[1].tolist() == numpy
