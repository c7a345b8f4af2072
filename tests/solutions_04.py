"""Answers to the exercises of lesson 04: right ones, written in different ways, and wrong ones with what they hear."""

import math

import numpy as np
import torch
from submissions import Wrong
from torch import nn
from torch.nn import functional as F

import vit_tutorial as vt

NUMBERS = {
    "hidden": [1, 2, -1], "activations": [0.84, 1.95, -0.16], "output": [1.68, 1.79], "parameters": 148, "moved": 1,
}  # fmt: skip


def gelu_by_erf(x):
    return 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))


def gelu_by_erfc(x):
    return x * torch.special.erfc(-x * 0.5**0.5) / 2


def gelu_by_normal(x):
    return x * torch.distributions.Normal(0.0, 1.0).cdf(x)


def gelu_by_ndtr(x):
    return torch.special.ndtr(x) * x


def tanh_by_formula(x):
    return x / 2 * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def tanh_by_sigmoid(x):
    """(1 + tanh(a)) / 2 is sigmoid(2a)."""
    return x * torch.sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x.pow(3)))


def tanh_by_factor(x):
    inner = 0.7978845608 * x * (1 + 0.044715 * x * x)
    return 0.5 * x + 0.5 * x * inner.tanh()


class Plain(nn.Module):
    def __init__(self, dim, hidden_dim, dropout=0.0):
        super().__init__()
        self.fc1 = nn.Linear(dim, hidden_dim)
        self.act = nn.GELU()
        self.fc2 = nn.Linear(hidden_dim, dim)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        return self.dropout(self.fc2(self.dropout(self.act(self.fc1(x)))))


class ByConvolution(Plain):
    """1 x 1 convolutions, and a dropout of each place."""

    def __init__(self, dim, hidden_dim, dropout):
        nn.Module.__init__(self)
        self.fc1, self.fc2 = nn.Conv1d(dim, hidden_dim, 1), nn.Conv1d(hidden_dim, dim, 1)
        self.drop1, self.drop2 = nn.Dropout(dropout), nn.Dropout(dropout)

    def forward(self, x):
        columns = x.reshape(-1, x.shape[-1], 1)
        y = self.fc2(self.drop1(gelu_by_ndtr(self.fc1(columns))))
        return self.drop2(y.reshape(x.shape))


class ByHand(nn.Module):
    def __init__(self, dim, hidden_dim, dropout):
        super().__init__()
        self.p = dropout
        self.fc1, self.fc2 = nn.Linear(dim, hidden_dim), nn.Linear(hidden_dim, dim)

    def drop(self, x):
        if not self.training:
            return x
        return x * torch.bernoulli(torch.full_like(x, 1 - self.p)) / (1 - self.p)

    def forward(self, x):
        hidden = gelu_by_erf(x @ self.fc1.weight.T + self.fc1.bias)
        return self.drop(self.drop(hidden) @ self.fc2.weight.T + self.fc2.bias)


class InSequence(nn.Module):
    """A Sequential with names, as a part of a part."""

    def __init__(self, dim, hidden_dim, dropout):
        super().__init__()
        self.layers = nn.Sequential()
        self.layers.add_module("fc1", nn.Linear(dim, hidden_dim))
        self.layers.add_module("gelu", nn.GELU())
        self.layers.add_module("drop1", nn.Dropout(dropout))
        self.layers.add_module("fc2", nn.Linear(hidden_dim, dim))
        self.layers.add_module("drop2", nn.Dropout(dropout))

    def forward(self, x):
        return self.layers(x)


def pieces_by_chunk(x, w1, b1, w2, b2, pieces):
    result = b2
    for a, b, c in zip(w1.chunk(pieces), b1.chunk(pieces), w2.chunk(pieces, dim=1), strict=True):
        result = result + F.gelu(x @ a.T + b) @ c.T
    return result


def pieces_by_slices(x, w1, b1, w2, b2, pieces):
    M, total = len(b1), 0
    for i in range(pieces):
        start, end = M * i // pieces, M * (i + 1) // pieces
        hidden = F.gelu(F.linear(x, w1[start:end], b1[start:end]))
        total = total + F.linear(hidden, w2[:, start:end])
    return total + b2


