"""The Vision Transformer (arXiv 2010.11929), one module a lesson.

>>> import torch, vit_tutorial as vt
>>> model = vt.ViT(vt.ViTConfig.preset("Ti/16", num_classes=10)).eval()
>>> model(torch.rand(1, 3, 224, 224)).shape
torch.Size([1, 10])

The map: lesson, module, and what is in it.

| 01 | patches       | An image becomes a sequence of patches, and each patch a vector.
| 02 | embeddings    | The class token, the positions, and positions for another image size.
| 03 | attention     | Self-attention, one head and many.
| 04 | mlp           | What an encoder block does to each token alone.
| 05 | encoder       | A block: attention and MLP, each behind a norm and beside a shortcut.
| 06 | vit           | The whole model, the paper's sizes, parameters and operations counted.
| 07 | data          | Sets of pictures, one call each: digits, scenes, downloads, a folder of your own.
| 07 | recipe        | Every choice of a training run, in one record.
| 07 | augment       | Random changes to training images.
| 07 | train         | Training, on a laptop or on many machines.
| 07 | train_command | Training from the command line.
| 08 | explain       | What a trained model looks at, and how well that points.
| 08 | explorer      | The same as a page to explore: every patch, layer and head.
| 09 | unwrap        | The weights inside a training checkpoint.
| 09 | convert       | Every library's names for the same weights.
| 09 | configs       | What a library's config.json tells beside the weights, key by key.
| 09 | weights       | Published weights as a model of this package.
| 09 | predict       | What is in a photograph, from the command line.
| 11 | positions     | Five ways to tell a ViT where its patches lie, in three places.
| 12 | hybrid        | Tokens from the feature map of a convolutional network.
| 12 | resnet        | A small residual network, to stand beside a ViT.
| 13 | selfsup       | Learning without labels: masked patches, and a masked autoencoder.
| 14 | scaling       | How quality grows with size: a power law, its interval, a prediction; real speed.
| 15 | modern        | What came after 2020: DINOv2, DINOv3, CLIP, SigLIP, EVA-02, BEiT.
| 15 | convert_modern | Their names for the same weights.
| 15 | configs_modern | What their config.json tells beside the weights.
| -- | live          | The model itself in a page: draw, watch each step, change it.
| -- | files         | Trained models on disk, read without running their code.
| -- | runs          | What makes a training run repeatable: order, chance and the state on disk.
| -- | precision     | Whether bfloat16 is quicker here than float32.
| -- | scenes        | How the scenes of the data set "shapes" are drawn.
| -- | plots         | Every figure, from arrays.
| -- | drawings      | The figures drawn from a config's sizes.
| -- | hybrid_figures | The figures of lesson 12.
| -- | scaling_figures | The figures of lesson 14.
| -- | style         | The colours and type of all figures.
| -- | checks        | The exercises' checks: right, or which mistake.

``vt.attention`` is the function, so ``import vit_tutorial.attention as m`` gives the function, too. The module of the
same name is ``importlib.import_module("vit_tutorial.attention")``; ``from vit_tutorial.attention import ...`` works as
everywhere.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import TYPE_CHECKING, Any

from vit_tutorial.attention import MultiHeadSelfAttention, attention
from vit_tutorial.embeddings import Embeddings, resize_position_embedding, sincos_position_embedding
from vit_tutorial.encoder import DropPath, EncoderBlock
from vit_tutorial.mlp import MLP
from vit_tutorial.patches import PatchEmbedding, patchify, unpatchify
from vit_tutorial.vit import ViT, ViTConfig, count_macs, count_parameters

if TYPE_CHECKING:  # for mypy and editors: a line a module that isn't imported above
    from vit_tutorial import augment as augment
    from vit_tutorial import checks as checks
    from vit_tutorial import configs as configs
    from vit_tutorial import configs_modern as configs_modern
    from vit_tutorial import convert as convert
    from vit_tutorial import convert_modern as convert_modern
    from vit_tutorial import data as data
    from vit_tutorial import drawings as drawings
    from vit_tutorial import explain as explain
    from vit_tutorial import explorer as explorer
    from vit_tutorial import files as files
    from vit_tutorial import hybrid as hybrid
    from vit_tutorial import hybrid_figures as hybrid_figures
    from vit_tutorial import live as live
    from vit_tutorial import modern as modern
    from vit_tutorial import plots as plots
    from vit_tutorial import positions as positions
    from vit_tutorial import precision as precision
    from vit_tutorial import predict as predict
    from vit_tutorial import recipe as recipe
    from vit_tutorial import resnet as resnet
    from vit_tutorial import runs as runs
    from vit_tutorial import scaling as scaling
    from vit_tutorial import scaling_figures as scaling_figures
    from vit_tutorial import scenes as scenes
    from vit_tutorial import selfsup as selfsup
    from vit_tutorial import style as style
    from vit_tutorial import train as train
    from vit_tutorial import train_command as train_command
    from vit_tutorial import unwrap as unwrap
    from vit_tutorial import weights as weights
    from vit_tutorial.weights import load as load

__version__ = "0.1.0"
_FORMER = {"names"}  # modules that only pass on to a new name, and say so
_MODULES = {module.name for module in pkgutil.iter_modules(__path__) if module.name[0] != "_"} - _FORMER
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
    "count_macs",
    "count_parameters",
    "load",
    "patchify",
    "resize_position_embedding",
    "sincos_position_embedding",
    "unpatchify",
]
__all__ += sorted(_MODULES - set(__all__))


def __getattr__(name: str) -> Any:
    # Loaded at first use: the model needs torch alone, and matplotlib would double the time of the import.
    if name in _MODULES:
        return importlib.import_module(f"vit_tutorial.{name}")
    if name == "load":
        return importlib.import_module("vit_tutorial.weights").load
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
