"""Lesson 11: how a ViT may be told where its patches lie (appendix D.4 and table 8 of arXiv 2010.11929).

Five ways: not at all; a vector for each place of the sequence (1-D, the paper's choice); half a vector for the row and
half for the column (2-D); fixed sines and cosines; a number for each offset, added to the attention's scores
(relative). The first four vectors can be added once, before the first block, or in front of every block.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Literal, cast, get_args

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from vit_tutorial.attention import MultiHeadSelfAttention
from vit_tutorial.embeddings import sincos_position_embedding
from vit_tutorial.encoder import EncoderBlock
from vit_tutorial.vit import ViT, ViTConfig

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

    What is learned starts normal with standard deviation 0.02. For its patches "1d" learns N D numbers, "2d"
    (rows + columns) D / 2.
    """

    prefix: Tensor
    fixed: Tensor

    def __init__(self, grid: tuple[int, int], dim: int, kind: Kind, *, prefix_tokens: int = 1) -> None:
        super().__init__()
        if kind not in ("1d", "2d", "sincos"):
            raise ValueError(f"a grid's positions are '1d', '2d' or 'sincos', got {kind!r}")
        if kind == "2d" and dim % 2:
            raise ValueError(f"2-D positions halve the width, got {dim}: take an even one")
        rows, columns = grid
        self.kind, self.grid = kind, grid
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


def offsets(grid: tuple[int, int]) -> Tensor:
    """The number of the way from each patch to each other: (N, N) int64, from 0 to (2 rows - 1)(2 columns - 1) - 1.

    Entry [i, j] is the way from patch i, which looks, to patch j, which is looked at. Pairs of patches with the same
    way between them, so many rows down and so many columns to the right, share a number.

    Args:
        grid: (rows, columns) of patches.
    """
    rows, columns = grid
    row, column = torch.arange(rows).repeat_interleave(columns), torch.arange(columns).repeat(rows)  # (N,) each
    down = row[None, :] - row[:, None] + rows - 1  # (N, N), from 0 to 2 rows - 2
    right = column[None, :] - column[:, None] + columns - 1  # (N, N)
    return down * (2 * columns - 1) + right


class RelativeBias(nn.Module):
    """A number for each head and offset, to be added to the scores before the softmax: (h, T, T).

    The prefix tokens lie at no offset from anything: each head learns a number for their looking at a patch, one for
    being looked at by a patch, and one among themselves. All start at zero, so that at first every place is alike.
    BEiT's (arXiv 2106.08254) is the same, with the way counted from the other end.

    Args:
        grid: (rows, columns) of patches.
        num_heads: h.
        prefix_tokens: tokens in front of the patches.
    """

    index: Tensor

    def __init__(self, grid: tuple[int, int], num_heads: int, *, prefix_tokens: int = 1) -> None:
        super().__init__()
        self.grid, self.prefix_tokens = grid, prefix_tokens
        many = (2 * grid[0] - 1) * (2 * grid[1] - 1)
        self.table = nn.Parameter(torch.zeros(num_heads, many + 3))
        T = prefix_tokens + grid[0] * grid[1]
        index = torch.full((T, T), many + 2)  # among the prefix tokens
        index[:prefix_tokens, prefix_tokens:] = many  # a prefix token looks at a patch
        index[prefix_tokens:, :prefix_tokens] = many + 1  # a patch looks at a prefix token
        index[prefix_tokens:, prefix_tokens:] = offsets(grid)
        self.register_buffer("index", index, persistent=False)

    def forward(self) -> Tensor:
        return self.table[:, self.index]  # (h, T, T)

    def maps(self) -> Tensor:
        """The learned numbers as pictures, one a head, no offset in the middle: (h, 2 rows - 1, 2 columns - 1)."""
        rows, columns = self.grid
        return self.table[:, :-3].detach().reshape(-1, 2 * rows - 1, 2 * columns - 1)


