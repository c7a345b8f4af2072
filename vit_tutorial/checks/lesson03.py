"""Checks of lesson 03: attention with a pencil, as a function, with many heads, and without the T x T table."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from vit_tutorial.attention import MultiHeadSelfAttention
from vit_tutorial.attention import attention as attend
from vit_tutorial.checks.compare import differs, equal
from vit_tutorial.checks.harness import (
    Case,
    Exercise,
    Fault,
    Mistake,
    Result,
    Slip,
    answers,
    call,
    check,
    layer,
    normal,
    random_weights,
)
from vit_tutorial.checks.symptoms import EXACT, symptom
from vit_tutorial.checks.watch import Operations

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
    advice={
        "scores": "The dot product of the query with each key: multiply number by number, and add up.",
        "weight 0": "Divide the two scores by √d first; then e to the power of each, divided by the sum of both.",
        "output": "Each value times its weight, added up. Your two weights must sum to 1.",
        "weights": "For each head and each token there is one weight for each token. How many tokens has the image?",
    },
    mistakes=(
        Mistake(
            "no scale",
            "You took the softmax of the scores themselves. They are divided by √d first, here √4.",
            "4 · Why divide by √d",
            _pencil(math.exp(2) / (math.exp(2) + 1)),
        ),
        Mistake(
            "a division by d",
            "You divided by d = 4. It is the square root of d that keeps the scores' spread at 1.",
            "4 · Why divide by √d",
            _pencil(math.exp(0.5) / (math.exp(0.5) + 1)),
        ),
        Mistake(
            "all weight on key 0",
            "The softmax raises e to each score, and divides by the sum of both powers, so no weight is ever 0. The "
            "scores divided by their sum would give 1 and 0, and so would the best key alone.",
            "2 · Queries, keys, values, with a pencil",
            _pencil(1.0),
        ),
        Mistake(
            "a multiplication by √d",
            "The scores are divided by √d, so that they get smaller.",
            "4 · Why divide by √d",
            _pencil(math.exp(4) / (math.exp(4) + 1)),
        ),
        Mistake(
            "the weights exchanged",
            "Key 0 fits the query better, so value 0 has the larger weight.",
            "2 · Queries, keys, values, with a pencil",
            _pencil(1 - FIRST),
        ),
        Mistake(
            "equal weights",
            "The key with the larger score gets the larger weight.",
            "2 · Queries, keys, values, with a pencil",
            _pencil(0.5),
        ),
        Mistake(
            "scores that are scaled already",
            "You divided by √4. Asked are the plain dot products, before any scale.",
            "2 · Queries, keys, values, with a pencil",
            {"scores": [1, 0]},
        ),
        Mistake(
            "key 1 with the query's first number",
            "Key 1 begins with 0: 2 · 0 + 0 · 1 + 1 · 0 + 1 · 0.",
            "2 · Queries, keys, values, with a pencil",
            {"scores": [2, 2]},
        ),
        Mistake(
            "powers that are not divided by their sum",
            "e to the power of the score is no weight yet: divide by the sum of both powers.",
            "2 · Queries, keys, values, with a pencil",
            {"weight 0": math.e},
        ),
        Mistake(
            "the values without their weights",
            "The output is a weighted mean of the values, not their sum.",
            "2 · Queries, keys, values, with a pencil",
            {"output": [4, 8]},
        ),
        Mistake(
            "one weight for all the output",
            "Each value has a weight of its own: value 1 has 1 minus the weight of value 0.",
            "2 · Queries, keys, values, with a pencil",
            {"output": [4 * FIRST, 8 * FIRST]},
        ),
        Mistake(
            "tokens in place of weights",
            "Each token has a weight for each token: square their number.",
            "10 · What it costs",
            {"weights": 12 * 50},
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
            "10 · What it costs",
            {"weights": 50 * 50},
        ),
    ),
)


def check_attention_numbers(fn: Callable[[], Mapping[str, Any]]) -> bool:
    """Check the answers found with a pencil: ``fn()`` returns them in a dictionary."""
    return check(ATTENTION_NUMBERS, fn)


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


def _attend(
    scale: Callable[[Tensor, Tensor, Tensor], float] = lambda q, k, v: math.sqrt(q.shape[-1]),
    squash: Callable[[Tensor], Tensor] = lambda scores: scores.softmax(dim=-1),
    mix: Callable[[Tensor, Tensor], Tensor] = torch.matmul,
    roles: str = "qkv",
    give: Callable[[Tensor, Tensor, Tensor], Any] = lambda output, weights, scores: (output, weights),
) -> Callable[..., Any]:
    """Attention with another scale, softmax, mixture, order of the arguments, or other things returned."""

    def attention(q: Tensor, k: Tensor, v: Tensor) -> Any:
        given = {"q": q, "k": k, "v": v}
        q, k, v = (given[role] for role in roles)
        scores = q @ k.transpose(-2, -1) / scale(q, k, v)
        weights = squash(scores)
        return give(mix(weights, v), weights, scores)

    return attention


def _shares(scores: Tensor) -> Tensor:
    return scores / scores.sum(-1, keepdim=True)


def _powers_alone(scores: Tensor) -> Tensor:
    powers = scores.exp()
    return powers / powers.sum(-1, keepdim=True)


def _causal(scores: Tensor) -> Tensor:
    later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    return scores.masked_fill(later, -math.inf).softmax(dim=-1)


def _but_itself(scores: Tensor) -> Tensor:
    itself = torch.eye(*scores.shape[-2:], dtype=torch.bool)
    return scores.masked_fill(itself, -math.inf).softmax(dim=-1)


def _scaled_afterwards(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    weights = (q @ k.transpose(-2, -1)).softmax(dim=-1) / math.sqrt(q.shape[-1])
    return weights @ v, weights


_SCALE = "4 · Why divide by √d"


def _where_attention_goes_wrong(rows: list[tuple[Case, Result, Result]]) -> str:
    """Weights or mixture, and what scores the weights would belong to."""
    wrong = [row for row in rows if differs({"result": row[1]["result"]}, row[2] | {"changed": []}, ATTENTION)]
    if not wrong:  # an argument was changed, no more
        return ""
    case, right, theirs = wrong[0]
    output, weights = (x.double() for x in theirs["result"])
    of = f" (with {case.label})"
    if equal(weights, right["result"][1], ATTENTION):
        return f"Your weights are right. What you do with them and the values isn't: the output is weights @ v{of}."
    mixed = equal(output, weights @ case.args[2].double(), ATTENTION)
    rest = "your output is these weights times v, as it should be" if mixed else "nor is your output these weights @ v"
    if bool((weights == 0).any()) and bool((right["result"][1] > 1e-6).all()):
        many = int((weights == 0).sum())
        return f"{many} of {weights.numel()} weights are 0, and none should be{of}. Besides, {rest}."
    if bool((weights > 0).all()):
        # Up to a number for each row, the logarithm of a softmax is what was put in.
        a, b = (x.log() - x.log().mean(-1, keepdim=True) for x in (weights, right["result"][1].double()))
        factor = ((a * b).sum() / (b * b).sum()).item()
        if torch.allclose(a, factor * b, atol=1e-3) and abs(factor - 1) > 0.005:
            return f"Your weights belong to scores that are {factor:.3g} times the right ones{of}; {rest}."
    return f"It is the weights that are wrong: they aren't the softmax of q kᵀ / √d{of}; {rest}."


# Where the mistake comes behind the heads, this would not be so: it is said as a condition.
_BACK = "If proj is applied as agreed, then in front of it"


def _where_the_layer_goes_wrong(rows: list[tuple[Case, Result, Result]]) -> str:
    """What stands before the last projection, and which heads of it are right."""
    wrong = [
        row for row in rows if differs({"result": row[1]["result"]}, row[2] | {"changed": []}, MULTI_HEAD_ATTENTION)
    ]
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
    if some:
        return f"{_BACK} only head {', '.join(some)} of {heads} is right (with {case.label})."
    inputs = {"the right heads": b}
    seen = symptom([(b, a, inputs, case.label)], 1e-3, EXACT, others=len(wrong) > 1)
    if seen:
        return f"{_BACK}, with axes (h, B, T, d): {seen}"
    thirds = nn.functional.linear(case.args[0], case.weights["qkv.weight"], case.weights["qkv.bias"])
    values = _split(thirds.chunk(3, dim=-1)[2], heads)
    low, high = values.double().amin(2).movedim(1, 0), values.double().amax(2).movedim(1, 0)
    inside = bool(((a > low.unsqueeze(2) - 1e-3) & (a < high.unsqueeze(2) + 1e-3)).all())
    where = f"{_BACK}, with {case.label}, your heads"
    return (
        f"{where} are within the range of the right values, as any weighted mean is: look at the number of heads, the "
        "scores, the scale and the softmax."
        if inside
        else f"{where} hold numbers that no weighted mean of their values can give: look at the order of q, k, v, at "
        "the cut into heads, and at the softmax."
    )


ATTENTION = Exercise(
    name="attention",
    lesson="03",
    points=3,
    right=attend,
    cases=_attention_cases,
    observe=call,
    locate=_where_attention_goes_wrong,
    forbidden=(
        "scaled_dot_product_attention",
        "_scaled_dot_product_flash_attention",
        "_scaled_dot_product_attention_math",
    ),
    mistakes=(
        Mistake(
            "a softmax over the wrong axis",
            "Your columns sum to 1. The weights of one query must sum to 1 over the keys: the last axis, dim=-1.",
            "Softmax over the wrong axis.",
            Slip(_attend, squash=lambda scores: scores.softmax(dim=-2)),
        ),
        Mistake(
            "a softmax over the first axis",
            "dim=0 is the batch as soon as there is one. Count from the end: dim=-1, the keys.",
            "Softmax over the wrong axis.",
            Slip(_attend, squash=lambda scores: scores.softmax(dim=0)),
        ),
        Mistake(
            "no scale",
            "Your weights are too sharp: divide the scores by √d before the softmax.",
            _SCALE,
            Slip(_attend, scale=lambda q, k, v: 1.0),
        ),
        Mistake(
            "a division by d",
            "You divide by d. The scores have variance d, so their spread is √d: divide by math.sqrt(d).",
            _SCALE,
            Slip(_attend, scale=lambda q, k, v: float(q.shape[-1])),
        ),
        Mistake(
            "a multiplication by √d",
            "The scores are divided by √d, so that they get smaller. Yours get larger.",
            _SCALE,
            Slip(_attend, scale=lambda q, k, v: q.shape[-1] ** -0.5),
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
            Slip(_attend, roles="kqv"),
        ),
        Mistake(
            "values transposed",
            "A row of weights mixes the rows of v, so v is used as it is: weights @ v.",
            "Values transposed.",
            Slip(_attend, mix=lambda weights, v: weights @ v.transpose(-2, -1)),
        ),
        Mistake(
            "weights transposed",
            "You mix with weightsᵀ @ v. The output of query i is row i of the weights times v: weights @ v.",
            "2 · Queries, keys, values, with a pencil",
            Slip(_attend, mix=lambda weights, v: weights.transpose(-2, -1) @ v),
        ),
        Mistake(
            "no softmax",
            "You mix with the scores themselves. softmax(dim=-1) turns them into weights that sum to 1.",
            "2 · Queries, keys, values, with a pencil",
            Slip(_attend, squash=lambda scores: scores),
        ),
        Mistake(
            "plain shares in place of a softmax",
            "You divide each score by the sum of the scores. The softmax takes e to the power of each score first, so "
            "that "
            "no weight is negative.",
            "2 · Queries, keys, values, with a pencil",
            Slip(_attend, squash=_shares),
        ),
        Mistake(
            "powers of e that overflow",
            "e to the power of some hundreds is infinite, and infinite by infinite is nan. torch's softmax subtracts "
            "the "
            "largest score first; do the same, or use it.",
            "The softmax overflows.",
            Slip(_attend, squash=_powers_alone),
        ),
        Mistake(
            "a sigmoid in place of a softmax",
            "A sigmoid looks at each score alone. The softmax compares the scores of one query, so that its weights "
            "sum to "
            "1.",
            "2 · Queries, keys, values, with a pencil",
            Slip(_attend, squash=torch.sigmoid),
        ),
        Mistake(
            "the logarithm of the weights",
            "log_softmax gives logarithms, all of them negative. softmax gives the weights.",
            "2 · Queries, keys, values, with a pencil",
            Slip(_attend, squash=lambda scores: scores.log_softmax(dim=-1)),
        ),
        Mistake(
            "later keys hidden",
            "You mask the keys behind the query, as language models do. In an image every token sees every other.",
            "2 · Queries, keys, values, with a pencil",
            Slip(_attend, squash=_causal),
        ),
        Mistake(
            "a softmax over axis 1",
            "dim=1 is another axis as soon as there is a batch, or heads. Count from the end: dim=-1, the keys.",
            "Softmax over the wrong axis.",
            Slip(_attend, squash=lambda scores: scores.softmax(dim=1)),
        ),
        Mistake(
            "weights that fall where the score rises",
            "There is a minus before the scores. The larger a score, the larger its weight.",
            "2 · Queries, keys, values, with a pencil",
            Slip(_attend, squash=lambda scores: (-scores).softmax(dim=-1)),
        ),
        Mistake(
            "the number of keys for d",
            "You divide by the square root of the number of keys. d is the width of a query: q.shape[-1].",
            _SCALE,
            Slip(_attend, scale=lambda q, k, v: math.sqrt(k.shape[-2])),
        ),
        Mistake(
            "the number of queries for d",
            "You divide by the square root of the number of queries. d is the width of a query: q.shape[-1].",
            _SCALE,
            Slip(_attend, scale=lambda q, k, v: math.sqrt(q.shape[-2])),
        ),
        Mistake(
            "the values' width for d",
            "The dot products run over the width of queries and keys: q.shape[-1].",
            _SCALE,
            Slip(_attend, scale=lambda q, k, v: math.sqrt(v.shape[-1])),
        ),
        Mistake(
            "the length of the first axis for d",
            "The first axis is the batch as soon as there is one. d is the last: q.shape[-1].",
            _SCALE,
            Slip(_attend, scale=lambda q, k, v: math.sqrt(q.shape[0])),
        ),
        Mistake(
            "keys and values exchanged",
            "Queries meet keys, and what is mixed are the values: softmax(q kᵀ / √d) v.",
            "2 · Queries, keys, values, with a pencil",
            Slip(_attend, roles="qvk"),
        ),
        Mistake(
            "queries mixed in place of values",
            "What is mixed are the values, v.",
            "2 · Queries, keys, values, with a pencil",
            Slip(_attend, roles="qkq"),
        ),
        Mistake(
            "keys mixed in place of values",
            "What is mixed are the values, v.",
            "2 · Queries, keys, values, with a pencil",
            Slip(_attend, roles="qkk"),
        ),
        Mistake(
            "queries compared with themselves",
            "The scores are q kᵀ: queries meet keys.",
            "2 · Queries, keys, values, with a pencil",
            Slip(_attend, roles="qqv"),
        ),
        Mistake(
            "output and weights exchanged",
            "Both are right, but in the other order: first the output, then the weights.",
            "2 · Queries, keys, values, with a pencil",
            Slip(_attend, give=lambda output, weights, scores: (weights, output)),
        ),
        Mistake(
            "weights returned transposed",
            "The output is right. Return the weights as (..., T, S), a row for each query.",
            "2 · Queries, keys, values, with a pencil",
            Slip(_attend, give=lambda output, weights, scores: (output, weights.transpose(-2, -1))),
        ),
        Mistake(
            "scores returned in place of weights",
            "The output is right. The second thing to return are the weights, after the softmax.",
            "2 · Queries, keys, values, with a pencil",
            Slip(_attend, give=lambda output, weights, scores: (output, scores)),
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
        for shape, heads in [
            ((1, 4, 6), 3),
            ((3, 5, 8), 2),
            ((5, 2, 12), 4),
            ((2, 7, 5), 1),
            ((2, 4, 5), 5),
            ((3, 4, 8), 4),
            ((1, 3, 24), 12),
            ((2, 1, 6), 3),
            ((1, 50, 24), 2),
            ((1, 3, 26), 13),
            ((3, 3, 9), 3),
        ]
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
            "5 · Many heads",
            _split_interleaved,
        ),
        Mistake(
            "heads behind the tokens",
            "You return (B, T, h, d). The heads go before the tokens, so that each head is a matrix (T, d).",
            "5 · Many heads",
            _split_halfway,
        ),
        Mistake(
            "width and number of heads exchanged",
            "Your heads are h wide, and there are d of them: cut the last axis into (h, d).",
            "5 · Many heads",
            _split_by_width,
        ),
        Mistake(
            "heads in front of the batch",
            "You return (h, B, T, d). The batch stays first: (B, h, T, d).",
            "5 · Many heads",
            lambda x, num_heads: _split(x, num_heads).transpose(0, 1),
        ),
        Mistake(
            "tokens and columns exchanged",
            "You return (B, h, d, T). Each head is a matrix (T, d): a row is a token.",
            "5 · Many heads",
            lambda x, num_heads: _split(x, num_heads).transpose(2, 3),
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
        Case(f"x {shape}", (normal(*shape),))
        for shape in [
            (1, 3, 4, 2),
            (2, 3, 5, 4),
            (3, 4, 2, 5),
            (2, 1, 7, 5),
            (2, 3, 1, 4),
            (2, 5, 5, 3),
            (2, 3, 4, 1),
            (1, 12, 3, 2),
            (2, 3, 4, 3),
            (2, 3, 4, 4),
            (2, 1, 3, 1),
            (1, 2, 50, 12),
            (1, 13, 3, 2),
            (3, 3, 5, 2),
            (3, 4, 3, 2),
            (3, 4, 5, 3),
        ]
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
            "5 · Many heads",
            lambda x: x.permute(0, 2, 3, 1).flatten(2),
        ),
        Mistake(
            "heads averaged",
            "The outputs of the heads stand side by side, h*d = D columns; a mean leaves d of them.",
            "5 · Many heads",
            lambda x: x.mean(dim=1),
        ),
        Mistake(
            "tokens and columns exchanged",
            "You return (B, D, T): each row must be a token.",
            "5 · Many heads",
            lambda x: x.transpose(1, 2).flatten(2).transpose(1, 2),
        ),
        Mistake(
            "heads summed",
            "The outputs of the heads stand side by side, h*d = D columns; a sum leaves d of them.",
            "5 · Many heads",
            lambda x: x.sum(dim=1),
        ),
        Mistake(
            "heads one below the other",
            "You return (B, h*T, d): the heads stand in the sequence like further tokens. They go side by side.",
            "5 · Many heads",
            lambda x: x.flatten(1, 2),
        ),
        Mistake(
            "heads in backward order",
            "Head 0 has the first d columns.",
            "5 · Many heads",
            lambda x: _merge(x.flip(1)),
        ),
    ),
)


def check_merge_heads(fn: Callable[..., Tensor]) -> bool:
    """Check ``fn(x)``: (B, h, T, d) -> (B, T, D)."""
    return check(MERGE_HEADS, fn)


# ---- The layer ---------------------------------------------------------------------------------------------------


def _layer_cases() -> list[Case]:
    made = []
    sizes = [((1, 4, 6), 3), ((3, 5, 8), 2), ((2, 4, 12), 1), ((4, 3, 10), 5), ((1, 40, 6), 2), ((2, 1, 6), 3)]
    for (B, T, D), heads in [*sizes, ((2, 3, 24), 12), ((2, 4, 5), 5)]:
        weights = random_weights(MultiHeadSelfAttention(D, heads))
        made.append(Case(f"x {(B, T, D)}, num_heads={heads}", (normal(B, T, D),), (D, heads), weights))
    first = made[0]
    return [*made, Case("the first x, 8 times as large", (8 * first.args[0],), first.build, first.weights)]


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


class _Plain(_Layer):
    """The layer with its own softmax: a step that a subclass replaces."""

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.parts(x)
        return self.out(self.merge(self.squash(q @ k.transpose(-2, -1) / self.scale(q)) @ v))

    def squash(self, scores: Tensor) -> Tensor:
        return scores


class _KernelWithoutTranspose(_Layer):
    """torch's kernel on (B, T, h, d): each token attends over its own heads."""

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part.transpose(1, 2) for part in self.parts(x))
        return self.out(nn.functional.scaled_dot_product_attention(q, k, v).flatten(2))


