"""Lesson 12: the hybrid input, tokens from a convolutional network's feature map (arXiv 2010.11929, section 3.1).

A stem is a field of the config, and says what stands before the tokens in place of the cut into patches:

>>> import vit_tutorial as vt
>>> from vit_tutorial import hybrid
>>> early = hybrid.ConvStem(((32, 3, 2), (64, 3, 2)))  # two convolutions: 4 x 4 pixels become a token
>>> vt.ViTConfig(image_size=32, patch_size=4, dim=64, num_heads=4, stem=early).grid
(8, 8)
>>> papers = hybrid.ResNetStem((3, 4, 9))  # R50 + ViT-B/16 of the paper
>>> vt.count_parameters(vt.ViTConfig(stem=papers))
98659112
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vit_tutorial.patches import Size, as_pair, check_images
from vit_tutorial.vit import ViTConfig

GROUPS = 32  # of channels, in the ResNet's norms


class HybridEmbed(nn.Module):
    """Tokens from any feature map: each patch of it, often 1 x 1, times one matrix E (Eq. 1).

    Images (B, C, H, W) -> features (B, F, h, w) -> tokens (B, N, D). It takes the place of
    :class:`~vit_tutorial.PatchEmbedding`: ``model.embed.patches = HybridEmbed(...)``, with as many tokens as before.

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
    """The shape that ``features`` makes of one image, found without computing: on copies that hold no numbers."""
    state = {
        name: tensor.detach().to("meta") for name, tensor in [*features.named_parameters(), *features.named_buffers()]
    }
    with torch.device("meta"):
        return tuple(torch.func.functional_call(features, state, torch.empty(2, *image)).shape[1:])


# ------------------------------------------------------------------------------------------------------------ stems


