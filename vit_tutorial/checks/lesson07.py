"""Checks of lesson 07: numbers with a pencil, the smoothed loss, the schedule, what decays, accuracy, the loop."""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vit_tutorial.checks.compare import as_number, as_tensor, equal, kind, unchanged
from vit_tutorial.checks.harness import (
    Case,
    Exercise,
    Fault,
    Forbidden,
    Hashed,
    Result,
    Words,
    answers,
    as_left,
    call,
    copied,
    normal,
    random_weights,
    section,
)
from vit_tutorial.checks.snapshot import ModelSnapshot
from vit_tutorial.checks.watch import NOT_ADAMW
from vit_tutorial.vit import ViT, ViTConfig

# ---- With a pencil -----------------------------------------------------------------------------------------------

NUMBERS = {
    "loss": Hashed("da533a8dde@0.008+0.006"),
    "target": Hashed(
        "7cdaf5818c@0.006+0.001 eab8fdff77@0.006+0.005 db4b256bc1@0.006+0.005 294ca9b075@0.006+0.005", "list"
    ),
    "weight": Hashed("ca10dd8dba@0.008+0.004"),
    "clipped": Hashed("0d6a61f41b dc62c6db2b", "list"),
    "average": Hashed("2d9db2a0a5@0.01+0.005"),
    "pixels": Hashed("e7fc8738cc ab39e22a98", "list"),
}

TRAINING_NUMBERS = Exercise(
    name="training_numbers",
    lesson="07",
    points=4,
    right=NUMBERS,
    cases=lambda: [Case(question, (question,)) for question in NUMBERS],
    observe=answers,
    tolerance=0.0025,  # 1.805 is not a rounded 1.8, but another order of AdamW's two changes
    secret=True,
    advice={
        "loss": "First the probabilities: e to the power of each logit, divided by their sum. Then minus the logarithm "
        "of the true class's.",
        "target": "ε is shared equally by all K classes, and the true one gets 1 - ε besides. The four sum to 1.",
        "weight": "Two things happen: the weight loses rate × decay × w, and makes a step as long as the rate, against "
        "the gradient.",
        "clipped": "The length of (6, 8) is too large: multiply both by largest norm / length.",
        "average": "decay × the average so far, plus (1 - decay) × the weight.",
        "pixels": "Scale to [0, 1], subtract the training pixels' mean, divide by their standard deviation.",
    },
    mistakes=(
        *section(
            "The loss, by hand",
            (
                "the loss of class 0",
                "Classes count from 0: the true one's logit is log 3.",
                {"loss": -math.log(0.5)},
            ),
        ),
        *section(
            "AdamW",
            (
                "the weight after plain gradient descent",
                "AdamW divides by the gradient's size: its first step is the rate.",
                {"weight": 1.5},
            ),
            (
                "one of the two changes alone",
                "It is a step of 0.1, and rate × decay × w, 0.1 here, too.",
                {"weight": 1.9},
            ),
        ),
    ),
)


# ---- The loss ----------------------------------------------------------------------------------------------------


def _loss(logits: Tensor, labels: Tensor, epsilon: float) -> Tensor:
    return F.cross_entropy(logits, labels, label_smoothing=epsilon)


def _as_list(work: Any, case: Case) -> Result:
    """As :func:`call`, on a result of shape (1,) in place of (): the loss must be differentiable."""

    def listed(*arguments: Any) -> Any:
        result = work(*arguments)
        if isinstance(result, float):
            raise Fault("returned a float: return a tensor (without .item()), or nothing can be learned from it")
        return result.reshape(1) if isinstance(result, Tensor) and result.ndim == 0 else result

    observed = call(listed, case, differentiable=True)
    plain = call(listed, case)["arguments"]  # what needs no gradient may be changed in other places
    observed["arguments"] |= {n: x for n, x in plain.items() if not unchanged(x, case.args[n - 1])}
    return observed


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