class _TokensForD(_Layer):
    def scale(self, q: Tensor) -> float:
        return math.sqrt(q.shape[-2])


class _HeadsForD(_Layer):
    def scale(self, q: Tensor) -> float:
        return math.sqrt(q.shape[1])


class _OrderVKQ(_Layer):
    def parts(self, x: Tensor) -> tuple[Tensor, ...]:
        return super().parts(x)[::-1]


class _OrderKVQ(_Layer):
    def parts(self, x: Tensor) -> tuple[Tensor, ...]:
        k, v, q = super().parts(x)
        return q, k, v


class _OrderVQK(_Layer):
    def parts(self, x: Tensor) -> tuple[Tensor, ...]:
        v, q, k = super().parts(x)
        return q, k, v


class _Residual(_Layer):
    def forward(self, x: Tensor) -> Tensor:
        return x + super().forward(x)


class _ValuesNotProjected(_Layer):
    def parts(self, x: Tensor) -> tuple[Tensor, ...]:
        q, k, _ = super().parts(x)
        return q, k, self.split(x)


class _NoQkvBias(_Layer):
    def parts(self, x: Tensor) -> tuple[Tensor, ...]:
        return tuple(self.split(part) for part in nn.functional.linear(x, self.qkv.weight).chunk(3, dim=-1))


