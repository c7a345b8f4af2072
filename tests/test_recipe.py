"""The recipe: what it refuses, what a file keeps of it, and one word for one thing everywhere."""

import functools
import json
import math
from dataclasses import FrozenInstanceError, fields, replace

import numpy as np
import pytest
from torch import nn

from vit_tutorial import ViT, ViTConfig
from vit_tutorial.data.augment import Affine, by_name
from vit_tutorial.data.recipe import Recipe, name_of


@pytest.mark.parametrize(
    ("name", "values"),
    {
        "epochs": (0, 1.5, "3"),
        "batch_size": (0, -8, 2.0),
        "learning_rate": (0.0, math.nan, math.inf),
        "weight_decay": (-1, math.inf),
        "warmup_epochs": (4, -1, math.nan),
        "label_smoothing": (1.0, -0.1, math.nan),
        "clip": (0.0, math.nan, -1),
        "ema": (1.0, -0.1, math.nan),
        "seed": (-1, 0.5),
        "precision": ("fp16", None),
    }.items(),
)
def test_refuses(refuses, name, values):
    for value in values:
        with refuses(ValueError, name, repr(value)):
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


def test_a_file_keeps_plain_values():
    recipe = Recipe(epochs=3, learning_rate=np.float32(0.5), ema=np.float64(0.25), augment=Affine(), mix=noise)
    settings = recipe.settings()
    assert json.loads(json.dumps(settings)) == settings
    assert list(settings) == [field.name for field in fields(Recipe)]
    assert (settings["augment"], settings["mix"], settings["learning_rate"]) == ("Affine(strength=0.1)", "noise", 0.5)


def noise(image):
    return image


class Halve:
    def __call__(self, image):
        return image / 2


def test_names_are_the_same_in_every_process():
    config = ViTConfig(image_size=4, patch_size=2, dim=8, depth=1, num_heads=2, mlp_dim=8)
    assert name_of(None) == "none"
    assert name_of("crop+flip") == "crop+flip"
    assert name_of(by_name("crop+flip", (4, 4), 2)) == "crop+flip"
    assert name_of(Affine(0.2)) == "Affine(strength=0.2)"
    assert name_of(noise) == "noise"
    assert name_of(ViT(config)) == repr(config)
    assert name_of(nn.Linear(2, 3)) == "Linear(in_features=2, out_features=3, bias=True)"
    for thing in (Halve(), functools.partial(noise)):
        assert "0x" not in name_of(thing)
