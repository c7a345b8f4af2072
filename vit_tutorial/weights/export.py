"""Lesson 09: our tensors under other libraries' names, by the tables that read theirs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields

from torch import Tensor

from vit_tutorial.patches import as_pair
from vit_tutorial.variants.hybrid import HybridConfig
from vit_tutorial.variants.modern import ModernConfig
from vit_tutorial.vit import ViT, ViTConfig
from vit_tutorial.weights import names
from vit_tutorial.weights.fields import single
from vit_tutorial.weights.messages import some
from vit_tutorial.weights.model import reorder_pairs
from vit_tutorial.weights.names import State, Table, rename
from vit_tutorial.weights.sources import EVA_ROTARY


def to_timm(model: ViT) -> State:
    """For ``timm.models.VisionTransformer`` of the same sizes (mean pooling: ``fc_norm=False``), or its distilled twin.

    Tensors say neither epsilon nor the kind of GELU: build timm's model with the config's (exact, 1e-6). A norm
    after pooling in place of the last one is timm's ``fc_norm=True`` with ``final_norm`` left as it is. A
    ``ModernViT`` becomes a ``VisionTransformer``, an ``Eva`` (rotary positions, or biases of q and v alone) or a
    ``Beit`` (position biases). Registers have no positions in timm's names: ``no_embed_class``. Rotary positions by
    an index are EVA-02's, or in columns first as the Perception Encoder and NAVER's have them (``"xy"``).

    Raises:
        ValueError: parts that none of timm's classes has together.
        TypeError: no model.
    """
    state, config = _parts_of(model)
    if isinstance(config, HybridConfig):
        raise ValueError(f"none of timm's models has the stem {config.stem}")
    if not isinstance(config, ModernConfig) or config.pool == "distilled":
        return rename(state, _timm_table(config, state))
    no_k_bias = config.qkv_bias and not config.k_bias
    eva = config.rotary is not None or no_k_bias or (config.gated and config.mlp_norm)
    kind = "Beit" if config.position_bias else "Eva" if eva else "VisionTransformer"
    if lacking := _not_timms(config, kind):
        raise ValueError(f"timm's {kind} can't have these parts of the model: {some(lacking)}")
    ours = dict(state)
    if config.rotary is not None:
        neighbours = config.rotary.coordinates == "index"
        columns_first = neighbours and config.rotary != EVA_ROTARY  # the Perception Encoder's, and NAVER's
        ours = reorder_pairs(ours, config.num_heads, neighbours, columns_first, back=True)
    if "embed.position" in ours and config.registers and config.class_token:  # theirs are the patches' alone
        ours["embed.cls_token"] = ours["embed.cls_token"] + ours["embed.position"][:, :1]
        ours["embed.position"] = ours["embed.position"][:, 1:]
    theirs = rename(ours, _timm_table(config, ours))
    return {name: tensor.contiguous() for name, tensor in theirs.items()}


def _not_timms(config: ModernConfig, kind: str) -> list[str]:
    """The parts of the model that the class can't have."""
    vit, eva, beit = (kind == name for name in ("VisionTransformer", "Eva", "Beit"))
    pooled, k_bias = config.pool == "attention", config.qkv_bias and config.k_bias
    other_heads = config.pool_heads not in (None, config.num_heads)
    other_norm = config.attention_norm or config.pre_norm or config.norm != "layer"
    parts = {
        "a head for both the class token and the mean (to_huggingface has it)": config.pool == "cls+mean",
        "attention pooling beside a gated MLP": pooled and config.gated,
        "a norm before pooling and one after it": vit and config.final_norm and config.pool_norm,
        f"pooling with {config.pool_heads} heads (it takes as many as in attention, {config.num_heads})": (
            vit and pooled and other_heads
        ),
        "pooling with an MLP of its own width": vit and pooled and config.pool_mlp_dim not in (None, config.mlp_dim),
        f"the {config.gelu} GELU": not vit and config.gelu != "exact" and (pooled or not config.gated),
        "a bias of k beside a gated MLP with a norm": eva and config.gated and config.mlp_norm and k_bias,
        "pooling by attention to the patches alone": eva and pooled and not config.pool_prefix,
        "pooling of the prefix tokens": not vit and config.pool == "mean" and config.pool_prefix,
        "rotary positions, or norms of q and k, beside a position bias": (
            beit and (config.rotary is not None or config.qk_norm)
        ),
        "a bias of k": beit and k_bias,
        "a norm in attention or before the blocks": beit and other_norm,
        "pooling by attention": beit and pooled,
        "a gated MLP": beit and config.gated,
        "as many norms before the pooling as after it": beit and config.final_norm == config.pool_norm,
    }
    return [what for what, there in parts.items() if there]


