"""Lesson 09: published checkpoints under our names, and ours under theirs: a table of names and a function a library.

>>> import vit_tutorial as vt
>>> model, _, pixels = vt.load("digits")
>>> told = {"num_heads": 4, "image_size": 8, "gelu": "exact", "norm_eps": 1e-6, "preprocess": pixels, "plain": True}
>>> config, state_dict, preprocess = vt.weights.convert(vt.weights.to_timm(model), **told)
>>> config.image_size, config.dim, config.depth
(8, 64, 4)

A file is read in five steps: wrappers off (``unwrap``), whose names are these (:func:`_identify`), that
library's oddities (``mend_...``), its table (:func:`names_of`), and the config that the shapes tell. A new library is a
table, a function if it has oddities, and a line in ``SOURCES``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from vit_tutorial.data import CropMode, Preprocessing
from vit_tutorial.embeddings import Position, sincos_position_embedding
from vit_tutorial.mlp import Gelu
from vit_tutorial.patches import Size, as_pair
from vit_tutorial.variants.hybrid import ConvStem, ResNetStem
from vit_tutorial.variants.modern import ModernViT
from vit_tutorial.vit import Pool, Stem, ViT, ViTConfig
from vit_tutorial.weights import files
from vit_tutorial.weights import names_modern as convert_modern
from vit_tutorial.weights.unwrap import AVERAGE, HEAD, State, unwrap

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
# SigLIP's image tower in big_vision's files; MAPHead_0 is its attention pooling.
SIGLIP = BIG_VISION | {
    "pool.probe": "MAPHead_0/probe",
    "pool.q.*": "MAPHead_0/MultiHeadDotProductAttention_0/query/*",
    "pool.kv.*": "MAPHead_0/MultiHeadDotProductAttention_0/(key|value)/*",
    "pool.proj.*": "MAPHead_0/MultiHeadDotProductAttention_0/out/*",
    "pool.norm.*": "MAPHead_0/LayerNorm_0/*",
    "pool.mlp.fc1.*": "MAPHead_0/MlpBlock_0/Dense_0/*",
    "pool.mlp.fc2.*": "MAPHead_0/MlpBlock_0/Dense_1/*",
}
FEATURES = "embed.patches.features."  # our names of a stem's tensors begin so; TIMM and the others have the rest
# How a stem's names begin: ours; timm's; Google's; torchvision's.
STEM = re.compile(
    rf"{FEATURES}|patch_embed\.backbone\.(stem\.|stages\.|conv\.|norm\.|\d)|(conv|gn)_root/|block\d+/unit\d+/|conv_proj\.conv_"
)
IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
HALF = (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)
POOL_OF: dict[int, Pool] = {0: "mean", 1: "cls", 2: "distilled"}  # by the number of tokens before the patches


def from_flax(our: str, tensor: Tensor) -> Tensor:
    """One of Flax's tensors as torch keeps it, by our name for it.

    Flax multiplies from the other side, so its layers keep (in, out) where torch keeps (out, in); and it gives the
    heads an axis of their own. Norms, tokens and the other biases are the same in both.
    """
    if our.endswith("patches.proj.weight"):
        return tensor.permute(3, 2, 0, 1)  # (P, P, C, D) -> (D, C, P, P)
    if our.endswith(("attention.qkv.weight", "pool.q.weight", "pool.kv.weight")):
        return tensor.flatten(1).mT  # (D, h, d) -> (D, D)
    if our.endswith(("attention.qkv.bias", "pool.q.bias", "pool.kv.bias")):
        return tensor.flatten()  # (h, d) -> (D,)
    if our.endswith(("attention.proj.weight", "pool.proj.weight")):
        return tensor.flatten(0, 1).mT  # (h, d, D) -> (D, D)
    if our.endswith(("fc1.weight", "fc2.weight", "head.weight")):
        return tensor.mT  # (in, out) -> (out, in)
    return tensor


# ------------------------------------------------- one function a family, for what its table of names doesn't reach


def mend_timm(state: State) -> tuple[State, list[str]]:
    """timm, DeiT, DINO, MAE: tensors under the table's names, and what was left out.

    - A full DINO checkpoint has the projector that its loss needs behind the backbone (``head.mlp``,
      ``head.last_layer``). It classifies nothing, DINO's own evaluation drops it, and so do we, without a word.
    - MAE's full checkpoint has the decoder that paints the masked patches. The encoder is the model.
    - DeiT's distilled models have a second token and a second head, and answer the mean of both heads.
    """
    projector = r"head\.(mlp|last_layer|last_norm)\d*\."
    if all(any(name.startswith(part) for name in state) for part in ("head.mlp.", "head.last_layer.")):
        state, _ = _split(state, projector)
    state, decoder = _split(state, r"decoder_")
    if "dist_token" in state:
        if "head.weight" in state and "head_dist.weight" not in state:
            raise ValueError(
                "dist_token and head without head_dist: two tokens and one head, which ViTConfig can't express"
            )
        state = _two_tokens(state, "cls_token", "dist_token")
        state = _two_heads(state, "head", "head_dist")
    return features_from_timm(state), ["the decoder"] if decoder else []


def mend_transformers(state: State) -> tuple[State, list[str]]:
    """Transformers' ViT, DeiT, ViTMAE, ViTMSN, I-JEPA and DPT: tensors under the table's names, and what was left out.

    - The pooler is a layer with tanh on the class token. No classifier reads it: it stands in files of bare models.
    - ViTMAE's and masked models' decoder, and DPT's neck and head, make images of the encoder's tokens.
    - DeiT has two tokens always. With one classifier, that reads the class token alone: the second token's half of our
      head is zeros. With two (``WithTeacher``), the answer is their mean.
    """
    left_out = []
    for pattern, what in ((r"pooler\.", "the pooler"), (r"decoder\.", "the decoder")):
        state, dropped = _split(state, pattern)
        left_out += [what] * bool(dropped)
    if any(name.startswith("neck.") for name in state):
        state, _ = _split(state, r"(neck|head|auxiliary_head)\.")
        left_out.append("the neck and the head of DPT")
    if "embeddings.distillation_token" in state:
        state = _two_tokens(state, "embeddings.cls_token", "embeddings.distillation_token")
        if "classifier.weight" in state:
            one = state["classifier.weight"]
            state = state | {"classifier.weight": torch.cat([one, torch.zeros_like(one)], dim=-1)}  # (K, 2 D)
        renamed = {name.replace("cls_classifier.", "classifier."): tensor for name, tensor in state.items()}
        state = _two_heads(renamed, "classifier", "distillation_classifier")
    return state, left_out


def mend_google(state: State) -> tuple[State, list[str]]:
    """big_vision's scan keeps each kind of tensor of all blocks in one, block by block on the first axis."""
    whole = {}
    for name, tensor in state.items():
        parts = tensor.unbind() if "/encoderblock/" in name and tensor.ndim else [tensor]
        for i, part in enumerate(parts):
            whole[name.replace("/encoderblock/", f"/encoderblock_{i}/")] = part
    return features_from_google(whole), []