def pieces_by_strides(x, w1, b1, w2, b2, pieces):
    """Any cut will do, if rows of w1, numbers of b1 and columns of w2 are cut alike."""
    parts = [F.linear(F.gelu(F.linear(x, w1[i::pieces], b1[i::pieces])), w2[:, i::pieces]) for i in range(pieces)]
    return torch.stack(parts).sum(0) + b2


def gelu_by_numpy(x):
    return np.vectorize(lambda value: value * (1 + math.erf(value / math.sqrt(2))) / 2)(x.numpy())


def tanh_by_numpy(x):
    x = x.numpy()
    return x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def pieces_by_numpy(x, w1, b1, w2, b2, pieces):
    total = b2.numpy().astype(float)
    for units in np.array_split(np.arange(len(b1)), pieces):
        hidden = x.numpy() @ w1.numpy()[units].T + b1.numpy()[units]
        total = total + gelu_by_numpy(torch.from_numpy(hidden)) @ w2.numpy()[:, units].T
    return total


RIGHT = {
    "mlp_numbers": (
        lambda: NUMBERS,
        lambda: NUMBERS | {"hidden": torch.tensor([1.0, 2.0, -1.0]), "activations": np.array([0.841, 1.954, -0.159])},
        lambda: NUMBERS | {"output": (1.682, 1.795), "parameters": 148.0, "moved": np.int64(1)},
    ),
    "gelu": (
        gelu_by_erf,
        gelu_by_erfc,
        gelu_by_normal,
        gelu_by_numpy,
    ),
    "gelu_tanh": (tanh_by_formula, tanh_by_sigmoid, tanh_by_factor, tanh_by_numpy),
    "mlp": (Plain, ByConvolution, ByHand, InSequence),
    "mlp_in_pieces": (
        pieces_by_chunk,
        pieces_by_slices,
        pieces_by_strides,
        pieces_by_numpy,
    ),
}

# ---- Wrong ones ------------------------------------------------------------------------------------------------------


def answer(**wrong):
    """The right answers but for some."""
    return lambda: NUMBERS | wrong


ROOT = math.sqrt(2 / math.pi)


def inner(x, factor=ROOT, small=0.044715, power=3):
    return factor * (x + small * x**power)


def gelu_flat_list(x):
    return [value * (1 + math.erf(value / 2**0.5)) / 2 for value in x.flatten().tolist()]


class Layer(nn.Module):
    """The right MLP in steps; a wrong one replaces some."""

    def __init__(self, dim, hidden_dim, dropout=0.0):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(dim, hidden_dim), nn.Linear(hidden_dim, dim)
        self.drop = nn.Dropout(dropout)
        self.p = dropout

    def forward(self, x):
        return self.drop(self.fc2(self.drop(self.activate(self.fc1(x)))))

    def activate(self, x):
        return F.gelu(x)


def with_steps(**steps):
    """An MLP with other steps."""
    return type("MLP", (Layer,), steps)


class FourTimes(Layer):
    def __init__(self, dim, hidden_dim, dropout=0.0):
        super().__init__(dim, 4 * dim, dropout)


class Seeded(Layer):
    def forward(self, x):
        torch.manual_seed(0)
        return super().forward(x)


class OneMask(Layer):
    """The mask is drawn once, at the first call."""

    def forward(self, x):
        if not self.training:
            return super().forward(x)
        hidden, out = self.activate(self.fc1(x)), self.fc2.out_features
        if not hasattr(self, "masks"):
            self.masks = F.dropout(torch.ones(*hidden.shape), self.p), F.dropout(torch.ones(*x.shape[:-1], out), self.p)
        return self.fc2(hidden * self.masks[0]) * self.masks[1]


def pieces(cut=None, activate=F.gelu, bias=None, join=sum):
    """mlp_in_pieces with one thing or another changed."""

    def mlp_in_pieces(x, w1, b1, w2, b2, pieces):
        split = cut or (lambda w, n, d: w.chunk(n, d))
        parts = zip(split(w1, pieces, 0), split(b1, pieces, 0), split(w2, pieces, 1), strict=True)
        found = [activate(x @ a.T + b) @ c.T for a, b, c in parts]
        return join(found) + (b2 if bias is None else bias(b2, pieces))

    return mlp_in_pieces


