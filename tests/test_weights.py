"""Lesson 09: every library's own model and ours give the same logits; no damaged or hostile file gets through."""

import argparse
import dataclasses
import gzip
import hashlib
import importlib.util
import json
import os
import pickle
import re
import shutil
import socket
import sys
import threading
import urllib.error
import warnings
import zipfile
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import huggingface_hub.constants
import huggingface_hub.file_download
import numpy as np
import pytest
import timm
import torch
import torchvision.models
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from peers import logits, randomise, timm_vit, torchvision_vit, transformers_vit, under
from PIL import Image
from safetensors.torch import load_file, save_file
from torch.testing import assert_close

import vit_tutorial as vt
from vit_tutorial import ViT, ViTConfig, weights
from vit_tutorial.data import Preprocessing, photograph
from vit_tutorial.patches import as_pair
from vit_tutorial.variants.modern import ModernConfig, build
from vit_tutorial.weights import convert, hub, model, to_huggingface, to_timm, to_torchvision

TINY = ViTConfig(image_size=16, patch_size=8, num_classes=5, dim=16, depth=3, num_heads=4, mlp_dim=40)
tiny = partial(dataclasses.replace, TINY)


def sized(config: ViTConfig, **changes):
    """The config with changes; one of two class tokens is a ModernConfig."""
    changed = vars(config) | changes
    return ModernConfig(**changed) if changed["pool"] == "distilled" else ViTConfig(**changed)


HF = tiny(norm_eps=1e-12)
pytestmark = pytest.mark.filterwarnings("ignore:.*doesn't tell all:UserWarning", "ignore:.*the average:UserWarning")
WIDE = tiny(image_size=(16, 40), patch_size=(8, 10), in_channels=2)


def images_for(config, batch=2):
    (rows, columns), patch = config.grid, config.patch_size
    P, Q = (patch, patch) if isinstance(patch, int) else patch
    return torch.randn(batch, config.in_channels, rows * P, columns * Q, dtype=torch.float64)


def ours(converted, dtype=torch.float64):
    model = ViT(converted.config).to(dtype).eval()
    model.load_state_dict({name: tensor.to(dtype) for name, tensor in converted.state_dict.items()})
    return model


# ----------------------------------------------------------------------------------- their own models, and their names


def older(state):
    return {n.replace("mlp.0.", "mlp.linear_1.").replace("mlp.3.", "mlp.linear_2."): t for n, t in state.items()}


def hub_names(model, folder):
    model.save_pretrained(folder)  # version 5 writes version 4's names
    return load_file(folder / "model.safetensors")


def plain(model):
    return model.state_dict()


def timm_with(**options):
    return timm.models.VisionTransformer(
        img_size=16, patch_size=8, num_classes=5, embed_dim=16, depth=3, num_heads=4, mlp_ratio=2.5, **options
    )


# name: how their model is built, from what, which of its names are converted, options
SOURCES = {
    "torchvision": (torchvision_vit, TINY, plain, {}),
    "torchvision 0.12": (torchvision_vit, TINY, lambda m: older(m.state_dict()), {}),
    "timm": (timm_vit, TINY, plain, {}),
    "timm wide": (timm_vit, WIDE, plain, {"image_size": (16, 40)}),
    "timm tall": (timm_vit, tiny(image_size=(32, 8)), plain, {"image_size": (32, 8)}),
    "timm mean": (timm_vit, tiny(pool="mean"), plain, {}),
    "timm no bias": (timm_vit, tiny(qkv_bias=False), plain, {}),
    "timm no positions": (timm_vit, tiny(position="none"), plain, {"image_size": 16}),
    "timm no class position": (lambda c: timm_with(no_embed_class=True), TINY, plain, {}),
    "timm with a mask token": (timm_vit, TINY, lambda m: m.state_dict() | {"mask_token": torch.ones(1, 1, 16)}, {}),
    "deit": (timm_vit, TINY, lambda m: {"model": m.state_dict()}, {}),
    "deit distilled": (timm_vit, sized(TINY, pool="distilled"), plain, {}),
    "deit distilled wide": (timm_vit, sized(WIDE, pool="distilled"), plain, {"image_size": (16, 40)}),
    "hf 4": (transformers_vit, HF, "hub", {}),
    "hf 5": (transformers_vit, HF, plain, {}),
    "hf no bias": (transformers_vit, dataclasses.replace(HF, qkv_bias=False), plain, {}),
    "hf wide": (transformers_vit, dataclasses.replace(WIDE, norm_eps=1e-12), plain, {"image_size": (16, 40)}),
}


SINGLE = ("torchvision", "timm", "deit distilled", "hf 5")  # of each library one in single precision, too


@pytest.mark.parametrize(
    ("case", "dtype", "atol"),
    [(case, torch.float64, 1e-10) for case in SOURCES] + [(case, torch.float32, 1e-5) for case in SINGLE],
)
def test_their_logits(case, dtype, atol, tmp_path):
    build, config, names, options = SOURCES[case]
    theirs = randomise(build(config)).to(dtype).eval()
    state = hub_names(theirs, tmp_path) if names == "hub" else names(theirs)
    converted = convert(state, num_heads=4, **options)
    assert converted.config == config  # eps, GELU, pooling and every size
    images = images_for(config).to(dtype)
    with torch.inference_mode():
        expected = logits(theirs, images)
        assert expected.std() > 0.1
        assert_close(ours(converted, dtype)(images), expected, rtol=0, atol=atol)


SOURCE_OF = {
    "torchvision": "torchvision", "timm": "timm", "deit": "deit", "deit distilled": "deit", "hf 5": "huggingface",
}  # fmt: skip


@pytest.mark.parametrize("case", SOURCE_OF)
def test_auto_finds_the_source(case):
    build, config, names, _ = SOURCES[case]
    state = names(build(config))
    auto, named = convert(state, num_heads=4), convert(state, SOURCE_OF[case], num_heads=4)
    assert (auto.config, auto.preprocess) == (named.config, named.preprocess)
    for other in {"torchvision", "huggingface", "google"} - {SOURCE_OF[case]}:
        with pytest.raises(ValueError, match=f"no Vision Transformer of {other}"):
            convert(state, other, num_heads=4)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_convert_keeps_the_dtype_and_the_memory(dtype):
    state = randomise(timm_vit(TINY)).to(dtype).state_dict()
    converted = convert(state, num_heads=4)
    assert {tensor.dtype for tensor in converted.state_dict.values()} == {dtype}
    theirs = {tensor.data_ptr() for tensor in state.values()}
    assert {tensor.data_ptr() for tensor in converted.state_dict.values()} == theirs


# ------------------------------------------------------------------------------------------------------------- Google


def flax_file(kind="google", gap=False, head=True, pre_logits=False, sincos=False, h=4, D=16, M=40, P=8, L=3, N=4):
    """Random arrays, named and shaped as google-research's code names and shapes them."""
    generator, d, old = np.random.default_rng(0), D // h, kind == "google"
    attention, mlp, norm = (1, 3, 2) if old else (0, 0, 1)
    shapes = {"embedding/kernel": (P, P, 3, D), "embedding/bias": (D,)}
    if not gap:
        shapes["cls"] = (1, 1, D)
    if not sincos:
        name = "Transformer/posembed_input/pos_embedding" if old else "pos_embedding"
        shapes[name] = (1, N + (old and not gap), D)
    for i in range(L):
        block = f"Transformer/encoderblock_{i}/"
        for part in ("query", "key", "value"):
            shapes[f"{block}MultiHeadDotProductAttention_{attention}/{part}/kernel"] = (D, h, d)
            shapes[f"{block}MultiHeadDotProductAttention_{attention}/{part}/bias"] = (h, d)
        shapes[f"{block}MultiHeadDotProductAttention_{attention}/out/kernel"] = (h, d, D)
        shapes[f"{block}MultiHeadDotProductAttention_{attention}/out/bias"] = (D,)
        for j, (rows, columns) in enumerate([(D, M), (M, D)]):
            shapes[f"{block}MlpBlock_{mlp}/Dense_{j}/kernel"] = (rows, columns)
            shapes[f"{block}MlpBlock_{mlp}/Dense_{j}/bias"] = (columns,)
        for j in (0, norm):
            shapes |= {f"{block}LayerNorm_{j}/{leaf}": (D,) for leaf in ("scale", "bias")}
    shapes |= {f"Transformer/encoder_norm/{leaf}": (D,) for leaf in ("scale", "bias")}
    if pre_logits:
        shapes |= {"pre_logits/kernel": (D, D), "pre_logits/bias": (D,)}
    if head:
        shapes |= {"head/kernel": (D, 5), "head/bias": (5,)}
    # A kernel's spread keeps numbers near one; nothing is zero.
    spread = {name: 0.3 if name.endswith("bias") or len(shape) == 1 else D**-0.5 for name, shape in shapes.items()}
    arrays = {name: generator.normal(0, spread[name], shape).astype(np.float32) for name, shape in shapes.items()}
    return {n: a + 1 if n.endswith("scale") else a for n, a in arrays.items()}


def stacked(arrays, L=3):
    """As big_vision's scan saves them."""
    whole = {n: a for n, a in arrays.items() if "encoderblock" not in n}
    for name in [n for n in arrays if "encoderblock_0" in n]:
        stack = np.stack([arrays[name.replace("_0/", f"_{i}/", 1)] for i in range(L)])
        whole[name.replace("encoderblock_0", "encoderblock")] = stack
    return whole


