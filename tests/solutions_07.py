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


def schedule_in_one_line(step, steps, warmup):
    return (step + 1) / warmup if step < warmup else (math.cos((step - warmup) / (steps - warmup) * math.pi) + 1) / 2


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


# ---- Wrong ones --------------------------------------------------------------------------------------------------


def loss(
    target=lambda hot, eps, K: (1 - eps) * hot + eps / K,
    cost=lambda z: -z.log_softmax(dim=1),
):
    def smoothed_cross_entropy(logits, labels, epsilon):
        K = logits.shape[1]
        return (target(F.one_hot(labels, K).to(logits.dtype), epsilon, K) * cost(logits)).sum(dim=1).mean()

    return smoothed_cross_entropy


def kl_divergence(logits, labels, epsilon):
    K = logits.shape[1]
    target = (1 - epsilon) * F.one_hot(labels, K) + epsilon / K
    return F.kl_div(F.log_softmax(logits, 1), target, reduction="batchmean")


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


def kernel(name, p):
    return name.endswith("weight") and p.ndim > 1


def measured(
    join=lambda hits, n, size: torch.cat(hits).double().mean().item(),
    before=lambda model: model.eval(),
    answer=lambda logits: logits.argmax(1),
    cut=lambda x, size: x.split(size),
):
    def accuracy(model, images, labels, batch_size):
        before(model)
        with torch.no_grad():
            batches = zip(cut(images, batch_size), cut(labels, batch_size), strict=True)
            hits = [answer(model(x)) == y for x, y in batches]
        model.train()
        return join(hits, len(images), batch_size)

    return accuracy


def thawed_all(model, images, labels, batch_size):
    result = accuracy_by_frozen_parameters(model, images, labels, batch_size)
    model.requires_grad_(True)
    return result


def darkens(model, images, labels, batch_size):
    images -= 1
    return accuracy_by_sum(model, images + 1, labels, batch_size)


def train_in_the_loop(model, images, labels, batch_size):
    model.eval()
    right = 0
    with torch.no_grad():
        for x, y in zip(images.split(batch_size), labels.split(batch_size), strict=True):
            right += (model(x).argmax(1) == y).sum().item()
            model.train()
    return right / len(images)


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


def adam(**settings):
    return lambda s: torch.optim.AdamW(s.model.parameters(), lr=s.rate, **{"weight_decay": 0.05} | settings)


def each_clipped(s):
    for parameter in s.model.parameters():
        nn.utils.clip_grad_norm_(parameter, s.clip)


def a_mean_an_epoch(s, losses):
    return [sum(losses[i : i + s.an_epoch]) / s.an_epoch for i in range(0, len(losses), s.an_epoch)]


def answered(question, *answers):
    """A wrong work for each answer to a question."""
    return [Wrong(f"{question}: {x}", lambda x=x: NUMBERS | {question: x}) for x in answers]


def without_decay_where_frozen(model, weight_decay):
    groups = groups_by_module(model, weight_decay)
    for group in groups:
        group["params"] = [p for p in group["params"] if p.requires_grad]
    frozen = [p for p in model.parameters() if not p.requires_grad]
    return [*groups, {"params": frozen, "weight_decay": 0.0}]


def groups_of_the_first_model(model, weight_decay, kept={}):  # noqa: B006
    return kept.setdefault(weight_decay, groups_by_module(model, weight_decay))


NO_DECAY = ("bias", "cls_token", "position", "norm.weight", "norm1.weight", "norm2.weight")


