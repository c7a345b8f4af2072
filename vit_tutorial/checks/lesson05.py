"""Checks of lesson 05: layer norm, stochastic depth, the encoder block, and a stack of blocks."""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vit_tutorial.attention import MultiHeadSelfAttention
from vit_tutorial.checks.chance import far, staleness
from vit_tutorial.checks.compare import equal
from vit_tutorial.checks.harness import (
    Case,
    Exercise,
    Fault,
    Result,
    Words,
    adopt,
    answers,
    call,
    check,
    filled,
    layer,
    normal,
    of_its_own,
    random_weights,
    section,
)
from vit_tutorial.checks.symptoms import EXACT, symptom
from vit_tutorial.encoder import DropPath, EncoderBlock
from vit_tutorial.mlp import MLP

__all__ = ["check_block_numbers", "check_drop_path", "check_encoder", "check_encoder_block", "check_layer_norm"]

_NORM = "2 · Layer norm with a pencil"
_NEARLY = "A norm that is nearly right."
_EPS = "How large is eps?"
_RESIDUAL = "3 · The residual connection"
_NORMED = "The residual from the normed input."
_POST = "Post-norm by accident."
_EQUATIONS = "1 · Two equations, two lines"
_HAND = "4 · The block by hand"
_DEPTH = "10 · Stochastic depth"

# ---- With a pencil -----------------------------------------------------------------------------------------------

# The token [2, 2, 6, 6] has mean 4 and variance 4.
NUMBERS = {
    "normed": [-1, -1, 1, 1],
    "again": [-1, -1, 1, 1],
    "block": [3, 3, 7, 9],
    "kept": 5,
    "parameters": 172,
}

BLOCK_NUMBERS = Exercise(
    name="block_numbers",
    lesson="05",
    points=3,
    right=NUMBERS,
    cases=lambda: [Case(question, (question,)) for question in NUMBERS],
    observe=answers,
    tolerance=0.006,
    secret=True,
    advice={
        "normed": "Subtract the mean of the four numbers, and divide by the root of the mean of the squared distances.",
        "again": "Norm [14, 14, 22, 22] in the same way: what are its mean and its standard deviation?",
        "block": "z plus what attention returns; then this plus what the MLP returns.",
        "kept": "What is kept is divided by the probability to be kept, 1 − p.",
        "parameters": "Two norms of 2 · D, four matrices D × D with a bias each, and the two layers of the MLP.",
    },
    mistakes=(
        *section(
            _NORM,
            (
                "a division by the variance",
                "You divided by the variance. The standard deviation is its square root.",
                {"normed": [-0.5, -0.5, 0.5, 0.5], "again": [-0.25, -0.25, 0.25, 0.25]},
            ),
            (
                "a mean that is not subtracted",
                "You divided by the standard deviation, but the mean is subtracted first.",
                {"normed": [1, 1, 3, 3], "again": [3.5, 3.5, 5.5, 5.5]},
            ),
            (
                "a norm that keeps the size",
                "Twice the token has twice the standard deviation, too, so the factor drops out.",
                {"again": [-2, -2, 2, 2]},
            ),
        ),
        *section(
            _NEARLY,
            (
                "a variance divided by D − 1",
                "Layer norm's variance is the mean of the squared distances: their sum divided by D.",
                {"normed": [-0.866, -0.866, 0.866, 0.866], "again": [-0.866, -0.866, 0.866, 0.866]},
            ),
        ),
        *section(
            _RESIDUAL,
            (
                "no residual",
                "What the branches return is added to the token, and the token itself stays.",
                {"block": [0, 0, 0, 2]},
            ),
        ),
        *section(
            _NORMED,
            (
                "a residual from the normed input",
                "The branch reads the normed token, but its result is added to the token as it came in.",
                {"block": [-1, -1, 1, 3]},
            ),
        ),
        *section(
            _DEPTH,
            ("no rescaling", "What is kept is divided by 1 − p, so that the average stays the same.", {"kept": 4}),
            ("a division by p", "p is the probability to be dropped: divide by 1 − p.", {"kept": 20}),
            (
                "a multiplication by 1 − p",
                "What is kept must grow, to make up for what is dropped: divide by 1 − p.",
                {"kept": 3.2},
            ),
        ),
        *section(
            _HAND,
            (
                "sixteen numbers too few",
                "The two norms learn as many, a factor and an offset for each of the D numbers; and the biases of "
                "attention's four matrices are as many. Which of them is missing in your sum?",
                {"parameters": 156},
            ),
            (
                "eight numbers too few",
                "One norm learns as many (each branch has its own), and so do the offsets of both norms, and the "
                "bias of the MLP's first layer. Which of them is missing in your sum?",
                {"parameters": 164},
            ),
        ),
    ),
)


def check_block_numbers(fn: Callable[[], Mapping[str, Any]]) -> bool:
    """Check the answers found with a pencil: ``fn()`` returns them in a dictionary."""
    return check(BLOCK_NUMBERS, fn)


# ---- Layer norm --------------------------------------------------------------------------------------------------


def _right_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], weight, bias, eps)


def _norm_cases() -> list[Case]:
    made = []
    sizes = [((1, 3, 4), 1e-6, 1.0), ((2, 3, 6), 1e-6, 0.001), ((2, 4, 5), 1e-3, 0.05), ((2, 5, 3, 8), 1e-5, 3.0)]
    sizes += [((7,), 1e-6, 1.0), ((4, 4, 4), 1e-6, 1.0), ((2, 90), 1e-6, 1.0)]
    sizes += [((2, 3, 5), 1e-9, 0.0001), ((2, 1, 3, 2, 4), 0.25, 1.0)]
    for shape, eps, size in sizes:
        D = shape[-1]
        x = size * normal(*shape, seed=1) + size
        if x.ndim > 2:
            x[-1, -1] = x[-1, -1].mean()  # a constant token, and in one case a constant image
        if D > 50:
            x[0, 5] = 60.0  # nine standard deviations: a clamp shows
        made.append(
            Case(
                f"x {shape}, eps={eps:.1g}, standard deviation about {size:g}",
                (x, normal(D, seed=2), normal(D, seed=3), eps),
            )
        )
    # Numbers that float32 holds without rounding, so that all right ways give nearly the same.
    places = torch.tensor([[512.0, -512.0, 2048.0], [-2048.0, 512.0, 0.0]])[..., None]
    far_off = places + torch.randint(-16, 17, (2, 3, 8), generator=torch.Generator().manual_seed(4)) / 8
    return [
        *made,
        Case(
            "x (2, 3, 8), eps=1e-06, near 512, -512, 2048, …",
            (far_off, normal(8), normal(8, seed=5), 1e-6),
        ),
    ]


