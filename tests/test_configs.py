"""Lesson 09: what a library's config.json says is honoured, with that library's numbers, or refused by name."""

import dataclasses
import json
import os
import shutil
import warnings
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
import transformers
from peers import logits, randomise, since_5
from PIL import Image
from safetensors.torch import load_file, save_file, save_model
from timm.models import save_for_hf
from torch.testing import assert_close

import vit_tutorial as vt
from vit_tutorial.data import Preprocessing
from vit_tutorial.predict import command
from vit_tutorial.weights import configs, hf_configs

PICTURE = Image.fromarray(np.random.default_rng(0).integers(0, 255, (50, 71, 3), np.uint8)).resize((130, 90))


def load(folder, **told):
    """vt.load, which must have nothing to say."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return vt.load(folder, **told)


def change(folder, file="config.json", **changes):
    path = folder / file
    content = json.loads(path.read_text("utf-8"))
    for key, value in changes.items():
        inner, _, last = key.rpartition("__")
        (content[inner] if inner else content)[last] = value
    path.write_text(json.dumps(content), "utf-8")
    return folder


# ---------------------------------------------------------------------------------------------------------------- timm


def timm_folder(folder, name="vit_tiny_patch16_224", overlay=None, **options):
    sizes = {"img_size": 32, "embed_dim": 24, "depth": 2, "num_heads": 3, "num_classes": 5}
    theirs = timm.create_model(name, pretrained_cfg_overlay=overlay, **(sizes | options))
    save_for_hf(randomise(theirs).eval(), folder, safe_serialization=True)
    return theirs


def same_answers(theirs, found, atol=1e-5):
    images = found.preprocess(PICTURE)
    with torch.inference_mode():
        expected = logits(theirs, images)
        assert expected.std() > 0.05
        assert_close(found.model(images), expected, rtol=0, atol=atol)


TIMM = {
    "as it comes": {},
    "gelu": {"act_layer": "gelu"},
    "tanh": {"act_layer": "gelu_tanh"},
    "mean": {"global_pool": "avg", "class_token": False, "fc_norm": False},
    "mean beside a class token": {"global_pool": "avg", "class_token": True, "fc_norm": False},
    "no final norm": {"final_norm": False},
    "no class position": {"no_embed_class": True},
    "no positions": {"pos_embed": "none"},
    "rectangle": {"img_size": (32, 64)},
    "grey": {"in_chans": 1},
    "heads": {"num_heads": 6},
    "mlp": {"mlp_ratio": 2.5},
    "prefix": {"pool_include_prefix": True},
    "dynamic": {"dynamic_img_size": True},
    "bilinear": {"overlay": {"interpolation": "bilinear", "crop_pct": 0.95}},
    "squash": {"overlay": {"crop_mode": "squash", "crop_pct": 1.0}},
    "squash and crop": {"overlay": {"crop_mode": "squash", "crop_pct": 0.8}},
    "imagenet": {"overlay": {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}},
}


@pytest.mark.parametrize("case", TIMM)
def test_what_timm_saves_is_honoured(case, tmp_path):
    theirs = timm_folder(tmp_path, **TIMM[case])
    found = load(tmp_path)
    assert found.assumed == {}
    if theirs.in_chans == 3:
        about = timm.models._hub.load_model_config_from_path(tmp_path)[0]
        transform = timm.data.create_transform(**timm.data.resolve_data_config({}, pretrained_cfg=about))
        assert_close(found.preprocess(PICTURE), transform(PICTURE)[None], rtol=0, atol=1e-6)
    same_answers(theirs, found)


BEYOND = {
    "relu": {"act_layer": "relu"},
    "silu": {"act_layer": "silu"},
    "avgmax": {"global_pool": "avgmax", "fc_norm": False},
    "max": {"global_pool": "max", "fc_norm": False},
    "''": {"global_pool": ""},
    "border": {"overlay": {"crop_mode": "border"}},
}


@pytest.mark.parametrize("words", BEYOND)
def test_what_timm_saves_and_we_cannot_express_is_refused(words, tmp_path, refuses):
    timm_folder(tmp_path, **BEYOND[words])
    with refuses(ValueError, str(tmp_path), words):
        vt.load(tmp_path)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model_args__new_option": 3}, ["model_args", "new_option"]),
        ({"pretrained_cfg__resize_mode": "odd"}, ["pretrained_cfg", "resize_mode"]),
        ({"model_args__block_fn": "ResPostBlock"}, ["block_fn"]),
        ({"model_args__depth": 3}, ["depth=3", "2"]),
        ({"model_args__qkv_bias": False}, ["qkv_bias"]),
        ({"model_args__img_size": 48}, ["9 patches", "5 tokens"]),
        ({"pretrained_cfg__input_size": [3, 64, 64]}, ["(64, 64)", "takes (32, 32)"]),
        ({"pretrained_cfg__mean": [0.5, float("nan"), 0.5]}, ["mean", "nan"]),
        ({"pretrained_cfg__crop_pct": 1.1}, ["crop", "1.1"]),
        ({"pretrained_cfg__input_size": None}, ["input_size", "None"]),
        ({"model_args__use_naflex": True}, ["use_naflex"]),
        ({"model_args__reg_tokens": 4}, ["registers=4", "0"]),
        ({"model_args__pos_embed": "rope"}, ["position", "learned"]),
        ({"label_names": list("abcdefghi")}, ["class 5", "5 classes"]),
        ({"pretrained_cfg__interpolation": "random"}, ["interpolation", "random"]),
        ({"pretrained_cfg__label_offset": 1}, ["label_offset"]),
        ({"label_names": "cat"}, ["label_names", "str"]),
        ({"global_pool": "avg", "model_args__global_pool": None}, ["pools by mean"]),
        ({"architecture": "vit_base_patch16_rpn_224"}, ["vit_base_patch16_rpn_224", "beyond ViTConfig"]),
        ({"num_classes": 7, "model_args__num_classes": 5}, ["num_classes=7", "model_args 5"]),
    ],
)
def test_keys_and_values_of_timm_that_are_refused(changes, words, tmp_path, refuses, a_folder):
    a_folder("timm", tmp_path)
    with refuses(ValueError, str(tmp_path), *words):
        vt.load(change(tmp_path, **changes))


def test_eva_s_attention_pooling_reads_the_class_token_too(tmp_path):
    sizes = {"img_size": 64, "embed_dim": 32, "num_heads": 2}
    theirs = timm_folder(tmp_path, "eva02_tiny_patch14_224", patch_size=16, global_pool="map", **sizes)
    same_answers(theirs, load(tmp_path))


def test_a_bias_that_no_block_has_is_compared_with_timm_s_code(tmp_path, refuses):
    timm_folder(tmp_path, depth=1)
    file = tmp_path / "model.safetensors"
    state = load_file(file)
    del state["blocks.0.attn.qkv.bias"]
    save_file(state, file)
    with refuses(ValueError, "qkv_bias=True", "two different models"):
        vt.load(tmp_path)


@pytest.mark.parametrize(
    ("name", "options", "changes", "words"),
    [
        ("eva02_tiny_patch14_224", {"img_size": 56}, {"global_pool": "token"}, ["pools by mean", "model_args by cls"]),
        ("beit_base_patch16_224", {}, {"global_pool": "token"}, ["pools by mean", "model_args by cls"]),
        ("vit_small_patch16_dinov3", {}, {"act_layer": "quick_gelu"}, ["act_layer", "Eva doesn't take"]),
        ("vit_tiny_patch16_224", {}, {"qkv_fused": False}, ["qkv_fused", "VisionTransformer doesn't take"]),
    ],
)
def test_arguments_with_which_timm_builds_no_such_model_are_refused(name, options, changes, words, tmp_path, refuses):
    timm_folder(tmp_path, name, **{"img_size": 64, "embed_dim": 32, "num_heads": 2, "depth": 1} | options)
    vt.load(tmp_path)
    change(tmp_path, **{f"model_args__{key}": value for key, value in changes.items()})
    with refuses(ValueError, *words):
        vt.load(tmp_path)


@pytest.mark.parametrize(
    ("name", "lost", "words"),
    [
        ("vit_small_patch14_reg4_dinov2", "reg_token", ["registers=4", "0"]),
        ("vit_small_patch16_dinov3", "reg_token", ["registers=4", "0"]),
        ("vit_small_patch16_dinov3", "cls_token", ["class_token=True", "False"]),
    ],
)
def test_tokens_that_timm_s_architecture_has_and_the_file_lacks(name, lost, words, tmp_path, refuses):
    timm_folder(tmp_path, name, embed_dim=32, num_heads=2, depth=1, img_size=56 if "dinov2" in name else 64)
    state = load_file(tmp_path / "model.safetensors")
    save_file({key: tensor for key, tensor in state.items() if key != lost}, tmp_path / "model.safetensors")
    with refuses(ValueError, *words):
        vt.load(tmp_path)


def test_timm_s_class_names(tmp_path):
    timm_folder(tmp_path)
    change(tmp_path, label_names={"2": "two", "0": "zero"})
    with pytest.warns(UserWarning, match="names of classes, there are only 2 for 5 outputs"):
        assert vt.load(tmp_path).classes == ("zero", "class 1", "two", "class 3", "class 4")
    change(tmp_path, label_names=["a", "b", "c", "d", "e"])
    assert load(tmp_path).classes == tuple("abcde")
    change(tmp_path, pretrained_cfg__mean=[0.25])  # timm takes one for all
    assert load(tmp_path).preprocess.mean == (0.25,) * 3


@pytest.mark.parametrize("name", ["flexivit_small", "vit_base_patch16_gap_224", "vit_base_patch32_siglip_gap_256",
                                  "deit_tiny_distilled_patch16_224", "test_vit"])  # fmt: skip
def test_names_that_say_more_than_their_sizes(name, tmp_path):
    heads = configs.timm({"architecture": name}).given.num_heads
    theirs = timm.create_model(name, depth=1, embed_dim=4 * heads, num_classes=5, **({} if name == "test_vit" else {
        "img_size": 64}))  # fmt: skip
    save_for_hf(randomise(theirs).eval(), tmp_path, safe_serialization=True)
    assert "num_heads" not in json.loads((tmp_path / "config.json").read_text())["model_args"]
    same_answers(theirs, load(tmp_path))


def test_an_older_config_of_timm_without_levels(tmp_path):
    theirs = timm_folder(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    flat = config["pretrained_cfg"] | {"architecture": "vit_tiny_patch16_224", "num_classes": 5}
    (tmp_path / "config.json").write_text(json.dumps(flat | {"input_size": [3, 32, 32]}))
    same_answers(theirs, load(tmp_path))


# -------------------------------------------------------------------------------------------------------- transformers


def hf_folder(folder, kind="ViTForImageClassification", processor=None, **options):
    kind = getattr(transformers, kind)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 40}
    sizes |= {"image_size": 32, "patch_size": 8, "num_labels": 3}
    theirs = randomise(kind(kind.config_class(**(sizes | options)))).eval()
    theirs.save_pretrained(folder)
    name, how = processor or ("ViT", {"size": {"height": 32, "width": 32}})
    kind = getattr(transformers, f"{name}ImageProcessorPil", None) or getattr(transformers, f"{name}ImageProcessor")
    theirs.processor = kind(**how)
    theirs.processor.save_pretrained(folder)
    return theirs


@pytest.fixture(scope="module")
def a_folder(tmp_path_factory):
    """Copies of a folder as either library saves it, which a test may spoil."""
    saved = {"timm": tmp_path_factory.mktemp("timm"), "hf": tmp_path_factory.mktemp("hf")}
    timm_folder(saved["timm"])
    hf_folder(saved["hf"])
    return lambda whose, folder: shutil.copytree(saved[whose], folder, dirs_exist_ok=True)


@pytest.mark.parametrize(
    "options",
    [{}, {"hidden_act": "gelu_new"}, {"hidden_act": "gelu_pytorch_tanh"}, {"layer_norm_eps": 0.01}, {"qkv_bias": False},
     {"num_attention_heads": 2}, {"kind": "ViTMSNForImageClassification"}, {"kind": "IJepaForImageClassification"},
     {"kind": "DeiTForImageClassification"}, {"kind": "DeiTForImageClassificationWithTeacher"}],
    ids=str,
)  # fmt: skip
def test_what_transformers_saves_is_honoured(options, tmp_path):
    theirs = hf_folder(tmp_path, **options)
    found = load(tmp_path)
    assert found.assumed == {}
    same_answers(theirs, found)


PROCESSORS = {
    "as it comes": ("ViT", {"size": {"height": 32, "width": 32}}),
    "a number": ("ViT", {"size": 32}),
    "no rescale": ("ViT", {"size": 32, "do_rescale": False}),
    "another factor": ("ViT", {"size": 32, "rescale_factor": 1 / 128}),
    "no normalise": ("ViT", {"size": 32, "do_normalize": False}),
    "neither": ("ViT", {"size": 32, "do_normalize": False, "do_rescale": False}),
    "nearest": ("ViT", {"size": 32, "resample": 0}),
    "lanczos": ("ViT", {"size": 32, "resample": 1}),
    "bicubic": ("ViT", {"size": 32, "resample": 3}),
    "imagenet": ("ViT", {"size": 32, "image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}),
    "DeiT": ("DeiT", {"size": 40, "crop_size": 32}),
    "CLIP": ("CLIP", {"size": {"shortest_edge": 36}, "crop_size": 32}),
    "DeiT without a crop": ("DeiT", {"size": 32, "do_center_crop": False}),
}


@pytest.mark.parametrize("case", PROCESSORS)
def test_pixels_as_transformers_prepares_them(case, tmp_path):
    theirs = hf_folder(tmp_path, processor=PROCESSORS[case])
    expected = torch.as_tensor(np.array(theirs.processor(PICTURE, return_tensors="np")["pixel_values"])).float()
    got = load(tmp_path).preprocess(PICTURE)
    assert_close(got, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("processor", "words"),
    [
        (("ViT", {"size": 32, "do_resize": False}), ["do_resize"]),
        (("ViT", {"size": 32, "resample": 4}), ["resample=4"]),
        (("ViT", {"size": 64}), ["(64, 64)", "takes (32, 32)"]),
        (("DeiT", {"size": 37, "crop_size": 32}), ["(32, 32)", "(37, 37)"]),
        (("CLIP", {"size": {"shortest_edge": 32}, "crop_size": 40}), ["(40, 40)", "short side of 32"]),
        (("CLIP", {"size": {"shortest_edge": 32}, "do_center_crop": False}), ["cuts no square"]),
        (("ConvNext", {"size": {"shortest_edge": 32}, "crop_pct": 0.9}), ["ConvNext"]),
        (("DPT", {"size": 32, "ensure_multiple_of": 16}), ["ensure_multiple_of"]),
        (("DPT", {"size": 32, "keep_aspect_ratio": True}), ["keep_aspect_ratio"]),
    ],
)
def test_pixels_that_are_refused(processor, words, tmp_path, refuses):
    hf_folder(tmp_path, processor=processor)
    with refuses(ValueError, str(tmp_path), *words):
        vt.load(tmp_path)


@pytest.mark.parametrize(
    ("file", "changes", "words"),
    [
        ("config", {"new_option": 1}, ["its config", "new_option", "take it out"]),
        ("config", {"model_type": "dinov2"}, ["intermediate_size", "take it out"]),
        ("config", {"hidden_act": "relu"}, ["relu"]),
        ("config", {"layer_norm_eps": float("inf")}, ["layer_norm_eps", "inf"]),
        ("config", {"num_hidden_layers": 3}, ["depth=3", "2"]),
        ("config", {"qkv_bias": False}, ["qkv_bias=False"]),
        ("config", {"qkv_bias": "yes"}, ["qkv_bias", "'yes'"]),
        ("config", {"head_dim": 8}, ["head_dim=8"]),
        ("config", {"quantization_config": {"bits": 4}}, ["quantization_config"]),
        ("config", {"auto_map": {"AutoModel": "modelling.Mine"}}, ["auto_map", "code of its own"]),
        ("config", {"use_timm_backbone": True}, ["use_timm_backbone", "a backbone of another library"]),
        ("config", {"num_labels": 7}, ["num_classes=7", "3", "two different models"]),
        ("config", {"pruned_heads": {"0": [1]}}, ["pruned_heads"]),
        ("config", {"architectures": ["ViTBackbone"]}, ["a backbone", "maps"]),
        ("config", {"num_attention_heads": 4.0}, ["num_attention_heads", "whole", "4.0"]),
        ("config", {"id2label": {"1": "a", "2": "b", "3": "c"}}, ["class 3", "3 classes"]),
        ("config", {"id2label": {"a": "b"}}, ["id2label", "'a'"]),
        ("preprocessor_config", {"new_option": 1}, ["preprocessor_config", "new_option"]),
        ("preprocessor_config", {"image_mean": [0.5, float("nan"), 0.5]}, ["image_mean", "nan"]),
        ("preprocessor_config", {"image_mean": 1e308}, ["mean", "1e+308", "to 1e+06"]),
        ("preprocessor_config", {"image_mean": [0.5, 0.5]}, ["image_mean has 2 numbers", "3 channels", "num_channels"]),
        ("preprocessor_config", {"size": {"longest_edge": 32}}, ["longest_edge"]),
        ("preprocessor_config", {"rescale_factor": 0}, ["rescale_factor"]),
        ("preprocessor_config", {"do_pad": True}, ["do_pad"]),
        ("preprocessor_config", {"do_normalize": 1}, ["do_normalize"]),
        ("preprocessor_config", {"do_resize": None}, ["do_resize=null", "version"]),
        *(("preprocessor_config", {key: None}, [key, "None"]) for key in ("size", "resample", "image_mean")),
        ("preprocessor_config", {"do_center_crop": True, "crop_size": None}, ["crop_size", "None"]),
        ("preprocessor_config", {"size": 32, "default_to_square": False}, ["default_to_square"]),
        ("preprocessor_config", {"auto_map": {"A": "b.C"}}, ["auto_map", "code of its own"]),
        ("preprocessor_config", {"do_center_crop": True, "crop_size": 32, "size": 16}, ["(32, 32)", "(16, 16)"]),
    ],
)
def test_keys_and_values_of_transformers_that_are_refused(file, changes, words, tmp_path, refuses, a_folder):
    a_folder("hf", tmp_path)
    with refuses(ValueError, str(tmp_path), *words):
        vt.load(change(tmp_path, f"{file}.json", **changes))


def test_what_is_not_written_has_transformers_default(tmp_path):
    theirs = hf_folder(tmp_path, num_attention_heads=4)
    config = json.loads((tmp_path / "config.json").read_text())
    for key in ("hidden_act", "layer_norm_eps", "qkv_bias", "num_channels"):
        del config[key]
    (tmp_path / "config.json").write_text(json.dumps(config))
    found = load(tmp_path)
    assert found.model.config.norm_eps == theirs.config.layer_norm_eps == 1e-12
    same_answers(theirs, found)


def test_what_is_not_written_has_timm_s_default(tmp_path):
    theirs = timm_folder(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    for key in ("crop_mode", "crop_pct", "interpolation", "mean", "std"):
        del config["pretrained_cfg"][key]
    (tmp_path / "config.json").write_text(json.dumps(config))
    about = timm.models._hub.load_model_config_from_path(tmp_path)[0]
    transform = timm.data.create_transform(**timm.data.resolve_data_config({}, pretrained_cfg=about))
    assert_close(load(tmp_path).preprocess(PICTURE), transform(PICTURE)[None], rtol=0, atol=1e-6)
    same_answers(theirs, load(tmp_path))


@since_5
@pytest.mark.parametrize("kind", hf_configs.MODEL_TYPES)
def test_the_defaults_of_each_model_type_are_transformers(kind):
    theirs = transformers.AutoConfig.for_model(kind)
    usual = hf_configs.BASE | hf_configs.MODEL_TYPES[kind].defaults
    if "mlp_ratio" in usual:
        del usual["intermediate_size"]
    assert {key: getattr(theirs, key, hf_configs.BASE.get(key, usual[key])) for key in usual} == usual


@pytest.mark.parametrize(
    ("file", "changes"),
    [
        ("config", {"id2label": ["a", "b", "c"], "label2id": {"a": "0", "b": "1", "c": "2"}}),
        ("config", {"id2label": {"0": "a", "1": "a", "2": "c"}, "label2id": {"a": 1, "c": 2}}),
        ("config", {"id2label": ["a", "b", "c"], "label2id": {"LABEL_0": 0, "LABEL_1": 1}}),
        ("config", {"id2label": None, "pruned_heads": {}, "auto_map": None, "num_labels": 3, "dtype": "bfloat16"}),
        ("preprocessor_config", {"do_center_crop": None, "crop_size": None, "default_to_square": True}),
        ("preprocessor_config", {"do_center_crop": True, "crop_size": {"height": 32, "width": 32}, "device": None}),
    ],
)
def test_keys_that_change_nothing(file, changes, tmp_path):
    theirs = hf_folder(tmp_path)
    before = load(tmp_path).preprocess
    found = load(change(tmp_path, f"{file}.json", **changes))
    assert dataclasses.replace(found.preprocess, crop=before.crop) == before
    same_answers(theirs, found)


def test_without_a_preprocessor_the_pixels_are_assumed(tmp_path):
    hf_folder(tmp_path)
    (tmp_path / "preprocessor_config.json").unlink()
    with pytest.warns(UserWarning, match=r"preprocess=") as said:
        found = vt.load(tmp_path)
    assert len(said) == 1
    assert set(found.assumed) == {"preprocess"}
    assert load(tmp_path, preprocess=found.preprocess).assumed == {}


def test_an_older_processor_of_clip_resizes_the_short_side(tmp_path):
    theirs = hf_folder(tmp_path, processor=("CLIP", {"size": {"shortest_edge": 32}, "crop_size": 32}))
    change(tmp_path, "preprocessor_config.json", size=32, crop_size=32)  # as OpenAI's own files have it
    expected = torch.as_tensor(np.array(theirs.processor(PICTURE, return_tensors="np")["pixel_values"])).float()
    assert_close(load(tmp_path).preprocess(PICTURE), expected, rtol=1e-5, atol=1e-5)


def test_class_names_by_number(tmp_path):
    hf_folder(tmp_path)
    change(tmp_path, id2label={"2": "two", "0": "zero"})
    with pytest.warns(UserWarning, match="names of classes, there are only 2 for 3 outputs"):
        assert vt.load(tmp_path).classes == ("zero", "class 1", "two")


@pytest.mark.parametrize(
    ("file", "changes", "words"),
    [
        ("config", {"problem_type": "multi_label_classification"}, "its own sigmoid"),
        ("config", {"problem_type": "regression"}, "no logits of a softmax"),
        ("preprocessor_config", {"image_processor_type": "ViTImageProcessorFast"}, "fast processor"),
    ],
)
def test_what_is_read_and_has_another_meaning_is_said(file, changes, words, tmp_path):
    theirs = hf_folder(tmp_path)
    change(tmp_path, f"{file}.json", **changes)
    with pytest.warns(UserWarning, match=words):
        same_answers(theirs, vt.load(tmp_path))


def test_one_output_is_no_class(tmp_path):
    hf_folder(tmp_path, num_labels=1)
    with pytest.warns(UserWarning, match="a softmax over one is always 1"):
        assert vt.load(tmp_path).model.config.num_classes == 1


@pytest.mark.filterwarnings("ignore:.*its answers are")
def test_percentages_are_sigmoids_of_several_labels_and_none_of_numbers(tmp_path):
    PICTURE.save(tmp_path / "a.png")
    theirs = hf_folder(tmp_path / "several", problem_type="multi_label_classification")
    vt.save(vt.load(tmp_path / "several"), tmp_path / "again")  # it stays known
    with torch.inference_mode():
        wanted = theirs(**theirs.processor(PICTURE, return_tensors="pt")).logits.sigmoid()[0].sort(descending=True)[0]
    for folder in ("several", "again"):
        command.main([str(tmp_path / "a.png"), "--weights", str(tmp_path / folder), "--out", str(tmp_path / "a.csv")])
        rows = (tmp_path / "a.csv").read_text().splitlines()[1:]
        assert_close(torch.tensor([float(row.split(",")[2]) for row in rows]), wanted, rtol=0, atol=1e-4)
    for options in ({"num_labels": 1}, {"problem_type": "regression"}):
        hf_folder(tmp_path / "numbers", **options)
        with pytest.raises(SystemExit, match="can't name classes: its answers are"):
            command.main([str(tmp_path / "a.png"), "--weights", str(tmp_path / "numbers")])
    assert "answers" not in vt.load(tmp_path / "several", num_classes=2).assumed  # another head
    config = json.loads((tmp_path / "again/config.json").read_text("utf-8"))
    (tmp_path / "again/config.json").write_text(json.dumps(config | {"answers": ["sigmoid"]}), "utf-8")
    with pytest.raises(ValueError, match=r"answers must be text that says what they are, got \['sigmoid'\]"):
        vt.load(tmp_path / "again")


def test_a_processor_that_timm_does_not_read_is_said(tmp_path):
    timm_folder(tmp_path)
    (tmp_path / "preprocessor_config.json").write_text('{"image_mean": [0.1, 0.1, 0.1]}')
    with pytest.warns(UserWarning, match="not read: preprocessor_config.json"):
        assert vt.load(tmp_path).preprocess.mean != (0.1,) * 3


def test_timm_s_wrapper_in_transformers(tmp_path):
    options = {"embed_dim": 24, "depth": 2, "img_size": 32, "num_heads": 3}
    about = timm.models.get_pretrained_cfg("vit_tiny_patch16_224").to_dict() | {"input_size": (3, 32, 32)}
    config = transformers.TimmWrapperConfig(
        architecture="vit_tiny_patch16_224", num_labels=5, model_args=options, pretrained_cfg=about
    )
    config.id2label = dict(enumerate("abcde"))
    theirs = randomise(transformers.TimmWrapperForImageClassification(config)).eval()
    theirs.save_pretrained(tmp_path)
    found = load(tmp_path)
    assert found.classes == tuple("abcde")
    same_answers(theirs, found)
    change(tmp_path, label_offset=1)
    with pytest.raises(ValueError, match="label_offset=1"):
        load(tmp_path)


# --------------------------------------------------------------------------------------------- beside a file, in shards


def test_a_config_beside_a_file_is_read(tmp_path):
    theirs = hf_folder(tmp_path, hidden_act="gelu_new", num_attention_heads=2)
    same_answers(theirs, load(tmp_path / "model.safetensors"))
    timm_folder(tmp_path / "timm", act_layer="gelu_tanh")
    assert load(tmp_path / "timm" / "model.safetensors").model.config.gelu == "tanh"
    (tmp_path / "config.json").write_text(json.dumps({"lr": 0.1}))  # somebody's options of training
    with pytest.warns(UserWarning, match="tell all"):
        vt.load(tmp_path / "model.safetensors", num_heads=2)


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("model.fp16.safetensors", "of these files of weights, name one: model.fp16.safetensors"),
        ("checkpoint-9/config.json", "of these folders, name one: checkpoint-9"),
        ("model.onnx", "it holds config.json, model.onnx, preprocessor_config.json"),
    ],
)
def test_a_folder_without_weights_says_what_it_holds(file, words, tmp_path, refuses, a_folder):
    a_folder("hf", tmp_path)
    (tmp_path / "model.safetensors").unlink()
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_bytes(b"")
    with refuses(FileNotFoundError, "has no model.safetensors", words):
        vt.load(tmp_path)


@since_5
def test_a_block_that_stands_twice_in_a_model_is_read_twice(tmp_path):
    theirs = hf_folder(tmp_path, num_hidden_layers=4)
    theirs.vit.layers[2], theirs.vit.layers[3] = theirs.vit.layers[0], theirs.vit.layers[1]
    save_model(theirs, str(tmp_path / "model.safetensors"), metadata={"format": "pt"})
    same_answers(theirs, load(tmp_path))


def test_channels_last_are_named(tmp_path, refuses):
    hf_folder(tmp_path)
    state = load_file(tmp_path / "model.safetensors")
    name = "vit.embeddings.patch_embeddings.projection.weight"
    save_file(state | {name: state[name].permute(0, 2, 3, 1).contiguous()}, tmp_path / "model.safetensors")
    with refuses(ValueError, "(16, 8, 8, 3)", "channels last", "permute(0, 3, 1, 2)"):
        vt.load(tmp_path)


def test_what_the_caller_says_wins_over_the_config(tmp_path):
    hf_folder(tmp_path)
    found = load(tmp_path, num_heads=2, gelu="tanh", norm_eps=0.1)
    assert (found.model.config.num_heads, found.model.config.gelu, found.model.config.norm_eps) == (2, "tanh", 0.1)
    assert load(tmp_path, image_size=64).preprocess.image_size == (64, 64)


@pytest.mark.parametrize("suffix", ["safetensors", "bin"])
def test_shards(suffix, tmp_path):
    theirs = hf_folder(tmp_path)
    state = vt.weights.read(tmp_path / "model.safetensors")
    (tmp_path / "model.safetensors").unlink()
    names, stem = sorted(state), "model" if suffix == "safetensors" else "pytorch_model"
    index = {}
    for i, part in enumerate((names[::2], names[1::2])):
        file = f"{stem}-0000{i}-of-00002.{suffix}"
        tensors = {name: state[name].clone() for name in part}
        save_file(tensors, tmp_path / file) if suffix == "safetensors" else torch.save(tensors, tmp_path / file)
        index |= dict.fromkeys(part, file)
    path = tmp_path / f"{stem}.{suffix}.index.json"
    path.write_text(json.dumps({"metadata": {}, "weight_map": index}))
    same_answers(theirs, load(tmp_path))
    assert vt.weights.read(path).keys() == state.keys()


@pytest.mark.parametrize(
    ("index", "error", "words"),
    [
        ({"a": "../x.safetensors"}, ValueError, ["../x.safetensors", "beside"]),
        ({"a": "..\\x.safetensors"}, ValueError, ["no file of weights beside it"]),
        ({"a": "/etc/passwd"}, ValueError, ["/etc/passwd"]),
        ({"a": "x.json"}, ValueError, ["x.json", "no file of weights beside it"]),
        ({"a": "model.safetensors.index.json"}, ValueError, ["index.json'", "no file of weights beside it"]),
        ({"a": 5}, ValueError, ["weight_map"]),
        ({}, ValueError, ["weight_map"]),
        ([1], ValueError, ["weight_map"]),
        ({"a": "absent.safetensors"}, OSError, ["absent.safetensors"]),
        ({"a": "x.safetensors", "b": "x.safetensors"}, ValueError, ["lists 1", "b"]),
        ({"a": "x.safetensors", "c": "y.safetensors"}, ValueError, ["a", "second time"]),
    ],
)
def test_an_index_that_is_wrong(index, error, words, tmp_path, refuses):
    save_file({"a": torch.ones(1)}, tmp_path / "x.safetensors")
    save_file({"a": torch.ones(1), "c": torch.ones(1)}, tmp_path / "y.safetensors")
    path = tmp_path / "model.safetensors.index.json"
    path.write_text(json.dumps({"weight_map": index}))
    with refuses(error, *words):
        vt.weights.read(path)


def test_a_damaged_shard_is_named_once(tmp_path, refuses):
    save_file({"a": torch.ones(9)}, tmp_path / "x.safetensors")
    path = tmp_path / "model.safetensors.index.json"
    path.write_text(json.dumps({"weight_map": {"a": "x.safetensors"}}))
    content = (tmp_path / "x.safetensors").read_bytes()
    (tmp_path / "x.safetensors").write_bytes(content[:-4])
    with refuses(ValueError, "x.safetensors is damaged") as caught:
        vt.weights.read(path)
    assert "index.json" not in str(caught.value)


def test_a_json_file_of_a_gigabyte_isn_t_read(tmp_path, refuses):
    hf_folder(tmp_path)
    with (tmp_path / "config.json").open("wb") as file:
        file.write(b'{"model_type": "vit"')
        file.truncate(10**9)  # a hole, which takes no disk
    with refuses(ValueError, "config.json is damaged"):
        vt.load(tmp_path)
    with refuses(ValueError, "config.json is damaged"):
        vt.load(tmp_path / "model.safetensors")


@pytest.mark.parametrize("text", ["[" * 100_000, "[]", '{"model_type": "vit"', "9" * 9000])
@pytest.mark.parametrize("file", ["config.json", "preprocessor_config.json"])
def test_a_json_file_that_is_damaged(text, file, tmp_path, a_folder):
    a_folder("hf", tmp_path)
    (tmp_path / file).write_text(text)
    with pytest.raises(ValueError, match="damaged") as caught:
        vt.load(tmp_path)
    assert len(str(caught.value)) < 2000


# -------------------------------------------------------------------------------------- the most popular, and its kinds

TOWER = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 40}
TEXT = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8, "vocab_size": 9}
OPENAI_PROCESSOR = {  # as openai/clip-vit-base-patch32 has it: a number is the short side
    "crop_size": 32, "do_center_crop": True, "do_normalize": True, "do_resize": True, "resample": 3, "size": 36,
    "feature_extractor_type": "CLIPFeatureExtractor", "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
}  # fmt: skip


def clip_folder(folder, **options):
    vision = TOWER | {"image_size": 32, "patch_size": 8}
    config = transformers.CLIPConfig(vision_config=vision, text_config=TEXT, projection_dim=12)
    theirs = randomise(transformers.CLIPModel(config)).eval()
    theirs.save_pretrained(folder)
    content = json.loads((folder / "config.json").read_text())
    older = {f"{key}_dict": content[key] for key in ("vision_config", "text_config")}
    change(folder, **older, **options)  # LAION's files have both twice
    (folder / "preprocessor_config.json").write_text(json.dumps(OPENAI_PROCESSOR))
    return theirs


def test_openai_s_clip_to_the_pixel(tmp_path):
    theirs = clip_folder(tmp_path)
    processor = getattr(transformers, "CLIPImageProcessorPil", transformers.CLIPImageProcessor)
    expected = torch.as_tensor(processor.from_pretrained(tmp_path)(PICTURE, return_tensors="np")["pixel_values"])
    with pytest.warns(UserWarning, match="the text tower"):
        found = vt.load(tmp_path)
    assert_close(found.preprocess(PICTURE), expected, rtol=1e-5, atol=1e-5)
    with torch.inference_mode():
        wanted = theirs.visual_projection(theirs.vision_model(expected).pooler_output)
        assert_close(found.model(expected), wanted, rtol=1e-4, atol=1e-4)
    assert found.classes == ()  # its projection leads into the space of images and text


def test_a_config_that_promises_a_classifier_which_no_tensor_is(tmp_path, refuses):
    hf_folder(tmp_path, "ViTModel")
    change(tmp_path, architectures=["ViTForImageClassification"])
    with refuses(ValueError, "architectures name a classifier"):
        vt.load(tmp_path)


def test_dinov3_s_processor_keeps_fractions_of_a_level(tmp_path, refuses):
    hf_folder(tmp_path, "DINOv3ViTModel")
    how = {"size": {"height": 32, "width": 32}, "image_processor_type": "DINOv3ViTImageProcessorFast"}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(how | {"resample": 2}))
    with pytest.warns(UserWarning, match="rounded to 256 levels"):
        assert vt.load(tmp_path).preprocess.interpolation == "bilinear"
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(how | {"resample": 3}))
    with refuses(ValueError, "bicubic before it rounds or clips", "preprocess="):
        vt.load(tmp_path)
    told = Preprocessing((32, 32), (0.5,) * 3, (0.5,) * 3)
    assert load(tmp_path, preprocess=told).preprocess == told


def test_patches_that_leave_some_pixels_over(tmp_path):
    """SigLIP so400m takes 384 pixels in patches of 14: the convolution drops six at the right and below."""
    config = transformers.SiglipVisionConfig(**TOWER | {"image_size": 30, "patch_size": 7})
    theirs = randomise(transformers.SiglipVisionModel(config)).eval()
    theirs.save_pretrained(tmp_path)
    kind = getattr(transformers, "SiglipImageProcessorPil", transformers.SiglipImageProcessor)
    processor = kind(size={"height": 30, "width": 30})
    processor.save_pretrained(tmp_path)
    found = load(tmp_path)
    with torch.inference_mode():
        wanted = theirs(torch.as_tensor(np.array(processor(PICTURE, return_tensors="np")["pixel_values"])).float())
        assert_close(found.model(found.preprocess(PICTURE)), wanted.pooler_output, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("crop", [{"crop_pct": 0.9, "crop_mode": "center"}, {"crop_pct": 1.0, "crop_mode": "squash"}])
def test_patches_that_leave_pixels_over_in_timm(crop, tmp_path):
    """So400m of timm at 384 cuts the middle out first, and then drops six rows and columns of it."""
    theirs = randomise(
        timm.create_model("vit_so400m_patch14_siglip_384", img_size=62, depth=1, embed_dim=32, num_heads=2)
    )
    theirs.pretrained_cfg |= crop | {"input_size": (3, 62, 62)}
    save_for_hf(theirs.eval(), tmp_path, model_args={"img_size": 62, "depth": 1, "embed_dim": 32, "num_heads": 2})
    found = load(tmp_path)
    transform = timm.data.create_transform(**timm.data.resolve_model_data_config(theirs))
    with torch.inference_mode():
        wanted = theirs(transform(PICTURE)[None])
        assert_close(found.model(found.preprocess(PICTURE)), wanted, rtol=1e-4, atol=1e-4)


HUGE = [
    ("preprocessor_config", {"size": 200_000}, ["at most 8,192", "200000"]),
    ("preprocessor_config", {"size": {"height": 10**12, "width": 32}}, ["at most 8,192"]),
    ("preprocessor_config", {"do_center_crop": True, "crop_size": 280_000}, ["crop_size", "at most 8,192"]),
    ("config", {"image_size": 10**6}, ["image_size", "at most 8,192"]),
    ("config", {"patch_size": 1e308}, ["patch_size"]),
    ("config", {"num_hidden_layers": 1e308}, ["num_hidden_layers", "at most 1,000,000"]),
]


@pytest.mark.parametrize(("file", "changes", "words"), HUGE, ids=str)
def test_sizes_that_no_model_has_are_refused_before_anything_is_made(file, changes, words, tmp_path, refuses, a_folder):
    a_folder("hf", tmp_path)
    change(tmp_path, f"{file}.json", **changes)
    with refuses(ValueError, *words):
        vt.load(tmp_path)


def test_positions_aren_t_stretched_beyond_any_memory(tmp_path, refuses):
    timm_folder(tmp_path)
    with refuses(ValueError, "patches of", "at most 65,536"):
        vt.load(tmp_path, image_size=10**6)
    change(tmp_path, pretrained_cfg__crop_pct=1e-7)
    with refuses(ValueError, "before it cuts", "at most 16,384"):
        vt.load(tmp_path)
    change(tmp_path, pretrained_cfg__crop_pct=0.9, pretrained_cfg__input_size=[3, 10**6, 10**6])
    with refuses(ValueError, "input_size", "at most 8,192"):
        vt.load(tmp_path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has no such files")
@pytest.mark.parametrize("kind", ["pipe", "device"])
@pytest.mark.parametrize("file", ["config.json", "preprocessor_config.json", "model.safetensors"])
def test_a_pipe_or_a_device_isn_t_waited_for(kind, file, tmp_path, refuses, a_folder):
    a_folder("hf", tmp_path)
    (tmp_path / file).unlink()
    if kind == "pipe":
        os.mkfifo(tmp_path / file)
    else:
        (tmp_path / file).symlink_to("/dev/zero")
    with refuses(ValueError, file, "a pipe or a device"):
        vt.load(tmp_path)


# ------------------------------------------------------------------------------- open_clip's repositories, and adapters


def openai_state(D=64, E=6, P=8, depth=2, N=16):
    """A CLIP of OpenAI's names, both towers, every tensor random."""
    generator = torch.Generator().manual_seed(0)
    shapes = {"visual.class_embedding": (D,), "visual.positional_embedding": (N + 1, D), "visual.proj": (D, E)}
    shapes |= {"visual.conv1.weight": (D, 3, P, P), "token_embedding.weight": (9, D), "logit_scale": (1,)}
    shapes |= {"positional_embedding": (7, D), "text_projection": (D, E)}
    shapes |= {f"{norm}.{leaf}": (D,) for norm in ("visual.ln_pre", "visual.ln_post", "ln_final")
               for leaf in ("weight", "bias")}  # fmt: skip
    for tower in ("visual.transformer", "transformer"):
        for i in range(depth):
            start = f"{tower}.resblocks.{i}"
            layers = {"attn.out_proj": (D, D), "mlp.c_fc": (4 * D, D), "mlp.c_proj": (D, 4 * D)}
            shapes |= {f"{start}.{layer}.weight": shape for layer, shape in layers.items()}
            shapes |= {f"{start}.{layer}.bias": shape[:1] for layer, shape in layers.items()}
            shapes |= {f"{start}.attn.in_proj_weight": (3 * D, D), f"{start}.attn.in_proj_bias": (3 * D,)}
            shapes |= {f"{start}.{norm}.{leaf}": (D,) for norm in ("ln_1", "ln_2") for leaf in ("weight", "bias")}
    return {name: torch.randn(shape, generator=generator) * 0.2 for name, shape in shapes.items()}


