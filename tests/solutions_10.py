"""Submissions to the exercises of lesson 10: right ones, in different ways, and wrong ones by their mistake."""

import copy
import math
from collections import Counter, OrderedDict

import numpy as np
import torch
from sklearn.neighbors import KNeighborsClassifier
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


@torch.no_grad()
def features_by_steps(model, images):
    model.eval()
    z = model.embed(images)
    for block in model.blocks:
        z = block(z)
    return model.norm(z[:, 0])


def features_without_head(model, images):
    """A copy of the model without its head; the given one keeps its own, and its mode."""
    headless = copy.deepcopy(model).eval().requires_grad_(False)
    headless.head = nn.Identity()
    return headless(images)


def features_by_hook(model, images):
    """The head's input, caught on its way; the graph is cut off afterwards."""
    caught = []
    hook = model.head.register_forward_pre_hook(lambda head, inputs: caught.append(inputs[0]))
    training = model.training
    model.eval()(images)
    model.train(training)
    hook.remove()
    return caught[0].detach()


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


def knn_by_sklearn(A, a, B, k):
    A, B = (x.detach().numpy() for x in (A, B))
    return torch.from_numpy(KNeighborsClassifier(k, metric="cosine").fit(A, a).predict(B))


def knn_by_bincount(A, a, B, k):
    """Only the known vectors have length 1: the asked one's length changes no order."""
    near = (B @ F.normalize(A).T).topk(k).indices
    return torch.stack([torch.bincount(a[row]).argmax() for row in near])


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


def task_by_deepcopy(state, num_classes, old_grid, new_grid):
    """Nothing to do where the grid stays."""
    new = copy.deepcopy(state)
    new["head.weight"] = new["head.weight"].new_zeros((num_classes, new["head.weight"].shape[-1]))
    new["head.bias"] = 0 * torch.arange(num_classes).float()
    if old_grid != new_grid:
        new["embed.position"] = vt.resize_position_embedding(new["embed.position"], old_grid, new_grid, recipe="timm")
    return new


def rates_by_layer(model, rate, decay):
    layers = [model.embed, *model.blocks, nn.ModuleList([model.norm, model.head])]
    return [{"params": part.parameters(), "lr": rate * decay**k} for k, part in enumerate(reversed(layers))]


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


def tune_by_hand(model, images, labels, rate, decay, steps):
    """AdamW written out; the gradient of the head is (p - target)ᵀ y."""
    model.eval()
    with torch.no_grad():
        y = model.features(images)[:, 0]
        target = F.one_hot(labels, model.head.out_features)
        moments = [[torch.zeros_like(p), torch.zeros_like(p)] for p in model.head.parameters()]
        for step in range(1, steps + 1):
            slope = (model.head(y).softmax(dim=1) - target) / len(y)
            for p, g, (m, v) in zip(model.head.parameters(), (slope.T @ y, slope.sum(0)), moments, strict=True):
                m.mul_(0.9).add_(0.1 * g)
                v.mul_(0.999).add_(0.001 * g * g)
                p.mul_(1 - rate * decay)
                p.sub_(rate * m / (1 - 0.9**step) / ((v / (1 - 0.999**step)).sqrt() + 1e-8))


def features_cloned(model, images):
    """Frozen on the way, and put back."""
    model.eval().requires_grad_(False)
    y = model.features(images)[:, 0].clone()
    model.requires_grad_(True)
    return y


def features_to_numpy(model, images):
    with torch.no_grad():
        return model.eval().features(images).select(1, 0).double().numpy()


def knn_by_numpy(A, a, B, k):
    A, B = (x.numpy() / np.linalg.norm(x.numpy(), axis=1, keepdims=True) for x in (A, B))
    nearest = np.argsort(-(B @ A.T), axis=1)[:, :k]
    return np.array([np.bincount(a.numpy()[row]).argmax() for row in nearest], dtype=np.int32)


def knn_in_int32(A, a, B, k):
    return knn_by_mode(A, a, B, k).int()


def knn_at_once(A, a, B, k):
    cosines = F.cosine_similarity(B.double()[:, None], A.double()[None], dim=-1)
    votes = torch.zeros(len(B), int(a.max()) + 1)
    return votes.scatter_add(1, a[cosines.topk(k).indices], torch.ones(len(B), k)).argmax(1)


def task_with_parameters(state, num_classes, old_grid, new_grid):
    return {name: nn.Parameter(t.clone()) for name, t in task_by_hand(state, num_classes, old_grid, new_grid).items()}


def task_in_order(state, num_classes, old_grid, new_grid):
    """An OrderedDict, as state_dict() gives it, the head first."""
    new = task_by_package(state, num_classes, old_grid, new_grid)
    return OrderedDict(sorted(new.items(), key=lambda item: not item[0].startswith("head")))


def rates_with_generators(model, rate, decay):
    L = len(model.blocks)
    parts = [
        (model.embed, L + 1),
        *((block, L - i) for i, block in enumerate(model.blocks)),
        (model.norm, 0),
        (model.head, 0),
    ]
    return tuple({"params": part.parameters(), "lr": np.float64(rate * decay**k)} for part, k in parts)


def rates_bare(model, rate, decay):
    named = dict(model.named_parameters())
    down = {name: len(model.blocks) - int(name.split(".")[1]) if name.startswith("blocks") else 0 for name in named}
    down |= {name: len(model.blocks) + 1 for name in named if name.startswith("embed")}
    return [{"params": p, "lr": rate * decay ** down[name], "name": name} for name, p in named.items()]


def tune_with_closure(model, images, labels, rate, decay, steps):
    model.eval()
    adam = torch.optim.AdamW([{"params": [*model.head.parameters()]}], lr=rate, weight_decay=decay)

    def closure():
        adam.zero_grad()
        logs = model(images).log_softmax(-1)
        loss = -logs[torch.arange(len(labels)), labels].mean()
        loss.backward()
        return loss

    for _ in range(steps):
        adam.step(closure)


def tune_detached(model, images, labels, rate, decay, steps):
    """Whole forward passes, cut off before the head."""
    model.train(False)
    adam = torch.optim.AdamW(list(model.head.parameters()), rate, weight_decay=decay, foreach=False)
    for _ in range(steps):
        logits = model.head(model.features(images).detach()[:, 0])
        adam.zero_grad(set_to_none=False)
        nn.NLLLoss()(logits.log_softmax(1), labels).backward()
        adam.step()


SOLUTIONS = {
    "fine_tuning_numbers": (
        lambda: NUMBERS,
        lambda: (
            NUMBERS | {"cosines": np.array([8, 2, 6]) / (2 * np.array([5, 1, 10**0.5])), "first loss": math.log(12)}
        ),
        lambda: NUMBERS | {"standardised": torch.tensor([2.0, 4.0]), "rate": 0.3 * 5 / 10, "probe": np.int64(325)},
        lambda: {name: np.array(value) for name, value in NUMBERS.items()},
    ),
    "frozen_features": (
        features_by_inference_mode,
        features_by_steps,
        features_without_head,
        features_by_hook,
        features_cloned,
        features_to_numpy,
    ),
    "knn": (knn_by_loop, knn_by_mode, knn_by_sklearn, knn_by_bincount, knn_by_numpy, knn_in_int32, knn_at_once),
    "for_a_new_task": (task_by_package, task_by_hand, task_by_deepcopy, task_with_parameters, task_in_order),
    "layer_rates": (rates_by_layer, rates_by_name, rates_by_shrinking, rates_with_generators, rates_bare),
    "tune_head": (tune_by_features, tune_by_freezing, tune_by_hand, tune_with_closure, tune_detached),
}