def siglip_from_google(state: State) -> tuple[State, int | None, list[str]]:
    """SigLIP's image tower under our names, its number of heads, and what was left out.

    One file keeps both towers: ``img/``, which is the model, and ``txt/``. ``t`` and ``b`` are the loss's.
    """
    state, text = _split(state, r"txt/|[tb]$")
    if state["embedding/kernel"].ndim == 2:
        shape = tuple(state["embedding/kernel"].shape)
        raise ValueError(f"embedding/kernel {shape}: NaFlex, SigLIP 2 for pictures of any shape, which isn't read here")
    state, _ = mend_google(state)
    rows = _rows_of(SIGLIP, state)
    files.check_numbers(state)
    return _join(rows, state), _flax_heads(rows, state), ["the text tower"] if text else []


def mend_torchvision(state: State) -> tuple[State, list[str]]:
    """Torchvision's files hold what the table says, but for a stem's (``conv_stem_configs``)."""
    return features_from_torchvision(state), []


def mend_nothing(state: State) -> tuple[State, list[str]]:
    """Our own files hold what the table says."""
    return state, []


# ------------------------------------------------- hybrids: their names of a stem's tensors, and ours (vt.hybrid's)


def features_from_timm(state: State) -> State:
    """``patch_embed.backbone``: a ResNet V2 (its modules are named as ours), its first layers alone, or a ConvStem.

    The last convolution of timm's ConvStem has no norm: it is our ``proj``.
    """
    renamed = {}
    last = max(
        (int(name.split(".")[2]) for name in state if re.match(r"patch_embed\.backbone\.\d+\.", name)), default=-1
    )
    for name, tensor in state.items():
        new = re.sub(r"^patch_embed\.backbone\.(?=stem\.|stages\.)", FEATURES, name)
        new = re.sub(r"^patch_embed\.backbone\.(?=conv\.|norm\.)", f"{FEATURES}stem.", new)
        new = re.sub(rf"^patch_embed\.backbone\.{last}\.conv\.", "patch_embed.proj.", new)
        new = re.sub(r"^patch_embed\.backbone\.(\d+)\.conv\.", rf"{FEATURES}\1.conv.", new)
        new = re.sub(r"^patch_embed\.backbone\.(\d+)\.bn\.", rf"{FEATURES}\1.norm.", new)
        renamed[new] = tensor
    return renamed


def features_to_timm(state: State) -> State:
    """The way back: tensors under the names of :data:`TIMM` and ours of a stem -> timm's."""
    layers = _layers(state)
    whole = f"{FEATURES}stages.0.blocks.0.conv1.weight" in state  # more than the first layers
    renamed = {}
    for name, tensor in state.items():
        if layers:
            new = re.sub(rf"^{FEATURES}(\d+)\.conv\.", r"patch_embed.backbone.\1.conv.", name)
            new = re.sub(rf"^{FEATURES}(\d+)\.norm\.", r"patch_embed.backbone.\1.bn.", new)
            new = re.sub(r"^patch_embed\.proj\.", f"patch_embed.backbone.{layers}.conv.", new)
        else:
            new = name.replace(FEATURES if whole else f"{FEATURES}stem.", "patch_embed.backbone.")
        renamed[new] = tensor
    return renamed


def features_from_torchvision(state: State) -> State:
    """``conv_proj.conv_bn_relu_0.0`` is a convolution, ``.1`` its norm; ``conv_last`` is our ``proj``."""
    renamed = {}
    for name, tensor in state.items():
        new = re.sub(r"^conv_proj\.conv_bn_relu_(\d+)\.0\.", rf"{FEATURES}\1.conv.", name)
        new = re.sub(r"^conv_proj\.conv_bn_relu_(\d+)\.1\.", rf"{FEATURES}\1.norm.", new)
        new = re.sub(r"^conv_proj\.conv_last\.", "conv_proj.", new)
        renamed[new] = tensor
    return renamed


def features_to_torchvision(state: State) -> State:
    """The way back: tensors under the names of :data:`TORCHVISION` and ours of a stem -> torchvision's."""
    renamed = {}
    for name, tensor in state.items():
        new = re.sub(rf"^{FEATURES}(\d+)\.conv\.", r"conv_proj.conv_bn_relu_\1.0.", name)
        new = re.sub(rf"^{FEATURES}(\d+)\.norm\.", r"conv_proj.conv_bn_relu_\1.1.", new)
        new = re.sub(r"^conv_proj\.(?=weight|bias)", "conv_proj.conv_last." if _layers(state) else "conv_proj.", new)
        renamed[new] = tensor
    return renamed


def features_from_google(state: State) -> State:
    """``conv_root``, ``gn_root`` and ``block1/unit1/conv1``: a ResNet V2, its stages and blocks counted from 1."""
    renamed = {}
    for name, tensor in state.items():
        unit = re.match(r"block(\d+)/unit(\d+)/", name)
        if unit is None and not re.match(r"(conv|gn)_root/", name):
            renamed[name] = tensor
            continue
        where = f"stages.{int(unit[1]) - 1}.blocks.{int(unit[2]) - 1}." if unit else "stem."
        part = re.sub(r"^block\d+/unit\d+/", "", name)  # conv1/kernel, gn_proj/scale, conv_root/kernel
        part = (
            part.replace("_root", "").replace("gn", "norm").replace("/scale", "/weight").replace("/kernel", "/weight")
        )
        part = re.sub(r"^(conv|norm)_proj", r"downsample.\1", part)
        turned = tensor.permute(3, 2, 0, 1) if name.endswith("/kernel") else tensor.flatten()  # (K, K, C, F) in Flax
        renamed[FEATURES + where + part.replace("/", ".")] = turned
    return renamed


def _layers(state: Mapping[str, Tensor]) -> int:
    """How many convolutions a ConvStem has; 0: it is none."""
    return sum(bool(re.match(rf"{FEATURES}\d+\.conv\.weight$", name)) for name in state)


