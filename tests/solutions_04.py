"""Answers to the exercises of lesson 04: right ones in different styles, and wrong ones, each with its report."""

import math

import torch
from submissions import Wrong
from torch import nn
from torch.nn import functional as F

NUMBERS = {
    "hidden": [1, 2, -1], "activations": [0.84, 1.95, -0.16], "output": [1.68, 1.79], "parameters": 148, "moved": 1,
}  # fmt: skip


def gelu_by_erf(x):
    return 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))


def gelu_by_erfc(x):
    return x * torch.special.erfc(-x * 0.5**0.5) / 2


def gelu_by_ndtr(x):
    return torch.special.ndtr(x) * x


def tanh_by_formula(x):
    return x / 2 * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def tanh_by_sigmoid(x):
    """(1 + tanh(a)) / 2 is sigmoid(2a)."""
    return x * torch.sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x.pow(3)))


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


RIGHT = {
    "mlp_numbers": (lambda: NUMBERS,),
    "gelu": (gelu_by_erf, gelu_by_erfc),
    "gelu_tanh": (tanh_by_formula, tanh_by_sigmoid),
    "mlp": (Plain, ByConvolution),
    "mlp_in_pieces": (pieces_by_chunk, pieces_by_slices),
}

# ---- Wrong ones ------------------------------------------------------------------------------------------------------


def answer(**wrong):
    """The right answers but for some."""
    return lambda: NUMBERS | wrong


ROOT = math.sqrt(2 / math.pi)


def tanh_of_the_square(x):
    return x / 2 * (1 + torch.tanh(ROOT * (x + 0.044715 * x**2)))


class Detached(Plain):
    def forward(self, x):
        return super().forward(x).detach()


class Seeded(Plain):
    def forward(self, x):
        torch.manual_seed(0)
        return super().forward(x)


class NoDropoutForFewAxes(Plain):
    def forward(self, x):
        return self.fc2(self.act(self.fc1(x))) if x.ndim < 3 else super().forward(x)


def pieces_whole(x, w1, b1, w2, b2, pieces):
    return F.gelu(x @ w1.T + b1) @ w2.T + b2


def pieces_of_tokens_in_rows(x, w1, b1, w2, b2, pieces):
    parts = zip(w1.chunk(pieces), b1.chunk(pieces), w2.chunk(pieces, 1), strict=True)
    return torch.cat([(F.gelu(x @ a.mT + b) @ c.mT)[None] for a, b, c in parts], 0).sum(0) + (b2 if x.ndim > 1 else 0)


WRONG = {
    "mlp_numbers": [
        Wrong("a GELU at the end", answer(output=[1.95, 0.84]), "column j of W2"),
        Wrong("a sign lost", answer(hidden=[1, 2, 1]), "Hidden number j is the dot product"),
    ],
    "gelu": [
        Wrong("a missing 1", lambda x: x * torch.erf(x / 2**0.5) / 2, "result[0] is"),
        Wrong("math's erf", lambda x: x * (1 + math.erf(x / math.sqrt(2))) / 2, "raised ValueError"),
    ],
    "gelu_tanh": [
        Wrong("a square", tanh_of_the_square, "result[0] is"),
        Wrong("math's tanh", lambda x: math.tanh(x), "raised"),
    ],
    "mlp": [
        Wrong("no dropout for few axes", NoDropoutForFewAxes, "(in training)"),
        Wrong("detached", Detached, "gradient of"),
        Wrong("a seed", Seeded, "the result of another call (in training) is the same"),
    ],
    "mlp_in_pieces": [
        Wrong("all at once", pieces_whole, "room for all M"),
        Wrong("tokens in rows alone", pieces_of_tokens_in_rows, "x (5,), M = 7, pieces=3"),
    ],
}
