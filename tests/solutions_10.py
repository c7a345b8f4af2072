"""Works for the exercises of lesson 10: right ones, in different ways, and wrong ones."""

import copy
import math
from collections import Counter

import torch
from submissions import Wrong
from torch import nn
from torch.nn import functional as F

import vit_tutorial as vt

NUMBERS = {
    "cosines": [0.8, 1.0, 0.95],
    "standardised": [2, 4],
    "first loss": 2.48,
    "row of the gradient": [-2.25, 0.75],
    "probe": 325,
    "positions": 145,
    "rate": 0.15,
}


def features_by_inference_mode(model, images):
    with torch.inference_mode():
        return model.eval().features(images)[:, 0]


def features_without_head(model, images):
    """A copy of the model without its head; the given one keeps its own, and its mode."""
    headless = copy.deepcopy(model).eval().requires_grad_(False)
    headless.head = nn.Identity()
    return headless(images)


def knn_by_loop(A, a, B, k):
    found = []
    for b in B:
        cosines = torch.cosine_similarity(A, b[None], dim=1)
        nearest = cosines.argsort(descending=True)[:k]
        found.append(Counter(a[nearest].tolist()).most_common(1)[0][0])
    return torch.tensor(found)


def knn_by_mode(A, a, B, k):
    unit = [x / x.norm(dim=1, keepdim=True) for x in (A, B)]
    return a[torch.cdist(unit[1], unit[0]).topk(k, largest=False).indices].mode(dim=1).values


def task_by_package(state, num_classes, old_grid, new_grid):
    new = dict(state)
    D = new["head.weight"].shape[1]
    new |= {"head.weight": torch.zeros(num_classes, D), "head.bias": torch.zeros(num_classes)}
    new["embed.position"] = vt.resize_position_embedding(state["embed.position"], old_grid, new_grid)
    return new


def task_by_hand(state, num_classes, old_grid, new_grid):
    head = nn.Linear(state["norm.weight"].numel(), num_classes)
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    cls, rest = state["embed.position"].split([1, math.prod(old_grid)], dim=1)
    rest = rest.unflatten(1, old_grid).permute(0, 3, 1, 2)
    rest = F.interpolate(rest, size=new_grid, mode="bicubic", antialias=True, align_corners=False)
    position = torch.cat((cls, rest.permute(0, 2, 3, 1).flatten(1, 2)), dim=1)
    body = {name: tensor.clone() for name, tensor in state.items() if "head" not in name}
    return {**body, "embed.position": position, **{f"head.{name}": t for name, t in head.state_dict().items()}}


def rates_by_name(model, rate, decay):
    groups = []
    for name, parameter in model.named_parameters():
        down = 0
        if name.startswith("blocks."):
            down = len(model.blocks) - int(name.split(".")[1])
        elif name.startswith("embed."):
            down = len(model.blocks) + 1
        groups.append({"params": parameter, "lr": rate * math.pow(decay, down)})
    return groups


def rates_by_shrinking(model, rate, decay):
    """Downwards, a little less at each step."""
    groups = [
        {"params": list(model.head.parameters()), "lr": rate},
        {"params": list(model.norm.parameters()), "lr": rate},
    ]
    for block in list(model.blocks)[::-1]:
        rate = rate * decay
        groups.append({"params": list(block.parameters()), "lr": rate})
    return [*groups, {"params": list(model.embed.parameters()), "lr": torch.tensor(rate * decay)}]


def tune_by_features(model, images, labels, rate, decay, steps):
    """The features once, then the head alone."""
    with torch.no_grad():
        y = model.eval().features(images)[:, 0]
    adam = torch.optim.AdamW(model.head.parameters(), lr=rate, weight_decay=decay)
    for _ in range(steps):
        adam.zero_grad()
        F.cross_entropy(model.head(y), labels).backward()
        adam.step()
    return model


def tune_by_freezing(model, images, labels, rate, decay, steps):
    model.eval().requires_grad_(False)
    model.head.requires_grad_(True)
    adam = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=decay)
    loss = nn.CrossEntropyLoss()
    for _ in range(steps):
        loss(model(images), labels).backward()
        adam.step()
        adam.zero_grad(set_to_none=True)


# ---- Wrong ones --------------------------------------------------------------------------------------------------


def frozen(*, before=lambda model: model.eval(), take=lambda model, x: model.features(x)[:, 0]):
    def frozen_features(model, images):
        before(model)
        with torch.no_grad():
            return take(model, images)

    return frozen_features


