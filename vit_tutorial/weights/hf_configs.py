"""Lesson 09: what transformers' config.json and its image processors say: each field by a rule of its model type."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from vit_tutorial.data import Corner, CropMode, Preprocessing
from vit_tutorial.data.preprocessing import INTERPOLATIONS
from vit_tutorial.patches import as_pair
from vit_tutorial.variants.modern import Rotary
from vit_tutorial.variants.text import TextConfig
from vit_tutorial.weights import fields as of
from vit_tutorial.weights.fields import BEYOND, PIXELS, Fields, Given, Json, Known, Reasons
from vit_tutorial.weights.messages import SEVERAL_LABELS, short, some
from vit_tutorial.weights.sources import HALF, IMAGENET, OPENAI

GELUS = {
    "gelu": "exact", "gelu_python": "exact", "gelu_new": "tanh", "gelu_pytorch_tanh": "tanh", "gelu_fast": "tanh",
    "gelu_accurate": "tanh", "quick_gelu": "quick",
}  # fmt: skip
BASE: Json = {  # the fields of every vision model, and what they are by default
    "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072,
    "hidden_act": "gelu", "layer_norm_eps": 1e-12, "image_size": 224, "patch_size": 16, "num_channels": 3,
}  # fmt: skip
DROPPED: Reasons = {  # of every model type, by why no answer to a picture depends on them
    "where it is from": {
        "model_type", "architectures", "transformers_version", "torch_dtype", "dtype", "_name_or_path", "name_or_path",
        "_commit_hash", "finetuning_task", "license", "tokenizer_class", "processor_class",
    },
    "transformers names its answers by id2label": {"label2id"},
    "training": {
        "hidden_dropout_prob", "attention_probs_dropout_prob", "attention_dropout", "dropout", "classifier_dropout",
        "classifier_dropout_prob", "drop_path_rate", "initializer_range", "initializer_factor", "problem_type",
        "gradient_checkpointing", "layerscale_value",
    },
    "the form of the answer, or an output beside it": {
        "output_attentions", "output_hidden_states", "return_dict", "use_return_dict", "torchscript", "use_bfloat16",
        "use_cache", "attn_implementation", "_attn_implementation", "_attn_implementation_autoset", "out_features",
        "out_indices", "stage_names", "apply_layernorm", "reshape_hidden_states", "add_pooling_layer",
        "pooler_output_size", "pooler_act", "encoder_stride", "use_mask_token", "chunk_size_feed_forward",
    },
    "text": {
        "is_encoder_decoder", "is_decoder", "add_cross_attention", "cross_attention_hidden_size", "tie_word_embeddings",
        "tie_encoder_decoder", "tf_legacy_loss", "prefix", "task_specific_params", "bos_token_id", "pad_token_id",
        "eos_token_id", "sep_token_id", "decoder_start_token_id", "max_length", "min_length", "do_sample",
        "early_stopping", "num_beams", "num_beam_groups", "diversity_penalty", "temperature", "top_k", "top_p",
        "typical_p", "repetition_penalty", "length_penalty", "no_repeat_ngram_size", "encoder_no_repeat_ngram_size",
        "bad_words_ids", "num_return_sequences", "output_scores", "return_dict_in_generate", "forced_bos_token_id",
        "forced_eos_token_id", "remove_invalid_values", "exponential_decay_length_penalty", "suppress_tokens",
        "begin_suppress_tokens",
    },
}  # fmt: skip
PROBLEMS = {  # problem_type, where no softmax reads the answer
    "multi_label_classification": SEVERAL_LABELS,
    "regression": "numbers (problem_type), and no logits of a softmax",
}
LACKING: Reasons = {  # what changes an answer, and isn't read
    "another model before the tokens": ("is_hybrid", "backbone_config", "backbone", "backbone_kwargs"),
    "a backbone of another library": ("use_autobackbone", "use_pretrained_backbone", "use_timm_backbone"),
    "quantised weights": ("quantization_config",),
    "heads that were taken out": ("pruned_heads",),
    "code of its own": ("auto_map",),
}


@dataclass(frozen=True)
class ModelType:
    """One of transformers' model types."""

    processor: str  # whose defaults a preprocessor_config.json without a type has
    defaults: Json = field(default_factory=dict)  # of BASE's fields that differ, and of those that it alone has
    pool: str | None = None  # None: the tensors show it
    resized: bool = False  # whether transformers resizes positions without being asked
    shown: Mapping[str, Any] = field(default_factory=dict)  # what tensors must show
    fixed: tuple[str, ...] = ()  # fields that are true by default, and must be
    dropped: Reasons = field(default_factory=dict)