def timm_s(config, path):
    """Timm's model, filled by its own loader; in big_vision's files the class token has no position."""
    theirs = timm.models.VisionTransformer(
        img_size=config.image_size, patch_size=8, num_classes=config.num_classes, embed_dim=16, depth=3, num_heads=4,
        mlp_ratio=2.5, class_token=config.pool == "cls", fc_norm=False, act_layer="gelu_tanh",
        global_pool={"cls": "token", "mean": "avg", "attention": "map"}[config.pool],
        no_embed_class="big_vision" in path.name,
    )  # fmt: skip
    theirs.load_pretrained(str(path))
    return theirs.double().eval()


GOOGLE = {
    "vision_transformer": ({}, lambda a: a),
    "vision_transformer, optimiser's names": ({}, lambda a: under("opt/target/", a)),
    "vision_transformer, gap": ({"gap": True}, lambda a: a),
    "vision_transformer, no head": ({"head": False}, lambda a: a),
    "vision_transformer, pre_logits": ({"pre_logits": True}, lambda a: a),
    "big_vision": ({"kind": "big_vision"}, lambda a: under("params/", a)),
    "big_vision, two towers": ({"kind": "big_vision"}, lambda a: under("params/img/", a)),
    "big_vision, gap": ({"kind": "big_vision", "gap": True}, lambda a: a),
    "big_vision, scan": ({"kind": "big_vision", "gap": True}, lambda a: under("params/", stacked(a))),
}


@pytest.mark.parametrize(("options", "names"), GOOGLE.values(), ids=GOOGLE)
def test_google_equals_timm_s_own_loader(options, names, tmp_path):
    arrays, images, path = flax_file(**options), images_for(TINY), tmp_path / f"{options.get('kind')}.npz"
    np.savez(path, **names(arrays))
    converted = convert(weights.read(path))  # no num_heads: they are in the file
    classes = 0 if options.get("pre_logits") or options.get("head") is False else 5
    pool = "mean" if options.get("gap") else "cls"
    assert converted.config == tiny(gelu="tanh", pool=pool, num_classes=classes)
    if options.get("kind") and pool == "cls":  # a layer norm would hide any other constant
        assert not converted.state_dict["embed.position"][:, 0].any()
    with torch.inference_mode():
        expected = timm_s(converted.config, path)(images)
        assert expected.std() > 0.1
        assert_close(ours(converted)(images), expected, rtol=0, atol=1e-10)
        assert_close(ours(converted, torch.float32)(images.float()).double(), expected, rtol=0, atol=1e-5)
    assert all(tensor.is_contiguous() for tensor in converted.state_dict.values())  # else safetensors can't save them
    family = "big_vision" if options.get("kind") else "google"
    for source in ("google", family):
        assert convert(names(arrays), source).preprocess == converted.preprocess
    assert (converted.preprocess.crop == "none") == (family == "google")


def test_big_vision_without_stored_positions_has_sines(tmp_path, refuses):
    arrays = flax_file("big_vision", gap=True, sincos=True)
    with refuses(ValueError, "no positions", "image_size"):
        convert(arrays)
    converted = convert(arrays, image_size=(8, 16))
    assert converted.config == tiny(gelu="tanh", pool="mean", position="sincos", image_size=(8, 16))
    assert_close(converted.state_dict["embed.position"], vt.sincos_position_embedding((1, 2), 16))
    path, position = tmp_path / "big_vision.npz", vt.sincos_position_embedding((1, 2), 16).numpy()
    np.savez(path, **arrays, pos_embedding=position)
    images = images_for(converted.config)
    with torch.inference_mode():
        assert_close(ours(converted)(images), timm_s(converted.config, path)(images), rtol=0, atol=1e-10)


def siglip_file(scan=False, D=16, h=4, M=40):
    """SigLIP as big_vision saves it: the image tower with its attention pooling, a text tower, the loss's t and b."""
    arrays = flax_file("big_vision", gap=True, head=False, D=D, h=h, M=M)
    block = {n: a for n, a in arrays.items() if n.startswith("Transformer/encoderblock_2/")}
    renamed = {n.replace("Transformer/encoderblock_2", "MAPHead_0"): a for n, a in block.items()}
    renamed |= {n.replace("LayerNorm_1", "LayerNorm_0"): a for n, a in renamed.items() if "LayerNorm_1" in n}
    pooling = {n: 1.5 * a for n, a in renamed.items() if "LayerNorm_1" not in n}
    arrays = (stacked(arrays) if scan else arrays) | pooling
    arrays["MAPHead_0/probe"] = np.random.default_rng(1).normal(0, 1, (1, 1, D)).astype(np.float32)
    text = {"txt/Embed_0/embedding": np.ones((9, D), np.float32), "txt/head/bias": np.ones(D, np.float32)}
    return under("params/img/", arrays) | under("params/", text | {"t": np.ones(1), "b": np.ones(1)})


@pytest.mark.parametrize("scan", [False, True])
def test_siglip_of_big_vision_equals_timm_s_own_loader(scan, tmp_path):
    np.savez(tmp_path / "x.npz", **siglip_file(scan))
    with pytest.warns(UserWarning, match="the text tower"):
        converted = convert(weights.read(tmp_path / "x.npz"))
    assert converted.assumed["gelu"] == "tanh"
    assert "num_heads" not in converted.assumed
    assert (converted.preprocess.mean, converted.preprocess.interpolation) == ((0.5, 0.5, 0.5), "bicubic")
    images = images_for(TINY)
    with torch.inference_mode():
        model = vt.modern.build(converted.config).double().eval()
        model.load_state_dict(converted.state_dict)
        assert_close(model(images), timm_s(converted.config, tmp_path / "x.npz")(images), rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"params/img/MAPHead_0/LayerNorm_0/scale": None}, "missing: MAPHead_0/LayerNorm_0/scale"),
        ({"params/img/MAPHead_0/more": np.ones(1)}, "MAPHead_0/more"),
        ({"params/img/embedding/kernel": np.ones((192, 16), np.float32)}, "embedding/kernel (192, 16): NaFlex"),
    ],
)
def test_siglip_files_that_are_not_whole_are_refused(change, words, refuses):
    arrays = {name: array for name, array in (siglip_file() | change).items() if array is not None}
    with refuses(ValueError, words):
        convert({name: torch.as_tensor(array) for name, array in arrays.items()})


# --------------------------------------------------------------------------------------------------- heads and refusals


def test_heads_and_sources_that_are_wrong_and_parts_of_others_are_refused(refuses):
    state = {name: torch.as_tensor(array) for name, array in siglip_file().items()}
    with refuses(ValueError, "its tensors have 4 heads", "got num_heads=2"):
        convert(state, num_heads=2)
    with refuses(ValueError, "'jax'", "torchvision, timm"):
        convert(timm_vit(TINY).state_dict(), "jax")
    with refuses(ValueError, "blocks.0.mlp.router.weight", "a mixture of experts"):
        convert(timm_vit(TINY).state_dict() | {"blocks.0.mlp.router.weight": torch.ones(1)}, num_heads=4)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("shape", [(), (3,)])
@pytest.mark.parametrize("name", ["conv1.weight", "proj"])
def test_a_tensor_of_too_few_axes_is_refused_by_its_name(name, shape, refuses):
    block = ("ln_1.weight", "mlp.c_fc.weight", "mlp.c_proj.weight")
    own = ("class_embedding", "ln_post.weight", *(f"transformer.resblocks.0.{one}" for one in block))
    state = {"conv1.weight": torch.ones(16, 3, 8, 8)} | dict.fromkeys(own, torch.ones(16, 16))
    state = {f"visual.{one}": tensor for one, tensor in (state | {name: torch.ones(shape)}).items()}
    with refuses(ValueError, f"visual.{name} (our", f"{shape} must have"):
        convert(state, num_heads=4)


@pytest.mark.parametrize(("dim", "heads"), [(192, 3), (384, 6), (768, 12), (1024, 16), (1280, 16), (128, 2)])
def test_heads_of_published_sizes(dim, heads):
    state = to_timm(ViT(tiny(dim=dim, num_heads=heads, mlp_dim=8, depth=1)))
    assert convert(state).config.num_heads == heads
    assert convert(state, num_heads=4).config.num_heads == 4


@pytest.mark.parametrize(
    ("name", "preset", "size"),
    [("vit_b_16", "B/16", 384), ("vit_b_32", "B/32", 224), ("vit_l_16", "L/16", 224), ("vit_h_14", "H/14", 518)],
)  # fmt: skip
def test_torchvision_s_published_models(name, preset, size, monkeypatch):
    with torch.device("meta"):
        theirs = torchvision.models.get_model(name, image_size=size)
    monkeypatch.setattr(model, "check_numbers", lambda state: None)  # there are none
    assert convert(theirs.state_dict()).config == ViTConfig.preset(preset, image_size=size)
    assert theirs.encoder.layers[0].self_attention.num_heads == ViTConfig.preset(preset).num_heads
    assert theirs.encoder.ln.eps == 1e-6


def test_a_square_grid_of_oblong_patches_needs_no_image_size():
    config = tiny(image_size=(16, 20), patch_size=(8, 10))
    assert convert(to_timm(ViT(config)), num_heads=4).config == config


def without(*names):
    return lambda state: {name: tensor for name, tensor in state.items() if name not in names}


def with_(**tensors):
    return lambda state: state | {name.replace("__", "."): tensor for name, tensor in tensors.items()}