def stem_of(features: State, told: Stem | None) -> tuple[Stem, int, bool]:
    """The stem that has these tensors, C, and whether something was assumed.

    Of a ResNet V2 the shapes tell all. Of a ConvStem they don't tell the strides: 2 each, as in arXiv 2106.14881.
    """
    for name, tensor in features.items():
        if re.search(r"conv\d?\.weight$", name) and (tensor.ndim != 4 or tensor.shape[2] != tensor.shape[3]):
            raise ValueError(f"{name} {tuple(tensor.shape)} must have 4 axes, of a square kernel: (F, C, K, K)")
    if told is not None:
        first = next(name for name in (f"{FEATURES}stem.conv.weight", f"{FEATURES}0.conv.weight") if name in features)
        return told, features[first].shape[1], False
    if layers := _layers(features):
        kernels = [features[f"{FEATURES}{i}.conv.weight"] for i in range(layers)]
        if even := [kernel.shape[-1] for kernel in kernels if kernel.shape[-1] % 2 == 0]:
            raise ValueError(
                f"a convolutional stem with kernels of {even[0]} x {even[0]} pixels (as MobileCLIP's), "
                "which ConvStem can't express: vt.hybrid.HybridEmbed takes any feature map"
            )
        shapes = [(len(kernel), kernel.shape[-1], 2) for kernel in kernels]
        return ConvStem(tuple(shapes)), kernels[0].shape[1], True
    root = features[f"{FEATURES}stem.conv.weight"]
    stages: dict[int, set[int]] = {}
    for name in features:
        if place := re.match(rf"{FEATURES}stages\.(\d+)\.blocks\.(\d+)\.", name):
            stages.setdefault(int(place[1]), set()).add(int(place[2]))
    return ResNetStem(tuple(len(stages[i]) for i in sorted(stages)), width=len(root)), root.shape[1], False


def _split(state: State, pattern: str) -> tuple[State, State]:
    """Without the names that begin with the pattern, and those."""
    found = {name: tensor for name, tensor in state.items() if re.match(pattern, name)}
    return {name: tensor for name, tensor in state.items() if name not in found}, found


def _two_tokens(state: State, one: str, other: str) -> State:
    """Two tokens (1, 1, D) as one tensor (1, 2, D)."""
    a, b = state.get(one), state[other]
    if a is None or a.shape != b.shape or a.ndim != 3:
        raise ValueError(f"{one} {_shape(a)} and {other} {_shape(b)} don't go together")
    return {name: tensor for name, tensor in state.items() if name != other} | {one: torch.cat([a, b], dim=1)}


def _two_heads(state: State, one: str, other: str) -> State:
    """The mean of two heads as one head on both tokens: (K, D) twice -> (K, 2 D)."""
    second, state = _split(state, rf"{other}\.")[1], _split(state, rf"{other}\.")[0]
    for leaf in ("weight", "bias"):
        a, b = state.get(f"{one}.{leaf}"), second.get(f"{other}.{leaf}")
        if b is None:
            continue
        if a is None or a.shape != b.shape or a.ndim != (2 if leaf == "weight" else 1):
            raise ValueError(f"{one}.{leaf} {_shape(a)} and {other}.{leaf} {_shape(b)} don't go together")
        joined = torch.cat([a, b], dim=1) if leaf == "weight" else a + b
        state = state | {f"{one}.{leaf}": joined / 2}
    return state


def _shape(tensor: Tensor | None) -> str:
    return "(missing)" if tensor is None else str(tuple(tensor.shape))


@dataclass(frozen=True)
class Source:
    """What a library's files don't say of themselves, and how they are read."""

    tables: tuple[dict[str, str], ...]
    mend: Callable[[State], tuple[State, list[str]]]
    statistics: tuple[tuple[float, ...], tuple[float, ...]]
    crop: CropMode
    interpolation: str
    norm_eps: float = 1e-6
    gelu: Gelu = "exact"
    family: str = ""  # whose name it goes by as well
    plain: bool = True  # whether these names stand for the paper's architecture alone


HF_TABLES = tuple(
    {our: their.removeprefix("vit.") for our, their in t.items()} for t in (TRANSFORMERS_4, TRANSFORMERS_5)
)
SOURCES = {
    "torchvision": Source((TORCHVISION, TORCHVISION_0_12), mend_torchvision, IMAGENET, 224 / 256, "bilinear"),
    "timm": Source((TIMM,), mend_timm, HALF, 0.9, "bicubic", plain=False),
    "deit": Source((TIMM,), mend_timm, IMAGENET, 0.9, "bicubic", family="timm", plain=False),
    "dino": Source((TIMM,), mend_timm, IMAGENET, 224 / 256, "bicubic", family="timm", plain=False),
    "huggingface": Source(HF_TABLES, mend_transformers, HALF, "none", "bilinear", norm_eps=1e-12),
    # JAX's GELU is the tanh approximation.
    "google": Source((GOOGLE,), mend_google, HALF, "none", "bilinear", gelu="tanh"),
    "big_vision": Source((BIG_VISION,), mend_google, HALF, 224 / 256, "bilinear", gelu="tanh", family="google"),
    "vit_tutorial": Source((OURS,), mend_nothing, HALF, "center", "bicubic"),
}
# By this name a source is known, whatever stands in front of it.
ANCHORS = (
    "patch_embed.proj.weight",
    "patch_embed.backbone.0.conv.weight",
    "conv_proj.weight",
    "conv_proj.conv_last.weight",
    "embeddings.patch_embeddings.projection.weight",
    "embedding/kernel",
    "embed.patches.proj.weight",
)
NOT_OURS = {  # what ViTConfig can't express, by what its tensors are called
    r"\bls\d\.|gamma_\d|lambda_?\d|layer_?scale|\.gamma\b": "layer scale",
    r"lambda_q\d|sub_norm": "differential attention",
    r"reg_token|register": "register tokens",
    r"detection_tokens|mid_position": "detection tokens (YOLOS)",
    r"fc_norm": "a norm after the mean pooling",
    r"q_norm|k_norm|query_norm|key_norm|attn\.norm\b|q_layernorm|k_layernorm": "norms of queries and keys",
    r"q_bias|v_bias": "biases of q and v without one of k",
    r"mlp\.w\d|fc1_g|swiglu|mlp\.norm|weights_in\b|gate_proj": "a gated or normed MLP",
    r"attn_pool|MAPHead|probe|vision_model\.head\.": "attention pooling (MAP)",
    r"norm_pre|pre_layr?norm|pre_layernorm|ln_pre": "a norm before the blocks",
    r"patch_embed\.norm|embeddings\.norm|patch_norm": "a norm in the patch embedding",
    r"relative_position|rel_pos|\brope|rotary": "relative or rotary positions",
    r"patch_embed\.backbone\.(?!stem\.|stages\.|conv\.|norm\.|\d)|conv_proj\.\d|backbone\.bit|patch_embed\.proj\.\d": (
        "a convolutional stem of another kind (vt.hybrid.HybridEmbed takes any)"
    ),
    r"\.experts?\.|router": "a mixture of experts",
    r"\.(attns|ffns)\.\d|\.in_proj\.|attn_out_proj|mlp_out_proj": "blocks in parallel",
    r"blocks_token_only": "class attention (CaiT)",
    r"talking_head|proj_l\.|proj_w\.": "talking heads",
    r"^(text_model|text|txt|transformer|visual|vision_model|vision_tower|text_encoder)[./]": (
        "a model of images and text, or a tower of one (CLIP, SigLIP, BLIP)"
    ),
    r"embeddings\.(class_embedding|patch_embedding)\b": "a tower of a model of images and text (CLIP, SigLIP, BLIP)",
    r"\bstages\.\d|patch_embeddings\.\d|encoder\.block\.\d+\.\d": "stages of several resolutions (Swin, PVT, Hiera)",
    r"^embeddings\.projection\.": "positions of a pretraining grid (VitDet)",
    r"parametrizations|weight_[guv]$|_(orig|mask)$": (
        "a reparametrised layer (torch's remove_parametrizations, or prune.remove, makes it a plain one)"
    ),
    r"\battn\.(q|k|v)(_proj)?\.": "queries, keys and values apart",
    r"lora_|base_layer|modules_to_save|original_module|adapt(er|mlp)|\bia3_": (
        "an adapter beside the weights (LoRA and the like: merge it first)"
    ),
    r"prompt": "prompt tokens",
    r"flat_param": "pieces of a model that FSDP cut up (save its full state dict)",
    r"SCB$|_packed_params|absmax|quant_|qweight|qzeros|zero_point|weight_scale|scale_inv$": "quantised weights",
}
NO_TABLE = {  # architectures that might be ours, under names that no table here has
    r"\bffn\.layers\.\d": "OpenMMLab's",
    r"\bto_patch_embedding\b": "vit-pytorch's (whose patches have norms that ViTConfig can't express)",
}
BLOCK = re.compile(r"\b(?:blocks|layers?|encoder_layer|encoderblock)[._](\d{1,6})[./]")


