"""Works for the exercises of lesson 10: right ones, in different ways, and wrong ones."""

import copy
import math
from collections import Counter, OrderedDict

import numpy as np
import torch
from sklearn.neighbors import KNeighborsClassifier
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


def tune_until_right(model, images, labels, rate, decay, steps):
    with torch.no_grad():
        y = model.eval().features(images)[:, 0]
    adam = torch.optim.AdamW(model.head.parameters(), lr=rate, weight_decay=decay)
    for _ in range(steps):
        logits = model.head(y)
        if bool((logits.argmax(dim=1) == labels).all()):
            break
        adam.zero_grad()
        F.cross_entropy(logits, labels).backward()
        adam.step()


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


def knn_at_once(A, a, B, k):
    cosines = F.cosine_similarity(B.double()[:, None], A.double()[None], dim=-1)
    votes = torch.zeros(len(B), int(a.max()) + 1)
    return votes.scatter_add(1, a[cosines.topk(k).indices], torch.ones(len(B), k)).argmax(1)


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


# ---- Wrong ones --------------------------------------------------------------------------------------------------


def frozen(
    *,
    before=lambda model: model.eval(),
    take=lambda model, x: model.features(x)[:, 0],
):
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


def no_dropout_for_good(model):
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0


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


def filled_down(p, old, new):
    maps = p[:, 1:].unflatten(1, old).permute(0, 3, 1, 2)
    maps = F.interpolate(maps, new, mode="bicubic", antialias=True)
    return torch.cat([p[:, :1], maps.transpose(2, 3).flatten(2).transpose(1, 2)], dim=1)


def tensors_in_place(state, num_classes, old_grid, new_grid):
    """The dictionary is new, its tensors are the old ones."""
    new = dict(state)
    new["head.weight"].zero_()
    new["head.bias"].zero_()
    return task_by_package(state, num_classes, old_grid, new_grid)


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


def steps_down(change):
    """Somebody's number of layers: of the name, the right number and the depth."""

    def down(name, depth):
        right = depth + 1 if name.startswith("embed.") else 0
        right = depth - int(name.split(".")[1]) if name.startswith("blocks.") else right
        return change(name, right, depth)

    return down


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


def kept_for(key, work):
    """The first answer for each key, again and again."""
    kept = {}
    return lambda *given: kept.setdefault(key(*given), (given, work(*given)))[1]


def features_with_torchs_eps(model, x):
    z = model.blocks(model.embed(x))
    return F.layer_norm(z, z.shape[-1:], model.norm.weight, model.norm.bias)[:, 0]


def model_of_before(kept):
    """The features of a copy of the model, made at the first call."""

    def frozen_features(model, images):
        _, copied = kept.setdefault(id(model), (model, copy.deepcopy(model)))
        return features_by_inference_mode(copied, images)

    return frozen_features


def dropout_layers_alone(model):
    for part in model.modules():
        if isinstance(part, nn.Dropout):
            part.eval()


def known_of_before(kept):
    return lambda A, a, B, k: knn_by_mode(*kept.setdefault(A.shape, (A.clone(), a.clone())), B, k)


def a_little_longer(A, a, B, k):
    near = B @ (A / (A.norm(dim=1, keepdim=True) + 1e-3)).T
    return a[near.topk(k).indices].mode(dim=1).values


def votes_by_softmax(A, a, B, k):
    near = (F.normalize(B) @ F.normalize(A).T).topk(k)
    return torch.zeros(len(B), int(a.max()) + 1).scatter_add_(1, a[near.indices], near.values.softmax(1)).argmax(1)


def votes(A, a, B, k):
    near = (F.normalize(B, dim=1) @ F.normalize(A, dim=1).T).topk(k, dim=1).indices  # (m, k)
    return F.one_hot(a[near], int(a.max()) + 1).sum(dim=1)


def the_same_dictionary(kept):
    def for_a_new_task(*given):
        kept.clear()
        kept.update(task_by_package(*given))
        return kept

    return for_a_new_task


