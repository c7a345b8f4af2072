"""Right answers to the exercises of lesson 06, written in different ways: no check may find fault with them."""

import math
from itertools import pairwise

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

import vit_tutorial as vt

NUMBERS = {"tokens": 25, "E": 3088, "the rest of Eq. 1": 416, "attention": 1088, "products": 20_000,
           "first loss": 2.303}  # fmt: skip


class ByLoop(nn.Module):
    """A ModuleList, and the class token normed alone."""

    def __init__(self, image_size, patch_size, in_channels, num_classes, dim, depth, num_heads, mlp_dim, pool):
        super().__init__()
        self.pool = pool
        self.embed = vt.Embeddings(image_size, patch_size, in_channels, dim, class_token=pool == "cls")
        self.blocks = nn.ModuleList(vt.EncoderBlock(dim, num_heads, mlp_dim) for _ in range(depth))
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.head = nn.Linear(dim, num_classes)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, images):
        z = self.embed(images)
        for block in self.blocks:
            z = block(z)
        y = self.norm(z[:, 0]) if self.pool == "cls" else self.norm(z).mean(1)
        return self.head(y)


class ByDefaults(nn.Module):
    """torch's eps, the mean as a product, the head's parameters made by hand."""

    def __init__(self, *sizes):
        super().__init__()
        image_size, patch_size, in_channels, num_classes, dim, depth, num_heads, mlp_dim, self.pool = sizes
        self.embed = vt.Embeddings(image_size, patch_size, in_channels, dim, class_token=int(self.pool == "cls"))
        self.blocks = nn.Sequential()
        for layer in range(depth):
            self.blocks.append(vt.EncoderBlock(dim, num_heads, mlp_dim))
            assert len(self.blocks) == layer + 1
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Module()
        self.head.weight = nn.Parameter(torch.zeros(num_classes, dim))
        self.head.bias = nn.Parameter(torch.zeros(num_classes))

    def forward(self, images):
        z = self.norm(self.blocks(self.embed(images)))  # (B, T, D)
        T = z.shape[1]
        pick = torch.eye(T)[0] if self.pool == "cls" else torch.ones(T) / T
        return F.linear(torch.einsum("t,btd->bd", pick, z), self.head.weight, self.head.bias)


class OwnBlock(nn.Module):
    """A block written out, on torch's functions."""

    def __init__(self, dim, num_heads, mlp_dim):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim, 1e-6), nn.LayerNorm(dim, 1e-6)
        self.attention = nn.Module()
        self.attention.qkv, self.attention.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Module()
        self.mlp.fc1, self.mlp.fc2 = nn.Linear(dim, mlp_dim), nn.Linear(mlp_dim, dim)
        self.num_heads = num_heads

    def forward(self, z):
        qkv = self.attention.qkv(self.norm1(z)).unflatten(-1, (3, self.num_heads, -1))
        q, k, v = (part.transpose(1, 2) for part in qkv.unbind(2))
        z = z + self.attention.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return z + self.mlp.fc2(F.gelu(self.mlp.fc1(self.norm2(z))))


