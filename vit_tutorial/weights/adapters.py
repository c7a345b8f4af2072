"""Lesson 09: the facts that no tensor shows, read off a library's live model: timm's, torchvision's, transformers'.

Each adapter returns a :class:`Twin`; :mod:`.convert` makes our model of it, and :mod:`.proof` compares the two. So an
adapter may be short: what it misreads is refused there.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, silu

from vit_tutorial.embeddings import ResizeRecipe
from vit_tutorial.variants.modern import QuickGELU, Rotary
from vit_tutorial.weights import tables
from vit_tutorial.weights.tables import State, Table

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "exact": gelu,
    "tanh": lambda x: gelu(x, approximate="tanh"),
    "quick": QuickGELU(),
    "gated": silu,
}
NEEDED = ("blocks.0.norm1.weight", "blocks.0.mlp.fc1.weight", "blocks.0.mlp.fc2.weight")
HEADS = ("num_heads", "num_attention_heads")  # what the libraries call them
EPSILON = ("eps", "variance_epsilon")


@dataclass(frozen=True)
class Twin:
    """A library's live model, in evaluation mode and float32, and what is known of it."""

    model: nn.Module
    table: Table
    tensors: State  # under the table's names
    tower: nn.Module  # the part of the model that the table's names belong to
    answer: Callable[[Tensor], Tensor]  # what ours is to equal: inputs (B, …) -> (B, K)
    facts: Mapping[str, Any]  # fields of the config that no tensor shows
    neighbours: bool = False  # rotary pairs are (2 i, 2 i + 1), and not (i, i + d / 2) as ours
    columns_first: bool = False  # rotary pairs of the columns stand before those of the rows
    left_over: tuple[int, int] = (0, 0)  # rows and columns of the image that its patches leave out
    recipe: ResizeRecipe = "timm"  # how it resizes learned positions
    any_size: bool = False  # whether it takes images of other sizes than its own, and resizes positions itself
    theirs: Mapping[str, list[str]] = field(default_factory=dict)  # our names -> theirs

    @property
    def blocks(self) -> list[nn.Module]:
        """Its blocks, which stand where the first norm's names say."""
        norms = [names[0] for our, names in self.theirs.items() if our.endswith("norm1.weight")]
        return [self.tower.get_submodule(name.rsplit(".", 2)[0]) for name in norms]

    @property
    def heads(self) -> list[nn.Module]:
        """The layers that answer: one, two (DeiT's), or none."""
        names = self.theirs.get("head.weight", [])
        return [(self.model if _has(self.model, name) else self.tower).get_submodule(name[:-7]) for name in names]


def _has(module: nn.Module, name: str) -> bool:
    return name in dict(module.named_parameters())


def twin_of(
    model: nn.Module,
    table: Table,
    answer: Callable[[Tensor], Tensor],
    *,
    tower: nn.Module | None = None,
    facts: Mapping[str, Any],
    **more: Any,
) -> Twin:
    """The twin with the facts that are read alike in all libraries: heads, epsilon, activation."""
    tower = tower or model
    prefix = next(name for name, module in model.named_modules() if module is tower)
    start = f"{prefix}." if prefix else ""
    tensors = {name.removeprefix(start): tensor for name, tensor in model.state_dict().items()}
    found = tables.read(table, tensors)
    if lacking := [our for our in NEEDED if our not in found.ours]:
        raise ValueError(f"{type(model).__name__} has nothing that our tables know as {lacking[0]}")
    norm = tower.get_submodule(found.theirs["blocks.0.norm1.weight"][0].removesuffix(".weight"))
    twin = Twin(model, table, tensors, tower, answer, {}, theirs=found.theirs, **more)
    read = {"num_heads": _attribute(twin.blocks[0], HEADS), "norm_eps": _attribute(norm, EPSILON)}
    return Twin(**{**vars(twin), "facts": {**read, **_activation(twin.blocks[0]), **facts}})


