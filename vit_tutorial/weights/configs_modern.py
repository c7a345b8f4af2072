"""Lesson 15: what a config.json tells of a model of after 2020, as :mod:`configs` reads those of 2020.

The same rule holds: a key is honoured, or compared with the tensors, or known to change no number; any other is an
error that names it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, get_args

from vit_tutorial.variants.modern import Pooling, Rotary
from vit_tutorial.weights import configs
from vit_tutorial.weights.configs import Json, Known
from vit_tutorial.weights.names import Told
from vit_tutorial.weights.names_modern import EVA_ROTARY

EVERY_POOL: Any = get_args(Pooling)  # the tensors and the parts decide


def read(config: Json, processor: Json | None) -> Known:
    """What config.json (and transformers' preprocessor_config.json) say, of a model of 2020 or a later one.

    Raises:
        ValueError: another architecture, or a key or value that this package can't honour.
    """
    kind = config.get("model_type")
    if kind == "timm_wrapper" and _is_modern_timm(config):
        return _wrapper(config)
    if isinstance(kind, str) and kind in FAMILIES:
        return transformers(config, processor)
    if "model_type" in config:
        return configs.transformers(config, processor)
    return timm(config) if _is_modern_timm(config) else configs.timm(config)


# ---------------------------------------------------------------------------------------------------------------- timm

HEADS = configs.HEADS | {
    "xsmall": 4, "wee": 4, "little": 5, "medium": 8, "mediumd": 8, "betwixt": 10, "so150m": 14, "so150m2": 13,
    "so400m": 16, "giantopt": 16, "intern300m": 16, "huge_plus": 20, "small_plus": 6, "7b": 32,
}  # fmt: skip
S = "|".join(sorted(HEADS, key=len, reverse=True))
ROPE = {"neighbours": True}
PRE_NORM, SCALED = {"pre_norm": True}, {"layer_scale": 1e-5}
NO_POSITION = {"position": "none"}
XY = ROPE | {"columns_first": True}


@dataclass(frozen=True)
class Architecture:
    """What timm's code says of the models of a name, and no tensor shows."""

    pool: str = "cls"
    norm_eps: float = 1e-6
    gelu: str = "exact"
    parts: Mapping[str, Any] = field(default_factory=dict)
    shown: Mapping[str, Any] = field(default_factory=dict)  # what tensors must show
    any_size: bool = False  # whether timm resizes positions itself
    num_heads: int | None = None  # None: by the size in the name


def _pe(reference: int, offset: float, **more: Any) -> Architecture:
    """Meta's Perception Encoder (arXiv 2504.13181)."""
    rotary = Rotary("index", 10_000.0, (reference, reference), offset)
    pool = "attention" if more else "mean"
    return Architecture(pool, 1e-5, parts=XY | {"rotary": rotary} | more, shown=PRE_NORM)


POOLED = {"pool_prefix": True, "pool_heads": 8}
NAVER = XY | {"rotary": Rotary("index", 100.0)}
DINOV3_ROTARY = {"rotary": Rotary()}
EVA = ROPE | {"rotary": EVA_ROTARY}
# timm's names in full, the first that fits; those of other block types (18x2, xp, rpn, diff, mixed) are none of these.
TIMM: dict[str, Architecture] = {
    r"vit_base_patch\d+_plus_clip_\d+": Architecture(norm_eps=1e-5, shown=PRE_NORM, num_heads=14),
    rf"vit_({S})_patch\d+(_plus)?_clip_\d+": Architecture(norm_eps=1e-5, shown=PRE_NORM),
    rf"vit_({S})_patch\d+_clip_quickgelu_\d+": Architecture(norm_eps=1e-5, gelu="quick", shown=PRE_NORM),
    r"vit_base_patch32_siglip_256|vit_large_patch16_siglip_512|vit_(so400m|giantopt)_patch16_siglip_\d+": (
        Architecture("attention", gelu="tanh")
    ),
    rf"vit_({S})_patch\d+_siglip_\d+|vit_so150m_patch16_reg4_map_256": Architecture("attention"),
    r"vit_giant_patch14(_reg\d)?_(dinov2|tipsv2)": Architecture(num_heads=24, shown=SCALED),
    rf"vit_({S})_patch14(_reg\d)?_(dinov2|tipsv2)": Architecture(shown=SCALED),
    rf"vit_({S})_patch16_dinov3(_qkvb)?": Architecture(
        "mean", 1e-5, parts=DINOV3_ROTARY, shown=NO_POSITION, any_size=True
    ),
    r"vit_giant_patch16_lingbot": Architecture(
        "cls", 1e-5, parts=DINOV3_ROTARY, shown=NO_POSITION, any_size=True, num_heads=24
    ),
    rf"vit_({S})_patch16_lingbot": Architecture("cls", 1e-5, parts=DINOV3_ROTARY, shown=NO_POSITION, any_size=True),
    rf"vit_({S})_patch16_rope_reg\d_gap_\d+": Architecture("mean", parts=EVA, shown=NO_POSITION),
    rf"vit_({S})_patch16_rope_\d+": Architecture(parts=NAVER, shown=NO_POSITION),
    rf"vit_({S})_patch16_rope_ape_\d+": Architecture(parts=NAVER, shown=SCALED),
    r"vit_pe_core_base_\w+": _pe(14, 1.0, **POOLED),
    r"vit_pe_core_(tiny|small|large)_\w+": _pe(24, 1.0, **POOLED),
    r"vit_pe_core_gigantic_\w+": _pe(32, 0.0, **POOLED),
    r"vit_pe_(lang|spatial)_gigantic_\w+": _pe(32, 0.0),
    r"vit_pe_(lang|spatial)_\w+": _pe(32, 1.0),
    r"vit_giant_patch16_radio_v3": Architecture(num_heads=24),
    rf"vit_({S})_patch16_radio_v\d": Architecture(),
    r"vit_intern300m_patch14_448": Architecture(any_size=True),
    r"vit_base_patch16_gap_\d+": Architecture("mean", num_heads=16),
    rf"vit_({S})_patch16(_reg\d)?_gap_\d+": Architecture("mean"),
    r"vit_base_patch(16|32)_plus_\d+": Architecture(num_heads=14),
    r"vit_small_patch16_36x1_224": Architecture(),
    rf"deit3_({S})_patch\d+_\d+": Architecture(shown=SCALED),
    r"eva02_(tiny|small|base|large)_patch14_\d+": Architecture("mean", parts=EVA, shown={"gated": True}),
    r"eva02_(base|large)_patch\d+_clip_\d+": Architecture(parts=EVA, shown={"gated": True}),
    r"eva_large_patch14_\d+": Architecture("mean", shown={"pool_norm": True}),
    r"eva_giant_patch14_\d+": Architecture("mean", shown={"k_bias": False}),
    r"eva_giant_patch14_clip_\d+": Architecture(shown={"k_bias": False}),
    r"beit(v2)?_(base|large)_patch16_\d+": Architecture("mean", shown={"position_bias": True}),
    r"beit3_(base|large|giant)_patch\d+_\d+": Architecture("mean", 1e-5),
    r"test_vit2": Architecture("mean", any_size=True, num_heads=2),
    r"test_vit3": Architecture("attention", parts={"pool_prefix": True}, num_heads=3),
    r"test_vit4": Architecture("mean", any_size=True, num_heads=3),
}
POOLS = {"token": "cls", "avg": "mean", "map": "attention"}
GELUS = {"gelu": "exact", "gelu_tanh": "tanh", "quick_gelu": "quick"}
NORMS = {"layernorm": "layer", "rmsnorm": "rms"}
SHOWN = configs.TIMM_ARGS | {  # by the tensors, which decide
    "qk_norm", "scale_attn_norm", "scale_mlp_norm", "init_values", "reg_tokens", "pre_norm", "final_norm", "fc_norm",
    "num_reg_tokens", "use_fc_norm", "swiglu_mlp", "scale_mlp", "qkv_fused",
}  # fmt: skip
FIXED = {  # keys of model_args that must have these values
    "proj_bias": (True,), "embed_norm_layer": (None, ""), "attn_layer": (None, "", "attn"), "mlp_layer": (None, ""),
    "block_fn": (None,), "embed_layer": (None,), "features_only": (False,), "scriptable": (None, False),
    "exportable": (None, False), "num_kv_heads": (None,), "use_naflex": (None, False),
}  # fmt: skip
NEW = {"init_values", "reg_tokens", "qk_norm", "scale_attn_norm", "scale_mlp_norm", "pre_norm", "final_norm", "fc_norm",
       "norm_layer", "pool_include_prefix"}  # fmt: skip


def _is_modern_timm(config: Json) -> bool:
    """Whether timm's name, or what its model_args say of a plain one, is of after 2020."""
    name, args = str(config.get("architecture")), config.get("model_args")
    if any(re.fullmatch(pattern, name) for pattern in TIMM):
        return not re.fullmatch(r"vit_(base_patch16|giant_patch16|huge_patch\d+)_gap_\d+", name) or _asks(args)
    return any(re.fullmatch(pattern, name) for pattern in configs.PLAIN) and _asks(args)


def _asks(args: Any) -> bool:
    """Whether model_args ask for something that the paper's model doesn't have."""
    if not isinstance(args, dict):
        return False
    off = {"final_norm": (True,), "norm_layer": (None, "", "layernorm")}
    wanted = [key for key in NEW & args.keys() if args[key] not in off.get(key, (None, False, 0))]
    pool, act = args.get("global_pool"), args.get("act_layer")
    return bool(wanted) or pool == "map" or act == "quick_gelu" or (pool == "avg" and args.get("fc_norm") is not False)


def timm(config: Json) -> Known:
    """What timm's config.json says of a modern model: ``architecture``, ``model_args``, ``pretrained_cfg``."""
    about, args = config.get("pretrained_cfg", config), config.get("model_args") or {}
    if not isinstance(about, dict) or not isinstance(args, dict):
        raise ValueError("its pretrained_cfg and model_args must be mappings")
    for where, keys in (("its config", config), ("its pretrained_cfg", about)):
        configs._refuse_unknown(keys, configs.TIMM_HARMLESS | configs.TIMM_PIXELS, where)
    known = SHOWN | configs.TIMM_HARMLESS_ARGS | set(FIXED) | {"norm_layer", "pool_include_prefix"}
    configs._refuse_unknown(args, known, "its model_args")
    for key, good in FIXED.items():
        if key in args and args[key] not in good:
            raise ValueError(f"its model_args have {key}={args[key]!r:.100}, which is beyond ModernConfig")
    name = str(config.get("architecture"))
    found = next((a for pattern, a in TIMM.items() if re.fullmatch(pattern, name)), None)
    architecture = found or _plain(name)
    norm, act = args.get("norm_layer") or "layernorm", args.get("act_layer")
    if not isinstance(norm, str) or norm not in NORMS:
        raise ValueError(
            f"its model_args have norm_layer={norm!r:.100}, which is beyond ModernConfig: layernorm, rmsnorm"
        )
    if not isinstance(act, str | None) or act not in (None, "", *GELUS):
        raise ValueError(
            f"its model_args have act_layer={act!r:.100}, which is beyond ModernConfig: {', '.join(GELUS)}"
        )
    parts = dict(architecture.parts) | {"pool": _pool(config, args, architecture.pool)}
    if "pool_include_prefix" in args:
        parts["pool_prefix"] = configs._flag(args["pool_include_prefix"], "pool_include_prefix")
    heads = architecture.num_heads or configs.OTHER_HEADS.get(name) or HEADS.get(_size_in(name), 16)
    if "num_heads" in args:
        heads = configs._whole(args["num_heads"], "num_heads")
    channels = (
        configs._input(about)[0] if args.get("in_chans") is None else configs._whole(args["in_chans"], "in_chans")
    )
    pixels = configs._timm_pixels(about, channels)
    resized = bool(args.get("dynamic_img_size", architecture.any_size))
    size = args.get("img_size") or (224 if resized and "rotary" not in parts else list(pixels.image_size))
    labels = next((at[key] for key in ("label_names", "labels") for at in (config, about) if at.get(key)), None)
    if about.get("label_offset") or config.get("label_offset"):
        raise ValueError("its label_offset shifts the classes, which this package doesn't")
    told = Told(heads, configs._size(size, "img_size"), None, architecture.norm_eps, parts=parts)
    parts["gelu"] = GELUS[act] if act else architecture.gelu
    fields = configs._timm_fields(config, args) | {"mlp_dim": None} | dict(architecture.shown)
    return Known("timm", told, fields, EVERY_POOL, configs._labels(labels, "label_names"), pixels, resized)


def _plain(name: str) -> Architecture:
    """One of the paper's names, whose model_args have something new."""
    heads, gelu = configs._timm_architecture(name)
    return Architecture("mean" if "_gap_" in name else "cls", gelu=gelu, num_heads=heads, any_size=name == "test_vit")


def _size_in(name: str) -> str:
    match = re.search(rf"(?:^|_)({S})_patch|(?:^|_)({S})_", name)
    return (match[1] or match[2]) if match else ""


def _pool(config: Json, args: Json, usual: str) -> str:
    """What is read out, by model_args, else by the config, else by the architecture."""
    for at in (args, config):
        if (pool := at.get("global_pool")) is not None:
            if not isinstance(pool, str) or pool not in POOLS:
                raise ValueError(
                    f"it pools by {pool!r:.100} (global_pool), which is beyond ModernConfig: {', '.join(POOLS)}"
                )
            return POOLS[pool]
    return usual


def _wrapper(config: Json) -> Known:
    """Transformers around timm: timm's keys among transformers' own."""
    configs._refuse_unknown(
        config,
        configs.HF_HARMLESS | configs.TIMM_HARMLESS | configs.TIMM_PIXELS | {"id2label", "num_labels", "do_pooling"},
        "its config",
    )
    keys = ("architecture", "model_args", "global_pool", "label_names", "label_offset")
    inner = {key: config[key] for key in keys if config.get(key) is not None}
    known = timm(inner | {"pretrained_cfg": config.get("pretrained_cfg") or {}})
    return replace(known, labels=configs._labels(config.get("id2label"), "id2label") or known.labels)


# -------------------------------------------------------------------------------------------------------- transformers


@dataclass(frozen=True)
class HFFamily:
    """One of transformers' model types: its defaults, and its keys beside those that every vision model has."""

    processor: str
    norm_eps: float = 1e-6
    gelu: str = "gelu"
    dim: int = 768
    depth: int = 12
    heads: int = 12
    image_size: int = 224
    patch_size: int = 16
    resized: bool = False  # whether transformers resizes positions without being asked
    shown: Mapping[str, Any] = field(default_factory=dict)  # what tensors must show
    read: frozenset[str] = frozenset()
    harmless: frozenset[str] = frozenset()


BACKBONE = frozenset(
    {
        "out_features",
        "out_indices",
        "stage_names",
        "apply_layernorm",
        "reshape_hidden_states",
        "drop_path_rate",
        "layerscale_value",
        "layer_scale_init_value",
    }
)
DINOV2 = frozenset({"mlp_ratio", "use_swiglu_ffn", "num_register_tokens"})
DINOV3 = frozenset(
    {
        "rope_theta",
        "query_bias",
        "key_bias",
        "value_bias",
        "proj_bias",
        "mlp_bias",
        "use_gated_mlp",
        "num_register_tokens",
    }
)
BEIT = frozenset(
    {
        "use_absolute_position_embeddings",
        "use_relative_position_bias",
        "use_shared_relative_position_bias",
        "use_mean_pooling",
    }
)
BEIT_OTHER = BACKBONE | {
    "vocab_size",
    "pool_scales",
    "use_auxiliary_head",
    "auxiliary_loss_weight",
    "auxiliary_channels",
    "auxiliary_num_convs",
    "auxiliary_concat_input",
    "semantic_loss_ignore_index",
    "add_fpn",
}
TOWER = frozenset(
    {
        "projection_dim",
        "projection_size",
        "initializer_factor",
        "attention_dropout",
        "dropout",
        "logit_scale_init_value",
        "text_config",
        "num_register_tokens",
        "vision_use_head",
    }
)
CLIP_VISION = HFFamily("CLIP", 1e-5, "quick_gelu", patch_size=32, shown=PRE_NORM, harmless=TOWER)
SIGLIP_VISION = HFFamily("Siglip", gelu="gelu_pytorch_tanh", shown={"class_token": False}, harmless=TOWER)
FAMILIES = {
    "dinov2": HFFamily("Bit", patch_size=14, resized=True, shown=SCALED, read=DINOV2, harmless=BACKBONE),
    "dinov2_with_registers": HFFamily("Bit", resized=True, shown=SCALED, read=DINOV2, harmless=BACKBONE),
    "dinov3_vit": HFFamily(
        "DINOv3ViT",
        1e-5,
        dim=384,
        heads=6,
        resized=True,
        shown=SCALED | NO_POSITION,
        read=DINOV3,
        harmless=BACKBONE | {"pos_embed_shift", "pos_embed_jitter", "pos_embed_rescale", "attention_dropout"},
    ),
    "clip_vision_model": CLIP_VISION,
    "altclip_vision_model": CLIP_VISION,
    "chinese_clip_vision_model": CLIP_VISION,
    "clip": CLIP_VISION,
    "siglip_vision_model": SIGLIP_VISION,
    "siglip": SIGLIP_VISION,
    "beit": HFFamily("Beit", 1e-12, shown={"k_bias": False}, read=BEIT, harmless=BEIT_OTHER),
    "data2vec-vision": HFFamily("Beit", 1e-12, shown={"k_bias": False}, read=BEIT, harmless=BEIT_OTHER),
}
HF_GELUS = configs.HF_GELUS | {"quick_gelu": "quick"}


def transformers(config: Json, processor: Json | None) -> Known:
    """What transformers' config.json and preprocessor_config.json say of a modern model."""
    kind = str(config["model_type"])
    family, whole = FAMILIES[kind], config
    if kind in ("clip", "siglip"):  # both towers
        config = config.get("vision_config") or {}
        if not isinstance(config, dict):
            raise ValueError("its vision_config must be a mapping")
        configs._refuse_unknown(
            whole, configs.HF_HARMLESS | TOWER | {"vision_config", "id2label", "num_labels"}, "its config"
        )
    configs._refuse_unknown(config, configs.HF_READ | configs.HF_HARMLESS | family.read | family.harmless, "its config")
    for key in ("is_hybrid", "backbone_config", "backbone", "quantization_config", "pruned_heads"):
        if config.get(key):
            raise ValueError(f"its config has {key}, which is beyond ModernConfig")
    for key in ("proj_bias", "mlp_bias"):
        if config.get(key, True) is not True:
            raise ValueError(f"its config has {key}={config[key]!r:.100}, which is beyond ModernConfig")
    act, gated = (
        config.get("hidden_act", family.gelu),
        bool(config.get("use_swiglu_ffn") or config.get("use_gated_mlp")),
    )
    if gated and kind == "dinov3_vit" and act not in ("silu", "swish"):
        raise ValueError(f"its config has hidden_act={act!r:.100} for a gated MLP, which is beyond ModernConfig: silu")
    if not gated and (not isinstance(act, str) or act not in HF_GELUS):
        raise ValueError(f"its config has hidden_act={act!r:.100}, which is beyond ModernConfig: {', '.join(HF_GELUS)}")
    heads = configs._whole(config.get("num_attention_heads", family.heads), "num_attention_heads")
    channels = configs._whole(config.get("num_channels", 3), "num_channels")
    eps = configs._number(config.get("layer_norm_eps", family.norm_eps), "layer_norm_eps", 0)
    size = configs._size(config.get("image_size", family.image_size), "image_size")
    parts: dict[str, Any] = {} if gated else {"gelu": HF_GELUS[act]}
    if kind == "dinov3_vit":
        parts["rotary"] = Rotary("centred", configs._number(config.get("rope_theta", 100.0), "rope_theta"))
    if kind in ("beit", "data2vec-vision"):
        parts["pool"] = "mean" if configs._flag(config.get("use_mean_pooling", True), "use_mean_pooling") else "cls"
    fields: dict[str, Any] = {
        "dim": configs._whole(config.get("hidden_size", family.dim), "hidden_size"),
        "depth": configs._whole(config.get("num_hidden_layers", family.depth), "num_hidden_layers"),
        "patch_size": configs._size(config.get("patch_size", family.patch_size), "patch_size"),
        "in_channels": channels,
        "gated": gated,
        **family.shown,
    }
    if kind.startswith("dino"):
        fields["layer_scale"] = 1e-5  # as sizes() shows that there is one
    pixels = None if processor is None else _pixels(processor, family, channels)
    if pixels is not None and kind == "dinov3_vit":
        size = configs._size(pixels.image_size, "image_size")
    labels = configs._labels(whole.get("id2label"), "id2label")
    told = Told(heads, size, None, eps, parts=parts)
    return Known("huggingface", told, fields, EVERY_POOL, labels, pixels, family.resized, "huggingface")


def _pixels(processor: Json, family: HFFamily, channels: int) -> Any:
    """As transformers' image processors prepare pictures."""
    return configs._pixels(processor, configs.Family(family.processor), channels)
