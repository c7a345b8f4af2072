"""Lesson 09: whose files can be read: a library's tables of names, and what its files don't say of themselves.

A new library is a table in :mod:`.names` and an entry of :data:`SOURCES`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch

from vit_tutorial.data import CropMode, Preprocessing
from vit_tutorial.embeddings import ResizeRecipe
from vit_tutorial.patches import as_pair
from vit_tutorial.variants.modern import Rotary
from vit_tutorial.vit import ViTConfig
from vit_tutorial.weights import names
from vit_tutorial.weights.messages import some
from vit_tutorial.weights.names import State, Table, just

Dropped = Mapping[str, tuple[Table, ...]]  # why tensors are dropped: tables that have their names
Statistics = tuple[tuple[float, ...], tuple[float, ...]]  # mean and standard deviation of each channel
IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
HALF = (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)
OPENAI = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
LARGEST_RESIZED = 16_384  # pixels
LARGEST_PIXEL = 1e6  # a mean or a standard deviation; beyond, float32 loses the picture
EVA_ROTARY = Rotary("index", temperature=10_000.0, reference=(16, 16))


class Prepared(NamedTuple):
    """A file's tensors, so that the tables reach them."""

    state: State
    left_out: tuple[str, ...] = ()  # what of the file isn't part of a ViT
    parts: Mapping[str, Any] = {}  # fields of the config that follow
    unsure: str = ""  # what no tensor tells: it must be said that the classifier is the library's own


def prepare_timm(state: State) -> Prepared:
    """Of timm, DeiT, DINO, MAE and EVA.

    DINOv3's biases of q, k and v have a mask: k's part counts as zeros.
    """
    if "dist_token" in state and "head.weight" in state and "head_dist.weight" not in state:
        raise ValueError("dist_token and head without head_dist: two tokens, one head, which ViTConfig can't express")
    for mask in [name for name in state if name.endswith("attn.qkv.bias_mask")]:
        start = mask.removesuffix("qkv.bias_mask")
        if state[f"{start}qkv.bias"].shape != state[mask].shape:
            raise ValueError(f"{mask} and the bias that it masks have other shapes")
        q, _, v = (state[f"{start}qkv.bias"] * state[mask]).chunk(3)
        state = _without(state, re.escape(start) + r"qkv\.bias(_mask)?") | {f"{start}q_bias": q, f"{start}v_bias": v}
    return without_pre_logits(state)


UNSURE = (
    "a classifier and the {} are in the file, and nothing tells whether the one reads the other. If the classifier "
    "reads {}, as transformers' own do, say parts={{'pool': {!r}}}; without the classifier's tensors the model returns "
    "the features"
)


def prepare_transformers(state: State) -> Prepared:
    """Of transformers' models.

    DeiT has two tokens always. With one classifier, that reads the class token alone: the second token's half of our
    head is zeros. The classifiers on CLIP and SigLIP read the mean of all patches, CLIP's before the last norm. Others'
    classifiers on ``pooler_output`` have the same names.
    """
    if any(name.startswith("neck.") for name in state):
        return Prepared(_without(state, r"(neck|head|auxiliary_head)\..+"), ("the neck and the head of DPT",))
    if "lm_head.weight" in state:  # the last norm is part of it
        return Prepared(_without(state, r"(lm_head|layernorm)\..+"), ("the head of masked pretraining",))
    if not state.get("embeddings.register_tokens", torch.ones(1)).numel():  # DINOv3 may have none, in a tensor
        state = _without(state, r"embeddings\.register_tokens")
    pooled = "pooler.dense.weight" in state and {"classifier.weight", "cls_classifier.weight"} & state.keys()
    unsure = UNSURE.format("pooler", "the class token", "cls") if pooled else ""
    if "embeddings.distillation_token" in state and "classifier.weight" in state:
        one = state["classifier.weight"]
        both = torch.cat([one, torch.zeros_like(one)], dim=-1)  # (K, 2 D)
        return Prepared(state | {"classifier.weight": both}, unsure=unsure)
    if "embeddings.patch_embedding.weight" in state and "classifier.weight" in state:
        siglip = "embeddings.class_embedding" not in state
        unread, what = (r"head\..+", "attention pooling") if siglip else (r"post_layernorm\..+", "last norm")
        kept = _without(state, unread)
        left_out = (f"the {what}, which the classifier doesn't read",) if len(kept) < len(state) else ()
        unsure = UNSURE.format(what, "the mean of all patches", "mean") if left_out else ""
        return Prepared(kept, left_out, {"pool": "mean"}, unsure)
    return Prepared(state, unsure=unsure)


