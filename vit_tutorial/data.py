"""Lesson 07: the data sets, one call each: train and test splits, class names, image size and normalisation.

=================  ======================  =========  ==================  ========================================
data set           train / test            image      augmentation        where from
=================  ======================  =========  ==================  ========================================
``digits``         1,437 / 360             1 x 8x8    none                scikit-learn's, already on disk
``shapes``         20,000 / 1,000          3 x 64x64  flip                drawn from a seed, with the target's mask
``fashion_mnist``  60,000 / 10,000         1 x 28x28  crop, flip          downloaded, 30 MB
``cifar10``        50,000 / 10,000         3 x 32x32  all five            downloaded, 170 MB
a folder           your own pictures       as asked   all five            ``train/<class>/*`` and ``test/<class>/*``
=================  ======================  =========  ==================  ========================================

A mirrored digit is no digit, and a crop may cut off the target of a scene: so each has what keeps its labels true.
"""

from __future__ import annotations

import functools
import math
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from vit_tutorial import scenes
from vit_tutorial.patches import Size, as_pair

if TYPE_CHECKING:
    from PIL import Image as PILImage

INTERPOLATIONS = ("bicubic", "bilinear", "lanczos", "nearest")
LUMA = (0.299, 0.587, 0.114)  # how bright red, green and blue look (ITU-R BT.601)
AUGMENTATION = {"digits": "none", "shapes": "flip", "fashion_mnist": "crop+flip"}  # all others: ALL
ALL = "crop+flip+randaugment+mixup+cutmix"

# Mean and standard deviation of each channel over the training images. The two below are the published ones; the
# 0.2023, 0.1994, 0.2010 often seen for CIFAR-10 average the images' own deviations. Digits and shapes: measured.
STATISTICS = {
    "digits": ((0.3054,), (0.3761,)),
    "shapes": ((0.2953, 0.2871, 0.2654), (0.1935, 0.1678, 0.1620)),
    "cifar10": ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    "fashion_mnist": ((0.2860,), (0.3530,)),
}


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


@dataclass(frozen=True)
class Preprocessing:
    """From a picture to what a model takes, as its training did it.

    Args:
        image_size: (H, W), in pixels.
        mean: of each channel, in [0, 1].
        std: of each channel.
        crop: "middle" cuts out the largest part of the picture's middle with the shape of ``image_size`` and resizes
            that; a number in (0, 1] resizes the picture until ``image_size`` is that share of it, and cuts out the
            middle then (0.875: a side of 256 for 224); "squeeze" resizes the whole picture, whatever its shape.
        interpolation: "bicubic", "bilinear", "lanczos" or "nearest".
        squeeze: with a number for ``crop``: the whole picture is resized, whatever its shape, before the middle is cut
            out (transformers' DeiT, timm's "squash").

    Raises:
        ValueError: another crop or interpolation.
    """

    image_size: tuple[int, int]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    crop: float | str = "middle"
    interpolation: str = "bicubic"
    squeeze: bool = False

    def __post_init__(self) -> None:
        share = isinstance(self.crop, (int, float)) and 0 < self.crop <= 1
        if not share and self.crop not in ("middle", "squeeze"):
            raise ValueError(f"crop is 'middle', 'squeeze' or a share of the picture in (0, 1], got {self.crop!r}")
        if self.interpolation not in INTERPOLATIONS:
            raise ValueError(f"unknown interpolation {self.interpolation!r}: use one of {', '.join(INTERPOLATIONS)}")

    def __call__(self, images: Tensor | PILImage.Image) -> Tensor:
        """One picture or a batch of images -> (B, C, H, W), float32, normalised.

        Args:
            images: a PIL picture of any size, which is cropped and resized, and grey for a grey model; or images
                (C, H, W) or (B, C, H, W) in [0, 1], already of the right size.

        Raises:
            ValueError: a tensor of another size, with other channels or outside [0, 1]. TypeError: neither of the two.
        """
        from PIL import Image

        C = len(self.mean)
        if isinstance(images, Image.Image):
            pixels = self._fit(_rgb(images))  # (H, W, 3)
            images = torch.from_numpy(pixels).permute(2, 0, 1).float() / 255  # (3, H, W)
            images = images if C == 3 else (images * images.new_tensor(LUMA)[:, None, None]).sum(0, keepdim=True)
        if not isinstance(images, Tensor) or not images.is_floating_point():
            kind = images.dtype if isinstance(images, Tensor) else type(images).__name__
            raise TypeError(f"images must be a PIL picture or a floating-point tensor in [0, 1], got {kind}")
        if images.ndim not in (3, 4) or images.shape[-3:] != (C, *self.image_size):
            raise ValueError(
                f"images must be ({C}, {self.image_size[0]}, {self.image_size[1]}), one or a batch of them, got "
                f"{tuple(images.shape)}: give PIL pictures, which are cropped and resized, or resize them yourself"
            )
        if images.numel() and (images.min() < 0 or images.max() > 1):
            low, high = images.aminmax()
            raise ValueError(f"images must lie in [0, 1], got values from {low:.3g} to {high:.3g}: divide by 255?")
        return normalise(images.reshape(-1, C, *self.image_size), self)

    def _fit(self, picture: PILImage.Image) -> np.ndarray:
        """Cropped and resized: (H, W, 3), uint8; the numbers of torchvision's and timm's own evaluation."""
        from torchvision.transforms import InterpolationMode
        from torchvision.transforms import functional as F

        (H, W), mode = self.image_size, InterpolationMode(self.interpolation)
        if isinstance(self.crop, str):
            if self.crop == "squeeze":
                return np.array(F.resize(picture, [H, W], mode))
            return _crop(picture, self.image_size, above=0.5, interpolation=self.interpolation)
        # Whole pixels, and 242 from 224 / (224 / 242).
        height, width = (math.floor(side / self.crop + 1e-6) for side in (H, W))
        resized = [height]  # torchvision's short side
        if self.squeeze:
            resized = [height, width]
        elif height != width:
            scale = max(height / picture.height, width / picture.width)
            resized = [round(picture.height * scale), round(picture.width * scale)]
        return np.array(F.center_crop(F.resize(picture, resized, mode), [H, W]))


