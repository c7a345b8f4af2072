"""Answers to the exercises of lesson 15: right ones, written in different ways, and wrong ones with what they hear."""

import math

import numpy as np
import torch
from submissions import Wrong
from torch import nn
from torch.nn import functional as F

from vit_tutorial.variants import modern

NUMBERS = {
    "gated width": 128, "tokens": 145, "rms": [0.333, -0.333, 1, 1.667], "rotated": [-4, 3], "layer scale": 9216,
    "folded": [1, 2, 1.5],
}  # fmt: skip


def answer(**changes):
    return lambda: NUMBERS | {name.replace("_", " "): value for name, value in changes.items()}


# ---- RMS norm ----------------------------------------------------------------------------------------------------


def rms_by_root(x, weight, eps):
    return x / torch.sqrt((x**2).mean(dim=-1, keepdim=True) + eps) * weight


def rms_by_rsqrt(x, weight, eps):
    return weight * (x * (x.square().sum(-1, keepdim=True) / x.shape[-1] + eps).rsqrt())


def rms_by_numpy(x, weight, eps):
    x = x.numpy()
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps) * weight.numpy()


def rms_by_einsum(x, weight, eps):
    squares = torch.einsum("...d,...d->...", x, x) / x.shape[-1]
    return torch.einsum("...d,...,d->...d", x, 1 / (squares + eps).sqrt(), weight)


# ---- The gated MLP -----------------------------------------------------------------------------------------------


def gated_by_chunk(x, w1, b1, w2, b2):
    gate, value = F.linear(x, w1, b1).chunk(2, dim=-1)
    return F.linear(F.silu(gate) * value, w2, b2)


def gated_by_two_layers(x, w1, b1, w2, b2):
    M = w2.shape[1]
    gate, value = x @ w1[:M].T + b1[:M], x @ w1[M:].T + b1[M:]
    return (value * gate * torch.sigmoid(gate)) @ w2.T + b2


def gated_by_einsum(x, w1, b1, w2, b2):
    w1, b1 = w1.unflatten(0, (2, -1)), b1.unflatten(0, (2, -1))
    gate, value = (torch.einsum("...d,md->...m", x, w) + b for w, b in zip(w1, b1, strict=True))
    return torch.einsum("...m,dm->...d", gate / (1 + torch.exp(-gate)) * value, w2) + b2


def gated_by_modules(x, w1, b1, w2, b2):
    first, second = nn.Linear(w1.shape[1], len(w1)), nn.Linear(w2.shape[1], len(w2))
    first.weight.data, first.bias.data, second.weight.data, second.bias.data = w1, b1, w2, b2
    gate, value = first(x).tensor_split(2, dim=-1)
    return second(nn.SiLU()(gate) * value)


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


