"""Lesson 15: the model of today against timm's and transformers' own, and the plain ViT as its special case."""

import dataclasses
import json
import math
from functools import partial

import pytest
import torch
from peers import randomise
from timm.layers import SwiGLUPacked
from timm.models import VisionTransformer
from torch import nn
from torch.testing import assert_close

import vit_tutorial as vt
from vit_tutorial.variants import modern
from vit_tutorial.variants.modern import ARCHITECTURES, ModernConfig, ModernViT, QuickGELU, Rotary
from vit_tutorial.weights import convert, timm_models

same = partial(assert_close, rtol=0, atol=1e-8)
TINY = {"image_size": 32, "patch_size": 8, "num_classes": 5, "dim": 32, "depth": 2, "num_heads": 4, "mlp_dim": 48}
PARTS = {  # one at a time, and together
    "layer scale": {"layer_scale": 0.5},
    "registers": {"registers": 3},
    "norm before the blocks": {"pre_norm": True},
    "quick gelu": {"gelu": "quick"},
    "gated": {"gated": True},
    "gated, normed": {"gated": True, "mlp_norm": True},
    "rms": {"norm": "rms", "qk_norm": True},
    "attention norm": {"attention_norm": True},
    "mean and its norm": {"pool": "mean", "pool_norm": True, "final_norm": False},
    "attention pooling": {"pool": "attention", "class_tokens": 0, "pool_heads": 2},
    "both": {"pool": "cls+mean"},
    "DeiT's second token": {"class_tokens": 2},
    "rotary": {"position": "none", "rotary": Rotary()},
    "rotary by index": {"rotary": Rotary("index", 10_000.0, (2, 3), 1.0), "registers": 1},
    "position bias": {"position": "none", "position_bias": True},
    "biases of q and v": {"k_bias": False},
    "none": {"qkv_bias": False},
    **ARCHITECTURES,
}


def tiny(**changes):
    return ModernConfig(**TINY | changes)


def model_of(*, dtype=torch.float64, seed=0, **changes):
    return randomise(ModernViT(tiny(**changes)), seed).to(dtype).eval()


def images(size=(32, 32), dtype=torch.float64, batch=2):
    return torch.randn(batch, 3, *size, dtype=dtype)


# ---------------------------------------------------------------------------------------------------- the special case


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"qkv_bias": False, "gelu": "tanh"},
        {"position": "sincos", "image_size": (16, 40)},
        {"position": "none"},
    ],
)
def test_with_every_option_left_alone_it_is_the_plain_vit(changes):
    plain = randomise(vt.ViT(vt.ViTConfig(**TINY | changes))).double().eval()
    ours = ModernViT(tiny(**changes)).double().eval()
    ours.load_state_dict(plain.state_dict())  # the same names
    size = vt.patches.as_pair(plain.config.image_size, "image_size")
    x = images(size)
    assert_close(ours(x), plain(x), rtol=0, atol=0)
    assert_close(ours.features(x), plain.features(x), rtol=0, atol=0)
    assert_close(ours.attention_maps(x, [-1, 0]), plain.attention_maps(x, [-1, 0]), rtol=0, atol=0)
    assert modern.count_parameters(ours.config) == vt.count_parameters(plain.config)
    assert modern.count_macs(ours.config) == vt.count_macs(plain.config)
    assert ours.config.num_tokens == plain.config.num_tokens


def test_it_starts_as_the_plain_one():
    torch.manual_seed(1)
    plain = vt.ViT(vt.ViTConfig(**TINY)).state_dict()
    torch.manual_seed(1)
    assert_close(ModernViT(tiny()).state_dict(), plain, rtol=0, atol=0)


# ------------------------------------------------------------------------------------------------------------ the parts


@pytest.mark.parametrize("part", PARTS)
def test_the_fused_pass_the_steps_and_the_maps_agree(part):
    model = model_of(**PARTS[part])
    x = images()
    maps = model.attention_maps(x)
    z = model.embed(x)
    T = model.config.num_tokens
    for layer, block in enumerate(model.blocks):
        attention = block.attention
        q, k, v = attention.split_heads(block.norm1(z))
        z_heads, weights = vt.dot_product_attention(q, k, v, attention.score_bias(q))
        same(attention.proj(attention.merge_heads(z_heads)), attention(block.norm1(z)))
        assert maps[layer].shape == (2, 4, T, T)
        same(weights, maps[layer])
        same(weights.sum(-1), torch.ones(2, 4, T, dtype=torch.float64))
        same(block.attend(z), z + block.scale1(attention(block.norm1(z))))
        z = block(z)
    same(model.norm(z), model.features(x))
    assert model(x).shape == (2, 5)
    with pytest.raises(ValueError, match="no layer 2"):
        model.attention_maps(x, [2])


