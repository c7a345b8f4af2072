"""Answers to the exercises of lesson 03: right ones, written in different ways, and wrong ones with what they hear."""

import math

import numpy as np
import torch
from einops import rearrange
from submissions import Wrong
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


def merge_by_numpy(x):
    return np.concatenate(list(np.moveaxis(x.numpy(), 1, 0)), axis=-1)


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


RIGHT = {
    "attention_numbers": (
        lambda: NUMBERS,
        lambda: NUMBERS | {"scores": np.array([2.0, 0.0]), "weight 0": np.float64(0.731), "weights": np.int64(30_000)},
        lambda: NUMBERS | {"output": torch.tensor([0.7311, 0.2689]) * torch.tensor([4, 8])},
    ),
    "attention": (
        attention_by_einsum,
        attention_by_hand,
        attention_by_numpy,
        attention_as_a_list,
    ),
    "split_heads": (split_by_einops, split_by_chunks, split_by_view, split_by_numpy),
    "merge_heads": (merge_by_einops, merge_by_cat, merge_by_view, merge_by_numpy),
    "multi_head_attention": (ByKernel, ByLoop, ByEinops, ByTorch),
    "attention_in_chunks": (
        chunks_by_running_sums,
        chunks_by_logsumexp,
        chunks_by_loops,
        chunks_in_double,
    ),
}

# ---- Wrong ones ------------------------------------------------------------------------------------------------------


def answer(**wrong):
    """The right answers but for some, whose keys have _ for a space."""
    return lambda: NUMBERS | {key.replace("_", " "): value for key, value in wrong.items()}


def attend(scale=lambda d: d**0.5, squash=lambda s: s.softmax(-1), give=lambda o, w: (o, w)):
    """Attention with one thing or another changed."""

    def attention(q, k, v):
        weights = squash(q @ k.transpose(-2, -1) / scale(q.shape[-1]))
        return give(weights @ v, weights)

    return attention


def attention_sum_without_keepdim(q, k, v):
    powers = torch.exp(q @ k.mT / math.sqrt(q.shape[-1]))
    weights = powers / powers.sum(-1)
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


def kernel_with_wrong_merge(self, x):
    q, k, v = self.parts(x)
    return self.proj(F.scaled_dot_product_attention(q, k, v).reshape(x.shape))


def chunks(sign=1, end=lambda m, t: m / t, low=-math.inf):
    """attention_in_chunks with one thing or another changed."""

    def attention_in_chunks(q, k, v, chunk):
        top = torch.full((*q.shape[:2], 1), low)
        total, mixed = torch.zeros_like(top), torch.zeros_like(q)
        for i in range(0, k.shape[1], chunk):
            scores = q @ k[:, i : i + chunk].mT / q.shape[-1] ** 0.5
            new = torch.maximum(top, scores.amax(-1, keepdim=True))
            old = ((top - new) * sign).exp()
            powers = (scores - new).exp()
            total = total * old + powers.sum(-1, keepdim=True)
            mixed = mixed * old + powers @ v[:, i : i + chunk]
            top = new
        return end(mixed, total)

    return attention_in_chunks


def chunks_no_maximum(q, k, v, chunk):
    total = mixed = 0
    for keys, values in zip(k.split(chunk, 1), v.split(chunk, 1), strict=True):
        powers = (q @ keys.mT / q.shape[-1] ** 0.5).exp()
        total, mixed = total + powers.sum(-1, keepdim=True), mixed + powers @ values
    return mixed / total


def chunks_by_the_kernel(q, k, v, chunk):
    return F.scaled_dot_product_attention(q, k, v)


def chunks_of_weights(q, k, v, chunk):
    """The whole table, then used in chunks."""
    weights = (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1)
    return sum(w @ x for w, x in zip(weights.split(chunk, -1), v.split(chunk, 1), strict=True))


def more_keys_than_a_chunk(q, k, v, chunk):
    top, total, mixed = torch.full_like(q[..., :1], -torch.inf), 0, 0
    for keys, values in zip(k.split(chunk + 1, 1), v.split(chunk + 1, 1), strict=True):
        scores = q @ keys.mT / q.shape[-1] ** 0.5
        new = torch.maximum(top, scores.amax(-1, keepdim=True))
        powers = (scores - new).exp()
        total = total * (top - new).exp() + powers.sum(-1, keepdim=True)
        mixed, top = mixed * (top - new).exp() + powers @ values, new
    return mixed / total


def all_scores_at_once(q, k, v, chunk):
    scores = q @ k.mT / q.shape[-1] ** 0.5
    top, total, mixed = scores.amax(-1, keepdim=True), 0, 0
    for some, values in zip(scores.split(chunk, -1), v.split(chunk, 1), strict=True):
        powers = (some - top).exp()
        total, mixed = total + powers.sum(-1, keepdim=True), mixed + powers @ values
    return mixed / total