def _attribute(module: nn.Module, names: tuple[str, ...]) -> Any:
    """The first attribute of these names in the module or one of its parts."""
    for part in module.modules():
        for name in names:
            if isinstance(getattr(part, name, None), (int, float)):
                return getattr(part, name)
    raise ValueError(f"{type(module).__name__} has no attribute {' or '.join(names)}")


def _activation(block: nn.Module) -> dict[str, Any]:
    """Which activation function the block has, by what it computes."""
    x = torch.linspace(-4, 4, 101)
    for part in block.modules():
        if not list(part.parameters()) and not list(part.children()):
            for name, function in ACTIVATIONS.items():
                try:
                    alike = torch.allclose(part(x), function(x), rtol=1e-6, atol=1e-6)
                except (TypeError, RuntimeError):  # a part that takes something else
                    break
                if alike:
                    return {"gated": True} if name == "gated" else {"gelu": name}
    raise ValueError(f"{type(block).__name__} has none of the activation functions {', '.join(ACTIVATIONS)}")


# ---------------------------------------------------------------------------------------------------------------- timm

TIMM_POOLS = {"token": "cls", "avg": "mean", "map": "attention"}


def from_timm(model: nn.Module) -> Twin:
    """One of timm's models: its classes ``VisionTransformer``, ``Eva``, ``Beit``, or any with their names.

    Raises:
        ValueError: no Vision Transformer, or one with parts that :class:`.ModernConfig` doesn't have.
    """
    embed: Any = getattr(model, "patch_embed", None)
    pool = getattr(model, "global_pool", None)
    if not hasattr(embed, "img_size") or pool not in TIMM_POOLS:
        raise ValueError(f"timm's {type(model).__name__} isn't a Vision Transformer that pools by {list(TIMM_POOLS)}")
    left_over = _left_over(embed.img_size, embed.patch_size)
    facts: dict[str, Any] = {"image_size": _without(embed.img_size, left_over), "pool": TIMM_POOLS[pool]}
    if hasattr(model, "dist_token"):
        facts["pool"] = "distilled"
    attention_pool: Any = getattr(model, "attn_pool", None)
    if attention_pool is not None:
        facts["pool_heads"] = attention_pool.num_heads
    if pool != "token" and hasattr(model, "pool_include_prefix"):
        facts["pool_prefix"] = model.pool_include_prefix
    elif pool == "map":  # its class Eva pools all tokens
        facts["pool_prefix"] = True
    rope: Any = getattr(model, "rope", None)
    if rope is not None:
        facts["rotary"] = _timm_rotary(rope)
    return twin_of(
        model, tables.TIMM_MODERN, model, facts=facts,
        neighbours=rope is not None and not rope.rotate_half,
        columns_first=rope is not None and rope.grid_indexing == "xy",
        left_over=left_over,
    )  # fmt: skip


def _timm_rotary(rope: Any) -> Rotary:
    if getattr(rope, "temperature", None) is None or not hasattr(rope, "grid_offset"):
        raise ValueError(f"timm's {type(rope).__name__} has positions of another kind than modern.Rotary")
    if hasattr(rope, "ref_feat_shape"):
        reference = None if rope.ref_feat_shape is None else tuple(rope.ref_feat_shape)
        return Rotary("index", rope.temperature, reference, rope.grid_offset)
    return Rotary("centred", rope.temperature)


def _left_over(image_size: Any, patch_size: Any) -> tuple[int, int]:
    (H, W), (P, Q) = _pair(image_size), _pair(patch_size)
    return H % P, W % Q


def _without(size: Any, left_over: tuple[int, int]) -> tuple[int, int]:
    (H, W), (rows, columns) = _pair(size), left_over
    return H - rows, W - columns


def _pair(size: Any) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else (size[0], size[1])


# --------------------------------------------------------------------------------------------------------- torchvision


