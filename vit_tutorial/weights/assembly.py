"""Lesson 09: our models from a config and tensors: as they are, with another head, or for another image size."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from vit_tutorial.embeddings import ResizeRecipe, resize_position_embedding, sincos_position_embedding
from vit_tutorial.patches import Size
from vit_tutorial.variants.modern import ModernConfig, build
from vit_tutorial.vit import ViT, ViTConfig

COUNTER = "num_batches_tracked"  # a batch norm counts its training steps; nothing reads it, so files go without
Model = TypeVar("Model", bound=nn.Module)


def model_from(config: ViTConfig, state: Mapping[str, Tensor]) -> ViT:
    """The model of a config with these tensors: see :func:`assemble`."""
    return assemble(lambda: build(config), state)


def assemble(make: Callable[[], Model], state: Mapping[str, Tensor]) -> Model:
    """The model that ``make`` builds, with these very tensors as its parameters, in evaluation mode.

    Nothing is copied, but for tensors of another precision than float32, and nothing initialised.

    Raises:
        ValueError: names that are missing or too many, or other shapes; a number that isn't finite: which.
    """
    with without_numbers():
        model = make()
    shapes = {name: tensor.shape for name, tensor in model.state_dict().items() if not name.endswith(COUNTER)}
    floats = {name: tensor.detach().float() for name, tensor in state.items() if not name.endswith(COUNTER)}
    kind = type(model).__name__
    _refuse(shapes.keys() - floats.keys(), f"missing, which {kind} has")
    _refuse(floats.keys() - shapes.keys(), f"unexpected, which {kind} doesn't have")
    other = {f"{name} {tuple(floats[name].shape)}" for name in shapes if floats[name].shape != shapes[name]}
    _refuse(other, f"of another shape than {kind}'s")
    _refuse({name for name, tensor in floats.items() if not tensor.isfinite().all()}, "with numbers that aren't finite")
    counters = {name: torch.tensor(0) for name in model.state_dict() if name.endswith(COUNTER)}
    model.load_state_dict(floats | counters, assign=True)
    return model.eval()


def _refuse(names: set[str], what: str) -> None:
    """Raise a ValueError that names the first of these tensors, if there are any."""
    if names:
        more = f" and {len(names) - 5} more" if len(names) > 5 else ""
        raise ValueError(f"tensors {what}: {', '.join(sorted(names)[:5])}{more}")


class _WithoutNumbers(TorchFunctionMode):
    """Leaves out normal_, for which torch's compiler would be loaded: that takes seconds."""

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        keywords = kwargs or {}
        if func in (nn.init.normal_, Tensor.normal_):
            return keywords["tensor"] if "tensor" in keywords else args[0]
        return func(*args, **keywords)


@contextmanager
def without_numbers() -> Iterator[None]:
    """What is built inside has shapes, and no numbers: it takes no memory, and hardly any time."""
    with torch.device("meta"), _WithoutNumbers():
        yield


def with_head(model: ViT, num_classes: int) -> ViT:
    """The same model with a new head of zeros for so many classes; 0: with none."""
    config = replace(model.config, num_classes=num_classes)
    state = {name: tensor for name, tensor in model.state_dict().items() if not name.startswith("head.")}
    if num_classes:
        width = config.head_width if isinstance(config, ModernConfig) else config.dim
        state["head.weight"] = torch.zeros(num_classes, width)
        state["head.bias"] = torch.zeros(num_classes)
    return model_from(config, state)


def with_size(model: ViT, image_size: Size, recipe: ResizeRecipe = "timm") -> ViT:
    """The same model for images of another size.

    Learned positions are resized by :func:`resize_position_embedding`; sines are computed anew.

    Raises:
        ValueError: patches that don't divide the size; position biases (BEiT's), which are for one size.
    """
    old, config = model.config, replace(model.config, image_size=image_size)
    if config == old:
        return model
    state = dict(model.state_dict())
    if config.grid == old.grid:
        return model_from(config, state)
    if isinstance(config, ModernConfig) and config.position_bias:
        raise ValueError(f"position biases of {old.grid} patches aren't resized here: give image_size={old.image_size}")
    prefix = class_tokens(config)
    if config.position == "learned":
        state["embed.position"] = resize_position_embedding(
            state["embed.position"], old.grid, config.grid, prefix_tokens=prefix, recipe=recipe
        )
    elif config.position == "sincos":
        sines = sincos_position_embedding(config.grid, config.dim)  # (1, N, D)
        state["embed.position"] = torch.cat([torch.zeros(1, prefix, config.dim), sines], dim=1)
    return model_from(config, state)


def class_tokens(config: ViTConfig) -> int:
    """Tokens before the patches that have a row of positions: the class tokens, without registers."""
    return config.class_tokens if isinstance(config, ModernConfig) else config.prefix_tokens
