"""Lesson 11: five kinds of positions, in three places (appendix D.4 and table 8 of arXiv 2010.11929).

The kinds: none; a vector for each place in the sequence (1-D, the paper's choice); half a vector for the row and half
for the column (2-D); fixed sines and cosines; a number for each relative offset, added to the scores of attention
(relative). The vectors are added once, before the first block, or before every block.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from vit_tutorial.attention import MultiHeadSelfAttention
from vit_tutorial.embeddings import Embeddings, Grid, sincos_position_embedding
from vit_tutorial.encoder import EncoderBlock
from vit_tutorial.patches import check_choice
from vit_tutorial.vit import ViT, ViTConfig, encoder_blocks

Kind = Literal["none", "1d", "2d", "sincos", "relative"]
Place = Literal["once", "every layer", "every layer, shared"]


class GridPosition(nn.Module):
    """A vector for each token of a grid: (1, prefix + N, D).

    Args:
        grid: (rows, columns) of patches.
        dim: D, even for "2d", a multiple of 4 and at least 8 for "sincos".
        kind: "1d", "2d" or "sincos".
        prefix_tokens: tokens in front of the patches; each learns a vector of its own ("sincos": zeros).

    Raises:
        ValueError: an unknown kind, or a width that can't be halved or quartered.

    What is learned starts normal with standard deviation 0.02. For the patches "1d" learns N D numbers, "2d"
    (rows + columns) D / 2.
    """

    prefix: Tensor
    fixed: Tensor

    def __init__(self, grid: Grid, dim: int, kind: Kind, *, prefix_tokens: int = 1) -> None:
        super().__init__()
        if kind not in ("1d", "2d", "sincos"):
            raise ValueError(f"a grid's positions are '1d', '2d' or 'sincos', got {kind!r}")
        if kind == "2d" and dim % 2:
            raise ValueError(f"2-D positions halve the width, got {dim}: take an even one")
        rows, columns = grid
        self.kind = kind
        self.grid = grid
        if kind == "sincos":
            self.register_buffer("fixed", sincos_position_embedding(grid, dim))  # (1, N, D)
            self.register_buffer("prefix", torch.zeros(1, prefix_tokens, dim))
            return
        self.prefix = nn.Parameter(0.02 * torch.randn(1, prefix_tokens, dim))
        if kind == "1d":
            self.place = nn.Parameter(0.02 * torch.randn(1, rows * columns, dim))
        else:
            self.row = nn.Parameter(0.02 * torch.randn(rows, 1, dim // 2))
            self.column = nn.Parameter(0.02 * torch.randn(1, columns, dim // 2))

    def forward(self) -> Tensor:
        if self.kind == "1d":
            patches: Tensor = self.place  # (1, N, D)
        elif self.kind == "2d":
            rows, columns = self.grid
            halves = [self.row.expand(-1, columns, -1), self.column.expand(rows, -1, -1)]  # (rows, columns, D / 2) each
            patches = torch.cat(halves, dim=-1).flatten(0, 1)[None]  # (1, N, D)
        else:
            patches = self.fixed  # (1, N, D)
        return torch.cat([self.prefix, patches], dim=1)  # (1, prefix + N, D)


def relative_position_index(grid: Grid, device: torch.device | str | None = None) -> Tensor:
    """The index of the relative offset between every two patches, (N, N) int64.

    Entry [i, j] numbers the offset from patch i, the query, to patch j, the key: so many rows down and so many columns
    to the right. Pairs with the same offset share an index; it runs from 0 to (2 rows - 1)(2 columns - 1) - 1.

    Args:
        grid: (rows, columns) of patches.
        device: where the result is made.
    """
    rows, columns = grid
    row = torch.arange(rows, device=device).repeat_interleave(columns)  # (N,)
    column = torch.arange(columns, device=device).repeat(rows)  # (N,)
    down = row[None, :] - row[:, None] + rows - 1  # (N, N), from 0 to 2 rows - 2
    right = column[None, :] - column[:, None] + columns - 1  # (N, N), from 0 to 2 columns - 2
    return down * (2 * columns - 1) + right


def count_offsets(grid: Grid) -> int:
    """How many relative offsets two patches of a grid can have."""
    return (2 * grid[0] - 1) * (2 * grid[1] - 1)


def bias_index(grid: Grid, prefix_tokens: int, device: torch.device | str | None = None) -> Tensor:
    """Which number of a relative bias belongs to each query and key, prefix tokens included: (T, T) int64.

    First come the offsets of :func:`relative_position_index`, then three more: a prefix token attends to a patch, a
    patch to a prefix token, and prefix tokens to each other.
    """
    offsets, T = count_offsets(grid), prefix_tokens + grid[0] * grid[1]
    index = torch.full((T, T), offsets + 2, device=device)
    index[:prefix_tokens, prefix_tokens:] = offsets
    index[prefix_tokens:, :prefix_tokens] = offsets + 1
    index[prefix_tokens:, prefix_tokens:] = relative_position_index(grid, device)
    return index


class RelativeBias(nn.Module):
    """A number for each head and offset, to be added to the scores before the softmax: (h, T, T).

    Prefix tokens have no place in the grid. Each head learns three numbers for them: a prefix token attends to a patch,
    a patch to a prefix token, and prefix tokens to each other. All numbers start at zero: at first, every place is
    alike. BEiT's bias (arXiv 2106.08254) is the same, but for offsets counted from the key to the query.

    Args:
        grid: (rows, columns) of patches.
        num_heads: h.
        prefix_tokens: tokens in front of the patches.
    """

    index: Tensor

    def __init__(self, grid: Grid, num_heads: int, *, prefix_tokens: int = 1) -> None:
        super().__init__()
        self.grid = grid
        self.table = nn.Parameter(torch.zeros(num_heads, count_offsets(grid) + 3))
        self.register_buffer("index", bias_index(grid, prefix_tokens), persistent=False)

    def forward(self) -> Tensor:
        return self.table[:, self.index]  # (h, T, T)

    def maps(self) -> Tensor:
        """The patches' numbers as one picture per head, offset zero in the middle: (h, 2 rows - 1, 2 columns - 1)."""
        rows, columns = self.grid
        return self.table[:, :-3].detach().reshape(-1, 2 * rows - 1, 2 * columns - 1)


