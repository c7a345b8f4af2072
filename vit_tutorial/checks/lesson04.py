"""Checks of lesson 04: GELU, exact and by tanh, the MLP with its dropout, and the MLP in pieces."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vit_tutorial.checks.chance import far, staleness
from vit_tutorial.checks.compare import as_tensor
from vit_tutorial.checks.harness import (
    Case,
    Exercise,
    Fault,
    Mistake,
    Result,
    Slip,
    Words,
    adopt,
    answers,
    call,
    check,
    filled,
    layer,
    normal,
    random_weights,
)
from vit_tutorial.checks.watch import Operations
from vit_tutorial.mlp import MLP

__all__ = ["check_gelu", "check_gelu_tanh", "check_mlp", "check_mlp_in_pieces", "check_mlp_numbers"]

_GELU = "2 · GELU: keep x with the probability that x is large"
_OTHER = "The other GELU."
_PENCIL = "1 · One token and a pencil"
_AFTER = "A GELU too many."
_NO_BEND = "No bend."
_CLASS = "5 · The class"
_DROPOUT = "9 · Dropout"
_PARAMETERS = "6 · Two thirds of a block"
_ALONE = "7 · Every token alone"

# ---- With a pencil -----------------------------------------------------------------------------------------------

# Token [1, 2], hidden [1, 2, -1]; Φ(1) = 0.8413, Φ(2) = 0.9772, Φ(-1) = 0.1587.
NUMBERS = {
    "hidden": [1, 2, -1],
    "bent": [0.8413, 1.9545, -0.1587],
    "output": [1.6827, 1.7958],
    "parameters": 148,
    "moved": 1,
}

MLP_NUMBERS = Exercise(
    name="mlp_numbers",
    lesson="04",
    points=4,
    right=NUMBERS,
    cases=lambda: [Case(question, (question,)) for question in NUMBERS],
    observe=answers,
    tolerance=0.006,
    secret=True,
    advice={
        "hidden": "Hidden number j is the dot product of the token with column j of W1.",
        "bent": "Multiply each hidden number by Φ of the same number. Φ(x) is a share between 0 and 1.",
        "output": "Output number j is the dot product of the bent numbers with column j of W2.",
        "parameters": "Two layers, each with a matrix and a bias: D · M + M, and M · D + D.",
        "moved": "Which tokens does the MLP look at when it computes one of them?",
    },
    mistakes=(
        Mistake(
            "a ReLU in place of GELU",
            "You set what is negative to 0 and left the rest alone. GELU multiplies each number by Φ of it.",
            _GELU,
            {"bent": [1, 2, 0], "output": [2, 2]},
        ),
        Mistake(
            "the share Φ(x) in place of x · Φ(x)",
            "Φ is the share that passes. GELU is the number times this share.",
            _GELU,
            {"bent": [0.8413, 0.9772, 0.1587], "output": [1.6827, 1.1359]},
        ),
        Mistake(
            "a lost sign",
            "−1 · Φ(−1) is negative: GELU lets a little of the negative side through, down to −0.17.",
            _GELU,
            {"bent": [0.8413, 1.9545, 0.1587], "output": [1.6827, 2.1132]},
        ),
        Mistake(
            "a GELU after the second layer",
            "The bend stands between the two layers, and nothing comes after the second one.",
            _AFTER,
            {"output": [1.9545, 0.8413]},
        ),
        Mistake(
            "no bend",
            "You multiplied the hidden numbers by W2 as they are. They go through GELU first.",
            _NO_BEND,
            {"output": [2, 1]},
        ),
        Mistake(
            "a hidden number too few",
            "Hidden number j is the token times column j of W1, and W1 has three columns.",
            _PENCIL,
            {"hidden": [1, 2]},
        ),
        Mistake(
            "a lost minus in W1",
            "The last column of W1 is [1, −1]: 1 · 1 + 2 · (−1).",
            _PENCIL,
            {"hidden": [1, 2, 3]},
        ),
        Mistake(
            "a sign lost in the last hidden number",
            "1 · 1 + 2 · (−1) is negative.",
            _PENCIL,
            {"hidden": [1, 2, 1]},
        ),
        Mistake(
            "the last bent number left out, or taken for 0",
            "The third row of W2 is [0, 1]: the third bent number, which is negative, counts in the second output.",
            _PENCIL,
            {"output": [1.6827, 1.9545]},
        ),
        Mistake(
            "a bias as wide as its input",
            "A layer from D to M has M biases, one for each number that comes out.",
            _PARAMETERS,
            {"parameters": 2 * 64 + 4 + 4},
        ),
        Mistake(
            "both biases M wide",
            "The second layer gives D numbers, so it has D biases.",
            _PARAMETERS,
            {"parameters": 2 * 64 + 16 + 16},
        ),
        Mistake(
            "every token but one moved",
            "The MLP treats every token alone, so the others don't notice.",
            _ALONE,
            {"moved": 196},
        ),
        Mistake(
            "no token moved",
            "The token that was changed gives another output; only the others don't notice.",
            _ALONE,
            {"moved": 0},
        ),
        Mistake(
            "the biases forgotten",
            "Each layer has a bias, too: M numbers in the first, D in the second.",
            _PARAMETERS,
            {"parameters": 128},
        ),
        Mistake(
            "the second layer forgotten",
            "There are two layers: D → M, and M → D.",
            _PARAMETERS,
            {"parameters": 80},
        ),
        Mistake(
            "tokens that look at each other",
            "That is attention's work. The MLP treats every token alone.",
            _ALONE,
            {"moved": 197},
        ),
    ),
)


def check_mlp_numbers(fn: Callable[[], Mapping[str, Any]]) -> bool:
    """Check the answers found with a pencil: ``fn()`` returns them in a dictionary."""
    return check(MLP_NUMBERS, fn)


# ---- GELU --------------------------------------------------------------------------------------------------------


def _gelu_cases() -> list[Case]:
    line, large = torch.linspace(-4, 4, 17), torch.tensor([[-30.0, -8.0, 0.0, 8.0, 30.0]])
    return [
        Case("x from -4 to 4", (line,)),
        Case("x (2, 3, 5)", (normal(2, 3, 5),)),
        Case("x (1, 4), twice as spread", (2 * normal(1, 4, seed=1),)),
        Case("x from -30 to 30", (large,)),
        Case("x (3, 1)", (normal(3, 1),)),
        Case("x (2, 1, 3, 1, 2)", (normal(2, 1, 3, 1, 2),)),
        # No number is large, so that a constant with too few digits shows.
        Case("x from -2 to 2", (torch.linspace(-2, 2, 9),)),
        Case("x (), a single number", (torch.tensor(0.7),)),
    ]


def _tanh_gelu(x: Tensor) -> Tensor:
    return F.gelu(x, approximate="tanh")


def _by_sigmoid(x: Tensor) -> Tensor:
    return x * torch.sigmoid(1.702 * x)


def _multiplied_by(wrong: list[tuple[Case, Result, Result]]) -> str:
    """By what a wrong GELU multiplies x, at a few x: there it shows whether the share is wrong, and on which side."""
    case, right, outcome = wrong[0]
    x, y, got = case.args[0], right["result"].double(), as_tensor(outcome["result"])
    if x.ndim > 1 or got is None or got.shape != x.shape or not got.isfinite().all():
        return ""
    got = got.detach().double()
    factor = (got @ y) / (y @ y)
    if abs(factor - 1) > 1e-3 and torch.allclose(got, y * factor, atol=1e-3):  # for all: that is told elsewhere
        return ""
    at = [i for i, number in enumerate(x.tolist()) if number in (-2, -1, 1, 2)]
    yours, wanted = (", ".join(f"{(z[i] / x[i]).item():.3f}" for i in at) for z in (got, y))
    if yours == wanted:
        i = int((got - y).abs().argmax())
        said = f"Farthest off is x = {x[i]:g}: {got[i]:.8g}, in place of {y[i]:.8g}."
        return f"To three digits you are right at x = -2, -1, 1, 2. {said}"
    return (
        f"GELU multiplies x by a share between 0 and 1. At x = -2, -1, 1, 2 you multiply by {yours}; it should be "
        f"{wanted}."
    )


GELU = Exercise(
    name="gelu",
    lesson="04",
    points=3,
    tolerance=1e-6,
    right=F.gelu,
    cases=_gelu_cases,
    observe=call,
    explain=_multiplied_by,
    mistakes=(
        Mistake(
            "tanh in place of the exact form",
            "Your numbers are those of the approximation with tanh, off by up to 5e-4. This exercise asks for the "
            "exact form, with torch.erf.",
            _OTHER,
            _tanh_gelu,
        ),
        Mistake(
            "x · sigmoid(1.702 x)",
            "That is a third GELU, a coarser approximation, off by up to 0.02. The exact form takes torch.erf.",
            _OTHER,
            _by_sigmoid,
        ),
        Mistake(
            "no √2 inside erf",
            "erf has another width than the normal distribution: Φ(x) = (1 + erf(x / √2)) / 2.",
            _GELU,
            lambda x: x * (1 + torch.erf(x)) / 2,
        ),
        Mistake(
            "2 in place of √2 inside erf",
            "x is divided by the square root of 2: Φ(x) = (1 + erf(x / √2)) / 2.",
            _GELU,
            lambda x: x * (1 + torch.erf(x / 2)) / 2,
        ),
        Mistake(
            "a multiplication by √2 inside erf",
            "x is divided by √2: Φ(x) = (1 + erf(x / √2)) / 2.",
            _GELU,
            lambda x: x * (1 + torch.erf(x * math.sqrt(2))) / 2,
        ),
        Mistake(
            "a ReLU",
            "You cut off at 0. GELU multiplies x by Φ(x), which is smooth.",
            _GELU,
            F.relu,
        ),
        Mistake(
            "the share Φ(x) without x",
            "You return the probability alone. GELU is x times it.",
            _GELU,
            lambda x: (1 + torch.erf(x / math.sqrt(2))) / 2,
        ),
        Mistake(
            "a missing half",
            "1 + erf runs from 0 to 2. A probability runs from 0 to 1: divide by 2.",
            _GELU,
            lambda x: x * (1 + torch.erf(x / math.sqrt(2))),
        ),
        Mistake(
            "a missing 1",
            "erf runs from -1 to 1, so that half of it is no probability: (1 + erf(x / √2)) / 2.",
            _GELU,
            lambda x: x * torch.erf(x / math.sqrt(2)) / 2,
        ),
        Mistake(
            "the wrong side kept",
            "1 - erf is the probability to be above x. Φ(x) is that to be below: 1 + erf.",
            _GELU,
            lambda x: x * (1 - torch.erf(x / math.sqrt(2))) / 2,
        ),
        Mistake(
            "the normal density in place of its sum",
            "You multiply by the bell curve. Φ(x) is the area under it, up to x.",
            _GELU,
            lambda x: x * torch.exp(-x * x / 2) / math.sqrt(2 * math.pi),
        ),
        Mistake(
            "a tanh in place of erf",
            "tanh and erf look alike, but aren't the same. Φ takes torch.erf.",
            _GELU,
            lambda x: x * (1 + torch.tanh(x / math.sqrt(2))) / 2,
        ),
        Mistake(
            "√(2π) in place of √2 inside erf",
            "Φ(x) = (1 + erf(x / √2)) / 2.",
            _GELU,
            lambda x: x * (1 + torch.erf(x / math.sqrt(2 * math.pi))) / 2,
        ),
        Mistake(
            "√2 under the whole of erf",
            "It is x that is divided by √2, inside of erf: erf(x / √2).",
            _GELU,
            lambda x: x * (1 + torch.erf(x) / math.sqrt(2)) / 2,
        ),
        Mistake(
            "half of erf alone",
            "Both are halved: (1 + erf(x / √2)) / 2. You have 1 + erf(x / √2) / 2.",
            _GELU,
            lambda x: x * (1 + torch.erf(x / math.sqrt(2)) / 2),
        ),
        Mistake(
            "the negative side cut off",
            "GELU lets a little of the negative side through, down to -0.17. Nothing is set to 0.",
            _GELU,
            lambda x: F.gelu(x).clamp(min=0),
        ),
        Mistake(
            "|x| in place of x",
            "GELU is x times Φ(x), with its sign.",
            _GELU,
            lambda x: x.abs() * (1 + torch.erf(x / math.sqrt(2))) / 2,
        ),
        Mistake(
            "an ELU",
            "That is another bend. GELU multiplies x by Φ(x).",
            _GELU,
            F.elu,
        ),
        Mistake(
            "a SiLU",
            "x · sigmoid(x) is a relative of GELU, called SiLU or Swish. GELU takes Φ, by torch.erf.",
            _GELU,
            F.silu,
        ),
    ),
)


def check_gelu(fn: Callable[[Tensor], Tensor]) -> bool:
    """Check ``fn(x)``: the exact GELU of every number, shape unchanged."""
    return check(GELU, fn)


_ROOT = math.sqrt(2 / math.pi)


def _tanh_form(inner: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    return lambda x: x / 2 * (1 + torch.tanh(inner(x)))


GELU_TANH = Exercise(
    name="gelu_tanh",
    lesson="04",
    points=3,
    tolerance=1e-6,
    right=_tanh_gelu,
    cases=_gelu_cases,
    observe=call,
    explain=_multiplied_by,
    mistakes=(
        Mistake(
            "the exact form in place of tanh",
            "Your numbers are those of erf. They are close, but not those that a model was trained with if it used "
            "tanh.",
            _OTHER,
            F.gelu,
        ),
        Mistake(
            "x · sigmoid(1.702 x)",
            "That is another approximation, off by up to 0.02.",
            _OTHER,
            _by_sigmoid,
        ),
        Mistake(
            "no cube",
            "The small term is 0.044715 times the third power of x.",
            _GELU,
            _tanh_form(lambda x: _ROOT * (x + 0.044715 * x)),
        ),
        Mistake(
            "a square in place of the cube",
            "The small term is 0.044715 times the third power of x; a square would lose the sign.",
            _GELU,
            _tanh_form(lambda x: _ROOT * (x + 0.044715 * x**2)),
        ),
        Mistake(
            "a cube of the whole product",
            "Only x is cubed, 0.044715 is not: 0.044715 * x**3.",
            _GELU,
            _tanh_form(lambda x: _ROOT * (x + (0.044715 * x) ** 3)),
        ),
        Mistake(
            "the cubic term forgotten",
            "Inside the bracket stands x + 0.044715 x³.",
            _GELU,
            _tanh_form(lambda x: _ROOT * x),
        ),
        Mistake(
            "√(2/π) on the first term only",
            "The factor stands before the bracket: it multiplies x and the cubic term.",
            _GELU,
            _tanh_form(lambda x: _ROOT * x + 0.044715 * x**3),
        ),
        Mistake(
            "no √(2/π)",
            "The bracket is multiplied by √(2/π) before tanh.",
            _GELU,
            _tanh_form(lambda x: x + 0.044715 * x**3),
        ),
        Mistake(
            "√(π/2) in place of √(2/π)",
            "The factor is the square root of 2/π, 0.798, below 1.",
            _GELU,
            _tanh_form(lambda x: (x + 0.044715 * x**3) / _ROOT),
        ),
        Mistake(
            "2/π without its root",
            "The factor is the square root of 2/π: math.sqrt(2 / math.pi).",
            _GELU,
            _tanh_form(lambda x: 2 / math.pi * (x + 0.044715 * x**3)),
        ),
        Mistake(
            "a missing half",
            "1 + tanh runs from 0 to 2, and x is halved for it.",
            _GELU,
            lambda x: 2 * _tanh_gelu(x),
        ),
        Mistake(
            "a missing 1",
            "tanh runs from -1 to 1. Add 1, so that negative numbers are kept out and positive ones pass.",
            _GELU,
            lambda x: x / 2 * torch.tanh(_ROOT * (x + 0.044715 * x**3)),
        ),
        Mistake(
            "√2/π in place of √(2/π)",
            "The root is taken of 2/π as a whole: math.sqrt(2 / math.pi).",
            _GELU,
            _tanh_form(lambda x: math.sqrt(2) / math.pi * (x + 0.044715 * x**3)),
        ),
        Mistake(
            "0.44715 in place of 0.044715",
            "A zero is missing: the small term is 0.044715 times the third power of x.",
            _GELU,
            _tanh_form(lambda x: _ROOT * (x + 0.44715 * x**3)),
        ),
        Mistake(
            "a minus before the cubic term",
            "Inside the bracket stands x + 0.044715 x³.",
            _GELU,
            _tanh_form(lambda x: _ROOT * (x - 0.044715 * x**3)),
        ),
        Mistake(
            "the wrong side kept",
            "1 - tanh keeps the negative numbers. It is 1 + tanh.",
            _GELU,
            lambda x: x / 2 * (1 - torch.tanh(_ROOT * (x + 0.044715 * x**3))),
        ),
        Mistake(
            "a sigmoid in place of tanh",
            "The formula has tanh.",
            _GELU,
            lambda x: x / 2 * (1 + torch.sigmoid(_ROOT * (x + 0.044715 * x**3))),
        ),
        Mistake(
            "erf in place of tanh",
            "This form has tanh; the exact one has erf, of x / √2.",
            _OTHER,
            lambda x: x / 2 * (1 + torch.erf(_ROOT * (x + 0.044715 * x**3))),
        ),
        Mistake(
            "a share without x",
            "The share is multiplied by x: x/2 · (1 + tanh(…)).",
            _GELU,
            lambda x: (1 + torch.tanh(_ROOT * (x + 0.044715 * x**3))) / 2,
        ),
        Mistake(
            "a ReLU",
            "You cut off at 0. This is the smooth form with tanh.",
            _GELU,
            F.relu,
        ),
    ),
)


def check_gelu_tanh(fn: Callable[[Tensor], Tensor]) -> bool:
    """Check ``fn(x)``: the tanh form of GELU of every number, shape unchanged."""
    return check(GELU_TANH, fn)


# ---- The layer ---------------------------------------------------------------------------------------------------

_WIDER = "fc1 widens, fc2 narrows"
# In this layer each output reads one hidden unit, so that a few numbers tell where dropout stands.
_READABLE = {
    "fc1.weight": torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]),
    "fc1.bias": torch.tensor([0.3, -0.2, 0.1]),
    "fc2.weight": torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]),
    "fc2.bias": torch.tensor([0.5, -0.4]),
}


def _mlp_cases() -> list[Case]:
    made = []
    # Some leave `dropout` out: its default is 0.
    sizes: list[tuple[tuple[int, ...], int, tuple[float, ...]]]
    sizes = [((1, 4, 6), 8, (0.0,)), ((2, 3, 4), 5, (0.0,)), ((5, 3), 12, ()), ((2, 4, 3, 5), 7, ()), ((6,), 9, ())]
    sizes += [((3, 2, 8), 5, (0.0,))]  # narrower than a token
    for shape, M, dropout in sizes:
        label = f"x {shape}, hidden_dim={M}{', dropout=0.0' if dropout else ''}"
        made.append(Case(label, (normal(*shape),), (shape[-1], M, *dropout), random_weights(MLP(shape[-1], M))))
    tokens = torch.tensor([0.8, -0.6])
    return [
        *made,
        *(
            Case(f"400 equal tokens, dropout={p}", (tokens.expand(*many, 2),), (2, 3, p), _READABLE)
            for many, p in (((20, 20), 0.25), ((400,), 0.4))
        ),
    ]


def _values(numbers: Tensor) -> str:
    """The different numbers among many, in order."""
    ordered = numbers.detach().flatten().sort().values
    first = torch.cat([torch.tensor([True]), ordered.diff() > 1e-4])
    found = [f"{round(number, 3) + 0.0:g}" for number in ordered[first].tolist()]
    return ", ".join(found[:8]) + (", …" if len(found) > 8 else "")


def _observe_mlp(work: Any, case: Case) -> Result:
    case = filled(work, case, 0.0)
    module = work(*case.build)
    if not isinstance(module, nn.Module):
        raise Fault("the class must derive from nn.Module")
    dim, hidden_dim, *given = case.build
    dropout = sum(given)  # 0 where it is left out
    sizes = {name: p.numel() for name, p in module.named_parameters()}
    if sizes.get("fc1.bias") == dim and sizes.get("fc2.bias") == hidden_dim:
        return {"layers": "fc2 widens, fc1 narrows"}
    if not dropout:
        return {"layers": _WIDER} | layer(work, case)
    adopt(module, case.weights, {})
    x = case.args[0]
    module.eval()
    in_eval = module(x)
    again, training = module(x), module.train()
    given = x.clone().requires_grad_()
    outputs = training(given)
    for output in (in_eval, again, outputs):
        if not isinstance(output, Tensor) or output.shape != x.shape:
            got = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
            raise Fault(f"the result must have the shape of x, {tuple(x.shape)}, got {got}")
    fallen = outputs.detach()[..., 0] == 0
    graph = outputs.requires_grad
    gradients = torch.autograd.grad(outputs[..., 0].sum(), given, allow_unused=True) if graph else [None]
    passes = gradients[0] is not None and bool(gradients[0][fallen].any())
    return {
        "what the first output can be, in eval mode,": _values(torch.stack([in_eval, again])[..., 0]),
        "what the first output can be, in training,": _values(outputs[..., 0]),
        "what falls of the token and of its hidden units": _falls(outputs.detach()),
        "the gradient of what falls": Words("not zero" if passes else "zero"),
        "each draw": staleness(lambda: training(x.clone()).detach()) or "fresh",
        **_shares(torch.stack([training(x).detach() for _ in range(5)]), dropout),
    }


def _shares(outputs: Tensor, p: float) -> Result:
    """Whether as many numbers fall as should, after the second layer and, of what is left, after the GELU."""
    if not _falls(outputs[0]).startswith("each"):  # then there are too few draws
        return {}
    bias = _READABLE["fc2.bias"] / (1 - p)  # what is left of an output whose hidden unit fell
    last = outputs == 0
    hidden = ~last & ((outputs - bias).abs() < 1e-4)
    counts = {"GELU": (hidden, int((~last).sum())), "second layer": (last, outputs.numel())}
    words = {}
    for name, (fallen, many) in counts.items():
        hits = int(fallen.sum())
        amount = "as asked" if not far(hits, many, p) else "too small" if hits < many * p else "too large"
        words[f"the share that dropout sets to 0 after the {name}"] = Words(amount)
        seen = ~last if fallen is hidden else torch.ones_like(last)  # where it shows whether a number fell
        words[f"what dropout sets to 0 after the {name}"] = _draws(fallen, seen)
    return words


def _draws(fallen: Tensor, seen: Tensor) -> Words:
    """How the draws of one place (draws, ..., 2) hang together, by the numbers where they show."""
    both, twice = seen.all(-1), seen[0] & seen[1]
    if bool((fallen[..., 0] == fallen[..., 1])[both].all()):
        return Words("whole tokens")
    if bool((fallen[0] == fallen[1])[twice].all()):
        return Words("the same in each call")
    return Words("each number by itself, drawn anew")


def _falls(outputs: Tensor) -> str:
    """Whether the two outputs of a token fall together, by how many different pairs there are."""
    fallen = outputs == 0
    for axis in range(outputs.ndim - 1):
        if fallen.any() and bool((fallen == fallen.narrow(axis, 0, 1)).all()):
            return f"not each number by itself (the same all along axis {axis})"
    pairs = len({tuple(row) for row in (outputs.flatten(0, -2) * 1000).round().int().tolist()})
    return "each number by itself" if pairs > 4 else f"not each number by itself (only {pairs} different results)"


class _MLP(nn.Module):
    """The right layer, written out in steps that a subclass replaces by a wrong one."""

    def __init__(self, dim: int, hidden_dim: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.fc1, self.fc2, self.p = nn.Linear(dim, hidden_dim), nn.Linear(hidden_dim, dim), dropout

    def forward(self, x: Tensor) -> Tensor:
        return self.drop_last(self.bend_last(self.fc2(self.drop(self.bend(self.fc1(x))))))

    def bend(self, x: Tensor) -> Tensor:
        return F.gelu(x)

    def bend_last(self, x: Tensor) -> Tensor:
        return x

    def drop(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.p, self.training)

    def drop_last(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.p, self.training)


class _Relu(_MLP):
    def bend(self, x: Tensor) -> Tensor:
        return F.relu(x)


class _Tanh(_MLP):
    def bend(self, x: Tensor) -> Tensor:
        return _tanh_gelu(x)


class _Sigmoid(_MLP):
    def bend(self, x: Tensor) -> Tensor:
        return _by_sigmoid(x)


class _NoBend(_MLP):
    def bend(self, x: Tensor) -> Tensor:
        return x


class _BendTwice(_MLP):
    def bend_last(self, x: Tensor) -> Tensor:
        return F.gelu(x)


class _BendLast(_NoBend, _BendTwice):
    pass


class _BendFirst(_NoBend):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(F.gelu(x))


class _Silu(_MLP):
    def bend(self, x: Tensor) -> Tensor:
        return F.silu(x)


class _NoFirstBias(_MLP):
    def forward(self, x: Tensor) -> Tensor:
        return self.drop_last(self.fc2(self.drop(self.bend(F.linear(x, self.fc1.weight)))))


class _NoSecondBias(_MLP):
    def forward(self, x: Tensor) -> Tensor:
        return self.drop_last(F.linear(self.drop(self.bend(self.fc1(x))), self.fc2.weight))


class _Normed(_MLP):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(F.layer_norm(x, x.shape[-1:]))


class _WholeTokens(_MLP):
    """One draw for a whole row."""

    def drop(self, x: Tensor) -> Tensor:
        return x * F.dropout(torch.ones_like(x[..., :1]), self.p, self.training)

    drop_last = drop


class _Exchanged(_MLP):
    def __init__(self, dim: int, hidden_dim: int, dropout: float = 0.0) -> None:
        super().__init__(hidden_dim, dim, dropout)


class _Residual(_MLP):
    def forward(self, x: Tensor) -> Tensor:
        return x + super().forward(x)


class _NoDropout(_MLP):
    def __init__(self, dim: int, hidden_dim: int, dropout: float = 0.0) -> None:
        super().__init__(dim, hidden_dim, 0.0)


class _DropoutInEval(_MLP):
    def drop(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.p)

    drop_last = drop


class _DropsHiddenOnly(_MLP):
    def drop_last(self, x: Tensor) -> Tensor:
        return x


class _DropsLastOnly(_MLP):
    def drop(self, x: Tensor) -> Tensor:
        return x


class _DropsBeforeBend(_MLP):
    def forward(self, x: Tensor) -> Tensor:
        return self.drop(self.fc2(self.bend(self.drop(self.fc1(x)))))


class _DropsInput(_DropsHiddenOnly):
    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(self.bend(self.fc1(self.drop(x))))


class _NotRescaled(_MLP):
    def drop(self, x: Tensor) -> Tensor:
        return x * (torch.rand_like(x) >= self.p) if self.training else x

    drop_last = drop


class _KeepsP(_MLP):
    def drop(self, x: Tensor) -> Tensor:
        return F.dropout(x, 1 - self.p, self.training and self.p > 0)

    drop_last = drop


class _FixedRate(_MLP):
    def __init__(self, dim: int, hidden_dim: int, dropout: float = 0.0) -> None:
        super().__init__(dim, hidden_dim, 0.1)


class _AnotherDefault(_MLP):
    def __init__(self, dim: int, hidden_dim: int, dropout: float = 0.1) -> None:
        super().__init__(dim, hidden_dim, dropout)


class _ScaledInEval(_MLP):
    def drop(self, x: Tensor) -> Tensor:
        return super().drop(x) if self.training else x * (1 - self.p)

    drop_last = drop


class _WholeChannels(_MLP):
    """One draw for a whole column."""

    def drop(self, x: Tensor) -> Tensor:
        return x * F.dropout(torch.ones(x.shape[-1]), self.p, self.training)

    drop_last = drop


class _DropsInputAndLast(_MLP):
    def forward(self, x: Tensor) -> Tensor:
        return self.drop(self.fc2(self.bend(self.fc1(self.drop(x)))))


class _DropsThrice(_MLP):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(F.dropout(x, self.p, self.training))


MLP_LAYER = Exercise(
    name="mlp",
    lesson="04",
    points=5,
    right=_MLP,
    cases=_mlp_cases,
    forbidden=(MLP,),
    observe=_observe_mlp,
    mistakes=(
        Mistake(
            "a GELU after the second layer, in place of between",
            "Two linear layers with nothing between are one matrix, and behind GELU no output is below -0.17. The bend "
            "stands between the two layers.",
            _AFTER,
            _BendLast,
        ),
        Mistake(
            "a second GELU after the second layer",
            "No output of yours is below -0.17. The second layer is the end: nothing bends what it returns.",
            _AFTER,
            _BendTwice,
        ),
        Mistake(
            "no bend",
            "Both layers collapse into one matrix. GELU stands between them.",
            _NO_BEND,
            _NoBend,
        ),
        Mistake(
            "a GELU before the first layer",
            "The token itself is not bent: first fc1, then GELU, then fc2.",
            _CLASS,
            _BendFirst,
        ),
        Mistake(
            "tanh in place of the exact GELU",
            "Your numbers are off by less than one in a thousand: that is the GELU with tanh. Leave out "
            'approximate="tanh", or use your exact one.',
            _OTHER,
            _Tanh,
        ),
        Mistake(
            "x · sigmoid(1.702 x) in place of the exact GELU",
            "That is a coarser approximation of GELU, off by up to 0.02. Use nn.GELU(), or your exact one.",
            _OTHER,
            _Sigmoid,
        ),
        Mistake("a ReLU in place of GELU", "The bend of a ViT is GELU, which is smooth.", _GELU, _Relu),
        Mistake("a SiLU in place of GELU", "The bend of a ViT is GELU: x · Φ(x), not x · sigmoid(x).", _GELU, _Silu),
        Mistake("no bias in fc1", "Both layers have a bias, and it is added: fc1(x).", _CLASS, _NoFirstBias),
        Mistake("no bias in fc2", "Both layers have a bias, and it is added: fc2(x).", _CLASS, _NoSecondBias),
        Mistake(
            "a norm inside the MLP",
            "You norm the tokens first. That is right, but it is the encoder block's work: lesson 05.",
            _CLASS,
            _Normed,
        ),
        Mistake(
            "layers exchanged",
            "Your fc1 goes from M to D, and fc2 from D to M. The first one widens: fc1 is D → M, fc2 is M → D.",
            _CLASS,
            _Exchanged,
        ),
        Mistake(
            "a residual inside the MLP",
            "You add the input to the output. That is right, but it is the encoder block's work: lesson 05.",
            _CLASS,
            _Residual,
        ),
        Mistake(
            "dropout in evaluation",
            "After eval() your layer still drops numbers. nn.Dropout knows the mode by itself; F.dropout needs "
            "training=self.training.",
            "No `eval()`.",
            _DropoutInEval,
        ),
        Mistake(
            "no dropout",
            "In training nothing is dropped. Is the probability passed on, and the layer called?",
            _DROPOUT,
            _NoDropout,
        ),
        Mistake(
            "dropout after the GELU only",
            "Dropout is applied after every dense layer: once more, after fc2.",
            _DROPOUT,
            _DropsHiddenOnly,
        ),
        Mistake(
            "dropout after the second layer only",
            "Dropout is applied after every dense layer: also between GELU and fc2.",
            _DROPOUT,
            _DropsLastOnly,
        ),
        Mistake(
            "dropout before the GELU",
            "You drop, and rescale, before the bend. In the paper's code the first dropout comes after the GELU, so "
            "that the average of what fc2 reads stays the same.",
            _DROPOUT,
            _DropsBeforeBend,
        ),
        Mistake(
            "dropout on the input",
            "You drop numbers of the token. Dropout comes after the GELU and after the second layer.",
            _DROPOUT,
            _DropsInput,
        ),
        Mistake(
            "dropout without rescaling",
            "What survives is divided by 1 - p, so that the average stays as it was.",
            _DROPOUT,
            _NotRescaled,
        ),
        Mistake(
            "keep and drop exchanged",
            "p is the probability to drop. You drop with 1 - p.",
            _DROPOUT,
            _KeepsP,
        ),
        Mistake(
            "dropout of whole tokens",
            "You draw once for a whole row. Dropout draws for each number: nn.Dropout(p).",
            _DROPOUT,
            _WholeTokens,
        ),
        Mistake(
            "dropout of whole channels",
            "You draw once for all tokens. Dropout draws for each number: nn.Dropout(p).",
            _DROPOUT,
            _WholeChannels,
        ),
        Mistake(
            "a dropout of 0.1, whatever is asked for",
            "The probability is the argument `dropout`: nn.Dropout(dropout).",
            _DROPOUT,
            _FixedRate,
        ),
        Mistake(
            "another default than 0",
            "Whoever says nothing of dropout wants none: def __init__(self, dim, hidden_dim, dropout=0.0).",
            _DROPOUT,
            _AnotherDefault,
        ),
        Mistake(
            "a factor of 1 − p in evaluation",
            "What survives in training is divided by 1 - p already, so that after eval() nothing is left to do.",
            _DROPOUT,
            _ScaledInEval,
        ),
        Mistake(
            "dropout of the input in place of the hidden units",
            "Dropout comes after the GELU and after the second layer; what comes in is left as it is.",
            _DROPOUT,
            _DropsInputAndLast,
        ),
        Mistake(
            "a third dropout, of the input",
            "Dropout comes after the GELU and after the second layer; what comes in is left as it is.",
            _DROPOUT,
            _DropsThrice,
        ),
    ),
)


def check_mlp(cls: type[nn.Module]) -> bool:
    """Check ``cls(dim, hidden_dim, dropout)`` with ``fc1`` (D -> M) and ``fc2`` (M -> D): (..., D) -> (..., D)."""
    return check(MLP_LAYER, cls)


# ---- The challenge -----------------------------------------------------------------------------------------------


def _pieces_cases() -> list[Case]:
    made = []
    sizes: list[tuple[tuple[int, ...], int, int]]
    sizes = [((2, 3, 4), 6, 2), ((1, 5, 3), 7, 3), ((4, 6), 8, 1), ((2, 3, 5), 11, 4), ((3, 4), 5, 4)]
    for shape, M, pieces in [*sizes, ((2, 1, 3, 4), 7, 3), ((5,), 7, 3), ((2, 3), 40, 9)]:
        D = shape[-1]
        tensors = [normal(*size, seed=seed) for seed, size in enumerate([shape, (M, D), (M,), (D, M), (D,)])]
        made.append(Case(f"x {shape}, M = {M}, pieces={pieces}", (*tensors, pieces)))
    return made


_BENDS = ("gelu", "erf", "erfc", "ndtr", "special_ndtr", "special_erfc", "special_erf", "tanh", "sigmoid", "relu")
RUNS = 4  # how often call runs a work


def _observe_pieces(work: Any, case: Case) -> Result:
    """As :func:`call`; and whether the whole hidden layer was ever there at once."""
    with Operations() as operations:
        observed = call(work, case)
    tokens, M, pieces = math.prod(case.args[0].shape[:-1]), case.args[1].shape[0], case.args[5]
    # In no case is D the number of tokens, so that only a hidden layer has this axis and as many numbers. Of some of
    # the tokens alone, it is told by its bend.
    # (Of a single token it is as long as b1.)
    seen = operations.seen if tokens > 1 else []
    whole = [shape for _, shape in seen if M in shape and math.prod(shape) == tokens * M]
    # Where there are as many tokens as units, a piece laid out the other way round has this last axis, too.
    whole += [shape for shape in operations.shapes(*_BENDS) if shape[-1:] == (M,) and tokens != M]
    if pieces > 1 and whole:
        said = f"all M = {M} hidden units are there at once (a tensor of shape {whole[0]})"
        raise Fault(f"{said}: share them out, one piece after the other")
    bends = operations.shapes(*_BENDS)
    most = math.ceil(M / pieces)
    if len(bends) >= RUNS * pieces:  # there are as many pieces, and the last one may take the rest
        most = M - (pieces - 1) * (M // pieces)
    if large := [shape for shape in bends if math.prod(shape) > tokens * most]:
        said = f"{math.prod(large[0]) // tokens} numbers a token are bent in one step (a tensor of shape {large[0]})"
        raise Fault(f"{said}: {pieces} pieces of M = {M} have at most {most}")
    return observed


def _pieces(
    cut: Callable[[Tensor, int, int], Any] = lambda w, pieces, dim: w.chunk(pieces, dim),
    bend: Callable[[Tensor], Tensor] = F.gelu,
    bend_last: Callable[[Tensor], Tensor] = lambda x: x,
    b1_times: float = 1.0,
    b2_times: Callable[[int], float] = lambda pieces: 1.0,
    join: Callable[[Tensor], Tensor] = lambda parts: parts.sum(0),
    b2_bent: bool = False,
) -> Callable[..., Tensor]:
    """The MLP in pieces, with one thing or another changed."""

    def mlp(x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor, pieces: int) -> Tensor:
        found = []
        for a, b, c in zip(cut(w1, pieces, 0), cut(b1, pieces, 0), cut(w2, pieces, 1), strict=True):
            found.append(bend_last(F.linear(bend(F.linear(x, a, b1_times * b)), c)))
        total = join(torch.stack(found)) + b2_times(pieces) * b2
        return bend(total) if b2_bent else total

    return mlp


def _without_rest(w: Tensor, pieces: int, dim: int) -> list[Tensor]:
    size = w.shape[dim] // pieces
    return [w.narrow(dim, i * size, size) for i in range(pieces)]


def _w2_backwards(x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor, pieces: int) -> Tensor:
    parts = zip(w1.chunk(pieces), b1.chunk(pieces), w2.chunk(pieces, 1)[::-1], strict=True)
    return torch.stack([F.linear(F.gelu(F.linear(x, a, b)), c) for a, b, c in parts]).sum(0) + b2


def _first_of_b1(x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor, pieces: int) -> Tensor:
    parts = zip(w1.chunk(pieces), w2.chunk(pieces, 1), strict=True)
    return torch.stack([F.linear(F.gelu(F.linear(x, a, b1[: len(a)])), c) for a, c in parts]).sum(0) + b2


MLP_IN_PIECES = Exercise(
    name="mlp_in_pieces",
    lesson="04",
    points=2,
    right=_pieces(),
    cases=_pieces_cases,
    observe=_observe_pieces,
    mistakes=(
        Mistake(
            "the last bias added in each piece",
            "The pieces are summed, so b2 came in once for each. Add it once, after the sum.",
            _PENCIL,
            Slip(_pieces, b2_times=lambda pieces: float(pieces)),
        ),
        Mistake(
            "the last bias forgotten",
            "b2 is added once, after the sum.",
            _PENCIL,
            Slip(_pieces, b2_times=lambda pieces: 0.0),
        ),
        Mistake(
            "hidden units lost",
            "M need not be a multiple of `pieces`, and M // pieces leaves the last units out. torch.chunk and "
            "torch.tensor_split cut without a rest.",
            _PENCIL,
            Slip(_pieces, cut=_without_rest),
        ),
        Mistake(
            "a mean of the pieces in place of their sum",
            "An output is a sum over all hidden units, so the pieces are summed, not averaged.",
            _PENCIL,
            Slip(_pieces, join=lambda parts: parts.mean(0)),
        ),
        Mistake(
            "the first bias forgotten",
            "Each piece has its part of b1, added before the GELU.",
            _PENCIL,
            Slip(_pieces, b1_times=0.0),
        ),
        Mistake(
            "a GELU after the second matrix",
            "Each hidden unit is bent before w2 mixes them; behind w2 it is too late.",
            _AFTER,
            Slip(_pieces, bend=lambda x: x, bend_last=F.gelu),
        ),
        Mistake(
            "no bend",
            "Each hidden unit is bent by GELU before w2 mixes them.",
            _NO_BEND,
            Slip(_pieces, bend=lambda x: x),
        ),
        Mistake("a ReLU in place of GELU", "The bend is the exact GELU.", _GELU, Slip(_pieces, bend=F.relu)),
        Mistake(
            "tanh in place of the exact GELU",
            'Your numbers are off by less than one in a thousand: leave out approximate="tanh".',
            _OTHER,
            Slip(_pieces, bend=_tanh_gelu),
        ),
        Mistake("x · sigmoid(1.702 x)", "The bend is the exact GELU.", _OTHER, Slip(_pieces, bend=_by_sigmoid)),
        Mistake(
            "a second GELU at the end",
            "Nothing bends what comes out.",
            _AFTER,
            Slip(_pieces, b2_bent=True),
        ),
        Mistake(
            "the last piece left out",
            "The last machine's contribution is missing: add up all of them.",
            _PENCIL,
            Slip(_pieces, join=lambda parts: parts[:-1].sum(0)),
        ),
        Mistake(
            "a GELU on the sum in place of the hidden units",
            "Each hidden unit is bent before w2 mixes them. You bend the sum, which comes too late.",
            _AFTER,
            Slip(_pieces, bend=lambda x: x, join=lambda parts: F.gelu(parts.sum(0))),
        ),
        Mistake(
            "the last bias divided by the number of pieces",
            "b2 is added once, after the sum; each of `pieces` machines might add its part, but then all of them do.",
            _PENCIL,
            Slip(_pieces, b2_times=lambda pieces: 1 / pieces),
        ),
        Mistake(
            "a product of the pieces",
            "An output is a sum over all hidden units, so the pieces are summed.",
            _PENCIL,
            Slip(_pieces, join=lambda parts: parts.prod(0)),
        ),
        Mistake(
            "the pieces of w2 in another order",
            "Piece i of w1 makes the hidden units that piece i of w2 reads: take the two in the same order.",
            _PENCIL,
            _w2_backwards,
        ),
        Mistake(
            "`pieces` taken for the size of a piece",
            "split(pieces) cuts pieces of that size. `pieces` is how many there are: chunk(pieces).",
            _PENCIL,
            Slip(_pieces, cut=lambda w, pieces, dim: w.split(pieces, dim)[:pieces]),
        ),
        Mistake(
            "the first numbers of b1 in every piece",
            "Each piece has its own numbers of b1, as it has its own rows of w1.",
            _PENCIL,
            _first_of_b1,
        ),
        Mistake(
            "the first piece alone",
            "The other machines' contributions are lost: add up all of them.",
            _PENCIL,
            Slip(_pieces, join=lambda parts: parts[0]),
        ),
        Mistake(
            "the last piece alone",
            "Each piece overwrites the one before. Add them up.",
            _PENCIL,
            Slip(_pieces, join=lambda parts: parts[-1]),
        ),
    ),
)


def check_mlp_in_pieces(fn: Callable[..., Tensor]) -> bool:
    """Check ``fn(x, w1, b1, w2, b2, pieces)``: the MLP's output (..., D), hidden units cut into ``pieces``."""
    return check(MLP_IN_PIECES, fn)
