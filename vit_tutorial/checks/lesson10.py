"""Checks of lesson 10: frozen features, neighbours, weights for a new task, rates, and what stays frozen."""

from __future__ import annotations

import copy
import functools
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vit_tutorial.checks.engine import (
    Case,
    Exercise,
    Fault,
    Mistake,
    ModelSnapshot,
    Observation,
    Question,
    Row,
    by_parameter,
    call,
    changed_argument,
    copy_arguments,
    describe,
    normal,
    pencil,
)
from vit_tutorial.embeddings import Grid, resize_position_embedding
from vit_tutorial.vit import ViT, ViTConfig

_FROZEN = "1 · Frozen features"
_NEIGHBOURS = "k nearest neighbours"
_PROBE = "linear probe"
_HEAD = "2 · The new head starts at zero"
_TUNING = "3 · The rate decides"
_RESOLUTION = "5 · Higher resolution"

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
            _NEIGHBOURS,
            {
                (8, 2, 6): "dot products in place of cosines. A dot product grows with the lengths of both vectors. "
                "Divide by both lengths."
            },
        ),
        "standardised": Question(
            [2, 4],
            "The probe was trained on numbers less the training images' mean, divided by their standard deviation. "
            "Do the same to the test images' two numbers.",
            _PROBE,
            {
                (-1, 1): "one set of pictures by itself. -1 and 1 come out for the test pictures less their own mean, "
                "and for the training pictures less theirs. The probe needs the test pictures less the training mean."
            },
        ),
        "first loss": Question(
            2.4849,
            "A head of zeros gives 12 equal logits: minus the natural logarithm of one of 12 probabilities.",
            _HEAD,
            {math.log2(12): "a logarithm to another base. Cross-entropy is in nats: the natural logarithm, ln 12."},
        ),
        "row of the gradient": Question(
            [-2.25, 0.75],
            "(p - target) z: p is the same for all four classes, and the target is 1.",
            _HEAD,
            {
                (2.25, -0.75): "a gradient with the wrong sign. It is p - target, so 1/4 - 1 for the true class: "
                "minus the gradient is the direction in which you go."
            },
        ),
        "probe": Question(325, "A linear layer from D numbers to the classes, with a bias for each class."),
        "positions": Question(
            145,
            "Count the patches of the new grid; the class token has a position, too.",
            _RESOLUTION,
            {
                144: "the class token's position forgotten. 12 · 12 = 144 are the patches. The class token has a "
                "position as well, the one that isn't resized."
            },
        ),
        "rate": Question(
            0.15,
            "The warm-up grows evenly from peak / 10 at step 0 to the peak at step 9.",
            _TUNING,
            {
                0.12: "a warm-up that begins at zero. Steps are counted from 0, and the first doesn't have a rate of "
                "zero: it is (step + 1) / warm-up."
            },
        ),
    },
)


# ---- Frozen features ---------------------------------------------------------------------------------------------


_DROPPED = 0.3


def _model(depth: int = 2, dim: int = 8, classes: int = 3, dropout: float = _DROPPED, **others: Any) -> ViT:
    """A tiny model with random numbers everywhere, in training mode."""
    config = ViTConfig((4, 6), 2, 1, classes, dim, depth, num_heads=2, mlp_dim=6, dropout=dropout, **others)
    model = ViT(config).train()
    with torch.no_grad():
        for index, parameter in enumerate(model.parameters()):
            parameter.copy_(0.5 * normal(*parameter.shape, seed=index))
    return model


def _feature_cases() -> list[Case]:
    sizes = [(1, 1, 8, 3), (3, 2, 4, 5), (2, 3, 6, 6)]
    path = _model(dropout=0.0, drop_path=0.9)
    deep = _model(13, 4, 3, norm_eps=0.1)
    return [
        *(
            Case(f"B={B}, D={D}, K={K}, dropout 0.3, model in training mode", (_model(L, D, K), normal(B, 1, 4, 6)))
            for B, L, D, K in sizes
        ),
        Case("drop_path 0.9 alone, model in training mode", (path, normal(4, 1, 4, 6))),
        Case("13 blocks, norm_eps 0.1, 9 images", (deep, normal(9, 1, 4, 6))),
    ]