WRONG = {
    "a missing tensor": (without("blocks.1.norm2.bias"), ["1 missing", "blocks.1.norm2.bias"]),
    "a whole block missing": (
        lambda s: {n: t for n, t in s.items() if "blocks.1." not in n},
        ["12 missing", "12 unexpected", "blocks.2.norm1", "and 2 more"],
    ),
    "no patches": (without("patch_embed.proj.weight"), ["1 missing", "patch_embed.proj.weight"]),
    "a tensor too many": (with_(blocks__0__extra=torch.ones(1)), ["1 unexpected", "blocks.0.extra"]),
    "a name mistaken": (lambda s: {n.replace("pos_embed", "pos_embet"): t for n, t in s.items()}, ["pos_embet"]),
    "another width": (
        with_(blocks__1__mlp__fc1__weight=torch.ones(40, 17)),
        ["blocks.1.mlp.fc1.weight", "(40, 17) instead of (40, 16)"],
    ),
    "another rank": (with_(pos_embed=torch.ones(5, 16)), ["pos_embed", "(5, 16)", "3 axes"]),
    "positions that fill no square": (with_(pos_embed=torch.ones(1, 7, 16)), ["7 tokens", "image_size"]),
    "a scalar class token": (with_(cls_token=torch.tensor(1.0)), ["cls_token", "3 axes"]),
    "a head of another width": (with_(head__weight=torch.ones(5, 32)), ["head.weight", "(5, 32) instead of (5, 16)"]),
    "an empty tensor": (with_(cls_token=torch.ones(1, 0, 16)), ["cls_token", "(1, 0, 16)", "empty"]),
    "a tensor without memory": (with_(norm__bias=torch.ones(1).expand(10**12)), ["norm.bias", "declares more"]),
    "another architecture": (
        lambda s: torchvision.models.resnet18().state_dict(),
        ["no Vision Transformer", "conv1.weight", "and 112 more"],
    ),
    "no blocks": (lambda s: {n: t for n, t in s.items() if "blocks" not in n}, ["no block", "names: cls_token"]),
    "two that become one name": (
        lambda s: s | {"_orig_mod.head.bias": s["head.bias"]},
        ["two layers of one name", "_orig_mod.head.bias"],
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_state_dicts_are_refused(case, refuses):
    change, words = WRONG[case]
    with refuses(ValueError, *words):
        convert(change(timm_vit(TINY).state_dict()), num_heads=4)


def test_large_numbers_are_no_infinity():
    state = timm_vit(TINY).state_dict()
    state["norm.bias"] = torch.full((16,), 3e38)  # whose sum is infinite
    assert torch.equal(convert(state, num_heads=4).state_dict["norm.bias"], state["norm.bias"])


@pytest.mark.parametrize("name", ["query/kernel", "out/kernel"])
def test_flax_kernels_of_another_rank(name, refuses):
    arrays = flax_file()
    key = f"Transformer/encoderblock_0/MultiHeadDotProductAttention_1/{name}"
    with refuses(ValueError, f"MultiHeadDotProductAttention_1/{name}"):
        convert(arrays | {key: arrays[key].reshape(16, 16)})


# ------------------------------------------------------------------------------------------------------- the way back


sizes = st.builds(
    lambda heads, d, rows, columns, P, Q, channels, classes, depth, M, pool, bias: ViTConfig(
        image_size=(rows * P, columns * Q) if rows * P != columns * Q else rows * P,
        patch_size=(P, Q) if P != Q else P,
        in_channels=channels, num_classes=classes, dim=heads * d, depth=depth, num_heads=heads, mlp_dim=M,
        qkv_bias=bias, pool=pool,
    ),
    *[st.integers(1, 3)] * 7, st.integers(0, 3), st.integers(1, 3), st.integers(1, 9),
    st.sampled_from(["cls", "mean"]), st.booleans(),
)  # fmt: skip


@settings(max_examples=25)
@given(sizes, st.sampled_from(["timm", "torchvision", "huggingface", "huggingface 5"]))
def test_there_and_back_is_exact(config, library):
    there = {
        "timm": to_timm, "torchvision": to_torchvision, "huggingface": to_huggingface,
        "huggingface 5": partial(to_huggingface, version=5),
    }[library]  # fmt: skip
    if library != "timm":
        config = dataclasses.replace(config, pool="cls", qkv_bias=config.qkv_bias or library == "torchvision")
    if library == "torchvision":
        P, rows = max(as_pair(config.patch_size, "patch_size")), config.grid[0]
        config = dataclasses.replace(config, image_size=rows * P, patch_size=P, in_channels=3)
    model = randomise(ViT(config))
    source = library.split()[0]
    back = convert(there(model), source, num_heads=config.num_heads, image_size=config.image_size)
    assert back.config == dataclasses.replace(config, norm_eps=1e-12 if source == "huggingface" else 1e-6)
    assert back.state_dict.keys() == model.state_dict().keys()
    assert all(torch.equal(tensor, back.state_dict[name]) for name, tensor in model.state_dict().items())


BACK = {
    "timm": (timm_vit, to_timm, TINY),
    "timm distilled": (timm_vit, to_timm, sized(TINY, pool="distilled")),
    "timm mean": (timm_vit, to_timm, tiny(pool="mean", position="sincos")),
    "timm no head": (timm_vit, to_timm, sized(TINY, pool="distilled", num_classes=0)),
    "torchvision": (torchvision_vit, to_torchvision, TINY),
    "huggingface": (transformers_vit, partial(to_huggingface, version=int(transformers.__version__[0])), HF),
}


@pytest.mark.parametrize("case", BACK)
def test_a_model_trained_here_works_there(case):
    build, there, config = BACK[case]
    model, theirs = randomise(ViT(config)).double().eval(), build(config).double().eval()
    theirs.load_state_dict(there(model))
    images = images_for(config)
    with torch.inference_mode():
        if case == "timm no head":  # timm's features are the mean of two tokens, ours are both
            assert_close(model(images).unflatten(1, (2, 16)).mean(1), theirs(images), rtol=0, atol=1e-10)
        else:
            assert_close(model(images), logits(theirs, images), rtol=0, atol=1e-10)


def test_huggingface_reads_what_we_write(tmp_path):
    model = randomise(ViT(HF)).eval()
    transformers_vit(HF).config.save_pretrained(tmp_path)
    save_file({name: tensor.clone() for name, tensor in to_huggingface(model).items()}, tmp_path / "model.safetensors",
              metadata={"format": "pt"})  # fmt: skip
    theirs = transformers.ViTForImageClassification.from_pretrained(tmp_path).eval()
    images = images_for(HF).float()
    with torch.inference_mode():
        assert_close(model(images), theirs(images).logits, rtol=0, atol=1e-5)


# ------------------------------------------------------------------------------------------------------ preprocessing


@cache
def picture(size=(300, 400)):
    """The photograph, (height, width)."""
    return Image.fromarray((photograph(size) * 255).round().byte().permute(1, 2, 0).numpy())


PICTURES = [(400, 300), (131, 517)]


@pytest.mark.parametrize("name", [
    f"{model}.{version}"
    for model in ("vit_b_16", "vit_b_32", "vit_l_16", "vit_l_32", "vit_h_14")
    for version in torchvision.models.get_model_weights(model).__members__
])  # fmt: skip
def test_torchvision_s_preprocessing(name):
    size = PICTURES[1]
    model, version = name.split(".")
    theirs = torchvision.models.get_model_weights(model)[version]
    ours = torchvision_state(theirs.meta["min_size"][0], {"b": 768, "l": 1024, "h": 1280}[model[4]], int(model[6:]))
    if version == "IMAGENET1K_SWAG_LINEAR_V1" and model != "vit_h_14":  # its shapes are V1's: load knows by the name
        ours = dataclasses.replace(ours, crop=1.0, interpolation="bicubic")
    assert_close(ours(picture(size)), theirs.transforms()(picture(size))[None], rtol=0, atol=1e-6)


@cache
def torchvision_state(image_size, dim, patch_size):
    config = ViTConfig(image_size, patch_size, dim=dim, depth=1, mlp_dim=4, num_heads=16 if dim > 768 else 12)
    return convert(to_torchvision(ViT(config))).preprocess


TIMM_NAMES = [
    "vit_tiny_patch16_224.augreg_in21k_ft_in1k", "vit_base_patch16_384.augreg_in21k_ft_in1k",
    "deit_small_patch16_224.fb_in1k", "deit_base_patch16_384.fb_in1k", "deit_tiny_distilled_patch16_224.fb_in1k",
]  # fmt: skip


def timm_transform(name, **changes):
    about = timm.data.resolve_data_config({}, pretrained_cfg=timm.models.get_pretrained_cfg(name).to_dict())
    return timm.data.create_transform(**(about | changes))


@pytest.mark.parametrize("size", PICTURES)
@pytest.mark.parametrize("name", TIMM_NAMES)
def test_timm_s_preprocessing(name, size):
    side = int(name.split(".")[0][-3:])
    state = to_timm(
        build(sized(TINY, image_size=side, patch_size=16, pool="distilled" if "distilled" in name else "cls"))
    )
    ours = convert(state, "deit" if name.startswith("deit") else "timm", num_heads=4)
    assert_close(ours.preprocess(picture(size)), timm_transform(name)(picture(size))[None], rtol=0, atol=1e-6)


@pytest.mark.parametrize("size", PICTURES)
@pytest.mark.parametrize("shape", [(96, 160), (160, 96), (32, 224)])
def test_rectangles_as_timm_cuts_them(shape, size):
    half = (0.5, 0.5, 0.5)
    ours = Preprocessing(shape, half, half, 0.9, "bicubic")
    theirs = timm_transform(TIMM_NAMES[0], input_size=(3, *shape))
    assert_close(ours(picture(size)), theirs(picture(size))[None], rtol=0, atol=1e-6)


@pytest.mark.parametrize("size", PICTURES)
def test_huggingface_s_preprocessing(size):
    processor = getattr(transformers, "ViTImageProcessorPil", transformers.ViTImageProcessor)()
    ours = convert(to_huggingface(ViT(tiny(image_size=224, patch_size=16))), num_heads=4).preprocess
    theirs = processor(picture(size), return_tensors="pt")["pixel_values"]
    assert_close(ours(picture(size)), theirs, rtol=0, atol=1e-6)


def test_dino_s_preprocessing():
    v1 = torchvision.transforms
    theirs = v1.Compose([  # eval_linear.py of facebookresearch/dino
        v1.Resize(256, interpolation=v1.InterpolationMode.BICUBIC), v1.CenterCrop(224), v1.ToTensor(),
        v1.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    ])  # fmt: skip
    ours = convert(to_timm(ViT(tiny(image_size=224, patch_size=16, num_classes=0))), num_heads=4).preprocess
    assert_close(ours(picture()), theirs(picture())[None], rtol=0, atol=1e-6)


HALF = (0.5, 0.5, 0.5)


@pytest.mark.parametrize(("kind", "crop"), [("google", "none"), ("big_vision", 224 / 256)])
def test_google_s_preprocessing(kind, crop):
    assert convert(flax_file(kind)).preprocess == Preprocessing((16, 16), HALF, HALF, crop, "bilinear")


def test_preprocessing_of_our_own_names():
    assert convert(ViT(TINY).state_dict(), num_heads=4).preprocess == Preprocessing((16, 16), HALF, HALF)


@pytest.mark.parametrize(("side", "resized"), [(224, 256), (224, 242), (192, 225), (64, 93), (128, 128)])
def test_a_share_gives_torchvision_s_whole_pixels(side, resized):  # 192 / (192 / 225) is a little less than 225
    mean, std = (0.1, 0.2, 0.3), (0.4, 0.5, 0.6)
    theirs = torchvision.transforms._presets.ImageClassification(
        crop_size=side, resize_size=resized, mean=mean, std=std, antialias=True
    )
    ours = Preprocessing((side, side), mean, std, side / resized, "bilinear")
    assert_close(ours(picture()), theirs(picture())[None], rtol=0, atol=1e-6)


@pytest.mark.parametrize("crop", ["center", "none", 0.875])
def test_a_grey_model_gets_pillow_s_brightness(crop):
    ours, colour = (Preprocessing((32, 32), (0.0,) * C, (1.0,) * C, crop) for C in (1, 3))
    pixels = (colour(picture())[0] * 255).round().byte().permute(1, 2, 0).numpy()
    brightness = np.array(Image.fromarray(pixels).convert("L"))  # in whole numbers
    assert_close(ours(picture())[0, 0] * 255, torch.from_numpy(brightness).float(), rtol=0, atol=1.0)


@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
def test_the_middle_is_resized_as_asked(mode):
    grey = picture((40, 60)).convert("L")
    ours = Preprocessing((12, 15), (0.0,), (1.0,), "center", mode)(grey)  # 40 x 50 of it, five columns off either side
    theirs = grey.resize((15, 12), getattr(Image.Resampling, mode.upper()), box=(5, 0, 55, 40))
    assert_close(ours[0, 0] * 255, torch.from_numpy(np.array(theirs)).float(), rtol=0, atol=1e-3)


@pytest.mark.parametrize("channels", [1, 4])
def test_other_channels_have_plain_statistics(channels):
    ours = convert(to_timm(ViT(tiny(in_channels=channels))), num_heads=4).preprocess
    assert ours.mean == ours.std == (0.5,) * channels


# -------------------------------------------------------------------------------------------------------------- files

SMALL = ViTConfig(image_size=8, patch_size=4, num_classes=2, dim=64, depth=2, num_heads=1, mlp_dim=8)
SUFFIXES = (".safetensors", ".pth", ".npz")


def small(seed=0):
    """The same for the same seed, also within one test."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return randomise(ViT(SMALL)).eval()


def write(path, model):
    """The model in the format that the path's suffix says; a .npz holds Google's names."""
    state = {name: tensor.clone() for name, tensor in to_timm(model).items()}
    if path.suffix == ".safetensors":
        save_file(state, path)
    elif path.suffix == ".npz":
        np.savez(path, **flax(model))
    else:
        torch.save({"model": state, "args": argparse.Namespace(lr=0.1)}, path)
    return path


def flax(model):
    """The model's tensors turned the other way round, by hand."""
    h, by_end = model.config.num_heads, {
        "embedding/kernel": lambda t: t.permute(2, 3, 1, 0),
        "out/kernel": lambda t: t.mT.unflatten(0, (h, -1)),
        **{f"{part}/kernel": lambda t: t.mT.unflatten(1, (h, -1)) for part in ("query", "key", "value")},
        **{f"{part}/bias": lambda t: t.unflatten(0, (h, -1)) for part in ("query", "key", "value")},
        "kernel": lambda t: t.mT,
        "": lambda t: t,
    }  # fmt: skip
    theirs = weights.names.rename(model.state_dict(), weights.names.GOOGLE)
    turned = {name: next(turn for end, turn in by_end.items() if name.endswith(end)) for name in theirs}
    return {name: turned[name](tensor).numpy() for name, tensor in theirs.items()}


def same(model, other):
    one, two = model.state_dict(), other.state_dict()
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


@pytest.mark.parametrize("suffix", [".safetensors", ".npz", ".pth.tar", ".PTH"])
def test_load_a_file(suffix, tmp_path):
    path = write(tmp_path / f"x{suffix}", small())
    for name in (path, str(path)):
        model, classes, preprocess = vt.load(name)
        assert same(model, small())
        assert model.config == dataclasses.replace(SMALL, gelu="tanh" if suffix == ".npz" else "exact")
        assert not model.training
        assert classes == ("class 0", "class 1")
        assert preprocess.image_size == (8, 8)


def test_load_a_file_of_our_own_names(tmp_path):
    save_file(small().state_dict(), tmp_path / "x.safetensors")
    assert same(vt.load(tmp_path / "x.safetensors").model, small())


def test_a_bare_file_says_what_was_assumed_once(tmp_path):
    path = write(tmp_path / "x.safetensors", small())
    with pytest.warns(UserWarning, match="tell all") as said:
        found = vt.load(path)
    assert len(said) == 1
    assert said[0].filename == __file__
    assert str(path) in str(said[0].message)
    assert set(found.assumed) == {"num_heads", "gelu", "norm_eps", "image_size", "preprocess", "plain"}
    told = {"num_heads": 1, "gelu": "exact", "norm_eps": 1e-6, "image_size": 8, "preprocess": found.preprocess}
    told["plain"] = True
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        silent = vt.load(path, **told)
        for name in ("digits", saved(tmp_path / "mine", small())):
            assert vt.load(name).assumed == {}
    assert silent.assumed == {}
    assert tuple(found)[1:] == tuple(silent)[1:]
    assert dataclasses.replace(found, classes=()).assumed == found.assumed


def test_a_rectangle_is_told_by_the_size_asked_for(tmp_path, refuses):
    for size in ((32, 48), (16, 80), (224, 256)):
        config = dataclasses.replace(SMALL, image_size=size, patch_size=16)
        model = randomise(ViT(config)).eval()
        path = write(tmp_path / "x.safetensors", model)
        assert same(vt.load(path, image_size=size).model, model)
    path = write(tmp_path / "y.safetensors", ViT(dataclasses.replace(SMALL, image_size=(16, 80), patch_size=16)))
    for wanted in (None, 64):
        with refuses(ValueError, "y.safetensors", "6 tokens", "give image_size"):
            vt.load(path, image_size=wanted)


def test_no_positions_and_heads_are_given_to_load_itself(tmp_path, refuses):
    model = randomise(ViT(dataclasses.replace(SMALL, position="none", dim=24, num_heads=3))).eval()
    path = write(tmp_path / "x.safetensors", model)
    with refuses(ValueError, "num_heads"):
        vt.load(path, image_size=8)
    with refuses(ValueError, "image_size"):
        vt.load(path, num_heads=3)
    assert same(vt.load(path, num_heads=3, image_size=8).model, model)


def test_numbers_too_large_for_single_precision(tmp_path, refuses):
    state = {name: tensor.double() for name, tensor in to_timm(small()).items()}
    state["norm.bias"][3] = 1e300
    save_file(state, tmp_path / "x.safetensors")
    with refuses(ValueError, "x.safetensors", "infinity", "norm.bias"):
        vt.load(tmp_path / "x.safetensors")


def test_jax_s_bfloat16_in_a_npz(tmp_path):
    arrays = flax(small().bfloat16().float())
    halves = {
        name: torch.from_numpy(a.copy()).bfloat16().view(torch.int16).numpy().view("V2") for name, a in arrays.items()
    }
    np.savez(tmp_path / "x.npz", **halves)
    assert same(vt.load(tmp_path / "x.npz").model, small().bfloat16().float())


@pytest.mark.parametrize("protocol", [4, 5])
def test_a_pickle_of_a_later_protocol_isn_t_called_damaged(protocol, tmp_path, refuses):
    (tmp_path / "x.pth").write_bytes(pickle.dumps({"a": 1}, protocol=protocol))
    with refuses(ValueError, f"protocol {protocol}", "nothing was loaded"):
        vt.load(tmp_path / "x.pth")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_load_gives_single_precision(dtype, tmp_path):
    save_file({name: tensor.to(dtype) for name, tensor in to_timm(small()).items()}, tmp_path / "x.safetensors")
    model = vt.load(tmp_path / "x.safetensors").model
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert same(model, small().to(dtype).float())


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="only Linux says what is mapped")
def test_safetensors_are_mapped_and_never_copied(tmp_path):
    path = write(tmp_path / "x.safetensors", small())
    model = vt.load(path).model
    lines = Path("/proc/self/maps").read_text("utf-8").splitlines()
    maps = [line.split(maxsplit=5) for line in lines if path.name in line]
    areas = [tuple(int(end, 16) for end in line[0].split("-")) for line in maps]
    for name, parameter in model.named_parameters():
        assert any(low <= parameter.data_ptr() < high for low, high in areas), name
        assert parameter.requires_grad
    before = path.read_bytes()
    torch.optim.SGD(model.parameters(), 1.0).step(lambda: model(torch.rand(1, 3, 8, 8)).sum().backward())
    assert not same(model, small())  # it trains, and the file stays
    assert path.read_bytes() == before


@pytest.fixture(scope="module")
def hostile():
    """The files of benchmarks/hostile.py, which measures time and memory as well; tests have another hostile.py."""
    path = Path(__file__).parents[1] / "benchmarks" / "hostile.py"
    spec = importlib.util.spec_from_file_location("hostile_files", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


MKDIR = f"asks for {os.mkdir.__module__}.mkdir"
HOSTILE = {
    "code in a pickle": [MKDIR, "nothing was loaded"],
    "code in a pickle of the old format": [MKDIR, "nothing was loaded"],
    "code among the tensors": [MKDIR, "nothing was loaded"],
    "code in a plain pickle, protocol 4": ["protocol 4", "nothing was loaded"],  # which torch can't read
    "an object in a .npz": ["a.npy holds a pickle"],  # of as many bytes as its number would have
    "50 MB of zeros, packed, .pth": ["unpacks to 50,000,000"],
    "50 MB of zeros, packed, .npz": ["unpacks to 50,000,000"],
    "four times its size, .npz": ["unpacks to 8,000,"],
    "an array of 10 billion, .npz": ["cls", "(10000000000,)", "another size"],
    "50,001 arrays, .npz": ["50,001 parts"],
    "a tensor of strides 0": ["norm.bias", "declares more numbers than the file holds"],
    "a table that lies about a shape": ["damaged"],
    "a table of 2^60 bytes": ["damaged"],
    "a table of 20 MB": ["20,000,002 bytes of names"],
    "5 million lists": ["too long a pickle", "nothing was loaded"],
    "5 million lists, old format": ["too long a pickle", "nothing was loaded"],
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.filterwarnings("ignore:Detected pickle protocol 4")
def test_no_code_is_run_and_no_bomb_unpacked(name, tmp_path, refuses, hostile):
    with refuses(ValueError, str(tmp_path), *HOSTILE[name]):
        vt.load(hostile.FILES[name](tmp_path))
    assert not hostile.TRACE.exists()


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="only Linux counts memory from a moment on")
def test_hostile_files_take_little_time_and_memory(hostile, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["hostile.py"])
    hostile.main()  # or it exits


class Builtin:
    def __reduce__(self):
        return eval, ("1 + 1",)


def test_a_builtin_that_a_pickle_asks_for_is_named(tmp_path, refuses):
    torch.save(Builtin(), tmp_path / "x.pth")  # torch 2.14 names it without a module, 2.4 with
    with refuses(ValueError, "x.pth asks for ", "eval: ", "nothing was loaded"):
        vt.load(tmp_path / "x.pth")


def test_numpy_too_is_told_to_load_no_objects(tmp_path, monkeypatch):  # should the look at the headers ever miss one
    told, load = [], np.load
    monkeypatch.setattr(np, "load", lambda *args, **options: told.append(options) or load(*args, **options))
    assert same(vt.load(write(tmp_path / "x.npz", small())).model, small())
    assert told == [{"allow_pickle": False}]


def test_a_compressed_head_of_zeros_is_no_bomb(tmp_path):
    model = ViT(dataclasses.replace(SMALL, num_classes=2000))
    np.savez_compressed(tmp_path / "x.npz", **flax(model))
    assert same(vt.load(tmp_path / "x.npz").model, model)


class Whole(dict):
    """The same model in each format: its bytes by suffix."""

    def __repr__(self):  # hypothesis would print them all
        return "Whole()"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    contents = Whole({suffix: write(folder / f"whole{suffix}", small()).read_bytes() for suffix in SUFFIXES})
    contents.folder = folder
    return contents


DAMAGES = st.one_of(
    st.tuples(st.just("cut"), st.floats(0, 0.9999)),
    st.tuples(st.just("flip"), st.floats(0, 0.9999), st.integers(0, 7)),
    st.tuples(st.just("flip in the first 2000"), st.integers(0, 1999), st.integers(0, 7)),
    st.tuples(st.just("flip in the last 2000"), st.integers(0, 1999), st.integers(0, 7)),
    st.tuples(st.just("zeros"), st.floats(0, 0.9999), st.integers(1, 5000)),
    st.tuples(st.just("more"), st.floats(0, 1), st.binary(min_size=1, max_size=50)),
    st.tuples(st.just("less"), st.floats(0, 0.9999), st.integers(1, 500)),
    st.tuples(st.just("other"), st.binary(max_size=300)),
)


def damaged(content, damage):
    kind, where, *more = damage
    if kind == "other":
        return where
    at = {"flip in the first 2000": where, "flip in the last 2000": len(content) - 1 - where}.get(kind)
    at = int(where * len(content)) if at is None else at
    if kind == "cut":
        return content[:at]
    if kind.startswith("flip"):
        return content[:at] + bytes([content[at] ^ 1 << more[0]]) + content[at + 1 :]
    if kind == "zeros":
        return content[:at] + bytes(len(content[at : at + more[0]])) + content[at + more[0] :]
    return content[:at] + more[0] + content[at:] if kind == "more" else content[:at] + content[at + more[0] :]


@pytest.mark.parametrize("suffix", SUFFIXES)
@settings(max_examples=50)
@given(damage=DAMAGES)
def test_no_damage_passes(whole, suffix, damage):
    content, path = damaged(whole[suffix], damage), whole.folder / f"part{suffix}"
    path.write_bytes(content)
    try:
        model = vt.load(path).model
    except (ValueError, OSError) as refusal:
        message = str(refusal)
    else:
        message = ""
    if message:
        assert path.name in message
        assert len(message) < 3000
    elif suffix == ".safetensors":  # without a check sum only its header is sure
        header = 8 + int.from_bytes(whole[suffix][:8], "little")
        assert content[:header] == whole[suffix][:header]
        assert len(content) == len(whole[suffix])
    else:
        assert same(model, small())  # what wasn't noticed changed nothing: a time stamp, an attribute


@settings(max_examples=60)
@given(at=st.floats(0, 0.9999), bit=st.integers(0, 7), part=st.sampled_from(["length", "names"]))
def test_every_flipped_bit_of_a_safetensors_header_is_noticed(whole, at, bit, part):
    content, path = whole[".safetensors"], whole.folder / "header.safetensors"
    header = len(content[8:].partition(b"}}")[0]) + 2
    damage = int(8 * at) if part == "length" else 8 + int(header * at)
    content = content[:damage] + bytes([content[damage] ^ 1 << bit]) + content[damage + 1 :]
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"header\.safetensors"):
        vt.load(path)


def test_a_file_without_check_sums_is_read(tmp_path):
    path = write(tmp_path / "x.pth", small())
    with zipfile.ZipFile(path) as archive:
        assert any(entry.CRC for entry in archive.infolist())
    set_crc32 = getattr(torch.serialization, "set_crc32_options", None)
    if set_crc32 is None:
        pytest.skip("this torch always computes them")
    set_crc32(False)
    try:
        write(path, small())
    finally:
        set_crc32(True)
    assert same(vt.load(path).model, small())


@pytest.mark.parametrize("suffix", [".pth", ".npz"])
def test_the_check_sum_finds_a_flipped_bit_within_a_number(suffix, tmp_path, refuses):
    path = write(tmp_path / f"x{suffix}", small())
    content = bytearray(path.read_bytes())
    number = small().state_dict()["blocks.1.mlp.fc1.bias"].numpy().tobytes()
    content[content.index(number) + 1] ^= 1
    path.write_bytes(content)
    with refuses(ValueError, str(path), "damaged", "get it again"):
        vt.load(path)


@pytest.mark.parametrize("suffix", [*SUFFIXES, ".bin"])
@pytest.mark.parametrize("content", [b"", b"{}", b"text", bytes(1000), b"PK\x05\x06" + bytes(18)])
def test_read_names_the_file(suffix, content, tmp_path, refuses):
    (tmp_path / f"x{suffix}").write_bytes(content)
    words = [str(tmp_path / f"x{suffix}"), "damaged"]
    if content.startswith(b"PK"):  # an archive, and nothing in it
        words = {".npz": ["0 names"], ".safetensors": ["x.safetensors is a zip"]}.get(suffix, words)
    with refuses(ValueError, *words):
        convert(weights.read(tmp_path / f"x{suffix}"))


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_that_may_not_be_read(suffix, tmp_path, refuses):
    write(tmp_path / f"x{suffix}", small()).chmod(0)
    with refuses(OSError, f"x{suffix}"):
        vt.load(tmp_path / f"x{suffix}")


def test_a_disk_s_error_stays_one(tmp_path, monkeypatch):
    path = write(tmp_path / "x.pth", small())

    def denied(*_, **__):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(torch, "load", denied)
    with pytest.raises(PermissionError, match=r"x\.pth"):  # and isn't called damage
        vt.load(path)


def scripted(path):
    torch.jit.script(torch.nn.Linear(2, 2)).save(str(path))


KINDS = {
    "TorchScript": ("x.pt", scripted, ["TorchScript", "state_dict()"]),
    "a pointer": (
        "x.safetensors",
        b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n",
        ["git lfs pull"],
    ),
    "a page": ("x.pth", b"<!DOCTYPE html><html>", ["a web page"]),
    "packed": ("x.pth", gzip.compress(b"a" * 99), ["gzip"]),
    "a zip": ("x.safetensors", lambda path: torch.save({}, path), ["a zip", "call it .pth"]),
    "safetensors": ("x.bin", lambda path: save_file({"a": torch.ones(1)}, path), ["the format of .safetensors"]),
    "text": ("x.npz", lambda path: np.savez(path, a=np.array(["text"])), ["a is an array of <U4"]),
    "records": ("x.npz", lambda path: np.savez(path, a=np.zeros(3, dtype=[("b", "f4")])), ["an array of", "'b'"]),
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("case", KINDS)
def test_a_file_of_another_kind_is_called_what_it_is(case, tmp_path, refuses):
    name, content, words = KINDS[case]
    (tmp_path / name).write_bytes(content) if isinstance(content, bytes) else content(tmp_path / name)
    with refuses(ValueError, name, *words) as caught:
        weights.read(tmp_path / name)
    assert "damaged" not in str(caught.value)


def test_a_folder_without_a_model_says_what_there_is(tmp_path, refuses):
    with refuses(OSError, str(tmp_path), "no config.json and no model.safetensors"):
        vt.load(tmp_path)
    (tmp_path / "config.json").write_text("{}", "utf-8")
    with refuses(OSError, str(tmp_path), "has no model.safetensors"):
        vt.load(tmp_path)
    (tmp_path / "config.json").unlink()
    write(tmp_path / "last.pth", small())
    write(tmp_path / "best.safetensors", small())
    with refuses(OSError, str(tmp_path), "name one: best.safetensors, last.pth"):
        vt.load(tmp_path)
    write(tmp_path / "model.safetensors", small())
    (tmp_path / "config.json").write_text('{"lr": 0.1}')  # somebody's options
    with refuses(ValueError, str(tmp_path), "isn't this package's", "name their file"):
        vt.load(tmp_path)


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such names")
@pytest.mark.parametrize("name", ["x" * 5000, "x" * 5000 + ".pth", "a\nb\x1b[31m.pth", "\udcff.pth", "a\0b.pth"])
def test_strange_names_of_files_get_a_short_answer_on_one_line(name, tmp_path):
    for path in (name, str(tmp_path / name)):
        with pytest.raises((ValueError, OSError)) as caught:
            vt.load(path)
        assert len(str(caught.value)) < 2000
        assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("nothing", "there is no file"),
        ("itself.pth", "there is no file"),
        ("/dev/zero", "a pipe or a device"),
        ("a pipe", "a pipe or a device"),
    ],
)
def test_what_is_no_plain_file_isn_t_waited_for(target, words, tmp_path, refuses):
    path = tmp_path / "itself.pth"
    if not hasattr(os, "mkfifo"):
        pytest.skip("Windows has no pipes on disk")
    os.mkfifo(path) if target == "a pipe" else path.symlink_to(target)
    with refuses((OSError, ValueError), "itself.pth", words):
        vt.load(path)


