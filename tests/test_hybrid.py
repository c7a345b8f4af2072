"""The hybrid input: convolutions in front of the tokens."""

import json
from dataclasses import asdict

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from peers import randomise
from torch import nn
from torchvision.models import VisionTransformer
from torchvision.models.vision_transformer import ConvStemConfig

import vit_tutorial as vt
from vit_tutorial.variants import hybrid

EARLY = hybrid.ConvStem(((8, 3, 1), (12, 3, 2), (16, 3, 2)))
SMALL = {"image_size": 32, "patch_size": 4, "num_classes": 5, "dim": 16, "depth": 2, "num_heads": 2, "mlp_dim": 40}


def config_of(stem, **changes):
    return hybrid.HybridConfig(**({**SMALL, "stem": stem} | changes))


def test_the_convolutions_are_torchvision_s():
    layers = [ConvStemConfig(*layer) for layer in EARLY.layers]
    theirs = randomise(VisionTransformer(32, 4, 1, 2, 16, 40, conv_stem_configs=layers).conv_proj).double().eval()
    ours = hybrid.HybridViT(config_of(EARLY)).embed.patches.double().eval()
    ours.load_state_dict(dict(zip(ours.state_dict(), theirs.state_dict().values(), strict=True)))
    images = torch.randn(2, 3, 32, 32, dtype=torch.float64)
    torch.testing.assert_close(ours(images), theirs(images).flatten(2).mT, rtol=0, atol=1e-12)


@pytest.mark.parametrize("pool", ["cls", "mean"])
def test_behind_the_stem_it_is_the_plain_model(pool):
    model = randomise(hybrid.HybridViT(config_of(EARLY, pool=pool))).double().eval()
    plain = vt.ViT(vt.ViTConfig(**SMALL, pool=pool)).double().eval()
    kept = {name: tensor for name, tensor in model.state_dict().items() if not name.startswith("embed.patches.")}
    assert not plain.load_state_dict(kept, strict=False).unexpected_keys
    plain.embed.patches = model.embed.patches
    images = torch.randn(2, 3, 32, 32, dtype=torch.float64)
    assert torch.equal(model(images), plain(images))


def test_a_config_is_hashable_and_survives_json():
    config = config_of(EARLY)
    again = hybrid.HybridConfig(**json.loads(json.dumps(asdict(config))))
    assert again == config
    assert hash(again) == hash(config)


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        (lambda: config_of(EARLY, patch_size=2), ValueError, "not a multiple of 4"),
        (lambda: config_of("conv"), TypeError, r"ConvStem.*'conv'"),
        (lambda: hybrid.ConvStem(()), ValueError, "at least one"),
        (lambda: hybrid.ConvStem(((8, 3),)), ValueError, "channels, kernel size, stride"),
        (lambda: hybrid.ConvStem((8, 3, 2)), ValueError, "channels, kernel size, stride"),
        (lambda: hybrid.ConvStem(((8, 3, 0),)), ValueError, "channels, kernel size, stride"),
        (lambda: hybrid.ConvStem(((8, 4, 1),)), ValueError, "even kernel"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(wrong, error, message):
    with pytest.raises(error, match=message):
        wrong()


# ---------------------------------------------------------------------------------------- around a map of one's own


def test_any_feature_map_becomes_tokens():
    features = nn.Sequential(nn.Conv2d(3, 6, 5, stride=4, padding=2), nn.Tanh())
    embed = hybrid.HybridEmbed(features, (32, 16), patch_size=(2, 1), dim=16)
    images = torch.rand(2, 3, 32, 16)
    maps = features(images)  # (2, 6, 8, 4)
    assert embed.grid == (4, 4)
    expected = vt.patchify(maps, (2, 1)) @ embed.proj.weight.flatten(1).T + embed.proj.bias
    torch.testing.assert_close(embed(images), expected)


def test_the_feature_map_s_shape_is_found_without_touching_the_module():
    features = nn.Sequential(nn.Conv2d(3, 4, 3, 2, 1), nn.BatchNorm2d(4), nn.Dropout())
    before = {name: tensor.clone() for name, tensor in features.state_dict().items()}
    chance = torch.get_rng_state()
    shape = hybrid._output_shape(features, (3, 20, 12))
    assert shape == (4, 10, 6)
    assert all(torch.equal(tensor, before[name]) for name, tensor in features.state_dict().items())
    assert torch.equal(torch.get_rng_state(), chance)


@pytest.mark.parametrize(
    ("features", "patch_size"), [(nn.Flatten(), 1), (nn.Conv2d(3, 4, 3, padding=1), 5), (nn.AdaptiveAvgPool2d(1), 2)]
)
def test_a_map_that_patches_do_not_divide_is_refused(features, patch_size):
    with pytest.raises(ValueError, match="a feature map"):
        hybrid.HybridEmbed(features, 32, patch_size)


@settings(deadline=None, max_examples=20)
@given(st.lists(st.tuples(st.integers(1, 8), st.integers(1, 7), st.integers(1, 3)), min_size=1, max_size=3))
def test_a_convolutional_stem_makes_the_grid_that_the_config_says(layers):
    stem = hybrid.ConvStem(tuple((c, k + (k % 2 == 0 and s == 1), s) for c, k, s in layers))
    config = hybrid.HybridConfig(
        image_size=(2 * stem.stride, 3 * stem.stride), patch_size=stem.stride, dim=8, depth=1, num_heads=1, mlp_dim=8,
        num_classes=2, stem=stem,
    )  # fmt: skip
    model = hybrid.HybridViT(config).eval()
    assert model.embed.patches.grid == config.grid == (2, 3)
    assert model(torch.rand(1, 3, *config.image_size)).shape == (1, 2)
