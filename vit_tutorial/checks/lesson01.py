"""Checks of lesson 01: cut an image into patches, put it together again, make tokens of it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vit_tutorial import patches as lesson
from vit_tutorial.checks.harness import Case, Exercise, Mistake, answers, call, check, layer, normal, random_weights

__all__ = [
    "check_overlapping_patches",
    "check_patch_embedding",
    "check_patch_numbers",
    "check_patchify",
    "check_unpatchify",
]

# ---- With a pencil -----------------------------------------------------------------------------------------------

NUMBERS = {
    "patches": 6,
    "patch 1": [3, 4, 5, 9, 10, 11],
    "pixel 16": (3, 1),
    "photo patches": 140,
    "photo length": 768,
}

PATCH_NUMBERS = Exercise(
    name="patch_numbers",
    lesson="01",
    points=3,
    right=NUMBERS,
    cases=lambda: [Case(question, (question,)) for question in NUMBERS],
    observe=answers,
    secret=True,
    advice={
        "patches": "Divide the height of the image by the height of a patch, and its width by the width of a patch.",
        "patch 1": "A patch takes 3 pixels of each of its 2 rows. Patch 0 stands in the top left corner; patch 1 is "
        "next to it, on the right.",
        "pixel 16": "First the patch, then the place within it, both counted from 0. Draw the lines between the "
        "patches, and count like words on a page.",
        "photo patches": "Divide 224 and 160 by 16, and multiply.",
        "photo length": "How many pixels has a patch, and how many numbers has a pixel?",
    },
    mistakes=(
        Mistake(
            "a reshape in place of cutting",
            "You took the pixels of patch 1 as they come in a row of the image. A patch is a block: it takes a few "
            "pixels of each of its rows.",
            "1 · Four patches, by hand",
            {"patch 1": [6, 7, 8, 9, 10, 11]},
        ),
        Mistake(
            "counting down the columns",
            "Patches are numbered like words on a page: first across, then down. You went down first.",
            "2 · The photograph",
            {"patch 1": [12, 13, 14, 18, 19, 20]},
        ),
        Mistake(
            "counting down the columns of patches, or from 1",
            "Patches are numbered like words on a page, first across, then down, and the first one is patch 0. Down "
            "the columns, or from 1, this patch would be number 4.",
            "2 · The photograph",
            {"pixel 16": (4, 1)},
        ),
        Mistake(
            "counting from 1",
            "Patch 0 is the first one, in the top left corner. You give the numbers of patch 0.",
            "2 · The photograph",
            {"patch 1": [0, 1, 2, 6, 7, 8]},
        ),
        Mistake(
            "counting from 1, or down the columns, patches and places",
            "The first patch is patch 0, the first place in it is place 0, and both are counted across first, then "
            "down. Both of yours are one too large.",
            "1 · Four patches, by hand",
            {"pixel 16": (4, 2)},
        ),
        Mistake(
            "a patch read down its columns",
            "Inside a patch, too, you read across first, then down.",
            "1 · Four patches, by hand",
            {"patch 1": [3, 9, 4, 10, 5, 11]},
        ),
        Mistake(
            "a patch's height and width exchanged",
            "The patches are 2 high and 3 wide; height comes first everywhere. Yours are 3 high and 2 wide.",
            "Height and width exchanged",
            {"patch 1": [2, 3, 8, 9, 14, 15]},
        ),
        Mistake(
            "the place within the patch read down its columns, or counted from 1",
            "The patch is right. Inside of it, too, places are counted from 0, and across first: place 1 is right of "
            "place 0.",
            "1 · Four patches, by hand",
            {"pixel 16": (3, 2)},
        ),
        Mistake(
            "the pixel's row and column in the image",
            "You say where 16 stands in the image. Asked is the patch that it goes to, and its place within it.",
            "1 · Four patches, by hand",
            {"pixel 16": (2, 4)},
        ),
        Mistake(
            "patch and place exchanged",
            "The two numbers are right, but in the other order: first the patch, then the place within it.",
            "1 · Four patches, by hand",
            {"pixel 16": (1, 3)},
        ),
        Mistake(
            "a square patch, 2 high and 2 wide",
            "A patch is 2 high and 3 wide, so fewer of them stand side by side.",
            "Rectangles",
            {"patches": 9},
        ),
        Mistake(
            "a square patch, 3 high and 3 wide",
            "A patch is 2 high and 3 wide, so more of them stand one below the other.",
            "Rectangles",
            {"patches": 4},
        ),
        Mistake(
            "pixels in place of patches",
            "You counted pixels. Each patch takes several of them.",
            "1 · Four patches, by hand",
            {"patches": 36},
        ),
        Mistake(
            "a class token that is not there yet",
            "140 patches make 140 tokens. The class token joins them in lesson 02.",
            "2 · The photograph",
            {"photo patches": 141},
        ),
        Mistake(
            "a square picture",
            "This photograph is 224 high and 160 wide: count its rows and its columns of patches apart.",
            "Rectangles",
            {"photo patches": 196},
        ),
        Mistake(
            "rows and columns added",
            "You added the number of rows and the number of columns. In each row stands one patch for each column: "
            "multiply them.",
            "2 · The photograph",
            {"photo patches": 24},
        ),
        Mistake(
            "the channels counted as patches",
            "A patch holds all three channels, so that there are no more patches than in a grey image.",
            "2 · The photograph",
            {"photo patches": 420},
        ),
        Mistake(
            "the channels forgotten",
            "A patch of 16 × 16 pixels has three numbers at each pixel.",
            "2 · The photograph",
            {"photo length": 256},
        ),
        Mistake(
            "one side of the patch forgotten",
            "A patch has 16 rows *and* 16 columns, and three numbers at each pixel.",
            "2 · The photograph",
            {"photo length": 48},
        ),
        Mistake(
            "the channels added",
            "Each pixel has three numbers, so their number is multiplied by 3, not raised by 3.",
            "2 · The photograph",
            {"photo length": 259},
        ),
    ),
)


def check_patch_numbers(fn: Callable[[], Mapping[str, Any]]) -> bool:
    """Check the answers found with a pencil: ``fn()`` returns them in a dictionary."""
    return check(PATCH_NUMBERS, fn)


# ---- patchify ----------------------------------------------------------------------------------------------------


def _images(*shape: int) -> Tensor:
    return normal(*shape, seed=sum(shape))


def _patchify_cases() -> list[Case]:
    shapes: list[tuple[tuple[int, ...], lesson.Size]]
    # All lengths differ (images, channels, rows, columns, P, Q, N, C*P*Q), so that a shape shows what was mixed up.
    shapes = [((1, 1, 4, 6), 2), ((2, 3, 20, 28), 4), ((3, 2, 28, 30), (4, 5)), ((5, 4, 6, 6), (3, 2))]
    # High ones with more than 14 × 14 patches, one patch an image, patches of one pixel, of one number; only squares.
    shapes += [((1, 2, 64, 34), (4, 2)), ((2, 3, 4, 5), (4, 5)), ((2, 3, 5, 4), 1), ((3, 1, 4, 5), 1)]
    shapes += [((2, 3, 8, 8), 4), ((1, 6, 16, 32), 16)]
    return [Case(f"images {shape}, patch_size={size}", (_images(*shape), size)) for shape, size in shapes]


def _split(images: Tensor, patch_size: lesson.Size) -> Tensor:
    """(B, C, H, W) -> (B, C, rows, P, columns, Q)."""
    (P, Q), (B, C, H, W) = lesson.as_pair(patch_size, "patch_size"), images.shape
    return images.reshape(B, C, H // P, P, W // Q, Q)


def _reshape_alone(images: Tensor, patch_size: lesson.Size) -> Tensor:
    B, _, rows, _, columns, _ = _split(images, patch_size).shape
    return images.reshape(B, rows * columns, -1)


def _reshape_channels_apart(images: Tensor, patch_size: lesson.Size) -> Tensor:
    B, C, rows, _, columns, _ = _split(images, patch_size).shape
    return images.reshape(B, C, rows * columns, -1).transpose(1, 2).flatten(2)


def _columns_first(images: Tensor, patch_size: lesson.Size) -> Tensor:
    return _split(images, patch_size).permute(0, 4, 2, 1, 3, 5).flatten(3).flatten(1, 2)


def _channels_last(images: Tensor, patch_size: lesson.Size) -> Tensor:
    return _split(images, patch_size).permute(0, 2, 4, 3, 5, 1).flatten(3).flatten(1, 2)


def _batch_merged(images: Tensor, patch_size: lesson.Size) -> Tensor:
    x = _split(images, patch_size)
    return x.permute(2, 4, 0, 1, 3, 5).reshape(len(images), x.shape[2] * x.shape[4], -1)


def _channels_first(images: Tensor, patch_size: lesson.Size) -> Tensor:
    B, C, rows, P, columns, Q = (x := _split(images, patch_size)).shape
    return x.permute(0, 1, 2, 4, 3, 5).reshape(B, rows * columns, C * P * Q)


def _sides_exchanged(images: Tensor, patch_size: lesson.Size) -> Tensor:
    B, C, H, W = images.shape
    return lesson.patchify(images.reshape(B, C, W, H), patch_size)


def _parts_exchanged(images: Tensor, patch_size: lesson.Size) -> Tensor:
    (P, Q), (B, C, H, W) = lesson.as_pair(patch_size, "patch_size"), images.shape
    x = images.reshape(B, C, P, H // P, Q, W // Q).permute(0, 3, 5, 1, 2, 4)
    return x.reshape(B, -1, C * P * Q)


def _numbers_first(images: Tensor, patch_size: lesson.Size) -> Tensor:
    return lesson.patchify(images, patch_size).transpose(1, 2)


def _patch_exchanged(images: Tensor, patch_size: lesson.Size) -> Tensor:
    P, Q = lesson.as_pair(patch_size, "patch_size")
    return lesson.patchify(images, (Q, P))


def _transposed_inside(images: Tensor, patch_size: lesson.Size) -> Tensor:
    return _split(images, patch_size).permute(0, 2, 4, 1, 5, 3).flatten(3).flatten(1, 2)


def _unfold_reshaped(images: Tensor, patch_size: lesson.Size) -> Tensor:
    x = F.unfold(images, lesson.as_pair(patch_size, "patch_size"), stride=patch_size)  # (B, C*P*P, N)
    return x.reshape(x.shape[0], x.shape[2], x.shape[1])


PATCHIFY = Exercise(
    name="patchify",
    lesson="01",
    points=5,
    right=lesson.patchify,
    cases=_patchify_cases,
    observe=call,
    mistakes=(
        Mistake(
            "a reshape in place of a permute",
            "reshape never changes the order of the numbers, so each of your patches is a run of pixels along the "
            "rows of the image. Cut the axes in two first, then permute rows and columns of patches to the front.",
            "A reshape in place of a permute",
            _reshape_alone,
        ),
        Mistake(
            "a reshape in place of a permute, with the channels kept apart",
            "reshape(B, C, N, P, P) looks right, but the numbers come out as they went in: runs of pixels along the "
            "rows, not blocks. Cut H into (rows, P) and W into (columns, P), then permute.",
            "A reshape in place of a permute",
            _reshape_channels_apart,
        ),
        Mistake(
            "rows and columns of patches exchanged",
            "You number the patches down the columns. They go like words on a page: rows before columns.",
            "2 · The photograph",
            _columns_first,
        ),
        Mistake(
            "channels last within a patch",
            "Your patch goes pixel by pixel, with all colours of each. Agreed is a Conv2d kernel's order, colour by "
            "colour: the channel axis stands before the two axes inside the patch.",
            "The order within a patch",
            _channels_last,
        ),
        Mistake(
            "batch and patches merged in the wrong order",
            "The patches of different images are mixed: the batch axis must stay in front of the patches' axes.",
            "1 · Four patches, by hand",
            _batch_merged,
        ),
        Mistake(
            "channels in front of the patches",
            "The channels still stand before rows and columns of patches when you join the axes, so a patch holds "
            "numbers of one channel from several places. Bring (C, P, Q) behind (rows, columns) first.",
            "1 · Four patches, by hand",
            _channels_first,
        ),
        Mistake(
            "height and width of the image exchanged",
            "images.shape is (B, C, H, W), height before width. On square images nobody can notice.",
            "Height and width exchanged",
            _sides_exchanged,
        ),
        Mistake(
            "the two parts of an axis exchanged",
            "H pixels are rows * P, in this order: cut H into (rows, P) and W into (columns, Q). You cut them into "
            "(P, rows) and (Q, columns), so that a patch takes pixels from all over the image.",
            "1 · Four patches, by hand",
            _parts_exchanged,
        ),
        Mistake(
            "patches left behind their numbers",
            "You return (B, C*P*P, N). Each row is to be a patch, (B, N, C*P*P): one transpose(1, 2) more.",
            "4 · The same thing as a convolution",
            _numbers_first,
        ),
        Mistake(
            "a patch's height and width exchanged",
            "patch_size=(P, Q) is (height, width), height first. On squares nobody can notice.",
            "Height and width exchanged",
            _patch_exchanged,
        ),
        Mistake(
            "pixels transposed inside each patch",
            "You read a patch column by column. Inside a patch, too, the row (y) stands before the column (x).",
            "The order within a patch",
            _transposed_inside,
        ),
        Mistake(
            "a reshape in place of a transpose after unfold",
            "Unfolding, or a convolution, gives (B, C*P*P, N). To bring N forward takes transpose(1, 2); reshape keeps "
            "the order of the numbers, and mixes all patches.",
            "A reshape in place of a permute",
            _unfold_reshaped,
        ),
    ),
)


def check_patchify(fn: Callable[..., Tensor]) -> bool:
    """Check ``fn(images, patch_size)``: (B, C, H, W) -> (B, N, C*P*P)."""
    return check(PATCHIFY, fn)


# ---- unpatchify --------------------------------------------------------------------------------------------------


def _unpatchify_cases() -> list[Case]:
    sizes: list[tuple[tuple[int, int], lesson.Size, tuple[int, int]]]
    sizes = [((1, 1), 2, (4, 6)), ((2, 3), 4, (20, 28)), ((3, 2), (4, 5), (28, 30)), ((5, 4), (3, 2), (6, 6))]
    sizes += [((1, 2), (4, 2), (64, 34)), ((2, 3), (4, 5), (4, 5)), ((2, 3), 1, (5, 4)), ((3, 1), 1, (4, 5))]
    sizes += [((2, 3), 4, (8, 8)), ((1, 6), 16, (16, 32))]
    made = []
    for (B, C), size, (H, W) in sizes:
        patches = lesson.patchify(_images(B, C, H, W), size)
        label = f"patches {tuple(patches.shape)}, patch_size={size}, image_size={(H, W)}"
        made.append(Case(label, (patches, size, (H, W))))
    return made


def _grid(patches: Tensor, patch_size: lesson.Size, image_size: lesson.Size) -> Tensor:
    """(B, N, C*P*P) -> (B, rows, columns, C, P, Q)."""
    P, Q = lesson.as_pair(patch_size, "patch_size")
    rows, columns = lesson.grid_shape(image_size, patch_size)
    return patches.reshape(patches.shape[0], rows, columns, -1, P, Q)


def _back_by_reshape(patches: Tensor, patch_size: lesson.Size, image_size: tuple[int, int]) -> Tensor:
    return patches.reshape(patches.shape[0], -1, *image_size)


def _back_columns_first(patches: Tensor, patch_size: lesson.Size, image_size: tuple[int, int]) -> Tensor:
    (P, Q), (rows, columns) = lesson.as_pair(patch_size, "patch_size"), lesson.grid_shape(image_size, patch_size)
    x = patches.reshape(patches.shape[0], columns, rows, -1, P, Q)
    return x.permute(0, 3, 2, 4, 1, 5).reshape(patches.shape[0], -1, *image_size)


def _back_same_permute(patches: Tensor, patch_size: lesson.Size, image_size: tuple[int, int]) -> Tensor:
    x = _grid(patches, patch_size, image_size).permute(0, 2, 4, 1, 3, 5)
    return x.reshape(patches.shape[0], -1, *image_size)


def _back_channels_last(patches: Tensor, patch_size: lesson.Size, image_size: tuple[int, int]) -> Tensor:
    x = _grid(patches, patch_size, image_size)
    x = x.flatten(3).unflatten(3, (*x.shape[4:], x.shape[3]))  # (B, rows, columns, P, Q, C)
    return x.permute(0, 5, 1, 3, 2, 4).reshape(patches.shape[0], -1, *image_size)


def _back_inside_first(patches: Tensor, patch_size: lesson.Size, image_size: tuple[int, int]) -> Tensor:
    x = _grid(patches, patch_size, image_size).permute(0, 3, 4, 1, 5, 2)
    return x.reshape(patches.shape[0], -1, *image_size)


def _back_inside_turned(patches: Tensor, patch_size: lesson.Size, image_size: tuple[int, int]) -> Tensor:
    x = _grid(patches, patch_size, image_size).permute(0, 3, 1, 5, 2, 4)
    return x.reshape(patches.shape[0], -1, *image_size)


def _back_inside_cut_turned(patches: Tensor, patch_size: lesson.Size, image_size: tuple[int, int]) -> Tensor:
    x = _grid(patches, patch_size, image_size)
    x = x.flatten(4).unflatten(4, x.shape[:3:-1])  # (B, rows, columns, C, Q, P)
    return x.permute(0, 3, 1, 5, 2, 4).reshape(patches.shape[0], -1, *image_size)


def _folded_by_reshape(patches: Tensor, patch_size: lesson.Size, image_size: tuple[int, int]) -> Tensor:
    P, Q = lesson.as_pair(patch_size, "patch_size")
    x = patches.reshape(patches.shape[0], patches.shape[2], patches.shape[1])
    return F.fold(x, image_size, (P, Q), stride=(P, Q))


def _back_size_exchanged(patches: Tensor, patch_size: lesson.Size, image_size: tuple[int, int]) -> Tensor:
    return lesson.unpatchify(patches, patch_size, image_size[::-1])


UNPATCHIFY = Exercise(
    name="unpatchify",
    lesson="01",
    points=3,
    right=lesson.unpatchify,
    cases=_unpatchify_cases,
    observe=call,
    mistakes=(
        Mistake(
            "a reshape in place of a permute",
            "reshape lays the patches out one after the other, as they lie in memory. A row of the image takes a few "
            "pixels of every patch in that row: permute between two reshapes.",
            "A reshape in place of a permute",
            _back_by_reshape,
        ),
        Mistake(
            "patchify's permutation used a second time",
            "The way back needs the inverse permutation. Write the axes that you have, (B, rows, columns, C, P, P), "
            "and those that you want, (B, C, rows, P, columns, P).",
            "1 · Four patches, by hand",
            _back_same_permute,
        ),
        Mistake(
            "rows and columns of patches exchanged",
            "N counts across first, then down, so it is cut into (rows, columns), in this order.",
            "2 · The photograph",
            _back_columns_first,
        ),
        Mistake(
            "channels last within a patch",
            "The last axis holds (C, P, P), colour by colour; you cut it as (P, P, C).",
            "The order within a patch",
            _back_channels_last,
        ),
        Mistake(
            "pixels transposed inside each patch",
            "Inside a patch, the row (y) stands before the column (x). You join the patch's columns to the rows of the "
            "image.",
            "The order within a patch",
            _back_inside_turned,
        ),
        Mistake(
            "each patch cut as (C, Q, P)",
            "The last axis holds (C, P, Q): inside a patch, too, the row (y) stands before the column (x).",
            "The order within a patch",
            _back_inside_cut_turned,
        ),
        Mistake(
            "a reshape in place of a transpose before fold",
            "F.fold reads (B, C*P*P, N). To bring N to the end takes transpose(1, 2); reshape keeps the order of the "
            "numbers, and mixes all patches.",
            "A reshape in place of a permute",
            _folded_by_reshape,
        ),
        Mistake(
            "inside and outside of a patch exchanged",
            "An image's row is patch row * P + y, so `rows` stands before `P` when the two axes are joined; the same "
            "for columns. The other way round, the image is woven from all patches.",
            "1 · Four patches, by hand",
            _back_inside_first,
        ),
        Mistake(
            "height and width of the image exchanged",
            "image_size is (H, W), height first. On squares nobody can notice.",
            "Height and width exchanged",
            _back_size_exchanged,
        ),
    ),
)


def check_unpatchify(fn: Callable[..., Tensor]) -> bool:
    """Check ``fn(patches, patch_size, image_size)``: (B, N, C*P*P) -> (B, C, H, W)."""
    return check(UNPATCHIFY, fn)


# ---- PatchEmbedding ----------------------------------------------------------------------------------------------


def _embedding_cases() -> list[Case]:
    made = []
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
        made.append(Case(label, (images,), build, random_weights(lesson.PatchEmbedding(*build))))
    return made


class _TokensReshaped(lesson.PatchEmbedding):
    def forward(self, images: Tensor) -> Tensor:
        maps = self.proj(images)  # (B, D, rows, columns)
        return maps.reshape(maps.shape[0], -1, maps.shape[1])


class _TokensBehind(lesson.PatchEmbedding):
    def forward(self, images: Tensor) -> Tensor:
        return self.proj(images).flatten(2)


class _StrideForgotten(lesson.PatchEmbedding):
    def forward(self, images: Tensor) -> Tensor:
        return F.conv2d(images, self.proj.weight, self.proj.bias).flatten(2).transpose(1, 2)


class _KernelChannelsLast(lesson.PatchEmbedding):
    def forward(self, images: Tensor) -> Tensor:
        return F.linear(_channels_last(images, self.patch_size), self.proj.weight.flatten(1), self.proj.bias)


class _LinearOnReshaped(lesson.PatchEmbedding):
    def forward(self, images: Tensor) -> Tensor:
        return F.linear(_reshape_alone(images, self.patch_size), self.proj.weight.flatten(1), self.proj.bias)


class _TokensColumnsFirst(lesson.PatchEmbedding):
    def forward(self, images: Tensor) -> Tensor:
        return self.proj(images).transpose(2, 3).flatten(2).transpose(1, 2)


class _ColoursBackwards(lesson.PatchEmbedding):
    def forward(self, images: Tensor) -> Tensor:
        return super().forward(images.flip(1))


class _Divided(lesson.PatchEmbedding):
    def forward(self, images: Tensor) -> Tensor:
        return super().forward(images / 255)


class _NoBias(lesson.PatchEmbedding):
    def forward(self, images: Tensor) -> Tensor:
        return F.conv2d(images, self.proj.weight, stride=self.patch_size).flatten(2).transpose(1, 2)


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
            "a reshape in place of a transpose after the convolution",
            "The convolution gives (B, D, rows, columns). Flatten rows and columns, then transpose(1, 2): a reshape "
            "mixes entries of many patches in one token.",
            "A reshape in place of a permute",
            _TokensReshaped,
        ),
        Mistake(
            "tokens left behind the width",
            "You return (B, D, N). A transformer reads (B, N, D): one transpose(1, 2) more.",
            "4 · The same thing as a convolution",
            _TokensBehind,
        ),
        Mistake(
            "a convolution without its stride",
            "With stride 1 the kernel moves pixel by pixel, and patches overlap. The stride is the patch size.",
            "4 · The same thing as a convolution",
            _StrideForgotten,
        ),
        Mistake(
            "channels last within a patch",
            "You flatten a patch pixel by pixel; the weights expect a Conv2d kernel's order, colour by colour.",
            "The order within a patch",
            _KernelChannelsLast,
        ),
        Mistake(
            "a reshape in place of patchify",
            "The matrix is right, but it meets runs of pixels along the rows instead of patches: permute before the "
            "last reshape.",
            "A reshape in place of a permute",
            _LinearOnReshaped,
        ),
        Mistake(
            "rows and columns of patches exchanged",
            "Your tokens go down the columns first. They go across first, then down.",
            "2 · The photograph",
            _TokensColumnsFirst,
        ),
        Mistake(
            "a projection without its bias",
            "A token is x E + b. Keep bias=True, the default of nn.Linear and nn.Conv2d.",
            "4 · The same thing as a convolution",
            _NoBias,
        ),
        Mistake(
            "channels in backward order",
            "The kernel's channels stand in the images' own order: take images as they are.",
            "The order within a patch",
            _ColoursBackwards,
        ),
        Mistake(
            "a division by 255",
            "The images come as they shall be used; scaling them is not this layer's work.",
            "4 · The same thing as a convolution",
            _Divided,
        ),
    ),
)


def check_patch_embedding(cls: type[nn.Module]) -> bool:
    """Check the class ``cls(image_size, patch_size, in_channels, dim)``, whose ``proj`` is a Linear or a Conv2d."""
    return check(PATCH_EMBEDDING, cls)


# ---- The challenge -----------------------------------------------------------------------------------------------


def _overlapping(images: Tensor, patch_size: int, stride: int) -> Tensor:
    return F.unfold(images, patch_size, stride=stride).transpose(1, 2)


def _overlapping_cases() -> list[Case]:
    sizes = [((1, 1, 4, 5), 2, 1), ((2, 3, 8, 12), 4, 2), ((2, 4, 9, 12), 3, 2), ((3, 2, 12, 9), 4, 3)]
    # Images as high as a patch, as wide as one, and square ones.
    sizes += [
        ((2, 3, 4, 9), 4, 2),
        ((2, 2, 7, 3), 3, 2),
        ((2, 3, 8, 8), 4, 3),
        ((2, 3, 5, 5), 5, 4),
        ((1, 5, 18, 13), 8, 5),
    ]
    made = [
        Case(f"images {shape}, patch_size={size}, stride={stride}", (_images(*shape), size, stride))
        for shape, size, stride in sizes
    ]
    return [*made, Case("images (2, 3, 6, 5) of zeros, patch_size=3, stride=1", (torch.zeros(2, 3, 6, 5), 3, 1))]


def _last_position_lost(images: Tensor, patch_size: int, stride: int) -> Tensor:
    H, W = images.shape[2:]
    tops, lefts = range(0, H - patch_size, stride), range(0, W - patch_size, stride)
    blocks = [images[..., y : y + patch_size, x : x + patch_size].flatten(1) for y in tops for x in lefts]
    return torch.stack(blocks, dim=1)


def _overlap_ignored(images: Tensor, patch_size: int, stride: int) -> Tensor:
    return _overlapping(images, patch_size, patch_size)


def _overlap_columns_first(images: Tensor, patch_size: int, stride: int) -> Tensor:
    x = images.unfold(2, patch_size, stride).unfold(3, patch_size, stride)  # (B, C, rows, columns, P, P)
    return x.permute(0, 3, 2, 1, 4, 5).flatten(3).flatten(1, 2)


def _overlap_permuted(*order: int) -> Callable[[Tensor, int, int], Tensor]:
    def overlap(images: Tensor, patch_size: int, stride: int) -> Tensor:
        x = images.unfold(2, patch_size, stride).unfold(3, patch_size, stride)
        B, C, rows, columns, P, _ = x.shape
        return x.permute(order).reshape(B, rows * columns, C * P * P)

    return overlap


def _overlap_padded(images: Tensor, patch_size: int, stride: int) -> Tensor:
    H, W = images.shape[2:]
    padding = (0, -(W - patch_size) % stride, 0, -(H - patch_size) % stride)
    return _overlapping(F.pad(images, padding), patch_size, stride)


def _overlap_as_many(images: Tensor, patch_size: int, stride: int) -> Tensor:
    rows, columns = images.shape[2] // patch_size, images.shape[3] // patch_size
    H, W = ((many - 1) * stride + patch_size for many in (rows, columns))
    return _overlapping(images[..., :H, :W], patch_size, stride)


def _overlap_reshaped(images: Tensor, patch_size: int, stride: int) -> Tensor:
    x = F.unfold(images, patch_size, stride=stride)
    return x.reshape(x.shape[0], x.shape[2], x.shape[1])


OVERLAPPING_PATCHES = Exercise(
    name="overlapping_patches",
    lesson="01",
    points=2,
    right=_overlapping,
    cases=_overlapping_cases,
    observe=call,
    mistakes=(
        Mistake(
            "the last row and column of patches lost",
            "A patch of P pixels has (H - P) // stride + 1 places: range(0, H - P + 1, stride) includes the last one.",
            "4 · The same thing as a convolution",
            _last_position_lost,
        ),
        Mistake(
            "steps of a whole patch",
            "Your patches stand side by side. They begin `stride` pixels apart, so they overlap.",
            "4 · The same thing as a convolution",
            _overlap_ignored,
        ),
        Mistake(
            "rows and columns of patches exchanged",
            "You number the patches down the columns. They go like words on a page.",
            "2 · The photograph",
            _overlap_columns_first,
        ),
        Mistake(
            "steps of one pixel",
            "Your patches begin one pixel apart. They begin `stride` pixels apart.",
            "4 · The same thing as a convolution",
            lambda images, patch_size, stride: _overlapping(images, patch_size, 1),
        ),
        Mistake(
            "stride and patch size exchanged",
            "patch_size is how many pixels a patch has on a side, stride how far apart two of them begin.",
            "4 · The same thing as a convolution",
            lambda images, patch_size, stride: _overlapping(images, stride, patch_size),
        ),
        Mistake(
            "patches of stride pixels",
            "Your patches are `stride` pixels high and wide. They have patch_size pixels on a side, and overlap.",
            "4 · The same thing as a convolution",
            lambda images, patch_size, stride: _overlapping(images, stride, stride),
        ),
        Mistake(
            "patches left behind their numbers",
            "You return (B, C*P*P, N). Each row is to be a patch, (B, N, C*P*P): one transpose(1, 2) more.",
            "A reshape in place of a permute",
            lambda images, patch_size, stride: F.unfold(images, patch_size, stride=stride),
        ),
        Mistake(
            "channels in front of the patches",
            "The channels still stand before rows and columns of patches when you join the axes. Bring (C, P, P) "
            "behind (rows, columns) first.",
            "1 · Four patches, by hand",
            _overlap_permuted(0, 1, 2, 3, 4, 5),
        ),
        Mistake(
            "channels last within a patch",
            "Your patch goes pixel by pixel, with all colours of each. Agreed is colour by colour: the channel axis "
            "stands before the two axes inside the patch.",
            "The order within a patch",
            _overlap_permuted(0, 2, 3, 4, 5, 1),
        ),
        Mistake(
            "pixels transposed inside each patch",
            "You read a patch column by column. Inside a patch, the row (y) stands before the column (x).",
            "The order within a patch",
            _overlap_permuted(0, 2, 3, 1, 5, 4),
        ),
        Mistake(
            "batch and patches merged in the wrong order",
            "The patches of different images are mixed: the batch axis must stay in front of the patches' axes.",
            "1 · Four patches, by hand",
            _overlap_permuted(2, 3, 0, 1, 4, 5),
        ),
        Mistake(
            "a rest that is filled up",
            "You pad the image so that one more patch fits. A patch that does not fit is left out.",
            "4 · The same thing as a convolution",
            _overlap_padded,
        ),
        Mistake(
            "as many patches as fit side by side",
            "H // P counts patches that don't overlap. `stride` apart, (H - P) // stride + 1 fit.",
            "4 · The same thing as a convolution",
            _overlap_as_many,
        ),
        Mistake(
            "a reshape in place of a transpose after unfold",
            "Unfolding gives (B, C*P*P, N). To bring N forward takes transpose(1, 2).",
            "A reshape in place of a permute",
            _overlap_reshaped,
        ),
    ),
)


def check_overlapping_patches(fn: Callable[..., Tensor]) -> bool:
    """Check ``fn(images, patch_size, stride)``: (B, C, H, W) -> (B, N, C*P*P), patches ``stride`` pixels apart."""
    return check(OVERLAPPING_PATCHES, fn)
