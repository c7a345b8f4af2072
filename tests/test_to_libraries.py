"""Lesson 09: our tensors in timm's, torchvision's and transformers' models: equal, and read again; or refused."""

import copy
import dataclasses
from functools import partial

import pytest
import timm
import torch
import transformers
from peers import randomise
from timm.models import VisionTransformer
from torch.testing import assert_close

import vit_tutorial as vt
from vit_tutorial import weights
from vit_tutorial.variants import modern
from vit_tutorial.variants.positions import PositionConfig, PositionViT
from vit_tutorial.weights import convert, timm_models, torchvision_models, transformers_models

PLAIN = vt.ViTConfig(image_size=32, patch_size=8, num_classes=3, dim=32, depth=2, num_heads=2, mlp_dim=40)
with_ = dataclasses.replace
LIBRARIES = {
    "timm": (weights.timm_model, timm_models.describe),
    "torchvision": (weights.torchvision_model, torchvision_models.describe),
    "transformers": (weights.huggingface_model, transformers_models.describe),
}
ALL = tuple(LIBRARIES)
MODELS = {  # the config, and who has it
    "plain": (PLAIN, ALL),
    "without a head": (with_(PLAIN, num_classes=0), ALL),
    "tanh, no bias": (with_(PLAIN, gelu="tanh", qkv_bias=False, norm_eps=1e-5), ("timm", "transformers")),
    "a rectangle": (with_(PLAIN, image_size=(32, 48), patch_size=(8, 16)), ("timm", "transformers")),
    "the mean": (with_(PLAIN, pool="mean"), ("timm",)),
    "no positions": (with_(PLAIN, position="none", in_channels=1), ("timm",)),
    "sines": (with_(PLAIN, position="sincos"), ALL),
}
CASES = [(model, library) for model, (_, libraries) in MODELS.items() for library in libraries]


def same_answers(ours, answer):
    images = torch.rand(2, ours.config.in_channels, *vt.patches.as_pair(ours.config.image_size, "image_size"))
    with torch.inference_mode():
        expected = ours(images)
        assert_close(answer(images), expected, rtol=0, atol=1e-4 * float(expected.std()))


@pytest.mark.parametrize(("model", "library"), CASES)
def test_a_plain_model_goes_there_and_back(model, library):
    ours = randomise(vt.ViT(MODELS[model][0])).eval()
    build, describe = LIBRARIES[library]
    published = describe(build(ours))
    again = convert.model_of(published)
    same_answers(ours, published.forward)
    same_answers(ours, again)
    if ours.config.position != "sincos":  # which a library stores as learned ones
        assert again.config == ours.config


TIMM = ["vit_small_patch14_reg4_dinov2", "vit_small_patch16_dinov3", "eva02_tiny_patch14_224", "beit_base_patch16_224",
        "vit_base_patch32_clip_224", "vit_base_patch16_siglip_224", "deit_tiny_distilled_patch16_224"]  # fmt: skip


@pytest.mark.parametrize("name", TIMM)
def test_a_model_of_timm_s_goes_back(name):
    def build(seed):
        return randomise(timm.create_model(name, embed_dim=64, depth=2, num_heads=2, num_classes=5), seed).eval()

    ours = convert.model_of(timm_models.describe(build(1)))
    same_answers(ours, weights.copy_into(ours, build(2)))


@pytest.mark.parametrize(
    "name", ["Dinov2WithRegistersForImageClassification", "CLIPVisionModelWithProjection", "SiglipVisionModel"]
)
def test_a_model_of_transformers_goes_back(name):
    kind = getattr(transformers, name)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 32, "patch_size": 8}

    def build(seed):
        return randomise(kind(kind.config_class(**sizes)), seed).eval()

    ours = convert.model_of(transformers_models.describe(build(1)))
    same_answers(ours, transformers_models.describe(weights.copy_into(ours, build(2))).forward)


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
    "a rectangle": (weights.to_torchvision, with_(PLAIN, image_size=(32, 48)), "squares"),
    "two channels": (weights.to_torchvision, with_(PLAIN, in_channels=2), "three channels"),
    "another GELU": (weights.to_torchvision, with_(PLAIN, gelu="tanh"), "after block 0"),
    "no class token": (weights.to_torchvision, with_(PLAIN, pool="mean"), "embed.position"),
    "no positions": (weights.to_huggingface, with_(PLAIN, position="none"), "before block 0"),
    "newer parts": (weights.to_timm, modern.ModernConfig(layer_scale=0.1, depth=1), "copy_into"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_a_library_cannot_express(case, refuses):
    there, config, words = REFUSED[case]
    with refuses(ValueError, words):
        there(randomise(modern.build(config)).eval())


def test_a_model_that_it_does_not_fit_into(refuses):
    ours = randomise(vt.ViT(PLAIN)).eval()
    sizes = {"img_size": 32, "patch_size": 8, "num_classes": 3, "embed_dim": 32, "depth": 2, "num_heads": 2}
    with refuses(ValueError, "blocks.0.mlp.fc1.weight has the shape (40, 32)"):
        weights.copy_into(ours, VisionTransformer(**sizes))
    clip = modern.ModernViT(modern.ModernConfig(**dataclasses.asdict(PLAIN) | {"mlp_dim": 128}, pre_norm=True))
    with refuses(ValueError, "embed.norm.weight"):
        weights.copy_into(randomise(clip).eval(), VisionTransformer(**sizes))
    for original in (VisionTransformer(**sizes), VisionTransformer(**sizes | {"depth": 3}, mlp_ratio=1.26)):
        before = copy.deepcopy(original.train().bfloat16().state_dict())
        with refuses(ValueError, "blocks"):
            weights.copy_into(ours, original)
        after = original.state_dict()
        assert original.training
        assert all(torch.equal(tensor, after[name]) for name, tensor in before.items())
    with refuses(TypeError, "timm, torchvision, transformers", "Linear"):
        weights.copy_into(ours, torch.nn.Linear(2, 2))


def test_models_with_parts_of_their_own(refuses):
    for there in (weights.to_timm, weights.to_torchvision, weights.to_huggingface):
        with refuses(TypeError, "PositionViT"):
            there(PositionViT(PositionConfig(**vars(PLAIN), kind="2d")))
