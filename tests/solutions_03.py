"""Answers to the exercises of lesson 03: right ones, written in different ways, and wrong ones with what they hear."""

import math

import numpy as np
import torch
from einops import rearrange
from torch import nn
from torch.nn import functional as F

import vit_tutorial as vt

NUMBERS = {"scores": [2, 0], "weight 0": 0.73, "output": [2.92, 2.15], "weights": 30_000}


def attention_by_einsum(q, k, v):
    scores = torch.einsum("...td,...sd->...ts", q, k) * q.size(-1) ** -0.5
    weights = F.softmax(scores, dim=-1)
    return torch.einsum("...ts,...se->...te", weights, v), weights


def attention_by_hand(q, k, v):
    scores = (q / math.sqrt(q.shape[-1])).matmul(k.mT)
    powers = torch.exp(scores - scores.amax(-1, keepdim=True))
    weights = powers / powers.sum(-1, keepdim=True)
    return weights @ v, weights


def split_by_einops(x, num_heads):
    return rearrange(x, "b t (h d) -> b h t d", h=num_heads)


def split_by_chunks(x, num_heads):
    return torch.stack(x.chunk(num_heads, dim=-1), dim=1)


def split_by_view(x, num_heads):
    B, T, D = x.shape
    return x.view(B, T, num_heads, D // num_heads).permute(0, 2, 1, 3)


def merge_by_einops(x):
    return rearrange(x, "b h t d -> b t (h d)")


def merge_by_cat(x):
    return torch.cat(x.unbind(1), dim=-1)


def merge_by_view(x):
    B, h, T, d = x.shape
    return x.transpose(1, 2).contiguous().view(B, T, h * d)


class ByKernel(nn.Module):
    def __init__(self, dim, num_heads):
        super().__init__()
        self.h = num_heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        q, k, v = (split_by_view(part, self.h) for part in self.qkv(x).chunk(3, -1))
        return self.proj(merge_by_view(F.scaled_dot_product_attention(q, k, v)))


class ByLoop(nn.Module):
    """One head after the other, on slices."""

    def __init__(self, dim, num_heads):
        super().__init__()
        self.qkv, self.proj, self.d = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim), dim // num_heads

    def forward(self, x):
        D, qkv, heads = x.shape[-1], self.qkv(x), []
        for start in range(0, D, self.d):
            q, k, v = (qkv[..., i * D + start : i * D + start + self.d] for i in range(3))
            heads.append(attention_by_hand(q, k, v)[0])
        return self.proj(torch.cat(heads, dim=-1))


class ByEinops(ByLoop):
    def forward(self, x):
        q, k, v = rearrange(self.qkv(x), "b t (three h d) -> three b h t d", three=3, d=self.d)
        return self.proj(merge_by_einops(attention_by_einsum(q, k, v)[0]))


class ByTorch(nn.Module):
    """torch's own layer: its numbers are the same, under other names."""

    def __init__(self, dim, num_heads):
        super().__init__()
        self.mha = nn.MultiheadAttention(dim, num_heads, batch_first=True)

    def forward(self, x):
        return self.mha(x, x, x, need_weights=False)[0]


def chunks_by_running_sums(q, k, v, chunk):
    top = torch.full_like(q[..., :1], -math.inf)
    total, mixed = 0.0, 0.0
    for start in range(0, k.shape[-2], chunk):
        scores = q @ k[..., start : start + chunk, :].mT / math.sqrt(q.shape[-1])
        new = torch.maximum(top, scores.max(-1, keepdim=True).values)
        powers, old = torch.exp(scores - new), torch.exp(top - new)
        total, mixed, top = total * old + powers.sum(-1, keepdim=True), mixed * old + powers @ v[
            ..., start : start + chunk, :
        ], new  # fmt: skip
    return mixed / total


def chunks_by_logsumexp(q, k, v, chunk):
    outputs, sizes = [], []
    for keys, values in zip(k.split(chunk, 1), v.split(chunk, 1), strict=True):
        scores = q @ keys.mT / q.shape[-1] ** 0.5
        outputs.append(scores.softmax(-1) @ values)
        sizes.append(scores.logsumexp(-1))
    share = torch.stack(sizes).softmax(0).unsqueeze(-1)
    return (share * torch.stack(outputs)).sum(0)


