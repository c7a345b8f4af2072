"""Lesson 09: our model of a library's live one: its config, its tensors, another head, another image size."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from vit_tutorial.embeddings import ResizeRecipe, resize_position_embedding, sincos_position_embedding
from vit_tutorial.patches import Size, as_pair
from vit_tutorial.variants.modern import ModernConfig, build
from vit_tutorial.vit import ViT, ViTConfig
from vit_tutorial.weights import tables
from vit_tutorial.weights.adapters import Twin
from vit_tutorial.weights.tables import State

PLAIN = {field.name for field in fields(ViTConfig)}
COUNTER = "num_batches_tracked"  # a batch norm counts its training steps; nothing reads it, so files go without
LARGEST_GRID = 65_536  # patches, 256 x 256


def model_of(twin: Twin) -> ViT:
    """Our model with the twin's tensors, in evaluation mode; what needn't be joined or turned is shared with it.

    Raises:
        ValueError: parts that the configs can't express, or tensors that aren't there.
    """
    read = tables.read(twin.table, twin.tensors).ours
    ours = {our: tensor for our, tensor in read.items() if tensor.numel()}  # DINOv3 may have no registers, in a tensor
    shown = shown_by(ours)
    if shown["pool"] == "distilled" and "head.weight" in ours and ours["head.weight"].shape[1] == shown["dim"]:
        head = ours["head.weight"]  # which reads the class token alone
        ours["head.weight"] = torch.cat([head, torch.zeros_like(head)], dim=1)  # (K, 2 D)
    if "head.weight" in ours and "head.bias" not in ours:
        ours["head.bias"] = ours["head.weight"].new_zeros(len(ours["head.weight"]))
    config = config_of({**shown, **twin.facts})
    ours = with_positions(ours, config)
    if isinstance(config, ModernConfig) and config.rotary is not None:
        ours = reorder_pairs(ours, config.num_heads, twin.neighbours, twin.columns_first)
    return assemble(config, ours)


def shown_by(ours: Mapping[str, Tensor]) -> dict[str, Any]:
    """The fields of a config that names and shapes show."""
    patches = ours.get("embed.patches.proj.weight")
    if patches is None or patches.ndim != 4:
        raise ValueError("the patches aren't made by one convolution: a part that ModernConfig can't express")
    D, C, P, Q = patches.shape
    head, hidden = ours.get("head.weight"), ours["blocks.0.mlp.fc2.weight"].shape[1]
    class_tokens = ours["embed.cls_token"].shape[1] if "embed.cls_token" in ours else 0
    pool = "cls"
    if "pool.probe" in ours:
        pool = "attention"
    elif class_tokens == 2:
        pool = "distilled"
    elif head is not None and head.shape[1] == 2 * D:
        pool = "cls+mean"
    elif "pool_norm.weight" in ours or class_tokens == 0:
        pool = "mean"
    shown = {
        "patch_size": (P, Q),
        "in_channels": C,
        "num_classes": 0 if head is None else len(head),
        "dim": D,
        "depth": len({our.split(".")[1] for our in ours if our.startswith("blocks.")}),
        "mlp_dim": hidden,
        "qkv_bias": "blocks.0.attention.qkv.bias" in ours or "blocks.0.attention.bias" in ours,
        "k_bias": "blocks.0.attention.bias" not in ours,
        "position": "learned" if "embed.position" in ours else "none",
        "pool": pool,
        "class_token": class_tokens > 0,
        "registers": ours["embed.registers"].shape[1] if "embed.registers" in ours else 0,
        "pre_norm": "embed.norm.weight" in ours,
        "norm": "layer" if "blocks.0.norm1.bias" in ours else "rms",
        "qk_norm": "blocks.0.attention.q_norm.weight" in ours,
        "attention_norm": "blocks.0.attention.norm.weight" in ours,
        "layer_scale": 1e-5 if "blocks.0.scale1.gamma" in ours else None,
        "gated": len(ours["blocks.0.mlp.fc1.weight"]) == 2 * hidden,
        "mlp_norm": "blocks.0.mlp.norm.weight" in ours,
        "position_bias": "blocks.0.attention.position_bias" in ours,
        "final_norm": "norm.weight" in ours,
        "pool_norm": "pool_norm.weight" in ours,
    }
    return shown | ({"pool_mlp_dim": len(ours["pool.mlp.fc1.weight"])} if pool == "attention" else {})


def config_of(facts: Mapping[str, Any]) -> ViTConfig:
    """The plain config if that is enough, else the modern one."""
    usual = {"pool_heads": facts["num_heads"], "pool_mlp_dim": facts["mlp_dim"]}
    facts = {name: value for name, value in facts.items() if name not in usual or value != usual[name]}
    modern = {field.name: field.default for field in fields(ModernConfig) if field.name not in PLAIN}
    if not facts["class_token"] and facts["pool"] == "mean":  # the plain config's mean has no class token
        modern["class_token"] = False
    plain = facts["pool"] == "cls" or (facts["pool"] == "mean" and not facts["class_token"])
    plain = plain and facts.get("gelu") != "quick"
    if plain and all(facts.get(name, default) == default for name, default in modern.items()):
        return ViTConfig(**{name: value for name, value in facts.items() if name in PLAIN})
    return ModernConfig(**{"gelu": "exact", **facts})


def with_positions(ours: State, config: ViTConfig) -> State:
    """Positions as ours are: a row for each class token, zeros where they have none, and none for the registers."""
    position = ours.get("embed.position")
    if position is None:
        return ours
    registers = config.registers if isinstance(config, ModernConfig) else 0
    first, N = config.prefix_tokens - registers, config.grid[0] * config.grid[1]
    if registers and position.shape[1] == first + registers + N:
        ours = {**ours, "embed.registers": ours["embed.registers"] + position[:, first : first + registers]}
        position = torch.cat([position[:, :first], position[:, first + registers :]], dim=1)
    if first and position.shape[1] == N:
        position = torch.cat([position.new_zeros(1, first, position.shape[2]), position], dim=1)
    return {**ours, "embed.position": position}


def reorder_pairs(ours: State, num_heads: int, neighbours: bool, columns_first: bool, back: bool = False) -> State:
    """Rotary pairs (2 i, 2 i + 1), or those of the columns first, moved to where ours are: (i, i + d / 2), rows first.

    Queries and keys move alike, so no score changes. ``back`` undoes it.
    """
    if not neighbours and not columns_first:
        return ours
    d = len(ours["blocks.0.norm1.weight"]) // num_heads
    order = torch.arange(d)
    order = order.view(d // 2, 2).mT if neighbours else order.view(2, d // 2)  # ours from theirs
    if columns_first:
        order = order.roll(-(d // 4), dims=1)
    within = order.flatten().argsort() if back else order.flatten()
    rows = torch.cat([within + head * d for head in range(num_heads)])  # (D,)
    moved = dict(ours)
    for name, tensor in ours.items():
        if name.endswith(("attention.qkv.weight", "attention.qkv.bias")):
            q, k, v = tensor.chunk(3)
            moved[name] = torch.cat([q[rows], k[rows], v])
        elif name.endswith("attention.bias"):  # of q and v
            moved[name] = torch.stack([tensor[0][rows], tensor[1]])
        elif name.endswith(("q_norm.weight", "q_norm.bias", "k_norm.weight", "k_norm.bias")):
            moved[name] = tensor[within]
    return moved


def assemble(config: Any, state: Mapping[str, Tensor], make: Callable[[Any], Any] = build) -> Any:
    """The model that ``make`` builds of the config, with these very tensors as its parameters, in evaluation mode.

    Nothing is copied, but for tensors of another precision than float32, and nothing initialised.

    Raises:
        ValueError: names that are missing or too many, or other shapes: which.
    """
    with without_numbers():
        model = make(config)
    shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    missing = [name for name in shapes if name not in state and not name.endswith(COUNTER)]
    beyond = [name for name in state if name not in shapes]
    common = shapes.keys() & state.keys()
    other = [f"{n} {tuple(t.shape)} for {shapes[n]}" for n, t in state.items() if n in common and t.shape != shapes[n]]
    for names, what in ((missing, "missing"), (beyond, "unexpected"), (other, "of another shape")):
        if names:
            more = f" and {len(names) - 5} more" if len(names) > 5 else ""
            kind = type(config).__name__
            raise ValueError(f"tensors {what}: {', '.join(names[:5])}{more}: another architecture than {kind} has")
    floats = {name: tensor.detach().float() for name, tensor in state.items() if not name.endswith(COUNTER)}
    counters = {name: torch.tensor(0) for name in shapes if name.endswith(COUNTER)}
    model.load_state_dict(floats | counters, assign=True)
    return model.eval()


class _NothingDrawn(TorchFunctionMode):
    """Leaves normal_ out, which on the meta device would load torch's compiler and take seconds; and a power of sines.

    Once that compiler is loaded, a number to the power of a tensor on the meta device is an error.
    """

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        given = kwargs or {}
        if func in (nn.init.normal_, Tensor.normal_):
            return given["tensor"] if "tensor" in given else args[0]
        if func is Tensor.__rpow__ and args[0].is_meta:  # rotary angles are numbers even here
            return args[0]
        return func(*args, **given)


@contextmanager
def without_numbers() -> Iterator[None]:
    """What is built inside has shapes, and no numbers: it takes no memory, and hardly any time."""
    with torch.device("meta"), _NothingDrawn():
        yield


def with_head(model: ViT, num_classes: int) -> ViT:
    """The same model with a new head of zeros for so many classes; 0: with none."""
    config = replace(model.config, num_classes=num_classes)
    state = {name: tensor for name, tensor in model.state_dict().items() if not name.startswith("head.")}
    if num_classes:
        width = config.head_width if isinstance(config, ModernConfig) else config.dim
        state["head.weight"] = torch.zeros(num_classes, width)
        state["head.bias"] = torch.zeros(num_classes)
    return assemble(config, state)


def with_size(model: ViT, image_size: Size, recipe: ResizeRecipe = "timm") -> ViT:
    """The same model for images of another size.

    Learned positions are resized, as :func:`resize_position_embedding` does it; sines are computed anew. Position
    biases (BEiT's) are for one size: a ValueError.
    """
    check_size(image_size, model.config.patch_size)
    old, config = model.config, replace(model.config, image_size=image_size)
    state = dict(model.state_dict())
    if config.grid == old.grid:
        return assemble(config, state)
    prefix = config.prefix_tokens - (config.registers if isinstance(config, ModernConfig) else 0)
    if config.position == "learned":
        state["embed.position"] = resize_position_embedding(
            state["embed.position"], old.grid, config.grid, prefix_tokens=prefix, recipe=recipe
        )
    elif config.position == "sincos":
        grid = sincos_position_embedding(config.grid, config.dim)  # (1, N, D)
        state["embed.position"] = torch.cat([torch.zeros(1, prefix, config.dim), grid], dim=1)
    if isinstance(config, ModernConfig) and config.position_bias:
        raise ValueError(f"position biases of {old.grid} patches aren't resized here: give image_size={old.image_size}")
    return assemble(config, state)


def check_size(image_size: Size, patch_size: Size) -> None:
    """Raise a ValueError for more patches than attention could ever hold."""
    (H, W), (P, Q) = as_pair(image_size, "image_size"), as_pair(patch_size, "patch_size")
    if (N := H // P * (W // Q)) > LARGEST_GRID:
        raise ValueError(f"image_size {image_size} has {N:,} patches of {patch_size}: at most {LARGEST_GRID:,}")
