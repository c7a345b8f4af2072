"""Submissions to the exercises of lesson 07: right ones, in different ways, and wrong ones by their mistake."""

import math

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, Subset, TensorDataset

from vit_tutorial import train

NUMBERS = {"loss": 1.204, "target": [0.85, 0.05, 0.05, 0.05], "weight": 1.8, "clipped": [3, 4], "average": 1.9,
           "pixels": [0, 1]}  # fmt: skip


def loss_by_torch(logits, labels, epsilon):
    return nn.CrossEntropyLoss(label_smoothing=epsilon)(logits, labels)


def loss_by_target(logits, labels, epsilon):
    K = logits.shape[1]
    target = torch.full_like(logits, epsilon / K).scatter_add(
        1, labels[:, None], torch.full((len(labels), 1), 1 - epsilon)
    )
    return -(target * F.log_softmax(logits, dim=1)).sum() / len(logits)


def loss_by_mix(logits, labels, epsilon):
    """1 - epsilon of the plain loss, and epsilon of the mean over all classes."""
    logs = logits - torch.logsumexp(logits, dim=1, keepdim=True)
    plain = -logs.gather(1, labels[:, None]).squeeze(1)
    return ((1 - epsilon) * plain - epsilon * logs.mean(dim=1)).mean()


def loss_by_loops(logits, labels, epsilon):
    B, K = logits.shape
    total = 0.0
    for i in range(B):
        shifted = logits[i] - logits[i].max()
        logs = shifted - shifted.exp().sum().log()
        for k in range(K):
            total = total - (epsilon / K + (1 - epsilon) * (labels[i] == k)) * logs[k]
    return total / B


def schedule_by_numpy(step, steps, warmup):
    return np.where(step < warmup, (step + 1) / max(warmup, 1), 0.5 + 0.5 * np.cos(np.pi * way(step, steps, warmup)))


def way(step, steps, warmup):
    return max(step - warmup, 0) / (steps - warmup)


def schedule_by_sine(step, steps, warmup):
    """The square of a cosine of half the angle, and the smaller of the two branches."""
    rise = (step + 1) / warmup if warmup else math.inf
    return min(rise, math.cos(math.pi / 2 * way(step, steps, warmup)) ** 2)


def schedule_by_torch(step, steps, warmup):
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps - warmup)
    if step < warmup:
        return 1 - (warmup - 1 - step) / warmup
    for _ in range(step - warmup):
        optimizer.step()
        cosine.step()
    return torch.tensor(cosine.get_last_lr())


def groups_by_module(model, weight_decay):
    kinds = nn.Linear | nn.Conv2d
    decayed = {id(module.weight) for module in model.modules() if isinstance(module, kinds)}
    split = {True: [], False: []}
    for parameter in model.parameters():
        split[id(parameter) in decayed].append(parameter)
    return [{"params": ps, "weight_decay": weight_decay * decays} for decays, ps in split.items()]


def groups_one_each(model, weight_decay):
    return [
        {"params": [p], "weight_decay": weight_decay if p.dim() >= 2 and "weight" in name else 0, "name": name}
        for name, p in model.named_parameters()
    ]


def accuracy_by_sum(model, images, labels, batch_size):
    model.eval()
    right = 0
    with torch.inference_mode():
        for start in range(0, len(images), batch_size):
            rows = slice(start, start + batch_size)
            right += (model(images[rows]).argmax(1) == labels[rows]).sum().item()
    model.train()
    return right / len(images)


def accuracy_at_once(model, images, labels, batch_size):
    before = model.training
    with torch.no_grad():
        answers = torch.cat([model.eval()(x).topk(1).indices[:, 0] for x in images.split(batch_size)])
    model.train(before)
    return (answers == labels).double().mean()


def accuracy_by_loader(model, images, labels, batch_size):
    model.train(False)
    parts = []
    for x, y in DataLoader(TensorDataset(images, labels), batch_size):
        with torch.inference_mode():
            answer = model(x)
        share = (answer.max(dim=1)[1] == y).numpy().mean()
        parts.append((share, len(y)))
    model.train(True)
    return np.average([share for share, _ in parts], weights=[count for _, count in parts])


def fit_by_scheduler(model, images, labels, orders, batch_size, learning_rate, warmup, clip):
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, weight_decay=0.05, foreach=False)
    steps = len(orders) * math.ceil(len(images) / batch_size)
    scheduler = LambdaLR(optimizer, lambda step: train.schedule(min(step, steps), steps=steps, warmup=warmup))
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    model.train()
    losses = []
    for order in orders:
        data = Subset(TensorDataset(images, labels), order.tolist())
        for x, y in DataLoader(data, batch_size):
            loss = criterion(model(x), y)
            model.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), max_norm=clip)
            optimizer.step()
            scheduler.step()
            losses.append(loss.item())
    return losses


