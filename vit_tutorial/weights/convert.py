"""Lesson 09: our model of a library's own.

Three things make it: the tensors under our names, by the library's table; the facts that their shapes show; and the
facts that no shape shows, read off the library's model. :mod:`.proof` decides whether that was right.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, silu

from vit_tutorial.data import Preprocessing
from vit_tutorial.embeddings import ResizeRecipe
from vit_tutorial.variants.modern import ModernConfig, QuickGELU
from vit_tutorial.vit import ViT, ViTConfig
from vit_tutorial.weights import tables
from vit_tutorial.weights.our_models import class_tokens, model_from
from vit_tutorial.weights.tables import State, Table

IN_EVERY_VIT = ("blocks.0.norm1.weight", "blocks.0.mlp.fc1.weight", "blocks.0.mlp.fc2.weight")
SWITCHES = {  # a field of ModernConfig: the tensor that shows it
    "pre_norm": "embed.norm.weight",
    "qk_norm": "blocks.0.attention.q_norm.weight",
    "attention_norm": "blocks.0.attention.norm.weight",
    "position_bias": "blocks.0.attention.position_bias",
    "mlp_norm": "blocks.0.mlp.norm.weight",
    "final_norm": "norm.weight",
    "pool_norm": "pool_norm.weight",
}
NUM_HEADS = ("num_heads", "num_attention_heads")  # what the libraries call them
EPSILON = ("eps", "variance_epsilon")
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "exact": gelu,
    "tanh": lambda x: gelu(x, approximate="tanh"),
    "quick": QuickGELU(),
    "gated": silu,
}


@dataclass(frozen=True)
class PublishedModel:
    """What is known of a model that another library has built: the facts from which ours is made.

    Raises:
        ValueError: no Vision Transformer, by the names of the table.
    """

    original: nn.Module  # the library's own model, in evaluation mode and float32
    tower: nn.Module  # the part of it that the table's names belong to
    table: Table
    tensors: State  # the model's, under the table's names
    forward: Callable[[Tensor], Tensor]  # what ours is to equal: inputs (B, …) -> (B, K)
    facts: Mapping[str, Any]  # fields of our config that neither a shape nor a block shows
    interleaved_rope: bool = False  # rotary pairs are (2 i, 2 i + 1), and not (i, i + d / 2) as ours
    rope_columns_first: bool = False  # rotary pairs of the columns stand before those of the rows
    cropped_edge: tuple[int, int] = (0, 0)  # rows and columns of the image that its patches leave out
    recipe: ResizeRecipe = "timm"  # how it resizes learned positions
    resizes_positions: bool = False  # whether it takes images of other sizes than its own, and resizes positions itself

    def __post_init__(self) -> None:
        for our in IN_EVERY_VIT:
            if our not in self.names:
                raise ValueError(f"{type(self.original).__name__} has nothing that our tables know as {our}")

    @cached_property
    def names(self) -> dict[str, list[str]]:
        """Our names, and theirs for each."""
        return {row.our: row.theirs for row in tables.rows_of(self.table, self.tensors)}

    @property
    def blocks(self) -> list[nn.Module]:
        """Its blocks, which stand where the first norm's names say."""
        norms = [names[0] for our, names in self.names.items() if our.endswith("norm1.weight")]
        return [self.tower.get_submodule(name.rsplit(".", 2)[0]) for name in norms]

    @property
    def heads(self) -> list[nn.Module]:
        """The layers that answer: one, two (DeiT's), or none."""
        layers = [name.removesuffix(".weight") for name in self.names.get("head.weight", [])]
        modules = dict(self.original.named_modules()) | dict(self.tower.named_modules())  # names of the tower go first
        return [modules[name] for name in layers]


class Publication(NamedTuple):
    """All that is published with a model: the model, its preprocessing and the names of its classes."""

    model: PublishedModel
    preprocess: Preprocessing
    classes: tuple[str, ...]


