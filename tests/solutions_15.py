"""Answers to the exercises of lesson 15: right ones in different styles, and wrong ones, each with its report."""

import torch
from submissions import Wrong
from torch.nn import functional as F

from vit_tutorial.variants import modern

NUMBERS = {
    "gated width": 128, "tokens": 145, "rms": [0.333, -0.333, 1, 1.667], "rotated": [-4, 3], "layer scale": 9216,
    "folded": [1, 2, 1.5], "slopes": [1, 0],
}  # fmt: skip


def answer(**changes):
    return lambda: NUMBERS | {name.replace("_", " "): value for name, value in changes.items()}


# ---- RMS norm ----------------------------------------------------------------------------------------------------


def rms_by_root(x, weight, eps):
    return x / torch.sqrt((x**2).mean(dim=-1, keepdim=True) + eps) * weight


def rms_by_rsqrt(x, weight, eps):
    return weight * (x * (x.square().sum(-1, keepdim=True) / x.shape[-1] + eps).rsqrt())


# ---- The gated MLP -----------------------------------------------------------------------------------------------


def gated_by_chunk(x, w1, b1, w2, b2):
    gate, value = F.linear(x, w1, b1).chunk(2, dim=-1)
    return F.linear(F.silu(gate) * value, w2, b2)


def gated_by_two_layers(x, w1, b1, w2, b2):
    M = w2.shape[1]
    gate, value = x @ w1[:M].T + b1[:M], x @ w1[M:].T + b1[M:]
    return (value * gate * torch.sigmoid(gate)) @ w2.T + b2


# ---- Rotary positions --------------------------------------------------------------------------------------------


def angles_by_meshgrid(rows, columns, head_dim, temperature):
    frequency = temperature ** (-4 * torch.arange(head_dim // 4) / head_dim)
    y, x = torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")
    return torch.cat([y.flatten()[:, None] * frequency, x.flatten()[:, None] * frequency], dim=1)


def angles_by_loops(rows, columns, head_dim, temperature):
    table = []
    for row in range(rows):
        for column in range(columns):
            steps = [temperature ** (-4 * k / head_dim) for k in range(head_dim // 4)]
            table.append([row * step for step in steps] + [column * step for step in steps])
    return torch.tensor(table)


def turn_by_halves(x, angles):
    before = x.shape[-2] - len(angles)
    a, b = x[..., before:, :].chunk(2, dim=-1)
    cos, sin = angles.cos(), angles.sin()
    turned = torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)
    return torch.cat([x[..., :before, :], turned], dim=-2)


def turn_with_angles_of_zero(x, angles):
    angles = F.pad(angles, (0, 0, x.shape[-2] - len(angles), 0))
    half = x.shape[-1] // 2
    swapped = torch.cat([-x[..., half:], x[..., :half]], dim=-1)
    return x * angles.cos().repeat(1, 2) + swapped * angles.sin().repeat(1, 2)


# ---- Attention pooling -------------------------------------------------------------------------------------------


def pool_by_hand(z, probe, wq, wk, wv, num_heads):
    q = (probe @ wq.T).unflatten(-1, (num_heads, -1))  # (h, d)
    k = (z @ wk.T).unflatten(-1, (num_heads, -1))  # (B, S, h, d)
    v = (z @ wv.T).unflatten(-1, (num_heads, -1))
    scores = torch.einsum("hd,bshd->bhs", q, k) / q.shape[-1] ** 0.5
    return torch.einsum("bhs,bshd->bhd", scores.softmax(-1), v).flatten(1)


def pool_by_torchs_kernel(z, probe, wq, wk, wv, num_heads):
    q, k, v = probe.expand(len(z), 1, -1) @ wq.T, z @ wk.T, z @ wv.T
    q, k, v = (x.unflatten(-1, (num_heads, -1)).transpose(1, 2) for x in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v).flatten(1)


RIGHT = {
    "modern_numbers": (answer(), answer(rms=torch.tensor([1.0, -1, 3, 5]) / 3, rotated=torch.tensor([-4.0, 3.0]))),
    "rms_norm": (rms_by_root, rms_by_rsqrt),
    "gated_mlp": (gated_by_chunk, gated_by_two_layers),
    "rotary_angles": (angles_by_meshgrid, angles_by_loops),
    "rotate": (turn_by_halves, turn_with_angles_of_zero),
    "attention_pool": (pool_by_hand, pool_by_torchs_kernel),
}


# ---- Wrong ones --------------------------------------------------------------------------------------------------


def changed(work, change):
    """A right work whose result is changed afterwards."""
    return lambda *args: change(work(*args))


def rms(mean=lambda x: x.square().mean(-1, keepdim=True), read=lambda x: x, use=torch.mul):
    """RMS norm with another mean, another x, or another use of the weight."""

    def rms_norm(x, weight, eps):
        x = read(x)
        return use(x / (mean(x) + eps).sqrt(), weight)

    return rms_norm


def gated(mix=lambda gate, value: F.silu(gate) * value, cut=lambda hidden: hidden.chunk(2, dim=-1)):
    """The gated MLP with another mixture or another cut."""

    def gated_mlp(x, w1, b1, w2, b2):
        return F.linear(mix(*cut(F.linear(x, w1, b1))), w2, b2)

    return gated_mlp


def gated_by_the_package(x, w1, b1, w2, b2):
    mlp = modern.ModernMLP(modern.ModernConfig(dim=len(b2), num_heads=1), w2.shape[1], gated=True)
    mlp.fc1.weight.data, mlp.fc1.bias.data, mlp.fc2.weight.data, mlp.fc2.bias.data = w1, b1, w2, b2
    return mlp(x)


def angles_by_the_package(rows, columns, head_dim, temperature):
    return modern.Rotary("index", temperature).angles((rows, columns), head_dim, like=torch.zeros(1))


WRONG = {
    "modern_numbers": [
        Wrong("not a third", answer(gated_width=127), "How many such matrices has a gated one?"),
        Wrong("one number", answer(rms=3), "expected a list of 4"),
    ],
    "rms_norm": [
        Wrong(
            "once passed: fused",
            lambda x, weight, eps: torch._fused_rms_norm(x, [x.shape[-1]], weight, eps)[0],
            "it calls _fused_rms_norm: write the norm yourself",
        ),
    ],
    "gated_mlp": [
        Wrong("once passed: a token alone", lambda x, *w: gated_by_chunk(torch.atleast_2d(x), *w), "x (5,)"),
        Wrong("the package's", gated_by_the_package, "it calls the package's own ModernMLP: write your own"),
    ],
    "rotary_angles": [
        Wrong("the package's", angles_by_the_package, "it calls the package's own angles: write your own"),
    ],
    "rotate": [Wrong("degrees", lambda x, angles: turn_by_halves(x, torch.deg2rad(angles)))],
    "attention_pool": [
        Wrong("with weights", changed(pool_by_hand, lambda y: (y, None)), "result is a tuple"),
    ],
}
