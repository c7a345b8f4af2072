"""Data sets: what is promised of each, their entries in the table, and from pixels to a model's input and back."""

import dataclasses
import hashlib

import numpy as np
import pytest
import torch

from vit_tutorial import count_parameters, data, load
from vit_tutorial.data import augment
from vit_tutorial.patches import as_pair

# --- what every data set gives -------------------------------------------------------------------------------------


def sha(*tensors):
    return hashlib.sha256(b"".join(tensor.numpy().tobytes() for tensor in tensors)).hexdigest()


@pytest.fixture(scope="module")
def shapes():
    return data.shapes(train=1000)


@pytest.fixture(scope="module")
def digits():
    return data.digits()


@pytest.mark.parametrize(
    ("name", "sizes", "image"), [("digits", (1437, 360), (1, 8, 8)), ("shapes", (1000, 1000), (3, 64, 64))]
)
def test_the_contract(request, name, sizes, image):
    d = request.getfixturevalue(name)
    assert d.name == name
    assert (len(d.train), len(d.test)) == sizes
    assert (d.in_channels, *d.image_size) == image
    assert len(d.mean) == len(d.std) == d.in_channels
    for split in (d.train, d.test):
        x, y = split[3]
        assert x.shape == image
        assert x.dtype == torch.float32
        assert type(y) is int
        assert torch.equal(x, split.batch(slice(3, 4))[0][0])
        images, labels = split.batch(slice(0, 500))
        assert images.min() >= 0
        assert 0.98 < images.max() <= 1
        assert torch.equal(labels, split.labels[:500])
        assert set(split.labels.tolist()) == set(range(len(d.classes)))
        with pytest.raises(IndexError):  # what ends a for loop over the split
            split[len(split)]


@pytest.mark.parametrize("name", ["digits", pytest.param("shapes", marks=pytest.mark.slow)])
def test_mean_and_standard_deviation_are_those_of_the_training_images(name):
    d = data.load(name)
    levels = torch.arange(d.train.white + 1).double() / d.train.white
    for channel, (mean, std) in enumerate(zip(d.mean, d.std, strict=True)):
        often = torch.bincount(d.train.images[:, channel].flatten(), minlength=len(levels)).double()
        share = often / often.sum()
        assert abs(mean - share @ levels) < 6e-5
        assert abs(std - (share @ (levels - share @ levels) ** 2).sqrt()) < 6e-5


def test_digits_are_scikit_learn_s_split_once_and_for_all(digits):
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    images, labels = load_digits(return_X_y=True)
    rows = train_test_split(np.arange(1797), test_size=360, stratify=labels, random_state=0)
    for split, its in zip((digits.train, digits.test), rows, strict=True):
        its = np.sort(its)
        assert np.array_equal(split.batch()[0].flatten(1).numpy(), (images[its] / 16).astype(np.float32))
        assert np.array_equal(split.labels.numpy(), labels[its])
    # Stratified: each class has a fifth, to within one image.
    share = digits.test.labels.bincount() - torch.from_numpy(np.bincount(labels)) * 360 / 1797
    assert share.abs().max() < 1
    assert (
        sha(digits.test.images, digits.test.labels)
        == "0b158ab078d0e70779b9decc98a20f2e58c7c21337cf7655cb74843562f00e31"
    )


def test_a_share_of_each_class_is_held_out_of_the_training_images(digits, shapes):
    held = data.hold_out(digits, 0.1)
    total = digits.train.labels.bincount()
    assert held.test.labels.bincount().tolist() == [round(0.1 * n) for n in total.tolist()]
    assert (held.train.labels.bincount() + held.test.labels.bincount()).tolist() == total.tolist()
    rows = {tuple(image.flatten().tolist()) for image in held.train.images}
    assert not any(tuple(image.flatten().tolist()) in rows for image in held.test.images)
    assert (held.mean, held.name, held.train.white) == (digits.mean, digits.name, 16)
    assert torch.equal(data.hold_out(digits, 0.1).test.images, held.test.images)
    assert not torch.equal(data.hold_out(digits, 0.1, seed=1).test.images, held.test.images)
    masked = data.hold_out(shapes, 0.25).test
    assert masked.masks.shape == (len(masked), 64, 64)


@pytest.mark.parametrize("share", [0, 1, -0.1, 1e-9, 1 - 1e-9])
def test_a_share_that_leaves_nothing_on_one_side_is_refused(digits, share):
    with pytest.raises(ValueError, match=r"fraction must be|to hold out"):
        data.hold_out(digits, share)