@pytest.mark.parametrize(
    ("told", "error", "words"),
    [
        ({"num_classes": True}, TypeError, ["num_classes", "True"]),
        ({"num_classes": 2.5}, TypeError, ["num_classes", "2.5"]),
        ({"num_classes": "5"}, TypeError, ["num_classes", "'5'"]),
        ({"image_size": "16"}, ValueError, ["image_size", "'16'"]),
    ],
)
def test_values_that_load_refuses(told, error, words, tmp_path, refuses):
    with refuses(error, *words):
        vt.load(write(tmp_path / "x.safetensors", small()), **told)


def test_other_files_are_refused(tmp_path, refuses):
    with refuses(ValueError, "x.txt", "digits", ".safetensors", "timm/NAME"):
        vt.load(tmp_path / "x.txt")
    with refuses(ValueError, "x.txt", ".npz"):
        weights.read(tmp_path / "x.txt")
    with refuses(OSError, str(tmp_path / "x.pth"), "no file"):
        vt.load(tmp_path / "x.pth")
    torch.save([1, 2], tmp_path / "list.pth")
    with refuses(ValueError, "list.pth", "holds a list"):
        vt.load(tmp_path / "list.pth")
    save_file(torchvision.models.resnet18().state_dict(), tmp_path / "resnet.safetensors")
    with refuses(ValueError, "resnet.safetensors", "no Vision Transformer", "and 112 more"):
        vt.load(tmp_path / "resnet.safetensors")