def _implied(compared: list[tuple[Case, Result, Result]]) -> str:
    """What the gradient says of the target, with the first input: it is (p - target) / B."""
    weight = normal(seed=1).double()  # the number that a loss is multiplied by before its gradient is taken
    case, right, theirs = compared[0]
    logits = case.args[0].double()
    if theirs["result"].numel() > 1 or torch.allclose(theirs["result"].double(), right["result"].double()):
        return ""
    mine, yours = (one["gradient of argument 1"].double() * len(logits) / weight for one in (right, theirs))
    if not yours.isfinite().all():
        return ""
    of = f"(with {case.label})"
    if mine.abs().max() > 1e-3 and not (yours.abs() > 1e-6).any():
        return f"The gradient of your loss is 0 {of}: is a number cut off or rounded on its way?"
    if torch.allclose(mine, yours, atol=1e-5):
        return f"The gradient is right {of}: is a constant added to the loss?"
    factor = ((mine * yours).sum() / mine.square().sum()).item()
    left, apart = ((yours - times * mine).abs().max().item() for times in (factor, 1))
    if yours.abs().max() > 1e-2 and left < min(1e-5, 0.1 * apart):
        return f"The loss has the right gradient, times {factor:.6g} {of}: look for a factor."
    sums, size = yours.sum(dim=1).abs().max(), yours.abs().max()
    if sums > 0.02 * size:
        return (
            f"The gradient of your loss doesn't sum to 0 over the logits of each image {of}, and must: the same number "
            "added to all of them changes no probability. Does the target sum to 1? Is it the logarithm of a softmax "
            "over the classes, dim=1, of logits that are not cut off?"
        )
    if sums > 1e-5 * max(1.0, size.item()):
        return ""  # numbers of few digits, so that no target can be read off
    p = logits.softmax(dim=1)
    value = -((p - yours) * logits.log_softmax(dim=1)).sum(dim=1).mean()
    if not torch.allclose(value, theirs["result"].double().reshape(()), atol=1e-4):
        return ""  # not a cross-entropy, so its gradient shows no target
    at = int((yours - mine).abs().sum(dim=1).argmax())
    targets = [", ".join(f"{round(x, 6) + 0.0:.3g}" for x in (p - one)[at].tolist()) for one in (yours, mine)]
    return f"By its gradient, your loss has the target ({targets[0]}) for image {at}; it should be ({targets[1]}) {of}."


SMOOTHED_CROSS_ENTROPY = Exercise(
    name="smoothed_cross_entropy",
    lesson="07",
    points=3,
    takes="fn(logits, labels, epsilon): (B, K) and (B,) -> the mean loss, a tensor of one number",
    right=_loss,
    cases=_loss_cases,
    observe=_as_list,
    explain=_implied,
    forbidden=(
        Forbidden(F.cross_entropy, "write the loss out"),
        Forbidden("cross_entropy_loss", "write the loss out"),
    ),
    mistakes=(
        *section(
            "Softmax twice",
            (
                "a softmax taken twice",
                "The logits come as they are. You take the softmax of a softmax, and the loss can't get small any "
                "more.",
                lambda logits, labels, epsilon: _loss(logits.softmax(dim=1), labels, epsilon),
            ),
        ),
        *section(
            "Label smoothing",
            (
                "a target that does not sum to 1",
                "The true class has 1 - ε in yours. It gets its part of ε, too: 1 - ε + ε / K.",
                _by_target(lambda hot, epsilon, K: (1 - epsilon) * hot + epsilon / K * (1 - hot)),
            ),
            (
                "a target that sums to more than 1",
                "You add ε / K to each class, but take nothing off the true one: it keeps 1 - ε.",
                _by_target(lambda hot, epsilon, K: hot + epsilon / K),
            ),
        ),
    ),
)


# ---- The schedule ------------------------------------------------------------------------------------------------


def _schedule(step: int, steps: int, warmup: int) -> float:
    if step < warmup:
        return (step + 1) / warmup
    return (1 + math.cos(math.pi * (step - warmup) / (steps - warmup))) / 2


def _schedule_cases() -> list[Case]:
    sizes = [(10, 4), (30, 6), (8, 0), (9, 1), (40, 16), (10, 2), (5, 4), (200, 120), (1, 0), (2, 1)]
    return [Case(f"steps={steps}, warmup={warmup}", (steps, warmup)) for steps, warmup in sizes]


def _shares(work: Any, case: Case) -> Result:
    """The share at each step, the one after the last included, as a tensor; the even steps are asked for first."""
    steps, warmup = case.args
    found = [0.0] * (steps + 1)
    for step in (*range(0, steps + 1, 2), *range(1, steps + 1, 2)):
        share = work(step, steps, warmup)
        number = as_number(share)
        if number is None:
            raise Fault(f"schedule({step}, {steps}, {warmup}) is {kind(share)}, expected a number{_missing(share)}")
        found[step] = float(number)
    return {"share": torch.tensor(found, dtype=torch.float64)}