def _normed_over(*axes: int) -> Callable[..., Tensor]:
    def norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
        over = [axis for axis in axes if axis >= -x.ndim]
        mean, variance = x.mean(over, keepdim=True), x.var(over, keepdim=True, unbiased=False)
        return (x - mean) / torch.sqrt(variance + eps) * weight + bias

    return norm


def _scaled(
    divisor: Callable[[Tensor, float], Tensor], centre: bool = True
) -> Callable[[Tensor, Tensor, Tensor, float], Tensor]:
    """Layer norm with another divisor, made of the token and eps."""

    def norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
        centred = x - x.mean(-1, keepdim=True) if centre else x
        return centred / divisor(x, eps) * weight + bias

    return norm


def _variance(x: Tensor, unbiased: bool = False) -> Tensor:
    return x.var(-1, keepdim=True, unbiased=unbiased)


def _without_keepdim(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    return (x - x.mean(-1)) / torch.sqrt(x.var(-1, unbiased=False) + eps) * weight + bias


def _cancelled(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    mean = x.mean(-1, keepdim=True)
    variance = (x * x).mean(-1, keepdim=True) - mean * mean
    return (x - mean) / torch.sqrt(variance + eps) * weight + bias


LAYER_NORM = Exercise(
    name="layer_norm",
    lesson="05",
    points=3,
    right=_right_norm,
    cases=_norm_cases,
    observe=call,
    tolerance=1e-4,
    mistakes=(
        *section(
            "The wrong axis.",
            (
                "a norm over the tokens",
                "You take mean and variance down the tokens (dim=-2), so that they depend on each other. Each token"
                " is normed by its own D numbers: dim=-1.",
                _normed_over(-2),
            ),
            (
                "a mean without keepdim",
                "The mean loses its last axis, so that torch subtracts the means of other tokens, or can't "
                "broadcast: mean(dim=-1, keepdim=True), and the same for the variance.",
                _without_keepdim,
            ),
        ),
        *section(
            "Per token, not per batch.",
            (
                "a batch norm",
                "You norm each channel over all tokens of all images. Then an image's output depends on its "
                "neighbours in the batch. Each token is normed by its own D numbers: dim=-1.",
                lambda x, *rest: _normed_over(*range(x.ndim - 1))(x, *rest),
            ),
            (
                "a norm over tokens and channels together",
                "You take one mean for a whole image. Each token has its own: dim=-1 alone.",
                _normed_over(-2, -1),
            ),
            (
                "a norm over everything",
                "You take one mean for the whole tensor. Each token has its own: dim=-1, keepdim=True.",
                lambda x, *rest: _normed_over(*range(x.ndim))(x, *rest),
            ),
        ),
        *section(
            _NEARLY,
            (
                "a variance divided by D − 1",
                "torch's var and std divide by D - 1 unless you say unbiased=False (or correction=0). Layer norm "
                "divides by D.",
                _scaled(lambda x, eps: torch.sqrt(_variance(x, unbiased=True) + eps)),
            ),
            (
                "an eps outside of the root",
                "eps is added to the variance, inside the square root. Added to the standard deviation, it does "
                "something else to nearly constant tokens.",
                _scaled(lambda x, eps: torch.sqrt(_variance(x)) + eps),
            ),
            (
                "an eps outside of the root, and D − 1",
                "x.std() divides by D - 1; and eps is added inside the square root, to the variance.",
                _scaled(lambda x, eps: torch.sqrt(_variance(x, unbiased=True)) + eps),
            ),
            (
                "a variance as mean of the squares minus the square of the mean",
                "Both are huge where the numbers are far from 0, and their difference is lost in rounding. Subtract"
                " the mean first, then take the mean of the squares.",
                _cancelled,
            ),
        ),
        *section(
            _EPS,
            (
                "another eps than the one asked for",
                "You use 1e-5, torch's default, whatever `eps` says.",
                lambda x, weight, bias, eps: _right_norm(x, weight, bias, 1e-5),
            ),
        ),
        *section(
            _NORM,
            (
                "a division by the variance",
                "The square root is missing: divide by torch.sqrt(variance + eps).",
                _scaled(lambda x, eps: _variance(x) + eps),
            ),
            (
                "factor and offset forgotten",
                "After the norm, each of the D numbers is multiplied by `weight`, and `bias` is added.",
                lambda x, weight, bias, eps: F.layer_norm(x, x.shape[-1:], eps=eps),
            ),
        ),
    ),
)


def check_layer_norm(fn: Callable[..., Tensor]) -> bool:
    """Check ``fn(x, weight, bias, eps)``: each token of (..., D) normed by its own numbers, then weight and bias."""
    return check(LAYER_NORM, fn)


# ---- Stochastic depth --------------------------------------------------------------------------------------------

_CALLS = 100


def _drop_cases() -> list[Case]:
    shapes = [((64, 2, 3), 0.2, True), ((64, 4, 2), 0.35, True), ((1, 2, 3), 0.4, True), ((64, 2, 3), 0.2, False),
              ((3, 2, 4), 0.0, True), ((6, 6, 6), 0.4, True), ((64, 3, 2), 0.75, True)]  # fmt: skip
    modes = ("eval mode", "training")
    made = [
        Case(f"x {shape}, p={p}, in {modes[training]}", (normal(*shape), training, False), (p,))
        for shape, p, training in shapes
    ]
    for training in (True, False):
        label = f"x (64, 3, 2), p=0.3, in {modes[training]}, after a call in {modes[not training]}"
        made.append(Case(label, (normal(64, 3, 2), training, True), (0.3,)))
    return made


def _values(numbers: Tensor, digits: int = 2) -> str:
    """The different numbers among many, in order, rounded."""
    ordered = numbers.detach().flatten().sort().values
    first = torch.cat([torch.tensor([True]), ordered.diff() > 1e-3])
    found = [f"{round(number, digits) + 0.0:g}" for number in ordered[first].tolist()]
    return ", ".join(found[:8]) + (", …" if len(found) > 8 else "")


def _what_falls(zero: Tensor) -> str:
    """What is zero together, in (calls, B, T, D)."""
    if not zero.any():
        return "nothing"
    for words, axis in (("whole batches", 1), ("whole images", 2), ("single tokens", 3))[zero.shape[1] == 1 :]:
        together = zero.flatten(axis)
        if torch.equal(together.all(-1), together.any(-1)):
            alike = words == "single tokens" and len({tuple(t.tolist()) for t in zero[..., 0].movedim(2, 0).flatten(1)})
            never = not zero.flatten(0, 1).any(0).all()
            return "a part of the tokens" if alike and (alike < zero.shape[2] or never) else words
    channels = zero.movedim(2, -1)
    return "single channels" if torch.equal(channels.all(-1), channels.any(-1)) else "single numbers"


def _how_often(zero: Tensor, p: float) -> str:
    """Which share of whole images falls, in (calls, B): "p", or what is odd about it."""
    calls, B = zero.shape
    share = zero.double().mean().item()
    if far(int(zero.sum()), calls * B, p):
        return f"{share:.2g}"
    if any(far(int(many), calls, p) for many in zero.sum(0)):
        return "another one for some images than for others"
    if B > 1 and zero.sum(1).unique().numel() == 1:
        return "the same number of them each time: they don't draw by themselves"
    if len({tuple(row) for row in zero.T.tolist()}) < B:
        return "one in which some images always fall together"
    if B > 30 and (zero.sum(1).double().var() < 0.3 * B * p * (1 - p) or _hang_together(zero.double() - p, p)):
        return "one in which an image's draw hangs on another's"
    return "p"


def _hang_together(apart: Tensor, p: float) -> bool:
    """Whether draws (calls, B), with their mean taken off, go together with those some places on, or from the end."""
    pairs = [(apart[:, :-far], apart[:, far:]) for far in range(1, apart.shape[1] // 2)]
    pairs.append((apart[:, : apart.shape[1] // 2], apart.flip(1)[:, : apart.shape[1] // 2]))
    return any(abs((a * b).mean().item()) * math.sqrt(a.numel()) > 7 * p * (1 - p) for a, b in pairs)


def _come_again(zero: Tensor, falls: str) -> str:
    """Whether among many calls, (calls, B), the same images fall twice."""
    again = falls == "whole images" and len({tuple(call) for call in zero.tolist()}) < len(zero)
    return f"among {len(zero)}, sometimes one that came before" if again else ""


def _observe_drop_path(work: Any, case: Case) -> Result:
    module, (x, training, turned), (p,) = work(*case.build), case.args, case.build
    if not isinstance(module, nn.Module):
        raise Fault("the class must derive from nn.Module")
    if turned:
        module.train(not training)(x.clone())  # nothing of the other mode may stay
    module.train(training)
    given = x.clone().requires_grad_()
    inputs = [given.clone() for _ in range(_CALLS if p else 3)]
    outputs = [module(one) for one in inputs]
    if not isinstance(outputs[0], Tensor) or outputs[0].shape != x.shape:
        got = f"has shape {tuple(outputs[0].shape)}" if isinstance(outputs[0], Tensor) else f"is {outputs[0]!r}"
        raise Fault(f"the result {got}, expected a tensor of the shape of x, {tuple(x.shape)}")
    factor = torch.stack([output.detach() for output in outputs]) / x  # (calls, B, T, D)
    zero = factor.abs() < 1e-6
    falls = _what_falls(zero)
    found: Result = {"what falls": falls}
    if training and p and falls != "nothing" and len(x) > 30:
        # Of 64 images, two draws are the same less than once in 10 ** 10.
        found["each draw"] = (
            staleness(lambda: module(x.clone()))
            or staleness(lambda: work(*case.build).train()(x.clone()), 2)
            or _come_again(zero[:, :, 0, 0], falls)
            or "fresh"
        )
    if falls in ("nothing", "whole images"):
        found["what images are multiplied by"] = _values(factor, 4)
        stale = found.get("each draw", "fresh") != "fresh"  # then one draw, come a hundred times, tells no share
        if (len(x) == 1 or len(x) > 30) and not stale:  # of a few, the draws can't be told from one another
            found["what share of the images falls"] = _how_often(zero[:, :, 0, 0], p) if falls != "nothing" else "none"
    some = [output for output, fallen in zip(outputs, zero, strict=True) if not fallen.all()]
    found["the path of the gradient"] = "whole" if all(output.requires_grad for output in some) else "cut"
    changed = any(not torch.equal(one.detach(), x) for one in inputs)
    if zero[0].all() and not outputs[0].requires_grad:
        found["the gradient of what falls"] = Words("zero")
    elif outputs[0].requires_grad:
        # Where x was changed in place, the gradient in what it became tells nothing.
        (gradient,) = torch.autograd.grad(outputs[0].sum(), given if changed else inputs[0])
        found["the gradient of what falls"] = Words("not zero" if gradient[zero[0]].any() else "zero")
    found["changed"] = [1] if changed else []
    return found


def _dropping(
    keep: Callable[[Tensor, float], Tensor],
    scale: Callable[[float], float] = lambda p: 1 / (1 - p),
    in_eval: Callable[[Tensor, float], Tensor] = lambda x, p: x,
) -> type[nn.Module]:
    """Stochastic depth with another draw of 0 and 1, another factor, another behaviour in eval mode."""

    class Wrong(nn.Module):
        def __init__(self, p: float) -> None:
            super().__init__()
            self.p = p

        def forward(self, x: Tensor) -> Tensor:
            return x * keep(x, self.p) * scale(self.p) if self.training else in_eval(x, self.p)

    return Wrong


def _kept(*axes: int) -> Callable[[Tensor, float], Tensor]:
    """Draw over the first axes of (B, T, D), and the same for all along the others."""

    def draw(x: Tensor, p: float) -> Tensor:
        shape = [size if axis in axes else 1 for axis, size in enumerate(x.shape)]
        return (torch.rand(shape) >= p).to(x.dtype)

    return draw


def _kept_with_p(x: Tensor, p: float) -> Tensor:
    return _kept(0)(x, 1 - p)


_IMAGES = _kept(0)


def _seeded(x: Tensor, p: float) -> Tensor:
    torch.manual_seed(0)
    return _kept(0)(x, p)


class _DrawnOnce(nn.Module):
    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p
        self.keep: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return x
        self.keep = _kept(0)(x, self.p) if self.keep is None else self.keep
        return x * self.keep / (1 - self.p)


DROP_PATH = Exercise(
    name="drop_path",
    lesson="05",
    points=3,
    right=DropPath,
    cases=_drop_cases,
    observe=_observe_drop_path,
    mistakes=(
        *section(
            "Drop path done wrong.",
            (
                "drop path without rescaling",
                "What is kept must be divided by 1 - p; otherwise the branch is weaker in training than in use.",
                _dropping(_IMAGES, lambda p: 1.0),
            ),
            (
                "drop path for the whole batch",
                "You draw once, and all images skip together. Each image has its own draw: a mask of shape (B, 1, 1).",
                _dropping(_kept()),
            ),
        ),
        *section(
            _DEPTH,
            (
                "drop path for single tokens",
                "You draw for each token. A whole image keeps or loses the branch: a mask of shape (B, 1, 1).",
                _dropping(_kept(0, 1)),
            ),
            (
                "plain dropout",
                "You drop single numbers. Stochastic depth drops the branch of a whole image: a mask of shape (B, "
                "1, 1).",
                _dropping(_kept(0, 1, 2)),
            ),
            (
                "drop path in evaluation",
                "After eval() nothing is dropped: look at self.training.",
                _dropping(_IMAGES, in_eval=lambda x, p: x * _IMAGES(x, p) / (1 - p)),
            ),
            (
                "the rescaling left to evaluation",
                "You multiply by 1 - p in eval mode, as the first paper did. Here you divide in training, so that "
                "eval mode returns x as it is.",
                _dropping(_IMAGES, lambda p: 1.0, lambda x, p: x * (1 - p)),
            ),
            (
                "keep and drop exchanged",
                "p is the probability to be dropped. You keep an image with p, and divide by 1 - p.",
                _dropping(_kept_with_p),
            ),
            (
                "p taken as the probability to keep",
                "Your work is right for 1 - p: here p is the probability to be dropped, so an image is kept with 1 "
                "- p, and divided by 1 - p.",
                _dropping(_kept_with_p, lambda p: 1 / p if p else 1.0),
            ),
            (
                "a division by p",
                "What is kept is divided by the probability to be kept, 1 - p.",
                _dropping(_IMAGES, lambda p: 1 / p if p else 1.0),
            ),
            (
                "a seed inside of forward",
                "You set the seed in each call, so that the same images fall each time, and all other random "
                "numbers start again, too. Draw without a seed.",
                _dropping(_seeded),
            ),
            (
                "the same mask in each call",
                "The same images fall in each call: you keep one mask, make a generator with a fixed seed in each "
                "call, or don't draw at all. Each call needs a new draw.",
                _DrawnOnce,
            ),
        ),
    ),
)


def check_drop_path(cls: type[nn.Module]) -> bool:
    """Check ``cls(p)``: (B, ...) -> (B, ...), in training with whole images dropped, in eval mode unchanged."""
    return check(DROP_PATH, cls)


# ---- The block ---------------------------------------------------------------------------------------------------

# Other names for the same numbers: torch's own layers have them.
ALIASES = {
    f"{theirs}{kind}": f"{ours}{kind}"
    for kind in ("weight", "bias")
    for theirs, ours in {
        "attention.in_proj_": "attention.qkv.",
        "attention.out_proj.": "attention.proj.",
        "self_attn.in_proj_": "attention.qkv.",
        "self_attn.out_proj.": "attention.proj.",
        "linear1.": "mlp.fc1.",
        "norm.": "norm1.",  # one norm alone: a mistake that has a name
        "linear2.": "mlp.fc2.",
    }.items()
}


@functools.cache
def _weights(cls: type[nn.Module], *build: Any) -> dict[str, Tensor]:
    """Made once: building a layer takes longer than calling it."""
    return random_weights(cls(*build))


def _block_cases() -> list[Case]:
    made = []
    sizes = [((1, 3, 6), 3, 8, 5.0), ((2, 4, 8), 2, 5, 5.0), ((3, 2, 4), 1, 12, 9.0), ((3, 1, 6), 2, 7, 5.0),
             ((2, 3, 8), 4, 6, 0.001)]  # fmt: skip
    for shape, heads, M, size in sizes:
        build = (shape[-1], heads, M)  # both rates are 0 unless something else is said
        small = ", nearly constant" if size < 0.1 else ""
        label = f"z {shape}, num_heads={heads}, mlp_dim={M}{small}"
        weights = _weights(EncoderBlock, shape[-1], heads, M)
        made.append(Case(label, (size * normal(*shape),), build, weights))
    # Where attention says nothing, the second norm reads nearly constant tokens, too: there its eps shows.
    quiet = {name: x * 0 if name.startswith("attention.proj") else x for name, x in made[-1].weights.items()}
    made.append(Case("the same, attention silent", made[-1].args, made[-1].build, quiet))
    # One branch silent: what the other one adds can be told.
    for branch, silent in (("attention", "mlp.fc2"), ("MLP", "attention.proj")):
        quiet = {name: x * 0 if name.startswith(silent) else x for name, x in made[1].weights.items()}
        made.append(Case(f"as the second, {branch} alone speaks", made[1].args, made[1].build, quiet))
    z = normal(1, 2, 4).expand(300, 2, 4)
    for name, dropout, drop_path in (("dropout", 0.5, 0.0), ("drop_path", 0.0, 0.3), ("drop_path", 0.0, 0.6)):
        label = f"300 equal images, {name}={max(dropout, drop_path)}"
        made.append(Case(label, (z,), (4, 2, 6, dropout, drop_path), _weights(EncoderBlock, 4, 2, 6)))
    label = "300 equal images, dropout=0.1, drop_path=0.5"
    made.append(Case(label, (z,), (4, 2, 6, 0.1, 0.5), _weights(EncoderBlock, 4, 2, 6)))
    # One branch silent: its last layer holds zeros, so that what varies comes from the other.
    for branch, silent in (("attention", "mlp.fc2"), ("MLP", "attention.proj")):
        weights = _weights(EncoderBlock, 4, 2, 6)
        weights = weights | {name: torch.zeros_like(x) for name, x in weights.items() if name.startswith(silent)}
        # One hidden unit alone is heard, so that there are three ways in which a number and that unit fall.
        weights["mlp.fc2.weight"] = weights["mlp.fc2.weight"] * (torch.arange(6) == 2)
        for p in (0.5, 0.2):
            label = f"300 equal images, dropout={p}, {branch} alone speaks"
            made.append(Case(label, (z,), (4, 2, 6, p, 0.0), weights))
    return made


_SEED = 271  # one that no student sets

_WAYS = {1: Words("not at all"), 2: Words("both at once, or one alone"), 4: Words("each by itself")}


def _other_ways(ways: int) -> str:
    return f"in {ways} ways, as if more than the two branches fell" if ways > 4 else f"in {ways} of four ways"


def _observe_block(work: Any, case: Case) -> Result:
    dropout, drop_path = (*case.build, 0.0, 0.0)[3:5]
    if not dropout and not drop_path:
        case = filled(work, case, 0.0, 0.0)
        return layer(work, case, ALIASES) | {"the start of two blocks": _starts(work(*case.build), work(*case.build))}
    torch.default_generator.manual_seed(_SEED)
    module, (z,) = work(*case.build), case.args
    if not isinstance(module, nn.Module):
        raise Fault("the class must derive from nn.Module")
    if torch.initial_seed() != _SEED:
        raise Fault("your code sets a seed, for everybody (torch.manual_seed): leave it out")
    adopt(module, case.weights, ALIASES)
    outputs = [module.train(mode)(z) for mode in (False, True)]
    for output in outputs:
        if not isinstance(output, Tensor) or output.shape != z.shape:
            got = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
            raise Fault(f"the result must have the shape of z, {tuple(z.shape)}, got {got}")
    in_eval, in_training = (_values(output[:, 0, 0]) for output in outputs)
    if dropout and drop_path:
        return {"what falls in training, where both are asked for,": Words(_both(outputs[1], z, drop_path))}
    if drop_path:
        # Four results for the four ways in which the two branches fall: each draws by itself.
        ways = len({tuple(row) for row in (outputs[1][:, 0] * 100).round().int().tolist()})
        both = int(((outputs[1] - z).abs().amax((1, 2)) < 1e-5).sum())
        share = both / len(z) if far(both, len(z), drop_path**2) else drop_path**2
        return {
            "what equal images become, in eval mode,": in_eval,
            "how the two branches fall in training": _WAYS.get(ways) or _other_ways(ways),
            "what equal images become, in training,": in_training,
            "what share of the images loses both branches": f"about {share:.2f}",
            "each draw": staleness(lambda: module.train()(z.clone()), 4) or "fresh",
        }
    words = ["different numbers" if "," in values else "equal numbers" for values in (in_eval, in_training)]
    found: Result = {
        "what equal images become, in eval mode,": words[0],
        "what equal images become, in training,": words[1],
    }
    if "alone" in case.label:
        # What dropout of the branch's own output adds is 0 for a part of the numbers, whatever happens inside.
        silent = (outputs[1] - z).abs() < 1e-6
        share = silent.double().mean().item()
        right = not far(int(silent.sum()), silent.numel(), dropout)
        found["what share of the branch's numbers falls"] = f"about {dropout if right else share:.1g}"
        if "MLP" in case.label:  # torch's own attention drops weights, too, and so has no values that can be told
            bias = case.weights["mlp.fc2.bias"][0]
            made = _by_dropout(outputs[1][:, 0, 0], z[0, 0, 0], outputs[0][0, 0, 0] - z[0, 0, 0], bias, dropout)
            told = f"what dropout={dropout} makes of it" if made else in_training
            found["what a number of equal images becomes, in training,"] = Words(told)
    return found


def _starts(first: Any, second: Any) -> Words:
    """Whether two layers start with the same random numbers."""
    pairs = [(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True) if a.ndim > 1 and a.std() > 0]
    seeded = bool(pairs) and all(torch.equal(a, b) for a, b in pairs)
    return Words("the same numbers (is a seed set?)" if seeded else "each by its own draw")


def _both(output: Tensor, z: Tensor, p: float) -> str:
    """What falls of equal images: both branches of some, and numbers of what is left."""
    both = int(((output - z).abs().amax((1, 2)) < 1e-5).sum())
    share = both / len(z) if far(both, len(z), p**2) else p**2
    ways = len({tuple(row) for row in (output.flatten(1) * 100).round().int().tolist()})
    return f"both branches of about {share:.2f} of the images, and {'' if ways > 4 else 'no '}single numbers"


def _by_dropout(found: Tensor, z: Tensor, added: Tensor, bias: Tensor, p: float) -> bool:
    """Whether numbers z, to which an MLP adds ``added`` in eval mode, became in training what dropout makes of them.

    It falls on what the MLP returns, and mostly on its one hidden unit, too; ``bias`` is its second layer's.
    """
    once = torch.stack([z, z + added / (1 - p)])
    twice = torch.stack([z, z + bias / (1 - p), z + (bias + (added - bias) / (1 - p)) / (1 - p)])
    near = [(found[:, None] - way).abs() < 1e-4 for way in (once, twice)]
    return any(bool(one.any(0).all() and one.any(1).all()) for one in near)


class _Block(nn.Module):
    """The right block, written out in steps that a subclass replaces by a wrong one."""

    eps = 1e-6

    def __init__(self, dim: int, num_heads: int, mlp_dim: int, dropout: float = 0.0, drop_path: float = 0.0) -> None:
        super().__init__()
        self.p = dropout
        self.norm1, self.norm2 = nn.LayerNorm(dim, eps=self.eps), nn.LayerNorm(dim, eps=self.eps)
        self.attention = MultiHeadSelfAttention(dim, num_heads, dropout=dropout)
        self.mlp = MLP(dim, mlp_dim, dropout=dropout)
        self.drop_path = DropPath(drop_path)

    def forward(self, z: Tensor) -> Tensor:
        z = z + self.branch1(z)
        return z + self.branch2(z)

    def branch1(self, z: Tensor) -> Tensor:
        return self.drop_path(self.attention(self.norm1(z)))

    def branch2(self, z: Tensor) -> Tensor:
        return self.drop_path(self.mlp(self.norm2(z)))


class _PostNorm(_Block):
    def forward(self, z: Tensor) -> Tensor:
        z = self.norm1(z + self.drop_path(self.attention(z)))
        return self.norm2(z + self.drop_path(self.mlp(z)))


class _NormBehind(_Block):
    def forward(self, z: Tensor) -> Tensor:
        z = z + self.drop_path(self.norm1(self.attention(z)))
        return z + self.drop_path(self.norm2(self.mlp(z)))


class _FromNormed(_Block):
    def forward(self, z: Tensor) -> Tensor:
        z = self.norm1(z)
        z = z + self.drop_path(self.attention(z))
        z = self.norm2(z)
        return z + self.drop_path(self.mlp(z))


class _NoResidual(_Block):
    def forward(self, z: Tensor) -> Tensor:
        return self.branch2(self.branch1(z))


class _AddedToTheOld(_Block):
    def forward(self, z: Tensor) -> Tensor:
        return z + self.branch2(z + self.branch1(z))


class _Parallel(_Block):
    def forward(self, z: Tensor) -> Tensor:
        return z + self.branch1(z) + self.branch2(z)


class _OneNorm(_Block):
    def branch2(self, z: Tensor) -> Tensor:
        return self.drop_path(self.mlp(self.norm1(z)))


class _NoSecondNorm(_Block):
    def branch2(self, z: Tensor) -> Tensor:
        return self.drop_path(self.mlp(z))


class _TorchsEps(_Block):
    eps = 1e-5


class _NoDropout(_Block):
    def __init__(self, dim: int, num_heads: int, mlp_dim: int, dropout: float = 0.0, drop_path: float = 0.0) -> None:
        super().__init__(dim, num_heads, mlp_dim, 0.0, drop_path)


class _NoDropPath(_Block):
    def __init__(self, dim: int, num_heads: int, mlp_dim: int, dropout: float = 0.0, drop_path: float = 0.0) -> None:
        super().__init__(dim, num_heads, mlp_dim, dropout, 0.0)


class _DropsTheSum(_Block):
    def forward(self, z: Tensor) -> Tensor:
        z = self.drop_path(z + self.attention(self.norm1(z)))
        return self.drop_path(z + self.mlp(self.norm2(z)))


def _where_the_block_goes_wrong(rows: list[tuple[Case, Result, Result]]) -> str:
    """What each branch adds where the other one is silent."""
    found = []
    for case, right, theirs in rows:
        branch = case.label.removeprefix("as the second, ").removesuffix(" alone speaks")
        if branch not in ("attention", "MLP"):
            continue
        added = [one["result"].detach() - case.args[0] for one in (right, theirs)]
        if equal(added[1], added[0], ENCODER_BLOCK):
            found.append(f"In evaluation mode, what {branch} adds is right where the other branch is silent.")
        elif seen := symptom([(*added, {"z": case.args[0]}, case.label)], ENCODER_BLOCK.tolerance, EXACT):
            found.append(f"Of what {branch} adds, alone: {seen}")
        else:
            found.append(f"What {branch} adds is wrong, even where the other branch is silent: what does it read?")
    return " ".join(found)


ENCODER_BLOCK = Exercise(
    name="encoder_block",
    lesson="05",
    points=4,
    right=_Block,
    cases=_block_cases,
    forbidden=(EncoderBlock,),
    observe=_observe_block,
    locate=_where_the_block_goes_wrong,
    mistakes=(
        *section(
            _POST,
            (
                "post-norm in place of pre-norm",
                "You norm after the addition, as the original Transformer does. In a ViT the norm is inside the "
                "branch, before attention and before the MLP: z + attention(norm1(z)).",
                _PostNorm,
            ),
        ),
        *section(
            _EQUATIONS,
            (
                "a norm after the branch",
                "You norm what a branch returns. The norm belongs before the branch: attention(norm1(z)).",
                _NormBehind,
            ),
            (
                "a second addition to the old tokens",
                "You add the MLP's output to z, so that attention's own addition is lost. It is added to z′, the "
                "result of the first line.",
                _AddedToTheOld,
            ),
            (
                "both branches in parallel",
                "Your MLP reads z. It reads z′, which contains attention's result.",
                _Parallel,
            ),
            ("no norm before the MLP", "The MLP reads norm2(z′).", _NoSecondNorm),
        ),
        *section(
            _NORMED,
            (
                "a residual from the normed input",
                "You overwrite z with the normed tokens and add to those, so that the path from the first block to "
                "the last is cut. Keep z, and give only the branch the normed tokens.",
                _FromNormed,
            ),
        ),
        *section(
            _RESIDUAL,
            ("no residuals", "You chain the branches. Each of them is added to what came in: z + ….", _NoResidual),
        ),
        *section(
            _HAND,
            (
                "one norm for both branches",
                "norm1 norms what attention reads, norm2 what the MLP reads. You use norm1 for both.",
                _OneNorm,
            ),
            ("no dropout", "In training nothing is dropped: pass `dropout` on to attention and MLP.", _NoDropout),
        ),
        *section(
            _EPS,
            (
                "torch's eps",
                "Your numbers are off for nearly constant tokens: nn.LayerNorm has eps=1e-5 unless you pass eps=1e-6.",
                _TorchsEps,
            ),
        ),
        *section(
            _DEPTH,
            (
                "no drop path",
                "In training no image skips a branch: give vt.DropPath its probability, and call it on both branches.",
                _NoDropPath,
            ),
            (
                "drop path on the sum",
                "You drop z together with the branch, so that whole images vanish. Drop the branch alone, before it"
                " is added.",
                _DropsTheSum,
            ),
        ),
    ),
)


def check_encoder_block(cls: type[nn.Module]) -> bool:
    """Check ``cls(dim, num_heads, mlp_dim, dropout, drop_path)``: (B, T, D) -> (B, T, D)."""
    return check(ENCODER_BLOCK, cls)


# ---- The challenge -----------------------------------------------------------------------------------------------


class _Encoder(nn.Module):
    """The right stack, written out in steps that a subclass replaces by a wrong one."""

    def __init__(self, dim: int, num_heads: int, mlp_dim: int, depth: int, drop_path: float = 0.0) -> None:
        super().__init__()
        make = functools.partial(EncoderBlock, dim, num_heads, mlp_dim)
        self.blocks = nn.ModuleList(self.build(make, [self.rate(i, depth, drop_path) for i in range(depth)]))
        self.norm = nn.LayerNorm(dim, eps=1e-6)

    def build(self, make: Callable[..., nn.Module], rates: list[float]) -> list[nn.Module]:
        return [make(drop_path=rate) for rate in rates]

    def rate(self, index: int, depth: int, most: float) -> float:
        return most * index / max(depth - 1, 1)

    def forward(self, z: Tensor) -> Tensor:
        for block in self.blocks:
            z = block(z)
        return self.norm(z)


class _OneBlock(_Encoder):
    def build(self, make: Callable[..., nn.Module], rates: list[float]) -> list[nn.Module]:
        return [make(drop_path=rates[-1])] * len(rates)


class _Hidden(_Encoder):
    def __init__(self, dim: int, num_heads: int, mlp_dim: int, depth: int, drop_path: float = 0.0) -> None:
        super().__init__(dim, num_heads, mlp_dim, 0)
        vars(self)["blocks"] = [EncoderBlock(dim, num_heads, mlp_dim) for _ in range(depth)]


class _Copies(_Encoder):
    def build(self, make: Callable[..., nn.Module], rates: list[float]) -> list[nn.Module]:
        blocks = [copy.deepcopy(block) for block in [make()] * len(rates)]
        for block, rate in zip(blocks, rates, strict=True):
            block.drop_path = DropPath(rate)
        return blocks


class _NoFinalNorm(_Encoder):
    def forward(self, z: Tensor) -> Tensor:
        for block in self.blocks:
            z = block(z)
        return z


class _NormInTheLoop(_Encoder):
    def forward(self, z: Tensor) -> Tensor:
        for block in self.blocks:
            z = self.norm(block(z))
        return z


class _AroundEachBlock(_Encoder):
    def forward(self, z: Tensor) -> Tensor:
        for block in self.blocks:
            z = z + block(z)
        return self.norm(z)


class _Backwards(_Encoder):
    def forward(self, z: Tensor) -> Tensor:
        for block in reversed(self.blocks):
            z = block(z)
        return self.norm(z)


class _EqualRates(_Encoder):
    def rate(self, index: int, depth: int, most: float) -> float:
        return most


class _RatesFromOne(_Encoder):
    def rate(self, index: int, depth: int, most: float) -> float:
        return most * (index + 1) / depth


class _RatesBelowP(_Encoder):
    def rate(self, index: int, depth: int, most: float) -> float:
        return most * index / depth


class _LastEps(_Encoder):
    def __init__(self, dim: int, num_heads: int, mlp_dim: int, depth: int, drop_path: float = 0.0) -> None:
        super().__init__(dim, num_heads, mlp_dim, depth, drop_path)
        self.norm = nn.LayerNorm(dim)


def _encoder_cases() -> list[Case]:
    made = []
    sizes = [
        ((2, 3, 4), 2, 6, 4, 0.2),
        ((1, 4, 6), 3, 5, 2, 0.1),
        ((3, 2, 4), 1, 8, 1, 0.3),
        ((1, 2, 4), 2, 3, 13, 0.6),
    ]
    for shape, heads, M, depth, p in sizes:
        build = (shape[-1], heads, M, depth, p)
        label = f"z {shape}, num_heads={heads}, mlp_dim={M}, depth={depth}, drop_path={p}"
        made.append(Case(label, (normal(*shape),), build, _weights(_Encoder, *build)))
    # Without what the blocks add, the last norm reads nearly constant tokens: there its eps shows.
    quiet = {name: x * 0 if name.startswith("blocks") else x for name, x in made[0].weights.items()}
    return [
        *made,
        Case(
            "the same as the first, tokens nearly constant, no drop_path given",
            (normal(2, 3, 4) / 1000,),
            made[0].build[:4],
            quiet,
        ),
    ]


def _observe_encoder(work: Any, case: Case) -> Result:
    case = filled(work, case, 0.0)
    seed = _SEED + torch.initial_seed()
    torch.default_generator.manual_seed(seed)
    module = work(*case.build)
    if not isinstance(module, nn.Module):
        raise Fault("the class must derive from nn.Module")
    first = [p.detach() for name, p in module.named_parameters() if name.endswith("mlp.fc1.weight")]
    found: Result = {"the number of blocks with weights of their own": len(first)}
    if len(first) != case.build[3]:
        return found
    alike = any(torch.equal(a, b) for i, a in enumerate(first) for b in first[:i])
    # A rate may be a number, an array or a tensor; a block of a student's own may call its part as it likes.
    inside = [part for part in module.modules() if part is not module]  # the encoder may be called NoDropPath
    parts = [part for part in inside if "droppath" in type(part).__name__.lower().replace("_", "")]
    rates = [round(float(getattr(part, "p", getattr(part, "drop_prob", 0.0))), 4) for part in parts]
    module.eval()
    found["blocks after eval()"] = Words("in training" if any(part.training for part in parts) else "in eval mode")
    another = work(*case.build)
    of_its_own(module, another)
    theirs = [p.detach() for name, p in another.named_parameters() if name.endswith("mlp.fc1.weight")]
    seeded = len(theirs) == len(first) and all(map(torch.equal, first, theirs))
    found["the start of another encoder"] = Words("the same (a seed is set)" if seeded else "a draw of its own")
    ours = [part for part in parts if isinstance(part, DropPath)]
    for part in ours:
        part.p = 0.0  # nothing else may be left to chance in training mode
    run = layer(lambda *_: module, case, chance=any(rates) and len(ours) < len(parts))
    kept = torch.initial_seed() == seed
    found["torch's seed"] = Words("as it was" if kept else "set by your code, for everybody (torch.manual_seed)")
    return found | {"how blocks start": "alike" if alike else "different", "drop path": rates} | run


def _where_the_encoder_goes_wrong(rows: list[tuple[Case, Result, Result]]) -> str:
    """Whether it is the rates, the norm, or the way through the blocks."""
    for case, right, theirs in rows:
        if right["drop path"] != theirs.get("drop path"):
            rates = ", ".join(f"{rate:g}" for rate in theirs["drop path"])
            if len(case.build) < 5:
                return f"Where no drop_path is given, your rates are {rates}: the default is 0."
            return (
                f"Your rates are {rates}. Over {case.build[3]} block{'s' * (case.build[3] > 1)} they grow from 0 in "
                f"equal steps, up to {case.build[4]:g} in the last of several."
            )
    if all(equal(theirs["result"], right["result"], ENCODER) for _, right, theirs in rows):
        return ""  # another input raises, or it is the gradients
    _, right, theirs = rows[-1]  # where the blocks add nothing
    if equal(theirs["result"], right["result"], ENCODER):
        return "Where the blocks add nothing, your result is right: look at the way of the tokens through the blocks."
    return (
        "Even where the blocks add nothing, your result is wrong: look at the last norm, at what it reads, and at what "
        "you add to what a block returns."
    )


ENCODER = Exercise(
    name="encoder",
    lesson="05",
    points=2,
    right=_Encoder,
    cases=_encoder_cases,
    observe=_observe_encoder,
    locate=_where_the_encoder_goes_wrong,
    mistakes=(
        *section(
            "Twelve times the same block.",
            (
                "one block used again and again",
                "[block] * depth is one block, called many times, with one set of weights. Build a new one each time.",
                _OneBlock,
            ),
            (
                "copies of one block",
                "deepcopy makes blocks that all start equal (so does a seed set anew for each). Build them one by one.",
                _Copies,
            ),
        ),
        *section(
            _HAND,
            (
                "blocks in a plain list",
                "torch doesn't look into Python lists: it finds no parameters of your blocks, and an optimiser "
                "would train none. Put them into nn.ModuleList or nn.Sequential.",
                _Hidden,
            ),
            ("blocks in backward order", "Block 0 comes first.", _Backwards),
        ),
        *section(
            "one more norm at the end",
            (
                "no norm at the end",
                "Nothing norms the stream in a pre-norm model, so one more norm follows the last block.",
                _NoFinalNorm,
            ),
            (
                "a norm after every block",
                "The last norm comes once, after all blocks; in the loop it cuts the path from the first to the last.",
                _NormInTheLoop,
            ),
        ),
        *section(
            _RESIDUAL,
            (
                "a second residual around each block",
                "A block returns its input plus what its branches add: z = block(z), not z + block(z).",
                _AroundEachBlock,
            ),
        ),
        *section(
            _DEPTH,
            (
                "the same rate in every block",
                "Early blocks should rarely be skipped: the rate grows from 0 in the first to drop_path in the last.",
                _EqualRates,
            ),
            (
                "rates that do not begin at 0",
                "You count the blocks from 1. The first rate is 0: drop_path * i / (depth - 1), with i from 0.",
                _RatesFromOne,
            ),
            (
                "rates that stop short",
                "You divide by depth. Between depth blocks there are depth - 1 steps, so that the last one gets "
                "drop_path.",
                _RatesBelowP,
            ),
        ),
        *section(
            _EPS,
            (
                "torch's eps in the last norm",
                "nn.LayerNorm has eps=1e-5 unless you pass eps=1e-6, the paper's.",
                _LastEps,
            ),
        ),
    ),
)


def check_encoder(cls: type[nn.Module]) -> bool:
    """Check ``cls(dim, num_heads, mlp_dim, depth, drop_path)`` with ``blocks`` and ``norm``: (B, T, D) -> (B, T, D)."""
    return check(ENCODER, cls)
