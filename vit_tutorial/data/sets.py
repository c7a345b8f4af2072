"""Lesson 07: the data sets, one call each: train and test splits, class names, image size and normalisation.

:data:`SETS` has one record a data set, with what a training run on it starts from; :func:`load` takes a name from it,
or a folder of your own pictures. A mirrored digit is no digit, and a crop may cut off the target of a scene: so each
record has the augmentation that keeps its labels true.
"""

from __future__ import annotations

import math
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from vit_tutorial.data import augment, scenes
from vit_tutorial.data.augment import Augmentation, Change, ImageChange
from vit_tutorial.data.preprocessing import crop_to, to_rgb
from vit_tutorial.data.recipe import Recipe, name_of
from vit_tutorial.patches import Size, as_pair
from vit_tutorial.vit import ViTConfig

if TYPE_CHECKING:
    pass

Split = Literal["train", "test"]


class Images(Dataset[tuple[Tensor, int]]):
    """Labelled images of one size, held in memory. An item is (image (C, H, W) float32 in [0, 1], label).

    Args:
        images: (N, C, H, W), uint8.
        labels: (N,), int64.
        white: the whole number that stands for 1.0: 255, or 16 for digits.
        masks: (N, H, W), bool, True on the pixels of what the label names; shapes have them, the others None.
    """

    def __init__(self, images: Tensor, labels: Tensor, *, white: int = 255, masks: Tensor | None = None) -> None:
        self.images, self.labels, self.white, self.masks = images, labels, white, masks

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.images[index].float() / self.white, int(self.labels[index])

    def batch(self, index: Tensor | slice = slice(None)) -> tuple[Tensor, Tensor]:
        """Many items at once, by default all: images (B, C, H, W) float32 in [0, 1], labels (B,) int64."""
        return self.images[index].float() / self.white, self.labels[index]

    def part(self, chosen: Tensor) -> Images:
        """The images where ``chosen``, (N,) bool, is True, in their order."""
        masks = None if self.masks is None else self.masks[chosen]
        return Images(self.images[chosen], self.labels[chosen], white=self.white, masks=masks)


@dataclass(frozen=True)
class Data:
    """A data set: its two splits, and what a model and its normalisation need to know, (x - mean) / std."""

    name: str
    train: Images
    test: Images
    classes: tuple[str, ...]
    image_size: tuple[int, int]  # (H, W)
    in_channels: int
    mean: tuple[float, ...]  # one a channel
    std: tuple[float, ...]
    augment: str = augment.ALL  # what "default" stands for in :func:`augmentation`
    test_files: tuple[str, ...] = ()  # of one folder of classes: those set aside for the test, as class/name


@dataclass(frozen=True)
class Record:
    """All that the package knows of a data set before it reads an image.

    Args:
        load: from the folder that downloads go to, to the data.
        model: what a run starts from. Of a folder of pictures, image size and classes follow from the pictures.
        recipe: the same for training; its ``augment`` is the data set's own augmentation.
        mean: of each channel over the training images, in [0, 1]; None: it is measured.
        std: the same for the standard deviation.
    """

    load: Callable[[Path], Data]
    model: ViTConfig
    recipe: Recipe
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None


def recorded(name: str, classes: tuple[str, ...], train: Images, test: Images) -> Data:
    """The data set of these images, with what its record in :data:`SETS` says of it."""
    record, (_, C, H, W) = SETS[name], train.images.shape
    mean, std = (record.mean, record.std) if record.mean and record.std else _statistics(train)
    return Data(name, train, test, classes, (H, W), C, mean, std, str(record.recipe.augment))


def _statistics(train: Images) -> tuple[tuple[float, ...], tuple[float, ...]]:
    means, stds = [], []
    for channel in train.images.unbind(1):  # (N, H, W)
        share = torch.bincount(channel.flatten(), minlength=256).double() / channel.numel()
        level = torch.arange(256, dtype=torch.float64) / train.white
        means.append(float(share @ level))
        # A channel that never changes has no spread to divide by.
        stds.append(max(float(share @ (level - means[-1]) ** 2) ** 0.5, 1 / train.white))
    return tuple(means), tuple(stds)


