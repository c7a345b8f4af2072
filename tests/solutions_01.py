"""Answers to the exercises of lesson 01: right ones, written in different ways, and wrong ones with what they hear."""

import functools
from fractions import Fraction

import numpy as np
import torch
from einops import rearrange
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


def patchify_by_convolution(images, patch_size):
    P, Q = pair(patch_size)
    C = images.shape[1]
    kernel = torch.eye(C * P * Q).reshape(C * P * Q, C, P, Q)
    return F.conv2d(images, kernel, stride=(P, Q)).flatten(2).transpose(1, 2)


def patchify_by_numpy(images, patch_size):
    P, Q = pair(patch_size)
    x = images.numpy()
    B, C, H, W = x.shape
    return x.reshape(B, C, H // P, P, W // Q, Q).transpose(0, 2, 4, 1, 3, 5).reshape(B, -1, C * P * Q)


@torch.no_grad()
def patchify_in_double(images, patch_size):
    return patchify_by_loops(images, patch_size).double()


def patchify_into_zeros(images, patch_size):
    P, Q = pair(patch_size)
    B, C, H, W = images.shape
    out = torch.zeros(B, (H // P) * (W // Q), C * P * Q)
    for n in range(out.shape[1]):
        y, x = divmod(n, W // Q)
        out[:, n] = images[:, :, y * P : (y + 1) * P, x * Q : (x + 1) * Q].reshape(B, -1)
    return out


def unpatchify_by_numpy(patches, patch_size, image_size):
    (P, Q), (H, W) = pair(patch_size), image_size
    x = np.asarray(patches).reshape(len(patches), H // P, W // Q, -1, P, Q)
    return torch.from_numpy(np.ascontiguousarray(x.transpose(0, 3, 1, 4, 2, 5))).reshape(len(patches), -1, H, W)


def unpatchify_by_cat(patches, patch_size, image_size):
    (P, Q), (_, W) = pair(patch_size), image_size
    tiles = patches.unflatten(-1, (-1, P, Q)).unbind(1)
    across = W // Q
    return torch.cat([torch.cat(tiles[r : r + across], dim=-1) for r in range(0, len(tiles), across)], dim=-2)


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


class InDouble(ByConvolution):
    def __init__(self, *args):
        super().__init__(*args)
        self.double()

    def forward(self, images):
        return super().forward(images.double())


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


def overlapping_by_convolution(images, patch_size, stride):
    length = images.shape[1] * patch_size**2
    kernel = torch.eye(length).view(length, -1, patch_size, patch_size)
    return F.conv2d(images, kernel, stride=stride).flatten(2).mT


NUMBERS = {
    "patches": 6, "patch 1": [3, 4, 5, 9, 10, 11], "pixel 16": (3, 1), "photo patches": 140, "photo length": 768,
}  # fmt: skip

SOLUTIONS = {
    "patch_numbers": (
        lambda: NUMBERS,
        lambda: NUMBERS | {"patch 1": torch.tensor([3, 4, 5, 9, 10, 11]), "photo patches": torch.tensor(140)},
        lambda: NUMBERS | {"patches": 6.0, "pixel 16": [3, 1], "photo length": Fraction(768)},
        lambda: NUMBERS | {"patch 1": [[3, 4, 5], [9, 10, 11]], "pixel 16": torch.tensor([3, 1])},
        lambda: NUMBERS | {"patch 1": np.array([3, 4, 5, 9, 10, 11]), "patches": [6], "pixel 16": np.array([3.0, 1.0])},
        lambda: NUMBERS | {"more": "than asked"},
    ),
    "patchify": (
        patchify_by_loops,
        patchify_by_einops,
        patchify_by_unfold,
        patchify_by_convolution,
        patchify_by_numpy,
        patchify_in_double,
        patchify_into_zeros,
        lambda images, patch_size: vt.unpatchify and patchify_by_loops(images, patch_size).detach(),
    ),
    "unpatchify": (
        unpatchify_by_einops,
        unpatchify_by_fold,
        unpatchify_by_loops,
        unpatchify_by_numpy,
        unpatchify_by_cat,
        lambda *args: unpatchify_by_fold(*args).double(),
    ),
    "patch_embedding": (ByConvolution, ByLinear, Nested, ByEinsum, InDouble),
    "overlapping_patches": (
        overlapping_by_loops,
        overlapping_by_unfold,
        overlapping_by_views,
        overlapping_by_numpy,
        overlapping_by_convolution,
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


def permuted(*order):
    def patchify(images, patch_size):
        x = cut(images, patch_size)
        B, C, rows, P, columns, Q = x.shape
        return x.permute(order).reshape(B, rows * columns, C * P * Q)

    return patchify


def patchify_sides_exchanged(images, patch_size):
    P, Q = pair(patch_size)
    B, C, W, H = images.shape
    x = images.reshape(B, C, H // P, P, W // Q, Q).permute(0, 2, 4, 1, 3, 5)
    return x.reshape(B, -1, C * P * Q)


def patchify_channels_last_images(images, patch_size):
    P, Q = pair(patch_size)
    B, H, W, C = images.shape
    x = images.reshape(B, H // P, P, W // Q, Q, C).permute(0, 1, 3, 5, 2, 4)
    return x.reshape(B, -1, C * P * Q)


def patchify_inner_cut(images, patch_size):
    """The axes cut the other way round: P in front of the rows."""
    (P, Q), (B, C, H, W) = pair(patch_size), images.shape
    x = images.reshape(B, C, P, H // P, Q, W // Q).permute(0, 3, 5, 1, 2, 4)
    return x.reshape(B, -1, C * P * Q)


def patchify_unfolds(images, patch_size):
    P, Q = pair(patch_size)
    return images.unfold(2, P, P).unfold(3, Q, Q).reshape(len(images), -1, images.shape[1] * P * Q)


def patchify_squares_only(images, patch_size):
    P = patch_size if isinstance(patch_size, int) else patch_size[0]
    return patchify_by_loops(images, P)


def patchify_first_image(images, patch_size):
    x = patchify_by_loops(images, patch_size)
    return x[:1].expand_as(x)


def patchify_first_channel(images, patch_size):
    return patchify_by_loops(images[:, :1].expand_as(images), patch_size)


def patchify_mean_of_channels(images, patch_size):
    return patchify_by_loops(images.mean(1, keepdim=True), patch_size)


def patchify_last_row_lost(images, patch_size):
    P, _ = pair(patch_size)
    return patchify_by_loops(images[:, :, :-P], patch_size)


def patchify_in_place(images, patch_size):
    images.mul_(2)
    return patchify_by_loops(images, patch_size) / 2


def patchify_backwards(images, patch_size):
    return patchify_by_loops(images, patch_size).flip(1)


def patchify_snake(images, patch_size):
    _, Q = pair(patch_size)
    rows = patchify_by_loops(images, patch_size).unflatten(1, (-1, images.shape[3] // Q))
    rows = torch.stack([row.flip(1) if i % 2 else row for i, row in enumerate(rows.unbind(1))], dim=1)
    return rows.flatten(1, 2)


def patchify_batch_of_one(images, patch_size):
    return patchify_by_loops(images, patch_size)[0]


def patchify_as_list(images, patch_size):
    return list(patchify_by_loops(images, patch_size).unbind(1))


def patchify_prints(images, patch_size):
    print(patchify_by_loops(images, patch_size).shape)


def patchify_typo(images, patch_size):
    P, Q = pair(patch_size)
    return images.reshape(B, -1, P * Q)  # noqa: F821


def patchify_normalised(images, patch_size):
    x = patchify_by_loops(images, patch_size)
    return (x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True)


def patchify_whole_patches_sorted(images, patch_size):
    return patchify_by_loops(images, patch_size).sort(-1).values


def patchify_class_token(images, patch_size):
    x = patchify_by_loops(images, patch_size)
    return torch.cat([torch.zeros_like(x[:, :1]), x], dim=1)


class Holder:
    def __init__(self, function):
        self.function = function

    def __call__(self, *args):
        return self.function(*args)


def back(order, first="rows", channels="first"):
    """The way back by another order of the six axes."""

    def unpatchify(patches, patch_size, image_size):
        (P, Q), (H, W) = pair(patch_size), image_size
        rows, columns = H // P, W // Q
        B, C = len(patches), patches.shape[2] // (P * Q)
        grid = (rows, columns) if first == "rows" else (columns, rows)
        inside = {"first": (C, P, Q), "last": (P, Q, C), "turned": (C, Q, P)}[channels]
        return patches.reshape(B, *grid, *inside).permute(order).reshape(B, C, H, W)

    return unpatchify


def unpatchify_three_channels(patches, patch_size, image_size):
    (P, Q), (H, W) = pair(patch_size), image_size
    return patches.reshape(len(patches), H // P, W // Q, 3, P, Q).permute(0, 3, 1, 4, 2, 5).reshape(-1, 3, H, W)


def unpatchify_by_fold_without_transpose(patches, patch_size, image_size):
    x = patches.reshape(patches.shape[0], patches.shape[2], patches.shape[1])
    return F.fold(x, image_size, pair(patch_size), stride=pair(patch_size))


def unpatchify_width_first(patches, patch_size, image_size):
    (P, Q), (W, H) = pair(patch_size), image_size
    x = patches.reshape(len(patches), H // P, W // Q, -1, P, Q).permute(0, 3, 1, 4, 2, 5)
    return x.reshape(len(patches), -1, H, W)


class Wrong(nn.Module):
    """A convolution, and a wrong way to go on."""

    options: dict = {}  # noqa: RUF012

    def __init__(self, image_size, patch_size, in_channels, dim):
        super().__init__()
        self.image_size, self.size = image_size, patch_size
        self.proj = nn.Conv2d(in_channels, dim, patch_size, **{"stride": patch_size} | self.options)


def embed(forward, **options):
    """A class with another forward(self, images)."""
    return type("PatchEmbedding", (Wrong,), {"forward": forward, "options": options})


def maps_to_tokens(maps):
    return maps.flatten(2).transpose(1, 2)


class OnReshaped(ByLinear):
    def forward(self, images):
        P, Q = pair(self.patch_size)
        return self.proj(images.reshape(len(images), -1, images.shape[1] * P * Q))


class WithNorm(ByLinear):
    def __init__(self, image_size, patch_size, in_channels, dim):
        super().__init__(image_size, patch_size, in_channels, dim)
        self.norm = nn.LayerNorm(dim)


class WithoutGradient(ByConvolution):
    def forward(self, images):
        with torch.no_grad():
            return super().forward(images)


class WithActivation(ByConvolution):
    def forward(self, images):
        return F.gelu(super().forward(images))


class SquaresOnly(ByConvolution):
    def __init__(self, image_size, patch_size, in_channels, dim):
        H, W = image_size
        super().__init__((H, W), patch_size, in_channels, dim)


class OneChannel(nn.Module):
    def __init__(self, image_size, patch_size, in_channels, dim):
        super().__init__()
        self.proj = nn.Conv2d(3, dim, patch_size, patch_size)

    def forward(self, images):
        return maps_to_tokens(self.proj(images))


class Forgotten(nn.Module):
    def __init__(self, image_size, patch_size, in_channels, dim):
        super().__init__()
        proj = nn.Conv2d(in_channels, dim, patch_size, patch_size)  # noqa: F841

    def forward(self, images):
        return maps_to_tokens(self.proj(images))


class NoInit(nn.Module):
    def __init__(self, image_size, patch_size, in_channels, dim):
        self.proj = nn.Conv2d(in_channels, dim, patch_size, patch_size)


class OtherName(nn.Module):
    def __init__(self, image_size, patch_size, in_channels, dim):
        super().__init__()
        self.linear = nn.Conv2d(in_channels, dim, patch_size, patch_size)

    def forward(self, images):
        return maps_to_tokens(self.linear(images))


class Inherits(vt.PatchEmbedding):
    pass


def windows(images, patch_size, stride):
    return images.unfold(2, patch_size, stride).unfold(3, patch_size, stride)  # (B, C, rows, columns, P, P)


def overlap(order):
    def overlapping_patches(images, patch_size, stride):
        x = windows(images, patch_size, stride)
        B, C, rows, columns, P, _ = x.shape
        return x.permute(order).reshape(B, rows * columns, C * P * P)

    return overlapping_patches


def overlap_padded(images, patch_size, stride):
    H, W = images.shape[2:]
    down, right = -(H - patch_size) % stride, -(W - patch_size) % stride
    return overlapping_by_unfold(F.pad(images, (0, right, 0, down)), patch_size, stride)


def overlap_counted(images, patch_size, stride):
    """As many patches as fit side by side."""
    H, W = images.shape[2:]
    rows, columns = H // patch_size, W // patch_size
    found = [
        images[:, :, y * stride : y * stride + patch_size, x * stride : x * stride + patch_size].flatten(1)
        for y in range(rows)
        for x in range(columns)
    ]
    return torch.stack(found, dim=1)


def overlap_rows_only(images, patch_size, stride):
    x = images.unfold(2, patch_size, stride).unfold(3, patch_size, patch_size)
    return rearrange(x, "b c r s p q -> b (r s) (c p q)")


def overlap_by_height(images, patch_size, stride):
    """A square is taken for granted: columns are counted by the height."""
    H = images.shape[2]
    places = range(0, H - patch_size + 1, stride)
    found = [images[:, :, y : y + patch_size, x : x + patch_size].flatten(1) for y in places for x in places]
    return torch.stack(found, dim=1)


def overlap_by_loops(first, last=1):
    def overlapping_patches(images, patch_size, stride):
        H, W = images.shape[2:]
        rows, columns = range(0, H - patch_size + last, stride), range(0, W - patch_size + last, stride)
        corners = (
            [(y, x) for y in rows for x in columns] if first == "rows" else [(y, x) for x in columns for y in rows]
        )
        return torch.stack([images[:, :, y : y + patch_size, x : x + patch_size].flatten(1) for y, x in corners], 1)

    return overlapping_patches


class KeepsTheFirst(ByConvolution):
    """What the first batch became, for all batches."""

    kept = None

    def forward(self, images):
        if self.kept is None:
            self.kept = super().forward(images)
        return self.kept


class MovesItsWeights(ByConvolution):
    def forward(self, images):
        tokens = super().forward(images)
        self.proj.weight.data *= 0.5
        return tokens


class DropsInTraining(ByConvolution):
    def forward(self, images):
        return F.dropout(super().forward(images), 0.1, self.training)


WRONG = {
    "patch_numbers": (
        (answer(patch_1=[6, 7, 8, 9, 10, 11]), "a reshape in place of cutting"),
        (answer(patch_1=[12, 13, 14, 18, 19, 20]), "counting down the columns"),
        (answer(patch_1=[2, 3, 8, 9, 14, 15]), "a patch's height and width exchanged"),
        (answer(patch_1=[0, 1, 2, 6, 7, 8]), "counting from 1"),
        (answer(patch_1=[3, 9, 4, 10, 5, 11]), "a patch read down its columns"),
        (answer(patch_1=[3, 4, 5]), "patch 1 is of type list of 3, expected a list of 6"),
        (answer(patch_1=[3, 4, 5, 9, 10, 12]), "A patch takes 3 pixels"),
        (answer(pixel_16=(3, 2)), "the place within the patch read down its columns, or counted from 1"),
        (answer(pixel_16=(2, 4)), "the pixel's row and column"),
        (answer(pixel_16=(4, 2)), "counting from 1, or down the columns"),
        (answer(pixel_16=(1, 3)), "patch and place exchanged"),
        (answer(pixel_16=(4, 1)), "counting down the columns of patches, or from 1"),
        (answer(pixel_16=(3, 0)), "First the patch, then"),
        (answer(patches=9), "a square patch"),
        (answer(patches=5), "Divide the height"),
        (answer(patches=36), "pixels in place of patches"),
        (answer(patches="6"), "patches is of type str, expected a number"),
        (answer(photo_patches=141), "a class token that is not there yet"),
        (answer(photo_patches=196), "a square picture"),
        (answer(photo_patches=24), "rows and columns added"),
        (answer(photo_patches=139), "Divide 224 and 160"),
        (answer(photo_length=256), "the channels forgotten"),
        (answer(photo_length=48), "one side of the patch"),
        (answer(photo_length=16), "How many pixels"),
        (answer(photo_length=None), "photo length is None"),
        (answer(photo_patches=14 * 10 * 3), "the channels counted as patches"),
        (lambda: {}, "there is no answer for 'patches' yet"),
        (lambda: None, "returned None, expected a dictionary"),
        (lambda: list(NUMBERS.values()), "expected a dictionary of answers"),
    ),
    "patchify": (
        (permuted(0, 1, 2, 3, 4, 5), "a reshape in place of a permute"),
        (permuted(0, 1, 2, 4, 3, 5), "channels in front of the patches"),
        (permuted(0, 4, 2, 1, 3, 5), "rows and columns of patches exchanged"),
        (permuted(0, 2, 4, 3, 5, 1), "channels last within a patch"),
        (permuted(2, 4, 0, 1, 3, 5), "batch and patches merged in the wrong order"),
        (permuted(0, 2, 4, 1, 5, 3), "pixels transposed inside each patch"),
        (permuted(0, 4, 2, 1, 5, 3), "What your numbers show: The right numbers are all there"),
        (permuted(0, 3, 5, 1, 2, 4), "What your numbers show"),
        (permuted(0, 2, 3, 1, 4, 5), "What your numbers show"),
        (permuted(0, 2, 1, 4, 3, 5), "What your numbers show"),
        (permuted(0, 2, 4, 5, 3, 1), "What your numbers show"),
        (permuted(2, 0, 4, 1, 3, 5), "What your numbers show"),
        (patchify_sides_exchanged, "height and width of the image exchanged"),
        (patchify_channels_last_images, ""),
        (patchify_inner_cut, "the two parts of an axis exchanged"),
        (patchify_unfolds, "channels in front of the patches"),
        (patchify_squares_only, "raised RuntimeError"),
        (patchify_first_image, "some come twice and some never"),
        (patchify_first_channel, ""),
        (patchify_mean_of_channels, "has shape"),
        (patchify_last_row_lost, "the right ones are missing"),
        (patchify_in_place, "argument 1 was changed in place"),
        (patchify_backwards, "runs backwards"),
        (patchify_snake, ""),
        (patchify_batch_of_one, "has shape"),
        (patchify_as_list, "is of type list"),
        (patchify_prints, "is None: is the return missing?"),
        (patchify_typo, "raised NameError"),
        (patchify_normalised, "What your numbers show"),
        (patchify_whole_patches_sorted, "within it they stand in another order"),
        (patchify_class_token, "the first 1 of yours are too many"),
        (lambda i, p: F.unfold(i, pair(p), stride=pair(p)), "patches left behind their numbers"),
        (
            lambda i, p: (lambda x: x.reshape(x.shape[0], x.shape[2], -1))(F.unfold(i, pair(p), stride=pair(p))),
            "a reshape in place of a transpose after unfold",
        ),
        (lambda i, p: patchify_by_loops(i, pair(p)[::-1]), "a patch's height and width exchanged"),
        (
            lambda i, p: i.reshape(len(i), i.shape[1], -1, pair(p)[0] * pair(p)[1]).transpose(1, 2).flatten(2),
            "kept apart",
        ),
        (lambda i, p: patchify_by_loops(i.flip(1), p), ""),
        (lambda i, p: patchify_by_loops(i.mT, p), ""),
        (lambda i, p: patchify_by_loops(i, p).mT, "patches left behind their numbers"),
        (lambda i, p: patchify_by_loops(i / 255, p), "times the right one"),
        (lambda i, p: patchify_by_loops(i, p).long(), "the whole part of the right one"),
        (lambda i, p: patchify_by_loops(i, p) + 1, "Every number is 1 too large"),
        (lambda i, p: patchify_by_loops(i, p).roll(1, 1), "Along axis 1, all stands 1 place too late"),
        (lambda i, p: vt.patchify(i, p), "the package's own patchify"),
        (Holder(vt.patchify), "the package's own patchify"),
        (functools.partial(vt.patchify), "is the package's"),
        (vt.patchify, "is the package's"),
    ),
    "unpatchify": (
        (lambda p, s, i: p.reshape(len(p), -1, *i), "a reshape in place of a permute"),
        (back((0, 2, 4, 1, 3, 5)), "patchify's permutation used a second time"),
        (back((0, 3, 2, 4, 1, 5), "columns"), "rows and columns of patches exchanged"),
        (back((0, 5, 1, 3, 2, 4), channels="last"), "channels last within a patch"),
        (back((0, 3, 4, 1, 5, 2)), "inside and outside of a patch exchanged"),
        (back((0, 3, 1, 5, 2, 4)), "pixels transposed inside each patch"),
        (back((0, 3, 1, 5, 2, 4), channels="turned"), "each patch cut as (C, Q, P)"),
        (back((0, 3, 1, 2, 4, 5)), "What your numbers show"),
        (back((0, 3, 2, 4, 1, 5)), "What your numbers show"),
        (back((0, 1, 3, 4, 2, 5)), "What your numbers show"),
        (back((0, 3, 4, 1, 2, 5)), "What your numbers show"),
        (back((3, 0, 1, 4, 2, 5)), "What your numbers show"),
        (unpatchify_three_channels, "raised RuntimeError"),
        (unpatchify_by_fold_without_transpose, "a reshape in place of a transpose before fold"),
        (unpatchify_width_first, "height and width of the image exchanged"),
        (lambda p, s, i: unpatchify_by_fold(p, s, i).mT, ""),
        (lambda p, s, i: unpatchify_by_fold(p, pair(s)[::-1], i), ""),
        (lambda p, s, i: unpatchify_by_fold(p, s, i).flip(2), "Axis 2 runs backwards"),
        (lambda p, s, i: unpatchify_by_fold(p, s, i)[0], "has shape"),
        (lambda p, s, i: unpatchify_by_fold(p, s, i).permute(0, 2, 3, 1), "permute"),
        (lambda p, s, i: unpatchify_by_fold(p.flip(1), s, i), "What your numbers show"),
        (lambda p, s, i: unpatchify_by_fold(p, s, i).flip(1), ""),
        (lambda p, s, i: None, "is the return missing?"),
        (lambda p, s: p, "raised TypeError"),
        (lambda p, s, i: vt.unpatchify(p, s, i), "the package's own unpatchify"),
        (lambda p, s, i: unpatchify_by_fold(p, s, i) * 2, "Every number is 2 times the right one"),
        (lambda p, s, i: p.view(len(p), -1, i[1], i[0]).mT, ""),
    ),
    "patch_embedding": (
        (embed(lambda self, x: self.proj(x).flatten(2)), "tokens left behind the width"),
        (embed(lambda self, x: self.proj(x).reshape(len(x), -1, self.proj.out_channels)), "after the convolution"),
        (embed(lambda self, x: maps_to_tokens(self.proj(x)), stride=1), "a convolution without its stride"),
        (embed(lambda self, x: maps_to_tokens(self.proj(x).transpose(2, 3))), "rows and columns of patches exchanged"),
        (embed(lambda self, x: self.proj(x).flatten(2).transpose(0, 1)), "has shape"),
        (embed(lambda self, x: self.proj(x)), "has shape"),
        (embed(lambda self, x: self.proj(x).permute(0, 2, 3, 1)), "has shape"),
        (embed(lambda self, x: maps_to_tokens(self.proj(x)), bias=False), "a projection without its bias"),
        (embed(lambda self, x: maps_to_tokens(self.proj(x)).detach()), "gradient of proj.weight is missing"),
        (embed(lambda self, x: maps_to_tokens(self.proj(x)), padding=1), "has shape"),
        (embed(lambda self, x: maps_to_tokens(self.proj(x.mT))), ""),
        (embed(lambda self, x: maps_to_tokens(self.proj(x.flip(1)))), ""),
        (embed(lambda self, x: maps_to_tokens(self.proj(x)).flip(1)), "Axis 1 runs backwards"),
        (embed(lambda self, x: maps_to_tokens(self.proj(x / 255))), ""),
        (embed(lambda self, x: maps_to_tokens(self.proj(x)).mean(0, keepdim=True)), "has shape"),
        (embed(lambda self, x: maps_to_tokens(self.proj(x))[:, 1:]), "the first 1 of the right ones are missing"),
        (OnReshaped, "a reshape in place of patchify"),
        (WithNorm, "a parameter that the stub doesn't name: norm.weight"),
        (WithoutGradient, "gradient of proj.weight is missing"),
        (WithActivation, "the GELU of the right one"),
        (SquaresOnly, "raised TypeError"),
        (OneChannel, "proj.weight has shape"),
        (Forgotten, "raised AttributeError"),
        (NoInit, "raised AttributeError"),
        (OtherName, "a parameter that the stub doesn't name: linear.weight"),
        (Inherits, "is the package's, or derives from it"),
        (lambda *args: vt.PatchEmbedding(*args), "the package's own PatchEmbedding"),
        (lambda *args: nn.Sequential(vt.PatchEmbedding(*args)), "the package's own PatchEmbedding"),
        (functools.partial(vt.PatchEmbedding), "is the package's, or derives from it"),
        (lambda *args: patchify_by_loops, "expected an nn.Module"),
        (KeepsTheFirst, "The first call is right, and the next one"),
        (MovesItsWeights, "The first call is right, and the next one"),
        (DropsInTraining, "the result in training mode, compared with evaluation mode, is another one"),
    ),
    "overlapping_patches": (
        (lambda i, p, s: overlapping_by_unfold(i, p, 2 * s), "has shape"),  # in two cases 2 s is P
        (overlap_by_loops("rows", last=0), "the last row and column of patches lost"),
        (overlap_by_loops("columns"), "rows and columns of patches exchanged"),
        (lambda i, p, s: overlapping_by_unfold(i, p, p), "steps of a whole patch"),
        (lambda i, p, s: overlapping_by_unfold(i, p, 1), "steps of one pixel"),
        (lambda i, p, s: overlapping_by_unfold(i, s, p), "stride and patch size exchanged"),
        (lambda i, p, s: overlapping_by_unfold(i, s, s), "patches of stride pixels"),
        (lambda i, p, s: overlapping_by_unfold(i, p, s).mT, "patches left behind their numbers"),
        (
            lambda i, p, s: (lambda x: x.reshape(x.shape[0], x.shape[2], -1))(F.unfold(i, p, stride=s)),
            "a reshape in place of a transpose after unfold",
        ),
        (overlap((0, 1, 2, 3, 4, 5)), "channels in front of the patches"),
        (overlap((0, 2, 3, 4, 5, 1)), "channels last within a patch"),
        (overlap((0, 2, 3, 1, 5, 4)), "pixels transposed inside each patch"),
        (overlap((0, 3, 2, 1, 5, 4)), "What your numbers show"),
        (overlap((2, 3, 0, 1, 4, 5)), "batch and patches merged in the wrong order"),
        (overlap((0, 2, 1, 3, 4, 5)), "What your numbers show"),
        (overlap_padded, ""),
        (overlap_counted, ""),
        (overlap_rows_only, ""),
        (overlap_by_height, ""),
        (lambda i, p, s: overlapping_by_unfold(i, p, s).flip(1), "Axis 1 runs backwards"),
        (lambda i, p, s: overlapping_by_unfold(i, p, s)[:, :-1], "the last 1 of the right ones are missing"),
        (lambda i, p, s: overlapping_by_unfold(i[:, :1], p, s), "has shape"),
        (lambda i, p, s: overlapping_by_unfold(i.mT, p, s), ""),
        (lambda i, p, s: windows(i, p, s), "has shape"),
        (lambda i, p, s: windows(i, p, s).permute(0, 2, 3, 1, 4, 5).flatten(3), "has shape"),
        (lambda i, p, s: None, "is the return missing?"),
    ),
}
