"""Checks of lesson 07: numbers with a pencil, the smoothed loss, the schedule, what decays, accuracy, the loop."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vit_tutorial.checks.harness import (
    Case,
    Exercise,
    Fault,
    Mistake,
    Result,
    answers,
    call,
    check,
    normal,
    random_weights,
)
from vit_tutorial.vit import ViT, ViTConfig

__all__ = [
    "check_accuracy",
    "check_fit",
    "check_parameter_groups",
    "check_schedule",
    "check_smoothed_cross_entropy",
    "check_training_numbers",
]

# ---- With a pencil -----------------------------------------------------------------------------------------------

NUMBERS = {
    "loss": -math.log(0.3),  # logits log 5, log 3, log 2, true class 1
    "target": [0.85, 0.05, 0.05, 0.05],  # class 0 of 4, epsilon 0.2
    "weight": 1.8,  # AdamW: w = 2, gradient 4, rate 0.1, decay 0.5
    "clipped": [3, 4],  # gradients 6 and 8, largest norm 5
    "average": 1.9,  # of 2.0 and 1.0, decay 0.9
    "pixels": [0, 1],  # training levels 0, 0, 16, 16; test levels 8, 16; white is 16
}

TRAINING_NUMBERS = Exercise(
    name="training_numbers",
    lesson="07",
    right=NUMBERS,
    cases=lambda: [Case(question, (question,)) for question in NUMBERS],
    observe=answers,
    tolerance=0.006,
    secret=True,
    mistakes=(
        Mistake(
            "a softmax taken twice",
            "You took the softmax of the probabilities. The logits' powers of e are 5, 3 and 2; divided by their sum "
            "they are the probabilities, and that is all.",
            "Softmax twice",
            {"loss": -math.log(math.exp(0.3) / (math.exp(0.5) + math.exp(0.3) + math.exp(0.2)))},
        ),
        Mistake(
            "a logarithm to the base 10",
            "The loss is a natural logarithm (ln on a calculator).",
            "2 · The loss, by hand",
            {"loss": -math.log10(0.3)},
        ),
        Mistake(
            "a probability in place of its loss",
            "The loss is minus the logarithm of the true class's probability.",
            "2 · The loss, by hand",
            {"loss": 0.3},
        ),
        Mistake(
            "the largest logit's class in place of the true one",
            "The loss asks for the probability of the true class, whatever the model likes best.",
            "2 · The loss, by hand",
            {"loss": -math.log(0.5)},
        ),
        Mistake(
            "the smoothed share spread over the other classes alone",
            "You divide ε by K - 1. It is spread over all K classes, the true one among them: 1 - ε + ε / K, and ε / K "
            "for the others.",
            "Label smoothing",
            {"target": [0.8, 0.2 / 3, 0.2 / 3, 0.2 / 3]},
        ),
        Mistake(
            "a target that does not sum to 1",
            "The true class keeps 1 - ε, and gets its part ε / K of what is spread, too.",
            "Label smoothing",
            {"target": [0.8, 0.05, 0.05, 0.05]},
        ),
        Mistake(
            "ε for each of the other classes",
            "ε is one share for all classes together, so each gets ε / K.",
            "Label smoothing",
            {"target": [0.8, 0.2, 0.2, 0.2]},
        ),
        Mistake(
            "plain gradient descent",
            "You stepped by rate × gradient. AdamW divides by the gradient's size, so its first step is as large as "
            "the rate. (The decay was right.)",
            "AdamW",
            {"weight": 1.5},
        ),
        Mistake(
            "Adam's decay in place of AdamW's",
            "In Adam the decay joins the gradient and vanishes in the division. AdamW takes rate × decay × w off the "
            "weight, besides the step.",
            "AdamW",
            {"weight": 1.9},
        ),
        Mistake(
            "a decay without the rate",
            "AdamW takes off rate × decay × w, not decay × w.",
            "AdamW",
            {"weight": 0.9},
        ),
        Mistake(
            "a gradient clipped number by number",
            "The length of the whole gradient is measured, √(6² + 8²) = 10, and both numbers shrink by one factor.",
            "Clipping",
            {"clipped": [5, 5]},
        ),
        Mistake(
            "a gradient shortened to 1",
            "The largest norm allowed is 5 here, so the factor is 5 / 10.",
            "Clipping",
            {"clipped": [0.6, 0.8]},
        ),
        Mistake(
            "an average that forgets at once",
            "You gave the new weight the share 0.9. The decay is the share that the old average keeps.",
            "5 · Training it",
            {"average": 1.1},
        ),
        Mistake(
            "test pixels normalised by their own statistics",
            "Mean and standard deviation come from the training pixels. What is measured on the test split has leaked.",
            "1 · The data",
            {"pixels": [-1, 1]},
        ),
        Mistake(
            "pixels normalised before they are scaled",
            "The mean and standard deviation belong to pixels in [0, 1]: divide the levels by 16 first.",
            "The same weights, asked in the wrong way",
            {"pixels": [15, 31]},
        ),
        Mistake(
            "a standard deviation divided by n - 1",
            "You divide the sum of squares by 3. Here it is divided by the number of pixels, 4. (With a whole data set "
            "nobody can tell.)",
            "1 · The data",
            {"pixels": [0, math.sqrt(0.75)]},
        ),
        Mistake(
            "pixels that are scaled, but not normalised",
            "Divide by 16, and then: less the mean, divided by the standard deviation.",
            "1 · The data",
            {"pixels": [0.5, 1]},
        ),
    ),
)


def check_training_numbers(fn: Callable[[], Mapping[str, Any]]) -> bool:
    """Check the answers found with a pencil: ``fn()`` returns them in a dictionary."""
    return check(TRAINING_NUMBERS, fn)


# ---- The loss ----------------------------------------------------------------------------------------------------


def _loss(logits: Tensor, labels: Tensor, epsilon: float) -> Tensor:
    return F.cross_entropy(logits, labels, label_smoothing=epsilon)


def _as_list(work: Any, case: Case) -> Result:
    """As :func:`call`, on a result of shape (1,) in place of ()."""

    def listed(*arguments: Any) -> Any:
        result = work(*arguments)
        if isinstance(result, float):
            raise Fault(
                "returned a float: return the tensor itself, without .item(), or nothing can be learned from it"
            )
        return result.reshape(1) if isinstance(result, Tensor) and result.ndim == 0 else result

    return call(listed, case)


def _loss_cases() -> list[Case]:
    made = []
    for B, K, epsilon, size in [(3, 4, 0.1, 1.0), (1, 3, 0.4, 1.0), (5, 10, 0.0, 2.0), (4, 6, 0.2, 300.0)]:
        labels = torch.arange(B) * 3 % K
        label = f"logits {(B, K)}, epsilon={epsilon}{', logits up to hundreds' if size > 100 else ''}"
        made.append(Case(label, (size * normal(B, K, seed=B), labels, epsilon)))
    return made


def _by_target(
    target: Callable[[Tensor, float, int], Tensor],
    cost: Callable[[Tensor], Tensor] = lambda z: -z.log_softmax(dim=1),
    join: Callable[[Tensor], Tensor] = torch.mean,
) -> Callable[..., Tensor]:
    """The loss with another target (from one-hot labels, epsilon, K), cost of each class, or sum over images."""

    def smoothed_cross_entropy(logits: Tensor, labels: Tensor, epsilon: float) -> Tensor:
        K = logits.shape[1]
        aim = target(F.one_hot(labels, K).to(logits.dtype), epsilon, K)
        return join((aim * cost(logits)).sum(dim=1))

    return smoothed_cross_entropy


def _smooth(hot: Tensor, epsilon: float, K: int) -> Tensor:
    return (1 - epsilon) * hot + epsilon / K


def _powers(logits: Tensor) -> Tensor:
    powers = logits.exp()
    return powers / powers.sum(dim=1, keepdim=True)


SMOOTHED_CROSS_ENTROPY = Exercise(
    name="smoothed_cross_entropy",
    lesson="07",
    right=_loss,
    cases=_loss_cases,
    observe=_as_list,
    mistakes=(
        Mistake(
            "a softmax taken twice",
            "The logits come as they are. You take the softmax of a softmax, and the loss can't get small any more.",
            "Softmax twice",
            lambda logits, labels, epsilon: _loss(logits.softmax(dim=1), labels, epsilon),
        ),
        Mistake(
            "the smoothed share spread over the other classes alone",
            "You divide ε by K - 1. The target is 1 - ε + ε / K for the true class, and ε / K for the others.",
            "Label smoothing",
            _by_target(lambda hot, epsilon, K: (1 - epsilon) * hot + epsilon / (K - 1) * (1 - hot)),
        ),
        Mistake(
            "a target that does not sum to 1",
            "The true class has 1 - ε in yours. It gets its part of what is spread, too: 1 - ε + ε / K.",
            "Label smoothing",
            _by_target(lambda hot, epsilon, K: (1 - epsilon) * hot + epsilon / K * (1 - hot)),
        ),
        Mistake(
            "ε for every class",
            "You add ε to each class. It is one share for all of them together: ε / K each.",
            "Label smoothing",
            _by_target(lambda hot, epsilon, K: (1 - epsilon) * hot + epsilon),
        ),
        Mistake(
            "ε and 1 - ε exchanged",
            "ε is the small share, the one that is spread.",
            "Label smoothing",
            _by_target(lambda hot, epsilon, K: epsilon * hot + (1 - epsilon) / K),
        ),
        Mistake(
            "no smoothing",
            "You leave epsilon out.",
            "Label smoothing",
            _by_target(lambda hot, epsilon, K: hot),
        ),
        Mistake(
            "a sum over the images",
            "The loss of a batch is the mean over its images: otherwise the step would grow with the batch.",
            "2 · The loss, by hand",
            _by_target(_smooth, join=torch.sum),
        ),
        Mistake(
            "a mean over the classes, too",
            "The weighted logarithms are summed over the K classes, and then averaged over the images alone.",
            "2 · The loss, by hand",
            _by_target(lambda hot, epsilon, K: _smooth(hot, epsilon, K) / K),
        ),
        Mistake(
            "a missing minus",
            "Logarithms of probabilities are negative. The loss is minus their weighted sum.",
            "2 · The loss, by hand",
            _by_target(lambda hot, epsilon, K: -_smooth(hot, epsilon, K)),
        ),
        Mistake(
            "a softmax over the images",
            "Your probabilities sum to 1 down the batch. They must sum to 1 over the classes, dim=1.",
            "2 · The loss, by hand",
            _by_target(_smooth, cost=lambda z: -z.log_softmax(dim=0)),
        ),
        Mistake(
            "probabilities without their logarithm",
            "You weigh the probabilities themselves. It is their logarithms that are averaged.",
            "2 · The loss, by hand",
            _by_target(_smooth, cost=lambda z: -z.softmax(dim=1)),
        ),
        Mistake(
            "a logarithm of zero",
            "All is right until the logits get large: then the softmax rounds to 0, whose logarithm is infinite. "
            "log_softmax takes both at once: logits - logits.logsumexp(dim=1, keepdim=True).",
            "2 · The loss, by hand",
            _by_target(_smooth, cost=lambda z: -z.softmax(dim=1).log()),
        ),
        Mistake(
            "an overflow",
            "All is right until the logits get large: e to the power of some hundreds is infinite. Use log_softmax, or "
            "subtract the largest logit first.",
            "2 · The loss, by hand",
            _by_target(_smooth, cost=lambda z: -_powers(z).log()),
        ),
    ),
)


def check_smoothed_cross_entropy(fn: Callable[..., Tensor]) -> bool:
    """Check ``fn(logits, labels, epsilon)``: (B, K) and (B,) -> the mean loss, a tensor of one number."""
    return check(SMOOTHED_CROSS_ENTROPY, fn)


# ---- The schedule ------------------------------------------------------------------------------------------------


def _rise(step: int, steps: int, warmup: int) -> float:
    return (step + 1) / warmup


def _fall(step: int, steps: int, warmup: int) -> float:
    return (1 + math.cos(math.pi * (step - warmup) / (steps - warmup))) / 2


def _schedule(
    rise: Callable[[int, int, int], float] = _rise, fall: Callable[[int, int, int], float] = _fall, late: int = 0
) -> Callable[..., float]:
    def schedule(step: int, steps: int, warmup: int) -> float:
        return (rise if step < warmup + late else fall)(step, steps, warmup)

    return schedule


def _schedule_cases() -> list[Case]:
    made = []
    for steps, warmup in [(10, 4), (30, 6)]:
        made += [
            Case(f"steps={steps}, warmup={warmup}: steps 0 to {warmup - 1}", (steps, warmup, range(warmup))),
            Case(f"steps={steps}, warmup={warmup}: the cosine", (steps, warmup, range(warmup, steps))),
        ]
    return [*made, Case("steps=8, warmup=0", (8, 0, range(8)))]


def _shares(work: Any, case: Case) -> Result:
    steps, warmup, which = case.args
    return {f"schedule({step}, {steps}, {warmup})": work(step, steps, warmup) for step in which}


_COSINE = "Warm-up, then a cosine"

SCHEDULE = Exercise(
    name="schedule",
    lesson="07",
    right=_schedule(),
    cases=_schedule_cases,
    observe=_shares,
    mistakes=(
        Mistake(
            "a warm-up that begins at 0",
            "Your first step has a rate of 0, so it teaches nothing, and the peak comes a step late: "
            "(step + 1) / warmup.",
            _COSINE,
            _schedule(rise=lambda step, steps, warmup: step / warmup),
        ),
        Mistake(
            "a warm-up that is one step too long",
            "step <= warmup takes in one step too many: its share is above 1. The warm-up is step < warmup.",
            _COSINE,
            _schedule(late=1),
        ),
        Mistake(
            "a warm-up that does not reach 1",
            "You divide by warmup + 1. The last step of the warm-up, warmup - 1, has the share 1.",
            _COSINE,
            _schedule(rise=lambda step, steps, warmup: (step + 1) / (warmup + 1)),
        ),
        Mistake(
            "a warm-up missing",
            "Your cosine begins at step 0. For the first steps the share grows from 1 / warmup to 1.",
            _COSINE,
            lambda step, steps, warmup: _fall(step, steps, 0),
        ),
        Mistake(
            "a rate that stays at its peak",
            "After the warm-up the share falls along half a cosine, to nearly 0.",
            _COSINE,
            _schedule(fall=lambda step, steps, warmup: 1.0),
        ),
        Mistake(
            "a cosine that jumps",
            "The cosine begins where the warm-up ends, at step - warmup = 0. Yours counts from step 0, and so starts "
            "below 1.",
            _COSINE,
            _schedule(fall=lambda step, steps, warmup: _fall(step, steps, 0)),
        ),
        Mistake(
            "a cosine that never reaches its end",
            "It begins right, but falls too slowly: after the warm-up there are steps - warmup steps left, not steps.",
            _COSINE,
            _schedule(fall=lambda step, steps, warmup: (1 + math.cos(math.pi * (step - warmup) / steps)) / 2),
        ),
        Mistake(
            "a whole cosine",
            "Your rate falls to 0 half-way and rises again. Only half a cosine is wanted: π times the share of the "
            "way, not 2π.",
            _COSINE,
            _schedule(
                fall=lambda step, steps, warmup: (1 + math.cos(2 * math.pi * (step - warmup) / (steps - warmup))) / 2
            ),
        ),
        Mistake(
            "a quarter of a cosine",
            "Yours falls slowly at first and fast at the end. It must settle at both ends: (1 + cos(π …)) / 2.",
            _COSINE,
            _schedule(fall=lambda step, steps, warmup: math.cos(math.pi / 2 * (step - warmup) / (steps - warmup))),
        ),
        Mistake(
            "a cosine from 1 to -1",
            "A cosine alone falls below 0, and a rate below 0 climbs. Add 1 and halve.",
            _COSINE,
            _schedule(fall=lambda step, steps, warmup: math.cos(math.pi * (step - warmup) / (steps - warmup))),
        ),
        Mistake(
            "a cosine that is not halved",
            "1 + cos runs from 2 to 0. Halve it, so that it begins at 1.",
            _COSINE,
            _schedule(fall=lambda step, steps, warmup: 2 * _fall(step, steps, warmup)),
        ),
        Mistake(
            "a straight line down",
            "Linear decay is used, too, but here the share falls along half a cosine.",
            _COSINE,
            _schedule(fall=lambda step, steps, warmup: 1 - (step - warmup) / (steps - warmup)),
        ),
        Mistake(
            "a cosine in degrees",
            "math.cos takes radians: half a turn is π, not 180.",
            _COSINE,
            _schedule(fall=lambda step, steps, warmup: (1 + math.cos(180 * (step - warmup) / (steps - warmup))) / 2),
        ),
        Mistake(
            "a cosine that ends one step early",
            "Your last step has a rate of 0 and is lost. Divide by steps - warmup, so that 0 would be the step after "
            "the last.",
            _COSINE,
            _schedule(
                fall=lambda step, steps, warmup: (1 + math.cos(math.pi * (step - warmup) / (steps - 1 - warmup))) / 2
            ),
        ),
    ),
)


def check_schedule(fn: Callable[..., float]) -> bool:
    """Check ``fn(step, steps, warmup)``: the share of the peak rate, a number from 0 to 1."""
    return check(SCHEDULE, fn)


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
        self.norm = nn.BatchNorm2d(4)
        self.head = nn.Linear(4, 3)


def _group_cases() -> list[Case]:
    sizes: dict[str, Any] = {"image_size": 4, "patch_size": 2, "in_channels": 1, "num_classes": 3, "dim": 8, "depth": 1}
    sizes |= {"num_heads": 2, "mlp_dim": 6}
    return [
        Case("a ViT, weight_decay=0.05", (ViT(ViTConfig(**sizes)), 0.05)),
        Case("a ViT without class token and positions, weight_decay=0.1",
             (ViT(ViTConfig(**sizes, pool="mean", position="none")), 0.1)),
        Case("a ConvNet, weight_decay=0.3", (_Convolutions(), 0.3)),
    ]  # fmt: skip


def _decays(work: Any, case: Case) -> Result:
    """The decay of each parameter, by its name."""
    model, weight_decay = case.args
    groups = work(model, weight_decay)
    if not isinstance(groups, (list, tuple)) or not all(isinstance(g, dict) and "params" in g for g in groups):
        raise Fault('expected a list of dictionaries, each with "params" and "weight_decay"')
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    found: dict[str, Any] = {}
    for group in groups:
        group["params"] = list(group["params"])
        for parameter in group["params"]:
            if id(parameter) not in names:
                raise Fault("a group holds something that is no parameter of the model")
            name = f"the decay of {names[id(parameter)]}"
            if name in found:
                raise Fault(f"{names[id(parameter)]} stands in the groups twice: torch's optimisers refuse that")
            if "weight_decay" not in group:
                raise Fault('a group has no "weight_decay": it would get the optimiser\'s default, 0.01 for AdamW')
            found[name] = group["weight_decay"]
    if lost := [name for name in names.values() if f"the decay of {name}" not in found]:
        raise Fault(f"{lost[0]} stands in no group, so it would never be trained ({len(lost)} such)")
    return {f"the decay of {name}": found[f"the decay of {name}"] for name in names.values()}


_DECAY = "What decays, and what doesn't"

PARAMETER_GROUPS = Exercise(
    name="parameter_groups",
    lesson="07",
    right=_by_rule(_kernel),
    cases=_group_cases,
    observe=_decays,
    mistakes=(
        Mistake(
            "a decay on everything",
            "Biases, the norms' scales and shifts, the class token and the positions have no reason to be near zero: "
            "they get a decay of 0.",
            _DECAY,
            _by_rule(lambda name, parameter: True),
        ),
        Mistake(
            "a decay on norms, the class token and positions",
            "You spare the biases alone. Norms' scales, the class token and the positions don't decay, either.",
            _DECAY,
            _by_rule(lambda name, parameter: not name.endswith("bias")),
        ),
        Mistake(
            "a decay on the norms' scales",
            "A norm's scale is called `weight`, too. It begins at 1, and 0 is no better. You can tell it by its single "
            "axis.",
            _DECAY,
            _by_rule(lambda name, parameter: name.endswith("weight")),
        ),
        Mistake(
            "a decay on the class token and the positions",
            "They have three axes, but they are no matrices that something is multiplied by. Their names tell: they "
            "don't end in `weight`.",
            _DECAY,
            _by_rule(lambda name, parameter: parameter.ndim > 1),
        ),
        Mistake(
            "a decay on the positions",
            "For a position zero is no better than any other number.",
            _DECAY,
            _by_rule(lambda name, parameter: parameter.ndim > 1 and "cls_token" not in name),
        ),
        Mistake(
            "a decay on the class token",
            "For the class token zero is no better than any other number.",
            _DECAY,
            _by_rule(lambda name, parameter: parameter.ndim > 1 and "position" not in name),
        ),
        Mistake(
            "the two groups exchanged",
            "Matrices and kernels decay, and the rest doesn't; yours are the other way round.",
            _DECAY,
            _by_rule(lambda name, parameter: not _kernel(name, parameter)),
        ),
        Mistake(
            "a decay on nothing",
            "Matrices and kernels must get the decay that is asked for.",
            _DECAY,
            _by_rule(lambda name, parameter: False),
        ),
        Mistake(
            "kernels of convolutions left out",
            "You ask for two axes exactly. A convolution's kernel has four, and it decays like a matrix.",
            _DECAY,
            _by_rule(lambda name, parameter: parameter.ndim == 2),
        ),
        Mistake(
            "a head that is left out",
            "The head's matrix decays like any other.",
            _DECAY,
            _by_rule(lambda name, parameter: _kernel(name, parameter) and not name.startswith("head")),
        ),
        Mistake(
            "a decay on biases",
            "You sort out the norms, the class token and the positions, but biases decay. They should not.",
            _DECAY,
            _by_rule(lambda name, parameter: not any(part in name for part in ("norm", "cls_token", "position"))),
        ),
    ),
)


def check_parameter_groups(fn: Callable[..., list[dict[str, Any]]]) -> bool:
    """Check ``fn(model, weight_decay)``: dictionaries of "params" and "weight_decay" for torch.optim.AdamW."""
    return check(PARAMETER_GROUPS, fn)


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
    return images, (best + (torch.arange(count) % 5 > 2)) % classes


AFTERWARDS = "the model's mode afterwards"


def _accuracy_cases() -> list[Case]:
    made = []
    for count, batch, classes in [(10, 4, 3), (7, 3, 4), (12, 4, 5), (5, 8, 3)]:
        arguments = (*_task(count, classes, seed=count), batch)
        made.append(Case(f"{count} images in batches of {batch}", arguments, (classes,)))
    return [*made, Case(AFTERWARDS, made[0].args, made[0].build)]


def _measured(work: Any, case: Case) -> Result:
    model = _classifier(12, *case.build).train()
    result = work(model, *case.args)
    if case.label != AFTERWARDS:
        return {"result": result}
    if result is None:
        raise Fault("result is None: is the return missing?")
    return {"model.training afterwards": model.training}


def _accuracy(
    join: Callable[[list[Tensor], int], Tensor] = lambda hits, batch: torch.cat(hits).double().mean(),
    evaluate: bool = True,
    back: bool = True,
) -> Callable[..., float]:
    """Accuracy with another way to join the batches' hits, without eval(), or without train() afterwards."""

    def accuracy(model: nn.Module, images: Tensor, labels: Tensor, batch_size: int) -> float:
        model.train(not evaluate)
        batches = zip(images.split(batch_size), labels.split(batch_size), strict=True)
        with torch.no_grad():
            hits = [model(x).argmax(dim=1) == y for x, y in batches]
        model.train(back)
        return float(join(hits, batch_size))

    return accuracy


