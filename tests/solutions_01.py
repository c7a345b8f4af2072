"""Right answers to the exercises of lesson 01, written in different ways: no check may find fault with them."""

from fractions import Fraction

import torch
from einops import rearrange
from torch import nn
from torch.nn import functional as F


def pair(size):
    return size if isinstance(size, tuple) else (size, size)


def patchify_by_loops(images, patch_size):
    P, Q = pair(patch_size)
    H, W = images.shape[2:]
    corners = [(y, x) for y in range(0, H, P) for x in range(0, W, Q)]
    return torch.stack([images[:, :, y : y + P, x : x + Q].flatten(1) for y, x in corners], dim=1)


def patchify_by_einops(images, patch_size):
    P, Q = pair(patch_size)
    return rearrange(images, "b c (r p) (s q) -> b (r s) (c p q)", p=P, q=Q)


def patchify_by_unfold(images, patch_size):
    return F.unfold(images, pair(patch_size), stride=pair(patch_size)).mT


def patchify_by_convolution(images, patch_size):
    P, Q = pair(patch_size)
    C = images.shape[1]
    kernel = torch.eye(C * P * Q).reshape(C * P * Q, C, P, Q)
    return F.conv2d(images, kernel, stride=(P, Q)).flatten(2).transpose(1, 2)


def unpatchify_by_einops(patches, patch_size, image_size):
    (P, Q), (H, W) = pair(patch_size), image_size
    return rearrange(patches, "b (r s) (c p q) -> b c (r p) (s q)", r=H // P, s=W // Q, p=P, q=Q)


def unpatchify_by_fold(patches, patch_size, image_size):
    return F.fold(patches.transpose(1, 2), image_size, pair(patch_size), stride=pair(patch_size))


def unpatchify_by_loops(patches, patch_size, image_size):
    (P, Q), (H, W) = pair(patch_size), image_size
    images = patches.new_zeros(len(patches), patches.shape[2] // (P * Q), H, W)
    for n in range(patches.shape[1]):
        y, x = n // (W // Q) * P, n % (W // Q) * Q
        images[:, :, y : y + P, x : x + Q] = patches[:, n].unflatten(-1, (-1, P, Q))
    return images


class ByConvolution(nn.Module):
    def __init__(self, image_size, patch_size, in_channels, dim):
        super().__init__()
        self.proj = nn.Conv2d(in_channels, dim, patch_size, patch_size)

    def forward(self, images):
        return rearrange(self.proj(images), "b d r s -> b (r s) d")


class ByLinear(nn.Module):
    def __init__(self, image_size, patch_size, in_channels, dim):
        super().__init__()
        P, Q = pair(patch_size)
        self.patch_size = patch_size
        self.proj = nn.Linear(in_channels * P * Q, dim)

    def forward(self, images):
        return self.proj(patchify_by_loops(images, self.patch_size))


class Nested(nn.Module):
    """The layer as a part of a part, and the patches unfolded."""

    def __init__(self, image_size, patch_size, in_channels, dim):
        super().__init__()
        self.inner = ByLinear(image_size, patch_size, in_channels, dim)

    def forward(self, images):
        return torch.stack([self.inner(image[None])[0] for image in images])


def overlapping_by_loops(images, patch_size, stride):
    H, W = images.shape[2:]
    patches = []
    for y in range(0, H - patch_size + 1, stride):
        for x in range(0, W - patch_size + 1, stride):
            patches.append(images[:, :, y : y + patch_size, x : x + patch_size].reshape(len(images), -1))
    return torch.stack(patches, 1)


def overlapping_by_unfold(images, patch_size, stride):
    return F.unfold(images, patch_size, stride=stride).transpose(1, 2)


def overlapping_by_views(images, patch_size, stride):
    windows = images.unfold(2, patch_size, stride).unfold(3, patch_size, stride)
    return rearrange(windows, "b c r s p q -> b (r s) (c p q)")


NUMBERS = {
    "patches": 6, "patch 1": [3, 4, 5, 9, 10, 11], "pixel 16": (3, 1), "photo patches": 140, "photo length": 768,
}  # fmt: skip

SOLUTIONS = {
    "patch_numbers": (
        lambda: NUMBERS,
        lambda: NUMBERS | {"patch 1": torch.tensor([3, 4, 5, 9, 10, 11]), "photo patches": torch.tensor(140)},
        lambda: NUMBERS | {"patches": 6.0, "pixel 16": [3, 1], "photo length": Fraction(768)},
    ),
    "patchify": (patchify_by_loops, patchify_by_einops, patchify_by_unfold, patchify_by_convolution),
    "unpatchify": (unpatchify_by_einops, unpatchify_by_fold, unpatchify_by_loops),
    "patch_embedding": (ByConvolution, ByLinear, Nested),
    "overlapping_patches": (overlapping_by_loops, overlapping_by_unfold, overlapping_by_views),
}