class BiasedAttention(MultiHeadSelfAttention):
    """Self-attention with a bias on its scores: softmax(q kᵀ / √d + b) v, (B, T, D) -> (B, T, D).

    Args:
        dim: D.
        num_heads: h, a divisor of D.
        bias: gives b, (h, T, T), at each call.
        **settings: of :class:`vit_tutorial.attention.MultiHeadSelfAttention`.
    """

    def __init__(self, dim: int, num_heads: int, bias: RelativeBias, **settings: Any) -> None:
        super().__init__(dim, num_heads, **settings)
        self.bias = bias

    def score_bias(self, q: Tensor) -> Tensor:
        return self.bias().to(q.dtype)  # (h, T, T)


@dataclass(frozen=True)
class PositionConfig(ViTConfig):
    """A :class:`ViTConfig` with another kind of positions: ``PositionConfig(**vars(config), kind="2d")``.

    Args:
        kind: "none", "1d", "2d", "sincos" or "relative"; the plain config's ``position`` becomes "none".
        place: "once" adds positions before the first block, "every layer" before each block its own, "every layer,
            shared" before each block the same. Relative biases are part of attention, so they are in every layer: one
            for each, or one for all.

    Raises:
        ValueError: an unknown kind or place, kind "none" in every layer, or kind "relative" once.
    """

    kind: Kind = "1d"
    place: Place = "once"

    def __post_init__(self) -> None:
        object.__setattr__(self, "position", "none")  # else the embedding would add its own, too
        super().__post_init__()
        check_choice(self.kind, "kind", Kind)
        check_choice(self.place, "place", Place)
        if self.kind == "none" and self.place != "once":
            raise ValueError(f"kind 'none' adds nothing, so place stays 'once', got {self.place!r}")
        if self.kind == "relative" and self.place == "once":
            raise ValueError("relative positions are part of attention: place='every layer', or 'every layer, shared'")


class PositionEmbeddings(Embeddings):
    """Embeddings that add ``grid_position``'s (1, T, D) last, if it is set: images (B, C, H, W) -> (B, T, D)."""

    grid_position: nn.Module | None

    def __init__(self, *sizes: Any, **settings: Any) -> None:
        super().__init__(*sizes, **settings)
        self.register_module("grid_position", None)

    def forward(self, images: Tensor) -> Tensor:
        z = super().forward(images)  # (B, T, D)
        return z if self.grid_position is None else z + self.grid_position()


class PositionBlock(EncoderBlock):
    """A block that adds ``grid_position``'s (1, T, D), if set, to the tokens that enter: (B, T, D) -> (B, T, D)."""

    grid_position: nn.Module | None

    def __init__(self, *sizes: Any, **settings: Any) -> None:
        super().__init__(*sizes, **settings)
        self.register_module("grid_position", None)

    def attend(self, z: Tensor) -> Tensor:
        return super().attend(self._with_positions(z))

    def attention_weights(self, z: Tensor) -> Tensor:
        return super().attention_weights(self._with_positions(z))

    def _with_positions(self, z: Tensor) -> Tensor:
        return z if self.grid_position is None else z + self.grid_position()


class PositionViT(ViT):
    """A ViT with one of five kinds of positions, in one of three places: images (B, C, H, W) -> logits (B, K).

    Dropout acts before positions are added.
    """

    config: PositionConfig

    def __init__(self, config: PositionConfig) -> None:
        sizes = (config.image_size, config.patch_size, config.in_channels, config.dim)
        embed = PositionEmbeddings(
            *sizes, position="none", dropout=config.dropout, class_token=config.prefix_tokens == 1
        )
        super().__init__(config, embed=embed, blocks=encoder_blocks(config, PositionBlock))
        if config.kind == "none":
            return
        if config.place == "once":
            embed.grid_position = _positions(config)
            return
        # One module for each layer, or one that all of them hold: then its parameters are shared.
        positions = [_positions(config) for _ in range(config.depth if config.place == "every layer" else 1)]
        for layer, block in enumerate(cast("list[PositionBlock]", self.blocks)):
            position = positions[layer % len(positions)]
            if isinstance(position, RelativeBias):
                block.attention = _biased_attention(config, position)
            else:
                block.grid_position = position

    @property
    def positions(self) -> nn.ModuleList:
        """The modules that know positions: none, one, or one for each layer."""
        return nn.ModuleList(part for part in self.modules() if isinstance(part, (GridPosition, RelativeBias)))


def _positions(config: PositionConfig) -> nn.Module:
    if config.kind == "relative":
        return RelativeBias(config.grid, config.num_heads, prefix_tokens=config.prefix_tokens)
    return GridPosition(config.grid, config.dim, config.kind, prefix_tokens=config.prefix_tokens)


def _biased_attention(config: ViTConfig, bias: RelativeBias) -> BiasedAttention:
    return BiasedAttention(
        config.dim,
        config.num_heads,
        bias,
        qkv_bias=config.qkv_bias,
        attention_dropout=config.attention_dropout,
        dropout=config.dropout,
    )
