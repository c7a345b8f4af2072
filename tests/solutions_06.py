"""Submissions to the exercises of lesson 06: right ones, in different ways, and wrong ones by their mistake."""

import math
import types
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
    """The mean as a product, the head's parameters made by hand."""

    def __init__(self, *sizes):
        super().__init__()
        image_size, patch_size, in_channels, num_classes, dim, depth, num_heads, mlp_dim, self.pool = sizes
        self.embed = vt.Embeddings(image_size, patch_size, in_channels, dim, class_token=int(self.pool == "cls"))
        self.blocks = nn.Sequential()
        for layer in range(depth):
            self.blocks.append(vt.EncoderBlock(dim, num_heads, mlp_dim))
            assert len(self.blocks) == layer + 1
        self.norm = nn.LayerNorm(dim, 1e-6)
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


class OwnEmbeddings(nn.Module):
    """As in lesson 02's exercise, with a convolution for the patches."""

    def __init__(self, image_size, patch_size, in_channels, dim, class_token):
        super().__init__()
        self.proj = nn.Conv2d(in_channels, dim, patch_size, patch_size)
        P, Q = patch_size if isinstance(patch_size, tuple) else (patch_size, patch_size)
        N = image_size[0] // P * (image_size[1] // Q)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim)) if class_token else None
        self.position = nn.Parameter(0.02 * torch.randn(1, N + class_token, dim))

    def forward(self, images):
        x = self.proj(images).flatten(2).mT
        if self.cls_token is not None:
            x = torch.cat([self.cls_token.expand(len(x), -1, -1), x], 1)
        return x + self.position


class ByOwnParts(nn.Module):
    """Own embeddings and blocks; a list of the blocks besides the Sequential."""

    def __init__(self, image_size, patch_size, in_channels, num_classes, dim, depth, num_heads, mlp_dim, pool):
        super().__init__()
        self.embed = OwnEmbeddings(image_size, patch_size, in_channels, dim, pool == "cls")
        self.all = [OwnBlock(dim, num_heads, mlp_dim) for _ in range(depth)]
        self.blocks = nn.Sequential(*self.all)
        self.norm, self.head = nn.LayerNorm(dim, 1e-6), nn.Linear(dim, num_classes)
        nn.init.constant_(self.head.weight, 0)
        nn.init.constant_(self.head.bias, 0)
        self.read = {"cls": lambda z: z[:, 0], "mean": lambda z: z.mean(1)}[pool]

    def forward(self, images):
        z = self.embed(images)
        for block in self.all:
            z = block(z)
        return self.head(self.read(self.norm(z)))


class InDoubles(ByLoop):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.double()

    def forward(self, images):
        return super().forward(images.double())


def maps_through_the_model(model, images):
    """Hooks on the qkv layers, and the model called as a whole."""
    found, hooks = [], []
    for block in model.blocks:

        def keep(module, inputs, output, h=block.attention.num_heads):
            q, k, _ = output.unflatten(-1, (3, h, -1)).permute(2, 0, 3, 1, 4)
            found.append((q @ k.mT / q.shape[-1] ** 0.5).softmax(-1))

        hooks.append(block.attention.qkv.register_forward_hook(keep))
    with torch.no_grad():
        model(images)
    for hook in hooks:
        hook.remove()
    return found


def maps_in_numpy(model, images):
    return [weights.detach().numpy() for weights in maps_by_the_method(model, images)]


SOLUTIONS = {
    "vit_numbers": (
        lambda: NUMBERS,
        lambda: NUMBERS | {"tokens": torch.tensor(25), "E": np.int64(3088), "first loss": math.log(10)},
        lambda: NUMBERS | {"first loss": torch.tensor(2.3), "products": 2e4},
        lambda: {name: [value] for name, value in NUMBERS.items()},
        lambda: {name: np.array(value) for name, value in NUMBERS.items()},
    ),
    "vit": (ByLoop, ByDefaults, FromScratch, ByOwnParts, InDoubles),
    "drop_path_rates": (
        rates_by_linspace,
        rates_by_steps,
        rates_by_numpy,
        lambda depth, last: torch.linspace(0, last, depth),
        lambda depth, last: np.linspace(0, last, depth),
        lambda depth, last: tuple(rates_by_steps(depth, last)),
        lambda depth, last: np.float32(rates_by_steps(depth, last)),
    ),
    "count_parameters": (
        parameters_by_formula,
        parameters_by_counting,
        parameters_by_shapes,
        lambda *sizes: {name: np.int32(count) for name, count in parameters_by_formula(*sizes).items()},
        lambda *sizes: types.MappingProxyType(parameters_by_formula(*sizes)),
    ),
    "count_macs": (
        macs_by_formula,
        macs_by_products,
        macs_by_layers,
        lambda *sizes: dict(reversed(macs_by_formula(*sizes).items())),
        lambda *sizes: {name: torch.tensor(count) for name, count in macs_by_formula(*sizes).items()},
    ),
    "attention_maps": (
        maps_by_the_method,
        maps_by_hooks,
        maps_step_by_step,
        maps_through_the_model,
        maps_in_numpy,
        lambda model, images: torch.stack(maps_by_the_method(model, images)),
        lambda model, images: dict(enumerate(maps_by_the_method(model, images))),
        lambda model, images: {f"layer {i}": m.double() for i, m in enumerate(maps_by_the_method(model, images))},
        torch.inference_mode()(maps_by_the_method),
    ),
}


