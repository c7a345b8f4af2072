"""The recipe: what it refuses, and its values in a file."""

import json
import math
from dataclasses import FrozenInstanceError, asdict, replace

import numpy as np
import pytest

from vit_tutorial.options.recipe import Recipe


@pytest.mark.parametrize(
    ("name", "values"),
    {
        "epochs": (0, 1.5, "3", True),
        "batch_size": (0, -8, 2.0),
        "learning_rate": (0.0, math.nan, math.inf),
        "weight_decay": (-1, math.inf),
        "warmup_epochs": (4, -1, math.nan),
        "label_smoothing": (1.0, -0.1, math.nan),
        "clip": (0.0, math.nan, -1),
        "ema": (1.0, -0.1, math.nan),
        "seed": (-1, 0.5),
        "precision": ("fp16", None),
        "keep": ("first", None),
        "accumulate": (0, 1.5),
    }.items(),
)
def test_refuses(refuses, name, values):
    for value in values:
        with refuses(ValueError, name, repr(value)):
            Recipe(**{"epochs": 3, name: value})


@pytest.mark.parametrize("name", ["freeze", "compile", "recompute", "class_weights"])
def test_a_switch_is_true_or_false(refuses, name):
    for value in ("no", 1, None):
        with refuses(TypeError, name, "True or False", repr(value)):
            Recipe(**{"epochs": 3, name: value})


@pytest.mark.parametrize("name", ["learning_rate", "clip", "ema"])
def test_refuses_what_is_no_number(refuses, name):
    for value in ("fast", None, [1]):
        with refuses(TypeError, name, "number", repr(value)):
            Recipe(**{"epochs": 3, name: value})


def test_what_is_on_the_edge_is_good():
    Recipe(epochs=1, warmup_epochs=1, clip=math.inf, ema=0, label_smoothing=0, weight_decay=0, batch_size=1)


def test_it_is_frozen_and_checked_again_when_changed(refuses):
    recipe = Recipe(epochs=3)
    with pytest.raises(FrozenInstanceError):
        recipe.epochs = 4
    with refuses(ValueError, "warmup_epochs", "3"):
        replace(recipe, warmup_epochs=3.5)


def test_a_file_gets_plain_values():
    recipe = Recipe(epochs=3, learning_rate=np.float32(0.5), ema=np.float64(0.25), augment="affine")
    settings = asdict(recipe)
    assert json.loads(json.dumps(settings)) == settings
    assert (settings["augment"], settings["learning_rate"]) == ("affine", 0.5)
    assert Recipe(**settings) == recipe


@pytest.mark.parametrize("name", ["cutout", "crop+", "crop+none", "", "Flip"])
def test_refuses_an_unknown_augmentation(refuses, name):
    with refuses(ValueError, repr(name.split("+")[-1]), "affine, crop, flip", "none"):
        Recipe(epochs=1, augment=name)
