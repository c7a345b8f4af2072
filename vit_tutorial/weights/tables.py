"""Lesson 09: what each library calls its tensors: tables of names that are read in both directions.

Our name is on the left, theirs on the right:

- ``{i}`` is the number of the block, ``*`` stands for weight or bias;
- ``(a|b|c)`` are tensors that are joined into one of ours, by rows, or as ``: columns``, ``: tokens``, ``: stack`` or
  ``: mean`` says (see :data:`JOINS`);
- ``: bare`` has no axes of one in front; ``: queries`` and ``: keys and values`` are the rows of a part;
- a tuple holds alternatives: the first one whose tensors are all there counts.

So ``"blocks.{i}.attention.qkv.*": "blocks.{i}.attn.(q_proj|k_proj|v_proj).*"`` says that our
``blocks.0.attention.qkv.weight`` is their ``blocks.0.attn.q_proj.weight``, ``k_proj`` and ``v_proj``, joined by rows.

Rows without tensors belong to parts that a model doesn't have. Tensors without a row are ignored: whether the model
needs them, :func:`.proof.prove` finds out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

State = dict[str, Tensor]
Table = Mapping[str, str | tuple[str, ...]]

TIMM: Table = {  # the paper's model, in timm's names
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
    "head.weight": "head.weight",
    "head.bias": "head.bias",
}
TIMM_MODERN: Table = {  # all of timm's ViTs: VisionTransformer, Eva, Beit
    **TIMM,
    "embed.cls_token": ("(cls_token|dist_token) : tokens", "cls_token"),
    "embed.registers": "reg_token",
    "embed.norm.*": "norm_pre.*",
    "blocks.{i}.attention.qkv.*": ("blocks.{i}.attn.qkv.*", "blocks.{i}.attn.(q_proj|k_proj|v_proj).*"),
    "blocks.{i}.attention.qv_bias": (
        "blocks.{i}.attn.(q_bias|v_bias) : stack",
        "blocks.{i}.attn.(q_proj|v_proj).bias : stack",
    ),
    "blocks.{i}.attention.q_norm.*": "blocks.{i}.attn.q_norm.*",
    "blocks.{i}.attention.k_norm.*": "blocks.{i}.attn.k_norm.*",
    "blocks.{i}.attention.norm.*": "blocks.{i}.attn.norm.*",
    "blocks.{i}.attention.position_bias": "blocks.{i}.attn.relative_position_bias_table",
    "blocks.{i}.scale1.gamma": ("blocks.{i}.ls1.gamma", "blocks.{i}.gamma_1"),
    "blocks.{i}.scale2.gamma": ("blocks.{i}.ls2.gamma", "blocks.{i}.gamma_2"),
    "blocks.{i}.mlp.fc1.*": ("blocks.{i}.mlp.fc1.*", "blocks.{i}.mlp.(fc1_g|fc1_x).*"),
    "blocks.{i}.mlp.norm.*": "blocks.{i}.mlp.norm.*",
    "pool.probe": "attn_pool.latent",
    "pool.q.*": "attn_pool.q.*",
    "pool.kv.*": "attn_pool.kv.*",
    "pool.proj.*": "attn_pool.proj.*",
    "pool.norm.*": "attn_pool.norm.*",
    "pool.mlp.fc1.*": "attn_pool.mlp.fc1.*",
    "pool.mlp.fc2.*": "attn_pool.mlp.fc2.*",
    "pool_norm.*": "fc_norm.*",
    "head.weight": ("(head|head_dist).weight : columns", "head.weight"),
    "head.bias": ("(head|head_dist).bias : mean", "head.bias"),
}
TORCHVISION: Table = {
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
TRANSFORMERS_VIT: Table = {  # transformers' ViT, DeiT, BEiT and their kin, behind the prefix that each has: "vit.", ...
    "embed.cls_token": ("embeddings.(cls_token|distillation_token) : tokens", "embeddings.cls_token"),
    "embed.position": "embeddings.position_embeddings",
    "embed.patches.proj.*": "embeddings.patch_embeddings.projection.*",
    "blocks.{i}.norm1.*": "layers.{i}.layernorm_before.*",
    "blocks.{i}.attention.qkv.*": "layers.{i}.attention.(q_proj|k_proj|v_proj).*",
    "blocks.{i}.attention.qv_bias": "layers.{i}.attention.(q_proj|v_proj).bias : stack",
    "blocks.{i}.attention.proj.*": "layers.{i}.attention.o_proj.*",
    "blocks.{i}.attention.position_bias": "layers.{i}.relative_position_bias.relative_position_bias_table",
    "blocks.{i}.scale1.gamma": "layers.{i}.lambda_1",
    "blocks.{i}.norm2.*": "layers.{i}.layernorm_after.*",
    "blocks.{i}.mlp.fc1.*": "layers.{i}.mlp.fc1.*",
    "blocks.{i}.mlp.fc2.*": "layers.{i}.mlp.fc2.*",
    "blocks.{i}.scale2.gamma": "layers.{i}.lambda_2",
    "norm.*": "layernorm.*",
    "pool_norm.*": "pooler.layernorm.*",
    "head.weight": ("(cls_classifier|distillation_classifier).weight : columns", "classifier.weight"),
    "head.bias": ("(cls_classifier|distillation_classifier).bias : mean", "classifier.bias"),
}
_DINO_LAYER: Table = {  # DINOv2's and DINOv3's blocks
    "norm1.*": "norm1.*",
    "attention.qkv.*": "attention.(q_proj|k_proj|v_proj).*",
    "attention.qv_bias": "attention.(q_proj|v_proj).bias : stack",
    "attention.proj.*": "attention.o_proj.*",
    "scale1.gamma": "layer_scale1.lambda1",
    "norm2.*": "norm2.*",
    "mlp.fc1.*": ("mlp.fc1.*", "mlp.(gate_proj|up_proj).*", "mlp.up_proj.*"),
    "mlp.fc2.*": ("mlp.fc2.*", "mlp.down_proj.*"),
    "scale2.gamma": "layer_scale2.lambda1",
}


def _at(place: str, rows: Table) -> Table:
    """The rows of a layer as rows of the whole model, whose blocks are at ``place``."""
    alternatives = {our: (their,) if isinstance(their, str) else their for our, their in rows.items()}
    return {f"blocks.{{i}}.{our}": tuple(place + their for their in theirs) for our, theirs in alternatives.items()}


TRANSFORMERS_DINO: Table = {  # transformers' DINOv2, with and without registers, and DINOv3
    "embed.cls_token": "embeddings.cls_token",
    "embed.registers": "embeddings.register_tokens",
    "embed.position": "embeddings.position_embeddings",
    "embed.patches.proj.*": ("embeddings.patch_embeddings.projection.*", "embeddings.patch_embeddings.*"),
    **_at("encoder.layer.{i}.", _DINO_LAYER),
    "norm.*": ("layernorm.*", "norm.*"),
    "head.*": "classifier.*",
}
TRANSFORMERS_DINO_3: Table = {**TRANSFORMERS_DINO, **_at("model.layer.{i}.", _DINO_LAYER)}
_CLIP_LAYER: Table = {
    "norm1.*": "layer_norm1.*",
    "attention.qkv.*": "self_attn.(q_proj|k_proj|v_proj).*",
    "attention.proj.*": "self_attn.out_proj.*",
    "norm2.*": "layer_norm2.*",
    "mlp.fc1.*": "mlp.fc1.*",
    "mlp.fc2.*": "mlp.fc2.*",
}
TRANSFORMERS_CLIP: Table = {  # transformers' CLIP and SigLIP
    "embed.cls_token": "embeddings.class_embedding : bare",
    "embed.position": "embeddings.position_embedding.weight : bare",
    "embed.patches.proj.*": "embeddings.patch_embedding.*",
    "embed.norm.*": "pre_layrnorm.*",
    **_at("encoder.layers.{i}.", _CLIP_LAYER),
    "norm.*": "post_layernorm.*",
    "pool.probe": "head.probe",
    "pool.q.*": "head.attention.in_proj_* : queries",
    "pool.kv.*": "head.attention.in_proj_* : keys and values",
    "pool.proj.*": "head.attention.out_proj.*",
    "pool.norm.*": "head.layernorm.*",
    "pool.mlp.fc1.*": "head.mlp.fc1.*",
    "pool.mlp.fc2.*": "head.mlp.fc2.*",
    "head.*": ("visual_projection.*", "classifier.*"),
}
TRANSFORMERS_TEXT: Table = {  # their text towers
    "tokens.weight": "embeddings.token_embedding.weight",
    "position": "embeddings.position_embedding.weight : bare",
    **_at("encoder.layers.{i}.", _CLIP_LAYER),
    "norm.*": "final_layer_norm.*",
    "head.*": ("text_projection.*", "head.*"),
}

# -------------------------------------------------------------------------------------------------- both directions

PARTS = ("queries", "keys and values")  # layouts that take some of a tensor's rows
Join = Callable[[list[Tensor]], Tensor]
Split = Callable[[Tensor, int], Sequence[Tensor]]
JOINS: dict[str, tuple[Join, Split]] = {  # several of their tensors as one of ours, and the way back
    "": (torch.cat, lambda tensor, n: tensor.chunk(n)),  # rows, such as those of q, k and v: (3 D, D)
    "tokens": (lambda parts: torch.cat(parts, dim=1), lambda tensor, n: tensor.chunk(n, dim=1)),  # (1, 2, D)
    "stack": (torch.stack, lambda tensor, n: tensor.unbind()),  # the biases of q and v: (2, D)
    # Two heads, whose mean is the answer, are one that reads both class tokens.
    "columns": (lambda parts: torch.cat(parts, dim=1) / len(parts), lambda tensor, n: (tensor * n).chunk(n, dim=1)),
    "mean": (lambda parts: torch.stack(parts).mean(dim=0), lambda tensor, n: [tensor] * n),
}


class Row(NamedTuple):
    """A row of a table for one block and one leaf: a tensor of ours, and where theirs are."""

    our: str
    their: list[str]  # one name, or those of the tensors that are joined
    layout: str  # "", or what a table has behind " : "


def rows_of(table: Table, state: Mapping[str, Tensor]) -> list[Row]:
    """The rows whose tensors are all in ``state``; no tensor, or part of one, belongs to two rows."""
    rows: dict[str, Row] = {}
    used: set[tuple[str, str]] = set()
    for row in _candidates(table, _count_blocks(state)):
        part = row.layout if row.layout in PARTS else ""
        parts = {(name, part) for name in row.their}
        if row.our not in rows and used.isdisjoint(parts) and all(name in state for name in row.their):
            used |= parts
            rows[row.our] = row
    return list(rows.values())


def _count_blocks(state: Mapping[str, Tensor]) -> int:
    """At least as many as there are: no number in a name is larger."""
    return 1 + max((int(number) for name in state for number in re.findall(r"\d+", name)), default=0)


def _candidates(table: Table, blocks: int) -> Iterator[Row]:
    """The table's rows for each block and each leaf; alternatives come one after the other."""
    for our, alternatives in table.items():
        for template in (alternatives,) if isinstance(alternatives, str) else alternatives:
            for i in range(blocks) if "{i}" in our else (0,):
                for leaf in ("weight", "bias") if our.endswith("*") else ("",):
                    names, layout = _names(template, i, leaf)
                    yield Row(our.replace("{i}", str(i)).replace("*", leaf), names, layout)