CLIP_TOWER = {"image_size": 32, "layers": 2, "width": 64, "patch_size": 8, "head_width": 16}
PIXELS = {"mean": [0.48, 0.46, 0.41], "std": [0.27, 0.26, 0.28], "interpolation": "bicubic", "resize_mode": "shortest"}


def open_clip_folder(folder, state=None, **changes):
    config = {
        "model_cfg": {"embed_dim": 6, "vision_cfg": dict(CLIP_TOWER), "text_cfg": {"width": 64}, "quick_gelu": True}
    }
    (folder / "open_clip_config.json").write_text(json.dumps(config | {"preprocess_cfg": PIXELS}))
    for key, value in changes.items():
        change(folder, "open_clip_config.json", **{f"model_cfg__{key}": value})
    save_file(state or openai_state(), folder / "open_clip_model.safetensors")
    return folder


@pytest.mark.filterwarnings("ignore:.*left out, a ViT having none. the text tower")
def test_a_repository_of_open_clip(tmp_path, refuses):
    state = openai_state()
    found = vt.load(open_clip_folder(tmp_path, state))
    theirs = timm.models.VisionTransformer(
        img_size=32, patch_size=8, num_classes=6, embed_dim=64, depth=2, num_heads=4, pre_norm=True,
        norm_layer=partial(torch.nn.LayerNorm, eps=1e-5), act_layer="quick_gelu",
    )  # fmt: skip
    theirs.load_state_dict(timm.models.vision_transformer.checkpoint_filter_fn(state, theirs))  # timm's own reading
    images = found.preprocess(PICTURE)
    with torch.inference_mode():
        assert_close(found.model(images), theirs.eval()(images), rtol=0, atol=1e-5)
    assert (found.preprocess.mean, found.preprocess.crop) == ((0.48, 0.46, 0.41), 1.0)
    assert found.classes == ()
    with pytest.warns(UserWarning, match="the quick GELU"):
        bare = vt.weights.convert(state, num_heads=4)
    assert (bare.config, bare.state_dict.keys()) == (found.model.config, found.model.state_dict().keys())
    with refuses(ValueError, "no ln_post", "Perception Encoder", "vit_pe_spatial"):
        vt.weights.convert({name: tensor for name, tensor in state.items() if "ln_post" not in name}, num_heads=4)