def fit_by_hand(model, images, labels, orders, batch_size, learning_rate, warmup, clip):
    """AdamW, clipping and the gradient written out."""
    model.train()
    weights = list(model.parameters())
    m, v = ([torch.zeros_like(w) for w in weights] for _ in range(2))
    an_epoch = -(-len(images) // batch_size)
    losses = []
    for epoch, order in enumerate(orders):
        for i in range(an_epoch):
            rows, step = order[i * batch_size : (i + 1) * batch_size], epoch * an_epoch + i
            rate = learning_rate * train.schedule(step, steps=an_epoch * len(orders), warmup=warmup)
            loss = loss_by_mix(model(images[rows]), labels[rows], 0.1)
            gradients = torch.autograd.grad(loss, weights)
            length = torch.cat([g.flatten() for g in gradients]).norm()
            factor = min(1.0, clip / (length.item() + 1e-6))
            with torch.no_grad():
                for j, (w, g) in enumerate(zip(weights, gradients, strict=True)):
                    m[j] = 0.9 * m[j] + 0.1 * factor * g
                    v[j] = 0.999 * v[j] + 0.001 * (factor * g) ** 2
                    w *= 1 - rate * 0.05
                    w -= rate * (m[j] / (1 - 0.9 ** (step + 1))) / ((v[j] / (1 - 0.999 ** (step + 1))).sqrt() + 1e-8)
            losses.append(float(loss.detach()))
    return losses


def fit_by_groups(model, images, labels, orders, batch_size, learning_rate, warmup, clip):
    """A group for each tensor, gradients cleared at the end of a step, losses as tensors."""
    groups = [{"params": [p]} for p in model.parameters()]
    optimizer = torch.optim.AdamW(groups, lr=1.0, weight_decay=0.05)
    batches = [rows for order in orders for rows in order.split(batch_size)]
    losses = []
    for step, rows in enumerate(batches):
        loss = F.cross_entropy(model.train()(images[rows]), labels[rows], label_smoothing=0.1)
        loss.backward()
        torch.nn.utils.clip_grad_norm_([p for p in model.parameters() if p.grad is not None], clip)
        train.set_rate(optimizer, learning_rate * train.schedule(step, steps=len(batches), warmup=warmup))
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        losses.append(loss.detach())
    return losses


def loss_by_nll(logits, labels, epsilon):
    logs = F.log_softmax(logits.double(), -1)
    return (1 - epsilon) * F.nll_loss(logs, labels) - epsilon * logs.mean()


def loss_by_einsum(logits, labels, epsilon):
    B, K = logits.shape
    target = torch.eye(K)[labels] * (1 - epsilon) + epsilon / K
    return -torch.einsum("bk,bk->", target, logits.log_softmax(1)).reshape(1) / B


def loss_by_vmap(logits, labels, epsilon):
    def one(z, y):
        logs = z - z.logsumexp(0)
        return -(1 - epsilon) * logs.gather(0, y[None])[0] - epsilon * logs.mean()

    return torch.vmap(one)(logits, labels).mean()


def schedule_in_one_line(step, steps, warmup):
    return (step + 1) / warmup if step < warmup else (math.cos((step - warmup) / (steps - warmup) * math.pi) + 1) / 2


def schedule_by_tensor(step, steps, warmup):
    share = torch.tensor(
        (step + 1) / max(warmup, 1) if step < warmup else way(step, steps, warmup), dtype=torch.float64
    )
    return share if step < warmup else 0.5 + 0.5 * torch.cos(torch.pi * share)


def groups_bare(model, weight_decay):
    """A group for each parameter, and in it the parameter alone."""
    return [
        {"params": p, "weight_decay": weight_decay * (p.ndim > 1 and name.endswith("weight"))}
        for name, p in model.named_parameters()
    ]


def groups_in_a_tuple(model, weight_decay):
    both = {True: nn.ParameterList(), False: nn.ParameterList()}
    for name, p in model.named_parameters():
        both[p.dim() in (2, 4) and name.endswith("weight")].append(p)
    return (
        {"params": both[True], "weight_decay": torch.tensor(weight_decay)},
        {"params": both[False], "weight_decay": 0},
    )


def groups_with_names(model, weight_decay):
    named = list(model.named_parameters())
    rule = {name: p.ndim > 1 and name.endswith(".weight") for name, p in named}
    return [
        {"params": [(n, p) for n, p in named if rule[n]], "weight_decay": weight_decay},
        {"params": [(n, p) for n, p in named if not rule[n]], "weight_decay": 0.0},
    ]


def accuracy_by_frozen_parameters(model, images, labels, batch_size):
    """No graph, because nothing needs one; put back afterwards."""
    learned = [p for p in model.parameters() if p.requires_grad]
    model.eval().requires_grad_(False)
    hits = torch.zeros((), dtype=torch.int64)
    for start in range(0, len(labels), batch_size):
        hits += (model(images[start : start + batch_size]).argmax(-1) == labels[start : start + batch_size]).sum()
    model.train()
    for parameter in learned:
        parameter.requires_grad_(True)
    return hits / len(labels)


@torch.no_grad()
def accuracy_by_numpy(model, images, labels, batch_size):
    model.eval()
    found = np.concatenate([model(x).numpy().argmax(1) for x in images.split(batch_size)])
    model.train()
    return np.mean(found == labels.numpy())


def fit_to_an_array(*arguments):
    return np.array(fit_by_scheduler(*arguments))


def fit_to_a_tensor(*arguments):
    return torch.tensor([float(loss) for loss in fit_by_groups(*arguments)])


SOLUTIONS = {
    "training_numbers": (
        lambda: NUMBERS,
        lambda: NUMBERS | {"loss": torch.tensor(1.2), "target": np.array([0.85, 0.05, 0.05, 0.05]), "pixels": (0, 1)},
        lambda: NUMBERS | {"clipped": torch.tensor([6.0, 8.0]) / 2, "average": np.float32(1.9), "weight": 2 - 0.2},
    ),
    "smoothed_cross_entropy": (loss_by_target, loss_by_mix, loss_by_loops, loss_by_nll, loss_by_einsum, loss_by_vmap),
    "schedule": (
        schedule_by_numpy,
        schedule_by_sine,
        schedule_by_torch,
        schedule_in_one_line,
        schedule_by_tensor,
        lambda *a: np.float32(schedule_in_one_line(*a)),
        lambda *a: torch.tensor([schedule_in_one_line(*a)]),
    ),
    "parameter_groups": (
        groups_by_module,
        groups_one_each,
        groups_bare,
        groups_in_a_tuple,
        groups_with_names,
    ),
    "accuracy": (
        accuracy_by_sum,
        accuracy_at_once,
        accuracy_by_loader,
        accuracy_by_frozen_parameters,
        accuracy_by_numpy,
    ),
    "fit": (fit_by_scheduler, fit_by_hand, fit_by_groups, fit_to_an_array, fit_to_a_tensor),
}


# ---- Wrong ones --------------------------------------------------------------------------------------------------


def loss(
    *,
    target=lambda hot, eps, K: (1 - eps) * hot + eps / K,
    cost=lambda z: -z.log_softmax(dim=1),
    join=lambda losses: losses.mean(),
):
    def smoothed_cross_entropy(logits, labels, epsilon):
        K = logits.shape[1]
        return join((target(F.one_hot(labels, K).to(logits.dtype), epsilon, K) * cost(logits)).sum(dim=1))

    return smoothed_cross_entropy


def kl_divergence(logits, labels, epsilon):
    K = logits.shape[1]
    target = (1 - epsilon) * F.one_hot(labels, K) + epsilon / K
    return F.kl_div(F.log_softmax(logits, 1), target, reduction="batchmean")


def kl_of_all_numbers(logits, labels, epsilon):
    K = logits.shape[1]
    target = (1 - epsilon) * F.one_hot(labels, K) + epsilon / K
    return F.kl_div(F.log_softmax(logits, 1), target)


def binary(logits, labels, epsilon):
    K = logits.shape[1]
    target = (1 - epsilon) * F.one_hot(labels, K) + epsilon / K
    return F.binary_cross_entropy_with_logits(logits, target)


def exps(z):
    return z.exp() / z.exp().sum(dim=1, keepdim=True)


def first_image(logits, labels, epsilon):
    return loss_by_target(logits[:1], labels[:1], epsilon)


def true_class_alone(logits, labels, epsilon):
    logs = F.log_softmax(logits, 1)
    return -((1 - epsilon + epsilon / logits.shape[1]) * logs.gather(1, labels[:, None])).mean()


def other_classes_alone(logits, labels, epsilon):
    logs = F.log_softmax(logits, 1)
    return -(epsilon * logs.mean(1)).mean()


def columns_for_rows(logits, labels, epsilon):
    """logs[:, labels] is (B, B): every image with every label."""
    logs = F.log_softmax(logits, 1)
    return (-(1 - epsilon) * logs[:, labels] - epsilon * logs.mean(1, keepdim=True)).mean()


WRONG_LOSS = {
    "torch's own": lambda z, y, eps: F.cross_entropy(z, y, label_smoothing=eps),
    "torch's own, as a class": loss_by_torch,
    "torch's own, with a target": lambda z, y, eps: F.cross_entropy(
        z, (1 - eps) * F.one_hot(y, z.shape[1]) + eps / z.shape[1]
    ),
    "torch's own, for the true class": lambda z, y, eps: (
        (1 - eps) * F.cross_entropy(z, y) - eps * F.log_softmax(z, 1).mean()
    ),
    "torch's own, in a branch": lambda z, y, eps: (
        F.cross_entropy(z, y, label_smoothing=eps) if z.abs().max() > 100 else loss_by_target(z, y, eps)
    ),
    "softmax twice": lambda z, y, eps: loss_by_target(z.softmax(1), y, eps),
    "K - 1": loss(target=lambda hot, eps, K: (1 - eps) * hot + eps / (K - 1) * (1 - hot)),
    "not 1": loss(target=lambda hot, eps, K: (1 - eps) * hot + eps / K * (1 - hot)),
    "eps each": loss(target=lambda hot, eps, K: (1 - eps) * hot + eps),
    "eps for the others": loss(target=lambda hot, eps, K: (1 - eps) * hot + eps * (1 - hot)),
    "eps and 1 - eps exchanged": loss(target=lambda hot, eps, K: eps * hot + (1 - eps) / K),
    "no smoothing": loss(target=lambda hot, eps, K: hot),
    "a fixed 0.1": loss(target=lambda hot, eps, K: 0.9 * hot + 0.1 / K),
    "hot + eps / K": loss(target=lambda hot, eps, K: hot + eps / K),
    "uniform target": loss(target=lambda hot, eps, K: torch.ones_like(hot) / K),
    "eps halved": loss(target=lambda hot, eps, K: (1 - eps / 2) * hot + eps / 2 / K),
    "sum": loss(join=lambda losses: losses.sum()),
    "one an image": loss(join=lambda losses: losses),
    "max": loss(join=lambda losses: losses.max()),
    "median": loss(join=lambda losses: losses.median()),
    "mean over all": loss(target=lambda hot, eps, K: ((1 - eps) * hot + eps / K) / K),
    "sum over K": lambda z, y, eps: loss_by_target(z, y, eps) * len(z) / z.shape[1],
    "divided by B twice": lambda z, y, eps: loss_by_target(z, y, eps) / len(z),
    "no minus": loss(cost=lambda z: z.log_softmax(1)),
    "over the images": loss(cost=lambda z: -z.log_softmax(0)),
    "over all": loss(cost=lambda z: -z.flatten().log_softmax(0).view_as(z)),
    "probabilities": loss(cost=lambda z: -z.softmax(1)),
    "1 - p": loss(cost=lambda z: 1 - z.softmax(1)),
    "logits": loss(cost=lambda z: -z),
    "square": lambda z, y, eps: (
        (z.softmax(1) - (1 - eps) * F.one_hot(y, z.shape[1]) - eps / z.shape[1]).square().mean()
    ),
    "log of softmax": loss(cost=lambda z: -z.softmax(1).log()),
    "log of softmax + 1e-8": loss(cost=lambda z: -(z.softmax(1) + 1e-8).log()),
    "log of clamped softmax": loss(cost=lambda z: -z.softmax(1).clamp(min=1e-7).log()),
    "exp over sum": loss(cost=lambda z: -exps(z).log()),
    "log of the sum of exps": loss(cost=lambda z: z.exp().sum(1, keepdim=True).log() - z),
    "the largest of all subtracted": loss(cost=lambda z: -exps(z - z.max()).log()),
    "base 10": loss(cost=lambda z: -z.log_softmax(1) / math.log(10)),
    "base 2": loss(cost=lambda z: -z.log_softmax(1) / math.log(2)),
    "kl": kl_divergence,
    "kl of all numbers": kl_of_all_numbers,
    "binary": binary,
    "first image": first_image,
    "true class alone": true_class_alone,
    "others alone": other_classes_alone,
    "columns for rows": columns_for_rows,
    "item": lambda z, y, eps: loss_by_target(z, y, eps).item(),
    "float": lambda z, y, eps: float(loss_by_target(z, y, eps)),
    "detached": lambda z, y, eps: loss_by_target(z.detach(), y, eps),
    "no grad": lambda z, y, eps: torch.no_grad()(loss_by_target)(z, y, eps),
    "in numpy": lambda z, y, eps: torch.tensor(loss_by_target(z, y, eps).item()),
    "no return": lambda z, y, eps: None,
    "labels of the batch reversed": lambda z, y, eps: loss_by_target(z, y.flip(0), eps),
    "in place": lambda z, y, eps: loss_by_target(z.sub_(z.detach().amax(1, keepdim=True)), y, eps),
    "temperature": lambda z, y, eps: loss_by_target(z / z.shape[1] ** 0.5, y, eps),
    "smoothed predictions": lambda z, y, eps: (
        -((1 - eps) * z.softmax(1) + eps / z.shape[1]).log().gather(1, y[:, None]).mean()
    ),
    "weights of eps": lambda z, y, eps: (
        (1 - eps) * loss_by_target(z, y, 0.0) + eps * (-F.log_softmax(z, 1)).sum(1).mean()
    ),
}


def share(rise=lambda i, n, w: (i + 1) / w, fall=lambda i, n, w: 0.5 * (1 + math.cos(math.pi * (i - w) / (n - w)))):
    return lambda step, steps, warmup: (rise if step < warmup else fall)(step, steps, warmup)


def half(x):
    return 0.5 * (1 + math.cos(math.pi * x))


WRONG_SCHEDULE = {
    "warm-up from 0": share(rise=lambda i, n, w: i / w),
    "warm-up from 0 to 1": share(rise=lambda i, n, w: i / max(w - 1, 1)),
    "warm-up too long": lambda i, n, w: (i + 1) / w if w and i <= w else half((i - w) / (n - w)),
    "warm-up over w + 1": share(rise=lambda i, n, w: (i + 1) / (w + 1)),
    "no warm-up": share(rise=lambda i, n, w: half(i / n), fall=lambda i, n, w: half(i / n)),
    "a warm-up at the peak": share(rise=lambda i, n, w: 1.0),
    "a warm-up at 1 / w": share(rise=lambda i, n, w: 1 / w),
    "a warm-up of nothing": share(rise=lambda i, n, w: 0.0),
    "a warm-up of a cosine": share(rise=lambda i, n, w: 1 - half((i + 1) / w)),
    "a warm-up that falls": share(rise=lambda i, n, w: 1 - i / w),
    "warm-up over steps": share(rise=lambda i, n, w: (i + 1) / n),
    "a warm-up squared": share(rise=lambda i, n, w: ((i + 1) / w) ** 2),
    "warm-up in whole numbers": share(rise=lambda i, n, w: (i + 1) // w),
    "warm-up times cosine": lambda i, n, w: min(1.0, (i + 1) / max(w, 1)) * half(i / n),
    "warm-up times cosine from the warm-up": lambda i, n, w: min(1.0, (i + 1) / max(w, 1)) * half(abs(i - w) / (n - w)),
    "the smaller of both": lambda i, n, w: min((i + 1) / max(w, 1), half(i / n)),
    "the larger of both": lambda i, n, w: max((i + 1) / max(w, 1), half((i - w) / (n - w))),
    "the peak stays": share(fall=lambda i, n, w: 1.0),
    "a jump": share(fall=lambda i, n, w: half(i / n)),
    "too slow": share(fall=lambda i, n, w: half((i - w) / n)),
    "a step late": share(fall=lambda i, n, w: half((i - w - 1) / (n - w))),
    "a step early": share(fall=lambda i, n, w: half((i - w + 1) / (n - w))),
    "a step early and longer": share(fall=lambda i, n, w: half((i - w + 1) / (n - w + 1))),
    "ends early": share(fall=lambda i, n, w: half((i - w) / max(n - w - 1, 1))),
    "ends late": share(fall=lambda i, n, w: half((i - w) / (n - w + 1))),
    "a whole cosine": share(fall=lambda i, n, w: half(2 * (i - w) / (n - w))),
    "a quarter": share(fall=lambda i, n, w: math.cos(math.pi / 2 * (i - w) / (n - w))),
    "from 1 to -1": share(fall=lambda i, n, w: math.cos(math.pi * (i - w) / (n - w))),
    "cut at 0": share(fall=lambda i, n, w: max(0.0, math.cos(math.pi * (i - w) / (n - w)))),
    "not halved": share(fall=lambda i, n, w: 2 * half((i - w) / (n - w))),
    "halved, no 1": share(fall=lambda i, n, w: 0.5 * math.cos(math.pi * (i - w) / (n - w))),
    "brackets": share(fall=lambda i, n, w: 0.5 * 1 + math.cos(math.pi * (i - w) / (n - w))),
    "brackets in the share": share(fall=lambda i, n, w: half(i - w / (n - w))),
    "brackets in the share, too": share(fall=lambda i, n, w: half((i - w) / n - w)),
    "a straight line": share(fall=lambda i, n, w: 1 - (i - w) / (n - w)),
    "a straight line from the start": share(fall=lambda i, n, w: 1 - i / n),
    "squared": share(fall=lambda i, n, w: (1 - (i - w) / (n - w)) ** 2),
    "a root": share(fall=lambda i, n, w: (1 - (i - w) / (n - w)) ** 0.5),
    "an exponential": share(fall=lambda i, n, w: math.exp(-(i - w) / (n - w))),
    "degrees": share(fall=lambda i, n, w: 0.5 * (1 + math.cos(180 * (i - w) / (n - w)))),
    "no π": share(fall=lambda i, n, w: 0.5 * (1 + math.cos((i - w) / (n - w)))),
    "3.14": share(fall=lambda i, n, w: 0.5 * (1 + math.cos(3.14 * (i - w) / (n - w)))),
    "a sine": share(fall=lambda i, n, w: 0.5 * (1 + math.sin(math.pi * (i - w) / (n - w)))),
    "minus": share(fall=lambda i, n, w: 0.5 * (1 - math.cos(math.pi * (i - w) / (n - w)))),
    "a floor": share(fall=lambda i, n, w: 0.01 + 0.99 * half((i - w) / (n - w))),
    "steps": share(fall=lambda i, n, w: 0.1 ** (3 * (i - w) // (n - w))),
    "whole numbers": share(fall=lambda i, n, w: half((i - w) // (n - w))),
    "exchanged": lambda i, n, w: half((i - w) / (n - w)) if i < w else (i + 1) / max(w, 1),
    "steps and warm-up exchanged": lambda i, n, w: share()(i, max(w, 1), n),
    "counts from 1": lambda i, n, w: share()(i + 1, n, w),
    "no division by a warm-up of 0": lambda i, n, w: min((i + 1) / w, half((i - w) / (n - w))),
    "the reverse": lambda i, n, w: share()(n - 1 - i, n, w),
    "a percentage": lambda i, n, w: 100 * share()(i, n, w),
    "a list": lambda i, n, w: [share()(j, n, w) for j in range(n)],
    "no return": lambda i, n, w: None,
    "a text": lambda i, n, w: str(share()(i, n, w)),
    "rounded": lambda i, n, w: round(share()(i, n, w), 2),
    "constant in the last branch": lambda i, n, w: share()(i, n, w) if i < w else 0.5,
    "warm-up missing its branch": lambda i, n, w: (i + 1) / w if i < w else None,
}


def by(rule, decay=lambda d: d, free=0.0):
    """Two groups by a rule of (name, parameter)."""

    def parameter_groups(model, weight_decay):
        named = list(model.named_parameters())
        return [
            {"params": [p for name, p in named if rule(name, p)], "weight_decay": decay(weight_decay)},
            {"params": [p for name, p in named if not rule(name, p)], "weight_decay": free},
        ]

    return parameter_groups


def kernel(name, p):
    return name.endswith("weight") and p.ndim > 1


def by_linear(model, weight_decay):
    decayed = {id(m.weight) for m in model.modules() if isinstance(m, nn.Linear)}
    return by(lambda name, p: id(p) in decayed)(model, weight_decay)


def by_leaves(model, weight_decay):
    """Modules alone: the class token and the positions belong to none."""
    groups = []
    for module in model.modules():
        own = list(module.parameters(recurse=False))
        if own and not list(module.children()):
            decays = isinstance(module, nn.Linear | nn.Conv2d)
            groups += [{"params": [p], "weight_decay": weight_decay * (decays and p.ndim > 1)} for p in own]
    return groups


def one_generator_for_both(model, weight_decay):
    named = model.named_parameters()
    return [
        {"params": [p for name, p in named if kernel(name, p)], "weight_decay": weight_decay},
        {"params": [p for name, p in named if not kernel(name, p)], "weight_decay": 0.0},
    ]


WRONG_GROUPS = {
    "all": by(lambda name, p: True),
    "none": by(lambda name, p: False),
    "all but biases": by(lambda name, p: not name.endswith("bias")),
    "all but biases and norms": by(lambda name, p: not name.endswith("bias") and "norm" not in name),
    "all weights": by(lambda name, p: name.endswith("weight")),
    "more than one axis": by(lambda name, p: p.ndim > 1),
    "positions": by(lambda name, p: p.ndim > 1 and "cls" not in name),
    "class token": by(lambda name, p: p.ndim > 1 and "position" not in name),
    "exchanged": by(lambda name, p: not kernel(name, p)),
    "two axes": by(lambda name, p: p.ndim == 2),
    "Linear alone": by_linear,
    "four axes": by(lambda name, p: p.ndim == 4),
    "no head": by(lambda name, p: kernel(name, p) and not name.startswith("head")),
    "no embedding": by(lambda name, p: kernel(name, p) and not name.startswith("embed")),
    "no patches": by(lambda name, p: kernel(name, p) and "patches" not in name and "stem" not in name),
    "blocks alone": by(lambda name, p: kernel(name, p) and name.startswith("blocks")),
    "no attention": by(lambda name, p: kernel(name, p) and "attention" not in name),
    "no mlp": by(lambda name, p: kernel(name, p) and "mlp" not in name),
    "biases decay": by(lambda name, p: not any(part in name for part in ("norm", "cls_token", "position"))),
    "biases decay, weights don't": by(lambda name, p: name.endswith("bias")),
    "norms' scales decay": by(lambda name, p: name.endswith("weight") and "position" not in name),
    "norms' shifts decay": by(
        lambda name, p: kernel(name, p) or name.endswith(("norm.bias", "norm1.bias", "norm2.bias"))
    ),
    "last norm decays": by(lambda name, p: kernel(name, p) or name == "norm.weight"),
    "head's bias decays": by(lambda name, p: kernel(name, p) or name == "head.bias"),
    "a fixed decay": by(kernel, decay=lambda d: 0.05),
    "torch's decay": by(kernel, decay=lambda d: 0.01),
    "half a decay": by(kernel, decay=lambda d: d / 2),
    "a decay of 0.01 for the rest": by(kernel, free=0.01),
    "1 - decay": by(kernel, decay=lambda d: 1 - d),
    "decay forgotten in the second group": lambda m, d: [
        by(kernel)(m, d)[0],
        {"params": by(kernel)(m, d)[1]["params"]},
    ],
    "decay forgotten in the first group": lambda m, d: [{"params": by(kernel)(m, d)[0]["params"]}, by(kernel)(m, d)[1]],
    "another key": lambda m, d: [{"params": g["params"], "decay": g["weight_decay"]} for g in by(kernel)(m, d)],
    "no key params": lambda m, d: [{"parameters": g["params"], "weight_decay": d} for g in by(kernel)(m, d)],
    "first group alone": lambda m, d: by(kernel)(m, d)[:1],
    "everything twice": lambda m, d: [*by(kernel)(m, d), {"params": list(m.parameters()), "weight_decay": 0.0}],
    "norms in both": lambda m, d: [
        {"params": [p for n, p in m.named_parameters() if n.endswith("weight")], "weight_decay": d},
        {"params": [p for n, p in m.named_parameters() if p.ndim != 2], "weight_decay": 0.0},
    ],
    "names": lambda m, d: [
        {"params": [n for n, p in m.named_parameters() if kernel(n, p)], "weight_decay": d},
        {"params": [n for n, p in m.named_parameters() if not kernel(n, p)], "weight_decay": 0.0},
    ],
    "copies": lambda m, d: [g | {"params": [p.clone() for p in g["params"]]} for g in by(kernel)(m, d)],
    "data": lambda m, d: [g | {"params": [p.data for p in g["params"]]} for g in by(kernel)(m, d)],
    "generators": lambda m, d: [g | {"params": (p for p in g["params"])} for g in by(kernel)(m, d)],
    "an iterator": lambda m, d: [g | {"params": iter(g["params"])} for g in by(kernel)(m, d)],
    "filter": lambda m, d: [
        {"params": filter(lambda p: p.ndim in (2, 4), m.parameters()), "weight_decay": d},
        {"params": filter(lambda p: p.ndim not in (2, 4), m.parameters()), "weight_decay": 0.0},
    ],
    "one generator for both": one_generator_for_both,
    "leaves alone": by_leaves,
    "a set": lambda m, d: [g | {"params": set(g["params"])} for g in by(kernel)(m, d)],
    "two lists": lambda m, d: [g["params"] for g in by(kernel)(m, d)],
    "a dictionary": lambda m, d: {"decayed": by(kernel)(m, d)[0], "free": by(kernel)(m, d)[1]},
    "an optimiser": lambda m, d: torch.optim.AdamW(by(kernel)(m, d)),
    "no return": lambda m, d: None,
    "a text for the decay": by(kernel, decay=str),
    "tensors of the state": lambda m, d: [
        {"params": [t for n, t in m.state_dict().items() if kernel(n, t)], "weight_decay": d},
        {"params": [t for n, t in m.state_dict().items() if not kernel(n, t)], "weight_decay": 0.0},
    ],
    "three axes": by(lambda name, p: kernel(name, p) or p.ndim == 3),
    "large ones": by(lambda name, p: p.numel() > 8),
    "weight decay halved by two groups": by(lambda name, p: kernel(name, p) and "qkv" not in name),
}


def measured(
    *,
    join=lambda hits, n, size: torch.cat(hits).double().mean().item(),
    before=lambda model: model.eval(),
    after=lambda model: model.train(),
    answer=lambda logits: logits.argmax(1),
    cut=lambda x, size: x.split(size),
    cut_labels=None,
    guard=torch.no_grad,
):
    def accuracy(model, images, labels, batch_size):
        before(model)
        with guard():
            batches = zip(cut(images, batch_size), (cut_labels or cut)(labels, batch_size), strict=False)
            hits = [answer(model(x)) == y for x, y in batches]
        after(model)
        return join(hits, len(images), batch_size)

    return accuracy


def means(hits):
    return [hit.double().mean().item() for hit in hits]


def right_reset(model, images, labels, batch_size):
    model.eval()
    with torch.no_grad():
        for x, y in zip(images.split(batch_size), labels.split(batch_size), strict=True):
            right = 0
            right += (model(x).argmax(1) == y).sum().item()
    model.train()
    return right / len(images)


def balanced(model, images, labels, batch_size):
    model.eval()
    with torch.no_grad():
        found = torch.cat([model(x).argmax(1) for x in images.split(batch_size)])
    model.train()
    return torch.stack([(found[labels == k] == k).double().mean() for k in labels.unique()]).mean()


def by_probability(model, images, labels, batch_size):
    model.eval()
    with torch.no_grad():
        p = torch.cat([model(x).softmax(1) for x in images.split(batch_size)])
    model.train()
    return p.gather(1, labels[:, None]).mean().item()


def two_best(model, images, labels, batch_size):
    model.eval()
    with torch.no_grad():
        best = torch.cat([model(x).topk(2).indices for x in images.split(batch_size)])
    model.train()
    return (best == labels[:, None]).any(1).double().mean().item()


def thawed_all(model, images, labels, batch_size):
    result = accuracy_by_frozen_parameters(model, images, labels, batch_size)
    model.requires_grad_(True)
    return result


def darkens(model, images, labels, batch_size):
    images -= 1
    return accuracy_by_sum(model, images + 1, labels, batch_size)


def frozen_for_good(model, images, labels, batch_size):
    model.requires_grad_(False)
    return accuracy_by_sum(model, images, labels, batch_size)


def eval_too_late(model, images, labels, batch_size):
    with torch.no_grad():
        hits = [
            model(x).argmax(1) == y for x, y in zip(images.split(batch_size), labels.split(batch_size), strict=True)
        ]
    model.eval()
    model.train()
    return torch.cat(hits).double().mean()


def train_in_the_loop(model, images, labels, batch_size):
    model.eval()
    right = 0
    with torch.no_grad():
        for x, y in zip(images.split(batch_size), labels.split(batch_size), strict=True):
            right += (model(x).argmax(1) == y).sum().item()
            model.train()
    return right / len(images)


def returns_in_the_loop(model, images, labels, batch_size):
    model.eval()
    right = 0
    with torch.no_grad():
        for x, y in zip(images.split(batch_size), labels.split(batch_size), strict=True):
            right += (model(x).argmax(1) == y).sum().item()
            model.train()
            return right / len(images)


def asks_twice(model, images, labels, batch_size):
    """In evaluation mode first, then in training mode: the second answers count."""
    model.eval()
    with torch.no_grad():
        model(images[:batch_size])
    return eval_too_late(model, images, labels, batch_size)


WRONG_ACCURACY = {
    "mean of batches": measured(join=lambda hits, n, size: sum(means(hits)) / len(hits)),
    "training mode": measured(before=lambda model: model.train()),
    "eval forgotten": measured(before=lambda model: None),
    "left in eval": measured(after=lambda model: None),
    "eval too late": eval_too_late,
    "train in the loop": train_in_the_loop,
    "returns in the loop": returns_in_the_loop,
    "eval of a part": measured(before=lambda model: model[4].eval()),
    "last batch left out": measured(
        join=lambda hits, n, size: torch.cat([h for h in hits if len(h) == size] or [torch.zeros(1)]).double().mean()
    ),
    "last batch left out, divided by n": measured(
        join=lambda hits, n, size: sum(int(h.sum()) for h in hits if len(h) == size) / n
    ),
    "count": measured(join=lambda hits, n, size: torch.cat(hits).sum().item()),
    "last batch": measured(join=lambda hits, n, size: means(hits)[-1]),
    "first batch": measured(join=lambda hits, n, size: means(hits)[0]),
    "right reset": right_reset,
    "by batches": measured(join=lambda hits, n, size: torch.cat(hits).sum().item() / len(hits)),
    "by full batches": measured(join=lambda hits, n, size: torch.cat(hits).sum().item() / (len(hits) * size)),
    "by batch size": measured(join=lambda hits, n, size: torch.cat(hits).sum().item() / size),
    "percentage": measured(join=lambda hits, n, size: 100 * torch.cat(hits).double().mean().item()),
    "wrong answers": measured(join=lambda hits, n, size: 1 - torch.cat(hits).double().mean().item()),
    "whole division": measured(join=lambda hits, n, size: torch.cat(hits).sum().item() // n),
    "n - 1": measured(join=lambda hits, n, size: torch.cat(hits).sum().item() / (n - 1)),
    "sum of means": measured(join=lambda hits, n, size: sum(means(hits))),
    "rounded": measured(join=lambda hits, n, size: round(torch.cat(hits).double().mean().item(), 1)),
    "best batch": measured(join=lambda hits, n, size: max(means(hits))),
    "list of batches": measured(join=lambda hits, n, size: means(hits)),
    "hits": measured(join=lambda hits, n, size: torch.cat(hits)),
    "argmin": measured(answer=lambda logits: logits.argmin(1)),
    "argmax over images": measured(answer=lambda logits: logits.argmax(0)),
    "argmax over all": measured(answer=lambda logits: logits.argmax()),
    "always class 0": measured(answer=lambda logits: torch.zeros(len(logits)).long()),
    "rounded logits": measured(answer=lambda logits: logits[:, 0].round()),
    "max for argmax": measured(answer=lambda logits: logits.max(1).values),
    "all at once": measured(cut=lambda x, size: [x]),
    "one by one": measured(cut=lambda x, size: x.split(1)),
    "twice as large batches": measured(cut=lambda x, size: x.split(2 * size)),
    "equal chunks": measured(cut=lambda x, size: x.chunk(size)),
    "first labels for all": measured(cut_labels=lambda y, size: [y[: len(x)] for x in y.split(size)]),
    "labels reversed": measured(cut_labels=lambda y, size: y.flip(0).split(size)),
    "images reversed": measured(cut=lambda x, size: x.split(size)[::-1], cut_labels=lambda y, size: y.split(size)),
    "every batch_size-th image": measured(cut=lambda x, size: [x[::size]]),
    "one image too many": measured(cut=lambda x, size: [x[i : i + size + 1] for i in range(0, len(x), size)]),
    "gradients kept": measured(guard=torch.enable_grad),
    "gradients kept, detached": measured(guard=torch.enable_grad, answer=lambda logits: logits.detach().argmax(1)),
    "frozen for good": frozen_for_good,
    "balanced": balanced,
    "by probability": by_probability,
    "two best": two_best,
    "no return": lambda *a: None,
    "a text": lambda *a: f"{accuracy_by_sum(*a):.1%}",
    "loss": lambda model, x, y, size: F.cross_entropy(model.eval()(x), y).item(),
    "dropped short batches in a loop": measured(
        cut=lambda x, size: [x[i : i + size] for i in range(0, len(x) - size + 1, size)]
    ),
    "thawed all": thawed_all,
    "images in place": darkens,
}


class Loop:
    """The loop, with steps that are somebody's."""

    def __init__(self, **steps):
        self.__dict__ |= steps

    def __call__(self, model, images, labels, orders, batch_size, learning_rate, warmup, clip):
        self.model, self.images, self.labels, self.orders = model, images, labels, orders
        self.size, self.rate, self.warmup, self.clip = batch_size, learning_rate, warmup, clip
        self.optimizer, self.an_epoch = self.make(self), self.count(self)
        self.mode(self)
        losses, step = [], 0
        for epoch, order in enumerate(self.order(self)):
            self.begin(self, epoch)
            for i, rows in enumerate(self.cut(self, order)):
                lr = self.rate * self.share(self, epoch, i, step)
                for name in self.steps:
                    if name == "rate":
                        self.set(self, lr)
                    elif name == "loss":
                        loss = self.loss(self, *self.batch(self, rows))
                    elif name == "zero":
                        self.optimizer.zero_grad()
                    elif name == "back":
                        loss.backward()
                    elif name == "clip":
                        self.shorten(self)
                    elif name == "step":
                        self.optimizer.step()
                losses.append(self.keep(self, loss, rows))
                step += 1
        return self.end(self, losses)

    steps = ("rate", "loss", "zero", "back", "clip", "step")
    make = staticmethod(lambda s: torch.optim.AdamW(s.model.parameters(), lr=s.rate, weight_decay=0.05))
    count = staticmethod(lambda s: math.ceil(len(s.images) / s.size))
    mode = staticmethod(lambda s: s.model.train())
    order = staticmethod(lambda s: s.orders)
    begin = staticmethod(lambda s, epoch: None)
    cut = staticmethod(lambda s, order: order.split(s.size))
    share = staticmethod(
        lambda s, epoch, i, step: train.schedule(step, steps=s.an_epoch * len(s.orders), warmup=s.warmup)
    )
    batch = staticmethod(lambda s, rows: (s.images[rows], s.labels[rows]))
    loss = staticmethod(lambda s, x, y: F.cross_entropy(s.model(x), y, label_smoothing=0.1))
    shorten = staticmethod(lambda s: nn.utils.clip_grad_norm_(s.model.parameters(), s.clip))
    keep = staticmethod(lambda s, loss, rows: loss.item())
    end = staticmethod(lambda s, losses: losses)

    @staticmethod
    def set(s, lr):
        for group in s.optimizer.param_groups:
            group["lr"] = lr


def new_optimizer(s, epoch):
    s.optimizer = s.make(s)


def compounding(s, lr):
    for group in s.optimizer.param_groups:
        group["lr"] *= lr / s.rate


def scheduled(step_of):
    return lambda s, epoch, i, step: train.schedule(
        min(step_of(s, epoch, i, step), s.an_epoch * len(s.orders)), steps=s.an_epoch * len(s.orders), warmup=s.warmup
    )


def adam(kind=torch.optim.AdamW, **settings):
    return lambda s: kind(s.model.parameters(), lr=s.rate, **{"weight_decay": 0.05} | settings)


def each_clipped(s):
    for parameter in s.model.parameters():
        nn.utils.clip_grad_norm_(parameter, s.clip)


def a_mean_an_epoch(s, losses):
    return [sum(losses[i : i + s.an_epoch]) / s.an_epoch for i in range(0, len(losses), s.an_epoch)]


def without_kernels(s):
    free = [p for p in s.model.parameters() if p.ndim == 1]
    decayed = [p for p in s.model.parameters() if p.ndim > 1]
    return torch.optim.AdamW([{"params": decayed}, {"params": free, "weight_decay": 0.0}], lr=s.rate, weight_decay=0.05)


WRONG_FIT = {
    "no zero_grad": Loop(steps=("rate", "loss", "back", "clip", "step")),
    "zero_grad after backward": Loop(steps=("rate", "loss", "back", "zero", "clip", "step")),
    "zero_grad between clip and step": Loop(steps=("rate", "loss", "back", "clip", "zero", "step")),
    "zero_grad once an epoch": Loop(
        steps=("rate", "loss", "back", "clip", "step"), begin=lambda s, epoch: s.optimizer.zero_grad()
    ),
    "step before backward": Loop(steps=("rate", "loss", "step", "zero", "back", "clip")),
    "no backward": Loop(steps=("rate", "loss", "zero", "clip", "step")),
    "no step": Loop(steps=("rate", "loss", "zero", "back", "clip")),
    "two steps": Loop(steps=("rate", "loss", "zero", "back", "clip", "step", "step")),
    "rate after the step": Loop(steps=("loss", "zero", "back", "clip", "step", "rate")),
    "rate never set": Loop(steps=("loss", "zero", "back", "clip", "step")),
    "clip before backward": Loop(steps=("rate", "loss", "zero", "clip", "back", "step")),
    "clip after the step": Loop(steps=("rate", "loss", "zero", "back", "step", "clip")),
    "no clip": Loop(steps=("rate", "loss", "zero", "back", "step")),
    "clip twice": Loop(shorten=lambda s: nn.utils.clip_grad_norm_(s.model.parameters(), s.clip / 2)),
    "clip at 1": Loop(shorten=lambda s: nn.utils.clip_grad_norm_(s.model.parameters(), 1.0)),
    "clip by value": Loop(shorten=lambda s: nn.utils.clip_grad_value_(s.model.parameters(), s.clip)),
    "each clipped": Loop(shorten=each_clipped),
    "clip by the largest": Loop(
        shorten=lambda s: nn.utils.clip_grad_norm_(s.model.parameters(), s.clip, norm_type=math.inf)
    ),
    "clip of the last layer": Loop(shorten=lambda s: nn.utils.clip_grad_norm_(list(s.model.parameters())[-2:], s.clip)),
    "eval mode": Loop(mode=lambda s: s.model.eval()),
    "mode as it was": Loop(mode=lambda s: None),
    "train mode from the second epoch on": Loop(mode=lambda s: None, begin=lambda s, e: s.model.train(e > 0)),
    "eval from the second epoch on": Loop(begin=lambda s, e: s.model.train(e == 0)),
    "softmax twice": Loop(loss=lambda s, x, y: F.cross_entropy(s.model(x).softmax(1), y, label_smoothing=0.1)),
    "no smoothing": Loop(loss=lambda s, x, y: F.cross_entropy(s.model(x), y)),
    "smoothing of 0.2": Loop(loss=lambda s, x, y: F.cross_entropy(s.model(x), y, label_smoothing=0.2)),
    "sum for mean": Loop(loss=lambda s, x, y: F.cross_entropy(s.model(x), y, label_smoothing=0.1, reduction="sum")),
    "loss divided by the batch": Loop(
        loss=lambda s, x, y: F.cross_entropy(s.model(x), y, label_smoothing=0.1) / len(x)
    ),
    "n // batch": Loop(count=lambda s: len(s.images) // s.size),
    "n // batch + 1": Loop(count=lambda s: len(s.images) // s.size + 1),
    "steps of images": Loop(
        share=lambda s, e, i, step: train.schedule(step, steps=len(s.images) * len(s.orders), warmup=s.warmup)
    ),
    "new optimiser an epoch": Loop(begin=new_optimizer),
    "warm-up in epochs": Loop(
        share=lambda s, e, i, step: train.schedule(
            step, steps=s.an_epoch * max(len(s.orders), s.warmup + 1), warmup=s.warmup * s.an_epoch
        )
    ),
    "counts epochs": Loop(share=lambda s, e, i, step: train.schedule(e, steps=len(s.orders), warmup=1)),
    "rate once an epoch": Loop(share=scheduled(lambda s, e, i, step: e * s.an_epoch)),
    "restarts": Loop(share=scheduled(lambda s, e, i, step: i)),
    "the epoch for the step": Loop(share=scheduled(lambda s, e, i, step: e)),
    "counts from 1": Loop(share=scheduled(lambda s, e, i, step: step + 1)),
    "counts images": Loop(share=scheduled(lambda s, e, i, step: step * s.size)),
    "e + i": Loop(share=scheduled(lambda s, e, i, step: e + i)),
    "constant": Loop(share=lambda s, e, i, step: 1.0),
    "no warm-up": Loop(share=lambda s, e, i, step: train.schedule(step, steps=s.an_epoch * len(s.orders), warmup=0)),
    "warm-up without cosine": Loop(share=lambda s, e, i, step: min(1.0, (step + 1) / s.warmup)),
    "rate compounds": Loop(set=compounding),
    "share for rate": Loop(set=lambda s, lr: Loop.set(s, lr / s.rate)),
    "rate in another place": Loop(set=lambda s, lr: setattr(s.optimizer, "lr", lr)),
    "rate in the defaults": Loop(set=lambda s, lr: s.optimizer.defaults.update(lr=lr)),
    "adam": Loop(make=adam(torch.optim.Adam)),
    "sgd": Loop(make=adam(torch.optim.SGD)),
    "decay of torch": Loop(make=lambda s: torch.optim.AdamW(s.model.parameters(), lr=s.rate)),
    "no decay": Loop(make=adam(weight_decay=0.0)),
    "decay of 0.5": Loop(make=adam(weight_decay=0.5)),
    "decay of kernels alone": Loop(make=without_kernels),
    "other betas": Loop(make=adam(betas=(0.9, 0.95))),
    "amsgrad": Loop(make=adam(amsgrad=True)),
    "last layer alone": Loop(
        make=lambda s: torch.optim.AdamW(list(s.model.parameters())[-2:], lr=s.rate, weight_decay=0.05)
    ),
    "in order": Loop(order=lambda s: [order.sort().values for order in s.orders]),
    "same order": Loop(order=lambda s: [s.orders[0]] * len(s.orders)),
    "last order": Loop(order=lambda s: [s.orders[-1]] * len(s.orders)),
    "orders backwards": Loop(order=lambda s: s.orders[::-1]),
    "order inverted": Loop(order=lambda s: [order.argsort() for order in s.orders]),
    "another shuffle": Loop(order=lambda s: [torch.randperm(len(order)) for order in s.orders]),
    "first epoch alone": Loop(order=lambda s: s.orders[:1]),
    "one epoch too few": Loop(order=lambda s: s.orders[:-1]),
    "last batch left out": Loop(cut=lambda s, order: [rows for rows in order.split(s.size) if len(rows) == s.size]),
    "last batch left out, and counted out": Loop(
        cut=lambda s, order: [rows for rows in order.split(s.size) if len(rows) == s.size],
        count=lambda s: len(s.images) // s.size,
    ),
    "chunks": Loop(cut=lambda s, order: order.chunk(s.size)),
    "one by one": Loop(cut=lambda s, order: order.split(1), count=lambda s: len(s.images)),
    "whole epochs": Loop(cut=lambda s, order: [order], count=lambda s: 1),
    "first batch alone": Loop(cut=lambda s, order: [order[: s.size]] * s.an_epoch),
    "labels not permuted": Loop(
        order=lambda s: [list(zip(o.split(s.size), torch.arange(len(o)).split(s.size), strict=True)) for o in s.orders],
        cut=lambda s, order: order,
        batch=lambda s, rows: (s.images[rows[0]], s.labels[rows[1]]),
    ),
    "images not permuted": Loop(
        order=lambda s: [list(zip(o.split(s.size), torch.arange(len(o)).split(s.size), strict=True)) for o in s.orders],
        cut=lambda s, order: order,
        batch=lambda s, rows: (s.images[rows[1]], s.labels[rows[0]]),
    ),
    "first labels": Loop(batch=lambda s, rows: (s.images[rows], s.labels[: len(rows)])),
    "labels as they are": Loop(batch=lambda s, rows: (s.images[rows], s.labels)),
    "tensors with their graph": Loop(keep=lambda s, loss, rows: loss),
    "loss times images": Loop(keep=lambda s, loss, rows: loss.item() * len(rows)),
    "loss after the step": Loop(keep=lambda s, loss, rows: s.loss(s, *s.batch(s, rows)).item()),
    "rounded losses": Loop(keep=lambda s, loss, rows: round(loss.item(), 2)),
    "plain losses kept": Loop(
        keep=lambda s, loss, rows: F.cross_entropy(s.model(s.images[rows]), s.labels[rows]).item()
    ),
    "a loss an epoch": Loop(end=a_mean_an_epoch),
    "last loss": Loop(end=lambda s, losses: losses[-1]),
    "mean loss": Loop(end=lambda s, losses: sum(losses) / len(losses)),
    "running mean": Loop(end=lambda s, losses: [sum(losses[: i + 1]) / (i + 1) for i in range(len(losses))]),
    "the model": Loop(end=lambda s, losses: s.model),
    "no return": Loop(end=lambda s, losses: None),
    "a stacked graph": Loop(keep=lambda s, loss, rows: loss, end=lambda s, losses: torch.stack(losses)),
    "a rate of its own": lambda *a: fit_by_groups(*a[:5], 0.05, *a[6:]),
}

BY_LABEL = {
    "training_numbers": {
        f"{key}: {value}": (lambda key=key, value=value: NUMBERS | {key: value})
        for key, values in {
            "loss": [1.099, 0.523, 0.3, 0.693, -1.204, 1.61, 2.3, 1.1, 0.7, 3, "1.20"],
            "target": [
                [0.8, 0.0667, 0.0667, 0.0667],
                [0.8, 0.05, 0.05, 0.05],
                [0.8, 0.2, 0.2, 0.2],
                [1, 0, 0, 0],
                [0.05, 0.85, 0.05, 0.05],
                [0.25, 0.25, 0.25, 0.25],
                [0.95, 0.05, 0.05, 0.05],
                [0.85, 0.05],
                0.85,
                [0.2, 0.2, 0.2, 0.2],
            ],
            "weight": [1.5, 1.6, 1.9, 0.9, 1.4, 2.2, 2.0, 1.0, -2, 1.95, 0.5, 1.7],
            "clipped": [[5, 5], [0.6, 0.8], [6, 8], [4, 3], [1, 3], [2.5, 2.5], [30, 40], 5, [12, 16]],
            "average": [1.1, 1.5, 2.8, 1.0, 0.9, 1.0, 1.8, 2.0],
            "pixels": [
                [-1, 1],
                [15, 31],
                [0, 0.866],
                [0.5, 1],
                [0, 0.5],
                [1, 0],
                [8, 16],
                [0, 2],
                [-0.5, 0.5],
                [7.5, 15.5],
            ],
        }.items()
        for value in values
    },
    "smoothed_cross_entropy": WRONG_LOSS,
    "schedule": WRONG_SCHEDULE,
    "parameter_groups": WRONG_GROUPS,
    "accuracy": WRONG_ACCURACY,
    "fit": WRONG_FIT,
}


# What the check calls the mistake of a wrong submission; one that isn't listed must not be given a name.
NAMES = {
    "training_numbers": {
        "loss: 0.523": "a logarithm to the base 10",
        "loss: 0.3": "a probability in place of its loss",
        "loss: 0.693": "the first class in place of the true one",
        "target: [0.8, 0.0667, 0.0667, 0.0667]": "the smoothed share spread over the other classes alone",
        "target: [0.8, 0.05, 0.05, 0.05]": "a target that does not sum to 1",
        "target: [0.8, 0.2, 0.2, 0.2]": "ε for each of the other classes",
        "weight: 1.5": "plain gradient descent",
        "weight: 1.9": "one of the two changes alone",
        "weight: 0.9": "a decay without the rate",
        "clipped: [5, 5]": "a gradient clipped number by number",
        "clipped: [0.6, 0.8]": "a gradient shortened to 1",
        "average: 1.1": "an average that forgets at once",
        "pixels: [-1, 1]": "test pixels normalised by their own statistics",
        "pixels: [15, 31]": "pixels normalised before they are scaled",
        "pixels: [0, 0.866]": "a standard deviation divided by n - 1",
        "pixels: [0.5, 1]": "pixels that are scaled, but not normalised",
    },
    "smoothed_cross_entropy": {
        "softmax twice": "a softmax taken twice",
        "K - 1": "the smoothed share spread over the other classes alone",
        "not 1": "a target that does not sum to 1",
        "eps each": "ε for every class",
        "eps and 1 - eps exchanged": "ε and 1 - ε exchanged",
        "no smoothing": "no smoothing",
        "a fixed 0.1": "a smoothing of 0.1, whatever epsilon is",
        "hot + eps / K": "a target that sums to more than 1",
        "sum": "a sum over the images",
        "mean over all": "a mean over the classes, too",
        "divided by B twice": "a division by the batch, twice",
        "no minus": "a missing minus",
        "over the images": "a softmax over the images",
        "probabilities": "probabilities without their logarithm",
        "logits": "logits in place of logarithms of probabilities",
        "log of softmax": "a logarithm of zero",
        "exp over sum": "an overflow",
        "the largest of all subtracted": "an overflow",
        "base 10": "a logarithm to the base 10",
        "base 2": "a logarithm to the base 2",
        "kl": "a Kullback-Leibler divergence",
        "binary": "a binary cross-entropy",
        "true class alone": "the true class alone",
        "weights of eps": "ε for every class",
    },
    "schedule": {
        "warm-up from 0": "a warm-up that begins at 0",
        "warm-up from 0 to 1": "a warm-up that begins at 0 and ends at 1",
        "warm-up over w + 1": "a warm-up that does not reach 1",
        "no warm-up": "a warm-up missing",
        "a warm-up at the peak": "a peak from the first step on",
        "a warm-up at 1 / w": "a warm-up that does not grow",
        "a warm-up of a cosine": "a warm-up along a cosine",
        "warm-up over steps": "a warm-up that is divided by all steps",
        "a warm-up squared": "a warm-up along a curve",
        "warm-up in whole numbers": "a whole division in the warm-up",
        "warm-up times cosine": "a warm-up multiplied into a cosine",
        "the smaller of both": "the smaller one of warm-up and cosine",
        "the peak stays": "a rate that stays at its peak",
        "a jump": "a cosine that jumps",
        "too slow": "a cosine that never reaches its end",
        "a step late": "a cosine that comes a step late",
        "a step early": "a cosine that comes a step early",
        "ends early": "a cosine that ends one step early",
        "ends late": "a cosine that ends a step late",
        "a whole cosine": "a whole cosine",
        "a quarter": "a quarter of a cosine",
        "from 1 to -1": "a cosine from 1 to -1",
        "cut at 0": "a cosine that is cut off at 0",
        "not halved": "a cosine that is not halved",
        "halved, no 1": "a cosine without the 1 in front",
        "brackets": "a bracket that is missing",
        "a straight line": "a straight line down",
        "a straight line from the start": "a straight line from the first step",
        "degrees": "a cosine in degrees",
        "no π": "a cosine without π",
        "a sine": "a sine",
        "minus": "a cosine that rises",
        "a floor": "a share that falls to more than 0",
        "whole numbers": "a rate that stays at its peak",
        "counts from 1": "steps counted from 1",
        "the reverse": "the steps in the reverse order",
        "a percentage": "a percentage",
        "rounded": "shares rounded to two decimals",
    },
    "parameter_groups": {
        "all": "a decay on everything",
        "none": "a decay on nothing",
        "all but biases": "a decay on norms, the class token and positions",
        "all but biases and norms": "a decay on the class token and the positions",
        "all weights": "a decay on the norms' scales",
        "more than one axis": "a decay on the class token and the positions",
        "positions": "a decay on the positions",
        "class token": "a decay on the class token",
        "exchanged": "the two groups exchanged",
        "two axes": "kernels of convolutions left out",
        "Linear alone": "kernels of convolutions left out",
        "no head": "a head that is left out",
        "no patches": "kernels of convolutions left out",
        "biases decay": "a decay on biases",
        "norms' scales decay": "a decay on the norms' scales",
        "three axes": "a decay on the class token and the positions",
    },
    "accuracy": {
        "mean of batches": "a mean of the batches' accuracies",
        "training mode": "a model asked in training mode",
        "eval forgotten": "a model asked in training mode",
        "left in eval": "a model left in evaluation mode",
        "eval too late": "a model asked in training mode",
        "last batch left out, divided by n": "the last batch left out of the right answers",
        "count": "the number of right answers",
        "last batch": "the accuracy of the last batch",
        "first batch": "the accuracy of the first batch",
        "right reset": "the right answers of the last batch alone",
        "by batches": "the right answers divided by the number of batches",
        "by full batches": "a division by full batches",
        "by batch size": "the right answers divided by the batch size",
        "percentage": "a percentage",
        "wrong answers": "the share of wrong answers",
        "whole division": "a share of 0",
        "n - 1": "a division by one image too few",
        "sum of means": "a sum of the batches' accuracies",
        "best batch": "the best batch's accuracy",
        "argmin": "the smallest logit",
        "argmax over all": "a share of 0",
        "max for argmax": "a share of 0",
        "all at once": "images that come all at once",
        "one by one": "images that come one by one",
        "gradients kept": "gradients that are kept",
        "gradients kept, detached": "gradients that are kept",
        "dropped short batches in a loop": "the last batch left out",
    },
    "fit": {
        "no zero_grad": "zero_grad forgotten",
        "zero_grad after backward": "steps that change nothing",
        "zero_grad between clip and step": "steps that change nothing",
        "no backward": "steps that change nothing",
        "no step": "steps that change nothing",
        "two steps": "two steps for each batch",
        "rate after the step": "a rate that is set after the step",
        "rate never set": "a constant rate",
        "clip before backward": "clipping in the wrong place, or none",
        "clip after the step": "clipping in the wrong place, or none",
        "no clip": "clipping in the wrong place, or none",
        "clip at 1": "clipping at another norm than `clip`",
        "clip by value": "gradients clipped number by number",
        "each clipped": "each tensor's gradient clipped by itself",
        "eval mode": "a model that is not in training mode",
        "mode as it was": "a model that is not in training mode",
        "softmax twice": "a softmax taken twice",
        "no smoothing": "the smoothing forgotten",
        "sum for mean": "a sum over the batch",
        "n // batch": "a schedule that is too short",
        "n // batch + 1": "a schedule that is too long",
        "steps of images": "steps counted in images",
        "new optimiser an epoch": "a new optimiser in every epoch",
        "warm-up in epochs": "a warm-up counted in epochs",
        "counts epochs": "a schedule that counts epochs",
        "rate once an epoch": "a rate that changes once an epoch",
        "restarts": "a schedule that restarts with every epoch",
        "the epoch for the step": "the epoch's number in place of the step's",
        "counts from 1": "steps counted from 1",
        "constant": "a constant rate",
        "no warm-up": "no warm-up",
        "warm-up without cosine": "a warm-up without the cosine",
        "rate compounds": "a rate that compounds",
        "share for rate": "the share in place of the rate",
        "rate in another place": "a constant rate",
        "rate in the defaults": "a constant rate",
        "adam": "Adam in place of AdamW",
        "sgd": "plain gradient descent",
        "decay of torch": "AdamW's own weight decay",
        "no decay": "no weight decay",
        "in order": "images that are not shuffled",
        "same order": "the same order in every epoch",
        "orders backwards": "the epochs' orders in reverse",
        "order inverted": "orders taken the other way round",
        "first epoch alone": "the first epoch alone",
        "one epoch too few": "the last epoch left out",
        "last batch left out, and counted out": "the smaller last batch left out",
        "one by one": "batches of one image",
        "whole epochs": "whole epochs in one batch",
        "first batch alone": "the first batch in every step",
        "labels not permuted": "labels that are not shuffled along",
        "first labels": "the first labels in every batch",
    },
}
