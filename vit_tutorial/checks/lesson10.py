"""Checks of lesson 10: frozen features, neighbours, weights for a new task, rates, and what stays frozen."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vit_tutorial.checks.harness import Case, Exercise, Fault, Mistake, Result, answers, call, check, normal
from vit_tutorial.embeddings import Grid, ResizeRecipe, resize_position_embedding
from vit_tutorial.vit import ViT, ViTConfig

__all__ = [
    "check_fine_tuning_numbers",
    "check_for_a_new_task",
    "check_frozen_features",
    "check_knn",
    "check_layer_rates",
    "check_tune_head",
]

_FROZEN = "1 · Frozen features"
_NEIGHBOURS = "k nearest neighbours"
_PROBE = "A linear probe"
_HEAD = "3 · The new head starts at zero"
_TUNING = "4 · Fine-tuning all of it"
_RESOLUTION = "5 · Higher resolution"
_RATE = "The learning rate"

# ---- With a pencil -----------------------------------------------------------------------------------------------

# Lengths 2; 5, 1, √10. Train: mean 4, deviation 2. p = 1/4 for each class. (96 / 8)² + 1 tokens.
NUMBERS = {
    "cosines": [0.8, 1.0, 3 / math.sqrt(10)],
    "standardised": [2, 4],
    "first loss": math.log(12),
    "row of the gradient": [-2.25, 0.75],
    "probe": 325,
    "positions": 145,
    "rate": 0.15,
}

FINE_TUNING_NUMBERS = Exercise(
    name="fine_tuning_numbers",
    lesson="10",
    right=NUMBERS,
    cases=lambda: [Case(question, (question,)) for question in NUMBERS],
    observe=answers,
    tolerance=0.006,
    secret=True,
    mistakes=(
        Mistake(
            "dot products in place of cosines",
            "A dot product grows with the lengths of both vectors, so a long vector is near to everything. Divide by "
            "both lengths.",
            _NEIGHBOURS,
            {"cosines": [8, 2, 6]},
        ),
        Mistake(
            "a product divided by one of two lengths",
            "You divided by the known vectors' lengths. The asked one has a length, too, which is 2.",
            _NEIGHBOURS,
            {"cosines": [1.6, 2, 6 / math.sqrt(10)]},
        ),
        Mistake(
            "distances in place of cosines",
            "You computed how far apart the vectors end. A cosine compares their directions, whatever their lengths.",
            _NEIGHBOURS,
            {"cosines": [math.sqrt(13), 1, math.sqrt(2)]},
        ),
        Mistake(
            "the test features' own statistics",
            "You used the mean and the deviation of the test features. The probe was trained on numbers made with the "
            "training features' mean and deviation: use these for both.",
            _PROBE,
            {"standardised": [-1, 1]},
        ),
        Mistake(
            "statistics of training and test features together",
            "Whatever is measured on test features, the test is no longer fair. Mean and deviation come from the "
            "training features alone.",
            _PROBE,
            {"standardised": [1 / math.sqrt(13), 5 / math.sqrt(13)]},
        ),
        Mistake(
            "a loss of zero",
            "Zero weights give equal logits, not a right answer: each class gets 1/12, and the loss is -ln(1/12).",
            _HEAD,
            {"first loss": 0},
        ),
        Mistake(
            "a logarithm to another base",
            "Cross-entropy is in nats: the natural logarithm, ln 12.",
            _HEAD,
            {"first loss": math.log2(12)},
        ),
        Mistake(
            "a probability in place of a loss",
            "1/12 is the probability of each class. The loss is minus its natural logarithm.",
            _HEAD,
            {"first loss": 1 / 12},
        ),
        Mistake(
            "a head of zeros that cannot learn",
            "The gradient of W is (p - target) times z; W itself is not in it. It is the gradient of z that is zero.",
            _HEAD,
            {"row of the gradient": [0, 0]},
        ),
        Mistake(
            "a gradient with the wrong sign",
            "It is p - target, so 1/4 - 1 for the true class: minus the gradient is the direction in which you go.",
            _HEAD,
            {"row of the gradient": [2.25, -0.75]},
        ),
        Mistake(
            "the row of a class that isn't true",
            "1/4 · z is the gradient of the other classes' rows. For the true class the target 1 is subtracted.",
            _HEAD,
            {"row of the gradient": [0.75, -0.25]},
        ),
        Mistake(
            "the biases forgotten",
            "5 · 64 are the weights. Each class has a bias, too.",
            _PROBE,
            {"probe": 320},
        ),
        Mistake(
            "the class token's position forgotten",
            "12 · 12 = 144 are the patches. The class token has a position as well, the one that isn't resized.",
            _RESOLUTION,
            {"positions": 144},
        ),
        Mistake(
            "positions counted on the old grid",
            "At 96 pixels there are 12 patches a side. 8 · 8 + 1 was the number at 64.",
            _RESOLUTION,
            {"positions": 65},
        ),
        Mistake(
            "a warm-up that begins at zero",
            "Steps are counted from 0, and the first is no step of rate zero: it is (step + 1) / warm-up.",
            _TUNING,
            {"rate": 0.12},
        ),
        Mistake(
            "the peak from the first step on",
            "0.3 is the peak, reached at the end of the warm-up. At step 4 of 10 it is half of it.",
            _TUNING,
            {"rate": 0.3},
        ),
    ),
)


def check_fine_tuning_numbers(fn: Callable[[], Mapping[str, Any]]) -> bool:
    """Check the answers found with a pencil: ``fn()`` returns them in a dictionary."""
    return check(FINE_TUNING_NUMBERS, fn)


# ---- Frozen features ---------------------------------------------------------------------------------------------


def _model(depth: int = 2, dim: int = 8, classes: int = 3, dropout: float = 0.3) -> ViT:
    """A tiny model with random numbers everywhere, in training mode."""
    config = ViTConfig((4, 6), 2, 1, classes, dim, depth, num_heads=2, mlp_dim=6, dropout=dropout)
    model = ViT(config).train()
    with torch.no_grad():
        for index, parameter in enumerate(model.parameters()):
            parameter.copy_(0.5 * normal(*parameter.shape, seed=index))
    return model


def _feature_cases() -> list[Case]:
    sizes = [(1, 1, 8, 3), (3, 2, 4, 5), (2, 3, 6, 6)]
    return [
        Case(f"B={B}, D={D}, K={K}, dropout 0.3, model in training mode", (_model(L, D, K), normal(B, 1, 4, 6)))
        for B, L, D, K in sizes
    ]


def _features(work: Any, case: Case) -> Result:
    model, images = case.args
    found = work(model, images)
    return {
        "result": found,
        "does it need gradients": isinstance(found, Tensor) and found.requires_grad,
        "does the model keep its head": isinstance(model.head, nn.Linear),
    }


def _frozen(
    take: Callable[[ViT, Tensor], Tensor] = lambda model, x: model.features(x)[:, 0],
    training: bool = False,
    gradients: bool = False,
) -> Callable[[ViT, Tensor], Tensor]:
    def frozen_features(model: ViT, images: Tensor) -> Tensor:
        model.train(training)
        with torch.set_grad_enabled(gradients):
            return take(model, images)

    return frozen_features


def _before_the_norm(model: ViT, images: Tensor) -> Tensor:
    z: Tensor = model.blocks(model.embed(images))
    return z[:, 0]


def _head_taken_off(model: ViT, images: Tensor) -> Tensor:
    model.head = nn.Identity()
    return _frozen()(model, images)


FROZEN_FEATURES = Exercise(
    name="frozen_features",
    lesson="10",
    right=_frozen(),
    cases=_feature_cases,
    observe=_features,
    mistakes=(
        Mistake(
            "logits in place of features",
            "The head is still on, so you have what the old task wanted to know, K numbers. Take the class token after "
            "the last norm, D numbers: model.features(images)[:, 0].",
            _FROZEN,
            _frozen(lambda model, x: model(x)),
        ),
        Mistake(
            "a model in training mode whose gradients flow",
            "Two things: the model came in training mode, so dropout makes other features at every call: model.eval(). "
            "And a frozen model needs no graph: torch.no_grad().",
            _FROZEN,
            _frozen(training=True, gradients=True),
        ),
        Mistake(
            "a model in training mode",
            "Dropout is on, so the features are other ones at every call. model.eval() switches it off, "
            "torch.no_grad() does not.",
            _FROZEN,
            _frozen(training=True),
        ),
        Mistake(
            "gradients that flow into a frozen model",
            "The numbers are right, but they carry a graph: whoever trains on them trains the encoder too, and "
            "pays for it. Compute them under torch.no_grad() or torch.inference_mode().",
            _FROZEN,
            _frozen(gradients=True),
        ),
        Mistake(
            "the class token before the last norm",
            "The head that the encoder was trained with read the token after model.norm; before it, sizes differ from "
            "layer to layer. model.features has the norm in it.",
            _FROZEN,
            _frozen(_before_the_norm),
        ),
        Mistake(
            "a mean over all tokens",
            "This model was trained to put what it knows into the class token. Take token 0.",
            _FROZEN,
            _frozen(lambda model, x: model.features(x).mean(dim=1)),
        ),
        Mistake(
            "a mean over the patches",
            "This model was trained to put what it knows into the class token, and you left it out. Take token 0.",
            _FROZEN,
            _frozen(lambda model, x: model.features(x)[:, 1:].mean(dim=1)),
        ),
        Mistake(
            "every token",
            "You return (B, T, D). A picture's features are one vector: the class token, which is token 0.",
            _FROZEN,
            _frozen(lambda model, x: model.features(x)),
        ),
        Mistake(
            "the last token",
            "The class token comes first: [:, 0].",
            _FROZEN,
            _frozen(lambda model, x: model.features(x)[:, -1]),
        ),
        Mistake(
            "a head taken off for good",
            "The features are right, but the caller's model has lost its head. Use model.features, or put it back.",
            _FROZEN,
            _head_taken_off,
        ),
    ),
)


def check_frozen_features(fn: Callable[..., Tensor]) -> bool:
    """Check ``fn(model, images)``: a ViT in training mode, and (B, C, H, W) -> (B, D), without gradients."""
    return check(FROZEN_FEATURES, fn)


# ---- Nearest neighbours ------------------------------------------------------------------------------------------


def _cosines(A: Tensor, B: Tensor) -> Tensor:
    return F.normalize(B, dim=1) @ F.normalize(A, dim=1).T  # (m, n)


def _votes(labels: Tensor) -> Tensor:
    return F.one_hot(labels).sum(dim=1).argmax(dim=1)  # (m, k) -> (m,)


def _neighbours(
    near: Callable[[Tensor, Tensor], Tensor] = _cosines,
    pick: Callable[[Tensor, int], Tensor] = lambda nearness, k: nearness.topk(k, dim=1).indices,
    vote: Callable[[Tensor], Tensor] = _votes,
) -> Callable[..., Tensor]:
    """k-NN with another nearness, another choice of neighbours, or another way to make one label of theirs."""
    return lambda A, a, B, k: vote(a[pick(near(A, B), k)])


def _knn_cases() -> list[Case]:
    made = []
    for n, m, D, k, K in [(9, 4, 3, 1, 4), (12, 6, 2, 3, 3), (25, 8, 5, 5, 6), (20, 6, 4, 7, 10)]:
        lengths = 3 * normal(n, 1, seed=k).exp()
        A, a = lengths * normal(n, D, seed=n), torch.arange(n) * 7 % K
        B = 2 * normal(40, D, seed=m).exp().sqrt() * normal(40, D, seed=D)
        counts = F.one_hot(a[_cosines(A, B).topk(k, dim=1).indices]).sum(dim=1)  # (40, K)
        top = counts.topk(2, dim=1).values
        B = B[top[:, 0] > top[:, 1]][:m]  # where two labels draw, more than one answer is right
        made.append(Case(f"{n} known, {len(B)} asked, D={D}, k={k}", (A, a, B, k)))
    return made


KNN = Exercise(
    name="knn",
    lesson="10",
    right=_neighbours(),
    cases=_knn_cases,
    observe=call,
    mistakes=(
        Mistake(
            "dot products in place of cosines",
            "A known vector that is long wins everywhere. Scale every vector to length 1 first: F.normalize(A), "
            "F.normalize(B).",
            _NEIGHBOURS,
            _neighbours(lambda A, B: B @ A.T),
        ),
        Mistake(
            "distances in place of cosines",
            "You compare where the vectors end. The angle between them was asked: scale every vector to length 1.",
            _NEIGHBOURS,
            _neighbours(lambda A, B: -torch.cdist(B, A)),
        ),
        Mistake(
            "the farthest in place of the nearest",
            "A large cosine is near. You took the smallest: topk's largest=True, or a sort that descends.",
            _NEIGHBOURS,
            _neighbours(pick=lambda nearness, k: nearness.topk(k, dim=1, largest=False).indices),
        ),
        Mistake(
            "lengths taken down the columns",
            "You normalised each column, over all pictures. Each picture's vector, each row, gets length 1: dim=1.",
            _NEIGHBOURS,
            _neighbours(lambda A, B: F.normalize(B, dim=0) @ F.normalize(A, dim=0).T),
        ),
        Mistake(
            "the nearest neighbour left out",
            "You drop the first, as if it were the picture itself. Asked and known pictures are different ones here: "
            "all k nearest vote.",
            _NEIGHBOURS,
            _neighbours(pick=lambda nearness, k: nearness.topk(k + 1, dim=1).indices[:, 1:]),
        ),
        Mistake(
            "one neighbour, whatever k",
            "You return the label of the nearest alone. All k vote.",
            _NEIGHBOURS,
            _neighbours(pick=lambda nearness, k: nearness.topk(1, dim=1).indices),
        ),
        Mistake(
            "the largest label",
            "You took the largest of the k labels. A label is a name, not an amount: count how often each occurs.",
            _NEIGHBOURS,
            _neighbours(vote=lambda labels: labels.amax(dim=1)),
        ),
        Mistake(
            "a mean of labels",
            "Between 2 and 8 isn't 5. A label is a name, not an amount: count how often each occurs.",
            _NEIGHBOURS,
            _neighbours(vote=lambda labels: labels.float().mean(dim=1).round().long()),
        ),
        Mistake(
            "a median of labels",
            "You took the label in the middle. A label is a name, not an amount: count how often each occurs.",
            _NEIGHBOURS,
            _neighbours(vote=lambda labels: labels.median(dim=1).values),
        ),
        Mistake(
            "a picture's number in place of its label",
            "topk gives the numbers of the nearest pictures. Look up their labels: a[nearest].",
            _NEIGHBOURS,
            lambda A, a, B, k: _votes(_cosines(A, B).topk(k, dim=1).indices),
        ),
        Mistake(
            "a vote count in place of a label",
            "You return how many voted. Wanted is for which label: argmax, not max.",
            _NEIGHBOURS,
            _neighbours(vote=lambda labels: F.one_hot(labels).sum(dim=1).amax(dim=1)),
        ),
    ),
)


def check_knn(fn: Callable[..., Tensor]) -> bool:
    """Check ``fn(A, a, B, k)``: known features (n, D), their labels (n,), asked features (m, D) -> labels (m,)."""
    return check(KNN, fn)


# ---- Weights for a new task --------------------------------------------------------------------------------------

State = dict[str, Tensor]


def _state(grid: Grid, D: int, classes: int) -> State:
    shapes = {"embed.cls_token": (1, 1, D), "embed.position": (1, 1 + grid[0] * grid[1], D),
              "embed.patches.proj.weight": (D, 3, 2, 2), "blocks.0.norm1.weight": (D,), "norm.weight": (D,),
              "head.weight": (classes, D), "head.bias": (classes,)}  # fmt: skip
    return {name: normal(*shape, seed=seed) for seed, (name, shape) in enumerate(shapes.items())}


def _task_cases() -> list[Case]:
    asked = [(4, 3, 5, (2, 3), (2, 3)), (6, 5, 2, (2, 3), (4, 5)), (5, 2, 7, (3, 2), (3, 6)), (4, 3, 3, (6, 4), (3, 2))]
    return [
        Case(f"D={D}, {old} classes to {new}, grid {a} to {b}", (_state(a, D, old), new, a, b))
        for D, old, new, a, b in asked
    ]


def _adapted(work: Any, case: Case) -> Result:
    state, *others = case.args
    given = dict(state)
    found = work(given, *others)
    if not isinstance(found, dict):
        raise Fault(f"returned {type(found).__name__}, expected a dictionary of names and tensors")
    observed: Result = {"names": sorted(found)}
    if {"head.weight", "head.bias"} <= found.keys():
        weight, bias = (found[name].detach() for name in ("head.weight", "head.bias"))
        observed["shapes of the head"] = [list(weight.shape), list(bias.shape)]
        # Random numbers are other ones in every right or wrong way to draw them, so they are counted.
        observed["numbers in head.weight that aren't zero"] = int(weight.count_nonzero())
        observed["numbers in head.bias that aren't zero"] = int(bias.count_nonzero())
        observed["numbers of the old head in the new"] = int(torch.isin(weight, state["head.weight"]).sum())
    rest = [name for name in sorted(found) if not name.startswith("head.")]
    observed |= {name: found[name].detach() for name in rest}
    same = given.keys() == state.keys() and all(given[name] is state[name] for name in state)
    return observed | {"is the given dictionary as it was": same}


Position = Callable[[Tensor, Grid, Grid], Tensor]


def _task(
    position: Position = resize_position_embedding,
    head: Callable[[State, int, int], State] = lambda state, K, D: {
        "head.weight": torch.zeros(K, D),
        "head.bias": torch.zeros(K),
    },
) -> Callable[..., State]:
    def for_a_new_task(state: State, num_classes: int, old_grid: Grid, new_grid: Grid) -> State:
        new = {name: tensor for name, tensor in state.items() if not name.startswith("head.")}
        new["embed.position"] = position(state["embed.position"], old_grid, new_grid)
        return new | head(state, num_classes, state["norm.weight"].shape[0])

    return for_a_new_task


def _linear(weight: float, bias: float) -> Callable[[State, int, int], State]:
    """A random head; 0 makes a part of it zero."""
    return lambda state, K, D: {"head.weight": weight * normal(K, D), "head.bias": bias * normal(K)}


def _as_a_line(along: int) -> Position:
    """Tokens from number ``along`` on resized as a line: 0 takes the class token along, 1 doesn't."""

    def resized(position: Tensor, old: Grid, new: Grid) -> Tensor:
        line = position[:, along:].transpose(1, 2)  # (1, D, N)
        line = F.interpolate(line, new[0] * new[1] + 1 - along, mode="linear")
        return torch.cat([position[:, :along], line.transpose(1, 2)], dim=1)

    return resized


