"""Answers to the exercises of lesson 05: right ones in different styles, and wrong ones, each with its report."""

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


def norm_by_moments(x, weight, bias, eps):
    """Right by hand; far from 0 the difference of two large numbers has few digits."""
    mean = x.mean(-1, keepdim=True)
    variance = (x * x).mean(-1, keepdim=True) - mean * mean
    return (x - mean) / torch.sqrt(variance + eps) * weight + bias


def norm_in_place(x, weight, bias, eps):
    x -= x.mean(-1, keepdim=True)
    return x / (x.pow(2).mean(-1, keepdim=True) + eps).sqrt() * weight + bias


def norm_with_a_larger_eps(x, weight, bias, eps):
    return F.layer_norm(x, x.shape[-1:], weight, bias, max(eps, 1e-6))


class NoFirstToken(ByRand):
    def forward(self, x):
        return torch.cat([x[:, :1], super().forward(x)[:, 1:]], dim=1)


class InEvaluationOnly(ByRand):
    def forward(self, x):
        keep = (torch.rand(len(x), 1, 1) >= self.p).float()
        return x if self.training else x * keep / (1 - self.p)


class SameDraws(ByRand):
    def forward(self, x):
        keep = torch.rand(len(x), 1, 1, generator=torch.Generator().manual_seed(0)) >= self.p
        return x * keep / (1 - self.p) if self.training else x


class CutInTraining(ByRand):
    def forward(self, x):
        return super().forward(x).detach() if self.training else x


class Detached(Block):
    def forward(self, z):
        return super().forward(z).detach()


class NoDropoutInAttention(Block):
    def __init__(self, dim, num_heads, mlp_dim, dropout=0.0, drop_path=0.0):
        super().__init__(dim, num_heads, mlp_dim, dropout, drop_path)
        self.attention = vt.MultiHeadSelfAttention(dim, num_heads)


class OneTooFew(Stack):
    def __init__(self, dim, num_heads, mlp_dim, depth, drop_path=0.0):
        super().__init__(dim, num_heads, mlp_dim, depth - 1, drop_path)


class NoRates(Stack):
    def __init__(self, dim, num_heads, mlp_dim, depth, drop_path=0.0):
        super().__init__(dim, num_heads, mlp_dim, depth)


class Shared(Stack):
    norm_of_all = nn.LayerNorm(4)

    def __init__(self, dim, *others):
        super().__init__(dim, *others)
        self.norm = self.norm_of_all if dim == 4 else self.norm


WRONG = {
    "block_numbers": [
        Wrong("the mean alone", answer(normed=[-2, -2, 2, 2]), "Subtract the mean of the four numbers"),
        Wrong("the mean kept", answer(again=[9, 9, 11, 11]), "Normalise [14, 14, 22, 22] in the same way"),
    ],
    "layer_norm": [
        Wrong("in place", norm_in_place, "argument 1 was changed in place"),
        Wrong("no eps below 1e-6", norm_with_a_larger_eps, "eps=1e-09"),
        Wrong("the mean of squares minus the squared mean", norm_by_moments, "numbers about 100"),
    ],
    "drop_path": [
        Wrong("never the first token", NoFirstToken, "what the first number can be (in training) is 1.541"),
        Wrong("training and evaluation exchanged", InEvaluationOnly, "(in eval mode) is 0, 1.926. It should be 1.541"),
        Wrong("a generator begun anew", SameDraws, "the result of another call (in training) is the same"),
        Wrong("cut in training", CutInTraining, "the path of the gradient (in training) is cut"),
    ],
    "encoder_block": [
        Wrong("detached", Detached, "gradient of"),
        Wrong("the package's own", lambda *sizes: vt.EncoderBlock(*sizes), "the package's own EncoderBlock"),
        Wrong("no dropout in attention", NoDropoutInAttention, "(in training) is 1. It should be many."),
    ],
    "encoder": [
        Wrong("no rates", NoRates, "drop path[1] is 0, expected 0.0667", never="list of 5"),
        Wrong("a block too few", OneTooFew, "the number of mlp.fc1.weight", never="changed in place"),
        Wrong("one norm for all encoders", Shared, "two layers of your class share norm.weight"),
    ],
}