CLIP_TYPE = ModelType(
    "CLIP",
    {"layer_norm_eps": 1e-5, "hidden_act": "quick_gelu", "patch_size": 32},
    shown={"pre_norm": True},
    dropped={"the tensors show it": {"projection_dim"}},
)
SIGLIP_TYPE = ModelType(
    "Siglip",
    {"layer_norm_eps": 1e-6, "hidden_act": "gelu_pytorch_tanh"},
    shown={"class_token": False},
    fixed=("vision_use_head",),  # without, all tokens are its answer
    dropped={"the tensors show it": {"projection_size"}},
)
DINOV2_TYPE = ModelType(
    "Bit", {"layer_norm_eps": 1e-6, "mlp_ratio": 4, "use_swiglu_ffn": False}, resized=True, shown={"layer_scale": 1e-5}
)
BEIT_FLAGS = {  # its positions are learned, biases of attention, or both
    "use_absolute_position_embeddings": False, "use_relative_position_bias": False,
    "use_shared_relative_position_bias": False, "use_mean_pooling": True,
}  # fmt: skip
BEIT_TYPE = ModelType(
    "Beit",
    BEIT_FLAGS | {"layer_scale_init_value": 0.1},
    shown={"k_bias": False},
    dropped={
        "the heads of segmentation and of pretraining": {
            "vocab_size", "pool_scales", "use_auxiliary_head", "auxiliary_loss_weight", "auxiliary_channels",
            "auxiliary_num_convs", "auxiliary_concat_input", "semantic_loss_ignore_index", "add_fpn",
        },
    },
)  # fmt: skip
VIT_DEFAULTS = {"qkv_bias": True}
MODEL_TYPES = {
    "vit": ModelType("ViT", VIT_DEFAULTS, "cls"),
    "deit": ModelType("DeiT", VIT_DEFAULTS, "distilled"),
    "vit_mae": ModelType("ViT", VIT_DEFAULTS, "cls", dropped={"the decoder": {
        "decoder_hidden_size", "decoder_intermediate_size", "decoder_num_attention_heads", "decoder_num_hidden_layers",
        "mask_ratio", "norm_pix_loss",
    }}),
    "vit_msn": ModelType("ViT", VIT_DEFAULTS | {"layer_norm_eps": 1e-6}, "cls"),
    "ijepa": ModelType("ViT", VIT_DEFAULTS, "mean"),
    "dpt": ModelType("DPT", VIT_DEFAULTS | {"image_size": 384}, "cls", dropped={"the neck and the head": {
        "add_projection", "auxiliary_loss_weight", "backbone_featmap_shape", "backbone_out_indices",
        "fusion_hidden_size", "head_in_index", "neck_hidden_sizes", "neck_ignore_stages", "readout_type",
        "reassemble_factors", "semantic_classifier_dropout", "semantic_loss_ignore_index", "use_auxiliary_head",
        "use_batch_norm_in_fusion_residual", "use_bias_in_fusion_residual",
    }}),
    "dinov2": replace(DINOV2_TYPE, defaults=DINOV2_TYPE.defaults | {"qkv_bias": True, "patch_size": 14}),
    "dinov2_with_registers": replace(
        DINOV2_TYPE, defaults=DINOV2_TYPE.defaults | {"qkv_bias": True, "num_register_tokens": 4},
        dropped={"its positions are resized in one way": {"interpolate_antialias", "interpolate_offset"}},
    ),
    "dinov3_vit": replace(
        DINOV2_TYPE, processor="DINOv3ViT", shown={"layer_scale": 1e-5, "position": "none"},
        defaults={
            "layer_norm_eps": 1e-5, "hidden_size": 384, "num_attention_heads": 6, "intermediate_size": 1536,
            "use_gated_mlp": False, "num_register_tokens": 0, "rope_theta": 100.0, "query_bias": True,
            "key_bias": False, "value_bias": True,
        },
        fixed=("proj_bias", "mlp_bias"),
        dropped={"training": {"pos_embed_shift", "pos_embed_jitter", "pos_embed_rescale"}},
    ),
    **dict.fromkeys(("beit", "data2vec-vision"), BEIT_TYPE),
    **dict.fromkeys(("clip_vision_model", "metaclip_2_vision_model", "altclip_vision_model"), CLIP_TYPE),
    "chinese_clip_vision_model": replace(CLIP_TYPE, processor="ChineseCLIP"),
    "clipseg_vision_model": replace(CLIP_TYPE, processor="ViT"),
    "owlvit_vision_model": replace(
        CLIP_TYPE, processor="OwlViT", defaults=CLIP_TYPE.defaults | {"image_size": 768}
    ),
    "siglip_vision_model": SIGLIP_TYPE,
    "blip_vision_model": replace(
        CLIP_TYPE, processor="Blip", shown={},
        defaults={"layer_norm_eps": 1e-5, "image_size": 384, "num_channels": 3},
    ),
    "blip_2_vision_model": replace(
        CLIP_TYPE, processor="Blip", shown={},
        defaults={
            "layer_norm_eps": 1e-6, "hidden_size": 1408, "num_hidden_layers": 39, "num_attention_heads": 16,
            "intermediate_size": 6144, "patch_size": 14, "qkv_bias": True,
        },
    ),
}  # fmt: skip
TOWERS = {  # model types of images and text: their image tower's type
    kind: f"{kind.replace('-', '_')}_vision_model"
    for kind in ("clip", "metaclip_2", "altclip", "chinese_clip", "clipseg", "owlvit", "siglip", "blip", "blip-2")
}
BESIDE_TOWER: Reasons = {  # fields of a model of images and text that its image tower doesn't read
    "the text tower, and what joins both": {
        "text_config", "text_config_dict", "qformer_config", "projection_dim", "projection_size",
        "logit_scale_init_value", "image_text_hidden_size", "label_smoothing", "num_query_tokens", "image_token_index",
        "use_decoder_only_language_model",
    },
    "the decoder": {
        "extract_layers", "reduce_dim", "decoder_num_attention_heads", "decoder_attention_dropout",
        "decoder_hidden_act", "decoder_intermediate_size", "conditional_layer", "use_complex_transposed_convolution",
    },
}  # fmt: skip