def _timm_table(config: ViTConfig, state: Mapping[str, Tensor]) -> Table:
    """The names of the class of timm's that has the config's parts."""
    if isinstance(config, ModernConfig) and config.pool != "distilled":
        if config.gated and config.mlp_norm:  # EVA-02 base and large, and its CLIP
            return names.TIMM_APART
        table = names.TIMM_EVA if config.rotary is not None or config.position_bias else names.TIMM_NOW
        table = names.TIMM_BIASES if config.qkv_bias and not config.k_bias else table
        if config.gated and config.rotary is not None and config.rotary.coordinates == "centred":  # DINOv3 plus
            return {**table, "blocks.{i}.mlp.fc1.*": names.TIMM_GATED["blocks.{i}.mlp.fc1.*"]}
        return table
    return names.TIMM_DISTILLED if isinstance(config, ModernConfig) else names.TIMM_NOW


def to_torchvision(model: ViT) -> State:
    """For ``torchvision.models.VisionTransformer`` of the same sizes; epsilon 1e-6 and the exact GELU are its own.

    Raises:
        ValueError: no class token (or two), no positions, no bias of q, k and v, the tanh GELU, a rectangle, or
            pictures without three channels: not torchvision's.
        TypeError: no model.
    """
    state, config = _parts_of(model)
    if isinstance(config, ModernConfig):
        raise ValueError("torchvision's ViT is that of 2020, and this is a ModernViT: to_timm, to_huggingface")
    _check_plain(state, config, "torchvision", ["blocks.0.attention.qkv.bias"])
    rows, columns = config.grid
    if (
        rows != columns
        or not isinstance(single(as_pair(config.patch_size, "patch_size")), int)
        or config.in_channels != 3
    ):
        found = f"{rows} x {columns} patches of {config.patch_size} in {config.in_channels} channels"
        raise ValueError(f"torchvision's ViT takes squares in square patches of three channels, not {found}: to_timm")
    if config.gelu != "exact":
        raise ValueError("torchvision's ViT has the exact GELU, this model the tanh approximation: to_timm, act_layer")
    return rename(state, names.TORCHVISION)


def to_huggingface(model: ViT, version: int = 4) -> State:
    """For ``transformers.ViTForImageClassification`` of the same sizes, epsilon and GELU.

    A ``ModernViT`` becomes the one of transformers' models that has its parts: DINOv2 (with or
    without registers), DINOv3, CLIP's or SigLIP's vision model, or BEiT.

    Args:
        model: the model.
        version: 4 for the names in files, which ``from_pretrained`` of every version reads; 5 for the live modules of
            version 5.

    Raises:
        ValueError: no class token (or two) or no positions, which transformers needs; parts that none of its models has
            together; another version.
        TypeError: no model.
    """
    if version not in (4, 5):
        raise ValueError(f"transformers renamed its modules in version 5: version is 4 or 5, got {version!r}")
    state, config = _parts_of(model)
    if not isinstance(config, ModernConfig):
        _check_plain(state, config, "transformers", [])
        return rename(state, names.TRANSFORMERS_4 if version == 4 else names.TRANSFORMERS_5)
    if version != 4:
        raise ValueError(f"a ModernViT is written under the names of files, version=4, got {version!r}")
    prefix, table = _transformers_kind(config)
    ours = dict(state)
    if "head.*" not in table and "head.bias" in ours and ours.pop("head.bias").any():
        raise ValueError("CLIP's projection has no bias, and this head's isn't zero")
    theirs = rename(ours, table)
    if table in (names.HF_DINOV3, names.HF_DINOV3_GATED) and not config.registers:  # which it has always
        theirs["embeddings.register_tokens"] = ours["embed.cls_token"][:, :0]
    outside = ("classifier.", "visual_projection.")
    return {name if name.startswith(outside) else prefix + name: tensor.contiguous() for name, tensor in theirs.items()}


