"""Lesson 07: your own photographs: the images in a folder, read safely, and a data set made of a folder per class."""

from __future__ import annotations

import contextlib
import io
import os
import stat
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from vit_tutorial.data.extras import counted, first_of, printable, progress
from vit_tutorial.data.images import Data, Images, channel_statistics
from vit_tutorial.data.preprocessing import Preprocessing, from_scratch
from vit_tutorial.patches import Size

if TYPE_CHECKING:
    from PIL import Image as PILImage

# What a folder is searched for. What Pillow can't read is found, too, so that it isn't skipped silently; of a camera's
# raw file it may read the preview, a few pixels.
RAW = (".arw", ".cr2", ".cr3", ".dng", ".nef", ".orf", ".raf", ".rw2")
UNREADABLE = (".heic", ".heif", ".jxl", ".svg", *RAW)
SUFFIXES = (
    *(".jpg", ".jpeg", ".jfif", ".png", ".gif", ".bmp", ".tif", ".tiff", ".webp", ".avif", ".ppm", ".pgm"),
    *UNREADABLE,
)
MOST_PIXELS = 178_956_970  # of one picture, Pillow's own limit: half a gigabyte once it is decoded
_isjunction = getattr(os.path, "isjunction", lambda path: False)  # a link of Windows', known from Python 3.12 on
CLOSED = "is a folder that can't be opened: get the right to read it"
Files = dict[str, list[Path]]  # of each class


def images_in(folder: Path) -> list[Path]:
    """The image files in a folder and below it, sorted: those whose names end in one of :data:`SUFFIXES`.

    Hidden files and folders are skipped. What hides images counts as one, so that reading it says what is wrong: a link
    that leads nowhere, a link to a folder, which isn't followed, and a folder that may not be opened.
    """
    found: list[Path] = []
    closed: list[OSError] = []
    for place, inside, files in os.walk(folder, onerror=closed.append):
        inside[:] = [name for name in inside if not name.startswith(".")]
        found += [Path(place, name) for name in inside if _is_link(Path(place, name))]
        visible = (Path(place, name) for name in files if not name.startswith("."))
        found += [path for path in visible if _is_image(path) or not path.exists()]
    return sorted([*found, *(Path(error.filename) for error in closed)])


def _is_link(path: Path) -> bool:
    return path.is_symlink() or _isjunction(path)


def _is_image(path: Path) -> bool:
    return path.suffix.lower() in SUFFIXES


def open_photo(path: str | Path) -> PILImage.Image:
    """An image file, turned upright as its EXIF data say.

    Raises:
        ValueError: the file was not found, is not an image, is damaged, or has more than :data:`MOST_PIXELS` pixels:
            names the file.
    """
    return decoded(path, str(path))


def decoded(file: str | Path | io.BytesIO, path: str) -> PILImage.Image:
    """:func:`open_photo` of a file or of what is in one; ``path`` is what errors call it."""
    from PIL import Image, ImageOps, UnidentifiedImageError

    _allow_half_the_limit()
    kind, path = Path(path).suffix.lower(), printable(path)
    convert = (
        f"{path} is a {kind if kind in UNREADABLE else '.heic'} file, which Pillow can't read: convert it to JPEG, on "
        "a Mac with sips -s format jpeg, elsewhere with ImageMagick's magick"
    )
    if kind in RAW:
        raise ValueError(convert)
    if not isinstance(file, io.BytesIO) and (instead := _no_file(Path(file))):
        raise ValueError(f"{path} {instead}")
    try:
        with Image.open(file) as opened:
            opened.load()
            ImageOps.exif_transpose(opened, in_place=True)
            return opened
    except FileNotFoundError:
        raise ValueError(f"{path} was not found") from None
    except PermissionError as error:
        raise ValueError(f"{path} can't be opened ({error.strerror})") from None
    except Image.DecompressionBombError:
        raise ValueError(
            f"{path} has more than {MOST_PIXELS // 1_000_000} million pixels, the limit: make it smaller first"
        ) from None
    except UnidentifiedImageError:
        if kind in UNREADABLE or _is_heic(file):
            raise ValueError(convert) from None
        raise ValueError(f"{path} is not an image") from None
    except Exception as error:  # decoders raise OSError, SyntaxError, struct.error and more
        raise ValueError(f"{path} can't be read as an image ({' '.join(str(error).split())})") from error