def normalise(images: Tensor, data: Data | Preprocessing) -> Tensor:
    """(x - mean) / std by channel: (B, C, H, W) -> (B, C, H, W)."""
    mean, std = (images.new_tensor(values)[:, None, None] for values in (data.mean, data.std))  # (C, 1, 1)
    return (images - mean) / std


def _data(name: str, classes: tuple[str, ...], train: Images, test: Images) -> Data:
    _, C, H, W = train.images.shape
    return Data(name, train, test, classes, (H, W), C, *STATISTICS[name])


def _statistics(train: Images) -> tuple[tuple[float, ...], tuple[float, ...]]:
    means, stds = [], []
    for channel in train.images.unbind(1):  # (N, H, W)
        share = torch.bincount(channel.flatten(), minlength=256).double() / channel.numel()
        level = torch.arange(256, dtype=torch.float64) / train.white
        means.append(float(share @ level))
        # A channel that never changes has no spread to divide by.
        stds.append(max(float(share @ (level - means[-1]) ** 2) ** 0.5, 1 / train.white))
    return tuple(means), tuple(stds)


def load(name: str, root: str | Path = "data", image_size: Size | None = None) -> Data:
    """A data set by its name, for command lines.

    Args:
        name: "digits", "shapes", "cifar10", "fashion_mnist", or the path of a folder with train/ and test/.
        root: the folder that downloads go to.
        image_size: of a folder's pictures, H = W or (H, W), in pixels; 64 if not given. The others have their own.

    Raises:
        ValueError: neither a name nor a folder, or a size for a set that has its own.
        OSError: a data set that isn't there and can't be downloaded.
    """
    sets: dict[str, Callable[[], Data]] = {
        "digits": digits,
        "shapes": shapes,
        "cifar10": functools.partial(cifar10, root),
        "fashion_mnist": functools.partial(fashion_mnist, root),
    }
    if name not in sets:
        if not Path(name).is_dir():
            raise ValueError(f"{name!r} is no data set and no folder: use one of {', '.join(sets)}, or a folder's path")
        return image_folder(name, 64 if image_size is None else image_size)
    data = sets[name]()
    if image_size is not None and as_pair(image_size, "image_size") != data.image_size:
        raise ValueError(f"{name} has images of {data.image_size} (height, width), got image_size={image_size!r}")
    return data