# ------------------------------------------------------------------------------------------- another head, another size


def test_another_number_of_classes(tmp_path):
    path = write(tmp_path / "x.pth", small())
    model, classes, _ = vt.load(path, num_classes=3)
    assert classes == ("class 0", "class 1", "class 2")
    assert not model.head.weight.any()
    assert not model.head.bias.any()
    assert model.head.weight.shape == (3, 64)
    body = vt.load(path, num_classes=0)
    assert (body.classes, body.model.config.num_classes) == ((), 0)
    rest = {name for name in small().state_dict() if "head" not in name}
    for changed in (model, body.model):
        assert all(torch.equal(changed.state_dict()[name], small().state_dict()[name]) for name in rest)
    assert same(vt.load(path, num_classes=2).model, small())  # as many: the head stays


def test_another_head_of_a_shipped_and_of_a_distilled_model(tmp_path):
    model, classes, _ = vt.load("digits", num_classes=3)
    assert classes == ("class 0", "class 1", "class 2")
    assert torch.equal(model(torch.rand(2, 1, 8, 8)), torch.zeros(2, 3))
    distilled = randomise(build(sized(SMALL, pool="distilled")))
    path = write(tmp_path / "x.pth", distilled)
    assert vt.load(path, num_classes=3).model(torch.rand(2, 3, 8, 8)).shape == (2, 3)