@pytest.mark.filterwarnings("ignore:.*left out, a ViT having none. the text tower")
def test_a_tower_without_a_norm_before_its_blocks(tmp_path):
    state = openai_state()
    for leaf in ("weight", "bias"):
        del state[f"visual.ln_pre.{leaf}"]
    found = vt.load(open_clip_folder(tmp_path, state, vision_cfg=CLIP_TOWER | {"no_ln_pre": True}))
    assert not found.model.config.pre_norm
    assert not found.model.embed.patches.proj.bias.any()  # it has none there


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"vision_cfg": CLIP_TOWER | {"pool_type": "avg"}}, ["pool_type='avg'"]),
        ({"vision_cfg": CLIP_TOWER | {"layers": [3, 4, 6, 3]}}, ["a ResNet"]),
        ({"vision_cfg": CLIP_TOWER | {"new_option": 1}}, ["vision_cfg", "new_option"]),
        ({"vision_cfg": CLIP_TOWER | {"width": 128}}, ["dim=128", "64"]),
        ({"vision_cfg": {"timm_model_name": "vit_tiny_patch16_224", "timm_proj": "mlp"}}, ["timm_proj='mlp'"]),
        ({"new_option": 1}, ["model_cfg", "new_option"]),
        ({"quick_gelu": "yes"}, ["quick_gelu"]),
    ],
)
def test_what_open_clip_s_config_says_and_we_cannot_express_is_refused(changes, words, tmp_path, refuses):
    with refuses(ValueError, str(tmp_path), *words):
        vt.load(open_clip_folder(tmp_path, **changes))


