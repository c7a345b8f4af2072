"""Checks of lesson 04: GELU, exact and by tanh, the MLP with its dropout, and the MLP in pieces."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vit_tutorial.checks.engine.dropout import layer_with_dropout
from vit_tutorial.checks.engine.exercise import Case, Exercise, Mistake, Observation, Submission
from vit_tutorial.checks.engine.forbidden import call_with_small_tensors
from vit_tutorial.checks.engine.functions import call, normal
from vit_tutorial.checks.engine.layers import layer, random_weights, variant
from vit_tutorial.checks.engine.questions import Question, Slip, pencil
from vit_tutorial.mlp import MLP

_GELU = "GELU"
_OTHER = "The other GELU."
_PENCIL = "One token and a pencil"
_NO_GELU = "No activation function."

# ---- With a pencil -----------------------------------------------------------------------------------------------

_RELU = Slip("a ReLU in place of GELU", "GELU multiplies each number x by Φ(x).")
_PHI_ALONE = Slip("Φ(x) in place of x · Φ(x)", "GELU is the number times this probability.")

MLP_NUMBERS = pencil(
    "mlp_numbers",
    lesson="04",
    points=4,
    tolerance=0.006,
    questions={
        "hidden": Question([1, 2, -1], "Hidden number j is the dot product of the token with column j of W1."),
        "activations": Question(
            [0.8413, 1.9545, -0.1587],
            "Multiply each hidden number x by Φ(x). Φ(x) is a probability, between 0 and 1.",
            _GELU,
            {(1, 2, 0): _RELU, (0.8413, 0.9772, 0.1587): _PHI_ALONE},
        ),
        "output": Question(
            [1.6827, 1.7958],
            "Output number j is the dot product of the activations with column j of W2.",
            _GELU,
            {(2, 2): _RELU, (1.6827, 1.1359): _PHI_ALONE},
        ),
        "parameters": Question(148, "Two layers, each with a matrix and a bias: D · M + M, and M · D + D."),
        "moved": Question(
            1,
            "Which tokens does the MLP look at when it computes one of them?",
            "Every token alone.",
            {197: Slip("tokens that look at each other", "That is the job of attention.")},
        ),
    },
)


# ---- GELU --------------------------------------------------------------------------------------------------------


def _gelu_cases() -> list[Case]:
    return [
        Case("x from -4 to 4", (torch.linspace(-4, 4, 17),)),
        Case("x (2, 1, 3, 1, 2)", (normal(2, 1, 3, 1, 2),)),
        Case("x from -30 to 30", (torch.tensor([[-30.0, -8.0, 0.0, 8.0, 30.0]]),)),
        # No number is large, so that a constant with too few digits shows.
        Case("x from -2 to 2", (torch.linspace(-2, 2, 9),)),
    ]


def _tanh_gelu(x: Tensor) -> Tensor:
    return F.gelu(x, approximate="tanh")


def _sigmoid_gelu(x: Tensor) -> Tensor:
    return x * torch.sigmoid(1.702 * x)


_FAST_FORM = Mistake(
    name="the fast form, x · sigmoid(1.702 x)",
    says="That is another approximation.",
    reread=_OTHER,
    wrong=_sigmoid_gelu,
)


GELU = Exercise(
    name="gelu",
    lesson="04",
    points=3,
    tolerance=1e-6,
    right=F.gelu,
    cases=_gelu_cases,
    mistakes=(
        _FAST_FORM,
        Mistake(
            name="the tanh form",
            says="The exact form uses erf.",
            reread=_OTHER,
            wrong=_tanh_gelu,
        ),
        Mistake(
            name="a half forgotten",
            says="Φ(x) is (1 + erf(x / √2)) / 2.",
            reread=_GELU,
            wrong=lambda x: 2 * F.gelu(x),
        ),
    ),
)


GELU_TANH = Exercise(
    name="gelu_tanh",
    lesson="04",
    points=3,
    tolerance=1e-6,
    right=_tanh_gelu,
    cases=_gelu_cases,
    mistakes=(
        _FAST_FORM,
        Mistake(
            name="the exact form",
            says="This exercise asks for the tanh form.",
            reread=_OTHER,
            wrong=F.gelu,
        ),
        Mistake(
            name="a half forgotten",
            says="0.5 x stands in front of the bracket.",
            reread=_GELU,
            wrong=lambda x: 2 * _tanh_gelu(x),
        ),
    ),
)


# ---- The layer ---------------------------------------------------------------------------------------------------

# In this layer each output reads one hidden unit, so that a few numbers show where dropout is applied.
_READABLE = {
    "fc1.weight": torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]),
    "fc1.bias": torch.tensor([0.3, -0.2, 0.1]),
    "fc2.weight": torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]),
    "fc2.bias": torch.tensor([0.5, -0.4]),
}


def _mlp_cases() -> list[Case]:
    cases = []
    sizes: list[tuple[tuple[int, ...], int]] = [((1, 4, 6), 8), ((6,), 9), ((2, 4, 3, 5), 7)]
    for shape, M in sizes:
        build = (shape[-1], M, 0.0)
        cases.append(Case(f"x {shape}, hidden_dim={M}", (normal(*shape),), build, random_weights(MLP(*build[:2]))))
    tokens = torch.tensor([0.8, -0.6]).expand(400, 2)
    return [*cases, Case("400 equal tokens, dropout=0.25", (tokens,), (2, 3, 0.25), _READABLE)]


def _observe_mlp(submission: Submission, case: Case) -> Observation:
    rate = case.build[2]
    return layer_with_dropout(submission, case, p=rate) if rate else layer(submission, case)


class _Layer(nn.Module):
    """The right layer, in steps that a mistake replaces."""

    def __init__(self, dim: int, hidden_dim: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(dim, hidden_dim), nn.Linear(hidden_dim, dim)
        self.p = dropout

    def activation(self, hidden: Tensor) -> Tensor:
        return F.gelu(hidden)

    def dropout(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.p, self.training)

    def hidden(self, x: Tensor) -> Tensor:
        return self.dropout(self.activation(self.fc1(x)))

    def forward(self, x: Tensor) -> Tensor:
        return self.dropout(self.fc2(self.hidden(x)))


MLP_LAYER = Exercise(
    name="mlp",
    lesson="04",
    points=5,
    right=_Layer,
    cases=_mlp_cases,
    forbidden=(MLP,),
    observe=_observe_mlp,
    mistakes=(
        Mistake(
            name="no activation function",
            says="Both layers collapse into one matrix. GELU comes between them.",
            reread=_NO_GELU,
            wrong=variant(_Layer, activation=lambda self, hidden: hidden),
        ),
        Mistake(
            name="a ReLU in place of GELU",
            says="The activation function of a ViT is GELU, which is smooth.",
            reread=_OTHER,
            wrong=variant(_Layer, activation=lambda self, hidden: F.relu(hidden)),
        ),
        Mistake(
            name="the tanh form of GELU",
            says="The text asks for the exact GELU: nn.GELU(), or your own.",
            reread=_OTHER,
            wrong=variant(_Layer, activation=lambda self, hidden: _tanh_gelu(hidden)),
        ),
        Mistake(
            name="one more GELU, after the second layer",
            says="The block adds this output to a token, and after a GELU it can hardly subtract. GELU comes once, "
            "between the two layers.",
            reread="One GELU too many.",
            wrong=variant(_Layer, forward=lambda self, x: self.dropout(F.gelu(self.fc2(self.hidden(x))))),
        ),
        Mistake(
            name="dropout that stays on after eval()",
            says="F.dropout's default is training=True. Pass self.training, or use nn.Dropout, which knows the mode.",
            reread="No `eval()`.",
            wrong=variant(_Layer, dropout=lambda self, x: F.dropout(x, self.p)),
        ),
        Mistake(
            name="no dropout",
            says="Dropout is applied after every dense layer.",
            reread="No `eval()`.",
            wrong=variant(_Layer, dropout=lambda self, x: x),
        ),
        Mistake(
            name="dropout after the GELU only",
            says="Dropout is applied after every dense layer: once more, after fc2.",
            reread="No `eval()`.",
            wrong=variant(_Layer, forward=lambda self, x: self.fc2(self.hidden(x))),
        ),
        Mistake(
            name="dropout after the second layer only",
            says="Dropout is applied after every dense layer: also between GELU and fc2.",
            reread="No `eval()`.",
            wrong=variant(_Layer, hidden=lambda self, x: self.activation(self.fc1(x))),
        ),
    ),
)


# ---- The challenge -----------------------------------------------------------------------------------------------


_MANY = (96, 2), 512, 16


def _pieces_cases() -> list[Case]:
    cases = []
    sizes: list[tuple[tuple[int, ...], int, int]]
    sizes = [((2, 3, 4), 6, 2), ((1, 5, 3), 7, 3), ((4, 6), 8, 1), ((5,), 7, 3), _MANY]
    for shape, M, pieces in sizes:
        D = shape[-1]
        tensors = [normal(*size, seed=seed) for seed, size in enumerate([shape, (M, D), (M,), (D, M), (D,)])]
        cases.append(Case(f"x {shape}, M = {M}, pieces={pieces}", (*tensors, pieces)))
    return cases


def _observe_pieces(submission: Submission, case: Case) -> Observation:
    x, w1, *_ = case.args
    if x.shape != _MANY[0]:
        return call(submission, case)
    # With many units nothing else has as many numbers as the whole hidden layer.
    why = f"with room for all M = {len(w1)} hidden units: take one piece at a time"
    return call_with_small_tensors(submission, case, len(x) * len(w1), why)


def _in_pieces(x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor, pieces: int) -> Tensor:
    output = torch.zeros_like(x)
    for rows, biases, columns in zip(w1.chunk(pieces), b1.chunk(pieces), w2.chunk(pieces, dim=1), strict=True):
        output = output + F.gelu(F.linear(x, rows, biases)) @ columns.T
    return output + b2


def _units_lost(x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor, pieces: int) -> Tensor:
    kept = len(w1) // pieces * pieces
    return _in_pieces(x, w1[:kept], b1[:kept], w2[:, :kept], b2, pieces)


def _bias_with_each_piece(x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor, pieces: int) -> Tensor:
    how_many = len(w1.chunk(pieces))
    return _in_pieces(x, w1, b1, w2, how_many * b2, pieces)


def _gelu_on_the_sum(x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor, pieces: int) -> Tensor:
    return F.gelu(F.linear(F.linear(x, w1, b1), w2)) + b2


MLP_IN_PIECES = Exercise(
    name="mlp_in_pieces",
    lesson="04",
    points=2,
    right=_in_pieces,
    cases=_pieces_cases,
    observe=_observe_pieces,
    mistakes=(
        Mistake(
            name="hidden units lost",
            says="M need not be a multiple of `pieces`, and M // pieces leaves the last units out. torch.chunk and "
            "torch.tensor_split leave nothing out.",
            reread=_PENCIL,
            wrong=_units_lost,
        ),
        Mistake(
            name="the last bias added once for each piece",
            says="b2 belongs to the output, not to a hidden unit: add it once, at the end.",
            reread=_PENCIL,
            wrong=_bias_with_each_piece,
        ),
        Mistake(
            name="a GELU on the sum in place of the hidden units",
            says="Each hidden unit goes through GELU before w2 mixes them. You apply it to the sum, which is too late.",
            reread=_NO_GELU,
            wrong=_gelu_on_the_sum,
        ),
    ),
)
