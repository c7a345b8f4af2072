"""Checks of lesson 01: cut an image into patches, put it together again, make tokens of it."""

from __future__ import annotations

import functools
from collections.abc import Callable

from torch import Tensor, nn
from torch.nn import functional as F

from vit_tutorial import patches as lesson
from vit_tutorial.checks.engine.exercise import Case, Exercise, Mistake
from vit_tutorial.checks.engine.functions import normal
from vit_tutorial.checks.engine.layers import layer, random_weights
from vit_tutorial.checks.engine.questions import Question, Slip, pencil

_HAND = "Four patches, by hand"
_PHOTO = "The photograph"
_ORDER = "The order within a patch"
_RESHAPE = "A reshape in place of a permute"

# ---- With a pencil -----------------------------------------------------------------------------------------------

_DOWN = Slip("counting down the columns", "Patches are numbered like words on a page: first across, then down.")

PATCH_NUMBERS = pencil(
    "patch_numbers",
    lesson="01",
    points=3,
    questions={
        "patches": Question(
            6, "Divide the height of the image by the height of a patch, and its width by the width of a patch."
        ),
        "patch 1": Question(
            [3, 4, 5, 9, 10, 11],
            "A patch takes 3 pixels of each of its 2 rows. Patch 0 is in the top left corner; patch 1 is next "
            "to it, on the right.",
            _PHOTO,
            {(12, 13, 14, 18, 19, 20): _DOWN},
        ),
        "pixel 16": Question(
            (3, 1),
            "First the patch, then the place within it, both counted from 0. Draw the lines between the "
            "patches, and count like words on a page.",
            _HAND,
            {(1, 3): Slip("patch and place exchanged", "Both numbers are right, but the patch comes first.")},
        ),
        "photo patches": Question(
            140,
            "Divide 224 and 160 by 16, and multiply.",
            _PHOTO,
            {141: Slip("the class token counted already", "It joins the 140 patches only in lesson 02.")},
        ),
        "photo length": Question(768, "How many pixels are in a patch, and how many numbers in a pixel?"),
    },
)


# ---- patchify ----------------------------------------------------------------------------------------------------


def _images(*shape: int) -> Tensor:
    return normal(*shape, seed=sum(shape))


def _patchify_cases() -> list[Case]:
    # All lengths differ (images, channels, rows, columns, P, Q, N, C*P*Q), so that a shape shows what was mixed up.
    shapes: list[tuple[tuple[int, ...], lesson.Size]]
    shapes = [((1, 1, 4, 6), 2), ((4, 2, 9, 15), 3), ((2, 3, 20, 28), 4)]
    shapes += [((3, 2, 28, 30), (4, 5)), ((5, 4, 6, 8), (3, 2))]
    shapes += [((2, 3, 4, 5), (4, 5)), ((3, 1, 4, 5), 1)]  # one patch an image, patches of one number
    return [Case(f"images {shape}, patch_size={size}", (_images(*shape), size)) for shape, size in shapes]