def digits() -> Data:
    """The 1,797 handwritten digits of scikit-learn (the UCI optical digits' test set): real, tiny, already on disk.

    A fixed split, stratified by class: 1,437 to train, 360 to test. The 13 writers appear in both.
    """
    from sklearn.datasets import load_digits  # type: ignore[import-untyped]
    from sklearn.model_selection import train_test_split  # type: ignore[import-untyped]

    pixels, labels = load_digits(return_X_y=True)  # (N, 64) from 0 to 16, (N,)
    train, test = train_test_split(np.arange(len(labels)), test_size=360, stratify=labels, random_state=0)
    images, labels = torch.from_numpy(pixels.astype(np.uint8)).view(-1, 1, 8, 8), torch.from_numpy(labels).long()
    splits = (Images(images[rows], labels[rows], white=16) for rows in (np.sort(train), np.sort(test)))
    return _data("digits", tuple("0123456789"), *splits)


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
    return _data("shapes", scenes.TARGETS, *splits)


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
    return _data("cifar10", tuple(train.classes), *splits)


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
    return _data("fashion_mnist", tuple(train.classes), *splits)


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


def image_folder(path: str | Path, image_size: Size) -> Data:
    """Your own pictures: ``path/train/<class>/*`` and ``path/test/<class>/*``, with the same classes in both.

    Every file is read now, so that a broken one is named before training starts, and kept in memory: 10,000 pictures
    of 224x224 take 1.5 GB. Pictures become RGB: turned upright as EXIF says, 16 bits reduced to 8, transparent parts
    white; then the middle is cropped to the shape of ``image_size`` and resized (bicubic, antialiased). Classes and
    files are in the order of their names, hidden files passed over. Mean and deviation are the training split's.

    Args:
        path: the folder that holds train/ and test/.
        image_size: H = W, or (H, W), in pixels.

    Raises:
        ValueError: a folder is missing or empty, a class is in only one split, or files are no whole pictures: named.
    """
    size, folder = as_pair(image_size, "image_size"), Path(path)
    train, test = _class_folders(folder / "train"), _class_folders(folder / "test")
    if lonely := sorted(train.keys() ^ test.keys()):
        split = "train" if lonely[0] in train else "test"
        raise ValueError(
            f"class {lonely[0]!r} is in {folder / split} alone: each class needs pictures in train/ and test/"
        )
    splits = _read_all(train, size), _read_all(test, size)
    return Data(folder.resolve().name, *splits, tuple(sorted(train)), size, 3, *_statistics(splits[0]))


def _class_folders(split: Path) -> dict[str, list[Path]]:
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
            raise ValueError(f"{folder} holds no pictures: put some in, or remove the folder from train/ and test/")
    if len(files) < 2:
        raise ValueError(f"{split} has {len(files)} class folders: a classifier needs at least 2")
    return files


def _visible(folder: Path) -> list[Path]:
    ignored = ("Thumbs.db", "desktop.ini")  # hidden on Windows without a dot
    return sorted(
        (file for file in folder.iterdir() if not file.name.startswith(".") and file.name not in ignored),
        key=lambda file: file.name,
    )


def _read_all(files: dict[str, list[Path]], size: tuple[int, int]) -> Images:
    from tqdm import tqdm  # type: ignore[import-untyped]

    def read(file: Path) -> np.ndarray | str:
        try:
            return _read(file, size)
        except Exception as error:  # decoders raise OSError, SyntaxError, struct.error and more
            return f"{file} ({' '.join(str(error).split()) or type(error).__name__})"

    paths = [file for name in sorted(files) for file in files[name]]
    labels = [label for label, name in enumerate(sorted(files)) for _ in files[name]]
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
    return Images(torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous(), torch.tensor(labels))


def _read(file: Path, size: tuple[int, int]) -> np.ndarray:
    """One file as RGB, (H, W, 3) uint8."""
    from PIL import Image, ImageOps

    with Image.open(file) as opened:
        return _crop(_rgb(ImageOps.exif_transpose(opened)), size, above=0.5)