def with_a_new_head(model, x):
    model.head = nn.Identity()
    y = model(x)
    model.head = nn.Linear(y.shape[1], 3)
    return y


def near(pick=lambda s, k: s.topk(k, dim=1).indices, end=lambda y: y):
    def knn(A, a, B, k):
        cosines = F.normalize(B, dim=1) @ F.normalize(A, dim=1).T
        return end(F.one_hot(a[pick(cosines, k)]).sum(1).argmax(1))

    return knn


def adapt(
    *,
    head=lambda state, K, D: {"head.weight": torch.zeros(K, D), "head.bias": torch.zeros(K)},
    position=lambda p, old, new: vt.resize_position_embedding(p, old, new),
    end=lambda new, state: new,
):
    def for_a_new_task(state, num_classes, old_grid, new_grid):
        body = {name: t for name, t in state.items() if not name.startswith("head.")}
        new = body | head(state, num_classes, state["norm.weight"].shape[0])
        return end(new | {"embed.position": position(state["embed.position"], old_grid, new_grid)}, state)

    return for_a_new_task


def rated(
    down=lambda name, depth: (
        depth - int(name.split(".")[1]) if name.startswith("blocks.") else depth + 1 if name.startswith("embed.") else 0
    ),
    shrink=lambda decay, k: decay**k,
    end=lambda groups, model: groups,
):
    """A group a parameter, its rate by a rule; None: in no group."""

    def layer_rates(model, rate, decay):
        rules = [(p, down(name, len(model.blocks))) for name, p in model.named_parameters()]
        return end([{"params": [p], "lr": rate * shrink(decay, k)} for p, k in rules if k is not None], model)

    return layer_rates


def tuned(
    *,
    trained=lambda model: model.head.parameters(),
    mode=lambda model: model.eval(),
    make=torch.optim.AdamW,
    settings=lambda rate, decay: {"lr": rate, "weight_decay": decay},
    criterion=F.cross_entropy,
    start=lambda model: None,
    end=lambda model: None,
):
    def tune_head(model, images, labels, rate, decay, steps):
        mode(model)
        start(model)
        adam = make(list(trained(model)), **settings(rate, decay))
        for _ in range(steps):
            model.zero_grad()
            criterion(model(images), labels).backward()
            adam.step()
        end(model)

    return tune_head


def a_copy(model, images, labels, rate, decay, steps):
    return tuned()(copy.deepcopy(model), images, labels, rate, decay, steps)


def with_the_model(change):
    """Something happens to the model before its groups are returned."""
    return rated(end=lambda groups, model: (change(model), groups)[1])


def answered(question, *answers):
    """A wrong work for each answer to a question."""
    return [Wrong(f"{question}: {x}", lambda x=x: NUMBERS | {question: x}) for x in answers]


RIGHT = {
    "fine_tuning_numbers": (lambda: NUMBERS,),
    "frozen_features": (features_by_inference_mode, features_without_head),
    "knn": (knn_by_loop, knn_by_mode),
    "for_a_new_task": (task_by_package, task_by_hand),
    "layer_rates": (rates_by_name, rates_by_shrinking),
    "tune_head": (tune_by_features, tune_by_freezing),
}

WRONG = {
    "fine_tuning_numbers": [
        *answered("cosines", [0.8, 1], [0.8, 1.0, -0.95], 0.8),
        *answered("standardised", [8, 12], 3),
        *answered("first loss", 2.49, -2.48),
        *answered("row of the gradient", [3, -1], -2.25),
        *answered("probe", 64),
        *answered("positions", 65),
    ],
    "frozen_features": [
        Wrong("another head", frozen(take=with_a_new_head), "a change in the part head"),
    ],
    "knn": [
        Wrong("a column", near(end=lambda y: y[:, None]), "has shape"),
    ],
    "for_a_new_task": [
        Wrong(
            "one dtype",
            adapt(end=lambda new, s: {n: t.to(new["embed.position"].dtype) for n, t in new.items()}),
            "what keeps its dtype",
        ),
    ],
    "layer_rates": [
        Wrong("frozen", with_the_model(lambda model: model.embed.requires_grad_(False)), "requires_grad of embed"),
        Wrong("sets", rated(end=lambda groups, model: [g | {"params": set(g["params"])} for g in groups]), ""),
    ],
    "tune_head": [
        Wrong("weight alone", tuned(trained=lambda m: [m.head.weight]), ""),
        Wrong("a copy", a_copy, ""),
        Wrong("frozen", tuned(end=lambda model: model.requires_grad_(False)), "the head afterwards is frozen"),
    ],
}
