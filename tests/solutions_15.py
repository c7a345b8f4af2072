"""Answers to the exercises of lesson 15: right ones, written in different ways, and wrong ones with what they hear."""

import math

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

import vit_tutorial as vt
from vit_tutorial.variants import modern

NUMBERS = {
    "gated width": 128, "tokens": 145, "rms": [0.333, -0.333, 1, 1.667], "turned": [-4, 3], "layer scale": 9216,
    "folded": [1, 2, 1.5],
}  # fmt: skip


def answer(**changes):
    return lambda: NUMBERS | {name.replace("_", " "): value for name, value in changes.items()}


# ---- RMS norm ----------------------------------------------------------------------------------------------------


def rms_by_root(x, weight, eps):
    return x / torch.sqrt((x**2).mean(dim=-1, keepdim=True) + eps) * weight


def rms_by_rsqrt(x, weight, eps):
    return weight * (x * (x.square().sum(-1, keepdim=True) / x.shape[-1] + eps).rsqrt())


def rms_by_length(x, weight, eps):
    """The length is √D times the root of the mean square, but for eps."""
    D = x.shape[-1]
    length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return x * D**0.5 / (length.square() + D * eps).sqrt() * weight


def rms_in_doubles(x, weight, eps):
    x = x.double()
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


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


def gated_in_doubles(x, w1, b1, w2, b2):
    return gated_by_chunk(*(part.double() for part in (x, w1, b1, w2, b2)))


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


