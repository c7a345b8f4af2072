"""Checks of lesson 10: frozen features, neighbours, weights for a new task, rates, and what stays frozen."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vit_tutorial.checks.engine.exercise import Case, Exercise, Mistake, Observation, State
from vit_tutorial.checks.engine.functions import changed_argument, copy_arguments, entries, normal, tensors
from vit_tutorial.checks.engine.layers import random_weights
from vit_tutorial.checks.engine.models import by_parameter, call_with_model
from vit_tutorial.checks.engine.questions import Question, Slip, pencil
from vit_tutorial.embeddings import Grid, resize_position_embedding
from vit_tutorial.vit import ViT, ViTConfig

_FROZEN = "Frozen features"
_NEIGHBOURS = "k nearest neighbours"
_HEAD = "The new head starts at zero"
_TUNING = "The rate decides"
_RESOLUTION = "Higher resolution."

# ---- With a pencil -----------------------------------------------------------------------------------------------

FINE_TUNING_NUMBERS = pencil(
    "fine_tuning_numbers",
    lesson="10",
    points=4,
    tolerance=0.002,  # 2.48 is near enough to ln 12, 2.49 and 2.5 are not
    questions={
        "cosines": Question(
            [0.8, 1.0, 0.9487],
            "The dot product with (0, 2), divided by both lengths, for each of the three.",
        ),
        "standardised": Question(
            [2, 4],
            "The probe was trained on numbers minus the training images' mean, divided by their standard deviation. "
            "Do the same to the test images' two numbers.",
        ),
        "first loss": Question(
            2.4849, "A head of zeros gives 12 equal logits: minus the natural logarithm of one of 12 probabilities."
        ),
        "row of the gradient": Question(
            [-2.25, 0.75],
            "(p - target) z: p is the same for all four classes, and the target is 1.",
            _HEAD,
            {
                (2.25, -0.75): Slip(
                    "a gradient with the wrong sign",
                    "It is p - target, so 1/4 - 1 for the true class: you step along minus the gradient.",
                )
            },
        ),
        "probe": Question(325, "A linear layer from D numbers to the classes, with a bias for each class."),
        "positions": Question(145, "Count the patches of the new grid; the class token has a position as well."),
        "rate": Question(
            0.15,
            "The warm-up grows evenly from peak / 10 at step 0 to the peak at step 9.",
            _TUNING,
            {
                0.12: Slip(
                    "a warm-up that begins at zero",
                    "Steps are counted from 0, and the first doesn't have a rate of zero: it is (step + 1) / warm-up.",
                )
            },
        ),
    },
)


# ---- Frozen features ---------------------------------------------------------------------------------------------


def _model(depth: int = 2, dim: int = 8, classes: int = 3) -> ViT:
    """A tiny model with random numbers everywhere, in training mode."""
    model = ViT(ViTConfig((4, 6), 2, 1, classes, dim, depth, num_heads=2, mlp_dim=6, dropout=0.3)).train()
    model.load_state_dict(random_weights(model))
    return model


def _features(submission: Any, case: Case) -> Observation:
    observed = call_with_model(submission, case)
    graph = any(part.requires_grad for part in tensors(observed.result))
    words = "a graph: compute them under torch.no_grad()" if graph else "no graph"
    observed.values["what the features carry along"] = words
    return observed


@torch.no_grad()
def _frozen(
    model: ViT,
    images: Tensor,
    take: Callable[[ViT, Tensor], Tensor] = lambda model, x: model.features(x)[:, 0],
    training: bool = False,
) -> Tensor:
    return take(model.train(training), images)


FROZEN_FEATURES = Exercise(
    name="frozen_features",
    lesson="10",
    points=3,
    right=_frozen,
    cases=lambda: [
        Case(f"B={B}, D={D}, K={K}", (_model(L, D, K), normal(B, 1, 4, 6)))
        for B, L, D, K in [(3, 2, 4, 5), (1, 3, 6, 6)]
    ],
    observe=_features,
    mistakes=(
        Mistake(
            name="the class token before the last norm",
            says="The head that the encoder was trained with read the token after model.norm; before it, scales "
            "differ from layer to layer. model.features has the norm in it.",
            reread=_FROZEN,
            wrong=functools.partial(_frozen, take=lambda model, x: model.blocks(model.embed(x))[:, 0]),
        ),
        Mistake(
            name="a mean over all tokens",
            says="This model was trained to put what it knows into the class token. Take token 0.",
            reread=_FROZEN,
            wrong=functools.partial(_frozen, take=lambda model, x: model.features(x).mean(dim=1)),
        ),
        Mistake(
            name="a missing model.eval()",
            says="The model arrives in training mode, so dropout is on.",
            reread=_FROZEN,
            wrong=functools.partial(_frozen, training=True),
        ),
    ),
)


# ---- Nearest neighbours ------------------------------------------------------------------------------------------


def _cosines(A: Tensor, B: Tensor) -> Tensor:
    return F.normalize(B, dim=1) @ F.normalize(A, dim=1).T  # (m, n)


def _vote(a: Tensor, near: Tensor) -> Tensor:
    return F.one_hot(a[near]).sum(dim=1).argmax(dim=1)


def _knn_cases() -> list[Case]:
    cases = []
    for n, m, D, k in [(9, 20, 3, 1), (10, 30, 6, 5), (25, 50, 5, 7)]:
        A, B = normal(n, 1, seed=k).exp() * normal(n, D, seed=n), normal(m, 1).exp() * normal(m, D, seed=D)
        labels = torch.randint(3, (n,), generator=torch.Generator().manual_seed(n))
        votes = F.one_hot(labels[_cosines(A, B).topk(k, dim=1).indices], 3).sum(dim=1).topk(2, dim=1).values
        B = B[votes[:, 0] > votes[:, 1]]  # of two labels that are tied either is right
        cases.append(Case(f"{n} known, {len(B)} asked, D={D}, k={k}", (A, 4 * labels, B, k)))
    return cases


KNN = Exercise(
    name="knn",
    lesson="10",
    points=3,
    right=lambda A, a, B, k: _vote(a, _cosines(A, B).topk(k, dim=1).indices),
    cases=_knn_cases,
    mistakes=(
        Mistake(
            name="dot products in place of cosines",
            says="A dot product grows with the lengths of both vectors: divide by them.",
            reread=_NEIGHBOURS,
            wrong=lambda A, a, B, k: _vote(a, (B @ A.T).topk(k, dim=1).indices),
        ),
        Mistake(
            name="the label of the nearest alone",
            says="All k neighbours vote.",
            reread=_NEIGHBOURS,
            wrong=lambda A, a, B, k: a[_cosines(A, B).argmax(dim=1)],
        ),
        Mistake(
            name="Euclidean distances",
            says="Here it is the angle that counts, not the length.",
            reread=_NEIGHBOURS,
            wrong=lambda A, a, B, k: _vote(a, torch.cdist(B, A).topk(k, dim=1, largest=False).indices),
        ),
    ),
)


# ---- Weights for a new task --------------------------------------------------------------------------------------


def _state(grid: Grid, D: int, classes: int) -> State:
    shapes = {"embed.cls_token": (1, 1, D), "embed.position": (1, 1 + grid[0] * grid[1], D),
              "embed.patches.proj.weight": (D, 3, 2, 2), "blocks.0.norm1.weight": (D,),
              "blocks.0.attention.proj.bias": (D,), "norm.weight": (D,), "head.weight": (classes, D),
              "head.bias": (classes,)}  # fmt: skip
    state = {name: normal(*shape, seed=seed) for seed, (name, shape) in enumerate(shapes.items())}
    return state | {"norm.weight": state["norm.weight"].double()}  # whose dtype stays as it is


def _adapted(submission: Any, case: Case) -> Observation:
    arguments, state = copy_arguments(case.args), case.args[0]
    result = entries(submission(*arguments), state)
    others = [name for name in state if not name.startswith(("head.", "embed.position"))]
    same_dtype = ", ".join(name for name in others if result[name].dtype == state[name].dtype)
    changed = changed_argument(case.args, arguments)
    return Observation(result | {"what keeps its dtype": same_dtype}, changed_argument=changed)


def _task(state: State, num_classes: int, old_grid: Grid, new_grid: Grid) -> State:
    K, D = num_classes, state["norm.weight"].shape[0]
    position = resize_position_embedding(state["embed.position"], old_grid, new_grid)
    return state | {"embed.position": position, "head.weight": torch.zeros(K, D), "head.bias": torch.zeros(K)}


FOR_A_NEW_TASK = Exercise(
    name="for_a_new_task",
    lesson="10",
    points=3,
    right=_task,
    cases=lambda: [
        Case(f"D={D}, {old} classes to {new}, grid {a} to {b}", (_state(a, D, old), new, a, b))
        for D, old, new, a, b in [
            (4, 3, 5, (2, 3), (2, 3)),
            (6, 5, 2, (2, 3), (4, 5)),
            (5, 2, 7, (3, 2), (3, 6)),
            (3, 2, 4, (2, 6), (4, 3)),
        ]
    ],
    observe=_adapted,
    mistakes=(
        Mistake(
            name="positions of the old grid",
            says="Another grid has other positions: resize_position_embedding(position, old_grid, new_grid).",
            reread=_RESOLUTION,
            wrong=lambda state, num_classes, old, new: _task(state, num_classes, old, old),
        ),
    ),
)


# ---- A rate for each layer ---------------------------------------------------------------------------------------


def _rates(submission: Any, case: Case) -> Observation:
    """The rate of each parameter."""
    observed = call_with_model(submission, case)
    observed.values |= by_parameter(observed.values.pop("result"), case.args[0], "lr", default=None)
    return observed


def _layer_rates(model: ViT, rate: float, decay: float, above: int = 0) -> list[dict[str, Any]]:
    """Rates by how many layers a part lies below the head, or below a layer that is ``above`` lower."""
    L = len(model.blocks)
    parts = [(model.head, 0), (model.norm, 0), *((block, L - i) for i, block in enumerate(model.blocks))]
    return [
        {"params": list(part.parameters()), "lr": rate * decay ** max(down - above, 0)}
        for part, down in [*parts, (model.embed, L + 1)]
    ]


LAYER_RATES = Exercise(
    name="layer_rates",
    lesson="10",
    points=2,
    right=_layer_rates,
    cases=lambda: [
        Case(f"L={L}, rate={rate:g}, decay={decay:g}", (_model(L, 4), rate, decay))
        for L, rate, decay in [(2, 8.0, 0.5), (3, 0.5, 0.75), (12, 2.0, 0.9)]
    ],
    observe=_rates,
    mistakes=(
        Mistake(
            name="a last block at the full rate",
            says="The head has the full rate, and the last block one decay less: block i has L - i decays.",
            reread=_TUNING,
            wrong=functools.partial(_layer_rates, above=1),
        ),
    ),
    tolerance=3e-7,  # rates are small numbers: one that was rounded is seen
)


# ---- The challenge -----------------------------------------------------------------------------------------------


def _tune_cases() -> list[Case]:
    cases = []
    for B, K, rate, decay, steps in [(4, 3, 0.1, 0.0, 1), (6, 4, 0.05, 0.5, 5), (5, 3, 0.1, 0.1, 4)]:
        arguments = (_model(1, 6, K), normal(B, 1, 4, 6), torch.arange(B) % K, rate, decay, steps)
        cases.append(Case(f"{B} images, {K} classes, {steps} steps", arguments))
    # Adam divides by the gradient's size, which hides a sum for a mean, until gradients are as small as its eps.
    faint = cases[-1].args[0].norm
    faint.get_parameter("weight").data.mul_(3e-8)
    faint.get_parameter("bias").data.zero_()
    return cases


def _tuned(submission: Any, case: Case) -> Observation:
    model: ViT = case.args[0]
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    observed = call_with_model(submission, case, trained=True)
    changed = [name for name, p in model.named_parameters() if not torch.equal(before[name], p)]
    del observed.values["result"]  # it trains in place
    trainable = all(p.requires_grad for p in model.head.parameters())
    observed.values["what has changed"] = ", ".join(changed[:4])
    observed.values["the head afterwards"] = "trainable" if trainable else "frozen"
    observed.values |= {f"head.{name}": p.detach() for name, p in model.head.named_parameters()}
    return observed


def _tune(
    training: bool = False,
    loss: Callable[[Tensor, Tensor], Tensor] = F.cross_entropy,
    trained: Callable[[ViT], nn.Module] = lambda model: model.head,
) -> Callable[..., None]:
    """Tuning in training mode, with another loss, or of other parts."""

    def tune_head(model: ViT, images: Tensor, labels: Tensor, rate: float, decay: float, steps: int) -> None:
        adam = torch.optim.AdamW(trained(model).parameters(), lr=rate, weight_decay=decay)
        model.train(training)
        for _ in range(steps):
            model.zero_grad()
            loss(model(images), labels).backward()
            adam.step()

    return tune_head


def _another_head(model: ViT, *others: Any) -> None:
    """The optimiser holds the head that the model had."""
    old = model.head
    model.head = copy.deepcopy(old)
    for parameter in model.head.parameters():
        nn.init.zeros_(parameter)
    _tune(trained=lambda model: old)(model, *others)


TUNE_HEAD = Exercise(
    name="tune_head",
    lesson="10",
    points=2,
    right=_tune(),
    cases=_tune_cases,
    observe=_tuned,
    tolerance=1e-4,
    mistakes=(
        Mistake(
            name="a new head that the optimiser doesn't know",
            says="The model already has its head of zeros: keep it, and give its parameters to the optimiser.",
            reread="The optimiser was made before the head.",
            wrong=_another_head,
        ),
        Mistake(
            name="dropout left on",
            says="The model arrives in training mode, so the features change at every step. A frozen encoder runs in "
            "eval mode: model.eval().",
            reread=_FROZEN,
            wrong=_tune(training=True),
        ),
        Mistake(
            name="a training of the whole model",
            says="The encoder is frozen: the optimiser gets model.head.parameters() alone.",
            reread=_FROZEN,
            wrong=_tune(trained=lambda model: model),
        ),
        Mistake(
            name="a softmax before the cross-entropy",
            says="cross_entropy takes logits, and contains the softmax. With a second one the loss can hardly fall.",
            reread=_HEAD,
            wrong=_tune(loss=lambda logits, labels: F.cross_entropy(logits.softmax(dim=1), labels)),
        ),
    ),
)