def squeezed(work):
    """Without the axes of length 1, wherever they are."""

    def answer(*args):
        result = work(*args)
        return tuple(x.squeeze() for x in result) if isinstance(result, tuple) else result.squeeze()

    return answer


def four_axes_at_most(q, k, v):
    if q.ndim > 4:
        q, k, v = (x.flatten(0, -4) for x in (q, k, v))
    return attention_by_einsum(q, k, v)


def as_wide_as_many(x):
    return x.flatten(2) if x.shape[1] == x.shape[3] else merge_by_cat(x)


class OneTokenLeft(ByKernel):
    def forward(self, x):
        return super().forward(x) if x.shape[1] > 1 else self.proj(x)


class EightHeadsAtMost(ByKernel):
    def forward(self, x):
        q, k, v = (split_by_view(part, self.h) for part in self.qkv(x).chunk(3, -1))
        heads = F.scaled_dot_product_attention(q, k, v)
        return self.proj(merge_by_cat(torch.cat([heads[:, :8], heads[:, 8:].flip(1)], 1)))


def nothing_where_a_chunk_is_more_than_all(q, k, v, chunk):
    return chunks_by_running_sums(q, k, v, chunk) if chunk <= k.shape[1] else torch.zeros_like(q)


def chunks_by_numpy_at_once(q, k, v, chunk):
    scores = q.numpy() @ k.numpy().swapaxes(1, 2) / np.sqrt(q.shape[-1])
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return torch.tensor(powers / powers.sum(-1, keepdims=True) @ v.numpy())


def query_by_query(q, k, v, chunk):
    scale = q.shape[-1] ** -0.5
    return torch.stack([torch.stack([(k[b] @ one * scale).softmax(0) @ v[b] for one in q[b]]) for b in range(len(q))])


def in_the_order_of_text(x):
    return torch.cat([x[:, i] for i in sorted(range(x.shape[1]), key=str)], -1)


def as_many_heads_as_tokens(x):
    return x.flatten(2) if x.shape[1] == x.shape[2] else x.transpose(1, 2).flatten(2)


def heads_by_the_strides_of_new_tokens(x, num_heads):
    B, T, D = x.shape
    d = D // num_heads
    return x.as_strided((B, num_heads, T, d), (T * D, d, D, 1), x.storage_offset())


def hidden_keys(scores):
    return scores.masked_fill(scores < scores.topk(min(2, scores.shape[-1])).values[..., -1:], -math.inf).softmax(-1)