def in_equal_parts(x, size):
    return x.chunk(-(-len(x) // size))


def top_alone(model):
    model.training = False


def accuracy_without_a_last_image(model, images, labels, batch_size):
    """Wrong where one image is left for the last batch."""
    model.eval()
    hits = 0
    with torch.no_grad():
        for i in range(0, len(images) - 1, batch_size):
            hits += int((model(images[i : i + batch_size]).argmax(1) == labels[i : i + batch_size]).sum())
    model.train()
    return hits / len(images)


def without_gradients(model, *arguments):
    share = accuracy_by_sum(model, *arguments)
    model.zero_grad()
    return share


def fit_and_freeze(model, *arguments):
    losses = fit_by_scheduler(model, *arguments)
    model.requires_grad_(False)
    return losses


def always_at_the_limit(s):
    """Gradients that are short get the length ``clip``, too."""
    length = torch.cat([p.grad.flatten() for p in s.model.parameters()]).norm()
    for parameter in s.model.parameters():
        parameter.grad *= s.clip / length


RIGHT = {
    "training_numbers": (
        lambda: NUMBERS,
        lambda: NUMBERS | {"loss": torch.tensor(1.2), "target": np.array([0.85, 0.05, 0.05, 0.05]), "pixels": (0, 1)},
        lambda: NUMBERS | {"clipped": torch.tensor([6.0, 8.0]) / 2, "average": np.float32(1.9), "weight": 2 - 0.2},
    ),
    "smoothed_cross_entropy": (loss_by_target, loss_by_mix, loss_by_loops, loss_by_nll),
    "schedule": (schedule_by_numpy, schedule_by_sine, schedule_by_torch, schedule_in_one_line),
    "parameter_groups": (groups_by_module, groups_one_each, groups_bare, groups_in_a_tuple),
    "accuracy": (accuracy_by_sum, accuracy_at_once, accuracy_by_loader, accuracy_by_frozen_parameters),
    "fit": (fit_by_scheduler, fit_by_hand, fit_by_groups, lambda *a: np.array(fit_by_scheduler(*a))),
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
        Wrong("ε and 1 - ε", loss(target=lambda hot, eps, K: eps * hot + (1 - eps) / K), "your loss has the target"),
        Wrong(
            "base 2",
            loss(cost=lambda z: -z.log_softmax(1) / math.log(2)),
            "the right gradient, times 1.4427 (with logits (3, 4)",
        ),
        Wrong("over K, too", lambda *a: loss_by_mix(*a) / a[0].shape[1], "times 0.25 (with logits (3, 4)"),
        Wrong("the divergence", kl_divergence, "is a constant added"),
        Wrong("a clamp", loss(cost=lambda z: -z.softmax(1).clamp(min=1e-7).log()), "logits up to hundreds"),
        Wrong("a float", lambda z, y, eps: loss_by_target(z, y, eps).item(), "without .item()"),
        Wrong("detached", lambda z, y, eps: loss_by_target(z.detach(), y, eps), "gradient"),
        Wrong(
            "half precision",
            lambda z, y, eps: loss_by_mix(z.bfloat16(), y, eps).float(),
            "near the right ones",
            "sum to 0",
        ),
        Wrong("rounded", lambda *a: (loss_by_mix(*a) * 1e4).round() / 1e4, "rounded on its way", "true class"),
    ],
    "schedule": [
        Wrong("warm-up over steps", share(rise=lambda i, n, w: (i + 1) / n), "your warm-up goes from 0.005 to 0.6"),
        Wrong(
            "a whole cosine",
            share(fall=lambda i, n, w: half(2 * (i - w) / (n - w))),
            "are 1, 0.5, 0, 1; they should be 1, 0.854, 0.5, 0",
        ),
        Wrong("no π", share(fall=lambda i, n, w: 0.5 * (1 + math.cos((i - w) / (n - w)))), "are 1, 0.984, 0.939, 0.77"),
        Wrong("the smaller of both", lambda i, n, w: min((i + 1) / max(w, 1), half(i / n))),
        Wrong("a percentage", lambda i, n, w: 100 * share()(i, n, w), "100 times the right one"),
        Wrong("no warm-up of 0", lambda i, n, w: min((i + 1) / w, half((i - w) / (n - w))), "warmup=0"),
        Wrong("two steps at least", lambda i, n, w: share()(i, max(n, 2), w), "steps=1, warmup=0"),
        Wrong("16 at most", lambda i, n, w: share()(i, n, min(w, 16)), "steps=200, warmup=120"),
        Wrong("another end", lambda i, n, w: share()(i, n, w) if i < n else 0.5, "share[10] is 0.5"),
        Wrong("rounded", lambda *a: round(share()(*a), 5), "is 0.93301, expected 0.9330127"),
        Wrong("the package's", lambda i, n, w: train.schedule(i, steps=n, warmup=w), "the package's own schedule"),
        Wrong("no return", lambda i, n, w: None, "is the return missing?"),
    ],
    "parameter_groups": [
        Wrong("the class token decays", by(lambda name, p: p.ndim > 1 and "position" not in name), "cls_token"),
        Wrong("nothing decays", by(lambda name, p: False), "These should decay, and don't"),
        Wrong("exchanged", by(lambda name, p: not kernel(name, p)), "or the other way round"),
        Wrong(
            "norms by name", by(lambda name, p: not name.endswith(NO_DECAY)), "These decay, and shouldn't: bn.weight"
        ),
        Wrong("a little decay", by(kernel, free=1e-6), "there are decays of 1e-06."),
        Wrong("frozen ones without", without_decay_where_frozen, "and don't: stem.weight", "other way round"),
        Wrong("copies", lambda m, d: [g | {"params": [p.clone() for p in g["params"]]} for g in by(kernel)(m, d)]),
        Wrong("the first model's", groups_of_the_first_model, "which is not a parameter of the model"),
        Wrong("evaluation mode", lambda m, d: by(kernel)(m.eval(), d), "model.training afterwards is False"),
        Wrong(
            "cleared", lambda m, d: (m.zero_grad(), by(kernel)(m, d))[1], "gradients afterwards is different, or none"
        ),
        Wrong("the package's", lambda *a: train.parameter_groups(*a), "the package's own parameter_groups"),
    ],
    "accuracy": [
        Wrong("train in the loop", train_in_the_loop, "is asked is evaluation at first, then training"),
        Wrong(
            "eval of the top", measured(before=top_alone), "is asked is evaluation at the top, training in its parts"
        ),
        Wrong("full batches", measured(cut=lambda x, n: [x[i : i + n] for i in range(0, len(x) - n + 1, n)])),
        Wrong("rounded", lambda *a: round(accuracy_by_sum(*a), 4), "is it rounded, or", "It looks like"),
        Wrong("a percentage", measured(join=lambda h, n, _: 100 * torch.cat(h).sum().item() / n), "from 0 to 1"),
        Wrong("max for argmax", measured(answer=lambda logits: logits.max(1).values), "the share of 0 of 11 images"),
        Wrong("sigmoid", measured(answer=lambda logits: logits.sigmoid().argmax(1)), "logits in the thousands"),
        Wrong("equal parts", measured(cut=in_equal_parts), "how the images come is 3, 3, 3 at once"),
        Wrong("one image left out", accuracy_without_a_last_image, "the share of 5 of 9 images, and 6 are right"),
        Wrong("cleared", without_gradients, "the parameters' gradients afterwards is different, or none"),
        Wrong("all thawed", thawed_all, "what is frozen afterwards"),
        Wrong("images changed", darkens, "changed in place"),
    ],
    "fit": [
        Wrong("each clipped", Loop(shorten=each_clipped)),
        Wrong("counts from 1", Loop(share=lambda s, step: s.at(step + 1)), "losses are right up to step 0"),
        Wrong("first labels", Loop(batch=lambda s, rows: (s.images[rows], s.labels[: len(rows)])), "very first loss"),
        Wrong("other betas", Loop(make=adam(betas=(0.9, 0.95))), "leave its betas"),
        Wrong("at the limit", Loop(shorten=always_at_the_limit), "clip="),
        Wrong("a warm-up at least", lambda *a: fit_by_scheduler(*a[:6], max(a[6], 1), a[7]), "warmup=0"),
        Wrong("with their graph", Loop(keep=lambda loss: loss), "tensors with their graph"),
        Wrong("a mean an epoch", Loop(end=a_mean_an_epoch), "one for each step"),
        Wrong("backwards", Loop(end=lambda s, x: x[::-1]), "the losses that you return aren't", "look at"),
        Wrong("by step", Loop(end=lambda s, x: dict(enumerate(x))), "expected a list of numbers", "torch.Tensor"),
        Wrong("frozen", fit_and_freeze, "what is frozen afterwards is"),
    ],
}
