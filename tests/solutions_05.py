"""Answers to the exercises of lesson 05: right ones, written in different ways, and wrong ones with what they hear."""

import copy
from collections import OrderedDict

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


class ByTheirNames(Stack):
    def __init__(self, dim, num_heads, mlp_dim, depth, drop_path=0.0):
        super().__init__(dim, num_heads, mlp_dim, depth, drop_path)
        self.blocks = nn.Sequential(OrderedDict((f"block{i}", block) for i, block in enumerate(self.blocks)))


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


def norm_by_numpy(x, weight, bias, eps):
    x, weight, bias = (a.numpy() for a in (x, weight, bias))
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + eps) * weight + bias


@torch.no_grad()
def norm_in_double(x, weight, bias, eps):
    return norm_by_var(x.double(), weight.double(), bias.double(), eps)


class ByNumpy(ByRand):
    def forward(self, x):
        if not self.training:
            return x
        keep = np.random.random((len(x), 1, 1)) >= self.p
        return x * torch.from_numpy(keep).to(x) / (1 - self.p)


class RatesAsTensor(Stack):
    """Rates as a tensor's numbers, 0-dimensional tensors."""

    def __init__(self, dim, num_heads, mlp_dim, depth, drop_path=0.0):
        super().__init__(dim, num_heads, mlp_dim, 0)
        for rate in torch.linspace(0, drop_path, depth):
            self.blocks.append(vt.EncoderBlock(dim, num_heads, mlp_dim, drop_path=rate))


class RatesFromNumpy(Stack):
    def __init__(self, dim, num_heads, mlp_dim, depth, drop_path=0.0):
        super().__init__(dim, num_heads, mlp_dim, 0)
        rates = np.linspace(0, drop_path, depth)
        self.blocks.extend(vt.EncoderBlock(dim, num_heads, mlp_dim, drop_path=rate) for rate in rates)


class TwoDropPaths(Block):
    """A DropPath for each branch, and the norms in a list of their own."""

    def __init__(self, dim, num_heads, mlp_dim, dropout=0.0, drop_path=0.0):
        super().__init__(dim, num_heads, mlp_dim, dropout, drop_path)
        self.drop_path2 = vt.DropPath(drop_path)

    def forward(self, z):
        z = z.add(self.drop_path(self.attention(self.norm1(z))))
        return torch.add(z, self.drop_path2(self.mlp(self.norm2(z))))


SOLUTIONS = {
    "block_numbers": (
        lambda: NUMBERS,
        lambda: NUMBERS | {"normed": torch.tensor([-1.0, -1, 1, 1]), "kept": 5.0, "parameters": np.int64(172)},
        lambda: NUMBERS | {"again": (-1.0, -1.0, 1.0, 1.0), "block": np.array([3, 3, 7, 9])},
        lambda: NUMBERS | {"block": [[3, 3, 7, 9]], "kept": torch.tensor(5.0)},
        lambda: NUMBERS | {"kept": [5], "normed": np.array([-1, -1, 1, 1])},
    ),
    "layer_norm": (
        norm_by_var,
        norm_by_squares,
        norm_by_torch,
        norm_token_by_token,
        norm_by_numpy,
        norm_in_double,
    ),
    "drop_path": (ByRand, ByBernoulli, ByDropout, ByLoop, ByNumpy),
    "encoder_block": (Block, WithTorchsAttention, AroundTorchsLayer, OutInOneExpression, TwoDropPaths),
    "encoder": (Stack, InSequence, ByTheirNames, OfOwnBlocks, RatesAsTensor, RatesFromNumpy),
}

# ---- Wrong ones ------------------------------------------------------------------------------------------------------


def answer(**wrong):
    """The right answers but for some."""
    return lambda: NUMBERS | wrong


def norm(mean=lambda x: x.mean(-1, keepdim=True), spread=None, end=lambda y, w, b: y * w + b):
    """layer_norm with another mean, another spread of (x, eps), another end."""
    spread = spread or (lambda x, eps: (x.var(-1, keepdim=True, unbiased=False) + eps).sqrt())

    def layer_norm(x, weight, bias, eps):
        return end((x - mean(x)) / spread(x, eps), weight, bias)

    return layer_norm


def over(*axes):
    def layer_norm(x, weight, bias, eps):
        found = axes or tuple(range(x.ndim))
        variance = x.var(found, keepdim=True, unbiased=False)
        return (x - x.mean(found, keepdim=True)) / torch.sqrt(variance + eps) * weight + bias

    return layer_norm


