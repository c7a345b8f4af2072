"""Answers to the exercises of lesson 05: right ones, written in different ways, and wrong ones with what they hear."""

import torch
from submissions import Wrong
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


RIGHT = {
    "block_numbers": (lambda: NUMBERS,),
    "layer_norm": (norm_by_var, norm_by_squares),
    "drop_path": (ByRand, ByBernoulli),
    "encoder_block": (Block, WithTorchsAttention),
    "encoder": (Stack, InSequence),
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


def norm_by_moments(x, weight, bias, eps):
    """Right by hand; far from 0 the difference of two large numbers has few digits."""
    mean = x.mean(-1, keepdim=True)
    variance = (x * x).mean(-1, keepdim=True) - mean * mean
    return (x - mean) / torch.sqrt(variance + eps) * weight + bias


def norm_in_place(x, weight, bias, eps):
    x -= x.mean(-1, keepdim=True)
    return x / (x.pow(2).mean(-1, keepdim=True) + eps).sqrt() * weight + bias


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


def parts(attention, mlp):
    """Which dropouts the parts get: functions of the rate."""

    def make(self, dim, num_heads, mlp_dim, dropout, drop_path):
        self.attention = vt.MultiHeadSelfAttention(dim, num_heads, **attention(dropout))
        self.mlp = vt.MLP(dim, mlp_dim, **mlp(dropout))

    return built(make)


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


def each(self, z, order=lambda blocks: blocks, add=False):
    for one in order(list(self.blocks)):
        z = z + one(z) if add else one(z)
    return z


class OneTooFew(E):
    def __init__(self, dim, num_heads, mlp_dim, depth, drop_path=0.0):
        super().__init__(dim, num_heads, mlp_dim, depth - 1, drop_path)


class OneRateOfDropPath(Block):
    def __init__(self, dim, num_heads, mlp_dim, dropout=0.0, drop_path=0.0):
        super().__init__(dim, num_heads, mlp_dim, dropout, 0.3 if drop_path else 0.0)


def generator_begun_anew(self, x):
    generator = torch.Generator().manual_seed(0)
    return (torch.rand(len(x), 1, 1, generator=generator) >= self.p).float()


WRONG = {
    "block_numbers": [
        Wrong("the mean alone", answer(normed=[-2, -2, 2, 2]), "Subtract the mean of the four numbers"),
        Wrong("the mean kept", answer(again=[9, 9, 11, 11]), "Norm [14, 14, 22, 22] in the same way"),
    ],
    "layer_norm": [
        Wrong("in place", norm_in_place, "argument 1 was changed in place"),
        Wrong(
            "no eps below 1e-6", lambda x, w, b, eps: F.layer_norm(x, x.shape[-1:], w, b, max(eps, 1e-6)), "eps=1e-09"
        ),
        Wrong("the mean of squares minus the squared mean", norm_by_moments, "numbers about 100"),
        Wrong("no eps", norm(spread=lambda x, eps: x.std(-1, keepdim=True, unbiased=False)), "It looks like no eps"),
    ],
    "drop_path": [
        Wrong(
            "a part of the tokens",
            drop(forward=lambda self, x: torch.cat([x[:, :1], Drop.forward(self, x)[:, 1:]], 1)),
            "what comes out as 0 is single tokens",
        ),
        Wrong(
            "training and evaluation exchanged",
            drop(forward=lambda self, x: x if self.training else x * self.mask(x) * self.scale()),
            "what comes out as 0 is",
        ),
        Wrong("a generator begun anew", drop(mask=generator_begun_anew), "each draw is", never="the share of images"),
    ],
    "encoder_block": [
        Wrong("detached", block(forward=lambda self, z: B.forward(self, z).detach()), "gradient of"),
        Wrong(
            "the package's own",
            lambda *sizes, **rates: vt.EncoderBlock(*sizes, **rates),
            "the package's own EncoderBlock",
        ),
        Wrong("one rate of drop path", OneRateOfDropPath, "300 equal images, drop_path=0.6"),
    ],
    "encoder": [
        Wrong(
            "no rates",
            stack(rate=lambda self, i, depth, p: 0.0),
            "drop path[1] is 0, expected 0.0667",
            never="list of 5",
        ),
        Wrong("a division by 0", stack(rate=lambda self, i, depth, p: p * i / (depth - 1)), "raised ZeroDivisionError"),
        Wrong("a block too few", OneTooFew, "the number of mlp.fc1.weight", never="changed in place"),
    ],
}
