"""Answers to the exercises of lesson 04: right ones, written in different ways, and wrong ones with what they hear."""

import math

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

import vit_tutorial as vt

NUMBERS = {
    "hidden": [1, 2, -1], "bent": [0.84, 1.95, -0.16], "output": [1.68, 1.79], "parameters": 148, "moved": 1,
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


def pieces_with_the_rest_in_the_last(x, w1, b1, w2, b2, pieces):
    size, total = len(b1) // pieces, b2
    for i in range(pieces):
        start, end = i * size, (i + 1) * size if i < pieces - 1 else len(b1)
        total = total + gelu_by_erf(x @ w1[start:end].T + b1[start:end]) @ w2[:, start:end].T
    return total


def gelu_by_numpy(x):
    return np.vectorize(lambda value: value * (1 + math.erf(value / math.sqrt(2))) / 2)(x.numpy())


@torch.no_grad()
def gelu_in_double(x):
    return gelu_by_erf(x.double())


def gelu_by_torch(x):
    return nn.GELU()(x).detach()


def tanh_by_numpy(x):
    x = x.numpy()
    return x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def tanh_by_torch(x):
    return F.gelu(x, approximate="tanh")


class WithOwnNames(Plain):
    """Other attributes beside fc1 and fc2, and dropout by F."""

    def __init__(self, dim, hidden_dim, dropout=0.0):
        super().__init__(dim, hidden_dim)
        self.rate, self.width = dropout, hidden_dim

    def forward(self, x):
        hidden = F.dropout(F.gelu(self.fc1(x)), self.rate, self.training)
        return F.dropout(self.fc2(hidden), p=self.rate, training=self.training)


def pieces_by_numpy(x, w1, b1, w2, b2, pieces):
    total = b2.numpy().astype(float)
    for units in np.array_split(np.arange(len(b1)), pieces):
        hidden = x.numpy() @ w1.numpy()[units].T + b1.numpy()[units]
        total = total + gelu_by_numpy(torch.from_numpy(hidden)) @ w2.numpy()[:, units].T
    return total


def pieces_by_tensor_split(x, w1, b1, w2, b2, pieces):
    parts = zip(*(w.tensor_split(pieces, d) for w, d in ((w1, 0), (b1, 0), (w2, 1))), strict=True)
    return sum((gelu_by_erf(x @ a.T + b) @ c.T for a, b, c in parts), b2).detach().double()


SOLUTIONS = {
    "mlp_numbers": (
        lambda: NUMBERS,
        lambda: NUMBERS | {"hidden": torch.tensor([1.0, 2.0, -1.0]), "bent": np.array([0.841, 1.954, -0.159])},
        lambda: NUMBERS | {"output": (1.682, 1.795), "parameters": 148.0, "moved": np.int64(1)},
        lambda: NUMBERS | {"hidden": [[1, 2, -1]], "bent": torch.tensor([0.8413, 1.9545, -0.1587])},
        lambda: NUMBERS | {"output": [1.68, 1.8], "moved": [1]},
    ),
    "gelu": (
        gelu_by_erf,
        gelu_by_erfc,
        gelu_by_normal,
        gelu_by_ndtr,
        gelu_by_numpy,
        gelu_in_double,
        gelu_by_torch,
    ),
    "gelu_tanh": (tanh_by_formula, tanh_by_sigmoid, tanh_by_factor, tanh_by_numpy, tanh_by_torch),
    "mlp": (Plain, ByConvolution, ByHand, InSequence, WithOwnNames),
    "mlp_in_pieces": (
        pieces_by_chunk,
        pieces_by_slices,
        pieces_by_strides,
        pieces_with_the_rest_in_the_last,
        pieces_by_numpy,
        pieces_by_tensor_split,
    ),
}

# ---- Wrong ones ------------------------------------------------------------------------------------------------------


def answer(**wrong):
    """The right answers but for some."""
    return lambda: NUMBERS | wrong


def phi(x):
    return (1 + torch.erf(x / math.sqrt(2))) / 2


ROOT = math.sqrt(2 / math.pi)


def inner(x, factor=ROOT, small=0.044715, power=3):
    return factor * (x + small * x**power)


def gelu_number_by_number(x):
    return torch.tensor([value * (1 + math.erf(value / math.sqrt(2))) / 2 for value in x.flatten().tolist()])


def gelu_one_number(x):
    return x * (1 + math.erf(x / math.sqrt(2))) / 2


def gelu_in_place(x):
    return x.mul_(phi(x))


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
        return self.drop(self.fc2(self.drop(self.bend(self.fc1(x)))))

    def bend(self, x):
        return F.gelu(x)


def with_steps(**steps):
    """An MLP with other steps."""
    return type("MLP", (Layer,), steps)


class Exchanged(Layer):
    def __init__(self, dim, hidden_dim, dropout=0.0):
        super().__init__(hidden_dim, dim, dropout)


class FourTimes(Layer):
    def __init__(self, dim, hidden_dim, dropout=0.0):
        super().__init__(dim, 4 * dim, dropout)


class OneLayer(nn.Module):
    def __init__(self, dim, hidden_dim, dropout=0.0):
        super().__init__()
        self.fc1 = nn.Linear(dim, dim)

    def forward(self, x):
        return self.fc1(x)


class OtherNames(nn.Module):
    def __init__(self, dim, hidden_dim, dropout=0.0):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(dim, hidden_dim), nn.GELU(), nn.Linear(hidden_dim, dim))

    def forward(self, x):
        return self.layers(x)


