"""Lesson 12: a small ResNet (arXiv 1512.03385), for comparing it with a ViT of as many parameters.

>>> import torch
>>> from vit_tutorial.variants.resnet import ResNet
>>> model = ResNet([(24, 1), (48, 2), (48, 1), (96, 2)], num_classes=10).eval()  # nine 3 x 3 convolutions
>>> model(torch.rand(1, 3, 32, 32)).shape
torch.Size([1, 10])
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn import functional as F


class Residual(nn.Module):
    """Two 3 x 3 convolutions around a shortcut: (B, C, H, W) -> (B, F, H / stride, W / stride), rounded up.

    Where the shape changes, the shortcut is a 1 x 1 convolution; else it is the input itself.

    Args:
        in_channels: C.
        channels: F.
        stride: of the first convolution, 1 or 2.
    """

    def __init__(self, in_channels: int, channels: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, channels, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels)
        self.shortcut: nn.Module = nn.Identity()
        if stride > 1 or in_channels != channels:
            conv = nn.Conv2d(in_channels, channels, 1, stride, bias=False)
            self.shortcut = nn.Sequential(conv, nn.BatchNorm2d(channels))

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm1(self.conv1(x)))  # (B, F, H / stride, W / stride)
        y = self.norm2(self.conv2(y))  # (B, F, H / stride, W / stride)
        return F.relu(self.shortcut(x) + y)


class ResNet(nn.Module):
    """Images (B, C, H, W), of any size -> logits (B, K).

    A 3 x 3 convolution, residual blocks, and the mean of the last feature map over all places.

    Args:
        blocks: (channels, stride) of each; the first convolution has the first block's channels.
        num_classes: K.
        in_channels: C.

    Raises:
        ValueError: no block, or one that isn't a number of channels and a stride of 1 or 2.
    """

    def __init__(self, blocks: Sequence[tuple[int, int]], num_classes: int, in_channels: int = 3) -> None:
        super().__init__()
        if not blocks or any(len(block) != 2 or block[0] < 1 or block[1] not in (1, 2) for block in blocks):
            raise ValueError(f"blocks must hold (channels, stride), stride 1 or 2, at least one, got {list(blocks)}")
        channels = blocks[0][0]
        conv = nn.Conv2d(in_channels, channels, 3, padding=1, bias=False)
        self.first = nn.Sequential(conv, nn.BatchNorm2d(channels), nn.ReLU())
        self.blocks = nn.Sequential()
        for out_channels, stride in blocks:
            self.blocks.append(Residual(channels, out_channels, stride))
            channels = out_channels
        self.head = nn.Linear(channels, num_classes)

    def features(self, images: Tensor) -> Tensor:
        """The last feature map (B, F, h, w); each stride of 2 halves the sides, rounded up."""
        return self.blocks(self.first(images))  # (B, F, h, w)

    def forward(self, images: Tensor) -> Tensor:
        pooled = self.features(images).mean(dim=(2, 3))  # (B, F)
        return self.head(pooled)  # (B, K)