def _recipe(recipe: ResizeRecipe) -> Position:
    return lambda position, old, new: resize_position_embedding(position, old, new, recipe=recipe)


def _other_mode(**how: Any) -> Position:
    def resized(position: Tensor, old: Grid, new: Grid) -> Tensor:
        maps = position[:, 1:].transpose(1, 2).unflatten(2, old)  # (1, D, rows, columns)
        maps = F.interpolate(maps, new, **how)
        return torch.cat([position[:, :1], maps.flatten(2).transpose(1, 2)], dim=1)

    return resized


def _in_place(state: State, num_classes: int, old_grid: Grid, new_grid: Grid) -> State:
    state.update(_task()(state, num_classes, old_grid, new_grid))
    return state


FOR_A_NEW_TASK = Exercise(
    name="for_a_new_task",
    lesson="10",
    right=_task(),
    cases=_task_cases,
    observe=_adapted,
    mistakes=(
        Mistake(
            "a random head",
            "A random head sends noise into the encoder from the first step on. The new head is zero, weights and "
            "bias: torch.zeros.",
            _HEAD,
            _task(head=_linear(1, 1)),
        ),
        Mistake(
            "a head with random weights and a bias of zero",
            "The weights must be zero as well, or they send noise into the encoder from the first step on.",
            _HEAD,
            _task(head=_linear(1, 0)),
        ),
        Mistake(
            "a bias that stayed random",
            "The bias must be zero as well, or some classes have a lead before anything was learned.",
            _HEAD,
            _task(head=_linear(0, 1)),
        ),
        Mistake(
            "the old head",
            "Its rows are the old task's classes. For the new task it is replaced by zeros, (K, D) and (K,).",
            _HEAD,
            _task(head=lambda state, K, D: {name: state[name] for name in ("head.weight", "head.bias")}),
        ),
        Mistake(
            "rows of the old head",
            "You kept the old head's first rows for the new classes. Class 0 of the old task is not class 0 of the new "
            "one: begin with zeros.",
            _HEAD,
            _task(
                head=lambda state, K, D: {
                    "head.weight": state["head.weight"].repeat(4, 1)[:K],
                    "head.bias": state["head.bias"].repeat(4)[:K],
                }
            ),
        ),
        Mistake(
            "a head lying on its side",
            "torch keeps a linear layer's weight as (out, in): (K, D).",
            _HEAD,
            _task(head=lambda state, K, D: {"head.weight": torch.zeros(D, K), "head.bias": torch.zeros(K)}),
        ),
        Mistake(
            "no head at all",
            "You took the old head out and put no new one in: add head.weight (K, D) and head.bias (K,), of zeros.",
            _HEAD,
            _task(head=lambda state, K, D: {}),
        ),
        Mistake(
            "positions of the old grid",
            "The new pictures have another number of patches, so the table of positions must have as many rows, and "
            "one for the class token.",
            _RESOLUTION,
            _task(lambda position, old, new: position),
        ),
        Mistake(
            "a class token that was resized along",
            "You stretched all rows of the table. The first belongs to the class token, which has no place in the "
            "picture: take it off, resize the others, and put it back in front.",
            _RESOLUTION,
            _task(_as_a_line(0)),
        ),
        Mistake(
            "positions resized as a line",
            "You stretched the list of positions. They belong to places in two dimensions: make a grid (rows, columns) "
            "of them, and resize that.",
            "Positions stretched as a list",
            _task(_as_a_line(1)),
        ),
        Mistake(
            "rows and columns of the grid exchanged",
            "The positions go row by row, so the table unfolds to (rows, columns), in this order. On a square nobody "
            "notices.",
            _RESOLUTION,
            _task(lambda position, old, new: resize_position_embedding(position, old[::-1], new[::-1])),
        ),
        Mistake(
            "align_corners",
            "You pinned the outermost positions to the corners, as torchvision does. Asked was timm's recipe: bicubic, "
            "with antialias=True and without align_corners.",
            _RESOLUTION,
            _task(_recipe("torchvision")),
        ),
        Mistake(
            "no averaging where the grid shrinks",
            "Towards a smaller grid, bicubic alone skips positions. timm's recipe has antialias=True.",
            _RESOLUTION,
            _task(_recipe("huggingface")),
        ),
        Mistake(
            "bilinear in place of bicubic",
            "Asked was timm's recipe: bicubic, with antialias=True.",
            _RESOLUTION,
            _task(_other_mode(mode="bilinear", antialias=True)),
        ),
        Mistake(
            "positions taken from the nearest",
            "Each new place got a copy of an old position, so neighbours are equal. Interpolate: bicubic, with "
            "antialias=True.",
            _RESOLUTION,
            _task(_other_mode(mode="nearest")),
        ),
        Mistake(
            "positions begun anew",
            "You put zeros where the model had learned something. Resize the old positions.",
            _RESOLUTION,
            _task(lambda position, old, new: position.new_zeros(1, 1 + new[0] * new[1], position.shape[2])),
        ),
        Mistake(
            "a dictionary that was changed in place",
            "The result is right, but the caller's dictionary was changed: make a new one, dict(state).",
            _HEAD,
            _in_place,
        ),
    ),
)


