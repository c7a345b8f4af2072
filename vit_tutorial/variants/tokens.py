"""Lesson 19: fewer tokens: attention in blocks of keys; tokens merged (ToMe, arXiv 2210.09461) or dropped on the way.

T tokens before a step and T - r after it. ``destination`` (B, T) says where each token goes: its place among the T - r,
or -1 for a token that is dropped. The first ``protected`` tokens (the class token) stay, and stay in front.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vit_tutorial.attention import MultiHeadSelfAttention, check_shapes, dot_product_attention
from vit_tutorial.encoder import EncoderBlock
from vit_tutorial.mlp import MLP
from vit_tutorial.patches import as_pair
from vit_tutorial.vit import ViT, ViTConfig, check_plain

# Which tokens merge or go: queries and keys (B, h, T, d), r, protected -> destination (B, T).
Reduction = Callable[[Tensor, Tensor, int, int], Tensor]


def blockwise_attention(q: Tensor, k: Tensor, v: Tensor, block: int) -> Tensor:
    """softmax(q kᵀ / √d) v, some keys at a time (online softmax, arXiv 1805.02867): no T x S scores.

    Args:
        q: (..., T, d) queries.
        k: (..., S, d) keys.
        v: (..., S, e) values.
        block: keys at a time, 1 or more.

    Returns:
        (..., T, e), as :func:`vit_tutorial.dot_product_attention` gives it.

    Raises:
        ValueError: a block without a key, or shapes that :func:`dot_product_attention` refuses, too.
    """
    check_shapes(q, k, v)
    if block < 1:
        raise ValueError(f"block={block}: each block needs a key or more")
    largest = q.new_full((*q.shape[:-1], 1), -math.inf)  # (..., T, 1), the largest score so far
    total = q.new_zeros(*q.shape[:-1], 1)  # (..., T, 1), the sum of exp(score - largest)
    output = q.new_zeros(*q.shape[:-1], v.shape[-1])  # (..., T, e), each term times its value
    # A larger score makes exp(score - largest) smaller, so what was summed before it is rescaled.
    for keys, values in zip(torch.split(k, block, dim=-2), torch.split(v, block, dim=-2), strict=True):
        scores = (q / q.shape[-1] ** 0.5) @ keys.mT  # (..., T, block)
        new = torch.maximum(largest, scores.amax(dim=-1, keepdim=True))  # (..., T, 1)
        weights = (scores - new).exp()  # (..., T, block)
        rescale = (largest - new).exp()  # (..., T, 1), 0 at the first block
        total = rescale * total + weights.sum(dim=-1, keepdim=True)
        output = rescale * output + weights @ values
        largest = new
    return output / total


# ------------------------------------------------------------------------------------------ which tokens go where


def bipartite_matching(keys: Tensor, r: int, protected: int = 1) -> Tensor:
    """Bipartite soft matching (section 3 of ToMe): tokens at even places choose partners at odd ones.

    Each even token finds the odd one whose key is most similar (cosine); the r most similar pairs become one token.
    Several may choose the same partner. The order stays.

    Args:
        keys: (B, T, d).
        r: pairs to merge, at most half of the tokens that aren't protected.
        protected: tokens in front that neither choose nor are chosen.

    Returns:
        (B, T) int64, where each token goes: 0 to T - r - 1.

    Raises:
        ValueError: more pairs than there are.
    """
    T = keys.shape[1]
    if not 0 <= r <= (T - protected) // 2:
        raise ValueError(f"r={r}: of {T} tokens, {protected} protected, 0 to {(T - protected) // 2} can be merged")
    unit = F.normalize(keys, dim=-1)  # (B, T, d)
    similarity = unit[:, ::2] @ unit[:, 1::2].mT  # (B, even, odd)
    similarity[:, : (protected + 1) // 2] = -math.inf  # protected tokens at even places
    similarity[:, :, : protected // 2] = -math.inf  # and at odd ones
    best, partner = similarity.max(dim=-1)  # (B, even)
    # The r even tokens with the best partners go; a column n of the even tokens is token 2n, of the odd ones 2n + 1.
    best_pairs = best.topk(r).indices  # (B, r)
    source = 2 * best_pairs  # (B, r), the tokens that go
    target = 2 * partner.gather(1, best_pairs) + 1  # (B, r), the tokens that take them in
    stays = torch.ones(keys.shape[:2], dtype=torch.bool, device=keys.device).scatter(1, source, False)  # (B, T)
    place = stays.cumsum(dim=1) - 1  # (B, T), of each token that stays
    return place.scatter(1, source, place.gather(1, target))


def drop_lowest(scores: Tensor, r: int, protected: int = 1) -> Tensor:
    """Drop the r tokens with the lowest scores (B, T); returns where each token goes, (B, T), -1 for these.

    Raises:
        ValueError: more tokens than there are without the protected ones.
    """
    if not 0 <= r <= scores.shape[1] - protected:
        raise ValueError(
            f"r={r}: of {scores.shape[1]} tokens, {protected} protected, drop 0 to {scores.shape[1] - protected}"
        )
    scores = scores.clone()
    scores[:, :protected] = math.inf
    dropped = scores.topk(r, largest=False).indices  # (B, r)
    stays = torch.ones_like(scores, dtype=torch.bool).scatter(1, dropped, False)  # (B, T)
    return torch.where(stays, stays.cumsum(dim=1) - 1, -1)


def merge_similar(q: Tensor, k: Tensor, r: int, protected: int) -> Tensor:
    """ToMe: merge the r pairs whose keys, averaged over the heads, are most similar."""
    return bipartite_matching(k.mean(dim=1), r, protected)


def drop_least_attended(q: Tensor, k: Tensor, r: int, protected: int) -> Tensor:
    """Drop the r tokens that the class token attends to least, averaged over the heads (as in EViT, 2202.07800).

    Raises:
        ValueError: no class token in front.
    """
    if not protected:
        raise ValueError("protected=0: there is no class token whose attention could choose; use merge_similar")
    weights = dot_product_attention(q[:, :, :1], k, k)[1]  # (B, h, 1, T)
    return drop_lowest(weights.mean(dim=1)[:, 0], r, protected)


def merge(z: Tensor, sizes: Tensor, destination: Tensor, left: int) -> tuple[Tensor, Tensor]:
    """Tokens that go to the same place become their mean, each weighted by the number of patches in it.

    Args:
        z: (B, T, D).
        sizes: (B, T), patches in each token.
        destination: (B, T), where each goes; -1: nowhere.
        left: T', the number of tokens afterwards.

    Returns:
        The tokens (B, T', D) and their sizes (B, T').
    """
    places = left + 1  # the first takes the dropped tokens, and isn't returned
    new_sizes = sizes.new_zeros(z.shape[0], places).scatter_add(1, destination + 1, sizes)  # (B, places)
    index = (destination + 1)[..., None].expand_as(z)  # (B, T, D)
    sums = z.new_zeros(z.shape[0], places, z.shape[-1]).scatter_add(1, index, z * sizes[..., None])  # (B, places, D)
    return sums[:, 1:] / new_sizes[:, 1:, None], new_sizes[:, 1:]


# ------------------------------------------------------------------------------------------------- a whole model


class EncoderOutput(NamedTuple):
    """The result of :meth:`FewerTokens.encode`."""

    tokens: Tensor  # (B, T', D), before the last norm
    sizes: Tensor  # (B, T'), patches in each
    sources: list[Tensor]  # for the embedding and each block (B, T): which token holds it now; -1: none


class FewerTokens(nn.Module):
    """A trained ViT with r tokens fewer after each block's attention: images (B, C, H, W) -> logits (B, K).

    Its weights are the model's own, and nothing is trained. For inference: the model's dropout isn't applied.

    Args:
        model: its positions are added once, before the blocks.
        r: tokens fewer per block; a block merges or drops half of its patch tokens at most.
        reduction: which: :func:`merge_similar`, :func:`drop_least_attended`, or your own.
        proportional: add log(size) to a token's scores, so that n merged patches get the attention of n.

    Raises:
        TypeError: a model whose blocks, attention or MLPs aren't the plain ViT's.
        ValueError: a negative r.
    """

    def __init__(self, model: ViT, r: int, reduction: Reduction = merge_similar, *, proportional: bool = True) -> None:
        super().__init__()
        if type(model) is not ViT:
            raise TypeError(f"a {type(model).__name__} may need its tokens' places in each block: give a plain vt.ViT")
        if other := {type(block).__name__ for block in model.blocks if type(block) is not EncoderBlock}:
            raise TypeError(f"blocks of other kinds, {', '.join(sorted(other))}, would be skipped: give a plain vt.ViT")
        parts = [part for block in model.blocks for part in (block.attention, block.mlp)]
        if other := {type(part).__name__ for part in parts if type(part) not in (MultiHeadSelfAttention, MLP)}:
            raise TypeError(f"the blocks' {', '.join(sorted(other))} would be skipped: give a plain vt.ViT")
        if r < 0:
            raise ValueError(
                f"r={r}: it must be 0, which keeps all tokens, or more, the tokens that each block removes"
            )
        self.model, self.r, self.reduction, self.proportional = model, r, reduction, proportional

    def forward(self, images: Tensor) -> Tensor:
        encoded = self.encode(images)
        z = self.model.norm(encoded.tokens)  # (B, T', D)
        if self.model.config.pool == "mean":
            weights = encoded.sizes / encoded.sizes.sum(dim=1, keepdim=True)  # (B, T'), as if each patch were there
            y = (weights[..., None] * z).sum(dim=1)  # (B, D)
        else:
            y = z[:, 0]  # (B, D)
        return cast(Tensor, self.model.head(y))  # (B, K)

    def encode(self, images: Tensor) -> EncoderOutput:
        """The tokens after the last block, their sizes, and which token holds each patch after each block."""
        z = self.model.embed(images)  # (B, T, D)
        sizes = z.new_ones(z.shape[:2])  # (B, T)
        source = torch.arange(z.shape[1], device=z.device).expand(z.shape[0], -1)  # (B, T)
        sources, protected = [source], self.model.config.prefix_tokens
        for block in cast("list[EncoderBlock]", self.model.blocks):
            q, k, v = block.attention.split_heads(block.norm1(z))  # each (B, h, T', d)
            log_sizes = sizes.log()[:, None, None].to(q.dtype)  # (B, 1, 1, T')
            bias = log_sizes if self.proportional else None
            heads = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)  # (B, h, T', d)
            z = z + block.attention.proj(block.attention.merge_heads(heads))  # (B, T', D)
            if r := min(self.r, (z.shape[1] - protected) // 2):
                destination = self.reduction(q, k, r, protected)  # (B, T')
                z, sizes = merge(z, sizes, destination, z.shape[1] - r)  # (B, T' - r, D)
                source = torch.where(source < 0, -1, destination.gather(1, source.clamp(min=0)))
            sources.append(source)
            z = z + block.mlp(block.norm2(z))  # (B, T' - r, D)
        return EncoderOutput(z, sizes, sources)


def tokens_left(tokens: int, r: int, depth: int, protected: int = 1) -> list[int]:
    """Tokens that enter each block, and after the last one: L + 1 numbers."""
    left = [tokens]
    for _ in range(depth):
        left.append(left[-1] - min(r, (left[-1] - protected) // 2))
    return left


def count_macs(config: ViTConfig, r: int) -> int:
    """Multiply-accumulates for one image with r tokens fewer per block; r = 0: ``vt.count_macs``.

    Counted are the matrix products of the model, and that of the matching: T / 2 x T / 2 keys of width d.
    """
    check_plain(config)
    D, M = config.dim, config.mlp_dim
    P, Q = as_pair(config.patch_size, "patch_size")
    N = config.num_tokens - config.prefix_tokens
    left = tokens_left(config.num_tokens, r, config.depth, config.prefix_tokens)
    total = N * config.in_channels * P * Q * D
    for before, after in pairwise(left):
        matching = (before + 1) // 2 * (before // 2) * (D // config.num_heads) if after < before else 0
        total += before * 4 * D * D + 2 * before * before * D + matching + after * 2 * D * M
    return total + D * config.num_classes