def _means(hits: list[Tensor]) -> Tensor:
    return torch.stack([part.double().mean() for part in hits])


ACCURACY = Exercise(
    name="accuracy",
    lesson="07",
    right=_accuracy(),
    cases=_accuracy_cases,
    observe=_measured,
    mistakes=(
        Mistake(
            "a mean of the batches' accuracies",
            "The last batch is smaller, and yet it counts as much as the others. Sum the right answers of all batches, "
            "and divide once, by the number of images.",
            "6 · What it gets wrong",
            _accuracy(lambda hits, batch: _means(hits).mean()),
        ),
        Mistake(
            "a model asked in training mode",
            "The answers are those of a model with dropout on: call model.eval() before you ask.",
            "The same weights, asked in the wrong way",
            _accuracy(evaluate=False),
        ),
        Mistake(
            "a model left in evaluation mode",
            "The number is right, but whoever trains on after your measurement trains without dropout. Put the mode "
            "back: model.train().",
            "5 · Training it",
            _accuracy(back=False),
        ),
        Mistake(
            "the last batch left out",
            "The smaller batch at the end counts, too. (In training it may be left out: there the next epoch has it.)",
            "6 · What it gets wrong",
            _accuracy(lambda hits, batch: torch.cat([part for part in hits if len(part) == batch]).double().mean()),
        ),
        Mistake(
            "the number of right answers",
            "Divide by the number of images.",
            "6 · What it gets wrong",
            _accuracy(lambda hits, batch: torch.cat(hits).sum()),
        ),
        Mistake(
            "the accuracy of the last batch",
            "You return what you measured on the last batch. Collect over all of them.",
            "6 · What it gets wrong",
            _accuracy(lambda hits, batch: _means(hits)[-1]),
        ),
        Mistake(
            "the right answers divided by the number of batches",
            "Divide by the number of images, not of batches.",
            "6 · What it gets wrong",
            _accuracy(lambda hits, batch: torch.cat(hits).sum() / len(hits)),
        ),
        Mistake(
            "a division by full batches",
            "You divide by batches × batch_size, as if the last batch were full, too.",
            "6 · What it gets wrong",
            _accuracy(lambda hits, batch: torch.cat(hits).sum() / (len(hits) * batch)),
        ),
        Mistake(
            "a percentage",
            "Wanted is a share, from 0 to 1.",
            "6 · What it gets wrong",
            _accuracy(lambda hits, batch: 100 * torch.cat(hits).double().mean()),
        ),
        Mistake(
            "the share of wrong answers",
            "You count the mistakes. Accuracy is the share of right answers.",
            "6 · What it gets wrong",
            _accuracy(lambda hits, batch: 1 - torch.cat(hits).double().mean()),
        ),
    ),
)