def transformers(config: Json, processor: Json | None) -> Known:
    """What transformers' config.json and preprocessor_config.json say."""
    kind = config.get("model_type")
    if not isinstance(kind, str) or kind not in (read := MODEL_TYPES | TOWERS):
        raise ValueError(f"transformers' {short(kind)} is beyond ViTConfig and ModernConfig; read: {', '.join(read)}")
    whole = Fields(config, "its config")
    names = of.labels(whole.take("id2label"), "id2label")
    num_labels, classifies = whole.stated("num_labels"), "ForImageClass" in str(config.get("architectures"))
    whole.take("_num_labels")
    said = whole
    if kind in TOWERS:
        said = tower(whole, "vision_config")
        whole.must_lack(LACKING)
        whole.close(DROPPED, BESIDE_TOWER)
    family = MODEL_TYPES[TOWERS.get(kind, kind)]
    fields, given = _model(said, family)
    if num_labels is not None and classifies:
        fields["num_classes"] = of.whole(num_labels, "num_labels", 0)
    if "Backbone" in str(config.get("architectures")):
        raise ValueError(f"its architectures name a backbone: maps of some layers, {BEYOND}")
    how = processor or {"do_rescale": False}
    prepares = str(how.get("image_processor_type") or how.get("feature_extractor_type") or family.processor)
    prepares = re.sub(r"(ImageProcessor(Fast|Pil)?|FeatureExtractor)$", "", prepares)
    pixels = None if processor is None else _pixels(processor, prepares, fields["in_channels"])
    scaled_first = prepares == "DINOv3ViT" and how.get("do_rescale", True)
    size = given.image_size
    if pixels is not None and kind == "dinov3_vit":
        size = of.size(pixels.image_size, "image_size")
    if pixels is not None and (family.resized or pixels.image_size == as_pair(size or 0, "image_size")):
        pixels = of.whole_patches(pixels, fields["patch_size"])
    if size is not None and not family.resized:
        size = of.divided(size, fields["patch_size"])
    parts = {"pool": "mean"} if classifies and kind in TOWERS else given.parts
    given = replace(given, image_size=size, plain=True, told=True, classifies=classifies, parts=parts)
    if scaled_first and pixels is not None and pixels.interpolation in ("bicubic", "lanczos"):
        raise ValueError(f"its preprocessor resizes by {pixels.interpolation} before it rounds or clips, {PIXELS}")
    assumed = {}
    if scaled_first:
        assumed["rounded"] = "transformers' processor for DINOv3 keeps fractions"
    elif str(how.get("image_processor_type")).endswith("Fast"):
        assumed["rounded"] = "transformers' fast processor takes the next level for some"
    if classifies and (problem := str(config.get("problem_type"))) in PROBLEMS:
        assumed["answers"] = PROBLEMS[problem]
    return Known("huggingface", given, fields, names, pixels, family.resized, assumed)


