"""Lesson 09: what a config.json of timm's or transformers' tells beside the tensors, key by key.

A key is honoured, or compared with the tensors, or known to change no number of an answer; any other is an error that
names it. What isn't written has the library's own default.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, get_args

from vit_tutorial.data import Corner, CropMode, Preprocessing
from vit_tutorial.embeddings import ResizeRecipe
from vit_tutorial.mlp import Gelu
from vit_tutorial.patches import Size, as_pair
from vit_tutorial.vit import Pool, ViTConfig
from vit_tutorial.weights.files import short, some
from vit_tutorial.weights.names import HALF, IMAGENET, Told
from vit_tutorial.weights.names_modern import OPENAI

Json = dict[str, Any]


@dataclass(frozen=True)
class Known:
    """What a library's files say of a model."""

    source: str  # as convert has it
    told: Told
    fields: dict[str, Any] = field(default_factory=dict)  # of ViTConfig, that the tensors must agree with
    pools: tuple[Pool, ...] = get_args(Pool)  # that the tensors may show
    labels: Mapping[int, str] = field(default_factory=dict)  # class names by their number
    pixels: Preprocessing | None = None  # None: nothing is said of them
    resized: bool = False  # whether the library itself resizes positions to these pixels
    recipe: ResizeRecipe = "timm"  # and how

    def check(self, config: ViTConfig) -> None:
        """Raise a ValueError if the tensors are another model's than the config says."""
        for name, said in self.fields.items():
            found = getattr(config, name)
            if said is not None and _same(said) != _same(found):
                raise ValueError(
                    f"its config says {name}={said!r}, and its tensors {found!r}: they don't belong together"
                )
        if config.pool not in self.pools:
            raise ValueError(
                f"its config pools by {' or '.join(self.pools) or 'nothing of ours'}, and its tensors by {config.pool}"
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


def _refuse_unknown(keys: Mapping[str, Any], known: set[str], where: str) -> None:
    if unknown := sorted(str(key) for key in keys if key not in known):
        raise ValueError(
            f"{where} has {some(unknown)}, which this package doesn't know: it might change the answer, so nothing is "
            "loaded. If it changes none, take it out of the file"
        )


def _number(value: Any, name: str, least: float = -math.inf) -> float:
    good = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and value >= least
    if not good:
        raise ValueError(
            f"{name} must be a number{'' if least == -math.inf else f' from {least:g}'}, got {short(value)}"
        )
    return float(value)


def _whole(value: Any, name: str, least: int = 1) -> int:
    if int(_number(value, name, least)) != value:
        raise ValueError(f"{name} must be a whole number, got {short(value)}")
    return int(value)


def _size(value: Any, name: str) -> Size:
    pair = as_pair(tuple(value) if isinstance(value, list) else value, name)
    return pair[0] if pair[0] == pair[1] else pair


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


# ---------------------------------------------------------------------------------------------------------------- timm

HEADS = {"tiny": 3, "small": 6, "base": 12, "large": 16, "huge": 16, "giant": 16, "gigantic": 16}
SIZE = "|".join(HEADS)
# timm's names whose architecture is the paper's, with what no tensor shows. All others are refused by name, for the
# tensors of a rotated or post-normed model may be called the same.
PLAIN = (
    rf"vit_(?P<size>{SIZE})_patch\d+(_gap)?_\d+(_miil)?",
    r"deit_(?P<size>tiny|small|base)(_distilled)?_patch\d+_\d+",
    rf"flexivit_(?P<size>{SIZE})",
    r"vit_(?P<size>base|large|so400m|giantopt)_patch\d+_siglip_gap_\d+",
    r"vit_(?P<size>tiny|small|base|large)_r(26|50)?_s(16|32)(_p8)?_\d+",  # the paper's hybrids
    r"test_vit",
)
OTHER_HEADS = {"vit_base_patch16_gap_224": 16, "test_vit": 2}
TANH = (  # of the names above
    r"vit_base_patch32_siglip_gap_256|vit_large_patch16_siglip_gap_512|vit_(so400m_patch16|giantopt_patch16)_siglip_gap_\d+"
)
TIMM_GELUS: dict[str | None, Gelu | None] = {None: None, "": None, "gelu": "exact", "gelu_tanh": "tanh"}
TIMM_OFF = {  # keys of model_args, and the values with which they change nothing
    "qk_norm": (False, None),
    "scale_attn_norm": (False, None),
    "scale_mlp_norm": (False, None),
    "proj_bias": (True,),
    "init_values": (None,),
    "reg_tokens": (0, None),
    "pre_norm": (False,),
    "final_norm": (True,),
    "fc_norm": (False, None),
    "embed_norm_layer": (None, ""),
    "norm_layer": (None, "", "layernorm"),
    "attn_layer": (None, "", "attn"),
    "mlp_layer": (None, ""),
    "block_fn": (None,),
    "embed_layer": (None,),
    "features_only": (False,),
    "scriptable": (None, False),
    "exportable": (None, False),
}
TIMM_ARGS = {  # read, or compared with the tensors
    "num_heads", "act_layer", "global_pool", "img_size", "patch_size", "in_chans", "num_classes", "embed_dim", "depth",
    "mlp_ratio", "qkv_bias", "class_token", "no_embed_class", "pos_embed",
}  # fmt: skip
TIMM_HARMLESS_ARGS = {  # of training, of other sizes, or of where it runs
    "drop_rate", "pos_drop_rate", "patch_drop_rate", "proj_drop_rate", "attn_drop_rate", "drop_path_rate",
    "drop_block_rate", "weight_init", "fix_init", "dynamic_img_size", "dynamic_img_pad", "strict_img_size",
    "pool_include_prefix",  # the mean is only read where there is no token before the patches
    "device", "dtype",
}  # fmt: skip
TIMM_PIXELS = {"input_size", "mean", "std", "interpolation", "crop_pct", "crop_mode", "label_names", "label_offset"}
TIMM_HARMLESS = {  # where it is from, what may be written about it, and sizes of timm's own test script
    "url", "file", "hf_hub_id", "hf_hub_filename", "source", "architecture", "tag", "custom_load", "state_dict",
    "test_input_size", "min_input_size", "fixed_input_size", "test_crop_pct", "num_classes", "label_descriptions",
    "pool_size", "test_pool_size", "first_conv", "classifier", "license", "description", "origin_url", "paper_name",
    "paper_ids", "notes", "num_features", "labels", "global_pool", "model_args", "pretrained_cfg",
}  # fmt: skip


def timm(config: Json) -> Known:
    """What timm's config.json says: ``architecture``, its ``model_args``, and ``pretrained_cfg`` for the pixels.

    Raises:
        ValueError: an architecture that isn't the paper's, or a key or value that this package can't honour.
    """
    about = config.get("pretrained_cfg", config)  # older files have no two levels
    args = config.get("model_args") or {}
    if not isinstance(about, dict) or not isinstance(args, dict):
        raise ValueError("its pretrained_cfg and model_args must be mappings")
    _refuse_unknown(config, TIMM_HARMLESS | TIMM_PIXELS, "its config")
    _refuse_unknown(about, TIMM_HARMLESS | TIMM_PIXELS, "its pretrained_cfg")
    _refuse_unknown(args, TIMM_ARGS | TIMM_HARMLESS_ARGS | set(TIMM_OFF), "its model_args")
    for key, good in TIMM_OFF.items():
        if key in args and not any(args[key] is value or args[key] == value for value in good):
            raise ValueError(f"its model_args have {key}={short(args[key])}, which is beyond ViTConfig")
    name = config.get("architecture")
    num_heads, gelu = _timm_architecture(name)
    if "num_heads" in args:
        num_heads = _whole(args["num_heads"], "num_heads")
    act_layer = args.get("act_layer")
    if not isinstance(act_layer, str | None) or act_layer not in TIMM_GELUS:
        raise ValueError(f"its model_args have act_layer={short(act_layer)}: ViTConfig has gelu and gelu_tanh")
    gelu = TIMM_GELUS[act_layer] or gelu
    fields = _timm_fields(config, args)
    channels = fields["in_channels"] or _input(about)[0]
    pixels = _timm_pixels(about, channels)
    resized = bool(args.get("dynamic_img_size", name == "test_vit"))
    image_size = args.get("img_size")
    if image_size is None:  # then timm builds its default, if any size will do
        image_size = 224 if resized else list(pixels.image_size)
    if about.get("label_offset") or config.get("label_offset"):
        raise ValueError("its label_offset shifts the classes, which this package doesn't")
    labels = next((at[key] for key in ("label_names", "labels") for at in (config, about) if at.get(key)), None)
    told = Told(num_heads, _size(image_size, "img_size"), gelu, 1e-6, plain=True)
    pools = _timm_pools(str(name), config, args)
    return Known("timm", told, fields, pools, _labels(labels, "label_names"), pixels, resized)


def _timm_architecture(name: Any) -> tuple[int, Gelu]:
    called = name if isinstance(name, str) else ""
    match = next((m for pattern in PLAIN if (m := re.fullmatch(pattern, called))), None)
    if match is None:
        raise ValueError(
            f"timm's {short(name)} is beyond ViTConfig, or not known to be the paper's architecture, as vit_*_patch*, "
            "vit_*_gap_*, vit_*_siglip_gap_*, vit_*_r*_s*, deit_* and flexivit_* are"
        )
    size = match.groupdict().get("size") or ""
    num_heads = OTHER_HEADS.get(str(name)) or HEADS.get(size, 16)
    return num_heads, "tanh" if re.fullmatch(TANH, str(name)) else "exact"


def _timm_pools(name: str, config: Json, args: Json) -> tuple[Pool, ...]:
    """What is read out: the class token (or two), or the mean, which is ours where there is no class token."""
    pools = [at["global_pool"] for at in (args, config) if at.get("global_pool") is not None]
    if strange := [pool for pool in pools if pool not in ("token", "avg")]:
        raise ValueError(
            f"it pools by {short(strange[0])} (global_pool): ViTConfig reads the class token, or the mean without one"
        )
    pool, class_token = pools[0] if pools else None, args.get("class_token")
    mean = "_gap_" in name if pool is None else pool == "avg"
    if class_token is not None and _flag(class_token, "class_token") is mean:
        raise ValueError(f"it has class_token={class_token} and pools by {pool!r}, which is beyond ViTConfig")
    return ("mean",) if mean else ("cls", "distilled")


def _timm_fields(config: Json, args: Json) -> dict[str, Any]:
    """What model_args say that the tensors show."""
    dim, ratio, position = args.get("embed_dim"), args.get("mlp_ratio"), args.get("pos_embed")
    both = dim is not None and ratio is not None
    return {
        "dim": dim,
        "depth": args.get("depth"),
        "mlp_dim": int(_whole(dim, "embed_dim") * _number(ratio, "mlp_ratio")) if both else None,
        "patch_size": None if args.get("patch_size") is None else _size(args["patch_size"], "patch_size"),
        "in_channels": None if args.get("in_chans") is None else _whole(args["in_chans"], "in_chans"),
        "num_classes": args.get("num_classes", config.get("num_classes")),
        "qkv_bias": args.get("qkv_bias"),
        "position": None if position is None else "learned" if position == "learn" else "none",
    }


def _input(about: Json) -> tuple[int, int, int]:
    size = about.get("input_size", (3, 224, 224))
    if not isinstance(size, (list, tuple)) or len(size) != 3:
        raise ValueError(f"input_size must be channels, height and width, got {short(size)}")
    channels, height, width = (_whole(value, "input_size") for value in size)
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
class Family:
    """One of transformers' model types that is a ViT of the paper's, and its defaults."""

    processor: str  # whose defaults a preprocessor_config.json without a type has
    norm_eps: float = 1e-12
    pool: Pool = "cls"
    image_size: int = 224
    own_keys: frozenset[str] = frozenset()  # of a decoder or neck, which is left out


FAMILIES = {
    "vit": Family("ViT"),
    "deit": Family("DeiT", pool="distilled"),
    "vit_mae": Family(
        "ViT",
        own_keys=frozenset(
            {
                "decoder_hidden_size",
                "decoder_intermediate_size",
                "decoder_num_attention_heads",
                "decoder_num_hidden_layers",
                "mask_ratio",
                "norm_pix_loss",
            }
        ),
    ),
    "vit_msn": Family("ViT", norm_eps=1e-6),
    "ijepa": Family("ViT", pool="mean"),
    "dpt": Family(
        "DPT",
        image_size=384,
        own_keys=frozenset(
            {
                "add_projection",
                "auxiliary_loss_weight",
                "backbone_featmap_shape",
                "backbone_out_indices",
                "fusion_hidden_size",
                "head_in_index",
                "neck_hidden_sizes",
                "neck_ignore_stages",
                "readout_type",
                "reassemble_factors",
                "semantic_classifier_dropout",
                "semantic_loss_ignore_index",
                "use_auxiliary_head",
                "use_batch_norm_in_fusion_residual",
                "use_bias_in_fusion_residual",
            }
        ),
    ),
}
HF_GELUS: dict[str, Gelu] = {
    "gelu": "exact", "gelu_python": "exact", "gelu_new": "tanh", "gelu_pytorch_tanh": "tanh", "gelu_fast": "tanh",
    "gelu_accurate": "tanh",
}  # fmt: skip
HF_READ = {
    "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "hidden_act", "layer_norm_eps",
    "image_size", "patch_size", "num_channels", "qkv_bias", "id2label", "num_labels", "_num_labels", "head_dim",
    "is_hybrid", "backbone_config", "backbone", "quantization_config", "pruned_heads", "auto_map",
}  # fmt: skip
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

    Raises:
        ValueError: another model than the paper's, or a key or value that this package can't honour.
    """
    kind = config.get("model_type")
    if kind == "timm_wrapper":
        return _timm_wrapper(config)
    if not isinstance(kind, str) or kind not in FAMILIES:
        raise ValueError(
            f"transformers' {short(kind)} is beyond ViTConfig, which can express the model types "
            f"{', '.join(FAMILIES)}, timm_wrapper"
        )
    family = FAMILIES[kind]
    _refuse_unknown(config, HF_READ | HF_HARMLESS | family.own_keys, "its config")
    for key in ("is_hybrid", "backbone_config", "backbone", "quantization_config", "pruned_heads", "auto_map"):
        if config.get(key):
            why = ": code of its own" if key == "auto_map" else ""
            raise ValueError(f"its config has {key}{why}, which is beyond ViTConfig")
    act = config.get("hidden_act", "gelu")
    if not isinstance(act, str) or act not in HF_GELUS:
        raise ValueError(f"its config has hidden_act={short(act)}, which is beyond ViTConfig: {', '.join(HF_GELUS)}")
    dim = _whole(config.get("hidden_size", 768), "hidden_size")
    num_heads = _whole(config.get("num_attention_heads", 12), "num_attention_heads")
    if config.get("head_dim") not in (None, dim / num_heads):
        raise ValueError(f"its config has head_dim={short(config['head_dim'])}, and D / h is {dim / num_heads:g}")
    channels = _whole(config.get("num_channels", 3), "num_channels")
    eps = _number(config.get("layer_norm_eps", family.norm_eps), "layer_norm_eps", 0)
    told = Told(num_heads, _size(config.get("image_size", family.image_size), "image_size"), HF_GELUS[act], eps)
    fields = {
        "dim": dim,
        "depth": _whole(config.get("num_hidden_layers", 12), "num_hidden_layers"),
        "mlp_dim": _whole(config.get("intermediate_size", 3072), "intermediate_size"),
        "patch_size": _size(config.get("patch_size", 16), "patch_size"),
        "in_channels": channels,
        "qkv_bias": _flag(config.get("qkv_bias", True), "qkv_bias"),
    }
    if config.get("num_labels") is not None and "Classification" in str(config.get("architectures")):
        fields["num_classes"] = _whole(config["num_labels"], "num_labels", 0)
    pixels = None if processor is None else _pixels(processor, family, channels)
    labels = _labels(config.get("id2label"), "id2label")
    return Known("huggingface", told, fields, (family.pool,), labels, pixels)


def _timm_wrapper(config: Json) -> Known:
    """Transformers around timm: timm's keys among transformers' own."""
    _refuse_unknown(
        config,
        HF_HARMLESS | TIMM_HARMLESS | TIMM_PIXELS | {"id2label", "num_labels", "do_pooling"},
        "its config",
    )
    about = config.get("pretrained_cfg") or {}
    keys = ("architecture", "model_args", "global_pool", "label_names", "label_offset")
    inner = {key: config[key] for key in keys if config.get(key) is not None}
    known = timm(inner | {"pretrained_cfg": about})
    labels = _labels(config.get("id2label"), "id2label") or known.labels
    return replace(known, labels=labels)


PROCESSORS: dict[str, Json] = {  # what isn't written in a preprocessor_config.json, by its type
    "ViT": {"size": 224, "resample": 2},
    "DeiT": {"size": 256, "resample": 3, "do_center_crop": True, "crop_size": 224},
    "Beit": {"size": 224, "resample": 3},
    "DPT": {"size": 384, "resample": 3},
    "CLIP": {
        "size": {"shortest_edge": 224},
        "resample": 3,
        "do_center_crop": True,
        "crop_size": 224,
        "image_mean": OPENAI[0],
        "image_std": OPENAI[1],
    },
    "Bit": {
        "size": {"shortest_edge": 224},
        "resample": 3,
        "do_center_crop": True,
        "crop_size": 224,
        "image_mean": OPENAI[0],
        "image_std": OPENAI[1],
    },
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


def _pixels(how: Json, family: Family, channels: int) -> Preprocessing:
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
    how = PROCESSORS[kind] | {key: value for key, value in how.items() if value is not None}
    for key, good in (
        ("do_resize", True),
        ("default_to_square", True),
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
    short = _whole(how["size"]["shortest_edge"], "shortest_edge")
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
    return _whole(height, name), _whole(width, name)


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
