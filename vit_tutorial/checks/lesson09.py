"""Checks of lesson 09: a checkpoint by hand: its kernels, the teacher in it, the pixels, DeiT's heads."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from vit_tutorial.checks.engine.compare import describe
from vit_tutorial.checks.engine.exercise import Case, Exercise, Fault, Mistake, Observation, State
from vit_tutorial.checks.engine.functions import changed_argument, copy_arguments, normal
from vit_tutorial.checks.engine.questions import Question, Slip, pencil

IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # mean and standard deviation
_TURNED = "A kernel with an axis for the heads"
_LIBRARIES = "Their names, our names"
_PIXELS = "The question"

# ---- With a pencil -----------------------------------------------------------------------------------------------

CHECKPOINT_NUMBERS = pencil(
    "checkpoint_numbers",
    lesson="09",
    points=4,
    tolerance=0.002,  # -1.203 is not -1.2, but a division by 256
    questions={
        "entries": Question(
            68,
            "Two norms, qkv, projection and two layers of the MLP, each with weight and bias: one block. Then what "
            "comes before the blocks and after them.",
        ),
        "left as they began": Question(
            8,
            "All entries but those of the blocks.",
            "strict=False.",
            {
                0: Slip(
                    "a model that is filled whole",
                    "strict=False means that no name has to fit: a tensor whose name isn't found keeps its "
                    "initial values, and no error is raised.",
                )
            },
        ),
        "row 3 of q": Question(
            [110, 111, 112, 113, 114, 115],
            "Row 3 is output 3: which head, and which number within it? Its six numbers belong to the inputs 0 to 5.",
            _TURNED,
            {
                (3, 13, 103, 113, 203, 213): Slip(
                    "a kernel that isn't turned",
                    "That is what input 3 contributes to every output. A row of torch's weight belongs to one "
                    "output, and holds one number for each input.",
                ),
                (10, 11, 12, 13, 14, 15): Slip(
                    "a row of head 0", "Heads lie together: rows 0 and 1 are head 0, rows 2 and 3 head 1."
                ),
            },
        ),
        "axes": Question(
            (3, 2, 0, 1),
            "torch's kernel is (D, C, height, width). For each of these four say which axis of (P, P, C, D) it is.",
        ),
        "pixel": Question(
            -1.2,
            "51 of 255 first becomes a number from 0 to 1. Then subtract the mean, and divide by the standard "
            "deviation.",
            _PIXELS,
            {
                (51 - 0.5) / 0.25: Slip(
                    "a pixel between 0 and 255",
                    "The mean and standard deviation are those of pixels between 0 and 1: divide by 255 before "
                    "you subtract the mean.",
                )
            },
        ),
        "factor": Question(0.7086, "The right norm divides by √(v + 10⁻⁶), the wrong one by √(v + 10⁻⁵)."),
    },
)


# ---- A model for raw pixels --------------------------------------------------------------------------------------


def _raw_cases() -> list[Case]:
    cases = []
    colours = [(*IMAGENET, 6, 2), ((0.0, 0.2, 0.9), (2.0, 0.5, 3.0), 3, 4), ((0.45,), (0.22,), 7, 5)]
    for mean, std, D, P in colours:
        weight = normal(D, len(mean), P, P)
        cases.append(Case(f"weight {tuple(weight.shape)}, mean={mean}", (weight, normal(D, seed=1), mean, std)))
    return cases


def _raw(
    weight: Tensor, bias: Tensor, mean: tuple[float, ...], std: tuple[float, ...], by_old: bool = False
) -> tuple[Tensor, Tensor]:
    """The patch embedding for raw pixels; or with the mean taken through the old kernel."""
    kernel = weight / _column(std)  # (D, C, P, P)
    return kernel, bias - ((weight if by_old else kernel) * _column(mean)).sum(dim=(1, 2, 3))


FOR_RAW_PIXELS = Exercise(
    name="for_raw_pixels",
    lesson="09",
    points=3,
    right=_raw,
    cases=_raw_cases,
    mistakes=(
        Mistake(
            name="the mean sent through the old kernel",
            says="The mean goes through the new kernel, which is divided by the standard deviation already.",
            reread=_PIXELS,
            wrong=functools.partial(_raw, by_old=True),
        ),
    ),
)


# ---- Flax's attention --------------------------------------------------------------------------------------------

Weights = tuple[Tensor, Tensor, Tensor]  # of qkv, (3D, D); its bias, (3D,); of the projection, (D, D)


def _flax_cases() -> list[Case]:
    cases = []
    for D, h in [(6, 2), (10, 5), (12, 3)]:
        d = D // h
        shapes = [(D, h, d)] * 3 + [(h, d)] * 3 + [(h, d, D)]
        cases.append(Case(f"D={D}, h={h}, d={d}", tuple(normal(*s, seed=seed) for seed, s in enumerate(shapes))))
    return cases


def _flax(
    turn: Callable[[Tensor], Tensor] = lambda kernel: kernel.flatten(1).T,
    out: Callable[[Tensor], Tensor] = lambda kernel: kernel.flatten(0, 1).T,
) -> Callable[..., Weights]:
    """The conversion with other ways to turn kernels (D, h, d) and the projection's (h, d, D)."""

    def convert(*tensors: Tensor) -> Weights:
        kernels, biases = [turn(kernel) for kernel in tensors[:3]], [bias.flatten() for bias in tensors[3:6]]
        return torch.cat(kernels), torch.cat(biases), out(tensors[6])

    return convert