@pytest.mark.parametrize("pool", ["cls", "mean", "distilled"])
@pytest.mark.parametrize("size", [12, (20, 12)])
def test_another_size_equals_timm_s_own(pool, size, tmp_path):
    config = sized(SMALL, pool=pool)
    theirs = timm_vit(config)
    theirs.load_state_dict(to_timm(randomise(build(config))))
    save_file(theirs.state_dict(), tmp_path / "x.safetensors")
    other = timm_vit(dataclasses.replace(config, image_size=size))
    state = timm.models.vision_transformer.checkpoint_filter_fn(theirs.state_dict(), other)  # timm's own resizing
    other.load_state_dict(state)
    model, _, preprocess = vt.load(tmp_path / "x.safetensors", image_size=size)
    assert preprocess.image_size == (size if isinstance(size, tuple) else (size, size))
    images = images_for(model.config).float()
    with torch.inference_mode():
        assert_close(model(images), other.eval()(images), rtol=0, atol=1e-5)


@pytest.mark.parametrize("recipe", ["timm", "torchvision", "huggingface", "google", "dino"])
def test_positions_are_resized_by_the_recipe_named(recipe):
    model = small()
    for size in (24, (20, 12), (4, 16)):  # the last has as many patches, on another grid
        config, state = weights.with_size(model.config, model.state_dict(), size, recipe)
        expected = vt.resize_position_embedding(model.embed.position.data, (2, 2), config.grid, recipe=recipe)
        assert_close(state["embed.position"], expected, rtol=0, atol=0)


@pytest.mark.parametrize("pool", ["cls", "mean"])
def test_other_sizes_of_models_without_learned_positions(pool):
    for position in ("sincos", "none"):
        config = dataclasses.replace(SMALL, position=position, pool=pool)
        config, state = weights.with_size(config, ViT(config).state_dict(), (8, 16))
        assert_close(state.get("embed.position"), ViT(config).state_dict().get("embed.position"), rtol=0, atol=0)


def test_sizes_that_do_not_fit(tmp_path, refuses):
    path = write(tmp_path / "x.pth", small())
    with refuses(ValueError, "10x10", "4x4"):
        vt.load(path, image_size=10)
    with refuses(ValueError, "num_classes", "-1"):
        vt.load(path, num_classes=-1)


# ------------------------------------------------------------------------------------------------- folders and the hub


def saved(folder, model, **options):
    """What weights.save writes of a model."""
    data_set = vt.data.Data("mine", None, None, ("cat", "dog"), (8, 8), 3, (0.1, 0.2, 0.3), (0.4, 0.5, 0.6))
    row = dict.fromkeys(("epoch", "loss", "test_loss", "accuracy", "test_accuracy"), 1.0)
    weights.save(folder, model, data_set, [row], **options)
    return folder


def test_a_saved_folder_carries_the_preprocessing(tmp_path):
    preprocess = Preprocessing((8, 8), (0.3, 0.2, 0.1), (0.6, 0.5, 0.4), 0.875, "bilinear")
    squashed = dataclasses.replace(preprocess, squash=True)
    for expected, options in (
        (preprocess, {"preprocess": preprocess}),
        (squashed, {"preprocess": squashed}),
        (Preprocessing((8, 8), (0.1, 0.2, 0.3), (0.4, 0.5, 0.6)), {}),
    ):
        found = vt.load(saved(tmp_path, small(), **options))
        assert same(found.model, small())
        assert found[1:] == (("cat", "dog"), expected)