def prepare_google(state: State) -> Prepared:
    """big_vision's scan keeps each kind of tensor of all blocks in one, block by block on the first axis."""
    kernel = state.get("embedding/kernel")
    if kernel is not None and kernel.ndim == 2:
        raise ValueError(f"embedding/kernel {tuple(kernel.shape)}: NaFlex (SigLIP 2's), which isn't read here")
    whole = {}
    for name, tensor in state.items():
        parts = tensor.unbind() if "/encoderblock/" in name and tensor.ndim else [tensor]
        for i, part in enumerate(parts):
            whole[name.replace("/encoderblock/", f"/encoderblock_{i}/")] = part
    return without_pre_logits(whole)


CLASSIFIER = re.compile(r"(heads?|heads\.head|classifier|fc|linear|[12])(\.[012])?")  # of a hand-written model


def own_head(state: State, head: str) -> tuple[State, str]:
    """The state with its one classifier under the library's own name for a head, and what the file calls it.

    That is "" if nothing changes. So ``nn.Sequential(dropout, linear)`` is read, or ``fc`` behind a backbone. What
    stands before it without tensors, no tensor shows.
    """
    modules = {name: name.rpartition(".")[0] for name in state if name != "head.probe"}  # SigLIP's pooling has that
    found = [name for name, module in modules.items() if CLASSIFIER.fullmatch(module)]
    module = found[0].rpartition(".")[0] if found else head
    if not head or module == head or {*found} != {f"{module}.weight", f"{module}.bias"}:
        return state, ""
    return {name.replace(module, head, 1) if name in found else name: tensor for name, tensor in state.items()}, module


def without_pre_logits(state: State) -> Prepared:
    """``pre_logits`` is a layer with tanh that ViTConfig can't express, in older files of most libraries."""
    if any(re.match(r"(heads\.)?pre_logits[./]", name) for name in state):
        kept = _without(state, r"((heads\.)?pre_logits|head|heads\.head)[./].+")
        return Prepared(kept, ("pre_logits and the head behind it",))
    return Prepared(state)


def _without(state: State, pattern: str) -> State:
    """Without the names that are the pattern as a whole."""
    return {name: tensor for name, tensor in state.items() if not re.fullmatch(pattern, name)}


@dataclass(frozen=True)
class Source:
    """What the files of a library, or of a family of models under its names, don't say of themselves."""

    library: str
    tables: tuple[Table, ...]
    statistics: Statistics  # of the pixels, as it evaluates
    crop: CropMode
    interpolation: str = "bicubic"
    norm_eps: float = 1e-6
    gelu: str = "exact"
    prepare: Callable[[State], Prepared] = Prepared
    left_out: Dropped = field(default_factory=dict)  # parts of the file that no answer to a picture depends on, said
    unread: Dropped = field(default_factory=lambda: TRAINING)  # likewise, not said
    shows: Mapping[str, Any] = field(default_factory=dict)  # the fields by which the family is known
    pool: str = "cls"
    rotary: Rotary | None = None
    neighbours: bool = False  # rotary pairs are (2 i, 2 i + 1) in the file, and (i, i + d / 2) with us
    position: str = "none"  # what it has, if no positions are stored
    recipe: ResizeRecipe = "timm"

    @property
    def kin(self) -> dict[str, Source]:
        """The families under the same names."""
        return {name: other for name, other in SOURCES.items() if other.tables is self.tables}

    def dropped(self, left: list[str]) -> dict[str, str]:
        """Those of ``left``, the names in no table, that this family drops: {name: what it is, "" if unsaid}."""
        found: dict[str, str] = {}
        silent = {"": [table for tables in self.unread.values() for table in tables]}
        for what, tables in {**silent, **self.left_out}.items():
            others = set(names.matches(tables, left, "theirs")[2])
            found = {name: what for name in left if name not in others} | found
        return found

    @property
    def head(self) -> str:
        """Their name for the head."""
        return next((table["head.*"].removesuffix(".*") for table in self.tables if "head.*" in table), "")

    @property
    def projections(self) -> set[str]:
        """Their names for heads that have no bias."""
        return {table["head.weight"].partition(" : ")[0] for table in self.tables if "head.weight" in table}

    def shown_by(self, fields: Mapping[str, Any]) -> bool:
        """Whether a model with these fields is of the family."""
        return all(
            bool(fields.get(name)) is value if isinstance(value, bool) else fields.get(name) == value
            for name, value in self.shows.items()
        )