# ---- Wrong ones --------------------------------------------------------------------------------------------------


def frozen(
    *,
    before=lambda model: model.eval(),
    take=lambda model, x: model.features(x)[:, 0],
    guard=torch.no_grad,
    after=lambda model, y: y,
):
    def frozen_features(model, images):
        before(model)
        with guard():
            y = take(model, images)
        return after(model, y)

    return frozen_features


def without_head(model, x):
    model.head = nn.Identity()
    return model(x)


def with_a_new_head(model, x):
    model.head = nn.Identity()
    y = model(x)
    model.head = nn.Linear(y.shape[1], 3)
    return y


def no_dropout_for_good(model):
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0


def head_of_zeros(model, x):
    with torch.no_grad():
        model.head.weight.zero_()
    return model.features(x)[:, 0]


def last_block_left_out(model, x):
    return model.norm(model.blocks[:-1](model.embed(x)))[:, 0]


WRONG_FEATURES = {
    "logits": frozen(take=lambda m, x: m(x)),
    "probabilities": frozen(take=lambda m, x: m(x).softmax(1)),
    "logits, in training mode": frozen(take=lambda m, x: m(x), before=lambda m: None),
    "training mode": frozen(before=lambda m: None),
    "train()": frozen(before=lambda m: m.train()),
    "gradients": frozen(guard=torch.enable_grad),
    "training mode and gradients": frozen(before=lambda m: None, guard=torch.enable_grad),
    "gradients switched off too late": frozen(guard=torch.enable_grad, after=lambda m, y: y.clone()),
    "requires_grad": frozen(after=lambda m, y: y.requires_grad_()),
    "frozen for good": frozen(before=lambda m: m.eval().requires_grad_(False), guard=torch.enable_grad),
    "frozen for good, without need": frozen(before=lambda m: m.eval().requires_grad_(False)),
    "one parameter frozen for good": frozen(before=lambda m: (m.eval(), m.embed.position.requires_grad_(False))),
    "before the norm": frozen(take=lambda m, x: m.blocks(m.embed(x))[:, 0]),
    "norm twice": frozen(take=lambda m, x: m.norm(m.features(x))[:, 0]),
    "norm of another": frozen(take=lambda m, x: m.blocks[-1].norm2(m.blocks(m.embed(x)))[:, 0]),
    "plain layer norm": frozen(take=lambda m, x: F.layer_norm(m.blocks(m.embed(x))[:, 0], (m.config.dim,))),
    "embedding": frozen(take=lambda m, x: m.norm(m.embed(x))[:, 0]),
    "embedding's tokens": frozen(take=lambda m, x: m.embed(x)[:, 0]),
    "last block left out": frozen(take=last_block_left_out),
    "mean of all": frozen(take=lambda m, x: m.features(x).mean(1)),
    "mean of patches": frozen(take=lambda m, x: m.features(x)[:, 1:].mean(1)),
    "max of all": frozen(take=lambda m, x: m.features(x).amax(1)),
    "sum of all": frozen(take=lambda m, x: m.features(x).sum(1)),
    "class token and mean": frozen(take=lambda m, x: torch.cat([m.features(x)[:, 0], m.features(x)[:, 1:].mean(1)], 1)),
    "all tokens": frozen(take=lambda m, x: m.features(x)),
    "patches": frozen(take=lambda m, x: m.features(x)[:, 1:]),
    "flat": frozen(take=lambda m, x: m.features(x).flatten(1)),
    "last token": frozen(take=lambda m, x: m.features(x)[:, -1]),
    "first patch": frozen(take=lambda m, x: m.features(x)[:, 1]),
    "first image": frozen(take=lambda m, x: m.features(x)[0]),
    "first image's class token": frozen(take=lambda m, x: m.features(x)[0, 0]),
    "first channel": frozen(take=lambda m, x: m.features(x)[..., 0]),
    "class token kept as an axis": frozen(take=lambda m, x: m.features(x)[:, :1]),
    "class token of zeros": frozen(take=lambda m, x: m.embed.cls_token[:, 0].expand(len(x), -1)),
    "head off": frozen(take=without_head),
    "another head": frozen(take=with_a_new_head),
    "head of zeros": frozen(take=head_of_zeros),
    "dropout off for good": frozen(before=no_dropout_for_good),
    "length 1": frozen(after=lambda m, y: F.normalize(y, dim=1)),
    "standardised": frozen(after=lambda m, y: (y - y.mean(0)) / (y.std(0, unbiased=False) + 1e-6)),
    "rounded": frozen(after=lambda m, y: y.round(decimals=2)),
    "lists": frozen(after=lambda m, y: [list(row) for row in y]),
    "eval too late": frozen(before=lambda m: None, after=lambda m, y: (m.eval(), y)[1]),
    "eval of the head": frozen(before=lambda m: m.head.eval()),
    "eval of the blocks": frozen(before=lambda m: m.blocks.eval()),
    "one image at a time, the first again and again": frozen(
        take=lambda m, x: torch.cat([m.features(x[:1])[:, 0] for _ in x])
    ),
    "no return": frozen(after=lambda m, y: None),
    "the model": frozen(after=lambda m, y: m),
    "pixels": frozen(take=lambda m, x: x.flatten(1)[:, : m.config.dim]),
}


def near(
    similar=lambda A, B: F.normalize(B, dim=1) @ F.normalize(A, dim=1).T,
    pick=lambda s, k: s.topk(k, dim=1).indices,
    vote=lambda labels: F.one_hot(labels).sum(1).argmax(1),
    end=lambda y: y,
):
    return lambda A, a, B, k: end(vote(a[pick(similar(A, B), k)]))


def by_weights(A, a, B, k):
    """Votes weighted by their cosines."""
    found = (F.normalize(B) @ F.normalize(A).T).topk(k)
    votes = torch.zeros(len(B), int(a.max()) + 1).scatter_add_(1, a[found.indices], found.values)
    return votes.argmax(1)


def by_centres(A, a, B, k):
    classes = a.unique()
    centres = torch.stack([A[a == c].mean(0) for c in classes])
    return classes[(F.normalize(B) @ F.normalize(centres).T).argmax(1)]