@pytest.mark.filterwarnings("ignore:.*left out, a ViT having none. the text tower")
def test_timm_s_trunk_in_open_clip(tmp_path):
    theirs = randomise(timm.create_model("vit_tiny_patch16_224", img_size=32, num_classes=0)).eval()
    projection = torch.randn(6, 192)
    state = {f"visual.trunk.{name}": tensor for name, tensor in theirs.state_dict().items()}
    state |= {"visual.head.proj.weight": projection, "text.transformer.x.weight": torch.ones(3)}
    tower = {"image_size": 32, "timm_model_name": "vit_tiny_patch16_224", "timm_pool": "", "timm_proj": "linear"}
    found = vt.load(open_clip_folder(tmp_path, state, vision_cfg=tower, quick_gelu=False))
    images = found.preprocess(PICTURE)
    with torch.inference_mode():
        assert_close(found.model(images), theirs(images) @ projection.T, rtol=0, atol=1e-4)


@pytest.mark.parametrize("file", ["adapter_config.json", "adapter_model.safetensors"])
def test_an_adapter_beside_the_weights_stops_the_reading(file, tmp_path, refuses, a_folder):
    a_folder("hf", tmp_path)
    (tmp_path / file).write_text("{}")
    for path in (tmp_path, tmp_path / "model.safetensors"):
        with refuses(ValueError, str(path), file, "merge_and_unload()"):
            vt.load(path)
    for weights in ("model.safetensors", "config.json"):
        (tmp_path / weights).unlink()
    with refuses(OSError, "an adapter", "without its base", "merge_and_unload()"):
        vt.load(tmp_path)