class _Converted(NamedTuple):
    config: ViTConfig
    state_dict: State  # under our names
    preprocess: Preprocessing


class Converted(_Converted):
    """What :func:`convert` returns: ``config, state_dict, preprocess``, and ``assumed``.

    ``ViT(config).load_state_dict(state_dict)`` is the model. ``assumed`` maps what the tensors didn't tell
    ("num_heads", "gelu", "norm_eps", "image_size", "preprocess", "plain", "stem") to what was taken; "weights" stands
    in it if there was a choice, and "left_out" if there were parts that a ViT doesn't have.
    """

    assumed: dict[str, Any]

    def __new__(
        cls, config: ViTConfig, state_dict: State, preprocess: Preprocessing, assumed: Mapping[str, Any] | None = None
    ) -> Self:
        self = super().__new__(cls, config, state_dict, preprocess)
        self.assumed = dict(assumed or {})
        return self

    def _replace(self, **changes: Any) -> Self:
        changed = super()._replace(**changes)
        changed.assumed = self.assumed
        return changed


def convert(
    state_dict: Mapping[str, Any],
    source: str = "auto",
    *,
    num_heads: int | None = None,
    image_size: Size | None = None,
    gelu: Gelu | None = None,
    norm_eps: float | None = None,
    preprocess: Preprocessing | None = None,
    stem: Stem | None = None,
    parts: Mapping[str, Any] | None = None,
    plain: bool | None = None,
) -> Converted:
    """A published checkpoint as a config, tensors under our names, and the preprocessing of its evaluation.

    Sizes are read off the shapes. Tensors keep their dtype and, where nothing had to be joined or turned, their memory.
    What a file of tensors can't tell is taken from its source's published models, and a UserWarning says so in a
    sentence; give what you know, and there is nothing to warn of.

    Wrappers of training (``module.``, ``model.``, ``_orig_mod.`` and the like) are taken off. Of raw and averaged
    weights (EMA, DINO's teacher) the average is taken, as timm does; ``checkpoint["model"]`` gives the other. A head
    behind ``pre_logits`` (a layer with tanh) belongs to features that a ViT doesn't have: both are left out,
    ``num_classes`` is 0, and the warning says so.

    Args:
        state_dict: names and tensors, as :func:`read` has them.
        source: "auto", by the names, or whose file it is: "torchvision", "timm", "deit", "dino", "huggingface",
            "google", "big_vision" or "vit_tutorial". timm, DeiT and DINO share names and differ in preprocessing.
        num_heads: h. The shapes don't show it (Google's do): by default that of the published sizes, or D / 64.
        image_size: H = W or (H, W) the positions were learned on; needed for a rectangle, or if there are none.
        gelu: "exact" or "tanh"; by default the source's own.
        norm_eps: epsilon of the norms; by default the source's own.
        preprocess: by default as the source evaluates its published models of this size.
        stem: of a model with convolutions before the tokens, whose strides the shapes don't show: by default 2 each. A
            ResNet's shapes show all.
        parts: of a model of after 2020 (:mod:`.modern`), fields of its config that no tensor shows, as in
            ``{"pool": "mean", "rotary": modern.Rotary()}``.
        plain: True if you know that the architecture is the paper's: norms before attention and MLP, the class token
            read out (without one, the mean). timm's names and shapes are the same with norms behind (``ResPostBlock``),
            another pooling or order of q, k and v; the other libraries' stand for one architecture.

    Raises:
        ValueError: names that are missing or too many, wrong shapes, numbers that aren't finite; parts that ViTConfig
            can't express; an unknown source; a value out of its range.
        TypeError: no mapping of names to tensors, or a value of another type.
    """
    told = Told(num_heads, image_size, gelu, norm_eps, preprocess, stem, plain, parts=parts)
    with files.refusing():
        converted = convert_told(state_dict, source, told)
    files.warn("this state dict", converted.assumed)
    return converted


@dataclass(frozen=True)
class Told:
    """What is known beside the tensors; None: nothing. As :func:`convert`'s arguments."""

    num_heads: int | None = None
    image_size: Size | None = None
    gelu: Gelu | None = None
    norm_eps: float | None = None
    preprocess: Preprocessing | None = None
    stem: Stem | None = None
    plain: bool | None = None
    wanted_size: Size | None = None  # if the file's own isn't known: what the model shall take
    parts: Mapping[str, Any] | None = None  # fields of modern.ModernConfig that no tensor shows

    def or_else(self, other: Told) -> Told:
        """These values, and the other's where there are none."""
        mine = {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) is not None}
        return replace(other, **mine)


