"""Works for the exercises of lesson 06: right ones, in different ways, and wrong ones."""

import math
import types
from itertools import pairwise

import numpy as np
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
        out, weights = vt.dot_product_attention(*block.attention.split_heads(block.norm1(z)))
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


class ByPackage(nn.Module):
    """The package's model in a wrapper."""

    def __init__(self, *sizes):
        super().__init__()
        names = ("image_size", "patch_size", "in_channels", "num_classes", "dim", "depth", "num_heads", "mlp_dim")
        self.model = vt.ViT(vt.ViTConfig(**dict(zip(names, sizes[:8], strict=True)), pool=sizes[8]))

    def forward(self, images):
        return self.model(images)


def all_zeros(m):
    for parameter in m.parameters():
        nn.init.zeros_(parameter)


def alike_blocks(m):
    for block in m.blocks:
        block.load_state_dict(m.blocks[0].state_dict())


def through(order):
    """The blocks in another order."""

    def encode(m, images):
        z = m.embed(images)
        for index in order(len(m.blocks)):
            z = m.blocks[index](z)
        return m.norm(z)

    return encode


def twice_normed(m, images):
    return m.norm(m.norm(m.blocks(m.embed(images))))


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


def by_macs(**wrong):
    return counted(macs_by_formula, **wrong)


def maps(enter=lambda model, block, z: block.norm1(z), weigh=lambda scores: scores.softmax(dim=-1)):
    def attention_maps(model, images):
        z, found = model.embed(images), []
        for block in model.blocks:
            q, k, _ = block.attention.split_heads(enter(model, block, z))
            found.append(weigh(q @ k.mT / math.sqrt(q.shape[-1])))
            z = block(z)
        return found

    return attention_maps


def matrices_drawn_by(draw):
    def start(m):
        for parameter in m.blocks.parameters():
            if parameter.ndim > 1:
                draw(parameter)

    return start


def equal_blocks(m):
    for block in m.blocks:
        block.load_state_dict(m.blocks[0].state_dict())


def torchs_eps_for_the_mean(m):
    m.norm.eps = 1e-5 if m.pool == "mean" else 1e-6


def random_head_for_the_mean(m):
    if m.pool == "mean":
        m.head.reset_parameters()


class AlwaysInEvaluation(ByLoop):
    def forward(self, images):
        self.eval()
        return super().forward(images)


def maps_in_text_order(model, images):
    z, found = model.embed(images), []
    for block in [model.blocks[i] for i in sorted(range(len(model.blocks)), key=str)]:
        found.append(block.attention.attention_weights(block.norm1(z)))
        z = block(z)
    return found


def maps_in_evaluation(model, images):
    return maps()(model.eval(), images)


def maps_with_a_backward(model, images):
    found = maps()(model, images)
    sum(x.square().sum() for x in found).backward()
    return found


def rates_up_to_a_half(depth, last):
    return torch.linspace(0, min(last, 0.5), depth)


def answered(question, *answers):
    """A wrong work for each answer to a question."""
    return [Wrong(f"{question}: {x}", lambda x=x: NUMBERS | {question: x}) for x in answers]


RIGHT = {
    "vit_numbers": (
        lambda: NUMBERS,
        lambda: NUMBERS | {"tokens": torch.tensor(25), "E": np.int64(3088), "first loss": math.log(10)},
        lambda: {name: np.array(value) for name, value in NUMBERS.items()},
    ),
    "vit": (ByLoop, ByDefaults, ByOwnParts, InDoubles),
    "drop_path_rates": (
        rates_by_linspace,
        rates_by_steps,
        rates_by_numpy,
        lambda depth, last: torch.linspace(0, last, depth),
    ),
    "count_parameters": (
        parameters_by_formula,
        parameters_by_counting,
        parameters_by_shapes,
        lambda *sizes: types.MappingProxyType(parameters_by_formula(*sizes)),
    ),
    "count_macs": (
        macs_by_formula,
        macs_by_products,
        macs_by_layers,
        lambda *sizes: {name: torch.tensor(count) for name, count in reversed(macs_by_formula(*sizes).items())},
    ),
    "attention_maps": (
        maps_by_the_method,
        maps_by_hooks,
        maps_step_by_step,
        maps_through_the_model,
    ),
}