def angles_by_division(rows, columns, head_dim, temperature):
    n = torch.arange(rows * columns)
    place = torch.stack([n // columns, n % columns], dim=1)  # (N, 2)
    return (place[:, :, None] / temperature ** (torch.arange(head_dim // 4) / (head_dim / 4))).flatten(1)


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


def turn_in_doubles(x, angles):
    return turn_by_halves(x.double(), angles.double())


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


def pool_by_lessons_attention(z, probe, wq, wk, wv, num_heads):
    heads = []
    for q, k, v in zip(*((x @ w.T).chunk(num_heads, -1) for x, w in ((probe, wq), (z, wk), (z, wv))), strict=True):
        heads.append(vt.attention(q.expand(len(z), 1, -1), k, v)[0])
    return torch.cat(heads, dim=-1)[:, 0]


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


SOLUTIONS = {
    "modern_numbers": (
        answer(),
        answer(rms=torch.tensor([1.0, -1, 3, 5]) / 3, turned=torch.tensor([-4.0, 3.0])),
        answer(rms=np.array([1, -1, 3, 5]) / 3, turned=(-4.0, 3.0), gated_width=128.0, folded=(1, 2, 1.5)),
    ),
    "rms_norm": (rms_by_root, rms_by_rsqrt, rms_by_length, rms_in_doubles, rms_by_numpy, rms_by_einsum),
    "gated_mlp": (gated_by_chunk, gated_by_two_layers, gated_by_einsum, gated_by_modules, gated_in_doubles),
    "rotary_angles": (angles_by_meshgrid, angles_by_loops, angles_by_division, angles_by_numpy),
    "turn": (
        turn_by_halves,
        turn_with_angles_of_zero,
        turn_by_complex_numbers,
        turn_by_matrices,
        turn_in_doubles,
    ),
    "attention_pool": (
        pool_by_hand,
        pool_by_torchs_kernel,
        pool_by_lessons_attention,
        pool_by_torchs_module,
        pool_image_by_image,
    ),
}


# ---- Wrong, as students write it, and what each is told ----------------------------------------------------------


def rms_in_place(x, weight, eps):
    x /= (x.square().mean(-1, keepdim=True) + eps).sqrt()
    return x * weight


def rms_without_keepdim(x, weight, eps):
    return x / (x.square().mean(-1) + eps).sqrt() * weight


def rms_by_normalize(x, weight, eps):
    return F.normalize(x, dim=-1, eps=eps) * weight


def rms_by_bessel(x, weight, eps):
    return x / (x.square().sum(-1, keepdim=True) / (x.shape[-1] - 1) + eps).sqrt() * weight


def rms_by_torch(x, weight, eps):
    return F.rms_norm(x, (x.shape[-1],), weight, eps)


def rms_by_torchs_module(x, weight, eps):
    norm = nn.RMSNorm(x.shape[-1], eps=eps)
    norm.weight.data = weight
    return norm(x)


def layer_norm(x, weight, eps):
    return F.layer_norm(x, (x.shape[-1],), weight, eps=eps)


def gated_by_the_package(x, w1, b1, w2, b2):
    mlp = modern.ModernMLP(modern.ModernConfig(dim=len(b2), num_heads=1), w2.shape[1], gated=True)
    mlp.fc1.weight.data, mlp.fc1.bias.data, mlp.fc2.weight.data, mlp.fc2.bias.data = w1, b1, w2, b2
    return mlp(x)


def angles_by_the_package(rows, columns, head_dim, temperature):
    return modern.Rotary("index", temperature).angles((rows, columns), head_dim, like=torch.zeros(1))


def turn_by_the_package(x, angles):
    angles = F.pad(angles, (0, 0, x.shape[-2] - len(angles), 0))
    return modern.rotate(x, angles.cos(), angles.sin())


def gated_along_the_tokens(x, w1, b1, w2, b2):
    gate, value = F.linear(x, w1, b1).chunk(2)
    return F.linear(F.silu(gate) * value, w2, b2)


def gated_geglu_exchanged(x, w1, b1, w2, b2):
    value, gate = F.linear(x, w1, b1).chunk(2, dim=-1)
    return F.linear(F.gelu(gate) * value, w2, b2)


def gated_not_transposed(x, w1, b1, w2, b2):
    return x @ w1 + b1


def gated_as_two_parts(x, w1, b1, w2, b2):
    gate, value = F.linear(x, w1, b1).chunk(2, dim=-1)
    return F.silu(gate) * value


def angles_as_a_grid(rows, columns, head_dim, temperature):
    return angles_by_meshgrid(rows, columns, head_dim, temperature).reshape(rows, columns, -1)


def angles_as_a_list(rows, columns, head_dim, temperature):
    return angles_by_meshgrid(rows, columns, head_dim, temperature).tolist()


def angles_for_the_whole_width(rows, columns, head_dim, temperature):
    return angles_by_meshgrid(rows, columns, 2 * head_dim, temperature)


def angles_in_one_dimension(rows, columns, head_dim, temperature):
    frequency = temperature ** (-2 * torch.arange(head_dim // 2) / head_dim)
    return torch.arange(rows * columns)[:, None] * frequency


def angles_of_squares(rows, columns, head_dim, temperature):
    return angles_by_meshgrid(rows, rows, head_dim, temperature)


def turn_in_place(x, angles):
    before = x.shape[-2] - len(angles)
    half = x.shape[-1] // 2
    a, b = x[..., before:, :half], x[..., before:, half:]
    x[..., before:, :half] = a * angles.cos() - b * angles.sin()
    x[..., before:, half:] = b * angles.cos() + a * angles.sin()
    return x


def turn_of_patches_alone(x, angles):
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], dim=-1)


def turn_as_a_pair(x, angles):
    return turn_by_halves(x, angles).chunk(2, dim=-1)


def turn_as_complex(x, angles):
    half = x.shape[-1] // 2
    turned = turn_by_halves(x, angles)
    return torch.complex(turned[..., :half].contiguous(), turned[..., half:].contiguous())


def pool_with_weights(z, probe, wq, wk, wv, num_heads):
    return pool_by_hand(z, probe, wq, wk, wv, num_heads), None


def pool_of_tokens(z, probe, wq, wk, wv, num_heads):
    return z.mean(dim=1)


def pool_by_first_token(z, probe, wq, wk, wv, num_heads):
    return z[:, 0]


def pool_by_every_token(z, probe, wq, wk, wv, num_heads):
    q, k, v = ((z @ w.T).unflatten(-1, (num_heads, -1)).transpose(1, 2) for w in (wq, wk, wv))
    return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2).mean(1)


def pool_without_transpose(z, probe, wq, wk, wv, num_heads):
    q, k, v = probe.expand(len(z), 1, -1) @ wq.T, z @ wk.T, z @ wv.T
    q, k, v = (x.reshape(len(z), num_heads, -1, len(probe) // num_heads) for x in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v).flatten(1)


WRONG = {
    "modern_numbers": (
        (answer(gated_width=96), "half the width"),
        (answer(gated_width=127), "How many such matrices has a gated one?"),
        (answer(tokens=144), "the class token forgotten"),
        (answer(tokens=4), "Count the patches"),
        (answer(rms=[-0.447, -1.342, 0.447, 1.342]), "layer norm in place of RMS norm"),
        (answer(rms=[1, -1, 3, 5]), "Square the four numbers"),
        (answer(rms=3), "expected a list of 4"),
        (answer(turned=[4, -3]), "a turn the other way"),
        (answer(turned=[3, 4]), "Turned by α"),
        (answer(layer_scale=4608), "one vector a block"),
        (answer(layer_scale=384), "How many branches has a block?"),
        (answer(folded=[1, 2, 3]), "the bias left as it was"),
        (answer(folded=[1, 2]), "expected a list of 3"),
        (lambda: 128, "expected a dictionary of answers"),
    ),
    "rms_norm": (
        (rms_in_place, "changed in place"),
        (rms_without_keepdim, "raised RuntimeError"),
        (rms_by_normalize, "What your numbers show"),
        (rms_by_bessel, "What your numbers show"),
        (rms_by_torch, "it calls rms_norm: write the norm yourself"),
        (rms_by_torchs_module, "it calls rms_norm: write the norm yourself"),
        (layer_norm, "It looks like layer norm."),
        (lambda x, weight, eps: x, "You return x as it came in"),
        (lambda x, weight, eps: None, "result is None"),
        (lambda x, weight, eps: rms_by_root(x, weight, eps).tolist(), "the numbers are right, but"),
        (lambda x, weight, eps: -rms_by_root(x, weight, eps), "right but for its sign"),
        (lambda x, weight, eps: rms_by_root(x, weight, eps).mT, ""),
    ),
    "gated_mlp": (
        (gated_by_the_package, "it calls the package's own ModernMLP: write your own"),
        (gated_along_the_tokens, "raised"),
        (gated_geglu_exchanged, "at once"),
        (gated_not_transposed, "raised RuntimeError"),
        (gated_as_two_parts, "has shape"),
        (lambda x, w1, b1, w2, b2: None, "result is None"),
        (lambda *given: gated_by_chunk(*given).tolist(), "the numbers are right, but"),
        (lambda *given: (gated_by_chunk(*given), None), "return it alone"),
        (lambda *given: 2 * gated_by_chunk(*given), "Every number is 2 times the right one"),
        (lambda x, *rest: gated_by_chunk(x + 0.1 * torch.rand_like(x), *rest), "something in it is random"),
    ),
    "rotary_angles": (
        (angles_by_the_package, "it calls the package's own angles: write your own"),
        (angles_as_a_grid, "has shape"),
        (angles_as_a_list, "the numbers are right, but"),
        (angles_for_the_whole_width, "has shape"),
        (angles_in_one_dimension, "What your numbers show"),
        (angles_of_squares, "has shape"),
        (lambda *given: angles_by_meshgrid(*given).T, "has shape"),
        (lambda *given: angles_by_meshgrid(*given)[None], "the numbers are right"),
        (lambda *given: -angles_by_meshgrid(*given), "right but for its sign"),
        (lambda *given: (angles_by_meshgrid(*given).cos(), angles_by_meshgrid(*given).sin()), "expected a"),
        (lambda *given: angles_by_meshgrid(*given).long(), "What your numbers show"),
    ),
    "turn": (
        (turn_by_the_package, "it calls the package's own rotate: write your own"),
        (turn_in_place, "changed in place"),
        (turn_of_patches_alone, "raised RuntimeError"),
        (turn_as_a_pair, "expected a"),
        (turn_as_complex, ""),
        (lambda x, angles: x, "You return x as it came in"),
        (lambda x, angles: turn_by_halves(x, -angles), "a turn the other way"),
        (lambda x, angles: turn_by_halves(x, 2 * angles), "twice the angle"),
        (lambda x, angles: turn_by_halves(x, angles.flip(0)), "the tokens' angles from last to first"),
        (lambda x, angles: turn_by_halves(x, angles.flip(1)), "the pairs' angles from last to first"),
    ),
    "attention_pool": (
        (pool_with_weights, "return it alone"),
        (pool_of_tokens, ""),
        (pool_by_first_token, ""),
        (pool_by_every_token, ""),
        (pool_without_transpose, ""),
        (lambda z, probe, *rest: probe, "has shape"),
        (lambda *given: None, "result is None"),
        (lambda *given: pool_by_hand(*given[:-1], 1), "one head of width D"),
        (lambda *given: pool_by_hand(*given).sum(0, keepdim=True), "has shape"),
    ),
}
