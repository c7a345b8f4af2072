"""Checks of lesson 03: attention with a pencil, as a function, with many heads, and without the T x T table."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from vit_tutorial.attention import MultiHeadSelfAttention
from vit_tutorial.attention import dot_product_attention as attend
from vit_tutorial.checks.compare import equal, off
from vit_tutorial.checks.harness import (
    Case,
    Exercise,
    Fault,
    Hashed,
    Result,
    answers,
    at_once,
    call,
    copied,
    layer,
    normal,
    random_weights,
    section,
)
from vit_tutorial.checks.symptoms import EXACT, symptom
from vit_tutorial.checks.watch import Operations

_PENCIL = "1 · A weighted mean, with a pencil"
_SCALE = "3 · Why divide by √d"
_HEADS = "4 · Several heads"
_OVERFLOW = "The softmax overflows."

# ---- With a pencil -----------------------------------------------------------------------------------------------

NUMBERS = {
    "scores": Hashed("93ae5c537a cebe14ec51", "list"),
    "weight 0": Hashed("f53f2c3a26@0.012+0.00505858"),
    "output": Hashed("125d461bbc@0.04+0.0242343 f2922ddf03@0.04+0.0115314", "list"),
    "weights": Hashed("8194b7afed"),
}


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
    advice={
        "scores": "The dot product of the query with each key: multiply number by number, and add up.",
        "weight 0": "Divide the two scores by √d first; then e to the power of each, divided by the sum of both.",
        "output": "Each value times its weight, added up. Your two weights must sum to 1.",
        "weights": "For each head and each token there is one weight for each token. How many tokens has the image?",
    },
    mistakes=(
        *section(
            _SCALE,
            (
                "no scale",
                "That is the softmax of the scores themselves. Divide them by √d first, here √4.",
                _pencil(math.exp(2) / (math.exp(2) + 1)),
            ),
            (
                "a division by d",
                "That is what a division by d = 4 gives. It is the square root of d.",
                _pencil(math.exp(0.5) / (math.exp(0.5) + 1)),
            ),
        ),
        *section(
            _PENCIL,
            (
                "the weights exchanged",
                "Key 0 fits the query better, so value 0 has the larger weight.",
                _pencil(1 / (math.e + 1)),
            ),
        ),
        *section(
            "What it costs.",
            ("the class token forgotten", "There are 7 · 7 = 49 patches, and 50 tokens.", {"weights": 12 * 49 * 49}),
        ),
    ),
)


# ---- attention ---------------------------------------------------------------------------------------------------


def _attention_cases() -> list[Case]:
    shapes = [((4, 3), (5, 3), (5, 2)), ((2, 3, 4), (2, 5, 4), (2, 5, 6)), ((2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 4)),
              ((3, 3), (3, 3), (3, 3)), ((2, 4, 4), (2, 4, 4), (2, 4, 4)),
              ((2, 3, 6), (2, 45, 6), (2, 45, 5)), ((2, 7, 4), (2, 5, 4), (2, 5, 3)),
              # Axes of length 1 stay: a batch, queries and keys. And many axes in front.
              ((1, 2, 1, 3), (1, 2, 1, 3), (1, 2, 1, 2)),
              ((2, 1, 3, 2, 4), (2, 1, 3, 5, 4), (2, 1, 3, 5, 3))]  # fmt: skip
    cases = [
        Case(f"q {a}, k {b}, v {c}", (normal(*a, seed=1), normal(*b, seed=2), normal(*c, seed=3))) for a, b, c in shapes
    ]
    q, k, v = cases[1].args
    return [
        *cases,
        # e to the power of the largest is infinite in float64, too.
        Case("the same as the second, scores in the hundreds", (500 * q, k, v)),
    ]


def _large_scores_alone(wrong: list[tuple[Case, Result, Result]]) -> str:
    """What else there is to say would be of a softmax that is saturated."""
    if any("scores" not in case.label for case, *_ in wrong):
        return ""
    return (
        f"It goes wrong with {wrong[0][0].label}. Is e raised to the scores as they are, or are they cut off? Subtract "
        "the largest score of each query first, and leave the rest to exp."
    )


def _where_attention_goes_wrong(rows: list[tuple[Case, Result, Result]]) -> str:
    """Weights or mixture, and what scores the weights would belong to."""
    wrong = off(rows, ATTENTION)
    if not wrong:  # an argument was changed, no more
        return ""
    case, right, theirs = wrong[0]
    output, weights = (x.double() for x in theirs["result"])
    of = f" (with {case.label})"
    if equal(weights, right["result"][1], ATTENTION):
        return f"Your weights are right. Your output isn't these weights @ v{of}."
    mixed = equal(output, weights @ case.args[2].double(), ATTENTION)
    rest = "your output is these weights times v, as it should be" if mixed else "nor is your output these weights @ v"
    if bool((weights == 0).any()) and bool((right["result"][1] > 1e-6).all()):
        many = int((weights == 0).sum())
        return f"{many} of {weights.numel()} weights are 0, and none should be{of}. Besides, {rest}."
    return f"It is the weights that are wrong: they aren't the softmax of q kᵀ / √d{of}; {rest}."


# Where the mistake comes behind the heads, this would not be so: it is said as a condition.
_BACK = "If your result is proj of your heads, and nothing else, then in front of it"


def _where_the_layer_goes_wrong(rows: list[tuple[Case, Result, Result]]) -> str:
    """What stands before the last projection, and which heads of it are right."""
    wrong = off(rows, MULTI_HEAD_ATTENTION)
    if not wrong:  # it is the gradients, or what the layer does in training
        return ""
    case, right, theirs = wrong[0]
    weight, heads = case.weights["proj.weight"].double(), case.build[1]
    a, b = (
        torch.linalg.solve(weight, (one["result"].detach().double() - case.weights["proj.bias"]).mT).mT
        for one in (theirs, right)
    )
    a, b = (x.unflatten(-1, (heads, -1)).movedim(2, 0) for x in (a, b))
    some = [str(i) for i in range(heads) if torch.allclose(a[i], b[i], atol=1e-3)]
    if some and len(some) < heads:
        return f"{_BACK} only head {', '.join(some)} of {heads} is right (with {case.label})."
    inputs = {"the right heads": b}
    seen = symptom([(b, a, inputs, case.label)], 1e-3, EXACT, others=len(wrong) > 1)
    if seen:
        return f"{_BACK}, with axes (h, B, T, d): {seen}"
    thirds = nn.functional.linear(case.args[0], case.weights["qkv.weight"], case.weights["qkv.bias"])
    values = _split(thirds.chunk(3, dim=-1)[2], heads)
    low, high = values.double().amin(2).movedim(1, 0), values.double().amax(2).movedim(1, 0)
    if ((a > low.unsqueeze(2) - 1e-3) & (a < high.unsqueeze(2) + 1e-3)).all():
        return ""
    return (
        f"{_BACK}, with {case.label}, your heads hold numbers that no weighted mean of the right values gives: look at "
        "the order of q, k, v, at the cut into heads, and at the softmax."
    )


ATTENTION = Exercise(
    name="attention",
    lesson="03",
    points=3,
    takes="fn(q, k, v): (..., T, d), (..., S, d), (..., S, e) -> output (..., T, e) and weights (..., T, S)",
    right=attend,
    cases=_attention_cases,
    observe=call,
    explain=_large_scores_alone,
    locate=_where_attention_goes_wrong,
    forbidden=("scaled_dot_product",),
)


# ---- Heads -------------------------------------------------------------------------------------------------------


def _split(x: Tensor, num_heads: int) -> Tensor:
    return x.unflatten(-1, (num_heads, -1)).transpose(1, 2)  # (B, T, h, d) -> (B, h, T, d)


def _merge(x: Tensor) -> Tensor:
    return x.transpose(1, 2).flatten(2)  # (B, h, T, d) -> (B, T, h*d)


def _split_by_view(x: Tensor, num_heads: int) -> Tensor:
    return x.reshape(x.shape[0], num_heads, x.shape[1], -1)


SPLIT_HEADS = Exercise(
    name="split_heads",
    lesson="03",
    points=2,
    takes="fn(x, num_heads): (B, T, D) -> (B, h, T, d)",
    right=_split,
    cases=lambda: [
        Case(f"x {shape}, num_heads={heads}", (normal(*shape), heads))
        for shape, heads in [
            ((1, 4, 6), 3),
            ((3, 5, 8), 2),
            ((2, 7, 5), 1),
            ((2, 4, 5), 5),
            ((3, 4, 8), 4),
            ((2, 1, 24), 12),
        ]
    ],
    observe=call,
)


MERGE_HEADS = Exercise(
    name="merge_heads",
    lesson="03",
    points=2,
    takes="fn(x): (B, h, T, d) -> (B, T, D)",
    right=_merge,
    cases=lambda: [
        Case(f"x {shape}", (normal(*shape),))
        for shape in [(1, 3, 4, 2), (2, 5, 5, 3), (2, 3, 4, 3), (2, 1, 7, 5), (2, 3, 1, 4), (2, 3, 4, 4), (1, 12, 3, 2)]
    ],
    observe=call,
)


# ---- The layer ---------------------------------------------------------------------------------------------------


def _layer_cases() -> list[Case]:
    made = []
    sizes = [((1, 4, 6), 3), ((3, 5, 8), 2), ((2, 4, 12), 1), ((4, 3, 10), 5), ((1, 40, 6), 2), ((2, 1, 6), 3)]
    for (B, T, D), heads in [*sizes, ((2, 3, 24), 12), ((2, 4, 5), 5)]:
        weights = random_weights(MultiHeadSelfAttention(D, heads))
        made.append(Case(f"x {(B, T, D)}, num_heads={heads}", (normal(B, T, D),), (D, heads), weights))
    first = made[0]
    return [*made, Case("the first x, 8 times as large", (8 * first.args[0],), first.build, first.weights)]


def _thirds(qkv: Tensor, num_heads: int) -> tuple[Tensor, ...]:
    """(B, T, 3D) -> q, k and v, each (B, h, T, d)."""
    return tuple(_split(part, num_heads) for part in qkv.chunk(3, dim=-1))


def _layer(
    parts: Callable[[Tensor, int], Any] = _thirds,
    scale: Callable[[Tensor], float] = lambda q: math.sqrt(q.shape[-1]),
) -> type[nn.Module]:
    """The layer with another way to make q, k and v, or another scale."""

    class Wrong(MultiHeadSelfAttention):
        def forward(self, x: Tensor) -> Tensor:
            q, k, v = parts(self.qkv(x), self.num_heads)
            weights = (q @ k.transpose(-2, -1) / scale(q)).softmax(dim=-1)
            return self.proj(_merge(weights @ v))

    return Wrong


# nn.MultiheadAttention keeps the same numbers under these names.
SAME = {"in_proj_weight": "qkv.weight", "in_proj_bias": "qkv.bias", "out_proj.weight": "proj.weight",
        "out_proj.bias": "proj.bias"}  # fmt: skip


def _observe_heads(work: Any, case: Case) -> Result:
    """As :func:`layer`; the names of nn.MultiheadAttention are those of its parts alone."""
    module = work(*case.build)
    by_torch = isinstance(module, nn.Module) and any(isinstance(p, nn.MultiheadAttention) for p in module.modules())
    return layer(work, case, aliases=SAME if by_torch else {})


MULTI_HEAD_ATTENTION = Exercise(
    name="multi_head_attention",
    lesson="03",
    points=3,
    takes="cls(dim, num_heads) with qkv (D -> 3D) and proj (D -> D): (B, T, D) -> (B, T, D)",
    right=MultiHeadSelfAttention,
    cases=_layer_cases,
    observe=_observe_heads,
    tolerance=3e-4,
    locate=_where_the_layer_goes_wrong,
    mistakes=(
        *section(
            "Heads split without the transpose.",
            (
                "heads split without the transpose",
                "A view to (B, h, T, d) reads token after token, so a head gets pieces of a few tokens. Cut the "
                "last axis into (h, d), then transpose(1, 2).",
                _layer(lambda qkv, h: [_split_by_view(part, h) for part in qkv.chunk(3, dim=-1)]),
            ),
        ),
        *section(
            "√D in place of √d.",
            (
                "√D for √d",
                "You divide by the square root of the whole width D. A dot product runs over the width of one head,"
                " d = D / h.",
                _layer(scale=lambda q: math.sqrt(q.shape[-1] * q.shape[1])),
            ),
        ),
        *section(
            _HEADS,
            (
                "rows of qkv taken head by head",
                "You read the 3D numbers as (h, 3, d). They are (3, h, d): all queries, then all keys, then all "
                "values.",
                _layer(lambda qkv, h: qkv.unflatten(-1, (h, 3, -1)).permute(3, 0, 2, 1, 4)),
            ),
        ),
    ),
)


# ---- The challenge -----------------------------------------------------------------------------------------------


_MANY = "48 queries, 768 keys, chunk=64"


def _chunk_cases() -> list[Case]:
    sizes = [(1, 3, 5, 2, 2, 1.0), (2, 5, 7, 4, 3, 1.0), (3, 2, 6, 5, 6, 1.0), (2, 4, 9, 3, 4, 300.0)]
    sizes += [
        (2, 9, 8, 3, 1, 1.0),
        (2, 6, 6, 3, 4, 1.0),
        (1, 4, 45, 3, 8, 1.0),
        (2, 3, 5, 4, 7, 1.0),
        (2, 1, 7, 4, 3, 1.0),
    ]
    cases = [
        Case(
            f"{T} queries, {S} keys, chunk={chunk}{', scores up to hundreds' if size > 1 else ''}",
            (size * normal(B, T, d, seed=1), normal(B, S, d, seed=2), normal(B, S, d, seed=3), chunk),
        )
        for B, T, S, d, chunk, size in sizes
    ]
    # All scores are near -800: e to the power of them is 0, and so is the sum.
    q, k, v = (normal(2, n, 4, seed=seed) for seed, n in enumerate((3, 7, 7), 4))
    low = Case("3 queries, 7 keys, chunk=2, all scores near -800", (q - 40, k / 10 + 10, v, 2))
    q, k, v = (normal(1, n, 1, seed=seed) for seed, n in enumerate((48, 768, 768)))
    return [*cases, low, Case(_MANY, (q, k, v, 64))]


def _many_keys() -> Case:
    q, k, v = (normal(1, n, 1, seed=seed) for seed, n in enumerate((128, 32_768, 32_768)))
    return Case("128 queries, 32768 keys, chunk=64", (q, k, v, 64))


def _observe_chunks(work: Any, case: Case) -> Result:
    """As :func:`call`; and whether the table of all weights was ever made, or is kept in pieces."""
    q, k, _, chunk = case.args
    if case.label == _MANY:
        return {"what is in memory at once": at_once(lambda: work(*copied(case.args)), 48 * 768)}
    with Operations() as operations:
        observed = call(work, case)
    keys, queries, apart = k.shape[1], q.shape[1], {q.shape[1], q.shape[2], case.args[2].shape[2]}
    tables = []
    for shape in operations.shapes("exp", "exp2", "expm1", "softmax", "log_softmax", "logsumexp", "sigmoid", "pow"):
        if queries == keys:  # then both axes tell
            found = shape[-2:] == (keys, keys)
        else:
            found = keys in shape[1:] and not (shape[-1] == q.shape[2] and keys not in shape[-1:])
        if chunk > 1:  # else there may be as many chunks as keys
            found = found or shape in ((keys,), (keys, queries))  # of one query, or of one image
        # Between a chunk and all: told from other tables by its axis of queries.
        if len(shape) > 1 and chunk < shape[-1] < keys and (shape[-2] == queries or shape[-1] not in apart):
            found = True
        if found:
            tables.append(shape)
    # Queries, keys, width and batch all differ, so that nothing else has these lengths.
    tables += [shape for _, shape in operations.seen if shape[-2:] in ((queries, keys), (keys, queries))]
    if keys > chunk and tables:
        said = f"there is a tensor of shape {tables[0]}: take {chunk} keys at a time"
        raise Fault(f"{said}, and keep no more of them than three things for each query")
    return observed


def _chunks(
    rescale: bool = True,
    whole_sum: bool = True,
    parts: Callable[[Tensor, int], Any] = lambda x, chunk: x.split(chunk, -2),
) -> Callable[..., Tensor]:
    """Attention in chunks, with one thing or another left out."""

    def attention(q: Tensor, k: Tensor, v: Tensor, chunk: int) -> Tensor:
        top, total, mixed = torch.full_like(q[..., :1], -math.inf), torch.zeros_like(q[..., :1]), torch.zeros_like(q)
        for keys, values in zip(parts(k, chunk), parts(v, chunk), strict=True):
            scores = q @ keys.transpose(-2, -1) / math.sqrt(q.shape[-1])
            new = torch.maximum(top, scores.amax(-1, keepdim=True))
            powers, shrink = (scores - new).exp(), (top - new).exp()
            total = total * (shrink if whole_sum else 1.0) + powers.sum(-1, keepdim=True)
            mixed, top = mixed * (shrink if rescale else 1.0) + powers @ values, new
        return mixed / total

    return attention


def _full_chunks(x: Tensor, chunk: int) -> list[Tensor]:
    return [x[..., i * chunk : (i + 1) * chunk, :] for i in range(x.shape[-2] // chunk)]


def _mean_of_chunks(q: Tensor, k: Tensor, v: Tensor, chunk: int) -> Tensor:
    parts = zip(k.split(chunk, -2), v.split(chunk, -2), strict=True)
    return torch.stack([attend(q, keys, values)[0] for keys, values in parts]).mean(0)


ATTENTION_IN_CHUNKS = Exercise(
    name="attention_in_chunks",
    lesson="03",
    points=2,
    takes="fn(q, k, v, chunk): attention's output (B, T, d), with chunk keys at a time",
    right=_chunks(),
    cases=_chunk_cases,
    large=_many_keys,
    observe=_observe_chunks,
    explain=_large_scores_alone,
    forbidden=("scaled_dot_product",),
    tolerance=1e-4,
    mistakes=(
        *section(
            _OVERFLOW,
            (
                "old sums left under an old maximum",
                "When a chunk brings a larger score, what you have summed so far was divided by another power of e:"
                " multiply both sums by exp(old maximum - new maximum).",
                _chunks(rescale=False, whole_sum=False),
            ),
        ),
        *section(
            _PENCIL,
            (
                "a softmax for each chunk, then their mean",
                "Each chunk's weights sum to 1, so a chunk of poor matches counts as much as one of good ones. Keep"
                " sums, and divide once at the end.",
                _mean_of_chunks,
            ),
        ),
        *section(
            "What it costs.",
            (
                "a last chunk lost",
                "S // chunk leaves the last, shorter chunk out. k.split(chunk, dim=1) gives it, too.",
                _chunks(parts=_full_chunks),
            ),
        ),
    ),
)
