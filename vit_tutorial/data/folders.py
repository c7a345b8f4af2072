"""Lesson 07: your own photographs: a data set made of a folder per class."""

from __future__ import annotations

import hashlib
import warnings
from pathlib import Path

import numpy as np
import torch

from vit_tutorial.data.images import Data, Images, channel_statistics
from vit_tutorial.data.photo_files import images_in, read_all
from vit_tutorial.data.preprocessing import Preprocessing, unnormalised_center
from vit_tutorial.data.text import counted, first_of, printable
from vit_tutorial.patches import Size

Files = dict[str, list[Path]]  # of each class


def image_folder(
    path: str | Path,
    image_size: Size | None = None,
    test_fraction: float | None = None,
    *,
    preprocess: Preprocessing | None = None,
) -> Data:
    """Your own images, a folder per class: ``path/train/<class>/*`` and ``path/test/<class>/*``.

    ``val``, ``valid`` and ``validation`` stand for ``test`` where there is no ``test``. Of a folder without splits,
    ``path/<class>/*``, ``test_fraction`` sets images aside to test on: a fraction of each class, at least one, at
    random but the same ones each time. ``random_test_files`` of the result names them.

    The images of a class are the files in its folder and below (:func:`images_in`). Every file is read once, now, and
    kept in memory: 10,000 images of 224x224 take 1.5 GB. A file that can't be read is skipped: a UserWarning counts
    them and names the first, and ``skipped`` of the result has all. Images become RGB: turned upright as EXIF says,
    16 bits reduced to 8, transparent parts white.

    To train from scratch, give ``image_size``: the center is cropped to its shape and resized (bicubic, antialiased),
    and mean and standard deviation are the training split's. To fine-tune, give the checkpoint's ``preprocess``:
    then all that is as the checkpoint had it.

    Args:
        path: the folder that holds train/ and test/, or the classes.
        image_size: H = W, or (H, W), in pixels.
        test_fraction: of the images of each class, in (0, 1); None: the folder has its splits.
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
    train, test = _splits(folder) if test_fraction is None else _random_splits(folder, test_fraction)
    if len(train) < 2:
        raise ValueError(f"{folder} has only the class {next(iter(train))!r}: a classifier needs at least 2")
    classes, to_input = tuple(sorted(train)), preprocess or unnormalised_center(image_size or 0)
    train_images, train_names, skipped = _read_split(folder, train, classes, to_input)
    test_images, test_files, skipped_too = _read_split(folder, test, classes, to_input)
    for split, images in (("train", train_images), ("test", test_images)):
        if lost := [name for label, name in enumerate(classes) if not (images.labels == label).any()]:
            first = first_of(skipped + skipped_too)
            raise ValueError(f"no image of class {lost[0]!r} to {split} on can be read: {first}")
    _warn(skipped := skipped + skipped_too)
    mean, std = (preprocess.mean, preprocess.std) if preprocess else channel_statistics(train_images)
    return Data(
        name=folder.resolve().name,
        train=train_images,
        test=test_images,
        classes=classes,
        image_size=to_input.image_size,
        in_channels=len(mean),
        mean=mean,
        std=std,
        random_test_files=() if test_fraction is None else test_files,
        test_files=test_files,
        preprocess=preprocess,
        skipped=tuple(skipped),
        digest=_digest(folder, train_names, test_files),
    )


def labelled_images(path: str | Path, classes: tuple[str, ...], preprocess: Preprocessing) -> Data:
    """Images to test a trained model on: ``path/<class>/*``, for some or all of its classes.

    They are ``test`` of the result; ``train`` is empty. What is read, kept and skipped: see :func:`image_folder`.

    Args:
        path: the folder of the classes.
        classes: of the model, as ``vt.load(...).classes``.
        preprocess: of the model.

    Raises:
        ValueError: a folder is missing or empty, is called as no class of the model, or no image can be read.
    """
    folder = Path(path)
    files = _class_folders(folder)
    if other := [name for name in files if name not in classes]:
        known = first_of(classes)
        raise ValueError(f"{folder / other[0]} is not a class of the model ({known}): with splits, name one of them")
    images, names, skipped = _read_split(folder, files, classes, preprocess)
    if not names:
        raise ValueError(f"no image in {folder} can be read: {first_of(skipped)}")
    _warn(skipped)
    nothing = images.part(torch.zeros(len(images), dtype=torch.bool))
    return Data(
        name=folder.resolve().name,
        train=nothing,
        test=images,
        classes=classes,
        image_size=preprocess.image_size,
        in_channels=len(preprocess.mean),
        mean=preprocess.mean,
        std=preprocess.std,
        test_files=names,
        preprocess=preprocess,
        skipped=tuple(skipped),
    )


def _warn(skipped: list[str]) -> None:
    if skipped:
        files = counted(len(skipped), "file")
        warnings.warn(f"skipped {files} that can't be read: {first_of(skipped)}", UserWarning, stacklevel=3)


def _digest(folder: Path, *splits: tuple[str, ...]) -> str:
    """How many files the splits have, and a hash of their names and sizes."""
    lines = [f"{split} {name} {(folder / name).stat().st_size}" for split, names in enumerate(splits) for name in names]
    digest = hashlib.sha256("\n".join(lines).encode(errors="surrogateescape")).hexdigest()
    return f"{len(lines)} files, SHA-256 {digest[:16]}"


def _splits(folder: Path) -> tuple[Files, Files]:
    """The files of train/ and test/, or of what stands for test/."""
    if not (folder / "train").is_dir():
        raise ValueError(
            f"{folder / 'train'} is missing: put images into {folder / 'train'}/<class>/ and "
            f"{folder / 'test'}/<class>/, or into {folder}/<class>/ with a part to test on, --test-fraction 0.2; it "
            f"holds {first_of([printable(file.name) for file in _visible(folder)]) or 'nothing'}"
        )
    others = [name for name in ("val", "valid", "validation") if (folder / name).is_dir()]
    if not (folder / "test").is_dir() and len(others) > 1:
        raise ValueError(f"{folder} has {' and '.join(others)}: rename the one to test on to test, or move the other")
    test_split = folder / "test" if (folder / "test").is_dir() or not others else folder / others[0]
    train, test = _class_folders(folder / "train"), _class_folders(test_split)
    if lonely := sorted(train.keys() ^ test.keys()):
        split = folder / "train" if lonely[0] in train else test_split
        raise ValueError(
            f"class {lonely[0]!r} is only in {split}: each class needs images in train/ and {test_split.name}/"
        )
    return train, test


def _random_splits(folder: Path, fraction: float) -> tuple[Files, Files]:
    """The files of one folder of classes, a fraction of each set aside at random."""
    if not 0 < fraction < 1:
        raise ValueError(f"test_fraction must be above 0 and below 1, got {fraction}: 0.2 sets every fifth image aside")
    if (folder / "train").is_dir() and any(file.is_dir() for file in _visible(folder / "train")):
        raise ValueError(
            f"{folder} has splits, at least train/: leave test_fraction={fraction} out, or split {folder / 'train'}"
        )
    train, test = {}, {}
    for name, files in _class_folders(folder).items():
        if len(files) < 2:
            raise ValueError(f"{folder / name} has one image: a class needs at least 2, to train on and to test on")
        count = min(max(round(fraction * len(files)), 1), len(files) - 1)
        aside = set(np.random.RandomState(0).permutation(len(files))[:count].tolist())
        train[name] = [file for i, file in enumerate(files) if i not in aside]
        test[name] = [file for i, file in enumerate(files) if i in aside]
    return train, test


def _class_folders(split: Path) -> Files:
    """The files of each class."""
    if not split.is_dir():
        raise ValueError(f"{split} is missing: put images into {split}/<class>/, one folder per class")
    folders = [path for path in _visible(split) if path.is_dir()]
    if stray := [path for path in _visible(split) if path not in folders and _is_image(path)]:
        raise ValueError(f"{stray[0]} is an image beside the class folders: move it into the folder of its class")
    if broken := [path for path in _visible(split) if not path.exists()]:
        raise ValueError(f"{broken[0]} is a link that leads nowhere: mend it, or remove it")
    files = {folder.name: images_in(folder) for folder in folders}
    if empty := [name for name in files if not files[name]]:
        raise ValueError(f"{split / empty[0]} holds no images: put some in, or remove the folder from every split")
    if not files:
        raise ValueError(f"{split} has no class folders: a classifier needs at least 2")
    return files


def _is_image(path: Path) -> bool:
    from PIL import Image

    try:
        with Image.open(path):
            return True
    except Image.DecompressionBombError:  # an image, and too large to open
        return True
    except OSError:
        return False


def _visible(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except PermissionError as error:
        raise ValueError(f"{folder} can't be opened ({error.strerror})") from None


def _read_split(
    folder: Path, files: Files, classes: tuple[str, ...], to_input: Preprocessing
) -> tuple[Images, tuple[str, ...], list[str]]:
    """The images class by class, the file of each in the folder, and a line for each file that can't be read."""
    labelled = [(file, label) for label, name in enumerate(classes) for file in files.get(name, [])]
    shape = (len(labelled), *to_input.image_size, len(to_input.mean))
    pixels = np.zeros(shape, np.uint8)  # (N, H, W, C)
    good: list[int] = []
    wrong: list[str] = []
    for i, result in enumerate(read_all([file for file, _ in labelled], to_input.pixels)):
        if isinstance(result, str):
            wrong.append(result)
        else:
            pixels[len(good)] = result
            good.append(i)
    images = torch.from_numpy(pixels[: len(good)]).permute(0, 3, 1, 2).contiguous()  # (n, C, H, W)
    labels = torch.tensor([labelled[i][1] for i in good], dtype=torch.int64)
    names = tuple(labelled[i][0].relative_to(folder).as_posix() for i in good)
    return Images(images, labels), names, wrong