def check_for_a_new_task(fn: Callable[..., State]) -> bool:
    """Check ``fn(state, num_classes, old_grid, new_grid)``: a state dict -> one with K classes and another grid."""
    return check(FOR_A_NEW_TASK, fn)


# ---- A rate for each layer ---------------------------------------------------------------------------------------

Groups = list[dict[str, Any]]


def _rate_cases() -> list[Case]:
    asked = [(1, 8.0, 0.5), (3, 1.0, 0.75), (12, 2.0, 0.9)]
    return [Case(f"L={L}, rate={rate:g}, decay={decay:g}", (_model(L, 4), rate, decay)) for L, rate, decay in asked]


def _rates(work: Any, case: Case) -> Result:
    groups = work(*case.args)
    try:
        pairs = [(p, group["lr"]) for group in groups for p in _listed(group["params"])]
    except (TypeError, KeyError, IndexError) as error:
        raise Fault(
            'expected a list of dictionaries {"params": [...], "lr": ...}, as an optimiser takes them'
        ) from error
    names = {id(p): name for name, p in case.args[0].named_parameters()}
    found: dict[str, float] = {}
    for parameter, rate in pairs:
        name = names.get(id(parameter), "")
        if not name or name in found:
            raise Fault(f"{name} is in two groups" if name else "a group holds something that isn't of this model")
        found[name] = float(rate)
    return {f"rate of {name}": found.get(name, 0.0) for name in names.values()}  # in no group: never trained