# ---- Wrong ones --------------------------------------------------------------------------------------------------


def vit(
    *,
    embed=lambda s: vt.Embeddings(s.image_size, s.patch_size, s.channels, s.dim, class_token=s.pool == "cls"),
    block=lambda s: vt.EncoderBlock(s.dim, s.heads, s.mlp),
    blocks=lambda s, block: nn.Sequential(*[block(s) for _ in range(s.depth)]),
    norm=lambda s: nn.LayerNorm(s.dim, eps=1e-6),
    head=lambda s: nn.Linear(s.dim, s.classes),
    start=lambda m: (nn.init.zeros_(m.head.weight), nn.init.zeros_(m.head.bias)),
    encode=lambda m, images: m.norm(m.blocks(m.embed(images))),
    pool=lambda m, z: z[:, 0] if m.pool == "cls" else z.mean(dim=1),
    answer=lambda m, y: m.head(y),
):
    """A class with one part, or one step, that is somebody's."""

    class Mine(nn.Module):
        def __init__(self, *sizes):
            super().__init__()
            names = ("image_size", "patch_size", "channels", "classes", "dim", "depth", "heads", "mlp", "pool")
            s = types.SimpleNamespace(**dict(zip(names, sizes, strict=True)))
            self.pool = s.pool
            self.embed, self.blocks, self.norm, self.head = embed(s), blocks(s, block), norm(s), head(s)
            start(self)

        def forward(self, images):
            return answer(self, pool(self, encode(self, images)))

    return Mine


class ByPackage(nn.Module):
    """The package's model in a wrapper."""

    def __init__(self, *sizes):
        super().__init__()
        names = ("image_size", "patch_size", "in_channels", "num_classes", "dim", "depth", "num_heads", "mlp_dim")
        self.model = vt.ViT(vt.ViTConfig(**dict(zip(names, sizes[:8], strict=True)), pool=sizes[8]))

    def forward(self, images):
        return self.model(images)


class ClassTokenDrawn(ByLoop):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        if self.embed.cls_token is not None:
            nn.init.normal_(self.embed.cls_token, std=0.02)


class InAList(nn.Module):
    def __init__(self, image_size, patch_size, in_channels, num_classes, dim, depth, num_heads, mlp_dim, pool):
        super().__init__()
        self.pool = pool
        self.embed = vt.Embeddings(image_size, patch_size, in_channels, dim, class_token=pool == "cls")
        self.blocks = [vt.EncoderBlock(dim, num_heads, mlp_dim) for _ in range(depth)]
        self.norm, self.head = nn.LayerNorm(dim, eps=1e-6), nn.Linear(dim, num_classes)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, images):
        z = self.embed(images)
        for block in self.blocks:
            z = block(z)
        z = self.norm(z)
        return self.head(z[:, 0] if self.pool == "cls" else z.mean(1))


class InADictionary(InAList):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.parts = {str(i): block for i, block in enumerate(self.blocks)}
        self.blocks = []

    def forward(self, images):
        self.blocks = list(self.parts.values())
        return super().forward(images)


def with_token(s):
    return vt.Embeddings(s.image_size, s.patch_size, s.channels, s.dim)


def all_zeros(m):
    for parameter in m.parameters():
        nn.init.zeros_(parameter)


def through(order):
    """The blocks in another order."""

    def encode(m, images):
        z = m.embed(images)
        for index in order(len(m.blocks)):
            z = m.blocks[index](z)
        return m.norm(z)

    return encode


def skipped_over(m, images):
    z = m.embed(images)
    return m.norm(z + m.blocks(z))


def result_thrown_away(m, images):
    z = m.embed(images)
    for block in m.blocks:
        block(z)
    return m.norm(z)


def normed_between(m, images):
    z = m.embed(images)
    for block in m.blocks:
        z = m.norm(block(z))
    return z


def twice_normed(m, images):
    return m.norm(m.norm(m.blocks(m.embed(images))))


class RMSNorm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, z):
        return z / (z.square().mean(-1, keepdim=True) + 1e-6).sqrt() * self.weight


class NoResidual(OwnBlock):
    def forward(self, z):
        return super().forward(z) - z


class PostNorm(OwnBlock):
    def forward(self, z):
        qkv = self.attention.qkv(z).unflatten(-1, (3, self.num_heads, -1))
        q, k, v = (part.transpose(1, 2) for part in qkv.unbind(2))
        z = self.norm1(z + self.attention.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)))
        return self.norm2(z + self.mlp.fc2(F.gelu(self.mlp.fc1(z))))


class WithRelu(OwnBlock):
    def forward(self, z):
        qkv = self.attention.qkv(self.norm1(z)).unflatten(-1, (3, self.num_heads, -1))
        q, k, v = (part.transpose(1, 2) for part in qkv.unbind(2))
        z = z + self.attention.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return z + self.mlp.fc2(F.relu(self.mlp.fc1(self.norm2(z))))


