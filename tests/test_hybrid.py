"""The hybrid input: a stem as a field of the config, the paper's ResNet V2, timm's and torchvision's logits."""

import json
import math
from dataclasses import asdict, replace
from functools import partial

import numpy as np
import pytest
import safetensors.torch
import timm
import timm.models.vision_transformer_hybrid as timm_hybrid
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from peers import randomise
from timm.models.resnetv2 import ResNetV2 as TimmResNetV2
from torch import nn
from torchvision.models import VisionTransformer
from torchvision.models.vision_transformer import ConvStemConfig

import vit_tutorial as vt
from vit_tutorial.variants import hybrid
from vit_tutorial.weights import keeping

EARLY = hybrid.ConvStem(((8, 3, 1), (12, 3, 2), (16, 3, 2)))
R26 = hybrid.ResNetStem((2, 2, 2, 2), width=32)
SMALL = {"image_size": 32, "patch_size": 4, "num_classes": 5, "dim": 16, "depth": 2, "num_heads": 2, "mlp_dim": 40}


def config_of(stem, **changes):
    return vt.ViTConfig(**({**SMALL, "stem": stem} | changes))


def filled(module, seed=0):
    """Random numbers in every tensor, statistics of batch norms included; in float64, ready to be asked."""
    randomise(module, seed)
    generator = torch.Generator().manual_seed(seed)
    for name, buffer in module.named_buffers():
        if name.endswith("running_mean"):
            buffer.copy_(torch.randn(buffer.shape, generator=generator))
        if name.endswith("running_var"):
            buffer.copy_(0.5 + torch.rand(buffer.shape, generator=generator))
    return module.double().eval()


def known(**more):
    """What a file of tensors doesn't tell, so that nothing is assumed."""
    return {"num_heads": 2, "gelu": "exact", "norm_eps": 1e-6} | more


def ours_from(state, source="timm", *, image_size=64, **more):
    preprocess = vt.data.Preprocessing((image_size, image_size), (0.5,) * 3, (0.5,) * 3)
    config, tensors, _ = vt.weights.convert(
        state, source, image_size=image_size, preprocess=preprocess, **known(**more)
    )
    model = vt.ViT(config).double().eval()
    model.load_state_dict(tensors)
    return model