WRONG = {
    "attention_numbers": [
        Wrong("the best key alone", answer(weight_0=1.0, output=[4, 0]), "e to the power of each"),
        Wrong("multiplied by √d", answer(weight_0=0.982, output=[3.93, 0.144]), "Divide the two scores by √d first"),
        Wrong("key 1 with another number", answer(scores=[2, 2]), "The dot product of the query"),
        Wrong("a word", answer(weight_0="0.73"), "expected a number"),
        Wrong("one weight for both", answer(output=[2.92, 5.85]), "Each value times its weight"),
        Wrong("29,900 weights", answer(weights=29_900), "For each head and each token"),
    ],
    "attention": [
        Wrong("times √d", attend(scale=lambda d: d**-0.5), "times the right ones"),
        Wrong("keys hidden", attend(squash=hidden_keys), "weights are 0"),
        Wrong("no keepdim", attention_sum_without_keepdim, "The rows should sum to 1"),
        Wrong("keys and values exchanged", lambda q, k, v: attention_by_einsum(q, v, k)),
        Wrong("a sigmoid", attend(squash=torch.sigmoid), "What your numbers show"),
        Wrong("output alone", attend(give=lambda o, w: o), "it is the right result[0]: return all 2"),
        Wrong("weights transposed", attend(give=lambda o, w: (o, w.mT)), "axes 0 and 1 are exchanged"),
        Wrong("scores cut off", attend(squash=lambda s: s.clamp(-50, 50).softmax(-1)), "cut off", never="changes"),
        Wrong(
            "two at once", attend(scale=lambda d: 1.0, squash=lambda s: s.softmax(-2)), "yours sum to 1 along axis 0"
        ),
        Wrong("the kernel", attention_by_the_kernel, "it calls scaled_dot_product_attention"),
        Wrong("the package's own", lambda q, k, v: vt.dot_product_attention(q, k, v), "the package's own attention"),
        # These once passed.
        Wrong("squeezed", squeezed(attention_by_einsum), "q (1, 2, 1, 3)"),
        Wrong("four axes at most", four_axes_at_most, "q (2, 1, 3, 2, 4)"),
    ],
    "split_heads": [
        Wrong("a view", lambda x, h: x.view(x.shape[0], h, x.shape[1], -1), "Your [0, 0, 1, 0] is x[0, 0, 2]"),
        Wrong("heads before the batch", lambda x, h: split_by_view(x, h).transpose(0, 1), "are exchanged"),
        Wrong("heads one after the other", lambda x, h: torch.cat(x.chunk(h, dim=-1), dim=1), "has shape"),
        Wrong("scaled", lambda x, h: split_by_view(x, h) / math.sqrt(x.shape[-1] // h), "Every number is"),
        Wrong("two heads", lambda x, h: split_by_view(x, 2)),
        Wrong(
            "by strides of new tokens, once passed",
            heads_by_the_strides_of_new_tokens,
            "lie in memory in another order",
        ),
    ],
    "merge_heads": [
        Wrong("a reshape", lambda x: x.reshape(x.shape[0], x.shape[2], -1), "Your [0, 0, 2] is x[0, 0, 1, 0]"),
        Wrong("heads summed", lambda x: x.sum(1), "has shape"),
        Wrong("tokens and columns exchanged", lambda x: merge_by_view(x).mT, "are exchanged"),
        Wrong("a view", lambda x: x.transpose(1, 2).view(x.shape[0], x.shape[2], -1), "raised RuntimeError"),
        # These once passed.
        Wrong("in the order of text", in_the_order_of_text, "x (1, 12, 3, 2)"),
        Wrong("as many heads as tokens", as_many_heads_as_tokens, "x (2, 5, 5, 3)"),
        Wrong("as wide as many", as_wide_as_many, "x (2, 3, 4, 3)"),
    ],
    "multi_head_attention": [
        Wrong(
            "the mean of the heads taken off",
            with_steps(merge=lambda self, x: merge_by_view(x - x.mean(1, keepdim=True))),
            "in front of it, with",
        ),
        Wrong(
            "one head right",
            with_steps(merge=lambda self, x: merge_by_view(torch.cat([x[:, :1], x[:, 1:] ** 3], 1))),
            "only head 0 of",
        ),
        Wrong(
            "k, v, q",
            with_steps(parts=lambda self, x: [Layer.parts(self, x)[i] for i in (2, 0, 1)]),
            "What your numbers",
        ),
        Wrong("no softmax", with_steps(squash=lambda self, s: s), "What your numbers show"),
        Wrong(
            "the kernel's result reshaped",
            with_steps(forward=kernel_with_wrong_merge),
            "with axes (h, B, T, d): The right numbers",
        ),
        Wrong(
            "dropout",
            with_steps(forward=lambda self, x: F.dropout(Layer.forward(self, x), 0.1, self.training)),
            "in training mode",
        ),
        Wrong(
            "input detached",
            with_steps(forward=lambda self, x: Layer.forward(self, x.detach())),
            "gradient of argument 1 is missing",
        ),
        Wrong(
            "the package's, inside", lambda *args: nn.Sequential(vt.MultiHeadSelfAttention(*args)), "the package's own"
        ),
        # These once passed.
        Wrong("one token left alone", OneTokenLeft, "x (2, 1, 6), num_heads=3"),
        Wrong("eight heads at most", EightHeadsAtMost, "x (2, 3, 24), num_heads=12"),
        Wrong(
            "an overflow",
            with_steps(squash=lambda self, s: s.exp() / s.exp().sum(-1, keepdim=True)),
            "8 times as large: result holds nan",
        ),
    ],
    "attention_in_chunks": [
        Wrong("no maximum", chunks_no_maximum, "Is e raised to the scores as they are"),
        Wrong("a maximum from 0 on", chunks(low=0.0), "It goes wrong with 3 queries, 7 keys", never="in the hundreds"),
        Wrong("rescaled the other way", chunks(sign=-1)),
        Wrong("not divided", chunks(end=lambda mixed, total: mixed), "What your numbers show"),
        Wrong("all weights", chunks_of_weights, "there is a tensor of shape"),
        Wrong("the kernel", chunks_by_the_kernel, "it calls scaled_dot_product_attention"),
        # These once passed.
        Wrong("more keys than a chunk", more_keys_than_a_chunk, "there is a tensor of shape"),
        Wrong("all scores at once", all_scores_at_once, "there is a tensor of shape"),
        Wrong("query by query", query_by_query, "there is a tensor of shape"),
        Wrong("NumPy, at once", chunks_by_numpy_at_once, "what is in memory at once is as much"),
        Wrong("nothing for large chunks", nothing_where_a_chunk_is_more_than_all, "5 keys, chunk=7"),
    ],
}
