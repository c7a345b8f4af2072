"""Answers to the exercises of lesson 03: right ones in different styles, and wrong ones, each with its report."""

import math

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


RIGHT = {
    "attention_numbers": (lambda: NUMBERS,),
    "attention": (attention_by_einsum, attention_by_hand),
    "split_heads": (split_by_einops, split_by_chunks),
    "merge_heads": (merge_by_einops, merge_by_cat),
    "multi_head_attention": (ByKernel, ByLoop),
    "attention_in_chunks": (chunks_by_running_sums, chunks_by_logsumexp),
}

# ---- Wrong ones ------------------------------------------------------------------------------------------------------


def answer(**wrong):
    """The right answers but for some, whose keys have _ for a space."""
    return lambda: NUMBERS | {key.replace("_", " "): value for key, value in wrong.items()}


def with_weights_transposed(q, k, v):
    output, weights = attention_by_hand(q, k, v)
    return output, weights.mT


class WithDropout(ByLoop):
    def forward(self, x):
        return F.dropout(super().forward(x), 0.1, self.training)


class InputDetached(ByLoop):
    def forward(self, x):
        return super().forward(x.detach())


def chunks_by_the_kernel(q, k, v, chunk):
    return F.scaled_dot_product_attention(q, k, v)


def chunks_of_weights(q, k, v, chunk):
    """The whole table, then used in chunks."""
    weights = (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1)
    return sum(w @ x for w, x in zip(weights.split(chunk, -1), v.split(chunk, 1), strict=True))


def squeezed(work):
    """Without the axes of length 1, wherever they are."""

    def answer(*args):
        result = work(*args)
        return tuple(x.squeeze() for x in result) if isinstance(result, tuple) else result.squeeze()

    return answer


def nothing_where_a_chunk_is_more_than_all(q, k, v, chunk):
    return chunks_by_running_sums(q, k, v, chunk) if chunk <= k.shape[1] else torch.zeros_like(q)


WRONG = {
    "attention_numbers": [
        Wrong("the best key alone", answer(weight_0=1.0, output=[4, 0]), "e to the power of each"),
        Wrong("key 1 with another number", answer(scores=[2, 2]), "The dot product of the query"),
    ],
    "attention": [
        Wrong("weights transposed", with_weights_transposed, "axes 0 and 1 are exchanged"),
        Wrong("the kernel", attention_by_the_kernel, "it calls scaled_dot_product_attention"),
        Wrong("squeezed", squeezed(attention_by_einsum), "q (1, 2, 1, 3)"),
    ],
    "split_heads": [
        Wrong("heads before the batch", lambda x, h: split_by_view(x, h).transpose(0, 1), "are exchanged"),
        Wrong("scaled", lambda x, h: split_by_view(x, h) / math.sqrt(x.shape[-1] // h), "Every number is"),
        Wrong("a view", lambda x, h: x.view(x.shape[0], h, x.shape[1], -1), "It looks like a reshape to (B, h, T, d)"),
    ],
    "merge_heads": [
        Wrong("heads summed", lambda x: x.sum(1), "has shape"),
        Wrong("tokens and columns exchanged", lambda x: merge_by_view(x).mT, "are exchanged"),
        Wrong("a view", lambda x: x.transpose(1, 2).view(x.shape[0], x.shape[2], -1), "raised RuntimeError"),
    ],
    "multi_head_attention": [
        Wrong("dropout", WithDropout, "in training mode"),
        Wrong("input detached", InputDetached, "gradient of argument 1 is missing"),
        Wrong(
            "the package's, inside", lambda *args: nn.Sequential(vt.MultiHeadSelfAttention(*args)), "the package's own"
        ),
    ],
    "attention_in_chunks": [
        Wrong("all weights", chunks_of_weights, "there is a tensor of shape"),
        Wrong("the kernel", chunks_by_the_kernel, "it calls scaled_dot_product_attention"),
        Wrong("nothing for large chunks", nothing_where_a_chunk_is_more_than_all, "5 keys, chunk=7"),
    ],
}
