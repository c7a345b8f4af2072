"""Lesson 12: the hybrid input, tokens from a convolutional network's feature map (arXiv 2010.11929, section 3.1).

A stem is a few convolutions that make the feature map whose patches become tokens:

>>> import torch
>>> from vit_tutorial import hybrid
>>> stem = hybrid.ConvStem(((32, 3, 2), (64, 3, 2)))  # two convolutions: 4 x 4 pixels become a token
>>> config = hybrid.HybridConfig(image_size=32, patch_size=4, dim=64, num_heads=4, num_classes=10, stem=stem)
>>> config.grid
(8, 8)
>>> hybrid.HybridViT(config)(torch.rand(1, 3, 32, 32)).shape
torch.Size([1, 10])
"""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from vit_tutorial.embeddings import Embeddings
from vit_tutorial.patches import Size, as_pair, check_images
from vit_tutorial.vit import ViT, ViTConfig

torch.fx.wrap("check_images")  # torch.fx can't trace its ifs: keep the call as one node


class HybridEmbed(nn.Module):
    """Tokens from any feature map: each patch of it, often 1 x 1, times one matrix E (Eq. 1).

    Images (B, C, H, W) -> features (B, F, h, w) -> tokens (B, N, D), in place of
    :class:`~vit_tutorial.PatchEmbedding`.

    Args:
        features: images (B, C, H, W) -> a feature map (B, F, h, w); any module.
        image_size: H = W, or (H, W), in pixels.
        patch_size: of the feature map, in its own pixels: P, or (height, width).
        in_channels: C.
        dim: D, the width of a token.

    Raises:
        ValueError: no feature map comes out, or patches that don't divide it; images of another rank, channel count or
            size.
        TypeError: images that aren't a floating-point tensor.
    """

    def __init__(
        self, features: nn.Module, image_size: Size, patch_size: Size = 1, in_channels: int = 3, dim: int = 768
    ) -> None:
        super().__init__()
        self.image_size, self.in_channels = as_pair(image_size, "image_size"), in_channels
        P, Q = as_pair(patch_size, "patch_size")
        shape = _output_shape(features, (in_channels, *self.image_size))
        if len(shape) != 3 or shape[1] % P or shape[2] % Q:
            raise ValueError(
                f"features make {shape} of one image {(in_channels, *self.image_size)}: a feature map (F, h, w) is "
                f"needed, whose h and w patches of {P}x{Q} divide"
            )
        self.grid = (shape[1] // P, shape[2] // Q)  # (rows, columns)
        self.features = features
        self.proj = nn.Conv2d(shape[0], dim, kernel_size=(P, Q), stride=(P, Q))

    def forward(self, images: Tensor) -> Tensor:
        check_images(images, self.in_channels, self.image_size)
        x = self.features(images)  # (B, F, h, w)
        return self.proj(x).flatten(2).transpose(1, 2)  # (B, D, rows, columns) -> (B, N, D)


def _output_shape(features: nn.Module, image: tuple[int, ...]) -> tuple[int, ...]:
    """The shape (F, h, w) that ``features`` makes of one image (C, H, W), without computing a number."""
    # Meta tensors have a shape and no data. Two images, because batch norm in training refuses one value per channel.
    state = {
        name: tensor.detach().to("meta") for name, tensor in [*features.named_parameters(), *features.named_buffers()]
    }
    with torch.device("meta"):
        return tuple(torch.func.functional_call(features, state, torch.empty(2, *image)).shape[1:])


@dataclass(frozen=True)
class ConvStem:
    """Convolutions in front of the tokens (arXiv 2106.14881), as torchvision's ``conv_stem_configs`` has them.

    Each is followed by batch norm and ReLU, and its edges are padded by half a kernel. What one token sees grows with
    the kernels, so neighbouring tokens overlap, as patches do not.

    Args:
        layers: (channels, kernel size, stride) of each convolution; the strides' product must divide the patch size.

    Raises:
        ValueError: no layer, one that isn't three positive whole numbers, or an even kernel with stride 1.
    """

    layers: tuple[tuple[int, int, int], ...]

    def __post_init__(self) -> None:
        triples = all(isinstance(layer, (tuple, list)) and len(layer) == 3 for layer in self.layers)
        if not self.layers or not triples or min(map(min, self.layers)) < 1:
            raise ValueError(f"layers must hold (channels, kernel size, stride), at least one, got {self.layers}")
        object.__setattr__(self, "layers", tuple(tuple(layer) for layer in self.layers))  # JSON has lists
        if even := [layer for layer in self.layers if layer[1] % 2 == 0 and layer[2] == 1]:
            raise ValueError(
                f"layer {even[0]}: an even kernel with stride 1 loses a row and a column: make its size odd"
            )

    @property
    def stride(self) -> int:
        """How many pixels of the image lie between two neighbours of the feature map."""
        return math.prod(stride for _, _, stride in self.layers)

    def features(self, in_channels: int) -> nn.Sequential:
        """The convolutions: images (B, C, H, W) -> a feature map (B, F, H / stride, W / stride)."""
        layers = nn.Sequential()
        for channels, kernel_size, stride in self.layers:
            conv = nn.Conv2d(in_channels, channels, kernel_size, stride, padding=(kernel_size - 1) // 2, bias=False)
            nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")
            parts = {"conv": conv, "norm": nn.BatchNorm2d(channels), "relu": nn.ReLU()}
            layers.append(nn.Sequential(OrderedDict(parts)))
            in_channels = channels
        return layers


@dataclass(frozen=True)
class HybridConfig(ViTConfig):
    """A :class:`ViTConfig` and its stem; ``patch_size`` counts pixels of the image.

    Raises:
        ValueError: a patch that isn't made of whole pixels of the stem's feature map.
        TypeError: a stem that isn't a :class:`ConvStem`.
    """

    stem: ConvStem = field(kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.stem, dict):  # as JSON has it
            object.__setattr__(self, "stem", ConvStem(**self.stem))
        if not isinstance(self.stem, ConvStem):
            raise TypeError(f"stem must be a ConvStem, got {self.stem!r}")
        if any(side % self.stem.stride for side in as_pair(self.patch_size, "patch_size")):
            raise ValueError(
                f"patch_size {self.patch_size} is not a multiple of {self.stem.stride}, the stride of {self.stem}: a "
                "token is made of whole pixels of the stem's feature map"
            )


class HybridViT(ViT):
    """A ViT whose tokens come from a stem: images (B, C, H, W) -> logits (B, K)."""

    config: HybridConfig

    def __init__(self, config: HybridConfig) -> None:
        embed = Embeddings(
            config.image_size,
            config.patch_size,
            config.in_channels,
            config.dim,
            position=config.position,
            dropout=config.dropout,
            class_token=config.prefix_tokens == 1,
        )
        P, Q = as_pair(config.patch_size, "patch_size")
        # Positions and class token stay Eq. 1's; only what makes the patch tokens is another module.
        embed.patches = HybridEmbed(  # type: ignore[assignment]
            config.stem.features(config.in_channels),
            config.image_size,
            (P // config.stem.stride, Q // config.stem.stride),
            config.in_channels,
            config.dim,
        )
        super().__init__(config, embed=embed)