def assert_same(ours, theirs, size=64):
    images = torch.randn(1, 3, size, size, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    with torch.inference_mode():
        assert (ours(images) - theirs(images)).abs().max() < 1e-8
        assert ours(images).std() > 1e-3


# ------------------------------------------------------------------------------------------------ the config's field


@pytest.mark.parametrize("stem", [EARLY, R26, hybrid.ResNetStem((), width=32)])
def test_a_stem_has_as_many_parameters_and_macs_as_the_formulas_say(stem):
    config = config_of(stem, image_size=64, patch_size=32)
    model = vt.ViT(config)
    macs = 0

    def count(layer, inputs, output):
        nonlocal macs
        macs += output[0].numel() * layer.weight[0].numel()

    for layer in model.embed.modules():
        if isinstance(layer, nn.Conv2d):
            layer.register_forward_hook(count)
    assert model(torch.rand(1, 3, 64, 64)).shape == (1, 5)
    assert vt.count_parameters(config) == sum(p.numel() for p in model.parameters())
    N, D = math.prod(config.grid), config.dim
    without = vt.count_macs(replace(config, stem=None)) - N * 3 * 32 * 32 * D
    assert vt.count_macs(config) == without + macs


@pytest.mark.parametrize("stem", [EARLY, R26])
def test_a_config_with_a_stem_is_hashable_and_survives_json(stem):
    config = config_of(stem, patch_size=32)
    text = json.dumps(asdict(config))
    fields = json.loads(text)
    again = vt.ViTConfig(**(fields | {"stem": hybrid.stem_from(fields["stem"])}))
    assert again == config
    assert hash(again) == hash(config)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: config_of(EARLY, patch_size=2), "patch_size 2 is not a multiple of 4"),
        (lambda: config_of(R26, patch_size=(32, 16)), "not a multiple of 32"),
        (lambda: hybrid.ConvStem(()), "at least one"),
        (lambda: hybrid.ConvStem(((8, 3),)), "channels, kernel size, stride"),
        (lambda: hybrid.ConvStem(((8, 3, 0),)), "channels, kernel size, stride"),
        (lambda: hybrid.ConvStem(((8, 4, 1),)), "even kernel"),
        (lambda: hybrid.ResNetStem((2, 0)), "at least one block"),
        (lambda: hybrid.ResNetStem((2,), width=48), "multiple of 32"),
        (lambda: hybrid.stem_from({"width": 3}), "layers or blocks"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(wrong, message):
    with pytest.raises(ValueError, match=message):
        wrong()


def test_something_else_as_a_stem_is_refused():
    with pytest.raises(TypeError, match=r"hybrid.*'conv'"):
        config_of("conv")


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


@pytest.mark.parametrize("images", [torch.rand(2, 3, 16, 32), torch.rand(3, 32, 32), torch.rand(2, 1, 32, 32)])
def test_images_of_another_shape_are_refused(images):
    with pytest.raises(ValueError, match=r"images|expected"):
        vt.ViT(config_of(EARLY))(images)


def test_images_of_whole_numbers_are_refused():
    with pytest.raises(TypeError, match="floating point"):
        vt.ViT(config_of(EARLY))(torch.zeros(2, 3, 32, 32, dtype=torch.uint8))


@settings(deadline=None, max_examples=20)
@given(st.lists(st.tuples(st.integers(1, 8), st.integers(1, 7), st.integers(1, 3)), min_size=1, max_size=3))
def test_a_convolutional_stem_makes_the_grid_that_the_config_says(layers):
    stem = hybrid.ConvStem(tuple((c, k + (k % 2 == 0 and s == 1), s) for c, k, s in layers))
    config = vt.ViTConfig(
        image_size=(2 * stem.stride, 3 * stem.stride), patch_size=stem.stride, dim=8, depth=1, num_heads=1, mlp_dim=8,
        num_classes=2, stem=stem,
    )  # fmt: skip
    model = vt.ViT(config).eval()
    assert model.embed.patches.grid == config.grid == (2, 3)
    assert model(torch.rand(1, 3, *config.image_size)).shape == (1, 2)


# --------------------------------------------------------------------------------------------------- the same logits

RESNETS = [
    "vit_tiny_r_s16_p8_224", "vit_tiny_r_s16_p8_384", "vit_small_r26_s32_224", "vit_small_r26_s32_384",
    "vit_base_r26_s32_224", "vit_base_r50_s16_224", "vit_base_r50_s16_384", "vit_large_r50_s32_224",
    "vit_large_r50_s32_384",
]  # fmt: skip
OTHERS = ["vit_small_resnet26d_224", "vit_small_resnet50d_s16_224", "vit_base_resnet26d_224", "vit_base_resnet50d_224"]


@pytest.fixture
def narrow(monkeypatch):
    """The names of timm with half the channels: the same modules, in a tenth of the time."""
    slim = partial(TimmResNetV2, stem_chs=32, channels=(128, 256, 512, 1024))
    monkeypatch.setattr(timm_hybrid, "ResNetV2", slim)
    stem = timm_hybrid.create_resnetv2_stem
    monkeypatch.setattr(timm_hybrid, "create_resnetv2_stem", partial(stem, out_chs=32))


def timm_s(name, **more):
    sizes = {"img_size": 64, "embed_dim": 16, "depth": 2, "num_heads": 2, "num_classes": 5} | more
    return filled(timm.create_model(name, pretrained=False, **sizes))


def test_the_list_of_timm_s_hybrids_is_whole():
    known_names = {*RESNETS, *OTHERS, "vit_base_mci_224"}
    assert known_names == set(timm.list_models(module="vision_transformer_hybrid"))


# Made for images of one size, those of 384 pixels are the modules of 224 once more, and a small and a base R26 are one.
@pytest.mark.parametrize("name", [name for name in RESNETS if name.endswith("224") and "base_r26" not in name])
def test_timm_s_hybrids_answer_alike_by_name(name, narrow):
    theirs = timm_s(name)
    ours = ours_from(theirs.state_dict())
    assert_same(ours, theirs)
    back, state = vt.weights.to_timm(ours), theirs.state_dict()
    assert back.keys() == state.keys()
    assert all(torch.equal(tensor, state[name]) for name, tensor in back.items())


def test_a_copy_of_timm_s_repository_loads(narrow, tmp_path):
    theirs = timm_s("vit_small_r26_s32_224", num_heads=1).float()
    about = {
        "input_size": [3, 64, 64],
        "mean": [0.5] * 3,
        "std": [0.5] * 3,
        "crop_pct": 0.9,
        "interpolation": "bicubic",
    }
    config = {"architecture": "vit_small_r26_s32_224", "num_classes": 5, "model_args": {"num_heads": 1}}
    (tmp_path / "config.json").write_text(json.dumps(config | {"pretrained_cfg": about}))
    safetensors.torch.save_file(theirs.state_dict(), tmp_path / "model.safetensors")
    model, _, preprocess = vt.load(tmp_path)
    assert model.config.stem == R26
    assert preprocess.crop == 0.9
    assert_same(model.double(), theirs.double())


def test_a_hybrid_of_timm_s_with_another_backbone_is_refused_and_the_way_out_named():
    with pytest.raises(ValueError, match="HybridEmbed takes any"):
        ours_from(timm_s("vit_small_resnet26d_224").state_dict())


def test_a_convolutional_stem_of_torchvision_s_is_refused():
    layers = [ConvStemConfig(*layer) for layer in EARLY.layers]
    theirs = VisionTransformer(32, 4, 2, 2, 16, 40, num_classes=5, conv_stem_configs=layers)
    with pytest.raises(ValueError, match=r"conv_proj\.conv_bn_relu_0.*a convolutional stem of another kind"):
        ours_from(theirs.state_dict(), "torchvision", image_size=32)
    with pytest.raises(ValueError, match="another kind than the paper's ResNet"):
        ours_from(vt.ViT(config_of(EARLY)).state_dict(), "vit_tutorial", image_size=32)


def test_a_kernel_that_is_no_square_is_named(narrow):
    state = timm_s("vit_small_r26_s32_224").state_dict()
    state["patch_embed.backbone.stem.conv.weight"] = torch.ones(3)
    with pytest.raises(ValueError, match=r"stem\.conv.*4 axes"):
        ours_from(state)


def test_transformers_and_torchvision_refuse_what_they_do_not_have():
    with pytest.raises(ValueError, match="transformers's ViT can't have the stem"):
        vt.weights.to_huggingface(vt.ViT(config_of(EARLY)))
    with pytest.raises(ValueError, match="none of timm's models has the stem"):
        vt.weights.to_timm(vt.ViT(config_of(EARLY)))
    with pytest.raises(ValueError, match="torchvision's ViT can't have the stem"):
        vt.weights.to_torchvision(vt.ViT(config_of(R26, patch_size=32)))


def as_google_has_it(model):
    """The arrays of the paper's .npz for timm's hybrid: Flax's names and orders of axes."""
    arrays = {}
    for name, tensor in model.state_dict().items():
        array = tensor.numpy()
        if "backbone" in name:
            part = name.removeprefix("patch_embed.backbone.").replace("stages.", "").replace("blocks.", "")
            *place, layer, leaf = part.split(".")
            leaf = "kernel" if layer.startswith("conv") else {"weight": "scale"}.get(leaf, leaf)
            if not place or place == ["stem"]:
                where = f"{layer.replace('norm', 'gn')}_root"
            else:
                layer = f"{layer}_proj" if place[2:] == ["downsample"] else layer
                where = f"block{int(place[0]) + 1}/unit{int(place[1]) + 1}/{layer.replace('norm', 'gn')}"
            arrays[f"{where}/{leaf}"] = array.transpose(2, 3, 1, 0) if array.ndim == 4 else array
        elif name == "cls_token":
            arrays["cls"] = array
        elif name == "pos_embed":
            arrays["Transformer/posembed_input/pos_embedding"] = array
        elif name.startswith("patch_embed.proj"):
            kernel = array.ndim == 4
            arrays[f"embedding/{'kernel' if kernel else 'bias'}"] = array.transpose(2, 3, 1, 0) if kernel else array
        elif name.startswith(("norm.", "head.")):
            layer, leaf = name.split(".")
            flax = {"norm": ("Transformer/encoder_norm", "scale"), "head": ("head", "kernel")}[layer]
            arrays[f"{flax[0]}/{flax[1] if leaf == 'weight' else 'bias'}"] = array.T
        else:
            _, i, layer, *rest = name.split(".")
            block, leaf = f"Transformer/encoderblock_{i}/", rest[-1]
            if layer in ("norm1", "norm2"):
                where = {"norm1": "LayerNorm_0", "norm2": "LayerNorm_2"}[layer]
                arrays[f"{block}{where}/{'scale' if leaf == 'weight' else 'bias'}"] = array
            elif layer == "mlp":
                where = f"MlpBlock_3/Dense_{int(rest[0][2]) - 1}"
                arrays[f"{block}{where}/{'kernel' if leaf == 'weight' else 'bias'}"] = array.T
            else:
                where = f"{block}MultiHeadDotProductAttention_1/"
                h, D = 2, array.shape[-1] if leaf == "weight" else len(array) // (3 if rest[0] == "qkv" else 1)
                if rest[0] == "qkv":
                    for part, one in zip(("query", "key", "value"), np.split(array, 3), strict=True):
                        turned = one.T.reshape(D, h, D // h) if leaf == "weight" else one.reshape(h, D // h)
                        arrays[f"{where}{part}/{'kernel' if leaf == 'weight' else 'bias'}"] = turned
                else:
                    turned = array.T.reshape(h, D // h, D) if leaf == "weight" else array
                    arrays[f"{where}out/{'kernel' if leaf == 'weight' else 'bias'}"] = turned
    return arrays


@pytest.mark.parametrize("name", ["vit_tiny_r_s16_p8_224", "vit_small_r26_s32_224"])  # without stages, and with
def test_google_s_files_answer_as_in_timm_s_own_loader(name, narrow, tmp_path):
    gelu = partial(nn.GELU, approximate="tanh")
    arrays = as_google_has_it(timm_s(name, act_layer=gelu))
    np.savez(tmp_path / "R.npz", **arrays)
    theirs = timm.create_model(
        name, img_size=64, embed_dim=16, depth=2, num_heads=2, num_classes=5, act_layer=gelu
    ).double()
    theirs.load_pretrained(str(tmp_path / "R.npz"))
    state = vt.weights.read(tmp_path / "R.npz")
    ours = ours_from(state, "google", gelu="tanh")
    assert_same(ours, theirs.eval())


# ------------------------------------------------------------------------------------------------------------- files


def test_a_hybrid_is_saved_and_loaded_as_it_was(tmp_path):
    model = filled(vt.ViT(config_of(EARLY))).float()
    data = vt.data.Data("pictures", None, None, tuple("abcde"), (32, 32), 3, (0.5,) * 3, (0.5,) * 3)
    row = {"epoch": 1, "loss": 1.0, "accuracy": 0.5, "test_loss": 1.0, "test_accuracy": 0.5}
    keeping.save(tmp_path, model, data, [row])
    again = vt.load(tmp_path).model
    images = torch.rand(2, 3, 32, 32)
    assert again.config == model.config
    with torch.inference_mode():
        assert torch.equal(again(images), model(images))