WRONG = {
    "vit_numbers": [
        *answered("tokens", 17, 37, "25 tokens", None),
        *answered("E", 1040, 3120),
        *answered("attention", 544, 3536),
        *answered("products", 80000, 1250),
        Wrong("the class token alone", lambda: NUMBERS | {"the rest of Eq. 1": 16}, "The class token is one vector"),
        Wrong("a rounding too many", lambda: NUMBERS | {"first loss": 2.31}, "should be something else"),
    ],
    "vit": [
        Wrong(
            "last token, blocks alike",
            vit(start=alike_blocks, pool=lambda m, z: z[:, -1] if m.pool == "cls" else z.mean(dim=1)),
            "a new model, pool='mean' wrong",
            never="are right",
        ),
        Wrong("mean over the channels", vit(pool=lambda m, z: z[:, 0] if m.pool == "cls" else z.mean(-1)), "raised"),
        Wrong("last token", vit(pool=lambda m, z: z[:, -1] if m.pool == "cls" else z.mean(1)), "row 0"),
        Wrong(
            "blocks in reverse",
            vit(encode=through(lambda n: reversed(range(n)))),
            "All numbers tried with one block are right",
        ),
        Wrong(
            "blocks in text order",
            vit(encode=through(lambda n: sorted(range(n), key=str))),
            "It goes wrong with 11 blocks",
        ),
        Wrong("norm twice", vit(encode=twice_normed)),
        Wrong("a mode set in forward", AlwaysInEvaluation, "the layer's mode (train, eval) after a call is another"),
        Wrong("torch's eps for the mean", vit(start=torchs_eps_for_the_mean), "a norm's eps counts, pool='mean'"),
        Wrong("everything zero", vit(start=all_zeros), "what is zero beside the head"),
        Wrong("a head of zeros for cls alone", vit(start=random_head_for_the_mean), "a new model's answer is not all"),
        Wrong(
            "a normal start",
            vit(start=matrices_drawn_by(nn.init.xavier_normal_)),
            "are not evenly spread",
        ),
        Wrong("a wide start", vit(start=matrices_drawn_by(nn.init.normal_)), "the standard deviation of"),
        Wrong("blocks that start alike", vit(start=equal_blocks), "the same numbers in two blocks"),
        Wrong(
            "a seed set", vit(start=lambda m: torch.manual_seed(0)), "torch's seed is set by your code, for everyone"
        ),
        Wrong("the package's in a wrapper", ByPackage, "it calls the package's own"),
    ],
    "drop_path_rates": [
        Wrong("a square", rates(lambda layer, depth, last: last * (layer / max(depth - 1, 1)) ** 2)),
        Wrong("a division by zero", lambda depth, last: [last * i / (depth - 1) for i in range(depth)], "depth=1"),
        Wrong("a generator", lambda depth, last: (last * i / max(depth - 1, 1) for i in range(depth)), "a generator"),
        Wrong("rounded", lambda depth, last: [round(x, 6) for x in rates_by_linspace(depth, last)], "depth=18"),
        Wrong("rounded much", rates(lambda i, n, last: round(last * i / max(n - 1, 1), 1)), "last=0.1", "come twice"),
        Wrong("a half at most", rates_up_to_a_half, "last=0.7"),
        Wrong("a dictionary", lambda depth, last: dict(enumerate(rates_by_linspace(depth, last))), "a dict"),
        Wrong("no return", lambda depth, last: None, "is None"),
    ],
    "count_parameters": [
        Wrong("no bias in E", by_parameters(embeddings=lambda s: s.C * s.P**2 * s.D + (s.T + 1) * s.D), "too small"),
        Wrong("channels forgotten", by_parameters(embeddings=lambda s: (s.P**2 + 2 + s.T) * s.D), "'embeddings'"),
        Wrong("norms of a scale alone", by_parameters(norms=lambda s: (2 * s.L + 1) * s.D), "2 times too small"),
        Wrong("each head", by_parameters(attention=lambda s: s.L * (3 * s.h + 1) * s.D * (s.D + 1)), "'attention'"),
        Wrong("a sum", lambda *sizes: sum(parameters_by_formula(*sizes).values()), "expected a dictionary"),
        Wrong("a key missing", lambda *sizes: {"head": parameters_by_formula(*sizes)["head"]}, "there is no"),
        Wrong("texts", lambda *sizes: {k: f"{v:,}" for k, v in parameters_by_formula(*sizes).items()}),
    ],
    "count_macs": [
        Wrong("products in d", by_macs(products=lambda s: 2 * s.L * s.T**2 * (s.D // s.h)), "h times too small"),
        Wrong("products linear in T", by_macs(products=lambda s: 2 * s.L * s.T * s.D), "T times too small"),
        Wrong("no projection", by_macs(projections=lambda s: 3 * s.L * s.T * s.D**2), "too small for the first model"),
        Wrong("one block", by_macs(mlp=lambda s: 2 * s.T * s.D * s.M), "L times too small"),
        Wrong("a key missing", lambda *sizes: {"head": macs_by_formula(*sizes)["head"]}, "there is no"),
    ],
    "attention_maps": [
        Wrong("the package's last norm", maps(enter=lambda m, b, z: m.norm(z))),
        Wrong("powers of e", maps(weigh=lambda s: s.exp() / s.exp().sum(-1, keepdim=True)), "scores above 88"),
        Wrong("blocks in text order", maps_in_text_order, "11 layers"),
        Wrong("a mode left", maps_in_evaluation, "the model's mode afterwards is evaluation"),
        Wrong("a backward", maps_with_a_backward, "the model's gradients afterwards is there, of embed.cls_token"),
        Wrong("no return", lambda model, images: None, "maps is None", "second call is None"),
    ],
}