class _NoProjBias(_Layer):
    def out(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, self.proj.weight)


class _ProjTwice(_Layer):
    def out(self, x: Tensor) -> Tensor:
        return self.proj(self.proj(x))


class _Later(_Layer):
    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.parts(x)
        return self.out(self.merge(_attend(squash=_causal)(q, k, v)[0]))


class _MergedBackwards(_Layer):
    def merge(self, x: Tensor) -> Tensor:
        return x.permute(0, 2, 3, 1).flatten(2)


class _SplitInterleaved(_Layer):
    def split(self, x: Tensor) -> Tensor:
        return _split_interleaved(x, self.num_heads)


class _OneHeadsAverage(_Layer):
    def merge(self, x: Tensor) -> Tensor:
        return x.mean(1).repeat(1, 1, x.shape[1])


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


class _HeadsAndWidth(_Layer):
    def split(self, x: Tensor) -> Tensor:
        return _split(x, x.shape[-1] // self.num_heads)


class _NormedInput(_Layer):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(nn.functional.layer_norm(x, x.shape[-1:]))


class _InterleavedThroughout(_SplitInterleaved, _MergedBackwards):
    pass


class _NotItself(_Layer):
    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.parts(x)
        return self.out(self.merge(_attend(squash=_but_itself)(q, k, v)[0]))


class _UnitVectors(_Layer):
    def parts(self, x: Tensor) -> tuple[Tensor, ...]:
        q, k, v = super().parts(x)
        return nn.functional.normalize(q, dim=-1), nn.functional.normalize(k, dim=-1), v


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
    right=MultiHeadSelfAttention,
    cases=_layer_cases,
    observe=_observe_heads,
    tolerance=3e-4,
    locate=_where_the_layer_goes_wrong,
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
            "3 · Where queries, keys and values come from",
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
            "3 · Where queries, keys and values come from",
            _HeadsOutside,
        ),
        Mistake(
            "rows of qkv interleaved",
            "You read the 3D numbers as q, k, v in turn. They are (3, h, d): all queries, all keys, all values.",
            "3 · Where queries, keys and values come from",
            _Interleaved,
        ),
        Mistake(
            "one head for all",
            "Your layer attends over the whole width at once. Split q, k and v into h heads before the scores.",
            "5 · Many heads",
            _OneHead,
        ),
        Mistake(
            "the kernel without the transpose",
            "scaled_dot_product_attention attends over the last but one axis. In (B, T, h, d) that are the heads of "
            "one "
            "token, so that no token looks at another: transpose(1, 2) before it, and again after it.",
            "Heads split without the transpose.",
            _KernelWithoutTranspose,
        ),
        Mistake(
            "no softmax",
            "You mix the values with the scores themselves. softmax(dim=-1) turns them into weights.",
            "2 · Queries, keys, values, with a pencil",
            _Plain,
        ),
        Mistake(
            "rows of qkv read as v, k, q",
            "The rows of qkv are q, then k, then v.",
            "3 · Where queries, keys and values come from",
            _OrderVKQ,
        ),
        Mistake(
            "rows of qkv read as k, v, q",
            "The rows of qkv are q, then k, then v.",
            "3 · Where queries, keys and values come from",
            _OrderKVQ,
        ),
        Mistake(
            "rows of qkv read as v, q, k",
            "The rows of qkv are q, then k, then v.",
            "3 · Where queries, keys and values come from",
            _OrderVQK,
        ),
        Mistake(
            "the number of tokens for d",
            "You divide by the square root of the number of tokens. A dot product runs over the width of one head, "
            "d = D / h.",
            _SCALE,
            _TokensForD,
        ),
        Mistake(
            "the number of heads for d",
            "You divide by the square root of the number of heads. A dot product runs over the width of one head, "
            "d = D / h.",
            _SCALE,
            _HeadsForD,
        ),
        Mistake(
            "a residual inside the layer",
            "You add the input to the output. That is right, but it is the encoder block's work: lesson 05.",
            "5 · Many heads",
            _Residual,
        ),
        Mistake(
            "the tokens themselves as values",
            "Values are projected, too: the last third of qkv(x).",
            "3 · Where queries, keys and values come from",
            _ValuesNotProjected,
        ),
        Mistake(
            "no bias in q, k and v",
            "qkv has a bias, and it is added: qkv(x).",
            "3 · Where queries, keys and values come from",
            _NoQkvBias,
        ),
        Mistake(
            "no bias in the projection",
            "proj has a bias, and it is added: proj(z).",
            "The projection forgotten.",
            _NoProjBias,
        ),
        Mistake("the projection twice", "proj comes once, at the end.", "The projection forgotten.", _ProjTwice),
        Mistake(
            "later tokens hidden",
            "You mask the tokens behind each query (is_causal=True), as language models do. In an image every token "
            "sees "
            "every other.",
            "2 · Queries, keys, values, with a pencil",
            _Later,
        ),
        Mistake(
            "interleaved heads on the way back",
            "Your columns take one number of each head in turn. The columns of head 0 come first, then head 1's.",
            "5 · Many heads",
            _MergedBackwards,
        ),
        Mistake(
            "interleaved heads",
            "Head 0 takes every h-th column. It takes the first d: cut the last axis into (h, d), in this order.",
            "5 · Many heads",
            _SplitInterleaved,
        ),
        Mistake(
            "heads averaged",
            "The outputs of the heads stand side by side; yours are averaged.",
            "5 · Many heads",
            _OneHeadsAverage,
        ),
        Mistake(
            "width and number of heads exchanged",
            "Your heads are h wide, and there are d of them: cut the last axis into (h, d), in this order.",
            "5 · Many heads",
            _HeadsAndWidth,
        ),
        Mistake(
            "interleaved heads, there and back",
            "Head 0 takes every h-th column, and gives it back there. It takes the first d: cut the last axis into "
            "(h, d), in this order, and join it in the same one.",
            "5 · Many heads",
            _InterleavedThroughout,
        ),
        Mistake(
            "a norm inside the layer",
            "You norm the input. That is right, but it is the encoder block's work: lesson 05.",
            "5 · Many heads",
            _NormedInput,
        ),
        Mistake(
            "each token hidden from itself",
            "You mask the diagonal of the scores. A token attends to itself, too.",
            "2 · Queries, keys, values, with a pencil",
            _NotItself,
        ),
        Mistake(
            "queries and keys of length 1",
            "You norm q and k. The scores are their dot products as they are, divided by √d.",
            _SCALE,
            _UnitVectors,
        ),
    ),
)