def convert_told(state_dict: Mapping[str, Any], source: str, told: Told) -> Converted:
    """As :func:`convert`, without its warning."""
    state, origin, assumed = unwrap(state_dict, ANCHORS)
    if source in ("auto", "google", "big_vision") and any(name.startswith("MAPHead_0/") for name in state):
        state, heads, left_out = siglip_from_google(state)
        told = replace(told, num_heads=_heads(heads, told))
        assumed |= {"left_out": ", ".join(left_out)} if left_out else {}
        source = "auto"
    known = {f.name: getattr(told, f.name) for f in fields(told) if f.name not in ("stem", "plain")}
    if source not in ("torchvision", "google", "big_vision") and (modern := convert_modern.convert(state, **known)):
        return Converted(*modern[:3], modern[3] | assumed)
    state = {name: tensor for name, tensor in state.items() if not re.search(r"(^|\.)mask_token$", name)}
    if any("pre_logits" in name for name in state):
        state, _ = _split(state, r"(heads\.)?(pre_logits|head)[./]")
        assumed["left_out"] = "pre_logits and the head behind it"
    name, table, state, left_out = _identify(state, source, origin)
    if left_out:
        assumed["left_out"] = ", ".join(left_out)
    _refuse_what_is_not_ours(state)
    state = {name: tensor for name, tensor in state.items() if not name.endswith(files.COUNTER)}
    state, features = _split(state, FEATURES)
    rows = _rows_of(table, state)
    files.check_numbers(state | features)
    ours = _join(rows, state) | features
    config, taken = _config(name, ours, _flax_heads(rows, state), told)
    ours |= _positions(config, ours)
    _check_shapes(config, ours, rows)
    preprocess = told.preprocess
    if preprocess is None:
        preprocess = taken["preprocess"] = _preprocess(name, config)
    check_preprocess(preprocess, config)
    contiguous = {our: tensor.contiguous() for our, tensor in ours.items()}
    return Converted(config, contiguous, preprocess, taken | assumed)


def _identify(state: State, source: str, origin: str) -> tuple[str, dict[str, str], State, list[str]]:
    """Whose names these are: the source, the table of which most are found, and its function's answer."""
    if source not in ("auto", *SOURCES):
        raise ValueError(f"unknown source {source!r}: use auto, {', '.join(SOURCES)}")
    best: tuple[int, str, dict[str, str]] = (0, "", {})
    for name, about in SOURCES.items():
        for table in about.tables if source in ("auto", name, about.family) else ():
            expected = [their for theirs in names_of(table, range(1)).values() for their in theirs]
            found = sum(
                their in state or their.replace("encoderblock_0", "encoderblock") in state for their in expected
            )
            if found > best[0]:
                best = found, name, table
    if best[0] < 4:
        _refuse_what_is_not_ours(state)
        whose = "a known library" if source == "auto" else source
        raise ValueError(
            f"this is no Vision Transformer of {whose}, none of whose names are among these {len(state)}: "
            f"{files.some(list(state))}"
        )
    name = best[1]
    if (source, name) == ("auto", "timm"):
        by_origin = {"teacher": "dino", "student": "dino", "model": "deit"}
        name = "deit" if "dist_token" in state else by_origin.get(origin, "timm" if "head.weight" in state else "dino")
    state, left_out = SOURCES[name].mend(state)
    return name, best[2], state, left_out


def check_parts(state_dict: Mapping[str, Any]) -> None:
    """Raise a ValueError that names parts of a checkpoint which ViTConfig can't express, if their names show any."""
    _refuse_what_is_not_ours(unwrap(state_dict, ANCHORS).state)


def _refuse_what_is_not_ours(state: State) -> None:
    """A ValueError that says which parts of this architecture ViTConfig can't express."""
    names = [name for name in state if not STEM.match(name)]
    for pattern, whose in NO_TABLE.items():
        if found := [name for name in names if re.search(pattern, name)]:
            raise ValueError(
                f"{files.some(found, 3)}: names as {whose}, which isn't read here: timm may have a converter"
            )
    parts = []
    for pattern, part in NOT_OURS.items():
        if found := [name for name in names if re.search(pattern, name)]:
            parts.append(f"{files.some(found, 3)}: {part}")
    if parts:
        raise ValueError(f"{'; '.join(parts[:4])}, which ViTConfig can't express")


def names_of(table: Mapping[str, str], blocks: range) -> dict[str, list[str]]:
    """A table's templates filled in: our name of every tensor, and theirs, one or three."""
    found = {}
    for our, their in table.items():
        for i in blocks if "{i}" in our else range(1):
            for leaf, their_leaf in _leaves(our, their):
                name = our.replace("{i}", str(i)).replace("*", leaf)
                found[name] = _choices(their.replace("{i}", str(i)).replace("*", their_leaf))
    return found


def _leaves(our: str, their: str) -> list[tuple[str, str]]:
    """What * stands for, with us and with them: Flax calls a weight a kernel, and a norm's a scale."""
    if "*" not in our:
        return [("", "")]
    flax = "scale" if "norm" in our else "kernel"
    return [("weight", flax if "/" in their else "weight"), ("bias", "bias")]


def _choices(template: str) -> list[str]:
    """``a.(b|c).d`` -> ``a.b.d`` and ``a.c.d``."""
    if "(" not in template:
        return [template]
    before, choices, after = re.split(r"[()]", template)
    return [before + choice + after for choice in choices.split("|")]


def _rows_of(table: dict[str, str], state: State) -> dict[str, list[str]]:
    """The rows that this checkpoint has; a ValueError for what else it has, and for what it lacks."""
    depth = len({match[1] for name in state if (match := BLOCK.search(name))})
    if not depth:
        raise ValueError(f"there is no block among the {len(state)} names: {files.some(list(state))}")
    rows = names_of(table, range(depth))
    for optional in (r"embed\.cls_token", r"embed\.position", r"head\..*", r"blocks\.\d+\.attention\.qkv\.bias"):
        names = {our for our in rows if re.fullmatch(optional, our)}
        if not any(their in state for our in names for their in rows[our]):
            rows = {our: theirs for our, theirs in rows.items() if our not in names}
    expected = {their: None for theirs in rows.values() for their in theirs}
    missing, unexpected = [n for n in expected if n not in state], [n for n in state if n not in expected]
    if missing or unexpected:
        lists = {"missing": missing, "unexpected": unexpected}
        found = "; ".join(f"{len(names)} {what}: {files.some(names)}" for what, names in lists.items() if names)
        raise ValueError(f"{found}: {_why_not(missing, unexpected, rows, depth)}")
    return rows