@pytest.mark.parametrize("part", PARTS)
def test_every_tensor_matters_and_every_count_is_right(part):
    model = model_of(**PARTS[part])
    assert modern.count_parameters(model.config) == sum(p.numel() for p in model.parameters())
    loss = model(images()).square().sum()
    loss.backward()
    for name, parameter in model.named_parameters():
        q_of_the_probe = name in ("pool.probe", "pool.q.weight", "pool.q.bias")
        if (
            "kv.bias" not in name
            and "qkv.bias" not in name
            and not q_of_the_probe
            and name != "blocks.0.attention.qv_bias"
        ):
            assert parameter.grad is not None, name
            assert parameter.grad.abs().max() > 0, name


def test_rotary_angles_by_hand():
    centred = Rotary().angles((2, 4), 8, torch.zeros(1, dtype=torch.float64))  # (8, 4): row, row, column, column
    slow = 100.0**-0.5
    same(centred[0], math.pi * torch.tensor([-1, -slow, -1.5, -1.5 * slow], dtype=torch.float64))
    same(centred[-1], -centred[0])
    index = Rotary("index", 100.0, (4, 4), 1.0).angles((2, 4), 8, torch.zeros(1, dtype=torch.float64))
    same(index[5], torch.tensor([4, 4 * slow, 2, 2 * slow], dtype=torch.float64))


@pytest.mark.parametrize("part", ["rotary", "position bias"])
def test_places_follow_the_precision_and_are_filled_after_meta(part):
    model = model_of(**PARTS[part])
    x = images()
    with torch.device("meta"):
        empty = ModernViT(model.config)
    empty.to_empty(device="cpu").load_state_dict(model.state_dict())
    same(empty.double().eval()(x), model(x))
    there_and_back = ModernViT(model.config).half().double().eval()  # half precision would have rounded the angles
    there_and_back.load_state_dict(model.state_dict())
    same(there_and_back(x), model(x))


# ------------------------------------------------------------------------------------------------ compiled, exported, …

WHOLE = {
    **ARCHITECTURES["dinov3"],
    **{"gated": True, "mlp_norm": True, "qk_norm": True, "pool": "attention", "attention_norm": True},
}


@pytest.mark.parametrize(
    "changes",
    [pytest.param(WHOLE, id="rotary"), pytest.param(ARCHITECTURES["beit"], id="bias")],
)
@pytest.mark.skipif(torch.__version__ < "2.14", reason="2.9's compiler can't follow it")
@pytest.mark.slow
@pytest.mark.parametrize("how", ["compiled", "exported"])
def test_compiles_and_exports_as_one_graph(how, changes):
    model = model_of(dtype=torch.float32, depth=1, **changes)
    x = images(dtype=torch.float32)
    if how == "compiled":
        graph = torch.compile(model, fullgraph=True, backend="aot_eager")
    else:
        graph = torch.export.export(model, (x,)).module()
    assert_close(graph(x), model(x))


@pytest.mark.parametrize("part", ["dinov3", "eva02", "beit", "siglip"])
def test_bfloat16_stays_close(part):
    model = model_of(dtype=torch.float32, **PARTS[part])
    x = images(dtype=torch.float32)
    wanted = model(x)
    got = model.bfloat16()(x.bfloat16())
    assert got.dtype == torch.bfloat16
    assert (got.float() - wanted).abs().max() < 0.1 * wanted.abs().max()
    maps = model.attention_maps(x.bfloat16(), [0])[0]
    assert_close(maps.float().sum(-1), torch.ones(maps.shape[:-1]), rtol=0, atol=0.05)