ATTENTION_FROM_FLAX = Exercise(
    name="attention_from_flax",
    lesson="09",
    points=4,
    right=_flax(),
    cases=_flax_cases,
    mistakes=(
        Mistake(
            name="a kernel that isn't turned",
            says="Laid flat, a kernel is (in, out), and torch keeps (out, in). Both are D × D, so no shape tells you: "
            "transpose after flattening the heads.",
            reread=_TURNED,
            wrong=_flax(turn=lambda kernel: kernel.flatten(1)),
        ),
        Mistake(
            name="a projection that isn't turned",
            says="Its kernel is (in, out) as well, with the heads as inputs: flatten them, then transpose.",
            reread=_TURNED,
            wrong=_flax(out=lambda kernel: kernel.flatten(0, 1)),
        ),
        Mistake(
            name="no kernel turned",
            says="Flax computes x @ kernel, torch x @ weight.T: transpose all four, after flattening the heads.",
            reread=_TURNED,
            wrong=_flax(turn=lambda kernel: kernel.flatten(1), out=lambda kernel: kernel.flatten(0, 1)),
        ),
        Mistake(
            name="heads in another order",
            says="The kernel is (D, h, d): flatten the last two axes as they are, so that head 0's d rows come first.",
            reread=_TURNED,
            wrong=_flax(turn=lambda kernel: kernel.mT.flatten(1).T),
        ),
    ),
)


# ---- The teacher -------------------------------------------------------------------------------------------------


def _dino(prefix: str, student: str, seed: int) -> dict[str, Any]:
    """A small checkpoint as DINO's training writes it, with misleading names within the backbone and beside it."""
    body = ("cls_token", "patch_embed.backbone.conv.weight", "blocks.0.norm1.weight", "blocks.0.head_norm.weight",
            "blocks.0.head.module.weight", "backbone.proj.weight", "module.scale", "head.bias")  # fmt: skip
    heads = ("head.mlp.0.weight", "head.last_layer.weight", "head.backbone.weight", "backbones.weight")

    def network(before: str, seed: int) -> State:
        names = [f"{before}backbone.{name}" for name in body] + [f"{before}{name}" for name in heads]
        return {name: normal(2, 3, seed=seed + i) for i, name in enumerate(names)}

    return {"student": network(student, seed), "teacher": network(prefix, seed + 20), "epoch": 300}


def _contents(submission: Any, case: Case) -> Observation:
    checkpoint = copy_arguments(case.args)[0]
    contents = submission(checkpoint)
    if not isinstance(contents, Mapping):
        raise Fault(f"returned {describe(contents)}, expected a dictionary of names and tensors")
    names = sorted(map(str, contents))
    observed = {"names": names, "tensors": [contents[name] for name in names]}
    return Observation(observed, changed_argument=changed_argument(case.args, [checkpoint]))