def load(name: str, root: str | Path = "data", image_size: Size | None = None, test_share: float | None = None) -> Data:
    """A data set by its name, for command lines.

    Args:
        name: one of :data:`SETS`, or the path of a folder of pictures (see :func:`image_folder`).
        root: the folder that downloads go to.
        image_size: of a folder's pictures, H = W or (H, W), in pixels; 64 if not given. The others have their own.
        test_share: of a folder of classes without splits (see :func:`image_folder`).

    Raises:
        ValueError: neither a name nor a folder; a size or a share for a set that has its own.
        OSError: a data set that isn't there and can't be downloaded.
    """
    if name not in SETS:
        if not Path(name).is_dir():
            raise ValueError(f"{name!r} is no data set and no folder: use one of {', '.join(SETS)}, or a folder's path")
        return image_folder(name, 64 if image_size is None else image_size, test_share)
    if test_share is not None:
        raise ValueError(f"{name} has a test split of its own: test_share={test_share} is for a folder of pictures")
    data = SETS[name].load(Path(root))
    if image_size is not None and as_pair(image_size, "image_size") != data.image_size:
        raise ValueError(f"{name} has images of {data.image_size} (height, width), got image_size={image_size!r}")
    return data


def record_of(name: str) -> Record:
    """The record of a data set, or that of a folder of pictures for every other name."""
    return SETS.get(name, FOLDER)


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
    return recorded("digits", tuple("0123456789"), *splits)