def test_altclip_by_the_names_of_version_5(tmp_path):
    tower = TOWER | {"image_size": 32, "patch_size": 8}
    text = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 11, "project_dim": 7}
    config = transformers.AltCLIPConfig(vision_config=tower, text_config=text, projection_dim=7)
    theirs = randomise(transformers.AltCLIPModel(config)).eval()
    theirs.save_pretrained(tmp_path)
    with pytest.warns(UserWarning, match="the text tower"):
        found = vt.load(tmp_path)
    x = torch.rand(2, 3, 32, 32)
    with torch.inference_mode():
        wanted = theirs.get_image_features(pixel_values=x)
        assert_close(found.model(x), getattr(wanted, "pooler_output", wanted), rtol=1e-4, atol=1e-4)


@pytest.mark.filterwarnings("ignore:.*left out", "ignore:.*preprocess=")
@pytest.mark.parametrize(
    "kind", ["MetaClip2Model", "BlipModel", "Blip2Model", "CLIPSegModel", "OwlViTModel", "ChineseCLIPModel"]
)
def test_image_towers_of_models_of_images_and_text(kind, tmp_path):
    kind = getattr(transformers, kind)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 40}
    text = sizes | {"vocab_size": 50, "num_hidden_layers": 1}
    tower, more = sizes | {"image_size": 32, "patch_size": 8}, {}
    if kind is transformers.Blip2Model:  # a language model, and a Q-Former between them
        more["qformer_config"] = text | {"encoder_hidden_size": 16}
        text |= {"model_type": "opt", "ffn_dim": 40, "word_embed_proj_dim": 16, "max_position_embeddings": 9}
    config = kind.config_class(vision_config=tower, text_config=text, projection_dim=6, **more)
    theirs = randomise(kind(config)).eval()
    theirs.save_pretrained(tmp_path)
    found, images = vt.load(tmp_path), torch.randn(2, 3, 32, 32)
    with torch.inference_mode():
        if "Blip" in kind.__name__:
            expected = theirs.vision_model(images).last_hidden_state[:, 0]
        else:
            expected = theirs.get_image_features(images)
            expected = getattr(expected, "pooler_output", expected)
        assert_close(found.model(images), expected, rtol=0, atol=1e-5)