def chunks_in_two_passes(q, k, v, chunk):
    scale = q.shape[-1] ** -0.5
    pairs = list(zip(k.split(chunk, 1), v.split(chunk, 1), strict=True))
    top = torch.stack([(q @ keys.mT * scale).amax(-1) for keys, _ in pairs]).amax(0).unsqueeze(-1)
    powers = [(q @ keys.mT * scale - top).exp() for keys, _ in pairs]
    mixed = sum(power @ values for power, (_, values) in zip(powers, pairs, strict=True))
    return mixed / sum(power.sum(-1, keepdim=True) for power in powers)


def attention_by_the_kernel(q, k, v):
    """The fused kernel; the weights are what it gives for an identity as values."""
    eye = torch.eye(k.shape[-2]).expand(*k.shape[:-1], k.shape[-2])
    return F.scaled_dot_product_attention(q, k, v), F.scaled_dot_product_attention(q, k, eye)


def attention_by_numpy(q, k, v):
    q, k, v = (x.numpy().astype(np.float64) for x in (q, k, v))
    scores = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    weights = powers / powers.sum(-1, keepdims=True)
    return weights @ v, weights


@torch.no_grad()
def attention_as_a_list(q, k, v):
    weights = nn.Softmax(dim=-1)(q.double() @ k.double().mT / q.shape[-1] ** 0.5)
    return [weights @ v.double(), weights]


def split_by_numpy(x, num_heads):
    B, T, D = x.shape
    return np.asarray(x).reshape(B, T, num_heads, D // num_heads).transpose(0, 2, 1, 3)


def split_by_loops(x, num_heads):
    d = x.shape[-1] // num_heads
    return torch.stack([x[:, :, i * d : (i + 1) * d].detach() for i in range(num_heads)], dim=1).double()


def merge_by_numpy(x):
    return np.concatenate(list(np.moveaxis(x.numpy(), 1, 0)), axis=-1)


def merge_by_index(x):
    B, h, T, d = x.shape
    out = torch.zeros(B, T, h * d)
    for i in range(h):
        out[:, :, i * d : (i + 1) * d] = x[:, i]
    return out


class OnWidth(nn.Module):
    """Three products with slices of the weight, and einsum."""

    def __init__(self, dim, num_heads):
        super().__init__()
        self.h, self.qkv, self.proj = num_heads, nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x):
        w, b = self.qkv.weight.chunk(3), self.qkv.bias.chunk(3)
        q, k, v = (F.linear(x, w[i], b[i]).unflatten(-1, (self.h, -1)) for i in range(3))
        weights = (torch.einsum("bthd,bshd->bhts", q, k) * q.shape[-1] ** -0.5).softmax(-1)
        return self.proj(torch.einsum("bhts,bshd->bthd", weights, v).flatten(2))


def chunks_by_loops(q, k, v, chunk):
    """Query by query, chunk by chunk."""
    out = torch.empty_like(q)
    for b in range(q.shape[0]):
        for t in range(q.shape[1]):
            top, total, mixed = torch.tensor(-math.inf), 0.0, torch.zeros(q.shape[2])
            for start in range(0, k.shape[1], chunk):
                scores = k[b, start : start + chunk] @ q[b, t] / math.sqrt(q.shape[2])
                new = torch.maximum(top, scores.max())
                powers, old = torch.exp(scores - new), torch.exp(top - new)
                total, mixed = total * old + powers.sum(), mixed * old + powers @ v[b, start : start + chunk]
                top = new
            out[b, t] = mixed / total
    return out


def chunks_in_double(q, k, v, chunk):
    return chunks_by_running_sums(q.double(), k.double(), v.double(), chunk)


SOLUTIONS = {
    "attention_numbers": (
        lambda: NUMBERS,
        lambda: NUMBERS | {"scores": np.array([2.0, 0.0]), "weight 0": np.float64(0.731), "weights": np.int64(30_000)},
        lambda: NUMBERS | {"output": torch.tensor([0.7311, 0.2689]) * torch.tensor([4, 8])},
        lambda: NUMBERS | {"weight 0": [0.731], "scores": (2.0, 0)},
        lambda: NUMBERS | {"output": [2.9242, 2.1515], "weights": 30_000.0},
    ),
    "attention": (
        attention_by_einsum,
        attention_by_hand,
        attention_by_numpy,
        attention_as_a_list,
        lambda q, k, v: tuple(x.detach() for x in attention_by_einsum(q, k, v)),
    ),
    "split_heads": (split_by_einops, split_by_chunks, split_by_view, split_by_numpy, split_by_loops),
    "merge_heads": (merge_by_einops, merge_by_cat, merge_by_view, merge_by_numpy, merge_by_index),
    "multi_head_attention": (ByKernel, ByLoop, ByEinops, ByTorch, OnWidth),
    "attention_in_chunks": (
        chunks_by_running_sums,
        chunks_by_logsumexp,
        chunks_in_two_passes,
        chunks_by_loops,
        chunks_in_double,
    ),
}