class _Stem:
    """What both kinds of stem have in common."""

    @property
    def stride(self) -> int:
        """How many pixels of the image lie between two neighbours of the feature map."""
        raise NotImplementedError

    def features(self, in_channels: int) -> nn.Module:
        """Images (B, C, H, W) -> a feature map (B, F, H / stride, W / stride)."""
        raise NotImplementedError

    def embed(self, config: ViTConfig) -> HybridEmbed:
        """The module that stands in place of :class:`PatchEmbedding`."""
        P, Q = as_pair(config.patch_size, "patch_size")
        on_map = (P // self.stride, Q // self.stride)
        return HybridEmbed(self.features(config.in_channels), config.image_size, on_map, config.in_channels, config.dim)

    def count_parameters(self, config: ViTConfig) -> int:
        """Parameters of that module."""
        with torch.device("meta"):
            return sum(parameter.numel() for parameter in self.embed(config).parameters())

    def count_macs(self, config: ViTConfig) -> int:
        """Its multiply-accumulates for one image."""
        with torch.device("meta"):
            return macs_of(self.embed(config), config)


def macs_of(module: nn.Module, config: ViTConfig) -> int:
    """Multiply-accumulates of a module on the meta device for one image (1, C, H, W), of the config's size."""
    from torch.utils.flop_counter import FlopCounterMode

    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        module.eval()(torch.empty(1, config.in_channels, *as_pair(config.image_size, "image_size")))
    return int(counter.get_total_flops()) // 2


@dataclass(frozen=True)
class ConvStem(_Stem):
    """Convolutions in place of the cut (arXiv 2106.14881), as torchvision's ``conv_stem_configs`` has them.

    Each is followed by batch norm and ReLU; a 1 x 1 convolution to the model's width comes last. Edges are padded by
    half a kernel. What one token sees grows with the kernels, so neighbouring tokens overlap, as patches do not.

    Args:
        layers: (channels, kernel size, stride) of each convolution; the strides' product is the model's patch size.

    Raises:
        ValueError: no layer, one that isn't three positive whole numbers, or an even kernel with stride 1.
    """

    layers: tuple[tuple[int, int, int], ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "layers", tuple(tuple(layer) for layer in self.layers))  # JSON has lists
        if not self.layers or any(len(layer) != 3 or min(layer) < 1 for layer in self.layers):
            raise ValueError(f"layers must hold (channels, kernel size, stride), at least one, got {self.layers}")
        if even := [layer for layer in self.layers if layer[1] % 2 == 0 and layer[2] == 1]:
            raise ValueError(
                f"layer {even[0]}: an even kernel with stride 1 loses a row and a column: make its size odd"
            )

    @property
    def stride(self) -> int:
        return math.prod(stride for _, _, stride in self.layers)

    def features(self, in_channels: int) -> nn.Module:
        layers = nn.Sequential()
        for channels, kernel_size, stride in self.layers:
            conv = nn.Conv2d(in_channels, channels, kernel_size, stride, padding=(kernel_size - 1) // 2, bias=False)
            nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")
            parts = {"conv": conv, "norm": nn.BatchNorm2d(channels), "relu": nn.ReLU()}
            layers.append(nn.Sequential(OrderedDict(parts)))
            in_channels = channels
        return layers


@dataclass(frozen=True)
class ResNetStem(_Stem):
    """The paper's hybrids: the first stages of a ResNet V2 (section 3.1), as :class:`ResNetV2` has them.

    ``patch_size`` of the model counts pixels of the image: for tokens that are 1 x 1 of the feature map it is the
    stride, 16 after three stages ("R50 + ViT-B/16": (3, 4, 9)), 32 after four (R26: (2, 2, 2, 2), R50: (3, 4, 6, 3)).

    Args:
        blocks: how many in each stage; none leaves the first convolution and the pooling alone (R + ViT-Ti/16).
        width: channels of the first convolution, a multiple of 32; a stage makes 4, 8, 16 and 32 times as many.

    Raises:
        ValueError: a stage without blocks, or a width that the 32 groups of the norm don't divide.
    """

    blocks: tuple[int, ...]
    width: int = 64

    def __post_init__(self) -> None:
        object.__setattr__(self, "blocks", tuple(self.blocks))
        if any(count < 1 for count in self.blocks):
            raise ValueError(f"each stage needs at least one block, got {self.blocks}: leave a stage out instead")
        if self.width < 1 or self.width % GROUPS:
            raise ValueError(f"width must be a multiple of {GROUPS}, the norm's groups, got {self.width}")

    @property
    def stride(self) -> int:
        return 4 * 2 ** max(len(self.blocks) - 1, 0)

    def features(self, in_channels: int) -> nn.Module:
        return ResNetV2(self.blocks, in_channels, self.width)


STEMS: dict[str, type[ConvStem] | type[ResNetStem]] = {"layers": ConvStem, "blocks": ResNetStem}


def stem_from(settings: Mapping[str, Any]) -> ConvStem | ResNetStem:
    """The stem that ``dataclasses.asdict`` made these settings of: {"layers": ...} or {"blocks": ...}.

    Raises:
        ValueError: settings of no stem.
    """
    for name, kind in STEMS.items():
        if name in settings:
            return kind(**settings)
    raise ValueError(f"a stem has {' or '.join(STEMS)}, got {dict(settings)}")


# ----------------------------------------------------------------------------------------------------- the ResNet V2


class StandardizedConv2d(nn.Conv2d):
    """A convolution without bias whose kernels are standardised each time: mean 0, variance 1 (arXiv 1903.10520).

    Edges are padded so that the output has 1 / stride of the sides, rounded up; where the padding is odd, the extra
    row and column come last (TensorFlow's "SAME").
    """

    def __init__(self, in_channels: int, out_channels: int, kernel_size: int, stride: int = 1) -> None:
        super().__init__(in_channels, out_channels, kernel_size, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        axes = (1, 2, 3)
        centred = self.weight - self.weight.mean(dim=axes, keepdim=True)  # (F, C, K, K)
        variance = centred.square().mean(dim=axes, keepdim=True)  # (F, 1, 1, 1)
        weight = centred / (variance + 1e-8).sqrt()
        return F.conv2d(pad_same(x, self.kernel_size[0], self.stride[0]), weight, stride=self.stride)


def pad_same(x: Tensor, kernel_size: int, stride: int) -> Tensor:
    """Zeros around x (B, C, H, W), so that a kernel at every ``stride`` makes H / stride rows, rounded up."""
    total = [max((math.ceil(n / stride) - 1) * stride + kernel_size - n, 0) for n in x.shape[-2:]]  # rows, columns
    (top, bottom), (left, right) = [(n // 2, n - n // 2) for n in total]
    return F.pad(x, (left, right, top, bottom))


class Bottleneck(nn.Module):
    """Three convolutions around a shortcut, (B, C, H, W) -> (B, 4 width, H / stride, W / stride).

    The 1 x 1 convolution before and after make the 3 x 3 in the middle cheap. A first block of a stage has another
    number of channels than what comes in, so its shortcut is a convolution too.
    """

    def __init__(self, in_channels: int, width: int, stride: int = 1, downsample: bool = False) -> None:
        super().__init__()
        self.conv1, self.norm1 = StandardizedConv2d(in_channels, width, 1), nn.GroupNorm(GROUPS, width)
        self.conv2, self.norm2 = StandardizedConv2d(width, width, 3, stride), nn.GroupNorm(GROUPS, width)
        self.conv3, self.norm3 = StandardizedConv2d(width, 4 * width, 1), nn.GroupNorm(GROUPS, 4 * width)
        self.downsample: nn.Module = nn.Identity()
        if downsample:
            conv = StandardizedConv2d(in_channels, 4 * width, 1, stride)
            self.downsample = nn.Sequential(OrderedDict(conv=conv, norm=nn.GroupNorm(GROUPS, 4 * width)))

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm1(self.conv1(x)))  # (B, width, H, W)
        y = F.relu(self.norm2(self.conv2(y)))  # (B, width, H / stride, W / stride)
        y = self.norm3(self.conv3(y))  # (B, 4 width, H / stride, W / stride)
        return F.relu(self.downsample(x) + y)


class ResNetV2(nn.Module):
    """The paper's feature maps: a ResNet with group norm and standardised kernels (BiT, arXiv 1912.11370).

    Images (B, C, H, W) -> (B, F, h, w): a 7 x 7 convolution and a pooling halve the sides twice, each stage but the
    first once more. The norms stand as in the paper's code, after each convolution. Names are timm's, and so are the
    constants (1e-8 under the root of the kernels' variance, 1e-5 in the norms). The paper's JAX code adds 1e-5 to the
    kernels' standard deviation and has 1e-6 in the norms, so its logits differ from timm's, and ours, by a little.

    Args:
        blocks: how many in each stage.
        in_channels: C.
        width: channels of the first convolution.
    """

    def __init__(self, blocks: Sequence[int], in_channels: int = 3, width: int = 64) -> None:
        super().__init__()
        conv, norm = StandardizedConv2d(in_channels, width, 7, stride=2), nn.GroupNorm(GROUPS, width)
        self.stem = nn.Sequential(OrderedDict(conv=conv, norm=norm))
        self.stages = nn.Sequential()
        channels = width
        for stage, count in enumerate(blocks):
            stage_width, stride = width * 2**stage, 1 if stage == 0 else 2
            layers = nn.Sequential(Bottleneck(channels, stage_width, stride, downsample=True))
            channels = 4 * stage_width
            for _ in range(count - 1):
                layers.append(Bottleneck(channels, stage_width))
            self.stages.append(nn.Sequential(OrderedDict(blocks=layers)))
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.stem(x))  # (B, width, H / 2, W / 2)
        x = F.max_pool2d(pad_same(x, 3, 2), 3, 2)  # (B, width, H / 4, W / 4); no pixel is below the padding's 0
        return self.stages(x)  # (B, F, h, w)
