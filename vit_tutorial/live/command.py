"""The live page's command line: weights in, a page out."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Mapping
from importlib.resources import files
from pathlib import Path

import safetensors.torch
import torch
from torch import Tensor

from vit_tutorial import data
from vit_tutorial.data import LabelledImages, denormalise
from vit_tutorial.live.html import check_page
from vit_tutorial.live.page import Live, page
from vit_tutorial.live.states import State, restored
from vit_tutorial.options.live import LiveOptions
from vit_tutorial.predict import open_all
from vit_tutorial.weights import load

MOST_TRIED = 200  # pictures whose patches are looked at, for what each part of a model answers to
MOST_NUMBERS = 614_400  # of these pictures, so that the page stays small: 200 photographs of 32 x 32
OWN_TRIED = (20, 40)  # of somebody's own photographs, at least and at most: they are larger
MODELS = {"digits": "digits-patch2"}  # the lessons' digits model has 2 x 2 patches, too few to watch


SETS: dict[str, Callable[[], LabelledImages]] = {  # the test pictures of each model that comes with the package
    "digits": lambda: data.digits().test,
    "digits-patch2": lambda: data.digits().test,
    "shapes": lambda: data.shapes(train=1, test=200).test,
    "cifar10": data.cifar10_pictures,
    "photographs": data.cifar10_pictures,
}


def shipped(name: str = "digits", *, states: bool = False, next_pages: Mapping[str, str] | None = None) -> Live:
    """The page of a model that comes with the package, with a test picture of each class to begin with.

    Args:
        name: "digits" (the one with 4 x 4 patches, ``vt.load("digits-patch2")``), "shapes" or "photographs".
        states: for digits, with a slider from noise to trained, which takes another 1.1 MB.
        next_pages: as :func:`page` has them.

    Raises:
        ValueError: another name.
    """
    weights = MODELS.get(name, name)
    if weights not in SETS:
        raise ValueError(
            f"{name!r} has no pictures of its own here: use digits, shapes or photographs, or live.page(model, samples)"
        )
    model, classes, preprocess = load(weights)
    learned = states_of(weights) if states else None
    return page(
        model,
        samples_of(weights),
        classes,
        preprocess,
        titles=classes,
        tried=tried_on(weights),
        states=learned,
        next_pages=next_pages,
    )


def states_of(weights: str) -> dict[str, State]:
    """What a shipped model's weights were after some epochs (benchmarks/learning_states.py), by name; {}: not known."""
    file = files("vit_tutorial.weights") / "checkpoints" / weights / "states.safetensors"
    if not file.is_file():
        return {}
    packed: dict[int, State] = {}  # by epoch; "scales" has one number for each tensor, in the order of sorted names
    for key, tensor in safetensors.torch.load(file.read_bytes()).items():
        number, _, name = key.partition(".")
        packed.setdefault(int(number), {})[name] = tensor
    steps_and_scales = []
    for epoch in sorted(packed):
        scales = packed[epoch].pop("scales")
        steps_and_scales.append((packed[epoch], dict(zip(sorted(packed[epoch]), scales, strict=True))))
    names = [f"{epoch} epoch{'' if epoch == 1 else 's'}" for epoch in sorted(packed)]
    return dict(zip(names, restored(steps_and_scales), strict=True))


def tried_on(weights: str) -> Tensor:
    """Pictures of the same kind, for what each part of a model answers to: (n, C, H, W) in [0, 1], n at most 200."""
    images = SETS[weights]()
    count = min(len(images), MOST_TRIED, MOST_NUMBERS // images[0][0].numel())
    return images.batch(torch.arange(count))[0]


def samples_of(weights: str) -> Tensor:
    """The first test picture of each class: (K, C, H, W) in [0, 1], of a name in ``SETS``."""
    images = SETS[weights]()
    first = [int((images.labels == label).nonzero()[0]) for label in range(int(images.labels.max()) + 1)]
    return images.batch(torch.tensor(first))[0]


def _of_run(weights: str) -> Live:
    """The page of a model that somebody trained on one of the sets here, with that set's test pictures."""
    training = Path(weights) / "run.json"
    if training.is_file():
        model, classes, preprocess = load(weights)
        name = str(json.loads(training.read_text("utf-8")).get("data")).removesuffix("-jpeg")
        if name in SETS:
            return page(model, samples_of(name), classes, preprocess, titles=classes, tried=tried_on(name))
    raise ValueError(
        f"{weights} has no pictures of its own here: name some, vit-tutorial live PHOTO ... "
        f"--weights {shlex.quote(weights)}, or take digits, shapes or photographs"
    )


def run(options: LiveOptions) -> None:
    """Write the page, and say where.

    Raises:
        ValueError: weights or photographs that can't be shown.
        OSError: weights that can't be fetched, a page that can't be written.
    """
    check_page(options.out)
    weights = MODELS.get(options.weights, options.weights)
    skipped: list[str] = []
    if options.photos:
        made, skipped = _of_photographs(weights, options)
    elif weights in SETS:
        made = shipped(weights, states=True)
    else:
        made = _of_run(weights)
    made.save(options.out)
    if skipped:
        print(f"note: {len(skipped):,} skipped, the others are in the page: {skipped[0]}", file=sys.stderr)
    print(f"{options.out}: {weights}, {options.out.stat().st_size / 1e6:.1f} MB, open it in a browser")


def _of_photographs(weights: str, options: LiveOptions) -> tuple[Live, list[str]]:
    """The page of a model with somebody's own photographs, and a line for each that can't be read."""
    names, photos, skipped = open_all(options.photos)
    model, classes, preprocess = load(weights, image_size=options.image_size)
    images = torch.cat([preprocess(photo) for photo in photos])  # (B, C, H, W)
    titles = [Path(path).name.encode(errors="replace").decode() for path in names]
    samples = denormalise(images, preprocess).clamp(0, 1)
    least, most = OWN_TRIED
    tried = samples[:most] if len(samples) >= least else None
    return page(model, samples, classes or None, preprocess, titles=titles, tried=tried), skipped