def _names(template: str, i: int, leaf: str) -> tuple[list[str], str]:
    """``a.{i}.(b|c).* : bare`` -> ``[a.0.b.weight, a.0.c.weight], bare``."""
    name, _, layout = template.partition(" : ")
    name = name.replace("{i}", str(i)).replace("*", leaf)
    before, _, rest = name.partition("(")
    choices, _, after = rest.partition(")")
    return [f"{before}{choice}{after}" for choice in choices.split("|")], layout


def to_ours(table: Table, state: Mapping[str, Tensor]) -> State:
    """Tensors under our names; those that needn't be joined share their memory with theirs."""
    ours = {}
    for our, names, layout in rows_of(table, state):
        views = [_as_ours(state[name], layout) for name in names]
        ours[our] = views[0] if len(views) == 1 else JOINS[layout][0](views)
    return ours


def to_theirs(table: Table, ours: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> None:
    """Write our tensors into theirs, in place.

    Raises:
        ValueError: tensors of ours that have no place there, or another shape: which.
    """
    rest = dict(ours)
    for our, names, layout in rows_of(table, state):
        if our in rest:
            views = [_as_ours(state[name], layout) for name in names]
            tensor = rest.pop(our)
            parts = [tensor] if len(views) == 1 else JOINS[layout][1](tensor, len(views))
            for view, part in zip(views, parts, strict=True):
                if view.shape != part.shape:
                    raise ValueError(f"{our} has the shape {tuple(part.shape)}, {names[0]} {tuple(view.shape)}")
                view.copy_(part)
    if rest:
        raise ValueError(f"these tensors have no place there: {', '.join(rest)}")


def _as_ours(tensor: Tensor, layout: str) -> Tensor:
    """A view of their tensor, as ours is laid out."""
    width = len(tensor) // 3
    if layout == "queries":
        return tensor[:width]
    if layout == "keys and values":
        return tensor[width:]
    if layout == "bare":
        return tensor[(None,) * (3 - tensor.ndim)]
    return tensor
