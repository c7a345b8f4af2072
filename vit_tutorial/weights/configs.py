"""Lesson 09: what timm's and open_clip's config.json say of a model, and whose config a file is.

A field is honoured, or compared with the tensors, or dropped by a reason; any other stops the reading. What isn't
written has the library's own default.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from vit_tutorial.data import CropMode, Preprocessing
from vit_tutorial.patches import as_pair
from vit_tutorial.variants.modern import Rotary
from vit_tutorial.variants.text import TextConfig
from vit_tutorial.weights import fields as of
from vit_tutorial.weights.fields import BEYOND, PIXELS, Fields, Given, Json, Known, Reasons
from vit_tutorial.weights.hf_configs import DROPPED as HF_DROPPED
from vit_tutorial.weights.hf_configs import transformers
from vit_tutorial.weights.messages import short
from vit_tutorial.weights.sources import EVA_ROTARY, IMAGENET, OPENAI


def read(config: Json, processor: Json | None) -> Known:
    """What config.json (and transformers' preprocessor_config.json) say.

    Raises:
        ValueError: another architecture, or a key or value that this package can't honour.
    """
    kind = config.get("model_type")
    if kind is not None and kind != "timm_wrapper":
        return transformers(config, processor)
    known = open_clip(config) if "model_cfg" in config else timm_wrapper(config) if kind else timm(config)
    if processor is None or "TimmWrapper" in str(processor.get("image_processor_type")):
        return known
    return replace(known, assumed={**known.assumed, "unread": "preprocessor_config.json"})


# ---------------------------------------------------------------------------------------------------------------- timm

HEADS = {
    "tiny": 3, "small": 6, "base": 12, "large": 16, "huge": 16, "giant": 16, "gigantic": 16, "xsmall": 4, "wee": 4,
    "little": 5, "medium": 8, "mediumd": 8, "betwixt": 10, "so150m": 14, "so150m2": 13, "so400m": 16, "giantopt": 16,
    "intern300m": 16, "huge_plus": 20, "small_plus": 6, "7b": 32,
}  # fmt: skip
OTHER_HEADS = {  # than the size's
    r"vit_giant_patch1[46](_reg\d)?_(dinov2|tipsv2|lingbot|radio)": 24, r"vit_base_patch\d+_plus_": 14,
    r"vit_base_patch16_gap_": 16, r"test_vit2?$": 2, r"test_vit[34]$": 3,
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


def _pe(reference: int, offset: float, **more: Any) -> Architecture:
    """Meta's Perception Encoder (arXiv 2504.13181)."""
    rotary = Rotary("index", 10_000.0, (reference, reference), offset)
    pool = "attention" if more else "mean"
    return Architecture(pool, 1e-5, parts=XY | {"rotary": rotary} | more, shown=PRE_NORM)


POOLED = {"pool_prefix": True, "pool_heads": 8}
NAVER = XY | {"rotary": Rotary("index", 100.0)}
DINOV3 = Architecture("mean", 1e-5, parts={"rotary": Rotary()}, shown=NO_POSITION, any_size=True)
EVA = ROPE | {"rotary": EVA_ROTARY}
PLAIN, MEAN = Architecture(), Architecture("mean")
CLIP = Architecture(norm_eps=1e-5, shown=PRE_NORM)
SIGLIP, SIGLIP_MEAN = Architecture("attention", gelu="tanh"), Architecture("mean", gelu="tanh")
# timm's names in full, the first that fits. All others are refused by name (18x2, xp, rpn, diff, mixed), for the
# tensors of a rotated or post-normed model may be called the same.
TIMM: dict[str, Architecture] = {
    rf"(vit|deit)_({S})(_distilled)?_patch\d+(_plus|_36x1)?_\d+(_miil)?": PLAIN,
    rf"vit_({S})_patch16_radio_v\d": PLAIN,
    rf"flexivit_({S})": PLAIN,
    r"vit_(tiny|small|base|large)_r(26|50)?_s(16|32)(_p8)?_\d+": PLAIN,  # the paper's hybrids
    r"vit_base_patch32_siglip_gap_256": SIGLIP_MEAN,
    r"vit_large_patch16_siglip_gap_512": SIGLIP_MEAN,
    r"vit_(so400m|giantopt)_patch16_siglip_gap_\d+": SIGLIP_MEAN,
    rf"vit_({S})_patch\d+(_siglip|_reg\d)?_gap_\d+": MEAN,
    r"vit_base_patch32_siglip_256": SIGLIP,
    r"vit_large_patch16_siglip_512": SIGLIP,
    r"vit_(so400m|giantopt)_patch16_siglip_\d+": SIGLIP,
    rf"vit_({S})_patch\d+_siglip_\d+": Architecture("attention"),
    r"vit_so150m_patch16_reg4_map_256": Architecture("attention"),
    rf"vit_({S})_patch\d+(_plus)?_clip_\d+": CLIP,
    rf"vit_({S})_patch\d+_clip_quickgelu_\d+": replace(CLIP, gelu="quick"),
    rf"vit_({S})_patch14(_reg\d)?_(dinov2|tipsv2)": Architecture(shown=SCALED),
    rf"vit_({S})_patch16_dinov3(_qkvb)?": DINOV3,
    rf"vit_({S})_patch16_lingbot": replace(DINOV3, pool="cls"),
    rf"vit_({S})_patch16_rope_reg\d_gap_\d+": Architecture("mean", parts=EVA, shown=NO_POSITION),
    rf"vit_({S})_patch16_rope_\d+": Architecture(parts=NAVER, shown=NO_POSITION),
    rf"vit_({S})_patch16_rope_ape_\d+": Architecture(parts=NAVER, shown=SCALED),
    r"vit_pe_core_base_\w+": _pe(14, 1.0, **POOLED),
    r"vit_pe_core_(tiny|small|large)_\w+": _pe(24, 1.0, **POOLED),
    r"vit_pe_core_gigantic_\w+": _pe(32, 0.0, **POOLED),
    r"vit_pe_(lang|spatial)_gigantic_\w+": _pe(32, 0.0),
    r"vit_pe_(lang|spatial)_\w+": _pe(32, 1.0),
    r"vit_intern300m_patch14_448": Architecture(any_size=True),
    rf"deit3_({S})_patch\d+_\d+": Architecture(shown=SCALED),
    r"eva02_(tiny|small|base|large)_patch14_\d+": Architecture("mean", parts=EVA, shown={"gated": True}),
    r"eva02_(base|large)_patch\d+_clip_\d+": Architecture(parts=EVA, shown={"gated": True}),
    r"eva_large_patch14_\d+": Architecture("mean", shown={"pool_norm": True}),
    r"eva_giant_patch14_\d+": Architecture("mean", shown={"k_bias": False}),
    r"eva_giant_patch14_clip_\d+": Architecture(shown={"k_bias": False}),
    r"beit(v2)?_(base|large)_patch16_\d+": Architecture("mean", shown={"position_bias": True}),
    r"beit3_(base|large|giant)_patch\d+_\d+": Architecture("mean", 1e-5),
    r"test_vit": Architecture(any_size=True),
    r"test_vit[24]": Architecture("mean", any_size=True),
    r"test_vit3": Architecture("attention", parts={"pool_prefix": True}),
}
GATED = r"^eva02|giant_patch14_(reg\d_)?(dinov2|tipsv2)|plus_patch16_dinov3|7b_patch16_dinov3|giant_patch16_lingbot"
NO_BIAS = (  # of q, k and v
    r"vit_base_patch16_224_miil|vit_betwixt_patch16_gap_256|vit_medium_patch16_gap_\d+|vit_so150m2_patch16_reg1_gap_\d+"
    r"|vit_mediumd_patch16_rope_reg1_gap_256|vit_giant_patch16_lingbot|vit_\w+_patch16_dinov3"
)
NO_CLASS_TOKEN = r"_gap_|_siglip_|_map_|vit_pe_\w+_gigantic|test_vit[234]"
REGISTERS = {r"_reg1_|test_vit[234]": 1, r"_reg4_|dinov3|lingbot": 4, r"radio_v3": 7, r"radio_v4": 9}
CLASSES = {"Eva": r"^eva(?!_large)|dinov3|lingbot|vit_pe_|rope", "Beit": r"^beit(?!3)"}  # by name; others are plain
OF_CLASS = {  # keys of model_args that not every class takes
    "act_layer": "VisionTransformer", "pre_norm": "VisionTransformer", "final_norm": "VisionTransformer",
    "fc_norm": "VisionTransformer", "reg_tokens": "VisionTransformer", "pos_embed": "VisionTransformer",
    "pool_include_prefix": "VisionTransformer", "num_reg_tokens": "Eva", "qkv_fused": "Eva",
}  # fmt: skip
POOLS = {"token": "cls", "avg": "mean", "map": "attention"}
TIMM_GELUS = {"gelu": "exact", "gelu_tanh": "tanh", "quick_gelu": "quick"}
NORMS = {"layernorm": "layer", "rmsnorm": "rms"}
COMPARED = {  # keys of model_args that say what tensors show: our field
    "num_classes": "num_classes", "embed_dim": "dim", "depth": "depth",
    "qkv_bias": "qkv_bias", "class_token": "class_token", "qk_norm": "qk_norm", "scale_attn_norm": "attention_norm",
    "scale_mlp_norm": "mlp_norm", "reg_tokens": "registers", "num_reg_tokens": "registers", "pre_norm": "pre_norm",
    "fc_norm": "pool_norm", "use_fc_norm": "pool_norm", "swiglu_mlp": "gated", "scale_mlp": "mlp_norm",
}  # fmt: skip
ARGS_DROPPED: Reasons = {
    "training": {
        "drop_rate", "pos_drop_rate", "patch_drop_rate", "proj_drop_rate", "attn_drop_rate", "drop_path_rate",
        "drop_block_rate", "weight_init", "fix_init",
    },
    "pictures of other sizes": {"dynamic_img_pad", "strict_img_size"},
    "where it runs": {"device", "dtype"},
    "the tensors show it": {"no_embed_class", "qkv_fused"},
}  # fmt: skip
ABOUT_DROPPED: Reasons = {
    "where it is from, and what is written about it": {
        "url", "file", "hf_hub_id", "hf_hub_filename", "source", "architecture", "tag", "custom_load", "state_dict",
        "label_descriptions", "license", "description", "origin_url", "paper_name", "paper_ids", "notes",
    },
    "sizes of timm's own tests": {
        "test_input_size", "min_input_size", "fixed_input_size", "test_crop_pct", "pool_size", "test_pool_size",
    },
    "names of layers, and what the tensors show": {"first_conv", "classifier", "num_features", "num_classes"},
}  # fmt: skip


def timm(config: Json) -> Known:
    """What timm's config.json says: ``architecture``, its ``model_args``, and ``pretrained_cfg`` for the pixels."""
    top = Fields(config, "its config")
    about, args = top.take("pretrained_cfg"), Fields(top.stated("model_args", {}), "its model_args")
    about = top if about is None else Fields(about, "its pretrained_cfg")  # older files have no two levels
    name, classes, pool = top.take("architecture"), top.take("num_classes"), top.take("global_pool")
    names = [at.stated(key) for key in ("label_names", "labels") for at in (top, about)]
    known = (code for pattern, code in TIMM.items() if isinstance(name, str) and re.fullmatch(pattern, name))
    if (architecture := next(known, None)) is None:
        raise ValueError(f"timm's {short(name)} is beyond ViTConfig and ModernConfig, or its architecture isn't known")
    kind = next((kind for kind, pattern in CLASSES.items() if re.search(pattern, name)), "VisionTransformer")
    if others := [key for key, whose in OF_CLASS.items() if args.left.get(key) is not None and whose != kind]:
        raise ValueError(f"its model_args has {others[0]}, which timm's {kind} doesn't take: timm reads no such file")
    pixels = _timm_pixels(about, args.stated("in_chans"))
    about.take("global_pool")
    for at in (about, top):
        at.must_be("label_offset", None, 0)
        at.close(ABOUT_DROPPED)

    assumed: Json = {}
    pool = _timm_pool(name, args.take("global_pool"), pool, architecture.pool, assumed)
    parts = dict(architecture.parts) | {"pool": pool}
    if (norm := of.choice(args.take("norm_layer"), NORMS, args.where, "norm_layer")) is not None:
        parts["norm"] = norm
    gelu = of.choice(args.take("act_layer"), TIMM_GELUS, args.where, "act_layer") or architecture.gelu
    if of.flag(args.stated("final_norm", True), "final_norm") is False:
        parts["final_norm"] = False
    usual_prefix = kind == "Eva" and pool == "attention"
    prefix = of.flag(args.stated("pool_include_prefix", parts.get("pool_prefix", usual_prefix)), "pool_include_prefix")
    if pool != "cls":
        parts["pool_prefix"] = prefix
    sized = re.search(rf"(?:^|_)({S})_(?:distilled_)?patch|(?:^|_)({S})(?:_|$)", name)
    usual_heads = next((heads for pattern, heads in OTHER_HEADS.items() if re.match(pattern, name)), 0)
    usual_heads = usual_heads or (HEADS[sized[1] or sized[2]] if sized else 16)
    heads = of.whole(args.stated("num_heads", usual_heads), "num_heads")
    resized = of.flag(args.stated("dynamic_img_size", architecture.any_size), "dynamic_img_size")
    # Where any size will do, timm builds its default.
    usual_size = 224 if resized and "rotary" not in parts else list(pixels.image_size)
    size = of.size(args.stated("img_size", usual_size), "img_size")
    shown = {"num_classes": classes} | _timm_shown(name, args, architecture)
    if classes not in (None, shown["num_classes"]):
        raise ValueError(f"its config has num_classes={short(classes)}, and its model_args {shown['num_classes']}")
    in_name = re.search(r"patch(\d+)", name)
    if (patch := args.stated("patch_size", int(in_name[1]) if in_name else None)) is not None:
        shown["patch_size"] = of.size(patch, "patch_size")
        if not resized:
            pixels, size = of.whole_patches(pixels, patch), of.divided(size, patch)
    args.close(ARGS_DROPPED)
    given = Given(heads, size, gelu, architecture.norm_eps, plain=True, parts=parts, told=True)
    labels = of.labels(next((found for found in names if found), None), "label_names")
    return Known("timm", given, shown, labels, pixels, resized, assumed=assumed)


def _timm_pool(name: Any, of_args: Any, of_config: Any, usual: str, assumed: Json) -> str:
    """What is read out, by model_args, else by the architecture; the config's own must say the same."""
    if of_args == "" and usual == "cls":  # Virchow's: timm answers with all tokens
        assumed["pool"] = "cls"
        return "cls"
    args, config = (
        None if value is None else of.choice(value or repr(""), POOLS, "its config", "global_pool")
        for value in (of_args, of_config)
    )
    if config is not None and config != (args or usual):
        whose = f"timm's {short(name)}" if args is None else "its model_args"
        raise ValueError(f"its config pools by {config} (global_pool), and {whose} by {args or usual}")
    return args or config or usual


def _timm_shown(name: str, args: Fields, architecture: Architecture) -> Json:
    """What the tensors must show, by timm's name and by model_args."""
    shown: Json = {
        "position": None if architecture.shown.get("position_bias") else "learned",
        "gated": bool(re.search(GATED, name)),
        "qkv_bias": not re.fullmatch(NO_BIAS, name),
        "class_token": not re.search(NO_CLASS_TOKEN, name),
        "registers": next((count for pattern, count in REGISTERS.items() if re.search(pattern, name)), 0),
        **architecture.shown,
    }
    shown |= {ours: value for key, ours in COMPARED.items() if (value := args.stated(key)) is not None}
    ratio = args.stated("mlp_ratio")
    if "dim" in shown and ratio is not None and not shown.get("gated"):
        shown["mlp_dim"] = int(of.whole(shown["dim"], "embed_dim") * of.number(ratio, "mlp_ratio"))
    if (position := args.stated("pos_embed")) is not None:
        shown["position"] = "learned" if position == "learn" else "none"
    if (scale := args.stated("init_values")) is not None:
        shown["layer_scale"] = 1e-5 if scale else None
    return shown


def _timm_pixels(about: Fields, in_chans: Any) -> Preprocessing:
    """As timm's ``create_transform`` evaluates."""
    size = about.take("input_size", (3, 224, 224))
    if not isinstance(size, (list, tuple)) or len(size) != 3:
        raise ValueError(f"input_size must be channels, height and width, got {short(size)}")
    channels, height, width = (of.whole(value, "input_size", 1, of.LARGEST_SIDE) for value in size)
    channels = channels if in_chans is None else of.whole(in_chans, "in_chans")
    mean = of.statistics(about.take("mean", IMAGENET[0]), channels, "mean")
    std = of.statistics(about.take("std", IMAGENET[1]), channels, "std")
    share, mode = of.number(about.stated("crop_pct") or 0.875, "crop_pct", 0), about.stated("crop_mode") or "center"
    interpolation = about.stated("interpolation") or "bicubic"
    if mode not in ("center", "squash"):
        raise ValueError(f"it cuts pictures by crop_mode={short(mode)}, {PIXELS}")
    squash = mode == "squash"
    crop: CropMode = "none" if squash and share == 1 else share
    return Preprocessing((height, width), mean, std, crop, interpolation, squash=squash and share != 1)


def timm_wrapper(config: Json) -> Known:
    """Transformers around timm: timm's keys among transformers' own."""
    said = Fields(config, "its config")
    keys = ("architecture", "model_args", "global_pool", "label_names", "label_offset")
    inner = {key: value for key in keys if (value := said.stated(key)) is not None}
    inner["pretrained_cfg"] = said.stated("pretrained_cfg", {})
    names = of.labels(said.take("id2label"), "id2label")
    for key in ("input_size", "mean", "std", "interpolation", "crop_pct", "crop_mode"):  # of pretrained_cfg, again
        if (value := said.stated(key)) is not None and inner["pretrained_cfg"].get(key, value) != value:
            raise ValueError(f"its config and its pretrained_cfg don't agree on {key}")
    said.close(HF_DROPPED, ABOUT_DROPPED, {"the tensors show it": {"num_labels", "do_pooling"}})
    found = timm(inner)
    return replace(found, labels=names or found.labels)


# ----------------------------------------------------------------------------------------------------------- open_clip

TEXT_SIZES = {
    "vocab_size": ("vocab_size", 49_408), "context": ("context_length", 77), "dim": ("width", 512),
    "depth": ("layers", 12), "num_heads": ("heads", 8),
}  # fmt: skip
TEXT_GELUS = {"none": "exact", "tanh": "tanh"}  # act_kwargs: torch's GELU
CLEANED = {clean: clean for clean in ("whitespace", "lower", "canonicalize")}  # what is done before the tokenizer
TEXT_DROPPED: Reasons = {
    "of the tokenizer, which the folder has": {"tokenizer_mode", "pad_id"},
    "of text towers of transformers'": {"hf_model_pretrained", "hf_proj_type", "hf_pooler_type"},
    "an output beside the answer": {"output_tokens"},
}
TOWER_DROPPED: Reasons = {
    "training": {"patch_dropout", "timm_drop", "timm_drop_path", "timm_model_pretrained"},
    "an output beside the answer": {"output_tokens", "attn_pooler_queries", "attn_pooler_heads"},
    "the tensors show it": {"timm_proj_bias"},
}
MODEL_DROPPED: Reasons = {
    "text": {"text_cfg", "init_logit_scale", "init_logit_bias", "custom_text", "nonscalar_logit_scale"},
    "the tensors show it": {"embed_dim"},
}


def open_clip(config: Json) -> Known:
    """What open_clip_config.json says: of the image tower, its own or one of timm's, and of the pixels."""
    top = Fields(config, "its config")
    model = Fields(top.stated("model_cfg", {}), "its model_cfg")
    how = Fields(top.stated("preprocess_cfg", {}), "its preprocess_cfg", PIXELS)
    top.close()
    tower = Fields(model.take("vision_cfg"), "its vision_cfg")
    quick = of.flag(model.stated("quick_gelu", False), "quick_gelu")
    model.close(MODEL_DROPPED)
    size = of.size(tower.stated("image_size", 224), "image_size")
    pixels = _open_clip_pixels(how, size)
    name = tower.stated("timm_model_name")
    known = _timm_tower(tower, name, size) if name is not None else _own_tower(tower, quick, size)
    tower.close(TOWER_DROPPED)
    return replace(known, pixels=of.whole_patches(pixels, known.fields.get("patch_size", 1)))


def _own_tower(tower: Fields, quick: bool, size: Any) -> Known:
    """The image tower that OpenAI's code builds."""
    if isinstance(layers := tower.stated("layers", 12), list):
        raise ValueError(f"its vision_cfg has layers={short(layers)}: a ResNet, {BEYOND}")
    width = of.whole(tower.stated("width", 768), "width")
    eps = _norm_eps(tower)
    patch = of.size(tower.stated("patch_size", 16), "patch_size")
    fields = {
        "dim": width,
        "depth": of.whole(layers, "layers"),
        "mlp_dim": int(width * of.number(tower.stated("mlp_ratio", 4.0), "mlp_ratio", 0)),
        "patch_size": patch,
        "pre_norm": not of.flag(tower.stated("no_ln_pre", False), "no_ln_pre"),
        "layer_scale": None if tower.stated("ls_init_value") is None else 1e-5,
    }
    heads = width // of.whole(tower.stated("head_width", 64), "head_width")
    given = Given(heads, of.divided(size, patch), "quick" if quick else "exact", eps, plain=True, told=True)
    return Known("OpenAI's CLIP", replace(given, parts={"pool": "cls"}), fields)


def _norm_eps(tower: Fields) -> float:
    norms = Fields(tower.stated("norm_kwargs", {}), "its norm_kwargs")
    eps = of.number(norms.take("eps", 1e-5), "eps", 0)
    norms.close()
    return eps


def open_clip_text(config: Json) -> tuple[TextConfig, str]:
    """What open_clip_config.json says of the text tower, and what becomes of a text before the tokenizer."""
    model = Fields(config["model_cfg"], "its model_cfg")
    said = Fields(model.take("text_cfg"), "its text_cfg")
    said.must_be("qk_norm", False)
    tokens = Fields(said.stated("tokenizer_kwargs", {}), "its tokenizer_kwargs")
    own = said.take("hf_tokenizer_name") in (None, "")  # open_clip's own tokenizer is CLIP's
    clean = of.choice(tokens.take("clean"), CLEANED, tokens.where, "clean") or ("lower" if own else "whitespace")
    tokens.close()
    act = Fields(said.stated("act_kwargs", {}), "its act_kwargs")
    gelu = of.choice(act.take("approximate"), TEXT_GELUS, act.where, "approximate") or "exact"
    act.close()
    if of.flag(model.stated("quick_gelu", False), "quick_gelu"):
        gelu = "quick"
    causal = not of.flag(said.stated("no_causal_mask", False), "no_causal_mask")
    pool, end = said.stated("pool_type", "argmax"), of.whole(said.stated("eos_id", 2), "eos_id", 0)
    if pool not in (("argmax", "eos") if causal else ("last",)):
        mask = "with a causal mask" if causal else "without a causal mask"
        raise ValueError(f"its text_cfg has pool_type={short(pool)}, {BEYOND}, {mask}")
    sizes = said.numbers(TEXT_SIZES)
    found = TextConfig(
        **sizes,
        mlp_dim=int(sizes["dim"] * of.number(said.stated("mlp_ratio", 4.0), "mlp_ratio", 0)),
        out_dim=of.whole(model.take("embed_dim"), "embed_dim"),
        gelu=gelu,  # type: ignore[arg-type]
        norm_eps=_norm_eps(said),
        causal=causal,
        end_token=end if pool == "eos" else None,
        head_bias=of.flag(said.stated("proj_bias", False), "proj_bias"),
    )
    said.close(TEXT_DROPPED)
    return found, clean


def _timm_tower(tower: Fields, name: Any, size: Any) -> Known:
    """One of timm's models, with open_clip's projection behind it or its own head."""
    pool, proj = tower.stated("timm_pool", "avg"), tower.stated("timm_proj", "linear")
    if proj not in ("linear", "none", ""):
        raise ValueError(f"its vision_cfg has timm_proj={short(proj)}, {BEYOND}: linear, none")
    for key in ("width", "layers", "patch_size", "head_width", "mlp_ratio"):  # of the towers that aren't timm's
        tower.take(key)
    args = {"img_size": size} | ({"global_pool": pool} if pool else {})
    height, width = as_pair(size, "image_size")
    known = timm({"architecture": name, "model_args": args, "pretrained_cfg": {"input_size": [3, height, width]}})
    return replace(known, fields={key: value for key, value in known.fields.items() if key != "num_classes"})


def _open_clip_pixels(how: Fields, size: Any) -> Preprocessing:
    """As open_clip's ``image_transform`` evaluates."""
    how.must_be("mode", "RGB")
    how.must_be("fill_color", 0)
    resized, mode = how.stated("size", size), how.stated("resize_mode", "shortest")
    if of.size(resized, "size") != size:
        raise ValueError(f"its preprocess_cfg has size={short(resized)}, and its model takes {size}")
    mean = of.statistics(how.stated("mean", OPENAI[0]), 3, "mean")
    std = of.statistics(how.stated("std", OPENAI[1]), 3, "std")
    interpolation = how.stated("interpolation", "bicubic")
    if mode not in ("shortest", "squash"):
        raise ValueError(f"its preprocess_cfg has resize_mode={short(mode)}, {PIXELS}")
    how.close()
    height, width = as_pair(size, "size")
    return Preprocessing((height, width), mean, std, "none" if mode == "squash" else 1.0, interpolation)
