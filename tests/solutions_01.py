"""Answers to the exercises of lesson 01: right ones in different styles, and wrong ones, each with its report."""

import torch
from einops import rearrange
from submissions import Wrong
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


def unpatchify_by_einops(patches, patch_size, image_size):
    (P, Q), (H, W) = pair(patch_size), image_size
    return rearrange(patches, "b (r s) (c p q) -> b c (r p) (s q)", r=H // P, s=W // Q, p=P, q=Q)


def unpatchify_by_fold(patches, patch_size, image_size):
    return F.fold(patches.transpose(1, 2), image_size, pair(patch_size), stride=pair(patch_size))


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


def overlapping_by_loops(images, patch_size, stride):
    H, W = images.shape[2:]
    patches = []
    for y in range(0, H - patch_size + 1, stride):
        for x in range(0, W - patch_size + 1, stride):
            patches.append(images[:, :, y : y + patch_size, x : x + patch_size].reshape(len(images), -1))
    return torch.stack(patches, 1)


def overlapping_by_unfold(images, patch_size, stride):
    return F.unfold(images, patch_size, stride=stride).transpose(1, 2)


NUMBERS = {
    "patches": 6, "patch 1": [3, 4, 5, 9, 10, 11], "pixel 16": (3, 1), "photo patches": 140, "photo length": 768,
}  # fmt: skip

RIGHT = {
    "patch_numbers": (lambda: NUMBERS,),
    "patchify": (patchify_by_loops, patchify_by_einops),
    "unpatchify": (unpatchify_by_einops, unpatchify_by_fold),
    "patch_embedding": (ByConvolution, ByLinear),
    "overlapping_patches": (overlapping_by_loops, overlapping_by_unfold),
}

# ---- Wrong ones ------------------------------------------------------------------------------------------------------


def answer(**wrong):
    """The right answers but for some, whose keys have _ for a space."""
    return lambda: NUMBERS | {key.replace("_", " "): value for key, value in wrong.items()}


def patchify_last_row_lost(images, patch_size):
    P, _ = pair(patch_size)
    return patchify_by_loops(images[:, :, :-P], patch_size)


def patchify_class_token(images, patch_size):
    x = patchify_by_loops(images, patch_size)
    return torch.cat([torch.zeros_like(x[:, :1]), x], dim=1)


def unpatchify_columns_first(patches, patch_size, image_size):
    """Each patch cut as (C, Q, P)."""
    (P, Q), (H, W) = pair(patch_size), image_size
    return rearrange(patches, "b (r s) (c q p) -> b c (r p) (s q)", r=H // P, s=W // Q, p=P, q=Q)


def unpatchify_three_channels(patches, patch_size, image_size):
    (P, Q), (H, W) = pair(patch_size), image_size
    return patches.reshape(len(patches), H // P, W // Q, 3, P, Q).permute(0, 3, 1, 4, 2, 5).reshape(-1, 3, H, W)


class Maps(ByConvolution):
    def forward(self, images):
        return self.proj(images)


class ATokenLost(ByConvolution):
    def forward(self, images):
        return super().forward(images)[:, 1:]


class Detached(ByConvolution):
    def forward(self, images):
        return super().forward(images).detach()


def unfold_reshaped(images, patch_size):
    x = F.unfold(images, pair(patch_size), stride=pair(patch_size))
    return x.reshape(x.shape[0], x.shape[2], -1)


WRONG = {
    "patch_numbers": [
        Wrong("a reshape", answer(patch_1=[6, 7, 8, 9, 10, 11]), "A patch takes 3 pixels"),
        Wrong("patches counted from 1", answer(pixel_16=(4, 1)), "both counted from 0", never="You went down"),
    ],
    "patchify": [
        Wrong("a reshape after unfold", unfold_reshaped, "What your numbers show"),
        Wrong("a class token", patchify_class_token, "the first 1 of yours are too many"),
        Wrong("rows of patches that are lost", patchify_last_row_lost, "the right ones are missing"),
    ],
    "unpatchify": [
        Wrong("each patch cut as (C, Q, P)", unpatchify_columns_first, "What your numbers show"),
        Wrong("three channels", unpatchify_three_channels, "raised RuntimeError"),
        Wrong("the first image alone", lambda p, s, i: unpatchify_by_fold(p, s, i)[0], "has shape"),
    ],
    "patch_embedding": [
        Wrong("maps returned", Maps, "has shape"),
        Wrong("a token lost", ATokenLost, "of the right ones are missing"),
        Wrong("detached", Detached, "gradient of proj.weight is missing"),
    ],
    "overlapping_patches": [
        Wrong(
            "twice the stride",
            lambda i, p, s: overlapping_by_unfold(i, p, 2 * s),
            "result has shape (1, 4, 4), expected (1, 12, 4)",
        ),
        Wrong("not transposed", lambda i, p, s: F.unfold(i, p, stride=s), "exchanged", never="Yours are"),
    ],
}
