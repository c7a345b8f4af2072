"""Checks of lesson 07: numbers with a pencil, the smoothed loss, the schedule, what decays, accuracy, the loop."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vit_tutorial.checks.engine import (
    Case,
    Exercise,
    Fault,
    Forbidden,
    Mistake,
    ModelSnapshot,
    Observation,
    Question,
    Row,
    as_number,
    as_tensor,
    by_parameter,
    call,
    changed_argument,
    copy_arguments,
    describe,
    normal,
    pencil,
    random_weights,
)
from vit_tutorial.train import parameter_groups, schedule
from vit_tutorial.vit import ViT, ViTConfig

# ---- With a pencil -----------------------------------------------------------------------------------------------


TRAINING_NUMBERS = pencil(
    "training_numbers",
    lesson="07",
    points=4,
    tolerance=0.0025,
    questions={
        "loss": Question(
            1.202,
            "First the probabilities: e to the power of each logit, divided by their sum. Then minus the "
            "logarithm of the true class's.",
            "The loss, by hand",
            {0.6931471805599453: "the loss of class 0. Classes count from 0: the true one's logit is log 3."},
        ),
        "target": Question(
            [0.85, 0.05, 0.05, 0.05],
            "ε is shared equally by all K classes, and the true one gets 1 - ε besides. The four sum to 1.",
        ),
        "weight": Question(
            1.8,
            "Two things happen: the weight loses rate × decay × w, and makes a step as long as the rate, "
            "against the gradient.",
            "AdamW",
            {
                1.5: "the weight after plain gradient descent. AdamW divides by the gradient's size: its first step "
                "is the rate.",
                1.9: "one of the two changes alone. It is a step of 0.1, and rate × decay × w, 0.1 here, too.",
            },
        ),
        "clipped": Question([3, 4], "The length of (6, 8) is too large: multiply both by largest norm / length."),
        "average": Question(1.9, "decay × the average so far, plus (1 - decay) × the weight."),
        "pixels": Question(
            [0, 1], "Scale to [0, 1], subtract the training pixels' mean, divide by their standard deviation."
        ),
    },
)


# ---- The loss ----------------------------------------------------------------------------------------------------


def _loss(logits: Tensor, labels: Tensor, epsilon: float) -> Tensor:
    return F.cross_entropy(logits, labels, label_smoothing=epsilon)


def _loss_cases() -> list[Case]:
    made = []
    sizes = [(3, 4, 0.1, 1.0), (1, 3, 0.4, 1.0), (5, 10, 0.0, 2.0), (4, 6, 0.2, 300.0), (2, 5, 0.9, 1.0)]
    for B, K, epsilon, size in sizes:
        labels = torch.arange(B) ** 2 % K
        label = f"logits {(B, K)}, epsilon={epsilon}{', logits up to hundreds' if size > 100 else ''}"
        made.append(Case(label, (size * normal(B, K, seed=B), labels, epsilon)))
    return made


def _by_target(target: Callable[[Tensor, float, int], Tensor]) -> Callable[..., Tensor]:
    """The loss with another target (from one-hot labels, epsilon, K)."""

    def smoothed_cross_entropy(logits: Tensor, labels: Tensor, epsilon: float) -> Tensor:
        K = logits.shape[1]
        aim = target(F.one_hot(labels, K).to(logits.dtype), epsilon, K)
        return -(aim * logits.log_softmax(dim=1)).sum(dim=1).mean()

    return smoothed_cross_entropy


SMOOTHED_CROSS_ENTROPY = Exercise(
    name="smoothed_cross_entropy",
    lesson="07",
    points=3,
    takes="fn(logits, labels, epsilon): (B, K) and (B,) -> the mean loss, a tensor of one number",
    right=_loss,
    cases=_loss_cases,
    observe=functools.partial(call, differentiable=True),
    forbidden=(Forbidden("cross_entropy", "write the loss out"),),
    mistakes=(
        Mistake(
            name="a softmax taken twice",
            says="The logits come as they are. You take the softmax of a softmax, and the loss can't get small any "
            "more.",
            reread="Softmax twice",
            wrong=lambda logits, labels, epsilon: _loss(logits.softmax(dim=1), labels, epsilon),
        ),
        Mistake(
            name="a target that does not sum to 1",
            says="The true class has 1 - ε in yours. It gets its part of ε, too: 1 - ε + ε / K.",
            reread="Label smoothing",
            wrong=_by_target(lambda hot, epsilon, K: (1 - epsilon) * hot + epsilon / K * (1 - hot)),
        ),
        Mistake(
            name="a target that sums to more than 1",
            says="You add ε / K to each class, but take nothing off the true one: it keeps 1 - ε.",
            reread="Label smoothing",
            wrong=_by_target(lambda hot, epsilon, K: hot + epsilon / K),
        ),
        Mistake(
            name="ε shared by the other classes alone",
            says="All K classes share it, the true one, too: ε / K, not ε / (K - 1).",
            reread="Label smoothing",
            wrong=_by_target(lambda hot, epsilon, K: (1 - epsilon) * hot + epsilon / (K - 1) * (1 - hot)),
        ),
        Mistake(
            name="no smoothing",
            says="The true class gets 1 - ε + ε / K.",
            reread="Label smoothing",
            wrong=lambda logits, labels, _: _loss(logits, labels, 0.0),
        ),
    ),
)


# ---- The schedule ------------------------------------------------------------------------------------------------


def _schedule_cases() -> list[Case]:
    sizes = [(10, 4), (30, 6), (8, 0), (9, 1), (40, 16), (10, 2), (5, 4), (200, 120), (1, 0), (2, 1)]
    return [Case(f"steps={steps}, warmup={warmup}", (steps, warmup)) for steps, warmup in sizes]


def _shares(work: Any, case: Case) -> Observation:
    """The share at each step, the one after the last included, as a tensor."""
    steps, warmup = case.args
    found = []
    for step in range(steps + 1):
        share = as_number(given := work(step, steps, warmup))
        if share is None:
            raise Fault(f"schedule({step}, {steps}, {warmup}) is {describe(given)}, expected a number")
        found.append(float(share))
    return Observation({"share": torch.tensor(found, dtype=torch.float64)})


def _scheduled(
    rise: Callable[[int, int], float] = lambda step, warmup: (step + 1) / warmup,
    fall: Callable[[int, int, int], float] = lambda step, steps, warmup: (step - warmup) / (steps - warmup),
    wave: Callable[[float], float] = lambda share: (1 + math.cos(math.pi * share)) / 2,
) -> Callable[[int, int, int], float]:
    """The schedule with another warm-up or another fall."""
    return lambda step, steps, warmup: rise(step, warmup) if step < warmup else wave(fall(step, steps, warmup))


_COSINE = "Warm-up, then a cosine"

_schedule = _scheduled()


SCHEDULE = Exercise(
    name="schedule",
    lesson="07",
    points=3,
    takes="fn(step, steps, warmup): the share of the peak rate, a number from 0 to 1",
    right=_schedule,
    cases=_schedule_cases,
    observe=_shares,
    tolerance=4e-7,
    forbidden=(schedule,),
    mistakes=(
        Mistake(
            name="a warm-up that begins at 0",
            says="Steps are counted from 0, and the first has a rate: (step + 1) / warmup.",
            reread=_COSINE,
            wrong=_scheduled(rise=lambda step, warmup: step / warmup),
        ),
        Mistake(
            name="a cosine that begins at step 0",
            says="The fall begins after the warm-up: take warmup off the step and off the steps.",
            reread=_COSINE,
            wrong=_scheduled(fall=lambda step, steps, warmup: step / steps),
        ),
        Mistake(
            name="a cosine that reaches 0 one step early",
            says="It reaches 0 at `steps`, the step after the last: divide by steps - warmup.",
            reread=_COSINE,
            wrong=_scheduled(fall=lambda step, steps, warmup: (step - warmup) / max(steps - warmup - 1, 1)),
        ),
        Mistake(
            name="a straight fall",
            says="It falls along half a cosine.",
            reread=_COSINE,
            wrong=_scheduled(wave=lambda share: 1 - share),
        ),
    ),
)


# ---- What decays -------------------------------------------------------------------------------------------------


def _by_rule(decays: Callable[[str, nn.Parameter], bool]) -> Callable[..., list[dict[str, Any]]]:
    def groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
        names = dict(model.named_parameters())
        chosen = {name for name, parameter in names.items() if decays(name, parameter)}
        return [
            {"params": [names[name] for name in names if name in chosen], "weight_decay": weight_decay},
            {"params": [names[name] for name in names if name not in chosen], "weight_decay": 0.0},
        ]

    return groups


def _kernel(name: str, parameter: nn.Parameter) -> bool:
    return name.endswith("weight") and parameter.ndim > 1


class _Convolutions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 4, 3, bias=False)
        self.bn = nn.BatchNorm2d(4)
        self.head = nn.Linear(4, 3)
        self.stem.requires_grad_(False)  # it belongs to a group all the same


def _group_cases() -> list[Case]:
    sizes = ViTConfig(image_size=4, patch_size=2, in_channels=1, num_classes=3, dim=16, depth=1, num_heads=2, mlp_dim=6)
    return [
        Case("a ViT, weight_decay=0.05", (ViT(sizes), 0.05)),
        Case("a ViT without class token and positions, weight_decay=0.1",
             (ViT(dataclasses.replace(sizes, pool="mean", position="none")), 0.1)),
        Case("a ConvNet, weight_decay=0.3", (_Convolutions(), 0.3)),
    ]  # fmt: skip


def _decays(work: Any, case: Case) -> Observation:
    """The decay of each parameter, by its name."""
    model, weight_decay = case.args
    lent = ModelSnapshot(model)
    decays = by_parameter(work(model, weight_decay), model, "weight_decay", default=0.01)  # the optimiser's own
    return Observation(decays | {"the model afterwards": lent.afterwards()})


PARAMETER_GROUPS = Exercise(
    name="parameter_groups",
    lesson="07",
    points=2,
    takes='fn(model, weight_decay): dictionaries of "params" and "weight_decay" for torch.optim.AdamW',
    right=_by_rule(_kernel),
    cases=_group_cases,
    observe=_decays,
    tolerance=1e-7,
    forbidden=(parameter_groups,),
    mistakes=(
        Mistake(
            name="a decay of all parameters",
            says="Only matrices and kernels decay.",
            reread="AdamW",
            wrong=_by_rule(lambda name, p: True),
        ),
        Mistake(
            name="a decay of class token and positions",
            says="They have several axes, but are no weights of a layer: ask for the name, too.",
            reread="AdamW",
            wrong=_by_rule(lambda name, p: p.ndim > 1),
        ),
        Mistake(
            name="a decay of norms",
            says="A norm's weight is a vector, which scales: ask for the axes, too.",
            reread="AdamW",
            wrong=_by_rule(lambda name, p: name.endswith("weight")),
        ),
    ),
)


# ---- Accuracy ----------------------------------------------------------------------------------------------------


class _Switch(nn.Module):
    """What dropout is, without its chance: in training it gives other numbers."""

    def forward(self, x: Tensor) -> Tensor:
        return x.roll(1, dims=-1) if self.training else x


def _classifier(pixels: int, classes: int, seed: int = 0) -> nn.Module:
    model = nn.Sequential(nn.Flatten(), nn.Linear(pixels, 8), nn.Tanh(), _Switch(), nn.Linear(8, classes)).double()
    for name, value in random_weights(model, seed).items():
        model.get_parameter(name).data = value.double()
    return model


def _task(count: int, classes: int, seed: int) -> tuple[Tensor, Tensor]:
    """Images (count, 1, 3, 4), and labels that the classifier gets right about every second time."""
    images = normal(count, 1, 3, 4, seed=seed).double()
    with torch.no_grad():
        best = _classifier(12, classes).eval()(images).argmax(dim=1)
    return images, (best + ((torch.arange(count) + count) % 5 > 2)) % classes


class _Asked(nn.Module):
    """A classifier that notes what it is asked, with a frozen bias."""

    def __init__(self, pixels: int, classes: int, loud: float = 1) -> None:
        super().__init__()
        self.loud = loud
        self.layers = _classifier(pixels, classes)
        self.layers.get_parameter("1.bias").requires_grad_(False)  # whoever thaws all afterwards thaws this one, too
        self.sizes: list[int] = []
        self.graph = False

    def forward(self, x: Tensor) -> Tensor:
        answer: Tensor = self.loud * (self.layers(x) / 8 - 0.15)  # the largest logit may be negative
        self.sizes.append(len(x))
        self.graph |= answer.requires_grad
        return answer


def _accuracy_cases() -> list[Case]:
    made = []
    for count, batch, classes in [(11, 4, 3), (9, 4, 4), (12, 4, 5), (5, 8, 3)]:
        arguments = (*_task(count, classes, seed=count), batch)
        made.append(Case(f"{count} images in batches of {batch}", arguments, (classes,)))
    # A function that rises with the logits, such as sigmoid, makes the largest ones equal.
    return [*made, Case("11 images in batches of 4, logits in the thousands", made[0].args, (3, 1e4))]


def _measured(work: Any, case: Case) -> Observation:
    model = _Asked(12, *case.build).train()
    lent, given = ModelSnapshot(model), copy_arguments(case.args)
    result = work(model, *given)
    images, _, batch = case.args
    full = "in batches of batch_size" if _batched(model.sizes, len(images), batch) else "in others"
    observed = {
        "result": result,
        "model.training afterwards": model.training,
        "how the images come": (full),
        "whether gradients are on while it measures": "on" if model.graph else "off",
        "the model afterwards": lent.afterwards(),
    }
    return Observation(observed, changed_argument=changed_argument(case.args, given, first=2))


def _batched(sizes: list[int], images: int, batch: int) -> bool:
    """Whether all images came in full batches, but for the last one; more may have been asked than once."""
    full, rest = divmod(images, batch)
    return set(sizes) <= {batch, rest, images if images < batch else batch} and sizes.count(batch) >= full


def _accurate(
    ask: Callable[[nn.Module, Tensor], Tensor] = lambda model, x: model.eval()(x),
    share: Callable[[list[Tensor]], Tensor] = lambda hits: torch.cat(hits).double().mean(),
) -> Callable[..., float]:
    """The share of right answers, asked or averaged in another way."""

    def accuracy(model: nn.Module, images: Tensor, labels: Tensor, batch_size: int) -> float:
        with torch.no_grad():
            parts = zip(images.split(batch_size), labels.split(batch_size), strict=True)
            hits = [ask(model, x).argmax(dim=1) == y for x, y in parts]
        model.train()
        return share(hits).item()

    return accuracy


ACCURACY = Exercise(
    name="accuracy",
    lesson="07",
    points=2,
    takes="fn(model, images, labels, batch_size): the share of right answers, from 0 to 1",
    right=_accurate(),
    cases=_accuracy_cases,
    observe=_measured,
    mistakes=(
        Mistake(
            name="eval() forgotten",
            says="In training mode dropout is on, and the model answers otherwise: model.eval() first, and "
            "model.train() afterwards.",
            reread="No `eval()`.",
            wrong=_accurate(ask=lambda model, x: model(x)),
            lesson="04",
        ),
        Mistake(
            name="a mean of the batches' shares",
            says="The last batch may be smaller, and counts as much as the others in yours. Count right answers, and "
            "divide by all images.",
            reread="2 · A loop that reads digits",
            wrong=_accurate(share=lambda hits: torch.stack([hit.double().mean() for hit in hits]).mean()),
        ),
        Mistake(
            name="a count in place of a share",
            says="Divide the right answers by the number of images.",
            reread="2 · A loop that reads digits",
            wrong=_accurate(share=lambda hits: torch.cat(hits).double().sum()),
        ),
    ),
)


# ---- The challenge -----------------------------------------------------------------------------------------------


def _fit(
    training: bool = True,
    smoothing: float = 0.1,
    clear: bool = True,
    cut: bool = True,
    place: Callable[[int, int, int], int] = lambda epoch, i, an_epoch: epoch * an_epoch + i,
) -> Callable[..., list[float]]:
    """The loop without one of its parts, or with another place in the schedule."""

    def fit(
        model: nn.Module,
        images: Tensor,
        labels: Tensor,
        orders: list[Tensor],
        batch_size: int,
        learning_rate: float,
        warmup: int,
        clip: float,
    ) -> list[float]:
        optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, weight_decay=0.05)
        an_epoch, losses = math.ceil(len(images) / batch_size), []
        model.train(training)
        for epoch, order in enumerate(orders):
            for i, rows in enumerate(order.split(batch_size)):
                share = _schedule(place(epoch, i, an_epoch), len(orders) * an_epoch, warmup)
                optimizer.param_groups[0]["lr"] = learning_rate * share
                loss = _loss(model(images[rows]), labels[rows], smoothing)
                if clear:
                    optimizer.zero_grad()
                loss.backward()
                if cut:
                    nn.utils.clip_grad_norm_(model.parameters(), clip)
                optimizer.step()
                losses.append(loss.item())
        return losses

    return fit


def _fit_cases() -> list[Case]:
    made = []
    # In the last one no gradient is so long that it is clipped, there is no warm-up, and one batch holds all.
    sizes = [(10, 4, 3, 4, 0.05, 0.3), (7, 3, 2, 3, 0.03, 0.1), (6, 3, 4, 2, 0.08, 0.5), (5, 8, 10, 0, 0.05, 50.0)]
    for count, batch, epochs, warmup, rate, clip in sizes:
        generator = torch.Generator().manual_seed(count)
        orders = [torch.randperm(count, generator=generator) for _ in range(epochs)]
        label = f"{count} images, {epochs} epochs in batches of {batch}, warmup={warmup}, clip={clip}"
        made.append(Case(label, (*_task(count, 3, seed=count), orders, batch, rate, warmup, clip), (count,)))
    return made


def _trained(work: Any, case: Case) -> Observation:
    """The loss of every step, and the weights at the end."""
    model = _classifier(12, 3, *case.build).eval()
    given, lent = copy_arguments(case.args), ModelSnapshot(model, trained=True)
    losses = work(model, *given)
    numbers = as_tensor(losses)
    if isinstance(losses, (list, tuple)) and None not in (found := [as_number(loss) for loss in losses]):
        numbers = torch.tensor(found, dtype=torch.float64)
    if numbers is None:
        raise Fault(f"returned {describe(losses)}, expected a list of numbers, the loss of each step")
    if numbers.requires_grad or any(isinstance(loss, Tensor) and loss.requires_grad for loss in losses):
        raise Fault("the losses are tensors with their graph, which keep all that was computed: return loss.item()")
    observed = {
        "losses": numbers,
        **{f"{name}, trained": p.detach() for name, p in model.named_parameters()},
        "the model afterwards": lent.afterwards(),
    }
    return Observation(observed, changed_argument=changed_argument(case.args, given, first=2))


def _from_when(wrong: list[Row]) -> str:
    """Where the losses leave the right ones, which says in which part of a step the mistake is."""
    case, right, theirs = wrong[0]
    a, b = right.values["losses"], theirs.values["losses"]
    if not isinstance(b, Tensor) or a.shape != b.shape:
        return ""
    steps = (~((a - b).abs() <= FIT.tolerance * max(1.0, a.abs().max().item()))).nonzero().flatten().tolist()
    if not steps:
        return f"With {case.label}, the losses are right, but not all weights at the end: look at the last step."
    if steps[0] == 0:
        return f"The very first loss is wrong with {case.label}."
    return f"With {case.label}, losses are right up to step {steps[0] - 1}, and that of step {steps[0]} is wrong."


FIT = Exercise(
    name="fit",
    lesson="07",
    points=3,
    takes="fn(model, images, labels, orders, batch_size, learning_rate, warmup, clip): the loss of each step. "
    "It trains the model in place",
    right=_fit(),
    cases=_fit_cases,
    observe=_trained,
    explain=_from_when,
    mistakes=(
        Mistake(
            name="zero_grad forgotten",
            says="Gradients add up until you clear them: optimizer.zero_grad() in every step, before backward().",
            reread="`zero_grad` forgotten, images not shuffled",
            wrong=_fit(clear=False),
        ),
        Mistake(
            name="a model that is not in training mode",
            says="The model came in evaluation mode, and was trained in it: call model.train() first.",
            reread="2 · A loop that reads digits",
            wrong=_fit(training=False),
        ),
        Mistake(
            name="the smoothing forgotten",
            says="The loss has label_smoothing=0.1 here.",
            reread="Label smoothing",
            wrong=_fit(smoothing=0.0),
        ),
        Mistake(
            name="a rate that changes once an epoch",
            says="You set the rate at the start of an epoch and keep it. It is set anew before every step.",
            reread=_COSINE,
            wrong=_fit(place=lambda epoch, i, an_epoch: epoch * an_epoch),
        ),
        Mistake(
            name="a schedule that restarts with every epoch",
            says="Your step begins at 0 in each epoch. It must count on, epoch * (steps an epoch) + i.",
            reread=_COSINE,
            wrong=_fit(place=lambda epoch, i, an_epoch: i),
        ),
        Mistake(
            name="clipping in the wrong place, or none",
            says="Your numbers are those of a training without it. clip_grad_norm_ stands between backward(), which "
            "makes the gradient, and step(), which uses it.",
            reread="Clipping",
            wrong=_fit(cut=False),
        ),
    ),
)