class NoBias(Layer):
    def __init__(self, dim, hidden_dim, dropout=0.0):
        super().__init__(dim, hidden_dim, dropout)
        self.fc1 = nn.Linear(dim, hidden_dim, bias=False)


class HalfRate(Layer):
    def __init__(self, dim, hidden_dim, dropout=0.0):
        super().__init__(dim, hidden_dim, dropout / 2)


class FixedRate(Layer):
    def __init__(self, dim, hidden_dim, dropout=0.0):
        super().__init__(dim, hidden_dim, 0.1)


class AnotherDefault(Layer):
    def __init__(self, dim, hidden_dim, dropout=0.1):
        super().__init__(dim, hidden_dim, dropout)


class Seeded(Layer):
    def forward(self, x):
        torch.manual_seed(0)
        return super().forward(x)


class OneMask(Layer):
    """The mask is drawn once, at the first call."""

    def forward(self, x):
        if not self.training:
            return super().forward(x)
        hidden, out = self.bend(self.fc1(x)), self.fc2.out_features
        if not hasattr(self, "masks"):
            self.masks = F.dropout(torch.ones(*hidden.shape), self.p), F.dropout(torch.ones(*x.shape[:-1], out), self.p)
        return self.fc2(hidden * self.masks[0]) * self.masks[1]


class Inherits(vt.MLP):
    pass


def pieces(cut=None, bend=F.gelu, after=lambda y: y, bias=None, join=sum, first=1.0):
    """mlp_in_pieces with one thing or another changed."""

    def mlp_in_pieces(x, w1, b1, w2, b2, pieces):
        split = cut or (lambda w, n, d: w.chunk(n, d))
        parts = zip(split(w1, pieces, 0), split(b1, pieces, 0), split(w2, pieces, 1), strict=True)
        found = [after(bend(x @ a.T + first * b) @ c.T) for a, b, c in parts]
        return join(found) + (b2 if bias is None else bias(b2, pieces))

    return mlp_in_pieces


def pieces_whole(x, w1, b1, w2, b2, pieces):
    return F.gelu(x @ w1.T + b1) @ w2.T + b2


def pieces_hidden_first(x, w1, b1, w2, b2, pieces):
    """All of the hidden layer, and only then pieces of it."""
    hidden = gelu_by_erf(F.linear(x, w1, b1))
    return sum(h @ w.T for h, w in zip(hidden.chunk(pieces, -1), w2.chunk(pieces, 1), strict=True)) + b2


def pieces_of_tokens(x, w1, b1, w2, b2, pieces):
    return torch.cat([pieces_whole(part, w1, b1, w2, b2, 1) for part in x.chunk(pieces, -2)], dim=-2)


def pieces_by_floor(w, n, d):
    size = w.shape[d] // n
    return [w.narrow(d, i * size, size) for i in range(n)]