def norm_in_place(x, weight, bias, eps):
    x -= x.mean(-1, keepdim=True)
    return x / (x.pow(2).mean(-1, keepdim=True) + eps).sqrt() * weight + bias


def norm_without_keepdim(x, weight, bias, eps):
    return (x - x.mean(-1)) / torch.sqrt(x.var(-1, unbiased=False) + eps) * weight + bias


def norm_by_difference(x, weight, bias, eps):
    mean = x.mean(-1, keepdim=True)
    return (x - mean) / torch.sqrt((x**2).mean(-1, keepdim=True) - mean**2 + eps) * weight + bias


class Drop(nn.Module):
    """A DropPath in steps; a wrong one replaces some."""

    def __init__(self, p):
        super().__init__()
        self.p = p

    def forward(self, x):
        return x * self.mask(x) * self.scale() if self.training else x

    def mask(self, x):
        return (torch.rand(len(x), 1, 1) >= self.p).float()

    def scale(self):
        return 1 / (1 - self.p)


def drop(**steps):
    return type("DropPath", (Drop,), steps)


def with_shape(shape):
    return drop(mask=lambda self, x: (torch.rand(shape(x)) >= self.p).float())


def seeded_mask(self, x):
    torch.manual_seed(0)
    return Drop.mask(self, x)


def forked_mask(self, x):
    with torch.random.fork_rng():
        return Drop.mask(self, x)


def generator_mask(self, x):
    if not hasattr(self, "generator"):
        self.generator = torch.Generator().manual_seed(0)
    return (torch.rand(len(x), 1, 1, generator=self.generator) >= self.p).float()


def kept_mask(self, x):
    if not hasattr(self, "kept"):
        self.kept = Drop.mask(self, x)
    return self.kept


def first_mask(self, x):
    return (torch.arange(len(x)) >= round(self.p * len(x))).float()[:, None, None]


def exact_mask(self, x):
    return first_mask(self, x)[torch.randperm(len(x))]


