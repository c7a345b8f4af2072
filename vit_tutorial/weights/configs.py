"""Lesson 09: what is known of a model beside its tensors: given by the user, or by timm's or transformers' config.json.

A key is honoured, or compared with the tensors, or known to change no number of an answer; any other is an error that
names it. What isn't written has the library's own default.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Set
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from vit_tutorial.data import Corner, CropMode, Preprocessing
from vit_tutorial.embeddings import ResizeRecipe
from vit_tutorial.patches import Size, as_pair
from vit_tutorial.variants.modern import ModernConfig, Rotary
from vit_tutorial.vit import Stem, ViTConfig
from vit_tutorial.weights.messages import short, some
from vit_tutorial.weights.sources import EVA_ROTARY, HALF, IMAGENET, OPENAI

Json = dict[str, Any]
BEYOND = "which is beyond ViTConfig and ModernConfig"


@dataclass(frozen=True)
class Given:
    """What is known beside the tensors; None: nothing. As :func:`.convert`'s arguments."""

    num_heads: int | None = None
    image_size: Size | None = None
    gelu: str | None = None
    norm_eps: float | None = None
    preprocess: Preprocessing | None = None
    stem: Stem | None = None
    plain: bool | None = None
    wanted_size: Size | None = None  # if the file's own isn't known: what the model shall take
    parts: Mapping[str, Any] | None = None  # fields of ModernConfig that no tensor shows
    part: str | None = None  # which model of several in the file
    told: bool | None = None  # whether a config says all that no tensor shows
    revision: str | None = None  # of a repository on the hub
    token: str | bool | None = None  # for one that isn't public

    def or_else(self, other: Given) -> Given:
        """These values, and the other's where there are none."""
        mine = {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) is not None}
        return replace(other, **mine)


@dataclass(frozen=True)
class Known:
    """What a library's files say of a model."""

    source: str  # as convert has it
    given: Given
    fields: dict[str, Any] = field(default_factory=dict)  # of the config, that the tensors must agree with
    labels: Mapping[int, str] = field(default_factory=dict)  # class names by their number
    pixels: Preprocessing | None = None  # None: nothing is said of them
    resized: bool = False  # whether the library itself resizes positions to these pixels
    recipe: ResizeRecipe = "timm"  # and how

    def check(self, config: ViTConfig) -> None:
        """Raise a ValueError if the tensors are another model's than the config says."""
        default = {f.name: f.default for f in fields(ModernConfig)} | {"class_token": config.pool != "mean"}
        found = default | {name: getattr(config, name) for name in asdict(config)}
        for name, said in self.fields.items():
            if said is not None and _same(said) != _same(found[name]):
                raise ValueError(
                    f"its config says {name}={said!r}, and its tensors {found[name]!r}: they don't belong together"
                )

    def classes(self, num_classes: int) -> tuple[str, ...]:
        """The names in the order of the head's rows; "class k" where there is none."""
        if beyond := [k for k in self.labels if not 0 <= k < num_classes]:
            raise ValueError(f"there is a name for class {beyond[0]}, and the head has {num_classes} classes, from 0")
        return tuple(self.labels.get(k, f"class {k}") for k in range(num_classes))


def _same(value: Any) -> Any:
    """4 and [4, 4] are the same size."""
    if isinstance(value, (list, tuple)):
        return tuple(value) if len(set(value)) > 1 else value[0]
    return value


def _refuse_unknown(keys: Mapping[str, Any], known: Set[str], where: str) -> None:
    if unknown := sorted(str(key) for key in keys if key not in known):
        raise ValueError(
            f"{where} has {some(unknown)}, which this package doesn't know: it might change the answer, so nothing is "
            "loaded. If it changes none, take it out of the file"
        )


LARGEST_SIDE = 8192  # pixels; models of today take a few hundred


def _number(value: Any, name: str, least: float = -math.inf) -> float:
    good = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and value >= least
    if not good:
        raise ValueError(
            f"{name} must be a number{'' if least == -math.inf else f' from {least:g}'}, got {short(value)}"
        )
    return float(value)


def _whole(value: Any, name: str, least: int = 1, most: int = 1_000_000) -> int:
    if _number(value, name, least) > most:
        raise ValueError(f"{name} must be at most {most:,}, got {short(value)}")
    if int(value) != value:
        raise ValueError(f"{name} must be a whole number, got {short(value)}")
    return int(value)


def _side(value: Any, name: str) -> int:
    return _whole(value, name, 1, LARGEST_SIDE)


def _size(value: Any, name: str) -> Size:
    pair = as_pair(tuple(value) if isinstance(value, list) else value, name)
    for side in pair:
        _side(side, name)
    return pair[0] if pair[0] == pair[1] else pair