def test_the_encoder_of_dpt_without_its_neck(tmp_path):
    sizes = {"hidden_size": 16, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 40}
    neck = {"backbone_out_indices": [0, 1, 2, 3], "neck_hidden_sizes": [8] * 4, "fusion_hidden_size": 8}
    config = transformers.DPTConfig(**sizes, **neck, image_size=32, patch_size=8)
    theirs = randomise(transformers.DPTForDepthEstimation(config)).eval()
    theirs.save_pretrained(tmp_path)
    with pytest.warns(UserWarning, match="left out, a ViT having none: the neck and the head of DPT"):
        found = vt.load(tmp_path)
    images = torch.randn(2, 3, 32, 32)
    with torch.inference_mode():
        assert_close(found.model.features(images), theirs.dpt(images).last_hidden_state, rtol=0, atol=1e-5)


def test_a_config_without_pooling_is_read_by_its_class_token_aloud(tmp_path):
    theirs = timm_folder(tmp_path, global_pool="", num_classes=0)  # Virchow's
    with pytest.warns(UserWarning, match="pooling by cls"):
        found = vt.load(tmp_path)
    images = found.preprocess(PICTURE)
    with torch.inference_mode():
        assert_close(found.model.features(images), theirs(images), rtol=0, atol=1e-5)


