"""Checks of lesson 03: attention with a pencil, as a function, with many heads, and without the T x T table."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from vit_tutorial.attention import MultiHeadSelfAttention
from vit_tutorial.attention import attention as attend
from vit_tutorial.checks.harness import Case, Exercise, Mistake, answers, call, check, layer, normal, random_weights

__all__ = [
    "check_attention",
    "check_attention_in_chunks",
    "check_attention_numbers",
    "check_merge_heads",
    "check_multi_head_attention",
    "check_split_heads",
]

# ---- With a pencil -----------------------------------------------------------------------------------------------

# q = [2, 0, 1, 1]; keys [1, 1, 0, 0] and [0, 1, 0, 0]: scores 2 and 0, divided by √4 they are 1 and 0.
FIRST = math.e / (math.e + 1)  # 0.731
NUMBERS = {"scores": [2, 0], "weight 0": FIRST, "output": [4 * FIRST, 8 * (1 - FIRST)], "weights": 12 * 50 * 50}


def _pencil(weight: float) -> dict[str, Any]:
    return {"weight 0": weight, "output": [4 * weight, 8 * (1 - weight)]}


ATTENTION_NUMBERS = Exercise(
    name="attention_numbers",
    lesson="03",
    points=3,
    right=NUMBERS,
    cases=lambda: [Case(question, (question,)) for question in NUMBERS],
    observe=answers,
    tolerance=0.006,
    secret=True,
    mistakes=(
        Mistake(
            "no scale",
            "You took the softmax of the scores themselves. They are divided by √d first, here √4.",
            "3 · Why divide by √d",
            _pencil(math.exp(2) / (math.exp(2) + 1)),
        ),
        Mistake(
            "a division by d",
            "You divided by d = 4. It is the square root of d that keeps the scores' spread at 1.",
            "3 · Why divide by √d",
            _pencil(math.exp(0.5) / (math.exp(0.5) + 1)),
        ),
        Mistake(
            "plain shares in place of a softmax",
            "You divided each score by their sum. The softmax raises e to each score first, so no weight is ever 0.",
            "1 · Attention with a pencil",
            _pencil(1.0),
        ),
        Mistake(
            "the class token forgotten",
            "224 / 32 = 7, so there are 49 patches, and with the class token 50 tokens.",
            "Check yourself",
            {"weights": 12 * 49 * 49},
        ),
        Mistake(
            "the heads forgotten",
            "Each head has a table of weights of its own.",
            "8 · What it costs",
            {"weights": 50 * 50},
        ),
    ),
)


def check_attention_numbers(fn: Callable[[], Mapping[str, Any]]) -> bool:
    """Check the answers found with a pencil: ``fn()`` returns them in a dictionary."""
    return check(ATTENTION_NUMBERS, fn)


# ---- attention ---------------------------------------------------------------------------------------------------


def _attention_cases() -> list[Case]:
    shapes = [((3, 3), (3, 3), (3, 3)), ((2, 3, 4), (2, 5, 4), (2, 5, 6)), ((1, 3, 5, 8), (1, 3, 5, 8), (1, 3, 5, 8)),
              ((2, 1, 4, 2), (2, 1, 3, 2), (2, 1, 3, 4))]  # fmt: skip
    return [
        Case(f"q {a}, k {b}, v {c}", (normal(*a, seed=1), normal(*b, seed=2), normal(*c, seed=3))) for a, b, c in shapes
    ]


def _attend(
    scale: Callable[[int], float] = math.sqrt, axis: int = -1, mix: Callable[[Tensor, Tensor], Tensor] = torch.matmul
) -> Callable[..., tuple[Tensor, Tensor]]:
    """Attention with another scale, another axis of the softmax, another way to use the weights."""

    def attention(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        weights = (q @ k.transpose(-2, -1) / scale(q.shape[-1])).softmax(dim=axis)
        return mix(weights, v), weights

    return attention


def _keys_ask(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    return attend(k, q, v)


def _scaled_afterwards(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    weights = (q @ k.transpose(-2, -1)).softmax(dim=-1) / math.sqrt(q.shape[-1])
    return weights @ v, weights


def _scores_for_weights(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    output, _ = attend(q, k, v)
    return output, q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])


_SCALE = "3 · Why divide by √d"

ATTENTION = Exercise(
    name="attention",
    lesson="03",
    points=4,
    right=attend,
    cases=_attention_cases,
    observe=call,
    mistakes=(
        Mistake(
            "a softmax over the wrong axis",
            "Your columns sum to 1. The weights of one query must sum to 1 over the keys: the last axis, dim=-1.",
            "Softmax over the wrong axis.",
            _attend(axis=-2),
        ),
        Mistake(
            "a softmax over the first axis",
            "dim=0 is the batch as soon as there is one. Count from the end: dim=-1, the keys.",
            "Softmax over the wrong axis.",
            _attend(axis=0),
        ),
        Mistake(
            "no scale",
            "Your weights are too sharp: divide the scores by √d before the softmax.",
            _SCALE,
            _attend(scale=lambda d: 1.0),
        ),
        Mistake(
            "a division by d",
            "You divide by d. The scores have variance d, so their spread is √d: divide by math.sqrt(d).",
            _SCALE,
            _attend(scale=float),
        ),
        Mistake(
            "a multiplication by √d",
            "The scores are divided by √d, so that they get smaller. Yours get larger.",
            _SCALE,
            _attend(scale=lambda d: d**-0.5),
        ),
        Mistake(
            "a scale behind the softmax",
            "You divide the weights by √d, so that they no longer sum to 1. Divide the scores, before the softmax.",
            _SCALE,
            _scaled_afterwards,
        ),
        Mistake(
            "query and key exchanged",
            "You compute k qᵀ, the scores transposed: who asks and who is asked change places. It is q kᵀ.",
            "Queries and keys exchanged.",
            _keys_ask,
        ),
        Mistake(
            "values transposed",
            "A row of weights mixes the rows of v, so v is used as it is: weights @ v.",
            "Values transposed.",
            _attend(mix=lambda weights, v: weights @ v.transpose(-2, -1)),
        ),
        Mistake(
            "weights transposed",
            "You mix with weightsᵀ @ v. The output of query i is row i of the weights times v: weights @ v.",
            "1 · Attention with a pencil",
            _attend(mix=lambda weights, v: weights.transpose(-2, -1) @ v),
        ),
        Mistake(
            "scores returned in place of weights",
            "The output is right. The second thing to return are the weights, after the softmax.",
            "1 · Attention with a pencil",
            _scores_for_weights,
        ),
    ),
)


def check_attention(fn: Callable[..., tuple[Tensor, Tensor]]) -> bool:
    """Check ``fn(q, k, v)``: (..., T, d), (..., S, d), (..., S, e) -> output (..., T, e) and weights (..., T, S)."""
    return check(ATTENTION, fn)


# ---- Heads -------------------------------------------------------------------------------------------------------


def _split(x: Tensor, num_heads: int) -> Tensor:
    return x.unflatten(-1, (num_heads, -1)).transpose(1, 2)  # (B, T, h, d) -> (B, h, T, d)


def _merge(x: Tensor) -> Tensor:
    return x.transpose(1, 2).flatten(2)  # (B, h, T, d) -> (B, T, h*d)


def _split_by_view(x: Tensor, num_heads: int) -> Tensor:
    return x.reshape(x.shape[0], num_heads, x.shape[1], -1)


def _split_interleaved(x: Tensor, num_heads: int) -> Tensor:
    return x.unflatten(-1, (-1, num_heads)).permute(0, 3, 1, 2)


def _split_halfway(x: Tensor, num_heads: int) -> Tensor:
    return x.unflatten(-1, (num_heads, -1))


def _split_by_width(x: Tensor, num_heads: int) -> Tensor:
    return x.unflatten(-1, (-1, num_heads)).transpose(1, 2)


SPLIT_HEADS = Exercise(
    name="split_heads",
    lesson="03",
    points=2,
    right=_split,
    cases=lambda: [
        Case(f"x {shape}, num_heads={heads}", (normal(*shape), heads))
        for shape, heads in [((1, 4, 6), 3), ((2, 5, 8), 2), ((3, 2, 12), 4), ((2, 7, 5), 1)]
    ],
    observe=call,
    mistakes=(
        Mistake(
            "heads split without the transpose",
            "A view or reshape to (B, h, T, d) reads the numbers token after token, so a head gets pieces of a few "
            "tokens. Cut the last axis into (h, d) first, then transpose(1, 2).",
            "Heads split without the transpose.",
            _split_by_view,
        ),
        Mistake(
            "interleaved heads",
            "Head 0 takes every h-th column. It takes the first d: cut the last axis into (h, d), in this order.",
            "4 · Many heads",
            _split_interleaved,
        ),
        Mistake(
            "heads behind the tokens",
            "You return (B, T, h, d). The heads go before the tokens, so that each head is a matrix (T, d).",
            "4 · Many heads",
            _split_halfway,
        ),
        Mistake(
            "width and number of heads exchanged",
            "Your heads are h wide, and there are d of them: cut the last axis into (h, d).",
            "4 · Many heads",
            _split_by_width,
        ),
    ),
)


def check_split_heads(fn: Callable[..., Tensor]) -> bool:
    """Check ``fn(x, num_heads)``: (B, T, D) -> (B, h, T, d)."""
    return check(SPLIT_HEADS, fn)


MERGE_HEADS = Exercise(
    name="merge_heads",
    lesson="03",
    points=2,
    right=_merge,
    cases=lambda: [
        Case(f"x {shape}", (normal(*shape),)) for shape in [(1, 3, 4, 2), (2, 2, 5, 4), (3, 4, 2, 3), (2, 1, 7, 5)]
    ],
    observe=call,
    mistakes=(
        Mistake(
            "heads merged without the transpose",
            "A reshape of (B, h, T, d) to (B, T, h*d) puts pieces of several tokens in one row: transpose(1, 2) first.",
            "Heads merged without the transpose.",
            lambda x: x.reshape(x.shape[0], x.shape[2], -1),
        ),
        Mistake(
            "interleaved heads",
            "Your columns take one number of each head in turn. The columns of head 0 come first, then head 1's.",
            "4 · Many heads",
            lambda x: x.permute(0, 2, 3, 1).flatten(2),
        ),
        Mistake(
            "heads averaged",
            "The outputs of the heads stand side by side, h*d = D columns; a mean leaves d of them.",
            "4 · Many heads",
            lambda x: x.mean(dim=1),
        ),
        Mistake(
            "tokens and columns exchanged",
            "You return (B, D, T): each row must be a token.",
            "4 · Many heads",
            lambda x: x.transpose(1, 2).flatten(2).transpose(1, 2),
        ),
    ),
)


def check_merge_heads(fn: Callable[..., Tensor]) -> bool:
    """Check ``fn(x)``: (B, h, T, d) -> (B, T, D)."""
    return check(MERGE_HEADS, fn)


# ---- The layer ---------------------------------------------------------------------------------------------------


def _layer_cases() -> list[Case]:
    made = []
    for (B, T, D), heads in [((1, 3, 6), 3), ((2, 5, 8), 2), ((2, 4, 12), 1), ((3, 2, 10), 5)]:
        weights = random_weights(MultiHeadSelfAttention(D, heads))
        made.append(Case(f"x {(B, T, D)}, num_heads={heads}", (normal(B, T, D),), (D, heads), weights))
    return made


class _Layer(MultiHeadSelfAttention):
    """The right layer, written out in steps that a subclass replaces by a wrong one."""

    axis = -1

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.parts(x)  # each (B, h, T, d)
        weights = (q @ k.transpose(-2, -1) / self.scale(q)).softmax(dim=self.axis)
        return self.out(self.merge(weights @ v))

    def parts(self, x: Tensor) -> tuple[Tensor, ...]:
        return tuple(self.split(part) for part in self.qkv(x).chunk(3, dim=-1))

    def split(self, x: Tensor) -> Tensor:
        return _split(x, self.num_heads)

    def scale(self, q: Tensor) -> float:
        return math.sqrt(q.shape[-1])

    def merge(self, x: Tensor) -> Tensor:
        return _merge(x)

    def out(self, x: Tensor) -> Tensor:
        return self.proj(x)


class _WrongAxis(_Layer):
    axis = -2


class _AcrossHeads(_Layer):
    axis = 1


class _NoScale(_Layer):
    def scale(self, q: Tensor) -> float:
        return 1.0


class _WholeWidth(_Layer):
    def scale(self, q: Tensor) -> float:
        return math.sqrt(q.shape[-1] * q.shape[1])


class _DividedByWidth(_Layer):
    def scale(self, q: Tensor) -> float:
        return float(q.shape[-1])


class _SplitByView(_Layer):
    def split(self, x: Tensor) -> Tensor:
        return _split_by_view(x, self.num_heads)


class _MergeByReshape(_Layer):
    def merge(self, x: Tensor) -> Tensor:
        return x.reshape(x.shape[0], x.shape[2], -1)


class _SplitAndMergeByView(_SplitByView, _MergeByReshape):
    pass


class _KeysAsk(_Layer):
    def parts(self, x: Tensor) -> tuple[Tensor, ...]:
        q, k, v = super().parts(x)
        return k, q, v


class _ValuesSecond(_Layer):
    def parts(self, x: Tensor) -> tuple[Tensor, ...]:
        q, k, v = super().parts(x)
        return q, v, k


class _NoProjection(_Layer):
    def out(self, x: Tensor) -> Tensor:
        return x


class _HeadsOutside(_Layer):
    """The rows of qkv taken as (h, 3, d): q, k, v of head 0, then of head 1."""

    def parts(self, x: Tensor) -> tuple[Tensor, ...]:
        return self.qkv(x).unflatten(-1, (self.num_heads, 3, -1)).permute(3, 0, 2, 1, 4).unbind(0)


class _Interleaved(_Layer):
    """The rows of qkv taken as (h, d, 3): q, k, v in turn."""

    def parts(self, x: Tensor) -> tuple[Tensor, ...]:
        return self.qkv(x).unflatten(-1, (self.num_heads, -1, 3)).permute(4, 0, 2, 1, 3).unbind(0)


class _OneHead(_Layer):
    def split(self, x: Tensor) -> Tensor:
        return x[:, None]


# nn.MultiheadAttention keeps the same numbers under these names.
SAME = {"in_proj_weight": "qkv.weight", "in_proj_bias": "qkv.bias", "out_proj.weight": "proj.weight",
        "out_proj.bias": "proj.bias"}  # fmt: skip

MULTI_HEAD_ATTENTION = Exercise(
    name="multi_head_attention",
    lesson="03",
    points=4,
    right=MultiHeadSelfAttention,
    cases=_layer_cases,
    observe=functools.partial(layer, aliases=SAME),
    mistakes=(
        Mistake(
            "heads split without the transpose",
            "A view to (B, h, T, d) reads token after token, so a head gets pieces of a few tokens. Cut the last axis "
            "into (h, d), then transpose(1, 2).",
            "Heads split without the transpose.",
            _SplitByView,
        ),
        Mistake(
            "heads merged without the transpose",
            "A reshape of (B, h, T, d) to (B, T, D) puts pieces of several tokens in one row: transpose(1, 2) first.",
            "Heads merged without the transpose.",
            _MergeByReshape,
        ),
        Mistake(
            "heads split and merged without the transpose",
            "The two slips do not cancel: in between, each head has attended over pieces of a few tokens.",
            "Heads split without the transpose.",
            _SplitAndMergeByView,
        ),
        Mistake(
            "a softmax over the wrong axis",
            "Your weights sum to 1 over the queries. They must sum to 1 over the keys: dim=-1.",
            "Softmax over the wrong axis.",
            _WrongAxis,
        ),
        Mistake(
            "a softmax across the heads",
            "dim=1 are the heads. The weights of one query sum to 1 over the keys: dim=-1.",
            "Softmax over the wrong axis.",
            _AcrossHeads,
        ),
        Mistake("no scale", "Divide the scores by √d, where d = D / h.", _SCALE, _NoScale),
        Mistake(
            "√D for √d",
            "You divide by the square root of the whole width D. A dot product runs over the width of one head, "
            "d = D / h.",
            "No scale, or √D for √d.",
            _WholeWidth,
        ),
        Mistake("a division by d", "It is the square root of d that you divide by.", _SCALE, _DividedByWidth),
        Mistake(
            "query and key exchanged",
            "The rows of qkv are q, then k, then v. You use the first third as keys.",
            "Queries and keys exchanged.",
            _KeysAsk,
        ),
        Mistake(
            "key and value exchanged",
            "The rows of qkv are q, then k, then v. You use the second third as values.",
            "2 · Where queries, keys and values come from",
            _ValuesSecond,
        ),
        Mistake(
            "a missing output projection",
            "The heads' outputs stand side by side, and nothing mixes them: return proj(z).",
            "The projection forgotten.",
            _NoProjection,
        ),
        Mistake(
            "rows of qkv taken head by head",
            "You read the 3D numbers as (h, 3, d). They are (3, h, d): all queries, then all keys, then all values.",
            "2 · Where queries, keys and values come from",
            _HeadsOutside,
        ),
        Mistake(
            "rows of qkv interleaved",
            "You read the 3D numbers as q, k, v in turn. They are (3, h, d): all queries, all keys, all values.",
            "2 · Where queries, keys and values come from",
            _Interleaved,
        ),
        Mistake(
            "one head for all",
            "Your layer attends over the whole width at once. Split q, k and v into h heads before the scores.",
            "4 · Many heads",
            _OneHead,
        ),
    ),
)


def check_multi_head_attention(cls: type[nn.Module]) -> bool:
    """Check the class ``cls(dim, num_heads)`` with ``qkv`` (D -> 3D) and ``proj`` (D -> D): (B, T, D) -> (B, T, D)."""
    return check(MULTI_HEAD_ATTENTION, cls)


# ---- The challenge -----------------------------------------------------------------------------------------------


def _whole(q: Tensor, k: Tensor, v: Tensor, chunk: int) -> Tensor:
    return attend(q, k, v)[0]


def _chunk_cases() -> list[Case]:
    sizes = [(3, 4, 2, 2, 1.0), (5, 7, 4, 3, 1.0), (2, 6, 3, 6, 1.0), (4, 9, 2, 4, 200.0)]
    return [
        Case(
            f"{T} queries, {S} keys, chunk={chunk}{', scores up to hundreds' if size > 1 else ''}",
            (size * normal(1, T, d, seed=1), normal(1, S, d, seed=2), normal(1, S, d, seed=3), chunk),
        )
        for T, S, d, chunk, size in sizes
    ]


def _no_maximum(q: Tensor, k: Tensor, v: Tensor, chunk: int) -> Tensor:
    powers = (q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])).exp()
    return powers @ v / powers.sum(-1, keepdim=True)


def _chunks(rescale: bool, whole_sum: bool) -> Callable[..., Tensor]:
    def attention(q: Tensor, k: Tensor, v: Tensor, chunk: int) -> Tensor:
        top, total, mixed = torch.full_like(q[..., :1], -math.inf), torch.zeros_like(q[..., :1]), q.new_zeros(())
        for keys, values in zip(k.split(chunk, -2), v.split(chunk, -2), strict=True):
            scores = q @ keys.transpose(-2, -1) / math.sqrt(q.shape[-1])
            new = torch.maximum(top, scores.amax(-1, keepdim=True)).detach()
            powers, shrink = (scores - new).exp(), (top - new).exp() if rescale else 1.0
            total = total * (shrink if whole_sum else 1.0) + powers.sum(-1, keepdim=True)
            mixed, top = mixed * shrink + powers @ values, new
        return mixed / total

    return attention


def _mean_of_chunks(q: Tensor, k: Tensor, v: Tensor, chunk: int) -> Tensor:
    parts = zip(k.split(chunk, -2), v.split(chunk, -2), strict=True)
    return torch.stack([attend(q, keys, values)[0] for keys, values in parts]).mean(0)


def _sum_of_chunks(q: Tensor, k: Tensor, v: Tensor, chunk: int) -> Tensor:
    parts = zip(k.split(chunk, -2), v.split(chunk, -2), strict=True)
    return torch.stack([attend(q, keys, values)[0] for keys, values in parts]).sum(0)


ATTENTION_IN_CHUNKS = Exercise(
    name="attention_in_chunks",
    lesson="03",
    points=2,
    right=_whole,
    cases=_chunk_cases,
    observe=call,
    tolerance=1e-4,
    mistakes=(
        Mistake(
            "an overflow",
            "The numbers are right as long as the scores are small. e to the power of some hundreds is infinite: "
            "subtract the largest score so far before you raise e to it.",
            "The softmax overflows.",
            _no_maximum,
        ),
        Mistake(
            "old sums left under an old maximum",
            "When a chunk brings a larger score, what you have summed so far was divided by another power of e: "
            "multiply both sums by exp(old maximum - new maximum).",
            "The softmax overflows.",
            _chunks(rescale=False, whole_sum=False),
        ),
        Mistake(
            "a denominator that is not rescaled",
            "You rescale the mixed values when the maximum grows, but not the sum of the powers that you divide by.",
            "The softmax overflows.",
            _chunks(rescale=True, whole_sum=False),
        ),
        Mistake(
            "a softmax for each chunk, then their mean",
            "Each chunk's weights sum to 1, so a chunk of poor matches counts as much as one of good ones. Keep sums, "
            "and divide once at the end.",
            "1 · Attention with a pencil",
            _mean_of_chunks,
        ),
        Mistake(
            "a softmax for each chunk, then their sum",
            "Each chunk's weights sum to 1, so all together sum to the number of chunks. Keep sums of powers, and "
            "divide once at the end.",
            "1 · Attention with a pencil",
            _sum_of_chunks,
        ),
    ),
)


def check_attention_in_chunks(fn: Callable[..., Tensor]) -> bool:
    """Check ``fn(q, k, v, chunk)``: attention's output (B, T, d), with ``chunk`` keys at a time."""
    return check(ATTENTION_IN_CHUNKS, fn)


EXERCISES = (ATTENTION_NUMBERS, ATTENTION, SPLIT_HEADS, MERGE_HEADS, MULTI_HEAD_ATTENTION, ATTENTION_IN_CHUNKS)
