"""Works for the exercises of lesson 06: right ones, in different ways, and wrong ones."""

import math
import types

import torch
from submissions import Wrong
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


def rates_by_linspace(depth, last):
    return torch.linspace(0, last, depth).tolist()


def rates_by_steps(depth, last):
    rates = [0.0]
    while len(rates) < depth:
        rates.append(rates[-1] + last / (depth - 1))
    return rates


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


# ---- Wrong ones --------------------------------------------------------------------------------------------------


def vit(
    start=lambda m: None,
    encode=lambda m, images: m.norm(m.blocks(m.embed(images))),
    pool=lambda m, z: z[:, 0] if m.pool == "cls" else z.mean(dim=1),
):
    """A class that starts in another way, or has another step."""

    class Mine(nn.Module):
        def __init__(self, image_size, patch_size, channels, classes, dim, depth, heads, mlp, kind):
            super().__init__()
            self.pool = kind
            self.embed = vt.Embeddings(image_size, patch_size, channels, dim, class_token=kind == "cls")
            self.blocks = nn.Sequential(*[vt.EncoderBlock(dim, heads, mlp) for _ in range(depth)])
            self.norm, self.head = nn.LayerNorm(dim, eps=1e-6), nn.Linear(dim, classes)
            nn.init.zeros_(self.head.weight)
            nn.init.zeros_(self.head.bias)
            start(self)

        def forward(self, images):
            return self.head(pool(self, encode(self, images)))

    return Mine


def alike_blocks(m):
    for block in m.blocks:
        block.load_state_dict(m.blocks[0].state_dict())


def rates(rule):
    return lambda depth, last: [rule(layer, depth, last) for layer in range(depth)]


def counted(right, **wrong):
    """The right counts, and one that is somebody's, of (N, T, and the sizes)."""

    def count(image_size, P, C, K, D, L, h, M):
        N, T = sums(image_size, P, C, K, D, L, h, M)
        s = types.SimpleNamespace(image_size=image_size, P=P, C=C, K=K, D=D, L=L, h=h, M=M, N=N, T=T)
        return right(image_size, P, C, K, D, L, h, M) | {name: rule(s) for name, rule in wrong.items()}

    return count


def by_parameters(**wrong):
    return counted(parameters_by_formula, **wrong)


def maps(enter=lambda model, block, z: block.norm1(z), weigh=lambda scores: scores.softmax(dim=-1)):
    def attention_maps(model, images):
        z, found = model.embed(images), []
        for block in model.blocks:
            q, k, _ = block.attention.split_heads(enter(model, block, z))
            found.append(weigh(q @ k.mT / math.sqrt(q.shape[-1])))
            z = block(z)
        return found

    return attention_maps


def maps_in_evaluation(model, images):
    return maps()(model.eval(), images)


RIGHT = {
    "vit_numbers": (lambda: NUMBERS,),
    "vit": (ByLoop, ByDefaults),
    "drop_path_rates": (rates_by_linspace, rates_by_steps),
    "count_parameters": (parameters_by_formula, parameters_by_counting),
    "count_macs": (macs_by_formula, macs_by_products),
    "attention_maps": (maps_by_the_method, maps_by_hooks),
}

WRONG = {
    "vit_numbers": [
        Wrong("the class token alone", lambda: NUMBERS | {"the rest of Eq. 1": 16}, "The class token is one vector"),
        Wrong("a rounding too many", lambda: NUMBERS | {"first loss": 2.31}, "which is not right"),
    ],
    "vit": [
        Wrong(
            "last token, blocks alike",
            vit(start=alike_blocks, pool=lambda m, z: z[:, -1] if m.pool == "cls" else z.mean(dim=1)),
            "a new model wrong",
            never="are right",
        ),
        Wrong("mean over the channels", vit(pool=lambda m, z: z[:, 0] if m.pool == "cls" else z.mean(-1)), "raised"),
    ],
    "drop_path_rates": [
        Wrong("a division by zero", lambda depth, last: [last * i / (depth - 1) for i in range(depth)], "depth=1"),
        Wrong("a generator", lambda depth, last: (last * i / max(depth - 1, 1) for i in range(depth)), "a generator"),
        Wrong("rounded", lambda depth, last: [round(x, 6) for x in rates_by_linspace(depth, last)], "depth=18"),
    ],
    "count_parameters": [
        Wrong("no bias in E", by_parameters(embeddings=lambda s: s.C * s.P**2 * s.D + (s.T + 1) * s.D)),
    ],
    "count_macs": [
        Wrong("a key missing", lambda *sizes: {"head": macs_by_formula(*sizes)["head"]}, "there is no"),
    ],
    "attention_maps": [
        Wrong("a mode left", maps_in_evaluation, "the model's mode afterwards is evaluation"),
    ],
}
