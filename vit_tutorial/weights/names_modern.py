"""Lesson 15: published checkpoints of what came after 2020 under the names of ``ModernViT``.

DINOv2, DINOv3, CLIP's and SigLIP's image towers, EVA-02, BEiT, DeiT-3 and MAE, as timm, transformers and the authors
call their tensors. :mod:`vit_tutorial.weights.names` asks :func:`convert` first, which answers None for a plain ViT.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from dataclasses import fields as fields_of
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import interpolate

from vit_tutorial.data import CropMode, Preprocessing
from vit_tutorial.embeddings import Grid, ResizeRecipe, resize_position_embedding, sincos_position_embedding
from vit_tutorial.patches import Size, as_pair, grid_shape
from vit_tutorial.variants.modern import ModernConfig, ModernViT, Rotary
from vit_tutorial.weights import files

State = dict[str, Tensor]
IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
HALF = (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)
OPENAI = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
# Our name, and what it is with others: us, timm and the authors' own first, then transformers.
TOP = {
    "embed.cls_token": r"embed\.cls_token|cls_token|(embeddings\.)?class_embedding|embeddings\.cls_token",
    "embed.registers": r"embed\.registers|reg_token|(embeddings\.)?register_tokens|storage_tokens",
    "embed.position": r"embed\.position|pos_embed|positional_embedding|embeddings\.position_embedding(s|\.weight)",
    "embed.patches.proj.": (
        r"(embed\.patches|patch_embed)\.proj\.|conv1\.|embeddings\.patch_embeddings?\.(projection\.)?"
    ),
    "embed.norm.": r"embed\.norm\.|norm_pre\.|ln_pre\.|pre_layrnorm\.",
    "norm.": r"norm\.|ln_post\.|(post_)?layernorm\.",
    "pool_norm.": r"pool_norm\.|fc_norm\.|pooler\.layernorm\.",
    "pool.probe": r"pool\.probe|attn_pool\.latent|head\.probe",
    "pool.q.": r"(attn_)?pool\.q\.",
    "pool.kv.": r"(attn_)?pool\.kv\.",
    "pool.qkv.": r"head\.attention\.in_proj_",
    "pool.proj.": r"(attn_)?pool\.proj\.|head\.attention\.out_proj\.",
    "pool.norm.": r"(attn_)?pool\.norm\.|head\.layernorm\.",
    "pool.mlp.": r"(attn_)?pool\.mlp\.|head\.mlp\.",
    "head.weight": r"head\.(proj\.)?weight|classifier\.weight|visual_projection\.weight|proj",
    "head.bias": r"(head|classifier)\.bias",
    "shared.position_bias": (
        r"(rel_pos_bias|encoder\.relative_position_bias|shared_position_bias)\.relative_position_bias_table"
    ),
}
BLOCK = r"(blocks\.(\d+\.)?|(model\.)?(encoder\.)?layers?\.|transformer\.resblocks\.)(?P<i>\d+)\."
INSIDE = {
    "norm1.": r"norm1\.|ln_1\.|layer_?norm_?(1|before)\.",
    "norm2.": r"norm2\.|ln_2\.|layer_?norm_?(2|after)\.",
    "attention.bias": r"attention\.bias",
    "attention.qkv.": r"(attn|attention)\.qkv\.|attn\.in_proj_",
    "attention.q.": r"attn\.q_(proj\.)?(?=weight|bias)|(self_attn|attention)\.q_proj\.|attention\.attention\.query\.",
    "attention.k.": r"attn\.k_proj\.|(self_attn|attention)\.k_proj\.|attention\.attention\.key\.",
    "attention.v.": r"attn\.v_(proj\.)?(?=weight|bias)|(self_attn|attention)\.v_proj\.|attention\.attention\.value\.",
    "attention.q_norm.": r"(attn|attention)\.q_norm\.",
    "attention.k_norm.": r"(attn|attention)\.k_norm\.",
    "attention.norm.": r"(attn|attention)\.(norm|inner_attn_ln)\.",
    "attention.proj.": r"(attn|attention)\.(out_|o_)?proj\.|self_attn\.out_proj\.|attention\.output\.dense\.",
    "attention.position_bias": (
        r"attention\.position_bias|(attn\.|attention\.attention\.)?(relative_position_bias\.)?relative_position_bias_table"
    ),
    "scale1.gamma": r"(ls|scale)1\.gamma|gamma_1|lambda_1|layer_scale1\.lambda1",
    "scale2.gamma": r"(ls|scale)2\.gamma|gamma_2|lambda_2|layer_scale2\.lambda1",
    "mlp.fc1.": r"mlp\.(fc1|c_fc|w12|weights_in)\.|intermediate\.dense\.",
    "mlp.gate.": r"mlp\.(fc1_g|w1|gate_proj)\.",
    "mlp.value.": r"mlp\.(fc1_x|w2|up_proj)\.",
    "mlp.norm.": r"mlp\.(norm|ffn_ln)\.",
    "mlp.fc2.": r"mlp\.(fc2|c_proj|w3|weights_out|down_proj)\.|output\.dense\.",
}
TOWERS = ("visual.", "vision_model.")  # of a model of images and text, beside which stand
READ = r"visual_projection\.|classifier\.|head\."
# No answer depends on these: tables that can be computed, and what only pretraining needed.
UNUSED = (
    r"(.*\.)?(mask_token|bias_mask|periods|freqs_(cos|sin)|relative_position_index|position_ids)"
    r"|logit_(scale|bias)|local_cls_norm\..*"
)
PRETRAINING = {
    r"decoder(_|\.).*": "the decoder",
    r"lm_head\..*": "the head of masked pretraining",
    r"pooler\.dense\..*": "the pooler",
}
# Names that only models of after 2020 have; what stands in other models as well is refused by name.
MODERN = re.compile(
    r"(^|\.)(ls[12]\.gamma|gamma_[12]|lambda_[12]|layer_scale[12]\.lambda1|scale[12]\.gamma|reg_token|register_tokens"
    r"|storage_tokens|fc_norm\.|pooler\.layernorm\.|q_norm\.|k_norm\.|attn\.norm\.|inner_attn_ln|q_bias|v_bias"
    r"|attn\.q_proj\.|mlp\.(w\d+|fc1_g|weights_in|gate_proj|norm|ffn_ln)\.|attn_pool\.|head\.probe|norm_pre\.|ln_pre\."
    r"|pre_layrnorm\.|relative_position_bias_table|(class|patch|position)_embedding(\.|$)|embed\.registers|embed\.norm\."
    r"|pool_norm\.|pool\.probe|attention\.bias$|attention\.position_bias$|attention\.norm\.)"
)


@dataclass(frozen=True)
class Family:
    """What a family's tensors don't say."""

    statistics: tuple[tuple[float, ...], tuple[float, ...]]
    crop: CropMode = 0.9
    interpolation: str = "bicubic"
    norm_eps: float = 1e-6
    gelu: str = "exact"
    rotary: Rotary | None = None
    neighbours: bool = False  # rotary pairs are (2 i, 2 i + 1) in the file, and (i, i + d / 2) with us
    pool: str = "cls"
    recipe: ResizeRecipe = "timm"


EVA_ROTARY = Rotary("index", temperature=10_000.0, reference=(16, 16))
FAMILIES = {
    "DINOv2": Family(IMAGENET, 224 / 256, recipe="dino"),
    "DINOv3": Family(IMAGENET, "none", "bilinear", norm_eps=1e-5, rotary=Rotary()),
    "CLIP": Family(OPENAI, 1.0, norm_eps=1e-5),
    "OpenAI's CLIP": Family(OPENAI, 1.0, norm_eps=1e-5, gelu="quick"),
    "SigLIP": Family(HALF, "none", gelu="tanh", pool="attention"),
    "EVA-02": Family(OPENAI, 0.9, rotary=EVA_ROTARY, neighbours=True),
    "EVA": Family(OPENAI, 0.9),
    "BEiT": Family(HALF, 0.9),
    "transformers' BEiT": Family(HALF, 0.9, norm_eps=1e-12),
    "DeiT-3": Family(IMAGENET, 1.0),
    "MAE": Family(IMAGENET, 224 / 256),
    "another": Family(IMAGENET, 0.9),
}


def convert(
    state: State,
    *,
    num_heads: int | None = None,
    image_size: Size | None = None,
    wanted_size: Size | None = None,
    gelu: str | None = None,
    norm_eps: float | None = None,
    preprocess: Preprocessing | None = None,
    parts: Mapping[str, Any] | None = None,
) -> tuple[ModernConfig, State, Preprocessing, dict[str, Any]] | None:
    """Config, tensors under our names, preprocessing and what was assumed; None if this is no such model.

    Args:
        state: names and tensors, wrappers off.
        num_heads: h; this and the next ones as :func:`vit_tutorial.weights.convert` has them.
        image_size: that the positions were learned on.
        wanted_size: what the model shall take, if the file doesn't tell.
        gelu: "exact", "tanh" or "quick".
        norm_eps: epsilon of the norms.
        preprocess: as the source evaluates.
        parts: fields of :class:`ModernConfig` that no tensor shows ("pool", "rotary", ...), and how the file orders the
            rotary pairs: "neighbours" and "columns_first".

    Raises:
        ValueError: names that are missing or too many, wrong shapes, or a value that doesn't go with the tensors.
    """
    if parts is None and not _twice(state) and not any(MODERN.search(name) for name in state):
        return None
    family = family_of(state)
    about, said = FAMILIES[family], dict(parts or {})
    renamed, left_out = rename(state)
    if "classifier.weight" in state and family in ("OpenAI's CLIP", "SigLIP"):
        renamed, more = as_classifier(renamed, family)
        said, left_out = {"pool": "mean"} | said, left_out + more
    biased = [part for part in "qkv" if f"blocks.0.attention.{part}.bias" in renamed]
    ours = join(renamed)
    fields = sizes(ours, biased)
    neighbours, columns_first = said.pop("neighbours", about.neighbours), said.pop("columns_first", False)
    for name, value in said.items():
        if fields.setdefault(name, value) != value:
            raise ValueError(f"it should have {name}={value!r}, and its tensors are of a model with {fields[name]!r}")
    assumed: dict[str, Any] = {"left_out": ", ".join(left_out)} if left_out else {}
    for name, value in (("num_heads", num_heads), ("gelu", gelu), ("norm_eps", norm_eps)):
        if value is not None and fields.setdefault(name, value) != value:
            raise ValueError(f"its tensors have {name}={fields[name]!r}, got {value!r}")
    for name, guess in guesses(about, fields, known=parts is not None).items():
        if name not in fields:
            fields[name] = assumed[name] = guess
    fields["num_heads"] = fields.get("num_heads") or assumed.setdefault("num_heads", usual_heads(fields["dim"]))
    told = image_size or fields.pop("image_size", None)
    fields["image_size"], sure = image_size_of(ours, fields, told, wanted_size, family)
    if not sure:
        assumed["image_size"] = fields["image_size"]
    ours = positions(ours, fields)
    if fields.get("rotary") is not None:
        ours = reorder_pairs(ours, fields["num_heads"], neighbours, columns_first)
    config = ModernConfig(**fields)
    check(config, ours)
    if preprocess is None:
        preprocess = assumed["preprocess"] = preprocessing(about, config)
    return config, {name: tensor.contiguous() for name, tensor in ours.items()}, preprocess, assumed


def guesses(about: Family, fields: Mapping[str, Any], known: bool) -> dict[str, Any]:
    """What is taken for fields that neither the tensors nor a config tells."""
    taken: dict[str, Any] = {"norm_eps": about.norm_eps}
    if not fields["gated"]:  # which has SiLU
        taken["gelu"] = about.gelu
    if known:
        return taken
    no_positions = fields["position"] == "none" and "position_bias" not in fields
    taken["rotary"] = about.rotary or (EVA_ROTARY if no_positions else None)
    taken["pool"] = about.pool if fields["class_token"] and not fields["pool_norm"] else "mean"
    return taken


def as_classifier(renamed: State, family: str) -> tuple[State, list[str]]:
    """Transformers' classifiers on CLIP and SigLIP read the mean of all patches; CLIP's before the last norm."""
    unread = r"pool\." if family == "SigLIP" else r"norm\."
    kept = {name: tensor for name, tensor in renamed.items() if not re.match(unread, name)}
    what = "the attention pooling" if family == "SigLIP" else "the last norm"
    return kept, [f"{what}, which the classifier doesn't read"] * (len(kept) < len(renamed))


def family_of(state: State) -> str:
    """The family whose parts these are, for what the tensors don't say."""

    def has(pattern: str) -> bool:
        return any(re.search(pattern, name) for name in state)

    if has(r"relative_position_bias_table"):
        return "transformers' BEiT" if has(r"lambda_1") else "BEiT"
    if has(r"storage_tokens|embeddings\.patch_embeddings\.weight") or (
        has(r"reg_token$") and has(r"gamma_1$") and not has(r"pos_embed")
    ):
        return "DINOv3"
    if has(r"pre_layrnorm|ln_pre"):
        return "OpenAI's CLIP"
    if has(r"norm_pre\."):
        return "CLIP"
    if has(r"head\.probe|attn_pool\.latent|pool\.probe|embeddings\.position_embedding\."):
        return "SigLIP"
    if has(r"\b[qv]_bias$|attn\.q_proj\."):
        gated = has(r"mlp\.(w1|fc1_g)\.") or _twice(state)
        return "EVA-02" if gated else "EVA"
    if has(r"lambda_1$"):
        return "transformers' BEiT"
    if has(r"layer_scale1|mask_token|register_tokens"):
        return "DINOv2"
    if has(r"gamma_1$"):
        return "DeiT-3"
    return "MAE" if has(r"fc_norm\.") and not has(r"ls1|reg_token") else "another"