class BiasedAttention(MultiHeadSelfAttention):
    """Self-attention whose scores get a bias before the softmax: softmax(q kᵀ / √d + b) v.

    Args:
        dim: D.
        num_heads: h, a divisor of D.
        bias: gives b, (h, T, T), at each call.
        **settings: of :class:`vit_tutorial.attention.MultiHeadSelfAttention`.
    """

    def __init__(self, dim: int, num_heads: int, bias: RelativeBias, **settings: Any) -> None:
        super().__init__(dim, num_heads, **settings)
        self.bias = bias

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.split_heads(x)  # each (B, h, T, d)
        p = self.attention_dropout if self.training else 0.0
        z = scaled_dot_product_attention(q, k, v, self.bias().to(q.dtype), dropout_p=p)  # (B, h, T, d)
        return self.dropout(self.proj(z.transpose(1, 2).flatten(2)))  # (B, T, D)

    def attention_weights(self, x: Tensor) -> Tensor:
        q, k, _ = self.split_heads(x)  # each (B, h, T, d)
        scores = (q / q.shape[-1] ** 0.5) @ k.transpose(-2, -1)  # (B, h, T, T)
        return (scores + self.bias()).softmax(dim=-1)


class PositionViT(ViT):
    """A ViT that is told its patches' places in one of five ways, in one of three places.

    Args:
        config: of the rest; its own ``position`` is not used. Its dropout acts on the tokens before places are added.
        kind: "none", "1d", "2d", "sincos" or "relative".
        place: "once" before the first block, or in front of "every layer", or of "every layer, shared". Relative
            biases lie inside the attention: "every layer" learns one a layer, "every layer, shared" one for all.

    Raises:
        ValueError: an unknown kind or place, no positions in every layer, or relative ones once.
    """

    def __init__(self, config: ViTConfig, kind: Kind = "1d", place: Place = "once") -> None:
        for name, value, known in (("kind", kind, get_args(Kind)), ("place", place, get_args(Place))):
            if value not in known:
                raise ValueError(f"unknown {name} {value!r}: choose one of {', '.join(known)}")
        if kind == "none" and place != "once":
            raise ValueError(f"kind 'none' adds nothing, so place stays 'once', got {place!r}")
        if kind == "relative" and place == "once":
            raise ValueError("relative positions lie in the attention: place='every layer', or 'every layer, shared'")
        super().__init__(replace(config, position="none"))
        self.kind, self.place = kind, place
        grid, prefix = config.grid, config.prefix_tokens
        many = config.depth if place == "every layer" else 1
        self.positions = nn.ModuleList()
        for _ in range(0 if kind == "none" else many):
            if kind == "relative":
                self.positions.append(RelativeBias(grid, config.num_heads, prefix_tokens=prefix))
            else:
                self.positions.append(GridPosition(grid, config.dim, kind, prefix_tokens=prefix))
        if kind == "relative":
            for layer, block in enumerate(cast("list[EncoderBlock]", self.blocks)):
                bias = cast(RelativeBias, self.positions[layer % many])
                block.attention = BiasedAttention(
                    config.dim,
                    config.num_heads,
                    bias,
                    qkv_bias=config.qkv_bias,
                    attention_dropout=config.attention_dropout,
                    dropout=config.dropout,
                )

    def placed(self, z: Tensor, layer: int) -> Tensor:
        """The tokens (B, T, D) as they enter this layer, with what is added in front of it."""
        if self.kind in ("none", "relative") or (self.place == "once" and layer > 0):
            return z
        return z + self.positions[layer % len(self.positions)]()  # (B, T, D)

    def features(self, images: Tensor) -> Tensor:
        z = self.embed(images)  # (B, T, D)
        for layer, block in enumerate(self.blocks):
            z = block(self.placed(z, layer))  # (B, T, D)
        return self.norm(z)  # (B, T, D)

    def attention_maps(self, images: Tensor, layers: Iterable[int] | None = None) -> dict[int, Tensor]:
        """As :meth:`ViT.attention_maps`, which see."""
        depth = len(self.blocks)
        wanted = list(range(depth) if layers is None else layers)
        if bad := [layer for layer in wanted if not -depth <= layer < depth]:
            raise ValueError(f"there is no layer {bad[0]}: the model has layers 0 to {depth - 1}")
        z, weights = self.embed(images), {}  # (B, T, D)
        for layer, block in enumerate(cast("list[EncoderBlock]", self.blocks)):
            z = self.placed(z, layer)  # (B, T, D)
            weights[layer] = block.attention.attention_weights(block.norm1(z))  # (B, h, T, T)
            z = block(z)  # (B, T, D)
        return {layer: weights[layer % depth] for layer in wanted}