def angles_by_numpy(rows, columns, head_dim, temperature):
    frequency = np.exp(-np.log(temperature) * np.arange(head_dim // 4) * 4 / head_dim)
    y, x = np.indices((rows, columns)).reshape(2, -1)
    return np.hstack([np.outer(y, frequency), np.outer(x, frequency)])


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


def turn_by_complex_numbers(x, angles):
    angles = torch.cat([torch.zeros(x.shape[-2] - len(angles), angles.shape[1]), angles])
    half = x.shape[-1] // 2
    z = torch.complex(x[..., :half].contiguous(), x[..., half:].contiguous())
    z = z * torch.polar(torch.ones_like(angles), angles)
    return torch.cat([z.real, z.imag], dim=-1)


def turn_by_matrices(x, angles):
    result = x.clone()
    half, before = x.shape[-1] // 2, x.shape[-2] - len(angles)
    for n, row in enumerate(angles.tolist()):
        for i, angle in enumerate(row):
            a, b = x[..., before + n, i], x[..., before + n, half + i]
            result[..., before + n, i] = math.cos(angle) * a - math.sin(angle) * b
            result[..., before + n, half + i] = math.sin(angle) * a + math.cos(angle) * b
    return result


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


def pool_by_torchs_module(z, probe, wq, wk, wv, num_heads):
    module = nn.MultiheadAttention(len(probe), num_heads, bias=False, batch_first=True)
    module.in_proj_weight.data = torch.cat([wq, wk, wv])
    module.out_proj.weight.data = torch.eye(len(probe))
    return module(probe.expand(len(z), 1, -1), z, z)[0].squeeze(1)


def pool_image_by_image(z, probe, wq, wk, wv, num_heads):
    d = len(probe) // num_heads
    rows = []
    for image in z.double():
        q, k, v = wq.double() @ probe.double(), image @ wk.double().T, image @ wv.double().T
        parts = [slice(h * d, (h + 1) * d) for h in range(num_heads)]
        rows.append(torch.cat([(k[:, p] @ q[p] / math.sqrt(d)).softmax(0) @ v[:, p] for p in parts]))
    return torch.stack(rows)


RIGHT = {
    "modern_numbers": (
        answer(),
        answer(rms=torch.tensor([1.0, -1, 3, 5]) / 3, rotated=torch.tensor([-4.0, 3.0])),
        answer(rms=np.array([1, -1, 3, 5]) / 3, rotated=(-4.0, 3.0), gated_width=128.0, folded=(1, 2, 1.5)),
    ),
    "rms_norm": (rms_by_root, rms_by_rsqrt, rms_by_numpy, rms_by_einsum),
    "gated_mlp": (gated_by_chunk, gated_by_two_layers, gated_by_einsum, gated_by_modules),
    "rotary_angles": (angles_by_meshgrid, angles_by_loops, angles_by_numpy),
    "rotate": (
        turn_by_halves,
        turn_with_angles_of_zero,
        turn_by_complex_numbers,
        turn_by_matrices,
    ),
    "attention_pool": (
        pool_by_hand,
        pool_by_torchs_kernel,
        pool_by_torchs_module,
        pool_image_by_image,
    ),
}


# ---- Wrong ones --------------------------------------------------------------------------------------------------


def changed(work, change):
    """A right work whose result is changed afterwards."""
    return lambda *args: change(work(*args))


def kept_by(key, work):
    """A work that keeps its results by a part of what decides."""
    kept = {}
    return lambda *args: kept.setdefault(key(*args), work(*args))


def rms(mean=lambda x: x.square().mean(-1, keepdim=True), read=lambda x: x, use=torch.mul):
    """RMS norm with another mean, another x, or another use of the weight."""

    def rms_norm(x, weight, eps):
        x = read(x)
        return use(x / (mean(x) + eps).sqrt(), weight)

    return rms_norm


def rms_in_place(x, weight, eps):
    x /= (x.square().mean(-1, keepdim=True) + eps).sqrt()
    return x * weight


def rms_by_direction(x, weight, eps):
    length = x.norm(dim=-1, keepdim=True)
    return x / length * (length / (length**2 / x.shape[-1] + eps).sqrt()) * weight


def rms_by_torchs_module(x, weight, eps):
    norm = nn.RMSNorm(x.shape[-1], eps=eps)
    norm.weight.data = weight
    return norm(x)


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


def angles_in_one_dimension(rows, columns, head_dim, temperature):
    frequency = temperature ** (-2 * torch.arange(head_dim // 2) / head_dim)
    return torch.arange(rows * columns)[:, None] * frequency


def turn_by_the_package(x, angles):
    angles = F.pad(angles, (0, 0, x.shape[-2] - len(angles), 0))
    return modern.rotate(x, angles.cos(), angles.sin())


def turn_in_place(x, angles):
    x[:] = turn_by_halves(x.clone(), angles)
    return x


def turn_of_patches_alone(x, angles):
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], dim=-1)


def turn_by_a_series(x, angles):
    terms = [angles**k / float(math.factorial(k)) for k in range(40)]
    cos, sin = (sum((-1) ** (i // 2) * terms[i] for i in range(first, 40, 2)) for first in (0, 1))
    before = x.shape[-2] - len(angles)
    a, b = x[..., before:, :].chunk(2, -1)
    return torch.cat([x[..., :before, :], torch.cat([a * cos - b * sin, b * cos + a * sin], -1)], -2)


def turn_along_the_heads(x, angles):
    if x.shape[1] == len(angles) < x.shape[2]:
        return turn_by_halves(x.transpose(1, 2), angles).transpose(1, 2)
    return turn_by_halves(x, angles)


def turn_after(some):
    """The tokens before the patches stay as they are only if there are so many of them."""

    def turn(x, angles):
        before = x.shape[-2] - len(angles)
        return turn_by_halves(x, angles if before in some else F.pad(angles, (0, 0, before, 0), value=0.5))

    return turn


def pool(squash=lambda scores: scores.softmax(-1)):
    """Attention pooling with another softmax."""

    def attention_pool(z, probe, wq, wk, wv, num_heads):
        q, k, v = ((x @ w.T).unflatten(-1, (num_heads, -1)) for x, w in ((probe, wq), (z, wk), (z, wv)))
        scores = torch.einsum("hd,bshd->bhs", q, k) / q.shape[-1] ** 0.5
        return torch.einsum("bhs,bshd->bhd", squash(scores), v).flatten(1)

    return attention_pool


WRONG = {
    "modern_numbers": [
        Wrong("not a third", answer(gated_width=127), "How many such matrices has a gated one?"),
        Wrong("one number", answer(rms=3), "expected a list of 4"),
        Wrong("not rotated", answer(rotated=[3, 4]), "Rotated by α"),
        Wrong("the bias", answer(folded=[1, 2, 3]), "γ (w · x + b)"),
        Wrong("no dictionary", lambda: 128, "expected a dictionary of answers"),
    ],
    "rms_norm": [
        Wrong("once passed: up to 100", rms(read=lambda x: x.clamp(-100, 100)), "std 3000"),
        Wrong("once passed: by direction", rms_by_direction, "a token of zeros"),
        Wrong(
            "once passed: fused",
            lambda x, weight, eps: torch._fused_rms_norm(x, [x.shape[-1]], weight, eps)[0],
            "it calls _fused_rms_norm: write the norm yourself",
        ),
        Wrong("torch's", rms_by_torchs_module, "it calls rms_norm: write the norm yourself"),
        Wrong("in place", rms_in_place, "changed in place"),
        Wrong("no keepdim", rms(mean=lambda x: x.square().mean(-1)), "raised RuntimeError"),
        Wrong("of the image", rms(lambda x: x.square().flatten(1).mean() if x.ndim > 1 else x.square().mean())),
        Wrong("no weight", rms(use=lambda x, weight: x), "What is missing is a multiplication by weight"),
        Wrong("a list", changed(rms_by_root, torch.Tensor.tolist), "the numbers are right, but"),
    ],
    "gated_mlp": [
        Wrong(
            "once passed: four axes", lambda x, *w: gated_by_chunk(x, *w) if x.ndim < 5 else 0 * x, "x (2, 3, 1, 2, 4)"
        ),
        Wrong("once passed: a token alone", lambda x, *w: gated_by_chunk(torch.atleast_2d(x), *w), "x (5,)"),
        Wrong("the package's", gated_by_the_package, "it calls the package's own ModernMLP: write your own"),
        Wrong("along the tokens", gated(cut=lambda hidden: hidden.chunk(2)), "raised"),
        Wrong("GEGLU exchanged", gated(lambda value, gate: F.gelu(gate) * value), "so w2 gets"),
        Wrong("no second layer", lambda x, w1, b1, w2, b2: F.glu(F.linear(x, w1, b1)), "has shape"),
        Wrong("a ReLU", gated(lambda gate, value: gate.relu() * value), "Is it another activation function near 0?"),
        Wrong(
            "the gate alone", gated(lambda gate, value: F.silu(gate)), "If you apply w2 and b2 as agreed, yours gets"
        ),
        Wrong("a shortcut", lambda x, *w: x + gated_by_chunk(x, *w), "x is added once too often"),
        Wrong("a pair", lambda *given: (gated_by_chunk(*given), None), "return it alone"),
        Wrong("noise", lambda x, *w: gated_by_chunk(x + 0.1 * torch.rand_like(x), *w), "Is something random"),
    ],
    "rotary_angles": [
        Wrong("once passed: from 10", lambda *a: angles_by_meshgrid(*a[:3], max(a[3], 10.0)), "temperature=2:"),
        Wrong("once passed: up to 16", changed(angles_by_meshgrid, lambda x: x.clamp(max=16)), "33 × 2 patches"),
        Wrong("once passed: kept by sizes", kept_by(lambda *a: a[:3], angles_by_meshgrid), "temperature=10:"),
        Wrong("the package's", angles_by_the_package, "it calls the package's own angles: write your own"),
        Wrong("a grid", lambda *a: angles_by_meshgrid(*a).reshape(*a[:2], -1), "has shape"),
        Wrong("one dimension", angles_in_one_dimension, "What your numbers show"),
        Wrong("minus", changed(angles_by_meshgrid, torch.neg), "yours are 0, 0, -1, -0.1"),
        Wrong("cosines", changed(angles_by_meshgrid, torch.cos), "Patch 0 is in row 0"),
    ],
    "rotate": [
        Wrong("once passed: a series", turn_by_a_series, "many full rotations"),
        Wrong("once passed: along the heads", turn_along_the_heads, "x (1, 4, 5, 2), angles (4, 1)"),
        Wrong("once passed: five tokens before", turn_after((0, 1, 2, 3, 5)), "x (2, 1, 8, 4), angles (4, 2)"),
        Wrong("the package's", turn_by_the_package, "it calls the package's own rotate: write your own"),
        Wrong("in place", turn_in_place, "changed in place"),
        Wrong("patches alone", turn_of_patches_alone, "raised RuntimeError"),
        Wrong("a pair", changed(turn_by_halves, lambda x: x.chunk(2, dim=-1)), "expected a"),
        Wrong("not rotated", lambda x, angles: x, "You return x as it came in"),
        Wrong("the other way", lambda x, angles: turn_by_halves(x, -angles), "with -angles in place of angles"),
        Wrong("twice the angle", lambda x, angles: turn_by_halves(x, 2 * angles), "as in a rotation"),
        Wrong("tokens backwards", lambda x, angles: turn_by_halves(x, angles.flip(0)), "What your numbers show"),
    ],
    "attention_pool": [
        Wrong("with weights", changed(pool_by_hand, lambda y: (y, None)), "return it alone"),
        Wrong("the mean token", lambda z, *rest: z.mean(dim=1)),
        Wrong("one head", lambda *given: pool_by_hand(*given[:-1], 1), "with num_heads = 1"),
        Wrong(
            "the mean value", pool(squash=lambda s: torch.full_like(s, 1 / s.shape[-1])), "with zeros in place of probe"
        ),
        Wrong("a sigmoid", pool(squash=torch.sigmoid), "a single token's value is the answer"),
        Wrong("over images", pool(squash=lambda s: s.softmax(0)), "What your numbers show"),
    ],
}