class FromScratch(nn.Module):
    """Nothing of the package but the embeddings."""

    def __init__(self, image_size, patch_size, in_channels, num_classes, dim, depth, num_heads, mlp_dim, pool):
        super().__init__()
        self.embed = vt.Embeddings(image_size, patch_size, in_channels, dim, class_token=pool == "cls")
        self.blocks = nn.Sequential(*(OwnBlock(dim, num_heads, mlp_dim) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(dim, eps=1e-6), nn.Linear(dim, num_classes)
        self.head.requires_grad_(False).weight.zero_()
        self.head.bias.zero_()
        self.head.requires_grad_(True)
        self.last = 1 if pool == "cls" else None

    def forward(self, images):
        z = self.norm(self.blocks(self.embed(images)))
        return self.head(z[:, : self.last].mean(dim=1))


def rates_by_linspace(depth, last):
    return torch.linspace(0, last, depth).tolist()


def rates_by_steps(depth, last):
    rates = [0.0]
    while len(rates) < depth:
        rates.append(rates[-1] + last / (depth - 1))
    return rates


def rates_by_numpy(depth, last):
    return list(np.linspace(0.0, last, depth))


def sums(image_size, P, C, K, D, L, h, M):
    N = (image_size[0] // P) * (image_size[1] // P)
    return N, N + 1


def parameters_by_formula(image_size, P, C, K, D, L, h, M):
    _, T = sums(image_size, P, C, K, D, L, h, M)
    return {
        "embeddings": D * (C * P * P + 2 + T), "attention": 4 * L * (D * D + D), "mlp": L * (2 * D * M + M + D),
        "norms": (4 * L + 2) * D, "head": K * D + K,
    }  # fmt: skip


def parameters_by_counting(image_size, patch_size, in_channels, num_classes, dim, depth, num_heads, mlp_dim):
    def count(*modules):
        return sum(p.numel() for module in modules for p in module.parameters())

    with torch.device("meta"):
        model = vt.ViT(vt.ViTConfig(image_size, patch_size, in_channels, num_classes, dim, depth, num_heads, mlp_dim))
    return {
        "embeddings": count(model.embed),
        "attention": count(*(block.attention for block in model.blocks)),
        "mlp": count(*(block.mlp for block in model.blocks)),
        "norms": count(*(m for m in model.modules() if isinstance(m, nn.LayerNorm))),
        "head": count(model.head),
    }


def parameters_by_shapes(image_size, P, C, K, D, L, h, M):
    def dense(*widths):
        return sum(a * b + b for a, b in pairwise(widths))

    _, T = sums(image_size, P, C, K, D, L, h, M)
    return {
        "embeddings": np.int64(dense(C * P * P, D) + np.prod((T + 1, D))),
        "attention": L * (dense(D, 3 * D) + dense(D, D)),
        "mlp": L * dense(D, M, D),
        "norms": torch.tensor((2 * L + 1) * 2 * D),
        "head": dense(D, K),
        "total": 0,  # more than was asked for
    }


def macs_by_formula(image_size, P, C, K, D, L, h, M):
    N, T = sums(image_size, P, C, K, D, L, h, M)
    return {"patches": N * C * P * P * D, "projections": 4 * L * T * D * D, "products": 2 * L * T * T * D,
            "mlp": 2 * L * T * D * M, "head": K * D}  # fmt: skip


def macs_by_products(image_size, P, C, K, D, L, h, M):
    def product(n, k, m):
        return n * k * m

    N, T = sums(image_size, P, C, K, D, L, h, M)
    d = D // h
    return {
        "patches": product(N, C * P * P, D),
        "projections": L * (product(T, D, 3 * D) + product(T, D, D)),
        "products": L * h * (product(T, d, T) + product(T, T, d)),
        "mlp": L * (product(T, D, M) + product(T, M, D)),
        "head": product(1, D, K),
    }


def macs_by_layers(image_size, P, C, K, D, L, h, M):
    N, T = sums(image_size, P, C, K, D, L, h, M)
    found = dict.fromkeys(("projections", "products", "mlp"), 0)
    for _ in range(L):
        found["projections"] += 4 * T * D**2
        found["products"] += 2 * T**2 * D
        found["mlp"] += 2 * T * D * M
    return found | {"patches": float(N * D * C * P**2), "head": np.float64(D * K)}


def maps_by_the_method(model, images):
    z, maps = model.embed(images), []
    for block in model.blocks:
        maps.append(block.attention.attention_weights(block.norm1(z)))
        z = block(z)
    return maps


def maps_by_hooks(model, images):
    entered = []
    hooks = [b.norm1.register_forward_hook(lambda module, inputs, output: entered.append(output)) for b in model.blocks]
    model.blocks(model.embed(images))
    for hook in hooks:
        hook.remove()
    maps = []
    for block, x in zip(model.blocks, entered, strict=True):
        q, k, _ = block.attention.qkv(x).chunk(3, dim=-1)
        q, k = (part.unflatten(-1, (block.attention.num_heads, -1)).transpose(1, 2) for part in (q, k))
        maps.append(torch.softmax(torch.einsum("bhid,bhjd->bhij", q, k) / math.sqrt(q.shape[-1]), dim=-1))
    return maps


def maps_step_by_step(model, images):
    """The whole forward pass by hand, with the package's attention."""
    z, maps = model.embed(images), ()
    for block in model.blocks:
        out, weights = vt.attention(*block.attention.split_heads(block.norm1(z)))
        z = z + block.attention.proj(out.transpose(1, 2).flatten(2))
        z = z + block.mlp(block.norm2(z))
        maps += (weights,)
    return maps


SOLUTIONS = {
    "vit_numbers": (
        lambda: NUMBERS,
        lambda: NUMBERS | {"tokens": torch.tensor(25), "E": np.int64(3088), "first loss": math.log(10)},
        lambda: NUMBERS | {"first loss": torch.tensor(2.3), "products": 2e4},
    ),
    "vit": (ByLoop, ByDefaults, FromScratch),
    "drop_path_rates": (rates_by_linspace, rates_by_steps, rates_by_numpy),
    "count_parameters": (parameters_by_formula, parameters_by_counting, parameters_by_shapes),
    "count_macs": (macs_by_formula, macs_by_products, macs_by_layers),
    "attention_maps": (maps_by_the_method, maps_by_hooks, maps_step_by_step),
}
