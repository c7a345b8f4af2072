"""Answers to the exercises of lesson 01: right ones, written in different ways, and wrong ones with what they hear."""

import functools
from typing import ClassVar

import numpy as np
import torch
from einops import rearrange
from submissions import Wrong
from torch import nn
from torch.nn import functional as F

import vit_tutorial as vt


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


def patchify_by_numpy(images, patch_size):
    P, Q = pair(patch_size)
    x = images.numpy()
    B, C, H, W = x.shape
    return x.reshape(B, C, H // P, P, W // Q, Q).transpose(0, 2, 4, 1, 3, 5).reshape(B, -1, C * P * Q)


def unpatchify_by_numpy(patches, patch_size, image_size):
    (P, Q), (H, W) = pair(patch_size), image_size
    x = np.asarray(patches).reshape(len(patches), H // P, W // Q, -1, P, Q)
    return torch.from_numpy(np.ascontiguousarray(x.transpose(0, 3, 1, 4, 2, 5))).reshape(len(patches), -1, H, W)


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


class ByEinsum(nn.Module):
    """Neither Conv2d nor Linear: two parameters in a part of their own, and patches from NumPy."""

    def __init__(self, image_size, patch_size, in_channels, dim):
        super().__init__()
        P, Q = pair(patch_size)
        self.size = patch_size
        self.proj = nn.Module()
        self.proj.weight = nn.Parameter(torch.randn(dim, in_channels, P, Q))
        self.proj.bias = nn.Parameter(torch.zeros(dim))

    def forward(self, pixels):
        x = torch.as_tensor(patchify_by_numpy(pixels, self.size))
        return torch.einsum("bnk,dk->bnd", x, self.proj.weight.flatten(1)) + self.proj.bias


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


def overlapping_by_numpy(images, patch_size, stride):
    windows = np.lib.stride_tricks.sliding_window_view(images.numpy(), (patch_size, patch_size), axis=(2, 3))
    windows = windows[:, :, ::stride, ::stride]
    return windows.transpose(0, 2, 3, 1, 4, 5).reshape(len(images), -1, images.shape[1] * patch_size**2)


NUMBERS = {
    "patches": 6, "patch 1": [3, 4, 5, 9, 10, 11], "pixel 16": (3, 1), "photo patches": 140, "photo length": 768,
}  # fmt: skip

RIGHT = {
    "patch_numbers": (
        lambda: NUMBERS,
        lambda: NUMBERS | {"patch 1": torch.tensor([3, 4, 5, 9, 10, 11]), "photo patches": torch.tensor(140)},
        lambda: NUMBERS | {"patch 1": np.array([3, 4, 5, 9, 10, 11]), "patches": [6], "pixel 16": np.array([3.0, 1.0])},
    ),
    "patchify": (
        patchify_by_loops,
        patchify_by_einops,
        patchify_by_unfold,
        patchify_by_numpy,
    ),
    "unpatchify": (
        unpatchify_by_einops,
        unpatchify_by_fold,
        unpatchify_by_loops,
        unpatchify_by_numpy,
    ),
    "patch_embedding": (ByConvolution, ByLinear, Nested, ByEinsum),
    "overlapping_patches": (
        overlapping_by_loops,
        overlapping_by_unfold,
        overlapping_by_views,
        overlapping_by_numpy,
    ),
}

# ---- Wrong ones ------------------------------------------------------------------------------------------------------


def answer(**wrong):
    """The right answers but for some, whose keys have _ for a space."""
    return lambda: NUMBERS | {key.replace("_", " "): value for key, value in wrong.items()}


def cut(images, patch_size):
    """(B, C, rows, P, columns, Q), which most slips begin with."""
    (P, Q), (B, C, H, W) = pair(patch_size), images.shape
    return images.reshape(B, C, H // P, P, W // Q, Q)


def patchify_unfolds(images, patch_size):
    P, Q = pair(patch_size)
    return images.unfold(2, P, P).unfold(3, Q, Q).reshape(len(images), -1, images.shape[1] * P * Q)


def patchify_last_row_lost(images, patch_size):
    P, _ = pair(patch_size)
    return patchify_by_loops(images[:, :, :-P], patch_size)


def patchify_in_place(images, patch_size):
    images.mul_(2)
    return patchify_by_loops(images, patch_size) / 2


def patchify_class_token(images, patch_size):
    x = patchify_by_loops(images, patch_size)
    return torch.cat([torch.zeros_like(x[:, :1]), x], dim=1)


def back(order, inside="CPQ"):
    """The way back by another order of the six axes."""

    def unpatchify(patches, patch_size, image_size):
        (P, Q), (H, W) = pair(patch_size), image_size
        rows, columns = H // P, W // Q
        B, C = len(patches), patches.shape[2] // (P * Q)
        cut = (C, P, Q) if inside == "CPQ" else (C, Q, P)
        return patches.reshape(B, rows, columns, *cut).permute(order).reshape(B, C, H, W)

    return unpatchify


def unpatchify_three_channels(patches, patch_size, image_size):
    (P, Q), (H, W) = pair(patch_size), image_size
    return patches.reshape(len(patches), H // P, W // Q, 3, P, Q).permute(0, 3, 1, 4, 2, 5).reshape(-1, 3, H, W)


class Convolution(nn.Module):
    """A convolution, and a wrong way to go on."""

    options: dict = {}  # noqa: RUF012

    def __init__(self, image_size, patch_size, in_channels, dim):
        super().__init__()
        self.image_size, self.size = image_size, patch_size
        self.proj = nn.Conv2d(in_channels, dim, patch_size, **{"stride": patch_size} | self.options)


def embed(forward, **options):
    """A class with another forward(self, images)."""
    return type("PatchEmbedding", (Convolution,), {"forward": forward, "options": options})


def maps_to_tokens(maps):
    return maps.flatten(2).transpose(1, 2)


class NoInit(nn.Module):
    def __init__(self, image_size, patch_size, in_channels, dim):  # without super().__init__()
        self.proj = nn.Conv2d(in_channels, dim, patch_size, patch_size)


def windows(images, patch_size, stride):
    return images.unfold(2, patch_size, stride).unfold(3, patch_size, stride)  # (B, C, rows, columns, P, P)


class KeepsTheFirst(ByConvolution):
    """What the first batch became, for all batches."""

    kept = None

    def forward(self, images):
        if self.kept is None:
            self.kept = super().forward(images)
        return self.kept


class DropsInTraining(ByConvolution):
    def forward(self, images):
        return F.dropout(super().forward(images), 0.1, self.training)


def rounded_places(images, patch_size, stride):
    """As many patches as (H - P) / stride + 1, rounded."""
    H, W = ((round((n - patch_size) / stride)) * stride + patch_size for n in images.shape[2:])
    return overlapping_by_loops(F.pad(images, (0, stride, 0, stride))[..., :H, :W], patch_size, stride)


def turned_where_all_is_square(images, patch_size):
    square = images.shape[2] == images.shape[3] and isinstance(patch_size, int)
    return patchify_by_loops(images.mT if square else images, patch_size)


def none_where_the_image_is_as_high_as_a_patch(images, patch_size, stride):
    patches = overlapping_by_loops(images, patch_size, stride)
    return patches if images.shape[2] > patch_size else patches[:, :0]


def from_the_start_of_memory(images, patch_size):
    P, Q = (patch_size, patch_size) if isinstance(patch_size, int) else patch_size
    B, C, H, W = images.shape
    b, c, h, w = images.stride()
    sizes, strides = (B, H // P, W // Q, C, P, Q), (b, h * P, w * Q, c, h, w)
    return torch.as_strided(images, sizes, strides, 0).reshape(B, -1, C * P * Q)


def kept_by_tensor(work):
    """The first answer for each tensor, whatever becomes of it."""
    kept = {}

    def answer(x, *more):
        if id(x) not in kept:
            kept[id(x)] = x, work(x, *more)
        return kept[id(x)][1]

    return answer


class OneLayerForAll(ByConvolution):
    kept: ClassVar = {}

    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.proj = self.kept.setdefault(sizes, self.proj)


def patches_by_the_strides_of_new_images(images, patch_size):
    P, Q = patch_size if isinstance(patch_size, tuple) else (patch_size, patch_size)
    B, C, H, W = images.shape
    lengths, strides = (B, H // P, W // Q, C, P, Q), (C * H * W, P * W, Q, H * W, W, 1)
    return images.as_strided(lengths, strides, images.storage_offset()).flatten(3).flatten(1, 2)


def unfold_reshaped(images, patch_size):
    x = F.unfold(images, pair(patch_size), stride=pair(patch_size))
    return x.reshape(x.shape[0], x.shape[2], -1)


WRONG = {
    "patch_numbers": [
        Wrong("a reshape", answer(patch_1=[6, 7, 8, 9, 10, 11]), "A patch takes 3 pixels"),
        Wrong("patches counted from 1", answer(pixel_16=(4, 1)), "both counted from 0", never="You went down"),
        Wrong("places counted from 1", answer(pixel_16=(3, 2)), "First the patch, then", never="down the columns"),
        Wrong("pixels in place of patches", answer(patches=36), "Divide the height"),
        Wrong("the channels as patches", answer(photo_patches=14 * 10 * 3), "Divide 224 and 160"),
        Wrong("no answers", lambda: {}, "there is no answer for 'patches' yet"),
        Wrong("a list", lambda: list(NUMBERS.values()), "expected a dictionary of answers"),
    ],
    "patchify": [
        Wrong("a reshape after unfold", unfold_reshaped, "What your numbers show"),
        Wrong("channels after patches", patchify_unfolds, "each index of axis 0 has its own"),
        Wrong("a class token", patchify_class_token, "the first 1 of yours are too many"),
        Wrong("rows of patches that are lost", patchify_last_row_lost, "the right ones are missing"),
        Wrong("in place", patchify_in_place, "argument 1 was changed in place"),
        Wrong("a list", lambda i, p: list(patchify_by_loops(i, p).unbind(1)), "is a list"),
        Wrong("printed", lambda i, p: print(patchify_by_loops(i, p).shape), "is None: is the return missing?"),
        Wrong("the package's own", lambda i, p: vt.patchify(i, p), "the package's own patchify"),
        Wrong("the package's own, partial", functools.partial(vt.patchify), "is the package's"),
        # These once passed.
        Wrong("three channels at most", lambda i, p: patchify_by_loops(i[:, :3], p), "images (5, 4, 6, 6)"),
        Wrong("196 patches at most", lambda i, p: patchify_by_loops(i, p)[:, :196], "images (1, 2, 64, 34)"),
        Wrong("turned where all is square", turned_where_all_is_square, "images (2, 3, 8, 8)"),
        Wrong("by strides of new images", patches_by_the_strides_of_new_images, "lie in memory in another order"),
        Wrong("from the start of memory", from_the_start_of_memory, "images (1, 1, 4, 6)"),
        Wrong("kept by tensor", kept_by_tensor(patchify_by_loops), "is something of the first call kept"),
    ],
    "unpatchify": [
        Wrong("a reshape alone", lambda p, s, i: p.reshape(len(p), -1, *i), "Your [0, 0, 0, 2] is patches[0, 0, 2]"),
        Wrong("patchify's permutation", back((0, 2, 4, 1, 3, 5)), "Your [0, 0, 0, 2] is patches[0, 3, 0]"),
        Wrong("each patch cut as (C, Q, P)", back((0, 3, 1, 5, 2, 4), inside="CQP"), "What your numbers show"),
        Wrong("three channels", unpatchify_three_channels, "raised RuntimeError"),
        Wrong("the first image alone", lambda p, s, i: unpatchify_by_fold(p, s, i)[0], "has shape"),
        Wrong("channels last", lambda p, s, i: unpatchify_by_fold(p, s, i).permute(0, 2, 3, 1), "permute"),
        Wrong("the package's own", lambda p, s, i: vt.unpatchify(p, s, i), "the package's own unpatchify"),
    ],
    "patch_embedding": [
        Wrong("maps returned", embed(lambda self, x: self.proj(x)), "has shape"),
        Wrong(
            "a token lost", embed(lambda self, x: maps_to_tokens(self.proj(x))[:, 1:]), "of the right ones are missing"
        ),
        Wrong(
            "detached",
            embed(lambda self, x: maps_to_tokens(self.proj(x)).detach()),
            "gradient of proj.weight is missing",
        ),
        Wrong(
            "no bias", embed(lambda self, x: maps_to_tokens(self.proj(x)), bias=False), "What is missing is proj.bias"
        ),
        Wrong(
            "an activation function",
            embed(lambda self, x: F.gelu(maps_to_tokens(self.proj(x)))),
            "the GELU of the right one",
        ),
        Wrong("no __init__ of nn.Module's", NoInit, "raised AttributeError"),
        Wrong(
            "the package's, inherited", type("Mine", (vt.PatchEmbedding,), {}), "is the package's, or derives from it"
        ),
        Wrong("the package's, inside", lambda *args: nn.Sequential(vt.PatchEmbedding(*args)), "the package's own"),
        # These once passed.
        Wrong("the first result kept", KeepsTheFirst, "The first call is right, and the next one"),
        Wrong(
            "dropout in training", DropsInTraining, "in training mode, compared with evaluation mode, is another one"
        ),
        Wrong("one layer for all", OneLayerForAll, "two layers of your class share proj.weight"),
    ],
    "overlapping_patches": [
        Wrong(
            "twice the stride",
            lambda i, p, s: overlapping_by_unfold(i, p, 2 * s),
            "places down, here 3, and by the same",
        ),  # in two cases 2 s is P
        Wrong("steps of one pixel", lambda i, p, s: overlapping_by_unfold(i, p, 1)),
        Wrong("not transposed", lambda i, p, s: F.unfold(i, p, stride=s), "exchanged", never="Yours are"),
        Wrong("patches of stride pixels", lambda i, p, s: overlapping_by_unfold(i, s, s), "What your numbers show"),
        Wrong(
            "the last patch lost", lambda i, p, s: overlapping_by_unfold(i, p, s)[:, :-1], "12 patches. Yours are 11"
        ),
        Wrong("nothing returned", lambda i, p, s: None, "is the return missing?"),
        # These once passed.
        Wrong("a number of patches that is rounded", rounded_places, "images (3, 2, 12, 9)"),
        Wrong("none where one row fits", none_where_the_image_is_as_high_as_a_patch, "images (2, 3, 4, 9)"),
    ],
}