def one_bias_for_all(kept):
    return adapt(
        head=lambda s, K, D: {"head.weight": torch.zeros(K, D), "head.bias": kept.setdefault(K, torch.zeros(K))}
    )


def task_of_the_package(state, num_classes, old_grid, new_grid):
    position = vt.resize_position_embedding(state["embed.position"], old_grid, new_grid)
    new = {"head.weight": torch.zeros(num_classes, position.shape[-1]), "head.bias": torch.zeros(num_classes)}
    return {**state, "embed.position": position, **new}


def rates_changed(change):
    return rated(end=lambda groups, model: [g | {"lr": change(g["lr"])} for g in groups])


def with_the_model(change):
    """Something happens to the model before its groups are returned."""
    return rated(end=lambda groups, model: (change(model), groups)[1])


class Clipped(torch.optim.AdamW):
    def step(self, closure=None):
        nn.utils.clip_grad_norm_(self.param_groups[0]["params"], 1.0)
        return super().step(closure)


def answered(question, *answers):
    """A wrong work for each answer to a question."""
    return [Wrong(f"{question}: {x}", lambda x=x: NUMBERS | {question: x}) for x in answers]


RIGHT = {
    "fine_tuning_numbers": (
        lambda: NUMBERS,
        lambda: (
            NUMBERS | {"cosines": np.array([8, 2, 6]) / (2 * np.array([5, 1, 10**0.5])), "first loss": math.log(12)}
        ),
        lambda: NUMBERS | {"standardised": torch.tensor([2.0, 4.0]), "rate": 0.3 * 5 / 10, "probe": np.int64(325)},
    ),
    "frozen_features": (
        features_by_inference_mode,
        features_without_head,
        features_by_hook,
        features_cloned,
    ),
    "knn": (knn_by_loop, knn_by_mode, knn_by_sklearn, knn_at_once),
    "for_a_new_task": (task_by_package, task_by_hand, task_in_order),
    "layer_rates": (rates_by_name, rates_by_shrinking, rates_with_generators),
    "tune_head": (tune_by_features, tune_by_freezing, tune_by_hand, tune_with_closure),
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
        Wrong("norm twice", frozen(take=lambda m, x: m.norm(m.features(x))[:, 0])),
        Wrong("all tokens", frozen(take=lambda m, x: m.features(x)), "has shape"),
        Wrong("four blocks", frozen(take=lambda m, x: m.norm(m.blocks[:4](m.embed(x)))[:, 0]), "13 blocks"),
        Wrong("torch's eps", frozen(take=features_with_torchs_eps), "tokens so small that the last norm's eps counts"),
        Wrong("dropout alone", frozen(before=dropout_layers_alone), "attention_dropout 0.3 alone"),
        Wrong(
            "p = 0",
            frozen(before=lambda m: (m.eval(), no_dropout_for_good(m))),
            "embed.dropout.p is new, gone or another one",
            "is random",
        ),
        Wrong("another head", frozen(take=with_a_new_head), "its part head is not the one"),
        Wrong("cleared", frozen(before=lambda m: (m.eval(), m.zero_grad())), "gradients are afterwards is others"),
        Wrong("kept", kept_for(lambda model, x: id(model), features_by_inference_mode), "of other images, in a second"),
        Wrong("an old copy", model_of_before({}), "the features when the model's weights have changed since"),
    ],
    "knn": [
        Wrong("three", near(pick=lambda s, k: s.topk(min(3, s.shape[1]), dim=1).indices)),
        Wrong("a column", near(end=lambda y: y[:, None]), "has shape"),
        Wrong("all votes", votes, "expected (", "should change"),
        Wrong("a thousand labels", lambda A, a, B, k: knn_by_mode(A, a.clamp(max=999), B, k), "labels to 1899"),
        Wrong("20 at most", lambda A, a, B, k: knn_by_mode(A, a, B, min(k, 20)), "k=45"),
        Wrong("a longer length", a_little_longer, "lengths from 0.01 to 100"),
        Wrong("by softmax", votes_by_softmax, "two very near neighbours of five"),
        Wrong("the known of before", known_of_before({}), "with other labels of the known"),
    ],
    "for_a_new_task": [
        Wrong(
            "the old head",
            adapt(head=lambda s, K, D: {n: t for n, t in s.items() if n.startswith("head.")}),
            "has shape",
        ),
        Wrong(
            "nearly zero",
            adapt(head=lambda s, K, D: {"head.weight": torch.full((K, D), 1e-8), "head.bias": torch.zeros(K)}),
            "head.weight must be all zeros",
        ),
        Wrong("positions read down", adapt(position=filled_down), "but not all of the patches' are"),
        Wrong("float16", adapt(end=lambda new, s: {n: t.half() for n, t in new.items()}), "is of dtype torch.float16"),
        Wrong(
            "one dtype",
            adapt(end=lambda new, s: {n: t.to(new["embed.position"].dtype) for n, t in new.items()}),
            "one norm in float64",
        ),
        Wrong("tensors in place", tensors_in_place, "with other numbers in it"),
        Wrong(
            "one dictionary", the_same_dictionary({}), "a second call changes the dictionary that the first returned"
        ),
        Wrong("one bias", one_bias_for_all({}), "head.bias is the same tensor in the results of two calls"),
        Wrong("the package's", task_of_the_package, "it calls the package's own resize_position_embedding"),
        Wrong("a pair", adapt(end=lambda new, s: (new, s)), "expected a dictionary"),
    ],
    "layer_rates": [
        Wrong("embedding too low", rated(steps_down(lambda name, k, L: k + 1 if name[:5] == "embed" else k)), "decay^"),
        Wrong("subtracted", rated(shrink=lambda decay, k: 1 - decay * k)),
        Wrong("rounded", rates_changed(lambda rate: round(rate, 8)), "rates are is fewer than six digits"),
        Wrong("0.001 at least", rates_changed(lambda rate: max(rate, 1e-3)), "L=4, rate=3e-05, decay=0.4"),
        Wrong(
            "what trains",
            rated(end=lambda groups, model: [g for g in groups if g["params"][0].requires_grad]),
            "a frozen embedding",
        ),
        Wrong("sets", rated(end=lambda groups, model: [g | {"params": set(g["params"])} for g in groups]), "are a set"),
        Wrong(
            "frozen",
            with_the_model(lambda model: model.embed.requires_grad_(False)),
            "requires_grad of embed",
        ),
        Wrong("evaluation mode", with_the_model(lambda model: model.eval()), "in another mode afterwards"),
        Wrong("cleared", with_the_model(lambda model: model.zero_grad()), "gradients aren't those that it had"),
        Wrong("kept", kept_for(lambda model, *given: (len(model.blocks), *given), rates_by_name), "of the same size"),
    ],
    "tune_head": [
        Wrong("a frozen head", tuned(end=lambda m: m.requires_grad_(False)), "what is frozen of the head afterwards"),
        Wrong("weight alone", tuned(trained=lambda m: [m.head.weight]), "head.bias isn't"),
        Wrong("until all are right", tune_until_right, "Nothing wrong was found with the other inputs"),
        Wrong("a copy", a_copy, "head.weight is as it was before"),
        Wrong("no decay", tuned(settings=lambda rate, decay: {"lr": rate, "weight_decay": 0.0})),
        Wrong("Adam", tuned(make=torch.optim.Adam), "Is the optimiser AdamW"),
        Wrong("NAdam", tuned(make=torch.optim.NAdam), "the optimiser is torch.optim.AdamW"),
        Wrong("amsgrad", tuned(make=lambda ps, **s: torch.optim.AdamW(ps, amsgrad=True, **s)), "leave its betas"),
        Wrong("clipped", tuned(make=Clipped), "First seen with 12 steps"),
        Wrong("no dropout", tuned(start=no_dropout_for_good), "embed.dropout.p is new, gone or another one"),
        Wrong("dropout alone", tuned(mode=dropout_layers_alone), "attention_dropout 0.3 alone"),
        Wrong("logarithms", tuned(criterion=lambda z, y: F.nll_loss(z.softmax(1).log(), y)), "logits in the hundreds"),
    ],
}