def _twice(state: State) -> bool:
    first, second = state.get("blocks.0.mlp.fc1.weight"), state.get("blocks.0.mlp.fc2.weight")
    return first is not None and second is not None and len(first) == 2 * second.shape[-1]


def rename(state: State) -> tuple[State, list[str]]:
    """Tensors under our names, or names that :func:`join` makes ours of; and what was left out."""
    left_out: dict[str, None] = {}
    if tower := next((tower for tower in TOWERS if any(name.startswith(tower) for name in state)), None):
        kept = {
            name.removeprefix(tower): tensor for name, tensor in state.items() if re.match(rf"{tower}|{READ}", name)
        }
        if len(kept) + sum(bool(re.fullmatch(r"logit_(scale|bias)", name)) for name in state) < len(state):
            left_out["the text tower"] = None
        state = kept
    if "lm_head.weight" in state:  # its norm is part of it
        state = {name: tensor for name, tensor in state.items() if not name.startswith("layernorm.")}
    renamed, unknown = {}, []
    masks = {name.removesuffix("_mask") for name in state if name.endswith("qkv.bias_mask")}
    for name, tensor in state.items():
        our = _our_name(name)
        if not tensor.numel() and our == "embed.registers":  # transformers' DINOv3 may have none, in a tensor
            continue
        if what := next((what for pattern, what in PRETRAINING.items() if re.fullmatch(pattern, name)), None):
            left_out[what] = None
        elif name in masks:  # DINOv3's: k's part counts as zeros
            q, _, v = tensor.chunk(3)
            renamed[f"{our}".replace("qkv.bias", "q.bias")], renamed[f"{our}".replace("qkv.bias", "v.bias")] = q, v
        elif our is not None and our in renamed:
            raise ValueError(f"{files.some([name])}: a second tensor for {our}")
        elif our is not None:
            renamed[our] = tensor.mT if name == "proj" else tensor  # OpenAI's projection is used from the other side
        elif not re.fullmatch(UNUSED, name):
            unknown.append(name)
    if unknown:
        raise ValueError(f"{len(unknown)} unexpected: {files.some(unknown)}: parts which ModernConfig can't express")
    return renamed, list(left_out)


