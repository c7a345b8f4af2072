"""The order of the images, and chance by seed, epoch and image."""

from types import SimpleNamespace

import pytest
import torch

from vit_tutorial.data import Images
from vit_tutorial.data.augment import Affine, Augmentation, Crop, Flip
from vit_tutorial.options.recipe import Recipe
from vit_tutorial.train import batches


@pytest.fixture(scope="module")
def images():
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (26, 2, 6, 8), generator=generator, dtype=torch.uint8)
    return Images(pixels, torch.arange(26) % 3)


def noise(image):
    return image + 0.1 * torch.rand_like(image)


EVERYTHING = Augmentation("everything", changes=(Affine(), Crop((1, 2)), Flip()), image_change=noise)


def process(rank=0, processes=1):
    return SimpleNamespace(num_processes=processes, process_index=rank, device=torch.device("cpu"))


# --- the order -----------------------------------------------------------------------------------------------------


def epoch(number, seed=0, rank=0, processes=1):
    order = batches.Order(26, 8, seed, rank, processes)
    order.epoch = number
    assert len(order) == len(list(order)) == 3
    return list(order)


def test_the_order_is_a_function_of_seed_and_epoch():
    assert epoch(1) == epoch(1)
    assert {number for number, _ in epoch(4)} == {4}
    indices = [[index for _, rows in epoch(number) for index in rows] for number in range(40)]
    assert all(len(set(order)) == 24 for order in indices)
    assert len({tuple(order) for order in indices}) == 40
    assert {index for order in indices for index in order} == set(range(26))  # nothing is left out for good
    assert epoch(1) != epoch(1, seed=1)


def test_processes_share_every_batch_equally():
    shares = [epoch(2, rank=rank, processes=4) for rank in range(4)]
    assert all(len(rows) == 2 for share in shares for _, rows in share)
    for (_, whole), *parts in zip(epoch(2), *shares, strict=True):
        assert sorted(whole) == sorted(index for _, rows in parts for index in rows)


def test_batches_that_can_t_be_made(refuses):
    with refuses(ValueError, "8", "3 processes"):
        batches.Order(26, 8, 0, rank=0, processes=3)
    with refuses(ValueError, "27", "26 training images"):
        batches.Order(26, 27, 0)


# --- chance --------------------------------------------------------------------------------------------------------


def seen(images, number, *, augmentation=EVERYTHING, processes=1, batch_size=8, seed=0):
    """{image: what it looks like in one epoch}, of all processes."""
    recipe, found = Recipe(epochs=9, batch_size=batch_size, seed=seed), {}
    for rank in range(processes):
        ours = batches.Batches(images, recipe, augmentation, process(rank, processes))
        assert len(ours) == 26 // batch_size
        for (_, rows), (pictures, labels) in zip(epoch_keys(ours, number), ours.of_epoch(number), strict=True):
            assert labels.tolist() == images.labels[rows].tolist()
            found |= dict(zip(rows, pictures, strict=True))
    return found


def epoch_keys(ours, number):
    ours.order.epoch = number
    return list(ours.order)


def same(one, other):
    """Of the images that are in both, whether each looks the same."""
    return [torch.equal(one[index], other[index]) for index in one.keys() & other.keys()]


def test_augmentation_depends_on_seed_epoch_and_image_alone(images):
    first = seen(images, 1)
    torch.rand(7)
    assert all(same(first, seen(images, 1)))
    for changes in ({"processes": 2}, {"processes": 4}, {"batch_size": 2}, {"batch_size": 26}):
        assert len(same(first, seen(images, 1, **changes))) >= 22
        assert all(same(first, seen(images, 1, **changes)))
    assert not any(same(first, seen(images, 2)))
    assert not any(same(first, seen(images, 1, seed=1)))


@pytest.mark.parametrize("change", [*EVERYTHING.changes, noise], ids=["affine", "crop", "flip", "noise"])
def test_each_change_has_its_own_chance_for_each_image(change):
    """The same picture 26 times: what differs is chance."""
    picture = torch.randint(0, 256, (1, 2, 6, 8), dtype=torch.uint8)
    copies = Images(picture.repeat(26, 1, 1, 1), torch.zeros(26, dtype=torch.int64))
    one = Augmentation("one", image_change=noise) if change is noise else Augmentation("one", changes=(change,))
    epochs = [seen(copies, number, augmentation=one, batch_size=26) for number in range(2)]
    kinds = [{tuple(image.flatten().tolist()) for image in found.values()} for found in epochs]
    assert min(map(len, kinds)) >= (2 if change == Flip() else 8)
    assert not all(same(*epochs))
