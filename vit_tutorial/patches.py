"""Lesson 01: an image becomes a sequence of patches, and each patch a vector (section 3.1 of arXiv 2010.11929)."""

from numbers import Integral
from typing import Any, get_args

import torch
from torch import Tensor, nn

Size = int | tuple[int, int]  # one number for a square, or (height, width)


def patchify(images: Tensor, patch_size: Size) -> Tensor:
    """Cut images into patches and flatten each one (the x_p of Eq. 1).

    Args:
        images: (B, C, H, W), of any dtype.
        patch_size: P, or (height P, width Q), in pixels.

    Returns:
        (B, N, C*P*Q): row by row from the top left, each in a Conv2d kernel's order (channel, row, column).

    Raises:
        ValueError: not four axes, or H and W are not multiples of the patch.
        TypeError: no tensor.
    """
    P, Q = as_pair(patch_size, "patch_size")
    B, C, H, W = _four_axes(images).shape
    rows, columns = grid_shape((H, W), (P, Q))
    # Split each side into (which patch, which pixel of the patch). No pixel moves yet.
    x = images.reshape(B, C, rows, P, columns, Q)
    # Bring the two patch axes to the front, the axes inside a patch to the end: only neighbouring axes can be joined.
    x = x.permute(0, 2, 4, 1, 3, 5)  # (B, rows, columns, C, P, Q)
    return x.reshape(B, rows * columns, C * P * Q)  # (B, N, C*P*Q)