WRONG_KNN = {
    "dots": near(lambda A, B: B @ A.T),
    "distances": near(lambda A, B: -torch.cdist(B, A)),
    "distances, the farthest": near(lambda A, B: torch.cdist(B, A)),
    "city blocks": near(lambda A, B: -torch.cdist(B, A, p=1)),
    "absolute cosines": near(lambda A, B: (F.normalize(B) @ F.normalize(A).T).abs()),
    "columns": near(lambda A, B: F.normalize(B, dim=0) @ F.normalize(A, dim=0).T),
    "sum of 1": near(lambda A, B: F.normalize(B, p=1) @ F.normalize(A, p=1).T),
    "asked alone normed": near(lambda A, B: F.normalize(B) @ A.T),
    "standardised": near(lambda A, B: -torch.cdist((B - A.mean(0)) / A.std(0), (A - A.mean(0)) / A.std(0))),
    "correlation": near(
        lambda A, B: F.normalize(B - B.mean(1, keepdim=True)) @ F.normalize(A - A.mean(1, keepdim=True)).T
    ),
    "centred": near(lambda A, B: F.normalize(B - A.mean(0)) @ F.normalize(A - A.mean(0)).T),
    "farthest": near(pick=lambda s, k: s.topk(k, dim=1, largest=False).indices),
    "argsort upwards": near(pick=lambda s, k: s.argsort(dim=1)[:, :k]),
    "nearest left out": near(pick=lambda s, k: s.topk(k + 1, dim=1).indices[:, 1:]),
    "one neighbour": near(pick=lambda s, k: s.topk(1, dim=1).indices),
    "the k-th alone": near(pick=lambda s, k: s.topk(k, dim=1).indices[:, -1:]),
    "k + 1": near(pick=lambda s, k: s.topk(k + 1, dim=1).indices),
    "k - 1": near(pick=lambda s, k: s.topk(max(k - 1, 1), dim=1).indices),
    "three": near(pick=lambda s, k: s.topk(3, dim=1).indices),
    "all": near(pick=lambda s, k: s.topk(s.shape[1], dim=1).indices),
    "the first k": near(pick=lambda s, k: torch.arange(k).expand(len(s), -1)),
    "asked for known": near(pick=lambda s, k: s.T.topk(min(k, s.shape[0]), dim=1).indices),
    "topk of columns": near(pick=lambda s, k: s.topk(min(k, len(s)), dim=0).indices.T),
    "largest label": near(vote=lambda y: y.amax(1)),
    "smallest label": near(vote=lambda y: y.amin(1)),
    "mean label": near(vote=lambda y: y.float().mean(1).round().long()),
    "mean label, cut": near(vote=lambda y: y.float().mean(1).long()),
    "median label": near(vote=lambda y: y.median(1).values),
    "first label": near(vote=lambda y: y[:, 0]),
    "last label": near(vote=lambda y: y[:, -1]),
    "counts": near(vote=lambda y: F.one_hot(y).sum(1).amax(1)),
    "rarest": near(vote=lambda y: F.one_hot(y).sum(1).masked_fill(F.one_hot(y).sum(1) == 0, 99).argmin(1)),
    "argmin": near(vote=lambda y: F.one_hot(y).sum(1).argmin(1)),
    "votes over the batch": near(vote=lambda y: F.one_hot(y).sum((0, 1)).argmax().expand(len(y))),
    "one for all": near(vote=lambda y: torch.bincount(y.flatten()).argmax()),
    "mode of columns": near(vote=lambda y: y.mode(0).values),
    "mode's indices": near(vote=lambda y: y.mode(1).indices),
    "labels of all": near(vote=lambda y: y),
    "shares": near(vote=lambda y: F.one_hot(y).float().mean(1)),
    "places": lambda A, a, B, k: (F.normalize(B) @ F.normalize(A).T).topk(k).indices[:, 0],
    "places voted": lambda A, a, B, k: F.one_hot((F.normalize(B) @ F.normalize(A).T).topk(k).indices).sum(1).argmax(1),
    "cosines": lambda A, a, B, k: (F.normalize(B) @ F.normalize(A).T).topk(k).values.mean(1),
    "known and asked exchanged": lambda A, a, B, k: near()(B, torch.arange(len(B)) % 3, A, min(k, len(B))),
    "weighted votes": by_weights,
    "centres": by_centres,
    "floats": near(end=lambda y: y.float()),
    "a column": near(end=lambda y: y[:, None]),
    "one-hot": near(end=lambda y: F.one_hot(y)),
    "counted from 1": near(end=lambda y: y + 1),
    "texts": near(end=lambda y: [str(int(i)) for i in y]),
    "first asked": near(end=lambda y: y[:1]),
    "no return": lambda *a: None,
    "random": lambda A, a, B, k: a[torch.randint(len(a), (len(B),))],
    "no normalisation for k = 1": lambda A, a, B, k: (
        near()(A, a, B, k) if k > 1 else near(lambda A, B: B @ A.T)(A, a, B, k)
    ),
}


def adapt(
    *,
    head=lambda state, K, D: {"head.weight": torch.zeros(K, D), "head.bias": torch.zeros(K)},
    position=lambda p, old, new: vt.resize_position_embedding(p, old, new),
    body=lambda state: {name: t for name, t in state.items() if not name.startswith("head.")},
    end=lambda new, state: new,
):
    def for_a_new_task(state, num_classes, old_grid, new_grid):
        new = body(state) | head(state, num_classes, state["norm.weight"].shape[0])
        return end(new | {"embed.position": position(state["embed.position"], old_grid, new_grid)}, state)

    return for_a_new_task


def resized(p, old, new, *, keep=1, **how):
    maps = p[:, keep:].unflatten(1, old).permute(0, 3, 1, 2)
    maps = F.interpolate(maps, new, **{"mode": "bicubic", "antialias": True} | how)
    return torch.cat([p[:, :keep], maps.flatten(2).transpose(1, 2)], dim=1)


def mixed_up(p, old, new):
    """A reshape to (1, D, rows, columns) in place of a permute."""
    maps = p[:, 1:].reshape(1, -1, *old)
    maps = F.interpolate(maps, new, mode="bicubic", antialias=True)
    return torch.cat([p[:, :1], maps.reshape(1, new[0] * new[1], -1)], dim=1)


def filled_down(p, old, new):
    maps = p[:, 1:].unflatten(1, old).permute(0, 3, 1, 2)
    maps = F.interpolate(maps, new, mode="bicubic", antialias=True)
    return torch.cat([p[:, :1], maps.transpose(2, 3).flatten(2).transpose(1, 2)], dim=1)


def cut_or_filled(p, old, new):
    count = 1 + new[0] * new[1]
    return torch.cat([p, p.new_zeros(1, max(0, count - p.shape[1]), p.shape[2])], 1)[:, :count]


def in_place(state, num_classes, old_grid, new_grid):
    state.update(task_by_package(state, num_classes, old_grid, new_grid))
    return state


def tensors_in_place(state, num_classes, old_grid, new_grid):
    """The dictionary is new, its tensors are the old ones."""
    new = dict(state)
    new["head.weight"].zero_()
    new["head.bias"].zero_()
    return task_by_package(state, num_classes, old_grid, new_grid)


def zeroed(state, num_classes, old_grid, new_grid):
    """The old head, zeroed in place, whatever the number of classes."""
    new = task_by_package(state, num_classes, old_grid, new_grid)
    new["head.weight"], new["head.bias"] = state["head.weight"].zero_(), state["head.bias"].zero_()
    return new


def popped(state, num_classes, old_grid, new_grid):
    new = task_by_package(state, num_classes, old_grid, new_grid)
    del state["head.weight"], state["head.bias"]
    return new


