"""Lesson 02: the class token and the position embeddings (Eq. 1 and appendix D.4 of arXiv 2010.11929)."""

from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from vit_tutorial.patches import PatchEmbedding, Size, as_count, check_choice

Grid = tuple[int, int]  # (rows, columns)
Position = Literal["learned", "sincos", "none"]
ResizeRecipe = Literal["timm", "torchvision", "huggingface", "google", "dino"]


class Embeddings(nn.Module):
    """Eq. 1: z0 = [x_class; x_1 E; ...; x_N E] + E_pos. Images (B, C, H, W) -> (B, T, D), T = N + 1.

    Args:
        image_size, patch_size, in_channels, dim: as :class:`PatchEmbedding` has them.
        position: "learned" (the paper's), "sincos" (fixed, a buffer) or "none" (a bag of patches).
        dropout: probability in [0, 1], after the positions are added (appendix B.1).
        class_token: False leaves it out, for pooling by the mean; then T = N.

    Raises:
        ValueError: unknown ``position``, or what :class:`PatchEmbedding` refuses.

    Positions start normal with standard deviation 0.02, the class token as zeros (the paper's code).
    """

    def __init__(
        self,
        image_size: Size,
        patch_size: Size,
        in_channels: int,
        dim: int,
        *,
        position: Position = "learned",
        dropout: float = 0.0,
        class_token: bool = True,
    ) -> None:
        super().__init__()
        check_choice(position, "position", Position)
        self.patches = PatchEmbedding(image_size, patch_size, in_channels, dim)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim)) if class_token else None
        rows, columns = self.patches.grid
        num_tokens = int(class_token) + rows * columns  # T
        self.position: Tensor | None
        if position == "learned":
            self.position = nn.Parameter(torch.empty(1, num_tokens, dim))
        elif position == "sincos":
            # A buffer: moved and saved with the model, and no optimizer sees it.
            self.register_buffer("position", torch.empty(1, num_tokens, dim))
        else:
            self.register_parameter("position", None)
        self.dropout = nn.Dropout(dropout)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Give class token and positions their first values."""
        if self.cls_token is not None:
            nn.init.zeros_(self.cls_token)
        if isinstance(self.position, nn.Parameter):
            nn.init.normal_(self.position, std=0.02)
        elif self.position is not None:
            table = sincos_position_embedding(self.patches.grid, self.position.shape[2])  # (1, N, D)
            nn.init.zeros_(self.position)  # the class token's row stays zero: it has no place in the image
            self.position[:, -table.shape[1] :] = table

    def forward(self, images: Tensor) -> Tensor:
        z = self.patches(images)  # (B, N, D)
        # The class token belongs to no patch: it is the same for every image, and gathers what the head will read.
        if self.cls_token is not None:
            cls_token = self.cls_token.expand(z.shape[0], -1, -1)  # (B, 1, D)
            z = torch.cat([cls_token, z], dim=1)  # (B, T, D)
        # Attention and MLP treat tokens as a set. Only what is added here tells the model where a patch lies.
        if self.position is not None:
            z = z + self.position  # (B, T, D)
        return self.dropout(z)


def sincos_position_embedding(grid: Grid, dim: int) -> Tensor:
    """Fixed 2-D positions: a quarter of the width each for sin(x), cos(x), sin(y), cos(y).

    The frequencies fall from 1 to 1/10000, as in big_vision's ``posemb_sincos_2d`` (arXiv 2205.01580).

    Args:
        grid: (rows, columns) of patches.
        dim: D, a multiple of 4 and at least 8.

    Returns:
        (1, rows*columns, D), float32, row by row.

    Raises:
        ValueError: another ``dim``, or a grid without patches.
        TypeError: rows or columns that aren't whole numbers.
    """
    check_sincos_dim(dim)
    rows, columns = _as_grid(grid, "grid")
    # Fast waves tell neighbours apart, slow waves the two ends of the image: the last and first digits of a number.
    frequency = 10_000.0 ** (-torch.arange(dim // 4) / (dim // 4 - 1))  # (D/4,)
    y, x = torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")  # (rows, columns)
    x_angle, y_angle = x.flatten()[:, None] * frequency, y.flatten()[:, None] * frequency  # (N, D/4)
    return torch.cat([x_angle.sin(), x_angle.cos(), y_angle.sin(), y_angle.cos()], dim=1)[None]  # (1, N, D)


# How each library stretches a grid of positions; each gives other numbers.
RECIPES: dict[ResizeRecipe, dict[str, Any]] = {
    "timm": {"mode": "bicubic", "antialias": True},
    "torchvision": {"mode": "bicubic", "align_corners": True},
    "huggingface": {"mode": "bicubic"},
    "google": {"mode": "bilinear", "align_corners": True},  # scipy.ndimage.zoom(order=1)
    "dino": {"mode": "bicubic"},  # by a scale of (new + 0.1) / old
}


def resize_position_embedding(
    position: Tensor, old_grid: Grid, new_grid: Grid, *, prefix_tokens: int = 1, recipe: ResizeRecipe = "timm"
) -> Tensor:
    """Stretch learned positions to another grid of patches (section 3.2), in two dimensions, rectangles included.

    Args:
        position: (1, prefix_tokens + rows*columns, D).
        old_grid: (rows, columns) the positions were learned on.
        new_grid: (rows, columns) to stretch them to.
        prefix_tokens: tokens without a place in the image; they come first and stay unchanged.
        recipe: whose interpolation: "timm", "torchvision", "huggingface", "google" or "dino".

    Returns:
        (1, prefix_tokens + new rows*columns, D), dtype unchanged; computed in float32 at least.

    Raises:
        ValueError: unknown recipe, a grid without patches, or a ``position`` that does not hold the old grid.
        TypeError: rows or columns that aren't whole numbers.
    """
    check_choice(recipe, "recipe", ResizeRecipe)
    old_grid, new_grid = _as_grid(old_grid, "old_grid"), _as_grid(new_grid, "new_grid")
    num_tokens = prefix_tokens + old_grid[0] * old_grid[1]
    if position.ndim != 3 or position.shape[:2] != (1, num_tokens):
        raise ValueError(
            f"a grid of {old_grid} with prefix_tokens={prefix_tokens} needs a position of shape (1, {num_tokens}, D), "
            f"got {tuple(position.shape)}: check old_grid and prefix_tokens"
        )
    # Laid out like the patches, the positions are a picture with D channels, and can be resized like one.
    prefix, grid = position[:, :prefix_tokens], position[:, prefix_tokens:]
    maps = grid.transpose(1, 2).reshape(1, -1, *old_grid)  # (1, D, rows, columns)
    maps = maps.to(torch.promote_types(maps.dtype, torch.float32))
    target: dict[str, Any] = {"size": new_grid}
    if recipe == "dino" and new_grid != old_grid:  # the same grid stays as it is
        target = {"scale_factor": tuple((new + 0.1) / old for new, old in zip(new_grid, old_grid, strict=True))}
    maps = interpolate(maps, **target, **RECIPES[recipe])  # (1, D, new rows, new columns)
    resized = maps.flatten(2).transpose(1, 2).to(grid.dtype)  # (1, new N, D)
    return torch.cat([prefix, resized], dim=1)


def check_sincos_dim(dim: int) -> None:
    """Raise a ValueError unless the width can be shared by sine and cosine of x and y, two frequencies or more each."""
    if dim % 4 or dim < 8:
        raise ValueError(f"sincos positions need a dim that is a multiple of 4 and at least 8, got {dim}")


def _as_grid(grid: Grid, name: str) -> Grid:
    if not isinstance(grid, (tuple, list)) or len(grid) != 2:
        raise TypeError(f"{name} must be (rows, columns), got {grid!r}")
    rows, columns = grid
    return as_count(rows, f"the rows of {name}"), as_count(columns, f"the columns of {name}")