TEXT = {  # beside an image tower of OpenAI's or open_clip's
    "the text tower": (names.OPENAI_TEXT, names.OPEN_CLIP_TEXT, names.OPEN_CLIP_SIGLIP_TEXT),
    "the text tower, of another kind": (
        just("text.(transformer|proj).**", "text.cls_emb", "transformer.resblocks.{i}.(ls_1|ls_2).gamma"),
    ),
}
SCALE = {"of the loss": (just("(logit_scale|logit_bias)"),)}
TRAINING: dict[str, tuple[Table, ...]] = {
    "in the place of a patch that pretraining hides": (just("mask_token", "embeddings.mask_token"),),
    "weights of the classes in a loss": (just("(criterion|loss|loss_fn|loss_fct).(weight|pos_weight)"),),
}
TORCHVISION = Source(
    "torchvision", (names.TORCHVISION, names.TORCHVISION_0_12), IMAGENET, 224 / 256, "bilinear",
    prepare=without_pre_logits,
)  # fmt: skip
DECODER = {
    "the decoder": (just("(decoder_embed|decoder_norm|decoder_pred).*", "decoder_pos_embed", "decoder_blocks.**"),)
}
PROJECTORS = {"the projectors of its losses": (just(
    "(head|dino_head|ibot_head).mlp.{j}.(weight|bias|running_mean|running_var|num_batches_tracked)",
    "(head|dino_head|ibot_head).(last_layer|last_norm).(weight|bias|weight_g|weight_v|running_mean|running_var)",
    "(head|dino_head|ibot_head).last_layer.parametrizations.weight.(original0|original1)",
    "(dino_loss|ibot_patch_loss|koleo_loss).center",
),)}  # fmt: skip
TIMM = Source(
    "timm",
    (
        names.TIMM_NOW, names.TIMM_DISTILLED, names.TIMM_EVA, names.TIMM_BIASES, names.TIMM_GATED, names.TIMM_APART,
        names.TIMM_ROOT, names.META, names.META_2025, names.META_CHUNKS, names.META_CHUNKS_GATED,
        names.META_LINEAR, names.BAAI, names.OPEN_CLIP_TRUNK,
    ),
    HALF,
    0.9,
    prepare=prepare_timm,
)  # fmt: skip
TRUNK = replace(TIMM, left_out=TEXT, unread=TRAINING | SCALE)  # that may be an image tower of open_clip's
CLIP = Source(
    "openai",
    (names.OPENAI,),
    OPENAI,
    1.0,
    norm_eps=1e-5,
    gelu="quick",
    left_out=TEXT,
    unread=TRAINING | SCALE | {"sizes, as numbers": (just("(input_resolution|context_length|vocab_size)"),)},
)
HUGGING_FACE = Source(
    "huggingface",
    (
        names.HF_4, names.HF_5, names.HF_DEIT, names.HF_DEIT_TEACHER, names.HF_BEIT, names.HF_BEIT_5, names.HF_DINOV2,
        names.HF_DINOV2_GATED, names.HF_DINOV2_5, names.HF_DINOV3, names.HF_DINOV3_GATED, names.HF_DINOV3_5,
        names.HF_DINOV3_GATED_5, names.HF_CLIP, names.HF_OWL, names.HF_ALT,
    ),
    HALF,
    "none",
    "bilinear",
    norm_eps=1e-12,
    recipe="huggingface",
    prepare=prepare_transformers,
)  # fmt: skip
HF_BEIT = replace(HUGGING_FACE, crop=0.9, interpolation="bicubic")
HF_DINOV2 = replace(
    HUGGING_FACE, statistics=IMAGENET, crop=224 / 256, interpolation="bicubic", norm_eps=1e-6,
    shows={"layer_scale": True},
)  # fmt: skip
HF_TOWER = replace(  # beside a text tower
    HUGGING_FACE, interpolation="bicubic", norm_eps=1e-6,
    left_out={
        "the text tower": (names.HF_CLIP_TEXT, names.HF_SIGLIP_TEXT),
        "the text tower, of another kind": (just(  # AltCLIP's, Chinese CLIP's
            "text_model.(roberta|transformation|pre_LN|pooler).**", "text_model.embeddings.LayerNorm.*",
            "text_model.embeddings.(word_embeddings|position_embeddings|token_type_embeddings).weight",
            "text_model.encoder.layer.**",
        ),),
        "the decoder": (just("decoder.**"),),  # CLIPSeg's
        "the heads of detection": (  # OWL-ViT's
            just("(class_head|box_head|objectness_head|layer_norm).**", "box_bias"),
        ),
    },
    unread=TRAINING | SCALE,
)  # fmt: skip
BLIP = replace(
    HF_TOWER, tables=(names.HF_BLIP,), statistics=OPENAI, norm_eps=1e-5,
    prepare=lambda state: Prepared(state, ("the pooler, a second norm of the class token",)),
    left_out={
        "the text tower": (just(
            "(text_model|text_encoder|text_decoder|language_model).**", "(text_projection|text_proj).*",
            "embeddings.(word_embeddings|position_embeddings).weight",
        ),),
        "the projections into a space of images and text": (
            just("(vision_projection|vision_proj|itm_head).*", "visual_projection.weight"),
        ),
        "the Q-Former, which asks the image tower for a language model": (
            just("qformer.**", "query_tokens", "language_projection.*"),
        ),
    },
)  # fmt: skip
GOOGLE = Source(  # JAX's GELU is the tanh approximation
    "google", (names.GOOGLE, names.GOOGLE_HYBRID), HALF, "none", "bilinear", gelu="tanh", prepare=prepare_google
)
BIG_VISION = replace(
    GOOGLE,
    tables=(names.SIGLIP,),
    crop=224 / 256,
    position="sincos",
    left_out={"the text tower": (just("txt/**"),)},
    unread={"of the loss": (just("(t|b)"),)},
)
OWN = Source("vit_tutorial", (names.OURS,), HALF, "center")

