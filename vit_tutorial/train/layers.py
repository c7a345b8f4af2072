"""Lesson 10: which parts of a trained model change, and how fast: the head alone or first, layer by layer, or LoRA."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import register_parametrization, remove_parametrizations

from vit_tutorial.data import Data, Preprocessing
from vit_tutorial.data.recipe import Recipe
from vit_tutorial.train.runs import seeded

Group = dict[str, Any]  # of an optimizer: its parameters and its settings


def check_classes(model: nn.Module, data: Data) -> None:
    """Raise a ValueError if the head has another number of classes than the data."""
    given, wanted = getattr(getattr(model, "config", None), "num_classes", 0), len(data.classes)
    if given and given != wanted:
        raise ValueError(
            f"the model has {given} classes, and {data.name} has {wanted}: load it with num_classes={wanted}"
        )


def check_pixels(model: nn.Module, data: Data) -> None:
    """Raise a ValueError if a model that ``vt.load`` read would get other pixels than it was trained on.

    ``model.preprocess`` is what it was trained on; models made here have none, and take what they are given.
    """
    wanted = getattr(model, "preprocess", None)
    if not isinstance(wanted, Preprocessing):
        return
    same_levels = len(wanted.mean) == len(data.mean) and np.allclose(
        [*wanted.mean, *wanted.std], [*data.mean, *data.std], rtol=0, atol=1e-3
    )
    if data.preprocess is None:
        same_way = True  # a data set in memory: nobody knows how its pictures were cropped
    else:
        told = wanted, data.preprocess
        ways = [(how.crop, how.interpolation, how.squash, how.corner, how.left_over) for how in told]
        same_way = ways[0] == ways[1]
    if same_levels and same_way:
        return
    raise ValueError(
        f"the pixels of {data.name} aren't those that the model was trained on: mean {_short(data.mean)} and standard "
        f"deviation {_short(data.std)}, not {_short(wanted.mean)} and {_short(wanted.std)}, or cropped in another way. "
        "Read a folder with image_folder(path, preprocess=...), the preprocess that vt.load returns; if the other "
        "pixels are intended, set model.preprocess = None"
    )


def _short(values: tuple[float, ...]) -> str:
    return ", ".join(f"{value:.3g}" for value in values)


def groups_of(model: nn.Module, groups: list[Group], recipe: Recipe) -> list[Group]:
    """The optimizer's groups, with what :func:`share_rates` needs: "share", "scale" and "head".

    Without ``freeze``, ``head_first`` and ``layer_decay`` they are returned as they are.

    Args:
        model: whose parameters they hold.
        groups: as :func:`vit_tutorial.train.parameter_groups` makes them: "params" and "weight_decay".
        recipe: with ``layer_decay`` each layer has its own rate; with ``freeze`` only the head stays.

    Raises:
        ValueError: a model without a head, or without blocks for ``layer_decay``.
    """
    if not (recipe.freeze or recipe.head_first or recipe.layer_decay < 1):
        return groups
    if not any(name.startswith("head.") for name, _ in model.named_parameters()):
        raise ValueError("freeze, head_first and layer_decay need a model with a head: vt.load(..., num_classes=K)")
    depth = len(getattr(model, "blocks", ()))
    if recipe.layer_decay < 1 and not depth:
        raise ValueError(f"layer_decay={recipe.layer_decay} needs a model with blocks, got {type(model).__name__}")
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    made: dict[tuple[int, float], Group] = {}
    for group in groups:
        for parameter in group["params"]:
            layer = layer_of(names[id(parameter)], depth)
            if recipe.freeze and layer != depth + 2:
                continue
            new = made.setdefault((layer, group["weight_decay"]), {"params": [], "weight_decay": group["weight_decay"]})
            new["params"].append(parameter)
            new["head"] = layer == depth + 2
            new["scale"] = new["share"] = recipe.layer_decay ** max(depth + 1 - layer, 0)
    return list(made.values())


def layer_of(name: str, depth: int) -> int:
    """The layer of a parameter by its name: 0 embedding, 1 to ``depth`` the blocks, then the norm, then the head."""
    if name.startswith("head."):
        return depth + 2
    if found := re.match(r"blocks\.(\d+)\.", name):
        return int(found[1]) + 1
    return 0 if name.startswith("embed.") else depth + 1


def share_rates(optimizer: torch.optim.Optimizer, epoch: int, recipe: Recipe) -> None:
    """Set each group's share of the learning rate; in the first ``head_first`` epochs it is 0 for all but the head."""
    for group in optimizer.param_groups:
        if "scale" in group:
            group["share"] = group["scale"] if group["head"] or epoch >= recipe.head_first else 0.0


class LowRank(nn.Module):
    """W + U V for a matrix W (out, in), with U (out, r) and V (r, in); U starts at zero, so W starts as it was."""

    def __init__(self, weight: Tensor, rank: int) -> None:
        super().__init__()
        rows, columns = weight.shape
        V = torch.empty(rank, columns)
        nn.init.kaiming_uniform_(V, a=math.sqrt(5))
        self.U = nn.Parameter(weight.new_zeros(rows, rank))
        self.V = nn.Parameter(V.to(weight))

    def forward(self, weight: Tensor) -> Tensor:
        return weight + self.U @ self.V  # (out, in)


@contextmanager
def with_lora(model: nn.Module, rank: int, seed: int = 0) -> Iterator[None]:
    """Inside, only the head and a :class:`LowRank` beside each matrix of attention learn; afterwards these are merged.

    Args:
        model: with a head, and blocks as those of :class:`vit_tutorial.ViT`.
        rank: r; 0 changes nothing.
        seed: of V, which has to be the same in every process.

    Raises:
        ValueError: a model without a head or without blocks, or a rank that its matrices don't have.
    """
    if not rank:
        yield
        return
    linears = [layer for block in getattr(model, "blocks", ()) for layer in (block.attention.qkv, block.attention.proj)]
    if not linears or not any(name.startswith("head.") for name, _ in model.named_parameters()):
        raise ValueError("lora needs a ViT with a head: vt.load(..., num_classes=K)")
    if rank >= (most := min(min(linear.weight.shape) for linear in linears)):
        raise ValueError(f"lora must be below the matrices' own rank, {most}, got {rank}: 4 is a good start")
    held = [p for name, p in model.named_parameters() if p.requires_grad and not name.startswith("head.")]
    for parameter in held:
        parameter.requires_grad_(False)
    with seeded(seed, rank):
        for linear in linears:
            register_parametrization(linear, "weight", LowRank(linear.weight, rank))
    try:
        yield
    finally:
        for linear in linears:
            remove_parametrizations(linear, "weight", leave_parametrized=True)
        for parameter in held:
            parameter.requires_grad_(True)


@contextmanager
def frozen(model: nn.Module, freeze: bool) -> Iterator[None]:
    """Inside, nothing but the head changes if ``freeze``: no gradients, and ``train()`` leaves evaluation on.

    Otherwise the batch norms of a stem would go on to measure the images, and drop path would disturb the features.
    """
    held = [p for name, p in model.named_parameters() if freeze and p.requires_grad and not name.startswith("head.")]
    parts = [part for name, part in model.named_children() if freeze and name != "head"]
    for parameter in held:
        parameter.requires_grad_(False)
    for part in parts:
        vars(part.eval())["train"] = lambda mode=True, part=part: part
    try:
        yield
    finally:
        for parameter in held:
            parameter.requires_grad_(True)
        for part in parts:
            del vars(part)["train"]
