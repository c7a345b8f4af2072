"""The book's recipes run, with the model that they name, with every other that comes with the package, and a folder."""

import re
from pathlib import Path

import pytest
import timm
import torch
from timm.models import save_for_hf

import vit_tutorial as vt
from vit_tutorial.data import Data, Images

ROOT = Path(__file__).parents[1]
SECTIONS = (ROOT / "book" / "recipes.md").read_text("utf-8").split("\n## ")[1:]
RECIPES = {section.partition("\n")[0]: re.search(r"```python\n(.+?)```", section, re.DOTALL)[1] for section in SECTIONS}
LOAD = 'vt.load("shapes")'
SHIPPED = [folder.name for folder in (ROOT / "vit_tutorial" / "weights" / "checkpoints").iterdir()]
RUNS = [(title, name) for title, code in RECIPES.items() for name in [*SHIPPED, "timm's"] if LOAD in code]
SIZES = {"img_size": 32, "patch_size": 8, "embed_dim": 24, "depth": 2, "num_heads": 2, "num_classes": 5}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder as timm writes it for the hub."""
    folder = tmp_path_factory.mktemp("timm")
    save_for_hf(timm.create_model("vit_tiny_patch16_224", **SIZES), folder, model_args=SIZES, safe_serialization=True)
    return str(folder)


def noise_for(model):
    """40 pictures of noise that the model takes, of two classes, and 10 to test on."""
    C, size = model.config.in_channels, model.config.image_size
    splits = [Images(torch.randint(256, (n, C, *size), dtype=torch.uint8), torch.arange(n) % 2) for n in (40, 10)]
    return Data("noise", *splits, ("a", "b"), size, C, (0.5,) * C, (0.5,) * C)


@pytest.mark.parametrize("title", [title for title, code in RECIPES.items() if LOAD not in code])
def test_a_recipe_without_weights(title):
    exec(RECIPES[title], {})


@pytest.mark.filterwarnings("ignore:.*assumed", "ignore:'pin_memory'")
@pytest.mark.parametrize(("title", "name"), RUNS)
def test_a_recipe_takes_other_weights(title, name, folder, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    name = folder if name == "timm's" else name
    model = vt.load(name).model
    if name != "shapes":
        monkeypatch.setattr(vt.data, "shapes", lambda train: noise_for(model))
    exec(RECIPES[title].replace(LOAD, f"vt.load({name!r})"), {})
    assert isinstance(model.config.image_size, tuple)