def shapes(seed: int = 0, train: int = 20_000, test: int = 1000) -> Data:
    """Scenes drawn by code, 64x64 RGB, with the mask of what the label names: so an explanation can be scored.

    A scene holds one target, whose figure is the class (:data:`scenes.TARGETS`), and up to four distractors of other
    figures (:data:`scenes.DISTRACTORS`), on a dark, textured ground. Place, size and colour are random; targets lean by
    up to 30 degrees, distractors turn freely; none touches another or leaves the scene; each is at least 64 of 255
    levels lighter than the ground. Each class is as frequent as the next. ``train.masks`` and ``test.masks``,
    (N, 64, 64) bool, are True on the target's own pixels (not in a ring's hole).

    Args:
        seed: other scenes for another seed, the same on every machine for the same one.
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
    return recorded("shapes", scenes.TARGETS, *splits)


def cifar10(root: str | Path = "data", download: bool = True) -> Data:
    """CIFAR-10 (Krizhevsky 2009) through torchvision: 60,000 photographs of ten classes, 32x32.

    Args:
        root: the folder that holds ``cifar-10-python.tar.gz`` and what it unpacks to.
        download: fetch what is missing (170 MB): with a progress bar, checked by MD5. A download that broke off is
            taken up by calling again.

    Raises:
        OSError: it isn't there and can't be downloaded: one line that says which file to put where.
    """
    from torchvision.datasets import CIFAR10

    train, test = _both_splits(CIFAR10, Path(root), Path(root), download, [CIFAR10.filename], CIFAR10.url)
    splits = (
        Images(torch.from_numpy(part.data).permute(0, 3, 1, 2).contiguous(), torch.tensor(part.targets))
        for part in (train, test)
    )
    return recorded("cifar10", tuple(train.classes), *splits)


CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def cifar10_pictures() -> Images:
    """200 of CIFAR-10's test images, 20 a class, that come with the package: enough to look at, not to measure with.

    They were chosen by chance, and come from JPEG copies of the originals. Their classes are :data:`CIFAR10_CLASSES`.

    Returns:
        (200, 3, 32, 32), class by class.
    """
    from PIL import Image

    with Image.open(Path(__file__).with_name("cifar10_pictures.png")) as sheet:
        pixels = torch.from_numpy(np.array(sheet))  # (10 * 32, 20 * 32, 3): a row a class
    pictures = pixels.view(10, 32, 20, 32, 3).permute(0, 2, 4, 1, 3)  # (10, 20, 3, 32, 32)
    return Images(pictures.reshape(200, 3, 32, 32), torch.arange(10).repeat_interleave(20))


def fashion_mnist(root: str | Path = "data", download: bool = True) -> Data:
    """Fashion-MNIST (Xiao et al. 2017) through torchvision: 70,000 grey pictures of ten kinds of clothes, 28x28.

    Args:
        root: the folder that holds ``FashionMNIST/raw``.
        download: as for :func:`cifar10` (30 MB).

    Raises:
        OSError: it isn't there and can't be downloaded: one line that says which files to put where.
    """
    from torchvision.datasets import FashionMNIST

    folder = Path(root) / "FashionMNIST" / "raw"
    for file in folder.glob("*-ubyte") if download else ():
        # torchvision checks the archives' MD5, but takes any unpacked file: one cut short is unpacked once more.
        if file.stat().st_size != _idx_size(file):
            file.unlink()
    archives = [name for name, _ in FashionMNIST.resources]
    train, test = _both_splits(FashionMNIST, Path(root), folder, download, archives, FashionMNIST.mirrors[0])
    splits = (Images(part.data[:, None], part.targets) for part in (train, test))
    return recorded("fashion_mnist", tuple(train.classes), *splits)


def _idx_size(file: Path) -> int:
    """How many bytes an idx file of 8-bit numbers should have: a magic number, its axes, and the product of those."""
    with file.open("rb") as opened:
        magic, *axes = [int.from_bytes(opened.read(4), "big") for _ in range(4)]
    axes = axes[: magic % 256]
    return 4 + 4 * len(axes) + math.prod(axes)


def _both_splits(kind: Any, root: Path, folder: Path, download: bool, files: list[str], source: str) -> tuple[Any, Any]:
    """The two splits from torchvision, or one line that says which files to put into which folder."""
    waited = socket.getdefaulttimeout()
    socket.setdefaulttimeout(30)  # torchvision sets none: behind some firewalls it would wait for ever
    try:
        return kind(root, train=True, download=download), kind(root, train=False)
    except (OSError, RuntimeError, HTTPException) as error:
        reason = " ".join(str(error).split())
        raise OSError(
            f"{kind.__name__} is not on disk ({reason}): with a network, call again with download=True; "
            f"without, put {', '.join(files)} from {source} into {folder.resolve()} first"
        ) from None
    finally:
        socket.setdefaulttimeout(waited)


def image_folder(path: str | Path, image_size: Size, test_share: float | None = None) -> Data:
    """Your own pictures, a folder a class: ``path/train/<class>/*`` and ``path/test/<class>/*``.

    ``val``, ``valid`` and ``validation`` stand for ``test`` where there is no ``test``. Of a folder without splits,
    ``path/<class>/*``, ``test_share`` sets pictures aside to test on: a share of each class, at least one, by chance
    but the same ones each time. ``test_files`` of the result names them.

    Every file is read once, now, so that a broken one is named before training starts, and kept in memory: 10,000
    pictures of 224x224 take 1.5 GB. Pictures become RGB: turned upright as EXIF says, 16 bits reduced to 8,
    transparent parts white; then the middle is cropped to the shape of ``image_size`` and resized (bicubic,
    antialiased). Classes and files are in the order of their names, hidden files passed over. Mean and deviation are
    the training split's.

    Args:
        path: the folder that holds train/ and test/, or the classes.
        image_size: H = W, or (H, W), in pixels.
        test_share: of the pictures of each class, in (0, 1); None: the folder has its splits.

    Raises:
        ValueError: a folder is missing or empty, a class is in only one split or has too few pictures to be split, or
            files are no whole pictures: named.
    """
    size, folder = as_pair(image_size, "image_size"), Path(path)
    train, test = _split(folder, test_share) if test_share is not None else _splits(folder)
    files = [[file for name in sorted(split) for file in split[name]] for split in (train, test)]
    pixels = _read_all(files[0] + files[1], size)  # (N, 3, H, W)
    labels = [torch.tensor([i for i, name in enumerate(sorted(split)) for _ in split[name]]) for split in (train, test)]
    n = len(files[0])
    splits = Images(pixels[:n], labels[0]), Images(pixels[n:], labels[1])
    aside = tuple(f"{file.parent.name}/{file.name}" for file in files[1]) if test_share is not None else ()
    mean, std = _statistics(splits[0])
    return Data(folder.resolve().name, *splits, tuple(sorted(train)), size, 3, mean, std, test_files=aside)


def hold_out(data: Data, share: float, seed: int = 0) -> Data:
    """The same data with a share of each class's training images, chosen by chance, in place of its test split.

    For choices: what is chosen on the test split makes its accuracy look better than it is.

    Args:
        data: whose training images are split.
        share: of each class, in (0, 1), rounded to whole images.
        seed: other images for another seed.

    Raises:
        ValueError: a share outside (0, 1), or one that leaves a class without an image on either side.
    """
    if not 0 < share < 1:
        raise ValueError(f"share must be above 0 and below 1, got {share}: 0.1 holds out every tenth image")
    labels, random = data.train.labels, np.random.RandomState(seed)
    held = torch.zeros(len(labels), dtype=torch.bool)
    for label, name in enumerate(data.classes):
        places = np.flatnonzero((labels == label).numpy())
        count = round(share * len(places))
        if not 0 < count < len(places):
            raise ValueError(f"{share} of the {len(places)} training images of class {name!r} is {count} to hold out")
        held[torch.from_numpy(random.permutation(places)[:count])] = True
    splits = (data.train.part(~held), data.train.part(held))
    return replace(data, train=splits[0], test=splits[1])


Files = dict[str, list[Path]]  # of each class


def _splits(folder: Path) -> tuple[Files, Files]:
    """The files of train/ and test/, or of what stands for test/."""
    if not (folder / "train").is_dir():
        raise ValueError(
            f"{folder / 'train'} is missing: pictures go to {folder / 'train'}/<class>/ and "
            f"{folder / 'test'}/<class>/, or to {folder}/<class>/ with a share to test on, --test-share 0.2"
        )
    others = [name for name in ("val", "valid", "validation") if (folder / name).is_dir()]
    if not (folder / "test").is_dir() and len(others) > 1:
        raise ValueError(f"{folder} has {' and '.join(others)}: call the one to test on test, or move the other away")
    held = folder / "test" if (folder / "test").is_dir() or not others else folder / others[0]
    train, test = _class_folders(folder / "train"), _class_folders(held)
    if lonely := sorted(train.keys() ^ test.keys()):
        split = folder / "train" if lonely[0] in train else held
        raise ValueError(
            f"class {lonely[0]!r} is in {split} alone: each class needs pictures in train/ and {held.name}/"
        )
    return train, test


def _split(folder: Path, share: float) -> tuple[Files, Files]:
    """The files of one folder of classes, a share of each set aside by chance."""
    if not 0 < share < 1:
        raise ValueError(f"test_share must be above 0 and below 1, got {share}: 0.2 sets every fifth picture aside")
    if (folder / "train").is_dir() and any(file.is_dir() for file in _visible(folder / "train")):
        raise ValueError(
            f"{folder} has splits, at least train/: leave the test share ({share}) out, or split {folder / 'train'}"
        )
    train, test = {}, {}
    for name, files in _class_folders(folder).items():
        if len(files) < 2:
            raise ValueError(f"{folder / name} has one picture: a class needs at least 2, to train on and to test on")
        count = min(max(round(share * len(files)), 1), len(files) - 1)
        aside = set(np.random.RandomState(0).permutation(len(files))[:count].tolist())
        train[name] = [file for i, file in enumerate(files) if i not in aside]
        test[name] = [file for i, file in enumerate(files) if i in aside]
    return train, test


def _class_folders(split: Path) -> Files:
    """The picture files of each class."""
    if not split.is_dir():
        raise ValueError(f"{split} is missing: pictures go to {split}/<class>/, one folder a class")
    files = {}
    for folder in _visible(split):
        if not folder.is_dir():
            raise ValueError(
                f"{folder} is a file among the class folders: move it elsewhere, or into its class's folder"
            )
        files[folder.name] = _visible(folder)
        if not files[folder.name]:
            raise ValueError(f"{folder} holds no pictures: put some in, or remove the folder from every split")
    if len(files) < 2:
        raise ValueError(f"{split} has {len(files)} class folders: a classifier needs at least 2")
    return files


def _visible(folder: Path) -> list[Path]:
    ignored = ("Thumbs.db", "desktop.ini")  # hidden on Windows without a dot
    return sorted(
        (file for file in folder.iterdir() if not file.name.startswith(".") and file.name not in ignored),
        key=lambda file: file.name,
    )


def _read_all(paths: list[Path], size: tuple[int, int]) -> Tensor:
    """The pictures of these files, (N, 3, H, W) uint8, each decoded once. Raises ValueError that names the broken."""
    from tqdm import tqdm  # type: ignore[import-untyped]

    def read(file: Path) -> np.ndarray | str:
        try:
            return _read(file, size)
        except Exception as error:  # decoders raise OSError, SyntaxError, struct.error and more
            return f"{file} ({' '.join(str(error).split()) or type(error).__name__})"

    pixels, broken = np.empty((len(paths), *size, 3), np.uint8), []
    with ThreadPoolExecutor() as pool:
        for i, result in enumerate(tqdm(pool.map(read, paths), "reading", len(paths), leave=False, disable=None)):
            if isinstance(result, str):
                broken.append(result)
            else:
                pixels[i] = result
    if broken:
        more = f"; and {len(broken) - 5} more" if len(broken) > 5 else ""
        raise ValueError(f"no whole pictures, mend or remove them: {'; '.join(broken[:5])}{more}")
    return torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous()


def _read(file: Path, size: tuple[int, int]) -> np.ndarray:
    """One file as RGB, (H, W, 3) uint8."""
    from PIL import Image, ImageOps

    with Image.open(file) as opened:
        return crop_to(to_rgb(ImageOps.exif_transpose(opened)), size, above=0.5)


def augmentation(what: str | Augmentation | ImageChange | None, data: Data) -> Augmentation:
    """What happens to the training images of a data set.

    Args:
        what: "none", "default" (the data set's own), or parts joined by "+" (see :func:`augment.by_name`);
            an augmentation; a function of one image; None for none.
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
        return Augmentation(name_of(what), changes=(what,))
    return Augmentation(name_of(what), each=what)


# One record a data set. The statistics of CIFAR-10 and Fashion-MNIST are the published ones; the 0.2023, 0.1994, 0.2010
# often seen for CIFAR-10 average the images' own deviations. Those of digits and shapes were measured.
SETS: dict[str, Record] = {
    "digits": Record(
        load=lambda root: digits(),
        mean=(0.3054,),
        std=(0.3761,),
        model=ViTConfig(
            image_size=8, patch_size=4, in_channels=1, num_classes=10, dim=64, depth=4, num_heads=4, mlp_dim=128
        ),
        recipe=Recipe(epochs=60, learning_rate=3e-3, warmup_epochs=5, augment="affine"),
    ),
    "shapes": Record(
        load=lambda root: shapes(),
        mean=(0.2953, 0.2871, 0.2654),
        std=(0.1935, 0.1678, 0.1620),
        model=ViTConfig(image_size=64, patch_size=8, num_classes=8, dim=64, depth=4, num_heads=4, mlp_dim=128),
        recipe=Recipe(epochs=15, learning_rate=2e-3, augment="flip"),
    ),
    "cifar10": Record(
        load=lambda root: cifar10(root),
        mean=(0.4914, 0.4822, 0.4465),
        std=(0.2470, 0.2435, 0.2616),
        model=ViTConfig(
            image_size=32, patch_size=4, num_classes=10, dim=192, depth=9, num_heads=6, mlp_dim=384, drop_path=0.1
        ),
        recipe=Recipe(epochs=300, batch_size=256, warmup_epochs=10, augment=augment.ALL),
    ),
    "fashion_mnist": Record(
        load=lambda root: fashion_mnist(root),
        mean=(0.2860,),
        std=(0.3530,),
        model=ViTConfig(
            image_size=28, patch_size=4, in_channels=1, num_classes=10, dim=96, depth=6, num_heads=4, mlp_dim=192
        ),
        recipe=Recipe(epochs=30, batch_size=128, warmup_epochs=3, augment="crop+flip"),
    ),
}
# Your own pictures; they give the image size and the classes, and their statistics are measured.
FOLDER = Record(
    load=lambda root: image_folder(root, 64),
    model=ViTConfig(image_size=64, patch_size=8, dim=192, depth=6, num_heads=3, mlp_dim=384),
    recipe=Recipe(epochs=60, learning_rate=5e-4, warmup_epochs=5, augment=augment.ALL),
)
