"""The live page's command line: weights in, a page out."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from vit_tutorial import data
from vit_tutorial.data import Images, denormalise
from vit_tutorial.live.page import page
from vit_tutorial.predict import find, open_photo
from vit_tutorial.scenes import TARGETS
from vit_tutorial.weights import load

PROG = "python -m vit_tutorial.live"
MODELS = {"digits": "digits-patch2"}  # the lessons' digits model has 2 x 2 patches, too few to watch


def parser(*, prog: str = PROG) -> argparse.ArgumentParser:
    """The command line: weights, photographs to begin with, where to write."""
    p = argparse.ArgumentParser(
        prog=prog,
        description="Write a page that runs a model: draw or drop a picture, watch each step, change the model.",
    )
    p.add_argument(
        "photos", nargs="*", metavar="PHOTO", help="pictures to begin with; none: some of the model's own test split"
    )
    p.add_argument(
        "--weights",
        default="digits",
        metavar="NAME",
        help="digits (the model with 4 x 4 patches, digits-patch2), shapes, cifar10, or as for python -m "
        "vit_tutorial.predict (default: digits)",
    )
    p.add_argument("--out", type=Path, default=Path("live.html"), help="the page (default: live.html)")
    return p


# Of each shipped model: its test pictures, and the names of their classes.
SETS: dict[str, Callable[[], tuple[Images, tuple[str, ...]]]] = {
    "digits": lambda: (data.digits().test, data.digits().classes),
    "digits-patch2": lambda: (data.digits().test, data.digits().classes),
    "shapes": lambda: (data.shapes(train=1, test=40).test, TARGETS),
    "cifar10": lambda: (data.cifar10_pictures(), data.CIFAR10_CLASSES),
}


def samples_of(weights: str) -> tuple[Tensor, tuple[str, ...]]:
    """A test picture of each class of a shipped model's data, (K, C, H, W) in [0, 1], and their names.

    Raises:
        ValueError: a model that has none of its own.
    """
    if weights not in SETS:
        raise ValueError(f"{weights} has no pictures of its own here: name some to begin with, as in live photo.jpg")
    images, classes = SETS[weights]()
    first = [int((images.labels == label).nonzero()[0]) for label in range(len(classes))]
    return images.batch(torch.tensor(first))[0], classes


def main(arguments: Sequence[str] | None = None, *, prog: str = PROG) -> None:
    """Write the page, and say where."""
    args = parser(prog=prog).parse_args(arguments)
    try:
        files, wrong = find(args.photos) if args.photos else ([], [])
        if wrong:
            raise ValueError("; ".join(wrong))
        weights = MODELS.get(args.weights, args.weights)
        model, classes, preprocess = load(weights)
        if files:
            images = torch.cat([preprocess(open_photo(path)) for path in files])  # (B, C, H, W)
            samples = denormalise(images, preprocess).clamp(0, 1)
            titles = tuple(Path(path).name.encode(errors="replace").decode() for path in files)
        else:
            samples, titles = samples_of(weights)
        page(model, samples, classes or None, preprocess, titles=titles).save(args.out)
        print(f"{args.out}: {weights}, {args.out.stat().st_size / 1e6:.1f} MB, open it in a browser")
    except (ValueError, OSError) as error:
        raise SystemExit(f"error: {error}") from error
    except KeyboardInterrupt:
        raise SystemExit("stopped") from None