WRONG_VIT = {
    "mean of all tokens for cls": vit(pool=lambda m, z: z.mean(1)),
    "mean of the patches for cls": vit(pool=lambda m, z: z[:, 1:].mean(1) if m.pool == "cls" else z.mean(1)),
    "last token": vit(pool=lambda m, z: z[:, -1] if m.pool == "cls" else z.mean(1)),
    "first patch": vit(pool=lambda m, z: z[:, 1] if m.pool == "cls" else z.mean(1)),
    "row 0 for mean": vit(pool=lambda m, z: z[:, 0]),
    "last row for both": vit(pool=lambda m, z: z[:, -1]),
    "class token kept, averaged": vit(embed=with_token),
    "class token kept, patches averaged": vit(
        embed=with_token, pool=lambda m, z: z[:, 0] if m.pool == "cls" else z[:, 1:].mean(1)
    ),
    "class token kept, row 0 read": vit(embed=with_token, pool=lambda m, z: z[:, 0]),
    "first patch left out of the mean": vit(pool=lambda m, z: z[:, 0] if m.pool == "cls" else z[:, 1:].mean(1)),
    "last patch left out of the mean": vit(pool=lambda m, z: z[:, 0] if m.pool == "cls" else z[:, :-1].mean(1)),
    "poolings exchanged": vit(pool=lambda m, z: z[:, 0] if m.pool != "cls" else z.mean(1)),
    "sum for mean": vit(pool=lambda m, z: z[:, 0] if m.pool == "cls" else z.sum(1)),
    "max for mean": vit(pool=lambda m, z: z[:, 0] if m.pool == "cls" else z.amax(1)),
    "mean over channels": vit(pool=lambda m, z: z[:, 0] if m.pool == "cls" else z.mean(-1)),
    "mean over the batch": vit(pool=lambda m, z: z[:, 0] if m.pool == "cls" else z.mean(0)),
    "z[0] for z[:, 0]": vit(pool=lambda m, z: z[0] if m.pool == "cls" else z.mean(1)),
    "all tokens": vit(pool=lambda m, z: z),
    "eps of torch": vit(norm=lambda s: nn.LayerNorm(s.dim)),
    "eps 1e-12": vit(norm=lambda s: nn.LayerNorm(s.dim, eps=1e-12)),
    "eps 1e-3": vit(norm=lambda s: nn.LayerNorm(s.dim, eps=1e-3)),
    "eps 0": vit(norm=lambda s: nn.LayerNorm(s.dim, eps=0.0)),
    "no norm": vit(norm=lambda s: nn.Identity()),
    "norm not used": vit(encode=lambda m, x: m.blocks(m.embed(x))),
    "norm after the mean": vit(
        encode=lambda m, x: m.blocks(m.embed(x)), pool=lambda m, z: m.norm(z[:, 0] if m.pool == "cls" else z.mean(1))
    ),
    "norm before the blocks": vit(encode=lambda m, x: m.blocks(m.norm(m.embed(x)))),
    "norm after every block": vit(encode=normed_between),
    "norm twice": vit(encode=twice_normed),
    "norm without weight and bias": vit(norm=lambda s: nn.LayerNorm(s.dim, eps=1e-6, elementwise_affine=False)),
    "norm without bias": vit(norm=lambda s: nn.LayerNorm(s.dim, eps=1e-6, bias=False)),
    "rms norm": vit(norm=lambda s: RMSNorm(s.dim)),
    "norm over the tokens, too": vit(encode=lambda m, x: F.layer_norm(m.blocks(m.embed(x)), m.embed(x).shape[1:])),
    "one instance": vit(blocks=lambda s, block: nn.Sequential(*[block(s)] * s.depth)),
    "one block": vit(blocks=lambda s, block: nn.Sequential(block(s))),
    "one block too few": vit(blocks=lambda s, block: nn.Sequential(*[block(s) for _ in range(s.depth - 1)])),
    "range(1, depth)": vit(
        blocks=lambda s, block: nn.ModuleList([block(s) for _ in range(1, s.depth)]), encode=through(range)
    ),
    "one block too many": vit(blocks=lambda s, block: nn.Sequential(*[block(s) for _ in range(s.depth + 1)])),
    "twelve blocks, whatever": vit(blocks=lambda s, block: nn.Sequential(*[block(s) for _ in range(12)])),
    "as many blocks as heads": vit(blocks=lambda s, block: nn.Sequential(*[block(s) for _ in range(s.heads)])),
    "last block not used": vit(encode=through(lambda n: range(n - 1))),
    "first block not used": vit(encode=through(lambda n: range(1, n))),
    "blocks in reverse": vit(encode=through(lambda n: reversed(range(n)))),
    "blocks twice": vit(encode=lambda m, x: m.norm(m.blocks(m.blocks(m.embed(x))))),
    "blocks not used": vit(encode=lambda m, x: m.norm(m.embed(x))),
    "only the first block again and again": vit(encode=through(lambda n: [0] * n)),
    "block's result thrown away": vit(encode=result_thrown_away),
    "a residual around all blocks": vit(encode=skipped_over),
    "blocks in a list": InAList,
    "blocks in a dictionary": InADictionary,
    "one head": vit(block=lambda s: vt.EncoderBlock(s.dim, 1, s.mlp)),
    "heads and depth exchanged": vit(block=lambda s: vt.EncoderBlock(s.dim, s.depth, s.mlp)),
    "mlp four times as wide": vit(block=lambda s: vt.EncoderBlock(s.dim, s.heads, 4 * s.dim)),
    "heads and mlp exchanged": vit(block=lambda s: vt.EncoderBlock(s.dim, s.mlp, s.heads)),
    "blocks of post-norm": vit(block=lambda s: PostNorm(s.dim, s.heads, s.mlp)),
    "blocks without residual": vit(block=lambda s: NoResidual(s.dim, s.heads, s.mlp)),
    "blocks with relu": vit(block=lambda s: WithRelu(s.dim, s.heads, s.mlp)),
    "blocks of torch's eps": vit(block=lambda s: vt.EncoderBlock(s.dim, s.heads, s.mlp, norm_eps=1e-5)),
    "a gelu of tanh": vit(block=lambda s: vt.EncoderBlock(s.dim, s.heads, s.mlp, gelu="tanh")),
    "softmax": vit(answer=lambda m, y: m.head(y).softmax(-1)),
    "log softmax": vit(answer=lambda m, y: m.head(y).log_softmax(-1)),
    "sigmoid": vit(answer=lambda m, y: m.head(y).sigmoid()),
    "relu behind the head": vit(answer=lambda m, y: m.head(y).relu()),
    "tanh before the head": vit(answer=lambda m, y: m.head(y.tanh())),
    "argmax": vit(answer=lambda m, y: m.head(y).argmax(-1)),
    "features": vit(answer=lambda m, y: y),
    "logits and features": vit(answer=lambda m, y: (m.head(y), y)),
    "a random head": vit(start=lambda m: None),
    "a random head's weight": vit(start=lambda m: nn.init.zeros_(m.head.bias)),
    "a random head's bias": vit(start=lambda m: nn.init.zeros_(m.head.weight)),
    "a normal head": vit(start=lambda m: (nn.init.normal_(m.head.weight, std=0.02), nn.init.zeros_(m.head.bias))),
    "everything zero": vit(start=all_zeros),
    "a head without bias": vit(
        head=lambda s: nn.Linear(s.dim, s.classes, bias=False), start=lambda m: nn.init.zeros_(m.head.weight)
    ),
    "a head from the width of the mlp": vit(head=lambda s: nn.Linear(s.mlp, s.classes)),
    "a head of two layers": vit(
        head=lambda s: nn.Sequential(nn.Linear(s.dim, s.dim), nn.Tanh(), nn.Linear(s.dim, s.classes)),
        start=lambda m: (nn.init.zeros_(m.head[2].weight), nn.init.zeros_(m.head[2].bias)),
    ),
    "the graph cut": vit(encode=lambda m, x: m.norm(m.blocks(m.embed(x).detach()))),
    "dropout": vit(encode=lambda m, x: m.norm(m.blocks(F.dropout(m.embed(x), 0.5, training=m.training)))),
    "dropout always": vit(encode=lambda m, x: m.norm(m.blocks(F.dropout(m.embed(x), 0.5)))),
    "blocks with dropout": vit(block=lambda s: vt.EncoderBlock(s.dim, s.heads, s.mlp, dropout=0.1)),
    "no return": vit(answer=lambda m, y: None),
    "the package's": vt.ViT,
    "the package's in a function": lambda *sizes: vt.ViT(vt.ViTConfig(*sizes[:8], pool=sizes[8])),
    "the package's in a wrapper": ByPackage,
    "the package's, derived": type("Mine", (vt.ViT,), {}),
    "no module": lambda *sizes: lambda images: images,
    "super forgotten": type(
        "Mine", (nn.Module,), {"__init__": lambda self, *sizes: setattr(self, "norm", nn.Identity())}
    ),
    "a class token that is drawn": ClassTokenDrawn,
}


