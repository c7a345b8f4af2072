"""Right answers to the exercises of lesson 07, written in different ways: no check may find fault with them."""

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


def groups_by_name(model, weight_decay):
    free = ("bias", "cls_token", "position", "norm.weight", "norm1.weight", "norm2.weight")
    return [
        {"params": [p for name, p in model.named_parameters() if name.endswith(free)], "weight_decay": 0.0},
        {
            "params": (p for name, p in model.named_parameters() if not name.endswith(free)),
            "weight_decay": weight_decay,
        },
    ]


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
    answers = torch.cat([model.eval()(x).topk(1).indices[:, 0] for x in images.split(batch_size)])
    model.train(before)
    return (answers == labels).double().mean()


def accuracy_by_loader(model, images, labels, batch_size):
    model.train(False)
    parts = []
    for x, y in DataLoader(TensorDataset(images, labels), batch_size):
        share = (model(x).max(dim=1)[1] == y).numpy().mean()
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


SOLUTIONS = {
    "training_numbers": (
        lambda: NUMBERS,
        lambda: NUMBERS | {"loss": torch.tensor(1.2), "target": np.array([0.85, 0.05, 0.05, 0.05]), "pixels": (0, 1)},
        lambda: NUMBERS | {"clipped": torch.tensor([6.0, 8.0]) / 2, "average": np.float32(1.9), "weight": 2 - 0.2},
    ),
    "smoothed_cross_entropy": (loss_by_torch, loss_by_target, loss_by_mix, loss_by_loops),
    "schedule": (schedule_by_numpy, schedule_by_sine, schedule_by_torch),
    "parameter_groups": (groups_by_name, groups_by_module, groups_one_each),
    "accuracy": (accuracy_by_sum, accuracy_at_once, accuracy_by_loader),
    "fit": (fit_by_scheduler, fit_by_hand, fit_by_groups),
}