def test_the_processor_of_version_5(tmp_path):
    theirs = hf_folder(tmp_path, processor=("ViT", {"size": 32, "resample": 3, "image_mean": [0.1, 0.2, 0.3]}))
    path = tmp_path / "preprocessor_config.json"
    (tmp_path / "processor_config.json").write_text(json.dumps({"image_processor": json.loads(path.read_text())}))
    path.unlink()
    expected = torch.as_tensor(np.array(theirs.processor(PICTURE, return_tensors="np")["pixel_values"])).float()
    assert_close(load(tmp_path).preprocess(PICTURE), expected, rtol=1e-5, atol=1e-5)


# ------------------------------------------------------------------------------------------------------- written again


def test_what_save_writes_is_loaded_again(tmp_path, refuses):
    hf_folder(tmp_path / "theirs")
    before = load(tmp_path / "theirs")
    vt.save(before, tmp_path / "ours", about="Made by a test.")
    after = load(tmp_path / "ours")
    assert (after.classes, after.preprocess, after.model.config) == (before[1], before[2], before.model.config)
    images = before.preprocess(PICTURE)
    with torch.inference_mode():
        assert_close(after.model(images), before.model(images), rtol=0, atol=0)
    card = (tmp_path / "ours" / "README.md").read_text()
    assert all(
        word in card for word in ("Made by a test.", "library_name: vit_tutorial", "16 numbers a token", "LABEL_0")
    )
    vt.save(before.model, tmp_path / "again")  # the pixels go with the model
    assert load(tmp_path / "again").preprocess == before.preprocess
    with refuses(ValueError, "2 names", "3 rows"):
        vt.save(before, tmp_path / "wrong", classes=["a", "b"])
    with refuses(ValueError, "preprocess"):
        vt.save(vt.ViT(before.model.config), tmp_path / "wrong")
    with refuses(TypeError, "dict"):
        vt.save({}, tmp_path / "wrong")


