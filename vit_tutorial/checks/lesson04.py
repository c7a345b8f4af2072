"""Checks of lesson 04: GELU, exact and by tanh, the MLP with its dropout, and the MLP in pieces."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vit_tutorial.checks.chance import far, staleness, values
from vit_tutorial.checks.compare import as_tensor
from vit_tutorial.checks.harness import (
    Case,
    Exercise,
    Fault,
    Hashed,
    Result,
    Words,
    adopt,
    answers,
    at_once,
    built,
    call,
    copied,
    filled,
    layer,
    normal,
    random_weights,
    same_shape,
    section,
)
from vit_tutorial.checks.watch import Operations
from vit_tutorial.mlp import MLP

_GELU = "2 · GELU"
_OTHER = "The other GELU."
_PENCIL = "1 · One token and a pencil"
_NO_GELU = "No activation function."

# ---- With a pencil -----------------------------------------------------------------------------------------------

NUMBERS = {
    "hidden": Hashed("9a21633d3a c7f3b8d209 a603b3c25c", "list"),
    "activations": Hashed("55852a968b@0.012+0.0073 11d4e7c873@0.04+0.0145 949a0fc296@0.012+0.0033", "list"),
    "output": Hashed("64c35e4514@0.04+0.0227 032f66620f@0.04+0.0158", "list"),
    "parameters": Hashed("04d73452c8"),
    "moved": Hashed("9313f35ed0"),
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
        "activations": "Multiply each hidden number by Φ of the same number. Φ(x) is a probability, between 0 and 1.",
        "output": "Output number j is the dot product of the activations with column j of W2.",
        "parameters": "Two layers, each with a matrix and a bias: D · M + M, and M · D + D.",
        "moved": "Which tokens does the MLP look at when it computes one of them?",
    },
    mistakes=(
        *section(
            _GELU,
            (
                "a ReLU in place of GELU",
                "GELU multiplies each number by Φ of it.",
                {"activations": [1, 2, 0], "output": [2, 2]},
            ),
            (
                "Φ(x) in place of x · Φ(x)",
                "GELU is the number times this probability.",
                {"activations": [0.8413, 0.9772, 0.1587], "output": [1.6827, 1.1359]},
            ),
        ),
        *section(
            "Every token alone.",
            ("tokens that look at each other", "That is attention's work.", {"moved": 197}),
        ),
    ),
)


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


def _multiplied_by(wrong: list[tuple[Case, Result, Result]]) -> str:
    """By what a wrong GELU multiplies x, at a few x: there it shows whether Φ is wrong, and on which side."""
    case, right, outcome = wrong[0]
    x, y, got = case.args[0], right["result"].double(), as_tensor(outcome["result"])
    if x.ndim > 1 or got is None or got.shape != x.shape or not got.isfinite().all():
        return ""
    got = got.detach().double()
    if torch.allclose(got, y, atol=1e-6):  # wrong for another reason
        return ""
    factor = (got @ y) / (y @ y)
    if abs(factor - 1) > 1e-3 and torch.allclose(got, y * factor, atol=1e-3):  # for all: that is told elsewhere
        return ""
    at = [i for i, number in enumerate(x.tolist()) if number in (-2, -1, 1, 2)]
    factors = ((z / x)[at].tolist() for z in (got, y))
    yours, wanted = (", ".join(f"{z:.3g}" for z in some) for some in factors)
    if yours == wanted:
        i = int((got - y).abs().argmax())
        said = f"Farthest off is x = {x[i]:g}: {got[i]:.8g}, in place of {y[i]:.8g}."
        return f"To three digits your factors z / x are right at x = -2, -1, 1, 2 (with {case.label}). {said}"
    said = f"GELU multiplies x by a probability. At x = -2, -1, 1, 2 your z / x is {yours}; it should be {wanted}"
    return f"{said} (with {case.label})."


GELU = Exercise(
    name="gelu",
    lesson="04",
    points=3,
    takes="fn(x): the exact GELU of every number, shape unchanged",
    tolerance=1e-6,
    right=F.gelu,
    cases=_gelu_cases,
    observe=call,
    explain=_multiplied_by,
)


GELU_TANH = Exercise(
    name="gelu_tanh",
    lesson="04",
    points=3,
    takes="fn(x): the tanh form of GELU of every number, shape unchanged",
    tolerance=1e-6,
    right=_tanh_gelu,
    cases=_gelu_cases,
    observe=call,
    explain=_multiplied_by,
)


# ---- The layer ---------------------------------------------------------------------------------------------------

_GIVEN = "M and D numbers"
# In this layer each output reads one hidden unit, so that a few numbers show where dropout is applied.
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


def _observe_mlp(work: Any, case: Case) -> Result:
    case = filled(work, case, 0.0)
    module = built(work, case)
    dim, hidden_dim, *given = case.build
    dropout = sum(given)  # 0 where it is left out
    sizes = {name: p.numel() for name, p in module.named_parameters()}
    if sizes.get("fc1.bias") == dim and sizes.get("fc2.bias") == hidden_dim:
        return {"what fc1 and fc2 give": "D and M numbers"}
    if not dropout:
        return {"what fc1 and fc2 give": _GIVEN} | layer(work, case)
    adopt(module, case.weights, {})
    x = case.args[0]
    module.eval()
    in_eval = module(x)
    again, training = module(x), module.train()
    given = x.clone().requires_grad_()
    outputs = training(given)
    for output in (in_eval, again, outputs):
        same_shape(output, x)
    fallen = outputs.detach()[..., 0] == 0
    graph = outputs.requires_grad
    gradients = torch.autograd.grad(outputs[..., 0].sum(), given, allow_unused=True) if graph else [None]
    passes = gradients[0] is not None and bool(gradients[0][fallen].any())
    return {
        "what the first output can be, in eval mode,": values(torch.stack([in_eval, again])[..., 0], 3),
        "what the first output can be, in training,": values(outputs[..., 0], 3),
        "what is dropped of the token and of its hidden units": _dropped(outputs.detach()),
        "the gradient of what is dropped": Words("not zero" if passes else "zero"),
        "each draw": staleness(lambda: training(x.clone()).detach()) or "fresh",
        **_shares(torch.stack([training(x).detach() for _ in range(5)]), dropout),
    }


def _shares(outputs: Tensor, p: float) -> Result:
    """Whether as many numbers fall as should, after the second layer and, of what is left, after the GELU."""
    if not _dropped(outputs[0]).startswith("each"):  # then there are too few draws
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


def _dropped(outputs: Tensor) -> str:
    """Whether the two outputs of a token fall together, by how many different pairs there are."""
    fallen = outputs == 0
    for axis in range(outputs.ndim - 1):
        if fallen.any() and bool((fallen == fallen.narrow(axis, 0, 1)).all()):
            return f"not each number by itself (the same all along axis {axis})"
    pairs = len({tuple(row) for row in (outputs.flatten(0, -2) * 1000).round().int().tolist()})
    return "each number by itself" if pairs > 4 else f"not each number by itself (only {pairs} different results)"


def _unchanged(x: Tensor) -> Tensor:
    return x


def _mlp(
    between: Callable[[Tensor], Tensor] = F.gelu,
    after: Callable[[Tensor], Tensor] = _unchanged,
    first: bool = True,
    last: bool = True,
) -> type[nn.Module]:
    """The layer with other functions between and after its two layers, or dropout in one place alone."""

    class Layer(nn.Module):
        def __init__(self, dim: int, hidden_dim: int, dropout: float = 0.0) -> None:
            super().__init__()
            self.fc1, self.fc2, self.p = nn.Linear(dim, hidden_dim), nn.Linear(hidden_dim, dim), dropout

        def forward(self, x: Tensor) -> Tensor:
            hidden = between(self.fc1(x))
            hidden = F.dropout(hidden, self.p, self.training) if first else hidden
            output = after(self.fc2(hidden))
            return F.dropout(output, self.p, self.training) if last else output

    return Layer


_Right = _mlp()


MLP_LAYER = Exercise(
    name="mlp",
    lesson="04",
    points=5,
    takes="cls(dim, hidden_dim, dropout) with fc1 (D -> M) and fc2 (M -> D): (..., D) -> (..., D)",
    right=_Right,
    cases=_mlp_cases,
    forbidden=(MLP,),
    observe=_observe_mlp,
    mistakes=(
        *section(
            _NO_GELU,
            (
                "no activation function",
                "Both layers collapse into one matrix. GELU comes between them.",
                _mlp(between=_unchanged),
            ),
            (
                "a GELU after the second layer, in place of between",
                "Two linear layers with nothing between are one matrix, and after a GELU no output is below -0.17. "
                "The GELU is between the two layers.",
                _mlp(between=_unchanged, after=F.gelu),
            ),
        ),
        *section(
            _OTHER,
            (
                "a ReLU in place of GELU",
                "The activation function of a ViT is GELU, which is smooth.",
                _mlp(between=F.relu),
            ),
        ),
        *section(
            "No `eval()`.",
            (
                "dropout after the GELU only",
                "Dropout is applied after every dense layer: once more, after fc2.",
                _mlp(last=False),
            ),
            (
                "dropout after the second layer only",
                "Dropout is applied after every dense layer: also between GELU and fc2.",
                _mlp(first=False),
            ),
        ),
    ),
)


# ---- The challenge -----------------------------------------------------------------------------------------------


_MANY = (96, 2), 512, 16


def _pieces_cases() -> list[Case]:
    made = []
    sizes: list[tuple[tuple[int, ...], int, int]]
    sizes = [((2, 3, 4), 6, 2), ((1, 5, 3), 7, 3), ((4, 6), 8, 1), ((2, 3, 5), 11, 4), ((3, 4), 5, 4)]
    for shape, M, pieces in [*sizes, ((2, 1, 3, 4), 7, 3), ((5,), 7, 3), ((2, 3), 40, 9), _MANY]:
        D = shape[-1]
        tensors = [normal(*size, seed=seed) for seed, size in enumerate([shape, (M, D), (M,), (D, M), (D,)])]
        made.append(Case(f"x {shape}, M = {M}, pieces={pieces}", (*tensors, pieces)))
    return made


def _many_units() -> Case:
    sizes = [(128, 2), (32_768, 2), (32_768,), (2, 32_768), (2,)]
    return Case("M = 32768, pieces=512", (*(normal(*size, seed=seed) for seed, size in enumerate(sizes)), 512))


_ACTIVATIONS = ("gelu", "erf", "erfc", "ndtr", "special_ndtr", "special_erfc", "special_erf", "tanh", "sigmoid", "relu")
RUNS = 4  # how often call runs a work


def _observe_pieces(work: Any, case: Case) -> Result:
    """As :func:`call`; and whether the whole hidden layer was ever there at once, or is kept in pieces."""
    if case.args[0].shape == _MANY[0]:
        return {"what is in memory at once": at_once(lambda: work(*copied(case.args)), 96 * 512)}
    with Operations() as operations:
        observed = call(work, case)
    tokens, M, pieces = math.prod(case.args[0].shape[:-1]), case.args[1].shape[0], case.args[5]
    # In no case is D the number of tokens, so that only a hidden layer has this axis and as many numbers. Of some of
    # the tokens alone, it shows where the activation function is applied.
    # (Of a single token it is as long as b1.)
    seen = operations.seen if tokens > 1 else []
    whole = [shape for _, shape in seen if M in shape and math.prod(shape) == tokens * M]
    # Where there are as many tokens as units, a piece laid out the other way round has this last axis, too.
    whole += [shape for shape in operations.shapes(*_ACTIVATIONS) if shape[-1:] == (M,) and tokens != M]
    if pieces > 1 and whole:
        raise Fault(
            f"there is a tensor of shape {whole[0]}, with room for all M = {M} hidden units: take one piece at a time"
        )
    # What has the shape of the output is a GELU in the wrong place, not a piece that is too large.
    sizes = [shape for shape in operations.shapes(*_ACTIVATIONS) if shape != tuple(case.args[0].shape)]
    most = math.ceil(M / pieces)
    if len(sizes) >= RUNS * pieces:  # there are as many pieces, and the last one may take the rest
        most = M - (pieces - 1) * (M // pieces)
    if large := [shape for shape in sizes if math.prod(shape) > tokens * most]:
        said = f"a tensor of shape {large[0]} goes through GELU, erf or the like in one step"
        raise Fault(f"{said}: {pieces} pieces of M = {M} have at most {most} hidden units for each of {tokens} tokens")
    return observed


def _pieces(
    cut: Callable[[Tensor, int, int], Any] = lambda w, pieces, dim: w.chunk(pieces, dim),
    between: Callable[[Tensor], Tensor] = F.gelu,
    join: Callable[[Tensor], Tensor] = lambda parts: parts.sum(0),
) -> Callable[..., Tensor]:
    """The MLP in pieces, with one thing or another changed."""

    def mlp(x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor, pieces: int) -> Tensor:
        found = []
        for a, b, c in zip(cut(w1, pieces, 0), cut(b1, pieces, 0), cut(w2, pieces, 1), strict=True):
            found.append(F.linear(between(F.linear(x, a, b)), c))
        return join(torch.stack(found)) + b2

    return mlp


def _without_rest(w: Tensor, pieces: int, dim: int) -> list[Tensor]:
    size = w.shape[dim] // pieces
    return [w.narrow(dim, i * size, size) for i in range(pieces)]


MLP_IN_PIECES = Exercise(
    name="mlp_in_pieces",
    lesson="04",
    points=2,
    takes="fn(x, w1, b1, w2, b2, pieces): the MLP's output (..., D), hidden units cut into pieces",
    right=_pieces(),
    cases=_pieces_cases,
    large=_many_units,
    observe=_observe_pieces,
    mistakes=(
        *section(
            _PENCIL,
            (
                "hidden units lost",
                "M need not be a multiple of `pieces`, and M // pieces leaves the last units out. torch.chunk and "
                "torch.tensor_split cut without a rest.",
                _pieces(cut=_without_rest),
            ),
            (
                "`pieces` taken for the size of a piece",
                "split(pieces) cuts pieces of that size. `pieces` is how many there are: chunk(pieces).",
                _pieces(cut=lambda w, pieces, dim: w.split(pieces, dim)[:pieces]),
            ),
        ),
        *section(
            _NO_GELU,
            (
                "a GELU on the sum in place of the hidden units",
                "Each hidden unit goes through GELU before w2 mixes them. You apply it to the sum, which is too late.",
                _pieces(between=_unchanged, join=lambda parts: F.gelu(parts.sum(0))),
            ),
        ),
    ),
)