def _no_file(path: Path) -> str:
    """What is there instead of a file; "" if it is one, or if reading it will tell."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return ""
    if not stat.S_ISDIR(mode):
        return "" if stat.S_ISREG(mode) else "is a pipe or a device, not a file"
    if not may_open(path):
        return CLOSED
    return (
        "is a link to a folder, which isn't followed: put the folder itself there"
        if _is_link(path)
        else "is a folder, not an image"
    )


def may_open(folder: Path) -> bool:
    """Whether what is in the folder can be listed."""
    try:
        with os.scandir(folder):
            return True
    except OSError:  # the folder's rights, or macOS, which asks its user first
        return False


def _is_heic(file: str | Path | io.BytesIO) -> bool:
    """Whether it is a photograph as telephones make them, whatever it is called: its first bytes say so."""
    with contextlib.nullcontext(file) if isinstance(file, io.BytesIO) else Path(file).open("rb") as opened:
        opened.seek(4)
        return opened.read(8) in (b"ftypheic", b"ftypheix", b"ftypmif1", b"ftypmsf1")


@cache
def _allow_half_the_limit() -> None:
    """Pillow warns of an attack from half of :data:`MOST_PIXELS` on. Once: several threads read pictures."""
    from PIL import Image

    warnings.simplefilter("ignore", Image.DecompressionBombWarning)


def image_folder(
    path: str | Path,
    image_size: Size | None = None,
    test_share: float | None = None,
    *,
    preprocess: Preprocessing | None = None,
) -> Data:
    """Your own images, a folder per class: ``path/train/<class>/*`` and ``path/test/<class>/*``.

    ``val``, ``valid`` and ``validation`` stand for ``test`` where there is no ``test``. Of a folder without splits,
    ``path/<class>/*``, ``test_share`` sets images aside to test on: a share of each class, at least one, at random but
    the same ones each time. ``test_files`` of the result names them.

    The images of a class are those in its folder and below (:func:`images_in`). Every file is read once, now, and kept
    in memory: 10,000 images of 224x224 take 1.5 GB. A file that can't be read is skipped: a UserWarning names it, and
    so does ``skipped`` of the result. Images become RGB: turned upright as EXIF says, 16 bits reduced to 8,
    transparent parts white.

    To train from scratch, give ``image_size``: the center is cropped to its shape and resized (bicubic, antialiased),
    and mean and standard deviation are the training split's. To fine-tune, give the checkpoint's ``preprocess``:
    then all that is as the checkpoint had it.

    Args:
        path: the folder that holds train/ and test/, or the classes.
        image_size: H = W, or (H, W), in pixels.
        test_share: of the images of each class, in (0, 1); None: the folder has its splits.
        preprocess: of the model to be fine-tuned, as ``vt.load(...).preprocess``.

    Raises:
        ValueError: a folder is missing or empty, a class is in only one split or has too few images to be split, no
            image of a class can be read, or neither or both of size and preprocessing are given.
    """
    if (image_size is None) == (preprocess is None):
        raise ValueError(
            f"give image_size= to train from scratch or preprocess= to fine-tune, got {image_size=} and {preprocess=}"
        )
    folder = Path(path)
    if not folder.is_dir():
        raise ValueError(f"{folder} {'is a file, not a folder' if folder.exists() else 'was not found'}")
    _visible(folder)
    train, test = _splits(folder) if test_share is None else _random_splits(folder, test_share)
    if len(train) < 2:
        raise ValueError(f"{folder} has only the class {next(iter(train))!r}: a classifier needs at least 2")
    train_files, train_labels = _flat(train)
    test_files, test_labels = _flat(test)
    set_aside = () if test_share is None else tuple(file.relative_to(folder).as_posix() for file in test_files)
    to_input = preprocess or from_scratch(image_size or 0)
    shape = (*to_input.image_size, len(to_input.mean))
    pixels, wrong = _read_all(train_files + test_files, shape, to_input.pixels)
    if skipped := tuple(text for text in wrong if text):
        files = counted(len(skipped), "image file")
        warnings.warn(f"skipped {files} that can't be read: {first_of(skipped)}", UserWarning, stacklevel=2)
    good = torch.tensor([not text for text in wrong])  # (N,)
    cut = len(train_files)
    train_images = Images(pixels[:cut], train_labels).part(good[:cut])
    test_images = Images(pixels[cut:], test_labels).part(good[cut:])
    classes = tuple(sorted(train))
    for split, images in (("train", train_images), ("test", test_images)):
        if lost := [name for label, name in enumerate(classes) if not (images.labels == label).any()]:
            raise ValueError(f"no image of class {lost[0]!r} to {split} on can be read: {first_of(skipped)}")
    mean, std = (preprocess.mean, preprocess.std) if preprocess else channel_statistics(train_images)
    readable = [file for file, text in zip(test_files, wrong[cut:], strict=True) if not text]
    return Data(
        folder.resolve().name,
        train_images,
        test_images,
        classes,
        to_input.image_size,
        len(mean),
        mean,
        std,
        test_files=set_aside,
        test_names=tuple(file.relative_to(folder).as_posix() for file in readable),
        preprocess=preprocess,
        skipped=skipped,
    )


def _flat(split: Files) -> tuple[list[Path], Tensor]:
    """The files class by class, and their labels, (N,)."""
    pairs = [(file, label) for label, name in enumerate(sorted(split)) for file in split[name]]
    return [file for file, _ in pairs], torch.tensor([label for _, label in pairs])


def _splits(folder: Path) -> tuple[Files, Files]:
    """The files of train/ and test/, or of what stands for test/."""
    if not (folder / "train").is_dir():
        there = [printable(file.name) for file in _visible(folder)]
        raise ValueError(
            f"{folder / 'train'} is missing: put images into {folder / 'train'}/<class>/ and "
            f"{folder / 'test'}/<class>/, or into {folder}/<class>/ with a share to test on, --test-share 0.2; what is "
            f"there is {', '.join(there[:5]) or 'nothing'}{', ...' * (len(there) > 5)}"
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
    if stray := [file for file in _visible(split) if not file.is_dir() and _is_image(file)]:
        raise ValueError(f"{stray[0]} is an image beside the class folders: move it into the folder of its class")
    if lost := [file for file in _visible(split) if not file.exists()]:
        raise ValueError(f"{lost[0]} is a link that leads nowhere: mend it, or remove it")
    files = {folder.name: images_in(folder) for folder in _visible(split) if folder.is_dir()}
    if empty := [name for name in files if not files[name]]:
        raise ValueError(f"{split / empty[0]} holds no images: put some in, or remove the folder from every split")
    if not files:
        raise ValueError(f"{split} has no class folders: a classifier needs at least 2")
    return files


def _visible(folder: Path) -> list[Path]:
    if not may_open(folder):
        raise ValueError(f"{folder} {CLOSED}")
    return sorted(path for path in folder.iterdir() if not path.name.startswith("."))


def _read_all(
    paths: list[Path], shape: tuple[int, int, int], pixels_of: Callable[[PILImage.Image], np.ndarray]
) -> tuple[Tensor, list[str]]:
    """The images of these files, (N, C, H, W) uint8, each decoded once, and what is wrong with each: "" or a line."""

    def read(file: Path) -> np.ndarray | str:
        try:
            return pixels_of(open_photo(file))
        except ImportError:  # a package is missing, and the file is all right
            raise
        except Exception as error:  # whatever it is, it is this file's
            text = " ".join(str(error).split()) or type(error).__name__
            return text if printable(str(file)) in text else f"{printable(str(file))} ({text})"

    pixels, wrong = np.zeros((len(paths), *shape), np.uint8), [""] * len(paths)
    with (
        ThreadPoolExecutor() as pool,
        progress()(desc="reading", total=len(paths), leave=False, disable=None) as bar,
    ):
        for i, result in enumerate(pool.map(read, paths)):
            bar.update()
            if isinstance(result, str):
                wrong[i] = result
            else:
                pixels[i] = result
    return torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous(), wrong