def _divided(size: Size, patch_size: Size) -> Size:
    """The part of the size that whole patches fill; 0 is for the config to refuse."""
    sides = zip(as_pair(size, "image_size"), as_pair(patch_size, "patch_size"), strict=True)
    whole = [side // patch * patch or side for side, patch in sides]
    return whole[0] if whole[0] == whole[1] else (whole[0], whole[1])


def _flag(value: Any, name: str) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be true or false, got {short(value)}")
    return value


def _statistics(values: Any, channels: int, name: str) -> tuple[float, ...]:
    """One number a channel; one alone is for all."""
    numbers = values if isinstance(values, (list, tuple)) else [values]
    numbers = [_number(value, name) for value in numbers]
    if len(numbers) not in (1, channels):
        raise ValueError(f"{name} has {len(numbers)} numbers for {channels} channels")
    return tuple(numbers) if len(numbers) == channels else tuple(numbers) * channels


def _labels(names: Any, where: str) -> dict[int, str]:
    """Class names by number: of a list, or of a mapping whose keys are numbers."""
    if not names:
        return {}
    pairs = enumerate(names) if isinstance(names, list) else names.items() if isinstance(names, dict) else None
    if pairs is None:
        raise ValueError(f"{where} must be a list or a mapping of names, got {type(names).__name__}")
    labels = {}
    for key, name in pairs:
        if not re.fullmatch(r"\d{1,9}", str(key)) or not isinstance(name, str):
            raise ValueError(f"{where} must map numbers to names, got {short(key)}: {short(name)}")
        labels[int(key)] = name
    return labels


def read(config: Json, processor: Json | None) -> Known:
    """What config.json (and transformers' preprocessor_config.json) say.

    Raises:
        ValueError: another architecture, or a key or value that this package can't honour.
    """
    if config.get("model_type") == "timm_wrapper":
        return timm_wrapper(config)
    return transformers(config, processor) if "model_type" in config else timm(config)


# ---------------------------------------------------------------------------------------------------------------- timm

HEADS = {
    "tiny": 3, "small": 6, "base": 12, "large": 16, "huge": 16, "giant": 16, "gigantic": 16, "xsmall": 4, "wee": 4,
    "little": 5, "medium": 8, "mediumd": 8, "betwixt": 10, "so150m": 14, "so150m2": 13, "so400m": 16, "giantopt": 16,
    "intern300m": 16, "huge_plus": 20, "small_plus": 6, "7b": 32,
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
# timm's names in full, the first that fits. All others are refused by name (18x2, xp, rpn, diff, mixed), for the
# tensors of a rotated or post-normed model may be called the same.
TIMM: dict[str, Architecture] = {
    r"vit_base_patch16_gap_\d+": Architecture("mean", num_heads=16),
    rf"vit_({S})_patch\d+_gap_\d+": Architecture("mean"),
    rf"vit_({S})_patch\d+_\d+(_miil)?": Architecture(),
    rf"deit_({S})(_distilled)?_patch\d+_\d+": Architecture(),
    rf"flexivit_({S})": Architecture(),
    r"vit_base_patch32_siglip_gap_256|vit_large_patch16_siglip_gap_512|vit_(so400m|giantopt)_patch16_siglip_gap_\d+": (
        Architecture("mean", gelu="tanh")
    ),
    rf"vit_({S})_patch\d+_siglip_gap_\d+": Architecture("mean"),
    r"vit_(tiny|small|base|large)_r(26|50)?_s(16|32)(_p8)?_\d+": Architecture(),  # the paper's hybrids
    r"test_vit": Architecture(num_heads=2, any_size=True),
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
    rf"vit_({S})_patch16_reg\d_gap_\d+": Architecture("mean"),
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
TIMM_GELUS = {"gelu": "exact", "gelu_tanh": "tanh", "quick_gelu": "quick"}
NORMS = {"layernorm": "layer", "rmsnorm": "rms"}
TIMM_COMPARED = {  # keys of model_args that say what tensors show: our field
    "patch_size": "patch_size", "in_chans": "in_channels", "num_classes": "num_classes", "embed_dim": "dim",
    "depth": "depth", "qkv_bias": "qkv_bias", "class_token": "class_token", "qk_norm": "qk_norm",
    "scale_attn_norm": "attention_norm", "scale_mlp_norm": "mlp_norm", "reg_tokens": "registers",
    "num_reg_tokens": "registers", "pre_norm": "pre_norm", "fc_norm": "pool_norm",
}  # fmt: skip
TIMM_READ = {
    "num_heads", "act_layer", "global_pool", "img_size", "mlp_ratio", "pos_embed", "init_values", "norm_layer",
    "pool_include_prefix", "final_norm",
}  # fmt: skip
TIMM_FIXED = {  # keys of model_args that must have these values
    "proj_bias": (True,), "embed_norm_layer": (None, ""), "attn_layer": (None, "", "attn"), "mlp_layer": (None, ""),
    "block_fn": (None,), "embed_layer": (None,), "features_only": (False,), "scriptable": (None, False),
    "exportable": (None, False), "num_kv_heads": (None,), "use_naflex": (None, False),
}  # fmt: skip
TIMM_HARMLESS_ARGS = {  # of training, of other sizes, of where it runs, and what only tensors show
    "drop_rate", "pos_drop_rate", "patch_drop_rate", "proj_drop_rate", "attn_drop_rate", "drop_path_rate",
    "drop_block_rate", "weight_init", "fix_init", "dynamic_img_size", "dynamic_img_pad", "strict_img_size", "device",
    "dtype", "no_embed_class", "use_fc_norm", "swiglu_mlp", "scale_mlp", "qkv_fused",
}  # fmt: skip
TIMM_PIXELS = {"input_size", "mean", "std", "interpolation", "crop_pct", "crop_mode", "label_names", "label_offset"}
TIMM_HARMLESS = {  # where it is from, what may be written about it, and sizes of timm's own test script
    "url", "file", "hf_hub_id", "hf_hub_filename", "source", "architecture", "tag", "custom_load", "state_dict",
    "test_input_size", "min_input_size", "fixed_input_size", "test_crop_pct", "num_classes", "label_descriptions",
    "pool_size", "test_pool_size", "first_conv", "classifier", "license", "description", "origin_url", "paper_name",
    "paper_ids", "notes", "num_features", "labels", "global_pool", "model_args", "pretrained_cfg",
}  # fmt: skip


def timm(config: Json) -> Known:
    """What timm's config.json says: ``architecture``, its ``model_args``, and ``pretrained_cfg`` for the pixels."""
    about, args = config.get("pretrained_cfg", config), config.get("model_args") or {}  # older files have no two levels
    if not isinstance(about, dict) or not isinstance(args, dict):
        raise ValueError("its pretrained_cfg and model_args must be mappings")
    for where, keys in (("its config", config), ("its pretrained_cfg", about)):
        _refuse_unknown(keys, TIMM_HARMLESS | TIMM_PIXELS, where)
    _refuse_unknown(args, TIMM_COMPARED.keys() | TIMM_READ | TIMM_HARMLESS_ARGS | TIMM_FIXED.keys(), "its model_args")
    for key, good in TIMM_FIXED.items():
        if key in args and args[key] not in good:
            raise ValueError(f"its model_args have {key}={short(args[key])}, {BEYOND}")
    if about.get("label_offset") or config.get("label_offset"):
        raise ValueError("its label_offset shifts the classes, which this package doesn't")
    name = config.get("architecture")
    architecture = timm_architecture(name)
    norm = _choice(args.get("norm_layer"), NORMS, "its model_args", "norm_layer")
    gelu = _choice(args.get("act_layer"), TIMM_GELUS, "its model_args", "act_layer")
    parts = dict(architecture.parts) | {"pool": _timm_pool(name, config, args, architecture.pool)}
    if norm is not None:
        parts["norm"] = norm
    if args.get("final_norm") is False:
        parts["final_norm"] = False
    if "pool_include_prefix" in args and parts["pool"] != "cls":
        parts["pool_prefix"] = _flag(args["pool_include_prefix"], "pool_include_prefix")
    heads = architecture.num_heads or HEADS.get(_size_in(str(name)), 16)
    if "num_heads" in args:
        heads = _whole(args["num_heads"], "num_heads")
    channels = _input(about)[0] if args.get("in_chans") is None else _whole(args["in_chans"], "in_chans")
    pixels = _timm_pixels(about, channels)
    resized = bool(args.get("dynamic_img_size", architecture.any_size))
    size = args.get("img_size")
    if size is None:  # then timm builds its default, if any size will do
        size = 224 if resized and "rotary" not in parts else list(pixels.image_size)
    patch = args.get("patch_size") or (re.search(r"patch(\d+)", str(name)) or [None, None])[1]
    if patch is not None and str(patch).isdigit() and not resized:
        patch = _whole(int(patch), "patch_size")
        pixels, size = _whole_patches(pixels, patch), _divided(_size(size, "img_size"), patch)
    labels = next((at[key] for key in ("label_names", "labels") for at in (config, about) if at.get(key)), None)
    gelu, size = gelu or architecture.gelu, _size(size, "img_size")
    given = Given(heads, size, gelu, architecture.norm_eps, plain=True, parts=parts, told=True)
    has_positions = {} if architecture.shown.get("position_bias") else {"position": "learned"}
    compared = has_positions | dict(architecture.shown) | _timm_compared(config, args)
    return Known("timm", given, compared, _labels(labels, "label_names"), pixels, resized)


def timm_architecture(name: Any) -> Architecture:
    """What timm's code says of a name."""
    for pattern, architecture in TIMM.items():
        if isinstance(name, str) and re.fullmatch(pattern, name):
            return architecture
    raise ValueError(
        f"timm's {short(name)} is beyond ViTConfig and ModernConfig, or its architecture isn't known, as that of "
        "vit_*_patch*, deit_*, flexivit_*, eva*, beit* and others is"
    )


def _size_in(name: str) -> str:
    match = re.search(rf"(?:^|_)({S})_(?:distilled_)?patch|(?:^|_)({S})(?:_|$)", name)
    return (match[1] or match[2]) if match else ""


def _choice(value: Any, choices: Mapping[str, str], where: str, key: str) -> str | None:
    """What a value means with us; None: nothing is said."""
    if value in (None, ""):
        return None
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{where} have {key}={short(value)}, {BEYOND}: {', '.join(choices)}")
    return choices[value]


def _timm_pool(name: Any, config: Json, args: Json, usual: str) -> str:
    """What is read out, by model_args, else by the architecture; the config's own must say the same."""
    found = [
        _choice(at["global_pool"] or repr(""), POOLS, "its config and model_args", "global_pool")
        for at in (args, config)
        if at.get("global_pool") is not None
    ]
    if args.get("global_pool") is None and found and found[0] != usual:
        raise ValueError(f"its config pools by {found[0]} (global_pool), and timm's {short(name)} by {usual}")
    return found[0] or usual if found else usual


def _timm_compared(config: Json, args: Json) -> dict[str, Any]:
    """What model_args say that the tensors show."""
    compared = {ours: args[key] for key, ours in TIMM_COMPARED.items() if args.get(key) is not None}
    compared.setdefault("num_classes", config.get("num_classes"))
    if "patch_size" in compared:
        compared["patch_size"] = _size(compared["patch_size"], "patch_size")
    if "in_channels" in compared:
        compared["in_channels"] = _whole(compared["in_channels"], "in_chans")
    if "dim" in compared and args.get("mlp_ratio") is not None:
        width = _whole(compared["dim"], "embed_dim") * _number(args["mlp_ratio"], "mlp_ratio")
        compared["mlp_dim"] = None if args.get("swiglu_mlp") else int(width)
    if args.get("pos_embed") is not None:
        compared["position"] = "learned" if args["pos_embed"] == "learn" else "none"
    if args.get("init_values") is not None:
        compared["layer_scale"] = 1e-5 if args["init_values"] else None
    return compared


def _input(about: Json) -> tuple[int, int, int]:
    size = about.get("input_size", (3, 224, 224))
    if not isinstance(size, (list, tuple)) or len(size) != 3:
        raise ValueError(f"input_size must be channels, height and width, got {short(size)}")
    channels, height, width = (_side(value, "input_size") for value in size)
    return channels, height, width


def _timm_pixels(about: Json, channels: int) -> Preprocessing:
    """As timm's ``create_transform`` evaluates."""
    _, height, width = _input(about)
    mean = _statistics(about.get("mean", IMAGENET[0]), channels, "mean")
    std = _statistics(about.get("std", IMAGENET[1]), channels, "std")
    share, mode = _number(about.get("crop_pct") or 0.875, "crop_pct", 0), about.get("crop_mode") or "center"
    interpolation = about.get("interpolation") or "bicubic"
    if mode not in ("center", "squash"):
        raise ValueError(
            f"it cuts pictures by crop_mode={short(mode)}, which Preprocessing can't express: center, squash"
        )
    if mode == "squash" and share == 1:
        return Preprocessing((height, width), mean, std, "none", interpolation)
    return Preprocessing((height, width), mean, std, share, interpolation, squash=mode == "squash")


# -------------------------------------------------------------------------------------------------------- transformers


@dataclass(frozen=True)
class ModelType:
    """One of transformers' model types: its defaults, and its keys beside those that every vision model has."""

    processor: str  # whose defaults a preprocessor_config.json without a type has
    norm_eps: float = 1e-12
    gelu: str = "gelu"
    dim: int = 768
    depth: int = 12
    heads: int = 12
    image_size: int = 224
    patch_size: int = 16
    pool: str | None = None  # None: the tensors show it
    resized: bool = False  # whether transformers resizes positions without being asked
    shown: Mapping[str, Any] = field(default_factory=dict)  # what tensors must show
    keys: frozenset[str] = frozenset()


DECODER = {
    "decoder_hidden_size", "decoder_intermediate_size", "decoder_num_attention_heads", "decoder_num_hidden_layers",
    "mask_ratio", "norm_pix_loss",
}  # fmt: skip
NECK = {
    "add_projection", "auxiliary_loss_weight", "backbone_featmap_shape", "backbone_out_indices", "fusion_hidden_size",
    "head_in_index", "neck_hidden_sizes", "neck_ignore_stages", "readout_type", "reassemble_factors",
    "semantic_classifier_dropout", "semantic_loss_ignore_index", "use_auxiliary_head",
    "use_batch_norm_in_fusion_residual", "use_bias_in_fusion_residual",
}  # fmt: skip
BACKBONE = {
    "out_features", "out_indices", "stage_names", "apply_layernorm", "reshape_hidden_states", "drop_path_rate",
    "layerscale_value", "layer_scale_init_value",
}  # fmt: skip
DINO_KEYS = frozenset(BACKBONE | {
    "mlp_ratio", "use_swiglu_ffn", "num_register_tokens", "rope_theta", "query_bias", "key_bias", "value_bias",
    "proj_bias", "mlp_bias", "use_gated_mlp", "pos_embed_shift", "pos_embed_jitter", "pos_embed_rescale",
    "attention_dropout",
})  # fmt: skip
BEIT_KEYS = frozenset(BACKBONE | {
    "use_absolute_position_embeddings", "use_relative_position_bias", "use_shared_relative_position_bias",
    "use_mean_pooling", "vocab_size", "pool_scales", "use_auxiliary_head", "auxiliary_loss_weight",
    "auxiliary_channels", "auxiliary_num_convs", "auxiliary_concat_input", "semantic_loss_ignore_index", "add_fpn",
})  # fmt: skip
TOWER = frozenset({
    "projection_dim", "projection_size", "initializer_factor", "attention_dropout", "dropout",
    "logit_scale_init_value", "text_config", "text_config_dict", "num_register_tokens", "vision_use_head",
})  # fmt: skip
DINOV2 = ModelType("Bit", 1e-6, resized=True, shown=SCALED, keys=DINO_KEYS)
BEIT = ModelType("Beit", shown={"k_bias": False}, keys=BEIT_KEYS)
CLIP_VISION = ModelType("CLIP", 1e-5, "quick_gelu", patch_size=32, shown=PRE_NORM, keys=TOWER)
SIGLIP_VISION = ModelType("Siglip", 1e-6, "gelu_pytorch_tanh", shown={"class_token": False}, keys=TOWER)
MODEL_TYPES = {
    "vit": ModelType("ViT", pool="cls"),
    "deit": ModelType("DeiT", pool="distilled"),
    "vit_mae": ModelType("ViT", pool="cls", keys=frozenset(DECODER)),
    "vit_msn": ModelType("ViT", 1e-6, pool="cls"),
    "ijepa": ModelType("ViT", pool="mean"),
    "dpt": ModelType("DPT", pool="cls", image_size=384, keys=frozenset(NECK)),
    "dinov2": replace(DINOV2, patch_size=14),
    "dinov2_with_registers": DINOV2,
    "dinov3_vit": replace(DINOV2, processor="DINOv3ViT", norm_eps=1e-5, dim=384, heads=6, shown=SCALED | NO_POSITION),
    "clip": CLIP_VISION,
    "clip_vision_model": CLIP_VISION,
    "altclip_vision_model": CLIP_VISION,
    "chinese_clip_vision_model": CLIP_VISION,
    "siglip": SIGLIP_VISION,
    "siglip_vision_model": SIGLIP_VISION,
    "beit": BEIT,
    "data2vec-vision": BEIT,
}
HF_GELUS = {
    "gelu": "exact", "gelu_python": "exact", "gelu_new": "tanh", "gelu_pytorch_tanh": "tanh", "gelu_fast": "tanh",
    "gelu_accurate": "tanh", "quick_gelu": "quick",
}  # fmt: skip
HF_READ = {
    "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "hidden_act", "layer_norm_eps",
    "image_size", "patch_size", "num_channels", "qkv_bias", "id2label", "num_labels", "_num_labels", "head_dim",
}  # fmt: skip
HF_ABSENT = {"is_hybrid", "backbone_config", "backbone", "quantization_config", "pruned_heads", "auto_map"}
HF_HARMLESS = {  # of training, of generating text, of other outputs, and where it is from
    "model_type", "architectures", "transformers_version", "torch_dtype", "dtype", "_name_or_path", "name_or_path",
    "label2id", "problem_type", "hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout",
    "classifier_dropout_prob", "initializer_range", "encoder_stride", "pooler_output_size", "pooler_act",
    "use_mask_token", "add_pooling_layer", "output_attentions", "output_hidden_states", "return_dict",
    "use_return_dict", "chunk_size_feed_forward", "is_encoder_decoder", "is_decoder", "gradient_checkpointing",
    "attn_implementation", "_attn_implementation", "_attn_implementation_autoset", "_commit_hash", "finetuning_task",
    "task_specific_params", "torchscript", "use_bfloat16", "use_cache", "tie_word_embeddings", "tie_encoder_decoder",
    "tf_legacy_loss", "cross_attention_hidden_size", "add_cross_attention", "tokenizer_class", "prefix",
    "bos_token_id", "pad_token_id", "eos_token_id", "sep_token_id", "decoder_start_token_id", "max_length",
    "min_length", "do_sample", "early_stopping", "num_beams", "num_beam_groups", "diversity_penalty", "temperature",
    "top_k", "top_p", "typical_p", "repetition_penalty", "length_penalty", "no_repeat_ngram_size",
    "encoder_no_repeat_ngram_size", "bad_words_ids", "num_return_sequences", "output_scores",
    "return_dict_in_generate", "forced_bos_token_id", "forced_eos_token_id", "remove_invalid_values",
    "exponential_decay_length_penalty", "suppress_tokens", "begin_suppress_tokens", "license",
}  # fmt: skip


def transformers(config: Json, processor: Json | None) -> Known:
    """What transformers' config.json and preprocessor_config.json say.

    Args:
        config: the first.
        processor: the second; None if there is none.
    """
    kind, whole = config.get("model_type"), config
    if not isinstance(kind, str) or kind not in MODEL_TYPES:
        raise ValueError(
            f"transformers' {short(kind)} is beyond ViTConfig and ModernConfig, which can express the model types "
            f"{', '.join(MODEL_TYPES)}, timm_wrapper"
        )
    family = MODEL_TYPES[kind]
    if kind in ("clip", "siglip"):  # both towers
        config = _vision_config(config)
    _refuse_unknown(config, HF_READ | HF_ABSENT | HF_HARMLESS | family.keys, "its config")
    for key in HF_ABSENT:
        if config.get(key) or whole.get(key):
            raise ValueError(f"its config has {key}{': code of its own' if key == 'auto_map' else ''}, {BEYOND}")
    for key in ("proj_bias", "mlp_bias"):
        if config.get(key, True) is not True:
            raise ValueError(f"its config has {key}={short(config[key])}, {BEYOND}")
    act, gated = config.get("hidden_act", family.gelu), config.get("use_swiglu_ffn") or config.get("use_gated_mlp")
    if gated and kind == "dinov3_vit" and act not in ("silu", "swish"):
        raise ValueError(f"its config has hidden_act={short(act)} for a gated MLP, {BEYOND}: silu")
    if not gated and (not isinstance(act, str) or act not in HF_GELUS):
        raise ValueError(f"its config has hidden_act={short(act)}, {BEYOND}: {', '.join(HF_GELUS)}")
    dim = _whole(config.get("hidden_size", family.dim), "hidden_size")
    heads = _whole(config.get("num_attention_heads", family.heads), "num_attention_heads")
    if config.get("head_dim") not in (None, dim / heads):
        raise ValueError(f"its config has head_dim={short(config['head_dim'])}, and D / h is {dim / heads:g}")
    channels = _whole(config.get("num_channels", 3), "num_channels")
    eps = _number(config.get("layer_norm_eps", family.norm_eps), "layer_norm_eps", 0)
    size = _size(config.get("image_size", family.image_size), "image_size")
    fields: dict[str, Any] = {
        "dim": dim,
        "depth": _whole(config.get("num_hidden_layers", family.depth), "num_hidden_layers"),
        "patch_size": _size(config.get("patch_size", family.patch_size), "patch_size"),
        "in_channels": channels,
        "gated": bool(gated),
        "pool": family.pool,
        "position": None if family is BEIT else "learned",  # BEiT's tensors show which it has
        **family.shown,
    }
    if "intermediate_size" in config or family.pool is not None:
        fields["mlp_dim"] = _whole(config.get("intermediate_size", 3072), "intermediate_size")
    if "qkv_bias" in config or family.pool is not None:
        fields["qkv_bias"] = _flag(config.get("qkv_bias", True), "qkv_bias")
    if config.get("num_labels") is not None and "Classification" in str(config.get("architectures")):
        fields["num_classes"] = _whole(config["num_labels"], "num_labels", 0)
    pixels = None if processor is None else _pixels(processor, family, channels)
    if pixels is not None and kind == "dinov3_vit":
        size = _size(pixels.image_size, "image_size")
    if pixels is not None:
        pixels = _whole_patches(pixels, fields["patch_size"])
    if not family.resized:
        size = _divided(size, fields["patch_size"])
    gelu = None if gated else HF_GELUS[act]
    given = Given(heads, size, gelu, eps, plain=True, parts=_hf_parts(kind, config), told=True)
    labels = _labels(whole.get("id2label"), "id2label")
    return Known("huggingface", given, fields, labels, pixels, family.resized, "huggingface")


def _hf_parts(kind: str, config: Json) -> dict[str, Any]:
    """What the config says that no tensor shows."""
    if kind == "dinov3_vit":
        return {"rotary": Rotary("centred", _number(config.get("rope_theta", 100.0), "rope_theta"))}
    if kind in ("beit", "data2vec-vision"):
        return {"pool": "mean" if _flag(config.get("use_mean_pooling", True), "use_mean_pooling") else "cls"}
    return {}


def _vision_config(whole: Json) -> Json:
    """The image tower's part of a config of both; older files have it twice."""
    _refuse_unknown(
        whole,
        HF_HARMLESS | HF_ABSENT | TOWER | {"vision_config", "vision_config_dict", "id2label", "num_labels"},
        "its config",
    )
    vision, older = whole.get("vision_config") or {}, whole.get("vision_config_dict") or {}
    if not isinstance(vision, dict) or not isinstance(older, dict):
        raise ValueError("its vision_config must be a mapping")
    if differ := [key for key, value in older.items() if vision.get(key, value) != value]:
        raise ValueError(f"its vision_config and its vision_config_dict don't agree on {some(differ)}")
    return older | vision


def timm_wrapper(config: Json) -> Known:
    """Transformers around timm: timm's keys among transformers' own."""
    known = HF_HARMLESS | TIMM_HARMLESS | TIMM_PIXELS | {"id2label", "num_labels", "do_pooling"}
    _refuse_unknown(config, known, "its config")
    keys = ("architecture", "model_args", "global_pool", "label_names", "label_offset")
    inner = {key: config[key] for key in keys if config.get(key) is not None}
    found = timm(inner | {"pretrained_cfg": config.get("pretrained_cfg") or {}})
    return replace(found, labels=_labels(config.get("id2label"), "id2label") or found.labels)


SHORT_SIDE: Json = {
    "size": {"shortest_edge": 224}, "resample": 3, "do_center_crop": True, "crop_size": 224, "image_mean": OPENAI[0],
    "image_std": OPENAI[1], "default_to_square": False,
}  # fmt: skip
PROCESSORS: dict[str, Json] = {  # what isn't written in a preprocessor_config.json, by its type
    "ViT": {"size": 224, "resample": 2},
    "DeiT": {"size": 256, "resample": 3, "do_center_crop": True, "crop_size": 224},
    "Beit": {"size": 224, "resample": 3},
    "DPT": {"size": 384, "resample": 3},
    "CLIP": SHORT_SIDE,
    "Bit": SHORT_SIDE,
    "Siglip": {"size": 224, "resample": 3},
    "DINOv3ViT": {"size": 224, "resample": 2, "image_mean": IMAGENET[0], "image_std": IMAGENET[1]},
}
PILLOW = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic"}  # as Pillow numbers them
PROCESSOR_READ = {
    "do_resize", "size", "resample", "do_center_crop", "crop_size", "do_rescale", "rescale_factor", "do_normalize",
    "image_mean", "image_std", "do_pad", "ensure_multiple_of", "keep_aspect_ratio", "do_flip_channel_order",
    "default_to_square", "auto_map",
}  # fmt: skip
PROCESSOR_HARMLESS = {  # pictures are made RGB here as well; labels of segmentation; where and in what form it answers
    "image_processor_type", "feature_extractor_type", "do_convert_rgb", "do_reduce_labels", "reduce_labels",
    "_valid_processor_keys", "data_format", "input_data_format", "device", "return_tensors", "disable_grouping",
    "processor_class", "pad_size", "size_divisor", "image_seq_length",
    "_processor_class",
}  # fmt: skip


def _whole_patches(pixels: Preprocessing, patch_size: Size) -> Preprocessing:
    """Without what the patches leave over: the libraries' convolutions drop it, at the right and below."""
    whole = [side // patch * patch for side, patch in zip(pixels.image_size, as_pair(patch_size, "p"), strict=True)]
    if tuple(whole) == pixels.image_size or pixels.crop != "none" or whole[0] != whole[1] or whole[0] == 0:
        return pixels
    side = whole[0]
    return replace(pixels, image_size=(side, side), crop=side / pixels.image_size[0], squash=True, corner="first")


def _pixels(how: Json, family: ModelType, channels: int) -> Preprocessing:
    """As transformers' image processors prepare pictures: resize, crop, scale, normalise.

    In Pillow's numbers. The processors that resize by torchvision round a few pixels in a thousand to the next of 256
    levels.
    """
    kind = how.get("image_processor_type") or how.get("feature_extractor_type") or family.processor
    kind = re.sub(r"(ImageProcessor(Fast|Pil)?|FeatureExtractor)$", "", str(kind))
    if kind not in PROCESSORS:
        raise ValueError(f"its image processor is {short(kind)}: {', '.join(PROCESSORS)} are known. Give preprocess=")
    _refuse_unknown(how, PROCESSOR_READ | PROCESSOR_HARMLESS, "its preprocessor_config")
    if how.get("auto_map"):
        raise ValueError("its preprocessor has auto_map: code of its own, which isn't run. Give preprocess=")
    for key in ("do_resize", "do_rescale", "do_normalize", "do_center_crop"):
        if key in how and how[key] is None and PROCESSORS[kind].get(key, key != "do_center_crop"):
            raise ValueError(
                f"its preprocessor has {key}=null, on in one version of transformers, off in another: give preprocess="
            )
    square = PROCESSORS[kind].get("default_to_square", True)
    how = PROCESSORS[kind] | {key: value for key, value in how.items() if value is not None}
    if not square and isinstance(how["size"], int):  # as OpenAI's own files have it
        how = how | {"size": {"shortest_edge": how["size"]}}
    for key, good in (
        ("do_resize", True),
        ("default_to_square", square),
        ("do_pad", False),
        ("keep_aspect_ratio", False),
        ("do_flip_channel_order", False),
    ):
        if _flag(how.get(key, good), key) is not good:
            raise ValueError(
                f"its preprocessor has {key}={how[key]}, which Preprocessing can't express: give preprocess="
            )
    if how.get("ensure_multiple_of", 1) != 1:
        raise ValueError("its preprocessor has ensure_multiple_of, which Preprocessing can't express: give preprocess=")
    size, crop, squash = _resize(how)
    mean, std = _scale(how, channels)
    resample = _whole(how["resample"], "resample", 0)
    if resample not in PILLOW:
        raise ValueError(f"its preprocessor has resample={resample}: {PILLOW} are known. Give preprocess=")
    corner: Corner = "rounded" if isinstance(crop, str) or squash else "floored"  # transformers' middle is another
    return Preprocessing(size, mean, std, crop, PILLOW[resample], squash=squash, corner=corner)


def _resize(how: Json) -> tuple[tuple[int, int], CropMode, bool]:
    """The size that a model gets, the share of the resized picture that it is, and whether that lost its shape."""
    if isinstance(how["size"], dict) and how["size"].keys() == {"shortest_edge"}:
        return _short_side(how)
    resized = _height_width(how["size"], "size")
    if not _flag(how.get("do_center_crop", False), "do_center_crop"):
        return resized, "none", False
    cut = _height_width(how.get("crop_size", resized), "crop_size")
    if cut == resized:
        return cut, "none", False
    share = cut[0] / resized[0]
    # Half a pixel is rounded elsewhere than torchvision does.
    even = all((whole - part) % 2 == 0 and whole > part for whole, part in zip(resized, cut, strict=True))
    if not even or math.floor(cut[1] / share + 1e-6) != resized[1]:
        raise ValueError(
            f"its preprocessor cuts {cut} out of {resized}, which Preprocessing can't express: give preprocess="
        )
    return cut, share, True


def _short_side(how: Json) -> tuple[tuple[int, int], CropMode, bool]:
    """As :func:`_resize`, of a picture whose shorter side gets a length, before a square is cut out."""
    short = _side(how["size"]["shortest_edge"], "shortest_edge")
    if not _flag(how.get("do_center_crop", False), "do_center_crop"):
        raise ValueError("its preprocessor cuts no square, which Preprocessing can't express: give preprocess=")
    cut = _height_width(how.get("crop_size", short), "crop_size")
    if cut[0] != cut[1] or cut[0] > short:
        raise ValueError(
            f"its preprocessor cuts {cut} out of a short side of {short}, which Preprocessing can't express: give "
            "preprocess="
        )
    return cut, cut[0] / short, False


def _height_width(size: Any, name: str) -> tuple[int, int]:
    if isinstance(size, dict) and size.keys() == {"height", "width"}:
        size = (size["height"], size["width"])
    if isinstance(size, dict):
        raise ValueError(
            f"its preprocessor has {name}={short(size)}, which Preprocessing can't express: give preprocess="
        )
    height, width = as_pair(tuple(size) if isinstance(size, list) else size, name)
    return _side(height, name), _side(width, name)


def _scale(how: Json, channels: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and deviation for pixels in [0, 1]: of levels from 0 to 255, times a factor, normalised or not."""
    factor = 1.0
    if _flag(how.get("do_rescale", True), "do_rescale"):
        factor = _number(how.get("rescale_factor", 1 / 255), "rescale_factor")
    white = 255 * factor
    if white <= 0:
        raise ValueError(f"its preprocessor has rescale_factor={factor}: it must be above 0")
    white = 1.0 if abs(white - 1) < 1e-9 else white
    mean, std = (0.0,) * channels, (1.0,) * channels
    if _flag(how.get("do_normalize", True), "do_normalize"):
        mean = _statistics(how.get("image_mean", HALF[0]), channels, "image_mean")
        std = _statistics(how.get("image_std", HALF[1]), channels, "image_std")
    return tuple(value / white for value in mean), tuple(value / white for value in std)