def tower(whole: Fields, key: str) -> Fields:
    """One tower's part of a config of both; older files have it twice."""
    now, older = whole.stated(key, {}), whole.stated(f"{key}_dict", {})
    if not isinstance(now, dict) or not isinstance(older, dict):
        raise ValueError(f"its {key} must be a mapping")
    if differ := [name for name, value in older.items() if now.get(name, value) != value]:
        raise ValueError(f"its {key} and its {key}_dict don't agree on {some(differ)}")
    said = Fields(older | now, f"its {key}")
    for name in ("id2label", "num_labels", "_num_labels"):  # every config of transformers' has them
        said.take(name)
    return said


TEXT_SIZES = {
    "vocab_size": ("vocab_size", 49_408), "context": ("max_position_embeddings", 77), "dim": ("hidden_size", 512),
    "depth": ("num_hidden_layers", 12), "num_heads": ("num_attention_heads", 8),
    "mlp_dim": ("intermediate_size", 2048),
}  # fmt: skip
SIGLIP_SIZES = TEXT_SIZES | {
    "vocab_size": ("vocab_size", 32_000), "context": ("max_position_embeddings", 64), "dim": ("hidden_size", 768),
    "num_heads": ("num_attention_heads", 12), "mlp_dim": ("intermediate_size", 3072),
}  # fmt: skip
TEXTS = ("clip", "metaclip_2", "siglip")  # model types whose text tower is read


def text_tower(config: Json) -> tuple[TextConfig, str]:
    """What transformers' config.json says of the text tower of CLIP, MetaCLIP 2 or SigLIP; texts stay as they are."""
    kind = config.get("model_type")
    if kind not in TEXTS:
        raise ValueError(f"the text tower of transformers' {short(kind)} isn't read: that of {', '.join(TEXTS)} is")
    said, siglip = tower(Fields(config, "its config"), "text_config"), kind == "siglip"
    sizes = said.numbers(SIGLIP_SIZES if siglip else TEXT_SIZES)
    width = said.stated("projection_size", sizes["dim"]) if siglip else config.get("projection_dim", 512)
    act = said.take("hidden_act", "gelu_pytorch_tanh" if siglip else "quick_gelu")
    eps = of.number(said.take("layer_norm_eps", 1e-6 if siglip else 1e-5), "layer_norm_eps", 0)
    end = of.whole(said.take("eos_token_id", 49_407), "eos_token_id", 0)
    said.take("projection_dim")  # of the text model alone
    said.must_lack(LACKING)
    said.close(DROPPED)
    largest = kind == "clip" and end == 2  # as OpenAI's own files have it; transformers then reads the largest
    found = TextConfig(
        **sizes,
        out_dim=of.whole(width, "projection_size" if siglip else "projection_dim"),
        gelu=of.choice(act, GELUS, said.where, "hidden_act"),  # type: ignore[arg-type]
        norm_eps=eps,
        causal=not siglip,
        end_token=None if largest or siglip else end,
        head_bias=siglip,
    )
    return found, ""