def from_torchvision(model: nn.Module) -> Twin:
    """One of torchvision's ``VisionTransformer``."""
    sizes: Any = model
    if not hasattr(model, "conv_proj"):
        raise ValueError(f"torchvision's {type(model).__name__} isn't a Vision Transformer")
    facts = {"image_size": sizes.image_size, "pool": "cls"}
    return twin_of(model, tables.TORCHVISION, model, facts=facts, recipe="torchvision")


# -------------------------------------------------------------------------------------------------------- transformers

HUGGING_FACE_TABLES = {  # by a name that only one of them has
    "encoder.layer.0.norm1.weight": tables.HUGGING_FACE_DINO,
    "model.layer.0.norm1.weight": tables.HUGGING_FACE_DINO_3,
    "encoder.layers.0.layer_norm1.weight": tables.HUGGING_FACE_CLIP,
}


def from_transformers(model: nn.Module) -> Twin:
    """One of transformers' models, or the image tower of one: the model of ViT, DeiT, BEiT, DINO, CLIP, SigLIP, …

    Raises:
        ValueError: no Vision Transformer by any name of our tables.
    """
    tower = image_tower(model)
    names = tower.state_dict().keys()
    table = next((table for name, table in HUGGING_FACE_TABLES.items() if name in names), tables.HUGGING_FACE)
    config: Any = tower.config
    left_over = _left_over(config.image_size, config.patch_size)
    facts: dict[str, Any] = {"image_size": _without(config.image_size, left_over)}
    if table is tables.HUGGING_FACE_CLIP and hasattr(model, "classifier"):  # which reads the mean of all patches
        unread = ("pool", "norm") if hasattr(tower.embeddings, "class_embedding") else ("pool",)
        table = {our: their for our, their in table.items() if not our.startswith(unread)}
        facts["pool"] = "mean"
    rope: Any = getattr(tower, "rope_embeddings", None)
    if rope is not None:
        facts["rotary"] = Rotary("centred", rope.base)

    def answer(images: Tensor) -> Tensor:
        return _answer(model, tower, images)

    recipe: ResizeRecipe = "timm" if "register_tokens" in str(names) else "huggingface"
    return twin_of(model, table, answer, tower=tower, facts=facts, left_over=left_over, recipe=recipe, any_size=True)


def image_tower(model: nn.Module) -> nn.Module:
    """The part of one of transformers' models that sees the image, without what answers."""
    named = dict(model.named_modules())
    towers = [module for name, module in named.items() if name.rpartition(".")[2] == "vision_model"]
    found: Any = towers[-1] if towers else getattr(model, "base_model", model)
    return found if hasattr(found, "embeddings") else model


def _answer(model: Any, tower: Any, images: Tensor) -> Tensor:
    """Its logits, its place in a space of images and texts, or without either what a head would read."""
    if hasattr(model, "get_image_features"):
        found: Any = model.get_image_features(images, **_other_size(model.get_image_features, tower, images))
        return found if isinstance(found, Tensor) else found.pooler_output
    answers = any(name.endswith(("classifier.weight", "visual_projection.weight")) for name in model.state_dict())
    asked = model if answers else tower
    found = asked(images, **_other_size(asked.forward, tower, images))
    for name in ("logits", "image_embeds"):
        if answers and name in found:
            return found[name]
    tokens = found.last_hidden_state  # (B, T, D)
    learned = hasattr(getattr(tower, "pooler", None), "dense")  # a layer for a task of its pretraining
    if getattr(found, "pooler_output", None) is not None and not learned:
        return found.pooler_output
    if hasattr(tower.embeddings, "distillation_token"):
        return tokens[:, :2].flatten(1)
    return tokens[:, 0] if hasattr(tower.embeddings, "cls_token") else tokens.mean(dim=1)


def _other_size(call: Callable[..., Any], tower: Any, images: Tensor) -> dict[str, bool]:
    """The switch that some of transformers' models need for images of another size than the config's."""
    resized = tuple(images.shape[-2:]) != _pair(tower.config.image_size)
    known = "interpolate_pos_encoding" in inspect.signature(call).parameters
    return {"interpolate_pos_encoding": True} if resized and known else {}