WRONG_TASK = {
    "random head": adapt(head=lambda s, K, D: nn.Linear(D, K).state_dict(prefix="head.")),
    "random weights": adapt(head=lambda s, K, D: {"head.weight": torch.randn(K, D), "head.bias": torch.zeros(K)}),
    "small random weights": adapt(
        head=lambda s, K, D: {"head.weight": 0.02 * torch.randn(K, D), "head.bias": torch.zeros(K)}
    ),
    "random bias": adapt(head=lambda s, K, D: {"head.weight": torch.zeros(K, D), "head.bias": torch.randn(K)}),
    "ones": adapt(head=lambda s, K, D: {"head.weight": torch.ones(K, D), "head.bias": torch.zeros(K)}),
    "bias of ones": adapt(head=lambda s, K, D: {"head.weight": torch.zeros(K, D), "head.bias": torch.ones(K)}),
    "old head": adapt(head=lambda s, K, D: {n: t for n, t in s.items() if n.startswith("head.")}),
    "old head, zeroed": zeroed,
    "old head of zeros, old size": adapt(
        head=lambda s, K, D: {n: torch.zeros_like(t) for n, t in s.items() if n.startswith("head.")}
    ),
    "old rows": adapt(
        head=lambda s, K, D: {"head.weight": s["head.weight"].repeat(4, 1)[:K], "head.bias": torch.zeros(K)}
    ),
    "mean of the old rows": adapt(
        head=lambda s, K, D: {"head.weight": s["head.weight"].mean(0).expand(K, -1), "head.bias": torch.zeros(K)}
    ),
    "old bias": adapt(head=lambda s, K, D: {"head.weight": torch.zeros(K, D), "head.bias": s["head.bias"]}),
    "old weight": adapt(head=lambda s, K, D: {"head.weight": s["head.weight"], "head.bias": torch.zeros(K)}),
    "bias forgotten": adapt(head=lambda s, K, D: {"head.weight": torch.zeros(K, D), "head.bias": s["head.bias"]}),
    "on its side": adapt(head=lambda s, K, D: {"head.weight": torch.zeros(D, K), "head.bias": torch.zeros(K)}),
    "bias of D": adapt(head=lambda s, K, D: {"head.weight": torch.zeros(K, D), "head.bias": torch.zeros(D)}),
    "bias as a row": adapt(head=lambda s, K, D: {"head.weight": torch.zeros(K, D), "head.bias": torch.zeros(1, K)}),
    "K + 1": adapt(head=lambda s, K, D: {"head.weight": torch.zeros(K + 1, D), "head.bias": torch.zeros(K + 1)}),
    "no head": adapt(head=lambda s, K, D: {}),
    "no bias": adapt(head=lambda s, K, D: {"head.weight": torch.zeros(K, D)}),
    "other names": adapt(head=lambda s, K, D: {"head": torch.zeros(K, D)}),
    "other names, too": adapt(head=lambda s, K, D: {"fc.weight": torch.zeros(K, D), "fc.bias": torch.zeros(K)}),
    "a number": adapt(head=lambda s, K, D: {"head.weight": 0, "head.bias": 0}),
    "old grid": adapt(position=lambda p, old, new: p),
    "cut or filled": adapt(position=cut_or_filled),
    "class token along": adapt(position=lambda p, old, new: F.interpolate(p.mT, 1 + new[0] * new[1], mode="linear").mT),
    "a line": adapt(
        position=lambda p, old, new: torch.cat(
            [p[:, :1], F.interpolate(p[:, 1:].mT, new[0] * new[1], mode="linear").mT], 1
        )
    ),
    "grid exchanged": adapt(position=lambda p, old, new: vt.resize_position_embedding(p, old[::-1], new[::-1])),
    "old grid exchanged": adapt(position=lambda p, old, new: resized(p, old[::-1], new)),
    "new grid exchanged": adapt(position=lambda p, old, new: resized(p, old, new[::-1])),
    "grids exchanged": adapt(position=lambda p, old, new: vt.resize_position_embedding(p, new, old)),
    "corners": adapt(position=lambda p, old, new: resized(p, old, new, antialias=False, align_corners=True)),
    "no antialias": adapt(position=lambda p, old, new: resized(p, old, new, antialias=False)),
    "bilinear": adapt(position=lambda p, old, new: resized(p, old, new, mode="bilinear")),
    "bilinear, no antialias": adapt(
        position=lambda p, old, new: resized(p, old, new, mode="bilinear", antialias=False)
    ),
    "nearest": adapt(position=lambda p, old, new: resized(p, old, new, mode="nearest", antialias=False)),
    "area": adapt(position=lambda p, old, new: resized(p, old, new, mode="area", antialias=False)),
    "another recipe": adapt(
        position=lambda p, old, new: vt.resize_position_embedding(p, old, new, recipe="torchvision")
    ),
    "zeros": adapt(position=lambda p, old, new: p.new_zeros(1, 1 + new[0] * new[1], p.shape[2])),
    "random positions": adapt(position=lambda p, old, new: 0.02 * torch.randn(1, 1 + new[0] * new[1], p.shape[2])),
    "class position zeroed": adapt(
        position=lambda p, old, new: torch.cat([torch.zeros_like(p[:, :1]), resized(p, old, new)[:, 1:]], 1)
    ),
    "class position last": adapt(position=lambda p, old, new: resized(p, old, new).roll(-1, 1)),
    "class position lost": adapt(position=lambda p, old, new: resized(p, old, new)[:, 1:]),
    "class position the patches' mean": adapt(
        position=lambda p, old, new: torch.cat([p[:, 1:].mean(1, keepdim=True), resized(p, old, new)[:, 1:]], 1)
    ),
    "class position taken for the last": adapt(
        position=lambda p, old, new: torch.cat([resized(p.flip(1), old, new)[:, 1:].flip(1), p[:, -1:]], 1)
    ),
    "mixed up": adapt(position=mixed_up),
    "filled down": adapt(position=filled_down),
    "scaled": adapt(position=lambda p, old, new: resized(p, old, new) * (old[0] / new[0])),
    "two axes": adapt(position=lambda p, old, new: resized(p, old, new)[0]),
    "others zeroed": adapt(body=lambda s: {n: torch.zeros_like(t) for n, t in s.items() if "head" not in n}),
    "norm forgotten": adapt(body=lambda s: {n: t for n, t in s.items() if "head" not in n and n != "norm.weight"}),
    "class token zeroed": adapt(end=lambda new, s: new | {"embed.cls_token": torch.zeros_like(s["embed.cls_token"])}),
    "patches zeroed": adapt(
        end=lambda new, s: new | {"embed.patches.proj.weight": torch.zeros_like(s["embed.patches.proj.weight"])}
    ),
    "changed entries alone": adapt(body=lambda s: {}),
    "in place": in_place,
    "tensors in place": tensors_in_place,
    "popped": popped,
    "a pair": adapt(end=lambda new, s: (new, s)),
    "a list": adapt(end=lambda new, s: list(new.items())),
    "no return": adapt(end=lambda new, s: None),
    "lists in it": adapt(end=lambda new, s: {n: t.tolist() for n, t in new.items()}),
    "a prefix": adapt(end=lambda new, s: {f"model.{n}": t for n, t in new.items()}),
    "more": adapt(end=lambda new, s: new | {"num_classes": torch.tensor(3)}),
}