# ---- Wrong ones ------------------------------------------------------------------------------------------------------


def answer(**wrong):
    """The right answers but for some, whose keys have _ for a space."""
    return lambda: NUMBERS | {key.replace("_", " "): value for key, value in wrong.items()}


def attend(scale=lambda d: d**0.5, squash=lambda s: s.softmax(-1), mix=lambda w, v: w @ v, give=lambda o, w: (o, w)):
    """Attention with one thing or another changed."""

    def attention(q, k, v):
        weights = squash(q @ k.transpose(-2, -1) / scale(q.shape[-1]))
        return give(mix(weights, v), weights)

    return attention


def attention_scaled_twice(q, k, v):
    d = q.shape[-1]
    return attention_by_einsum(q / math.sqrt(d), k, v)


def attention_2d(q, k, v):
    weights = (q @ k.T / math.sqrt(q.shape[-1])).softmax(-1)
    return weights @ v, weights


def attention_by_loop(q, k, v):
    outs = [attention_by_einsum(q[..., t : t + 1, :], k, v)[0] for t in range(q.shape[-2])]
    return torch.cat(outs, dim=-2), attention_by_einsum(q, k, v)[1].mT


def attention_with_dropout(q, k, v):
    output, weights = attention_by_einsum(q, k, v)
    return F.dropout(output, 0.1), weights


def attention_hard(q, k, v):
    weights = F.one_hot((q @ k.mT).argmax(-1), k.shape[-2]).float()
    return weights @ v, weights


def attention_cosine(q, k, v):
    return attention_by_einsum(F.normalize(q, dim=-1), F.normalize(k, dim=-1), v)


def attention_in_place(q, k, v):
    q /= math.sqrt(q.shape[-1])
    weights = (q @ k.mT).softmax(-1)
    return weights @ v, weights


def attention_no_maximum(q, k, v):
    powers = torch.exp(q @ k.mT / math.sqrt(q.shape[-1]))
    weights = powers / powers.sum(-1, keepdim=True)
    return weights @ v, weights


def attention_sum_without_keepdim(q, k, v):
    powers = torch.exp(q @ k.mT / math.sqrt(q.shape[-1]))
    weights = powers / powers.sum(-1)
    return weights @ v, weights


def attention_with_one(q, k, v):
    """A softmax with one more in the denominator."""
    powers = torch.exp(q @ k.mT / math.sqrt(q.shape[-1]))
    weights = powers / (1 + powers.sum(-1, keepdim=True))
    return weights @ v, weights


class Layer(nn.Module):
    """The right layer in steps; a wrong one replaces some."""

    def __init__(self, dim, num_heads):
        super().__init__()
        self.h = num_heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        q, k, v = self.parts(x)
        weights = self.squash(q @ k.mT / self.scale(q, x))
        return self.proj(self.merge(weights @ v))

    def parts(self, x):
        return [self.split(part) for part in self.qkv(x).chunk(3, dim=-1)]

    def split(self, x):
        return split_by_view(x, self.h)

    def merge(self, x):
        return merge_by_view(x)

    def scale(self, q, x):
        return math.sqrt(q.shape[-1])

    def squash(self, scores):
        return scores.softmax(-1)


def with_steps(**steps):
    """A layer with other steps."""
    return type("MultiHeadSelfAttention", (Layer,), steps)


def order(*places):
    return with_steps(parts=lambda self, x: [Layer.parts(self, x)[place] for place in places])


def kernel_untransposed(self, x):
    q, k, v = self.qkv(x).unflatten(-1, (3, self.h, -1)).unbind(2)
    return self.proj(F.scaled_dot_product_attention(q, k, v).flatten(2))


def kernel_with_wrong_merge(self, x):
    q, k, v = self.parts(x)
    return self.proj(F.scaled_dot_product_attention(q, k, v).reshape(x.shape))


class SixLayers(nn.Module):
    def __init__(self, dim, num_heads):
        super().__init__()
        self.q, self.k, self.v = nn.Linear(dim, dim), nn.Linear(dim, dim), nn.Linear(dim, dim)