# The first with a file's names, and the fields that its tensors show, says the rest.
SOURCES = {
    "torchvision": TORCHVISION,
    "BEiT": replace(TIMM, shows={"position_bias": True}),
    "DINOv3": replace(
        TIMM, statistics=IMAGENET, crop="none", interpolation="bilinear", norm_eps=1e-5, rotary=Rotary(),
        shows={"position": "none", "registers": True, "layer_scale": True}, left_out=PROJECTORS,
        unread=TRAINING | {"read for small crops, in training": (just("local_cls_norm.*"),)},
    ),
    "CLIP": replace(TRUNK, statistics=OPENAI, crop=1.0, norm_eps=1e-5, shows={"pre_norm": True}),
    "SigLIP": replace(TRUNK, crop="none", gelu="tanh", pool="attention", shows={"pool": "attention"}),
    "EVA-02": replace(
        TRUNK, statistics=OPENAI, rotary=EVA_ROTARY, neighbours=True, shows={"gated": True, "k_bias": False},
    ),
    "EVA": replace(TRUNK, statistics=OPENAI, shows={"k_bias": False}),
    "MAE": replace(TRUNK, statistics=IMAGENET, crop=224 / 256, shows={"pool_norm": True, "layer_scale": False}),
    "DINOv2 with registers": replace(
        TIMM, statistics=IMAGENET, crop=224 / 256, left_out=PROJECTORS, shows={"registers": True}
    ),
    "DINOv2": replace(
        TIMM, statistics=IMAGENET, crop=224 / 256, recipe="dino", left_out=PROJECTORS,
        shows={"layer_scale": True, "masked": True},
    ),
    "DeiT-3": replace(TIMM, statistics=IMAGENET, crop=1.0, shows={"layer_scale": True}),
    "deit": replace(TIMM, statistics=IMAGENET, left_out=DECODER, shows={"pool": "distilled"}),
    "dino": replace(
        TRUNK, statistics=IMAGENET, crop=224 / 256, recipe="dino", left_out=TEXT | DECODER | PROJECTORS,
        shows={"num_classes": 0},
    ),
    "timm": replace(TRUNK, left_out=TEXT | DECODER),
    "OpenAI's CLIP": CLIP,
    "transformers' BEiT": replace(HF_BEIT, shows={"pool_norm": True}),
    "transformers' BEiT, features": replace(HF_BEIT, shows={"scaled_by": "lambda_1"}),
    "transformers' DINOv3": replace(
        HUGGING_FACE, statistics=IMAGENET, norm_eps=1e-5, rotary=Rotary(),
        shows={"position": "none", "position_bias": False, "layer_scale": True},
    ),
    "transformers' DINOv2 with registers": replace(
        HF_DINOV2, recipe="timm", shows={"layer_scale": True, "registers": True}
    ),
    "transformers' DINOv2": HF_DINOV2,
    "transformers' CLIP": replace(
        HF_TOWER, statistics=OPENAI, crop=1.0, norm_eps=1e-5, gelu="quick", shows={"pre_norm": True}
    ),
    "transformers' SigLIP": replace(HF_TOWER, gelu="tanh", pool="attention", shows={"pool": "attention"}),
    "transformers' BLIP": BLIP,
    "huggingface": replace(
        HUGGING_FACE, left_out={"the pooler": (just("pooler.dense.*"),), "the decoder": (just("decoder.**"),)}
    ),
    "google": GOOGLE,
    "SigLIP of big_vision": replace(
        BIG_VISION, crop="none", interpolation="bicubic", pool="attention", shows={"pool": "attention"}
    ),
    "big_vision": BIG_VISION,
    "vit_tutorial": OWN,
}  # fmt: skip
NAMED = ("torchvision", "timm", "deit", "dino", "huggingface", "google", "big_vision", "vit_tutorial")


