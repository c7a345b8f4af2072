"""Lesson 09: published checkpoints under our names, and ours under theirs: one table of names a library.

>>> import vit_tutorial as vt
>>> theirs = vt.weights.to_timm(vt.load("digits").model)
>>> config, state_dict, preprocess = vt.weights.convert(theirs, num_heads=4)
>>> config.image_size, config.dim, config.depth
(8, 64, 4)
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from vit_tutorial import files
from vit_tutorial.data import Preprocessing
from vit_tutorial.embeddings import sincos_position_embedding
from vit_tutorial.mlp import Gelu
from vit_tutorial.patches import Size, as_pair
from vit_tutorial.vit import Pool, ViT, ViTConfig

# Our name on the left, theirs on the right: {i} is the block, * stands for weight or bias (in Flax's files, where names
# have slashes, for kernel or scale, and bias), and (a|b|c) for tensors that are joined to one of ours.
TIMM = {
    "embed.cls_token": "cls_token",
    "embed.position": "pos_embed",
    "embed.patches.proj.*": "patch_embed.proj.*",
    "blocks.{i}.norm1.*": "blocks.{i}.norm1.*",
    "blocks.{i}.attention.qkv.*": "blocks.{i}.attn.qkv.*",
    "blocks.{i}.attention.proj.*": "blocks.{i}.attn.proj.*",
    "blocks.{i}.norm2.*": "blocks.{i}.norm2.*",
    "blocks.{i}.mlp.fc1.*": "blocks.{i}.mlp.fc1.*",
    "blocks.{i}.mlp.fc2.*": "blocks.{i}.mlp.fc2.*",
    "norm.*": "norm.*",
    "head.*": "head.*",
}
OURS = {name: name for name in TIMM}
TORCHVISION = {
    "embed.cls_token": "class_token",
    "embed.position": "encoder.pos_embedding",
    "embed.patches.proj.*": "conv_proj.*",
    "blocks.{i}.norm1.*": "encoder.layers.encoder_layer_{i}.ln_1.*",
    "blocks.{i}.attention.qkv.*": "encoder.layers.encoder_layer_{i}.self_attention.in_proj_*",
    "blocks.{i}.attention.proj.*": "encoder.layers.encoder_layer_{i}.self_attention.out_proj.*",
    "blocks.{i}.norm2.*": "encoder.layers.encoder_layer_{i}.ln_2.*",
    "blocks.{i}.mlp.fc1.*": "encoder.layers.encoder_layer_{i}.mlp.0.*",
    "blocks.{i}.mlp.fc2.*": "encoder.layers.encoder_layer_{i}.mlp.3.*",
    "norm.*": "encoder.ln.*",
    "head.*": "heads.head.*",
}
TORCHVISION_0_12 = TORCHVISION | {  # and earlier
    "blocks.{i}.mlp.fc1.*": "encoder.layers.encoder_layer_{i}.mlp.linear_1.*",
    "blocks.{i}.mlp.fc2.*": "encoder.layers.encoder_layer_{i}.mlp.linear_2.*",
}
TRANSFORMERS_4 = {  # and the files on the hub, whatever the version
    "embed.cls_token": "vit.embeddings.cls_token",
    "embed.position": "vit.embeddings.position_embeddings",
    "embed.patches.proj.*": "vit.embeddings.patch_embeddings.projection.*",
    "blocks.{i}.norm1.*": "vit.encoder.layer.{i}.layernorm_before.*",
    "blocks.{i}.attention.qkv.*": "vit.encoder.layer.{i}.attention.attention.(query|key|value).*",
    "blocks.{i}.attention.proj.*": "vit.encoder.layer.{i}.attention.output.dense.*",
    "blocks.{i}.norm2.*": "vit.encoder.layer.{i}.layernorm_after.*",
    "blocks.{i}.mlp.fc1.*": "vit.encoder.layer.{i}.intermediate.dense.*",
    "blocks.{i}.mlp.fc2.*": "vit.encoder.layer.{i}.output.dense.*",
    "norm.*": "vit.layernorm.*",
    "head.*": "classifier.*",
}
TRANSFORMERS_5 = TRANSFORMERS_4 | {
    "blocks.{i}.norm1.*": "vit.layers.{i}.layernorm_before.*",
    "blocks.{i}.attention.qkv.*": "vit.layers.{i}.attention.(q_proj|k_proj|v_proj).*",
    "blocks.{i}.attention.proj.*": "vit.layers.{i}.attention.o_proj.*",
    "blocks.{i}.norm2.*": "vit.layers.{i}.layernorm_after.*",
    "blocks.{i}.mlp.fc1.*": "vit.layers.{i}.mlp.fc1.*",
    "blocks.{i}.mlp.fc2.*": "vit.layers.{i}.mlp.fc2.*",
}
GOOGLE = {  # google-research/vision_transformer
    "embed.cls_token": "cls",
    "embed.position": "Transformer/posembed_input/pos_embedding",
    "embed.patches.proj.*": "embedding/*",
    "blocks.{i}.norm1.*": "Transformer/encoderblock_{i}/LayerNorm_0/*",
    "blocks.{i}.attention.qkv.*": "Transformer/encoderblock_{i}/MultiHeadDotProductAttention_1/(query|key|value)/*",
    "blocks.{i}.attention.proj.*": "Transformer/encoderblock_{i}/MultiHeadDotProductAttention_1/out/*",
    "blocks.{i}.norm2.*": "Transformer/encoderblock_{i}/LayerNorm_2/*",
    "blocks.{i}.mlp.fc1.*": "Transformer/encoderblock_{i}/MlpBlock_3/Dense_0/*",
    "blocks.{i}.mlp.fc2.*": "Transformer/encoderblock_{i}/MlpBlock_3/Dense_1/*",
    "norm.*": "Transformer/encoder_norm/*",
    "head.*": "head/*",
}
BIG_VISION = GOOGLE | {
    "embed.position": "pos_embedding",
    "blocks.{i}.attention.qkv.*": "Transformer/encoderblock_{i}/MultiHeadDotProductAttention_0/(query|key|value)/*",
    "blocks.{i}.attention.proj.*": "Transformer/encoderblock_{i}/MultiHeadDotProductAttention_0/out/*",
    "blocks.{i}.norm2.*": "Transformer/encoderblock_{i}/LayerNorm_1/*",
    "blocks.{i}.mlp.fc1.*": "Transformer/encoderblock_{i}/MlpBlock_0/Dense_0/*",
    "blocks.{i}.mlp.fc2.*": "Transformer/encoderblock_{i}/MlpBlock_0/Dense_1/*",
}
# Flax keeps (in, out), and the heads on axes of their own; torch keeps (out, in).
FLAX: dict[str, Callable[[Tensor], Tensor]] = {
    "embed.patches.proj.weight": lambda t: t.permute(3, 2, 0, 1),  # (P, P, C, D) -> (D, C, P, P)
    "attention.qkv.weight": lambda t: t.flatten(1).mT,  # (D, h, d) -> (D, D)
    "attention.qkv.bias": lambda t: t.flatten(),  # (h, d) -> (D,)
    "attention.proj.weight": lambda t: t.flatten(0, 1).mT,  # (h, d, D) -> (D, D)
    "fc1.weight": lambda t: t.mT,
    "fc2.weight": lambda t: t.mT,
    "head.weight": lambda t: t.mT,
}
POOL_OF: dict[int, Pool] = {0: "mean", 1: "cls", 2: "distilled"}  # by the number of tokens before the patches
IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
HALF = (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)


@dataclass(frozen=True)
class Source:
    """What a library's files don't say of themselves."""

    tables: tuple[dict[str, str], ...]
    statistics: tuple[tuple[float, ...], tuple[float, ...]]
    crop: float | str
    interpolation: str
    norm_eps: float = 1e-6
    gelu: Gelu = "exact"
    ignored: str = "mask_token"  # a regular expression: what classification doesn't need
    family: str = ""


SOURCES = {
    "torchvision": Source((TORCHVISION, TORCHVISION_0_12), IMAGENET, 224 / 256, "bilinear"),
    "timm": Source((TIMM,), HALF, 0.9, "bicubic"),
    "deit": Source((TIMM,), IMAGENET, 0.9, "bicubic", family="timm"),
    "dino": Source((TIMM,), IMAGENET, 224 / 256, "bicubic", ignored="head|mask_token"),
    "huggingface": Source(
        (TRANSFORMERS_4, TRANSFORMERS_5), HALF, "squeeze", "bilinear", 1e-12, ignored=r"(vit\.)?(pooler|.*mask_token)"
    ),
    # JAX's GELU is the tanh approximation.
    "google": Source((GOOGLE,), HALF, "squeeze", "bilinear", gelu="tanh"),
    "big_vision": Source((BIG_VISION,), HALF, 224 / 256, "bilinear", gelu="tanh", family="google"),
    "vit_tutorial": Source((OURS,), HALF, "middle", "bicubic"),
}
NOT_OURS = {  # what ViTConfig can't express, by what its tensors are called
    r"\bls\d\.|gamma_\d|lambda\d|layer_?scale": "layer scale",
    r"reg_token|register": "register tokens",
    r"fc_norm": "a norm after the mean pooling",
    r"q_norm|k_norm|query_norm|key_norm": "norms of queries and keys",
    r"mlp\.w\d|fc1_g|swiglu|mlp\.norm": "a gated or normed MLP",
    r"attn_pool|MAPHead|probe": "attention pooling (MAP)",
    r"norm_pre|pre_layr?norm": "a norm before the blocks",
    r"relative_position|rel_pos|\brope": "relative or rotary positions",
    r"patch_embed\.backbone|conv_root|gn_root|conv_proj\.conv|conv_proj\.\d": "a convolutional stem",
    r"\.experts?\.|router": "a mixture of experts",
}
WRAPPERS = ("teacher", "student", "model", "state_dict")  # the teacher is what DINO evaluates
PREFIX = re.compile(r"^(module\.|_orig_mod\.|backbone\.|opt/target/|params/(img/)?)+")
BLOCK = re.compile(r"\b(?:blocks|layers?|encoder_layer|encoderblock)[._](\d{1,6})[./]")


class Converted(NamedTuple):
    """What :func:`convert` returns: ``ViT(config).load_state_dict(state_dict)`` is the model."""

    config: ViTConfig
    state_dict: dict[str, Tensor]  # under our names
    preprocess: Preprocessing


def convert(
    state_dict: Mapping[str, Any], source: str = "auto", *, num_heads: int | None = None, image_size: Size | None = None
) -> Converted:
    """A published checkpoint as a config, tensors under our names, and the preprocessing of its evaluation.

    Sizes are read off the shapes. Tensors keep their dtype and, where nothing had to be joined or turned, their memory.
    A full DINO checkpoint gives its teacher; ``checkpoint["student"]`` the other. A head behind ``pre_logits`` (a layer
    with tanh) belongs to features that a ViT doesn't have: both are left out, and ``num_classes`` is 0.

    Args:
        state_dict: names and tensors, as :func:`read` has them.
        source: "auto", by the names, or whose file it is: "torchvision", "timm", "deit", "dino", "huggingface",
            "google", "big_vision" or "vit_tutorial". timm, DeiT and DINO share names and differ in preprocessing.
        num_heads: h. The shapes don't show it (Google's do): by default that of the published sizes, or D / 64.
        image_size: H = W or (H, W) the positions were learned on; needed for a rectangle, or if there are none.

    Raises:
        ValueError: names that are missing or too many, wrong shapes, numbers that aren't finite; parts that ViTConfig
            can't express; an unknown source.
    """
    state, origin = _unwrap(state_dict)
    for pattern, part in NOT_OURS.items():
        if found := [name for name in state if re.search(pattern, name)]:
            raise ValueError(f"{files.some(found, 3)}: {part}, which ViTConfig can't express")
    name, table = _identify(state, source, origin)
    about = SOURCES[name]
    headless = r"|(heads\.)?(pre_logits|head)[./]" if any("pre_logits" in name for name in state) else ""
    state = {name: tensor for name, tensor in state.items() if not re.match(about.ignored + headless, name)}
    files.check_numbers(state)
    state = _two_heads(_unstack(state))
    rows = _rows_of(table, state)
    ours = _join(rows, state)
    if image_size is None and "embed.position" not in ours:
        raise ValueError(f"this {name} checkpoint has no positions, which would tell its image size: give image_size")
    if len(ours["blocks.0.mlp.fc1.weight"]) == 2 * ours["blocks.0.mlp.fc2.weight"].shape[-1]:
        raise ValueError(f"{rows['blocks.0.mlp.fc1.weight'][0]}: a gated MLP (SwiGLU), which ViTConfig can't express")
    heads = num_heads or _heads(rows, state, ours)
    config = _config(about, ours, heads, image_size, sincos=name == "big_vision")
    ours |= _positions(config, ours)
    _check_shapes(config, ours, rows)
    return Converted(config, {our: tensor.contiguous() for our, tensor in ours.items()}, _preprocess(name, config))


def _unwrap(state_dict: Mapping[str, Any]) -> tuple[dict[str, Tensor], str]:
    """The tensors inside a training checkpoint, without prefixes; and what they were wrapped in."""
    state, origin = state_dict, ""
    for _ in range(3):
        for wrapper in WRAPPERS:
            if isinstance(state.get(wrapper), Mapping):
                state, origin = state[wrapper], wrapper
                break
    tensors = {PREFIX.sub("", str(name)): value for name, value in state.items()}
    tensors = {name: torch.from_numpy(v) if isinstance(v, np.ndarray) else v for name, v in tensors.items()}
    if len(tensors) < len(state) or not tensors:
        raise ValueError(
            f"a state dict with names and tensors is needed, got {len(state)} names, of which {len(tensors)} differ"
        )
    if others := [name for name, value in tensors.items() if not isinstance(value, Tensor)]:
        raise ValueError(f"{len(others)} entries are no tensors: {files.some(others)}: pass the state dict within")
    return {name: value.detach() for name, value in tensors.items()}, origin


def _identify(state: dict[str, Tensor], source: str, origin: str) -> tuple[str, dict[str, str]]:
    """Whose names these are: the source and the table that find most."""
    if source not in ("auto", *SOURCES):
        raise ValueError(f"unknown source {source!r}: use auto, {', '.join(SOURCES)}")
    bare = {name.removeprefix("vit.") for name in state}
    best: tuple[int, str, dict[str, str]] = (0, "", {})
    for name, about in SOURCES.items():
        for table in about.tables if source in ("auto", name, about.family) else ():
            names = [their.removeprefix("vit.") for _, theirs in _rows(table, [0]) for their in theirs]
            found = sum(their in bare or their.replace("encoderblock_0", "encoderblock") in bare for their in names)
            if found > best[0]:
                best = found, name, table
    if best[0] < 4:
        whose = "a known library" if source == "auto" else source
        raise ValueError(f"this is no Vision Transformer of {whose}; {len(state)} names: {files.some(list(state))}")
    name = best[1]
    if (source, name) == ("auto", "timm"):
        by_origin = {"teacher": "dino", "student": "dino", "model": "deit"}
        name = "deit" if "dist_token" in state else by_origin.get(origin, "timm" if "head.weight" in state else "dino")
    return name, best[2]


def _rows(table: Mapping[str, str], blocks: range | list[int]) -> Iterator[tuple[str, list[str]]]:
    """Our name and theirs of every tensor."""
    for our, their in table.items():
        for i in blocks if "{i}" in our else [0]:
            for leaf in ("weight", "bias") if "*" in our else [""]:
                flax = {"weight": "scale" if "norm" in our else "kernel"}.get(leaf, leaf)
                full = their.replace("{i}", str(i)).replace("*", flax if "/" in their else leaf)
                before, choices, after = [*re.split(r"[()]", full), "", ""][:3]
                theirs = [before + choice + after for choice in choices.split("|")]
                yield our.replace("{i}", str(i)).replace("*", leaf), theirs


def _rows_of(table: dict[str, str], state: dict[str, Tensor]) -> dict[str, list[str]]:
    """The rows that this checkpoint has; a ValueError for what else it has, and for what it lacks."""
    depth = len({match[1] for name in state if (match := BLOCK.search(name))})
    if not depth:
        raise ValueError(f"there is no block among the {len(state)} names: {files.some(list(state))}")
    if not any(name.startswith("vit.") for name in state):
        table = {our: their.removeprefix("vit.") for our, their in table.items()}
    rows = dict(_rows(table, range(depth)))
    for optional in (r"embed\.cls_token", r"embed\.position", r"head\..*", r"blocks\.\d+\.attention\.qkv\.bias"):
        names = [our for our in rows if re.fullmatch(optional, our)]
        if not any(their in state for our in names for their in rows[our]):
            rows = {our: theirs for our, theirs in rows.items() if our not in names}
    expected = {their: None for theirs in rows.values() for their in theirs}
    files.compare(expected, {name: tuple(tensor.shape) for name, tensor in state.items()})
    return rows


def _join(rows: dict[str, list[str]], state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Their tensors as ours: turned where Flax had them, and joined where one of ours was three."""
    ours = {}
    for our, theirs in rows.items():
        flax = "/" in theirs[0]
        turn = next((f for tail, f in FLAX.items() if flax and our.endswith(tail)), None)
        try:
            parts = [turn(state[their]) if turn else state[their] for their in theirs]
            ours[our] = parts[0] if len(parts) == 1 else torch.cat(parts)
        except (RuntimeError, IndexError) as error:
            shapes = ", ".join(f"{their} {tuple(state[their].shape)}" for their in theirs)
            raise ValueError(f"wrong shapes for {our}: {shapes}") from error
    ranks = {"embed.patches.proj.weight": 4, "embed.position": 3, "embed.cls_token": 3, "head.weight": 2}
    for our, rank in (ranks | {"blocks.0.mlp.fc1.weight": 2}).items():
        if our in ours and ours[our].ndim != rank:
            raise ValueError(f"{rows[our][0]} {tuple(state[rows[our][0]].shape)} must have {rank} axes")
    return ours