def check_accuracy(fn: Callable[..., float]) -> bool:
    """Check ``fn(model, images, labels, batch_size)``: the share of right answers, from 0 to 1."""
    return check(ACCURACY, fn)


# ---- The challenge -----------------------------------------------------------------------------------------------


class _Fit:
    """The loop, written out in steps that a subclass replaces by a wrong one."""

    optimizer: type[torch.optim.Optimizer] = torch.optim.AdamW
    forget = True

    def __call__(
        self, model: nn.Module, images: Tensor, labels: Tensor, orders: list[Tensor], batch_size: int,
        learning_rate: float, warmup: int, clip: float,
    ) -> list[float]:  # fmt: skip
        optimizer = self.optimizer(model.parameters(), lr=learning_rate, weight_decay=0.05)  # type: ignore[call-arg]
        self.model, self.warmup, self.clip, self.orders = model, warmup, clip, orders
        self.an_epoch = self.batches(len(images), batch_size)
        self.mode(model)
        losses = []
        for epoch, step, rows in self.visits(batch_size):
            for group in optimizer.param_groups:
                group["lr"] = learning_rate * self.share(epoch, step)
            loss = self.loss(model(images[rows]), labels[rows])
            if self.forget:
                optimizer.zero_grad()
            loss.backward()
            self.shorten()
            optimizer.step()
            losses.append(loss.item())
        return losses

    def batches(self, images: int, batch_size: int) -> int:
        return math.ceil(images / batch_size)

    def mode(self, model: nn.Module) -> None:
        model.train()

    def visits(self, batch_size: int) -> Iterator[tuple[int, int, Tensor]]:
        step = 0
        for epoch, order in enumerate(self.orders):
            for rows in order.split(batch_size):
                yield epoch, step, rows
                step += 1

    def share(self, epoch: int, step: int) -> float:
        return _schedule()(step, len(self.orders) * self.an_epoch, self.warmup)

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        return _loss(logits, labels, 0.1)

    def shorten(self) -> None:
        nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)