def pieces_whole(x, w1, b1, w2, b2, pieces):
    return F.gelu(x @ w1.T + b1) @ w2.T + b2


class DropsByHand(nn.Module):
    """Dropout as a student writes it; ``keeps`` draws what stays, and which of the two places it is for."""

    def __init__(self, dim, hidden_dim, dropout=0.0):
        super().__init__()
        self.fc1, self.fc2, self.p = nn.Linear(dim, hidden_dim), nn.Linear(hidden_dim, dim), dropout

    def forward(self, x):
        return self.drop(self.fc2(self.drop(F.gelu(self.fc1(x)), 1)), 2)

    def drop(self, x, place):
        if not self.training or self.p == 0:
            return x
        return x * self.keeps(x, place) / (1 - self.p)

    def keeps(self, x, place):
        return torch.rand_like(x) >= self.p


class KeepsTheShareToDrop(DropsByHand):
    def keeps(self, x, place):
        return torch.rand_like(x) < self.p if place == 2 else super().keeps(x, place)


class WholeTokensAtTheEnd(DropsByHand):
    def keeps(self, x, place):
        return super().keeps(x if place == 1 else x[..., :1], place)


class NormalDraws(DropsByHand):
    def keeps(self, x, place):
        return torch.randn_like(x) >= self.p


class OneDrawForAllImages(DropsByHand):
    def keeps(self, x, place):
        return torch.rand(x.shape[1:] if x.ndim > 2 else x.shape) >= self.p


class StaysInTraining(DropsByHand):
    def forward(self, x):
        result = super().forward(x)
        self.train()
        return result


def pieces_that_are_kept(x, w1, b1, w2, b2, pieces):
    hidden = [F.gelu(F.linear(x, a, b)) for a, b in zip(w1.chunk(pieces), b1.chunk(pieces), strict=True)]
    return b2 + sum(part @ c.T for part, c in zip(hidden, w2.chunk(pieces, 1), strict=True))


def pieces_of_tokens_in_rows(x, w1, b1, w2, b2, pieces):
    parts = zip(w1.chunk(pieces), b1.chunk(pieces), w2.chunk(pieces, 1), strict=True)
    return torch.cat([(F.gelu(x @ a.mT + b) @ c.mT)[None] for a, b, c in parts], 0).sum(0) + (b2 if x.ndim > 1 else 0)


def no_dropout_for_few_axes(self, x):
    return self.fc2(self.activate(self.fc1(x))) if x.ndim < 3 else Layer.forward(self, x)