def _features(work: Any, case: Case) -> Observation:
    model, images = case.args
    lent, given = ModelSnapshot(model), images.clone()
    found = work(model, given)
    graph = isinstance(found, Tensor) and found.requires_grad
    observed = {
        "result": found,
        "what the features carry along": ("a graph: compute them under torch.no_grad()" if graph else "no graph"),
        "the model afterwards": lent.afterwards(),
    }
    return Observation(observed, changed_argument=changed_argument([images], [given], first=2))


def _frozen(
    take: Callable[[ViT, Tensor], Tensor] = lambda model, x: model.features(x)[:, 0],
) -> Callable[[ViT, Tensor], Tensor]:
    @torch.no_grad()
    def frozen_features(model: ViT, images: Tensor) -> Tensor:
        return take(model.eval(), images)

    return frozen_features


@torch.no_grad()
def _with_dropout(model: ViT, images: Tensor) -> Tensor:
    return model.features(images)[:, 0]


def _before_the_norm(model: ViT, images: Tensor) -> Tensor:
    z: Tensor = model.blocks(model.embed(images))
    return z[:, 0]


FROZEN_FEATURES = Exercise(
    name="frozen_features",
    lesson="10",
    points=3,
    takes="fn(model, images): a ViT in training mode, and (B, C, H, W) -> (B, D), without gradients",
    right=_frozen(),
    cases=_feature_cases,
    observe=_features,
    mistakes=(
        Mistake(
            name="the class token before the last norm",
            says="The head that the encoder was trained with read the token after model.norm; before it, sizes differ "
            "from layer to layer. model.features has the norm in it.",
            reread=_FROZEN,
            wrong=_frozen(_before_the_norm),
        ),
        Mistake(
            name="a mean over all tokens",
            says="This model was trained to put what it knows into the class token. Take token 0.",
            reread=_FROZEN,
            wrong=_frozen(lambda model, x: model.features(x).mean(dim=1)),
        ),
        Mistake(
            name="eval() forgotten",
            says="The model came in training mode, so dropout is on.",
            reread=_FROZEN,
            wrong=_with_dropout,
        ),
    ),
)


# ---- Nearest neighbours ------------------------------------------------------------------------------------------


def _cosines(A: Tensor, B: Tensor) -> Tensor:
    return F.normalize(B, dim=1) @ F.normalize(A, dim=1).T  # (m, n)


def _knn(A: Tensor, a: Tensor, B: Tensor, k: int) -> Tensor:
    return _vote(a, _cosines(A, B).topk(k, dim=1).indices)


def _vote(a: Tensor, near: Tensor) -> Tensor:
    return F.one_hot(a[near]).sum(dim=1).argmax(dim=1)


def _votes_counted(wrong: list[Row]) -> str:
    """Whose votes count for the first image that gets another label."""
    case, right, theirs = wrong[0]
    A, a, B, k = case.args
    labels = torch.as_tensor(theirs.result)
    if labels.shape != right.result.shape:
        return ""
    i = int((labels != right.result).nonzero()[0])
    near = _cosines(A, B)[i].topk(k).indices
    some, votes = (", ".join(map(str, numbers[:9].tolist())) for numbers in (near, a[near]))
    return (
        f"The {k} known features nearest to asked feature {i} are {some}{', …' * (k > 9)}, with the labels {votes}. "
        f"So its label is {right.result[i]}, and yours is {labels[i]} (with {case.label})."
    )


def _knn_cases() -> list[Case]:
    made = []
    asked = [(9, 6, 3, 1, 4), (10, 14, 6, 5, 3), (25, 12, 5, 5, 6), (30, 12, 4, 7, 10), (12, 1, 5, 3, 3),
             (70, 20, 9, 45, 6)]  # fmt: skip
    for n, m, D, k, K in asked:
        lengths = 3 * normal(n, 1, seed=k).exp()
        A = lengths * normal(n, D, seed=n)
        a = torch.randint(K, (n,), generator=torch.Generator().manual_seed(n))
        B = 2 * normal(40, D, seed=m).exp().sqrt() * normal(40, D, seed=D)
        clear = torch.ones(40, dtype=torch.bool)
        for labels in (a, a.roll(1)):  # where two labels are tied, more than one answer is right
            counts = F.one_hot(labels[_cosines(A, B).topk(k, dim=1).indices], K).sum(dim=1)  # (40, K)
            top = counts.topk(2, dim=1).values
            clear &= top[:, 0] > top[:, 1]
        B = B[clear][:m]
        a = 211 * a if K == 10 else a  # a label is a name: it may be as large as you like
        made.append(Case(f"{n} known, {len(B)} asked, D={D}, k={k}, labels to {int(a.max())}", (A, a, B, k)))
    return [*made, Case("two very near neighbours of five, and three far ones of another label", _far_ones())]