def hf_folder(folder, name="model.safetensors", **changes):
    theirs = transformers_vit(dataclasses.replace(SMALL, norm_eps=1e-12)).config
    theirs.id2label, theirs.label2id = {0: "tench", 1: "goldfish"}, {"tench": 0, "goldfish": 1}
    folder.mkdir(parents=True, exist_ok=True)
    theirs.save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text("utf-8")) | changes
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    state = {name: tensor.clone() for name, tensor in to_huggingface(small()).items()}
    save_file(state, folder / name) if name.endswith("safetensors") else torch.save(state, folder / name)
    how = {"image_mean": [0.1, 0.2, 0.3], "image_std": [0.4, 0.5, 0.6], "resample": 3, "size": 8}
    (folder / "preprocessor_config.json").write_text(json.dumps(how), "utf-8")
    return folder


def timm_folder(folder, architecture="vit_tiny_patch4_8", **changes):
    about = {"mean": [0.1, 0.2, 0.3], "std": [0.4, 0.5, 0.6], "input_size": [3, 8, 8], "crop_pct": 0.95,
             "crop_mode": "center", "interpolation": "bilinear"}  # fmt: skip
    config = {"architecture": architecture, "num_classes": 2, "model_args": {"num_heads": 1}}
    top = {key: changes.pop(key) for key in ("num_classes", "model_args", "global_pool") if key in changes}
    config |= top | {"pretrained_cfg": about | changes}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    save_file({name: tensor.clone() for name, tensor in to_timm(small()).items()}, folder / "model.safetensors")
    return folder


HUB_HF = (("tench", "goldfish"), Preprocessing((8, 8), (0.1, 0.2, 0.3), (0.4, 0.5, 0.6), "none", "bicubic"))
HUB_TIMM = (("class 0", "class 1"), Preprocessing((8, 8), (0.1, 0.2, 0.3), (0.4, 0.5, 0.6), 0.95, "bilinear"))


def test_twelve_class_names_stay_in_order(tmp_path):
    model = ViT(dataclasses.replace(SMALL, num_classes=12))
    hf_folder(tmp_path, id2label={str(k): f"name {k}" for k in range(12)})  # as text, "10" comes before "2"
    save_file({name: tensor.clone() for name, tensor in to_huggingface(model).items()}, tmp_path / "model.safetensors")
    assert vt.load(tmp_path).classes == tuple(f"name {k}" for k in range(12))


class Handler(SimpleHTTPRequestHandler):
    """A folder's files, with the headers that huggingface_hub looks for, and sent from the byte that is asked for.

    ``cut`` hangs up after that many bytes; with ``ranges = False`` all is sent, whatever is asked for.
    """

    cut: int | None = None
    ranges = True
    requests: list[str] = []  # noqa: RUF012
    starts: list[int] = []  # noqa: RUF012

    def end_headers(self):
        self.send_header("ETag", f'"{hashlib.sha256(self.path.encode()).hexdigest()}"')  # what the hub's cache goes by
        self.send_header("X-Repo-Commit", "0" * 40)
        if self.failed:
            self.send_header("X-Error-Code", "EntryNotFound")
        super().end_headers()

    def send_response(self, code, message=None):
        self.failed = code == 404
        super().send_response(206 if self.start and code == 200 else code, message)

    def send_header(self, name, value):
        if name == "Content-Length" and self.start:
            self.send_header("Content-Range", f"bytes {self.start}-{int(value) - 1}/{value}")
            value = str(int(value) - self.start)
        super().send_header(name, value)

    def do_HEAD(self):
        self.start = 0
        super().do_HEAD()

    def do_GET(self):
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        self.start = int(asked[1]) if asked and self.ranges else 0
        self.requests.append(self.path)
        self.starts.append(int(asked[1]) if asked else 0)
        super().do_GET()

    def copyfile(self, source, output):
        source.seek(self.start)
        output.write(source.read(self.cut))

    def log_message(self, *words):
        pass


@pytest.fixture
def web(tmp_path, monkeypatch):
    """A folder that a server on this machine shows, in place of every address that load knows."""
    folder = tmp_path / "web"
    folder.mkdir()
    handler = type("Here", (Handler,), {"requests": [], "starts": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=str(folder)))
    server.handler = handler
    server.folder = folder
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    point_to(monkeypatch, tmp_path, f"http://127.0.0.1:{server.server_port}")
    yield server
    server.shutdown()
    server.server_close()