ANCHORS = tuple(dict.fromkeys(  # each name of the patch embedding: by it a model is known, whatever stands before it
    rule.theirs[0] for source in SOURCES.values() for rule in names.rules_of(source.tables)
    if rule.ours[0] == "embed.patches.proj.weight"
))  # fmt: skip


def preprocessing(name: str, config: ViTConfig) -> Preprocessing:
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
        made, taken = preprocess.image_size, config.image_size
        raise ValueError(f"preprocess makes {made} pixels, and the model takes {taken}: give preprocess, or image_size")
    largest = max(preprocess.image_size)
    if not isinstance(preprocess.crop, str) and largest > LARGEST_RESIZED * preprocess.crop:
        resized = f"{largest / preprocess.crop:,.0f} pixels before it cuts {largest} out of them"
        raise ValueError(f"preprocess resizes pictures to {resized}: at most {LARGEST_RESIZED:,} are made")
    for what, values in (("mean", preprocess.mean), ("std", preprocess.std)):
        if len(values) != config.in_channels:
            raise ValueError(f"{what} {values} must have a number for each of {config.in_channels} channels")
        least, sign = (-LARGEST_PIXEL, "") if what == "mean" else (1 / LARGEST_PIXEL, ", above 0,")
        if not all(isinstance(x, (int, float)) and least <= x <= LARGEST_PIXEL for x in values):
            raise ValueError(f"{what} {values} must be finite numbers from {least:g}{sign} to {LARGEST_PIXEL:g}")


# -------------------------------------------------------------------------------------- what stops the reading, and why

BEYOND = {  # parts that no config here has, by what their tensors are called
    r"\bffn\.layers\.\d": "OpenMMLab's names, for which timm may have a converter",
    r"\bto_patch_embedding\b": "vit-pytorch's ViT, whose patches have norms",
    r"lambda_q\d|sub_norm": "differential attention",
    r"detection_tokens|mid_position": "detection tokens (YOLOS)",
    r"patch_embed\.norm|embeddings\.norm|patch_norm": "a norm in the patch embedding",
    r"relative_position|rel_pos|\brope|rotary": "relative or rotary positions",
    r"patch_embed\.backbone\.|conv_proj\.(\d|conv_)|backbone\.bit|patch_embed\.proj\.\d": (
        "a convolutional stem of another kind (vt.hybrid.HybridEmbed takes any)"
    ),
    r"\.experts?\.|router": "a mixture of experts",
    r"\.(attns|ffns)\.\d|\.in_proj\.|attn_out_proj|mlp_out_proj": "blocks in parallel",
    r"blocks_token_only": "class attention (CaiT)",
    r"talking_head|proj_l\.|proj_w\.": "talking heads",
    r"^transformer\.resblocks": "a tower of CLIP alone; if of images, with a ln_post, put 'visual.' before each name",
    r"^(text_model|text|txt|visual|vision_model|vision_tower|text_encoder)[./]": (
        "a model of images and text, or a tower of one (CLIP, SigLIP, BLIP)"
    ),
    r"embeddings\.(class_embedding|patch_embedding)\b": "a tower of a model of images and text (CLIP, SigLIP, BLIP)",
    r"\bstages\.\d|patch_embeddings\.\d|encoder\.block\.\d+\.\d|layers\.\d+\.blocks\.\d": (
        "stages of several resolutions (Swin, PVT, Hiera)"
    ),
    r"^embeds\.": "patches of pictures of any shape (NaFlex)",
    r"attention\.projection_layer\.": "the attention of InternVL",
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


def refuse_parts(left: list[str]) -> None:
    """A ValueError that says which parts of this architecture the configs can't express, if names show any."""
    parts = []
    for pattern, part in BEYOND.items():
        if found := [name for name in left if re.search(pattern, name)]:
            parts.append(f"{some(found, 3)}: {part}")
    if parts:
        raise ValueError(f"{'; '.join(parts[:4])}, which ModernConfig can't express")