def _why_not(missing: list[str], unexpected: list[str], rows: dict[str, list[str]], depth: int) -> str:
    """What names that are missing or too many are a sign of."""
    if not unexpected and len(missing) >= depth and all(name.endswith("bias") for name in missing):
        return "layers without a bias, or norms (RMSNorm), which ViTConfig can't express"
    if not unexpected and missing == rows.get("norm.weight", []) + rows.get("norm.bias", []):
        return "no norm after the last block, which ViTConfig can't express"
    if not unexpected:
        return "the file isn't whole, or of another architecture"
    if all(HEAD.search(name) for name in unexpected) and not missing:
        return (
            "a head of another kind. ViTConfig's is one linear layer; pass the names without the head's, and the model "
            "returns the features"
        )
    if all(AVERAGE.search(name) for name in unexpected):
        return "an average of the weights by names of its own: pass the tensors of one of the two"
    if not missing:
        return "parts of another architecture, or of training: if they change no answer, pass the names without them"
    return "another architecture, or a file that isn't whole"


def _join(rows: dict[str, list[str]], state: State) -> State:
    """Their tensors as ours: turned where Flax had them, and joined where one of ours was three."""
    ours = {}
    for our, theirs in rows.items():
        parts = [state[their] for their in theirs]
        try:
            if "/" in theirs[0]:
                parts = [from_flax(our, part) for part in parts]
            ours[our] = parts[0] if len(parts) == 1 else torch.cat(parts)
        except (RuntimeError, IndexError) as error:
            shapes = ", ".join(f"{their} {tuple(state[their].shape)}" for their in theirs)
            raise ValueError(f"wrong shapes for {our}: {shapes}") from error
    ranks = {"embed.patches.proj.weight": 4, "embed.position": 3, "embed.cls_token": 3, "head.weight": 2}
    for our, rank in (ranks | {"blocks.0.mlp.fc1.weight": 2, "blocks.0.mlp.fc2.weight": 2}).items():
        if our in ours and ours[our].ndim != rank:
            raise ValueError(f"{rows[our][0]} {tuple(state[rows[our][0]].shape)} must have {rank} axes")
    D = len(ours["norm.weight"]) if ours["norm.weight"].ndim else 0
    for our, axis in {"embed.patches.proj.weight": 0, "embed.position": 2, "embed.cls_token": 2}.items():
        if our in ours and ours[our].shape[axis] != D:
            shape = "(1, T, D)" if axis else "(D, C, P, P)"
            found = tuple(state[rows[our][0]].shape)
            raise ValueError(f"{rows[our][0]} {found} must be {shape}, and by {rows['norm.weight'][0]} D is {D}")
    if len(ours["blocks.0.mlp.fc1.weight"]) == 2 * ours["blocks.0.mlp.fc2.weight"].shape[-1]:
        raise ValueError(f"{rows['blocks.0.mlp.fc1.weight'][0]}: a gated MLP (SwiGLU), which ViTConfig can't express")
    return ours


def _flax_heads(rows: dict[str, list[str]], state: State) -> int | None:
    """h, where the heads have an axis of their own."""
    query = rows["blocks.0.attention.qkv.weight"][0]
    if "/" not in query:
        return None
    if state[query].ndim != 3:
        raise ValueError(f"{query} {tuple(state[query].shape)} must be (D, h, d)")
    return state[query].shape[1]


def _heads(flax_heads: int | None, told: Told) -> int | None:
    """H, by the file or by what is told; None if neither says it."""
    if None not in (flax_heads, told.num_heads) and flax_heads != told.num_heads:
        raise ValueError(f"the file has {flax_heads} heads, on an axis of their own, got num_heads={told.num_heads}")
    return flax_heads if told.num_heads is None else told.num_heads


def _usual_heads(D: int) -> int:
    """H of the published models of this width: 64 numbers a head, but for So400m, H, g and G, with 72 to 104."""
    if D % 64:
        raise ValueError(f"the shapes don't tell the number of heads, and dim {D} is no multiple of 64: give num_heads")
    return 16 if D in (1152, 1280, 1408, 1664) else D // 64


def _sizes(ours: State) -> dict[str, Any]:
    """The fields of a config that the shapes tell."""
    D, C, P, Q = ours["embed.patches.proj.weight"].shape
    cls, head = ours.get("embed.cls_token"), ours.get("head.weight")
    prefix = 0 if cls is None else cls.shape[1]
    if prefix not in POOL_OF:
        raise ValueError(f"{prefix} tokens stand before the patches: ViTConfig has none, one, or DeiT's two")
    return {
        "patch_size": P if P == Q else (P, Q),
        "in_channels": C,
        "num_classes": 0 if head is None else len(head),
        "dim": D,
        "depth": sum(bool(re.match(r"blocks\.\d+\.norm1\.weight", name)) for name in ours),
        "mlp_dim": len(ours["blocks.0.mlp.fc1.weight"]),
        "qkv_bias": "blocks.0.attention.qkv.bias" in ours,
        "pool": POOL_OF[prefix],
    }


def _with_stem(sizes: dict[str, Any], features: State, told: Stem | None) -> tuple[dict[str, Any], bool]:
    """The sizes of a hybrid, whose ``proj`` cuts a feature map and not the image; whether strides were assumed."""
    stem, in_channels, assumed = stem_of(features, told)
    P, Q = as_pair(sizes["patch_size"], "patch_size")
    patch_size = _single((P * stem.stride, Q * stem.stride))
    return sizes | {"stem": stem, "in_channels": in_channels, "patch_size": patch_size}, assumed


def _config(name: str, ours: State, flax_heads: int | None, told: Told) -> tuple[ViTConfig, dict[str, Any]]:
    """All that defines the model, and what of it had to be assumed."""
    about, sizes = SOURCES[name], _sizes(ours)
    taken: dict[str, Any] = {}
    if features := _split(ours, FEATURES)[1]:
        sizes, assumed = _with_stem(sizes, features, told.stem)
        if assumed:
            taken["stem"] = sizes["stem"]
    elif told.stem is not None:
        raise ValueError(f"the file has no stem's tensors, got stem={told.stem}")
    num_heads = _heads(flax_heads, told)
    if num_heads is None:
        num_heads = taken["num_heads"] = _usual_heads(sizes["dim"])
    gelu, norm_eps = told.gelu, told.norm_eps
    if gelu is None:
        gelu = taken["gelu"] = about.gelu
    if norm_eps is None:
        norm_eps = taken["norm_eps"] = about.norm_eps
    image_size, sure = _image_size(name, ours, sizes["patch_size"], told)
    if not sure:
        taken["image_size"] = image_size
    position: Position = "learned"
    if "embed.position" not in ours:
        position = "sincos" if name == "big_vision" else "none"
    if told.plain not in (None, True):
        raise ValueError(
            f"plain is True, if the architecture is the paper's: another is beyond ViTConfig, got {told.plain!r}"
        )
    if not about.plain and told.plain is None:
        taken["plain"] = _architecture(sizes, position)
    for what, value in (("num_heads", num_heads), ("norm_eps", norm_eps)):
        if isinstance(value, bool) or not isinstance(value, int if what == "num_heads" else (int, float)):
            raise TypeError(f"{what} must be a number, got {value!r}")
    config = ViTConfig(
        image_size=image_size, num_heads=num_heads, gelu=gelu, norm_eps=norm_eps, position=position, **sizes
    )
    return config, taken