class _GradientsKept(_Fit):
    forget = False


class _Evaluating(_Fit):
    def mode(self, model: nn.Module) -> None:
        model.eval()


class _SoftmaxTwice(_Fit):
    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        return super().loss(logits.softmax(dim=1), labels)


class _Unsmoothed(_Fit):
    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        return _loss(logits, labels, 0.0)


class _EpochsFirstStep(_Fit):
    def share(self, epoch: int, step: int) -> float:
        return super().share(epoch, epoch * self.an_epoch)


class _CountedInEpochs(_Fit):
    def share(self, epoch: int, step: int) -> float:
        return _schedule()(epoch, len(self.orders), round(self.warmup / self.an_epoch))


class _Restarting(_Fit):
    def share(self, epoch: int, step: int) -> float:
        return super().share(epoch, step % self.an_epoch)


class _Constant(_Fit):
    def share(self, epoch: int, step: int) -> float:
        return 1.0


class _StepsFromOne(_Fit):
    def share(self, epoch: int, step: int) -> float:
        return super().share(epoch, step + 1)


class _TooFewSteps(_Fit):
    def share(self, epoch: int, step: int) -> float:
        return _schedule()(step, len(self.orders) * (self.an_epoch - 1), self.warmup)


class _Unclipped(_Fit):
    def shorten(self) -> None:
        """Left out; or done before backward, or after the step, where it changes nothing."""