def _listed(params: Any) -> list[Any]:
    return [params] if isinstance(params, Tensor) else [p[1] if isinstance(p, tuple) else p for p in params]


def _steps_down(name: str, depth: int) -> int | None:
    """How many layers below the head; None: in no group."""
    if found := re.match(r"blocks\.(\d+)\.", name):
        return depth - int(found[1])
    return depth + 1 if name.startswith("embed.") else 0


def _layer_rates(
    steps: Callable[[str, int], int | None] = _steps_down,
    shrink: Callable[[float, int], float] = lambda decay, steps: decay**steps,
) -> Callable[..., Groups]:
    def layer_rates(model: ViT, rate: float, decay: float) -> Groups:
        def groups() -> Iterator[dict[str, Any]]:
            for name, parameter in model.named_parameters():
                down = steps(name, len(model.blocks))
                if down is not None:
                    yield {"params": [parameter], "lr": rate * shrink(decay, down)}

        return list(groups())

    return layer_rates


def _otherwise(change: Callable[[str, int, int], int | None]) -> Callable[[str, int], int | None]:
    """Other steps: ``change`` gets the name, the right steps and the depth."""
    return lambda name, depth: change(name, _steps_down(name, depth) or 0, depth)


def _first_digit(name: str, depth: int) -> int | None:
    return _steps_down(re.sub(r"^(blocks\.\d)\d+", r"\1", name), depth)