class SequenceFirst(nn.Module):
    def __init__(self, dim, num_heads):
        super().__init__()
        self.mha = nn.MultiheadAttention(dim, num_heads)

    def forward(self, x):
        return self.mha(x, x, x, need_weights=False)[0]


class Inherits(vt.MultiHeadSelfAttention):
    pass


def chunks(start=-math.inf, both=(True, True), sign=1, scale=lambda d: d**0.5, end=lambda m, t: m / t, cut=None):
    """attention_in_chunks with one thing or another changed."""

    def attention_in_chunks(q, k, v, chunk):
        top = torch.full((*q.shape[:2], 1), start)
        total, mixed = torch.zeros_like(top), torch.zeros_like(q)
        stop = k.shape[1] if cut is None else cut(k.shape[1], chunk)
        for i in range(0, stop, chunk):
            scores = q @ k[:, i : i + chunk].mT / scale(q.shape[-1])
            new = torch.maximum(top, scores.amax(-1, keepdim=True))
            old = ((top - new) * sign).exp()
            powers = (scores - new).exp()
            total = total * (old if both[0] else 1) + powers.sum(-1, keepdim=True)
            mixed = mixed * (old if both[1] else 1) + powers @ v[:, i : i + chunk]
            top = new
        return end(mixed, total)

    return attention_in_chunks


def chunks_no_maximum(q, k, v, chunk):
    total = mixed = 0
    for keys, values in zip(k.split(chunk, 1), v.split(chunk, 1), strict=True):
        powers = (q @ keys.mT / q.shape[-1] ** 0.5).exp()
        total, mixed = total + powers.sum(-1, keepdim=True), mixed + powers @ values
    return mixed / total


def chunks_filled_up(q, k, v, chunk):
    rest = -k.shape[1] % chunk
    return chunks_by_running_sums(q, F.pad(k, (0, 0, 0, rest)), F.pad(v, (0, 0, 0, rest)), chunk)


def chunks_of_queries(q, k, v, chunk):
    return torch.cat([attention_by_einsum(part, k, v)[0] for part in q.split(chunk, 1)], dim=1)


def chunks_query_by_query(q, k, v, chunk):
    return torch.cat([attention_by_einsum(q[:, t : t + 1], k, v)[0] for t in range(q.shape[1])], dim=1)


def chunks_not_at_all(q, k, v, chunk):
    return attention_by_einsum(q, k, v)[0]


def chunks_by_the_kernel(q, k, v, chunk):
    return F.scaled_dot_product_attention(q, k, v)


def chunks_of_weights(q, k, v, chunk):
    """The whole table, then used in chunks."""
    weights = (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1)
    return sum(w @ x for w, x in zip(weights.split(chunk, -1), v.split(chunk, 1), strict=True))


def chunks_each_alone(combine):
    def attention_in_chunks(q, k, v, chunk):
        pairs = zip(k.split(chunk, 1), v.split(chunk, 1), strict=True)
        return combine(torch.stack([attention_by_einsum(q, a, b)[0] for a, b in pairs]))

    return attention_in_chunks


def chunks_weighed_by_length(q, k, v, chunk):
    parts = list(zip(k.split(chunk, 1), v.split(chunk, 1), strict=True))
    return sum(attention_by_einsum(q, a, b)[0] * a.shape[1] for a, b in parts) / k.shape[1]


def chunks_one_maximum_for_all(q, k, v, chunk):
    """The maximum over all queries: right, as long as no query lies far below another."""
    top, total, mixed = -math.inf, 0.0, 0.0
    for keys, values in zip(k.split(chunk, 1), v.split(chunk, 1), strict=True):
        scores = q @ keys.mT / q.shape[-1] ** 0.5
        new = max(top, scores.max().item())
        powers, old = (scores - new).exp(), math.exp(top - new)
        total, mixed, top = total * old + powers.sum(-1, keepdim=True), mixed * old + powers @ values, new
    return mixed / total