class _EachByItself(_Fit):
    def shorten(self) -> None:
        for parameter in self.model.parameters():
            nn.utils.clip_grad_norm_(parameter, self.clip)


class _ByValue(_Fit):
    def shorten(self) -> None:
        nn.utils.clip_grad_value_(self.model.parameters(), self.clip)


class _Adam(_Fit):
    optimizer = torch.optim.Adam


class _InOrder(_Fit):
    def visits(self, batch_size: int) -> Iterator[tuple[int, int, Tensor]]:
        self.orders = [order.sort().values for order in self.orders]
        return super().visits(batch_size)


class _SameOrder(_Fit):
    def visits(self, batch_size: int) -> Iterator[tuple[int, int, Tensor]]:
        self.orders = [self.orders[0]] * len(self.orders)
        return super().visits(batch_size)


class _LastLeftOut(_Fit):
    def batches(self, images: int, batch_size: int) -> int:
        return images // batch_size

    def visits(self, batch_size: int) -> Iterator[tuple[int, int, Tensor]]:
        self.orders = [order[: self.an_epoch * batch_size] for order in self.orders]
        return super().visits(batch_size)


def _fit_cases() -> list[Case]:
    made = []
    for count, batch, epochs, warmup, clip in [(10, 4, 3, 3, 0.3), (7, 3, 2, 3, 0.1), (5, 5, 4, 1, 0.5)]:
        generator = torch.Generator().manual_seed(count)
        orders = [torch.randperm(count, generator=generator) for _ in range(epochs)]
        label = f"{count} images, {epochs} epochs in batches of {batch}, warmup={warmup}, clip={clip}"
        made.append(Case(label, (*_task(count, 3, seed=count), orders, batch, 0.05, warmup, clip), (count,)))
    return made