def rated(
    down=lambda name, depth: (
        depth - int(name.split(".")[1]) if name.startswith("blocks.") else depth + 1 if name.startswith("embed.") else 0
    ),
    shrink=lambda decay, k: decay**k,
    scale=lambda rate: rate,
    end=lambda groups, model: groups,
):
    """A group a parameter, its rate by a rule; None: in no group."""

    def layer_rates(model, rate, decay):
        rules = [(p, down(name, len(model.blocks))) for name, p in model.named_parameters()]
        return end([{"params": [p], "lr": scale(rate) * shrink(decay, k)} for p, k in rules if k is not None], model)

    return layer_rates


def steps_down(change):
    """Somebody's number of layers: of the name, the right number and the depth."""

    def down(name, depth):
        right = depth + 1 if name.startswith("embed.") else 0
        right = depth - int(name.split(".")[1]) if name.startswith("blocks.") else right
        return change(name, right, depth)

    return down


def is_block(name):
    return name.startswith("blocks.")


WRONG_RATES = {
    "reversed": rated(steps_down(lambda name, k, L: L + 1 - k)),
    "blocks from below": rated(steps_down(lambda name, k, L: L + 1 - k if is_block(name) else k)),
    "blocks from below, by number": rated(steps_down(lambda name, k, L: L - k if is_block(name) else k)),
    "blocks by number + 1": rated(steps_down(lambda name, k, L: L - k + 1 if is_block(name) else k)),
    "last block at the head's": rated(steps_down(lambda name, k, L: max(k - 1, 0))),
    "blocks one too high": rated(steps_down(lambda name, k, L: k - 1 if is_block(name) else k)),
    "blocks one too low": rated(steps_down(lambda name, k, L: k + 1 if is_block(name) else k)),
    "everything below one too low": rated(steps_down(lambda name, k, L: k + 1 if k else k)),
    "embedding at block 0's": rated(steps_down(lambda name, k, L: min(k, L))),
    "embedding at the head's": rated(steps_down(lambda name, k, L: 0 if name.startswith("embed") else k)),
    "embedding one too low": rated(steps_down(lambda name, k, L: k + 1 if name.startswith("embed") else k)),
    "embedding frozen": rated(steps_down(lambda name, k, L: k), shrink=lambda decay, k: decay**k),
    "class token and positions at the head's": rated(
        steps_down(lambda name, k, L: 0 if name in ("embed.cls_token", "embed.position") else k)
    ),
    "class token and positions in no group": rated(
        steps_down(lambda name, k, L: None if name in ("embed.cls_token", "embed.position") else k)
    ),
    "class token in no group": rated(steps_down(lambda name, k, L: None if name == "embed.cls_token" else k)),
    "positions in no group": rated(steps_down(lambda name, k, L: None if name == "embed.position" else k)),
    "norm at the embedding's": rated(steps_down(lambda name, k, L: L + 1 if name.startswith("norm.") else k)),
    "norm one below": rated(steps_down(lambda name, k, L: 1 if name.startswith("norm.") else k)),
    "norm in no group": rated(steps_down(lambda name, k, L: None if name.startswith("norm.") else k)),
    "embedding in no group": rated(steps_down(lambda name, k, L: None if name.startswith("embed.") else k)),
    "head in no group": rated(steps_down(lambda name, k, L: None if name.startswith("head.") else k)),
    "blocks in no group": rated(steps_down(lambda name, k, L: None if is_block(name) else k)),
    "last block in no group": rated(steps_down(lambda name, k, L: None if is_block(name) and k == 1 else k)),
    "first block in no group": rated(steps_down(lambda name, k, L: None if is_block(name) and k == L else k)),
    "biases in no group": rated(steps_down(lambda name, k, L: None if name.endswith("bias") else k)),
    "biases at the head's": rated(steps_down(lambda name, k, L: 0 if name.endswith("bias") else k)),
    "head decayed": rated(steps_down(lambda name, k, L: k + 1)),
    "head alone decayed": rated(steps_down(lambda name, k, L: 1 if name.startswith("head.") else k)),
    "head and norm decayed": rated(steps_down(lambda name, k, L: k or 1)),
    "head's bias decayed": rated(steps_down(lambda name, k, L: 1 if name == "head.bias" else k)),
    "one rate for the encoder": rated(steps_down(lambda name, k, L: min(k, 1))),
    "one rate for the blocks": rated(steps_down(lambda name, k, L: 1 if is_block(name) else k and 2)),
    "the same everywhere": rated(lambda name, depth: 0),
    "power twice": rated(shrink=lambda decay, k: decay ** (2 * k)),
    "product": rated(shrink=lambda decay, k: decay * k if k else 1.0),
    "product plus 1": rated(shrink=lambda decay, k: decay * (k + 1)),
    "division": rated(shrink=lambda decay, k: decay**-k),
    "by the layer": rated(shrink=lambda decay, k: 1 / (k + 1)),
    "subtracted": rated(shrink=lambda decay, k: 1 - decay * k),
    "minus a power": rated(shrink=lambda decay, k: 1 - decay**k if k else 1.0),
    "1 - decay": rated(shrink=lambda decay, k: (1 - decay) ** k),
    "an exponential": rated(shrink=lambda decay, k: math.exp(-decay * k)),
    "rate left out": rated(scale=lambda rate: 1.0),
    "rate to the power": rated(scale=lambda rate: rate**2),
    "decay alone, never the rate": rated(scale=lambda rate: 1e-3),
    "first digit": rated(
        steps_down(lambda name, k, L: k)
        if False
        else lambda name, depth: (
            depth - int(name.split(".")[1][0])
            if name.startswith("blocks.")
            else depth + 1
            if name.startswith("embed.")
            else 0
        )
    ),
    "twelve layers, whatever": rated(
        lambda name, depth: (
            12 - int(name.split(".")[1]) if name.startswith("blocks.") else 13 if name.startswith("embed.") else 0
        )
    ),
    "linear": rated(
        lambda name, depth: steps_down(lambda n, k, L: k)(name, depth),
        shrink=lambda decay, k: max(0, 1 - (1 - decay) * k),
    ),
    "names": rated(
        end=lambda groups, model: [
            g | {"params": [n]} for g, (n, _) in zip(groups, model.named_parameters(), strict=True)
        ]
    ),
    "copies": rated(end=lambda groups, model: [g | {"params": [p.clone() for p in g["params"]]} for g in groups]),
    "modules": lambda model, rate, decay: [{"params": [model.head], "lr": rate}],
    "twice": rated(end=lambda groups, model: [*groups, {"params": list(model.head.parameters()), "lr": 1.0}]),
    "everything beside": rated(end=lambda groups, model: [*groups, {"params": list(model.parameters()), "lr": 1.0}]),
    "no lr": rated(end=lambda groups, model: [{"params": g["params"]} for g in groups]),
    "another key": rated(end=lambda groups, model: [{"params": g["params"], "rate": g["lr"]} for g in groups]),
    "learning_rate": rated(
        end=lambda groups, model: [{"params": g["params"], "learning_rate": g["lr"]} for g in groups]
    ),
    "a dictionary": rated(end=lambda groups, model: dict(enumerate(groups))),
    "pairs": rated(end=lambda groups, model: [(g["params"], g["lr"]) for g in groups]),
    "an optimiser": rated(end=lambda groups, model: torch.optim.AdamW(groups)),
    "rates alone": rated(end=lambda groups, model: [g["lr"] for g in groups]),
    "one group": rated(end=lambda groups, model: groups[0]),
    "no return": lambda *a: None,
    "a text": rated(end=lambda groups, model: [g | {"lr": f"{g['lr']}"} for g in groups]),
}
del WRONG_RATES["embedding frozen"]


