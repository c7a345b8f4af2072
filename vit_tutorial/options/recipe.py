"""Lesson 07: every choice that decides the result of a training run, in one dataclass, and the recipe of each data set.

``train.fit`` takes a recipe, the command line has an option of the same name for each field, and a run's state stores
it. This module doesn't import torch, so that the command line checks its arguments at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral
from typing import Literal, get_args

Precision = Literal["fp32", "bf16"]
Keep = Literal["last", "best"]
Tracker = Literal["tensorboard", "wandb"]
AUGMENTATIONS = ("affine", "crop", "flip", "randaugment", "mixup", "cutmix")  # in the order in which they are applied
STRONG = "crop+flip+randaugment+mixup+cutmix"


@dataclass(frozen=True)
class Recipe:
    """How a model is trained: AdamW, a linear warm-up, then a cosine.

    The defaults are DeiT's recipe (arXiv 2012.12877, table 9) for small data; gradients are clipped at a norm of 1 as
    in the ViT paper's training on ImageNet (table 3).

    Raises:
        ValueError: a field out of its range, or no whole number where one is needed: which, and the range.
        TypeError: another field that must be a number and isn't.
    """

    epochs: int
    """Passes over the training images; each drops the last, incomplete batch."""

    batch_size: int = 64
    """Images per step, over all processes together."""

    accumulate: int = 1
    """Parts of a batch that are computed one after another, their gradients added: so much less memory."""

    learning_rate: float = 1e-3
    """AdamW's, at its peak after the warm-up."""

    weight_decay: float = 0.05
    """AdamW's, on matrices and kernels."""

    warmup_epochs: float = 1
    """Epochs in which the learning rate grows linearly; a cosine follows."""

    label_smoothing: float = 0.1
    """The part in [0, 1) of a label's probability that is divided among all classes (arXiv 1512.00567)."""

    class_weights: bool = False
    """Let each class count the same in the loss, however many images it has."""

    clip: float = 1.0
    """Maximum gradient norm; inf: no clipping."""

    ema: float = 0.0
    """Decay per step in [0, 1) of the weights' exponential moving average, which is tested and saved; 0: none."""

    keep: Keep = "last"
    """The weights that a run ends with: those after its last epoch, or after the one with the best accuracy on the
    validation images (--validation)."""

    augment: str = "none"
    """Random changes to the training images: none, or parts joined by +: affine, crop, flip, randaugment, mixup,
    cutmix; "default": the data set's own."""

    seed: int = 0
    """Seed of the order of the images, the augmentation and dropout; on the command line of the first weights, too."""

    precision: Precision = "fp32"
    """bf16: half the memory, less exact (autocast); a CPU without instructions for it takes longer."""

    recompute: bool = False
    """Activation checkpointing: forget what each block computed, and compute it again in the backward pass. It takes
    less memory and more time, and changes no gradient."""

    compile: bool = False
    """Use torch.compile: minutes to start, then faster."""

    freeze: bool = False
    """Train the head alone, and leave the rest as it is: quick, and hard to spoil."""

    head_first: int = 0
    """Epochs in which only the head changes; then all does. A new head of zeros would otherwise spoil the features
    that it can't read yet (arXiv 2202.10054)."""

    layer_decay: float = 1.0
    """Factor in (0, 1] of the learning rate from each block to the one below it; 1: the same rate everywhere. The
    first blocks of a trained model need the least change (BEiT, arXiv 2106.08254)."""

    def __post_init__(self) -> None:
        for name, least in (("epochs", 1), ("batch_size", 1), ("accumulate", 1), ("seed", 0), ("head_first", 0)):
            value = getattr(self, name)
            if not isinstance(value, Integral) or isinstance(value, bool) or not least <= int(value) < 2**63:
                raise ValueError(f"{name} must be a whole number from {least} (and below 2^63), got {value!r}")
            object.__setattr__(self, name, int(value))  # NumPy's whole numbers, too
        for name in ("recompute", "compile", "freeze", "class_weights"):
            if not isinstance(getattr(self, name), bool):
                raise TypeError(f"{name} must be True or False, got {getattr(self, name)!r}")
        self._check_ranges()
        if self.head_first >= self.epochs:
            raise ValueError(
                f"head_first must be less than epochs={self.epochs}, got {self.head_first}: freeze trains the head "
                "alone throughout"
            )
        for name, choices in (("precision", get_args(Precision)), ("keep", get_args(Keep))):
            if getattr(self, name) not in choices:
                raise ValueError(f"{name} must be one of {', '.join(choices)}, got {getattr(self, name)!r}")
        check_augment(self.augment)

    def _check_ranges(self) -> None:
        ranges: dict[str, tuple[Callable[[float], bool], str]] = {
            "learning_rate": (lambda x: 0 < x < math.inf, "above 0; 1e-3 is a good start"),
            "weight_decay": (lambda x: 0 <= x < math.inf, "0 or more"),
            "warmup_epochs": (lambda x: 0 <= x <= self.epochs, f"from 0 to the number of epochs, {self.epochs}"),
            "label_smoothing": (lambda x: 0 <= x < 1, "in [0, 1); 0 switches it off"),
            "clip": (lambda x: x > 0, "above 0; inf switches it off"),
            "ema": (lambda x: 0 <= x < 1, "in [0, 1); 0 switches it off"),
            "layer_decay": (lambda x: 0 < x <= 1, "in (0, 1]; 1 is the same rate everywhere"),
        }
        for name, (inside, rule) in ranges.items():
            value = getattr(self, name)
            try:
                number = value if isinstance(value, int) else float(value)  # NumPy's numbers, and "inf" from JSON
            except (TypeError, ValueError):
                raise TypeError(f"{name} must be a number, got {value!r}") from None
            if not inside(number):
                raise ValueError(f"{name} must be {rule}, got {value!r}")
            object.__setattr__(self, name, number)


def check_augment(name: str) -> None:
    """Raise a ValueError for a name that isn't "none", "default", or parts of :data:`AUGMENTATIONS` joined by "+"."""
    if not isinstance(name, str):
        raise TypeError(f"augment must be a name, got {name!r}: fit's augmentation= takes functions")
    unknown = [part for part in name.split("+") if part not in AUGMENTATIONS]
    if unknown and name not in ("none", "default"):
        raise ValueError(
            f"{unknown[0]!r} is not an augmentation: use none, default, or some of {', '.join(AUGMENTATIONS)}, "
            "joined by +"
        )


RECIPES = {  # of the data sets by name
    "digits": Recipe(epochs=60, learning_rate=3e-3, warmup_epochs=5, augment="affine"),
    "shapes": Recipe(epochs=15, learning_rate=2e-3, augment="flip"),
    "cifar10": Recipe(epochs=300, batch_size=256, warmup_epochs=10, augment=STRONG),
}
FOLDER_RECIPE = Recipe(epochs=60, learning_rate=5e-4, warmup_epochs=5, augment=STRONG)  # your own images, from scratch
# A model that has been trained already, on other images: fewer epochs, milder changes, and a rate that leaves the first
# blocks nearly as they are.
FINE_TUNING = Recipe(
    epochs=15, batch_size=32, learning_rate=1e-3, warmup_epochs=1, augment="crop+flip", layer_decay=0.75
)
# With freeze: the head alone takes a larger rate, and has no layers below it.
HEAD_ALONE = Recipe(epochs=15, batch_size=32, learning_rate=1e-2, warmup_epochs=1, augment="crop+flip")