def unpatchify(patches: Tensor, patch_size: Size, image_size: Size) -> Tensor:
    """Put patches back together: the inverse of :func:`patchify`.

    Args:
        patches: (B, N, C*P*Q).
        patch_size: P, or (height P, width Q), in pixels.
        image_size: of the image to rebuild, (H, W); its channels follow from the last axis.

    Returns:
        (B, C, H, W).

    Raises:
        ValueError: not three axes, N patches don't fill the image, or the last axis doesn't hold whole channels.
    """
    (P, Q), (H, W) = as_pair(patch_size, "patch_size"), as_pair(image_size, "image_size")
    rows, columns = grid_shape((H, W), (P, Q))
    if patches.ndim != 3 or patches.shape[1] != rows * columns or patches.shape[2] % (P * Q):
        raise ValueError(
            f"the {P}x{Q} patches of a {H}x{W} image have shape (B, {rows * columns}, C*{P * Q}), got "
            f"{tuple(patches.shape)}: drop a class token (tokens[:, 1:]), or check the sizes"
        )
    B, _, length = patches.shape
    # The steps of patchify backwards: split the joined axes, then put each pixel axis beside its patch axis.
    x = patches.reshape(B, rows, columns, length // (P * Q), P, Q)
    x = x.permute(0, 3, 1, 4, 2, 5)  # (B, C, rows, P, columns, Q)
    return x.reshape(B, length // (P * Q), H, W)  # (B, C, H, W)


class PatchEmbedding(nn.Module):
    """Each patch times one matrix E (Eq. 1), written as a convolution whose stride is its kernel size.

    Images (B, C, H, W), floating point -> tokens (B, N, D).

    Args:
        image_size: H = W, or (H, W), in pixels.
        patch_size: P, or (height P, width Q), in pixels.
        in_channels: C.
        dim: D, the width of a token.

    Raises:
        ValueError: sizes that don't divide, or below 1; images of another rank, channel count or size.
        TypeError: sizes that aren't whole numbers; images that aren't floating point.

    The kernel starts LeCun normal, the bias zero: Flax's default for ``nn.Conv``, which the paper's code keeps.
    """

    def __init__(self, image_size: Size = 224, patch_size: Size = 16, in_channels: int = 3, dim: int = 768) -> None:
        super().__init__()
        self.image_size = as_pair(image_size, "image_size")
        self.patch_size = as_pair(patch_size, "patch_size")
        self.in_channels = as_count(in_channels, "in_channels")
        self.grid = grid_shape(self.image_size, self.patch_size)  # (rows, columns)
        # A kernel whose stride is its size sees each patch once: its D filters, flattened, are the columns of E.
        self.proj = nn.Conv2d(self.in_channels, as_count(dim, "dim"), self.patch_size, stride=self.patch_size)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Give the parameters their first values; torch's layers have this method, too."""
        # A normal cut off at two standard deviations keeps 0.8796 of its own; dividing restores 1 / sqrt(fan_in).
        std = self.proj.weight[0].numel() ** -0.5 / 0.87962566
        nn.init.trunc_normal_(self.proj.weight, std=std, a=-2 * std, b=2 * std)
        nn.init.constant_(self.proj.bias, 0.0)  # type: ignore[arg-type]

    def forward(self, images: Tensor) -> Tensor:
        check_images(images, self.in_channels, self.image_size)
        x = self.proj(images)  # (B, D, rows, columns)
        # From here on the model sees a list of N tokens; rows and columns are gone.
        return x.flatten(2).transpose(1, 2)  # (B, N, D)


# ---- Checks of arguments, not part of the lesson: an error names the number that is wrong and the way out.


def grid_shape(image_size: Size, patch_size: Size) -> tuple[int, int]:
    """How many patches fit, (rows, columns), whose product is N.

    Raises:
        ValueError: the image isn't a whole number of patches high and wide.
    """
    (H, W), (P, Q) = as_pair(image_size, "image_size"), as_pair(patch_size, "patch_size")
    if H % P or W % Q:
        fit = f"{max(H // P, 1) * P}x{max(W // Q, 1) * Q}"
        raise ValueError(f"image {H}x{W} is not divisible by patch {P}x{Q}: resize to {fit}, or use another patch size")
    return H // P, W // Q


def check_images(images: Tensor, in_channels: int, image_size: tuple[int, int]) -> None:
    """Raise ValueError or TypeError for images that a model built for these channels and this size can't take."""
    B, C, H, W = _four_axes(images).shape
    if not images.is_floating_point():
        raise TypeError(f"images must be floating point, got {images.dtype}: images.float() / 255 for 8-bit pixels")
    if C != in_channels:
        fix = "channels go first, images.permute(0, 3, 1, 2)" if W == in_channels else f"in_channels={C}"
        raise ValueError(f"expected (B, {in_channels}, H, W), got {(B, C, H, W)}: {fix}?")
    if (H, W) != image_size:
        raise ValueError(
            f"built for images of {image_size} (height, width), got {(H, W)}: "
            f"resize the images, or load for that size, vt.load(..., image_size={(H, W)})"
        )


torch.fx.wrap("check_images")  # torch.fx can't trace its ifs: keep the call as one node


def _four_axes(images: Tensor) -> Tensor:
    if not isinstance(images, Tensor):
        kind = type(images).__name__
        raise TypeError(f"images must be a tensor, got {kind}: torch.from_numpy(array), or preprocess(PIL image)")
    if images.ndim != 4:
        hint = ": a single image needs a batch axis, images.unsqueeze(0)" if images.ndim == 3 else ""
        raise ValueError(f"images must have shape (B, C, H, W), got {list(images.shape)}{hint}")
    return images


def as_pair(size: Size, name: str) -> tuple[int, int]:
    """``16`` or ``(16, 8)`` as (height, width); ``name`` is what an error calls it."""
    pair = size if isinstance(size, (tuple, list)) else (size, size)
    if len(pair) != 2 or not all(_is_whole(n) for n in pair):
        raise TypeError(f"{name} must be an int or a pair of ints (height, width), got {size!r}")
    if min(pair) < 1:
        raise ValueError(f"{name} must be at least 1 pixel on each side, got {size!r}")
    return int(pair[0]), int(pair[1])


def as_count(value: int, name: str, *, least: int = 1) -> int:
    """A whole number of ``least`` or more, NumPy's kind included, as an int."""
    if not _is_whole(value):
        raise TypeError(f"{name} must be an int, got {value!r}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}")
    return int(value)


def _is_whole(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)  # True and False are ints in Python


def check_choice(value: str, name: str, choices: Any) -> None:
    """Raise a ValueError for a value that isn't one of a Literal's; ``name`` is what the error calls it."""
    if value not in get_args(choices):
        raise ValueError(f"unknown {name} {value!r}: choose one of {', '.join(get_args(choices))}")