def _rgb(picture: PILImage.Image) -> PILImage.Image:
    """Any kind of pixels as RGB: 16 bits reduced to 8, transparent parts white."""
    from PIL import Image

    if picture.mode[0] in "IF":  # 16 or 32 bits a pixel, which convert("RGB") would clip at 255
        levels = np.asarray(picture)
        if picture.mode == "F" or levels.min() < 0 or levels.max() > 65535:
            raise ValueError("32-bit pixels: save it with 8 or 16 bits")
        picture = Image.fromarray((levels >> 8).astype(np.uint8))
    if "A" in picture.getbands() or "transparency" in picture.info:
        picture = picture.convert("RGBA")
        picture = Image.alpha_composite(Image.new("RGBA", picture.size, "white"), picture)
    return picture.convert("RGB")


def _crop(picture: PILImage.Image, size: tuple[int, int], above: float, interpolation: str = "bicubic") -> np.ndarray:
    """The largest part with the shape of ``size``, resized to it; ``above``: how much of the rest is cut off on top."""
    from PIL import Image

    height, width = size
    scale = min(picture.width / width, picture.height / height)
    left, top = (picture.width - width * scale) / 2, (picture.height - height * scale) * above
    # Rounding must not carry the box over the edge.
    box = (left, top, min(left + width * scale, picture.width), min(top + height * scale, picture.height))
    return np.array(picture.resize((width, height), Image.Resampling[interpolation.upper()], box=box))


@dataclass(frozen=True)
class Augmentation:
    """Random changes to training images, before normalisation; all draw from torch's own generator."""

    name: str
    image: Callable[[Tensor], Tensor] | None  # of one image, (C, H, W) in [0, 1]; None: no change
    batch: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]] | None  # of (B, C, H, W), (B,): labels become (B, K)


def augmentation(name: str, data: Data) -> Augmentation:
    """The transforms of torchvision v2 that a name stands for.

    Args:
        name: "none", "default" (what the table on top of this module gives the data set), or any of these, joined by
            "+": **crop** (pad by an eighth, crop back), **flip** (left and right, every second image), **randaugment**
            (two of 14 changes at magnitude 9; Cubuk et al. 2020), **mixup** (blend two images; Zhang et al. 2018) and
            **cutmix** (paste a part of another; Yun et al. 2019). With both of the last two, each batch takes one of
            them, with DeiT's strengths, 0.8 and 1.0 (Table 9 of Touvron et al. 2021).
        data: the data set: its image size and classes.

    Raises:
        ValueError: an unknown part.
    """
    from torchvision.transforms import v2

    name = AUGMENTATION.get(data.name, ALL) if name == "default" else name
    (H, W), K = data.image_size, len(data.classes)
    images = {
        "crop": v2.RandomCrop((H, W), padding=[math.ceil(W / 8), math.ceil(H / 8)]),  # [sides, top and bottom]
        "flip": v2.RandomHorizontalFlip(),
        "randaugment": v2.RandAugment(num_ops=2, magnitude=9),
    }
    batches = {"mixup": v2.MixUp(alpha=0.8, num_classes=K), "cutmix": v2.CutMix(alpha=1.0, num_classes=K)}
    parts = [] if name == "none" else name.split("+")
    if unknown := [part for part in parts if part not in images | batches]:
        raise ValueError(f"{unknown[0]!r} is no augmentation: use none, default, or some of {ALL}, joined by +")
    image = [transform for part, transform in images.items() if part in parts]
    batch = [transform for part, transform in batches.items() if part in parts]
    return Augmentation(name, v2.Compose(image) if image else None, v2.RandomChoice(batch) if batch else None)


def photograph(size: Size = 224) -> Tensor:
    """The photograph of Grace Hopper that ships with matplotlib (US Navy, public domain), cropped from the top.

    Args:
        size: H = W, or (H, W), in pixels.

    Returns:
        (3, H, W), float32, in [0, 1].
    """
    from matplotlib import cbook
    from PIL import Image

    pair = as_pair(size, "size")
    with Image.open(cbook.get_sample_data("grace_hopper.jpg", asfileobj=False)) as picture:
        pixels = _crop(picture.convert("RGB"), pair, above=0.0)
    return torch.from_numpy(pixels).permute(2, 0, 1).float() / 255  # (H, W, 3) -> (3, H, W)
