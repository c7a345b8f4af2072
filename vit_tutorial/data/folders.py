"""Lesson 07: your own photographs: the images in a folder, read safely, and a data set made of a folder per class."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from vit_tutorial.data.images import Data, Images, channel_statistics
from vit_tutorial.data.preprocessing import crop_to, to_rgb
from vit_tutorial.patches import Size, as_pair

if TYPE_CHECKING:
    from PIL import Image as PILImage

# What a folder is searched for. Pillow can't read HEIC: it is found nonetheless, so that it isn't skipped silently.
HEIC = (".heic", ".heif")
SUFFIXES = (
    *(".jpg", ".jpeg", ".jfif", ".png", ".gif", ".bmp", ".tif", ".tiff", ".webp", ".avif", ".ppm", ".pgm"),
    *HEIC,
)
Files = dict[str, list[Path]]  # of each class


def images_in(folder: Path) -> list[Path]:
    """The image files in a folder and below it, sorted: those whose names end in one of :data:`SUFFIXES`.

    Hidden files and folders are skipped. A link that leads nowhere counts, so that reading it names it.
    """
    visible = (path for path in folder.rglob("*") if not any(p.startswith(".") for p in path.relative_to(folder).parts))
    images = (path for path in visible if path.suffix.lower() in SUFFIXES)
    return sorted(path for path in images if path.is_file() or path.is_symlink())


def open_photo(path: str | Path) -> PILImage.Image:
    """An image file, turned upright as its EXIF data say.

    Raises:
        ValueError: the file was not found, is not an image, or is damaged: names the file.
    """
    from PIL import Image, ImageOps, UnidentifiedImageError

    try:
        with Image.open(path) as opened:
            opened.load()
            ImageOps.exif_transpose(opened, in_place=True)
            return opened
    except FileNotFoundError:
        raise ValueError(f"{path} was not found") from None
    except UnidentifiedImageError:
        if Path(path).suffix.lower() in HEIC:
            raise ValueError(f"{path} is a HEIC image, which Pillow can't read: convert it to JPEG") from None
        raise ValueError(f"{path} is not an image") from None
    except Exception as error:  # decoders raise OSError, SyntaxError, struct.error and more
        raise ValueError(f"{path} can't be read as an image ({' '.join(str(error).split())})") from error


def image_folder(path: str | Path, image_size: Size, test_share: float | None = None) -> Data:
    """Your own images, a folder per class: ``path/train/<class>/*`` and ``path/test/<class>/*``.

    ``val``, ``valid`` and ``validation`` stand for ``test`` where there is no ``test``. Of a folder without splits,
    ``path/<class>/*``, ``test_share`` sets images aside to test on: a share of each class, at least one, at random but
    the same ones each time. ``test_files`` of the result names them.

    The images of a class are those in its folder and below (:func:`images_in`). Every file is read once, now, so that
    a broken one is named before training starts, and kept in memory: 10,000 images of 224x224 take 1.5 GB. Images
    become RGB: turned upright as EXIF says, 16 bits reduced to 8, transparent parts white; then the center is cropped
    to the shape of ``image_size`` and resized (bicubic, antialiased). Mean and standard deviation are the training
    split's.

    Args:
        path: the folder that holds train/ and test/, or the classes.
        image_size: H = W, or (H, W), in pixels.
        test_share: of the images of each class, in (0, 1); None: the folder has its splits.

    Raises:
        ValueError: a folder is missing or empty, a class is in only one split or has too few images to be split, or
            image files are unreadable: named.
    """
    size, folder = as_pair(image_size, "image_size"), Path(path)
    train, test = _splits(folder) if test_share is None else _random_splits(folder, test_share)
    train_files, train_labels = _flat(train)
    test_files, test_labels = _flat(test)
    pixels = _read_all(train_files + test_files, size)  # (N, 3, H, W)
    train_images = Images(pixels[: len(train_files)], train_labels)
    test_images = Images(pixels[len(train_files) :], test_labels)
    mean, std = channel_statistics(train_images)
    set_aside = () if test_share is None else tuple(file.relative_to(folder).as_posix() for file in test_files)
    name = folder.resolve().name
    return Data(name, train_images, test_images, tuple(sorted(train)), size, 3, mean, std, test_files=set_aside)


def _flat(split: Files) -> tuple[list[Path], Tensor]:
    """The files class by class, and their labels, (N,)."""
    pairs = [(file, label) for label, name in enumerate(sorted(split)) for file in split[name]]
    return [file for file, _ in pairs], torch.tensor([label for _, label in pairs])


def _splits(folder: Path) -> tuple[Files, Files]:
    """The files of train/ and test/, or of what stands for test/."""
    if not (folder / "train").is_dir():
        raise ValueError(
            f"{folder / 'train'} is missing: put images into {folder / 'train'}/<class>/ and "
            f"{folder / 'test'}/<class>/, or into {folder}/<class>/ with a share to test on, --test-share 0.2"
        )
    others = [name for name in ("val", "valid", "validation") if (folder / name).is_dir()]
    if not (folder / "test").is_dir() and len(others) > 1:
        raise ValueError(f"{folder} has {' and '.join(others)}: rename the one to test on to test, or move the other")
    held = folder / "test" if (folder / "test").is_dir() or not others else folder / others[0]
    train, test = _class_folders(folder / "train"), _class_folders(held)
    if lonely := sorted(train.keys() ^ test.keys()):
        split = folder / "train" if lonely[0] in train else held
        raise ValueError(f"class {lonely[0]!r} is only in {split}: each class needs images in train/ and {held.name}/")
    return train, test


def _random_splits(folder: Path, share: float) -> tuple[Files, Files]:
    """The files of one folder of classes, a share of each set aside at random."""
    if not 0 < share < 1:
        raise ValueError(f"test_share must be above 0 and below 1, got {share}: 0.2 sets every fifth image aside")
    if (folder / "train").is_dir() and any(file.is_dir() for file in _visible(folder / "train")):
        raise ValueError(
            f"{folder} has splits, at least train/: leave the test share ({share}) out, or split {folder / 'train'}"
        )
    train, test = {}, {}
    for name, files in _class_folders(folder).items():
        if len(files) < 2:
            raise ValueError(f"{folder / name} has one image: a class needs at least 2, to train on and to test on")
        count = min(max(round(share * len(files)), 1), len(files) - 1)
        aside = set(np.random.RandomState(0).permutation(len(files))[:count].tolist())
        train[name] = [file for i, file in enumerate(files) if i not in aside]
        test[name] = [file for i, file in enumerate(files) if i in aside]
    return train, test


def _class_folders(split: Path) -> Files:
    """The image files of each class."""
    if not split.is_dir():
        raise ValueError(f"{split} is missing: put images into {split}/<class>/, one folder per class")
    if stray := [file for file in _visible(split) if not file.is_dir() and file.suffix.lower() in SUFFIXES]:
        raise ValueError(f"{stray[0]} is an image beside the class folders: move it into the folder of its class")
    files = {folder.name: images_in(folder) for folder in _visible(split) if folder.is_dir()}
    if empty := [name for name in files if not files[name]]:
        raise ValueError(f"{split / empty[0]} holds no images: put some in, or remove the folder from every split")
    if len(files) < 2:
        raise ValueError(f"{split} has {len(files)} class folders: a classifier needs at least 2")
    return files


def _visible(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if not path.name.startswith("."))


def _read_all(paths: list[Path], size: tuple[int, int]) -> Tensor:
    """The images of these files, (N, 3, H, W) uint8, each decoded once. Raises ValueError that names the broken."""
    from tqdm import tqdm  # type: ignore[import-untyped]

    def read(file: Path) -> np.ndarray | str:
        try:
            return crop_to(to_rgb(open_photo(file)), size, above=0.5)
        except Exception as error:  # whatever it is, it is this file's
            text = " ".join(str(error).split()) or type(error).__name__
            return text if str(file) in text else f"{file} ({text})"

    pixels, broken = np.empty((len(paths), *size, 3), np.uint8), []
    with ThreadPoolExecutor() as pool:
        for i, result in enumerate(tqdm(pool.map(read, paths), "reading", len(paths), leave=False, disable=None)):
            if isinstance(result, str):
                broken.append(result)
            else:
                pixels[i] = result
    if broken:
        more = f"; and {len(broken) - 5} more" if len(broken) > 5 else ""
        raise ValueError(f"unreadable image files, repair or remove them: {'; '.join(broken[:5])}{more}")
    return torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous()