def _extract(who: str = "teacher") -> Callable[[Mapping[str, Any]], State]:
    def extract(checkpoint: Mapping[str, Any]) -> State:
        names = {name: name.removeprefix("module.") for name in checkpoint[who]}
        backbone = {name: bare for name, bare in names.items() if bare.startswith("backbone.")}
        return {bare.removeprefix("backbone."): checkpoint[who][name] for name, bare in backbone.items()}

    return extract


TEACHER = Exercise(
    name="teacher",
    lesson="09",
    points=2,
    right=_extract(),
    cases=lambda: [
        Case("teacher's names begin with 'backbone.'", (_dino("", "module.", 0),)),
        Case("teacher's names begin with 'module.backbone.'", (_dino("module.", "", 40),)),
    ],
    observe=_contents,
    mistakes=(
        Mistake(
            name="the student's weights",
            says="Both fit, and both give answers. The teacher is the student's moving average, and the one that DINO "
            "evaluates and publishes.",
            reread=_LIBRARIES,
            wrong=_extract(who="student"),
        ),
    ),
)


# ---- Pixels ------------------------------------------------------------------------------------------------------


def _prepare_cases() -> list[Case]:
    every = torch.arange(256 * 3).mul(7).remainder(256).to(torch.uint8)  # all bytes from 0 to 255
    uneven = (0.5, 0.4, 0.3), (0.25, 0.2, 0.02)
    return [
        Case("4 × 6 pixels", (every[:72].view(4, 6, 3), *uneven)),
        Case("5 × 3 pixels, ImageNet's mean", (every[100:145].view(5, 3, 3), *IMAGENET)),
        Case("16 × 16 pixels, all bytes from 0 to 255", (every.view(16, 16, 3), *IMAGENET)),
    ]


def _column(values: tuple[float, ...]) -> Tensor:
    return torch.tensor(values)[:, None, None]  # (C, 1, 1)


def _prepare(
    turn: Callable[[Tensor], Tensor] = lambda x: x.permute(2, 0, 1),
) -> Callable[..., Tensor]:
    return lambda pixels, mean, std: ((turn(pixels).float() / 255 - _column(mean)) / _column(std))[None]


PREPARE = Exercise(
    name="prepare",
    lesson="09",
    points=2,
    right=_prepare(),
    cases=_prepare_cases,
    mistakes=(
        Mistake(
            name="a reshape in place of a permute",
            says="reshape reads the numbers in memory order, red, green and blue of one pixel after another, so your "
            "colours are mixed. permute(2, 0, 1) brings the channels to the front.",
            reread=_PIXELS,
            wrong=_prepare(turn=lambda x: x.reshape(x.shape[2], *x.shape[:2])),
        ),
    ),
)


# ---- The challenge -----------------------------------------------------------------------------------------------


JOINED_HEADS = Exercise(
    name="joined_heads",
    lesson="09",
    points=2,
    right=lambda w, b, dist_w, dist_b: (torch.cat([w, dist_w], dim=1) / 2, (b + dist_b) / 2),
    cases=lambda: [
        Case(f"K={K}, D={D}", (normal(K, D, seed=1), normal(K, seed=2), normal(K, D, seed=3), normal(K, seed=4)))
        for K, D in [(3, 5), (7, 6)]
    ],
    mistakes=(
        Mistake(
            name="a sum in place of the mean",
            says="The teacher's answer is the mean of both heads: halve weights and biases.",
            reread=_LIBRARIES,
            wrong=lambda w, b, dist_w, dist_b: (torch.cat([w, dist_w], dim=1), b + dist_b),
        ),
        Mistake(
            name="biases that are not halved",
            says="The mean of two heads halves their biases as well.",
            reread=_LIBRARIES,
            wrong=lambda w, b, dist_w, dist_b: (torch.cat([w, dist_w], dim=1) / 2, b + dist_b),
        ),
    ),
)
