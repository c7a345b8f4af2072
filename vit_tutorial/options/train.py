"""The options of ``vit-tutorial train``."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from vit_tutorial.options.recipe import FINE_TUNING, FOLDER_RECIPE, HEAD_ALONE, RECIPES, Recipe, Tracker

Architecture = Literal["vit", "deit3", "beit", "clip", "siglip", "eva02", "dinov2", "dinov3"]
Number = Annotated[int | None, tyro.conf.arg(metavar="INT")]
Fraction = Annotated[float | None, tyro.conf.arg(metavar="FLOAT")]
Text = Annotated[str | None, tyro.conf.arg(metavar="TEXT")]
MAX_WORKERS = 256  # each is a process


@dataclass(frozen=True)
class ModelOptions:
    """A model from scratch; by default the data set's own, or with a folder that of folders."""

    size: Text = None
    """Ti, S, B, L or H and a patch size, as in Ti/4; sets all from --patch-size to --mlp-dim."""

    arch: Architecture = "vit"
    """vit: the paper's; the others have the parts of that modern model (lesson 15)."""

    patch_size: Number = None
    """Height and width of a patch in pixels."""

    dim: Number = None
    """Width."""

    depth: Number = None
    """Blocks."""

    num_heads: Number = None
    """Attention heads, a divisor of the width."""

    mlp_dim: Number = None
    """Hidden width of the MLP."""

    drop_path: Fraction = None
    """Stochastic depth: the probability of the last block."""

    stem: Text = None
    """3 x 3 convolutions before the tokens, each as channels x stride: 32x1,64x2,128x2; the product of the strides must
    divide the patch size."""

    def __post_init__(self) -> None:
        if self.stem:
            stem_layers(self.stem)
            if self.arch != "vit":
                raise ValueError(f"--stem goes with --arch vit, got --arch {self.arch}")

    def config_fields(self) -> dict[str, Any]:
        """The fields of ViTConfig that were chosen one by one."""
        others = ("size", "arch", "stem")
        return {name: value for name, value in vars(self).items() if name not in others and value is not None}


@dataclass(frozen=True)
class TrainOptions:
    """Where the data, the model and the results of a training are."""

    out: Path
    """Folder for the state and the results."""

    data: str = "digits"
    """digits, shapes, cifar10; a folder with train/ and test/ (or val/), and in each a folder per class; with
    --test-fraction a folder of classes. What doesn't fit into memory is read from the disk: hf://owner/name, a data set
    of Hugging Face, or a folder of WebDataset shards, train*.tar, test*.tar and classes.txt."""

    root: Path = Path("data")
    """Folder for downloads."""

    image_size: Number = None
    """Height and width of a folder's images in pixels; with --weights the positions are resized to it."""

    test_fraction: Fraction = None
    """Part of each class to test on, as in 0.2, for a folder of classes without splits."""

    validation: Fraction = None
    """Part of each class's training images, as in 0.1, to hold out and validate on after every epoch; the test split
    is then used once, at the end."""

    workers: int = 0
    """Extra processes that load images."""

    resume: bool = False
    """Continue from the last epoch in --out, or start."""

    log_with: Tracker | None = None
    """Log each epoch with TensorBoard, in the folder --out, or with Weights & Biases."""

    weights: Text = None
    """Fine-tune a trained model: a name as for predict; it brings the whole model and its preprocessing."""

    batch_size_given: tyro.conf.Suppress[bool] = False
    """Whether --batch-size was typed: then few images don't change it."""

    model: ModelOptions = field(default_factory=ModelOptions)
    """Without --weights, the model to train."""

    def __post_init__(self) -> None:
        if not self.out.name:
            raise ValueError(f"--out is empty or this folder: name it, as in --out {Path.cwd()}")
        if not self.data:
            raise ValueError("--data is empty: name a data set or a folder")
        if not 0 <= self.workers <= MAX_WORKERS:
            raise ValueError(f"--workers must be from 0 to {MAX_WORKERS}, got {self.workers}")
        for name in ("test_fraction", "validation"):
            fraction = getattr(self, name)
            if fraction is not None and not 0 < fraction < 1:
                raise ValueError(f"--{name.replace('_', '-')} must be above 0 and below 1, got {fraction}")
        if self.test_fraction is not None and self.data in RECIPES:
            raise ValueError(f"--test-fraction is for a folder of images: {self.data} has a test split of its own")
        if self.weights == "":
            raise ValueError("--weights is empty: name a model")
        for option in fields(ModelOptions):
            if self.weights is not None and getattr(self.model, option.name) != option.default:
                raise ValueError(f"--weights brings the whole model: leave --{option.name.replace('_', '-')} out")


def stem_layers(text: str) -> list[tuple[int, int]]:
    """``32x1,64x2``: two convolutions, of 32 channels with stride 1, and of 64 with stride 2."""
    try:
        layers = [(int(channels), int(stride)) for channels, stride in (layer.split("x") for layer in text.split(","))]
    except ValueError:
        layers = []
    if not layers or min(min(layer) for layer in layers) < 1:
        raise ValueError(f"--stem needs channels x stride, as in 32x1,64x2, got {text!r}")
    return layers


def default_recipe(data: str, weights: str | None, freeze: bool, epochs: int | None = None) -> Recipe:
    """The recipe of a data set, or that of fine-tuning; its warm-up is at most half of the epochs."""
    if freeze:
        recipe = HEAD_ALONE
    elif weights is not None:
        recipe = FINE_TUNING
    else:
        recipe = RECIPES.get(data, FOLDER_RECIPE)
    half = max(recipe.epochs if epochs is None else epochs, 0) / 2
    return replace(recipe, warmup_epochs=min(recipe.warmup_epochs, half))


def check_options(options: TrainOptions, recipe: Recipe) -> None:
    """Raise a ValueError for options that don't go together."""
    if recipe.freeze and options.weights is None:
        raise ValueError("--freeze needs --weights: a model from scratch has nothing worth keeping")
    if recipe.keep == "best" and options.validation is None:
        raise ValueError("--keep best needs --validation 0.1: an epoch that is chosen by the test images looks better")