def test_meta_builds_without_memory_and_a_state_dict_fills_it():
    full = model_of(dtype=torch.float32, **WHOLE)
    with torch.device("meta"):
        empty = ModernViT(full.config)
    empty.load_state_dict(full.state_dict(), assign=True)  # no buffer is left behind
    x = images(dtype=torch.float32)
    assert_close(empty.eval()(x), full(x), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"gelu": "relu"}, ["gelu", "relu", "quick"]),
        ({"pool": "max"}, ["pool", "max", "attention"]),
        ({"norm": "batch"}, ["norm", "batch"]),
        ({"registers": -1}, ["registers", "-1"]),
        ({"class_tokens": 0}, ["pool='cls'", "class_tokens=1"]),
        ({"class_tokens": -1}, ["class_tokens", "-1"]),
        ({"class_tokens": 2, "position": "none"}, ["several class tokens", "'none'"]),
        ({"class_tokens": 0, "pool": "cls+mean"}, ["pool='cls+mean'"]),
        ({"rotary": Rotary(), "dim": 24}, ["divisible by 4", "24 / 4"]),
        ({"position_bias": True, "registers": 1}, ["position_bias"]),
        ({"position_bias": True, "class_tokens": 0, "pool": "mean"}, ["position_bias"]),
        ({"pool": "attention", "pool_heads": 5}, ["pool_heads 5"]),
        ({"pool": "attention", "pool_heads": 0}, ["pool_heads", "at least 1"]),
        ({"layer_scale": float("nan")}, ["layer_scale must be finite", "nan"]),
        ({"dim": 30}, ["dim 30", "num_heads 4"]),
        ({"image_size": 30}, ["30x30"]),
    ],
)
def test_fields_that_do_not_go_together(changes, words, refuses):
    with refuses(ValueError, *words):
        tiny(**changes)


def test_numbers_have_their_type(refuses):
    with refuses(TypeError, "layer_scale must be a number", "'a'"):
        tiny(layer_scale="a")
    with refuses(TypeError, "registers must be an int", "1.5"):
        tiny(registers=1.5)
    with refuses(TypeError, "temperature must be a number", "'a'"):
        Rotary(temperature="a")


@pytest.mark.parametrize("name", ["qkv_bias", "pre_norm", "gated"])
def test_a_switch_is_true_or_false(name, refuses):
    with refuses(TypeError, f"{name} must be True or False", "'no'"):
        tiny(**{name: "no"})


def test_a_config_is_hashable_and_survives_json():
    config = tiny(image_size=[32, 16], rotary=Rotary("index", 100.0, (4, 4)))
    back = ModernConfig(**json.loads(json.dumps(dataclasses.asdict(config))))
    assert back == config
    assert hash(back) == hash(config)


# ------------------------------------------------------------------------------------------ the same part in a library

TIMM = {  # as timm's VisionTransformer is told: whole models of timm's and transformers' are in test_library_models.py
    "layer scale": {"init_values": 0.5},
    "registers": {"reg_tokens": 3, "no_embed_class": True},
    "norm before the blocks": {"pre_norm": True},
    "quick gelu": {"act_layer": QuickGELU},
    "tanh gelu": {"act_layer": partial(nn.GELU, approximate="tanh")},
    "gated": {"mlp_layer": SwiGLUPacked, "act_layer": nn.SiLU, "mlp_ratio": 3.0},
    "rms": {"norm_layer": partial(nn.RMSNorm, eps=1e-6), "qk_norm": True},
    "attention norm": {"scale_attn_norm": True},
    "MLP norm": {"scale_mlp_norm": True},
    "mean and its norm": {"global_pool": "avg", "fc_norm": True},
    "mean of all tokens": {"global_pool": "avg", "fc_norm": False, "pool_include_prefix": True},
    "attention pooling": {"global_pool": "map", "class_token": False},
    "no biases": {"qkv_bias": False},
    "no positions": {"pos_embed": "none"},
}


@pytest.mark.parametrize("part", TIMM)
def test_timm_s_model_with_this_part_gives_the_same_numbers(part):
    theirs = VisionTransformer(
        **{"img_size": 32, "patch_size": 8, "num_classes": 5, "embed_dim": 32, "depth": 2, "num_heads": 4} | TIMM[part]
    )
    twin = timm_models.describe(randomise(theirs).eval())
    model = convert.model_of(twin).double()
    x = images()
    with torch.no_grad():
        same(model(x), theirs.double()(x))