def tuned(
    *,
    trained=lambda model: model.head.parameters(),
    mode=lambda model: model.eval(),
    make=torch.optim.AdamW,
    settings=lambda rate, decay: {"lr": rate, "weight_decay": decay},
    criterion=F.cross_entropy,
    start=lambda model: None,
    count=lambda steps: steps,
    rows=lambda step, n: slice(None),
    clear=lambda adam, model, when: model.zero_grad(),
    held=lambda model: None,
    end=lambda model: None,
    forward=lambda model, x: model(x),
):
    def tune_head(model, images, labels, rate, decay, steps):
        mode(model)
        start(model)
        adam = make(list(trained(model)), **settings(rate, decay))
        model.zero_grad()
        for step in range(count(steps)):
            clear(adam, model, step)
            part = rows(step, len(images))
            criterion(forward(model, images[part]), labels[part]).backward()
            held(model)
            adam.step()
        end(model)
        return model

    return tune_head


def zeroed_gradients(model):
    for name, p in model.named_parameters():
        if not name.startswith("head.") and p.grad is not None:
            p.grad.zero_()


def zero_head(model):
    nn.init.zeros_(model.head.weight)
    nn.init.zeros_(model.head.bias)


def new_head(model):
    model.head = nn.Linear(model.head.in_features, model.head.out_features)


def schedule_of_its_own(model, images, labels, rate, decay, steps):
    model.eval()
    adam = torch.optim.AdamW(model.head.parameters(), lr=rate, weight_decay=decay)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(adam, steps)
    for _ in range(steps):
        adam.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        adam.step()
        cosine.step()


def new_adam_each_step(model, images, labels, rate, decay, steps):
    model.eval()
    for _ in range(steps):
        adam = torch.optim.AdamW(model.head.parameters(), lr=rate, weight_decay=decay)
        adam.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        adam.step()


def encoder_put_back(model, images, labels, rate, decay, steps):
    """Trains all, and puts the encoder back at the end: the head was trained on other features."""
    before = copy.deepcopy(model.state_dict())
    tuned(trained=lambda m: m.parameters())(model, images, labels, rate, decay, steps)
    head = {name: t for name, t in model.state_dict().items() if name.startswith("head.")}
    model.load_state_dict(before | {name: t.clone() for name, t in head.items()})


def a_copy(model, images, labels, rate, decay, steps):
    return tuned()(copy.deepcopy(model), images, labels, rate, decay, steps)


def features_with_dropout(model, images, labels, rate, decay, steps):
    """The features once, in training mode."""
    with torch.no_grad():
        y = model.features(images)[:, 0]
    adam = torch.optim.AdamW(model.head.parameters(), lr=rate, weight_decay=decay)
    for _ in range(steps):
        adam.zero_grad()
        F.cross_entropy(model.head(y), labels).backward()
        adam.step()


def by_features(take):
    def tune_head(model, images, labels, rate, decay, steps):
        model.eval()
        with torch.no_grad():
            y = take(model, images)
        adam = torch.optim.AdamW(model.head.parameters(), lr=rate, weight_decay=decay)
        for _ in range(steps):
            adam.zero_grad()
            F.cross_entropy(model.head(y), labels).backward()
            adam.step()

    return tune_head


