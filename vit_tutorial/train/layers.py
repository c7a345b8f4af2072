"""Lesson 10: which parts of a trained model change, and how fast: the head alone or first, or layer by layer."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from vit_tutorial.data import Data
from vit_tutorial.options.recipe import Recipe
from vit_tutorial.weights import KnowsPreprocessing
from vit_tutorial.weights.checkpoint import WRAPPED

Group = dict[str, Any]  # of an optimizer: its parameters and its settings


def check_classes(model: nn.Module, data: Data) -> None:
    """Raise a ValueError if the head has another number of classes than the data."""
    head, theirs = getattr(model, "head", None), len(data.classes)
    ours = 0 if isinstance(head, nn.Identity) else getattr(head, "out_features", theirs)
    if ours != theirs:
        raise ValueError(
            f"the model has {ours} classes, and {data.name} has {theirs}: load it with num_classes={theirs}"
        )


def check_preprocess(model: nn.Module, data: Data) -> None:
    """Raise a ValueError if a model that ``vt.load`` read would get other pixels than it was trained on.

    ``model.preprocess`` is what it was trained on; models made here have none, and take any.
    """
    if not isinstance(model, KnowsPreprocessing) or model.preprocess is None:
        return
    trained = model.preprocess
    same_levels = len(trained.mean) == len(data.mean) and np.allclose(
        [*trained.mean, *trained.std], [*data.mean, *data.std], rtol=0, atol=1e-3
    )
    # Of a data set in memory nobody knows how its pictures were cropped.
    same_crop = data.preprocess is None or data.preprocess.crops_like(trained)
    if same_levels and same_crop:
        return
    raise ValueError(
        f"the pixels of {data.name} aren't those that the model was trained on: mean {_short(data.mean)} and standard "
        f"deviation {_short(data.std)}, not {_short(trained.mean)} and {_short(trained.std)}, or cropped in another "
        "way. Read a folder with image_folder(path, preprocess=...), the preprocess that vt.load returns; if the other "
        "pixels are intended, set model.preprocess = None"
    )


def _short(values: tuple[float, ...]) -> str:
    return ", ".join(f"{value:.3g}" for value in values)


@dataclass(frozen=True)
class LayerRate:
    """How fast a group of the optimizer learns.

    Args:
        factor: of the learning rate.
        first_epoch: before it, the group doesn't change.
    """

    factor: float = 1.0
    first_epoch: int = 0


def layer_groups(model: nn.Module, groups: list[Group], recipe: Recipe) -> tuple[list[Group], list[LayerRate]]:
    """The optimizer's groups, split by layer where the recipe treats layers differently, and the rate of each.

    Args:
        model: whose parameters they hold.
        groups: as :func:`vit_tutorial.train.parameter_groups` makes them: "params" and "weight_decay".
        recipe: with ``layer_decay`` each layer has its own rate; with ``freeze`` only the head stays; with
            ``head_first`` all others begin later.

    Raises:
        ValueError: a model without a head, or without blocks for ``layer_decay``.
    """
    if not (recipe.freeze or recipe.head_first or recipe.layer_decay < 1):
        return groups, [LayerRate() for _ in groups]
    _check_layers(model, recipe)
    depth = len(getattr(model, "blocks", ()))
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    head_layer = depth + 2
    by_layer: dict[tuple[int, float], list[nn.Parameter]] = {}
    for group in groups:
        for parameter in group["params"]:
            layer = layer_of(names[id(parameter)], depth)
            if layer == head_layer or not recipe.freeze:
                by_layer.setdefault((layer, group["weight_decay"]), []).append(parameter)
    rates = [  # the exponent counts from the last norm down, where it is 0; the head above has no smaller one
        LayerRate(recipe.layer_decay ** max(depth + 1 - layer, 0), 0 if layer == head_layer else recipe.head_first)
        for layer, _ in by_layer
    ]
    return [{"params": parameters, "weight_decay": decay} for (_, decay), parameters in by_layer.items()], rates


def _check_layers(model: nn.Module, recipe: Recipe) -> None:
    """Raise a ValueError if the recipe needs a part that the model lacks."""
    if wrapped := [name for name in WRAPPED if name in model._modules]:
        raise ValueError(
            f"freeze, head_first and layer_decay need the model itself, model.{wrapped[0]}: compile=True compiles it"
        )
    if not any(name.startswith("head.") for name, _ in model.named_parameters()):
        raise ValueError("freeze, head_first and layer_decay need a model with a head: vt.load(..., num_classes=K)")
    if recipe.layer_decay < 1 and not getattr(model, "blocks", ()):
        raise ValueError(f"layer_decay={recipe.layer_decay} needs a model with blocks, got {type(model).__name__}")


def layer_of(name: str, depth: int) -> int:
    """The layer of a parameter by its name: 0 embedding, 1 to ``depth`` the blocks, then the norm, then the head."""
    if name.startswith("head."):
        return depth + 2
    if block := re.match(r"blocks\.(\d+)\.", name):
        return int(block[1]) + 1
    return 0 if name.startswith("embed.") else depth + 1


def set_layer_factors(optimizer: torch.optim.Optimizer, rates: list[LayerRate], epoch: int) -> None:
    """Set each group's "factor" of the learning rate in an epoch, which :func:`vit_tutorial.train.set_rate` reads."""
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["factor"] = rate.factor if epoch >= rate.first_epoch else 0.0


@contextmanager
def activation_checkpointing(model: nn.Module) -> Iterator[None]:
    """Inside, the backward pass computes each block again: its activations aren't kept.

    Raises:
        ValueError: a model without blocks.
    """
    blocks = list(getattr(model, "blocks", ()))
    if not blocks:
        raise ValueError(f"recompute needs a model with blocks, got {type(model).__name__}")
    own = [vars(block).get("forward") for block in blocks]
    for block in blocks:
        block.forward = partial(checkpoint, block.forward, use_reentrant=False)
    try:
        yield
    finally:
        for block, forward in zip(blocks, own, strict=True):
            del block.forward  # the class's own is used again
            if forward is not None:
                block.forward = forward


@contextmanager
def frozen_body(model: nn.Module) -> Iterator[None]:
    """Inside, nothing but the head has gradients."""
    body = [p for name, p in model.named_parameters() if p.requires_grad and not name.startswith("head.")]
    for parameter in body:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in body:
            parameter.requires_grad_(True)
