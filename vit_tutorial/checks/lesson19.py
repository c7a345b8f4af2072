"""Checks of lesson 19: the softmax block by block, pairs to merge, merging, attention by size, dropping."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from vit_tutorial.checks.engine.exercise import Case, Exercise, Mistake
from vit_tutorial.checks.engine.functions import normal
from vit_tutorial.checks.engine.questions import Question, Slip, pencil
from vit_tutorial.variants import tokens as lesson

_PACKAGE = (lesson.blockwise_attention, lesson.bipartite_matching, lesson.drop_lowest, lesson.merge)
_BLOCKS = "Attention, some keys at a time"
_FEWER = "Merge similar tokens"

Pairs = list[tuple[int, int]]
Rows = tuple[Tensor, Tensor, Tensor]  # largest scores, totals, outputs

# ---- With a pencil -----------------------------------------------------------------------------------------------

TOKEN_COSTS = pencil(
    "token_costs",
    lesson="19",
    points=4,
    tolerance=0.001,
    questions={
        "scores": Question(
            40,
            "Each head has a score for each query and key, and each takes four bytes.",
            _BLOCKS,
            {4: Slip("one head's scores", "Each of the ten heads has its own.")},
        ),
        "blockwise": Question(
            2,
            "All queries, but only 50 keys at a time.",
        ),
        "total": Question(
            1.75,
            "The largest score changes from ln 4 to ln 8. What does each earlier term become?",
            _BLOCKS,
            {
                2.5: Slip(
                    "a sum that isn't rescaled",
                    "Its terms were divided by the old largest, 4. Now they are divided by 8: multiply the old "
                    "sum by 4 / 8.",
                ),
            },
        ),
        "output": Question(6, "The weights are in the ratio 4 : 2 : 8."),
        "left": Question(41, "Each of the 12 blocks removes 13 tokens."),
        "weight": Question(
            0.75,
            "Adding ln 3 to a score multiplies its exp by 3.",
            _FEWER,
            {
                0.5: Slip("attention that ignores sizes", "The larger token stands for three patches: 3 against 1."),
                0.952574: Slip(
                    "a size that is added without its logarithm",
                    "exp(s + 3) is 20 times exp(s); exp(s + ln 3) is 3 times.",
                ),
            },
        ),
        "value": Question(
            3,
            "One of the two tokens is already the mean of three patches.",
            _FEWER,
            {4: Slip("a mean that ignores sizes", "The first token counts three times.")},
        ),
        "share": Question(
            0.4375,
            "One part grows as T, the other as T².",
            _FEWER,
            {0.5: Slip("all operations as T", "The scores and sums grow as T²: a quarter of them is left.")},
        ),
    },
)


# ---- The softmax, block by block ---------------------------------------------------------------------------------


def _columns(rows: list[Rows]) -> Rows:
    """A row for each block -> the largest scores, the totals and the outputs of all blocks."""
    largest, totals, outputs = zip(*rows, strict=True)
    return torch.stack(largest), torch.stack(totals), torch.stack(outputs)


def _online(
    scores: Tensor, values: Tensor, block: int, *, rescale_total: bool = True, rescale_output: bool = True
) -> Rows:
    """After each block: the largest score, the total and the output so far, as in ``blockwise_attention``."""
    largest, total, output = scores.new_tensor(-torch.inf), scores.new_zeros(()), values.new_zeros(values.shape[1])
    rows = []
    for some, belonging in zip(scores.split(block), values.split(block), strict=True):
        new = torch.maximum(largest, some.max())
        weights, rescale = (some - new).exp(), (largest - new).exp()
        if rescale_total:
            total = rescale * total
        if rescale_output:
            output = rescale * output
        total = total + weights.sum()
        output = output + weights @ belonging
        largest = new
        rows.append((largest, total, output / total))
    return _columns(rows)


def _online_cases() -> list[Case]:
    cases = []
    for S, e, block in [(6, 2, 2), (7, 3, 3), (4, 2, 5)]:
        cases.append(Case(f"S={S}, e={e}, block={block}", (2 * normal(S), normal(S, e, seed=1), block)))
    far = normal(6) + torch.tensor([100.0, 0, 200, 150, 300, 250])
    return [
        *cases,
        Case("S=6, e=3, block=2, scores up to 300", (far, normal(6, 3), 2)),
        Case("S=5, e=2, block=2, all scores below 0", (-1 - normal(5).abs(), normal(5, 2), 2)),
    ]


ONLINE_SOFTMAX = Exercise(
    name="online_softmax",
    lesson="19",
    points=3,
    right=_online,
    cases=_online_cases,
    tolerance=1e-4,
    forbidden=_PACKAGE,
    mistakes=(
        Mistake(
            name="a sum that isn't rescaled",
            says="When the largest score grows, the old sum belongs to the old one: multiply it by exp(old - new).",
            reread=_BLOCKS,
            wrong=functools.partial(_online, rescale_total=False),
        ),
        Mistake(
            name="an output that isn't rescaled",
            says="The sum of weights times values belongs to the old largest score, too: multiply it as well.",
            reread=_BLOCKS,
            wrong=functools.partial(_online, rescale_output=False),
        ),
    ),
)


# ---- Pairs to merge ----------------------------------------------------------------------------------------------


def _pairs(keys: Tensor, r: int, *, cosines: bool = True, class_token_stays: bool = True) -> Tensor:
    """The r most similar pairs (even token, odd token), the best one first."""
    if cosines:
        keys = keys / keys.norm(dim=-1, keepdim=True)
    similarities = keys[::2] @ keys[1::2].T  # row i is token 2 i, column j is token 2 j + 1
    if class_token_stays:
        similarities[0] = -torch.inf
    best, partner = similarities.max(dim=1)
    row = best.argsort(descending=True)[:r]
    return torch.stack([2 * row, 2 * partner[row] + 1], dim=1)


def _pair_cases() -> list[Case]:
    cases = []
    for T, d, r in [(7, 3, 2), (12, 5, 4), (17, 6, 8)]:
        sizes = 0.2 + 3 * normal(T, 1, seed=T).abs()
        cases.append(Case(f"T={T}, d={d}, r={r}", (sizes * normal(T, d), r)))
    alike = normal(8, 3, seed=80)
    alike[1] = 2 * alike[0]  # the class token's key has a twin
    return [*cases, Case("T=8, d=3, r=2, the class token has a twin", (alike, 2))]


BEST_PAIRS = Exercise(
    name="best_pairs",
    lesson="19",
    points=4,
    right=_pairs,
    cases=_pair_cases,
    forbidden=_PACKAGE,
    mistakes=(
        Mistake(
            name="a class token that merges",
            says="Token 0 must stay by itself: give its row of similarities -inf before you take the largest.",
            reread="A class token that merges.",
            wrong=functools.partial(_pairs, class_token_stays=False),
        ),
        Mistake(
            name="dot products in place of cosines",
            says="A long key is then similar to everything. Divide each key by its length first.",
            reread=_FEWER,
            wrong=functools.partial(_pairs, cosines=False),
        ),
        Mistake(
            name="places within a half in place of tokens",
            says="Row i of the similarities is token 2 i, column j is token 2 j + 1.",
            reread=_FEWER,
            wrong=lambda keys, r: _pairs(keys, r) // 2,
        ),
    ),
)


# ---- Merging -----------------------------------------------------------------------------------------------------


def _merge(z: Tensor, sizes: Tensor, pairs: Pairs) -> tuple[Tensor, Tensor]:
    sums, total = z * sizes[:, None], sizes.clone()
    for even, odd in pairs:
        sums[odd] += sums[even]
        total[odd] += total[even]
    gone = {even for even, _ in pairs}
    rest = [t for t in range(len(z)) if t not in gone]
    return (sums / total[:, None])[rest], total[rest]


def _mean_of_tokens(z: Tensor, sizes: Tensor, pairs: Pairs) -> tuple[Tensor, Tensor]:
    merged, _ = _merge(z, torch.ones_like(sizes), pairs)
    _, summed = _merge(z, sizes, pairs)
    return merged, summed


def _counted_tokens(z: Tensor, sizes: Tensor, pairs: Pairs) -> tuple[Tensor, Tensor]:
    merged, _ = _merge(z, sizes, pairs)
    _, counted = _merge(z, torch.ones_like(sizes), pairs)
    return merged, counted


def _merge_cases() -> list[Case]:
    cases = []
    kinds: list[tuple[int, int, Pairs]] = [
        (7, 3, [(4, 3), (2, 5)]),
        (8, 2, [(6, 3), (2, 3), (4, 7)]),  # two choose the same partner
        (6, 4, [(4, 1), (2, 1)]),
    ]
    for seed, (T, D, pairs) in enumerate(kinds):
        sizes = torch.randint(1, 6, (T,), generator=torch.Generator().manual_seed(seed)).float()
        cases.append(Case(f"T={T}, D={D}, pairs {pairs}", (normal(T, D, seed=90 + seed), sizes, pairs)))
    return cases


MERGE_PAIRS = Exercise(
    name="merge_pairs",
    lesson="19",
    points=3,
    right=_merge,
    cases=_merge_cases,
    forbidden=_PACKAGE,
    mistakes=(
        Mistake(
            name="a mean that ignores sizes",
            says="A token of size 3 is the mean of three patches: it counts three times.",
            reread=_FEWER,
            wrong=_mean_of_tokens,
        ),
        Mistake(
            name="sizes that count tokens",
            says="The size is the number of patches, so the sizes of the merged tokens are added.",
            reread=_FEWER,
            wrong=_counted_tokens,
        ),
    ),
)


# ---- Attention by size -------------------------------------------------------------------------------------------


def _proportional(q: Tensor, k: Tensor, v: Tensor, sizes: Tensor) -> Tensor:
    return (q @ k.mT / q.shape[-1] ** 0.5 + sizes.log()).softmax(dim=-1) @ v


def _proportional_cases() -> list[Case]:
    cases = []
    for h, T, d in [(2, 5, 3), (1, 4, 2), (4, 3, 8)]:
        q, k, v = (normal(h, T, d, seed=part) for part in range(3))
        sizes = torch.randint(1, 9, (T,), generator=torch.Generator().manual_seed(T)).float()
        cases.append(Case(f"h={h}, T={T}, d={d}", (q, k, v, sizes)))
    return cases


PROPORTIONAL_ATTENTION = Exercise(
    name="proportional_attention",
    lesson="19",
    points=2,
    right=_proportional,
    cases=_proportional_cases,
    forbidden=_PACKAGE,
    mistakes=(
        Mistake(
            name="sizes without their logarithm",
            says="Adding s multiplies the weight by exp(s). Adding log(s) multiplies it by s.",
            reread=_FEWER,
            wrong=lambda q, k, v, sizes: _proportional(q, k, v, sizes.exp()),
        ),
        Mistake(
            name="sizes of the queries, or no sizes",
            says="The size belongs to the key that is looked at: add log(size) along the last axis of the scores. A "
            "number that is the same for a whole row changes nothing in its softmax.",
            reread=_FEWER,
            wrong=lambda q, k, v, sizes: _proportional(q, k, v, torch.ones_like(sizes)),
        ),
        Mistake(
            name="a logarithm that is scaled, too",
            says="Divide q kᵀ by the square root of d first, and then add log(size).",
            reread=_FEWER,
            wrong=lambda q, k, v, sizes: _proportional(q, k, v, sizes ** (q.shape[-1] ** -0.5)),
        ),
        Mistake(
            name="weights that don't sum to 1",
            says="A size that multiplies a weight or a value comes after the softmax: add its log to the scores.",
            reread=_FEWER,
            wrong=lambda q, k, v, sizes: _proportional(q, k, v * sizes[:, None], torch.ones_like(sizes)),
        ),
    ),
)


# ---- The challenge -----------------------------------------------------------------------------------------------


def _softmax(q: Tensor, k: Tensor) -> Tensor:
    return (q @ k.mT / q.shape[-1] ** 0.5).softmax(dim=-1)  # (h, T, T)


def _kept(attention: Tensor, r: int) -> Tensor:
    """Token 0 and, in order, all others but the r with the least attention (T,)."""
    others = attention[1:]
    places = 1 + others.topk(len(others) - r).indices
    return torch.cat([places.new_zeros(1), places.sort().values])


def _keep_most_attended(q: Tensor, k: Tensor, r: int) -> Tensor:
    return _kept(_softmax(q, k)[:, 0].mean(dim=0), r)


def _class_token_may_go(q: Tensor, k: Tensor, r: int) -> Tensor:
    attended = _softmax(q, k)[:, 0].mean(dim=0)
    return attended.topk(len(attended) - r).indices.sort().values


def _keep_cases() -> list[Case]:
    cases = []
    for h, T, d, r in [(2, 7, 3, 3), (3, 9, 4, 5), (3, 24, 4, 12), (2, 5, 3, 0)]:
        cases.append(Case(f"h={h}, T={T}, d={d}, r={r}", (2 * normal(h, T, d, seed=T), normal(h, T, d), r)))
    q, away = normal(2, 6, 3), normal(2, 6, 3, seed=1)
    away[:, 0] = -3 * q[:, 0]  # the class token looks away from itself
    return [*cases, Case("h=2, T=6, d=3, r=2, the class token looks away from itself", (q, away, 2))]


KEEP_MOST_ATTENDED = Exercise(
    name="keep_most_attended",
    lesson="19",
    points=1,
    right=_keep_most_attended,
    cases=_keep_cases,
    forbidden=_PACKAGE,
    mistakes=(
        Mistake(
            name="the attention of all tokens",
            says="The exercise asks what the class token attends to: row 0 of the weights, not the mean of all rows.",
            reread=_FEWER,
            wrong=lambda q, k, r: _kept(_softmax(q, k).mean(dim=(0, 1)), r),
        ),
        Mistake(
            name="the class token's column in place of its row",
            says="Rows are queries, columns are keys. Column 0 is how much each token attends to the class token.",
            reread=_FEWER,
            wrong=lambda q, k, r: _kept(_softmax(q, k)[:, :, 0].mean(dim=0), r),
        ),
        Mistake(
            name="scores averaged in place of weights",
            says="Take the softmax of each head first, then the mean over the heads.",
            reread=_FEWER,
            wrong=lambda q, k, r: _kept((q[:, :1] @ k.mT)[:, 0].mean(dim=0), r),
        ),
        Mistake(
            name="a class token that can go",
            says="The head reads the class token: token 0 stays, however little it attends to itself.",
            reread=_FEWER,
            wrong=_class_token_may_go,
        ),
    ),
)