def check_multi_head_attention(cls: type[nn.Module]) -> bool:
    """Check the class ``cls(dim, num_heads)`` with ``qkv`` (D -> 3D) and ``proj`` (D -> D): (B, T, D) -> (B, T, D)."""
    return check(MULTI_HEAD_ATTENTION, cls)


# ---- The challenge -----------------------------------------------------------------------------------------------


def _chunk_cases() -> list[Case]:
    sizes = [
        (1, 3, 5, 2, 2, 1.0),
        (2, 5, 7, 4, 3, 1.0),
        (3, 2, 6, 5, 6, 1.0),
        (2, 4, 9, 3, 4, 300.0),
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
    return [*cases, low]


def _observe_chunks(work: Any, case: Case) -> Result:
    """As :func:`call`; and whether the table of all weights was ever made."""
    q, k, _, chunk = case.args
    with Operations() as operations:
        observed = call(work, case)
    keys, queries, apart = k.shape[1], q.shape[1], {q.shape[1], q.shape[2], case.args[2].shape[2]}
    for shape in operations.shapes("exp", "exp2", "expm1", "softmax", "log_softmax", "logsumexp", "sigmoid", "pow"):
        if queries == keys:  # then both axes tell
            found = shape[-2:] == (keys, keys)
        else:
            found = keys in shape[1:] and not (shape[-1] == q.shape[2] and keys not in shape[-1:])
        if chunk > 1:  # else there may be as many chunks as keys
            found = found or shape in ((keys,), (keys, queries))  # of one query, or of one image
        if keys > chunk and found:
            whole = "all queries" if queries in shape else "some queries"
            said = f"the powers of all {keys} keys are there at once, for {whole} (a tensor of shape {shape})"
            raise Fault(f"{said}: take {chunk} keys at a time")
        # Between a chunk and all: told from other tables by its axis of queries.
        if len(shape) > 1 and chunk < shape[-1] < keys and (shape[-2] == queries or shape[-1] not in apart):
            said = f"the powers of {shape[-1]} keys are there at once (a tensor of shape {shape})"
            raise Fault(f"{said}: take {chunk} keys at a time")
    for _, shape in operations.seen:
        # Queries, keys, width and batch all differ, so that nothing else has these lengths.
        if keys > chunk and shape[-2:] in ((queries, keys), (keys, queries)):
            said = f"the scores of all {keys} keys are there at once (a tensor of shape {shape})"
            raise Fault(f"{said}: take {chunk} keys at a time")
    return observed


def _no_maximum(q: Tensor, k: Tensor, v: Tensor, chunk: int) -> Tensor:
    return _chunks(start=0.0, grows=False)(q, k, v, chunk)


def _chunks(
    start: float = -math.inf,
    grows: bool = True,
    rescale: bool = True,
    whole_sum: bool = True,
    scale: Callable[[Tensor], float] = lambda q: math.sqrt(q.shape[-1]),
    parts: Callable[[Tensor, int], Any] = lambda x, chunk: x.split(chunk, -2),
    last: Callable[[Tensor, Tensor], Tensor] = lambda mixed, total: mixed / total,
    turned: bool = False,
    own: bool = False,
) -> Callable[..., Tensor]:
    """Attention in chunks, with one thing or another left out."""

    def attention(q: Tensor, k: Tensor, v: Tensor, chunk: int) -> Tensor:
        top, total, mixed = torch.full_like(q[..., :1], start), torch.zeros_like(q[..., :1]), torch.zeros_like(q)
        for keys, values in zip(parts(k, chunk), parts(v, chunk), strict=True):
            scores = q @ keys.transpose(-2, -1) / scale(q)
            new = torch.maximum(top, scores.amax(-1, keepdim=True)) if grows else top
            powers = (scores - (scores.amax(-1, keepdim=True) if own else new)).exp()
            shrink = (new - top if turned else top - new).exp()
            total = total * (shrink if whole_sum else 1.0) + powers.sum(-1, keepdim=True)
            mixed, top = mixed * (shrink if rescale else 1.0) + powers @ values, new
        return last(mixed, total)

    return attention


def _own_maximum(q: Tensor, k: Tensor, v: Tensor, chunk: int) -> Tensor:
    """Each chunk with its own maximum, never set right."""
    return _chunks(rescale=False, whole_sum=False)(q, k, v, chunk)


def _full_chunks(x: Tensor, chunk: int) -> list[Tensor]:
    return [x[..., i * chunk : (i + 1) * chunk, :] for i in range(x.shape[-2] // chunk)]


def _filled_up(x: Tensor, chunk: int) -> Any:
    """The last chunk filled up with zeros."""
    return nn.functional.pad(x, (0, 0, 0, -x.shape[-2] % chunk)).split(chunk, -2)


def _mean_of_chunks(q: Tensor, k: Tensor, v: Tensor, chunk: int) -> Tensor:
    parts = zip(k.split(chunk, -2), v.split(chunk, -2), strict=True)
    return torch.stack([attend(q, keys, values)[0] for keys, values in parts]).mean(0)


def _sum_of_chunks(q: Tensor, k: Tensor, v: Tensor, chunk: int) -> Tensor:
    parts = zip(k.split(chunk, -2), v.split(chunk, -2), strict=True)
    return torch.stack([attend(q, keys, values)[0] for keys, values in parts]).sum(0)


def _last_chunk(q: Tensor, k: Tensor, v: Tensor, chunk: int) -> Tensor:
    return attend(q, k.split(chunk, -2)[-1], v.split(chunk, -2)[-1])[0]


ATTENTION_IN_CHUNKS = Exercise(
    name="attention_in_chunks",
    lesson="03",
    points=2,
    right=_chunks(),
    cases=_chunk_cases,
    observe=_observe_chunks,
    forbidden=("scaled_dot_product_attention",),
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
            _own_maximum,
        ),
        Mistake(
            "a denominator that is not rescaled",
            "You rescale the mixed values when the maximum grows, but not the sum of the powers that you divide by.",
            "The softmax overflows.",
            Slip(_chunks, whole_sum=False),
        ),
        Mistake(
            "a softmax for each chunk, then their mean",
            "Each chunk's weights sum to 1, so a chunk of poor matches counts as much as one of good ones. Keep sums, "
            "and divide once at the end.",
            "2 · Queries, keys, values, with a pencil",
            _mean_of_chunks,
        ),
        Mistake(
            "a softmax for each chunk, then their sum",
            "Each chunk's weights sum to 1, so all together sum to the number of chunks. Keep sums of powers, and "
            "divide once at the end.",
            "2 · Queries, keys, values, with a pencil",
            _sum_of_chunks,
        ),
        Mistake(
            "mixed values that are not rescaled",
            "You rescale the sum of the powers when the maximum grows, but not the mixed values: both are multiplied "
            "by "
            "exp(old maximum - new maximum).",
            "The softmax overflows.",
            Slip(_chunks, rescale=False),
        ),
        Mistake(
            "powers under each chunk's own maximum",
            "You rescale the sums to the largest score so far, but the new powers have the largest score of their own "
            "chunk subtracted. It is the same number everywhere: the largest so far.",
            "The softmax overflows.",
            Slip(_chunks, own=True),
        ),
        Mistake(
            "powers that vanish where all scores are far below 0",
            "e to the power of some hundreds below 0 is 0, and 0 is divided by 0. Subtract the largest score so far, "
            "and start it with -math.inf: any other start, such as 0, is above all such scores.",
            "The softmax overflows.",
            Slip(_chunks, start=0.0),
        ),
        Mistake(
            "no scale",
            "The scores are divided by √d, in each chunk.",
            _SCALE,
            Slip(_chunks, scale=lambda q: 1.0),
        ),
        Mistake(
            "a division by d",
            "The scores are divided by √d, in each chunk.",
            _SCALE,
            Slip(_chunks, scale=lambda q: float(q.shape[-1])),
        ),
        Mistake(
            "a multiplication by √d",
            "The scores are divided by √d, in each chunk.",
            _SCALE,
            Slip(_chunks, scale=lambda q: q.shape[-1] ** -0.5),
        ),
        Mistake(
            "a division that is missing at the end",
            "The mixed values are divided by the sum of the powers.",
            "2 · Queries, keys, values, with a pencil",
            Slip(_chunks, last=lambda mixed, total: mixed),
        ),
        Mistake(
            "a last chunk lost",
            "S // chunk leaves the last, shorter chunk out. k.split(chunk, dim=1) gives it, too.",
            "10 · What it costs",
            Slip(_chunks, parts=_full_chunks),
        ),
        Mistake(
            "a last chunk filled up with zeros",
            "A key of zeros has the score 0, and e to the power of 0 is 1: it takes a weight from the others. The last "
            "chunk may be shorter.",
            "10 · What it costs",
            Slip(_chunks, parts=_filled_up),
        ),
        Mistake(
            "the last chunk alone",
            "What the earlier chunks brought is overwritten. Keep both sums from chunk to chunk.",
            "10 · What it costs",
            _last_chunk,
        ),
        Mistake(
            "a rescaling the wrong way round",
            "What is summed so far gets smaller when the maximum grows: exp(old maximum - new maximum).",
            "The softmax overflows.",
            Slip(_chunks, turned=True),
        ),
    ),
)


def check_attention_in_chunks(fn: Callable[..., Tensor]) -> bool:
    """Check ``fn(q, k, v, chunk)``: attention's output (B, T, d), with ``chunk`` keys at a time."""
    return check(ATTENTION_IN_CHUNKS, fn)