LAYER_RATES = Exercise(
    name="layer_rates",
    lesson="10",
    right=_layer_rates(),
    cases=_rate_cases,
    observe=_rates,
    mistakes=(
        Mistake(
            "rates the wrong way round",
            "Your embedding moves fastest and your head slowest. What the new task shares with the old lies below: the "
            "head gets the whole rate, and each layer towards the pixels less.",
            _RATE,
            _layer_rates(_otherwise(lambda name, down, depth: depth + 1 - down)),
        ),
        Mistake(
            "blocks counted from below",
            "Head and embedding are right, but block 0 is the one next to the pixels: it is multiplied by the decay L "
            "times, the last block once.",
            _RATE,
            _layer_rates(_otherwise(lambda name, down, depth: depth + 1 - down if 0 < down <= depth else down)),
        ),
        Mistake(
            "the last block at the head's rate",
            "The last block already lies one layer below the head: its rate is multiplied by the decay once, and all "
            "below once more than yours.",
            _RATE,
            _layer_rates(_otherwise(lambda name, down, depth: max(down - 1, 0))),
        ),
        Mistake(
            "an embedding at the first block's rate",
            "The embedding is a layer of its own, one below block 0: multiply once more.",
            _RATE,
            _layer_rates(_otherwise(lambda name, down, depth: min(down, depth))),
        ),
        Mistake(
            "a last norm at the embedding's rate",
            "You give what is neither a block nor the head the lowest rate. The last norm stands behind all blocks: it "
            "goes with the head.",
            _RATE,
            _layer_rates(_otherwise(lambda name, down, depth: depth + 1 if name.startswith("norm.") else down)),
        ),
        Mistake(
            "a last norm in no group",
            "An optimiser trains what it is given: the last norm is in no group, so it stays as it is. It goes with "
            "the head.",
            _RATE,
            _layer_rates(_otherwise(lambda name, down, depth: None if name.startswith("norm.") else down)),
        ),
        Mistake(
            "an embedding in no group",
            "An optimiser trains what it is given: the embedding (patches, class token, positions) is in no group. "
            "It is the lowest layer.",
            _RATE,
            _layer_rates(_otherwise(lambda name, down, depth: None if name.startswith("embed.") else down)),
        ),
        Mistake(
            "a head that is one layer too low",
            "The head gets the whole rate. You multiplied by the decay once more than that, everywhere.",
            _RATE,
            _layer_rates(_otherwise(lambda name, down, depth: down + 1)),
        ),
        Mistake(
            "one rate for the whole encoder",
            "The decay is multiplied in once for each layer, so a block far below the head has a smaller rate than one "
            "near it.",
            _RATE,
            _layer_rates(_otherwise(lambda name, down, depth: min(down, 1))),
        ),
        Mistake(
            "the same rate everywhere",
            "Every layer has the head's rate. Multiply by the decay once for each layer between.",
            _RATE,
            _layer_rates(lambda name, depth: 0),
        ),
        Mistake(
            "a product in place of a power",
            "You multiply by the decay times the number of layers. It is the decay to the power of that number.",
            _RATE,
            _layer_rates(shrink=lambda decay, steps: decay * steps if steps else 1.0),
        ),
        Mistake(
            "a division by the decay",
            "The decay is less than 1, so dividing by it makes rates grow towards the pixels. Multiply.",
            _RATE,
            _layer_rates(shrink=lambda decay, steps: decay**-steps),
        ),
        Mistake(
            "block 10 taken for block 1",
            "You read one digit of the block's number. Split the name at the dots, or count with enumerate.",
            _RATE,
            _layer_rates(_first_digit),
        ),
    ),
)


