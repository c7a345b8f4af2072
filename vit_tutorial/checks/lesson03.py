"""Checks of lesson 03: attention with a pencil, as a function, with many heads, and without the T x T table."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn

from vit_tutorial.attention import MultiHeadSelfAttention
from vit_tutorial.attention import dot_product_attention as attend
from vit_tutorial.checks.engine.exercise import Case, Exercise, Mistake, Observation, Submission
from vit_tutorial.checks.engine.forbidden import call_with_small_tensors
from vit_tutorial.checks.engine.functions import call, normal
from vit_tutorial.checks.engine.layers import layer, random_weights
from vit_tutorial.checks.engine.questions import Question, Slip, pencil

_PENCIL = "A weighted mean, with a pencil"
_SCALE = "Why divide by √d"
_HEADS = "Several heads"
_OVERFLOW = "The softmax overflows."

# ---- With a pencil -----------------------------------------------------------------------------------------------

_NO_SCALE = Slip("no scale", "That is the softmax of the scores themselves. Divide by √d first, here √4.")
_BY_D = Slip("a division by d", "You divided by d = 4. Divide by √d = 2.")
_WEIGHTS_EXCHANGED = Slip("the weights exchanged", "Key 0 fits the query better, so value 0 has the larger weight.")

ATTENTION_NUMBERS = pencil(
    "attention_numbers",
    lesson="03",
    points=3,
    tolerance=0.006,
    questions={
        "scores": Question(
            [2, 0], "The dot product of the query with each key: multiply number by number, and add up."
        ),
        "weight 0": Question(
            0.7311,
            "Divide the two scores by √d first; then e to the power of each, divided by the sum of both.",
            _SCALE,
            {0.88079: _NO_SCALE, 0.62245: _BY_D, 0.26894: _WEIGHTS_EXCHANGED},
        ),
        "output": Question(
            [2.9242, 2.1515],
            "Each value times its weight, added up. Your two weights must sum to 1.",
            _SCALE,
            {(3.52, 0.95): _NO_SCALE, (2.49, 3.02): _BY_D, (1.08, 5.85): _WEIGHTS_EXCHANGED},
        ),
        "weights": Question(
            30000,
            "Each head has one weight for each pair of tokens. How many tokens does the image have?",
            "What it costs.",
            {28812: Slip("the class token forgotten", "There are 7 · 7 = 49 patches, and 50 tokens.")},
        ),
    },
)


# ---- attention ---------------------------------------------------------------------------------------------------


def _attention_cases() -> list[Case]:
    shapes = [
        ((4, 3), (5, 3), (5, 2)),
        ((2, 3, 4), (2, 5, 4), (2, 5, 6)),
        ((2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 4)),
        ((2, 4, 4), (2, 4, 4), (2, 4, 4)),
        ((1, 2, 1, 3), (1, 2, 1, 3), (1, 2, 1, 2)),  # axes of length 1 stay
    ]
    cases = [
        Case(f"q {a}, k {b}, v {c}", (normal(*a, seed=1), normal(*b, seed=2), normal(*c, seed=3))) for a, b, c in shapes
    ]
    q, k, v = cases[1].args
    return [*cases, Case("the same as the second, scores in the hundreds", (500 * q, k, v))]


def _not_scaled(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    weights = (q @ k.mT).softmax(dim=-1)
    return weights @ v, weights


def _divided_by_d(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    weights = (q @ k.mT / q.shape[-1]).softmax(dim=-1)
    return weights @ v, weights


def _softmax_over_queries(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    weights = (q @ k.mT / math.sqrt(q.shape[-1])).softmax(dim=-2)
    return weights @ v, weights


def _no_softmax(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    return scores @ v, scores


def _powers_as_they_are(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    powers = (q @ k.mT / math.sqrt(q.shape[-1])).exp()
    weights = powers / powers.sum(dim=-1, keepdim=True)
    return weights @ v, weights


ATTENTION = Exercise(
    name="attention",
    lesson="03",
    points=3,
    right=attend,
    cases=_attention_cases,
    forbidden=("scaled_dot_product",),
    mistakes=(
        Mistake(
            name="no scale",
            says="Divide the scores by √d, the root of the length of a query.",
            reread=_SCALE,
            wrong=_not_scaled,
        ),
        Mistake(
            name="a division by d",
            says="Divide by √d, not by d.",
            reread=_SCALE,
            wrong=_divided_by_d,
        ),
        Mistake(
            name="a softmax over the queries",
            says="The weights of each query sum to 1 over the keys, the last axis: dim=-1.",
            reread="Softmax over the wrong axis.",
            wrong=_softmax_over_queries,
        ),
        Mistake(
            name="no softmax",
            says="Scores are not weights yet: a query's weights are positive and sum to 1.",
            reread=_PENCIL,
            wrong=_no_softmax,
        ),
        Mistake(
            name="e to the power of scores as they are",
            says="e to the power of a few hundred is infinite. Subtract the largest score of each query first, or "
            "take softmax, which does.",
            reread=_OVERFLOW,
            wrong=_powers_as_they_are,
        ),
    ),
)


# ---- Heads -------------------------------------------------------------------------------------------------------


def _split(x: Tensor, num_heads: int) -> Tensor:
    return x.unflatten(-1, (num_heads, -1)).transpose(1, 2)  # (B, T, h, d) -> (B, h, T, d)


def _merge(x: Tensor) -> Tensor:
    return x.transpose(1, 2).flatten(2)  # (B, h, T, d) -> (B, T, h*d)


def _split_by_reshape(x: Tensor, num_heads: int) -> Tensor:
    B, T, _ = x.shape
    return x.reshape(B, num_heads, T, -1)


def _tokens_first(x: Tensor, num_heads: int) -> Tensor:
    return x.unflatten(-1, (num_heads, -1))  # (B, T, h, d)


def _merge_by_reshape(x: Tensor) -> Tensor:
    B, _, T, _ = x.shape
    return x.reshape(B, T, -1)


SPLIT_HEADS = Exercise(
    name="split_heads",
    lesson="03",
    points=2,
    right=_split,
    cases=lambda: [
        Case(f"x {shape}, num_heads={heads}", (normal(*shape), heads))
        for shape, heads in [((1, 4, 6), 3), ((3, 5, 8), 2), ((2, 4, 5), 5), ((3, 4, 8), 4)]
    ],
    mistakes=(
        Mistake(
            name="a reshape to (B, h, T, d)",
            says="It reads token after token, so a head gets pieces of a few tokens. Cut the last axis into (h, d), "
            "then transpose(1, 2).",
            reread="Heads split without the transpose.",
            wrong=_split_by_reshape,
        ),
        Mistake(
            name="tokens before heads",
            says="The heads come before the tokens, so that each head computes on its own: transpose(1, 2).",
            reread=_HEADS,
            wrong=_tokens_first,
        ),
    ),
)


MERGE_HEADS = Exercise(
    name="merge_heads",
    lesson="03",
    points=2,
    right=_merge,
    cases=lambda: [
        Case(f"x {shape}", (normal(*shape),)) for shape in [(1, 3, 4, 2), (2, 5, 5, 3), (2, 1, 7, 5), (2, 3, 1, 4)]
    ],
    mistakes=(
        Mistake(
            name="a reshape in place of a transpose",
            says="It reads head after head, so a row gets numbers of several tokens: transpose(1, 2) first, then "
            "reshape.",
            reread="Heads merged without the transpose.",
            wrong=_merge_by_reshape,
        ),
    ),
)


# ---- The layer ---------------------------------------------------------------------------------------------------


def _layer_cases() -> list[Case]:
    cases = []
    for (B, T, D), heads in [((1, 4, 6), 3), ((3, 5, 8), 2), ((2, 4, 12), 1), ((2, 4, 5), 5)]:
        weights = random_weights(MultiHeadSelfAttention(D, heads))
        cases.append(Case(f"x {(B, T, D)}, num_heads={heads}", (normal(B, T, D),), (D, heads), weights))
    first = cases[0]
    return [*cases, Case("the first x, 8 times as large", (8 * first.args[0],), first.build, first.weights)]


def _layer(
    split: Callable[[Tensor, int], Tensor] = _split,
    attend: Callable[..., tuple[Tensor, Tensor]] = attend,
    merge: Callable[[Tensor], Tensor] = _merge,
) -> type[nn.Module]:
    """The layer with one step done in another way."""

    class Wrong(MultiHeadSelfAttention):
        def forward(self, x: Tensor) -> Tensor:
            thirds = self.qkv(x).chunk(3, dim=-1)
            q, k, v = (split(third, self.num_heads) for third in thirds)
            return self.proj(merge(attend(q, k, v)[0]))

    return Wrong


def _divided_by_root_of_D(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    h, d = q.shape[1], q.shape[-1]
    weights = (q @ k.mT / math.sqrt(h * d)).softmax(dim=-1)
    return weights @ v, weights


MULTI_HEAD_ATTENTION = Exercise(
    name="multi_head_attention",
    lesson="03",
    points=3,
    right=MultiHeadSelfAttention,
    cases=_layer_cases,
    observe=layer,
    tolerance=3e-4,
    mistakes=(
        *(replace(one, wrong=_layer(split=one.wrong)) for one in SPLIT_HEADS.mistakes[:1]),
        *(replace(one, wrong=_layer(merge=one.wrong)) for one in MERGE_HEADS.mistakes),
        *(replace(one, wrong=_layer(attend=one.wrong)) for one in ATTENTION.mistakes[:-1]),
        Mistake(
            name="√D for √d",
            says="You divide by the square root of the whole width D. A dot product runs over the width of one head, d "
            "= D / h.",
            reread="√D in place of √d.",
            wrong=_layer(attend=_divided_by_root_of_D),
        ),
    ),
)


# ---- The challenge -----------------------------------------------------------------------------------------------


_MANY = "48 queries, 768 keys, chunk=64"


def _chunk_cases() -> list[Case]:
    sizes = [(1, 3, 5, 2, 2), (2, 5, 7, 4, 3), (2, 9, 8, 3, 1), (2, 6, 6, 3, 4), (2, 3, 5, 4, 7)]
    cases = [
        Case(f"{T} queries, {S} keys, chunk={chunk}", (*_queries_keys_values(B, T, S, d), chunk))
        for B, T, S, d, chunk in sizes
    ]
    q, k, v = _queries_keys_values(2, 4, 9, 3)
    cases.append(Case("4 queries, 9 keys, chunk=4, scores up to hundreds", (300 * q, k, v, 4)))
    # All scores are near -800: e to the power of them is 0, and so is the sum.
    q, k, v = _queries_keys_values(2, 3, 7, 4)
    cases.append(Case("3 queries, 7 keys, chunk=2, all scores near -800", (q - 40, k / 10 + 10, v, 2)))
    return [*cases, Case(_MANY, (*_queries_keys_values(1, 48, 768, 1), 64))]


def _queries_keys_values(B: int, T: int, S: int, d: int) -> tuple[Tensor, Tensor, Tensor]:
    return normal(B, T, d, seed=1), normal(B, S, d, seed=2), normal(B, S, d, seed=3)


def _observe_chunks(submission: Submission, case: Case) -> Observation:
    if case.label != _MANY:
        return call(submission, case)
    q, k, *_ = case.args
    # With many keys nothing else has as many numbers as the table of all weights.
    why = (
        "as large as the table of all weights: take chunk keys at a time, and keep no more of them than three things "
        "for each query"
    )
    return call_with_small_tensors(submission, case, q.shape[1] * k.shape[1], why)


def _in_chunks(q: Tensor, k: Tensor, v: Tensor, chunk: int, *, rescale_output: bool = True) -> Tensor:
    """The online softmax, as :func:`.tokens.blockwise_attention` computes it."""
    largest = torch.full_like(q[..., :1], -math.inf)  # (B, T, 1), the largest score so far
    total = torch.zeros_like(largest)  # (B, T, 1), the sum of exp(score - largest)
    output = torch.zeros_like(q)  # (B, T, d), each term times its value
    for keys, values in zip(k.split(chunk, dim=-2), v.split(chunk, dim=-2), strict=True):
        scores = q @ keys.mT / math.sqrt(q.shape[-1])
        new = torch.maximum(largest, scores.amax(dim=-1, keepdim=True))
        weights = (scores - new).exp()
        rescale = (largest - new).exp()
        total = rescale * total + weights.sum(dim=-1, keepdim=True)
        if rescale_output:
            output = rescale * output
        output = output + weights @ values
        largest = new
    return output / total


def _full_chunks_only(q: Tensor, k: Tensor, v: Tensor, chunk: int) -> Tensor:
    whole = k.shape[-2] // chunk * chunk
    if whole == 0:  # no full chunk: nothing is summed, and 0 / 0 comes out
        return torch.full_like(q, math.nan)
    return _in_chunks(q, k[..., :whole, :], v[..., :whole, :], chunk)


def _mean_of_chunks(q: Tensor, k: Tensor, v: Tensor, chunk: int) -> Tensor:
    parts = zip(k.split(chunk, -2), v.split(chunk, -2), strict=True)
    return torch.stack([attend(q, keys, values)[0] for keys, values in parts]).mean(0)


ATTENTION_IN_CHUNKS = Exercise(
    name="attention_in_chunks",
    lesson="03",
    points=2,
    right=_in_chunks,
    cases=_chunk_cases,
    observe=_observe_chunks,
    forbidden=("scaled_dot_product",),
    tolerance=1e-4,
    mistakes=(
        Mistake(
            name="e to the power of scores as they are",
            says="e to the power of a few hundred is infinite. Subtract the largest score so far of each query first.",
            reread=_OVERFLOW,
            wrong=lambda q, k, v, chunk: _powers_as_they_are(q, k, v)[0],
        ),
        Mistake(
            name="a sum of values left under an old maximum",
            says="When a chunk brings a larger score, what you have mixed so far was divided by another power of e: "
            "multiply both sums, of powers and of values, by exp(old maximum - new maximum).",
            reread=_OVERFLOW,
            wrong=partial(_in_chunks, rescale_output=False),
        ),
        Mistake(
            name="a softmax for each chunk, then their mean",
            says="Each chunk's weights sum to 1, so a chunk of poor matches counts as much as one of good ones. Keep "
            "sums, and divide once at the end.",
            reread=_PENCIL,
            wrong=_mean_of_chunks,
        ),
        Mistake(
            name="a last chunk lost",
            says="S // chunk leaves the last, shorter chunk out. k.split(chunk, dim=1) keeps it.",
            reread="What it costs.",
            wrong=_full_chunks_only,
        ),
    ),
)