def tensors_of(original: nn.Module, tower: nn.Module) -> State:
    """The model's tensors, the names of those in the tower without the tower's own."""
    name = next(name for name, module in original.named_modules() if module is tower)
    prefix = f"{name}." if name else ""
    return {name.removeprefix(prefix): tensor for name, tensor in original.state_dict().items()}


# ----------------------------------------------------------------------------------------------------------- our model


def model_of(published: PublishedModel) -> ViT:
    """Our model with the published tensors, in evaluation mode; what needn't be joined or turned is shared with it.

    Raises:
        ValueError: parts that the configs can't express, or tensors that aren't there.
    """
    ours = tables.to_ours(published.table, published.tensors)
    ours = {our: tensor for our, tensor in ours.items() if tensor.numel()}  # DINOv3 may have a tensor of no registers
    config = config_of({**shape_facts(ours), **block_facts(published), **published.facts})
    ours = _with_whole_head(ours, config)
    ours = _with_positions(ours, config)
    ours = move_rotary_pairs(ours, config.num_heads, published)
    return model_from(config, ours)


def shape_facts(ours: State) -> dict[str, Any]:
    """The fields of a config that names and shapes show."""
    patches = ours.get("embed.patches.proj.weight")
    if patches is None or patches.ndim != 4:
        raise ValueError("the patches aren't made by one convolution: a part that ModernConfig can't express")
    D, C, P, Q = patches.shape
    hidden, rows = ours["blocks.0.mlp.fc2.weight"].shape[1], len(ours["blocks.0.mlp.fc1.weight"])
    no_k_bias = "blocks.0.attention.qv_bias" in ours
    return {field: name in ours for field, name in SWITCHES.items()} | {
        "patch_size": (P, Q),
        "in_channels": C,
        "num_classes": len(ours["head.weight"]) if "head.weight" in ours else 0,
        "dim": D,
        "depth": len({our.split(".")[1] for our in ours if our.startswith("blocks.")}),
        "mlp_dim": hidden,
        "gated": rows == 2 * hidden,
        "qkv_bias": no_k_bias or "blocks.0.attention.qkv.bias" in ours,
        "k_bias": not no_k_bias,
        "position": "learned" if "embed.position" in ours else "none",
        "class_tokens": ours["embed.cls_token"].shape[1] if "embed.cls_token" in ours else 0,
        "registers": ours["embed.registers"].shape[1] if "embed.registers" in ours else 0,
        "norm": "layer" if "blocks.0.norm1.bias" in ours else "rms",
        "layer_scale": 1e-5 if "blocks.0.scale1.gamma" in ours else None,
        "pool": _pooling(ours, D),
    }


def _pooling(ours: State, D: int) -> str:
    """What the head reads, as tensors show it."""
    if "pool.probe" in ours:
        return "attention"
    if "embed.cls_token" not in ours or "pool_norm.weight" in ours:
        return "mean"
    class_tokens = ours["embed.cls_token"].shape[1]
    if "head.weight" in ours and ours["head.weight"].shape[1] == (class_tokens + 1) * D:
        return "cls+mean"
    return "cls"


def block_facts(published: PublishedModel) -> dict[str, Any]:
    """What the first block shows, in all libraries alike: heads, epsilon, activation function."""
    block = published.blocks[0]
    norm = published.tower.get_submodule(published.names["blocks.0.norm1.weight"][0].removesuffix(".weight"))
    return {"num_heads": _attribute(block, NUM_HEADS), "norm_eps": _attribute(norm, EPSILON), **_activation(block)}


def _attribute(module: nn.Module, names: Sequence[str]) -> float:
    """The first number of these names in the module or one of its parts."""
    for part in module.modules():
        for name in names:
            if isinstance(value := getattr(part, name, None), (int, float)):
                return value
    raise ValueError(f"{type(module).__name__} has no attribute {' or '.join(names)}")