def _far_ones() -> tuple[Tensor, Tensor, Tensor, int]:
    """Three votes of cosine 0.1 count more than two of nearly 1, whatever weight nearness would give them."""
    near, far = [[1.0, 0.1, 0.0, 0.0], [1.0, -0.1, 0.0, 0.0]], [[0.1, *row] for row in torch.eye(3).tolist()]
    behind = [[-1.0, 0.2, 0.1, 0.3]] * 3
    A = torch.tensor([near[0], far[0], near[1], far[1], far[2], *behind])
    return A, torch.tensor([1, 0, 1, 0, 0, 0, 0, 0]), torch.tensor([[2.0, 0.0, 0.0, 0.0], [1.0, 0.01, 0.0, 0.0]]), 5


KNN = Exercise(
    name="knn",
    lesson="10",
    points=3,
    takes="fn(A, a, B, k): known features (n, D), their labels (n,), asked features (m, D) -> labels (m,)",
    right=_knn,
    cases=_knn_cases,
    observe=call,
    explain=_votes_counted,
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

State = dict[str, Tensor]


def _state(grid: Grid, D: int, classes: int) -> State:
    shapes = {"embed.cls_token": (1, 1, D), "embed.position": (1, 1 + grid[0] * grid[1], D),
              "embed.patches.proj.weight": (D, 3, 2, 2), "embed.patches.proj.bias": (D,), "blocks.0.norm1.weight": (D,),
              "blocks.0.attention.proj.bias": (D,), "norm.weight": (D,),
              "head.weight": (classes, D), "head.bias": (classes,), "norm.bias": (D,)}  # fmt: skip
    return {name: normal(*shape, seed=seed) for seed, (name, shape) in enumerate(shapes.items())}


def _task_cases() -> list[Case]:
    asked = [(4, 3, 5, (2, 3), (2, 3)), (6, 5, 2, (2, 3), (4, 5)), (5, 2, 7, (3, 2), (3, 6)), (4, 3, 3, (6, 4), (3, 2)),
             (3, 2, 4, (2, 6), (4, 3)), (6, 3, 5, (2, 3), (2, 3)), (3, 2, 1, (1, 4), (3, 5)), (2, 3, 3, (5, 1), (1, 7)),
             (2, 4, 3, (7, 7), (12, 12)), (2, 2, 3, (9, 4), (6, 7))]  # fmt: skip
    made = [
        Case(f"D={D}, {old} classes to {new}, grid {a} to {b}", (_state(a, D, old), new, a, b))
        for D, old, new, a, b in asked
    ]
    double = {name: tensor.double() for name, tensor in _state((3, 4), 4, 2).items()}
    mixed = _state((2, 3), 4, 2)
    mixed["blocks.0.norm1.weight"] = mixed["blocks.0.norm1.weight"].double()
    return [
        *made,
        Case("D=4, 2 classes to 3, grid (3, 4) to (5, 4), float64", (double, 3, (3, 4), (5, 4))),
        Case("D=4, 2 classes to 3, grid (2, 3) to (3, 3), one norm in float64", (mixed, 3, (2, 3), (3, 3))),
    ]


def _adapted(work: Any, case: Case) -> Observation:
    state, *others = case.args
    given, before = dict(state), {name: tensor.clone() for name, tensor in state.items()}
    found = work(given, *others)
    if not isinstance(found, Mapping):
        raise Fault(f"returned {describe(found)}, expected a dictionary of names and tensors")
    same = given.keys() == state.keys() and all(given[name] is state[name] for name in state)
    same = same and all(torch.equal(state[name], before[name]) for name in state)
    kinds = [name for name in sorted(found) if name in state and found[name].dtype != state[name].dtype]
    odd = [name for name in kinds if not name.startswith(("head.", "embed.position"))]
    observed = {
        "names": sorted(found),
        **{name: found[name] for name in sorted(found)},
        "the dtype of all others": (f"another one in {odd[0]}" if odd else "as it was"),
        "the given dictionary afterwards": "as it was" if same else "changed",
    }
    return Observation(observed)


def _task(
    state: State,
    num_classes: int,
    old_grid: Grid,
    new_grid: Grid,
    position: Callable[[Tensor, Grid, Grid], Tensor] = resize_position_embedding,
    rows: Callable[..., Tensor] = torch.zeros,
) -> State:
    """The right state dict, or one with another way to resize positions or to fill the head."""
    K, D = num_classes, state["norm.weight"].shape[0]
    resized = {"embed.position": position(state["embed.position"], old_grid, new_grid)}
    return {**state, **resized, "head.weight": rows(K, D), "head.bias": torch.zeros(K)}


def _in_one_dimension(position: Tensor, old: Grid, new: Grid) -> Tensor:
    rows = F.interpolate(position[:, 1:].mT, size=new[0] * new[1], mode="linear").mT
    return torch.cat([position[:, :1], rows], dim=1)


FOR_A_NEW_TASK = Exercise(
    name="for_a_new_task",
    lesson="10",
    points=3,
    takes="fn(state, num_classes, old_grid, new_grid): a state dict -> one with K classes and another grid",
    right=_task,
    cases=_task_cases,
    observe=_adapted,
    mistakes=(
        Mistake(
            name="a head of random numbers",
            says="A new head starts at zero: all classes are equally likely at first.",
            reread=_HEAD,
            wrong=functools.partial(_task, rows=torch.randn),
        ),
        Mistake(
            name="positions of the old grid",
            says="Another grid has other positions: resize_position_embedding(position, old_grid, new_grid).",
            reread=_RESOLUTION,
            wrong=functools.partial(_task, position=lambda position, old, new: position),
        ),
        Mistake(
            name="positions stretched in one dimension",
            says="They are a grid of rows and columns, and the class token's row stays as it was.",
            reread=_RESOLUTION,
            wrong=functools.partial(_task, position=_in_one_dimension),
        ),
    ),
)


# ---- A rate for each layer ---------------------------------------------------------------------------------------

Groups = list[dict[str, Any]]


def _rate_cases() -> list[Case]:
    asked = [(2, 8.0, 0.5), (3, 0.5, 0.75), (1, 0.02, 0.5), (12, 2.0, 0.9), (9, 8.0, 0.5), (4, 3e-5, 0.4)]
    made = [Case(f"L={L}, rate={rate:g}, decay={decay:g}", (_model(L, 4), rate, decay)) for L, rate, decay in asked]
    partly = _model(2, 4)
    partly.embed.requires_grad_(False)
    for parameter in partly.head.parameters():
        parameter.grad = torch.ones_like(parameter)  # as they are left by a training
    return [*made, Case("L=2, rate=1, decay=0.5, a frozen embedding", (partly, 1.0, 0.5))]


def _rates(work: Any, case: Case) -> Observation:
    """The rate of each parameter."""
    model = case.args[0]
    lent = ModelSnapshot(model)
    rates = by_parameter(work(*case.args), model, "lr", default=None)
    return Observation(rates | {"the model afterwards": lent.afterwards()})


def _steps_down(name: str, depth: int) -> int:
    """How many layers below the head."""
    if found := re.match(r"blocks\.(\d+)\.", name):
        return depth - int(found[1])
    return depth + 1 if name.startswith("embed.") else 0


def _by_depth(steps_down: Callable[[str, int], int] = _steps_down) -> Callable[[ViT, float, float], Groups]:
    """A rate for each parameter, by how many layers it is below the head."""

    def layer_rates(model: ViT, rate: float, decay: float) -> Groups:
        L = len(model.blocks)
        return [{"params": [p], "lr": rate * decay ** steps_down(name, L)} for name, p in model.named_parameters()]

    return layer_rates


LAYER_RATES = Exercise(
    name="layer_rates",
    lesson="10",
    points=2,
    takes='fn(model, rate, decay): a ViT -> groups for an optimiser, [{"params": [...], "lr": ...}, ...]',
    right=_by_depth(),
    cases=_rate_cases,
    observe=_rates,
    mistakes=(
        Mistake(
            name="rates that fall towards the head",
            says="The head has the full rate, and the embedding the smallest.",
            reread=_TUNING,
            wrong=_by_depth(lambda name, L: L + 1 - _steps_down(name, L)),
        ),
        Mistake(
            name="a last block at the full rate",
            says="The head has the full rate, and the last block one decay less: block i has L - i decays.",
            reread=_TUNING,
            wrong=_by_depth(lambda name, L: max(_steps_down(name, L) - 1, 0)),
        ),
        Mistake(
            name="one rate for all",
            says="Each layer below the head has one decay more.",
            reread=_TUNING,
            wrong=_by_depth(lambda name, L: 0),
        ),
    ),
    tolerance=3e-7,  # rates are small numbers: one that was rounded is seen
)


# ---- The challenge -----------------------------------------------------------------------------------------------


def _tune_cases() -> list[Case]:
    asked = [(4, 3, 1, 0.1, 0.0), (6, 4, 5, 0.05, 0.5), (5, 3, 4, 0.02, 2.0), (3, 3, 0, 0.1, 0.1)]
    made = [
        Case(
            f"{B} images, {K} classes, {steps} step{'s' * (steps != 1)} of rate {rate:g}, decay {decay:g}",
            (_model(1, 6, K), normal(B, 1, 4, 6, seed=B), torch.arange(B) % K, rate, decay, steps),
        )
        for B, K, steps, rate, decay in asked
    ]
    # Adam divides by the gradient's size, which hides a sum for a mean, until gradients are as small as its eps.
    faint = _model(1, 6, 3)
    with torch.no_grad():
        faint.norm.get_parameter("weight").mul_(3e-8)
        faint.norm.get_parameter("bias").zero_()
    many = (faint, normal(5, 1, 4, 6, seed=7), torch.arange(5) % 3, 0.1, 0.1, 4)
    path = _model(2, 6, 3, dropout=0.0, drop_path=0.9)
    return [
        *made,
        Case("features so small that the size of the loss counts", many),
        Case("drop_path 0.9 alone", (path, normal(5, 1, 4, 6), torch.arange(5) % 3, 0.1, 0.1, 3)),
    ]


def _tuned(work: Any, case: Case) -> Observation:
    model: ViT = case.args[0]
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    lent, given = ModelSnapshot(model, trained=True), copy_arguments(case.args[1:])
    work(model, *given)
    after = {name: p.detach() for name, p in model.named_parameters()}
    moved = [name for name, p in before.items() if not name.startswith("head.") and not torch.equal(after[name], p)]
    observed = {
        "the head afterwards": "trainable" if all(p.requires_grad for p in model.head.parameters()) else "frozen",
        "what has changed of the encoder": (", ".join(moved[:3]) + ", …" * (len(moved) > 3) or "nothing"),
        "head.weight": after["head.weight"],
        "head.bias": after["head.bias"],
        "the model afterwards": lent.afterwards(),
    }
    return Observation(observed, changed_argument=changed_argument(case.args[1:], given, first=2))


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
    takes="fn(model, images, labels, rate, decay, steps): trains the head with AdamW, in place, nothing else",
    right=_tune(),
    cases=_tune_cases,
    observe=_tuned,
    tolerance=1e-4,
    mistakes=(
        Mistake(
            name="a new head that the optimiser doesn't know",
            says="The model has its head of zeros already: keep it, and give its parameters to the optimiser.",
            reread="The optimiser was made before the head.",
            wrong=_another_head,
        ),
        Mistake(
            name="dropout left on",
            says="The model came in training mode, so at every step the features are other ones. A frozen encoder runs "
            "in eval mode: model.eval().",
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
            says="cross_entropy takes logits, and has the softmax in it. With a second one the loss can hardly fall.",
            reread=_HEAD,
            wrong=_tune(loss=lambda logits, labels: F.cross_entropy(logits.softmax(dim=1), labels)),
        ),
    ),
)
