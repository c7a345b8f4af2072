"""Answers to the exercises of lesson 05: right ones, written in different ways, and wrong ones with what they hear."""

from collections import OrderedDict

import numpy as np
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


def norm_by_torch(x, weight, bias, eps):
    return F.layer_norm(x, (x.shape[-1],), weight, bias, eps)


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


def norm_by_numpy(x, weight, bias, eps):
    x, weight, bias = (a.numpy() for a in (x, weight, bias))
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + eps) * weight + bias


class ByNumpy(ByRand):
    def forward(self, x):
        if not self.training:
            return x
        keep = np.random.random((len(x), 1, 1)) >= self.p
        return x * torch.from_numpy(keep).to(x) / (1 - self.p)


class RatesFromNumpy(Stack):
    def __init__(self, dim, num_heads, mlp_dim, depth, drop_path=0.0):
        super().__init__(dim, num_heads, mlp_dim, 0)
        rates = np.linspace(0, drop_path, depth)
        self.blocks.extend(vt.EncoderBlock(dim, num_heads, mlp_dim, drop_path=rate) for rate in rates)


RIGHT = {
    "block_numbers": (
        lambda: NUMBERS,
        lambda: NUMBERS | {"normed": torch.tensor([-1.0, -1, 1, 1]), "kept": 5.0, "parameters": np.int64(172)},
        lambda: NUMBERS | {"again": (-1.0, -1.0, 1.0, 1.0), "block": np.array([3, 3, 7, 9])},
    ),
    "layer_norm": (
        norm_by_var,
        norm_by_squares,
        norm_by_torch,
        norm_by_numpy,
    ),
    "drop_path": (ByRand, ByBernoulli, ByDropout, ByNumpy),
    "encoder_block": (Block, WithTorchsAttention, AroundTorchsLayer, OutInOneExpression),
    "encoder": (Stack, InSequence, ByTheirNames, RatesFromNumpy),
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


def first_mask(self, x):
    return (torch.arange(len(x)) >= round(self.p * len(x))).float()[:, None, None]


def exact_mask(self, x):
    return first_mask(self, x)[torch.randperm(len(x))]


def pairs_mask(self, x):
    return (torch.rand(len(x) // 2, 1, 1) >= self.p).float().repeat_interleave(2, 0) if len(x) % 2 == 0 else 1


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


def each(self, z, order=lambda blocks: blocks, add=False):
    for one in order(list(self.blocks)):
        z = z + one(z) if add else one(z)
    return z


def seeded(self, block, rates):
    made = []
    for rate in rates:
        torch.manual_seed(0)
        made.append(block(rate))
    return nn.ModuleList(made)


class AnotherDefaultRate(E):
    def __init__(self, dim, num_heads, mlp_dim, depth, drop_path=0.1):
        super().__init__(dim, num_heads, mlp_dim, depth, drop_path)


class OneTooFew(E):
    def __init__(self, dim, num_heads, mlp_dim, depth, drop_path=0.0):
        super().__init__(dim, num_heads, mlp_dim, depth - 1, drop_path)


class OneRateOfDropPath(Block):
    def __init__(self, dim, num_heads, mlp_dim, dropout=0.0, drop_path=0.0):
        super().__init__(dim, num_heads, mlp_dim, dropout, 0.3 if drop_path else 0.0)


class DropoutBesides(Stack):
    """Dropout at the rate of drop path, in the blocks that have one."""

    def __init__(self, dim, num_heads, mlp_dim, depth, drop_path=0.0):
        super().__init__(dim, num_heads, mlp_dim, depth, drop_path)
        for block in self.blocks:
            block.mlp.dropout.p = block.drop_path.p


class SeededEncoder(Stack):
    def __init__(self, *sizes):
        torch.manual_seed(42)
        super().__init__(*sizes)


class InOrderOfText(Stack):
    def forward(self, z):
        for name in sorted(self.blocks._modules):
            z = self.blocks._modules[name](z)
        return self.norm(z)


class CappedEncoder(Stack):
    def __init__(self, dim, num_heads, mlp_dim, depth, drop_path=0.0):
        super().__init__(dim, num_heads, mlp_dim, depth, min(drop_path, 0.5))


class NothingFallsAfterAnEvaluation(Drop):
    def forward(self, x):
        self.p = self.p if self.training else 0.0
        return super().forward(x)


class TwentyMasks(Drop):
    """Draws twenty times, and then goes round."""

    def __init__(self, p):
        super().__init__(p)
        self.kept, self.calls = None, 0

    def mask(self, x):
        if self.kept is None:
            self.kept = [super(TwentyMasks, self).mask(x) for _ in range(20)]
        self.calls += 1
        return self.kept[self.calls % 20]


class HalfFallsAtMost(Drop):
    def mask(self, x):
        return (torch.rand(len(x), 1, 1) >= min(self.p, 0.5)).float()


class AlwaysTheSameStart(Block):
    def __init__(self, *sizes, **rates):
        super().__init__(*sizes, **rates)
        before = torch.get_rng_state()
        torch.manual_seed(0)
        for parameter in self.parameters():
            if parameter.ndim > 1:
                nn.init.xavier_uniform_(parameter)
        torch.set_rng_state(before)


class OneOfBothRates(Block):
    def __init__(self, dim, num_heads, mlp_dim, dropout=0.0, drop_path=0.0):
        super().__init__(dim, num_heads, mlp_dim, 0.0 if drop_path else dropout, drop_path)


class SeededStack(Stack):
    def __init__(self, *sizes, **rates):
        super().__init__(*sizes, **rates)
        torch.manual_seed(42)


def generator_begun_anew(self, x):
    generator = torch.Generator().manual_seed(0)
    return (torch.rand(len(x), 1, 1, generator=generator) >= self.p).float()


class SeededGenerator(Drop):
    def __init__(self, p):
        super().__init__(p)
        self.generator = torch.Generator().manual_seed(0)

    def mask(self, x):
        return (torch.rand(len(x), 1, 1, generator=self.generator) >= self.p).float()


def torchs_eps_in_norm2(self, dim, *rest):
    self.norm2 = nn.LayerNorm(dim)


WRONG = {
    "block_numbers": [
        Wrong("the mean alone", answer(normed=[-2, -2, 2, 2]), "Subtract the mean of the four numbers"),
        Wrong("the mean kept", answer(again=[9, 9, 11, 11]), "Norm [14, 14, 22, 22] in the same way"),
        Wrong("z added twice", answer(block=[5, 5, 13, 15]), "plus what attention returns"),
        Wrong("sixteen too few", answer(parameters=156), "Two norms of 2 · D"),
        Wrong("eight too few", answer(parameters=164), "four matrices D × D with a bias each"),
        Wrong("a list", lambda: [-1, -1, 1, 1], "expected a dictionary of answers"),
    ],
    "layer_norm": [
        Wrong(
            "weight twice", norm(end=lambda x, weight, bias: x * weight**2 + bias), "are applied as agreed, before them"
        ),
        Wrong(
            "std and eps",
            norm(spread=lambda x, eps: x.std(-1, keepdim=True) + eps),
            "and the standard deviation 0.866",
        ),
        Wrong("no eps", norm(spread=lambda x, eps: x.std(-1, keepdim=True, unbiased=False)), "What your numbers show"),
        Wrong("no mean", norm(mean=lambda x: 0)),
        Wrong("the median", norm(mean=lambda x: x.median(-1, keepdim=True).values), "your first token has the mean"),
        Wrong("no bias", norm(end=lambda y, w, b: y * w), "What is missing is bias"),
        Wrong("in place", norm_in_place, "argument 1 was changed in place"),
        # These once passed.
        Wrong(
            "no eps below 1e-6", lambda x, w, b, eps: F.layer_norm(x, x.shape[-1:], w, b, max(eps, 1e-6)), "eps=1e-09"
        ),
        Wrong("no eps above 1e-3", lambda x, w, b, eps: F.layer_norm(x, x.shape[-1:], w, b, min(eps, 1e-3)), "eps=0.2"),
        Wrong(
            "cut off at 5",
            lambda x, w, b, eps: F.layer_norm(x, x.shape[-1:], eps=eps).clamp(-5, 5) * w + b,
            "x (2, 90)",
        ),
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
        Wrong("nothing falls", drop(forward=lambda self, x: x), "what comes out as 0 is nothing"),
        Wrong("a generator begun anew", drop(mask=generator_begun_anew), "each draw is", never="the share of images"),
        Wrong("a generator with a seed", SeededGenerator, "the first draw of each new layer is", never="each draw"),
        Wrong("the first images", drop(mask=first_mask), "each draw is the same as the one before"),
        Wrong("as many each time", drop(mask=exact_mask), "images don't draw by themselves"),
        Wrong("pairs", drop(mask=pairs_mask), "some images are always dropped together"),
        Wrong(
            "half of p",
            drop(mask=lambda self, x: (torch.rand(len(x), 1, 1) >= self.p / 2).float()),
            "is 0.1. It should be 0.2",
        ),
        Wrong(
            "detached", drop(forward=lambda self, x: Drop.forward(self, x.detach())), "the path of the gradient is cut"
        ),
        Wrong("in place", InPlace, "argument 1 was changed in place", never="gradient"),
        Wrong("the package's own", lambda p: vt.DropPath(p), "the package's own DropPath"),
        # These once passed.
        Wrong("nothing after an evaluation", NothingFallsAfterAnEvaluation, "after a call in eval mode"),
        Wrong("twenty masks", TwentyMasks, "sometimes one that came before"),
        Wrong("half at most", HalfFallsAtMost, "p=0.75"),
    ],
    "encoder_block": [
        Wrong(
            "the MLP subtracted",
            block(two=lambda self, z: -B.two(self, z)),
            "Of your result less z, where MLP alone speaks: Every number is right but for its sign",
        ),
        Wrong(
            "one residual around both",
            block(forward=lambda self, z: z + self.two(self.one(z))),
            "What your numbers show",
        ),
        Wrong(
            "dropout in attention alone",
            parts(same, none),
            "MLP alone speaks: what equal images become, in training, is equal",
        ),
        Wrong("attention_dropout", parts(lambda rate: {"attention_dropout": rate}, same), "in training, is about 0"),
        Wrong(
            "drop path on attention alone",
            block(two=lambda self, z: self.mlp(self.norm2(z))),
            "in training, is 2. It should be 4",
        ),
        Wrong("detached", block(forward=lambda self, z: B.forward(self, z).detach()), "gradient of"),
        Wrong("another default", AnotherDefault),
        Wrong(
            "the package's own",
            lambda *sizes, **rates: vt.EncoderBlock(*sizes, **rates),
            "the package's own EncoderBlock",
        ),
        # These once passed.
        Wrong("torch's eps in one norm", built(torchs_eps_in_norm2)),
        Wrong(
            "another dropout in the MLP",
            parts(same, lambda rate: {"dropout": 0.95 * rate}),
            "what a number of equal images becomes",
        ),
        Wrong("one rate of drop path", OneRateOfDropPath, "300 equal images, drop_path=0.6"),
        Wrong("one of both rates", OneOfBothRates, "at most 4 different results"),
        Wrong("the same start", AlwaysTheSameStart, "the same numbers (is a seed set?)"),
    ],
    "encoder": [
        Wrong(
            "no rates",
            stack(rate=lambda self, i, depth, p: 0.0),
            "drop path[1] is 0, expected 0.0667",
            never="list of 5",
        ),
        Wrong(
            "a mean with the tokens",
            stack(forward=lambda self, z: self.norm((each(self, z) + z) / 2)),
            "look at the way of the tokens",
        ),
        Wrong("a seed for each", stack(make=seeded), "is a seed set?"),
        Wrong("no norm", stack(last=lambda self, dim: nn.Identity())),
        Wrong("a division by 0", stack(rate=lambda self, i, depth, p: p * i / (depth - 1)), "raised ZeroDivisionError"),
        Wrong("another default", AnotherDefaultRate, "all should be 0"),
        Wrong("a block too few", OneTooFew, "the number of mlp.fc1.weight", never="changed in place"),
        Wrong("detached", stack(forward=lambda self, z: self.norm(each(self, z)).detach()), "gradient of"),
        # These once passed.
        Wrong("dropout besides", DropoutBesides, "in training mode, compared with evaluation mode, is another one"),
        Wrong("a seed", SeededEncoder, "the same (is a seed set?)"),
        Wrong("a seed afterwards", SeededStack, "torch's seed is set by your code"),
        Wrong("in the order of text", InOrderOfText, "depth=13"),
        Wrong("half at most", CappedEncoder, "drop_path=0.6"),
    ],
}