def _missing(result: Any) -> str:
    return ": is the return missing?" if result is None else ""


def _along_the_way(wrong: list[tuple[Case, Result, Result]]) -> str:
    """Whether the warm-up is right, and where the fall begins, passes and ends."""
    case, right, theirs = max(wrong, key=lambda row: row[0].args[0])
    if torch.allclose(theirs["share"], theirs["share"].max() * right["share"], atol=4e-7):
        return ""  # a factor, which is seen without this
    (steps, warmup), fall = case.args, (case.args[0] - case.args[1]) // 4
    rise = torch.allclose(theirs["share"][:warmup], right["share"][:warmup], atol=4e-7)
    at = [warmup, warmup + fall, warmup + 2 * fall, steps]
    yours, wanted = (", ".join(f"{round(one['share'][i].item(), 6) + 0.0:.3g}" for i in at) for one in (theirs, right))
    if rise and yours == wanted:
        return ""
    if not rise:
        first, last = theirs["share"][0], theirs["share"][warmup - 1]
        return (
            f"With {case.label}, your warm-up goes from {first:.3g} to {last:.3g}; it should go from "
            f"{1 / warmup:.3g} to 1, in equal steps.{'' if yours == wanted else ' What comes after it is wrong, too.'}"
        )
    places = ", ".join(map(str, at))
    return f"With {case.label}, your shares at steps {places} are {yours}; they should be {wanted}."


_COSINE = "Warm-up, then a cosine"