def rates(rule):
    return lambda depth, last: [rule(layer, depth, last) for layer in range(depth)]


WRONG_RATES = {
    "the same everywhere": rates(lambda layer, depth, last: last),
    "divided by depth": rates(lambda layer, depth, last: last * layer / depth),
    "linspace of depth + 1, without the last": lambda depth, last: torch.linspace(0, last, depth + 1)[:-1],
    "counted from 1": rates(lambda layer, depth, last: last * (layer + 1) / depth),
    "linspace of depth + 1, without the first": lambda depth, last: np.linspace(0, last, depth + 1)[1:],
    "falling": lambda depth, last: torch.linspace(last, 0, depth).tolist(),
    "kept": lambda depth, last: [1 - r for r in rates_by_linspace(depth, last)],
    "a single block at last": lambda depth, last: [last] if depth == 1 else rates_by_linspace(depth, last),
    "a single block divides by zero": lambda depth, last: [last * i / (depth - 1) for i in range(depth)],
    "one too many": lambda depth, last: torch.linspace(0, last, depth + 1).tolist(),
    "one too few": lambda depth, last: rates_by_linspace(depth, last)[:-1],
    "squared": rates(lambda layer, depth, last: last * (layer / max(depth - 1, 1)) ** 2),
    "last not used": rates(lambda layer, depth, last: layer / max(depth - 1, 1)),
    "the last alone": rates(lambda layer, depth, last: last * (layer == depth - 1) * (depth > 1)),
    "whole division": rates(lambda layer, depth, last: last * (layer // max(depth - 1, 1))),
    "rounded": rates(lambda layer, depth, last: round(last * layer / max(depth - 1, 1), 2)),
    "a percentage": rates(lambda layer, depth, last: 100 * last * layer / max(depth - 1, 1)),
    "depth - 2 steps": rates(lambda layer, depth, last: last * layer / max(depth - 2, 1)),
    "layer + 1 over depth - 1": rates(lambda layer, depth, last: last * (layer + 1) / max(depth - 1, 1)),
    "steps of last": rates(lambda layer, depth, last: last * layer),
    "at random": lambda depth, last: sorted((torch.rand(depth) * last).tolist()),
    "a number": lambda depth, last: last,
    "texts": lambda depth, last: [f"{r:.3f}" for r in rates_by_linspace(depth, last)],
    "one of each twice": lambda depth, last: [r for r in rates_by_linspace(depth, last) for _ in range(2)],
    "a cosine": rates(lambda layer, depth, last: last * (1 - math.cos(math.pi * layer / max(depth - 1, 1))) / 2),
    "a middle of all": rates(lambda layer, depth, last: last / 2),
    "no return": lambda depth, last: None,
}


def counted(right, **wrong):
    """The right counts, and one that is somebody's, of (N, T, and the sizes)."""

    def count(image_size, P, C, K, D, L, h, M):
        N, T = sums(image_size, P, C, K, D, L, h, M)
        s = types.SimpleNamespace(image_size=image_size, P=P, C=C, K=K, D=D, L=L, h=h, M=M, N=N, T=T)
        return right(image_size, P, C, K, D, L, h, M) | {name: rule(s) for name, rule in wrong.items()}

    return count


def by_parameters(**wrong):
    return counted(parameters_by_formula, **wrong)


def by_macs(**wrong):
    return counted(macs_by_formula, **wrong)


WRONG_PARAMETERS = {
    "no biases": by_parameters(
        embeddings=lambda s: s.C * s.P**2 * s.D + (s.T + 1) * s.D,
        attention=lambda s: 4 * s.L * s.D**2,
        mlp=lambda s: 2 * s.L * s.D * s.M,
        head=lambda s: s.K * s.D,
    ),
    "no bias in E": by_parameters(embeddings=lambda s: s.C * s.P**2 * s.D + (s.T + 1) * s.D),
    "no bias in attention": by_parameters(attention=lambda s: 4 * s.L * s.D**2),
    "bias of the projection forgotten": by_parameters(attention=lambda s: s.L * (4 * s.D**2 + 3 * s.D)),
    "biases of qkv forgotten": by_parameters(attention=lambda s: s.L * (4 * s.D**2 + s.D)),
    "no bias in the mlp": by_parameters(mlp=lambda s: 2 * s.L * s.D * s.M),
    "biases of the mlp both M": by_parameters(mlp=lambda s: s.L * (2 * s.D * s.M + 2 * s.M)),
    "biases of the mlp both D": by_parameters(mlp=lambda s: s.L * (2 * s.D * s.M + 2 * s.D)),
    "no bias in the head": by_parameters(head=lambda s: s.K * s.D),
    "a head's bias of D": by_parameters(head=lambda s: s.K * s.D + s.D),
    "positions forgotten": by_parameters(embeddings=lambda s: (s.C * s.P**2 + 1) * s.D + s.D),
    "class token forgotten": by_parameters(embeddings=lambda s: (s.C * s.P**2 + 1) * s.D + s.T * s.D),
    "class token and its position forgotten": by_parameters(embeddings=lambda s: (s.C * s.P**2 + 1) * s.D + s.N * s.D),
    "the class token's position forgotten": by_parameters(embeddings=lambda s: (s.C * s.P**2 + 2 + s.N) * s.D),
    "one position number a token": by_parameters(embeddings=lambda s: (s.C * s.P**2 + 2) * s.D + s.T),
    "channels forgotten": by_parameters(embeddings=lambda s: (s.P**2 + 2 + s.T) * s.D),
    "P in place of P²": by_parameters(embeddings=lambda s: (s.C * s.P + 2 + s.T) * s.D),
    "E alone": by_parameters(embeddings=lambda s: (s.C * s.P**2 + 1) * s.D),
    "E once for each patch": by_parameters(embeddings=lambda s: s.N * (s.C * s.P**2 + 1) * s.D + (s.T + 1) * s.D),
    "a square": by_parameters(embeddings=lambda s: (s.C * s.P**2 + 3 + (s.image_size[0] // s.P) ** 2) * s.D),
    "a square of the width": by_parameters(
        embeddings=lambda s: (s.C * s.P**2 + 3 + (s.image_size[1] // s.P) ** 2) * s.D
    ),
    "pixels for patches": by_parameters(
        embeddings=lambda s: (s.C * s.P**2 + 3 + s.image_size[0] * s.image_size[1]) * s.D
    ),
    "qkv as one": by_parameters(attention=lambda s: s.L * 2 * s.D * (s.D + 1)),
    "projection forgotten": by_parameters(attention=lambda s: s.L * 3 * s.D * (s.D + 1)),
    "for each head": by_parameters(attention=lambda s: s.L * (3 * s.h + 1) * s.D * (s.D + 1)),
    "for each head, four": by_parameters(attention=lambda s: s.L * 4 * s.h * s.D * (s.D + 1)),
    "d in place of D": by_parameters(attention=lambda s: s.L * 4 * s.D * (s.D // s.h + 1)),
    "attention without L": by_parameters(attention=lambda s: 4 * s.D * (s.D + 1)),
    "half an mlp": by_parameters(mlp=lambda s: s.L * s.M * (s.D + 1)),
    "the other half": by_parameters(mlp=lambda s: s.L * s.D * (s.M + 1)),
    "four times D": by_parameters(mlp=lambda s: s.L * (8 * s.D**2 + 5 * s.D)),
    "mlp without L": by_parameters(mlp=lambda s: 2 * s.D * s.M + s.M + s.D),
    "last norm forgotten": by_parameters(norms=lambda s: s.L * 4 * s.D),
    "one norm a block": by_parameters(norms=lambda s: (2 * s.L + 2) * s.D),
    "scales alone": by_parameters(norms=lambda s: (2 * s.L + 1) * s.D),
    "the last norm's shift forgotten": by_parameters(norms=lambda s: (4 * s.L + 1) * s.D),
    "norms of a number each": by_parameters(norms=lambda s: 2 * (2 * s.L + 1)),
    "norms for each token": by_parameters(norms=lambda s: (4 * s.L + 2) * s.T * s.D),
    "norms without L": by_parameters(norms=lambda s: 6 * s.D),
    "a last norm in each block": by_parameters(norms=lambda s: s.L * 6 * s.D),
    "head for each token": by_parameters(head=lambda s: s.T * s.K * (s.D + 1)),
    "head from M": by_parameters(head=lambda s: s.K * (s.M + 1)),
    "one block for all": by_parameters(
        attention=lambda s: 4 * s.D * (s.D + 1), mlp=lambda s: 2 * s.D * s.M + s.M + s.D, norms=lambda s: 6 * s.D
    ),
    "in millions": by_parameters(
        embeddings=lambda s: (s.C * s.P**2 + 2 + s.T) * s.D / 1e6, attention=lambda s: s.L * 4 * s.D * (s.D + 1) / 1e6
    ),
    "a sum": lambda *sizes: sum(parameters_by_formula(*sizes).values()),
    "a key forgotten": lambda *sizes: {k: v for k, v in parameters_by_formula(*sizes).items() if k != "norms"},
    "other keys": lambda *sizes: {k.upper(): v for k, v in parameters_by_formula(*sizes).items()},
    "texts": lambda *sizes: {k: f"{v:,}" for k, v in parameters_by_formula(*sizes).items()},
    "a list": lambda *sizes: list(parameters_by_formula(*sizes).values()),
}

WRONG_MACS = {
    "parameters": by_macs(
        patches=lambda s: s.C * s.P**2 * s.D, projections=lambda s: 4 * s.L * s.D**2, mlp=lambda s: 2 * s.L * s.D * s.M
    ),
    "E once": by_macs(patches=lambda s: s.C * s.P**2 * s.D),
    "projections once": by_macs(projections=lambda s: 4 * s.L * s.D**2),
    "mlp once": by_macs(mlp=lambda s: 2 * s.L * s.D * s.M),
    "N for T": by_macs(
        projections=lambda s: 4 * s.L * s.N * s.D**2,
        products=lambda s: 2 * s.L * s.N**2 * s.D,
        mlp=lambda s: 2 * s.L * s.N * s.D * s.M,
    ),
    "N for T in the products": by_macs(products=lambda s: 2 * s.L * s.N**2 * s.D),
    "N for T in the mlp": by_macs(mlp=lambda s: 2 * s.L * s.N * s.D * s.M),
    "E on the class token": by_macs(patches=lambda s: s.T * s.C * s.P**2 * s.D),
    "no products": by_macs(products=lambda s: 0),
    "one product": by_macs(products=lambda s: s.L * s.T**2 * s.D),
    "products of d": by_macs(products=lambda s: 2 * s.L * s.T**2 * (s.D // s.h)),
    "products linear": by_macs(products=lambda s: 2 * s.L * s.T * s.D),
    "products T D²": by_macs(products=lambda s: 2 * s.L * s.T * s.D**2),
    "products of D in each head": by_macs(products=lambda s: 2 * s.L * s.h * s.T**2 * s.D),
    "products without L": by_macs(products=lambda s: 2 * s.T**2 * s.D),
    "projection forgotten": by_macs(projections=lambda s: 3 * s.L * s.T * s.D**2),
    "qkv as one": by_macs(projections=lambda s: 2 * s.L * s.T * s.D**2),
    "biases counted": by_macs(projections=lambda s: 4 * s.L * s.T * s.D * (s.D + 1)),
    "head's bias counted": by_macs(head=lambda s: s.K * (s.D + 1)),
    "E's bias counted": by_macs(patches=lambda s: s.N * (s.C * s.P**2 + 1) * s.D),
    "channels forgotten": by_macs(patches=lambda s: s.N * s.P**2 * s.D),
    "half an mlp": by_macs(mlp=lambda s: s.L * s.T * s.D * s.M),
    "head on every token": by_macs(head=lambda s: s.T * s.K * s.D),
    "flops": lambda *sizes: {k: 2 * v for k, v in macs_by_formula(*sizes).items()},
    "flops in the products alone": by_macs(products=lambda s: 4 * s.L * s.T**2 * s.D),
    "one block for all": by_macs(
        projections=lambda s: 4 * s.T * s.D**2, products=lambda s: 2 * s.T**2 * s.D, mlp=lambda s: 2 * s.T * s.D * s.M
    ),
    "a square": by_macs(patches=lambda s: (s.image_size[0] // s.P) ** 2 * s.C * s.P**2 * s.D),
    "pixels for patches": by_macs(patches=lambda s: s.image_size[0] * s.image_size[1] * s.C * s.P**2 * s.D),
    "a batch of 2": lambda *sizes: {k: 2 * v for k, v in macs_by_formula(*sizes).items()},
    "rounded": lambda *sizes: {k: round(v, -6) for k, v in macs_by_formula(*sizes).items()},
    "softmax counted": by_macs(products=lambda s: 2 * s.L * s.T**2 * s.D + s.L * s.h * s.T**2),
    "a total": lambda *sizes: sum(macs_by_formula(*sizes).values()),
    "a key forgotten": lambda *sizes: {k: v for k, v in macs_by_formula(*sizes).items() if k != "head"},
}


def maps(
    *,
    enter=lambda model, block, z: block.norm1(z),
    cut=lambda qkv, h: qkv.unflatten(-1, (3, h, -1)).permute(2, 0, 3, 1, 4),
    pair=lambda q, k, v: (q, k),
    scale=lambda q, k: 1 / math.sqrt(q.shape[-1]),
    weigh=lambda scores: scores.softmax(dim=-1),
    on=lambda block, z: block(z),
    whose=lambda model, block: block,
    end=lambda found: found,
):
    def attention_maps(model, images):
        z, found = model.embed(images), []
        for block in model.blocks:
            attention = whose(model, block).attention
            q, k = pair(*cut(attention.qkv(enter(model, block, z)), attention.num_heads))
            found.append(weigh(q @ k.transpose(-2, -1) * scale(q, k)))
            z = on(block, z)
        return end(found)

    return attention_maps


def after_the_block(model, images):
    z, found = model.embed(images), []
    for block in model.blocks:
        z = block(z)
        found.append(block.attention.attention_weights(block.norm1(z)))
    return found


def hooks_after_the_model(model, images):
    """One list entry for all layers: the last block is meant in each."""
    entered = []
    hooks = [b.norm1.register_forward_hook(lambda module, inputs, output: entered.append(output)) for b in model.blocks]
    model.blocks(model.embed(images))
    for hook in hooks:
        hook.remove()
    return [model.blocks[-1].attention.attention_weights(x) for x in entered]


def hooks_on_attention(model, images):
    """The attention's result, taken for its weights."""
    found = []
    hooks = [b.attention.register_forward_hook(lambda m, inputs, output: found.append(output)) for b in model.blocks]
    model.blocks(model.embed(images))
    for hook in hooks:
        hook.remove()
    return found


WRONG_MAPS = {
    "no norm": maps(enter=lambda m, b, z: z),
    "norm2": maps(enter=lambda m, b, z: b.norm2(z)),
    "last norm": maps(enter=lambda m, b, z: m.norm(z)),
    "norm twice": maps(enter=lambda m, b, z: b.norm1(b.norm1(z))),
    "after the block": after_the_block,
    "z stays": maps(on=lambda b, z: z),
    "z normed on its way": maps(on=lambda b, z: b(b.norm1(z))),
    "attention alone between": maps(on=lambda b, z: b.attention(b.norm1(z))),
    "attention and skip, no mlp": maps(on=lambda b, z: z + b.attention(b.norm1(z))),
    "mlp alone between": maps(on=lambda b, z: z + b.mlp(b.norm2(z))),
    "scores": maps(weigh=lambda s: s),
    "no scale": maps(scale=lambda q, k: 1),
    "scale by d": maps(scale=lambda q, k: 1 / q.shape[-1]),
    "scale by √D": maps(scale=lambda q, k: 1 / math.sqrt(q.shape[-1] * q.shape[1])),
    "scale by √T": maps(scale=lambda q, k: 1 / math.sqrt(q.shape[-2])),
    "times √d": maps(scale=lambda q, k: math.sqrt(q.shape[-1])),
    "scale after the softmax": maps(scale=lambda q, k: 1, weigh=lambda s: s.softmax(-1) / 2),
    "softmax over queries": maps(weigh=lambda s: s.softmax(-2)),
    "softmax over heads": maps(weigh=lambda s: s.softmax(1)),
    "softmax over all": maps(weigh=lambda s: s.flatten(-2).softmax(-1).view_as(s)),
    "softmax twice": maps(weigh=lambda s: s.softmax(-1).softmax(-1)),
    "sigmoid": maps(weigh=lambda s: s.sigmoid()),
    "log softmax": maps(weigh=lambda s: s.log_softmax(-1)),
    "divided by the sum": maps(weigh=lambda s: s / s.sum(-1, keepdim=True)),
    "exp without sum": maps(weigh=lambda s: s.exp()),
    "mean over heads": maps(weigh=lambda s: s.softmax(-1).mean(1)),
    "mean over heads, axis kept": maps(weigh=lambda s: s.softmax(-1).mean(1, keepdim=True)),
    "sum over heads": maps(weigh=lambda s: s.softmax(-1).sum(1)),
    "first head": maps(weigh=lambda s: s.softmax(-1)[:, 0]),
    "class token's row": maps(weigh=lambda s: s.softmax(-1)[..., 0, :]),
    "class token left out": maps(weigh=lambda s: s.softmax(-1)[..., 1:, 1:]),
    "transposed": maps(weigh=lambda s: s.softmax(-1).mT),
    "k qᵀ": maps(pair=lambda q, k, v: (k, q)),
    "q vᵀ": maps(pair=lambda q, k, v: (q, v)),
    "k vᵀ": maps(pair=lambda q, k, v: (k, v)),
    "q qᵀ": maps(pair=lambda q, k, v: (q, q)),
    "(h, 3, d)": maps(cut=lambda x, h: x.unflatten(-1, (h, 3, -1)).permute(3, 0, 2, 1, 4)),
    "(3, d, h)": maps(cut=lambda x, h: x.unflatten(-1, (3, -1, h)).permute(2, 0, 4, 1, 3)),
    "reshape without permute": maps(cut=lambda x, h: x.reshape(x.shape[0], 3, h, x.shape[1], -1).transpose(0, 1)),
    "chunk, then a view without transpose": maps(
        cut=lambda x, h: [p.reshape(p.shape[0], h, p.shape[1], -1) for p in x.chunk(3, -1)]
    ),
    "heads not moved": maps(cut=lambda x, h: x.unflatten(-1, (3, h, -1)).permute(2, 0, 1, 3, 4)),
    "one head": maps(cut=lambda x, h: x.unflatten(-1, (3, 1, -1)).permute(2, 0, 3, 1, 4)),
    "the first block's weights": maps(whose=lambda m, b: m.blocks[0]),
    "the last block's weights": maps(whose=lambda m, b: m.blocks[-1]),
    "hooks that mean the last block": hooks_after_the_model,
    "hooks on the result": hooks_on_attention,
    "reversed": maps(end=lambda found: found[::-1]),
    "last layer alone": maps(end=lambda found: found[-1]),
    "last layer in a list": maps(end=lambda found: found[-1:]),
    "first layer left out": maps(end=lambda found: found[1:]),
    "last layer left out": maps(end=lambda found: found[:-1]),
    "mean over layers": maps(end=lambda found: torch.stack(found).mean(0)),
    "layers as the last axis": maps(end=lambda found: torch.stack(found, dim=-1)),
    "the batch before the layers": maps(end=lambda found: torch.stack(found, dim=1)),
    "the first image": maps(end=lambda found: [m[:1] for m in found]),
    "a mean over the batch": maps(end=lambda found: [m.mean(0, keepdim=True).expand_as(m) for m in found]),
    "rounded": maps(end=lambda found: [m.round(decimals=2) for m in found]),
    "the tokens": lambda model, images: [model.embed(images) for _ in model.blocks],
    "no return": lambda model, images: None,
    "in training": lambda model, images: [torch.zeros(1)],
}

BY_LABEL = {
    "vit_numbers": {
        f"{key}: {value}": (lambda key=key, value=value: NUMBERS | {key: value})
        for key, values in {
            "tokens": [24, 17, 37, 26, 1537, 7, 10, 12, "25 tokens", None],
            "E": [3072, 1040, 1024, 3120, 192, 193, 400, 74112, 3280, 384],
            "the rest of Eq. 1": [400, 16, 384, 32, 41, 26, 432, 3488],
            "attention": [1024, 544, 816, 272, 3536, 4352, 1072, 1040, 2176, 256],
            "products": [10000, 80000, 18432, 40000, 625, 1250, 5000, 800, 20480, 2500],
            "first loss": [1.0, 0.1, 0, 10, 3.32, -2.303, 2.0, 0.9, 2.4],
        }.items()
        for value in values
    },
    "vit": WRONG_VIT,
    "drop_path_rates": WRONG_RATES,
    "count_parameters": WRONG_PARAMETERS,
    "count_macs": WRONG_MACS,
    "attention_maps": WRONG_MAPS,
}


# What the check calls the mistake of a wrong submission; one that isn't listed must not be given a name.
NAMES = {
    "vit_numbers": {
        "E: 1040": "the channels forgotten",
        "the rest of Eq. 1: 400": "one row too few",
        "the rest of Eq. 1: 16": "the class token counted without the positions",
        "attention: 544": "q, k and v counted as one matrix",
        "attention: 816": "the output projection forgotten",
        "attention: 3536": "the heads counted as matrices of their own",
        "products: 10000": "one of the two products",
        "products: 80000": "a product for each head at the full width",
        "first loss: 1.0": "a logarithm to the base 10",
        "first loss: 0.1": "a probability in place of its loss",
        "first loss: 0": "a first loss of nothing",
    },
}