WRONG_TUNE = {
    "all": tuned(trained=lambda m: m.parameters()),
    "all, in training": tuned(trained=lambda m: m.parameters(), mode=lambda m: m.train()),
    "all, gradients zeroed": tuned(trained=lambda m: m.parameters(), held=zeroed_gradients),
    "norm, too": tuned(trained=lambda m: [*m.norm.parameters(), *m.head.parameters()]),
    "last block, too": tuned(trained=lambda m: [*m.blocks[-1].parameters(), *m.head.parameters()]),
    "embedding, too": tuned(trained=lambda m: [*m.embed.parameters(), *m.head.parameters()]),
    "all but the blocks": tuned(trained=lambda m: [p for n, p in m.named_parameters() if not n.startswith("blocks")]),
    "the encoder alone": tuned(trained=lambda m: [p for n, p in m.named_parameters() if not n.startswith("head")]),
    "weight alone": tuned(trained=lambda m: [m.head.weight]),
    "bias alone": tuned(trained=lambda m: [m.head.bias]),
    "in training": tuned(mode=lambda m: m.train()),
    "mode as it was": tuned(mode=lambda m: None),
    "features with dropout": features_with_dropout,
    "in training, zero head": tuned(mode=lambda m: m.train(), start=zero_head),
    "eval of the head": tuned(mode=lambda m: m.head.eval()),
    "train after the first step": tuned(clear=lambda adam, m, step: (m.zero_grad(), m.train(step > 0))),
    "zero head": tuned(start=zero_head),
    "new head": tuned(start=new_head),
    "reset head": tuned(start=lambda m: m.head.reset_parameters()),
    "gradients pile up": tuned(clear=lambda adam, m, step: None),
    "zero_grad behind backward": tuned(held=lambda m: m.zero_grad(set_to_none=False)),
    "adam": tuned(make=torch.optim.Adam),
    "sgd": tuned(make=torch.optim.SGD),
    "sgd with momentum": tuned(make=lambda ps, **s: torch.optim.SGD(ps, momentum=0.9, **s)),
    "rmsprop": tuned(make=torch.optim.RMSprop),
    "other betas": tuned(make=lambda ps, **s: torch.optim.AdamW(ps, betas=(0.9, 0.95), **s)),
    "larger eps": tuned(make=lambda ps, **s: torch.optim.AdamW(ps, eps=1e-4, **s)),
    "default decay": tuned(settings=lambda rate, decay: {"lr": rate}),
    "no decay": tuned(settings=lambda rate, decay: {"lr": rate, "weight_decay": 0.0}),
    "decay of the weight alone": tuned(
        trained=lambda m: m.head.parameters(),
        make=lambda ps, lr, weight_decay: torch.optim.AdamW(
            [{"params": ps[:1], "weight_decay": weight_decay}, {"params": ps[1:], "weight_decay": 0.0}], lr=lr
        ),
    ),
    "default rate": tuned(settings=lambda rate, decay: {"weight_decay": decay}),
    "rate and decay exchanged": tuned(settings=lambda rate, decay: {"lr": decay, "weight_decay": rate}),
    "a tenth of the rate": tuned(settings=lambda rate, decay: {"lr": rate / 10, "weight_decay": decay}),
    "sum": tuned(criterion=lambda z, y: F.cross_entropy(z, y, reduction="sum")),
    "sum by hand": tuned(criterion=lambda z, y: -z.log_softmax(1).gather(1, y[:, None]).sum()),
    "divided by the classes": tuned(criterion=lambda z, y: F.cross_entropy(z, y, reduction="sum") / z.shape[1]),
    "mean divided by n": tuned(criterion=lambda z, y: F.cross_entropy(z, y) / len(z)),
    "doubled": tuned(criterion=lambda z, y: 2 * F.cross_entropy(z, y)),
    "softmax": tuned(criterion=lambda z, y: F.cross_entropy(z.softmax(1), y)),
    "smoothing": tuned(criterion=lambda z, y: F.cross_entropy(z, y, label_smoothing=0.1)),
    "squares": tuned(criterion=lambda z, y: (z - F.one_hot(y, z.shape[1])).square().mean()),
    "binary": tuned(criterion=lambda z, y: F.binary_cross_entropy_with_logits(z, F.one_hot(y, z.shape[1]).float())),
    "nll of softmax": tuned(criterion=lambda z, y: F.nll_loss(z.softmax(1), y)),
    "nll of logits": tuned(criterion=lambda z, y: F.nll_loss(z, y)),
    "minus": tuned(criterion=lambda z, y: -F.cross_entropy(z, y)),
    "one step": tuned(count=lambda steps: 1),
    "one step too few": tuned(count=lambda steps: steps - 1),
    "one step too many": tuned(count=lambda steps: steps + 1),
    "a hundred steps": tuned(count=lambda steps: 100),
    "no step": tuned(count=lambda steps: 0),
    "first image": tuned(rows=lambda step, n: slice(1)),
    "an image a step": tuned(rows=lambda step, n: slice(step % n, step % n + 1)),
    "first half": tuned(rows=lambda step, n: slice(n // 2)),
    "labels reversed": tuned(criterion=lambda z, y: F.cross_entropy(z, y.flip(0))),
    "mean of tokens": by_features(lambda m, x: m.features(x).mean(1)),
    "mean of patches": by_features(lambda m, x: m.features(x)[:, 1:].mean(1)),
    "before the norm": by_features(lambda m, x: m.blocks(m.embed(x))[:, 0]),
    "last token": by_features(lambda m, x: m.features(x)[:, -1]),
    "normed features": by_features(lambda m, x: F.normalize(m.features(x)[:, 0], dim=1)),
    "standardised features": by_features(
        lambda m, x: (m.features(x)[:, 0] - m.features(x)[:, 0].mean(0)) / (m.features(x)[:, 0].std(0) + 1e-6)
    ),
    "a schedule": schedule_of_its_own,
    "new adam": new_adam_each_step,
    "clipped": tuned(held=lambda m: nn.utils.clip_grad_norm_(m.parameters(), 1.0)),
    "clipped a little": tuned(held=lambda m: nn.utils.clip_grad_norm_(m.head.parameters(), 0.1)),
    "put back": encoder_put_back,
    "a copy": a_copy,
    "no backward": lambda model, *a: model.eval(),
    "head frozen": tuned(mode=lambda m: m.eval().requires_grad_(False)),
    "no grad": lambda *a: torch.no_grad()(tuned())(*a),
}

BY_LABEL = {
    "fine_tuning_numbers": {
        f"{key}: {value}": (lambda key=key, value=value: NUMBERS | {key: value})
        for key, values in {
            "cosines": [
                [8, 2, 6],
                [1.6, 2, 1.9],
                [3.61, 1, 1.41],
                [0.8, 1],
                [0.6, 0, -0.32],
                [0.64, 1, 0.9],
                [1, 0.8, 0.95],
                [0.2, 0, 0.05],
                [0.8, 1.0, -0.95],
                0.8,
                [0.8, 1, 0.6],
                [36.87, 0, 18.43],
                [4, 1, 3],
                [0.8, 0.5, 0.95],
            ],
            "standardised": [
                [-1, 1],
                [-0.28, 1.39],
                [8, 12],
                [4, 8],
                [0.5, 2.5],
                [1, 3],
                [4, 6],
                [2, 6],
                [-1, 1, 2, 4],
                3,
                [2, 3],
            ],
            "first loss": [0, 3.58, 0.083, 1.08, 12, -2.48, 1, 2.3, 2.77, 0.08],
            "row of the gradient": [
                [0, 0],
                [2.25, -0.75],
                [0.75, -0.25],
                [3, -1],
                [-3, 1],
                [-0.75, 0.25],
                [0.25, -0.75],
                [-0.75],
                [-2.25, -0.75],
                [-2, 0.67],
                [-9, 3],
                -2.25,
            ],
            "probe": [320, 64, 69, 5, 65, 128, 384, 330, 384, 325.5],
            "positions": [144, 65, 64, 12, 13, 97, 9216, 143, 146, 81],
            "rate": [0.12, 0.3, 0.18, 0.075, 0.03, 1.2, 0.5, 0.4, 1.5, 0.27, 0.6],
        }.items()
        for value in values
    },
    "frozen_features": WRONG_FEATURES,
    "knn": WRONG_KNN,
    "for_a_new_task": WRONG_TASK,
    "layer_rates": WRONG_RATES,
    "tune_head": WRONG_TUNE,
}


# What the check calls the mistake of a wrong submission; one that isn't listed must not be given a name.
NAMES = {
    "fine_tuning_numbers": {
        "cosines: [8, 2, 6]": "dot products in place of cosines",
        "cosines: [1.6, 2, 1.9]": "a product divided by one of two lengths",
        "cosines: [3.61, 1, 1.41]": "distances in place of cosines",
        "standardised: [-1, 1]": "the test features' own statistics",
        "first loss: 0": "a loss of zero",
        "first loss: 3.58": "a logarithm to another base",
        "first loss: 0.083": "a probability in place of a loss",
        "first loss: 0.08": "a probability in place of a loss",
        "row of the gradient: [0, 0]": "a head of zeros that cannot learn",
        "row of the gradient: [2.25, -0.75]": "a gradient with the wrong sign",
        "row of the gradient: [0.75, -0.25]": "the row of a class that isn't true",
        "probe: 320": "the biases forgotten",
        "positions: 144": "the class token's position forgotten",
        "positions: 65": "positions counted on the old grid",
        "rate: 0.12": "a warm-up that begins at zero",
        "rate: 0.3": "the peak from the first step on",
    },
    "frozen_features": {
        "logits": "logits in place of features",
        "probabilities": "probabilities in place of features",
        "training mode": "a model in training mode",
        "train()": "a model in training mode",
        "gradients": "gradients that flow into a frozen model",
        "training mode and gradients": "a model in training mode whose gradients flow",
        "gradients switched off too late": "gradients that flow into a frozen model",
        "requires_grad": "gradients that flow into a frozen model",
        "frozen for good": "a model that stays frozen",
        "frozen for good, without need": "a model that stays frozen",
        "before the norm": "the class token before the last norm",
        "norm twice": "a norm taken twice",
        "embedding": "tokens that have passed no block",
        "last block left out": "the last block left out",
        "mean of all": "a mean over all tokens",
        "mean of patches": "a mean over the patches",
        "max of all": "a maximum over all tokens",
        "sum of all": "a sum over all tokens",
        "all tokens": "every token",
        "last token": "the last token",
        "first patch": "the first patch",
        "head off": "a head taken off for good",
        "another head": "another head than before",
        "dropout off for good": "dropout that is switched off for good",
        "length 1": "features brought to length 1",
        "eval too late": "a model in training mode",
        "eval of the head": "a model in training mode",
        "one image at a time, the first again and again": "the first image's features for all",
    },
    "knn": {
        "dots": "dot products in place of cosines",
        "distances": "distances in place of cosines",
        "city blocks": "city-block distances",
        "absolute cosines": "absolute values of the cosines",
        "columns": "lengths taken down the columns",
        "sum of 1": "vectors brought to a sum of 1",
        "asked alone normed": "dot products in place of cosines",
        "standardised": "standardised features",
        "correlation": "correlations",
        "centred": "features centred first",
        "farthest": "the farthest in place of the nearest",
        "argsort upwards": "the farthest in place of the nearest",
        "nearest left out": "the nearest neighbour left out",
        "one neighbour": "one neighbour, whatever k",
        "the k-th alone": "the k-th neighbour alone",
        "k + 1": "one neighbour too many",
        "k - 1": "one neighbour too few",
        "three": "three neighbours, whatever k",
        "all": "all known pictures",
        "the first k": "the first k pictures",
        "largest label": "the largest label",
        "smallest label": "the smallest label",
        "mean label": "a mean of labels",
        "mean label, cut": "a mean of labels, cut off",
        "median label": "a median of labels",
        "first label": "one neighbour, whatever k",
        "last label": "the k-th neighbour alone",
        "counts": "a vote count in place of a label",
        "argmin": "the rarest label",
        "votes over the batch": "one answer for all",
        "mode's indices": "a place among the neighbours in place of a label",
        "places": "the number of the nearest picture",
        "places voted": "a picture's number in place of its label",
        "weighted votes": "votes weighted by their cosines",
        "centres": "class centres in place of neighbours",
        "counted from 1": "labels counted from 1",
    },
    "for_a_new_task": {
        "ones": "a head of ones",
        "old head": "the old head",
        "old head of zeros, old size": "a head of zeros for the old classes",
        "old bias": "the old head's bias",
        "old weight": "the old head's weight",
        "bias forgotten": "the old head's bias",
        "on its side": "a head lying on its side",
        "bias of D": "a bias as wide as the features",
        "no head": "no head at all",
        "no bias": "a head without a bias",
        "old grid": "positions of the old grid",
        "cut or filled": "the positions cut off, or filled up with zeros",
        "class token along": "a class token that was resized along",
        "a line": "positions resized as a line",
        "grid exchanged": "rows and columns of the grid exchanged",
        "old grid exchanged": "rows and columns of the old grid exchanged",
        "new grid exchanged": "rows and columns of the new grid exchanged",
        "corners": "align_corners",
        "no antialias": "no averaging where the grid shrinks",
        "bilinear": "bilinear in place of bicubic",
        "bilinear, no antialias": "bilinear without averaging",
        "nearest": "positions taken from the nearest",
        "area": "positions of the area's mean",
        "another recipe": "align_corners",
        "zeros": "positions begun anew",
        "class position zeroed": "the class token's position set to zero",
        "class position last": "the class token's position at the end",
        "class position lost": "the class token's position lost",
        "mixed up": "a reshape in place of a permute",
        "filled down": "positions that are read down the columns",
        "in place": "a dictionary that was changed in place",
        "popped": "a dictionary that was changed in place",
    },
    "layer_rates": {
        "reversed": "rates the wrong way round",
        "blocks from below": "blocks counted from below",
        "blocks from below, by number": "the block's own number as the power",
        "blocks by number + 1": "blocks counted from below",
        "last block at the head's": "the last block at the head's rate",
        "blocks one too high": "blocks one layer too high",
        "blocks one too low": "blocks one layer too low",
        "embedding at block 0's": "an embedding at the first block's rate",
        "embedding at the head's": "an embedding at the head's rate",
        "embedding one too low": "an embedding one layer too low",
        "class token and positions at the head's": "class token and positions at the head's rate",
        "class token and positions in no group": "class token and positions in no group",
        "norm at the embedding's": "a last norm at the embedding's rate",
        "norm one below": "a last norm one layer below the head",
        "norm in no group": "a last norm in no group",
        "embedding in no group": "an embedding in no group",
        "head in no group": "a head in no group",
        "blocks in no group": "blocks in no group",
        "biases in no group": "biases in no group",
        "biases at the head's": "biases at the whole rate",
        "head decayed": "a head that is one layer too low",
        "head alone decayed": "a head alone that is decayed",
        "head and norm decayed": "a head that is decayed, too",
        "one rate for the encoder": "one rate for the whole encoder",
        "the same everywhere": "the same rate everywhere",
        "power twice": "a decay that is taken twice for each layer",
        "product": "a product in place of a power",
        "division": "a division by the decay",
        "subtracted": "a decay that is subtracted",
        "1 - decay": "1 - decay in place of decay",
        "first digit": "block 10 taken for block 1",
        "twelve layers, whatever": "twelve layers, whatever the model has",
        "linear": "a rate that falls in equal steps",
    },
    "tune_head": {
        "a schedule": "a rate that falls",
        "all": "an encoder that is trained too",
        "all, in training": "an encoder that is trained too, with dropout on",
        "all, gradients zeroed": "an encoder that decays",
        "norm, too": "a last norm that is trained too",
        "last block, too": "a last block that is trained too",
        "embedding, too": "an embedding that is trained too",
        "the encoder alone": "an encoder that is trained in place of the head",
        "weight alone": "a bias that isn't trained",
        "bias alone": "a weight that isn't trained",
        "in training": "dropout left on",
        "mode as it was": "dropout left on",
        "features with dropout": "features computed with dropout",
        "in training, zero head": "a head that begins at zero, with dropout on",
        "eval of the head": "dropout left on",
        "zero head": "a head that begins at zero",
        "gradients pile up": "gradients that pile up",
        "adam": "Adam for AdamW",
        "sgd": "plain gradient descent",
        "default decay": "the optimiser's own decay",
        "no decay": "no weight decay",
        "default rate": "the optimiser's own rate",
        "rate and decay exchanged": "rate and decay exchanged",
        "sum": "a sum in place of a mean",
        "sum by hand": "a sum in place of a mean",
        "softmax": "a softmax before the cross-entropy",
        "smoothing": "label smoothing",
        "squares": "squares in place of the cross-entropy",
        "nll of logits": "a likelihood of logits",
        "minus": "a loss with the wrong sign",
        "one step": "one step",
        "one step too few": "a step too few",
        "one step too many": "a step too many",
        "no step": "no step",
        "first image": "the first picture alone",
        "mean of tokens": "a mean over all tokens as features",
        "mean of patches": "a mean over the patches as features",
        "before the norm": "features before the last norm",
        "last token": "the last token as features",
        "normed features": "features brought to length 1",
        "new adam": "a new optimiser at every step",
        "a copy": "no step",
        "no backward": "no step",
    },
}