def _heads(rows: dict[str, list[str]], state: dict[str, Tensor], ours: dict[str, Tensor]) -> int:
    """h: from Flax's axis of its own, a published size, or 64 numbers a head."""
    query, D = rows["blocks.0.attention.qkv.weight"][0], len(ours["embed.patches.proj.weight"])
    if "/" in query:
        if state[query].ndim != 3:
            raise ValueError(f"{query} {tuple(state[query].shape)} must be (D, h, d)")
        return state[query].shape[1]
    if D % 64:
        raise ValueError(f"the shapes don't tell the number of heads, and dim {D} is no multiple of 64: give num_heads")
    return 16 if D in (1152, 1280, 1408, 1664) else D // 64  # So400m, H, g and G: 72 to 104 numbers a head


def _config(about: Source, ours: dict[str, Tensor], num_heads: int, image_size: Size | None, sincos: bool) -> ViTConfig:
    D, C, P, Q = ours["embed.patches.proj.weight"].shape
    cls, position, head = (ours.get(name) for name in ("embed.cls_token", "embed.position", "head.weight"))
    prefix = 0 if cls is None else cls.shape[1]
    if image_size is None and position is not None:
        T = position.shape[1]
        sides = [math.isqrt(N) for N in (T - prefix, T) if N > 0 and math.isqrt(N) ** 2 == N]
        if not sides:
            raise ValueError(f"positions for {T} tokens, {prefix} of them in front, fill no square: give image_size")
        image_size = (sides[0] * P, sides[0] * Q)
    H, W = as_pair(image_size or 0, "image_size")
    return ViTConfig(
        image_size=H if H == W else (H, W), patch_size=P if P == Q else (P, Q), in_channels=C, dim=D,
        num_classes=0 if head is None else len(head), num_heads=num_heads,
        depth=sum(name.endswith("norm1.weight") for name in ours), mlp_dim=len(ours["blocks.0.mlp.fc1.weight"]),
        qkv_bias="blocks.0.attention.qkv.bias" in ours, norm_eps=about.norm_eps, gelu=about.gelu,
        position="learned" if position is not None else "sincos" if sincos else "none",
        pool=POOL_OF.get(prefix, "cls"),
    )  # fmt: skip