def pairs_mask(self, x):
    return (torch.rand(len(x) // 2, 1, 1) >= self.p).float().repeat_interleave(2, 0) if len(x) % 2 == 0 else 1


def never_all(self, x):
    drawn = torch.rand(len(x), 1, 1)
    return (drawn >= min(self.p, drawn.max().item())).float()


class InPlace(Drop):
    def forward(self, x):
        return x.mul_(self.mask(x) * self.scale()) if self.training else x


class B(Block):
    """The block with its two branches as steps."""

    def forward(self, z):
        z = z + self.one(z)
        return z + self.two(z)

    def one(self, z):
        return self.drop_path(self.attention(self.norm1(z)))

    def two(self, z):
        return self.drop_path(self.mlp(self.norm2(z)))


def block(**steps):
    return type("EncoderBlock", (B,), steps)


def built(make):
    """A block whose parts are made in another way: make(self, dim, num_heads, mlp_dim, dropout, drop_path)."""

    def __init__(self, dim, num_heads, mlp_dim, dropout=0.0, drop_path=0.0):
        Block.__init__(self, dim, num_heads, mlp_dim, dropout, drop_path)
        make(self, dim, num_heads, mlp_dim, dropout, drop_path)

    return type("EncoderBlock", (B,), {"__init__": __init__})


def with_eps(eps):
    def make(self, dim, *rest):
        self.norm1, self.norm2 = nn.LayerNorm(dim, eps=eps), nn.LayerNorm(dim, eps=eps)

    return built(make)


def parts(attention, mlp):
    """Which dropouts the parts get: functions of the rate."""

    def make(self, dim, num_heads, mlp_dim, dropout, drop_path):
        self.attention = vt.MultiHeadSelfAttention(dim, num_heads, **attention(dropout))
        self.mlp = vt.MLP(dim, mlp_dim, **mlp(dropout))

    return built(make)


class AnotherDefault(B):
    def __init__(self, dim, num_heads, mlp_dim, dropout=0.1, drop_path=0.0):
        super().__init__(dim, num_heads, mlp_dim, dropout, drop_path)


def none(rate):
    return {}


def same(rate):
    return {"dropout": rate}


class E(Stack):
    """The encoder with its rates, blocks and order as steps."""

    def __init__(self, dim, num_heads, mlp_dim, depth, drop_path=0.0):
        nn.Module.__init__(self)
        rates = [self.rate(i, depth, drop_path) for i in range(depth)]
        self.blocks = self.make(lambda rate=0.0: vt.EncoderBlock(dim, num_heads, mlp_dim, drop_path=rate), rates)
        self.norm = self.last(dim)

    def rate(self, i, depth, p):
        return p * i / max(depth - 1, 1)

    def make(self, block, rates):
        return nn.ModuleList([block(rate) for rate in rates])

    def last(self, dim):
        return nn.LayerNorm(dim, eps=1e-6)


def stack(**steps):
    return type("Encoder", (E,), steps)


def each(self, z, between=lambda self, z: z, order=lambda blocks: blocks):
    for one in order(list(self.blocks)):
        z = between(self, one(z))
    return z


def copies(self, block, rates):
    first = block()
    made = nn.ModuleList([copy.deepcopy(first) for _ in rates])
    for one, rate in zip(made, rates, strict=True):
        one.drop_path.p = rate
    return made


def seeded(self, block, rates):
    made = []
    for rate in rates:
        torch.manual_seed(0)
        made.append(block(rate))
    return nn.ModuleList(made)


class AnotherDefaultRate(E):
    def __init__(self, dim, num_heads, mlp_dim, depth, drop_path=0.1):
        super().__init__(dim, num_heads, mlp_dim, depth, drop_path)


class WithDropout(E):
    def make(self, block, rates):
        made = super().make(block, rates)
        for one in made:
            one.mlp.dropout = nn.Dropout(0.3)
        return made


class OneTooFew(E):
    def __init__(self, dim, num_heads, mlp_dim, depth, drop_path=0.0):
        super().__init__(dim, num_heads, mlp_dim, depth - 1, drop_path)


WRONG = {
    "block_numbers": (
        (answer(normed=[-0.5, -0.5, 0.5, 0.5], again=[-0.25, -0.25, 0.25, 0.25]), "a division by the variance"),
        (answer(normed=[-0.866, -0.866, 0.866, 0.866], again=[-0.866, -0.866, 0.866, 0.866]), "divided by D − 1"),
        (answer(normed=[1, 1, 3, 3], again=[3.5, 3.5, 5.5, 5.5]), "a mean that is not subtracted"),
        (answer(normed=[-2, -2, 2, 2]), "the mean alone"),
        (answer(normed=[0, 0, 1, 1]), "Subtract the mean of the four numbers"),
        (answer(normed=[-1, -1, 1]), "expected a list of 4"),
        (answer(again=[-2, -2, 2, 2]), "a norm that keeps the size"),
        (answer(again=[-4, -4, 4, 4]), "Norm [14, 14, 22, 22] in the same way"),
        (answer(again=[9, 9, 11, 11]), "Norm [14, 14, 22, 22] in the same way"),
        (answer(block=[0, 0, 0, 2]), "no residual"),
        (answer(block=[-1, -1, 1, 3]), "a residual from the normed input"),
        (answer(block=[-0.905, -0.905, 0.302, 1.508]), "post-norm"),
        (answer(block=[2, 2, 6, 8]), "the second branch alone"),
        (answer(block=[3, 3, 7, 7]), "the first branch alone"),
        (answer(block=[5, 5, 13, 15]), "the residual added twice"),
        (answer(block=[3, 3, 7, 10]), "plus what attention says"),
        (answer(kept=4), "no rescaling"),
        (answer(kept=20), "a division by p"),
        (answer(kept=3.2), "a multiplication by 1 − p"),
        (answer(kept=4.8), "What is kept is divided"),
        (answer(kept=0), "What is kept is divided"),
        (answer(parameters=156), "sixteen numbers too few"),
        (answer(parameters=164), "eight numbers too few"),
        (answer(parameters=152), "the output's matrix forgotten"),
        (answer(parameters=112), "attention's matrices counted once"),
        (answer(parameters=173), "Two norms of 2 · D"),
        (lambda: [-1, -1, 1, 1], "expected a dictionary of answers"),
    ),
    "layer_norm": (
        (over(-2), "a norm over the tokens"),
        (over(0), "a norm over the first axis"),
        (over(1), "a norm over axis 1"),
        (over(-2, -1), "a norm over tokens and channels together"),
        (over(), "a norm over everything"),
        (norm(spread=lambda x, eps: (x.var(-1, keepdim=True) + eps).sqrt()), "a variance divided by D − 1"),
        (norm(spread=lambda x, eps: x.std(-1, keepdim=True, unbiased=False) + eps), "an eps outside of the root"),
        (norm(spread=lambda x, eps: x.std(-1, keepdim=True) + eps), "an eps outside of the root, and D − 1"),
        (norm(spread=lambda x, eps: x.std(-1, keepdim=True, unbiased=False)), "no eps"),
        (norm(spread=lambda x, eps: x.std(-1, keepdim=True)), ""),
        (lambda x, w, b, eps: F.layer_norm(x, x.shape[-1:], w, b), "another eps than the one asked for"),
        (lambda x, w, b, eps: F.layer_norm(x, x.shape[-1:], w, b, 1e-6), "an eps of 1e-6, whatever is asked for"),
        (norm(spread=lambda x, eps: x.var(-1, keepdim=True, unbiased=False) + eps), "a division by the variance"),
        (norm(spread=lambda x, eps: (x.var(-1, keepdim=True, unbiased=False) + eps**2).sqrt()), "the square of eps"),
        (norm(mean=lambda x: 0), "a mean that is not subtracted"),
        (norm(mean=lambda x: 0, spread=lambda x, eps: (x.pow(2).mean(-1, True) + eps).sqrt()), "an RMS norm"),
        (norm(mean=lambda x: x.median(-1, keepdim=True).values), "What your numbers show"),
        (norm(spread=lambda x, eps: 1), "the mean subtracted alone"),
        (norm(spread=lambda x, eps: x.norm(dim=-1, keepdim=True)), ""),
        (norm(spread=lambda x, eps: x.amax(-1, True) - x.amin(-1, True)), ""),
        (norm(end=lambda y, w, b: y), "factor and offset forgotten"),
        (norm(end=lambda y, w, b: y * w), "the offset forgotten"),
        (norm(end=lambda y, w, b: y + b), "the factor forgotten"),
        (norm(end=lambda y, w, b: (y + b) * w), "the factor applied to the offset, too"),
        (norm(end=lambda y, w, b: y * b + w), "factor and offset exchanged"),
        (norm(end=lambda y, w, b: y * (1 + w) + b), "a factor of 1 + weight"),
        (norm(end=lambda y, w, b: y * w - b), ""),
        (norm(end=lambda y, w, b: y / w + b), ""),
        (lambda x, w, b, eps: F.layer_norm(x * w + b, x.shape[-1:], None, None, eps), "applied before the norm"),
        (lambda x, w, b, eps: F.layer_norm(x, x.shape[-2:], None, None, eps) * w + b, "tokens and channels together"),
        (norm_in_place, "argument 1 was changed in place"),
        (norm_without_keepdim, "raised RuntimeError"),
        (norm_by_difference, "minus the square of the mean"),
        (lambda x, w, b, eps: None, "is the return missing?"),
    ),
    "drop_path": (
        (
            drop(forward=lambda self, x: torch.cat([x[:, :1], Drop.forward(self, x)[:, 1:]], 1)),
            "what falls is a part of the tokens",
        ),
        (drop(scale=lambda self: 1), "drop path without rescaling"),
        (drop(scale=lambda self: 1 / self.p if self.p else 1), "a division by p"),
        (drop(scale=lambda self: 1 - self.p), "a multiplication by 1 − p"),
        (drop(scale=lambda self: 2), "what images are multiplied by"),
        (with_shape(lambda x: (1, 1, 1)), "drop path for the whole batch"),
        (with_shape(lambda x: (len(x), x.shape[1], 1)), "drop path for single tokens"),
        (with_shape(lambda x: (len(x), 1, x.shape[2])), "single channels dropped"),
        (with_shape(lambda x: x.shape), "plain dropout"),
        (drop(forward=lambda self, x: F.dropout(x, self.p, self.training)), "plain dropout"),
        (drop(forward=lambda self, x: x * self.mask(x) * self.scale()), "drop path in evaluation"),
        (drop(forward=lambda self, x: x if self.training else x * self.mask(x) * self.scale()), "exchanged"),
        (drop(forward=lambda self, x: x * self.mask(x) if self.training else x * (1 - self.p)), "left to evaluation"),
        (drop(forward=lambda self, x: x), "nothing dropped"),
        (drop(forward=lambda self, x: x * self.scale()), "what falls is nothing"),
        (drop(mask=lambda self, x: (torch.rand(len(x), 1, 1) < self.p).float()), ""),
        (drop(mask=seeded_mask), "a seed"),
        (drop(mask=forked_mask), ""),
        (drop(mask=generator_mask), "each draw"),
        (drop(mask=kept_mask), "the same mask in each call"),
        (drop(mask=first_mask), "the same images each time"),
        (drop(mask=exact_mask), "a fixed number of images"),
        (drop(mask=pairs_mask), "some images always fall together"),
        (drop(mask=lambda self, x: (torch.rand(len(x), 1, 1) >= 0.5).float()), ""),
        (drop(mask=lambda self, x: (torch.rand(len(x), 1, 1) >= self.p / 2).float()), ", expected p"),
        (drop(mask=lambda self, x: (torch.rand(len(x)) >= self.p).float()), "raised RuntimeError"),
        (drop(mask=lambda self, x: (torch.randn(len(x), 1, 1) >= self.p).float()), "what share of the images falls"),
        (drop(mask=lambda self, x: torch.rand(len(x), 1, 1)), ""),
        (drop(forward=lambda self, x: Drop.forward(self, x.detach())), "the path of the gradient is cut"),
        (drop(forward=lambda self, x: Drop.forward(self, x)[0]), "the result has shape"),
        (drop(forward=lambda self, x: None), "the result is None"),
        (InPlace, ""),
        (drop(forward=lambda self, x: x if len(x) == 1 else Drop.forward(self, x)), "what falls is nothing"),
        (drop(mask=never_all), "what falls is nothing"),
        (lambda p: vt.DropPath(p), "the package's own DropPath"),
        (lambda p: nn.Dropout(p), "plain dropout"),
    ),
    "encoder_block": (
        (block(two=lambda self, z: -B.two(self, z)), "Of what MLP adds, alone: Every number is right but for its sign"),
        (block(one=lambda self, z: self.attention(self.attention(self.norm1(z)))), "What attention adds is wrong"),
        (block(forward=lambda self, z: self.norm2((y := self.norm1(z + self.attention(z))) + self.mlp(y))), ""),
        (
            block(one=lambda self, z: self.norm1(self.attention(z)), two=lambda self, z: self.norm2(self.mlp(z))),
            "two mistakes at once: a norm behind the branch; and no drop path",
        ),
        (block(forward=lambda self, z: z + self.two(self.one(z))), "one residual around both branches"),
        (block(forward=lambda self, z: self.two(self.one(z))), "no residuals"),
        (block(forward=lambda self, z: (y := self.one(z)) + self.two(y)), "a missing first residual"),
        (block(forward=lambda self, z: self.two(z + self.one(z))), "a missing second residual"),
        (block(forward=lambda self, z: z + self.two(z + self.one(z))), "a second addition to the old tokens"),
        (block(forward=lambda self, z: z + self.one(z) + self.two(z)), "both branches side by side"),
        (block(forward=lambda self, z: (y := z + self.two(z)) + self.one(y)), "the MLP before attention"),
        (block(forward=lambda self, z: z + (y := z + self.one(z)) + self.two(y)), "z added once too often"),
        (block(forward=lambda self, z: (y := self.norm1(z) + self.one(z)) + self.two(y)), "a first residual from"),
        (block(two=lambda self, z: self.drop_path(self.mlp(self.norm1(z)))), "one norm for both branches"),
        (block(one=lambda self, z: self.drop_path(self.attention(self.norm2(z)))), "norm2 in both lines"),
        (
            block(
                one=lambda self, z: self.drop_path(self.attention(self.norm2(z))),
                two=lambda self, z: self.drop_path(self.mlp(self.norm1(z))),
            ),
            "norms exchanged",
        ),
        (block(two=lambda self, z: self.drop_path(self.mlp(z))), "no norm before the MLP"),
        (block(one=lambda self, z: self.drop_path(self.attention(z))), "no norm before attention"),
        (block(two=lambda self, z: self.drop_path(self.attention(self.norm2(z)))), "attention in both lines"),
        (block(forward=lambda self, z: self.norm2(B.forward(self, z))), "one more norm at the end"),
        (with_eps(1e-5), "torch's eps"),
        (with_eps(1e-12), "an eps of 1e-12"),
        (with_eps(1e-3), "What your numbers show"),
        (parts(none, none), "no dropout"),
        (parts(same, none), "dropout in attention alone"),
        (parts(none, same), "dropout in the MLP alone"),
        (parts(lambda rate: {"attention_dropout": rate}, same), "dropout on the attention weights"),
        (parts(lambda rate: {"attention_dropout": rate}, none), ""),
        (parts(lambda rate: {"dropout": 0.1 * (rate > 0)}, same), ""),
        (block(one=lambda self, z: F.dropout(B.one(self, z), 0.5)), ""),
        (block(one=lambda self, z: self.attention(self.norm1(z))), "drop path on the MLP alone"),
        (block(two=lambda self, z: self.mlp(self.norm2(z))), "drop path on attention alone"),
        (
            block(one=lambda self, z: self.attention(self.norm1(z)), two=lambda self, z: self.mlp(self.norm2(z))),
            "no drop path",
        ),
        (block(forward=lambda self, z: self.drop_path(B.forward(self, z))), "how the two branches fall in training"),
        (block(forward=lambda self, z: B.forward(self, z).detach()), "gradient of"),
        (block(forward=lambda self, z: None), "is the return missing?"),
        (built(lambda self, dim, *rest: setattr(self, "norm3", nn.LayerNorm(dim))), "doesn't name: norm3.weight"),
        (
            lambda dim, heads, M, dropout=0.0, drop_path=0.0: vt.EncoderBlock(
                dim, heads, M, dropout=dropout, drop_path=drop_path
            ),
            "the package's own EncoderBlock",
        ),
        (AnotherDefault, "another default than 0"),
    ),
    "encoder": (
        (stack(rate=lambda self, i, depth, p: p * (i % 2)), "Your rates are 0, 0.2, 0, 0.2."),
        (stack(forward=lambda self, z: E.forward(self, z) + self.norm(z)), "Even where the blocks add nothing"),
        (stack(forward=lambda self, z: self.norm((each(self, z) + z) / 2)), "look at the way of the tokens"),
        (stack(make=lambda self, block, rates: nn.ModuleList([block(rates[-1])] * len(rates))), "again and again"),
        (stack(make=lambda self, block, rates: [block(rate) for rate in rates]), "blocks in a plain list"),
        (stack(make=copies), "copies of one block"),
        (stack(make=seeded), "a seed is set"),
        (stack(forward=each), "no norm at the end"),
        (stack(forward=lambda self, z: each(self, z, lambda self, z: self.norm(z))), "a norm after every block"),
        (stack(forward=lambda self, z: self.norm(each(self, z, order=reversed))), "blocks in backward order"),
        (stack(forward=lambda self, z: each(self, self.norm(z))), "a norm before the first block"),
        (stack(forward=lambda self, z: self.norm(z + each(self, z))), "a residual around the blocks"),
        (stack(forward=lambda self, z: self.norm(each(self, z, order=lambda b: b[:-1]))), "a block left out"),
        (stack(forward=lambda self, z: self.norm(each(self, z, order=lambda b: b[1:]))), "What your numbers show"),
        (stack(forward=lambda self, z: self.norm(each(self, z, order=lambda b: b[-1:]))), "on the same tokens"),
        (stack(forward=lambda self, z: self.norm(each(self, z))[:, 0]), "has shape"),
        (stack(rate=lambda self, i, depth, p: p), "the same rate in every block"),
        (stack(rate=lambda self, i, depth, p: p * (depth - 1 - i) / max(depth - 1, 1)), "rates that fall"),
        (stack(rate=lambda self, i, depth, p: p * (i + 1) / depth), "rates that do not begin at 0"),
        (stack(rate=lambda self, i, depth, p: p * i / depth), "rates that stop short"),
        (stack(rate=lambda self, i, depth, p: 0.0), "no stochastic depth"),
        (stack(rate=lambda self, i, depth, p: p * (i / max(depth - 1, 1)) ** 2), "rates that grow with the square"),
        (stack(rate=lambda self, i, depth, p: p * i / (depth - 1)), "raised ZeroDivisionError"),
        (stack(rate=lambda self, i, depth, p: p / 2), "drop path["),
        (stack(last=lambda self, dim: nn.LayerNorm(dim)), "torch's eps in the last norm"),
        (stack(last=lambda self, dim: nn.LayerNorm(dim, eps=1e-12)), "an eps of 1e-12 in the last norm"),
        (stack(last=lambda self, dim: nn.Identity()), ""),
        (OneTooFew, "the number of blocks"),
        (AnotherDefaultRate, "another default than 0"),
        (WithDropout, "in training mode"),
        (stack(rate=lambda self, i, depth, p: p * i / max(depth - 1, 2)), "Your rates are 0, 0.05."),
        (
            stack(rate=lambda self, i, depth, p: p, forward=lambda self, z: each(self, z)),
            "two mistakes at once",
        ),
        (stack(forward=lambda self, z: self.norm(each(self, z)).detach()), "gradient of"),
        (lambda *args: nn.Linear(4, 4), "the number of blocks"),
    ),
}