def test_a_projection_is_saved_without_names(tmp_path):
    state = openai_state()
    with pytest.warns(UserWarning, match="text tower"):
        before = vt.load(open_clip_folder(tmp_path, state))
    vt.save(before, tmp_path / "ours")
    assert load(tmp_path / "ours").classes == ()


def test_push_to_hub_uploads_what_save_writes(tmp_path, monkeypatch):
    import huggingface_hub

    hf_folder(tmp_path)
    calls = []

    class Api:
        def __init__(self, token):
            calls.append(token)

        def create_repo(self, repository, **options):
            calls.append((repository, options))

        def upload_folder(self, repo_id, folder_path, commit_message):
            calls.append(
                (repo_id, sorted(path.name for path in Path(folder_path).iterdir()), load(folder_path).classes)
            )

    monkeypatch.setattr(huggingface_hub, "HfApi", Api)
    address = vt.push_to_hub(load(tmp_path, preprocess=None), "me/mine", private=True, token="hf_x")
    assert address == "https://huggingface.co/me/mine"
    labels = ("LABEL_0", "LABEL_1", "LABEL_2")
    files = ["README.md", "config.json", "model.safetensors"]
    assert calls == ["hf_x", ("me/mine", {"private": True, "exist_ok": True}), ("me/mine", files, labels)]