def _split(images: Tensor, patch_size: lesson.Size) -> Tensor:
    """(B, C, H, W) -> (B, C, rows, P, columns, Q)."""
    (P, Q), (B, C, H, W) = lesson.as_pair(patch_size, "patch_size"), images.shape
    return images.reshape(B, C, H // P, P, W // Q, Q)


def _permuted(*order: int) -> Callable[[Tensor, lesson.Size], Tensor]:
    """Patches by another order of (B, C, rows, P, columns, Q), cut at the same places."""

    def patchify(images: Tensor, patch_size: lesson.Size) -> Tensor:
        cut = _split(images, patch_size)
        B, C, rows, P, columns, Q = cut.shape
        return cut.permute(order).reshape(B, rows * columns, C * P * Q)

    return patchify


PATCHIFY = Exercise(
    name="patchify",
    lesson="01",
    points=5,
    right=lesson.patchify,
    cases=_patchify_cases,
    mistakes=(
        Mistake(
            name="a reshape in place of a permute",
            says="reshape never changes the order of the numbers, so each of your patches is a run of pixels along the "
            "rows of the image. Cut the axes in two first, then permute rows and columns of patches to the front.",
            reread=_RESHAPE,
            wrong=_permuted(0, 1, 2, 3, 4, 5),
        ),
        Mistake(
            name="channels last within a patch",
            says="Your patch goes pixel by pixel, with all channels of each. The agreed order is that of a Conv2d "
            "kernel, channel by channel: the channel axis comes before the two axes inside the patch.",
            reread=_ORDER,
            wrong=_permuted(0, 2, 4, 3, 5, 1),
        ),
        Mistake(
            name="rows and columns of patches exchanged",
            says="You number the patches down the columns. They go like words on a page: rows before columns.",
            reread=_HAND,
            wrong=_permuted(0, 4, 2, 1, 3, 5),
        ),
        Mistake(
            name="rows and columns within a patch exchanged",
            says="You read a patch column by column. Its pixels go like words on a page: row by row.",
            reread=_ORDER,
            wrong=_permuted(0, 2, 4, 1, 5, 3),
        ),
    ),
)


# ---- unpatchify --------------------------------------------------------------------------------------------------


def _unpatchify_cases() -> list[Case]:
    sizes: list[tuple[tuple[int, int], lesson.Size, tuple[int, int]]]
    sizes = [((1, 1), 2, (4, 6)), ((2, 3), 4, (20, 28)), ((3, 2), (4, 5), (28, 30)), ((5, 4), (3, 2), (6, 6))]
    sizes += [((2, 3), (4, 5), (4, 5)), ((3, 1), 1, (4, 5))]
    cases = []
    for (B, C), size, (H, W) in sizes:
        patches = lesson.patchify(_images(B, C, H, W), size)
        label = f"patches {tuple(patches.shape)}, patch_size={size}, image_size={(H, W)}"
        cases.append(Case(label, (patches, size, (H, W))))
    return cases


def _unpatchify_channels_last(patches: Tensor, patch_size: lesson.Size, image_size: tuple[int, int]) -> Tensor:
    P, Q = lesson.as_pair(patch_size, "patch_size")
    pixels = patches.unflatten(2, (P * Q, -1))  # (B, N, P*Q, C)
    return lesson.unpatchify(pixels.transpose(2, 3).flatten(2), patch_size, image_size)


UNPATCHIFY = Exercise(
    name="unpatchify",
    lesson="01",
    points=3,
    right=lesson.unpatchify,
    cases=_unpatchify_cases,
    mistakes=(
        Mistake(
            name="a reshape in place of a permute",
            says="reshape never changes the order of the numbers, so each patch becomes a run of pixels along the "
            "rows. Cut the axes in two first, then permute each axis of patches next to its axis of pixels.",
            reread=_RESHAPE,
            wrong=lambda patches, patch_size, image_size: patches.reshape(len(patches), -1, *image_size),
        ),
        Mistake(
            name="channels last within a patch",
            says="You read a patch pixel by pixel, with all channels of each. It is in the order of a Conv2d kernel, "
            "channel by channel: (C, P, P).",
            reread=_ORDER,
            wrong=_unpatchify_channels_last,
        ),
    ),
)


# ---- PatchEmbedding ----------------------------------------------------------------------------------------------


def _embedding_cases() -> list[Case]:
    cases = []
    sizes: list[tuple[int, int, lesson.Size, lesson.Size, int]]
    sizes = [
        (1, 1, (4, 6), 2, 5),
        (2, 3, (6, 10), 2, 7),
        (4, 3, (6, 20), (3, 4), 8),
        (3, 6, 8, (2, 4), 5),
        (2, 3, 8, 4, 6),
    ]
    for B, C, image_size, patch_size, dim in sizes:
        build = (image_size, patch_size, C, dim)
        images = _images(B, C, *lesson.as_pair(image_size, "image_size"))
        label = f"images {tuple(images.shape)}, image_size={image_size}, patch_size={patch_size}, dim={dim}"
        cases.append(Case(label, (images,), build, random_weights(lesson.PatchEmbedding(*build))))
    return cases


def _linear(cut: Callable[[Tensor, lesson.Size], Tensor]) -> type[nn.Module]:
    """The layer as a matrix, on patches that are cut in another way."""

    class Wrong(lesson.PatchEmbedding):
        def forward(self, images: Tensor) -> Tensor:
            return F.linear(cut(images, self.patch_size), self.proj.weight.flatten(1), self.proj.bias)

    return Wrong


class _Reshaped(lesson.PatchEmbedding):
    def forward(self, images: Tensor) -> Tensor:
        maps = self.proj(images).flatten(2)  # (B, D, N)
        return maps.reshape(len(maps), maps.shape[2], maps.shape[1])


PATCH_EMBEDDING = Exercise(
    name="patch_embedding",
    lesson="01",
    points=4,
    right=lesson.PatchEmbedding,
    cases=_embedding_cases,
    # An image needs no gradient: what learns is the matrix.
    observe=functools.partial(layer, differentiable=False),
    mistakes=(
        Mistake(
            name="a reshape in place of a transpose, after the convolution",
            says="The convolution gives (B, D, rows, columns), and flatten(2) makes (B, D, N) of it. A reshape to (B, "
            "N, D) mixes channels and patches: transpose(1, 2).",
            reread=_RESHAPE,
            wrong=_Reshaped,
        ),
        Mistake(
            name="a reshape in place of patchify",
            says="The matrix is right, but it meets runs of pixels along the rows instead of patches: permute before "
            "the last reshape.",
            reread=_RESHAPE,
            wrong=_linear(_permuted(0, 1, 2, 3, 4, 5)),
        ),
        Mistake(
            name="channels last within a patch",
            says="You flatten a patch pixel by pixel; the weights expect a Conv2d kernel's order, channel by channel.",
            reread=_ORDER,
            wrong=_linear(_permuted(0, 2, 4, 3, 5, 1)),
        ),
        Mistake(
            name="rows and columns of patches exchanged",
            says="Your tokens go down the columns of patches. They go like words on a page: rows before columns.",
            reread=_HAND,
            wrong=_linear(_permuted(0, 4, 2, 1, 3, 5)),
        ),
    ),
)


# ---- The challenge -----------------------------------------------------------------------------------------------


def _overlapping(images: Tensor, patch_size: int, stride: int) -> Tensor:
    return F.unfold(images, patch_size, stride=stride).transpose(1, 2)


def _overlapping_cases() -> list[Case]:
    sizes = [((1, 1, 4, 5), 2, 1), ((2, 3, 8, 12), 4, 2), ((2, 4, 9, 12), 3, 2), ((3, 2, 12, 9), 4, 3)]
    sizes += [((2, 3, 4, 9), 4, 2), ((1, 5, 18, 13), 8, 5)]  # an image as high as a patch, and a larger one
    return [
        Case(f"images {shape}, patch_size={size}, stride={stride}", (_images(*shape), size, stride))
        for shape, size, stride in sizes
    ]


OVERLAPPING_PATCHES = Exercise(
    name="overlapping_patches",
    lesson="01",
    points=2,
    right=_overlapping,
    cases=_overlapping_cases,
)