def _model(said: Fields, family: ModelType) -> tuple[Json, Given]:
    """The fields that tensors must agree with, and what no tensor shows; nothing of the config is left."""
    usual = BASE | family.defaults
    if "mlp_ratio" in usual:
        del usual["intermediate_size"]
    of_type = {key: said.take(key, value) for key, value in usual.items()}
    said.must_lack(LACKING)
    dim = of.whole(of_type["hidden_size"], "hidden_size")
    heads = of.whole(of_type["num_attention_heads"], "num_attention_heads")
    if (head_dim := said.take("head_dim")) not in (None, dim / heads):
        raise ValueError(f"its config has head_dim={short(head_dim)}, and D / h is {dim / heads:g}")
    for key in family.fixed:
        said.must_be(key, True)
    gated = any(of.flag(of_type[key], key) for key in ("use_swiglu_ffn", "use_gated_mlp") if key in usual)
    if "mlp_ratio" in usual:
        M = int(dim * of.number(of_type["mlp_ratio"], "mlp_ratio", 0))
        M = (int(M * 2 / 3) + 7) // 8 * 8 if gated else M
    else:
        M = of.whole(of_type["intermediate_size"], "intermediate_size")
    fields: Json = {
        "dim": dim,
        "depth": of.whole(of_type["num_hidden_layers"], "num_hidden_layers"),
        "patch_size": of.size(of_type["patch_size"], "patch_size"),
        "in_channels": of.whole(of_type["num_channels"], "num_channels"),
        "mlp_dim": M,
        "gated": gated,
        "pool": family.pool,
        "position": "learned",
        **family.shown,
    }
    if "num_register_tokens" in usual:
        least = 0 if "rope_theta" in usual else 1  # DINOv3 alone has a model without
        fields["registers"] = of.whole(of_type["num_register_tokens"], "num_register_tokens", least)
    if "qkv_bias" in usual:
        fields["qkv_bias"] = of.flag(of_type["qkv_bias"], "qkv_bias")
    if "query_bias" in usual:
        q, k, v = (of.flag(of_type[key], key) for key in ("query_bias", "key_bias", "value_bias"))
        if q != v or (k and not q):
            raise ValueError(f"its config has query_bias={q}, key_bias={k} and value_bias={v}, {BEYOND}")
        fields |= {"qkv_bias": q, "k_bias": k or not q}
    parts: Json = {}
    if "rope_theta" in usual:
        parts["rotary"] = Rotary("centred", of.number(of_type["rope_theta"], "rope_theta"))
    if "use_mean_pooling" in usual:
        learned, own, shared, mean = (of.flag(of_type[key], key) for key in BEIT_FLAGS)
        scaled = of.number(of_type["layer_scale_init_value"], "layer_scale_init_value") > 0
        parts["pool"] = "mean" if mean else "cls"
        fields |= {"position": "learned" if learned else "none", "position_bias": own or shared}
        fields |= {"layer_scale": 1e-5 if scaled else None, "final_norm": not mean}
    act = of_type["hidden_act"]
    if gated and "use_gated_mlp" in usual and act not in ("silu", "swish"):
        raise ValueError(f"its config has hidden_act={short(act)} for a gated MLP, {BEYOND}: silu")
    if not gated and (not isinstance(act, str) or act not in GELUS):
        raise ValueError(f"its config has hidden_act={short(act)}, {BEYOND}: {', '.join(GELUS)}")
    said.close(DROPPED, family.dropped)
    eps = of.number(of_type["layer_norm_eps"], "layer_norm_eps", 0)
    if eps > 1:
        raise ValueError(f"layer_norm_eps must be at most 1, got {eps:g}")
    size = of.size(of_type["image_size"], "image_size")
    return fields, Given(heads, size, None if gated else GELUS[act], eps, parts=parts)


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
    "ChineseCLIP": SHORT_SIDE,
    "Bit": SHORT_SIDE,
    "Blip": {"size": 384, "resample": 3, "image_mean": OPENAI[0], "image_std": OPENAI[1]},
    "OwlViT": {"size": 768, "crop_size": 768, "resample": 3, "image_mean": OPENAI[0], "image_std": OPENAI[1]},
    "Siglip": {"size": 224, "resample": 3},
    "DINOv3ViT": {"size": 224, "resample": 2, "image_mean": IMAGENET[0], "image_std": IMAGENET[1]},
}
EVERY_PROCESSOR: Json = {
    "size": None, "resample": None, "do_center_crop": False, "crop_size": None, "do_rescale": True,
    "rescale_factor": 1 / 255, "do_normalize": True, "image_mean": HALF[0], "image_std": HALF[1],
}  # fmt: skip
PROCESSOR_FIXED: Json = {
    "do_resize": True, "do_pad": False, "keep_aspect_ratio": False, "do_flip_channel_order": False,
    "ensure_multiple_of": 1,
}  # fmt: skip
PROCESSOR_DROPPED: Reasons = {
    "pictures are made RGB here as well": {"do_convert_rgb"},
    "labels of segmentation": {"do_reduce_labels", "reduce_labels"},
    "where, and in what form, it answers": {
        "image_processor_type", "feature_extractor_type", "_valid_processor_keys", "data_format", "input_data_format",
        "device", "return_tensors", "disable_grouping", "processor_class", "_processor_class", "image_seq_length",
    },
    "of a padding that isn't made": {"pad_size", "size_divisor"},
}  # fmt: skip