def check_layer_rates(fn: Callable[..., Groups]) -> bool:
    """Check ``fn(model, rate, decay)``: a ViT -> groups for an optimiser, ``[{"params": [...], "lr": ...}, ...]``."""
    return check(LAYER_RATES, fn)


# ---- The challenge -----------------------------------------------------------------------------------------------


def _tune_cases() -> list[Case]:
    asked = [(4, 2, 3, 0.1, 0.0), (6, 4, 5, 0.05, 0.5), (5, 3, 4, 0.02, 2.0)]
    return [
        Case(
            f"{B} images, {K} classes, {steps} steps of rate {rate:g}, decay {decay:g}",
            (_model(1, 6, K), normal(B, 1, 4, 6, seed=B), torch.arange(B) % K, rate, decay, steps),
        )
        for B, K, steps, rate, decay in asked
    ]


def _tuned(work: Any, case: Case) -> Result:
    model: ViT = case.args[0]
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    work(*case.args)
    after = {name: p.detach() for name, p in model.named_parameters()}
    if after.keys() != before.keys():
        raise Fault("the model's parameters have other names than before: train the head that it has")
    moved = [(after[name] - p).abs().max() for name, p in before.items() if not name.startswith("head.")]
    return {
        "largest change of the encoder": float(torch.stack(moved).max()),
        "head.weight": after["head.weight"],
        "head.bias": after["head.bias"],
    }


