"""Right answers to the exercises of lesson 05, written in different ways: no check may find fault with them."""

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

import vit_tutorial as vt

NUMBERS = {
    "normed": [-1, -1, 1, 1], "again": [-1, -1, 1, 1], "block": [3, 3, 7, 9], "kept": 5, "parameters": 172,
}  # fmt: skip


def norm_by_var(x, weight, bias, eps):
    mean, variance = x.mean(-1, keepdim=True), x.var(-1, keepdim=True, unbiased=False)
    return (x - mean) / torch.sqrt(variance + eps) * weight + bias


def norm_by_squares(x, weight, bias, eps):
    centred = x - x.mean(dim=-1, keepdim=True)
    return centred * torch.rsqrt(centred.pow(2).mean(dim=-1, keepdim=True) + eps) * weight + bias


def norm_by_torch(x, weight, bias, eps):
    return F.layer_norm(x, (x.shape[-1],), weight, bias, eps)


def norm_token_by_token(x, weight, bias, eps):
    D, rows = x.shape[-1], []
    for token in x.reshape(-1, D):
        centred = token - token.sum() / D
        rows.append(centred / (centred.square().sum() / D + eps) ** 0.5 * weight + bias)
    return torch.stack(rows).reshape(x.shape)


class ByRand(nn.Module):
    def __init__(self, p):
        super().__init__()
        self.p = p

    def forward(self, x):
        if not self.training or self.p == 0:
            return x
        keep = (torch.rand(x.shape[0], *[1] * (x.ndim - 1)) >= self.p).float()
        return x * keep / (1 - self.p)


class ByBernoulli(ByRand):
    """Scaled first, then dropped; and the mask drawn from the end of the batch."""

    def forward(self, x):
        if self.training and self.p > 0:
            mask = torch.bernoulli(torch.full((len(x),), 1 - self.p)).flip(0)
            x = torch.einsum("b,b...->b...", mask, x / (1 - self.p))
        return x


class ByDropout(nn.Module):
    """torch's own dropout, on one number an image."""

    def __init__(self, p):
        super().__init__()
        self.drop = nn.Dropout(p)

    def forward(self, x):
        return x * self.drop(torch.ones(x.size(0), 1, 1))


class ByLoop(ByRand):
    def forward(self, x):
        if not self.training:
            return x
        draws = torch.rand(len(x)).tolist()
        return torch.stack(
            [0 * image if u < self.p else image / (1 - self.p) for u, image in zip(draws, x, strict=True)]
        )


class Block(nn.Module):
    def __init__(self, dim, num_heads, mlp_dim, dropout=0.0, drop_path=0.0):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim, eps=1e-6), nn.LayerNorm(dim, eps=1e-6)
        self.attention = vt.MultiHeadSelfAttention(dim, num_heads, dropout=dropout)
        self.mlp = vt.MLP(dim, mlp_dim, dropout=dropout)
        self.drop_path = vt.DropPath(drop_path)

    def forward(self, z):
        z = self.drop_path(self.attention(self.norm1(z))) + z
        return self.drop_path(self.mlp(self.norm2(z))) + z


class WithTorchsAttention(Block):
    """nn.MultiheadAttention, the student's own drop path, and dropout on what the branches return."""

    def __init__(self, dim, num_heads, mlp_dim, dropout=0.0, drop_path=0.0):
        super().__init__(dim, num_heads, mlp_dim, 0.0, 0.0)
        self.attention = nn.MultiheadAttention(dim, num_heads, batch_first=True)
        self.drop, self.skip1, self.skip2 = nn.Dropout(dropout), ByRand(drop_path), ByDropout(drop_path)

    def forward(self, z):
        x = self.norm1(z)
        z_prime = z + self.skip1(self.drop(self.attention(x, x, x, need_weights=False)[0]))
        return z_prime + self.skip2(self.drop(self.mlp(self.norm2(z_prime))))


class AroundTorchsLayer(nn.Module):
    """torch's whole layer without drop path; with it, the branches are what it adds."""

    def __init__(self, dim, num_heads, mlp_dim, dropout=0.0, drop_path=0.0):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(
            dim, num_heads, mlp_dim, dropout, "gelu", layer_norm_eps=1e-6, batch_first=True, norm_first=True
        )
        self.skip = ByBernoulli(drop_path)

    def forward(self, z):
        layer = self.layer
        x = layer.norm1(z)
        z = z + self.skip(layer.dropout1(layer.self_attn(x, x, x, need_weights=False)[0]))
        hidden = layer.dropout(F.gelu(layer.linear1(layer.norm2(z))))
        return z + self.skip(layer.dropout2(layer.linear2(hidden)))


class OutInOneExpression(Block):
    def forward(self, z):
        first, second = (
            lambda x: self.drop_path(self.attention(self.norm1(x))),
            lambda x: self.drop_path(self.mlp(self.norm2(x))),
        )
        branch = first(z)
        return z + branch + second(z + branch)


class Stack(nn.Module):
    def __init__(self, dim, num_heads, mlp_dim, depth, drop_path=0.0):
        super().__init__()
        rates = torch.linspace(0, drop_path, depth).tolist()
        self.blocks = nn.ModuleList(vt.EncoderBlock(dim, num_heads, mlp_dim, drop_path=rate) for rate in rates)
        self.norm = nn.LayerNorm(dim, eps=1e-6)

    def forward(self, z):
        for block in self.blocks:
            z = block(z)
        return self.norm(z)


class InSequence(nn.Module):
    def __init__(self, dim, num_heads, mlp_dim, depth, drop_path=0.0):
        super().__init__()
        self.blocks = nn.Sequential()
        for i in range(depth):
            rate = drop_path * i / (depth - 1) if depth > 1 else 0.0
            self.blocks.append(vt.EncoderBlock(dim, num_heads, mlp_dim, drop_path=rate))
        self.norm = nn.LayerNorm(dim, 1e-6)

    def forward(self, z):
        return self.norm(self.blocks(z))


class OfOwnBlocks(Stack):
    def __init__(self, dim, num_heads, mlp_dim, depth, drop_path=0.0):
        super().__init__(dim, num_heads, mlp_dim, 0)
        step = drop_path / max(1, depth - 1)
        for i in range(depth):
            self.blocks.append(Block(dim, num_heads, mlp_dim, 0.0, i * step))


SOLUTIONS = {
    "block_numbers": (
        lambda: NUMBERS,
        lambda: NUMBERS | {"normed": torch.tensor([-1.0, -1, 1, 1]), "kept": 5.0, "parameters": np.int64(172)},
        lambda: NUMBERS | {"again": (-1.0, -1.0, 1.0, 1.0), "block": np.array([3, 3, 7, 9])},
    ),
    "layer_norm": (norm_by_var, norm_by_squares, norm_by_torch, norm_token_by_token),
    "drop_path": (ByRand, ByBernoulli, ByDropout, ByLoop),
    "encoder_block": (Block, WithTorchsAttention, AroundTorchsLayer, OutInOneExpression),
    "encoder": (Stack, InSequence, OfOwnBlocks),
}
