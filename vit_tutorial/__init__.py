"""The Vision Transformer (arXiv 2010.11929) from pixels to published weights, with a module for each lesson.

>>> import torch, vit_tutorial as vt
>>> model = vt.ViT(vt.ViTConfig.preset("Ti/16", num_classes=10)).eval()
>>> model(torch.rand(1, 3, 224, 224)).shape
torch.Size([1, 10])

Six modules stand here, need torch alone, and can be copied. The rest is in rooms:

| 01     | patches             | An image becomes a sequence of patches, and each patch a vector.
| 02     | embeddings          | The class token, the positions, and positions for another image size.
| 03     | attention           | Self-attention, one head and many.
| 04     | mlp                 | What an encoder block does to each token by itself.
| 05     | encoder             | A block: attention and MLP, each after a norm and beside a skip connection.
| 06     | vit                 | The whole model, the paper's sizes, parameters and operations counted.
| 07     | data                | Pictures, how they become tensors, and the recipe that a run on them starts from.
| 07, 10 | train               | From data to a trained model, on a laptop or on many machines.
| 08     | analysis.explain    | What a trained model looks at, and how well that points.
| 09     | predict             | What photographs show, from the command line.
| 09, 10 | weights             | From a file to a model, and back: every library's names and configs.
| 11     | variants.positions  | Five kinds of positions, in three places.
| 12     | variants.hybrid     | Tokens from the feature map of a convolutional network.
| 12     | variants.resnet     | A small residual network, to stand beside a ViT.
| 13     | variants.selfsup    | Learning without labels: masked patches, and a masked autoencoder.
| 14     | analysis.scaling    | How quality grows with size: a power law, its interval, a prediction.
| 15     | variants.modern     | What came after 2020: DINOv2, DINOv3, CLIP, SigLIP, EVA-02, BEiT.
| 15     | variants.modern_config | The config of such a model, and the configs of the well-known ones.
| 16     | analysis.dense      | What each patch knows: masks, maps and matches from frozen tokens.
| 17     | variants.text       | The text towers of CLIP and SigLIP.
| 17     | variants.words      | Pictures and words in one space: two towers, CLIP's loss, SigLIP's.
| 18     | export              | A model as a file for other runtimes: ONNX, int8, pt2; few bits by hand.
| 19     | variants.tokens     | Fewer tokens: attention in blocks of keys, tokens merged or dropped on the way.
| --     | options             | What the commands can be asked for: a dataclass a command, without torch.
| --     | plots               | Every figure, from arrays.
| --     | live                | The model itself in a page: draw, watch each step, change it.
| --     | checks              | The exercises' checks: right, or which mistake.

A module imports only what is to its left: options < plots < the six < variants < data < analysis < weights < train <
predict < export < live < checks. ``vt.explain`` is short for ``vt.analysis.explain``;
each module of ``analysis`` and ``variants`` has such a short name.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # for mypy and editors
    from vit_tutorial import analysis as analysis
    from vit_tutorial import checks as checks
    from vit_tutorial import data as data
    from vit_tutorial import export as export
    from vit_tutorial import live as live
    from vit_tutorial import options as options
    from vit_tutorial import plots as plots
    from vit_tutorial import predict as predict
    from vit_tutorial import train as train
    from vit_tutorial import variants as variants
    from vit_tutorial import weights as weights
    from vit_tutorial.analysis import dense as dense
    from vit_tutorial.analysis import explain as explain
    from vit_tutorial.analysis import scaling as scaling
    from vit_tutorial.attention import MultiHeadSelfAttention as MultiHeadSelfAttention
    from vit_tutorial.attention import dot_product_attention as dot_product_attention
    from vit_tutorial.embeddings import Embeddings as Embeddings
    from vit_tutorial.embeddings import resize_position_embedding as resize_position_embedding
    from vit_tutorial.embeddings import sincos_position_embedding as sincos_position_embedding
    from vit_tutorial.encoder import DropPath as DropPath
    from vit_tutorial.encoder import EncoderBlock as EncoderBlock
    from vit_tutorial.mlp import MLP as MLP
    from vit_tutorial.patches import PatchEmbedding as PatchEmbedding
    from vit_tutorial.patches import patchify as patchify
    from vit_tutorial.patches import unpatchify as unpatchify
    from vit_tutorial.variants import hybrid as hybrid
    from vit_tutorial.variants import modern as modern
    from vit_tutorial.variants import modern_config as modern_config
    from vit_tutorial.variants import positions as positions
    from vit_tutorial.variants import resnet as resnet
    from vit_tutorial.variants import selfsup as selfsup
    from vit_tutorial.variants import text as text
    from vit_tutorial.variants import tokens as tokens
    from vit_tutorial.variants import words as words
    from vit_tutorial.vit import ViT as ViT
    from vit_tutorial.vit import ViTConfig as ViTConfig
    from vit_tutorial.vit import count_macs as count_macs
    from vit_tutorial.vit import count_parameters as count_parameters
    from vit_tutorial.weights import load as load
    from vit_tutorial.weights import load_pair as load_pair
    from vit_tutorial.weights import save as save

__version__ = "0.1.0"
_ROOMS = ("analysis", "checks", "data", "export", "live", "options", "plots", "predict", "train", "variants", "weights")
_SHORT_NAMES = {  # of the modules that belong to a lesson
    "dense": "analysis.dense",
    "explain": "analysis.explain",
    "scaling": "analysis.scaling",
    "hybrid": "variants.hybrid",
    "modern": "variants.modern",
    "modern_config": "variants.modern_config",
    "positions": "variants.positions",
    "resnet": "variants.resnet",
    "selfsup": "variants.selfsup",
    "text": "variants.text",
    "tokens": "variants.tokens",
    "words": "variants.words",
}
_MODULE_OF = {  # the module that holds a public class or function
    "MLP": "mlp",
    "DropPath": "encoder",
    "Embeddings": "embeddings",
    "EncoderBlock": "encoder",
    "MultiHeadSelfAttention": "attention",
    "PatchEmbedding": "patches",
    "ViT": "vit",
    "ViTConfig": "vit",
    "count_macs": "vit",
    "count_parameters": "vit",
    "dot_product_attention": "attention",
    "load": "weights",
    "load_pair": "weights",
    "patchify": "patches",
    "resize_position_embedding": "embeddings",
    "save": "weights",
    "sincos_position_embedding": "embeddings",
    "unpatchify": "patches",
}
_MODULES = {**{name: name for name in (*_ROOMS, *_MODULE_OF.values())}, **_SHORT_NAMES}
__all__ = [*_ROOMS, *_SHORT_NAMES, *_MODULE_OF]


def __getattr__(name: str) -> Any:
    # Loaded at first use: the command line needs no torch, the model torch alone, and matplotlib takes half a second.
    if name in _MODULES:
        return _imported(f"vit_tutorial.{_MODULES[name]}")
    if name in _MODULE_OF:
        return getattr(_imported(f"vit_tutorial.{_MODULE_OF[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _imported(name: str) -> Any:
    """The module; where a package that it needs isn't installed, the error says what to type."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        from vit_tutorial.data.extras import install_hint

        with install_hint():
            raise error from None


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
