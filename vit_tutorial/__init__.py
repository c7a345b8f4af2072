"""The Vision Transformer (arXiv 2010.11929), one module a lesson.

>>> import torch, vit_tutorial as vt
>>> model = vt.ViT(vt.ViTConfig.preset("Ti/16", num_classes=10)).eval()
>>> model(torch.rand(1, 3, 224, 224)).shape
torch.Size([1, 10])
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from vit_tutorial.attention import MultiHeadSelfAttention, attention
from vit_tutorial.embeddings import Embeddings, resize_position_embedding, sincos_position_embedding
from vit_tutorial.encoder import DropPath, EncoderBlock
from vit_tutorial.mlp import MLP
from vit_tutorial.patches import PatchEmbedding, patchify, unpatchify
from vit_tutorial.vit import ViT, ViTConfig, count_macs, count_parameters

if TYPE_CHECKING:
    from vit_tutorial import checks, data, explain, explorer, plots, train, weights
    from vit_tutorial.weights import load

__version__ = "0.1.0"
__all__ = [
    "MLP",
    "DropPath",
    "Embeddings",
    "EncoderBlock",
    "MultiHeadSelfAttention",
    "PatchEmbedding",
    "ViT",
    "ViTConfig",
    "attention",
    "checks",
    "count_macs",
    "count_parameters",
    "data",
    "explain",
    "explorer",
    "load",
    "patchify",
    "plots",
    "resize_position_embedding",
    "sincos_position_embedding",
    "train",
    "unpatchify",
    "weights",
]


def __getattr__(name: str) -> Any:
    # Loaded at first use: the model needs torch alone, and matplotlib would double the time of the import.
    if name in ("checks", "data", "explain", "explorer", "plots", "train", "weights"):
        return importlib.import_module(f"vit_tutorial.{name}")
    if name == "load":
        return importlib.import_module("vit_tutorial.weights").load
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