def _our_name(name: str) -> str | None:
    table, prefix = TOP, ""
    if block := re.match(BLOCK, name):
        table, prefix, name = INSIDE, f"blocks.{int(block['i'])}.", name[block.end() :]
    for our, theirs in table.items():
        if match := re.match(theirs, name):
            leaf = name[match.end() :]
            if our.endswith(".") and re.fullmatch(r"(fc[12]\.)?(weight|bias)", leaf):
                return prefix + our + leaf
            if not our.endswith(".") and not leaf:
                return prefix + our
    return None


def join(ours: State) -> State:
    """What others keep apart, put together: q, k and v; gate and value; what all blocks share."""
    joined = dict(ours)
    for name in ours:
        if name.endswith("attention.q.weight"):
            start = name.removesuffix("q.weight")
            joined[f"{start}qkv.weight"] = torch.cat([_take(joined, f"{start}{part}.weight") for part in "qkv"])
        if name.endswith("mlp.value.weight"):
            start = name.removesuffix("value.weight")
            for leaf in ("weight", "bias"):
                parts = ("gate", "value") if f"{start}gate.{leaf}" in joined else ("value",)
                joined[f"{start}fc1.{leaf}"] = torch.cat([_take(joined, f"{start}{part}.{leaf}") for part in parts])
        if name.startswith("pool.qkv."):
            leaf, whole = name.removeprefix("pool.qkv."), joined.pop(name)
            joined[f"pool.q.{leaf}"], joined[f"pool.kv.{leaf}"] = whole.tensor_split([len(whole) // 3])
    for name in list(joined):
        if name.startswith("blocks.") and name.endswith("attention.qkv.weight"):
            _join_biases(joined, name.removesuffix("qkv.weight"))
    if "shared.position_bias" in joined:
        shared = joined.pop("shared.position_bias")
        for name in [name for name in joined if name.endswith("norm1.weight")]:
            own = name.replace("norm1.weight", "attention.position_bias")
            joined[own] = joined[own] + shared if own in joined else shared.clone()
    if "embed.cls_token" in joined:
        joined["embed.cls_token"] = joined["embed.cls_token"].reshape(1, 1, -1)
    if "embed.position" in joined and joined["embed.position"].ndim == 2:
        joined["embed.position"] = joined["embed.position"][None]
    if "head.weight" in joined and "head.bias" not in joined:  # CLIP's projection
        joined["head.bias"] = joined["head.weight"].new_zeros(len(joined["head.weight"]))
    return joined


def _take(state: State, name: str) -> Tensor:
    if name not in state:
        raise ValueError(f"queries, keys and values apart, or gate and value, and one of them is missing: {name}")
    return state.pop(name)


def _join_biases(state: State, start: str) -> None:
    """The biases of q and v as rows; or those of all three in one, an absent one as zeros."""
    found = {part: state.pop(f"{start}{part}.bias") for part in "qkv" if f"{start}{part}.bias" in state}
    if list(found) == ["q", "v"]:
        state[f"{start}bias"] = torch.stack(list(found.values()))
    elif found:
        zeros = torch.zeros_like(next(iter(found.values())))
        state[f"{start}qkv.bias"] = torch.cat([found.get(part, zeros) for part in "qkv"])


def sizes(ours: State, biased: list[str]) -> dict[str, Any]:
    """The fields of a config that tensors show; ``biased``: of q, k and v, those that had a bias of their own."""
    for name, rank in (
        ("embed.patches.proj.weight", 4),
        ("blocks.0.mlp.fc2.weight", 2),
        ("blocks.0.mlp.fc1.weight", 2),
    ):
        if name not in ours:
            raise ValueError(f"there is no {name} among the {len(ours)} names: {files.some(list(ours))}")
        if ours[name].ndim != rank:
            raise ValueError(f"{name} {tuple(ours[name].shape)} must have {rank} axes")
    D, C, P, Q = ours["embed.patches.proj.weight"].shape
    head, hidden = ours.get("head.weight"), ours["blocks.0.mlp.fc2.weight"].shape[-1]
    rows = ours.get("blocks.0.attention.bias")
    if not biased and rows is not None:  # our own file
        biased = ["q", "v"]
    fields: dict[str, Any] = {
        "patch_size": P if P == Q else (P, Q),
        "in_channels": C,
        "num_classes": 0 if head is None else len(head),
        "dim": D,
        "depth": len({name.split(".")[1] for name in ours if name.startswith("blocks.")}),
        "mlp_dim": hidden,
        "qkv_bias": bool(biased) or "blocks.0.attention.qkv.bias" in ours,
        "position": "learned" if "embed.position" in ours else "none",
        "class_token": "embed.cls_token" in ours,
        "registers": ours["embed.registers"].shape[-2] if "embed.registers" in ours else 0,
        "pre_norm": "embed.norm.weight" in ours,
        "norm": "layer" if "blocks.0.norm1.bias" in ours else "rms",
        "qk_norm": "blocks.0.attention.q_norm.weight" in ours,
        "attention_norm": "blocks.0.attention.norm.weight" in ours,
        "layer_scale": 1e-5 if "blocks.0.scale1.gamma" in ours else None,
        "gated": len(ours["blocks.0.mlp.fc1.weight"]) == 2 * hidden,
        "mlp_norm": "blocks.0.mlp.norm.weight" in ours,
        "final_norm": "norm.weight" in ours,
        "pool_norm": "pool_norm.weight" in ours,
    }
    if biased:
        fields["k_bias"] = biased != ["q", "v"]
    table, q_norm = ours.get("blocks.0.attention.position_bias"), ours.get("blocks.0.attention.q_norm.weight")
    if table is not None and table.ndim == 2:
        fields |= {"position_bias": True, "num_heads": table.shape[1]}
    if q_norm is not None:
        fields["num_heads"] = D // len(q_norm)
    if "pool.mlp.fc1.weight" in ours:
        fields |= {"pool": "attention", "pool_mlp_dim": len(ours["pool.mlp.fc1.weight"])}
    elif head is not None and head.shape[-1] == 2 * D:
        fields["pool"] = "cls+mean"
    return fields


def usual_heads(D: int) -> int:
    """H of the published models of this width: 64 numbers a head, but for So400m, H, g and G, with 72 to 104."""
    if D % 64:
        raise ValueError(f"the shapes don't tell the number of heads, and dim {D} is no multiple of 64: give num_heads")
    return 16 if D in (1152, 1280, 1408, 1664) else D // 64


def image_size_of(
    ours: State, fields: Mapping[str, Any], told: Size | None, wanted: Size | None, family: str
) -> tuple[Size, bool]:
    """The size that the positions are for, and whether that is sure."""
    P, Q = as_pair(fields["patch_size"], "patch_size")
    position, table = ours.get("embed.position"), ours.get("blocks.0.attention.position_bias")
    if told is not None:
        return told, True
    prefix = int(fields["class_token"])
    counts = []
    if position is not None:
        T = position.shape[1]
        counts = [T - prefix - fields["registers"], T - prefix, T]
    elif table is not None:
        side = (math.isqrt(len(table) - 3) + 1) // 2
        counts = [side**2] if (2 * side - 1) ** 2 == len(table) - 3 else []
    pair = None if wanted is None else as_pair(wanted, "image_size")
    for N in counts:  # published files are squares; a rectangle must be the size that is wanted
        side = math.isqrt(max(N, 0))
        if side and side**2 == N:
            size = (side * P, side * Q)
            return size[0] if P == Q else size, pair == size
        if pair is not None and (pair[0] // P) * (pair[1] // Q) == N:
            return pair, True
    if wanted is not None and not counts:
        return wanted, True
    if counts or position is not None or table is not None:
        raise ValueError(
            "its positions fill no square: give image_size, the height and width of the pictures they were learned on"
        )
    usual = 256 if family == "DINOv3" else 224
    return (usual // P * P, usual // Q * Q) if P != Q else usual // P * P, False


def positions(ours: State, fields: Mapping[str, Any]) -> State:
    """Positions for class token and patches alone: the class token's may be zeros, and registers take theirs in."""
    position = ours.get("embed.position")
    if position is None:
        return ours
    rows, columns = grid_shape(fields["image_size"], fields["patch_size"])
    N, cls, registers = rows * columns, int(fields["class_token"]), fields["registers"]
    ours = dict(ours)
    if position.shape[1] == cls + registers + N and registers:
        ours["embed.registers"] = ours["embed.registers"] + position[:, cls : cls + registers]
        position = torch.cat([position[:, :cls], position[:, cls + registers :]], dim=1)
    elif position.shape[1] == N and cls:
        position = torch.cat([position.new_zeros(1, 1, position.shape[-1]), position], dim=1)
    if position.shape[1] != cls + N:
        raise ValueError(
            f"image_size {fields['image_size']} has {rows} x {columns} = {N} patches, and the positions are for "
            f"{position.shape[1]} tokens: give the image_size that they were learned on"
        )
    return ours | {"embed.position": position}


def reorder_pairs(ours: State, num_heads: int, neighbours: bool, columns_first: bool, back: bool = False) -> State:
    """Rotary pairs (2 i, 2 i + 1), or those of the columns first, moved to where ours are: (i, i + d / 2), rows first.

    Queries and keys move alike, so no score changes. ``back`` undoes it.
    """
    if not neighbours and not columns_first:
        return ours
    D = ours["embed.patches.proj.weight"].shape[0]
    d = D // num_heads
    order = []  # ours from theirs
    for j in range(d):
        half, pair = divmod(j, d // 2)
        if columns_first:
            pair = (pair + d // 4) % (d // 2)
        order.append(2 * pair + half if neighbours else half * (d // 2) + pair)
    within = torch.tensor(order)
    if back:
        within = within.argsort()
    rows = torch.cat([within + head * d for head in range(num_heads)])  # (D,)
    moved = dict(ours)
    for name, tensor in ours.items():
        if name.endswith("attention.qkv.weight") or name.endswith("attention.qkv.bias"):
            q, k, v = tensor.chunk(3)
            moved[name] = torch.cat([q[rows], k[rows], v])
        elif name.endswith("attention.bias"):  # of q and v
            moved[name] = torch.stack([tensor[0][rows], *tensor[1:]])
        elif re.search(r"attention\.[qk]_norm\.(weight|bias)$", name):
            moved[name] = tensor[within]
    return moved


def check(config: ModernConfig, ours: State) -> None:
    """Raise a ValueError that lists what is missing, too many or of another shape."""
    if any(name.endswith("scale1.gamma") for name in ours) and not any(name.endswith("scale2.gamma") for name in ours):
        raise ValueError("layer scale behind the attention alone, which ModernConfig can't express")
    with torch.device("meta"):
        model = ModernViT(replace(config, depth=1)).state_dict()
    expected = {name: tuple(tensor.shape) for name, tensor in model.items()}
    blocks = {name for name in expected if name.startswith("blocks.0.")}
    for i in range(1, config.depth):
        expected |= {name.replace("blocks.0.", f"blocks.{i}.", 1): expected[name] for name in blocks}
    files.compare(expected, {name: tuple(tensor.shape) for name, tensor in ours.items()})
    files.check_numbers(ours)


def preprocessing(about: Family, config: ModernConfig) -> Preprocessing:
    """As the family's authors evaluate."""
    mean, std = about.statistics
    if config.in_channels != 3:
        mean = std = (0.5,) * config.in_channels
    return Preprocessing(as_pair(config.image_size, "image_size"), mean, std, about.crop, about.interpolation)


# -------------------------------------------------------------------------------------------------- another size


def with_size(
    config: ModernConfig, state: State, image_size: Size, recipe: ResizeRecipe = "timm"
) -> tuple[ModernConfig, State]:
    """The config and tensors for pictures of another size: learned positions and position biases are resized."""
    old, config = config, replace(config, image_size=image_size)
    if config.grid == old.grid:
        return config, state
    state = dict(state)
    if config.position == "learned":
        prefix = int(config.class_token)
        state["embed.position"] = resize_position_embedding(
            state["embed.position"], old.grid, config.grid, prefix_tokens=prefix, recipe=recipe
        )
    elif config.position == "sincos":
        prefix_positions = torch.zeros(1, int(config.class_token), config.dim)
        state["embed.position"] = torch.cat(
            [prefix_positions, sincos_position_embedding(config.grid, config.dim)], dim=1
        )
    for name in [name for name in state if name.endswith("attention.position_bias")]:
        state[name] = resize_position_bias(state[name], old.grid, config.grid, recipe)
    return config, state


def resize_position_bias(table: Tensor, old_grid: Grid, new_grid: Grid, recipe: ResizeRecipe = "timm") -> Tensor:
    """A position bias ((2 r - 1)(2 c - 1) + 3, h) for another grid of patches; the class token's three rows stay.

    "huggingface" stretches the distances evenly. The other recipes keep the near ones and stretch the far ones, by a
    geometric series, as BEiT's own code does; between them they are linear, as timm is.

    Raises:
        ValueError: the table isn't the old grid's.
    """
    r, c = (2 * side - 1 for side in old_grid)
    R, C = (2 * side - 1 for side in new_grid)
    if table.ndim != 2 or len(table) != r * c + 3:
        raise ValueError(f"a grid of {old_grid} needs a table of {r * c + 3} rows, got {tuple(table.shape)}")
    if old_grid == new_grid:
        return table
    maps = table[:-3].mT.reshape(-1, r, c)  # (h, r, c), both of distances
    if recipe == "huggingface":
        maps = interpolate(maps[None], size=(R, C), mode="bilinear")[0]  # (h, R, C)
    else:
        y, x = _between(r, R).to(maps), _between(c, C).to(maps)  # (R, r), (C, c)
        maps = y @ maps @ x.mT  # (h, R, C)
    return torch.cat([maps.flatten(1).mT, table[-3:]])


def _between(old: int, new: int) -> Tensor:
    """(new, old): how much of each old distance a new one is made of."""
    half, low, high = old // 2, 1.01, 1.5
    while high - low > 1e-6:  # the ratio with which old // 2 steps reach new // 2
        ratio = (low + high) / 2
        low, high = (low, ratio) if (1 - ratio**half) / (1 - ratio) > new // 2 else (ratio, high)
    far = np.cumsum(ratio ** np.arange(half))  # 1, 1 + ratio, ...
    places = np.concatenate([-far[::-1], [0.0], far])  # (old,)
    wanted = np.arange(new) - new // 2
    return torch.from_numpy(np.stack([np.interp(wanted, places, row) for row in np.eye(old)], axis=1))


# -------------------------------------------------------------------------------------------------- the way back


def to_timm(model: ModernViT) -> State:
    """As :func:`vit_tutorial.weights.to_timm`. Registers have no positions in timm's names: ``no_embed_class``.

    Raises:
        ValueError: parts that none of timm's classes has together.
    """
    config, ours = model.config, dict(model.state_dict())
    eva = config.rotary is not None or "blocks.0.attention.bias" in ours
    if config.pool == "cls+mean":
        raise ValueError("timm reads the class token or the mean, this model's head both: to_huggingface has that")
    if config.stem is not None or (config.position_bias and (config.rotary is not None or config.qk_norm)):
        raise ValueError(f"no class of timm's has the parts of {config}")
    if config.rotary is not None:
        ours = reorder_pairs(ours, config.num_heads, config.rotary.coordinates == "index", False, back=True)
    if "embed.position" in ours and config.registers and config.class_token:  # theirs are the patches' alone
        ours["embed.cls_token"] = ours["embed.cls_token"] + ours["embed.position"][:, :1]
        ours["embed.position"] = ours["embed.position"][:, 1:]
    names = {
        r"embed\.(cls_token)": r"\1",
        r"embed\.registers": "reg_token",
        r"embed\.position": "pos_embed",
        r"embed\.patches": "patch_embed",
        r"embed\.norm": "norm_pre",
        r"pool_norm": "fc_norm",
        r"pool\.probe": "attn_pool.latent",
        r"pool\.": "attn_pool.",
        r"(blocks\.\d+\.)attention\.position_bias": r"\1attn.relative_position_bias_table",
        r"(blocks\.\d+\.)attention\.": r"\1attn.",
        r"(blocks\.\d+\.)scale(\d)\.gamma": r"\1gamma_\2" if eva or config.position_bias else r"\1ls\2.gamma",
    }
    theirs: State = {}
    for name, tensor in ours.items():
        new = _renamed(name, names)
        if not name.endswith("attention.bias"):
            theirs[new] = tensor
        else:
            theirs[f"{new.removesuffix('bias')}q_bias"], theirs[f"{new.removesuffix('bias')}v_bias"] = tensor
    return {name: tensor.contiguous() for name, tensor in theirs.items()}


def _renamed(name: str, names: Mapping[str, str]) -> str:
    for pattern, new in names.items():
        if re.match(pattern, name):
            return re.sub(rf"^{pattern}", new, name, count=1)
    return name


COMMON = {  # transformers' names in files
    r"embed\.cls_token": "embeddings.cls_token",
    r"embed\.registers": "embeddings.register_tokens",
    r"embed\.position": "embeddings.position_embeddings",
    r"embed\.patches\.proj": "embeddings.patch_embeddings.projection",
    r"norm\.": "layernorm.",
    r"head\.": "classifier.",
}
DINOV2 = COMMON | {
    r"blocks\.(\d+)\.attention\.proj": r"encoder.layer.\1.attention.output.dense",
    r"blocks\.(\d+)\.scale(\d)\.gamma": r"encoder.layer.\1.layer_scale\2.lambda1",
    r"blocks\.": "encoder.layer.",
}
BEIT = COMMON | {
    r"blocks\.(\d+)\.attention\.position_bias": (
        r"encoder.layer.\1.attention.attention.relative_position_bias.relative_position_bias_table"
    ),
    r"blocks\.(\d+)\.attention\.proj": r"encoder.layer.\1.attention.output.dense",
    r"blocks\.(\d+)\.scale(\d)\.gamma": r"encoder.layer.\1.lambda_\2",
    r"blocks\.(\d+)\.norm1": r"encoder.layer.\1.layernorm_before",
    r"blocks\.(\d+)\.norm2": r"encoder.layer.\1.layernorm_after",
    r"blocks\.(\d+)\.mlp\.fc1": r"encoder.layer.\1.intermediate.dense",
    r"blocks\.(\d+)\.mlp\.fc2": r"encoder.layer.\1.output.dense",
    r"pool_norm": "pooler.layernorm",
}
DINOV3 = {
    r"embed\.cls_token": "embeddings.cls_token",
    r"embed\.registers": "embeddings.register_tokens",
    r"embed\.patches\.proj": "embeddings.patch_embeddings",
    r"blocks\.(\d+)\.attention\.proj": r"layer.\1.attention.o_proj",
    r"blocks\.(\d+)\.scale(\d)\.gamma": r"layer.\1.layer_scale\2.lambda1",
    r"blocks\.(\d+)\.mlp\.fc1": r"layer.\1.mlp.up_proj",
    r"blocks\.(\d+)\.mlp\.fc2": r"layer.\1.mlp.down_proj",
    r"blocks\.": "layer.",
}
CLIP = {
    r"embed\.cls_token": "vision_model.embeddings.class_embedding",
    r"embed\.position": "vision_model.embeddings.position_embedding.weight",
    r"embed\.patches\.proj": "vision_model.embeddings.patch_embedding",
    r"embed\.norm": "vision_model.pre_layrnorm",
    r"blocks\.(\d+)\.attention\.proj": r"vision_model.encoder.layers.\1.self_attn.out_proj",
    r"blocks\.(\d+)\.norm(\d)": r"vision_model.encoder.layers.\1.layer_norm\2",
    r"blocks\.": "vision_model.encoder.layers.",
    r"norm\.": "vision_model.post_layernorm.",
    r"pool\.probe": "vision_model.head.probe",
    r"pool\.proj": "vision_model.head.attention.out_proj",
    r"pool\.norm": "vision_model.head.layernorm",
    r"pool\.mlp": "vision_model.head.mlp",
    r"head\.weight": "visual_projection.weight",
}


def to_huggingface(model: ModernViT, version: int = 4) -> State:
    """As :func:`vit_tutorial.weights.to_huggingface`, in the names of files, which every version reads.

    Raises:
        ValueError: parts that none of transformers' models has together, or version 5's names.
    """
    if version != 4:
        raise ValueError(f"a ModernViT is written under the names of files, version=4, got {version!r}")
    config, ours = model.config, dict(model.state_dict())
    kind = _transformers_kind(config)
    q, k, v = ("q_proj", "k_proj", "v_proj") if kind in ("DINOv3", "CLIP", "SigLIP") else ("query", "key", "value")
    inner = {"DINOv3": "attention", "CLIP": "self_attn", "SigLIP": "self_attn"}.get(kind, "attention.attention")
    names = {"DINOv2": DINOV2, "DINOv3": DINOV3, "BEiT": BEIT}.get(kind, CLIP)
    start = {"DINOv3": "layer", "CLIP": "vision_model.encoder.layers", "SigLIP": "vision_model.encoder.layers"}
    theirs: State = {}
    for name, tensor in ours.items():
        block = re.match(r"blocks\.(\d+)\.", name)
        layer = f"{start.get(kind, 'encoder.layer')}.{block[1]}." if block else ""
        if re.search(r"attention\.(qkv\.(weight|bias)|bias)$", name):
            leaf = name.rpartition(".")[2]
            there = [part for part, has in zip((q, k, v), _biased(config), strict=True) if has or leaf == "weight"]
            parts = tensor.unbind() if name.endswith("attention.bias") else tensor.chunk(3)
            theirs |= {f"{layer}{inner}.{part}.{leaf}": t for part, t in zip(there, parts, strict=True)}
        elif config.gated and re.search(r"mlp\.fc1", name):
            leaf = name.rpartition(".")[2]
            if kind == "DINOv2":
                theirs[f"{layer}mlp.weights_in.{leaf}"] = tensor
            else:
                theirs[f"{layer}mlp.gate_proj.{leaf}"], theirs[f"{layer}mlp.up_proj.{leaf}"] = tensor.chunk(2)
        elif config.gated and kind == "DINOv2" and re.search(r"mlp\.fc2", name):
            theirs[f"{layer}mlp.weights_out.{name.rpartition('.')[2]}"] = tensor
        elif name.startswith("pool.q.") or name.startswith("pool.kv."):
            leaf = name.rpartition(".")[2]
            both = torch.cat([ours[f"pool.q.{leaf}"], ours[f"pool.kv.{leaf}"]])
            theirs[f"vision_model.head.attention.in_proj_{leaf}"] = both
        else:
            theirs[_renamed(name, names)] = tensor
    if kind == "DINOv3" and not config.registers:  # which it has always
        theirs["embeddings.register_tokens"] = ours["embed.cls_token"][:, :0]
    if kind in ("CLIP", "SigLIP"):
        if "head.bias" in theirs and theirs.pop("head.bias").any():
            raise ValueError("CLIP's projection has no bias, and this head's isn't zero")
        for name in ("class_embedding", "position_embedding.weight"):
            if (whole := f"vision_model.embeddings.{name}") in theirs:
                theirs[whole] = theirs[whole].squeeze(0).squeeze(0) if "class" in name else theirs[whole].squeeze(0)
    whose = {"DINOv2": "dinov2_with_registers." if config.registers else "dinov2.", "BEiT": "beit."}.get(kind, "")
    if config.num_classes and whose:
        theirs = {name if name.startswith("classifier.") else whose + name: t for name, t in theirs.items()}
    return {name: tensor.contiguous() for name, tensor in theirs.items()}


def _biased(config: ModernConfig) -> tuple[bool, bool, bool]:
    return config.qkv_bias, config.qkv_bias and config.k_bias, config.qkv_bias


def _transformers_kind(config: ModernConfig) -> str:
    """Which of transformers' models has just these parts."""
    plain = {f.name: f.default for f in fields_of(ModernConfig)}
    free = {
        "image_size",
        "patch_size",
        "in_channels",
        "num_classes",
        "dim",
        "depth",
        "num_heads",
        "mlp_dim",
        "qkv_bias",
    }
    free |= {"dropout", "attention_dropout", "drop_path", "norm_eps", "gelu"}
    used = {name for name, default in plain.items() if name not in free and getattr(config, name) != default}
    if config.rotary is not None and used <= {"rotary", "position", "registers", "layer_scale", "gated", "k_bias"}:
        if config.rotary.coordinates == "centred" and config.layer_scale is not None and not config.num_classes:
            return "DINOv3"
    elif config.layer_scale is not None and used <= {"registers", "layer_scale", "gated", "pool"}:
        if config.pool == "cls+mean" or (config.pool == "cls" and not config.num_classes):
            return "DINOv2"
    elif used <= {"position", "position_bias", "layer_scale", "pool", "pool_norm", "final_norm", "k_bias"}:
        if not config.k_bias and config.pool == "mean" and config.pool_norm and not config.final_norm:
            return "BEiT"
    elif used == {"pre_norm"}:
        return "CLIP"
    elif used <= {"class_token", "pool", "pool_mlp_dim"} and config.pool == "attention" and not config.num_classes:
        return "SigLIP"
    raise ValueError(
        f"none of transformers' models has the parts {files.some(sorted(used))} together: DINOv2, DINOv3, CLIP, SigLIP "
        "and BEiT have those of their own; to_timm may"
    )