def point_to(monkeypatch, tmp_path, url):
    constants = huggingface_hub.constants
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
    monkeypatch.setattr(constants, "ENDPOINT", url)
    for module in (constants, huggingface_hub.file_download):  # which of them counts depends on its version
        template = url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(module, "HUGGINGFACE_CO_URL_TEMPLATE", template, raising=False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(hub, "GOOGLE_BUCKET", f"{url}/vit_models/")
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    torch.hub.set_dir(str(tmp_path / "torch" / "hub"))


@pytest.fixture(autouse=True)
def _hub_folder_stays():
    yield
    torch.hub._hub_dir = None


def test_the_hub(web):
    hf_folder(web.folder / "google" / "vit-tiny" / "resolve" / "main")
    timm_folder(web.folder / "timm" / "vit_tiny_patch4_8.mine" / "resolve" / "main")
    names = {"hf/google/vit-tiny": HUB_HF, "timm/vit_tiny_patch4_8.mine": HUB_TIMM, "google/vit-tiny": HUB_HF}
    for name, expected in (names | {"hf-hub:timm/vit_tiny_patch4_8.mine": HUB_TIMM}).items():
        for _ in range(2):  # the second time from the cache
            found = vt.load(name)
            assert same(found.model, small())
            assert found[1:] == expected
    downloads = [path for path in web.handler.requests if path.endswith("safetensors")]
    assert len(downloads) == 2


def test_the_hub_s_older_files(web, monkeypatch, tmp_path, refuses):
    folder = hf_folder(web.folder / "google" / "vit-tiny" / "resolve" / "main", "pytorch_model.bin")
    (folder / "preprocessor_config.json").unlink()
    assert same(vt.load("hf/google/vit-tiny").model, small())
    # Without a network it is still known that two of four files don't exist, and of another repository nothing is.
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    assert same(vt.load("hf/google/vit-tiny").model, small())
    shutil.rmtree(tmp_path / "hub" / "models--google--vit-tiny" / ".no_exist")
    with refuses(OSError, "model.safetensors", "https://huggingface.co/google/vit-tiny"):
        vt.load("hf/google/vit-tiny")


def test_the_hub_s_shards(web):
    folder = hf_folder(web.folder / "google" / "vit-tiny" / "resolve" / "main")
    state = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    index = {}
    for i, part in enumerate((sorted(state)[::2], sorted(state)[1::2])):
        save_file({name: state[name] for name in part}, folder / f"{i}.safetensors")
        index |= dict.fromkeys(part, f"{i}.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    assert same(vt.load("hf/google/vit-tiny").model, small())


def test_google_s_bucket(web):
    (web.folder / "vit_models" / "augreg").mkdir(parents=True)
    (web.folder / "vit_models" / "sam").mkdir()
    write(web.folder / "vit_models" / "augreg" / "S_4-i1k.npz", small(1))
    write(web.folder / "vit_models" / "sam" / "S_4-i1k.npz", small(2))  # folders repeat file names
    for _ in range(2):
        assert same(vt.load("google/S_4-i1k.npz").model, small(1))
    assert same(vt.load("google/sam/S_4-i1k.npz").model, small(2))
    assert len(web.handler.requests) == 2


@pytest.fixture
def bucket(web, tmp_path):
    """The paper's bucket with one file, and where that is kept."""
    (web.folder / "vit_models" / "augreg").mkdir(parents=True)
    web.cache = tmp_path / "torch" / "hub" / "checkpoints" / "vit_models" / "augreg"
    web.file = write(web.folder / "vit_models" / "augreg" / "x.npz", small())
    return web


@pytest.fixture
def vit_b_16(web, monkeypatch):
    """Torchvision's weights for vit_b_16 are a small file on our server, its name with or without the right hash."""
    kind = torchvision.models.ViT_B_16_Weights

    def put(right=True):
        path = web.folder / "new.pth"
        torch.save(to_torchvision(small()), path)
        digest = hashlib.sha256(path.read_bytes()).hexdigest()[:8] if right else "01234567"
        path = path.rename(web.folder / f"vit_b_16-{digest}.pth")
        url = f"http://127.0.0.1:{web.server_port}/{path.name}"
        for member in kind:
            object.__setattr__(member.value, "url", url)
        return path

    before = {member: member.value.url for member in kind}
    yield put
    for member, url in before.items():
        object.__setattr__(member.value, "url", url)


def test_torchvision_by_name(vit_b_16, tmp_path):
    path = vit_b_16()
    for name, crop, mode in (
        ("torchvision/vit_b_16", 224 / 256, "bilinear"),
        ("torchvision/vit_b_16.IMAGENET1K_SWAG_LINEAR_V1", 1.0, "bicubic"),
    ):
        found = vt.load(name)
        assert same(found.model, small())
        assert found.classes == ("class 0", "class 1")  # a thousand names would be wrong for two classes
        assert (found.preprocess.crop, found.preprocess.interpolation) == (crop, mode)
        assert found.preprocess.image_size == (8, 8)
        assert found.preprocess.mean == (0.485, 0.456, 0.406)
        assert found.preprocess.std == (0.229, 0.224, 0.225)
        assert found.assumed == {}  # its code tells what the tensors don't
    assert (tmp_path / "torch" / "hub" / "checkpoints" / path.name).exists()


def test_a_download_with_another_hash(vit_b_16, refuses, tmp_path):
    path = vit_b_16(right=False)
    with refuses(OSError, path.name, "hash", "can't be downloaded"):
        vt.load("torchvision/vit_b_16")
    assert [file.suffix for file in (tmp_path / "torch" / "hub" / "checkpoints").iterdir()] == [".lock"]


def test_a_page_in_place_of_a_file_is_not_kept(bucket, refuses):
    bucket.file.write_text("<html>Please log in.</html>")
    with refuses(OSError, "x.npz", "no such file"):
        vt.load("google/x.npz")
    assert [file.name for file in bucket.cache.iterdir()] == ["x.npz.lock"]


@pytest.mark.parametrize("ranges", [True, False])
def test_a_download_cut_short_goes_on_next_time(ranges, bucket, refuses):
    cache, bucket.handler.ranges, bucket.handler.cut = bucket.cache, ranges, 5000
    with refuses(OSError, "x.npz", "broke off"):
        vt.load("google/x.npz")
    assert not (cache / "x.npz").exists()
    assert (cache / "x.npz.part").stat().st_size == 5000
    bucket.handler.cut = None
    assert same(vt.load("google/x.npz").model, small())
    assert bucket.handler.starts == [0, 4999]
    assert (cache / "x.npz").read_bytes() == bucket.file.read_bytes()
    assert not (cache / "x.npz.part").exists()


@pytest.mark.parametrize("there", ["all", "nothing"])
def test_a_process_that_died_at_either_end_of_a_download(there, bucket):
    bucket.cache.mkdir(parents=True)
    content = bucket.file.read_bytes()
    (bucket.cache / "x.npz.part").write_bytes(content if there == "all" else b"")
    assert same(vt.load("google/x.npz").model, small())
    assert bucket.handler.starts == [len(content) - 1 if there == "all" else 0]


def test_several_processes_download_once(bucket):
    with ThreadPoolExecutor(4) as pool:  # a lock on a file holds off threads as it does processes
        for found in pool.map(lambda _: vt.load("google/x.npz"), range(4)):
            assert same(found.model, small())
    assert len(bucket.handler.requests) == 1


def test_huggingface_gives_up_in_one_line(web, monkeypatch, refuses):
    hf_folder(web.folder / "google" / "vit-tiny" / "resolve" / "main")
    monkeypatch.setattr("huggingface_hub.file_download.time.sleep", lambda seconds: None)
    web.handler.cut = 1000  # less than a chunk, so that it never gets further
    with refuses(OSError, "model.safetensors", "can't be downloaded", "https://huggingface.co/google/vit-tiny"):
        vt.load("hf/google/vit-tiny")


def test_a_download_waits_half_a_minute_at_most(tmp_path, monkeypatch):
    point_to(monkeypatch, tmp_path, "http://127.0.0.1:9")
    limits = []

    def nobody(request, timeout=None):
        limits.append(timeout)
        raise urllib.error.URLError("no network")

    monkeypatch.setattr(hub, "_answers", lambda url: True)
    monkeypatch.setattr(hub, "urlopen", nobody)
    with pytest.raises(OSError, match="no network"):
        vt.load("google/x.npz")
    assert limits == [30]


@pytest.mark.parametrize("name", ["google/x.npz", "google/vit-base-patch16-224"])
def test_a_server_that_takes_a_call_and_says_nothing_isn_t_waited_for(name, tmp_path, monkeypatch, refuses):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        point_to(monkeypatch, tmp_path, f"http://127.0.0.1:{silent.getsockname()[1]}")
        assert hub.PATIENCE < 5
        monkeypatch.setattr(hub, "PATIENCE", 0.2)
        with refuses(OSError, "can't be downloaded (127.0.0.1 doesn't answer within 0.2 s)"):
            vt.load(name)


def test_looking_up_a_name_for_ever_isn_t_waited_for(tmp_path, monkeypatch, refuses):
    point_to(monkeypatch, tmp_path, "http://127.0.0.1:9")
    asked = threading.Event()

    def looks_up(*_, **__):
        asked.wait(60)
        raise OSError

    monkeypatch.setattr(hub, "urlopen", looks_up)
    monkeypatch.setattr(hub, "PATIENCE", 0.2)
    with refuses(OSError, "can't be downloaded"):
        vt.load("torchvision/vit_b_16")
    asked.set()


def test_a_damaged_file_in_the_cache_says_what_to_do(bucket, refuses):
    path = bucket.cache / "x.npz"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"nothing")
    with refuses(ValueError, str(path), "damaged", "remove"):
        vt.load("google/x.npz")


@pytest.mark.parametrize("name", ["google/x.npz", "hf/x.safetensors", "timm/mine/x.pth"])
def test_a_file_on_disk_comes_before_a_download(name, tmp_path, monkeypatch):
    point_to(monkeypatch, tmp_path, "http://127.0.0.1:9")
    monkeypatch.chdir(tmp_path)
    path = tmp_path / name
    path.parent.mkdir(parents=True)
    write(path, small())
    assert same(vt.load(name).model, small())


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("torchvision/vit_b_16", ["vit_b_16-c867db91.pth", "https://download.pytorch.org", "checkpoints"]),
        ("google/B_16.npz", ["B_16.npz", "/vit_models/augreg/B_16.npz", "checkpoints"]),
        ("timm/vit_tiny_patch16_224.mine", ["config.json", "https://huggingface.co/timm/vit_tiny_patch16_224.mine"]),
        *(
            (name, ["config.json", "https://huggingface.co/google/vit-base-patch16-224"])
            for name in (
                "hf/google/vit-base-patch16-224",
                "google/vit-base-patch16-224",
                "hf-hub:google/vit-base-patch16-224",
            )
        ),
        ("facebook/dinov2-base", ["config.json", "https://huggingface.co/facebook/dinov2-base"]),
    ],
)
def test_without_a_network_one_line_says_which_file_to_put_where(name, words, tmp_path, monkeypatch):
    point_to(monkeypatch, tmp_path, "http://127.0.0.1:9")  # nobody listens there
    monkeypatch.setattr(hub, "urlopen", no_network)
    with pytest.raises(OSError, match="can't be downloaded") as caught:
        vt.load(name)
    line = str(caught.value)
    assert "\n" not in line
    assert not [word for word in [*words, "put"] if word not in line], line
    assert caught.value.__suppress_context__


def no_network(*_, **__):
    raise urllib.error.URLError("no network")


def test_doing_what_the_line_says_is_enough(tmp_path, monkeypatch):
    point_to(monkeypatch, tmp_path, "http://127.0.0.1:9")
    with pytest.raises(OSError, match=r"x\.npz") as caught:
        vt.load("google/x.npz")
    folder = Path(str(caught.value).rpartition(" into ")[2].removesuffix(" first"))
    write(folder / "x.npz", small())
    assert same(vt.load("google/x.npz").model, small())


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("torchvision/vit_x_16", ["vit_b_16", "vit_h_14", "'vit_x_16'"]),
        ("torchvision/vit_b_16.V7", ["IMAGENET1K_SWAG_E2E_V1", "'V7'"]),
        ("hf/one/two/three", ["one/two/three"]),
        ("google/../x.npz", ["google/FOLDER/NAME.npz"]),
        ("jax/a vit", ["'jax/a vit'", "torchvision/NAME", "google/NAME", "OWNER/NAME"]),
        ("timm/", ["'timm/'", "timm/NAME"]),
    ],
)
def test_unknown_names(name, words, refuses):
    with refuses(ValueError, *words):
        vt.load(name)


def test_torchvision_s_class_names(monkeypatch):
    state = to_torchvision(ViT(dataclasses.replace(SMALL, num_classes=1000)))
    monkeypatch.setattr(hub, "download", lambda url, file: state)
    classes = vt.load("torchvision/vit_b_16").classes
    assert (len(classes), classes[0], classes[-1]) == (1000, "tench", "toilet tissue")


def test_imagenet_s_class_names(monkeypatch, tmp_path):
    thousand = ViT(dataclasses.replace(SMALL, num_classes=1000))
    path = write(tmp_path / "B_4-imagenet2012.npz", thousand)
    monkeypatch.setattr(hub, "download", lambda url, file: weights.read(path))
    for name, first in (("google/B_4--imagenet2012.npz", "tench"), ("google/B_4-i21k.npz", "class 0")):
        assert vt.load(name).classes[0] == first
    timm_folder(tmp_path, num_classes=1000)
    save_file({name: tensor.clone() for name, tensor in to_timm(thousand).items()}, tmp_path / "model.safetensors")
    monkeypatch.setattr(hub, "repository", lambda *_: lambda file: p if (p := tmp_path / file).exists() else None)
    assert vt.load("timm/vit_tiny_patch4_8.augreg_in1k").classes[0] == "tench"
    assert vt.load("timm/vit_tiny_patch4_8.mine").classes[0] == "class 0"


def test_a_revision_and_a_token_of_the_hub(web, monkeypatch):
    hf_folder(web.folder / "google" / "vit-tiny" / "resolve" / "v2")
    asked = []
    download = huggingface_hub.hf_hub_download
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", lambda *a, **k: asked.append(k) or download(*a, **k))
    assert same(vt.load("google/vit-tiny", revision="v2", token="hf_x").model, small())
    assert {(one["revision"], one["token"]) for one in asked} == {("v2", "hf_x")}


@pytest.mark.slow
def test_one_thing_changed_at_random_is_equal_warned_of_or_refused(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "benchmarks")
    drawn = importlib.import_module("drawn")
    counts, wrong = drawn.run(300, 1)
    assert not wrong
    assert counts["refused"] > 100
    assert counts["equal"] > 30