WRONG = {
    "attention_numbers": (
        (answer(weight_0=0.88, output=[3.52, 0.95]), "no scale"),
        (answer(weight_0=0.62, output=[2.49, 3.02]), "a division by d"),
        (answer(weight_0=1.0, output=[4, 0]), "all weight on key 0"),
        (answer(weight_0=0.982, output=[3.93, 0.144]), "a multiplication by √d"),
        (answer(weight_0=0.269, output=[1.076, 5.85]), "the weights exchanged"),
        (answer(weight_0=0.5, output=[2, 4]), "equal weights"),
        (answer(scores=[1, 0]), "scores that are scaled already"),
        (answer(scores=[2, 2]), "key 1 with the query's first number"),
        (answer(scores=[2, 1]), "The dot product of the query"),
        (answer(scores=[4, 0]), "The dot product of the query"),
        (answer(scores=2), "expected a list of 2"),
        (answer(weight_0=2.718), "powers that are not divided by their sum"),
        (answer(weight_0=0.75), "Divide the two scores by √d first"),
        (answer(weight_0="0.73"), "expected a number"),
        (answer(output=[4, 8]), "the values without their weights"),
        (answer(output=[2.92, 5.85]), "one weight for all the output"),
        (answer(output=[2.92, 2.51]), "Each value times its weight"),
        (answer(output=5.07), "expected a list of 2"),
        (answer(weights=12 * 49 * 49), "the class token forgotten"),
        (answer(weights=50 * 50), "the heads forgotten"),
        (answer(weights=12 * 50), "tokens in place of weights"),
        (answer(weights=12 * 197 * 197), "For each head and each token"),
        (answer(weights=30_001), "For each head and each token"),
        (answer(weights=29_900), "For each head and each token"),
        (lambda: NUMBERS["scores"], "expected a dictionary of answers"),
    ),
    "attention": (
        (attend(scale=lambda d: 2 * d**0.5), "scores that are 0.5 times the right ones (with q (4, 3)"),
        (attend(mix=lambda w, v: w @ v.flip(-2)), "Your weights are right."),
        (attend(squash=lambda s: (s + s.flip(-1)).softmax(-1)), "It is the weights that are wrong"),
        (attend(scale=lambda d: 2 * d**0.5, mix=lambda w, v: w @ v.flip(-2)), "nor is your output these weights"),
        (
            attend(squash=lambda s: s.masked_fill(s < s.topk(2).values[..., -1:], -math.inf).softmax(-1)),
            "weights are 0",
        ),
        (attention_by_the_kernel, "it calls scaled_dot_product_attention"),
        (lambda q, k, v: vt.attention(q, k, v), "the package's own attention"),
        (vt.attention, "is the package's"),
        (attend(squash=lambda s: s.softmax(-2)), "a softmax over the wrong axis"),
        (attend(squash=lambda s: s.softmax(0)), "a softmax over the first axis"),
        (attend(squash=lambda s: s.softmax(1)), "a softmax over axis 1"),
        (attend(squash=lambda s: s), "no softmax"),
        (attend(squash=torch.sigmoid), "a sigmoid in place of a softmax"),
        (attend(squash=lambda s: s / s.sum(-1, keepdim=True)), "plain shares in place of a softmax"),
        (attend(squash=lambda s: s.log_softmax(-1)), "the logarithm of the weights"),
        (attend(squash=lambda s: s.softmax(-1).softmax(-1)), "What your numbers show"),
        (attend(squash=lambda s: (s * s).softmax(-1)), ""),
        (attend(squash=lambda s: (-s).softmax(-1)), ""),
        (attend(scale=lambda d: 1.0), "no scale"),
        (attend(scale=lambda d: d), "a division by d"),
        (attend(scale=lambda d: 1 / math.sqrt(d)), "a multiplication by √d"),
        (attend(scale=lambda d: 2 * math.sqrt(d)), "What your numbers show"),
        (attention_scaled_twice, "a division by d"),
        (lambda q, k, v: attend(scale=lambda d: math.sqrt(k.shape[-2]))(q, k, v), "the number of keys for d"),
        (lambda q, k, v: attend(scale=lambda d: math.sqrt(q.shape[-2]))(q, k, v), "the number of queries for d"),
        (lambda q, k, v: attend(scale=lambda d: math.sqrt(v.shape[-1]))(q, k, v), "the values' width for d"),
        (attend(squash=lambda s: s.softmax(-1) / 2), ""),
        (lambda q, k, v: attend(lambda d: 1, lambda s: s.softmax(-1) / math.sqrt(q.shape[-1]))(q, k, v), "behind the"),
        (lambda q, k, v: attention_by_einsum(k, q, v), "query and key exchanged"),
        (lambda q, k, v: attention_by_einsum(q, v, k), "keys and values exchanged"),
        (lambda q, k, v: attention_by_einsum(q, q, v), "queries compared with themselves"),
        (lambda q, k, v: attention_by_einsum(q, k, k), "keys mixed in place of values"),
        (attend(mix=lambda w, v: w @ v.mT), "values transposed"),
        (attend(mix=lambda w, v: w.mT @ v), "weights transposed"),
        (attend(give=lambda o, w: (w, o)), "output and weights exchanged"),
        (attend(give=lambda o, w: o), "it is the right result[0]: return all 2"),
        (attend(give=lambda o, w: w), ""),
        (attend(give=lambda o, w: (o, w.mT)), "weights returned transposed"),
        (attend(give=lambda o, w: (o, w.sum(-1))), ""),
        (attend(give=lambda o, w: (o, w, w)), "expected a tuple of 2"),
        (attend(give=lambda o, w: {"output": o, "weights": w}), "expected a tuple of 2"),
        (attend(give=lambda o, w: None), "is the return missing?"),
        (attention_2d, "raised RuntimeError"),
        (attention_by_loop, "weights returned transposed"),
        (attention_with_dropout, "What your numbers show"),
        (attention_hard, "What your numbers show"),
        (attention_cosine, ""),
        (attention_in_place, "argument 1 was changed in place"),
        (attention_no_maximum, "powers of e that overflow"),
        (attention_sum_without_keepdim, ""),
        (attention_with_one, ""),
        (attend(scale=lambda d: 1.0, squash=lambda s: s.softmax(-2)), "two mistakes at once"),
        (attend(scale=lambda d: d, mix=lambda w, v: w.mT @ v), "two mistakes at once"),
    ),
    "split_heads": (
        (lambda x, h: x.view(x.shape[0], h, x.shape[1], -1), "heads split without the transpose"),
        (lambda x, h: x.unflatten(-1, (-1, h)).permute(0, 3, 1, 2), "interleaved heads"),
        (lambda x, h: x.unflatten(-1, (h, -1)), "heads behind the tokens"),
        (lambda x, h: x.unflatten(-1, (-1, h)).transpose(1, 2), "width and number of heads exchanged"),
        (lambda x, h: split_by_view(x, h).transpose(0, 1), "heads in front of the batch"),
        (lambda x, h: split_by_view(x, h).mT, "tokens and columns exchanged"),
        (lambda x, h: x.unflatten(-1, (h, -1)).permute(0, 2, 3, 1), ""),
        (lambda x, h: split_by_view(x, h).flip(1), "Axis 1 runs backwards"),
        (lambda x, h: split_by_view(x, h).flip(2), "Axis 2 runs backwards"),
        (lambda x, h: split_by_view(x, h)[:, 0], "has shape"),
        (lambda x, h: list(split_by_view(x, h).unbind(1)), ""),
        (lambda x, h: x.chunk(h, dim=-1), ""),
        (lambda x, h: torch.cat(x.chunk(h, dim=-1), dim=1), "has shape"),
        (lambda x, h: torch.stack(x.chunk(h, dim=-1)), "heads in front of the batch"),
        (lambda x, h: torch.stack(x.chunk(h, dim=-1), dim=2), "heads behind the tokens"),
        (lambda x, h: torch.stack(x.chunk(h, dim=1), dim=1), ""),
        (lambda x, h: split_by_view(x, h) / math.sqrt(x.shape[-1] // h), "Every number is"),
        (lambda x, h: split_by_view(x, 2), ""),
        (lambda x, h: split_by_view(x, h).flatten(0, 1), "has shape"),
        (lambda x, h: None, "is the return missing?"),
        (lambda x: x, "raised TypeError"),
        (lambda x, h: x.mT.reshape(x.shape[0], h, x.shape[1], -1), "What your numbers show"),
        (lambda x, h: x.mT.reshape(x.shape[0], h, -1, x.shape[1]), "tokens and columns exchanged"),
        (lambda x, h: x.reshape(x.shape[0], x.shape[1], h, -1).reshape(x.shape[0], h, x.shape[1], -1), "without the"),
    ),
    "merge_heads": (
        (lambda x: x.reshape(x.shape[0], x.shape[2], -1), "heads merged without the transpose"),
        (lambda x: x.permute(0, 2, 3, 1).flatten(2), "interleaved heads"),
        (lambda x: x.mean(1), "heads averaged"),
        (lambda x: x.sum(1), "heads summed"),
        (lambda x: x[:, 0], ""),
        (lambda x: merge_by_view(x).mT, "tokens and columns exchanged"),
        (lambda x: x.flatten(1, 2), "heads one below the other"),
        (lambda x: merge_by_view(x.flip(1)), "heads in backward order"),
        (lambda x: x.transpose(1, 2), "has shape"),
        (lambda x: x.transpose(1, 2).flatten(1), "has shape"),
        (lambda x: x.mT.reshape(x.shape[0], x.shape[2], -1), "What your numbers show"),
        (lambda x: x.transpose(1, 3).reshape(x.shape[0], x.shape[2], -1), "What your numbers show"),
        (lambda x: x.transpose(0, 1).reshape(x.shape[0], x.shape[2], -1), "What your numbers show"),
        (lambda x: x.transpose(1, 2).view(x.shape[0], x.shape[2], -1), "raised RuntimeError"),
        (lambda x: merge_by_view(x) * 2, "Every number is 2 times"),
        (lambda x: merge_by_view(x).flip(1), "Axis 1 runs backwards"),
        (lambda x: merge_by_view(x).flip(2), "Axis 2 runs backwards"),
        (lambda x: merge_by_view(x)[0], "has shape"),
        (lambda x: merge_by_view(x).roll(1, 2), "Along axis 2"),
        (lambda x: torch.cat(x.unbind(1), dim=1), "heads one below the other"),
        (lambda x: torch.cat(x.unbind(2), dim=-1), ""),
        (lambda x: None, "is the return missing?"),
    ),
    "multi_head_attention": (
        (
            with_steps(merge=lambda self, x: merge_by_view(x - x.mean(1, keepdim=True))),
            "in front of it, with",
        ),
        (with_steps(split=lambda self, x: split_by_view(x, 2)), "in front of it"),
        (with_steps(squash=lambda s, x: (2 * x).softmax(-1)), "within the range of the right values"),
        (with_steps(squash=lambda s, x: (2 * x).softmax(-1) - x), "no weighted mean of their values"),
        (
            with_steps(merge=lambda self, x: merge_by_view(x * torch.arange(x.shape[1])[:, None, None])),
            "in front of it",
        ),
        (with_steps(merge=lambda self, x: merge_by_view(torch.cat([x[:, :1], x[:, 1:] ** 3], 1))), "only head 0 of"),
        (with_steps(forward=lambda self, x: F.dropout(Layer.forward(self, x), 0.1, self.training)), "in training mode"),
        (with_steps(split=lambda self, x: x.reshape(len(x), self.h, x.shape[1], -1)), "heads split without"),
        (with_steps(merge=lambda self, x: x.reshape(len(x), x.shape[2], -1)), "heads merged without"),
        (
            with_steps(
                split=lambda self, x: x.reshape(len(x), self.h, x.shape[1], -1),
                merge=lambda self, x: x.reshape(len(x), x.shape[2], -1),
            ),
            "heads split and merged without",
        ),
        (with_steps(squash=lambda self, s: s.softmax(-2)), "a softmax over the wrong axis"),
        (with_steps(squash=lambda self, s: s.softmax(1)), "a softmax across the heads"),
        (with_steps(squash=lambda self, s: s.softmax(0)), ""),
        (with_steps(squash=lambda self, s: s), "no softmax"),
        (with_steps(squash=lambda self, s: s.sigmoid()), ""),
        (with_steps(scale=lambda self, q, x: 1), "no scale"),
        (with_steps(scale=lambda self, q, x: math.sqrt(x.shape[-1])), "√D for √d"),
        (with_steps(scale=lambda self, q, x: q.shape[-1]), "a division by d"),
        (with_steps(scale=lambda self, q, x: math.sqrt(x.shape[1])), "the number of tokens for d"),
        (with_steps(scale=lambda self, q, x: math.sqrt(self.h)), "the number of heads for d"),
        (with_steps(scale=lambda self, q, x: math.sqrt(3 * x.shape[-1])), "What your numbers show"),
        (order(1, 0, 2), "query and key exchanged"),
        (order(0, 2, 1), "key and value exchanged"),
        (order(2, 1, 0), "rows of qkv read as v, k, q"),
        (order(1, 2, 0), "rows of qkv read as"),
        (order(2, 0, 1), "rows of qkv read as"),
        (with_steps(parts=lambda self, x: [self.split(x)] * 3), ""),
        (
            with_steps(parts=lambda self, x: self.qkv(x).unflatten(-1, (self.h, 3, -1)).permute(3, 0, 2, 1, 4)),
            "rows of qkv taken head by head",
        ),
        (
            with_steps(parts=lambda self, x: self.qkv(x).unflatten(-1, (self.h, -1, 3)).permute(4, 0, 2, 1, 3)),
            "rows of qkv interleaved",
        ),
        (with_steps(split=lambda self, x: x[:, None]), "one head for all"),
        (with_steps(split=lambda self, x: x.unflatten(-1, (-1, self.h)).permute(0, 3, 1, 2)), "interleaved heads"),
        (with_steps(merge=lambda self, x: x.permute(0, 2, 3, 1).flatten(2)), "interleaved heads on the way back"),
        (with_steps(merge=lambda self, x: x.mean(1)), "raised RuntimeError"),
        (with_steps(forward=kernel_untransposed), "the kernel without the transpose"),
        (with_steps(forward=kernel_with_wrong_merge), "heads merged without the transpose"),
        (with_steps(forward=lambda self, x: x + Layer.forward(self, x)), "a residual inside the layer"),
        (with_steps(forward=lambda self, x: Layer.forward(self, x).mT), "are exchanged"),
        (with_steps(forward=lambda self, x: Layer.forward(self, x).detach()), "gradient of"),
        (with_steps(forward=lambda self, x: Layer.forward(self, x.detach())), "gradient of argument 1 is missing"),
        (with_steps(proj=lambda self, x: x), ""),
        (SixLayers, "a parameter that the stub doesn't name: q.weight"),
        (SequenceFirst, "What your numbers show"),
        (Inherits, "derives from it"),
        (lambda *args: vt.MultiHeadSelfAttention(*args), "the package's own MultiHeadSelfAttention"),
        (lambda *args: nn.Sequential(vt.MultiHeadSelfAttention(*args)), "the package's own MultiHeadSelfAttention"),
        (
            with_steps(scale=lambda self, q, x: 1, squash=lambda self, s: s.softmax(-2)),
            "It looks like",
        ),
        (
            with_steps(scale=lambda self, q, x: q.shape[-1], merge=lambda self, x: x.reshape(len(x), x.shape[2], -1)),
            "two mistakes at once",
        ),
    ),
    "attention_in_chunks": (
        (chunks_no_maximum, "an overflow"),
        (chunks_filled_up, "a last chunk filled up with zeros"),
        (chunks(both=(False, False)), "old sums left under an old maximum"),
        (chunks(both=(False, True)), "a denominator that is not rescaled"),
        (chunks(both=(True, False)), "mixed values that are not rescaled"),
        (chunks(start=0.0), "powers that vanish where all scores are far below 0"),
        (chunks(start=-10.0), "powers that vanish where all scores are far below 0"),
        (chunks(sign=-1), ""),
        (chunks(scale=lambda d: 1), "no scale"),
        (chunks(scale=lambda d: d), "a division by d"),
        (chunks(scale=lambda d: 1 / math.sqrt(d)), "a multiplication by √d"),
        (chunks(end=lambda mixed, total: mixed), "a division that is missing at the end"),
        (chunks(end=lambda mixed, total: total), ""),
        (chunks(end=lambda mixed, total: mixed / total.sum()), ""),
        (chunks(cut=lambda S, chunk: S // chunk * chunk), "a last chunk lost"),
        (chunks(cut=lambda S, chunk: S - chunk), ""),
        (chunks(cut=lambda S, chunk: chunk), ""),
        (chunks_of_queries, "take"),
        (chunks_query_by_query, "take"),
        (chunks_not_at_all, "at once, for all queries"),
        (chunks_of_weights, "at once, for all queries"),
        (chunks_by_the_kernel, "it calls scaled_dot_product_attention"),
        (chunks_each_alone(lambda parts: parts.mean(0)), "a softmax for each chunk, then their mean"),
        (chunks_each_alone(lambda parts: parts.sum(0)), "a softmax for each chunk, then their sum"),
        (chunks_each_alone(lambda parts: parts[-1]), "the last chunk alone"),
        (chunks_each_alone(lambda parts: parts[0]), ""),
        (chunks_weighed_by_length, "What your numbers show"),
        (chunks_one_maximum_for_all, ""),
        (chunks(start=0.0, scale=lambda d: 1), ""),
        (lambda q, k, v: q, "raised TypeError"),
        (lambda q, k, v, chunk: chunks()(q, k, v, chunk)[0], "has shape"),
    ),
}