def _activation(block: nn.Module) -> dict[str, Any]:
    """Which activation function the block has, by what it computes."""
    x = torch.linspace(-4, 4, 101)
    for part in block.modules():
        if part.state_dict():  # a layer with numbers of its own
            continue
        for name, function in ACTIVATIONS.items():
            try:
                same = torch.allclose(part(x), function(x), rtol=1e-6, atol=1e-6)
            except (TypeError, RuntimeError):  # a part that takes something else
                break
            if same:
                return {"gated": True} if name == "gated" else {"gelu": name}
    raise ValueError(f"{type(block).__name__} has none of the activation functions {', '.join(ACTIVATIONS)}")


def config_of(facts: Mapping[str, Any]) -> ViTConfig:
    """The plain config if that is enough, else the modern one."""
    config = ModernConfig(**facts)
    if config.pool not in ("cls", "mean") or config.gelu == "quick":
        return config
    plain = {field.name: getattr(config, field.name) for field in fields(ViTConfig)}
    same = ModernConfig(**plain, class_tokens=int(config.pool == "cls"))  # the plain config's mean has no class token
    return ViTConfig(**plain) if config == same else config


def _with_whole_head(ours: State, config: ViTConfig) -> State:
    """Zeros for a bias that the head doesn't have, and for the second class token if it reads the first alone."""
    if "head.weight" not in ours:
        return ours
    weight = ours["head.weight"]  # (K, D) or (K, 2 D)
    bias = ours.get("head.bias", weight.new_zeros(len(weight)))  # (K,)
    if isinstance(config, ModernConfig) and config.class_tokens == 2 and weight.shape[1] == config.dim:
        weight = torch.cat([weight, torch.zeros_like(weight)], dim=1)  # (K, 2 D)
    return {**ours, "head.weight": weight, "head.bias": bias}


def _with_positions(ours: State, config: ViTConfig) -> State:
    """Positions as ours are: a row for each class token, zeros where they have none, and none for the registers."""
    position = ours.get("embed.position")
    if position is None:
        return ours
    first, N = class_tokens(config), config.grid[0] * config.grid[1]
    registers = config.prefix_tokens - first
    if registers and position.shape[1] == first + registers + N:
        ours = {**ours, "embed.registers": ours["embed.registers"] + position[:, first : first + registers]}
        position = torch.cat([position[:, :first], position[:, first + registers :]], dim=1)
    if first and position.shape[1] == N:
        position = torch.cat([position.new_zeros(1, first, position.shape[2]), position], dim=1)
    return {**ours, "embed.position": position}  # (1, first + N, D)


def move_rotary_pairs(ours: State, num_heads: int, published: PublishedModel, *, back: bool = False) -> State:
    """The published rotary pairs moved to where ours are: (i, i + d / 2), those of the rows first. ``back`` undoes it.

    Queries and keys move alike, so no score changes.
    """
    if not published.interleaved_rope and not published.rope_columns_first:
        return ours
    d = len(ours["blocks.0.norm1.weight"]) // num_heads
    pairs = torch.arange(d).view(d // 2, 2).mT if published.interleaved_rope else torch.arange(d).view(2, d // 2)
    if published.rope_columns_first:
        pairs = pairs.roll(-(d // 4), dims=1)
    order = pairs.flatten().argsort() if back else pairs.flatten()  # (d,), ours from theirs
    rows = torch.cat([order + d * head for head in range(num_heads)])  # (D,)
    result = dict(ours)
    for name, tensor in ours.items():
        if name.endswith(("attention.qkv.weight", "attention.qkv.bias")):
            q, k, v = tensor.chunk(3)
            result[name] = torch.cat([q[rows], k[rows], v])
        elif name.endswith("attention.qv_bias"):
            result[name] = torch.stack([tensor[0][rows], tensor[1]])
        elif name.endswith(("q_norm.weight", "q_norm.bias", "k_norm.weight", "k_norm.bias")):
            result[name] = tensor[order]
    return result
