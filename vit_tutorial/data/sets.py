"""Lesson 07: the data sets, one call each: train and test splits, class names, image size and normalisation.

:data:`DATASETS` has one entry per data set, with what a training run on it starts from; :func:`load` takes a name
from it, or a folder of your own images. A mirrored digit is not a digit, and a crop may cut off the target of a scene:
so each entry names an augmentation that leaves its labels true.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from vit_tutorial.data import augment, hub, scenes
from vit_tutorial.data.augment import Augmentation, Change, ImageChange
from vit_tutorial.data.downloads import cifar10_images
from vit_tutorial.data.folders import image_folder
from vit_tutorial.data.images import Data, Images, channel_statistics
from vit_tutorial.data.preprocessing import Preprocessing
from vit_tutorial.options.recipe import FOLDER_RECIPE, RECIPES, Recipe
from vit_tutorial.patches import Size, as_pair
from vit_tutorial.vit import ViTConfig


@dataclass(frozen=True)
class DatasetSpec:
    """All that the package knows about a data set before it reads an image.

    Args:
        model: what a run starts from. Image size and classes of a folder follow from its images.
        recipe: how a run trains; its ``augment`` is the data set's own augmentation.
        mean: of each channel over the training images, in [0, 1]; None: measured.
        std: standard deviation, likewise.
    """

    model: ViTConfig
    recipe: Recipe
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None


def from_spec(name: str, classes: tuple[str, ...], train: Images, test: Images) -> Data:
    """The data set of these images, with what its entry in :data:`DATASETS` says of it."""
    spec, (_, C, H, W) = DATASETS[name], train.images.shape
    mean, std = (spec.mean, spec.std) if spec.mean and spec.std else channel_statistics(train)
    return Data(
        name=name,
        train=train,
        test=test,
        classes=classes,
        image_size=(H, W),
        in_channels=C,
        mean=mean,
        std=std,
        augment=str(spec.recipe.augment),
    )


def load(
    name: str,
    root: str | Path = "data",
    image_size: Size | None = None,
    test_fraction: float | None = None,
    *,
    preprocess: Preprocessing | None = None,
) -> Data:
    """A data set by its name, for command lines.

    Args:
        name: a name in :data:`DATASETS`, the path of a folder of images (see :func:`image_folder`) or of shards, or
            ``hf://owner/name`` (see :func:`vit_tutorial.data.hub.from_disk`).
        root: the folder that downloads go to.
        image_size: of a folder's images, H = W or (H, W), in pixels; 64 if not given. The others have their own.
        test_fraction: of a folder of classes without splits (see :func:`image_folder`).
        preprocess: of the model to be fine-tuned, whose size, mean and standard deviation the data then have.

    Raises:
        ValueError: neither a name nor a folder; a size or a test_fraction for a set that has its own; images of another
            size or with other channels than those of ``preprocess``.
        OSError: a data set that is not on disk and can't be downloaded.
    """
    if image_size is not None and preprocess and as_pair(image_size, "image_size") != preprocess.image_size:
        raise ValueError(
            f"the model takes images of {preprocess.image_size}, got image_size={image_size!r}: leave image_size out"
        )
    if name in DATASETS:
        _refuse_test_fraction(name, test_fraction)
        return _of_size(LOADERS[name](Path(root)), image_size, preprocess)
    size = FOLDER_SIZE if image_size is None else image_size  # without a model that says what it takes
    if hub.stays_on_disk(name):
        _refuse_test_fraction(name, test_fraction)
        return hub.from_disk(name, size, preprocess)
    if name and Path(name).is_dir():
        return image_folder(name, None if preprocess else size, test_fraction, preprocess=preprocess)
    known = ", ".join(DATASETS)
    raise ValueError(
        f"{name!r} is neither a data set nor a folder: use {known}, a folder's path or {hub.HUB}owner/name"
    )


def _refuse_test_fraction(name: str, test_fraction: float | None) -> None:
    if test_fraction is not None:
        raise ValueError(f"{name} has a test split of its own: test_fraction={test_fraction} is for a folder of images")


def _of_size(data: Data, image_size: Size | None, preprocess: Preprocessing | None) -> Data:
    """The data set, if its images are of the size that is asked for; normalised as the model to be fine-tuned takes."""
    if image_size is not None and as_pair(image_size, "image_size") != data.image_size:
        raise ValueError(f"{data.name} has images of {data.image_size} (height, width), got image_size={image_size!r}")
    if preprocess is None:
        return data
    ours, theirs = (data.in_channels, *data.image_size), (len(preprocess.mean), *preprocess.image_size)
    if ours != theirs:
        raise ValueError(f"{data.name} has images of {ours} (channels, height, width), and the model takes {theirs}")
    return replace(data, mean=preprocess.mean, std=preprocess.std, preprocess=preprocess)


def spec_of(name: str) -> DatasetSpec:
    """The entry of a data set, or that of a folder of images for every other name."""
    return DATASETS.get(name, FOLDER)


def digits() -> Data:
    """1,797 handwritten digits, 8x8, grey from 0 to 16: real, tiny, and part of the package.

    The UCI optical digits' test set (E. Alpaydin and C. Kaynak, CC BY 4.0), as scikit-learn's ``load_digits`` has it. A
    fixed split, stratified by class: 1,437 to train, 360 to test. The 13 writers appear in both.
    """
    with np.load(Path(__file__).parent / "digits.npz", allow_pickle=False) as file:
        images, labels = torch.from_numpy(file["images"])[:, None], torch.from_numpy(file["labels"]).long()
        tested = torch.zeros(len(labels), dtype=torch.bool)
        tested[torch.from_numpy(file["test"]).long()] = True
    splits = (Images(images[rows], labels[rows], white=16) for rows in (~tested, tested))
    return from_spec("digits", tuple("0123456789"), *splits)


def shapes(seed: int = 0, train: int = 20_000, test: int = 1000) -> Data:
    """Scenes drawn by code, 64x64 RGB, with the mask of what the label names: so an explanation can be scored.

    A scene holds one target, whose figure is the class (:data:`scenes.TARGETS`), and up to four distractors of other
    figures (:data:`scenes.DISTRACTORS`), on a dark, textured ground. Place, size and colour are random; targets lean by
    up to 30 degrees, distractors turn freely; none touches another or leaves the scene; each is at least 64 of 255
    levels lighter than the ground. Each class is as frequent as the next. ``train.masks`` and ``test.masks``,
    (N, 64, 64) bool, are True on the target's own pixels (not in a ring's hole).

    Args:
        seed: each seed gives other scenes, the same ones on every machine.
        train: how many scenes to train on.
        test: how many to test on; the splits don't depend on each other's size.

    Raises:
        ValueError: a negative seed, or a split without a scene.
    """
    if seed < 0 or min(train, test) < 1:
        raise ValueError(f"shapes needs seed >= 0, train >= 1 and test >= 1, got {seed=}, {train=}, {test=}")
    splits = []
    for split, n in enumerate((train, test)):
        images, labels, masks = map(torch.from_numpy, scenes.draw((seed, split), n))
        splits.append(Images(images, labels, masks=masks))
    return from_spec("shapes", scenes.TARGETS, *splits)


def cifar10(root: str | Path = "data", download: bool = True) -> Data:
    """CIFAR-10 (Krizhevsky 2009) through torchvision: 60,000 photographs of ten classes, 32x32.

    Args:
        root: the folder that holds ``cifar-10-python.tar.gz`` and what it unpacks to.
        download: fetch what is missing (170 MB), with a progress bar, checked by MD5. To continue a download that
            broke off, call again.

    Raises:
        OSError: not found, and the download failed: one line that says which file to put where.
    """
    return from_spec("cifar10", *cifar10_images(Path(root), download))


def augmentation(what: str | Augmentation | ImageChange, data: Data) -> Augmentation:
    """What happens to the training images of a data set.

    Args:
        what: "none", "default" (the data set's own), or parts joined by "+" (see :func:`augment.by_name`);
            an augmentation; a function of one image.
        data: the data set: its image size, its classes, its own augmentation.

    Raises:
        ValueError: an unknown part.
    """
    if isinstance(what, str):
        name = data.augment if what == "default" else what
        return augment.by_name(name, data.image_size, len(data.classes))
    if isinstance(what, Augmentation):
        return what
    if isinstance(what, Change):
        return Augmentation(repr(what), changes=(what,))
    # A name without an address, which would differ in the next process.
    return Augmentation(str(getattr(what, "__qualname__", type(what).__qualname__)), image_change=what)


# One entry per data set. The statistics of CIFAR-10 are the published ones: the 0.2023, 0.1994 and
# 0.2010 often seen for CIFAR-10 are means of each image's own standard deviation. Those of digits and shapes were
# measured.
DATASETS: dict[str, DatasetSpec] = {
    "digits": DatasetSpec(
        mean=(0.3054,),
        std=(0.3761,),
        model=ViTConfig(
            image_size=8, patch_size=4, in_channels=1, num_classes=10, dim=64, depth=4, num_heads=4, mlp_dim=128
        ),
        recipe=RECIPES["digits"],
    ),
    "shapes": DatasetSpec(
        mean=(0.2953, 0.2871, 0.2654),
        std=(0.1935, 0.1678, 0.1620),
        model=ViTConfig(image_size=64, patch_size=8, num_classes=8, dim=64, depth=4, num_heads=4, mlp_dim=128),
        recipe=RECIPES["shapes"],
    ),
    "cifar10": DatasetSpec(
        mean=(0.4914, 0.4822, 0.4465),
        std=(0.2470, 0.2435, 0.2616),
        model=ViTConfig(
            image_size=32, patch_size=4, num_classes=10, dim=192, depth=9, num_heads=6, mlp_dim=384, drop_path=0.1
        ),
        recipe=RECIPES["cifar10"],
    ),
}
LOADERS: dict[str, Callable[[Path], Data]] = {  # the folder that downloads go to -> the data
    "digits": lambda root: digits(),
    "shapes": lambda root: shapes(),
    "cifar10": cifar10,
}
# Your own images: image size and classes are theirs, and their mean and standard deviation are measured.
FOLDER_SIZE = 64  # pixels, if no other size is given
FOLDER = DatasetSpec(
    model=ViTConfig(image_size=FOLDER_SIZE, patch_size=8, dim=192, depth=6, num_heads=3, mlp_dim=384),
    recipe=FOLDER_RECIPE,
)