def _check_shapes(config: ViTConfig, ours: dict[str, Tensor], rows: dict[str, list[str]]) -> None:
    with torch.device("meta"):  # one block tells the shapes of all
        model = ViT(replace(config, depth=1)).state_dict()
    expected, found = {}, {}
    for our, tensor in ours.items():
        name = f"{files.some(rows.get(our, [our]), 3)}, as {our},"
        expected[name] = tuple(model[re.sub(r"^blocks\.\d+", "blocks.0", our)].shape)
        found[name] = tuple(tensor.shape)
    files.compare(expected, found)


def _positions(config: ViTConfig, ours: dict[str, Tensor]) -> dict[str, Tensor]:
    """Positions for every token: where the class token has none, zeros; sine and cosine, where they aren't stored."""
    if config.position == "none":
        return {}
    like, prefix = ours["embed.patches.proj.weight"], config.prefix_tokens
    position = ours.get("embed.position")
    if position is None:
        position = sincos_position_embedding(config.grid, config.dim).to(like.dtype)
    if prefix and position.shape[1] == math.prod(config.grid):  # big_vision adds positions before the class token
        position = torch.cat([position.new_zeros(1, prefix, position.shape[2]), position], dim=1)
    return {"embed.position": position}


def _unstack(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """big_vision's scan keeps each kind of tensor of all blocks in one, block by block on the first axis."""
    whole = {}
    for name, tensor in state.items():
        parts = tensor.unbind() if "/encoderblock/" in name and tensor.ndim else [tensor]
        for i, part in enumerate(parts):
            whole[name.replace("/encoderblock/", f"/encoderblock_{i}/")] = part
    return whole


def _two_heads(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """DeiT's two tokens as one tensor, and the mean of its two heads as one head on both tokens."""
    pairs = {"cls_token": "dist_token", "head.weight": "head_dist.weight", "head.bias": "head_dist.bias"}
    if "dist_token" not in state:
        return state
    state = dict(state)
    for one, other in pairs.items():
        if one in state and other in state:
            a, b = state[one], state.pop(other)
            if a.shape != b.shape or (a.ndim < 2) != one.endswith("bias"):
                raise ValueError(f"{one} {tuple(a.shape)} and {other} {tuple(b.shape)} don't go together")
            state[one] = (a + b) / 2 if a.ndim < 2 else torch.cat([a, b], 1) / (2 if a.ndim == 2 else 1)
    return state


def _preprocess(name: str, config: ViTConfig) -> Preprocessing:
    """As the source evaluates; of several ways of one source, the one with this image size."""
    about, size = SOURCES[name], as_pair(config.image_size, "image_size")
    crop, interpolation, (mean, std) = about.crop, about.interpolation, about.statistics
    if name == "torchvision" and (max(size) > 224 or config.dim == 1280):  # SWAG
        crop, interpolation = 1.0, "bicubic"
    elif name == "torchvision" and (config.dim, config.patch_size) == (1024, 16):
        crop = 224 / 242
    elif name in ("timm", "deit") and max(size) >= 384:
        crop = 1.0
    if config.in_channels != 3:
        mean = std = (0.5,) * config.in_channels
    return Preprocessing(size, mean, std, crop, interpolation)


# -------------------------------------------------------------------------------------------------------- the way back


def rename(state_dict: Mapping[str, Tensor], table: Mapping[str, str]) -> dict[str, Tensor]:
    """Our state dict (or gradients by name) under a table's names. Raises ValueError for a name that isn't ours."""
    blocks = range(1 + max((int(m[1]) for name in state_dict if (m := BLOCK.search(name))), default=-1))
    rows = dict(_rows(table, blocks))
    if strange := [name for name in state_dict if name not in rows]:
        raise ValueError(f"not names of a ViT of this package: {files.some(strange)}")
    pairs = ((rows[our], tensor) for our, tensor in state_dict.items())
    return {n: part for theirs, t in pairs for n, part in zip(theirs, t.chunk(len(theirs)), strict=True)}


def to_timm(model: ViT | Mapping[str, Tensor]) -> dict[str, Tensor]:
    """For ``timm.models.VisionTransformer`` of the same sizes (mean pooling: ``fc_norm=False``), or its distilled twin.

    A state dict says neither epsilon nor the kind of GELU: build timm's model with the config's (exact, 1e-6). Raises
    ValueError for tensors that aren't a ViT's of this package.
    """
    state = dict(_state(model))
    cls = state.get("embed.cls_token")
    if cls is None or cls.shape[1] == 1:
        return rename(state, TIMM)
    state["embed.cls_token"], dist = cls.chunk(2, dim=1)
    extra = {"dist_token": dist}
    if "head.weight" in state:  # the mean of two heads is half of each
        state["head.weight"], extra["head_dist.weight"] = (2 * state["head.weight"]).chunk(2, dim=1)
        extra["head_dist.bias"] = state["head.bias"]
    return rename(state, TIMM) | extra


def to_torchvision(model: ViT | Mapping[str, Tensor]) -> dict[str, Tensor]:
    """For ``torchvision.models.VisionTransformer`` of the same sizes; epsilon 1e-6 and the exact GELU are its own.

    Raises:
        ValueError: no class token (or two), no positions, no bias of q, k and v, or the tanh GELU: not torchvision's.
    """
    return rename(_plain(model, "torchvision", qkv_bias=True), TORCHVISION)


def to_huggingface(model: ViT | Mapping[str, Tensor], version: int = 4) -> dict[str, Tensor]:
    """For ``transformers.ViTForImageClassification`` of the same sizes, epsilon and GELU.

    Args:
        model: the model, or its state dict.
        version: 4 for the names in files, which ``from_pretrained`` of every version reads; 5 for the live modules of
            version 5.

    Raises:
        ValueError: no class token (or two) or no positions, which transformers needs; another version.
    """
    if version not in (4, 5):
        raise ValueError(f"transformers renamed its modules in version 5: version is 4 or 5, got {version!r}")
    return rename(_plain(model, "transformers"), TRANSFORMERS_4 if version == 4 else TRANSFORMERS_5)


def _state(model: ViT | Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    return model.state_dict() if isinstance(model, ViT) else model


def _plain(model: ViT | Mapping[str, Tensor], library: str, qkv_bias: bool = False) -> Mapping[str, Tensor]:
    """The state dict, if the library can express it."""
    state = _state(model)
    needed = ["embed.cls_token", "embed.position"] + ["blocks.0.attention.qkv.bias"] * qkv_bias
    if lacking := [name for name in needed if name not in state]:
        raise ValueError(
            f"{library} needs {files.some(lacking)}, which this model doesn't have: to_timm can do without"
        )
    if state["embed.cls_token"].shape[1] != 1:
        raise ValueError(f"{library}'s ViT has one class token, this model has two: to_timm has both")
    if isinstance(model, ViT) and library == "torchvision" and model.config.gelu != "exact":
        raise ValueError("torchvision's ViT has the exact GELU, this model the tanh approximation: to_timm, act_layer")
    return state
