"""Lesson 07: every choice that decides the result of a training run, in one dataclass.

``train.fit`` takes it, the command line has an option of the same name for each field, and a run's state stores it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Literal, get_args

from torch import nn

from vit_tutorial.data.augment import Augmentation, ImageChange, Mix

Precision = Literal["fp32", "bf16"]


@dataclass(frozen=True)
class Recipe:
    """How a model is trained: AdamW, a linear warm-up, a cosine, and what else the fields say.

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

    learning_rate: float = 1e-3
    """AdamW's, at its peak after the warm-up."""

    weight_decay: float = 0.05
    """AdamW's, on matrices and kernels (see :func:`vit_tutorial.train.parameter_groups`)."""

    warmup_epochs: float = 1
    """Epochs in which the learning rate grows linearly, 0 to ``epochs``; on the command line at most half of them."""

    label_smoothing: float = 0.1
    """Share in [0, 1) of a label's probability that is divided among all classes (arXiv 1512.00567)."""

    clip: float = 1.0
    """Maximum gradient norm; ``math.inf`` for no clipping."""

    ema: float = 0.0
    """Decay per step in [0, 1) of the weights' exponential moving average, which is tested and kept; 0 for none."""

    augment: str | Augmentation | ImageChange | None = None
    """A name as in "crop+flip" ("default": the data set's own), an augmentation, or a function from an image (C, H, W)
    in [0, 1] to another one, random only through torch's generator; None for none."""

    mix: Mix | None = None
    """A batch -> a batch, as torchvision's MixUp and CutMix do; each process mixes its own share of it. None: as in
    ``augment``."""

    seed: int = 0
    """Of the order of the images, the augmentation and dropout; on the command line, of the first weights, too."""

    precision: Precision = "fp32"
    """"fp32", or "bf16" (autocast)."""

    compile: bool = False
    """Whether to use torch.compile."""

    freeze: bool = False
    """Whether to train the head alone, and leave the rest as it is: quick, and hard to spoil."""

    head_first: int = 0
    """Epochs in which only the head changes; then all does. A new head of zeros would otherwise spoil the features
    that it can't read yet (arXiv 2202.10054)."""

    layer_decay: float = 1.0
    """Factor in (0, 1] of the learning rate from each block to the one below it; 1 for the same rate everywhere. The
    first blocks of a trained model need the least change (BEiT, arXiv 2106.08254)."""

    lora: int = 0
    """Rank of LoRA (arXiv 2106.09685): the head and a thin product beside each matrix of attention are trained, and
    merged at the end; 0 for none."""

    def __post_init__(self) -> None:
        for name, least in (("epochs", 1), ("batch_size", 1), ("seed", 0), ("head_first", 0), ("lora", 0)):
            value = getattr(self, name)
            if not isinstance(value, int) or not least <= value < 2**63:
                raise ValueError(f"{name} must be a whole number from {least} (and below 2^63), got {value!r}")
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
                number = value if isinstance(value, int) else float(value)  # NumPy's, or "inf" as config.json has it
            except (TypeError, ValueError):
                raise TypeError(f"{name} must be a number, got {value!r}") from None
            if not inside(number):
                raise ValueError(f"{name} must be {rule}, got {value!r}")
            object.__setattr__(self, name, number)
        if self.head_first >= self.epochs:
            raise ValueError(
                f"head_first must be less than epochs={self.epochs}, got {self.head_first}: freeze trains the head "
                "alone throughout"
            )
        if self.lora and (self.freeze or self.head_first or self.layer_decay < 1):
            raise ValueError(
                f"lora={self.lora} trains the head and the products beside attention's matrices: leave freeze, "
                "head_first and layer_decay out"
            )
        if self.precision not in get_args(Precision):
            raise ValueError(f"precision must be one of {', '.join(get_args(Precision))}, got {self.precision!r}")

    def settings(self) -> dict[str, Any]:
        """The fields as plain values, for a file; an augmentation by its name, which is the same in every process."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return values | {"augment": name_of(self.augment), "mix": name_of(self.mix)}


def name_of(thing: object) -> str:
    """The name of a model or an augmentation in a file, without an address, which would differ in the next process."""
    if thing is None:
        return "none"
    if isinstance(thing, str):
        return thing
    if isinstance(thing, Augmentation):
        return thing.name
    if isinstance(thing, nn.Module):
        return repr(getattr(thing, "config", thing))
    if is_dataclass(thing):
        return repr(thing)
    return str(getattr(thing, "__qualname__", type(thing).__qualname__))