def _trained(work: Any, case: Case) -> Result:
    """The loss of every step, and the weights at the end."""
    model = _classifier(12, 3, *case.build).eval()
    losses = work(model, *case.args)
    return {"losses": losses} | {f"{name}, trained": p.detach() for name, p in model.named_parameters()}


FIT = Exercise(
    name="fit",
    lesson="07",
    right=_Fit(),
    cases=_fit_cases,
    observe=_trained,
    mistakes=(
        Mistake(
            "zero_grad forgotten",
            "Gradients add up until you clear them: optimizer.zero_grad() in every step, before backward().",
            "`zero_grad` forgotten, images not shuffled",
            _GradientsKept(),
        ),
        Mistake(
            "a model that is not in training mode",
            "The model came in evaluation mode, so it trained without its dropout: call model.train() first.",
            "5 · Training it",
            _Evaluating(),
        ),
        Mistake(
            "a softmax taken twice",
            "The loss takes the model's logits as they are.",
            "Softmax twice",
            _SoftmaxTwice(),
        ),
        Mistake(
            "the smoothing forgotten",
            "The loss has label_smoothing=0.1 here.",
            "Label smoothing",
            _Unsmoothed(),
        ),
        Mistake(
            "a rate that changes once an epoch",
            "You set the rate at the start of an epoch and keep it. It is set anew before every step.",
            _COSINE,
            _EpochsFirstStep(),
        ),
        Mistake(
            "a schedule that counts epochs",
            "schedule gets the number of the epoch, and the number of epochs, from you. Count steps instead, from 0 to "
            "the end of the last epoch.",
            _COSINE,
            _CountedInEpochs(),
        ),
        Mistake(
            "a schedule that restarts with every epoch",
            "Your step begins at 0 in each epoch. It must count on, epoch * (steps an epoch) + i.",
            _COSINE,
            _Restarting(),
        ),
        Mistake(
            "a constant rate",
            "The rate of the optimiser never changes: set group['lr'] in each of optimizer.param_groups.",
            _COSINE,
            _Constant(),
        ),
        Mistake(
            "steps counted from 1",
            "The first step is step 0: its share is 1 / warmup, not 2 / warmup.",
            _COSINE,
            _StepsFromOne(),
        ),
        Mistake(
            "a schedule that is too short",
            "You count full batches only, but the smaller one at the end is a step, too: round up.",
            _COSINE,
            _TooFewSteps(),
        ),
        Mistake(
            "clipping in the wrong place, or none",
            "Nothing was clipped. clip_grad_norm_ stands between backward(), which makes the gradient, and step(), "
            "which uses it.",
            "Clipping",
            _Unclipped(),
        ),
        Mistake(
            "each tensor's gradient clipped by itself",
            "The norm is that of the whole gradient, all weights taken together: one call, with model.parameters(). "
            "Otherwise its direction changes.",
            "Clipping",
            _EachByItself(),
        ),
        Mistake(
            "gradients clipped number by number",
            "clip_grad_value_ cuts each number at the limit. It is the length of the whole gradient that is limited: "
            "clip_grad_norm_.",
            "Clipping",
            _ByValue(),
        ),
        Mistake(
            "Adam in place of AdamW",
            "weight_decay means another thing in Adam, where it is lost in the division by the gradient's size.",
            "AdamW",
            _Adam(),
        ),
        Mistake(
            "images that are not shuffled",
            "You take the images as they lie. Epoch e visits them in the order orders[e].",
            "`zero_grad` forgotten, images not shuffled",
            _InOrder(),
        ),
        Mistake(
            "the same order in every epoch",
            "You use the first epoch's order throughout. Each epoch has an order of its own.",
            "`zero_grad` forgotten, images not shuffled",
            _SameOrder(),
        ),
        Mistake(
            "the smaller last batch left out",
            "In this exercise every image counts in every epoch: the last batch is smaller, and is used.",
            "5 · Training it",
            _LastLeftOut(),
        ),
    ),
)


def check_fit(fn: Callable[..., list[float]]) -> bool:
    """Check ``fn(model, images, labels, orders, batch_size, learning_rate, warmup, clip)``: the loss of each step.

    It trains the model in place.
    """
    return check(FIT, fn)


EXERCISES = (TRAINING_NUMBERS, SMOOTHED_CROSS_ENTROPY, SCHEDULE, PARAMETER_GROUPS, ACCURACY, FIT)