def _tune(
    trained: Callable[[str], bool] = lambda name: name.startswith("head."),
    held: Callable[[str], bool] = lambda name: False,
    training: bool = False,
    optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.AdamW,
    loss: Callable[[Tensor, Tensor], Tensor] = F.cross_entropy,
    clear: bool = True,
    decays: bool = True,
) -> Callable[..., None]:
    """Tuning in which other parameters go to the optimiser; ``held`` are those whose gradients are set to zero."""

    def tune_head(model: ViT, images: Tensor, labels: Tensor, rate: float, decay: float, steps: int) -> None:
        named = [(name, p) for name, p in model.named_parameters() if trained(name)]
        settings = {"weight_decay": decay} if decays else {}
        adam = optimizer([p for _, p in named], lr=rate, **settings)
        model.train(training)
        model.zero_grad()
        for _ in range(steps):
            if clear:
                model.zero_grad()
            loss(model(images), labels).backward()
            for _name, p in named:
                if held(_name) and p.grad is not None:
                    p.grad.zero_()
            adam.step()

    return tune_head


TUNE_HEAD = Exercise(
    name="tune_head",
    lesson="10",
    right=_tune(),
    cases=_tune_cases,
    observe=_tuned,
    tolerance=1e-4,
    mistakes=(
        Mistake(
            "an encoder that is trained too",
            "Your optimiser got all of the model's parameters. Give it the head's alone, or switch the others' "
            "requires_grad off before you compute anything.",
            _FROZEN,
            _tune(lambda name: True),
        ),
        Mistake(
            "an encoder that decays",
            "Its gradients are zero, but the optimiser has its weights, and AdamW pulls every weight with a gradient "
            "towards zero, even a gradient of zeros. Give it the head's parameters alone.",
            _FROZEN,
            _tune(lambda name: True, held=lambda name: not name.startswith("head.")),
        ),
        Mistake(
            "a last norm that is trained too",
            "You froze embedding and blocks. The last norm belongs to the encoder as well: only the head is trained.",
            _FROZEN,
            _tune(lambda name: name.startswith(("norm.", "head."))),
        ),
        Mistake(
            "dropout left on",
            "The model came in training mode, so at every step the features are other ones. A frozen encoder runs in "
            "eval mode: model.eval().",
            _FROZEN,
            _tune(training=True),
        ),
        Mistake(
            "an encoder that is trained too, with dropout on",
            "Two things: your optimiser got all of the model's parameters, and the model is in training mode. Give it "
            "the head's alone, and call model.eval().",
            _FROZEN,
            _tune(lambda name: True, training=True),
        ),
        Mistake(
            "gradients that pile up",
            "backward() adds to the gradients that are there. Clear them before every step: optimizer.zero_grad().",
            _TUNING,
            _tune(clear=False),
        ),
        Mistake(
            "Adam for AdamW",
            "Adam adds the decay to the gradient and then divides it away again. AdamW takes it off the weights.",
            _TUNING,
            _tune(optimizer=torch.optim.Adam),
        ),
        Mistake(
            "the optimiser's own decay",
            "You left weight_decay out, and AdamW's default is 0.01. Pass the one that is asked for.",
            _TUNING,
            _tune(decays=False),
        ),
        Mistake(
            "a softmax before the cross-entropy",
            "cross_entropy takes logits, and has the softmax in it. With a second one the loss can hardly fall.",
            _HEAD,
            _tune(loss=lambda logits, labels: F.cross_entropy(logits.softmax(dim=1), labels)),
        ),
    ),
)


def check_tune_head(fn: Callable[..., object]) -> bool:
    """Check ``fn(model, images, labels, rate, decay, steps)``: trains the head with AdamW, in place, nothing else."""
    return check(TUNE_HEAD, fn)


EXERCISES = (FINE_TUNING_NUMBERS, FROZEN_FEATURES, KNN, FOR_A_NEW_TASK, LAYER_RATES, TUNE_HEAD)