WRONG = {
    "mlp_numbers": [
        Wrong("a GELU at the end", answer(output=[1.95, 0.84]), "column j of W2"),
        Wrong("a sign lost", answer(hidden=[1, 2, 1]), "Hidden number j is the dot product"),
        Wrong("another activation", answer(activations=[0.84, 0.98, -0.16]), "Multiply each hidden number"),
        Wrong("the last activation left out", answer(output=[1.68, 1.95]), "Output number j is the dot product"),
        Wrong("both biases M wide", answer(parameters=160), "Two layers, each with a matrix and a bias"),
        Wrong("a tuple", lambda: (1, 2, -1), "expected a dictionary of answers"),
    ],
    "gelu": [
        Wrong("tanh", tanh_by_formula, "your z / x is 0.0227"),
        Wrong("a missing 1", lambda x: x * torch.erf(x / 2**0.5) / 2, "GELU multiplies x by a probability"),
        Wrong("cut off above 3", lambda x: torch.where(x > 3, x, gelu_by_erf(x)), "Farthest off is x = 3.5"),
        Wrong("math's erf", lambda x: x * (1 + math.erf(x / math.sqrt(2))) / 2, "raised ValueError"),
        Wrong("a flat list", gelu_flat_list, "expected a torch.Tensor"),
        Wrong(
            "in place",
            lambda x: x.mul_(torch.special.ndtr(x)),
            "argument 1 was changed in place",
            never="your numbers show",
        ),
        Wrong(
            "√2 with few digits, which once passed",
            lambda x: x * (1 + torch.erf(x / 1.4142)) / 2,
            "is -0.146488, expected -0.146490",
        ),
    ],
    "gelu_tanh": [
        Wrong("the exact form", gelu_by_erf, "your z / x is 0.0228"),
        Wrong("a square", lambda x: x / 2 * (1 + torch.tanh(inner(x, power=2))), "GELU multiplies x by a probability"),
        Wrong("no cube", lambda x: x / 2 * (1 + torch.tanh(inner(x, power=1))), "What your numbers show"),
        Wrong(
            "√(π/2)", lambda x: x / 2 * (1 + torch.tanh(inner(x, factor=(math.pi / 2) ** 0.5))), "GELU multiplies x by"
        ),
        Wrong("in place", lambda x: x.div_(2) * (1 + torch.tanh(inner(2 * x))), "changed in place"),
        Wrong("math's tanh", lambda x: math.tanh(x), "raised"),
        Wrong("0.0447, which once passed", lambda x: x / 2 * (1 + torch.tanh(inner(x, small=0.0447))), "Farthest off"),
    ],
    "mlp": [
        Wrong("no dropout for few axes", with_steps(forward=no_dropout_for_few_axes), "in training,"),
        Wrong("a GELU before", with_steps(forward=lambda self, x: Layer.forward(self, F.gelu(x)))),
        Wrong(
            "a second GELU", with_steps(forward=lambda self, x: F.gelu(Layer.forward(self, x))), "GELU of the right one"
        ),
        Wrong("detached", with_steps(forward=lambda self, x: Layer.forward(self, x).detach()), "gradient of"),
        Wrong("a seed", Seeded, "tied to a seed"),
        Wrong("one mask", OneMask, "each draw is the same as the one before"),
        Wrong("four times as wide", FourTimes, "fc1.weight has shape"),
        Wrong(
            "the package's own",
            lambda dim, hidden, dropout=0.0: vt.MLP(dim, hidden, dropout=dropout),
            "the package's own",
        ),
        # These once passed.
        Wrong("the wrong share kept", KeepsTheShareToDrop, "sets to 0 after the second layer is too large"),
        Wrong("normal draws", NormalDraws, "sets to 0 after the GELU is too large"),
        Wrong("one draw for all images", OneDrawForAllImages, "the same all along axis 0"),
        Wrong("whole tokens", WholeTokensAtTheEnd, "what dropout sets to 0 after the second layer is whole tokens"),
        Wrong("always in training", StaysInTraining, "mode (train, eval) after a call"),
    ],
    "mlp_in_pieces": [
        Wrong("b2 in each piece", pieces(bias=lambda b, n: n * b), "b2 is added once too often"),
        Wrong(
            "sizes for numbers",
            pieces(cut=lambda x, n, dim: x.split(n, dim)),
            "goes through GELU, erf or the like in one step",
        ),
        Wrong("the largest", pieces(join=lambda parts: torch.stack(parts).amax(0))),
        Wrong("side by side", pieces(join=lambda parts: torch.cat(parts, dim=-1)), "raised RuntimeError"),
        Wrong("a ReLU", pieces(activate=F.relu)),
        Wrong("a GELU on the sum", lambda *args: F.gelu(pieces(activate=lambda x: x)(*args)), never="in one step"),
        Wrong(
            "a second GELU", lambda *args: F.gelu(pieces()(*args)), "is the GELU of the right one", never="in one step"
        ),
        Wrong("all at once", pieces_whole, "room for all M"),
        # These once passed.
        Wrong(
            "three pieces at most",
            lambda *a: pieces_by_chunk(*a[:5], min(a[5], 3)),
            "goes through GELU, erf or the like in one step",
        ),
        Wrong("pieces that are kept", pieces_that_are_kept, "what is in memory at once is as much"),
        Wrong("tokens in rows alone", pieces_of_tokens_in_rows, "x (5,), M = 7, pieces=3"),
    ],
}
