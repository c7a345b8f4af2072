"""Lesson 09: models of this package from a config and tensors; with another head, or for another image size."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from vit_tutorial.data import Preprocessing
from vit_tutorial.embeddings import ResizeRecipe, resize_position_embedding, sincos_position_embedding
from vit_tutorial.patches import Size
from vit_tutorial.variants.modern import ModernConfig, build
from vit_tutorial.vit import ViT, ViTConfig

COUNTER = "num_batches_tracked"  # a batch norm counts its training steps; nothing reads it, so files go without
Model = TypeVar("Model", bound=nn.Module)


class LoadedModel(NamedTuple):
    """What :func:`vit_tutorial.load` returns."""

    model: ViT  # in evaluation mode, on the CPU; a :class:`KnowsPreprocessing`
    classes: tuple[str, ...]  # the names of the head's rows; () where it names none
    preprocess: Preprocessing  # pictures -> what the model takes


@runtime_checkable
class KnowsPreprocessing(Protocol):
    """A model that :func:`vit_tutorial.load` returned: training it on other pixels is an error, unless this is None."""

    preprocess: Preprocessing | None


def numbered_classes(count: int) -> tuple[str, ...]:
    """Names for the rows of a head that names none."""
    return tuple(f"class {k}" for k in range(count))


def check_fits(preprocess: Preprocessing, config: ViTConfig) -> None:
    """Raise a ValueError if pictures prepared so aren't what the model takes: size, channels."""
    if not isinstance(preprocess, Preprocessing):
        raise TypeError(f"preprocess must be a Preprocessing, got {type(preprocess).__name__}")
    if preprocess.image_size != config.image_size:
        raise ValueError(
            f"preprocess makes {preprocess.image_size} pixels, and the model takes {config.image_size}: "
            "vt.load(…, image_size=) sets both"
        )
    if not len(preprocess.mean) == len(preprocess.std) == config.in_channels:
        raise ValueError(f"mean and std must have a number for each of {config.in_channels} channels: {preprocess}")


# -------------------------------------------------------------------------------------------- from a config and tensors


def model_from(config: ViTConfig, state: Mapping[str, Tensor]) -> ViT:
    """The model of a config with these tensors: see :func:`with_tensors`."""
    return with_tensors(lambda: build(config), state)


def with_tensors(make: Callable[[], Model], state: Mapping[str, Tensor]) -> Model:
    """The model that ``make`` builds, with these very tensors as its parameters, in evaluation mode.

    Nothing is copied, but for tensors of another precision than float32, and nothing initialised.

    Raises:
        ValueError: names that are missing or too many, or other shapes; a number that isn't finite: which.
    """
    with without_numbers():
        model = make()
    tensors = {name: tensor.detach().float() for name, tensor in state.items()}
    tensors |= {name: torch.tensor(0) for name in model.state_dict() if name.endswith(COUNTER)}
    infinite = [name for name, tensor in tensors.items() if not tensor.isfinite().all()]
    if infinite:
        raise ValueError(f"tensors with numbers that aren't finite: {', '.join(infinite[:5])}")
    try:
        model.load_state_dict(tensors, assign=True)
    except RuntimeError as error:  # torch names the tensors that are missing, too many, or of another shape
        raise ValueError(" ".join(str(error).split())[:1000]) from error
    return model.eval()


class _WithoutNormal(TorchFunctionMode):
    """Leaves out normal_, for which torch's compiler would be loaded on the meta device: that takes a second."""

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        keywords = kwargs or {}
        if func in (nn.init.normal_, Tensor.normal_):
            return keywords["tensor"] if "tensor" in keywords else args[0]
        return func(*args, **keywords)


@contextmanager
def without_numbers() -> Iterator[None]:
    """What is built inside has shapes, and no numbers: it takes no memory, and hardly any time."""
    with torch.device("meta"), _WithoutNormal():
        yield


# ------------------------------------------------------------------------------------------------ another head or size


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
