"""Works for the exercises of lesson 07: right ones, in different ways, and wrong ones."""

import math

import numpy as np
import torch
from submissions import Wrong
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


def schedule_by_numpy(step, steps, warmup):
    return np.where(step < warmup, (step + 1) / max(warmup, 1), 0.5 + 0.5 * np.cos(np.pi * way(step, steps, warmup)))


def way(step, steps, warmup):
    return max(step - warmup, 0) / (steps - warmup)


def schedule_by_sine(step, steps, warmup):
    """The square of a cosine of half the angle, and the smaller of the two branches."""
    rise = (step + 1) / warmup if warmup else math.inf
    return min(rise, math.cos(math.pi / 2 * way(step, steps, warmup)) ** 2)


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


# ---- Wrong ones --------------------------------------------------------------------------------------------------


def loss(target=lambda hot, eps, K: (1 - eps) * hot + eps / K, cost=lambda z: -z.log_softmax(dim=1)):
    def smoothed_cross_entropy(logits, labels, epsilon):
        K = logits.shape[1]
        return (target(F.one_hot(labels, K).to(logits.dtype), epsilon, K) * cost(logits)).sum(dim=1).mean()

    return smoothed_cross_entropy


def share(rise=lambda i, n, w: (i + 1) / w, fall=lambda i, n, w: 0.5 * (1 + math.cos(math.pi * (i - w) / (n - w)))):
    return lambda step, steps, warmup: (rise if step < warmup else fall)(step, steps, warmup)


def half(x):
    return 0.5 * (1 + math.cos(math.pi * x))


def by(rule, free=0.0):
    """Two groups by a rule of (name, parameter)."""

    def parameter_groups(model, weight_decay):
        named = list(model.named_parameters())
        return [
            {"params": [p for name, p in named if rule(name, p)], "weight_decay": weight_decay},
            {"params": [p for name, p in named if not rule(name, p)], "weight_decay": free},
        ]

    return parameter_groups


def darkens(model, images, labels, batch_size):
    images -= 1
    return accuracy_by_sum(model, images + 1, labels, batch_size)


class Loop:
    """The loop, with steps that are somebody's."""

    def __init__(self, **steps):
        self.__dict__ |= steps

    def __call__(self, model, images, labels, orders, batch_size, learning_rate, warmup, clip):
        self.model, self.images, self.labels, self.orders = model, images, labels, orders
        self.size, self.rate, self.warmup, self.clip = batch_size, learning_rate, warmup, clip
        optimizer, self.an_epoch = self.make(self), math.ceil(len(images) / batch_size)
        model.train()
        losses = []
        for epoch, order in enumerate(orders):
            for i, rows in enumerate(order.split(batch_size)):
                train.set_rate(optimizer, learning_rate * self.share(self, epoch * self.an_epoch + i))
                x, y = self.batch(self, rows)
                loss = F.cross_entropy(model(x), y, label_smoothing=0.1)
                optimizer.zero_grad()
                loss.backward()
                self.shorten(self)
                optimizer.step()
                losses.append(self.keep(loss))
        return self.end(self, losses)

    def at(self, step):
        steps = self.an_epoch * len(self.orders)
        return train.schedule(min(step, steps), steps=steps, warmup=self.warmup)

    make = staticmethod(lambda s: torch.optim.AdamW(s.model.parameters(), lr=s.rate, weight_decay=0.05))
    share = staticmethod(lambda s, step: s.at(step))
    batch = staticmethod(lambda s, rows: (s.images[rows], s.labels[rows]))
    shorten = staticmethod(lambda s: nn.utils.clip_grad_norm_(s.model.parameters(), s.clip))
    keep = staticmethod(lambda loss: loss.item())
    end = staticmethod(lambda s, losses: losses)


def answered(question, *answers):
    """A wrong work for each answer to a question."""
    return [Wrong(f"{question}: {x}", lambda x=x: NUMBERS | {question: x}) for x in answers]


def without_decay_where_frozen(model, weight_decay):
    groups = groups_by_module(model, weight_decay)
    for group in groups:
        group["params"] = [p for p in group["params"] if p.requires_grad]
    frozen = [p for p in model.parameters() if not p.requires_grad]
    return [*groups, {"params": frozen, "weight_decay": 0.0}]


def always_at_the_limit(s):
    """Gradients that are short get the length ``clip``, too."""
    length = torch.cat([p.grad.flatten() for p in s.model.parameters()]).norm()
    for parameter in s.model.parameters():
        parameter.grad *= s.clip / length


RIGHT = {
    "training_numbers": (lambda: NUMBERS,),
    "smoothed_cross_entropy": (loss_by_target, loss_by_mix),
    "schedule": (schedule_by_numpy, schedule_by_sine),
    "parameter_groups": (groups_by_module, groups_one_each),
    "accuracy": (accuracy_by_sum, accuracy_at_once),
    "fit": (fit_by_scheduler, fit_by_hand),
}

WRONG = {
    "training_numbers": [
        *answered("loss", 1.099, -1.204, "1.20"),
        *answered("target", [1, 0, 0, 0], [0.85, 0.05], 0.85),
        *answered("clipped", [6, 8], 5),
        *answered("pixels", [0, 0.866], [8, 16]),
    ],
    "smoothed_cross_entropy": [
        Wrong("torch's own", loss_by_torch, "write the loss out"),
        Wrong("a clamp", loss(cost=lambda z: -z.softmax(1).clamp(min=1e-7).log()), "up to 1200"),
        Wrong("detached", lambda z, y, eps: loss_by_target(z.detach(), y, eps), "gradient"),
    ],
    "schedule": [
        Wrong("no warm-up of 0", lambda i, n, w: min((i + 1) / w, half((i - w) / (n - w))), "warmup=0"),
        Wrong("the package's", lambda i, n, w: train.schedule(i, steps=n, warmup=w), "the package's own schedule"),
    ],
    "parameter_groups": [
        Wrong("the class token decays", by(lambda name, p: p.ndim > 1 and "position" not in name), "cls_token"),
        Wrong("frozen ones without", without_decay_where_frozen),
        Wrong("the package's", lambda *a: train.parameter_groups(*a), "the package's own parameter_groups"),
    ],
    "accuracy": [
        Wrong("images changed", darkens, "changed in place"),
    ],
    "fit": [
        Wrong("counts from 1", Loop(share=lambda s, step: s.at(step + 1)), "losses[1] is"),
        Wrong("first labels", Loop(batch=lambda s, rows: (s.images[rows], s.labels[: len(rows)])), "losses[0] is"),
        Wrong("at the limit", Loop(shorten=always_at_the_limit), "clip="),
    ],
}