SCHEDULE = Exercise(
    name="schedule",
    lesson="07",
    points=3,
    takes="fn(step, steps, warmup): the share of the peak rate, a number from 0 to 1",
    right=_schedule,
    cases=_schedule_cases,
    observe=_shares,
    explain=_along_the_way,
    tolerance=4e-7,
    forbidden=("vit_tutorial.train.*",),
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


_DECAY_OF = "the decay of "


def _decays(work: Any, case: Case) -> Result:
    """The decay of each parameter, by its name."""
    model, weight_decay = case.args
    lent, gradients = ModelSnapshot(model), _with_gradients(model)
    work(_another(model), weight_decay)  # nothing of another model may be kept for this one
    groups = work(model, weight_decay)
    if not isinstance(groups, (list, tuple)) or not all(isinstance(g, dict) and "params" in g for g in groups):
        raise Fault('expected a list of dictionaries, each with "params" and "weight_decay"')
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    found: dict[str, Any] = {}
    for group in groups:
        for parameter in _members(group["params"]):
            if id(parameter) not in names:
                raise Fault(_stranger(parameter, model))
            name = names[id(parameter)]
            if name in found:
                raise Fault(f"{name} is in the groups twice: put it in once")
            if "weight_decay" not in group:
                raise Fault('a group has no "weight_decay": it would get the optimiser\'s default, 0.01 for AdamW')
            decay = as_number(group["weight_decay"])
            if decay is None:
                raise Fault(f"a group's weight_decay is {kind(group['weight_decay'])}, expected a number")
            found[name] = decay
    if lost := [name for name in names.values() if name not in found]:
        raise Fault(f"{lost[0]} is in no group, so it would never be trained ({len(lost)} such)")
    decays = {f"{_DECAY_OF}{name}": found[name] for name in names.values()}
    kept = {"what is frozen afterwards": _frozen(model), "the model afterwards": lent.afterwards()}
    kept["the parameters' gradients afterwards"] = _same_gradients(model, gradients)
    return decays | kept | {"model.training afterwards": model.training}


def _another(model: nn.Module) -> nn.Module:
    """A model of the same parts with other numbers."""
    other = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(1)
    return other


def _frozen(model: nn.Module) -> Words:
    names = [name for name, p in model.named_parameters() if not p.requires_grad]
    return Words(", ".join(names[:3]) + (", …" if len(names) > 3 else "") or "nothing")


def _members(params: Any) -> list[Any]:
    """The parameters of a group: a list, or one alone; a name may stand before each, as torch allows it, too."""
    if isinstance(params, Tensor):
        return [params]
    if isinstance(params, (set, frozenset)):
        raise Fault('"params" is a set, which has no order: make a list of it')
    if isinstance(params, Iterator):
        raise Fault(
            f'"params" is {kind(params)}: when the optimiser has read it, it is empty for everyone else. '
            "Make a list of it: list(…), or [… for …]"
        )
    return [part[1] if isinstance(part, tuple) and len(part) == 2 else part for part in params]


def _stranger(part: Any, model: nn.Module) -> str:
    """What is in a group and isn't a parameter of the model."""
    if isinstance(part, str):
        return f"a group holds the name {part!r}: put the parameter itself into it"
    if isinstance(part, nn.Module):
        return f"a group holds a module, {type(part).__name__}: put its parameters into it"
    alike = [n for n, p in model.named_parameters() if isinstance(part, Tensor) and part.shape == p.shape]
    if same := [name for name in alike if torch.equal(part, model.get_parameter(name))]:
        return (
            f"a group holds a tensor with the numbers of {same[0]} that isn't this parameter: is it a copy (.data, "
            ".detach(), .clone(), state_dict())?"
        )
    return f"a group holds {kind(part)}, which is not a parameter of the model"


def _what_decays(compared: list[tuple[Case, Result, Result]]) -> str:
    """Which parameters decay and shouldn't, or the other way round."""
    for case, right, theirs in compared:
        asked = case.args[1]
        decays = {name: a for name, a in right.items() if name.startswith(_DECAY_OF)}
        wrong = {name: theirs[name] for name, a in decays.items() if abs(theirs[name] - a) > 1e-7}
        odd = sorted({f"{value:g}" for value in wrong.values() if min(abs(value), abs(value - asked)) > 1e-7})
        if odd:
            return f"With {case.label} there are decays of {', '.join(odd)}. It is {asked:g}, or 0."
        if not wrong:
            continue
        names = [name.removeprefix(_DECAY_OF) for name in wrong]
        few = f"{', '.join(names[:3])}{f' and {len(names) - 3} more' if len(names) > 3 else ''}"
        few += f" (with {case.label})."
        should = [right[name] for name in wrong]
        if all(should):
            return f"These should decay, and don't: {few}"
        if not any(should):
            return f"These decay, and shouldn't: {few}"
        return f"These decay and shouldn't, or the other way round: {few}"
    return ""


PARAMETER_GROUPS = Exercise(
    name="parameter_groups",
    lesson="07",
    points=2,
    takes='fn(model, weight_decay): dictionaries of "params" and "weight_decay" for torch.optim.AdamW',
    right=_by_rule(_kernel),
    cases=_group_cases,
    observe=_decays,
    tolerance=1e-7,
    forbidden=("vit_tutorial.train.*",),
    explain=_what_decays,
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


class _Notes:
    """The sizes of the batches that a model got, and whether answers kept their graph; its copies write in it, too."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.modes: list[str] = []
        self.graph = False

    def __deepcopy__(self, memo: Any) -> _Notes:
        return self


class _Asked(nn.Module):
    """A classifier that takes notes, with a frozen bias. The largest of its logits may be negative."""

    def __init__(self, pixels: int, classes: int, loud: float = 1) -> None:
        super().__init__()
        self.loud = loud
        self.layers = _classifier(pixels, classes)
        self.layers.get_parameter("1.bias").requires_grad_(False)  # whoever thaws all afterwards thaws this one, too
        self.notes = _Notes()

    def forward(self, x: Tensor) -> Tensor:
        answer: Tensor = self.loud * (self.layers(x) / 8 - 0.15)
        self.notes.sizes.append(len(x))
        self.notes.graph |= answer.requires_grad
        parts = any(part.training for part in self.layers.modules())
        self.notes.modes.append(
            "training" if self.training else "evaluation at the top, training in its parts" if parts else "evaluation"
        )
        return answer


def _accuracy_cases() -> list[Case]:
    made = []
    for count, batch, classes in [(11, 4, 3), (9, 4, 4), (12, 4, 5), (5, 8, 3)]:
        arguments = (*_task(count, classes, seed=count), batch)
        made.append(Case(f"{count} images in batches of {batch}", arguments, (classes,)))
    # A function that rises with the logits, such as sigmoid, makes the largest ones equal.
    return [*made, Case("11 images in batches of 4, logits in the thousands", made[0].args, (3, 1e4))]


_MODE = "the mode in which the model is asked"


def _measured(work: Any, case: Case) -> Result:
    model = _Asked(12, *case.build).train()
    lent, sizes = ModelSnapshot(model), model.notes.sizes
    given, kept = copied(case.args), _with_gradients(model)
    result = work(model, *given)
    gradients = _same_gradients(model, kept)
    images, labels, batch = case.args
    if not sizes:
        raise Fault("model(images) was never called: call it on each batch")
    sizes, modes, asked_in = sizes.copy(), {part.training for part in model.modules()}, dict.fromkeys(model.notes.modes)
    training = model.training
    again = work(model.train(), images.clone(), (labels + 1) % case.build[0], batch)
    asked = "in batches of batch_size" if _batched(sizes, len(images), batch) else f"{_some(sizes)} at once"
    return {
        _MODE: Words(" at first, then ".join(asked_in)),
        "how the images come": Words(asked),
        "result": result,
        "the result of a second call, with other labels,": again,
        "model.training afterwards": training,
        "the mode of the model's parts afterwards": Words("one" if len(modes) == 1 else "more than one"),
        "whether gradients are on while it measures": Words("on" if model.notes.graph else "off"),
        "what is frozen afterwards": _frozen(model),
        "the model afterwards": lent.afterwards(),
        "the parameters' gradients afterwards": gradients,
        "how many images the model is asked about": Words(
            "all" if sum(sizes) >= len(images) else f"{sum(sizes)} alone"
        ),
        "arguments": as_left(given, first=2),
    }


def _with_gradients(model: nn.Module) -> dict[str, Tensor]:
    """Give what is learned a gradient, as in the middle of a training; copies of them."""
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter) if parameter.requires_grad else None
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def _same_gradients(model: nn.Module, kept: dict[str, Tensor]) -> Words:
    now = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    same = now.keys() == kept.keys() and all(torch.equal(now[name], kept[name]) for name in kept)
    return Words("what they were" if same else "different, or none")


def _counted(compared: list[tuple[Case, Result, Result]]) -> str:
    """How many images a wrong share counts as right, or what else shows on all inputs where it is wrong."""
    if any(theirs[_MODE] != right[_MODE] for _, right, theirs in compared):
        return ""
    for case, right, theirs in compared:
        value, share, n = as_number(theirs["result"]), right["result"], len(case.args[0])
        if value is None:
            return ""
        if not 0 <= value <= 1:
            return "A share of images is a number from 0 to 1."
        if abs(value * n - round(value * n)) >= 1e-6:
            said = f"Of {n} images no number is a share of {value:.4g}: is it rounded, or divided by something else?"
            return f"{said} (With {case.label}.)"
        if abs(value - share) >= 1e-6:
            said = f"Yours is the share of {round(value * n)} of {n} images, and {round(share * n)} are right"
            return f"{said} (with {case.label})."
    return ""


def _batched(sizes: list[int], images: int, batch: int) -> bool:
    """Whether all images came in full batches, but for the last one; more may have been asked than once."""
    full, rest = divmod(images, batch)
    return set(sizes) <= {batch, rest, images if images < batch else batch} and sizes.count(batch) >= full


def _some(sizes: list[int]) -> str:
    return ", ".join(map(str, sizes[:4])) + (", …" if len(sizes) > 4 else "")


def _accuracy(model: nn.Module, images: Tensor, labels: Tensor, batch_size: int) -> float:
    model.eval()
    with torch.no_grad():
        parts = zip(images.split(batch_size), labels.split(batch_size), strict=True)
        hits = [model(x).argmax(dim=1) == y for x, y in parts]
    model.train()
    return torch.cat(hits).double().mean().item()


ACCURACY = Exercise(
    name="accuracy",
    lesson="07",
    points=2,
    takes="fn(model, images, labels, batch_size): the share of right answers, from 0 to 1",
    right=_accuracy,
    cases=_accuracy_cases,
    observe=_measured,
    explain=_counted,
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


def _trained(work: Any, case: Case) -> Result:
    """The loss of every step, and the weights at the end."""
    model = _classifier(12, 3, *case.build).eval()
    given, lent = copied(case.args), ModelSnapshot(model, trained=True)
    losses = work(model, *given)
    if isinstance(losses, Tensor) and losses.requires_grad:
        raise Fault(f"the losses carry their graph: {_GRAPH}")
    if isinstance(losses, (list, tuple)):
        if any(isinstance(x, Tensor) and x.requires_grad for x in losses):
            raise Fault(f"the losses are tensors with their graph: {_GRAPH}")
        numbers = [as_number(x) for x in losses]
        if None not in numbers:
            losses = torch.tensor(numbers, dtype=torch.float64)
    weights = {f"{name}, trained": p.detach() for name, p in model.named_parameters()}
    if losses is not None and as_tensor(losses) is None:
        raise Fault(f"returned {kind(losses)}, expected a list of numbers, the loss of each step")
    losses = as_tensor(losses)
    afterwards = {"what is frozen afterwards": _frozen(model), "the model afterwards": lent.afterwards()}
    return {"losses": losses} | weights | afterwards | {"arguments": as_left(given, first=2)}


_GRAPH = "each keeps alive all that was computed for it, step after step. Return numbers: loss.item()"


def _from_when(compared: list[tuple[Case, Result, Result]]) -> str:
    """Where the losses leave the right ones, which says in which part of a step the mistake is."""
    trained = [name for name in compared[0][1] if name.endswith(", trained")]
    learned = all(equal(a[name], b[name], FIT) for _, a, b in compared for name in trained)
    starts = []
    for case, right, theirs in compared:
        a, b = right["losses"], theirs["losses"]
        if not isinstance(b, Tensor) or b.ndim != 1:
            return "Return a list of the losses: the weights at the end are right." if learned else ""
        if len(a) != len(b):
            said = f"there are {len(b)} losses, and should be {len(a)}: one for each step of all epochs"
            return f"With {case.label}, {said}.{' The weights at the end are right.' * learned}"
        near = FIT.tolerance * max(1.0, a.abs().max().item())
        starts += [(i, case.label) for i in (~((a - b).abs() <= near)).nonzero().flatten().tolist()]
    if learned and not starts:
        return ""
    if learned:
        return (
            "The weights are right at the end of a training, but the losses that you return aren't "
            f"(with {starts[0][1]}). Each is the mean over its batch, with the smoothing, as it was before the step."
        )
    if not starts:
        return "The losses are right, but not all weights at the end: look at the last step. Or did you train a copy?"
    first, label = min(starts)
    if first == 0:
        return f"The very first loss is wrong with {label}: look at the batch, the labels, the loss and the mode."
    return f"With {label}: losses are right up to step {first - 1}, and that of step {first} is wrong (counted from 0)."


FIT = Exercise(
    name="fit",
    lesson="07",
    points=3,
    takes="fn(model, images, labels, orders, batch_size, learning_rate, warmup, clip): the loss of each step. "
    "It trains the model in place",
    right=_fit(),
    cases=_fit_cases,
    observe=_trained,
    forbidden=NOT_ADAMW,
    explain=_from_when,
    mistakes=(
        *section(
            "`zero_grad` forgotten, images not shuffled",
            (
                "zero_grad forgotten",
                "Gradients add up until you clear them: optimizer.zero_grad() in every step, before backward().",
                _fit(clear=False),
            ),
        ),
        *section(
            "2 · A loop that reads digits",
            (
                "a model that is not in training mode",
                "The model came in evaluation mode, and was trained in it: call model.train() first.",
                _fit(training=False),
            ),
        ),
        *section(
            "Label smoothing",
            (
                "the smoothing forgotten",
                "The loss has label_smoothing=0.1 here.",
                _fit(smoothing=0.0),
            ),
        ),
        *section(
            _COSINE,
            (
                "a rate that changes once an epoch",
                "You set the rate at the start of an epoch and keep it. It is set anew before every step.",
                _fit(place=lambda epoch, i, an_epoch: epoch * an_epoch),
            ),
            (
                "a schedule that restarts with every epoch",
                "Your step begins at 0 in each epoch. It must count on, epoch * (steps an epoch) + i.",
                _fit(place=lambda epoch, i, an_epoch: i),
            ),
        ),
        *section(
            "Clipping",
            (
                "clipping in the wrong place, or none",
                "Your numbers are those of a training without it. clip_grad_norm_ stands between backward(), which "
                "makes the gradient, and step(), which uses it.",
                _fit(cut=False),
            ),
        ),
    ),
)
