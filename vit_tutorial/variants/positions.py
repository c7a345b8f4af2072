"""Lesson 11: five kinds of positions, in three places (appendix D.4 and table 8 of arXiv 2010.11929).

The kinds: none; a vector for each place in the sequence (1-D, the paper's choice); half a vector for the row and half
for the column (2-D); fixed sines and cosines; a number for each relative offset, added to the scores of attention
(relative). The vectors are added once, before the first block, or before every block.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal, NamedTuple, cast, get_args

import torch
from torch import Tensor, nn

from vit_tutorial.attention import MultiHeadSelfAttention
from vit_tutorial.embeddings import Grid, sincos_position_embedding
from vit_tutorial.encoder import EncoderBlock
from vit_tutorial.vit import Block, ViT, ViTConfig

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


def relative_position_index(grid: Grid, device: torch.device | None = None) -> Tensor:
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
        offsets = (2 * grid[0] - 1) * (2 * grid[1] - 1)
        self.table = nn.Parameter(torch.zeros(num_heads, offsets + 3))
        T = prefix_tokens + grid[0] * grid[1]
        index = torch.full((T, T), offsets + 2)  # prefix tokens among themselves
        index[:prefix_tokens, prefix_tokens:] = offsets  # a prefix token attends to a patch
        index[prefix_tokens:, :prefix_tokens] = offsets + 1  # a patch attends to a prefix token
        index[prefix_tokens:, prefix_tokens:] = relative_position_index(grid)
        self.register_buffer("index", index, persistent=False)

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

    def score_bias(self, q: Tensor, place: Any = None) -> Tensor:
        return self.bias().to(q.dtype)  # (h, T, T)


class PositionedBlock(NamedTuple):
    """A block with positions (1, T, D) added to the tokens that enter it: (B, T, D) -> (B, T, D)."""

    block: Block
    position: Tensor

    def __call__(self, z: Tensor) -> Tensor:
        return self.block(z + self.position)

    def attend(self, z: Tensor) -> Tensor:
        """The block's own :meth:`EncoderBlock.attend`."""
        return self.block.attend(z + self.position)

    def attention_weights(self, z: Tensor) -> Tensor:
        """The block's own :meth:`EncoderBlock.attention_weights`."""
        return self.block.attention_weights(z + self.position)


class PositionViT(ViT):
    """A ViT with one of five kinds of positions, in one of three places.

    Args:
        config: everything else; its ``position`` is not used. Its dropout acts before positions are added.
        kind: "none", "1d", "2d", "sincos" or "relative".
        place: "once" adds positions before the first block, "every layer" before each block its own, "every layer,
            shared" before each block the same. Relative biases are part of attention, so they are in every layer: one
            for each, or one for all.

    Raises:
        ValueError: an unknown kind or place, kind "none" in every layer, or kind "relative" once.
    """

    def __init__(self, config: ViTConfig, kind: Kind = "1d", place: Place = "once") -> None:
        for name, value, known in (("kind", kind, get_args(Kind)), ("place", place, get_args(Place))):
            if value not in known:
                raise ValueError(f"unknown {name} {value!r}: choose one of {', '.join(known)}")
        if kind == "none" and place != "once":
            raise ValueError(f"kind 'none' adds nothing, so place stays 'once', got {place!r}")
        if kind == "relative" and place == "once":
            raise ValueError("relative positions are part of attention: place='every layer', or 'every layer, shared'")
        super().__init__(replace(config, position="none"))
        self.kind = kind
        self.place = place
        count = config.depth if place == "every layer" else 1
        self.positions = nn.ModuleList()
        for _ in range(0 if kind == "none" else count):
            if kind == "relative":
                position: nn.Module = RelativeBias(config.grid, config.num_heads, prefix_tokens=config.prefix_tokens)
            else:
                position = GridPosition(config.grid, config.dim, kind, prefix_tokens=config.prefix_tokens)
            self.positions.append(position)
        if kind == "relative":
            for layer, block in enumerate(cast("list[EncoderBlock]", self.blocks)):
                bias = cast(RelativeBias, self.positions[layer % count])
                block.attention = BiasedAttention(
                    config.dim,
                    config.num_heads,
                    bias,
                    qkv_bias=config.qkv_bias,
                    attention_dropout=config.attention_dropout,
                    dropout=config.dropout,
                )

    def blocks_for(self, images: Tensor) -> list[Block]:
        blocks = super().blocks_for(images)
        if self.kind in ("none", "relative"):
            return blocks
        if self.place == "once":
            return [PositionedBlock(blocks[0], self.positions[0]()), *blocks[1:]]
        if self.place == "every layer, shared":
            position = self.positions[0]()  # (1, T, D)
            return [PositionedBlock(block, position) for block in blocks]
        return [PositionedBlock(block, own()) for block, own in zip(blocks, self.positions, strict=True)]
