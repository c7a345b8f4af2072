"""Checks of lesson 10: frozen features, neighbours, weights for a new task, rates, and what stays frozen."""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vit_tutorial.checks.compare import as_number, as_tensor, equal, kind, unchanged
from vit_tutorial.checks.harness import (
    Case,
    Exercise,
    Fault,
    Hashed,
    Result,
    Words,
    as_left,
    call,
    copied,
    normal,
    section,
)
from vit_tutorial.checks.pencil import Question, pencil
from vit_tutorial.checks.snapshot import AS_IT_WAS, ModelSnapshot
from vit_tutorial.checks.watch import NOT_ADAMW
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
            Hashed("18680f2e95@0.004+0.002 590530f239@0.004+0.002 f065463d5d@0.004+0.0026833", "list"),
            "The dot product with (0, 2), divided by both lengths, for each of the three.",
            _NEIGHBOURS,
            {
                (8, 2, 6): "dot products in place of cosines. A dot product grows with the lengths of both vectors. "
                "Divide by both lengths.",
            },
        ),
        "standardised": Question(
            Hashed("01d0e2e67f 72c2fae672", "list"),
            "The probe was trained on numbers less the training images' mean, divided by their standard deviation. "
            "Do the same to the test images' two numbers.",
            _PROBE,
            {
                (-1, 1): "one set of pictures by itself. -1 and 1 come out for the test pictures less their own mean, "
                "and for the training pictures less theirs. The probe needs the test pictures less the training mean.",
            },
        ),
        "first loss": Question(
            Hashed("d6bed4046c@0.01+0.00990665"),
            "A head of zeros gives 12 equal logits: minus the natural logarithm of one of 12 probabilities.",
            _HEAD,
            {math.log2(12): "a logarithm to another base. Cross-entropy is in nats: the natural logarithm, ln 12."},
        ),
        "row of the gradient": Question(
            Hashed("57ea0c2c46@0.01+0.005 0fc351ff1e@0.004+0.004", "list"),
            "(p - target) z: p is the same for all four classes, and the target is 1.",
            _HEAD,
            {
                (2.25, -0.75): "a gradient with the wrong sign. It is p - target, so 1/4 - 1 for the true class: "
                "minus the gradient is the direction in which you go.",
            },
        ),
        "probe": Question(
            Hashed("7c7b2ee768"),
            "A linear layer from D numbers to the classes, with a bias for each class.",
        ),
        "positions": Question(
            Hashed("28fb22afaf"),
            "Count the patches of the new grid; the class token has a position, too.",
            _RESOLUTION,
            {
                144: "the class token's position forgotten. 12 · 12 = 144 are the patches. The class token has a "
                "position as well, the one that isn't resized.",
            },
        ),
        "rate": Question(
            Hashed("6edd33192b@0.004+0.004"),
            "The warm-up grows evenly from peak / 10 at step 0 to the peak at step 9.",
            _TUNING,
            {
                0.12: "a warm-up that begins at zero. Steps are counted from 0, and the first doesn't have a rate of "
                "zero: it is (step + 1) / warm-up.",
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


def _with_small_tokens(model: ViT) -> ViT:
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.startswith("embed.") or ".proj." in name or ".fc2." in name:  # all that makes a token
                parameter.mul_(1e-3)
    return model


def _feature_cases() -> list[Case]:
    sizes = [(1, 1, 8, 3), (3, 2, 4, 5), (2, 3, 6, 6)]
    attention, path = _model(dropout=0.0, attention_dropout=0.3), _model(dropout=0.0, drop_path=0.9)
    faint = _with_small_tokens(_model())
    deep = _model(13, 4, 3, norm_eps=0.1)
    for parameter in deep.parameters():
        parameter.grad = torch.ones_like(parameter)  # as they are left by a training
    return [
        *(
            Case(f"B={B}, D={D}, K={K}, dropout 0.3, model in training mode", (_model(L, D, K), normal(B, 1, 4, 6)))
            for B, L, D, K in sizes
        ),
        Case("attention_dropout 0.3 alone, model in training mode", (attention, normal(2, 1, 4, 6))),
        Case("drop_path 0.9 alone, model in training mode", (path, normal(4, 1, 4, 6))),
        Case("tokens so small that the last norm's eps counts", (faint, normal(2, 1, 4, 6))),
        Case("13 blocks, norm_eps 0.1, gradients of a training, 9 images", (deep, normal(9, 1, 4, 6))),
    ]


def _features(work: Any, case: Case) -> Result:
    model, images = case.args
    lent, slopes = ModelSnapshot(model), _slopes(model)
    given = copied([images])
    found = work(model, *given)
    arguments = as_left(given, first=2)
    result = found.detach().clone() if isinstance(found, Tensor) else found
    given[0].copy_(1 - images)  # nothing of the first call may stay for the second
    before = found.detach().clone() if isinstance(found, Tensor) else None  # a part of the images has changed with them
    others = work(model.train(), *given)
    if before is not None and not torch.equal(before, found.detach()) and not before.isnan().any():
        raise Fault("a second call changes the features of the first: make a new tensor in each call")
    afterwards, same = lent.afterwards(), _those_of_before(_slopes(model), slopes)
    graph = isinstance(found, Tensor) and found.requires_grad
    return {
        "result": result,
        "the features of other images, in a second call,": others,
        "what the features carry along": Words("a graph: compute them under torch.no_grad()" if graph else "no graph"),
        "the model afterwards": afterwards,
        "what its parameters' gradients are afterwards": Words("those of before" if same else "others"),
        "the features when the model's weights have changed since": _after_a_step(work, model, images),
        "arguments": arguments,
    }


def _after_a_step(work: Any, model: ViT, images: Tensor) -> Any:
    """The features of a model that was trained further: nothing of the one that it was may stay."""
    _scale(model, 0.5)
    try:
        return work(model.train(), *copied([images]))
    finally:
        _scale(model, 2.0)


def _scale(model: ViT, factor: float) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(factor)


def _slopes(model: ViT) -> list[Tensor | None]:
    return [None if parameter.grad is None else parameter.grad.clone() for parameter in model.parameters()]


def _those_of_before(now: list[Tensor | None], before: list[Tensor | None]) -> bool:
    """Whether gradients have the numbers that they had."""
    return len(now) == len(before) and all(
        a is b if a is None or b is None else torch.equal(a, b) for a, b in zip(now, before, strict=True)
    )


def _frozen(
    take: Callable[[ViT, Tensor], Tensor] = lambda model, x: model.features(x)[:, 0],
) -> Callable[[ViT, Tensor], Tensor]:
    @torch.no_grad()
    def frozen_features(model: ViT, images: Tensor) -> Tensor:
        return take(model.eval(), images)

    return frozen_features


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
    mistakes=section(
        _FROZEN,
        (
            "the class token before the last norm",
            "The head that the encoder was trained with read the token after model.norm; before it, sizes differ "
            "from layer to layer. model.features has the norm in it.",
            _frozen(_before_the_norm),
        ),
        (
            "a mean over all tokens",
            "This model was trained to put what it knows into the class token. Take token 0.",
            _frozen(lambda model, x: model.features(x).mean(dim=1)),
        ),
    ),
)


# ---- Nearest neighbours ------------------------------------------------------------------------------------------


def _cosines(A: Tensor, B: Tensor) -> Tensor:
    return F.normalize(B, dim=1) @ F.normalize(A, dim=1).T  # (m, n)


def _knn(A: Tensor, a: Tensor, B: Tensor, k: int) -> Tensor:
    labels = a[_cosines(A, B).topk(k, dim=1).indices]  # (m, k)
    return F.one_hot(labels).sum(dim=1).argmax(dim=1)


def _votes_counted(wrong: list[tuple[Case, Result, Result]]) -> str:
    """Whose votes count for the first image that gets another label."""
    case, right, theirs = wrong[0]
    A, a, B, k = case.args
    labels = torch.as_tensor(theirs["result"])
    if labels.shape != right["result"].shape:
        return ""
    i = int((labels != right["result"]).nonzero()[0])
    near = _cosines(A, B)[i].topk(k).indices
    some, more = ", ".join(map(str, near[:9].tolist())), ", …" if k > 9 else ""
    votes = ", ".join(map(str, a[near[:9]].tolist()))
    return (
        f"The known features nearest to asked feature {i} are {some}{more}, with the labels {votes}{more}: {k} in all. "
        f"So its label is {right['result'][i]}, and yours is {labels[i]} (with {case.label})."
    )


def _knn_cases() -> list[Case]:
    made = []
    asked = [(9, 6, 3, 1, 4), (10, 14, 6, 5, 3), (25, 12, 5, 5, 6), (30, 12, 4, 7, 10), (40, 12, 3, 4, 5),
             (12, 1, 5, 3, 3), (70, 20, 9, 45, 6)]  # fmt: skip
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
    return [
        *made,
        Case("two very near neighbours of five, and three far ones of another label", _far_ones()),
        Case("6 known features of lengths from 0.01 to 100, k=4", _short_ones()),
        Case("asked features that are known ones, twice as long, k=1", (A, torch.arange(n), 2 * A[:5], 1)),
    ]


def _far_ones() -> tuple[Tensor, Tensor, Tensor, int]:
    """Three votes of cosine 0.1 count more than two of nearly 1, whatever weight nearness would give them."""
    near, far = [[1.0, 0.1, 0.0, 0.0], [1.0, -0.1, 0.0, 0.0]], [[0.1, *row] for row in torch.eye(3).tolist()]
    behind = [[-1.0, 0.2, 0.1, 0.3]] * 3
    A = torch.tensor([near[0], far[0], near[1], far[1], far[2], *behind])
    return A, torch.tensor([1, 0, 1, 0, 0, 0, 0, 0]), torch.tensor([[2.0, 0.0, 0.0, 0.0], [1.0, 0.01, 0.0, 0.0]]), 5


def _short_ones() -> tuple[Tensor, Tensor, Tensor, int]:
    """What is added to a length is seen where that is small: the nearest three are short, the others aren't."""
    angles = torch.tensor([0.10, 0.11, 0.12, 0.15, 0.16, 0.17])
    lengths = torch.tensor([0.01, 0.01, 0.01, 1.0, 10.0, 100.0])
    A = lengths[:, None] * torch.stack([angles.cos(), angles.sin()], dim=1)
    return A[[3, 0, 4, 1, 5, 2]], torch.tensor([8, 3, 8, 3, 8, 3]), torch.tensor([[2.0, 0.0], [0.02, 0.0]]), 4


def _asked_again(work: Any, case: Case) -> Result:
    """The labels; and those of a further call, in which the known have one another's: each call has its own known."""
    observed = call(work, case)
    if observed["result"] is not None:
        A, a, B, k = copied(case.args)
        work(A, a, B, k)
        observed["the result of a second call, with other labels of the known,"] = work(A, a.copy_(a.roll(1)), B, k)
    return observed


KNN = Exercise(
    name="knn",
    lesson="10",
    points=3,
    takes="fn(A, a, B, k): known features (n, D), their labels (n,), asked features (m, D) -> labels (m,)",
    right=_knn,
    cases=_knn_cases,
    observe=_asked_again,
    explain=_votes_counted,
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


def _adapted(work: Any, case: Case) -> Result:
    state, *others = case.args
    given = {name: tensor.clone() for name, tensor in state.items()}
    kept = dict(given)
    found = work(given, *others)
    if found is None:
        raise Fault("the result is None: is the return missing?")
    if not isinstance(found, Mapping):
        raise Fault(f"returned {kind(found)}, expected a dictionary of names and tensors")
    returned, found = found, {str(name): value for name, value in found.items()}
    same = "as it was" if all(torch.equal(kept[name], state[name]) for name in kept) else "with other numbers in it"
    if given.keys() != kept.keys() or any(given[name] is not kept[name] for name in kept):
        same = "changed"
    tensors = _copies(found, state)
    filled = " and ".join(name for name in ("head.weight", "head.bias") if name in tensors and tensors[name].any())
    observed: Result = {
        "names": sorted(found),
        **tensors,
        "what of the head isn't all zeros": Words(filled or "nothing"),
    }
    again = work({name: 1 - tensor for name, tensor in state.items()}, *others)
    now = {str(name): value for name, value in returned.items()}
    if now.keys() != found.keys() or any(
        not unchanged(as_tensor(now[name]), value) for name, value in tensors.items() if not value.isnan().any()
    ):
        raise Fault("a second call changes the dictionary that the first returned: make a new one in each call")
    shared = [name for name in ("head.weight", "head.bias") if isinstance(again, Mapping) and name in again]
    if shared := [name for name in shared if again[name] is now.get(name)]:
        raise Fault(f"{shared[0]} is the same tensor in the results of two calls: make a new one in each call")
    if isinstance(again, Mapping) and again.keys() == found.keys():
        observed |= {f"{name} in a second call, with other numbers,": again[name] for name in sorted(found)}
    return observed | {"the given dictionary afterwards": Words(same)}


def _copies(found: Mapping[str, Any], state: State) -> State:
    """What a work made of a state dict, each a tensor of the right dtype.

    Raises:
        Fault: one isn't a tensor, or has another dtype than before.
    """
    tensors: State = {}
    for name in sorted(found):
        tensor = as_tensor(found[name])
        if tensor is None:
            raise Fault(f"{name} is {kind(found[name])}, expected a tensor")
        if name in state and not name.startswith(("head.", "embed.pos")) and tensor.dtype != state[name].dtype:
            raise Fault(f"{name} is of dtype {tensor.dtype} now, and must stay as it was, {state[name].dtype}")
        tensors[name] = tensor.detach().clone()
    return tensors


def _about_a_task(compared: list[tuple[Case, Result, Result]]) -> str:
    """What is wrong with the names, the head, the positions, or the rest."""
    for case, right, theirs in compared:
        of = f"With {case.label}"
        lost = [name for name in right["names"] if name not in theirs["names"]]
        more = [name for name in theirs["names"] if name not in right["names"]]
        if lost or more:
            said = [f"there is no {name}" for name in lost[:1]] + [f"{name} shouldn't be there" for name in more[:1]]
            return f"{of}, {', and '.join(said)}."
        for name in ("head.weight", "head.bias"):
            value = theirs[name]
            if value.shape != right[name].shape:
                return ""
            if value.any():
                many = int(value.count_nonzero())
                return f"{name} must be all zeros. {of}, {many} of its {value.numel()} numbers aren't."
        wanted, found = right["embed.position"], theirs["embed.position"]
        token = equal(wanted[:, :1], found[:, :1], FOR_A_NEW_TASK)
        patches = equal(wanted[:, 1:], found[:, 1:], FOR_A_NEW_TASK)
        if patches and not token:
            return f"{of}, the patches' positions are right. The class token's, the first row, must stay as it was."
        if token and not patches:
            rest = "not all of the patches' are: resize them as a grid, bicubic, antialias"
            return f"{of}, the class token's position is right, but {rest}."
        kept = [name for name in right["names"] if not name.startswith(("head.", "embed.position"))]
        if others := [name for name in kept if not _alike(right[name], theirs[name])]:
            return f"{others[0]} must stay as it was. {of} it didn't."
    return ""


def _alike(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and torch.allclose(a.float(), b.float(), atol=1e-4)


def _task(state: State, num_classes: int, old_grid: Grid, new_grid: Grid) -> State:
    K, D = num_classes, state["norm.weight"].shape[0]
    resized = {"embed.position": resize_position_embedding(state["embed.position"], old_grid, new_grid)}
    return {**state, **resized, "head.weight": torch.zeros(K, D), "head.bias": torch.zeros(K)}


FOR_A_NEW_TASK = Exercise(
    name="for_a_new_task",
    lesson="10",
    points=3,
    takes="fn(state, num_classes, old_grid, new_grid): a state dict -> one with K classes and another grid",
    right=_task,
    cases=_task_cases,
    observe=_adapted,
    forbidden=("vit_tutorial.weights.*",),
    explain=_about_a_task,
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


def _rates(work: Any, case: Case) -> Result:
    """The rate of each parameter, in words for one that is in no group."""
    model = case.args[0]
    lent, modes, slopes = ModelSnapshot(model), [part.training for part in model.modules()], _slopes(model)
    groups = work(*case.args)
    if groups is None:
        raise Fault("the result is None: is the return missing?")
    if not isinstance(groups, (list, tuple)) or not all(isinstance(group, Mapping) for group in groups):
        raise Fault('expected a list of dictionaries {"params": [...], "lr": ...}, as an optimiser takes them')
    names = {id(p): name for name, p in case.args[0].named_parameters()}
    found: dict[str, float] = {}
    for group in groups:
        for key in ("params", "lr"):
            if key not in group:
                raise Fault(f"a group has no {key!r}: it has {', '.join(map(repr, group)) or 'nothing'}")
        if isinstance(group["params"], (set, frozenset)):
            raise Fault(
                "a group's params are a set, which has no order: torch's optimisers refuse that; make a list of it"
            )
        rate = as_number(group["lr"])
        if rate is None:
            raise Fault(f"a group's lr is {kind(group['lr'])}, expected a number")
        for parameter in _listed(group["params"]):
            name = names.get(id(parameter), "")
            if not name:
                raise Fault(f"a group holds {_foreign(parameter)}: put the model's own parameters into it")
            if name in found:
                raise Fault(f"{name} comes twice: each parameter belongs into one group, once")
            found[name] = float(rate)
    if (afterwards := lent.afterwards()) != AS_IT_WAS:
        raise Fault(f"the model is {afterwards}")
    if [part.training for part in model.modules()] != modes:
        raise Fault("the model is in another mode afterwards, training or evaluation: leave it as it is")
    if not _those_of_before(_slopes(model), slopes):
        raise Fault("the model's gradients aren't those that it had: leave them as they are")
    _try_another(work, case)
    exact = all(
        abs(rate - wanted) <= 1e-6 * wanted
        for name, rate in found.items()
        if abs(rate - (wanted := case.args[1] * case.args[2] ** _steps_down(name, len(model.blocks)))) < 1e-6
    )
    rates: Result = {f"rate of {name}": found.get(name, _LOST) for name in names.values()}
    return rates | {"how exact nearly right rates are": Words("six digits" if exact else "fewer than six digits")}


def _try_another(work: Any, case: Case) -> None:
    """See that a second model of the same size gets groups of its own.

    Raises:
        Fault: they hold what isn't its own.
    """
    another = copy.deepcopy(case.args[0])
    own = {id(parameter) for parameter in another.parameters()}
    groups = work(another, *case.args[1:])
    if any(id(parameter) not in own for group in groups for parameter in _listed(group["params"])):
        raise Fault("another model of the same size gets the first one's parameters: make the groups anew in each call")


_LOST = Words("none: it is in no group, and never trained")


def _foreign(part: Any) -> str:
    if isinstance(part, str):
        return f"the name {part!r}"
    if isinstance(part, nn.Module):
        return f"a module, {type(part).__name__}"
    return f"{kind(part)}, which is none of this model's parameters (a copy, .data or .detach() isn't, either)"


def _listed(params: Any) -> list[Any]:
    if isinstance(params, (Tensor, nn.Module, str)):
        return [params]
    return [p[1] if isinstance(p, tuple) else p for p in params]


def _about_rates(compared: list[tuple[Case, Result, Result]]) -> str:
    """Part by part: what is in no group, or how often a wrong rate was multiplied by the decay."""
    telling = sorted(compared, key=lambda row: row[0].args[2] != 0.5)  # powers of a half come out by chance, too
    for case, right, theirs in reversed(telling):
        _, rate, decay = case.args
        right = {name: a for name, a in right.items() if name.startswith("rate of ")}
        rates = {name: 0.0 if isinstance(theirs[name], str) else theirs[name] for name in right}
        wrong = {name: (a, rates[name]) for name, a in right.items() if abs(rates[name] - a) > 3e-7 * max(1.0, abs(a))}
        if not wrong:
            continue
        lost = [name for name, (_, b) in wrong.items() if b == 0.0]
        first = next(iter(wrong.values()))
        alike = lost or [name for name, pair in wrong.items() if pair == first]
        few = [name.removeprefix("rate of ") for name in alike]
        names = f"{', '.join(few[:2])}{f' and {len(few) - 2} more' if len(few) > 2 else ''}"
        if lost:
            return f"In no group, or with a rate of 0, and so never trained: {names} (with {case.label})."
        a, b = first
        of = f"With {case.label}:"
        steps = math.log(b / rate) / math.log(decay) if b > 0 else 0.5
        was, should = round(steps), round(math.log(a / rate) / math.log(decay))
        if was == should:  # nearly right
            return ""
        if abs(steps - was) < 1e-4:
            return f"{of} rate · decay^{was} for {names}; it should be rate · decay^{should}."
        return f"{of} {names} have {b:.4g}, which is not the rate times a whole power of the decay."
    return ""


def _steps_down(name: str, depth: int) -> int:
    """How many layers below the head."""
    if found := re.match(r"blocks\.(\d+)\.", name):
        return depth - int(found[1])
    return depth + 1 if name.startswith("embed.") else 0


def _layer_rates(model: ViT, rate: float, decay: float) -> Groups:
    L = len(model.blocks)
    return [{"params": [p], "lr": rate * decay ** _steps_down(name, L)} for name, p in model.named_parameters()]


LAYER_RATES = Exercise(
    name="layer_rates",
    lesson="10",
    points=2,
    takes='fn(model, rate, decay): a ViT -> groups for an optimiser, [{"params": [...], "lr": ...}, ...]',
    right=_layer_rates,
    cases=_rate_cases,
    observe=_rates,
    explain=_about_rates,
    tolerance=3e-7,  # rates are small numbers: one that was rounded is seen
)


# ---- The challenge -----------------------------------------------------------------------------------------------


def _tune_cases() -> list[Case]:
    asked = [(4, 3, 1, 0.1, 0.0), (6, 4, 5, 0.05, 0.5), (5, 3, 4, 0.02, 2.0)]
    made = [
        Case(
            f"{B} images, {K} classes, {steps} step{'s' * (steps > 1)} of rate {rate:g}, decay {decay:g}",
            (_model(1, 6, K), normal(B, 1, 4, 6, seed=B), torch.arange(B) % K, rate, decay, steps),
        )
        for B, K, steps, rate, decay in asked
    ]
    # Adam divides by the gradient's size, which hides a sum for a mean, until gradients are as small as its eps.
    faint = _model(1, 6, 3)
    with torch.no_grad():
        faint.norm.get_parameter("weight").mul_(3e-8)
        faint.norm.get_parameter("bias").zero_()
    many = Case(
        "features so small that the size of the loss counts",
        (faint, normal(5, 1, 4, 6, seed=7), torch.arange(5) % 3, 0.1, 0.1, 4),
    )
    alike = torch.ones(2, dtype=torch.int64)  # all are right before the last step
    easy = Case("2 images of one class, 6 steps", (_model(1, 6, 3), normal(2, 1, 4, 6, seed=3), alike, 0.3, 0.1, 6))
    loud = _model(1, 6, 4)
    with torch.no_grad():
        loud.norm.get_parameter("weight").mul_(8.0)  # so that gradients are cut off where somebody does that
    sure = _model(1, 6, 4)
    with torch.no_grad():
        sure.norm.get_parameter("weight").mul_(8.0)
        next(sure.head.parameters()).mul_(30.0)
    small = _model(1, 6, 3, dropout=0.0, attention_dropout=0.3)
    path = _with_small_tokens(_model(2, 6, 3, dropout=0.0, drop_path=0.9))
    return [
        *made,
        many,
        Case("12 steps", (loud, normal(6, 1, 4, 6, seed=9), torch.arange(6) % 3, 0.3, 0.1, 12)),
        easy,
        Case("logits in the hundreds", (sure, normal(6, 1, 4, 6, seed=9), torch.arange(6) % 3, 0.1, 0.1, 3)),
        Case("attention_dropout 0.3 alone", (small, normal(9, 1, 4, 6, seed=5), torch.arange(9) % 3, 0.1, 0.1, 4)),
        Case("drop_path 0.9 alone, small tokens", (path, normal(5, 1, 4, 6), torch.arange(5) % 3, 0.1, 0.1, 3)),
        Case("no step", (_model(1, 6, 3), normal(3, 1, 4, 6), torch.arange(3), 0.1, 0.1, 0)),
    ]


def _tuned(work: Any, case: Case) -> Result:
    model: ViT = case.args[0]
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    head, lent = model.head, ModelSnapshot(model, trained=True)
    given = copied(case.args[1:])
    work(model, *given)
    if (afterwards := lent.afterwards()) != AS_IT_WAS:
        raise Fault(f"the model is {afterwards}: train the head that it has, and leave the rest to others as it is")
    after = {name: p.detach() for name, p in model.named_parameters()}
    moved = [name for name, p in before.items() if not name.startswith("head.") and not torch.equal(after[name], p)]
    frozen = [name for name, p in head.named_parameters(prefix="head") if not p.requires_grad]
    return {
        "what has changed of the encoder": Words(_those(moved)),
        "head.weight": after["head.weight"],
        "head.bias": after["head.bias"],
        "what is frozen of the head afterwards": Words(" and ".join(frozen) or "nothing"),
        "arguments": as_left(given, first=2),
    }


def _those(names: list[str]) -> str:
    parts = list(dict.fromkeys(".".join(name.split(".")[:2]) if name[:6] == "blocks" else name for name in names))
    return ", ".join(parts[:3]) + (", …" if len(parts) > 3 else "") if parts else "nothing"


def _about_tuning(compared: list[tuple[Case, Result, Result]]) -> str:
    """Which half of the training is wrong."""
    moved = [theirs["what has changed of the encoder"] for _, _, theirs in compared]
    if any(words != "nothing" for words in moved):
        at = next(i for i, words in enumerate(moved) if words != "nothing")
        return f"The encoder must stay as it was, and with {compared[at][0].label} this has changed: {moved[at]}."
    untouched = [torch.equal(case.args[0].head.weight, theirs["head.weight"]) for case, _, theirs in compared]
    if all(untouched):
        return f"With {compared[0][0].label}, head.weight is as it was before. Is it a copy that you train?"
    case, right, theirs = compared[0]
    if not theirs["head.weight"].isfinite().all():
        return ""
    if case.args[-1] != 1:
        return (
            f"It goes wrong with {case.label}. Is the loss the mean over the images? Is the optimiser AdamW, made "
            "once, with its own eps and betas and the decay asked for? Are the gradients cleared before every step?"
        )
    return _first_step(case.args[0].head.weight, right, theirs, case.args[3])


def _first_step(start: Tensor, right: Result, theirs: Result, rate: float) -> str:
    """What is wrong with a first step. AdamW's is as long as the rate in each number, against the gradient's sign."""
    if _alike(right["head.weight"], theirs["head.weight"]):
        bias = _alike(right["head.bias"], theirs["head.bias"])
        return "" if bias else "Where one step is asked for, head.weight is right, and head.bias isn't."
    wanted, moved = ((found["head.weight"] - start) / rate for found in (right, theirs))
    against, far = int((wanted.sign() != moved.sign()).sum()), (moved.norm() / wanted.norm()).item()
    return (
        f"Where one step is asked for, {against} of {moved.numel()} numbers of head.weight don't move with the right "
        f"sign; all in all it moves {far:.6g} times as far as it should. Are the features, the labels, the loss, the "
        "rate and the head's start the right ones?"
    )


def _tune(training: bool = False, loss: Callable[[Tensor, Tensor], Tensor] = F.cross_entropy) -> Callable[..., None]:
    """Tuning in training mode, or with another loss."""

    def tune_head(model: ViT, images: Tensor, labels: Tensor, rate: float, decay: float, steps: int) -> None:
        adam = torch.optim.AdamW(model.head.parameters(), lr=rate, weight_decay=decay)
        model.train(training)
        for _ in range(steps):
            model.zero_grad()
            loss(model(images), labels).backward()
            adam.step()

    return tune_head


TUNE_HEAD = Exercise(
    name="tune_head",
    lesson="10",
    points=2,
    takes="fn(model, images, labels, rate, decay, steps): trains the head with AdamW, in place, nothing else",
    right=_tune(),
    cases=_tune_cases,
    observe=_tuned,
    forbidden=NOT_ADAMW,
    explain=_about_tuning,
    tolerance=1e-4,
    mistakes=(
        *section(
            _FROZEN,
            (
                "dropout left on",
                "The model came in training mode, so at every step the features are other ones. A frozen encoder "
                "runs in eval mode: model.eval().",
                _tune(training=True),
            ),
        ),
        *section(
            _HEAD,
            (
                "a softmax before the cross-entropy",
                "cross_entropy takes logits, and has the softmax in it. With a second one the loss can hardly fall.",
                _tune(loss=lambda logits, labels: F.cross_entropy(logits.softmax(dim=1), labels)),
            ),
        ),
    ),
)