def test_images_in_memory_are_bytes_with_a_label_each(digits, refuses):
    pixels, labels = np.full((4, 1, 8, 8), 255, np.uint8), np.arange(4)
    images, found = data.Images(pixels, labels.astype(np.int32)).batch()
    assert images.min() == 1
    assert found.dtype == torch.int64
    with refuses(ValueError, "of uint8", "float32", "255 * images"):
        data.Images(images, labels)
    with refuses(ValueError, "(N, C, H, W)", "(1, 8, 8)"):
        data.Images(pixels[0], labels[:1])
    with refuses(ValueError, "whole numbers", "float64"):
        data.Images(pixels, labels + 0.5)
    with refuses(ValueError, "4 images", "(3,)", "one label each"):
        data.Images(pixels, labels[:3])
    for wrong, word in ((labels + 7, "from 7 to 10"), (labels - 1, "from -1 to 2")):
        with refuses(ValueError, "digits", word, "10 classes are counted from 0"):
            dataclasses.replace(digits, train=data.Images(pixels, wrong))


# --- load ----------------------------------------------------------------------------------------------------------


def test_load_refuses(refuses, tmp_path, monkeypatch):
    (tmp_path / "train-0.tar").touch()
    monkeypatch.chdir(tmp_path)
    with refuses(ValueError, "'' is neither a data set nor a folder"):
        data.load("")
    with refuses(ValueError, "'mnist'", "digits, shapes, cifar10, a folder", "folder"):
        data.load("mnist")
    with refuses(ValueError, "digits", "(8, 8)", "image_size=32"):
        data.load("digits", image_size=32)
    with refuses(ValueError, "digits", "test split of its own", "test_fraction=0.2"):
        data.load("digits", test_fraction=0.2)
    with refuses(ValueError, "the model takes images of (32, 32)", "image_size=64"):
        data.load(str(tmp_path), image_size=64, preprocess=load("photographs").preprocess)


# --- one entry per data set ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["digits", "shapes"])
def test_the_entry_says_what_the_images_are(request, name):
    d, spec = request.getfixturevalue(name), data.DATASETS[name]
    config = spec.model
    assert as_pair(config.image_size, "image_size") == d.image_size
    assert (config.in_channels, config.num_classes) == (d.in_channels, len(d.classes))
    assert (d.mean, d.std, d.augment) == (spec.mean, spec.std, spec.recipe.augment)


@pytest.mark.parametrize("name", [*data.DATASETS, "my/pictures"])
def test_a_run_on_every_data_set_can_begin(name):
    spec = data.spec_of(name)
    assert count_parameters(spec.model) > 100_000
    assert spec.recipe.warmup_epochs <= spec.recipe.epochs / 2
    size = as_pair(spec.model.image_size, "image_size")
    assert augment.by_name(spec.recipe.augment, size, spec.model.num_classes).name != "none"


def invert(image):
    return 1 - image


def test_what_becomes_of_the_training_images(digits):
    def changes(what):
        found = data.augmentation(what, digits)
        return found.name, found.changes, found.image_change

    assert changes("default") == ("affine", (augment.Affine(),), None)
    assert changes("none") == ("none", (), None)
    assert changes("crop") == ("crop", (augment.Crop((1, 1)),), None)
    assert changes(augment.Affine(0.3)) == ("Affine(strength=0.3)", (augment.Affine(0.3),), None)
    assert changes(invert) == ("invert", (), invert)  # any function will do
    ready = augment.Augmentation("mine", image_change=invert)
    assert data.augmentation(ready, digits) is ready
    with pytest.raises(ValueError, match="nonsense"):
        data.augmentation("nonsense", digits)


# --- from pixels to a model's input and back ------------------------------------------------------------------------


def test_normalise_and_back():
    images = torch.rand(2, 3, 4, 5)
    preprocess = data.Preprocessing((4, 5), (0.1, 0.2, 0.3), (1.0, 2.0, 4.0))
    out = data.normalise(images, preprocess)
    for channel in range(3):
        expected = (images[:, channel] - preprocess.mean[channel]) / preprocess.std[channel]
        torch.testing.assert_close(out[:, channel], expected)
    torch.testing.assert_close(data.denormalise(out, preprocess), images)
    assert torch.equal(data.denormalise(torch.full((1, 3, 4, 5), 9.0), preprocess), torch.ones(1, 3, 4, 5))
    assert data.denormalise(torch.full((1, 3, 4, 5), -9.0), preprocess).max() == 0


@pytest.mark.parametrize("change", [data.normalise, data.denormalise])
def test_bytes_are_not_normalised(digits, refuses, change):
    with refuses(TypeError, "floating-point", "uint8", "images.float() / 255"):
        change(digits.train.images[:1], digits)
    with refuses(TypeError, "floating-point", "ndarray"):
        change(digits.train.images[:1].numpy(), digits)
