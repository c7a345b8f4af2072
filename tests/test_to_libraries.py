"""Lesson 09: our tensors in timm's, torchvision's and transformers' models: equal, and read again; or refused."""

import dataclasses
from functools import partial

import pytest
import timm
import torch
import transformers
from peers import randomise
from torch.testing import assert_close

import vit_tutorial as vt
from vit_tutorial import weights
from vit_tutorial.variants import modern
from vit_tutorial.variants.positions import PositionViT
from vit_tutorial.weights import adapters, convert

PLAIN = vt.ViTConfig(image_size=32, patch_size=8, num_classes=3, dim=32, depth=2, num_heads=2, mlp_dim=40)
NEWER = modern.ModernConfig(image_size=32, patch_size=8, num_classes=3, dim=32, depth=2, num_heads=2, mlp_dim=128)
with_ = dataclasses.replace
LIBRARIES = {
    "timm": (weights.timm_model, adapters.from_timm),
    "torchvision": (weights.torchvision_model, adapters.from_torchvision),
    "transformers": (weights.huggingface_model, adapters.from_transformers),
}
DINO = with_(NEWER, layer_scale=0.1)
BEIT = with_(
    NEWER,
    position="none",
    position_bias=True,
    k_bias=False,
    pool="mean",
    final_norm=False,
    pool_norm=True,
    layer_scale=0.1,
)
EVA = with_(NEWER, rotary=modern.Rotary("index", 10_000.0, (16, 16)), k_bias=False, gated=True, mlp_norm=True)
DINO_3 = with_(DINO, position="none", rotary=modern.Rotary(), k_bias=False, registers=4)
MODELS = {  # the config, and who has it
    "plain": (PLAIN, ("timm", "torchvision", "transformers")),
    "without a head": (with_(PLAIN, num_classes=0), ("timm", "torchvision", "transformers")),
    "tanh, no bias": (with_(PLAIN, gelu="tanh", qkv_bias=False, norm_eps=1e-5), ("timm", "transformers")),
    "a rectangle": (with_(PLAIN, image_size=(32, 48), patch_size=(8, 16)), ("timm", "transformers")),
    "the mean": (with_(PLAIN, pool="mean"), ("timm",)),
    "no positions": (with_(PLAIN, position="none", in_channels=1), ("timm",)),
    "sines": (with_(PLAIN, position="sincos"), ("timm", "torchvision", "transformers")),
    "distilled": (with_(NEWER, pool="distilled"), ("timm",)),
    "DINOv2": (DINO, ("timm",)),
    "DINOv2 with its head": (with_(DINO, pool="cls+mean"), ("transformers",)),
    "DINOv2 without a head": (with_(DINO, num_classes=0), ("timm", "transformers")),
    "registers": (with_(DINO, registers=3, num_classes=0), ("timm", "transformers")),
    "DINOv3": (with_(DINO_3, num_classes=0), ("timm", "transformers")),
    "CLIP": (with_(NEWER, pre_norm=True, gelu="quick", norm_eps=1e-5), ("timm",)),
    "CLIP without a head": (with_(NEWER, pre_norm=True, gelu="quick", num_classes=0), ("timm", "transformers")),
    "SigLIP": (with_(NEWER, class_token=False, pool="attention", gelu="tanh", num_classes=0), ("timm", "transformers")),
    "BEiT": (BEIT, ("timm", "transformers")),
    "EVA-02": (EVA, ("timm",)),
    "gated": (with_(NEWER, gated=True, qk_norm=True), ("timm",)),
}
CASES = [(model, library) for model, (_, libraries) in MODELS.items() for library in libraries]


@pytest.mark.parametrize(("model", "library"), CASES)
def test_there_and_back(model, library):
    ours = randomise(modern.build(MODELS[model][0])).eval()
    build, adapter = LIBRARIES[library]
    theirs = build(ours)
    twin = adapter(theirs)
    again = convert.model_of(twin)
    images = torch.rand(2, ours.config.in_channels, *vt.patches.as_pair(ours.config.image_size, "image_size"))
    with torch.inference_mode():
        expected = ours(images)
        assert_close(twin.answer(images), expected, rtol=0, atol=1e-4 * float(expected.std()))
        assert_close(again(images), expected, rtol=0, atol=1e-4 * float(expected.std()))
    if ours.config.position != "sincos":  # which a library stores as learned ones
        start = {"layer_scale": ours.config.layer_scale} if getattr(ours.config, "layer_scale", None) else {}
        assert dataclasses.replace(again.config, **start) == ours.config


def test_state_dicts_are_read_strictly():
    ours = randomise(vt.ViT(PLAIN)).eval()
    theirs = timm.create_model(
        "vit_tiny_patch16_224", img_size=32, patch_size=8, embed_dim=32, depth=2, num_heads=2, mlp_ratio=40.5 / 32,
        num_classes=3, norm_layer=partial(torch.nn.LayerNorm, eps=1e-6),
    )  # fmt: skip
    theirs.load_state_dict(weights.to_timm(ours))
    images = torch.rand(2, 3, 32, 32)
    assert_close(theirs.eval()(images), ours(images), rtol=0, atol=1e-5)
    assert len(weights.to_torchvision(ours)) == len(weights.to_timm(ours)) == 32
    assert len(weights.to_huggingface(ours)) == 32 + 2 * 4  # q, k and v apart


def test_transformers_reads_what_it_saves(tmp_path):
    ours = randomise(vt.ViT(PLAIN)).eval()
    weights.huggingface_model(ours).save_pretrained(tmp_path)
    transformers.ViTImageProcessor(size={"height": 32, "width": 32}).save_pretrained(tmp_path)
    found = vt.load(tmp_path).model
    state = found.state_dict()
    assert all(torch.equal(tensor, state[name]) for name, tensor in ours.state_dict().items())


REFUSED = {
    "a rectangle": (weights.to_torchvision, with_(PLAIN, image_size=(32, 48))),
    "two channels": (weights.to_torchvision, with_(PLAIN, in_channels=2)),
    "another GELU": (weights.to_torchvision, with_(PLAIN, gelu="tanh")),
    "no class token": (weights.to_torchvision, with_(PLAIN, pool="mean")),
    "no positions": (weights.to_huggingface, with_(PLAIN, position="none")),
    "newer parts": (weights.to_torchvision, DINO),
    "a mean and a class token": (weights.to_timm, with_(DINO, pool="cls+mean")),
    "gates and registers beside position biases": (weights.to_timm, with_(BEIT, gated=True, qkv_bias=False)),
    "a norm of queries": (weights.to_huggingface, with_(DINO, qk_norm=True, num_classes=0)),
    "a bias of the projection": (weights.to_huggingface, with_(NEWER, pre_norm=True)),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_a_library_cannot_express(case, refuses):
    there, config = REFUSED[case]
    with refuses(ValueError, ""):
        there(randomise(modern.build(config)).eval())


def test_models_with_parts_of_their_own(refuses):
    for there in (weights.to_timm, weights.to_torchvision, weights.to_huggingface):
        with refuses(TypeError, "PositionViT"):
            there(PositionViT(PLAIN, "2d"))
