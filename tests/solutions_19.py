"""Works for the exercises of lesson 19: right ones, in different ways, and wrong ones."""

import math

import torch
from submissions import Wrong
from torch.nn import functional as F

from vit_tutorial.variants import tokens as package

COSTS = {"scores": 40, "blockwise": 2, "total": 1.75, "output": 6, "left": 41, "weight": 0.75, "value": 3,
         "share": 0.4375}  # fmt: skip


def online_by_torch(scores, values, block):
    largest, total = torch.tensor(-math.inf), torch.tensor(0.0)
    sums = torch.zeros(values.shape[1])
    rows = [[], [], []]
    for start in range(0, len(scores), block):
        some = scores[start : start + block]
        new = torch.maximum(largest, some.max())
        weights, shrink = (some - new).exp(), (largest - new).exp()
        total = shrink * total + weights.sum()
        sums = shrink * sums + weights @ values[start : start + block]
        largest = new
        for row, x in zip(rows, (largest, total, sums / total), strict=True):
            row.append(x)
    return tuple(map(torch.stack, rows))


def online_by_slices(scores, values, block):
    """Not running, and the same numbers."""
    ends = [*range(block, len(scores), block), len(scores)]
    seen = [scores[:end] for end in ends]
    largest = torch.stack([x.max() for x in seen])
    total = torch.stack([(x - x.max()).exp().sum() for x in seen])
    return largest, total, torch.stack([x.softmax(0) @ values[: len(x)] for x in seen])


def pairs_by_torch(keys, r):
    unit = F.normalize(keys, dim=-1)
    similarity = unit[::2] @ unit[1::2].T
    similarity[0] = -math.inf
    best, partner = similarity.max(dim=-1)
    even = best.topk(r).indices
    return torch.stack([2 * even, 2 * partner[even] + 1], dim=-1)


def pairs_by_loop(keys, r):
    found = []
    for i in range(2, len(keys), 2):
        cosines = [(float(F.cosine_similarity(keys[i], keys[j], dim=0)), j) for j in range(1, len(keys), 2)]
        cosine, j = max(cosines)
        found.append((cosine, i, j))
    return torch.tensor([[i, j] for _, i, j in sorted(found, reverse=True)[:r]])


def merged_by_sums(z, sizes, pairs):
    sums, sizes = z * sizes[:, None], sizes.clone()
    for even, odd in pairs:
        sums[odd] += sums[even]
        sizes[odd] += sizes[even]
    left = [t for t in range(len(z)) if t not in {even for even, _ in pairs}]
    return sums[left] / sizes[left][:, None], sizes[left]


def merged_by_running_means(z, sizes, pairs):
    z, sizes = z.clone(), sizes.clone()
    for even, odd in pairs:
        both = sizes[even] + sizes[odd]
        z[odd] = (sizes[even] * z[even] + sizes[odd] * z[odd]) / both
        sizes[odd] = both
    stays = torch.ones(len(z), dtype=torch.bool)
    stays[[even for even, _ in pairs]] = False
    return z[stays], sizes[stays]


def proportional_by_bias(q, k, v, sizes):
    return (q @ k.mT / q.shape[-1] ** 0.5 + sizes.log()).softmax(-1) @ v


def proportional_by_repeating(q, k, v, sizes):
    times = sizes.long()
    k, v = k.repeat_interleave(times, dim=1), v.repeat_interleave(times, dim=1)
    return (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) @ v


def kept_by_topk(q, k, r):
    attended = (q[:, :1] @ k.mT / q.shape[-1] ** 0.5).softmax(-1).mean(0)[0]
    return torch.cat([torch.zeros(1).long(), attended[1:].topk(len(attended) - 1 - r).indices.sort().values + 1])


def kept_without_the_last(q, k, r):
    attended = (q[:, :1] @ k.mT / q.shape[-1] ** 0.5).softmax(-1).mean(0)[0]
    return torch.cat([torch.zeros(1).long(), attended[1:].argsort(descending=True)[:-r].sort().values + 1])


def kept_by_argsort(q, k, r):
    attended = (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1)[:, 0].mean(0)
    attended[0] = 2
    return attended.argsort(descending=True)[: len(attended) - r].sort().values


def all_tokens(keys, r):
    """Each token's best partner anywhere."""
    unit = F.normalize(keys, dim=-1)
    similarity = unit @ unit.T - 9 * torch.eye(len(keys))
    similarity[0] = similarity[:, 0] = -math.inf
    best, partner = similarity.max(dim=-1)
    chosen = best.topk(r).indices
    return torch.stack([chosen, partner[chosen]], dim=-1)


def from_the_package(keys, r):
    return package.bipartite_matching(keys[None], r)[0]


def in_place(z, sizes, pairs):
    z.mul_(sizes[:, None])
    return merged_by_sums(z / sizes[:, None], sizes, pairs)


def weights_times_sizes(q, k, v, sizes):
    return (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) * sizes @ v


def online_from_zero(scores, values, block):
    parts = online_by_torch(scores, values, block)
    largest = parts[0].clamp(min=0)
    return largest, parts[1] * (parts[0] - largest).exp(), parts[2]


def answered(question, *answers):
    """A wrong work for each answer to a question."""
    return [Wrong(f"{question}: {x}", lambda x=x: COSTS | {question: x}) for x in answers]


RIGHT = {
    "token_costs": (lambda: COSTS,),
    "online_softmax": (online_by_torch, online_by_slices),
    "best_pairs": (pairs_by_torch, pairs_by_loop),
    "merge_pairs": (merged_by_sums, merged_by_running_means),
    "proportional_attention": (proportional_by_bias, proportional_by_repeating),
    "keep_most_attended": (kept_by_topk, kept_by_argsort),
}

WRONG = {
    "token_costs": [
        *answered("scores", 38.1, 8),
        *answered("blockwise", 0.2, 40),
        *answered("total", 1.5, 3.5),
        *answered("output", 3, 84),
        *answered("left", 40, 156),
        *answered("weight", 0.25, 3),
        *answered("value", 12, 3.5),
        *answered("share", 0.375, 0.75),
    ],
    "online_softmax": [
        Wrong("a block too few", lambda s, v, b: tuple(x[:-1] for x in online_by_torch(s, v, b)), "has shape"),
        Wrong("largest begins at 0", online_from_zero),
    ],
    "best_pairs": [
        Wrong("a pair too few", lambda keys, r: pairs_by_torch(keys, r)[:-1], "has shape"),
        Wrong("the package's", from_the_package, "the package's own"),
        Wrong("all tokens", all_tokens),
    ],
    "merge_pairs": [
        Wrong("in place", in_place, "changed in place"),
    ],
    "proportional_attention": [
        Wrong("not normalised", weights_times_sizes),
    ],
    "keep_most_attended": [
        Wrong("none dropped", kept_without_the_last, "inputs are right."),
        Wrong("without the class token", lambda q, k, r: kept_by_topk(q, k, r)[1:], "has shape"),
        Wrong("r tokens", lambda q, k, r: kept_by_topk(q, k, r)[:r]),
    ],
}