def _architecture(sizes: dict[str, Any], position: Position) -> str:
    """What the same names and shapes could also be otherwise."""
    read = {"cls": "the class token", "mean": "the mean of all tokens", "distilled": "the mean of both heads"}
    parts = ["norms first in each block", f"{read[sizes['pool']]} read out"]
    parts += ["no positions"] * (position == "none")
    return " and ".join(parts)


def _image_size(name: str, ours: State, patch_size: Size, told: Told) -> tuple[Size, bool]:
    """The size that the positions are for, and whether that is sure.

    T positions fill many rectangles; published files are squares. There may be one for the class token too, or none
    (big_vision, flexivit): 225 are 15 x 15, or 14 x 16 and the class token's.
    """
    position, (P, Q) = ours.get("embed.position"), as_pair(patch_size, "patch_size")
    if told.image_size is not None:
        return _single(as_pair(told.image_size, "image_size")), True
    wanted = None if told.wanted_size is None else as_pair(told.wanted_size, "image_size")
    if position is None:
        if wanted is None:
            raise ValueError(
                f"this {name} checkpoint has no positions, which would tell its image size: give image_size"
            )
        return _single(wanted), True
    cls, T = ours.get("embed.cls_token"), position.shape[1]
    counts = [T] if cls is None else [T - cls.shape[1], T]
    fits = wanted is not None and (wanted[0] // P) * (wanted[1] // Q) in counts
    for N in counts:
        side = math.isqrt(max(N, 0))
        if side == 0 or side**2 != N:
            continue
        square = (side * P, side * Q)
        if fits and wanted is not None and N != counts[0] and (wanted[0] // P) * (wanted[1] // Q) == counts[0]:
            return _single(wanted), False  # a rectangle with the class token's position, rather than a square without
        return _single(square), wanted == square
    if fits and wanted is not None:
        return _single(wanted), True
    raise ValueError(
        f"positions for {T} tokens, {T - counts[0]} of them in front, fill no square: give image_size, the height and "
        "width of the pictures that they were learned on"
    )


def _single(size: tuple[int, int]) -> Size:
    return size[0] if size[0] == size[1] else size


def _positions(config: ViTConfig, ours: State) -> State:
    """Positions for every token: where the class token has none, zeros; sine and cosine, where they aren't stored."""
    if config.position == "none":
        return {}
    like, prefix, (rows, columns) = ours["embed.patches.proj.weight"], config.prefix_tokens, config.grid
    position = ours.get("embed.position")
    if position is None:
        position = sincos_position_embedding(config.grid, config.dim).to(like.dtype)
    if position.shape[1] not in (rows * columns, prefix + rows * columns):
        raise ValueError(
            f"image_size {config.image_size} has {rows} x {columns} = {rows * columns} patches, and the positions are "
            f"for {position.shape[1]} tokens, {prefix} of them in front: give the image_size that they were learned on"
        )
    if prefix and position.shape[1] == rows * columns:  # positions were added before the class token
        position = torch.cat([position.new_zeros(1, prefix, position.shape[2]), position], dim=1)
    return {"embed.position": position}


def _check_shapes(config: ViTConfig, ours: State, rows: dict[str, list[str]]) -> None:
    with torch.device("meta"):  # one block tells the shapes of all
        model = ViT(replace(config, depth=1)).state_dict()
    expected, found = {}, {}
    for our, tensor in model.items():
        if our.startswith(FEATURES) and not our.endswith(files.COUNTER):
            expected[our] = tuple(tensor.shape)
    for our, tensor in ours.items():
        if our.startswith(FEATURES):
            if not our.endswith(files.COUNTER):
                found[our] = tuple(tensor.shape)
            continue
        name = f"{files.some(rows.get(our, [our]), 3)}, as {our},"
        expected[name] = tuple(model[re.sub(r"^blocks\.\d+", "blocks.0", our)].shape)
        found[name] = tuple(tensor.shape)
    try:
        files.compare(expected, found)
    except ValueError as error:
        raise ValueError(f"{error}: another architecture, or tensors laid out in another way") from None


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


def check_preprocess(preprocess: Preprocessing, config: ViTConfig) -> None:
    """Raise a ValueError if pixels prepared so aren't what the model takes: size, channels, numbers."""
    if not isinstance(preprocess, Preprocessing):
        raise TypeError(f"preprocess must be a Preprocessing, got {type(preprocess).__name__}")
    if preprocess.image_size != as_pair(config.image_size, "image_size"):
        raise ValueError(
            f"preprocess makes pictures of {preprocess.image_size} pixels, and the model takes {config.image_size}: "
            "give preprocess for this size, or image_size"
        )
    for what, values in (("mean", preprocess.mean), ("std", preprocess.std)):
        if len(values) != config.in_channels:
            raise ValueError(f"{what} {values} must have a number for each of {config.in_channels} channels")
        if not all(isinstance(x, (int, float)) and math.isfinite(x) and (what == "mean" or x > 0) for x in values):
            raise ValueError(f"{what} {values} must be finite numbers{', above 0' if what == 'std' else ''}")


# -------------------------------------------------------------------------------------------------------- the way back


def rename(state_dict: Mapping[str, Tensor], table: Mapping[str, str]) -> State:
    """Our state dict (or gradients by name) under a table's names. Raises ValueError for a name that isn't ours."""
    names = names_of(table, range(_blocks(state_dict)))
    if strange := [name for name in state_dict if name not in names and not name.startswith(FEATURES)]:
        raise ValueError(f"not names of a ViT of this package: {files.some(strange)}")
    renamed: State = {}
    for our, tensor in state_dict.items():
        theirs = names.get(our, [our])  # a stem's names have functions of their own
        parts = [tensor] if len(theirs) == 1 else tensor.chunk(len(theirs))
        renamed |= dict(zip(theirs, parts, strict=True))
    return renamed


def to_timm(model: ViT | Mapping[str, Tensor]) -> State:
    """For ``timm.models.VisionTransformer`` of the same sizes (mean pooling: ``fc_norm=False``), or its distilled twin.

    A state dict says neither epsilon nor the kind of GELU: build timm's model with the config's (exact, 1e-6). A
    ``ModernViT`` becomes a ``VisionTransformer``, an ``Eva`` (rotary positions, or biases of q
    and v alone) or a ``Beit`` (position biases).

    Raises:
        ValueError: tensors that aren't a ViT's of this package; two tokens and no positions, which timm's twin has.
        TypeError: neither a model nor a mapping.
    """
    if isinstance(model, ModernViT):
        return convert_modern.to_timm(model)
    state, sizes = _whole(model)
    if sizes["pool"] != "distilled":
        return features_to_timm(rename(state, TIMM))
    if "embed.position" not in state:
        raise ValueError("timm's distilled ViT has positions, this model has none: timm can't express it")
    state = dict(state)
    state["embed.cls_token"], dist = state["embed.cls_token"].chunk(2, dim=1)
    extra = {"dist_token": dist}
    if "head.weight" in state:  # the mean of two heads is half of each
        state["head.weight"], extra["head_dist.weight"] = (2 * state["head.weight"]).chunk(2, dim=1)
        extra["head_dist.bias"] = state["head.bias"]
    return features_to_timm(rename(state, TIMM)) | extra


def to_torchvision(model: ViT | Mapping[str, Tensor]) -> State:
    """For ``torchvision.models.VisionTransformer`` of the same sizes; epsilon 1e-6 and the exact GELU are its own.

    Raises:
        ValueError: no class token (or two), no positions, no bias of q, k and v, the tanh GELU, a rectangle, or
            pictures without three channels: not torchvision's.
        TypeError: neither a model nor a mapping.
    """
    if isinstance(model, ModernViT):
        raise ValueError("torchvision's ViT is that of 2020, and this is a ModernViT: to_timm, to_huggingface")
    state, sizes = _plain(model, "torchvision", qkv_bias=True)
    N = state["embed.position"].shape[1] - 1
    config = model.config if isinstance(model, ViT) else None
    square = math.isqrt(N) ** 2 == N if config is None else config.grid[0] == config.grid[1]
    if not square or not isinstance(sizes["patch_size"], int) or sizes["in_channels"] != 3:
        raise ValueError(
            f"torchvision's ViT takes squares of three channels in square patches; this model has {N} patches of "
            f"{sizes['patch_size']} in {sizes['in_channels']} channels: to_timm has them all"
        )
    if config is not None and config.gelu != "exact":
        raise ValueError("torchvision's ViT has the exact GELU, this model the tanh approximation: to_timm, act_layer")
    return features_to_torchvision(rename(state, TORCHVISION))


def to_huggingface(model: ViT | Mapping[str, Tensor], version: int = 4) -> State:
    """For ``transformers.ViTForImageClassification`` of the same sizes, epsilon and GELU.

    A ``ModernViT`` becomes the one of transformers' models that has its parts: DINOv2 (with or
    without registers), DINOv3, CLIP's or SigLIP's vision model, or BEiT.

    Args:
        model: the model, or its state dict.
        version: 4 for the names in files, which ``from_pretrained`` of every version reads; 5 for the live modules of
            version 5.

    Raises:
        ValueError: no class token (or two) or no positions, which transformers needs; another version.
        TypeError: neither a model nor a mapping.
    """
    if version not in (4, 5):
        raise ValueError(f"transformers renamed its modules in version 5: version is 4 or 5, got {version!r}")
    if isinstance(model, ModernViT):
        return convert_modern.to_huggingface(model, version)
    return rename(_plain(model, "transformers")[0], TRANSFORMERS_4 if version == 4 else TRANSFORMERS_5)


def _whole(model: ViT | Mapping[str, Tensor]) -> tuple[Mapping[str, Tensor], dict[str, Any]]:
    """The state dict with every tensor of a ViT, and its sizes; a ValueError for a part of one, or another's."""
    state = model.state_dict() if isinstance(model, ViT) else model
    if not isinstance(state, Mapping):
        raise TypeError(f"a ViT or its state dict is needed, got {type(model).__name__}")
    with files.refusing():
        plain, features = (
            {n: t for n, t in state.items() if not n.startswith(FEATURES)},
            _split(dict(state), FEATURES)[1],
        )
        if strange := [name for name in plain if name not in names_of(OURS, range(_blocks(state)))]:
            raise ValueError(f"not names of a ViT of this package: {files.some(strange)}")
        rows = _rows_of(OURS, plain)
        ours = _join(rows, plain) | features
        sizes = _sizes(ours)
        if features:
            sizes, _ = _with_stem(sizes, features, model.config.stem if isinstance(model, ViT) else None)
        P, Q = as_pair(sizes["patch_size"], "patch_size")
        position = ours.get("embed.position")
        prefix = {"mean": 0, "cls": 1, "distilled": 2}[sizes["pool"]]
        N = 1 if position is None else position.shape[1] - prefix
        kind: Position = "none" if position is None else "learned"
        _check_shapes(ViTConfig(image_size=(P, max(N, 1) * Q), num_heads=1, position=kind, **sizes), ours, rows)
    return state, sizes


def _blocks(state: Mapping[str, Tensor]) -> int:
    named = [name for name in state if not name.startswith(FEATURES)]
    return 1 + max((int(match[1]) for name in named if (match := BLOCK.search(name))), default=-1)


def _plain(
    model: ViT | Mapping[str, Tensor], library: str, qkv_bias: bool = False
) -> tuple[Mapping[str, Tensor], dict[str, Any]]:
    """The state dict, if the library can express it, and its sizes."""
    state, sizes = _whole(model)
    needed = ["embed.cls_token", "embed.position"] + ["blocks.0.attention.qkv.bias"] * qkv_bias
    if lacking := [name for name in needed if name not in state]:
        raise ValueError(
            f"{library} needs {files.some(lacking)}, which this model doesn't have: to_timm can do without"
        )
    if sizes["pool"] == "distilled":
        raise ValueError(f"{library}'s ViT has one class token, this model has two: to_timm has both")
    if (stem := sizes.get("stem")) is not None:
        one_by_one = state["embed.patches.proj.weight"].shape[2:] == (1, 1)
        if library != "torchvision" or not isinstance(stem, ConvStem) or not one_by_one:
            raise ValueError(f"{library}'s ViT can't have the stem {stem}: to_timm can")
    return state, sizes