def _transformers_kind(config: ModernConfig) -> tuple[str, Table]:
    """The prefix and the names of the one of transformers' models that has just these parts."""
    free = {f.name for f in fields(ViTConfig)} - {"pool", "position"}
    if config.pool_mlp_dim == config.mlp_dim:
        free |= {"pool_mlp_dim"}
    used = {f.name for f in fields(config) if f.name not in free and getattr(config, f.name) != f.default}
    classifier = config.num_classes > 0
    square = all(isinstance(single(as_pair(size, "size")), int) for size in (config.image_size, config.patch_size))
    if config.rotary is not None and used <= {"rotary", "position", "registers", "layer_scale", "gated", "k_bias"}:
        if config.rotary.coordinates == "centred" and config.layer_scale is not None and not classifier:
            return "", names.HF_DINOV3_GATED if config.gated else names.HF_DINOV3
    elif not square:
        raise ValueError(f"transformers' models of {some(sorted(used))} take squares, and this one {config.image_size}")
    elif config.layer_scale is not None and used <= {"registers", "layer_scale", "gated", "pool"}:
        reads = config.pool == "cls+mean" or (config.pool == "cls" and not classifier)
        widths = {config.dim * ratio for ratio in range(1, 17)}  # as its config can say them
        if config.gated:
            widths = {(M * 2 // 3 + 7) // 8 * 8 for M in widths}
        if reads and config.mlp_dim in widths:
            whose = "dinov2_with_registers." if config.registers else "dinov2."
            return whose if classifier else "", names.HF_DINOV2_GATED if config.gated else names.HF_DINOV2
    elif used <= {"position", "position_bias", "layer_scale", "pool", "pool_norm", "final_norm", "k_bias"}:
        normed_pool = config.pool == "mean" and config.pool_norm and not config.final_norm
        if config.qkv_bias and not config.k_bias and normed_pool:
            return "beit." if classifier else "", names.HF_BEIT
    elif config.qkv_bias:
        pooled = config.pool == "attention" and not classifier
        if used == {"pre_norm"} or (used == {"class_token", "pool"} and pooled):
            return "vision_model.", names.HF_CLIP
    raise ValueError(f"none of transformers' models has the parts {some(sorted(used))} together: to_timm may")


def _parts_of(model: ViT) -> tuple[State, ViTConfig]:
    """Its tensors and its config."""
    if not isinstance(model, ViT):
        raise TypeError(f"a ViT is needed, got {type(model).__name__}: vt.weights.assemble makes one of tensors")
    return model.state_dict(), model.config


def _check_plain(state: Mapping[str, Tensor], config: ViTConfig, library: str, needed: list[str]) -> None:
    """Raise a ValueError if the library's ViT can't express the model."""
    needed = ["embed.cls_token", "embed.position", *needed]
    if lacking := [name for name in needed if name not in state]:
        raise ValueError(f"{library} needs {some(lacking)}, which this model doesn't have: to_timm can do without")
    if isinstance(config, HybridConfig):
        raise ValueError(f"{library}'s ViT can't have the stem {config.stem}")