WRONG = {
    "mlp_numbers": (
        (answer(bent=[1, 2, 0], output=[2, 2]), "a ReLU in place of GELU"),
        (answer(bent=[0.841, 0.977, 0.159], output=[1.68, 1.14]), "the share Φ(x)"),
        (answer(bent=[0.841, 1.954, 0.159], output=[1.68, 2.11]), "a lost sign"),
        (answer(output=[1.95, 0.84]), ""),
        (answer(output=[2, 1]), "no bend"),
        (answer(hidden=[1, 2]), "a hidden number too few"),
        (answer(hidden=[1, 2, 3]), "a lost minus in W1"),
        (answer(hidden=[1, 2, 1]), "a sign lost in the last hidden number"),
        (answer(hidden=[2, 1, -1]), "Hidden number j is the dot product"),
        (answer(hidden=[1, 2, 0]), "Hidden number j is the dot product"),
        (answer(bent=[0.84, 0.98, -0.16]), "Multiply each hidden number"),
        (answer(bent=[0.5, 1.9, -0.1]), "Multiply each hidden number"),
        (answer(output=[1.68, 1.14]), ""),
        (answer(output=[1.68, 1.95]), "the last bent number left out, or taken for 0"),
        (answer(output=[1.68, 2.11]), ""),
        (answer(output=[0.84, 1.8]), "Output number j is the dot product"),
        (answer(output=[1.68]), "expected a list of 2"),
        (answer(parameters=128), "the biases forgotten"),
        (answer(parameters=80), "the second layer forgotten"),
        (answer(parameters=136), "a bias as wide as its input"),
        (answer(parameters=160), "both biases M wide"),
        (answer(parameters=149), "Two layers, each with a matrix and a bias"),
        (answer(parameters=148.5), "Two layers, each with a matrix and a bias"),
        (answer(moved=197), "tokens that look at each other"),
        (answer(moved=196), "every token but one moved"),
        (answer(moved=0), "no token moved"),
        (answer(moved="one"), "expected a number"),
        (lambda: (1, 2, -1), "expected a dictionary of answers"),
    ),
    "gelu": (
        (tanh_by_formula, "tanh in place of the exact form"),
        (lambda x: x * torch.sigmoid(1.702 * x), "x · sigmoid(1.702 x)"),
        (lambda x: x * torch.sigmoid(1.7 * x), "What your numbers show"),
        (lambda x: x * torch.sigmoid(x), "a SiLU"),
        (lambda x: x * torch.sigmoid(2**0.5 * x), "a tanh in place of erf"),
        (lambda x: x * (1 + torch.erf(x)) / 2, "no √2 inside erf"),
        (lambda x: x * (1 + torch.erf(x / 2)) / 2, "2 in place of √2 inside erf"),
        (lambda x: x * (1 + torch.erf(x * 2**0.5)) / 2, "a multiplication by √2 inside erf"),
        (lambda x: x * (1 + torch.erf(x / 2**0.5)), "a missing half"),
        (lambda x: x * torch.erf(x / 2**0.5) / 2, "a missing 1"),
        (lambda x: x * torch.erf(x / 2**0.5), ""),
        (lambda x: x * (1 - torch.erf(x / 2**0.5)) / 2, "the wrong side kept"),
        (lambda x: x * (1 + torch.erf(x / 2**0.5) / 2), "half of erf alone"),
        (lambda x: 0.5 * x + torch.erf(x / 2**0.5), ""),
        (phi, "the share Φ(x) without x"),
        (lambda x: x * torch.exp(-x * x / 2) / math.sqrt(2 * math.pi), "the normal density"),
        (lambda x: x * (1 + torch.tanh(x / 2**0.5)) / 2, "a tanh in place of erf"),
        (F.relu, "a ReLU"),
        (F.elu, "an ELU"),
        (F.leaky_relu, "What your numbers show"),
        (lambda x: gelu_by_erf(x).clamp(min=0), "the negative side cut off"),
        (lambda x: x.abs() * phi(x), "|x| in place of x"),
        (lambda x: x + phi(x), ""),
        (lambda x: x * x * phi(x), ""),
        (lambda x: -gelu_by_erf(x), "right but for its sign"),
        (gelu_one_number, "raised ValueError"),
        (gelu_number_by_number, "has shape"),
        (gelu_flat_list, "expected a torch.Tensor"),
        (gelu_in_place, "argument 1 was changed in place"),
        (lambda x: gelu_by_erf(x).sum(), "has shape"),
        (lambda x: gelu_by_erf(x[0]), "has shape"),
        (lambda x: x * (1 + torch.erf(x / math.sqrt(2 * math.pi))) / 2, "√(2π) in place of √2"),
        (lambda x: x * (1 + torch.erf(x) / 2**0.5) / 2, "√2 under the whole of erf"),
        (lambda x: x * phi(x).round(), ""),
        (lambda x: torch.where(x > 3, x, gelu_by_erf(x)), "Farthest off is x = 3.5"),
        (lambda x: x * torch.special.ndtr(x).double().round(decimals=2).float(), ""),
        (lambda x: None, "is the return missing?"),
    ),
    "gelu_tanh": (
        (gelu_by_erf, "the exact form in place of tanh"),
        (lambda x: x * torch.sigmoid(1.702 * x), "x · sigmoid(1.702 x)"),
        (lambda x: x / 2 * (1 + torch.tanh(inner(x, power=1))), "no cube"),
        (lambda x: x / 2 * (1 + torch.tanh(inner(x, power=2))), "a square in place of the cube"),
        (lambda x: x / 2 * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + (0.044715 * x) ** 3))), "a cube of the whole"),
        (lambda x: x / 2 * (1 + torch.tanh(math.sqrt(2 / math.pi) * x)), "the cubic term forgotten"),
        (lambda x: x / 2 * (1 + torch.tanh(math.sqrt(2 / math.pi) * x + 0.044715 * x**3)), "on the first term only"),
        (lambda x: x / 2 * (1 + torch.tanh(inner(x, factor=1))), "no √(2/π)"),
        (lambda x: x / 2 * (1 + torch.tanh(inner(x, factor=math.sqrt(math.pi / 2)))), "√(π/2) in place of √(2/π)"),
        (lambda x: x / 2 * (1 + torch.tanh(inner(x, factor=2 / math.pi))), "2/π without its root"),
        (lambda x: x / 2 * (1 + torch.tanh(inner(x, factor=math.sqrt(2) / math.pi))), "√2/π in place of √(2/π)"),
        (lambda x: x / 2 * (1 + torch.tanh(inner(x, small=0.44715))), "0.44715 in place"),
        (lambda x: x / 2 * (1 + torch.tanh(inner(x, small=0.04715))), "What your numbers show"),
        (lambda x: x / 2 * (1 + torch.tanh(inner(x, small=-0.044715))), "a minus before the cubic term"),
        (lambda x: x * (1 + torch.tanh(inner(x))), "a missing half"),
        (lambda x: x / 2 * torch.tanh(inner(x)), "a missing 1"),
        (lambda x: x / 2 * (1 - torch.tanh(inner(x))), "the wrong side kept"),
        (lambda x: (1 + torch.tanh(inner(x))) / 2, "a share without x"),
        (lambda x: x / 2 * (1 + torch.sigmoid(inner(x))), "a sigmoid in place of tanh"),
        (lambda x: x / 2 * (1 + torch.erf(inner(x))), "erf in place of tanh"),
        (lambda x: x / 2 * (1 + torch.sin(inner(x))), ""),
        (lambda x: x / 2 + torch.tanh(inner(x)), ""),
        (F.relu, "a ReLU"),
        (F.silu, ""),
        (lambda x: x.div_(2) * (1 + torch.tanh(inner(2 * x))), ""),
        (lambda x: tanh_by_formula(x)[None], "has shape"),
        (lambda x: math.tanh(x), "raised"),
        (lambda x: None, "is the return missing?"),
    ),
    "mlp": (
        (
            with_steps(
                forward=lambda self, x: self.fc2(self.bend(self.fc1(x))) if x.ndim < 3 else Layer.forward(self, x)
            ),
            "in training,",
        ),
        (
            with_steps(
                forward=lambda self, x: (lambda hidden: hidden * self.drop(torch.ones_like(hidden[:1])))(
                    self.fc2(self.bend(self.fc1(x)))
                )
            ),
            "in training,",
        ),
        (with_steps(bend=lambda self, x: F.relu(x)), "a ReLU in place of GELU"),
        (with_steps(bend=lambda self, x: F.silu(x)), "a SiLU in place of GELU"),
        (with_steps(bend=lambda self, x: tanh_by_formula(x)), "tanh in place of the exact GELU"),
        (with_steps(bend=lambda self, x: x * torch.sigmoid(1.702 * x)), "x · sigmoid(1.702 x)"),
        (with_steps(bend=lambda self, x: x), "no bend"),
        (with_steps(bend=lambda self, x: torch.tanh(x)), ""),
        (
            with_steps(forward=lambda self, x: self.drop(F.gelu(self.fc2(self.drop(self.fc1(x)))))),
            "in place of",
        ),
        (with_steps(forward=lambda self, x: F.gelu(Layer.forward(self, x))), "GELU of the right one"),
        (with_steps(forward=lambda self, x: self.drop(self.fc2(self.drop(self.fc1(F.gelu(x)))))), "before the first"),
        (with_steps(forward=lambda self, x: x + Layer.forward(self, x)), "a residual inside the MLP"),
        (
            with_steps(forward=lambda self, x: Layer.forward(self, F.layer_norm(x, x.shape[-1:]))),
            "a norm inside",
        ),
        (with_steps(forward=lambda self, x: Layer.forward(self, x).detach()), "gradient of"),
        (with_steps(forward=lambda self, x: self.fc2(self.drop(self.bend(self.fc1(x))))), "after the GELU only"),
        (
            with_steps(forward=lambda self, x: self.drop(self.fc2(self.bend(self.fc1(x))))),
            "after the second",
        ),
        (with_steps(forward=lambda self, x: self.fc2(self.bend(self.fc1(x)))), "no dropout"),
        (with_steps(forward=lambda self, x: self.drop(self.fc2(self.bend(self.drop(self.fc1(x)))))), "before the GELU"),
        (with_steps(forward=lambda self, x: self.fc2(self.bend(self.fc1(self.drop(x))))), "dropout on the input"),
        (with_steps(forward=lambda self, x: Layer.forward(self, self.drop(x))), ""),
        (
            with_steps(forward=lambda self, x: F.dropout(self.fc2(F.dropout(F.gelu(self.fc1(x)), self.p)), self.p)),
            "dropout in evaluation",
        ),
        (with_steps(forward=lambda self, x: self.drop(Layer.forward(self, x))), "in training,"),
        (with_steps(forward=lambda self, x: self.fc2(self.drop(self.drop(self.bend(self.fc1(x)))))), "in training,"),
        (Exchanged, "layers exchanged"),
        (FourTimes, "fc1.weight has shape"),
        (OneLayer, "fc1.weight has shape"),
        (OtherNames, "a parameter that the stub doesn't name"),
        (NoBias, ""),
        (HalfRate, "in training,"),
        (FixedRate, "a dropout of 0.1, whatever is asked for"),
        (AnotherDefault, "another default than 0"),
        (Seeded, "begun anew by a seed"),
        (OneMask, "each draw is the same as the one before"),
        (Inherits, "derives from it"),
        (lambda dim, hidden, dropout=0.0: vt.MLP(dim, hidden, dropout=dropout), "the package's own MLP"),
        (with_steps(forward=lambda self, x: Layer.forward(self, x.flatten(0, 1))), ""),
        (with_steps(forward=lambda self, x: Layer.forward(self, x.mean(-2, keepdim=True)).expand_as(x)), ""),
        (with_steps(forward=lambda self, x: F.linear(F.gelu(F.linear(x, self.fc1.weight)), self.fc2.weight)), ""),
        (
            with_steps(
                bend=lambda self, x: F.relu(x), forward=lambda self, x: self.fc2(self.drop(self.bend(self.fc1(x))))
            ),
            "two mistakes at once",
        ),
    ),
    "mlp_in_pieces": (
        (pieces(bias=lambda b, n: n * b), "the last bias added in each piece"),
        (pieces(bias=lambda b, n: 0), "the last bias forgotten"),
        (pieces(bias=lambda b, n: b / n), ""),
        (pieces(cut=lambda x, n, dim: x.split(n, dim)), "numbers a token are bent in one step"),
        (pieces(cut=pieces_by_floor), "hidden units lost"),
        (pieces(join=lambda parts: torch.stack(parts).mean(0)), "a mean of the pieces in place of their sum"),
        (pieces(join=lambda parts: torch.cat(parts, dim=-1)), "raised RuntimeError"),
        (pieces(join=lambda parts: parts[0]), "the first piece alone"),
        (pieces(join=lambda parts: parts[-1]), "the last piece alone"),
        (pieces(join=lambda parts: torch.stack(parts).amax(0)), "What your numbers show"),
        (pieces(join=lambda parts: sum(parts[:-1], torch.zeros_like(parts[0]))), ""),
        (pieces(first=0.0), "the first bias forgotten"),
        (pieces(bend=lambda x: x, after=F.gelu), "a GELU after the second matrix"),
        (pieces(after=F.gelu), ""),
        (pieces(bend=lambda x: x), "no bend"),
        (pieces(bend=F.relu), "a ReLU in place of GELU"),
        (pieces(bend=tanh_by_formula), "tanh in place of the exact GELU"),
        (pieces(bend=lambda x: x * torch.sigmoid(1.702 * x)), "x · sigmoid(1.702 x)"),
        (pieces(bend=F.relu, bias=lambda b, n: n * b), "two mistakes at once"),
        (pieces(first=0.0, bias=lambda b, n: 0), "two mistakes at once"),
        (pieces(cut=pieces_by_floor, bend=F.relu), "two mistakes at once"),
        (lambda *args: F.gelu(pieces()(*args)), "a second GELU at the end"),
        (pieces_whole, "hidden units are there at once"),
        (pieces_hidden_first, "hidden units are there at once"),
        (pieces_of_tokens, "are bent in one step"),
        (pieces(cut=lambda w, n, d: w.chunk(n, 0)), "raised RuntimeError"),
        (lambda x, *args: pieces()(x, *args) + x, ""),
        (lambda x, *args: pieces()(x, *args)[..., :1], ""),
        (lambda x, *args: None, "is the return missing?"),
    ),
}