def _pixels(content: Json, kind: str, channels: int) -> Preprocessing:
    """As transformers' image processors prepare pictures: resize, crop, scale, normalise.

    In Pillow's numbers. The processors that resize by torchvision round a few pixels in a thousand to the next of 256
    levels.
    """
    said = Fields(content, "its preprocessor_config", PIXELS)
    if kind not in PROCESSORS:
        raise ValueError(f"its image processor is {short(kind)}: {', '.join(PROCESSORS)} are known. Give preprocess=")
    usual = EVERY_PROCESSOR | PROCESSORS[kind]
    if unsure := [key for key in ("do_resize", "do_rescale", "do_normalize", "do_center_crop")
                  if content.get(key, 0) is None and usual.get(key, True)]:  # fmt: skip
        raise ValueError(f"its preprocessor has {unsure[0]}=null, which versions read differently: give preprocess=")
    said.must_lack({"code of its own, which isn't run": ("auto_map",)})
    square = usual.pop("default_to_square", True)
    for key, good in (PROCESSOR_FIXED | {"default_to_square": square}).items():
        said.must_be(key, good, None)
    how = {key: said.take(key, value) for key, value in usual.items()}  # what is null must not be needed
    said.close(PROCESSOR_DROPPED)
    if not square and isinstance(how["size"], int):  # as OpenAI's own files have it
        how["size"] = {"shortest_edge": how["size"]}
    size, crop, squash = _resize(how)
    mean, std = _scale(how, channels)
    resample = of.whole(how["resample"], "resample", 0)
    if resample >= len(INTERPOLATIONS):
        raise ValueError(f"its preprocessor has resample={resample}, {PIXELS} (from 0, {', '.join(INTERPOLATIONS)})")
    corner: Corner = "rounded" if isinstance(crop, str) or squash else "floored"  # transformers' middle is another
    return Preprocessing(size, mean, std, crop, INTERPOLATIONS[resample], squash=squash, corner=corner)


def _resize(how: Json) -> tuple[tuple[int, int], CropMode, bool]:
    """The size that a model gets, the share of the resized picture that it is, and whether that lost its shape."""
    cuts, size = of.flag(how["do_center_crop"] or False, "do_center_crop"), how["size"]
    if isinstance(size, dict) and size.keys() == {"shortest_edge"}:  # before a square is cut out
        short = of.whole(size["shortest_edge"], "shortest_edge", 1, of.LARGEST_SIDE)
        cut = _height_width(how["crop_size"], "crop_size") if cuts else (0, 0)
        if not cuts or cut[0] != cut[1] or cut[0] > short:
            what = f"{cut} out of a short side of {short}" if cuts else "no square"
            raise ValueError(f"its preprocessor cuts {what}, {PIXELS}")
        return cut, cut[0] / short, False
    resized = _height_width(size, "size")
    if not cuts:
        return resized, "none", False
    cut = _height_width(how["crop_size"], "crop_size")
    if cut == resized:
        return cut, "none", False
    share = cut[0] / resized[0]
    # Half a pixel is rounded elsewhere than torchvision does.
    even = all((whole - part) % 2 == 0 and whole > part for whole, part in zip(resized, cut, strict=True))
    if not even or math.floor(cut[1] / share + 1e-6) != resized[1]:
        raise ValueError(f"its preprocessor cuts {cut} out of {resized}, {PIXELS}")
    return cut, share, True


def _height_width(size: Any, name: str) -> tuple[int, int]:
    if isinstance(size, dict) and size.keys() == {"height", "width"}:
        size = [size["height"], size["width"]]
    if isinstance(size, dict):
        raise ValueError(f"its preprocessor has {name}={short(size)}, {PIXELS}")
    return as_pair(of.size(size, name), name)


def _scale(how: Json, channels: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and deviation for pixels in [0, 1]: of levels from 0 to 255, times a factor, normalised or not."""
    factor = 1.0
    if of.flag(how["do_rescale"], "do_rescale"):
        factor = of.number(how["rescale_factor"], "rescale_factor")
    white = 255 * factor
    if white <= 0:
        raise ValueError(f"its preprocessor has rescale_factor={factor}: it must be above 0")
    white = 1.0 if abs(white - 1) < 1e-9 else white
    mean, std = (0.0,) * channels, (1.0,) * channels
    if of.flag(how["do_normalize"], "do_normalize"):
        mean = of.statistics(how["image_mean"], channels, "image_mean")
        std = of.statistics(how["image_std"], channels, "image_std")
    return tuple(value / white for value in mean), tuple(value / white for value in std)
