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

from vit_tutorial.checks.engine.exercise import Case, Exercise, Fault, Forbidden, Mistake, Observation
from vit_tutorial.checks.engine.functions import call, normal, tensors
from vit_tutorial.checks.engine.layers import random_weights, variant
from vit_tutorial.checks.engine.models import by_parameter, call_with_model
from vit_tutorial.checks.engine.questions import Question, pencil
from vit_tutorial.train import parameter_groups, schedule
from vit_tutorial.vit import ViT, ViTConfig

_COSINE = "Warm-up, then a cosine"
_TWICE = "Softmax twice"
_LOOP = "The loop"

# ---- With a pencil -----------------------------------------------------------------------------------------------

TRAINING_NUMBERS = pencil(
    "training_numbers",
    lesson="07",
    points=4,
    tolerance=0.0025,
    questions={
        "loss": Question(
            1.202,
            "The true class's probability is e to the power of its logit, divided by the sum over all classes. The "
            "loss is minus its logarithm.",
        ),
        "target": Question(
            [0.85, 0.05, 0.05, 0.05],
            "ε is shared equally by all K classes, and the true one gets 1 - ε in addition. The four sum to 1.",
        ),
        "weight": Question(
            1.8,
            "Two things happen: the weight loses rate × decay × w, and moves by the rate, against the gradient.",
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


def _shared_by_others(logits: Tensor, labels: Tensor, epsilon: float) -> Tensor:
    K = logits.shape[1]
    hot = F.one_hot(labels, K)
    return F.cross_entropy(logits, (1 - epsilon) * hot + epsilon / (K - 1) * (1 - hot))


SMOOTHED_CROSS_ENTROPY = Exercise(
    name="smoothed_cross_entropy",
    lesson="07",
    points=3,
    right=_loss,
    cases=lambda: [
        Case(f"logits {(B, K)} up to {4 * size:g}, epsilon={e}", (size * normal(B, K), torch.arange(B) ** 2 % K, e))
        for B, K, e, size in [(3, 4, 0.1, 1.0), (1, 3, 0.4, 1.0), (5, 10, 0.0, 2.0), (4, 6, 0.2, 300.0)]
    ],
    observe=functools.partial(call, differentiable=True),
    forbidden=(Forbidden("cross_entropy", "write the loss out"),),
    mistakes=(
        Mistake(
            name="a softmax taken twice",
            says="You take the softmax of a softmax, and the loss can't get small. Leave the logits as they are.",
            reread=_TWICE,
            wrong=lambda logits, labels, epsilon: _loss(logits.softmax(dim=1), labels, epsilon),
        ),
        Mistake(
            name="ε shared by the other classes alone",
            says="All K classes share it, the true one included: ε / K, not ε / (K - 1).",
            reread="Label smoothing",
            wrong=_shared_by_others,
        ),
    ),
)


# ---- The schedule ------------------------------------------------------------------------------------------------


def _fractions(submission: Any, case: Case) -> Observation:
    """The fraction of the peak rate at each step, the one after the last included."""
    steps, warmup = case.args
    return Observation({"fraction": [submission(step, steps, warmup) for step in range(steps + 1)]})


def _schedule(step: int, steps: int, warmup: int, first: int = 1, start: int | None = None) -> float:
    """The schedule, or one whose warm-up counts from ``first``, or whose fall begins at ``start``."""
    if step < warmup:
        return (step + first) / warmup
    start = warmup if start is None else start
    return (1 + math.cos(math.pi * (step - start) / (steps - start))) / 2


SCHEDULE = Exercise(
    name="schedule",
    lesson="07",
    points=3,
    right=_schedule,
    cases=lambda: [
        Case(f"steps={steps}, warmup={warmup}", (steps, warmup))
        for steps, warmup in [(10, 4), (30, 6), (8, 0), (9, 1), (5, 4)]
    ],
    observe=_fractions,
    tolerance=4e-7,
    forbidden=(schedule,),
    mistakes=(
        Mistake(
            name="a warm-up that begins at 0",
            says="Steps are counted from 0, and the first has a rate: (step + 1) / warmup.",
            reread=_COSINE,
            wrong=functools.partial(_schedule, first=0),
        ),
        Mistake(
            name="a cosine that begins at step 0",
            says="The fall begins after the warm-up: subtract warmup from the step and from the steps.",
            reread=_COSINE,
            wrong=functools.partial(_schedule, start=0),
        ),
    ),
)


# ---- What decays -------------------------------------------------------------------------------------------------


def _by_rule(decays: Callable[[str, nn.Parameter], bool]) -> Callable[..., list[dict[str, Any]]]:
    return lambda model, weight_decay: [
        {"params": [p], "weight_decay": weight_decay * decays(name, p)} for name, p in model.named_parameters()
    ]


def _group_cases() -> list[Case]:
    sizes = ViTConfig(image_size=4, patch_size=2, in_channels=1, num_classes=3, dim=16, depth=1, num_heads=2, mlp_dim=6)
    bare = dataclasses.replace(sizes, pool="mean", position="none")
    stem = nn.Conv2d(1, 4, 3, bias=False).requires_grad_(False)  # it belongs to a group all the same
    return [
        Case("a ViT, weight_decay=0.05", (ViT(sizes), 0.05)),
        Case("a ViT without class token and positions, weight_decay=0.1", (ViT(bare), 0.1)),
        Case("a ConvNet, weight_decay=0.3", (nn.Sequential(stem, nn.BatchNorm2d(4), nn.Linear(4, 3)), 0.3)),
    ]


def _decays(submission: Any, case: Case) -> Observation:
    """The decay of each parameter, by its name."""
    observed = call_with_model(submission, case)
    groups = observed.values.pop("result")
    observed.values |= by_parameter(groups, case.args[0], "weight_decay", default=0.01)  # the optimiser's own
    return observed


PARAMETER_GROUPS = Exercise(
    name="parameter_groups",
    lesson="07",
    points=2,
    right=_by_rule(lambda name, p: p.ndim > 1 and name.endswith("weight")),
    cases=_group_cases,
    observe=_decays,
    tolerance=1e-7,
    forbidden=(parameter_groups,),
    mistakes=(
        Mistake(
            name="a decay of class token and positions",
            says="They have several axes, but aren't weights of a layer: check the name as well.",
            reread="AdamW",
            wrong=_by_rule(lambda name, p: p.ndim > 1),
        ),
        Mistake(
            name="a decay of norms",
            says="A norm's weight is a vector that scales: check the number of axes as well.",
            reread="AdamW",
            wrong=_by_rule(lambda name, p: name.endswith("weight")),
        ),
    ),
)


# ---- Accuracy ----------------------------------------------------------------------------------------------------


class _Classifier(nn.Sequential):
    """It notes what it is asked; and in training it gives other numbers, as with dropout, but without its chance."""

    def __init__(self, classes: int) -> None:
        super().__init__(nn.Flatten(), nn.Linear(12, 8), nn.Tanh(), nn.Linear(8, classes))
        for name, value in random_weights(self).items():
            self.get_parameter(name).data = value.double()
        self.sizes: list[int] = []
        self.graph = False

    def forward(self, x: Tensor) -> Tensor:
        answer: Tensor = super().forward(x)
        self.sizes.append(len(x))
        self.graph |= answer.requires_grad
        return answer.roll(1, dims=-1) if self.training else answer


def _task(count: int, classes: int) -> tuple[Tensor, Tensor]:
    """Images (count, 1, 3, 4), and labels that the classifier gets right about every second time."""
    images = normal(count, 1, 3, 4, seed=count).double()
    best = _Classifier(classes).eval()(images).argmax(dim=1)
    return images, (best + ((torch.arange(count) + count) % 5 > 2)) % classes


def _measured(submission: Any, case: Case) -> Observation:
    observed, model = call_with_model(submission, case), case.args[0]
    observed.values |= {
        "model.training afterwards": model.training,
        "how many images come at once": model.sizes,
        "whether gradients are on while it measures": "on" if model.graph else "off",
    }
    return observed


def _accuracy(
    model: nn.Module, images: Tensor, labels: Tensor, batch_size: int, training: bool = False, by_batch: bool = False
) -> float:
    """The fraction of right answers; or asked in training mode, or as the mean over the batches."""
    model.train(training)
    with torch.no_grad():
        batches = zip(images.split(batch_size), labels.split(batch_size), strict=True)
        hits = [(model(x).argmax(dim=1) == y).double() for x, y in batches]
    model.train()
    return torch.stack([hit.mean() for hit in hits] if by_batch else [torch.cat(hits).mean()]).mean().item()


ACCURACY = Exercise(
    name="accuracy",
    lesson="07",
    points=2,
    right=_accuracy,
    cases=lambda: [
        Case(f"{count} images in batches of {batch}", (_Classifier(3), *_task(count, 3), batch))
        for count, batch in [(11, 4), (12, 4), (5, 8)]
    ],
    observe=_measured,
    mistakes=(
        Mistake(
            name="a missing model.eval()",
            says="In training mode dropout is on, and the model's answers differ: call model.eval() first, and "
            "model.train() afterwards.",
            reread="No `eval()`.",
            wrong=functools.partial(_accuracy, training=True),
            lesson="04",
        ),
        Mistake(
            name="a mean over the batches",
            says="The last batch may be smaller, but counts as much as the others in your mean. Count right answers, "
            "and divide by the number of images.",
            reread=_LOOP,
            wrong=functools.partial(_accuracy, by_batch=True),
        ),
    ),
)


# ---- The challenge -----------------------------------------------------------------------------------------------


class _Training:
    """The right loop, called as ``fit``; each mistake changes one step."""

    def __call__(
        self, model: nn.Module, images: Tensor, labels: Tensor, orders: list[Tensor], *settings: Any
    ) -> list[float]:
        batch_size, learning_rate, warmup, clip = settings
        optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, weight_decay=0.05)
        batches = [rows for order in orders for rows in self.order(order).split(batch_size)]
        self.start(model)
        losses = []
        for step, rows in enumerate(batches):
            optimizer.param_groups[0]["lr"] = learning_rate * _schedule(step, len(batches), warmup)
            loss = self.loss(model(images[rows]), labels[rows])
            self.clear(optimizer)
            loss.backward()
            self.clip(model, clip)
            optimizer.step()
            losses.append(loss.item())
        return losses

    def start(self, model: nn.Module) -> None:
        model.train()

    def order(self, order: Tensor) -> Tensor:
        return order

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        return _loss(logits, labels, 0.1)

    def clear(self, optimizer: torch.optim.Optimizer) -> None:
        optimizer.zero_grad()

    def clip(self, model: nn.Module, longest: float) -> None:
        nn.utils.clip_grad_norm_(model.parameters(), longest)


def _fit_cases() -> list[Case]:
    cases = []
    # In the last one no gradient is so long that it is clipped, there is no warm-up, and one batch holds all.
    sizes = [(10, 4, 3, 4, 0.05, 0.3), (7, 3, 2, 3, 0.03, 0.1), (5, 8, 10, 0, 0.05, 50.0)]
    for count, batch, epochs, warmup, rate, clip in sizes:
        generator = torch.Generator().manual_seed(count)
        orders = [torch.randperm(count, generator=generator) for _ in range(epochs)]
        label = f"{count} images, {epochs} epochs in batches of {batch}, warmup={warmup}, clip={clip}"
        cases.append(Case(label, (_Classifier(3).eval(), *_task(count, 3), orders, batch, rate, warmup, clip)))
    return cases


def _trained(submission: Any, case: Case) -> Observation:
    """The loss of every step, and the weights at the end."""
    observed, model = call_with_model(submission, case, trained=True), case.args[0]
    if any(part.requires_grad for part in tensors(observed.result)):
        raise Fault("the losses are tensors with their graph, which keep all that was computed: return loss.item()")
    weights = {f"{name}, trained": p.detach() for name, p in model.named_parameters()}
    observed.values = {"losses": observed.values.pop("result")} | weights | observed.values
    return observed


FIT = Exercise(
    name="fit",
    lesson="07",
    points=3,
    right=_Training(),
    cases=_fit_cases,
    observe=_trained,
    mistakes=(
        Mistake(
            name="zero_grad forgotten",
            says="Gradients add up until you clear them: optimizer.zero_grad() in every step, before backward().",
            reread="`zero_grad` forgotten, images not shuffled",
            wrong=variant(_Training, clear=lambda self, optimizer: None)(),
        ),
        Mistake(
            name="images that are not shuffled",
            says="You visit them in their stored order. Epoch e visits them in the order of orders[e].",
            reread="`zero_grad` forgotten, images not shuffled",
            wrong=variant(_Training, order=lambda self, order: order.sort().values)(),
        ),
        Mistake(
            name="a softmax taken twice",
            says="cross_entropy takes logits, and contains the softmax: give it the model's answer as it is.",
            reread=_TWICE,
            wrong=variant(_Training, loss=lambda self, logits, labels: _loss(logits.softmax(dim=1), labels, 0.1))(),
        ),
        Mistake(
            name="a model that is not in training mode",
            says="The model arrives in evaluation mode, and was trained in that mode: call model.train() first.",
            reread=_LOOP,
            wrong=variant(_Training, start=lambda self, model: model.eval())(),
        ),
        Mistake(
            name="the smoothing forgotten",
            says="The loss has label_smoothing=0.1 here.",
            reread="Label smoothing",
            wrong=variant(_Training, loss=lambda self, logits, labels: _loss(logits, labels, 0.0))(),
        ),
        Mistake(
            name="clipping in the wrong place, or none",
            says="Your numbers are those of training without clipping. clip_grad_norm_ belongs between backward(), "
            "which computes the gradient, and step(), which uses it.",
            reread="Clipping",
            wrong=variant(_Training, clip=lambda self, model, longest: None)(),
        ),
    ),
)
